/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reaching a broker with rabbitmq-c: what the client of the loops and the examination have in common.
 *
 * Life cycle: rabbit_connect, then amqp_destroy_connection. Threads: any; blocks for a few seconds at most.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_CONNECT_H
#define SUTRA_TRANSPORTS_AMQP_CONNECT_H

#include "base/error.h"
#include "transports/amqp/client.h"
#include "transports/amqp/rabbitmq.h"

/* Connects and logs in. RESULT_REJECT: the settings can never work; RESULT_AGAIN: not now. */
enum result rabbit_connect(const struct rabbit_settings *settings, amqp_connection_state_t *out,
			   struct error *err) MUST_CHECK;
/* A text that the broker says of itself, "product" or "version"; "?" if it does not. Borrowed from the connection. */
struct str rabbit_server_property(amqp_connection_state_t conn, const char *name);

#endif
