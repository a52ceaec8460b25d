/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The production loop: what thread.c runs on a thread of its own. Private to base.
 *
 * Life cycle: loop_uv_init before the thread starts; loop_uv_run is the body of the thread and returns after
 * loop_uv_end; loop_uv_done after the join. Threads: post and end from any, run on the loop's, init and done
 * on the starter's.
 */
#ifndef SUTRA_BASE_LOOP_UV_H
#define SUTRA_BASE_LOOP_UV_H

#include <pthread.h>
#include <uv.h>

#include "base/loop.h"

struct loop_uv {
	struct loop base;
	pthread_t thread; /* the starter's, for the join */
	pthread_t self;	  /* the same, set by the thread itself */
	uv_loop_t uv;
	int wake_fd;  /* an eventfd: not a uv_async_t, whose receiver spins until the sender is out of its call */
	uv_poll_t wake;
	uv_timer_t timer;

	pthread_mutex_t mutex; /* leaf; guards the three below */
	struct task *posted;
	struct task **posted_tail;
	bool ended;

	/* The loop's own. */
	struct task *ready; /* taken from `posted`, not yet run */
	struct task end;
	size_t random_left;
	uint64_t random_pool[32];
};

void loop_uv_init(struct loop_uv *loop, struct runtime *runtime, const char *name);
void loop_uv_run(struct loop_uv *loop);
/* Lets the loop return when it has run what was posted so far. */
void loop_uv_end(struct loop_uv *loop);
void loop_uv_done(struct loop_uv *loop);

#endif
