/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planted bugs: an executor in front of the real one that leaves statements out of segments, or moves them. A statement that is left out
 * is another without effect in its place, so that the rest of the segment stays where it was.
 */
#include "base/alloc.h"
#include "tests/flow/pools_random.h"

struct bug_executor {
	struct executor base;
	struct executor *inner;
	enum pools_bug bug;
};

static struct bug_executor *bug_of(struct executor *executor)
{
	return container_of(executor, struct bug_executor, base);
}

static struct segment_call *call_find(struct segment *segment, enum statement_id statement)
{
	for (uint32_t i = 0; i < segment->call_count; i++)
		if (segment->calls[i].statement == statement)
			return &segment->calls[i];
	return NULL;
}

static void leave_out(struct segment *segment, enum statement_id statement)
{
	struct segment_call *call = call_find(segment, statement);

	if (call)
		*call = (struct segment_call){.statement = STATEMENT_PING};
}

/* Moves a statement before another that precedes it. */
static void move_before(struct segment *segment, enum statement_id statement, enum statement_id before)
{
	struct segment_call *call = call_find(segment, statement), *to = call_find(segment, before), moved;

	if (!call || !to || to > call)
		return;
	moved = *call;
	memmove(to + 1, to, (size_t)(call - to) * sizeof(*to));
	*to = moved;
}

static void plant(struct segment *segment, enum pools_bug bug)
{
	switch (bug) {
	case BUG_NO_POOL_LOCK:
		leave_out(segment, STATEMENT_POOL_LOCK);
		leave_out(segment, STATEMENT_POOL_LOCK_ONE);
		break;
	case BUG_COUNT_BEFORE_LOCK:
		move_before(segment, STATEMENT_SLOT_TAKE, STATEMENT_POOL_LOCK);
		break;
	case BUG_NO_CAP_LOCK:
		leave_out(segment, STATEMENT_CAP_LOCK);
		break;
	case BUG_NO_SESSION_LOCK:
		leave_out(segment, STATEMENT_SESSION_LOCK);
		break;
	case BUG_NO_UNPOOL:
		leave_out(segment, STATEMENT_OUTBOX_UNPOOL);
		break;
	case BUG_SLOTS_BEFORE_END:
		move_before(segment, STATEMENT_SLOT_DELETE, STATEMENT_SESSION_END);
		break;
	case BUG_NONE:
	case BUG_COUNT:
		break;
	}
}

static void bug_start(struct executor *executor, struct loop *loop)
{
	struct bug_executor *bug = bug_of(executor);

	bug->inner->on_ready = executor->on_ready;
	bug->inner->on_down = executor->on_down;
	bug->inner->user = executor->user;
	bug->inner->ops->start(bug->inner, loop);
}

static uint32_t bug_conn_count(struct executor *executor, enum conn_class class)
{
	return bug_of(executor)->inner->ops->conn_count(bug_of(executor)->inner, class);
}

static bool bug_conn_ready(struct executor *executor, enum conn_class class, uint32_t index)
{
	return bug_of(executor)->inner->ops->conn_ready(bug_of(executor)->inner, class, index);
}

static void bug_run(struct executor *executor, enum conn_class class, uint32_t index, struct segment *segment)
{
	struct bug_executor *bug = bug_of(executor);

	plant(segment, bug->bug);
	bug->inner->ops->run(bug->inner, class, index, segment);
}

static void bug_stop(struct executor *executor)
{
	bug_of(executor)->inner->ops->stop(bug_of(executor)->inner);
}

static void bug_free(struct executor *executor)
{
	struct bug_executor *bug = bug_of(executor);

	bug->inner->ops->free(bug->inner);
	free(bug);
}

static const char *bug_trouble(struct executor *executor)
{
	return bug_of(executor)->inner->ops->trouble(bug_of(executor)->inner);
}

static const struct executor_ops bug_ops = {
	.start = bug_start,
	.conn_count = bug_conn_count,
	.conn_ready = bug_conn_ready,
	.run = bug_run,
	.stop = bug_stop,
	.free = bug_free,
	.trouble = bug_trouble,
};

struct executor *pools_bug_new(struct executor *inner, enum pools_bug bug)
{
	struct bug_executor *executor = mem_zalloc(sizeof(*executor));

	*executor = (struct bug_executor){.base.ops = &bug_ops, .inner = inner, .bug = bug};
	return &executor->base;
}
