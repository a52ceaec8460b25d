/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/switch_executor.h"

#include "base/alloc.h"
#include "base/thread.h"

struct switch_conn {
	struct switch_executor *executor;
	struct task task;
	struct segment *segment; /* under way, or NULL */
	enum conn_class class;
	bool posted;
};

struct switch_executor {
	struct executor base;
	struct memory_database *database;
	struct loop *loop;
	struct task ready;
	bool on, hold_background, hold_commits;
	uint32_t doubts;
	uint32_t doubt_statement; /* STATEMENT_COUNT: none */
	uint32_t waiting; /* atomic */
	uint32_t counts[CONN_CLASS_COUNT];
	struct switch_conn *conns[CONN_CLASS_COUNT];
};

static struct switch_executor *switch_of(struct executor *executor)
{
	return container_of(executor, struct switch_executor, base);
}

static void conn_finish(struct switch_conn *conn, enum segment_outcome lost)
{
	struct segment *segment = conn->segment;

	conn->segment = NULL;
	if (lost != SEGMENT_COMMITTED)
		segment->outcome = lost;
	segment->done(segment);
}

static bool is_commit(const struct switch_conn *conn)
{
	return conn->class == CONN_STEP && conn->segment->writes && conn->segment->durable;
}

/* Whether nobody is to hear of its commit. */
static bool take_doubt(struct switch_conn *conn)
{
	struct switch_executor *executor = conn->executor;
	const struct segment *segment = conn->segment;

	if (segment->outcome != SEGMENT_COMMITTED)
		return false;
	if (is_commit(conn) && executor->doubts) {
		executor->doubts--;
		return true;
	}
	if (conn->class != CONN_BACKGROUND || segment->calls[0].statement != executor->doubt_statement)
		return false;
	executor->doubt_statement = STATEMENT_COUNT;
	return true;
}

/* Runs what is under way, unless it was lost or is to wait. */
static void conn_run(struct task *task)
{
	struct switch_conn *conn = container_of(task, struct switch_conn, task);
	struct switch_executor *executor = conn->executor;
	struct segment *segment = conn->segment;

	conn->posted = false;
	if (!segment)
		return;
	if ((conn->class == CONN_BACKGROUND && executor->hold_background) || (is_commit(conn) && executor->hold_commits)) {
		__atomic_add_fetch(&executor->waiting, 1, __ATOMIC_RELEASE);
		return;
	}
	memory_segment_run(executor->database, segment, loop_wall_us(executor->loop));
	conn_finish(conn, take_doubt(conn) ? SEGMENT_IN_DOUBT : SEGMENT_COMMITTED);
	if (executor->on)
		executor->base.on_ready(executor->base.user);
}

static void conn_post(struct switch_conn *conn)
{
	if (conn->posted)
		return;
	conn->posted = true;
	loop_post(conn->executor->loop, &conn->task);
}

static void lose_all(struct switch_executor *executor)
{
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class++)
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			if (executor->conns[class][i].segment)
				conn_finish(&executor->conns[class][i], SEGMENT_NOT_RUN);
	__atomic_store_n(&executor->waiting, 0, __ATOMIC_RELEASE);
}

static void come_up(struct task *task)
{
	struct switch_executor *executor = container_of(task, struct switch_executor, ready);

	executor->on = true;
	executor->base.on_ready(executor->base.user);
}

static void switch_start(struct executor *base, struct loop *loop)
{
	struct switch_executor *executor = switch_of(base);

	executor->loop = loop;
	executor->ready.run = come_up;
	loop_post(loop, &executor->ready);
}

static uint32_t switch_conn_count(struct executor *base, enum conn_class class)
{
	return switch_of(base)->counts[class];
}

static bool switch_conn_ready(struct executor *base, enum conn_class class, uint32_t index)
{
	struct switch_executor *executor = switch_of(base);

	return executor->on && !executor->conns[class][index].segment;
}

static void switch_run(struct executor *base, enum conn_class class, uint32_t index, struct segment *segment)
{
	struct switch_conn *conn = &switch_of(base)->conns[class][index];

	assert(switch_of(base)->on && !conn->segment);
	conn->segment = segment;
	conn_post(conn);
}

static void switch_stop(struct executor *base)
{
	switch_of(base)->on = false;
	lose_all(switch_of(base));
}

static void switch_free(struct executor *base)
{
	struct switch_executor *executor = switch_of(base);

	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class++)
		free(executor->conns[class]);
	free(executor);
}

static const char *switch_trouble(struct executor *base)
{
	return switch_of(base)->on ? NULL : "switched off";
}

static const struct executor_ops switch_ops = {
	.start = switch_start,
	.conn_count = switch_conn_count,
	.conn_ready = switch_conn_ready,
	.run = switch_run,
	.stop = switch_stop,
	.free = switch_free,
	.trouble = switch_trouble,
};

struct executor *switch_executor_new(struct memory_database *database, uint32_t step_connections)
{
	struct switch_executor *executor = mem_zalloc(sizeof(*executor));

	executor->base.ops = &switch_ops;
	executor->database = database;
	executor->doubt_statement = STATEMENT_COUNT;
	executor->counts[CONN_STEP] = step_connections;
	executor->counts[CONN_BACKGROUND] = executor->counts[CONN_QUARANTINE] = 1;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class++) {
		executor->conns[class] = mem_zalloc(executor->counts[class] * sizeof(struct switch_conn));
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			executor->conns[class][i] = (struct switch_conn){
				.executor = executor, .task = {.run = conn_run}, .class = (enum conn_class)class};
	}
	return &executor->base;
}

/* --- the switches --- */

struct switch_call {
	struct switch_executor *executor;
	bool flag;
	uint32_t count;
};

static void set_call(void *arg)
{
	struct switch_call *call = arg;
	struct switch_executor *executor = call->executor;

	if (executor->on == call->flag)
		return;
	executor->on = call->flag;
	if (call->flag) {
		executor->base.on_ready(executor->base.user);
	} else {
		lose_all(executor);
		executor->base.on_down(executor->base.user);
	}
}

static void hold_call(void *arg)
{
	struct switch_call *call = arg;
	struct switch_executor *executor = call->executor;

	executor->hold_background = call->flag;
	__atomic_store_n(&executor->waiting, 0, __ATOMIC_RELEASE);
	if (!call->flag && executor->conns[CONN_BACKGROUND][0].segment)
		conn_post(&executor->conns[CONN_BACKGROUND][0]);
}

static void hold_commits_call(void *arg)
{
	struct switch_call *call = arg;
	struct switch_executor *executor = call->executor;

	executor->hold_commits = call->flag;
	__atomic_store_n(&executor->waiting, 0, __ATOMIC_RELEASE);
	for (uint32_t i = 0; !call->flag && i < executor->counts[CONN_STEP]; i++)
		if (executor->conns[CONN_STEP][i].segment)
			conn_post(&executor->conns[CONN_STEP][i]);
}

static void doubt_call(void *arg)
{
	struct switch_call *call = arg;

	call->executor->doubts = call->count;
}

static void doubt_statement_call(void *arg)
{
	struct switch_call *call = arg;

	call->executor->doubt_statement = call->count;
}

void switch_executor_set(struct executor *executor, bool on)
{
	struct switch_call call = {switch_of(executor), on, 0};

	loop_call(call.executor->loop, set_call, &call);
}

void switch_executor_hold_background(struct executor *executor, bool hold)
{
	struct switch_call call = {switch_of(executor), hold, 0};

	loop_call(call.executor->loop, hold_call, &call);
}

void switch_executor_doubt(struct executor *executor, uint32_t count)
{
	struct switch_call call = {switch_of(executor), false, count};

	loop_call(call.executor->loop, doubt_call, &call);
}

void switch_executor_hold_commits(struct executor *executor, bool hold)
{
	struct switch_call call = {switch_of(executor), hold, 0};

	loop_call(call.executor->loop, hold_commits_call, &call);
}

void switch_executor_doubt_statement(struct executor *executor, enum statement_id statement)
{
	struct switch_call call = {switch_of(executor), false, statement};

	loop_call(call.executor->loop, doubt_statement_call, &call);
}

uint32_t switch_executor_waiting(struct executor *executor)
{
	return __atomic_load_n(&switch_of(executor)->waiting, __ATOMIC_ACQUIRE);
}
