/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deliveries and intakes. An intake stands behind one consumer: it takes every message, keeps its place among those of the
 * same order key, sends the head of each chain to a lane, and settles each delivery exactly once.
 *
 *	              chain head free                 answered: committed, duplicate, rejected, dropped
 *	CHAINED ─────────────────────► ON_LANE ──────────────────────────────────────────────► SETTLED (done)
 *	   ▲ (behind another              │ ▲ ▲
 *	   │  of its key)        refused, │ │ │ handoff: to the owner lane
 *	   │                   unmatched, │ │ └──┘
 *	   │                  unavailable ▼ │ backoff over, or woken
 *	   │                            HELD
 *	   │   lane's mailbox is full: WAITING ◄──► ON_LANE
 *	A message that orders by instance has no order key yet when it comes. It is RESOLVING first: lanes look up whom it is for,
 *	several at a time; the results are taken in order of receipt (intake.resolving), and only then it joins the chain of
 *	its business key, or of its instance, and goes on as above. A head that had to wait is resolved anew.
 *
 *	revoked or stopping, from any state but ON_LANE and WAITING (there: when the answer comes) ──► SETTLED (back)
 *
 * Life cycle: intake_new on main, then intake_start; intake_stop, and when `stopped` was called intake_free on main.
 * Threads: everything runs on the consumer's loop, but new, free and the reads of stats.
 */
#ifndef SUTRA_FLOW_DELIVERY_H
#define SUTRA_FLOW_DELIVERY_H

#include <uv.h>

#include "base/list.h"
#include "base/map.h"
#include "flow/lane_set.h"
#include "transports/transport.h"

enum delivery_state {
	DELIVERY_CHAINED,
	DELIVERY_ON_LANE,
	DELIVERY_WAITING,
	DELIVERY_HELD,
	DELIVERY_SETTLED,
};

struct intake;
struct delivery;

/*
 * Deliveries of one order key, in order of receipt; the first is the only one in work. Where order is by instance a chain has
 * several names: the business keys that its messages came by, and their instance.
 */
struct chain {
	struct list deliveries;
	struct list names; /* struct chain_name, owned: its entries in intake.chains */
};

struct chain_name {
	struct list link;
	size_t len;
	char key[];
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
	struct message *message;
	struct list window_link; /* all that are not settled, in order of receipt */
	struct list chain_link;
	struct chain *chain; /* NULL: no order key, or none yet */
	struct list resolving_link; /* in intake.resolving, until its place is known */
	bool is_placed;		    /* its resolve is answered; it waits for those received before it */
	bool revoked;	     /* its lease is gone: settle BACK unless its effect is committed */
	struct lane_request request;
	struct lane_waiter waiter;

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
};

/* Written on the intake's loop, read anywhere with atomic loads. */
struct intake_stats {
	uint64_t received, committed, duplicate, refused, rejected, unmatched, unavailable, dropped;
	uint64_t held;		/* now */
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
	uint32_t next_lane; /* for messages without an order key */
	bool stopping;
	int64_t oldest_checked_us;
	uv_mutex_t detail_lock;
	char detail[120]; /* of the state; under detail_lock */
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

/* For settle.c. */
void delivery_dispatch(struct delivery *dlv);
/* It is known whom a resolving delivery is for (HANDOFF), or that nobody waits for it yet (RESOLVED). */
void delivery_placed(struct delivery *dlv);
/* Ends the delivery; the next of its chain goes on. */
void delivery_settle(struct delivery *dlv, enum settle how);

/* settle.c: what an answer means. */
void settle_answered(struct delivery *dlv);
/* Out of HELD: stops the backoff, forgets the interests. */
void settle_unhold(struct delivery *dlv);
/* A wake-up for this key. */
void settle_woken(struct intake *intake, struct id key);

#endif
