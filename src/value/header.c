/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header lists: looking up, copying, and the packed form in which the store keeps them.
 *
 * Packed, a list is an array of [name, value] arrays and not a map, since names may repeat. A name is packed as STR, or as BIN
 * when a broker let a name through that is not UTF-8, so that whatever arrived can be read back.
 */
#include "value/header.h"

#include <inttypes.h>

const struct header *header_find(const struct header_list *headers, struct str name)
{
	for (size_t i = headers->count; i > 0; i--)
		if (str_equal_nocase(headers->items[i - 1].name, name))
			return &headers->items[i - 1];
	return NULL;
}

struct str header_text(struct arena *arena, const struct header_list *headers, struct str name)
{
	const struct header *header = header_find(headers, name);
	int64_t number;

	if (!header)
		return STR_NONE;
	if (header->value.type == MSGPACK_OBJECT_BOOLEAN)
		return header->value.via.boolean ? STR("true") : STR("false");
	if (value_as_int(&header->value, &number))
		return str_of(arena_printf(arena, "%" PRId64, number));
	return value_as_str(&header->value);
}

void headers_pack(const struct header_list *headers, struct buf *out)
{
	msgpack_object_kv pair;
	/* Two objects side by side, seen as the array [name, value]. */
	msgpack_object entry = {.type = MSGPACK_OBJECT_ARRAY, .via.array = {2, &pair.key}};
	size_t count = headers->count;

	assert(count <= UINT32_MAX);
	if (count < 16) {
		buf_add_byte(out, (char)(0x90 | count));
	} else {
		buf_add_byte(out, (char)0xdd);
		buf_add_be32(out, (uint32_t)count);
	}
	for (size_t i = 0; i < count; i++) {
		struct str name = headers->items[i].name;

		pair.key = str_is_utf8(name) ? value_text(name) : value_bytes(name);
		pair.val = headers->items[i].value;
		value_pack(&entry, out);
	}
}

enum result headers_unpack(struct arena *arena, struct str bytes, struct header_list *out,
			   struct error *err)
{
	struct header_list headers = {NULL, 0};
	msgpack_object list;
	enum result res = value_unpack(arena, bytes, true, &VALUE_LIMITS_OWN, &list, err);

	if (res)
		return res;
	if (list.type != MSGPACK_OBJECT_ARRAY)
		return error_set(err, RESULT_REJECT, CODE_PARSE_MSGPACK,
				 "packed headers are not an array");
	headers.count = list.via.array.size;
	if (headers.count > 0)
		headers.items = arena_alloc(arena, headers.count * sizeof(*headers.items));
	for (size_t i = 0; i < headers.count; i++) {
		const msgpack_object *pair = &list.via.array.ptr[i];

		if (pair->type != MSGPACK_OBJECT_ARRAY || pair->via.array.size != 2 ||
		    !value_as_str(&pair->via.array.ptr[0]).ptr)
			return error_set(err, RESULT_REJECT, CODE_PARSE_MSGPACK,
					 "packed header %zu is not a name and a value", i);
		headers.items[i].name = value_as_str(&pair->via.array.ptr[0]);
		headers.items[i].value = pair->via.array.ptr[1];
	}
	*out = headers;
	return RESULT_OK;
}

struct header_list headers_copy(struct arena *arena, const struct header_list *headers)
{
	struct header_list copy = {NULL, headers->count};

	if (copy.count > 0)
		copy.items = arena_alloc(arena, copy.count * sizeof(*copy.items));
	for (size_t i = 0; i < copy.count; i++) {
		copy.items[i].name = arena_str(arena, headers->items[i].name);
		copy.items[i].value = value_copy(arena, &headers->items[i].value);
	}
	return copy;
}
