/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment of committed steps, a function a statement, in the order that statements.def gives: see build_commits. Rows of the outbox
 * and of kept messages and dead letters are made in files of their own.
 */
#include "store/segment.h"

static uint32_t count_commits(struct batch *batch, enum commit_kind kind)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->commit == kind;
	return count;
}

static void build_fences(struct batch *batch)
{
	uint32_t count = count_commits(batch, COMMIT_RESUME), at = 0;
	struct column *c;

	if (!count)
		return;
	c = segment_call(batch, STATEMENT_FENCE_UPDATE, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		if (commit->commit != COMMIT_RESUME)
			continue;
		set_int(&c[0], at, i);
		set_str(&c[1], at, commit->tenant);
		set_id(&c[2], at, commit->instance);
		set_str(&c[3], at, commit->owner);
		set_int(&c[4], at, commit->version);
		set_int(&c[5], at, commit->status);
		set_bool(&c[6], at, instance_status_is_terminal(commit->status));
		set_str(&c[7], at, commit->code);
		set_str(&c[8], at, text_clean(&batch->arena, commit->detail));
		set_str(&c[9], at, commit->snapshot);
		at++;
	}
}

static void build_schedules(struct batch *batch)
{
	struct key_ref *refs = arena_alloc(&batch->arena, (batch->count + 1) * sizeof(*refs));
	uint32_t count = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		if (!id_is_none(commit->schedule.id))
			refs[count++] = (struct key_ref){commit->schedule.id, ID_NONE, i, 0};
	}
	if (!count)
		return;
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_SCHEDULE_ADVANCE, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct store_schedule *schedule = &commit->schedule;

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, schedule->id);
		set_int(&c[3], i, schedule->expected_us);
		set_int(&c[4], i, schedule->next_us ? schedule->next_us : COLUMN_TIME_NULL);
		set_int(&c[5], i, schedule->remaining);
	}
}

static void build_kept_deletes(struct batch *batch)
{
	struct key_ref *refs = arena_alloc(&batch->arena, (batch->count + 1) * sizeof(*refs));
	uint32_t count = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		if (!id_is_none(commit->kept_removed))
			refs[count++] = (struct key_ref){commit->kept_removed, ID_NONE, i, 0};
	}
	if (!count)
		return;
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_KEPT_DELETE, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, refs[i].key);
		set_str(&c[3], i, commit->keeper);
	}
}

/* Those of the messages that the statement before this one has ended. */
static void build_early_deletes(struct batch *batch)
{
	const struct segment_call *call = &batch->own.calls[batch->own.call_count ? batch->own.call_count - 1 : 0];
	const struct column *ended = call->params;
	struct column *c;

	if (!batch->own.call_count || call->statement != STATEMENT_KEPT_DELETE)
		return;
	c = segment_call(batch, STATEMENT_EARLY_DELETE, ended[0].count);
	c[0] = ended[0];
	c[1] = ended[1];
	c[2] = ended[2];
}

static void build_inbox(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->inbox_key_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->inbox_key_count; k++)
			refs[at++] = (struct key_ref){commit->inbox_keys[k], ID_NONE, i, k};
	}
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_INBOX_INSERT, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, refs[i].key);
		set_id(&c[3], i, commit->commit == COMMIT_NO_INSTANCE ? ID_NONE : commit->instance);
	}
}

/* What tells the rows of one key apart: instance and token; nothing when the key is unique. */
static struct id wait_slot(const struct store_commit *commit, const struct store_wait_row *wait)
{
	uint8_t token[4] = {(uint8_t)(wait->token >> 24), (uint8_t)(wait->token >> 16),
			    (uint8_t)(wait->token >> 8), (uint8_t)wait->token};

	if (wait->unique)
		return ID_NONE;
	return id_digest_of(id_str(&commit->instance), str_make(token, sizeof(token)));
}

static struct id alias_slot(const struct store_commit *commit, const struct store_alias_row *alias)
{
	return alias->unique ? ID_NONE : commit->instance;
}

enum row_choice { ROWS_ALL, ROWS_PLAIN, ROWS_UNIQUE };

static bool chosen(enum row_choice choice, bool unique)
{
	return choice == ROWS_ALL || unique == (choice == ROWS_UNIQUE);
}

/* The waits of all elements, added or removed, by (key, slot); NULL if none is chosen. */
static struct key_ref *wait_refs(struct batch *batch, bool added, enum row_choice choice,
				 uint32_t *count)
{
	uint32_t total = 0, at = 0;
	struct key_ref *refs;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		total += added ? commit->waits_added_count : commit->waits_removed_count;
	}
	refs = total ? arena_alloc(&batch->arena, total * sizeof(*refs)) : NULL;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);
		const struct store_wait_row *rows = added ? commit->waits_added
							  : commit->waits_removed;
		uint32_t n = added ? commit->waits_added_count : commit->waits_removed_count;

		for (uint32_t k = 0; k < n; k++)
			if (chosen(choice, rows[k].unique))
				refs[at++] = (struct key_ref){rows[k].key,
							      wait_slot(commit, &rows[k]), i, k};
	}
	*count = at;
	if (at)
		qsort(refs, at, sizeof(*refs), key_ref_compare);
	return at ? refs : NULL;
}

static struct key_ref *alias_refs(struct batch *batch, bool added, enum row_choice choice,
				  uint32_t *count)
{
	uint32_t total = 0, at = 0, kept = 0;
	struct key_ref *refs;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		total += added ? commit->aliases_added_count : commit->aliases_removed_count;
	}
	refs = total ? arena_alloc(&batch->arena, total * sizeof(*refs)) : NULL;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);
		const struct store_alias_row *rows = added ? commit->aliases_added
							   : commit->aliases_removed;
		uint32_t n = added ? commit->aliases_added_count : commit->aliases_removed_count;

		for (uint32_t k = 0; k < n; k++)
			if (chosen(choice, rows[k].unique))
				refs[at++] = (struct key_ref){rows[k].key,
							      alias_slot(commit, &rows[k]), i, k};
	}
	*count = 0;
	if (!at)
		return NULL;
	qsort(refs, at, sizeof(*refs), key_ref_compare);
	/* An instance that registers an alias twice has it once. */
	for (uint32_t i = 0; i < at; i++)
		if (!kept || refs[kept - 1].ord != refs[i].ord ||
		    !id_equal(refs[kept - 1].key, refs[i].key))
			refs[kept++] = refs[i];
	*count = kept;
	return refs;
}

static void build_deletes(struct batch *batch, enum statement_id statement,
			  const struct key_ref *refs, uint32_t count)
{
	struct column *c;

	if (!refs)
		return;
	c = segment_call(batch, statement, count);
	for (uint32_t i = 0; i < count; i++) {
		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit_of(batch->elements[refs[i].ord])->tenant);
		set_id(&c[2], i, refs[i].key);
		set_id(&c[3], i, refs[i].slot);
	}
}

/* Rows of elements in their order, which is that of the table's key but for the token: nobody else writes timers of the instance. */
static uint32_t count_timers(struct batch *batch, bool added)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		count += added ? commit->timers_added_count : commit->timers_removed_count;
	}
	return count;
}

static void build_timer_deletes(struct batch *batch)
{
	uint32_t count = count_timers(batch, false), at = 0;
	struct column *c;

	if (!count)
		return;
	c = segment_call(batch, STATEMENT_TIMER_DELETE, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->timers_removed_count; k++, at++) {
			set_int(&c[0], at, i);
			set_str(&c[1], at, commit->tenant);
			set_id(&c[2], at, commit->instance);
			set_int(&c[3], at, commit->timers_removed[k].token);
		}
	}
}

static void build_timer_inserts(struct batch *batch)
{
	uint32_t count = count_timers(batch, true), at = 0;
	struct column *c;

	if (!count)
		return;
	c = segment_call(batch, STATEMENT_TIMER_INSERT, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->timers_added_count; k++, at++) {
			const struct store_timer_row *timer = &commit->timers_added[k];

			set_int(&c[0], at, i);
			set_str(&c[1], at, commit->tenant);
			set_id(&c[2], at, commit->instance);
			set_int(&c[3], at, timer->token);
			set_str(&c[4], at, timer->node);
			set_str(&c[5], at, commit->deployment);
			set_int(&c[6], at, timer->due_us);
		}
	}
}

static void build_alias_inserts(struct batch *batch, enum statement_id statement,
				enum row_choice choice)
{
	uint32_t count;
	struct key_ref *refs = alias_refs(batch, true, choice, &count);
	struct column *c;

	if (!refs)
		return;
	c = segment_call(batch, statement, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct store_alias_row *alias = &commit->aliases_added[refs[i].row];

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, refs[i].key);
		set_id(&c[3], i, refs[i].slot);
		set_id(&c[4], i, commit->instance);
		set_str(&c[5], i, alias->name);
		set_str(&c[6], i, alias->value);
	}
}

static void build_wait_inserts(struct batch *batch, enum statement_id statement,
			       enum row_choice choice)
{
	uint32_t count;
	struct key_ref *refs = wait_refs(batch, true, choice, &count);
	struct column *c;

	if (!refs)
		return;
	c = segment_call(batch, statement, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct store_wait_row *wait = &commit->waits_added[refs[i].row];

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, refs[i].key);
		set_id(&c[3], i, refs[i].slot);
		set_id(&c[4], i, commit->instance);
		set_int(&c[5], i, wait->token);
		set_str(&c[6], i, wait->node);
		set_str(&c[7], i, wait->channel);
		set_str(&c[8], i, commit->deployment);
	}
}

static void build_instances(struct batch *batch)
{
	uint32_t count = count_commits(batch, COMMIT_SPAWN), at = 0;
	struct column *c;

	if (!count)
		return;
	c = segment_call(batch, STATEMENT_INSTANCE_INSERT, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		if (commit->commit != COMMIT_SPAWN)
			continue;
		set_int(&c[0], at, i);
		set_str(&c[1], at, commit->tenant);
		set_id(&c[2], at, commit->instance);
		set_str(&c[3], at, commit->deployment);
		set_str(&c[4], at, commit->process);
		set_int(&c[5], at, commit->status);
		set_int(&c[6], at, commit->version);
		set_int(&c[7], at, commit->started_us);
		set_bool(&c[8], at, instance_status_is_terminal(commit->status));
		set_str(&c[9], at, commit->code);
		set_str(&c[10], at, text_clean(&batch->arena, commit->detail));
		set_str(&c[11], at, commit->snapshot);
		at++;
	}
}

void build_commits(struct batch *batch)
{
	struct key_ref *refs;
	uint32_t count;

	segment_begin(batch, 38);
	batch->own.writes = true;
	batch->own.durable = true;
	build_fences(batch);
	build_schedules(batch);
	build_kept_deletes(batch);
	build_early_deletes(batch);
	build_inbox(batch);
	refs = wait_refs(batch, false, ROWS_ALL, &count);
	build_deletes(batch, STATEMENT_WAIT_DELETE, refs, count);
	refs = alias_refs(batch, false, ROWS_ALL, &count);
	build_deletes(batch, STATEMENT_ALIAS_DELETE, refs, count);
	build_timer_deletes(batch);
	build_alias_inserts(batch, STATEMENT_ALIAS_INSERT, ROWS_PLAIN);
	build_alias_inserts(batch, STATEMENT_ALIAS_INSERT_UNIQUE, ROWS_UNIQUE);
	build_wait_inserts(batch, STATEMENT_WAIT_INSERT, ROWS_PLAIN);
	build_wait_inserts(batch, STATEMENT_WAIT_INSERT_UNIQUE, ROWS_UNIQUE);
	build_instances(batch);
	build_timer_inserts(batch);
	build_sessions(batch);
	build_withdrawals(batch);
	segment_outbox_sort(batch);
	build_outbox_pooled(batch);
	build_outbox(batch, STATEMENT_OUTBOX_INSERT, true);
	build_outbox(batch, STATEMENT_OUTBOX_INSERT_ONCE, false);
	build_slot_ends(batch);
	build_dead_letters(batch, STATEMENT_DEAD_LETTER_INSERT, false);
	build_dead_letters(batch, STATEMENT_DEAD_LETTER_REPLACE, true);
	build_dead_letter_deletes(batch);
	build_kept(batch);
	build_early(batch);
	build_takes(batch);
	if (!batch->own.call_count)
		segment_call(batch, STATEMENT_PING, 0);
}

void take_commits(struct batch *batch)
{
	sessions_forget(batch);
	for (uint32_t i = 0; i < batch->own.call_count; i++) {
		const struct segment_call *call = &batch->own.calls[i];

		if (call->statement == STATEMENT_OUTBOX_INSERT)
			take_floors(batch, &call->rows);
		if (call->statement == STATEMENT_OUTBOX_INSERT ||
		    call->statement == STATEMENT_OUTBOX_INSERT_ONCE)
			segment_outbox_claimed(batch, &call->rows);
		if (call->statement == STATEMENT_OUTBOX_UNPOOL)
			take_unpooled(batch, &call->rows);
		if (call->statement == STATEMENT_SLOT_DELETE)
			take_freed(batch, &call->rows);
	}
	for (uint32_t i = 0; i < batch->count; i++)
		store_answer(batch->store, batch->elements[i], STORE_OK);
}
