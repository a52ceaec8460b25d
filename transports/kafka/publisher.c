/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Kafka publisher of a connection: one idempotent producer, from publications to delivery reports.
 *
 *	publish, any thread ─► loop ─► WAITING ─produce─► SENT ─report─► answered
 *	                                  ▲ the client's queue is full, or the handle is being opened anew
 *
 * A publication is confirmed by the report of all in-sync replicas and by nothing else (G6). Every other end is an answer to
 * the outbox, which owns the patience: RETRY when the broker did not take it or nobody knows, UNROUTABLE when the topic does not
 * exist, REJECTED when it never will be taken. Order within a group of rows is the outbox's too, by having one under way.
 *
 * A producer that fails for good (an idempotent one does, rather than reorder or duplicate) is closed, everything with it is
 * answered RETRY, and another is opened with backoff. Answered so, a record may be in the topic all the same; sent again
 * it carries the same sutra-outbox-key.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "transports/kafka/kafka.h"

#define POLL_BURST 1024
#define CLOSE_MS 500
/* The client's queue was full: try again after this if no report comes before. */
#define FULL_US (10 * US_PER_MS)
/* content-type, message-type, sutra-outbox-key, correlation-id and its other name. */
#define OWN_HEADERS 5

struct kafka_publisher {
	struct publisher base;
	struct transport_connection *connection;
	const struct kafka_client *client;
	struct kafka_handle *handle;
	struct list waiting, sent; /* publications */
	bool started, stopping, ended;
	bool pump_posted;
	bool purge_posted; /* atomic */
	struct task pump, purge_task, stop_task;
	struct loop_timer rebuild, full, deadline;
	int64_t rebuild_delay_ms;

	/* Of stop; written before its task is posted. */
	int64_t stop_timeout_ms;
	struct loop *stop_reply_to;
	struct task *stop_done;

	/* The record being made. */
	struct arena arena;
};

static const struct log_about about_publish = {.stage = "publish"};

static struct kafka_publisher *publisher_of(struct publisher *base)
{
	return container_of(base, struct kafka_publisher, base);
}

static void set_up(struct kafka_publisher *publisher, bool up)
{
	__atomic_store_n(&publisher->base.up, up, __ATOMIC_RELEASE);
}

static void answer(struct publication *publication, enum publish_outcome outcome, const char *text)
{
	list_remove(&publication->link);
	publication->outcome = outcome;
	snprintf(publication->text, sizeof(publication->text), "%s", text);
	loop_post(publication->reply_to, &publication->done);
}

static void answer_all(struct list *publications, const char *text)
{
	list_for_each(publications, pos, tmp)
		answer(list_entry(pos, struct publication, link), PUBLISH_RETRY, text);
}

/* --- records --- */

/* What a header value is on the wire: bytes as they are, numbers and truth as text, structures as JSON, nil as null. */
static struct str header_bytes(struct arena *arena, const msgpack_object *value)
{
	struct buf json = BUF_INIT;
	struct str text = STR_NONE;
	int64_t number;

	if (value_is_nil(value))
		return STR_NONE;
	if (value->type == MSGPACK_OBJECT_STR || value->type == MSGPACK_OBJECT_BIN) {
		text = value_as_str(value);
		return text.ptr ? text : STR("");
	}
	if (value->type == MSGPACK_OBJECT_BOOLEAN)
		return value->via.boolean ? STR("true") : STR("false");
	if (value_as_int(value, &number))
		return str_of(arena_printf(arena, "%" PRId64, number));
	/* NaN and strings that are not UTF-8 are no JSON; a header of the short form is better than none. */
	if (value_json_write(value, &json, NULL) != RESULT_OK) {
		buf_reset(&json);
		value_print(value, 4096, &json);
	}
	text = arena_str(arena, buf_str(&json));
	buf_done(&json);
	return text;
}

static void header_add(struct kafka_record *record, struct str *names, struct str *values, struct str name,
		       struct str value)
{
	names[record->header_count] = name;
	values[record->header_count++] = value;
}

static void fill_headers(struct arena *arena, const struct publication *pub, struct kafka_record *record)
{
	size_t most = pub->headers.count + OWN_HEADERS;
	struct str *names = arena_alloc(arena, most * sizeof(*names));
	struct str *values = arena_alloc(arena, most * sizeof(*values));

	for (size_t i = 0; i < pub->headers.count; i++)
		header_add(record, names, values, pub->headers.items[i].name,
			   header_bytes(arena, &pub->headers.items[i].value));
	/* Of these two the sender's own win. */
	if (pub->content_type.len && !header_find(&pub->headers, STR("content-type")))
		header_add(record, names, values, STR("content-type"), pub->content_type);
	if (pub->type.len && !header_find(&pub->headers, STR("message-type")))
		header_add(record, names, values, STR("message-type"), pub->type);
	if (!value_is_nil(&pub->correlation)) {
		struct str id = header_bytes(arena, &pub->correlation);

		/* Spring's templates look for theirs, everybody else for the other. */
		header_add(record, names, values, STR("correlation-id"), id);
		header_add(record, names, values, STR("kafka_correlationId"), id);
	}
	/* Last, since the last of a name counts: it is what receivers dedupe by. */
	if (pub->message_id.len)
		header_add(record, names, values, STR("sutra-outbox-key"), pub->message_id);
	record->header_names = names;
	record->header_values = values;
}

/* False when the client's queue is full; else the publication is sent or answered. */
static bool produce(struct kafka_publisher *publisher, struct publication *pub)
{
	struct kafka_record record = {.topic = pub->destination,
				      .timestamp_ms = -1,
				      .key = pub->key,
				      .value = pub->body};
	char text[sizeof(pub->text)] = "";
	enum result result;

	fill_headers(&publisher->arena, pub, &record);
	result = publisher->client->produce(publisher->handle, &record, pub, text, sizeof(text));
	arena_reset(&publisher->arena);
	if (result == RESULT_AGAIN)
		return false;
	list_remove(&pub->link);
	list_push(&publisher->sent, &pub->link);
	if (result != RESULT_OK)
		answer(pub, PUBLISH_REJECTED, text);
	return true;
}

static void produce_waiting(struct kafka_publisher *publisher)
{
	while (publisher->handle && !list_is_empty(&publisher->waiting)) {
		if (produce(publisher, list_first(&publisher->waiting, struct publication, link)))
			continue;
		loop_timer_start(&publisher->full, FULL_US);
		return;
	}
}

/* --- the handle --- */

static void handle_ready(void *user);

static void handle_open(struct kafka_publisher *publisher)
{
	const struct transport_connection *connection = publisher->connection;
	struct error err = ERROR_INIT;

	if (publisher->client->open(connection->kafka_cluster, publisher->base.loop, NULL, connection->property_names,
				    connection->property_values, connection->property_count, handle_ready, publisher,
				    &publisher->handle, &err) == RESULT_OK) {
		produce_waiting(publisher);
		return;
	}
	log_error(&about_publish, "connection '%s': the producer cannot be opened: %s", connection->name, err.text);
	loop_timer_start(&publisher->rebuild, kafka_backoff_us(publisher->base.loop, &publisher->rebuild_delay_ms));
}

static void handle_close(struct kafka_publisher *publisher, const char *text)
{
	publisher->client->close(&publisher->handle, CLOSE_MS);
	set_up(publisher, false);
	loop_timer_stop(&publisher->full);
	answer_all(&publisher->sent, text);
}

static void handle_rebuild(struct loop_timer *timer)
{
	struct kafka_publisher *publisher = container_of(timer, struct kafka_publisher, rebuild);

	if (!publisher->stopping && !publisher->handle)
		handle_open(publisher);
}

static void on_fatal(struct kafka_publisher *publisher, const struct kafka_event *event)
{
	char text[sizeof(event->text)];

	snprintf(text, sizeof(text), "%s", event->text);
	log_error(&about_publish, "connection '%s': the producer failed and is opened anew: %s",
		  publisher->connection->name, text);
	handle_close(publisher, text);
	/* Those that wait are nobody's fault, but whoever sent them should not wait for a producer that may not come. */
	answer_all(&publisher->waiting, text);
	if (!publisher->stopping)
		loop_timer_start(&publisher->rebuild,
				 kafka_backoff_us(publisher->base.loop, &publisher->rebuild_delay_ms));
}

static void on_delivered(struct kafka_publisher *publisher, const struct kafka_event *event)
{
	struct publication *pub = event->opaque;

	if (!event->failed) {
		publisher->rebuild_delay_ms = KAFKA_REBUILD_MIN_MS;
		set_up(publisher, true);
		answer(pub, PUBLISH_CONFIRMED, "");
	} else if (event->unknown_topic) {
		answer(pub, PUBLISH_UNROUTABLE, event->text);
	} else if (event->too_large) {
		answer(pub, PUBLISH_REJECTED, event->text);
	} else {
		answer(pub, PUBLISH_RETRY, event->text);
	}
}

static void on_event(struct kafka_publisher *publisher, const struct kafka_event *event)
{
	switch (event->kind) {
	case KAFKA_EVENT_DELIVERED:
		on_delivered(publisher, event);
		break;
	case KAFKA_EVENT_UP:
		set_up(publisher, true);
		break;
	case KAFKA_EVENT_ERROR:
		if (__atomic_load_n(&publisher->base.up, __ATOMIC_RELAXED))
			log_warning(&about_publish, "connection '%s': %s", publisher->connection->name, event->text);
		set_up(publisher, false);
		break;
	case KAFKA_EVENT_FATAL:
		on_fatal(publisher, event);
		break;
	default: /* what a consumer hears */
		break;
	}
}

/* --- stopping --- */

static void publisher_end(struct kafka_publisher *publisher)
{
	loop_timer_stop(&publisher->deadline);
	loop_timer_stop(&publisher->rebuild);
	if (publisher->handle)
		handle_close(publisher, "the publisher was stopped before this was confirmed");
	answer_all(&publisher->waiting, "the publisher was stopped before this was sent");
	publisher->ended = true;
	set_up(publisher, false);
	if (publisher->stop_done)
		loop_post(publisher->stop_reply_to, publisher->stop_done);
}

static void stop_check(struct kafka_publisher *publisher)
{
	if (publisher->stopping && !publisher->ended &&
	    (!publisher->handle || (list_is_empty(&publisher->sent) && list_is_empty(&publisher->waiting))))
		publisher_end(publisher);
}

static void stop_timeout(struct loop_timer *timer)
{
	publisher_end(container_of(timer, struct kafka_publisher, deadline));
}

static void stop_posted(struct task *task)
{
	struct kafka_publisher *publisher = container_of(task, struct kafka_publisher, stop_task);

	publisher->stopping = true;
	loop_timer_start(&publisher->deadline, publisher->stop_timeout_ms * US_PER_MS);
	stop_check(publisher);
}

static void publisher_stop(struct publisher *base, int64_t timeout_ms, struct loop *reply_to, struct task *done)
{
	struct kafka_publisher *publisher = publisher_of(base);

	publisher->stop_timeout_ms = timeout_ms > 0 ? timeout_ms : 0;
	publisher->stop_reply_to = reply_to;
	publisher->stop_done = done;
	loop_post(base->loop, &publisher->stop_task);
}

/* --- the pump --- */

static void pump(struct kafka_publisher *publisher)
{
	struct kafka_event event = {.kind = KAFKA_EVENT_NONE};

	for (int i = 0; i < POLL_BURST && publisher->handle; i++) {
		publisher->client->poll(publisher->handle, &event);
		if (event.kind == KAFKA_EVENT_NONE)
			break;
		on_event(publisher, &event);
	}
	if (publisher->handle && event.kind != KAFKA_EVENT_NONE && !publisher->pump_posted) {
		publisher->pump_posted = true;
		loop_post(publisher->base.loop, &publisher->pump);
	}
	produce_waiting(publisher);
	stop_check(publisher);
}

static void pump_posted(struct task *task)
{
	struct kafka_publisher *publisher = container_of(task, struct kafka_publisher, pump);

	publisher->pump_posted = false;
	pump(publisher);
}

static void handle_ready(void *user)
{
	pump(user);
}

static void full_timeout(struct loop_timer *timer)
{
	pump(container_of(timer, struct kafka_publisher, full));
}

/* --- publishing --- */

static void publication_posted(struct task *task)
{
	struct publication *pub = container_of(task, struct publication, post);
	struct kafka_publisher *publisher = publisher_of(pub->publisher);
	bool is_first = list_is_empty(&publisher->waiting);

	list_push(&publisher->waiting, &pub->link);
	if (publisher->stopping)
		answer(pub, PUBLISH_RETRY, "the publisher is stopping");
	else if (!publisher->handle)
		answer(pub, PUBLISH_RETRY, "there is no producer at the moment");
	else if (is_first && !produce(publisher, pub))
		loop_timer_start(&publisher->full, FULL_US);
}

static void publisher_publish(struct publisher *base, struct publication *pub)
{
	pub->publisher = base;
	pub->link = (struct list){NULL, NULL};
	pub->post.run = publication_posted;
	loop_post(base->loop, &pub->post);
}

static void purge_posted(struct task *task)
{
	struct kafka_publisher *publisher = container_of(task, struct kafka_publisher, purge_task);

	__atomic_store_n(&publisher->purge_posted, false, __ATOMIC_RELEASE);
	answer_all(&publisher->waiting, "dropped before it was sent");
	if (publisher->handle)
		publisher->client->purge(publisher->handle); /* the reports follow */
}

static void publisher_purge(struct publisher *base)
{
	struct kafka_publisher *publisher = publisher_of(base);

	if (!__atomic_exchange_n(&publisher->purge_posted, true, __ATOMIC_ACQ_REL))
		loop_post(base->loop, &publisher->purge_task);
}

/* --- life --- */

static void publisher_start(struct publisher *base)
{
	struct kafka_publisher *publisher = publisher_of(base);

	assert(!publisher->started);
	publisher->started = true;
	if (!publisher->stopping)
		handle_open(publisher);
}

static void publisher_free(struct publisher *base)
{
	struct kafka_publisher *publisher = publisher_of(base);

	assert(!publisher->handle && list_is_empty(&publisher->waiting) && list_is_empty(&publisher->sent));
	arena_done(&publisher->arena);
	free(publisher);
}

static const struct publisher_ops kafka_publisher_ops = {publisher_start, publisher_publish, publisher_purge,
							  publisher_stop, publisher_free};

struct publisher *kafka_publisher_new(struct transport_connection *connection)
{
	struct kafka_publisher *publisher = mem_zalloc(sizeof(*publisher));
	struct loop *loop = connection->publish_loop;

	publisher->base = (struct publisher){.ops = &kafka_publisher_ops, .loop = loop};
	publisher->connection = connection;
	publisher->client = kafka_client_of(connection);
	publisher->rebuild_delay_ms = KAFKA_REBUILD_MIN_MS;
	publisher->pump.run = pump_posted;
	publisher->purge_task.run = purge_posted;
	publisher->stop_task.run = stop_posted;
	list_init(&publisher->waiting);
	list_init(&publisher->sent);
	loop_timer_init(&publisher->rebuild, loop, handle_rebuild);
	loop_timer_init(&publisher->full, loop, full_timeout);
	loop_timer_init(&publisher->deadline, loop, stop_timeout);
	arena_init(&publisher->arena);
	return &publisher->base;
}
