/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An in-process broker that speaks the Kafka protocol (librdkafka's mock cluster), for `sutra dev`, the quickstart and quick
 * tests. Any client can connect; everything in it ends with it.
 *
 * Life cycle: kafka_mock_start, kafka_mock_stop. Threads: main; it runs on a thread of the library's.
 */
#ifndef SUTRA_TRANSPORTS_KAFKA_MOCK_H
#define SUTRA_TRANSPORTS_KAFKA_MOCK_H

#include "base/error.h"

struct kafka_mock;

/* RESULT_FATAL in a build without Kafka, or if the library refuses. */
enum result kafka_mock_start(struct kafka_mock **out, struct error *err) MUST_CHECK;
/* "127.0.0.1:43211"; borrowed. */
const char *kafka_mock_bootstrap(const struct kafka_mock *mock);
/* A topic with this many partitions; topics otherwise appear on first use with four. */
enum result kafka_mock_topic(struct kafka_mock *mock, const char *topic, int partitions, struct error *err) MUST_CHECK;
void kafka_mock_stop(struct kafka_mock **mock);

#endif
