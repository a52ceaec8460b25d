/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fan-out: a message with several targets, that is waits which say `match="all"`, or the processes that subscribe to a channel that
 * broadcasts. One commit takes the message's event ids and gives each target a kept message of its own (G4); then the message is
 * done with its broker. Each of these goes through a lane like any other, and its step removes it.
 *
 * Messages for one instance keep their order: the rows for one instance and channel have one order key, and a message for one
 * instance alone goes behind such rows if there are any. Likewise the rows that begin a process with messages of one order.
 *
 * Life cycle: everything is in the turn's arena and its request's. Threads: the lane's executor.
 */
#ifndef SUTRA_FLOW_FAN_OUT_H
#define SUTRA_FLOW_FAN_OUT_H

#include "flow/lane.h"

/* What one commit takes. */
#define FAN_OUT_MAX	  10000
#define FAN_OUT_BYTES_MAX (UINT64_C(64) << 20)

/* Whether messages of the channel may have several targets. */
bool fan_out_is_possible(const struct route *route);
/* In which order the row of a target stands. */
struct id fan_out_order_key(struct turn *turn, const struct envelope_note *note);
/* Fills turn->ask.commit with a row for each target, and the request's `fanned`. RESULT_REJECT: they are too many. */
enum result fan_out_build(struct turn *turn, const struct envelope_note *notes, uint32_t count, struct error *err) MUST_CHECK;
/* The start event that the note is for: its own, or that of the process in the deployment that is Active now; NULL = none. */
const struct subscription *fan_out_start(const struct route *route, const struct envelope_note *note);

#endif
