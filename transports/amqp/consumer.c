/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AMQP consumer of one queue: a channel of the connection's consuming link, and what was delivered on it.
 *
 *	consumer  NEW ─start─► RUNNING ─stop─► STOPPING ─all settled and answered, channel closed─► ENDED
 *
 *	channel   DOWN ─up─► OPENING ─► QOS ─► SUBSCRIBING ─► CONSUMING ──cancelled by the broker──► IDLE
 *	           ▲                                ▲             │ stop                              │ backoff
 *	           │ closed by the broker           └─────────────┼───────────────────────────────────┘
 *	           │ or the connection lost                       ▼
 *	           └── backoff, or the link's           CANCELLING ─cancel-ok─► IDLE ─► CLOSING
 *
 * A lease is a channel from its opening to its end. Tags count anew on the next, so a message that is settled after its lease
 * has ended changes nothing: the broker has it back already (RabbitMQ closes a channel that acknowledges a tag it does not
 * know). The window is the broker's prefetch; nothing is ever fetched beyond it.
 *
 * While the consumer lives nothing is given back by itself: what comes back is delivered again at once, or behind its
 * neighbours. At a stop the subscription ends first, then everything that was not done goes back at once, see channel_close.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "transports/amqp/amqp.h"
#include "transports/amqp/probe.h"
#include "transports/amqp/tags.h"

#define PREFETCH_MAX 65535
#define RETRY_MIN_MS 500
#define RETRY_MAX_MS 15000
#define WARN_MIN_MS 5000
#define WARN_MAX_MS 300000
/* What is done behind a message that is not yet waits so long for a run to form: one frame answers that, however long it is, and
 * the broker has less to do. At most a quarter of the window waits. */
#define ACK_HOLES_US (10 * US_PER_MS)
/* For each answer that a stop waits for. */
#define ANSWER_US (5 * US_PER_S)
#define CODE_NOT_FOUND 404
/* The version from which on a queue takes many messages back in order by one nack. */
#define NACKS_IN_ORDER 400

enum consumer_phase { PHASE_NEW, PHASE_RUNNING, PHASE_STOPPING, PHASE_ENDED };

enum channel_state {
	CHANNEL_DOWN,
	CHANNEL_OPENING,
	CHANNEL_QOS,
	CHANNEL_SUBSCRIBING,
	CHANNEL_CONSUMING,
	CHANNEL_CANCELLING,
	CHANNEL_IDLE, /* open, without a subscription */
	CHANNEL_CLOSING,
};

/* Messages point to it; it lives as long as the last of them. */
struct amqp_lease {
	struct tags tags;
	uint32_t messages;
	bool live;
};

struct amqp_consumer {
	struct consumer base;
	struct amqp_channel channel;
	struct amqp_link *link;
	char *queue, *tenant, *name;
	uint16_t prefetch;

	enum consumer_phase phase;
	enum channel_state channel_state;
	enum consumer_state state;
	char detail[300];
	bool connected;		  /* the link is up */
	struct amqp_lease *lease; /* of the open channel, or NULL */
	uint32_t unsettled;
	bool returns_are_counted; /* the deliveries of this subscription show that the broker counts returns */
	int64_t retry_ms, warn_ms;
	struct loop_timer retry, warn, answer, holes;
	bool flush_posted;
	struct task flush, end;
};

static void stop_check(struct amqp_consumer *consumer);

static struct amqp_consumer *consumer_of(struct consumer *base)
{
	return container_of(base, struct amqp_consumer, base);
}

static struct amqp_consumer *owner_of(struct amqp_channel *channel)
{
	return container_of(channel, struct amqp_consumer, channel);
}

static const struct rabbit_client *client_of(const struct amqp_consumer *consumer)
{
	return consumer->link->client;
}

static struct log_about consumer_about(const struct amqp_consumer *consumer)
{
	return (struct log_about){
		.stage = "delivery", .tenant = str_of(consumer->tenant), .channel = str_of(consumer->name)};
}

static void PRINTF_LIKE(3, 4)
set_state(struct amqp_consumer *consumer, enum consumer_state state, const char *fmt, ...)
{
	char detail[sizeof(consumer->detail)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	if (state != CONSUMER_MISSING)
		loop_timer_stop(&consumer->warn);
	if (state == consumer->state && strcmp(detail, consumer->detail) == 0)
		return;
	consumer->state = state;
	snprintf(consumer->detail, sizeof(consumer->detail), "%s", detail);
	consumer->base.sink->state(consumer->base.sink, state, consumer->detail);
}

/* --- leases and tags --- */

static void lease_unref_check(struct amqp_lease *lease)
{
	if (lease->live || lease->messages)
		return;
	tags_done(&lease->tags);
	free(lease);
}

static void lease_begin(struct amqp_consumer *consumer)
{
	assert(!consumer->lease);
	consumer->lease = mem_zalloc(sizeof(*consumer->lease));
	consumer->lease->live = true;
	tags_init(&consumer->lease->tags);
}

/* The channel is gone: the broker has everything back that it had no answer to. */
static void lease_end(struct amqp_consumer *consumer)
{
	struct amqp_lease *lease = consumer->lease;

	consumer->channel_state = CHANNEL_DOWN;
	loop_timer_stop(&consumer->retry);
	loop_timer_stop(&consumer->holes);
	if (!lease)
		return;
	consumer->lease = NULL;
	lease->messages++; /* it outlives its last message in here */
	lease->live = false;
	if (consumer->phase == PHASE_RUNNING)
		consumer->base.sink->revoke(consumer->base.sink, lease);
	lease->messages--;
	lease_unref_check(lease);
}

static void send_ack(void *user, uint64_t tag, bool multiple)
{
	struct amqp_consumer *consumer = user;

	client_of(consumer)->ack(consumer->link->handle, consumer->channel.number, tag, multiple);
}

static void send_nack(void *user, uint64_t tag)
{
	struct amqp_consumer *consumer = user;

	client_of(consumer)->nack(consumer->link->handle, consumer->channel.number, tag);
}

static void flush(struct amqp_consumer *consumer, enum tags_flush what)
{
	const struct tags_out out = {send_ack, send_nack, consumer};

	if (consumer->lease && consumer->connected)
		tags_flush(&consumer->lease->tags, what, &out);
}

static void flush_running(struct amqp_consumer *consumer, enum tags_flush what)
{
	const struct tags *tags;

	flush(consumer, what | TAGS_BACK);
	tags = consumer->lease ? &consumer->lease->tags : NULL;
	if (!tags || !tags_kept(tags))
		loop_timer_stop(&consumer->holes);
	else if (tags_kept(tags) > consumer->prefetch / 4u)
		flush(consumer, TAGS_HOLES);
	else if (!loop_timer_is_started(&consumer->holes))
		loop_timer_start(&consumer->holes, ACK_HOLES_US);
}

static void holes_due(struct loop_timer *timer)
{
	struct amqp_consumer *consumer = container_of(timer, struct amqp_consumer, holes);

	if (consumer->phase == PHASE_RUNNING)
		flush_running(consumer, TAGS_HOLES);
}

static void flush_run(struct task *task)
{
	struct amqp_consumer *consumer = container_of(task, struct amqp_consumer, flush);

	consumer->flush_posted = false;
	if (consumer->phase == PHASE_RUNNING)
		flush_running(consumer, TAGS_RUN);
	else
		flush(consumer, TAGS_HOLES);
	stop_check(consumer);
}

#define LIMIT_BY_DEFAULT 400

/* For readiness and the log, once a subscription. Up to 3.13 there is no limit but one that somebody has set. */
static void tell_counted(struct amqp_consumer *consumer, const struct amqp_broker *broker)
{
	struct log_about about = consumer_about(consumer);

	if (broker->is_rabbitmq && broker->version && broker->version < LIMIT_BY_DEFAULT) {
		log_info(&about, "queue '%s' counts how often a message comes back", consumer->queue);
		return;
	}
	about.code = CODE_INBOUND_AMQP_QUEUE_UNSAFE;
	set_state(consumer, CONSUMER_CONSUMING,
		  "%s: queue '%s' counts how often a message comes back and drops it past its delivery limit, unless it has a "
		  "dead-letter exchange", code_text(CODE_INBOUND_AMQP_QUEUE_UNSAFE), consumer->queue);
	log_warning(&about, "%s", consumer->detail);
}

static void flush_post(struct amqp_consumer *consumer)
{
	if (consumer->flush_posted)
		return;
	consumer->flush_posted = true;
	loop_post(consumer->base.loop, &consumer->flush);
}

/* "RabbitMQ 4.0.5" */
static struct amqp_broker broker_of(const struct amqp_consumer *consumer)
{
	const char *product = client_of(consumer)->product(consumer->link->handle);
	const char *space = strchr(product, ' ');

	return space ? amqp_broker_of(str_make(product, (size_t)(space - product)), str_of(space + 1))
		     : amqp_broker_of(str_of(product), STR_NONE);
}

/* A queue that only tells that a message came back: it counts as so many times, lest one that bounces do so many times a second. */
#define RETURNS_UNTOLD 5

/*
 * What the delivery shows of the queue: how often the message came back, and whether that is held against it. A quorum queue
 * says so from the second delivery on. From RabbitMQ 4.3 on it counts what is given back orderly in another header, without
 * a limit.
 */
static void take_returns(struct amqp_consumer *consumer, struct message *message)
{
	struct amqp_broker broker = broker_of(consumer);
	const struct header *counted = header_find(&message->headers, STR("x-delivery-count"));
	const struct header *acquired = header_find(&message->headers, STR("x-acquired-count"));
	int64_t count = 0;

	if (message->redelivered)
		message->returns = RETURNS_UNTOLD;
	if ((acquired && value_as_int(&acquired->value, &count)) || (counted && value_as_int(&counted->value, &count)))
		message->returns = count < 0 ? 0 : count > UINT16_MAX ? UINT16_MAX : (uint32_t)count;
	if (counted && message->returns && broker.version < 403 && !consumer->returns_are_counted) {
		consumer->returns_are_counted = true;
		tell_counted(consumer, &broker);
	}
	message->returns_are_counted = consumer->returns_are_counted;
}

static void on_delivered(struct amqp_consumer *consumer, const struct rabbit_event *event)
{
	struct message *message;

	if (!consumer->lease)
		return;
	tags_add(&consumer->lease->tags, event->tag);
	if (consumer->phase != PHASE_RUNNING) {
		tags_settle(&consumer->lease->tags, event->tag, TAG_BACK);
		return;
	}
	message = amqp_message_of(event, consumer->queue);
	take_returns(consumer, message);
	message->lease = consumer->lease;
	consumer->lease->messages++;
	consumer->unsettled++;
	__atomic_add_fetch(&consumer->base.received, 1, __ATOMIC_RELAXED);
	consumer->base.sink->deliver(consumer->base.sink, message);
}

static void consumer_settle(struct consumer *base, struct message *message, enum settle how)
{
	struct amqp_consumer *consumer = consumer_of(base);
	struct amqp_lease *lease = message->lease;

	assert(consumer->unsettled > 0);
	consumer->unsettled--;
	__atomic_add_fetch(how == SETTLE_DONE ? &base->settled_done : &base->settled_back, 1, __ATOMIC_RELAXED);
	if (lease->live)
		tags_settle(&lease->tags, message->token, how == SETTLE_DONE ? TAG_DONE : TAG_BACK);
	message_free(&message);
	lease->messages--;
	lease_unref_check(lease);
	/* Never answers from inside a settle: the sink is not done with it, and a round of the loop makes one frame of many. */
	flush_post(consumer);
}

/* --- subscribing --- */

static void retry_later(struct amqp_consumer *consumer)
{
	loop_timer_start(&consumer->retry, amqp_backoff_us(consumer->base.loop, &consumer->retry_ms, RETRY_MAX_MS));
}

static void channel_open(struct amqp_consumer *consumer)
{
	consumer->channel_state = CHANNEL_OPENING;
	client_of(consumer)->channel_open(consumer->link->handle, consumer->channel.number);
}

static void subscribe(struct amqp_consumer *consumer)
{
	consumer->channel_state = CHANNEL_SUBSCRIBING;
	consumer->returns_are_counted = false; /* it may be another queue of the same name */
	client_of(consumer)->consume(consumer->link->handle, consumer->channel.number, consumer->queue);
}

static void retry_due(struct loop_timer *timer)
{
	struct amqp_consumer *consumer = container_of(timer, struct amqp_consumer, retry);

	if (consumer->phase != PHASE_RUNNING || !consumer->connected)
		return;
	if (consumer->channel_state == CHANNEL_DOWN)
		channel_open(consumer);
	else if (consumer->channel_state == CHANNEL_IDLE)
		subscribe(consumer);
}

/* Longer and longer, so that a queue that is forgotten does not fill the log. */
static void warn_missing(struct loop_timer *timer)
{
	struct amqp_consumer *consumer = container_of(timer, struct amqp_consumer, warn);
	struct log_about about = consumer_about(consumer);

	log_warning(&about, "queue '%s' does not exist; consumption starts when it does", consumer->queue);
	loop_timer_start(timer, consumer->warn_ms * US_PER_MS);
	consumer->warn_ms = consumer->warn_ms * 2 > WARN_MAX_MS ? WARN_MAX_MS : consumer->warn_ms * 2;
}

static void on_failed(struct amqp_consumer *consumer, const struct rabbit_event *event)
{
	struct log_about about = consumer_about(consumer);
	bool is_subscribing = consumer->channel_state == CHANNEL_SUBSCRIBING;

	lease_end(consumer);
	if (consumer->phase != PHASE_RUNNING)
		return;
	if (event->code == CODE_NOT_FOUND && is_subscribing) {
		set_state(consumer, CONSUMER_MISSING, "queue '%s' does not exist: %s", consumer->queue, event->text);
		if (!loop_timer_is_started(&consumer->warn)) {
			consumer->warn_ms = WARN_MIN_MS;
			warn_missing(&consumer->warn);
		}
	} else {
		log_error(&about, "the broker closed the channel of queue '%s': %u %s", consumer->queue, event->code,
			  event->text);
		set_state(consumer, CONSUMER_CONNECTING, "channel closed: %u %s", event->code, event->text);
	}
	retry_later(consumer);
}

/* What was delivered stays ours, and its tags stay good: only the subscription is gone. */
static void on_cancelled(struct amqp_consumer *consumer)
{
	struct log_about about = consumer_about(consumer);

	if (consumer->phase != PHASE_RUNNING)
		return; /* our own cancel is answered all the same */
	consumer->channel_state = CHANNEL_IDLE;
	log_warning(&about, "the broker cancelled the consumer of queue '%s': deleted, or moved", consumer->queue);
	set_state(consumer, CONSUMER_CONNECTING, "the broker cancelled the consumer of '%s'", consumer->queue);
	retry_later(consumer);
}

static void on_consuming(struct amqp_consumer *consumer)
{
	if (consumer->channel_state != CHANNEL_SUBSCRIBING)
		return; /* cancelled meanwhile */
	consumer->channel_state = CHANNEL_CONSUMING;
	consumer->retry_ms = RETRY_MIN_MS;
	set_state(consumer, CONSUMER_CONSUMING, "queue '%s' of %s", consumer->queue,
		  client_of(consumer)->product(consumer->link->handle));
}

static void on_opened(struct amqp_consumer *consumer)
{
	lease_begin(consumer);
	consumer->channel_state = CHANNEL_IDLE;
	if (consumer->phase != PHASE_RUNNING)
		return;
	consumer->channel_state = CHANNEL_QOS;
	client_of(consumer)->qos(consumer->link->handle, consumer->channel.number, consumer->prefetch);
}

static void channel_event(struct amqp_channel *channel, const struct rabbit_event *event)
{
	struct amqp_consumer *consumer = owner_of(channel);

	switch (event->kind) {
	case RABBIT_EVENT_OPENED:
		on_opened(consumer);
		break;
	case RABBIT_EVENT_QOS:
		if (consumer->phase == PHASE_RUNNING)
			subscribe(consumer);
		break;
	case RABBIT_EVENT_CONSUMING:
		on_consuming(consumer);
		break;
	case RABBIT_EVENT_DELIVERED:
		on_delivered(consumer, event);
		return;
	case RABBIT_EVENT_CANCELLED:
		on_cancelled(consumer);
		break;
	case RABBIT_EVENT_STOPPED:
		if (consumer->channel_state == CHANNEL_CANCELLING)
			consumer->channel_state = CHANNEL_IDLE;
		break;
	case RABBIT_EVENT_FAILED:
		on_failed(consumer, event);
		break;
	case RABBIT_EVENT_CLOSED:
		lease_end(consumer);
		break;
	default: /* what a publisher hears */
		return;
	}
	stop_check(consumer);
}

static void channel_up(struct amqp_channel *channel)
{
	struct amqp_consumer *consumer = owner_of(channel);

	consumer->connected = true;
	if (consumer->phase == PHASE_RUNNING)
		channel_open(consumer);
}

static void channel_down(struct amqp_channel *channel, const char *text)
{
	struct amqp_consumer *consumer = owner_of(channel);

	consumer->connected = false;
	lease_end(consumer);
	if (consumer->phase == PHASE_RUNNING)
		set_state(consumer, CONSUMER_CONNECTING, "%s", text);
	stop_check(consumer);
}

static const struct amqp_channel_ops channel_ops = {channel_up, channel_down, channel_event};

/* --- life --- */

static void consumer_start(struct consumer *base)
{
	struct amqp_consumer *consumer = consumer_of(base);

	assert(consumer->phase == PHASE_NEW);
	consumer->phase = PHASE_RUNNING;
	base->sink->state(base->sink, CONSUMER_CONNECTING, "");
	link_attach(consumer->link, &consumer->channel);
}

static void consumer_end(struct amqp_consumer *consumer)
{
	loop_timer_stop(&consumer->answer);
	loop_timer_stop(&consumer->retry);
	loop_timer_stop(&consumer->warn);
	lease_end(consumer);
	if (consumer->channel.number)
		link_detach(consumer->link, &consumer->channel);
	consumer->phase = PHASE_ENDED;
	loop_post(consumer->base.loop, &consumer->end);
}

/*
 * Gives everything back and closes the channel, whose answer says that the broker has heard all of it.
 *
 * A quorum queue takes some thirty commands of a channel at a time. Of many messages given back one by one the rest are still
 * waiting when the channel closes, and come back in another way than the first: out of order, or counted. So all go in one
 * command. Before 4.0 even that puts them out of order; there the end of the channel itself gives back everything in
 * order, and counts as much as a nack does.
 */
static void channel_close(struct amqp_consumer *consumer)
{
	flush(consumer, TAGS_HOLES);
	if (consumer->lease && consumer->connected && tags_are_out(&consumer->lease->tags) &&
	    broker_of(consumer).version >= NACKS_IN_ORDER)
		client_of(consumer)->nack_all(consumer->link->handle, consumer->channel.number);
	consumer->channel_state = CHANNEL_CLOSING;
	client_of(consumer)->channel_close(consumer->link->handle, consumer->channel.number);
	loop_timer_start(&consumer->answer, ANSWER_US);
}

/* Goes on with a stop if nothing is in its way any more. */
static void stop_check(struct amqp_consumer *consumer)
{
	if (consumer->phase != PHASE_STOPPING || consumer->unsettled)
		return;
	switch (consumer->channel_state) {
	case CHANNEL_DOWN:
		consumer_end(consumer);
		break;
	case CHANNEL_IDLE:
		channel_close(consumer);
		break;
	case CHANNEL_OPENING: /* the answer makes it IDLE, or the timer ends it */
	case CHANNEL_CANCELLING:
	case CHANNEL_CLOSING:
		if (!loop_timer_is_started(&consumer->answer))
			loop_timer_start(&consumer->answer, ANSWER_US);
		break;
	case CHANNEL_QOS:
	case CHANNEL_SUBSCRIBING:
	case CHANNEL_CONSUMING:
		assert(!"a stop ends these at once");
		break;
	}
}

static void answer_timeout(struct loop_timer *timer)
{
	struct amqp_consumer *consumer = container_of(timer, struct amqp_consumer, answer);
	struct log_about about = consumer_about(consumer);

	log_warning(&about, "the broker does not answer while queue '%s' is given up", consumer->queue);
	consumer_end(consumer);
}

static void consumer_ended(struct task *task)
{
	struct amqp_consumer *consumer = container_of(task, struct amqp_consumer, end);

	set_state(consumer, CONSUMER_STOPPED, "stopped");
	consumer->base.sink->stopped(consumer->base.sink);
}

static void consumer_stop(struct consumer *base)
{
	struct amqp_consumer *consumer = consumer_of(base);

	if (consumer->phase != PHASE_NEW && consumer->phase != PHASE_RUNNING)
		return;
	consumer->phase = PHASE_STOPPING;
	loop_timer_stop(&consumer->retry);
	loop_timer_stop(&consumer->warn);
	loop_timer_stop(&consumer->holes);
	if (consumer->channel_state == CHANNEL_CONSUMING || consumer->channel_state == CHANNEL_SUBSCRIBING) {
		consumer->channel_state = CHANNEL_CANCELLING;
		client_of(consumer)->cancel(consumer->link->handle, consumer->channel.number);
	} else if (consumer->channel_state == CHANNEL_QOS) {
		consumer->channel_state = CHANNEL_IDLE;
	}
	base->sink->revoke(base->sink, NULL);
	flush_post(consumer); /* which goes on with the stop, outside of this call of the sink */
}

static void consumer_free(struct consumer *base)
{
	struct amqp_consumer *consumer = consumer_of(base);

	assert(!consumer->lease && !consumer->channel.number);
	free(consumer->queue);
	free(consumer->tenant);
	free(consumer->name);
	free(consumer);
}

static const struct consumer_ops amqp_consumer_ops = {consumer_start, consumer_settle, consumer_stop, consumer_free};

struct consumer *amqp_consumer_new(struct transport_connection *connection, const struct consumer_settings *settings,
				   struct consumer_sink *sink)
{
	struct amqp_connection *state = connection->state;
	struct amqp_consumer *consumer = mem_zalloc(sizeof(*consumer));
	struct loop *loop = settings->loop;

	consumer->base = (struct consumer){.ops = &amqp_consumer_ops, .sink = sink, .loop = loop, .lag = -1};
	consumer->channel.ops = &channel_ops;
	consumer->link = &state->consuming;
	consumer->queue = mem_strdup(settings->bind);
	consumer->tenant = mem_strdup(settings->tenant);
	consumer->name = mem_strdup(settings->channel);
	consumer->prefetch =
		(uint16_t)(settings->max_in_flight < PREFETCH_MAX ? settings->max_in_flight : PREFETCH_MAX);
	consumer->retry_ms = RETRY_MIN_MS;
	consumer->flush.run = flush_run;
	consumer->end.run = consumer_ended;
	loop_timer_init(&consumer->retry, loop, retry_due);
	loop_timer_init(&consumer->warn, loop, warn_missing);
	loop_timer_init(&consumer->answer, loop, answer_timeout);
	loop_timer_init(&consumer->holes, loop, holes_due);
	return &consumer->base;
}
