/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Kafka transport as the registry knows it: checks the properties of a connection, makes consumers and publishers. Each
 * consumer has a client handle of its own (a group and a topic are a channel's); a connection has one producer.
 */
#include "transports/kafka/kafka.h"

#include "base/log.h"
#include "base/time.h"
#include "transports/kafka/probe.h"

/* Releases whose own notes advise against them. */
static const char *const unsafe_versions[] = {"2.5.0", "2.10.0"};

const struct kafka_client *kafka_client_of(const struct transport_connection *connection)
{
	return connection->kafka ? connection->kafka : &kafka_client_rdkafka;
}

int64_t kafka_property_int(const struct transport_connection *connection, const char *name, int64_t otherwise)
{
	int64_t value = otherwise;

	for (size_t i = 0; i < connection->property_count; i++)
		if (strcmp(connection->property_names[i], name) == 0 &&
		    !str_to_int64(str_of(connection->property_values[i]), &value))
			value = otherwise;
	return value;
}

int64_t kafka_backoff_us(struct loop *loop, int64_t *delay_ms)
{
	int64_t delay_us = *delay_ms * US_PER_MS;

	*delay_ms = *delay_ms * 2 > KAFKA_REBUILD_MAX_MS ? KAFKA_REBUILD_MAX_MS : *delay_ms * 2;
	/* Between half and all of it, so that replicas that failed together do not come back together. */
	return delay_us / 2 + (int64_t)loop_random_below(loop, (uint64_t)delay_us / 2 + 1);
}

static enum result kafka_open(struct transport_connection *connection, struct error *err)
{
	const struct kafka_client *client = kafka_client_of(connection);
	struct log_about about = {.stage = "delivery"};

	for (size_t i = 0; i < ARRAY_LEN(unsafe_versions); i++)
		if (str_equal(str_of(client->version()), str_of(unsafe_versions[i])))
			log_warning(&about,
				    "connection '%s': librdkafka %s has known defects; use the release after it",
				    connection->name, unsafe_versions[i]);
	if (!client->check)
		return RESULT_OK;
	return client->check(connection->kafka_cluster, connection->property_names, connection->property_values,
			     connection->property_count, err);
}

static void kafka_close(struct transport_connection *connection UNUSED)
{
	/* Handles belong to consumers and publishers, which have closed them. */
}

const struct transport transport_kafka = {
	.name = "kafka",
	.needs_connection = true,
	.open = kafka_open,
	.close = kafka_close,
	.consumer_new = kafka_consumer_new,
	.publisher_new = kafka_publisher_new,
	.probe = kafka_probe,
};
