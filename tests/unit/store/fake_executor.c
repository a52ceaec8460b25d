/* SPDX-License-Identifier: Apache-2.0 */
/* A scripted executor: see the header. */
#include "tests/unit/store/fake_executor.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/thread.h"

#define CONNS_MAX 2
#define STEPS_MAX 64

struct fake_executor;

struct fake_conn {
	struct fake_executor *fake;
	struct task task;
	struct segment *segment;
	bool held;
};

struct fake_executor {
	struct executor base;
	struct memory_database *db;
	struct loop *loop;
	struct task ready;
	bool up;
	struct fake_conn conns[CONN_CLASS_COUNT][CONNS_MAX];
	struct fake_step steps[STEPS_MAX];
	uint32_t step_count;
	struct fake_entry log[FAKE_LOG_MAX];
	uint32_t log_count;
};

static struct fake_executor *fake_of(struct executor *base)
{
	return container_of(base, struct fake_executor, base);
}

static uint32_t fake_conn_count(struct executor *base UNUSED, enum conn_class class)
{
	return class == CONN_STEP ? 2 : 1;
}

static bool fake_conn_ready(struct executor *base, enum conn_class class, uint32_t index)
{
	struct fake_executor *fake = fake_of(base);

	return fake->up && !fake->conns[class][index].segment;
}

static void notify(struct fake_executor *fake)
{
	if (fake->up && fake->base.on_ready)
		fake->base.on_ready(fake->base.user);
}

static bool step_fits(const struct fake_step *step, const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->call_count; i++) {
		const struct segment_call *call = &segment->calls[i];

		if (call->statement != step->when)
			continue;
		if (id_is_none(step->instance))
			return true;
		for (uint32_t k = 0; k < call->params[2].count; k++)
			if (id_equal(call->params[2].ids[k], step->instance))
				return true;
	}
	return false;
}

/* The step for this segment, used up by it. */
static bool step_take(struct fake_executor *fake, const struct segment *segment,
		      struct fake_step *step)
{
	for (uint32_t i = 0; i < fake->step_count; i++) {
		if (!step_fits(&fake->steps[i], segment))
			continue;
		*step = fake->steps[i];
		if (fake->steps[i].times > 1) {
			fake->steps[i].times--;
		} else {
			fake->step_count--;
			memmove(&fake->steps[i], &fake->steps[i + 1],
				(fake->step_count - i) * sizeof(fake->steps[0]));
		}
		return true;
	}
	return false;
}

static void fate_locked(struct segment *segment, const struct fake_step *step)
{
	const struct segment_call *call = segment->calls;
	const struct column *p;

	while (call->statement != step->when)
		call++;
	p = call->params;
	segment->outcome = SEGMENT_GATED;
	segment->gate = statement_info(step->when)->gate;
	segment->failed = arena_alloc(segment->arena, (p[0].count + 1) * sizeof(uint32_t));
	segment->failed_count = 0;
	for (uint32_t i = 0; i < p[0].count; i++)
		if (id_is_none(step->instance) || id_equal(p[2].ids[i], step->instance))
			segment->failed[segment->failed_count++] = (uint32_t)p[0].ints[i];
}

static void fate_doubt(struct fake_executor *fake, struct segment *segment,
		       const struct fake_step *step)
{
	if (step->fate == FAKE_DOUBT_WRITTEN) {
		memory_segment_run(fake->db, segment, loop_wall_us(fake->loop));
		assert(segment->outcome == SEGMENT_COMMITTED);
	}
	segment->outcome = SEGMENT_IN_DOUBT;
	segment->xid = step->xid;
	segment->backend_pid = step->backend_pid;
	segment->backend_start_us = 1;
	snprintf(segment->application, sizeof(segment->application), "sutra/test");
}

static void fate_field(struct fake_executor *fake, struct segment *segment,
		       const struct fake_step *step)
{
	struct field *field;

	memory_segment_run(fake->db, segment, loop_wall_us(fake->loop));
	field = &segment->calls[0].rows.fields[0];
	if (step->fate == FAKE_NULL)
		*field = (struct field){.is_null = true};
	else if (step->fate == FAKE_FALSE)
		*field = (struct field){.b = false};
	else
		*field = (struct field){.str = str_of(step->sqlstate)};
}

static void conn_answer(struct task *task)
{
	struct fake_conn *conn = container_of(task, struct fake_conn, task);
	struct fake_executor *fake = conn->fake;
	struct segment *segment = conn->segment;
	struct fake_step step;

	if (!segment || conn->held)
		return;
	if (!step_take(fake, segment, &step)) {
		memory_segment_run(fake->db, segment, loop_wall_us(fake->loop));
	} else {
		switch (step.fate) {
		case FAKE_ERROR:
			segment->outcome = SEGMENT_ERROR;
			snprintf(segment->sqlstate, sizeof(segment->sqlstate), "%s", step.sqlstate);
			snprintf(segment->text, sizeof(segment->text), "scripted");
			break;
		case FAKE_LOCKED:
			fate_locked(segment, &step);
			break;
		case FAKE_NOT_RUN:
			segment->outcome = SEGMENT_NOT_RUN;
			break;
		case FAKE_DOUBT_WRITTEN:
		case FAKE_DOUBT_LOST:
			fate_doubt(fake, segment, &step);
			break;
		case FAKE_HOLD:
			conn->held = true;
			return;
		case FAKE_NULL:
		case FAKE_FALSE:
		case FAKE_TEXT:
			fate_field(fake, segment, &step);
			break;
		}
	}
	conn->segment = NULL;
	segment->done(segment);
	notify(fake);
}

static void fake_run(struct executor *base, enum conn_class class, uint32_t index,
		     struct segment *segment)
{
	struct fake_executor *fake = fake_of(base);
	struct fake_conn *conn = &fake->conns[class][index];

	assert(fake->up && !conn->segment);
	if (fake->log_count < FAKE_LOG_MAX)
		fake->log[fake->log_count++] = (struct fake_entry){
			.class = class,
			.first = segment->calls[0].statement,
			.count = segment->calls[0].params ? segment->calls[0].params[0].count : 0,
			.lock_timeout_ms = segment->lock_timeout_ms,
			.durable = segment->durable,
		};
	conn->segment = segment;
	loop_post(fake->loop, &conn->task);
}

static void come_up(struct task *task)
{
	struct fake_executor *fake = container_of(task, struct fake_executor, ready);

	fake->up = true;
	notify(fake);
}

static void fake_start(struct executor *base, struct loop *loop)
{
	struct fake_executor *fake = fake_of(base);

	fake->loop = loop;
	fake->ready.run = come_up;
	loop_post(loop, &fake->ready);
}

static void lose_all(struct fake_executor *fake)
{
	fake->up = false;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++)
		for (uint32_t i = 0; i < CONNS_MAX; i++) {
			struct segment *segment = fake->conns[class][i].segment;

			if (!segment)
				continue;
			fake->conns[class][i].segment = NULL;
			fake->conns[class][i].held = false;
			segment->outcome = SEGMENT_NOT_RUN;
			segment->done(segment);
		}
}

static void fake_stop(struct executor *base)
{
	lose_all(fake_of(base));
}

static void fake_free(struct executor *base)
{
	free(fake_of(base));
}

static const char *fake_trouble(struct executor *base)
{
	return fake_of(base)->up ? NULL : "cut by the test";
}

static const struct executor_ops fake_ops = {
	.start = fake_start,
	.conn_count = fake_conn_count,
	.conn_ready = fake_conn_ready,
	.run = fake_run,
	.stop = fake_stop,
	.free = fake_free,
	.trouble = fake_trouble,
};

struct executor *fake_executor_new(struct memory_database *database)
{
	struct fake_executor *fake = mem_zalloc(sizeof(*fake));

	fake->base.ops = &fake_ops;
	fake->db = database;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++)
		for (uint32_t i = 0; i < CONNS_MAX; i++)
			fake->conns[class][i] = (struct fake_conn){.fake = fake,
								   .task = {.run = conn_answer}};
	return &fake->base;
}

void fake_script(struct executor *base, struct fake_step step)
{
	struct fake_executor *fake = fake_of(base);

	assert(fake->step_count < STEPS_MAX);
	fake->steps[fake->step_count++] = step;
}

const struct fake_entry *fake_log(struct executor *base, uint32_t *count)
{
	*count = fake_of(base)->log_count;
	return fake_of(base)->log;
}

uint32_t fake_count(struct executor *base, enum conn_class class, enum statement_id first)
{
	struct fake_executor *fake = fake_of(base);
	uint32_t count = 0;

	for (uint32_t i = 0; i < fake->log_count; i++)
		count += fake->log[i].class == class && fake->log[i].first == first;
	return count;
}

static void release_on_loop(void *arg)
{
	struct fake_executor *fake = arg;

	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class ++)
		for (uint32_t i = 0; i < CONNS_MAX; i++)
			if (fake->conns[class][i].held) {
				fake->conns[class][i].held = false;
				loop_post(fake->loop, &fake->conns[class][i].task);
			}
}

void fake_release(struct executor *base)
{
	loop_call(fake_of(base)->loop, release_on_loop, fake_of(base));
}

static void cut_on_loop(void *arg)
{
	struct fake_executor *fake = arg;

	lose_all(fake);
	fake->base.on_down(fake->base.user);
}

void fake_cut(struct executor *base)
{
	loop_call(fake_of(base)->loop, cut_on_loop, fake_of(base));
}

static void restore_on_loop(void *arg)
{
	struct fake_executor *fake = arg;

	fake->up = true;
	notify(fake);
}

void fake_restore(struct executor *base)
{
	loop_call(fake_of(base)->loop, restore_on_loop, fake_of(base));
}
