/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side of the simulated database: an executor with its connections.
 *
 *	DOWN ──► CONNECTING ──► IDLE ◄──► BUSY
 *	  ▲                       │         │
 *	  └──────── LOST ◄────────┴─────────┘
 *
 * The store sees every change on its own loop: what the server does is put into `pending` and told by the connection's
 * task. Only one thing is ever pending; a loss behind an answer that is already under way is noticed when that has been
 * taken.
 *
 * Executors of killed processes are forgotten with all their memory.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "tests/sim/segment_copy.h"
#include "tests/sim/server.h"

#define BACKGROUND_CONNECTIONS 2
#define QUARANTINE_CONNECTIONS 1
#define STEP_CONNECTIONS       3

enum conn_state { CONN_DOWN, CONN_CONNECTING, CONN_IDLE, CONN_BUSY, CONN_LOST };
enum conn_pending { PENDING_NOTHING, PENDING_ANSWER, PENDING_LOSS, PENDING_UP };

struct sim_executor;

struct sim_conn {
	struct sim_executor *executor;
	enum conn_class class;
	enum conn_state state;
	enum conn_pending pending;
	struct task task;          /* on the store's loop */
	struct loop_timer connect; /* on the world's */
	struct backend *backend;
	struct segment *segment;           /* the store's, under way */
	struct request *answer;            /* PENDING_ANSWER */
	bool broken;                       /* lost behind what is pending */
	enum segment_outcome lost_outcome; /* PENDING_LOSS of a busy one */
	uint64_t lost_xid;
	int64_t lost_pid, lost_start_us;
};

struct sim_executor {
	struct executor base;
	struct list link;
	struct sim_database *database;
	struct process *process;
	struct loop *loop;
	bool stopped;
	char application[64];
	uint32_t counts[CONN_CLASS_COUNT];
	struct sim_conn *conns[CONN_CLASS_COUNT];
};

static struct sim_executor *executor_of(struct executor *executor)
{
	return container_of(executor, struct sim_executor, base);
}

#define for_each_conn(executor, conn) \
	for (uint32_t class_ = 0; class_ < CONN_CLASS_COUNT; class_++) \
		for (struct sim_conn *conn = (executor)->conns[class_], \
				     *end_ = conn + (executor)->counts[class_]; \
		     conn < end_; conn++)

static void conn_tell(struct sim_conn *conn, enum conn_pending pending)
{
	assert(conn->pending == PENDING_NOTHING);
	conn->pending = pending;
	loop_post(conn->executor->loop, &conn->task);
}

/* --- told on the store's loop --- */

static bool step_is_up(struct sim_executor *executor)
{
	for (uint32_t i = 0; i < executor->counts[CONN_STEP]; i++) {
		enum conn_state state = executor->conns[CONN_STEP][i].state;

		if (state == CONN_IDLE || state == CONN_BUSY)
			return true;
	}
	return false;
}

static void segment_lost(struct sim_conn *conn)
{
	struct segment *segment = conn->segment;

	conn->segment = NULL;
	segment->outcome = conn->lost_outcome;
	segment->xid = conn->lost_xid;
	segment->backend_pid = conn->lost_pid;
	segment->backend_start_us = conn->lost_start_us;
	snprintf(segment->application, sizeof(segment->application), "%s",
		 conn->executor->application);
	if (segment->outcome == SEGMENT_IN_DOUBT)
		conn->executor->database->stats.doubts++;
	segment->done(segment);
}

/* The client notices that the connection is gone. */
static void conn_take_loss(struct sim_conn *conn)
{
	struct sim_executor *executor = conn->executor;

	conn->broken = false;
	conn->state = CONN_DOWN;
	if (conn->segment)
		segment_lost(conn);
	if (conn->class == CONN_STEP && !step_is_up(executor) && executor->base.on_down)
		executor->base.on_down(executor->base.user);
	if (!executor->stopped)
		sim_conn_retry(conn);
}

static void conn_free_again(struct sim_conn *conn)
{
	struct sim_executor *executor = conn->executor;

	if (conn->broken) {
		conn_take_loss(conn);
		return;
	}
	conn->state = CONN_IDLE;
	if (executor->base.on_ready)
		executor->base.on_ready(executor->base.user);
}

static void conn_take_answer(struct sim_conn *conn)
{
	struct segment *segment = conn->segment;
	struct request *answer = conn->answer;

	conn->segment = NULL;
	conn->answer = NULL;
	conn->state = conn->broken ? CONN_LOST : CONN_IDLE;
	segment_answer(segment, &answer->segment);
	request_free(answer);
	segment->done(segment);
	if (!conn->executor->stopped)
		conn_free_again(conn);
}

static void conn_told(struct task *task)
{
	struct sim_conn *conn = container_of(task, struct sim_conn, task);
	struct sim_executor *executor = conn->executor;
	enum conn_pending pending = conn->pending;

	conn->pending = PENDING_NOTHING;
	if (executor->stopped)
		return;
	switch (pending) {
	case PENDING_NOTHING:
		break;
	case PENDING_ANSWER:
		conn_take_answer(conn);
		break;
	case PENDING_LOSS:
		conn_take_loss(conn);
		break;
	case PENDING_UP:
		conn_free_again(conn);
		break;
	}
}

/* --- what the server does to it --- */

void sim_conn_answer(struct sim_conn *conn, struct request *request)
{
	conn->answer = request;
	conn_tell(conn, PENDING_ANSWER);
}

/* What its sender can say of a segment whose connection is gone. */
static void request_lose(struct sim_conn *conn, struct request *request)
{
	struct sim *sim = conn->executor->database->sim;
	struct backend *backend = conn->backend;
	bool arrived = request->state != REQUEST_SENT;
	bool writes = request->segment.writes;
	uint64_t xid = request->segment.xid;

	conn->lost_pid = backend->pid;
	conn->lost_start_us = backend->start_us;
	/* The id is known only if its row came before the loss. */
	conn->lost_xid = arrived && sim_chance(sim, 700000) ? xid : 0;
	if (request_abandon(request, sim_chance(sim, 500000)) && writes)
		conn->lost_outcome = SEGMENT_IN_DOUBT;
	else
		conn->lost_outcome = writes && sim_chance(sim, 300000) ? SEGMENT_IN_DOUBT
								       : SEGMENT_NOT_RUN;
}

/* The session no longer has a client. */
static void conn_leave(struct sim_conn *conn)
{
	struct backend *backend = conn->backend;

	conn->backend = NULL;
	backend->conn = NULL;
	if (!backend->request)
		backend_free(backend);
}

void sim_conn_lose(struct sim_conn *conn)
{
	conn->executor->database->stats.cuts++;
	if (conn->pending != PENDING_NOTHING) {
		conn->broken = true;
		conn_leave(conn);
		return;
	}
	if (conn->state == CONN_BUSY)
		request_lose(conn, conn->backend->request);
	conn->state = CONN_LOST;
	conn_leave(conn);
	conn_tell(conn, PENDING_LOSS);
}

static void conn_connect(struct loop_timer *timer)
{
	struct sim_conn *conn = container_of(timer, struct sim_conn, connect);
	struct sim_executor *executor = conn->executor;

	if (process_is_dead(executor->process))
		return;
	conn->backend = backend_new(executor->database, executor->process, executor->application,
				    conn);
	if (!conn->backend) {
		sim_conn_retry(conn);
		return;
	}
	conn_tell(conn, PENDING_UP);
}

void sim_conn_retry(struct sim_conn *conn)
{
	struct sim *sim = conn->executor->database->sim;

	conn->state = CONN_CONNECTING;
	loop_timer_init(&conn->connect, sim_world(sim), conn_connect);
	loop_timer_start(&conn->connect, sim_latency(sim, 2 * US_PER_MS, 1000 * US_PER_MS));
}

void sim_database_cut(struct sim_database *database, const struct process *process, bool all)
{
	sim_note(database->sim, "database loses %s of %s", all ? "every connection" : "connections",
		 process_name(process));
	list_for_each (&database->executors, at, next) {
		struct sim_executor *executor = list_entry(at, struct sim_executor, link);

		if (executor->process != process)
			continue;
		for_each_conn(executor, conn)
		{
			if (conn->backend && (all || sim_below(database->sim, 3) == 0))
				sim_conn_lose(conn);
		}
	}
}

/* --- the executor --- */

static void executor_start(struct executor *base, struct loop *loop)
{
	struct sim_executor *executor = executor_of(base);

	executor->loop = loop;
	for_each_conn(executor, conn) sim_conn_retry(conn);
}

static uint32_t executor_conn_count(struct executor *base, enum conn_class class)
{
	return executor_of(base)->counts[class];
}

static bool executor_conn_ready(struct executor *base, enum conn_class class, uint32_t index)
{
	struct sim_executor *executor = executor_of(base);

	/* A lost one counts as there until its client has noticed. */
	return executor->conns[class][index].state == CONN_IDLE && !executor->stopped;
}

static void executor_run(struct executor *base, enum conn_class class, uint32_t index,
			 struct segment *segment)
{
	struct sim_conn *conn = &executor_of(base)->conns[class][index];

	assert(sim_is_on(executor_of(base)->loop));
	assert(conn->state == CONN_IDLE && !conn->segment);
	conn->segment = segment;
	conn->state = CONN_BUSY;
	request_send(conn->backend, segment);
}

static void conn_stop(struct sim_conn *conn)
{
	loop_timer_stop(&conn->connect);
	if (conn->answer)
		request_free(conn->answer);
	conn->answer = NULL;
	if (conn->segment && conn->backend && conn->backend->request)
		request_lose(conn, conn->backend->request);
	else if (conn->segment && conn->pending != PENDING_LOSS)
		conn->lost_outcome = conn->segment->writes ? SEGMENT_IN_DOUBT : SEGMENT_NOT_RUN;
	if (conn->backend)
		conn_leave(conn);
	conn->state = CONN_DOWN;
	if (conn->segment)
		segment_lost(conn);
}

static void executor_stop(struct executor *base)
{
	struct sim_executor *executor = executor_of(base);

	executor->stopped = true;
	for_each_conn(executor, conn) conn_stop(conn);
}

static void executor_free(struct executor *base)
{
	struct sim_executor *executor = executor_of(base);

	list_remove(&executor->link);
	for_each_conn(executor, conn)
	{
		loop_timer_stop(&conn->connect);
		if (conn->backend)
			backend_free(conn->backend);
	}
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++)
		free(executor->conns[class]);
	free(executor);
}

static const char *executor_trouble(struct executor *base)
{
	return step_is_up(executor_of(base)) ? NULL : "the simulated database is away";
}

static const struct executor_ops sim_executor_ops = {
	.start = executor_start,
	.conn_count = executor_conn_count,
	.conn_ready = executor_conn_ready,
	.run = executor_run,
	.stop = executor_stop,
	.free = executor_free,
	.trouble = executor_trouble,
};

struct executor *sim_executor_new(struct sim_database *database, struct process *process)
{
	struct sim_executor *executor = mem_zalloc(sizeof(*executor));

	executor->base.ops = &sim_executor_ops;
	executor->database = database;
	executor->process = process;
	snprintf(executor->application, sizeof(executor->application), "sutra/%s",
		 process_name(process));
	executor->counts[CONN_STEP] = STEP_CONNECTIONS;
	executor->counts[CONN_BACKGROUND] = BACKGROUND_CONNECTIONS;
	executor->counts[CONN_QUARANTINE] = QUARANTINE_CONNECTIONS;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++) {
		executor->conns[class] = mem_zalloc(executor->counts[class] *
						    sizeof(struct sim_conn));
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			executor->conns[class][i] = (struct sim_conn){
				.executor = executor,
				.class = (enum conn_class) class,
				.task.run = conn_told};
	}
	list_push(&database->executors, &executor->link);
	return &executor->base;
}
