/* SPDX-License-Identifier: Apache-2.0 */
/* Receive tasks: park as a catch event does; being tasks, they may answer with q:reply once they received. */
#include "engine/nodes/nodes.h"

enum result node_receive_enter(struct step *step, const struct node *node, struct error *err)
{
	return step_park(step, node, err);
}

enum result node_receive_resume(struct step *step, const struct node *node, struct error *err)
{
	return task_end(step, node, true, err);
}
