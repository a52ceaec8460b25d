/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inclusive gateways: wait while a token can still come by a flow that has brought none (join.c decides when nothing is ready
 * any more), then take every flow whose condition holds, else the default.
 */
#include "engine/nodes/nodes.h"

enum result node_inclusive_enter(struct step *step, const struct node *node, struct error *err)
{
	if (!node_is_join(node))
		return step_leave(step, node, err);
	join_wait(step);
	return RESULT_OK;
}
