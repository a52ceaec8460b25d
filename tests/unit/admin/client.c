/* SPDX-License-Identifier: Apache-2.0 */
/* The replica and the client of the admin suites. */
#include "tests/unit/admin/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "tests/support/model_builder.h"

struct world world;

static uint32_t channel_count(void *user)
{
	return ((struct world *)user)->channel_count;
}

static void channel_read(void *user, uint32_t index, struct admin_channel *out)
{
	*out = ((struct world *)user)->channels[index];
}

static bool channel_inspect(void *user, uint32_t index, struct inspection *inspection)
{
	struct world *w = user;

	if (index != 0)
		return false;
	w->question = *inspection;
	w->questions++;
	inspection->found = w->inspected;
	inspection->count = inspection->matches = w->inspected_count;
	loop_post(inspection->reply_to, &inspection->done);
	return true;
}

static struct publisher *no_route(void *user UNUSED, struct str connection UNUSED)
{
	return NULL;
}

/* A user task, whose completion must bring a number, then a wait for a message. */
static void add_approval(struct model *model)
{
	model_channel(model, "approvals", CHANNEL_INBOUND);
	model_process(model, "approval");
	model_variable(model, "total", VARIABLE_ANY, NULL);
	model_node(model, "Begin", NODE_START);
	model_source(model, "approvals")->type_value = STR("begin");
	model_node(model, "Approve", NODE_USER);
	model_source(model, "approvals")->match = MATCH_UNIQUE;
	model_alias(model, "order", "payload.order", NULL, false);
	model_node(model, "Work", NODE_SCRIPT);
	model_script(model, "total = payload.total + 0");
	model_node(model, "Later", NODE_RECEIVE);
	model_source(model, "approvals")->type_value = STR("later");
	model_alias(model, "order", "payload.order", NULL, false);
	model_node(model, "Done", NODE_END);
	model_flow(model, "Begin", "Approve", NULL);
	model_flow(model, "Approve", "Work", NULL);
	model_flow(model, "Work", "Later", NULL);
	model_flow(model, "Later", "Done", NULL);
}

static struct view *view_of_order(void)
{
	struct model *model = model_new("acme");
	struct view_member member = {.phase = DEPLOYMENT_ACTIVE};
	struct buf findings = BUF_INIT;
	struct view *view = NULL;

	model_channel(model, "orders", CHANNEL_INBOUND);
	model_process(model, "order");
	model_variable(model, "card", VARIABLE_STRING, NULL)->sensitive = true;
	model_variable(model, "total", VARIABLE_INTEGER, NULL);
	model_variable(model, "strange", VARIABLE_ANY, NULL);
	model_node(model, "Start", NODE_START);
	model_source(model, "orders");
	model_node(model, "End", NODE_END);
	model_flow(model, "Start", "End", NULL);
	add_approval(model);
	member.deployment = model_deployment(model);
	model_free(&model);
	ck_assert_int_eq(view_build(1, &member, 1, &view, &findings), RESULT_OK);
	deployment_unref(&member.deployment);
	buf_done(&findings);
	return view;
}

static void build_lanes(void)
{
	struct lane_set_settings settings = {
		.lanes = 4,
		.executors = 2,
		.stall_timeout_ms = 60000,
		.owner_prefix = "host-1-abc",
		.expression_limits = EXPRESSION_LIMITS_DEFAULT,
		.decode = {VALUE_LIMITS_DEFAULT, 256},
		.max_step_nodes = 1000,
		.max_variables_bytes = 1 << 20,
	};

	world.wake = wake_new();
	world.lanes = lane_set_new(runtime_threads(), &settings, world.rig.store, world.outbox,
				   world.wake);
}

void world_listen(const char *key, bool no_auth)
{
	struct admin_settings settings = {
		.listen = "127.0.0.1:0", .key = key, .header = "X-Api-Key", .no_auth = no_auth};
	struct admin_sources sources = {
		.store = world.rig.store,
		.lanes = world.lanes,
		.outbox = world.outbox,
		.roles = world.roles,
		.boot_id = "boot-1",
		.version = "1.2.3",
		.started_us = 1000000,
		.memory_store = true,
		.channel_count = channel_count,
		.channel_read = channel_read,
		.channel_inspect = channel_inspect,
		.claim_timeout_ms = 60000,
		.user = &world,
	};
	struct error err = ERROR_INIT;

	admin_stop(&world.admin);
	ck_assert_msg(admin_start(runtime_threads(), &settings, &sources, &world.admin, &world.port,
				  &err) == RESULT_OK,
		      "%s", err.text);
	ck_assert_uint_ne(world.port, 0);
}

void world_setup(void)
{
	struct outbox_settings outbox = {
		.owner = "boot-1", .claim_timeout_ms = 60000, .tick_ms = 1000};
	struct roles_settings roles = {
		.holder = "boot-1", .lease_ttl_ms = 30000, .lease_poll_ms = 10000};
	struct store_settings settings = store_rig_settings();

	world = (struct world){.db = memory_database_new(), .key = ADMIN_KEY};
	settings.outbox_owner = NULL;
	store_rig_init(&world.rig, memory_executor_new(world.db, 2), &settings);
	world.outbox = outbox_new(runtime_threads(), world.rig.store, &outbox, no_route, NULL);
	build_lanes();
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &roles);
	world.view = view_of_order();
	world_listen(ADMIN_KEY, false);
}

void world_teardown(void)
{
	admin_stop(&world.admin);
	store_stop(world.rig.store);
	lane_set_stop(world.lanes);
	roles_free(&world.roles);
	lane_set_free(&world.lanes);
	outbox_free(&world.outbox);
	store_rig_done(&world.rig);
	wake_free(&world.wake);
	memory_database_free(&world.db);
	view_unref(&world.view);
}

void world_put_deployment(const char *id, const char *tenant, const char *module, const char *phase)
{
	rig_query(&world.rig, ",", true, STATEMENT_DEPLOYMENT_PUT, id, tenant, module, "1", phase,
		  "archive");
}

void world_load(void)
{
	const struct deployment *deployment = world.view->members[0].deployment;

	world.entries[0] = (struct activation_entry){
		.tenant = deployment->tenant,
		.module = deployment->module,
		.version = deployment->version,
		.phase = DEPLOYMENT_ACTIVE,
		.path = STR("/packages/order"),
	};
	snprintf(world.entries[0].id, sizeof(world.entries[0].id), "%.*s", STR_ARG(deployment->id));
	world.entries[1] = (struct activation_entry){.phase = DEPLOYMENT_FAILED,
						     .path = STR("/packages/bad"),
						     .reasons = STR("package.conf:1: broken\n")};
	world.activation = (struct activation){
		.entries = world.entries, .count = 2, .view = world.view};
	world_put_deployment(world.entries[0].id, "acme", "test", "Active");
	admin_loaded(world.admin, world.view, &world.activation);
}

/* --- client --- */

static int connect_to_listener(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(world.port)};
	struct timeval patience = {20, 0};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_ge(fd, 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void reply_parse(struct reply *reply, struct str bytes)
{
	const struct value_limits limits = VALUE_LIMITS_DEFAULT;
	struct error err = ERROR_INIT;
	char *end = strstr(bytes.ptr, "\r\n\r\n");

	reply->json = value_nil();
	if (!end || sscanf(bytes.ptr, "HTTP/1.%*c %d", &reply->status) != 1)
		return;
	reply->head = str_make(bytes.ptr, (size_t)(end - bytes.ptr) + 2);
	reply->body = str_make(end + 4, bytes.len - (size_t)(end + 4 - bytes.ptr));
	if (value_json_read(&world.rig.arena, reply->body, true, &limits, &reply->json, &err) !=
	    RESULT_OK)
		reply->json = value_nil();
}

struct reply world_send(struct str bytes)
{
	struct reply reply = {0};
	struct buf have = BUF_INIT;
	int fd = connect_to_listener();
	ssize_t got;

	/* The other side may hang up on garbage before it has read all of it. */
	if (send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL) >= 0)
		shutdown(fd, SHUT_WR);
	while ((got = recv(fd, buf_reserve(&have, 65536), 65536, 0)) > 0)
		have.len += (size_t)got;
	close(fd);
	reply_parse(&reply, arena_str(&world.rig.arena, have.len ? buf_str(&have) : STR("")));
	buf_done(&have);
	return reply;
}

void world_hang_up(struct str bytes)
{
	int fd = connect_to_listener();

	ck_assert_int_eq(send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL), (ssize_t)bytes.len);
	close(fd);
}

struct reply world_request(const char *method, const char *target)
{
	struct buf request = BUF_INIT;
	struct reply reply;

	buf_printf(&request, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", method,
		   target);
	if (world.key)
		buf_printf(&request, "X-Api-Key: %s\r\n", world.key);
	buf_add_text(&request, "\r\n");
	reply = world_send(buf_str(&request));
	buf_done(&request);
	return reply;
}

struct reply world_post(const char *target, const char *body, int status)
{
	struct buf request = BUF_INIT;
	struct reply reply;

	buf_printf(&request, "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n",
		   target, body ? strlen(body) : (size_t)0);
	if (world.key)
		buf_printf(&request, "X-Api-Key: %s\r\n", world.key);
	buf_printf(&request, "\r\n%s", body ? body : "");
	reply = world_send(buf_str(&request));
	buf_done(&request);
	ck_assert_msg(reply.status == status, "%s: %d: %.*s", target, reply.status, STR_ARG(reply.body));
	ck_assert_msg(!value_is_nil(&reply.json), "%s: no JSON: %.*s", target, STR_ARG(reply.body));
	return reply;
}

struct reply world_get(const char *target, int status)
{
	struct reply reply = world_request("GET", target);

	ck_assert_msg(reply.status == status, "%s: %d: %.*s", target, reply.status,
		      STR_ARG(reply.body));
	ck_assert_msg(!value_is_nil(&reply.json), "%s: no JSON: %.*s", target, STR_ARG(reply.body));
	return reply;
}

const char *reply_header(const struct reply *reply, const char *name)
{
	struct str rest = reply->head, wanted = str_of(name);

	while (rest.len) {
		ptrdiff_t end = str_find(rest, '\n');
		size_t line = end < 0 ? rest.len : (size_t)end;

		if (line > wanted.len + 2 && rest.ptr[wanted.len] == ':' &&
		    str_equal_nocase(str_make(rest.ptr, wanted.len), wanted))
			return arena_str(&world.rig.arena,
					 str_make(rest.ptr + wanted.len + 2, line - wanted.len - 3))
				.ptr;
		rest = str_make(rest.ptr + line + 1, rest.len - line - (end >= 0));
	}
	return NULL;
}

/* --- JSON --- */

const msgpack_object *json_at(const msgpack_object *value, const char *path)
{
	const msgpack_object *at = value;
	const char *rest = path;

	while (*rest) {
		size_t len = strcspn(rest, ".");
		struct str part = str_make(rest, len);
		int64_t index;

		if (at->type == MSGPACK_OBJECT_ARRAY && str_to_int64(part, &index))
			at = index < at->via.array.size ? &at->via.array.ptr[index] : NULL;
		else
			at = value_get(at, part);
		ck_assert_msg(at != NULL, "no %s", path);
		rest += len + (rest[len] == '.');
	}
	return at;
}

const char *json_text_at(const msgpack_object *value, const char *path)
{
	const msgpack_object *at = json_at(value, path);

	if (value_is_nil(at))
		return "null";
	ck_assert_int_eq(at->type, MSGPACK_OBJECT_STR);
	return arena_str(&world.rig.arena, value_as_str(at)).ptr;
}

int64_t json_int_at(const msgpack_object *value, const char *path)
{
	int64_t number = 0;

	ck_assert_msg(value_as_int(json_at(value, path), &number), "%s is no integer", path);
	return number;
}

bool json_bool_at(const msgpack_object *value, const char *path)
{
	const msgpack_object *at = json_at(value, path);

	ck_assert_int_eq(at->type, MSGPACK_OBJECT_BOOLEAN);
	return at->via.boolean;
}

uint32_t json_count_at(const msgpack_object *value, const char *path)
{
	const msgpack_object *at = json_at(value, path);

	ck_assert_int_eq(at->type, MSGPACK_OBJECT_ARRAY);
	return at->via.array.size;
}
