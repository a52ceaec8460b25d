/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The production loop over libuv.
 *
 * Tasks stand in one list under a mutex, so that those of one poster keep their order; whoever finds the list empty
 * wakes the loop, the others need not. The loop takes the whole list at once and runs a bounded number of tasks before
 * it looks at timers and descriptors again: a task that posts itself for ever starves nobody. A mutex rather than a
 * lock-free list: it is held for a moment, and never while anything of ours runs.
 *
 * One libuv timer stands for the heap of loop.c and is set to its earliest entry, rounded up to libuv's milliseconds.
 */
#include "base/loop_uv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/time.h"

/* Tasks in a row, before timers and descriptors have their turn. */
#define TASKS_PER_ROUND 256
/* Rounds that handles closed by their owners have to finish, when the loop ends. */
#define CLOSING_ROUNDS 64

static struct loop_uv *loop_uv_of(struct loop *loop)
{
	return container_of(loop, struct loop_uv, base);
}

static void wake(struct loop_uv *loop)
{
	const uint64_t one = 1;
	ssize_t written;

	do {
		written = write(loop->wake_fd, &one, sizeof(one));
	} while (written < 0 && errno == EINTR);
	assert(written == sizeof(one));
}

static void post(struct loop *base, struct task *task)
{
	struct loop_uv *loop = loop_uv_of(base);
	bool was_empty;

	task->next = NULL;
	pthread_mutex_lock(&loop->mutex);
	was_empty = !loop->posted;
	*loop->posted_tail = task;
	loop->posted_tail = &task->next;
	/* Inside the lock: the loop cannot end between the look at `ended` and the call. */
	if (was_empty && !loop->ended)
		wake(loop);
	pthread_mutex_unlock(&loop->mutex);
}

static struct task *take_posted(struct loop_uv *loop)
{
	struct task *tasks;

	pthread_mutex_lock(&loop->mutex);
	tasks = loop->posted;
	loop->posted = NULL;
	loop->posted_tail = &loop->posted;
	pthread_mutex_unlock(&loop->mutex);
	return tasks;
}

static void run_tasks(uv_poll_t *handle, int status UNUSED, int events UNUSED)
{
	struct loop_uv *loop = handle->data;
	uint64_t count;

	/* Before the list is taken: whoever appends to it after that wakes the loop again. */
	if (read(loop->wake_fd, &count, sizeof(count)) < 0)
		assert(errno == EAGAIN || errno == EINTR);
	if (!loop->ready)
		loop->ready = take_posted(loop);
	for (int i = 0; i < TASKS_PER_ROUND && loop->ready && !loop->ended; i++) {
		struct task *task = loop->ready;

		/* The task is gone once it runs. */
		loop->ready = task->next;
		task->run(task);
	}
	pthread_mutex_lock(&loop->mutex);
	if (!loop->ended && (loop->ready || loop->posted))
		wake(loop);
	pthread_mutex_unlock(&loop->mutex);
}

static void run_timers(uv_timer_t *handle)
{
	struct loop_uv *loop = handle->data;

	loop_timers_run(&loop->base, time_monotonic_us());
}

static void arm(struct loop *base, int64_t due_us)
{
	struct loop_uv *loop = loop_uv_of(base);
	int64_t delay_us;

	assert(pthread_equal(pthread_self(), loop->self));
	if (due_us == INT64_MAX) {
		uv_timer_stop(&loop->timer);
		return;
	}
	delay_us = due_us - time_monotonic_us();
	if (delay_us < 0)
		delay_us = 0;
	/* libuv counts from the time it took when it woke. */
	uv_update_time(&loop->uv);
	uv_timer_start(&loop->timer, run_timers, (uint64_t)((delay_us + US_PER_MS - 1) / US_PER_MS), 0);
}

static int64_t now_us(struct loop *base UNUSED)
{
	return time_monotonic_us();
}

static int64_t wall_us(struct loop *base UNUSED)
{
	return time_wall_us();
}

/* The kernel's random bytes, fetched 256 at a time: that many come whole or not at all. */
static uint64_t next_random(struct loop *base)
{
	struct loop_uv *loop = loop_uv_of(base);

	if (!loop->random_left) {
		while (getrandom(loop->random_pool, sizeof(loop->random_pool), 0) !=
		       (ssize_t)sizeof(loop->random_pool))
			if (errno != EINTR)
				abort();
		loop->random_left = ARRAY_LEN(loop->random_pool);
	}
	return loop->random_pool[--loop->random_left];
}

static const struct loop_ops loop_uv_ops = {
	.post = post,
	.arm = arm,
	.now_us = now_us,
	.wall_us = wall_us,
	.random = next_random,
};

uv_loop_t *loop_uv(struct loop *loop)
{
	return loop->ops == &loop_uv_ops ? &loop_uv_of(loop)->uv : NULL;
}

void loop_uv_init(struct loop_uv *loop, struct runtime *runtime, const char *name)
{
	memset(loop, 0, sizeof(*loop));
	loop_base_init(&loop->base, runtime, &loop_uv_ops, name);
	pthread_mutex_init(&loop->mutex, NULL);
	loop->posted_tail = &loop->posted;
	/* They fail only for want of descriptors, and a service that cannot have its loops cannot run. */
	loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (loop->wake_fd < 0 || uv_loop_init(&loop->uv) != 0 ||
	    uv_poll_init(&loop->uv, &loop->wake, loop->wake_fd) != 0 ||
	    uv_poll_start(&loop->wake, UV_READABLE, run_tasks) != 0 || uv_timer_init(&loop->uv, &loop->timer) != 0)
		abort();
	loop->wake.data = loop;
	loop->timer.data = loop;
}

static void run_end(struct task *task)
{
	struct loop_uv *loop = container_of(task, struct loop_uv, end);

	pthread_mutex_lock(&loop->mutex);
	loop->ended = true;
	pthread_mutex_unlock(&loop->mutex);
	uv_stop(&loop->uv);
}

void loop_uv_end(struct loop_uv *loop)
{
	loop->end.run = run_end;
	post(&loop->base, &loop->end);
}

void loop_uv_run(struct loop_uv *loop)
{
	int result = UV_EBUSY;

	uv_run(&loop->uv, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&loop->wake, NULL);
	uv_close((uv_handle_t *)&loop->timer, NULL);
	for (int i = 0; i < CLOSING_ROUNDS && result == UV_EBUSY; i++) {
		uv_run(&loop->uv, UV_RUN_NOWAIT);
		result = uv_loop_close(&loop->uv);
	}
	/* Whoever opens a handle on a loop closes it before the loop is stopped. */
	assert(result == 0);
}

void loop_uv_done(struct loop_uv *loop)
{
	close(loop->wake_fd);
	loop_base_done(&loop->base);
	pthread_mutex_destroy(&loop->mutex);
}
