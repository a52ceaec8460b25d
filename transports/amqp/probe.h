/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `sutra doctor` makes of a broker for AMQP: the rules, apart from the asking, so that every version can be tested.
 *
 * Life cycle: none. Threads: pure functions, but amqp_probe.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_PROBE_H
#define SUTRA_TRANSPORTS_AMQP_PROBE_H

#include "transports/amqp/management.h"
#include "transports/transport.h"

struct amqp_broker {
	bool is_rabbitmq;
	int version; /* 100 × major + minor: 310, 403; 0 = unknown */
};

/* Out of the server's properties. */
struct amqp_broker amqp_broker_of(struct str product, struct str version);

/* The limit that the broker holds a queue to: negative = none. */
int64_t amqp_delivery_limit(const struct amqp_broker *broker, const struct amqp_queue_facts *facts);

/* An inbound channel's queue that exists. `facts` NULL: nothing more is known of it. `consumer_timeout_ms` is the connection's. */
void amqp_judge_queue(const struct amqp_broker *broker, const struct probe_channel *channel,
		      const struct amqp_queue_facts *facts, int64_t consumer_timeout_ms, struct report *report);

/* transport.probe */
void amqp_probe(const struct transport_connection *connection, const struct probe_question *question,
		struct report *report);

#endif
