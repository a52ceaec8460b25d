/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes: serial executors of the work for instances. A lane takes one request at a time, awaits its turn to the end,
 * answers, then takes the next. It is a small state machine on an executor's loop, not a thread.
 *
 * Life cycle: lanes are made and ended by the lane set. A request belongs to its sender; it is lent to the lane from
 * lane_set_submit until its answer is posted.
 * Threads: lane_* on the executor's loop; submitting is lane_set's, from any.
 */
#ifndef SUTRA_FLOW_LANE_H
#define SUTRA_FLOW_LANE_H

#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "base/loop.h"
#include "engine/step.h"
#include "flow/decode.h"
#include "flow/envelope.h"
#include "flow/retry.h"
#include "flow/turn.h"
#include "model/deployment.h"
#include "transports/transport.h"

struct executor_thread;
struct lane_set;

/* What became of a request. */
enum lane_answer {
	ANSWER_COMMITTED,   /* the effect is committed */
	ANSWER_DUPLICATE,   /* the event had its effect before */
	ANSWER_REJECTED,    /* its dead letter is committed */
	ANSWER_GONE,	    /* one target of several, which does not wait for it any more: no effect */
	ANSWER_DROPPED,	    /* unmatched on a channel that says `then = "drop"` */
	ANSWER_RESOLVED,    /* resolve_only: nobody waits for it now; `order_key` says behind whom it belongs */
	ANSWER_HANDOFF,	    /* resolved; the instance lives on lane `target_lane`: submit it there */
	ANSWER_REFUSED,	    /* the claim is held, or the step is to be tried again; nothing was written: hold */
	ANSWER_UNMATCHED,   /* no live wait: hold, resolve again */
	ANSWER_AGAIN,	    /* the wait was gone at the owner lane: resolve again, keeping its place */
	ANSWER_KEPT_LOST,   /* the kept message is another replica's by now, or gone: nothing was written */
	ANSWER_UNAVAILABLE, /* engine or database: hold, nothing was written */
};
const char *lane_answer_name(enum lane_answer answer);

/* Where a relay goes: found by the arrival lane, carried to the owner lane. In the request's `resolved` arena. */
struct relay_target {
	struct id instance;
	uint32_t token;
	struct str node;
	struct str deployment;
	struct id wait_key; /* what it was found under */
};

/* An alias by which a message looks for its wait. */
struct looked_for {
	struct str name, value;
};

enum request_kind {
	REQUEST_MESSAGE,  /* a delivery */
	REQUEST_TIMER,	  /* a due timer: of target.instance's target.token, due at `due_us` */
	REQUEST_SCHEDULE, /* a due start timer: spawns at start event target.node of `process` of target.deployment */
	REQUEST_RESTORE,  /* an operator's, of target.instance */
	REQUEST_CANCEL,	  /* the same */
	REQUEST_COMPLETE, /* the same: its user task target.node, with `payload` */
};
static inline bool request_is_admin(enum request_kind kind)
{
	return kind >= REQUEST_RESTORE;
}

/*
 * One piece of work. All but a message say themselves whom they are for and never hop: they are sent to the lane of
 * target.instance, schedules to any. Besides the head they need tenant, target and what their kind says, all in memory of the
 * sender's. Their answers:
 *
 *	COMMITTED    the step is committed; `status` is the instance's now (a step may also have committed as FAILED: `error`)
 *	REFUSED      claim held, or the step failed and is to be tried again, or pinned to a deployment that is not loaded here; an instance that is absent or has ended is
 *	             refused too
 *	AGAIN        there is nothing to do it to (any more): `error` says why. Of a timer: its row is stale, as of `version`; of a schedule:
 *	             somebody else advanced it, or its deployment is not Active here
 *	REJECTED     it can never succeed: `error`. A schedule has been advanced
 *	UNAVAILABLE  engine or database; nothing was written
 */
struct lane_request {
	enum request_kind kind;
	struct task post; /* to the lane; back to `reply_to` with `answered` */
	void (*answered)(struct task *post);
	struct loop *reply_to;
	struct lane *lane;
	struct list link; /* in the lane's queue */

	struct message *message; /* lent; NULL but of REQUEST_MESSAGE */
	struct str tenant;
	struct str channel;
	struct decoded *decoded;  /* made by the first arrival lane, in the message's arena; NULL before */
	bool resolve_only;	  /* answer RESOLVED or HANDOFF (also to the same lane) instead of going on with a relay */
	bool unmatched_is_final;  /* the hold has ended: dead-letter or drop instead of UNMATCHED */
	bool is_resolved;	  /* handoff: `target` is set */
	struct relay_target target;
	struct id *inbox_keys; /* of its event id under every live rule; what the commit inserts */
	uint32_t inbox_key_count;
	struct id kept_row; /* of a message that the database keeps: its effect or end removes the row; else all zero */
	int64_t kept_seq;
	struct str event_id; /* instead of what any rule makes of the message: it is a replay; absent = by the rules */
	struct id replay_of; /* the dead letter that goes with its effect; none = all zero */
	struct envelope_note aim; /* one target of several; `aim` in it says whether */
	uint32_t failures;   /* how often its step has failed and was to be tried again; the sender keeps it from try to try */
	struct arena resolved; /* of the last resolve: target, inbox and interest keys */

	int64_t due_us;			/* TIMER, SCHEDULE: what the row said */
	struct str process;		/* SCHEDULE */
	struct store_schedule schedule; /* SCHEDULE: how its row goes on */
	msgpack_object payload;		/* COMPLETE; in memory that outlives the request */

	/* The answer. */
	enum lane_answer answer;
	enum instance_status status; /* of COMMITTED, with an instance */
	int64_t version; /* of a TIMER that is answered AGAIN: the version of the instance that was found without it */
	uint32_t target_lane;
	struct error error;
	struct id *interest; /* instance id, or candidate wait keys: what a wake-up may come for */
	uint32_t interest_count;
	uint64_t view_number; /* of UNMATCHED: by which view it was looked for */
	struct looked_for *looked_for; /* of UNMATCHED, for people; in `resolved` */
	uint32_t looked_for_count;
	struct id *joined; /* of HANDOFF: all instances that it is for */
	uint32_t joined_count;
	struct id *fanned; /* of COMMITTED, DUPLICATE: order keys of the rows that its targets were given, one each */
	uint32_t fanned_count;
	struct id order_key; /* of RESOLVED and HANDOFF: the business key it came by; none = all zero */
	struct id kept_key;  /* in order of what it would be kept; none = of nothing. Of a kept message it is set from the start */
};

/* Counters; written on the executor's loop, read anywhere with atomic loads. */
enum bounce_kind { BOUNCE_RELAY, BOUNCE_TIMER, BOUNCE_ADMIN, BOUNCE_KIND_COUNT };
struct lane_stats {
	uint64_t dispatches, parks, resumes, handoffs, failures;
	uint64_t bounces[BOUNCE_KIND_COUNT]; /* claims that were refused */
	uint64_t queue_depth;
};

struct lane {
	uint32_t index;
	struct lane_set *set;
	struct executor_thread *executor;
	char owner[176];       /* <host>-<pid>-<8 hex>-s<lane> */
	char admin_owner[176]; /* …-a<lane>: an operator's command never re-enters past a resume in flight */
	struct list queue;
	uint32_t queued;   /* atomic: submitted and not yet answered */
	struct list waiters; /* senders that wait for room */
	bool dead;	   /* atomic */
	bool scheduled;	   /* a task to take the next request is posted */
	struct view *view; /* what this lane resolves by; flips between two requests */
	struct view *next_view;
	struct turn turn;
	struct retry retry;
	struct lane_stats stats;
	struct task next;
};

void lane_init(struct lane *lane, struct lane_set *set, struct executor_thread *executor, uint32_t index);
void lane_done(struct lane *lane);
/* A request has arrived (its `post` runs this on the lane's executor). */
void lane_receive(struct task *post);
/* Somebody waits for room. */
void lane_wait_room(struct task *post);
/* Resolve by this view from the next request on; takes a reference. */
void lane_flip(struct lane *lane, struct view *view);
/* Called by the turn when its request is answered: posts the answer, takes the next. */
void lane_turn_done(struct lane *lane);

#endif
