/* SPDX-License-Identifier: Apache-2.0 */
/* Error end events: throw their error to whatever catches it around them; if nothing does, the step fails. */
#include "engine/nodes/nodes.h"

enum result node_error_end_enter(struct step *step, const struct node *node, struct error *err)
{
	return step_raise(step, node->error_code, STR_NONE, err);
}
