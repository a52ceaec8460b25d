/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early: what came before the wait that it is for. A relay that finds no live wait is soon kept by the database, with the keys of
 * the waits that it looks for (keep.h). No order of the two transactions may lose it:
 *
 *	keeper:	commit the message and its keys ──► then look for live waits   (keep_early.c)
 *	step:	commit its waits                ──► then look for early rows   (here)
 *
 * Each looks in a statement that begins after its own commit was answered, so whichever committed second sees the other. What a step
 * finds is told to the intake of the message's channel, which runs it, taking it over from another replica if need be; the gate
 * on the row decides if two do. Behind both stands a look of each keeper at what it keeps, every few seconds: for a
 * replica that died between commit and look.
 *
 * Nobody waits for the answer of a look: the lane goes on at once. Threads: the lane's executor.
 */
#ifndef SUTRA_FLOW_EARLY_H
#define SUTRA_FLOW_EARLY_H

#include "store/store.h"

struct lane;

/* Looks for early messages of the waits that a commit, just answered, has added. */
void early_probe(struct lane *lane, const struct store_commit *commit);

#endif
