/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hold: a delivery whose work was refused, or that nobody waits for yet, stays the broker's, unacknowledged. It writes nothing
 * and costs the broker nothing (G7). It is tried again the moment this replica's own lanes release the instance, or park on a
 * wait, that it is for (wake.h), else after a backoff that doubles from refusal.backoff.min to .max, with jitter over its upper
 * half so that replicas do not march in step.
 *
 * Every hold has an end. A channel may hold half of max-in-flight and 64 MiB (what is behind a held delivery in its chain
 * counts too), each delivery for refusal.hold and a third of the broker's consumer timeout, and a partition may be 50 000
 * offsets ahead of one. At a bound the oldest chain is kept by the database (keep.h) and settled, so that what comes behind it,
 * and may free it, is received.
 *
 * Threads: the intake's loop.
 */
#ifndef SUTRA_FLOW_HOLD_H
#define SUTRA_FLOW_HOLD_H

#include "flow/delivery.h"

#define HOLD_BYTES_MAX (UINT64_C(64) << 20)

/* Holds the delivery, for what its request was answered. */
void hold_begin(struct delivery *dlv);
/* Out of HELD: stops the backoff, forgets what may wake it. */
void hold_end(struct delivery *dlv);
/* A wake-up for this key. */
void hold_woken(struct intake *intake, struct id key);
/* A delivery has come: does it put something past a bound? */
void hold_received(struct delivery *dlv);
/* A delivery has come to stand behind others: an early message that it waits for is not let sleep any more. */
void hold_followed(const struct delivery *dlv);
/* Keeps the oldest chains until what is parked is within the bounds of the channel. */
void hold_bounds(struct intake *intake);

#endif
