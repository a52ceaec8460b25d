/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Kafka transport: its entry in the registry, and what its files know of each other. Everything here is above the client
 * seam (client.h) and the same over librdkafka and in the simulator.
 *
 * Threads: as transport.h says.
 */
#ifndef SUTRA_TRANSPORTS_KAFKA_KAFKA_H
#define SUTRA_TRANSPORTS_KAFKA_KAFKA_H

#include "transports/kafka/client.h"
#include "transports/transport.h"

extern const struct transport transport_kafka;

/* Handles that have failed are opened anew after this, doubled each time. */
#define KAFKA_REBUILD_MIN_MS 500
#define KAFKA_REBUILD_MAX_MS 30000

/* The client behind the connection: its own, or librdkafka. */
const struct kafka_client *kafka_client_of(const struct transport_connection *connection);
/* The number of this property, or `otherwise`. */
int64_t kafka_property_int(const struct transport_connection *connection, const char *name, int64_t otherwise);
/* The wait after this one, with jitter of the loop: *delay_ms is doubled up to KAFKA_REBUILD_MAX_MS. In microseconds. */
int64_t kafka_backoff_us(struct loop *loop, int64_t *delay_ms);

struct consumer *kafka_consumer_new(struct transport_connection *connection, const struct consumer_settings *settings,
				    struct consumer_sink *sink);
struct publisher *kafka_publisher_new(struct transport_connection *connection);

/* record.c: a message with copies of everything in the record. Never NULL; lease and link are not set. */
struct message *kafka_message_of(const struct kafka_record *record);

#endif
