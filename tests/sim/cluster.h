/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated Kafka cluster, behind the same client seam as librdkafka: topics with partitions, consumer groups with
 * cooperative rebalances, committed offsets, producers with delivery reports.
 *
 * What may happen, by itself at the rates of the settings or because the world says so: commits fail; a produced record is
 * refused, or is there although its report says that it failed; the broker is away; a member that is dead or paused for
 * longer than the session timeout loses its partitions, and learns of it later; partitions move for no reason.
 *
 * Life cycle: sim_cluster_new, one sim_cluster_client a process (the seam's `cluster`), sim_cluster_free when nothing runs
 * any more. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_CLUSTER_H
#define SUTRA_TESTS_SIM_CLUSTER_H

#include "base/list.h"
#include "tests/sim/runtime.h"
#include "transports/kafka/client.h"

#define CLUSTER_PARTITIONS_MAX 8

struct sim_cluster;
struct sim_cluster_client;

struct sim_cluster_settings {
	int64_t latency_max_us;
	int64_t session_timeout_us;
	uint32_t commit_fails_per_million;
	uint32_t produce_fails_per_million;   /* refused: it is not there */
	uint32_t produce_unknown_per_million; /* reported as failed, but it is there */
	/* Planted bugs. */
	bool ack_before_commit; /* delivered is committed */
	bool offset_past_hole;  /* a commit goes to the last record delivered */
	bool confirm_early;     /* produced is reported delivered, and some of it is lost */
	/* A group's committed offset of a partition goes from `from` to `to`. */
	void (*committed)(void *user, const char *topic, int32_t partition, int64_t from,
			  int64_t to);
	void (*appended)(void *user, const char *topic, int32_t partition, int64_t offset);
	void *user;
};

struct sim_cluster *sim_cluster_new(struct sim *sim, const struct sim_cluster_settings *settings);
void sim_cluster_free(struct sim_cluster **cluster);

/* Until it is made, a topic is missing. */
void sim_cluster_topic_make(struct sim_cluster *cluster, const char *name, int32_t partitions);
/* A record of somebody else's. `partition` -1: by its key. Copies. Returns the offset; *out the partition. */
int64_t sim_cluster_append(struct sim_cluster *cluster, const char *topic, int32_t partition,
			   const struct kafka_record *record, int32_t *out);
int32_t sim_cluster_partitions(const struct sim_cluster *cluster, const char *topic);
int64_t sim_cluster_end(const struct sim_cluster *cluster, const char *topic, int32_t partition);
/* Borrowed; lives as long as the cluster. */
const struct kafka_record *sim_cluster_record(const struct sim_cluster *cluster, const char *topic,
					      int32_t partition, int64_t offset);
/* 0 if nothing was committed. */
int64_t sim_cluster_committed(const struct sim_cluster *cluster, const char *topic,
			      int32_t partition);

/* A process's own view of the cluster. */
struct sim_cluster_client *sim_cluster_client_new(struct sim_cluster *cluster,
						  struct process *process);
extern const struct kafka_client sim_kafka_client;

void sim_cluster_calm(struct sim_cluster *cluster);
void sim_cluster_down(struct sim_cluster *cluster, int64_t down_us);
bool sim_cluster_is_up(const struct sim_cluster *cluster);
/* Moves partitions about. */
void sim_cluster_rebalance(struct sim_cluster *cluster);
/* Throws this process out of its groups, as after a timeout. */
void sim_cluster_evict(struct sim_cluster *cluster, const struct process *process);
/* One of its handles reports a fatal error. */
void sim_cluster_break(struct sim_cluster *cluster, const struct process *process);
/* The process is gone. */
void sim_cluster_forget(struct sim_cluster *cluster, const struct process *process);

struct sim_cluster_stats {
	uint64_t appended, produced, commits, commit_failures, rebalances, evictions,
		produce_failures, redelivered;
};
const struct sim_cluster_stats *sim_cluster_stats(const struct sim_cluster *cluster);

/* The header's value; absent if there is none. */
struct str kafka_record_header(const struct kafka_record *record, const char *name);

#endif
