/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of each channel: METHOD, and for deliveries and returns then HEADER and BODY until the body is whole.
 */
#include "transports/amqp/frames.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "transports/amqp/table.h"

/* A body buffer that a large message has blown up beyond this is not kept. */
#define BODY_KEEP (1 << 20)

enum frames_state { FRAMES_METHOD, FRAMES_HEADER, FRAMES_BODY };

struct frames_channel {
	enum frames_state state;
	struct rabbit_event event; /* the message on its way */
	struct arena arena;
	struct buf body;
	uint64_t body_size;
};

void frames_init(struct frames *frames)
{
	*frames = (struct frames){NULL, 0};
}

void frames_done(struct frames *frames)
{
	for (size_t i = 0; i < frames->count; i++) {
		struct frames_channel *channel = frames->channels[i];

		if (!channel)
			continue;
		arena_done(&channel->arena);
		buf_done(&channel->body);
		free(channel);
	}
	free(frames->channels);
	frames_init(frames);
}

static struct frames_channel *channel_of(struct frames *frames, uint16_t number)
{
	if (number >= frames->count) {
		size_t count = (size_t)number + 1;

		frames->channels = mem_array(frames->channels, count, sizeof(*frames->channels));
		memset(&frames->channels[frames->count], 0,
		       (count - frames->count) * sizeof(*frames->channels));
		frames->count = count;
	}
	if (!frames->channels[number]) {
		frames->channels[number] = mem_zalloc(sizeof(*frames->channels[number]));
		arena_init(&frames->channels[number]->arena);
	}
	return frames->channels[number];
}

static void text_set(struct rabbit_event *event, amqp_bytes_t bytes)
{
	snprintf(event->text, sizeof(event->text), "%.*s", STR_ARG(rabbit_str(bytes)));
}

/* --- messages --- */

static enum frames_result message_begin(struct frames_channel *channel, const struct rabbit_event *event)
{
	arena_reset(&channel->arena);
	if (channel->body.cap > BODY_KEEP)
		buf_done(&channel->body);
	buf_reset(&channel->body);
	channel->event = *event;
	channel->state = FRAMES_HEADER;
	return FRAMES_NOTHING;
}

static struct str property(struct arena *arena, const amqp_basic_properties_t *from, amqp_flags_t flag,
			   amqp_bytes_t value)
{
	return from->_flags & flag ? arena_str(arena, rabbit_str(value)) : STR_NONE;
}

static void message_properties(struct frames_channel *channel, const amqp_basic_properties_t *from)
{
	struct arena *arena = &channel->arena;
	struct rabbit_properties *to = &channel->event.properties;

	*to = (struct rabbit_properties){
		.content_type = property(arena, from, AMQP_BASIC_CONTENT_TYPE_FLAG, from->content_type),
		.correlation_id = property(arena, from, AMQP_BASIC_CORRELATION_ID_FLAG, from->correlation_id),
		.reply_to = property(arena, from, AMQP_BASIC_REPLY_TO_FLAG, from->reply_to),
		.message_id = property(arena, from, AMQP_BASIC_MESSAGE_ID_FLAG, from->message_id),
		.type = property(arena, from, AMQP_BASIC_TYPE_FLAG, from->type),
	};
	/* Seconds; what cannot be one in microseconds is none. */
	if (from->_flags & AMQP_BASIC_TIMESTAMP_FLAG && from->timestamp < INT64_MAX / 1000000)
		to->timestamp_s = (int64_t)from->timestamp;
	if (from->_flags & AMQP_BASIC_HEADERS_FLAG)
		to->headers = table_read(arena, &from->headers);
}

static enum frames_result message_end(struct frames_channel *channel, struct rabbit_event *event)
{
	if (channel->body.len < channel->body_size)
		return FRAMES_NOTHING;
	channel->state = FRAMES_METHOD;
	channel->event.body = channel->body.len ? buf_str(&channel->body) : STR("");
	*event = channel->event;
	return FRAMES_EVENT;
}

static enum frames_result broken(struct rabbit_event *event, const char *what, const amqp_frame_t *frame)
{
	event->kind = RABBIT_EVENT_LOST;
	snprintf(event->text, sizeof(event->text), "the broker sent %s on channel %u", what, frame->channel);
	return FRAMES_BROKEN;
}

static enum frames_result take_header(struct frames_channel *channel, const amqp_frame_t *frame,
				      struct rabbit_event *event)
{
	if (channel->state != FRAMES_HEADER)
		return broken(event, "a header without its method", frame);
	if (frame->payload.properties.class_id != AMQP_BASIC_CLASS)
		return broken(event, "a header of a strange class", frame);
	message_properties(channel, frame->payload.properties.decoded);
	channel->body_size = frame->payload.properties.body_size;
	channel->state = FRAMES_BODY;
	return message_end(channel, event);
}

static enum frames_result take_body(struct frames_channel *channel, const amqp_frame_t *frame,
				    struct rabbit_event *event)
{
	struct str part = rabbit_str(frame->payload.body_fragment);

	if (channel->state != FRAMES_BODY)
		return broken(event, "a body without its header", frame);
	if (part.len > channel->body_size - channel->body.len)
		return broken(event, "a body longer than announced", frame);
	buf_add_str(&channel->body, part);
	return message_end(channel, event);
}

/* --- methods --- */

static enum frames_result answer(struct rabbit_event *event, enum rabbit_event_kind kind)
{
	event->kind = kind;
	return FRAMES_EVENT;
}

static enum frames_result take_deliver(struct frames_channel *channel, const amqp_basic_deliver_t *method,
				       struct rabbit_event *event)
{
	event->kind = RABBIT_EVENT_DELIVERED;
	event->tag = method->delivery_tag;
	event->redelivered = method->redelivered;
	return message_begin(channel, event);
}

static enum frames_result take_return(struct frames_channel *channel, const amqp_basic_return_t *method,
				      struct rabbit_event *event)
{
	event->kind = RABBIT_EVENT_RETURNED;
	event->code = method->reply_code;
	text_set(event, method->reply_text);
	return message_begin(channel, event);
}

static enum frames_result take_channel_close(const amqp_channel_close_t *method, struct rabbit_event *event)
{
	event->code = method->reply_code;
	text_set(event, method->reply_text);
	return answer(event, RABBIT_EVENT_FAILED);
}

static enum frames_result take_connection_close(const amqp_connection_close_t *method, struct rabbit_event *event)
{
	event->code = method->reply_code;
	text_set(event, method->reply_text);
	return answer(event, RABBIT_EVENT_LOST);
}

static enum frames_result take_confirm(struct rabbit_event *event, enum rabbit_event_kind kind, uint64_t tag,
				       bool multiple)
{
	event->tag = tag;
	event->multiple = multiple;
	return answer(event, kind);
}

static enum frames_result take_method(struct frames_channel *channel, const amqp_method_t *method,
				      struct rabbit_event *event)
{
	const amqp_basic_ack_t *ack = method->decoded;
	const amqp_basic_nack_t *nack = method->decoded;
	const amqp_connection_blocked_t *blocked = method->decoded;

	switch (method->id) {
	case AMQP_BASIC_DELIVER_METHOD:
		return take_deliver(channel, method->decoded, event);
	case AMQP_BASIC_RETURN_METHOD:
		return take_return(channel, method->decoded, event);
	case AMQP_BASIC_ACK_METHOD:
		return take_confirm(event, RABBIT_EVENT_ACK, ack->delivery_tag, ack->multiple);
	case AMQP_BASIC_NACK_METHOD:
		return take_confirm(event, RABBIT_EVENT_NACK, nack->delivery_tag, nack->multiple);
	case AMQP_BASIC_CANCEL_METHOD:
		return answer(event, RABBIT_EVENT_CANCELLED);
	case AMQP_BASIC_CANCEL_OK_METHOD:
		return answer(event, RABBIT_EVENT_STOPPED);
	case AMQP_BASIC_CONSUME_OK_METHOD:
		return answer(event, RABBIT_EVENT_CONSUMING);
	case AMQP_BASIC_QOS_OK_METHOD:
		return answer(event, RABBIT_EVENT_QOS);
	case AMQP_CONFIRM_SELECT_OK_METHOD:
		return answer(event, RABBIT_EVENT_CONFIRMING);
	case AMQP_CHANNEL_OPEN_OK_METHOD:
		return answer(event, RABBIT_EVENT_OPENED);
	case AMQP_CHANNEL_CLOSE_OK_METHOD:
		return answer(event, RABBIT_EVENT_CLOSED);
	case AMQP_CHANNEL_CLOSE_METHOD:
		return take_channel_close(method->decoded, event);
	case AMQP_CONNECTION_CLOSE_METHOD:
		return take_connection_close(method->decoded, event);
	case AMQP_CONNECTION_BLOCKED_METHOD:
		text_set(event, blocked->reason);
		return answer(event, RABBIT_EVENT_BLOCKED);
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		return answer(event, RABBIT_EVENT_UNBLOCKED);
	default: /* channel.flow, update-secret-ok, …: nothing that we asked for */
		return FRAMES_NOTHING;
	}
}

enum frames_result frames_take(struct frames *frames, const amqp_frame_t *frame, struct rabbit_event *event)
{
	struct frames_channel *channel = channel_of(frames, frame->channel);

	memset(event, 0, sizeof(*event));
	event->channel = frame->channel;
	switch (frame->frame_type) {
	case AMQP_FRAME_METHOD:
		/* The broker closes a channel also in the middle of a message. */
		if (channel->state != FRAMES_METHOD && frame->payload.method.id != AMQP_CHANNEL_CLOSE_METHOD)
			return broken(event, "a method inside a message", frame);
		channel->state = FRAMES_METHOD;
		return take_method(channel, &frame->payload.method, event);
	case AMQP_FRAME_HEADER:
		return take_header(channel, frame, event);
	case AMQP_FRAME_BODY:
		return take_body(channel, frame, event);
	default: /* heartbeats surface after a send that had to read */
		return FRAMES_NOTHING;
	}
}
