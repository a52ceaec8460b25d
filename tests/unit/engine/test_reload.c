/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of whole runs on random small graphs:
 *   - a run that goes through its snapshot after every step equals one that stays in memory, effect by effect;
 *   - no step changes its input;
 *   - the waits and aliases that the steps added and removed are exactly those that the instance has.
 * Graphs may loop, fork, fail and never end; a run is a fixed number of messages.
 */
#include "engine/step.h"

#include "tests/support/engine_fixture.h"
#include "tests/support/random_instance.h"
#include "tests/support/testing.h"

#define MAX_NODES 10
#define MAX_STEPS 8

static void random_node(struct random_source *random, struct model *model, const char *id)
{
	static const enum node_kind kinds[] = {NODE_CATCH,  NODE_RECEIVE, NODE_THROW,     NODE_SEND,
					       NODE_SCRIPT, NODE_PASS,    NODE_EXCLUSIVE, NODE_END};
	static const char *const scripts[] = {
		"n = (n or 0) + 1",
		"log = join(log, {n or 0})",
		"log = {n, payload, header.h}",
		"if (n or 0) > 3 then error('enough') end",
		"n = #log",
		"if n == 1 then n = nil else n = 1 end",
	};
	enum node_kind kind = kinds[random_below(random, ARRAY_LEN(kinds))];

	model_node(model, id, kind);
	if (kind == NODE_CATCH || kind == NODE_RECEIVE) {
		model_source(model, "in");
		model_alias(model, "order", "payload.id", NULL, false);
		if (random_below(random, 3) == 0)
			model_alias(model, "req", "payload.req", "uuid('a') .. tostring(n)", false);
	}
	if (kind == NODE_SCRIPT)
		model_script(model, scripts[random_below(random, ARRAY_LEN(scripts))]);
	if (kind == NODE_SEND || (kind == NODE_END && random_below(random, 2))) {
		model_send(model, "out", "{n = n, id = uuid('x'), now = now()}");
		model_header(model, "h", "n");
	}
	if (kind == NODE_PASS && random_below(random, 3) == 0)
		model_reply(model, "{log = log}", NULL);
}

static struct model *random_model(struct random_source *random)
{
	static const char *const conditions[] = {NULL, "n == 1", "(n or 0) % 2 == 0",
						 "payload.id ~= nil", "#log > 1"};
	static const char *const names[MAX_NODES] = {"N0", "N1", "N2", "N3", "N4",
						     "N5", "N6", "N7", "N8", "N9"};
	struct model *model = model_new("acme");
	uint64_t count = 2 + random_below(random, MAX_NODES - 1);

	model_channel(model, "in", CHANNEL_INBOUND);
	model_channel(model, "out", CHANNEL_OUTBOUND);
	model_process(model, "p");
	model_variable(model, "n", VARIABLE_NUMBER, NULL);
	model_variable(model, "log", VARIABLE_ANY, NULL);
	model_variable(model, "taken", VARIABLE_ANY, "payload");
	model_node(model, names[0], NODE_START);
	model_source(model, "in");
	model_alias(model, "order", "payload.id", NULL, true);
	for (uint64_t i = 1; i < count; i++)
		random_node(random, model, names[i]);
	/* Mostly forward, so that runs come somewhere. */
	for (uint64_t i = 0; i + 1 < count; i++) {
		for (uint64_t n = random_below(random, 5) / 3; n > 0; n--)
			model_flow(model, names[i], names[1 + random_below(random, count - 1)],
				   conditions[random_below(random, ARRAY_LEN(conditions))]);
		if (random_below(random, 10))
			model_default_flow(model, names[i],
					   names[i + 1 + random_below(random, count - 1 - i)]);
	}
	return model;
}

static bool sends_equal(const struct step_result *a, const struct step_result *b)
{
	if (a->send_count != b->send_count)
		return false;
	for (uint32_t i = 0; i < a->send_count; i++) {
		const struct step_send *x = &a->sends[i], *y = &b->sends[i];

		if (x->node != y->node || x->channel != y->channel ||
		    !value_equal(&x->body, &y->body) || !str_equal(x->key, y->key) ||
		    x->headers.count != y->headers.count || x->ordinal != i)
			return false;
		for (size_t k = 0; k < x->headers.count; k++)
			if (!value_equal(&x->headers.items[k].value, &y->headers.items[k].value))
				return false;
	}
	return true;
}

static bool waits_equal(const struct step_wait *a, uint32_t a_count, const struct step_wait *b,
			uint32_t b_count)
{
	if (a_count != b_count)
		return false;
	for (uint32_t i = 0; i < a_count; i++) {
		if (a[i].token != b[i].token || a[i].node != b[i].node ||
		    a[i].key_count != b[i].key_count)
			return false;
		for (uint32_t k = 0; k < a[i].key_count; k++)
			if (!str_equal(a[i].keys[k].name, b[i].keys[k].name) ||
			    !str_equal(a[i].keys[k].value, b[i].keys[k].value))
				return false;
	}
	return true;
}

static void ck_same_result(const struct step_result *a, const struct step_result *b)
{
	ck_assert(instance_equal(a->inst, b->inst));
	ck_assert(a->failed == b->failed && a->failure_node == b->failure_node);
	ck_assert(sends_equal(a, b));
	ck_assert(waits_equal(a->waits_added, a->waits_added_count, b->waits_added,
			      b->waits_added_count));
	ck_assert(waits_equal(a->waits_removed, a->waits_removed_count, b->waits_removed,
			      b->waits_removed_count));
	ck_assert_uint_eq(a->aliases_added_count, b->aliases_added_count);
	ck_assert_uint_eq(a->aliases_removed_count, b->aliases_removed_count);
}

static uint32_t waiting(const struct instance *inst)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < inst->token_count; i++)
		count += inst->tokens[i].state == TOKEN_WAITING;
	return inst->status == INSTANCE_SUSPENDED ? count : 0;
}

/* What a store would hold after the effects must be what the instance says of itself. */
struct ledger {
	int64_t waits, aliases;
};

static void ck_ledger(struct ledger *ledger, const struct step_result *result)
{
	ledger->waits += (int64_t)result->waits_added_count - result->waits_removed_count;
	ledger->aliases += (int64_t)result->aliases_added_count - result->aliases_removed_count;
	ck_assert_int_eq(ledger->waits, waiting(result->inst));
	ck_assert_int_eq(ledger->aliases, result->inst->alias_count);
	for (uint32_t i = 0; i < result->inst->token_count; i++)
		ck_assert(result->inst->status == INSTANCE_FAILED ||
			  result->inst->tokens[i].state == TOKEN_WAITING);
}

struct tally {
	unsigned steps, completed, failed, parked;
};

static void run_graph(uint64_t seed, struct tally *tally)
{
	struct random_source random = {.state = seed};
	struct model *model = random_model(&random);
	struct step_result stays, reloads;
	struct ledger ledger = {0, 0};
	struct engine_fixture fx;

	engine_fixture_init(&fx, &model);
	fx.env.max_nodes = 100;
	stays = engine_fixture_start(&fx, "N0", "{\"id\": \"A\"}");
	reloads = engine_fixture_start(&fx, "N0", "{\"id\": \"A\"}");
	for (int step = 0;; step++) {
		struct instance *before = engine_fixture_reload(&fx, reloads.inst);
		const struct instance *inst = stays.inst;
		struct event event = engine_fixture_event(&fx, "in",
							  "{\"id\": 1, \"list\": [1, 2.5, null]}");
		uint32_t token;

		ck_same_result(&stays, &reloads);
		ck_ledger(&ledger, &stays);
		tally->steps++;
		tally->completed += inst->status == INSTANCE_COMPLETED;
		tally->failed += inst->status == INSTANCE_FAILED;
		tally->parked += inst->status == INSTANCE_SUSPENDED;
		if (inst->status == INSTANCE_COMPLETED || step == MAX_STEPS)
			break;
		if (inst->status == INSTANCE_FAILED) {
			if (inst->tokens[0].state == TOKEN_READY && step > 0)
				break;
			ck_assert_int_eq(engine_restore(&fx.env, inst, &stays, &fx.err), RESULT_OK);
			ck_assert_int_eq(engine_restore(&fx.env, before, &reloads, &fx.err),
					 RESULT_OK);
			ck_assert(instance_equal(inst, before));
			continue;
		}
		token = inst->tokens[random_below(&random, inst->token_count)].id;
		fx.env.now_us++;
		ck_assert_int_eq(engine_resume(&fx.env, inst, token, &event, &stays, &fx.err),
				 RESULT_OK);
		ck_assert_int_eq(engine_resume(&fx.env, before, token, &event, &reloads, &fx.err),
				 RESULT_OK);
		ck_assert(instance_equal(inst, engine_fixture_reload(&fx, before)));
	}
	engine_fixture_done(&fx);
}

START_TEST(a_reload_after_every_step_changes_nothing)
{
	struct tally tally = {0, 0, 0, 0};

	for (uint64_t seed = 1; seed <= 1000; seed++)
		run_graph(seed, &tally);
	/* The graphs must not all be of one sort. */
	ck_assert_uint_gt(tally.completed, 200);
	ck_assert_uint_gt(tally.failed, 200);
	ck_assert_uint_gt(tally.parked, 200);
}
END_TEST

static Suite *reload_suite(void)
{
	Suite *suite = suite_create("engine/reload");
	TCase *tcase = tcase_create("reload");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_reload_after_every_step_changes_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(reload_suite)
