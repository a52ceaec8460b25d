/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the notation: an element says where an event stands, its definition what it is about, and both together are
 * a kind of node. What no row of the table names is refused.
 */
#include "model/bpmn.h"

struct event_rule {
	enum node_kind place;
	bool event_subprocess; /* a start event of one */
	const char *definition;
	enum node_kind kind;
};

static const struct event_rule event_rules[] = {
	{NODE_START, false, "messageEventDefinition", NODE_START},
	{NODE_START, true, "messageEventDefinition", NODE_EVENT_START},
	{NODE_START, true, "errorEventDefinition", NODE_EVENT_START_ERROR},
	{NODE_START, false, "timerEventDefinition", NODE_START_TIMER},
	{NODE_START, true, "timerEventDefinition", NODE_EVENT_START_TIMER},
	{NODE_END, false, "messageEventDefinition", NODE_END},
	{NODE_END, false, "terminateEventDefinition", NODE_END_TERMINATE},
	{NODE_END, false, "errorEventDefinition", NODE_END_ERROR},
	{NODE_CATCH, false, "messageEventDefinition", NODE_CATCH},
	{NODE_CATCH, false, "timerEventDefinition", NODE_TIMER},
	{NODE_CATCH, false, "linkEventDefinition", NODE_LINK_CATCH},
	{NODE_THROW, false, "messageEventDefinition", NODE_THROW},
	{NODE_THROW, false, "linkEventDefinition", NODE_LINK_THROW},
	{NODE_BOUNDARY, false, "messageEventDefinition", NODE_BOUNDARY},
	{NODE_BOUNDARY, false, "timerEventDefinition", NODE_BOUNDARY_TIMER},
	{NODE_BOUNDARY, false, "errorEventDefinition", NODE_BOUNDARY_ERROR},
};

static const char definition_suffix[] = "EventDefinition";

bool bpmn_is_event_definition(const struct element *el)
{
	size_t len = sizeof(definition_suffix) - 1;

	return !el->q && el->name.len > len &&
	       memcmp(el->name.ptr + el->name.len - len, definition_suffix, len) == 0;
}

static const struct event_rule *event_rule_find(const struct node *node, const struct element *el)
{
	bool inside = node->container && node->container->kind == NODE_EVENT_SUBPROCESS;

	for (size_t i = 0; i < ARRAY_LEN(event_rules); i++) {
		const struct event_rule *rule = &event_rules[i];

		if (rule->place == node->kind && element_is(el, rule->definition) &&
		    (rule->place != NODE_START || rule->event_subprocess == inside))
			return rule;
	}
	return NULL;
}

/* The code of the error that a definition refers to; STR_NONE if it refers to none, which takes any. */
static struct str error_code(struct bpmn_reader *reader, struct element *definition)
{
	struct str ref = element_attribute(definition, "errorRef");
	struct element *error;
	struct str code;

	if (!ref.len)
		return STR_NONE;
	error = map_get(&reader->errors, ref);
	if (!error)
		error = map_get(&reader->errors, bpmn_local_name(ref));
	if (!error) {
		bpmn_invalid(reader, definition->line, "errorRef=\"%.*s\" names no error of the file",
			     STR_ARG(ref));
		return STR_NONE;
	}
	code = element_attribute(error, "errorCode");
	if (!code.len || code.len > BUILD_NAME_MAX)
		bpmn_invalid(reader, definition->line,
			     "the error \"%.*s\" in line %d needs an errorCode of at most %d bytes",
			     STR_ARG(ref), error->line, BUILD_NAME_MAX);
	return build_str(reader->build, code);
}

static void read_definition(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	if (element_is(el, "timerEventDefinition"))
		bpmn_read_timer(reader, node, el);
	if (node->kind == NODE_END_ERROR || node->kind == NODE_BOUNDARY_ERROR ||
	    node->kind == NODE_EVENT_START_ERROR)
		node->error_code = error_code(reader, el);
	if (node->kind == NODE_END_ERROR && !element_attribute(el, "errorRef").len)
		bpmn_invalid(reader, node->line, "an error end event needs errorRef");
	if (node->kind == NODE_LINK_CATCH || node->kind == NODE_LINK_THROW) {
		node->name = build_str(reader->build, element_attribute(el, "name"));
		if (!node->name.len)
			bpmn_invalid(reader, node->line, "a link needs a name in its linkEventDefinition");
	}
}

/* Whether a boundary event or start of an event sub-process ends what it is armed beside. */
static bool read_interrupting(struct bpmn_reader *reader, const struct node *node,
			      struct element *el)
{
	const char *name = node_is_boundary(node) ? "cancelActivity" : "isInterrupting";
	struct str value = element_attribute(el, name);
	bool interrupting = !value.ptr || bpmn_is_true(value);

	if (!interrupting &&
	    (node->kind == NODE_BOUNDARY_ERROR || node->kind == NODE_EVENT_START_ERROR))
		bpmn_invalid(reader, node->line, "an error always interrupts; %s=\"%.*s\" does not fit",
			     name, STR_ARG(value));
	return interrupting;
}

void bpmn_read_event(struct bpmn_reader *reader, struct node *node, struct element *el,
		     bool *message)
{
	bool in_event_sub = node->container && node->container->kind == NODE_EVENT_SUBPROCESS;
	struct element *found = NULL;
	const struct event_rule *rule = NULL;
	unsigned count = 0;

	for (struct element *child = el->first; child; child = child->next) {
		if (!bpmn_is_event_definition(child))
			continue;
		rule = event_rule_find(node, child);
		if (!rule)
			bpmn_refuse(reader, child, el);
		else if (count++ == 0)
			found = child;
	}
	if (count > 1)
		bpmn_unsupported(reader, el->line,
				 "more than one event definition is not supported");
	rule = found ? event_rule_find(node, found) : NULL;
	*message = found && element_is(found, "messageEventDefinition");
	if (rule)
		node->kind = rule->kind;
	else if (node->kind == NODE_BOUNDARY && !reader->refused)
		bpmn_invalid(reader, el->line,
			     "a boundary event needs a messageEventDefinition, a "
			     "timerEventDefinition or an errorEventDefinition");
	else if (node->kind == NODE_START && in_event_sub && !reader->refused)
		bpmn_invalid(reader, el->line,
			     "the start of an event sub-process needs a messageEventDefinition, a "
			     "timerEventDefinition or an errorEventDefinition");
	if (found)
		read_definition(reader, node, found);
	if (node_is_boundary(node) || node->kind == NODE_EVENT_START ||
	    node->kind == NODE_EVENT_START_TIMER || node->kind == NODE_EVENT_START_ERROR)
		node->interrupting = read_interrupting(reader, node, el);
}

/* What a message or timer may interrupt must wait somewhere. */
static bool may_wait(const struct node *activity)
{
	return activity->kind == NODE_RECEIVE || activity->kind == NODE_USER ||
	       activity->kind == NODE_SERVICE || activity->kind == NODE_SUBPROCESS || activity->kind == NODE_CALL;
}

void bpmn_attach_boundary(struct bpmn_reader *reader, struct node *node, struct element *el,
			  const struct map *nodes)
{
	struct str id = element_attribute(el, "attachedToRef");
	struct node *host = id.len ? map_get(nodes, id) : NULL;

	if (!host && id.len)
		host = map_get(nodes, bpmn_local_name(id));
	reader->at = node->id;
	if (!id.len)
		bpmn_invalid(reader, el->line, "a boundary event needs attachedToRef");
	else if ((!host || !node_is_activity(host) || host->container != node->container) &&
		 !reader->refused)
		bpmn_invalid(reader, el->line,
			     "attachedToRef=\"%.*s\" is no activity beside the boundary event",
			     STR_ARG(id));
	else if (host && node->kind != NODE_BOUNDARY_ERROR && !may_wait(host))
		bpmn_unsupported(reader, el->line,
				 "a %s boundary event on a %s, which never waits, is not supported",
				 node->kind == NODE_BOUNDARY ? "message" : "timer",
				 node_kind_name(host->kind));
	if (host && node_is_activity(host) && host->container == node->container) {
		node->host = host;
		host->boundaries = build_grow(reader->build->arena, host->boundaries,
					      host->boundary_count, sizeof(host->boundaries[0]));
		host->boundaries[host->boundary_count++] = node;
	}
	reader->at = reader->process->id;
}

void bpmn_pair_links(struct bpmn_reader *reader)
{
	const struct process *process = reader->process;

	for (uint32_t i = 0; i < process->node_count; i++) {
		struct node *from = process->nodes[i];

		if (from->kind != NODE_LINK_THROW && from->kind != NODE_LINK_CATCH)
			continue;
		reader->at = from->id;
		for (uint32_t j = 0; j < process->node_count; j++) {
			const struct node *to = process->nodes[j];

			if (to == from || to->kind != NODE_LINK_CATCH ||
			    to->container != from->container || !str_equal(to->name, from->name))
				continue;
			if (from->kind == NODE_LINK_CATCH && j < i)
				bpmn_invalid(reader, from->line,
					     "the link \"%.*s\" is caught in line %d already",
					     STR_ARG(from->name), to->line);
			if (from->kind == NODE_LINK_THROW && !from->link)
				from->link = to;
		}
		if (from->kind == NODE_LINK_THROW && !from->link)
			bpmn_invalid(reader, from->line, "nothing beside it catches the link \"%.*s\"",
				     STR_ARG(from->name));
	}
	reader->at = process->id;
}
