/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding things in an instance. Tokens and scopes stand in ascending order of their ids: a step appends new ones, which
 * have the highest ids, and takes others out without changing the order of the rest. The snapshot reader insists on it.
 */
#include "engine/instance.h"

#include "engine/behaviour.h"

const char *instance_status_name(enum instance_status status)
{
	switch (status) {
	case INSTANCE_RUNNING:
		return "RUNNING";
	case INSTANCE_SUSPENDED:
		return "SUSPENDED";
	case INSTANCE_COMPLETED:
		return "COMPLETED";
	case INSTANCE_TERMINATED:
		return "TERMINATED";
	case INSTANCE_FAILED:
		return "FAILED";
	}
	return "UNKNOWN";
}

const char *token_state_name(enum token_state state)
{
	switch (state) {
	case TOKEN_READY:
		return "READY";
	case TOKEN_WAITING:
		return "WAITING";
	case TOKEN_JOINING:
		return "JOINING";
	case TOKEN_HOLDING:
		return "HOLDING";
	}
	return "UNKNOWN";
}

struct str instance_scope_process(const struct instance *inst, uint32_t scope)
{
	const struct scope *at = instance_scope(inst, scope);

	while (at && !at->process.ptr && at->parent != at->id)
		at = instance_scope(inst, at->parent);
	return at && at->process.ptr ? at->process : inst->process;
}

bool instance_has_alias(const struct instance *inst, struct str name, struct str value)
{
	for (uint32_t i = 0; i < inst->alias_count; i++)
		if (str_equal(inst->aliases[i].name, name) &&
		    str_equal(inst->aliases[i].value, value))
			return true;
	return false;
}

const struct token *instance_token(const struct instance *inst, uint32_t id)
{
	uint32_t low = 0, high = inst->token_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (inst->tokens[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < inst->token_count && inst->tokens[low].id == id ? &inst->tokens[low] : NULL;
}

struct scope *instance_scope(const struct instance *inst, uint32_t id)
{
	uint32_t low = 0, high = inst->scope_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (inst->scopes[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < inst->scope_count && inst->scopes[low].id == id ? &inst->scopes[low] : NULL;
}

const struct process *instance_process(const struct deployment *deployment,
				       const struct instance *inst, uint32_t scope)
{
	return deployment_process(deployment, instance_scope_process(inst, scope));
}

const struct node *instance_node(const struct deployment *deployment, const struct instance *inst,
				 const struct token *token)
{
	const struct process *process = instance_process(deployment, inst, token->scope);

	return process ? process_node(process, token->node) : NULL;
}
