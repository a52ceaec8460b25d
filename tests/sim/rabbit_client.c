/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handles of the simulated RabbitMQ: what a client library keeps in the process.
 *
 * Every call is a frame to the broker; what comes back queues up as events in the order of arrival. A loss is noticed
 * behind what had arrived before it. Calls are checked against the rules of the seam: on the handle's own loop, and nothing
 * is published while there is something to read.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "tests/sim/wire.h"

/* --- waking the client --- */

static void handle_ready(struct task *task)
{
	struct rabbit_handle *handle = container_of(task, struct rabbit_handle, ready_task);

	handle->ready_posted = false;
	if (!handle->closed)
		handle->ready(handle->user);
}

static void handle_wake(struct rabbit_handle *handle)
{
	if (!handle->idle || handle->ready_posted)
		return;
	handle->idle = false;
	handle->ready_posted = true;
	handle->ready_task.run = handle_ready;
	loop_post(handle->loop, &handle->ready_task);
}

void handle_arrived(struct rabbit_handle *handle, struct frame *frame)
{
	if (handle->closed || process_is_dead(handle->process)) {
		frame_free(frame);
		return;
	}
	list_remove(&frame->link);
	list_push(&handle->events, &frame->link);
	handle_wake(handle);
}

/* The client finds out that the connection is gone. */
void handle_lost(struct loop_timer *notice)
{
	struct rabbit_handle *handle = container_of(notice, struct rabbit_handle, notice);
	struct frame *frame = mem_zalloc(sizeof(*frame));

	frame->handle = handle;
	frame->kind = FRAME_EVENT;
	frame->event.kind = RABBIT_EVENT_LOST;
	snprintf(frame->event.text, sizeof(frame->event.text), "the simulated connection is lost");
	loop_timer_init(&frame->timer, sim_world(handle->rabbit->sim), NULL);
	list_push(&handle->rabbit->frames, &frame->link);
	handle_arrived(handle, frame);
}

/* --- the seam --- */

static void check_loop(const struct rabbit_handle *handle)
{
	if (!sim_is_on(handle->loop))
		sim_fail(handle->rabbit->sim, "an AMQP handle is used off its loop");
}

static enum result client_open(void *broker, struct loop *loop,
			       const struct rabbit_settings *settings, void (*ready)(void *user),
			       void *user, struct rabbit_handle **out, struct error *err)
{
	struct sim_rabbit_client *client = broker;
	struct sim_rabbit *rabbit = client->rabbit;
	struct rabbit_handle *handle;

	if (!rabbit->up || (!rabbit->calm && sim_chance(rabbit->sim, 30000)))
		return error_set(err, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE,
				 "the simulated broker is away");
	handle = mem_zalloc(sizeof(*handle));
	handle->rabbit = rabbit;
	handle->process = client->process;
	handle->loop = loop;
	handle->ready = ready;
	handle->user = user;
	handle->idle = true;
	handle->up = true;
	handle->heartbeat_us = settings->heartbeat_s * US_PER_S;
	handle->seen_us = sim_now_us(rabbit->sim);
	list_init(&handle->events);
	list_init(&handle->channels);
	list_init(&handle->stalled);
	loop_timer_init(&handle->notice, sim_world(rabbit->sim), handle_lost);
	handle_init_broker_end(handle);
	list_push(&rabbit->handles, &handle->link);
	sim_note(rabbit->sim, "rabbit: %s connects as '%s'", process_name(client->process),
		 settings->name);
	*out = handle;
	return RESULT_OK;
}

static void client_poll(struct rabbit_handle *handle, struct rabbit_event *event)
{
	struct sim_rabbit *rabbit = handle->rabbit;
	struct frame *frame = list_first(&handle->events, struct frame, link);

	check_loop(handle);
	memset(event, 0, sizeof(*event));
	if (handle->shown)
		frame_free(handle->shown);
	handle->shown = frame;
	if (!frame) {
		handle->idle = true;
		return;
	}
	*event = frame->event;
	list_remove(&frame->link);
	if (event->kind == RABBIT_EVENT_FAILED)
		frame_send(handle, FRAME_CLOSE_OK, event->channel);
	if (event->kind != RABBIT_EVENT_DELIVERED)
		return;
	sim_note(rabbit->sim, "%s receives %s/%llu as %llu of %llu", process_name(handle->process),
		 frame->message->queue, (unsigned long long)frame->message->number,
		 (unsigned long long)event->tag, (unsigned long long)frame->lease);
	rabbit->settings.delivered(rabbit->settings.user, frame->message, handle->process,
				   frame->lease, event->tag);
}

static void client_channel_open(struct rabbit_handle *handle, uint16_t channel)
{
	check_loop(handle);
	handle->sent[channel % ARRAY_LEN(handle->sent)] = 0;
	frame_send(handle, FRAME_OPEN, channel);
}

static void client_channel_close(struct rabbit_handle *handle, uint16_t channel)
{
	check_loop(handle);
	frame_send(handle, FRAME_CLOSE, channel);
}

static void client_qos(struct rabbit_handle *handle, uint16_t channel, uint16_t count)
{
	struct frame *frame = frame_send(handle, FRAME_QOS, channel);

	check_loop(handle);
	if (frame)
		frame->tag = count;
}

static void client_consume(struct rabbit_handle *handle, uint16_t channel, const char *queue)
{
	struct frame *frame = frame_send(handle, FRAME_CONSUME, channel);

	check_loop(handle);
	if (frame)
		snprintf(frame->name, sizeof(frame->name), "%s", queue);
}

static void client_cancel(struct rabbit_handle *handle, uint16_t channel)
{
	check_loop(handle);
	frame_send(handle, FRAME_CANCEL, channel);
}

static void client_ack(struct rabbit_handle *handle, uint16_t channel, uint64_t tag, bool multiple)
{
	struct frame *frame = frame_send(handle, FRAME_ACK, channel);

	check_loop(handle);
	if (!frame)
		return;
	frame->tag = tag;
	frame->multiple = multiple || handle->rabbit->settings.ack_past_hole;
}

static void client_nack(struct rabbit_handle *handle, uint16_t channel, uint64_t tag)
{
	struct frame *frame = frame_send(handle, FRAME_NACK, channel);

	check_loop(handle);
	if (frame)
		frame->tag = tag;
}

static void client_nack_all(struct rabbit_handle *handle, uint16_t channel)
{
	struct frame *frame = frame_send(handle, FRAME_NACK, channel);

	check_loop(handle);
	if (frame)
		frame->multiple = true;
}

static void client_confirm(struct rabbit_handle *handle, uint16_t channel)
{
	check_loop(handle);
	frame_send(handle, FRAME_CONFIRM, channel);
}

/* The planted bug: confirmed before it is there, which it then may never be. */
static void confirm_early(struct rabbit_handle *handle, struct frame *publish, uint16_t channel)
{
	struct frame *frame;

	if (!publish)
		return;
	frame = event_send(handle, &(struct rabbit_event){
					   .kind = RABBIT_EVENT_ACK,
					   .channel = channel,
					   .tag = ++handle->sent[channel % ARRAY_LEN(handle->sent)],
				   });
	if (frame && sim_chance(handle->rabbit->sim, 300000))
		frame_free(publish);
}

static void client_publish(struct rabbit_handle *handle, uint16_t channel, struct str exchange,
			   struct str routing_key, const struct rabbit_properties *properties,
			   struct str body)
{
	struct sim_rabbit *rabbit = handle->rabbit;
	struct frame *frame = frame_send(handle, FRAME_PUBLISH, channel);

	check_loop(handle);
	if (!handle->idle)
		sim_fail(rabbit->sim, "published while there is something to read");
	if (!frame)
		return;
	rabbit->stats.published++;
	snprintf(frame->name, sizeof(frame->name), "%.*s", STR_ARG(exchange));
	frame->key = arena_str(&rabbit->arena, routing_key);
	rabbit_properties_copy(&rabbit->arena, &frame->properties, properties);
	frame->body = arena_str(&rabbit->arena, body);
	if (rabbit->settings.confirm_early)
		confirm_early(handle, frame, channel);
}

static void client_close(struct rabbit_handle **handle, bool is_orderly)
{
	struct rabbit_handle *h = *handle;
	struct frame *frame;

	*handle = NULL;
	check_loop(h);
	h->closed = true;
	loop_timer_stop(&h->notice);
	while ((frame = list_first(&h->events, struct frame, link)))
		frame_free(frame);
	if (!is_orderly)
		handle_drop_frames(h, true);
	frame_send(h, FRAME_END, 0);
}

static const char *client_product(struct rabbit_handle *handle)
{
	return handle->rabbit->settings.product;
}

const struct rabbit_client sim_rabbit_seam = {
	.open = client_open,
	.poll = client_poll,
	.channel_open = client_channel_open,
	.channel_close = client_channel_close,
	.qos = client_qos,
	.consume = client_consume,
	.cancel = client_cancel,
	.ack = client_ack,
	.nack = client_nack,
	.nack_all = client_nack_all,
	.confirm = client_confirm,
	.publish = client_publish,
	.close = client_close,
	.product = client_product,
};

void rabbit_handle_free(struct rabbit_handle *handle)
{
	struct frame *frame;

	loop_timer_stop(&handle->notice);
	while ((frame = list_first(&handle->events, struct frame, link)))
		frame_free(frame);
	if (handle->shown)
		frame_free(handle->shown);
	list_remove(&handle->link);
	free(handle);
}
