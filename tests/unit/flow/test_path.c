/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message from a consumer to the database and back, and every way it can end, over real lanes, store and outbox.
 */
#include <stdio.h>

#include "tests/support/flow_fixture.h"
#include "tests/support/testing.h"

static struct flow_fixture *start(void)
{
	struct flow_fixture_settings settings = {0};

	return flow_fixture_new(&settings);
}

static void send_order(struct flow_fixture *f, const char *order, const char *id)
{
	char body[160];

	snprintf(body, sizeof(body), "{\"orderId\":\"%s\",\"item\":\"tea\",\"quantity\":3,\"price\":4}", order);
	flow_fixture_send(f, "orders", order, id, body);
}

static void send_payment(struct flow_fixture *f, const char *order, const char *id, int amount)
{
	char body[160];

	snprintf(body, sizeof(body), "{\"orderId\":\"%s\",\"amount\":%d}", order, amount);
	flow_fixture_send(f, "payments", order, id, body);
}

/* Everything the outbox held is published, confirmed and deleted. */
static bool outbox_empty(void *arg)
{
	return flow_fixture_count_outbox(arg) == 0;
}

START_TEST(spawn_parks_and_is_settled)
{
	struct flow_fixture *f = start();

	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_int_eq(f->settled[0].how, SETTLE_DONE);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert_str_eq(f->published[0].destination, "stock-requests");
	ck_assert_str_eq(f->published[0].key, "A-1");
	ck_assert_str_eq(f->published[0].body, "{\"item\":\"tea\",\"orderId\":\"A-1\",\"quantity\":3}");
	ck_assert(test_wait(outbox_empty, f, 5000));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(relay_resumes_and_completes)
{
	struct flow_fixture *f = start();

	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_published(f, 2));
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_str_eq(f->published[1].destination, "order-replies");
	ck_assert_str_eq(f->published[1].body,
			 "{\"orderId\":\"A-1\",\"paid\":12,\"status\":\"CONFIRMED\",\"total\":12}");
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	ck_assert(test_wait(outbox_empty, f, 5000));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(duplicate_has_no_second_effect)
{
	struct flow_fixture *f = start();

	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 2));
	send_payment(f, "A-1", "p1", 12);
	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_settled(f, 4));
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->duplicate, 1);
	ck_assert_uint_eq(flow_fixture_stats(f, "payments")->duplicate, 1);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), 1);
	ck_assert(flow_fixture_wait_published(f, 2));
	ck_assert(test_wait(outbox_empty, f, 5000));
	ck_assert_uint_eq(f->published_count, 2);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.ALIAS_CONFLICT_REJECT"), 0);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(unique_alias_rejects_another_event)
{
	struct flow_fixture *f = start();

	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	send_order(f, "A-1", "e2");
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_int_eq(f->settled[1].how, SETTLE_DONE);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.ALIAS_CONFLICT_REJECT"), 1);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	flow_fixture_free(&f);
}
END_TEST

/* A payment that overtakes its order is held, and goes through the moment the order parks. */
START_TEST(relay_before_its_spawn_is_held)
{
	struct flow_fixture *f = start();

	send_payment(f, "A-1", "p1", 1);
	ck_assert(flow_fixture_wait_held(f, "payments", 1));
	ck_assert_uint_eq(f->settled_count, 0);
	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert(flow_fixture_wait_published(f, 2));
	ck_assert_str_eq(f->published[1].body,
			 "{\"orderId\":\"A-1\",\"paid\":1,\"status\":\"REJECTED\",\"total\":12}");
	flow_fixture_free(&f);
}
END_TEST

START_TEST(unmatched_relay_is_dead_lettered_after_its_hold)
{
	struct flow_fixture_settings settings = {.unmatched_hold_ms = 150};
	struct flow_fixture *f = flow_fixture_new(&settings);

	send_payment(f, "A-1", "p1", 1);
	send_payment(f, "A-1", "p2", 1);
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_int_eq(f->settled[0].how, SETTLE_DONE);
	ck_assert_str_eq(f->settled[0].source, "fixture:0");
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.RUNTIME.RELAY.CORRELATION_NOT_FOUND"), 2);
	flow_fixture_free(&f);
}
END_TEST

static const struct poison {
	const char *body;
	const char *code;
} poisons[] = {
	{"", "SUTRA.PARSE.JSON.PARSE_ERROR"},
	{"{", "SUTRA.PARSE.JSON.PARSE_ERROR"},
	{"\xff\xfe", "SUTRA.PARSE.JSON.PARSE_ERROR"},
	{"{\"a\":1,\"a\":2}", "SUTRA.PARSE.DUPLICATE_KEY"},
	{"{\"orderId\":123456789012345678901234567890}", "SUTRA.PARSE.LIMIT"},
	{"{}", "SUTRA.INBOUND.VALIDATION_REJECT"},
	{"null", "SUTRA.INBOUND.VALIDATION_REJECT"},
};

START_TEST(poison_is_dead_lettered_once_and_the_next_goes_on)
{
	struct flow_fixture *f = start();
	const struct poison *poison = &poisons[_i];

	flow_fixture_send(f, "orders", "k", "bad", poison->body);
	flow_fixture_send(f, "orders", "k", "bad", poison->body);
	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 3));
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(f->settled[i].how, SETTLE_DONE);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, poison->code), 1);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	flow_fixture_free(&f);
}
END_TEST

/* quantity is text: the script fails, the instance stays FAILED with its dead letter, the message is done. */
START_TEST(failing_step_commits_failed)
{
	struct flow_fixture *f = start();

	flow_fixture_send(f, "orders", "A-1", "e1", "{\"orderId\":\"A-1\",\"quantity\":{},\"price\":4}");
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_int_eq(f->settled[0].how, SETTLE_DONE);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_FAILED), 1);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.NON_IDEMPOTENT_FAILURE"), 1);
	ck_assert_uint_eq(f->published_count, 0);
	/* A FAILED instance counts as live: its unique alias stays taken. */
	send_order(f, "A-1", "e2");
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.ALIAS_CONFLICT_REJECT"), 1);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(failing_resume_fails_in_place)
{
	struct flow_fixture *f = start();

	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	/* amount is a map: the comparison at the gateway raises. */
	flow_fixture_send(f, "payments", "A-1", "p1", "{\"orderId\":\"A-1\",\"amount\":{}}");
	ck_assert(flow_fixture_wait_settled(f, 2));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_FAILED), 1);
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.INBOUND.NON_IDEMPOTENT_FAILURE"), 1);
	/* Its waits are resolved: a later payment finds nobody. */
	send_payment(f, "A-1", "p2", 12);
	ck_assert(flow_fixture_wait_held(f, "payments", 1));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(revoke_gives_back_what_is_held)
{
	struct flow_fixture *f = start();

	send_payment(f, "A-1", "p1", 1);
	send_payment(f, "A-1", "p2", 2);
	send_payment(f, "A-2", "p3", 3);
	ck_assert(flow_fixture_wait_held(f, "payments", 2));
	flow_fixture_revoke(f, "payments");
	ck_assert(flow_fixture_wait_settled(f, 3));
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(f->settled[i].how, SETTLE_BACK);
	ck_assert_uint_eq(flow_fixture_stats(f, "payments")->held, 0);
	flow_fixture_free(&f);
}
END_TEST

/* Many instances over many lanes with small mailboxes: everything through, each key in order, handoffs included. */
START_TEST(many_in_order_through_small_mailboxes)
{
	struct flow_fixture_settings settings = {.lanes = 16, .queue_capacity = 2};
	struct flow_fixture *f = flow_fixture_new(&settings);
	enum { ORDERS = 400 };
	char order[32], id[32];
	uint64_t handoffs = 0;

	for (int i = 0; i < ORDERS; i++) {
		snprintf(order, sizeof(order), "A-%d", i);
		snprintf(id, sizeof(id), "e%d", i);
		send_order(f, order, id);
	}
	for (int i = 0; i < ORDERS; i++) {
		snprintf(order, sizeof(order), "A-%d", i);
		snprintf(id, sizeof(id), "p%d", i);
		send_payment(f, order, id, i % 2 ? 12 : 1);
	}
	ck_assert(flow_fixture_wait_settled(f, 2 * ORDERS));
	ck_assert(flow_fixture_wait_published(f, 2 * ORDERS));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), ORDERS);
	for (unsigned i = 0; i < 16; i++)
		handoffs += f->lanes->lanes[i].stats.handoffs;
	ck_assert_uint_gt(handoffs, 0);
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->unavailable, 0);
	ck_assert_uint_eq(flow_fixture_stats(f, "orders")->duplicate, 0);
	ck_assert(test_wait(outbox_empty, f, 5000));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(failed_publish_is_tried_again_under_the_same_key)
{
	struct flow_fixture *f = start();

	f->publish_failures = 3;
	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_published(f, 1));
	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_published(f, 2));
	ck_assert(test_wait(outbox_empty, f, 5000));
	ck_assert_uint_eq(f->published_count, 2);
	ck_assert_str_ne(f->published[0].message_id, f->published[1].message_id);
	flow_fixture_free(&f);
}
END_TEST

static bool one_is_poisoned(void *arg)
{
	struct flow_fixture *f = arg;
	struct outbox_stats stats;

	outbox_stats_read(f->outbox, &stats);
	return stats.poisoned == 1;
}

static bool outbox_has_one(void *arg)
{
	return flow_fixture_count_outbox(arg) == 1;
}

START_TEST(exhausted_row_is_poisoned_and_kept)
{
	struct flow_fixture_settings settings = {.max_attempts = 2};
	struct flow_fixture *f = flow_fixture_new(&settings);

	f->publish_failures = 2;
	send_order(f, "A-1", "e1");
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert(test_wait(one_is_poisoned, f, 5000));
	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert_str_eq(f->published[0].destination, "order-replies");
	ck_assert(test_wait(outbox_has_one, f, 5000)); /* the confirmed one is deleted, the poisoned one is kept */
	ck_assert_uint_eq(f->published_count, 1);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(trace_context_travels)
{
	struct flow_fixture *f = start();
	struct message *message = flow_fixture_message(
		f, "A-1", "e1", STR("{\"orderId\":\"A-1\",\"item\":\"tea\",\"quantity\":3,\"price\":4}"));

	message->headers.items = arena_alloc(&message->arena, sizeof(struct header));
	message->headers.items[0] = (struct header){
		STR("traceparent"), value_text(STR("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))};
	message->headers.count = 1;
	flow_fixture_send_message(f, "orders", message);
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert_str_eq(f->published[0].traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
	send_payment(f, "A-1", "p1", 12);
	ck_assert(flow_fixture_wait_published(f, 2));
	ck_assert_str_eq(f->published[1].traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
	flow_fixture_free(&f);
}
END_TEST

static Suite *path_suite(void)
{
	Suite *suite = suite_create("flow path");
	TCase *tcase = tcase_create("path");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, spawn_parks_and_is_settled, relay_resumes_and_completes, duplicate_has_no_second_effect,
		     unique_alias_rejects_another_event, relay_before_its_spawn_is_held,
		     unmatched_relay_is_dead_lettered_after_its_hold, failing_step_commits_failed,
		     failing_resume_fails_in_place, revoke_gives_back_what_is_held,
		     many_in_order_through_small_mailboxes, failed_publish_is_tried_again_under_the_same_key,
		     exhausted_row_is_poisoned_and_kept, trace_context_travels);
	tcase_add_loop_test(tcase, poison_is_dead_lettered_once_and_the_next_goes_on, 0, ARRAY_LEN(poisons));
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(path_suite)
