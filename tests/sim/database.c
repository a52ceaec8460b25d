/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server. Each request passes through three timers on the world's loop: it arrives (and durable ones get a transaction
 * id), it runs (the whole segment at one instant), it is answered. The moments between are where crashes and lost
 * connections strike.
 *
 * What was committed is kept as a log of segments. Like a write-ahead log it is flushed up to a point: every durable commit
 * flushes all before it, the others follow within FLUSH_US. A restart makes the tables anew from a prefix of the log that has
 * at least what was flushed.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "tests/sim/segment_copy.h"
#include "tests/sim/server.h"

#define FLUSH_US     (600 * US_PER_MS)
#define TIMER_EAGER_US (2 * US_PER_S)
#define WALL_BASE_US (INT64_C(1767225600) * US_PER_S)

static int64_t server_wall_us(const struct sim_database *database)
{
	return WALL_BASE_US + sim_now_us(database->sim) + database->wall_offset_us;
}

/* --- transactions --- */

static void xact_set(struct sim_database *database, uint64_t xid, enum xact state)
{
	if (!xid)
		return;
	if (xid >= database->xact_cap) {
		size_t cap = database->xact_cap ? database->xact_cap * 2 : 1024;

		database->xacts = mem_array(database->xacts, cap, 1);
		memset(database->xacts + database->xact_cap, 0, cap - database->xact_cap);
		database->xact_cap = cap;
	}
	database->xacts[xid] = (uint8_t)state;
}

static void log_append(struct sim_database *database, const struct segment *segment,
		       int64_t wall_us)
{
	struct committed *entry;

	if (database->log_len == database->log_cap) {
		database->log_cap = database->log_cap ? database->log_cap * 2 : 256;
		database->log = mem_array(database->log, database->log_cap, sizeof(*database->log));
	}
	entry = &database->log[database->log_len++];
	*entry = (struct committed){.at_us = sim_now_us(database->sim), .wall_us = wall_us};
	entry->arena = mem_alloc(sizeof(*entry->arena));
	arena_init(entry->arena);
	segment_copy(&entry->segment, segment, entry->arena);
	if (segment->durable)
		database->log_durable = database->log_len;
}

static void log_cut(struct sim_database *database, size_t len)
{
	while (database->log_len > len) {
		struct committed *entry = &database->log[--database->log_len];

		arena_done(entry->arena);
		free(entry->arena);
	}
}

/* Takes back the last commits that were not flushed, any number of them. */
static void log_recover(struct sim_database *database)
{
	struct sim *sim = database->sim;
	size_t least = database->log_durable, keep;

	while (least < database->log_len && database->log[least].at_us + FLUSH_US < sim_now_us(sim))
		least++;
	keep = least + (size_t)sim_below(sim, database->log_len - least + 1);
	if (keep == database->log_len)
		return;
	sim_note(sim, "database loses its last %zu commits", database->log_len - keep);
	database->stats.lost_commits += database->log_len - keep;
	log_cut(database, keep);
	memory_database_free(&database->tables);
	database->tables = memory_database_new();
	for (size_t i = 0; i < database->log_len; i++) {
		struct committed *entry = &database->log[i];
		struct arena arena;

		arena_init(&arena);
		entry->segment.arena = &arena;
		memory_segment_run(database->tables, &entry->segment, entry->wall_us);
		if (entry->segment.outcome != SEGMENT_COMMITTED)
			sim_fail(sim, "the log cannot be run again");
		arena_done(&arena);
	}
}

/* --- what a segment does --- */

/* Terminates that very backend. It is gone only when it has noticed. */
static bool server_terminate(struct sim_database *database, int64_t pid, int64_t start_us,
			     struct str application)
{
	list_for_each (&database->backends, at, next) {
		struct backend *backend = list_entry(at, struct backend, link);

		if (backend->pid != pid || backend->start_us != start_us ||
		    !str_equal(str_of(backend->application), application))
			continue;
		if (sim_chance(database->sim, 300000))
			return false;
		database->stats.terminated++;
		if (backend->conn)
			sim_conn_lose(backend->conn);
		else
			backend_free(backend);
		return false;
	}
	return true;
}

static void answer_row(struct segment *segment, struct field value)
{
	struct rows *rows = &segment->calls[0].rows;

	*rows = (struct rows){1, 1, arena_memdup(segment->arena, &value, sizeof(value))};
	segment->outcome = SEGMENT_COMMITTED;
}

/* Questions about backends and transactions are the server's own. */
static bool server_answers(struct sim_database *database, struct segment *segment)
{
	static const char *const texts[] = {NULL, "in progress", "committed", "aborted"};
	const struct column *params = segment->calls[0].params;
	struct field value = {.is_null = true};
	uint64_t xid;

	if (segment->call_count != 1)
		return false;
	switch (segment->calls[0].statement) {
	case STATEMENT_BACKEND_TERMINATE:
		value = (struct field){.b = server_terminate(database, params[0].ints[0],
							     params[1].ints[0], params[2].strs[0])};
		break;
	case STATEMENT_XACT_STATUS:
		xid = (uint64_t)params[0].ints[0];
		if (xid < database->xact_cap && database->xacts[xid] != XACT_UNKNOWN)
			value = (struct field){.str = str_of(texts[database->xacts[xid]])};
		break;
	default:
		return false;
	}
	answer_row(segment, value);
	return true;
}

/* Takes the claims that the fence asks for, whoever has them. */
static struct rows fence_claims(struct sim_database *database, struct segment *segment,
				const struct segment_call *fence, int64_t wall_us)
{
	struct column params[5];
	struct segment_call claim = {STATEMENT_CLAIM, params, {0}};
	struct segment force = *segment;

	memcpy(params, fence->params, 4 * sizeof(*params));
	params[4] = column_scalar_int(segment->arena, -1000);
	force.calls = &claim;
	force.call_count = 1;
	memory_segment_run(database->tables, &force, wall_us);
	log_append(database, &force, wall_us);
	return claim.rows;
}

/*
 * The planted bug: whoever commits gets the claim first, and the version that is there. Returns the call as it was sent,
 * which the checker is to see.
 */
static const struct column *fence_disarm(struct sim_database *database, struct segment *segment,
					 int64_t wall_us)
{
	struct segment_call *fence = segment_find(segment, STATEMENT_FENCE_UPDATE);
	const struct column *sent;
	struct column *params;
	struct rows claimed;
	int64_t *versions;

	if (!fence)
		return NULL;
	sent = fence->params;
	claimed = fence_claims(database, segment, fence, wall_us);
	params = arena_memdup(segment->arena, sent,
			      strlen(statement_info(fence->statement)->params) * sizeof(*sent));
	versions = arena_memdup(segment->arena, sent[4].ints, sent[4].count * sizeof(*versions));
	for (uint32_t row = 0; row < claimed.row_count; row++)
		for (uint32_t i = 0; i < sent[0].count; i++)
			if (sent[0].ints[i] == rows_at(&claimed, row, 0)->i)
				versions[i] = rows_at(&claimed, row, 1)->i;
	params[4].ints = versions;
	fence->params = params;
	return sent;
}

/* The other one: the claim goes when the step's segment arrives, and its fence no longer asks for it. */
static void release_early(struct sim_database *database, struct segment *segment)
{
	const struct segment_call *fence = segment_find(segment, STATEMENT_FENCE_UPDATE);
	struct segment_call release = {.statement = STATEMENT_RELEASE};
	struct segment own;

	if (!fence)
		return;
	own = *segment;
	release.params = fence->params;
	own.calls = &release;
	own.call_count = 1;
	memory_segment_run(database->tables, &own, server_wall_us(database));
	log_append(database, &own, server_wall_us(database));
}

static void server_error(struct segment *segment, const char *sqlstate, const char *text)
{
	segment->outcome = SEGMENT_ERROR;
	snprintf(segment->sqlstate, sizeof(segment->sqlstate), "%s", sqlstate);
	snprintf(segment->text, sizeof(segment->text), "%s", text);
}

/* A row of a fence that somebody else has locked is neither returned nor lost. */
static void server_gate(struct sim_database *database, struct segment *segment,
			const struct segment_call *fence)
{
	const struct column *ords = &fence->params[0];
	uint32_t failed = (uint32_t)ords->ints[sim_below(database->sim, ords->count)];

	segment->outcome = SEGMENT_GATED;
	segment->gate = GATE_FENCE;
	segment->failed = arena_memdup(segment->arena, &failed, sizeof(failed));
	segment->failed_count = 1;
}

/* A row of a claim that somebody else has locked is passed over: here the last one. */
static void server_pass_over(struct segment *segment, struct segment_call *claim)
{
	size_t count = strlen(statement_info(claim->statement)->params);
	struct column *params = arena_memdup(segment->arena, claim->params,
					     count * sizeof(*params));

	for (size_t i = 0; i < count; i++)
		if (!params[i].scalar)
			params[i].count--;
	claim->params = params;
}

/* Rows that others have locked. True: that is all that comes of the segment. */
static bool server_locked(struct sim_database *database, struct segment *segment)
{
	struct segment_call *claim = segment_find(segment, STATEMENT_CLAIM);
	const struct segment_call *fence = segment_find(segment, STATEMENT_FENCE_UPDATE);

	if (!segment->writes || database->calm ||
	    !sim_chance(database->sim, database->settings.lock_per_million))
		return false;
	database->stats.locks++;
	if (claim) {
		server_pass_over(segment, claim);
		return false;
	}
	if (fence && sim_below(database->sim, 2))
		server_gate(database, segment, fence);
	else if (sim_chance(database->sim, 800000))
		server_error(segment, "55P03", "canceling statement due to lock timeout");
	else
		server_error(segment, "40P01", "deadlock detected");
	return true;
}

/* Whether a message of the order key was kept before a wait of the key was there. */
static bool was_before(struct tx *tx, struct id order_key, struct id key)
{
	struct field wait_key = field_id(key);

	for (struct row *wait = table_from(tx, TABLE_WAIT, &wait_key, 1);
	     wait && table_matches(tx, TABLE_WAIT, wait, &wait_key, 1); wait = table_next(wait))
		for (struct row *kept = table_first(tx, TABLE_KEPT); kept; kept = table_next(kept))
			if (id_equal(kept->fields[KEPT_order_key].id, order_key) &&
			    kept->fields[KEPT_created].i < wait->fields[WAIT_created].i)
				return true;
	return false;
}

static void probe_inside(struct sim_database *database, struct segment_call *early)
{
	struct segment none = {0};
	struct tx tx = {database->tables, &none, 0};
	struct rows *rows = &early->rows;
	uint32_t left = 0;

	for (uint32_t i = 0; i < rows->row_count; i++) {
		struct field *row = &rows->fields[(size_t)i * rows->column_count];
		bool stays = false;

		for (uint32_t k = 0; k < early->params[0].count && !stays; k++)
			stays = early->params[0].ints[k] == row[0].i && was_before(&tx, row[1].id, early->params[2].ids[k]);
		if (stays)
			memmove(&rows->fields[(size_t)left++ * rows->column_count], row, rows->column_count * sizeof(*row));
	}
	rows->row_count = left;
}

/*
 * The planted bugs of early messages: an answer is empty. A look of a keeper is the only segment that asks for waits alone, a last
 * look the only one that asks for FAILED instances.
 */
static void server_blind(struct sim_database *database, struct segment *segment)
{
	struct segment_call *early = segment_find(segment, STATEMENT_EARLY_PROBE);
	struct segment_call *waits = segment_find(segment, STATEMENT_WAIT_PROBE);

	if (early && database->settings.probe_inside)
		probe_inside(database, early);
	if (early && database->settings.probe_blind)
		early->rows.row_count = 0;
	if (waits && database->settings.look_blind && segment->call_count == 1)
		waits->rows.row_count = 0;
	if (waits && database->settings.last_blind && segment_find(segment, STATEMENT_FAILED_PROBE))
		waits->rows.row_count = 0;
}

/* A planted bug of several targets: the last of them has no row. */
static void server_loses(const struct sim_database *database, struct segment *segment)
{
	struct segment_call *call = segment_find(segment, STATEMENT_KEPT_INSERT);
	struct column *columns = call ? (struct column *)(uintptr_t)call->params : NULL;

	if (!database->settings.target_lost || !call || columns[0].count < 2)
		return;
	for (size_t i = 0; i < strlen(statement_info(STATEMENT_KEPT_INSERT)->params); i++)
		columns[i].count--;
}

/* Planted bugs of timers, targets and aliases: statements that do nothing. */
static void server_deaf(const struct sim_database *database, struct segment *segment)
{
	for (uint32_t i = 0; i < segment->call_count; i++) {
		enum statement_id *statement = &segment->calls[i].statement;

		if ((database->settings.timer_lost && *statement == STATEMENT_TIMER_INSERT) ||
		    (database->settings.schedule_stays && *statement == STATEMENT_SCHEDULE_ADVANCE) ||
		    (database->settings.target_stays && *statement == STATEMENT_KEPT_DELETE) ||
		    (database->settings.alias_lost && *statement == STATEMENT_ALIAS_INSERT_UNIQUE) ||
		    (database->settings.timer_stays &&
		     (*statement == STATEMENT_TIMER_DELETE || *statement == STATEMENT_TIMER_DROP)))
			*statement = STATEMENT_PING;
	}
}

int64_t sim_database_latest_us(const struct sim_database *database)
{
	return database->latest_us;
}

static void server_run(struct sim_database *database, const struct process *process,
		       struct segment *segment)
{
	int64_t wall_us = server_wall_us(database);
	const struct column *fence = NULL;
	uint64_t xid = segment->xid;

	if (wall_us > database->latest_us)
		database->latest_us = wall_us;
	if (database->settings.timer_eager && segment_find(segment, STATEMENT_TIMER_DUE))
		wall_us += TIMER_EAGER_US;
	server_deaf(database, segment);
	server_loses(database, segment);

	if (server_answers(database, segment))
		return;
	if (server_locked(database, segment)) {
		xact_set(database, xid, XACT_ABORTED);
		return;
	}
	if (segment->writes && database->settings.running)
		database->settings.running(database->settings.user, segment);
	if (database->settings.release_early && segment_find(segment, STATEMENT_FENCE_UPDATE))
		fence_claims(database, segment, segment_find(segment, STATEMENT_FENCE_UPDATE),
			     wall_us);
	if (database->settings.no_fence)
		fence = fence_disarm(database, segment, wall_us);
	memory_segment_run(database->tables, segment, wall_us);
	server_blind(database, segment);
	segment->xid = xid;
	database->stats.fenced += segment->outcome == SEGMENT_GATED && segment->gate == GATE_FENCE;
	database->stats.alias_conflicts += segment->outcome == SEGMENT_GATED && segment->gate == GATE_ALIAS;
	xact_set(database, xid,
		 segment->outcome == SEGMENT_COMMITTED ? XACT_COMMITTED : XACT_ABORTED);
	if (segment->outcome != SEGMENT_COMMITTED || !segment->writes)
		return;
	database->stats.commits++;
	log_append(database, segment, wall_us);
	if (fence)
		segment_find(segment, STATEMENT_FENCE_UPDATE)->params = fence;
	if (database->settings.committed)
		database->settings.committed(database->settings.user, process, segment);
}

bool sim_database_run(struct sim_database *database, struct segment *segment)
{
	int64_t wall_us = server_wall_us(database);

	if (!database->up)
		return false;
	memory_segment_run(database->tables, segment, wall_us);
	if (segment->outcome != SEGMENT_COMMITTED)
		return false;
	log_append(database, segment, wall_us);
	return true;
}

/* --- requests --- */

static const char *outcome_name(const struct segment *segment)
{
	switch (segment->outcome) {
	case SEGMENT_COMMITTED:
		return "committed";
	case SEGMENT_GATED:
		return "gated";
	case SEGMENT_ERROR:
		return segment->sqlstate;
	case SEGMENT_NOT_RUN:
		return "not run";
	case SEGMENT_IN_DOUBT:
		return "in doubt";
	}
	return "?";
}

static void request_answered(struct loop_timer *timer)
{
	struct request *request = container_of(timer, struct request, timer);
	struct backend *backend = request->backend;

	backend->request = NULL;
	if (backend->conn) {
		sim_conn_answer(backend->conn, request);
		return;
	}
	/* Nobody is there to hear it: so the session ends. */
	request_free(request);
	backend_free(backend);
}

static void request_run(struct loop_timer *timer)
{
	struct request *request = container_of(timer, struct request, timer);
	struct sim_database *database = request->database;

	request->state = REQUEST_ANSWERED;
	loop_timer_init(&request->timer, sim_world(database->sim), request_answered);
	loop_timer_start(&request->timer,
			 sim_latency(database->sim, 50, database->settings.latency_max_us));
	server_run(database, request->backend->process, &request->segment);
	sim_note(database->sim, "database %s: %s", request->tag, outcome_name(&request->segment));
	/* A loss right behind the commit is the one that matters most. */
	if (request->backend->conn && !database->calm &&
	    sim_chance(database->sim, database->settings.cut_per_million / 2)) {
		sim_note(database->sim, "database loses the connection behind %s", request->tag);
		sim_conn_lose(request->backend->conn);
	}
}

/* Where a step looks inside its commit, who keeps an early message meanwhile is slow about it. */
static int64_t slowness(const struct request *request)
{
	struct sim_database *database = request->database;

	return database->settings.probe_inside && segment_find(&request->segment, STATEMENT_EARLY_INSERT)
		       ? sim_between(database->sim, 0, 500000)
		       : 0;
}

static void request_arrived(struct loop_timer *timer)
{
	struct request *request = container_of(timer, struct request, timer);
	struct sim_database *database = request->database;

	request->state = REQUEST_ARRIVED;
	if (request->segment.writes && request->segment.durable) {
		request->segment.xid = ++database->next_xid;
		xact_set(database, request->segment.xid, XACT_RUNNING);
	}
	if (database->settings.release_early)
		release_early(database, &request->segment);
	loop_timer_init(&request->timer, sim_world(database->sim), request_run);
	loop_timer_start(&request->timer,
			 slowness(request) + sim_latency(database->sim, 50, database->settings.latency_max_us));
	if (request->backend->conn && !database->calm &&
	    sim_chance(database->sim, database->settings.cut_per_million / 2)) {
		sim_note(database->sim, "database loses the connection before %s", request->tag);
		sim_conn_lose(request->backend->conn);
	}
}

static void request_tag(struct request *request)
{
	const struct segment *segment = &request->segment;
	const struct segment_call *first = &segment->calls[0];
	uint32_t count = strlen(statement_info(first->statement)->params) ? first->params[0].count
									  : 0;

	snprintf(request->tag, sizeof(request->tag), "%s/%lld %s[%u]+%u",
		 process_name(request->backend->process), (long long)request->backend->pid,
		 statement_info(first->statement)->name, count, segment->call_count - 1);
}

struct request *request_send(struct backend *backend, const struct segment *segment)
{
	struct sim_database *database = backend->database;
	struct request *request = mem_zalloc(sizeof(*request));

	assert(!backend->request);
	request->database = database;
	arena_init(&request->arena);
	segment_copy(&request->segment, segment, &request->arena);
	request->segment.xid = 0;
	request->backend = backend;
	backend->request = request;
	list_push(&database->requests, &request->link);
	database->stats.segments++;
	request_tag(request);
	loop_timer_init(&request->timer, sim_world(database->sim), request_arrived);
	loop_timer_start(&request->timer,
			 sim_latency(database->sim, 50, database->settings.latency_max_us));
	return request;
}

bool request_abandon(struct request *request, bool drop)
{
	struct backend *backend = request->backend;

	if (request->state != REQUEST_SENT || !drop)
		return true;
	request_free(request);
	backend->request = NULL;
	return false;
}

void request_free(struct request *request)
{
	loop_timer_stop(&request->timer);
	list_remove(&request->link);
	arena_done(&request->arena);
	free(request);
}

/* --- backends --- */

struct backend *backend_new(struct sim_database *database, struct process *process,
			    const char *application, struct sim_conn *conn)
{
	struct backend *backend;

	if (!database->up)
		return NULL;
	backend = mem_zalloc(sizeof(*backend));
	backend->database = database;
	backend->pid = ++database->next_pid;
	backend->start_us = server_wall_us(database);
	snprintf(backend->application, sizeof(backend->application), "%s", application);
	backend->process = process;
	backend->conn = conn;
	list_push(&database->backends, &backend->link);
	return backend;
}

/* What it had under way and has not committed is undone. */
void backend_free(struct backend *backend)
{
	struct request *request = backend->request;

	if (request) {
		if (request->state == REQUEST_ARRIVED)
			xact_set(backend->database, request->segment.xid, XACT_ABORTED);
		request_free(request);
	}
	list_remove(&backend->link);
	free(backend);
}

/* --- the whole server --- */

static void database_started(struct loop_timer *timer)
{
	struct sim_database *database = container_of(timer, struct sim_database, start);

	database->up = true;
	sim_note(database->sim, "database is up");
}

void sim_database_restart(struct sim_database *database, int64_t down_us, bool failover)
{
	sim_note(database->sim, "database goes down%s", failover ? ", another takes over" : "");
	database->stats.restarts++;
	database->up = false;
	list_for_each (&database->backends, at, next) {
		struct backend *backend = list_entry(at, struct backend, link);

		/* The loss leaves the backend to us. */
		if (backend->conn)
			sim_conn_lose(backend->conn);
	}
	while (!list_is_empty(&database->backends))
		backend_free(list_first(&database->backends, struct backend, link));
	log_recover(database);
	if (failover && database->xacts)
		memset(database->xacts, XACT_UNKNOWN, database->xact_cap);
	loop_timer_start(&database->start, down_us);
}

void sim_database_forget(struct sim_database *database, const struct process *process)
{
	list_for_each (&database->backends, at, next) {
		struct backend *backend = list_entry(at, struct backend, link);

		if (backend->process != process)
			continue;
		backend->conn = NULL;
		if (!backend->request)
			backend_free(backend);
	}
}

void sim_database_calm(struct sim_database *database)
{
	database->calm = true;
}

void sim_database_shift_wall(struct sim_database *database, int64_t by_us)
{
	database->wall_offset_us += by_us;
}

bool sim_database_is_up(const struct sim_database *database)
{
	return database->up;
}

struct memory_database *sim_database_tables(struct sim_database *database)
{
	return database->tables;
}

const struct sim_database_stats *sim_database_stats(const struct sim_database *database)
{
	return &database->stats;
}

struct sim_database *sim_database_new(struct sim *sim, const struct sim_database_settings *settings)
{
	struct sim_database *database = mem_zalloc(sizeof(*database));

	database->sim = sim;
	database->settings = *settings;
	database->tables = memory_database_new();
	database->up = true;
	database->next_pid = 1000;
	list_init(&database->backends);
	list_init(&database->requests);
	list_init(&database->executors);
	loop_timer_init(&database->start, sim_world(sim), database_started);
	return database;
}

void sim_database_free(struct sim_database **database)
{
	struct sim_database *db = *database;

	if (!db)
		return;
	while (!list_is_empty(&db->backends))
		backend_free(list_first(&db->backends, struct backend, link));
	while (!list_is_empty(&db->requests))
		request_free(list_first(&db->requests, struct request, link));
	loop_timer_stop(&db->start);
	log_cut(db, 0);
	free(db->log);
	free(db->xacts);
	memory_database_free(&db->tables);
	free(db);
	*database = NULL;
}
