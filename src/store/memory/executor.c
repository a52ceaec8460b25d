/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory executor: connections that never break, to tables that live as long as the process. A segment runs under the
 * database's lock from its first statement to its last, in a task of its own behind run(), so that the store above sees
 * the same order of calls as with a real database: sent, then answered.
 */
#include "base/alloc.h"
#include "store/memory/tables.h"

/* Background work, and single elements that met a lock, as the PostgreSQL executor has them. */
#define BACKGROUND_CONNECTIONS 1
#define QUARANTINE_CONNECTIONS 1

struct memory_executor;

struct memory_conn {
	struct memory_executor *executor;
	struct task task;
	struct segment *segment; /* under way, or NULL */
};

struct memory_executor {
	struct executor base;
	struct memory_database *db;
	struct loop *loop;
	struct task ready;
	bool up;
	uint32_t counts[CONN_CLASS_COUNT];
	struct memory_conn *conns[CONN_CLASS_COUNT];
};

static struct memory_executor *memory_of(struct executor *executor)
{
	return container_of(executor, struct memory_executor, base);
}

void memory_segment_run(struct memory_database *database, struct segment *segment, int64_t now_us)
{
	struct tx tx = {database, segment, now_us};
	bool ok = true;

	segment->gate = GATE_NONE;
	segment->failed_count = 0;
	segment->sqlstate[0] = segment->text[0] = '\0';
	segment->failed_call = 0;
	segment->xid = 0;
	pthread_mutex_lock(&database->lock);
	for (uint32_t i = 0; i < segment->call_count && ok; i++) {
		ok = memory_statement_run(&tx, &segment->calls[i]);
		segment->failed_call = ok ? 0 : i + 1;
	}
	if (ok)
		tx_commit(&tx);
	else
		tx_rollback(&tx);
	if (segment->writes && segment->durable) {
		uint64_t bit = ++database->xid % MEMORY_XACTS;
		uint8_t *byte = &database->committed[bit / 8], mask = (uint8_t)(1u << (bit % 8));

		*byte = (uint8_t)(ok ? *byte | mask : *byte & ~mask);
		segment->xid = database->xid;
	}
	pthread_mutex_unlock(&database->lock);
	if (ok)
		segment->outcome = SEGMENT_COMMITTED;
}

static void notify_ready(struct memory_executor *executor)
{
	if (executor->up && executor->base.on_ready)
		executor->base.on_ready(executor->base.user);
}

static void conn_answer(struct task *task)
{
	struct memory_conn *conn = container_of(task, struct memory_conn, task);
	struct memory_executor *executor = conn->executor;
	struct segment *segment = conn->segment;

	if (!segment)
		return;
	memory_segment_run(executor->db, segment, loop_wall_us(executor->loop));
	conn->segment = NULL;
	segment->done(segment);
	notify_ready(executor);
}

static void come_up(struct task *task)
{
	struct memory_executor *executor = container_of(task, struct memory_executor, ready);

	executor->up = executor->loop != NULL;
	notify_ready(executor);
}

static void memory_start(struct executor *base, struct loop *loop)
{
	struct memory_executor *executor = memory_of(base);

	executor->loop = loop;
	executor->ready.run = come_up;
	loop_post(loop, &executor->ready);
}

static uint32_t memory_conn_count(struct executor *base, enum conn_class class)
{
	return memory_of(base)->counts[class];
}

static bool memory_conn_ready(struct executor *base, enum conn_class class, uint32_t index)
{
	struct memory_executor *executor = memory_of(base);

	return executor->up && !executor->conns[class][index].segment;
}

static void memory_run(struct executor *base, enum conn_class class, uint32_t index,
		       struct segment *segment)
{
	struct memory_executor *executor = memory_of(base);
	struct memory_conn *conn = &executor->conns[class][index];

	assert(executor->up && !conn->segment);
	conn->segment = segment;
	loop_post(executor->loop, &conn->task);
}

static void memory_stop(struct executor *base)
{
	struct memory_executor *executor = memory_of(base);

	executor->up = false;
	executor->loop = NULL;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++)
		for (uint32_t i = 0; i < executor->counts[class]; i++) {
			struct segment *segment = executor->conns[class][i].segment;

			if (!segment)
				continue;
			executor->conns[class][i].segment = NULL;
			segment->outcome = SEGMENT_NOT_RUN;
			segment->done(segment);
		}
}

static void memory_free(struct executor *base)
{
	struct memory_executor *executor = memory_of(base);

	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++)
		free(executor->conns[class]);
	free(executor);
}

static const char *memory_trouble(struct executor *base)
{
	return memory_of(base)->up ? NULL : "not started";
}

static const struct executor_ops memory_ops = {
	.start = memory_start,
	.conn_count = memory_conn_count,
	.conn_ready = memory_conn_ready,
	.run = memory_run,
	.stop = memory_stop,
	.free = memory_free,
	.trouble = memory_trouble,
};

struct executor *memory_executor_new(struct memory_database *database, uint32_t step_connections)
{
	struct memory_executor *executor = mem_zalloc(sizeof(*executor));

	executor->base.ops = &memory_ops;
	executor->db = database;
	executor->counts[CONN_STEP] = step_connections ? step_connections : 1;
	executor->counts[CONN_BACKGROUND] = BACKGROUND_CONNECTIONS;
	executor->counts[CONN_QUARANTINE] = QUARANTINE_CONNECTIONS;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++) {
		executor->conns[class] = mem_zalloc(executor->counts[class] *
						    sizeof(struct memory_conn));
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			executor->conns[class][i] = (struct memory_conn){
				.executor = executor, .task = {.run = conn_answer}};
	}
	return &executor->base;
}
