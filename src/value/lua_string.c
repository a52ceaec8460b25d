/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables `string` and `utf8`. What only walks over its arguments is stock, wrapped to count them; rep, format and
 * the pattern functions (lua_pattern.c) are ours or guarded.
 */
#include "value/lua_internal.h"

/* Appends `text` `count` times with `between`; doubling keeps the copies few. */
static int string_rep(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	struct str text = lua_check_str(L, 1);
	lua_Integer count = luaL_checkinteger(L, 2);
	struct str between = lua_isnoneornil(L, 3) ? STR("") : lua_check_str(L, 3);
	size_t mark = state->scratch.len, unit = text.len + between.len, total;

	if (count <= 0 || unit == 0) {
		lua_pushliteral(L, "");
		return 1;
	}
	if ((lua_Unsigned)count > state->limits.max_memory / unit + 1)
		lua_limits_breach(L, BREACH_MEMORY);
	total = unit * ((size_t)count - 1) + text.len;
	lua_limits_charge(L, 1 + total / 256);
	lua_limits_make_room(L, total);
	if (count == 1) {
		lua_settop(L, 1);
		return 1;
	}
	lua_scratch_add(L, text.ptr, text.len);
	lua_scratch_add(L, between.ptr, between.len);
	while (state->scratch.len - mark < total) {
		size_t have = state->scratch.len - mark,
		       more = total - have < have ? total - have : have;

		/* Reserved first, so that the source does not move. */
		buf_reserve(&state->scratch, more);
		lua_scratch_add(L, state->scratch.data + mark, more);
	}
	state->scratch.len = mark + total;
	lua_scratch_push(L, mark);
	return 1;
}

/* Upvalue 1: the stock function. Refuses what would print an address. */
static int string_format(lua_State *L)
{
	lua_CFunction stock = lua_tocfunction(L, lua_upvalueindex(1));
	struct str format = lua_check_str(L, 1);
	int count = lua_gettop(L);
	size_t sum = format.len;

	for (size_t i = 0; i < format.len; i++) {
		if (format.ptr[i] != '%')
			continue;
		i++;
		while (i < format.len && strchr("-+ #0123456789.", format.ptr[i]) && format.ptr[i])
			i++;
		if (i < format.len && format.ptr[i] == 'p')
			return luaL_error(
				L, "'%%p' is not offered: an address differs from run to run");
	}
	for (int i = 2; i <= count; i++) {
		if (lua_type(L, i) == LUA_TTABLE)
			return luaL_argerror(L, i, "a table has no text; use json.encode");
		/* %q writes a byte as up to four. */
		sum += lua_type(L, i) == LUA_TSTRING ? 4 * lua_rawlen(L, i) : 128;
	}
	lua_limits_charge(L, sum / 32);
	lua_limits_make_room(L, 2 * sum);
	return stock(L);
}

/* Upvalue 1: the stock function. Its padding is not bounded by its arguments. */
static int string_pack(lua_State *L)
{
	lua_CFunction stock = lua_tocfunction(L, lua_upvalueindex(1));
	struct str format = lua_check_str(L, 1);
	size_t sum = 32 * format.len;

	for (size_t i = 0; i < format.len; i++) {
		size_t size = 0;

		if (format.ptr[i] != 'c')
			continue;
		while (i + 1 < format.len && format.ptr[i + 1] >= '0' && format.ptr[i + 1] <= '9') {
			size = size * 10 + (size_t)(format.ptr[++i] - '0');
			if (size > lua_state_of(L)->limits.max_memory)
				lua_limits_breach(L, BREACH_MEMORY);
		}
		sum += size;
	}
	for (int i = 2; i <= lua_gettop(L); i++)
		sum += lua_type(L, i) == LUA_TSTRING ? lua_rawlen(L, i) : 16;
	lua_limits_charge(L, sum / 32);
	lua_limits_make_room(L, 2 * sum);
	return stock(L);
}

/* Upvalue 1: the stock function. What it costs is the results that it gives, however long the text is. */
static int by_results(lua_State *L)
{
	int count = lua_tocfunction(L, lua_upvalueindex(1))(L);

	lua_limits_charge(L, (uint64_t)count / 8);
	return count;
}

/* utf8.offset(s, n, i). Upvalue 1: the stock function. It passes n characters, of at most four bytes each. */
static int utf8_offset(lua_State *L)
{
	uint64_t len = lua_check_str(L, 1).len;
	lua_Integer n = luaL_checkinteger(L, 2);
	uint64_t passed = n < 0 ? -(uint64_t)n : (uint64_t)n;

	lua_limits_charge(L, (passed < len ? passed : len) / 8);
	return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

/* Copies members of the table below the top into the one on top. */
static void copy_members(lua_State *L, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		lua_getfield(L, -2, names[i]);
		lua_setfield(L, -2, names[i]);
	}
}

/* Puts `stand_in` before the stock function `name`, from the table below the top into the one on top. */
static void guard(lua_State *L, const char *name, lua_CFunction stand_in)
{
	lua_getfield(L, -2, name);
	assert(lua_iscfunction(L, -1));
	lua_pushcclosure(L, stand_in, 1);
	lua_setfield(L, -2, name);
}

void lua_string_install(lua_State *L)
{
	/* Those in the second row take constant time or make a string, which is counted as such. */
	static const char *const walking[] = {"char", "lower", "packsize", "reverse", "upper"};
	static const char *const direct[] = {"len", "sub", "unpack"};

	/* The stock library makes the metatable of strings, with arithmetic on numerals. */
	lua_pushcfunction(L, luaopen_string);
	lua_call(L, 0, 1);
	lua_newtable(L);
	copy_members(L, walking, ARRAY_LEN(walking));
	lua_library_wrap(L);
	copy_members(L, direct, ARRAY_LEN(direct));
	guard(L, "byte", by_results);
	guard(L, "format", string_format);
	guard(L, "pack", string_pack);
	lua_pushcfunction(L, string_rep);
	lua_setfield(L, -2, "rep");
	lua_pattern_fill(L);

	lua_pushliteral(L, "");
	lua_getmetatable(L, -1);
	lua_pushvalue(L, -3);
	lua_setfield(L, -2, "__index");
	lua_pop(L, 2);
	lua_replace(L, -2);
}

void lua_utf8_install(lua_State *L)
{
	static const char *const walking[] = {"char", "len"}, *const direct[] = {"charpattern",
										 "codes"};

	lua_pushcfunction(L, luaopen_utf8);
	lua_call(L, 0, 1);
	lua_newtable(L);
	copy_members(L, walking, ARRAY_LEN(walking));
	lua_library_wrap(L);
	copy_members(L, direct, ARRAY_LEN(direct));
	guard(L, "codepoint", by_results);
	guard(L, "offset", utf8_offset);
	lua_replace(L, -2);
}
