/* SPDX-License-Identifier: Apache-2.0 */
/* Error end events: throw their error to whatever catches it around them; if nothing does, the step fails. */
#include "engine/nodes/nodes.h"

enum result node_error_end_enter(struct step *step, const struct node *node, struct error *err)
{
	struct error inner = ERROR_INIT;
	enum result result = step_throw(step, node->error_code, &inner);

	if (result == RESULT_OK)
		return RESULT_OK;
	if (inner.code != CODE_NONE) {
		*err = inner;
		return result;
	}
	return error_set(err, RESULT_REJECT, CODE_RUNTIME_ERROR_NOT_CAUGHT,
			 "nothing catches the error \"%.*s\"", STR_ARG(node->error_code));
}
