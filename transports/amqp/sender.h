/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames on their way out: written into one buffer and sent together when the loop's turn ends, with one call of the system for
 * all of them. The library makes three calls for a publication and one for an ack, each a packet that the broker reads by
 * itself. Over TLS the library sends, for the socket is its own.
 *
 * Life cycle: sender_init when the connection stands, sender_done. Threads: the connection's loop.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_SENDER_H
#define SUTRA_TRANSPORTS_AMQP_SENDER_H

#include "base/buf.h"
#include "transports/amqp/rabbitmq.h"

struct sender {
	amqp_connection_state_t conn;
	bool is_tls;
	struct buf out; /* whole frames */
};

void sender_init(struct sender *sender, amqp_connection_state_t conn, bool is_tls);
void sender_done(struct sender *sender);
/* Whether there is something to flush. */
bool sender_has_frames(const struct sender *sender);
/* Each returns a status of the library: AMQP_STATUS_OK, or what failed. All of them may send, and so wait. */
int sender_method(struct sender *sender, uint16_t channel, amqp_method_number_t id, void *method);
/* Mandatory, and not immediate. */
int sender_publish(struct sender *sender, uint16_t channel, struct str exchange, struct str routing_key,
		   amqp_basic_properties_t *properties, struct str body);
/* Waits as long as the peer does not read. */
int sender_flush(struct sender *sender);

#endif
