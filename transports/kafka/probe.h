/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `sutra doctor` makes of a Kafka cluster: the rules, apart from the asking.
 *
 * Life cycle: none. Threads: pure functions, but kafka_probe.
 */
#ifndef SUTRA_TRANSPORTS_KAFKA_PROBE_H
#define SUTRA_TRANSPORTS_KAFKA_PROBE_H

#include "transports/transport.h"

/* Numbers that the brokers did not tell. */
#define KAFKA_UNKNOWN INT64_MIN

struct kafka_cluster_facts {
	int brokers;
	int64_t group_min_session_ms, group_max_session_ms;
	int64_t offsets_retention_min; /* how long a group without members keeps its offsets, minutes */
	char version[64];	       /* "" = not told */
};

struct kafka_topic_facts {
	bool exists;
	int partitions, replicas;
	bool has_settings; /* the user may read them; else what follows up to min_insync is unset */
	bool compacts;	   /* cleanup.policy */
	int64_t retention_ms; /* -1 = for ever */
	int64_t max_message_bytes, min_insync;
	/* Inbound: the channel's group. */
	int64_t lag;	      /* KAFKA_UNKNOWN: it has no offsets yet, or they were not told */
	int64_t expired;      /* records that were removed below the group's committed offsets */
	int members;
	char assignor[64];    /* what the members agreed on; "" = none */
};

/* Properties of the connection that work against the engine. */
void kafka_judge_properties(const struct transport_connection *connection, const struct kafka_cluster_facts *cluster,
			    struct report *report);
void kafka_judge_topic(const struct probe_channel *channel, const struct kafka_cluster_facts *cluster,
		       const struct kafka_topic_facts *topic, struct report *report);

/* transport.probe */
void kafka_probe(const struct transport_connection *connection, const struct probe_question *question,
		 struct report *report);

#endif
