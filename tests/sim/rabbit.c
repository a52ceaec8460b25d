/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker: connections with their frames, and what becomes of the connections. What a frame does is in rabbit_channel.c.
 *
 * A cut loses everything under way in both directions. Then each side goes on for a while as if nothing had happened: the
 * broker keeps what is out on the connection, and delivers more; the client sends what nobody hears.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "tests/sim/wire.h"

#define BEAT_US (500 * US_PER_MS)

/* --- frames --- */

void rabbit_properties_copy(struct arena *arena, struct rabbit_properties *to,
			    const struct rabbit_properties *from)
{
	*to = (struct rabbit_properties){
		.content_type = arena_str(arena, from->content_type),
		.correlation_id = arena_str(arena, from->correlation_id),
		.reply_to = arena_str(arena, from->reply_to),
		.message_id = arena_str(arena, from->message_id),
		.type = arena_str(arena, from->type),
		.timestamp_s = from->timestamp_s,
		.headers = headers_copy(arena, &from->headers),
	};
}

void frame_free(struct frame *frame)
{
	loop_timer_stop(&frame->timer);
	list_remove(&frame->link);
	free(frame);
}

static void frame_arrived(struct loop_timer *timer)
{
	struct frame *frame = container_of(timer, struct frame, timer);
	struct rabbit_handle *handle = frame->handle;

	if (frame->kind == FRAME_EVENT) {
		handle_arrived(handle, frame);
		return;
	}
	if (frame->kind == FRAME_PUBLISH)
		handle_publishes(handle);
	if ((handle->rabbit->alarm && handle->publishes) || !list_is_empty(&handle->stalled)) {
		list_remove(&frame->link);
		list_push(&handle->stalled, &frame->link);
		return;
	}
	frame_take(frame);
	frame_free(frame);
}

/* In the order of sending in its direction. */
static struct frame *frame_start(struct rabbit_handle *handle, enum frame_kind kind)
{
	struct sim_rabbit *rabbit = handle->rabbit;
	int64_t *last_us = &handle->due_us[kind == FRAME_EVENT];
	int64_t now_us = sim_now_us(rabbit->sim);
	int64_t due_us = now_us + sim_latency(rabbit->sim, 100, rabbit->settings.latency_max_us);
	struct frame *frame = mem_zalloc(sizeof(*frame));

	if (due_us <= *last_us)
		due_us = *last_us + 1;
	*last_us = due_us;
	frame->handle = handle;
	frame->kind = kind;
	list_push(&rabbit->frames, &frame->link);
	loop_timer_init(&frame->timer, sim_world(rabbit->sim), frame_arrived);
	loop_timer_start(&frame->timer, due_us - now_us);
	return frame;
}

struct frame *frame_send(struct rabbit_handle *handle, enum frame_kind kind, uint16_t channel)
{
	struct sim_rabbit *rabbit = handle->rabbit;
	struct frame *frame;

	if (handle->cut)
		return NULL;
	if (!rabbit->calm && rabbit->stats.cuts < rabbit->settings.cuts_max &&
	    sim_chance(rabbit->sim, rabbit->settings.cut_per_million)) {
		handle_cut(handle);
		return NULL;
	}
	frame = frame_start(handle, kind);
	frame->channel = channel;
	return frame;
}

struct frame *event_send(struct rabbit_handle *handle, const struct rabbit_event *event)
{
	struct frame *frame;

	if (handle->cut || handle->closed)
		return NULL;
	frame = frame_start(handle, FRAME_EVENT);
	frame->event = *event;
	return frame;
}

void handle_drop_frames(struct rabbit_handle *handle, bool keeps_some)
{
	struct sim *sim = handle->rabbit->sim;
	bool drops = !keeps_some;

	list_for_each (&handle->rabbit->frames, at, next) {
		struct frame *frame = list_entry(at, struct frame, link);

		if (frame->handle != handle)
			continue;
		drops = drops || (frame->kind != FRAME_EVENT && sim_below(sim, 4) == 0);
		if (drops || frame->kind == FRAME_EVENT)
			frame_free(frame);
	}
}

/* --- the ends of connections --- */

/* The broker has it no longer. `restarts`: nor what is not stored. */
static void broker_end(struct rabbit_handle *handle, bool restarts)
{
	struct frame *frame;

	loop_timer_stop(&handle->broker_notice);
	if (!handle->up)
		return;
	handle->up = false;
	while (!list_is_empty(&handle->channels))
		channel_free(list_first(&handle->channels, struct rabbit_channel, link), restarts);
	while ((frame = list_first(&handle->stalled, struct frame, link)))
		frame_free(frame);
	sim_note(handle->rabbit->sim, "rabbit: the connection of %s ends",
		 process_name(handle->process));
}

static void broker_notices(struct loop_timer *timer)
{
	broker_end(container_of(timer, struct rabbit_handle, broker_notice), false);
}

void handle_init_broker_end(struct rabbit_handle *handle)
{
	loop_timer_init(&handle->broker_notice, sim_world(handle->rabbit->sim), broker_notices);
}

void handle_end(struct rabbit_handle *handle)
{
	broker_end(handle, false);
}

/* The client will notice that it is gone. */
static void client_notices_soon(struct rabbit_handle *handle)
{
	handle->cut = true;
	handle_drop_frames(handle, false);
	if (!handle->closed && !loop_timer_is_started(&handle->notice))
		loop_timer_start(&handle->notice,
				 sim_latency(handle->rabbit->sim, 1 * US_PER_MS, 6 * US_PER_S));
}

void handle_cut(struct rabbit_handle *handle)
{
	struct sim_rabbit *rabbit = handle->rabbit;

	if (handle->cut || !handle->up)
		return;
	sim_note(rabbit->sim, "rabbit: a connection of %s is cut", process_name(handle->process));
	rabbit->stats.cuts++;
	client_notices_soon(handle);
	loop_timer_start(&handle->broker_notice,
			 sim_latency(rabbit->sim, 1 * US_PER_MS, 6 * US_PER_S));
}

void sim_rabbit_cut(struct sim_rabbit *rabbit, const struct process *process, bool all)
{
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		if (handle->process == process && !handle->closed &&
		    (all || sim_below(rabbit->sim, 2)))
			handle_cut(handle);
	}
}

/* What its kernel has is still sent, or some of it; then it closes the connection. */
void sim_rabbit_forget(struct sim_rabbit *rabbit, const struct process *process)
{
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		if (handle->process != process || handle->closed)
			continue;
		handle->closed = true;
		loop_timer_stop(&handle->notice);
		handle_drop_frames(handle, true);
		if (!handle->cut)
			frame_start(handle, FRAME_END);
	}
}

/* Heartbeats: who was not heard of for two of them is gone. */
static void rabbit_beat(struct loop_timer *timer)
{
	struct sim_rabbit *rabbit = container_of(timer, struct sim_rabbit, beat);
	int64_t now_us = sim_now_us(rabbit->sim);

	loop_timer_start(&rabbit->beat, BEAT_US);
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		if (!handle->up || handle->cut || handle->closed)
			continue;
		if (!process_is_paused(handle->process) || rabbit->alarm) {
			handle->seen_us = now_us;
		} else if (now_us - handle->seen_us > 2 * handle->heartbeat_us) {
			sim_note(rabbit->sim, "rabbit misses the heartbeats of %s",
				 process_name(handle->process));
			client_notices_soon(handle);
			broker_end(handle, false);
		}
	}
}

/* --- the whole broker --- */

static void blocked_tell(struct rabbit_handle *handle, bool blocked)
{
	struct rabbit_event event = {.kind = blocked ? RABBIT_EVENT_BLOCKED
						     : RABBIT_EVENT_UNBLOCKED,
				     .text = "low on simulated memory"};

	if (handle->blocked_told == blocked)
		return;
	handle->blocked_told = blocked;
	event_send(handle, &event);
}

void handle_publishes(struct rabbit_handle *handle)
{
	handle->publishes = true;
	if (handle->rabbit->alarm)
		blocked_tell(handle, true);
}

static void alarm_over(struct loop_timer *timer)
{
	struct sim_rabbit *rabbit = container_of(timer, struct sim_rabbit, alarm_over);

	sim_note(rabbit->sim, "rabbit: the alarm is over");
	rabbit->alarm = false;
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);
		struct frame *frame;

		while ((frame = list_first(&handle->stalled, struct frame, link))) {
			list_remove(&frame->link);
			frame_take(frame);
			frame_free(frame);
		}
		blocked_tell(handle, false);
	}
}

void sim_rabbit_alarm(struct sim_rabbit *rabbit, int64_t alarm_us)
{
	if (!rabbit->up || rabbit->alarm)
		return;
	sim_note(rabbit->sim, "rabbit: an alarm");
	rabbit->alarm = true;
	rabbit->stats.alarms++;
	loop_timer_start(&rabbit->alarm_over, alarm_us);
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		if (handle->publishes && handle->up)
			blocked_tell(handle, true);
	}
}

static void rabbit_started(struct loop_timer *timer)
{
	struct sim_rabbit *rabbit = container_of(timer, struct sim_rabbit, start);

	rabbit->up = true;
	sim_note(rabbit->sim, "rabbit is up");
}

void sim_rabbit_down(struct sim_rabbit *rabbit, int64_t down_us)
{
	sim_note(rabbit->sim, "rabbit goes down");
	rabbit->up = false;
	rabbit->alarm = false;
	rabbit->stats.restarts++;
	loop_timer_stop(&rabbit->alarm_over);
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		/* Nothing is delivered to the others meanwhile. */
		handle->cut = true;
	}
	list_for_each (&rabbit->handles, at, next) {
		struct rabbit_handle *handle = list_entry(at, struct rabbit_handle, link);

		if (handle->up)
			client_notices_soon(handle);
		broker_end(handle, true);
	}
	for (struct rabbit_queue *queue = rabbit->queues; queue; queue = queue->next)
		queue_lose_unstored(queue);
	loop_timer_start(&rabbit->start, down_us);
}

bool sim_rabbit_is_up(const struct sim_rabbit *rabbit)
{
	return rabbit->up;
}

void sim_rabbit_calm(struct sim_rabbit *rabbit)
{
	rabbit->calm = true;
}

void sim_rabbit_bind(struct sim_rabbit *rabbit, const char *exchange, const char *key,
		     const char *queue)
{
	struct rabbit_binding *binding = mem_zalloc(sizeof(*binding));

	binding->queue = queue_find(rabbit, queue);
	assert(binding->queue);
	snprintf(binding->exchange, sizeof(binding->exchange), "%s", exchange);
	snprintf(binding->key, sizeof(binding->key), "%s", key ? key : "");
	binding->any_key = !key;
	binding->next = rabbit->bindings;
	rabbit->bindings = binding;
}

bool sim_rabbit_put(struct sim_rabbit *rabbit, const char *name,
		    const struct rabbit_properties *properties, struct str body)
{
	struct rabbit_queue *queue = queue_find(rabbit, name);
	struct rabbit_properties copy;

	if (!rabbit->up || !queue || queue->missing)
		return false;
	rabbit_properties_copy(&rabbit->arena, &copy, properties);
	queue_add(queue, &copy, arena_str(&rabbit->arena, body))->stored = true;
	queue_pump(queue);
	return true;
}

const struct sim_rabbit_stats *sim_rabbit_stats(const struct sim_rabbit *rabbit)
{
	return &rabbit->stats;
}

struct sim_rabbit_client *sim_rabbit_client_new(struct sim_rabbit *rabbit, struct process *process)
{
	struct sim_rabbit_client *client = mem_zalloc(sizeof(*client));

	*client = (struct sim_rabbit_client){rabbit->clients, rabbit, process};
	rabbit->clients = client;
	return client;
}

struct sim_rabbit *sim_rabbit_new(struct sim *sim, const struct sim_rabbit_settings *settings)
{
	struct sim_rabbit *rabbit = mem_zalloc(sizeof(*rabbit));

	rabbit->sim = sim;
	rabbit->settings = *settings;
	rabbit->up = true;
	arena_init(&rabbit->arena);
	list_init(&rabbit->handles);
	list_init(&rabbit->frames);
	loop_timer_init(&rabbit->start, sim_world(sim), rabbit_started);
	loop_timer_init(&rabbit->alarm_over, sim_world(sim), alarm_over);
	loop_timer_init(&rabbit->beat, sim_world(sim), rabbit_beat);
	loop_timer_start(&rabbit->beat, BEAT_US);
	return rabbit;
}

void sim_rabbit_free(struct sim_rabbit **rabbit)
{
	struct sim_rabbit *r = *rabbit;
	struct rabbit_queue *queue;
	struct rabbit_binding *binding;
	struct sim_rabbit_client *client;

	if (!r)
		return;
	loop_timer_stop(&r->start);
	loop_timer_stop(&r->alarm_over);
	loop_timer_stop(&r->beat);
	list_for_each (&r->handles, at, next)
		broker_end(list_entry(at, struct rabbit_handle, link), true);
	while (!list_is_empty(&r->frames))
		frame_free(list_first(&r->frames, struct frame, link));
	while (!list_is_empty(&r->handles))
		rabbit_handle_free(list_first(&r->handles, struct rabbit_handle, link));
	while ((queue = r->queues)) {
		r->queues = queue->next;
		queue_free(queue);
	}
	while ((binding = r->bindings)) {
		r->bindings = binding->next;
		free(binding);
	}
	while ((client = r->clients)) {
		r->clients = client->next;
		free(client);
	}
	arena_done(&r->arena);
	free(r);
	*rabbit = NULL;
}
