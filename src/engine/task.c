/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: the inputs that one has while it runs, and the outputs that it leaves.
 *
 * What belongs to a task belongs to its token: values with names that only its own expressions see, gone when the token
 * moves on. Names that no expression can write (`#attempt`) are the engine's. They count among the variables, since they
 * are stored with them.
 *
 * Order at the end of a task: its outputs are evaluated and held against the types of their variables, then it sends what
 * it has to send, then the variables are set. So nothing of it has happened when an expression of it fails.
 */
#include <stdlib.h>

#include "engine/behaviour.h"

void step_locals_drop(struct step *step, struct token *token)
{
	if (!token->local_count)
		return;
	token->locals = NULL;
	token->local_count = 0;
	/* What they had is taken off by measuring anew. */
	step->variables_measured = false;
	step->names_valid = false;
}

const msgpack_object *token_local(const struct token *token, struct str name)
{
	for (uint32_t i = 0; i < token->local_count; i++)
		if (str_equal(token->locals[i].name, name))
			return &token->locals[i].value;
	return NULL;
}

/* The token's own array, with `name` in it: the one before may be the input's. */
enum result step_local_set(struct step *step, struct str name, const msgpack_object *value,
			   struct error *err)
{
	struct token *token = step_token(step, step->at.token);
	struct scope_variable *locals = arena_alloc(step->env->arena, (token->local_count + 1) *
									      sizeof(*locals));
	uint32_t at = 0;

	if (token->local_count)
		memcpy(locals, token->locals, token->local_count * sizeof(*locals));
	while (at < token->local_count && !str_equal(locals[at].name, name))
		at++;
	locals[at] = (struct scope_variable){name, *value};
	token->locals = locals;
	token->local_count += at == token->local_count;
	step->variables_measured = false;
	step->names_valid = false;
	return step_check_bytes(step, name, err);
}

void step_local_remove(struct step *step, struct str name)
{
	struct token *token = step_token(step, step->at.token);
	struct scope_variable *locals = arena_alloc(step->env->arena, (token->local_count + 1) *
									      sizeof(*locals));
	uint32_t count = 0;

	for (uint32_t i = 0; i < token->local_count; i++)
		if (!str_equal(token->locals[i].name, name))
			locals[count++] = token->locals[i];
	token->locals = locals;
	token->local_count = count;
	step->variables_measured = false;
	step->names_valid = false;
}

enum result task_begin(struct step *step, const struct node *node, struct error *err)
{
	struct arena *arena = step->env->arena;
	struct scope_variable *locals;
	struct token *token;

	step_locals_drop(step, step_token(step, step->at.token));
	if (!node_has_inputs(node))
		return RESULT_OK;
	locals = arena_alloc(arena, node->param_count * sizeof(*locals));
	for (uint32_t i = 0; i < node->param_count; i++) {
		enum result result;

		locals[i].name = node->params[i].name;
		result = step_eval(step, node, node->params[i].expression, &locals[i].value, err);
		if (result == RESULT_OK)
			result = step_made(step, value_size(&locals[i].value), err);
		if (result != RESULT_OK)
			return result;
	}
	token = step_token(step, step->at.token);
	token->locals = locals;
	token->local_count = node->param_count;
	step->variables_measured = false;
	step->names_valid = false;
	return step_check_bytes(step, locals[node->param_count - 1].name, err);
}

enum result task_end(struct step *step, const struct node *node, bool emit, struct error *err)
{
	uint32_t scope = step_token(step, step->at.token)->scope;
	msgpack_object *values = arena_alloc(step->env->arena,
					     (node->output_count + 1) * sizeof(*values));
	enum result result = RESULT_OK;

	for (uint32_t i = 0; result == RESULT_OK && i < node->output_count; i++) {
		result = step_eval(step, node, node->outputs[i].expression, &values[i], err);
		if (result == RESULT_OK)
			result = step_check_value(step, scope, node->outputs[i].variable, &values[i],
						  err);
	}
	if (result == RESULT_OK && emit)
		result = step_emit(step, node, err);
	for (uint32_t i = 0; result == RESULT_OK && i < node->output_count; i++)
		result = step_assign(step, scope, node->outputs[i].variable, &values[i], err);
	if (result == RESULT_OK)
		step_locals_drop(step, step_token(step, step->at.token));
	return result == RESULT_OK ? step_leave(step, node, err) : result;
}

/* Inputs are written in the order of their names, as the tables of expressions are. */
static int compare_names(const void *a, const void *b)
{
	const struct scope_variable *x = a, *y = b;

	return str_compare(x->name, y->name);
}

msgpack_object task_inputs(struct step *step)
{
	const struct token *token = step_token(step, step->at.token);
	struct arena *arena = step->env->arena;
	struct scope_variable *sorted = arena_alloc(arena, (token->local_count + 1) * sizeof(*sorted));
	uint32_t count = 0;
	msgpack_object map;

	for (uint32_t i = 0; i < token->local_count; i++)
		if (token->locals[i].name.ptr[0] != '#')
			sorted[count++] = token->locals[i];
	qsort(sorted, count, sizeof(*sorted), compare_names);
	map = value_map(arena, count);
	for (uint32_t i = 0; i < count; i++)
		map.via.map.ptr[i] = (msgpack_object_kv){value_text(sorted[i].name), sorted[i].value};
	return map;
}
