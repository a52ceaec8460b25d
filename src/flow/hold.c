/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holding deliveries: backoff, wake-ups, and the bounds of hold.h.
 *
 * An unmatched relay is held in the same way, for `unmatched.hold` at most: then one last resolve decides, and only that may
 * declare it unmatched for good. It is the head of its chain, so everything before it has settled by then. The hold begins
 * anew after the engine or the database was away: what the relay is for was held up as long.
 */
#include "flow/hold.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "flow/keep.h"

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)

/* A refusal that ends in a moment is not worth a row: so often one is tried before a bound of the channel may end its hold. */
#define TRIES_BEFORE_KEEP 3
/* A place costs a query a try. So long they are spread, and so long at most between two tries. */
#define PLACE_PACE_US	  (10 * US_PER_MS)
#define PLACE_DELAY_MAX_US (60 * US_PER_S)
/* The span of a lease is looked at with every so manieth delivery. */
#define SPAN_CHECK_MASK 1023

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
	const struct intake *intake = dlv->intake;
	int64_t most = intake->settings.backoff_max_ms * US_PER_MS;
	int64_t pace = (int64_t)keep_places_awake(intake) * PLACE_PACE_US;

	if (dlv->is_place && pace > most)
		most = pace < PLACE_DELAY_MAX_US ? pace : PLACE_DELAY_MAX_US;
	return loop_backoff_us(intake->loop, intake->settings.backoff_min_ms * US_PER_MS, most,
			       dlv->attempts ? dlv->attempts - 1 : 0);
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

/* --- bounds --- */

/* It has been tried often enough: whoever comes to wait for it finds it in the database (early.h). */
static void hold_early(const struct delivery *dlv)
{
	if (dlv->state == DELIVERY_HELD && !dlv->is_place && dlv->request.answer == ANSWER_UNMATCHED && dlv->chain &&
	    dlv->attempts >= TRIES_BEFORE_KEEP && keep_first(dlv->chain) == dlv)
		keep_begin(dlv->intake, dlv->chain);
}

/* Time past which the first live delivery of a chain is not held any longer; INT64_MAX: never. */
static int64_t hold_limit_us(const struct intake *intake, const struct delivery *first)
{
	const struct intake_settings *settings = &intake->settings;
	int64_t since_us = first->held_since_us ? first->held_since_us : first->received_us;
	int64_t limit_us = settings->hold_ms ? since_us + settings->hold_ms * US_PER_MS : INT64_MAX;
	int64_t broker_us = settings->delivery_ms ? first->received_us + settings->delivery_ms * US_PER_MS / 3
						  : INT64_MAX;

	return limit_us < broker_us ? limit_us : broker_us;
}

/* Called with every try, so a hold may outlast its bound by a backoff. */
static void hold_check_age(const struct delivery *dlv, int64_t now_us)
{
	const struct delivery *first;

	if (!dlv->chain || !dlv->chain->live)
		return;
	first = keep_first(dlv->chain);
	if (first && now_us >= hold_limit_us(dlv->intake, first))
		keep_begin(dlv->intake, dlv->chain);
}

static struct chain *hold_oldest(const struct intake *intake)
{
	struct chain *oldest = NULL;
	int64_t oldest_us = INT64_MAX;

	list_for_each(&intake->parked, pos, tmp) {
		struct chain *chain = list_entry(pos, struct chain, parked_link);
		const struct delivery *first = keep_first(chain);

		if (!first || first->received_us >= oldest_us)
			continue;
		if (chain_is_head(first) && first->attempts < TRIES_BEFORE_KEEP)
			continue;
		oldest = chain;
		oldest_us = first->received_us;
	}
	return oldest;
}

void hold_bounds(struct intake *intake)
{
	uint64_t half = intake->settings.max_in_flight / 2;
	struct chain *chain;

	if (!intake->settings.max_in_flight)
		return;
	while (intake->parked_count && (intake->parked_count >= half || intake->parked_bytes > HOLD_BYTES_MAX)) {
		chain = hold_oldest(intake);
		if (!chain || !keep_begin(intake, chain))
			return;
	}
}

/* Deliveries that the lease of `latest` has left behind too far. */
static void hold_span(const struct delivery *latest)
{
	struct intake *intake = latest->intake;
	const struct message *message = latest->message;

	list_for_each(&intake->parked, pos, tmp) {
		struct chain *chain = list_entry(pos, struct chain, parked_link);
		const struct delivery *first = keep_first(chain);

		if (first && first->message->lease == message->lease &&
		    message->token - first->message->token >= intake->settings.span)
			keep_begin(intake, chain);
	}
}

void hold_received(struct delivery *dlv)
{
	struct intake *intake = dlv->intake;

	if (!intake->parked_count)
		return;
	if (intake->settings.span && (intake->stats.received & SPAN_CHECK_MASK) == 0)
		hold_span(dlv);
	hold_bounds(intake);
}

/* --- in and out --- */

/*
 * Where the channel says so, a refused delivery goes back to the broker, for another replica's consumer to take; not where
 * the broker counts that against the message; nor one whose step failed, for only we count that.
 */
static bool hold_requeues(const struct delivery *dlv)
{
	return dlv->intake->settings.requeues && !dlv->is_place && dlv->request.answer == ANSWER_REFUSED &&
	       !dlv->request.failures && !dlv->message->returns_are_counted;
}

static void hold_over(struct loop_timer *timer)
{
	struct delivery *dlv = container_of(timer, struct delivery, retry);

	hold_end(dlv);
	if (hold_requeues(dlv)) {
		stat_add(dlv->intake->stats.requeued, 1);
		delivery_settle(dlv, SETTLE_BACK);
		return;
	}
	dlv->request.unmatched_is_final = hold_left_us(dlv, loop_now_us(dlv->intake->loop)) == 0;
	delivery_dispatch(dlv);
}

static void hold_log(const struct delivery *dlv)
{
	const struct log_about about = {
		.stage = "settle",
		.delivery = dlv->message ? dlv->message->source : STR_NONE,
		.tenant = dlv->request.tenant,
		.channel = dlv->request.channel,
		.lane = dlv->request.lane ? (int)dlv->request.lane->index + 1 : 0,
		.code = dlv->request.error.code,
	};

	log_debug(&about, "held (%s, attempt %u): %s", lane_answer_name(dlv->request.answer), dlv->attempts,
		  dlv->request.error.text);
}

void hold_begin(struct delivery *dlv)
{
	struct intake *intake = dlv->intake;
	enum lane_answer reason = dlv->request.answer;
	int64_t now_us = loop_now_us(intake->loop);
	int64_t delay_us, left_us;

	dlv->attempts++;
	if (hold_requeues(dlv) && dlv->attempts <= dlv->message->returns)
		dlv->attempts = dlv->message->returns + 1;
	if (!dlv->held_since_us)
		dlv->held_since_us = now_us;
	/* While nothing could be looked up, nothing could have come to wait either: that time is not part of the hold. */
	if (reason == ANSWER_UNAVAILABLE)
		dlv->unmatched_since_us = 0;
	else if (reason == ANSWER_UNMATCHED && !dlv->unmatched_since_us)
		dlv->unmatched_since_us = now_us;
	hold_log(dlv);
	delivery_register(dlv);
	left_us = reason == ANSWER_UNMATCHED ? hold_left_us(dlv, now_us) : INT64_MAX;
	delay_us = dlv->is_place && keep_falls_asleep(dlv) ? left_us : hold_delay_us(dlv);
	dlv->state = DELIVERY_HELD;
	if (!dlv->is_place)
		stat_add(intake->stats.held, 1);
	chain_held(dlv, true);
	loop_timer_init(&dlv->retry, intake->loop, hold_over);
	loop_timer_start(&dlv->retry, delay_us < left_us ? delay_us : left_us);
	intake_update_oldest(intake);
	hold_check_age(dlv, now_us);
	hold_early(dlv);
	hold_bounds(intake);
}

void hold_followed(const struct delivery *dlv)
{
	struct delivery *head = list_first(&dlv->chain->deliveries, struct delivery, chain_link);
	int64_t now_us = loop_now_us(dlv->intake->loop), delay_us, left_us;

	if (head == dlv || !head->is_place || !keep_is_asleep(head))
		return;
	delay_us = hold_delay_us(head);
	left_us = hold_left_us(head, now_us);
	if (delay_us > left_us)
		delay_us = left_us;
	if (head->retry.due_us > now_us + delay_us)
		loop_timer_start(&head->retry, delay_us);
}

void hold_end(struct delivery *dlv)
{
	assert(dlv->state == DELIVERY_HELD);
	loop_timer_stop(&dlv->retry);
	for (uint32_t i = 0; i < dlv->interest_count; i++)
		interest_drop(dlv, &dlv->interests[i]);
	dlv->interest_count = 0;
	if (dlv->is_place)
		keep_awake(dlv);
	dlv->state = DELIVERY_CHAINED;
	chain_held(dlv, false);
	if (!dlv->is_place)
		stat_add(dlv->intake->stats.held, (uint64_t)-1);
	intake_update_oldest(dlv->intake);
}

void hold_woken(struct intake *intake, struct id key)
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
		hold_end(dlv);
		dlv->attempts = 0;
		delivery_dispatch(dlv);
	}
}
