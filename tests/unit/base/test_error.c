/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include "tests/support/testing.h"

START_TEST(every_code_is_complete_and_unique)
{
	ck_assert_str_eq(code_text(CODE_NONE), "");
	for (int code = CODE_NONE + 1; code < CODE_COUNT; code++) {
		const struct code_info *info = code_info((enum code)code);

		ck_assert_msg(str_starts_with(str_of(info->text), STR("SUTRA.")), "%s", info->text);
		ck_assert_str_ne(info->meaning, "");
		ck_assert_str_ne(info->action, "");
		/* It finds the first with the text: another would be a duplicate. */
		ck_assert_int_eq(code_find(str_of(info->text)), code);
	}
	ck_assert_int_eq(code_find(STR("SUTRA.NO.SUCH")), CODE_NONE);
	ck_assert_int_eq(code_find(STR_NONE), CODE_NONE);
}
END_TEST

START_TEST(set_returns_what_it_set)
{
	struct error err = ERROR_INIT;

	err.stage = "decode";
	ck_assert_int_eq(error_set(&err, RESULT_REJECT, CODE_PARSE_JSON, "line %d", 3), RESULT_REJECT);
	ck_assert_int_eq(err.what, RESULT_REJECT);
	ck_assert_int_eq(err.code, CODE_PARSE_JSON);
	ck_assert_str_eq(err.text, "line 3");
	ck_assert_str_eq(err.stage, "decode");
	ck_assert_int_eq(error_set(NULL, RESULT_AGAIN, CODE_NONE, "x"), RESULT_AGAIN);
}
END_TEST

START_TEST(text_may_be_its_own_argument)
{
	struct error err = ERROR_INIT;

	error_set(&err, RESULT_FATAL, CODE_STARTUP_SETTINGS, "inner");
	error_set(&err, RESULT_FATAL, CODE_STARTUP_SETTINGS, "outer (%s)", err.text);
	ck_assert_str_eq(err.text, "outer (inner)");
	ck_assert_int_eq(error_prefix(&err, "%s:%d", "channels.conf", 7), RESULT_FATAL);
	ck_assert_str_eq(err.text, "channels.conf:7: outer (inner)");
}
END_TEST

START_TEST(cut_falls_between_characters)
{
	struct error err = ERROR_INIT;
	char text[1024];

	/* Each start lets the end of the room fall on another byte of the three of a euro sign. */
	for (size_t start = 0; start < 3; start++) {
		memset(text, 'x', sizeof(text));
		for (size_t at = start; at + 3 < sizeof(text); at += 3)
			memcpy(text + at, "\xe2\x82\xac", 3);
		text[sizeof(text) - 1] = '\0';
		error_set(&err, RESULT_REJECT, CODE_NONE, "%s", text);
		ck_assert(str_is_utf8(str_of(err.text)));
		ck_assert_uint_ge(strlen(err.text), sizeof(err.text) - 4);
		error_prefix(&err, "%s", "p");
		ck_assert(str_is_utf8(str_of(err.text)));
		ck_assert(str_starts_with(str_of(err.text), STR("p: ")));
		error_prefix(&err, "%s", text);
		ck_assert(str_is_utf8(str_of(err.text)));
	}
	memset(text, 'y', sizeof(err.text) - 1);
	text[sizeof(err.text) - 1] = '\0';
	error_set(&err, RESULT_REJECT, CODE_NONE, "%s", text);
	ck_assert_str_eq(err.text, text);
}
END_TEST

static Suite *error_suite(void)
{
	Suite *suite = suite_create("base/error");
	TCase *tcase = tcase_create("error");

	TEST_ADD_ALL(tcase, every_code_is_complete_and_unique, set_returns_what_it_set, text_may_be_its_own_argument,
		     cut_falls_between_characters);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(error_suite)
