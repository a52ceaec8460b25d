/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "tests/support/testing.h"

static struct buf seen;

static void keep(void *arg, struct str line)
{
	ck_assert_ptr_eq(arg, &seen);
	buf_reset(&seen);
	buf_add_str(&seen, line);
}

static void before(void)
{
	log_redirect(keep, &seen);
	buf_reset(&seen);
}

static void after(void)
{
	log_redirect(NULL, NULL);
	log_configure(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
	buf_done(&seen);
}

static const struct log_about about_all = {
	.stage = "commit",
	.delivery = STR("kafka:orders/3/17"),
	.tenant = STR("acme"),
	.channel = STR("orders in"),
	.instance = STR("01"),
	.lane = 1,
	.code = CODE_PARSE_JSON,
};

START_TEST(text_form)
{
	char *tail;

	log_warning(&about_all, "%s of %d", "one", 2);
	tail = strchr(seen.data, ' ');
	ck_assert_str_eq(tail, " warning one of 2 stage=commit delivery=kafka:orders/3/17 tenant=acme "
			       "channel=\"orders in\" instance=01 lane=0 code=SUTRA.PARSE.JSON.PARSE_ERROR");
	log_info(NULL, "plain");
	ck_assert_str_eq(strchr(seen.data, ' '), " info    plain");
}
END_TEST

START_TEST(json_form)
{
	static const char *const keys[] = {"ts",      "level",	  "msg",  "stage", "delivery", "tenant",
					   "channel", "instance", "lane", "code"};
	json_t *line;
	size_t i = 0;
	const char *key;
	json_t *value;

	log_configure(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
	log_error(&about_all, "say \"%s\"", "hi\n");
	line = json_loads(seen.data, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_msg(line != NULL, "%s", seen.data);
	json_object_foreach(line, key, value)
		ck_assert_str_eq(key, keys[i++]);
	ck_assert_uint_eq(i, ARRAY_LEN(keys));
	ck_assert_str_eq(json_string_value(json_object_get(line, "msg")), "say \"hi\n\"");
	ck_assert_str_eq(json_string_value(json_object_get(line, "level")), "error");
	ck_assert_int_eq(json_integer_value(json_object_get(line, "lane")), 0);
	ck_assert_str_eq(json_string_value(json_object_get(line, "code")), "SUTRA.PARSE.JSON.PARSE_ERROR");
	json_decref(line);

	log_error(NULL, "x");
	line = json_loads(seen.data, 0, NULL);
	ck_assert_uint_eq(json_object_size(line), 3);
	json_decref(line);
}
END_TEST

/* _i is the form. */
START_TEST(no_control_byte_leaves_raw)
{
	struct log_about about = {.tenant = STR("a\x1b[2Jb\n\x7f\xc2\x9b")};

	log_configure(LOG_LEVEL_INFO, (enum log_format)_i);
	log_error(&about, "%s", "evil\x1b[31m\r\nforged\t\x01\x7f\xc2\x9b\xff");
	for (size_t i = 0; i < seen.len; i++) {
		unsigned char byte = (unsigned char)seen.data[i];

		ck_assert_msg(byte >= 0x20 && byte != 0x7f, "byte %zu is %02x", i, byte);
		ck_assert(!(byte == 0xc2 && (unsigned char)seen.data[i + 1] < 0xa0));
	}
	ck_assert(str_is_utf8(buf_str(&seen)));
	ck_assert_ptr_nonnull(strstr(seen.data, "forged"));
}
END_TEST

START_TEST(level_decides)
{
	log_configure(LOG_LEVEL_WARNING, LOG_FORMAT_TEXT);
	log_info(NULL, "no");
	log_debug(NULL, "no");
	ck_assert_uint_eq(seen.len, 0);
	log_warning(NULL, "yes");
	ck_assert_uint_ne(seen.len, 0);
	ck_assert(!log_enabled(LOG_LEVEL_INFO));
	log_configure(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
	buf_reset(&seen);
	log_debug(NULL, "yes");
	ck_assert_uint_ne(seen.len, 0);
}
END_TEST

START_TEST(lines_go_to_standard_error)
{
	char *dir = test_dir_new();
	char *path = test_file_write(dir, "log", STR(""));
	int saved = dup(STDERR_FILENO), file = open(path, O_WRONLY | O_APPEND);
	char *text;
	size_t len;

	log_redirect(NULL, NULL);
	ck_assert_int_ge(file, 0);
	dup2(file, STDERR_FILENO);
	log_info(NULL, "first");
	log_info(NULL, "second");
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(file);
	text = test_file_read(path, &len);
	ck_assert_ptr_nonnull(strstr(text, " first\n2"));
	ck_assert_int_eq(text[len - 1], '\n');
	free(text);
	free(path);
	test_dir_free(&dir);
}
END_TEST

static Suite *log_suite(void)
{
	Suite *suite = suite_create("base/log");
	TCase *tcase = tcase_create("log");

	tcase_add_checked_fixture(tcase, before, after);
	TEST_ADD_ALL(tcase, text_form, json_form, level_decides, lines_go_to_standard_error);
	tcase_add_loop_test(tcase, no_control_byte_leaves_raw, LOG_FORMAT_TEXT, LOG_FORMAT_JSON + 1);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(log_suite)
