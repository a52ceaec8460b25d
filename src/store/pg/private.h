/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL executor's own parts and what they share.
 *
 *	statements.c   the SQL of every statement
 *	encode.c       columns to binary parameters, binary results to rows
 *	conn.c         one connection: connect, run one segment at a time in pipeline mode, lose, connect again
 *	executor.c     the classes of connections behind struct executor_ops
 *	blocking.c     one query after the other, for those below
 *	check.c, examine.c, migrate.c   what is done once, on the main thread
 *
 * Threads: conn and executor on the store's loop; statements and encode pure; the rest on main.
 */
#ifndef SUTRA_STORE_PG_PRIVATE_H
#define SUTRA_STORE_PG_PRIVATE_H

#include <libpq-fe.h>
#include <uv.h>

#include "base/buf.h"
#include "store/executor.h"

/* --- statements.c --- */

/* SQL with $1… in the order of the signature. */
const char *sql_of(enum statement_id id);

/* What begins a segment: transaction settings, and what resolves doubt. */
enum sql_begin {
	SQL_BEGIN_ASYNC = 1,   /* commits asynchronously */
	SQL_BEGIN_SCAN = 2,    /* as role sutra_scan */
	SQL_BEGIN_XID = 4,     /* answers with the transaction's id */
	SQL_BEGIN_BACKEND = 8, /* and with pid and start of the backend, which may be another each time */
	SQL_BEGIN_COUNT = 16,
};
/* Appends the statement with the parameters tenants, lock timeout. It answers one row: three int8, NULL where not asked. */
void sql_begin(unsigned begin, struct buf *out);
/* Settings of a session that has its backend to itself; answers one row: its start as timestamptz. */
extern const char sql_session[];
/* Planner settings that statements rely on: name, value; ends with NULL. Also set on the role by the migration. */
struct sql_setting {
	const char *name;
	const char *value;
};
extern const struct sql_setting sql_settings[];

/* --- encode.c --- */

#define ENCODE_PARAMS_MAX 32

struct encoded {
	int count;
	Oid types[ENCODE_PARAMS_MAX];
	const char *values[ENCODE_PARAMS_MAX];
	int lengths[ENCODE_PARAMS_MAX];
	int formats[ENCODE_PARAMS_MAX];
	size_t offsets[ENCODE_PARAMS_MAX];
	struct buf bytes;
};
void encoded_init(struct encoded *encoded);
void encoded_done(struct encoded *encoded);
/* The parameters of a call as PQsendQueryPrepared takes them; valid until the next. False: over what the protocol can carry. */
bool encode_params(struct encoded *encoded, const char *signature, const struct column *params) MUST_CHECK;
/* Types alone, for preparing. */
int encode_types(const char *signature, Oid types[static ENCODE_PARAMS_MAX]);
/* Rows of a binary result, copied into the arena. False if it is not of this shape. */
bool decode_rows(const PGresult *result, const char *signature, struct arena *arena, struct rows *rows) MUST_CHECK;
/* "1,2,3" of a gate's detail. */
uint32_t decode_ordinals(const char *detail, struct arena *arena, uint32_t **out);
enum gate decode_gate(const char *reason);
int64_t decode_int64(const char *bytes);
/* timestamptz to microseconds since 1970. */
int64_t decode_time(const char *bytes);

/* --- conn.c --- */

enum conn_state {
	CONN_DOWN,	 /* waits for the next try */
	CONN_CONNECTING, /* libpq's handshake */
	CONN_GREETING,	 /* session settings under way */
	CONN_FREE,
	CONN_BUSY, /* runs a segment */
	CONN_CLOSED,
};

struct pg_executor;

struct conn {
	struct pg_executor *executor;
	enum conn_class class;
	enum conn_state state;
	PGconn *pg;
	uv_poll_t *poll; /* NULL: none */
	int poll_fd;
	struct loop_timer timer; /* the next try; or the end of patience with a handshake or a segment */
	struct task lost;	 /* a connection that broke inside run(), told afterwards */
	bool lost_posted;
	uint32_t failures; /* since it was last free */
	bool prepared[STATEMENT_COUNT];
	bool begin_prepared[SQL_BEGIN_COUNT];
	int64_t backend_pid;
	int64_t backend_start_us;
	struct encoded encoded;
	/* The segment under way: its results come in this order, `prepare` of call i (if any), then call i; call 0 is
	 * sql_begin, call i > 0 is calls[i - 1]; then the Sync. */
	struct segment *segment;
	struct pending {
		bool prepare;
		uint32_t call;
		unsigned begin;
	} *pending;
	uint32_t pending_count;
	uint32_t pending_cap;
	uint32_t pending_at;
	bool in_result; /* a result of pending_at has come, its end not yet */
	bool flushed;	/* all that was sent, the Sync too, is with the kernel */
	bool failed;	/* an error was answered: it cannot commit */
	bool broken;	/* the connection is to be closed after the segment */
};

void conn_fail(struct conn *conn, const char *why);
void conn_init(struct conn *conn, struct pg_executor *executor, enum conn_class class);
void conn_start(struct conn *conn);
void conn_run(struct conn *conn, struct segment *segment);
/* Closes; a segment under way is answered. */
void conn_stop(struct conn *conn);
void conn_done(struct conn *conn);

/* --- executor.c --- */

struct pg_executor {
	struct executor base;
	char *url;
	char *password;
	char *application;
	bool prepare;
	struct loop *loop;
	uint32_t counts[CONN_CLASS_COUNT];
	struct conn *conns[CONN_CLASS_COUNT];
	uint32_t step_up; /* connected ones */
	char trouble[256];
};
/* A connection became free, or was lost while it was up. */
void pg_executor_ready(struct pg_executor *executor, enum conn_class class);
void pg_executor_lost(struct pg_executor *executor, enum conn_class class);

/* Parameters for libpq: what the url says, and what we add unless it does. Strings are borrowed. */
#define CONN_PARAMS_MAX 16
struct conn_params {
	const char *keywords[CONN_PARAMS_MAX];
	const char *values[CONN_PARAMS_MAX];
	int count;
};
void conn_params_fill(struct conn_params *params, const char *url, const char *password, const char *application);
/* libpq's message on one line, without what could be a secret. */
void conn_message(const char *message, char *text, size_t size);

/* --- blocking.c: for check, examine and migrate --- */

/* NULL and `err` set: cannot be reached. */
PGconn *blocking_connect(const char *url, const char *password, const char *application, struct error *err) MUST_CHECK;
/* The first field of the first row as text in `out` (may be NULL; empty if there is none). False and `err` set if it failed. */
bool blocking_query(PGconn *pg, const char *sql, struct buf *out, struct error *err) MUST_CHECK;

/* --- check.c --- */

/* A yes-or-no question about the database, its good answer being "t", and what the other means. */
struct pg_question {
	const char *name; /* short, and stays the same; NULL ends the list */
	const char *sql;
	enum code code;
	const char *trouble;
	const char *remedy;
	bool rls; /* left out when persistence.rls-bypass-check.enabled is false */
};
/* In this order: those behind `schema-missing` rely on there being one. */
extern const struct pg_question pg_questions[];
/* RESULT_FATAL: the schema is of another version than this program. */
enum result pg_check_version(PGconn *pg, struct error *err) MUST_CHECK;

/* --- schema.c, made by the build from the files in store/schema --- */

struct migration {
	int version;
	const char *name; /* of its file */
	const char *sql;
};
extern const struct migration migrations[];
extern const int migration_count;

#endif
