/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deliveries and intakes. An intake stands behind one consumer: it takes every message, keeps its place among those of the
 * same order key (chain.h), sends the head of each chain to a lane, and settles each delivery exactly once.
 *
 *	              chain head free                 answered: committed, duplicate, rejected, dropped
 *	CHAINED ─────────────────────► ON_LANE ──────────────────────────────────────────────► SETTLED (done)
 *	   ▲ (behind another              │ ▲ ▲                                                    ▲
 *	   │  of its key)        refused, │ │ │ handoff: to the owner lane                         │
 *	   │                   unmatched, │ │ └──┘                                                 │
 *	   │                  unavailable ▼ │ backoff over, or woken                               │
 *	   │                            HELD ──── a bound of the hold (hold.h) ────► KEEPING ──────┘ its row is committed: a place
 *	   │   lane's mailbox is full: WAITING ◄──► ON_LANE                                          stands for it (keep.h)
 *
 *	A message that orders by instance has no order key yet when it comes. It is RESOLVING first: lanes look up whom it is for,
 *	several at a time; the results are taken in order of receipt (intake.resolving), and only then it joins the chain of
 *	its business key, or of its instance, and goes on as above. A head that had to wait is resolved anew.
 *
 *	revoked or stopping, from any state but ON_LANE, WAITING and KEEPING (there: when the answer comes) ──► SETTLED (back)
 *
 * Life cycle: intake_new on main, then intake_start; intake_stop, and when `stopped` was called intake_free on main.
 * Threads: everything runs on the consumer's loop, but new, free and the reads of stats.
 */
#ifndef SUTRA_FLOW_DELIVERY_H
#define SUTRA_FLOW_DELIVERY_H

#include <uv.h>

#include "base/list.h"
#include "base/map.h"
#include "flow/chain.h"
#include "flow/lane_set.h"
#include "transports/transport.h"

enum delivery_state {
	DELIVERY_CHAINED,
	DELIVERY_ON_LANE,
	DELIVERY_WAITING,
	DELIVERY_HELD,
	DELIVERY_KEEPING, /* the database is about to keep it */
	DELIVERY_LOADING, /* of a place: its first kept message is being read */
	DELIVERY_SETTLED,
};

/* A key under which a held delivery can be woken. */
struct delivery_interest {
	struct list link; /* in the intake's list of this key */
	struct delivery *delivery;
	struct id key;
};

struct delivery {
	enum delivery_state state;
	struct intake *intake;
	struct message *message; /* of a place: NULL but while its first kept message is in work */
	struct list window_link; /* all that are not settled, in order of receipt */
	struct list chain_link;
	struct chain *chain; /* NULL: its place is not known yet */
	bool is_live;	     /* counts as such in its chain */
	bool is_place;	     /* stands for messages that the database keeps: keep.h. In no window */
	struct list resolving_link; /* in intake.resolving, until its place is known */
	bool is_placed;		    /* its resolve is answered; it waits for those received before it */
	bool revoked;	     /* its lease is gone: settle BACK unless its effect is committed */
	struct lane_request request;
	struct lane_waiter waiter;

	int64_t received_us;

	/* hold */
	struct loop_timer retry;
	uint32_t attempts;	     /* since the last progress */
	int64_t held_since_us;	     /* 0 = never held */
	int64_t unmatched_since_us;  /* 0 = never unmatched */
	struct delivery_interest *interests;
	uint32_t interest_count;
};

struct intake_settings {
	const char *tenant;
	const char *channel;
	int64_t unmatched_hold_ms;
	int64_t backoff_min_ms, backoff_max_ms;
	uint32_t max_in_flight;
	int64_t hold_ms;      /* a refused delivery is kept after it; 0 = never */
	int64_t delivery_ms;  /* the broker wants every delivery settled within; 0 = whenever */
	uint64_t span;	      /* most tokens between a held delivery and the latest of its lease; 0 = any */
	uint64_t max_kept;    /* most messages that the database keeps for this intake; 0 = keep none */
	const char *keeper;   /* this replica, as the owner of kept messages; NULL = keep none */
	bool requeues;	      /* a refused delivery goes back to the broker after its backoff */
};

/* Written on the intake's loop, read anywhere with atomic loads. */
struct intake_stats {
	uint64_t received, committed, duplicate, refused, rejected, unmatched, unavailable, dropped;
	uint64_t requeued, persisted;
	uint64_t gone;		/* targets that did not wait any more */
	uint64_t early;		/* kept because nobody waited for them */
	uint64_t held;		/* now */
	uint64_t kept;		/* now, by the database for this replica */
	uint64_t unsettled;	/* now */
	int64_t oldest_held_us; /* monotonic, of the oldest held one; 0 = none */
	int state;		/* enum consumer_state */
};

struct intake {
	struct consumer_sink sink;
	struct consumer *consumer;
	struct loop *loop;
	struct intake_settings settings;
	struct lane_set *lanes;
	struct wake *wake;
	struct wake_target wake_target;
	struct list window;
	struct list resolving; /* deliveries whose order key is being looked up, in order of receipt */
	struct map chains; /* name → struct chain */
	struct map interests; /* id → struct list of delivery_interest */
	struct list parked;    /* chains of which a delivery is held, see chain.h */
	uint64_t parked_count; /* live deliveries in them */
	uint64_t parked_bytes;
	struct map places; /* order key → struct place: keep.h */
	uint32_t asks;	   /* of keep.c, out at the store */
	int64_t keep_again_us; /* after a failure nothing is kept before */
	struct loop_timer recover;
	struct list asleep;   /* places of early messages: keep_early.c */
	struct list unlooked; /* those whose waits are to be looked for now */
	size_t asleep_count;  /* in both */
	bool is_looking;
	struct loop_timer look;
	uint32_t recover_doubts; /* so many more looks for rows that became ours without our hearing of it */
	uint32_t next_lane; /* for messages without an order key */
	bool stopping;
	bool consumer_stopped;
	bool has_kept; /* there may be rows to give up at the end */
	int64_t oldest_checked_us;
	uv_mutex_t detail_lock;
	char detail[300]; /* of the state; under detail_lock */
	struct intake_stats stats;
	/* Called on the loop when everything is settled and the consumer closed. */
	void (*stopped)(struct intake *intake);
	void *user;
};

struct intake *intake_new(struct lane_set *lanes, struct wake *wake, const struct intake_settings *settings);
/* Joins the consumer that was made with intake_sink() as its sink. Takes it. */
struct consumer_sink *intake_sink(struct intake *intake);
void intake_start(struct intake *intake, struct consumer *consumer);
void intake_stop(struct intake *intake);
void intake_free(struct intake **intake);
/* Why it is in its state, for people. @thread any @locks detail_lock */
void intake_detail(struct intake *intake, char *out, size_t size);

/* For the other files of the intake. */
void delivery_dispatch(struct delivery *dlv);
/* It is known whom a resolving delivery is for (HANDOFF), or that nobody waits for it yet (RESOLVED). */
void delivery_placed(struct delivery *dlv);
/* Ends the delivery; the next of its chain goes on. */
void delivery_settle(struct delivery *dlv, enum settle how);
/* Begins one that is part of `intake`, in whatever memory. */
void delivery_init(struct delivery *dlv, struct intake *intake, struct message *message);
/* Sends it on if it has come to the head of its chain; NULL does nothing. */
void delivery_next(struct delivery *dlv);
/* Calls `stopped` once nothing is left. */
void intake_check_stopped(struct intake *intake);

/* settle.c: what an answer means. */
void settle_answered(struct delivery *dlv);

#endif
