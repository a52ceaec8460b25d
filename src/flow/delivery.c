/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage delivery: what stands behind a consumer. Runs on the consumer's loop.
 *
 * Order (G8): messages with one order key (of the broker, or of their instance) form a chain, and only the head of a chain is
 * sent to a lane.
 *
 * Settle once (G2): a delivery leaves the window by delivery_settle and by nothing else. It is acknowledged only when a lane
 * has answered that its effect, or its dead letter, is committed (G1).
 *
 * A lease that is revoked (a partition that goes to another replica) takes its idle deliveries with it at once; one that a
 * lane has in work is let finish: if it commits, the next owner's redelivery meets the inbox row (G5).
 */
#include "flow/delivery.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "base/time.h"
#include "flow/hold.h"
#include "flow/keep.h"

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)

/* --- to a lane and back --- */

static void delivery_answered(struct task *post)
{
	settle_answered(container_of(post, struct delivery, request.post));
}

static void delivery_room(struct task *post)
{
	struct delivery *dlv = container_of(post, struct delivery, waiter.post);

	if (dlv->revoked && dlv->is_place)
		keep_drop(dlv);
	else if (dlv->revoked)
		delivery_settle(dlv, SETTLE_BACK);
	else
		delivery_dispatch(dlv);
}

static uint32_t delivery_lane(struct delivery *dlv)
{
	struct intake *intake = dlv->intake;

	if (dlv->request.is_resolved)
		return dlv->request.target_lane;
	if (dlv->message->order_key.ptr)
		return lane_set_lane_of_key(intake->lanes, dlv->message->order_key);
	return intake->next_lane++ % intake->lanes->settings.lanes;
}

void delivery_dispatch(struct delivery *dlv)
{
	struct lane_request *request = &dlv->request;
	uint32_t lane;

	if (!dlv->message) {
		keep_load(dlv);
		return;
	}
	lane = delivery_lane(dlv);
	dlv->state = DELIVERY_ON_LANE;
	if (lane_set_submit(dlv->intake->lanes, lane, request))
		return;
	dlv->state = DELIVERY_WAITING;
	dlv->waiter = (struct lane_waiter){.room = delivery_room, .reply_to = dlv->intake->loop};
	lane_set_wait_room(dlv->intake->lanes, lane, &dlv->waiter);
}

/* --- order by instance --- */

/* Of a message for several instances: past these it stands in order with others of its business key only. */
#define JOINED_MAX 64

/*
 * Messages belong together that came by one business key or found one instance. The key counts also when it found the instance:
 * by the time the next one comes, the instance may wait for something else, and only the key tells that it is for the same.
 */
static void delivery_join_resolved(struct delivery *dlv)
{
	const struct lane_request *request = &dlv->request;
	struct str keys[2 + JOINED_MAX] = {id_str(&request->order_key), id_str(&request->target.instance)};
	uint32_t count = request->answer == ANSWER_HANDOFF ? 2 : 1;

	for (uint32_t i = 0; i < request->joined_count && count < ARRAY_LEN(keys); i++)
		keys[count++] = id_str(&request->joined[i]);
	chain_join(dlv, keys, count);
}

/* Takes the results in order of receipt, as far as they have come. */
static void intake_place(struct intake *intake)
{
	struct delivery *dlv;

	while ((dlv = list_first(&intake->resolving, struct delivery, resolving_link)) && dlv->is_placed) {
		if (dlv->revoked)
			return; /* it is about to be given back, and then this is called again */
		list_remove(&dlv->resolving_link);
		dlv->request.resolve_only = false;
		delivery_join_resolved(dlv);
		if (chain_is_head(dlv)) {
			delivery_dispatch(dlv);
			continue;
		}
		/* By the time it is the head, those before it will have moved the instance on. */
		dlv->request.is_resolved = false;
		hold_followed(dlv);
	}
	hold_bounds(intake);
}

void delivery_placed(struct delivery *dlv)
{
	dlv->state = DELIVERY_CHAINED;
	dlv->is_placed = true;
	intake_place(dlv->intake);
}

/* --- birth and death --- */

void delivery_init(struct delivery *dlv, struct intake *intake, struct message *message)
{
	dlv->intake = intake;
	dlv->message = message;
	dlv->state = DELIVERY_CHAINED;
	dlv->received_us = loop_now_us(intake->loop);
	dlv->request.message = message;
	dlv->request.tenant = str_of(intake->settings.tenant);
	dlv->request.channel = str_of(intake->settings.channel);
	dlv->request.reply_to = intake->loop;
	dlv->request.answered = delivery_answered;
	arena_init(&dlv->request.resolved);
}

static struct delivery *delivery_new(struct intake *intake, struct message *message)
{
	struct delivery *dlv = mem_zalloc(sizeof(*dlv));

	delivery_init(dlv, intake, message);
	list_push(&intake->window, &dlv->window_link);
	stat_add(intake->stats.received, 1);
	stat_add(intake->stats.unsettled, 1);
	return dlv;
}

void delivery_next(struct delivery *dlv)
{
	if (dlv && dlv->state == DELIVERY_CHAINED && !dlv->revoked)
		delivery_dispatch(dlv);
}

void delivery_settle(struct delivery *dlv, enum settle how)
{
	struct intake *intake = dlv->intake;
	struct message *message = dlv->message;
	struct delivery *next;

	assert(dlv->state != DELIVERY_SETTLED && !dlv->is_place);
	if (dlv->state == DELIVERY_HELD)
		hold_end(dlv);
	dlv->state = DELIVERY_SETTLED;
	next = chain_leave(dlv);
	list_remove(&dlv->resolving_link);
	list_remove(&dlv->window_link);
	stat_add(intake->stats.unsettled, (uint64_t)-1);
	arena_done(&dlv->request.resolved);
	free(dlv->interests);
	free(dlv);
	fault(FAULT_settle_before);
	intake->consumer->ops->settle(intake->consumer, message, how);
	delivery_next(next);
	intake_place(intake);
}

/* --- the sink --- */

static void intake_deliver(struct consumer_sink *sink, struct message *message)
{
	struct intake *intake = container_of(sink, struct intake, sink);
	struct delivery *dlv = delivery_new(intake, message);

	if (message->orders_by_instance) {
		dlv->request.resolve_only = true;
		list_push(&intake->resolving, &dlv->resolving_link);
	} else {
		chain_join(dlv, &message->order_key, message->order_key.ptr ? 1 : 0);
	}
	if (chain_is_head(dlv))
		delivery_dispatch(dlv);
	else
		hold_followed(dlv);
	hold_received(dlv);
}

static bool delivery_is_busy(const struct delivery *dlv)
{
	return dlv->state == DELIVERY_ON_LANE || dlv->state == DELIVERY_WAITING || dlv->state == DELIVERY_KEEPING;
}

/*
 * Two passes: first all of the lease are marked, so that settling one head does not send the next of its chain to a lane;
 * then the idle ones go back, last first, which keeps heads in place until nothing of theirs is left behind them.
 */
static void intake_revoke(struct consumer_sink *sink, void *lease)
{
	struct intake *intake = container_of(sink, struct intake, sink);

	list_for_each(&intake->window, pos, tmp) {
		struct delivery *dlv = list_entry(pos, struct delivery, window_link);

		if (!lease || dlv->message->lease == lease)
			dlv->revoked = true;
	}
	for (struct list *pos = intake->window.prev, *prev = pos->prev; pos != &intake->window;
	     pos = prev, prev = pos->prev) {
		struct delivery *dlv = list_entry(pos, struct delivery, window_link);

		if (dlv->revoked && !delivery_is_busy(dlv))
			delivery_settle(dlv, SETTLE_BACK);
	}
}

static void intake_state(struct consumer_sink *sink, enum consumer_state state, const char *detail)
{
	struct intake *intake = container_of(sink, struct intake, sink);

	__atomic_store_n(&intake->stats.state, (int)state, __ATOMIC_RELAXED);
	uv_mutex_lock(&intake->detail_lock);
	snprintf(intake->detail, sizeof(intake->detail), "%s", detail ? detail : "");
	uv_mutex_unlock(&intake->detail_lock);
}

void intake_detail(struct intake *intake, char *out, size_t size)
{
	uv_mutex_lock(&intake->detail_lock);
	snprintf(out, size, "%s", intake->detail);
	uv_mutex_unlock(&intake->detail_lock);
}

static void intake_stopped(struct consumer_sink *sink)
{
	struct intake *intake = container_of(sink, struct intake, sink);

	assert(list_is_empty(&intake->window));
	intake->consumer_stopped = true;
	intake_check_stopped(intake);
}

void intake_check_stopped(struct intake *intake)
{
	if (!intake->consumer_stopped || !keep_is_stopped(intake))
		return;
	if (intake->stopped)
		intake->stopped(intake);
}

static void intake_woken(struct wake_target *target, struct id key)
{
	hold_woken(container_of(target, struct intake, wake_target), key);
}

static void intake_early(struct wake_target *target, struct id order_key, struct str keeper)
{
	keep_early_wanted(container_of(target, struct intake, wake_target), order_key, keeper);
}

struct intake *intake_new(struct lane_set *lanes, struct wake *wake, const struct intake_settings *settings)
{
	struct intake *intake = mem_zalloc(sizeof(*intake));

	intake->sink = (struct consumer_sink){intake_deliver, intake_revoke, intake_state, intake_stopped};
	intake->settings = *settings;
	intake->settings.tenant = mem_strdup(settings->tenant);
	intake->settings.channel = mem_strdup(settings->channel);
	intake->lanes = lanes;
	intake->wake = wake;
	intake->wake_target = (struct wake_target){.woken = intake_woken,
						   .early = intake_early,
						   .tenant = str_of(intake->settings.tenant),
						   .channel = str_of(intake->settings.channel)};
	if (settings->keeper)
		intake->settings.keeper = mem_strdup(settings->keeper);
	uv_mutex_init(&intake->detail_lock);
	list_init(&intake->parked);
	map_init(&intake->places);
	list_init(&intake->asleep);
	list_init(&intake->unlooked);
	list_init(&intake->window);
	list_init(&intake->resolving);
	map_init(&intake->chains);
	map_init(&intake->interests);
	return intake;
}

struct consumer_sink *intake_sink(struct intake *intake)
{
	return &intake->sink;
}

void intake_start(struct intake *intake, struct consumer *consumer)
{
	intake->consumer = consumer;
	intake->loop = consumer->loop;
	intake->wake_target.loop = consumer->loop;
	keep_start(intake);
	consumer->ops->start(consumer);
}

void intake_stop(struct intake *intake)
{
	if (intake->stopping)
		return;
	intake->stopping = true;
	keep_stop(intake);
	intake->consumer->ops->stop(intake->consumer);
}

void intake_free(struct intake **intake)
{
	struct intake *in = *intake;

	if (!in)
		return;
	if (in->consumer)
		in->consumer->ops->free(in->consumer);
	map_done(&in->chains);
	for (struct map_entry *e = map_first(&in->interests); e; e = map_next(&in->interests, e))
		free(e->value);
	map_done(&in->interests);
	uv_mutex_destroy(&in->detail_lock);
	free((char *)in->settings.tenant);
	free((char *)in->settings.channel);
	free((char *)in->settings.keeper);
	map_done(&in->places);
	free(in);
	*intake = NULL;
}
