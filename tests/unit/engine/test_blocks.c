/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of whole runs of random processes that are well-formed: blocks in blocks, each of one entry and one exit. They
 * are written as diagrams and loaded as any, so none may be refused, nor warned of. Then, whatever message or timer comes when:
 *   - a run that goes through its snapshot after every step equals one that stays in memory;
 *   - no step fails, and each ends the instance or leaves it waiting for something;
 *   - tokens are conserved: as many leave a block as came in, unless something interrupted one around it; each open scope
 *     has a token in it;
 *   - to fail an instance and to restore it changes nothing, and the effects on the waits and timers cancel out.
 */
#include "engine/behaviour.h"

#include "tests/support/engine_fixture.h"
#include "tests/support/random_instance.h"
#include "tests/support/testing.h"
#include "tests/unit/model/fixture.h"

#define MAX_BLOCKS 400
#define MAX_STEPS  120

static const char channels[] =
	"channels = ( { name = \"in\"; transport = \"local\"; }, { name = \"a\"; transport = \"local\"; },\n"
	" { name = \"out\"; direction = \"outbound\"; transport = \"kafka\"; bind = \"out\"; } );\n";

struct writer {
	struct random_source *random;
	struct buf nodes;  /* elements of the container that is open */
	unsigned ids;      /* given so far */
	unsigned blocks;   /* with marks */
	unsigned depth;
	struct arena texts;
	bool interrupts;   /* something in it may end a block early */
};

#define WAIT_RULES \
	"<extensionElements><q:source channel=\"a\"/><q:alias name=\"id\" expression=\"payload.id\"/>" \
	"</extensionElements>"

static unsigned new_id(struct writer *writer)
{
	return writer->ids++;
}

/* What makes an event wait: for the message, or for a time. */
static const char *random_event_rules(struct writer *writer)
{
	static const char *const timers[] = {
		"<timeDuration>PT10S</timeDuration>",
		"<timeDuration>=('PT' .. (n or 0) .. 'S')</timeDuration>",
		"<timeDate>2027-01-15T08:01:00Z</timeDate>",
		"<timeDate>=now('PT0.5S')</timeDate>",
		"<timeCycle>R/PT7S</timeCycle>",
		"<timeCycle>R3/PT7S</timeCycle>",
		"<timeCycle>=(payload and 'R2/PT3S' or 'R4/2027-01-15T08:00:05Z/PT1M')</timeCycle>",
	};

	if (random_below(writer->random, 2))
		return WAIT_RULES "<messageEventDefinition/>";
	return arena_printf(&writer->texts, "<timerEventDefinition>%s</timerEventDefinition>",
			    timers[random_below(writer->random, ARRAY_LEN(timers))]);
}

static void flow(struct writer *writer, unsigned from, unsigned to, const char *condition)
{
	buf_printf(&writer->nodes, "<sequenceFlow id=\"f%u\" sourceRef=\"n%u\" targetRef=\"n%u\">",
		   new_id(writer), from, to);
	if (condition)
		buf_printf(&writer->nodes, "<conditionExpression>%s</conditionExpression>", condition);
	buf_add_text(&writer->nodes, "</sequenceFlow>\n");
}

static unsigned mark(struct writer *writer, unsigned block, bool out)
{
	unsigned id = new_id(writer);

	buf_printf(&writer->nodes,
		   "<sendTask id=\"n%u\"><extensionElements><q:send channel=\"out\" body=\"{%u, %s}\"/>"
		   "</extensionElements></sendTask>\n",
		   id, block, out ? "true" : "false");
	return id;
}

/* Blocks give back their entry and exit. */
struct block {
	unsigned in, out;
};
static struct block any_block(struct writer *writer);

static const char *random_condition(struct writer *writer)
{
	static const char *const conditions[] = {"(n or 0) % 2 == 0", "(n or 0) % 3 == 1", "false",
						 "true", "payload and payload.x == 1"};

	return conditions[random_below(writer->random, ARRAY_LEN(conditions))];
}

static void side_path(struct writer *writer, unsigned from);

/* A boundary event beside a wait, which goes on. */
static void reminder(struct writer *writer, unsigned host)
{
	unsigned event = new_id(writer);

	buf_printf(&writer->nodes,
		   "<boundaryEvent id=\"n%u\" attachedToRef=\"n%u\" cancelActivity=\"false\">%s</boundaryEvent>\n",
		   event, host, random_event_rules(writer));
	side_path(writer, event);
}

static struct block leaf(struct writer *writer)
{
	static const char *const waits[] = {"receiveTask", "userTask"};
	unsigned id = new_id(writer);
	const char *kind = waits[random_below(writer->random, 2)];

	switch (random_below(writer->random, 6)) {
	case 4:
		buf_printf(&writer->nodes, "<intermediateCatchEvent id=\"n%u\">%s</intermediateCatchEvent>\n",
			   id, random_event_rules(writer));
		break;
	case 5:
		buf_printf(&writer->nodes, "<%s id=\"n%u\">" WAIT_RULES "</%s>\n", kind, id, kind);
		reminder(writer, id);
		break;
	case 0:
		buf_printf(&writer->nodes,
			   "<scriptTask id=\"n%u\"><script>n = (n or 0) + 1</script></scriptTask>\n", id);
		break;
	case 1:
		buf_printf(&writer->nodes, "<task id=\"n%u\"/>\n", id);
		break;
	default:
		buf_printf(&writer->nodes, "<%s id=\"n%u\">" WAIT_RULES "</%s>\n", kind, id, kind);
	}
	return (struct block){id, id};
}

static struct block sequence(struct writer *writer)
{
	struct block first = any_block(writer), second = any_block(writer);

	flow(writer, first.out, second.in, NULL);
	return (struct block){first.in, second.out};
}

/* A gateway, branches, and a gateway that joins them; a default flow for those that choose. */
static struct block branches(struct writer *writer, const char *kind, bool chooses)
{
	unsigned split = new_id(writer), join = new_id(writer), fallback;
	uint64_t count = 2 + random_below(writer->random, 2);

	for (uint64_t i = 0; i < count; i++) {
		struct block block = any_block(writer);

		flow(writer, split, block.in, chooses ? random_condition(writer) : NULL);
		flow(writer, block.out, join, NULL);
	}
	fallback = writer->ids;
	if (chooses)
		flow(writer, split, join, NULL);
	buf_printf(&writer->nodes, "<%sGateway id=\"n%u\"", kind, split);
	if (chooses)
		buf_printf(&writer->nodes, " default=\"f%u\"", fallback);
	buf_printf(&writer->nodes, "/>\n<%sGateway id=\"n%u\"/>\n", kind, join);
	return (struct block){split, join};
}

static struct block event_gateway(struct writer *writer)
{
	unsigned split = new_id(writer), join = new_id(writer);

	for (int i = 0; i < 2; i++) {
		unsigned arm = new_id(writer);
		struct block block = any_block(writer);

		buf_printf(&writer->nodes,
			   "<intermediateCatchEvent id=\"n%u\">%s</intermediateCatchEvent>\n", arm,
			   random_event_rules(writer));
		flow(writer, split, arm, NULL);
		flow(writer, arm, block.in, NULL);
		flow(writer, block.out, join, NULL);
	}
	buf_printf(&writer->nodes,
		   "<eventBasedGateway id=\"n%u\"/>\n<exclusiveGateway id=\"n%u\"/>\n", split, join);
	return (struct block){split, join};
}

/* A path of its own, that no other comes to. */
static void side_path(struct writer *writer, unsigned from)
{
	struct block block = leaf(writer);
	unsigned end = new_id(writer);

	flow(writer, from, block.in, NULL);
	flow(writer, block.out, end, NULL);
	buf_printf(&writer->nodes, "<endEvent id=\"n%u\"/>\n", end);
}

static void random_loop(struct writer *writer)
{
	switch (random_below(writer->random, 5)) {
	case 0:
		buf_add_text(&writer->nodes,
			     "<multiInstanceLoopCharacteristics q:collection=\"{'p', 'q'}\" "
			     "q:element=\"item\"/>\n");
		break;
	case 1:
		buf_add_text(&writer->nodes,
			     "<multiInstanceLoopCharacteristics isSequential=\"true\" q:output=\"loopCounter\" "
			     "q:outputVariable=\"rows\"><loopCardinality>(n or 0) % 3</loopCardinality>"
			     "</multiInstanceLoopCharacteristics>\n");
		break;
	case 2:
		buf_add_text(&writer->nodes, "<standardLoopCharacteristics loopMaximum=\"2\"/>\n");
		break;
	default:
		break;
	}
}

static void event_subprocess(struct writer *writer, bool interrupting)
{
	unsigned start, id = new_id(writer);

	buf_printf(&writer->nodes, "<subProcess id=\"n%u\" triggeredByEvent=\"true\">\n", id);
	start = new_id(writer);
	buf_printf(&writer->nodes,
		   "<startEvent id=\"n%u\" isInterrupting=\"%s\">%s</startEvent>\n", start,
		   interrupting ? "true" : "false", random_event_rules(writer));
	side_path(writer, start);
	buf_add_text(&writer->nodes, "</subProcess>\n");
	writer->interrupts |= interrupting;
}

/* Everything between the start and the end of a container. */
static void inside(struct writer *writer, unsigned start)
{
	struct block block = any_block(writer);
	unsigned end = new_id(writer);

	flow(writer, start, block.in, NULL);
	flow(writer, block.out, end, NULL);
	buf_printf(&writer->nodes, "<endEvent id=\"n%u\"/>\n", end);
	if (random_below(writer->random, 5) == 0)
		event_subprocess(writer, random_below(writer->random, 2));
}

static struct block subprocess(struct writer *writer)
{
	unsigned id = new_id(writer), start, event;
	bool interrupting;

	buf_printf(&writer->nodes, "<subProcess id=\"n%u\">\n", id);
	start = new_id(writer);
	buf_printf(&writer->nodes, "<startEvent id=\"n%u\"/>\n", start);
	inside(writer, start);
	random_loop(writer);
	buf_add_text(&writer->nodes, "</subProcess>\n");
	if (random_below(writer->random, 3))
		return (struct block){id, id};
	interrupting = random_below(writer->random, 2);
	event = new_id(writer);
	buf_printf(&writer->nodes,
		   "<boundaryEvent id=\"n%u\" attachedToRef=\"n%u\" cancelActivity=\"%s\">%s</boundaryEvent>\n",
		   event, id, interrupting ? "true" : "false", random_event_rules(writer));
	writer->interrupts |= interrupting;
	if (interrupting) {
		/* The token goes on behind the block by another way. */
		unsigned join = new_id(writer);

		buf_printf(&writer->nodes, "<exclusiveGateway id=\"n%u\"/>\n", join);
		flow(writer, id, join, NULL);
		flow(writer, event, join, NULL);
		return (struct block){id, join};
	}
	side_path(writer, event);
	return (struct block){id, id};
}

static struct block any_block(struct writer *writer)
{
	struct block block;
	unsigned number, first, last;

	if (writer->depth == 0 || writer->blocks + 1 >= MAX_BLOCKS)
		return leaf(writer);
	writer->depth--;
	switch (random_below(writer->random, 7)) {
	case 0:
		block = branches(writer, "parallel", false);
		break;
	case 1:
		block = branches(writer, "exclusive", true);
		break;
	case 2:
		block = branches(writer, "inclusive", true);
		break;
	case 3:
		block = event_gateway(writer);
		break;
	case 4:
	case 5:
		block = subprocess(writer);
		break;
	default:
		block = sequence(writer);
	}
	writer->depth++;
	number = writer->blocks++;
	first = mark(writer, number, false);
	last = mark(writer, number, true);
	flow(writer, first, block.in, NULL);
	flow(writer, block.out, last, NULL);
	return (struct block){first, last};
}

static struct deployment *random_process(struct writer *writer)
{
	struct buf text = BUF_INIT;
	struct deployment *deployment;
	unsigned start = new_id(writer);

	buf_init(&writer->nodes);
	arena_init(&writer->texts);
	buf_printf(&writer->nodes,
		   "<startEvent id=\"n%u\"><extensionElements><q:source channel=\"in\"/>"
		   "<q:alias name=\"id\" expression=\"payload.id\"/></extensionElements>"
		   "<messageEventDefinition/></startEvent>\n",
		   start);
	inside(writer, start);
	buf_printf(&text,
		   "<process id=\"P\"><extensionElements><q:variables><q:variable name=\"n\"/>"
		   "<q:variable name=\"rows\"/></q:variables></extensionElements>\n%.*s</process>\n",
		   STR_ARG(buf_str(&writer->nodes)));
	deployment = fixture_deployment("m", "1", channels, text.data);
	buf_done(&writer->nodes);
	arena_done(&writer->texts);
	buf_done(&text);
	return deployment;
}

struct run {
	int64_t marks[MAX_BLOCKS][2]; /* how often each block was entered and left */
	int64_t waits, timers;
};

static void check_step(struct run *run, const struct step_result *result)
{
	const struct instance *inst = result->inst;
	int64_t waiting = 0, timed = 0;

	ck_assert_msg(!result->failed, "%s: %s at %.*s", code_text(result->failure.code),
		      result->failure.text, STR_ARG(inst->failure_node));
	for (uint32_t i = 0; i < result->send_count; i++) {
		const msgpack_object *body = result->sends[i].body.via.array.ptr;

		run->marks[body[0].via.u64][body[1].via.boolean]++;
	}
	run->waits += (int64_t)result->waits_added_count - result->waits_removed_count;
	run->timers += (int64_t)result->timers_added_count - result->timers_removed_count;
	for (uint32_t i = 0; i < inst->token_count; i++) {
		waiting += inst->tokens[i].state == TOKEN_WAITING;
		timed += inst->tokens[i].due_us != 0;
	}
	ck_assert_int_eq(run->waits, waiting - timed);
	ck_assert_int_eq(run->timers, timed);
	ck_assert_int_eq(inst->status, waiting ? INSTANCE_SUSPENDED : INSTANCE_COMPLETED);
	for (uint32_t i = 1; i < inst->scope_count; i++) {
		bool lived_in = false;

		for (uint32_t k = 0; k < inst->token_count; k++)
			lived_in |= inst->tokens[k].scope == inst->scopes[i].id && !inst->tokens[k].host;
		for (uint32_t k = i + 1; k < inst->scope_count; k++)
			lived_in |= inst->scopes[k].iteration && inst->scopes[k].parent == inst->scopes[i].id;
		ck_assert(lived_in);
	}
}

/* Mostly a token of its own, so that the run gets on; at times an event beside one. */
static uint32_t choose_token(struct random_source *random, const struct instance *inst)
{
	bool any = random_below(random, 6) == 0, waits = false;

	for (uint32_t i = 0; i < inst->token_count; i++)
		waits |= inst->tokens[i].state == TOKEN_WAITING;
	ck_assert(waits);
	for (;;) {
		const struct token *token = &inst->tokens[random_below(random, inst->token_count)];
		bool gateway = false;

		for (uint32_t i = 0; i < inst->token_count; i++)
			gateway |= inst->tokens[i].id == token->host &&
				   inst->tokens[i].state == TOKEN_HOLDING;
		if (token->state == TOKEN_WAITING && (any || !token->host || gateway))
			return token->id;
		any = any || random_below(random, 20) == 0;
	}
}

static void check_fail_and_restore(struct engine_fixture *fx, const struct instance *inst)
{
	struct error why = ERROR_INIT;
	struct step_result failed, restored;

	error_set(&why, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED, "not written");
	engine_fail(&fx->env, inst, fx->id, STR("default"), NULL, NULL, &why, NULL, &failed);
	ck_assert_int_eq(engine_restore(&fx->env, engine_fixture_reload(fx, failed.inst), &restored,
					&fx->err),
			 RESULT_OK);
	ck_assert_uint_eq(failed.waits_removed_count, restored.waits_added_count);
	ck_assert_uint_eq(failed.timers_removed_count, restored.timers_added_count);
	for (uint32_t i = 0; i < failed.timers_removed_count; i++)
		ck_assert_int_eq(failed.timers_removed[i].due_us, restored.timers_added[i].due_us);
	restored.inst->version = inst->version;
	ck_assert(instance_equal(restored.inst, inst));
}

/* The token's message comes or, at times late, its timer. */
static enum result resume(struct engine_fixture *fx, const struct instance *inst, uint32_t token,
			  const struct event *event, struct step_result *out)
{
	int64_t due_us = instance_token(inst, token)->due_us;

	if (!due_us)
		return engine_resume(&fx->env, inst, token, event, out, &fx->err);
	return engine_fire(&fx->env, inst, token, due_us, out, &fx->err);
}

static void pass_time(struct engine_fixture *fx, struct random_source *random, int64_t due_us)
{
	fx->env.now_us++;
	if (due_us > fx->env.now_us)
		fx->env.now_us = due_us;
	if (random_below(random, 5) == 0)
		fx->env.now_us += (int64_t)random_below(random, 40000000);
}

static void run_process(uint64_t seed, unsigned *completed, unsigned *steps, unsigned *fired)
{
	struct random_source random = {.state = seed};
	struct writer writer = {.random = &random, .depth = 2 + (unsigned)random_below(&random, 4)};
	struct step_result stays, reloads;
	struct engine_fixture fx;
	struct run run = {.waits = 0};

	engine_fixture_init_deployment(&fx, random_process(&writer));
	stays = engine_fixture_start(&fx, "n0", "{\"id\": 1}");
	reloads = engine_fixture_start(&fx, "n0", "{\"id\": 1}");
	for (int step = 0;; step++) {
		struct event event = engine_fixture_event(
			&fx, "a", random_below(&random, 2) ? "{\"id\": 1, \"x\": 1}" : "{\"id\": 1}");
		struct instance *back = engine_fixture_reload(&fx, reloads.inst);
		uint32_t token;

		check_step(&run, &stays);
		ck_assert(instance_equal(stays.inst, back));
		(*steps)++;
		if (stays.inst->status == INSTANCE_COMPLETED || step == MAX_STEPS)
			break;
		if (random_below(&random, 8) == 0)
			check_fail_and_restore(&fx, stays.inst);
		token = choose_token(&random, stays.inst);
		*fired += instance_token(stays.inst, token)->due_us != 0;
		pass_time(&fx, &random, instance_token(stays.inst, token)->due_us);
		ck_assert_int_eq(resume(&fx, stays.inst, token, &event, &stays), RESULT_OK);
		ck_assert_int_eq(resume(&fx, back, token, &event, &reloads), RESULT_OK);
	}
	for (unsigned i = 0; stays.inst->status == INSTANCE_COMPLETED && i < writer.blocks; i++) {
		if (writer.interrupts)
			ck_assert_int_ge(run.marks[i][0], run.marks[i][1]);
		else
			ck_assert_int_eq(run.marks[i][0], run.marks[i][1]);
	}
	*completed += stays.inst->status == INSTANCE_COMPLETED;
	engine_fixture_done(&fx);
}

START_TEST(blocks)
{
	unsigned completed = 0, steps = 0, fired = 0;

	for (uint64_t seed = 1; seed <= 1000; seed++)
		run_process(seed, &completed, &steps, &fired);
	/* They must not all be trivial, nor all endless. */
	ck_assert_uint_gt(completed, 600);
	ck_assert_uint_gt(steps, 3000);
	ck_assert_uint_gt(fired, 500);
}
END_TEST

/* Puts tokens where they never came to be, as somebody with a hand in the database might. */
static void tamper(struct random_source *random, const struct process *process, struct instance *inst)
{
	for (uint64_t n = 1 + random_below(random, 3); n > 0 && inst->token_count; n--) {
		struct token *token = &inst->tokens[random_below(random, inst->token_count)];
		const struct node *node = process->nodes[random_below(random, process->node_count)];

		for (uint32_t i = 1; i < inst->scope_count; i++)
			if (inst->scopes[i].owner == token->id)
				inst->scopes[i].node = node->id;
		token->node = node->id;
		if (token->state == TOKEN_JOINING && process->flow_count)
			token->flow = process->flows[random_below(random, process->flow_count)]->id;
	}
	if (random_below(random, 10) == 0 && inst->scope_count > 1)
		inst->scopes[1].process = random_below(random, 2) ? STR("nobody's") : process->id;
}

static void run_tampered(uint64_t seed, unsigned *resumed)
{
	struct random_source random = {.state = seed};
	struct writer writer = {.random = &random, .depth = 2 + (unsigned)random_below(&random, 3)};
	struct step_result result;
	struct engine_fixture fx;

	engine_fixture_init_deployment(&fx, random_process(&writer));
	result = engine_fixture_start(&fx, "n0", "{\"id\": 1}");
	for (int step = 0; step < 20 && result.inst->status == INSTANCE_SUSPENDED; step++) {
		struct event event = engine_fixture_event(&fx, "a", "{\"id\": 1}");
		struct buf bytes = BUF_INIT;
		struct instance *back = NULL;
		uint32_t token = choose_token(&random, result.inst);

		if (random_below(&random, 2))
			tamper(&random, fx.deployment->processes[0], result.inst);
		snapshot_pack(result.inst, &bytes);
		if (snapshot_unpack(&fx.arena, arena_str(&fx.arena, buf_str(&bytes)), fx.id, STR("default"),
				    result.inst->version, &back, &fx.err) == RESULT_OK &&
		    resume(&fx, back, token, &event, &result) == RESULT_OK)
			++*resumed;
		buf_done(&bytes);
		if (!back)
			break;
	}
	engine_fixture_done(&fx);
}

START_TEST(a_snapshot_that_does_not_fit_the_model_is_survived)
{
	unsigned resumed = 0;

	for (uint64_t seed = 1; seed <= 1500; seed++)
		run_tampered(seed, &resumed);
	ck_assert_uint_gt(resumed, 1000);
}
END_TEST

static Suite *blocks_suite(void)
{
	Suite *suite = suite_create("engine/blocks");
	TCase *tcase = tcase_create("blocks");

	tcase_set_timeout(tcase, 240);
	TEST_ADD_ALL(tcase, blocks, a_snapshot_that_does_not_fit_the_model_is_survived);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(blocks_suite)
