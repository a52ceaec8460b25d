/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage backoff: what the broker did not take. The row stays ours, the head of its group, and is tried again after
 * min(base · 2ⁿ, max) with full jitter; the database learns of the attempt and its reason. Past outbox.retry.max-attempts the
 * row is poisoned: kept with its last error, never sent again by itself, and no longer in the way of its group. A required one
 * also writes a dead letter.
 */
#include <stdio.h>

#include "base/log.h"
#include "base/time.h"
#include "outbox/internal.h"

#define FAIL_MOST 256

static int64_t backoff_delay_ms(struct outbox *outbox, int64_t attempts)
{
	int64_t delay = outbox->settings.base_delay_ms;

	for (int64_t i = 1; i < attempts && delay < outbox->settings.max_delay_ms; i++)
		delay *= 2;
	if (delay > outbox->settings.max_delay_ms)
		delay = outbox->settings.max_delay_ms;
	return (int64_t)loop_random_below(outbox->loop, (uint64_t)delay) + 1;
}

static void outbox_fail_done(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	bool ok = query->query.base.outcome == STORE_OK;

	list_for_each(&query->entries, pos, tmp) {
		struct outbox_entry *entry = list_entry(pos, struct outbox_entry, batch_link);

		list_remove(pos);
		/* It has failed again meanwhile; or it is poisoned, which must be written, or it would come back. */
		if (entry->unwritten || (!ok && entry->poisoned))
			list_push(&outbox->failing, pos);
		else if (entry->poisoned)
			outbox_entry_free(entry);
	}
	outbox_query_end(query);
	if (ok)
		outbox_fail_more(outbox);
}

static struct str backoff_diagnostic(struct outbox_query *query, const struct outbox_entry *entry)
{
	struct buf json = BUF_INIT;
	struct str text;

	buf_add_text(&json, "{\"code\":");
	buf_add_json(&json, str_of(code_text(entry->failure_code)));
	buf_add_text(&json, ",\"detail\":");
	buf_add_json(&json, str_of(entry->failure_text));
	buf_printf(&json, ",\"attempt\":%lld}", (long long)entry->row.attempt_count);
	text = arena_str(&query->arena, buf_str(&json));
	buf_done(&json);
	return text;
}

static void backoff_fill(struct outbox_query *query, struct outbox_entry *const *entries, uint32_t count,
			 struct column *columns)
{
	struct arena *arena = &query->arena;
	int64_t *attempts = arena_alloc(arena, count * sizeof(*attempts));
	int64_t *delays = arena_alloc(arena, count * sizeof(*delays));
	struct str *diagnostics = arena_alloc(arena, count * sizeof(*diagnostics));
	bool *poisoned = arena_alloc(arena, count * sizeof(*poisoned));
	bool *keep = arena_alloc(arena, count * sizeof(*keep));

	for (uint32_t i = 0; i < count; i++) {
		attempts[i] = entries[i]->row.attempt_count;
		delays[i] = entries[i]->delay_ms;
		diagnostics[i] = backoff_diagnostic(query, entries[i]);
		poisoned[i] = entries[i]->poisoned;
		keep[i] = !entries[i]->poisoned;
	}
	columns[5] = (struct column){.type = COLUMN_INT, .count = count, .ints = attempts};
	columns[6] = (struct column){.type = COLUMN_INT, .count = count, .ints = delays};
	columns[7] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = diagnostics};
	columns[8] = (struct column){.type = COLUMN_BOOL, .count = count, .bools = poisoned};
	columns[9] = (struct column){.type = COLUMN_BOOL, .count = count, .bools = keep};
}

/* The dead letters of required rows that are poisoned in this batch; NULL if there are none. */
static struct column *backoff_dead_letters(struct outbox_query *query, struct outbox_entry *const *entries, uint32_t count)
{
	enum { COLUMNS = 14 };
	static const enum column_type types[COLUMNS] = {
		COLUMN_INT,  COLUMN_TEXT, COLUMN_ID,  COLUMN_TEXT,  COLUMN_TEXT,  COLUMN_TEXT, COLUMN_TEXT,
		COLUMN_TEXT, COLUMN_TEXT, COLUMN_ID, COLUMN_BYTES, COLUMN_BYTES, COLUMN_TEXT, COLUMN_BYTES,
	};
	struct arena *arena = &query->arena;
	struct column *columns = arena_zalloc(arena, COLUMNS * sizeof(*columns));
	struct str *strs[COLUMNS] = {NULL};
	int64_t *ords = arena_zalloc(arena, count * sizeof(*ords));
	struct id *ids = arena_alloc(arena, count * sizeof(*ids));
	struct id *instances = arena_alloc(arena, count * sizeof(*instances));
	uint32_t n = 0;

	for (unsigned c = 0; c < COLUMNS; c++)
		strs[c] = arena_zalloc(arena, count * sizeof(struct str));
	for (uint32_t i = 0; i < count; i++) {
		const struct outbox_row *row = &entries[i]->row;

		if (!entries[i]->poisoned || !row->required)
			continue;
		ords[n] = n;
		ids[n] = row->id;
		instances[n] = row->instance;
		strs[1][n] = row->tenant;
		strs[3][n] = row->channel;
		strs[4][n] = entries[i]->publication.message_id;
		strs[5][n] = STR("outbox");
		strs[7][n] = str_of(code_text(CODE_OUTBOUND_DELIVERY_ATTEMPTS_EXHAUSTED));
		strs[8][n] = arena_str(arena, str_of(entries[i]->failure_text));
		strs[10][n] = row->record_key;
		strs[11][n] = row->headers;
		strs[12][n] = row->content_type;
		strs[13][n] = row->body;
		n++;
	}
	for (unsigned c = 0; c < COLUMNS; c++)
		columns[c] = (struct column){.type = types[c], .count = n, .strs = strs[c]};
	columns[0].ints = ords;
	columns[2].ids = ids;
	columns[9].ids = instances;
	return n ? columns : NULL;
}

void outbox_fail_more(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->fail_query;
	struct outbox_entry **entries;
	struct column *columns, *dead;
	uint32_t count, calls = 1;

	if (query->busy || list_is_empty(&outbox->failing))
		return;
	outbox_query_begin(query);
	entries = outbox_sorted(query, &outbox->failing, FAIL_MOST, &count);
	for (uint32_t i = 0; i < count; i++)
		entries[i]->unwritten = false;
	columns = outbox_key_columns(query, entries, count, 5);
	backoff_fill(query, entries, count, columns);
	outbox_query_call(query, 0, STATEMENT_OUTBOX_FAIL, columns);
	dead = backoff_dead_letters(query, entries, count);
	if (dead)
		outbox_query_call(query, calls++, STATEMENT_DEAD_LETTER_INSERT, dead);
	outbox_query_send(query, calls, true, true, false, outbox_fail_done);
}

static void backoff_poison(struct outbox_entry *entry)
{
	entry->poisoned = true;
	stat_add(entry->outbox->stats.poisoned, 1);
	entry->group = NULL;
	list_remove(&entry->group_link);
}

void outbox_failed(struct outbox_entry *entry, enum code code, const char *text)
{
	struct outbox *outbox = entry->outbox;
	char instance[ID_TEXT_SIZE];
	struct log_about about = {
		.stage = "publish",
		.tenant = entry->row.tenant,
		.channel = entry->row.channel,
		.instance = str_of(id_format(entry->row.instance, instance)),
		.code = code,
	};

	entry->state = ENTRY_BACKOFF;
	entry->row.attempt_count++;
	entry->failure_code = code;
	snprintf(entry->failure_text, sizeof(entry->failure_text), "%s", text);
	stat_add(outbox->stats.failed, 1);
	if (code == CODE_OUTBOUND_UNROUTABLE)
		stat_add(outbox->stats.unroutable, 1);
	entry->delay_ms = backoff_delay_ms(outbox, entry->row.attempt_count);
	if (outbox->settings.max_attempts && entry->row.attempt_count >= outbox->settings.max_attempts) {
		about.code = CODE_OUTBOUND_DELIVERY_ATTEMPTS_EXHAUSTED;
		log_error(&about, "poisoned after %lld attempts: %s", (long long)entry->row.attempt_count, text);
		backoff_poison(entry);
	} else {
		log_warning(&about, "not published, attempt %lld, again in %lld ms: %s",
			    (long long)entry->row.attempt_count, (long long)entry->delay_ms, text);
		loop_timer_start(&entry->retry, entry->delay_ms * US_PER_MS);
	}
	entry->unwritten = true;
	if (!list_is_linked(&entry->batch_link))
		list_push(&outbox->failing, &entry->batch_link);
	outbox_fail_more(outbox);
}
