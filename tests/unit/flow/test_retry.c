/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of an idempotent process that fail: nothing is committed, they are tried again, so often and no more. The scripts of the package
 * fail until a time has come, which is given with the message.
 */
#include <stdio.h>

#include "base/time.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000
#define NEVER	    "2999-01-01T00:00:00Z"
#define LONG_AGO    "2001-01-01T00:00:00Z"
#define AGAIN	    "tests/unit/flow/again"

static struct flow_fixture *start(uint32_t attempts)
{
	const struct flow_fixture_settings settings = {.package = AGAIN, .failure_attempts = attempts};

	return flow_fixture_new(&settings);
}

static void deliver(struct flow_fixture *f, const char *channel, const char *id, const char *until)
{
	char body[160];

	snprintf(body, sizeof(body), "{\"name\":\"a\",\"until\":\"%s\"}", until);
	flow_fixture_send(f, channel, "a", id, body);
}

static uint64_t refused(struct flow_fixture *f, const char *channel)
{
	return __atomic_load_n(&flow_fixture_stats(f, channel)->refused, __ATOMIC_RELAXED);
}

START_TEST(first_step_is_tried_so_often_and_then_fails)
{
	struct flow_fixture *f = start(3);

	deliver(f, "begins", "b1", NEVER);
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_int_eq(f->settled[0].how, SETTLE_DONE);
	ck_assert_uint_eq(refused(f, "begins"), 3);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_FAILED), 1);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.NON_IDEMPOTENT_FAILURE"), 1);
	/* The next one begins to count anew. */
	deliver(f, "begins", "b2", NEVER);
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_eq(refused(f, "begins"), 6);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(without_attempts_it_fails_at_once)
{
	struct flow_fixture *f = start(0);

	deliver(f, "begins", "b1", NEVER);
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_uint_eq(refused(f, "begins"), 0);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_FAILED), 1);
	flow_fixture_free(&f);
}
END_TEST

static char *soon(char text[TIME_TEXT_SIZE])
{
	return time_format((time_wall_us() / US_PER_S + 1) * US_PER_S, text);
}

/* It takes a second, in which many tries fail. */
START_TEST(cause_that_goes_away_leaves_no_trace)
{
	struct flow_fixture *f = start(1000);
	char until[TIME_TEXT_SIZE];

	deliver(f, "begins", "b1", soon(until));
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_uint_gt(refused(f, "begins"), 0);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	deliver(f, "goes", "g1", soon(until));
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_gt(refused(f, "goes"), 0);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.NON_IDEMPOTENT_FAILURE"), 0);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(later_step_gives_back_the_claim_between_tries)
{
	struct flow_fixture *f = start(3);
	struct id instance;
	int64_t version;

	deliver(f, "begins", "b1", LONG_AGO);
	ck_assert(flow_fixture_wait_settled(f, 1));
	deliver(f, "goes", "g1", NEVER);
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_eq(refused(f, "goes"), 3);
	instance = flow_fixture_only_instance(f, &version);
	/* One step forward, one failure: the tries wrote nothing. */
	ck_assert_int_eq(version, 2);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_FAILED), 1);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	flow_fixture_free(&f);
}
END_TEST

/* A claim that is held is no failure, however often. */
START_TEST(only_failures_count)
{
	struct flow_fixture *f = start(1);
	struct id instance;
	int64_t version;

	deliver(f, "begins", "b1", LONG_AGO);
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	deliver(f, "goes", "g1", LONG_AGO);
	for (uint32_t i = 0; refused(f, "goes") < 3 && i < 1000; i++)
		ck_assert(flow_fixture_wait_held(f, "goes", 1));
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	flow_fixture_free(&f);
}
END_TEST

/* --- what no delivery stands behind --- */

struct sent {
	struct lane_request request;
	struct test_latch answered;
	int64_t times;
};

static void sent_answered(struct task *post)
{
	test_latch_raise(&container_of(container_of(post, struct lane_request, post), struct sent, request)->answered);
}

static enum lane_answer submit(struct flow_fixture *f, struct sent *sent, uint32_t lane)
{
	sent->request.reply_to = f->loop;
	sent->request.answered = sent_answered;
	sent->request.tenant = STR("default");
	ck_assert(lane_set_submit(f->lanes, lane, &sent->request));
	ck_assert(test_latch_wait(&sent->answered, ++sent->times, DEADLINE_MS));
	return sent->request.answer;
}

static struct sent *sent_new(void)
{
	static struct sent sent;

	sent = (struct sent){.answered = TEST_LATCH_INIT, .request.payload = value_nil()};
	arena_init(&sent.request.resolved);
	return &sent;
}

/* Each try is a request of its own, as after a tick. */
START_TEST(start_timer_is_tried_so_often_and_then_fails)
{
	struct flow_fixture *f = start(2);

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++) {
			struct sent *sent = sent_new();
			enum lane_answer answer;

			sent->request.kind = REQUEST_SCHEDULE;
			sent->request.target.deployment = f->deployment->id;
			sent->request.target.node = STR("Begin");
			sent->request.process = STR("Again");
			sent->request.due_us = 1000000 * (round + 1);
			answer = submit(f, sent, 0);
			ck_assert_int_eq(answer, i < 2 ? ANSWER_REFUSED : ANSWER_COMMITTED);
			ck_assert_int_eq(sent->request.error.code, CODE_EXPRESSION_FAILED);
			arena_done(&sent->request.resolved);
		}
		ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_FAILED), (uint32_t)round + 1);
	}
	flow_fixture_free(&f);
}
END_TEST

/* An operator is told, and the task waits on. */
START_TEST(completion_that_fails_changes_nothing)
{
	struct flow_fixture *f = start(3);
	struct sent *sent = sent_new();
	msgpack_object_kv until = {value_text(STR("until")), value_text(STR(NEVER))};
	struct id instance;
	int64_t version;

	deliver(f, "begins", "b1", LONG_AGO);
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &version);
	sent->request.kind = REQUEST_COMPLETE;
	sent->request.target.instance = instance;
	sent->request.target.node = STR("Wait");
	sent->request.payload = (msgpack_object){.type = MSGPACK_OBJECT_MAP, .via.map = {1, &until}};
	ck_assert_int_eq(submit(f, sent, lane_set_lane_of_instance(f->lanes, instance)), ANSWER_REJECTED);
	ck_assert_int_eq(sent->request.error.code, CODE_EXPRESSION_FAILED);
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(version, 1);
	until.val = value_text(STR(LONG_AGO));
	ck_assert_int_eq(submit(f, sent, lane_set_lane_of_instance(f->lanes, instance)), ANSWER_COMMITTED);
	ck_assert_int_eq(sent->request.status, INSTANCE_COMPLETED);
	arena_done(&sent->request.resolved);
	flow_fixture_free(&f);
}
END_TEST

static Suite *retry_suite(void)
{
	Suite *suite = suite_create("flow retry");
	TCase *tcase = tcase_create("retry");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, first_step_is_tried_so_often_and_then_fails, without_attempts_it_fails_at_once,
		     cause_that_goes_away_leaves_no_trace, later_step_gives_back_the_claim_between_tries, only_failures_count,
		     start_timer_is_tried_so_often_and_then_fails, completion_that_fails_changes_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(retry_suite)
