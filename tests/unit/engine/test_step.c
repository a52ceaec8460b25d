/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of node, what a step gives back, and what is left of one that fails. */
#include "engine/step.h"

#include "tests/support/engine_fixture.h"
#include "tests/support/random_instance.h"
#include "tests/support/testing.h"

static struct model *model;
static struct engine_fixture fx;

/* A process with a start on channel "in" that registers `order` (unique) and takes payload.total into `total`. */
static void setup(void)
{
	memset(&fx, 0, sizeof(fx));
	model = model_new("acme");
	model_channel(model, "in", CHANNEL_INBOUND);
	model_channel(model, "answers", CHANNEL_INBOUND);
	model_channel(model, "out", CHANNEL_OUTBOUND);
	model_process(model, "order");
	model_variable(model, "total", VARIABLE_NUMBER, "payload.total");
	model_variable(model, "note", VARIABLE_STRING, NULL);
	model_variable(model, "extra", VARIABLE_ANY, NULL);
	model_node(model, "Start", NODE_START);
	model_source(model, "in");
	model_alias(model, "order", "payload.id", NULL, true);
}

static void teardown(void)
{
	model_free(&model);
	if (fx.deployment)
		engine_fixture_done(&fx);
}

static struct node *add(const char *id, enum node_kind kind, const char *from)
{
	struct node *node = model_node(model, id, kind);

	if (from)
		model_flow(model, from, id, NULL);
	return node;
}

/* A receive task "Wait" on channel "answers" behind `from`, found by `order`; its payload is called `answer`. */
static void add_wait(const char *from)
{
	add("Wait", NODE_RECEIVE, from);
	model_source(model, "answers")->name = STR("answer");
	model_alias(model, "order", "answer.id", NULL, false);
}

static struct step_result start(const char *json)
{
	if (!fx.deployment)
		engine_fixture_init(&fx, &model);
	return engine_fixture_start(&fx, "Start", json);
}

static void ck_failed(const struct step_result *result, enum code code, const char *node)
{
	ck_assert(result->failed);
	ck_assert_msg(result->failure.code == code, "%s: %s", code_text(result->failure.code),
		      result->failure.text);
	ck_assert_int_eq(result->inst->status, INSTANCE_FAILED);
	ck_assert_str_slice(result->inst->failure_code, str_of(code_text(code)));
	ck_assert_str_slice(result->inst->failure_node, str_of(node));
	ck_assert_uint_eq(result->send_count, 0);
	ck_assert_uint_eq(result->waits_added_count, 0);
	ck_assert(instance_equal(result->inst, engine_fixture_reload(&fx, result->inst)));
}

START_TEST(a_start_runs_to_its_end)
{
	struct step_result result;

	add("End", NODE_END, "Start");
	result = start("{\"id\": \"A1\", \"total\": 12.5}");
	ck_assert_int_eq(result.inst->status, INSTANCE_COMPLETED);
	ck_assert_int_eq(result.inst->version, 1);
	ck_assert_int_eq(result.inst->started_us, ENGINE_FIXTURE_NOW);
	ck_assert_uint_eq(result.inst->token_count, 0);
	ck_assert_str_eq(engine_fixture_variable(&fx, result.inst, "total"), "12.5");
	/* It was never live: nothing was registered that would have to be taken away. */
	ck_assert_uint_eq(result.aliases_added_count, 0);
	ck_assert_uint_eq(result.aliases_removed_count, 0);
}
END_TEST

START_TEST(a_wait_parks_and_resumes)
{
	struct step_result first, second;
	struct instance *stored;

	add_wait("Start");
	add("End", NODE_END, "Wait");
	first = start("{\"id\": 7, \"total\": 3}");
	ck_assert_int_eq(first.inst->status, INSTANCE_SUSPENDED);
	ck_assert_uint_eq(first.aliases_added_count, 1);
	ck_assert(first.aliases_added[0].unique);
	ck_assert_str_slice(first.aliases_added[0].value, STR("7"));
	ck_assert_uint_eq(first.waits_added_count, 1);
	ck_assert_str_slice(first.waits_added[0].node->id, STR("Wait"));
	ck_assert_uint_eq(first.waits_added[0].key_count, 1);
	ck_assert_str_slice(first.waits_added[0].keys[0].name, STR("order"));
	ck_assert_str_slice(first.waits_added[0].keys[0].value, STR("7"));

	stored = engine_fixture_reload(&fx, first.inst);
	second = engine_fixture_resume(&fx, first.inst, "Wait", "{\"id\": 7}");
	ck_assert_int_eq(second.inst->status, INSTANCE_COMPLETED);
	ck_assert_int_eq(second.inst->version, 2);
	ck_assert_uint_eq(second.waits_removed_count, 1);
	ck_assert_uint_eq(second.waits_removed[0].token, first.waits_added[0].token);
	ck_assert_str_slice(second.waits_removed[0].keys[0].value, STR("7"));
	ck_assert_uint_eq(second.aliases_removed_count, 1);
	/* The step left its input alone. */
	ck_assert(instance_equal(first.inst, stored));
}
END_TEST

START_TEST(sources_are_taken_at_every_receive)
{
	struct step_result first, second;

	add_wait("Start");
	model_variable(model, "said", VARIABLE_ANY, "answer.text");
	add("Again", NODE_CATCH, "Wait");
	model_source(model, "answers");
	model_alias(model, "order", "payload.id", NULL, false);
	first = start("{\"id\": \"x\", \"total\": 1}");
	ck_assert_str_eq(engine_fixture_variable(&fx, first.inst, "said"), "unset");
	second = engine_fixture_resume(&fx, first.inst, "Wait", "{\"text\": \"hello\"}");
	ck_assert_str_eq(engine_fixture_variable(&fx, second.inst, "said"), "\"hello\"");
	ck_assert_str_eq(engine_fixture_variable(&fx, second.inst, "total"), "null");
	ck_assert_str_eq(engine_fixture_variable(&fx, first.inst, "total"), "1");
}
END_TEST

START_TEST(the_payload_is_visible_until_the_next_wait)
{
	struct step_result first, second;

	add("Note", NODE_SCRIPT, "Start");
	model_script(model, "note = payload.text .. event.channel");
	add_wait("Note");
	add("After", NODE_SCRIPT, "Wait");
	model_script(model, "extra = {old = payload == nil, new = answer.text}");
	add("More", NODE_CATCH, "After");
	model_source(model, "answers");
	model_alias(model, "order", "payload.id", NULL, false);
	first = start("{\"id\": \"x\", \"text\": \"hi \"}");
	ck_assert_msg(!first.failed, "%s", first.failure.text);
	ck_assert_str_eq(engine_fixture_variable(&fx, first.inst, "note"), "\"hi in\"");
	second = engine_fixture_resume(&fx, first.inst, "Wait", "{\"text\": \"there\"}");
	ck_assert_msg(!second.failed, "%s", second.failure.text);
	ck_assert_str_eq(engine_fixture_variable(&fx, second.inst, "extra"),
			 "{\"new\":\"there\",\"old\":true}");
}
END_TEST

START_TEST(a_wait_with_a_value_registers_it)
{
	struct step_result first;

	add("Ask", NODE_SEND, "Start");
	model_send(model, "out", "{n = 1}");
	model_header(model, "x-req", "uuid('req')");
	add("Wait", NODE_CATCH, "Ask");
	model_source(model, "answers");
	model_alias(model, "req", "header['x-req']", "'r-' .. payload.id", false);
	model_alias(model, "order", "payload.id", NULL, false);
	first = start("{\"id\": \"A\"}");
	ck_assert_msg(!first.failed, "%s", first.failure.text);
	ck_assert_uint_eq(first.waits_added[0].key_count, 2);
	ck_assert_str_slice(first.waits_added[0].keys[0].name, STR("req"));
	ck_assert_str_slice(first.waits_added[0].keys[0].value, STR("r-A"));
	ck_assert_str_slice(first.waits_added[0].keys[1].value, STR("A"));
	ck_assert_uint_eq(first.aliases_added_count, 2);
	ck_assert_uint_eq(first.inst->alias_count, 2);
}
END_TEST

START_TEST(uuids_agree_within_a_node_and_differ_between)
{
	struct step_result a, b;

	add("One", NODE_SEND, "Start");
	model_send(model, "out", "uuid('req')");
	model_header(model, "same", "uuid('req')");
	model_header(model, "other", "uuid('else')");
	add("Two", NODE_SEND, "One");
	model_send(model, "out", "uuid('req')");
	add("End", NODE_END, "Two");
	a = start("{}");
	b = start("{}");
	ck_assert_uint_eq(a.send_count, 2);
	ck_assert(value_equal(&a.sends[0].body, &a.sends[0].headers.items[0].value));
	ck_assert(!value_equal(&a.sends[0].body, &a.sends[0].headers.items[1].value));
	ck_assert(!value_equal(&a.sends[0].body, &a.sends[1].body));
	ck_assert(value_equal(&a.sends[0].body, &b.sends[0].body));
}
END_TEST

START_TEST(a_wait_that_nothing_can_find_fails)
{
	struct step_result result;

	add("Wait", NODE_CATCH, "Start");
	model_source(model, "answers");
	model_alias(model, "other", "payload.id", NULL, false);
	result = start("{\"id\": 1}");
	ck_failed(&result, CODE_RUNTIME_STEP_FAILED, "Wait");
}
END_TEST

START_TEST(sends_carry_body_headers_and_key)
{
	struct step_result result;
	struct channel *keyed = model_channel(model, "keyed", CHANNEL_OUTBOUND);
	struct send_rule *send;
	char id[ID_TEXT_SIZE];

	keyed->key = model_expression(model, EXPRESSION_VALUE, "payload.key");
	add("Throw", NODE_THROW, "Start");
	send = model_send(model, "keyed", "{a = total, b = null}");
	send->required = true;
	send->content_type = STR("application/x-test");
	model_header(model, "gone", "nil");
	model_header(model, "kept", "42");
	add("Task", NODE_SEND, "Throw");
	model_send(model, "out", "payload");
	add("End", NODE_END, "Task");
	model_send(model, "keyed", "'bye'");
	result = start("{\"id\": 1, \"total\": 9, \"key\": 5}");
	ck_assert_msg(!result.failed, "%s", result.failure.text);
	ck_assert_uint_eq(result.send_count, 3);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(result.sends[i].ordinal, i);
	ck_assert_str_slice(result.sends[0].channel->name, STR("keyed"));
	ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[0].body), "{\"a\":9,\"b\":null}");
	ck_assert_uint_eq(result.sends[0].headers.count, 1);
	ck_assert_str_slice(result.sends[0].headers.items[0].name, STR("kept"));
	ck_assert_str_slice(result.sends[0].key, STR("5"));
	ck_assert(result.sends[0].required);
	ck_assert_str_slice(result.sends[0].content_type, STR("application/x-test"));
	ck_assert_str_slice(result.sends[1].key, str_of(id_format(fx.id, id)));
	ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[1].body),
			 "{\"id\":1,\"total\":9,\"key\":5}");
	ck_assert(!result.sends[1].required);
	ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[2].body), "\"bye\"");
}
END_TEST

START_TEST(a_throw_without_a_send_only_passes)
{
	struct step_result result;

	add("Mark", NODE_THROW, "Start");
	add("Manual", NODE_PASS, "Mark");
	add("End", NODE_END, "Manual");
	result = start("{}");
	ck_assert_int_eq(result.inst->status, INSTANCE_COMPLETED);
	ck_assert_uint_eq(result.send_count, 0);
}
END_TEST

/* Starts with a reply address, or without for NULL. */
static struct step_result start_with_reply(const char *destination)
{
	struct step_result result;
	struct event event;

	if (!fx.deployment)
		engine_fixture_init(&fx, &model);
	event = engine_fixture_event(&fx, "in", "{\"id\": 1}");
	event.reply.destination = str_of(destination);
	event.reply.correlation = value_int(77);
	ck_assert_int_eq(engine_start(&fx.env, fx.id, STR("acme"),
				      engine_fixture_node(&fx, "Start"), &event, &result, &fx.err),
			 RESULT_OK);
	return result;
}

START_TEST(a_reply_goes_to_its_address)
{
	struct step_result result;

	add("Answer", NODE_PASS, "Start");
	model_reply(model, "{ok = true}", NULL);
	add("End", NODE_END, "Answer");
	model_reply(model, "2", "out");
	result = start_with_reply("back-here");
	ck_assert_msg(!result.failed, "%s", result.failure.text);
	ck_assert_uint_eq(result.send_count, 2);
	ck_assert(result.sends[0].is_reply);
	ck_assert_str_slice(result.sends[0].channel->name, STR("in"));
	ck_assert_str_slice(result.sends[0].destination.destination, STR("back-here"));
	ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[0].destination.correlation), "77");
	ck_assert_str_slice(result.sends[1].channel->name, STR("out"));
	ck_assert_str_slice(result.sends[1].destination.destination, STR("back-here"));
}
END_TEST

START_TEST(a_reply_without_an_address_takes_a_channel)
{
	struct step_result result;

	model_channel(model, "in2", CHANNEL_INBOUND);
	add("Answer", NODE_END, "Start");
	model_reply(model, "1", "out");
	result = start_with_reply(NULL);
	ck_assert_uint_eq(result.send_count, 1);
	ck_assert_str_slice(result.sends[0].channel->name, STR("out"));
	ck_assert_ptr_null(result.sends[0].destination.destination.ptr);
}
END_TEST

START_TEST(a_reply_falls_back_to_the_reply_channel)
{
	struct step_result result;

	add("Answer", NODE_END, "Start");
	model_reply(model, "1", NULL);
	engine_fixture_init(&fx, &model);
	fx.deployment->channels[0]->reply_channel = STR("out");
	result = start_with_reply(NULL);
	ck_assert_str_slice(result.sends[0].channel->name, STR("out"));
	result = start_with_reply("there");
	ck_assert_str_slice(result.sends[0].channel->name, STR("out"));
	ck_assert_str_slice(result.sends[0].destination.destination, STR("there"));
}
END_TEST

START_TEST(a_reply_that_can_go_nowhere_fails)
{
	struct step_result result;

	add("Answer", NODE_END, "Start");
	model_reply(model, "1", NULL);
	result = start_with_reply(NULL);
	ck_failed(&result, CODE_OUTBOUND_NO_REPLY_ADDRESS, "Answer");
}
END_TEST

/* Start -> Which -> High (total > 100), Low (total > 10), else the default or none. */
static void add_gateway(bool with_default)
{
	add("Which", NODE_EXCLUSIVE, "Start");
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"High", "Low", "Other"};

		model_node(model, names[i], NODE_END);
		model_send(model, "out", (const char *[]){"'high'", "'low'", "'other'"}[i]);
	}
	if (with_default)
		model_default_flow(model, "Which", "Other");
	model_flow(model, "Which", "High", "total > 100");
	model_flow(model, "Which", "Low", "total > 10");
}

START_TEST(a_gateway_takes_the_first_flow_that_holds)
{
	static const char *const cases[][2] = {{"{\"total\": 500}", "\"high\""},
					       {"{\"total\": 50}", "\"low\""},
					       {"{\"total\": 5}", "\"other\""}};

	add_gateway(true);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct step_result result = start(cases[i][0]);

		ck_assert_uint_eq(result.send_count, 1);
		ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[0].body), cases[i][1]);
	}
}
END_TEST

START_TEST(a_gateway_without_a_way_fails)
{
	struct step_result result;

	add_gateway(false);
	result = start("{\"id\": \"A\", \"total\": 5}");
	ck_failed(&result, CODE_RUNTIME_STEP_FAILED, "Which");
	result = start("{\"id\": \"A\"}");
	ck_failed(&result, CODE_EXPRESSION_FAILED, "Which");
}
END_TEST

START_TEST(several_flows_out_of_a_task_run_side_by_side)
{
	struct step_result first, second, third;

	add("Split", NODE_PASS, "Start");
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"Left", "Middle", "Right"};

		model_node(model, names[i], NODE_CATCH);
		model_source(model, "answers");
		model_alias(model, "order", "payload.id", NULL, false);
	}
	model_flow(model, "Split", "Left", NULL);
	model_flow(model, "Split", "Middle", "false");
	model_flow(model, "Split", "Right", "payload.id == 1");
	first = start("{\"id\": 1}");
	ck_assert_uint_eq(first.inst->token_count, 2);
	ck_assert_uint_eq(first.waits_added_count, 2);
	ck_assert_str_slice(first.waits_added[0].node->id, STR("Left"));
	ck_assert_str_slice(first.waits_added[1].node->id, STR("Right"));
	second = engine_fixture_resume(&fx, first.inst, "Left", "{}");
	ck_assert_int_eq(second.inst->status, INSTANCE_SUSPENDED);
	ck_assert_uint_eq(second.inst->token_count, 1);
	ck_assert_uint_eq(second.aliases_removed_count, 0);
	third = engine_fixture_resume(&fx, second.inst, "Right", "{}");
	ck_assert_int_eq(third.inst->status, INSTANCE_COMPLETED);
	ck_assert_uint_eq(third.aliases_removed_count, 1);
}
END_TEST

START_TEST(branches_run_in_document_order)
{
	static const char *const names[] = {"A", "B", "C", "D"};
	struct step_result result;

	add("Split", NODE_PASS, "Start");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		add(names[i], NODE_SEND, "Split");
		model_send(model, "out", "1");
	}
	result = start("{}");
	ck_assert_int_eq(result.inst->status, INSTANCE_COMPLETED);
	ck_assert_uint_eq(result.send_count, ARRAY_LEN(names));
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ck_assert_str_slice(result.sends[i].node->id, str_of(names[i]));
}
END_TEST

START_TEST(scripts_assign_and_read_variables)
{
	struct step_result result;

	add("One", NODE_SCRIPT, "Start");
	model_script(model, "extra = {n = total + 1}\nnote = 'a'");
	add("Two", NODE_SCRIPT, "One");
	model_script(model, "total = extra.n * 2\nnote = note .. tenant .. process.id");
	model_reply(model, "total", "out");
	add("End", NODE_END, "Two");
	result = start("{\"total\": 4}");
	ck_assert_msg(!result.failed, "%s", result.failure.text);
	ck_assert_str_eq(engine_fixture_variable(&fx, result.inst, "total"), "10");
	ck_assert_str_eq(engine_fixture_variable(&fx, result.inst, "extra"), "{\"n\":5}");
	ck_assert_str_eq(engine_fixture_variable(&fx, result.inst, "note"), "\"aacmeorder\"");
	ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[0].body), "10");
}
END_TEST

START_TEST(a_value_of_the_wrong_type_fails_the_step)
{
	struct step_result result;

	add("Bad", NODE_SCRIPT, "Start");
	model_script(model, "note = 5");
	add("End", NODE_END, "Bad");
	result = start("{\"id\": 1, \"total\": 4}");
	ck_failed(&result, CODE_EXPRESSION_FAILED, "Bad");
	ck_assert_ptr_nonnull(strstr(result.failure.text, "note"));
}
END_TEST

START_TEST(too_large_variables_fail_the_step)
{
	struct step_result result;

	add("Grow", NODE_SCRIPT, "Start");
	model_script(model, "note = ('x'):rep(2000)");
	add("End", NODE_END, "Grow");
	engine_fixture_init(&fx, &model);
	fx.env.max_variables_bytes = 2100;
	result = start("{\"total\": 1}");
	ck_assert_msg(!result.failed, "%s", result.failure.text);
	fx.env.max_variables_bytes = 2000;
	result = start("{\"total\": 1}");
	ck_failed(&result, CODE_RUNTIME_VARIABLES_TOO_LARGE, "Grow");
}
END_TEST

START_TEST(a_loop_without_a_wait_is_stopped)
{
	struct step_result result;

	add("Round", NODE_PASS, "Start");
	model_flow(model, "Round", "Round", NULL);
	result = start("{\"id\": 1}");
	ck_failed(&result, CODE_RUNTIME_STEP_LIMIT, "Round");
}
END_TEST

START_TEST(a_loop_that_makes_too_much_is_stopped)
{
	struct step_result result;

	add("Round", NODE_SEND, "Start");
	model_send(model, "out", "('x'):rep(1000000)");
	model_flow(model, "Round", "Round", NULL);
	result = start("{\"id\": 1}");
	ck_failed(&result, CODE_RUNTIME_STEP_LIMIT, "Round");
}
END_TEST

START_TEST(an_error_at_a_start_rejects_the_message)
{
	static const struct {
		const char *json;
		bool rejected;
	} cases[] = {
		{"{\"id\": \"a\", \"total\": 1}", false},
		{"{\"id\": true}", false},
		{"{}", false},
		{"{\"id\": 1.5}", true},
		{"{\"id\": {}}", true},
		{"{\"id\": \"a\\u0000b\"}", true},
		{"{\"id\": \"a\", \"total\": \"x\"}", true},
	};

	add("End", NODE_END, "Start");
	engine_fixture_init(&fx, &model);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct event event = engine_fixture_event(&fx, "in", cases[i].json);
		struct step_result result;
		enum result got = engine_start(&fx.env, fx.id, STR("acme"),
					       engine_fixture_node(&fx, "Start"), &event, &result,
					       &fx.err);

		ck_assert_msg(got == (cases[i].rejected ? RESULT_REJECT : RESULT_OK), "%s: %d %s",
			      cases[i].json, got, fx.err.text);
		if (cases[i].rejected)
			ck_assert_int_eq(fx.err.code, CODE_EXPRESSION_FAILED);
	}
}
END_TEST

START_TEST(a_failed_step_leaves_the_instance_before_it)
{
	struct step_result first, second, third, restored;

	add_wait("Start");
	add("Change", NODE_SCRIPT, "Wait");
	model_script(model, "note = 'changed'\nif answer.bad then error('no') end");
	add("Tell", NODE_SEND, "Change");
	model_send(model, "out", "note");
	add("End", NODE_END, "Tell");
	first = start("{\"id\": 1, \"total\": 2}");
	second = engine_fixture_resume(&fx, first.inst, "Wait", "{\"bad\": true}");
	ck_failed(&second, CODE_EXPRESSION_FAILED, "Change");
	ck_assert_int_eq(second.inst->version, 2);
	ck_assert_str_eq(engine_fixture_variable(&fx, second.inst, "note"), "unset");
	ck_assert_str_eq(engine_fixture_variable(&fx, second.inst, "total"), "2");
	ck_assert_uint_eq(second.waits_removed_count, 1);
	ck_assert_str_slice(second.waits_removed[0].keys[0].value, STR("1"));
	ck_assert_uint_eq(second.aliases_removed_count, 0);
	ck_assert_uint_eq(second.inst->alias_count, 1);
	ck_assert(value_is_nil(&second.inst->failure_event));

	/* Nothing resumes it … */
	struct event event = engine_fixture_event(&fx, "answers", "{}");

	ck_assert_int_eq(engine_resume(&fx.env, second.inst, second.waits_removed[0].token, &event,
				       &third, &fx.err),
			 RESULT_AGAIN);
	/* … until it is restored, which is the exact inverse. */
	ck_assert_int_eq(engine_restore(&fx.env, engine_fixture_reload(&fx, second.inst), &restored,
					&fx.err),
			 RESULT_OK);
	ck_assert_int_eq(restored.inst->version, 3);
	ck_assert_uint_eq(restored.waits_added_count, 1);
	ck_assert_str_slice(restored.waits_added[0].keys[0].value, STR("1"));
	restored.inst->version = first.inst->version;
	ck_assert(instance_equal(restored.inst, first.inst));
	ck_assert_int_eq(engine_restore(&fx.env, restored.inst, &third, &fx.err), RESULT_AGAIN);
	third = engine_fixture_resume(&fx, restored.inst, "Wait", "{}");
	ck_assert_int_eq(third.inst->status, INSTANCE_COMPLETED);
	ck_assert_str_eq(engine_fixture_json(&fx, &third.sends[0].body), "\"changed\"");
}
END_TEST

START_TEST(a_failed_first_step_keeps_its_message)
{
	struct header_list headers = {(struct header[]){{STR("mode"), value_text(STR("bad"))}}, 1};
	struct step_result failed, again;
	struct instance *stored;
	struct event event;

	add("Try", NODE_SCRIPT, "Start");
	model_script(
		model,
		"if header.mode == extra then error('no') end\nnote = event.id .. header.mode");
	add_wait("Try");
	engine_fixture_init(&fx, &model);
	event = engine_fixture_event(&fx, "in", "{\"id\": \"A\", \"total\": 3}");
	event.headers = &headers;
	event.key = STR("\xff\x01");
	event.reply.destination = STR("there");
	ck_assert_int_eq(engine_start(&fx.env, fx.id, STR("acme"),
				      engine_fixture_node(&fx, "Start"), &event, &failed, &fx.err),
			 RESULT_OK);
	ck_failed(&failed, CODE_EXPRESSION_FAILED, "Try"); /* event.id is nil */
	ck_assert_int_eq(failed.inst->version, 1);
	ck_assert_uint_eq(failed.aliases_added_count, 1);
	ck_assert_uint_eq(failed.inst->token_count, 1);
	ck_assert_str_slice(failed.inst->tokens[0].node, STR("Start"));
	ck_assert_uint_eq(failed.inst->scopes[0].variable_count, 0);

	/* Run again as it was, it fails again and stays restorable. */
	stored = engine_fixture_reload(&fx, failed.inst);
	stored->failure_event = value_nil();
	ck_assert_int_eq(engine_restore(&fx.env, stored, &again, &fx.err), RESULT_FATAL);
	stored->failure_event = value_int(1);
	ck_assert_int_eq(engine_restore(&fx.env, stored, &again, &fx.err), RESULT_FATAL);
	stored = engine_fixture_reload(&fx, failed.inst);
	ck_assert_int_eq(engine_restore(&fx.env, stored, &again, &fx.err), RESULT_OK);
	ck_failed(&again, CODE_EXPRESSION_FAILED, "Try");
	ck_assert_int_eq(again.inst->version, 2);
	ck_assert_uint_eq(again.aliases_added_count, 0);
	ck_assert(value_equal(&again.inst->failure_event, &stored->failure_event));
}
END_TEST

START_TEST(a_failed_first_step_can_run_again)
{
	struct step_result failed, again;
	struct instance *stored;

	add("Try", NODE_SCRIPT, "Start");
	model_script(model, "note = ('x'):rep(3000)");
	add_wait("Try");
	engine_fixture_init(&fx, &model);
	fx.env.max_variables_bytes = 1000;
	failed = start("{\"id\": \"A\", \"total\": 3}");
	ck_failed(&failed, CODE_RUNTIME_VARIABLES_TOO_LARGE, "Try");
	stored = engine_fixture_reload(&fx, failed.inst);
	fx.env.max_variables_bytes = 10000;
	fx.env.now_us += 1000;
	ck_assert_int_eq(engine_restore(&fx.env, stored, &again, &fx.err), RESULT_OK);
	ck_assert_msg(!again.failed, "%s", again.failure.text);
	ck_assert_int_eq(again.inst->status, INSTANCE_SUSPENDED);
	ck_assert_int_eq(again.inst->version, 2);
	ck_assert_int_eq(again.inst->started_us, ENGINE_FIXTURE_NOW);
	ck_assert_uint_eq(again.aliases_added_count, 0);
	ck_assert_uint_eq(again.inst->alias_count, 1);
	ck_assert_uint_eq(again.waits_added_count, 1);
	ck_assert_str_eq(engine_fixture_variable(&fx, again.inst, "total"), "3");
	ck_assert_str_slice(again.inst->reply.channel, STR("in"));
}
END_TEST

START_TEST(a_wait_that_the_model_lacks_fails_the_step)
{
	struct step_result first, second;
	struct event event;

	add_wait("Start");
	add("End", NODE_END, "Wait");
	first = start("{\"id\": 1}");
	first.inst->tokens[0].node = STR("End");
	event = engine_fixture_event(&fx, "answers", "{}");
	ck_assert_int_eq(engine_resume(&fx.env, first.inst, first.inst->tokens[0].id, &event,
				       &second, &fx.err),
			 RESULT_OK);
	ck_assert(second.failed);
	ck_assert_int_eq(second.failure.code, CODE_RUNTIME_STEP_FAILED);
	ck_assert_uint_eq(second.waits_removed_count, 0);
	ck_assert_int_eq(engine_restore(&fx.env, second.inst, &first, &fx.err), RESULT_REJECT);
}
END_TEST

START_TEST(a_token_that_does_not_wait_is_resolved_again)
{
	struct step_result first, out;
	struct event event;

	add_wait("Start");
	first = start("{\"id\": 1}");
	event = engine_fixture_event(&fx, "answers", "{}");
	ck_assert_int_eq(engine_resume(&fx.env, first.inst, 99, &event, &out, &fx.err),
			 RESULT_AGAIN);
}
END_TEST

START_TEST(the_caller_can_fail_a_step)
{
	struct step_result first, out;
	struct error why = ERROR_INIT;
	struct event event;

	add_wait("Start");
	first = start("{\"id\": 1}");
	error_set(&why, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED, "cannot write it");
	engine_fail(&fx.env, first.inst, fx.id, STR("acme"), NULL, NULL, &why,
		    engine_fixture_node(&fx, "Wait"), &out);
	ck_failed(&out, CODE_OUTBOUND_ENCODE_FAILED, "Wait");
	ck_assert_int_eq(out.inst->version, 2);
	ck_assert_uint_eq(out.waits_removed_count, 1);
	event = engine_fixture_event(&fx, "in", "{\"id\": 2}");
	engine_fail(&fx.env, NULL, fx.id, STR("acme"), engine_fixture_node(&fx, "Start"), &event,
		    &why, engine_fixture_node(&fx, "Wait"), &out);
	ck_failed(&out, CODE_OUTBOUND_ENCODE_FAILED, "Wait");
	ck_assert_int_eq(out.inst->version, 1);
	ck_assert_uint_eq(out.aliases_added_count, 1);
}
END_TEST

START_TEST(unchanged_variables_are_shared)
{
	struct step_result first, second;

	add_wait("Start");
	add("More", NODE_CATCH, "Wait");
	model_source(model, "answers");
	model_alias(model, "order", "payload.id", NULL, false);
	first = start("{\"id\": 1, \"total\": 2}");
	/* `total` has a source; the same value again is no change. */
	first.inst->scopes[0].variable_count = 0;
	second = engine_fixture_resume(&fx, first.inst, "Wait", "{}");
	ck_assert_ptr_eq(second.inst->scopes, first.inst->scopes);
	ck_assert_ptr_eq(second.inst->aliases, first.inst->aliases);
}
END_TEST

static Suite *step_suite(void)
{
	Suite *suite = suite_create("engine/step");
	TCase *tcase = tcase_create("step");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, a_start_runs_to_its_end, a_wait_parks_and_resumes,
		     sources_are_taken_at_every_receive, the_payload_is_visible_until_the_next_wait,
		     a_wait_with_a_value_registers_it, uuids_agree_within_a_node_and_differ_between,
		     a_wait_that_nothing_can_find_fails, sends_carry_body_headers_and_key,
		     a_throw_without_a_send_only_passes, a_reply_goes_to_its_address,
		     a_reply_without_an_address_takes_a_channel,
		     a_reply_falls_back_to_the_reply_channel, a_reply_that_can_go_nowhere_fails,
		     a_gateway_takes_the_first_flow_that_holds, a_gateway_without_a_way_fails,
		     several_flows_out_of_a_task_run_side_by_side, branches_run_in_document_order,
		     scripts_assign_and_read_variables, a_value_of_the_wrong_type_fails_the_step,
		     too_large_variables_fail_the_step, a_loop_without_a_wait_is_stopped,
		     a_loop_that_makes_too_much_is_stopped, an_error_at_a_start_rejects_the_message,
		     a_failed_step_leaves_the_instance_before_it,
		     a_failed_first_step_keeps_its_message, a_failed_first_step_can_run_again,
		     a_wait_that_the_model_lacks_fails_the_step,
		     a_token_that_does_not_wait_is_resolved_again, the_caller_can_fail_a_step,
		     unchanged_variables_are_shared);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(step_suite)
