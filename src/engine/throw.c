/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BPMN errors: from where one is thrown outwards to what catches it.
 *
 * At each level the boundary events of the activity are asked first, then the event sub-processes of the scope it stands in;
 * of each, one that names the code before one that takes any. What stood inside is torn down, and the path goes on from
 * the event. An error out of an event sub-process is not for its neighbours: the scope is theirs no more, so it goes on to
 * what holds the scope.
 */
#include "engine/behaviour.h"

static bool takes(const struct node *event, struct str code, bool named)
{
	return named ? event->error_code.ptr && str_equal(event->error_code, code)
		     : !event->error_code.ptr;
}

static const struct node *boundary_for(const struct node *node, struct str code)
{
	for (int named = 1; named >= 0; named--)
		for (uint32_t i = 0; i < node->boundary_count; i++)
			if (node->boundaries[i]->kind == NODE_BOUNDARY_ERROR &&
			    takes(node->boundaries[i], code, named))
				return node->boundaries[i];
	return NULL;
}

static const struct node *event_subprocess_for(const struct inside *inside, struct str code)
{
	for (int named = 1; named >= 0; named--)
		for (uint32_t i = 0; i < inside->event_sub_count; i++) {
			const struct node *start = inside->event_subs[i]->inside.start;

			if (start && start->kind == NODE_EVENT_START_ERROR && takes(start, code, named))
				return inside->event_subs[i];
		}
	return NULL;
}

/* What stands in the scope: a process, a sub-process; NULL for those of loops. */
static const struct inside *scope_inside(struct step *step, const struct scope *scope)
{
	const struct process *process = step_process(step, scope->id);
	const struct node *node;

	if (scope->id == 0 || scope->process.ptr)
		return process ? &process->inside : NULL;
	node = process ? process_node(process, scope->node) : NULL;
	return node && !scope->iteration ? &node->inside : NULL;
}

static enum result catch_at_boundary(struct step *step, uint32_t token, const struct node *event)
{
	step_clear(step, token);
	step_stand(step, token, event);
	return RESULT_OK;
}

static enum result catch_in_scope(struct step *step, uint32_t scope, const struct node *sub,
				  struct error *err)
{
	step_clear_scope(step, scope);
	return step_begin_event_subprocess(step, scope, sub, err);
}

/* What the handler may know of it. Headers may be no UTF-8. */
static msgpack_object fault_text(struct str text)
{
	if (!text.ptr)
		return value_nil();
	return str_is_utf8(text) ? value_text(text) : value_bytes(text);
}

static void set_fault(struct step *step, const struct process *process, struct str code,
		      struct str message)
{
	msgpack_object map = value_map(step->env->arena, 2);

	map.via.map.ptr[0] = (msgpack_object_kv){value_text(STR("code")), fault_text(code)};
	map.via.map.ptr[1] = (msgpack_object_kv){value_text(STR("message")), fault_text(message)};
	step->fault = map;
	step->fault_process = process;
	step->names_valid = false;
}

enum result step_throw(struct step *step, struct str code, struct str message, struct error *err)
{
	uint32_t id = step->at.token;
	const struct node *node = step->at.node;

	while (node) {
		const struct token *token = step_token(step, id);
		const struct scope *scope = instance_scope(step->inst, token->scope);
		bool run = scope->iteration && str_equal(scope->node, node->id);
		const struct inside *inside = run || node->kind == NODE_EVENT_SUBPROCESS
						      ? NULL
						      : scope_inside(step, scope);
		const struct node *found = run ? NULL : boundary_for(node, code);

		if (!found)
			found = inside ? event_subprocess_for(inside, code) : NULL;
		if (found)
			set_fault(step, found->process, code, message);
		if (found && found->kind == NODE_BOUNDARY_ERROR)
			return catch_at_boundary(step, id, found);
		if (found)
			return catch_in_scope(step, scope->id, found, err);
		if (scope->id == 0)
			break;
		id = scope->owner;
		token = step_token(step, id);
		node = token ? step_node(step, token) : NULL;
	}
	return RESULT_REJECT;
}

enum result step_raise(struct step *step, struct str code, struct str message, struct error *err)
{
	struct error inner = ERROR_INIT;
	enum result result = step_throw(step, code, message, &inner);

	if (result == RESULT_OK)
		return RESULT_OK;
	if (inner.code != CODE_NONE) {
		*err = inner;
		return result;
	}
	return error_set(err, RESULT_REJECT,
			 str_equal(code, STR("CALL.TIMEOUT")) ? CODE_RUNTIME_CALL_TIMEOUT
							      : CODE_RUNTIME_ERROR_NOT_CAUGHT,
			 message.len ? "nothing catches the error \"%.*s\": %.*s"
				     : "nothing catches the error \"%.*s\"%.*s",
			 STR_ARG(code), STR_ARG(message));
}
