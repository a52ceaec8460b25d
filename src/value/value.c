/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, comparing, copying and packing values.
 *
 * The types are msgpack-c's, and so is the packer; the walks are ours because the library's recurse. What must hold
 * is written in value.h: integers in int64 and typed by their sign, no FLOAT32, no EXT, string keys. The readers
 * establish it for outside bytes, the makers here for everything else, and the rest of the program relies on it.
 */
#include "value/value.h"

#include "value/walk.h"

msgpack_object value_nil(void)
{
	return (msgpack_object){.type = MSGPACK_OBJECT_NIL};
}

msgpack_object value_bool(bool v)
{
	return (msgpack_object){.type = MSGPACK_OBJECT_BOOLEAN, .via.boolean = v};
}

msgpack_object value_int(int64_t v)
{
	if (v < 0)
		return (msgpack_object){.type = MSGPACK_OBJECT_NEGATIVE_INTEGER, .via.i64 = v};
	return (msgpack_object){.type = MSGPACK_OBJECT_POSITIVE_INTEGER, .via.u64 = (uint64_t)v};
}

msgpack_object value_double(double v)
{
	return (msgpack_object){.type = MSGPACK_OBJECT_FLOAT64, .via.f64 = v};
}

msgpack_object value_text(struct str s)
{
	assert(s.len <= UINT32_MAX);
	return (msgpack_object){.type = MSGPACK_OBJECT_STR,
				.via.str = {.size = (uint32_t)s.len, .ptr = s.ptr ? s.ptr : ""}};
}

msgpack_object value_bytes(struct str s)
{
	assert(s.len <= UINT32_MAX);
	return (msgpack_object){.type = MSGPACK_OBJECT_BIN,
				.via.bin = {.size = (uint32_t)s.len, .ptr = s.ptr ? s.ptr : ""}};
}

msgpack_object value_array(struct arena *arena, uint32_t count)
{
	msgpack_object array = {.type = MSGPACK_OBJECT_ARRAY, .via.array = {.size = count}};

	if (count > 0)
		array.via.array.ptr = arena_alloc(arena, count * sizeof(msgpack_object));
	return array;
}

msgpack_object value_map(struct arena *arena, uint32_t count)
{
	msgpack_object map = {.type = MSGPACK_OBJECT_MAP, .via.map = {.size = count}};

	if (count > 0)
		map.via.map.ptr = arena_alloc(arena, count * sizeof(msgpack_object_kv));
	return map;
}

bool value_is_nil(const msgpack_object *value)
{
	return value->type == MSGPACK_OBJECT_NIL;
}

bool value_as_int(const msgpack_object *value, int64_t *out)
{
	if (value->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		*out = value->via.i64;
	else if (value->type == MSGPACK_OBJECT_POSITIVE_INTEGER && value->via.u64 <= INT64_MAX)
		*out = (int64_t)value->via.u64;
	else
		return false;
	return true;
}

struct str value_as_str(const msgpack_object *value)
{
	if (value->type == MSGPACK_OBJECT_STR)
		return str_make(value->via.str.ptr, value->via.str.size);
	if (value->type == MSGPACK_OBJECT_BIN)
		return str_make(value->via.bin.ptr, value->via.bin.size);
	return STR_NONE;
}

const msgpack_object *value_get(const msgpack_object *map, struct str key)
{
	if (!map || map->type != MSGPACK_OBJECT_MAP)
		return NULL;
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object_kv *member = &map->via.map.ptr[i];

		if (str_equal(value_as_str(&member->key), key))
			return &member->val;
	}
	return NULL;
}

/* The same but for what containers hold. */
static bool head_equal(const msgpack_object *a, const msgpack_object *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case MSGPACK_OBJECT_NIL:
		return true;
	case MSGPACK_OBJECT_BOOLEAN:
		return a->via.boolean == b->via.boolean;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		return a->via.u64 == b->via.u64;
	case MSGPACK_OBJECT_FLOAT64:
		/* By bits: a NaN is the same NaN, and 0.0 is not -0.0. */
		return memcmp(&a->via.f64, &b->via.f64, sizeof(double)) == 0;
	case MSGPACK_OBJECT_STR:
	case MSGPACK_OBJECT_BIN:
		return str_equal(value_as_str(a), value_as_str(b));
	case MSGPACK_OBJECT_ARRAY:
		return a->via.array.size == b->via.array.size;
	case MSGPACK_OBJECT_MAP:
		return a->via.map.size == b->via.map.size;
	default:
		assert(!"a type that values do not have");
		return false;
	}
}

bool value_equal(const msgpack_object *a, const msgpack_object *b)
{
	struct value_walk walk_a, walk_b;
	bool equal = true;

	value_walk_init(&walk_a, a);
	value_walk_init(&walk_b, b);
	/* As long as the heads are equal both walks are at the same place. */
	for (;;) {
		const msgpack_object *x = value_walk_next(&walk_a);
		const msgpack_object *y = value_walk_next(&walk_b);

		if (!x || !y)
			break;
		if (!head_equal(x, y)) {
			equal = false;
			break;
		}
	}
	value_walk_done(&walk_a);
	value_walk_done(&walk_b);
	return equal;
}

/* Gives the object, a bitwise copy of another, bytes or children of its own. */
static void object_own(struct arena *arena, msgpack_object *object)
{
	struct value_frame children = value_children(object);

	if (object->type == MSGPACK_OBJECT_STR) {
		object->via.str.ptr = arena_str(arena, value_as_str(object)).ptr;
	} else if (object->type == MSGPACK_OBJECT_BIN) {
		object->via.bin.ptr = arena_str(arena, value_as_str(object)).ptr;
	} else if (children.first) {
		void *copy = arena_memdup(arena, children.first,
					  (size_t)(children.end - children.first) *
						  sizeof(msgpack_object));

		if (children.is_map)
			object->via.map.ptr = copy;
		else
			object->via.array.ptr = copy;
	}
}

msgpack_object value_copy(struct arena *arena, const msgpack_object *value)
{
	msgpack_object copy = *value;
	struct value_walk walk;
	msgpack_object *object;

	/* The walk is over the copy: each object is made its own before the walk goes down into it. */
	value_walk_init(&walk, &copy);
	while ((object = value_walk_next(&walk)))
		object_own(arena, object);
	value_walk_done(&walk);
	return copy;
}

static size_t packed_integer_size(const msgpack_object *value)
{
	if (value->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
		int64_t v = value->via.i64;

		return v >= -32         ? 1
		       : v >= INT8_MIN  ? 2
		       : v >= INT16_MIN ? 3
		       : v >= INT32_MIN ? 5
					: 9;
	}
	uint64_t v = value->via.u64;

	return v < 128 ? 1 : v <= UINT8_MAX ? 2 : v <= UINT16_MAX ? 3 : v <= UINT32_MAX ? 5 : 9;
}

/* The bytes of one object without what a container holds. */
static size_t packed_size(const msgpack_object *value)
{
	uint32_t size;

	switch (value->type) {
	case MSGPACK_OBJECT_NIL:
	case MSGPACK_OBJECT_BOOLEAN:
		return 1;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		return packed_integer_size(value);
	case MSGPACK_OBJECT_FLOAT64:
		return 9;
	case MSGPACK_OBJECT_STR:
		size = value->via.str.size;
		return (size_t)size + (size < 32            ? 1
				       : size <= UINT8_MAX  ? 2
				       : size <= UINT16_MAX ? 3
							    : 5);
	case MSGPACK_OBJECT_BIN:
		size = value->via.bin.size;
		return (size_t)size + (size <= UINT8_MAX ? 2 : size <= UINT16_MAX ? 3 : 5);
	case MSGPACK_OBJECT_ARRAY:
		size = value->via.array.size;
		return size < 16 ? 1 : size <= UINT16_MAX ? 3 : 5;
	case MSGPACK_OBJECT_MAP:
		size = value->via.map.size;
		return size < 16 ? 1 : size <= UINT16_MAX ? 3 : 5;
	default:
		assert(!"a type that values do not have");
		return 0;
	}
}

size_t value_size(const msgpack_object *value)
{
	struct value_walk walk;
	const msgpack_object *object;
	size_t size = 0;

	value_walk_init(&walk, value);
	while ((object = value_walk_next(&walk)))
		size += packed_size(object);
	value_walk_done(&walk);
	return size;
}

static int pack_write(void *arg, const char *bytes, size_t len)
{
	buf_add(arg, bytes, len);
	return 0;
}

static void pack_object(msgpack_packer *packer, const msgpack_object *value)
{
	switch (value->type) {
	case MSGPACK_OBJECT_NIL:
		msgpack_pack_nil(packer);
		break;
	case MSGPACK_OBJECT_BOOLEAN:
		if (value->via.boolean)
			msgpack_pack_true(packer);
		else
			msgpack_pack_false(packer);
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		msgpack_pack_uint64(packer, value->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		msgpack_pack_int64(packer, value->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT64:
		msgpack_pack_double(packer, value->via.f64);
		break;
	case MSGPACK_OBJECT_STR:
		msgpack_pack_str(packer, value->via.str.size);
		msgpack_pack_str_body(packer, value->via.str.ptr, value->via.str.size);
		break;
	case MSGPACK_OBJECT_BIN:
		msgpack_pack_bin(packer, value->via.bin.size);
		msgpack_pack_bin_body(packer, value->via.bin.ptr, value->via.bin.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		msgpack_pack_array(packer, value->via.array.size);
		break;
	case MSGPACK_OBJECT_MAP:
		msgpack_pack_map(packer, value->via.map.size);
		break;
	default:
		assert(!"a type that values do not have");
	}
}

void value_pack(const msgpack_object *value, struct buf *out)
{
	msgpack_packer packer;
	struct value_walk walk;
	const msgpack_object *object;

	msgpack_packer_init(&packer, out, pack_write);
	value_walk_init(&walk, value);
	while ((object = value_walk_next(&walk)))
		pack_object(&packer, object);
	value_walk_done(&walk);
}
