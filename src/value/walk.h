/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks over values without recursion, so that no depth of nesting can exhaust a thread's stack. Private to src/value.
 *
 * A map's members lie in memory as key, value, key, value: a container of either kind is one run of objects.
 *
 * Life cycle: value_walk_init, value_walk_next until NULL, value_walk_done (frees what deep nesting needed).
 * Threads: pure functions.
 */
#ifndef SUTRA_VALUE_WALK_H
#define SUTRA_VALUE_WALK_H

#include "value/value.h"

static_assert(sizeof(msgpack_object_kv) == 2 * sizeof(msgpack_object) &&
		      offsetof(msgpack_object_kv, val) == sizeof(msgpack_object),
	      "the members of a map are one run of objects");

/* The objects of a container that are still to be visited. */
struct value_frame {
	msgpack_object *first;
	msgpack_object *next;
	msgpack_object *end;
	bool is_map;
};

#define VALUE_WALK_INLINE 24

struct value_walk {
	struct value_frame *frames; /* NULL or on the heap once `inline_frames` are too few */
	size_t depth;
	size_t cap;
	msgpack_object *
		last; /* entered by the next step, so that the visitor may replace its children first */
	struct value_frame inline_frames[VALUE_WALK_INLINE];
};

/* The children of a container as one run; empty for scalars. */
static inline struct value_frame value_children(const msgpack_object *value)
{
	struct value_frame frame = {NULL, NULL, NULL, false};

	if (value->type == MSGPACK_OBJECT_ARRAY && value->via.array.size > 0) {
		frame.first = value->via.array.ptr;
		frame.end = frame.first + value->via.array.size;
	} else if (value->type == MSGPACK_OBJECT_MAP && value->via.map.size > 0) {
		frame.first = &value->via.map.ptr->key;
		frame.end = frame.first + 2 * (size_t)value->via.map.size;
		frame.is_map = true;
	}
	frame.next = frame.first;
	return frame;
}

/* NULL for a root: an empty stack, for walks that keep it themselves. */
void value_walk_init(struct value_walk *walk, const msgpack_object *root);
void value_walk_done(struct value_walk *walk);
/* The two ends of such a walk: pushes; the topmost frame. */
void value_walk_push(struct value_walk *walk, struct value_frame frame);
static inline struct value_frame *value_walk_top(struct value_walk *walk)
{
	return &(walk->frames ? walk->frames : walk->inline_frames)[walk->depth - 1];
}
/* The next object, parents before children, keys before their values; NULL at the end. */
msgpack_object *value_walk_next(struct value_walk *walk);

/*
 * Whether every key of a map's members occurs once; if not, `*duplicate` is one that does not. Never quadratic.
 * Keys must be STR.
 */
bool value_keys_unique(const msgpack_object_kv *members, uint32_t count,
		       struct str *duplicate) MUST_CHECK;
/* The error of a map that fails it. */
enum result value_duplicate_error(struct str key, struct error *err);

#endif
