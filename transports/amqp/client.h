/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam to a client library for AMQP 0-9-1: what the consumers and the publisher need, and no more. client_rabbitmq.c does it
 * with rabbitmq-c; a test or a simulator has a broker of its own behind the same table. Epochs, windows, confirms, backoff and
 * reconnecting are above it.
 *
 * A handle is one connection. Every request of a channel is sent when the loop's turn ends, at the latest, and answered by an
 * event; none waits for its answer. A request that cannot be sent is no error of the caller's: the connection is lost, and poll says so.
 *
 * Life cycle: check on the main thread; open, everything else and close on the handle's loop.
 * Threads: one loop a handle. `ready` is called on that loop, never from inside a call of this table, when poll has
 * something again.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_CLIENT_H
#define SUTRA_TRANSPORTS_AMQP_CLIENT_H

#include "base/error.h"
#include "base/loop.h"
#include "value/header.h"

struct rabbit_handle;

/* Strings that are absent are not set. A header's value keeps its type both ways as far as AMQP and values have it in
 * common; see docs/amqp.md. */
struct rabbit_properties {
	struct str content_type;
	struct str correlation_id;
	struct str reply_to;
	struct str message_id;
	struct str type;
	int64_t timestamp_s; /* 0 = none */
	struct header_list headers;
};

enum rabbit_event_kind {
	RABBIT_EVENT_NONE,
	RABBIT_EVENT_LOST,	/* the connection is gone: close the handle. The last event */
	RABBIT_EVENT_BLOCKED,	/* the broker takes no publications for now; of the connection */
	RABBIT_EVENT_UNBLOCKED,
	/* Answers of a channel. */
	RABBIT_EVENT_OPENED,	 /* to channel_open */
	RABBIT_EVENT_QOS,	 /* to qos */
	RABBIT_EVENT_CONSUMING,	 /* to consume */
	RABBIT_EVENT_STOPPED,	 /* to cancel: no delivery comes after it */
	RABBIT_EVENT_CONFIRMING, /* to confirm */
	RABBIT_EVENT_CLOSED,	 /* to channel_close */
	/* What the broker says by itself. */
	RABBIT_EVENT_FAILED,	/* it has closed the channel (code, text), which may be opened again */
	RABBIT_EVENT_CANCELLED, /* it has ended the subscription; the channel and its tags live on */
	RABBIT_EVENT_DELIVERED,
	RABBIT_EVENT_RETURNED, /* no queue for a mandatory publication; its ack comes too, later */
	RABBIT_EVENT_ACK,      /* of a publication, or of all up to it */
	RABBIT_EVENT_NACK,
};

struct rabbit_event {
	enum rabbit_event_kind kind;
	uint16_t channel; /* 0: of the connection */
	uint64_t tag;	  /* DELIVERED; ACK, NACK: the number of the publication on its channel, from 1 */
	bool multiple;	  /* ACK, NACK */
	bool redelivered;
	uint16_t code;	 /* FAILED, RETURNED: the reply code */
	char text[256];	 /* FAILED, LOST, BLOCKED, RETURNED */
	/* DELIVERED, RETURNED; borrowed until the next poll */
	struct rabbit_properties properties;
	struct str body;
};

struct rabbit_settings {
	const char *name;     /* shown by the broker */
	const char *url;      /* amqp:// or amqps:// */
	const char *password; /* NULL = the URL's */
	const char *ca_file, *cert_file, *key_file;
	int64_t heartbeat_s;
};

struct rabbit_client {
	/* RESULT_REJECT: the settings can never work. Connects to nothing. @thread main */
	enum result (*check)(void *broker, const struct rabbit_settings *settings, struct error *err);
	/*
	 * Connects and logs in. RESULT_AGAIN: not now. This may block the loop, for a few seconds at most.
	 */
	enum result (*open)(void *broker, struct loop *loop, const struct rabbit_settings *settings,
			    void (*ready)(void *user), void *user, struct rabbit_handle **out, struct error *err);
	/* Never blocks. RABBIT_EVENT_NONE: nothing there; ready() will be called. */
	void (*poll)(struct rabbit_handle *handle, struct rabbit_event *event);
	void (*channel_open)(struct rabbit_handle *handle, uint16_t channel);
	void (*channel_close)(struct rabbit_handle *handle, uint16_t channel);
	void (*qos)(struct rabbit_handle *handle, uint16_t channel, uint16_t count);
	/* One subscription a channel. */
	void (*consume)(struct rabbit_handle *handle, uint16_t channel, const char *queue);
	void (*cancel)(struct rabbit_handle *handle, uint16_t channel);
	void (*ack)(struct rabbit_handle *handle, uint16_t channel, uint64_t tag, bool multiple);
	/* Back into the queue. */
	void (*nack)(struct rabbit_handle *handle, uint16_t channel, uint64_t tag);
	/* All that the channel has and has not answered, by one request. */
	void (*nack_all)(struct rabbit_handle *handle, uint16_t channel);
	void (*confirm)(struct rabbit_handle *handle, uint16_t channel);
	/* Persistent and mandatory. Poll until RABBIT_EVENT_NONE right before it. */
	void (*publish)(struct rabbit_handle *handle, uint16_t channel, struct str exchange, struct str routing_key,
			const struct rabbit_properties *properties, struct str body);
	/* Orderly: tells the broker, for at most two seconds. Sets *handle to NULL. */
	void (*close)(struct rabbit_handle **handle, bool is_orderly);
	/* "RabbitMQ 3.10.8"; borrowed. */
	const char *(*product)(struct rabbit_handle *handle);
};

/* Over rabbitmq-c. `broker` is not used. */
extern const struct rabbit_client rabbit_client_rabbitmq;

#endif
