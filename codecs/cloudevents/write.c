/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts an outgoing value into a CloudEvents envelope.
 *
 * On the path this stands in step, where a send effect gets the bytes that its outbox row keeps: whatever is written here
 * is sent unchanged by every later attempt. The order of attributes is fixed, so the same event gives the same bytes.
 */
#include "codecs/cloudevents/cloudevents.h"

#define ATTRIBUTES_MAX 7

struct attribute {
	const char *name;
	struct str value;
};

/* The attributes that are set, in the order in which they are written. */
static size_t list_attributes(const struct cloudevent *event,
			      struct attribute out[static ATTRIBUTES_MAX])
{
	const struct attribute all[ATTRIBUTES_MAX] = {
		{"specversion", STR("1.0")},
		{"id", event->id},
		{"source", event->source},
		{"type", event->type},
		{"time", event->time},
		{"subject", event->subject},
		{"dataschema", event->data_schema},
	};
	size_t count = 0;

	for (size_t i = 0; i < ATTRIBUTES_MAX; i++)
		if (all[i].value.len > 0)
			out[count++] = all[i];
	return count;
}

static enum result check(const struct cloudevent *event, const struct attribute *attributes,
			 size_t count, struct error *err)
{
	if (event->id.len == 0 || event->source.len == 0 || event->type.len == 0)
		return error_set(err, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED,
				 "an event needs an id, a source and a type");
	for (size_t i = 0; i < count; i++)
		if (!str_is_utf8(attributes[i].value))
			return error_set(err, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED,
					 "the event's %s is not UTF-8", attributes[i].name);
	return RESULT_OK;
}

static struct header_list make_headers(struct arena *arena, enum cloudevents_style style,
				       const struct attribute *attributes, size_t count)
{
	const char *prefix = style == CLOUDEVENTS_STYLE_KAFKA ? "ce_" : "cloudEvents_";
	struct header_list headers = {arena_alloc(arena, count * sizeof(struct header)), count};

	for (size_t i = 0; i < count; i++) {
		headers.items[i].name = str_of(
			arena_printf(arena, "%s%s", prefix, attributes[i].name));
		headers.items[i].value = value_text(arena_str(arena, attributes[i].value));
	}
	return headers;
}

static enum result write_envelope(const struct attribute *attributes, size_t count,
				  const msgpack_object *data, const struct codec *codec,
				  struct buf *body, struct error *err)
{
	bool is_json = strcmp(codec->name, "json") == 0;
	struct buf bytes = BUF_INIT;
	enum result res;

	buf_add_byte(body, '{');
	for (size_t i = 0; i < count; i++) {
		buf_add_json(body, str_of(attributes[i].name));
		buf_add_byte(body, ':');
		buf_add_json(body, attributes[i].value);
		buf_add_byte(body, ',');
	}
	buf_add_text(body, "\"datacontenttype\":");
	buf_add_json(body, str_of(codec->content_type));
	if (is_json) {
		buf_add_text(body, ",\"data\":");
		res = codec->encode(data, body, err);
	} else {
		res = codec->encode(data, &bytes, err);
		buf_add_text(body, ",\"data_base64\":\"");
		base64_encode(buf_str(&bytes), body);
		buf_add_byte(body, '"');
	}
	buf_add_byte(body, '}');
	buf_done(&bytes);
	return res;
}

enum result cloudevents_write(struct arena *arena, enum cloudevents_mode mode,
			      enum cloudevents_style style, const struct cloudevent *event,
			      const msgpack_object *data, const struct codec *codec,
			      struct buf *body, struct str *content_type,
			      struct header_list *headers, struct error *err)
{
	struct attribute attributes[ATTRIBUTES_MAX];
	size_t count = list_attributes(event, attributes);
	enum result res = check(event, attributes, count, err);

	assert(mode == CLOUDEVENTS_BINARY || mode == CLOUDEVENTS_STRUCTURED);
	if (res)
		return res;
	if (mode == CLOUDEVENTS_STRUCTURED) {
		res = write_envelope(attributes, count, data, codec, body, err);
		if (res)
			return res;
		*content_type = STR("application/cloudevents+json");
		*headers = (struct header_list){NULL, 0};
		return RESULT_OK;
	}
	res = codec->encode(data, body, err);
	if (res)
		return res;
	*content_type = str_of(codec->content_type);
	*headers = make_headers(arena, style, attributes, count);
	return RESULT_OK;
}
