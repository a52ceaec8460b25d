/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of expressions: one userdata for all of them, whose metatable finds a name among the variables of the
 * call, the fixed names, and the library, in this order. So an evaluation begins without copying anything, a name costs
 * one C call, and there are no globals that could outlive it: assignments go to the list of the script or fail.
 *
 * The library is closed: what is not put in here does not exist. Its tables are behind read-only stand-ins. Stock
 * functions stay where they are bounded by what they are given, and are wrapped to count that; what loops on its own,
 * depends on addresses or hash order, or catches errors, is ours.
 */
#include "value/lua_internal.h"

struct str lua_check_str(lua_State *L, int arg)
{
	size_t len;
	const char *ptr = luaL_checklstring(L, arg, &len);

	return str_make(ptr, len);
}

static int seal_assign(lua_State *L)
{
	return luaL_error(L, "the library is read-only");
}

static int seal_text(lua_State *L)
{
	return luaL_error(L, "a part of the library has no text");
}

void lua_library_seal(lua_State *L, const char *name)
{
	lua_newuserdatauv(L, 1, 0);
	lua_createtable(L, 0, 4);
	lua_pushvalue(L, -3);
	lua_setfield(L, -2, "__index");
	lua_pushcfunction(L, seal_assign);
	lua_setfield(L, -2, "__newindex");
	lua_pushcfunction(L, seal_text);
	lua_setfield(L, -2, "__tostring");
	lua_pushstring(L, name);
	lua_setfield(L, -2, "__name");
	lua_setmetatable(L, -2);
	lua_replace(L, -2);
}

/* Upvalue 1: the stock function, which has no upvalues of its own. */
static int wrapped(lua_State *L)
{
	lua_CFunction stock = lua_tocfunction(L, lua_upvalueindex(1));
	int count = lua_gettop(L);
	size_t sum = 0;

	for (int i = 1; i <= count; i++)
		if (lua_type(L, i) == LUA_TSTRING)
			sum += lua_rawlen(L, i);
	lua_limits_charge(L, sum / 32 + (uint64_t)count / 8);
	if (sum > 256)
		lua_limits_make_room(L, 2 * sum);
	return stock(L);
}

void lua_library_wrap(lua_State *L)
{
	int table = lua_gettop(L);

	lua_pushnil(L);
	while (lua_next(L, table)) {
		if (!lua_iscfunction(L, -1)) {
			lua_pop(L, 1);
			continue;
		}
		lua_pushcclosure(L, wrapped, 1);
		lua_pushvalue(L, -2);
		lua_insert(L, -2);
		lua_settable(L, table);
	}
}

static const char *type_of(lua_State *L, int index)
{
	switch (lua_type(L, index)) {
	case LUA_TLIGHTUSERDATA:
		return lua_is_null(L, index) ? "null" : "table";
	case LUA_TUSERDATA:
		return "table";
	default:
		return luaL_typename(L, index);
	}
}

static int base_type(lua_State *L)
{
	luaL_checkany(L, 1);
	lua_pushstring(L, type_of(L, 1));
	return 1;
}

static int base_tostring(lua_State *L)
{
	luaL_checkany(L, 1);
	if (lua_type(L, 1) == LUA_TTABLE)
		return luaL_error(L, "a table has no text; use json.encode");
	luaL_tolstring(L, 1, NULL);
	return 1;
}

static int base_select(lua_State *L)
{
	int count = lua_gettop(L);
	lua_Integer n;

	if (lua_type(L, 1) == LUA_TSTRING && str_equal(lua_check_str(L, 1), STR("#"))) {
		lua_pushinteger(L, count - 1);
		return 1;
	}
	n = luaL_checkinteger(L, 1);
	if (n < 0)
		n += count;
	luaL_argcheck(L, n >= 1, 1, "index out of range");
	if (n >= count)
		return 0;
	lua_limits_charge(L, (uint64_t)(count - n) / 8);
	return count - (int)n;
}

static int ipairs_next(lua_State *L)
{
	lua_Integer i = luaL_checkinteger(L, 2);

	i = luaL_intop(+, i, 1);
	lua_pushinteger(L, i);
	return lua_geti(L, 1, i) == LUA_TNIL ? 1 : 2;
}

static int base_ipairs(lua_State *L)
{
	luaL_checkany(L, 1);
	if (lua_is_null(L, 1)) {
		lua_pushnil(L);
		lua_replace(L, 1);
	}
	if (!lua_isnil(L, 1) && lua_type(L, 1) != LUA_TTABLE &&
	    lua_type(L, 1) != LUA_TLIGHTUSERDATA)
		luaL_argerror(L, 1,
			      lua_pushfstring(L, "table expected, got %s", luaL_typename(L, 1)));
	lua_pushcfunction(L, ipairs_next);
	lua_pushvalue(L, 1);
	lua_pushinteger(L, 0);
	return 3;
}

/* As in Lua, but a breach goes through, and what the call left in the scratch buffer is cut off. */
static int base_pcall(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	size_t mark = state->scratch.len;
	int status;

	luaL_checkany(L, 1);
	lua_pushboolean(L, 1);
	lua_insert(L, 1);
	status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
	if (status != LUA_OK)
		lua_limits_note(L, status);
	if (state->breach)
		lua_limits_breach(L, state->breach);
	if (status == LUA_OK)
		return lua_gettop(L);
	state->scratch.len = mark;
	lua_pushboolean(L, 0);
	lua_insert(L, -2);
	return 2;
}

static void base_install(lua_State *L)
{
	static const luaL_Reg functions[] = {
		{"type", base_type},
		{"tostring", base_tostring},
		{"select", base_select},
		{"ipairs", base_ipairs},
		{"pairs", lua_pairs},
		{"pcall", base_pcall},
		{NULL, NULL},
	};

	luaL_setfuncs(L, functions, 0);
	/* luaopen_base fills the table of globals; that is not yet the environment. */
	lua_pushcfunction(L, luaopen_base);
	lua_call(L, 0, 1);
	lua_newtable(L);
	lua_getfield(L, -2, "tonumber");
	lua_setfield(L, -2, "tonumber");
	lua_library_wrap(L);
	lua_getfield(L, -1, "tonumber");
	lua_setfield(L, -4, "tonumber");
	lua_getfield(L, -2, "error");
	lua_setfield(L, -4, "error");
	lua_pop(L, 2);
}

/* By name: some builds of Lua still have functions that the language has given up. */
static void math_install(lua_State *L)
{
	static const char *const members[] = {
		"abs",        "acos",       "asin", "atan", "ceil", "cos", "deg",
		"exp",        "floor",      "fmod", "huge", "log",  "max", "min",
		"maxinteger", "mininteger", "modf", "pi",   "rad",  "sin", "sqrt",
		"tan",        "tointeger",  "type", "ult",
	};

	lua_pushcfunction(L, luaopen_math);
	lua_call(L, 0, 1);
	lua_newtable(L);
	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		lua_getfield(L, -2, members[i]);
		lua_setfield(L, -2, members[i]);
	}
	lua_library_wrap(L);
	lua_replace(L, -2);
}

void lua_library_install(lua_State *L)
{
	static const struct {
		const char *name;
		void (*install)(lua_State *L);
	} tables[] = {
		{"string", lua_string_install},
		{"utf8", lua_utf8_install},
		{"table", lua_table_install},
		{"math", math_install},
	};

	lua_newtable(L);
	base_install(L);
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		tables[i].install(L);
		lua_library_seal(L, tables[i].name);
		lua_setfield(L, -2, tables[i].name);
	}
	lua_library_fill(L);

	/* The environment, as the value that every chunk loaded from here on finds as its globals. */
	lua_newuserdatauv(L, 1, 0);
	lua_createtable(L, 0, 2);
	lua_pushvalue(L, -3);
	lua_pushcclosure(L, lua_environment_index, 1);
	lua_setfield(L, -2, "__index");
	lua_pushcfunction(L, lua_environment_assign);
	lua_setfield(L, -2, "__newindex");
	lua_pushliteral(L, "environment");
	lua_setfield(L, -2, "__name");
	lua_setmetatable(L, -2);
	lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
	lua_pop(L, 1);
}
