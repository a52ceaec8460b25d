/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is looked at before the first lane runs: that the database has the schema this program was built for, and that the role
 * it connects as is held by row-level security. A role that owns the tables, or may bypass the policies, or has sutra_scan's
 * rights all the time, would read and write across tenants without anybody noticing.
 */
#include <stdio.h>

#include "store/pg/private.h"

/* A yes-or-no question about the database, its good answer being "t", and what the other means. */
struct question {
	const char *sql;
	enum code code;
	const char *trouble;
	bool rls; /* left out when persistence.rls-bypass-check.enabled is false */
};

static const struct question questions[] = {
	{"select current_setting('server_version_num')::int >= 130000", CODE_STARTUP_DATABASE,
	 "the server is older than PostgreSQL 13", false},
	{"select getdatabaseencoding() = 'UTF8'", CODE_STARTUP_DATABASE, "the encoding of the database is not UTF8", false},
	{"select to_regnamespace('sutra') is not null and has_schema_privilege('sutra', 'usage') "
	 "and to_regclass('sutra.schema_history') is not null "
	 "and has_table_privilege('sutra.schema_history', 'select')",
	 CODE_STARTUP_DATABASE, "the database has no schema sutra that this role may use: run `sutra migrate`", false},
	{"select not rolsuper and not rolbypassrls from pg_roles where rolname = current_user", CODE_STARTUP_RLS_BYPASS_RISK,
	 "the role is a superuser or has BYPASSRLS", true},
	{"select not exists (select from pg_class c where c.relnamespace = 'sutra'::regnamespace and c.relkind in ('r', 'p') "
	 "and pg_has_role(current_user, c.relowner, 'USAGE'))",
	 CODE_STARTUP_RLS_BYPASS_RISK, "the role owns tables of schema sutra", true},
	{"select not pg_has_role(current_user, 'sutra_scan', 'USAGE')", CODE_STARTUP_RLS_BYPASS_RISK,
	 "the role inherits sutra_scan: make it NOINHERIT, or from PostgreSQL 16 on grant sutra_scan WITH INHERIT FALSE", true},
	{"select count(*) = 6 from pg_class c where c.relnamespace = 'sutra'::regnamespace and c.relrowsecurity "
	 "and c.relforcerowsecurity and c.relname in ('instance', 'wait', 'alias', 'inbox', 'outbox_entry', 'dead_letter')",
	 CODE_STARTUP_RLS_BYPASS_RISK, "row-level security is not forced on every table of a tenant", true},
	{"select exists (select from pg_roles where rolname = 'sutra_scan') and pg_has_role(current_user, 'sutra_scan', 'MEMBER')",
	 CODE_STARTUP_DATABASE, "the role is no member of sutra_scan: run `sutra migrate`", false},
};

static enum result check_version(PGconn *pg, struct error *err)
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
	for (size_t i = 0; result == RESULT_OK && i < ARRAY_LEN(questions); i++) {
		if (questions[i].rls && !settings->check_rls)
			continue;
		if (!blocking_query(pg, questions[i].sql, &answer, err))
			result = err->what;
		else if (strcmp(answer.data, "t") != 0)
			result = error_set(err, RESULT_FATAL, questions[i].code, "%s", questions[i].trouble);
	}
	if (result == RESULT_OK)
		result = check_version(pg, err);
	buf_done(&answer);
	PQfinish(pg);
	return result;
}
