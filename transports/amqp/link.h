/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to the broker that comes back: connects when the first channel is attached, reconnects with backoff when it is
 * lost, closes when the last channel is detached; gives events to the channels that they belong to.
 *
 * Life cycle: link_init and link_done on the main thread; everything else on the loop of the link. A channel is embedded in its
 * owner, and attached from start to the end of stop.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_LINK_H
#define SUTRA_TRANSPORTS_AMQP_LINK_H

#include "base/list.h"
#include "transports/amqp/client.h"

struct transport_connection;
struct amqp_channel;

struct amqp_channel_ops {
	/* There is a connection: open the channel. */
	void (*up)(struct amqp_channel *channel);
	/* The connection is lost, or was not reached; `text` says why. Never from inside a call of link.h, but link_drain. */
	void (*down)(struct amqp_channel *channel, const char *text);
	/* Of this channel, or of the whole connection (BLOCKED, UNBLOCKED). May detach. */
	void (*event)(struct amqp_channel *channel, const struct rabbit_event *event);
};

struct amqp_channel {
	const struct amqp_channel_ops *ops;
	struct list link;
	uint16_t number; /* 1 … while attached */
};

struct amqp_link {
	const struct transport_connection *connection;
	const struct rabbit_client *client;
	struct loop *loop;
	char name[128]; /* shown by the broker */
	struct rabbit_handle *handle; /* NULL: not connected */
	struct list channels;	      /* by number, ascending */
	int64_t delay_ms;
	struct loop_timer reconnect;
	struct task pump, connect;
	bool pump_posted, connect_posted;
	bool told; /* the log has said that the broker is not reached */
	bool in_dispatch;
};

void link_init(struct amqp_link *link, const struct transport_connection *connection, struct loop *loop,
	       const char *purpose);
void link_done(struct amqp_link *link);

/* Calls channel.up at once if there is a connection. */
void link_attach(struct amqp_link *link, struct amqp_channel *channel);
void link_detach(struct amqp_link *link, struct amqp_channel *channel);
/* Gives the connection up, as if it were lost, and makes another. Not from inside an event. */
void link_break(struct amqp_link *link, const char *why);
/* Takes everything that has come and gives it to the channels. Not from inside an event. */
void link_drain(struct amqp_link *link);

#endif
