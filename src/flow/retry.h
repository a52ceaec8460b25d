/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that fail and are tried again: of a process that says that it is idempotent. Nothing is committed, and whoever sent the work
 * holds it as if it had been refused, a few times; then the step fails for good.
 *
 * A delivery knows how often it has failed (lane_request.failures). Timers come anew with each try, so their lane remembers; what it
 * forgets, at a restart or because there are very many, is counted from the beginning.
 *
 * Life cycle: embedded in the lane. Threads: the lane's executor.
 */
#ifndef SUTRA_FLOW_RETRY_H
#define SUTRA_FLOW_RETRY_H

#include "base/map.h"

struct turn;

struct retry {
	struct map failures; /* of what → how often */
};

void retry_done(struct retry *retry);

enum retry_verdict {
	RETRY_FAIL,  /* commit the failure */
	RETRY_LATER, /* commit nothing, answer that it is to be held */
	RETRY_NEVER, /* commit nothing, answer that it failed: an operator sees that, and decides */
};
/* The step under way has failed: counts it. */
enum retry_verdict retry_failed(struct turn *turn);
/* It is committed, whatever came of it. */
void retry_committed(struct turn *turn);

#endif
