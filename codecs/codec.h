/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs: bytes to values and back. The contract of codecs/<name>/; the list is codecs/registry.c.
 *
 * Life cycle: constant tables. Threads: pure functions, any thread; they open nothing and never block.
 */
#ifndef SUTRA_CODECS_CODEC_H
#define SUTRA_CODECS_CODEC_H

#include "value/header.h"
#include "value/value.h"

struct codec {
	const char *name;	  /* as in channels.conf: "json" */
	const char *content_type; /* what it writes: "application/json" */
	/*
	 * Reads the whole of `bytes`. An absent slice (NULL pointer, a Kafka null) is the nil value with every codec; an
	 * empty body is a parse error for json and msgpack, an empty string for text, empty bytes for bytes.
	 * `bytes` outlives the arena's use of it: the value may point into it.
	 * RESULT_REJECT with PARSE_* or INBOUND_PAYLOAD_TOO_LARGE; `*out` untouched.
	 */
	enum result (*decode)(struct arena *arena, struct str bytes, const struct value_limits *limits,
			      msgpack_object *out, struct error *err);
	/*
	 * Appends the bytes of `value`. RESULT_REJECT with OUTBOUND_ENCODE_FAILED when the codec has no form for it (a map
	 * for text, NaN for json); `out` may then hold a part.
	 */
	enum result (*encode)(const msgpack_object *value, struct buf *out, struct error *err);
};

/* NULL if there is none of this name. */
const struct codec *codec_find(struct str name);
/* NULL behind the last. */
const struct codec *codec_at(size_t index);

#endif
