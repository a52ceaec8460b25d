/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may see what: tenants apart by row-level security, scans by their columns; the check before the start; migrations by several
 * processes at once, of a schema from another build, and by an owner who may not do everything.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/pg/private.h"
#include "tests/flow/pg_fixture.h"
#include "tests/support/store_suite.h"

static PGconn *admin;

static void setup(void)
{
	pg_fixture_reset();
	admin = pg_admin_open();
}

static void teardown(void)
{
	PQfinish(admin);
}

static PGconn *open_as(const char *user, const char *database)
{
	char url[256];
	PGconn *pg;

	snprintf(url, sizeof(url), "postgresql://%s@127.0.0.1:%d/%s", user, pg_fixture_port(), database);
	pg = PQconnectdb(url);
	ck_assert_msg(PQstatus(pg) == CONNECTION_OK, "%s", PQerrorMessage(pg));
	return pg;
}

/* The SQLSTATE, "" if it succeeds. */
static void check_state(PGconn *pg, const char *sql, const char *want)
{
	PGresult *result = PQexec(pg, sql);
	const char *have = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	ck_assert_msg(strcmp(have ? have : "", want) == 0, "%s: '%s', want '%s'", sql, have ? have : "", want);
	PQclear(result);
}

static void spawn_of(struct store_rig *rig, const char *tenant, uint32_t n)
{
	struct store_commit *commit = arena_zalloc(&rig->arena, sizeof(*commit));
	const char *name = arena_printf(&rig->arena, "%s%u", tenant, n);

	rig_spawn(rig, commit, tenant, test_id(n));
	commit_inbox(rig, commit, name);
	commit_wait(rig, commit, 1, name, false);
	commit_alias(rig, commit, name, false);
	commit_send(rig, commit, "out", "body");
	commit_dead_letter(rig, commit, test_id(1000 + n), STR("detail"));
	commit_keep(rig, commit, test_id(2000 + n), test_id(3000), "body");
	commit_timer(rig, commit, 1, 1700000000000000);
	commit_session(rig, commit, "", "calls", false, true, 0);
	ck_assert_int_eq(rig_run(rig, &commit->base), STORE_OK);
	rig_query(rig, arena_printf(&rig->arena, ",%s,", tenant), true, STATEMENT_SCHEDULE_PUT, test_id(4000 + n), tenant, "d", "p", "s",
		  "R/PT1M", INT64_C(1700000000000000), INT64_C(-1));
	rig_query(rig, arena_printf(&rig->arena, ",%s,", tenant), true, STATEMENT_POOL_PUT, "lines", INT64_C(9), INT64_C(0), INT64_C(0), NULL);
}

static void given_two_tenants(void)
{
	struct pg_settings settings = pg_fixture_settings();
	struct store_rig rig;

	store_rig_init(&rig, pg_executor_new(&settings), NULL);
	for (uint32_t n = 0; n < 6; n++)
		spawn_of(&rig, n % 2 ? "b" : "a", n);
	store_rig_done(&rig);
}

static const char *const tenant_tables[] = {"instance", "wait", "alias", "inbox", "outbox_entry", "dead_letter",
					     "inbox_message", "timer", "timer_schedule", "channel_session"};

START_TEST(tenants_see_their_own_rows)
{
	PGconn *pg = open_as("sutra", "sutra");

	given_two_tenants();
	for (size_t i = 0; i < ARRAY_LEN(tenant_tables); i++) {
		const char *table = tenant_tables[i];

		ck_assert_int_eq(pg_number(pg, "select count(*) from sutra.%s", table), 0);
		pg_exec(pg, "begin; set local sutra.tenant = ',a,'");
		ck_assert_int_eq(pg_number(pg, "select count(*) from sutra.%s", table), 3);
		ck_assert_int_eq(pg_number(pg, "select count(*) from sutra.%s where tenant <> 'a'", table), 0);
		pg_exec(pg, "delete from sutra.%s where tenant = 'b'", table);
		pg_exec(pg, "commit; begin; set local sutra.tenant = ',a,b,'");
		ck_assert_int_eq(pg_number(pg, "select count(*) from sutra.%s", table), 6);
		pg_exec(pg, "commit; begin; set local sutra.tenant = ',ab,'");
		ck_assert_int_eq(pg_number(pg, "select count(*) from sutra.%s", table), 0);
		pg_exec(pg, "commit");
		/* The owner is held too. */
		ck_assert_int_eq(pg_number(admin, "set role sutra_owner; select count(*) from sutra.%s", table), 0);
		pg_exec(admin, "reset role");
	}
	pg_exec(pg, "begin; set local sutra.tenant = ',a,'");
	check_state(pg, "insert into sutra.inbox (key, created_at, tenant) values (gen_random_uuid(), now(), 'b')", "42501");
	pg_exec(pg, "rollback; begin; set local sutra.tenant = ',a,'");
	check_state(pg, "update sutra.instance set tenant = 'b'", "42501");
	pg_exec(pg, "rollback");
	PQfinish(pg);
}
END_TEST

START_TEST(scans_see_keys_and_stamps_only)
{
	PGconn *pg = open_as("sutra", "sutra");

	given_two_tenants();
	pg_exec(pg, "begin; set local role sutra_scan");
	ck_assert_int_eq(pg_number(pg, "select count(id) from sutra.instance"), 6);
	ck_assert_int_eq(pg_number(pg, "select count(instance_id) from sutra.outbox_entry"), 6);
	ck_assert_int_eq(pg_number(pg, "select count(channel) from sutra.inbox_message"), 6);
	ck_assert_int_eq(pg_number(pg, "select count(due_at) from sutra.timer"), 6);
	ck_assert_int_eq(pg_number(pg, "select count(call_key) from sutra.channel_session"), 6);
	pg_exec(pg, "update sutra.instance set claim_owner = null");
	pg_exec(pg, "commit");
	ck_assert_int_eq(pg_number(pg, "select count(*) from sutra.instance"), 0);
	static const char *const denied[] = {
		"select snapshot from sutra.instance",		 "select body from sutra.outbox_entry",
		"select payload from sutra.dead_letter",	 "select value from sutra.alias",
		"update sutra.instance set status = 'COMPLETED'", "delete from sutra.instance",
		"delete from sutra.outbox_entry",		 "select headers from sutra.outbox_entry",
		"select body from sutra.inbox_message",		 "select envelope from sutra.inbox_message",
		"update sutra.inbox_message set keeper = null",	 "delete from sutra.inbox_message",
		"select node from sutra.timer",			 "update sutra.timer set due_at = now()",
		"delete from sutra.timer",			 "select spec from sutra.timer_schedule",
		"select channel from sutra.channel_session",	 "update sutra.channel_session set counts = false",
		"delete from sutra.channel_session",		 "select used from sutra.tenant_rate",
		"update sutra.capacity_pool set slots = 1",	 "update sutra.capacity_slot set pool = 'x'",
	};
	for (size_t i = 0; i < ARRAY_LEN(denied); i++) {
		pg_exec(pg, "begin; set local role sutra_scan");
		check_state(pg, denied[i], "42501");
		pg_exec(pg, "rollback");
	}
	PQfinish(pg);
}
END_TEST

START_TEST(segments_keep_tenants_apart)
{
	struct pg_settings settings = pg_fixture_settings();
	struct store_rig rig;
	struct store_claim claim;

	given_two_tenants();
	store_rig_init(&rig, pg_executor_new(&settings), NULL);
	rig_claim(&rig, &claim, "a", test_id(1), "o");
	ck_assert_int_eq(rig_run(&rig, &claim.base), STORE_REFUSED);
	rig_claim(&rig, &claim, "b", test_id(1), "o");
	ck_assert_int_eq(rig_run(&rig, &claim.base), STORE_OK);
	ck_assert_uint_eq(rig_query(&rig, ",a,", false, STATEMENT_INSTANCE_GET, test_id(1))->row_count, 0);
	ck_assert_uint_eq(rig_query(&rig, ",b,", false, STATEMENT_INSTANCE_GET, test_id(1))->row_count, 1);
	store_rig_done(&rig);
}
END_TEST

/* --- the check before the start --- */

static void check_start(const char *user, const char *database, bool check_rls, enum result want, enum code code)
{
	struct pg_settings settings = pg_fixture_settings();
	struct error err = ERROR_INIT;
	char url[256];
	enum result have;

	snprintf(url, sizeof(url), "postgresql://%s@127.0.0.1:%d/%s", user, pg_fixture_port(), database);
	settings.url = url;
	settings.check_rls = check_rls;
	have = pg_check(&settings, &err);
	ck_assert_msg(have == want && err.code == code, "%s on %s: %d %s %s", user, database, have, code_text(err.code), err.text);
}

START_TEST(start_is_refused_to_roles_beyond_the_policies)
{
	check_start("sutra", "sutra", true, RESULT_OK, CODE_NONE);
	check_start("postgres", "sutra", true, RESULT_FATAL, CODE_STARTUP_RLS_BYPASS_RISK);
	check_start("postgres", "sutra", false, RESULT_OK, CODE_NONE);
	check_start("sutra_owner", "sutra", true, RESULT_FATAL, CODE_STARTUP_RLS_BYPASS_RISK);
	check_start("sutra", "template1", true, RESULT_FATAL, CODE_STARTUP_DATABASE);
	check_start("sutra", "nowhere", true, RESULT_AGAIN, CODE_STARTUP_DATABASE);
	pg_exec(admin, "alter role sutra bypassrls");
	check_start("sutra", "sutra", true, RESULT_FATAL, CODE_STARTUP_RLS_BYPASS_RISK);
	pg_exec(admin, "alter role sutra nobypassrls");
	if (PQserverVersion(admin) < 160000) {
		pg_exec(admin, "alter role sutra inherit");
		check_start("sutra", "sutra", true, RESULT_FATAL, CODE_STARTUP_RLS_BYPASS_RISK);
		pg_exec(admin, "alter role sutra noinherit");
	}
	pg_exec(admin, "alter table sutra.alias no force row level security");
	check_start("sutra", "sutra", true, RESULT_FATAL, CODE_STARTUP_RLS_BYPASS_RISK);
	pg_exec(admin, "alter table sutra.alias force row level security");
	pg_exec(admin, "begin; update sutra.schema_history set version = version + 1000; commit");
	check_start("sutra", "sutra", true, RESULT_FATAL, CODE_STARTUP_DATABASE);
	pg_exec(admin, "update sutra.schema_history set version = version - 1000");
	check_start("sutra", "sutra", true, RESULT_OK, CODE_NONE);
}
END_TEST

/* --- migrations --- */

static void collect(const char *line, void *arg)
{
	struct buf *said = arg;

	buf_add_text(said, line);
	buf_add_byte(said, '\n');
}

static enum result migrate(const char *user, const char *database, const char *engine, struct buf *said, struct error *err)
{
	char url[256];
	struct pg_migration migration = {.url = url, .engine_role = engine, .say = collect, .arg = said};

	snprintf(url, sizeof(url), "postgresql://%s@127.0.0.1:%d/%s", user, pg_fixture_port(), database);
	return pg_migrate(&migration, err);
}

#define PROCESSES 6

START_TEST(migrations_by_several_at_once)
{
	PGconn *fresh;
	int status;

	pg_exec(admin, "drop database if exists fresh");
	pg_exec(admin, "create database fresh owner sutra_owner");
	for (int i = 0; i < PROCESSES; i++)
		if (fork() == 0) {
			struct buf said = BUF_INIT;
			struct error err = ERROR_INIT;
			enum result result = migrate("sutra_owner", "fresh", "sutra", &said, &err);

			if (result != RESULT_OK)
				fprintf(stderr, "%s%s\n", said.data ? said.data : "", err.text);
			_exit(result != RESULT_OK);
		}
	for (int i = 0; i < PROCESSES; i++) {
		ck_assert(wait(&status) > 0);
		ck_assert_int_eq(status, 0);
	}
	fresh = open_as("postgres", "fresh");
	ck_assert_int_eq(pg_number(fresh, "select count(*) from sutra.schema_history"), migration_count);
	check_start("sutra", "fresh", true, RESULT_OK, CODE_NONE);
	PQfinish(fresh);
	pg_exec(admin, "drop database fresh");
}
END_TEST

/* A database as the first version left it, with a row of its own, is brought forward; before that the start is refused. */
START_TEST(migration_goes_on_from_an_older_version)
{
	struct buf said = BUF_INIT;
	struct error err = ERROR_INIT;
	char checksum[65];
	PGconn *old;

	pg_exec(admin, "drop database if exists older");
	pg_exec(admin, "create database older owner sutra_owner");
	old = open_as("sutra_owner", "older");
	sha256_hex(str_of(migrations[0].sql), checksum);
	/* Not through a format: the text has percent signs of its own. */
	check_state(old, migrations[0].sql, "");
	pg_exec(old, "insert into sutra.schema_history (version, name, checksum) values (%d, '%s', '%s')", migrations[0].version,
		migrations[0].name, checksum);
	pg_exec(old, "grant usage on schema sutra to sutra; grant select on sutra.schema_history to sutra");
	pg_exec(old, "begin; set local sutra.tenant = ',a,'; insert into sutra.inbox (key, created_at, tenant) "
		     "values (gen_random_uuid(), now(), 'a'); commit");
	check_start("sutra", "older", true, RESULT_FATAL, CODE_STARTUP_DATABASE);
	ck_assert_msg(migrate("sutra_owner", "older", "sutra", &said, &err) == RESULT_OK, "%s%s", said.data, err.text);
	ck_assert_msg(!strstr(said.data, migrations[0].name) && strstr(said.data, migrations[1].name), "%s", said.data);
	check_start("sutra", "older", true, RESULT_OK, CODE_NONE);
	pg_exec(old, "begin; set local sutra.tenant = ',a,'");
	ck_assert_int_eq(pg_number(old, "select count(*) from sutra.inbox"), 1);
	pg_exec(old, "commit");
	ck_assert_int_eq(pg_number(old, "select max(version) from sutra.schema_history"), migrations[migration_count - 1].version);
	PQfinish(old);
	pg_exec(admin, "drop database older");
	buf_done(&said);
}
END_TEST

START_TEST(migration_of_another_build_is_refused)
{
	struct buf said = BUF_INIT;
	struct error err = ERROR_INIT;

	pg_exec(admin, "update sutra.schema_history set checksum = 'x' || checksum");
	ck_assert_int_eq(migrate("sutra_owner", "sutra", "sutra", &said, &err), RESULT_FATAL);
	ck_assert_int_eq(err.code, CODE_STARTUP_DATABASE);
	pg_exec(admin, "update sutra.schema_history set checksum = substr(checksum, 2)");
	ck_assert_int_eq(migrate("sutra_owner", "sutra", "sutra", &said, &err), RESULT_OK);
	pg_exec(admin, "update sutra.schema_history set version = version + 1000");
	ck_assert_int_eq(migrate("sutra_owner", "sutra", "sutra", &said, &err), RESULT_FATAL);
	pg_exec(admin, "update sutra.schema_history set version = version - 1000");
	buf_done(&said);
}
END_TEST

START_TEST(what_the_owner_may_not_do_is_said)
{
	struct buf said = BUF_INIT;
	struct error err = ERROR_INIT;

	pg_exec(admin, "drop database if exists poor");
	pg_exec(admin, "drop role if exists poor_engine");
	pg_exec(admin, "drop role if exists poor_owner");
	pg_exec(admin, "create role poor_owner login; create role poor_engine login noinherit");
	pg_exec(admin, "create database poor owner poor_owner");
	ck_assert_int_eq(migrate("poor_owner", "poor", "poor_engine", &said, &err), RESULT_FATAL);
	ck_assert_msg(strstr(said.data, "grant sutra_scan to \"poor_engine\"") != NULL, "%s", said.data);
	ck_assert_msg(strstr(said.data, "alter role \"poor_engine\" in database \"poor\" set plan_cache_mode") != NULL, "%s",
		      said.data);
	/* A superuser does what was said. */
	if (PQserverVersion(admin) >= 160000)
		pg_exec(admin, "grant sutra_scan to poor_engine with inherit false, set true");
	else
		pg_exec(admin, "grant sutra_scan to poor_engine");
	buf_reset(&said);
	ck_assert_msg(migrate("poor_owner", "poor", "poor_engine", &said, &err) == RESULT_OK, "%s%s", said.data, err.text);
	check_start("poor_engine", "poor", true, RESULT_OK, CODE_NONE);
	ck_assert_int_eq(migrate("poor_owner", "poor", "nobody_there", &said, &err), RESULT_FATAL);
	pg_exec(admin, "drop database poor");
	buf_done(&said);
}
END_TEST

static Suite *roles_suite(void)
{
	Suite *suite = suite_create("roles on PostgreSQL");
	TCase *tcase = tcase_create("roles");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, tenants_see_their_own_rows, scans_see_keys_and_stamps_only, segments_keep_tenants_apart,
		     start_is_refused_to_roles_beyond_the_policies, migrations_by_several_at_once,
		     migration_goes_on_from_an_older_version,
		     migration_of_another_build_is_refused, what_the_owner_may_not_do_is_said);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(int argc, char **argv)
{
	return pg_fixture_main(argc, argv, roles_suite);
}
