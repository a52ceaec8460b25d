/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `sutra doctor` asks of the database. The questions of the check before the start come first, all of them and not only
 * up to the first that fails; then grants, settings, connections, the pooler in between, the clock, and how large the inbox
 * will grow. One connection, as the engine's role; nothing is changed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/time.h"
#include "store/pg/private.h"

/* A replica has these beside its pool: one for background work, one for what waits for locks. */
#define MORE_CONNECTIONS 2
#define CLOCK_OFFSET_MAX_US US_PER_S
/* A rate measured over less is none. */
#define INBOX_SPAN_MIN_S 600
#define INBOX_ROWS_MANY 1e9
/* Heap and index of a row, where the table is too small to tell. */
#define INBOX_ROW_BYTES 170

struct examiner {
	const struct pg_examination *settings;
	struct report *report;
	PGconn *pg;
	struct buf answer;
};

/* The first field in e->answer; false if the question cannot be asked, which is a finding of its own. */
static bool ask(struct examiner *e, const char *check, const char *sql)
{
	struct error err = ERROR_INIT;

	if (blocking_query(e->pg, sql, &e->answer, &err))
		return true;
	report_add(e->report, SEVERITY_WARNING, CODE_STARTUP_DATABASE_SUSPICIOUS, check, NULL, "cannot be checked: %s",
		   err.text);
	return false;
}

static bool ask_yes(struct examiner *e, const char *check, const char *sql)
{
	return ask(e, check, sql) && strcmp(e->answer.data, "t") == 0;
}

static int64_t ask_int(struct examiner *e, const char *check, const char *sql, int64_t otherwise)
{
	int64_t value = otherwise;

	if (!ask(e, check, sql) || !str_to_int64(buf_str(&e->answer), &value))
		return otherwise;
	return value;
}

/* --- what the start would refuse --- */

/* False: there is no schema to ask more about. */
static bool examine_start(struct examiner *e)
{
	struct error err = ERROR_INIT;

	for (const struct pg_question *question = pg_questions; question->name; question++) {
		bool is_schema = strcmp(question->name, "schema-missing") == 0;

		if (blocking_query(e->pg, question->sql, &e->answer, &err) && strcmp(e->answer.data, "t") == 0)
			continue;
		report_add(e->report, question->rls && !e->settings->check_rls ? SEVERITY_WARNING : SEVERITY_ERROR,
			   question->code, question->name, is_schema ? "schema sutra" : NULL, "%s", question->trouble);
		report_remedy(e->report, "%s", question->remedy);
		if (is_schema)
			return false;
	}
	if (pg_check_version(e->pg, &err) != RESULT_OK) {
		report_add(e->report, SEVERITY_ERROR, CODE_STARTUP_DATABASE, "schema-version", "schema sutra", "%s", err.text);
		report_remedy(e->report, "run `sutra migrate` of this version, or the version that made the schema");
		return false;
	}
	if (ask(e, "schema-version", "select max(version) from sutra.schema_history"))
		report_add(e->report, SEVERITY_INFO, CODE_NONE, "schema", "schema sutra", "version %s, as this program needs",
			   e->answer.data);
	return true;
}

/* --- grants --- */

static void examine_grants(struct examiner *e)
{
	if (ask(e, "grants-missing",
		"select string_agg(c.relname || ' (' || p || ')', ', ' order by c.relname, p) from pg_class c, "
		"unnest(array['select', 'insert']) p where c.relnamespace = 'sutra'::regnamespace "
		"and c.relkind in ('r', 'p') and (c.relname <> 'schema_history' or p = 'select') "
		"and not has_table_privilege(c.oid, p) and not has_any_column_privilege(c.oid, p)") &&
	    e->answer.len) {
		report_add(e->report, SEVERITY_ERROR, CODE_STARTUP_DATABASE, "grants-missing", NULL,
			   "the role lacks rights on tables: %s", e->answer.data);
		report_remedy(e->report, "run `sutra migrate`, which renews the grants");
	}
}

static void examine_scan(struct examiner *e)
{
	struct error err = ERROR_INIT;
	bool ok = blocking_query(e->pg, "begin", NULL, &err) && blocking_query(e->pg, "set local role sutra_scan", NULL, &err) &&
		  blocking_query(e->pg, "select count(id) from (select id from sutra.instance limit 1) i", &e->answer, &err);
	struct error ignored = ERROR_INIT;

	if (!blocking_query(e->pg, "rollback", NULL, &ignored))
		ok = false;
	if (ok)
		return;
	report_add(e->report, SEVERITY_ERROR, CODE_STARTUP_DATABASE, "scan-role", "role sutra_scan",
		   "the engine cannot take it on: %s", err.text);
	report_remedy(e->report, "run `sutra migrate`; from PostgreSQL 16 on: grant sutra_scan to … with inherit false, set true");
}

/* --- settings --- */

static void examine_role_settings(struct examiner *e)
{
	struct buf missing = BUF_INIT;

	for (const struct sql_setting *setting = sql_settings; setting->name; setting++) {
		char sql[200];

		snprintf(sql, sizeof(sql), "select current_setting('%s')", setting->name);
		if (ask(e, "role-settings", sql) && strcmp(e->answer.data, setting->value) != 0)
			buf_printf(&missing, "%s%s = %s", missing.len ? ", " : "", setting->name, setting->value);
	}
	if (missing.len) {
		bool needed = !e->settings->prepare;

		report_add(e->report, needed ? SEVERITY_ERROR : SEVERITY_WARNING, CODE_STARTUP_DATABASE_SUSPICIOUS,
			   "role-settings", NULL, "the role lacks planner settings (%s)%s", missing.data,
			   needed ? ", which it cannot make for itself with datasource.prepare = false"
				  : "; the engine makes most of them for each session");
		report_remedy(e->report, "run `sutra migrate`, and as a superuser what it prints: alter role … in database … set …");
	}
	buf_done(&missing);
}

struct durability {
	const char *name, *sql, *what;
	enum severity severity;
};

static const struct durability durabilities[] = {
	{"fsync", "select current_setting('fsync')",
	 "off: a crash of the machine loses or destroys what was committed and acknowledged", SEVERITY_ERROR},
	{"synchronous_commit", "select current_setting('synchronous_commit')",
	 "off: messages are acknowledged before their effect is on disk, and a crash loses it", SEVERITY_ERROR},
	{"full_page_writes", "select current_setting('full_page_writes')",
	 "off: a crash of the machine may leave torn pages, unless the file system excludes them", SEVERITY_WARNING},
	{"autovacuum", "select current_setting('autovacuum')", "off: outbox and instances grow slower by the hour",
	 SEVERITY_WARNING},
};

static void examine_durability(struct examiner *e)
{
	struct buf facts = BUF_INIT;

	for (size_t i = 0; i < ARRAY_LEN(durabilities); i++) {
		const struct durability *d = &durabilities[i];

		if (!ask(e, d->name, d->sql))
			continue;
		buf_printf(&facts, "%s%s = %s", facts.len ? ", " : "", d->name, e->answer.data);
		if (strcmp(e->answer.data, "off") != 0)
			continue;
		report_add(e->report, d->severity, CODE_STARTUP_DATABASE_SUSPICIOUS, "not-durable", d->name, "%s", d->what);
		report_remedy(e->report, "set %s = on for the server and the role", d->name);
	}
	report_add(e->report, SEVERITY_INFO, CODE_NONE, "durability", NULL, "%s", facts.data ? facts.data : "");
	if (ask(e, "log-statements", "select current_setting('log_min_error_statement')") &&
	    strcmp(e->answer.data, "fatal") != 0 && strcmp(e->answer.data, "panic") != 0)
		report_add(e->report, SEVERITY_INFO, CODE_NONE, "log-statements", NULL,
			   "log_min_error_statement = %s: each repeated event logs a whole batch; 'fatal' for the role avoids it",
			   e->answer.data);
	buf_done(&facts);
}

/* --- connections --- */

static void examine_connections(struct examiner *e)
{
	int64_t want = e->settings->step_connections + MORE_CONNECTIONS;
	int64_t most = ask_int(e, "connections",
			       "select least(current_setting('max_connections')::int "
			       "- current_setting('superuser_reserved_connections')::int, "
			       "(select nullif(datconnlimit, -1) from pg_database where datname = current_database()), "
			       "(select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user))",
			       INT64_MAX);
	int64_t taken = ask_int(e, "connections",
				"select count(*) from pg_stat_activity where datid is not null and pid <> pg_backend_pid()", 0);

	if (most == INT64_MAX)
		return;
	if (want > most) {
		report_add(e->report, SEVERITY_ERROR, CODE_STARTUP_DATABASE_SUSPICIOUS, "connections", NULL,
			   "a replica opens %" PRId64 " connections, the server allows %" PRId64, want, most);
		report_remedy(e->report, "lower datasource.pool-size, or raise max_connections or the limit of role or database");
	} else if (want > most - taken) {
		report_add(e->report, SEVERITY_WARNING, CODE_STARTUP_DATABASE_SUSPICIOUS, "connections", NULL,
			   "a replica opens %" PRId64 " connections, and of %" PRId64 " there are %" PRId64 " free just now", want,
			   most, most > taken ? most - taken : 0);
		report_remedy(e->report, "count pool-size + 2 for each replica, and raise max_connections");
	} else {
		report_add(e->report, SEVERITY_INFO, CODE_NONE, "connections", NULL,
			   "%" PRId64 " a replica, of %" PRId64 " with %" PRId64 " in use", want, most, taken);
	}
}

/* A pooler answers the handshake itself and so with a process id of its own making. */
static void examine_pooler(struct examiner *e)
{
	int64_t pid = ask_int(e, "pooler", "select pg_backend_pid()", 0);

	if (pid == 0 || pid == PQbackendPID(e->pg))
		return;
	if (e->settings->prepare) {
		report_add(e->report, SEVERITY_WARNING, CODE_STARTUP_DATABASE_SUSPICIOUS, "pooler", NULL,
			   "there is a pooler such as PgBouncer in between, and datasource.prepare is true: that works in session "
			   "mode only");
		report_remedy(e->report, "set datasource.prepare = false for transaction mode");
	} else {
		report_add(e->report, SEVERITY_INFO, CODE_NONE, "pooler", NULL, "there is a pooler such as PgBouncer in between");
	}
}

/* Taken by one statement, still ours in another, given back by a third. Migrations rely on advisory locks. */
static void examine_locks(struct examiner *e)
{
	static const char key[] = "select hashtext('sutra doctor ' || pg_backend_pid())";
	int64_t number = ask_int(e, "advisory-locks", key, 0);
	char sql[128];
	bool ok;

	snprintf(sql, sizeof(sql), "select pg_try_advisory_lock(%d, 0)", (int)number);
	ok = ask_yes(e, "advisory-locks", sql);
	snprintf(sql, sizeof(sql), "select pg_advisory_unlock(%d, 0)", (int)number);
	if (ok && ask_yes(e, "advisory-locks", sql))
		return;
	report_add(e->report, SEVERITY_WARNING, CODE_STARTUP_DATABASE_SUSPICIOUS, "advisory-locks", NULL,
		   "an advisory lock of the session was not ours in the next statement: a pooler hands the session to others");
	report_remedy(e->report, "let datasource.migrate-url go to the server itself, and set datasource.prepare = false");
}

/* --- clock and inbox --- */

static void examine_clock(struct examiner *e)
{
	int64_t before_us = e->settings->wall_us(), after_us, server_us, offset_us, half_us;

	server_us = ask_int(e, "clock", "select (extract(epoch from clock_timestamp()) * 1000000)::bigint", 0);
	after_us = e->settings->wall_us();
	if (!server_us)
		return;
	half_us = (after_us - before_us) / 2;
	offset_us = server_us - (before_us + half_us);
	/* The answer may have been made at either end of the round trip. */
	if (llabs(offset_us) - half_us <= CLOCK_OFFSET_MAX_US)
		return;
	report_add(e->report, SEVERITY_WARNING, CODE_STARTUP_DATABASE_SUSPICIOUS, "clock", NULL,
		   "the server's clock is %.1f s %s this machine's", (double)llabs(offset_us) / (double)US_PER_S,
		   offset_us > 0 ? "ahead of" : "behind");
	report_remedy(e->report, "run NTP on both; timers and leases go by the server's clock");
}

/* Rows of the table by the planner's count, over the time since its oldest. */
static void examine_inbox(struct examiner *e)
{
	struct error err = ERROR_INIT;
	int64_t span_s = 0, rows, bytes;
	double rate, total;

	if (blocking_query(e->pg, "begin", NULL, &err) && blocking_query(e->pg, "set local role sutra_scan", NULL, &err))
		span_s = ask_int(e, "inbox", "select extract(epoch from now() - min(created_at))::bigint from sutra.inbox", 0);
	if (!blocking_query(e->pg, "rollback", NULL, &err) || span_s < INBOX_SPAN_MIN_S)
		return;
	rows = ask_int(e, "inbox", "select reltuples::bigint from pg_class where oid = 'sutra.inbox'::regclass", 0);
	bytes = ask_int(e, "inbox", "select pg_total_relation_size('sutra.inbox')", 0);
	if (rows <= 0)
		return;
	rate = (double)rows / (double)span_s;
	total = rate * (double)e->settings->inbox_retention_ms / 1000;
	report_add(e->report, total > INBOX_ROWS_MANY ? SEVERITY_WARNING : SEVERITY_INFO,
		   total > INBOX_ROWS_MANY ? CODE_STARTUP_DATABASE_SUSPICIOUS : CODE_NONE, "inbox", "table inbox",
		   "%.0f event ids an hour; kept for inbox.retention they become %.3g rows and %.3g GB", rate * 3600, total,
		   total * (rows > 100000 ? (double)bytes / (double)rows : INBOX_ROW_BYTES) / 1e9);
	if (total > INBOX_ROWS_MANY)
		report_remedy(e->report, "shorten inbox.retention to what brokers and producers may repeat, or make room for it");
}

/* --- all of it --- */

static void examine_server(struct examiner *e)
{
	const char *version = PQparameterStatus(e->pg, "server_version");

	if (ask(e, "server", "select current_user || ' of database ' || current_database()"))
		report_add(e->report, SEVERITY_INFO, CODE_NONE, "server", NULL, "PostgreSQL %s, as %s", version ? version : "?",
			   e->answer.data);
}

void pg_examine(const struct pg_examination *settings, struct report *report)
{
	struct examiner e = {.settings = settings, .report = report};
	struct error err = ERROR_INIT;

	e.pg = blocking_connect(settings->url, settings->password, "sutra doctor", &err);
	if (!e.pg) {
		report_add(report, SEVERITY_ERROR, CODE_STARTUP_DATABASE, "unreachable", NULL, "%s", err.text);
		report_remedy(report, "start the server; check host, port, database, user and password of datasource.url, and "
				      "pg_hba.conf");
		return;
	}
	examine_server(&e);
	if (examine_start(&e)) {
		examine_grants(&e);
		examine_scan(&e);
		examine_inbox(&e);
	}
	examine_role_settings(&e);
	examine_durability(&e);
	examine_connections(&e);
	examine_pooler(&e);
	examine_locks(&e);
	examine_clock(&e);
	buf_done(&e.answer);
	PQfinish(e.pg);
}
