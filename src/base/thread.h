/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtimes: where loops come from. The production runtime gives each loop a thread with a libuv loop; the
 * simulator's (tests/sim) gives it a queue that a seeded scheduler drains.
 *
 * Life cycle: runtime_threads() is the one production runtime. Threads: loop_start and loop_stop from the thread that
 * builds and tears down the service (main), never from a loop.
 */
#ifndef SUTRA_BASE_THREAD_H
#define SUTRA_BASE_THREAD_H

#include <uv.h>

#include "base/loop.h"

struct runtime_ops {
	/* A running loop with this name (at most 15 bytes become the thread's name). Never NULL. */
	struct loop *(*loop_start)(struct runtime *runtime, const char *name);
	/* Runs what was posted so far, then ends the loop, joins its thread, frees it, sets *loop to NULL. */
	void (*loop_stop)(struct runtime *runtime, struct loop **loop);
	/* Runs `fn(arg)` on the loop and returns when it has returned. Never call it from a loop. */
	void (*loop_call)(struct runtime *runtime, struct loop *loop, void (*fn)(void *arg), void *arg);
	/* Returns when `until(arg)` is true, or false after `timeout_ms`. The condition is looked at every few milliseconds, or
	 * after every simulated event, on the calling thread; it must be cheap and read shared state atomically. Main only. */
	bool (*loop_wait)(struct runtime *runtime, bool (*until)(void *arg), void *arg, int64_t timeout_ms);
};

struct runtime {
	const struct runtime_ops *ops;
};

struct runtime *runtime_threads(void);

static inline struct loop *loop_start(struct runtime *runtime, const char *name)
{
	return runtime->ops->loop_start(runtime, name);
}

static inline void loop_stop(struct loop **loop)
{
	if (*loop)
		(*loop)->runtime->ops->loop_stop((*loop)->runtime, loop);
}

static inline void loop_call(struct loop *loop, void (*fn)(void *arg), void *arg)
{
	loop->runtime->ops->loop_call(loop->runtime, loop, fn, arg);
}

static inline bool loop_wait(struct runtime *runtime, bool (*until)(void *arg), void *arg, int64_t timeout_ms)
{
	return runtime->ops->loop_wait(runtime, until, arg, timeout_ms);
}

/* The libuv loop under a production loop, for descriptors; NULL under the simulator. @thread the loop's own */
uv_loop_t *loop_uv(struct loop *loop);

#endif
