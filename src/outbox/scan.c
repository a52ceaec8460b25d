/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage outbox, the tick: rows that nobody is sending. A scan claims the due heads of all tenants (keys only, as the role that
 * may see across tenants), a load then reads those rows as their own tenants. Rows whose owner died keep its stamp until
 * the sweep finds it older than outbox.claim-timeout and clears it; the next scan takes them.
 *
 * The stamps of everything in memory are renewed together, before a quarter of the timeout is over. A row whose stamp was not
 * renewed was cleared by somebody: its group is given up here, and what of it is on its way to the broker may be sent once more
 * under the same key (G6). When no renewal succeeds for half of the timeout, everything unconfirmed is purged.
 *
 * With nothing to do a tick costs one index probe on an empty partial index.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "outbox/internal.h"

#define SCAN_MOST 256
#define SWEEP_MOST 1000
#define RENEW_MOST 2048
#define RELEASE_MOST 512
/* A tenth of the time at most goes into reading a page. */
#define SWEEP_PAUSE_US (50 * US_PER_MS)
#define COUNT_INTERVAL_US (5 * US_PER_S)

static const struct log_about about_outbox = {.stage = "outbox"};

/* --- rows found --- */

static struct str field_copy(struct arena *arena, const struct field *field)
{
	return field->is_null ? STR_NONE : arena_str(arena, field->str);
}

static struct outbox_row row_read(struct arena *arena, const struct rows *rows, uint32_t index)
{
	const struct field *f = rows_at(rows, index, 0);

	return (struct outbox_row){
		.tenant = field_copy(arena, &f[0]),
		.instance = f[1].id,
		.channel = field_copy(arena, &f[2]),
		.version = f[3].i,
		.ordinal = f[4].i,
		.id = f[5].id,
		.deployment = field_copy(arena, &f[6]),
		.connection = field_copy(arena, &f[7]),
		.destination = field_copy(arena, &f[8]),
		.correlation = field_copy(arena, &f[9]),
		.record_key = field_copy(arena, &f[10]),
		.headers = field_copy(arena, &f[11]),
		.content_type = field_copy(arena, &f[12]),
		.body = field_copy(arena, &f[13]),
		.required = f[14].b,
		.attempt_count = f[15].i,
		.created_us = f[16].i,
		.claimed = true,
	};
}

void outbox_rows_take(struct outbox *outbox, const struct rows *rows, int64_t stamped_us)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		struct outbox_parcel *parcel = outbox_parcel_new();
		struct outbox_row row = row_read(&parcel->arena, rows, i);

		stat_add(outbox->stats.scanned, 1);
		outbox_row_take(outbox, parcel, &row, stamped_us);
	}
}

static void scan_loaded(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;

	/* Stamped but not read: the stamp ages, and a later scan takes the rows. */
	if (query->query.base.outcome == STORE_OK)
		outbox_rows_take(outbox, &query->calls[0].rows, query->asked_us);
	outbox_query_end(query);
	if (outbox->scan_again && !outbox->stopping) {
		outbox->scan_again = false;
		loop_timer_start(&outbox->tick, 0);
	}
}

void outbox_load(struct outbox_query *query, const struct rows *keys, int64_t stamped_us, void (*done)(struct task *task))
{
	uint32_t count = keys->row_count;
	struct arena *arena = &query->arena;
	struct column *columns;
	struct str *tenants, *channels;
	struct id *instances;
	int64_t *versions, *ordinals;

	outbox_query_begin(query);
	query->asked_us = stamped_us;
	columns = arena_zalloc(arena, 6 * sizeof(*columns));
	tenants = arena_alloc(arena, count * sizeof(*tenants));
	channels = arena_alloc(arena, count * sizeof(*channels));
	instances = arena_alloc(arena, count * sizeof(*instances));
	versions = arena_alloc(arena, count * sizeof(*versions));
	ordinals = arena_alloc(arena, count * sizeof(*ordinals));
	for (uint32_t i = 0; i < count; i++) {
		const struct field *f = rows_at(keys, i, 0);

		tenants[i] = field_copy(arena, &f[0]);
		instances[i] = f[1].id;
		channels[i] = field_copy(arena, &f[2]);
		versions[i] = f[3].i;
		ordinals[i] = f[4].i;
	}
	columns[0] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = tenants};
	columns[1] = (struct column){.type = COLUMN_ID, .count = count, .ids = instances};
	columns[2] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = channels};
	columns[3] = (struct column){.type = COLUMN_INT, .count = count, .ints = versions};
	columns[4] = (struct column){.type = COLUMN_INT, .count = count, .ints = ordinals};
	columns[5] = column_scalar_text(arena, str_of(query->outbox->scan_owner));
	query->query.segment.tenants = store_tenants(arena, tenants, count);
	outbox_query_call(query, 0, STATEMENT_OUTBOX_LOAD, columns);
	outbox_query_send(query, 1, false, false, false, done);
}

static void scan_done(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	const struct rows *keys = &query->calls[0].rows;

	if (query->query.base.outcome == STORE_OK && keys->row_count) {
		outbox->scan_again = keys->row_count >= SCAN_MOST;
		outbox_load(&outbox->load_query, keys, query->asked_us, scan_loaded);
	}
	outbox_query_end(query);
}

static void outbox_scan(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->scan_query;
	int64_t room = (int64_t)outbox->settings.window_max_rows - (int64_t)outbox->entry_count;
	struct column *columns;

	if (query->busy || outbox->load_query.busy || room <= 0)
		return;
	outbox_query_begin(query);
	columns = arena_alloc(&query->arena, 2 * sizeof(*columns));
	columns[0] = column_scalar_text(&query->arena, str_of(outbox->scan_owner));
	columns[1] = column_scalar_int(&query->arena, room < SCAN_MOST ? room : SCAN_MOST);
	outbox_query_call(query, 0, STATEMENT_OUTBOX_SCAN, columns);
	outbox_query_send(query, 1, true, true, true, scan_done);
}

/* --- stamps of the dead, and figures --- */

/*
 * A round goes through the primary key a page at a time, resting between two, so that a large outbox never keeps the database busy
 * with being looked at. What it reads it counts: the figures are those of the last whole round.
 */
static void sweep_end(struct outbox *outbox)
{
	outbox->sweeping = false;
	outbox->swept_us = loop_now_us(outbox->loop);
}

static void sweep_publish(struct outbox *outbox)
{
	const struct outbox_counts *counts = &outbox->sweep_counts;
	struct outbox_stats *stats = &outbox->stats;

	stat_set(stats->waiting, counts->waiting);
	stat_set(stats->claimed, counts->claimed);
	stat_set(stats->poisoned_rows, counts->poisoned);
	stat_set(stats->oldest_us, counts->oldest_us);
}

static void sweep_count(struct outbox_counts *counts, const struct field *f)
{
	counts->waiting += f[2].i;
	counts->claimed += f[3].i;
	counts->poisoned += f[4].i;
	if (!f[5].is_null && (!counts->oldest_us || f[5].i < counts->oldest_us))
		counts->oldest_us = f[5].i;
}

static void sweep_done(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	const struct rows *rows = &query->calls[0].rows;
	bool ok = query->query.base.outcome == STORE_OK && rows->row_count, more = false;

	if (ok) {
		const struct field *f = rows_at(rows, 0, 0);

		if (f[1].i > 0)
			log_warning(&about_outbox, "cleared %lld stale claims of outbox rows", (long long)f[1].i);
		sweep_count(&outbox->sweep_counts, f);
		more = f[0].i >= SWEEP_MOST && !f[6].is_null;
		if (more) {
			snprintf(outbox->sweep_channel, sizeof(outbox->sweep_channel), "%.*s", STR_ARG(f[7].str));
			outbox->sweep_at = (struct outbox_row){.instance = f[6].id,
							       .channel = str_of(outbox->sweep_channel),
							       .version = f[8].i,
							       .ordinal = f[9].i};
		}
	}
	if (ok && !more)
		sweep_publish(outbox);
	outbox_query_end(query);
	if (more && !outbox->stopping)
		loop_timer_start(&outbox->sweep, SWEEP_PAUSE_US);
	else
		sweep_end(outbox);
}

static void sweep_page(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->sweep_query;
	const struct outbox_row *at = &outbox->sweep_at;
	struct column *columns;

	outbox_query_begin(query);
	columns = arena_alloc(&query->arena, 6 * sizeof(*columns));
	columns[0] = column_scalar_id(&query->arena, at->instance);
	columns[1] = column_scalar_text(&query->arena, at->channel);
	columns[2] = column_scalar_int(&query->arena, at->version);
	columns[3] = column_scalar_int(&query->arena, at->ordinal);
	columns[4] = column_scalar_int(&query->arena, SWEEP_MOST);
	columns[5] = column_scalar_int(&query->arena, outbox->settings.claim_timeout_ms);
	outbox_query_call(query, 0, STATEMENT_OUTBOX_SWEEP, columns);
	outbox_query_send(query, 1, true, true, true, sweep_done);
}

void outbox_sweep(struct loop_timer *timer)
{
	struct outbox *outbox = container_of(timer, struct outbox, sweep);

	if (outbox->stopping)
		sweep_end(outbox);
	else
		sweep_page(outbox);
}

static bool sweep_is_due(const struct outbox *outbox, int64_t now_us)
{
	int64_t interval_us = outbox->settings.claim_timeout_ms * US_PER_MS / 4;

	if (interval_us > COUNT_INTERVAL_US)
		interval_us = COUNT_INTERVAL_US;
	return !outbox->sweeping && (!outbox->swept_us || now_us - outbox->swept_us > interval_us);
}

static void sweep_begin(struct outbox *outbox)
{
	outbox->sweeping = true;
	outbox->sweep_at = (struct outbox_row){.channel = STR("")};
	outbox->sweep_counts = (struct outbox_counts){0};
	sweep_page(outbox);
}

/* --- the tick --- */

void outbox_tick(struct loop_timer *timer)
{
	struct outbox *outbox = container_of(timer, struct outbox, tick);
	int64_t now_us = loop_now_us(outbox->loop);

	loop_timer_start(&outbox->tick, outbox->settings.tick_ms * US_PER_MS);
	outbox_purge(outbox, true);
	outbox_delete_more(outbox);
	outbox_fail_more(outbox);
	outbox_release_more(outbox);
	if (outbox->stopping)
		return;
	outbox_scan(outbox);
	outbox_pools_look(outbox);
	if (sweep_is_due(outbox, now_us))
		sweep_begin(outbox);
}

/* --- renewal --- */

static void renew_apply(struct outbox_query *query, const struct rows *rows)
{
	struct map renewed;

	map_init(&renewed);
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct id id = outbox_row_id(f[0].id, f[2].i, f[3].i);

		map_put(&renewed, id_str(&id), query);
	}
	for (uint32_t i = 0; i < query->renew_count; i++) {
		struct id id = query->renew_ids[i];
		struct outbox_entry *entry = map_get(&query->outbox->by_id, id_str(&id));

		/* One that was claimed anew meanwhile has a better stamp than the one asked about. */
		if (!entry || entry->stamped_us > query->asked_us)
			continue;
		entry->lost = !map_get(&renewed, id_str(&id));
		if (!entry->lost)
			entry->stamped_us = query->asked_us;
	}
	map_done(&renewed);
}

static struct outbox_entry *renew_find_lost(struct outbox *outbox)
{
	list_for_each(&outbox->entries, pos, tmp) {
		struct outbox_entry *entry = list_entry(pos, struct outbox_entry, all_link);

		if (entry->lost && (entry->state == ENTRY_QUEUED || entry->state == ENTRY_BACKOFF) && entry->group)
			return entry;
	}
	return NULL;
}

/* Giving up one gives up all of its group, so each is looked for anew. */
static void renew_forget_lost(struct outbox *outbox)
{
	struct outbox_entry *entry;

	while ((entry = renew_find_lost(outbox))) {
		log_warning(&about_outbox, "the claim of an outbox row was cleared by another replica");
		outbox_group_give_back(outbox, entry->group);
	}
}

static void renew_more(struct outbox *outbox);

static void renew_done(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	bool ok = query->query.base.outcome == STORE_OK;

	if (ok) {
		renew_apply(query, &query->calls[0].rows);
		renew_forget_lost(outbox);
	}
	outbox_query_end(query);
	if (ok)
		renew_more(outbox);
}

/* Whether the entry stands under a stamp that it is time to renew. One that is leaving needs none any more. */
static bool renew_is_due(const struct outbox_entry *entry, int64_t due_us)
{
	return entry->stamped_us <= due_us && !entry->lost && entry->group && !entry->give_back &&
	       entry->state != ENTRY_COMMITTING;
}

static void renew_more(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->renew_query;
	int64_t due_us = loop_now_us(outbox->loop) - outbox->settings.claim_timeout_ms * US_PER_MS / 8;
	struct outbox_entry **entries;
	uint32_t count = 0;

	if (query->busy || !outbox->entry_count)
		return;
	outbox_query_begin(query);
	entries = arena_alloc(&query->arena, RENEW_MOST * sizeof(*entries));
	list_for_each(&outbox->entries, pos, tmp) {
		struct outbox_entry *entry = list_entry(pos, struct outbox_entry, all_link);

		if (count < RENEW_MOST && renew_is_due(entry, due_us) && (!count || entry->owner == entries[0]->owner))
			entries[count++] = entry;
	}
	if (!count) {
		outbox_query_end(query);
		return;
	}
	qsort(entries, count, sizeof(struct outbox_entry *), outbox_key_compare);
	query->renew_ids = arena_alloc(&query->arena, count * sizeof(struct id));
	query->renew_count = count;
	for (uint32_t i = 0; i < count; i++)
		query->renew_ids[i] = entries[i]->row.id;
	outbox_query_call(query, 0, STATEMENT_OUTBOX_RENEW, outbox_key_columns(query, entries, count, 0));
	outbox_query_send(query, 1, true, true, false, renew_done);
}

void outbox_renew(struct loop_timer *timer)
{
	struct outbox *outbox = container_of(timer, struct outbox, renew);

	loop_timer_start(timer, outbox->settings.claim_timeout_ms * US_PER_MS / 8);
	renew_more(outbox);
}

/* --- giving back --- */

static void release_done(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	bool again = query->query.base.outcome == STORE_UNAVAILABLE && !outbox->stopping;

	/*
	 * While a stamp may still stand a step may commit later rows behind it, so the group is not forgotten before the database
	 * has answered. At the end of the replica no more steps come, and at worst the stamps age.
	 */
	if (again) {
		list_splice(&outbox->giving_back, &query->entries);
	} else {
		list_for_each(&query->entries, pos, tmp)
			outbox_entry_free(list_entry(pos, struct outbox_entry, batch_link));
	}
	outbox_query_end(query);
	if (!again)
		outbox_release_more(outbox);
}

void outbox_release_more(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->release_query;
	struct outbox_entry **entries;
	uint32_t count;

	if (query->busy || list_is_empty(&outbox->giving_back))
		return;
	outbox_query_begin(query);
	entries = outbox_sorted(query, &outbox->giving_back, RELEASE_MOST, &count);
	outbox_query_call(query, 0, STATEMENT_OUTBOX_RELEASE, outbox_key_columns(query, entries, count, 0));
	outbox_query_send(query, 1, true, true, false, release_done);
}
