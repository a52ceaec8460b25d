/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of lanes and the few executor threads that run them. Routing is affinity: every piece of work for an instance
 * goes to the lane that its id hashes to, so that two of them rarely meet at the claim; the claim is correctness (G3).
 *
 * Lane i runs on executor i mod K. Views are flipped executor by executor: the expressions of the new view are compiled into
 * the executor's state first, off any turn; the old ones are unloaded when its last lane has left the old view.
 */
#include "flow/lane_set.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/time.h"

struct lane_set *lane_set_new(struct runtime *runtime, const struct lane_set_settings *settings, struct store *store,
			      struct outbox *outbox, struct wake *wake)
{
	struct lane_set *set = mem_zalloc(sizeof(*set));

	set->settings = *settings;
	set->store = store;
	set->outbox = outbox;
	set->wake = wake;
	set->lanes = mem_zalloc(settings->lanes * sizeof(*set->lanes));
	set->executors = mem_zalloc(settings->executors * sizeof(*set->executors));
	for (uint32_t i = 0; i < settings->executors; i++) {
		char name[32];

		snprintf(name, sizeof(name), "executor-%u", i);
		set->executors[i].set = set;
		set->executors[i].loop = loop_start(runtime, name);
		set->executors[i].expressions = expression_state_new(&settings->expression_limits);
	}
	for (uint32_t i = 0; i < settings->lanes; i++)
		lane_init(&set->lanes[i], set, &set->executors[i % settings->executors], i);
	return set;
}

/* --- views --- */

static bool view_has_set(const struct view *view, const struct deployment *deployment)
{
	for (uint32_t i = 0; view && i < view->member_count; i++)
		if (view->members[i].deployment == deployment)
			return true;
	return false;
}

static void executor_mark_dead(struct executor_thread *executor)
{
	struct lane_set *set = executor->set;

	for (uint32_t i = 0; i < set->settings.lanes; i++)
		if (set->lanes[i].executor == executor)
			__atomic_store_n(&set->lanes[i].dead, true, __ATOMIC_RELEASE);
}

/* The old view's expressions go when the last lane of this executor has left it. */
void executor_lane_flipped(struct executor_thread *executor)
{
	struct lane_set *set = executor->set;
	struct view *leaving = executor->leaving;

	if (!leaving)
		return;
	for (uint32_t i = 0; i < set->settings.lanes; i++)
		if (set->lanes[i].executor == executor && set->lanes[i].view != executor->loaded)
			return;
	for (uint32_t i = 0; i < leaving->member_count; i++)
		if (!view_has_set(executor->loaded, leaving->members[i].deployment))
			expression_state_unload(executor->expressions,
						&leaving->members[i].deployment->expressions);
	view_unref(&executor->leaving);
}

struct executor_flip {
	struct executor_thread *executor;
	struct view *view;
	enum result result;
	struct error *err;
};

static void executor_flip(void *arg)
{
	struct executor_flip *flip = arg;
	struct executor_thread *executor = flip->executor;
	struct lane_set *set = executor->set;

	/* A third view while lanes are still leaving the first is not offered before they have: see lane_set_flipped. */
	assert(!executor->leaving);
	for (uint32_t i = 0; i < flip->view->member_count && flip->result == RESULT_OK; i++)
		if (!view_has_set(executor->loaded, flip->view->members[i].deployment))
			flip->result = expression_state_load(
				executor->expressions, &flip->view->members[i].deployment->expressions, flip->err);
	if (flip->result != RESULT_OK) {
		executor_mark_dead(executor);
		return;
	}
	executor->leaving = executor->loaded;
	executor->loaded = view_ref(flip->view);
	for (uint32_t i = 0; i < set->settings.lanes; i++)
		if (set->lanes[i].executor == executor)
			lane_flip(&set->lanes[i], flip->view);
}

enum result lane_set_flip(struct lane_set *set, struct view *view, struct error *err)
{
	enum result result = RESULT_OK;

	__atomic_store_n(&set->view_number, view->number, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < set->settings.executors; i++) {
		struct executor_flip flip = {&set->executors[i], view, RESULT_OK, err};

		loop_call(set->executors[i].loop, executor_flip, &flip);
		if (flip.result != RESULT_OK)
			result = RESULT_FATAL;
	}
	return result;
}

struct executor_flipped {
	struct executor_thread *executor;
	const struct view *view;
	bool flipped;
};

static void executor_flipped(void *arg)
{
	struct executor_flipped *question = arg;

	question->flipped = question->executor->loaded == question->view && !question->executor->leaving;
}

bool lane_set_flipped(struct lane_set *set, const struct view *view)
{
	for (uint32_t i = 0; i < set->settings.executors; i++) {
		struct executor_flipped question = {&set->executors[i], view, false};

		loop_call(set->executors[i].loop, executor_flipped, &question);
		if (!question.flipped)
			return false;
	}
	return true;
}

/* --- routing and submitting --- */

uint32_t lane_set_lane_of_key(const struct lane_set *set, struct str key)
{
	return (uint32_t)(hash_bytes(key.ptr, key.len) % set->settings.lanes);
}

uint32_t lane_set_lane_of_instance(const struct lane_set *set, struct id instance)
{
	return lane_set_lane_of_key(set, id_str(&instance));
}

bool lane_set_submit(struct lane_set *set, uint32_t index, struct lane_request *request)
{
	struct lane *lane = &set->lanes[index];

	request->lane = lane;
	if (__atomic_load_n(&lane->dead, __ATOMIC_ACQUIRE)) {
		request->answer = ANSWER_UNAVAILABLE;
		request->is_resolved = false;
		request->interest_count = 0;
		error_set(&request->error, RESULT_AGAIN, CODE_RUNTIME_UNEXPECTED, "lane %u is dead", index);
		request->post.run = request->answered;
		loop_post(request->reply_to, &request->post);
		return true;
	}
	if (set->settings.queue_capacity &&
	    __atomic_load_n(&lane->queued, __ATOMIC_ACQUIRE) >= set->settings.queue_capacity)
		return false;
	__atomic_add_fetch(&lane->queued, 1, __ATOMIC_ACQ_REL);
	request->post.run = lane_receive;
	loop_post(lane->executor->loop, &request->post);
	return true;
}

void lane_set_wait_room(struct lane_set *set, uint32_t index, struct lane_waiter *waiter)
{
	waiter->lane = &set->lanes[index];
	waiter->post.run = lane_wait_room;
	loop_post(waiter->lane->executor->loop, &waiter->post);
}

/* --- health --- */

static void executor_pinged(struct task *ping)
{
	struct executor_thread *executor = container_of(ping, struct executor_thread, ping);

	__atomic_store_n(&executor->ping_out, false, __ATOMIC_RELEASE);
}

/*
 * Only time in which this function was called counts as a stall: a process that was stopped for an hour finds every ping
 * unanswered when it goes on, and is healthy.
 */
uint32_t lane_set_check(struct lane_set *set, int64_t now_us)
{
	bool slept = now_us - set->checked_us > set->settings.stall_timeout_ms * US_PER_MS / 2;

	set->checked_us = now_us;
	for (uint32_t i = 0; i < set->settings.executors; i++) {
		struct executor_thread *executor = &set->executors[i];

		if (!__atomic_load_n(&executor->ping_out, __ATOMIC_ACQUIRE)) {
			executor->pinged_us = now_us;
			__atomic_store_n(&executor->ping_out, true, __ATOMIC_RELEASE);
			executor->ping.run = executor_pinged;
			loop_post(executor->loop, &executor->ping);
		} else if (slept) {
			executor->pinged_us = now_us;
		} else if (now_us - executor->pinged_us > set->settings.stall_timeout_ms * US_PER_MS) {
			executor_mark_dead(executor);
		}
	}
	return set->settings.lanes - lane_set_alive(set);
}

uint32_t lane_set_alive(const struct lane_set *set)
{
	uint32_t alive = 0;

	for (uint32_t i = 0; i < set->settings.lanes; i++)
		alive += !__atomic_load_n(&set->lanes[i].dead, __ATOMIC_ACQUIRE);
	return alive;
}

void lane_set_stop(struct lane_set *set)
{
	for (uint32_t i = 0; i < set->settings.executors; i++)
		loop_stop(&set->executors[i].loop);
}

void lane_set_free(struct lane_set **set)
{
	struct lane_set *s = *set;

	if (!s)
		return;
	for (uint32_t i = 0; i < s->settings.lanes; i++)
		lane_done(&s->lanes[i]);
	for (uint32_t i = 0; i < s->settings.executors; i++) {
		expression_state_free(&s->executors[i].expressions);
		view_unref(&s->executors[i].loaded);
		view_unref(&s->executors[i].leaving);
	}
	free(s->lanes);
	free(s->executors);
	free(s);
	*set = NULL;
}
