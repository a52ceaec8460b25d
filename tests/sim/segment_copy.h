/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of segments: what went over the wire, for the server to run whether or not its sender still lives; and of
 * answers, back into the sender's arena.
 *
 * Life cycle: a copy owns its arena. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_SEGMENT_COPY_H
#define SUTRA_TESTS_SIM_SEGMENT_COPY_H

#include "store/executor.h"

/* The request part of `from` into `to`; `arena` will hold the rows too. */
void segment_copy(struct segment *to, const struct segment *from, struct arena *arena);
/* Outcome, gate, error and rows of `from` into `to`, whose arena gets the texts. */
void segment_answer(struct segment *to, const struct segment *from);
/* NULL if the segment has no such call. */
struct segment_call *segment_find(const struct segment *segment, enum statement_id statement);

#endif
