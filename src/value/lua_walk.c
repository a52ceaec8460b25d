/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks: every container in one fixed order, 1..n and then the other keys: numbers ascending, strings in byte order,
 * false, true. Lua's own order follows a hash that is seeded anew in every process, so `next` is not offered and `pairs`
 * takes the order here; so do map, filter and the rest of our functions.
 *
 * A walk is a userdata that notes the order when it begins. Its first user value is the container, its second the list
 * of keys of a Lua table. What the body of a loop adds is not visited, what it removes is skipped.
 */
#include "value/lua_internal.h"

/* Ranks of keys behind 1..n. */
enum { RANK_NUMBER, RANK_STRING, RANK_FALSE, RANK_TRUE };

struct walk_key {
	int rank;
	uint32_t position; /* in the list of keys as found */
	long double number;
	struct str text;
};

static int compare_keys(const void *a, const void *b)
{
	const struct walk_key *left = a, *right = b;

	if (left->rank != right->rank)
		return left->rank < right->rank ? -1 : 1;
	if (left->rank == RANK_NUMBER)
		return (left->number > right->number) - (left->number < right->number);
	return str_compare(left->text, right->text);
}

static int compare_entries(const void *a, const void *b, void *arg)
{
	const msgpack_object_kv *entries = arg;
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return str_compare(value_as_str(&entries[left].key), value_as_str(&entries[right].key));
}

static struct lua_walk *walk_alloc(lua_State *L, int arg, uint32_t order_count)
{
	struct lua_walk *walk;

	walk = lua_newuserdatauv(L, sizeof(*walk) + order_count * sizeof(uint32_t), 2);
	*walk = (struct lua_walk){NULL, 0, 0};
	lua_pushvalue(L, arg);
	lua_setiuservalue(L, -2, 1);
	return walk;
}

static struct lua_walk *walk_view(lua_State *L, int arg, const msgpack_object *view)
{
	struct lua_walk *walk;
	uint32_t count;

	if (view->type != MSGPACK_OBJECT_MAP) {
		walk = walk_alloc(L, arg, 0);
		walk->view = view;
		walk->list_count = view->via.array.size;
		return walk;
	}
	count = view->via.map.size;
	lua_limits_charge(L, count);
	walk = walk_alloc(L, arg, count);
	walk->view = view;
	walk->key_count = count;
	for (uint32_t i = 0; i < count; i++)
		walk->order[i] = i;
	if (count > 1)
		qsort_r(walk->order, count, sizeof(*walk->order), compare_entries,
			view->via.map.ptr);
	return walk;
}

static void walk_key_read(lua_State *L, int index, struct walk_key *key)
{
	size_t len;
	const char *ptr;

	switch (lua_type(L, index)) {
	case LUA_TNUMBER:
		key->rank = RANK_NUMBER;
		key->number = lua_isinteger(L, index) ? (long double)lua_tointeger(L, index)
						      : (long double)lua_tonumber(L, index);
		break;
	case LUA_TSTRING:
		key->rank = RANK_STRING;
		ptr = lua_tolstring(L, index, &len);
		key->text = str_make(ptr, len);
		break;
	case LUA_TBOOLEAN:
		key->rank = lua_toboolean(L, index) ? RANK_TRUE : RANK_FALSE;
		break;
	default:
		luaL_error(L, "the keys of this table have no order: one is a %s",
			   lua_type(L, index) == LUA_TFUNCTION ? "function" : "table");
	}
}

/* Whether the key at the top is one of 1..n. */
static bool in_list(lua_State *L, uint32_t list_count)
{
	lua_Integer key;

	if (!lua_isinteger(L, -1))
		return false;
	key = lua_tointeger(L, -1);
	return key >= 1 && (lua_Unsigned)key <= list_count;
}

static uint32_t keys_count(lua_State *L, int arg, uint32_t list_count)
{
	uint32_t count = 0;

	lua_pushnil(L);
	while (lua_next(L, arg)) {
		lua_pop(L, 1);
		lua_limits_charge(L, 1);
		count += !in_list(L, list_count);
	}
	return count;
}

/* Sets the list of `count` keys, in order, as the second user value of the walk on top. */
static void keys_sort(lua_State *L, int arg, uint32_t list_count, uint32_t count)
{
	struct walk_key *keys = lua_newuserdatauv(L, count * sizeof(*keys), 0);
	uint32_t found = 0;
	int base = lua_gettop(L); /* keys; then the list as found, then the list in order */

	lua_createtable(L, (int)count, 0);
	lua_pushnil(L);
	while (lua_next(L, arg)) {
		lua_pop(L, 1);
		if (in_list(L, list_count))
			continue;
		memset(&keys[found], 0, sizeof(keys[found]));
		keys[found].position = found + 1;
		walk_key_read(L, -1, &keys[found++]);
		lua_pushvalue(L, -1);
		lua_rawseti(L, base + 1, found);
	}
	qsort(keys, count, sizeof(*keys), compare_keys);
	lua_createtable(L, (int)count, 0);
	for (uint32_t i = 0; i < count; i++) {
		lua_rawgeti(L, base + 1, keys[i].position);
		lua_rawseti(L, base + 2, (lua_Integer)i + 1);
	}
	lua_setiuservalue(L, base - 1, 2);
	lua_settop(L, base - 1);
}

static struct lua_walk *walk_table(lua_State *L, int arg)
{
	struct lua_walk *walk = walk_alloc(L, arg, 0);
	uint32_t count = 0;

	while (lua_rawgeti(L, arg, (lua_Integer)count + 1) != LUA_TNIL) {
		lua_pop(L, 1);
		lua_limits_charge(L, 1);
		count++;
	}
	lua_pop(L, 1);
	walk->list_count = count;
	walk->key_count = keys_count(L, arg, count);
	if (walk->key_count)
		keys_sort(L, arg, count, walk->key_count);
	return walk;
}

struct lua_walk *lua_walk_new(lua_State *L, int arg)
{
	const msgpack_object *view = lua_view_at(L, arg);

	luaL_checkstack(L, 8, NULL);
	if (view)
		return walk_view(L, arg, view);
	if (lua_type(L, arg) == LUA_TTABLE)
		return walk_table(L, arg);
	if (lua_isnoneornil(L, arg) || lua_is_null(L, arg)) {
		lua_settop(L, lua_gettop(L) < arg ? arg : lua_gettop(L));
		return walk_alloc(L, arg, 0);
	}
	luaL_argerror(L, arg, lua_pushfstring(L, "table expected, got %s", luaL_typename(L, arg)));
	return NULL;
}

static void walk_get_view(lua_State *L, const struct lua_walk *walk, uint32_t position)
{
	const msgpack_object_kv *entry;

	if (position < walk->list_count) {
		lua_pushinteger(L, (lua_Integer)position + 1);
		lua_view_push_element(L, &walk->view->via.array.ptr[position]);
		return;
	}
	entry = &walk->view->via.map.ptr[walk->order[position - walk->list_count]];
	lua_view_push_text(L, value_as_str(&entry->key));
	lua_view_push_element(L, &entry->val);
}

void lua_walk_get(lua_State *L, int index, uint32_t position)
{
	const struct lua_walk *walk = lua_touserdata(L, index);

	index = lua_absindex(L, index);
	if (walk->view) {
		walk_get_view(L, walk, position);
		return;
	}
	lua_getiuservalue(L, index, 1);
	if (position < walk->list_count) {
		lua_pushinteger(L, (lua_Integer)position + 1);
	} else {
		lua_getiuservalue(L, index, 2);
		lua_rawgeti(L, -1, (lua_Integer)(position - walk->list_count) + 1);
		lua_replace(L, -2);
	}
	/* container, key → key, value */
	lua_pushvalue(L, -1);
	lua_rawget(L, -3);
	lua_remove(L, -3);
}

/* Upvalues: the walk, the next position. */
static int pairs_next(lua_State *L)
{
	const struct lua_walk *walk = lua_touserdata(L, lua_upvalueindex(1));
	lua_Integer position = lua_tointeger(L, lua_upvalueindex(2));

	lua_settop(L, 0);
	lua_pushvalue(L, lua_upvalueindex(1));
	while (position < lua_walk_count(walk)) {
		lua_walk_get(L, 1, (uint32_t)position++);
		if (!lua_isnil(L, -1)) {
			lua_pushinteger(L, position);
			lua_replace(L, lua_upvalueindex(2));
			return 2;
		}
		lua_settop(L, 1);
		lua_limits_charge(L, 1);
	}
	lua_pushinteger(L, position);
	lua_replace(L, lua_upvalueindex(2));
	lua_pushnil(L);
	return 1;
}

int lua_pairs(lua_State *L)
{
	luaL_checkany(L, 1);
	lua_settop(L, 1);
	lua_walk_new(L, 1);
	lua_pushinteger(L, 0);
	lua_pushcclosure(L, pairs_next, 2);
	return 1;
}
