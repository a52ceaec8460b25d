/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transports: where messages come from and go to. The contract of transports/<name>/; the list is
 * transports/registry.c. A transport knows its broker and nothing of processes.
 *
 * A consumer takes messages of one channel and hands them, with their ownership, to its sink. The sink gives every message
 * back by exactly one settle. A publisher takes publications and answers each exactly once.
 *
 * Life cycle: new on the main thread; start, settle, stop and everything that calls the sink on the consumer's loop; free on
 * the main thread when stopped and the loop has ended or run past it. The same for publishers.
 * Threads: each member says its own. Nothing here blocks, but free and probe.
 */
#ifndef SUTRA_TRANSPORTS_TRANSPORT_H
#define SUTRA_TRANSPORTS_TRANSPORT_H

#include "base/arena.h"
#include "base/error.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/report.h"
#include "value/header.h"

struct consumer;
struct kafka_client;
struct publisher;
struct rabbit_client;

/*
 * A message as it arrived. All slices point into its arena. Whoever holds it may put more into the arena; it ends with the
 * message, at the settle.
 */
struct message {
	struct arena arena;
	struct str identity; /* "kafka:orders/3/17/1764534000000": unique and stable over redelivery; absent = has none (AMQP) */
	struct str source;   /* for people and dead letters: "kafka:orders/3/17" */
	struct str order_key; /* messages with one order key take effect in order of receipt; absent = no order. Kafka: partition
			       * and record key. */
	bool orders_by_instance; /* without an order key: messages for one instance take effect in order of receipt. AMQP */
	struct str key;	      /* record key; absent = none */
	struct header_list headers;
	struct str content_type;
	struct str type;       /* AMQP property `type`; else absent */
	struct str message_id; /* AMQP property; else absent */
	struct str body;       /* absent = a Kafka null */
	int64_t time_us;       /* 0 = unknown */
	/* Where a reply goes: absent = no reply address. */
	struct str reply_destination;
	msgpack_object reply_correlation; /* nil = none */
	bool redelivered;
	uint32_t returns; /* how often it was given back before; a guess where the broker does not tell */
	bool returns_are_counted; /* the broker counts that against the message, and may drop it for it */
	size_t bytes; /* what it counts for in the bounds: body, headers, key */

	/* The transport's own. */
	void *lease;	 /* what it belongs to (a partition in one assignment, a channel): see consumer_sink.revoke */
	uint64_t token;	 /* offset or tag within the lease */
	struct list link;
};

/* Frees a message that never reached a sink, or inside settle. Accepts NULL. */
void message_free(struct message **message);
struct message *message_new(void);

enum settle {
	SETTLE_DONE, /* its effect (or its dead letter) is committed: ack, offset done */
	SETTLE_BACK, /* give it back to the broker: at shutdown, or because its lease was revoked. Kafka: the offset stays below */
};

enum consumer_state {
	CONSUMER_CONNECTING, /* the broker is not reached (yet, or any more) */
	CONSUMER_MISSING,    /* the topic or queue does not exist: waiting for it */
	CONSUMER_CONSUMING,
	CONSUMER_STOPPED,
};
const char *consumer_state_name(enum consumer_state state);

/* What stands behind a consumer. Called on the consumer's loop. */
struct consumer_sink {
	/* Takes the message. Never settles it from inside this call. */
	void (*deliver)(struct consumer_sink *sink, struct message *message);
	/*
	 * The messages of this lease are no longer ours: those not being worked on are to be settled BACK at once, from inside
	 * this call; those in work are settled as usual when they end (the transport knows that it is too late). NULL: all.
	 */
	void (*revoke)(struct consumer_sink *sink, void *lease);
	/* For readiness and logs. `detail` is borrowed. */
	void (*state)(struct consumer_sink *sink, enum consumer_state state, const char *detail);
	/* After stop: everything is settled, committed and closed. The last call. */
	void (*stopped)(struct consumer_sink *sink);
};

struct consumer_settings {
	struct loop *loop; /* the consuming loop of its connection */
	const char *tenant;
	const char *channel;
	const char *bind;
	const char *group;
	uint32_t max_in_flight;	    /* unsettled messages at once; past it the consumer stops fetching, with hysteresis */
	uint64_t payload_cap_bytes; /* larger bodies are delivered all the same (to be dead-lettered by the sink) */
};

struct consumer_ops {
	/* @thread consumer's loop */
	void (*start)(struct consumer *consumer);
	/* Takes the message back and ends it. @thread consumer's loop */
	void (*settle)(struct consumer *consumer, struct message *message, enum settle how);
	/* Stops fetching at once, calls sink.revoke(NULL), waits until every message is settled, commits what is done, closes,
	 * then calls sink.stopped. Bounded by the transport's own close timeout. @thread consumer's loop */
	void (*stop)(struct consumer *consumer);
	/* @thread main, after stopped */
	void (*free)(struct consumer *consumer);
};

struct consumer {
	const struct consumer_ops *ops;
	struct consumer_sink *sink;
	struct loop *loop;
	/* For metrics; written by the consumer's loop, read anywhere with atomic loads. */
	uint64_t received, settled_done, settled_back;
	int64_t lag; /* broker end minus committed; -1 = unknown */
};

enum publish_outcome {
	PUBLISH_CONFIRMED,
	PUBLISH_RETRY,	     /* the broker did not take it, or nobody knows: send again later */
	PUBLISH_UNROUTABLE,  /* no such topic, exchange or queue */
	PUBLISH_REJECTED,    /* the broker will not take this one: too large, not allowed */
};

/* One message to send. Embedded in whatever the sender keeps; all slices are the sender's and stay until the answer. */
struct publication {
	struct str destination; /* kafka: topic; amqp: exchange/routing-key; local: channel */
	struct str tenant;
	struct str key;	 /* kafka record key; absent = none */
	struct str body; /* absent = a null record */
	struct str content_type;
	struct str message_id; /* the idempotency key as text; the transport adds it as header sutra-outbox-key (and AMQP message-id) */
	struct str type;
	msgpack_object correlation; /* of a reply, as it came; nil = none. Kafka: header `correlation-id` */
	struct header_list headers;

	/* The answer. */
	struct loop *reply_to;
	struct task done; /* set done.run before publishing; posted to reply_to */
	enum publish_outcome outcome;
	char text[160]; /* why not, for the diagnostic */

	/* The publisher's own. */
	struct task post;
	struct list link;
	struct publisher *publisher;
};

struct publisher_ops {
	/* @thread publisher's loop */
	void (*start)(struct publisher *publisher);
	/* Lends the publication until its answer. Never blocks: queues inside. @thread any */
	void (*publish)(struct publisher *publisher, struct publication *publication);
	/* Drops what is not confirmed (queue and in flight): each is answered RETRY. @thread any; the answers follow */
	void (*purge)(struct publisher *publisher);
	/* Waits for what is in flight, at most `timeout_ms`, purges the rest, closes, then posts `done` to `reply_to`. @thread any */
	void (*stop)(struct publisher *publisher, int64_t timeout_ms, struct loop *reply_to, struct task *done);
	/* @thread main, after stop was answered and the loop has ended or run past it */
	void (*free)(struct publisher *publisher);
};

struct publisher {
	const struct publisher_ops *ops;
	struct loop *loop; /* the publishing loop of its connection */
	bool up; /* the broker is reached; atomic */
};

/* What a transport is made of: one per configured connection ("local" has one by itself). */
struct transport_connection {
	const struct transport *transport;
	const char *name;
	const char *const *property_names; /* librdkafka properties */
	const char *const *property_values;
	size_t property_count;
	/* amqp; secrets resolved, what is not set is NULL */
	const char *url, *password, *management_url, *ca_file, *cert_file, *key_file;
	int64_t heartbeat_s; /* 0 = the transport's default */
	int64_t consumer_timeout_ms;
	struct loop *consume_loop;
	struct loop *publish_loop;
	/* Kafka's client seam: NULL = librdkafka. `kafka_cluster` is the seam's own. */
	const struct kafka_client *kafka;
	void *kafka_cluster;
	/* The same for AMQP: NULL = rabbitmq-c. */
	const struct rabbit_client *rabbit;
	void *rabbit_broker;
	void *state; /* the transport's own */
};

/* A channel as it is examined. */
struct probe_channel {
	const char *tenant, *channel, *bind, *group;
	bool is_inbound;
	uint32_t max_in_flight;
	uint64_t payload_cap_bytes; /* the channel's own, or the engine's */
	int64_t longest_hold_ms;    /* how long a message may stay unsettled while it is refused */
};

struct probe_question {
	const struct probe_channel *channels; /* of the connection examined */
	size_t channel_count;
	int64_t timeout_ms; /* patience with a broker that does not answer */
};

struct transport {
	const char *name;
	bool needs_connection; /* a configured one; local has none */
	/* Checks the properties. RESULT_REJECT with CONFIG_PROPERTY_INVALID. */
	enum result (*open)(struct transport_connection *connection, struct error *err);
	void (*close)(struct transport_connection *connection);
	/* Never NULL; connects in start. */
	struct consumer *(*consumer_new)(struct transport_connection *connection,
					 const struct consumer_settings *settings, struct consumer_sink *sink);
	struct publisher *(*publisher_new)(struct transport_connection *connection);
	/*
	 * Examines the broker, and the topics, queues and exchanges of the channels; writes what it finds. Neither opened nor
	 * with loops is the connection. Changes nothing at the broker. Blocks, within a small multiple of the timeout; for
	 * `sutra doctor` only. NULL: there is nothing to examine. @thread main
	 */
	void (*probe)(const struct transport_connection *connection, const struct probe_question *question,
		      struct report *report);
};

/* NULL if this build has none of this name. */
const struct transport *transport_find(struct str name);
const struct transport *transport_at(size_t index);

#endif
