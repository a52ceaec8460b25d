/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator sees: deployments, instances, outbox, dead letters, lanes, leases, channels. */
#include <stdio.h>

#include "tests/unit/admin/client.h"
#include "value/header.h"

/* --- data --- */

static struct str kept(struct buf *buf)
{
	struct str bytes = arena_str(&world.rig.arena, buf_str(buf));

	buf_done(buf);
	return bytes;
}

/* A suspended instance of the loaded process, with one wait and three variables. */
static struct str snapshot_of(struct id id, const char *deployment)
{
	struct instance_wait_key key = {STR("order"), STR("A-1")};
	struct token tokens[] = {
		{.id = 3, .node = STR("Wait"), .state = TOKEN_WAITING, .keys = &key, .key_count = 1},
		{.id = 4, .node = STR("Sub"), .state = TOKEN_HOLDING},
	};
	struct scope_variable variables[] = {
		{STR("card"), value_text(STR("4111"))},
		{STR("total"), value_int(INT64_C(9007199254740993))},
		{STR("strange"), value_double(__builtin_nan(""))},
	};
	struct scope_variable inner[] = {{STR("card"), value_text(STR("4222"))},
					 {STR("#items"), value_text(STR("4333"))}};
	struct scope scopes[] = {{.id = 0, .variables = variables, .variable_count = 3},
				 {.id = 1,
				  .parent = 0,
				  .owner = 4,
				  .node = STR("Sub"),
				  .variables = inner,
				  .variable_count = 2}};
	struct instance_alias alias = {STR("order"), STR("A-1"), true};
	struct instance inst = {.id = id,
				.tenant = STR("acme"),
				.deployment = str_of(deployment),
				.process = STR("order"),
				.status = INSTANCE_SUSPENDED,
				.version = 1,
				.next_token = 5,
				.next_scope = 2,
				.tokens = tokens,
				.token_count = 2,
				.scopes = scopes,
				.scope_count = 2,
				.aliases = &alias,
				.alias_count = 1,
				.reply.correlation = value_nil(),
				.failure_event = value_nil()};
	struct buf out = BUF_INIT;

	snapshot_pack(&inst, &out);
	return kept(&out);
}

static void spawn_as(const char *tenant, uint32_t n, enum instance_status status, const char *alias)
{
	struct store_commit commit;

	rig_spawn(&world.rig, &commit, tenant, test_id(n));
	commit.deployment = str_of(world.entries[0].id);
	commit.status = status;
	commit.snapshot = snapshot_of(test_id(n), world.entries[0].id);
	if (status == INSTANCE_FAILED) {
		commit.code = STR("SUTRA.EXPRESSION.FAILED");
		commit.detail = STR("no such field");
	}
	if (alias)
		commit_alias(&world.rig, &commit, alias, false);
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
}

static const char *id_text(uint32_t n)
{
	return id_format(test_id(n), arena_alloc(&world.rig.arena, ID_TEXT_SIZE));
}

static struct reply get_with(const char *path, const char *parameter, int status)
{
	return world_get(arena_printf(&world.rig.arena, "%s%s", path, parameter), status);
}

static void setup(void)
{
	world_setup();
	world_load();
}

/* --- deployments --- */

START_TEST(deployments)
{
	struct reply reply = world_get("/admin/deployments", 200);

	ck_assert_uint_eq(json_count_at(&reply.json, "deployments"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.id"), world.entries[0].id);
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.tenant"), "acme");
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.module"), "test");
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.version"), "1");
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.phase"), "Active");
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.path"), "/packages/order");
	ck_assert(json_bool_at(&reply.json, "deployments.0.loaded"));
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.1.id"), "null");
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.1.phase"), "Failed");
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.1.reasons"),
			 "package.conf:1: broken\n");
	ck_assert_str_eq(json_text_at(&reply.json, "next"), "null");
	/* To everybody: neither paths nor reasons. */
	world.key = NULL;
	reply = world_get("/sutra/deployments", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "deployments"), 2);
	ck_assert_ptr_null(strstr(reply.body.ptr, "packages"));
	ck_assert_ptr_null(strstr(reply.body.ptr, "broken"));
}
END_TEST

START_TEST(deployments_in_pages)
{
	struct reply reply;

	world_put_deployment("dep-b", "other", "m", "Retired");
	world_put_deployment("dep-a", "other", "m", "Draining");
	reply = world_get("/sutra/deployments?limit=2", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "deployments"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.id"), world.entries[0].id);
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.1.id"), "dep-a");
	ck_assert(!json_bool_at(&reply.json, "deployments.1.loaded"));
	ck_assert_str_eq(json_text_at(&reply.json, "next"), "dep-a");
	reply = world_get("/sutra/deployments?limit=2&cursor=dep-a", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "deployments.0.id"), "dep-b");
	ck_assert_str_eq(json_text_at(&reply.json, "next"), "null");
}
END_TEST

START_TEST(one_deployment)
{
	struct reply reply = get_with("/sutra/deployments/", world.entries[0].id, 200);

	ck_assert_str_eq(json_text_at(&reply.json, "phase"), "Active");
	ck_assert(json_bool_at(&reply.json, "pinned"));
	reply = get_with("/admin/deployments/", world.entries[0].id, 200);
	ck_assert_str_eq(json_text_at(&reply.json, "path"), "/packages/order");
}
END_TEST

/* --- instances --- */

START_TEST(instances)
{
	struct store_claim claim;
	struct reply reply;

	spawn_as("acme", 1, INSTANCE_SUSPENDED, NULL);
	spawn_as("acme", 2, INSTANCE_COMPLETED, NULL);
	spawn_as("acme", 3, INSTANCE_FAILED, NULL);
	rig_claim(&world.rig, &claim, "acme", test_id(1), "host-1-abc-s0");
	ck_assert_int_eq(rig_run(&world.rig, &claim.base), STORE_OK);
	reply = world_get("/admin/instances", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "instances.0.id"), id_text(1));
	ck_assert_str_eq(json_text_at(&reply.json, "instances.0.status"), "SUSPENDED");
	ck_assert_str_eq(json_text_at(&reply.json, "instances.0.startedAt"),
			 "1970-01-01T00:00:01Z");
	ck_assert_str_eq(json_text_at(&reply.json, "instances.0.endedAt"), "null");
	ck_assert_int_eq(json_int_at(&reply.json, "instances.0.version"), 1);
	ck_assert_str_eq(json_text_at(&reply.json, "instances.0.claim.owner"), "host-1-abc-s0");
	ck_assert_str_eq(json_text_at(&reply.json, "instances.1.code"), "SUTRA.EXPRESSION.FAILED");
	ck_assert_str_eq(json_text_at(&reply.json, "instances.1.claim"), "null");
	ck_assert_str_eq(json_text_at(&reply.json, "next"), "null");
	reply = world_get("/admin/instances?includeTerminal=true", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 3);
	reply = world_get("/admin/instances?includeTerminal=false", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 2);
	reply = world_get("/admin/instances?status=COMPLETED", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 1);
	ck_assert_str_eq(json_text_at(&reply.json, "instances.0.id"), id_text(2));
	reply = get_with("/admin/instances?deployment=", world.entries[0].id, 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 2);
	reply = world_get("/admin/instances?deployment=dep-other", 200);
	ck_assert_str_slice(reply.body, STR("{\"instances\":[],\"next\":null}"));
}
END_TEST

START_TEST(instances_of_all_tenants)
{
	struct reply reply;

	spawn_as("acme", 1, INSTANCE_SUSPENDED, NULL);
	spawn_as("beta", 2, INSTANCE_SUSPENDED, NULL);
	spawn_as("nobody", 3, INSTANCE_SUSPENDED, NULL);
	reply = world_get("/admin/instances", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 1);
	world_put_deployment("dep-beta", "beta", "m", "Retired");
	reply = world_get("/admin/instances", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 2);
	/* A tenant without any deployment is none of the engine's. */
	get_with("/admin/instances/", id_text(2), 200);
	get_with("/admin/instances/", id_text(3), 404);
}
END_TEST

START_TEST(instances_in_pages)
{
	const char *cursor = "";
	uint32_t seen = 0, pages = 0;

	for (uint32_t n = 1; n <= 7; n++)
		spawn_as("acme", n, INSTANCE_SUSPENDED, NULL);
	do {
		struct reply reply = get_with("/admin/instances?limit=3", cursor, 200);
		uint32_t count = json_count_at(&reply.json, "instances");

		for (uint32_t i = 0; i < count; i++)
			ck_assert_str_eq(
				json_text_at(&reply.json,
					     arena_printf(&world.rig.arena, "instances.%u.id", i)),
				id_text(++seen));
		cursor = json_text_at(&reply.json, "next");
		pages++;
		if (strcmp(cursor, "null") == 0)
			break;
		cursor = arena_printf(&world.rig.arena, "&cursor=%s", cursor);
	} while (pages < 10);
	ck_assert_uint_eq(seen, 7);
	ck_assert_uint_eq(pages, 3);
}
END_TEST

START_TEST(instances_by_alias)
{
	struct reply reply;

	for (uint32_t n = 1; n <= 4; n++)
		spawn_as("acme", n, INSTANCE_SUSPENDED, "A:1");
	spawn_as("acme", 5, INSTANCE_SUSPENDED, "A-2");
	spawn_as("beta", 6, INSTANCE_FAILED, "A:1");
	world_put_deployment("dep-beta", "beta", "m", "Active");
	reply = world_get("/admin/instances?alias=order:A:1&limit=2", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "instances.1.id"), id_text(2));
	ck_assert_str_eq(json_text_at(&reply.json, "next"), id_text(2));
	reply = get_with("/admin/instances?alias=order%3AA%3A1&cursor=", id_text(2), 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 3);
	ck_assert_str_eq(json_text_at(&reply.json, "instances.2.tenant"), "beta");
	ck_assert_str_eq(json_text_at(&reply.json, "next"), "null");
	reply = world_get("/admin/instances?alias=order:A:1&status=FAILED", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "instances"), 1);
	reply = world_get("/admin/instances?alias=order:nobody", 200);
	ck_assert_str_slice(reply.body, STR("{\"instances\":[],\"next\":null}"));
}
END_TEST

START_TEST(one_instance)
{
	struct reply reply;

	spawn_as("acme", 1, INSTANCE_SUSPENDED, NULL);
	reply = get_with("/admin/instances/", id_text(1), 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "SUSPENDED");
	ck_assert_int_eq(json_int_at(&reply.json, "tokens.0.id"), 3);
	ck_assert_str_eq(json_text_at(&reply.json, "tokens.0.node"), "Wait");
	ck_assert_str_eq(json_text_at(&reply.json, "tokens.0.state"), "WAITING");
	ck_assert_str_eq(json_text_at(&reply.json, "tokens.0.waits.0.name"), "order");
	ck_assert_str_eq(json_text_at(&reply.json, "tokens.0.waits.0.value"), "A-1");
	ck_assert_str_eq(json_text_at(&reply.json, "aliases.0.value"), "A-1");
	ck_assert(json_bool_at(&reply.json, "aliases.0.unique"));
	/* Exact, masked, and what JSON cannot say. */
	ck_assert_int_eq(json_int_at(&reply.json, "variables.total"), INT64_C(9007199254740993));
	ck_assert_str_eq(json_text_at(&reply.json, "variables.card"), "***");
	ck_assert_str_ne(json_text_at(&reply.json, "variables.strange"), "");
	ck_assert_str_eq(json_text_at(&reply.json, "scopes.0.node"), "Sub");
	ck_assert_str_eq(json_text_at(&reply.json, "scopes.0.variables.card"), "***");
	ck_assert(json_bool_at(&reply.json, "modelLoaded"));
	ck_assert_ptr_null(strstr(reply.body.ptr, "4111"));
	ck_assert_ptr_null(strstr(reply.body.ptr, "4222"));
	/* What is the engine's own may be made of it. */
	ck_assert_ptr_null(strstr(reply.body.ptr, "4333"));
}
END_TEST

START_TEST(without_the_model_everything_is_masked)
{
	struct store_commit commit;
	struct reply reply;

	rig_spawn(&world.rig, &commit, "acme", test_id(1));
	commit.snapshot = snapshot_of(test_id(1), "dep-gone");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	reply = get_with("/admin/instances/", id_text(1), 200);
	ck_assert(!json_bool_at(&reply.json, "modelLoaded"));
	ck_assert_str_eq(json_text_at(&reply.json, "variables.total"), "***");
	ck_assert_str_eq(json_text_at(&reply.json, "variables.card"), "***");
}
END_TEST

START_TEST(a_snapshot_that_cannot_be_read)
{
	struct store_commit commit;
	struct reply reply;

	rig_spawn(&world.rig, &commit, "acme", test_id(1));
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	reply = get_with("/admin/instances/", id_text(1), 200);
	ck_assert_str_ne(json_text_at(&reply.json, "snapshotError"), "");
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "SUSPENDED");
}
END_TEST

/* --- outbox --- */

START_TEST(outbox)
{
	const char *cursor = "";
	uint32_t seen = 0, pages = 0;
	struct reply reply;

	for (uint32_t n = 1; n <= 3; n++) {
		struct store_commit commit;

		rig_spawn(&world.rig, &commit, "acme", test_id(n));
		commit_send(&world.rig, &commit, "out", "first");
		commit_send(&world.rig, &commit, "reply:in", "second");
		ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	}
	reply = world_get("/admin/outbox", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "outbox"), 6);
	ck_assert_str_eq(json_text_at(&reply.json, "outbox.0.instance"), id_text(1));
	ck_assert_str_eq(json_text_at(&reply.json, "outbox.0.channel"), "out");
	ck_assert_str_eq(json_text_at(&reply.json, "outbox.0.state"), "waiting");
	ck_assert_int_eq(json_int_at(&reply.json, "outbox.0.attempts"), 0);
	ck_assert_str_eq(json_text_at(&reply.json, "outbox.0.diagnostic"), "null");
	ck_assert_str_eq(json_text_at(&reply.json, "outbox.1.channel"), "reply:in");
	do {
		reply = get_with("/admin/outbox?limit=1", cursor, 200);
		seen += json_count_at(&reply.json, "outbox");
		cursor = json_text_at(&reply.json, "next");
		pages++;
		if (strcmp(cursor, "null") == 0)
			break;
		cursor = arena_printf(&world.rig.arena, "&cursor=%s", cursor);
	} while (pages < 20);
	ck_assert_uint_eq(seen, 6);
	ck_assert_uint_eq(pages, 6);
}
END_TEST

/* --- dead letters --- */

static struct str packed_headers(void)
{
	struct header items[] = {{STR("traceparent"), value_text(STR("00-ab"))},
				 {STR("raw"), value_bytes(STR("\xff"))}};
	struct header_list headers = {items, 2};
	struct buf out = BUF_INIT;

	headers_pack(&headers, &out);
	return kept(&out);
}

static void put_letter(uint32_t n, struct str payload)
{
	struct dead_letter_row letter = {.id = test_id(n),
					 .channel = STR("orders"),
					 .event_id = STR("e-1"),
					 .source = STR("kafka:orders/3/17"),
					 .message_type = STR("order.placed"),
					 .code = CODE_PARSE_JSON,
					 .detail = STR("line 1"),
					 .record_key = STR("k"),
					 .headers = packed_headers(),
					 .content_type = STR("application/json"),
					 .payload = payload};
	struct store_commit commit;

	rig_letter(&world.rig, &commit, "acme");
	commit.dead_letters = &letter;
	commit.dead_letter_count = 1;
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
}

START_TEST(dead_letters)
{
	struct reply reply;

	for (uint32_t n = 1; n <= 3; n++)
		put_letter(n, STR("{"));
	reply = world_get("/admin/dead-letters?limit=2", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "deadLetters"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "deadLetters.0.id"), id_text(1));
	ck_assert_str_eq(json_text_at(&reply.json, "deadLetters.0.code"),
			 "SUTRA.PARSE.JSON.PARSE_ERROR");
	ck_assert_str_eq(json_text_at(&reply.json, "deadLetters.0.source"), "kafka:orders/3/17");
	ck_assert_str_eq(json_text_at(&reply.json, "deadLetters.0.instance"), "null");
	ck_assert_str_eq(json_text_at(&reply.json, "next"), id_text(2));
	reply = get_with("/admin/dead-letters?cursor=", id_text(2), 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "deadLetters"), 1);
	ck_assert_str_eq(json_text_at(&reply.json, "next"), "null");
}
END_TEST

START_TEST(one_dead_letter)
{
	struct reply reply;

	put_letter(1, STR("{\"a\":\"\u00e9\""));
	reply = get_with("/admin/dead-letters/", id_text(1), 200);
	ck_assert_str_eq(json_text_at(&reply.json, "payload"), "{\"a\":\"\u00e9\"");
	ck_assert_str_eq(json_text_at(&reply.json, "payloadBase64"), "eyJhIjoiw6ki");
	ck_assert_str_eq(json_text_at(&reply.json, "recordKey"), "k");
	ck_assert_str_eq(json_text_at(&reply.json, "headers.0.name"), "traceparent");
	ck_assert_str_eq(json_text_at(&reply.json, "headers.0.value"), "00-ab");
	ck_assert_str_eq(json_text_at(&reply.json, "headers.1.value"), "/w==");
	ck_assert_str_eq(json_text_at(&reply.json, "eventId"), "e-1");
	/* Bytes that are no text, none at all, and an empty payload. */
	put_letter(2, STR("\xff\x00\xfe"));
	reply = get_with("/admin/dead-letters/", id_text(2), 200);
	ck_assert_str_eq(json_text_at(&reply.json, "payload"), "null");
	ck_assert_str_eq(json_text_at(&reply.json, "payloadBase64"), "/wD+");
	put_letter(3, STR_NONE);
	reply = get_with("/admin/dead-letters/", id_text(3), 200);
	ck_assert_str_eq(json_text_at(&reply.json, "payloadBase64"), "null");
	put_letter(4, STR(""));
	reply = get_with("/admin/dead-letters/", id_text(4), 200);
	ck_assert_str_eq(json_text_at(&reply.json, "payloadBase64"), "");
}
END_TEST

/* --- kept messages --- */

static void keep_message(const char *tenant, uint32_t n)
{
	struct store_commit commit;

	rig_letter(&world.rig, &commit, tenant);
	commit_keep(&world.rig, &commit, test_id(n), test_id(500), "body");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
}

START_TEST(kept_messages)
{
	struct reply reply;

	world_put_deployment("dep-beta", "beta", "m", "Active");
	for (uint32_t n = 1; n <= 3; n++)
		keep_message("acme", n);
	keep_message("beta", 4);
	keep_message("nobody", 5);
	reply = world_get("/admin/kept?limit=2", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "kept"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.id"), id_text(1));
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.channel"), "orders");
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.keeper"), "boot-1");
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.source"), "amqp:orders/7");
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.orderKey"), id_text(500));
	ck_assert_int_eq(json_int_at(&reply.json, "kept.0.bytes"), 4);
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.unmatchedSince"), "null");
	ck_assert_str_eq(json_text_at(&reply.json, "next"), id_text(2));
	reply = get_with("/admin/kept?cursor=", id_text(2), 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "kept"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "kept.1.tenant"), "beta");
	ck_assert_str_eq(json_text_at(&reply.json, "next"), "null");
	reply = world_get("/admin/kept?tenant=beta&channel=orders", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "kept"), 1);
	reply = world_get("/admin/kept?channel=paid", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "kept"), 0);
	world_get("/admin/kept?channel=%FF", 400);
	world_get("/admin/kept?cursor=x", 400);
}
END_TEST

/* --- the replica's own --- */

START_TEST(lanes)
{
	struct reply reply;

	world.lanes->lanes[1].stats.dispatches = 12;
	reply = world_get("/admin/lanes", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "lanes"), 4);
	ck_assert_int_eq(json_int_at(&reply.json, "lanes.1.lane"), 1);
	ck_assert_int_eq(json_int_at(&reply.json, "lanes.1.dispatches"), 12);
	ck_assert(json_bool_at(&reply.json, "lanes.1.alive"));
	ck_assert_str_eq(json_text_at(&reply.json, "lanes.1.owner"), "host-1-abc-s1");
}
END_TEST

START_TEST(leases)
{
	struct reply reply;

	rig_query(&world.rig, ",", true, STATEMENT_LEASE_ACQUIRE, "a-role", "boot-1",
		  (int64_t)30000);
	rig_query(&world.rig, ",", true, STATEMENT_LEASE_ACQUIRE, "b-role", "boot-2",
		  (int64_t)30000);
	reply = world_get("/admin/leases", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "leases"), 2);
	ck_assert_str_eq(json_text_at(&reply.json, "leases.0.role"), "a-role");
	ck_assert(json_bool_at(&reply.json, "leases.0.self"));
	ck_assert_int_eq(json_int_at(&reply.json, "leases.0.term"), 1);
	ck_assert_str_eq(json_text_at(&reply.json, "leases.1.holder"), "boot-2");
	ck_assert(!json_bool_at(&reply.json, "leases.1.self"));
}
END_TEST

START_TEST(channels)
{
	struct reply reply;

	world.channels[0] = (struct admin_channel){.tenant = STR("acme"),
						   .channel = STR("orders"),
						   .transport = STR("kafka"),
						   .bind = STR("in"),
						   .state = "consuming",
						   .consuming = true,
						   .committed = 5,
						   .requeued = 2,
						   .persisted = 3,
						   .held = 1,
						   .kept = 4,
						   .oldest_held_seconds = 0.25,
						   .lag = -1};
	world.channel_count = 1;
	reply = world_get("/admin/channels", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "channels.0.channel"), "orders");
	ck_assert_int_eq(json_int_at(&reply.json, "channels.0.deliveries.committed"), 5);
	ck_assert_int_eq(json_int_at(&reply.json, "channels.0.deliveries.requeued"), 2);
	ck_assert_int_eq(json_int_at(&reply.json, "channels.0.deliveries.persisted"), 3);
	ck_assert_int_eq(json_int_at(&reply.json, "channels.0.held"), 1);
	ck_assert_int_eq(json_int_at(&reply.json, "channels.0.kept"), 4);
	ck_assert_str_eq(json_text_at(&reply.json, "channels.0.lag"), "null");
	ck_assert_double_eq(json_at(&reply.json, "channels.0.oldestHeldSeconds")->via.f64, 0.25);
}
END_TEST

static Suite *lists_suite(void)
{
	Suite *suite = suite_create("admin lists");
	TCase *tcase = tcase_create("lists");

	tcase_add_checked_fixture(tcase, setup, world_teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, deployments, deployments_in_pages, one_deployment, instances,
		     instances_of_all_tenants, instances_in_pages, instances_by_alias, one_instance,
		     without_the_model_everything_is_masked, a_snapshot_that_cannot_be_read, outbox,
		     dead_letters, one_dead_letter, kept_messages, lanes, leases, channels);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(lists_suite)
