/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of deliveries that cannot go through at once: claims held by others, a database that is away or leaves commits
 * in doubt, messages without a wait, revoked leases in every state, views that change meanwhile.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/switch_executor.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000

/* A fixture over an executor that can be switched off. */
struct away {
	struct memory_database *database;
	struct executor *executor;
	struct flow_fixture *f;
};

static struct away away_new(int64_t unmatched_hold_ms)
{
	struct away away = {.database = memory_database_new()};
	struct flow_fixture_settings settings = {.unmatched_hold_ms = unmatched_hold_ms};

	away.executor = settings.executor = switch_executor_new(away.database, 2);
	away.f = flow_fixture_new(&settings);
	return away;
}

static void away_free(struct away *away)
{
	flow_fixture_free(&away->f);
	memory_database_free(&away->database);
}

static void send_order(struct flow_fixture *f, const char *order)
{
	char body[160], id[40];

	snprintf(id, sizeof(id), "e-%s", order);
	snprintf(body, sizeof(body), "{\"orderId\":\"%s\",\"item\":\"tea\",\"quantity\":3,\"price\":4}", order);
	flow_fixture_send(f, "orders", order, id, body);
}

static void send_payment(struct flow_fixture *f, const char *order, const char *id, int amount)
{
	char body[160];

	snprintf(body, sizeof(body), "{\"orderId\":\"%s\",\"amount\":%d}", order, amount);
	flow_fixture_send(f, "payments", order, id, body);
}

static bool outbox_empty(void *arg)
{
	return flow_fixture_count_outbox(arg) == 0;
}

/* --- claims of others --- */

static bool refused_thrice(void *arg)
{
	const struct intake_stats *stats = arg;

	return __atomic_load_n(&stats->refused, __ATOMIC_ACQUIRE) >= 3;
}

START_TEST(held_claim_refuses_and_keeps_the_order)
{
	struct flow_fixture_settings settings = {0};
	struct flow_fixture *f = flow_fixture_new(&settings);
	int64_t before, after;
	struct id instance;

	send_order(f, "A-1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &before);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	send_payment(f, "A-1", "p1", 12);
	send_payment(f, "A-1", "p2", 1);
	ck_assert(test_wait(refused_thrice, (void *)flow_fixture_stats(f, "payments"), DEADLINE_MS));
	/* Nothing was written, and it costs nobody else anything. */
	flow_fixture_only_instance(f, &after);
	ck_assert_int_eq(before, after);
	ck_assert_uint_eq(f->settled_count, 1);
	send_order(f, "B-1");
	send_payment(f, "B-1", "p3", 12);
	ck_assert(flow_fixture_wait_settled(f, 3));
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	/* The first payment takes effect; the second finds nobody any more. */
	ck_assert(flow_fixture_wait_settled(f, 4));
	ck_assert_str_eq(f->settled[3].source, "fixture:1");
	ck_assert(flow_fixture_wait_published(f, 4));
	ck_assert_str_eq(f->published[3].body, "{\"orderId\":\"A-1\",\"paid\":12,\"status\":\"CONFIRMED\",\"total\":12}");
	ck_assert(flow_fixture_wait_held(f, "payments", 1));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(silent_claim_is_taken_over_after_its_timeout)
{
	struct flow_fixture_settings settings = {.claim_timeout_ms = 200};
	struct flow_fixture *f = flow_fixture_new(&settings);
	int64_t version;

	send_order(f, "A-1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_int_eq(flow_fixture_other_claims(f, flow_fixture_only_instance(f, &version), false), STORE_OK);
	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_int_eq(f->settled[1].how, SETTLE_DONE);
	ck_assert_uint_ge(flow_fixture_stats(f, "payments")->refused, 1);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	flow_fixture_free(&f);
}
END_TEST

/* --- a database that is away --- */

enum { MANY = 60 };

static void send_many(struct flow_fixture *f, int from, int to)
{
	char order[16], id[16];

	for (int i = from; i < to; i++) {
		snprintf(order, sizeof(order), "A-%d", i);
		snprintf(id, sizeof(id), "p%d", i);
		send_order(f, order);
		send_payment(f, order, id, 12);
	}
}

static void check_many(struct flow_fixture *f)
{
	ck_assert(flow_fixture_wait_settled(f, 2 * MANY));
	for (unsigned i = 0; i < 2 * MANY; i++)
		ck_assert_int_eq(f->settled[i].how, SETTLE_DONE);
	ck_assert(flow_fixture_wait_published(f, 2 * MANY));
	ck_assert(test_wait(outbox_empty, f, DEADLINE_MS));
	ck_assert_uint_eq(f->published_count, 2 * MANY);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), MANY);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 0);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_FAILED), 0);
}

static bool orders_unavailable(void *arg)
{
	const struct intake_stats *stats = arg;

	return __atomic_load_n(&stats->unavailable, __ATOMIC_ACQUIRE) >= 8;
}

START_TEST(database_away_holds_everything_and_loses_nothing)
{
	struct away away = away_new(0);
	struct flow_fixture *f = away.f;

	send_many(f, 0, MANY / 2);
	switch_executor_set(away.executor, false);
	send_many(f, MANY / 2, MANY);
	ck_assert(test_wait(orders_unavailable, (void *)flow_fixture_stats(f, "orders"), DEADLINE_MS));
	switch_executor_set(away.executor, true);
	check_many(f);
	away_free(&away);
}
END_TEST

START_TEST(commits_in_doubt_have_one_effect)
{
	struct away away = away_new(0);

	for (int i = 0; i < MANY; i += 5) {
		switch_executor_doubt(away.executor, 2);
		send_many(away.f, i, i + 5);
	}
	check_many(away.f);
	away_free(&away);
}
END_TEST

static uint64_t unmatched_before;

static bool payments_unavailable(void *arg)
{
	const struct intake_stats *stats = arg;

	return __atomic_load_n(&stats->unavailable, __ATOMIC_ACQUIRE) >= 8;
}

/* It has been looked up again since the database is back. */
static bool payments_decided(void *arg)
{
	const struct intake_stats *stats = arg;

	return __atomic_load_n(&stats->unmatched, __ATOMIC_ACQUIRE) > unmatched_before ||
	       __atomic_load_n(&stats->rejected, __ATOMIC_ACQUIRE);
}

/* The hold of an unmatched relay is over long before the database is back; its order comes right after. */
START_TEST(time_without_a_database_is_no_part_of_the_unmatched_hold)
{
	struct away away = away_new(400);
	struct flow_fixture *f = away.f;

	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_held(f, "payments", 1));
	switch_executor_set(away.executor, false);
	ck_assert(test_wait(payments_unavailable, (void *)flow_fixture_stats(f, "payments"), DEADLINE_MS));
	unmatched_before = __atomic_load_n(&flow_fixture_stats(f, "payments")->unmatched, __ATOMIC_ACQUIRE);
	switch_executor_set(away.executor, true);
	ck_assert(test_wait(payments_decided, (void *)flow_fixture_stats(f, "payments"), DEADLINE_MS));
	ck_assert_uint_eq(__atomic_load_n(&flow_fixture_stats(f, "payments")->rejected, __ATOMIC_ACQUIRE), 0);
	send_order(f, "A-1");
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	away_free(&away);
}
END_TEST

/* --- backoff --- */

struct peek {
	struct intake *intake;
	uint32_t attempts;
	int64_t delay_us;
	uint32_t interests;
};

static void peek_call(void *arg)
{
	struct peek *peek = arg;
	struct delivery *dlv = list_first(&peek->intake->window, struct delivery, window_link);

	peek->attempts = dlv ? dlv->attempts : 0;
	peek->interests = dlv ? dlv->interest_count : 0;
	peek->delay_us = dlv && dlv->state == DELIVERY_HELD ? dlv->retry.due_us - loop_now_us(peek->intake->loop) : 0;
}

static bool attempts_grown(void *arg)
{
	struct peek *peek = arg;

	loop_call(peek->intake->loop, peek_call, peek);
	ck_assert_int_le(peek->delay_us, 200 * US_PER_MS);
	return peek->attempts >= 7 && peek->delay_us > 50 * US_PER_MS;
}

START_TEST(backoff_grows_to_its_bound_and_a_wake_up_ends_it)
{
	struct flow_fixture_settings settings = {0};
	struct flow_fixture *f = flow_fixture_new(&settings);
	struct peek peek = {0};

	for (uint32_t i = 0; i < f->channel_count; i++)
		if (strcmp(f->channels[i].intake->settings.channel, "payments") == 0)
			peek.intake = f->channels[i].intake;
	send_payment(f, "A-1", "p1", 12);
	ck_assert(test_wait(attempts_grown, &peek, DEADLINE_MS));
	ck_assert_uint_eq(peek.interests, 1);
	send_order(f, "A-1");
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_eq(peek.intake->interests.count, 0);
	ck_assert_uint_eq(peek.intake->chains.count, 0);
	flow_fixture_free(&f);
}
END_TEST

/* --- revoked in every state --- */

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

static void nothing(void *arg UNUSED)
{
}

static uint32_t settled_as(struct flow_fixture *f, enum settle how)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < f->settled_count; i++)
		count += f->settled[i].how == how;
	return count;
}

/* One is on the lane, one behind it in its chain, two wait for room: what a lane has may finish, the rest goes back. */
START_TEST(revoke_on_lane_in_chain_and_waiting)
{
	struct flow_fixture_settings settings = {.lanes = 1, .queue_capacity = 1};
	struct flow_fixture *f = flow_fixture_new(&settings);
	struct block block = {{NULL, block_run}, TEST_LATCH_INIT, TEST_LATCH_INIT};

	loop_post(f->lanes->executors[0].loop, &block.task);
	ck_assert(test_latch_wait(&block.begun, 1, DEADLINE_MS));
	send_order(f, "A-1");
	flow_fixture_send(f, "orders", "A-1", "again", "{\"orderId\":\"A-1\",\"item\":\"tea\",\"quantity\":3,\"price\":4}");
	send_order(f, "A-2");
	send_order(f, "A-3");
	ck_assert_uint_eq(__atomic_load_n(&f->lanes->lanes[0].queued, __ATOMIC_ACQUIRE), 1);
	flow_fixture_revoke(f, "orders");
	loop_call(f->loop, nothing, NULL);
	ck_assert_uint_eq(f->settled_count, 1);
	ck_assert_str_eq(f->settled[0].source, "fixture:1");
	/* The next owner's deliveries of the same key wait behind the one in work. */
	send_order(f, "A-1");
	test_latch_raise(&block.end);
	ck_assert(flow_fixture_wait_settled(f, 5));
	ck_assert_uint_eq(settled_as(f, SETTLE_BACK), 3);
	ck_assert_uint_eq(settled_as(f, SETTLE_DONE), 2);
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->duplicate, 1);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	flow_fixture_free(&f);
}
END_TEST

/* --- views --- */

/* Whatever a held message remembers of its first decoding must not point into the view that is gone. */
START_TEST(view_changes_while_messages_are_held)
{
	struct flow_fixture_settings settings = {0};
	struct flow_fixture *f = flow_fixture_new(&settings);

	send_order(f, "B-1");
	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_held(f, "payments", 1));
	ck_assert(flow_fixture_wait_settled(f, 1));
	flow_fixture_reload(f);
	send_order(f, "A-1");
	send_payment(f, "B-1", "p2", 12);
	ck_assert(flow_fixture_wait_settled(f, 4));
	ck_assert(flow_fixture_wait_published(f, 4));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 2);
	flow_fixture_free(&f);
}
END_TEST

static Suite *delivery_suite(void)
{
	Suite *suite = suite_create("flow delivery");
	TCase *tcase = tcase_create("delivery");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, held_claim_refuses_and_keeps_the_order, silent_claim_is_taken_over_after_its_timeout,
		     database_away_holds_everything_and_loses_nothing, commits_in_doubt_have_one_effect,
		     time_without_a_database_is_no_part_of_the_unmatched_hold,
		     backoff_grows_to_its_bound_and_a_wake_up_ends_it, revoke_on_lane_in_chain_and_waiting,
		     view_changes_while_messages_are_held);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(delivery_suite)
