/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage outbox: the owner of every row that this replica has claimed, from before the commit (or from a scan) to the deletion
 * of the confirmed row. One loop; the files are publish.c, confirm.c, backoff.c, scan.c and pool.c, in the order of a row's life.
 *
 * What must hold (G6): a row is sent only after its commit, in commit order within its group (instance, channel), always under
 * the same key, and removed only after the broker confirmed it.
 *
 * Order is kept twice. In the database a row can be claimed only if no earlier unpoisoned row of its group exists, or all
 * of them are ours. In memory a group is a queue and only its head is ever sent: pipelining within a group would break the order
 * on the first failure. A failing head stays ours, with its later rows behind it, and is tried again from memory; the
 * database learns of each attempt.
 *
 * The two agree because a row stands in its group before its commit is sent. The answers of two steps of one instance may
 * come in any order (they may have run on two executors, and the first may be in doubt), but the second was not begun before
 * the first had committed, so the first was announced before. Tasks of a loop run in the order in which they were posted.
 *
 * Rows past the window are given back. A step that read the group before that may still commit a later row as claimed by us; it
 * has been announced by the time the release is done, and is given back too.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "outbox/internal.h"

struct outbox_parcel *outbox_parcel_new(void)
{
	struct outbox_parcel *parcel = mem_zalloc(sizeof(*parcel));

	arena_init(&parcel->arena);
	parcel->refs = 1;
	return parcel;
}

static void outbox_parcel_unref(struct outbox_parcel *parcel)
{
	if (--parcel->refs)
		return;
	arena_done(&parcel->arena);
	free(parcel);
}

/* --- groups and entries --- */

static struct outbox_group *outbox_group_get(struct outbox *outbox, const struct outbox_row *row)
{
	struct buf key = BUF_INIT;
	struct outbox_group *group;

	buf_add(&key, row->instance.bytes, sizeof(row->instance.bytes));
	buf_add_str(&key, row->channel);
	group = map_get(&outbox->groups, buf_str(&key));
	if (!group) {
		group = mem_zalloc(sizeof(*group));
		list_init(&group->entries);
		group->key.ptr = buf_take(&key, &group->key.len);
		map_put(&outbox->groups, group->key, group);
	}
	buf_done(&key);
	return group;
}

static void outbox_group_free(struct outbox *outbox, struct outbox_group *group)
{
	map_remove(&outbox->groups, group->key);
	free((char *)group->key.ptr);
	free(group);
}

void outbox_group_drop_if_empty(struct outbox *outbox, struct outbox_group *group)
{
	if (list_is_empty(&group->entries) && !group->giving_back)
		outbox_group_free(outbox, group);
}

/* Nearly always at the end. A scanned row may come before steps' rows that are still committing, never before one that is sent. */
static void outbox_group_insert(struct outbox_group *group, struct outbox_entry *entry)
{
	struct list *at = &group->entries;

	while (at->prev != &group->entries) {
		const struct outbox_entry *before = list_entry(at->prev, struct outbox_entry, group_link);

		if (before->state == ENTRY_SENT || before->row.version < entry->row.version ||
		    (before->row.version == entry->row.version && before->row.ordinal < entry->row.ordinal))
			break;
		at = at->prev;
	}
	list_insert_before(at, &entry->group_link);
}

static void outbox_retry_over(struct loop_timer *timer)
{
	struct outbox_entry *entry = container_of(timer, struct outbox_entry, retry);

	entry->state = ENTRY_QUEUED;
	outbox_group_next(entry->group, entry->outbox);
}

/* Joins an entry whose row, parcel and owner are set. */
static void outbox_entry_join(struct outbox *outbox, struct outbox_entry *entry)
{
	entry->outbox = outbox;
	entry->parcel->refs++;
	loop_timer_init(&entry->retry, outbox->loop, outbox_retry_over);
	entry->group = outbox_group_get(outbox, &entry->row);
	outbox_group_insert(entry->group, entry);
	list_push(&outbox->entries, &entry->all_link);
	map_put(&outbox->by_id, id_str(&entry->row.id), entry);
	outbox->entry_count++;
	stat_set(outbox->stats.rows_in_memory, outbox->entry_count);
	__atomic_store_n(&outbox->idle, false, __ATOMIC_RELEASE);
}

void outbox_entry_free(struct outbox_entry *entry)
{
	struct outbox *outbox = entry->outbox;
	struct outbox_group *group = entry->group;

	loop_timer_stop(&entry->retry);
	list_remove(&entry->batch_link);
	list_remove(&entry->all_link);
	list_remove(&entry->group_link);
	if (map_get(&outbox->by_id, id_str(&entry->row.id)) == entry)
		map_remove(&outbox->by_id, id_str(&entry->row.id));
	outbox->entry_count--;
	stat_set(outbox->stats.rows_in_memory, outbox->entry_count);
	if (entry->give_back)
		group->giving_back--;
	outbox_parcel_unref(entry->parcel); /* the entry is in its arena */
	if (group)
		outbox_group_next(group, outbox);
	outbox_check_idle(outbox);
}

bool outbox_stamp_is_good(const struct outbox_entry *entry)
{
	const struct outbox *outbox = entry->outbox;

	return loop_now_us(outbox->loop) < entry->stamped_us + outbox->settings.claim_timeout_ms * US_PER_MS / 2;
}

/* --- giving back --- */

static void outbox_entry_mark_give_back(struct outbox_entry *entry)
{
	if (entry->give_back)
		return;
	entry->give_back = true;
	entry->group->giving_back++;
}

void outbox_entry_give_back(struct outbox_entry *entry)
{
	assert(entry->state == ENTRY_QUEUED || entry->state == ENTRY_BACKOFF);
	outbox_entry_mark_give_back(entry);
	loop_timer_stop(&entry->retry);
	list_remove(&entry->group_link);
	list_remove(&entry->batch_link);
	entry->state = ENTRY_GIVING_BACK;
	list_push(&entry->outbox->giving_back, &entry->batch_link);
	outbox_release_more(entry->outbox);
}

void outbox_group_give_back(struct outbox *outbox UNUSED, struct outbox_group *group)
{
	list_for_each(&group->entries, pos, tmp) {
		struct outbox_entry *entry = list_entry(pos, struct outbox_entry, group_link);

		if (entry->state == ENTRY_COMMITTING)
			outbox_entry_mark_give_back(entry);
		else if (entry->state != ENTRY_SENT)
			outbox_entry_give_back(entry);
	}
}

/* --- rows of a step --- */

static void outbox_announced(struct task *post)
{
	struct outbox_parcel *parcel = container_of(post, struct outbox_parcel, announce);
	struct outbox *outbox = parcel->outbox;

	for (uint32_t i = 0; i < parcel->count; i++) {
		struct outbox_entry *entry = &parcel->entries[i];
		bool full = outbox->entry_count >= outbox->settings.window_max_rows;

		outbox_entry_join(outbox, entry);
		if (full || outbox->stopping || entry->group->giving_back)
			outbox_entry_mark_give_back(entry);
	}
}

void outbox_announce(struct outbox *outbox, struct outbox_parcel *parcel)
{
	parcel->entries = arena_zalloc(&parcel->arena, (parcel->count + 1) * sizeof(*parcel->entries));
	for (uint32_t i = 0; i < parcel->count; i++) {
		struct outbox_entry *entry = &parcel->entries[i];

		entry->state = ENTRY_COMMITTING;
		entry->row = parcel->rows[i];
		entry->parcel = parcel;
		entry->owner = outbox->settings.owner;
		entry->stamped_us = parcel->stamped_us;
	}
	parcel->outbox = outbox;
	parcel->announce.run = outbox_announced;
	loop_post(outbox->loop, &parcel->announce);
}

static void outbox_entry_committed(struct outbox_entry *entry)
{
	struct outbox *outbox = entry->outbox;

	stat_add(outbox->stats.submitted, 1);
	entry->state = ENTRY_QUEUED;
	if (entry->withdrawn)
		outbox_entry_free(entry);
	else if (entry->give_back)
		outbox_entry_give_back(entry);
	else
		outbox_group_next(entry->group, outbox);
}

static void outbox_submitted(struct task *post)
{
	struct outbox_parcel *parcel = container_of(post, struct outbox_parcel, post);
	struct outbox *outbox = parcel->outbox;

	for (uint32_t i = 0; i < parcel->count; i++) {
		struct outbox_entry *entry = &parcel->entries[i];
		/* The commit may have been in doubt for so long that a scan of ours has claimed the row meanwhile. */
		bool ours = parcel->rows[i].claimed || entry->owner == outbox->scan_owner;

		if (parcel->committed && ours)
			outbox_entry_committed(entry);
		else
			outbox_entry_free(entry);
		if (parcel->committed && !ours)
			outbox_pool_committed(outbox, &parcel->rows[i]);
	}
	outbox_parcel_unref(parcel);
}

static void outbox_parcel_end(struct outbox_parcel *parcel, bool committed)
{
	parcel->committed = committed;
	parcel->post.run = outbox_submitted;
	loop_post(parcel->outbox->loop, &parcel->post);
}

void outbox_submit(struct outbox *outbox UNUSED, struct outbox_parcel *parcel)
{
	assert(parcel->outbox == outbox);
	outbox_parcel_end(parcel, true);
}

void outbox_parcel_free(struct outbox_parcel **parcel)
{
	if (!*parcel)
		return;
	if ((*parcel)->outbox)
		outbox_parcel_end(*parcel, false);
	else
		outbox_parcel_unref(*parcel);
	*parcel = NULL;
}

/* --- withdrawn rows --- */

struct outbox_withdrawal {
	struct task task;
	struct outbox *outbox;
	struct id row;
};

static void outbox_withdrawn(struct task *task)
{
	struct outbox_withdrawal *withdrawal = container_of(task, struct outbox_withdrawal, task);
	struct outbox_entry *entry = map_get(&withdrawal->outbox->by_id, id_str(&withdrawal->row));

	free(withdrawal);
	if (!entry)
		return;
	if (entry->state == ENTRY_QUEUED || entry->state == ENTRY_BACKOFF)
		outbox_entry_free(entry);
	else
		entry->withdrawn = true;
}

void outbox_withdraw(struct outbox *outbox, struct id row)
{
	struct outbox_withdrawal *withdrawal = mem_alloc(sizeof(*withdrawal));

	*withdrawal = (struct outbox_withdrawal){{NULL, outbox_withdrawn}, outbox, row};
	loop_post(outbox->loop, &withdrawal->task);
}

/* --- rows of a scan --- */

/* A row of ours that lost its stamp and was claimed anew by our own scan. */
static bool outbox_row_adopt(struct outbox *outbox, const struct outbox_row *row, int64_t stamped_us)
{
	struct outbox_entry *entry = map_get(&outbox->by_id, id_str(&row->id));

	if (!entry || entry->state == ENTRY_GIVING_BACK)
		return false;
	entry->owner = outbox->scan_owner;
	entry->stamped_us = stamped_us;
	entry->lost = false;
	return true;
}

void outbox_row_take(struct outbox *outbox, struct outbox_parcel *parcel, const struct outbox_row *row,
		     int64_t stamped_us)
{
	if (!outbox_row_adopt(outbox, row, stamped_us)) {
		struct outbox_entry *entry = arena_zalloc(&parcel->arena, sizeof(*entry));

		entry->state = ENTRY_QUEUED;
		entry->row = *row;
		entry->parcel = parcel;
		entry->owner = outbox->scan_owner;
		entry->stamped_us = stamped_us;
		outbox_entry_join(outbox, entry);
		if (outbox->stopping)
			outbox_entry_give_back(entry);
		else
			outbox_group_next(entry->group, outbox);
	}
	outbox_parcel_unref(parcel);
}

/* --- views --- */

struct outbox_view_post {
	struct task task;
	struct outbox *outbox;
	struct view *view;
};

static void outbox_viewed(struct task *task)
{
	struct outbox_view_post *post = container_of(task, struct outbox_view_post, task);

	view_unref(&post->outbox->view);
	post->outbox->view = post->view;
	free(post);
}

void outbox_view(struct outbox *outbox, struct view *view)
{
	struct outbox_view_post *post = mem_alloc(sizeof(*post));

	*post = (struct outbox_view_post){{NULL, outbox_viewed}, outbox, view_ref(view)};
	loop_post(outbox->loop, &post->task);
}

/* --- queries --- */

void outbox_query_begin(struct outbox_query *query)
{
	assert(!query->busy);
	query->busy = true;
	__atomic_store_n(&query->outbox->idle, false, __ATOMIC_RELEASE);
	query->query = (struct store_query){0};
	query->asked_us = loop_now_us(query->outbox->loop);
	list_init(&query->entries);
}

void outbox_query_call(struct outbox_query *query, uint32_t index, enum statement_id statement,
		       const struct column *params)
{
	query->calls[index] = (struct segment_call){.statement = statement, .params = params};
}

void outbox_query_send(struct outbox_query *query, uint32_t call_count, bool durable, bool writes, bool scan,
		       void (*done)(struct task *task))
{
	query->query.base = (struct store_request){
		.reply_to = query->outbox->loop, .done.run = done, .arena = &query->arena};
	query->query.segment.calls = query->calls;
	query->query.segment.call_count = call_count;
	query->query.segment.durable = durable;
	query->query.segment.writes = writes;
	query->query.segment.scan = scan;
	store_query(query->outbox->store, &query->query);
}

void outbox_query_end(struct outbox_query *query)
{
	arena_reset(&query->arena);
	query->busy = false;
	outbox_check_idle(query->outbox);
}

int outbox_key_compare(const void *left, const void *right)
{
	const struct outbox_row *a = &(*(struct outbox_entry *const *)left)->row;
	const struct outbox_row *b = &(*(struct outbox_entry *const *)right)->row;
	int order = id_compare(a->instance, b->instance);

	if (!order)
		order = str_compare(a->channel, b->channel);
	if (!order)
		order = a->version < b->version ? -1 : a->version > b->version;
	if (!order)
		order = a->ordinal < b->ordinal ? -1 : a->ordinal > b->ordinal;
	return order;
}

struct outbox_entry **outbox_sorted(struct outbox_query *query, struct list *batch, uint32_t most, uint32_t *count)
{
	struct outbox_entry **entries = arena_alloc(&query->arena, most * sizeof(*entries));

	*count = 0;
	list_for_each(batch, pos, tmp) {
		struct outbox_entry *entry = list_entry(pos, struct outbox_entry, batch_link);

		if (*count == most)
			break;
		if (*count && entry->owner != entries[0]->owner)
			continue;
		entries[*count] = entry;
		list_remove(pos);
		list_push(&query->entries, pos);
		(*count)++;
	}
	qsort(entries, *count, sizeof(struct outbox_entry *), outbox_key_compare);
	return entries;
}

struct column *outbox_key_columns(struct outbox_query *query, struct outbox_entry *const *entries, uint32_t count,
				  uint32_t extra)
{
	struct arena *arena = &query->arena;
	struct column *columns = arena_zalloc(arena, (6 + extra) * sizeof(*columns));
	struct str *tenants = arena_alloc(arena, count * sizeof(*tenants));
	struct id *instances = arena_alloc(arena, count * sizeof(*instances));
	struct str *channels = arena_alloc(arena, count * sizeof(*channels));
	int64_t *versions = arena_alloc(arena, count * sizeof(*versions));
	int64_t *ordinals = arena_alloc(arena, count * sizeof(*ordinals));
	struct str *owner = arena_alloc(arena, sizeof(*owner));

	for (uint32_t i = 0; i < count; i++) {
		const struct outbox_row *row = &entries[i]->row;

		tenants[i] = arena_str(arena, row->tenant);
		instances[i] = row->instance;
		channels[i] = arena_str(arena, row->channel);
		versions[i] = row->version;
		ordinals[i] = row->ordinal;
	}
	*owner = str_of(entries[0]->owner);
	columns[0] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = tenants};
	columns[1] = (struct column){.type = COLUMN_ID, .count = count, .ids = instances};
	columns[2] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = channels};
	columns[3] = (struct column){.type = COLUMN_INT, .count = count, .ints = versions};
	columns[4] = (struct column){.type = COLUMN_INT, .count = count, .ints = ordinals};
	columns[5 + extra] = (struct column){.type = COLUMN_TEXT, .scalar = true, .count = 1, .strs = owner};
	query->query.segment.tenants = store_tenants(arena, tenants, count);
	return columns;
}

/* --- life --- */

static void outbox_query_init(struct outbox_query *query, struct outbox *outbox)
{
	query->outbox = outbox;
	arena_init(&query->arena);
	list_init(&query->entries);
}

static struct outbox_query *outbox_query_at(struct outbox *outbox, unsigned index)
{
	struct outbox_query *const queries[] = {
		&outbox->delete_query, &outbox->fail_query,    &outbox->scan_query,  &outbox->load_query,
		&outbox->renew_query,  &outbox->release_query, &outbox->sweep_query, &outbox->pool_query,
		&outbox->pool_load_query, &outbox->pool_wait_query,
	};

	return index < ARRAY_LEN(queries) ? queries[index] : NULL;
}

struct outbox *outbox_new(struct runtime *runtime, struct store *store, const struct outbox_settings *settings,
			  outbox_route_fn *route, void *user)
{
	struct outbox *outbox = mem_zalloc(sizeof(*outbox));

	outbox->loop = loop_start(runtime, "outbox");
	outbox->store = store;
	outbox->settings = *settings;
	snprintf(outbox->scan_owner, sizeof(outbox->scan_owner), "%.100s/scan", settings->owner);
	outbox->route = route;
	outbox->user = user;
	outbox->idle = true;
	outbox->pool_count = settings->pool_count;
	outbox->pools = mem_zalloc((settings->pool_count + 1) * sizeof(*outbox->pools));
	for (uint32_t i = 0; i < settings->pool_count; i++)
		outbox->pools[i].name = settings->pools[i];
	map_init(&outbox->groups);
	map_init(&outbox->by_id);
	list_init(&outbox->entries);
	list_init(&outbox->deleting);
	list_init(&outbox->failing);
	list_init(&outbox->giving_back);
	for (unsigned i = 0; outbox_query_at(outbox, i); i++)
		outbox_query_init(outbox_query_at(outbox, i), outbox);
	return outbox;
}

static void outbox_start_call(void *arg)
{
	struct outbox *outbox = arg;

	loop_timer_init(&outbox->tick, outbox->loop, outbox_tick);
	loop_timer_init(&outbox->renew, outbox->loop, outbox_renew);
	loop_timer_init(&outbox->sweep, outbox->loop, outbox_sweep);
	loop_timer_start(&outbox->tick, 0);
	loop_timer_start(&outbox->renew, outbox->settings.claim_timeout_ms * US_PER_MS / 4);
}

void outbox_start(struct outbox *outbox)
{
	loop_call(outbox->loop, outbox_start_call, outbox);
}

void outbox_check_idle(struct outbox *outbox)
{
	if (outbox->entry_count)
		return;
	for (unsigned i = 0; outbox_query_at(outbox, i); i++)
		if (outbox_query_at(outbox, i)->busy)
			return;
	__atomic_store_n(&outbox->idle, true, __ATOMIC_RELEASE);
}

/* Nothing new is published; what is on its way may still be confirmed. Everything else is given back. */
static void outbox_stop_call(void *arg)
{
	struct outbox *outbox = arg;
	struct map_entry *next;

	outbox->stopping = true;
	for (struct map_entry *e = map_first(&outbox->groups); e; e = next) {
		next = map_next(&outbox->groups, e);
		outbox_group_give_back(outbox, e->value);
	}
	outbox_check_idle(outbox);
}

/*
 * Time is up: what can be taken back from the publishers is, and its stamps are given back as their answers come. A row whose
 * answer does not come keeps its stamp, since it may yet be sent; a scan takes it when the stamp is stale.
 */
static void outbox_abandon_call(void *arg)
{
	outbox_purge(arg, false);
}

static bool outbox_is_idle(void *arg)
{
	struct outbox *outbox = arg;

	return __atomic_load_n(&outbox->idle, __ATOMIC_ACQUIRE);
}

#define GIVE_BACK_MS 2000

void outbox_stop(struct outbox *outbox, int64_t timeout_ms)
{
	struct runtime *runtime = outbox->loop->runtime;

	loop_call(outbox->loop, outbox_stop_call, outbox);
	if (loop_wait(runtime, outbox_is_idle, outbox, timeout_ms))
		return;
	loop_call(outbox->loop, outbox_abandon_call, outbox);
	(void)loop_wait(runtime, outbox_is_idle, outbox, GIVE_BACK_MS);
}

void outbox_free(struct outbox **outbox)
{
	struct outbox *o = *outbox;
	struct map_entry *next;

	if (!o)
		return;
	loop_stop(&o->loop);
	list_for_each(&o->entries, pos, tmp) {
		struct outbox_entry *entry = list_entry(pos, struct outbox_entry, all_link);

		list_remove(&entry->all_link);
		outbox_parcel_unref(entry->parcel);
	}
	for (struct map_entry *e = map_first(&o->groups); e; e = next) {
		struct outbox_group *group = e->value;

		next = map_next(&o->groups, e);
		outbox_group_free(o, group);
	}
	map_done(&o->groups);
	map_done(&o->by_id);
	for (unsigned i = 0; outbox_query_at(o, i); i++)
		arena_done(&outbox_query_at(o, i)->arena);
	view_unref(&o->view);
	free(o->pools);
	free(o);
	*outbox = NULL;
}

void outbox_stats_read(struct outbox *outbox, struct outbox_stats *out)
{
	const uint64_t *from = (const uint64_t *)&outbox->stats;
	uint64_t *to = (uint64_t *)out;

	_Static_assert(sizeof(*out) % sizeof(uint64_t) == 0, "all fields are 64-bit");
	for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
