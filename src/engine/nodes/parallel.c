/* SPDX-License-Identifier: Apache-2.0 */
/* Parallel gateways: wait until every incoming flow has brought a token, then take every outgoing one. */
#include "engine/nodes/nodes.h"

enum result node_parallel_enter(struct step *step, const struct node *node, struct error *err)
{
	if (node_is_join(node)) {
		if (!join_is_full(step, node)) {
			join_wait(step);
			return RESULT_OK;
		}
		join_collect(step, node);
	}
	return step_leave(step, node, err);
}
