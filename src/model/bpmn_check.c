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

static bool takes_no_flow(const struct node *node)
{
	return node->kind == NODE_START || node->kind == NODE_START_TIMER ||
	       node->kind == NODE_EVENT_START || node->kind == NODE_EVENT_START_TIMER ||
	       node->kind == NODE_EVENT_START_ERROR || node->kind == NODE_LINK_CATCH ||
	       node->kind == NODE_EVENT_SUBPROCESS || node_is_boundary(node);
}

static bool gives_no_flow(const struct node *node)
{
	return node_is_end(node) || node->kind == NODE_LINK_THROW ||
	       node->kind == NODE_EVENT_SUBPROCESS;
}

static const char *article(const struct node *node)
{
	return strchr("aeiou", node_kind_name(node->kind)[0]) ? "an" : "a";
}

static void check_degree(const struct check *check, const struct node *node)
{
	if (takes_no_flow(node) && node->incoming_count)
		invalid(check, node, "a sequence flow leads into %s %s", article(node),
			node_kind_name(node->kind));
	if (gives_no_flow(node) && node->outgoing_count)
		invalid(check, node, "a sequence flow leads out of %s %s", article(node),
			node_kind_name(node->kind));
	if (!gives_no_flow(node) && node->outgoing_count == 0)
		invalid(check, node,
			"%s has no sequence flow out of it; a path ends with an end event",
			node_kind_name(node->kind));
}

/* What may choose among its flows. */
static bool may_choose(const struct node *node)
{
	return node->kind == NODE_EXCLUSIVE || node->kind == NODE_INCLUSIVE ||
	       node_is_activity(node);
}

static void check_conditions(const struct check *check, const struct node *node)
{
	uint32_t conditions = 0;

	for (uint32_t i = 0; i < node->outgoing_count; i++) {
		const struct flow *flow = node->outgoing[i];

		conditions += flow->condition != NULL;
		if (!may_choose(node)) {
			if (flow->condition)
				invalid(check, flow,
					"a flow out of %s %s has no condition: it does not choose",
					article(node), node_kind_name(node->kind));
			continue;
		}
		if (flow == node->default_flow && flow->condition)
			suspicious(check, flow,
				   "the condition of a default flow is never evaluated");
		if (node->kind == NODE_EXCLUSIVE && flow != node->default_flow &&
		    !flow->condition && node->outgoing_count > 1)
			invalid(check, flow,
				"a flow out of an exclusive gateway needs a condition or must be "
				"its "
				"default");
	}
	if (may_choose(node) && node->outgoing_count && !node->default_flow &&
	    conditions == node->outgoing_count)
		suspicious(
			check, node,
			"every flow has a condition and none is the default: if all are false the "
			"instance fails");
}

/* The first event takes the token: each arm is a wait of its own, to which no other way leads. */
static void check_arms(const struct check *check, const struct node *node)
{
	for (uint32_t i = 0; node->kind == NODE_EVENT_GATEWAY && i < node->outgoing_count; i++) {
		const struct node *arm = node->outgoing[i]->to;

		if (arm->kind != NODE_CATCH && arm->kind != NODE_TIMER && arm->kind != NODE_RECEIVE)
			invalid(check, node->outgoing[i],
				"a flow out of an event-based gateway leads to a message or timer "
				"catch event or a receive task");
		else if (arm->incoming_count > 1)
			invalid(check, arm,
				"what follows an event-based gateway has no other flow into it");
		else if (arm->boundary_count || arm->loop || arm->param_count)
			unsupported(check, arm,
				    "a receive task behind an event-based gateway has neither boundary "
				    "events nor a loop nor q:param");
	}
}

/* How the inside of the process, or of the sub-process `container`, begins. */
static void check_starts(const struct check *check, struct node *container, struct inside *inside)
{
	const struct process *process = check->process;
	uint32_t plain = 0, starts = 0;

	for (uint32_t i = 0; i < process->node_count; i++) {
		struct node *node = process->nodes[i];

		if (node->container != container)
			continue;
		if (node->kind == NODE_EVENT_SUBPROCESS) {
			inside->event_subs = build_grow(check->build->arena, inside->event_subs,
							inside->event_sub_count,
							sizeof(inside->event_subs[0]));
			inside->event_subs[inside->event_sub_count++] = node;
		}
		if (node->kind != NODE_START && node->kind != NODE_START_TIMER &&
		    node->kind != NODE_EVENT_START && node->kind != NODE_EVENT_START_TIMER &&
		    node->kind != NODE_EVENT_START_ERROR)
			continue;
		starts++;
		if (container || (!node->source && !node->timer)) {
			plain++;
			if (plain > 1)
				invalid(check, node, "it begins in line %d already",
					inside->start->line);
			else
				inside->start = node;
		}
	}
	if (!starts && !container)
		invalid(check, process, "the process has no start event");
	else if (!starts)
		invalid(check, container, "the %s has no start event",
			node_kind_name(container->kind));
}

static const struct variable *find_variable(const struct process *process, struct str name)
{
	for (uint32_t i = 0; i < process->variable_count; i++)
		if (str_equal(process->variables[i].name, name))
			return &process->variables[i];
	return NULL;
}

/* A source's name and a variable's would be one name for two values. */
static void check_names(const struct check *check, const struct node *node)
{
	if (node->source && find_variable(check->process, node->source->name))
		finding(check, node->id, node->source->line, CODE_CONFIG_BPMN_INVALID,
			"the source's name \"%.*s\" is also a variable's",
			STR_ARG(node->source->name));
}

/* So would be one for an input's value and another. */
static void check_inputs(const struct check *check, const struct node *node)
{
	const struct process *process = check->process;

	for (uint32_t i = 0; node_has_inputs(node) && i < node->param_count; i++) {
		const struct param_rule *param = &node->params[i];
		const char *other = NULL;

		if (!param->name.ptr)
			continue; /* reported as missing */
		if (find_variable(process, param->name))
			other = "variable";
		for (uint32_t k = 0; k < process->node_count && !other; k++)
			if (process->nodes[k]->source &&
			    str_equal(process->nodes[k]->source->name, param->name))
				other = "source";
		if (other)
			finding(check, node->id, param->line, CODE_CONFIG_BPMN_INVALID,
				"q:param names \"%.*s\", which is the name of a %s of the process",
				STR_ARG(param->name), other);
	}
}

struct search {
	const struct node **queue;
	bool *seen;
	uint32_t tail;
};

static void search_add(struct search *search, const struct node *node)
{
	if (!node || search->seen[node->index])
		return;
	search->seen[node->index] = true;
	search->queue[search->tail++] = node;
}

static void search_inside(struct search *search, const struct inside *inside)
{
	search_add(search, inside->start);
	for (uint32_t i = 0; i < inside->event_sub_count; i++)
		search_add(search, inside->event_subs[i]);
}

static void check_reachable(const struct check *check)
{
	const struct process *process = check->process;
	struct arena arena;
	struct search search = {.tail = 0};

	arena_init(&arena);
	search.queue = arena_zalloc(&arena, sizeof(search.queue[0]) * (process->node_count + 1));
	search.seen = arena_zalloc(&arena, process->node_count + 1);
	for (uint32_t i = 0; i < process->node_count; i++)
		if (node_is_process_start(process->nodes[i]))
			search_add(&search, process->nodes[i]);
	if (search.tail)
		search_inside(&search, &process->inside);
	for (uint32_t head = 0; head < search.tail; head++) {
		const struct node *node = search.queue[head];

		for (uint32_t i = 0; i < node->outgoing_count; i++)
			search_add(&search, node->outgoing[i]->to);
		for (uint32_t i = 0; i < node->boundary_count; i++)
			search_add(&search, node->boundaries[i]);
		search_add(&search, node->link);
		search_inside(&search, &node->inside);
	}
	for (uint32_t i = 0; i < process->node_count && search.tail; i++)
		if (!search.seen[i])
			suspicious(check, process->nodes[i],
				   "no path from a start event leads here");
	arena_done(&arena);
}

static void check_subprocess(const struct check *check, struct node *node)
{
	check_starts(check, node, &node->inside);
	if (node->kind == NODE_EVENT_SUBPROCESS && node->loop)
		unsupported(check, node, "an event sub-process does not loop");
}

/* Variables that the results of loops and calls go to. */
static void check_results(const struct check *check, const struct node *node)
{
	struct str into = node->loop ? node->loop->output_variable : STR_NONE;
	const struct variable *variable = find_variable(check->process, into);

	if (into.len && (!variable || variable->readonly || variable->of_run))
		finding(check, node->id, node->loop->line, CODE_CONFIG_BPMN_INVALID,
			"the results go to \"%.*s\", which is no variable of the process",
			STR_ARG(into));
	for (uint32_t i = 0; i < node->output_count; i++) {
		into = node->outputs[i].variable;
		variable = find_variable(check->process, into);
		if (into.len && (!variable || variable->readonly))
			finding(check, node->id, node->outputs[i].line, CODE_CONFIG_BPMN_INVALID,
				"q:output names \"%.*s\", which is no variable of the process",
				STR_ARG(into));
	}
}

void bpmn_check(struct build *build, struct process *process)
{
	struct check check = {.build = build, .process = process};

	for (uint32_t i = 0; i < process->node_count; i++) {
		struct node *node = process->nodes[i];

		check_degree(&check, node);
		check_conditions(&check, node);
		check_names(&check, node);
		check_inputs(&check, node);
		check_arms(&check, node);
		check_results(&check, node);
		if (node->kind == NODE_SUBPROCESS || node->kind == NODE_EVENT_SUBPROCESS)
			check_subprocess(&check, node);
	}
	check_starts(&check, NULL, &process->inside);
	check_reachable(&check);
}
