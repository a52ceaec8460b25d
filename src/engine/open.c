/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes open and go.
 *
 * What stands where is told by three links: a token's scope, a scope's owner, an armed event's host. Tearing something down
 * is to take out its roots and then all that has lost its link; so however deep it is nested, there is no recursion, and
 * nothing can be forgotten. What waited is found by comparing the instance before the step with the one behind it.
 */
#include "engine/behaviour.h"

/* A step that goes on opening is as endless as one that goes on passing nodes. */
#define SCOPES_MAX 10000

static enum result scope_add(struct step *step, struct scope scope, uint32_t *id, struct error *err)
{
	struct instance *inst = step->inst;
	struct arena *arena = step->env->arena;

	if (inst->scope_count == SCOPES_MAX)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_LIMIT,
				 "the instance has %d scopes open: sub-processes, calls and runs of loops",
				 SCOPES_MAX);
	step_own_scopes(step);
	scope.id = inst->next_scope++;
	inst->scopes = step_grow(arena, inst->scopes, inst->scope_count, &step->scope_cap,
				 sizeof(scope));
	step->scope_caps = step_grow(arena, step->scope_caps, inst->scope_count,
				     &step->scope_caps_cap, sizeof(*step->scope_caps));
	step->scope_caps[inst->scope_count] = 0;
	inst->scopes[inst->scope_count++] = scope;
	step->names_valid = false;
	*id = scope.id;
	return RESULT_OK;
}

/* The local variables of what opened the scope, unset, so that assignments find them there. */
static enum result declare_locals(struct step *step, uint32_t scope, const struct node *node,
				  bool run, struct error *err)
{
	const struct process *process = node->process;
	const msgpack_object nil = value_nil();

	for (uint32_t i = 0; i < process->variable_count; i++) {
		const struct variable *variable = &process->variables[i];
		enum result result;

		if (variable->scope != node || variable->of_run != run)
			continue;
		result = step_set(step, scope, variable->name, &nil, err);
		if (result != RESULT_OK)
			return result;
	}
	return RESULT_OK;
}

enum result step_open(struct step *step, const struct node *node, const struct process *called,
		      uint32_t *scope, struct error *err)
{
	const struct token *owner = step_token(step, step->at.token);
	enum result result = scope_add(step,
				       (struct scope){
					       .parent = owner->scope,
					       .owner = owner->id,
					       .node = node->id,
					       .process = called ? called->id : STR_NONE,
				       },
				       scope, err);

	if (result == RESULT_OK && !called)
		result = declare_locals(step, *scope, node, false, err);
	return result;
}

enum result step_open_loop(struct step *step, const struct node *node, uint32_t *scope,
			   struct error *err)
{
	const struct token *owner = step_token(step, step->at.token);

	return scope_add(step,
			 (struct scope){
				 .parent = owner->scope,
				 .owner = owner->id,
				 .node = node->id,
			 },
			 scope, err);
}

enum result step_open_run(struct step *step, const struct node *node, uint32_t loop,
			  uint32_t iteration, uint32_t *scope, struct error *err)
{
	enum result result = scope_add(step,
				       (struct scope){
					       .parent = loop,
					       .owner = step->at.token,
					       .node = node->id,
					       .iteration = iteration,
				       },
				       scope, err);

	return result == RESULT_OK ? declare_locals(step, *scope, node, true, err) : result;
}

enum result step_arm_inside(struct step *step, uint32_t scope, const struct inside *inside,
			    struct error *err)
{
	for (uint32_t i = 0; i < inside->event_sub_count; i++) {
		const struct node *start = inside->event_subs[i]->inside.start;
		enum result result;

		if (!start || start->kind == NODE_EVENT_START_ERROR)
			continue;
		result = step_arm(step, scope, 0, start, err);
		if (result != RESULT_OK)
			return result;
	}
	return RESULT_OK;
}

/* Tearing down. */

static bool token_has_lost(const struct instance *inst, const struct token *token)
{
	return !instance_scope(inst, token->scope) ||
	       (token->host && token->host != token->id && !instance_token(inst, token->host));
}

static bool scope_has_lost(const struct instance *inst, const struct scope *scope)
{
	return scope->id != 0 &&
	       (!instance_token(inst, scope->owner) || !instance_scope(inst, scope->parent));
}

static void scope_remove_at(struct step *step, uint32_t at)
{
	struct instance *inst = step->inst;
	size_t behind = inst->scope_count - at - 1;

	step_forget(step, &inst->scopes[at]);
	memmove(&inst->scopes[at], &inst->scopes[at + 1], behind * sizeof(inst->scopes[0]));
	memmove(&step->scope_caps[at], &step->scope_caps[at + 1],
		behind * sizeof(step->scope_caps[0]));
	inst->scope_count--;
	step->names_valid = false;
}

static void token_remove_at(struct step *step, uint32_t at)
{
	struct instance *inst = step->inst;

	step_locals_drop(step, &inst->tokens[at]);
	memmove(&inst->tokens[at], &inst->tokens[at + 1],
		(inst->token_count - at - 1) * sizeof(inst->tokens[0]));
	inst->token_count--;
}

static void prune(struct step *step)
{
	struct instance *inst = step->inst;
	bool changed;

	do {
		changed = false;
		for (uint32_t i = inst->token_count; i-- > 0;)
			if (token_has_lost(inst, &inst->tokens[i])) {
				token_remove_at(step, i);
				changed = true;
			}
		for (uint32_t i = inst->scope_count; i-- > 0;)
			if (scope_has_lost(inst, &inst->scopes[i])) {
				step_own_scopes(step);
				scope_remove_at(step, i);
				changed = true;
			}
	} while (changed);
	if (!instance_token(inst, step->at.token))
		step->at.node = NULL;
}

void step_clear(struct step *step, uint32_t token)
{
	struct instance *inst = step->inst;

	for (uint32_t i = inst->token_count; i-- > 0;)
		if (inst->tokens[i].host == token && inst->tokens[i].id != token)
			token_remove_at(step, i);
	for (uint32_t i = inst->scope_count; i-- > 1;)
		if (inst->scopes[i].owner == token) {
			step_own_scopes(step);
			scope_remove_at(step, i);
		}
	prune(step);
}

void step_clear_scope(struct step *step, uint32_t scope)
{
	struct instance *inst = step->inst;

	for (uint32_t i = inst->token_count; i-- > 0;)
		if (inst->tokens[i].scope == scope)
			token_remove_at(step, i);
	prune(step);
}

void step_close(struct step *step, uint32_t id)
{
	const struct scope *scope = instance_scope(step->inst, id);

	if (!scope)
		return;
	uint32_t at = (uint32_t)(scope - step->inst->scopes);

	step_own_scopes(step);
	scope_remove_at(step, at);
	prune(step);
}

bool step_scope_is_live(const struct instance *inst, uint32_t scope)
{
	for (uint32_t i = 0; i < inst->token_count; i++)
		if (inst->tokens[i].scope == scope && !inst->tokens[i].host)
			return true;
	return false;
}

enum result step_begin_event_subprocess(struct step *step, uint32_t scope, const struct node *sub,
					struct error *err)
{
	uint32_t inside;
	enum result result;

	step_stand(step, step_token_add(step, scope, sub)->id, sub);
	result = step_open(step, sub, NULL, &inside, err);
	if (result == RESULT_OK)
		result = step_arm_inside(step, inside, &sub->inside, err);
	if (result != RESULT_OK)
		return result;
	step_hold(step);
	step_stand(step, step_token_add(step, inside, sub->inside.start)->id, sub->inside.start);
	return RESULT_OK;
}
