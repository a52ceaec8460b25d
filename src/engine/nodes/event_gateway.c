/* SPDX-License-Identifier: Apache-2.0 */
/* Event-based gateways: arm what each flow leads to and hold; the first event takes the token (engine_resume). */
#include "engine/nodes/nodes.h"

enum result node_event_gateway_enter(struct step *step, const struct node *node, struct error *err)
{
	uint32_t scope = step_token(step, step->at.token)->scope;

	for (uint32_t i = 0; i < node->outgoing_count; i++) {
		enum result result = step_arm(step, scope, step->at.token, node->outgoing[i]->to,
					      err);

		if (result != RESULT_OK)
			return result;
	}
	step_hold(step);
	return RESULT_OK;
}
