/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with several targets: each has it once, in its own step and in order, and what does not wait for it any more is passed
 * over. And messages for instances that are FAILED.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/switch_executor.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000

static struct flow_fixture_settings settings_new(void)
{
	return (struct flow_fixture_settings){
		.package = "tests/unit/flow/fan", .intake.max_in_flight = 256, .intake.max_kept = 1000};
}

static struct flow_fixture *start(void)
{
	struct flow_fixture_settings settings = settings_new();

	return flow_fixture_new(&settings);
}

static void send_typed(struct flow_fixture *f, const char *channel, const char *type, const char *key, const char *id, bool by_instance,
		 const char *body)
{
	struct message *message = flow_fixture_message(f, key, id, str_of(body));

	message->type = str_of(arena_strdup(&message->arena, type));
	message->orders_by_instance = by_instance;
	flow_fixture_send_message(f, channel, message);
}

static void open_listener(struct flow_fixture *f, const char *name, const char *group)
{
	char body[96], id[32];

	snprintf(body, sizeof(body), "{\"name\":\"%s\",\"group\":\"%s\"}", name, group);
	snprintf(id, sizeof(id), "open-%s", name);
	send_typed(f, "events", "open", NULL, id, false, body);
}

static void ping(struct flow_fixture *f, const char *group, int n, bool last, bool by_instance)
{
	char body[96], id[32];

	snprintf(body, sizeof(body), "{\"group\":\"%s\",\"n\":%d,\"last\":%s}", group, n, last ? "true" : "false");
	snprintf(id, sizeof(id), "ping-%s-%d", group, n);
	send_typed(f, "events", "ping", by_instance ? NULL : group, id, by_instance, body);
}

static bool nothing_kept(void *arg)
{
	return flow_fixture_count_kept(arg) == 0;
}

static uint64_t count_of(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void expect_published(struct flow_fixture *f, const char *what, const char *body)
{
	for (uint32_t i = 0; i < f->published_count; i++)
		if (strstr(f->published[i].body, what)) {
			ck_assert_msg(strstr(f->published[i].body, body), "%s", f->published[i].body);
			return;
		}
	ck_abort_msg("nothing of %s", what);
}

/* --- match="all" --- */

/* Both orders: by the key of the record, and by instance. */
START_TEST(every_wait_has_it_once_and_in_order)
{
	struct flow_fixture *f = start();
	char name[16];

	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		open_listener(f, name, "g");
	}
	open_listener(f, "b", "other");
	ck_assert(flow_fixture_wait_settled(f, 6));
	for (int n = 1; n <= 9; n++)
		ping(f, "g", n, n == 9, _i);
	/* Twice: the second has no effect. */
	ping(f, "g", 3, false, _i);
	ck_assert(flow_fixture_wait_published(f, 5));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	for (int i = 0; i < 5; i++)
		ck_assert_msg(strstr(f->published[i].body, "1 2 3 4 5 6 7 8 9 "), "%s", f->published[i].body);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 5);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	ck_assert_uint_eq(count_of(&flow_fixture_stats(f, "events")->duplicate), 1);
	flow_fixture_free(&f);
}
END_TEST

/* It is kept as long as nobody waits; then all that wait have it. */
START_TEST(early_it_waits_for_the_first)
{
	struct flow_fixture *f = start();

	ping(f, "g", 1, true, _i);
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_uint_eq(flow_fixture_count_kept(f), 1);
	open_listener(f, "a", "g");
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
}
END_TEST

/* The last ping ends them; what comes for them behind it finds them gone. */
START_TEST(target_that_is_gone_is_passed_over)
{
	struct flow_fixture *f = start();
	struct id instance;
	int64_t version;

	open_listener(f, "a", "g");
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	ping(f, "g", 1, true, false);
	ping(f, "g", 2, false, false);
	ck_assert(flow_fixture_wait_settled(f, 3));
	ck_assert_uint_eq(flow_fixture_count_kept(f), 2);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	ck_assert_uint_eq(count_of(&flow_fixture_stats(f, "events")->gone), 1);
	flow_fixture_free(&f);
}
END_TEST

/* A replica that stops leaves the rows of its targets to the next. */
START_TEST(targets_are_taken_over)
{
	struct memory_database *database = memory_database_new();
	struct flow_fixture_settings settings = settings_new();
	struct flow_fixture *f;
	struct id instance;
	int64_t version;

	settings.executor = switch_executor_new(database, 2);
	settings.keeper = "one";
	f = flow_fixture_new(&settings);
	open_listener(f, "a", "g");
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	ping(f, "g", 1, true, false);
	ck_assert(flow_fixture_wait_settled(f, 2));
	flow_fixture_free(&f);
	settings.executor = switch_executor_new(database, 2);
	settings.keeper = "two";
	f = flow_fixture_new(&settings);
	ck_assert_uint_eq(flow_fixture_count_kept(f), 1);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
	memory_database_free(&database);
}
END_TEST

/* --- broadcast --- */

START_TEST(every_process_has_its_own)
{
	struct flow_fixture *f = start();

	send_typed(f, "events", "third", NULL, "t", false, "{\"name\":\"x\"}");
	ck_assert(flow_fixture_wait_settled(f, 1));
	send_typed(f, "news", "", "k", "n1", false, "{\"name\":\"x\"}");
	send_typed(f, "news", "", "k", "n1", false, "{\"name\":\"x\"}");
	ck_assert(flow_fixture_wait_settled(f, 3));
	ck_assert(flow_fixture_wait_published(f, 3));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	expect_published(f, "First", "\"x\"");
	expect_published(f, "Second", "\"x\"");
	expect_published(f, "Third", "\"x\"");
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 3);
	ck_assert_uint_eq(count_of(&flow_fixture_stats(f, "news")->duplicate), 1);
	/* Nobody waits now: two. */
	send_typed(f, "news", "", NULL, NULL, true, "{\"name\":\"y\"}");
	ck_assert(flow_fixture_wait_published(f, 5));
	flow_fixture_free(&f);
}
END_TEST

/* The first has a row for the process that it begins, since somebody else waited; nobody does when the second comes. */
START_TEST(instances_begin_in_order)
{
	struct memory_database *database = memory_database_new();
	struct flow_fixture_settings settings = settings_new();
	struct flow_fixture *f;

	settings.executor = switch_executor_new(database, 2);
	f = flow_fixture_new(&settings);
	send_typed(f, "events", "fifth", NULL, "fifth", false, "{\"name\":\"x\"}");
	ck_assert(flow_fixture_wait_settled(f, 1));
	switch_executor_hold_background(settings.executor, true);
	send_typed(f, "gazette", "", "k", "g1", false, "{\"name\":\"x\"}");
	ck_assert(flow_fixture_wait_settled(f, 2));
	send_typed(f, "events", "cancel", NULL, "cancel", false, "{\"name\":\"x\"}");
	ck_assert(flow_fixture_wait_settled(f, 3));
	send_typed(f, "gazette", "", "k", "g2", false, "{\"name\":\"y\"}");
	ck_assert(flow_fixture_wait_settled(f, 4));
	switch_executor_hold_background(settings.executor, false);
	ck_assert(flow_fixture_wait_published(f, 2));
	ck_assert_msg(strstr(f->published[0].body, "\"x\""), "%s came first", f->published[0].body);
	ck_assert_msg(strstr(f->published[1].body, "\"y\""), "%s came second", f->published[1].body);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
	memory_database_free(&database);
}
END_TEST

/* --- FAILED --- */

static bool one_failed(void *arg)
{
	return flow_fixture_count_instances(arg, INSTANCE_FAILED) == 1;
}

static bool one_letter_more(void *arg)
{
	return flow_fixture_count_dead_letters(arg, code_text(CODE_DISPATCH_INSTANCE_FAILED)) == 1;
}

static struct flow_fixture *with_failed(int64_t hold_ms)
{
	struct flow_fixture_settings settings = settings_new();
	struct flow_fixture *f;

	settings.unmatched_hold_ms = hold_ms;
	f = flow_fixture_new(&settings);
	open_listener(f, "a", "g");
	ck_assert(flow_fixture_wait_settled(f, 1));
	send_typed(f, "events", "ping", "g", "bad", false, "{\"group\":\"g\",\"fail\":\"a\"}");
	ck_assert(test_wait(one_failed, f, DEADLINE_MS));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	return f;
}

START_TEST(relay_for_a_failed_instance_is_dead_lettered_after_the_hold)
{
	struct flow_fixture *f = with_failed(600);

	ping(f, "g", 1, true, false);
	ck_assert(test_wait(one_letter_more, f, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, code_text(CODE_RUNTIME_CORRELATION_NOT_FOUND)), 0);
	ping(f, "nobody", 1, true, false);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
}
END_TEST

struct restore {
	struct lane_request request;
	struct test_latch done;
};

static void restored(struct task *post)
{
	test_latch_raise(&container_of(post, struct restore, request.post)->done);
}

static void restore(struct flow_fixture *f, struct id instance)
{
	struct restore ask = {.done = TEST_LATCH_INIT};

	ask.request = (struct lane_request){.kind = REQUEST_RESTORE, .tenant = f->deployment->tenant, .reply_to = f->loop,
					    .answered = restored, .target.instance = instance};
	arena_init(&ask.request.resolved);
	ck_assert(lane_set_submit(f->lanes, lane_set_lane_of_instance(f->lanes, instance), &ask.request));
	ck_assert(test_latch_wait(&ask.done, 1, DEADLINE_MS));
	ck_assert_int_eq(ask.request.answer, ANSWER_COMMITTED);
	arena_done(&ask.request.resolved);
}

START_TEST(restored_within_the_hold_it_has_it)
{
	struct flow_fixture *f = with_failed(60000);
	int64_t version;

	ping(f, "g", 1, true, false);
	ck_assert(flow_fixture_wait_settled(f, 3));
	restore(f, flow_fixture_only_instance(f, &version));
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, code_text(CODE_DISPATCH_INSTANCE_FAILED)), 0);
	flow_fixture_free(&f);
}
END_TEST

/* It fails while a message for all has a row for it already. */
START_TEST(target_that_is_failed_is_held_and_restored)
{
	struct flow_fixture_settings settings = settings_new();
	struct flow_fixture *f;
	struct id instance;
	int64_t version;

	settings.unmatched_hold_ms = _i ? 800 : 60000;
	f = flow_fixture_new(&settings);
	open_listener(f, "a", "g");
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	send_typed(f, "events", "ping", "g", "bad", false, "{\"group\":\"g\",\"fail\":\"a\"}");
	ping(f, "g", 1, true, false);
	ck_assert(flow_fixture_wait_settled(f, 3));
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(test_wait(one_failed, f, DEADLINE_MS));
	if (_i) {
		ck_assert(test_wait(one_letter_more, f, DEADLINE_MS));
	} else {
		restore(f, instance);
		ck_assert(flow_fixture_wait_published(f, 1));
	}
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(count_of(&flow_fixture_stats(f, "events")->gone), 0);
	flow_fixture_free(&f);
}
END_TEST

static Suite *fan_out_suite(void)
{
	Suite *suite = suite_create("flow fan-out");
	TCase *tcase = tcase_create("several targets");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, every_wait_has_it_once_and_in_order, 0, 2);
	tcase_add_loop_test(tcase, early_it_waits_for_the_first, 0, 2);
	tcase_add_loop_test(tcase, target_that_is_failed_is_held_and_restored, 0, 2);
	TEST_ADD_ALL(tcase, target_that_is_gone_is_passed_over, targets_are_taken_over, every_process_has_its_own, instances_begin_in_order,
		     relay_for_a_failed_instance_is_dead_lettered_after_the_hold, restored_within_the_hold_it_has_it);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(fan_out_suite)
