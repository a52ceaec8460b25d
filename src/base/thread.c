/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The production runtime: a thread for each loop. Signals are the main thread's: every other thread blocks all of them
 * but those that a fault of its own raises, and blocks them from its first instruction on, by inheriting the mask.
 */
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/loop_uv.h"
#include "base/time.h"

static void *thread_main(void *arg)
{
	struct loop_uv *loop = arg;
	char name[16];

	memcpy(name, loop->base.name, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	pthread_setname_np(pthread_self(), name);
	loop->self = pthread_self();
	loop_uv_run(loop);
	return NULL;
}

static void signals_to_block(sigset_t *set)
{
	sigfillset(set);
	sigdelset(set, SIGSEGV);
	sigdelset(set, SIGBUS);
	sigdelset(set, SIGFPE);
	sigdelset(set, SIGILL);
	sigdelset(set, SIGABRT);
	sigdelset(set, SIGTRAP);
	sigdelset(set, SIGSYS);
}

static struct loop *threads_loop_start(struct runtime *runtime, const char *name)
{
	struct loop_uv *loop = mem_alloc(sizeof(*loop));
	sigset_t blocked, before;
	int result;

	loop_uv_init(loop, runtime, name);
	signals_to_block(&blocked);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	result = pthread_create(&loop->thread, NULL, thread_main, loop);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result != 0)
		abort();
	return &loop->base;
}

struct call {
	struct task task;
	void (*fn)(void *arg);
	void *arg;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool returned;
};

static void run_call(struct task *task)
{
	struct call *call = container_of(task, struct call, task);

	call->fn(call->arg);
	pthread_mutex_lock(&call->mutex);
	call->returned = true;
	pthread_cond_signal(&call->cond);
	pthread_mutex_unlock(&call->mutex);
}

static void threads_loop_call(struct runtime *runtime UNUSED, struct loop *loop, void (*fn)(void *arg), void *arg)
{
	struct call call = {
		.task.run = run_call,
		.fn = fn,
		.arg = arg,
		.mutex = PTHREAD_MUTEX_INITIALIZER,
		.cond = PTHREAD_COND_INITIALIZER,
	};

	loop_post(loop, &call.task);
	pthread_mutex_lock(&call.mutex);
	while (!call.returned)
		pthread_cond_wait(&call.cond, &call.mutex);
	pthread_mutex_unlock(&call.mutex);
	pthread_cond_destroy(&call.cond);
	pthread_mutex_destroy(&call.mutex);
}

static void threads_loop_stop(struct runtime *runtime UNUSED, struct loop **loop)
{
	struct loop_uv *ending = container_of(*loop, struct loop_uv, base);

	loop_uv_end(ending);
	pthread_join(ending->thread, NULL);
	loop_uv_done(ending);
	free(ending);
	*loop = NULL;
}

#define WAIT_INTERVAL_NS 2000000

static bool threads_loop_wait(struct runtime *runtime UNUSED, bool (*until)(void *arg), void *arg, int64_t timeout_ms)
{
	int64_t end_us = time_monotonic_us() + timeout_ms * US_PER_MS;

	while (!until(arg)) {
		struct timespec pause = {0, WAIT_INTERVAL_NS};

		if (time_monotonic_us() >= end_us)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static const struct runtime_ops threads_ops = {
	.loop_start = threads_loop_start,
	.loop_stop = threads_loop_stop,
	.loop_call = threads_loop_call,
	.loop_wait = threads_loop_wait,
};

struct runtime *runtime_threads(void)
{
	static struct runtime threads = {&threads_ops};

	return &threads;
}
