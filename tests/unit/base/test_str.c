/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "tests/support/testing.h"

START_TEST(equality_and_order)
{
	ck_assert(str_equal(STR("lane"), STR("lane")));
	ck_assert(!str_equal(STR("lane"), STR("lanes")));
	ck_assert(str_equal(STR_NONE, STR("")));
	ck_assert(str_equal_nocase(STR("Content-Type"), STR("content-tYPE")));
	ck_assert(!str_equal_nocase(STR("content_type"), STR("content-type")));
	ck_assert(!str_equal_nocase(STR("\xc3\x84"), STR("\xc3\xa4")));

	ck_assert_int_lt(str_compare(STR("a"), STR("b")), 0);
	ck_assert_int_lt(str_compare(STR("a"), STR("aa")), 0);
	ck_assert_int_gt(str_compare(STR("\xff"), STR("a")), 0);
	ck_assert_int_eq(str_compare(STR("ab"), STR("ab")), 0);
	ck_assert_int_lt(str_compare(STR_NONE, STR("a")), 0);
}
END_TEST

START_TEST(prefix_and_find)
{
	ck_assert(str_starts_with(STR("sutra.x"), STR("sutra.")));
	ck_assert(!str_starts_with(STR("su"), STR("sutra.")));
	ck_assert(str_starts_with(STR("x"), STR("")));
	ck_assert_int_eq(str_find(STR("a:b:c"), ':'), 1);
	ck_assert_int_eq(str_find(STR("abc"), ':'), -1);
	ck_assert_int_eq(str_find(STR_NONE, ':'), -1);
	ck_assert_int_eq(str_find(STR("a\0b"), '\0'), 1);
}
END_TEST

START_TEST(utf8_is_strict)
{
	static const struct str good[] = {
		STR(""),
		STR("plain"),
		STR("a\0b"),
		STR("\xc2\x80\xdf\xbf"),
		STR("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"),
		STR("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"),
	};
	static const struct str bad[] = {
		STR("\x80"),
		STR("\xc0\x80"),
		STR("\xc1\xbf"),
		STR("\xc2"),
		STR("\xe0\x9f\xbf"),
		STR("\xed\xa0\x80"),
		STR("\xf0\x8f\xbf\xbf"),
		STR("\xf4\x90\x80\x80"),
		STR("\xf5\x80\x80\x80"),
		STR("\xe2\x82"),
		STR("ok\xff"),
		STR("\xe2\x28\xa1"),
	};

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		ck_assert_msg(str_is_utf8(good[i]), "good %zu", i);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!str_is_utf8(bad[i]), "bad %zu", i);
	ck_assert_uint_eq(str_utf8_next(STR("\xe2\x82\xac!")), 3);
	ck_assert_uint_eq(str_utf8_next(STR("")), 0);
}
END_TEST

START_TEST(int64_is_whole_and_in_range)
{
	static const char *const bad[] = {"",    "-",    "+",   " 1", "1 ", "1.0", "0x1", "9223372036854775808",
					  "-9223372036854775809", "--1", "1e3", "99999999999999999999"};
	int64_t value = 7;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!str_to_int64(str_of(bad[i]), &value), "'%s'", bad[i]);
	ck_assert(!str_to_int64(STR_NONE, &value));
	ck_assert_int_eq(value, 7);
	ck_assert(str_to_int64(STR("9223372036854775807"), &value));
	ck_assert_int_eq(value, INT64_MAX);
	ck_assert(str_to_int64(STR("-9223372036854775808"), &value));
	ck_assert_int_eq(value, INT64_MIN);
	ck_assert(str_to_int64(STR("+0042"), &value));
	ck_assert_int_eq(value, 42);
}
END_TEST

START_TEST(durations)
{
	static const struct {
		const char *text;
		int64_t ms;
	} good[] = {
		{"PT0S", 0},	      {"PT0.5S", 500},	   {"PT1,25S", 1250},	 {"PT0.0019S", 1},
		{"P7D", 604800000},   {"P1W", 604800000},  {"P1DT1H1M1S", 90061000}, {"PT36H", 129600000},
		{"PT1H30S", 3630000}, {"PT1.5H", 5400000}, {"P0.5D", 43200000}, {"PT0.123456789123S", 123}, {"P106751991167D", INT64_C(9223372036828800000)},
	};
	static const char *const bad[] = {"",	   "P",	    "PT",   "P1",    "1D",    "P1Y",   "P1M",	"-PT1S",
					  "PT-1S", "P1DT",  "PT1",  "PTS",   "PT1.S", "PT1.5H1S", "PT1S1M", "PT1S1S",
					  "P1D1W", "PT1D",  "PT1ST", "P1H",  "PT1S ", "pt1s", "P106751991168D",
					  "PT99999999999999999999S", "P0.5DT1S"};
	int64_t ms = 7;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!str_to_duration_ms(str_of(bad[i]), &ms), "'%s'", bad[i]);
	ck_assert_int_eq(ms, 7);
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		ck_assert_msg(str_to_duration_ms(str_of(good[i].text), &ms), "'%s'", good[i].text);
		ck_assert_int_eq(ms, good[i].ms);
	}
}
END_TEST

static Suite *str_suite(void)
{
	Suite *suite = suite_create("base/str");
	TCase *tcase = tcase_create("str");

	TEST_ADD_ALL(tcase, equality_and_order, prefix_and_find, utf8_is_strict, int64_is_whole_and_in_range,
		     durations);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(str_suite)
