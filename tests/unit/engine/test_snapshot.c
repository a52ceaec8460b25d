/* SPDX-License-Identifier: Apache-2.0 */
/* What is packed comes back the same; what was not packed by us is refused and never more than that. */
#include "tests/support/random_instance.h"
#include "tests/support/testing.h"

static struct arena arena;
static struct buf bytes;
static struct error err;

static void setup(void)
{
	arena_init(&arena);
	buf_init(&bytes);
	err = ERROR_INIT;
}

static void teardown(void)
{
	buf_done(&bytes);
	arena_done(&arena);
}

static enum result unpack(struct str packed, const struct instance *like, struct instance **out)
{
	return snapshot_unpack(&arena, packed, like->id, like->tenant, like->version, out, &err);
}

/* The smallest instance there is. */
static struct instance *minimal(void)
{
	struct instance *inst = arena_zalloc(&arena, sizeof(*inst));

	inst->tenant = STR("acme");
	inst->deployment = STR("dep");
	inst->process = STR("p");
	inst->status = INSTANCE_SUSPENDED;
	inst->version = 1;
	inst->next_token = 2;
	inst->next_scope = 1;
	inst->scope_count = 1;
	inst->scopes = arena_zalloc(&arena, sizeof(*inst->scopes));
	inst->token_count = 1;
	inst->tokens = arena_zalloc(&arena, sizeof(*inst->tokens));
	inst->tokens[0] = (struct token){.id = 1, .node = STR("Wait"), .state = TOKEN_WAITING};
	return inst;
}

static void ck_refused(const struct instance *inst, const char *what)
{
	struct instance *out = NULL;

	buf_reset(&bytes);
	snapshot_pack(inst, &bytes);
	ck_assert_int_eq(unpack(buf_str(&bytes), inst, &out), RESULT_FATAL);
	ck_assert_int_eq(err.code, CODE_RUNTIME_SNAPSHOT_INVALID);
	ck_assert_msg(strstr(err.text, what) != NULL, "'%s' does not name '%s'", err.text, what);
	ck_assert_ptr_null(out);
}

START_TEST(random_instances_come_back_the_same)
{
	struct random_source random = {.state = 20261130};

	for (int round = 0; round < 500; round++) {
		struct instance *inst = random_instance(&random, &arena);
		struct instance *back = NULL;
		struct buf again = BUF_INIT;

		buf_reset(&bytes);
		snapshot_pack(inst, &bytes);
		ck_assert_msg(unpack(buf_str(&bytes), inst, &back) == RESULT_OK, "round %d: %s",
			      round, err.text);
		ck_assert_msg(instance_equal(inst, back), "round %d differs", round);
		snapshot_pack(back, &again);
		ck_assert(str_equal(buf_str(&bytes), buf_str(&again)));
		buf_done(&again);
		arena_reset(&arena);
	}
}
END_TEST

START_TEST(the_format_number_is_the_second_byte)
{
	struct instance *inst = minimal(), *out = NULL;

	snapshot_pack(inst, &bytes);
	ck_assert_int_eq(bytes.data[1], 3);
	bytes.data[1] = 4;
	ck_assert_int_eq(unpack(buf_str(&bytes), inst, &out), RESULT_FATAL);
	ck_assert_int_eq(err.code, CODE_RUNTIME_SNAPSHOT_INVALID);
	ck_assert_ptr_nonnull(strstr(err.text, "format 4"));
}
END_TEST

/* A newer format may hold anything behind its number. */
START_TEST(a_newer_format_is_told_before_it_is_read)
{
	struct instance *inst = minimal(), *out = NULL;

	ck_assert_int_eq(unpack(STR("\x92\x07\xc7\x01\x05z"), inst, &out), RESULT_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, "format 7"));
}
END_TEST

START_TEST(every_truncation_is_refused)
{
	struct random_source random = {.state = 7};
	struct instance *inst = random_instance(&random, &arena), *out = NULL;

	snapshot_pack(inst, &bytes);
	for (size_t len = 0; len < bytes.len; len++) {
		ck_assert_int_eq(unpack(str_make(bytes.data, len), inst, &out), RESULT_FATAL);
		ck_assert_int_eq(err.code, CODE_RUNTIME_SNAPSHOT_INVALID);
	}
	buf_add_byte(&bytes, '\xc0');
	ck_assert_int_eq(unpack(buf_str(&bytes), inst, &out), RESULT_FATAL);
}
END_TEST

/* Whatever the reader accepts it can write again in the same way. */
START_TEST(altered_bytes_are_refused_or_consistent)
{
	struct random_source random = {.state = 99};
	unsigned accepted = 0;

	for (int round = 0; round < 5000; round++) {
		struct instance *inst = round % 50 ? NULL : random_instance(&random, &arena);
		struct instance *out = NULL, *back = NULL, like = {.version = 1};
		struct buf again = BUF_INIT;
		char *bad;
		size_t len;

		if (inst) {
			buf_reset(&bytes);
			snapshot_pack(inst, &bytes);
		}
		len = bytes.len;
		bad = arena_memdup(&arena, bytes.data, len);
		for (uint64_t n = 1 + random_below(&random, 3); n > 0; n--)
			bad[random_below(&random, len)] = (char)random_next(&random);
		if (unpack(str_make(bad, len), &like, &out) == RESULT_OK) {
			accepted++;
			snapshot_pack(out, &again);
			ck_assert_int_eq(unpack(buf_str(&again), &like, &back), RESULT_OK);
			ck_assert(instance_equal(out, back));
		}
		buf_done(&again);
		if (round % 50 == 49)
			arena_reset(&arena);
	}
	ck_assert_uint_gt(accepted, 0);
}
END_TEST

/* What the release before wrote: [id, scope, node, state, keys], one scope, no hosts. */
START_TEST(format_1_is_read)
{
	static const char stored[] =
		"\x9e\x01\xa3"
		"dep\xa1p\x01\xd3\x00\x00\x00\x00\x00\x00\x00\x07\x03\x01"
		"\x91\x95\x02\x00\xa4Wait\x01\x91\x92\xa2id\xa1"
		"7"
		"\x91\x94\x00\x00\xc0\x81\xa1n\x05"
		"\x91\x93\xa2id\xa1"
		"7\xc3\xc0\xc0\xc0\xc0";
	struct instance *inst = minimal(), *out = NULL, *back = NULL;

	ck_assert_msg(unpack(str_make(stored, sizeof(stored) - 1), inst, &out) == RESULT_OK, "%s",
		      err.text);
	ck_assert_uint_eq(out->token_count, 1);
	ck_assert_uint_eq(out->tokens[0].id, 2);
	ck_assert_uint_eq(out->tokens[0].host, 0);
	ck_assert_int_eq(out->tokens[0].state, TOKEN_WAITING);
	ck_assert_str_slice(out->tokens[0].keys[0].value, STR("7"));
	ck_assert_uint_eq(out->scope_count, 1);
	ck_assert_str_slice(out->scopes[0].variables[0].name, STR("n"));
	ck_assert_int_eq(out->started_us, 7);
	/* It goes on in the format of today. */
	buf_reset(&bytes);
	snapshot_pack(out, &bytes);
	ck_assert_int_eq(bytes.data[1], 3);
	ck_assert_int_eq(unpack(buf_str(&bytes), inst, &back), RESULT_OK);
	ck_assert(instance_equal(out, back));
}
END_TEST

/* Its tokens have seven elements: no timers. */
START_TEST(format_2_is_read)
{
	static const char stored[] =
		"\x9e\x02\xa3"
		"dep\xa1p\x01\xd3\x00\x00\x00\x00\x00\x00\x00\x07\x04\x01"
		"\x92\x97\x02\x00\x00\xa4Wait\x01\xc0\x91\x92\xa2id\xa1"
		"7"
		"\x97\x03\x00\x02\xa4Late\x01\xc0\x90"
		"\x91\x97\x00\x00\x00\x00\xc0\xc0\x81\xa1n\x05"
		"\x91\x93\xa2id\xa1"
		"7\xc3\xc0\xc0\xc0\xc0";
	struct instance *inst = minimal(), *out = NULL, *back = NULL;

	ck_assert_msg(unpack(str_make(stored, sizeof(stored) - 1), inst, &out) == RESULT_OK, "%s",
		      err.text);
	ck_assert_uint_eq(out->token_count, 2);
	ck_assert_uint_eq(out->tokens[1].host, 2);
	ck_assert_int_eq(out->tokens[1].due_us, 0);
	buf_reset(&bytes);
	snapshot_pack(out, &bytes);
	ck_assert_int_eq(bytes.data[1], 3);
	ck_assert_int_eq(unpack(buf_str(&bytes), inst, &back), RESULT_OK);
	ck_assert(instance_equal(out, back));
}
END_TEST

START_TEST(timers_that_cannot_be_are_refused)
{
	struct instance *inst = minimal(), *out = NULL;
	struct token *token = inst->tokens;

	token->due_us = 5;
	token->period_us = 7;
	token->remaining = -1;
	snapshot_pack(inst, &bytes);
	ck_assert_int_eq(unpack(buf_str(&bytes), inst, &out), RESULT_OK);
	ck_assert(instance_equal(inst, out));
	token->due_us = -5;
	ck_refused(inst, "time of a timer");
	token->due_us = INT64_MAX;
	ck_refused(inst, "time of a timer");
	token->due_us = 5;
	token->period_us = -7;
	ck_refused(inst, "period of a timer");
	token->period_us = 0;
	ck_refused(inst, "remaining times of a timer");
	token->period_us = 7;
	token->remaining = -2;
	ck_refused(inst, "remaining times of a timer");
	token->remaining = 0;
	ck_refused(inst, "remaining times of a timer");
	token->remaining = 1;
	token->state = TOKEN_JOINING;
	token->flow = STR("f");
	ck_refused(inst, "timer of a token that does not wait");
}
END_TEST

START_TEST(values_are_of_waiting_tokens)
{
	struct instance *inst = minimal(), *out = NULL;
	struct token *token = inst->tokens;
	struct scope_variable locals[] = {{STR("n"), value_int(1)}, {STR("#attempt"), value_int(2)}};

	token->locals = locals;
	token->local_count = 2;
	snapshot_pack(inst, &bytes);
	ck_assert_int_eq(unpack(buf_str(&bytes), inst, &out), RESULT_OK);
	ck_assert(instance_equal(inst, out));
	token->state = TOKEN_JOINING;
	token->flow = STR("f");
	ck_refused(inst, "values of a token that does not wait");
}
END_TEST

/* A holding token 1 that opened scope 1, in which token 2 waits with an event 3 armed beside it. */
static struct instance *nested(void)
{
	struct instance *inst = minimal();
	struct scope scopes[2] = {{.id = 0}, {.id = 1, .owner = 1, .node = STR("Sub")}};
	struct token tokens[3] = {
		{.id = 1, .node = STR("Sub"), .state = TOKEN_HOLDING},
		{.id = 2, .scope = 1, .node = STR("Wait"), .state = TOKEN_WAITING},
		{.id = 3, .scope = 1, .host = 2, .node = STR("Event"), .state = TOKEN_WAITING},
	};

	inst->tokens = arena_memdup(&arena, tokens, sizeof(tokens));
	inst->token_count = 3;
	inst->next_token = 4;
	inst->scopes = arena_memdup(&arena, scopes, sizeof(scopes));
	inst->scope_count = 2;
	inst->next_scope = 2;
	return inst;
}

START_TEST(torn_links_are_refused)
{
	struct instance *inst = nested(), *out = NULL;

	snapshot_pack(inst, &bytes);
	ck_assert_msg(unpack(buf_str(&bytes), inst, &out) == RESULT_OK, "%s", err.text);
	ck_assert(instance_equal(inst, out));
	out = NULL;
	inst->scopes[1].owner = 2;
	ck_refused(inst, "owner of a scope");
	inst->scopes[1].owner = 9;
	ck_refused(inst, "owner of a scope");
	inst = nested();
	inst->tokens[0].state = TOKEN_WAITING;
	ck_refused(inst, "owner of a scope");
	inst = nested();
	inst->scopes[1].node = STR("Other");
	ck_refused(inst, "owner of a scope");
	inst = nested();
	inst->scopes[1].iteration = 1;
	ck_refused(inst, "owner of a scope");
	inst = nested();
	inst->tokens[2].host = 1;
	ck_refused(inst, "host of a token");
	inst->tokens[2].host = 7;
	ck_refused(inst, "host of a token");
	inst = nested();
	inst->tokens[2].state = TOKEN_JOINING;
	inst->tokens[2].flow = STR("f");
	ck_refused(inst, "host of a token");
	inst = nested();
	inst->tokens[1].state = TOKEN_JOINING;
	ck_refused(inst, "token flow");
	inst = nested();
	inst->tokens[1].flow = STR("f");
	ck_refused(inst, "token flow");
	inst = nested();
	inst->tokens[1].state = TOKEN_HOLDING;
	inst->token_count = 2;
	ck_refused(inst, "token that holds for nothing");
}
END_TEST

START_TEST(inconsistent_instances_are_refused)
{
	struct instance *inst = minimal();
	struct scope scopes[2] = {{.id = 0}, {.id = 1, .parent = 1, .node = STR("Sub")}};
	struct token tokens[2] = {inst->tokens[0], inst->tokens[0]};

	inst->status = INSTANCE_RUNNING;
	ck_refused(inst, "status");
	inst = minimal();
	inst->tokens[0].scope = 5;
	ck_refused(inst, "scope of a token");
	inst = minimal();
	inst->tokens[0].id = 2;
	ck_refused(inst, "token id");
	inst = minimal();
	inst->tokens = tokens;
	inst->token_count = 2;
	ck_refused(inst, "order of tokens");
	inst = minimal();
	inst->scope_count = 0;
	ck_refused(inst, "root scope");
	inst = minimal();
	inst->scopes = scopes;
	inst->scope_count = 2;
	inst->next_scope = 2;
	ck_refused(inst, "order of scopes");
	inst = minimal();
	inst->tokens[0].node = STR_NONE;
	ck_refused(inst, "token node");
	inst = minimal();
	inst->status = INSTANCE_FAILED;
	ck_refused(inst, "failure");
	inst = minimal();
	inst->status = INSTANCE_COMPLETED;
	inst->tokens[0].state = TOKEN_READY;
	ck_refused(inst, "ready token");
}
END_TEST

START_TEST(a_variable_that_comes_twice_is_refused)
{
	struct instance *inst = minimal();
	struct scope_variable twice[2] = {{STR("a"), {.type = MSGPACK_OBJECT_NIL}},
					  {STR("a"), {.type = MSGPACK_OBJECT_NIL}}};

	inst->scopes[0].variables = twice;
	inst->scopes[0].variable_count = 2;
	ck_refused(inst, "snapshot");
}
END_TEST

static Suite *snapshot_suite(void)
{
	Suite *suite = suite_create("engine/snapshot");
	TCase *tcase = tcase_create("snapshot");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, random_instances_come_back_the_same,
		     the_format_number_is_the_second_byte, a_newer_format_is_told_before_it_is_read,
		     every_truncation_is_refused, altered_bytes_are_refused_or_consistent,
		     format_1_is_read, format_2_is_read, timers_that_cannot_be_are_refused, values_are_of_waiting_tokens,
		     torn_links_are_refused, inconsistent_instances_are_refused, a_variable_that_comes_twice_is_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(snapshot_suite)
