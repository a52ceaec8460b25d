/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin listener: health, metrics, and the lists and single views of an operator. HTTP for people and probes, never a
 * data path.
 *
 * Life cycle: admin_start (binds; the port is known when it returns), admin_stop. Threads: main; requests run on threads
 * of the HTTP library's or a loop of its own, and only read what admin_sources lends.
 */
#ifndef SUTRA_ADMIN_ADMIN_H
#define SUTRA_ADMIN_ADMIN_H

#include "flow/inspect.h"
#include "flow/lane_set.h"
#include "outbox/outbox.h"
#include "roles/activation.h"
#include "roles/roles.h"
#include "store/store.h"

struct admin;

/* What /sutra/health/ready and /metrics say of one consumed channel; read by a callback so that admin need not know intakes. */
struct admin_channel {
	struct str tenant, channel, transport, bind;
	const char *state;  /* consumer_state_name */
	char detail[300];
	bool consuming;
	bool at_bounds; /* of holds, which `detail` says too */
	uint64_t received, committed, duplicate, refused, rejected, unmatched, unavailable, dropped, requeued, persisted, early, gone;
	uint64_t held, unsettled;
	uint64_t kept; /* by the database, for this replica */
	double oldest_held_seconds;
	int64_t lag; /* -1 = unknown */
};

struct admin_sources {
	struct store *store;
	struct lane_set *lanes;
	struct outbox *outbox;
	struct roles *roles;		/* may be NULL */
	const char *boot_id;
	const char *version;
	int64_t started_us;
	bool memory_store;
	int64_t claim_timeout_ms; /* instance.claim-timeout */
	/* @thread any */
	uint32_t (*channel_count)(void *user);
	void (*channel_read)(void *user, uint32_t index, struct admin_channel *out);
	/* Sends the question to the intake of the channel; false: it has none. NULL: there are no intakes. */
	bool (*channel_inspect)(void *user, uint32_t index, struct inspection *inspection);
	void *user;
};

struct admin_settings {
	const char *listen; /* "127.0.0.1:8080"; port 0 = any */
	const char *key;    /* the resolved admin key; NULL = unconfigured: /admin is 503 */
	const char *header; /* X-Api-Key */
	bool no_auth;	    /* admin.dev-no-auth */
};

/* RESULT_FATAL: the address cannot be bound. `port` gets the bound one. */
enum result admin_start(struct runtime *runtime, const struct admin_settings *settings, const struct admin_sources *sources,
			struct admin **out, uint16_t *port, struct error *err) MUST_CHECK;
/* The deployments are loaded and the lanes serve this view (a reference is taken; `activation` may be NULL, else outlives the
 * admin). Before it readiness is DOWN: "no view". @thread main */
void admin_loaded(struct admin *admin, struct view *view, const struct activation *activation);
void admin_stop(struct admin **admin);

#endif
