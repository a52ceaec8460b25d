/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every expression of a process against the names it may use.
 *
 * Two scopes. What is evaluated over an arriving message alone, before any instance is known (aliases, dedupKey, validate),
 * sees the source and what comes with the message. Everything else runs inside an instance and sees its variables too,
 * and the sources, each from its arrival to the token's next wait.
 */
#include "model/build.h"

#define FINDINGS_PER_EXPRESSION 8

/* Names that every expression may use beside the library. */
static const struct str everywhere[] = {
	{"header", 6}, {"event", 5},    {"process", 7}, {"tenant", 6},
	{"null", 4},   {"instance", 8}, {"fault", 5},   {"validation", 10},
};
#define INSTANCE_NAMES ARRAY_LEN(everywhere)
#define MESSAGE_NAMES  (ARRAY_LEN(everywhere) - 3) /* there is no instance yet */

struct scope {
	struct build *build;
	const struct process *process;
	struct str *names; /* of the instance scope, at one node */
	size_t name_count;
	struct str *assignable; /* the variables among them that a script may set */
	size_t assignable_count;
	size_t source_count; /* how many of the names come first, and stand everywhere in the process */
};

static bool is_blank(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!memchr(" \t\r\n", s.ptr[i], 4))
			return false;
	return true;
}

static void check_one(const struct scope *scope, struct str element, const char *what,
		      const struct expression *expr, const struct str *names, size_t name_count)
{
	struct expression_finding findings[FINDINGS_PER_EXPRESSION];
	bool script = expr && expr->kind == EXPRESSION_SCRIPT;
	size_t count;

	if (!expr || is_blank(expr->source))
		return; /* absent, or reported as empty */
	count = expression_check(expr, names, name_count, script ? scope->assignable : NULL,
				 script ? scope->assignable_count : 0, findings,
				 ARRAY_LEN(findings));
	for (size_t i = 0; i < count && i < ARRAY_LEN(findings); i++)
		finding_add(scope->build->findings, expr->file, expr->line + findings[i].line - 1,
			    element, CODE_CONFIG_EXPRESSION_INVALID, "%s, column %d: %s", what,
			    findings[i].column, findings[i].text);
}

static void check_inside(const struct scope *scope, struct str element, const char *what,
			 const struct expression *expr)
{
	check_one(scope, element, what, expr, scope->names, scope->name_count);
}

static void check_message(const struct scope *scope, const struct node *node, const char *what,
			  const struct expression *expr)
{
	struct str names[MESSAGE_NAMES + 1];

	if (!node->source)
		return; /* reported; there is nothing to see */
	memcpy(names, everywhere, sizeof(names[0]) * MESSAGE_NAMES);
	names[MESSAGE_NAMES] = node->source->name;
	check_one(scope, node->id, what, expr, names, ARRAY_LEN(names));
}

/* Whether a variable is there for what is evaluated at a node; `node` NULL: at the process itself. */
static bool is_visible(const struct variable *variable, const struct node *node)
{
	const struct node *at = node;

	if (!variable->scope)
		return true;
	if (!variable->of_run)
		at = node ? node->container : NULL;
	while (at && at != variable->scope)
		at = at->container;
	return at != NULL;
}

/* The names that stand at a node, behind those that stand everywhere. */
static void scope_at(struct scope *scope, const struct node *node)
{
	const struct process *process = scope->process;

	scope->name_count = scope->source_count;
	scope->assignable_count = 0;
	for (uint32_t i = 0; i < process->variable_count; i++) {
		const struct variable *variable = &process->variables[i];

		if (!variable->name.ptr || !is_visible(variable, node))
			continue;
		scope->names[scope->name_count++] = variable->name;
		if (!variable->readonly)
			scope->assignable[scope->assignable_count++] = variable->name;
	}
}

/* And those of a task's inputs, for what it evaluates itself. */
static void scope_add_inputs(struct scope *scope, const struct node *node)
{
	for (uint32_t i = 0; node_has_inputs(node) && i < node->param_count; i++)
		if (node->params[i].name.ptr)
			scope->names[scope->name_count++] = node->params[i].name;
}

static void check_outputs(const struct scope *scope, const struct node *node)
{
	for (uint32_t i = 0; node->kind != NODE_CALL && i < node->output_count; i++)
		check_inside(scope, node->id, "q:output expression", node->outputs[i].expression);
}

static void check_loop(const struct scope *scope, const struct node *node)
{
	const struct loop_rule *loop = node->loop;

	if (!loop)
		return;
	check_inside(scope, node->id, "collection", loop->collection);
	check_inside(scope, node->id, "loopCardinality", loop->cardinality);
	check_inside(scope, node->id, "output", loop->output);
	check_inside(scope, node->id, loop->multi ? "completionCondition" : "loopCondition",
		     loop->condition);
}

/* A timer is armed where its event stands; that of an event sub-process, outside of it. */
static void check_timer(struct scope *scope, const struct node *node)
{
	if (!node->timer || !node->timer->expression)
		return;
	scope_at(scope, node->kind == NODE_EVENT_START_TIMER ? node->container : node);
	check_inside(scope, node->id, timer_kind_name(node->timer->kind), node->timer->expression);
}

static void check_node(struct scope *scope, const struct node *node)
{
	const struct source *source = node->source;

	scope_at(scope, node);
	check_loop(scope, node);
	for (uint32_t i = 0; i < node->param_count; i++)
		check_inside(scope, node->id, "q:param expression", node->params[i].expression);
	scope_add_inputs(scope, node);
	for (uint32_t i = 0; source && i < source->validate_count; i++)
		check_message(scope, node, "q:validate expression",
			      source->validates[i].expression);
	if (source)
		check_message(scope, node, "q:source dedupKey", source->dedup_key);
	for (uint32_t i = 0; i < node->alias_count; i++) {
		check_message(scope, node, "q:alias expression", node->aliases[i].expression);
		check_inside(scope, node->id, "q:alias value", node->aliases[i].value);
	}
	if (node->send)
		check_inside(scope, node->id, "q:send body", node->send->body);
	if (node->call)
		check_inside(scope, node->id, "q:timeout duration", node->call->timeout);
	if (node->reply)
		check_inside(scope, node->id, "q:reply body", node->reply->body);
	for (uint32_t i = 0; i < node->header_count; i++)
		check_inside(scope, node->id, "q:header value", node->headers[i].value);
	check_inside(scope, node->id, "script", node->script);
	check_outputs(scope, node);
}

static void scope_init(struct scope *scope, struct build *build, const struct process *process)
{
	struct map seen;

	*scope = (struct scope){.build = build, .process = process};
	scope->names = arena_alloc(build->arena, sizeof(scope->names[0]) *
							 (INSTANCE_NAMES + process->variable_count +
							  process->node_count + BUILD_RULES_MAX));
	scope->assignable = arena_alloc(build->arena, sizeof(scope->assignable[0]) *
							      (process->variable_count + 1));
	memcpy(scope->names, everywhere, sizeof(everywhere));
	scope->source_count = INSTANCE_NAMES;
	map_init(&seen);
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct source *source = process->nodes[i]->source;

		if (!source || map_get(&seen, source->name))
			continue;
		map_put(&seen, source->name, (void *)source);
		scope->names[scope->source_count++] = source->name;
	}
	map_done(&seen);
	scope_at(scope, NULL);
}

void bpmn_check_expressions(struct build *build, const struct process *process)
{
	struct scope scope;

	scope_init(&scope, build, process);
	for (uint32_t i = 0; i < process->variable_count; i++)
		check_inside(&scope, process->id, "q:variable source",
			     process->variables[i].source);
	for (uint32_t i = 0; i < process->node_count; i++) {
		check_node(&scope, process->nodes[i]);
		check_timer(&scope, process->nodes[i]);
	}
	for (uint32_t i = 0; i < process->flow_count; i++) {
		if (!process->flows[i]->condition)
			continue;
		scope_at(&scope, process->flows[i]->from);
		check_inside(&scope, process->flows[i]->id, "condition",
			     process->flows[i]->condition);
	}
}

void bpmn_check_outputs(struct build *build, const struct node *call)
{
	struct scope scope;

	scope_init(&scope, build, call->called);
	for (uint32_t i = 0; i < call->output_count; i++) {
		const struct expression *expr = call->outputs[i].expression;

		check_inside(&scope, call->id, "q:output expression", expr);
	}
}

bool bpmn_check_key(struct build *build, const struct process *process,
		    const struct channel *channel)
{
	struct expression_finding found;
	struct scope scope;

	if (is_blank(channel->key->source))
		return true;
	scope_init(&scope, build, process);
	if (expression_check(channel->key, scope.names, scope.name_count, NULL, 0, &found, 1) == 0)
		return true;
	finding_add(build->findings, channel->file, channel->key->line + found.line - 1,
		    channel->name, CODE_CONFIG_EXPRESSION_INVALID,
		    "key, column %d, when sent by process \"%.*s\": %s", found.column,
		    STR_ARG(process->id), found.text);
	return false;
}
