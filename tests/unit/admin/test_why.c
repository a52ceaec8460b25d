/* SPDX-License-Identifier: Apache-2.0 */
/* Why something does not move: what the database knows, what an intake holds, and what an operator is told to do. */
#include "base/time.h"
#include "tests/unit/admin/client.h"

static const char *id_text(uint32_t n)
{
	return id_format(test_id(n), arena_alloc(&world.rig.arena, ID_TEXT_SIZE));
}

static struct reply why(const char *kind, const char *id, int status)
{
	return world_get(arena_printf(&world.rig.arena, "/admin/why/%s/%s", kind, id), status);
}

static void setup(void)
{
	world_setup();
	world_load();
	world.channels[0] = (struct admin_channel){.tenant = STR("acme"), .channel = STR("orders"), .state = "consuming",
						   .consuming = true, .lag = 0};
	world.channels[1] = (struct admin_channel){.tenant = STR("acme"), .channel = STR("paid"), .state = "missing",
						   .detail = "topic \"paid\" does not exist", .lag = -1};
	world.channel_count = 2;
}

/* A cause by its name; -1: there is none. */
static int64_t cause_at(const struct reply *reply, const char *name)
{
	for (uint32_t i = 0; i < json_count_at(&reply->json, "causes"); i++) {
		const char *path = arena_printf(&world.rig.arena, "causes.%u.cause", i);

		if (strcmp(json_text_at(&reply->json, path), name) == 0)
			return i;
	}
	return -1;
}

static const char *cause_member(const struct reply *reply, const char *name, const char *member)
{
	int64_t at = cause_at(reply, name);

	ck_assert_msg(at >= 0, "no cause %s in %.*s", name, STR_ARG(reply->body));
	return json_text_at(&reply->json, arena_printf(&world.rig.arena, "causes.%d.%s", (int)at, member));
}

static void check_cause(const struct reply *reply, const char *name, const char *scope, const char *word)
{
	const char *what = cause_member(reply, name, "what");

	ck_assert_str_eq(cause_member(reply, name, "scope"), scope);
	ck_assert_msg(strstr(what, word), "%s: %s", name, what);
	ck_assert_str_ne(cause_member(reply, name, "remedy"), "");
}

/* --- instances --- */

/* A suspended instance that waits at Wait for order = A-1. */
static struct str snapshot_of(struct id id)
{
	struct instance_wait_key key = {STR("order"), STR("A-1")};
	struct token token = {.id = 3, .node = STR("Wait"), .state = TOKEN_WAITING, .keys = &key, .key_count = 1};
	struct scope scope = {.id = 0};
	struct instance_alias alias = {STR("order"), STR("A-1"), true};
	struct instance inst = {.id = id, .tenant = STR("acme"), .deployment = str_of(world.entries[0].id),
				.process = STR("order"), .status = INSTANCE_SUSPENDED, .version = 1, .next_token = 4,
				.next_scope = 1, .tokens = &token, .token_count = 1, .scopes = &scope, .scope_count = 1,
				.aliases = &alias, .alias_count = 1, .reply.correlation = value_nil(),
				.failure_event = value_nil()};
	struct buf out = BUF_INIT;
	struct str bytes;

	snapshot_pack(&inst, &out);
	bytes = arena_str(&world.rig.arena, buf_str(&out));
	buf_done(&out);
	return bytes;
}

static void prepare(struct store_commit *commit, uint32_t n)
{
	rig_spawn(&world.rig, commit, "acme", test_id(n));
	commit->deployment = str_of(world.entries[0].id);
	commit->snapshot = snapshot_of(test_id(n));
}

static void spawn(uint32_t n)
{
	struct store_commit commit;

	prepare(&commit, n);
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
}

START_TEST(an_instance_that_waits)
{
	struct reply reply;

	spawn(1);
	reply = why("instance", id_text(1), 200);
	ck_assert_str_eq(json_text_at(&reply.json, "kind"), "instance");
	ck_assert_str_eq(json_text_at(&reply.json, "replica"), "boot-1");
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "SUSPENDED");
	ck_assert(json_bool_at(&reply.json, "loaded"));
	ck_assert_str_eq(json_text_at(&reply.json, "claim"), "null");
	ck_assert_str_eq(json_text_at(&reply.json, "waits.0.node"), "Wait");
	ck_assert_str_eq(json_text_at(&reply.json, "waits.0.keys.0.value"), "A-1");
	check_cause(&reply, "waits", "database", "order = A-1");
	ck_assert_int_eq(cause_at(&reply, "claimed"), -1);
	/* The intake was asked for it, and by its aliases. */
	ck_assert_uint_eq(world.questions, 1);
	ck_assert(id_equal(world.question.instance, test_id(1)));
	ck_assert_uint_eq(world.question.key_count, 2);
	why("instance", id_text(2), 404);
	why("instance", "x", 400);
}
END_TEST

START_TEST(an_instance_that_is_claimed)
{
	struct store_claim claim;
	struct reply reply;

	spawn(1);
	rig_claim(&world.rig, &claim, "acme", test_id(1), "other-1-abc-s0");
	ck_assert_int_eq(rig_run(&world.rig, &claim.base), STORE_OK);
	world.inspected[0] = (struct inspected){.state = INSPECTED_HELD, .source = STR("kafka:orders/3/17"),
						.event_id = STR("e-1"), .behind = 2, .answer = "refused",
						.code = CODE_RUNTIME_CLAIM_HELD, .text = STR("the claim is held"),
						.attempts = 7, .held_since_us = 1000000, .next_try_us = 2000000,
						.received_us = 1000000, .instance = test_id(1)};
	world.inspected_count = 1;
	reply = why("instance", id_text(1), 200);
	ck_assert_str_eq(json_text_at(&reply.json, "claim.owner"), "other-1-abc-s0");
	ck_assert_int_ge(json_int_at(&reply.json, "claim.freeInSeconds"), 30);
	ck_assert(!json_bool_at(&reply.json, "claim.ofThisReplica"));
	check_cause(&reply, "claimed", "database", "other-1-abc-s0");
	check_cause(&reply, "refused", "replica", "kafka:orders/3/17");
	ck_assert_ptr_nonnull(strstr(cause_member(&reply, "refused", "what"), "7 tries"));
	ck_assert_str_eq(cause_member(&reply, "refused", "code"), "SUTRA.RUNTIME.RESUME.CLAIM_HELD");
	ck_assert_int_eq(json_int_at(&reply.json, "deliveries.0.attempts"), 7);
	ck_assert_int_eq(json_int_at(&reply.json, "deliveries.0.behind"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "deliveries.0.channel"), "orders");
	ck_assert_str_eq(json_text_at(&reply.json, "deliveries.0.nextTryAt"), "1970-01-01T00:00:02Z");
	ck_assert_str_eq(json_text_at(&reply.json, "deliveries.0.instance"), id_text(1));
	ck_assert_int_eq(json_int_at(&reply.json, "deliveryCount"), 1);
}
END_TEST

START_TEST(an_instance_with_unsent_messages_and_kept_ones)
{
	struct store_commit commit;
	struct reply reply;
	struct id alias = store_alias_key(STR("acme"), STR("order"), STR("A-1"));

	prepare(&commit, 1);
	commit_send(&world.rig, &commit, "out", "first");
	commit_send(&world.rig, &commit, "out", "second");
	commit_send(&world.rig, &commit, "third", "third");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	prepare(&commit, 2);
	commit_send(&world.rig, &commit, "out", "not its own");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	rig_letter(&world.rig, &commit, "acme");
	commit_keep(&world.rig, &commit, test_id(71),
		    id_digest_of(STR("order"), STR("acme"), STR("orders"), id_str(&alias)), "of its alias");
	commit_keep(&world.rig, &commit, test_id(72), test_id(500), "held for it");
	commit_keep(&world.rig, &commit, test_id(73), test_id(501), "of another");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	world.inspected[0] = (struct inspected){.state = INSPECTED_HELD, .kept = 1, .order_key = test_id(500),
						.answer = "refused", .code = CODE_RUNTIME_CLAIM_HELD,
						.text = STR("the claim is held"), .instance = test_id(1)};
	world.inspected_count = 1;
	reply = why("instance", id_text(1), 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "outbox"), 3);
	ck_assert_int_eq(json_int_at(&reply.json, "outbox.0.ahead"), 0);
	ck_assert_int_eq(json_int_at(&reply.json, "outbox.1.ahead"), 1);
	ck_assert_int_eq(json_int_at(&reply.json, "outbox.2.ahead"), 0);
	check_cause(&reply, "unsent", "database", "2 messages to channel out");
	ck_assert_uint_eq(json_count_at(&reply.json, "kept"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.id"), id_text(71));
	ck_assert_str_eq(json_text_at(&reply.json, "kept.1.id"), id_text(72));
	check_cause(&reply, "kept", "database", "2 messages");
}
END_TEST

START_TEST(instances_that_are_beyond_it)
{
	struct store_commit commit;
	struct reply reply;

	prepare(&commit, 1);
	commit.status = INSTANCE_FAILED;
	commit.code = STR("SUTRA.EXPRESSION.FAILED");
	commit.detail = STR("no such field");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	prepare(&commit, 2);
	commit.status = INSTANCE_COMPLETED;
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	prepare(&commit, 3);
	commit.deployment = STR("dep-gone");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	prepare(&commit, 4);
	commit.snapshot = STR("rubbish");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	reply = why("instance", id_text(1), 200);
	check_cause(&reply, "failed", "database", "no such field");
	ck_assert_int_eq(cause_at(&reply, "waits"), -1);
	reply = why("instance", id_text(2), 200);
	check_cause(&reply, "ended", "database", "COMPLETED");
	reply = why("instance", id_text(3), 200);
	ck_assert(!json_bool_at(&reply.json, "loaded"));
	check_cause(&reply, "pin", "replica", "dep-gone");
	reply = why("instance", id_text(4), 200);
	check_cause(&reply, "snapshot", "database", "");
}
END_TEST

/* --- messages --- */

START_TEST(a_message_that_had_its_effect)
{
	struct store_commit commit;
	struct reply reply;
	int64_t at_us;

	prepare(&commit, 1);
	commit_inbox(&world.rig, &commit, "a/b c");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	reply = why("message", "acme/orders/a/b%20c", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "id"), "acme/orders/a/b c");
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "effect");
	ck_assert_str_eq(json_text_at(&reply.json, "effect.instance"), id_text(1));
	check_cause(&reply, "effect", "database", id_text(1));
	ck_assert(time_parse(str_of(json_text_at(&reply.json, "effect.at")), &at_us));
	ck_assert_str_slice(world.question.message, STR("a/b c"));
	/* Also when a repetition of it is about to be found a duplicate. */
	world.inspected[0] = (struct inspected){.state = INSPECTED_ON_LANE, .source = STR("kafka:orders/3/17")};
	world.inspected_count = 1;
	reply = why("message", "acme/orders/a/b%20c", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "effect");
	ck_assert_uint_eq(json_count_at(&reply.json, "causes"), 1);
	world.inspected_count = 0;
	reply = why("message", "acme/orders/a/b%20d", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "unknown");
	check_cause(&reply, "unknown", "replica", "");
}
END_TEST

START_TEST(a_message_that_an_intake_holds_is_looked_up_by_its_event_id)
{
	struct store_commit commit;
	struct reply reply;

	prepare(&commit, 1);
	commit_inbox(&world.rig, &commit, "e-1");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	world.inspected[0] = (struct inspected){.state = INSPECTED_HELD, .source = STR("kafka:orders/3/17"),
						.event_id = STR("e-1"), .code = CODE_DISPATCH_UNAVAILABLE,
						.text = STR("the database is away"), .answer = "unavailable"};
	world.inspected_count = 1;
	reply = why("message", "acme/orders/kafka:orders/3/17", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "effect");
	world.inspected[0].event_id = STR("e-2");
	reply = why("message", "acme/orders/kafka:orders/3/17", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "held");
	check_cause(&reply, "held", "replica", "the database is away");
}
END_TEST

START_TEST(a_message_that_nobody_waits_for)
{
	struct inspected_alias looked[] = {{STR("order"), STR("A-1")}, {STR("item"), STR("7")}};
	struct reply reply;

	world.inspected[0] = (struct inspected){.state = INSPECTED_HELD, .source = STR("amqp:orders/17"),
						.code = CODE_RUNTIME_CORRELATION_NOT_FOUND, .answer = "unmatched",
						.text = STR("no live wait matches yet"), .looked_for = looked,
						.looked_for_count = 2, .unmatched_until_us = 30000000};
	world.inspected[1] = (struct inspected){.state = INSPECTED_BEHIND, .source = STR("amqp:orders/18"), .ahead = 1,
						.ahead_source = STR("amqp:orders/17")};
	world.inspected_count = 2;
	reply = why("message", "acme/orders/m-1", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "held");
	ck_assert_str_eq(json_text_at(&reply.json, "deliveries.0.lookedFor.1.value"), "7");
	ck_assert_str_eq(json_text_at(&reply.json, "deliveries.0.unmatchedUntil"), "1970-01-01T00:00:30Z");
	check_cause(&reply, "unmatched", "replica", "order = A-1 or item = 7");
	check_cause(&reply, "behind", "replica", "amqp:orders/17");
}
END_TEST

START_TEST(a_kept_message_has_a_place_in_a_queue)
{
	struct store_commit commit;
	struct reply reply;

	for (uint32_t n = 1; n <= 3; n++) {
		rig_letter(&world.rig, &commit, "acme");
		commit.keeper = n == 2 ? STR("boot-2") : STR("boot-1");
		commit_keep(&world.rig, &commit, test_id(70 + n), test_id(500 + (n == 2)), "body");
		/* The rig's source is one for all. */
		((struct kept_row *)commit.kept_added)->source = str_of(arena_printf(&world.rig.arena, "kafka:orders/3/%u", n));
		ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	}
	reply = why("message", "acme/orders/kafka:orders/3/3", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "kept");
	ck_assert_str_eq(json_text_at(&reply.json, "kept.keeper"), "boot-1");
	ck_assert_int_eq(json_int_at(&reply.json, "kept.ahead"), 1);
	check_cause(&reply, "kept", "database", "1 of its key before it");
	/* Its keeper here was asked for the key. */
	ck_assert_uint_eq(world.questions, 2);
	ck_assert(id_equal(world.question.order_key, test_id(500)));
	/* By its identity, too; not by the beginning of its offset. */
	reply = why("message", "acme/orders/kafka:orders/3/2/1764534000000", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "kept.keeper"), "boot-2");
	reply = why("message", "acme/orders/kafka:orders/3/21", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "unknown");
}
END_TEST

START_TEST(a_dead_letter)
{
	struct store_commit commit;
	struct reply reply;

	rig_letter(&world.rig, &commit, "acme");
	commit_dead_letter(&world.rig, &commit,
			   id_digest_of(STR("dead-letter"), STR("acme"), STR("orders"), STR("long-id")), STR("line 1"));
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	static const char *const ids[] = {"acme/orders/long-id", "acme/orders/event-1", "acme/orders/kafka:orders/3/17"};

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		reply = why("message", ids[i], 200);
		ck_assert_str_eq(json_text_at(&reply.json, "state"), "dead-letter");
		ck_assert_str_eq(json_text_at(&reply.json, "deadLetter.code"), "SUTRA.PARSE.JSON.PARSE_ERROR");
		check_cause(&reply, "dead-letter", "database", "line 1");
	}
	reply = why("message", "acme/paid/event-1", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "state"), "unknown");
}
END_TEST

START_TEST(messages_that_nobody_can_know)
{
	struct reply reply = why("message", "acme/paid/e-1", 200);

	check_cause(&reply, "not-consuming", "replica", "does not exist");
	reply = why("message", "acme/nowhere/e-1", 200);
	check_cause(&reply, "not-consumed", "replica", "");
	why("message", "acme/orders", 400);
	why("message", "acme/orders/", 400);
	why("message", "/orders/e-1", 400);
	why("message", "acme//e-1", 400);
	why("message", "a%2Cb/orders/e-1", 400);
	why("message", "acme/orders/%FF", 400);
	world_get("/admin/why/message/", 404);
	world_get("/admin/why/nothing/1", 404);
	world.key = NULL;
	why("message", "acme/orders/e-1", 401);
}
END_TEST

/* --- channels --- */

START_TEST(channels)
{
	struct reply reply = why("channel", "acme/paid", 200);

	check_cause(&reply, "not-consuming", "replica", "does not exist");
	reply = why("channel", "acme/orders", 200);
	check_cause(&reply, "moving", "replica", "nothing of it is held");
	world.channels[0].held = 1;
	world.channels[0].at_bounds = true;
	snprintf(world.channels[0].detail, sizeof(world.channels[0].detail), "the window is full");
	world.inspected[0] = (struct inspected){.state = INSPECTED_HELD, .source = STR("kafka:orders/3/17"),
						.code = CODE_RUNTIME_KEPT_AHEAD, .answer = "refused", .attempts = 1};
	world.inspected_count = 1;
	reply = why("channel", "acme/orders", 200);
	check_cause(&reply, "bounds", "replica", "the window is full");
	check_cause(&reply, "kept-ahead", "replica", "1 try");
	ck_assert_int_eq(cause_at(&reply, "moving"), -1);
	why("channel", "acme/nowhere", 404);
	why("channel", "acme", 404);
}
END_TEST

static Suite *why_suite(void)
{
	Suite *suite = suite_create("admin why");
	TCase *tcase = tcase_create("why");

	tcase_add_checked_fixture(tcase, setup, world_teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, an_instance_that_waits, an_instance_that_is_claimed,
		     an_instance_with_unsent_messages_and_kept_ones, instances_that_are_beyond_it,
		     a_message_that_had_its_effect, a_message_that_an_intake_holds_is_looked_up_by_its_event_id,
		     a_message_that_nobody_waits_for, a_kept_message_has_a_place_in_a_queue, a_dead_letter,
		     messages_that_nobody_can_know, channels);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(why_suite)
