/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage settle: what the answer of a lane means for the delivery.
 *
 *	committed, duplicate, rejected, dropped   done: the broker forgets it
 *	handoff                                   to the owner lane, at most once per resolve
 *	again                                     resolved anew, keeping its place
 *	refused, unmatched, unavailable           held: it stays the broker's, unacknowledged, and is tried again
 *
 * A held delivery writes nothing and costs the broker nothing (G7). It is tried again the moment this replica's own lanes
 * release the instance, or park on a wait, that it is for (wake.h), else after a backoff that doubles from
 * refusal.backoff.min to .max, with jitter over its upper half so that replicas do not march in step.
 *
 * An unmatched relay is held in the same way, for `unmatched.hold` at most: then one last resolve decides, and only that may
 * declare it unmatched for good. It is the head of its chain, so everything before it has settled by then. The hold begins
 * anew after the engine or the database was away: what the relay is for was held up as long.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "flow/delivery.h"

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)

/* --- interests: what may wake a held delivery --- */

static void interest_add(struct delivery *dlv, struct delivery_interest *interest, struct id key)
{
	struct intake *intake = dlv->intake;
	struct list *head = map_get(&intake->interests, id_str(&key));

	*interest = (struct delivery_interest){.delivery = dlv, .key = key};
	if (!head) {
		head = mem_alloc(sizeof(*head));
		list_init(head);
		map_put(&intake->interests, id_str(&key), head);
	}
	list_push(head, &interest->link);
	wake_interest(intake->wake, key, &intake->wake_target);
}

static void interest_drop(struct delivery *dlv, struct delivery_interest *interest)
{
	struct intake *intake = dlv->intake;
	struct list *head = map_get(&intake->interests, id_str(&interest->key));

	list_remove(&interest->link);
	wake_drop(intake->wake, interest->key, &intake->wake_target);
	if (list_is_empty(head)) {
		map_remove(&intake->interests, id_str(&interest->key));
		free(head);
	}
}

static void delivery_register(struct delivery *dlv)
{
	const struct lane_request *request = &dlv->request;

	if (!request->interest_count)
		return;
	dlv->interests = mem_array(dlv->interests, request->interest_count, sizeof(*dlv->interests));
	dlv->interest_count = request->interest_count;
	for (uint32_t i = 0; i < dlv->interest_count; i++)
		interest_add(dlv, &dlv->interests[i], request->interest[i]);
}

/* --- hold --- */

static int64_t hold_delay_us(const struct delivery *dlv)
{
	const struct intake_settings *settings = &dlv->intake->settings;
	int64_t full = settings->backoff_min_ms * US_PER_MS;
	int64_t most = settings->backoff_max_ms * US_PER_MS;

	for (uint32_t i = 1; i < dlv->attempts && full < most; i++)
		full *= 2;
	if (full > most)
		full = most;
	return full / 2 + (int64_t)loop_random_below(dlv->intake->loop, (uint64_t)(full / 2) + 1);
}

/* How much is left of the unmatched hold; INT64_MAX when that does not run. */
static int64_t hold_left_us(const struct delivery *dlv, int64_t now_us)
{
	int64_t end_us;

	if (!dlv->unmatched_since_us)
		return INT64_MAX;
	end_us = dlv->unmatched_since_us + dlv->intake->settings.unmatched_hold_ms * US_PER_MS;
	return end_us > now_us ? end_us - now_us : 0;
}

#define OLDEST_INTERVAL_US (200 * US_PER_MS)

/* For the metric. Walking the window on every hold would cost too much, so the figure may lag a little. */
static void intake_update_oldest(struct intake *intake)
{
	int64_t now_us = loop_now_us(intake->loop);
	int64_t oldest = 0;

	if (!intake->stats.held) {
		__atomic_store_n(&intake->stats.oldest_held_us, 0, __ATOMIC_RELAXED);
		return;
	}
	if (now_us - intake->oldest_checked_us < OLDEST_INTERVAL_US)
		return;
	intake->oldest_checked_us = now_us;
	list_for_each(&intake->window, pos, tmp) {
		struct delivery *dlv = list_entry(pos, struct delivery, window_link);

		if (dlv->state == DELIVERY_HELD && (!oldest || dlv->held_since_us < oldest))
			oldest = dlv->held_since_us;
	}
	__atomic_store_n(&intake->stats.oldest_held_us, oldest, __ATOMIC_RELAXED);
}

static void hold_over(struct loop_timer *timer)
{
	struct delivery *dlv = container_of(timer, struct delivery, retry);

	settle_unhold(dlv);
	dlv->request.unmatched_is_final = hold_left_us(dlv, loop_now_us(dlv->intake->loop)) == 0;
	delivery_dispatch(dlv);
}

static void settle_hold(struct delivery *dlv)
{
	struct intake *intake = dlv->intake;
	enum lane_answer reason = dlv->request.answer;
	int64_t now_us = loop_now_us(intake->loop);
	int64_t delay_us, left_us;
	struct log_about about = {
		.stage = "settle",
		.delivery = dlv->message->source,
		.tenant = dlv->request.tenant,
		.channel = dlv->request.channel,
		.lane = dlv->request.lane ? (int)dlv->request.lane->index + 1 : 0,
		.code = dlv->request.error.code,
	};

	dlv->attempts++;
	if (!dlv->held_since_us)
		dlv->held_since_us = now_us;
	/* While nothing could be looked up, nothing could have come to wait either: that time is not part of the hold. */
	if (reason == ANSWER_UNAVAILABLE)
		dlv->unmatched_since_us = 0;
	else if (reason == ANSWER_UNMATCHED && !dlv->unmatched_since_us)
		dlv->unmatched_since_us = now_us;
	log_debug(&about, "held (%s, attempt %u): %s", lane_answer_name(reason), dlv->attempts,
		  dlv->request.error.text);
	delivery_register(dlv);
	delay_us = hold_delay_us(dlv);
	left_us = reason == ANSWER_UNMATCHED ? hold_left_us(dlv, now_us) : INT64_MAX;
	dlv->state = DELIVERY_HELD;
	stat_add(intake->stats.held, 1);
	loop_timer_init(&dlv->retry, intake->loop, hold_over);
	loop_timer_start(&dlv->retry, delay_us < left_us ? delay_us : left_us);
	intake_update_oldest(intake);
}

void settle_unhold(struct delivery *dlv)
{
	assert(dlv->state == DELIVERY_HELD);
	loop_timer_stop(&dlv->retry);
	for (uint32_t i = 0; i < dlv->interest_count; i++)
		interest_drop(dlv, &dlv->interests[i]);
	dlv->interest_count = 0;
	dlv->state = DELIVERY_CHAINED;
	stat_add(dlv->intake->stats.held, (uint64_t)-1);
	intake_update_oldest(dlv->intake);
}

void settle_woken(struct intake *intake, struct id key)
{
	struct list *head = map_get(&intake->interests, id_str(&key));
	struct list woken;

	if (!head)
		return;
	/* Unholding changes the lists, so the deliveries are collected first. */
	list_init(&woken);
	list_for_each(head, pos, tmp) {
		struct delivery *dlv = list_entry(pos, struct delivery_interest, link)->delivery;

		if (!list_is_linked(&dlv->request.link))
			list_push(&woken, &dlv->request.link);
	}
	list_for_each(&woken, pos, tmp) {
		struct delivery *dlv = list_entry(pos, struct delivery, request.link);

		list_remove(&dlv->request.link);
		settle_unhold(dlv);
		dlv->attempts = 0;
		delivery_dispatch(dlv);
	}
}

/* --- answers --- */

static bool answer_is_done(enum lane_answer answer)
{
	return answer == ANSWER_COMMITTED || answer == ANSWER_DUPLICATE || answer == ANSWER_REJECTED ||
	       answer == ANSWER_DROPPED;
}

static void settle_count(struct intake_stats *stats, enum lane_answer answer)
{
	switch (answer) {
	case ANSWER_COMMITTED:
		stat_add(stats->committed, 1);
		break;
	case ANSWER_DUPLICATE:
		stat_add(stats->duplicate, 1);
		break;
	case ANSWER_REJECTED:
		stat_add(stats->rejected, 1);
		break;
	case ANSWER_DROPPED:
		stat_add(stats->dropped, 1);
		break;
	case ANSWER_REFUSED:
		stat_add(stats->refused, 1);
		break;
	case ANSWER_UNMATCHED:
		stat_add(stats->unmatched, 1);
		break;
	case ANSWER_UNAVAILABLE:
		stat_add(stats->unavailable, 1);
		break;
	case ANSWER_RESOLVED:
	case ANSWER_HANDOFF:
	case ANSWER_AGAIN:
		break;
	}
}

void settle_answered(struct delivery *dlv)
{
	enum lane_answer answer = dlv->request.answer;

	assert(dlv->state == DELIVERY_ON_LANE);
	settle_count(&dlv->intake->stats, answer);
	if (answer_is_done(answer)) {
		delivery_settle(dlv, SETTLE_DONE);
		return;
	}
	if (dlv->revoked) {
		delivery_settle(dlv, SETTLE_BACK);
		return;
	}
	if (dlv->request.resolve_only && (answer == ANSWER_HANDOFF || answer == ANSWER_RESOLVED)) {
		delivery_placed(dlv);
		return;
	}
	/* The first time a wait was gone the truth is one resolve away; from then on it is paced like a refusal. */
	if (answer == ANSWER_HANDOFF || (answer == ANSWER_AGAIN && dlv->attempts++ == 0))
		delivery_dispatch(dlv);
	else
		settle_hold(dlv);
}
