/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The third seam, for Kafka: what the consumer and the publisher need of a client library, and no more. client_rdkafka.c
 * does it with librdkafka; the simulator has a cluster of its own behind the same table. Offset trackers, windows,
 * pauses, epochs and retries are above it.
 *
 * Life cycle: check on the main thread; open, everything else and close on the handle's loop.
 * Threads: one loop a handle. `ready` (wake-up) is called on that loop, never from inside a call of this table, when poll
 * has something again.
 */
#ifndef SUTRA_TRANSPORTS_KAFKA_CLIENT_H
#define SUTRA_TRANSPORTS_KAFKA_CLIENT_H

#include "base/error.h"
#include "base/loop.h"
#include "value/header.h"

struct kafka_handle;

enum kafka_event_kind {
	KAFKA_EVENT_NONE,
	KAFKA_EVENT_RECORD,
	KAFKA_EVENT_ASSIGN,	/* partitions were given; answer with assign() */
	KAFKA_EVENT_REVOKE,	/* partitions are taken; answer with unassign(), soon */
	KAFKA_EVENT_LOST,	/* as REVOKE, but they already belong to another: commit nothing */
	KAFKA_EVENT_COMMITTED,	/* the answer to a commit(): error or not */
	KAFKA_EVENT_DELIVERED,	/* the answer to a produce() */
	KAFKA_EVENT_MISSING,	/* the topic does not exist (yet) */
	KAFKA_EVENT_ERROR,	/* transient: the broker is down, … */
	KAFKA_EVENT_UP,		/* the broker is reached again (best effort) */
	KAFKA_EVENT_FATAL,	/* the handle is of no use any more: close and open anew */
	KAFKA_EVENT_STATS,	/* consumer lag */
};

struct kafka_partition {
	const char *topic;
	int32_t partition;
	int64_t offset; /* commit: next to read */
};

struct kafka_record {
	struct str topic;
	int32_t partition;
	int64_t offset;
	int64_t timestamp_ms; /* -1 = none */
	struct str key;	      /* absent = null */
	struct str value;     /* absent = null */
	/* Header values: absent = null. */
	const struct str *header_names;
	const struct str *header_values;
	size_t header_count;
};

struct kafka_event {
	enum kafka_event_kind kind;
	struct kafka_record record; /* borrowed until the next poll */
	const struct kafka_partition *partitions; /* ASSIGN REVOKE LOST COMMITTED; borrowed until the next poll */
	size_t partition_count;
	/* COMMITTED, DELIVERED, ERROR, FATAL, MISSING */
	bool failed;
	bool unknown_topic;
	bool too_large; /* the broker or the client will never take this record */
	char text[200];
	void *opaque; /* DELIVERED */
	int64_t lag;  /* STATS; -1 = unknown */
};

struct kafka_client {
	/* `group` NULL makes a producer (idempotent, acks=all). RESULT_REJECT: a property is wrong. */
	enum result (*open)(void *cluster, struct loop *loop, const char *group, const char *const *names,
			    const char *const *values, size_t count, void (*ready)(void *user), void *user,
			    struct kafka_handle **out, struct error *err);
	enum result (*subscribe)(struct kafka_handle *handle, const char *topic, struct error *err);
	/* Never blocks. KAFKA_EVENT_NONE: nothing there; ready() will be called. */
	void (*poll)(struct kafka_handle *handle, struct kafka_event *event);
	/* Incremental (cooperative): just these. From the stored offsets. */
	void (*assign)(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count);
	void (*unassign)(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count);
	/* Not for a partition that is already so. */
	void (*pause)(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count);
	void (*resume)(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count);
	/* Asynchronous; answered by KAFKA_EVENT_COMMITTED. */
	void (*commit)(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count);
	/* RESULT_AGAIN: the queue is full. RESULT_REJECT: never. Copies what it needs. Answered by KAFKA_EVENT_DELIVERED. */
	enum result (*produce)(struct kafka_handle *handle, const struct kafka_record *record, void *opaque,
			       char *text, size_t text_size);
	/* Everything not delivered comes back as failed. */
	void (*purge)(struct kafka_handle *handle);
	/* Leaves the group and ends the handle, bounded by `timeout_ms`; remaining events are lost. May block up to that:
	 * called when there is nothing else for the loop to do. */
	void (*close)(struct kafka_handle **handle, int64_t timeout_ms);
	const char *(*version)(void);
	/* Whether the properties make a consumer and a producer: RESULT_REJECT if not. NULL: anything does. @thread main */
	enum result (*check)(void *cluster, const char *const *names, const char *const *values, size_t count,
			     struct error *err);
};

/* Over librdkafka. `cluster` is not used. NULL in a build without Kafka. */
extern const struct kafka_client kafka_client_rdkafka;

#endif
