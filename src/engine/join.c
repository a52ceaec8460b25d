/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gateways that wait for several tokens. Only tokens of one scope meet: another run of the same sub-process has its own.
 *
 * A parallel gateway goes on when every incoming flow has brought a token. An inclusive one when no token can still bring
 * one that is missing: no token upstream has a path to an empty incoming flow that does not pass the gateway, unless it
 * also has such a path to a flow that is served already (so a token in a circle through the gateway does not hold it up, as
 * the notation has it). That is asked when nothing is ready any more: every token then waits, joins or holds.
 */
#include "engine/behaviour.h"

void join_wait(struct step *step)
{
	struct token *token = step_token(step, step->at.token);

	token->state = TOKEN_JOINING;
	token->flow = step->at.flow->id;
	step->at.node = NULL;
}

/* The oldest token in `scope` that came to the gateway by the flow and waits there; NULL = none. */
static struct token *joining(struct step *step, uint32_t scope, const struct flow *flow)
{
	struct instance *inst = step->inst;

	for (uint32_t i = 0; i < inst->token_count; i++) {
		struct token *token = &inst->tokens[i];

		if (token->state == TOKEN_JOINING && token->scope == scope &&
		    str_equal(token->node, flow->to->id) && str_equal(token->flow, flow->id))
			return token;
	}
	return NULL;
}

bool join_is_full(struct step *step, const struct node *node)
{
	uint32_t scope = step_token(step, step->at.token)->scope;

	for (uint32_t i = 0; i < node->incoming_count; i++)
		if (node->incoming[i] != step->at.flow && !joining(step, scope, node->incoming[i]))
			return false;
	return true;
}

void join_collect(struct step *step, const struct node *node)
{
	struct instance *inst = step->inst;
	uint32_t scope = step_token(step, step->at.token)->scope;

	for (uint32_t i = 0; i < node->incoming_count; i++) {
		struct token *token;

		if (node->incoming[i] == step->at.flow)
			continue;
		token = joining(step, scope, node->incoming[i]);
		if (!token)
			continue;
		memmove(token, token + 1,
			(inst->token_count - (size_t)(token - inst->tokens) - 1) * sizeof(*token));
		inst->token_count--;
	}
}

struct reach {
	const struct node **queue;
	uint32_t count;
	bool *seen;
};

static void reach_add(struct reach *reach, const struct node *node, const struct node *gateway)
{
	if (node == gateway || reach->seen[node->index])
		return;
	reach->seen[node->index] = true;
	reach->queue[reach->count++] = node;
}

static void reach_room(struct step *step, uint32_t nodes)
{
	struct arena *arena = step->env->arena;

	if (nodes <= step->reach_cap)
		return;
	step->reach_cap = nodes;
	step->reach_queue = arena_alloc(arena, nodes * sizeof(*step->reach_queue));
	step->reach_seen[0] = arena_alloc(arena, nodes);
	step->reach_seen[1] = arena_alloc(arena, nodes);
}

/* All nodes with a path to an incoming flow of the gateway that is served, or that is not. */
static bool *reach_of(struct step *step, uint32_t scope, const struct node *gateway, bool served)
{
	const struct process *process = gateway->process;
	struct reach reach = {.queue = step->reach_queue, .seen = step->reach_seen[served]};

	memset(reach.seen, 0, process->node_count);
	for (uint32_t i = 0; i < gateway->incoming_count; i++)
		if ((joining(step, scope, gateway->incoming[i]) != NULL) == served)
			reach_add(&reach, gateway->incoming[i]->from, gateway);
	for (uint32_t head = 0; head < reach.count; head++) {
		const struct node *node = reach.queue[head];

		for (uint32_t i = 0; i < node->incoming_count; i++)
			reach_add(&reach, node->incoming[i]->from, gateway);
		/* A boundary event begins at its activity, a link at its other end. */
		if (node->host)
			reach_add(&reach, node->host, gateway);
		for (uint32_t i = 0; node->kind == NODE_LINK_CATCH && i < process->node_count; i++)
			if (process->nodes[i]->link == node)
				reach_add(&reach, process->nodes[i], gateway);
	}
	return reach.seen;
}

static bool inclusive_may_go(struct step *step, uint32_t scope, const struct node *gateway)
{
	const struct instance *inst = step->inst;
	const bool *empty, *served;

	reach_room(step, gateway->process->node_count);
	empty = reach_of(step, scope, gateway, false);
	served = reach_of(step, scope, gateway, true);
	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		const struct node *node;

		if (token->scope != scope || token->host || str_equal(token->node, gateway->id))
			continue;
		node = step_node(step, token);
		if (node && empty[node->index] && !served[node->index])
			return false;
	}
	return true;
}

static const struct flow *flow_into(const struct node *node, struct str id)
{
	for (uint32_t i = 0; i < node->incoming_count; i++)
		if (str_equal(node->incoming[i]->id, id))
			return node->incoming[i];
	return NULL;
}

bool join_inclusive(struct step *step)
{
	struct instance *inst = step->inst;

	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		const struct node *node;
		const struct flow *by;

		if (token->state != TOKEN_JOINING)
			continue;
		node = step_node(step, token);
		by = node && node->kind == NODE_INCLUSIVE ? flow_into(node, token->flow) : NULL;
		if (!by || !inclusive_may_go(step, token->scope, node))
			continue;
		step_stand(step, token->id, node);
		step->at.flow = by;
		join_collect(step, node);
		return true;
	}
	return false;
}
