/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wake-ups: a commit that releases an instance or parks on a wait tells the intakes that hold a delivery for it, so that
 * the hold need not sit out its backoff. A hint only: the backoff is behind it.
 *
 * Keys are instance ids (released) and wait keys (parked). Beside that a commit that parks asks the database for early messages
 * of any replica (early.h); what it finds is told to the intakes of their channel here. Life cycle: wake_new, wake_free after all loops have ended.
 * Threads: any. One leaf lock; with nothing held a wake_fire costs one atomic load.
 */
#ifndef SUTRA_FLOW_WAKE_H
#define SUTRA_FLOW_WAKE_H

#include "base/id.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/str.h"

struct wake;

/* An early message: its order key, and who keeps it (absent = nobody). */
struct wake_early {
	struct str tenant, channel;
	struct id order_key;
	struct str keeper;
};

/* What is told: `woken` runs on `loop` with the key. */
struct wake_target {
	struct loop *loop;
	void (*woken)(struct wake_target *target, struct id key);
	/* Of those that have joined: an early message of this place is wanted. */
	void (*early)(struct wake_target *target, struct id order_key, struct str keeper);
	struct str tenant, channel;
	struct list link;
};

struct wake *wake_new(void);
void wake_free(struct wake **wake);
/* The target wants to hear of the key. Counted: every interest is to be dropped once. @locks wake */
void wake_interest(struct wake *wake, struct id key, struct wake_target *target);
void wake_drop(struct wake *wake, struct id key, struct wake_target *target);
/* The target wants to hear of early messages of its channel; until it leaves. @locks wake */
void wake_join(struct wake *wake, struct wake_target *target);
void wake_leave(struct wake *wake, struct wake_target *target);
/* Tells the targets of the message's channel. @locks wake */
void wake_early(struct wake *wake, const struct wake_early *early);
/* @locks wake */
void wake_fire(struct wake *wake, struct id key);

#endif
