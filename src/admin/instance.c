/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One instance, with what its snapshot says: where its tokens stand, what they wait for, its aliases and its variables.
 *
 * Variables that the model declares sensitive are masked. Without the model at hand nobody can tell which those are, so
 * all are. The message that a failed first step keeps is never shown: it is a payload, and dead letters are the place for
 * those.
 */
#include "admin/internal.h"
#include "base/time.h"

#define MASK "***"

/* The process that runs in a scope: a call has the variables of the called one. */
static const struct process *process_of(struct admin *admin, const struct instance *inst, uint32_t scope)
{
	const struct view_member *member = admin->view
						   ? view_deployment(admin->view, inst->deployment)
						   : NULL;

	return member ? deployment_process(member->deployment, instance_scope_process(inst, scope)) : NULL;
}

/* What is not declared is the engine's own: the items of a loop and its results, which may be of what is sensitive. */
static bool is_masked(const struct process *process, struct str name)
{
	for (uint32_t i = 0; process && i < process->variable_count; i++)
		if (str_equal(process->variables[i].name, name))
			return process->variables[i].sensitive;
	return true;
}

static void write_variables(struct buf *out, const struct process *process,
			    const struct scope *scope)
{
	json_name(out, "variables");
	json_open(out, '{');
	for (uint32_t i = 0; scope && i < scope->variable_count; i++) {
		const struct scope_variable *variable = &scope->variables[i];

		json_name_str(out, variable->name);
		if (is_masked(process, variable->name))
			buf_add_text(out, "\"" MASK "\"");
		else
			json_value(out, NULL, &variable->value);
	}
	json_close(out, '}');
}

/* What the model knows of a node; without it nothing. */
static void write_node(struct buf *out, const struct process *process, struct str id)
{
	const struct node *node = process && id.ptr ? process_node(process, id) : NULL;

	json_text(out, "node", id);
	json_text(out, "name", node && node->name.len ? node->name : STR_NONE);
	json_text(out, "kind", node ? str_of(node_kind_name(node->kind)) : STR_NONE);
}

static void write_token(struct admin *admin, struct buf *out, const struct instance *inst, const struct token *token)
{
	const struct process *process = process_of(admin, inst, token->scope);
	const struct node *node = process ? process_node(process, token->node) : NULL;
	const struct source *source = node && token->state == TOKEN_WAITING ? node->source : NULL;
	char due[TIME_TEXT_SIZE];

	json_open(out, '{');
	json_int(out, "id", token->id);
	json_int(out, "scope", token->scope);
	json_int(out, "host", token->host);
	write_node(out, process, token->node);
	json_text(out, "state", str_of(token_state_name(token->state)));
	json_text(out, "flow", token->state == TOKEN_JOINING ? token->flow : STR_NONE);
	json_text(out, "channel", source ? source->channel : STR_NONE);
	json_text(out, "messageType", source ? source->type_value : STR_NONE);
	json_text(out, "dueAt", token->due_us ? str_of(time_format(token->due_us, due)) : STR_NONE);
	json_name(out, "waits");
	json_open(out, '[');
	for (uint32_t i = 0; i < token->key_count; i++) {
		json_open(out, '{');
		json_text(out, "name", token->keys[i].name);
		json_text(out, "value", token->keys[i].value);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_close(out, '}');
}

static void write_aliases(struct buf *out, const struct instance *inst)
{
	json_name(out, "aliases");
	json_open(out, '[');
	for (uint32_t i = 0; i < inst->alias_count; i++) {
		json_open(out, '{');
		json_text(out, "name", inst->aliases[i].name);
		json_text(out, "value", inst->aliases[i].value);
		json_bool(out, "unique", inst->aliases[i].unique);
		json_close(out, '}');
	}
	json_close(out, ']');
}

/* The root's variables are the instance's; scopes are what is open inside it. */
static void write_scopes(struct admin *admin, struct buf *out, const struct instance *inst)
{
	const struct scope *root = NULL;

	for (uint32_t i = 0; i < inst->scope_count; i++)
		if (inst->scopes[i].id == inst->scopes[i].parent)
			root = &inst->scopes[i];
	write_variables(out, process_of(admin, inst, root ? root->id : 0), root);
	json_name(out, "scopes");
	json_open(out, '[');
	for (uint32_t i = 0; i < inst->scope_count; i++) {
		const struct scope *scope = &inst->scopes[i];

		if (scope == root)
			continue;
		json_open(out, '{');
		json_int(out, "id", scope->id);
		json_int(out, "parent", scope->parent);
		json_int(out, "owner", scope->owner);
		json_int(out, "iteration", scope->iteration);
		write_node(out, process_of(admin, inst, scope->parent), scope->node);
		json_text(out, "process", scope->process);
		write_variables(out, process_of(admin, inst, scope->id), scope);
		json_close(out, '}');
	}
	json_close(out, ']');
}

static void write_snapshot(struct admin_request *request, const struct rows *rows)
{
	struct buf *out = &request->body;
	struct error err = ERROR_INIT;
	struct instance *inst;

	if (snapshot_unpack(&request->arena, rows_at(rows, 0, 12)->str, rows_at(rows, 0, 0)->id,
			    rows_at(rows, 0, 1)->str, rows_at(rows, 0, 5)->i, &inst,
			    &err) != RESULT_OK) {
		json_text(out, "snapshotError", str_of(err.text));
		return;
	}
	json_text(out, "failureNode", inst->failure_node);
	json_name(out, "tokens");
	json_open(out, '[');
	for (uint32_t i = 0; i < inst->token_count; i++)
		write_token(request->admin, out, inst, &inst->tokens[i]);
	json_close(out, ']');
	write_aliases(out, inst);
	write_scopes(request->admin, out, inst);
	json_bool(out, "modelLoaded", process_of(request->admin, inst, 0) != NULL);
}

static void instance_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;

	if (rows->row_count == 0) {
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "there is no such instance");
		return;
	}
	json_open(out, '{');
	admin_instance_columns(out, rows, 0);
	if (!rows_at(rows, 0, 12)->is_null)
		write_snapshot(request, rows);
	json_close(out, '}');
	admin_answer_json(request);
}

static void ask_instance(struct admin_request *request)
{
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_INSTANCE_GET);
	admin_param_id(request, 0, 0, *(const struct id *)request->state);
	admin_ask(request, false, instance_answered);
}

void admin_instance(struct admin_request *request)
{
	struct id *id = request->state = arena_alloc(&request->arena, sizeof(*id));

	if (admin_read_id(request, "id", request->id, id))
		admin_ask_tenants(request, ask_instance);
}
