/* SPDX-License-Identifier: Apache-2.0 */
/* Exclusive gateways: the first flow, in document order, whose condition holds; else the default; else a failure. */
#include "engine/nodes/nodes.h"

enum result node_exclusive_enter(struct step *step, const struct node *node, struct error *err)
{
	for (uint32_t i = 0; i < node->outgoing_count; i++) {
		const struct flow *flow = node->outgoing[i];
		bool holds;
		enum result result;

		if (flow == node->default_flow)
			continue;
		result = step_flow_holds(step, flow, &holds, err);
		if (result != RESULT_OK)
			return result;
		if (holds) {
			step_take(step, flow);
			return RESULT_OK;
		}
	}
	if (!node->default_flow)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
				 "no condition of the gateway holds and it has no default flow");
	step_take(step, node->default_flow);
	return RESULT_OK;
}
