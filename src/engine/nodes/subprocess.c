/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sub-processes: a scope of their own, in which a token begins at the start event; the one that came holds until none is left
 * in it. Event sub-processes are begun by their event (event_start.c, throw.c) and lead nowhere.
 */
#include "engine/nodes/nodes.h"

enum result node_subprocess_enter(struct step *step, const struct node *node, struct error *err)
{
	uint32_t scope;
	enum result result = step_arm_boundaries(step, node, err);

	if (result == RESULT_OK)
		result = step_open(step, node, NULL, &scope, err);
	if (result == RESULT_OK)
		result = step_arm_inside(step, scope, &node->inside, err);
	if (result != RESULT_OK)
		return result;
	step_spawn(step, scope, node->inside.start, NULL);
	step_hold(step);
	return RESULT_OK;
}

enum result node_subprocess_ended(struct step *step, const struct node *node, uint32_t scope,
				  struct error *err)
{
	step_close(step, scope);
	return step_leave(step, node, err);
}

enum result node_event_subprocess_ended(struct step *step, const struct node *node UNUSED,
					uint32_t scope, struct error *err UNUSED)
{
	step_close(step, scope);
	step_consume(step);
	return RESULT_OK;
}
