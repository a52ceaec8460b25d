/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keep: the end of a hold that outlasts its bounds. The deliveries of a chain are written to the database with their bodies
 * (inbox_message) and only then settled with the broker (G1); a place stands for them in their chain. When the place is the
 * head of the chain, its first message is read back and goes through a lane like any delivery; the commit of its effect
 * removes the row (G4).
 *
 *	chain:  d1 held, d2, d3     ── keep_begin ──►  place (rows of d1 d2 d3)     ── d4 comes ──►  place, d4
 *	                                               ▲ the broker is rid of them
 *
 *	place:  CHAINED ──► LOADING ──► ON_LANE ──► done: next row, or the place ends and the chain goes on
 *	                       ▲            └─ refused, unmatched, unavailable: HELD, its message freed
 *	                       └──────────────────────────┘
 *
 * Rows of one order key run one after the other over all replicas: a resolve tells who has kept messages before it, and such
 * a delivery is held until they are gone. A row belongs to the replica that stamped it, as long as that renews its lease
 * `keeper:<name>`; then any replica that consumes the channel takes it over, which is looked for every few seconds. At a stop rows
 * are given up at once.
 *
 * Life cycle: a place is made by the first row and ends with the last. Threads: the intake's loop.
 */
#ifndef SUTRA_FLOW_KEEP_H
#define SUTRA_FLOW_KEEP_H

#include "flow/delivery.h"

/* The first live delivery of the chain that could be kept now; NULL: none, because it or one before it is in work. */
struct delivery *keep_first(const struct chain *chain);
/* Begins to keep what stands there, as far as one commit takes it. False: not now (no keeper, too many, it failed a moment ago). */
bool keep_begin(struct intake *intake, struct chain *chain);

/* A place is to go on: reads its first message. */
void keep_load(struct delivery *dlv);
/* The message of a place is done. */
void keep_advance(struct delivery *dlv);
/* It is not ours any more. */
void keep_lost(struct delivery *dlv);
/* It was refused, or nobody waits for it yet. */
void keep_hold(struct delivery *dlv);
/* The replica stops: the place ends, its rows stay. */
void keep_drop(struct delivery *dlv);

/* A message of ours has given rows of these order keys to its targets: runs them. */
void keep_fanned(struct intake *intake, const struct id *order_keys, uint32_t count);
/* An early message of this order key may be wanted by now; `keeper` has it (absent = nobody). */
void keep_early_wanted(struct intake *intake, struct id order_key, struct str keeper);
/* Of a place that is about to be held: whether it is not to be tried again before somebody comes to wait for it, or its hold ends. */
bool keep_falls_asleep(struct delivery *dlv);
/* It is held as early. */
bool keep_is_asleep(const struct delivery *dlv);
/* It is held no longer. */
void keep_awake(struct delivery *dlv);
/* Those that are tried again and again. */
size_t keep_places_awake(const struct intake *intake);

/* Looks for rows of dead replicas from now on. */
void keep_start(struct intake *intake);
void keep_stop(struct intake *intake);
/* Once the consumer has stopped: gives up the rows; true when that is done. It calls intake_check_stopped on its way. */
bool keep_is_stopped(struct intake *intake);

#endif
