/* SPDX-License-Identifier: Apache-2.0 */
/* Which properties, topics and groups go together with the way the engine consumes. */
#include <stdio.h>

#include "tests/support/testing.h"
#include "transports/kafka/probe.h"

#define HOUR_MS (3600 * INT64_C(1000))

static const struct kafka_cluster_facts cluster = {
	.brokers = 3, .group_min_session_ms = 6000, .group_max_session_ms = 1800000, .offsets_retention_min = 10080};
static const struct kafka_topic_facts good = {.exists = true, .partitions = 4, .replicas = 3, .has_settings = true,
					      .retention_ms = 168 * HOUR_MS, .max_message_bytes = 1048588, .min_insync = 2,
					      .lag = 7};
static const struct probe_channel orders = {.tenant = "default", .channel = "orders", .bind = "orders", .group = "g",
					    .is_inbound = true, .payload_cap_bytes = 10485760, .longest_hold_ms = 30000};

static void properties_judge(const char *name, const char *value, const struct kafka_cluster_facts *facts,
			     struct report *report)
{
	const char *const names[] = {name}, *const values[] = {value};
	const struct transport_connection connection = {.name = "kafka", .property_names = names, .property_values = values,
							.property_count = name ? 1 : 0};

	kafka_judge_properties(&connection, facts, report);
}

static const struct {
	const char *name, *value, *check;
	enum severity severity;
} properties[] = {
	{NULL, NULL, NULL, SEVERITY_INFO},
	{"auto.offset.reset", "earliest", NULL, SEVERITY_INFO},
	{"auto.offset.reset", "latest", "offset-reset", SEVERITY_WARNING},
	{"auto.offset.reset", "largest", "offset-reset", SEVERITY_WARNING},
	{"isolation.level", "read_uncommitted", "isolation", SEVERITY_WARNING},
	{"group.instance.id", "one", "static-member", SEVERITY_WARNING},
	{"statistics.interval.ms", "0", "statistics", SEVERITY_WARNING},
	{"message.timeout.ms", "5000", "message-timeout", SEVERITY_WARNING},
	{"message.timeout.ms", "0", NULL, SEVERITY_INFO},
	{"session.timeout.ms", "9000", NULL, SEVERITY_INFO},
	{"session.timeout.ms", "400000", "session-long", SEVERITY_WARNING},
	{"session.timeout.ms", "1800001", "session-refused", SEVERITY_ERROR},
	{"heartbeat.interval.ms", "15001", "heartbeat-slow", SEVERITY_WARNING},
};

START_TEST(properties_given)
{
	const struct report_entry *entry;
	struct report report;

	report_init(&report);
	properties_judge(properties[_i].name, properties[_i].value, &cluster, &report);
	ck_assert_uint_eq(report.errors, properties[_i].severity == SEVERITY_ERROR);
	ck_assert_uint_eq(report.warnings, properties[_i].severity == SEVERITY_WARNING);
	if (properties[_i].check) {
		entry = report_find(&report, properties[_i].check, 0);
		ck_assert_ptr_nonnull(entry);
		ck_assert_int_eq(entry->code, CODE_CONFIG_CONNECTION_SUSPICIOUS);
		ck_assert_ptr_nonnull(entry->remedy);
	}
	report_done(&report);
}
END_TEST

/* Brokers that tell nothing refuse nothing. */
START_TEST(properties_against_unknown_brokers)
{
	const struct kafka_cluster_facts unknown = {.brokers = 1, .group_min_session_ms = KAFKA_UNKNOWN,
						    .group_max_session_ms = KAFKA_UNKNOWN,
						    .offsets_retention_min = KAFKA_UNKNOWN};
	struct kafka_cluster_facts forgetful = cluster;
	struct report report;

	report_init(&report);
	properties_judge(NULL, NULL, &unknown, &report);
	ck_assert_uint_eq(report.warnings + report.errors, 0);
	forgetful.offsets_retention_min = 60;
	properties_judge(NULL, NULL, &forgetful, &report);
	ck_assert_ptr_nonnull(report_find(&report, "offsets-retention", 0));
	report_done(&report);
}
END_TEST

/* What each changes in the good topic. */
static void make_missing(struct kafka_topic_facts *topic)
{
	*topic = (struct kafka_topic_facts){.exists = false};
}

static void make_compacted(struct kafka_topic_facts *topic)
{
	topic->compacts = true;
}

static void make_short(struct kafka_topic_facts *topic)
{
	topic->retention_ms = 2 * HOUR_MS;
}

static void make_shorter(struct kafka_topic_facts *topic)
{
	topic->retention_ms = 60000;
}

static void make_endless(struct kafka_topic_facts *topic)
{
	topic->retention_ms = -1;
}

static void make_large(struct kafka_topic_facts *topic)
{
	topic->max_message_bytes = (int64_t)orders.payload_cap_bytes + 1;
}

static void make_single(struct kafka_topic_facts *topic)
{
	topic->replicas = 1;
}

static void make_lax(struct kafka_topic_facts *topic)
{
	topic->min_insync = 1;
}

static void make_unread(struct kafka_topic_facts *topic)
{
	*topic = (struct kafka_topic_facts){.exists = true, .partitions = 1, .replicas = 3, .lag = KAFKA_UNKNOWN};
}

static void make_foreign(struct kafka_topic_facts *topic)
{
	topic->members = 2;
	snprintf(topic->assignor, sizeof(topic->assignor), "range");
}

static void make_shared(struct kafka_topic_facts *topic)
{
	topic->members = 2;
	snprintf(topic->assignor, sizeof(topic->assignor), "cooperative-sticky");
}

static void make_expired(struct kafka_topic_facts *topic)
{
	topic->expired = 3;
}

static const struct {
	const char *check;
	enum severity severity;
	void (*make)(struct kafka_topic_facts *topic);
} topics[] = {
	{"topic-missing", SEVERITY_ERROR, make_missing},
	{"topic-compacted", SEVERITY_WARNING, make_compacted},
	{"retention-short", SEVERITY_WARNING, make_short},
	{"retention-short", SEVERITY_ERROR, make_shorter},
	{"topic", SEVERITY_INFO, make_endless},
	{"payload-cap", SEVERITY_WARNING, make_large},
	{"unreplicated", SEVERITY_WARNING, make_single},
	{"min-insync", SEVERITY_INFO, make_lax},
	{"settings-unread", SEVERITY_INFO, make_unread},
	{"group-assignor", SEVERITY_ERROR, make_foreign},
	{"lag", SEVERITY_INFO, make_shared},
	{"offsets-expired", SEVERITY_ERROR, make_expired},
};

START_TEST(inbound_topics)
{
	struct kafka_topic_facts topic = good;
	const struct report_entry *entry;
	struct report report;

	report_init(&report);
	topics[_i].make(&topic);
	kafka_judge_topic(&orders, &cluster, &topic, &report);
	entry = report_find(&report, topics[_i].check, 0);
	ck_assert_ptr_nonnull(entry);
	ck_assert_int_eq(entry->severity, topics[_i].severity);
	ck_assert(entry->severity == SEVERITY_INFO || entry->remedy);
	ck_assert_uint_eq(report.errors, topics[_i].severity == SEVERITY_ERROR);
	ck_assert_uint_eq(report.warnings, topics[_i].severity == SEVERITY_WARNING);
	report_done(&report);
}
END_TEST

/* Nothing of what is read matters to a topic that is only written. */
START_TEST(outbound_topics)
{
	struct probe_channel stock = orders;
	struct kafka_topic_facts topic = good;
	struct report report;

	report_init(&report);
	stock.is_inbound = false;
	topic.compacts = true;
	topic.retention_ms = 1000;
	topic.max_message_bytes = 100 << 20;
	kafka_judge_topic(&stock, &cluster, &topic, &report);
	ck_assert_uint_eq(report.errors + report.warnings, 0);
	topic.exists = false;
	kafka_judge_topic(&stock, &cluster, &topic, &report);
	ck_assert_int_eq(report_find(&report, "topic-missing", 0)->code, CODE_OUTBOUND_UNROUTABLE);
	report_done(&report);
}
END_TEST

static Suite *probe_suite(void)
{
	Suite *suite = suite_create("kafka probe");
	TCase *tcase = tcase_create("rules");

	tcase_add_loop_test(tcase, properties_given, 0, (int)ARRAY_LEN(properties));
	tcase_add_loop_test(tcase, inbound_topics, 0, (int)ARRAY_LEN(topics));
	TEST_ADD_ALL(tcase, properties_against_unknown_brokers, outbound_topics);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(probe_suite)
