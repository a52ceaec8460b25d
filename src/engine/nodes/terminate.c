/* SPDX-License-Identifier: Apache-2.0 */
/* Terminate end events: all that stands in the scope is over, and so is the scope; that of the process ends the instance. */
#include "engine/nodes/nodes.h"

enum result node_terminate_enter(struct step *step, const struct node *node UNUSED,
				 struct error *err UNUSED)
{
	uint32_t scope = step_token(step, step->at.token)->scope;

	step_clear_scope(step, scope);
	step->left = scope;
	step->has_left = true;
	return RESULT_OK;
}
