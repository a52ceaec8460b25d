/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turn: the whole of decode, correlate, claim, step, commit and answer for one request on a lane.
 *
 *	                      ┌──────── rejected ────────────► COMMIT (dead letter) ─► ANSWERED
 *	IDLE ─► DECODE ─► RESOLVE ─► spawn ─► STEP ─► COMMIT ─► ANSWERED
 *	            │         │                         ▲
 *	            │         ├─► relay, ours ─► CLAIM ─┘ ... guards fail ─► RELEASE ─► ANSWERED (again)
 *	            │         ├─► relay, another lane's ─► ANSWERED (handoff)
 *	            │         └─► duplicate, unmatched ─► ANSWERED
 *	            └─► handed-off request ─► CLAIM
 *
 * Timers and operators' commands come with their instance and begin at CLAIM; a start timer begins at STEP, and a gate of its
 * commit decides whether it was due.
 *
 * Three waits (RESOLVE, CLAIM, COMMIT; RELEASE is the fourth, off the usual path), each a store request whose completion is
 * posted back to the lane's executor. Every state is entered by turn_enter and by nothing else.
 *
 * Life cycle: embedded in the lane; its arena is emptied when the turn ends. Threads: the lane's executor.
 */
#ifndef SUTRA_FLOW_TURN_H
#define SUTRA_FLOW_TURN_H

#include "base/arena.h"
#include "engine/step.h"
#include "flow/envelope.h"
#include "outbox/outbox.h"
#include "store/store.h"

struct correlation;
struct lane;
struct lane_request;

enum turn_state {
	TURN_IDLE,
	TURN_DECODE,
	TURN_RESOLVE,
	TURN_CLAIM,
	TURN_STEP,
	TURN_COMMIT,
	TURN_RELEASE,
	TURN_ANSWERED,
	TURN_STATE_COUNT
};
const char *turn_state_name(enum turn_state state);

struct turn {
	enum turn_state state;
	struct lane *lane;
	struct lane_request *request; /* NULL when IDLE */
	struct arena arena;
	const struct route *route; /* of the lane's view */
	int64_t now_us;		   /* the time of the step */
	int64_t stage_began_us;

	/* correlate: what the resolve asked, and the start event if it becomes a spawn. */
	struct correlation *correlation;

	/* claim and step */
	const struct view_member *member; /* the pinned deployment */
	struct instance *inst;		  /* before the step; NULL for a spawn */
	const struct node *start;	  /* spawn */
	const struct event *event;	  /* what the step receives: of a message, or of a command the one behind it */
	struct event command_event;
	struct id id;			  /* the instance */
	struct step_result step;
	bool rejecting; /* the commit under way is a dead letter alone */
	bool fanning;	/* the commit under way gives the message's targets rows of their own */
	bool ending;	/* the commit under way only removes the kept message, which has no effect */
	bool claimed;	/* we hold the instance's claim: released by the commit, or by TURN_RELEASE */
	struct outbox_parcel *parcel;

	/* release: what is answered, or done, when the claim is given back */
	enum turn_after { TURN_AFTER_ANSWER, TURN_AFTER_REJECT } after;
	struct error error;

	struct envelope_note relayed_note; /* while it is looked for rows before a relay or a spawn */
	const struct subscription *relayed_start; /* the same: the start event; NULL = a relay */
	struct id failed_instance;     /* for whom the message was, FAILED; none = all zero */

	union {
		struct store_resolve resolve;
		struct store_claim claim;
		struct store_commit commit;
		struct store_release release;
	} ask;
};

void turn_init(struct turn *turn, struct lane *lane);
void turn_done(struct turn *turn);
/* Who holds the claim while it runs. */
struct str turn_owner(const struct turn *turn);
/* Begins: the turn is IDLE and the lane has flipped to its view. Ends by lane_turn_done, perhaps from inside this call. */
void turn_begin(struct turn *turn, struct lane_request *request);

#endif
