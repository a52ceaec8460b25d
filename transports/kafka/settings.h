/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The properties that librdkafka is given: what the guarantees rest on is fixed, what is merely better than the library's
 * default can be overridden by the connection. Only client_rdkafka.c uses this.
 *
 * Life cycle: a conf goes to rd_kafka_new, or rd_kafka_conf_destroy. Threads: any.
 */
#ifndef SUTRA_TRANSPORTS_KAFKA_SETTINGS_H
#define SUTRA_TRANSPORTS_KAFKA_SETTINGS_H

#include <librdkafka/rdkafka.h>

#include "base/error.h"

/* The conf of a consumer of this group, or of a producer if `group` is NULL. RESULT_REJECT with CONFIG_PROPERTY_INVALID: a
 * property is unknown, has a wrong value or is one of the fixed. */
enum result kafka_settings_conf(const char *group, const char *const *names, const char *const *values, size_t count,
				rd_kafka_conf_t **out, struct error *err) MUST_CHECK;

#endif
