/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: one request at a time, each awaited to its end, then the next.
 *
 *	          receive                       turn_begin
 *	sender ───────────► queue ──► lane_pump ─────────► turn ──┐
 *	   ▲                              ▲                       │ lane_turn_done
 *	   └───────── answered ───────────┴───────────────────────┘
 *
 * All state is the executor's, but `queued` (how full the mailbox is: senders look before they post) and `dead` (set by the
 * stall check). The next request is taken by a posted task, never from inside the end of the last one, so that hundreds of
 * lanes on one executor take turns and nothing recurses.
 */
#include "flow/lane.h"

#include "flow/lane_set.h"

static const char *const lane_answer_names[] = {
	[ANSWER_COMMITTED] = "committed", [ANSWER_DUPLICATE] = "duplicate", [ANSWER_REJECTED] = "rejected",
	[ANSWER_GONE] = "gone",
	[ANSWER_DROPPED] = "dropped",	  [ANSWER_RESOLVED] = "resolved",   [ANSWER_HANDOFF] = "handoff",	    [ANSWER_REFUSED] = "refused",
	[ANSWER_UNMATCHED] = "unmatched", [ANSWER_AGAIN] = "again",	    [ANSWER_UNAVAILABLE] = "unavailable",
	[ANSWER_KEPT_LOST] = "kept elsewhere",
};

const char *lane_answer_name(enum lane_answer answer)
{
	return lane_answer_names[answer];
}

static void lane_pump(struct lane *lane);

static void lane_next(struct task *task)
{
	struct lane *lane = container_of(task, struct lane, next);

	lane->scheduled = false;
	lane_pump(lane);
}

void lane_init(struct lane *lane, struct lane_set *set, struct executor_thread *executor, uint32_t index)
{
	lane->index = index;
	lane->set = set;
	lane->executor = executor;
	snprintf(lane->owner, sizeof(lane->owner), "%s-s%u", set->settings.owner_prefix, index);
	snprintf(lane->admin_owner, sizeof(lane->admin_owner), "%s-a%u", set->settings.owner_prefix, index);
	list_init(&lane->queue);
	list_init(&lane->waiters);
	lane->next.run = lane_next;
	map_init(&lane->retry.failures);
	turn_init(&lane->turn, lane);
}

void lane_done(struct lane *lane)
{
	turn_done(&lane->turn);
	retry_done(&lane->retry);
	view_unref(&lane->view);
	view_unref(&lane->next_view);
}

static bool lane_is_busy(const struct lane *lane)
{
	return lane->turn.state != TURN_IDLE;
}

static void lane_apply_flip(struct lane *lane)
{
	if (!lane->next_view)
		return;
	view_unref(&lane->view);
	lane->view = lane->next_view;
	lane->next_view = NULL;
	executor_lane_flipped(lane->executor);
}

/* Everything that waits for room is told at once: each tries again, and waits again if others were faster. */
static void lane_tell_waiters(struct lane *lane)
{
	list_for_each(&lane->waiters, pos, tmp) {
		struct lane_waiter *waiter = list_entry(pos, struct lane_waiter, link);

		list_remove(&waiter->link);
		waiter->post.run = waiter->room;
		loop_post(waiter->reply_to, &waiter->post);
	}
}

static void lane_answer(struct lane *lane, struct lane_request *request)
{
	uint32_t left = __atomic_sub_fetch(&lane->queued, 1, __ATOMIC_RELEASE);

	__atomic_store_n(&lane->stats.queue_depth, left, __ATOMIC_RELAXED);
	request->post.run = request->answered;
	loop_post(request->reply_to, &request->post);
	lane_tell_waiters(lane);
}

static void lane_pump(struct lane *lane)
{
	struct lane_request *request;

	if (lane_is_busy(lane) || lane->scheduled)
		return;
	lane_apply_flip(lane);
	request = list_first(&lane->queue, struct lane_request, link);
	if (!request)
		return;
	list_remove(&request->link);
	__atomic_add_fetch(&lane->stats.dispatches, 1, __ATOMIC_RELAXED);
	turn_begin(&lane->turn, request);
}

void lane_receive(struct task *post)
{
	struct lane_request *request = container_of(post, struct lane_request, post);
	struct lane *lane = request->lane;

	if (!lane->view && !lane->next_view) {
		request->answer = ANSWER_UNAVAILABLE;
		error_set(&request->error, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE, "the lane has no view yet");
		lane_answer(lane, request);
		return;
	}
	list_push(&lane->queue, &request->link);
	lane_pump(lane);
}

void lane_wait_room(struct task *post)
{
	struct lane_waiter *waiter = container_of(post, struct lane_waiter, post);
	struct lane *lane = waiter->lane;

	list_push(&lane->waiters, &waiter->link);
	if (__atomic_load_n(&lane->queued, __ATOMIC_ACQUIRE) < lane->set->settings.queue_capacity)
		lane_tell_waiters(lane);
}

void lane_flip(struct lane *lane, struct view *view)
{
	view_unref(&lane->next_view);
	lane->next_view = view_ref(view);
	if (!lane_is_busy(lane))
		lane_apply_flip(lane);
}

void lane_turn_done(struct lane *lane)
{
	struct lane_request *request = lane->turn.request;

	lane->turn.state = TURN_IDLE;
	lane->turn.request = NULL;
	if (request->answer == ANSWER_HANDOFF && request->target_lane != lane->index)
		__atomic_add_fetch(&lane->stats.handoffs, 1, __ATOMIC_RELAXED);
	lane_answer(lane, request);
	if (lane->scheduled || (list_is_empty(&lane->queue) && !lane->next_view))
		return;
	lane->scheduled = true;
	loop_post(lane->executor->loop, &lane->next);
}
