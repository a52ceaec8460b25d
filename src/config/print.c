/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra config`: every value with its origin, as text for people or as JSON. */
#include <stdio.h>

#include "config/private.h"

static const char *origin_word(enum origin origin)
{
	switch (origin) {
	case ORIGIN_FILE:
		return "file";
	case ORIGIN_ENVIRONMENT:
		return "environment";
	default:
		return "default";
	}
}

/* A TEXT is quoted as it would be in the file, numbers are not. */
static bool is_quoted(const struct option_spec *spec)
{
	return spec->type != OPTION_INT && spec->type != OPTION_BOOL;
}

static void value_add(struct buf *out, const struct option_spec *spec, const struct value *value)
{
	struct buf shown = BUF_INIT;

	value_show(spec, value, &shown);
	if (is_quoted(spec))
		buf_add_json(out, buf_str(&shown));
	else
		buf_add_str(out, buf_str(&shown));
	buf_done(&shown);
}

static void property_add(struct buf *out, const struct property *property)
{
	bool secret = property_is_secret(property->name) && !is_reference(property->value.raw);
	struct buf pair = BUF_INIT;

	buf_printf(&pair, "%s=%s", property->name, secret ? "***" : property->value.raw);
	buf_add_json(out, buf_str(&pair));
	buf_done(&pair);
}

static void origin_add_text(struct buf *out, const struct where *where)
{
	switch (where->origin) {
	case ORIGIN_FILE:
		buf_printf(out, "  # %s:%u\n", where->name, where->line);
		break;
	case ORIGIN_ENVIRONMENT:
		buf_printf(out, "  # %s\n", where->name);
		break;
	default:
		buf_add_text(out, "  # default\n");
	}
}

static void origin_add_json(struct buf *out, const struct where *where)
{
	buf_printf(out, ",\"origin\":\"%s\"", origin_word(where->origin));
	if (where->origin == ORIGIN_DEFAULT)
		return;
	buf_add_text(out, ",\"source\":");
	buf_add_json(out, str_of(where->name));
	if (where->origin == ORIGIN_FILE)
		buf_printf(out, ",\"line\":%u", where->line);
}

static void named_add_text(struct buf *out, const struct list_spec *list, const struct named *named)
{
	buf_printf(out, "%s.%s", list->key, named->name);
	origin_add_text(out, &named->where);
	for (size_t i = 0; i < list->field_count; i++) {
		if (!named->values[i].set)
			continue;
		buf_printf(out, "%s.%s.%s = ", list->key, named->name, list->fields[i].key);
		value_add(out, &list->fields[i], &named->values[i]);
		origin_add_text(out, &named->values[i].where);
	}
	for (size_t i = 0; i < named->property_count; i++) {
		buf_printf(out, "%s.%s.properties: ", list->key, named->name);
		property_add(out, &named->properties[i]);
		origin_add_text(out, &named->properties[i].value.where);
	}
}

static void print_text(const struct config *config, struct buf *out)
{
	for (size_t i = 0; i < option_count; i++) {
		const struct value *value = &config->values[i];

		if (!value->set) {
			buf_printf(out, "%s  # unset\n", option_specs[i].key);
			continue;
		}
		buf_printf(out, "%s = ", option_specs[i].key);
		value_add(out, &option_specs[i], value);
		origin_add_text(out, &value->where);
	}
	for (int kind = 0; kind < LIST_KIND_COUNT; kind++) {
		for (size_t i = 0; i < config->lists[kind].count; i++)
			named_add_text(out, &list_specs[kind], &config->lists[kind].items[i]);
	}
}

static void value_add_json(struct buf *out, const struct option_spec *spec,
			   const struct value *value)
{
	buf_add_text(out, "{\"key\":");
	buf_add_json(out, str_of(spec->key));
	buf_add_text(out, ",\"value\":");
	if (!value->set) {
		buf_add_text(out, "null}");
		return;
	}
	value_add(out, spec, value);
	origin_add_json(out, &value->where);
	buf_add_byte(out, '}');
}

static void named_add_json(struct buf *out, enum list_kind kind, const struct named *named)
{
	const struct list_spec *list = &list_specs[kind];
	bool first = true;

	buf_add_text(out, "{\"name\":");
	buf_add_json(out, str_of(named->name));
	origin_add_json(out, &named->where);
	buf_add_text(out, ",\"options\":[");
	for (size_t i = 0; i < list->field_count; i++) {
		if (list->fields[i].type == OPTION_PROPERTIES)
			continue;
		buf_add_text(out, first ? "" : ",");
		value_add_json(out, &list->fields[i], &named->values[i]);
		first = false;
	}
	buf_add_byte(out, ']');
	if (kind == LIST_CONNECTIONS) {
		buf_add_text(out, ",\"properties\":[");
		for (size_t i = 0; i < named->property_count; i++) {
			buf_add_text(out, i ? ",{\"property\":" : "{\"property\":");
			property_add(out, &named->properties[i]);
			origin_add_json(out, &named->properties[i].value.where);
			buf_add_byte(out, '}');
		}
		buf_add_byte(out, ']');
	}
	buf_add_byte(out, '}');
}

static void print_json(const struct config *config, struct buf *out)
{
	buf_add_text(out, "{\"options\":[");
	for (size_t i = 0; i < option_count; i++) {
		buf_add_text(out, i ? "," : "");
		value_add_json(out, &option_specs[i], &config->values[i]);
	}
	buf_add_byte(out, ']');
	for (int kind = 0; kind < LIST_KIND_COUNT; kind++) {
		buf_printf(out, ",\"%s\":[", list_specs[kind].key);
		for (size_t i = 0; i < config->lists[kind].count; i++) {
			buf_add_text(out, i ? "," : "");
			named_add_json(out, (enum list_kind)kind, &config->lists[kind].items[i]);
		}
		buf_add_byte(out, ']');
	}
	buf_add_text(out, "}\n");
}

void config_print(const struct config *config, bool json, FILE *out)
{
	struct buf text = BUF_INIT;

	if (json)
		print_json(config, &text);
	else
		print_text(config, &text);
	fwrite(text.data, 1, text.len, out);
	buf_done(&text);
}
