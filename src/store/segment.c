/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of the path: claims with releases, resolves, commits. Building one turns the elements' rows into columns, a
 * statement at a time in the order that statements.def gives, each sorted by its key: that is the order of locking. A
 * statement that concerns no element is left out, so a batch of one spawn sends no more than it needs.
 *
 * `ord` is the element's place in the batch. Everything is made in the batch's arena and borrows the elements' bytes.
 */
#include "store/segment.h"

#define QUARANTINE_LOCK_TIMEOUT_MS 2000

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

int key_ref_compare(const void *a, const void *b)
{
	const struct key_ref *x = a, *y = b;
	int order = memcmp(&x->key, &y->key, sizeof(x->key));

	if (!order)
		order = memcmp(&x->slot, &y->slot, sizeof(x->slot));
	if (!order)
		order = (x->ord > y->ord) - (x->ord < y->ord);
	return order ? order : (x->row > y->row) - (x->row < y->row);
}

struct str segment_field(struct arena *arena, const struct field *field)
{
	return field->is_null ? STR_NONE : arena_str(arena, field->str);
}

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
