/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the outbox in a segment: their order, whether they were committed claimed, and what was found of their groups. */
#include "store/segment.h"

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

void build_withdrawals(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct outbox_row *rows;
	struct outbox_ref *refs;
	struct column *c, *next;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->withdrawn_count;
	if (!count)
		return;
	rows = arena_zalloc(&batch->arena, count * sizeof(*rows));
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->withdrawn_count; k++, at++) {
			const struct store_withdrawn *withdrawn = &commit->withdrawn[k];

			rows[at] = (struct outbox_row){.tenant = commit->tenant,
						       .instance = commit->instance,
						       .channel = withdrawn->channel,
						       .version = withdrawn->version,
						       .ordinal = withdrawn->ordinal};
			refs[at] = (struct outbox_ref){&rows[at], i};
		}
	}
	sort_unless_sorted(refs, count, sizeof(*refs), outbox_ref_compare);
	c = segment_call(batch, STATEMENT_OUTBOX_WITHDRAW, count);
	next = segment_call(batch, STATEMENT_OUTBOX_FREE_NEXT, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct outbox_row *row = refs[i].row;

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, row->tenant);
		set_id(&c[2], i, row->instance);
		set_str(&c[3], i, row->channel);
		set_int(&c[4], i, row->version);
		set_int(&c[5], i, row->ordinal);
		set_str(&next[0], i, row->tenant);
		set_id(&next[1], i, row->instance);
		set_str(&next[2], i, row->channel);
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

bool outbox_row_waits(const struct store_commit *commit, const struct outbox_row *row)
{
	return row->pool.len && commit->commit != COMMIT_NO_INSTANCE && id_equal(row->instance, commit->instance);
}

static bool outbox_ref_waits(const struct outbox_ref *ref, const struct batch *batch)
{
	return outbox_row_waits(commit_of(batch->elements[ref->ord]), ref->row);
}

/* The columns of OUTBOX_INSERT that do not depend on what else is in the table. */
static void outbox_columns(struct column *c, uint32_t i, const struct outbox_ref *ref)
{
	const struct outbox_row *row = ref->row;

	set_int(&c[0], i, ref->ord);
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
}

/* Names of pools are letters, digits and dashes. */
static struct str waiting_diagnostic(struct batch *batch, struct str pool)
{
	return str_of(arena_printf(&batch->arena, "{\"code\":\"%s\",\"text\":\"waits for a slot of capacity pool '%.*s'\"}",
				   code_text(CODE_OUTBOUND_POOL_WAITING), STR_ARG(pool)));
}

/* Before the others, which must find them. */
void build_outbox_pooled(struct batch *batch)
{
	uint32_t count = 0, i = 0;
	struct column *c;

	for (uint32_t at = 0; at < batch->outbox_count; at++)
		count += outbox_ref_waits(&batch->outbox[at], batch);
	if (!count)
		return;
	c = segment_call(batch, STATEMENT_OUTBOX_INSERT_POOLED, count);
	for (uint32_t at = 0; at < batch->outbox_count; at++) {
		const struct outbox_ref *ref = &batch->outbox[at];

		if (!outbox_ref_waits(ref, batch))
			continue;
		outbox_columns(c, i, ref);
		set_str(&c[16], i, ref->row->pool);
		set_str(&c[17], i, ref->row->call_key);
		set_str(&c[18], i, waiting_diagnostic(batch, ref->row->pool));
		i++;
	}
}

/* Whether the row belongs into the statement of those that are gated, or of those that are not. */
static bool outbox_ref_is_chosen(const struct batch *batch, const struct outbox_ref *ref, bool gated)
{
	return outbox_row_is_gated(batch, ref) == gated && !outbox_ref_waits(ref, batch);
}

void build_outbox(struct batch *batch, enum statement_id statement, bool gated)
{
	uint32_t count = 0, i = 0;
	struct column *c;

	for (uint32_t at = 0; at < batch->outbox_count; at++)
		count += outbox_ref_is_chosen(batch, &batch->outbox[at], gated);
	if (!count)
		return;
	c = segment_call(batch, statement, count);
	for (uint32_t at = 0; at < batch->outbox_count; at++) {
		const struct outbox_row *row = batch->outbox[at].row;

		if (!outbox_ref_is_chosen(batch, &batch->outbox[at], gated))
			continue;
		outbox_columns(c, i, &batch->outbox[at]);
		set_int(&c[16], i, gated ? floor_get(&batch->store->floors, row) : 0);
		i++;
	}
	set_str(&c[17], 0, str_of(batch->store->outbox_owner));
}

/* Of the rows of one group the first tells: those behind it may have found less. */
void take_floors(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0), *before = i ? f - rows->column_count : NULL;

		if (before && id_equal(before[0].id, f[0].id) && str_equal(before[1].str, f[1].str))
			continue;
		floor_set(&batch->store->floors, f[0].id, f[1].str, f[5].i);
	}
}
