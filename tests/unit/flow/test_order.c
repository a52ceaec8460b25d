/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages without an order key that are ordered by the instance they are for (AMQP): looked up in parallel, they take effect
 * in order of receipt (G8).
 */
#include <stdio.h>

#include "tests/support/flow_fixture.h"
#include "tests/support/testing.h"

enum { SEQUENCES = 12, ITEMS = 25 };

static struct flow_fixture *start(const char *package)
{
	struct flow_fixture_settings settings = {.package = package, .lanes = 16};

	return flow_fixture_new(&settings);
}

static struct message *typed(struct flow_fixture *f, const char *type, const char *id, const char *body)
{
	struct message *message = flow_fixture_message(f, NULL, id, str_of(body));

	message->orders_by_instance = true;
	message->type = str_of(arena_strdup(&message->arena, type));
	return message;
}

static void send_open(struct flow_fixture *f, int sequence)
{
	char body[64], id[32];

	snprintf(body, sizeof(body), "{\"name\":\"s%d\"}", sequence);
	snprintf(id, sizeof(id), "open-%d", sequence);
	flow_fixture_send_message(f, "events", typed(f, "open", id, body));
}

static void send_item(struct flow_fixture *f, int sequence, int item)
{
	char body[96], id[32];

	snprintf(body, sizeof(body), "{\"name\":\"s%d\",\"n\":%d,\"last\":%s}", sequence, item,
		 item == ITEMS ? "true" : "false");
	snprintf(id, sizeof(id), "item-%d-%d", sequence, item);
	flow_fixture_send_message(f, "events", typed(f, "item", id, body));
}

static void assert_in_order(struct flow_fixture *f)
{
	char want[512] = "";
	size_t len = 0;

	for (int i = 1; i <= ITEMS; i++)
		len += (size_t)snprintf(want + len, sizeof(want) - len, "%d ", i);
	ck_assert(flow_fixture_wait_published(f, SEQUENCES));
	for (unsigned i = 0; i < SEQUENCES; i++)
		ck_assert_msg(strstr(f->published[i].body, want), "%s", f->published[i].body);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), SEQUENCES);
}

START_TEST(items_take_effect_in_order_of_receipt)
{
	struct flow_fixture *f = start("tests/unit/flow/sequence");

	for (int s = 0; s < SEQUENCES; s++)
		send_open(f, s);
	for (int i = 1; i <= ITEMS; i++)
		for (int s = 0; s < SEQUENCES; s++)
			send_item(f, s, i);
	ck_assert(flow_fixture_wait_settled(f, SEQUENCES * (ITEMS + 1)));
	assert_in_order(f);
	flow_fixture_free(&f);
}
END_TEST

/* All items come before anybody waits for them: they are held in order, and none overtakes. */
START_TEST(items_before_their_instance_keep_their_order)
{
	struct flow_fixture *f = start("tests/unit/flow/sequence");

	for (int i = 1; i <= ITEMS; i++)
		for (int s = 0; s < SEQUENCES; s++)
			send_item(f, s, i);
	ck_assert(flow_fixture_wait_held(f, "events", SEQUENCES));
	for (int s = 0; s < SEQUENCES; s++)
		send_open(f, s);
	ck_assert(flow_fixture_wait_settled(f, SEQUENCES * (ITEMS + 1)));
	assert_in_order(f);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(poison_between_does_not_hold_up_the_others)
{
	struct flow_fixture *f = start("tests/unit/flow/sequence");

	send_open(f, 0);
	for (int i = 1; i <= 5; i++) {
		send_item(f, 0, i);
		flow_fixture_send_message(f, "events", typed(f, "item", NULL, "{"));
	}
	ck_assert(flow_fixture_wait_settled(f, 11));
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, "SUTRA.PARSE.JSON.PARSE_ERROR"), 5);
	ck_assert_uint_eq(flow_fixture_stats(f, "events")->committed, 6);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(revoke_gives_back_whatever_stage_they_are_in)
{
	struct flow_fixture *f = start("tests/unit/flow/sequence");

	for (int s = 0; s < SEQUENCES; s++)
		for (int i = 1; i <= 5; i++)
			send_item(f, s, i);
	flow_fixture_revoke(f, "events");
	ck_assert(flow_fixture_wait_settled(f, SEQUENCES * 5));
	for (unsigned i = 0; i < SEQUENCES * 5; i++)
		ck_assert_int_eq(f->settled[i].how, SETTLE_BACK);
	flow_fixture_free(&f);
}
END_TEST

/*
 * Items 1 and 2 find the instance while it waits for items; after 1 it waits for something else, so that 3 finds nobody. It
 * belongs behind 2 all the same.
 */
START_TEST(items_keep_their_order_while_their_instance_turns_away)
{
	struct flow_fixture *f = start("tests/unit/flow/turns");
	char id[32], body[64];

	for (int s = 0; s < SEQUENCES; s++)
		send_open(f, s);
	ck_assert(flow_fixture_wait_settled(f, SEQUENCES));
	for (int i = 1; i <= 2; i++)
		for (int s = 0; s < SEQUENCES; s++)
			send_item(f, s, i);
	ck_assert(flow_fixture_wait_settled(f, 2 * SEQUENCES));
	ck_assert(flow_fixture_wait_held(f, "events", SEQUENCES));
	for (int s = 0; s < SEQUENCES; s++)
		send_item(f, s, ITEMS);
	for (int round = 0; round < 2; round++)
		for (int s = 0; s < SEQUENCES; s++) {
			snprintf(id, sizeof(id), "go-%d-%d", s, round);
			snprintf(body, sizeof(body), "{\"name\":\"s%d\"}", s);
			flow_fixture_send(f, "gos", NULL, id, body);
		}
	ck_assert(flow_fixture_wait_published(f, SEQUENCES));
	for (unsigned i = 0; i < SEQUENCES; i++)
		ck_assert_msg(strstr(f->published[i].body, "\"1 2 25 \""), "%s", f->published[i].body);
	flow_fixture_free(&f);
}
END_TEST

static Suite *order_suite(void)
{
	Suite *suite = suite_create("flow order");
	TCase *tcase = tcase_create("order by instance");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, items_take_effect_in_order_of_receipt, items_before_their_instance_keep_their_order,
		     items_keep_their_order_while_their_instance_turns_away,
		     poison_between_does_not_hold_up_the_others, revoke_gives_back_whatever_stage_they_are_in);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(order_suite)
