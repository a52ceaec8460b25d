/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the Kafka consumer: its state, and what consumer.c (life, window, events) and lease.c (partitions, commits,
 * rebalances) call of each other. Everything runs on the consumer's loop.
 *
 *	consumer   NEW ─start─► RUNNING ─stop─► SETTLING ─all settled─► COMMITTING ─answered, or in time─► ENDED
 *	                        │     ▲
 *	                  fatal ▼     │ opened anew (the handle is NULL in between)
 *
 *	lease      OPEN ─revoked─► CLOSING ─settled, or in time─► SEALED ─committed, unassigned─► freed with its last message
 *	            └──────────────── lost, fatal, went back ───────▲
 */
#ifndef SUTRA_TRANSPORTS_KAFKA_CONSUMER_H
#define SUTRA_TRANSPORTS_KAFKA_CONSUMER_H

#include "base/list.h"
#include "transports/kafka/kafka.h"
#include "transports/kafka/offsets.h"

/* The token of a message whose offset was delivered before. */
#define TOKEN_UNTRACKED UINT64_MAX

enum consumer_phase {
	PHASE_NEW,
	PHASE_RUNNING,
	PHASE_SETTLING,	  /* stop: messages are still in work */
	PHASE_COMMITTING, /* stop: the last commit is not answered */
	PHASE_ENDED,
};

enum lease_state {
	LEASE_OPEN,
	LEASE_CLOSING, /* revoked: nothing new, what is in work may end and count */
	LEASE_SEALED,  /* the last commit is sent, or there will be none: settles change nothing any more */
};

/* One partition in one assignment. Messages point to it; it lives as long as the last of them. */
struct kafka_lease {
	struct list link; /* in consumer.leases, while assigned */
	enum lease_state state;
	int32_t partition;
	struct offsets offsets;
	int64_t committing; /* the last offset sent; -1 = no record has come */
	int64_t committed;  /* the last one that the broker took */
	uint32_t unsettled; /* messages with the sink or in the stash */
	bool assigned;	    /* holds a reference of its own */
	bool paused;	    /* the client was told so */
	bool over_span;
	bool revoking; /* belongs to the rebalance under way */
};

struct kafka_consumer {
	struct consumer base;
	struct transport_connection *connection;
	const struct kafka_client *client;
	char *topic, *group, *tenant, *channel;
	uint32_t max_in_flight;
	int64_t revoke_wait_ms;

	enum consumer_phase phase;
	enum consumer_state state;
	char detail[200];
	struct kafka_handle *handle;
	struct list leases;
	struct list stash; /* messages that came when the window was full; not with the sink yet */
	uint32_t unsettled; /* with the sink */
	bool joined;	    /* an assignment has come on this handle, maybe an empty one */
	bool stalled;	    /* the pump stopped at a full window */
	bool paused_all;
	uint32_t nested; /* inside a walk over messages or leases: what settles there is looked at afterwards */
	bool pump_posted;
	struct task pump, end;

	/* The rebalance under way. */
	bool revoking, revoke_sealed;
	uint32_t done_since_commit;
	bool commit_failing;

	int64_t rebuild_delay_ms, missing_delay_ms;
	int64_t missing_us; /* when it was last found missing */
	struct loop_timer full, commit, rebuild, missing, revoke, stop;
};

/* consumer.c */
void consumer_pump_post(struct kafka_consumer *consumer);
/* Drops what is in the stash of this lease, or all of it (NULL). */
void consumer_stash_drop(struct kafka_consumer *consumer, const struct kafka_lease *lease);
/* Tells the sink; NULL: all. */
void consumer_revoke_from_sink(struct kafka_consumer *consumer, struct kafka_lease *lease);
void consumer_set_state(struct kafka_consumer *consumer, enum consumer_state state, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
struct log_about consumer_about(const struct kafka_consumer *consumer);

/* lease.c */
struct kafka_lease *lease_find(struct kafka_consumer *consumer, int32_t partition);
/* Notes a delivered offset and returns its lease: another than `lease` if the partition went back. `*tracked` is false if the
 * settle of this message is not to count. */
struct kafka_lease *lease_add(struct kafka_consumer *consumer, struct kafka_lease *lease, int64_t offset, bool *tracked);
/* A message of the lease ends. The lease may be gone afterwards. */
void lease_settled(struct kafka_consumer *consumer, struct kafka_lease *lease, int64_t offset, bool is_done);
/* Pauses and resumes what is not as it should be. */
void leases_pause(struct kafka_consumer *consumer);
uint32_t leases_open(const struct kafka_consumer *consumer);
/* Seals all and lets go of them, without a commit. */
void leases_end(struct kafka_consumer *consumer);

void lease_on_assign(struct kafka_consumer *consumer, const struct kafka_event *event);
void lease_on_revoke(struct kafka_consumer *consumer, const struct kafka_event *event);
void lease_on_lost(struct kafka_consumer *consumer, const struct kafka_event *event);
void lease_on_committed(struct kafka_consumer *consumer, const struct kafka_event *event);
/* Goes on with the rebalance under way if nothing is in its way any more. */
void lease_revoke_check(struct kafka_consumer *consumer);
void lease_revoke_timeout(struct loop_timer *timer);

/* Sends what is finished and not sent. */
void lease_commit(struct kafka_consumer *consumer);
void lease_commit_timer(struct loop_timer *timer);
/* Nothing is in work and nothing comes: commits soon. */
void lease_idle(struct kafka_consumer *consumer);
/* The last commit of a stop; true if there is an answer to wait for. */
bool lease_commit_last(struct kafka_consumer *consumer);
bool lease_is_waiting(const struct kafka_consumer *consumer);

#endif
