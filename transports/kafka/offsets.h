/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which offsets of one partition are finished, in one assignment: the watermark is where the next owner must begin so that
 * nothing unfinished is lost.
 *
 * Offsets are added as records are delivered, in ascending order as a rule, with any holes between them (control records,
 * compaction), and finished in any order. Only what was added counts: nothing is inferred from neighbours.
 * Cost: adding and the watermark O(1) amortised, finishing O(log n), O(1) where there are no holes. Memory: 8 bytes for each
 * offset between the watermark and the last one added.
 *
 * Life cycle: offsets_init/offsets_done; all zero is empty. Threads: one at a time.
 */
#ifndef SUTRA_TRANSPORTS_KAFKA_OFFSETS_H
#define SUTRA_TRANSPORTS_KAFKA_OFFSETS_H

#include "base/attr.h"

struct offsets {
	uint64_t *ring; /* offset × 2, + 1 when finished; the first is never finished */
	size_t head;
	size_t count;
	size_t cap;  /* a power of two */
	int64_t next; /* last added + 1 */
	bool any;     /* something was ever added */
};

void offsets_init(struct offsets *offsets);
void offsets_done(struct offsets *offsets);
enum offsets_added {
	OFFSETS_NEW,
	OFFSETS_AGAIN, /* it is tracked already, finished or not; nothing changed */
	OFFSETS_BELOW, /* it is below the watermark; nothing changed */
};
/* One that is not above all others is unusual (the partition went back), and costs O(n) if it was not there before. */
enum offsets_added offsets_add(struct offsets *offsets, int64_t offset) MUST_CHECK;
/* The offset was added and is not finished: anything else is an error of the caller. */
void offsets_finish(struct offsets *offsets, int64_t offset);
/* The lowest unfinished offset; when there is none, the last added + 1; -1 if none was ever added. */
int64_t offsets_watermark(const struct offsets *offsets);
/* From the watermark to the last one added + 1: what would be read again. */
int64_t offsets_span(const struct offsets *offsets);

#endif
