/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a delivery to a message, and from a publication to properties.
 *
 * AMQP has no identity that survives a redelivery: the delivery tag counts anew on every channel. So a message has none; what
 * recognises it is the message-id that its sender gives it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/time.h"
#include "transports/amqp/amqp.h"

/* Short strings of the protocol: names and most properties. */
#define SHORT_MAX 255
/* All headers together: the header frame must fit the frame size agreed on, 128 KiB. */
#define HEADERS_MAX 120000

/* --- in --- */

static size_t headers_bytes(const struct header_list *headers)
{
	size_t bytes = 0;

	for (size_t i = 0; i < headers->count; i++)
		bytes += headers->items[i].name.len + value_size(&headers->items[i].value);
	return bytes;
}

static msgpack_object text_or_bytes(struct str text)
{
	return str_is_utf8(text) ? value_text(text) : value_bytes(text);
}

struct message *amqp_message_of(const struct rabbit_event *event, const char *queue)
{
	const struct rabbit_properties *from = &event->properties;
	struct message *message = message_new();
	struct arena *arena = &message->arena;

	message->source = str_of(arena_printf(arena, "amqp:%s/%" PRIu64, queue, event->tag));
	message->headers = headers_copy(arena, &from->headers);
	message->content_type = arena_str(arena, from->content_type);
	message->type = arena_str(arena, from->type);
	message->message_id = arena_str(arena, from->message_id);
	message->body = arena_str(arena, event->body);
	message->time_us = from->timestamp_s * US_PER_S;
	/* The name of a queue, reached through the default exchange; it may hold slashes of its own. */
	if (from->reply_to.len)
		message->reply_destination = str_of(arena_printf(arena, "/%.*s", STR_ARG(from->reply_to)));
	if (from->correlation_id.ptr)
		message->reply_correlation = text_or_bytes(arena_str(arena, from->correlation_id));
	message->orders_by_instance = true;
	message->redelivered = event->redelivered;
	message->token = event->tag;
	message->bytes = event->body.len + headers_bytes(&from->headers);
	return message;
}

/* --- out --- */

/* Bytes in a table, never too few; SIZE_MAX if a key is too long for one. */
static size_t value_bytes_out(const msgpack_object *value)
{
	size_t bytes = 9;

	if (value->type == MSGPACK_OBJECT_STR || value->type == MSGPACK_OBJECT_BIN)
		return bytes + value_as_str(value).len;
	if (value->type == MSGPACK_OBJECT_ARRAY)
		for (uint32_t i = 0; i < value->via.array.size && bytes <= HEADERS_MAX; i++) {
			size_t item = value_bytes_out(&value->via.array.ptr[i]);

			bytes = item == SIZE_MAX ? SIZE_MAX : bytes + item;
		}
	if (value->type == MSGPACK_OBJECT_MAP)
		for (uint32_t i = 0; i < value->via.map.size && bytes <= HEADERS_MAX; i++) {
			struct str key = value_as_str(&value->via.map.ptr[i].key);
			size_t item = key.len > SHORT_MAX ? SIZE_MAX : value_bytes_out(&value->via.map.ptr[i].val);

			bytes = item == SIZE_MAX ? SIZE_MAX : bytes + 1 + key.len + item;
		}
	return bytes;
}

static bool headers_fit(const struct header_list *headers, char *text, size_t text_size)
{
	size_t total = 0;

	for (size_t i = 0; i < headers->count; i++) {
		size_t bytes = value_bytes_out(&headers->items[i].value);

		if (headers->items[i].name.len > SHORT_MAX || bytes == SIZE_MAX) {
			snprintf(text, text_size, "a name in header %zu is longer than AMQP's 255 bytes", i);
			return false;
		}
		total += 1 + headers->items[i].name.len + bytes;
		if (total > HEADERS_MAX) {
			snprintf(text, text_size, "the headers are larger than an AMQP frame");
			return false;
		}
	}
	return true;
}

static bool property_fits(const char *name, struct str value, char *text, size_t text_size)
{
	if (value.len <= SHORT_MAX)
		return true;
	snprintf(text, text_size, "%s is longer than AMQP's 255 bytes", name);
	return false;
}

static struct str correlation_text(struct arena *arena, const msgpack_object *value)
{
	int64_t number;
	struct buf text = BUF_INIT;
	struct str out;

	if (value_is_nil(value))
		return STR_NONE;
	if (value->type == MSGPACK_OBJECT_STR || value->type == MSGPACK_OBJECT_BIN)
		return arena_str(arena, value_as_str(value));
	if (value_as_int(value, &number))
		return str_of(arena_printf(arena, "%" PRId64, number));
	value_print(value, SHORT_MAX, &text);
	out = arena_str(arena, buf_str(&text));
	buf_done(&text);
	return out;
}

static struct str some(struct str text)
{
	return text.len ? text : STR_NONE;
}

bool amqp_properties_of(struct arena *arena, const struct publication *pub, struct rabbit_properties *out, char *text,
			size_t text_size)
{
	size_t count = pub->headers.count;
	struct header *items = arena_alloc(arena, (count + 1) * sizeof(*items));

	if (count)
		memcpy(items, pub->headers.items, count * sizeof(*items));
	if (pub->message_id.len)
		items[count++] = (struct header){STR("sutra-outbox-key"), value_text(pub->message_id)};
	*out = (struct rabbit_properties){
		.content_type = some(pub->content_type),
		.correlation_id = some(correlation_text(arena, &pub->correlation)),
		.message_id = some(pub->message_id),
		.type = some(pub->type),
		.headers = {items, count},
	};
	return property_fits("content-type", out->content_type, text, text_size) &&
	       property_fits("correlation-id", out->correlation_id, text, text_size) &&
	       property_fits("message-id", out->message_id, text, text_size) &&
	       property_fits("type", out->type, text, text_size) &&
	       headers_fit(&out->headers, text, text_size);
}

void amqp_destination_split(struct str destination, struct str *exchange, struct str *routing_key)
{
	ptrdiff_t slash = str_find(destination, '/');

	*exchange = str_make(destination.ptr, slash > 0 ? (size_t)slash : 0);
	*routing_key = str_make(destination.ptr + slash + 1, destination.len - (size_t)(slash + 1));
}
