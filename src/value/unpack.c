/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads MessagePack into an arena.
 *
 * On the path this stands in decode, for payloads, and in claim, for snapshots. msgpack-c's own reader is not used: it
 * recurses, stops at a fixed depth, and allocates what a container claims to hold before it has seen that the bytes
 * could hold it. Here:
 *
 *   - a stack of frames, one per open container, stands for the recursion;
 *   - every element takes at least one byte, so the elements that all open containers still owe may never outnumber
 *     the bytes left. Memory is thereby at most a small multiple of the input, whatever the input claims;
 *   - what a value cannot be (value.h) is refused here: keys that are no strings or come twice, EXT, integers beyond
 *     int64, strings that are not UTF-8. FLOAT32 becomes the double of the same value.
 */
#include "value/walk.h"

struct unpacker {
	const struct value_limits *limits;
	struct arena *arena;
	bool copy;
	const unsigned char *start;
	const unsigned char *at;
	const unsigned char *end;
	uint64_t owed;   /* elements that the open containers have yet to get */
	uint64_t values; /* elements and keys promised so far */
	struct value_walk stack;
	struct error *err;
};

static size_t bytes_left(const struct unpacker *u)
{
	return (size_t)(u->end - u->at);
}

static enum result malformed(struct unpacker *u, const char *what)
{
	return error_set(u->err, RESULT_REJECT, CODE_PARSE_MSGPACK, "byte %zu: %s",
			 (size_t)(u->at - u->start), what);
}

/* An unsigned number of `size` bytes, big-endian, which moves the reader on. */
static enum result read_number(struct unpacker *u, unsigned size, uint64_t *out)
{
	uint64_t v = 0;

	if (bytes_left(u) < size)
		return malformed(u, "the bytes end inside a value");
	for (unsigned i = 0; i < size; i++)
		v = v << 8 | u->at[i];
	u->at += size;
	*out = v;
	return RESULT_OK;
}

static enum result read_unsigned(struct unpacker *u, unsigned size, msgpack_object *out)
{
	uint64_t v = 0;
	enum result res = read_number(u, size, &v);

	if (res)
		return res;
	if (v > INT64_MAX)
		return error_set(u->err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "byte %zu: the integer does not fit 64 bits with a sign",
				 (size_t)(u->at - u->start));
	*out = value_int((int64_t)v);
	return RESULT_OK;
}

static enum result read_signed(struct unpacker *u, unsigned size, msgpack_object *out)
{
	uint64_t v = 0;
	enum result res = read_number(u, size, &v);

	if (res)
		return res;
	*out = value_int(size == 1   ? (int8_t)v
			 : size == 2 ? (int16_t)v
			 : size == 4 ? (int32_t)v
				     : (int64_t)v);
	return RESULT_OK;
}

static enum result read_float(struct unpacker *u, unsigned size, msgpack_object *out)
{
	uint64_t v = 0;
	enum result res = read_number(u, size, &v);

	if (res)
		return res;
	if (size == 4) {
		uint32_t bits = (uint32_t)v;
		float single;

		memcpy(&single, &bits, sizeof(single));
		*out = value_double(single);
	} else {
		double full;

		memcpy(&full, &v, sizeof(full));
		*out = value_double(full);
	}
	return RESULT_OK;
}

static enum result read_bytes(struct unpacker *u, uint64_t len, bool text, msgpack_object *out)
{
	struct str s;

	if (len > bytes_left(u))
		return malformed(u, "a string is longer than the bytes left");
	s = str_make(u->at, (size_t)len);
	if (text && !str_is_utf8(s))
		return malformed(u, "a string is not UTF-8");
	if (u->copy) {
		char *own = arena_try_alloc(u->arena, s.len + 1);

		if (!own)
			return error_set(u->err, RESULT_REJECT, CODE_PARSE_LIMIT,
					 "no memory for a string of %zu bytes", s.len);
		memcpy(own, s.ptr, s.len);
		own[s.len] = '\0';
		s.ptr = own;
	}
	u->at += len;
	*out = text ? value_text(s) : value_bytes(s);
	return RESULT_OK;
}

static enum result read_sized_bytes(struct unpacker *u, unsigned size, bool text,
				    msgpack_object *out)
{
	uint64_t len;
	enum result res = read_number(u, size, &len);

	return res ? res : read_bytes(u, len, text, out);
}

/* Makes the container with its elements still unset; the caller's loop fills them. */
static enum result open_container(struct unpacker *u, uint64_t count, bool map, msgpack_object *out)
{
	uint64_t elements = map ? 2 * count : count;
	void *run = NULL;

	if (u->stack.depth >= u->limits->max_depth)
		return error_set(u->err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "containers are nested over %u deep", u->limits->max_depth);
	if (u->owed + elements > bytes_left(u))
		return malformed(u, "a container claims more elements than there are bytes left");
	u->values += elements;
	if (u->values > u->limits->max_values)
		return error_set(u->err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "there are over %u values", u->limits->max_values);
	if (elements > 0) {
		run = arena_try_alloc(u->arena, elements * sizeof(msgpack_object));
		if (!run)
			return error_set(u->err, RESULT_REJECT, CODE_PARSE_LIMIT,
					 "no memory for a container of %llu elements",
					 (unsigned long long)elements);
	}
	u->owed += elements;
	if (map)
		*out = (msgpack_object){.type = MSGPACK_OBJECT_MAP,
					.via.map = {(uint32_t)count, run}};
	else
		*out = (msgpack_object){.type = MSGPACK_OBJECT_ARRAY,
					.via.array = {(uint32_t)count, run}};
	return RESULT_OK;
}

static enum result open_sized_container(struct unpacker *u, unsigned size, bool map,
					msgpack_object *out)
{
	uint64_t count;
	enum result res = read_number(u, size, &count);

	return res ? res : open_container(u, count, map, out);
}

/* One object by its first byte; of a container the head. */
static enum result read_object(struct unpacker *u, msgpack_object *out)
{
	unsigned char tag;

	if (u->at == u->end)
		return malformed(u, "the bytes end where a value should begin");
	tag = *u->at++;
	if (tag <= 0x7f || tag >= 0xe0) {
		*out = value_int((int8_t)tag);
		return RESULT_OK;
	}
	if (tag <= 0x8f)
		return open_container(u, tag & 0x0f, true, out);
	if (tag <= 0x9f)
		return open_container(u, tag & 0x0f, false, out);
	if (tag <= 0xbf)
		return read_bytes(u, tag & 0x1f, true, out);

	switch (tag) {
	case 0xc0:
		*out = value_nil();
		return RESULT_OK;
	case 0xc2:
	case 0xc3:
		*out = value_bool(tag == 0xc3);
		return RESULT_OK;
	case 0xc4: /* BIN 8, 16, 32 */
	case 0xc5:
	case 0xc6:
		return read_sized_bytes(u, 1u << (tag - 0xc4), false, out);
	case 0xca:
		return read_float(u, 4, out);
	case 0xcb:
		return read_float(u, 8, out);
	case 0xcc: /* unsigned 8 to 64 */
	case 0xcd:
	case 0xce:
	case 0xcf:
		return read_unsigned(u, 1u << (tag - 0xcc), out);
	case 0xd0: /* signed 8 to 64 */
	case 0xd1:
	case 0xd2:
	case 0xd3:
		return read_signed(u, 1u << (tag - 0xd0), out);
	case 0xd9: /* STR 8, 16, 32 */
	case 0xda:
	case 0xdb:
		return read_sized_bytes(u, 1u << (tag - 0xd9), true, out);
	case 0xdc:
	case 0xdd:
		return open_sized_container(u, tag == 0xdc ? 2 : 4, false, out);
	case 0xde:
	case 0xdf:
		return open_sized_container(u, tag == 0xde ? 2 : 4, true, out);
	case 0xc1:
		return malformed(u, "0xc1 begins no value");
	default:
		return malformed(u, "extension types are not taken");
	}
}

/* Leaves the containers that are complete. */
static enum result close_containers(struct unpacker *u)
{
	while (u->stack.depth > 0) {
		const struct value_frame *top = value_walk_top(&u->stack);
		struct str duplicate;

		if (top->next < top->end)
			break;
		if (top->is_map &&
		    !value_keys_unique((const msgpack_object_kv *)(const void *)top->first,
				       (uint32_t)((top->end - top->first) / 2), &duplicate))
			return value_duplicate_error(duplicate, u->err);
		u->stack.depth--;
	}
	return RESULT_OK;
}

static enum result read_tree(struct unpacker *u, msgpack_object *root)
{
	msgpack_object *slot = root;
	bool is_key = false;

	for (;;) {
		enum result res = read_object(u, slot);

		if (res)
			return res;
		if (is_key && slot->type != MSGPACK_OBJECT_STR)
			return malformed(u, "a key of a map is not a string");

		struct value_frame children = value_children(slot);

		if (children.first)
			value_walk_push(&u->stack, children);
		else
			res = close_containers(u);
		if (res)
			return res;
		if (u->stack.depth == 0)
			break;

		struct value_frame *top = value_walk_top(&u->stack);

		is_key = top->is_map && (top->next - top->first) % 2 == 0;
		slot = top->next++;
		u->owed--;
	}
	if (u->at != u->end)
		return malformed(u, "there are bytes behind the value");
	return RESULT_OK;
}

enum result value_unpack(struct arena *arena, struct str bytes, bool copy,
			 const struct value_limits *limits, msgpack_object *out, struct error *err)
{
	struct unpacker u = {.limits = limits, .arena = arena, .copy = copy, .err = err};
	msgpack_object root;
	enum result res;

	if (bytes.len > limits->max_bytes)
		return error_set(err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "%zu bytes are over the limit of %zu", bytes.len,
				 limits->max_bytes);
	u.start = u.at = (const unsigned char *)(bytes.ptr ? bytes.ptr : "");
	u.end = u.start + bytes.len;
	value_walk_init(&u.stack, NULL);
	res = read_tree(&u, &root);
	value_walk_done(&u.stack);
	if (!res)
		*out = root;
	return res;
}
