/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our part of the library: len list map filter find any all sum keys merge join, json, base64, sha256, now, uuid, duration.
 *
 * Functions over containers take lists and maps, tables and views alike, in the order of lua_walk.c; nil and null are
 * taken for an empty one, since a path that breaks off is nil. None changes its arguments.
 */
#include "value/lua_internal.h"

/* len(x): bytes of a text, elements of a list, keys of a map, 0 for nil. */
static int our_len(lua_State *L)
{
	const msgpack_object *view;
	struct lua_walk *walk;

	luaL_checkany(L, 1);
	lua_settop(L, 1);
	if (lua_type(L, 1) == LUA_TSTRING) {
		lua_pushinteger(L, (lua_Integer)lua_rawlen(L, 1));
		return 1;
	}
	view = lua_view_at(L, 1);
	if (view) {
		lua_pushinteger(L, view->type == MSGPACK_OBJECT_ARRAY ? view->via.array.size
								      : view->via.map.size);
		return 1;
	}
	walk = lua_walk_new(L, 1);
	lua_pushinteger(L, lua_walk_count(walk));
	return 1;
}

/* list(...): its arguments as a list; the empty list if there are none. */
static int our_list(lua_State *L)
{
	int count = lua_gettop(L);

	lua_limits_charge(L, (uint64_t)count);
	lua_list_new(L, (size_t)count);
	for (int i = 1; i <= count; i++) {
		if (lua_isnil(L, i))
			lua_view_push_element(L, NULL);
		else
			lua_pushvalue(L, i);
		lua_rawseti(L, -2, i);
	}
	return 1;
}

/* Begins a function(container, f): leaves container, f, walk at 1, 2, 3. */
static const struct lua_walk *walk_with(lua_State *L, bool optional)
{
	luaL_checkany(L, 1);
	lua_settop(L, 2);
	if (!optional || !lua_isnil(L, 2))
		luaL_checktype(L, 2, LUA_TFUNCTION);
	return lua_walk_new(L, 1);
}

/* Pushes key, value and f(value, key); without f the value again. */
static void walk_call(lua_State *L, uint32_t position)
{
	lua_limits_charge(L, 2);
	lua_walk_get(L, 3, position);
	if (lua_isnil(L, 2)) {
		lua_pushvalue(L, -1);
		return;
	}
	lua_pushvalue(L, 2);
	lua_pushvalue(L, -2);
	lua_pushvalue(L, -4);
	lua_call(L, 2, 1);
}

static bool holds(lua_State *L)
{
	return lua_toboolean(L, -1) && !lua_is_null(L, -1);
}

/* map(x, f): the list of f(value, key); nil keeps its place as null. */
static int our_map(lua_State *L)
{
	const struct lua_walk *walk = walk_with(L, false);

	lua_list_new(L, lua_walk_count(walk));
	for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
		walk_call(L, i);
		if (lua_isnil(L, -1)) {
			lua_pop(L, 1);
			lua_view_push_element(L, NULL);
		}
		lua_rawseti(L, 4, (lua_Integer)i + 1);
		lua_settop(L, 4);
	}
	return 1;
}

/* filter(x, f): the elements for which f(value, key) holds; of a map the fields. */
static int our_filter(lua_State *L)
{
	const struct lua_walk *walk = walk_with(L, false);
	bool list = lua_walk_is_list(walk);
	lua_Integer kept = 0;

	if (list)
		lua_list_new(L, 0);
	else
		lua_newtable(L);
	for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
		walk_call(L, i);
		if (holds(L)) {
			lua_pop(L, 1);
			if (list)
				lua_rawseti(L, 4, ++kept);
			else
				lua_rawset(L, 4);
		}
		lua_settop(L, 4);
	}
	return 1;
}

/* find(x, f): the first value for which f(value, key) holds, and its key; nil if none. */
static int our_find(lua_State *L)
{
	const struct lua_walk *walk = walk_with(L, false);

	for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
		walk_call(L, i);
		if (holds(L)) {
			lua_pushvalue(L, -2);
			lua_pushvalue(L, -4);
			return 2;
		}
		lua_settop(L, 3);
	}
	lua_pushnil(L);
	return 1;
}

static int quantify(lua_State *L, bool sought)
{
	const struct lua_walk *walk = walk_with(L, true);

	for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
		walk_call(L, i);
		if (holds(L) == sought) {
			lua_pushboolean(L, sought);
			return 1;
		}
		lua_settop(L, 3);
	}
	lua_pushboolean(L, !sought);
	return 1;
}

/* any(x, f), all(x, f): without f whether the values themselves hold. */
static int our_any(lua_State *L)
{
	return quantify(L, true);
}

static int our_all(lua_State *L)
{
	return quantify(L, false);
}

/* sum(x, f): of the numbers f(value, key), or of the values; exact for integers, an error if they overflow. */
static int our_sum(lua_State *L)
{
	const struct lua_walk *walk = walk_with(L, true);
	lua_Integer whole = 0;
	lua_Number real = 0;
	bool is_real = false;

	for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
		walk_call(L, i);
		if (lua_type(L, -1) != LUA_TNUMBER)
			return luaL_error(L, "sum met a %s at %s", luaL_typename(L, -1),
					  luaL_tolstring(L, 4, NULL));
		if (lua_isinteger(L, -1) && !is_real) {
			if (__builtin_add_overflow(whole, lua_tointeger(L, -1), &whole))
				return luaL_error(L, "the sum does not fit 64 bits");
		} else {
			if (!is_real)
				real = (lua_Number)whole;
			is_real = true;
			real += lua_tonumber(L, -1);
		}
		lua_settop(L, 3);
	}
	if (is_real)
		lua_pushnumber(L, real);
	else
		lua_pushinteger(L, whole);
	return 1;
}

/* keys(x): the list of keys, in order. */
static int our_keys(lua_State *L)
{
	struct lua_walk *walk;

	luaL_checkany(L, 1);
	lua_settop(L, 1);
	walk = lua_walk_new(L, 1);
	lua_limits_charge(L, lua_walk_count(walk));
	lua_list_new(L, lua_walk_count(walk));
	for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
		lua_walk_get(L, 2, i);
		lua_pop(L, 1);
		lua_rawseti(L, 3, (lua_Integer)i + 1);
	}
	return 1;
}

/* merge(a, b, ...): a new map of all fields; of equal keys the last counts. */
static int our_merge(lua_State *L)
{
	int count = lua_gettop(L);

	luaL_checkstack(L, 8, NULL);
	lua_newtable(L);
	for (int arg = 1; arg <= count; arg++) {
		const struct lua_walk *walk = lua_walk_new(L, arg);

		luaL_argcheck(L, walk->list_count == 0, arg, "map expected, got list");
		lua_limits_charge(L, lua_walk_count(walk));
		for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
			lua_walk_get(L, count + 2, i);
			lua_rawset(L, count + 1);
		}
		lua_settop(L, count + 1);
	}
	return 1;
}

/* join(list, between): texts, numbers and booleans in one text; null and nil are left out with nothing between. */
static int our_join(lua_State *L)
{
	size_t mark = lua_state_of(L)->scratch.len, len;
	struct str between;
	const struct lua_walk *walk;
	bool first = true;

	luaL_checkany(L, 1);
	lua_settop(L, 2);
	between = lua_isnil(L, 2) ? STR("") : lua_check_str(L, 2);
	walk = lua_walk_new(L, 1);
	for (uint32_t i = 0; i < lua_walk_count(walk); i++) {
		const char *text;

		lua_walk_get(L, 3, i);
		if (!lua_isnil(L, -1) && !lua_is_null(L, -1)) {
			if (lua_type(L, -1) != LUA_TBOOLEAN && !lua_isstring(L, -1))
				return luaL_error(L, "join met a table or function");
			text = luaL_tolstring(L, -1, &len);
			lua_limits_charge(L, 1 + (len + between.len) / 32);
			if (!first)
				lua_scratch_add(L, between.ptr, between.len);
			lua_scratch_add(L, text, len);
			first = false;
		}
		lua_settop(L, 3);
	}
	lua_scratch_push(L, mark);
	return 1;
}

/* json.encode(x): compact, exact, tables in key order. */
static int json_encode(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	size_t mark = state->scratch.len, made;
	struct error err = ERROR_INIT;
	msgpack_object value;
	const char *problem;

	luaL_checkany(L, 1);
	if (!lua_result_copy(L, 1, &value, &problem)) {
		if (state->breach)
			lua_limits_breach(L, state->breach);
		return luaL_error(L, "json.encode met %s", problem);
	}
	if (value_json_write(&value, &state->scratch, &err) != RESULT_OK) {
		state->scratch.len = mark;
		return luaL_error(L, "json.encode: %s", err.text);
	}
	made = state->scratch.len - mark;
	lua_limits_charge(L, made / 16);
	lua_limits_charge_bytes(L, made);
	lua_scratch_push(L, mark);
	return 1;
}

/* json.decode(text): the value, its containers as views. */
static int json_decode(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	struct value_limits limits = VALUE_LIMITS_DEFAULT;
	size_t left = state->limits.max_allocated - state->allocated;
	struct str text = lua_check_str(L, 1);
	struct error err = ERROR_INIT;
	msgpack_object *value = arena_alloc(state->arena, sizeof(*value));
	size_t values = 1;

	/* No value takes less than a byte of text, so this bounds what the reader takes before it is counted. */
	lua_limits_charge(L, 1 + text.len / 8);
	lua_limits_charge_bytes(L, text.len);
	if (left / (4 * sizeof(*value)) < limits.max_values)
		limits.max_values = (uint32_t)(left / (4 * sizeof(*value)));
	limits.max_bytes = state->limits.max_memory;
	for (size_t i = 0; i < text.len; i++)
		values += text.ptr[i] && strchr(",:[{", text.ptr[i]);
	if (value_json_read(state->arena, text, true, &limits, value, &err) != RESULT_OK) {
		if (err.code == CODE_PARSE_LIMIT && values > limits.max_values)
			lua_limits_breach(L, BREACH_ALLOCATED);
		return luaL_error(L, "json.decode: %s", err.text);
	}
	lua_limits_charge_bytes(L, values * sizeof(*value));
	lua_view_push_element(L, value);
	return 1;
}

static int our_base64(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	struct str bytes = lua_check_str(L, 1);
	size_t mark = state->scratch.len;

	lua_limits_charge(L, 1 + bytes.len / 16);
	lua_limits_make_room(L, bytes.len / 3 * 4 + 4);
	lua_limits_charge_bytes(L, bytes.len / 3 * 4 + 4);
	base64_encode(bytes, &state->scratch);
	lua_scratch_push(L, mark);
	return 1;
}

static int our_sha256(lua_State *L)
{
	struct str bytes = lua_check_str(L, 1);
	char hex[65];

	/* About two nanoseconds a byte. */
	lua_limits_charge(L, 100 + bytes.len / 4);
	sha256_hex(bytes, hex);
	lua_pushlstring(L, hex, 64);
	return 1;
}

static int64_t check_duration(lua_State *L, int arg)
{
	int64_t ms;

	if (lua_type(L, arg) == LUA_TNUMBER)
		return luaL_checkinteger(L, arg);
	if (!str_to_duration_ms(lua_check_str(L, arg), &ms))
		luaL_argerror(L, arg, "duration like PT30S or P7D expected");
	return ms;
}

/* duration(text): milliseconds. */
static int our_duration(lua_State *L)
{
	lua_pushinteger(L, check_duration(L, 1));
	return 1;
}

/* now(offset): the time of the step, moved by a duration or milliseconds. */
static int our_now(lua_State *L)
{
	int64_t now_us = lua_state_of(L)->scope->now_us, offset = 0;
	char text[TIME_TEXT_SIZE];

	if (!lua_isnoneornil(L, 1))
		offset = check_duration(L, 1);
	/* Years 1 to 9999 are what the text can say. */
	if (__builtin_mul_overflow(offset, US_PER_MS, &offset) ||
	    __builtin_add_overflow(now_us, offset, &now_us) ||
	    now_us < INT64_C(-62135596800) * US_PER_S || now_us >= INT64_C(253402300800) * US_PER_S)
		return luaL_argerror(L, 1, "the time is out of range");
	lua_pushstring(L, time_format(now_us, text));
	return 1;
}

static int our_uuid(lua_State *L)
{
	const struct str *seed = lua_state_of(L)->scope->uuid_seed;
	struct str name = lua_check_str(L, 1);
	char text[ID_TEXT_SIZE];

	lua_limits_charge(L, 100 + name.len / 4);
	lua_pushstring(L, id_format(id_digest_of(seed[0], seed[1], seed[2], seed[3], name), text));
	return 1;
}

void lua_library_fill(lua_State *L)
{
	static const luaL_Reg functions[] = {
		{"len", our_len},           {"list", our_list}, {"map", our_map},
		{"filter", our_filter},     {"find", our_find}, {"any", our_any},
		{"all", our_all},           {"sum", our_sum},   {"keys", our_keys},
		{"merge", our_merge},       {"join", our_join}, {"base64", our_base64},
		{"sha256", our_sha256},     {"now", our_now},   {"uuid", our_uuid},
		{"duration", our_duration}, {NULL, NULL},
	};
	static const luaL_Reg json[] = {
		{"encode", json_encode}, {"decode", json_decode}, {NULL, NULL}};

	luaL_setfuncs(L, functions, 0);
	luaL_newlib(L, json);
	lua_library_seal(L, "json");
	lua_setfield(L, -2, "json");
}
