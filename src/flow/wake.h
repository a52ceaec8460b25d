/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wake-ups: a commit that releases an instance or parks on a wait tells the intakes that hold a delivery for it, so that
 * the hold need not sit out its backoff. A hint only: the backoff is behind it.
 *
 * Keys are instance ids (released) and wait keys (parked). Life cycle: wake_new, wake_free after all loops have ended.
 * Threads: any. One leaf lock; with nothing held a wake_fire costs one atomic load.
 */
#ifndef SUTRA_FLOW_WAKE_H
#define SUTRA_FLOW_WAKE_H

#include "base/id.h"
#include "base/loop.h"

struct wake;

/* What is told: `woken` runs on `loop` with the key. */
struct wake_target {
	struct loop *loop;
	void (*woken)(struct wake_target *target, struct id key);
};

struct wake *wake_new(void);
void wake_free(struct wake **wake);
/* The target wants to hear of the key. Counted: every interest is to be dropped once. @locks wake */
void wake_interest(struct wake *wake, struct id key, struct wake_target *target);
void wake_drop(struct wake *wake, struct id key, struct wake_target *target);
/* @locks wake */
void wake_fire(struct wake *wake, struct id key);

#endif
