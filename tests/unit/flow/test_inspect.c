/* SPDX-License-Identifier: Apache-2.0 */
/* What an intake tells of the deliveries it has: which it finds, in what state they are, and why. */
#include <stdio.h>

#include "base/time.h"
#include "flow/inspect.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000

/* The package's process takes "open", then items until one says that it is the last. */
static struct flow_fixture *start(struct flow_fixture_settings settings)
{
	settings.package = "tests/unit/flow/sequence";
	settings.intake.max_in_flight = 256;
	settings.intake.max_kept = 1000;
	return flow_fixture_new(&settings);
}

static struct message *item(struct flow_fixture *f, const char *key, int number, const char *id)
{
	char body[96];
	struct message *message;

	snprintf(body, sizeof(body), "{\"name\":\"s\",\"n\":%d,\"last\":false}", number);
	message = flow_fixture_message(f, key, id, str_of(body));
	message->type = STR("item");
	return message;
}

static void send_item(struct flow_fixture *f, int number)
{
	char id[32];

	snprintf(id, sizeof(id), "item-%d", number);
	flow_fixture_send_message(f, "events", item(f, "s", number, id));
}

/* The instance, claimed by somebody else. */
static struct id open_claimed(struct flow_fixture *f)
{
	struct message *message = flow_fixture_message(f, "s", "open", STR("{\"name\":\"s\"}"));
	struct id instance;
	int64_t version;

	message->type = STR("open");
	flow_fixture_send_message(f, "events", message);
	ck_assert(flow_fixture_wait_settled(f, 1));
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	return instance;
}

/* --- asking --- */

struct asked {
	struct inspection inspection;
	struct arena arena;
	bool done; /* atomic */
};

static void asked_done(struct task *task)
{
	struct asked *asked = container_of(task, struct asked, inspection.done);

	__atomic_store_n(&asked->done, true, __ATOMIC_RELEASE);
}

static bool is_done(void *arg)
{
	return __atomic_load_n(&((struct asked *)arg)->done, __ATOMIC_ACQUIRE);
}

/* Asks the intake of the channel; the answer is valid until asked_free. */
static const struct inspection *ask(struct flow_fixture *f, struct asked *asked, struct inspection question)
{
	struct intake *intake = NULL;

	for (uint32_t i = 0; i < f->channel_count; i++)
		if (f->channels[i].intake && strcmp(f->channels[i].intake->settings.channel, "events") == 0)
			intake = f->channels[i].intake;
	ck_assert_ptr_nonnull(intake);
	*asked = (struct asked){.inspection = question};
	arena_init(&asked->arena);
	asked->inspection.arena = &asked->arena;
	asked->inspection.reply_to = f->loop;
	asked->inspection.done.run = asked_done;
	intake_inspect(intake, &asked->inspection);
	ck_assert(test_wait(is_done, asked, DEADLINE_MS));
	return &asked->inspection;
}

static void asked_free(struct asked *asked)
{
	arena_done(&asked->arena);
}

/* The one that is found by this text; its arena is the caller's. */
static const struct inspected *only(struct flow_fixture *f, struct asked *asked, const char *text)
{
	const struct inspection *answer = ask(f, asked, (struct inspection){.message = str_of(text)});

	ck_assert_msg(answer->count == 1, "%s: %u found", text, answer->count);
	ck_assert_uint_eq(answer->matches, 1);
	return &answer->found[0];
}

static int64_t wall_us(struct flow_fixture *f)
{
	return loop_wall_us(f->loop);
}

/* --- what is told --- */

START_TEST(a_refused_one_names_the_instance_and_what_waits_behind_it)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){0});
	int64_t before_us = wall_us(f);
	struct id instance = open_claimed(f);
	const struct inspected *d;
	struct asked asked;

	send_item(f, 1);
	ck_assert(flow_fixture_wait_held(f, "events", 1));
	send_item(f, 2);
	send_item(f, 3);
	d = only(f, &asked, "item-1");
	/* A try may be on a lane right now. */
	while (d->state == INSPECTED_ON_LANE) {
		asked_free(&asked);
		d = only(f, &asked, "item-1");
	}
	ck_assert_int_eq(d->state, INSPECTED_HELD);
	ck_assert_int_eq(d->code, CODE_RUNTIME_CLAIM_HELD);
	ck_assert_str_eq(d->answer, "refused");
	ck_assert(id_equal(d->instance, instance));
	ck_assert_uint_ge(d->attempts, 1);
	ck_assert_uint_eq(d->ahead, 0);
	ck_assert_uint_le(d->behind, 2);
	ck_assert_int_ge(d->received_us, before_us);
	ck_assert_int_ge(d->held_since_us, d->received_us);
	ck_assert_int_ge(d->next_try_us, d->held_since_us);
	ck_assert_str_slice(d->event_id, STR("item-1"));
	ck_assert_uint_eq(d->kept, 0);
	asked_free(&asked);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(flow_fixture_wait_settled(f, 4));
	ck_assert_uint_eq(ask(f, &asked, (struct inspection){.message = STR("item-1")})->count, 0);
	asked_free(&asked);
	flow_fixture_free(&f);
}
END_TEST

static bool two_behind(void *arg)
{
	struct asked asked;
	struct flow_fixture *f = arg;
	bool yes = ask(f, &asked, (struct inspection){.message = STR("item-3")})->count == 1 &&
		   asked.inspection.found[0].ahead == 2;

	asked_free(&asked);
	return yes;
}

START_TEST(one_behind_names_the_first_of_its_order)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){0});
	struct id instance = open_claimed(f);
	const struct inspected *d;
	struct asked asked, other;

	for (int n = 1; n <= 3; n++)
		send_item(f, n);
	ck_assert(test_wait(two_behind, f, DEADLINE_MS));
	d = only(f, &asked, "item-3");
	ck_assert_int_eq(d->state, INSPECTED_BEHIND);
	ck_assert_str_slice(d->ahead_source, only(f, &other, "item-1")->source);
	ck_assert_ptr_null(d->answer);
	/* It was on no lane yet: known by what came with it. */
	ck_assert_str_slice(d->event_id, STR("item-3"));
	asked_free(&asked);
	asked_free(&other);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(flow_fixture_wait_settled(f, 4));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(it_is_found_by_its_source_and_by_headers_before_it_is_decoded)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){0});
	struct id instance = open_claimed(f);
	struct message *message;
	struct header headers[] = {{STR("order-no"), value_text(STR("N-2"))},
				   {STR("ce_source"), value_text(STR("/shop"))},
				   {STR("ce_id"), value_text(STR("7"))}};
	struct asked asked;
	struct str source;

	send_item(f, 1);
	ck_assert(flow_fixture_wait_held(f, "events", 1));
	message = item(f, "s", 2, NULL);
	message->headers = (struct header_list){arena_memdup(&message->arena, headers, sizeof(headers)), 3};
	source = str_of(arena_strdup(&message->arena, "the-source"));
	message->source = source;
	flow_fixture_send_message(f, "events", message);
	only(f, &asked, "the-source");
	asked_free(&asked);
	only(f, &asked, "/shop 7");
	asked_free(&asked);
	ck_assert_uint_eq(ask(f, &asked, (struct inspection){.message = STR("/shop 8")})->count, 0);
	asked_free(&asked);
	ck_assert_uint_eq(ask(f, &asked, (struct inspection){.message = STR("N-2")})->count, 0);
	asked_free(&asked);
	ck_assert_uint_eq(
		ask(f, &asked, (struct inspection){.message = STR("N-2"), .id_header = STR("Order-No")})->count, 1);
	asked_free(&asked);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	ck_assert(flow_fixture_wait_settled(f, 3));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(an_unmatched_one_tells_what_it_looked_for)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){.unmatched_hold_ms = 60000});
	const struct inspected *d;
	struct asked asked;
	struct id key = store_alias_key(STR("default"), STR("sequence"), STR("s")), other = {{1}};

	send_item(f, 1);
	ck_assert(flow_fixture_wait_held(f, "events", 1));
	d = only(f, &asked, "item-1");
	while (d->state == INSPECTED_ON_LANE) {
		asked_free(&asked);
		d = only(f, &asked, "item-1");
	}
	ck_assert_int_eq(d->code, CODE_RUNTIME_CORRELATION_NOT_FOUND);
	ck_assert_uint_eq(d->looked_for_count, 1);
	ck_assert_str_slice(d->looked_for[0].name, STR("sequence"));
	ck_assert_str_slice(d->looked_for[0].value, STR("s"));
	ck_assert_int_gt(d->unmatched_until_us, wall_us(f) + 30 * US_PER_S);
	ck_assert_int_lt(d->unmatched_until_us, wall_us(f) + 61 * US_PER_S);
	ck_assert(id_is_none(d->instance));
	asked_free(&asked);
	/* An instance with that alias has a message held for it, though it waits for something else. */
	while (ask(f, &asked, (struct inspection){.instance = {{9}}, .keys = &key, .key_count = 1})->count == 0)
		asked_free(&asked);
	asked_free(&asked);
	ck_assert_uint_eq(ask(f, &asked, (struct inspection){.instance = {{9}}, .keys = &other, .key_count = 1})->count, 0);
	asked_free(&asked);
	flow_fixture_free(&f);
}
END_TEST

struct by_alias {
	struct flow_fixture *f;
	struct id instance, key;
};

static bool both_found(void *arg)
{
	struct by_alias *by = arg;
	struct asked asked;
	const struct inspection *answer = ask(
		by->f, &asked, (struct inspection){.instance = by->instance, .keys = &by->key, .key_count = 1});
	bool yes = answer->count == 2 && answer->found[0].state == INSPECTED_HELD && answer->found[0].behind == 1 &&
		   answer->found[1].state == INSPECTED_BEHIND && answer->found[1].ahead == 1 &&
		   str_equal(answer->found[1].ahead_source, answer->found[0].source);

	asked_free(&asked);
	return yes;
}

START_TEST(those_that_order_by_instance_are_all_found_for_it)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){0});
	struct by_alias by = {f, open_claimed(f), store_alias_key(STR("default"), STR("sequence"), STR("s"))};

	for (int n = 1; n <= 2; n++) {
		struct message *message = item(f, NULL, n, n == 1 ? "one" : "two");

		message->orders_by_instance = true;
		flow_fixture_send_message(f, "events", message);
	}
	ck_assert(test_wait(both_found, &by, DEADLINE_MS));
	ck_assert_int_eq(flow_fixture_other_claims(f, by.instance, true), STORE_OK);
	ck_assert(flow_fixture_wait_settled(f, 3));
	flow_fixture_free(&f);
}
END_TEST

static bool place_held(void *arg)
{
	struct flow_fixture *f = arg;
	struct asked asked;
	const struct inspection *answer = ask(f, &asked, (struct inspection){0});
	bool yes = answer->count == 1 && answer->found[0].kept == 3 && answer->found[0].attempts > 0 &&
		   !id_is_none(answer->found[0].instance);

	asked_free(&asked);
	return yes;
}

START_TEST(a_place_stands_for_what_is_kept)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){.intake.hold_ms = 200});
	struct id instance = open_claimed(f);
	const struct inspection *answer;
	struct asked asked;
	struct id order_key;
	uint32_t tries = 0;

	for (int n = 1; n <= 3; n++)
		send_item(f, n);
	ck_assert(flow_fixture_wait_settled(f, 4));
	ck_assert(test_wait(place_held, f, DEADLINE_MS));
	do {
		answer = ask(f, &asked, (struct inspection){.instance = instance});
		ck_assert_uint_lt(++tries, 10000);
		if (answer->count)
			break;
		asked_free(&asked);
	} while (true);
	ck_assert_uint_eq(answer->found[0].kept, 3);
	order_key = answer->found[0].order_key;
	ck_assert(id_equal(answer->found[0].instance, instance));
	ck_assert_int_eq(answer->found[0].code, CODE_RUNTIME_CLAIM_HELD);
	asked_free(&asked);
	answer = ask(f, &asked, (struct inspection){.order_key = order_key});
	ck_assert_uint_eq(answer->count, 1);
	ck_assert_uint_eq(answer->found[0].kept, 3);
	asked_free(&asked);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(more_than_are_told_of_are_counted)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){.unmatched_hold_ms = 60000});
	struct asked asked;
	char key[16], id[16];

	for (int n = 0; n < INSPECT_MAX + 7; n++) {
		snprintf(key, sizeof(key), "k%d", n);
		snprintf(id, sizeof(id), "i%d", n);
		flow_fixture_send_message(f, "events", item(f, key, n, id));
	}
	/* Some are on a lane at any moment, more where the machine is slow. */
	while (ask(f, &asked, (struct inspection){0})->matches <= INSPECT_MAX)
		asked_free(&asked);
	ck_assert_uint_eq(asked.inspection.count, INSPECT_MAX);
	asked_free(&asked);
	flow_fixture_free(&f);
}
END_TEST

/* A lane writes to what it has in work: asking all the time must not meet that. Shown by the thread sanitizer. */
START_TEST(asking_while_lanes_work)
{
	struct flow_fixture *f = start((struct flow_fixture_settings){.lanes = 4});
	char name[32], body[96];
	struct asked asked;

	for (int n = 0; n < 200; n++) {
		struct message *message;

		snprintf(name, sizeof(name), "n-%d", n);
		snprintf(body, sizeof(body), "{\"name\":\"%s\"}", name);
		message = flow_fixture_message(f, name, name, str_of(body));
		message->type = STR("open");
		flow_fixture_send_message(f, "events", message);
		ask(f, &asked, (struct inspection){.message = str_of(name), .instance = {{1}}});
		asked_free(&asked);
	}
	ck_assert(flow_fixture_wait_settled(f, 200));
	flow_fixture_free(&f);
}
END_TEST

static Suite *inspect_suite(void)
{
	Suite *suite = suite_create("flow inspect");
	TCase *tcase = tcase_create("inspect");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, a_refused_one_names_the_instance_and_what_waits_behind_it,
		     one_behind_names_the_first_of_its_order, it_is_found_by_its_source_and_by_headers_before_it_is_decoded,
		     an_unmatched_one_tells_what_it_looked_for,
		     those_that_order_by_instance_are_all_found_for_it, a_place_stands_for_what_is_kept,
		     more_than_are_told_of_are_counted, asking_while_lanes_work);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(inspect_suite)
