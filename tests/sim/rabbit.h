/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated RabbitMQ, behind the same client seam as rabbitmq-c: queues of four kinds, exchanges, channels with prefetch,
 * delivery tags and confirms, over connections that deliver frames in order, late, or not at all.
 *
 * What may happen, by itself at the rates of the settings or because the world says so: a publication is not taken, or its
 * confirm never comes; a connection is cut, with everything under way, and each side notices by itself; the broker closes a
 * channel, moves a queue (its consumers are cancelled), deletes one that is declared again later, raises an alarm (it reads
 * no publisher), or is away and forgets what it has not confirmed.
 *
 * What clients may not do fails the run: a frame on a channel that is not open, an answer to a delivery that is not out,
 * giving a delivery back while its consumer lives, closing a channel with deliveries that were not answered.
 *
 * Life cycle: sim_rabbit_new, one sim_rabbit_client a process (the seam's `broker`), sim_rabbit_free when nothing runs any
 * more. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_RABBIT_H
#define SUTRA_TESTS_SIM_RABBIT_H

#include "base/list.h"
#include "tests/sim/runtime.h"
#include "transports/amqp/client.h"

struct sim_rabbit;
struct sim_rabbit_client;
struct rabbit_queue;

/* What a queue does with a message that comes back. */
enum rabbit_queue_kind {
	RABBIT_QUEUE_CLASSIC, /* to its old place */
	RABBIT_QUEUE_QUORUM,  /* to the tail: no limit, 3.10 to 4.2 */
	RABBIT_QUEUE_QUORUM_LIMITED, /* in front of all; each return counts, past 20 it is dropped: 4.0 to 4.2 */
	RABBIT_QUEUE_QUORUM_43, /* in front of all; of returns only those by a loss count */
	RABBIT_QUEUE_KIND_COUNT
};
const char *rabbit_queue_kind_name(enum rabbit_queue_kind kind);

/* A message in a queue; all of them live as long as the broker. */
struct rabbit_message {
	const char *queue;
	uint64_t number; /* in its queue, from 1 */
	struct rabbit_properties properties;
	struct str body;
	uint32_t returns;
	bool redelivered;
	bool stored; /* it outlives a restart */
	bool done;   /* acknowledged, or lost */
	/* The broker's own. */
	struct rabbit_queue *owner;
	struct list link;
};

struct sim_rabbit_settings {
	int64_t latency_max_us;
	uint32_t
		nack_per_million; /* publications that are not taken, or are and it says that they are not */
	uint32_t hang_per_million; /* publications that are never confirmed */
	uint32_t
		cut_per_million; /* frames to the broker with which the connection is lost; in all at most `cuts_max` */
	uint32_t cuts_max;
	const char *product;
	/* Planted bugs. */
	bool ack_before_commit; /* delivered is acknowledged */
	bool ack_past_hole;     /* one acknowledgement is for all before it */
	bool confirm_early;     /* published is confirmed, and some of it is lost */
	/* A client has published; what is not `stored` is lost in a restart. */
	void (*published)(void *user, const struct rabbit_message *message);
	void (*lost)(void *user, const struct rabbit_message *message);
	/* A client has received it, as delivery `tag` of a lease: a channel from its opening to its end. */
	void (*delivered)(void *user, const struct rabbit_message *message,
			  const struct process *process, uint64_t lease, uint64_t tag);
	void (*acked)(void *user, const struct rabbit_message *message);
	void *user;
};

struct sim_rabbit *sim_rabbit_new(struct sim *sim, const struct sim_rabbit_settings *settings);
void sim_rabbit_free(struct sim_rabbit **rabbit);

/* Until they are made, queues and exchanges are missing. */
void sim_rabbit_queue_make(struct sim_rabbit *rabbit, const char *name,
			   enum rabbit_queue_kind kind);
/* Binds a queue that is there; the exchange is made by its first binding. `key` NULL: whatever the key. */
void sim_rabbit_bind(struct sim_rabbit *rabbit, const char *exchange, const char *key,
		     const char *queue);
/* A message of somebody else's, stored at once. Copies. False: the broker is away, or the queue missing. */
bool sim_rabbit_put(struct sim_rabbit *rabbit, const char *queue,
		    const struct rabbit_properties *properties, struct str body);
/* Whether it is there and nothing is in it, or out. */
bool sim_rabbit_is_drained(const struct sim_rabbit *rabbit, const char *queue);
/* All that ever were in the queue, in their order; 0 if it was never made. */
size_t sim_rabbit_count(const struct sim_rabbit *rabbit, const char *queue);
const struct rabbit_message *sim_rabbit_message(const struct sim_rabbit *rabbit, const char *queue,
						size_t index);

/* A process's own view of the broker. */
struct sim_rabbit_client *sim_rabbit_client_new(struct sim_rabbit *rabbit, struct process *process);
extern const struct rabbit_client sim_rabbit_seam;

void sim_rabbit_calm(struct sim_rabbit *rabbit);
void sim_rabbit_down(struct sim_rabbit *rabbit, int64_t down_us);
bool sim_rabbit_is_up(const struct sim_rabbit *rabbit);
/* Loses the connections of this process, or some of them. */
void sim_rabbit_cut(struct sim_rabbit *rabbit, const struct process *process, bool all);
/* Closes some of its channels. */
void sim_rabbit_close_channels(struct sim_rabbit *rabbit, const struct process *process);
/* A queue changes its leader. */
void sim_rabbit_move_queue(struct sim_rabbit *rabbit);
/* A queue is deleted, and declared again with what was not acknowledged. */
void sim_rabbit_delete_queue(struct sim_rabbit *rabbit, int64_t away_us);
void sim_rabbit_alarm(struct sim_rabbit *rabbit, int64_t alarm_us);
/* The process is gone. */
void sim_rabbit_forget(struct sim_rabbit *rabbit, const struct process *process);

struct sim_rabbit_stats {
	uint64_t published, confirmed, nacked, returned, hung, delivered, redelivered, acked,
		given_back, cuts, channels_closed, cancels, alarms, restarts, deletions, lost;
};
const struct sim_rabbit_stats *sim_rabbit_stats(const struct sim_rabbit *rabbit);

#endif
