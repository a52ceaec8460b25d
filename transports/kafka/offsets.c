/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The offset tracker (G1, G2): a ring of the offsets between the watermark and the last one delivered, in ascending order,
 * each with its "finished" bit. Finishing the first one moves the watermark over all finished ones behind it.
 *
 * A ring and not a tree: records come in order, so insertion is at the end and removal at the front; the only search is
 * for the one that finishes, and without holes its place follows from its distance to the first.
 */
#include "transports/kafka/offsets.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define RING_MIN 64

static uint64_t *at(const struct offsets *offsets, size_t index)
{
	return &offsets->ring[(offsets->head + index) & (offsets->cap - 1)];
}

static int64_t offset_at(const struct offsets *offsets, size_t index)
{
	return (int64_t)(*at(offsets, index) >> 1);
}

static bool is_finished(const struct offsets *offsets, size_t index)
{
	return *at(offsets, index) & 1;
}

void offsets_init(struct offsets *offsets)
{
	*offsets = (struct offsets){0};
}

void offsets_done(struct offsets *offsets)
{
	free(offsets->ring);
	*offsets = (struct offsets){0};
}

static void ring_grow(struct offsets *offsets)
{
	size_t cap = offsets->cap ? offsets->cap * 2 : RING_MIN;
	uint64_t *ring = mem_array(NULL, cap, sizeof(*ring));

	for (size_t i = 0; i < offsets->count; i++)
		ring[i] = *at(offsets, i);
	free(offsets->ring);
	offsets->ring = ring;
	offsets->cap = cap;
	offsets->head = 0;
}

/* The place of the offset, or `count`. Its distance to the first bounds it from above: holes only bring it nearer. */
static size_t ring_find(const struct offsets *offsets, int64_t offset)
{
	size_t low = 0, high = offsets->count;
	uint64_t distance;

	if (!offsets->count || offset < offset_at(offsets, 0))
		return offsets->count;
	distance = (uint64_t)(offset - offset_at(offsets, 0));
	if (distance < high) {
		if (offset_at(offsets, (size_t)distance) == offset)
			return (size_t)distance;
		high = (size_t)distance;
	}
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (offset_at(offsets, middle) < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < offsets->count && offset_at(offsets, low) == offset ? low : offsets->count;
}

/* Room for one more at the end. */
static void ring_reserve(struct offsets *offsets)
{
	if (offsets->count == offsets->cap)
		ring_grow(offsets);
}

/* A hole that is none: a record that was passed over comes after all. */
static void ring_insert(struct offsets *offsets, int64_t offset)
{
	size_t index = offsets->count;

	ring_reserve(offsets);
	offsets->count++;
	for (; index > 0 && offset_at(offsets, index - 1) > offset; index--)
		*at(offsets, index) = *at(offsets, index - 1);
	*at(offsets, index) = (uint64_t)offset << 1;
}

enum offsets_added offsets_add(struct offsets *offsets, int64_t offset)
{
	assert(offset >= 0);
	if (offsets->any && offset < offsets->next) {
		if (offset < offsets_watermark(offsets))
			return OFFSETS_BELOW;
		if (ring_find(offsets, offset) < offsets->count)
			return OFFSETS_AGAIN;
		ring_insert(offsets, offset);
		return OFFSETS_NEW;
	}
	ring_reserve(offsets);
	*at(offsets, offsets->count++) = (uint64_t)offset << 1;
	offsets->next = offset + 1;
	offsets->any = true;
	return OFFSETS_NEW;
}

void offsets_finish(struct offsets *offsets, int64_t offset)
{
	size_t index = ring_find(offsets, offset);

	assert(index < offsets->count && !is_finished(offsets, index));
	*at(offsets, index) |= 1;
	while (offsets->count && is_finished(offsets, 0)) {
		offsets->head = (offsets->head + 1) & (offsets->cap - 1);
		offsets->count--;
	}
}

int64_t offsets_watermark(const struct offsets *offsets)
{
	if (!offsets->any)
		return -1;
	return offsets->count ? offset_at(offsets, 0) : offsets->next;
}

int64_t offsets_span(const struct offsets *offsets)
{
	return offsets->any ? offsets->next - offsets_watermark(offsets) : 0;
}
