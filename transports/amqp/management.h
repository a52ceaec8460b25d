/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What RabbitMQ's management API tells about a queue, and AMQP 0-9-1 does not: its type, its limits, where its dead letters go.
 *
 * Life cycle: none; each call is one HTTP request. Threads: any, but it blocks up to the timeout: never on a loop that
 * serves messages.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_MANAGEMENT_H
#define SUTRA_TRANSPORTS_AMQP_MANAGEMENT_H

#include "base/error.h"

struct transport_connection;

#define AMQP_LIMIT_UNSET INT64_MIN

/* Arguments of the queue and policies together, as the broker weighs them. */
struct amqp_queue_facts {
	char type[16]; /* "classic", "quorum", "stream" */
	/* False: the arguments alone are told yet. The API learns of policies with the queue's figures, seconds later. */
	bool policies_known;
	bool durable, auto_delete, exclusive;
	bool has_dead_letter_exchange;
	bool is_single_active_consumer;
	bool is_mirrored; /* a policy of classic mirrored queues applies */
	int64_t delivery_limit; /* AMQP_LIMIT_UNSET: neither says one; below 0: none */
	bool delivery_limit_is_policy; /* it comes from a policy alone */
	int64_t consumer_timeout_ms;   /* AMQP_LIMIT_UNSET: the broker's */
	int64_t message_ttl_ms;	       /* AMQP_LIMIT_UNSET: none */
	int64_t max_length, max_length_bytes; /* AMQP_LIMIT_UNSET: none */
	bool overflow_drops_oldest;	      /* what max_length does; the default */
};

/*
 * Asks the API at connection->management_url about a queue in the virtual host of connection->url. User and password are
 * those of management-url, or else of the connection. RESULT_OK; RESULT_REJECT: there is no such queue; RESULT_AGAIN: the
 * API does not answer, or refuses (`err` says why).
 */
enum result amqp_management_queue(const struct transport_connection *connection, const char *queue, int64_t timeout_ms,
				  struct amqp_queue_facts *out, struct error *err) MUST_CHECK;
/* The same out of the body of its answer. RESULT_AGAIN if it is not one. */
enum result amqp_management_parse(struct str body, struct amqp_queue_facts *out, struct error *err) MUST_CHECK;

#endif
