/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the expression evaluator share; nobody outside src/value includes it.
 *
 * Functions that take a lua_State run inside an evaluation and may leave by lua_error. Such a jump passes no destructor,
 * so everything they hold must sit in the Lua heap, in the arena of the call, or in the state's scratch buffer, which is
 * cut back to its mark by whoever catches. Functions that take a struct expression_state never jump.
 */
#ifndef SUTRA_VALUE_LUA_INTERNAL_H
#define SUTRA_VALUE_LUA_INTERNAL_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/time.h"
#include "value/expression.h"

/* Containers inside containers in what an evaluation gives back: what the codecs write and a snapshot reads. */
#define EXPRESSION_MAX_DEPTH 128

enum expression_breach {
	BREACH_NONE,
	BREACH_INSTRUCTIONS,
	BREACH_MEMORY,
	BREACH_ALLOCATED,
	BREACH_CPU,
	BREACH_RECURSION, /* an error while handling a stack overflow */
};

/* `event`, `instance` and `process` as maps, made when first asked for. */
struct expression_record {
	msgpack_object object;
	msgpack_object_kv fields[5];
	char time[TIME_TEXT_SIZE];
	bool built;
};

struct expression_loaded {
	const struct expression_set *set;
	int ref; /* registry reference to the list of compiled functions */
};

struct expression_state {
	lua_State *main;
	lua_State *lua; /* the thread that evaluations run on; renewed after one that grew it */
	int lua_ref;
	struct expression_limits limits;
	struct expression_loaded *loaded;
	size_t loaded_count;

	/* Memory, in bytes. The bounds are relative to what the loaded sets take. */
	size_t in_use;
	size_t baseline;
	size_t allocated; /* by this evaluation, never reduced */
	size_t peak;      /* highest in_use of this evaluation */
	bool armed;       /* the bounds hold: an evaluation runs */
	bool refused; /* the last growth was refused; the next request is Lua's second try after a collection */
	bool dirty; /* garbage of earlier evaluations may be about */

	/* Steps and time. */
	int64_t budget;
	uint64_t unclocked; /* steps since the clock was read */
	int64_t cpu_start;
	bool cpu_started;
	enum expression_breach breach; /* sticky for the rest of the evaluation */
	int error_line;

	/* The evaluation's surroundings, borrowed for the call. */
	const struct expression *expr;
	const struct expression_scope *scope;
	struct arena *arena;
	struct expression_record event, instance, process;
	msgpack_object header; /* its address is the view of all headers; a map once built */
	bool header_built;
	msgpack_object null;  /* its address is `null` */
	struct map binaries;  /* byte strings read so far: they go out as such */
	struct str *assigned; /* names a script assigned, in order; the values are in a Lua table */
	size_t assigned_count;

	struct buf scratch; /* a stack of texts under construction */
};

static inline struct expression_state *lua_state_of(lua_State *L)
{
	return *(struct expression_state **)lua_getextraspace(L);
}

/* lua_limits.c */

void *lua_limits_alloc(void *arg, void *ptr, size_t old_size, size_t new_size);
/* Zeroes the counters of one evaluation and sets the hook. */
void lua_limits_begin(struct expression_state *state);
void lua_limits_end(struct expression_state *state);
/* Whether the verdict may have depended on garbage of earlier evaluations, so that it has to be repeated clean. */
bool lua_limits_doubtful(const struct expression_state *state, bool was_dirty);
/* Counts steps of a library function as instructions. False and a breach when there are none left. */
bool lua_limits_spend(struct expression_state *state, uint64_t steps);
/* Counts bytes that an evaluation takes outside the Lua heap. */
bool lua_limits_spend_bytes(struct expression_state *state, size_t bytes);
/* The same inside an evaluation, leaving it on a breach. */
void lua_limits_charge(lua_State *L, uint64_t steps);
void lua_limits_charge_bytes(lua_State *L, size_t bytes);
/* Makes sure that a stock function can take `bytes`, by a collection if need be; leaves on a breach. */
void lua_limits_make_room(lua_State *L, size_t bytes);
NORETURN void lua_limits_breach(lua_State *L, enum expression_breach breach);
/* After a protected call that ended with `status` and the error value on top: notes what is a breach. */
void lua_limits_note(lua_State *L, int status);
void lua_limits_describe(const struct expression_state *state, struct buf *out);
/* Scratch: bounded like the heap. lua_scratch_push makes a Lua string of all behind `mark` and cuts back. */
void lua_scratch_add(lua_State *L, const void *bytes, size_t len);
void lua_scratch_push(lua_State *L, size_t mark);

/* lua_view.c */

void lua_view_install(lua_State *L);
/* Pushes a value as the reader of a named field sees it: null is nil. NULL is nil. */
void lua_view_push(lua_State *L, const msgpack_object *value);
/* As an element or in a walk: null is `null`, so that places and keys are kept. */
void lua_view_push_element(lua_State *L, const msgpack_object *value);
void lua_view_push_text(lua_State *L, struct str text);
/* `event`, `instance`, `process`, `header`, `null`; false if the name is none of them. */
bool lua_view_push_fixed(lua_State *L, struct str name);
/* The container under the view at `index`, with the headers built, or NULL if there is no view there. */
const msgpack_object *lua_view_at(lua_State *L, int index);
bool lua_is_null(lua_State *L, int index);
/* A new list, marked so that it stays one when empty. */
void lua_list_new(lua_State *L, size_t room);
bool lua_is_list(lua_State *L, int index);

/* lua_result.c: copies the value at `index` into the arena of the call. False and a static text if it cannot be done. */
bool lua_result_copy(lua_State *L, int index, msgpack_object *out, const char **problem);

/* lua_walk.c: containers in their fixed order. */

struct lua_walk {
	const msgpack_object *view; /* NULL: a Lua table */
	uint32_t list_count;        /* elements 1..n come first */
	uint32_t key_count;         /* then the keys, in order */
	uint32_t order[];           /* of a map's entries */
};

/* Pushes a walk (a userdata) over the container or nil at `arg`; an error for anything else. */
struct lua_walk *lua_walk_new(lua_State *L, int arg);
static inline uint32_t lua_walk_count(const struct lua_walk *walk)
{
	return walk->list_count + walk->key_count;
}
/* Whether it is to be taken for a list; an empty table is. */
static inline bool lua_walk_is_list(const struct lua_walk *walk)
{
	return walk->key_count == 0 && !(walk->view && walk->view->type == MSGPACK_OBJECT_MAP);
}
/* Pushes key and value at `position` (from 0) of the walk at stack index `index`. */
void lua_walk_get(lua_State *L, int index, uint32_t position);
int lua_pairs(lua_State *L);

/* The library; each pushes or fills what the table on top offers. */

int lua_environment_index(lua_State *L); /* upvalue 1: the library's table */
int lua_environment_assign(lua_State *L);
void lua_library_install(lua_State *L);
void lua_library_fill(lua_State *L); /* lua_functions.c: len map filter … into the table on top */
void lua_string_install(
	lua_State *L);                /* pushes the table `string`, sets the metatable of strings */
void lua_utf8_install(lua_State *L);  /* pushes the table `utf8` */
void lua_table_install(lua_State *L); /* pushes the table `table` */
/* Wraps every stock function of the table on top so that the text it is given counts as steps. */
void lua_library_wrap(lua_State *L);
/* Replaces the table on top by a read-only stand-in. */
void lua_library_seal(lua_State *L, const char *name);
/* The text of an argument that is a string or a number. */
struct str lua_check_str(lua_State *L, int arg);
/* The element count of a table or list view at `arg`, and its elements, `null` for null. */
lua_Integer lua_sequence_len(lua_State *L, int arg);
void lua_sequence_get(lua_State *L, int arg, lua_Integer i);

/* lua_pattern.c: find match gmatch gsub into the table on top. */
void lua_pattern_fill(lua_State *L);

#endif
