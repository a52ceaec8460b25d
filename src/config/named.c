/* SPDX-License-Identifier: Apache-2.0 */
/* The things that users name: connections and tenants. A thing may be declared by the file and completed by the environment. */
#include "config/private.h"

/* [a-z0-9][a-z0-9-]{0,62} without "--", which separates names elsewhere. */
static bool name_is_allowed(struct str name)
{
	if (name.len == 0 || name.len > 63 || name.ptr[0] == '-')
		return false;
	for (size_t i = 0; i < name.len; i++) {
		char c = name.ptr[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
			return false;
		if (c == '-' && name.ptr[i - 1] == '-')
			return false;
	}
	return true;
}

struct named *named_find(const struct config *config, enum list_kind kind, struct str name)
{
	const struct named_list *list = &config->lists[kind];

	for (size_t i = 0; i < list->count; i++) {
		if (str_equal(str_of(list->items[i].name), name))
			return &list->items[i];
	}
	return NULL;
}

static struct named *named_new(struct loader *loader, enum list_kind kind, struct str name,
			       const struct where *where)
{
	const struct list_spec *spec = &list_specs[kind];
	struct arena *arena = &loader->config->arena;
	struct named_list *list = &loader->config->lists[kind];
	struct named *grown = arena_zalloc(arena, (list->count + 1) * sizeof(*grown));
	struct named *named = &grown[list->count];

	if (list->count)
		memcpy(grown, list->items, list->count * sizeof(*grown));
	list->items = grown;
	list->count++;
	named->name = arena_str(arena, name).ptr;
	named->where = *where;
	named->values = arena_zalloc(arena, spec->field_count * sizeof(*named->values));
	for (size_t i = 0; i < spec->field_count; i++) {
		const struct option_spec *field = &spec->fields[i];

		if (field->default_text)
			value_set(loader, field, field->key, &named->values[i], field->default_text,
				  &(struct where){.origin = ORIGIN_DEFAULT});
	}
	return named;
}

struct named *named_add(struct loader *loader, enum list_kind kind, struct str name,
			const struct where *where)
{
	struct named *named;

	if (!name_is_allowed(name)) {
		loader_finding(loader, where, CODE_CONFIG_PROPERTY_INVALID,
			       "\"%.*s\" is no name for a %s: lower-case letters, digits and "
			       "single dashes, at "
			       "most 63",
			       STR_ARG(name), list_specs[kind].thing);
		return NULL;
	}
	named = named_find(loader->config, kind, name);
	return named ? named : named_new(loader, kind, name, where);
}
