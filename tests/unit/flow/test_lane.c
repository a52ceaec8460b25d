/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes from outside: mailboxes and who waits for room, handoffs, stalls, flips.
 */
#include <stdio.h>

#include "base/time.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000
#define STALL_US    (60 * US_PER_S)

struct block {
	struct task task;
	struct test_latch begun, end;
};

static void block_run(struct task *task)
{
	struct block *block = container_of(task, struct block, task);

	test_latch_raise(&block->begun);
	ck_assert(test_latch_wait(&block->end, 1, DEADLINE_MS));
}

/* Keeps an executor's thread until it is let go. */
static void block_executor(struct flow_fixture *f, uint32_t executor, struct block *block)
{
	*block = (struct block){{NULL, block_run}, TEST_LATCH_INIT, TEST_LATCH_INIT};
	loop_post(f->lanes->executors[executor].loop, &block->task);
	ck_assert(test_latch_wait(&block->begun, 1, DEADLINE_MS));
}

static void send_order(struct flow_fixture *f, int number)
{
	char body[160], id[32];

	snprintf(id, sizeof(id), "A-%d", number);
	snprintf(body, sizeof(body), "{\"orderId\":\"%s\",\"item\":\"tea\",\"quantity\":3,\"price\":4}", id);
	flow_fixture_send(f, "orders", NULL, id, body);
}

static void send_payment(struct flow_fixture *f, int number)
{
	char body[160], id[32];

	snprintf(id, sizeof(id), "p-%d", number);
	snprintf(body, sizeof(body), "{\"orderId\":\"A-%d\",\"amount\":12}", number);
	flow_fixture_send(f, "payments", NULL, id, body);
}

static void nothing(void *arg UNUSED)
{
}

START_TEST(mailbox_is_bounded_and_waiters_come_through)
{
	struct flow_fixture_settings settings = {.lanes = 2, .queue_capacity = 3};
	struct flow_fixture *f = flow_fixture_new(&settings);
	struct block first, second;
	enum { ORDERS = 100 };

	block_executor(f, 0, &first);
	block_executor(f, 1, &second);
	for (int i = 0; i < ORDERS; i++)
		send_order(f, i);
	loop_call(f->loop, nothing, NULL);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_uint_eq(__atomic_load_n(&f->lanes->lanes[i].queued, __ATOMIC_ACQUIRE), 3);
	test_latch_raise(&first.end);
	test_latch_raise(&second.end);
	ck_assert(flow_fixture_wait_settled(f, ORDERS));
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->committed, ORDERS);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_uint_eq(__atomic_load_n(&f->lanes->lanes[i].queued, __ATOMIC_ACQUIRE), 0);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(relay_hops_at_most_once)
{
	struct flow_fixture_settings settings = {.lanes = 8};
	struct flow_fixture *f = flow_fixture_new(&settings);
	uint64_t handoffs = 0, dispatches = 0;
	enum { ORDERS = 64 };

	for (int i = 0; i < ORDERS; i++)
		send_order(f, i);
	ck_assert(flow_fixture_wait_settled(f, ORDERS));
	for (int i = 0; i < ORDERS; i++)
		send_payment(f, i);
	ck_assert(flow_fixture_wait_settled(f, 2 * ORDERS));
	for (uint32_t i = 0; i < 8; i++) {
		handoffs += __atomic_load_n(&f->lanes->lanes[i].stats.handoffs, __ATOMIC_RELAXED);
		dispatches += __atomic_load_n(&f->lanes->lanes[i].stats.dispatches, __ATOMIC_RELAXED);
	}
	ck_assert_uint_gt(handoffs, 0);
	ck_assert_uint_le(handoffs, ORDERS);
	ck_assert_uint_eq(dispatches, 2 * ORDERS + handoffs);
	flow_fixture_free(&f);
}
END_TEST

static bool unavailable_twice(void *arg)
{
	const struct intake_stats *stats = arg;

	return __atomic_load_n(&stats->unavailable, __ATOMIC_ACQUIRE) >= 2;
}

/* Never dead-lettered, never FAILED: held until somebody restarts this replica. */
START_TEST(stuck_executor_kills_its_lanes_and_holds_their_work)
{
	struct flow_fixture_settings settings = {.lanes = 2};
	struct flow_fixture *f = flow_fixture_new(&settings);
	struct block block;
	int64_t now_us = loop_now_us(f->loop);

	block_executor(f, 0, &block);
	for (int64_t at_us = 0; at_us <= STALL_US; at_us += STALL_US / 4) {
		ck_assert_uint_eq(lane_set_check(f->lanes, now_us + at_us), 0);
		loop_call(f->lanes->executors[1].loop, nothing, NULL); /* this one answers its pings */
	}
	ck_assert_uint_eq(lane_set_check(f->lanes, now_us + STALL_US + 1), 1);
	ck_assert_uint_eq(lane_set_alive(f->lanes), 1);
	send_order(f, 0);
	send_order(f, 1);
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert(test_wait(unavailable_twice, (void *)flow_fixture_stats(f, "orders"), DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->rejected, 0);
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->committed, 1);
	test_latch_raise(&block.end);
	flow_fixture_free(&f);
}
END_TEST

/* SIGSTOP, or a machine that slept: time in which nobody looked is no stall. */
START_TEST(process_that_slept_is_not_stuck)
{
	struct flow_fixture_settings settings = {.lanes = 2};
	struct flow_fixture *f = flow_fixture_new(&settings);
	int64_t now_us = loop_now_us(f->loop);
	struct block block;

	block_executor(f, 0, &block);
	ck_assert_uint_eq(lane_set_check(f->lanes, now_us), 0);
	ck_assert_uint_eq(lane_set_check(f->lanes, now_us + 1000 * STALL_US), 0);
	test_latch_raise(&block.end);
	loop_call(f->lanes->executors[0].loop, nothing, NULL);
	ck_assert_uint_eq(lane_set_check(f->lanes, now_us + 1001 * STALL_US), 0);
	ck_assert_uint_eq(lane_set_alive(f->lanes), 2);
	flow_fixture_free(&f);
}
END_TEST

/* Under load each request is resolved by one view from its beginning to its end; none is lost at the seam. */
START_TEST(flip_between_requests)
{
	struct flow_fixture_settings settings = {.lanes = 4};
	struct flow_fixture *f = flow_fixture_new(&settings);
	enum { ROUNDS = 5, ORDERS = 40 };

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < ORDERS; i++) {
			send_order(f, round * ORDERS + i);
			send_payment(f, round * ORDERS + i);
		}
		flow_fixture_reload(f);
	}
	ck_assert(flow_fixture_wait_settled(f, 2 * ROUNDS * ORDERS));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), ROUNDS * ORDERS);
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->rejected, 0);
	ck_assert_uint_eq(flow_fixture_stats(f, "payments")->rejected, 0);
	flow_fixture_free(&f);
}
END_TEST

static Suite *lane_suite(void)
{
	Suite *suite = suite_create("flow lane");
	TCase *tcase = tcase_create("lane");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, mailbox_is_bounded_and_waiters_come_through, relay_hops_at_most_once,
		     stuck_executor_kills_its_lanes_and_holds_their_work, process_that_slept_is_not_stuck,
		     flip_between_requests);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(lane_suite)
