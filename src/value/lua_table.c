/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table `table`, all of it ours: each function counts the elements it moves, reads lists of the message as well as
 * tables, and sorts stably, whatever the comparison answers (a merge sort ends after n log n questions).
 */
#include "value/lua_internal.h"

/* More results than this do not fit a call. */
#define MAX_UNPACK 200000

lua_Integer lua_sequence_len(lua_State *L, int arg)
{
	const msgpack_object *view = lua_view_at(L, arg);

	if (view)
		return view->type == MSGPACK_OBJECT_ARRAY ? view->via.array.size : 0;
	luaL_checktype(L, arg, LUA_TTABLE);
	return (lua_Integer)lua_rawlen(L, arg);
}

void lua_sequence_get(lua_State *L, int arg, lua_Integer i)
{
	lua_geti(L, arg, i);
}

/* The table at `arg` is about to be changed. */
static void check_writable(lua_State *L, int arg)
{
	if (lua_view_at(L, arg))
		luaL_argerror(L, arg, "this value is read-only; copy it with table.move or map");
	luaL_checktype(L, arg, LUA_TTABLE);
}

static void charge_span(lua_State *L, lua_Integer first, lua_Integer last)
{
	if (first <= last)
		lua_limits_charge(L, (lua_Unsigned)last - (lua_Unsigned)first + 1);
}

static int table_concat(lua_State *L)
{
	size_t mark = lua_state_of(L)->scratch.len;
	lua_Integer count = lua_sequence_len(L, 1);
	struct str between = lua_isnoneornil(L, 2) ? STR("") : lua_check_str(L, 2);
	lua_Integer first = luaL_optinteger(L, 3, 1), last = luaL_optinteger(L, 4, count);

	charge_span(L, first, last);
	for (lua_Integer i = first; i <= last; i++) {
		size_t len;
		const char *text;

		lua_sequence_get(L, 1, i);
		if (!lua_isstring(L, -1))
			return luaL_error(L,
					  "element %I of table.concat is neither text nor number",
					  (LUAI_UACINT)i);
		text = lua_tolstring(L, -1, &len);
		lua_limits_charge(L, len / 32);
		lua_scratch_add(L, text, len);
		lua_pop(L, 1);
		if (i == last)
			break; /* The last may be the largest integer. */
		lua_scratch_add(L, between.ptr, between.len);
	}
	lua_scratch_push(L, mark);
	return 1;
}

static int table_insert(lua_State *L)
{
	lua_Integer count, position;

	check_writable(L, 1);
	count = (lua_Integer)lua_rawlen(L, 1) + 1;
	switch (lua_gettop(L)) {
	case 2:
		lua_rawseti(L, 1, count);
		return 0;
	case 3:
		position = luaL_checkinteger(L, 2);
		luaL_argcheck(L, position >= 1 && position <= count, 2, "position out of bounds");
		charge_span(L, position, count);
		for (lua_Integer i = count; i > position; i--) {
			lua_rawgeti(L, 1, i - 1);
			lua_rawseti(L, 1, i);
		}
		lua_rawseti(L, 1, position);
		return 0;
	default:
		return luaL_error(L, "wrong number of arguments to 'insert'");
	}
}

static int table_remove(lua_State *L)
{
	lua_Integer count, position;

	check_writable(L, 1);
	count = (lua_Integer)lua_rawlen(L, 1);
	position = luaL_optinteger(L, 2, count);
	if (lua_gettop(L) > 1)
		luaL_argcheck(L,
			      (position >= 1 && position <= count + 1) ||
				      (count == 0 && position == 0),
			      2, "position out of bounds");
	lua_rawgeti(L, 1, position);
	charge_span(L, position, count);
	for (; position < count; position++) {
		lua_rawgeti(L, 1, position + 1);
		lua_rawseti(L, 1, position);
	}
	lua_pushnil(L);
	lua_rawseti(L, 1, position);
	return 1;
}

static int table_move(lua_State *L)
{
	lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3),
		    to = luaL_checkinteger(L, 4);
	int target = lua_isnoneornil(L, 5) ? 1 : 5;
	bool overlaps;

	(void)lua_sequence_len(L, 1);
	check_writable(L, target);
	if (last >= first) {
		luaL_argcheck(L, first > 0 || last < LUA_MAXINTEGER + first, 3,
			      "too many elements to move");
		luaL_argcheck(L, to <= LUA_MAXINTEGER - (last - first), 4,
			      "destination wraps around");
		charge_span(L, first, last);
		overlaps = to > first && to <= last && (target == 1 || lua_rawequal(L, 1, target));
		for (lua_Integer i = 0; i <= last - first; i++) {
			lua_Integer step = overlaps ? last - first - i : i;

			lua_sequence_get(L, 1, first + step);
			lua_rawseti(L, target, to + step);
		}
	}
	lua_pushvalue(L, target);
	return 1;
}

static int table_pack(lua_State *L)
{
	int count = lua_gettop(L);

	lua_limits_charge(L, (uint64_t)count);
	lua_createtable(L, count, 1);
	lua_insert(L, 1);
	for (int i = count; i >= 1; i--)
		lua_rawseti(L, 1, i);
	lua_pushinteger(L, count);
	lua_setfield(L, 1, "n");
	return 1;
}

static int table_unpack(lua_State *L)
{
	lua_Integer first = luaL_optinteger(L, 2, 1);
	lua_Integer last = lua_isnoneornil(L, 3) ? lua_sequence_len(L, 1) : luaL_checkinteger(L, 3);
	lua_Unsigned count;

	if (first > last)
		return 0;
	count = (lua_Unsigned)last - (lua_Unsigned)first;
	if (count >= MAX_UNPACK || !lua_checkstack(L, (int)count + 1))
		return luaL_error(L, "too many results to unpack");
	lua_limits_charge(L, count + 1);
	for (lua_Integer i = first; i < last; i++)
		lua_geti(L, 1, i);
	lua_geti(L, 1, last);
	return (int)count + 1;
}

/* Stack of a sort: 1 the table, 2 the comparison or nil, 3 the elements as they were, 4 the two orders. */
static bool sort_less(lua_State *L, uint32_t a, uint32_t b)
{
	bool less;

	lua_limits_charge(L, 1);
	if (lua_isnil(L, 2)) {
		lua_rawgeti(L, 3, a);
		lua_rawgeti(L, 3, b);
		less = lua_compare(L, -2, -1, LUA_OPLT);
		lua_pop(L, 2);
		return less;
	}
	lua_pushvalue(L, 2);
	lua_rawgeti(L, 3, a);
	lua_rawgeti(L, 3, b);
	lua_call(L, 2, 1);
	less = lua_toboolean(L, -1);
	lua_pop(L, 1);
	return less;
}

static void sort_merge(lua_State *L, const uint32_t *from, uint32_t *to, size_t left, size_t middle,
		       size_t right)
{
	size_t a = left, b = middle;

	for (size_t i = left; i < right; i++) {
		/* The right one goes first only if it is less: equal elements keep their order. */
		if (a < middle && (b >= right || !sort_less(L, from[b], from[a])))
			to[i] = from[a++];
		else
			to[i] = from[b++];
	}
}

static int table_sort(lua_State *L)
{
	size_t count;
	uint32_t *from, *to, *swap;

	check_writable(L, 1);
	count = lua_rawlen(L, 1);
	if (!lua_isnoneornil(L, 2))
		luaL_checktype(L, 2, LUA_TFUNCTION);
	lua_settop(L, 2);
	if (count < 2)
		return 0;
	if (count > INT32_MAX / 2)
		lua_limits_breach(L, BREACH_MEMORY);
	lua_limits_charge(L, count);
	lua_createtable(L, (int)count, 0);
	from = lua_newuserdatauv(L, 2 * count * sizeof(*from), 0);
	to = from + count;
	for (size_t i = 0; i < count; i++) {
		lua_rawgeti(L, 1, (lua_Integer)i + 1);
		lua_rawseti(L, 3, (lua_Integer)i + 1);
		from[i] = (uint32_t)i + 1;
	}
	for (size_t width = 1; width < count; width *= 2) {
		for (size_t left = 0; left < count; left += 2 * width) {
			size_t middle = left + width < count ? left + width : count;
			size_t right = left + 2 * width < count ? left + 2 * width : count;

			sort_merge(L, from, to, left, middle, right);
		}
		swap = from;
		from = to;
		to = swap;
	}
	for (size_t i = 0; i < count; i++) {
		lua_rawgeti(L, 3, from[i]);
		lua_rawseti(L, 1, (lua_Integer)i + 1);
	}
	return 0;
}

void lua_table_install(lua_State *L)
{
	static const luaL_Reg functions[] = {
		{"concat", table_concat}, {"insert", table_insert},
		{"move", table_move},     {"pack", table_pack},
		{"remove", table_remove}, {"sort", table_sort},
		{"unpack", table_unpack}, {NULL, NULL},
	};

	luaL_newlib(L, functions);
}
