/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of the simulated cluster share: cluster.c is the broker, client.c the handles that processes hold.
 *
 * Life cycle: everything belongs to the cluster and ends with it, handles of killed processes too. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_BROKER_H
#define SUTRA_TESTS_SIM_BROKER_H

#include "base/arena.h"
#include "tests/sim/cluster.h"

struct topic {
	struct topic *next;
	char name[64];
	int32_t partition_count;
	struct kafka_record *logs[CLUSTER_PARTITIONS_MAX];
	int64_t ends[CLUSTER_PARTITIONS_MAX];
};

struct group {
	struct group *next;
	struct sim_cluster *cluster;
	char name[64], topic[64];
	int64_t committed[CLUSTER_PARTITIONS_MAX];
	int64_t delivered[CLUSTER_PARTITIONS_MAX]; /* the highest ever handed out + 1 */
	struct kafka_handle *owners[CLUSTER_PARTITIONS_MAX];
	bool taken[CLUSTER_PARTITIONS_MAX]; /* the owner is to give it up */
	struct loop_timer rebalance;
};

/* A partition as a handle knows it. */
struct held {
	bool told;     /* the client was told that it has it */
	bool assigned; /* the client has answered */
	bool paused;
	int64_t position, fetched;
	struct loop_timer fetch;
	struct kafka_handle *handle;
};

struct queued {
	struct list link;
	struct kafka_event event;
	struct kafka_partition partitions[CLUSTER_PARTITIONS_MAX];
};

enum asked { ASKED_NOTHING, ASKED_ASSIGN, ASKED_REVOKE, ASKED_LOST };

struct kafka_handle {
	struct list link;
	struct sim_cluster *cluster;
	struct process *process;
	struct loop *loop;
	void (*ready)(void *user);
	void *user;
	struct group *group; /* NULL: a producer */
	char topic[64];
	bool closed, subscribed, in_group, joined, lost, missing_told, broken;
	uint32_t epoch; /* grows when it is thrown out of the group */
	int64_t seen_us;
	enum asked asked;
	bool asked_polled;
	struct held held[CLUSTER_PARTITIONS_MAX];
	struct list events; /* of struct queued */
	struct queued *shown;
	bool idle; /* poll said that there is nothing: ready() is due when there is */
	bool ready_posted;
	struct task ready_task;
	struct loop_timer rejoin, notice;
	int64_t op_due_us; /* what it has sent last arrives then: later things not before */
	uint32_t outstanding;
};

enum op_kind { OP_COMMIT, OP_UNASSIGN, OP_LEAVE, OP_PRODUCE, OP_REPORT };

/* Something under way from a handle to the broker, or back. */
struct op {
	struct list link;
	struct sim_cluster *cluster;
	struct kafka_handle *handle;
	enum op_kind kind;
	uint32_t epoch;
	struct loop_timer timer;
	struct kafka_partition partitions[CLUSTER_PARTITIONS_MAX];
	size_t partition_count;
	/* PRODUCE and REPORT */
	struct kafka_record record; /* in the cluster's arena */
	void *opaque;
	int64_t sent_us;
	bool reported; /* the sender was told already: purged, or gone */
	bool failed, unknown_topic;
};

struct sim_cluster_client {
	struct sim_cluster_client *next;
	struct sim_cluster *cluster;
	struct process *process;
};

struct sim_cluster {
	struct sim *sim;
	struct sim_cluster_settings settings;
	struct sim_cluster_stats stats;
	struct arena arena;
	bool up, calm;
	struct topic *topics;
	struct group *groups;
	struct sim_cluster_client *clients;
	struct list handles, ops;
	struct loop_timer start, beat;
};

/* cluster.c */
struct topic *topic_find(const struct sim_cluster *cluster, const char *name);
struct group *group_get(struct sim_cluster *cluster, const char *name);
void group_rebalance_soon(struct group *group);
void group_leave(struct kafka_handle *handle);
/* Sends it; later ones of the handle arrive later. */
struct op *op_send(struct kafka_handle *handle, enum op_kind kind);
void op_free(struct op *op);
int64_t topic_append(struct sim_cluster *cluster, struct topic *topic, int32_t partition,
		     const struct kafka_record *record);
void record_copy(struct arena *arena, struct kafka_record *to, const struct kafka_record *from);

/* client.c */
void handle_event(struct kafka_handle *handle, const struct kafka_event *event);
void handle_wake(struct kafka_handle *handle);
/* Asks the client for what it is to give up, or gives it what it got. */
void handle_advance(struct kafka_handle *handle);
void handle_fetch(struct kafka_handle *handle, int32_t partition);
/* Thrown out of the group, which it learns a little later. */
void handle_evicted(struct kafka_handle *handle);
void handle_free(struct kafka_handle *handle);

#endif
