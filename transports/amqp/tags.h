/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delivery tags of one channel, from delivery to the answer that the broker is sent. Settles are collected and answered in
 * few frames: the whole run at the low end by one ack for all up to a tag, what stands behind a hole one by one, or later.
 *
 * Life cycle: tags_init, tags_done. Threads: one at a time.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_TAGS_H
#define SUTRA_TRANSPORTS_AMQP_TAGS_H

#include "base/attr.h"

enum tag_settle { TAG_DONE, TAG_BACK };

struct tags {
	uint64_t low;	 /* the first tag in `states` */
	uint8_t *states; /* a ring */
	size_t start, count, cap;
	uint64_t *settled; /* and not answered, in order of settling */
	size_t settled_count, settled_cap;
	size_t back_count; /* of them */
};

struct tags_out {
	void (*ack)(void *user, uint64_t tag, bool multiple);
	void (*nack)(void *user, uint64_t tag);
	void *user;
};

void tags_init(struct tags *tags);
void tags_done(struct tags *tags);
/* A delivery; tags ascend from 1. */
void tags_add(struct tags *tags, uint64_t tag);
/* Once for a tag that was added. */
void tags_settle(struct tags *tags, uint64_t tag, enum tag_settle how);
/* Whether a tag has not been answered yet. */
bool tags_are_out(const struct tags *tags);
enum tags_flush {
	TAGS_RUN = 0,	/* the run alone */
	TAGS_HOLES = 1, /* what is done behind a hole too; else it is kept, and most of it is in a later run */
	TAGS_BACK = 2,	/* what goes back too, for which the rest must be out before */
};
/* Answers what was settled: acks first, then what goes back, in ascending order. */
void tags_flush(struct tags *tags, enum tags_flush what, const struct tags_out *out);
/* How many are done or go back and have not been answered. */
size_t tags_kept(const struct tags *tags);

#endif
