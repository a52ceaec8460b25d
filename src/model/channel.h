/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels: what a package says about where messages come from and go to (channels.conf).
 *
 * Life cycle: part of a deployment, immutable once that is built. Threads: read-only, any.
 * A channel is (tenant, name); the tenant is the deployment's.
 */
#ifndef SUTRA_MODEL_CHANNEL_H
#define SUTRA_MODEL_CHANNEL_H

#include "base/str.h"
#include "value/expression.h"

enum channel_direction { CHANNEL_INBOUND, CHANNEL_OUTBOUND };
enum channel_cloudevents {
	CHANNEL_CE_AUTO,
	CHANNEL_CE_NONE,
	CHANNEL_CE_BINARY,
	CHANNEL_CE_STRUCTURED
};
enum channel_unmatched { CHANNEL_UNMATCHED_DEAD_LETTER, CHANNEL_UNMATCHED_DROP };

struct channel {
	struct str name;
	enum channel_direction direction;
	struct str transport; /* "kafka", "amqp", "local" */
	struct str
		connection; /* name of a configured connection; the transport's own name by default */
	struct str bind;    /* kafka: topic; local: channel name; … */
	struct str group;   /* kafka consumer group; default sutra.<tenant>.<channel> */
	const struct expression *key; /* outbound kafka record key; NULL = the instance id */
	struct str codec;
	enum channel_cloudevents cloudevents;
	uint32_t max_in_flight;            /* 256 */
	struct str idempotency_key_header; /* absent = none */
	uint64_t payload_cap_bytes;        /* 0 = codec.max-payload-bytes */
	int64_t unmatched_hold_ms;         /* -1 = unmatched.hold of the engine */
	enum channel_unmatched unmatched_then;
	bool broadcast; /* every process that subscribes has the message */
	bool requeues; /* refused = "requeue": back to the broker instead of held */
	struct str
		dead_letter; /* outbound channel that also gets every dead letter; absent = none */
	struct str
		reply_channel; /* outbound channel for replies without an address; absent = none */
	const char *file;
	int line;
};

/* Equal in every setting (not file and line): two modules of a tenant may then share the name. */
bool channel_same_settings(const struct channel *a, const struct channel *b);
/* Both inbound, and would consume the same messages: one topic and group. Names and tenants do not matter. */
bool channel_same_origin(const struct channel *a, const struct channel *b);

#endif
