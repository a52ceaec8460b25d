/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way out: what an evaluation gives back, copied into the arena of the call.
 *
 * A view is copied as it is. A table becomes a list if its keys are 1..n, a map in byte order of the keys if they are
 * strings, and is refused otherwise. Depth is bounded, which also ends cycles; shared tables are copied once for every
 * place they stand in, so each copy counts against the bounds of the evaluation. Nothing here jumps: it also runs
 * outside of Lua's protection, on a value that is already safe from collection.
 */
#include "value/lua_internal.h"

struct result_copy {
	lua_State *lua;
	struct expression_state *state;
	const char *problem;
};

static bool copy_value(struct result_copy *copy, int index, uint32_t depth, msgpack_object *out);

static bool copy_fails(struct result_copy *copy, const char *problem)
{
	copy->problem = problem;
	return false;
}

static bool copy_spend(struct result_copy *copy, uint64_t steps, size_t bytes)
{
	if (lua_limits_spend(copy->state, steps) && lua_limits_spend_bytes(copy->state, bytes))
		return true;
	return copy_fails(copy, "over a limit");
}

static bool copy_enter(struct result_copy *copy, uint32_t depth)
{
	return depth < EXPRESSION_MAX_DEPTH ||
	       copy_fails(copy, "a value nested deeper than 128, or in itself");
}

static bool copy_bytes(struct result_copy *copy, struct str *text)
{
	if (!copy_spend(copy, 0, text->len))
		return false;
	*text = arena_str(copy->state->arena, *text);
	return true;
}

static bool copy_view(struct result_copy *copy, const msgpack_object *value, uint32_t depth,
		      msgpack_object *out)
{
	struct arena *arena = copy->state->arena;
	msgpack_object made = *value;
	struct str text;
	uint32_t i;

	switch (value->type) {
	case MSGPACK_OBJECT_STR:
	case MSGPACK_OBJECT_BIN:
		text = value_as_str(value);
		if (!copy_bytes(copy, &text))
			return false;
		made = value->type == MSGPACK_OBJECT_STR ? value_text(text) : value_bytes(text);
		break;
	case MSGPACK_OBJECT_ARRAY:
		i = value->via.array.size;
		if (!copy_enter(copy, depth) ||
		    !copy_spend(copy, i / 8, i * sizeof(msgpack_object)))
			return false;
		made = value_array(arena, i);
		for (i = 0; i < value->via.array.size; i++)
			if (!copy_view(copy, &value->via.array.ptr[i], depth + 1,
				       &made.via.array.ptr[i]))
				return false;
		break;
	case MSGPACK_OBJECT_MAP:
		i = value->via.map.size;
		if (!copy_enter(copy, depth) ||
		    !copy_spend(copy, i / 8, i * sizeof(msgpack_object_kv)))
			return false;
		made = value_map(arena, i);
		for (i = 0; i < value->via.map.size; i++)
			if (!copy_view(copy, &value->via.map.ptr[i].key, depth + 1,
				       &made.via.map.ptr[i].key) ||
			    !copy_view(copy, &value->via.map.ptr[i].val, depth + 1,
				       &made.via.map.ptr[i].val))
				return false;
		break;
	default:
		break;
	}
	*out = made;
	return true;
}

static bool copy_string(struct result_copy *copy, int index, msgpack_object *out)
{
	size_t len;
	const char *ptr = lua_tolstring(copy->lua, index, &len);
	struct str text = str_make(ptr, len);
	bool binary;

	if (len > UINT32_MAX)
		return copy_fails(copy, "a text longer than 4 GiB");
	binary = (copy->state->binaries.count > 0 && map_get(&copy->state->binaries, text)) ||
		 !str_is_utf8(text);
	if (!copy_bytes(copy, &text))
		return false;
	*out = binary ? value_bytes(text) : value_text(text);
	return true;
}

/* What keys a table has. */
struct table_shape {
	uint32_t numbers; /* integer keys */
	uint32_t strings;
	lua_Integer lowest, highest;
};

static bool table_shape(struct result_copy *copy, int index, struct table_shape *shape)
{
	lua_State *L = copy->lua;

	*shape = (struct table_shape){0, 0, LUA_MAXINTEGER, 0};
	lua_pushnil(L);
	while (lua_next(L, index)) {
		lua_pop(L, 1);
		if (!lua_limits_spend(copy->state, 1))
			return copy_fails(copy, "over a limit");
		if (lua_type(L, -1) == LUA_TSTRING) {
			shape->strings++;
		} else if (lua_isinteger(L, -1)) {
			lua_Integer key = lua_tointeger(L, -1);

			shape->numbers++;
			if (key < shape->lowest)
				shape->lowest = key;
			if (key > shape->highest)
				shape->highest = key;
		} else {
			return copy_fails(copy,
					  "a table with a key that is neither string nor integer");
		}
	}
	if (shape->strings && shape->numbers)
		return copy_fails(copy, "a table with both string and integer keys");
	if (shape->numbers && (shape->lowest != 1 || shape->highest != shape->numbers))
		return copy_fails(copy, "a list with holes; use null to keep a place");
	return true;
}

static bool copy_list(struct result_copy *copy, int index, uint32_t count, uint32_t depth,
		      msgpack_object *out)
{
	lua_State *L = copy->lua;
	msgpack_object made;

	if (!copy_spend(copy, 0, count * sizeof(msgpack_object)))
		return false;
	made = value_array(copy->state->arena, count);
	for (uint32_t i = 0; i < count; i++) {
		lua_rawgeti(L, index, (lua_Integer)i + 1);
		if (!copy_value(copy, lua_gettop(L), depth + 1, &made.via.array.ptr[i]))
			return false;
		lua_pop(L, 1);
	}
	*out = made;
	return true;
}

static int compare_fields(const void *a, const void *b)
{
	const msgpack_object_kv *left = a, *right = b;

	return str_compare(value_as_str(&left->key), value_as_str(&right->key));
}

static bool copy_map(struct result_copy *copy, int index, uint32_t count, uint32_t depth,
		     msgpack_object *out)
{
	lua_State *L = copy->lua;
	msgpack_object made;
	uint32_t i = 0;

	if (!copy_spend(copy, count, count * sizeof(msgpack_object_kv)))
		return false;
	made = value_map(copy->state->arena, count);
	lua_pushnil(L);
	while (lua_next(L, index)) {
		size_t len;
		const char *ptr = lua_tolstring(L, -2, &len);
		struct str key = str_make(ptr, len);

		if (!str_is_utf8(key) || len > UINT32_MAX)
			return copy_fails(copy, "a table with a key that is not UTF-8");
		if (!copy_bytes(copy, &key) ||
		    !copy_value(copy, lua_gettop(L), depth + 1, &made.via.map.ptr[i].val))
			return false;
		made.via.map.ptr[i++].key = value_text(key);
		lua_pop(L, 1);
	}
	if (count > 1)
		qsort(made.via.map.ptr, count, sizeof(*made.via.map.ptr), compare_fields);
	*out = made;
	return true;
}

static bool copy_table(struct result_copy *copy, int index, uint32_t depth, msgpack_object *out)
{
	struct table_shape shape;

	if (!copy_enter(copy, depth) || !table_shape(copy, index, &shape))
		return false;
	if (shape.numbers || (!shape.strings && lua_is_list(copy->lua, index)))
		return copy_list(copy, index, shape.numbers, depth, out);
	if (lua_is_list(copy->lua, index))
		return copy_fails(copy, "a list with string keys");
	return copy_map(copy, index, shape.strings, depth, out);
}

static bool copy_value(struct result_copy *copy, int index, uint32_t depth, msgpack_object *out)
{
	lua_State *L = copy->lua;
	const msgpack_object *view;

	if (!copy_spend(copy, 1, 0))
		return false;
	if (!lua_checkstack(L, 8))
		return copy_fails(copy, "over a limit");
	switch (lua_type(L, index)) {
	case LUA_TNIL:
		*out = value_nil();
		return true;
	case LUA_TBOOLEAN:
		*out = value_bool(lua_toboolean(L, index));
		return true;
	case LUA_TNUMBER:
		*out = lua_isinteger(L, index) ? value_int(lua_tointeger(L, index))
					       : value_double(lua_tonumber(L, index));
		return true;
	case LUA_TSTRING:
		return copy_string(copy, index, out);
	case LUA_TLIGHTUSERDATA:
		view = lua_view_at(L, index);
		if (view)
			return copy_view(copy, view, depth, out);
		*out = value_nil();
		return true;
	case LUA_TTABLE:
		return copy_table(copy, index, depth, out);
	case LUA_TFUNCTION:
		return copy_fails(copy, "a function");
	default:
		return copy_fails(copy, "a part of the library");
	}
}

bool lua_result_copy(lua_State *L, int index, msgpack_object *out, const char **problem)
{
	struct result_copy copy = {L, lua_state_of(L), NULL};
	int top = lua_gettop(L);
	bool done = copy_value(&copy, lua_absindex(L, index), 0, out);

	lua_settop(L, top);
	*problem = copy.problem;
	return done;
}
