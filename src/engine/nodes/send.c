/* SPDX-License-Identifier: Apache-2.0 */
/* Send tasks: send, answer, go on. The message leaves after the commit of the step, through the outbox. */
#include "engine/nodes/nodes.h"

enum result node_send_enter(struct step *step, const struct node *node, struct error *err)
{
	return task_end(step, node, true, err);
}
