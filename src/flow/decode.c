/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage decode: the first thing that a delivery meets on its arrival lane. Bytes become a value, envelopes are opened, and
 * everything that later stages ask of a message (type, event id, reply address, trace context) is worked out once.
 *
 * The result lives in the message's arena, not in the turn's, because it travels: to the owner lane with a handoff, and
 * through every hold, so a message that is refused a hundred times is decoded once. Nothing in it points into the view, which
 * may change, and end, while the message is held.
 *
 * Whatever is wrong with the bytes is a rejection with its own code, never an error of the process: the caller
 * dead-letters the message (G9) and goes on.
 */
#include "flow/decode.h"

#include "base/time.h"
#include "codecs/cloudevents/cloudevents.h"

static struct str header_str(struct message *message, struct str name)
{
	return header_text(&message->arena, &message->headers, name);
}

/* W3C: version-traceid-parentid-flags, lower-case hex, 55 characters for version 00. Malformed ones are ignored. */
static bool traceparent_is_valid(struct str text)
{
	if (text.len != 55)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.ptr[i];
		bool dash = i == 2 || i == 35 || i == 52;

		if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return true;
}

static void decode_trace(struct message *message, struct event *event)
{
	struct str parent = header_str(message, STR("traceparent"));

	if (!traceparent_is_valid(parent))
		return;
	event->traceparent = parent;
	event->tracestate = header_str(message, STR("tracestate"));
}

static struct str decode_event_id(struct message *message, const struct channel *channel,
				  const struct cloudevent *ce)
{
	struct str id = STR_NONE;

	if (channel->idempotency_key_header.len)
		id = header_str(message, channel->idempotency_key_header);
	if (!id.len && ce->present && ce->id.len)
		id = str_of(arena_printf(&message->arena, "%.*s %.*s", STR_ARG(ce->source), STR_ARG(ce->id)));
	if (!id.len)
		id = message->message_id;
	if (!id.len)
		id = header_str(message, STR("sutra-outbox-key"));
	return id.len ? id : message->identity;
}

static struct str decode_type(struct message *message, const struct cloudevent *ce)
{
	struct str type = ce->present ? ce->type : STR_NONE;

	if (!type.len)
		type = message->type;
	return type.len ? type : header_str(message, STR("message-type"));
}

static enum result decode_payload(struct message *message, const struct channel *channel,
				  const struct value_limits *limits, const struct cloudevent *ce,
				  msgpack_object *out, struct error *err)
{
	const struct codec *codec = codec_find(channel->codec);

	if (ce->has_value) {
		*out = ce->value;
		return RESULT_OK;
	}
	return codec->decode(&message->arena, ce->data, limits, out, err);
}

static enum cloudevents_mode decode_mode(const struct channel *channel)
{
	switch (channel->cloudevents) {
	case CHANNEL_CE_NONE:
		return CLOUDEVENTS_NONE;
	case CHANNEL_CE_BINARY:
		return CLOUDEVENTS_BINARY;
	case CHANNEL_CE_STRUCTURED:
		return CLOUDEVENTS_STRUCTURED;
	case CHANNEL_CE_AUTO:
		break;
	}
	return CLOUDEVENTS_AUTO;
}

static enum result decode_bounds(const struct message *message, const struct decode_settings *settings,
				 const struct value_limits *limits, struct error *err)
{
	if (message->body.len > limits->max_bytes)
		return error_set(err, RESULT_REJECT, CODE_INBOUND_PAYLOAD_TOO_LARGE,
				 "the payload of %zu bytes is over the cap of %zu", message->body.len,
				 limits->max_bytes);
	if (message->headers.count > settings->max_headers)
		return error_set(err, RESULT_REJECT, CODE_INBOUND_HEADER_LIMIT,
				 "%zu headers are over codec.max-headers %u", message->headers.count,
				 settings->max_headers);
	return RESULT_OK;
}

enum result decode_message(struct message *message, const struct route *route, const struct decode_settings *settings,
			   struct decoded **out, struct error *err)
{
	const struct channel *channel = route->channel;
	bool kafka = str_equal(channel->transport, STR("kafka")) || str_equal(channel->transport, STR("local"));
	struct value_limits limits = settings->limits;
	struct cloudevent ce = {0};
	struct decoded *decoded;
	enum result result;

	if (channel->payload_cap_bytes)
		limits.max_bytes = channel->payload_cap_bytes;
	result = decode_bounds(message, settings, &limits, err);
	if (result != RESULT_OK)
		return result;
	result = cloudevents_read(&message->arena, decode_mode(channel),
				  kafka ? CLOUDEVENTS_STYLE_KAFKA : CLOUDEVENTS_STYLE_AMQP, &message->headers,
				  message->content_type, message->body, &limits, &ce, err);
	if (result != RESULT_OK)
		return result;

	decoded = arena_zalloc(&message->arena, sizeof(*decoded));
	result = decode_payload(message, channel, &limits, &ce, &decoded->event.payload, err);
	if (result != RESULT_OK)
		return result;
	decoded->event.headers = &message->headers;
	decoded->event.id = decode_event_id(message, channel, &ce);
	decoded->event.type = decode_type(message, &ce);
	decoded->event.channel = arena_str(&message->arena, channel->name);
	decoded->event.key = message->key;
	decoded->event.time_us = message->time_us;
	if (ce.present && !time_parse(ce.time, &decoded->event.time_us))
		decoded->event.time_us = message->time_us;
	decoded->event.reply = (struct reply_address){
		.channel = decoded->event.channel,
		.connection = arena_str(&message->arena, channel->connection),
		.transport = arena_str(&message->arena, channel->transport),
		.destination = message->reply_destination,
		.correlation = message->reply_correlation,
	};
	decode_trace(message, &decoded->event);
	*out = decoded;
	return RESULT_OK;
}
