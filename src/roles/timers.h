/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timer leader: due timers of waiting tokens (timers.c) and start timers of Active deployments (schedules.c) go to the lanes.
 * Private to roles; everything runs on the roles' loop.
 *
 *	                    page of due rows
 *	row ──────────────────────────────────► OUT ──committed──────────────► gone
 *	 ▲                                      │ ▲ ──there is no such timer──► DROP: its row is removed
 *	 │ refused too often at once: forgotten │ │
 *	 └──────────────────────────────────────┤ │ backoff
 *	                refused, unavailable,   ▼ │
 *	                rejected: later       DEFERRED
 *
 * Two leaders at a time do no harm: a timer fires in the commit that removes it, under the claim of its instance; a start timer in
 * the commit that moves it on.
 */
#ifndef SUTRA_ROLES_TIMERS_H
#define SUTRA_ROLES_TIMERS_H

#include "base/histogram.h"
#include "base/map.h"
#include "roles/internal.h"

enum fire_state {
	FIRE_OUT,      /* a lane has it, or it waits for room there */
	FIRE_DEFERRED, /* its pause runs */
	FIRE_DROP,     /* its row is to be removed */
	FIRE_DONE,     /* a page under way may still name its row */
};

/* One timer, or start timer, on its way to its effect. */
struct fire {
	struct timers *timers;
	struct lane_request request;
	struct lane_waiter room;
	struct loop_timer pause;
	struct list link; /* of all fires of waiting tokens */
	enum fire_state state;
	uint32_t tries; /* refusals in a row */
	bool dropping;  /* the query under way names it */
	void (*answered)(struct fire *fire);
	char tenant[]; /* of waiting tokens */
};
void fire_init(struct fire *fire, struct timers *timers, void (*answered)(struct fire *fire));
/* Lends it to its lane, now or when there is room. */
void fire_submit(struct fire *fire);
/* How long to wait after its next refusal: it grows, with jitter. */
int64_t fire_backoff_us(struct fire *fire);

/* A start timer of an Active deployment. Its `fire` is the only one on its way. */
struct schedule {
	struct id id;
	const struct deployment *deployment;
	const struct process *process;
	const struct node *node;
	bool known; /* the row is this deployment's, and is due as below */
	int64_t next_us; /* wall clock; 0 = never again */
	int64_t remaining;
	int64_t not_before_us; /* the loop's clock: it was refused */
	struct fire *fire;
};

struct schedules {
	struct timers *timers;
	struct view *view, *next_view;
	struct schedule *all;
	uint32_t count;
	bool put_wanted, probe_wanted;
	/* The loop's clock: when to look at the rows anyway; not before this, for the database was away; when something is due. */
	int64_t probe_us, trouble_us, wake_us;
	uint32_t out;
	struct role_query put, probe;
	struct loop_timer tick;
};
void schedules_init(struct schedules *schedules, struct timers *timers);
void schedules_done(struct schedules *schedules);
/* This replica leads from now on. */
void schedules_begin(struct schedules *schedules);
/* Does what there is to do. */
void schedules_go(struct schedules *schedules);
/* Gives up what does not wait for an answer; whether nothing is out. */
bool schedules_drain(struct schedules *schedules);
void schedules_flip(struct schedules *schedules, struct view *view);

struct timers {
	struct role_work work;
	struct roles *roles;
	struct lease *lease;
	bool leading; /* between the begin of a round and its end */
	struct map known; /* by (instance, token): fires */
	struct list fires;
	uint32_t out, deferred, drops;
	uint32_t out_max;
	/* Where the next page begins, and when. All clocks are the loop's. */
	int64_t after_due_us;
	struct id after_instance;
	int64_t after_token;
	bool more, from_start;
	int64_t next_look_us, rescan_us, scanned_us, asked_us;
	struct role_query page, next, drop;
	struct loop_timer tick;
	struct schedules schedules;
	struct histogram lateness; /* due to committed */
	/* Atomic: how fires ended. */
	uint64_t committed, refused, stale, rejected, unavailable;
};
void timers_init(struct timers *timers, struct roles *roles, struct lease *lease);
void timers_done(struct timers *timers);
/* Does what there is to do; every answer ends with it. */
void timers_go(struct timers *timers);

#endif
