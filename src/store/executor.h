/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second seam: segment executors. A segment is an ordered list of statements that commits as a whole or not at all.
 * Two production implementations of the same segments, PostgreSQL (store/pg) and memory (store/memory); the
 * simulator wraps the second with delays, crashes and doubt. Batches, gates, doubt and quarantine are above this seam.
 *
 * Life cycle: made by pg_executor_new / memory_executor_new (before the store), started on the store's loop, freed after
 * the loop has ended. Threads: everything but new/free on the store's loop.
 */
#ifndef SUTRA_STORE_EXECUTOR_H
#define SUTRA_STORE_EXECUTOR_H

#include "base/buf.h"
#include "base/error.h"
#include "base/loop.h"
#include "base/report.h"
#include "store/statement.h"

struct executor;
struct segment;

/* Connections by what they are for, so that no kind of work can hold up another. */
enum conn_class {
	CONN_STEP,       /* claims, resolves, commits; datasource.pool-size of them */
	CONN_BACKGROUND, /* outbox, leases, sweeps, deployments, admin */
	CONN_QUARANTINE, /* single elements that met a lock; doubt */
	CONN_CLASS_COUNT
};

enum segment_outcome {
	SEGMENT_COMMITTED,
	SEGMENT_GATED,   /* a gate failed: `gate`, `failed`; nothing was written */
	SEGMENT_ERROR,   /* the server refused: `sqlstate`, `text`; nothing was written */
	SEGMENT_NOT_RUN, /* the connection was lost before the Sync was sent, or a read-only segment was cut: nothing was written */
	SEGMENT_IN_DOUBT, /* the connection was lost with the Sync under way: it may have committed */
};

struct segment_call {
	enum statement_id statement;
	const struct column *params;
	struct rows rows; /* out, valid when committed */
};

struct segment {
	struct segment_call *calls;
	uint32_t call_count;
	struct str tenants; /* ",a,b," — sutra.tenant of this segment; absent for none */
	bool scan;          /* runs as role sutra_scan */
	bool durable;       /* false: synchronous_commit off */
	bool writes;        /* false: read only, never in doubt */
	int64_t lock_timeout_ms;
	struct arena *arena; /* for rows; the caller's, lent until done */

	/* Out. */
	enum segment_outcome outcome;
	enum gate gate;
	uint32_t *failed; /* ordinals, in the arena */
	uint32_t failed_count;
	char sqlstate[6];
	char text[256];
	uint32_t failed_call; /* of an error, or a gate: which call, from 1; 0 = not known */
	/* In doubt: what resolves it. xid 0 = never arrived. */
	uint64_t xid;
	int64_t backend_pid;
	int64_t backend_start_us;
	char application[64];

	/* Called once on the store's loop, never from inside run(). */
	void (*done)(struct segment *segment);
	void *user;
};

struct executor_ops {
	/* Begins connecting; `on_ready` is called whenever a connection becomes free for use, `on_down` when the last
	 * connection of CONN_STEP was lost. */
	void (*start)(struct executor *executor, struct loop *loop);
	/* How many connections of the class may ever be. */
	uint32_t (*conn_count)(struct executor *executor, enum conn_class class);
	/* Whether connection `index` of the class is connected and free. */
	bool (*conn_ready)(struct executor *executor, enum conn_class class, uint32_t index);
	/* Runs the segment on a ready connection. done() is called later. */
	void (*run)(struct executor *executor, enum conn_class class, uint32_t index,
		    struct segment *segment);
	/* Closes every connection; segments under way are answered NOT_RUN or IN_DOUBT before it returns. */
	void (*stop)(struct executor *executor);
	void (*free)(struct executor *executor);
	/* Why connecting fails, for readiness; NULL when up. @thread store's loop */
	const char *(*trouble)(struct executor *executor);
};

struct executor {
	const struct executor_ops *ops;
	void (*on_ready)(void *user);
	void (*on_down)(void *user);
	void *user;
};

struct pg_settings {
	const char *url;
	const char *password; /* NULL = none */
	uint32_t step_connections;
	bool prepare;            /* false: unnamed statements, for PgBouncer in transaction mode */
	const char *application; /* "sutra/<boot id>" */
	bool check_rls;          /* persistence.rls-bypass-check.enabled */
};
/* Never NULL; nothing is opened before start. */
struct executor *pg_executor_new(const struct pg_settings *settings);
/*
 * Once, before start and blocking (main thread): connects, checks schema version, row-level security and role.
 * RESULT_AGAIN: cannot be reached; RESULT_FATAL: STARTUP_*.
 */
enum result pg_check(const struct pg_settings *settings, struct error *err) MUST_CHECK;
/*
 * Applies the migrations that are missing and renews grants and settings; safe from several processes at once. Blocking (main
 * thread). RESULT_AGAIN: cannot be reached; RESULT_FATAL: STARTUP_DATABASE.
 */
struct pg_migration {
	const char *url; /* of the schema's owner */
	const char *password; /* NULL = none */
	const char *engine_role; /* the user of datasource.url */
	bool dry_run; /* only says what would be applied */
	void (*say)(const char *line, void *arg); /* progress, and what is left to a superuser */
	void *arg;
};
enum result pg_migrate(const struct pg_migration *settings, struct error *err) MUST_CHECK;
/*
 * What `sutra doctor` makes of a database: everything that pg_check refuses, each by itself, and what is allowed but works
 * against the engine. Changes nothing. Blocking (main thread).
 */
struct pg_examination {
	const char *url, *password;
	bool prepare, check_rls;
	uint32_t step_connections;
	int64_t inbox_retention_ms;
	int64_t (*wall_us)(void); /* this machine's clock */
};
void pg_examine(const struct pg_examination *settings, struct report *report);
/* Appends the user that libpq connects as with this url; false if it cannot be told. */
bool pg_url_user(const char *url, struct buf *user) MUST_CHECK;

/* The in-memory tables, shared by every executor opened on them (several simulated replicas, or one process). */
struct memory_database;
struct memory_database *memory_database_new(void);
void memory_database_free(struct memory_database **database);
struct executor *memory_executor_new(struct memory_database *database, uint32_t step_connections);
/* Runs one segment against the tables at this moment, atomically; fills outcome and rows. For the simulator, which decides
 * when. `now_us` is the database's clock. */
void memory_segment_run(struct memory_database *database, struct segment *segment, int64_t now_us);

#endif
