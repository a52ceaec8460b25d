/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash maps from bytes to pointers.
 *
 * Life cycle: map_init/map_done; all zero is an empty map. Keys are copied in, values are never owned.
 * Iteration is in order of insertion (removal keeps the order of the rest), so that nothing depends on addresses or on
 * the hash seed. Threads: one at a time.
 */
#ifndef SUTRA_BASE_MAP_H
#define SUTRA_BASE_MAP_H

#include "base/attr.h"
#include "base/list.h"
#include "base/str.h"

struct map_entry {
	struct list order;
	struct map_entry *chain;
	uint64_t hash;
	void *value;
	size_t key_len;
	char key[];
};

struct map {
	struct map_entry **slots;
	size_t slot_count;
	size_t count;
	struct list order;
};

void map_init(struct map *map);
/* Frees entries and keys, not values. */
void map_done(struct map *map);
/* NULL if absent. */
void *map_get(const struct map *map, struct str key);
/* Sets or replaces; returns the value that stood there, or NULL. `value` must not be NULL. */
void *map_put(struct map *map, struct str key, void *value);
/* Takes out; returns the value, or NULL if absent. */
void *map_remove(struct map *map, struct str key);
/* First entry, or NULL; then map_next. The entry just returned may be removed before map_next only if `next` was
 * fetched already. */
struct map_entry *map_first(const struct map *map);
struct map_entry *map_next(const struct map *map, struct map_entry *entry);

/* A stable 64-bit hash (FNV-1a with a finalizer): the same on every machine and run; used for lane routing too. */
uint64_t hash_bytes(const void *bytes, size_t len);

#endif
