/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commit: from the effects of a step, or from a rejection, to the one element that the store writes.
 *
 * Life cycle: everything is in the turn's arena, but for the outbox rows, which sit in the turn's parcel and outlive it.
 * Threads: the lane's executor; pure but for what it is given.
 */
#ifndef SUTRA_FLOW_COMMIT_H
#define SUTRA_FLOW_COMMIT_H

#include "flow/lane.h"

/*
 * Fills turn->ask.commit from turn->step: instance, waits, aliases, outbox rows, inbox rows, and for a failed step its dead
 * letter. RESULT_REJECT with OUTBOUND_ENCODE_FAILED: a body cannot be coded; `*at` is the node. Nothing is sent to the store.
 */
enum result commit_build_step(struct turn *turn, const struct node **at, struct error *err) MUST_CHECK;

/*
 * The id of the dead letter that the message would leave: the same whenever it is asked in one turn, but of a relay without any
 * identity.
 */
struct id commit_dead_letter_id(struct turn *turn);

/* Fills turn->ask.commit with the dead letter of a message that can never succeed. */
void commit_build_dead_letter(struct turn *turn, const struct error *why);

/* Fills turn->ask.commit with the rows of a message's targets, in its place. */
void commit_build_fan_out(struct turn *turn, const struct kept_row *rows, uint32_t count);

/* Fills turn->ask.commit with the end of a kept message that has no effect. */
void commit_build_end(struct turn *turn);

#endif
