/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Migrations: the numbered files of store/schema, each applied once, in order, in a transaction that also writes its line in
 * schema_history; never changed afterwards, which their checksums prove. After them, each time: grants and settings, which
 * depend on who the engine's role is.
 *
 * Several processes may migrate at once: each transaction begins with the same advisory lock and reads the history under it.
 * What the schema's owner may not do, such as making a role, is said for a superuser; the engine can run without the planner
 * settings of its role (it makes them for each session) but not without the grants.
 */
#include <stdio.h>

#include "base/id.h"
#include "store/pg/private.h"

/* "sutra", as a number that no other program locks by accident. */
#define LOCK_SQL "select pg_advisory_xact_lock(495690215009)"

struct migrator {
	const struct pg_migration *settings;
	PGconn *pg;
	struct error *err;
	struct buf sql;
	struct buf answer;
	char *engine;	/* the engine's role, quoted as identifier */
	char *engine_literal;
	char *database; /* quoted as identifier */
	bool lacking;	/* something that the engine needs is left to a superuser */
};

static void say(struct migrator *m, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void say(struct migrator *m, const char *fmt, ...)
{
	struct buf line = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&line, fmt, ap);
	va_end(ap);
	m->settings->say(line.data, m->settings->arg);
	buf_done(&line);
}

static bool run(struct migrator *m, const char *sql)
{
	return blocking_query(m->pg, sql, &m->answer, m->err);
}

/* Whether the answer to a question is yes; also false when it cannot be asked. */
static bool ask(struct migrator *m, const char *sql)
{
	return run(m, sql) && strcmp(m->answer.data, "t") == 0;
}

static bool ask_f(struct migrator *m, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool ask_f(struct migrator *m, const char *fmt, ...)
{
	va_list ap;

	buf_reset(&m->sql);
	va_start(ap, fmt);
	buf_vprintf(&m->sql, fmt, ap);
	va_end(ap);
	return ask(m, m->sql.data);
}

/*
 * Runs a statement that the owner may not be allowed; if so it is said instead, and `needed` ones are remembered. A transaction
 * is open. False only when the connection is gone.
 */
static bool try(struct migrator *m, bool needed, const char *fmt, ...) PRINTF_LIKE(3, 4);

static bool try(struct migrator *m, bool needed, const char *fmt, ...)
{
	struct error why = ERROR_INIT;
	va_list ap;

	buf_reset(&m->sql);
	va_start(ap, fmt);
	buf_vprintf(&m->sql, fmt, ap);
	va_end(ap);
	if (!run(m, "savepoint permitted"))
		return false;
	if (blocking_query(m->pg, m->sql.data, NULL, &why))
		return run(m, "release savepoint permitted");
	if (!run(m, "rollback to savepoint permitted"))
		return false;
	say(m, "not permitted here (%s); a superuser may run:", why.text);
	say(m, "  %s;", m->sql.data);
	m->lacking |= needed;
	return true;
}

/* --- migrations --- */

/* Read from the table of tables: functions like to_regclass may answer from what this session knew before it waited for the lock. */
#define HISTORY_EXISTS_SQL \
	"select exists (select from pg_class c, pg_namespace n where c.relnamespace = n.oid and n.nspname = 'sutra' " \
	"and c.relname = 'schema_history')"

/* The checksum on record of this version, in m->answer; empty if it was not applied. */
static bool recorded(struct migrator *m, int version)
{
	char sql[128];

	if (!run(m, HISTORY_EXISTS_SQL))
		return false;
	if (strcmp(m->answer.data, "t") != 0) {
		buf_reset(&m->answer);
		buf_reserve(&m->answer, 1)[0] = '\0';
		return true;
	}
	snprintf(sql, sizeof(sql), "select checksum from sutra.schema_history where version = %d", version);
	return run(m, sql);
}

static bool apply(struct migrator *m, const struct migration *migration, const char *checksum)
{
	say(m, "applying %s", migration->name);
	if (!run(m, migration->sql)) {
		error_prefix(m->err, "%s", migration->name);
		return false;
	}
	buf_reset(&m->sql);
	buf_printf(&m->sql, "insert into sutra.schema_history (version, name, checksum) values (%d, '%s', '%s')",
		   migration->version, migration->name, checksum);
	return run(m, m->sql.data);
}

/* One migration, in a transaction of its own. */
static bool migrate_one(struct migrator *m, const struct migration *migration)
{
	char checksum[65];
	bool ok;

	sha256_hex(str_of(migration->sql), checksum);
	if (!run(m, "begin") || !run(m, LOCK_SQL) || !recorded(m, migration->version))
		return false;
	if (m->answer.len && strcmp(m->answer.data, checksum) != 0) {
		error_set(m->err, RESULT_FATAL, CODE_STARTUP_DATABASE,
			  "%s was applied with other contents: the database belongs to another build", migration->name);
		return false;
	}
	ok = m->answer.len || apply(m, migration, checksum);
	return ok && run(m, "commit");
}

static bool check_newer(struct migrator *m)
{
	int known = migrations[migration_count - 1].version;
	int64_t have = 0;

	if (!run(m, HISTORY_EXISTS_SQL) || strcmp(m->answer.data, "t") != 0)
		return m->err->what == RESULT_OK;
	if (!run(m, "select coalesce(max(version), 0) from sutra.schema_history") ||
	    !str_to_int64(buf_str(&m->answer), &have))
		return false;
	if (have <= known)
		return true;
	error_set(m->err, RESULT_FATAL, CODE_STARTUP_DATABASE,
		  "the schema is at version %lld, this program knows %d: run the newer program", (long long)have, known);
	return false;
}

/* --- roles and grants --- */

/* Policies name it, so it comes before the migrations. Roles belong to all databases, so another may be making it just now. */
static bool make_scan_role(struct migrator *m)
{
	if (ask(m, "select exists (select from pg_roles where rolname = 'sutra_scan')"))
		return true;
	if (!run(m, "begin") || !run(m, LOCK_SQL) ||
	    !try(m, true,
		 "do $$ begin create role sutra_scan nologin; exception when duplicate_object or unique_violation then null; end $$") ||
	    !run(m, "commit"))
		return false;
	if (!m->lacking)
		return true;
	error_set(m->err, RESULT_FATAL, CODE_STARTUP_DATABASE, "the role sutra_scan must be made by a superuser first");
	return false;
}

/* As sutra_scan the engine sees every tenant, so it must not have these rights unless it asks for them. */
static bool grant_membership(struct migrator *m)
{
	bool inherit_option = PQserverVersion(m->pg) >= 160000;

	if (ask_f(m, "select pg_has_role(%s, 'sutra_scan', 'MEMBER') and not pg_has_role(%s, 'sutra_scan', 'USAGE')",
		  m->engine_literal, m->engine_literal))
		return true;
	/* A superuser is a member of everything. */
	if (ask_f(m, "select rolsuper from pg_roles where rolname = %s", m->engine_literal))
		return true;
	if (!inherit_option &&
	    ask_f(m, "select rolinherit from pg_roles where rolname = %s", m->engine_literal) &&
	    !try(m, true, "alter role %s noinherit", m->engine))
		return false;
	return try(m, true, "grant sutra_scan to %s%s", m->engine, inherit_option ? " with inherit false, set true" : "");
}

static const char *const engine_grants[] = {
	"usage on schema sutra",
	("select, insert, update, delete on sutra.instance, sutra.wait, sutra.alias, sutra.inbox, sutra.outbox_entry, "
	 "sutra.dead_letter, sutra.inbox_message, sutra.early, sutra.timer, sutra.timer_schedule, sutra.lease, sutra.capacity_pool, "
	 "sutra.capacity_slot, sutra.channel_session, sutra.tenant_rate"),
	"select, insert, update on sutra.deployment",
	"select on sutra.schema_history",
};

/* Keys, due times, stamps: nothing that a tenant wrote. */
static const char *const scan_grants[] = {
	"usage on schema sutra",
	("select (ctid, id, tenant, deployment_id, status, ended_at, claim_at, claim_owner), update (claim_at, claim_owner) "
	 "on sutra.instance"),
	("select (ctid, instance_id, channel, version, ordinal, tenant, deployment_id, created_at, next_attempt_at, poisoned, "
	 "behind, claimed_at, claim_owner, id, pool, call_key), update (behind, claimed_at, claim_owner, pool, last_diagnostic_json) "
	 "on sutra.outbox_entry"),
	"select (ctid, key, tenant, created_at), delete on sutra.inbox",
	"select (tenant, channel, place, keeper, seq, created_at) on sutra.inbox_message",
	"select (ctid, created_at), delete on sutra.dead_letter",
	"select (instance_id, token, tenant, due_at) on sutra.timer",
	"select, update (updated_at) on sutra.capacity_pool",
	"select, insert, delete on sutra.capacity_slot",
	"select (ctid, instance_id, call_key, tenant, ended_at), update (ended_at) on sutra.channel_session",
};

static bool grant_all(struct migrator *m)
{
	for (size_t i = 0; i < ARRAY_LEN(engine_grants); i++)
		if (!try(m, true, "grant %s to %s", engine_grants[i], m->engine))
			return false;
	for (size_t i = 0; i < ARRAY_LEN(scan_grants); i++)
		if (!try(m, true, "grant %s to sutra_scan", scan_grants[i]))
			return false;
	return true;
}

/* They also work behind a pooler, where a session cannot make settings of its own. */
static bool set_role_settings(struct migrator *m)
{
	for (const struct sql_setting *setting = sql_settings; setting->name; setting++) {
		if (ask_f(m,
			  "select exists (select from pg_db_role_setting s, unnest(s.setconfig) c "
			  "where s.setdatabase = (select oid from pg_database where datname = current_database()) "
			  "and s.setrole = (select oid from pg_roles where rolname = %s) and c = '%s=%s')",
			  m->engine_literal, setting->name, setting->value))
			continue;
		if (!try(m, false, "alter role %s in database %s set %s = '%s'", m->engine, m->database, setting->name,
			 setting->value))
			return false;
	}
	return true;
}

static bool set_search_path(struct migrator *m)
{
	if (ask(m, "select exists (select from pg_db_role_setting s, unnest(s.setconfig) c where s.setrole = 0 "
		   "and s.setdatabase = (select oid from pg_database where datname = current_database()) "
		   "and c like 'search_path=%sutra%')"))
		return true;
	return try(m, false, "alter database %s set search_path = sutra, \"$user\", public", m->database);
}

static bool grants(struct migrator *m)
{
	if (!ask_f(m, "select exists (select from pg_roles where rolname = %s)", m->engine_literal)) {
		error_set(m->err, RESULT_FATAL, CODE_STARTUP_DATABASE, "the role %s of datasource.url does not exist", m->engine);
		return false;
	}
	if (!run(m, "begin") || !run(m, LOCK_SQL) || !grant_membership(m) || !grant_all(m) || !set_role_settings(m) ||
	    !set_search_path(m) || !run(m, "commit"))
		return false;
	if (!m->lacking)
		return true;
	error_set(m->err, RESULT_FATAL, CODE_STARTUP_DATABASE, "the schema is there, but the engine's role lacks what was said above");
	return false;
}

/* --- */

static bool dry_run(struct migrator *m)
{
	int missing = 0;

	for (int i = 0; i < migration_count; i++) {
		if (!recorded(m, migrations[i].version))
			return false;
		if (m->answer.len)
			continue;
		say(m, "would apply %s", migrations[i].name);
		missing++;
	}
	if (!missing)
		say(m, "nothing to apply");
	return true;
}

static bool migrate_all(struct migrator *m)
{
	if (PQserverVersion(m->pg) < 130000) {
		error_set(m->err, RESULT_FATAL, CODE_STARTUP_DATABASE, "the server is older than PostgreSQL 13");
		return false;
	}
	if (!check_newer(m))
		return false;
	if (m->settings->dry_run)
		return dry_run(m);
	if (!make_scan_role(m))
		return false;
	for (int i = 0; i < migration_count; i++)
		if (!migrate_one(m, &migrations[i]))
			return false;
	if (!grants(m))
		return false;
	say(m, "the schema is at version %d", migrations[migration_count - 1].version);
	return true;
}

enum result pg_migrate(const struct pg_migration *settings, struct error *err)
{
	struct error local = ERROR_INIT;
	struct migrator m = {.settings = settings, .err = err ? err : &local};
	const char *role = settings->engine_role;
	bool ok;

	*m.err = ERROR_INIT;
	m.pg = blocking_connect(settings->url, settings->password, "sutra migrate", m.err);
	if (!m.pg)
		return m.err->what;
	m.engine = PQescapeIdentifier(m.pg, role, strlen(role));
	m.engine_literal = PQescapeLiteral(m.pg, role, strlen(role));
	m.database = PQescapeIdentifier(m.pg, PQdb(m.pg), strlen(PQdb(m.pg)));
	ok = m.engine && m.engine_literal && m.database;
	if (!ok)
		error_set(m.err, RESULT_FATAL, CODE_STARTUP_DATABASE, "the name of a role or database is not UTF-8");
	/* An owner with the engine's settings would make plans for batches, and wait too little for locks. */
	ok = ok && run(&m, "set lock_timeout = 0") && run(&m, "set enable_seqscan = on") && migrate_all(&m);
	PQfreemem(m.engine);
	PQfreemem(m.engine_literal);
	PQfreemem(m.database);
	buf_done(&m.sql);
	buf_done(&m.answer);
	PQfinish(m.pg);
	return ok ? RESULT_OK : m.err->what;
}

bool pg_url_user(const char *url, struct buf *user)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL), *defaults = NULL;
	const char *found = NULL;

	for (PQconninfoOption *o = options; o && o->keyword; o++)
		if (strcmp(o->keyword, "user") == 0)
			found = o->val;
	if (!found) {
		defaults = PQconndefaults();
		for (PQconninfoOption *o = defaults; o && o->keyword; o++)
			if (strcmp(o->keyword, "user") == 0)
				found = o->val;
	}
	if (found)
		buf_add_text(user, found);
	PQconninfoFree(options);
	PQconninfoFree(defaults);
	return found != NULL;
}
