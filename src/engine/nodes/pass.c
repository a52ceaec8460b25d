/* SPDX-License-Identifier: Apache-2.0 */
/* Plain and manual tasks: nothing for the engine to do but an answer, if they carry one. */
#include "engine/nodes/nodes.h"

enum result node_pass_enter(struct step *step, const struct node *node, struct error *err)
{
	return task_end(step, node, true, err);
}
