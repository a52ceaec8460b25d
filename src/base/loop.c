/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all loops share: the calls in front of the operations, and the heap of timers.
 *
 * Timers are ordered by (due, order of starting), so that two loops that see the same times fire in the same order:
 * the simulator relies on it. A timer knows its place in the heap, which makes stopping one O(log n) with hundreds of
 * thousands waiting.
 */
#include "base/loop.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

void loop_post(struct loop *loop, struct task *task)
{
	loop->ops->post(loop, task);
}

int64_t loop_now_us(struct loop *loop)
{
	return loop->ops->now_us(loop);
}

int64_t loop_wall_us(struct loop *loop)
{
	return loop->ops->wall_us(loop);
}

uint64_t loop_random(struct loop *loop)
{
	return loop->ops->random(loop);
}

uint64_t loop_random_below(struct loop *loop, uint64_t bound)
{
	uint64_t uneven, value;

	assert(bound >= 1);
	/* Values below 2^64 mod bound would make small results more likely. */
	uneven = -bound % bound;
	do
		value = loop_random(loop);
	while (value < uneven);
	return value % bound;
}

int64_t loop_backoff_us(struct loop *loop, int64_t min_us, int64_t max_us, uint32_t doublings)
{
	int64_t full_us = min_us;

	for (uint32_t i = 0; i < doublings && full_us < max_us; i++)
		full_us *= 2;
	if (full_us > max_us)
		full_us = max_us;
	return full_us / 2 + (int64_t)loop_random_below(loop, (uint64_t)full_us / 2 + 1);
}

void loop_base_init(struct loop *loop, struct runtime *runtime, const struct loop_ops *ops, const char *name)
{
	*loop = (struct loop){.ops = ops, .runtime = runtime};
	snprintf(loop->name, sizeof(loop->name), "%s", name);
}

void loop_base_done(struct loop *loop)
{
	/* Owners may stop their timers after the loop has gone. */
	for (size_t i = 0; i < loop->heap_len; i++)
		loop->heap[i]->heap_pos = 0;
	free(loop->heap);
	loop->heap = NULL;
	loop->heap_len = loop->heap_cap = 0;
}

/* --- the heap ------------------------------------------------------------------------------------------------- */

static bool is_before(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->due_us < b->due_us || (a->due_us == b->due_us && a->seq < b->seq);
}

static void heap_place(struct loop *loop, size_t at, struct loop_timer *timer)
{
	loop->heap[at] = timer;
	timer->heap_pos = at + 1;
}

static void heap_up(struct loop *loop, size_t at)
{
	struct loop_timer *timer = loop->heap[at];

	while (at > 0 && is_before(timer, loop->heap[(at - 1) / 2])) {
		heap_place(loop, at, loop->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	heap_place(loop, at, timer);
}

static void heap_down(struct loop *loop, size_t at)
{
	struct loop_timer *timer = loop->heap[at];

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= loop->heap_len)
			break;
		if (child + 1 < loop->heap_len && is_before(loop->heap[child + 1], loop->heap[child]))
			child++;
		if (!is_before(loop->heap[child], timer))
			break;
		heap_place(loop, at, loop->heap[child]);
		at = child;
	}
	heap_place(loop, at, timer);
}

static void heap_add(struct loop *loop, struct loop_timer *timer)
{
	if (loop->heap_len == loop->heap_cap) {
		loop->heap_cap = loop->heap_cap ? loop->heap_cap * 2 : 16;
		loop->heap = mem_array(loop->heap, loop->heap_cap, sizeof(*loop->heap));
	}
	loop->heap[loop->heap_len++] = timer;
	heap_up(loop, loop->heap_len - 1);
}

static void heap_remove(struct loop *loop, struct loop_timer *timer)
{
	size_t at = timer->heap_pos - 1;
	struct loop_timer *last = loop->heap[--loop->heap_len];

	assert(at <= loop->heap_len && (at == loop->heap_len || loop->heap[at] == timer));
	timer->heap_pos = 0;
	if (last == timer)
		return;
	heap_place(loop, at, last);
	heap_up(loop, at);
	heap_down(loop, last->heap_pos - 1);
}

/* --- timers --------------------------------------------------------------------------------------------------- */

int64_t loop_timers_next_us(const struct loop *loop)
{
	return loop->heap_len ? loop->heap[0]->due_us : INT64_MAX;
}

static void arm_if_changed(struct loop *loop, int64_t before_us)
{
	int64_t next_us = loop_timers_next_us(loop);

	if (next_us != before_us)
		loop->ops->arm(loop, next_us);
}

void loop_timer_init(struct loop_timer *timer, struct loop *loop, void (*fire)(struct loop_timer *))
{
	*timer = (struct loop_timer){.loop = loop, .fire = fire};
}

void loop_timer_start(struct loop_timer *timer, int64_t delay_us)
{
	struct loop *loop = timer->loop;
	int64_t before_us = loop_timers_next_us(loop);

	assert(delay_us >= 0);
	if (timer->heap_pos)
		heap_remove(loop, timer);
	/* One short of what means "none". */
	if (__builtin_add_overflow(loop_now_us(loop), delay_us, &timer->due_us) || timer->due_us == INT64_MAX)
		timer->due_us = INT64_MAX - 1;
	timer->seq = ++loop->timer_seq;
	heap_add(loop, timer);
	arm_if_changed(loop, before_us);
}

void loop_timer_stop(struct loop_timer *timer)
{
	int64_t before_us;

	if (!timer->heap_pos)
		return;
	before_us = loop_timers_next_us(timer->loop);
	heap_remove(timer->loop, timer);
	arm_if_changed(timer->loop, before_us);
}

bool loop_timer_is_started(const struct loop_timer *timer)
{
	return timer->heap_pos != 0;
}

void loop_timers_run(struct loop *loop, int64_t now_us)
{
	/* What is started from here on waits for the next call, even with no delay. */
	uint64_t last_seq = loop->timer_seq;

	while (loop->heap_len && loop->heap[0]->due_us <= now_us && loop->heap[0]->seq <= last_seq) {
		struct loop_timer *timer = loop->heap[0];

		heap_remove(loop, timer);
		timer->fire(timer);
	}
	loop->ops->arm(loop, loop_timers_next_us(loop));
}
