/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator tells an instance: cancel, restore, complete; and every way in which that is refused. */
#include <stdio.h>

#include "tests/unit/admin/client.h"

#define WAITS "Approve"

/* --- data: instances that wait at the user task, or FAILED there --- */

static struct instance_wait_key key_of(const char *value)
{
	return (struct instance_wait_key){STR("order"), str_of(value)};
}

static struct str snapshot_of(uint32_t n, enum instance_status status, const char *value)
{
	struct instance_wait_key key = key_of(value);
	struct token token = {.id = 1, .node = STR(WAITS), .state = TOKEN_WAITING, .keys = &key, .key_count = 1};
	struct scope scope = {.id = 0};
	struct instance_alias alias = {STR("order"), str_of(value), true};
	struct instance inst = {.id = test_id(n),
				.tenant = STR("acme"),
				.deployment = str_of(world.entries[0].id),
				.process = STR("approval"),
				.status = status,
				.version = 1,
				.next_token = 2,
				.next_scope = 1,
				.tokens = &token,
				.token_count = 1,
				.scopes = &scope,
				.scope_count = 1,
				.aliases = &alias,
				.alias_count = 1,
				.reply.correlation = value_nil(),
				.failure_code = STR("SUTRA.EXPRESSION.FAILED"),
				.failure_detail = STR("no such field"),
				.failure_node = STR("Work"),
				.failure_event = value_nil()};
	struct buf out = BUF_INIT;
	struct str bytes;

	snapshot_pack(&inst, &out);
	bytes = arena_str(&world.rig.arena, buf_str(&out));
	buf_done(&out);
	return bytes;
}

static struct store_wait_row wait_row(const char *value)
{
	return (struct store_wait_row){
		.key = store_wait_key(STR("acme"), STR("approvals"), STR("order"), str_of(value)),
		.token = 1,
		.unique = true,
		.node = STR(WAITS),
		.channel = STR("approvals"),
	};
}

static void spawn(uint32_t n, enum instance_status status, const char *value)
{
	struct store_wait_row wait = wait_row(value);
	struct store_commit commit;

	rig_spawn(&world.rig, &commit, "acme", test_id(n));
	commit.deployment = str_of(world.entries[0].id);
	commit.process = STR("approval");
	commit.status = status;
	commit.snapshot = snapshot_of(n, status, value);
	commit_alias(&world.rig, &commit, arena_printf(&world.rig.arena, "%s-%u", value, n), true);
	if (status == INSTANCE_SUSPENDED) {
		commit.waits_added = &wait;
		commit.waits_added_count = 1;
	} else {
		commit.code = STR("SUTRA.EXPRESSION.FAILED");
		commit.detail = STR("no such field");
	}
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
}

static const char *path_of(uint32_t n, const char *action)
{
	char id[ID_TEXT_SIZE];

	return arena_printf(&world.rig.arena, "/admin/instances/%s/%s", id_format(test_id(n), id), action);
}

static struct reply instance_of(uint32_t n)
{
	char id[ID_TEXT_SIZE];

	return world_get(arena_printf(&world.rig.arena, "/admin/instances/%s", id_format(test_id(n), id)), 200);
}

static uint32_t count_waits(const char *value)
{
	return rig_query(&world.rig, ",acme,", false, STATEMENT_WAIT_PROBE, (int64_t)0, "acme", wait_row(value).key)->row_count;
}

static void claim_as(uint32_t n, const char *owner)
{
	struct store_claim claim;

	rig_claim(&world.rig, &claim, "acme", test_id(n), owner);
	ck_assert_int_eq(rig_run(&world.rig, &claim.base), STORE_OK);
}

/* A problem of this status and code. */
static struct reply refused(const char *path, const char *body, int status, const char *code)
{
	struct reply reply = world_post(path, body, status);

	ck_assert_str_eq(json_text_at(&reply.json, "code"), code);
	ck_assert_int_eq(json_int_at(&reply.json, "status"), status);
	return reply;
}

static void setup(void)
{
	struct error err = ERROR_INIT;

	world_setup();
	world_load();
	ck_assert_int_eq(lane_set_flip(world.lanes, world.view, &err), RESULT_OK);
}

/* --- cancel --- */

START_TEST(cancel_takes_everything_along)
{
	struct reply reply;

	spawn(1, INSTANCE_SUSPENDED, "A-1");
	ck_assert_uint_eq(count_waits("A-1"), 1);
	reply = world_post(path_of(1, "cancel"), NULL, 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "TERMINATED");
	ck_assert_str_eq(json_text_at(&reply.json, "process"), "approval");
	ck_assert_str_eq(json_text_at(&reply.json, "code"), "null");
	ck_assert_uint_eq(count_waits("A-1"), 0);
	reply = instance_of(1);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "TERMINATED");
	ck_assert_str_eq(json_text_at(&reply.json, "claim"), "null");
	ck_assert_uint_eq(json_count_at(&reply.json, "aliases"), 0);
	ck_assert_int_eq(json_int_at(&reply.json, "version"), 2);
	reply = refused(path_of(1, "cancel"), NULL, 409, "SUTRA.ADMIN.CANCEL.NOT_LIVE");
	ck_assert_str_eq(json_text_at(&reply.json, "attributes.status"), "TERMINATED");
	ck_assert_str_eq(json_text_at(&reply.json, "type"), "urn:bpm:diag:SUTRA.ADMIN.CANCEL.NOT_LIVE");
}
END_TEST

START_TEST(a_failed_one_can_be_cancelled)
{
	struct reply reply;

	spawn(1, INSTANCE_FAILED, "A-1");
	reply = world_post(path_of(1, "cancel"), NULL, 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "TERMINATED");
	refused(path_of(1, "restore"), NULL, 409, "SUTRA.ADMIN.RESTORE.NOT_FAILED");
}
END_TEST

START_TEST(whoever_has_the_claim_is_named)
{
	struct reply reply;

	spawn(1, INSTANCE_SUSPENDED, "A-1");
	spawn(2, INSTANCE_FAILED, "A-2");
	claim_as(1, "other-1-abc-s0");
	claim_as(2, "other-1-abc-s0");
	reply = refused(path_of(1, "cancel"), NULL, 409, "SUTRA.ADMIN.CANCEL.CLAIM_HELD");
	ck_assert_str_eq(json_text_at(&reply.json, "attributes.owner"), "other-1-abc-s0");
	refused(path_of(1, "waits/" WAITS "/complete"), "{}", 409, "SUTRA.ADMIN.COMPLETE.CLAIM_HELD");
	refused(path_of(2, "restore"), NULL, 409, "SUTRA.ADMIN.RESTORE.CLAIM_HELD");
	ck_assert_uint_eq(count_waits("A-1"), 1);
	reply = instance_of(1);
	ck_assert_int_eq(json_int_at(&reply.json, "version"), 1);
	ck_assert_str_eq(json_text_at(&reply.json, "claim.owner"), "other-1-abc-s0");
}
END_TEST

/* A lane's own claim is another owner's to an operator: a command never goes in beside a resume. */
START_TEST(the_claim_of_the_lane_itself_is_in_the_way)
{
	spawn(1, INSTANCE_SUSPENDED, "A-1");
	claim_as(1, world.lanes->lanes[lane_set_lane_of_instance(world.lanes, test_id(1))].owner);
	refused(path_of(1, "cancel"), NULL, 409, "SUTRA.ADMIN.CANCEL.CLAIM_HELD");
}
END_TEST

/* --- restore --- */

START_TEST(restore_waits_again)
{
	struct reply reply;

	spawn(1, INSTANCE_FAILED, "A-1");
	ck_assert_uint_eq(count_waits("A-1"), 0);
	refused(path_of(1, "waits/" WAITS "/complete"), "{}", 409, "SUTRA.ADMIN.COMPLETE.NOT_WAITING");
	reply = world_post(path_of(1, "restore"), NULL, 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "SUSPENDED");
	ck_assert_uint_eq(count_waits("A-1"), 1);
	reply = instance_of(1);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "SUSPENDED");
	ck_assert_str_eq(json_text_at(&reply.json, "code"), "null");
	refused(path_of(1, "restore"), NULL, 409, "SUTRA.ADMIN.RESTORE.NOT_FAILED");
}
END_TEST

/* Somebody else waits for the same by now. The reason why it FAILED is still to be read. */
START_TEST(restore_that_clashes_changes_nothing)
{
	struct reply reply;

	spawn(1, INSTANCE_FAILED, "A-1");
	spawn(2, INSTANCE_SUSPENDED, "A-1");
	refused(path_of(1, "restore"), NULL, 409, "SUTRA.RUNTIME.WAIT.NOT_UNIQUE");
	reply = instance_of(1);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "FAILED");
	ck_assert_str_eq(json_text_at(&reply.json, "code"), "SUTRA.EXPRESSION.FAILED");
	ck_assert_str_eq(json_text_at(&reply.json, "claim"), "null");
	ck_assert_int_eq(json_int_at(&reply.json, "version"), 1);
	world_post(path_of(2, "cancel"), NULL, 200);
	reply = world_post(path_of(1, "restore"), NULL, 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "SUSPENDED");
}
END_TEST

START_TEST(what_is_not_loaded_is_not_restored)
{
	struct store_commit commit;
	struct reply reply;

	rig_spawn(&world.rig, &commit, "acme", test_id(1));
	commit.deployment = STR("dep-gone");
	commit.status = INSTANCE_FAILED;
	commit.snapshot = snapshot_of(1, INSTANCE_FAILED, "A-1");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	reply = refused(path_of(1, "restore"), NULL, 409, "SUTRA.RUNTIME.PIN.UNKNOWN");
	ck_assert_str_eq(json_text_at(&reply.json, "attributes.deployment"), "dep-gone");
	reply = instance_of(1);
	ck_assert_str_eq(json_text_at(&reply.json, "claim"), "null");
}
END_TEST

START_TEST(a_snapshot_that_cannot_be_read_is_not_restored)
{
	struct store_commit commit;

	rig_spawn(&world.rig, &commit, "acme", test_id(1));
	commit.deployment = str_of(world.entries[0].id);
	commit.status = INSTANCE_FAILED;
	commit.snapshot = STR("\xc1");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	refused(path_of(1, "restore"), NULL, 422, "SUTRA.RUNTIME.SNAPSHOT.INVALID");
}
END_TEST

/* --- complete --- */

START_TEST(complete_goes_on_with_the_payload)
{
	struct reply reply;

	spawn(1, INSTANCE_SUSPENDED, "A-1");
	reply = world_post(path_of(1, "waits/" WAITS "/complete"), "{\"total\":42}", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "SUSPENDED");
	reply = instance_of(1);
	ck_assert_str_eq(json_text_at(&reply.json, "tokens.0.node"), "Later");
	ck_assert_int_eq(json_int_at(&reply.json, "variables.total"), 42);
	refused(path_of(1, "waits/" WAITS "/complete"), "{}", 409, "SUTRA.ADMIN.COMPLETE.NOT_WAITING");
	/* A wait for a message is none that an operator completes. */
	refused(path_of(1, "waits/Later/complete"), "{}", 409, "SUTRA.ADMIN.COMPLETE.NOT_WAITING");
}
END_TEST

START_TEST(complete_may_end_in_failure)
{
	struct reply reply;

	spawn(1, INSTANCE_SUSPENDED, "A-1");
	reply = world_post(path_of(1, "waits/" WAITS "/complete"), "{\"total\":\"no number\"}", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "FAILED");
	ck_assert_str_eq(json_text_at(&reply.json, "code"), "SUTRA.EXPRESSION.FAILED");
	ck_assert_str_ne(json_text_at(&reply.json, "detail"), "null");
	/* It stands where it stood, so the restore waits for the task again. */
	world_post(path_of(1, "restore"), NULL, 200);
	reply = world_post(path_of(1, "waits/" WAITS "/complete"), "{\"total\":1}", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "SUSPENDED");
}
END_TEST

START_TEST(bodies)
{
	struct buf large = BUF_INIT;
	struct reply reply;
	const char *path;

	spawn(1, INSTANCE_SUSPENDED, "A-1");
	path = path_of(1, "waits/" WAITS "/complete");
	refused(path, "{\"total\":", 400, "SUTRA.PARSE.JSON.PARSE_ERROR");
	refused(path, "{\"a\":1,\"a\":2}", 400, "SUTRA.PARSE.DUPLICATE_KEY");
	for (uint32_t i = 0; i < 1000; i++)
		buf_add_byte(&large, '[');
	buf_add_byte(&large, '\0');
	refused(path, large.data, 400, "SUTRA.PARSE.LIMIT");
	world.lanes->settings.decode.limits.max_bytes = 1000;
	refused(path, large.data, 400, "SUTRA.PARSE.LIMIT");
	large.data[large.len - 1] = '[';
	buf_add_byte(&large, '\0');
	refused(path, large.data, 413, "SUTRA.INBOUND.PAYLOAD_TOO_LARGE");
	buf_done(&large);
	/* Whoever has no key is told so, however much he sends. */
	world.key = "wrong";
	refused(path, "{}", 401, "SUTRA.ADMIN.AUTH_MISSING");
	world.key = ADMIN_KEY;
	reply = instance_of(1);
	ck_assert_int_eq(json_int_at(&reply.json, "version"), 1);
	world_post(path, "{\"total\":7}", 200);
}
END_TEST

/* --- the outbox --- */

static const char *outbox_path(uint32_t n)
{
	char id[ID_TEXT_SIZE];

	return arena_printf(&world.rig.arena, "/admin/outbox/%s/retry", id_format(outbox_row_id(test_id(n), 1, 0), id));
}

static void given_row(uint32_t n, bool poisoned)
{
	struct store_commit commit;

	rig_spawn(&world.rig, &commit, "acme", test_id(n));
	commit_send(&world.rig, &commit, "out", "{}");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	rig_query(&world.rig, NULL, true, STATEMENT_OUTBOX_SCAN, "boot-2", INT64_C(10));
	if (poisoned)
		rig_query(&world.rig, ",acme,", true, STATEMENT_OUTBOX_FAIL, "acme", test_id(n), "out", INT64_C(1), INT64_C(0),
			  INT64_C(3), INT64_C(0), "{}", 1, 0, "boot-2");
}

START_TEST(an_outbox_row_is_armed_again)
{
	struct reply reply;

	given_row(1, true);
	given_row(2, false);
	reply = world_post(outbox_path(1), NULL, 200);
	ck_assert_str_eq(json_text_at(&reply.json, "was"), "poisoned");
	ck_assert_str_eq(json_text_at(&reply.json, "channel"), "out");
	ck_assert_int_eq(json_int_at(&reply.json, "attempts"), 3);
	reply = world_get("/admin/outbox", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "outbox.0.state"), "waiting");
	ck_assert_int_eq(json_int_at(&reply.json, "outbox.0.attempts"), 0);
	reply = world_post(outbox_path(1), NULL, 200);
	ck_assert_str_eq(json_text_at(&reply.json, "was"), "waiting");
	reply = refused(outbox_path(2), NULL, 409, "SUTRA.ADMIN.OUTBOX.CLAIMED");
	ck_assert_str_eq(json_text_at(&reply.json, "attributes.owner"), "boot-2");
	refused(outbox_path(3), NULL, 404, "SUTRA.ADMIN.NOT_FOUND");
	refused("/admin/outbox/1/retry", NULL, 400, "SUTRA.ADMIN.BAD_REQUEST");
}
END_TEST

/* --- dead letters --- */

static const char *letter_path(uint32_t n)
{
	char id[ID_TEXT_SIZE];

	return arena_printf(&world.rig.arena, "/admin/dead-letters/%s/replay", id_format(test_id(n), id));
}

static void given_letter(uint32_t n, const char *channel, struct id instance)
{
	struct dead_letter_row letter;
	struct store_commit commit;

	rig_letter(&world.rig, &commit, "acme");
	commit_dead_letter(&world.rig, &commit, test_id(n), STR("why"));
	letter = commit.dead_letters[0];
	letter.channel = str_of(channel);
	letter.instance = instance;
	letter.headers = STR("\x90");
	commit.dead_letters = &letter;
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
}

START_TEST(a_dead_letter_is_replayed)
{
	struct reply reply;

	given_letter(51, "orders", ID_NONE);
	reply = world_post(letter_path(51), NULL, 202);
	ck_assert_int_eq(json_int_at(&reply.json, "replay"), 1);
	ck_assert_str_eq(json_text_at(&reply.json, "eventId"), "replay:01900000-0000-7000-8000-000000000033:1");
	reply = world_get("/admin/kept", 200);
	ck_assert_uint_eq(json_count_at(&reply.json, "kept"), 1);
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.kind"), "replay");
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.channel"), "orders");
	ck_assert_str_eq(json_text_at(&reply.json, "kept.0.keeper"), "null");
	refused(letter_path(51), NULL, 409, "SUTRA.ADMIN.REPLAY.UNDER_WAY");
	reply = world_get("/admin/dead-letters/01900000-0000-7000-8000-000000000033", 200);
	ck_assert_int_eq(json_int_at(&reply.json, "replays"), 1);
}
END_TEST

START_TEST(what_cannot_be_replayed)
{
	struct reply reply;

	spawn(1, INSTANCE_FAILED, "A-1");
	given_letter(51, "nowhere", ID_NONE);
	given_letter(52, "orders", test_id(1));
	given_letter(53, "orders", test_id(9)); /* purged long ago */
	reply = refused(letter_path(51), NULL, 409, "SUTRA.ADMIN.REPLAY.NO_CHANNEL");
	ck_assert_str_eq(json_text_at(&reply.json, "attributes.channel"), "nowhere");
	reply = refused(letter_path(52), NULL, 409, "SUTRA.ADMIN.REPLAY.INSTANCE_EXISTS");
	ck_assert_str_eq(json_text_at(&reply.json, "attributes.instance"), "01900000-0000-7000-8000-000000000001");
	refused(letter_path(54), NULL, 404, "SUTRA.ADMIN.NOT_FOUND");
	world_post(letter_path(53), NULL, 202);
	world_post(path_of(1, "restore"), NULL, 200);
	world_post(letter_path(52), NULL, 202);
}
END_TEST

/* --- requests that are none --- */

START_TEST(what_is_not_there)
{
	struct reply reply;

	refused(path_of(9, "cancel"), NULL, 404, "SUTRA.ADMIN.NOT_FOUND");
	refused(path_of(9, "restore"), NULL, 404, "SUTRA.ADMIN.NOT_FOUND");
	refused(path_of(9, "waits/a/complete"), NULL, 404, "SUTRA.ADMIN.NOT_FOUND");
	refused(path_of(9, "waits//complete"), NULL, 404, "SUTRA.ADMIN.NOT_FOUND");
	refused("/admin/instances/not-an-id/cancel", NULL, 400, "SUTRA.ADMIN.BAD_REQUEST");
	refused(path_of(9, "cancel?force=1"), NULL, 400, "SUTRA.ADMIN.BAD_REQUEST");
	reply = world_request("GET", path_of(9, "cancel"));
	ck_assert_int_eq(reply.status, 405);
	ck_assert_str_eq(reply_header(&reply, "Allow"), "POST");
}
END_TEST

START_TEST(a_full_lane_says_so)
{
	struct lane *lane = &world.lanes->lanes[lane_set_lane_of_instance(world.lanes, test_id(1))];

	spawn(1, INSTANCE_SUSPENDED, "A-1");
	world.lanes->settings.queue_capacity = 1;
	__atomic_add_fetch(&lane->queued, 1, __ATOMIC_ACQ_REL);
	refused(path_of(1, "cancel"), NULL, 503, "SUTRA.ADMIN.BUSY");
	__atomic_sub_fetch(&lane->queued, 1, __ATOMIC_ACQ_REL);
	world_post(path_of(1, "cancel"), NULL, 200);
}
END_TEST

START_TEST(a_dead_lane_says_so)
{
	struct lane *lane = &world.lanes->lanes[lane_set_lane_of_instance(world.lanes, test_id(1))];

	spawn(1, INSTANCE_SUSPENDED, "A-1");
	__atomic_store_n(&lane->dead, true, __ATOMIC_RELEASE);
	refused(path_of(1, "cancel"), NULL, 503, "SUTRA.DISPATCH.UNAVAILABLE");
}
END_TEST

static void setup_unloaded(void)
{
	world_setup();
}

START_TEST(before_anything_is_loaded)
{
	refused(path_of(1, "cancel"), NULL, 503, "SUTRA.DISPATCH.UNAVAILABLE");
}
END_TEST

static Suite *commands_suite(void)
{
	Suite *suite = suite_create("admin commands");
	TCase *tcase = tcase_create("commands"), *unloaded = tcase_create("unloaded");

	tcase_add_checked_fixture(tcase, setup, world_teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, cancel_takes_everything_along, a_failed_one_can_be_cancelled, whoever_has_the_claim_is_named,
		     the_claim_of_the_lane_itself_is_in_the_way, restore_waits_again, restore_that_clashes_changes_nothing,
		     what_is_not_loaded_is_not_restored, a_snapshot_that_cannot_be_read_is_not_restored,
		     complete_goes_on_with_the_payload, complete_may_end_in_failure, bodies, what_is_not_there,
		     a_full_lane_says_so, a_dead_lane_says_so, an_outbox_row_is_armed_again, a_dead_letter_is_replayed,
		     what_cannot_be_replayed);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(unloaded, setup_unloaded, world_teardown);
	TEST_ADD_ALL(unloaded, before_anything_is_loaded);
	suite_add_tcase(suite, unloaded);
	return suite;
}

TEST_MAIN(commands_suite)
