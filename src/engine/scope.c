/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes: the variables of an instance, and what an expression sees of it.
 *
 * A name is looked up from the token's scope towards the root, or to that of the call it stands in: a called process sees
 * none of its caller's. An assignment changes the variable where it was found, and makes it in that outermost scope if none
 * has it. Variables belong to the input of the step until the first assignment: then the array of that one scope is copied
 * (not the values), and grows in the step's arena.
 *
 * The total size is bounded, because every step loads and stores all of it. It is measured at the first assignment of a step
 * and kept up from there, so that a step which assigns nothing does not walk its variables, and one that grows them in a
 * circle is stopped at the first assignment too many.
 */
#include <inttypes.h>

#include "engine/behaviour.h"

/* All that one step may make, kept or not: a loop must not fill the memory with values that it replaces. */
#define STEP_MAX_MADE (UINT64_C(256) << 20)

enum result step_made(struct step *step, size_t bytes, struct error *err)
{
	step->made_bytes += bytes;
	if (step->made_bytes > STEP_MAX_MADE)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_STEP_LIMIT,
				 "the step made more than %" PRIu64 " bytes of values",
				 STEP_MAX_MADE);
	return RESULT_OK;
}

static struct scope_variable *scope_find(const struct scope *scope, struct str name)
{
	for (uint32_t i = 0; i < scope->variable_count; i++)
		if (str_equal(scope->variables[i].name, name))
			return &scope->variables[i];
	return NULL;
}

/* The nearest scope, from `id` to the process's, that has the variable; `*variable` NULL and the process's if none has. */
static struct scope *scope_lookup(const struct instance *inst, uint32_t id, struct str name,
				  struct scope_variable **variable)
{
	struct scope *scope = instance_scope(inst, id);

	for (;;) {
		assert(scope);
		*variable = scope_find(scope, name);
		if (*variable || scope->parent == scope->id || scope->process.ptr)
			return scope;
		scope = instance_scope(inst, scope->parent);
	}
}

static uint64_t variable_bytes(const struct scope_variable *variable)
{
	return variable->name.len + value_size(&variable->value);
}

static uint64_t variables_bytes(const struct instance *inst)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < inst->scope_count; i++)
		for (uint32_t k = 0; k < inst->scopes[i].variable_count; k++)
			total += variable_bytes(&inst->scopes[i].variables[k]);
	for (uint32_t i = 0; i < inst->token_count; i++)
		for (uint32_t k = 0; k < inst->tokens[i].local_count; k++)
			total += variable_bytes(&inst->tokens[i].locals[k]);
	return total;
}

void step_own_scopes(struct step *step)
{
	struct instance *inst = step->inst;
	struct arena *arena = step->env->arena;

	if (step->scopes_owned)
		return;
	step->scopes_owned = true;
	inst->scopes = arena_memdup(arena, inst->scopes, inst->scope_count * sizeof(*inst->scopes));
	step->scope_caps = arena_zalloc(arena, inst->scope_count * sizeof(*step->scope_caps));
	step->scope_cap = step->scope_caps_cap = inst->scope_count;
}

void step_forget(struct step *step, const struct scope *scope)
{
	for (uint32_t i = 0; step->variables_measured && i < scope->variable_count; i++)
		step->variables_bytes -= variable_bytes(&scope->variables[i]);
}

/* Makes the scope's variables the step's own, with room for one more. */
static void scope_own(struct step *step, struct scope **scope, struct scope_variable **variable)
{
	struct instance *inst = step->inst;
	size_t at = (size_t)(*scope - inst->scopes);
	size_t position = *variable ? (size_t)(*variable - (*scope)->variables) : 0;

	step_own_scopes(step);
	*scope = &inst->scopes[at];
	(*scope)->variables = step_grow(step->env->arena, (*scope)->variables,
					(*scope)->variable_count, &step->scope_caps[at],
					sizeof(*(*scope)->variables));
	if (*variable)
		*variable = &(*scope)->variables[position];
}

static const char *variable_type_name(enum variable_type type)
{
	static const char *const names[] = {
		[VARIABLE_ANY] = "any",         [VARIABLE_STRING] = "string",
		[VARIABLE_INTEGER] = "integer", [VARIABLE_NUMBER] = "number",
		[VARIABLE_BOOLEAN] = "boolean", [VARIABLE_MAP] = "map",
		[VARIABLE_LIST] = "list",
	};

	return names[type];
}

static enum result variable_check(const struct process *process, struct str name,
				  const msgpack_object *value, struct error *err)
{
	for (uint32_t i = 0; i < process->variable_count; i++) {
		const struct variable *variable = &process->variables[i];

		if (!str_equal(variable->name, name))
			continue;
		if (variable_accepts(variable, value))
			return RESULT_OK;
		return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
				 "the value for variable %.*s is not of its type %s", STR_ARG(name),
				 variable_type_name(variable->type));
	}
	return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
			 "variable %.*s is not declared", STR_ARG(name));
}

enum result step_check_value(struct step *step, uint32_t scope, struct str name,
			     const msgpack_object *value, struct error *err)
{
	return variable_check(step_process(step, scope), name, value, err);
}

static void measure(struct step *step)
{
	if (step->variables_measured)
		return;
	step->variables_bytes = variables_bytes(step->inst);
	step->variables_measured = true;
}

enum result step_check_bytes(struct step *step, struct str name, struct error *err)
{
	measure(step);
	if (step->variables_bytes > step->env->max_variables_bytes)
		return error_set(err, RESULT_REJECT, CODE_RUNTIME_VARIABLES_TOO_LARGE,
				 "with variable %.*s the variables have %" PRIu64
				 " bytes; the limit is %" PRIu64,
				 STR_ARG(name), step->variables_bytes,
				 step->env->max_variables_bytes);
	return RESULT_OK;
}

/* Writes `value` to `variable` of `scope`, or to a new one. */
static enum result scope_write(struct step *step, struct scope *scope,
			       struct scope_variable *variable, struct str name,
			       const msgpack_object *value, struct error *err)
{
	if (variable && value_equal(&variable->value, value))
		return RESULT_OK;
	measure(step);
	scope_own(step, &scope, &variable);
	if (variable) {
		step->variables_bytes -= variable_bytes(variable);
	} else {
		variable = &scope->variables[scope->variable_count++];
		variable->name = name;
	}
	variable->value = *value;
	step->variables_bytes += variable_bytes(variable);
	step->names_valid = false;
	return step_check_bytes(step, name, err);
}

enum result step_assign(struct step *step, uint32_t scope_id, struct str name,
			const msgpack_object *value, struct error *err)
{
	struct scope_variable *variable;
	struct scope *scope;
	enum result result = variable_check(step_process(step, scope_id), name, value, err);

	if (result == RESULT_OK)
		result = step_made(step, value_size(value), err);
	if (result != RESULT_OK)
		return result;
	scope = scope_lookup(step->inst, scope_id, name, &variable);
	if (!variable && value_is_nil(value))
		return RESULT_OK;
	return scope_write(step, scope, variable, name, value, err);
}

enum result step_set(struct step *step, uint32_t scope_id, struct str name,
		     const msgpack_object *value, struct error *err)
{
	struct scope *scope = instance_scope(step->inst, scope_id);
	enum result result = step_made(step, value_size(value), err);

	return result == RESULT_OK
		       ? scope_write(step, scope, scope_find(scope, name), name, value, err)
		       : result;
}

const msgpack_object *step_get(struct step *step, uint32_t scope_id, struct str name)
{
	const struct scope *scope = instance_scope(step->inst, scope_id);
	const struct scope_variable *variable = scope ? scope_find(scope, name) : NULL;

	return variable ? &variable->value : NULL;
}

static void add_name(struct step *step, struct str name, const msgpack_object *value)
{
	step->names[step->name_count++] = (struct expression_name){name, value};
}

/*
 * The declared variables with their values (NULL when unset), and behind them what hides a variable: the inputs of the task,
 * the payload, what did not hold of it, and the error that was caught. The source of a process is nothing to one that
 * calls it or is called by it, nor is its error.
 */
static void step_names(struct step *step, uint32_t scope)
{
	const struct process *process = step_process(step, scope);
	const struct token *token = step_token(step, step->at.token);
	uint32_t locals = token && token->scope == scope ? token->local_count : 0;
	uint32_t of_token = locals ? token->id : 0;
	size_t most = process->variable_count + locals + 3;

	if (step->names_valid && step->names_scope == scope && step->names_token == of_token)
		return;
	if (most > step->name_cap) {
		step->name_cap = most;
		step->names = arena_alloc(step->env->arena, step->name_cap * sizeof(*step->names));
	}
	step->name_count = 0;
	for (uint32_t i = 0; i < process->variable_count; i++) {
		struct scope_variable *variable;

		scope_lookup(step->inst, scope, process->variables[i].name, &variable);
		add_name(step, process->variables[i].name, variable ? &variable->value : NULL);
	}
	for (uint32_t i = 0; i < locals; i++)
		add_name(step, token->locals[i].name, &token->locals[i].value);
	if (step->event_name.ptr && process == step->event_process) {
		add_name(step, step->event_name, &step->event->payload);
		add_name(step, STR("validation"), &step->validation);
	}
	if (process == step->fault_process)
		add_name(step, STR("fault"), &step->fault);
	step->names_scope = scope;
	step->names_token = of_token;
	step->names_valid = true;
}

/*
 * The numbers among what seeds uuid(): the same for all expressions of a node in a step, so that an alias and a header made of
 * one name agree.
 */
static void step_seed(struct step *step)
{
	for (int i = 0; i < 8; i++)
		step->seed_version[i] = (uint8_t)((uint64_t)step->version >> (56 - 8 * i));
	for (int i = 0; i < 4; i++)
		step->seed_token[i] = (uint8_t)(step->at.token >> (24 - 8 * i));
}

static struct expression_scope step_scope(struct step *step, uint32_t scope, const struct node *node)
{
	const struct instance *inst = step->inst;
	const struct event *event = step->event;

	step_names(step, scope);
	if (!step->instance_text[0])
		id_format(inst->id, step->instance_text);
	step_seed(step);
	return (struct expression_scope){
		.names = step->names,
		.name_count = step->name_count,
		.headers = event->headers,
		.event = {event->id, event->type, event->channel, event->key, event->time_us},
		.instance = {str_of(step->instance_text), inst->started_us},
		.process_id = step_process(step, scope)->id,
		.tenant = inst->tenant,
		.now_us = step->env->now_us,
		.uuid_seed = {id_str(&inst->id), str_make(step->seed_version, sizeof(step->seed_version)),
			      str_make(step->seed_token, sizeof(step->seed_token)), node->id},
	};
}

enum result step_eval_in(struct step *step, uint32_t scope_id, const struct node *node,
			 const struct expression *expr, msgpack_object *out, struct error *err)
{
	struct expression_scope scope = step_scope(step, scope_id, node);

	return expression_eval(step->env->expressions, &step->env->deployment->expressions, expr,
			       &scope, step->env->arena, out, err);
}

enum result step_eval(struct step *step, const struct node *node, const struct expression *expr,
		      msgpack_object *out, struct error *err)
{
	return step_eval_in(step, step_token(step, step->at.token)->scope, node, expr, out, err);
}

/* All that a script assigned is checked before any of it is: an error in it may be caught. */
enum result step_script(struct step *step, const struct node *node, struct error *err)
{
	uint32_t scope_id = step_token(step, step->at.token)->scope;
	struct expression_scope scope = step_scope(step, scope_id, node);
	const struct process *process = node->process;
	struct expression_assignment *assigned;
	size_t count;
	enum result result;

	scope.assignable = process->variable_names;
	scope.assignable_count = process->assignable_count;
	result = expression_run(step->env->expressions, &step->env->deployment->expressions,
				node->script, &scope, step->env->arena, &assigned, &count, err);
	for (size_t i = 0; result == RESULT_OK && i < count; i++)
		result = variable_check(process, assigned[i].name, &assigned[i].value, err);
	for (size_t i = 0; result == RESULT_OK && i < count; i++)
		result = step_assign(step, scope_id, assigned[i].name, &assigned[i].value, err);
	return result;
}

/* Whether the variable is there to be set: one that is local is not outside of what it is local to. */
static bool variable_is_open(struct step *step, uint32_t scope, const struct variable *variable)
{
	struct scope_variable *found;

	if (!variable->scope)
		return true;
	scope_lookup(step->inst, scope, variable->name, &found);
	return found != NULL;
}

void step_drop_transients(struct step *step)
{
	struct instance *inst = step->inst;
	const msgpack_object nil = value_nil();

	for (uint32_t i = 0; i < inst->scope_count; i++) {
		const struct process *process = step_process(step, inst->scopes[i].id);

		for (uint32_t k = 0; process && k < process->variable_count; k++) {
			struct scope_variable *found;
			struct error ignored = ERROR_INIT;

			if (!process->variables[k].transient)
				continue;
			found = scope_find(&inst->scopes[i], process->variables[k].name);
			/* Its place stays, for one that is local is looked for there; nothing grows, so nothing can fail. */
			if (found && !value_is_nil(&found->value) &&
			    scope_write(step, &inst->scopes[i], found, found->name, &nil, &ignored) !=
				    RESULT_OK)
				assert(!"a variable that is unset is too large");
		}
	}
}

enum result step_receive(struct step *step, const struct node *node, struct error *err)
{
	const struct process *process = node->process;
	uint32_t scope = step_token(step, step->at.token)->scope;

	if (process->route_validation) {
		enum result result = event_validation(step->env, step->inst->tenant, node,
						      step->event, &step->validation, err);

		if (result != RESULT_OK)
			return result;
		step->names_valid = false;
	}
	for (uint32_t i = 0; i < process->variable_count; i++) {
		const struct variable *variable = &process->variables[i];
		msgpack_object value;
		enum result result;

		if (!variable->source || !variable_is_open(step, scope, variable))
			continue;
		result = step_eval(step, node, variable->source, &value, err);
		if (result == RESULT_OK)
			result = step_assign(step, scope, variable->name, &value, err);
		if (result != RESULT_OK)
			return result;
	}
	return RESULT_OK;
}
