/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the frames of clients do to the channels of the simulated RabbitMQ: subscriptions, answers to deliveries,
 * publications with their confirms and returns.
 *
 * A channel that the broker has closed hears nothing more until the client has answered that.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "tests/sim/wire.h"

#define CODE_NOT_FOUND 404
#define CODE_TIMED_OUT 406
#define CODE_NO_ROUTE  312

static struct sim_rabbit *rabbit_of(const struct rabbit_channel *channel)
{
	return channel->handle->rabbit;
}

static void tell(struct rabbit_channel *channel, enum rabbit_event_kind kind)
{
	struct rabbit_event event = {.kind = kind, .channel = channel->number};

	event_send(channel->handle, &event);
}

/* --- confirms --- */

static void unconfirmed_free(struct rabbit_unconfirmed *pub)
{
	loop_timer_stop(&pub->stored);
	list_remove(&pub->link);
	free(pub);
}

static void confirm_send(struct rabbit_channel *channel, enum rabbit_event_kind kind, uint64_t tag,
			 bool multiple)
{
	struct rabbit_event event = {
		.kind = kind, .channel = channel->number, .tag = tag, .multiple = multiple};

	event_send(channel->handle, &event);
}

/* All at the low end that were taken, by one ack. */
static void confirm_run(struct rabbit_channel *channel)
{
	struct rabbit_unconfirmed *pub;
	uint64_t last = 0;

	while ((pub = list_first(&channel->unconfirmed, struct rabbit_unconfirmed, link)) &&
	       pub->state == CONFIRM_ACK) {
		last = pub->number;
		rabbit_of(channel)->stats.confirmed++;
		unconfirmed_free(pub);
	}
	if (last)
		confirm_send(channel, RABBIT_EVENT_ACK, last, true);
}

static void confirm_due(struct loop_timer *timer)
{
	struct rabbit_channel *channel = container_of(timer, struct rabbit_channel, confirm);
	struct sim_rabbit *rabbit = rabbit_of(channel);

	if (sim_below(rabbit->sim, 2))
		confirm_run(channel);
	list_for_each (&channel->unconfirmed, at, next) {
		struct rabbit_unconfirmed *pub = list_entry(at, struct rabbit_unconfirmed, link);

		if (pub->state != CONFIRM_ACK && pub->state != CONFIRM_NACK)
			continue;
		rabbit->stats.confirmed += pub->state == CONFIRM_ACK;
		rabbit->stats.nacked += pub->state == CONFIRM_NACK;
		confirm_send(channel,
			     pub->state == CONFIRM_ACK ? RABBIT_EVENT_ACK : RABBIT_EVENT_NACK,
			     pub->number, false);
		unconfirmed_free(pub);
	}
}

static void messages_store(struct rabbit_unconfirmed *pub)
{
	for (uint32_t i = 0; i < pub->message_count; i++)
		pub->messages[i]->stored = true;
}

static void publication_stored(struct loop_timer *timer)
{
	struct rabbit_unconfirmed *pub = container_of(timer, struct rabbit_unconfirmed, stored);
	struct rabbit_channel *channel = pub->channel;

	messages_store(pub);
	if (pub->state == CONFIRM_STORING)
		pub->state = CONFIRM_ACK;
	if (!loop_timer_is_started(&channel->confirm))
		loop_timer_start(&channel->confirm,
				 sim_between(rabbit_of(channel)->sim, 0, 5 * US_PER_MS));
}

/* --- the life of a channel --- */

static struct rabbit_channel *channel_find(struct rabbit_handle *handle, uint16_t number)
{
	list_for_each (&handle->channels, at, next) {
		struct rabbit_channel *channel = list_entry(at, struct rabbit_channel, link);

		if (channel->number == number)
			return channel;
	}
	return NULL;
}

static void channel_new(struct rabbit_handle *handle, uint16_t number)
{
	struct rabbit_channel *channel = mem_zalloc(sizeof(*channel));

	channel->handle = handle;
	channel->number = number;
	channel->lease = ++handle->rabbit->leases;
	list_init(&channel->out);
	list_init(&channel->unconfirmed);
	loop_timer_init(&channel->confirm, sim_world(handle->rabbit->sim), confirm_due);
	list_push(&handle->channels, &channel->link);
	tell(channel, RABBIT_EVENT_OPENED);
}

static void channel_end(struct rabbit_channel *channel, bool restarts)
{
	struct rabbit_unconfirmed *pub;

	if (channel->queue)
		queue_unsubscribe(channel);
	while ((pub = list_first(&channel->unconfirmed, struct rabbit_unconfirmed, link))) {
		if (!restarts)
			messages_store(pub);
		unconfirmed_free(pub);
	}
	loop_timer_stop(&channel->confirm);
	channel_return_all(channel);
}

void channel_free(struct rabbit_channel *channel, bool restarts)
{
	list_remove(&channel->link);
	channel_end(channel, restarts);
	free(channel);
}

static void PRINTF_LIKE(3, 4)
	channel_fail(struct rabbit_channel *channel, uint16_t code, const char *fmt, ...)
{
	struct rabbit_event event = {
		.kind = RABBIT_EVENT_FAILED, .channel = channel->number, .code = code};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(event.text, sizeof(event.text), fmt, ap);
	va_end(ap);
	sim_note(rabbit_of(channel)->sim, "rabbit closes a channel of %s: %s",
		 process_name(channel->handle->process), event.text);
	rabbit_of(channel)->stats.channels_closed++;
	event_send(channel->handle, &event);
	channel->closing = true;
	channel_end(channel, false);
}

void sim_rabbit_close_channels(struct sim_rabbit *rabbit, const struct process *process)
{
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		if (handle->process != process || !handle->up)
			continue;
		list_for_each (&handle->channels, ch, next_ch) {
			struct rabbit_channel *channel = list_entry(ch, struct rabbit_channel,
								    link);

			if (!channel->closing && sim_below(rabbit->sim, 2))
				channel_fail(channel, CODE_TIMED_OUT,
					     "PRECONDITION_FAILED - delivery acknowledgement on "
					     "channel %u timed out",
					     channel->number);
		}
	}
}

/* --- consuming --- */

static void take_consume(struct rabbit_channel *channel, const struct frame *frame)
{
	struct sim_rabbit *rabbit = rabbit_of(channel);
	struct rabbit_queue *queue = queue_find(rabbit, frame->name);

	if (channel->queue)
		sim_fail(rabbit->sim, "a second subscription on channel %u of %s", channel->number,
			 process_name(channel->handle->process));
	if (!queue || queue->missing) {
		channel_fail(channel, CODE_NOT_FOUND, "NOT_FOUND - no queue '%s' in vhost '/'",
			     frame->name);
		return;
	}
	queue_subscribe(queue, channel);
	tell(channel, RABBIT_EVENT_CONSUMING);
	queue_pump(queue);
}

static void take_cancel(struct rabbit_channel *channel)
{
	if (channel->queue)
		queue_unsubscribe(channel);
	tell(channel, RABBIT_EVENT_STOPPED);
}

static struct rabbit_out *out_find(struct rabbit_channel *channel, uint64_t tag)
{
	list_for_each (&channel->out, at, next) {
		struct rabbit_out *out = list_entry(at, struct rabbit_out, link);

		if (out->tag == tag)
			return out;
	}
	sim_fail(rabbit_of(channel)->sim,
		 "G2: %s answers delivery %llu of channel %u, which is not out",
		 process_name(channel->handle->process), (unsigned long long)tag, channel->number);
	return NULL;
}

static void take_ack(struct rabbit_channel *channel, const struct frame *frame)
{
	struct rabbit_out *out = out_find(channel, frame->tag);
	struct rabbit_queue *queue;

	if (!out)
		return;
	queue = out->message->owner;
	if (frame->multiple)
		while ((out = list_first(&channel->out, struct rabbit_out, link)) &&
		       out->tag <= frame->tag)
			out_ack(channel, out);
	else
		out_ack(channel, out);
	queue_pump(queue);
}

static void take_nack(struct rabbit_channel *channel, const struct frame *frame)
{
	struct rabbit_out *out = frame->multiple ? list_first(&channel->out, struct rabbit_out, link)
						 : out_find(channel, frame->tag);
	struct rabbit_queue *queue;

	if (!out)
		return;
	queue = out->message->owner;
	if (channel->queue)
		sim_fail(rabbit_of(channel)->sim,
			 "G7: %s gives back %s/%llu while its consumer lives",
			 process_name(channel->handle->process), queue->name,
			 (unsigned long long)out->message->number);
	out_return(channel, out, true);
	while (frame->multiple && (out = list_first(&channel->out, struct rabbit_out, link)))
		out_return(channel, out, true);
	queue_pump(queue);
}

/* --- publishing --- */

/* The queues that take it; -1: there is no such exchange. */
static int route(struct sim_rabbit *rabbit, const struct frame *frame, struct rabbit_queue **out,
		 int room)
{
	struct rabbit_queue *queue;
	char key[32];
	int count = frame->name[0] ? -1 : 0;

	snprintf(key, sizeof(key), "%.*s", STR_ARG(frame->key));
	queue = frame->name[0] ? NULL : queue_find(rabbit, key);
	if (queue && !queue->missing)
		out[count++] = queue;
	for (struct rabbit_binding *binding = rabbit->bindings; binding; binding = binding->next) {
		if (strcmp(binding->exchange, frame->name) != 0)
			continue;
		count = count < 0 ? 0 : count;
		if (!binding->queue->missing && count < room &&
		    (binding->any_key || strcmp(binding->key, key) == 0))
			out[count++] = binding->queue;
	}
	return count;
}

static void return_send(struct rabbit_channel *channel, const struct frame *frame)
{
	struct rabbit_event event = {
		.kind = RABBIT_EVENT_RETURNED,
		.channel = channel->number,
		.code = CODE_NO_ROUTE,
		.text = "NO_ROUTE",
		.properties = frame->properties,
		.body = frame->body,
	};

	rabbit_of(channel)->stats.returned++;
	event_send(channel->handle, &event);
}

static enum confirm_state confirm_draw(struct sim_rabbit *rabbit)
{
	if (rabbit->calm)
		return CONFIRM_STORING;
	if (sim_chance(rabbit->sim, rabbit->settings.nack_per_million))
		return CONFIRM_NACK;
	if (!sim_chance(rabbit->sim, rabbit->settings.hang_per_million))
		return CONFIRM_STORING;
	rabbit->stats.hung++;
	return CONFIRM_NEVER;
}

static void take_publish(struct rabbit_channel *channel, const struct frame *frame)
{
	struct sim_rabbit *rabbit = rabbit_of(channel);
	struct rabbit_queue *queues[2];
	int count = route(rabbit, frame, queues, (int)ARRAY_LEN(queues));
	struct rabbit_unconfirmed *pub;

	if (count < 0) {
		channel_fail(channel, CODE_NOT_FOUND, "NOT_FOUND - no exchange '%s' in vhost '/'",
			     frame->name);
		return;
	}
	pub = mem_zalloc(sizeof(*pub));
	pub->channel = channel;
	pub->number = ++channel->published;
	pub->state = count ? confirm_draw(rabbit) : CONFIRM_STORING;
	list_push(&channel->unconfirmed, &pub->link);
	loop_timer_init(&pub->stored, sim_world(rabbit->sim), publication_stored);
	if (!count)
		return_send(channel, frame);
	/* What it did not take, or does not confirm, may be there all the same. */
	if (pub->state != CONFIRM_STORING && sim_below(rabbit->sim, 2))
		count = 0;
	for (int i = 0; i < count; i++) {
		struct rabbit_message *message = queue_add(queues[i], &frame->properties,
							   frame->body);

		pub->messages[pub->message_count++] = message;
		rabbit->settings.published(rabbit->settings.user, message);
		queue_pump(queues[i]);
	}
	loop_timer_start(&pub->stored,
			 sim_latency(rabbit->sim, 100, rabbit->settings.latency_max_us));
	if (rabbit->settings.confirm_early)
		pub->state = CONFIRM_NEVER;
}

/* --- frames --- */

static void take_close(struct rabbit_channel *channel)
{
	tell(channel, RABBIT_EVENT_CLOSED);
	if (channel->closing)
		return; /* the two have crossed */
	/* Before 4.0 the end of the channel is how messages are given back in order; from then on it may cost them a life. */
	if (channel->out_count && strstr(rabbit_of(channel)->settings.product, " 3."))
		channel_return_all(channel);
	if (channel->out_count)
		sim_fail(rabbit_of(channel)->sim, "G2: %s closes a channel with %u deliveries out",
			 process_name(channel->handle->process), channel->out_count);
	channel_free(channel, false);
}

static void take_close_ok(struct rabbit_channel *channel)
{
	if (!channel->closing)
		sim_fail(rabbit_of(channel)->sim, "an answer to a close that was not sent");
	channel_free(channel, false);
}

static void channel_take(struct rabbit_channel *channel, const struct frame *frame)
{
	switch (frame->kind) {
	case FRAME_QOS:
		channel->prefetch = (uint16_t)frame->tag;
		tell(channel, RABBIT_EVENT_QOS);
		break;
	case FRAME_CONSUME:
		take_consume(channel, frame);
		break;
	case FRAME_CANCEL:
		take_cancel(channel);
		break;
	case FRAME_ACK:
		take_ack(channel, frame);
		break;
	case FRAME_NACK:
		take_nack(channel, frame);
		break;
	case FRAME_CONFIRM:
		channel->confirms = true;
		tell(channel, RABBIT_EVENT_CONFIRMING);
		break;
	case FRAME_PUBLISH:
		if (!channel->confirms)
			sim_fail(rabbit_of(channel)->sim,
				 "a publication that will not be confirmed");
		take_publish(channel, frame);
		break;
	default:
		break;
	}
}

void frame_take(const struct frame *frame)
{
	struct rabbit_handle *handle = frame->handle;
	struct rabbit_channel *channel = channel_find(handle, frame->channel);

	if (!handle->up)
		return;
	if (frame->kind == FRAME_END) {
		handle_end(handle);
	} else if (frame->kind == FRAME_OPEN) {
		if (channel)
			sim_fail(handle->rabbit->sim, "%s opens channel %u twice",
				 process_name(handle->process), frame->channel);
		else
			channel_new(handle, frame->channel);
	} else if (!channel) {
		sim_fail(handle->rabbit->sim, "%s uses channel %u, which is not open",
			 process_name(handle->process), frame->channel);
	} else if (frame->kind == FRAME_CLOSE_OK) {
		take_close_ok(channel);
	} else if (frame->kind == FRAME_CLOSE) {
		take_close(channel);
	} else if (!channel->closing) {
		channel_take(channel, frame);
	}
}
