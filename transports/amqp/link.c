/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link: one handle of the client at a time.
 *
 *	no channels ─attach─► connecting ─up─► connected ─lost─► waiting ─backoff─► connecting
 *	     ▲                                     │
 *	     └──────── the last detach ◄───────────┘ (from anywhere)
 */
#include "transports/amqp/link.h"

#include <stdio.h>

#include "base/log.h"
#include "base/time.h"
#include "transports/amqp/amqp.h"

#define RECONNECT_MIN_MS 250
#define RECONNECT_MAX_MS 5000
/* Events in a row, before the loop's other work has its turn. */
#define POLL_BURST 256

static const struct log_about about_link = {.stage = "delivery"};

static void link_ready(void *user);

/* --- up and down --- */

static void all_down(struct amqp_link *link, const char *text)
{
	list_for_each(&link->channels, pos, tmp) {
		struct amqp_channel *channel = list_entry(pos, struct amqp_channel, link);

		channel->ops->down(channel, text);
	}
}

static void reconnect_later(struct amqp_link *link)
{
	if (!list_is_empty(&link->channels))
		loop_timer_start(&link->reconnect, amqp_backoff_us(link->loop, &link->delay_ms, RECONNECT_MAX_MS));
}

static void link_connect(struct amqp_link *link)
{
	const struct transport_connection *connection = link->connection;
	const struct rabbit_settings settings = {
		.name = link->name,
		.url = connection->url,
		.password = connection->password,
		.ca_file = connection->ca_file,
		.cert_file = connection->cert_file,
		.key_file = connection->key_file,
		.heartbeat_s = connection->heartbeat_s,
	};
	struct error err = ERROR_INIT;

	if (link->client->open(connection->rabbit_broker, link->loop, &settings, link_ready, link, &link->handle,
			       &err) != RESULT_OK) {
		if (!link->told)
			log_warning(&about_link, "connection '%s': %s; trying again", connection->name, err.text);
		link->told = true;
		all_down(link, err.text);
		reconnect_later(link);
		return;
	}
	log_info(&about_link, "connection '%s': connected to %s as '%s'", connection->name,
		 link->client->product(link->handle), link->name);
	link->told = false;
	link->delay_ms = RECONNECT_MIN_MS;
	list_for_each(&link->channels, pos, tmp) {
		struct amqp_channel *channel = list_entry(pos, struct amqp_channel, link);

		channel->ops->up(channel);
	}
}

static void connect_posted(struct task *task)
{
	struct amqp_link *link = container_of(task, struct amqp_link, connect);

	link->connect_posted = false;
	if (!link->handle && !list_is_empty(&link->channels) && !loop_timer_is_started(&link->reconnect))
		link_connect(link);
}

static void reconnect_due(struct loop_timer *timer)
{
	struct amqp_link *link = container_of(timer, struct amqp_link, reconnect);

	if (!link->handle && !list_is_empty(&link->channels))
		link_connect(link);
}

static void lost(struct amqp_link *link, const char *why)
{
	char text[256];

	snprintf(text, sizeof(text), "%s", why); /* the event's ends with the handle */
	log_warning(&about_link, "connection '%s' as '%s': %s; connecting again", link->connection->name, link->name,
		    text);
	link->told = true;
	link->client->close(&link->handle, false);
	all_down(link, text);
	reconnect_later(link);
}

void link_break(struct amqp_link *link, const char *why)
{
	assert(!link->in_dispatch);
	if (link->handle)
		lost(link, why);
}

/* --- events --- */

static void dispatch(struct amqp_link *link, const struct rabbit_event *event)
{
	if (event->kind == RABBIT_EVENT_LOST) {
		lost(link, event->text);
		return;
	}
	list_for_each(&link->channels, pos, tmp) {
		struct amqp_channel *channel = list_entry(pos, struct amqp_channel, link);

		if (event->channel == 0 || channel->number == event->channel)
			channel->ops->event(channel, event);
	}
}

static void pump(struct amqp_link *link, uint32_t burst)
{
	struct rabbit_event event = {.kind = RABBIT_EVENT_NONE};

	assert(!link->in_dispatch);
	link->in_dispatch = true;
	for (uint32_t i = 0; i < burst && link->handle; i++) {
		link->client->poll(link->handle, &event);
		if (event.kind == RABBIT_EVENT_NONE)
			break;
		dispatch(link, &event);
	}
	link->in_dispatch = false;
	if (link->handle && event.kind != RABBIT_EVENT_NONE && !link->pump_posted) {
		link->pump_posted = true;
		loop_post(link->loop, &link->pump);
	}
}

static void pump_posted(struct task *task)
{
	struct amqp_link *link = container_of(task, struct amqp_link, pump);

	link->pump_posted = false;
	pump(link, POLL_BURST);
}

static void link_ready(void *user)
{
	pump(user, POLL_BURST);
}

void link_drain(struct amqp_link *link)
{
	pump(link, UINT32_MAX);
}

/* --- channels --- */

/* The lowest number that is free: the library and the broker keep memory for every number that was ever used. */
static void channel_insert(struct amqp_link *link, struct amqp_channel *channel)
{
	struct list *at = link->channels.next;

	channel->number = 1;
	while (at != &link->channels && list_entry(at, struct amqp_channel, link)->number == channel->number) {
		channel->number++;
		at = at->next;
	}
	list_insert_before(at, &channel->link);
}

void link_attach(struct amqp_link *link, struct amqp_channel *channel)
{
	channel_insert(link, channel);
	if (link->handle) {
		channel->ops->up(channel);
	} else if (!link->connect_posted) {
		link->connect_posted = true;
		loop_post(link->loop, &link->connect);
	}
}

void link_detach(struct amqp_link *link, struct amqp_channel *channel)
{
	list_remove(&channel->link);
	channel->number = 0;
	if (!list_is_empty(&link->channels))
		return;
	loop_timer_stop(&link->reconnect);
	if (link->handle)
		link->client->close(&link->handle, true);
}

void link_init(struct amqp_link *link, const struct transport_connection *connection, struct loop *loop,
	       const char *purpose)
{
	*link = (struct amqp_link){.connection = connection, .loop = loop, .delay_ms = RECONNECT_MIN_MS};
	link->client = connection->rabbit ? connection->rabbit : &rabbit_client_rabbitmq;
	snprintf(link->name, sizeof(link->name), "sutra %s %s", connection->name, purpose);
	link->pump.run = pump_posted;
	link->connect.run = connect_posted;
	list_init(&link->channels);
	loop_timer_init(&link->reconnect, loop, reconnect_due);
}

void link_done(struct amqp_link *link)
{
	assert(!link->handle && list_is_empty(&link->channels));
}
