/* SPDX-License-Identifier: Apache-2.0 */
/* End events: send or answer if they are told to, and end the token. The last one ends the instance. */
#include "engine/nodes/nodes.h"

enum result node_end_enter(struct step *step, const struct node *node, struct error *err)
{
	enum result result = step_emit(step, node, err);

	if (result == RESULT_OK)
		step_consume(step);
	return result;
}
