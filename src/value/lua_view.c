/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: how Lua sees the values of the engine without converting them.
 *
 * A container is shown as a light userdata, the address of its msgpack_object: nothing is allocated, two views of one
 * container are equal, and on the way out it is the same value again. All light userdata share one metatable, which
 * reads, counts and refuses to write; `null` and the message's headers are two more addresses. nil, numbers and booleans
 * have metatables of their own under which every field is nil, so that a path may break off anywhere.
 *
 * A null that is reached by name (payload.note) reads as nil, like a missing field, so that `or` and `if` do what is
 * expected; an element of a list, and whatever a walk meets, is `null`, so that no place or key is lost.
 */
#include "value/lua_internal.h"

/* The metatable of lists made by an evaluation, by which `list()` differs from `{}`. */
static const char list_tag;

static const msgpack_object *view_raw(lua_State *L, int index)
{
	return lua_type(L, index) == LUA_TLIGHTUSERDATA ? lua_touserdata(L, index) : NULL;
}

bool lua_is_null(lua_State *L, int index)
{
	const msgpack_object *value = view_raw(L, index);

	return value && value->type == MSGPACK_OBJECT_NIL && value != &lua_state_of(L)->header;
}

void lua_view_push_text(lua_State *L, struct str text)
{
	if (text.ptr)
		lua_pushlstring(L, text.ptr, text.len);
	else
		lua_pushnil(L);
}

/* A byte string is a Lua string, remembered so that it goes out as a byte string again. */
static void push_binary(lua_State *L, struct str bytes)
{
	struct map *binaries = &lua_state_of(L)->binaries;

	lua_pushlstring(L, bytes.ptr, bytes.len);
	if (!map_get(binaries, bytes)) {
		lua_limits_charge_bytes(L, sizeof(struct map_entry) + bytes.len);
		map_put(binaries, bytes, L);
	}
}

void lua_view_push(lua_State *L, const msgpack_object *value)
{
	if (!value) {
		lua_pushnil(L);
		return;
	}
	switch (value->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		lua_pushboolean(L, value->via.boolean);
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		lua_pushinteger(L, value->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		lua_pushnumber(L, value->via.f64);
		break;
	case MSGPACK_OBJECT_STR:
		lua_pushlstring(L, value->via.str.ptr, value->via.str.size);
		break;
	case MSGPACK_OBJECT_BIN:
		push_binary(L, str_make(value->via.bin.ptr, value->via.bin.size));
		break;
	case MSGPACK_OBJECT_ARRAY:
	case MSGPACK_OBJECT_MAP:
		lua_pushlightuserdata(L, (void *)value);
		break;
	default:
		lua_pushnil(L);
	}
}

void lua_view_push_element(lua_State *L, const msgpack_object *value)
{
	if (!value || value_is_nil(value))
		lua_pushlightuserdata(L, &lua_state_of(L)->null);
	else
		lua_view_push(L, value);
}

/* The headers as a map, each name once with its last value, for whoever wants them all. */
static void headers_build(struct expression_state *state)
{
	const struct header_list *headers = state->scope->headers;
	size_t count = headers ? headers->count : 0;
	uint32_t kept = 0;

	state->header_built = true;
	state->header = value_map(state->arena, (uint32_t)count);
	for (size_t i = 0; i < count; i++) {
		const struct header *header = &headers->items[i];

		if (header_find(headers, header->name) != header)
			continue;
		state->header.via.map.ptr[kept].key = value_text(header->name);
		state->header.via.map.ptr[kept++].val = header->value;
	}
	state->header.via.map.size = kept;
}

const msgpack_object *lua_view_at(lua_State *L, int index)
{
	struct expression_state *state = lua_state_of(L);
	const msgpack_object *value = view_raw(L, index);

	if (value == &state->header && !state->header_built)
		headers_build(state);
	return value && value->type != MSGPACK_OBJECT_NIL ? value : NULL;
}

static int view_index(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	const msgpack_object *value = view_raw(L, 1);
	size_t len;
	const char *key;
	int whole = 0;
	lua_Integer i;

	if (value == &state->header) {
		const struct header *found = NULL;

		if (state->scope->headers && lua_type(L, 2) == LUA_TSTRING) {
			key = lua_tolstring(L, 2, &len);
			found = header_find(state->scope->headers, str_make(key, len));
		}
		lua_view_push(L, found ? &found->value : NULL);
	} else if (value->type == MSGPACK_OBJECT_MAP && lua_type(L, 2) == LUA_TSTRING) {
		key = lua_tolstring(L, 2, &len);
		if (value->via.map.size > 32)
			lua_limits_charge(L, value->via.map.size / 32);
		lua_view_push(L, value_get(value, str_make(key, len)));
	} else if (value->type == MSGPACK_OBJECT_ARRAY && lua_type(L, 2) == LUA_TNUMBER) {
		i = lua_tointegerx(L, 2, &whole);
		if (whole && i >= 1 && (lua_Unsigned)i <= value->via.array.size)
			lua_view_push_element(L, &value->via.array.ptr[i - 1]);
		else
			lua_pushnil(L);
	} else {
		lua_pushnil(L);
	}
	return 1;
}

static int view_assign(lua_State *L)
{
	return luaL_error(L, "this value is read-only; make a new table, or use merge");
}

static int view_len(lua_State *L)
{
	const msgpack_object *value = view_raw(L, 1);

	if (lua_is_null(L, 1))
		return luaL_error(L, "attempt to get length of null");
	lua_pushinteger(L, value->type == MSGPACK_OBJECT_ARRAY ? value->via.array.size : 0);
	return 1;
}

static int view_text(lua_State *L)
{
	if (!lua_is_null(L, 1))
		return luaL_error(L, "a table has no text; use json.encode");
	lua_pushliteral(L, "null");
	return 1;
}

static int function_text(lua_State *L)
{
	return luaL_error(L, "a function has no text");
}

/* Makes every field of the type of the value on top nil, and pops it. */
static void fieldless(lua_State *L)
{
	lua_newtable(L);
	lua_newtable(L);
	lua_setfield(L, -2, "__index");
	lua_setmetatable(L, -2);
	lua_pop(L, 1);
}

void lua_view_install(lua_State *L)
{
	static const luaL_Reg methods[] = {
		{"__index", view_index},
		{"__newindex", view_assign},
		{"__len", view_len},
		{"__tostring", view_text},
		{NULL, NULL},
	};
	static const luaL_Reg of_functions[] = {{"__tostring", function_text}, {NULL, NULL}};

	lua_pushlightuserdata(L, L);
	luaL_newlib(L, methods);
	lua_pushliteral(L, "table");
	lua_setfield(L, -2, "__name");
	lua_setmetatable(L, -2);
	lua_pop(L, 1);

	lua_pushnil(L);
	fieldless(L);
	lua_pushinteger(L, 0);
	fieldless(L);
	lua_pushboolean(L, 0);
	fieldless(L);

	lua_pushcfunction(L, function_text);
	luaL_newlib(L, of_functions);
	lua_setmetatable(L, -2);
	lua_pop(L, 1);

	lua_newtable(L);
	lua_rawsetp(L, LUA_REGISTRYINDEX, &list_tag);
}

void lua_list_new(lua_State *L, size_t room)
{
	lua_createtable(L, room > INT32_MAX ? INT32_MAX : (int)room, 0);
	lua_rawgetp(L, LUA_REGISTRYINDEX, &list_tag);
	lua_setmetatable(L, -2);
}

/* No other table has a metatable. */
bool lua_is_list(lua_State *L, int index)
{
	if (lua_type(L, index) != LUA_TTABLE || !lua_getmetatable(L, index))
		return false;
	lua_pop(L, 1);
	return true;
}

static msgpack_object text_or_nil(struct str text)
{
	return text.ptr ? value_text(text) : value_nil();
}

static msgpack_object time_or_nil(int64_t time_us, char text[static TIME_TEXT_SIZE])
{
	return time_us == 0 ? value_nil() : value_text(str_of(time_format(time_us, text)));
}

static void record_set(struct expression_record *record, struct str name, msgpack_object value)
{
	msgpack_object_kv *field = &record->fields[record->object.via.map.size++];

	assert(record->object.via.map.size <= ARRAY_LEN(record->fields));
	field->key = value_text(name);
	field->val = value;
}

static void push_record(lua_State *L, struct expression_record *record)
{
	struct expression_state *state = lua_state_of(L);
	const struct expression_scope *scope = state->scope;

	if (!record->built) {
		record->built = true;
		record->object.type = MSGPACK_OBJECT_MAP;
		record->object.via.map.size = 0;
		record->object.via.map.ptr = record->fields;
		if (record == &state->event) {
			record_set(record, STR("id"), text_or_nil(scope->event.id));
			record_set(record, STR("type"), text_or_nil(scope->event.type));
			record_set(record, STR("channel"), text_or_nil(scope->event.channel));
			record_set(record, STR("time"),
				   time_or_nil(scope->event.time_us, record->time));
			record_set(record, STR("key"), text_or_nil(scope->event.key));
		} else if (record == &state->instance) {
			record_set(record, STR("id"), text_or_nil(scope->instance.id));
			record_set(record, STR("started"),
				   time_or_nil(scope->instance.started_us, record->time));
		} else {
			record_set(record, STR("id"), text_or_nil(scope->process_id));
		}
	}
	lua_pushlightuserdata(L, &record->object);
}

bool lua_view_push_fixed(lua_State *L, struct str name)
{
	struct expression_state *state = lua_state_of(L);

	if (str_equal(name, STR("header")))
		lua_pushlightuserdata(L, &state->header);
	else if (str_equal(name, STR("null")))
		lua_pushlightuserdata(L, &state->null);
	else if (str_equal(name, STR("event")))
		push_record(L, &state->event);
	else if (str_equal(name, STR("instance")))
		push_record(L, &state->instance);
	else if (str_equal(name, STR("process")))
		push_record(L, &state->process);
	else if (str_equal(name, STR("tenant")))
		lua_view_push_text(L, state->scope->tenant);
	else
		return false;
	return true;
}
