/* SPDX-License-Identifier: Apache-2.0 */
#include "base/time.h"

#include "tests/support/testing.h"

START_TEST(clocks_go_forward)
{
	int64_t before = time_monotonic_us();

	ck_assert_int_gt(before, 0);
	ck_assert_int_ge(time_monotonic_us(), before);
	/* After 2020. */
	ck_assert_int_gt(time_wall_us(), INT64_C(1577836800) * US_PER_S);
	ck_assert_uint_ne(time_random(), time_random());
}
END_TEST

START_TEST(format_known_times)
{
	char text[TIME_TEXT_SIZE];

	ck_assert_str_eq(time_format(0, text), "1970-01-01T00:00:00Z");
	ck_assert_str_eq(time_format(-1, text), "1969-12-31T23:59:59.999999Z");
	ck_assert_str_eq(time_format(INT64_C(1796040000123456), text), "2026-11-30T12:00:00.123456Z");
	ck_assert_str_eq(time_format(INT64_C(951782400) * US_PER_S, text), "2000-02-29T00:00:00Z");
	ck_assert_str_eq(time_format(INT64_C(253402300799) * US_PER_S, text), "9999-12-31T23:59:59Z");
	/* Beyond what the text holds it must not write out of bounds. */
	time_format(INT64_MAX, text);
	time_format(INT64_MIN, text);
}
END_TEST

START_TEST(parse_all_forms)
{
	static const struct {
		const char *text;
		int64_t us;
	} good[] = {
		{"1970-01-01T00:00:00Z", 0},
		{"1970-01-01t00:00:00.5z", 500000},
		{"1970-01-01 01:00:00+01:00", 0},
		{"1969-12-31T22:30:00-01:30", 0},
		{"2026-11-30T12:00:00.1234569Z", INT64_C(1796040000123456)},
		{"2016-12-31T23:59:60Z", INT64_C(1483228800) * US_PER_S},
		{"2000-02-29T00:00:00Z", INT64_C(951782400) * US_PER_S},
		{"0001-01-01T00:00:00Z", INT64_C(-62135596800) * US_PER_S},
	};
	static const char *const bad[] = {
		"9999-12-31T23:59:60Z",
		"9999-12-31T23:00:00-05:00",
		"0001-01-01T00:00:00+00:01","",
					  "1970-01-01",
					  "1970-01-01T00:00:00",
					  "1970-1-01T00:00:00Z",
					  "1970-13-01T00:00:00Z",
					  "1970-00-01T00:00:00Z",
					  "1970-02-29T00:00:00Z",
					  "1900-02-29T00:00:00Z",
					  "1970-04-31T00:00:00Z",
					  "1970-01-01T24:00:00Z",
					  "1970-01-01T00:60:00Z",
					  "1970-01-01T00:00:61Z",
					  "1970-01-01T00:00:00.Z",
					  "1970-01-01T00:00:00Zx",
					  "1970-01-01T00:00:00+1:00",
					  "1970-01-01T00:00:00+24:00",
					  "1970-01-01T00:00:00+0100",
					  "-970-01-01T00:00:00Z",
					  "0000-01-01T00:00:00Z"};
	int64_t us = 7;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!time_parse(str_of(bad[i]), &us), "'%s'", bad[i]);
	ck_assert_int_eq(us, 7);
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		ck_assert_msg(time_parse(str_of(good[i].text), &us), "'%s'", good[i].text);
		ck_assert_int_eq(us, good[i].us);
	}
}
END_TEST

START_TEST(what_is_formatted_parses)
{
	char text[TIME_TEXT_SIZE];

	/* Odd steps over five centuries. */
	for (int64_t us = INT64_C(-7000000000123457); us < INT64_C(9000000000000000); us += INT64_C(777777777777)) {
		int64_t back;

		ck_assert(time_parse(str_of(time_format(us, text)), &back));
		ck_assert_int_eq(back, us);
	}
}
END_TEST

static Suite *time_suite(void)
{
	Suite *suite = suite_create("base/time");
	TCase *tcase = tcase_create("time");

	TEST_ADD_ALL(tcase, clocks_go_forward, format_known_times, parse_all_forms, what_is_formatted_parses);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(time_suite)
