/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/engine_fixture.h"

#include "tests/support/testing.h"

void engine_fixture_init(struct engine_fixture *fixture, struct model **model)
{
	struct deployment *deployment = model_deployment(*model);

	model_free(model);
	engine_fixture_init_deployment(fixture, deployment);
}

void engine_fixture_init_deployment(struct engine_fixture *fixture, struct deployment *deployment)
{
	struct expression_limits limits = EXPRESSION_LIMITS_DEFAULT;

	memset(fixture, 0, sizeof(*fixture));
	limits.max_cpu_us = 0;
	arena_init(&fixture->arena);
	fixture->deployment = deployment;
	fixture->expressions = expression_state_new(&limits);
	ck_assert_msg(expression_state_load(fixture->expressions, &fixture->deployment->expressions,
					    &fixture->err) == RESULT_OK,
		      "%s", fixture->err.text);
	fixture->env = (struct step_env){
		.arena = &fixture->arena,
		.expressions = fixture->expressions,
		.deployment = fixture->deployment,
		.now_us = ENGINE_FIXTURE_NOW,
		.max_nodes = 10000,
		.max_variables_bytes = 1 << 20,
	};
	fixture->id.bytes[0] = 0x17;
}

void engine_fixture_done(struct engine_fixture *fixture)
{
	if (fixture->expressions)
		expression_state_unload(fixture->expressions, &fixture->deployment->expressions);
	expression_state_free(&fixture->expressions);
	deployment_unref(&fixture->deployment);
	arena_done(&fixture->arena);
}

const struct node *engine_fixture_node(struct engine_fixture *fixture, const char *id)
{
	const struct node *node = process_node(fixture->deployment->processes[0], str_of(id));

	ck_assert_msg(node != NULL, "no node %s", id);
	return node;
}

msgpack_object engine_fixture_value(struct engine_fixture *fixture, const char *json)
{
	const struct value_limits limits = VALUE_LIMITS_DEFAULT;
	msgpack_object value;

	ck_assert_msg(value_json_read(&fixture->arena, str_of(json), true, &limits, &value,
				      &fixture->err) == RESULT_OK,
		      "%s: %s", json, fixture->err.text);
	return value;
}

struct event engine_fixture_event(struct engine_fixture *fixture, const char *channel,
				  const char *json)
{
	return (struct event){
		.payload = engine_fixture_value(fixture, json),
		.channel = str_of(channel),
		.reply = {.channel = str_of(channel),
			  .connection = STR("local"),
			  .transport = STR("local")},
	};
}

static struct str source_channel(const struct node *node)
{
	return node->source ? node->source->channel : STR("none");
}

struct step_result engine_fixture_start(struct engine_fixture *fixture, const char *start,
					const char *json)
{
	const struct node *node = engine_fixture_node(fixture, start);
	struct event event = engine_fixture_event(fixture, source_channel(node).ptr, json);
	struct step_result result;

	ck_assert_msg(engine_start(&fixture->env, fixture->id, STR("acme"), node, &event, &result,
				   &fixture->err) == RESULT_OK,
		      "start: %s", fixture->err.text);
	return result;
}

struct step_result engine_fixture_resume(struct engine_fixture *fixture,
					 const struct instance *inst, const char *id,
					 const char *json)
{
	const struct node *node = engine_fixture_node(fixture, id);
	struct event event = engine_fixture_event(fixture, source_channel(node).ptr, json);
	struct step_result result;

	for (uint32_t i = 0; i < inst->token_count; i++) {
		if (!str_equal(inst->tokens[i].node, node->id) ||
		    inst->tokens[i].state != TOKEN_WAITING)
			continue;
		ck_assert_msg(engine_resume(&fixture->env, inst, inst->tokens[i].id, &event,
					    &result, &fixture->err) == RESULT_OK,
			      "resume: %s", fixture->err.text);
		return result;
	}
	ck_abort_msg("no token waits at %s", id);
}

struct instance *engine_fixture_reload(struct engine_fixture *fixture, const struct instance *inst)
{
	struct buf bytes = BUF_INIT;
	struct str kept;
	struct instance *back = NULL;

	snapshot_pack(inst, &bytes);
	kept = arena_str(&fixture->arena, buf_str(&bytes));
	buf_done(&bytes);
	ck_assert_msg(snapshot_unpack(&fixture->arena, kept, inst->id, inst->tenant, inst->version,
				      &back, &fixture->err) == RESULT_OK,
		      "%s", fixture->err.text);
	return back;
}

const char *engine_fixture_json(struct engine_fixture *fixture, const msgpack_object *value)
{
	struct buf text = BUF_INIT;
	const char *copy;

	ck_assert_int_eq(value_json_write(value, &text, &fixture->err), RESULT_OK);
	copy = arena_str(&fixture->arena, buf_str(&text)).ptr;
	buf_done(&text);
	return copy;
}

const char *engine_fixture_variable(struct engine_fixture *fixture, const struct instance *inst,
				    const char *name)
{
	const struct scope *root = &inst->scopes[0];

	for (uint32_t i = 0; i < root->variable_count; i++)
		if (str_equal(root->variables[i].name, str_of(name)))
			return engine_fixture_json(fixture, &root->variables[i].value);
	return "unset";
}
