/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluation of expressions and scripts, on the executor's thread.
 *
 * A state holds the library and, for each loaded set, a list of compiled functions. An evaluation points the state at the
 * scope of the call, calls the function under the bounds of lua_limits.c, and copies the result out (lua_result.c). What
 * must hold: nothing of one evaluation is seen by the next. So names live in the scope, not in Lua (lua_library.c); the one
 * thing a function keeps, its environment, is set anew before each call; and an evaluation that grew the heap is followed by
 * a collection and a fresh stack, which also keeps the memory bounds independent of history.
 *
 * Functions are compiled with as many empty lines before them as stand before the expression in its file, so that
 * Lua's own messages name the line of the file.
 */
#include "value/lua_internal.h"

#include "base/alloc.h"

/* An evaluation that took or left more than this is cleaned up after at once. */
#define CLEAN_AFTER  ((size_t)1 << 20)
#define SCRATCH_KEEP ((size_t)1 << 16)
/* Lua keeps 60 bytes of a file's name. */
#define FILE_NAME_MAX 56
/* Beyond this the line is counted from the beginning of the expression. */
#define LINE_MAX_OFFSET 200000

/* The values that a script assigned, by position. */
static const char assigned_tag;

int lua_environment_index(lua_State *L)
{
	const struct expression_state *state = lua_state_of(L);
	const struct expression_scope *scope = state->scope;
	size_t len;
	const char *ptr;
	struct str name;

	if (lua_type(L, 2) != LUA_TSTRING) {
		lua_pushnil(L);
		return 1;
	}
	ptr = lua_tolstring(L, 2, &len);
	name = str_make(ptr, len);
	for (size_t i = 0; i < state->assigned_count; i++) {
		if (!str_equal(state->assigned[i], name))
			continue;
		lua_rawgetp(L, LUA_REGISTRYINDEX, &assigned_tag);
		lua_rawgeti(L, -1, (lua_Integer)i + 1);
		return 1;
	}
	for (size_t i = scope->name_count; i-- > 0;) {
		if (!str_equal(scope->names[i].name, name))
			continue;
		lua_view_push(L, scope->names[i].value);
		return 1;
	}
	if (!lua_view_push_fixed(L, name)) {
		lua_pushvalue(L, 2);
		lua_rawget(L, lua_upvalueindex(1));
	}
	return 1;
}

/* Position of the name among those assigned, added if it may be; -1 if not. */
static ptrdiff_t assigned_position(struct expression_state *state, struct str name)
{
	const struct expression_scope *scope = state->scope;

	for (size_t i = 0; i < state->assigned_count; i++)
		if (str_equal(state->assigned[i], name))
			return (ptrdiff_t)i;
	if (state->expr->kind != EXPRESSION_SCRIPT)
		return -1;
	for (size_t i = 0; i < scope->assignable_count; i++) {
		if (!str_equal(scope->assignable[i], name))
			continue;
		if (!state->assigned)
			state->assigned = arena_alloc(
				state->arena, scope->assignable_count * sizeof(*state->assigned));
		state->assigned[state->assigned_count] = scope->assignable[i];
		return (ptrdiff_t)state->assigned_count++;
	}
	return -1;
}

int lua_environment_assign(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	size_t len;
	const char *ptr = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &len) : NULL;
	ptrdiff_t position = ptr ? assigned_position(state, str_make(ptr, len)) : -1;

	if (position < 0) {
		if (state->expr->kind != EXPRESSION_SCRIPT)
			return luaL_error(L, "an expression assigns nothing");
		return luaL_error(L, "'%s' is not a variable; declare it, or make it local",
				  ptr ? ptr : "?");
	}
	if (lua_rawgetp(L, LUA_REGISTRYINDEX, &assigned_tag) != LUA_TTABLE) {
		lua_pop(L, 1);
		lua_newtable(L);
		lua_pushvalue(L, -1);
		lua_rawsetp(L, LUA_REGISTRYINDEX, &assigned_tag);
	}
	lua_pushvalue(L, 3);
	lua_rawseti(L, -2, position + 1);
	return 0;
}

/*
 * Lua's table of strings grows when it is full and shrinks when a quarter is in use, so its size depends on its past. After
 * a load it is blown up once: from above a collection always ends at the same size.
 */
static int strings_inflate(lua_State *L)
{
	size_t count = lua_state_of(L)->in_use / 24;

	lua_gc(L, LUA_GCSTOP);
	for (size_t i = 0; i < count; i++) {
		lua_pushfstring(L, "\1%I", (LUAI_UACINT)i);
		lua_pop(L, 1);
	}
	lua_gc(L, LUA_GCRESTART);
	return 0;
}

/* Gives the evaluations a new thread; the old one is garbage. */
static void thread_renew(struct expression_state *state)
{
	lua_State *L = state->main;

	luaL_unref(L, LUA_REGISTRYINDEX, state->lua_ref);
	state->lua = lua_newthread(L);
	state->lua_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* Each collection halves Lua's table of strings at most, so it is repeated until nothing more comes back. */
static void collect(struct expression_state *state)
{
	size_t before;

	do {
		before = state->in_use;
		lua_gc(state->main, LUA_GCCOLLECT);
	} while (state->in_use < before);
	state->baseline = state->in_use;
	state->dirty = false;
}

static int state_open(lua_State *L)
{
	lua_view_install(L);
	lua_library_install(L);
	/* The slot exists from the beginning, so that no evaluation pays for it. */
	lua_pushboolean(L, 0);
	lua_rawsetp(L, LUA_REGISTRYINDEX, &assigned_tag);
	return strings_inflate(L);
}

struct expression_state *expression_state_new(const struct expression_limits *limits)
{
	struct expression_state *state = mem_zalloc(sizeof(*state));
	int status;

	state->limits = *limits;
	state->null.type = MSGPACK_OBJECT_NIL;
	state->lua_ref = LUA_NOREF;
	map_init(&state->binaries);
	state->main = lua_newstate(lua_limits_alloc, state);
	assert(state->main);
	*(struct expression_state **)lua_getextraspace(state->main) = state;
	lua_pushcfunction(state->main, state_open);
	status = lua_pcall(state->main, 0, 0, 0);
	assert(status == LUA_OK);
	thread_renew(state);
	collect(state);
	return state;
}

void expression_state_free(struct expression_state **state_ptr)
{
	struct expression_state *state = *state_ptr;

	if (!state)
		return;
	lua_close(state->main);
	map_done(&state->binaries);
	buf_done(&state->scratch);
	free(state->loaded);
	free(state);
	*state_ptr = NULL;
}

/* The source as it is compiled, handed to Lua in three pieces. */
struct chunk_reader {
	const struct expression *expr;
	int lines; /* still to be skipped */
	int piece;
};

static const char *chunk_read(lua_State *L, void *arg, size_t *len)
{
	static const char lines[] =
		"\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n";
	struct chunk_reader *reader = arg;

	(void)L;
	if (reader->lines > 0) {
		*len = (size_t)reader->lines < sizeof(lines) - 1 ? (size_t)reader->lines
								 : sizeof(lines) - 1;
		reader->lines -= (int)*len;
		return lines;
	}
	if (reader->piece == 0) {
		reader->piece = 1;
		if (reader->expr->kind == EXPRESSION_VALUE) {
			*len = strlen("return ");
			return "return ";
		}
	}
	if (reader->piece == 1) {
		reader->piece = 2;
		*len = reader->expr->source.len;
		return reader->expr->source.ptr;
	}
	*len = 0;
	return NULL;
}

/* "=" and the file's name, or its end. */
static void chunk_name(const struct expression *expr, char name[static FILE_NAME_MAX + 2])
{
	const char *file = expr->file ? expr->file : "expression";
	size_t len = strlen(file);

	if (len > FILE_NAME_MAX)
		snprintf(name, FILE_NAME_MAX + 2, "=...%s", file + len - FILE_NAME_MAX + 3);
	else
		snprintf(name, FILE_NAME_MAX + 2, "=%s", file);
}

/* 1: the set as a light userdata → the list of its functions. */
static int set_compile(lua_State *L)
{
	const struct expression_set *set = lua_touserdata(L, 1);
	char name[FILE_NAME_MAX + 2];

	lua_createtable(L, (int)set->count, 0);
	for (uint32_t i = 0; i < set->count; i++) {
		const struct expression *expr = set->items[i];
		struct chunk_reader reader = {expr, expr->line > 1 ? expr->line - 1 : 0, 0};

		assert(expr->index == i);
		if (reader.lines > LINE_MAX_OFFSET)
			reader.lines = 0;
		chunk_name(expr, name);
		if (lua_load(L, chunk_read, &reader, name, "t") != LUA_OK)
			return lua_error(L);
		lua_rawseti(L, 2, (lua_Integer)i + 1);
	}
	strings_inflate(L);
	return 1;
}

static struct expression_loaded *loaded_find(struct expression_state *state,
					     const struct expression_set *set)
{
	for (size_t i = 0; i < state->loaded_count; i++)
		if (state->loaded[i].set == set)
			return &state->loaded[i];
	return NULL;
}

enum result expression_state_load(struct expression_state *state, const struct expression_set *set,
				  struct error *err)
{
	lua_State *L = state->main;
	enum result result;

	if (loaded_find(state, set))
		return RESULT_OK;
	lua_pushcfunction(L, set_compile);
	lua_pushlightuserdata(L, (void *)set);
	if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
		result = error_set(err, RESULT_FATAL, CODE_CONFIG_EXPRESSION_INVALID, "%s",
				   lua_isstring(L, -1) ? lua_tostring(L, -1)
						       : "an expression does not compile");
		lua_settop(L, 0);
		collect(state);
		return result;
	}
	state->loaded = mem_array(state->loaded, state->loaded_count + 1, sizeof(*state->loaded));
	state->loaded[state->loaded_count].set = set;
	state->loaded[state->loaded_count++].ref = luaL_ref(L, LUA_REGISTRYINDEX);
	collect(state);
	return RESULT_OK;
}

void expression_state_unload(struct expression_state *state, const struct expression_set *set)
{
	struct expression_loaded *found = loaded_find(state, set);

	if (!found)
		return;
	luaL_unref(state->main, LUA_REGISTRYINDEX, found->ref);
	*found = state->loaded[--state->loaded_count];
	collect(state);
}

/* The handler of errors that leave the evaluation: notes the line while the stack still stands. */
static int note_line(lua_State *L)
{
	struct expression_state *state = lua_state_of(L);
	lua_Debug where;

	for (int level = 0; lua_getstack(L, level, &where); level++) {
		lua_getinfo(L, "l", &where);
		if (where.currentline > 0) {
			state->error_line = where.currentline;
			break;
		}
	}
	return 1;
}

/* Points the state at the call and pushes handler and function. */
static void evaluation_begin(struct expression_state *state, const struct expression_set *set,
			     const struct expression *expr)
{
	const struct expression_loaded *loaded = loaded_find(state, set);
	lua_State *L = state->lua;

	assert(loaded && expr->index < set->count && set->items[expr->index] == expr);
	state->event.built = state->instance.built = state->process.built = false;
	state->header.type = MSGPACK_OBJECT_NIL;
	state->header_built = false;
	state->assigned = NULL;
	state->assigned_count = 0;
	lua_settop(L, 0);
	lua_pushcfunction(L, note_line);
	lua_rawgeti(L, LUA_REGISTRYINDEX, loaded->ref);
	lua_rawgeti(L, -1, (lua_Integer)expr->index + 1);
	lua_replace(L, -2);
	/* The environment is the function's only upvalue, and it could have assigned to `_ENV`. */
	lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
	lua_setupvalue(L, -2, 1);
	lua_limits_begin(state);
}

static void evaluation_end(struct expression_state *state, int status)
{
	lua_State *L = state->lua;
	bool big = state->allocated > CLEAN_AFTER || state->in_use > state->baseline + CLEAN_AFTER;

	lua_limits_end(state);
	lua_settop(L, 0);
	if (state->assigned_count) {
		lua_pushboolean(L, 0);
		lua_rawsetp(L, LUA_REGISTRYINDEX, &assigned_tag);
	}
	state->scratch.len = 0;
	if (state->scratch.cap > SCRATCH_KEEP)
		buf_done(&state->scratch);
	if (state->binaries.count) {
		map_done(&state->binaries);
		map_init(&state->binaries);
	}
	if (status != LUA_OK || big)
		thread_renew(state);
	if (big)
		collect(state);
}

/* "file:line: " unless the text begins with the file already. */
static void add_place(const struct expression_state *state, struct str text, struct buf *out)
{
	char name[FILE_NAME_MAX + 2];
	size_t len;

	chunk_name(state->expr, name);
	len = strlen(name + 1);
	if (text.len > len && memcmp(text.ptr, name + 1, len) == 0 && text.ptr[len] == ':')
		return;
	buf_printf(out, "%s:%d: ", name + 1,
		   state->error_line ? state->error_line : state->expr->line);
}

/* Lua calls a view "userdata", a word that means nothing to the author of an expression. */
static void add_message(struct str text, struct buf *out)
{
	const struct str word = STR("userdata");

	for (size_t i = 0; i < text.len;) {
		if (text.len - i >= word.len && memcmp(text.ptr + i, word.ptr, word.len) == 0) {
			buf_add_text(out, "table");
			i += word.len;
		} else {
			buf_add_byte(out, text.ptr[i++]);
		}
		if (out->len > sizeof(((struct error *)NULL)->text))
			break;
	}
}

static void describe_value(struct expression_state *state, struct buf *out)
{
	lua_State *L = state->lua;
	msgpack_object value;
	const char *problem;
	size_t len;
	const char *ptr;

	if (lua_type(L, -1) == LUA_TSTRING) {
		ptr = lua_tolstring(L, -1, &len);
		add_place(state, str_make(ptr, len), out);
		add_message(str_make(ptr, len), out);
		return;
	}
	add_place(state, STR(""), out);
	if (!lua_result_copy(L, -1, &value, &problem))
		buf_printf(out, "error with %s", problem);
	else if (value_is_nil(&value))
		buf_add_text(out, "error without a message");
	else
		value_print(&value, 200, out);
}

/* The error value is on top of the stack. */
static enum result fail_lua(struct expression_state *state, struct error *err)
{
	struct buf text = BUF_INIT;
	enum code code = CODE_EXPRESSION_FAILED;
	enum result result;

	if (!state->breach)
		describe_value(state, &text);
	if (state->breach) {
		code = CODE_EXPRESSION_LIMIT;
		buf_reset(&text);
		add_place(state, STR(""), &text);
		lua_limits_describe(state, &text);
	}
	result = error_set(err, RESULT_REJECT, code, "%.*s", STR_ARG(buf_str(&text)));
	buf_done(&text);
	return result;
}

static enum result fail_result(struct expression_state *state, const char *problem,
			       struct str variable, struct error *err)
{
	struct buf text = BUF_INIT;
	enum code code = CODE_EXPRESSION_FAILED;
	enum result result;

	add_place(state, STR(""), &text);
	if (state->breach) {
		code = CODE_EXPRESSION_LIMIT;
		lua_limits_describe(state, &text);
	} else if (variable.ptr) {
		buf_printf(&text, "%.*s cannot hold %s", STR_ARG(variable), problem);
	} else {
		buf_printf(&text, "the result cannot hold %s", problem);
	}
	result = error_set(err, RESULT_REJECT, code, "%.*s", STR_ARG(buf_str(&text)));
	buf_done(&text);
	return result;
}

/* The value or the assignments of one evaluation. */
struct outcome {
	msgpack_object value;
	struct expression_assignment *assignments;
};

static enum result take_assignments(struct expression_state *state, struct outcome *outcome,
				    struct error *err)
{
	lua_State *L = state->lua;
	const char *problem;

	outcome->assignments = arena_alloc(state->arena,
					   state->assigned_count * sizeof(*outcome->assignments));
	if (state->assigned_count)
		lua_rawgetp(L, LUA_REGISTRYINDEX, &assigned_tag);
	for (size_t i = 0; i < state->assigned_count; i++) {
		struct expression_assignment *made = &outcome->assignments[i];

		made->name = state->assigned[i];
		lua_rawgeti(L, -1, (lua_Integer)i + 1);
		if (!lua_result_copy(L, -1, &made->value, &problem))
			return fail_result(state, problem, made->name, err);
		lua_pop(L, 1);
	}
	return RESULT_OK;
}

static enum result take_outcome(struct expression_state *state, int status, struct outcome *outcome,
				struct error *err)
{
	const char *problem;

	/* A refusal that the last call swallowed is one all the same. */
	if (status != LUA_OK || state->breach)
		return fail_lua(state, err);
	if (state->expr->kind == EXPRESSION_SCRIPT)
		return take_assignments(state, outcome, err);
	if (!lua_result_copy(state->lua, -1, &outcome->value, &problem))
		return fail_result(state, problem, STR_NONE, err);
	return RESULT_OK;
}

static enum result evaluate(struct expression_state *state, const struct expression_set *set,
			    const struct expression *expr, const struct expression_scope *scope,
			    struct arena *arena, struct outcome *outcome, struct error *err)
{
	enum result result;
	bool was_dirty, again;
	int status;

	state->expr = expr;
	state->scope = scope;
	state->arena = arena;
	do {
		was_dirty = state->dirty;
		evaluation_begin(state, set, expr);
		status = lua_pcall(state->lua, 0, expr->kind == EXPRESSION_VALUE ? 1 : 0, 1);
		lua_limits_note(state->lua, status);
		result = take_outcome(state, status, outcome, err);
		again = lua_limits_doubtful(state, was_dirty);
		evaluation_end(state, status);
		if (again) {
			thread_renew(state);
			collect(state);
		}
	} while (again);
	return result;
}

enum result expression_eval(struct expression_state *state, const struct expression_set *set,
			    const struct expression *expr, const struct expression_scope *scope,
			    struct arena *arena, msgpack_object *out, struct error *err)
{
	struct outcome outcome = {0};
	enum result result;

	assert(expr->kind == EXPRESSION_VALUE);
	result = evaluate(state, set, expr, scope, arena, &outcome, err);
	if (result == RESULT_OK)
		*out = outcome.value;
	return result;
}

enum result expression_run(struct expression_state *state, const struct expression_set *set,
			   const struct expression *script, const struct expression_scope *scope,
			   struct arena *arena, struct expression_assignment **out, size_t *count,
			   struct error *err)
{
	struct outcome outcome = {0};
	enum result result;

	assert(script->kind == EXPRESSION_SCRIPT);
	result = evaluate(state, set, script, scope, arena, &outcome, err);
	if (result == RESULT_OK) {
		*out = outcome.assignments;
		*count = state->assigned_count;
	}
	return result;
}

bool expression_truth(const msgpack_object *value)
{
	if (value_is_nil(value))
		return false;
	return value->type != MSGPACK_OBJECT_BOOLEAN || value->via.boolean;
}
