/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first seam: event loops. A loop runs tasks that were posted to it and timers that were started on it, one at
 * a time, and is the only source of time and chance for what runs on it. Production loops are libuv loops on a thread
 * of their own; the simulator's all take turns in one thread, in an order drawn from a seed.
 *
 * Life cycle: a loop is made by a runtime (loop_start) and ended by it (loop_stop), which drops tasks not yet run.
 * Threads: loop_post from any; everything else only from the loop itself (or before it runs anything).
 *
 * Posting gives the object around the task away: the poster must not touch it again. Tasks posted to one loop run in the
 * order in which they were posted, whoever posted them: a post that was made after another had returned, on whatever
 * thread, runs behind it. The order of the outbox (G6) rests on that.
 */
#ifndef SUTRA_BASE_LOOP_H
#define SUTRA_BASE_LOOP_H

#include "base/attr.h"

struct loop;
struct loop_timer;
struct runtime;

/* Embedded in what is posted. Needs no initialisation; `next` is the loop's. */
struct task {
	struct task *next;
	void (*run)(struct task *task);
};

/* Embedded in what waits. Not movable while started. */
struct loop_timer {
	struct loop *loop;
	void (*fire)(struct loop_timer *timer);
	int64_t due_us;	  /* on the loop's monotonic clock */
	uint64_t seq;	  /* order among equal due times */
	size_t heap_pos;  /* position + 1 in the loop's heap; 0 = not started */
};

struct loop_ops {
	/* @thread any */
	void (*post)(struct loop *loop, struct task *task);
	/* The earliest timer changed to `due_us`, or INT64_MAX for none. */
	void (*arm)(struct loop *loop, int64_t due_us);
	int64_t (*now_us)(struct loop *loop);
	int64_t (*wall_us)(struct loop *loop);
	uint64_t (*random)(struct loop *loop);
};

struct loop {
	const struct loop_ops *ops;
	struct runtime *runtime;
	char name[32];
	struct loop_timer **heap; /* binary heap by (due_us, seq) */
	size_t heap_len;
	size_t heap_cap;
	uint64_t timer_seq;
};

/* @thread any. `task->run` is called once on the loop. */
void loop_post(struct loop *loop, struct task *task);

/* Monotonic microseconds; the same clock on every loop of a runtime. @thread any */
int64_t loop_now_us(struct loop *loop);
/* Microseconds since 1970 UTC. */
int64_t loop_wall_us(struct loop *loop);
/* 64 random bits. */
uint64_t loop_random(struct loop *loop);
/* Uniform in [0, bound); bound ≥ 1. */
uint64_t loop_random_below(struct loop *loop, uint64_t bound);
/* A pause before another try: `min_us` doubled so often, at most `max_us`, of which the upper half is random. */
int64_t loop_backoff_us(struct loop *loop, int64_t min_us, int64_t max_us, uint32_t doublings);

void loop_timer_init(struct loop_timer *timer, struct loop *loop, void (*fire)(struct loop_timer *));
/* (Re)starts: fires once, `delay_us` (≥ 0) from now. */
void loop_timer_start(struct loop_timer *timer, int64_t delay_us);
/* Harmless when not started. After it the memory may be freed. */
void loop_timer_stop(struct loop_timer *timer);
bool loop_timer_is_started(const struct loop_timer *timer);

/* For implementations of loops: earliest due time or INT64_MAX; runs all due timers, at most once each. */
int64_t loop_timers_next_us(const struct loop *loop);
void loop_timers_run(struct loop *loop, int64_t now_us);
void loop_base_init(struct loop *loop, struct runtime *runtime, const struct loop_ops *ops, const char *name);
void loop_base_done(struct loop *loop);

#endif
