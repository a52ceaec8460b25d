/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load: orders with their payments, in and out of order, some twice, some hopeless.
 *
 * Life cycle: load_init plans everything; records are produced by timers on the world's loop. load_done.
 * Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_LOAD_H
#define SUTRA_TESTS_SIM_LOAD_H

#include "tests/sim/cluster.h"

#define LOAD_ORDERS_MAX  12
#define LOAD_PARTS_MAX   10
#define LOAD_EVENTS_MAX  128
#define LOAD_RECORDS_MAX 256

enum load_kind {
	LOAD_ORDER,     /* starts an instance */
	LOAD_PAYMENT,   /* for an order, perhaps one too many */
	LOAD_UNMATCHED, /* for an order that never comes */
	LOAD_INVALID,   /* an order without its id */
	LOAD_POISON,    /* not JSON */
};

struct load_order {
	char id[16];
	int parts;
	int payments; /* ≥ parts */
};

struct load_event {
	enum load_kind kind;
	const char *topic;
	char id[24];  /* its idempotency key */
	char key[24]; /* empty: none */
	char body[96];
	int order; /* index; -1 = none */
	int amount;
	bool scattered; /* repeated under another key: it has no place in an order */
	/* The checker's. */
	int32_t partition;     /* of its first record */
	int64_t offset;        /* -1 = not there yet */
	uint64_t effect, dead; /* at which commit; 0 = none */
};

/* One time that an event is produced. */
struct load_record {
	struct load *load;
	struct load_event *event;
	struct loop_timer timer;
	char key[24];
};

struct load {
	struct sim *sim;
	struct sim_cluster *cluster;
	struct load_order orders[LOAD_ORDERS_MAX];
	int order_count;
	struct load_event events[LOAD_EVENTS_MAX];
	int event_count;
	struct load_record records[LOAD_RECORDS_MAX];
	int record_count, produced;
	struct loop_timer make_payments, make_receipts;
};

/* All of it comes within `span_us`; `hot`: few orders in many parts, so that everybody wants the same instances. Makes the topics. */
void load_init(struct load *load, struct sim *sim, struct sim_cluster *cluster, int64_t span_us,
	       bool hot);
void load_done(struct load *load);
bool load_is_produced(const struct load *load);

#endif
