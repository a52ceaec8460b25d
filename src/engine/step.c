/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step: from one event to the next wait or the end.
 *
 * A step makes a new instance out of the old one and never writes to the old one: what does not change is shared, what
 * changes is copied first (the tokens always, aliases and variables when one is added or assigned). So a refused or failed
 * commit needs no undoing, and a failed step gives back the instance it began with, stamped FAILED (failed.c).
 *
 * The token loop takes tokens from a work list in the order in which they became ready, and runs each until it waits or is
 * gone before it looks at the next; flows are taken in document order. When a token is gone, the scope it stood in may be
 * over, which is for the token that opened it to go on; when none is ready any more, inclusive gateways are asked. Nothing
 * else decides about order, so the same input gives the same result on every replica and every run. Node kinds differ
 * only by their row in node_behaviours.
 *
 * What the step did to the waits is not collected on the way but found at its end, by holding the instance before against
 * the one behind: however a wait came to be or was torn down, the effects are what the two instances say.
 */
#include "engine/behaviour.h"
#include "engine/failed.h"
#include "engine/nodes/nodes.h"

const struct node_behaviour node_behaviours[NODE_KIND_COUNT] = {
	[NODE_START] = {node_start_enter, NULL, NULL},
	[NODE_START_TIMER] = {node_start_enter, NULL, NULL},
	[NODE_END] = {node_end_enter, NULL, NULL},
	[NODE_END_TERMINATE] = {node_terminate_enter, NULL, NULL},
	[NODE_END_ERROR] = {node_error_end_enter, NULL, NULL},
	[NODE_CATCH] = {node_catch_enter, node_catch_resume, NULL},
	[NODE_TIMER] = {node_catch_enter, node_catch_resume, NULL},
	[NODE_LINK_CATCH] = {node_start_enter, NULL, NULL},
	[NODE_RECEIVE] = {node_receive_enter, node_receive_resume, NULL},
	[NODE_USER] = {node_receive_enter, node_receive_resume, NULL},
	[NODE_THROW] = {node_throw_enter, NULL, NULL},
	[NODE_LINK_THROW] = {node_link_enter, NULL, NULL},
	[NODE_SEND] = {node_send_enter, NULL, NULL},
	[NODE_SERVICE] = {node_service_enter, node_service_resume, NULL, node_service_fire,
			  node_service_failed},
	[NODE_SCRIPT] = {node_script_enter, NULL, NULL},
	[NODE_PASS] = {node_pass_enter, NULL, NULL},
	[NODE_EXCLUSIVE] = {node_exclusive_enter, NULL, NULL},
	[NODE_PARALLEL] = {node_parallel_enter, NULL, NULL},
	[NODE_INCLUSIVE] = {node_inclusive_enter, NULL, NULL},
	[NODE_EVENT_GATEWAY] = {node_event_gateway_enter, NULL, NULL},
	[NODE_SUBPROCESS] = {node_subprocess_enter, NULL, node_subprocess_ended},
	[NODE_EVENT_SUBPROCESS] = {NULL, NULL, node_event_subprocess_ended},
	[NODE_CALL] = {node_call_enter, NULL, node_call_ended},
	[NODE_BOUNDARY] = {node_start_enter, node_boundary_resume, NULL},
	[NODE_BOUNDARY_TIMER] = {node_start_enter, node_boundary_resume, NULL},
	[NODE_BOUNDARY_ERROR] = {node_start_enter, NULL, NULL},
	[NODE_EVENT_START] = {node_start_enter, node_event_start_resume, NULL},
	[NODE_EVENT_START_TIMER] = {node_start_enter, node_event_start_resume, NULL},
	[NODE_EVENT_START_ERROR] = {node_start_enter, NULL, NULL},
};

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

/* Running. */

static enum result step_pass(struct step *step, struct error *err)
{
	if (++step->passed > step->env->max_nodes)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_LIMIT,
				 "the step passed %u nodes without coming to a wait",
				 step->env->max_nodes);
	return RESULT_OK;
}

static enum result step_enter(struct step *step, const struct node *node, struct error *err)
{
	enum result result = step_pass(step, err);

	if (result != RESULT_OK)
		return result;
	if (node->loop && !step_in_run(step, node))
		return loop_enter(step, node, err);
	if (!node_behaviours[node->kind].enter)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
				 "no token can come to a %s", node_kind_name(node->kind));
	result = task_begin(step, node, err);
	return result == RESULT_OK ? node_behaviours[node->kind].enter(step, node, err) : result;
}

/* An error of an expression is a BPMN error; RESULT_OK if something caught it. So may be one on the way to what does. */
static enum result step_catch(struct step *step, enum result result, struct error *err)
{
	while (result == RESULT_REJECT && err->code == CODE_EXPRESSION_FAILED) {
		struct error inner = ERROR_INIT;
		struct str text = arena_str(step->env->arena, str_of(err->text));

		result = step_throw(step, STR("EXPRESSION.FAILED"), text, &inner);
		if (result == RESULT_OK)
			return RESULT_OK;
		if (inner.code == CODE_NONE)
			return RESULT_REJECT;
		*err = inner;
	}
	return result;
}

/* A scope is over: what opened it goes on. */
static enum result scope_ended(struct step *step, const struct scope *scope, struct error *err)
{
	struct token *owner = step_token(step, scope->owner);
	const struct node *node = owner ? step_node(step, owner) : NULL;
	uint32_t id = scope->id;

	if (!node || (scope->iteration ? !node->loop : !node_behaviours[node->kind].ended))
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
				 "the deployment has nothing that could have opened the scope of %.*s",
				 STR_ARG(scope->node));
	if (scope->iteration) {
		step_stand(step, owner->id, node);
		return loop_ended(step, node, id, err);
	}
	step_stand(step, owner->id, node);
	return node_behaviours[node->kind].ended(step, node, id, err);
}

/* As long as the last token that ended was the last in its scope. */
static enum result step_settle(struct step *step, struct error *err)
{
	while (step->has_left && !step->at.node) {
		const struct scope *scope = instance_scope(step->inst, step->left);
		enum result result;

		step->has_left = false;
		if (!scope || scope->id == 0 || step_scope_is_live(step->inst, scope->id))
			break;
		result = step_catch(step, scope_ended(step, scope, err), err);
		if (result != RESULT_OK)
			return result;
	}
	return RESULT_OK;
}

/* The next token that is ready and was not torn down meanwhile. */
static bool step_next(struct step *step)
{
	while (step->ready_head < step->ready_count) {
		const struct step_position next = step->ready[step->ready_head++];

		if (!instance_token(step->inst, next.token))
			continue;
		step->at = next;
		return true;
	}
	return false;
}

/* Runs the token at step->at, if it may go on, and then all that are ready. */
static enum result step_run(struct step *step, struct error *err)
{
	for (;;) {
		enum result result = step_settle(step, err);

		while (result == RESULT_OK && step->at.node) {
			result = step_catch(step, step_enter(step, step->at.node, err), err);
			if (result == RESULT_OK)
				result = step_settle(step, err);
		}
		if (result != RESULT_OK)
			return result;
		if (step_next(step))
			continue;
		if (!join_inclusive(step))
			return RESULT_OK;
		result = step_catch(step, step_leave(step, step->at.node, err), err);
		if (result != RESULT_OK)
			return result;
	}
}

/* Tokens that stand for others, with none that waits for anything, would stand there for ever. */
static enum result step_check_alive(struct step *step, struct error *err)
{
	const struct instance *inst = step->inst;
	const struct token *stuck = NULL;

	if (!step_scope_is_live(inst, 0))
		return RESULT_OK;
	for (uint32_t i = 0; i < inst->token_count; i++) {
		if (inst->tokens[i].state == TOKEN_WAITING)
			return RESULT_OK;
		if (!stuck || stuck->state != TOKEN_JOINING)
			stuck = &inst->tokens[i];
	}
	step->at = (struct step_position){stuck->id, step_node(step, stuck), NULL};
	return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
			 "the gateway waits for tokens on its other flows, and none can come any more");
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
	if (step_scope_is_live(inst, 0)) {
		inst->status = INSTANCE_SUSPENDED;
		step_drop_transients(step);
		instance_waits_changed(step->env, before, inst, out);
		instance_calls_changed(step->env, before, inst, step->answered, out);
		return;
	}
	/* What may be left are events armed beside the process. */
	inst->token_count = 0;
	instance_waits_changed(step->env, before, inst, out);
	instance_calls_changed(step->env, before, inst, step->answered, out);
	inst->status = INSTANCE_COMPLETED;
	inst->aliases = NULL;
	inst->alias_count = 0;
	out->aliases_added = NULL;
	out->aliases_added_count = 0;
	out->aliases_removed = before ? before->aliases : NULL;
	out->aliases_removed_count = before ? before->alias_count : 0;
}

/* The whole of a first step, with the token at step->at on the start event. */
static enum result step_begin(struct step *step, struct error *err)
{
	enum result result = step_arm_inside(step, 0, &step->process->inside, err);

	if (result == RESULT_OK)
		result = step_run(step, err);
	return result == RESULT_OK ? step_check_alive(step, err) : result;
}

/* Takes what the message of a start brings; a timer brings nothing. */
static enum result take_start(struct step *step, const struct node *node, struct error *err)
{
	return node->kind == NODE_START_TIMER ? RESULT_OK : step_receive(step, node, err);
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
		.event_process = node->process,
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
	step.at = (struct step_position){inst->tokens[0].id, start, NULL};
	result = take_start(&step, start, err);
	if (result != RESULT_OK)
		return result;
	if (step_begin(&step, &failure) == RESULT_OK) {
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
	for (uint32_t i = 0; i < next->token_count; i++)
		next->tokens[i].fresh = false;
	next->status = INSTANCE_RUNNING;
	next->version = inst->version + 1;
	return next;
}

/* An event-based gateway has its event: the token that holds there goes on from the arm, and the other arms are gone. */
static uint32_t take_arm(struct step *step, const struct token *arm, const struct node *node)
{
	const struct token *host = step_token(step, arm->host);
	const struct node *gateway = host && host->id != arm->id ? step_node(step, host) : NULL;
	uint32_t id = arm->id;

	if (!gateway || gateway->kind != NODE_EVENT_GATEWAY)
		return id;
	id = host->id;
	step_clear(step, id);
	step_stand(step, id, node);
	return id;
}

/* The event or the timer of a token that was taken out of its wait. A timer brings nothing: what the variables had they keep. */
static enum result take_event(struct step *step, const struct node *node, struct error *err)
{
	const struct node_behaviour *behaviour = &node_behaviours[node->kind];
	struct arena *arena = step->env->arena;
	struct str code, message;
	enum result result;

	if (step->fired)
		return behaviour->fire ? behaviour->fire(step, node, err)
				       : behaviour->resume(step, node, err);
	code = event_error_code(arena, step->event);
	if (code.ptr) {
		message = event_error_message(arena, step->event);
		return behaviour->failed ? behaviour->failed(step, node, code, message, err)
					 : step_raise(step, code, message, err);
	}
	result = step_receive(step, node, err);
	return result == RESULT_OK ? behaviour->resume(step, node, err) : result;
}

/* Takes the token out of its wait and gives it the event. */
static enum result step_resume(struct step *step, const struct node *node, uint32_t id,
			       struct error *err)
{
	const struct token *token = step_token(step, id);
	enum result result;

	step->event_keys = token->keys;
	step->event_key_count = token->key_count;
	step->event_due_us = token->due_us;
	step->event_period_us = token->period_us;
	step->event_remaining = token->remaining;
	step_stand(step, take_arm(step, token, node), node);
	if (step->event->traceparent.ptr) {
		step->inst->traceparent = step->event->traceparent;
		step->inst->tracestate = step->event->tracestate;
	}
	result = step_pass(step, err);
	if (result == RESULT_OK)
		result = take_event(step, node, err);
	result = step_catch(step, result, err);
	if (result == RESULT_OK)
		result = step_run(step, err);
	return result == RESULT_OK ? step_check_alive(step, err) : result;
}

/* Whether the deployment has every process that the instance is in the midst of. */
static bool has_processes(const struct deployment *deployment, const struct instance *inst)
{
	if (!deployment_process(deployment, inst->process))
		return false;
	for (uint32_t i = 0; i < inst->scope_count; i++)
		if (inst->scopes[i].process.ptr &&
		    !deployment_process(deployment, inst->scopes[i].process))
			return false;
	return true;
}

enum result step_resume_token(const struct step_env *env, const struct instance *inst,
			      uint32_t token, const struct event *event, bool fired,
			      struct step_result *out, struct error *err)
{
	const struct token *waiting = instance_token(inst, token);
	const struct process *process = deployment_process(env->deployment, inst->process);
	const struct node *node;
	struct step_result made = {.inst = NULL};
	struct error failure = ERROR_INIT;
	struct step step;

	if (inst->status != INSTANCE_SUSPENDED || !waiting || waiting->state != TOKEN_WAITING)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "token %u does not wait", token);
	node = wait_node(env->deployment, inst, waiting);
	if (!node || !has_processes(env->deployment, inst)) {
		error_set(&failure, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
			  "the process %.*s of the deployment has no wait %.*s",
			  STR_ARG(inst->process), STR_ARG(waiting->node));
		instance_fail(env, inst, &failure, node, out);
		return RESULT_OK;
	}
	if (!fired && !node->source)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "token %u waits for no message", token);
	step = step_init(env, process, node, event, instance_next(env, inst), &made);
	step.fired = fired;
	step.answered = fired ? 0 : token;
	if (fired)
		step.event_name = STR_NONE;
	if (step_resume(&step, node, token, &failure) == RESULT_OK) {
		step_finish(&step, inst);
		*out = made;
	} else {
		instance_fail(env, inst, &failure, step.at.node, out);
	}
	return RESULT_OK;
}

enum result engine_resume(const struct step_env *env, const struct instance *inst, uint32_t token,
			  const struct event *event, struct step_result *out, struct error *err)
{
	const struct token *waiting = instance_token(inst, token);

	/* One without keys waits for its timer alone. */
	if (!waiting || !waiting->key_count)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "token %u does not wait", token);
	return step_resume_token(env, inst, token, event, false, out, err);
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
	step.at = (struct step_position){next->tokens[0].id, start, NULL};
	result = take_start(&step, start, &failure);
	if (result == RESULT_OK)
		result = step_begin(&step, &failure);
	if (result != RESULT_OK) {
		instance_fail(env, inst, &failure, step.at.node, out);
		return;
	}
	step_finish(&step, inst);
	*out = made;
}

/* Whether the deployment has what every token of a FAILED instance stands on. */
static enum result check_nodes(const struct deployment *deployment, const struct instance *inst,
			       struct error *err)
{
	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		const struct node *node = instance_node(deployment, inst, token);
		bool fits = node != NULL;

		if (token->state == TOKEN_READY)
			fits = fits && inst->token_count == 1;
		else if (token->state == TOKEN_WAITING)
			fits = wait_node(deployment, inst, token) != NULL;
		if (!fits)
			return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
					 "the process %.*s of the deployment has no %s %.*s",
					 STR_ARG(instance_scope_process(inst, token->scope)),
					 token->state == TOKEN_WAITING ? "wait" : "node",
					 STR_ARG(token->node));
	}
	return RESULT_OK;
}

enum result engine_restore(const struct step_env *env, const struct instance *inst,
			   struct step_result *out, struct error *err)
{
	struct step_result made = {.inst = NULL};
	const struct node *start;
	struct instance *next;
	enum result result;

	if (inst->status != INSTANCE_FAILED)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "the instance is %s, not FAILED",
				 instance_status_name(inst->status));
	result = check_nodes(env->deployment, inst, err);
	if (result != RESULT_OK)
		return result;
	/* A ready token and a message to start with come together, and only on a start. */
	start = inst->token_count == 1 && inst->tokens[0].state == TOKEN_READY
			? instance_node(env->deployment, inst, &inst->tokens[0])
			: NULL;
	if ((start && node_is_process_start(start)) == value_is_nil(&inst->failure_event))
		return error_set(err, RESULT_FATAL, CODE_RUNTIME_SNAPSHOT_INVALID,
				 "the instance and the message kept with it do not fit");
	if (start) {
		struct event event = {.headers = NULL};

		result = event_from_value(env->arena, &inst->failure_event, &event, err);
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
	made.waits_added = instance_waits(env->arena, inst, env->deployment, &made.waits_added_count);
	made.timers_added = instance_timers(env->arena, inst, env->deployment, &made.timers_added_count);
	*out = made;
	return RESULT_OK;
}
