/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves of tokens: along flows, into new ones, away.
 *
 * Conditions are all evaluated before anything moves: an error in one of them leaves the token where it stands, so that
 * whoever catches the error finds nothing half done.
 */
#include "engine/behaviour.h"

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

const struct process *step_process(struct step *step, uint32_t scope)
{
	/* Most instances call nothing. */
	if (step->inst->scope_count == 1)
		return step->process;
	return instance_process(step->env->deployment, step->inst, scope);
}

const struct node *step_node(struct step *step, const struct token *token)
{
	const struct process *process = step_process(step, token->scope);

	return process ? process_node(process, token->node) : NULL;
}

void step_stand(struct step *step, uint32_t id, const struct node *node)
{
	struct token *token = step_token(step, id);

	if (!str_equal(token->node, node->id))
		step_locals_drop(step, token);
	token->state = TOKEN_READY;
	token->node = node->id;
	token->flow = STR_NONE;
	token->keys = NULL;
	token->key_count = 0;
	token->due_us = token->period_us = token->remaining = 0;
	step->at = (struct step_position){id, node, NULL};
}

bool step_in_run(struct step *step, const struct node *node)
{
	const struct scope *scope;

	if (!node->loop)
		return false;
	scope = instance_scope(step->inst, step_token(step, step->at.token)->scope);
	return scope->iteration > 0 && str_equal(scope->node, node->id);
}

void step_jump(struct step *step, const struct node *node)
{
	struct token *token = step_token(step, step->at.token);

	step_locals_drop(step, token);
	token->node = node->id;
	step->at.node = node;
	step->at.flow = NULL;
}

void step_take(struct step *step, const struct flow *flow)
{
	step_jump(step, flow->to);
	step->at.flow = flow;
}

struct token *step_token_add(struct step *step, uint32_t scope, const struct node *node)
{
	struct instance *inst = step->inst;
	const struct token token = {
		.id = inst->next_token++,
		.scope = scope,
		.node = node->id,
		.state = TOKEN_READY,
	};

	inst->tokens = step_grow(step->env->arena, inst->tokens, inst->token_count,
				 &step->token_cap, sizeof(token));
	inst->tokens[inst->token_count] = token;
	return &inst->tokens[inst->token_count++];
}

uint32_t step_spawn(struct step *step, uint32_t scope, const struct node *node,
		    const struct flow *flow)
{
	uint32_t id = step_token_add(step, scope, node)->id;

	step->ready = step_grow(step->env->arena, step->ready, step->ready_count, &step->ready_cap,
				sizeof(*step->ready));
	step->ready[step->ready_count++] = (struct step_position){id, node, flow};
	return id;
}

void step_disarm(struct step *step)
{
	struct instance *inst = step->inst;
	struct token *token = step_token(step, step->at.token);
	size_t behind = inst->token_count - (size_t)(token - inst->tokens) - 1;

	step_locals_drop(step, token);
	memmove(token, token + 1, behind * sizeof(*token));
	inst->token_count--;
	step->at.node = NULL;
}

void step_consume(struct step *step)
{
	step->left = step_token(step, step->at.token)->scope;
	step->has_left = true;
	step_disarm(step);
}

void step_hold(struct step *step)
{
	step_token(step, step->at.token)->state = TOKEN_HOLDING;
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

/* Which flows are to be taken; `*count` of them, the default among them if no other holds. */
static enum result choose_flows(struct step *step, const struct node *node,
				const struct flow ***chosen, uint32_t *count, struct error *err)
{
	*count = 0;
	*chosen = arena_alloc(step->env->arena, (node->outgoing_count + 1) * sizeof(**chosen));
	for (uint32_t i = 0; i < node->outgoing_count; i++) {
		const struct flow *flow = node->outgoing[i];
		bool holds;
		enum result result;

		if (flow == node->default_flow)
			continue;
		result = step_flow_holds(step, flow, &holds, err);
		if (result != RESULT_OK)
			return result;
		if (holds)
			(*chosen)[(*count)++] = flow;
	}
	if (!*count && node->default_flow)
		(*chosen)[(*count)++] = node->default_flow;
	return RESULT_OK;
}

enum result step_leave(struct step *step, const struct node *node, struct error *err)
{
	const struct flow **chosen;
	uint32_t count, scope;
	enum result result;

	if (step_in_run(step, node)) {
		step_consume(step);
		return RESULT_OK;
	}
	result = choose_flows(step, node, &chosen, &count, err);
	if (result != RESULT_OK)
		return result;
	if (!count && node->outgoing_count)
		return error_set(
			err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
			"no condition of the outgoing flows holds and there is no default flow");
	if (node->boundary_count)
		step_clear(step, step->at.token);
	if (!count) {
		step_consume(step);
		return RESULT_OK;
	}
	scope = step_token(step, step->at.token)->scope;
	step_take(step, chosen[0]);
	for (uint32_t i = 1; i < count; i++)
		step_spawn(step, scope, chosen[i]->to, chosen[i]);
	return RESULT_OK;
}
