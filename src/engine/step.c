/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step: from one event to the next wait or the end.
 *
 * A step makes a new instance out of the old one and never writes to the old one: what does not change is shared, what
 * changes is copied first (the tokens always, aliases and variables when one is added or assigned). So a refused or failed
 * commit needs no undoing, and a failed step gives back the instance it began with, stamped FAILED (failed.c).
 *
 * The token loop takes tokens from a work list in the order in which they became ready, and runs each until it waits or is
 * gone before it looks at the next; flows are taken in document order. Nothing else decides about order, so the same input
 * gives the same result on every replica and every run. Node kinds differ only by their row in node_behaviours.
 */
#include "engine/behaviour.h"
#include "engine/failed.h"
#include "engine/nodes/nodes.h"

const struct node_behaviour node_behaviours[NODE_KIND_COUNT] = {
	[NODE_START] = {node_start_enter, NULL},
	[NODE_END] = {node_end_enter, NULL},
	[NODE_CATCH] = {node_catch_enter, node_catch_resume},
	[NODE_RECEIVE] = {node_receive_enter, node_receive_resume},
	[NODE_THROW] = {node_throw_enter, NULL},
	[NODE_SEND] = {node_send_enter, NULL},
	[NODE_SCRIPT] = {node_script_enter, NULL},
	[NODE_PASS] = {node_pass_enter, NULL},
	[NODE_EXCLUSIVE] = {node_exclusive_enter, NULL},
};

void *step_grow(struct arena *arena, void *items, uint32_t count, uint32_t *cap, size_t size)
{
	void *grown;

	if (count < *cap)
		return items;
	*cap = count < 4 ? 8 : 2 * count;
	grown = arena_alloc(arena, *cap * size);
	if (count)
		memcpy(grown, items, count * size);
	return grown;
}

struct token *step_token(struct step *step, uint32_t id)
{
	/* The step owns its tokens, so what the search returns may be written to. */
	return (struct token *)(uintptr_t)instance_token(step->inst, id);
}

void step_alias_add(struct step *step, struct str name, struct str value, bool unique)
{
	const struct instance_alias alias = {name, value, unique};
	struct instance *inst = step->inst;
	struct step_result *out = step->out;
	struct arena *arena = step->env->arena;

	if (instance_has_alias(inst, name, value))
		return;
	inst->aliases = step_grow(arena, inst->aliases, inst->alias_count, &step->alias_cap,
				  sizeof(alias));
	inst->aliases[inst->alias_count++] = alias;
	out->aliases_added = step_grow(arena, out->aliases_added, out->aliases_added_count,
				       &step->added_cap, sizeof(alias));
	out->aliases_added[out->aliases_added_count++] = alias;
}

/* Moves. */

void step_take(struct step *step, const struct flow *flow)
{
	step_token(step, step->at.token)->node = flow->to->id;
	step->at.node = flow->to;
}

void step_fork(struct step *step, const struct flow *flow)
{
	struct instance *inst = step->inst;
	struct token token = *step_token(step, step->at.token);

	token.id = inst->next_token++;
	token.node = flow->to->id;
	token.state = TOKEN_READY;
	token.keys = NULL;
	token.key_count = 0;
	inst->tokens = step_grow(step->env->arena, inst->tokens, inst->token_count,
				 &step->token_cap, sizeof(token));
	inst->tokens[inst->token_count++] = token;
	step->ready = step_grow(step->env->arena, step->ready, step->ready_count, &step->ready_cap,
				sizeof(*step->ready));
	step->ready[step->ready_count++] = (struct step_position){token.id, flow->to};
}

void step_consume(struct step *step)
{
	struct instance *inst = step->inst;
	struct token *token = step_token(step, step->at.token);
	size_t behind = inst->token_count - (size_t)(token - inst->tokens) - 1;

	memmove(token, token + 1, behind * sizeof(*token));
	inst->token_count--;
	step->at.node = NULL;
}

enum result step_flow_holds(struct step *step, const struct flow *flow, bool *out,
			    struct error *err)
{
	msgpack_object value;
	enum result result;

	if (!flow->condition) {
		*out = true;
		return RESULT_OK;
	}
	result = step_eval(step, flow->from, flow->condition, &value, err);
	if (result == RESULT_OK)
		*out = expression_truth(&value);
	return result;
}

enum result step_leave(struct step *step, const struct node *node, struct error *err)
{
	const struct flow *first = NULL;

	/* The token itself takes the first flow last: until then it stands here, for the conditions and the forks. */
	for (uint32_t i = 0; i < node->outgoing_count; i++) {
		const struct flow *flow = node->outgoing[i];
		bool holds;
		enum result result;

		if (flow == node->default_flow)
			continue;
		result = step_flow_holds(step, flow, &holds, err);
		if (result != RESULT_OK)
			return result;
		if (holds && first)
			step_fork(step, flow);
		else if (holds)
			first = flow;
	}
	if (!first)
		first = node->default_flow;
	if (first)
		step_take(step, first);
	else if (!node->outgoing_count)
		step_consume(step);
	else
		return error_set(
			err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
			"no condition of the outgoing flows holds and there is no default flow");
	return RESULT_OK;
}

/* Running. */

static enum result step_pass(struct step *step, struct error *err)
{
	if (++step->passed > step->env->max_nodes)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_LIMIT,
				 "the step passed %u nodes without coming to a wait",
				 step->env->max_nodes);
	return RESULT_OK;
}

/* Runs the token at step->at, if it may go on, and then all that are ready. */
static enum result step_run(struct step *step, struct error *err)
{
	for (;;) {
		while (step->at.node) {
			const struct node *node = step->at.node;
			enum result result = step_pass(step, err);

			if (result == RESULT_OK)
				result = node_behaviours[node->kind].enter(step, node, err);
			if (result != RESULT_OK)
				return result;
		}
		if (step->ready_head == step->ready_count)
			return RESULT_OK;
		step->at = step->ready[step->ready_head++];
	}
}

/*
 * Stamps what the step made. An instance that ended is found by nothing any more: the aliases it had before the step are
 * removed, and those that it got in this very step never come to be.
 */
static void step_finish(struct step *step, const struct instance *before)
{
	struct instance *inst = step->inst;
	struct step_result *out = step->out;

	out->inst = inst;
	if (inst->token_count) {
		inst->status = INSTANCE_SUSPENDED;
		return;
	}
	inst->status = INSTANCE_COMPLETED;
	inst->aliases = NULL;
	inst->alias_count = 0;
	out->aliases_added = NULL;
	out->aliases_added_count = 0;
	out->aliases_removed = before ? before->aliases : NULL;
	out->aliases_removed_count = before ? before->alias_count : 0;
}

static struct step step_init(const struct step_env *env, const struct process *process,
			     const struct node *node, const struct event *event,
			     struct instance *inst, struct step_result *out)
{
	return (struct step){
		.env = env,
		.process = process,
		.event = event,
		.event_name = node->source ? node->source->name : STR_NONE,
		.version = inst->version - 1,
		.inst = inst,
		.out = out,
	};
}

enum result engine_start(const struct step_env *env, struct id id, struct str tenant,
			 const struct node *start, const struct event *event,
			 struct step_result *out, struct error *err)
{
	struct step_result made = {.inst = NULL};
	struct error failure = ERROR_INIT;
	struct instance *inst;
	struct step step;
	enum result result = first_instance(env, id, tenant, start, event, &inst, err);

	if (result != RESULT_OK)
		return result;
	made.aliases_added = inst->aliases;
	made.aliases_added_count = inst->alias_count;
	step = step_init(env, start->process, start, event, inst, &made);
	step.at = (struct step_position){inst->tokens[0].id, start};
	result = step_receive(&step, start, err);
	if (result != RESULT_OK)
		return result;
	if (step_run(&step, &failure) == RESULT_OK) {
		step_finish(&step, NULL);
		*out = made;
	} else {
		engine_fail(env, NULL, id, tenant, start, event, &failure, step.at.node, out);
	}
	return RESULT_OK;
}

/* The next instance of `inst`, with tokens of its own. */
static struct instance *instance_next(const struct step_env *env, const struct instance *inst)
{
	struct instance *next = arena_memdup(env->arena, inst, sizeof(*inst));

	next->tokens = arena_memdup(env->arena, inst->tokens,
				    inst->token_count * sizeof(*inst->tokens));
	next->status = INSTANCE_RUNNING;
	next->version = inst->version + 1;
	return next;
}

/* Takes the token out of its wait and gives it the event. */
static enum result step_resume(struct step *step, const struct node *node, uint32_t id,
			       struct error *err)
{
	struct step_result *out = step->out;
	struct token *token = step_token(step, id);
	enum result result;

	out->waits_removed = arena_alloc(step->env->arena, sizeof(*out->waits_removed));
	out->waits_removed[0] = (struct step_wait){id, node, token->keys, token->key_count};
	out->waits_removed_count = 1;
	token->state = TOKEN_READY;
	token->keys = NULL;
	token->key_count = 0;
	step->at = (struct step_position){id, node};
	if (step->event->traceparent.ptr) {
		step->inst->traceparent = step->event->traceparent;
		step->inst->tracestate = step->event->tracestate;
	}
	result = step_receive(step, node, err);
	if (result == RESULT_OK)
		result = step_pass(step, err);
	if (result == RESULT_OK)
		result = node_behaviours[node->kind].resume(step, node, err);
	return result == RESULT_OK ? step_run(step, err) : result;
}

enum result engine_resume(const struct step_env *env, const struct instance *inst, uint32_t token,
			  const struct event *event, struct step_result *out, struct error *err)
{
	const struct token *waiting = instance_token(inst, token);
	const struct process *process = deployment_process(env->deployment, inst->process);
	const struct node *node;
	struct step_result made = {.inst = NULL};
	struct error failure = ERROR_INIT;
	struct step step;

	if (inst->status != INSTANCE_SUSPENDED || !waiting || waiting->state != TOKEN_WAITING)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "token %u does not wait", token);
	node = wait_node(process, waiting);
	if (!node) {
		error_set(&failure, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
			  "the process %.*s of the deployment has no wait %.*s",
			  STR_ARG(inst->process), STR_ARG(waiting->node));
		instance_fail(env, inst, &failure, node, out);
		return RESULT_OK;
	}
	step = step_init(env, process, node, event, instance_next(env, inst), &made);
	if (step_resume(&step, node, token, &failure) == RESULT_OK) {
		step_finish(&step, inst);
		*out = made;
	} else {
		instance_fail(env, inst, &failure, step.at.node, out);
	}
	return RESULT_OK;
}

/* Runs a first step that failed once more; its aliases are registered since then. */
static void restart(const struct step_env *env, const struct instance *inst,
		    const struct node *start, const struct event *event, struct step_result *out)
{
	struct step_result made = {.inst = NULL};
	struct error failure = ERROR_INIT;
	struct step step;
	struct instance *next;
	enum result result = first_instance(env, inst->id, inst->tenant, start, event, &next,
					    &failure);

	if (result != RESULT_OK) {
		instance_fail(env, inst, &failure, start, out);
		return;
	}
	next->version = inst->version + 1;
	next->started_us = inst->started_us;
	next->aliases = inst->aliases;
	next->alias_count = inst->alias_count;
	step = step_init(env, start->process, start, event, next, &made);
	step.at = (struct step_position){next->tokens[0].id, start};
	result = step_receive(&step, start, &failure);
	if (result == RESULT_OK)
		result = step_run(&step, &failure);
	if (result != RESULT_OK) {
		instance_fail(env, inst, &failure, step.at.node, out);
		return;
	}
	step_finish(&step, inst);
	*out = made;
}

enum result engine_restore(const struct step_env *env, const struct instance *inst,
			   struct step_result *out, struct error *err)
{
	const struct process *process = deployment_process(env->deployment, inst->process);
	struct step_result made = {.inst = NULL};
	const struct node *start;
	struct instance *next;

	if (inst->status != INSTANCE_FAILED)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "the instance is %s, not FAILED",
				 instance_status_name(inst->status));
	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];

		if (token->state == TOKEN_READY ? inst->token_count == 1 && process &&
							  process_node(process, token->node) != NULL
						: wait_node(process, token) != NULL)
			continue;
		return error_set(
			err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
			"the process %.*s of the deployment has no %s %.*s", STR_ARG(inst->process),
			token->state == TOKEN_READY ? "node" : "wait", STR_ARG(token->node));
	}
	/* A ready token and a message to start with come together, and only on a start. */
	start = inst->token_count == 1 && inst->tokens[0].state == TOKEN_READY
			? process_node(process, inst->tokens[0].node)
			: NULL;
	if ((start && start->kind == NODE_START) == value_is_nil(&inst->failure_event))
		return error_set(err, RESULT_FATAL, CODE_RUNTIME_SNAPSHOT_INVALID,
				 "the instance and the message kept with it do not fit");
	if (start) {
		struct event event = {.headers = NULL};
		enum result result = event_from_value(env->arena, &inst->failure_event, &event,
						      err);

		if (result != RESULT_OK)
			return result;
		event.reply = inst->reply;
		event.traceparent = inst->traceparent;
		event.tracestate = inst->tracestate;
		restart(env, inst, start, &event, out);
		return RESULT_OK;
	}
	next = instance_next(env, inst);
	next->status = INSTANCE_SUSPENDED;
	next->failure_code = next->failure_detail = next->failure_node = STR_NONE;
	made.inst = next;
	made.waits_added = instance_waits(env->arena, inst, process, &made.waits_added_count);
	*out = made;
	return RESULT_OK;
}
