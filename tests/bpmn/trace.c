/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bpmn/trace.h"

#include <stdlib.h>

#include "engine/failed.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/random_instance.h"
#include "tests/support/testing.h"
#include "tests/unit/model/fixture.h"

static const char conf[] = "tenant = \"acme\"; module = \"m\"; version = \"1\";\n";
static const char channels[] =
	"channels = ( { name = \"in\"; transport = \"local\"; reply-channel = \"out\"; },\n"
	" { name = \"a\"; transport = \"local\"; }, { name = \"b\"; transport = \"local\"; },\n"
	" { name = \"c\"; transport = \"local\"; }, { name = \"d\"; transport = \"local\"; },\n"
	" { name = \"out\"; direction = \"outbound\"; transport = \"kafka\"; bind = \"out\"; },\n"
	" { name = \"out2\"; direction = \"outbound\"; transport = \"kafka\"; bind = \"out2\"; } );\n";

/* What a store would hold of the instance's waits. */
struct ledger {
	struct step_wait waits[1000];
	uint32_t count;
	struct step_timer timers[1000];
	uint32_t timer_count;
	int64_t aliases;
};

struct trace {
	const char *name;
	int line;
	struct engine_fixture fx;
	struct view *view;
	struct ledger ledger;
	struct step_result result; /* of the last step */
	struct instance *inst;     /* to go on with */
	bool any;
	uint32_t seen_sends, seen_waits;
	bool seen_failure, seen_status;
	int64_t step_us; /* when the last step was */
	unsigned step, crash;
};

#define trace_fail(trace, ...) \
	ck_abort_msg("%s.trace:%d (crash %d): %s", (trace)->name, (trace)->line, \
		     (int)(trace)->crash, arena_printf(&(trace)->fx.arena, __VA_ARGS__))

static void load(struct trace *trace)
{
	char *path, *text;
	struct package *package;
	struct deployment *deployment = NULL;
	struct findings findings = {0};
	struct buf name = BUF_INIT, wrong = BUF_INIT;
	struct view_member member;
	size_t len;

	buf_printf(&name, "tests/bpmn/cases/%s.bpmn", trace->name);
	path = test_source_path(name.data);
	text = test_file_read(path, &len);
	package = fixture_package(str_of(conf), str_of(channels), str_make(text, len));
	ck_assert_msg(package_build(package, &deployment, &findings) == RESULT_OK, "%s: %s",
		      trace->name, findings.text.data);
	ck_assert_msg(findings.warnings == 0, "%s: %s", trace->name, findings.text.data);
	findings_done(&findings);
	package_free(&package);
	engine_fixture_init_deployment(&trace->fx, deployment);
	member = (struct view_member){deployment, DEPLOYMENT_ACTIVE};
	ck_assert_int_eq(view_build(1, &member, 1, &trace->view, &wrong), RESULT_OK);
	buf_done(&wrong);
	buf_done(&name);
	free(text);
	free(path);
}

static struct str next_word(struct str *rest)
{
	struct str word;
	size_t len = 0;

	while (rest->len && (rest->ptr[0] == ' ' || rest->ptr[0] == '\t')) {
		rest->ptr++;
		rest->len--;
	}
	while (len < rest->len && rest->ptr[len] != ' ' && rest->ptr[len] != '\t')
		len++;
	word = str_make(rest->ptr, len);
	rest->ptr += len;
	rest->len -= len;
	return word;
}

/* Effects. */

static bool same_wait(const struct step_wait *a, const struct step_wait *b)
{
	if (a->token != b->token || a->node != b->node || a->key_count != b->key_count)
		return false;
	for (uint32_t i = 0; i < a->key_count; i++)
		if (!str_equal(a->keys[i].name, b->keys[i].name) ||
		    !str_equal(a->keys[i].value, b->keys[i].value))
			return false;
	return true;
}

static void ledger_apply_timers(struct trace *trace)
{
	struct ledger *ledger = &trace->ledger;
	const struct step_result *result = &trace->result;

	for (uint32_t i = 0; i < result->timers_removed_count; i++) {
		const struct step_timer *gone = &result->timers_removed[i];
		uint32_t at = 0;

		while (at < ledger->timer_count && (ledger->timers[at].token != gone->token ||
						    ledger->timers[at].due_us != gone->due_us))
			at++;
		if (at == ledger->timer_count)
			trace_fail(trace, "a timer at %.*s is removed that was not there",
				   STR_ARG(gone->node->id));
		ledger->timers[at] = ledger->timers[--ledger->timer_count];
	}
	for (uint32_t i = 0; i < result->timers_added_count; i++) {
		ck_assert_uint_lt(ledger->timer_count, ARRAY_LEN(ledger->timers));
		ledger->timers[ledger->timer_count++] = result->timers_added[i];
	}
}

/* The timers that the effects have left are those on the tokens: one each at most. */
static void ledger_check_timers(struct trace *trace)
{
	const struct instance *inst = trace->result.inst;
	const struct ledger *ledger = &trace->ledger;
	uint32_t count = 0;

	for (uint32_t i = 0; inst->status == INSTANCE_SUSPENDED && i < inst->token_count; i++)
		count += inst->tokens[i].due_us != 0;
	if (count != ledger->timer_count)
		trace_fail(trace, "the instance has %u timers, its effects made %u", count,
			   ledger->timer_count);
	for (uint32_t i = 0; i < ledger->timer_count; i++) {
		const struct token *token = instance_token(inst, ledger->timers[i].token);

		if (!token || token->due_us != ledger->timers[i].due_us ||
		    !str_equal(token->node, ledger->timers[i].node->id))
			trace_fail(trace, "the timer at %.*s is not the token's",
				   STR_ARG(ledger->timers[i].node->id));
		for (uint32_t k = 0; k < i; k++)
			if (ledger->timers[k].token == ledger->timers[i].token)
				trace_fail(trace, "a token has two timers");
	}
}

static void ledger_apply(struct trace *trace)
{
	struct ledger *ledger = &trace->ledger;
	const struct step_result *result = &trace->result;

	for (uint32_t i = 0; i < result->waits_removed_count; i++) {
		uint32_t at = 0;

		while (at < ledger->count && !same_wait(&ledger->waits[at], &result->waits_removed[i]))
			at++;
		if (at == ledger->count)
			trace_fail(trace, "a wait at %.*s is removed that was not there",
			     STR_ARG(result->waits_removed[i].node->id));
		ledger->waits[at] = ledger->waits[--ledger->count];
	}
	for (uint32_t i = 0; i < result->waits_added_count; i++) {
		ck_assert_uint_lt(ledger->count, ARRAY_LEN(ledger->waits));
		ledger->waits[ledger->count++] = result->waits_added[i];
	}
	ledger->aliases += (int64_t)result->aliases_added_count - result->aliases_removed_count;
}

/* The waits that the effects have left are those that the instance has, and its tokens are at rest. */
static void ledger_check(struct trace *trace)
{
	const struct instance *inst = trace->result.inst;
	struct ledger *ledger = &trace->ledger;
	struct step_wait *waits;
	uint32_t count = 0;

	waits = instance_waits(&trace->fx.arena, inst, trace->fx.deployment, &count);
	if (inst->status != INSTANCE_SUSPENDED)
		count = 0;
	if (count != ledger->count)
		trace_fail(trace, "the instance has %u waits, its effects made %u", count, ledger->count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = 0;

		while (at < ledger->count && !same_wait(&ledger->waits[at], &waits[i]))
			at++;
		if (at == ledger->count)
			trace_fail(trace, "the wait at %.*s was never added", STR_ARG(waits[i].node->id));
	}
	if (ledger->aliases != inst->alias_count)
		trace_fail(trace, "the instance has %u aliases, its effects made %d", inst->alias_count,
		     (int)ledger->aliases);
	for (uint32_t i = 0; i < inst->token_count; i++)
		if (inst->tokens[i].state == TOKEN_READY && inst->status != INSTANCE_FAILED)
			trace_fail(trace, "a token is ready behind the step");
}

/* Inputs. */

/* A step that was lost before its commit is computed again, and must not come out differently. */
static void check_same(struct trace *trace, const struct step_result *a, const struct step_result *b)
{
	bool same = instance_equal(a->inst, b->inst) && a->send_count == b->send_count &&
		    a->timers_added_count == b->timers_added_count &&
		    a->timers_removed_count == b->timers_removed_count &&
		    a->waits_added_count == b->waits_added_count &&
		    a->waits_removed_count == b->waits_removed_count;

	for (uint32_t i = 0; same && i < a->send_count; i++)
		same = value_equal(&a->sends[i].body, &b->sends[i].body) &&
		       a->sends[i].node == b->sends[i].node;
	for (uint32_t i = 0; same && i < a->waits_added_count; i++)
		same = same_wait(&a->waits_added[i], &b->waits_added[i]);
	if (!same)
		trace_fail(trace, "the step comes out differently when it is computed again");
}

static void step_done(struct trace *trace)
{
	ledger_apply(trace);
	ledger_check(trace);
	ledger_apply_timers(trace);
	ledger_check_timers(trace);
	trace->inst = trace->result.inst;
	if (trace->step++ == trace->crash || trace->crash == CRASH_ALWAYS) {
		struct instance *back = engine_fixture_reload(&trace->fx, trace->inst);

		if (!instance_equal(back, trace->inst))
			trace_fail(trace, "the snapshot holds something else");
		trace->inst = back;
	}
	trace->any = true;
	trace->seen_sends = trace->seen_waits = 0;
	trace->seen_failure = trace->seen_status = false;
	trace->step_us = trace->fx.env.now_us++;
}

/* Nothing was seen that the trace does not say. */
static void expectations_done(struct trace *trace)
{
	const struct instance *inst = trace->inst;

	if (!trace->any)
		return;
	if (inst->status == INSTANCE_FAILED && !trace->seen_failure)
		trace_fail(trace, "the step failed: %s: %s", code_text(trace->result.failure.code),
		     trace->result.failure.text);
	if (trace->seen_sends != trace->result.send_count)
		trace_fail(trace, "the step sent %u messages", trace->result.send_count);
	if (inst->status == INSTANCE_SUSPENDED && !trace->seen_waits)
		trace_fail(trace, "the instance waits, and the trace says not where");
}

static struct event read_event(struct trace *trace, struct str rest)
{
	struct str channel = next_word(&rest), word;
	struct event event;
	struct str type = STR_NONE;
	struct header_list *headers = arena_zalloc(&trace->fx.arena, sizeof(*headers));

	headers->items = arena_alloc(&trace->fx.arena, 8 * sizeof(*headers->items));
	for (;;) {
		struct str after = rest, name, value;
		ptrdiff_t equals;

		word = next_word(&after);
		equals = str_find(word, '=');
		if (equals <= 0 || !(word.ptr[0] >= 'a' && word.ptr[0] <= 'z'))
			break;
		name = str_make(word.ptr, (size_t)equals);
		value = str_make(word.ptr + equals + 1, word.len - (size_t)equals - 1);
		if (str_equal(name, STR("type")))
			type = value;
		else
			headers->items[headers->count++] = (struct header){name, value_text(value)};
		ck_assert_uint_lt(headers->count, 8);
		rest = after;
	}
	while (rest.len && rest.ptr[0] == ' ')
		rest = str_make(rest.ptr + 1, rest.len - 1);
	event = engine_fixture_event(&trace->fx, arena_str(&trace->fx.arena, channel).ptr,
				     arena_str(&trace->fx.arena, rest).ptr);
	event.type = type;
	event.headers = headers;
	return event;
}

static void do_start(struct trace *trace, struct str rest)
{
	struct event event = read_event(trace, rest);
	const struct route *route = view_route(trace->view, STR("acme"), event.channel);
	struct step_result again;

	if (trace->any)
		trace_fail(trace, "a trace is of one instance");
	for (uint32_t i = 0; route && i < route->start_count; i++) {
		const struct node *node = route->starts[i].node;

		if (!source_takes_type(node->source, event.type))
			continue;
		for (int round = 0; round < 2; round++)
			if (engine_start(&trace->fx.env, trace->fx.id, STR("acme"), node, &event,
					 round ? &again : &trace->result,
					 &trace->fx.err) != RESULT_OK)
				trace_fail(trace, "start: %s", trace->fx.err.text);
		check_same(trace, &trace->result, &again);
		step_done(trace);
		return;
	}
	trace_fail(trace, "nothing starts on this message");
}

static bool keys_meet(struct trace *trace, const struct token *token, const struct node *node,
		      const struct event *event)
{
	struct instance_wait_key *keys;
	uint32_t count;

	if (engine_correlate(&trace->fx.env, STR("acme"), node, event, &keys, &count,
			     &trace->fx.err) != RESULT_OK)
		trace_fail(trace, "correlate: %s", trace->fx.err.text);
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < token->key_count; k++)
			if (str_equal(keys[i].name, token->keys[k].name) &&
			    str_equal(keys[i].value, token->keys[k].value))
				return true;
	return false;
}

/* The wait that the message is for: one that the view subscribes to the channel, and of those the oldest token. */
static const struct token *find_wait(struct trace *trace, const struct event *event)
{
	const struct route *route = view_route(trace->view, STR("acme"), event->channel);
	const struct instance *inst = trace->inst;

	for (uint32_t i = 0; inst->status == INSTANCE_SUSPENDED && i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		const struct node *node = wait_node(trace->fx.deployment, inst, token);

		for (uint32_t k = 0; node && route && k < route->wait_count; k++)
			if (route->waits[k].node == node &&
			    source_takes_type(node->source, event->type) &&
			    keys_meet(trace, token, node, event))
				return token;
	}
	return NULL;
}

static void do_message(struct trace *trace, struct str rest)
{
	struct event event = read_event(trace, rest);
	const struct token *token = find_wait(trace, &event);
	struct step_result again;

	if (!token)
		trace_fail(trace, "no wait takes the message");
	for (int round = 0; round < 2; round++)
		if (engine_resume(&trace->fx.env, trace->inst, token->id, &event,
				  round ? &again : &trace->result, &trace->fx.err) != RESULT_OK)
			trace_fail(trace, "resume: %s", trace->fx.err.text);
	check_same(trace, &trace->result, &again);
	step_done(trace);
}

static int64_t read_duration(struct trace *trace, struct str text)
{
	int64_t us = 0;

	if (!iso_duration_parse(text, &us))
		trace_fail(trace, "%.*s is no duration", STR_ARG(text));
	return us;
}

/* Moves the clock to the time, and by what the rest says beyond it. */
static void come(struct trace *trace, int64_t due_us, struct str rest)
{
	int64_t *now_us = &trace->fx.env.now_us;
	struct str word = next_word(&rest);

	if (*now_us < due_us)
		*now_us = due_us;
	if (str_equal(word, STR("late")))
		*now_us = due_us + read_duration(trace, next_word(&rest));
	else if (word.len)
		trace_fail(trace, "no such word: %.*s", STR_ARG(word));
}

/* A timer starts the instance: as the trace has one instance only, at its first time. */
static void do_start_timer(struct trace *trace, struct str rest)
{
	struct str id = next_word(&rest);
	const struct process *process = trace->fx.deployment->processes[0];
	const struct node *node = process_node(process, id);
	struct event event = {.headers = NULL};
	struct step_result again;
	int64_t remaining;

	if (trace->any || !node || node->kind != NODE_START_TIMER)
		trace_fail(trace, "no timer starts the instance at %.*s", STR_ARG(id));
	if (!timer_first(node->timer, trace->fx.env.now_us, &event.time_us, &remaining))
		trace_fail(trace, "its times have passed");
	come(trace, event.time_us, rest);
	for (int round = 0; round < 2; round++)
		if (engine_start(&trace->fx.env, trace->fx.id, STR("acme"), node, &event,
				 round ? &again : &trace->result, &trace->fx.err) != RESULT_OK)
			trace_fail(trace, "start: %s", trace->fx.err.text);
	check_same(trace, &trace->result, &again);
	step_done(trace);
}

/* The oldest token at the node that has a timer. */
static const struct token *find_timer(struct trace *trace, struct str node)
{
	const struct instance *inst = trace->inst;

	for (uint32_t i = 0; inst->status == INSTANCE_SUSPENDED && i < inst->token_count; i++)
		if (inst->tokens[i].due_us && str_equal(inst->tokens[i].node, node))
			return &inst->tokens[i];
	return NULL;
}

/* A fire that is stale, and a message for what waits for none, change nothing. */
static void check_refusals(struct trace *trace, const struct token *token)
{
	const struct node *node = wait_node(trace->fx.deployment, trace->inst, token);
	struct event event = engine_fixture_event(&trace->fx, "a", "{\"id\": 1}");
	struct step_result none;

	if (engine_fire(&trace->fx.env, trace->inst, token->id, token->due_us + 1, &none,
			&trace->fx.err) != RESULT_AGAIN)
		trace_fail(trace, "a stale timer fires");
	if (!node->source && engine_resume(&trace->fx.env, trace->inst, token->id, &event, &none,
					   &trace->fx.err) != RESULT_AGAIN)
		trace_fail(trace, "a message resumes a timer");
}

static void do_fire(struct trace *trace, struct str rest)
{
	struct str id = next_word(&rest);
	const struct token *token = find_timer(trace, id);
	struct step_result again;

	if (!token)
		trace_fail(trace, "no timer at %.*s", STR_ARG(id));
	check_refusals(trace, token);
	come(trace, token->due_us, rest);
	for (int round = 0; round < 2; round++)
		if (engine_fire(&trace->fx.env, trace->inst, token->id, token->due_us,
				round ? &again : &trace->result, &trace->fx.err) != RESULT_OK)
			trace_fail(trace, "fire: %s", trace->fx.err.text);
	check_same(trace, &trace->result, &again);
	step_done(trace);
}

static void do_cancel(struct trace *trace)
{
	if (engine_cancel(&trace->fx.env, trace->inst, &trace->result, &trace->fx.err) != RESULT_OK)
		trace_fail(trace, "cancel: %s", trace->fx.err.text);
	step_done(trace);
}

/* It fails from outside of the engine, as when a body cannot be coded. */
static void do_fail(struct trace *trace)
{
	struct error why = ERROR_INIT;

	error_set(&why, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED, "not written");
	engine_fail(&trace->fx.env, trace->inst, trace->fx.id, STR("acme"), NULL, NULL, &why, NULL,
		    &trace->result);
	trace->result.send_count = 0;
	step_done(trace);
	trace->seen_failure = true;
}

static void do_restore(struct trace *trace)
{
	if (engine_restore(&trace->fx.env, trace->inst, &trace->result, &trace->fx.err) != RESULT_OK)
		trace_fail(trace, "restore: %s", trace->fx.err.text);
	step_done(trace);
}

/* Expectations. */

static void see_waits(struct trace *trace, struct str rest)
{
	const struct instance *inst = trace->inst;
	struct buf have = BUF_INIT, want = BUF_INIT;

	for (uint32_t i = 0; inst->status == INSTANCE_SUSPENDED && i < inst->token_count; i++)
		if (inst->tokens[i].state == TOKEN_WAITING)
			buf_printf(&have, "%.*s ", STR_ARG(inst->tokens[i].node));
	for (struct str word = next_word(&rest); word.len; word = next_word(&rest))
		buf_printf(&want, "%.*s ", STR_ARG(word));
	if (!str_equal(buf_str(&have), buf_str(&want)))
		trace_fail(trace, "it waits at %.*s", STR_ARG(buf_str(&have)));
	buf_done(&have);
	buf_done(&want);
	trace->seen_waits++;
}

static void see_send(struct trace *trace, struct str rest)
{
	struct str channel = next_word(&rest);
	const struct step_send *send;
	const char *have, *want;
	msgpack_object value;

	if (trace->seen_sends >= trace->result.send_count)
		trace_fail(trace, "the step sent only %u messages", trace->result.send_count);
	send = &trace->result.sends[trace->seen_sends++];
	value = engine_fixture_value(&trace->fx, arena_str(&trace->fx.arena, rest).ptr);
	want = engine_fixture_json(&trace->fx, &value);
	have = engine_fixture_json(&trace->fx, &send->body);
	if (!str_equal(send->channel->name, channel) || strcmp(have, want) != 0)
		trace_fail(trace, "it sent %s to %.*s", have, STR_ARG(send->channel->name));
}

static void see_variable(struct trace *trace, struct str rest)
{
	struct str name = next_word(&rest);
	const char *have = engine_fixture_variable(&trace->fx, trace->inst,
						   arena_str(&trace->fx.arena, name).ptr);

	next_word(&(struct str){rest.ptr, rest.len});
	while (rest.len && rest.ptr[0] == ' ')
		rest = str_make(rest.ptr + 1, rest.len - 1);
	if (!str_equal(str_of(have), rest))
		trace_fail(trace, "%.*s is %s", STR_ARG(name), have);
}

/* "NODE DURATION …": the timers in the order of their tokens, and how long after the step they are due. */
static void see_timers(struct trace *trace, struct str rest)
{
	const struct instance *inst = trace->inst;

	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		struct str node, span;
		int64_t want;

		if (!token->due_us)
			continue;
		node = next_word(&rest);
		span = next_word(&rest);
		want = str_starts_with(span, STR("-"))
			       ? -read_duration(trace, str_make(span.ptr + 1, span.len - 1))
		       : span.len ? read_duration(trace, span)
				  : 0;
		if (!str_equal(node, token->node) || token->due_us - trace->step_us != want)
			trace_fail(trace, "the timer at %.*s is due after %lld us",
				   STR_ARG(token->node), (long long)(token->due_us - trace->step_us));
	}
	if (next_word(&rest).len)
		trace_fail(trace, "there are fewer timers");
}

static void see_failure(struct trace *trace, struct str rest)
{
	const struct instance *inst = trace->inst;
	struct str code = next_word(&rest), node = next_word(&rest);

	if (inst->status != INSTANCE_FAILED || !str_equal(inst->failure_code, code) ||
	    !str_equal(inst->failure_node, node))
		trace_fail(trace, "it is %s: %.*s at %.*s: %.*s", instance_status_name(inst->status),
		     STR_ARG(inst->failure_code), STR_ARG(inst->failure_node),
		     STR_ARG(inst->failure_detail));
	trace->seen_failure = true;
}

static void see_open(struct trace *trace, struct str rest)
{
	int64_t count;

	if (!str_to_int64(next_word(&rest), &count) ||
	    count != (int64_t)trace->inst->scope_count - 1)
		trace_fail(trace, "%u scopes are open", trace->inst->scope_count - 1);
}

static void see_joins(struct trace *trace, struct str rest)
{
	const struct instance *inst = trace->inst;
	struct buf have = BUF_INIT, want = BUF_INIT;

	for (uint32_t i = 0; i < inst->token_count; i++)
		if (inst->tokens[i].state == TOKEN_JOINING)
			buf_printf(&have, "%.*s ", STR_ARG(inst->tokens[i].node));
	for (struct str word = next_word(&rest); word.len; word = next_word(&rest))
		buf_printf(&want, "%.*s ", STR_ARG(word));
	if (!str_equal(buf_str(&have), buf_str(&want)))
		trace_fail(trace, "tokens join at %.*s", STR_ARG(buf_str(&have)));
	buf_done(&have);
	buf_done(&want);
}

/* A header of the message seen last. */
static void see_header(struct trace *trace, struct str rest)
{
	struct str name = next_word(&rest), want = next_word(&rest);
	const struct header *header;
	const char *have = "unset";

	if (!trace->seen_sends)
		trace_fail(trace, "no message was seen yet");
	header = header_find(&trace->result.sends[trace->seen_sends - 1].headers, name);
	if (header)
		have = engine_fixture_json(&trace->fx, &header->value);
	if (!str_equal(str_of(have), want))
		trace_fail(trace, "the header %.*s is %s", STR_ARG(name), have);
}

static void see_withdrawn(struct trace *trace, struct str rest)
{
	int64_t count;

	if (!str_to_int64(next_word(&rest), &count) || count != trace->result.withdrawn_count)
		trace_fail(trace, "%u requests are withdrawn", trace->result.withdrawn_count);
}

static void see_status(struct trace *trace, enum instance_status status)
{
	if (trace->inst->status != status)
		trace_fail(trace, "it is %s", instance_status_name(trace->inst->status));
}

static void do_line(struct trace *trace, struct str line)
{
	struct str rest = line, word = next_word(&rest);
	bool input = line.len && line.ptr[0] != ' ' && line.ptr[0] != '\t';

	if (!word.len || word.ptr[0] == '#')
		return;
	if (input)
		expectations_done(trace);
	if (str_equal(word, STR("start")))
		do_start(trace, rest);
	else if (str_equal(word, STR("message")))
		do_message(trace, rest);
	else if (str_equal(word, STR("start-timer")))
		do_start_timer(trace, rest);
	else if (str_equal(word, STR("fire")))
		do_fire(trace, rest);
	else if (str_equal(word, STR("pass")))
		trace->fx.env.now_us += read_duration(trace, next_word(&rest));
	else if (str_equal(word, STR("fail")))
		do_fail(trace);
	else if (str_equal(word, STR("cancel")))
		do_cancel(trace);
	else if (str_equal(word, STR("restore")))
		do_restore(trace);
	else if (str_equal(word, STR("nobody"))) {
		struct event event = read_event(trace, rest);

		if (find_wait(trace, &event))
			trace_fail(trace, "a wait takes the message");
	} else if (str_equal(word, STR("waits")))
		see_waits(trace, rest);
	else if (str_equal(word, STR("sends")))
		see_send(trace, rest);
	else if (str_equal(word, STR("joins")))
		see_joins(trace, rest);
	else if (str_equal(word, STR("open")))
		see_open(trace, rest);
	else if (str_equal(word, STR("var")))
		see_variable(trace, rest);
	else if (str_equal(word, STR("failed")))
		see_failure(trace, rest);
	else if (str_equal(word, STR("header")))
		see_header(trace, rest);
	else if (str_equal(word, STR("withdrawn")))
		see_withdrawn(trace, rest);
	else if (str_equal(word, STR("timers")))
		see_timers(trace, rest);
	else if (str_equal(word, STR("completed")))
		see_status(trace, INSTANCE_COMPLETED);
	else if (str_equal(word, STR("terminated")))
		see_status(trace, INSTANCE_TERMINATED);
	else
		trace_fail(trace, "no such line: %.*s", STR_ARG(line));
}

unsigned trace_run(const char *name, unsigned crash)
{
	static struct trace trace; /* large, and each test has a process of its own */
	struct buf path = BUF_INIT;
	char *full, *text;
	size_t len;

	memset(&trace, 0, sizeof(trace));
	trace.name = name;
	trace.crash = crash;
	load(&trace);
	buf_printf(&path, "tests/bpmn/cases/%s.trace", name);
	full = test_source_path(path.data);
	text = test_file_read(full, &len);
	for (char *line = text; line && *line;) {
		char *end = strchr(line, '\n');

		trace.line++;
		do_line(&trace, str_make(line, end ? (size_t)(end - line) : strlen(line)));
		line = end ? end + 1 : NULL;
	}
	expectations_done(&trace);
	if (!trace.any)
		trace_fail(&trace, "the trace has no start");
	view_unref(&trace.view);
	engine_fixture_done(&trace.fx);
	free(text);
	free(full);
	buf_done(&path);
	return trace.step;
}
