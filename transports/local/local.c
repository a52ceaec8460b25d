/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local transport: a hub per connection knows which consumer takes (tenant, channel).
 *
 *	publish, any thread ─► hub: copy, append to the consumer's inbox ─► consumer's loop: waiting ─► sink ─► settle
 *	        answer, on its own loop ◄───────────────────────────────────────────────────────────────────────┘
 *
 * A publication is confirmed by the settle of its message, not by its arrival: the outbox row stays until the effect of the
 * message is committed (G1), so nothing is lost with the process. A message that the sink gives back is answered RETRY; sent
 * again it carries the same id, and the inbox knows it (G5).
 *
 * One mutex per hub, a leaf, guards the table, the inboxes and the lists of what is outstanding. Whoever finds an inbox empty
 * posts the consumer's one task; until that has run, `posted` keeps the consumer from ending, so that no thread ever holds a
 * pointer to one that is gone.
 */
#include "transports/local/local.h"

#include <stdio.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/time.h"

struct local_hub {
	uv_mutex_t mutex;
	struct map consumers; /* tenant, NUL, channel → consumer */
};

struct local_consumer {
	struct consumer base;
	struct local_hub *hub;
	char *tenant, *channel;
	uint32_t max_in_flight;
	struct task take, end;

	/* Under the hub's mutex. */
	struct list inbox;
	bool posted; /* `take` is on its way */

	/* The loop's own. */
	struct list waiting; /* past max_in_flight */
	uint32_t unsettled;
	bool stopping, ended;
};

struct local_publisher {
	struct publisher base;
	struct local_hub *hub;
	struct task check;
	struct loop_timer deadline;

	/* Under the hub's mutex. */
	struct list outstanding; /* entries */
	bool stopping, checking;
	int64_t timeout_ms;
	struct loop *reply_to;
	struct task *done;
};

/* What stands behind a message until it is settled; sits in its arena. */
struct local_entry {
	struct list link; /* in its publisher's list */
	struct local_publisher *publisher;
	struct publication *publication; /* NULL: injected, or answered before */
	void (*settled)(void *user, enum settle how);
	void *user;
};

/* --- the hub --- */

static enum result local_open(struct transport_connection *connection, struct error *err UNUSED)
{
	struct local_hub *hub = mem_zalloc(sizeof(*hub));

	if (uv_mutex_init(&hub->mutex) != 0)
		abort();
	map_init(&hub->consumers);
	connection->state = hub;
	return RESULT_OK;
}

static void local_close(struct transport_connection *connection)
{
	struct local_hub *hub = connection->state;

	if (!hub)
		return;
	assert(hub->consumers.count == 0);
	map_done(&hub->consumers);
	uv_mutex_destroy(&hub->mutex);
	free(hub);
	connection->state = NULL;
}

static void hub_key(struct buf *key, struct str tenant, struct str channel)
{
	buf_add_str(key, tenant);
	buf_add_byte(key, 0);
	buf_add_str(key, channel);
}

enum sent { SENT, NOT_CONSUMED, NOT_PUBLISHING };

/* Appends; the entry is joined to its publisher in the same breath. Unless SENT, nothing was taken. @thread any */
static enum sent hub_send(struct local_hub *hub, struct str tenant, struct str channel, struct message *message,
		     struct local_entry *entry)
{
	struct buf key = BUF_INIT;
	struct local_consumer *consumer = NULL;
	enum sent sent = NOT_CONSUMED;
	bool post = false;

	message->token = (uint64_t)(uintptr_t)entry;
	hub_key(&key, tenant, channel);
	uv_mutex_lock(&hub->mutex);
	if (entry->publisher && entry->publisher->stopping)
		sent = NOT_PUBLISHING;
	else
		consumer = map_get(&hub->consumers, buf_str(&key));
	if (consumer) {
		sent = SENT;
		list_push(&consumer->inbox, &message->link);
		if (entry->publisher)
			list_push(&entry->publisher->outstanding, &entry->link);
		post = !consumer->posted;
		consumer->posted = true;
	}
	uv_mutex_unlock(&hub->mutex);
	if (post)
		loop_post(consumer->base.loop, &consumer->take);
	buf_done(&key);
	return sent;
}

bool local_inject(struct transport_connection *connection, struct str tenant, struct str channel,
		  struct message *message, void (*settled)(void *user, enum settle how), void *user)
{
	struct local_entry *entry = arena_zalloc(&message->arena, sizeof(*entry));

	entry->settled = settled;
	entry->user = user;
	return hub_send(connection->state, tenant, channel, message, entry) == SENT;
}

/* --- answers --- */

static void publication_answer(struct publication *publication, enum publish_outcome outcome, const char *text)
{
	publication->outcome = outcome;
	snprintf(publication->text, sizeof(publication->text), "%s", text);
	loop_post(publication->reply_to, &publication->done);
}

/* The publication behind the entry, which is nobody's from now on; NULL if there is none (any more). @thread any */
static struct publication *entry_take(struct local_hub *hub, struct local_entry *entry)
{
	struct local_publisher *publisher = entry->publisher;
	struct publication *publication;
	bool check;

	if (!publisher)
		return NULL;
	uv_mutex_lock(&hub->mutex);
	publication = entry->publication;
	entry->publication = NULL;
	list_remove(&entry->link);
	check = publisher->stopping && !publisher->checking && publication && list_is_empty(&publisher->outstanding);
	publisher->checking |= check;
	uv_mutex_unlock(&hub->mutex);
	if (check)
		loop_post(publisher->base.loop, &publisher->check);
	return publication;
}

static void message_end(struct local_consumer *consumer, struct message *message, enum settle how)
{
	struct local_entry *entry = (struct local_entry *)(uintptr_t)message->token;
	struct publication *publication = entry_take(consumer->hub, entry);

	if (entry->settled)
		entry->settled(entry->user, how);
	if (publication && how == SETTLE_DONE)
		publication_answer(publication, PUBLISH_CONFIRMED, "");
	else if (publication)
		publication_answer(publication, PUBLISH_RETRY, "the consumer of the channel gave the message back");
	message_free(&message);
}

/* --- the consumer --- */

static void consumer_check_ended(struct local_consumer *consumer)
{
	bool posted;

	if (!consumer->stopping || consumer->ended || consumer->unsettled)
		return;
	uv_mutex_lock(&consumer->hub->mutex);
	posted = consumer->posted;
	uv_mutex_unlock(&consumer->hub->mutex);
	if (posted)
		return; /* its task comes back here */
	consumer->ended = true;
	loop_post(consumer->base.loop, &consumer->end);
}

static void consumer_pump(struct local_consumer *consumer)
{
	while (!consumer->stopping && consumer->unsettled < consumer->max_in_flight) {
		struct message *message = list_first(&consumer->waiting, struct message, link);

		if (!message)
			return;
		list_remove(&message->link);
		if (!message->time_us)
			message->time_us = loop_wall_us(consumer->base.loop);
		consumer->unsettled++;
		__atomic_add_fetch(&consumer->base.received, 1, __ATOMIC_RELAXED);
		consumer->base.sink->deliver(consumer->base.sink, message);
	}
}

static void consumer_give_back(struct local_consumer *consumer)
{
	list_for_each(&consumer->waiting, pos, tmp) {
		struct message *message = list_entry(pos, struct message, link);

		list_remove(&message->link);
		message_end(consumer, message, SETTLE_BACK);
	}
}

static void consumer_take(struct task *task)
{
	struct local_consumer *consumer = container_of(task, struct local_consumer, take);

	uv_mutex_lock(&consumer->hub->mutex);
	consumer->posted = false;
	list_splice(&consumer->waiting, &consumer->inbox);
	uv_mutex_unlock(&consumer->hub->mutex);
	if (consumer->stopping)
		consumer_give_back(consumer);
	consumer_pump(consumer);
	consumer_check_ended(consumer);
}

static void consumer_end(struct task *task)
{
	struct local_consumer *consumer = container_of(task, struct local_consumer, end);

	consumer->base.sink->state(consumer->base.sink, CONSUMER_STOPPED, NULL);
	consumer->base.sink->stopped(consumer->base.sink);
}

static void consumer_start(struct consumer *base)
{
	struct local_consumer *consumer = container_of(base, struct local_consumer, base);
	struct buf key = BUF_INIT;
	void *other;

	hub_key(&key, str_of(consumer->tenant), str_of(consumer->channel));
	uv_mutex_lock(&consumer->hub->mutex);
	other = map_put(&consumer->hub->consumers, buf_str(&key), consumer);
	uv_mutex_unlock(&consumer->hub->mutex);
	assert(!other);
	buf_done(&key);
	base->sink->state(base->sink, CONSUMER_CONSUMING, NULL);
}

static void consumer_settle(struct consumer *base, struct message *message, enum settle how)
{
	struct local_consumer *consumer = container_of(base, struct local_consumer, base);
	bool post;

	assert(consumer->unsettled > 0);
	consumer->unsettled--;
	__atomic_add_fetch(how == SETTLE_DONE ? &base->settled_done : &base->settled_back, 1, __ATOMIC_RELAXED);
	message_end(consumer, message, how);
	if (consumer->stopping) {
		consumer_check_ended(consumer);
		return;
	}
	if (list_is_empty(&consumer->waiting))
		return;
	/* Not from inside the settle: the sink is not done with it yet. */
	uv_mutex_lock(&consumer->hub->mutex);
	post = !consumer->posted;
	consumer->posted = true;
	uv_mutex_unlock(&consumer->hub->mutex);
	if (post)
		loop_post(base->loop, &consumer->take);
}

static void consumer_stop(struct consumer *base)
{
	struct local_consumer *consumer = container_of(base, struct local_consumer, base);
	struct buf key = BUF_INIT;

	if (consumer->stopping)
		return;
	hub_key(&key, str_of(consumer->tenant), str_of(consumer->channel));
	uv_mutex_lock(&consumer->hub->mutex);
	if (map_get(&consumer->hub->consumers, buf_str(&key)) == consumer)
		map_remove(&consumer->hub->consumers, buf_str(&key));
	list_splice(&consumer->waiting, &consumer->inbox);
	uv_mutex_unlock(&consumer->hub->mutex);
	buf_done(&key);
	consumer->stopping = true;
	consumer_give_back(consumer);
	base->sink->revoke(base->sink, NULL);
	consumer_check_ended(consumer);
}

static void consumer_free(struct consumer *base)
{
	struct local_consumer *consumer = container_of(base, struct local_consumer, base);

	assert(list_is_empty(&consumer->inbox) && list_is_empty(&consumer->waiting));
	free(consumer->tenant);
	free(consumer->channel);
	free(consumer);
}

static const struct consumer_ops local_consumer_ops = {consumer_start, consumer_settle, consumer_stop, consumer_free};

static struct consumer *local_consumer_new(struct transport_connection *connection,
					   const struct consumer_settings *settings, struct consumer_sink *sink)
{
	struct local_consumer *consumer = mem_zalloc(sizeof(*consumer));

	consumer->base = (struct consumer){
		.ops = &local_consumer_ops, .sink = sink, .loop = settings->loop, .lag = -1};
	consumer->hub = connection->state;
	consumer->tenant = mem_strdup(settings->tenant);
	consumer->channel = mem_strdup(settings->channel);
	consumer->max_in_flight = settings->max_in_flight ? settings->max_in_flight : 1;
	consumer->take.run = consumer_take;
	consumer->end.run = consumer_end;
	list_init(&consumer->inbox);
	list_init(&consumer->waiting);
	return &consumer->base;
}

/* --- the publisher --- */

/* "local:" and the name. By hand: it is made twice for each message, and printf costs more than the rest of the copy. */
static struct str local_name(struct arena *arena, struct str name)
{
	static const struct str prefix = {"local:", 6};
	char *text = arena_alloc(arena, prefix.len + name.len + 1);

	memcpy(text, prefix.ptr, prefix.len);
	if (name.len)
		memcpy(text + prefix.len, name.ptr, name.len);
	text[prefix.len + name.len] = '\0';
	return str_make(text, prefix.len + name.len);
}

/* Everything is copied: the publication may be answered, and gone, while its message is still in work. */
static struct message *message_of(const struct publication *publication)
{
	struct message *message = message_new();
	struct arena *arena = &message->arena;

	message->key = arena_str(arena, publication->key);
	message->order_key = message->key;
	message->headers = headers_copy(arena, &publication->headers);
	message->content_type = arena_str(arena, publication->content_type);
	message->type = arena_str(arena, publication->type);
	message->message_id = arena_str(arena, publication->message_id);
	message->body = arena_str(arena, publication->body);
	message->reply_correlation = value_copy(arena, &publication->correlation);
	if (message->message_id.ptr)
		message->identity = local_name(arena, message->message_id);
	message->source = local_name(arena, publication->destination);
	message->bytes = message->body.len + message->key.len;
	for (size_t i = 0; i < message->headers.count; i++)
		message->bytes += message->headers.items[i].name.len + value_size(&message->headers.items[i].value);
	return message;
}

static void publisher_publish(struct publisher *base, struct publication *publication)
{
	struct local_publisher *publisher = container_of(base, struct local_publisher, base);
	struct message *message;
	struct local_entry *entry;
	char text[sizeof(publication->text)];
	enum sent sent;

	message = message_of(publication);
	entry = arena_zalloc(&message->arena, sizeof(*entry));
	entry->publisher = publisher;
	entry->publication = publication;
	/* The publication is not to be touched once it is sent. */
	sent = hub_send(publisher->hub, publication->tenant, publication->destination, message, entry);
	if (sent == SENT)
		return;
	message_free(&message);
	if (sent == NOT_PUBLISHING) {
		publication_answer(publication, PUBLISH_RETRY, "the local publisher is stopped");
		return;
	}
	snprintf(text, sizeof(text), "nobody consumes the local channel '%.*s'", STR_ARG(publication->destination));
	publication_answer(publication, PUBLISH_UNROUTABLE, text);
}

static void publisher_purge(struct publisher *base)
{
	struct local_publisher *publisher = container_of(base, struct local_publisher, base);
	struct list answers;

	list_init(&answers);
	uv_mutex_lock(&publisher->hub->mutex);
	list_for_each(&publisher->outstanding, pos, tmp) {
		struct local_entry *entry = list_entry(pos, struct local_entry, link);

		list_remove(&entry->link);
		list_push(&answers, &entry->publication->link);
		entry->publication = NULL;
	}
	uv_mutex_unlock(&publisher->hub->mutex);
	list_for_each(&answers, pos, tmp) {
		struct publication *publication = list_entry(pos, struct publication, link);

		list_remove(&publication->link);
		publication_answer(publication, PUBLISH_RETRY, "dropped before it was confirmed");
	}
}

static void publisher_end(struct local_publisher *publisher)
{
	struct task *done = publisher->done;

	loop_timer_stop(&publisher->deadline);
	publisher_purge(&publisher->base);
	publisher->done = NULL;
	if (done)
		loop_post(publisher->reply_to, done);
}

static void publisher_deadline(struct loop_timer *timer)
{
	publisher_end(container_of(timer, struct local_publisher, deadline));
}

static void publisher_check(struct task *task)
{
	struct local_publisher *publisher = container_of(task, struct local_publisher, check);
	bool is_empty;

	uv_mutex_lock(&publisher->hub->mutex);
	publisher->checking = false;
	is_empty = list_is_empty(&publisher->outstanding);
	uv_mutex_unlock(&publisher->hub->mutex);
	if (is_empty)
		publisher_end(publisher);
	else if (publisher->done && !loop_timer_is_started(&publisher->deadline))
		loop_timer_start(&publisher->deadline, publisher->timeout_ms * US_PER_MS);
}

static void publisher_start(struct publisher *base)
{
	__atomic_store_n(&base->up, true, __ATOMIC_RELEASE);
}

static void publisher_stop(struct publisher *base, int64_t timeout_ms, struct loop *reply_to, struct task *done)
{
	struct local_publisher *publisher = container_of(base, struct local_publisher, base);
	bool post;

	__atomic_store_n(&base->up, false, __ATOMIC_RELEASE);
	uv_mutex_lock(&publisher->hub->mutex);
	publisher->timeout_ms = timeout_ms;
	publisher->reply_to = reply_to;
	publisher->done = done;
	publisher->stopping = true;
	post = !publisher->checking;
	publisher->checking = true;
	uv_mutex_unlock(&publisher->hub->mutex);
	if (post)
		loop_post(base->loop, &publisher->check);
}

static void publisher_free(struct publisher *base)
{
	struct local_publisher *publisher = container_of(base, struct local_publisher, base);

	assert(list_is_empty(&publisher->outstanding));
	free(publisher);
}

static const struct publisher_ops local_publisher_ops = {publisher_start, publisher_publish, publisher_purge,
							  publisher_stop, publisher_free};

static struct publisher *local_publisher_new(struct transport_connection *connection)
{
	struct local_publisher *publisher = mem_zalloc(sizeof(*publisher));

	publisher->base = (struct publisher){.ops = &local_publisher_ops, .loop = connection->publish_loop};
	publisher->hub = connection->state;
	publisher->check.run = publisher_check;
	list_init(&publisher->outstanding);
	loop_timer_init(&publisher->deadline, connection->publish_loop, publisher_deadline);
	return &publisher->base;
}

const struct transport transport_local = {
	.name = "local",
	.needs_connection = false,
	.open = local_open,
	.close = local_close,
	.consumer_new = local_consumer_new,
	.publisher_new = local_publisher_new,
};
