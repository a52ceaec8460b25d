/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load: orders with their payments, in and out of order, some twice, some hopeless. Some of the orders are deals: the same,
 * but through RabbitMQ.
 *
 * Life cycle: load_init plans everything; records are produced by timers on the world's loop. load_done.
 * Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_LOAD_H
#define SUTRA_TESTS_SIM_LOAD_H

#include "base/id.h"
#include "tests/sim/cluster.h"
#include "tests/sim/rabbit.h"

#define LOAD_ORDERS_MAX  12
#define LOAD_PARTS_MAX   10
#define LOAD_BOXES_MAX   3
#define LOAD_FRAILS_MAX  2
#define LOAD_EVENTS_MAX  128
#define LOAD_RECORDS_MAX 256

enum load_kind {
	LOAD_ORDER,     /* starts an instance */
	LOAD_PAYMENT,   /* for an order, perhaps one too many */
	LOAD_NEWS,      /* for all who wait for news, and one who begins */
	LOAD_ITEM,      /* begins a box, or goes into it */
	LOAD_FRAIL,     /* begins an instance that fails by the hard blows */
	LOAD_HARD,
	LOAD_SOFT,      /* ends it */
	LOAD_UNMATCHED, /* for an order that never comes */
	LOAD_INVALID,   /* an order without its id */
	LOAD_POISON,    /* not JSON */
};

struct load_order {
	char id[16];
	int parts;
	int payments; /* ≥ parts */
	bool is_deal;
	bool is_raced; /* its payments come about when it does: it parks while they are about to be kept as early */
	struct id instance; /* the checker's; all zero: not there yet */
};

/* Its items are all alike: whichever has its effect first begins it. */
struct load_box {
	char id[16];
	int parts;
	struct id instance; /* the checker's; all zero: not there yet */
};

/* Fails by each hard blow and is restored, until a soft one ends it. */
struct load_frail {
	char id[16];
	struct id instance; /* the checker's; all zero: not there yet */
};

/* A time that an event was received as a delivery of AMQP. */
struct load_receipt {
	const struct process *process;
	uint64_t lease, tag;
};

struct load_event {
	enum load_kind kind;
	const char *topic; /* or queue */
	bool is_amqp;
	char id[24];  /* its idempotency key */
	char key[24]; /* empty: none */
	char body[96];
	int order; /* index; -1 = none */
	int box;   /* index; -1 = none */
	int frail; /* index; -1 = none */
	uint32_t copies; /* records or messages */
	int amount;
	bool scattered; /* repeated under another key: it has no place in an order */
	/* The checker's. */
	int32_t partition;     /* of its first record */
	int64_t offset;        /* -1 = not there yet */
	int64_t since_us;      /* when it came to be there */
	uint64_t effect, dead; /* at which commit; 0 = none */
	bool kept;	       /* the database has kept it */
	bool read;	       /* news: one has begun with them */
	struct load_receipt *receipts;
	size_t receipt_count;
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
	struct sim_rabbit *rabbit;
	struct load_order orders[LOAD_ORDERS_MAX];
	int order_count;
	struct load_box boxes[LOAD_BOXES_MAX];
	int box_count;
	struct load_frail frails[LOAD_FRAILS_MAX];
	int frail_count;
	struct load_event events[LOAD_EVENTS_MAX];
	int event_count;
	struct load_record records[LOAD_RECORDS_MAX];
	int record_count, produced;
	struct loop_timer make_payments, make_receipts, make_instalments, make_slips;
	enum rabbit_queue_kind queue_kind; /* of the queues that come in */
};

/* All of it comes within `span_us`; `hot`: few orders in many parts, so that everybody wants the same instances. Makes topics,
 * queues and exchanges. */
void load_init(struct load *load, struct sim *sim, struct sim_cluster *cluster,
	       struct sim_rabbit *rabbit, int64_t span_us, bool hot);
void load_done(struct load *load);
bool load_is_produced(const struct load *load);

#endif
