/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of the path: claims with releases, resolves, commits. Building one turns the elements' rows into columns, a
 * statement at a time in the order that statements.def gives, each sorted by its key: that is the order of locking. A
 * statement that concerns no element is left out, so a batch of one spawn sends no more than it needs.
 *
 * `ord` is the element's place in the batch. Everything is made in the batch's arena and borrows the elements' bytes.
 */
#include "base/time.h"
#include "store/internal.h"

#define QUARANTINE_LOCK_TIMEOUT_MS 2000

static struct store_claim *claim_of(struct store_request *request)
{
	return container_of(request, struct store_claim, base);
}

static struct store_release *release_of(struct store_request *request)
{
	return container_of(request, struct store_release, base);
}

static struct store_resolve *resolve_of(struct store_request *request)
{
	return container_of(request, struct store_resolve, base);
}

static struct store_probe *probe_of(struct store_request *request)
{
	return container_of(request, struct store_probe, base);
}

static struct store_commit *commit_of(struct store_request *request)
{
	return container_of(request, struct store_commit, base);
}

/* --- what every segment has --- */

static struct str tenants_of(struct batch *batch)
{
	struct str *tenants = arena_alloc(&batch->arena, (batch->count + 1) * sizeof(*tenants));

	for (uint32_t i = 0; i < batch->count; i++)
		tenants[i] = request_tenant(batch->elements[i]);
	return store_tenants(&batch->arena, tenants, batch->count);
}

void segment_begin(struct batch *batch, uint32_t call_max)
{
	struct store *store = batch->store;

	arena_reset(&batch->arena);
	batch->outbox = NULL;
	batch->outbox_count = 0;
	batch->own = (struct segment){
		.calls = arena_alloc(&batch->arena, call_max * sizeof(struct segment_call)),
		.tenants = tenants_of(batch),
		.lock_timeout_ms = batch->quarantined ? QUARANTINE_LOCK_TIMEOUT_MS
						      : store->settings.lock_timeout_ms,
		.arena = &batch->arena,
	};
	batch->segment = &batch->own;
}

static size_t entry_size(enum column_type type)
{
	switch (type) {
	case COLUMN_INT:
	case COLUMN_TIME:
		return sizeof(int64_t);
	case COLUMN_ID:
		return sizeof(struct id);
	case COLUMN_TEXT:
	case COLUMN_BYTES:
		return sizeof(struct str);
	case COLUMN_BOOL:
		return sizeof(bool);
	}
	return 0;
}

struct column *segment_call(struct batch *batch, enum statement_id statement, uint32_t count)
{
	const char *params = statement_info(statement)->params;
	uint32_t width = (uint32_t)strlen(params);
	struct column *columns = arena_alloc(&batch->arena, (width + 1) * sizeof(*columns));

	for (uint32_t i = 0; i < width; i++) {
		bool scalar = params[i] >= 'A' && params[i] <= 'Z';
		enum column_type type = (enum column_type)(scalar ? params[i] - 'A' + 'a'
								  : params[i]);

		columns[i] = (struct column){
			.type = type, .scalar = scalar, .count = scalar ? 1 : count};
		columns[i].ints = arena_alloc(&batch->arena, columns[i].count * entry_size(type));
	}
	batch->own.calls[batch->own.call_count++] = (struct segment_call){.statement = statement,
									  .params = columns};
	return columns;
}

/* --- claims and releases --- */

static void build_claims(struct batch *batch)
{
	uint32_t claims = 0, at = 0;
	struct column *c;

	segment_begin(batch, 2);
	batch->own.writes = true;
	while (claims < batch->count && batch->elements[claims]->kind == STORE_CLAIM)
		claims++;
	/* Releases first: a claim of the same instance by another lane is then not refused for nothing. */
	if (claims < batch->count) {
		c = segment_call(batch, STATEMENT_RELEASE, batch->count - claims);
		for (uint32_t i = claims; i < batch->count; i++, at++) {
			struct store_release *release = release_of(batch->elements[i]);

			set_int(&c[0], at, i);
			set_str(&c[1], at, release->tenant);
			set_id(&c[2], at, release->instance);
			set_str(&c[3], at, release->owner);
		}
	}
	if (!claims)
		return;
	c = segment_call(batch, STATEMENT_CLAIM, claims);
	for (uint32_t i = 0; i < claims; i++) {
		struct store_claim *claim = claim_of(batch->elements[i]);

		set_int(&c[0], i, i);
		set_str(&c[1], i, claim->tenant);
		set_id(&c[2], i, claim->instance);
		set_str(&c[3], i, claim->owner);
	}
	set_int(&c[4], 0, batch->store->settings.claim_timeout_ms);
}

static struct str field_copy(struct arena *arena, const struct field *field)
{
	return field->is_null ? STR_NONE : arena_str(arena, field->str);
}

static void take_claims(struct batch *batch)
{
	struct segment_call *call = &batch->own.calls[batch->own.call_count - 1];

	for (uint32_t i = 0; i < batch->count; i++)
		batch->elements[i]->outcome = batch->elements[i]->kind == STORE_CLAIM
						      ? STORE_REFUSED
						      : STORE_OK;
	for (uint32_t i = 0; call->statement == STATEMENT_CLAIM && i < call->rows.row_count; i++) {
		const struct field *f = rows_at(&call->rows, i, 0);
		struct store_claim *claim;

		assert(f[0].i >= 0 && f[0].i < batch->count);
		claim = claim_of(batch->elements[f[0].i]);
		claim->base.outcome = STORE_OK;
		claim->version = f[1].i;
		claim->status = (enum instance_status)f[2].i;
		claim->deployment = field_copy(claim->base.arena, &f[3]);
		claim->process = field_copy(claim->base.arena, &f[4]);
		claim->snapshot = field_copy(claim->base.arena, &f[5]);
	}
	for (uint32_t i = 0; i < batch->count; i++)
		store_answer(batch->store, batch->elements[i], batch->elements[i]->outcome);
}

/* --- resolves --- */

static void build_kept_probe(struct batch *batch, uint32_t count)
{
	struct column *c;
	uint32_t at = 0;

	if (!count)
		return;
	c = segment_call(batch, STATEMENT_KEPT_PROBE, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_resolve *resolve = resolve_of(batch->elements[i]);

		if (id_is_none(resolve->order_key))
			continue;
		set_int(&c[0], at, i);
		set_str(&c[1], at, resolve->tenant);
		set_id(&c[2], at, resolve->order_key);
		set_int(&c[3], at, resolve->kept_before);
		at++;
	}
}

static void build_failed_probe(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += resolve_of(batch->elements[i])->alias_key_count;
	if (!count)
		return;
	c = segment_call(batch, STATEMENT_FAILED_PROBE, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_resolve *resolve = resolve_of(batch->elements[i]);

		for (uint32_t k = 0; k < resolve->alias_key_count; k++, at++) {
			set_int(&c[0], at, i);
			set_str(&c[1], at, resolve->tenant);
			set_id(&c[2], at, resolve->alias_keys[k]);
		}
	}
}

static void build_resolves(struct batch *batch)
{
	uint32_t inbox = 0, waits = 0, kept = 0, at = 0;
	struct column *c;

	segment_begin(batch, 4);
	build_failed_probe(batch);
	for (uint32_t i = 0; i < batch->count; i++) {
		inbox += resolve_of(batch->elements[i])->inbox_key_count;
		waits += resolve_of(batch->elements[i])->wait_key_count;
		kept += !id_is_none(resolve_of(batch->elements[i])->order_key);
	}
	build_kept_probe(batch, kept);
	if (inbox || !(waits || kept)) {
		c = segment_call(batch, STATEMENT_INBOX_PROBE, inbox);
		for (uint32_t i = 0; i < batch->count; i++) {
			struct store_resolve *resolve = resolve_of(batch->elements[i]);

			for (uint32_t k = 0; k < resolve->inbox_key_count; k++, at++) {
				set_int(&c[0], at, i);
				set_str(&c[1], at, resolve->tenant);
				set_id(&c[2], at, resolve->inbox_keys[k]);
			}
		}
	}
	if (!waits)
		return;
	/* One ordinal a key, so that the rows come by key within an element. */
	c = segment_call(batch, STATEMENT_WAIT_PROBE, waits);
	at = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_resolve *resolve = resolve_of(batch->elements[i]);

		for (uint32_t k = 0; k < resolve->wait_key_count; k++, at++) {
			set_int(&c[0], at, at);
			set_str(&c[1], at, resolve->tenant);
			set_id(&c[2], at, resolve->wait_keys[k]);
		}
	}
}

static void take_inbox_rows(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct store_resolve *resolve;

		assert(f[0].i >= 0 && f[0].i < batch->count);
		resolve = resolve_of(batch->elements[f[0].i]);
		if (!resolve->duplicate || id_is_none(resolve->duplicate_instance))
			resolve->duplicate_instance = f[1].is_null ? ID_NONE : f[1].id;
		resolve->duplicate = true;
	}
}

/* Rows come by ordinal, so those of an element stand together. */
static void take_wait_rows(struct batch *batch, const struct rows *rows)
{
	uint32_t row = 0, first_key = 0;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_resolve *resolve = resolve_of(batch->elements[i]);
		uint32_t end = row;

		while (end < rows->row_count &&
		       rows_at(rows, end, 0)->i < (int64_t)first_key + resolve->wait_key_count)
			end++;
		resolve->wait_count = end - row;
		resolve->waits = arena_alloc(resolve->base.arena,
					     (end - row + 1) * sizeof(struct store_wait));
		for (struct store_wait *wait = resolve->waits; row < end; row++, wait++) {
			const struct field *f = rows_at(rows, row, 0);

			*wait = (struct store_wait){
				.key = (uint32_t)f[0].i - first_key,
				.instance = f[2].id,
				.token = (uint32_t)f[3].i,
				.node = field_copy(resolve->base.arena, &f[4]),
				.deployment = field_copy(resolve->base.arena, &f[5]),
				.created_us = f[6].i,
			};
		}
		first_key += resolve->wait_key_count;
	}
}

static void take_kept_rows(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		int64_t ord = rows_at(rows, i, 0)->i;

		assert(ord >= 0 && ord < batch->count);
		resolve_of(batch->elements[ord])->kept_ahead = true;
	}
}

static void take_failed_rows(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct store_resolve *resolve;

		assert(f[0].i >= 0 && f[0].i < batch->count);
		resolve = resolve_of(batch->elements[f[0].i]);
		if (!resolve->failed)
			resolve->failed = arena_alloc(resolve->base.arena, rows->row_count * sizeof(struct id));
		resolve->failed[resolve->failed_count++] = f[1].id;
	}
}

static void take_resolves(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_resolve *resolve = resolve_of(batch->elements[i]);

		resolve->duplicate = false;
		resolve->duplicate_instance = ID_NONE;
		resolve->kept_ahead = false;
		resolve->failed = NULL;
		resolve->failed_count = 0;
		resolve->waits = NULL;
		resolve->wait_count = 0;
	}
	for (uint32_t i = 0; i < batch->own.call_count; i++) {
		struct segment_call *call = &batch->own.calls[i];

		if (call->statement == STATEMENT_INBOX_PROBE)
			take_inbox_rows(batch, &call->rows);
		else if (call->statement == STATEMENT_KEPT_PROBE)
			take_kept_rows(batch, &call->rows);
		else if (call->statement == STATEMENT_FAILED_PROBE)
			take_failed_rows(batch, &call->rows);
		else
			take_wait_rows(batch, &call->rows);
	}
	for (uint32_t i = 0; i < batch->count; i++)
		store_answer(batch->store, batch->elements[i], STORE_OK);
}

/* --- probes --- */

static void build_probes(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct column *c;

	segment_begin(batch, 1);
	for (uint32_t i = 0; i < batch->count; i++)
		count += probe_of(batch->elements[i])->key_count;
	c = segment_call(batch, STATEMENT_EARLY_PROBE, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_probe *probe = probe_of(batch->elements[i]);

		for (uint32_t k = 0; k < probe->key_count; k++, at++) {
			set_int(&c[0], at, i);
			set_str(&c[1], at, probe->tenant);
			set_id(&c[2], at, probe->keys[k]);
		}
	}
}

static void take_probes(struct batch *batch)
{
	const struct rows *rows = &batch->own.calls[0].rows;

	for (uint32_t i = 0; i < batch->count; i++) {
		probe_of(batch->elements[i])->found = NULL;
		probe_of(batch->elements[i])->found_count = 0;
	}
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct store_probe *probe;

		assert(f[0].i >= 0 && f[0].i < batch->count);
		probe = probe_of(batch->elements[f[0].i]);
		if (!probe->found)
			probe->found = arena_alloc(probe->base.arena, rows->row_count * sizeof(*probe->found));
		probe->found[probe->found_count++] = (struct store_early){
			f[1].id, field_copy(probe->base.arena, &f[2]), field_copy(probe->base.arena, &f[3])};
	}
	for (uint32_t i = 0; i < batch->count; i++)
		store_answer(batch->store, batch->elements[i], STORE_OK);
}

/* --- commits --- */

/* A row of a table with keys of its own, on its way into the order of those keys. */
struct key_ref {
	struct id key;
	struct id slot;
	uint32_t ord;
	uint32_t row;
};

static int key_ref_compare(const void *a, const void *b)
{
	const struct key_ref *x = a, *y = b;
	int order = memcmp(&x->key, &y->key, sizeof(x->key));

	if (!order)
		order = memcmp(&x->slot, &y->slot, sizeof(x->slot));
	if (!order)
		order = (x->ord > y->ord) - (x->ord < y->ord);
	return order ? order : (x->row > y->row) - (x->row < y->row);
}

static int outbox_ref_compare(const void *a, const void *b)
{
	const struct outbox_row *x = ((const struct outbox_ref *)a)->row,
				*y = ((const struct outbox_ref *)b)->row;
	int order = memcmp(&x->instance, &y->instance, sizeof(x->instance));

	if (!order)
		order = str_compare(x->channel, y->channel);
	if (!order)
		order = (x->version > y->version) - (x->version < y->version);
	return order ? order : (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

static void sort_unless_sorted(void *base, uint32_t count, size_t size,
			       int (*compare)(const void *, const void *))
{
	for (uint32_t i = 1; i < count; i++)
		if (compare((char *)base + (i - 1) * size, (char *)base + i * size) > 0) {
			qsort(base, count, size, compare);
			return;
		}
}

void segment_outbox_sort(struct batch *batch)
{
	uint32_t count = 0, at = 0;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->outbox_count;
	batch->outbox = arena_alloc(&batch->arena, (count + 1) * sizeof(*batch->outbox));
	batch->outbox_count = count;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->outbox_count; k++) {
			commit->outbox[k].claimed = false;
			if (!commit->outbox[k].tenant.ptr)
				commit->outbox[k].tenant = commit->tenant;
			batch->outbox[at++] = (struct outbox_ref){&commit->outbox[k], i};
		}
	}
	sort_unless_sorted(batch->outbox, count, sizeof(*batch->outbox), outbox_ref_compare);
}

void segment_outbox_claimed(struct batch *batch, const struct rows *rows)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct outbox_row key = {.instance = f[0].id,
					 .channel = f[1].str,
					 .version = f[2].i,
					 .ordinal = f[3].i};
		struct outbox_ref want = {&key, 0}, *found;

		/* Rows mostly come as they were sent. */
		if (at < batch->outbox_count && outbox_ref_compare(&batch->outbox[at], &want) == 0)
			found = &batch->outbox[at];
		else
			found = bsearch(&want, batch->outbox, batch->outbox_count, sizeof(want),
					outbox_ref_compare);
		if (!found)
			continue;
		found->row->claimed = rows->column_count < 5 || f[4].b;
		at = (uint32_t)(found - batch->outbox) + 1;
	}
}

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

/*
 * Rows of the commit's own instance stand behind its gate: whoever runs a second time fails the fence, or finds the instance, in
 * an earlier statement. Other rows, the copies of dead letters, may be there already.
 */
static bool outbox_row_is_gated(const struct batch *batch, const struct outbox_ref *ref)
{
	const struct store_commit *commit = commit_of(batch->elements[ref->ord]);

	return commit->commit != COMMIT_NO_INSTANCE && id_equal(ref->row->instance, commit->instance);
}

static void build_outbox(struct batch *batch, enum statement_id statement, bool gated)
{
	uint32_t count = 0, i = 0;
	struct column *c;

	for (uint32_t at = 0; at < batch->outbox_count; at++)
		count += outbox_row_is_gated(batch, &batch->outbox[at]) == gated;
	if (!count)
		return;
	c = segment_call(batch, statement, count);
	for (uint32_t at = 0; at < batch->outbox_count; at++) {
		const struct outbox_row *row = batch->outbox[at].row;

		if (outbox_row_is_gated(batch, &batch->outbox[at]) != gated)
			continue;
		set_int(&c[0], i, batch->outbox[at].ord);
		set_str(&c[1], i, row->tenant);
		set_id(&c[2], i, row->instance);
		set_str(&c[3], i, row->channel);
		set_int(&c[4], i, row->version);
		set_int(&c[5], i, row->ordinal);
		set_id(&c[6], i, row->id);
		set_str(&c[7], i, row->deployment);
		set_str(&c[8], i, row->connection);
		set_str(&c[9], i, row->destination);
		set_str(&c[10], i, row->correlation);
		set_str(&c[11], i, row->record_key);
		set_str(&c[12], i, row->headers);
		set_str(&c[13], i, row->content_type);
		set_str(&c[14], i, row->body);
		set_bool(&c[15], i, row->required);
		set_int(&c[16], i, gated ? floor_get(&batch->store->floors, row) : 0);
		i++;
	}
	set_str(&c[17], 0, str_of(batch->store->outbox_owner));
}

/* One of the id that the commit would remove: it stays, with what it says now. */
static bool dead_letter_is_replay(const struct store_commit *commit, const struct dead_letter_row *dead)
{
	return !id_is_none(commit->dead_letter_removed) && id_equal(dead->id, commit->dead_letter_removed);
}

static void build_dead_letters(struct batch *batch, enum statement_id statement, bool replays)
{
	uint32_t count = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->dead_letter_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	count = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->dead_letter_count; k++)
			if (dead_letter_is_replay(commit, &commit->dead_letters[k]) == replays)
				refs[count++] = (struct key_ref){commit->dead_letters[k].id, ID_NONE, i, k};
	}
	if (!count)
		return;
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, statement, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct dead_letter_row *dead = &commit->dead_letters[refs[i].row];

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, dead->id);
		set_str(&c[3], i, text_clean(&batch->arena, dead->channel));
		set_str(&c[4], i, text_clean(&batch->arena, dead->event_id));
		set_str(&c[5], i, text_clean(&batch->arena, dead->source));
		set_str(&c[6], i, text_clean(&batch->arena, dead->message_type));
		set_str(&c[7], i, str_of(code_text(dead->code)));
		set_str(&c[8], i, text_clean(&batch->arena, dead->detail));
		set_id(&c[9], i, dead->instance);
		set_str(&c[10], i, dead->record_key);
		set_str(&c[11], i, dead->headers);
		set_str(&c[12], i, text_clean(&batch->arena, dead->content_type));
		set_str(&c[13], i, dead->payload);
	}
}

/* Of replays that have had their effect. */
static void build_dead_letter_deletes(struct batch *batch)
{
	struct key_ref *refs = arena_alloc(&batch->arena, (batch->count + 1) * sizeof(*refs));
	uint32_t count = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);
		bool stays = false;

		for (uint32_t k = 0; k < commit->dead_letter_count; k++)
			stays |= dead_letter_is_replay(commit, &commit->dead_letters[k]);
		if (!stays && !id_is_none(commit->dead_letter_removed))
			refs[count++] = (struct key_ref){commit->dead_letter_removed, ID_NONE, i, 0};
	}
	if (!count)
		return;
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_DEAD_LETTER_DELETE, count);
	for (uint32_t i = 0; i < count; i++) {
		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit_of(batch->elements[refs[i].ord])->tenant);
		set_id(&c[2], i, refs[i].key);
	}
}

/* By order key and then as they stand in their element: `seq` grows in this order. */
static void build_kept(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->kept_added_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->kept_added_count; k++)
			refs[at++] = (struct key_ref){commit->kept_added[k].order_key, ID_NONE, i, k};
	}
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_KEPT_INSERT, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct kept_row *row = &commit->kept_added[refs[i].row];

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, row->id);
		set_id(&c[3], i, row->order_key);
		set_str(&c[4], i, row->channel);
		set_str(&c[5], i, str_of(kept_kind_name(row->kind)));
		set_str(&c[6], i, commit->keeper.len ? commit->keeper : STR_NONE);
		set_str(&c[7], i, text_clean(&batch->arena, row->source));
		set_str(&c[8], i, row->envelope.ptr ? row->envelope : STR(""));
		set_str(&c[9], i, row->body);
		set_int(&c[10], i, row->unmatched_us ? row->unmatched_us : COLUMN_TIME_NULL);
	}
}

/* Marks what was kept before; then the early rows of all, by key. */
static void build_early(struct batch *batch)
{
	uint32_t marks = 0, keys = 0, at = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->early_count; k++) {
			marks += commit->early[k].is_kept;
			keys += commit->early[k].key_count;
		}
	}
	refs = arena_alloc(&batch->arena, (marks + keys + 1) * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->early_count; k++)
			if (commit->early[k].is_kept)
				refs[at++] = (struct key_ref){commit->early[k].message, ID_NONE, i, k};
	}
	if (marks) {
		qsort(refs, marks, sizeof(*refs), key_ref_compare);
		c = segment_call(batch, STATEMENT_EARLY_MARK, marks);
		for (uint32_t i = 0; i < marks; i++) {
			struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);

			set_int(&c[0], i, refs[i].ord);
			set_str(&c[1], i, commit->tenant);
			set_id(&c[2], i, refs[i].key);
			set_str(&c[3], i, commit->keeper);
			set_int(&c[4], i, commit->early[refs[i].row].unmatched_us);
		}
	}
	at = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->early_count; k++)
			for (uint32_t n = 0; n < commit->early[k].key_count; n++)
				refs[at++] = (struct key_ref){commit->early[k].keys[n], commit->early[k].message, i, k};
	}
	if (!keys)
		return;
	qsort(refs, keys, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_EARLY_INSERT, keys);
	for (uint32_t i = 0; i < keys; i++) {
		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit_of(batch->elements[refs[i].ord])->tenant);
		set_id(&c[2], i, refs[i].key);
		set_id(&c[3], i, refs[i].slot);
	}
}

static void build_commits(struct batch *batch)
{
	struct key_ref *refs;
	uint32_t count;

	segment_begin(batch, 22);
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
	segment_outbox_sort(batch);
	build_outbox(batch, STATEMENT_OUTBOX_INSERT, true);
	build_outbox(batch, STATEMENT_OUTBOX_INSERT_ONCE, false);
	build_dead_letters(batch, STATEMENT_DEAD_LETTER_INSERT, false);
	build_dead_letters(batch, STATEMENT_DEAD_LETTER_REPLACE, true);
	build_dead_letter_deletes(batch);
	build_kept(batch);
	build_early(batch);
	if (!batch->own.call_count)
		segment_call(batch, STATEMENT_PING, 0);
}

/* Of the rows of one group the first tells: those behind it may have found less. */
static void take_floors(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0), *before = i ? f - rows->column_count : NULL;

		if (before && id_equal(before[0].id, f[0].id) && str_equal(before[1].str, f[1].str))
			continue;
		floor_set(&batch->store->floors, f[0].id, f[1].str, f[5].i);
	}
}

static void take_commits(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->own.call_count; i++) {
		const struct segment_call *call = &batch->own.calls[i];

		if (call->statement == STATEMENT_OUTBOX_INSERT)
			take_floors(batch, &call->rows);
		if (call->statement == STATEMENT_OUTBOX_INSERT ||
		    call->statement == STATEMENT_OUTBOX_INSERT_ONCE)
			segment_outbox_claimed(batch, &call->rows);
	}
	for (uint32_t i = 0; i < batch->count; i++)
		store_answer(batch->store, batch->elements[i], STORE_OK);
}

/* --- */

void segment_build(struct batch *batch)
{
	if (batch->kind == STORE_CLAIM || batch->kind == STORE_RELEASE)
		build_claims(batch);
	else if (batch->kind == STORE_RESOLVE)
		build_resolves(batch);
	else if (batch->kind == STORE_PROBE)
		build_probes(batch);
	else
		build_commits(batch);
}

void segment_take(struct batch *batch)
{
	if (batch->kind == STORE_CLAIM || batch->kind == STORE_RELEASE)
		take_claims(batch);
	else if (batch->kind == STORE_RESOLVE)
		take_resolves(batch);
	else if (batch->kind == STORE_PROBE)
		take_probes(batch);
	else
		take_commits(batch);
}
