/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole replica in this process, built as `sutra serve` builds it, without an admin listener, and sinks that consume what
 * it sends through the local transport.
 *
 * Main opens and closes both; a sink's functions run on the consuming loop of the local connection, as everything of a load does.
 */
#ifndef SUTRA_TESTS_BENCH_REPLICA_H
#define SUTRA_TESTS_BENCH_REPLICA_H

#include "service.h"
#include "tests/bench/bench.h"
#include "transports/local/local.h"

#define DRAIN_TIMEOUT_MS 30000

struct bench_replica {
	struct service *service;
	struct view *view;
	struct config *config;
	struct transport_connection *local;
	struct loop *loop; /* of the load and the sinks */
};

/* Serves the package SUTRA_BENCH_PACKAGE with the settings of the environment. Ends the process if it cannot. */
void replica_open(struct bench_replica *replica);
/* Stops the service: before its sinks are closed. */
void replica_stop(struct bench_replica *replica);
void replica_free(struct bench_replica *replica);
/* Gives a message to the inbound channel `channel`; takes it. `settled` gets `user` once it is settled. */
void replica_inject(struct bench_replica *replica, const char *channel, struct message *message,
		    void (*settled)(void *user, enum settle how), void *user);

struct bench_sink {
	/* The owner's. */
	void (*take)(struct bench_sink *sink, struct str body); /* each message once */
	void (*settled)(struct bench_sink *sink);		/* some were */
	const bool *withhold; /* NULL, or while it is true nothing is settled; atomic */
	void *user;

	/* The sink's own. */
	struct consumer_sink sink;
	struct consumer *consumer;
	struct loop *loop;
	const char *channel;
	struct message **pending; /* not settled yet */
	size_t count, capacity;
	struct task task;
	bool posted;
	bool stopped; /* atomic */
};

/* Consumes what is bound to `channel`. Fill in the owner's members before. */
void sink_open(struct bench_sink *sink, struct bench_replica *replica, const char *channel);
void sink_close(struct bench_sink *sink);

#endif
