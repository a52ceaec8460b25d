/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One replica: every part of the engine, built in order and torn down in reverse.
 *
 * Life cycle: service_new, service_start, service_stop, service_free, all on main. The seams decide what is real: threads,
 * PostgreSQL, librdkafka and rabbitmq-c in production; the simulator gives its own.
 */
#ifndef SUTRA_SERVICE_H
#define SUTRA_SERVICE_H

#include "base/arena.h"
#include "config/config.h"
#include "flow/delivery.h"
#include "flow/lane_set.h"
#include "outbox/outbox.h"
#include "roles/activation.h"
#include "store/store.h"
#include "transports/amqp/client.h"
#include "transports/kafka/client.h"

struct service_seams {
	struct runtime *runtime;
	/* NULL: PostgreSQL or memory, as the configuration says. Else makes the store's executor. */
	struct executor *(*executor_new)(void *user);
	/* NULL: librdkafka. */
	const struct kafka_client *kafka;
	void *kafka_cluster;
	/* NULL: rabbitmq-c. */
	const struct rabbit_client *rabbit;
	void *rabbit_broker;
	/* NULL: loaded from deployment.dir. Else the view to serve (a reference is taken). */
	struct view *view;
	/* Stands in for host and pid in owner ids; NULL: the real ones. */
	const char *host;
	void *user;
};

/* A consumer of this replica with its intake. */
struct service_channel {
	struct str tenant;
	const struct channel *channel;
	struct transport_connection *connection;
	struct intake *intake;
};

struct service_connection {
	struct transport_connection base;
	struct publisher *publisher;
	bool opened;
	char consume_name[32], publish_name[32];
};

struct roles;
struct admin;

struct service {
	const struct config *config;
	struct service_seams seams;
	struct arena arena; /* names that live as long as the service */
	struct loop *loop;  /* for ids, and for answers that nobody else waits for */
	char boot_id[ID_TEXT_SIZE];
	char owner_prefix[160]; /* <host ≤ 96>-<pid>-<8 hex> */
	char application[64];	/* sutra/<boot id> */
	int64_t started_us;
	bool memory_store;
	struct memory_database *memory;
	struct store *store;
	struct outbox *outbox;
	struct wake *wake;
	struct lane_set *lanes;
	struct activation *activation; /* NULL when the seams gave the view */
	struct view *view;
	struct service_connection *connections;
	uint32_t connection_count;
	struct service_channel *channels;
	uint32_t channel_count;
	uint32_t channels_running; /* atomic */
	struct roles *roles;
	struct admin *admin;
	bool ready; /* atomic: the lanes serve the view */
	bool store_started, outbox_started, roles_started;
	bool stop_is_unclean; /* something is still out: do not free, just exit */
	uint16_t admin_port;
};

/* Whether the settings go together: RESULT_FATAL with STARTUP_SETTINGS if not. */
enum result service_check_settings(const struct config *config, struct error *err) MUST_CHECK;
/* Checks and builds; opens nothing that talks yet. */
enum result service_new(const struct config *config, const struct service_seams *seams, struct service **out,
			struct error *err) MUST_CHECK;
/* The admin listener, first of all, so that probes see why the rest does not come. RESULT_FATAL: it cannot be bound. */
enum result service_start_listener(struct service *service, struct error *err) MUST_CHECK;
/* RESULT_AGAIN: the database is away (the caller tries again later); RESULT_FATAL: it cannot start. */
enum result service_check_database(struct service *service, struct error *err) MUST_CHECK;
/* Everything else. As service_check_database, which it does first. */
enum result service_start(struct service *service, struct error *err) MUST_CHECK;
/* Stops taking, finishes or gives back what is held, flushes the outbox, releases leases; bounded by shutdown.timeout. */
void service_stop(struct service *service);
void service_free(struct service **service);

#endif
