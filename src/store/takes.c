/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits that pass a cap or take a slot. Who counts must do so alone, so these wait for other replicas at locks of caps and pools, which
 * last a commit each. They have a queue of their own, of which at most one batch is under way, so that others never stand behind such a
 * wait; one that met a lock for long goes on by the quarantine connection.
 *
 * A gate says "full" of what was in the way at that moment, and part of that may be neighbours in the batch, which may yet fail. So who
 * failed is looked up without locks: it is answered with what is committed, or goes again when there is room by that.
 *
 * If caps or pools cannot be asked although the database can commit, elements go on without: an admission too many is better than none at
 * all. That is said (`unchecked`), and the element takes no slot, so that no pool is ever over-subscribed (G10).
 */
#include <stdio.h>

#include "base/time.h"
#include "store/segment.h"

#define FULL_TRIES_MAX 8
#define LOCK_TRIES_MAX 3
#define LOCK_PAUSE_US  (50 * US_PER_MS)

bool gate_is_take(enum gate gate)
{
	return gate == GATE_CHANNEL_CAP || gate == GATE_TENANT_CAP || gate == GATE_POOL;
}

/* --- full, or not any more --- */

static const struct store_session_row *own_session(const struct store_commit *commit)
{
	for (uint32_t i = 0; i < commit->session_count; i++)
		if (!commit->sessions[i].call_key.len)
			return &commit->sessions[i];
	return NULL;
}

static int64_t cap_of(const struct batch *batch, const struct store_commit *commit)
{
	return batch->verdict_gate == GATE_CHANNEL_CAP ? commit->cap.channel_limit : commit->cap.tenant_limit;
}

static void probe_caps(struct batch *batch)
{
	struct column *c = segment_call(batch, STATEMENT_CAP_PROBE, batch->count);

	for (uint32_t i = 0; i < batch->count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[i]);
		const struct store_session_row *own = own_session(commit);

		set_int(&c[0], i, i);
		set_str(&c[1], i, commit->tenant);
		set_str(&c[2], i, batch->verdict_gate == GATE_CHANNEL_CAP && own ? own->channel : STR_NONE);
		set_int(&c[3], i, cap_of(batch, commit));
	}
}

static void probe_pools(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->slot_count;
	c = segment_call(batch, STATEMENT_POOL_PROBE, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->slot_count; k++, at++) {
			set_int(&c[0], at, at);
			set_str(&c[1], at, commit->slots[k].pool);
		}
	}
}

static void probe_build(struct batch *batch)
{
	segment_begin(batch, 1);
	if (batch->verdict_gate == GATE_POOL)
		probe_pools(batch);
	else
		probe_caps(batch);
}

/* Columns of POOL_PROBE. */
enum { PROBE_SLOTS = 1, PROBE_RESERVE_INBOUND, PROBE_RESERVE_OUTBOUND, PROBE_INBOUND, PROBE_OUTBOUND };

static bool pool_has_room(const struct field *f)
{
	int64_t reserved = f[PROBE_RESERVE_OUTBOUND].i - f[PROBE_OUTBOUND].i;

	return f[PROBE_INBOUND].i + f[PROBE_OUTBOUND].i + 1 + (reserved > 0 ? reserved : 0) <= f[PROBE_SLOTS].i;
}

/* What the probe found of an element: its outcome, or OK if it is to go again. */
static enum store_outcome cap_outcome(const struct batch *batch, struct store_commit *commit, const struct field *f)
{
	if (!f || f[1].i < cap_of(batch, commit))
		return STORE_OK;
	commit->full = (struct store_full){.limit = cap_of(batch, commit), .inbound = f[1].i};
	return batch->verdict_gate == GATE_CHANNEL_CAP ? STORE_CHANNEL_FULL : STORE_TENANT_FULL;
}

/* What was found for the `ord`-th row of the question. */
static const struct field *probe_row(const struct batch *batch, uint32_t ord)
{
	const struct rows *rows = &batch->own.calls[0].rows;

	for (uint32_t i = 0; i < rows->row_count; i++)
		if (rows_at(rows, i, 0)->i == ord)
			return rows_at(rows, i, 0);
	return NULL;
}

static enum store_outcome pools_outcome(const struct batch *batch, struct store_commit *commit, uint32_t first)
{
	for (uint32_t i = 0; i < commit->slot_count; i++) {
		const struct field *f = probe_row(batch, first + i);

		/* There is no such pool, whatever was declared: nothing to be counted by. */
		if (!f) {
			commit->skips_slots = commit->unchecked = true;
			return STORE_OK;
		}
		commit->full = (struct store_full){.limit = f[PROBE_SLOTS].i,
						   .inbound = f[PROBE_INBOUND].i,
						   .outbound = f[PROBE_OUTBOUND].i,
						   .pool = commit->slots[i].pool};
		if (!pool_has_room(f))
			return STORE_POOL_FULL;
	}
	return STORE_OK;
}

static enum store_outcome full_outcome(enum gate gate)
{
	if (gate == GATE_POOL)
		return STORE_POOL_FULL;
	return gate == GATE_CHANNEL_CAP ? STORE_CHANNEL_FULL : STORE_TENANT_FULL;
}

static void probe_take(struct batch *batch)
{
	struct store *store = batch->store;
	uint32_t row = 0;

	for (uint32_t i = 0; i < batch->count; i++)
		row += batch->verdict_gate == GATE_POOL ? commit_of(batch->elements[i])->slot_count : 1;
	/* Backwards, for they go to the front of their queue. */
	for (uint32_t i = batch->count; i-- > 0;) {
		struct store_commit *commit = commit_of(batch->elements[i]);
		enum store_outcome outcome;

		row -= batch->verdict_gate == GATE_POOL ? commit->slot_count : 1;
		outcome = batch->verdict_gate == GATE_POOL ? pools_outcome(batch, commit, row)
							   : cap_outcome(batch, commit, probe_row(batch, row));

		/* It has to come to an end when others are always quicker. */
		if (outcome == STORE_OK && !commit->unchecked && ++commit->full_tries >= FULL_TRIES_MAX)
			outcome = full_outcome(batch->verdict_gate);
		if (outcome != STORE_OK)
			store_answer(store, &commit->base, outcome);
		else
			queue_push_front(&store->queues[STORE_TAKE], &commit->base);
	}
	batch_end(batch);
	store_dispatch_soon(store);
}

static void probe_finish(struct batch *batch)
{
	if (batch->segment->outcome == SEGMENT_COMMITTED)
		probe_take(batch);
	else
		gates_not_run(batch);
}

void takes_full(struct batch *batch, enum gate gate)
{
	batch->verdict_gate = gate;
	batch->build = probe_build;
	batch->finish = probe_finish;
	batch_ready(batch);
}

/* --- one batch at a time --- */

bool takes_are_under_way(const struct store *store)
{
	list_for_each (&store->batches, at, next) {
		const struct batch *batch = list_entry(at, const struct batch, all);

		if (batch->kind == STORE_TAKE && batch->class == CONN_STEP)
			return true;
	}
	return false;
}

/* --- what cannot be asked --- */

static bool is_cap(enum statement_id statement)
{
	return statement == STATEMENT_CAP_LOCK || statement == STATEMENT_CAP_CHANNEL || statement == STATEMENT_CAP_TENANT;
}

static bool is_slot(enum statement_id statement)
{
	return statement == STATEMENT_POOL_LOCK || statement == STATEMENT_SLOT_TAKE;
}

/* Whether the database as such is there: the errors of these classes are not the statement's. */
static bool is_away(const char *sqlstate)
{
	static const char *const classes[] = {"57", "08", "53", "25", "28", "3D", "0A", "26"};

	for (size_t i = 0; i < ARRAY_LEN(classes); i++)
		if (strncmp(sqlstate, classes[i], 2) == 0)
			return strcmp(sqlstate, "57014") != 0;
	return false;
}

static void run_without(struct batch *batch, bool caps)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		if (caps ? commit->cap.channel_limit > 0 || commit->cap.tenant_limit > 0 : commit->slot_count > 0) {
			commit->unchecked = true;
			*(caps ? &commit->skips_caps : &commit->skips_slots) = true;
		}
	}
	batch_ready(batch);
}

static bool is_of_one_scope(const struct store_commit *a, const struct store_commit *b)
{
	const struct store_session_row *x = own_session(a), *y = own_session(b);

	return str_equal(a->tenant, b->tenant) && str_equal(x ? x->channel : STR(""), y ? y->channel : STR("")) &&
	       str_equal(a->slot_count ? a->slots[0].pool : STR(""), b->slot_count ? b->slots[0].pool : STR(""));
}

/* Those of another channel and pool than the first's go on by themselves: one that is stuck must not stop them. */
static void split_scopes(struct batch *batch)
{
	struct batch *other = NULL;
	uint32_t kept = 1;

	for (uint32_t i = 1; i < batch->count; i++) {
		if (is_of_one_scope(commit_of(batch->elements[0]), commit_of(batch->elements[i]))) {
			batch->elements[kept++] = batch->elements[i];
			continue;
		}
		if (!other)
			other = batch_split(batch);
		batch_add(other, batch->elements[i]);
	}
	batch->count = kept;
	if (other)
		batch_ready(other);
}

static void locked(struct batch *batch, bool caps)
{
	split_scopes(batch);
	batch->quarantined = true;
	batch->class = CONN_QUARANTINE;
	if (batch->lock_tries++ < LOCK_TRIES_MAX)
		batch_ready_later(batch, LOCK_PAUSE_US);
	else
		run_without(batch, caps);
}

bool takes_error(struct batch *batch)
{
	const struct segment *segment = batch->segment;
	enum statement_id statement;
	enum error_class class = error_class(segment->sqlstate);

	if (batch->kind != STORE_TAKE || !segment->failed_call || is_away(segment->sqlstate) || batch->store->stopping)
		return false;
	statement = segment->calls[segment->failed_call - 1].statement;
	if (!is_cap(statement) && !is_slot(statement))
		return false;
	if (class == ERROR_CLASS_LOCK)
		locked(batch, is_cap(statement));
	else if (class == ERROR_CLASS_ELEMENT && batch->count > 1)
		return false;
	else
		run_without(batch, is_cap(statement));
	return true;
}
