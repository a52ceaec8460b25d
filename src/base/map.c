/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash maps: chains over a power of two of slots, with all entries in one list by insertion. Iterating the list and
 * not the slots is what keeps a run independent of hashes.
 */
#include "base/map.h"

#include <stdlib.h>

#include "base/alloc.h"

#define MAP_SLOTS_MIN 16

uint64_t hash_bytes(const void *bytes, size_t len)
{
	const unsigned char *p = bytes;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
	/* FNV leaves the high bits of short keys poor; the finalizer spreads each bit over all. */
	hash ^= hash >> 33;
	hash *= UINT64_C(0xff51afd7ed558ccd);
	hash ^= hash >> 33;
	hash *= UINT64_C(0xc4ceb9fe1a85ec53);
	hash ^= hash >> 33;
	return hash;
}

void map_init(struct map *map)
{
	memset(map, 0, sizeof(*map));
}

void map_done(struct map *map)
{
	struct map_entry *entry = map_first(map);

	while (entry) {
		struct map_entry *next = map_next(map, entry);

		free(entry);
		entry = next;
	}
	free(map->slots);
	map_init(map);
}

/* Where the pointer to the entry stands, or the NULL at the end of its chain. */
static struct map_entry **find(const struct map *map, uint64_t hash, struct str key)
{
	struct map_entry **at = &map->slots[hash & (map->slot_count - 1)];

	while (*at && !((*at)->hash == hash && str_equal(str_make((*at)->key, (*at)->key_len), key)))
		at = &(*at)->chain;
	return at;
}

static void grow(struct map *map)
{
	size_t slot_count = map->slot_count ? map->slot_count * 2 : MAP_SLOTS_MIN;

	if (!map->slots)
		list_init(&map->order);
	free(map->slots);
	map->slots = mem_zalloc(slot_count * sizeof(*map->slots));
	map->slot_count = slot_count;
	for (struct map_entry *entry = map_first(map); entry; entry = map_next(map, entry)) {
		struct map_entry **slot = &map->slots[entry->hash & (slot_count - 1)];

		entry->chain = *slot;
		*slot = entry;
	}
}

void *map_get(const struct map *map, struct str key)
{
	struct map_entry *entry;

	if (!map->count)
		return NULL;
	entry = *find(map, hash_bytes(key.ptr, key.len), key);
	return entry ? entry->value : NULL;
}

void *map_put(struct map *map, struct str key, void *value)
{
	uint64_t hash = hash_bytes(key.ptr, key.len);
	struct map_entry **at, *entry;

	assert(value);
	if (map->count >= map->slot_count)
		grow(map);
	at = find(map, hash, key);
	if (*at) {
		void *old = (*at)->value;

		(*at)->value = value;
		return old;
	}
	entry = mem_alloc(sizeof(*entry) + key.len);
	entry->chain = NULL;
	entry->hash = hash;
	entry->value = value;
	entry->key_len = key.len;
	if (key.len)
		memcpy(entry->key, key.ptr, key.len);
	*at = entry;
	list_push(&map->order, &entry->order);
	map->count++;
	return NULL;
}

void *map_remove(struct map *map, struct str key)
{
	struct map_entry **at, *entry;
	void *value;

	if (!map->count)
		return NULL;
	at = find(map, hash_bytes(key.ptr, key.len), key);
	entry = *at;
	if (!entry)
		return NULL;
	*at = entry->chain;
	list_remove(&entry->order);
	map->count--;
	value = entry->value;
	free(entry);
	return value;
}

struct map_entry *map_first(const struct map *map)
{
	return map->count ? list_entry(map->order.next, struct map_entry, order) : NULL;
}

struct map_entry *map_next(const struct map *map, struct map_entry *entry)
{
	if (entry->order.next == &map->order)
		return NULL;
	return list_entry(entry->order.next, struct map_entry, order);
}
