/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a Kafka record to a message. Everything is copied: a record that stays alive would keep the whole fetch response that
 * it came in, and a message may be held for minutes.
 */
#include <inttypes.h>

#include "base/time.h"
#include "transports/kafka/kafka.h"

static msgpack_object header_value(struct arena *arena, struct str value)
{
	struct str copy;

	if (!value.ptr)
		return value_nil();
	copy = arena_str(arena, value);
	return str_is_utf8(copy) ? value_text(copy) : value_bytes(copy);
}

static void message_headers(struct message *message, const struct kafka_record *record)
{
	struct header *items = arena_alloc(&message->arena, record->header_count * sizeof(*items) + 1);

	for (size_t i = 0; i < record->header_count; i++) {
		items[i].name = arena_str(&message->arena, record->header_names[i]);
		items[i].value = header_value(&message->arena, record->header_values[i]);
		message->bytes += record->header_names[i].len + record->header_values[i].len;
	}
	message->headers = (struct header_list){items, record->header_count};
}

static const struct header *header_either(const struct header_list *headers, struct str one, struct str other)
{
	const struct header *header = header_find(headers, one);

	return header ? header : header_find(headers, other);
}

static void message_reply_address(struct message *message)
{
	const struct header *topic = header_either(&message->headers, STR("reply-topic"), STR("kafka_replyTopic"));
	const struct header *id =
		header_either(&message->headers, STR("correlation-id"), STR("kafka_correlationId"));
	struct str destination = topic ? value_as_str(&topic->value) : STR_NONE;

	if (!destination.len)
		return;
	message->reply_destination = destination;
	if (id)
		message->reply_correlation = id->value;
}

/* The partition stands before the key: an order holds within one partition only, and equal keys may sit in two of them when
 * the number of partitions was changed. A record without a key has no order; an empty key is a key. */
static void message_keys(struct message *message, const struct kafka_record *record)
{
	uint32_t partition = (uint32_t)record->partition;
	unsigned char *bytes;

	if (!record->key.ptr)
		return;
	bytes = arena_alloc(&message->arena, 4 + record->key.len + 1);
	for (int i = 0; i < 4; i++)
		bytes[i] = (unsigned char)(partition >> (24 - 8 * i));
	memcpy(bytes + 4, record->key.ptr, record->key.len);
	bytes[4 + record->key.len] = 0;
	message->order_key = str_make(bytes, 4 + record->key.len);
	message->key = str_make(bytes + 4, record->key.len);
}

struct message *kafka_message_of(const struct kafka_record *record)
{
	struct message *message = message_new();
	struct arena *arena = &message->arena;
	const struct header *content_type;
	char *identity = arena_printf(arena, "kafka:%.*s/%" PRId32 "/%" PRId64 "/%" PRId64, STR_ARG(record->topic),
				      record->partition, record->offset, record->timestamp_ms);

	message->identity = str_of(identity);
	/* The same without the timestamp, for people. */
	message->source = str_make(identity, (size_t)(strrchr(identity, '/') - identity));
	message->bytes = record->key.len + record->value.len;
	message_keys(message, record);
	message_headers(message, record);
	content_type = header_find(&message->headers, STR("content-type"));
	if (content_type)
		message->content_type = value_as_str(&content_type->value);
	message_reply_address(message);
	message->body = arena_str(arena, record->value);
	if (record->timestamp_ms >= 0)
		message->time_us = record->timestamp_ms * US_PER_MS;
	message->token = (uint64_t)record->offset;
	return message;
}
