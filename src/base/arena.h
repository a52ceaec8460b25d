/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: memory that ends all at once. A thin cover over msgpack-c's zones, so that the trees of
 * value/value.h and everything else of one lifetime sit in one place.
 *
 * Life cycle: arena_init/arena_done for an embedded one. arena_reset empties it and keeps the first chunk.
 * Allocation never fails: a refused small allocation ends the process; input-sized ones must have been
 * bounded by the caller, or use arena_try_alloc.
 * Threads: one at a time; ownership travels with the object that embeds it.
 */
#ifndef SUTRA_BASE_ARENA_H
#define SUTRA_BASE_ARENA_H

#include <msgpack.h>
#include <stdarg.h>

#include "base/attr.h"
#include "base/str.h"

struct arena {
	msgpack_zone zone;
};

void arena_init(struct arena *arena);
/* Frees everything; accepts an all-zero arena; leaves it all zero. */
void arena_done(struct arena *arena);
void arena_reset(struct arena *arena);

/* Aligned for any type, not cleared. Never NULL. */
void *arena_alloc(struct arena *arena, size_t size);
/* Cleared. */
void *arena_zalloc(struct arena *arena, size_t size);
/* NULL if the system refuses: for sizes that come from input. */
void *arena_try_alloc(struct arena *arena, size_t size) MUST_CHECK;
void *arena_memdup(struct arena *arena, const void *src, size_t size);
/* A terminated copy. */
char *arena_strdup(struct arena *arena, const char *text);
/* A copy of `s`, terminated behind its end, so `.ptr` may be given to C functions if it holds no NUL. */
struct str arena_str(struct arena *arena, struct str s);
char *arena_printf(struct arena *arena, const char *fmt, ...) PRINTF_LIKE(2, 3);
char *arena_vprintf(struct arena *arena, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);

#endif
