/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replica as the admin listener sees it, on in-memory tables, and a client on a socket.
 *
 * Life cycle: world_setup/world_teardown around each test. Threads: the test's.
 */
#ifndef SUTRA_TESTS_UNIT_ADMIN_CLIENT_H
#define SUTRA_TESTS_UNIT_ADMIN_CLIENT_H

#include "admin/admin.h"
#include "tests/support/store_suite.h"

#define ADMIN_KEY "right-key"

struct world {
	struct memory_database *db;
	struct store_rig rig;
	struct wake *wake;
	struct lane_set *lanes;
	struct outbox *outbox;
	struct roles *roles;
	struct view *view; /* of one deployment with the processes `order` and `approval` */
	struct activation activation;
	struct activation_entry entries[2];
	struct admin_channel channels[2];
	uint32_t channel_count;
	/* What the first channel's intake is to tell of, the last question it was asked, and how many there were. The second channel
	 * has no intake. */
	struct inspected inspected[3];
	uint32_t inspected_count;
	struct inspection question;
	uint32_t questions;
	struct admin *admin;
	uint16_t port;
	const char *key; /* sent with each request; NULL: none */
};

extern struct world world;

void world_setup(void);
void world_teardown(void);
/* Ends the listener and starts it with other settings. */
void world_listen(const char *key, bool no_auth);
/* admin_loaded, after the deployment was put into the table. */
void world_load(void);
void world_put_deployment(const char *id, const char *tenant, const char *module,
			  const char *phase);

struct reply {
	int status;
	struct str head, body; /* in the rig's arena */
	msgpack_object json;   /* nil if the body is not JSON */
};
/* Sends these bytes, reads until the other side closes. Status 0: no answer. */
struct reply world_send(struct str bytes);
/* Sends these bytes and hangs up. */
void world_hang_up(struct str bytes);
struct reply world_request(const char *method, const char *target);
/* POST with a body, or NULL for none; it must give this status, and JSON. */
struct reply world_post(const char *target, const char *body, int status);
/* GET that must give this status, and JSON. */
struct reply world_get(const char *target, int status);
/* Value of a header of the reply; NULL if absent. */
const char *reply_header(const struct reply *reply, const char *name);

/* A member by a path such as "checks.0.data.shards"; fails the test if there is none. */
const msgpack_object *json_at(const msgpack_object *value, const char *path);
const char *json_text_at(const msgpack_object *value, const char *path);
int64_t json_int_at(const msgpack_object *value, const char *path);
bool json_bool_at(const msgpack_object *value, const char *path);
uint32_t json_count_at(const msgpack_object *value, const char *path);

#endif
