/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can only be told when all processes of a package are there: whom a call activity calls, whether anything begins a
 * process, and whether something registers what a wait is found by. An alias belongs to the instance, and a called process
 * runs inside its caller's: so its waits may be found by what any other process registers.
 */
#include "model/build.h"

static void invalid(struct build *build, const struct node *node, int line, const char *fmt, ...)
	PRINTF_LIKE(4, 5);

static void invalid(struct build *build, const struct node *node, int line, const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	text = arena_vprintf(build->arena, fmt, ap);
	va_end(ap);
	finding_add(build->findings, node->process->file, line, node->id, CODE_CONFIG_BPMN_INVALID,
		    "%s", text);
}

static bool declares(const struct process *process, struct str name)
{
	for (uint32_t i = 0; i < process->variable_count; i++) {
		const struct variable *variable = &process->variables[i];

		if (!variable->scope && !variable->readonly && str_equal(variable->name, name))
			return true;
	}
	return false;
}

static void link_call(struct build *build, struct node *node)
{
	struct process *called = NULL;

	for (uint32_t i = 0; i < build->deployment->process_count && !called; i++)
		if (str_equal(build->deployment->processes[i]->id, node->called_id))
			called = build->deployment->processes[i];
	if (!node->called_id.len)
		return; /* reported as missing */
	if (!called) {
		invalid(build, node, node->line, "calledElement \"%.*s\" is no process of the package",
			STR_ARG(node->called_id));
		return;
	}
	node->called = called;
	called->called = true;
	if (!called->inside.start && !called->torn)
		invalid(build, node, node->line,
			"the process \"%.*s\" has no start event without a message, where a call begins",
			STR_ARG(node->called_id));
	for (uint32_t i = 0; i < node->param_count; i++)
		if (node->params[i].name.len && !declares(called, node->params[i].name))
			invalid(build, node, node->params[i].line,
				"q:param names \"%.*s\", which is no variable of the process \"%.*s\"",
				STR_ARG(node->params[i].name), STR_ARG(node->called_id));
	bpmn_check_outputs(build, node);
}

/* The names that starts and waits of the process register. */
static void collect_registered(const struct process *process, struct map *registered)
{
	for (uint32_t i = 0; i < process->node_count; i++) {
		struct node *node = process->nodes[i];

		for (uint32_t j = 0; j < node->alias_count; j++)
			if (node->aliases[j].name.ptr &&
			    (node->kind == NODE_START || node->aliases[j].value))
				map_put(registered, node->aliases[j].name, node);
	}
}

/* `all`: what any process of the package registers. */
static void check_aliases(struct build *build, const struct process *process, const struct map *all)
{
	struct map own;

	map_init(&own);
	collect_registered(process, &own);
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *node = process->nodes[i];

		for (uint32_t j = 0; node_is_wait(node) && j < node->alias_count; j++) {
			const struct alias_rule *alias = &node->aliases[j];

			if (alias->name.ptr && alias->expression &&
			    !map_get(process->called ? all : &own, alias->name))
				invalid(build, node, alias->line,
					"nothing in the process registers the alias \"%.*s\", so "
					"no "
					"message could find this wait",
					STR_ARG(alias->name));
		}
	}
	map_done(&own);
}

/* A message names its wait by channel and node: two processes must not have one name for two waits. */
static void check_wait_name(struct build *build, struct map *seen, struct node *node)
{
	struct str key = str_of(arena_printf(build->arena, "%.*s %.*s", STR_ARG(node->source->channel),
					     STR_ARG(node->id)));
	const struct node *other = map_get(seen, key);

	if (other && other->process != node->process)
		invalid(build, node, node->line,
			"the process \"%.*s\" has a wait of this id on the same channel",
			STR_ARG(other->process->id));
	map_put(seen, key, node);
}

static void check_process(struct build *build, const struct process *process, const struct map *all,
			  struct map *waits)
{
	const struct node *start = process->inside.start;

	if (start && !process->called)
		invalid(build, start, start->line,
			"nothing could start it: it has no q:source, and nothing calls the process");
	check_aliases(build, process, all);
	for (uint32_t i = 0; i < process->node_count; i++)
		if (node_is_wait(process->nodes[i]) && process->nodes[i]->source &&
		    process->nodes[i]->source->channel.ptr)
			check_wait_name(build, waits, process->nodes[i]);
}

void bpmn_link(struct build *build)
{
	const struct deployment *deployment = build->deployment;
	struct map all, waits;

	map_init(&all);
	map_init(&waits);
	for (uint32_t i = 0; i < deployment->process_count; i++) {
		collect_registered(deployment->processes[i], &all);
		for (uint32_t j = 0; j < deployment->processes[i]->node_count; j++)
			if (deployment->processes[i]->nodes[j]->kind == NODE_CALL)
				link_call(build, deployment->processes[i]->nodes[j]);
	}
	for (uint32_t i = 0; i < deployment->process_count; i++)
		if (!deployment->processes[i]->torn)
			check_process(build, deployment->processes[i], &all, &waits);
	map_done(&all);
	map_done(&waits);
}
