/* SPDX-License-Identifier: Apache-2.0 */
#include "base/iso8601.h"

#include "base/time.h"
#include "tests/support/testing.h"

#define S US_PER_S

START_TEST(durations)
{
	static const struct {
		const char *text;
		int64_t us;
	} good[] = {
		{"PT0S", 0},
		{"PT1S", S},
		{"PT0.5S", S / 2},
		{"PT0,000001S", 1},
		{"PT0.0000019S", 1},
		{"PT0.1234567899999S", 123456},
		{"PT1.5M", 90 * S},
		{"PT0.25H", 900 * S},
		{"P0.5D", 43200 * S},
		{"P1.5W", 907200 * S},
		{"P0.000000001W", 604},
		{"PT1H1.5M", 3690 * S},
		{"P1W1DT1H1M1.000001S", 694861 * S + 1},
		{"PT2562047788H", INT64_C(2562047788) * 3600 * S},
		{"PT9223372036854.775807S", INT64_MAX},
	};
	static const char *const bad[] = {
		"",          "P",       "PT",      "T1S",       "P1Y",      "P1M",     "P1Y2M3D",
		"P1DT",      "PT1.S",   "PT.5S",   "PT1.5M1S",  "P1.5DT1S", "P1D1D",   "PT1S1M",
		"-PT1S",     "PT-1S",   " PT1S",   "PT1S ",     "PT1s",     "P1S",     "PT1D",
		"PT9223372036854.775808S", "PT2562047789H", "P99999999999999999999D", "PT1H1",
	};
	int64_t us = 7;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!iso_duration_parse(str_of(bad[i]), &us), "'%s'", bad[i]);
	ck_assert(!iso_duration_parse(STR_NONE, &us));
	ck_assert_int_eq(us, 7);
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		ck_assert_msg(iso_duration_parse(str_of(good[i].text), &us), "'%s'", good[i].text);
		ck_assert_msg(us == good[i].us, "'%s': %lld", good[i].text, (long long)us);
	}
	ck_assert(iso_duration_parse_in(STR("PT0.000000001S"), 1000000000, &us));
	ck_assert_int_eq(us, 1);
}
END_TEST

START_TEST(cycles)
{
	struct iso_cycle cycle = {.period_us = 7};
	static const char *const bad[] = {
		"",         "R",       "R/",       "R//",      "R0/PT1S",    "R-1/PT1S",  "R+1/PT1S",
		"R/PT0S",   "R/P1M",   "R1.5/PT1S", "r/PT1S",  "R/PT1S/",    "R/PT1S/PT1S",
		"PT1S",     "R/2026-12-01/PT1S",    "R/2026-12-01T00:00:00Z", "R /PT1S",
		"R/2026-12-01T00:00:00Z/2026-12-02T00:00:00Z", "R/2026-12-01T00:00:00Z/PT1S/",
		"R99999999999999999999/PT1S",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!iso_cycle_parse(str_of(bad[i]), &cycle), "'%s'", bad[i]);
	ck_assert_int_eq(cycle.period_us, 7);
	ck_assert(iso_cycle_parse(STR("R/PT1M"), &cycle));
	ck_assert(cycle.repeats == -1 && !cycle.has_start && cycle.period_us == 60 * S);
	ck_assert(iso_cycle_parse(STR("R3/PT0.5S"), &cycle));
	ck_assert(cycle.repeats == 3 && !cycle.has_start && cycle.period_us == S / 2);
	ck_assert(iso_cycle_parse(STR("R3/1970-01-01T01:00:01+01:00/P1D"), &cycle));
	ck_assert(cycle.repeats == 3 && cycle.has_start && cycle.start_us == S &&
		  cycle.period_us == 86400 * S);
}
END_TEST

START_TEST(faults_name_what_is_wrong)
{
	ck_assert(strstr(iso_duration_fault(STR("P1Y")), "no length"));
	ck_assert(strstr(iso_duration_fault(STR("P3M")), "no length"));
	ck_assert(!strstr(iso_duration_fault(STR("PT3Mx")), "no length"));
	ck_assert(strstr(iso_cycle_fault(STR("R/P1M")), "no length"));
	ck_assert(strstr(iso_cycle_fault(STR("R0/PT1S")), "begins with R/"));
	ck_assert(strstr(iso_cycle_fault(STR("R/today/PT1S")), "start of a cycle"));
	ck_assert(strstr(iso_cycle_fault(STR("R/PT0S")), "longer than nothing"));
	ck_assert(strstr(iso_cycle_fault(STR("R/2026-12-01T00:00:00Z/PT1S/x")), "is like"));
	ck_assert(strstr(iso_date_fault(STR("2026-12-01")), "offset"));
}
END_TEST

START_TEST(dates)
{
	char text[TIME_TEXT_SIZE];
	int64_t us;

	ck_assert(iso_date_parse(STR("1970-01-01T00:00:01.5+00:00"), &us));
	ck_assert_int_eq(us, 3 * S / 2);
	ck_assert(!iso_date_parse(STR("1970-01-01"), &us));
	ck_assert_str_eq(time_format(ISO_LAST_US, text), "9999-12-31T23:59:59.999999Z");
}
END_TEST

static Suite *iso8601_suite(void)
{
	Suite *suite = suite_create("base/iso8601");
	TCase *tcase = tcase_create("iso8601");

	TEST_ADD_ALL(tcase, durations, cycles, faults_name_what_is_wrong, dates);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(iso8601_suite)
