/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The q: namespace: how a process meets messages. These elements stand in the extensionElements of flow nodes and of the
 * process.
 *
 * Every q: element and attribute that is read is marked; a sweep at the end reports the rest. So a misspelt attribute, or an
 * element in a place where it would do nothing, is a finding and never silently without effect. Elements that later versions
 * will run have a text of their own.
 */
#include "model/bpmn.h"

/* What may stand at which kind of node. */
#define HAS_SOURCE (1u << 0)
#define HAS_ALIAS  (1u << 1)
#define HAS_SEND   (1u << 2)
#define HAS_REPLY  (1u << 3)
#define HAS_PARAM  (1u << 4)
#define HAS_CALL   (1u << 5)

static const unsigned node_rules_allowed[NODE_KIND_COUNT] = {
	[NODE_START] = HAS_SOURCE | HAS_ALIAS,
	[NODE_END] = HAS_SEND | HAS_REPLY,
	[NODE_CATCH] = HAS_SOURCE | HAS_ALIAS,
	[NODE_RECEIVE] = HAS_SOURCE | HAS_ALIAS | HAS_REPLY | HAS_PARAM,
	[NODE_THROW] = HAS_SEND,
	[NODE_SEND] = HAS_SEND | HAS_REPLY | HAS_PARAM,
	[NODE_SCRIPT] = HAS_REPLY | HAS_PARAM,
	[NODE_PASS] = HAS_REPLY | HAS_PARAM,
	[NODE_USER] = HAS_SOURCE | HAS_ALIAS | HAS_REPLY | HAS_PARAM,
	[NODE_SERVICE] = HAS_SOURCE | HAS_ALIAS | HAS_PARAM | HAS_CALL,
	[NODE_CALL] = HAS_PARAM,
	[NODE_BOUNDARY] = HAS_SOURCE | HAS_ALIAS,
	[NODE_EVENT_START] = HAS_SOURCE | HAS_ALIAS,
};

static const char *const later[] = {
	"data",
};

bool bpmn_is_q(const struct element *el, const char *name)
{
	return el->q && str_equal(el->name, str_of(name));
}

struct str bpmn_required(struct bpmn_reader *reader, struct element *el, const char *name)
{
	struct str value = element_attribute(el, name);

	if (value.len == 0)
		bpmn_invalid(reader, el->line, "q:%.*s needs %s", STR_ARG(el->name), name);
	return value.len ? value : STR_NONE;
}

bool bpmn_flag(struct bpmn_reader *reader, struct element *el, const char *name)
{
	struct str value = element_attribute(el, name);

	if (!value.ptr || str_equal(value, STR("false")))
		return false;
	if (str_equal(value, STR("true")))
		return true;
	bpmn_invalid(reader, el->line, "%s of q:%.*s is \"%.*s\" and not true or false", name,
		     STR_ARG(el->name), STR_ARG(value));
	return false;
}

const struct expression *bpmn_attribute(struct bpmn_reader *reader, struct element *el,
					const char *name)
{
	const struct attribute *attr = element_attribute_find(el, name);

	return attr ? bpmn_expression(reader, EXPRESSION_VALUE, attr->value, attr->line) : NULL;
}

const struct expression *bpmn_required_expression(struct bpmn_reader *reader, struct element *el,
						  const char *name)
{
	const struct expression *expr = bpmn_attribute(reader, el, name);

	if (!expr)
		bpmn_invalid(reader, el->line, "q:%.*s needs %s", STR_ARG(el->name), name);
	return expr;
}

void bpmn_check_name(struct bpmn_reader *reader, int line, const char *what, struct str name)
{
	if (!name.ptr)
		return; /* reported as missing */
	if (!build_is_identifier(name))
		bpmn_invalid(reader, line,
			     "\"%.*s\" cannot name a %s: letters, digits and _, no digit first, "
			     "at most %d bytes",
			     STR_ARG(name), what, BUILD_NAME_MAX);
	else if (build_is_reserved(name))
		bpmn_invalid(reader, line, "\"%.*s\" cannot name a %s: expressions use the word",
			     STR_ARG(name), what);
}

static void read_validates(struct bpmn_reader *reader, struct source *source, struct element *el)
{
	struct arena *arena = reader->build->arena;

	for (struct element *child = el->first; child; child = child->next) {
		struct validate_rule rule;

		if (!bpmn_is_q(child, "validate"))
			continue;
		child->used = true;
		rule.expression = bpmn_required_expression(reader, child, "expression");
		rule.code = build_str(reader->build, bpmn_required(reader, child, "code"));
		if (source->validate_count == BUILD_RULES_MAX) {
			bpmn_invalid(reader, child->line, "a q:source holds at most %d q:validate",
				     BUILD_RULES_MAX);
			return;
		}
		source->validates = build_grow(arena, source->validates, source->validate_count,
					       sizeof(source->validates[0]));
		source->validates[source->validate_count++] = rule;
	}
}

static enum wait_match read_match(struct bpmn_reader *reader, const struct node *node,
				  struct element *el)
{
	struct str match = element_attribute(el, "match");

	if (!match.ptr)
		return MATCH_OLDEST;
	if (!node_is_wait(node))
		bpmn_invalid(reader, el->line, "match belongs to waits; a start event has none");
	if (str_equal(match, STR("oldest")))
		return MATCH_OLDEST;
	if (str_equal(match, STR("unique")))
		return MATCH_UNIQUE;
	if (str_equal(match, STR("all")))
		return MATCH_ALL;
	bpmn_invalid(reader, el->line, "match is \"%.*s\" and not oldest, all or unique", STR_ARG(match));
	return MATCH_OLDEST;
}

static void read_source(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct source *source = arena_zalloc(build->arena, sizeof(*source));
	struct str name = element_attribute(el, "name");

	if (node->source) {
		bpmn_invalid(reader, el->line, "there is more than one q:source");
		return;
	}
	node->source = source;
	source->line = el->line;
	source->channel = build_str(build, bpmn_required(reader, el, "channel"));
	source->name = name.ptr ? build_str(build, name) : STR("payload");
	bpmn_check_name(reader, el->line, "source", source->name);
	source->type_value = build_str(build, element_attribute(el, "messageTypeValue"));
	source->type_pattern = build_str(build, element_attribute(el, "messageTypePattern"));
	if (source->type_value.ptr && source->type_pattern.ptr)
		bpmn_invalid(reader, el->line,
			     "messageTypeValue and messageTypePattern exclude each other");
	if ((source->type_value.ptr && !source->type_value.len) ||
	    (source->type_pattern.ptr && !source->type_pattern.len))
		bpmn_invalid(reader, el->line, "an empty message type matches nothing");
	if (source->type_value.len > BUILD_TYPE_MAX || source->type_pattern.len > BUILD_TYPE_MAX) {
		bpmn_invalid(reader, el->line, "a message type has at most %d bytes",
			     BUILD_TYPE_MAX);
		source->type_value = source->type_pattern = STR_NONE;
	}
	source->dedup_key = bpmn_attribute(reader, el, "dedupKey");
	source->match = read_match(reader, node, el);
	read_validates(reader, source, el);
}

static void check_alias(struct bpmn_reader *reader, const struct node *node,
			const struct alias_rule *alias, struct str conflict)
{
	if (!alias->expression && !alias->value)
		bpmn_invalid(reader, alias->line, "q:alias needs expression");
	if (node->kind == NODE_START && alias->value)
		bpmn_invalid(reader, alias->line,
			     "value of q:alias belongs to waits; a start registers its expression");
	if (node_is_wait(node) && alias->unique && !alias->value)
		bpmn_invalid(reader, alias->line,
			     "unique=\"true\" on a wait needs value: without it the wait registers "
			     "nothing");
	if (conflict.ptr && !alias->unique)
		bpmn_invalid(reader, alias->line, "onConflict needs unique=\"true\"");
	if (alias->correlate && node->kind != NODE_START)
		bpmn_invalid(reader, alias->line,
			     "onConflict=\"correlate\" belongs to start events");
}

static void read_alias(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct str conflict = element_attribute(el, "onConflict");
	struct alias_rule alias = {
		.name = build_str(build, bpmn_required(reader, el, "name")),
		.expression = bpmn_attribute(reader, el, "expression"),
		.value = bpmn_attribute(reader, el, "value"),
		.unique = bpmn_flag(reader, el, "unique"),
		.correlate = str_equal(conflict, STR("correlate")),
		.line = el->line,
	};

	if (alias.name.ptr && !build_is_channel_name(alias.name))
		bpmn_invalid(reader, el->line,
			     "\"%.*s\" cannot name an alias: letters, digits and . _ -",
			     STR_ARG(alias.name));
	if (conflict.ptr && !alias.correlate && !str_equal(conflict, STR("reject")))
		bpmn_invalid(reader, el->line, "onConflict is \"%.*s\" and not reject or correlate",
			     STR_ARG(conflict));
	check_alias(reader, node, &alias, conflict);
	for (uint32_t i = 0; i < node->alias_count; i++)
		if (alias.name.ptr && str_equal(node->aliases[i].name, alias.name))
			bpmn_invalid(reader, el->line, "the alias \"%.*s\" is given twice",
				     STR_ARG(alias.name));
	if (node->alias_count == BUILD_RULES_MAX) {
		bpmn_invalid(reader, el->line, "a node holds at most %d q:alias", BUILD_RULES_MAX);
		return;
	}
	node->aliases = build_grow(build->arena, node->aliases, node->alias_count,
				   sizeof(node->aliases[0]));
	node->aliases[node->alias_count++] = alias;
}

const struct expression *bpmn_response_body(struct bpmn_reader *reader, int line)
{
	const struct process *process = reader->process;

	for (uint32_t i = 0; i < process->variable_count; i++)
		if (str_equal(process->variables[i].name, STR("responseBody")))
			return bpmn_expression(reader, EXPRESSION_VALUE, STR("responseBody"), line);
	return NULL;
}

/* The body attribute, else the variable responseBody, which the process must then declare. */
static const struct expression *read_body(struct bpmn_reader *reader, struct element *el)
{
	const struct expression *body = bpmn_attribute(reader, el, "body");

	if (!body)
		body = bpmn_response_body(reader, el->line);
	if (body)
		return body;
	bpmn_invalid(
		reader, el->line,
		"q:%.*s has no body, and the process declares no variable responseBody to send "
		"instead",
		STR_ARG(el->name));
	return bpmn_expression(reader, EXPRESSION_VALUE, STR("nil"), el->line);
}

static void read_send(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct send_rule *send = arena_zalloc(build->arena, sizeof(*send));

	if (node->send)
		bpmn_invalid(reader, el->line, "there is more than one q:send");
	send->channel = build_str(build, bpmn_required(reader, el, "channel"));
	send->body = read_body(reader, el);
	send->content_type = build_str(build, element_attribute(el, "contentType"));
	send->required = bpmn_flag(reader, el, "required");
	node->send = send;
}

static void read_reply(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct reply_rule *reply = arena_zalloc(build->arena, sizeof(*reply));

	if (node->reply)
		bpmn_invalid(reader, el->line, "there is more than one q:reply");
	reply->channel = build_str(build, element_attribute(el, "channel"));
	reply->body = read_body(reader, el);
	node->reply = reply;
}

static void read_header(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct header_rule header = {
		.name = build_str(build, bpmn_required(reader, el, "name")),
		.value = bpmn_required_expression(reader, el, "value"),
	};

	for (size_t i = 0; i < header.name.len; i++)
		if ((unsigned char)header.name.ptr[i] <= 0x20 || header.name.ptr[i] == 0x7f) {
			bpmn_invalid(reader, el->line, "a header's name holds no blanks");
			break;
		}
	if (header.name.len > BUILD_NAME_MAX)
		bpmn_invalid(reader, el->line, "a header's name has at most %d bytes",
			     BUILD_NAME_MAX);
	for (uint32_t i = 0; i < node->header_count; i++)
		if (header.name.ptr && str_equal_nocase(node->headers[i].name, header.name))
			bpmn_invalid(reader, el->line, "the header \"%.*s\" is given twice",
				     STR_ARG(header.name));
	if (node->header_count == BUILD_RULES_MAX) {
		bpmn_invalid(reader, el->line, "a node holds at most %d q:header", BUILD_RULES_MAX);
		return;
	}
	node->headers = build_grow(build->arena, node->headers, node->header_count,
				   sizeof(node->headers[0]));
	node->headers[node->header_count++] = header;
}

/* The start of a sub-process is no place for messages: nothing but its inside begins there. */
static unsigned rules_allowed(const struct node *node)
{
	if (node->kind == NODE_START && node->container)
		return 0;
	return node_rules_allowed[node->kind];
}

void bpmn_read_node_rules(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct element *extensions = element_child(el, "extensionElements");
	unsigned allowed = rules_allowed(node);
	static const struct {
		const char *name;
		unsigned needs;
		void (*read)(struct bpmn_reader *reader, struct node *node, struct element *el);
	} rules[] = {
		{"source", HAS_SOURCE, read_source},
		{"alias", HAS_ALIAS, read_alias},
		{"send", HAS_SEND, read_send},
		{"reply", HAS_REPLY, read_reply},
		{"send", HAS_CALL, bpmn_read_request},
		{"timeout", HAS_CALL, bpmn_read_timeout},
		{"retry", HAS_CALL, bpmn_read_retry},
		{"header", HAS_SEND | HAS_REPLY | HAS_CALL, read_header},
		{"param", HAS_PARAM, bpmn_read_param},
		{"output", HAS_PARAM, bpmn_read_output},
	};

	for (struct element *q = extensions ? extensions->first : NULL; q; q = q->next) {
		for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
			if (!bpmn_is_q(q, rules[i].name) || !(allowed & rules[i].needs))
				continue;
			q->used = true;
			rules[i].read(reader, node, q);
		}
	}
	if (node->kind == NODE_SERVICE)
		bpmn_read_call(reader, node, el);
	if (node->kind == NODE_SUBPROCESS || node->kind == NODE_EVENT_SUBPROCESS)
		bpmn_read_variables(reader, extensions, node);
}

static void check_wait(struct bpmn_reader *reader, const struct node *node, bool message)
{
	bool found = false;

	if (node->kind == NODE_CATCH && !message)
		bpmn_invalid(reader, node->line,
			     "an intermediate catch event needs a messageEventDefinition or a "
			     "timerEventDefinition");
	if (!node->source)
		bpmn_invalid(reader, node->line, "a wait needs a q:source");
	for (uint32_t i = 0; i < node->alias_count; i++)
		found |= node->aliases[i].expression != NULL;
	if (!found)
		bpmn_invalid(
			reader, node->line,
			"a wait needs a q:alias with an expression: how else would a message find "
			"it?");
}

static void check_out(struct bpmn_reader *reader, const struct node *node, bool message)
{
	bool event = node->kind == NODE_THROW || node->kind == NODE_END;

	/* The message of an end or of a send task may be the answer. */
	bool answers = (node->kind == NODE_END || node->kind == NODE_SEND) && node->reply;

	if ((node->kind == NODE_SEND || (event && message)) && !node->send && !answers)
		bpmn_invalid(reader, node->line, "%s needs a q:send",
			     event ? "a message event" : "a send task");
	if (event && node->send && !message)
		bpmn_invalid(
			reader, node->line,
			"q:send needs a messageEventDefinition in the event, so that the diagram "
			"shows it");
	if (node->send && node->reply)
		bpmn_unsupported(reader, node->line,
				 "q:send and q:reply in one element are not supported");
	if (node->header_count && !node->send && !node->reply)
		bpmn_invalid(reader, node->line,
			     "q:header without a q:send or q:reply does nothing");
}

void bpmn_check_node_rules(struct bpmn_reader *reader, const struct node *node, bool message)
{
	if (node->kind == NODE_START && !node->source && message)
		bpmn_invalid(reader, node->line,
			     node->container ? "the start event of a sub-process takes no message"
					     : "a message start event needs a q:source");
	if (node_is_wait(node))
		check_wait(reader, node, message);
	check_out(reader, node, message);
}

static enum variable_type read_type(struct bpmn_reader *reader, struct element *el)
{
	static const char *const names[] = {
		[VARIABLE_ANY] = "any",         [VARIABLE_STRING] = "string",
		[VARIABLE_INTEGER] = "integer", [VARIABLE_NUMBER] = "number",
		[VARIABLE_BOOLEAN] = "boolean", [VARIABLE_MAP] = "map",
		[VARIABLE_LIST] = "list",
	};
	struct str type = element_attribute(el, "type");

	if (!type.ptr)
		return VARIABLE_ANY;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_equal(type, str_of(names[i])))
			return (enum variable_type)i;
	bpmn_invalid(reader, el->line,
		     "type is \"%.*s\" and not string, integer, number, boolean, map, list or any",
		     STR_ARG(type));
	return VARIABLE_ANY;
}

static void add_variable(struct bpmn_reader *reader, const struct variable *variable)
{
	struct process *process = reader->process;
	struct arena *arena = reader->build->arena;

	if (process->variable_count == BUILD_VARIABLES_MAX) {
		bpmn_invalid(reader, variable->line, "a process holds at most %d variables",
			     BUILD_VARIABLES_MAX);
		return;
	}
	process->variables = build_grow(arena, process->variables, process->variable_count,
					sizeof(process->variables[0]));
	process->variables[process->variable_count++] = *variable;
	if (variable->readonly)
		return;
	process->variable_names = build_grow(arena, process->variable_names,
					     process->assignable_count,
					     sizeof(process->variable_names[0]));
	process->variable_names[process->assignable_count++] = variable->name;
}

/* Loops may share the names of their variables, with each other only. */
static bool name_is_taken(const struct process *process, const struct variable *variable)
{
	for (uint32_t i = 0; i < process->variable_count; i++) {
		const struct variable *other = &process->variables[i];

		if (str_equal(other->name, variable->name) &&
		    (!other->of_run || !variable->of_run || other->scope == variable->scope))
			return true;
	}
	return false;
}

void bpmn_add_loop_variable(struct bpmn_reader *reader, int line, const struct node *node,
			    struct str name, bool readonly)
{
	const struct variable variable = {
		.name = build_str(reader->build, name),
		.readonly = readonly,
		/* An item may be of a list that is sensitive. */
		.sensitive = node != NULL,
		.scope = node,
		.of_run = node != NULL,
		.line = line,
	};

	if (node) {
		bpmn_check_name(reader, line, "variable", variable.name);
		if (name_is_taken(reader->process, &variable))
			bpmn_invalid(reader, line, "the variable \"%.*s\" is declared twice",
				     STR_ARG(variable.name));
	}
	add_variable(reader, &variable);
}

static void read_variable(struct bpmn_reader *reader, struct element *el, const struct node *node)
{
	struct process *process = reader->process;
	struct build *build = reader->build;
	struct variable variable = {
		.name = build_str(build, bpmn_required(reader, el, "name")),
		.type = read_type(reader, el),
		.source = bpmn_attribute(reader, el, "source"),
		.sensitive = bpmn_flag(reader, el, "sensitive"),
		.transient = bpmn_flag(reader, el, "transient"),
		.scope = node,
		.line = el->line,
	};

	bpmn_check_name(reader, el->line, "variable", variable.name);
	if (variable.name.ptr && name_is_taken(process, &variable))
		bpmn_invalid(reader, el->line, "the variable \"%.*s\" is declared twice",
			     STR_ARG(variable.name));
	add_variable(reader, &variable);
}

void bpmn_read_variables(struct bpmn_reader *reader, struct element *extensions,
			 const struct node *node)
{
	for (struct element *q = extensions ? extensions->first : NULL; q; q = q->next) {
		if (!bpmn_is_q(q, "variables"))
			continue;
		q->used = true;
		for (struct element *child = q->first; child; child = child->next) {
			if (!bpmn_is_q(child, "variable"))
				continue;
			child->used = true;
			read_variable(reader, child, node);
		}
	}
}

static void read_on_validation(struct bpmn_reader *reader, struct element *el)
{
	struct str mode = element_attribute(el, "mode");

	el->used = true;
	reader->process->route_validation = str_equal(mode, STR("route"));
	if (mode.ptr && !reader->process->route_validation && !str_equal(mode, STR("reject")))
		bpmn_invalid(reader, el->line, "mode of q:onValidation is \"%.*s\" and not reject or route",
			     STR_ARG(mode));
}

void bpmn_read_process_rules(struct bpmn_reader *reader, struct element *el)
{
	struct element *extensions = element_child(el, "extensionElements");

	for (struct element *q = extensions ? extensions->first : NULL; q; q = q->next) {
		if (bpmn_is_q(q, "process")) {
			q->used = true;
			reader->process->idempotent = bpmn_flag(reader, q, "idempotent");
		}
		if (bpmn_is_q(q, "onValidation"))
			read_on_validation(reader, q);
	}
	bpmn_read_variables(reader, extensions, NULL);
}

static bool is_later(const struct element *el)
{
	for (size_t i = 0; i < ARRAY_LEN(later); i++)
		if (bpmn_is_q(el, later[i]))
			return true;
	return false;
}

static void sweep_attributes(struct bpmn_reader *reader, const struct element *el)
{
	for (uint32_t i = 0; i < el->attribute_count; i++) {
		const struct attribute *attr = &el->attributes[i];

		if ((el->q || attr->q) && !attr->used)
			bpmn_unsupported(reader, attr->line, "%s%.*s has no attribute %s%.*s",
					 el->q ? "q:" : "", STR_ARG(el->name), attr->q ? "q:" : "",
					 STR_ARG(attr->name));
	}
}

void bpmn_sweep(struct bpmn_reader *reader, struct element *root)
{
	struct str before = reader->at;
	struct element *el = root;

	while (el) {
		const struct element *parent = el->parent;
		struct str id;

		if (el->refused) {
			el = element_walk_over(root, el);
			continue;
		}
		if (!el->q) {
			id = element_attribute(el, "id");
			if (id.len)
				reader->at = build_str(reader->build, id);
		} else {
			/* Name the element that carries the extensions. */
			while (parent && (parent->q || element_is(parent, "extensionElements")))
				parent = parent->parent;
			id = parent ? element_attribute((struct element *)parent, "id") : STR_NONE;
			reader->at = id.len ? build_str(reader->build, id) : before;
		}
		if (el->q && !el->used) {
			bpmn_unsupported(reader, el->line,
					 is_later(el) ? "q:%.*s in %.*s is not supported yet"
						      : "q:%.*s has no place in %.*s",
					 STR_ARG(el->name),
					 STR_ARG(el->parent ? (parent ? parent->name : STR_NONE)
							    : STR_NONE));
			el = element_walk_over(root, el);
			continue;
		}
		sweep_attributes(reader, el);
		el = element_walk(root, el);
	}
	reader->at = before;
}
