/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds at their bounds: what is refused for too long, or is too much, is kept by the database and settled with the broker, takes
 * effect in order all the same, once, and is found again when the replica that kept it is gone.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/switch_executor.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000

enum { LAST = 12 };

/* The package's process takes "open", then items until one says that it is the last, and tells their numbers in order. */
static struct flow_fixture *start(struct flow_fixture_settings settings)
{
	settings.package = "tests/unit/flow/sequence";
	return flow_fixture_new(&settings);
}

static void send_typed(struct flow_fixture *f, const char *key, const char *type, const char *id, const char *body)
{
	struct message *message = flow_fixture_message(f, key, id, str_of(body));

	message->type = str_of(arena_strdup(&message->arena, type));
	flow_fixture_send_message(f, "events", message);
}

static void send_item(struct flow_fixture *f, int item)
{
	char body[96], id[32];

	snprintf(body, sizeof(body), "{\"name\":\"s\",\"n\":%d,\"last\":%s}", item, item == LAST ? "true" : "false");
	snprintf(id, sizeof(id), "item-%d", item);
	send_typed(f, "s", "item", id, body);
}

static void send_items(struct flow_fixture *f, int first, int last)
{
	for (int i = first; i <= last; i++)
		send_item(f, i);
}

/* The instance, claimed by somebody else. */
static struct id open_claimed(struct flow_fixture *f)
{
	struct id instance;
	int64_t version;

	send_typed(f, "s", "open", "open", "{\"name\":\"s\"}");
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	return instance;
}

static void assert_all_in_order(struct flow_fixture *f)
{
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert_msg(strstr(f->published[0].body, "1 2 3 4 5 6 7 8 9 10 11 12"), "%s", f->published[0].body);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	ck_assert_uint_eq(flow_fixture_count_kept(f), 0);
}

static uint64_t kept(struct flow_fixture *f)
{
	return __atomic_load_n(&flow_fixture_stats(f, "events")->kept, __ATOMIC_ACQUIRE);
}

static bool nothing_kept(void *arg)
{
	return kept(arg) == 0;
}

static bool never(void *arg UNUSED)
{
	return false;
}

/* For what must not happen. */
static void pass_ms(int ms)
{
	ck_assert(!test_wait(never, NULL, ms));
}

/* --- the bounds --- */

START_TEST(half_of_the_window_held_makes_room_for_what_frees_it)
{
	struct flow_fixture_settings settings = {.intake.max_in_flight = 8, .intake.max_kept = 1000};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_items(f, 1, 8);
	/* All eight leave the window, none has had an effect. */
	ck_assert(flow_fixture_wait_settled(f, 9));
	for (int i = 1; i <= 8; i++)
		ck_assert_int_eq(f->settled[i].how, SETTLE_DONE);
	ck_assert_uint_eq(flow_fixture_count_kept(f), 8);
	/* Those that come later wait behind them. */
	send_items(f, 9, LAST);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(a_refusal_that_outlasts_its_hold_is_kept)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 300};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_items(f, 1, 3);
	ck_assert(flow_fixture_wait_settled(f, 4));
	send_items(f, 4, 5);
	ck_assert(flow_fixture_wait_settled(f, 6));
	ck_assert_uint_eq(flow_fixture_count_kept(f), 5);
	send_items(f, 6, LAST);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(a_third_of_the_brokers_patience_is_a_bound)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.delivery_ms = 900};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_items(f, 1, LAST);
	ck_assert(flow_fixture_wait_settled(f, 1 + LAST));
	ck_assert_uint_eq(flow_fixture_count_kept(f), LAST);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	flow_fixture_free(&f);
}
END_TEST

static bool one_kept(void *arg)
{
	return kept(arg) == 1;
}

START_TEST(a_lease_that_runs_far_ahead_is_a_bound)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 5000, .intake.max_kept = 1000, .intake.span = 500};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);
	struct message *message;
	char id[32];

	send_item(f, 1);
	ck_assert(flow_fixture_wait_held(f, "events", 1));
	for (unsigned i = 0; i < 1100; i++) {
		snprintf(id, sizeof(id), "other-%u", i);
		message = flow_fixture_message(f, id, id, STR("not json"));
		message->token = i;
		flow_fixture_send_message(f, "events", message);
	}
	ck_assert(test_wait(one_kept, f, DEADLINE_MS));
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(past_the_most_that_may_be_kept_the_window_fills)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 4, .intake.max_kept = 2, .intake.hold_ms = 100};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_item(f, 1);
	send_item(f, 2);
	ck_assert(flow_fixture_wait_settled(f, 3));
	send_items(f, 3, 5);
	pass_ms(600);
	ck_assert_uint_eq(f->settled_count, 3);
	ck_assert_uint_eq(flow_fixture_count_kept(f), 2);
	send_items(f, 6, LAST);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	flow_fixture_free(&f);
}
END_TEST

/* --- what becomes of a kept message --- */

static bool one_dead_letter(void *arg)
{
	return flow_fixture_count_dead_letters(arg, "SUTRA.RUNTIME.RELAY.CORRELATION_NOT_FOUND") == 1;
}

START_TEST(nobody_comes_for_it_within_the_unmatched_hold)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 200, .unmatched_hold_ms = 1500};
	struct flow_fixture *f = start(settings);

	send_item(f, 1);
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_uint_eq(flow_fixture_count_kept(f), 1);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.RUNTIME.RELAY.CORRELATION_NOT_FOUND"), 0);
	ck_assert(test_wait(one_dead_letter, f, DEADLINE_MS));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_kept(f), 0);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(an_instance_that_comes_to_wait_gets_it)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 100};
	struct flow_fixture *f = start(settings);

	send_items(f, 1, LAST);
	ck_assert(flow_fixture_wait_settled(f, LAST));
	send_typed(f, "another", "open", "open", "{\"name\":\"s\"}");
	assert_all_in_order(f);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(a_kept_duplicate_ends_without_effect)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 200};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_item(f, 1);
	send_item(f, 1);
	send_item(f, 2);
	ck_assert(flow_fixture_wait_settled(f, 4));
	ck_assert_uint_eq(flow_fixture_count_kept(f), 3);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	send_items(f, 3, LAST);
	assert_all_in_order(f);
	ck_assert_uint_eq(__atomic_load_n(&flow_fixture_stats(f, "events")->duplicate, __ATOMIC_ACQUIRE), 1);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(a_kept_message_that_is_wrong_is_dead_lettered)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 200};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_item(f, 1);
	send_typed(f, "s", "item", "wrong", "{");
	send_item(f, 2);
	ck_assert(flow_fixture_wait_settled(f, 4));
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	send_items(f, 3, LAST);
	assert_all_in_order(f);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.PARSE.JSON.PARSE_ERROR"), 1);
	flow_fixture_free(&f);
}
END_TEST

/* --- replicas come and go --- */

struct shared {
	struct memory_database *database;
	struct flow_fixture_settings settings;
};

static struct flow_fixture *start_replica(struct shared *shared, const char *keeper)
{
	shared->settings.executor = switch_executor_new(shared->database, 2);
	shared->settings.keeper = keeper;
	return start(shared->settings);
}

START_TEST(what_a_stopped_replica_kept_is_taken_over_in_order)
{
	struct shared shared = {memory_database_new(),
				{.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 200}};
	struct flow_fixture *f = start_replica(&shared, "one");
	struct id instance = open_claimed(f);

	send_items(f, 1, 6);
	ck_assert(flow_fixture_wait_settled(f, 7));
	flow_fixture_free(&f);
	f = start_replica(&shared, "two");
	ck_assert_uint_eq(flow_fixture_count_kept(f), 6);
	/* The broker gives it the rest; it waits for what the database keeps. */
	send_items(f, 7, LAST);
	ck_assert(flow_fixture_wait_held(f, "events", 1));
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

static void lease(struct flow_fixture *f, enum statement_id statement, const char *keeper)
{
	struct arena arena;
	char role[64];

	snprintf(role, sizeof(role), "keeper:%s", keeper);
	arena_init(&arena);
	struct column params[] = {
		column_scalar_text(&arena, str_of(role)),
		column_scalar_text(&arena, str_of(keeper)),
		column_scalar_int(&arena, 60000),
	};
	flow_fixture_query(f, &arena, statement, params, false);
	arena_done(&arena);
}

START_TEST(what_a_live_replica_keeps_is_waited_for)
{
	struct shared shared = {memory_database_new(),
				{.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 300}};
	struct flow_fixture *one = start_replica(&shared, "one"), *two;
	struct id instance = open_claimed(one);

	lease(one, STATEMENT_LEASE_ACQUIRE, "one");
	send_items(one, 1, 3);
	ck_assert(flow_fixture_wait_settled(one, 4));
	two = start_replica(&shared, "two");
	/* Past its hold it is kept behind the others. */
	send_items(two, 4, 6);
	ck_assert(flow_fixture_wait_settled(two, 3));
	ck_assert_uint_eq(flow_fixture_count_kept(two), 6);
	ck_assert_int_eq(flow_fixture_other_claims(two, instance, true), STORE_OK);
	send_items(two, 7, LAST);
	ck_assert(flow_fixture_wait_settled(two, 3 + LAST - 6));
	assert_all_in_order(two);
	flow_fixture_free(&one);
	flow_fixture_free(&two);
	memory_database_free(&shared.database);
}
END_TEST

START_TEST(what_waits_for_a_dead_replica_is_no_reason_not_to_take_over)
{
	struct shared shared = {memory_database_new(),
				{.intake.max_in_flight = 256, .intake.max_kept = 2, .intake.hold_ms = 200}};
	struct flow_fixture *one = start_replica(&shared, "one"), *two;
	struct id instance = open_claimed(one);

	lease(one, STATEMENT_LEASE_ACQUIRE, "one");
	send_items(one, 1, 2);
	ck_assert(flow_fixture_wait_settled(one, 3));
	two = start_replica(&shared, "two");
	send_items(two, 3, 4);
	ck_assert(flow_fixture_wait_settled(two, 2));
	ck_assert_uint_eq(kept(two), 2);
	/* As many as it may keep, and those before them have nobody now. */
	flow_fixture_free(&one);
	lease(two, STATEMENT_LEASE_RELEASE, "one");
	ck_assert_int_eq(flow_fixture_other_claims(two, instance, true), STORE_OK);
	send_items(two, 5, LAST);
	assert_all_in_order(two);
	flow_fixture_free(&two);
	memory_database_free(&shared.database);
}
END_TEST

START_TEST(what_was_taken_over_has_no_effect_here)
{
	struct shared shared = {memory_database_new(),
				{.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 200}};
	struct flow_fixture *one = start_replica(&shared, "one"), *two;
	struct id instance = open_claimed(one);

	/* Without a lease it counts as dead, though it goes on: the second one takes the rows away from it. */
	send_items(one, 1, LAST);
	ck_assert(flow_fixture_wait_settled(one, 1 + LAST));
	two = start_replica(&shared, "two");
	lease(two, STATEMENT_LEASE_ACQUIRE, "two");
	pass_ms(2500);
	ck_assert_uint_eq(kept(two), LAST);
	ck_assert_int_eq(flow_fixture_other_claims(two, instance, true), STORE_OK);
	assert_all_in_order(two);
	ck_assert(test_wait(nothing_kept, one, DEADLINE_MS));
	flow_fixture_free(&one);
	flow_fixture_free(&two);
	memory_database_free(&shared.database);
}
END_TEST

/* --- revoke, stop, a database that is away --- */

START_TEST(stop_while_messages_are_being_kept)
{
	struct shared shared = {memory_database_new(),
				{.intake.max_in_flight = 2, .intake.max_kept = 1000}};

	for (int round = 0; round < 10; round++) {
		struct flow_fixture *f = start_replica(&shared, "one");

		if (!round)
			open_claimed(f);
		send_item(f, 1 + round);
		pass_ms(round * 7);
		flow_fixture_free(&f);
	}
	memory_database_free(&shared.database);
}
END_TEST

START_TEST(revoke_takes_the_live_ones_and_leaves_the_kept)
{
	struct flow_fixture_settings settings = {
		.intake.max_in_flight = 256, .intake.max_kept = 1000, .intake.hold_ms = 300};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_items(f, 1, 3);
	ck_assert(flow_fixture_wait_settled(f, 4));
	send_items(f, 4, 5);
	flow_fixture_revoke(f, "events");
	ck_assert(flow_fixture_wait_settled(f, 6));
	ck_assert_int_eq(f->settled[4].how, SETTLE_BACK);
	ck_assert_int_eq(f->settled[5].how, SETTLE_BACK);
	ck_assert_uint_eq(flow_fixture_count_kept(f), 3);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(a_database_that_is_away_keeps_nothing_and_loses_nothing)
{
	struct memory_database *database = memory_database_new();
	struct executor *executor = switch_executor_new(database, 2);
	struct flow_fixture_settings settings = {
		.executor = executor, .intake.max_in_flight = 4, .intake.max_kept = 1000, .intake.hold_ms = 100};
	struct flow_fixture *f = start(settings);
	struct id instance = open_claimed(f);

	send_items(f, 1, 3);
	ck_assert(flow_fixture_wait_settled(f, 4));
	switch_executor_set(executor, false);
	send_items(f, 4, 8);
	pass_ms(500);
	ck_assert_uint_eq(f->settled_count, 4);
	switch_executor_set(executor, true);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	send_items(f, 9, LAST);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&database);
}
END_TEST

/* --- refused = "requeue" --- */

START_TEST(a_channel_that_requeues_gives_refused_ones_back_after_a_pause)
{
	struct flow_fixture_settings settings = {.intake.max_in_flight = 256, .intake.max_kept = 1000,
						 .intake.requeues = true};
	struct flow_fixture *f = start(settings);
	struct message *counted;

	open_claimed(f);
	send_item(f, 1);
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_int_eq(f->settled[1].how, SETTLE_BACK);
	/* Not where the broker counts it. */
	counted = flow_fixture_message(f, "s", "item-2", STR("{\"name\":\"s\",\"n\":2,\"last\":false}"));
	counted->type = STR("item");
	counted->returns_are_counted = true;
	flow_fixture_send_message(f, "events", counted);
	ck_assert(flow_fixture_wait_held(f, "events", 1));
	pass_ms(500);
	ck_assert_uint_eq(f->settled_count, 2);
	flow_fixture_free(&f);
}
END_TEST

static Suite *keep_suite(void)
{
	Suite *suite = suite_create("flow keep");
	TCase *tcase = tcase_create("bounds of a hold");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, half_of_the_window_held_makes_room_for_what_frees_it, a_refusal_that_outlasts_its_hold_is_kept,
		     a_third_of_the_brokers_patience_is_a_bound, a_lease_that_runs_far_ahead_is_a_bound,
		     past_the_most_that_may_be_kept_the_window_fills, nobody_comes_for_it_within_the_unmatched_hold,
		     an_instance_that_comes_to_wait_gets_it, a_kept_duplicate_ends_without_effect,
		     a_kept_message_that_is_wrong_is_dead_lettered, what_a_stopped_replica_kept_is_taken_over_in_order,
		     what_a_live_replica_keeps_is_waited_for, what_was_taken_over_has_no_effect_here,
		     what_waits_for_a_dead_replica_is_no_reason_not_to_take_over,
		     stop_while_messages_are_being_kept, revoke_takes_the_live_ones_and_leaves_the_kept,
		     a_database_that_is_away_keeps_nothing_and_loses_nothing,
		     a_channel_that_requeues_gives_refused_ones_back_after_a_pause);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(keep_suite)
