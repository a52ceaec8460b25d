/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/wake.h"

#include "base/thread.h"
#include "tests/support/testing.h"

struct target {
	struct wake_target base;
	uint32_t woken; /* the loop's */
	struct id last;
};

static void target_woken(struct wake_target *base, struct id key)
{
	struct target *target = container_of(base, struct target, base);

	target->woken++;
	target->last = key;
}

static struct id key_of(uint8_t n)
{
	return (struct id){{n}};
}

static void nothing(void *arg UNUSED)
{
}

/* Waits until what was posted has run. */
static uint32_t woken(struct target *target)
{
	loop_call(target->base.loop, nothing, NULL);
	return target->woken;
}

static struct wake *wake;
static struct loop *loop;
static struct target first, second;

static void setup(void)
{
	wake = wake_new();
	loop = loop_start(runtime_threads(), "target");
	first = (struct target){.base = {loop, target_woken}};
	second = (struct target){.base = {loop, target_woken}};
}

static void teardown(void)
{
	loop_stop(&loop);
	wake_free(&wake);
	ck_assert_ptr_null(wake);
}

START_TEST(nobody_interested_nothing_happens)
{
	wake_fire(wake, key_of(1));
	ck_assert_uint_eq(woken(&first), 0);
}
END_TEST

START_TEST(interested_are_told_once_each)
{
	wake_interest(wake, key_of(1), &first.base);
	wake_interest(wake, key_of(1), &first.base);
	wake_interest(wake, key_of(1), &second.base);
	wake_interest(wake, key_of(2), &second.base);
	wake_fire(wake, key_of(1));
	ck_assert_uint_eq(woken(&first), 1);
	ck_assert_uint_eq(woken(&second), 1);
	ck_assert(id_equal(first.last, key_of(1)));
	wake_drop(wake, key_of(1), &first.base);
	wake_fire(wake, key_of(1));
	ck_assert_uint_eq(woken(&first), 2);
	wake_drop(wake, key_of(1), &first.base);
	wake_fire(wake, key_of(1));
	ck_assert_uint_eq(woken(&first), 2);
	ck_assert_uint_eq(woken(&second), 3);
	wake_drop(wake, key_of(1), &second.base);
	wake_fire(wake, key_of(1));
	ck_assert_uint_eq(woken(&second), 3);
	wake_fire(wake, key_of(2));
	ck_assert_uint_eq(woken(&second), 4);
	ck_assert(id_equal(second.last, key_of(2)));
	wake_drop(wake, key_of(2), &second.base);
}
END_TEST

/* What was posted may arrive after the interest is gone: the target finds nothing, which is harmless. */
START_TEST(interest_left_at_the_end_is_freed)
{
	wake_interest(wake, key_of(3), &first.base);
	wake_interest(wake, key_of(4), &second.base);
}
END_TEST

static void firing(void *arg)
{
	for (int i = 0; i < 2000; i++)
		wake_fire(arg, key_of((uint8_t)(i % 3)));
}

static void interested(void *arg UNUSED)
{
	for (int i = 0; i < 2000; i++) {
		wake_interest(wake, key_of((uint8_t)(i % 3)), &first.base);
		wake_drop(wake, key_of((uint8_t)(i % 3)), &first.base);
	}
}

struct part {
	struct task task;
	void (*fn)(void *arg);
};

static void part_run(struct task *task)
{
	container_of(task, struct part, task)->fn(wake);
}

START_TEST(any_thread_may_fire)
{
	struct loop *other = loop_start(runtime_threads(), "other");
	struct part one = {{NULL, part_run}, firing}, two = {{NULL, part_run}, interested};

	loop_post(other, &one.task);
	loop_post(loop, &two.task);
	firing(wake);
	loop_stop(&other);
	loop_call(loop, nothing, NULL);
}
END_TEST

static Suite *wake_suite(void)
{
	Suite *suite = suite_create("flow wake");
	TCase *tcase = tcase_create("wake");

	tcase_set_timeout(tcase, 20);
	tcase_add_checked_fixture(tcase, setup, teardown);
	TEST_ADD_ALL(tcase, nobody_interested_nothing_happens, interested_are_told_once_each,
		     interest_left_at_the_end_is_freed, any_thread_may_fire);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(wake_suite)
