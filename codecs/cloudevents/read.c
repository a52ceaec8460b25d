/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CloudEvents envelope of a message that arrived.
 *
 * On the path this stands in decode, before the channel's codec sees the body. Three outcomes: an event, a plain message,
 * or a rejection. What must hold: a message that says it is an event, by its content type or by a specversion, and is
 * not a complete one, never passes as plain: its id is what duplicates are told by (G4), so guessing would process it twice.
 *
 * Attribute names are compared by case, as the bindings write them; only the content type is not.
 */
#include "codecs/cloudevents/cloudevents.h"

#include <inttypes.h>

#include "base/time.h"

/* How the headers of a binary event may be named; in the order of preference. */
static const char *const kafka_prefixes[] = {"ce_", NULL};
static const char *const amqp_prefixes[] = {"cloudEvents_", "cloudEvents:", "ce-", "ce_", NULL};

/* Where each attribute goes. */
static const struct attribute {
	const char *name;
	size_t offset;
} attributes[] = {
	{"id", offsetof(struct cloudevent, id)},
	{"source", offsetof(struct cloudevent, source)},
	{"type", offsetof(struct cloudevent, type)},
	{"subject", offsetof(struct cloudevent, subject)},
	{"time", offsetof(struct cloudevent, time)},
	{"dataschema", offsetof(struct cloudevent, data_schema)},
	{"datacontenttype", offsetof(struct cloudevent, data_content_type)},
};

static struct str *attribute_slot(struct cloudevent *event, const struct attribute *attribute)
{
	return (struct str *)(void *)((char *)event + attribute->offset);
}

static enum result malformed(struct error *err, const char *what)
{
	return error_set(err, RESULT_REJECT, CODE_PARSE_CLOUDEVENT, "%s", what);
}

/* Whether the attributes that every event has are there. */
static bool is_complete(const struct cloudevent *event, struct str specversion)
{
	return event->id.len > 0 && event->source.len > 0 && event->type.len > 0 &&
	       specversion.len > 0;
}

static enum result check(const struct cloudevent *event, struct str specversion, struct error *err)
{
	int64_t unused;

	if (!is_complete(event, specversion))
		return malformed(err, "the event lacks one of id, source, type, specversion");
	if (!str_equal(specversion, STR("1.0")))
		return error_set(err, RESULT_REJECT, CODE_PARSE_CLOUDEVENT,
				 "specversion \"%.*s\" is not supported, 1.0 is",
				 specversion.len > 16 ? 16 : (int)specversion.len, specversion.ptr);
	if (event->time.ptr && !time_parse(event->time, &unused))
		return malformed(err, "the attribute time is not a time of RFC 3339");
	return RESULT_OK;
}

/* ---- Binary: one header per attribute ---- */

/* The value of the last header whose name is the prefix and the attribute; NULL if there is none. */
static const msgpack_object *find_attribute(const struct header_list *headers, struct str prefix,
					    struct str name)
{
	for (size_t i = headers->count; i > 0; i--) {
		struct str full = headers->items[i - 1].name;

		if (full.len == prefix.len + name.len && str_starts_with(full, prefix) &&
		    str_equal(str_make(full.ptr + prefix.len, name.len), name))
			return &headers->items[i - 1].value;
	}
	return NULL;
}

/* The attribute as text. nil counts as absent; false if the header holds what cannot be an attribute. */
static bool attribute_text(struct arena *arena, const msgpack_object *value, struct str *out)
{
	int64_t number;

	if (!value || value_is_nil(value))
		*out = STR_NONE;
	else if (value_as_int(value, &number))
		*out = str_of(arena_printf(arena, "%" PRId64, number));
	else if (value->type == MSGPACK_OBJECT_STR)
		*out = value_as_str(value);
	else
		return false;
	return true;
}

/* Fills the event from the headers with one prefix. `*malformed_value` if one of them cannot be an attribute. */
static void read_set(struct arena *arena, const struct header_list *headers, struct str prefix,
		     struct cloudevent *event, struct str *specversion, bool *malformed_value)
{
	*malformed_value = false;
	for (size_t i = 0; i < ARRAY_LEN(attributes); i++) {
		const msgpack_object *value = find_attribute(headers, prefix,
							     str_of(attributes[i].name));

		/* The content type of a binary event is the message's own. */
		if (attributes[i].offset == offsetof(struct cloudevent, data_content_type))
			continue;
		if (!attribute_text(arena, value, attribute_slot(event, &attributes[i])))
			*malformed_value = true;
	}
	if (!attribute_text(arena, find_attribute(headers, prefix, STR("specversion")),
			    specversion))
		*malformed_value = true;
}

static enum result read_binary(struct arena *arena, bool demanded, enum cloudevents_style style,
			       const struct header_list *headers, struct str content_type,
			       struct str body, struct cloudevent *out, struct error *err)
{
	bool announced = demanded;

	for (const char *const *prefix = style == CLOUDEVENTS_STYLE_KAFKA ? kafka_prefixes
									  : amqp_prefixes;
	     *prefix; prefix++) {
		struct cloudevent event = {
			.data_content_type = content_type, .data = body, .value = value_nil()};
		struct str specversion = STR_NONE;
		bool malformed_value;
		enum result res;

		read_set(arena, headers, str_of(*prefix), &event, &specversion, &malformed_value);
		if (find_attribute(headers, str_of(*prefix), STR("specversion")))
			announced = true;
		if (!is_complete(&event, specversion))
			continue;
		if (malformed_value)
			return malformed(err, "a header of the event is not a text");
		res = check(&event, specversion, err);
		if (res)
			return res;
		event.present = true;
		*out = event;
		return RESULT_OK;
	}
	if (announced)
		return malformed(err, "the event's headers lack one of id, source, type, "
				      "specversion, or one is not a text");
	*out = (struct cloudevent){.data = body, .value = value_nil()};
	return RESULT_OK;
}

/* ---- Structured: the body is the envelope ---- */

static enum result read_member(const msgpack_object *envelope, const char *name, struct str *out,
			       struct error *err)
{
	const msgpack_object *value = value_get(envelope, str_of(name));

	if (!value || value_is_nil(value))
		return RESULT_OK;
	if (value->type != MSGPACK_OBJECT_STR)
		return error_set(err, RESULT_REJECT, CODE_PARSE_CLOUDEVENT,
				 "the attribute %s is not a string", name);
	*out = value_as_str(value);
	return RESULT_OK;
}

static enum result read_data(struct arena *arena, const msgpack_object *envelope,
			     struct cloudevent *event, struct error *err)
{
	const msgpack_object *data = value_get(envelope, STR("data"));
	const msgpack_object *encoded = value_get(envelope, STR("data_base64"));

	if (!encoded || value_is_nil(encoded)) {
		event->has_value = true;
		event->value = data ? *data : value_nil();
		return RESULT_OK;
	}
	if (data && !value_is_nil(data))
		return malformed(err, "the event has both data and data_base64");
	if (encoded->type != MSGPACK_OBJECT_STR ||
	    !base64_decode(arena, value_as_str(encoded), &event->data))
		return malformed(err, "data_base64 is not base64");
	return RESULT_OK;
}

/* Events in batches and in other formats than JSON have content types of the same beginning. */
static bool is_json_event(struct str content_type)
{
	static const char prefix[] = "application/cloudevents";
	struct str format;
	ptrdiff_t parameters = str_find(content_type, ';');

	if (parameters >= 0)
		content_type.len = (size_t)parameters;
	while (content_type.len > 0 && content_type.ptr[content_type.len - 1] == ' ')
		content_type.len--;
	format = str_make(content_type.ptr + sizeof(prefix) - 1,
			  content_type.len - (sizeof(prefix) - 1));
	return format.len == 0 || str_equal_nocase(format, STR("+json"));
}

static enum result read_structured(struct arena *arena, struct str body,
				   const struct value_limits *limits, struct cloudevent *out,
				   struct error *err)
{
	struct cloudevent event = {.present = true, .value = value_nil()};
	struct str specversion = STR_NONE;
	msgpack_object envelope;
	enum result res = codec_find(STR("json"))->decode(arena, body, limits, &envelope, err);

	if (res)
		return res;
	if (envelope.type != MSGPACK_OBJECT_MAP)
		return malformed(err, "the structured event is not a JSON object");
	for (size_t i = 0; i < ARRAY_LEN(attributes) && !res; i++)
		res = read_member(&envelope, attributes[i].name,
				  attribute_slot(&event, &attributes[i]), err);
	if (!res)
		res = read_member(&envelope, "specversion", &specversion, err);
	if (!res)
		res = check(&event, specversion, err);
	if (!res)
		res = read_data(arena, &envelope, &event, err);
	if (!res)
		*out = event;
	return res;
}

static bool names_structured(struct str content_type)
{
	struct str prefix = STR("application/cloudevents");

	return content_type.len >= prefix.len &&
	       str_equal_nocase(str_make(content_type.ptr, prefix.len), prefix);
}

enum result cloudevents_read(struct arena *arena, enum cloudevents_mode mode,
			     enum cloudevents_style style, const struct header_list *headers,
			     struct str content_type, struct str body,
			     const struct value_limits *limits, struct cloudevent *out,
			     struct error *err)
{
	if (mode == CLOUDEVENTS_NONE) {
		*out = (struct cloudevent){.data = body, .value = value_nil()};
		return RESULT_OK;
	}
	/* Kafka has no content type but the header. */
	if (!content_type.ptr)
		content_type = header_text(arena, headers, STR("content-type"));
	if (mode != CLOUDEVENTS_BINARY && names_structured(content_type)) {
		if (!is_json_event(content_type))
			return malformed(err,
					 "structured events are taken one by one and as JSON only");
		return read_structured(arena, body, limits, out, err);
	}
	/* A channel declared structured need not rely on its producers' content types. */
	if (mode == CLOUDEVENTS_STRUCTURED)
		return read_structured(arena, body, limits, out, err);
	return read_binary(arena, mode == CLOUDEVENTS_BINARY, style, headers, content_type, body,
			   out, err);
}
