/* SPDX-License-Identifier: Apache-2.0 */
/* The report of the doctor, and who is asked what, with a transport and a database of the test's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/doctor.h"
#include "tests/support/testing.h"

static char *asked; /* "inbound orders group hold; …" of the last probe */

static void fake_probe(const struct transport_connection *connection, const struct probe_question *question,
		       struct report *report)
{
	struct buf text = BUF_INIT;

	for (size_t i = 0; i < question->channel_count; i++) {
		const struct probe_channel *channel = &question->channels[i];

		buf_printf(&text, "%s %s %s %d %d; ", channel->is_inbound ? "in" : "out", channel->bind, channel->group,
			   (int)channel->longest_hold_ms, (int)channel->payload_cap_bytes);
	}
	free(asked);
	asked = buf_take(&text, NULL);
	report_add(report, SEVERITY_ERROR, CODE_STARTUP_BROKER, "broker-unreachable", NULL, "%s is \"away\"",
		   connection->property_values[0]);
	report_remedy(report, "start it");
}

static const struct transport fake = {.name = "kafka", .needs_connection = true, .probe = fake_probe};
static const struct transport fake_local = {.name = "local"};

static const struct transport *fake_find(struct str name)
{
	if (str_equal(name, STR("local")))
		return &fake_local;
	return str_equal(name, STR("kafka")) ? &fake : NULL;
}

static void fake_database(const struct pg_examination *settings, struct report *report)
{
	report_add(report, SEVERITY_INFO, CODE_NONE, "server", NULL, "%s, pool %u", settings->url,
		   settings->step_connections);
}

static struct config *config_of(const char *text)
{
	static char *const environ_[] = {NULL};
	struct config_findings findings = {0};
	struct config *config = NULL;

	ck_assert_msg(config_load_text("test.conf", str_of(text), environ_, &config, &findings) == RESULT_OK, "%s",
		      findings.text.data ? findings.text.data : "");
	buf_done(&findings.text);
	return config;
}

static void doctor_fake(struct doctor *doctor, const struct config *config)
{
	doctor_init(doctor, config);
	doctor->transport = fake_find;
	doctor->database = fake_database;
	free(asked);
	asked = NULL;
	doctor_run(doctor);
}

static char *printed(const struct report *report, bool json)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	doctor_print(report, json, out);
	fclose(out);
	return text;
}

static void has(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%s", part, text);
}

START_TEST(report_in_both_forms)
{
	struct report report;
	char *text;

	report_init(&report);
	report_area(&report, "database");
	report_add(&report, SEVERITY_INFO, CODE_NONE, "server", NULL, "PostgreSQL %d", 15);
	report_add(&report, SEVERITY_WARNING, CODE_STARTUP_DATABASE_SUSPICIOUS, "clock", "server", "2 s ahead");
	report_remedy(&report, "run %s", "\"NTP\"");
	text = printed(&report, false);
	ck_assert_str_eq(text, "database\n"
			       "  info     PostgreSQL 15\n"
			       "  warning  server: 2 s ahead [SUTRA.STARTUP.DATABASE_SUSPICIOUS]\n"
			       "           mend: run \"NTP\"\n"
			       "\n0 errors, 1 warning\n");
	free(text);
	text = printed(&report, true);
	ck_assert_str_eq(text, "{\"errors\":0,\"warnings\":1,\"findings\":["
			       "{\"area\":\"database\",\"object\":null,\"severity\":\"info\",\"check\":\"server\",\"code\":null,"
			       "\"what\":\"PostgreSQL 15\",\"remedy\":null},"
			       "{\"area\":\"database\",\"object\":\"server\",\"severity\":\"warning\",\"check\":\"clock\","
			       "\"code\":\"SUTRA.STARTUP.DATABASE_SUSPICIOUS\",\"what\":\"2 s ahead\","
			       "\"remedy\":\"run \\\"NTP\\\"\"}]}\n");
	free(text);
	report_done(&report);
}
END_TEST

START_TEST(report_without_findings)
{
	struct report report;
	char *text;

	report_init(&report);
	text = printed(&report, false);
	ck_assert_str_eq(text, "\nnothing wrong was found\n");
	free(text);
	text = printed(&report, true);
	ck_assert_str_eq(text, "{\"errors\":0,\"warnings\":0,\"findings\":[]}\n");
	free(text);
	report_done(&report);
}
END_TEST

static const char channels[] =
	"channels = ({ name = \"a\"; transport = \"kafka\"; bind = \"a-topic\"; },"
	"{ name = \"b\"; transport = \"kafka\"; bind = \"b-topic\"; group = \"g\"; payload-cap-bytes = 77; },"
	"{ name = \"c\"; direction = \"outbound\"; transport = \"kafka\"; bind = \"a-topic\"; },"
	"{ name = \"d\"; direction = \"outbound\"; transport = \"kafka\"; bind = \"a-topic\"; },"
	"{ name = \"e\"; transport = \"amqp\"; bind = \"e-queue\"; },"
	"{ name = \"f\"; transport = \"local\"; bind = \"f\"; });\n";

static const char bpmn[] =
	"<?xml version=\"1.0\"?><definitions xmlns=\"http://www.omg.org/spec/BPMN/20100524/MODEL\" "
	"xmlns:q=\"urn:sutra:q:1.0\" id=\"D\" targetNamespace=\"urn:t\"><process id=\"P\" isExecutable=\"true\">"
	"<startEvent id=\"S\"><extensionElements><q:source channel=\"a\"/></extensionElements><messageEventDefinition/>"
	"</startEvent><sequenceFlow id=\"f\" sourceRef=\"S\" targetRef=\"E\"/><endEvent id=\"E\"/></process></definitions>";

/* Every source and destination once, with the settings of its channel; channels without a connection are named. */
START_TEST(brokers_are_asked_about_their_channels)
{
	char *dir = test_dir_new(), *conf;
	struct buf text = BUF_INIT;
	struct config *config;
	struct doctor doctor;
	const struct report_entry *entry;

	free(test_file_write(dir, "shop/package.conf", STR("tenant = \"default\"; module = \"shop\"; version = \"1\";")));
	free(test_file_write(dir, "shop/channels.conf", str_of(channels)));
	free(test_file_write(dir, "shop/bpmn/p.bpmn", str_of(bpmn)));
	buf_printf(&text,
		   "refusal: { hold = \"PT45S\"; }; deployment: { dir = \"%s\"; }; datasource: { url = \"postgresql://x\"; pool-size = 3; };\n"
		   "connections = ({ name = \"kafka\"; transport = \"kafka\"; properties = [ \"bootstrap.servers=k:1\" ]; });",
		   dir);
	config = config_of(text.data);
	doctor_fake(&doctor, config);
	ck_assert_ptr_nonnull(asked);
	ck_assert_str_eq(asked, "in a-topic sutra.default.a 45000 10485760; in b-topic g 45000 77; "
				"out a-topic  45000 10485760; ");
	entry = report_find(&doctor.report, "connection-missing", 0);
	ck_assert_ptr_nonnull(entry);
	ck_assert_str_eq(entry->object, "channel default/e");
	ck_assert_ptr_null(report_find(&doctor.report, "connection-missing", (size_t)(entry - doctor.report.entries) + 1));
	conf = printed(&doctor.report, false);
	has(conf, "connection kafka\n  error    k:1 is \"away\" [SUTRA.STARTUP.BROKER]\n           mend: start it\n");
	has(conf, "database\n  info     postgresql://x, pool 3\n");
	has(conf, "shop: shop 1 of tenant default, 6 channels, 1 processes");
	free(conf);
	doctor_done(&doctor);
	config_free(&config);
	buf_done(&text);
	test_dir_free(&dir);
}
END_TEST

static const struct {
	const char *config;
	const char *check;
	enum severity severity;
} settings[] = {
	{"engine: { shards = 1; };", "shards", SEVERITY_INFO},
	{"engine: { shards = 4; };", "admin-closed", SEVERITY_WARNING},
	{"admin: { dev-no-auth = true; listen = \"127.0.0.1:0\"; };", "admin-open", SEVERITY_WARNING},
	{"admin: { dev-no-auth = true; listen = \"0.0.0.0:0\"; };", "admin-open", SEVERITY_ERROR},
	{"admin: { listen = \"192.0.2.1:0\"; };", "listen", SEVERITY_ERROR},
	{"admin: { listen = \"[::1]:0\"; };", "listener", SEVERITY_INFO},
	{"secrets: { dir = \"/nonexistent\"; };", "secrets", SEVERITY_WARNING},
	{"tenants = ({ name = \"a\"; max-concurrent-instances = 1; });", "settings", SEVERITY_ERROR},
	{"deployment: { dir = \"/nonexistent\"; };", "folder", SEVERITY_ERROR},
	{"", "memory-store", SEVERITY_WARNING},
	{"connections = ({ name = \"amqp\"; transport = \"amqp\"; url = \"amqp://h\"; });", "transport-missing",
	 SEVERITY_ERROR},
};

START_TEST(settings_of_the_engine)
{
	struct config *config = config_of(settings[_i].config);
	const struct report_entry *entry;
	struct doctor doctor;

	doctor_fake(&doctor, config);
	entry = report_find(&doctor.report, settings[_i].check, 0);
	ck_assert_msg(entry != NULL, "%s", settings[_i].check);
	ck_assert_int_eq(entry->severity, settings[_i].severity);
	for (size_t i = 0; i < doctor.report.count; i++) {
		entry = &doctor.report.entries[i];
		/* Nothing is found without a code and without a way to mend it. */
		ck_assert_msg((entry->severity == SEVERITY_INFO) == (entry->code == CODE_NONE), "%s", entry->check);
		ck_assert_msg((entry->severity == SEVERITY_INFO) == (entry->remedy == NULL), "%s", entry->check);
	}
	doctor_done(&doctor);
	config_free(&config);
}
END_TEST

static Suite *doctor_suite(void)
{
	Suite *suite = suite_create("doctor");
	TCase *tcase = tcase_create("report");

	TEST_ADD_ALL(tcase, report_in_both_forms, report_without_findings, brokers_are_asked_about_their_channels);
	tcase_add_loop_test(tcase, settings_of_the_engine, 0, (int)ARRAY_LEN(settings));
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(doctor_suite)
