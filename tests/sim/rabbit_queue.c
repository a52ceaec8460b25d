/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queues of the simulated RabbitMQ: who gets what, and where a message goes that comes back.
 *
 * Consumers take turns as long as their prefetch has room. What came back counts as the kind of the queue says; a message
 * past the limit would be dropped, which fails the run: cuts and restarts are too few for it, and a refusal must not count.
 */
#include "base/alloc.h"
#include "tests/sim/wire.h"

const char *rabbit_queue_kind_name(enum rabbit_queue_kind kind)
{
	static const char *const names[] = {
		[RABBIT_QUEUE_CLASSIC] = "classic",
		[RABBIT_QUEUE_QUORUM] = "quorum",
		[RABBIT_QUEUE_QUORUM_LIMITED] = "quorum with a limit",
		[RABBIT_QUEUE_QUORUM_43] = "quorum of 4.3",
	};

	return names[kind];
}

struct rabbit_queue *queue_find(const struct sim_rabbit *rabbit, const char *name)
{
	for (struct rabbit_queue *queue = rabbit->queues; queue; queue = queue->next)
		if (strcmp(queue->name, name) == 0)
			return queue;
	return NULL;
}

struct rabbit_message *queue_add(struct rabbit_queue *queue,
				 const struct rabbit_properties *properties, struct str body)
{
	struct rabbit_message *message = mem_zalloc(sizeof(*message));

	message->owner = queue;
	message->queue = queue->name;
	message->number = queue->count + 1;
	message->properties = *properties;
	message->body = body;
	queue->log = mem_array(queue->log, queue->count + 1, sizeof(struct rabbit_message *));
	queue->log[queue->count++] = message;
	queue->open++;
	list_push(&queue->ready, &message->link);
	sim_note(queue->rabbit->sim, "rabbit %s/%llu %.*s", queue->name,
		 (unsigned long long)message->number, STR_ARG(properties->message_id));
	return message;
}

void message_done(struct rabbit_message *message)
{
	if (message->done)
		return;
	message->done = true;
	message->owner->open--;
}

/* --- delivering --- */

static void deliver(struct rabbit_channel *channel, struct rabbit_message *message)
{
	struct sim_rabbit *rabbit = channel->handle->rabbit;
	struct rabbit_out *out = mem_zalloc(sizeof(*out));
	struct rabbit_event event = {
		.kind = RABBIT_EVENT_DELIVERED,
		.channel = channel->number,
		.tag = ++channel->tag,
		.redelivered = message->redelivered,
		.properties = message->properties,
		.body = message->body,
	};
	struct frame *frame;

	list_remove(&message->link);
	out->tag = channel->tag;
	out->message = message;
	list_push(&channel->out, &out->link);
	channel->out_count++;
	rabbit->stats.delivered++;
	rabbit->stats.redelivered += message->redelivered;
	frame = event_send(channel->handle, &event);
	if (!frame)
		return;
	frame->message = message;
	frame->lease = channel->lease;
	if (!rabbit->settings.ack_before_commit)
		return;
	message_done(message);
	rabbit->settings.acked(rabbit->settings.user, message);
}

/* The next consumer with room; it goes to the end of the row. */
static struct rabbit_channel *next_consumer(struct rabbit_queue *queue)
{
	list_for_each (&queue->consumers, at, next) {
		struct rabbit_channel *channel = list_entry(at, struct rabbit_channel,
							    consumer_link);

		if (channel->prefetch && channel->out_count >= channel->prefetch)
			continue;
		list_remove(at);
		list_push(&queue->consumers, at);
		return channel;
	}
	return NULL;
}

void queue_pump(struct rabbit_queue *queue)
{
	struct rabbit_channel *channel;

	while (!queue->missing && queue->rabbit->up) {
		struct list *from = list_is_empty(&queue->returned) ? &queue->ready
								    : &queue->returned;
		struct rabbit_message *message = list_first(from, struct rabbit_message, link);

		channel = message ? next_consumer(queue) : NULL;
		if (!channel)
			return;
		deliver(channel, message);
	}
}

void queue_subscribe(struct rabbit_queue *queue, struct rabbit_channel *channel)
{
	channel->queue = queue;
	list_push(&queue->consumers, &channel->consumer_link);
}

void queue_unsubscribe(struct rabbit_channel *channel)
{
	channel->queue = NULL;
	list_remove(&channel->consumer_link);
}

void queue_cancel_all(struct rabbit_queue *queue)
{
	list_for_each (&queue->consumers, at, next) {
		struct rabbit_channel *channel = list_entry(at, struct rabbit_channel,
							    consumer_link);
		struct rabbit_event event = {.kind = RABBIT_EVENT_CANCELLED,
					     .channel = channel->number};

		queue_unsubscribe(channel);
		queue->rabbit->stats.cancels++;
		event_send(channel->handle, &event);
	}
}

/* --- coming back --- */

static void to_old_place(struct rabbit_queue *queue, struct rabbit_message *message)
{
	struct list *at = queue->ready.next;

	while (at != &queue->ready &&
	       list_entry(at, struct rabbit_message, link)->number < message->number)
		at = at->next;
	list_insert_before(at, &message->link);
}

static void requeue(struct rabbit_queue *queue, struct rabbit_message *message, bool by_nack)
{
	bool has_limit = queue->kind == RABBIT_QUEUE_QUORUM_LIMITED ||
			 queue->kind == RABBIT_QUEUE_QUORUM_43;

	message->redelivered = true;
	if (queue->kind != RABBIT_QUEUE_QUORUM_43 || !by_nack)
		message->returns++;
	if (has_limit && message->returns > RABBIT_RETURNS_MAX)
		sim_fail(queue->rabbit->sim,
			 "G7: message %llu of %s came back %u times and is dropped",
			 (unsigned long long)message->number, queue->name, message->returns);
	switch (queue->kind) {
	case RABBIT_QUEUE_CLASSIC:
		to_old_place(queue, message);
		break;
	case RABBIT_QUEUE_QUORUM:
		/* The end of a channel gives back in order and to the front, a nack to the end. */
		if (by_nack)
			list_push(&queue->ready, &message->link);
		else
			to_old_place(queue, message);
		break;
	default:
		list_push(&queue->returned, &message->link);
		break;
	}
}

static struct rabbit_message *out_take(struct rabbit_channel *channel, struct rabbit_out *out)
{
	struct rabbit_message *message = out->message;

	list_remove(&out->link);
	channel->out_count--;
	free(out);
	return message;
}

void out_ack(struct rabbit_channel *channel, struct rabbit_out *out)
{
	struct sim_rabbit *rabbit = channel->handle->rabbit;
	bool orphan = out->orphan;
	struct rabbit_message *message = out_take(channel, out);

	rabbit->stats.acked++;
	rabbit->settings.acked(rabbit->settings.user, message);
	if (!orphan)
		message_done(message);
}

void out_return(struct rabbit_channel *channel, struct rabbit_out *out, bool by_nack)
{
	struct sim_rabbit *rabbit = channel->handle->rabbit;
	bool orphan = out->orphan;
	struct rabbit_message *message = out_take(channel, out);

	sim_note(rabbit->sim, "rabbit %s/%llu is back%s", message->queue,
		 (unsigned long long)message->number, by_nack ? "" : ", by a loss");
	rabbit->stats.given_back += by_nack;
	if (!orphan && !message->done)
		requeue(message->owner, message, by_nack);
}

void channel_return_all(struct rabbit_channel *channel)
{
	struct sim_rabbit *rabbit = channel->handle->rabbit;
	struct rabbit_out *out;

	while ((out = list_first(&channel->out, struct rabbit_out, link)))
		out_return(channel, out, false);
	for (struct rabbit_queue *queue = rabbit->queues; queue; queue = queue->next)
		queue_pump(queue);
}

/* --- the whole queue --- */

void queue_lose_unstored(struct rabbit_queue *queue)
{
	struct sim_rabbit *rabbit = queue->rabbit;

	for (size_t i = 0; i < queue->count; i++) {
		struct rabbit_message *message = queue->log[i];

		if (message->stored || message->done)
			continue;
		sim_note(rabbit->sim, "rabbit loses %s/%zu", queue->name, i + 1);
		rabbit->stats.lost++;
		message_done(message);
		list_remove(&message->link);
		rabbit->settings.lost(rabbit->settings.user, message);
	}
}

static void orphan_all(struct sim_rabbit *rabbit, const struct rabbit_queue *queue)
{
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		list_for_each (&handle->channels, ch, next_ch) {
			struct rabbit_channel *channel = list_entry(ch, struct rabbit_channel,
								    link);

			list_for_each (&channel->out, o, next_o) {
				struct rabbit_out *out = list_entry(o, struct rabbit_out, link);

				if (out->message->owner == queue)
					out->orphan = true;
			}
		}
	}
}

static void queue_declared(struct loop_timer *timer)
{
	struct rabbit_queue *queue = container_of(timer, struct rabbit_queue, declare);

	sim_note(queue->rabbit->sim, "rabbit declares %s again", queue->name);
	queue->missing = false;
	queue_pump(queue);
}

/* What was out is put back with the rest, so that nothing is lost by it: whoever has it still will meet its own doing. */
static void queue_delete(struct rabbit_queue *queue, int64_t away_us)
{
	sim_note(queue->rabbit->sim, "rabbit deletes %s", queue->name);
	queue->rabbit->stats.deletions++;
	queue->missing = true;
	queue_cancel_all(queue);
	orphan_all(queue->rabbit, queue);
	list_init(&queue->ready);
	list_init(&queue->returned);
	for (size_t i = 0; i < queue->count; i++) {
		struct rabbit_message *message = queue->log[i];

		message->link = (struct list){NULL, NULL};
		message->returns = 0;
		message->redelivered = false;
		if (!message->done)
			list_push(&queue->ready, &message->link);
	}
	loop_timer_start(&queue->declare, away_us);
}

/* One of several that an exchange gives everything to: what it misses is delivered all the same. */
static bool queue_is_shared(const struct rabbit_queue *queue)
{
	const struct rabbit_binding *binding = queue->rabbit->bindings;

	while (binding && !(binding->any_key && binding->queue == queue))
		binding = binding->next;
	return binding;
}

static struct rabbit_queue *some_queue(struct sim_rabbit *rabbit)
{
	struct rabbit_queue *queue = rabbit->queues;
	uint64_t count = 0, chosen;

	for (struct rabbit_queue *q = queue; q; q = q->next)
		count++;
	if (!count)
		return NULL;
	for (chosen = sim_below(rabbit->sim, count); chosen > 0; chosen--)
		queue = queue->next;
	return queue->missing ? NULL : queue;
}

void sim_rabbit_delete_queue(struct sim_rabbit *rabbit, int64_t away_us)
{
	struct rabbit_queue *queue = some_queue(rabbit);

	if (queue && !queue_is_shared(queue))
		queue_delete(queue, away_us);
}

void sim_rabbit_move_queue(struct sim_rabbit *rabbit)
{
	struct rabbit_queue *queue = some_queue(rabbit);

	if (!queue)
		return;
	sim_note(rabbit->sim, "rabbit moves %s", queue->name);
	queue_cancel_all(queue);
}

void sim_rabbit_queue_make(struct sim_rabbit *rabbit, const char *name, enum rabbit_queue_kind kind)
{
	struct rabbit_queue *queue = mem_zalloc(sizeof(*queue));

	assert(!queue_find(rabbit, name));
	queue->rabbit = rabbit;
	queue->kind = kind;
	snprintf(queue->name, sizeof(queue->name), "%s", name);
	list_init(&queue->ready);
	list_init(&queue->returned);
	list_init(&queue->consumers);
	loop_timer_init(&queue->declare, sim_world(rabbit->sim), queue_declared);
	queue->next = rabbit->queues;
	rabbit->queues = queue;
	sim_note(rabbit->sim, "rabbit makes queue %s: %s", name, rabbit_queue_kind_name(kind));
}

void queue_free(struct rabbit_queue *queue)
{
	loop_timer_stop(&queue->declare);
	for (size_t i = 0; i < queue->count; i++)
		free(queue->log[i]);
	free(queue->log);
	free(queue);
}

bool sim_rabbit_is_drained(const struct sim_rabbit *rabbit, const char *name)
{
	const struct rabbit_queue *queue = queue_find(rabbit, name);

	return queue && !queue->missing && !queue->open;
}

size_t sim_rabbit_count(const struct sim_rabbit *rabbit, const char *name)
{
	const struct rabbit_queue *queue = queue_find(rabbit, name);

	return queue ? queue->count : 0;
}

const struct rabbit_message *sim_rabbit_message(const struct sim_rabbit *rabbit, const char *name,
						size_t index)
{
	return queue_find(rabbit, name)->log[index];
}
