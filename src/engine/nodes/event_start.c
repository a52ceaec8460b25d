/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Message and timer starts of event sub-processes, armed beside the scope. One that interrupts ends all that stands in it, the other
 * events armed beside it among that; one that does not stays armed, and what it begins runs beside the rest.
 */
#include "engine/nodes/nodes.h"

enum result node_event_start_resume(struct step *step, const struct node *node, struct error *err)
{
	uint32_t scope = step_token(step, step->at.token)->scope;
	enum result result;

	if (node->interrupting)
		step_clear_scope(step, scope);
	else
		step_rearm(step);
	result = step_begin_event_subprocess(step, scope, node->container, err);
	return result == RESULT_OK ? step_leave(step, node, err) : result;
}
