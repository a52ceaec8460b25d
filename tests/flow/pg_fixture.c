/* SPDX-License-Identifier: Apache-2.0 */
/* A PostgreSQL for Check programs: see the header. */
#include "tests/flow/pg_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/time.h"

#define DEADLINE_US (20 * US_PER_S)

struct pg_settings pg_fixture_settings(void)
{
	return (struct pg_settings){
		.url = getenv("SUTRA_DATASOURCE_URL"),
		.step_connections = 2,
		.prepare = true,
		.application = "sutra/test-boot",
		.check_rls = true,
	};
}

int pg_fixture_port(void)
{
	return (int)strtol(getenv("PGPORT"), NULL, 10);
}

char *pg_fixture_url(int port)
{
	char *url = NULL;

	ck_assert(asprintf(&url, "postgresql://sutra@127.0.0.1:%d/sutra", port) > 0);
	return url;
}

PGconn *pg_admin_open(void)
{
	PGconn *pg = PQconnectdb("application_name=admin");

	ck_assert_msg(PQstatus(pg) == CONNECTION_OK, "%s", PQerrorMessage(pg));
	return pg;
}

static PGresult *run(PGconn *pg, const char *fmt, va_list ap)
{
	char *sql = NULL;
	PGresult *result;

	ck_assert(vasprintf(&sql, fmt, ap) >= 0);
	result = PQexec(pg, sql);
	ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s", sql,
		      PQerrorMessage(pg));
	free(sql);
	return result;
}

void pg_exec(PGconn *pg, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	PQclear(run(pg, fmt, ap));
	va_end(ap);
}

long long pg_number(PGconn *pg, const char *fmt, ...)
{
	PGresult *result;
	long long number = -1;
	va_list ap;

	va_start(ap, fmt);
	result = run(pg, fmt, ap);
	va_end(ap);
	if (PQntuples(result) && !PQgetisnull(result, 0, 0))
		number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return number;
}

void pg_wait_number(PGconn *pg, long long want, const char *sql)
{
	int64_t until_us = time_monotonic_us() + DEADLINE_US;
	long long have;

	while ((have = pg_number(pg, "%s", sql)) != want)
		ck_assert_msg(time_monotonic_us() < until_us, "%s: %lld, not %lld", sql, have, want);
}

void pg_fixture_reset(void)
{
	PGconn *pg = pg_admin_open();
	PGresult *sessions = PQexec(pg, "select pid from pg_stat_activity where usename = 'sutra'");

	/* A test that failed may have left one stopped, which does not end when it is told to. */
	for (int i = 0; i < PQntuples(sessions); i++)
		kill((pid_t)strtol(PQgetvalue(sessions, i, 0), NULL, 10), SIGCONT);
	PQclear(sessions);
	pg_exec(pg, "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'sutra'");
	pg_exec(pg, "truncate sutra.instance, sutra.wait, sutra.alias, sutra.inbox, sutra.outbox_entry, sutra.dead_letter, "
		    "sutra.inbox_message, sutra.early, sutra.timer, sutra.timer_schedule, sutra.lease, sutra.deployment, "
		    "sutra.capacity_pool, sutra.capacity_slot, sutra.channel_session, sutra.tenant_rate");
	PQfinish(pg);
}

static void say(const char *line, void *arg UNUSED)
{
	fprintf(stderr, "migrate: %s\n", line);
}

int pg_fixture_main(int argc, char **argv, Suite *(*suite)(void))
{
	struct pg_migration migration = {.engine_role = "sutra", .say = say};
	struct error err = ERROR_INIT;

	if (!getenv("SUTRA_DATASOURCE_MIGRATE_URL") || !getenv("PGPORT")) {
		char *starter = test_source_path("tests/services/postgresql.py");

		execlp("python3", "python3", starter, "run", "--", argv[0], argc > 1 ? argv[1] : (char *)NULL, (char *)NULL);
		perror("python3");
		return 1;
	}
	migration.url = getenv("SUTRA_DATASOURCE_MIGRATE_URL");
	if (pg_migrate(&migration, &err) != RESULT_OK) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	return test_run(suite());
}
