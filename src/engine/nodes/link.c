/* SPDX-License-Identifier: Apache-2.0 */
/* Link throw events: the token goes on at the catch event of the same name. */
#include "engine/nodes/nodes.h"

enum result node_link_enter(struct step *step, const struct node *node, struct error *err UNUSED)
{
	assert(node->link);
	step_jump(step, node->link);
	return RESULT_OK;
}
