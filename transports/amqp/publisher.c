/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AMQP publisher of a connection: one channel with confirms on the publishing link, which consumes nothing, so that a broker
 * that stops reading publishers in an alarm does not stop acknowledgements.
 *
 *	publish, any thread ─► loop ─► WAITING ─publish─► in a slot of the window ─ack, nack, return─► answered
 *	                                  ▲ the window is full, the broker is blocked or away, the channel is being opened
 *
 * What waits has cost no attempt, however long it waits: the outbox keeps its rows claimed meanwhile.
 *
 * A slot's place is its sequence number on the channel, by which the broker confirms. A return has no number: it is found by its
 * message-id, answered at once, and the ack that follows it finds an empty slot. When the channel or the connection goes,
 * nobody knows what became of the slots: all are answered RETRY, and sent again they carry the same sutra-outbox-key.
 *
 * An exchange that does not exist costs the channel and with it everything under way, so one that was found missing is not
 * tried again for a while: its publications are answered without being sent.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "transports/amqp/amqp.h"

#define WINDOW 512
/* Publications between two looks at what has come, and the longest time between two. */
#define PUBLISH_BURST 32
#define DRAIN_US (10 * US_PER_MS)
#define BODY_MAX (16u << 20)
#define REOPEN_MIN_MS 50
#define REOPEN_MAX_MS 5000
#define MISSING_MAX 16
#define MISSING_US (5 * US_PER_S)
/* A confirm may take seconds on a busy disk. One that takes longer may never come: a quorum queue without a leader (seen with
 * RabbitMQ 3.10 after a kill -9) hangs the channel that publishes to it. */
#define CONFIRM_US (30 * US_PER_S)
#define CLOSE_US (5 * US_PER_S)
#define CODE_NOT_FOUND 404
#define CODE_ACCESS_REFUSED 403
#define CODE_PRECONDITION_FAILED 406

enum publisher_state {
	PUBLISHER_DOWN,
	PUBLISHER_CLOSED,
	PUBLISHER_OPENING,
	PUBLISHER_CONFIRM,
	PUBLISHER_READY,
	PUBLISHER_CLOSING,
};

/* An exchange that cannot be published to. */
struct missing_exchange {
	char name[256];
	char text[256];
	int64_t until_us;
};

struct amqp_publisher {
	struct publisher base;
	struct transport_connection *connection;
	struct amqp_channel channel;
	struct amqp_link *link;
	enum publisher_state state;
	bool started, stopping, ended, blocked;
	struct list waiting;
	struct publication *slots[WINDOW]; /* by sequence number; NULL = answered */
	int64_t sent_us[WINDOW];
	int64_t unblocked_us;
	uint64_t low, next;		   /* slots in use: low … next - 1 */
	bool pump_posted, pumping;
	bool purge_posted; /* atomic */
	struct task pump, purge_task, stop_task;
	struct loop_timer reopen, overdue, deadline;
	int64_t reopen_ms;
	struct missing_exchange missing[MISSING_MAX];
	uint32_t missing_next;

	/* Of stop; written before its task is posted. */
	int64_t stop_timeout_ms;
	struct loop *stop_reply_to;
	struct task *stop_done;

	struct arena arena; /* of the publication being made */
};

static const struct log_about about_publish = {.stage = "publish"};

static void stop_check(struct amqp_publisher *publisher);

static struct amqp_publisher *publisher_of(struct publisher *base)
{
	return container_of(base, struct amqp_publisher, base);
}

static struct amqp_publisher *owner_of(struct amqp_channel *channel)
{
	return container_of(channel, struct amqp_publisher, channel);
}

static void set_up(struct amqp_publisher *publisher, bool up)
{
	__atomic_store_n(&publisher->base.up, up, __ATOMIC_RELEASE);
}

static void pump_post(struct amqp_publisher *publisher)
{
	if (publisher->pump_posted || publisher->pumping || publisher->ended)
		return;
	publisher->pump_posted = true;
	loop_post(publisher->base.loop, &publisher->pump);
}

/* --- answers --- */

static void answer(struct publication *pub, enum publish_outcome outcome, const char *text)
{
	list_remove(&pub->link);
	pub->outcome = outcome;
	snprintf(pub->text, sizeof(pub->text), "%s", text);
	loop_post(pub->reply_to, &pub->done);
}

static void answer_waiting(struct amqp_publisher *publisher, const char *text)
{
	list_for_each(&publisher->waiting, pos, tmp)
		answer(list_entry(pos, struct publication, link), PUBLISH_RETRY, text);
}

static struct publication **slot_at(struct amqp_publisher *publisher, uint64_t number)
{
	return &publisher->slots[number % WINDOW];
}

static void slot_answer(struct amqp_publisher *publisher, uint64_t number, enum publish_outcome outcome,
			const char *text)
{
	struct publication **slot = slot_at(publisher, number);

	if (*slot)
		answer(*slot, outcome, text);
	*slot = NULL;
}

/* Nothing more is heard of what is under way. */
static void slots_answer_all(struct amqp_publisher *publisher, const char *text)
{
	for (; publisher->low < publisher->next; publisher->low++)
		slot_answer(publisher, publisher->low, PUBLISH_RETRY, text);
}

static bool slots_are_empty(const struct amqp_publisher *publisher)
{
	for (uint64_t i = publisher->low; i < publisher->next; i++)
		if (publisher->slots[i % WINDOW])
			return false;
	return true;
}

/* --- exchanges that are missing --- */

static struct missing_exchange *missing_find(struct amqp_publisher *publisher, struct str exchange)
{
	int64_t now_us = loop_now_us(publisher->base.loop);

	for (size_t i = 0; i < MISSING_MAX; i++)
		if (publisher->missing[i].until_us > now_us && str_equal(str_of(publisher->missing[i].name), exchange))
			return &publisher->missing[i];
	return NULL;
}

static void missing_add(struct amqp_publisher *publisher, struct str exchange, const char *text)
{
	struct missing_exchange *missing = &publisher->missing[publisher->missing_next++ % MISSING_MAX];

	snprintf(missing->name, sizeof(missing->name), "%.*s", STR_ARG(exchange));
	snprintf(missing->text, sizeof(missing->text), "%s", text);
	missing->until_us = loop_now_us(publisher->base.loop) + MISSING_US;
}

static struct str exchange_of(const struct publication *pub)
{
	struct str exchange, routing_key;

	amqp_destination_split(pub->destination, &exchange, &routing_key);
	return exchange;
}

/* Whether the broker's text names this exchange: "no exchange 'x' in vhost …", "access to exchange 'x' in …". */
static bool text_names(const char *text, struct str exchange)
{
	char part[300];

	snprintf(part, sizeof(part), "exchange '%.*s' in ", STR_ARG(exchange));
	return exchange.len && strstr(text, part);
}

/* "PRECONDITION_FAILED - message size 300 is larger than …"; "… larger than …" before 3.12. */
static bool text_names_size(const char *text, size_t size)
{
	char part[64];

	snprintf(part, sizeof(part), "message size %zu ", size);
	return strstr(text, part);
}

/* The channel was closed for one publication, which gets its own answer; the rest are innocent. */
static void slots_answer_guilty(struct amqp_publisher *publisher, const struct rabbit_event *event)
{
	bool is_about_exchange = event->code == CODE_NOT_FOUND || event->code == CODE_ACCESS_REFUSED;

	for (uint64_t i = publisher->low; i < publisher->next; i++) {
		struct publication *pub = *slot_at(publisher, i);

		if (!pub)
			continue;
		if (is_about_exchange && text_names(event->text, exchange_of(pub))) {
			if (!missing_find(publisher, exchange_of(pub)))
				missing_add(publisher, exchange_of(pub), event->text);
			slot_answer(publisher, i, PUBLISH_UNROUTABLE, event->text);
		} else if (event->code == CODE_PRECONDITION_FAILED && text_names_size(event->text, pub->body.len)) {
			slot_answer(publisher, i, PUBLISH_REJECTED, event->text);
		}
	}
}

/* --- publishing --- */

static bool can_publish(const struct amqp_publisher *publisher)
{
	return publisher->state == PUBLISHER_READY && !publisher->blocked && !list_is_empty(&publisher->waiting) &&
	       publisher->next - publisher->low < WINDOW;
}

static void publish_one(struct amqp_publisher *publisher, struct publication *pub)
{
	const struct missing_exchange *missing;
	struct rabbit_properties properties;
	struct str exchange, routing_key;
	char text[sizeof(pub->text)];

	arena_reset(&publisher->arena);
	amqp_destination_split(pub->destination, &exchange, &routing_key);
	missing = exchange.len ? missing_find(publisher, exchange) : NULL;
	if (missing) {
		answer(pub, PUBLISH_UNROUTABLE, missing->text);
	} else if (exchange.len > 255 || routing_key.len > 255) {
		answer(pub, PUBLISH_REJECTED, "exchange or routing key is longer than AMQP's 255 bytes");
	} else if (pub->body.len > BODY_MAX) {
		answer(pub, PUBLISH_REJECTED, "the body is larger than 16 MiB");
	} else if (!amqp_properties_of(&publisher->arena, pub, &properties, text, sizeof(text))) {
		answer(pub, PUBLISH_REJECTED, text);
	} else {
		list_remove(&pub->link);
		publisher->sent_us[publisher->next % WINDOW] = loop_now_us(publisher->base.loop);
		*slot_at(publisher, publisher->next++) = pub;
		if (!loop_timer_is_started(&publisher->overdue))
			loop_timer_start(&publisher->overdue, CONFIRM_US);
		publisher->link->client->publish(publisher->link->handle, publisher->channel.number, exchange,
						 routing_key, &properties, pub->body);
	}
}

/* What has come is read before every few publications: it may say that there are to be none, or make room in the window; and
 * rabbitmq-c before 0.14 waits without end when it finds a heartbeat overdue that lies unread, so before any that comes later. */
static void pump(struct amqp_publisher *publisher)
{
	int64_t drained_us = 0;
	unsigned burst = 0;

	publisher->pumping = true;
	while (can_publish(publisher)) {
		int64_t now_us = loop_now_us(publisher->base.loop);

		if (burst++ % PUBLISH_BURST == 0 || now_us > drained_us + DRAIN_US) {
			link_drain(publisher->link);
			drained_us = now_us;
		}
		if (can_publish(publisher))
			publish_one(publisher, list_first(&publisher->waiting, struct publication, link));
	}
	publisher->pumping = false;
	stop_check(publisher);
}

static void pump_posted(struct task *task)
{
	struct amqp_publisher *publisher = container_of(task, struct amqp_publisher, pump);

	publisher->pump_posted = false;
	pump(publisher);
}

static void publication_posted(struct task *task)
{
	struct publication *pub = container_of(task, struct publication, post);
	struct amqp_publisher *publisher = publisher_of(pub->publisher);

	list_push(&publisher->waiting, &pub->link);
	if (publisher->stopping)
		answer(pub, PUBLISH_RETRY, "the publisher is stopping");
	else
		pump_post(publisher);
}

static void publisher_publish(struct publisher *base, struct publication *pub)
{
	pub->publisher = base;
	pub->link = (struct list){NULL, NULL};
	pub->post.run = publication_posted;
	loop_post(base->loop, &pub->post);
}

/* --- the channel --- */

static void on_confirm(struct amqp_publisher *publisher, const struct rabbit_event *event)
{
	bool is_ack = event->kind == RABBIT_EVENT_ACK;
	uint64_t first = event->multiple ? publisher->low : event->tag;

	/* A tag of zero with multiple: all. */
	uint64_t last = event->tag || !event->multiple ? event->tag : publisher->next - 1;

	for (uint64_t i = first; i <= last && i < publisher->next; i++)
		if (i >= publisher->low)
			slot_answer(publisher, i, is_ack ? PUBLISH_CONFIRMED : PUBLISH_RETRY,
				    is_ack ? "" : "the broker did not take it");
	while (publisher->low < publisher->next && !*slot_at(publisher, publisher->low))
		publisher->low++;
	publisher->reopen_ms = REOPEN_MIN_MS;
}

static void on_returned(struct amqp_publisher *publisher, const struct rabbit_event *event)
{
	struct str id = event->properties.message_id;
	char text[sizeof(event->text) + 32];

	snprintf(text, sizeof(text), "no queue takes it: %u %s", event->code, event->text);
	for (uint64_t i = publisher->low; i < publisher->next && id.len; i++) {
		struct publication *pub = *slot_at(publisher, i);

		if (!pub || !str_equal(pub->message_id, id))
			continue;
		/* The slot stays taken until its ack. */
		slot_answer(publisher, i, PUBLISH_UNROUTABLE, text);
		return;
	}
}

static void channel_reset(struct amqp_publisher *publisher, const char *text)
{
	slots_answer_all(publisher, text);
	publisher->low = publisher->next = 1;
	loop_timer_stop(&publisher->reopen);
	loop_timer_stop(&publisher->overdue);
	set_up(publisher, false);
}

static void channel_open(struct amqp_publisher *publisher)
{
	publisher->state = PUBLISHER_OPENING;
	publisher->link->client->channel_open(publisher->link->handle, publisher->channel.number);
}

static void reopen_due(struct loop_timer *timer)
{
	struct amqp_publisher *publisher = container_of(timer, struct amqp_publisher, reopen);

	if (publisher->state == PUBLISHER_CLOSED && !publisher->ended)
		channel_open(publisher);
}

static void on_failed(struct amqp_publisher *publisher, const struct rabbit_event *event)
{
	log_warning(&about_publish, "connection '%s': the broker closed the channel: %u %s",
		    publisher->connection->name, event->code, event->text);
	slots_answer_guilty(publisher, event);
	channel_reset(publisher, "the channel was closed before this was confirmed");
	publisher->state = PUBLISHER_CLOSED;
	loop_timer_start(&publisher->reopen,
			 amqp_backoff_us(publisher->base.loop, &publisher->reopen_ms, REOPEN_MAX_MS));
}

/* Looks at the oldest that is under way, and again when it would be overdue. A channel that hangs in the broker does not answer
 * its close either; then the connection goes. */
static void overdue_look(struct loop_timer *timer)
{
	struct amqp_publisher *publisher = container_of(timer, struct amqp_publisher, overdue);
	int64_t since_us = publisher->sent_us[publisher->low % WINDOW];
	int64_t left_us;

	if (publisher->state == PUBLISHER_CLOSING)
		link_break(publisher->link, "the broker does not close a channel");
	if (publisher->state != PUBLISHER_READY || publisher->low == publisher->next)
		return;
	if (since_us < publisher->unblocked_us)
		since_us = publisher->unblocked_us;
	left_us = publisher->blocked ? CONFIRM_US : since_us + CONFIRM_US - loop_now_us(publisher->base.loop);
	if (left_us > 0) {
		loop_timer_start(timer, left_us);
		return;
	}
	log_warning(&about_publish, "connection '%s': the broker does not confirm; publishing again on a new channel",
		    publisher->connection->name);
	channel_reset(publisher, "it was not confirmed in time");
	publisher->state = PUBLISHER_CLOSING;
	publisher->link->client->channel_close(publisher->link->handle, publisher->channel.number);
	loop_timer_start(timer, CLOSE_US);
}

static void set_blocked(struct amqp_publisher *publisher, bool blocked, const char *text)
{
	if (publisher->blocked == blocked)
		return;
	publisher->blocked = blocked;
	publisher->unblocked_us = loop_now_us(publisher->base.loop);
	if (blocked)
		log_warning(&about_publish, "connection '%s': the broker takes no messages: %s",
			    publisher->connection->name, text);
	else
		log_info(&about_publish, "connection '%s': the broker takes messages again",
			 publisher->connection->name);
}

static void channel_event(struct amqp_channel *channel, const struct rabbit_event *event)
{
	struct amqp_publisher *publisher = owner_of(channel);

	switch (event->kind) {
	case RABBIT_EVENT_OPENED:
		publisher->state = PUBLISHER_CONFIRM;
		publisher->link->client->confirm(publisher->link->handle, channel->number);
		break;
	case RABBIT_EVENT_CONFIRMING:
		publisher->state = PUBLISHER_READY;
		set_up(publisher, true);
		break;
	case RABBIT_EVENT_ACK:
	case RABBIT_EVENT_NACK:
		on_confirm(publisher, event);
		break;
	case RABBIT_EVENT_RETURNED:
		on_returned(publisher, event);
		break;
	case RABBIT_EVENT_FAILED:
		on_failed(publisher, event);
		break;
	case RABBIT_EVENT_CLOSED:
		loop_timer_stop(&publisher->overdue);
		channel_open(publisher);
		break;
	case RABBIT_EVENT_BLOCKED:
		set_blocked(publisher, true, event->text);
		break;
	case RABBIT_EVENT_UNBLOCKED:
		set_blocked(publisher, false, "");
		break;
	default: /* what a consumer hears */
		return;
	}
	pump_post(publisher);
}

static void channel_up(struct amqp_channel *channel)
{
	channel_open(owner_of(channel));
}

static void channel_down(struct amqp_channel *channel, const char *text UNUSED)
{
	struct amqp_publisher *publisher = owner_of(channel);

	publisher->state = PUBLISHER_DOWN;
	publisher->blocked = false;
	channel_reset(publisher, "the connection was lost before this was confirmed");
	pump_post(publisher); /* which ends a stop */
}

static const struct amqp_channel_ops channel_ops = {channel_up, channel_down, channel_event};

/* --- stopping --- */

static void publisher_end(struct amqp_publisher *publisher)
{
	loop_timer_stop(&publisher->deadline);
	channel_reset(publisher, "the publisher was stopped before this was confirmed");
	answer_waiting(publisher, "the publisher was stopped before this was sent");
	publisher->ended = true;
	publisher->state = PUBLISHER_DOWN;
	if (publisher->channel.number)
		link_detach(publisher->link, &publisher->channel);
	if (publisher->stop_done)
		loop_post(publisher->stop_reply_to, publisher->stop_done);
}

static void stop_check(struct amqp_publisher *publisher)
{
	bool is_down = publisher->state == PUBLISHER_DOWN;

	if (publisher->stopping && !publisher->ended && slots_are_empty(publisher) &&
	    (is_down || list_is_empty(&publisher->waiting)))
		publisher_end(publisher);
}

static void stop_timeout(struct loop_timer *timer)
{
	publisher_end(container_of(timer, struct amqp_publisher, deadline));
}

static void stop_posted(struct task *task)
{
	struct amqp_publisher *publisher = container_of(task, struct amqp_publisher, stop_task);

	publisher->stopping = true;
	loop_timer_start(&publisher->deadline, publisher->stop_timeout_ms * US_PER_MS);
	pump(publisher);
}

static void publisher_stop(struct publisher *base, int64_t timeout_ms, struct loop *reply_to, struct task *done)
{
	struct amqp_publisher *publisher = publisher_of(base);

	publisher->stop_timeout_ms = timeout_ms > 0 ? timeout_ms : 0;
	publisher->stop_reply_to = reply_to;
	publisher->stop_done = done;
	loop_post(base->loop, &publisher->stop_task);
}

/* What is under way keeps its slot, empty, until the broker has answered or the channel is gone. */
static void purge_posted(struct task *task)
{
	struct amqp_publisher *publisher = container_of(task, struct amqp_publisher, purge_task);

	__atomic_store_n(&publisher->purge_posted, false, __ATOMIC_RELEASE);
	answer_waiting(publisher, "dropped before it was sent");
	for (uint64_t i = publisher->low; i < publisher->next; i++)
		slot_answer(publisher, i, PUBLISH_RETRY, "dropped before it was confirmed");
	pump_post(publisher);
}

static void publisher_purge(struct publisher *base)
{
	struct amqp_publisher *publisher = publisher_of(base);

	if (!__atomic_exchange_n(&publisher->purge_posted, true, __ATOMIC_ACQ_REL))
		loop_post(base->loop, &publisher->purge_task);
}

/* --- life --- */

static void publisher_start(struct publisher *base)
{
	struct amqp_publisher *publisher = publisher_of(base);

	assert(!publisher->started);
	publisher->started = true;
	publisher->state = PUBLISHER_CLOSED; /* what comes before the first connection waits for it */
	if (!publisher->stopping)
		link_attach(publisher->link, &publisher->channel);
}

static void publisher_free(struct publisher *base)
{
	struct amqp_publisher *publisher = publisher_of(base);

	assert(!publisher->channel.number && list_is_empty(&publisher->waiting));
	arena_done(&publisher->arena);
	free(publisher);
}

static const struct publisher_ops amqp_publisher_ops = {publisher_start, publisher_publish, publisher_purge,
							publisher_stop, publisher_free};

struct publisher *amqp_publisher_new(struct transport_connection *connection)
{
	struct amqp_connection *state = connection->state;
	struct amqp_publisher *publisher = mem_zalloc(sizeof(*publisher));
	struct loop *loop = connection->publish_loop;

	publisher->base = (struct publisher){.ops = &amqp_publisher_ops, .loop = loop};
	publisher->connection = connection;
	publisher->channel.ops = &channel_ops;
	publisher->link = &state->publishing;
	publisher->low = publisher->next = 1;
	publisher->reopen_ms = REOPEN_MIN_MS;
	publisher->pump.run = pump_posted;
	publisher->purge_task.run = purge_posted;
	publisher->stop_task.run = stop_posted;
	list_init(&publisher->waiting);
	loop_timer_init(&publisher->reopen, loop, reopen_due);
	loop_timer_init(&publisher->overdue, loop, overdue_look);
	loop_timer_init(&publisher->deadline, loop, stop_timeout);
	arena_init(&publisher->arena);
	return &publisher->base;
}
