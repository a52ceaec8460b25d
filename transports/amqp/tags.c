/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of one byte a tag between the lowest that is not answered and the newest, and a list of what was settled since the last
 * flush: a flush costs what it answers or keeps and not what the window holds.
 */
#include "transports/amqp/tags.h"

#include "base/alloc.h"

enum tag_state { TAG_STATE_OUT, TAG_STATE_DONE, TAG_STATE_BACK, TAG_STATE_ANSWERED };

void tags_init(struct tags *tags)
{
	*tags = (struct tags){.low = 1};
}

void tags_done(struct tags *tags)
{
	free(tags->states);
	free(tags->settled);
	tags_init(tags);
}

static uint8_t *state_at(struct tags *tags, uint64_t tag)
{
	assert(tag >= tags->low && tag - tags->low < tags->count);
	return &tags->states[(tags->start + (tag - tags->low)) % tags->cap];
}

static void grow(struct tags *tags)
{
	size_t cap = tags->cap ? tags->cap * 2 : 64;
	uint8_t *states = mem_alloc(cap);

	for (size_t i = 0; i < tags->count; i++)
		states[i] = tags->states[(tags->start + i) % tags->cap];
	free(tags->states);
	tags->states = states;
	tags->start = 0;
	tags->cap = cap;
}

static void push(struct tags *tags, enum tag_state state)
{
	if (tags->count == tags->cap)
		grow(tags);
	tags->count++;
	*state_at(tags, tags->low + tags->count - 1) = (uint8_t)state;
}

void tags_add(struct tags *tags, uint64_t tag)
{
	assert(tag >= tags->low + tags->count);
	if (!tags->count)
		tags->low = tag;
	while (tag > tags->low + tags->count)
		push(tags, TAG_STATE_ANSWERED);
	push(tags, TAG_STATE_OUT);
}

void tags_settle(struct tags *tags, uint64_t tag, enum tag_settle how)
{
	uint8_t *state = state_at(tags, tag);

	assert(*state == TAG_STATE_OUT);
	*state = how == TAG_DONE ? TAG_STATE_DONE : TAG_STATE_BACK;
	if (tags->settled_count == tags->settled_cap) {
		tags->settled_cap = tags->settled_cap ? tags->settled_cap * 2 : 64;
		tags->settled = mem_array(tags->settled, tags->settled_cap, sizeof(*tags->settled));
	}
	tags->settled[tags->settled_count++] = tag;
	tags->back_count += how == TAG_BACK;
}

/* Takes answered tags off the low end; returns the last that was done, or 0, and whether there was more than one. */
static uint64_t pop_run(struct tags *tags, bool *multiple)
{
	uint64_t last = 0;

	*multiple = false;
	while (tags->count) {
		uint8_t state = *state_at(tags, tags->low);

		if (state != TAG_STATE_DONE && state != TAG_STATE_ANSWERED)
			break;
		if (state == TAG_STATE_DONE) {
			*multiple = last != 0;
			last = tags->low;
		}
		tags->low++;
		tags->count--;
		tags->start = (tags->start + 1) % tags->cap;
	}
	return last;
}

bool tags_are_out(const struct tags *tags)
{
	for (size_t i = 0; i < tags->count; i++) {
		uint8_t state = tags->states[(tags->start + i) % tags->cap];

		if (state != TAG_STATE_ANSWERED)
			return true;
	}
	return false;
}

static int by_tag(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void flush_back(struct tags *tags, const struct tags_out *out)
{
	bool multiple;

	qsort(tags->settled, tags->settled_count, sizeof(*tags->settled), by_tag);
	for (size_t i = 0; i < tags->settled_count; i++) {
		out->nack(out->user, tags->settled[i]);
		*state_at(tags, tags->settled[i]) = TAG_STATE_ANSWERED;
	}
	tags->settled_count = tags->back_count = 0;
	pop_run(tags, &multiple);
}

size_t tags_kept(const struct tags *tags)
{
	return tags->settled_count;
}

void tags_flush(struct tags *tags, enum tags_flush what, const struct tags_out *out)
{
	bool with_back = (what & TAGS_BACK) && tags->back_count;
	bool with_holes = (what & TAGS_HOLES) || with_back;
	bool multiple;
	uint64_t last = pop_run(tags, &multiple);
	size_t kept = 0;

	if (last)
		out->ack(out->user, last, multiple);
	for (size_t i = 0; i < tags->settled_count; i++) {
		uint64_t tag = tags->settled[i];

		if (tag < tags->low)
			continue; /* in the run */
		if (*state_at(tags, tag) == TAG_STATE_BACK || !with_holes) {
			tags->settled[kept++] = tag;
			continue;
		}
		out->ack(out->user, tag, false);
		*state_at(tags, tag) = TAG_STATE_ANSWERED;
	}
	tags->settled_count = kept;
	if (with_back)
		flush_back(tags, out);
}
