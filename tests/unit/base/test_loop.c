/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timer heap on a loop whose clock stands still until the test moves it.
 */
#include "base/loop.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "tests/support/testing.h"

struct test_loop {
	struct loop base;
	int64_t now_us;
	int64_t armed_us;
	uint64_t random;
};

struct test_timer {
	struct loop_timer timer;
	int id;
	int64_t restart_us; /* -1: fires once */
	struct test_timer *stops;
};

static int fired[1000];
static size_t fired_count;

static struct test_loop *test_loop_of(struct loop *loop)
{
	return container_of(loop, struct test_loop, base);
}

static void test_arm(struct loop *loop, int64_t due_us)
{
	test_loop_of(loop)->armed_us = due_us;
}

static int64_t test_now(struct loop *loop)
{
	return test_loop_of(loop)->now_us;
}

static uint64_t test_random(struct loop *loop)
{
	/* An LCG: any will do. */
	struct test_loop *test = test_loop_of(loop);

	return test->random = test->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

static const struct loop_ops test_ops = {.arm = test_arm, .now_us = test_now, .random = test_random};

static void test_loop_init(struct test_loop *loop)
{
	*loop = (struct test_loop){.armed_us = -1, .random = 1};
	loop_base_init(&loop->base, NULL, &test_ops, "test");
	fired_count = 0;
}

static void fire(struct loop_timer *timer)
{
	struct test_timer *test = container_of(timer, struct test_timer, timer);

	ck_assert(!loop_timer_is_started(timer));
	ck_assert_uint_lt(fired_count, ARRAY_LEN(fired));
	fired[fired_count++] = test->id;
	if (test->stops)
		loop_timer_stop(&test->stops->timer);
	if (test->restart_us >= 0)
		loop_timer_start(timer, test->restart_us);
}

static void test_timer_init(struct test_timer *timer, struct test_loop *loop, int id)
{
	*timer = (struct test_timer){.id = id, .restart_us = -1};
	loop_timer_init(&timer->timer, &loop->base, fire);
}

static void advance(struct test_loop *loop, int64_t us)
{
	loop->now_us += us;
	loop_timers_run(&loop->base, loop->now_us);
}

START_TEST(arms_the_earliest)
{
	struct test_timer a, b;
	struct test_loop loop;

	test_loop_init(&loop);
	test_timer_init(&a, &loop, 1);
	test_timer_init(&b, &loop, 2);
	ck_assert_int_eq(loop_timers_next_us(&loop.base), INT64_MAX);
	loop_timer_start(&a.timer, 100);
	ck_assert_int_eq(loop.armed_us, 100);
	loop_timer_start(&b.timer, 50);
	ck_assert_int_eq(loop.armed_us, 50);
	loop_timer_start(&b.timer, 500);
	ck_assert_int_eq(loop.armed_us, 100);
	loop_timer_stop(&a.timer);
	ck_assert_int_eq(loop.armed_us, 500);
	loop_timer_stop(&b.timer);
	ck_assert_int_eq(loop.armed_us, INT64_MAX);
	loop_timer_stop(&b.timer);
	loop_timer_start(&a.timer, INT64_MAX);
	ck_assert(loop_timer_is_started(&a.timer));
	ck_assert_int_lt(loop.armed_us, INT64_MAX);
	loop_base_done(&loop.base);
	/* The loop has gone; stopping must not touch it. */
	ck_assert(!loop_timer_is_started(&a.timer));
	loop_timer_stop(&a.timer);
}
END_TEST

START_TEST(fires_in_order_of_due_then_start)
{
	struct test_timer timers[5];
	static const int64_t delays[] = {30, 10, 20, 10, 30};
	static const int order[] = {1, 3, 2, 0, 4};
	struct test_loop loop;

	test_loop_init(&loop);
	for (int i = 0; i < 5; i++) {
		test_timer_init(&timers[i], &loop, i);
		loop_timer_start(&timers[i].timer, delays[i]);
	}
	advance(&loop, 9);
	ck_assert_uint_eq(fired_count, 0);
	advance(&loop, 1);
	ck_assert_uint_eq(fired_count, 2);
	ck_assert_int_eq(loop.armed_us, 20);
	advance(&loop, 100);
	ck_assert_uint_eq(fired_count, 5);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(fired[i], order[i]);
	ck_assert_int_eq(loop.armed_us, INT64_MAX);
	loop_base_done(&loop.base);
}
END_TEST

START_TEST(restarted_waits_for_the_next_run)
{
	struct test_timer again, other;
	struct test_loop loop;

	test_loop_init(&loop);
	test_timer_init(&again, &loop, 1);
	test_timer_init(&other, &loop, 2);
	again.restart_us = 0;
	loop_timer_start(&again.timer, 0);
	loop_timer_start(&other.timer, 0);
	advance(&loop, 0);
	ck_assert_uint_eq(fired_count, 2);
	ck_assert_int_eq(fired[1], 2);
	ck_assert_int_eq(loop.armed_us, 0);
	advance(&loop, 5);
	ck_assert_uint_eq(fired_count, 3);
	loop_base_done(&loop.base);
}
END_TEST

START_TEST(stopped_by_another_does_not_fire)
{
	struct test_timer a, b;
	struct test_loop loop;

	test_loop_init(&loop);
	test_timer_init(&a, &loop, 1);
	test_timer_init(&b, &loop, 2);
	a.stops = &b;
	loop_timer_start(&a.timer, 1);
	loop_timer_start(&b.timer, 1);
	advance(&loop, 10);
	ck_assert_uint_eq(fired_count, 1);
	ck_assert_int_eq(fired[0], 1);
	loop_base_done(&loop.base);
}
END_TEST

/* Against a plain search: the heap and a table of due times must always agree on the next. */
START_TEST(heap_holds_under_random_use)
{
	enum { COUNT = 64 };
	struct test_timer timers[COUNT];
	int64_t due[COUNT];
	struct test_loop loop;
	bool agrees = true;

	test_loop_init(&loop);
	for (int i = 0; i < COUNT; i++) {
		test_timer_init(&timers[i], &loop, i);
		due[i] = INT64_MAX;
	}
	for (int round = 0; round < 10000; round++) {
		size_t i = loop_random_below(&loop.base, COUNT);
		int64_t delay = (int64_t)loop_random_below(&loop.base, 50), first = INT64_MAX;

		switch (loop_random_below(&loop.base, 3)) {
		case 0:
			loop_timer_start(&timers[i].timer, delay);
			due[i] = loop.now_us + delay;
			break;
		case 1:
			loop_timer_stop(&timers[i].timer);
			due[i] = INT64_MAX;
			break;
		default:
			fired_count = 0;
			advance(&loop, delay / 10);
			for (size_t f = 0; f < fired_count; f++) {
				ck_assert_int_le(due[fired[f]], loop.now_us);
				due[fired[f]] = INT64_MAX;
			}
		}
		for (int k = 0; k < COUNT; k++) {
			agrees &= loop_timer_is_started(&timers[k].timer) == (due[k] != INT64_MAX);
			first = due[k] < first ? due[k] : first;
		}
		ck_assert(agrees);
		ck_assert_int_eq(loop_timers_next_us(&loop.base), first);
		if (first != INT64_MAX)
			ck_assert_int_eq(loop.armed_us, first);
	}
	loop_base_done(&loop.base);
}
END_TEST

START_TEST(random_below_covers_its_range)
{
	struct test_loop loop;
	int seen[10] = {0};

	test_loop_init(&loop);
	for (int i = 0; i < 1000; i++)
		seen[loop_random_below(&loop.base, 10)]++;
	for (int i = 0; i < 10; i++)
		ck_assert_int_gt(seen[i], 50);
	ck_assert_uint_eq(loop_random_below(&loop.base, 1), 0);
	ck_assert_uint_lt(loop_random_below(&loop.base, UINT64_MAX), UINT64_MAX);
}
END_TEST

static Suite *loop_suite(void)
{
	Suite *suite = suite_create("base/loop");
	TCase *tcase = tcase_create("loop");

	TEST_ADD_ALL(tcase, arms_the_earliest, fires_in_order_of_due_then_start, restarted_waits_for_the_next_run,
		     stopped_by_another_does_not_fire, heap_holds_under_random_use, random_below_covers_its_range);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(loop_suite)
