/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to PostgreSQL: it connects, runs one segment at a time, and when it is lost says what that means for the
 * segment under way, and connects again.
 *
 *	DOWN ──timer──► CONNECTING ──► GREETING ──► FREE ◄──Sync answered── BUSY
 *	  ▲                 │             │           │ ──────run()────────► │
 *	  └───── lost ──────┴─────────────┴───────────┴──────────────────────┘          any ──stop──► CLOSED
 *
 * A segment is one pipeline without BEGIN and COMMIT: the server runs what stands before a Sync as one transaction, which the
 * Sync commits. So the whole takes one round trip, and an error anywhere leaves nothing behind:
 *
 *	1  settings of the transaction, and its id        with a flush request: the id must be here before the commit is
 *	2  the statements                                 each prepared before its first use
 *	3  Sync                                           fault point commit_sent: with the kernel, not yet answered
 *	4  its answer                                     committed, or the error that came before it
 *
 * What a loss means: an error that was answered has aborted the transaction, whatever comes after it. Else before 3 left us
 * nothing can have happened, for without the Sync the server rolls back; a read can be run again. Between 3 and 4 it may have
 * committed: in doubt. A FATAL message is no answer, for the server can be told to quit between the commit and its word of it.
 *
 * Nothing here blocks: what the socket does not take is flushed when it is writable, and answers are read while requests are
 * still going out, so that neither side waits for the other with full buffers. (Looking up a host's name is libpq's own and
 * does block; an address in the url avoids it.) A connection that breaks inside run() is told by a task, so that done() never
 * runs inside run().
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/thread.h"
#include "base/time.h"
#include "store/pg/private.h"

#define CONNECT_PATIENCE_US (10 * US_PER_S)
/* A segment without an answer: the server is stuck, and its elements are better off elsewhere. */
#define SEGMENT_PATIENCE_US (60 * US_PER_S)
#define BACKGROUND_PATIENCE_US (600 * US_PER_S)
#define BACKOFF_MIN_US (100 * US_PER_MS)
#define BACKOFF_MAX_US (5 * US_PER_S)
/* NULLs in a row from libpq after which there is nothing to wait for. */
#define NULLS_MAX 3

static void conn_connect(struct conn *conn);
static void on_poll(uv_poll_t *poll, int status, int events);

/* --- descriptors --- */

static void free_poll(uv_handle_t *handle)
{
	free(handle);
}

static void conn_unwatch(struct conn *conn)
{
	if (!conn->poll)
		return;
	uv_close((uv_handle_t *)conn->poll, free_poll);
	conn->poll = NULL;
}

/* libpq may take another socket with each step of connecting, also under the same number: then `anew`. */
static void conn_watch(struct conn *conn, int events, bool anew)
{
	int fd = PQsocket(conn->pg);

	if (anew || fd != conn->poll_fd)
		conn_unwatch(conn);
	if (!conn->poll) {
		conn->poll = mem_zalloc(sizeof(*conn->poll));
		if (uv_poll_init(loop_uv(conn->executor->loop), conn->poll, fd) != 0) {
			free(conn->poll);
			conn->poll = NULL;
			conn_fail(conn, "the socket cannot be watched");
			return;
		}
		conn->poll->data = conn;
		conn->poll_fd = fd;
	}
	uv_poll_start(conn->poll, events, on_poll);
}

/* --- loss --- */

/* The connection is of no use any more; what follows happens in a task of its own. `why` NULL: libpq says. */
void conn_fail(struct conn *conn, const char *why)
{
	if (conn->lost_posted || conn->state == CONN_CLOSED)
		return;
	if (conn->poll)
		uv_poll_stop(conn->poll);
	conn_message(why ? why : PQerrorMessage(conn->pg), conn->executor->trouble, sizeof(conn->executor->trouble));
	conn->lost_posted = true;
	loop_post(conn->executor->loop, &conn->lost);
}

static void conn_close(struct conn *conn)
{
	loop_timer_stop(&conn->timer);
	conn_unwatch(conn);
	PQfinish(conn->pg);
	conn->pg = NULL;
	memset(conn->prepared, 0, sizeof(conn->prepared));
	memset(conn->begin_prepared, 0, sizeof(conn->begin_prepared));
}

/* What the end of the connection means for the segment under way. */
static void segment_cut(struct conn *conn, struct segment *segment)
{
	if (conn->failed)
		return;
	if (!conn->flushed || !segment->writes) {
		segment->outcome = SEGMENT_NOT_RUN;
		return;
	}
	segment->outcome = SEGMENT_IN_DOUBT;
	segment->backend_pid = conn->backend_pid;
	segment->backend_start_us = conn->backend_start_us;
	snprintf(segment->application, sizeof(segment->application), "%s", conn->executor->application);
}

static int64_t backoff_us(struct conn *conn)
{
	int64_t delay_us = BACKOFF_MAX_US;

	if (conn->failures < 6)
		delay_us = BACKOFF_MIN_US << conn->failures;
	if (delay_us > BACKOFF_MAX_US)
		delay_us = BACKOFF_MAX_US;
	return delay_us / 2 + (int64_t)loop_random_below(conn->executor->loop, (uint64_t)delay_us / 2);
}

static void on_lost(struct task *task)
{
	struct conn *conn = container_of(task, struct conn, lost);
	struct segment *segment = conn->segment;
	bool was_up = conn->state == CONN_FREE || conn->state == CONN_BUSY;

	conn->lost_posted = false;
	if (conn->state == CONN_CLOSED)
		return;
	conn_close(conn);
	conn->segment = NULL;
	conn->state = CONN_DOWN;
	loop_timer_start(&conn->timer, backoff_us(conn));
	conn->failures++;
	if (was_up)
		pg_executor_lost(conn->executor, conn->class);
	if (segment) {
		segment_cut(conn, segment);
		segment->done(segment);
	}
}

static void on_timer(struct loop_timer *timer)
{
	struct conn *conn = container_of(timer, struct conn, timer);

	if (conn->state == CONN_DOWN)
		conn_connect(conn);
	else
		conn_fail(conn, conn->state == CONN_BUSY ? "the server does not answer a segment" :
							   "the server does not answer a connection");
}

/* --- connecting --- */

static void conn_free(struct conn *conn)
{
	loop_timer_stop(&conn->timer);
	conn->state = CONN_FREE;
	conn_watch(conn, UV_READABLE, false);
}

/* Warnings of the server have no reader. */
static void ignore_notice(void *arg UNUSED, const PGresult *result UNUSED)
{
}

static void conn_connect(struct conn *conn)
{
	struct pg_executor *executor = conn->executor;
	struct conn_params params;

	conn_params_fill(&params, executor->url, executor->password, executor->application);
	conn->state = CONN_CONNECTING;
	loop_timer_start(&conn->timer, CONNECT_PATIENCE_US);
	conn->pg = PQconnectStartParams(params.keywords, params.values, 1);
	if (!conn->pg)
		mem_exhausted(0);
	if (PQstatus(conn->pg) == CONNECTION_BAD) {
		conn_fail(conn, NULL);
		return;
	}
	PQsetNoticeReceiver(conn->pg, ignore_notice, NULL);
	conn_watch(conn, UV_WRITABLE, true);
}

static void pending_add(struct conn *conn, bool prepare, uint32_t call, unsigned begin)
{
	if (conn->pending_count == conn->pending_cap) {
		conn->pending_cap = conn->pending_cap ? conn->pending_cap * 2 : 32;
		conn->pending = mem_array(conn->pending, conn->pending_cap, sizeof(*conn->pending));
	}
	conn->pending[conn->pending_count++] = (struct pending){prepare, call, begin};
}

static void pending_reset(struct conn *conn)
{
	conn->pending_count = conn->pending_at = 0;
	conn->in_result = conn->flushed = conn->failed = conn->broken = false;
}

static void conn_flush(struct conn *conn)
{
	int left = PQflush(conn->pg);

	if (left < 0) {
		conn_fail(conn, NULL);
		return;
	}
	if (left == 0 && !conn->flushed) {
		conn->flushed = true;
		if (conn->segment && conn->segment->writes && conn->segment->durable && fault(FAULT_commit_sent)) {
			conn_fail(conn, "cut by fault point commit_sent");
			return;
		}
	}
	conn_watch(conn, left ? UV_READABLE | UV_WRITABLE : UV_READABLE, false);
}

static void conn_greet(struct conn *conn)
{
	if (PQserverVersion(conn->pg) < 130000) {
		conn_fail(conn, "the server is older than PostgreSQL 13");
		return;
	}
	if (PQsetnonblocking(conn->pg, 1) != 0 || PQenterPipelineMode(conn->pg) != 1) {
		conn_fail(conn, NULL);
		return;
	}
	conn->backend_pid = PQbackendPID(conn->pg);
	conn->backend_start_us = 0;
	pending_reset(conn);
	conn->state = CONN_GREETING;
	if (!conn->executor->prepare) {
		/* The next transaction may run in another session: the settings are the role's. */
		conn->failures = 0;
		conn_free(conn);
		pg_executor_ready(conn->executor, conn->class);
		return;
	}
	pending_add(conn, false, 0, 0);
	if (!PQsendQueryParams(conn->pg, sql_session, 0, NULL, NULL, NULL, NULL, 1) || !PQpipelineSync(conn->pg))
		conn_fail(conn, NULL);
	else
		conn_flush(conn);
}

static void conn_connecting(struct conn *conn)
{
	PostgresPollingStatusType wants;

	/* The descriptor may be closed and opened anew below. */
	uv_poll_stop(conn->poll);
	wants = PQconnectPoll(conn->pg);
	switch (wants) {
	case PGRES_POLLING_READING:
		conn_watch(conn, UV_READABLE, true);
		break;
	case PGRES_POLLING_WRITING:
		conn_watch(conn, UV_WRITABLE, true);
		break;
	case PGRES_POLLING_OK:
		conn_greet(conn);
		break;
	default:
		conn_fail(conn, NULL);
	}
}

/* --- sending --- */

static unsigned segment_begin_kind(const struct conn *conn, const struct segment *segment)
{
	unsigned begin = 0;

	if (segment->writes && !segment->durable)
		begin |= SQL_BEGIN_ASYNC;
	if (segment->scan)
		begin |= SQL_BEGIN_SCAN;
	if (segment->writes && segment->durable) {
		begin |= SQL_BEGIN_XID;
		if (!conn->executor->prepare)
			begin |= SQL_BEGIN_BACKEND;
	}
	return begin;
}

/* `name` NULL: unnamed. */
static bool conn_send(struct conn *conn, const char *name, const char *sql, bool *prepared, struct pending what)
{
	struct encoded *e = &conn->encoded;

	if (!name) {
		pending_add(conn, false, what.call, what.begin);
		return PQsendQueryParams(conn->pg, sql, e->count, e->types, e->values, e->lengths, e->formats, 1);
	}
	if (!*prepared) {
		pending_add(conn, true, what.call, what.begin);
		if (!PQsendPrepare(conn->pg, name, sql, e->count, e->types))
			return false;
	}
	pending_add(conn, false, what.call, what.begin);
	return PQsendQueryPrepared(conn->pg, name, e->count, e->values, e->lengths, e->formats, 1);
}

static bool send_begin(struct conn *conn, const struct segment *segment)
{
	unsigned begin = segment_begin_kind(conn, segment);
	struct encoded *e = &conn->encoded;
	char timeout[24], name[16];
	struct str texts[] = {segment->tenants.ptr ? segment->tenants : STR(""), STR_NONE};
	const struct column columns[] = {
		{.type = COLUMN_TEXT, .scalar = true, .count = 1, .strs = &texts[0]},
		{.type = COLUMN_TEXT, .scalar = true, .count = 1, .strs = &texts[1]},
	};
	struct buf sql = BUF_INIT;
	bool sent;

	snprintf(timeout, sizeof(timeout), "%lld", (long long)segment->lock_timeout_ms);
	texts[1] = str_of(timeout);
	snprintf(name, sizeof(name), "begin_%u", begin);
	sql_begin(begin, &sql);
	sent = encode_params(e, "TT", columns) &&
	       conn_send(conn, conn->executor->prepare ? name : NULL, sql.data, &conn->begin_prepared[begin],
			 (struct pending){.begin = begin});
	buf_done(&sql);
	return sent && (!(begin & SQL_BEGIN_XID) || PQsendFlushRequest(conn->pg));
}

static bool send_calls(struct conn *conn, struct segment *segment)
{
	/* Known only when the answer comes; until then a statement may be asked for twice in a segment. */
	bool asked[STATEMENT_COUNT];

	memcpy(asked, conn->prepared, sizeof(asked));
	for (uint32_t i = 0; i < segment->call_count; i++) {
		struct segment_call *call = &segment->calls[i];
		const struct statement_info *info = statement_info(call->statement);

		call->rows = (struct rows){.column_count = (uint32_t)strlen(info->results)};
		if (!encode_params(&conn->encoded, info->params, call->params)) {
			conn->failed = true;
			segment->outcome = SEGMENT_ERROR;
			snprintf(segment->sqlstate, sizeof(segment->sqlstate), "54000");
			snprintf(segment->text, sizeof(segment->text), "more bytes than a statement can carry");
			return false;
		}
		if (!conn_send(conn, conn->executor->prepare ? info->name : NULL, sql_of(call->statement),
			       &asked[call->statement], (struct pending){.call = i + 1}))
			return false;
		asked[call->statement] = true;
	}
	return true;
}

void conn_run(struct conn *conn, struct segment *segment)
{
	assert(conn->state == CONN_FREE && !conn->segment);
	pending_reset(conn);
	conn->segment = segment;
	conn->state = CONN_BUSY;
	segment->gate = GATE_NONE;
	segment->failed_count = 0;
	segment->sqlstate[0] = segment->text[0] = '\0';
	segment->failed_call = 0;
	segment->xid = 0;
	loop_timer_start(&conn->timer, conn->class == CONN_BACKGROUND ? BACKGROUND_PATIENCE_US : SEGMENT_PATIENCE_US);
	if (!send_begin(conn, segment) || !send_calls(conn, segment) || !PQpipelineSync(conn->pg))
		conn_fail(conn, NULL);
	else
		conn_flush(conn);
}

/* --- receiving --- */

static void take_error(struct conn *conn, const PGresult *result)
{
	struct segment *segment = conn->segment;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);

	if (!segment || !severity || strcmp(severity, "ERROR") != 0 || !sqlstate) {
		conn_fail(conn, message);
		return;
	}
	/* A plan that a migration overtook, a statement that is gone: another session knows nothing of them. */
	if (strncmp(sqlstate, "0A", 2) == 0 || strncmp(sqlstate, "26", 2) == 0)
		conn->broken = true;
	if (conn->failed)
		return;
	conn->failed = true;
	if (conn->pending_at < conn->pending_count)
		segment->failed_call = conn->pending[conn->pending_at].call;
	snprintf(segment->sqlstate, sizeof(segment->sqlstate), "%s", sqlstate);
	if (strcmp(sqlstate, "SU001") == 0) {
		segment->outcome = SEGMENT_GATED;
		segment->gate = decode_gate(message ? message : "");
		segment->failed_count = decode_ordinals(detail ? detail : "", segment->arena, &segment->failed);
		return;
	}
	segment->outcome = SEGMENT_ERROR;
	conn_message(message ? message : sqlstate, segment->text, sizeof(segment->text));
}

static void take_begin(struct conn *conn, const PGresult *result, unsigned begin)
{
	if (PQntuples(result) != 1 || PQnfields(result) < 3)
		return;
	if (begin & SQL_BEGIN_XID)
		conn->segment->xid = (uint64_t)decode_int64(PQgetvalue(result, 0, 0));
	if (begin & SQL_BEGIN_BACKEND) {
		conn->backend_pid = decode_int64(PQgetvalue(result, 0, 1));
		conn->backend_start_us = decode_time(PQgetvalue(result, 0, 2));
	}
}

/* Rows of the greeting, of sql_begin, or of a call. */
static void take_rows(struct conn *conn, const PGresult *result)
{
	const struct pending *what = &conn->pending[conn->pending_at];
	struct segment_call *call;

	if (!conn->segment) {
		if (PQntuples(result) == 1 && PQgetlength(result, 0, 0) == 8)
			conn->backend_start_us = decode_time(PQgetvalue(result, 0, 0));
		return;
	}
	if (!what->call) {
		take_begin(conn, result, what->begin);
		return;
	}
	call = &conn->segment->calls[what->call - 1];
	if (!decode_rows(result, statement_info(call->statement)->results, conn->segment->arena, &call->rows))
		conn_fail(conn, "the rows of a statement are not what was expected");
}

static void take_prepared(struct conn *conn, const struct pending *what)
{
	if (what->call)
		conn->prepared[conn->segment->calls[what->call - 1].statement] = true;
	else
		conn->begin_prepared[what->begin] = true;
}

static void take_result(struct conn *conn, const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	conn->in_result = true;
	if (status == PGRES_PIPELINE_ABORTED)
		return;
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
		take_error(conn, result);
		return;
	}
	if (conn->pending_at >= conn->pending_count)
		conn_fail(conn, "an answer to nothing");
	else if (conn->pending[conn->pending_at].prepare)
		take_prepared(conn, &conn->pending[conn->pending_at]);
	else if (status == PGRES_TUPLES_OK)
		take_rows(conn, result);
}

/* The Sync was answered: the transaction has ended one way or the other. */
static void take_sync(struct conn *conn)
{
	struct segment *segment = conn->segment;

	conn->segment = NULL;
	if (PQtransactionStatus(conn->pg) != PQTRANS_IDLE)
		conn->broken = true;
	if (segment && !conn->failed)
		segment->outcome = SEGMENT_COMMITTED;
	if (conn->broken) {
		conn_fail(conn, segment ? segment->text : NULL);
	} else {
		conn_free(conn);
		if (!segment) {
			conn->failures = 0;
			pg_executor_ready(conn->executor, conn->class);
			return;
		}
	}
	if (segment)
		segment->done(segment);
	if (conn->state == CONN_FREE && !conn->lost_posted && conn->executor->base.on_ready)
		conn->executor->base.on_ready(conn->executor->base.user);
}

static void conn_receive(struct conn *conn)
{
	int nulls = 0;

	if (!PQconsumeInput(conn->pg)) {
		/* What came before the end of the connection is read first: it may be the answer. */
		if (conn->state == CONN_FREE) {
			conn_fail(conn, NULL);
			return;
		}
	}
	while (!conn->lost_posted && conn->state != CONN_FREE && conn->state != CONN_CLOSED && !PQisBusy(conn->pg)) {
		PGresult *result = PQgetResult(conn->pg);

		if (!result) {
			conn->pending_at += conn->in_result;
			conn->in_result = false;
			if (++nulls == NULLS_MAX)
				break;
			continue;
		}
		nulls = 0;
		if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
			PQclear(result);
			take_sync(conn);
			return;
		}
		take_result(conn, result);
		PQclear(result);
	}
	if (!conn->lost_posted && conn->state != CONN_CLOSED && conn->pg &&
	    (PQstatus(conn->pg) == CONNECTION_BAD || nulls == NULLS_MAX))
		conn_fail(conn, NULL);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct conn *conn = poll->data;

	if (conn->lost_posted || conn->state == CONN_CLOSED)
		return;
	if (conn->state == CONN_CONNECTING) {
		conn_connecting(conn);
		return;
	}
	if (status < 0) {
		conn_fail(conn, uv_strerror(status));
		return;
	}
	if (events & UV_WRITABLE && (conn->state == CONN_BUSY || conn->state == CONN_GREETING))
		conn_flush(conn);
	if (events & UV_READABLE && !conn->lost_posted)
		conn_receive(conn);
}

/* --- life --- */

void conn_init(struct conn *conn, struct pg_executor *executor, enum conn_class class)
{
	memset(conn, 0, sizeof(*conn));
	conn->executor = executor;
	conn->class = class;
	conn->state = CONN_CLOSED;
	conn->lost.run = on_lost;
	conn->poll_fd = -1;
	encoded_init(&conn->encoded);
}

void conn_start(struct conn *conn)
{
	loop_timer_init(&conn->timer, conn->executor->loop, on_timer);
	conn->state = CONN_DOWN;
	loop_timer_start(&conn->timer, 0);
}

void conn_stop(struct conn *conn)
{
	struct segment *segment = conn->segment;

	if (conn->state == CONN_CLOSED)
		return;
	conn_close(conn);
	conn->state = CONN_CLOSED;
	conn->segment = NULL;
	if (segment) {
		segment_cut(conn, segment);
		segment->done(segment);
	}
}

void conn_done(struct conn *conn)
{
	assert(conn->state == CONN_CLOSED && !conn->pg);
	encoded_done(&conn->encoded);
	free(conn->pending);
	conn->pending = NULL;
}
