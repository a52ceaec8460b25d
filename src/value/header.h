/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Message headers as every transport gives and takes them: a list of names and values, in order.
 *
 * Kafka header values arrive as STR if they are UTF-8, else as BIN, and as nil if null; AMQP's keep their type. Of a
 * repeated header the last counts. Names compare without regard to ASCII case.
 * Life cycle: plain data in somebody's arena. Threads: pure functions.
 */
#ifndef SUTRA_VALUE_HEADER_H
#define SUTRA_VALUE_HEADER_H

#include "value/value.h"

struct header {
	struct str name;
	msgpack_object value;
};

struct header_list {
	struct header *items;
	size_t count;
};

/* The last header with this name, or NULL. */
const struct header *header_find(const struct header_list *headers, struct str name);
/* Its value as text: STR and BIN as they are, integers and booleans printed into the arena, else STR_NONE. */
struct str header_text(struct arena *arena, const struct header_list *headers, struct str name);
/* As a packed list of [name, value] pairs, and back (RESULT_REJECT if the bytes are not that). */
void headers_pack(const struct header_list *headers, struct buf *out);
enum result headers_unpack(struct arena *arena, struct str bytes, struct header_list *out,
			   struct error *err) MUST_CHECK;
struct header_list headers_copy(struct arena *arena, const struct header_list *headers);

#endif
