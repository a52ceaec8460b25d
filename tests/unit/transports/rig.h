/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of transports are played on, all in one thread: a loop whose time the test moves, a sink that keeps what
 * it is given until the test settles it, and a Kafka client whose events the test writes and whose calls it reads.
 *
 * Life cycle: rig_init/rig_done; fake handles end with their close. Threads: one.
 */
#ifndef SUTRA_TESTS_UNIT_TRANSPORTS_RIG_H
#define SUTRA_TESTS_UNIT_TRANSPORTS_RIG_H

#include "base/buf.h"
#include "transports/kafka/client.h"
#include "transports/transport.h"

struct rig_loop {
	struct loop base;
	struct task *first, **last;
	int64_t now_us;
	uint64_t seed;
};

void rig_loop_init(struct rig_loop *loop);
void rig_loop_done(struct rig_loop *loop);
/* Runs what is posted, until nothing is. */
void rig_loop_run(struct rig_loop *loop);
/* Moves the time, running timers and tasks on the way. */
void rig_loop_advance(struct rig_loop *loop, int64_t us);

/* --- the sink --- */

#define RIG_MESSAGES 70000

struct rig_sink {
	struct consumer_sink base;
	struct consumer *consumer;
	struct message *messages[RIG_MESSAGES]; /* delivered, not settled; in order */
	size_t count;
	uint64_t delivered;
	bool busy; /* revoke gives nothing back: everything is in work */
	enum consumer_state state;
	char detail[200];
	bool stopped;
	/* Of each settle DONE, before the consumer hears of it; may be NULL. */
	void (*on_done)(void *user, const struct message *message);
	void *user;
};

void rig_sink_init(struct rig_sink *sink);
/* The one with this offset or token; NULL: none. */
struct message *rig_sink_find(struct rig_sink *sink, uint64_t token);
void rig_settle(struct rig_sink *sink, struct message *message, enum settle how);
/* Settles the messages with these tokens DONE. */
void rig_done(struct rig_sink *sink, uint64_t token);
void rig_done_all(struct rig_sink *sink);

/* --- the client --- */

struct fake_event;

struct fake_handle {
	struct fake_event *first, **last, *shown;
	void (*ready)(void *user);
	void *user;
	bool empty; /* poll has said so: ready is due with the next event */
	struct loop *loop;
	struct task wake;
};

struct fake_cluster {
	struct fake_handle *handle; /* the one that is open, or NULL */
	struct buf calls;	    /* "assign 0 1; commit 0@5; " */
	bool commit_answers;	    /* commits answer themselves, well */
	bool open_fails, queue_full, reject;
	uint32_t opened;
	void *opaque[64]; /* of produce, in order */
	size_t produced;
	struct buf produced_text; /* "topic key=k value=v name=value …\n" */
	/* Of each commit; may be NULL. */
	void (*on_commit)(void *user, const struct kafka_partition *partition);
	void *user;
};

extern const struct kafka_client fake_client;

void fake_init(struct fake_cluster *cluster);
void fake_done(struct fake_cluster *cluster);
/* A record with the key "k" and the value "v". */
void fake_record(struct fake_cluster *cluster, int32_t partition, int64_t offset);
void fake_record_full(struct fake_cluster *cluster, const struct kafka_record *record);
/* Partitions are bits: 5 is 0 and 2. */
void fake_partitions(struct fake_cluster *cluster, enum kafka_event_kind kind, unsigned partitions);
void fake_committed(struct fake_cluster *cluster, int32_t partition, int64_t offset, bool failed);
void fake_event(struct fake_cluster *cluster, enum kafka_event_kind kind, const char *text);
/* The answer to the n-th produce. */
void fake_delivered(struct fake_cluster *cluster, size_t n, const struct kafka_event *how);
/* The calls since the last time; valid until the next. */
const char *fake_calls(struct fake_cluster *cluster);

#endif
