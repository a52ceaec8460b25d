/* SPDX-License-Identifier: Apache-2.0 */
/* Views: routing tables over several deployments, and what may not stand beside each other. */
#include "tests/support/testing.h"
#include "tests/unit/model/fixture.h"

#define CHANNEL(name, more) \
	"{ name = \"" name "\"; transport = \"kafka\"; bind = \"" name "\"; " more " }"
#define CHANNELS(list) "channels = ( " list " );"
#define SPAWN(id, channel, attributes) \
	"<process id=\"" id "\"><startEvent id=\"" id \
	"S\"><extensionElements><q:source channel=\"" channel "\" " attributes \
	"/><q:alias name=\"a\" expression=\"payload.a\"/></extensionElements>" \
	"</startEvent><sequenceFlow id=\"" id "f\" sourceRef=\"" id "S\" targetRef=\"" id \
	"E\"/><endEvent id=\"" id "E\"/></process>"
#define PARK(id, channel, wait_channel) \
	"<process id=\"" id "\"><startEvent id=\"" id \
	"S\"><extensionElements><q:source channel=\"" channel \
	"\"/><q:alias name=\"a\" expression=\"payload.a\"/></extensionElements></startEvent>" \
	"<sequenceFlow id=\"" id "f\" sourceRef=\"" id "S\" targetRef=\"" id "W\"/>" \
	"<receiveTask id=\"" id "W\"><extensionElements><q:source channel=\"" wait_channel \
	"\"/><q:alias name=\"a\" expression=\"payload.a\"/></extensionElements></receiveTask>" \
	"<sequenceFlow id=\"" id "g\" sourceRef=\"" id "W\" targetRef=\"" id "E\"/>" \
	"<endEvent id=\"" id "E\"/></process>"

struct member {
	const char *module, *version, *channels, *processes;
	enum deployment_phase phase;
};

/* Builds a view of them; the findings must hold `text`, or it must succeed. */
static struct view *make(const struct member *members, uint32_t count, const char *text)
{
	struct view_member list[8];
	struct buf findings = BUF_INIT;
	struct view *view = NULL;
	enum result result;

	ck_assert_uint_le(count, ARRAY_LEN(list));
	for (uint32_t i = 0; i < count; i++)
		list[i] = (struct view_member){
			fixture_deployment(members[i].module, members[i].version,
					   members[i].channels, members[i].processes),
			members[i].phase};
	result = view_build(7, list, count, &view, &findings);
	if (text)
		ck_assert_msg(findings.len && strstr(findings.data, text), "wanted %s, have %s",
			      text, findings.len ? findings.data : "nothing");
	else
		ck_assert_msg(findings.len == 0, "%s", findings.data);
	ck_assert_int_eq(result, text ? RESULT_REJECT : RESULT_OK);
	for (uint32_t i = 0; i < count; i++)
		deployment_unref(&list[i].deployment);
	buf_done(&findings);
	return view;
}

START_TEST(empty)
{
	struct view *view = make(NULL, 0, NULL);

	ck_assert_uint_eq(view->number, 7);
	ck_assert_ptr_null(view_route(view, STR("default"), STR("in")));
	ck_assert_ptr_null(view_deployment(view, STR("dep-x")));
	view_unref(&view);
}
END_TEST

/* A timer that starts a process subscribes to nothing. */
START_TEST(timer_starts_take_no_messages)
{
	const struct member members[] = {
		{"a", "1", CHANNELS(CHANNEL("in", "")),
		 "<process id=\"P\"><startEvent id=\"T\"><timerEventDefinition><timeCycle>R/PT1M</timeCycle>"
		 "</timerEventDefinition></startEvent><sequenceFlow id=\"f\" sourceRef=\"T\" targetRef=\"C\"/>"
		 "<intermediateCatchEvent id=\"C\"><timerEventDefinition><timeDuration>PT1S</timeDuration>"
		 "</timerEventDefinition></intermediateCatchEvent><sequenceFlow id=\"g\" sourceRef=\"C\" "
		 "targetRef=\"E\"/><endEvent id=\"E\"/></process>",
		 DEPLOYMENT_ACTIVE},
	};
	struct view *view = make(members, 1, NULL);
	const struct route *route = view_route(view, STR("default"), STR("in"));

	ck_assert_ptr_nonnull(route);
	ck_assert_uint_eq(route->start_count, 0);
	ck_assert_uint_eq(route->wait_count, 0);
	view_unref(&view);
}
END_TEST

START_TEST(routes)
{
	const struct member members[] = {
		{"m", "1",
		 CHANNELS(CHANNEL("in", "") "," CHANNEL("old", "") "," CHANNEL("pay", "")),
		 PARK("P", "in", "old"), DEPLOYMENT_DRAINING},
		{"m", "2", CHANNELS(CHANNEL("in", "max-in-flight = 5;") "," CHANNEL("pay", "")),
		 PARK("P", "in", "pay"), DEPLOYMENT_ACTIVE},
		{"n", "1", CHANNELS(CHANNEL("idle", "")), SPAWN("N", "idle", ""),
		 DEPLOYMENT_ACTIVE},
	};
	struct view *view = make(members, 3, NULL), *same = view_ref(view);
	const struct route *route = view_route(view, STR("default"), STR("in"));

	ck_assert_ptr_nonnull(route);
	/* The Active one declares it. */
	ck_assert_uint_eq(route->channel->max_in_flight, 5);
	ck_assert_str_slice(route->deployment->version, STR("2"));
	ck_assert_uint_eq(route->start_count, 1);
	ck_assert_str_slice(route->starts[0].deployment->version, STR("2"));
	ck_assert_uint_eq(route->draining_start_count, 1);
	ck_assert_str_slice(route->draining_starts[0].deployment->version, STR("1"));
	/* Only the Draining one knows it, and still waits on it. */
	route = view_route(view, STR("default"), STR("old"));
	ck_assert_ptr_nonnull(route);
	ck_assert_uint_eq(route->start_count, 0);
	ck_assert_uint_eq(route->wait_count, 1);
	ck_assert_str_slice(route->waits[0].node->id, STR("PW"));
	route = view_route(view, STR("default"), STR("pay"));
	ck_assert_uint_eq(route->wait_count, 1);
	ck_assert_ptr_null(view_route(view, STR("other"), STR("in")));
	/* Sorted. */
	ck_assert_uint_eq(view->route_count, 4);
	for (uint32_t i = 1; i < view->route_count; i++)
		ck_assert_int_lt(str_compare(view->routes[i - 1]->channel->name,
					     view->routes[i]->channel->name),
				 0);
	ck_assert_int_eq(view_deployment(view, view->members[0].deployment->id)->phase,
			 DEPLOYMENT_DRAINING);
	view_unref(&view);
	ck_assert_uint_eq(same->route_count, 4);
	view_unref(&same);
}
END_TEST

START_TEST(active_waits_first)
{
	const struct member members[] = {
		{"m", "1", CHANNELS(CHANNEL("in", "") "," CHANNEL("pay", "")),
		 PARK("P", "in", "pay"), DEPLOYMENT_DRAINING},
		{"m", "2", CHANNELS(CHANNEL("in", "") "," CHANNEL("pay", "")),
		 PARK("P", "in", "pay"), DEPLOYMENT_ACTIVE},
	};
	struct view *view = make(members, 2, NULL);
	const struct route *route = view_route(view, STR("default"), STR("pay"));

	ck_assert_uint_eq(route->wait_count, 2);
	ck_assert_str_slice(route->waits[0].deployment->version, STR("2"));
	ck_assert_str_slice(route->waits[1].deployment->version, STR("1"));
	view_unref(&view);
}
END_TEST

/* A channel of a Draining deployment that nothing waits on is consumed no more. */
START_TEST(draining_spawns_only)
{
	const struct member members[] = {
		{"m", "1", CHANNELS(CHANNEL("in", "")), SPAWN("P", "in", ""), DEPLOYMENT_DRAINING},
	};
	struct view *view = make(members, 1, NULL);

	ck_assert_uint_eq(view->route_count, 0);
	view_unref(&view);
}
END_TEST

START_TEST(shared_channel)
{
	const struct member good[] = {
		{"m", "1", CHANNELS(CHANNEL("in", "")), SPAWN("P", "in", "messageTypeValue=\"a\""),
		 DEPLOYMENT_ACTIVE},
		{"n", "1", CHANNELS(CHANNEL("in", "")), SPAWN("Q", "in", "messageTypeValue=\"b\""),
		 DEPLOYMENT_ACTIVE},
	};
	struct member bad[] = {good[0], good[1]};
	struct view *view = make(good, 2, NULL);

	ck_assert_uint_eq(view_route(view, STR("default"), STR("in"))->start_count, 2);
	view_unref(&view);

	bad[1].channels = CHANNELS(CHANNEL("in", "codec = \"text\";"));
	make(bad, 2,
	     "SUTRA.CONFIG.CHANNEL.CONFLICT: channel \"in\" of tenant default has other settings");
	bad[1].channels = CHANNELS(CHANNEL("in", ""));
	bad[1].processes = SPAWN("Q", "in", "messageTypePattern=\"?\"");
	make(bad, 2, "SUTRA.INBOUND.AMBIGUOUS_HANDLER: a message on channel \"in\"");
	/* Not while one of them drains. */
	bad[1].phase = DEPLOYMENT_DRAINING;
	view = make(bad, 2, NULL);
	view_unref(&view);
}
END_TEST

START_TEST(conflicts)
{
	struct member members[] = {
		{"m", "1", CHANNELS(CHANNEL("in", "group = \"g\";")), SPAWN("P", "in", ""),
		 DEPLOYMENT_ACTIVE},
		{"n", "1",
		 CHANNELS("{ name = \"in2\"; transport = \"kafka\"; bind = \"in\"; group = \"g\"; "
			  "}"),
		 SPAWN("Q", "in2", ""), DEPLOYMENT_ACTIVE},
	};

	make(members, 2,
	     "SUTRA.CONFIG.CHANNEL.CONFLICT: channels \"in\" of tenant default and \"in2\"");
	members[1] = members[0];
	members[1].version = "2";
	make(members, 2, "SUTRA.DEPLOY.CONFLICT: two packages of tenant default and module m");
	members[1] = members[0];
	make(members, 2, "stands there twice");
}
END_TEST

static Suite *view_suite(void)
{
	Suite *suite = suite_create("view");
	TCase *tcase = tcase_create("view");

	TEST_ADD_ALL(tcase, empty, timer_starts_take_no_messages, routes, active_waits_first, draining_spawns_only, shared_channel,
		     conflicts);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(view_suite)
