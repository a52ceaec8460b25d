/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AMQP 0-9-1 transport: its entry in the registry, and what its files know of each other. Everything here is above the
 * client seam (client.h).
 *
 * Threads: as transport.h says.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_AMQP_H
#define SUTRA_TRANSPORTS_AMQP_AMQP_H

#include "transports/amqp/client.h"
#include "transports/amqp/link.h"
#include "transports/transport.h"

extern const struct transport transport_amqp;

/* transport_connection.state */
struct amqp_connection {
	struct amqp_link consuming;  /* on the consuming loop, a channel for each consumer */
	struct amqp_link publishing; /* on the publishing loop, one channel */
};

/* The next wait, with jitter of the loop: *delay_ms is doubled up to `max_ms`. In microseconds. */
int64_t amqp_backoff_us(struct loop *loop, int64_t *delay_ms, int64_t max_ms);

struct consumer *amqp_consumer_new(struct transport_connection *connection, const struct consumer_settings *settings,
				   struct consumer_sink *sink);
struct publisher *amqp_publisher_new(struct transport_connection *connection);

/* message.c: a message with copies of everything in the delivery. Never NULL; lease and link are not set. */
struct message *amqp_message_of(const struct rabbit_event *event, const char *queue);
/* The properties of a publication; strings are the publication's or the arena's. False, and why in `text`: AMQP cannot carry
 * them. */
bool amqp_properties_of(struct arena *arena, const struct publication *pub, struct rabbit_properties *out, char *text,
			size_t text_size);
/* "exchange/routing-key" at the first slash; none, or nothing before it: the default exchange. */
void amqp_destination_split(struct str destination, struct str *exchange, struct str *routing_key);

#endif
