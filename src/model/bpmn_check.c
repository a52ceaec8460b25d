/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the graph of a process can be run: every node has the flows that its kind needs, every choice has a way out,
 * and every wait can be found. Errors are what would fail or strand an instance; warnings what is probably not meant.
 */
#include "model/build.h"

struct check {
	struct build *build;
	const struct process *process;
};

static void finding(const struct check *check, struct str element, int line, enum code code,
		    const char *fmt, ...) PRINTF_LIKE(5, 6);

static void finding(const struct check *check, struct str element, int line, enum code code,
		    const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	text = arena_vprintf(check->build->arena, fmt, ap);
	va_end(ap);
	finding_add(check->build->findings, check->process->file, line, element, code, "%s", text);
}

#define invalid(check, item, ...) \
	finding(check, (item)->id, (item)->line, CODE_CONFIG_BPMN_INVALID, __VA_ARGS__)
#define unsupported(check, item, ...) \
	finding(check, (item)->id, (item)->line, CODE_CONFIG_BPMN_UNSUPPORTED_ELEMENT, __VA_ARGS__)
#define suspicious(check, item, ...) \
	finding(check, (item)->id, (item)->line, CODE_CONFIG_BPMN_SUSPICIOUS, __VA_ARGS__)

static void check_degree(const struct check *check, const struct node *node)
{
	if (node->kind == NODE_START && node->incoming_count)
		invalid(check, node, "a sequence flow leads into a start event");
	if (node->kind == NODE_END) {
		if (node->outgoing_count)
			invalid(check, node, "a sequence flow leads out of an end event");
		return;
	}
	if (node->outgoing_count == 0)
		invalid(check, node,
			"%s has no sequence flow out of it; a path ends with an end event",
			node_kind_name(node->kind));
	if (node->outgoing_count > 1 && node->kind != NODE_EXCLUSIVE)
		unsupported(
			check, node,
			"more than one sequence flow out of a %s (an implicit parallel split) is "
			"not supported",
			node_kind_name(node->kind));
}

static void check_conditions(const struct check *check, const struct node *node)
{
	uint32_t conditions = 0;

	for (uint32_t i = 0; i < node->outgoing_count; i++) {
		const struct flow *flow = node->outgoing[i];

		conditions += flow->condition != NULL;
		if (node->kind != NODE_EXCLUSIVE) {
			if (flow->condition)
				unsupported(check, flow,
					    "a condition is supported on flows out of exclusive "
					    "gateways "
					    "only");
			continue;
		}
		if (flow == node->default_flow && flow->condition)
			suspicious(check, flow,
				   "the condition of a default flow is never evaluated");
		if (flow != node->default_flow && !flow->condition && node->outgoing_count > 1)
			invalid(check, flow,
				"a flow out of an exclusive gateway needs a condition or must be "
				"its "
				"default");
	}
	if (node->kind == NODE_EXCLUSIVE && node->outgoing_count && !node->default_flow &&
	    conditions == node->outgoing_count)
		suspicious(
			check, node,
			"every flow has a condition and none is the default: if all are false the "
			"instance fails");
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

static void check_aliases(const struct check *check)
{
	const struct process *process = check->process;
	struct map registered;

	map_init(&registered);
	collect_registered(process, &registered);
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *node = process->nodes[i];

		for (uint32_t j = 0; node_is_wait(node) && j < node->alias_count; j++) {
			const struct alias_rule *alias = &node->aliases[j];

			if (alias->name.ptr && alias->expression &&
			    !map_get(&registered, alias->name))
				finding(check, node->id, alias->line, CODE_CONFIG_BPMN_INVALID,
					"nothing in the process registers the alias \"%.*s\", so "
					"no "
					"message could find this wait",
					STR_ARG(alias->name));
		}
	}
	map_done(&registered);
}

/* A source's name and a variable's would be one name for two values. */
static void check_names(const struct check *check, const struct node *node)
{
	if (!node->source)
		return;
	for (uint32_t i = 0; i < check->process->variable_count; i++)
		if (str_equal(check->process->variables[i].name, node->source->name))
			finding(check, node->id, node->source->line, CODE_CONFIG_BPMN_INVALID,
				"the source's name \"%.*s\" is also a variable's",
				STR_ARG(node->source->name));
}

static void check_reachable(const struct check *check)
{
	const struct process *process = check->process;
	struct arena arena;
	const struct node **queue;
	bool *seen;
	uint32_t head = 0, tail = 0;

	arena_init(&arena);
	queue = arena_zalloc(&arena, sizeof(queue[0]) * (process->node_count + 1));
	seen = arena_zalloc(&arena, process->node_count + 1);
	for (uint32_t i = 0; i < process->node_count; i++) {
		if (process->nodes[i]->kind != NODE_START)
			continue;
		seen[i] = true;
		queue[tail++] = process->nodes[i];
	}
	while (head < tail) {
		const struct node *node = queue[head++];

		for (uint32_t i = 0; i < node->outgoing_count; i++) {
			const struct node *to = node->outgoing[i]->to;

			if (seen[to->index])
				continue;
			seen[to->index] = true;
			queue[tail++] = to;
		}
	}
	for (uint32_t i = 0; i < process->node_count && tail; i++)
		if (!seen[i])
			suspicious(check, process->nodes[i],
				   "no path from a start event leads here");
	arena_done(&arena);
}

void bpmn_check(struct build *build, struct process *process)
{
	struct check check = {.build = build, .process = process};
	bool started = false;

	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *node = process->nodes[i];

		started |= node->kind == NODE_START;
		check_degree(&check, node);
		check_conditions(&check, node);
		check_names(&check, node);
	}
	if (!started)
		invalid(&check, process, "the process has no start event");
	check_aliases(&check);
	check_reachable(&check);
}
