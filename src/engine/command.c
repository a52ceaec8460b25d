/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator tells an instance: to end, or that a user task is done. */
#include "engine/behaviour.h"
#include "engine/failed.h"

enum result engine_cancel(const struct step_env *env, const struct instance *inst,
			  struct step_result *out, struct error *err)
{
	struct instance *next;

	if (instance_status_is_terminal(inst->status))
		return error_set(err, RESULT_AGAIN, CODE_NONE, "the instance is %s already",
				 instance_status_name(inst->status));
	next = arena_memdup(env->arena, inst, sizeof(*inst));
	next->status = INSTANCE_TERMINATED;
	next->version = inst->version + 1;
	next->token_count = 0;
	next->scope_count = 1; /* nobody holds the others any more */
	next->aliases = NULL;
	next->alias_count = 0;
	next->failure_code = next->failure_detail = next->failure_node = STR_NONE;
	next->failure_event = (msgpack_object){.type = MSGPACK_OBJECT_NIL};
	*out = (struct step_result){
		.inst = next,
		.aliases_removed = inst->aliases,
		.aliases_removed_count = inst->alias_count,
	};
	instance_waits_changed(env, inst, next, out);
	instance_calls_changed(env, inst, next, 0, out);
	/* The waits and timers of a FAILED instance are gone already. */
	if (inst->status == INSTANCE_FAILED)
		out->waits_removed_count = out->timers_removed_count = 0;
	return RESULT_OK;
}

enum result engine_complete(const struct step_env *env, const struct instance *inst, struct str node,
			    const struct event *event, struct step_result *out, struct error *err)
{
	const struct token *found = NULL;

	if (inst->status != INSTANCE_SUSPENDED)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "the instance is %s, not SUSPENDED",
				 instance_status_name(inst->status));
	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		const struct node *at = wait_node(env->deployment, inst, token);

		if (at && at->kind == NODE_USER && str_equal(at->id, node) &&
		    (!found || token->id < found->id))
			found = token;
	}
	if (!found)
		return error_set(err, RESULT_REJECT, CODE_ADMIN_NOT_FOUND,
				 "no token waits at a user task %.*s", STR_ARG(node));
	return engine_resume(env, inst, found->id, event, out, err);
}
