/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of a replica's lanes and the executor threads that run them.
 *
 * Life cycle: lane_set_new, lane_set_flip (at least once before work comes), lane_set_stop (when no
 * request is out any more), lane_set_free. Threads: as said at each call.
 */
#ifndef SUTRA_FLOW_LANE_SET_H
#define SUTRA_FLOW_LANE_SET_H

#include "base/histogram.h"
#include "base/thread.h"
#include "flow/lane.h"
#include "flow/wake.h"
#include "outbox/outbox.h"
#include "store/store.h"

struct lane_set_settings {
	uint32_t lanes;	    /* engine.shards */
	uint32_t executors; /* threads: min(cores, lanes) */
	uint32_t queue_capacity; /* engine.shard-queue-capacity; 0 = unbounded */
	int64_t stall_timeout_ms; /* engine.lane-stall-timeout */
	const char *owner_prefix; /* <host ≤ 96>-<pid>-<8 hex> */
	const char *keeper;	  /* this replica, as the owner of messages that the database keeps for it */
	struct expression_limits expression_limits;
	struct decode_settings decode;
	uint32_t max_step_nodes;
	uint64_t max_variables_bytes;
	uint32_t failure_attempts; /* failure.retry.max-attempts */
};

/* One executor thread: its loop and its Lua state. */
struct executor_thread {
	struct lane_set *set;
	struct loop *loop;
	struct expression_state *expressions;
	struct view *loaded;  /* the newest view; the sets of older ones stay loaded while a lane resolves by them */
	struct view *leaving; /* the view before it, until every lane has left it */
	struct task ping;     /* the stall check's */
	bool ping_out;	      /* atomic */
	int64_t pinged_us;    /* the checker's */
};

struct lane_set {
	struct lane_set_settings settings;
	struct store *store;
	struct outbox *outbox;
	struct wake *wake;
	struct lane *lanes;
	struct executor_thread *executors;
	struct histogram step_time;   /* the pure step */
	struct histogram commit_time; /* from asking the store to its answer */
	int64_t checked_us;	      /* lane_set_check's */
	uint64_t view_number;	      /* atomic: of the newest view */
};

struct lane_set *lane_set_new(struct runtime *runtime, const struct lane_set_settings *settings, struct store *store,
			      struct outbox *outbox, struct wake *wake);
/*
 * Sends the view to every lane; each applies it between two requests, idle ones at once. RESULT_FATAL: an executor could not
 * load it; its lanes are dead then. @thread main
 */
enum result lane_set_flip(struct lane_set *set, struct view *view, struct error *err) MUST_CHECK;
/* Whether every living lane resolves by this view. @thread main */
bool lane_set_flipped(struct lane_set *set, const struct view *view);

/* Stable. */
uint32_t lane_set_lane_of_instance(const struct lane_set *set, struct id instance);
uint32_t lane_set_lane_of_key(const struct lane_set *set, struct str key);

/*
 * Lends the request to the lane until `answered` runs on reply_to. False: the lane's mailbox is full, the request was not
 * taken; ask lane_set_wait_room. A dead lane answers UNAVAILABLE. @thread any
 */
bool lane_set_submit(struct lane_set *set, uint32_t lane, struct lane_request *request) MUST_CHECK;

struct lane_waiter {
	struct task post;
	void (*room)(struct task *post); /* posted to reply_to when there may be room */
	struct loop *reply_to;
	struct list link; /* the lane's */
	struct lane *lane;
};
/* @thread any; one use at a time, lent until `room` runs */
void lane_set_wait_room(struct lane_set *set, uint32_t lane, struct lane_waiter *waiter);

/* Marks lanes of executors that are stuck for longer than the stall timeout dead; to be called several times within it. Returns how
 * many lanes are dead. @thread any one, not an executor */
uint32_t lane_set_check(struct lane_set *set, int64_t now_us);
uint32_t lane_set_alive(const struct lane_set *set);
/* A lane of this executor has applied its view. @thread the executor */
void executor_lane_flipped(struct executor_thread *executor);
void lane_set_stop(struct lane_set *set);
void lane_set_free(struct lane_set **set);

#endif
