/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the environment: SUTRA_ and the key in upper case. Variables that declare things (SUTRA_CONNECTIONS=kafka,amqp) are
 * read first, so that the order of the others does not matter. An empty variable is as good as none: that is
 * what container templates leave of an unset one.
 */
#include <stdio.h>

#include "config/private.h"

#define PREFIX "SUTRA_"

/* Variables that are no options: read before the file, by commands that talk to a replica, or by tests. */
static const char *const other_names[] = {"SUTRA_CONFIG", "SUTRA_ADMIN_URL", "SUTRA_ADMIN_KEY",
					  "SUTRA_FAULT"};

struct variable {
	char name[ENV_NAME_SIZE];
	const char *value;
};

/* Splits "NAME=value"; false for variables that are not ours or empty. */
static bool variable_read(const char *entry, struct variable *variable)
{
	const char *equals = strchr(entry, '=');
	size_t len = equals ? (size_t)(equals - entry) : 0;

	if (!equals || strncmp(entry, PREFIX, sizeof(PREFIX) - 1) != 0 || !equals[1])
		return false;
	if (len >= sizeof(variable->name))
		len = sizeof(variable->name) - 1;
	memcpy(variable->name, entry, len);
	variable->name[len] = '\0';
	variable->value = equals + 1;
	return true;
}

const char *environment_get(char *const *environ_, const char *name)
{
	size_t len = strlen(name);

	for (; environ_ && *environ_; environ_++) {
		if (strncmp(*environ_, name, len) == 0 && (*environ_)[len] == '=')
			return *environ_ + len + 1;
	}
	return NULL;
}

static struct where where_of(struct loader *loader, const struct variable *variable)
{
	return (struct where){.origin = ORIGIN_ENVIRONMENT,
			      .name = arena_strdup(&loader->config->arena, variable->name)};
}

static struct str trimmed(struct str s)
{
	while (s.len && s.ptr[0] == ' ')
		s = str_make(s.ptr + 1, s.len - 1);
	while (s.len && s.ptr[s.len - 1] == ' ')
		s.len--;
	return s;
}

/* SUTRA_CONNECTIONS, SUTRA_TENANTS: a comma list of names. False: not such a variable. */
static bool declaration_read(struct loader *loader, const struct variable *variable, bool apply)
{
	for (int kind = 0; kind < LIST_KIND_COUNT; kind++) {
		char name[ENV_NAME_SIZE] = PREFIX;
		struct where where;
		const char *at = variable->value;

		env_name_append(name, list_specs[kind].key);
		if (strcmp(name, variable->name) != 0)
			continue;
		where = where_of(loader, variable);
		while (apply && at) {
			size_t len = strcspn(at, ",");

			(void)named_add(loader, (enum list_kind)kind, trimmed(str_make(at, len)),
					&where);
			at = at[len] ? at + len + 1 : NULL;
		}
		return true;
	}
	return false;
}

/* "a=b;c=d" with \; and \\ for the characters themselves. */
static void properties_read(struct loader *loader, struct named *named,
			    const struct variable *variable)
{
	struct where where = where_of(loader, variable);
	struct buf pair = BUF_INIT;

	for (const char *at = variable->value;; at++) {
		if (*at == '\\' && (at[1] == ';' || at[1] == '\\')) {
			buf_add_byte(&pair, *++at);
		} else if (*at && *at != ';') {
			buf_add_byte(&pair, *at);
		} else {
			if (pair.len)
				property_set(loader, named, pair.data, &where);
			buf_reset(&pair);
			if (!*at)
				break;
		}
	}
	buf_done(&pair);
}

/* The field of a thing that a variable names. False: none. */
static bool field_read(struct loader *loader, const struct variable *variable)
{
	struct where where = {.origin = ORIGIN_ENVIRONMENT, .name = variable->name};
	struct named *found = NULL;
	enum list_kind found_kind = LIST_CONNECTIONS;
	size_t found_field = 0;

	for (int kind = 0; kind < LIST_KIND_COUNT; kind++) {
		const struct list_spec *spec = &list_specs[kind];
		struct named_list *list = &loader->config->lists[kind];

		for (size_t i = 0; i < list->count * spec->field_count; i++) {
			struct named *named = &list->items[i / spec->field_count];
			size_t field = i % spec->field_count;
			char name[ENV_NAME_SIZE] = PREFIX;

			env_name_append(name, spec->key);
			env_name_append(name, ".");
			env_name_append(name, named->name);
			env_name_append(name, ".");
			env_name_append(name, spec->fields[field].key);
			if (strcmp(name, variable->name) != 0)
				continue;
			if (found) {
				loader_finding(
					loader, &where, CODE_CONFIG_PROPERTY_INVALID,
					"may mean \"%s\" or \"%s\"; give one of them another name",
					found->name, named->name);
				return true;
			}
			found = named;
			found_kind = (enum list_kind)kind;
			found_field = field;
		}
	}
	if (!found)
		return false;
	if (list_specs[found_kind].fields[found_field].type == OPTION_PROPERTIES) {
		properties_read(loader, found, variable);
	} else {
		where = where_of(loader, variable);
		value_set(loader, &list_specs[found_kind].fields[found_field],
			  list_specs[found_kind].fields[found_field].key,
			  &found->values[found_field], variable->value, &where);
	}
	return true;
}

static bool option_read(struct loader *loader, const struct variable *variable)
{
	for (size_t i = 0; i < option_count; i++) {
		char name[ENV_NAME_SIZE] = PREFIX;
		struct where where;

		env_name_append(name, option_specs[i].key);
		if (strcmp(name, variable->name) != 0)
			continue;
		where = where_of(loader, variable);
		value_set(loader, &option_specs[i], option_specs[i].key, &loader->config->values[i],
			  variable->value, &where);
		return true;
	}
	return false;
}

static bool is_other(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(other_names); i++) {
		if (strcmp(other_names[i], name) == 0)
			return true;
	}
	return false;
}

void environment_read(struct loader *loader)
{
	struct variable variable;

	for (char *const *entry = loader->environ_; entry && *entry; entry++) {
		if (variable_read(*entry, &variable))
			declaration_read(loader, &variable, true);
	}
	for (char *const *entry = loader->environ_; entry && *entry; entry++) {
		struct where where = {.origin = ORIGIN_ENVIRONMENT, .name = variable.name};

		if (!variable_read(*entry, &variable) || is_other(variable.name) ||
		    declaration_read(loader, &variable, false) || option_read(loader, &variable) ||
		    field_read(loader, &variable))
			continue;
		loader_finding(loader, &where, CODE_CONFIG_PROPERTY_UNKNOWN_ENV, "names no option");
	}
}
