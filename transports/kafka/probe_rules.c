/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which properties, topics and groups go together with the way the engine consumes: a committed offset stays below a held
 * record, for minutes or for hours, and what is below it must still be there when a replica reads it again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "transports/kafka/kafka.h"
#include "transports/kafka/probe.h"

#define SECOND_MS INT64_C(1000)
#define HOUR_MS (3600 * SECOND_MS)
#define DAY_MS (24 * HOUR_MS)
/* librdkafka's defaults. */
#define SESSION_DEFAULT_MS 45000
#define HEARTBEAT_DEFAULT_MS 3000

static const char *property(const struct transport_connection *connection, const char *name)
{
	const char *value = NULL;

	for (size_t i = 0; i < connection->property_count; i++)
		if (strcmp(connection->property_names[i], name) == 0)
			value = connection->property_values[i];
	return value;
}

static bool property_is(const struct transport_connection *connection, const char *name, const char *value)
{
	const char *have = property(connection, name);

	return have && strcmp(have, value) == 0;
}

static void suspicious(struct report *report, const char *check, const char *name, const char *text, const char *remedy)
{
	char object[128];

	snprintf(object, sizeof(object), "property %s", name);
	report_add(report, SEVERITY_WARNING, CODE_CONFIG_CONNECTION_SUSPICIOUS, check, object, "%s", text);
	report_remedy(report, "%s", remedy);
}

static void judge_session(const struct transport_connection *connection, const struct kafka_cluster_facts *cluster,
			  struct report *report)
{
	int64_t session_ms = kafka_property_int(connection, "session.timeout.ms", SESSION_DEFAULT_MS);
	int64_t heartbeat_ms = kafka_property_int(connection, "heartbeat.interval.ms", HEARTBEAT_DEFAULT_MS);

	if ((cluster->group_min_session_ms != KAFKA_UNKNOWN && session_ms < cluster->group_min_session_ms) ||
	    (cluster->group_max_session_ms != KAFKA_UNKNOWN && session_ms > cluster->group_max_session_ms)) {
		report_add(report, SEVERITY_ERROR, CODE_CONFIG_CONNECTION_SUSPICIOUS, "session-refused",
			   "property session.timeout.ms",
			   "%" PRId64 " ms: the brokers allow %" PRId64 " to %" PRId64 " ms and let no consumer join", session_ms,
			   cluster->group_min_session_ms, cluster->group_max_session_ms);
		report_remedy(report, "choose a value between them (group.min.session.timeout.ms, "
				      "group.max.session.timeout.ms of the brokers)");
	} else if (session_ms < 6 * SECOND_MS) {
		suspicious(report, "session-short", "session.timeout.ms",
			   "under 6 s: a short pause of a replica costs it its partitions, and their records are read again",
			   "leave it at its default of 45000");
	} else if (session_ms > 300 * SECOND_MS) {
		suspicious(report, "session-long", "session.timeout.ms",
			   "over 5 min: that long nobody consumes the partitions of a replica that has died",
			   "leave it at its default of 45000");
	}
	if (heartbeat_ms * 3 > session_ms)
		suspicious(report, "heartbeat-slow", "heartbeat.interval.ms",
			   "over a third of session.timeout.ms: one that is late ends the session",
			   "set it to a third of session.timeout.ms or less");
}

void kafka_judge_properties(const struct transport_connection *connection, const struct kafka_cluster_facts *cluster,
			    struct report *report)
{
	static const char *const to_end[] = {"latest", "largest", "end"};

	for (size_t i = 0; i < ARRAY_LEN(to_end); i++)
		if (property_is(connection, "auto.offset.reset", to_end[i]) ||
		    property_is(connection, "topic.auto.offset.reset", to_end[i]))
			suspicious(report, "offset-reset", "auto.offset.reset",
				   "a new group, and one whose offset fell off retention, begins at the end: what is in the topic "
				   "is skipped without a word",
				   "take it out; the engine begins at the earliest record");
	if (property_is(connection, "isolation.level", "read_uncommitted"))
		suspicious(report, "isolation", "isolation.level",
			   "records of transactions that were aborted would start instances",
			   "take it out; the engine reads committed records");
	if (property(connection, "group.instance.id"))
		suspicious(report, "static-member", "group.instance.id",
			   "replicas with the same one throw each other out of the group",
			   "give each replica its own, by the environment");
	if (kafka_property_int(connection, "statistics.interval.ms", 1) == 0)
		suspicious(report, "statistics", "statistics.interval.ms",
			   "0: lag and the state of the brokers are read from the statistics", "take it out");
	if (kafka_property_int(connection, "message.timeout.ms", 60 * SECOND_MS) < 10 * SECOND_MS &&
	    kafka_property_int(connection, "message.timeout.ms", 60 * SECOND_MS) > 0)
		suspicious(report, "message-timeout", "message.timeout.ms",
			   "under 10 s: publishing fails whenever a broker restarts", "leave it at its default of 60000");
	judge_session(connection, cluster, report);
	if (cluster->offsets_retention_min != KAFKA_UNKNOWN && cluster->offsets_retention_min < 24 * 60) {
		report_add(report, SEVERITY_WARNING, CODE_CONFIG_CONNECTION_SUSPICIOUS, "offsets-retention", NULL,
			   "the brokers forget the offsets of a group without members after %" PRId64 " min: after a longer stop "
			   "everything in the topics is read again",
			   cluster->offsets_retention_min);
		report_remedy(report, "raise offsets.retention.minutes of the brokers above any stop, and keep inbox.retention "
				      "above the topics' retention");
	}
}

static void judge_retention(const struct probe_channel *channel, const char *object,
			    const struct kafka_topic_facts *topic, struct report *report)
{
	if (topic->compacts) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "topic-compacted", object,
			   "cleanup.policy has compact: a record is removed once a later one has its key, also while it is held or "
			   "waits to be read");
		report_remedy(report, "use cleanup.policy=delete for topics whose every record is an event");
	}
	if (topic->retention_ms < 0)
		return;
	if (topic->retention_ms <= channel->longest_hold_ms || topic->retention_ms < HOUR_MS) {
		report_add(report, SEVERITY_ERROR, CODE_INBOUND_SOURCE_SUSPICIOUS, "retention-short", object,
			   "retention.ms is %" PRId64 ": records may be removed while they are held, or during a restart",
			   topic->retention_ms);
		report_remedy(report, "raise retention.ms of the topic to days");
	} else if (topic->retention_ms < DAY_MS) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "retention-short", object,
			   "retention.ms is %" PRId64 ": an outage of that length loses records", topic->retention_ms);
		report_remedy(report, "raise retention.ms of the topic above the longest outage");
	}
}

static void judge_settings(const struct probe_channel *channel, const struct kafka_cluster_facts *cluster,
			   const char *object, const struct kafka_topic_facts *topic, struct report *report)
{
	if (!topic->has_settings) {
		report_add(report, SEVERITY_INFO, CODE_NONE, "settings-unread", object,
			   "its settings cannot be read: the user lacks DescribeConfigs");
		return;
	}
	if (cluster->brokers > 1 && topic->replicas == 1) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "unreplicated", object,
			   "it has one replica in a cluster of %d brokers: the loss of a disk loses its records",
			   cluster->brokers);
		report_remedy(report, "use a replication factor of 3 with min.insync.replicas=2");
	} else if (cluster->brokers > 2 && topic->min_insync == 1) {
		report_add(report, SEVERITY_INFO, CODE_NONE, "min-insync", object,
			   "min.insync.replicas is 1: a confirmed record may be on one broker only");
	}
	if (!channel->is_inbound)
		return;
	judge_retention(channel, object, topic, report);
	if (topic->max_message_bytes > 0 && (uint64_t)topic->max_message_bytes > channel->payload_cap_bytes) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "payload-cap", object,
			   "max.message.bytes is %" PRId64 ", the channel takes %" PRIu64 ": larger records become dead letters",
			   topic->max_message_bytes, channel->payload_cap_bytes);
		report_remedy(report, "raise payload-cap-bytes of the channel or codec.max-payload-bytes, or lower "
				      "max.message.bytes");
	}
}

static void judge_group(const struct probe_channel *channel, const struct kafka_topic_facts *topic,
			struct report *report)
{
	char object[300];

	snprintf(object, sizeof(object), "group %s", channel->group);
	if (*topic->assignor && strcmp(topic->assignor, "cooperative-sticky") != 0) {
		report_add(report, SEVERITY_ERROR, CODE_CONFIG_CONNECTION_SUSPICIOUS, "group-assignor", object,
			   "its %d members assign partitions by '%s', and the engine can join only by 'cooperative-sticky'",
			   topic->members, topic->assignor);
		report_remedy(report, "stop the other members, or give the channel a group of its own");
	}
	if (topic->expired > 0) {
		report_add(report, SEVERITY_ERROR, CODE_INBOUND_SOURCE_SUSPICIOUS, "offsets-expired", object,
			   "%" PRId64 " records behind its committed offsets are no longer in the topic", topic->expired);
		report_remedy(report, "find out what was lost; raise retention.ms of the topic");
	}
	if (topic->lag != KAFKA_UNKNOWN)
		report_add(report, SEVERITY_INFO, CODE_NONE, "lag", object, "%" PRId64 " records to read, %d members", topic->lag,
			   topic->members);
}

void kafka_judge_topic(const struct probe_channel *channel, const struct kafka_cluster_facts *cluster,
		       const struct kafka_topic_facts *topic, struct report *report)
{
	char object[300];

	snprintf(object, sizeof(object), "topic %s", channel->bind);
	if (!topic->exists) {
		report_add(report, SEVERITY_ERROR,
			   channel->is_inbound ? CODE_INBOUND_SOURCE_MISSING : CODE_OUTBOUND_UNROUTABLE, "topic-missing", object,
			   "it does not exist, or the user may not describe it; channel %s/%s needs it", channel->tenant,
			   channel->channel);
		report_remedy(report, "create it (kafka-topics.sh --create --topic %s --partitions …), or grant Describe; the "
				      "engine creates nothing",
			      channel->bind);
		return;
	}
	report_add(report, SEVERITY_INFO, CODE_NONE, "topic", object, "%d partitions, %d replicas%s", topic->partitions,
		   topic->replicas,
		   channel->is_inbound && topic->partitions == 1 ? "; one partition is consumed by one replica at a time" : "");
	judge_settings(channel, cluster, object, topic, report);
	if (channel->is_inbound)
		judge_group(channel, topic, report);
}
