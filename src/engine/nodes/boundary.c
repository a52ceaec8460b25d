/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Message and timer boundary events, armed beside the activity. One that interrupts takes the activity's own token and ends
 * what it held; one that does not stays armed (a timer if it has a next time), and begins a token of its own.
 */
#include "engine/nodes/nodes.h"

enum result node_boundary_resume(struct step *step, const struct node *node, struct error *err)
{
	const struct token *event = step_token(step, step->at.token);
	uint32_t host = event->host, scope = event->scope;

	if (!step_token(step, host))
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_FAILED,
				 "the event is armed beside nothing");
	if (node->interrupting) {
		step_clear(step, host);
		step_stand(step, host, node);
	} else {
		step_rearm(step);
		step_stand(step, step_token_add(step, scope, node)->id, node);
	}
	return step_leave(step, node, err);
}
