/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a BPMN file to processes: nodes, flows, conditions, scripts.
 *
 * The rule for what a diagram may hold: an element that changes what runs is either understood or refused, at load, with its
 * id and line; an element that only explains (documentation, annotations, lanes, data objects, pools, message
 * definitions) is passed over, because diagrams are made for people too. Which is which stands in two tables below.
 * Here things are only read; whether the graph makes sense is bpmn_check.c's business.
 */
#include "model/bpmn.h"

#include <stdlib.h>

struct node_rule {
	const char *element;
	enum node_kind kind;
	bool is_event;
};

static const struct node_rule node_rules[] = {
	{"startEvent", NODE_START, true},
	{"endEvent", NODE_END, true},
	{"intermediateCatchEvent", NODE_CATCH, true},
	{"intermediateThrowEvent", NODE_THROW, true},
	{"receiveTask", NODE_RECEIVE, false},
	{"sendTask", NODE_SEND, false},
	{"serviceTask", NODE_SERVICE, false},
	{"businessRuleTask", NODE_SERVICE, false},
	{"scriptTask", NODE_SCRIPT, false},
	{"task", NODE_PASS, false},
	{"manualTask", NODE_PASS, false},
	{"exclusiveGateway", NODE_EXCLUSIVE, false},
	{"userTask", NODE_USER, false},
	{"parallelGateway", NODE_PARALLEL, false},
	{"inclusiveGateway", NODE_INCLUSIVE, false},
	{"eventBasedGateway", NODE_EVENT_GATEWAY, false},
	{"subProcess", NODE_SUBPROCESS, false},
	{"callActivity", NODE_CALL, false},
	{"boundaryEvent", NODE_BOUNDARY, true},
};

/* What only explains, wherever it stands. */
static const char *const passive[] = {
	"documentation",
	"textAnnotation",
	"association",
	"group",
	"category",
	"laneSet",
	"dataObject",
	"dataObjectReference",
	"dataStore",
	"dataStoreReference",
	"dataInput",
	"dataOutput",
	"inputSet",
	"outputSet",
	"ioSpecification",
	"dataInputAssociation",
	"dataOutputAssociation",
	"property",
	"collaboration",
	"message",
	"itemDefinition",
	"interface",
	"endPoint",
	"partnerEntity",
	"partnerRole",
	"resource",
	"resourceRole",
	"performer",
	"humanPerformer",
	"potentialOwner",
	"monitoring",
	"auditing",
	"relationship",
	"import",
	"error",
	"signal",
	"escalation",
	"categoryValueRef",
	"supports",
	"rendering",
};

void bpmn_finding(struct bpmn_reader *reader, int line, enum code code, const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	text = arena_vprintf(reader->build->arena, fmt, ap);
	va_end(ap);
	finding_add(reader->build->findings, reader->file, line, reader->at, code, "%s", text);
}

void bpmn_refuse(struct bpmn_reader *reader, struct element *el, const struct element *where)
{
	if (where)
		bpmn_unsupported(reader, el->line, "%.*s in %.*s is not supported",
				 STR_ARG(el->name), STR_ARG(where->name));
	else
		bpmn_unsupported(reader, el->line, "%.*s is not supported", STR_ARG(el->name));
	el->refused = true;
	reader->refused++;
}

static bool is_passive(const struct element *el)
{
	for (size_t i = 0; i < ARRAY_LEN(passive); i++)
		if (element_is(el, passive[i]))
			return true;
	return false;
}

static const struct node_rule *node_rule_find(const struct element *el)
{
	for (size_t i = 0; i < ARRAY_LEN(node_rules); i++)
		if (element_is(el, node_rules[i].element))
			return &node_rules[i];
	return NULL;
}

const struct expression *bpmn_expression(struct bpmn_reader *reader, enum expression_kind kind,
					 struct str source, int line)
{
	if (element_trim(source).len == 0)
		bpmn_finding(reader, line, CODE_CONFIG_EXPRESSION_INVALID, "the %s is empty",
			     kind == EXPRESSION_SCRIPT ? "script" : "expression");
	return build_expression(reader->build, kind, source, reader->file, line, reader->at);
}

/* Takes the id of a process, node or flow; false after a finding. */
static bool read_id(struct bpmn_reader *reader, struct element *el, struct str *out)
{
	struct str id = element_attribute(el, "id");
	struct element *other;

	if (id.len == 0) {
		bpmn_invalid(reader, el->line, "%.*s has no id", STR_ARG(el->name));
		return false;
	}
	if (id.len > BUILD_NAME_MAX) {
		bpmn_invalid(reader, el->line, "%.*s has an id of more than %d bytes",
			     STR_ARG(el->name), BUILD_NAME_MAX);
		return false;
	}
	other = map_get(&reader->ids, id);
	if (other) {
		struct str before = reader->at;

		reader->at = id;
		bpmn_invalid(reader, el->line, "the id is used twice, first in line %d",
			     other->line);
		reader->at = before;
		return false;
	}
	map_put(&reader->ids, id, el);
	*out = id;
	return true;
}

bool bpmn_is_true(struct str value)
{
	return str_equal(value, STR("true")) || str_equal(value, STR("1"));
}

struct str bpmn_local_name(struct str name)
{
	ptrdiff_t colon = str_find(name, ':');

	return colon < 0 ? name
			 : str_make(name.ptr + colon + 1, name.len - (size_t)colon - 1);
}

/* Attributes of the notation that would change how a node runs. */
static void refuse_attributes(struct bpmn_reader *reader, struct element *el)
{
	static const char *const flags[] = {"isForCompensation", "instantiate", "parallelMultiple"};
	static const char *const quantities[] = {"startQuantity", "completionQuantity"};

	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (bpmn_is_true(element_attribute(el, flags[i])))
			bpmn_unsupported(reader, el->line, "%.*s with %s=\"true\" is not supported",
					 STR_ARG(el->name), flags[i]);
	for (size_t i = 0; i < ARRAY_LEN(quantities); i++) {
		struct str value = element_attribute(el, quantities[i]);

		if (value.ptr && !str_equal(value, STR("1")))
			bpmn_unsupported(reader, el->line,
					 "%.*s with %s other than 1 is not supported",
					 STR_ARG(el->name), quantities[i]);
	}
}

static void read_script(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct element *script = element_child(el, "script");
	struct str format = element_attribute(el, "scriptFormat");

	if (format.ptr && !str_equal_nocase(format, STR("lua")))
		bpmn_unsupported(
			reader, el->line,
			"scriptFormat \"%.*s\" is not supported; scripts are written in lua",
			STR_ARG(format));
	if (script)
		node->script = bpmn_expression(reader, EXPRESSION_SCRIPT, script->text,
					       script->text_line);
	else
		bpmn_invalid(reader, el->line, "a script task needs a <script>");
}

/*
 * The children of a node that belong to the notation: those that nobody else reads are refused; references to flows must
 * exist (checked later, when all flows are known).
 */
static void read_node_children(struct bpmn_reader *reader, struct node *node, struct element *el,
			       const struct node_rule *rule)
{
	for (struct element *child = el->first; child; child = child->next) {
		if (child->q || is_passive(child) || element_is(child, "extensionElements") ||
		    element_is(child, "incoming") || element_is(child, "outgoing"))
			continue; /* a stray q: element is for the sweep */
		if (rule->kind == NODE_SCRIPT && element_is(child, "script"))
			continue;
		if (rule->is_event && bpmn_is_event_definition(child))
			continue;
		if (node_is_activity(node) && bpmn_is_loop(child))
			continue;
		if (rule->kind != NODE_SUBPROCESS)
			bpmn_refuse(reader, child, el);
	}
}

static struct node *node_new(struct bpmn_reader *reader, struct element *el, struct str id,
			     enum node_kind kind, struct node *container)
{
	struct process *process = reader->process;
	struct node *node = arena_zalloc(reader->build->arena, sizeof(*node));

	node->id = build_str(reader->build, id);
	node->name = build_str(reader->build, element_attribute(el, "name"));
	node->kind = kind;
	node->index = process->node_count;
	node->line = el->line;
	node->process = process;
	node->container = container;
	process->nodes = build_grow(reader->build->arena, process->nodes, process->node_count,
				    sizeof(process->nodes[0]));
	process->nodes[process->node_count++] = node;
	return node;
}

static void read_nodes(struct bpmn_reader *reader, struct element *root, struct node *container);

/* What only nodes of one kind have, but for rules of q:. */
static void read_kind(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	if (node->kind == NODE_SCRIPT)
		read_script(reader, node, el);
	if (node->kind == NODE_SUBPROCESS &&
	    bpmn_is_true(element_attribute(el, "triggeredByEvent")))
		node->kind = NODE_EVENT_SUBPROCESS;
	if (node->kind == NODE_CALL) {
		struct str called = bpmn_local_name(element_attribute(el, "calledElement"));

		node->called_id = build_str(reader->build, called);
		if (!called.len)
			bpmn_invalid(reader, el->line, "a call activity needs calledElement");
	}
	for (struct element *child = el->first; child; child = child->next)
		if (bpmn_is_loop(child) && node_is_activity(node))
			bpmn_read_loop(reader, node, child);
}

static void read_node(struct bpmn_reader *reader, struct element *el, const struct node_rule *rule,
		      struct node *container)
{
	struct process *process = reader->process;
	struct node *node;
	unsigned refused;
	struct str id;
	bool message = false;

	if (!read_id(reader, el, &id))
		return;
	if (process->node_count == BUILD_NODES_MAX) {
		bpmn_invalid(reader, el->line, "a process holds at most %d nodes", BUILD_NODES_MAX);
		return;
	}
	node = node_new(reader, el, id, rule->kind, container);
	reader->at = node->id;
	refuse_attributes(reader, el);
	refused = reader->refused;
	read_kind(reader, node, el);
	read_node_children(reader, node, el, rule);
	if (rule->is_event)
		bpmn_read_event(reader, node, el, &message);
	bpmn_read_node_rules(reader, node, el);
	if (refused == reader->refused) /* else it is incomplete because of that */
		bpmn_check_node_rules(reader, node, message);
	if (rule->kind == NODE_SUBPROCESS)
		read_nodes(reader, el, node);
	reader->at = process->id;
}

static const struct expression *read_condition(struct bpmn_reader *reader, struct element *el)
{
	struct element *condition = element_child(el, "conditionExpression");
	struct str language;

	if (!condition)
		return NULL;
	language = element_attribute(condition, "language");
	if (language.ptr && !str_equal_nocase(language, STR("lua")))
		bpmn_unsupported(
			reader, condition->line,
			"conditions in \"%.*s\" are not supported; they are written in lua",
			STR_ARG(language));
	/* Blanks around a condition are layout; the lines before it count. */
	struct str source = condition->text;
	int line = condition->text_line;

	while (source.len && memchr(" \t\r\n", source.ptr[0], 4)) {
		line += source.ptr[0] == '\n';
		source.ptr++;
		source.len--;
	}
	return bpmn_expression(reader, EXPRESSION_VALUE, element_trim(source), line);
}

static struct node *node_find(struct bpmn_reader *reader, const struct map *nodes,
			      struct element *el, const char *attribute)
{
	struct str id = element_attribute(el, attribute);
	struct node *node = id.len ? map_get(nodes, id) : NULL;

	if (id.len == 0)
		bpmn_invalid(reader, el->line, "a sequence flow needs %s", attribute);
	else if (!node && !reader->refused) /* else it may lead to what was refused */
		bpmn_invalid(reader, el->line,
			     "the sequence flow's %s \"%.*s\" is no node of the process", attribute,
			     STR_ARG(id));
	return node;
}

static void read_flow(struct bpmn_reader *reader, struct element *el, const struct map *nodes)
{
	struct process *process = reader->process;
	struct arena *arena = reader->build->arena;
	struct node *from, *to;
	struct flow *flow;
	struct str id;

	if (!read_id(reader, el, &id))
		return;
	if (process->flow_count == BUILD_FLOWS_MAX) {
		bpmn_invalid(reader, el->line, "a process holds at most %d flows", BUILD_FLOWS_MAX);
		return;
	}
	reader->at = build_str(reader->build, id);
	from = node_find(reader, nodes, el, "sourceRef");
	to = node_find(reader, nodes, el, "targetRef");
	if (from && to && from->container != to->container)
		bpmn_invalid(reader, el->line,
			     "a sequence flow does not lead into or out of a sub-process");
	if (from && to) {
		flow = arena_zalloc(arena, sizeof(*flow));
		flow->id = reader->at;
		flow->from = from;
		flow->to = to;
		flow->condition = read_condition(reader, el);
		flow->index = process->flow_count;
		flow->line = el->line;
		process->flows = build_grow(arena, process->flows, process->flow_count,
					    sizeof(process->flows[0]));
		process->flows[process->flow_count++] = flow;
		from->outgoing = build_grow(arena, from->outgoing, from->outgoing_count,
					    sizeof(from->outgoing[0]));
		from->outgoing[from->outgoing_count++] = flow;
		to->incoming = build_grow(arena, to->incoming, to->incoming_count,
					  sizeof(to->incoming[0]));
		to->incoming[to->incoming_count++] = flow;
	}
	reader->at = process->id;
}

static struct flow *flow_find(struct flow **flows, uint32_t count, struct str id)
{
	struct str local = bpmn_local_name(id);

	for (uint32_t i = 0; i < count; i++)
		if (str_equal(flows[i]->id, id) || str_equal(flows[i]->id, local))
			return flows[i];
	return NULL;
}

/* `default`, and the <incoming> and <outgoing> that modellers write beside the flows: they must agree. */
static void read_references(struct bpmn_reader *reader, struct element *el, struct node *node)
{
	struct str id = element_attribute(el, "default");

	reader->at = node->id;
	if (id.ptr) {
		node->default_flow = flow_find(node->outgoing, node->outgoing_count, id);
		if (!node->default_flow && !reader->refused)
			bpmn_invalid(reader, el->line,
				     "default=\"%.*s\" is no sequence flow out of it", STR_ARG(id));
		if (node->kind != NODE_EXCLUSIVE && node->kind != NODE_INCLUSIVE &&
		    !node_is_activity(node))
			bpmn_invalid(reader, el->line, "a %s has no default flow",
				     node_kind_name(node->kind));
	}
	for (struct element *child = el->first; child; child = child->next) {
		bool in = element_is(child, "incoming"), out = element_is(child, "outgoing");
		struct str flow = element_trim(child->text);

		if ((!in && !out) || reader->refused)
			continue;
		if (!flow_find(in ? node->incoming : node->outgoing,
			       in ? node->incoming_count : node->outgoing_count, flow))
			bpmn_invalid(reader, child->line,
				     "<%.*s> names \"%.*s\", which is no sequence flow %s it",
				     STR_ARG(child->name), STR_ARG(flow), in ? "into" : "out of");
	}
	reader->at = reader->process->id;
}

static void read_nodes(struct bpmn_reader *reader, struct element *root, struct node *container)
{
	for (struct element *el = root->first; el; el = el->next) {
		const struct node_rule *rule = node_rule_find(el);

		if (rule)
			read_node(reader, el, rule, container);
		else if (!el->q && !is_passive(el) && !element_is(el, "sequenceFlow") &&
			 !element_is(el, "extensionElements") &&
			 !(container && (element_is(el, "incoming") || element_is(el, "outgoing") ||
					 bpmn_is_loop(el)))) {
			reader->at = build_str(reader->build, element_attribute(el, "id"));
			bpmn_refuse(reader, el, NULL);
			reader->at = reader->process->id;
		}
	}
}

static void read_flows(struct bpmn_reader *reader, struct element *root, const struct map *nodes)
{
	for (struct element *el = root->first; el; el = el->next)
		if (element_is(el, "sequenceFlow"))
			read_flow(reader, el, nodes);
		else if (element_is(el, "subProcess"))
			read_flows(reader, el, nodes);
}

static void read_all_references(struct bpmn_reader *reader, struct element *root,
				const struct map *nodes)
{
	for (struct element *el = root->first; el; el = el->next) {
		struct node *node;

		if (!node_rule_find(el))
			continue;
		struct str id = element_attribute(el, "id");

		node = id.len ? map_get(nodes, id) : NULL;
		/* Of two nodes with one id only the first was kept. */
		if (node && node->line == el->line)
			read_references(reader, el, node);
		if (node && node_is_boundary(node) && node->line == el->line)
			bpmn_attach_boundary(reader, node, el, nodes);
		if (element_is(el, "subProcess"))
			read_all_references(reader, el, nodes);
	}
}

static void read_process_elements(struct bpmn_reader *reader, struct element *root)
{
	struct map nodes;

	read_nodes(reader, root, NULL);
	map_init(&nodes);
	for (uint32_t i = 0; i < reader->process->node_count; i++)
		map_put(&nodes, reader->process->nodes[i]->id, reader->process->nodes[i]);
	read_flows(reader, root, &nodes);
	read_all_references(reader, root, &nodes);
	map_done(&nodes);
	if (!reader->refused)
		bpmn_pair_links(reader);
}

static bool process_id_taken(const struct deployment *deployment, struct str id)
{
	for (uint32_t i = 0; i < deployment->process_count; i++)
		if (str_equal(deployment->processes[i]->id, id))
			return true;
	return false;
}

static int compare_ids(const void *a, const void *b)
{
	const struct node *const *x = a, *const *y = b;

	return str_compare((*x)->id, (*y)->id);
}

static void index_nodes(struct bpmn_reader *reader)
{
	struct process *process = reader->process;

	process->nodes_by_id = arena_memdup(reader->build->arena, process->nodes,
					    sizeof(process->nodes[0]) * process->node_count);
	qsort(process->nodes_by_id, process->node_count, sizeof(process->nodes[0]), compare_ids);
}

static void read_process(struct bpmn_reader *reader, struct element *el)
{
	struct deployment *deployment = reader->build->deployment;
	struct arena *arena = reader->build->arena;
	struct str executable = element_attribute(el, "isExecutable");
	struct process *process;
	struct str id;

	if (!read_id(reader, el, &id))
		return;
	reader->at = build_str(reader->build, id);
	if (executable.ptr && !bpmn_is_true(executable)) {
		bpmn_warning(reader, el->line,
			     "the process says isExecutable=\"%.*s\" and is left out",
			     STR_ARG(executable));
		return;
	}
	if (process_id_taken(deployment, id)) {
		bpmn_invalid(reader, el->line,
			     "another file of the package has a process of this id");
		return;
	}
	if (deployment->process_count == BUILD_PROCESSES_MAX) {
		bpmn_invalid(reader, el->line, "a package holds at most %d processes",
			     BUILD_PROCESSES_MAX);
		return;
	}
	process = arena_zalloc(arena, sizeof(*process));
	process->id = reader->at;
	process->name = build_str(reader->build, element_attribute(el, "name"));
	process->file = reader->file;
	process->line = el->line;
	reader->process = process;
	reader->refused = 0;
	bpmn_read_process_rules(reader, el);
	read_process_elements(reader, el);
	deployment->processes = build_grow(arena, deployment->processes, deployment->process_count,
					   sizeof(deployment->processes[0]));
	deployment->processes[deployment->process_count++] = process;
	if (process->node_count)
		index_nodes(reader);
	bpmn_sweep(reader, el);
	/* With parts missing, the graph would only be reported as torn. */
	process->torn = reader->refused > 0;
	if (!reader->refused)
		bpmn_check(reader->build, process);
	bpmn_check_expressions(reader->build, process);
	reader->process = NULL;
}

void bpmn_read(struct build *build, const char *file, struct str bytes)
{
	struct bpmn_reader reader = {.build = build, .file = file};
	struct element *root;
	bool any = false;
	struct arena arena; /* of the tree, which nothing keeps */

	arena_init(&arena);
	map_init(&reader.ids);
	map_init(&reader.errors);
	if (element_parse(&arena, file, bytes, &root, build->findings) != RESULT_OK)
		goto out;
	if (!element_is(root, "definitions")) {
		bpmn_invalid(&reader, root->line, "the root element is %.*s and not definitions",
			     STR_ARG(root->name));
		goto out;
	}
	for (struct element *el = root->first; el; el = el->next) {
		struct str id = element_is(el, "error") ? element_attribute(el, "id") : STR_NONE;

		if (id.len)
			map_put(&reader.errors, id, el);
	}
	for (struct element *el = root->first; el; el = el->next) {
		reader.at = STR_NONE;
		if (element_is(el, "process")) {
			any = true;
			read_process(&reader, el);
		} else if (el->q || is_passive(el) || element_is(el, "extensionElements")) {
			bpmn_sweep(&reader, el);
		} else {
			reader.at = build_str(build, element_attribute(el, "id"));
			bpmn_refuse(&reader, el, NULL);
		}
	}
	reader.at = STR_NONE;
	if (!any)
		bpmn_invalid(&reader, root->line, "the file has no process");
out:
	map_done(&reader.ids);
	map_done(&reader.errors);
	arena_done(&arena);
}
