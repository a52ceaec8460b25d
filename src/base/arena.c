/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas over msgpack-c's zones. The zone's own allocator aligns to a pointer; ours aligns to max_align_t, because
 * everything of one lifetime lives here, not only values.
 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdio.h>

#include "base/alloc.h"

#define ARENA_ALIGN alignof(max_align_t)

/* As msgpack_zone_init, but for the first chunk, which comes with the first allocation: many arenas are never used. */
void arena_init(struct arena *arena)
{
	memset(arena, 0, sizeof(*arena));
	arena->zone.chunk_size = MSGPACK_ZONE_CHUNK_SIZE;
}

void arena_done(struct arena *arena)
{
	if (arena->zone.chunk_list.head)
		msgpack_zone_destroy(&arena->zone);
	memset(arena, 0, sizeof(*arena));
}

void arena_reset(struct arena *arena)
{
	if (arena->zone.chunk_list.head)
		msgpack_zone_clear(&arena->zone);
}

static size_t padding_of(const char *ptr)
{
	return -(uintptr_t)ptr & (ARENA_ALIGN - 1);
}

void *arena_try_alloc(struct arena *arena, size_t size)
{
	msgpack_zone_chunk_list *list = &arena->zone.chunk_list;
	size_t padding = padding_of(list->ptr);
	char *ptr;

	/* The zone doubles its chunk size until it fits; past half the address space that never ends. */
	if (size > PTRDIFF_MAX / 2)
		return NULL;
	if (list->ptr && list->free >= size + padding) {
		ptr = list->ptr + padding;
		list->ptr += size + padding;
		list->free -= size + padding;
		return ptr;
	}
	ptr = msgpack_zone_malloc_expand(&arena->zone, size + ARENA_ALIGN - 1);
	return ptr ? ptr + padding_of(ptr) : NULL;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	void *ptr = arena_try_alloc(arena, size);

	if (!ptr)
		mem_exhausted(size);
	return ptr;
}

void *arena_zalloc(struct arena *arena, size_t size)
{
	return memset(arena_alloc(arena, size), 0, size);
}

void *arena_memdup(struct arena *arena, const void *src, size_t size)
{
	void *copy = arena_alloc(arena, size);

	if (size)
		memcpy(copy, src, size);
	return copy;
}

char *arena_strdup(struct arena *arena, const char *text)
{
	return arena_memdup(arena, text, strlen(text) + 1);
}

struct str arena_str(struct arena *arena, struct str s)
{
	char *copy;

	if (!s.ptr)
		return STR_NONE;
	copy = arena_alloc(arena, s.len + 1);
	memcpy(copy, s.ptr, s.len);
	copy[s.len] = '\0';
	return str_make(copy, s.len);
}

char *arena_vprintf(struct arena *arena, const char *fmt, va_list ap)
{
	va_list again;
	char *text;
	int len;

	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	assert(len >= 0);
	text = arena_alloc(arena, (size_t)len + 1);
	vsnprintf(text, (size_t)len + 1, fmt, again);
	va_end(again);
	return text;
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = arena_vprintf(arena, fmt, ap);
	va_end(ap);
	return text;
}
