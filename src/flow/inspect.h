/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inspect: what an intake has in its memory of a message, of an instance, or at all, and why that does not move. For people:
 * the admin listener asks, copies are answered, nothing is changed.
 *
 * A delivery that a lane has in work is the lane's: of it no more is told than what the broker said.
 *
 * Life cycle: an inspection belongs to who asks, and is lent to the intake from intake_inspect until `done` runs; the answer is
 * in its arena. The intake's loop must run until then.
 * Threads: intake_inspect from any; the answer is posted to `reply_to`.
 */
#ifndef SUTRA_FLOW_INSPECT_H
#define SUTRA_FLOW_INSPECT_H

#include "base/arena.h"
#include "base/error.h"
#include "base/id.h"
#include "base/loop.h"

struct intake;

/* At most so many deliveries are told of; the rest is counted. */
#define INSPECT_MAX 100

struct inspected_alias {
	struct str name, value;
};

enum inspected_state {
	INSPECTED_BEHIND,    /* others of its order come before it */
	INSPECTED_RESOLVING, /* whom it is for is being looked up */
	INSPECTED_ON_LANE,   /* a lane has it in work, or its mailbox is full */
	INSPECTED_HELD,	     /* to be tried again */
	INSPECTED_KEEPING,   /* the database is about to keep it */
};
const char *inspected_state_name(enum inspected_state state);

/* Times are of the wall clock, in microseconds; 0 = none. */
struct inspected {
	enum inspected_state state;
	struct str source, event_id; /* absent = not known */
	uint64_t kept;		     /* it stands for so many messages that the database keeps; 0 = it is the broker's */
	struct id order_key;	     /* of those */
	uint32_t ahead;		     /* deliveries of its order before it */
	uint32_t behind;	     /* and behind it */
	struct str ahead_source;     /* the first of those before it; absent = none */
	int64_t received_us;
	/* Of one that was tried: */
	const char *answer; /* lane_answer_name; NULL = not tried yet */
	enum code code;
	struct str text;
	uint32_t attempts; /* since the last progress */
	int64_t held_since_us, next_try_us;
	int64_t unmatched_until_us; /* then it is decided: nobody waits for it */
	struct id instance;	    /* that refused it; all zero = not known */
	struct inspected_alias *looked_for;
	uint32_t looked_for_count;
};

struct inspection {
	/* What is asked for: whichever of these is given. Nothing = all that are not the first of their order and idle, and all held. */
	struct str message; /* an event id, or the source that logs name */
	struct str id_header; /* the channel's idempotency-key-header: where to look while a message is not decoded */
	struct id instance;
	const struct id *keys; /* alias keys of that instance */
	uint32_t key_count;
	struct id order_key; /* of kept messages */
	struct loop *reply_to;
	struct task done; /* set `done.run` */
	struct arena *arena;
	/* The answer. */
	struct inspected *found; /* in order of receipt */
	uint32_t count;
	uint32_t matches; /* `count` of so many */

	struct task post; /* the intake's, as the next */
	struct intake *intake;
};

/* @thread any */
void intake_inspect(struct intake *intake, struct inspection *inspection);

#endif
