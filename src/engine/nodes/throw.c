/* SPDX-License-Identifier: Apache-2.0 */
/* Intermediate throw events: send if they have a q:send; one without is a mark in the picture. */
#include "engine/nodes/nodes.h"

enum result node_throw_enter(struct step *step, const struct node *node, struct error *err)
{
	enum result result = step_emit(step, node, err);

	return result == RESULT_OK ? step_leave(step, node, err) : result;
}
