/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of a message before any instance is at hand: its correlation values, whether it is valid, its identity.
 * The expressions see the message alone; variables read as nil.
 *
 * A spawn's aliases are found here too, by the same function, so that "which live instance holds this alias" and "which
 * alias does the new instance get" cannot differ.
 */
#include <inttypes.h>

#include "engine/behaviour.h"

enum result scalar_text(struct arena *arena, const msgpack_object *value, const char *what,
			struct str name, struct str *out, struct error *err)
{
	struct str s;
	int64_t v;

	if (value_is_nil(value)) {
		*out = STR_NONE;
	} else if (value->type == MSGPACK_OBJECT_STR) {
		s = value_as_str(value);
		/* A store's text columns hold no NUL. */
		if (s.len && memchr(s.ptr, '\0', s.len))
			return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
					 "%s %.*s: the text holds a NUL", what, STR_ARG(name));
		*out = s.len ? s : STR("");
	} else if (value_as_int(value, &v)) {
		*out = str_of(arena_printf(arena, "%" PRId64, v));
	} else if (value->type == MSGPACK_OBJECT_BOOLEAN) {
		*out = value->via.boolean ? STR("true") : STR("false");
	} else {
		return error_set(
			err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
			"%s %.*s: the value is neither a string nor an integer nor a boolean", what,
			STR_ARG(name));
	}
	return RESULT_OK;
}

static enum result message_eval(const struct step_env *env, struct str tenant,
				const struct node *node, const struct event *event,
				const struct expression *expr, msgpack_object *out,
				struct error *err)
{
	const struct process *process = node->process;
	size_t count = process->variable_count;
	struct expression_name *names = arena_alloc(env->arena, (count + 1) * sizeof(*names));
	struct expression_scope scope = {
		.names = names,
		.headers = event->headers,
		.event = {event->id, event->type, event->channel, event->key, event->time_us},
		.process_id = process->id,
		.tenant = tenant,
		.now_us = env->now_us,
		.uuid_seed = {tenant, event->channel, event->id, node->id},
	};

	for (size_t i = 0; i < count; i++)
		names[i] = (struct expression_name){process->variables[i].name, NULL};
	if (node->source)
		names[count++] = (struct expression_name){node->source->name, &event->payload};
	scope.name_count = count;
	return expression_eval(env->expressions, &env->deployment->expressions, expr, &scope,
			       env->arena, out, err);
}

static bool has_key(const struct instance_wait_key *keys, uint32_t count, struct str name,
		    struct str value)
{
	for (uint32_t i = 0; i < count; i++)
		if (str_equal(keys[i].name, name) && str_equal(keys[i].value, value))
			return true;
	return false;
}

enum result engine_correlate(const struct step_env *env, struct str tenant, const struct node *node,
			     const struct event *event, struct instance_wait_key **keys,
			     uint32_t *count, struct error *err)
{
	struct instance_wait_key *found = arena_alloc(env->arena,
						      (node->alias_count + 1) * sizeof(*found));
	uint32_t found_count = 0;

	for (uint32_t i = 0; i < node->alias_count; i++) {
		const struct alias_rule *rule = &node->aliases[i];
		msgpack_object value;
		struct str text;
		enum result result;

		if (!rule->expression)
			continue;
		result = message_eval(env, tenant, node, event, rule->expression, &value, err);
		if (result == RESULT_OK)
			result = scalar_text(env->arena, &value, "alias", rule->name, &text, err);
		if (result != RESULT_OK)
			return result;
		if (text.ptr && !has_key(found, found_count, rule->name, text))
			found[found_count++] = (struct instance_wait_key){rule->name, text};
	}
	*keys = found;
	*count = found_count;
	return RESULT_OK;
}

struct str event_error_code(struct arena *arena, const struct event *event)
{
	struct str code = event->headers ? header_text(arena, event->headers, STR("error-code"))
					 : STR_NONE;

	return code.len ? code : STR_NONE;
}

struct str event_error_message(struct arena *arena, const struct event *event)
{
	return event->headers ? header_text(arena, event->headers, STR("error-message")) : STR_NONE;
}

/* The first rule that does not hold; NULL = all do. */
static enum result find_broken_rule(const struct step_env *env, struct str tenant,
				    const struct node *node, const struct event *event,
				    const struct validate_rule **out, struct error *err)
{
	*out = NULL;
	for (uint32_t i = 0; node->source && i < node->source->validate_count && !*out; i++) {
		const struct validate_rule *rule = &node->source->validates[i];
		msgpack_object value;
		enum result result = message_eval(env, tenant, node, event, rule->expression,
						  &value, err);

		if (result != RESULT_OK)
			return result;
		if (!expression_truth(&value))
			*out = rule;
	}
	return RESULT_OK;
}

enum result engine_validate(const struct step_env *env, struct str tenant, const struct node *node,
			    const struct event *event, struct error *err)
{
	const struct validate_rule *rule;
	enum result result;

	/* An answer that is an error need not look like one that is none. */
	if (node_is_wait(node) && event_error_code(env->arena, event).ptr)
		return RESULT_OK;
	result = find_broken_rule(env, tenant, node, event, &rule, err);
	if (result != RESULT_OK || !rule || node->process->route_validation)
		return result;
	return error_set(err, RESULT_REJECT, CODE_INBOUND_VALIDATION_REJECT,
			 "%.*s: `%.*s` does not hold", STR_ARG(rule->code),
			 STR_ARG(rule->expression->source));
}

enum result event_validation(const struct step_env *env, struct str tenant, const struct node *node,
			     const struct event *event, msgpack_object *out, struct error *err)
{
	const struct validate_rule *rule;
	enum result result = find_broken_rule(env, tenant, node, event, &rule, err);

	*out = value_nil();
	if (result != RESULT_OK || !rule)
		return result;
	*out = value_map(env->arena, 1);
	out->via.map.ptr[0] = (msgpack_object_kv){value_text(STR("code")), value_text(rule->code)};
	return RESULT_OK;
}

enum result engine_dedup_key(const struct step_env *env, struct str tenant, const struct node *node,
			     const struct event *event, struct str *out, struct error *err)
{
	msgpack_object value;
	enum result result;

	*out = STR_NONE;
	if (!node->source || !node->source->dedup_key)
		return RESULT_OK;
	result = message_eval(env, tenant, node, event, node->source->dedup_key, &value, err);
	if (result == RESULT_OK)
		result = scalar_text(env->arena, &value, "dedupKey of", node->id, out, err);
	return result;
}
