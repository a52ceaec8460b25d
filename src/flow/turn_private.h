/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the turn share: turn.c is the spine, turn_resolve.c finds for whom a message is, turn_commit.c what became of
 * the commit. Everything here runs on the lane's executor.
 */
#ifndef SUTRA_FLOW_TURN_PRIVATE_H
#define SUTRA_FLOW_TURN_PRIVATE_H

#include "base/log.h"
#include "flow/lane_set.h"
#include "flow/turn.h"

/* --- turn.c --- */

void turn_enter(struct turn *turn, enum turn_state state);
/* A counter that the admin listener reads. */
void turn_count(uint64_t *counter);
struct log_about turn_about(const struct turn *turn, enum code code, char text[static ID_TEXT_SIZE]);

/* Endings. Each enters a state, so it is the last thing its caller does. */
void turn_answer(struct turn *turn, enum lane_answer answer);
void turn_answer_error(struct turn *turn, enum lane_answer answer, enum code code, const char *text);
/*
 * Ends a message that has no effect. Of one that the database keeps the row goes first: what is answered as done must never be
 * found again.
 */
void turn_end(struct turn *turn, enum lane_answer answer);
/*
 * It can never succeed. A message's dead letter is committed, then it is done (G9); a start timer goes on to its next time; what
 * else there is has nothing to write, and its sender is told.
 */
void turn_reject(struct turn *turn, const struct error *why);
/* As turn_reject, but a claim that is held is given back first. */
void turn_reject_claimed(struct turn *turn, const struct error *why);
/* Every way out of a held claim but its commit. */
void turn_give_up_claim(struct turn *turn, enum lane_answer answer, enum code code, const char *text);
/* Nobody waits yet for what the message looks for. */
void turn_answer_unmatched(struct turn *turn, enum code code, const char *text);

/* What a later wake-up may come for: kept with the request, since the turn's arena ends. */
void turn_interest(struct turn *turn, const struct id *keys, uint32_t count);
/* The step cannot stand: commit the instance as FAILED, its waits resolved, and the message's dead letter. */
void turn_fail(struct turn *turn, const struct error *why, const struct node *at);

/* --- turn_resolve.c --- */

void turn_resolve(struct turn *turn);
/* The message looked for a FAILED instance: it is rejected. False = it did not; nothing has happened. */
bool turn_is_for_failed(struct turn *turn);

/* --- turn_commit.c --- */

void turn_commit(struct turn *turn);

#endif
