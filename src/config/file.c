/* SPDX-License-Identifier: Apache-2.0 */
/* Reads sutra.conf: groups become dotted keys, lists become named things; the table judges each value. */
#include <stdio.h>

#include "config/private.h"

static struct where where_of(const struct config_setting_t *setting, struct loader *loader)
{
	struct where where = {.origin = ORIGIN_FILE, .setting = setting};
	const char *file;

	where.line = document_line(setting, &file);
	where.name = arena_strdup(&loader->config->arena, file);
	return where;
}

/* A scalar of the type that the row asks for, as text in `text`; false after a finding. */
static bool scalar_read(const struct option_spec *spec, const struct config_setting_t *setting,
			struct buf *text)
{
	const char *borrowed;
	int64_t number;
	bool flag;

	switch (spec->type) {
	case OPTION_INT:
		if (!document_as_int(setting, INT64_MIN, INT64_MAX, &number))
			return false;
		buf_printf(text, "%lld", (long long)number);
		return true;
	case OPTION_BOOL:
		if (!document_as_bool(setting, &flag))
			return false;
		buf_add_text(text, flag ? "true" : "false");
		return true;
	default:
		borrowed = document_as_text(setting);
		if (!borrowed)
			return false;
		buf_add_text(text, borrowed);
		/* Makes even an empty one a text. */
		buf_reserve(text, 1)[0] = '\0';
		return true;
	}
}

static void scalar_set(struct loader *loader, const struct option_spec *spec, const char *key,
		       struct value *value, const struct config_setting_t *setting)
{
	struct buf text = BUF_INIT;

	if (scalar_read(spec, setting, &text)) {
		struct where where = where_of(setting, loader);

		value_set(loader, spec, key, value, text.data, &where);
		value->where.setting = NULL;
	}
	buf_done(&text);
}

static void properties_read(struct loader *loader, struct named *named,
			    const struct config_setting_t *group)
{
	const struct config_setting_t *list;

	if (!document_texts(group, "properties", false, &list))
		return;
	for (size_t i = 0; i < document_count(list); i++) {
		const struct config_setting_t *element = document_at(list, i);
		struct where where = where_of(element, loader);

		property_set(loader, named, document_as_text(element), &where);
	}
	for (size_t i = 0; i < named->property_count; i++)
		named->properties[i].value.where.setting = NULL;
}

static void named_read(struct loader *loader, enum list_kind kind,
		       const struct config_setting_t *group)
{
	const struct list_spec *list = &list_specs[kind];
	const char *allowed[16] = {"name"};
	struct where where = where_of(group, loader);
	struct named *named;
	const char *name;

	assert(list->field_count + 2 <= ARRAY_LEN(allowed));
	for (size_t i = 0; i < list->field_count; i++)
		allowed[i + 1] = list->fields[i].key;
	document_check_keys(group, allowed);
	if (!document_text(group, "name", true, &name))
		return;
	if (named_find(loader->config, kind, str_of(name))) {
		document_finding(group, "there are two %s named \"%s\"", list->key, name);
		return;
	}
	named = named_add(loader, kind, str_of(name), &where);
	if (!named)
		return;
	named->where.setting = NULL;
	for (size_t i = 0; i < list->field_count; i++) {
		const struct config_setting_t *setting = document_find(group, list->fields[i].key);

		if (!setting)
			continue;
		if (list->fields[i].type == OPTION_PROPERTIES)
			properties_read(loader, named, group);
		else
			scalar_set(loader, &list->fields[i], list->fields[i].key, &named->values[i],
				   setting);
	}
}

/* Whether `key` is a list of named things; then it has been read. */
static bool list_read(struct loader *loader, const struct config_setting_t *root, const char *key)
{
	const struct config_setting_t *groups;

	for (int kind = 0; kind < LIST_KIND_COUNT; kind++) {
		if (strcmp(key, list_specs[kind].key) != 0)
			continue;
		if (document_groups(root, key, false, &groups)) {
			for (size_t i = 0; i < document_count(groups); i++)
				named_read(loader, (enum list_kind)kind, document_at(groups, i));
		}
		return true;
	}
	return false;
}

static void unknown_key(const struct config_setting_t *setting, const char *key)
{
	const char *words[128];
	const char *nearest;
	size_t count = 0;

	assert(option_count + LIST_KIND_COUNT < ARRAY_LEN(words));
	for (size_t i = 0; i < option_count; i++)
		words[count++] = option_specs[i].key;
	for (int kind = 0; kind < LIST_KIND_COUNT; kind++)
		words[count++] = list_specs[kind].key;
	words[count] = NULL;
	nearest = document_nearest(key, words);
	if (nearest)
		document_finding(setting, "unknown key %s; did you mean %s?", key, nearest);
	else
		document_finding(setting, "unknown key %s", key);
}

/* Whether some option lies below the dotted key `prefix`. */
static bool is_group_key(const char *prefix)
{
	size_t len = strlen(prefix);

	for (size_t i = 0; i < option_count; i++) {
		if (strncmp(option_specs[i].key, prefix, len) == 0 &&
		    option_specs[i].key[len] == '.')
			return true;
	}
	return false;
}

static void option_read(struct loader *loader, const struct config_setting_t *setting,
			const char *key)
{
	for (size_t i = 0; i < option_count; i++) {
		if (strcmp(option_specs[i].key, key) == 0) {
			scalar_set(loader, &option_specs[i], key, &loader->config->values[i],
				   setting);
			return;
		}
	}
	if (is_group_key(key))
		document_finding(setting, "\"%s\" must be a group { … }, not %s", key,
				 document_type(setting));
	else
		unknown_key(setting, key);
}

/* The nesting is bounded by the scan. */
static void group_read(struct loader *loader, const struct config_setting_t *group,
		       const char *prefix)
{
	for (size_t i = 0; i < document_count(group); i++) {
		const struct config_setting_t *setting = document_at(group, i);
		struct buf key = BUF_INIT;

		buf_printf(&key, "%s%s%s", prefix, prefix[0] ? "." : "", document_key(setting));
		if (prefix[0] || !list_read(loader, group, key.data)) {
			if (document_is_group(setting) && is_group_key(key.data))
				group_read(loader, setting, key.data);
			else
				option_read(loader, setting, key.data);
		}
		buf_done(&key);
	}
}

void file_read(struct loader *loader, const char *path)
{
	struct document_options options = {&loader->sink, CODE_CONFIG_PROPERTY_INVALID, true};
	struct document *doc;

	if (document_open(path, &options, &doc) != RESULT_OK)
		return;
	group_read(loader, document_root(doc), "");
	document_close(&doc);
}

void text_read(struct loader *loader, const char *name, struct str text)
{
	struct document_options options = {&loader->sink, CODE_CONFIG_PROPERTY_INVALID, false};
	struct document *doc;

	if (document_parse(name, text, &options, &doc) != RESULT_OK)
		return;
	group_read(loader, document_root(doc), "");
	document_close(&doc);
}
