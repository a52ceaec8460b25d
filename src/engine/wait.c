/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parking: a token reaches a wait, and the wait is registered under the values that will find it; a timer event (timer.c) waits
 * for its time instead.
 *
 * An alias with `value` is evaluated over the instance, becomes a key of the wait and an alias of the instance. One without
 * looks for what the instance is known by under that name already. A wait that nothing could ever find is a failure of the
 * step: the instance would stand there for ever.
 *
 * Boundary events, the arms of an event-based gateway and the starts of event sub-processes wait beside something. Each is a
 * token of its own that stands on the event, so that a message finds all kinds of waits in one way.
 */
#include "engine/behaviour.h"

struct key_list {
	struct instance_wait_key *items;
	uint32_t count, cap;
};

static void key_list_add(struct key_list *keys, struct arena *arena, struct str name,
			 struct str value)
{
	for (uint32_t i = 0; i < keys->count; i++)
		if (str_equal(keys->items[i].name, name) && str_equal(keys->items[i].value, value))
			return;
	keys->items = step_grow(arena, keys->items, keys->count, &keys->cap, sizeof(*keys->items));
	keys->items[keys->count++] = (struct instance_wait_key){name, value};
}

static enum result alias_keys(struct step *step, const struct node *node,
			      const struct alias_rule *rule, struct key_list *keys,
			      struct error *err)
{
	const struct instance *inst = step->inst;
	struct arena *arena = step->env->arena;
	msgpack_object value;
	struct str text;
	enum result result;

	if (!rule->value) {
		for (uint32_t i = 0; i < inst->alias_count; i++)
			if (str_equal(inst->aliases[i].name, rule->name))
				key_list_add(keys, arena, rule->name, inst->aliases[i].value);
		return RESULT_OK;
	}
	result = step_eval(step, node, rule->value, &value, err);
	if (result == RESULT_OK)
		result = scalar_text(arena, &value, "alias", rule->name, &text, err);
	if (result == RESULT_OK && text.ptr)
		key_list_add(keys, arena, rule->name, text);
	return result;
}

/* Those keys that a `value` gave become aliases of the instance: only when all could be evaluated. */
static void register_keys(struct step *step, const struct node *node, const struct key_list *keys)
{
	for (uint32_t i = 0; i < node->alias_count; i++) {
		const struct alias_rule *rule = &node->aliases[i];

		for (uint32_t k = 0; rule->value && k < keys->count; k++)
			if (str_equal(keys->items[k].name, rule->name))
				step_alias_add(step, rule->name, keys->items[k].value, rule->unique);
	}
}

enum result step_wait_begin(struct step *step, const struct node *node, struct error *err)
{
	struct key_list keys = {NULL, 0, 0};
	struct token *token;

	if (node_is_timer(node))
		return timer_begin(step, node, err);
	assert(node->source);
	for (uint32_t i = 0; i < node->alias_count; i++) {
		enum result result = alias_keys(step, node, &node->aliases[i], &keys, err);

		if (result != RESULT_OK)
			return result;
	}
	if (!keys.count)
		return error_set(
			err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
			"the wait has no value to be found by: no message could ever resume it");
	register_keys(step, node, &keys);
	token = step_token(step, step->at.token);
	token->state = TOKEN_WAITING;
	token->keys = keys.items;
	token->key_count = keys.count;
	token->fresh = true;
	return RESULT_OK;
}

enum result step_arm(struct step *step, uint32_t scope, uint32_t host, const struct node *event,
		     struct error *err)
{
	const struct step_position before = step->at;
	struct token *token = step_token_add(step, scope, event);
	enum result result;

	token->host = host ? host : token->id;
	step->at = (struct step_position){token->id, event, NULL};
	result = step_wait_begin(step, event, err);
	/* An error is that of what it is armed for, and its boundary events may catch it. */
	step->at = before;
	return result;
}

void step_rearm(struct step *step)
{
	struct token *token = step_token(step, step->at.token);

	if (step->fired) {
		if (!timer_rearm(step))
			step_disarm(step);
		step->at.node = NULL;
		return;
	}
	token->state = TOKEN_WAITING;
	token->keys = step->event_keys;
	token->key_count = step->event_key_count;
	token->fresh = true;
	step->at.node = NULL;
}

enum result step_arm_boundaries(struct step *step, const struct node *node, struct error *err)
{
	uint32_t scope = step_token(step, step->at.token)->scope;

	if (step_in_run(step, node))
		return RESULT_OK;
	for (uint32_t i = 0; i < node->boundary_count; i++) {
		enum result result;

		if (node->boundaries[i]->kind == NODE_BOUNDARY_ERROR)
			continue;
		result = step_arm(step, scope, step->at.token, node->boundaries[i], err);
		if (result != RESULT_OK)
			return result;
	}
	return RESULT_OK;
}

enum result step_park(struct step *step, const struct node *node, struct error *err)
{
	enum result result = step_wait_begin(step, node, err);

	if (result == RESULT_OK)
		result = step_arm_boundaries(step, node, err);
	if (result == RESULT_OK)
		step->at.node = NULL;
	return result;
}
