/* SPDX-License-Identifier: Apache-2.0 */
/* Intermediate message and timer catch events: park, and go on when it is there. */
#include "engine/nodes/nodes.h"

enum result node_catch_enter(struct step *step, const struct node *node, struct error *err)
{
	return step_park(step, node, err);
}

enum result node_catch_resume(struct step *step, const struct node *node, struct error *err)
{
	return step_leave(step, node, err);
}
