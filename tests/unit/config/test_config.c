/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the configuration: sources and their order, what is refused and how it is said, secrets, printing. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/config.h"
#include "config/private.h"
#include "tests/support/testing.h"

static const char *const no_environment[] = {NULL};

/* Loads a text; findings->text is the caller's to end. */
static struct config *load(const char *text, const char *const *environ_,
			   struct config_findings *findings)
{
	struct config *config = NULL;
	enum result result;

	*findings = (struct config_findings){.text = BUF_INIT};
	result = config_load_text("f", str_of(text), (char *const *)environ_, &config, findings);
	ck_assert_int_eq(result, findings->errors ? RESULT_REJECT : RESULT_OK);
	ck_assert((config != NULL) == (result == RESULT_OK));
	return config;
}

/* Loads what must be right, without a warning. */
static struct config *load_right(const char *text, const char *const *environ_)
{
	struct config_findings findings;
	struct config *config = load(text, environ_, &findings);

	ck_assert_msg(config && findings.warnings == 0, "%s", findings.text.data);
	buf_done(&findings.text);
	return config;
}

static const struct {
	const char *text;
	const char *environ_[4];
	const char *findings;
} cases[] = {
	{"", {NULL}, ""},
	/* Keys. */
	{"outbox: {\n retry: {\n  base-delai = \"PT2S\"; }; };",
	 {NULL},
	 "f:3: SUTRA.CONFIG.PROPERTY.INVALID: unknown key outbox.retry.base-delai; did you mean "
	 "outbox.retry.base-delay?\n"},
	{"weather = \"fine\";",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: unknown key weather\n"},
	{"ticker: { tick-interval = \"PT1S\"; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: unknown key ticker\n"},
	{"outbox = 1;",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: \"outbox\" must be a group { … }, not an integer\n"},
	{"engine: { shards: { x = 1; }; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: \"shards\" must be an integer, not a group { … }\n"},
	/* Types and bounds, all of them reported. */
	{"engine: { shards = 0;\n shard-queue-capacity = 0; };\nlog: { level = \"loud\";\n format "
	 "= 1; };\n"
	 "admin: { listen = \"8080\";\n dev-no-auth = \"true\"; };\ninbox: { retention = \"1 "
	 "week\"; };\n"
	 "secrets: { dir = \"\"; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: engine.shards must be from 1 to 4096, not 0\n"
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: engine.shard-queue-capacity must be from 1 to "
	 "10000000, not 0\n"
	 "f:3: SUTRA.CONFIG.PROPERTY.INVALID: log.level must be one of debug, info, warning, "
	 "error; not \"loud\"\n"
	 "f:4: SUTRA.CONFIG.PROPERTY.INVALID: \"format\" must be a text, not an integer\n"
	 "f:5: SUTRA.CONFIG.PROPERTY.INVALID: admin.listen must be an address such as "
	 "\"127.0.0.1:8080\" or "
	 "\"[::1]:8080\", not \"8080\"\n"
	 "f:6: SUTRA.CONFIG.PROPERTY.INVALID: \"dev-no-auth\" must be true or false, not a text\n"
	 "f:7: SUTRA.CONFIG.PROPERTY.INVALID: inbox.retention must be a duration such as "
	 "\"PT30S\", not \"1 week\"\n"
	 "f:8: SUTRA.CONFIG.PROPERTY.INVALID: secrets.dir must not be empty\n"},
	{"lease: { ttl = \"PT2H\"; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: lease.ttl must be from PT0.100S to PT1H, not PT2H\n"},
	/* A wrapped integer would have been 705032704 here, and is said once. */
	{"codec: {\n max-payload-bytes = 5000000000; };",
	 {NULL},
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: the integer 5000000000 does not fit 32 bits; write "
	 "5000000000L\n"},
	{"engine: { shards = 0; };\n@include \"x\"",
	 {NULL},
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: @include is not allowed here\n"},
	/* Settings that contradict each other: the one that was set last is blamed. */
	{"lease: {\n poll = \"PT40S\"; };",
	 {NULL},
	 "f:2: SUTRA.STARTUP.SETTINGS: lease.poll (PT40S) must be below lease.ttl (PT30S)\n"},
	{"lease: { ttl = \"PT40S\"; };",
	 {"SUTRA_LEASE_POLL=PT40S"},
	 "environment: SUTRA_LEASE_POLL: SUTRA.STARTUP.SETTINGS: lease.poll (PT40S) must be below "
	 "lease.ttl "
	 "(PT40S)\n"},
	{"instance: { sweep-interval = \"PT5M\"; };",
	 {NULL},
	 "f:1: SUTRA.STARTUP.SETTINGS: instance.sweep-interval (PT5M) must be below "
	 "instance.claim-timeout (PT5M)\n"},
	{"refusal: { backoff: { min = \"PT6S\"; }; };",
	 {NULL},
	 "f:1: SUTRA.STARTUP.SETTINGS: refusal.backoff.min (PT6S) must be at most "
	 "refusal.backoff.max (PT5S)\n"},
	{"refusal: { backoff: { min = \"PT5S\"; }; };", {NULL}, ""},
	/* Environment. */
	{"",
	 {"SUTRA_ENGINE_SHARDS=many", "SUTRA_WEATHER=fine", "PATH=/bin"},
	 "environment: SUTRA_ENGINE_SHARDS: SUTRA.CONFIG.PROPERTY.INVALID: engine.shards must be "
	 "an integer, not "
	 "\"many\"\n"
	 "environment: SUTRA_WEATHER: SUTRA.CONFIG.PROPERTY.UNKNOWN_ENV: names no option\n"},
	{"",
	 {"SUTRA_SERVICE_HOST=10.0.0.1"},
	 "environment: SUTRA_SERVICE_HOST: SUTRA.CONFIG.PROPERTY.UNKNOWN_ENV: names no option\n"},
	{"", {"SUTRA_CONFIG=", "SUTRA_ADMIN_URL=http://x", "SUTRA_ENGINE_SHARDS="}, ""},
	{"",
	 {"SUTRA_CONNECTIONS_KAFKA_TRANSPORT=kafka"},
	 "environment: SUTRA_CONNECTIONS_KAFKA_TRANSPORT: SUTRA.CONFIG.PROPERTY.UNKNOWN_ENV: names "
	 "no option\n"},
	{"",
	 {"SUTRA_CONNECTIONS=a,a-management", "SUTRA_CONNECTIONS_A_MANAGEMENT_URL=x",
	  "SUTRA_CONNECTIONS_A_TRANSPORT=kafka"},
	 "environment: SUTRA_CONNECTIONS_A_MANAGEMENT_URL: SUTRA.CONFIG.PROPERTY.INVALID: may mean "
	 "\"a\" or "
	 "\"a-management\"; give one of them another name\n"
	 "environment: SUTRA_CONNECTIONS: SUTRA.CONFIG.PROPERTY.INVALID: connection "
	 "\"a-management\" has no "
	 "transport\n"},
	/* Connections. */
	{"connections = ( { name = \"k\"; } );",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: connection \"k\" has no transport\n"},
	{"connections = (\n {},\n { name = \"K\"; },\n { name = \"k--k\"; },\n { name = \"-k\"; } "
	 ");",
	 {NULL},
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: \"name\" is missing\n"
	 "f:3: SUTRA.CONFIG.PROPERTY.INVALID: \"K\" is no name for a connection: lower-case "
	 "letters, digits and "
	 "single dashes, at most 63\n"
	 "f:4: SUTRA.CONFIG.PROPERTY.INVALID: \"k--k\" is no name for a connection: lower-case "
	 "letters, digits and "
	 "single dashes, at most 63\n"
	 "f:5: SUTRA.CONFIG.PROPERTY.INVALID: \"-k\" is no name for a connection: lower-case "
	 "letters, digits and "
	 "single dashes, at most 63\n"},
	{"connections = (\n { name = \"k\"; transport = \"kafka\"; },\n { name = \"k\"; transport "
	 "= \"kafka\"; } );",
	 {NULL},
	 "f:3: SUTRA.CONFIG.PROPERTY.INVALID: there are two connections named \"k\"\n"},
	{"connections = ( { name = \"k\"; transport = \"smoke\";\n ur = 1; } );",
	 {NULL},
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: unknown key \"ur\"; did you mean \"url\"?\n"
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: transport must be one of kafka, amqp; not \"smoke\"\n"
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: connection \"k\" has no transport\n"},
	{"connections = ( { name = \"k\"; transport = \"kafka\";\n properties = [ \"a=1\", "
	 "\"=2\",\n \"b\", \"a=3\" ]; } );",
	 {NULL},
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: connection \"k\": a property must be written "
	 "name=value\n"
	 "f:3: SUTRA.CONFIG.PROPERTY.INVALID: connection \"k\": a property must be written "
	 "name=value\n"
	 "f:3: SUTRA.CONFIG.PROPERTY.INVALID: connection \"k\": property \"a\" is given twice\n"},
	{"connections = ( { name = \"k\"; transport = \"kafka\"; url = \"x\"; },\n"
	 "{ name = \"r\"; transport = \"amqp\"; heartbeat = \"PT1.5S\";\n properties = [ \"a=1\" "
	 "]; } );",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: connection \"k\": url is not for transport kafka\n"
	 "f:3: SUTRA.CONFIG.PROPERTY.INVALID: connection \"r\": properties is not for transport "
	 "amqp\n"
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: connection \"r\" has no url\n"
	 "f:2: SUTRA.CONFIG.PROPERTY.INVALID: connection \"r\": heartbeat must be whole seconds, "
	 "not PT1.5S\n"},
	{"tenants = ( { name = \"t\"; max-concurrent-instances = -1; } );",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: max-concurrent-instances must be from 0 to "
	 "1000000000, not -1\n"},
	{"tenants = ( \"t\" );",
	 {NULL},
	 "f:1: SUTRA.CONFIG.PROPERTY.INVALID: expected a group { … }, not a text\n"},
	/* Secrets. */
	{"admin: { auth: { key-ref = \"env:NOT_THERE\"; }; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.SECRET.MISSING: admin.auth.key-ref: env:NOT_THERE: there is no such "
	 "environment "
	 "variable\n"},
	{"admin: { auth: { key-ref = \"env:KEY\"; }; };",
	 {"KEY="},
	 "f:1: SUTRA.CONFIG.SECRET.MISSING: admin.auth.key-ref: env:KEY is empty\n"},
	{"datasource: { password = \"secret:../shadow\"; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.SECRET.MISSING: datasource.password: secret:../shadow must name a file "
	 "in secrets.dir, "
	 "without / and ..\n"},
	{"datasource: { password = \"secret:a/b\"; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.SECRET.MISSING: datasource.password: secret:a/b must name a file in "
	 "secrets.dir, without "
	 "/ and ..\n"},
	{"datasource: { password = \"secret:x\"; }; secrets: { dir = \"/nonexistent\"; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.SECRET.MISSING: datasource.password: secret:x: cannot read "
	 "/nonexistent/x: No such file "
	 "or directory\n"},
	{"datasource: { password = \"hunter2\"; };",
	 {NULL},
	 "f:1: SUTRA.CONFIG.SECRET.LITERAL: datasource.password stands in the file itself; write "
	 "secret:KEY or "
	 "env:NAME\n"},
	{"", {"SUTRA_DATASOURCE_PASSWORD=hunter2"}, ""},
	{"connections = ( { name = \"k\"; transport = \"kafka\";\n properties = [ "
	 "\"sasl.password=hunter2\" ]; } );",
	 {NULL},
	 "f:2: SUTRA.CONFIG.SECRET.LITERAL: sasl.password stands in the file itself; write "
	 "secret:KEY or env:NAME\n"},
};

START_TEST(config_findings_say)
{
	struct config_findings findings;
	struct config *config = load(cases[_i].text, cases[_i].environ_, &findings);

	ck_assert_str_eq(findings.text.data ? findings.text.data : "", cases[_i].findings);
	config_free(&config);
	buf_done(&findings.text);
}
END_TEST

/* A default that its own row refuses would show here as a finding. */
START_TEST(config_defaults)
{
	struct config *config = load_right("", no_environment);

	ck_assert_int_eq(config_int(config, "engine.shards"), 1);
	ck_assert_int_eq(config_int(config, "codec.max-payload-bytes"), 10485760);
	ck_assert_int_eq(config_ms(config, "refusal.backoff.min"), 50);
	ck_assert_int_eq(config_ms(config, "inbox.retention"), INT64_C(7) * 86400 * 1000);
	ck_assert_str_eq(config_text(config, "admin.listen"), "127.0.0.1:8080");
	ck_assert(config_bool(config, "datasource.prepare"));
	ck_assert(!config_bool(config, "datasource.migrate"));
	ck_assert(!config_is_set(config, "datasource.url"));
	ck_assert_ptr_null(config_text(config, "datasource.url"));
	ck_assert_int_eq(config_int(config, "engine.shard-queue-capacity"), -1);
	ck_assert_uint_eq(config_connection_count(config), 0);
	ck_assert_ptr_null(config_connection_find(config, STR("kafka")));
	config_free(&config);
	ck_assert_ptr_null(config);
}
END_TEST

/* The rows are sorted, within their bounds' sense, and no two keys share a variable. */
START_TEST(config_table)
{
	for (size_t i = 0; i < option_count; i++) {
		char name[ENV_NAME_SIZE] = "SUTRA_";

		env_name_append(name, option_specs[i].key);
		ck_assert_uint_lt(strlen(name), ENV_NAME_SIZE - 1);
		ck_assert_int_le(option_specs[i].min, option_specs[i].max);
		if (i)
			ck_assert_msg(strcmp(option_specs[i - 1].key, option_specs[i].key) < 0,
				      "%s", option_specs[i].key);
		for (size_t j = 0; j < i; j++) {
			char other[ENV_NAME_SIZE] = "SUTRA_";

			env_name_append(other, option_specs[j].key);
			ck_assert_str_ne(name, other);
		}
	}
}
END_TEST

START_TEST(config_precedence)
{
	static const char text[] = "engine: { shards = 4; };\nlog: { level = \"debug\"; };";
	const char *const environ_[] = {"SUTRA_ENGINE_SHARDS=8",
					"SUTRA_LOG_LEVEL=", "SUTRA_OUTBOX_RETRY_MAX_DELAY=PT7M",
					NULL};
	struct config *config = load_right(text, environ_);

	ck_assert_int_eq(config_int(config, "engine.shards"), 8);
	ck_assert_str_eq(config_text(config, "log.level"), "debug");
	ck_assert_int_eq(config_ms(config, "outbox.retry.max-delay"), 420000);
	ck_assert_int_eq(config_int(config, "datasource.pool-size"), 4);
	config_free(&config);
}
END_TEST

START_TEST(config_connections_from_file_and_environment)
{
	static const char text[] =
		"connections = ( { name = \"kafka\"; transport = \"kafka\";\n"
		"  properties = [ \"bootstrap.servers=k1:9092\", \"client.id=a\" ]; } );\n"
		"tenants = ( { name = \"default\"; max-concurrent-instances = 5; } );";
	const char *const environ_[] = {
		"SUTRA_CONNECTIONS_RABBIT_ONE_URL=amqp://r/%2f",
		"SUTRA_CONNECTIONS_RABBIT_ONE_HEARTBEAT=PT20S",
		"SUTRA_CONNECTIONS_KAFKA_PROPERTIES=client.id=b;sasl.username=x\\;y=z",
		"SUTRA_CONNECTIONS_RABBIT_ONE_TRANSPORT=amqp",
		"SUTRA_CONNECTIONS=kafka, rabbit-one",
		"SUTRA_TENANTS=acme",
		"SUTRA_TENANTS_ACME_MAX_CONCURRENT_INSTANCES=7",
		NULL};
	struct config *config = load_right(text, environ_);
	const struct config_connection *conn;

	ck_assert_uint_eq(config_connection_count(config), 2);
	conn = config_connection_at(config, 0);
	ck_assert_str_eq(conn->name, "kafka");
	ck_assert_str_eq(conn->transport, "kafka");
	ck_assert_uint_eq(conn->property_count, 3);
	ck_assert_str_eq(conn->property_names[0], "bootstrap.servers");
	ck_assert_str_eq(conn->property_values[0], "k1:9092");
	ck_assert_str_eq(conn->property_names[1], "client.id");
	ck_assert_str_eq(conn->property_values[1], "b");
	ck_assert_str_eq(conn->property_values[2], "x;y=z");
	conn = config_connection_find(config, STR("rabbit-one"));
	ck_assert_ptr_nonnull(conn);
	ck_assert_str_eq(conn->transport, "amqp");
	ck_assert_str_eq(conn->url, "amqp://r/%2f");
	ck_assert_int_eq(conn->heartbeat_s, 20);
	ck_assert_int_eq(conn->consumer_timeout_ms, 1800000);
	ck_assert_ptr_null(conn->ca_file);
	ck_assert_int_eq(config_tenant_find(config, STR("default"))->max_concurrent_instances, 5);
	ck_assert_int_eq(config_tenant_find(config, STR("default"))->max_inbound_rate_per_minute,
			 -1);
	ck_assert_int_eq(config_tenant_find(config, STR("acme"))->max_concurrent_instances, 7);
	ck_assert_ptr_null(config_tenant_find(config, STR("nobody")));
	config_free(&config);
}
END_TEST

static char *folder;

static void folder_make(void)
{
	folder = test_dir_new();
}

static void folder_remove(void)
{
	test_dir_free(&folder);
}

START_TEST(config_secrets_resolved_and_masked)
{
	struct buf text = BUF_INIT;
	const char *const environ_[] = {
		"DB_URL=postgresql://u:topsecret1@h/d", "SUTRA_ADMIN_AUTH_KEY_REF=topsecret2",
		"SUTRA_CONNECTIONS_KAFKA_PROPERTIES=ssl.key.password=topsecret3", NULL};
	char *path = test_file_write(folder, "db", STR("topsecret4\r\n"));
	char *path2 = test_file_write(folder, "kafka", STR("topsecret5\n\n"));
	struct config *config;
	char *printed;
	size_t len;

	buf_printf(
		&text,
		"secrets: { dir = \"%s\"; };\ndatasource: { url = \"env:DB_URL\"; password = "
		"\"secret:db\"; "
		"migrate-url = \"host=h password='top\\\\'secret6' user=u\"; };\n"
		"connections = ( { name = \"kafka\"; transport = \"kafka\"; properties = [ "
		"\"sasl.password=secret:kafka\", \"client.id=visible\" ]; },\n"
		"{ name = \"amqp\"; transport = \"amqp\"; url = \"amqp://u:topsecret7@r/\"; } );",
		folder);
	config = load_right(text.data, environ_);
	ck_assert_str_eq(config_text(config, "datasource.url"), "postgresql://u:topsecret1@h/d");
	ck_assert_str_eq(config_text(config, "datasource.password"), "topsecret4");
	ck_assert_str_eq(config_text(config, "admin.auth.key-ref"), "topsecret2");
	ck_assert_str_eq(config_connection_at(config, 0)->property_values[0], "topsecret5\n");
	ck_assert_str_eq(config_connection_at(config, 0)->property_values[2], "topsecret3");
	for (int json = 0; json < 2; json++) {
		FILE *out = open_memstream(&printed, &len);

		config_print(config, json, out);
		fclose(out);
		ck_assert_msg(!strstr(printed, "topsecret") && !strstr(printed, "secret6"), "%s",
			      printed);
		ck_assert_ptr_nonnull(strstr(printed, "secret:db"));
		ck_assert_ptr_nonnull(strstr(printed, "env:DB_URL"));
		ck_assert_ptr_nonnull(strstr(printed, "sasl.password=secret:kafka"));
		ck_assert_ptr_nonnull(strstr(printed, "ssl.key.password=***"));
		ck_assert_ptr_nonnull(strstr(printed, "client.id=visible"));
		ck_assert_ptr_nonnull(strstr(printed, "amqp://u:***@r/"));
		ck_assert_ptr_nonnull(strstr(printed, "host=h password=*** user=u"));
		free(printed);
	}
	config_free(&config);
	buf_done(&text);
	free(path);
	free(path2);
}
END_TEST

START_TEST(config_print_origins)
{
	const char *const environ_[] = {"SUTRA_LOG_LEVEL=error", NULL};
	struct config *config = load_right("\nengine: { shards = 3; };", environ_);
	char *printed;
	size_t len;
	FILE *out = open_memstream(&printed, &len);

	config_print(config, false, out);
	fclose(out);
	ck_assert_ptr_nonnull(strstr(printed, "engine.shards = 3  # f:2\n"));
	ck_assert_ptr_nonnull(strstr(printed, "log.level = \"error\"  # SUTRA_LOG_LEVEL\n"));
	ck_assert_ptr_nonnull(strstr(printed, "log.format = \"json\"  # default\n"));
	ck_assert_ptr_nonnull(strstr(printed, "datasource.url  # unset\n"));
	free(printed);
	out = open_memstream(&printed, &len);
	config_print(config, true, out);
	fclose(out);
	ck_assert_ptr_nonnull(strstr(
		printed, "{\"key\":\"engine.shards\",\"value\":3,\"origin\":\"file\",\"source\":"
			 "\"f\",\"line\":2}"));
	ck_assert_ptr_nonnull(strstr(printed, "{\"key\":\"datasource.url\",\"value\":null}"));
	free(printed);
	config_free(&config);
}
END_TEST

static const struct {
	const char *url;
	const char *shown;
} url_cases[] = {
	{"postgresql://sutra@db/sutra", "postgresql://sutra@db/sutra"},
	{"postgresql://sutra:pw@db/sutra", "postgresql://sutra:***@db/sutra"},
	{"postgresql://sutra:p:w@x@db/sutra", "postgresql://sutra:***@db/sutra"},
	{"postgresql://sutra:p/w@db/sutra", "postgresql://sutra:***@db/sutra"},
	{"postgresql://db:5432/sutra?user=a&password=pw&x=1",
	 "postgresql://db:5432/sutra?user=a&password=***&x=1"},
	{"host=db password=pw dbname=x", "host=db password=*** dbname=x"},
	{"password = 'p w\\'x' host=db", "password = *** host=db"},
	{"host=db sslpassword=pw", "host=db sslpassword=***"},
	{"host=db password=", "host=db password=***"},
	{"", ""},
};

START_TEST(config_url_shown)
{
	struct buf shown = BUF_INIT;

	url_show(url_cases[_i].url, &shown);
	ck_assert_str_eq(shown.data ? shown.data : "", url_cases[_i].shown);
	buf_done(&shown);
}
END_TEST

START_TEST(config_file_chosen)
{
	struct config_findings findings = {.text = BUF_INIT};
	struct config *config = NULL;
	struct buf variable = BUF_INIT;
	char *path = test_file_write(folder, "a.conf",
				     STR("engine: { shards = 5; };\n@include \"b.conf\"\n"));
	char *path2 = test_file_write(folder, "b.conf", STR("log: { level = \"error\"; };\n"));
	char *environ_[] = {NULL, NULL};

	buf_printf(&variable, "SUTRA_CONFIG=%s", path);
	environ_[0] = variable.data;
	ck_assert_int_eq(config_load(NULL, environ_, &config, &findings), RESULT_OK);
	ck_assert_int_eq(config_int(config, "engine.shards"), 5);
	ck_assert_str_eq(config_text(config, "log.level"), "error");
	config_free(&config);
	ck_assert_int_eq(config_load("/nonexistent.conf", environ_, &config, &findings),
			 RESULT_REJECT);
	ck_assert_str_eq(findings.text.data,
			 "/nonexistent.conf: SUTRA.CONFIG.PROPERTY.INVALID: cannot be read: No "
			 "such file or directory\n");
	ck_assert_ptr_null(config);
	buf_reset(&findings.text);
	/* In the working directory, without being asked for. */
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert_int_eq(rename("b.conf", "sutra.conf"), 0);
	ck_assert_int_eq(config_load(NULL, (char *const *)no_environment, &config, &findings),
			 RESULT_OK);
	ck_assert_str_eq(config_text(config, "log.level"), "error");
	config_free(&config);
	ck_assert_int_eq(chdir("/"), 0);
	buf_done(&variable);
	buf_done(&findings.text);
	free(path);
	free(path2);
}
END_TEST

START_TEST(config_secret_limits)
{
	struct error err = ERROR_INIT;
	struct buf out = BUF_INIT;
	char *big = calloc(1, 65536);
	char *path;

	memset(big, 'x', 65536);
	path = test_file_write(folder, "big", str_make(big, 65536));
	ck_assert_int_eq(config_secret(folder, "secret:big", &out, &err), RESULT_REJECT);
	ck_assert_int_eq(err.code, CODE_CONFIG_SECRET_MISSING);
	free(path);
	path = test_file_write(folder, "nul", str_make("a\0b", 3));
	ck_assert_int_eq(config_secret(folder, "secret:nul", &out, &err), RESULT_REJECT);
	free(path);
	path = test_file_write(folder, "empty", STR("\n"));
	ck_assert_int_eq(config_secret(folder, "secret:empty", &out, &err), RESULT_REJECT);
	free(path);
	ck_assert_int_eq(config_secret(folder, "secret:", &out, &err), RESULT_REJECT);
	ck_assert_uint_eq(out.len, 0);
	ck_assert_int_eq(config_secret(folder, "plain", &out, &err), RESULT_OK);
	ck_assert_str_eq(out.data, "plain");
	buf_done(&out);
	free(big);
}
END_TEST

static Suite *config_suite(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = tcase_create("config");

	tcase_add_checked_fixture(tcase, folder_make, folder_remove);
	TEST_ADD_ALL(tcase, config_table, config_defaults, config_precedence,
		     config_connections_from_file_and_environment, config_file_chosen,
		     config_secrets_resolved_and_masked, config_secret_limits,
		     config_print_origins);
	tcase_add_loop_test(tcase, config_findings_say, 0, ARRAY_LEN(cases));
	tcase_add_loop_test(tcase, config_url_shown, 0, ARRAY_LEN(url_cases));
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(config_suite)
