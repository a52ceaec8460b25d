/* SPDX-License-Identifier: Apache-2.0 */
/* Health, metrics, the key, and what comes of requests that are not as they should be. */
#include <stdio.h>

#include "tests/unit/admin/client.h"

/* --- health --- */

START_TEST(not_loaded_is_not_ready)
{
	struct reply reply = world_get("/sutra/health/ready", 503);

	ck_assert_str_eq(json_text_at(&reply.json, "status"), "DOWN");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.0.name"), "sutra-loader");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.0.status"), "DOWN");
	ck_assert_int_eq(json_int_at(&reply.json, "checks.0.data.shards"), 4);
	ck_assert_int_eq(json_int_at(&reply.json, "checks.0.data.deployments"), 0);
	/* Alive it is. */
	reply = world_get("/sutra/health/live", 200);
	ck_assert_str_slice(
		reply.body,
		STR("{\"status\":\"UP\",\"checks\":[{\"name\":\"lanes\",\"status\":\"UP\","
		    "\"data\":{\"lanes\":4,\"deadLanes\":0}}]}"));
}
END_TEST

START_TEST(loaded_is_ready)
{
	struct reply reply;

	world_load();
	world.key = NULL; /* health needs none */
	reply = world_get("/sutra/health/ready", 200);
	ck_assert_str_slice(
		reply.body,
		STR("{\"status\":\"UP\",\"checks\":[{\"name\":\"sutra-loader\",\"status\":\"UP\","
		    "\"data\":{\"shards\":4,\"deployments\":1}},{\"name\":\"database\",\"status\":"
		    "\"UP\","
		    "\"data\":{\"store\":\"memory\"}},{\"name\":\"lanes\",\"status\":\"UP\","
		    "\"data\":{\"lanes\":4,\"deadLanes\":0}}]}"));
	ck_assert_str_eq(reply_header(&reply, "Content-Type"), "application/json");
	ck_assert_str_eq(reply_header(&reply, "Cache-Control"), "no-store");
}
END_TEST

START_TEST(a_channel_that_is_down_is_its_own_check)
{
	struct reply reply;

	world_load();
	world.channels[0] = (struct admin_channel){.tenant = STR("acme"),
						   .channel = STR("orders"),
						   .transport = STR("kafka"),
						   .bind = STR("in"),
						   .state = "consuming",
						   .consuming = true};
	world.channels[1] = (struct admin_channel){.tenant = STR("acme"),
						   .channel = STR("paid"),
						   .transport = STR("kafka"),
						   .bind = STR("nowhere"),
						   .state = "missing",
						   .detail = "topic \"nowhere\" does not exist"};
	world.channel_count = 2;
	reply = world_get("/sutra/health/ready", 200);
	ck_assert_str_eq(json_text_at(&reply.json, "status"), "UP");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.3.name"), "channel:acme/orders");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.3.status"), "UP");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.4.name"), "channel:acme/paid");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.4.status"), "DOWN");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.4.data.state"), "missing");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.4.data.detail"),
			 "topic \"nowhere\" does not exist");
}
END_TEST

START_TEST(a_dead_lane_is_down)
{
	struct reply reply;

	world_load();
	__atomic_store_n(&world.lanes->lanes[2].dead, true, __ATOMIC_RELEASE);
	reply = world_get("/sutra/health/ready", 503);
	ck_assert_int_eq(json_int_at(&reply.json, "checks.0.data.shards"), 3);
	ck_assert_str_eq(json_text_at(&reply.json, "checks.2.status"), "DOWN");
	ck_assert_int_eq(json_int_at(&reply.json, "checks.2.data.deadLanes"), 1);
	world_get("/sutra/health/live", 503);
}
END_TEST

START_TEST(no_database_is_not_ready_but_alive)
{
	struct reply reply;

	world_load();
	store_stop(world.rig.store);
	reply = world_get("/sutra/health/ready", 503);
	ck_assert_str_eq(json_text_at(&reply.json, "checks.1.name"), "database");
	ck_assert_str_eq(json_text_at(&reply.json, "checks.1.status"), "DOWN");
	ck_assert_str_ne(json_text_at(&reply.json, "checks.1.data.reason"), "");
	world_get("/sutra/health/live", 200);
	/* Lists say so too. */
	reply = world_get("/admin/instances", 503);
	ck_assert_str_eq(json_text_at(&reply.json, "code"), "SUTRA.DISPATCH.UNAVAILABLE");
}
END_TEST

/* --- metrics --- */

static bool has_line(const struct reply *reply, const char *line)
{
	const char *at = strstr(reply->body.ptr, line);

	return at && (at == reply->body.ptr || at[-1] == '\n') && at[strlen(line)] == '\n';
}

/* Each sample belongs to the family last declared, and no family comes twice. */
static void check_exposition(struct str text)
{
	char family[100] = "", seen[20000] = " ";
	struct str rest = text;

	ck_assert_int_eq(text.ptr[text.len - 1], '\n');
	while (rest.len) {
		size_t len = (size_t)str_find(rest, '\n');
		char line[512], name[100], type[20];

		snprintf(line, sizeof(line), "%.*s", (int)len, rest.ptr);
		if (sscanf(line, "# TYPE %99s %19s", name, type) == 2) {
			char word[102];

			snprintf(family, sizeof(family), "%s", name);
			snprintf(word, sizeof(word), " %s ", name);
			ck_assert_msg(!strstr(seen, word), "%s comes twice", name);
			snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s ", name);
		} else if (line[0] != '#') {
			ck_assert_msg(strncmp(line, family, strlen(family)) == 0, "%s is not of %s",
				      line, family);
			ck_assert_ptr_nonnull(strchr(line, ' '));
		}
		rest = str_make(rest.ptr + len + 1, rest.len - len - 1);
	}
}

START_TEST(metrics)
{
	struct roles_stats stats;
	struct reply reply;

	world_load();
	world.channels[0] = (struct admin_channel){.tenant = STR("acme"),
						   .channel = STR("or\"ders"),
						   .state = "consuming",
						   .consuming = true,
						   .committed = 7,
						   .duplicate = 2,
						   .requeued = 4,
						   .persisted = 6,
						   .held = 3,
						   .kept = 8,
						   .oldest_held_seconds = 1.5,
						   .lag = 12};
	world.channels[1] = (struct admin_channel){
		.tenant = STR("acme"), .channel = STR("paid"), .state = "consuming", .lag = -1};
	world.channel_count = 2;
	world.lanes->lanes[1].stats.parks = 5;
	world.lanes->lanes[3].stats.bounces[BOUNCE_RELAY] = 9;
	histogram_add(&world.lanes->step_time, 100);
	histogram_add(&world.lanes->step_time, INT64_C(1) << 40);
	roles_stats_read(world.roles, &stats);
	histogram_add((struct histogram *)(uintptr_t)stats.timers.lateness, 1500);
	world.key = NULL;
	reply = world_request("GET", "/metrics");
	ck_assert_int_eq(reply.status, 200);
	ck_assert(str_starts_with(str_of(reply_header(&reply, "Content-Type")),
				  STR("text/plain; version=0.0.4")));
	check_exposition(reply.body);
	ck_assert(has_line(&reply, "sutra_build_info{version=\"1.2.3\"} 1"));
	ck_assert(has_line(&reply, "sutra_lane_queue_depth{lane=\"0\"} 0"));
	ck_assert(has_line(&reply, "sutra_lane_parks_total{lane=\"1\"} 5"));
	ck_assert(has_line(&reply, "sutra_lane_claim_bounces_total{lane=\"3\",kind=\"relay\"} 9"));
	ck_assert(has_line(&reply, "sutra_deliveries_total{tenant=\"acme\",channel=\"or\\\"ders\","
				   "outcome=\"committed\"} 7"));
	ck_assert(has_line(&reply, "sutra_deliveries_total{tenant=\"acme\",channel=\"or\\\"ders\","
				   "outcome=\"requeued\"} 4"));
	ck_assert(has_line(&reply, "sutra_deliveries_total{tenant=\"acme\",channel=\"or\\\"ders\","
				   "outcome=\"persisted\"} 6"));
	ck_assert(has_line(&reply, "sutra_kept_messages{tenant=\"acme\",channel=\"or\\\"ders\"} 8"));
	ck_assert(has_line(&reply,
			   "sutra_held_deliveries{tenant=\"acme\",channel=\"or\\\"ders\"} 3"));
	ck_assert(has_line(
		&reply,
		"sutra_held_oldest_seconds{tenant=\"acme\",channel=\"or\\\"ders\"} 1.500000"));
	ck_assert(has_line(&reply, "sutra_broker_lag{tenant=\"acme\",channel=\"or\\\"ders\"} 12"));
	ck_assert_ptr_null(
		strstr(reply.body.ptr, "sutra_broker_lag{tenant=\"acme\",channel=\"paid\"}"));
	ck_assert(has_line(&reply, "sutra_step_seconds_bucket{le=\"0.000064\"} 0"));
	ck_assert(has_line(&reply, "sutra_step_seconds_bucket{le=\"0.000128\"} 1"));
	ck_assert(has_line(&reply, "sutra_step_seconds_bucket{le=\"+Inf\"} 2"));
	ck_assert(has_line(&reply, "sutra_step_seconds_count 2"));
	ck_assert(has_line(&reply, "sutra_outbox_rows{state=\"waiting\"} 0"));
	ck_assert(has_line(&reply, "sutra_lease_held{role=\"instance-sweeper\"} 0"));
	ck_assert(has_line(&reply, "sutra_timer_fires_total{outcome=\"refused\"} 0"));
	ck_assert(has_line(&reply, "sutra_timer_lateness_seconds_bucket{le=\"0.001024\"} 0"));
	ck_assert(has_line(&reply, "sutra_timer_lateness_seconds_bucket{le=\"0.002048\"} 1"));
	ck_assert(has_line(&reply, "sutra_timer_lateness_seconds_count 1"));
	ck_assert(has_line(&reply, "sutra_store_up 1"));
	ck_assert_ptr_nonnull(
		strstr(reply.body.ptr, "sutra_batch_elements_bucket{kind=\"commit\",le=\"+Inf\"}"));
}
END_TEST

/* --- the key --- */

static const struct {
	const char *configured;
	bool no_auth;
	const char *given;
	const char *target;
	int status;
	const char *code;
} doors[] = {
	{ADMIN_KEY, false, ADMIN_KEY, "/admin/lanes", 200, NULL},
	{ADMIN_KEY, false, NULL, "/admin/lanes", 401, "SUTRA.ADMIN.AUTH_MISSING"},
	{ADMIN_KEY, false, "", "/admin/lanes", 401, "SUTRA.ADMIN.AUTH_MISSING"},
	{ADMIN_KEY, false, "wrong-key", "/admin/lanes", 401, "SUTRA.ADMIN.AUTH_MISSING"},
	{ADMIN_KEY, false, "right-ke", "/admin/lanes", 401, "SUTRA.ADMIN.AUTH_MISSING"},
	{ADMIN_KEY, false, "right-key2", "/admin/lanes", 401, "SUTRA.ADMIN.AUTH_MISSING"},
	{NULL, false, ADMIN_KEY, "/admin/lanes", 503, "SUTRA.ADMIN.AUTH_UNCONFIGURED"},
	{"", false, "", "/admin/lanes", 503, "SUTRA.ADMIN.AUTH_UNCONFIGURED"},
	{NULL, true, NULL, "/admin/lanes", 200, NULL},
	/* Nothing is said about paths without the key. */
	{ADMIN_KEY, false, NULL, "/admin/nothing", 401, "SUTRA.ADMIN.AUTH_MISSING"},
	{ADMIN_KEY, false, NULL, "/admin", 401, "SUTRA.ADMIN.AUTH_MISSING"},
	{NULL, false, NULL, "/admin/", 503, "SUTRA.ADMIN.AUTH_UNCONFIGURED"},
	{ADMIN_KEY, false, ADMIN_KEY, "/admin/nothing", 404, "SUTRA.ADMIN.NOT_FOUND"},
	{NULL, false, NULL, "/sutra/health/live", 200, NULL},
	{NULL, false, NULL, "/sutra/deployments", 200, NULL},
};

START_TEST(key)
{
	struct reply reply;

	world_listen(doors[_i].configured, doors[_i].no_auth);
	world.key = doors[_i].given;
	reply = world_get(doors[_i].target, doors[_i].status);
	if (doors[_i].code)
		ck_assert_str_eq(json_text_at(&reply.json, "code"), doors[_i].code);
}
END_TEST

/* --- problems --- */

START_TEST(problem_documents)
{
	struct reply reply = world_get("/nothing", 404);

	ck_assert_str_eq(reply_header(&reply, "Content-Type"), "application/problem+json");
	ck_assert_str_slice(
		reply.body,
		STR("{\"type\":\"urn:bpm:diag:SUTRA.ADMIN.NOT_FOUND\",\"title\":\"No such "
		    "resource.\","
		    "\"status\":404,\"detail\":\"there is nothing at this path\","
		    "\"code\":\"SUTRA.ADMIN.NOT_FOUND\",\"attributes\":{\"path\":\"/nothing\"}}"));
	reply = world_get("/admin/lanes", 200);
	world.key = "wrong";
	reply = world_get("/admin/lanes", 401);
	ck_assert_str_eq(reply_header(&reply, "WWW-Authenticate"), "ApiKey");
}
END_TEST

static const char *const bad_targets[] = {
	"/admin/instances?limit=0",
	"/admin/instances?limit=1001",
	"/admin/instances?limit=x",
	"/admin/instances?limit",
	"/admin/instances?limit=-1",
	"/admin/instances?cursor=x",
	"/admin/instances?status=RUNNING",
	"/admin/instances?status=",
	"/admin/instances?includeTerminal=yes",
	"/admin/instances?alias=order",
	"/admin/instances?alias=:x",
	"/admin/instances?alias=order:%ff",
	"/admin/instances?unknown=1",
	"/admin/instances?deployment=%ff",
	"/admin/instances/x",
	"/admin/lanes?limit=1",
	"/admin/outbox?cursor=x",
	"/admin/outbox?cursor=1.2.3.4",
	"/admin/outbox?limit=99999999999999999999",
	"/admin/dead-letters?cursor=x",
	"/admin/dead-letters/x",
	"/sutra/deployments?status=x",
};

START_TEST(bad_parameters)
{
	struct reply reply = world_get(bad_targets[_i], 400);

	ck_assert_str_eq(json_text_at(&reply.json, "code"), "SUTRA.ADMIN.BAD_REQUEST");
}
END_TEST

static const char *const missing_targets[] = {
	"/",
	"/sutra",
	"/sutra/health",
	"/sutra/health/ready/",
	"/metrics/",
	"/admin/instances/",
	"/admin/lanes/1",
	"/sutra/deployments/dep-nothing",
	"/admin/deployments/dep-nothing",
	"/admin/deployments/a/b",
	"/admin/instances/00000000-0000-0000-0000-000000000001",
	"/admin/dead-letters/00000000-0000-0000-0000-000000000001",
	"/%2e%2e/etc/passwd",
};

START_TEST(missing)
{
	struct reply reply = world_get(missing_targets[_i], 404);

	ck_assert_str_eq(json_text_at(&reply.json, "code"), "SUTRA.ADMIN.NOT_FOUND");
}
END_TEST

START_TEST(methods)
{
	static const char *const others[] = {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"};

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		struct reply reply = world_request(others[i], "/admin/lanes");

		ck_assert_int_eq(reply.status, 405);
		ck_assert_str_eq(reply_header(&reply, "Allow"), "GET, HEAD");
		ck_assert_str_eq(json_text_at(&reply.json, "code"),
				 "SUTRA.ADMIN.METHOD_NOT_ALLOWED");
	}
}
END_TEST

START_TEST(head_requests)
{
	struct reply get = world_request("GET", "/admin/lanes"),
		     head = world_request("HEAD", "/admin/lanes");

	ck_assert_int_eq(head.status, 200);
	ck_assert_uint_eq(head.body.len, 0);
	ck_assert_str_eq(reply_header(&head, "Content-Length"),
			 reply_header(&get, "Content-Length"));
	head = world_request("HEAD", "/sutra/health/ready");
	ck_assert_int_eq(head.status, 503);
	ck_assert_uint_eq(head.body.len, 0);
}
END_TEST

static void still_serves(void)
{
	world_get("/sutra/health/live", 200);
}

START_TEST(garbage)
{
	static const char *const requests[] = {
		"x\r\n\r\n",
		"GET\r\n\r\n",
		"GET /metrics\r\n\r\n",
		"GET /metrics HTTP/9.9\r\n\r\n",
		"GET /sutra/health/live HTTP/1.1\r\nHost\r\n\r\n",
		"GET /sutra/health/live HTTP/1.1\r\n\r\n",
		"GET /sutra/health/live HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
		"GET /sutra/health/live HTTP/1.1\r\nHost: a\r\nContent-Length: "
		"99999999999999999999\r\n\r\n",
		"GET /sutra/health/live HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
		"chunked\r\n\r\nzz\r\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(requests); i++)
		world_send(str_of(requests[i]));
	still_serves();
}
END_TEST

START_TEST(half_requests)
{
	world_hang_up(STR(""));
	world_hang_up(STR("\r\n\r\n"));
	world_hang_up(STR("GET /admin/insta"));
	world_hang_up(STR(
		"GET /sutra/health/live HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc"));
	world_hang_up(STR("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"));
	/* Gone before the answer. */
	world_hang_up(STR("GET /sutra/deployments HTTP/1.1\r\nHost: a\r\n\r\n"));
	still_serves();
}
END_TEST

START_TEST(too_long)
{
	struct buf request = BUF_INIT;
	struct reply reply;

	buf_add_text(&request, "GET /");
	for (int i = 0; i < 100000; i++)
		buf_add_byte(&request, 'a');
	buf_add_text(&request, " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	reply = world_send(buf_str(&request));
	ck_assert(reply.status == 0 || reply.status == 414 || reply.status == 431);
	still_serves();
	buf_reset(&request);
	buf_add_text(&request,
		     "GET /sutra/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ");
	for (int i = 0; i < 100000; i++)
		buf_add_byte(&request, 'a');
	buf_add_text(&request, "\r\n\r\n");
	reply = world_send(buf_str(&request));
	ck_assert(reply.status == 0 || reply.status == 413 || reply.status == 431);
	still_serves();
	buf_done(&request);
}
END_TEST

/* A body is read past, however large. */
START_TEST(bodies)
{
	struct buf request = BUF_INIT;
	struct reply reply;

	buf_add_text(&request, "GET /sutra/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
			       "Content-Length: 200000\r\n\r\n");
	for (int i = 0; i < 200000; i++)
		buf_add_byte(&request, 'a');
	reply = world_send(buf_str(&request));
	ck_assert_int_eq(reply.status, 200);
	buf_done(&request);
}
END_TEST

START_TEST(one_connection_takes_many)
{
	struct reply reply = world_send(
		STR("GET /sutra/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
		    "GET /admin/lanes HTTP/1.1\r\nHost: a\r\nX-Api-Key: " ADMIN_KEY "\r\n\r\n"
		    "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
	int answers = 0;

	for (const char *at = reply.head.ptr; (at = strstr(at, "HTTP/1.1 200")); at++)
		answers++;
	ck_assert_int_eq(answers, 3);
}
END_TEST

START_TEST(the_port_is_taken)
{
	struct admin_settings settings = {.key = NULL, .header = "X-Api-Key"};
	static const char *const wrong[] = {"nowhere", "127.0.0.1:x", "256.1.1.1:80",
					    "127.0.0.1:99999999999999999999"};
	struct admin *other = NULL;
	struct error err = ERROR_INIT;
	char taken[40];
	uint16_t port;

	snprintf(taken, sizeof(taken), "127.0.0.1:%u", world.port);
	settings.listen = taken;
	ck_assert_int_eq(admin_start(runtime_threads(), &settings, &(struct admin_sources){0},
				     &other, &port, &err),
			 RESULT_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, taken));
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		settings.listen = wrong[i];
		ck_assert_int_eq(admin_start(runtime_threads(), &settings,
					     &(struct admin_sources){0}, &other, &port, &err),
				 RESULT_FATAL);
	}
}
END_TEST

static Suite *health_suite(void)
{
	Suite *suite = suite_create("admin health");
	TCase *tcase = tcase_create("health");

	tcase_add_checked_fixture(tcase, world_setup, world_teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, not_loaded_is_not_ready, loaded_is_ready,
		     a_channel_that_is_down_is_its_own_check, a_dead_lane_is_down,
		     no_database_is_not_ready_but_alive, metrics);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("requests");
	tcase_add_checked_fixture(tcase, world_setup, world_teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, key, 0, ARRAY_LEN(doors));
	tcase_add_loop_test(tcase, bad_parameters, 0, ARRAY_LEN(bad_targets));
	tcase_add_loop_test(tcase, missing, 0, ARRAY_LEN(missing_targets));
	TEST_ADD_ALL(tcase, problem_documents, methods, head_requests, garbage, half_requests, too_long,
		     bodies, one_connection_takes_many, the_port_is_taken);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(health_suite)
