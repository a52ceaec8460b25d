/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of librdkafka handles, in three layers: our defaults, the connection's, what is fixed. docs/kafka.md lists
 * the first and the last for operators; whoever changes a line here changes it there.
 *
 * Fixed is what a guarantee rests on: offsets are committed by us alone and only behind finished records (G1, G2), partitions
 * come and go one by one, the producer neither reorders nor duplicates within its session, callbacks run on our loops.
 */
#include "transports/kafka/settings.h"

#include <string.h>

struct setting {
	const char *name;
	const char *value;
};

/* For both kinds of handle. */
static const struct setting defaults[] = {
	{"client.id", "sutra"},
	{"socket.nagle.disable", "true"},
	{"socket.keepalive.enable", "true"},
	/* A topic that did not exist is noticed within this time. */
	{"topic.metadata.refresh.interval.ms", "10000"},
};

static const struct setting consumer_defaults[] = {
	/* The committed offset may fall off retention while records are held: begin at what is left, never skip to the end. */
	{"auto.offset.reset", "earliest"},
	{"check.crcs", "true"},
	/* One record over this limit would stall its partition for ever; memory is bounded by the prefetch below. */
	{"receive.message.max.bytes", "2147483647"},
	{"queued.max.messages.kbytes", "16384"},
	{"statistics.interval.ms", "5000"},
};

static const struct setting producer_defaults[] = {
	/*
	 * Long against what a broker restart takes, since a message that times out in the client leaves a gap in the
	 * idempotent sequence; short against the outbox, which must hear within its patience that a row did not get out.
	 */
	{"message.timeout.ms", "60000"},
	/* An unknown topic is an answer after this time; 30 s would hold up the rows behind it. */
	{"topic.metadata.propagation.max.ms", "5000"},
	/* How large a message may be is the broker's to say: a dead letter is as large as what came in. */
	{"message.max.bytes", "1000000000"},
	{"linger.ms", "1"},
	/* The partitioner of Kafka's own clients, so that keys meet those of other producers. */
	{"partitioner", "murmur2_random"},
	{"statistics.interval.ms", "2000"},
};

/* A connection may repeat these, but not change them; without a value they may not be given at all. */
static const struct setting fixed[] = {
	{"log.queue", "true"},
	{"allow.auto.create.topics", "false"},
};

static const struct setting consumer_fixed[] = {
	{"group.id", NULL},
	{"enable.auto.commit", "false"},
	{"auto.commit.enable", "false"},
	{"enable.auto.offset.store", "false"},
	{"enable.partition.eof", "false"},
	{"partition.assignment.strategy", "cooperative-sticky"},
};

static const struct setting producer_fixed[] = {
	{"enable.idempotence", "true"},
	{"acks", "all"},
	{"request.required.acks", "all"},
	{"delivery.report.only.error", "false"},
	{"queuing.strategy", "fifo"},
	{"transactional.id", NULL},
};

/* Neither kind may be given these: they hold pointers, or a protocol that the consumer is not written for. */
static const char *const refused[] = {
	"default_topic_conf", "opaque", "enabled_events", "group.protocol", "interceptors",
};

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static enum result check_fixed(const struct setting *settings, size_t count, const char *name, const char *value,
			       struct error *err)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(settings[i].name, name) != 0)
			continue;
		if (!settings[i].value)
			return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
					 "Kafka property '%s' is set by the engine alone", name);
		if (strcmp(settings[i].value, value) != 0)
			return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
					 "Kafka property '%s' must be '%s': the engine's guarantees rest on it", name,
					 settings[i].value);
	}
	return RESULT_OK;
}

static enum result check_allowed(const char *name, const char *value, struct error *err)
{
	enum result result = check_fixed(fixed, ARRAY_LEN(fixed), name, value, err);

	if (result == RESULT_OK)
		result = check_fixed(consumer_fixed, ARRAY_LEN(consumer_fixed), name, value, err);
	if (result == RESULT_OK)
		result = check_fixed(producer_fixed, ARRAY_LEN(producer_fixed), name, value, err);
	if (result != RESULT_OK)
		return result;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		if (strcmp(refused[i], name) == 0)
			return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
					 "Kafka property '%s' cannot be set", name);
	if (ends_with(name, "_cb"))
		return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
				 "Kafka property '%s' cannot be set", name);
	return RESULT_OK;
}

static enum result conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct error *err)
{
	char text[300];

	if (rd_kafka_conf_set(conf, name, value, text, sizeof(text)) == RD_KAFKA_CONF_OK)
		return RESULT_OK;
	/* The library's text may repeat the value, which may be a password. */
	if (strstr(name, "password") || strstr(name, "secret") || strstr(name, "key") || strstr(name, "sasl"))
		return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID,
				 "Kafka property '%s' is unknown or its value is not allowed", name);
	return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID, "Kafka property '%s': %s", name, text);
}

static enum result conf_set_all(rd_kafka_conf_t *conf, const struct setting *settings, size_t count, struct error *err)
{
	enum result result = RESULT_OK;

	for (size_t i = 0; i < count && result == RESULT_OK; i++)
		if (settings[i].value)
			result = conf_set(conf, settings[i].name, settings[i].value, err);
	return result;
}

static enum result conf_fill(rd_kafka_conf_t *conf, const char *group, const char *const *names,
			     const char *const *values, size_t count, struct error *err)
{
	enum result result = conf_set_all(conf, defaults, ARRAY_LEN(defaults), err);

	if (result == RESULT_OK && group)
		result = conf_set_all(conf, consumer_defaults, ARRAY_LEN(consumer_defaults), err);
	else if (result == RESULT_OK)
		result = conf_set_all(conf, producer_defaults, ARRAY_LEN(producer_defaults), err);
	for (size_t i = 0; i < count && result == RESULT_OK; i++) {
		result = check_allowed(names[i], values[i], err);
		if (result == RESULT_OK)
			result = conf_set(conf, names[i], values[i], err);
	}
	if (result == RESULT_OK)
		result = conf_set_all(conf, fixed, ARRAY_LEN(fixed), err);
	if (result == RESULT_OK && group)
		result = conf_set_all(conf, consumer_fixed, ARRAY_LEN(consumer_fixed), err);
	else if (result == RESULT_OK)
		result = conf_set_all(conf, producer_fixed, ARRAY_LEN(producer_fixed), err);
	if (result == RESULT_OK && group)
		result = conf_set(conf, "group.id", group, err);
	return result;
}

enum result kafka_settings_conf(const char *group, const char *const *names, const char *const *values, size_t count,
				rd_kafka_conf_t **out, struct error *err)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	enum result result = conf_fill(conf, group, names, values, count, err);

	if (result == RESULT_OK)
		*out = conf;
	else
		rd_kafka_conf_destroy(conf);
	return result;
}
