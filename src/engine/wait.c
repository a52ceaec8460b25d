/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parking: a token reaches a wait, and the wait is registered under the values that will find it.
 *
 * An alias with `value` is evaluated over the instance, becomes a key of the wait and an alias of the instance. One without
 * looks for what the instance is known by under that name already. A wait that nothing could ever find is a failure of the
 * step: the instance would stand there for ever.
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
	if (result != RESULT_OK || !text.ptr)
		return result;
	key_list_add(keys, arena, rule->name, text);
	step_alias_add(step, rule->name, text, rule->unique);
	return RESULT_OK;
}

enum result step_park(struct step *step, const struct node *node, struct error *err)
{
	struct step_result *out = step->out;
	struct key_list keys = {NULL, 0, 0};
	struct token *token;

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
	token = step_token(step, step->at.token);
	token->state = TOKEN_WAITING;
	token->keys = keys.items;
	token->key_count = keys.count;
	out->waits_added = step_grow(step->env->arena, out->waits_added, out->waits_added_count,
				     &step->wait_cap, sizeof(*out->waits_added));
	out->waits_added[out->waits_added_count++] = (struct step_wait){token->id, node, keys.items,
									keys.count};
	step->at.node = NULL;
	return RESULT_OK;
}
