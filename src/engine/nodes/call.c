/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call activities: another process of the package runs inside this instance, in a scope that sees none of the caller's
 * variables. q:param sets variables of it before it begins, q:output takes something of it when it is over.
 */
#include "engine/nodes/nodes.h"

/* All are evaluated over the caller before the scope of the called process is there. */
static enum result eval_params(struct step *step, const struct node *node, msgpack_object **values,
			       struct error *err)
{
	enum result result = RESULT_OK;

	*values = arena_alloc(step->env->arena, (node->param_count + 1) * sizeof(**values));
	for (uint32_t i = 0; result == RESULT_OK && i < node->param_count; i++)
		result = step_eval(step, node, node->params[i].expression, &(*values)[i], err);
	return result;
}

enum result node_call_enter(struct step *step, const struct node *node, struct error *err)
{
	const struct process *called = node->called;
	msgpack_object *values;
	uint32_t scope = 0;
	enum result result = eval_params(step, node, &values, err);

	if (result == RESULT_OK)
		result = step_arm_boundaries(step, node, err);
	if (result == RESULT_OK)
		result = step_open(step, node, called, &scope, err);
	for (uint32_t i = 0; result == RESULT_OK && i < node->param_count; i++)
		result = step_assign(step, scope, node->params[i].name, &values[i], err);
	if (result == RESULT_OK)
		result = step_arm_inside(step, scope, &called->inside, err);
	if (result != RESULT_OK)
		return result;
	step_spawn(step, scope, called->inside.start, NULL);
	step_hold(step);
	return RESULT_OK;
}

enum result node_call_ended(struct step *step, const struct node *node, uint32_t scope,
			    struct error *err)
{
	uint32_t own = step_token(step, step->at.token)->scope;

	for (uint32_t i = 0; i < node->output_count; i++) {
		const struct output_rule *rule = &node->outputs[i];
		msgpack_object value;
		enum result result = step_eval_in(step, scope, node, rule->expression, &value, err);

		if (result == RESULT_OK)
			result = step_assign(step, own, rule->variable, &value, err);
		if (result != RESULT_OK)
			return result;
	}
	step_close(step, scope);
	return step_leave(step, node, err);
}
