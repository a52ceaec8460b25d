/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that looks after calls of rabbitmq-c, whose sends have no deadline: as long as the peer does not read, they wait. A
 * call that takes longer than the limit has its socket shut down under it, and then fails.
 *
 * Life cycle: watchdog_start when the connection stands, watchdog_stop (joins the thread) before its socket is closed.
 * Threads: begin and end from the one that makes the calls; the thread of the watchdog is its own.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_WATCHDOG_H
#define SUTRA_TRANSPORTS_AMQP_WATCHDOG_H

#include <uv.h>

#include "base/loop.h"

struct watchdog {
	struct loop *loop; /* for its clock, which any thread may read */
	int fd;		   /* of its own, a duplicate: the library may close its descriptor inside the call */
	int64_t limit_us;
	int64_t since_us; /* atomic: when the call under way began; 0 = none */
	bool fired;	  /* atomic */
	bool is_started, ended;
	uv_mutex_t mutex; /* leaf; guards `ended` */
	uv_cond_t cond;
	uv_thread_t thread;
};

/* False if the system has no descriptor or thread to spare: the calls then go unwatched. */
bool watchdog_start(struct watchdog *watchdog, struct loop *loop, int fd, int64_t limit_us);
/* Harmless when not started. */
void watchdog_stop(struct watchdog *watchdog);

static inline void watchdog_begin(struct watchdog *watchdog)
{
	__atomic_store_n(&watchdog->since_us, loop_now_us(watchdog->loop), __ATOMIC_RELEASE);
}

static inline void watchdog_end(struct watchdog *watchdog)
{
	__atomic_store_n(&watchdog->since_us, 0, __ATOMIC_RELEASE);
}

/* Whether a call was ended. */
static inline bool watchdog_has_fired(const struct watchdog *watchdog)
{
	return __atomic_load_n(&watchdog->fired, __ATOMIC_ACQUIRE);
}

#endif
