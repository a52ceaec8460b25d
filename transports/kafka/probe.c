/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a Kafka cluster, with librdkafka's calls that wait. The handle is a consumer's that never subscribes: it joins no group
 * and commits nothing. The metadata of all topics is asked for and not that of one, for which a broker might create it.
 */
#include "transports/kafka/probe.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>

#include "base/alloc.h"
#include "transports/kafka/settings.h"

/* Asking for the offsets of a partition is a request each. */
#define PARTITIONS_MAX 64

struct prober {
	const struct transport_connection *connection;
	struct report *report;
	int timeout_ms;
	rd_kafka_t *rk;
	const rd_kafka_metadata_t *metadata;
	struct kafka_cluster_facts cluster;
	char trouble[256]; /* what a broker's connection failed of, last */
};

static void on_log(const rd_kafka_t *rk UNUSED, int level UNUSED, const char *facility UNUSED, const char *text UNUSED)
{
	/* What matters comes by on_error or as the answer to a call. */
}

static void on_error(rd_kafka_t *rk UNUSED, int code, const char *reason, void *opaque)
{
	struct prober *p = opaque;

	/* That all of them are down follows one of these, and says less. */
	if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !*p->trouble)
		snprintf(p->trouble, sizeof(p->trouble), "%s", reason);
}

static rd_kafka_t *handle_new(struct prober *p, const char *group, struct error *err)
{
	const struct transport_connection *c = p->connection;
	rd_kafka_conf_t *conf;
	rd_kafka_t *rk;
	char text[256];

	if (kafka_settings_conf(group, c->property_names, c->property_values, c->property_count, &conf, err) != RESULT_OK)
		return NULL;
	rd_kafka_conf_set_log_cb(conf, on_log);
	rd_kafka_conf_set_error_cb(conf, on_error);
	rd_kafka_conf_set_opaque(conf, p);
	rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof(text));
	if (!rk) {
		rd_kafka_conf_destroy(conf);
		error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID, "%s", text);
	}
	return rk;
}

static void handle_free(rd_kafka_t *rk)
{
	rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

/* --- settings of brokers and topics --- */

/* The event that has the answer, or NULL. */
static rd_kafka_event_t *describe(struct prober *p, rd_kafka_ResourceType_t type, const char *name)
{
	rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(type, name);
	rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(p->rk, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
	rd_kafka_queue_t *queue = rd_kafka_queue_new(p->rk);
	rd_kafka_event_t *event;
	char text[128];

	rd_kafka_AdminOptions_set_request_timeout(options, p->timeout_ms, text, sizeof(text));
	rd_kafka_DescribeConfigs(p->rk, &resource, 1, options, queue);
	event = rd_kafka_queue_poll(queue, p->timeout_ms + 1000);
	rd_kafka_queue_destroy(queue);
	rd_kafka_AdminOptions_destroy(options);
	rd_kafka_ConfigResource_destroy(resource);
	if (event && rd_kafka_event_error(event)) {
		rd_kafka_event_destroy(event);
		return NULL;
	}
	return event;
}

/* Its entries; NULL if the user may not read them. */
static const rd_kafka_ConfigEntry_t **described(rd_kafka_event_t *event, size_t *count)
{
	const rd_kafka_DescribeConfigs_result_t *result = event ? rd_kafka_event_DescribeConfigs_result(event) : NULL;
	const rd_kafka_ConfigResource_t **resources;
	size_t resource_count = 0;

	*count = 0;
	if (!result)
		return NULL;
	resources = rd_kafka_DescribeConfigs_result_resources(result, &resource_count);
	if (resource_count == 0 || rd_kafka_ConfigResource_error(resources[0]))
		return NULL;
	return rd_kafka_ConfigResource_configs(resources[0], count);
}

static const char *entry_text(const rd_kafka_ConfigEntry_t **entries, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(rd_kafka_ConfigEntry_name(entries[i]), name) == 0) {
			const char *value = rd_kafka_ConfigEntry_value(entries[i]);

			return value ? value : "";
		}
	return "";
}

static int64_t entry_int(const rd_kafka_ConfigEntry_t **entries, size_t count, const char *name)
{
	int64_t value = KAFKA_UNKNOWN;

	return str_to_int64(str_of(entry_text(entries, count, name)), &value) ? value : KAFKA_UNKNOWN;
}

static void ask_cluster(struct prober *p)
{
	struct kafka_cluster_facts *cluster = &p->cluster;
	const rd_kafka_ConfigEntry_t **entries;
	rd_kafka_event_t *event;
	size_t count;
	char id[16];

	cluster->brokers = p->metadata->broker_cnt;
	snprintf(id, sizeof(id), "%d", p->metadata->broker_cnt ? (int)p->metadata->brokers[0].id : 0);
	event = describe(p, RD_KAFKA_RESOURCE_BROKER, id);
	entries = described(event, &count);
	cluster->group_min_session_ms = entry_int(entries, count, "group.min.session.timeout.ms");
	cluster->group_max_session_ms = entry_int(entries, count, "group.max.session.timeout.ms");
	cluster->offsets_retention_min = entry_int(entries, count, "offsets.retention.minutes");
	/* Only brokers before 4.0 have it. */
	snprintf(cluster->version, sizeof(cluster->version), "%s",
		 entry_text(entries, count, "inter.broker.protocol.version"));
	if (event)
		rd_kafka_event_destroy(event);
}

static void ask_settings(struct prober *p, const char *topic, struct kafka_topic_facts *facts)
{
	rd_kafka_event_t *event = describe(p, RD_KAFKA_RESOURCE_TOPIC, topic);
	const rd_kafka_ConfigEntry_t **entries;
	size_t count;

	entries = described(event, &count);
	facts->has_settings = entries != NULL;
	facts->compacts = strstr(entry_text(entries, count, "cleanup.policy"), "compact") != NULL;
	facts->retention_ms = entry_int(entries, count, "retention.ms");
	facts->max_message_bytes = entry_int(entries, count, "max.message.bytes");
	facts->min_insync = entry_int(entries, count, "min.insync.replicas");
	if (event)
		rd_kafka_event_destroy(event);
}

/* --- groups --- */

static void ask_members(struct prober *p, const char *group, struct kafka_topic_facts *facts)
{
	const struct rd_kafka_group_list *list = NULL;

	/* The newer call of the same purpose is not in librdkafka 1.9. */
	if (rd_kafka_list_groups(p->rk, group, &list, p->timeout_ms) != RD_KAFKA_RESP_ERR_NO_ERROR || !list)
		return;
	for (int i = 0; i < list->group_cnt; i++) {
		const struct rd_kafka_group_info *info = &list->groups[i];

		if (info->err || strcmp(info->group, group) != 0)
			continue;
		facts->members = info->member_cnt;
		if (info->member_cnt && info->protocol)
			snprintf(facts->assignor, sizeof(facts->assignor), "%s", info->protocol);
	}
	rd_kafka_group_list_destroy(list);
}

static void ask_lag(struct prober *p, rd_kafka_t *rk, const char *topic, struct kafka_topic_facts *facts)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(facts->partitions);
	int count = facts->partitions < PARTITIONS_MAX ? facts->partitions : PARTITIONS_MAX;

	for (int i = 0; i < count; i++)
		rd_kafka_topic_partition_list_add(list, topic, i);
	if (rd_kafka_committed(rk, list, p->timeout_ms) != RD_KAFKA_RESP_ERR_NO_ERROR)
		list->cnt = 0;
	for (int i = 0; i < list->cnt; i++) {
		int64_t offset = list->elems[i].offset, low, high;

		if (offset < 0 || list->elems[i].err ||
		    rd_kafka_query_watermark_offsets(rk, topic, list->elems[i].partition, &low, &high, p->timeout_ms))
			continue;
		if (facts->lag == KAFKA_UNKNOWN)
			facts->lag = 0;
		facts->lag += high - offset;
		if (low > offset)
			facts->expired += low - offset;
	}
	rd_kafka_topic_partition_list_destroy(list);
}

static void ask_group(struct prober *p, const struct probe_channel *channel, struct kafka_topic_facts *facts)
{
	struct error err = ERROR_INIT;
	rd_kafka_t *rk = handle_new(p, channel->group, &err);

	ask_members(p, channel->group, facts);
	if (!rk)
		return;
	ask_lag(p, rk, channel->bind, facts);
	handle_free(rk);
}

/* --- all of it --- */

static const rd_kafka_metadata_topic_t *topic_find(const struct prober *p, const char *name)
{
	for (int i = 0; i < p->metadata->topic_cnt; i++)
		if (strcmp(p->metadata->topics[i].topic, name) == 0 && !p->metadata->topics[i].err)
			return &p->metadata->topics[i];
	return NULL;
}

static void probe_topic(struct prober *p, const struct probe_channel *channel)
{
	const rd_kafka_metadata_topic_t *topic = topic_find(p, channel->bind);
	struct kafka_topic_facts facts = {.exists = topic != NULL, .lag = KAFKA_UNKNOWN};

	if (topic) {
		facts.partitions = topic->partition_cnt;
		facts.replicas = topic->partition_cnt ? topic->partitions[0].replica_cnt : 0;
		ask_settings(p, channel->bind, &facts);
		if (channel->is_inbound)
			ask_group(p, channel, &facts);
	}
	kafka_judge_topic(channel, &p->cluster, &facts, p->report);
}

static bool probe_cluster(struct prober *p)
{
	rd_kafka_resp_err_t code = rd_kafka_metadata(p->rk, 1, NULL, &p->metadata, p->timeout_ms);
	struct report *report = p->report;

	if (code) {
		/* Hands out what was noticed meanwhile. */
		while (rd_kafka_poll(p->rk, 0) > 0)
			;
		report_add(report, SEVERITY_ERROR, CODE_STARTUP_BROKER, "broker-unreachable", NULL, "%s",
			   *p->trouble ? p->trouble : rd_kafka_err2str(code));
		report_remedy(report, "start the brokers; check bootstrap.servers, security.protocol and the credentials");
		return false;
	}
	ask_cluster(p);
	report_add(report, SEVERITY_INFO, CODE_NONE, "broker", NULL, "%d brokers, %d topics%s%s", p->cluster.brokers,
		   p->metadata->topic_cnt, *p->cluster.version ? ", protocol version " : "", p->cluster.version);
	return true;
}

void kafka_probe(const struct transport_connection *connection, const struct probe_question *question,
		 struct report *report)
{
	struct prober p = {.connection = connection, .report = report, .timeout_ms = (int)question->timeout_ms};
	struct error err = ERROR_INIT;

	p.rk = handle_new(&p, "sutra.doctor", &err);
	if (!p.rk) {
		report_add(report, SEVERITY_ERROR, err.code, "connection-invalid", NULL, "%s", err.text);
		report_remedy(report, "correct the property; docs/kafka.md lists the fixed ones");
		return;
	}
	if (probe_cluster(&p)) {
		kafka_judge_properties(connection, &p.cluster, report);
		for (size_t i = 0; i < question->channel_count; i++)
			probe_topic(&p, &question->channels[i]);
		rd_kafka_metadata_destroy(p.metadata);
	}
	handle_free(p.rk);
}
