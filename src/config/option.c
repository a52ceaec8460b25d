/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table and the one validator: whether a value came from the file, the environment or the table itself, it is
 * a text by the time it arrives here, and is judged by its row alone.
 */
#include <stdio.h>

#include "config/private.h"

const struct option_spec option_specs[] = {
#define OPTION(key, type, default_, min, max, allowed, help) \
	{key, OPTION_##type, default_, min, max, allowed, help},
#include "config/options.def"
};
const size_t option_count = ARRAY_LEN(option_specs);

/* The rows of one list stand together in options.def; each list takes its own. */
#define FIELD_OF_CONNECTIONS(...) {__VA_ARGS__},
#define FIELD_OF_TENANTS(...)

static const struct option_spec connection_fields[] = {
#define FIELD(list, key, type, default_, min, max, allowed, help) \
	FIELD_OF_##list(key, OPTION_##type, default_, min, max, allowed, help)
#include "config/options.def"
};

#undef FIELD_OF_CONNECTIONS
#undef FIELD_OF_TENANTS
#define FIELD_OF_CONNECTIONS(...)
#define FIELD_OF_TENANTS(...) {__VA_ARGS__},

static const struct option_spec tenant_fields[] = {
#define FIELD(list, key, type, default_, min, max, allowed, help) \
	FIELD_OF_##list(key, OPTION_##type, default_, min, max, allowed, help)
#include "config/options.def"
};

const struct list_spec list_specs[LIST_KIND_COUNT] = {
	[LIST_CONNECTIONS] = {"connections", "connection", connection_fields,
			      ARRAY_LEN(connection_fields)},
	[LIST_TENANTS] = {"tenants", "tenant", tenant_fields, ARRAY_LEN(tenant_fields)},
};

size_t list_field(enum list_kind kind, const char *key)
{
	const struct list_spec *list = &list_specs[kind];

	for (size_t i = 0; i < list->field_count; i++) {
		if (strcmp(list->fields[i].key, key) == 0)
			return i;
	}
	assert(!"field is in options.def");
	return 0;
}

void env_name_append(char *name, const char *key)
{
	size_t len = strlen(name);

	for (; *key && len + 1 < ENV_NAME_SIZE; key++) {
		char c = *key;

		if (c == '.' || c == '-')
			c = '_';
		else if (c >= 'a' && c <= 'z')
			c = (char)(c - 'a' + 'A');
		name[len++] = c;
	}
	name[len] = '\0';
}

bool is_reference(const char *text)
{
	return str_starts_with(str_of(text), STR("env:")) ||
	       str_starts_with(str_of(text), STR("secret:"));
}

/* One judgement: an empty buffer means the value is right. It never repeats a value that may be a secret. */
static void judge_number(const struct option_spec *spec, const char *text, int64_t *number,
			 struct buf *fault)
{
	if (!str_to_int64(str_of(text), number))
		buf_printf(fault, "must be an integer, not \"%s\"", text);
	else if (*number < spec->min || *number > spec->max)
		buf_printf(fault, "must be from %lld to %lld, not %s", (long long)spec->min,
			   (long long)spec->max, text);
}

/* Milliseconds as the shortest duration text, for bounds. */
static void duration_add(struct buf *out, int64_t ms)
{
	if (ms && ms % OPTION_DAY_MS == 0)
		buf_printf(out, "P%lldD", (long long)(ms / OPTION_DAY_MS));
	else if (ms && ms % (3600 * MS_PER_S) == 0)
		buf_printf(out, "PT%lldH", (long long)(ms / (3600 * MS_PER_S)));
	else if (ms && ms % (60 * MS_PER_S) == 0)
		buf_printf(out, "PT%lldM", (long long)(ms / (60 * MS_PER_S)));
	else if (ms % MS_PER_S == 0)
		buf_printf(out, "PT%lldS", (long long)(ms / MS_PER_S));
	else
		buf_printf(out, "PT%lld.%03lldS", (long long)(ms / MS_PER_S),
			   (long long)(ms % MS_PER_S));
}

void option_bound_add(struct buf *out, const struct option_spec *spec, int64_t bound)
{
	if (spec->type == OPTION_DURATION)
		duration_add(out, bound);
	else
		buf_printf(out, "%lld", (long long)bound);
}

static void judge_duration(const struct option_spec *spec, const char *text, int64_t *number,
			   struct buf *fault)
{
	if (!str_to_duration_ms(str_of(text), number)) {
		buf_printf(fault, "must be a duration such as \"PT30S\", not \"%s\"", text);
		return;
	}
	if (*number >= spec->min && *number <= spec->max)
		return;
	buf_add_text(fault, "must be from ");
	duration_add(fault, spec->min);
	buf_add_text(fault, " to ");
	duration_add(fault, spec->max);
	buf_printf(fault, ", not %s", text);
}

static void judge_choice(const struct option_spec *spec, const char *text, struct buf *fault)
{
	size_t len = strlen(text);
	const char *at = spec->allowed;

	while (at) {
		size_t word = strcspn(at, "|");

		if (word == len && memcmp(at, text, len) == 0)
			return;
		at = at[word] ? at + word + 1 : NULL;
	}
	buf_add_text(fault, "must be one of ");
	for (at = spec->allowed; *at; at++) {
		if (*at == '|')
			buf_add_text(fault, ", ");
		else
			buf_add_byte(fault, *at);
	}
	buf_printf(fault, "; not \"%s\"", text);
}

static void judge_address(const char *text, struct buf *fault)
{
	const char *colon = strrchr(text, ':');
	int64_t port;

	/* A bare IPv6 address would lose its last group to the port. */
	if (!colon || colon == text || !str_to_int64(str_of(colon + 1), &port) || port < 0 ||
	    port > 65535 || colon[1] == '+' || (text[0] != '[' && strchr(text, ':') != colon) ||
	    (text[0] == '[' && colon[-1] != ']'))
		buf_printf(fault,
			   "must be an address such as \"127.0.0.1:8080\" or \"[::1]:8080\", not "
			   "\"%s\"",
			   text);
}

static void judge_text(const struct option_spec *spec, const char *text, struct buf *fault)
{
	size_t len = strlen(text);

	if (len < (size_t)spec->min)
		buf_add_text(fault, "must not be empty");
	else if (len > (size_t)spec->max)
		buf_printf(fault, "must not be longer than %lld bytes", (long long)spec->max);
	else if (!str_is_utf8(str_of(text)))
		buf_add_text(fault, "must be UTF-8");
}

static void judge(const struct option_spec *spec, const char *text, int64_t *number,
		  struct buf *fault)
{
	switch (spec->type) {
	case OPTION_INT:
		judge_number(spec, text, number, fault);
		break;
	case OPTION_DURATION:
		judge_duration(spec, text, number, fault);
		break;
	case OPTION_BOOL:
		if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
			buf_printf(fault, "must be true or false, not \"%s\"", text);
		*number = strcmp(text, "true") == 0;
		break;
	case OPTION_CHOICE:
		judge_choice(spec, text, fault);
		break;
	case OPTION_ADDRESS:
		judge_address(text, fault);
		break;
	case OPTION_TEXT:
	case OPTION_SECRET:
	case OPTION_URL:
		judge_text(spec, text, fault);
		break;
	case OPTION_PROPERTIES:
		assert(!"properties are set by property_set");
	}
}

void value_set(struct loader *loader, const struct option_spec *spec, const char *key,
	       struct value *value, const char *text, const struct where *where)
{
	struct buf fault = BUF_INIT;
	int64_t number = 0;

	judge(spec, text, &number, &fault);
	if (fault.len) {
		loader_finding(loader, where, CODE_CONFIG_PROPERTY_INVALID, "%s %s", key,
			       fault.data);
		buf_done(&fault);
		return;
	}
	*value = (struct value){.set = true, .where = *where, .number = number};
	value->raw = value->text = arena_strdup(&loader->config->arena, text);
}

void property_set(struct loader *loader, struct named *named, const char *pair,
		  const struct where *where)
{
	struct arena *arena = &loader->config->arena;
	const char *equals = strchr(pair, '=');
	struct property *grown;
	struct str name;

	if (!equals || equals == pair) {
		/* The text may be a secret that lost its name, so it is not repeated. */
		loader_finding(loader, where, CODE_CONFIG_PROPERTY_INVALID,
			       "connection \"%s\": a property must be written name=value",
			       named->name);
		return;
	}
	name = str_make(pair, (size_t)(equals - pair));
	for (size_t i = 0; i < named->property_count; i++) {
		struct property *property = &named->properties[i];

		if (!str_equal(str_of(property->name), name))
			continue;
		if (property->value.where.origin == where->origin)
			loader_finding(loader, where, CODE_CONFIG_PROPERTY_INVALID,
				       "connection \"%s\": property \"%s\" is given twice",
				       named->name, property->name);
		property->value.where = *where;
		property->value.raw = property->value.text = arena_strdup(arena, equals + 1);
		return;
	}
	grown = arena_zalloc(arena, (named->property_count + 1) * sizeof(*grown));
	if (named->property_count)
		memcpy(grown, named->properties, named->property_count * sizeof(*grown));
	grown[named->property_count].name = arena_str(arena, name).ptr;
	grown[named->property_count].value = (struct value){.set = true, .where = *where};
	grown[named->property_count].value.raw = arena_strdup(arena, equals + 1);
	grown[named->property_count].value.text = grown[named->property_count].value.raw;
	named->properties = grown;
	named->property_count++;
}
