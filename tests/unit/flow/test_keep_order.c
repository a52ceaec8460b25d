/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept messages where something comes between: rows that are taken over while a keep is under way, answers that are lost,
 * a database that is away for longer than an unmatched hold, messages for one instance by two business keys.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/switch_executor.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000

enum { LAST = 6 };

struct shared {
	struct memory_database *database;
	struct executor *executor; /* of the replica started last */
	struct flow_fixture_settings settings;
};

static struct flow_fixture *start(struct shared *shared, const char *keeper)
{
	if (!shared->database)
		shared->database = memory_database_new();
	shared->executor = shared->settings.executor = switch_executor_new(shared->database, 2);
	shared->settings.keeper = keeper;
	if (!shared->settings.package)
		shared->settings.package = "tests/unit/flow/sequence";
	if (!shared->settings.intake.max_kept)
		shared->settings.intake.max_kept = 1000;
	if (!shared->settings.intake.max_in_flight)
		shared->settings.intake.max_in_flight = 256;
	return flow_fixture_new(&shared->settings);
}

/* --- one business key, in order of a broker's key --- */

static void send_sequence(struct flow_fixture *f, const char *key, const char *type, const char *id, const char *body)
{
	struct message *message = flow_fixture_message(f, key, id, str_of(body));

	message->type = str_of(arena_strdup(&message->arena, type));
	flow_fixture_send_message(f, "events", message);
}

static void send_items(struct flow_fixture *f, int first, int last)
{
	char body[96], id[32];

	for (int i = first; i <= last; i++) {
		snprintf(body, sizeof(body), "{\"name\":\"s\",\"n\":%d,\"last\":%s}", i, i == LAST ? "true" : "false");
		snprintf(id, sizeof(id), "item-%d", i);
		send_sequence(f, "s", "item", id, body);
	}
}

static struct id claimed_by_other(struct flow_fixture *f)
{
	int64_t version;
	struct id instance = flow_fixture_only_instance(f, &version);

	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	return instance;
}

static struct id open_claimed(struct flow_fixture *f)
{
	send_sequence(f, "s", "open", "open", "{\"name\":\"s\"}");
	ck_assert(flow_fixture_wait_settled(f, 1));
	return claimed_by_other(f);
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

static void pass_ms(int ms)
{
	ck_assert(!test_wait(never, NULL, ms));
}

static void assert_all_in_order(struct flow_fixture *f)
{
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert_msg(strstr(f->published[0].body, "1 2 3 4 5 6"), "%s", f->published[0].body);
	ck_assert_uint_eq(flow_fixture_count_kept(f), 0);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
}

struct kept_is {
	struct flow_fixture *f;
	uint64_t count;
};

static bool kept_reached(void *arg)
{
	struct kept_is *want = arg;

	return kept(want->f) == want->count;
}

static bool a_commit_waits(void *arg)
{
	return switch_executor_waiting(arg) > 0;
}

/* A replica that keeps the first three and stops. */
static struct id keep_three(struct shared *shared)
{
	struct flow_fixture *f = start(shared, "one");
	struct id instance = open_claimed(f);

	send_items(f, 1, 3);
	ck_assert(flow_fixture_wait_settled(f, 4));
	flow_fixture_free(&f);
	return instance;
}

START_TEST(rows_that_come_while_a_keep_is_under_way_join_it)
{
	struct shared shared = {.settings.intake.hold_ms = 200};
	struct id instance = keep_three(&shared);
	struct flow_fixture *f = start(&shared, "two");
	struct kept_is three = {f, 3}, five = {f, 5};

	switch_executor_hold_commits(shared.executor, true);
	send_items(f, 4, 5);
	ck_assert(test_wait(a_commit_waits, shared.executor, DEADLINE_MS));
	ck_assert(test_wait(kept_reached, &three, DEADLINE_MS));
	switch_executor_hold_commits(shared.executor, false);
	ck_assert(test_wait(kept_reached, &five, DEADLINE_MS));
	/* Nothing of it goes on after the stop. */
	flow_fixture_free(&f);
	f = start(&shared, "three");
	ck_assert_uint_eq(flow_fixture_count_kept(f), 5);
	send_items(f, LAST, LAST);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

START_TEST(rows_whose_taking_over_was_not_answered_are_found)
{
	struct shared shared = {.settings.intake.hold_ms = 200};
	struct id instance = keep_three(&shared);
	struct flow_fixture *f;

	shared.settings.intake.hold_ms = 60000;
	f = start(&shared, "two");
	switch_executor_doubt_statement(shared.executor, STATEMENT_KEPT_RECOVER);
	send_items(f, 4, LAST);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

START_TEST(a_stop_while_commits_wait_settles_everything_once)
{
	struct shared shared = {.settings.intake.hold_ms = 100};
	struct flow_fixture *f = start(&shared, "one");
	struct id instance = open_claimed(f);

	send_items(f, 1, 3);
	ck_assert(flow_fixture_wait_settled(f, 4));
	switch_executor_hold_commits(shared.executor, true);
	send_items(f, 4, 5);
	ck_assert(test_wait(a_commit_waits, shared.executor, DEADLINE_MS));
	flow_fixture_revoke(f, "events");
	ck_assert_uint_eq(f->settled_count, 4);
	/* It is lost, so the broker has them back. */
	switch_executor_set(shared.executor, false);
	switch_executor_hold_commits(shared.executor, false);
	ck_assert(flow_fixture_wait_settled(f, 6));
	ck_assert_int_eq(f->settled[4].how, SETTLE_BACK);
	ck_assert_int_eq(f->settled[5].how, SETTLE_BACK);
	switch_executor_set(shared.executor, true);
	send_items(f, 4, LAST);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

/* What a message waits for was held up as long as the database was away. */
START_TEST(an_unmatched_hold_begins_anew_after_the_database_was_away)
{
	struct shared shared = {.settings.intake.hold_ms = 100, .settings.unmatched_hold_ms = 1500};
	struct flow_fixture *f = start(&shared, "one");

	send_items(f, 1, 1);
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_uint_eq(flow_fixture_count_kept(f), 1);
	switch_executor_set(shared.executor, false);
	pass_ms(2000);
	switch_executor_set(shared.executor, true);
	pass_ms(500);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.RUNTIME.RELAY.CORRELATION_NOT_FOUND"), 0);
	send_sequence(f, "other", "open", "open", "{\"name\":\"s\"}");
	send_items(f, 2, LAST);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

/* --- two business keys, in order of the instance --- */

static void send_pair(struct flow_fixture *f, const char *type, const char *id, const char *body)
{
	struct message *message = flow_fixture_message(f, NULL, id, str_of(body));

	message->orders_by_instance = true;
	message->type = str_of(arena_strdup(&message->arena, type));
	flow_fixture_send_message(f, "events", message);
}

static void send_by(struct flow_fixture *f, const char *alias, int item)
{
	char body[96], id[32];

	snprintf(body, sizeof(body), "{\"%s\":\"%s\",\"n\":%d,\"last\":%s}", alias, alias, item,
		 item == LAST ? "true" : "false");
	snprintf(id, sizeof(id), "item-%d", item);
	send_pair(f, "item", id, body);
}

static void open_pair(struct flow_fixture *f, const char *id)
{
	send_pair(f, "open", id, "{\"first\":\"first\",\"second\":\"second\"}");
}

/* A replica that keeps the first item and stops. */
static struct id keep_one_of_pair(struct shared *shared)
{
	struct flow_fixture *f;
	struct id instance;

	shared->settings.package = "tests/unit/flow/pair";
	f = start(shared, "one");
	open_pair(f, "open");
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = claimed_by_other(f);
	send_by(f, "first", 1);
	ck_assert(flow_fixture_wait_settled(f, 2));
	flow_fixture_free(&f);
	return instance;
}

START_TEST(a_message_behind_kept_ones_keeps_its_place_for_its_instance)
{
	struct shared shared = {.settings.intake.hold_ms = 200};
	struct id instance = keep_one_of_pair(&shared);
	struct flow_fixture *f;

	shared.settings.intake.hold_ms = 60000;
	f = start(&shared, "two");
	send_by(f, "first", 2);
	send_by(f, "second", 3);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	send_by(f, "second", 4);
	send_by(f, "first", 5);
	send_by(f, "second", LAST);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

START_TEST(what_is_kept_behind_rows_of_another_replica_is_waited_for_by_all_names)
{
	struct shared shared = {.settings.intake.hold_ms = 200};
	struct id instance = keep_one_of_pair(&shared);
	struct flow_fixture *f = start(&shared, "two");
	struct kept_is one = {f, 1}, three = {f, 3};

	ck_assert(test_wait(kept_reached, &one, DEADLINE_MS));
	send_by(f, "first", 2);
	send_by(f, "second", 3);
	ck_assert(test_wait(kept_reached, &three, DEADLINE_MS));
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	send_by(f, "second", 4);
	send_by(f, "first", 5);
	send_by(f, "second", LAST);
	assert_all_in_order(f);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

/* A second open is for the living instance, which never waits for one: it must not be in the way of others. */
START_TEST(a_conflict_that_nobody_can_wait_for_ends_at_once)
{
	struct shared shared = {.settings.package = "tests/unit/flow/pair"};
	struct flow_fixture *f = start(&shared, "one");

	open_pair(f, "open");
	ck_assert(flow_fixture_wait_settled(f, 1));
	open_pair(f, "again");
	for (int i = 1; i <= LAST; i++)
		send_by(f, i % 2 ? "first" : "second", i);
	assert_all_in_order(f);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.ALIAS_CONFLICT_REJECT"), 1);
	flow_fixture_free(&f);
	memory_database_free(&shared.database);
}
END_TEST

static Suite *keep_order_suite(void)
{
	Suite *suite = suite_create("flow keep order");
	TCase *tcase = tcase_create("what comes between");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, rows_that_come_while_a_keep_is_under_way_join_it,
		     rows_whose_taking_over_was_not_answered_are_found, a_stop_while_commits_wait_settles_everything_once,
		     an_unmatched_hold_begins_anew_after_the_database_was_away,
		     a_message_behind_kept_ones_keeps_its_place_for_its_instance,
		     what_is_kept_behind_rows_of_another_replica_is_waited_for_by_all_names,
		     a_conflict_that_nobody_can_wait_for_ends_at_once);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(keep_order_suite)
