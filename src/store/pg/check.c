/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is looked at before the first lane runs: that the database has the schema this program was built for, and that the role
 * it connects as is held by row-level security. A role that owns the tables, or may bypass the policies, or has sutra_scan's
 * rights all the time, would read and write across tenants without anybody noticing.
 */
#include <stdio.h>

#include "store/pg/private.h"

const struct pg_question pg_questions[] = {
	{"server-old",
	 "select current_setting('server_version_num')::int >= 130000", CODE_STARTUP_DATABASE,
	 "the server is older than PostgreSQL 13",
	 "use PostgreSQL 13 or later", false},
	{"encoding",
	 "select getdatabaseencoding() = 'UTF8'", CODE_STARTUP_DATABASE, "the encoding of the database is not UTF8",
	 "make the database anew with encoding 'UTF8' template template0", false},
	{"schema-missing",
	 "select to_regnamespace('sutra') is not null and has_schema_privilege('sutra', 'usage') "
	 "and to_regclass('sutra.schema_history') is not null "
	 "and has_table_privilege('sutra.schema_history', 'select')",
	 CODE_STARTUP_DATABASE, "the database has no schema sutra that this role may use: run `sutra migrate`",
	 "run `sutra migrate`", false},
	{"superuser",
	 "select not rolsuper and not rolbypassrls from pg_roles where rolname = current_user", CODE_STARTUP_RLS_BYPASS_RISK,
	 "the role is a superuser or has BYPASSRLS",
	 "connect as a role of its own: create role sutra login noinherit", true},
	{"owner",
	 "select not exists (select from pg_class c where c.relnamespace = 'sutra'::regnamespace and c.relkind in ('r', 'p') "
	 "and pg_has_role(current_user, c.relowner, 'USAGE'))",
	 CODE_STARTUP_RLS_BYPASS_RISK, "the role owns tables of schema sutra",
	 "connect as a role of its own, and give the owner's to datasource.migrate-url", true},
	{"scan-inherited",
	 "select not pg_has_role(current_user, 'sutra_scan', 'USAGE')", CODE_STARTUP_RLS_BYPASS_RISK,
	 "the role inherits sutra_scan: make it NOINHERIT, or from PostgreSQL 16 on grant sutra_scan WITH INHERIT FALSE",
	 "alter role … noinherit; from PostgreSQL 16 on: grant sutra_scan to … with inherit false", true},
	{"rls-not-forced",
	 "select not exists (select from pg_class c where c.relnamespace = 'sutra'::regnamespace "
	 "and not (c.relrowsecurity and c.relforcerowsecurity) and c.relname in ('instance', 'wait', 'alias', 'inbox', "
	 "'inbox_message', 'early', 'outbox_entry', 'dead_letter', 'timer', 'timer_schedule'))",
	 CODE_STARTUP_RLS_BYPASS_RISK, "row-level security is not forced on every table of a tenant",
	 "run `sutra migrate`; look who has altered the tables", true},
	{"scan-not-member",
	 "select exists (select from pg_roles where rolname = 'sutra_scan') and pg_has_role(current_user, 'sutra_scan', 'MEMBER')",
	 CODE_STARTUP_DATABASE, "the role is no member of sutra_scan: run `sutra migrate`",
	 "run `sutra migrate`; what it may not do itself it prints for a superuser", false},
	{NULL, NULL, CODE_NONE, NULL, NULL, false},
};

enum result pg_check_version(PGconn *pg, struct error *err)
{
	int64_t want = migrations[migration_count - 1].version, have = 0;
	struct buf answer = BUF_INIT;
	enum result result = RESULT_OK;

	if (!blocking_query(pg, "select coalesce(max(version), 0) from sutra.schema_history", &answer, err) ||
	    !str_to_int64(buf_str(&answer), &have))
		result = err->what;
	else if (have < want)
		result = error_set(err, RESULT_FATAL, CODE_STARTUP_DATABASE,
				   "the schema is at version %lld, this program needs %lld: run `sutra migrate`", (long long)have,
				   (long long)want);
	else if (have > want)
		result = error_set(err, RESULT_FATAL, CODE_STARTUP_DATABASE,
				   "the schema is at version %lld, this program knows %lld: run the newer program", (long long)have,
				   (long long)want);
	buf_done(&answer);
	return result;
}

enum result pg_check(const struct pg_settings *settings, struct error *err)
{
	struct buf answer = BUF_INIT;
	struct error local = ERROR_INIT;
	enum result result = RESULT_OK;
	PGconn *pg;

	if (!err)
		err = &local;
	pg = blocking_connect(settings->url, settings->password, settings->application, err);
	if (!pg)
		return err->what;
	for (const struct pg_question *question = pg_questions; result == RESULT_OK && question->name; question++) {
		if (question->rls && !settings->check_rls)
			continue;
		if (!blocking_query(pg, question->sql, &answer, err))
			result = err->what;
		else if (strcmp(answer.data, "t") != 0)
			result = error_set(err, RESULT_FATAL, question->code, "%s", question->trouble);
	}
	if (result == RESULT_OK)
		result = pg_check_version(pg, err);
	buf_done(&answer);
	PQfinish(pg);
	return result;
}
