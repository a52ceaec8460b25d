/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions and scripts: Lua 5.4 in a closed sandbox.
 *
 * Three objects:
 *   struct expression        one piece of source text, immutable, part of a deployment, shared by all threads;
 *   struct expression_set    all expressions of one deployment;
 *   struct expression_state  one Lua state with its allocator and limits; one per executor thread. Sets are loaded into
 *                            it when a view is flipped in and unloaded when it goes.
 *
 * Values are shown to Lua as read-only userdata views over the caller's arenas, not converted; a passed-through value is
 * the same value. Results are copied out into the arena given, and nothing made by an evaluation survives it.
 *
 * Errors: RESULT_REJECT with EXPRESSION_FAILED (line and message) or EXPRESSION_LIMIT; never the process, never a
 * longjmp out of here.
 * Threads: an expression_state belongs to one thread at a time. Sets are read-only once built.
 */
#ifndef SUTRA_VALUE_EXPRESSION_H
#define SUTRA_VALUE_EXPRESSION_H

#include "base/id.h"
#include "value/header.h"
#include "value/value.h"

enum expression_kind {
	EXPRESSION_VALUE,  /* what may follow `return` */
	EXPRESSION_SCRIPT, /* statements; may assign declared variables */
};

struct expression {
	enum expression_kind kind;
	struct str source;
	uint32_t index;	  /* position in its set */
	const char *file; /* for messages: the BPMN or channels file; borrowed from the deployment */
	int line;	  /* line in that file where the source begins */
};

struct expression_set {
	struct expression **items;
	uint32_t count;
};

struct expression_limits {
	uint64_t max_instructions; /* expression.max-instructions, 1 000 000 */
	size_t max_memory;	   /* expression.max-memory, 16 MiB live */
	size_t max_allocated;	   /* expression.max-allocated, 64 MiB in total over one evaluation */
	int64_t max_cpu_us;	   /* thread CPU time; 0 = not checked (the simulator) */
	int64_t (*cpu_us)(void);   /* NULL: the thread's CPU clock */
};
#define EXPRESSION_LIMITS_DEFAULT ((struct expression_limits){1000000, 16u << 20, 64u << 20, 1000000, NULL})

/* One top-level name an expression may see besides the library: a variable, the source's name, … */
struct expression_name {
	struct str name;
	const msgpack_object *value; /* NULL reads as nil */
};

/* Everything one evaluation sees. Borrowed for the call. */
struct expression_scope {
	const struct expression_name *names; /* later ones hide earlier ones of the same name */
	size_t name_count;
	const struct header_list *headers; /* `header`, case-insensitive; NULL = no message: every header is nil */
	/* `event.id`, `.type`, `.channel`, `.time`, `.key`; absent slices read as nil */
	struct {
		struct str id, type, channel, key;
		int64_t time_us; /* 0 = nil; else RFC 3339 text */
	} event;
	struct {
		struct str id;	    /* text */
		int64_t started_us;
	} instance;
	struct str process_id;
	struct str tenant;
	int64_t now_us; /* `now()`: the step's time, RFC 3339 text */
	struct str uuid_seed[4]; /* uuid(name) is a digest of these and the name; absent ones count too */
	/* For scripts: the variables that may be assigned. */
	const struct str *assignable;
	size_t assignable_count;
};

/* What a script assigned, in order of first assignment; last value each. In the arena of the call. */
struct expression_assignment {
	struct str name;
	msgpack_object value;
};

/* Never NULL. */
struct expression_state *expression_state_new(const struct expression_limits *limits);
void expression_state_free(struct expression_state **state);

/*
 * Compiles every expression of the set into the state. RESULT_FATAL if one does not compile (it was checked at load, so
 * this is our fault or exhaustion).
 */
enum result expression_state_load(struct expression_state *state, const struct expression_set *set,
				  struct error *err) MUST_CHECK;
/* Harmless if not loaded. */
void expression_state_unload(struct expression_state *state, const struct expression_set *set);

/* The expression's set must be loaded: `set` is that one. */
enum result expression_eval(struct expression_state *state, const struct expression_set *set,
			    const struct expression *expr, const struct expression_scope *scope,
			    struct arena *arena, msgpack_object *out, struct error *err) MUST_CHECK;
enum result expression_run(struct expression_state *state, const struct expression_set *set,
			   const struct expression *script, const struct expression_scope *scope,
			   struct arena *arena, struct expression_assignment **out, size_t *count,
			   struct error *err) MUST_CHECK;

/* Lua's truth: everything but nil and false. */
bool expression_truth(const msgpack_object *value);

struct expression_finding {
	int line, column; /* within the source, from 1 */
	char text[240];
};

/*
 * At load: syntax, and that every global name read is one of `names` or of the library, every name assigned by a script one
 * of `assignable`. Returns how many findings there are (0 = clean) and fills at most `max`.
 */
size_t expression_check(const struct expression *expr, const struct str *names, size_t name_count,
			const struct str *assignable, size_t assignable_count,
			struct expression_finding *findings, size_t max);

#endif
