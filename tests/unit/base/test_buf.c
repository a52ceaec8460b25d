/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdlib.h>

#include "tests/support/testing.h"

START_TEST(grows_and_stays_terminated)
{
	struct buf buf = {0};

	ck_assert_uint_eq(buf_str(&buf).len, 0);
	ck_assert_ptr_nonnull(buf_str(&buf).ptr);
	for (int i = 0; i < 1000; i++) {
		buf_add_byte(&buf, (char)('a' + i % 26));
		ck_assert_uint_eq(buf.len, (size_t)i + 1);
		ck_assert_int_eq(buf.data[buf.len], '\0');
	}
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(buf.data[i], 'a' + i % 26);
	buf_reset(&buf);
	ck_assert_uint_eq(buf.len, 0);
	ck_assert_str_eq(buf.data, "");
	buf_done(&buf);
	ck_assert_ptr_null(buf.data);
	buf_done(&buf);
}
END_TEST

START_TEST(printf_of_any_length)
{
	struct buf buf = BUF_INIT;

	buf_printf(&buf, "%s-%d", "lane", 3);
	ck_assert_str_eq(buf.data, "lane-3");
	buf_printf(&buf, "%0500d", 1);
	ck_assert_uint_eq(buf.len, 506);
	ck_assert_int_eq(buf.data[505], '1');
	/* Exactly what fits, and one more. */
	for (size_t len = 1; len < 200; len++) {
		struct buf edge = BUF_INIT;

		buf_printf(&edge, "%0*d", (int)len, 7);
		ck_assert_uint_eq(edge.len, len);
		ck_assert_int_eq(edge.data[len - 1], '7');
		buf_done(&edge);
	}
	buf_done(&buf);
}
END_TEST

START_TEST(json_escapes)
{
	struct buf buf = BUF_INIT;

	buf_add_json(&buf, STR("a\"b\\c\n\t\r\b\f\x01\x1f\x7f/"));
	ck_assert_str_eq(buf.data, "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\\u001f\\u007f/\"");
	buf_reset(&buf);
	buf_add_json(&buf, STR("\xc3\xa4\xe2\x82\xac\xc2\x85"));
	ck_assert_str_eq(buf.data, "\"\xc3\xa4\xe2\x82\xac\\u0085\"");
	buf_reset(&buf);
	buf_add_json(&buf, STR("x\xffy\xc3"));
	ck_assert_str_eq(buf.data, "\"x\xef\xbf\xbdy\xef\xbf\xbd\"");
	buf_reset(&buf);
	buf_add_json(&buf, STR("\0"));
	ck_assert_str_eq(buf.data, "\"\\u0000\"");
	buf_reset(&buf);
	buf_add_json(&buf, STR_NONE);
	ck_assert_str_eq(buf.data, "\"\"");
	buf_done(&buf);
}
END_TEST

START_TEST(big_endian)
{
	struct buf buf = BUF_INIT;

	buf_add_be16(&buf, 0x0102);
	buf_add_be32(&buf, 0x03040506);
	buf_add_be64(&buf, UINT64_C(0x0708090a0b0c0d0e));
	ck_assert_uint_eq(buf.len, 14);
	for (size_t i = 0; i < buf.len; i++)
		ck_assert_int_eq(buf.data[i], (int)i + 1);
	buf_done(&buf);
}
END_TEST

START_TEST(take_gives_away)
{
	struct buf buf = BUF_INIT;
	size_t len;
	char *bytes = buf_take(&buf, &len);

	ck_assert_str_eq(bytes, "");
	ck_assert_uint_eq(len, 0);
	free(bytes);
	buf_add_text(&buf, "claim");
	bytes = buf_take(&buf, &len);
	ck_assert_str_eq(bytes, "claim");
	ck_assert_uint_eq(len, 5);
	ck_assert_ptr_null(buf.data);
	free(bytes);
}
END_TEST

static Suite *buf_suite(void)
{
	Suite *suite = suite_create("base/buf");
	TCase *tcase = tcase_create("buf");

	TEST_ADD_ALL(tcase, grows_and_stays_terminated, printf_of_any_length, json_escapes, big_endian,
		     take_gives_away);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(buf_suite)
