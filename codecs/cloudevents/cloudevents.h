/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CloudEvents 1.0 envelopes, binary and structured, over any transport's headers.
 *
 * Read: Kafka names are ce_<attribute>; AMQP 0-9-1 has no official binding, so cloudEvents_, cloudEvents:, ce- and ce_ are
 * tried in this order, case-sensitively, and the first complete set (id, source, type, specversion) wins. Structured
 * when the content type begins with application/cloudevents (any case).
 * Written: ce_ for Kafka, cloudEvents_ for AMQP; attribute order is fixed.
 * Life cycle: results sit in the arena or point into the input. Threads: pure functions.
 */
#ifndef SUTRA_CODECS_CLOUDEVENTS_H
#define SUTRA_CODECS_CLOUDEVENTS_H

#include "codecs/codec.h"

enum cloudevents_mode {
	CLOUDEVENTS_AUTO, /* read: binary or structured when present, else plain. Not for writing */
	CLOUDEVENTS_NONE,
	CLOUDEVENTS_BINARY,
	CLOUDEVENTS_STRUCTURED,
};

enum cloudevents_style { CLOUDEVENTS_STYLE_KAFKA, CLOUDEVENTS_STYLE_AMQP };

struct cloudevent {
	bool present; /* false: a plain message, nothing else is set but data */
	struct str id, source, type, subject, time, data_content_type, data_schema;
	/* Binary and plain: the body for the channel's codec. Structured: `data_base64` decoded, else absent. */
	struct str data;
	/* Structured with a JSON `data` member (or none, then nil): the value itself. */
	bool has_value;
	msgpack_object value;
};

/*
 * RESULT_REJECT with PARSE_CLOUDEVENT for an incomplete or malformed envelope when the mode demands one or, in AUTO, when
 * a specversion is there; or with the JSON codec's codes for a structured body that is not JSON.
 */
enum result cloudevents_read(struct arena *arena, enum cloudevents_mode mode, enum cloudevents_style style,
			     const struct header_list *headers, struct str content_type, struct str body,
			     const struct value_limits *limits, struct cloudevent *out,
			     struct error *err) MUST_CHECK;

/*
 * Makes body, content type and extra headers of an outgoing event. `data` is the value; `codec` writes it (structured:
 * JSON data inline for the json codec, data_base64 else). BINARY or STRUCTURED only. `event` gives id, source, type, time,
 * subject. `headers` receives a list in the arena to be put before the message's own.
 */
enum result cloudevents_write(struct arena *arena, enum cloudevents_mode mode, enum cloudevents_style style,
			      const struct cloudevent *event, const msgpack_object *data,
			      const struct codec *codec, struct buf *body, struct str *content_type,
			      struct header_list *headers, struct error *err) MUST_CHECK;

#endif
