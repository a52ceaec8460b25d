/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Kafka consumer of one channel, above the client seam: its life, its window, and what the events of the client mean.
 * lease.c has the partitions.
 *
 * Back-pressure has two stages. A full window (max_in_flight) first just stops the polling, which costs nothing: the client's
 * prefetch queue fills and it stops fetching by itself. If the window stays full for a second, all partitions are paused and
 * polling goes on, because a consumer that does not poll hears of no rebalance and is thrown out of its group after
 * max.poll.interval.ms. A pause throws the prefetched records away, so it ends only when half of the window is free.
 * A record that comes for all that (it was out of the queue already) waits in the stash, so the window is never exceeded.
 *
 * A client handle that fails for good is closed and opened anew with backoff: its leases are over, the sink is told, the
 * group reads on from the committed offsets.
 */
#include "transports/kafka/consumer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"

/* Events in a row, before the loop's other work has its turn. */
#define POLL_BURST 256
#define FULL_US (1 * US_PER_S)
#define CLOSE_MS 5000
#define CLOSE_FAILED_MS 500
#define LAST_COMMIT_US (5 * US_PER_S)
#define REVOKE_WAIT_MAX_MS 10000
#define SESSION_TIMEOUT_DEFAULT_MS 45000
#define MISSING_MIN_MS 5000
#define MISSING_MAX_MS 300000
/* A topic reported missing that has partitions assigned all the same after this time is there. */
#define MISSING_DOUBT_US (30 * US_PER_S)

static void stop_check(struct kafka_consumer *consumer);

static struct kafka_consumer *consumer_of(struct consumer *base)
{
	return container_of(base, struct kafka_consumer, base);
}

struct log_about consumer_about(const struct kafka_consumer *consumer)
{
	return (struct log_about){
		.stage = "delivery", .tenant = str_of(consumer->tenant), .channel = str_of(consumer->channel)};
}

void consumer_set_state(struct kafka_consumer *consumer, enum consumer_state state, const char *fmt, ...)
{
	char detail[sizeof(consumer->detail)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	if (state != CONSUMER_MISSING)
		loop_timer_stop(&consumer->missing);
	if (state == consumer->state && strcmp(detail, consumer->detail) == 0)
		return;
	consumer->state = state;
	snprintf(consumer->detail, sizeof(consumer->detail), "%s", detail);
	consumer->base.sink->state(consumer->base.sink, state, consumer->detail);
}

void consumer_pump_post(struct kafka_consumer *consumer)
{
	if (consumer->pump_posted || consumer->phase == PHASE_ENDED)
		return;
	consumer->pump_posted = true;
	loop_post(consumer->base.loop, &consumer->pump);
}

/* --- the window and the stash --- */

static bool window_is_full(const struct kafka_consumer *consumer)
{
	return consumer->unsettled >= consumer->max_in_flight;
}

static void deliver(struct kafka_consumer *consumer, struct message *message)
{
	consumer->unsettled++;
	__atomic_add_fetch(&consumer->base.received, 1, __ATOMIC_RELAXED);
	consumer->base.sink->deliver(consumer->base.sink, message);
}

static void stash_deliver(struct kafka_consumer *consumer)
{
	while (!window_is_full(consumer)) {
		struct message *message = list_first(&consumer->stash, struct message, link);

		if (!message)
			return;
		list_remove(&message->link);
		deliver(consumer, message);
	}
}

void consumer_stash_drop(struct kafka_consumer *consumer, const struct kafka_lease *lease)
{
	consumer->nested++;
	list_for_each(&consumer->stash, pos, tmp) {
		struct message *message = list_entry(pos, struct message, link);
		struct kafka_lease *own = message->lease;

		if (lease && own != lease)
			continue;
		list_remove(&message->link);
		message_free(&message);
		lease_settled(consumer, own, 0, false);
	}
	consumer->nested--;
}

void consumer_revoke_from_sink(struct kafka_consumer *consumer, struct kafka_lease *lease)
{
	consumer->nested++;
	consumer->base.sink->revoke(consumer->base.sink, lease);
	consumer->nested--;
}

static void window_check(struct kafka_consumer *consumer)
{
	bool is_free = list_is_empty(&consumer->stash) && consumer->unsettled <= consumer->max_in_flight / 2;

	stash_deliver(consumer);
	if (!window_is_full(consumer))
		loop_timer_stop(&consumer->full);
	if (consumer->paused_all && is_free) {
		consumer->paused_all = false;
		leases_pause(consumer);
	}
}

static void window_full_long(struct loop_timer *timer)
{
	struct kafka_consumer *consumer = container_of(timer, struct kafka_consumer, full);

	if (consumer->phase != PHASE_RUNNING || !window_is_full(consumer))
		return;
	consumer->paused_all = true;
	leases_pause(consumer);
	consumer_pump_post(consumer);
}

/* --- events --- */

static void on_record(struct kafka_consumer *consumer, const struct kafka_record *record)
{
	struct kafka_lease *lease = lease_find(consumer, record->partition);
	struct message *message;
	bool tracked;

	if (!lease || lease->state != LEASE_OPEN || consumer->phase != PHASE_RUNNING)
		return; /* not ours any more, or not wanted: the next owner reads it */
	if (consumer->state != CONSUMER_CONSUMING)
		consumer_set_state(consumer, CONSUMER_CONSUMING, "%u partitions of '%s'", leases_open(consumer),
				   consumer->topic);
	lease = lease_add(consumer, lease, record->offset, &tracked);
	message = kafka_message_of(record);
	message->lease = lease;
	if (!tracked)
		message->token = TOKEN_UNTRACKED;
	if (window_is_full(consumer) || !list_is_empty(&consumer->stash))
		list_push(&consumer->stash, &message->link);
	else
		deliver(consumer, message);
}

/* Longer and longer, so that a topic that is forgotten does not fill the log. */
static int64_t missing_delay_us(struct kafka_consumer *consumer)
{
	int64_t delay_us = consumer->missing_delay_ms * US_PER_MS;

	consumer->missing_delay_ms *= 2;
	if (consumer->missing_delay_ms > MISSING_MAX_MS)
		consumer->missing_delay_ms = MISSING_MAX_MS;
	return delay_us;
}

static void missing_warn(struct loop_timer *timer)
{
	struct kafka_consumer *consumer = container_of(timer, struct kafka_consumer, missing);
	struct log_about about = consumer_about(consumer);

	log_warning(&about, "topic '%s' does not exist; consumption starts when it does", consumer->topic);
	loop_timer_start(timer, missing_delay_us(consumer));
}

static void on_missing(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	consumer->missing_us = loop_now_us(consumer->base.loop);
	if (consumer->phase != PHASE_RUNNING)
		return;
	consumer_set_state(consumer, CONSUMER_MISSING, "topic '%s' does not exist: %s", consumer->topic, event->text);
	if (loop_timer_is_started(&consumer->missing))
		return;
	consumer->missing_delay_ms = MISSING_MIN_MS;
	missing_warn(&consumer->missing);
}

static void on_up(struct kafka_consumer *consumer)
{
	bool is_back = consumer->state == CONSUMER_CONNECTING ||
		       (consumer->state == CONSUMER_MISSING && leases_open(consumer) &&
			loop_now_us(consumer->base.loop) - consumer->missing_us > MISSING_DOUBT_US);

	if (!is_back || consumer->phase != PHASE_RUNNING)
		return;
	if (consumer->joined)
		consumer_set_state(consumer, CONSUMER_CONSUMING, "%u partitions of '%s'", leases_open(consumer),
				   consumer->topic);
	else
		consumer_set_state(consumer, CONSUMER_CONNECTING, "joining group '%s'", consumer->group);
}

static void on_error(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	struct log_about about = consumer_about(consumer);

	if (consumer->phase != PHASE_RUNNING || consumer->state == CONSUMER_MISSING)
		return;
	if (consumer->state == CONSUMER_CONSUMING)
		log_warning(&about, "kafka: %s", event->text);
	consumer_set_state(consumer, CONSUMER_CONNECTING, "%s", event->text);
}

static void handle_drop(struct kafka_consumer *consumer, int64_t timeout_ms)
{
	leases_end(consumer);
	consumer->client->close(&consumer->handle, timeout_ms);
	consumer->paused_all = false;
	consumer->joined = false;
	loop_timer_stop(&consumer->full);
}

static void on_fatal(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	struct log_about about = consumer_about(consumer);
	char text[sizeof(event->text)];

	snprintf(text, sizeof(text), "%s", event->text);
	log_error(&about, "kafka: the consumer of '%s' failed and is opened anew: %s", consumer->topic, text);
	handle_drop(consumer, CLOSE_FAILED_MS);
	if (consumer->phase == PHASE_RUNNING) {
		consumer_set_state(consumer, CONSUMER_CONNECTING, "%s", text);
		loop_timer_start(&consumer->rebuild,
				 kafka_backoff_us(consumer->base.loop, &consumer->rebuild_delay_ms));
	}
}

static void on_event(struct kafka_consumer *consumer, const struct kafka_event *event)
{
	switch (event->kind) {
	case KAFKA_EVENT_RECORD:
		on_record(consumer, &event->record);
		break;
	case KAFKA_EVENT_ASSIGN:
		lease_on_assign(consumer, event);
		break;
	case KAFKA_EVENT_REVOKE:
		lease_on_revoke(consumer, event);
		break;
	case KAFKA_EVENT_LOST:
		lease_on_lost(consumer, event);
		break;
	case KAFKA_EVENT_COMMITTED:
		lease_on_committed(consumer, event);
		break;
	case KAFKA_EVENT_MISSING:
		on_missing(consumer, event);
		break;
	case KAFKA_EVENT_ERROR:
		on_error(consumer, event);
		break;
	case KAFKA_EVENT_UP:
		on_up(consumer);
		break;
	case KAFKA_EVENT_FATAL:
		on_fatal(consumer, event);
		break;
	case KAFKA_EVENT_STATS:
		__atomic_store_n(&consumer->base.lag, event->lag, __ATOMIC_RELAXED);
		break;
	case KAFKA_EVENT_NONE:
	case KAFKA_EVENT_DELIVERED:
		break;
	}
}

/* --- the pump --- */

static bool must_stall(struct kafka_consumer *consumer)
{
	if (consumer->phase != PHASE_RUNNING || consumer->paused_all || !window_is_full(consumer))
		return false;
	if (!loop_timer_is_started(&consumer->full))
		loop_timer_start(&consumer->full, FULL_US);
	return true;
}

static void pump(struct kafka_consumer *consumer)
{
	struct kafka_event event;

	consumer->stalled = false;
	window_check(consumer);
	for (int i = 0; i < POLL_BURST && consumer->handle; i++) {
		if (must_stall(consumer)) {
			consumer->stalled = true;
			return;
		}
		consumer->client->poll(consumer->handle, &event);
		if (event.kind == KAFKA_EVENT_NONE) {
			lease_idle(consumer);
			return;
		}
		on_event(consumer, &event);
	}
	if (consumer->handle)
		consumer_pump_post(consumer);
}

static void pump_posted(struct task *task)
{
	struct kafka_consumer *consumer = container_of(task, struct kafka_consumer, pump);

	consumer->pump_posted = false;
	if (consumer->phase == PHASE_ENDED)
		return;
	pump(consumer);
	stop_check(consumer);
}

static void handle_ready(void *user)
{
	struct kafka_consumer *consumer = user;

	/* A stalled one polls again when the window has room. */
	if (consumer->stalled && must_stall(consumer))
		return;
	pump(consumer);
	stop_check(consumer);
}

/* --- life --- */

static void open_failed(struct kafka_consumer *consumer, const struct error *err)
{
	struct log_about about = consumer_about(consumer);

	log_error(&about, "kafka: the consumer of '%s' cannot be opened: %s", consumer->topic, err->text);
	consumer_set_state(consumer, CONSUMER_CONNECTING, "%s", err->text);
	loop_timer_start(&consumer->rebuild, kafka_backoff_us(consumer->base.loop, &consumer->rebuild_delay_ms));
}

static void consumer_open(struct kafka_consumer *consumer)
{
	const struct transport_connection *connection = consumer->connection;
	struct error err = ERROR_INIT;

	if (consumer->client->open(connection->kafka_cluster, consumer->base.loop, consumer->group,
				   connection->property_names, connection->property_values,
				   connection->property_count, handle_ready, consumer, &consumer->handle,
				   &err) != RESULT_OK) {
		open_failed(consumer, &err);
		return;
	}
	if (consumer->client->subscribe(consumer->handle, consumer->topic, &err) != RESULT_OK) {
		consumer->client->close(&consumer->handle, CLOSE_FAILED_MS);
		open_failed(consumer, &err);
		return;
	}
	consumer_pump_post(consumer);
}

static void consumer_rebuild(struct loop_timer *timer)
{
	struct kafka_consumer *consumer = container_of(timer, struct kafka_consumer, rebuild);

	if (consumer->phase == PHASE_RUNNING)
		consumer_open(consumer);
}

static void consumer_start(struct consumer *base)
{
	struct kafka_consumer *consumer = consumer_of(base);

	assert(consumer->phase == PHASE_NEW);
	consumer->phase = PHASE_RUNNING;
	base->sink->state(base->sink, CONSUMER_CONNECTING, "");
	consumer_open(consumer);
}

static void consumer_settle(struct consumer *base, struct message *message, enum settle how)
{
	struct kafka_consumer *consumer = consumer_of(base);
	struct kafka_lease *lease = message->lease;
	uint64_t token = message->token;

	assert(consumer->unsettled > 0);
	consumer->unsettled--;
	__atomic_add_fetch(how == SETTLE_DONE ? &base->settled_done : &base->settled_back, 1, __ATOMIC_RELAXED);
	message_free(&message);
	lease_settled(consumer, lease, (int64_t)token, how == SETTLE_DONE && token != TOKEN_UNTRACKED);
	/* Never polls from inside a settle: the sink is not done with it yet. */
	if (consumer->stalled || consumer->paused_all || !list_is_empty(&consumer->stash) ||
	    consumer->unsettled == 0)
		consumer_pump_post(consumer);
}

static void consumer_end(struct kafka_consumer *consumer)
{
	loop_timer_stop(&consumer->stop);
	loop_timer_stop(&consumer->rebuild);
	loop_timer_stop(&consumer->missing);
	if (consumer->handle)
		handle_drop(consumer, CLOSE_MS);
	consumer->phase = PHASE_ENDED;
	loop_post(consumer->base.loop, &consumer->end);
}

/* Goes on with a stop if nothing is in its way any more. Not from inside a call of the sink. */
static void stop_check(struct kafka_consumer *consumer)
{
	if (consumer->phase == PHASE_SETTLING && consumer->unsettled == 0) {
		consumer->phase = PHASE_COMMITTING;
		if (lease_commit_last(consumer))
			loop_timer_start(&consumer->stop, LAST_COMMIT_US);
	}
	if (consumer->phase == PHASE_COMMITTING && !lease_is_waiting(consumer))
		consumer_end(consumer);
}

static void stop_timeout(struct loop_timer *timer)
{
	struct kafka_consumer *consumer = container_of(timer, struct kafka_consumer, stop);
	struct log_about about = consumer_about(consumer);

	log_warning(&about, "the last commit of group '%s' was not answered", consumer->group);
	consumer_end(consumer);
}

static void consumer_ended(struct task *task)
{
	struct kafka_consumer *consumer = container_of(task, struct kafka_consumer, end);

	consumer_set_state(consumer, CONSUMER_STOPPED, "stopped");
	consumer->base.sink->stopped(consumer->base.sink);
}

static void consumer_stop(struct consumer *base)
{
	struct kafka_consumer *consumer = consumer_of(base);

	if (consumer->phase != PHASE_NEW && consumer->phase != PHASE_RUNNING)
		return;
	consumer->phase = PHASE_SETTLING;
	loop_timer_stop(&consumer->full);
	loop_timer_stop(&consumer->rebuild);
	loop_timer_stop(&consumer->missing);
	leases_pause(consumer);
	consumer_stash_drop(consumer, NULL);
	consumer_revoke_from_sink(consumer, NULL);
	if (consumer->revoking)
		lease_revoke_check(consumer);
	consumer_pump_post(consumer);
}

static void consumer_free(struct consumer *base)
{
	struct kafka_consumer *consumer = consumer_of(base);

	assert(!consumer->handle && list_is_empty(&consumer->leases) && list_is_empty(&consumer->stash));
	free(consumer->topic);
	free(consumer->group);
	free(consumer->tenant);
	free(consumer->channel);
	free(consumer);
}

static const struct consumer_ops kafka_consumer_ops = {consumer_start, consumer_settle, consumer_stop, consumer_free};

/* Longer would risk the membership: the broker waits for this member no longer than the session timeout. */
static int64_t revoke_wait_ms(const struct transport_connection *connection)
{
	int64_t wait_ms = kafka_property_int(connection, "session.timeout.ms", SESSION_TIMEOUT_DEFAULT_MS) / 3;

	return wait_ms > REVOKE_WAIT_MAX_MS ? REVOKE_WAIT_MAX_MS : wait_ms > 0 ? wait_ms : 1;
}

static void consumer_init_timers(struct kafka_consumer *consumer, struct loop *loop)
{
	loop_timer_init(&consumer->full, loop, window_full_long);
	loop_timer_init(&consumer->commit, loop, lease_commit_timer);
	loop_timer_init(&consumer->rebuild, loop, consumer_rebuild);
	loop_timer_init(&consumer->missing, loop, missing_warn);
	loop_timer_init(&consumer->revoke, loop, lease_revoke_timeout);
	loop_timer_init(&consumer->stop, loop, stop_timeout);
}

struct consumer *kafka_consumer_new(struct transport_connection *connection, const struct consumer_settings *settings,
				    struct consumer_sink *sink)
{
	struct kafka_consumer *consumer = mem_zalloc(sizeof(*consumer));

	consumer->base =
		(struct consumer){.ops = &kafka_consumer_ops, .sink = sink, .loop = settings->loop, .lag = -1};
	consumer->connection = connection;
	consumer->client = kafka_client_of(connection);
	consumer->topic = mem_strdup(settings->bind);
	consumer->group = mem_strdup(settings->group);
	consumer->tenant = mem_strdup(settings->tenant);
	consumer->channel = mem_strdup(settings->channel);
	consumer->max_in_flight = settings->max_in_flight ? settings->max_in_flight : 1;
	consumer->revoke_wait_ms = revoke_wait_ms(connection);
	consumer->rebuild_delay_ms = KAFKA_REBUILD_MIN_MS;
	consumer->pump.run = pump_posted;
	consumer->end.run = consumer_ended;
	list_init(&consumer->leases);
	list_init(&consumer->stash);
	consumer_init_timers(consumer, settings->loop);
	return &consumer->base;
}
