/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's configuration: one option table (options.def in this folder) drives file parsing, environment
 * names, `sutra config` and the reference page docs/configuration.md.
 *
 * Sources, strongest first: environment (SUTRA_…), file (libconfig), default. Keys are written without the "sutra."
 * prefix: "outbox.retry.base-delay".
 *
 * Life cycle: config_load makes an immutable object, config_free ends it. Threads: read-only after load, any thread.
 * All strings returned are borrowed from the config.
 */
#ifndef SUTRA_CONFIG_CONFIG_H
#define SUTRA_CONFIG_CONFIG_H

#include <stdio.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct config;

struct config_findings {
	struct buf
		text; /* one line a finding: "file:line: SUTRA.CONFIG.…: text", or "environment: SUTRA_…: …" */
	unsigned errors;
	unsigned warnings;
};

/*
 * `path` NULL: SUTRA_CONFIG, else ./sutra.conf, else /etc/sutra/sutra.conf, else none at all. `environ_` is a NULL-terminated
 * "NAME=value" array (pass environ). Secret references are resolved here. On RESULT_REJECT `findings` says everything
 * that is wrong; warnings may be there on success too.
 */
enum result config_load(const char *path, char *const *environ_, struct config **out,
			struct config_findings *findings) MUST_CHECK;
/*
 * The same over the text of a file that findings call `name`; without @include. For embedded defaults and tests.
 */
enum result config_load_text(const char *name, struct str text, char *const *environ_,
			     struct config **out, struct config_findings *findings) MUST_CHECK;
/* Accepts NULL inside; leaves NULL. */
void config_free(struct config **config);

/* Options that the table declares; asking for an undeclared key or the wrong type is an assertion. */
/* Unset: NULL, -1, false. */
const char *config_text(const struct config *config, const char *key);
int64_t config_int(const struct config *config, const char *key);
bool config_bool(const struct config *config, const char *key);
int64_t config_ms(const struct config *config, const char *key); /* a duration */
bool config_is_set(const struct config *config,
		   const char *key); /* false for an option without default and value */
/* Whether the file or the environment says it, even if that is the default. */
bool config_is_chosen(const struct config *config, const char *key);

/* connections.<name> */
struct config_connection {
	const char *name;
	const char *transport; /* "kafka", "amqp" */
	/* kafka: librdkafka properties, secrets resolved */
	const char *const *property_names;
	const char *const *property_values;
	size_t property_count;
	/* amqp */
	const char *url, *password, *management_url, *ca_file, *cert_file, *key_file;
	int64_t heartbeat_s, consumer_timeout_ms;
};
size_t config_connection_count(const struct config *config);
const struct config_connection *config_connection_at(const struct config *config, size_t index);
/* NULL if there is none of this name. */
const struct config_connection *config_connection_find(const struct config *config,
						       struct str name);

/* tenants.<name>; -1 = unlimited */
struct config_tenant {
	const char *name;
	int64_t max_concurrent_instances;
	int64_t max_inbound_rate_per_minute;
};
size_t config_tenant_count(const struct config *config);
const struct config_tenant *config_tenant_at(const struct config *config, size_t index);
const struct config_tenant *config_tenant_find(const struct config *config, struct str name);

/* The effective configuration with the origin of each value, secrets masked. */
void config_print(const struct config *config, bool json, FILE *out);
/* docs/configuration.md from the table. */
void config_reference(FILE *out);

/* "env:NAME" or "secret:KEY" resolved into `out`; a text without these prefixes as it is. */
enum result config_secret(const char *secrets_dir, const char *reference, struct buf *out,
			  struct error *err) MUST_CHECK;

#endif
