/* SPDX-License-Identifier: Apache-2.0 */
#include "model/timer.h"

#include "base/time.h"
#include "tests/support/random_value.h"
#include "tests/support/testing.h"

#define S   US_PER_S
#define NOW (INT64_C(1800000000) * S)

static struct timer_rule rule(enum timer_kind kind, const char *text)
{
	struct timer_rule made;
	struct error err = ERROR_INIT;

	ck_assert_msg(timer_parse(kind, str_of(text), &made, &err) == RESULT_OK, "%s", err.text);
	return made;
}

/* "first@+seconds remaining", relative to `now`. */
static void check_first(enum timer_kind kind, const char *text, bool comes, int64_t due_s,
			int64_t remaining)
{
	struct timer_rule made = rule(kind, text);
	int64_t due = 0, left = -7;

	ck_assert_msg(timer_first(&made, NOW, &due, &left) == comes, "%s", text);
	ck_assert_msg(due == NOW + due_s * S, "%s: due %lld", text, (long long)(due - NOW));
	ck_assert_msg(left == remaining, "%s: remaining %lld", text, (long long)left);
}

/* NOW is 2027-01-15T08:00:00Z. */
START_TEST(first)
{
	check_first(TIMER_DURATION, "PT10S", true, 10, 0);
	check_first(TIMER_DURATION, "PT0S", true, 0, 0);
	check_first(TIMER_DATE, "2027-01-15T09:00:00Z", true, 3600, 0);
	check_first(TIMER_DATE, "2027-01-15T07:00:00Z", true, -3600, 0);
	check_first(TIMER_CYCLE, "R/PT10S", true, 10, -1);
	check_first(TIMER_CYCLE, "R3/PT10S", true, 10, 2);
	check_first(TIMER_CYCLE, "R1/PT10S", true, 10, 0);
	check_first(TIMER_CYCLE, "R/2027-01-15T09:00:00Z/PT7S", true, 3600, -1);
	/* The times before now count as had; one right now does not. */
	check_first(TIMER_CYCLE, "R/2027-01-15T07:59:00Z/PT1H", true, 3540, -1);
	check_first(TIMER_CYCLE, "R3/2027-01-15T08:00:00Z/PT1H", true, 0, 2);
	check_first(TIMER_CYCLE, "R3/2027-01-15T07:00:00Z/PT1H", true, 0, 1);
	check_first(TIMER_CYCLE, "R3/2027-01-15T06:30:00Z/PT1H", true, 1800, 0);
	check_first(TIMER_CYCLE, "R3/2027-01-15T05:30:00Z/PT1H", false, -1800, 0);
	check_first(TIMER_CYCLE, "R3/2020-01-01T00:00:00Z/PT1S", false,
		    INT64_C(1577836802) - 1800000000, 0);
}
END_TEST

START_TEST(nothing_is_due_after_the_last_time)
{
	struct timer_rule made = rule(TIMER_DURATION, "P106751991D");
	int64_t due, left, next;

	ck_assert(timer_first(&made, NOW, &due, &left));
	ck_assert_int_eq(due, ISO_LAST_US);
	made = rule(TIMER_CYCLE, "R/9999-12-31T00:00:00Z/P100000000D");
	ck_assert(timer_first(&made, NOW, &due, &left));
	ck_assert(timer_next(&made, due, due, left, &next, &left));
	ck_assert_int_eq(next, ISO_LAST_US);
	ck_assert(!timer_next(&made, next, next, left, &next, &left));
	/* A start before 1970 is a time like others. */
	made = rule(TIMER_CYCLE, "R9223372036854775807/1900-01-01T00:00:00Z/P1D");
	ck_assert(timer_first(&made, NOW, &due, &left));
	ck_assert(due >= NOW && due < NOW + 86400 * S);
	made = rule(TIMER_DATE, "0001-01-01T00:00:00Z");
	ck_assert(timer_first(&made, NOW, &due, &left));
	ck_assert_int_eq(due, 1);
}
END_TEST

START_TEST(next_keeps_the_phase_and_coalesces)
{
	struct timer_rule endless = rule(TIMER_CYCLE, "R/PT10S");
	struct timer_rule once = rule(TIMER_DURATION, "PT10S");
	int64_t next = 0, left = 0;

	ck_assert(!timer_next(&once, NOW, NOW, 0, &next, &left));
	/* On time, late, and so late that times were missed. */
	ck_assert(timer_next(&endless, NOW, NOW, -1, &next, &left));
	ck_assert(next == NOW + 10 * S && left == -1);
	ck_assert(timer_next(&endless, NOW, NOW + 9 * S, -1, &next, &left));
	ck_assert(next == NOW + 10 * S);
	ck_assert(timer_next(&endless, NOW, NOW + 10 * S, -1, &next, &left));
	ck_assert(next == NOW + 20 * S);
	ck_assert(timer_next(&endless, NOW, NOW + 1005 * S, -1, &next, &left));
	ck_assert(next == NOW + 1010 * S);
	/* A clock that is behind fires once for each time, too. */
	ck_assert(timer_next(&endless, NOW, NOW - 100 * S, -1, &next, &left));
	ck_assert(next == NOW + 10 * S);
	/* What was missed is used up. */
	ck_assert(timer_next(&endless, NOW, NOW, 2, &next, &left));
	ck_assert(next == NOW + 10 * S && left == 1);
	ck_assert(timer_next(&endless, NOW, NOW + 15 * S, 2, &next, &left));
	ck_assert(next == NOW + 20 * S && left == 0);
	ck_assert(!timer_next(&endless, NOW, NOW + 25 * S, 2, &next, &left));
	ck_assert(!timer_next(&endless, NOW, NOW, 0, &next, &left));
}
END_TEST

/* Against a walk from one time to the next. */
START_TEST(next_is_what_a_walk_gives)
{
	struct random_source random = {.state = 42};

	for (int round = 0; round < 20000; round++) {
		int64_t period = 1 + (int64_t)random_below(&random, 50);
		int64_t now = NOW + (int64_t)random_below(&random, 1000) - 100;
		int64_t remaining = (int64_t)random_below(&random, 40) - 1;
		int64_t want = NOW, want_left = remaining, next = 0, left = 0;
		bool comes = true;

		do {
			comes = comes && want_left != 0;
			want_left -= want_left > 0;
			want += period;
		} while (want <= now);
		ck_assert(timer_next_in(period, NOW, now, remaining, &next, &left) == comes);
		ck_assert(!comes || (next == want && left == want_left));
	}
}
END_TEST

START_TEST(texts_that_are_none)
{
	struct timer_rule made = {.line = 7};
	struct error err = ERROR_INIT;

	ck_assert_int_eq(timer_parse(TIMER_DURATION, STR("P1M"), &made, &err), RESULT_REJECT);
	ck_assert_int_eq(err.code, CODE_EXPRESSION_FAILED);
	ck_assert_msg(strstr(err.text, "timeDuration \"P1M\": months and years"), "%s", err.text);
	ck_assert_int_eq(timer_parse(TIMER_DATE, STR("today"), &made, &err), RESULT_REJECT);
	ck_assert_int_eq(timer_parse(TIMER_CYCLE, STR_NONE, &made, &err), RESULT_REJECT);
	ck_assert_int_eq(made.line, 7);
}
END_TEST

static Suite *timer_suite(void)
{
	Suite *suite = suite_create("model/timer");
	TCase *tcase = tcase_create("timer");

	TEST_ADD_ALL(tcase, first, nothing_is_due_after_the_last_time,
		     next_keeps_the_phase_and_coalesces, next_is_what_a_walk_gives,
		     texts_that_are_none);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(timer_suite)
