/* SPDX-License-Identifier: Apache-2.0 */
/* Script tasks: run the script over the variables, then answer if they carry a q:reply, which sees what it assigned. */
#include "engine/nodes/nodes.h"

enum result node_script_enter(struct step *step, const struct node *node, struct error *err)
{
	enum result result = step_script(step, node, err);

	return result == RESULT_OK ? task_end(step, node, true, err) : result;
}
