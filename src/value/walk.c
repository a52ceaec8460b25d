/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack under every walk over a value, and the check for duplicate keys.
 *
 * Values nest as deep as codec.max-depth lets them, which is the operator's to set; a recursive walk would make that
 * setting a way to crash the process. The first two dozen levels need no heap.
 */
#include "value/walk.h"

#include "base/alloc.h"

/* Up to this many keys comparing each with each is cheaper than sorting. */
#define KEYS_PAIRWISE 16

void value_walk_push(struct value_walk *walk, struct value_frame frame)
{
	if (walk->depth == walk->cap) {
		size_t cap = walk->cap * 2;
		bool first = !walk->frames;

		walk->frames = mem_array(walk->frames, cap, sizeof(*walk->frames));
		if (first)
			memcpy(walk->frames, walk->inline_frames, sizeof(walk->inline_frames));
		walk->cap = cap;
	}
	walk->depth++;
	*value_walk_top(walk) = frame;
}

void value_walk_init(struct value_walk *walk, const msgpack_object *root)
{
	/* Only a visitor that owns the objects writes to them; the others hand in const ones and leave them so. */
	msgpack_object *first = (msgpack_object *)root;

	walk->frames = NULL;
	walk->depth = 0;
	walk->cap = VALUE_WALK_INLINE;
	walk->last = NULL;
	if (root)
		value_walk_push(walk, (struct value_frame){first, first, first + 1, false});
}

void value_walk_done(struct value_walk *walk)
{
	free(walk->frames);
	walk->frames = NULL;
	walk->depth = 0;
}

msgpack_object *value_walk_next(struct value_walk *walk)
{
	if (walk->last) {
		struct value_frame children = value_children(walk->last);

		if (children.first)
			value_walk_push(walk, children);
		walk->last = NULL;
	}
	while (walk->depth > 0) {
		struct value_frame *top = value_walk_top(walk);

		if (top->next < top->end)
			return walk->last = top->next++;
		walk->depth--;
	}
	return NULL;
}

static struct str key_of(const msgpack_object_kv *member)
{
	return str_make(member->key.via.str.ptr, member->key.via.str.size);
}

/* Shorter first: most pairs are decided without looking at the bytes. */
static int key_compare(const void *a, const void *b)
{
	const struct str *x = a;
	const struct str *y = b;

	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->len == 0 ? 0 : memcmp(x->ptr, y->ptr, x->len);
}

/*
 * Sorted, not hashed: the hash of base/map.h is the same on every machine, so a sender could prepare keys that all
 * collide. The memory is bounded by the reader's limit on values.
 */
static bool keys_unique_sorted(const msgpack_object_kv *members, uint32_t count,
			       struct str *duplicate)
{
	struct str *keys = mem_array(NULL, count, sizeof(*keys));
	bool unique = true;

	for (uint32_t i = 0; i < count; i++)
		keys[i] = key_of(&members[i]);
	qsort(keys, count, sizeof(*keys), key_compare);
	for (uint32_t i = 1; i < count && unique; i++) {
		if (str_equal(keys[i - 1], keys[i])) {
			*duplicate = keys[i];
			unique = false;
		}
	}
	free(keys);
	return unique;
}

bool value_keys_unique(const msgpack_object_kv *members, uint32_t count, struct str *duplicate)
{
	if (count > KEYS_PAIRWISE)
		return keys_unique_sorted(members, count, duplicate);
	for (uint32_t i = 1; i < count; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (str_equal(key_of(&members[i]), key_of(&members[j]))) {
				*duplicate = key_of(&members[i]);
				return false;
			}
		}
	}
	return true;
}

enum result value_duplicate_error(struct str key, struct error *err)
{
	/* A sender's key may be of any length; show its head, cut between characters. */
	if (key.len > 64) {
		key.len = 64;
		while (key.len > 0 && ((unsigned char)key.ptr[key.len] & 0xc0) == 0x80)
			key.len--;
	}
	return error_set(err, RESULT_REJECT, CODE_PARSE_DUPLICATE_KEY,
			 "the key \"%.*s\" occurs twice in one map", STR_ARG(key));
}
