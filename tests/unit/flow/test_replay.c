/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays of dead letters: the message is put into the database with an event id of its own and the dead letter that it is of. Its
 * effect takes that away; if it is rejected again, there is still one dead letter, which says why now.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "flow/envelope.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 15000

static const struct id letter = {{0xde, 0xad, 5}};

static struct flow_fixture *start(void)
{
	struct flow_fixture_settings settings = {
		.package = "tests/unit/flow/sequence", .intake.max_in_flight = 8, .intake.max_kept = 100};

	return flow_fixture_new(&settings);
}

static void given_letter(struct flow_fixture *f, const char *body)
{
	struct dead_letter_row row = {
		.id = letter, .channel = STR("events"), .event_id = STR("e1"), .code = CODE_DISPATCH_INSTANCE_FAILED,
		.detail = STR("then"), .payload = str_of(body)};
	struct store_commit commit = {
		.commit = COMMIT_NO_INSTANCE, .dead_letters = &row, .dead_letter_count = 1};

	ck_assert_int_eq(flow_fixture_commit(f, &commit), STORE_OK);
}

/* As an operator's command does it; nobody's until a replica that consumes the channel finds it. */
static void replay(struct flow_fixture *f, const char *type, const char *body, const char *event_id)
{
	struct envelope_note note = {.event_id = str_of(event_id), .dead_letter = letter};
	struct message *message = message_new();
	struct store_commit commit = {.commit = COMMIT_NO_INSTANCE};
	struct kept_row row = {.kind = KEPT_REPLAY, .channel = STR("events"), .source = STR("replay"), .body = str_of(body)};
	struct arena arena;

	arena_init(&arena);
	message->type = str_of(type);
	row.envelope = envelope_pack(&arena, message, &note);
	row.id = id_digest_of(STR("row"), str_of(event_id));
	row.order_key = row.id;
	commit.kept_added = &row;
	commit.kept_added_count = 1;
	ck_assert_int_eq(flow_fixture_commit(f, &commit), STORE_OK);
	arena_done(&arena);
	message_free(&message);
}

static bool nothing_kept(void *arg)
{
	return flow_fixture_count_kept(arg) == 0;
}

static uint32_t letters(struct flow_fixture *f, const char *code)
{
	return flow_fixture_count_dead_letters(f, code);
}

START_TEST(effect_takes_the_letter_away)
{
	struct flow_fixture *f = start();

	given_letter(f, "{\"name\":\"s\"}");
	ck_assert_uint_eq(letters(f, code_text(CODE_DISPATCH_INSTANCE_FAILED)), 1);
	replay(f, "open", "{\"name\":\"s\"}", "replay:1");
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	ck_assert_uint_eq(letters(f, code_text(CODE_DISPATCH_INSTANCE_FAILED)), 0);
	flow_fixture_free(&f);
}
END_TEST

/* A second replay of one number is a duplicate; one of another number is a message of its own, and is rejected by its alias. */
START_TEST(number_of_the_replay_is_its_event_id)
{
	struct flow_fixture *f = start();

	given_letter(f, "{\"name\":\"s\"}");
	replay(f, "open", "{\"name\":\"s\"}", "replay:1");
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	replay(f, "open", "{\"name\":\"s\"}", "replay:1");
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(letters(f, code_text(CODE_INBOUND_ALIAS_CONFLICT_REJECT)), 0);
	replay(f, "open", "{\"name\":\"s\"}", "replay:2");
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_SUSPENDED), 1);
	ck_assert_uint_eq(letters(f, code_text(CODE_INBOUND_ALIAS_CONFLICT_REJECT)), 1);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(rejected_again_is_one_letter)
{
	struct flow_fixture *f = start();

	given_letter(f, "{");
	replay(f, "open", "{", "replay:1");
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(letters(f, code_text(CODE_DISPATCH_INSTANCE_FAILED)), 0);
	ck_assert_uint_eq(letters(f, code_text(CODE_PARSE_JSON)), 1);
	flow_fixture_free(&f);
}
END_TEST

static Suite *replay_suite(void)
{
	Suite *suite = suite_create("flow replay");
	TCase *tcase = tcase_create("dead letters");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, effect_takes_the_letter_away, number_of_the_replay_is_its_event_id, rejected_again_is_one_letter);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(replay_suite)
