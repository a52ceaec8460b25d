/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-process broker: librdkafka's mock cluster, which needs a client handle to live in. That handle does nothing else;
 * its log goes into a queue that nobody reads, so no code of ours runs on its threads.
 */
#include "transports/kafka/mock.h"

#ifdef HAVE_KAFKA

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "base/alloc.h"

struct kafka_mock {
	rd_kafka_t *rk;
	rd_kafka_mock_cluster_t *cluster;
};

enum result kafka_mock_start(struct kafka_mock **out, struct error *err)
{
	struct kafka_mock *mock = mem_zalloc(sizeof(*mock));
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char text[300] = "";

	if (rd_kafka_conf_set(conf, "log.queue", "true", text, sizeof(text)) == RD_KAFKA_CONF_OK &&
	    rd_kafka_conf_set(conf, "client.id", "sutra-mock", text, sizeof(text)) == RD_KAFKA_CONF_OK)
		mock->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
	if (!mock->rk)
		rd_kafka_conf_destroy(conf);
	else
		mock->cluster = rd_kafka_mock_cluster_new(mock->rk, 1);
	if (!mock->cluster) {
		kafka_mock_stop(&mock);
		return error_set(err, RESULT_FATAL, CODE_CONFIG_PROPERTY_INVALID, "the mock broker cannot start: %s",
				 text);
	}
	*out = mock;
	return RESULT_OK;
}

const char *kafka_mock_bootstrap(const struct kafka_mock *mock)
{
	return rd_kafka_mock_cluster_bootstraps(mock->cluster);
}

enum result kafka_mock_topic(struct kafka_mock *mock, const char *topic, int partitions, struct error *err)
{
	rd_kafka_resp_err_t code = rd_kafka_mock_topic_create(mock->cluster, topic, partitions, 1);

	if (code)
		return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID, "topic '%s': %s", topic,
				 rd_kafka_err2str(code));
	return RESULT_OK;
}

void kafka_mock_stop(struct kafka_mock **mock)
{
	if (!*mock)
		return;
	if ((*mock)->cluster)
		rd_kafka_mock_cluster_destroy((*mock)->cluster);
	if ((*mock)->rk)
		rd_kafka_destroy((*mock)->rk);
	free(*mock);
	*mock = NULL;
}

#else

enum result kafka_mock_start(struct kafka_mock **out UNUSED, struct error *err)
{
	return error_set(err, RESULT_FATAL, CODE_CONFIG_CHANNEL_UNSUPPORTED, "this build has no Kafka");
}

const char *kafka_mock_bootstrap(const struct kafka_mock *mock UNUSED)
{
	return "";
}

enum result kafka_mock_topic(struct kafka_mock *mock UNUSED, const char *topic UNUSED, int partitions UNUSED,
			     struct error *err)
{
	return error_set(err, RESULT_FATAL, CODE_CONFIG_CHANNEL_UNSUPPORTED, "this build has no Kafka");
}

void kafka_mock_stop(struct kafka_mock **mock)
{
	*mock = NULL;
}

#endif
