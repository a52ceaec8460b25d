/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage outbox, the pools: rows of a channel with a capacity pool are committed unclaimed, and leave only with a slot of the pool
 * (G10), or without one once their call has ended. One transaction a pool locks its row, looks at the oldest heads that wait, over
 * all tenants, gives the free slots to the first of them, and stamps these; from there on a row is like any that a scan has
 * claimed. What gets no slot stays as it is, with no attempt counted; its diagnostic has said since its commit that it waits.
 *
 * A pool is asked on the tick if something waits for it, and as soon as this replica has committed a row for it or an end of a call
 * that may have freed a slot. No transaction is open while a broker is being talked to: a slot is held from before the message
 * goes out until its call ends, and a row that fails keeps it.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "outbox/internal.h"

#define POOL_MOST 256

static const struct log_about about_pool = {.stage = "outbox"};

static void pool_pump(struct outbox *outbox);

static void pool_loaded(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;

	/* Stamped but not read: the stamp ages, its slot stands, and a later look takes the rows. */
	if (query->query.base.outcome == STORE_OK)
		outbox_rows_take(outbox, &query->calls[0].rows, query->asked_us);
	outbox_query_end(query);
	pool_pump(outbox);
}

static void pool_asked(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	struct outbox_pool *pool = &outbox->pools[outbox->pool_at];
	const struct rows *keys = &query->calls[1].rows, *more = &query->calls[2].rows;
	bool found = query->query.base.outcome == STORE_OK && keys->row_count;

	if (query->query.base.outcome == STORE_OK && more->row_count && rows_at(more, 0, 0)->b)
		pool->due = true;
	if (found) {
		outbox_load(&outbox->pool_load_query, keys, query->asked_us, pool_loaded);
	} else if (query->query.base.outcome == STORE_REJECTED) {
		log_warning(&about_pool, "pool %s could not be asked, its rows wait: %s", pool->name,
			    query->query.base.error.text);
	}
	outbox_query_end(query);
	if (!found)
		pool_pump(outbox);
}

static struct outbox_pool *pool_next_due(struct outbox *outbox)
{
	for (uint32_t i = 1; i <= outbox->pool_count; i++) {
		uint32_t at = (outbox->pool_at + i) % outbox->pool_count;

		if (!outbox->pools[at].due)
			continue;
		outbox->pool_at = at;
		return &outbox->pools[at];
	}
	return NULL;
}

/* Asks the next pool that is due, in turn. */
static void pool_pump(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->pool_query;
	int64_t room = (int64_t)outbox->settings.window_max_rows - (int64_t)outbox->entry_count;
	struct outbox_pool *pool;
	struct column *columns;

	if (query->busy || outbox->pool_load_query.busy || outbox->stopping || room <= 0)
		return;
	pool = pool_next_due(outbox);
	if (!pool)
		return;
	pool->due = false;
	outbox_query_begin(query);
	columns = arena_alloc(&query->arena, 3 * sizeof(*columns));
	columns[0] = column_scalar_text(&query->arena, str_of(pool->name));
	columns[1] = column_scalar_text(&query->arena, str_of(outbox->scan_owner));
	columns[2] = column_scalar_int(&query->arena, room < POOL_MOST ? room : POOL_MOST);
	outbox_query_call(query, 0, STATEMENT_POOL_LOCK_ONE, columns);
	outbox_query_call(query, 1, STATEMENT_POOL_SCAN, columns);
	outbox_query_call(query, 2, STATEMENT_POOL_MORE, columns);
	outbox_query_send(query, 3, true, true, true, pool_asked);
}

/* --- who waits --- */

static struct outbox_pool *pool_find(struct outbox *outbox, struct str name)
{
	for (uint32_t i = 0; i < outbox->pool_count; i++)
		if (str_equal(str_of(outbox->pools[i].name), name))
			return &outbox->pools[i];
	return NULL;
}

static void pool_waits(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	const struct rows *rows = &query->calls[0].rows;

	for (uint32_t i = 0; query->query.base.outcome == STORE_OK && i < rows->row_count; i++) {
		struct outbox_pool *pool = pool_find(outbox, rows_at(rows, i, 0)->str);

		if (pool)
			pool->due = true;
	}
	outbox_query_end(query);
	pool_pump(outbox);
}

void outbox_pools_look(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->pool_wait_query;
	struct column *columns;
	struct str *names;

	if (query->busy || !outbox->pool_count)
		return;
	outbox_query_begin(query);
	columns = arena_alloc(&query->arena, sizeof(*columns));
	names = arena_alloc(&query->arena, outbox->pool_count * sizeof(*names));
	for (uint32_t i = 0; i < outbox->pool_count; i++)
		names[i] = str_of(outbox->pools[i].name);
	columns[0] = (struct column){.type = COLUMN_TEXT, .count = outbox->pool_count, .strs = names};
	outbox_query_call(query, 0, STATEMENT_POOL_WAITING, columns);
	outbox_query_send(query, 1, false, false, true, pool_waits);
}

/* --- freed, or committed for --- */

static void pool_freed(struct task *post)
{
	struct outbox *outbox = container_of(post, struct outbox, pool_post);

	__atomic_store_n(&outbox->pool_posted, false, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < outbox->pool_count; i++)
		if (__atomic_exchange_n(&outbox->pools[i].freed, false, __ATOMIC_SEQ_CST))
			outbox->pools[i].due = true;
	pool_pump(outbox);
}

void outbox_pool_freed(struct outbox *outbox, struct str name)
{
	struct outbox_pool *pool = pool_find(outbox, name);

	if (!pool)
		return;
	__atomic_store_n(&pool->freed, true, __ATOMIC_SEQ_CST);
	if (__atomic_exchange_n(&outbox->pool_posted, true, __ATOMIC_SEQ_CST))
		return;
	outbox->pool_post.run = pool_freed;
	loop_post(outbox->loop, &outbox->pool_post);
}

void outbox_pool_committed(struct outbox *outbox, const struct outbox_row *row)
{
	struct outbox_pool *pool = row->pool.ptr ? pool_find(outbox, row->pool) : NULL;

	if (!pool)
		return;
	pool->due = true;
	pool_pump(outbox);
}
