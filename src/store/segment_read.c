/* SPDX-License-Identifier: Apache-2.0 */
/* Segments that change nothing but claims: claims with releases, resolves, probes. */
#include "store/segment.h"

/* --- claims and releases --- */

void build_claims(struct batch *batch)
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

void take_claims(struct batch *batch)
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
		claim->deployment = segment_field(claim->base.arena, &f[3]);
		claim->process = segment_field(claim->base.arena, &f[4]);
		claim->snapshot = segment_field(claim->base.arena, &f[5]);
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

/* The aliases that FAILED_PROBE or SESSION_FIND looks for. */
static uint32_t alias_probe_keys(struct batch *batch, uint32_t element, enum statement_id statement, const struct id **keys)
{
	const struct store_resolve *resolve = resolve_of(batch->elements[element]);

	*keys = statement == STATEMENT_FAILED_PROBE ? resolve->alias_keys : resolve->session_keys;
	return statement == STATEMENT_FAILED_PROBE ? resolve->alias_key_count : resolve->session_key_count;
}

static void build_alias_probe(struct batch *batch, enum statement_id statement)
{
	uint32_t count = 0, at = 0;
	const struct id *keys;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += alias_probe_keys(batch, i, statement, &keys);
	if (!count)
		return;
	c = segment_call(batch, statement, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		uint32_t n = alias_probe_keys(batch, i, statement, &keys);

		for (uint32_t k = 0; k < n; k++, at++) {
			set_int(&c[0], at, i);
			set_str(&c[1], at, resolve_of(batch->elements[i])->tenant);
			set_id(&c[2], at, keys[k]);
		}
	}
}

void build_resolves(struct batch *batch)
{
	uint32_t inbox = 0, waits = 0, kept = 0, at = 0;
	struct column *c;

	segment_begin(batch, 5);
	build_alias_probe(batch, STATEMENT_FAILED_PROBE);
	build_alias_probe(batch, STATEMENT_SESSION_FIND);
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
				.node = segment_field(resolve->base.arena, &f[4]),
				.deployment = segment_field(resolve->base.arena, &f[5]),
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

static void take_session_rows(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct store_resolve *resolve;

		assert(f[0].i >= 0 && f[0].i < batch->count);
		resolve = resolve_of(batch->elements[f[0].i]);
		if (!resolve->sessions)
			resolve->sessions = arena_alloc(resolve->base.arena, rows->row_count * sizeof(struct id));
		resolve->sessions[resolve->session_count++] = f[1].id;
	}
}

void take_resolves(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_resolve *resolve = resolve_of(batch->elements[i]);

		resolve->duplicate = false;
		resolve->duplicate_instance = ID_NONE;
		resolve->kept_ahead = false;
		resolve->failed = NULL;
		resolve->failed_count = 0;
		resolve->sessions = NULL;
		resolve->session_count = 0;
		resolve->waits = NULL;
		resolve->wait_count = 0;
	}
	for (uint32_t i = 0; i < batch->own.call_count; i++) {
		struct segment_call *call = &batch->own.calls[i];

		if (call->statement == STATEMENT_INBOX_PROBE)
			take_inbox_rows(batch, &call->rows);
		else if (call->statement == STATEMENT_KEPT_PROBE)
			take_kept_rows(batch, &call->rows);
		else if (call->statement == STATEMENT_SESSION_FIND)
			take_session_rows(batch, &call->rows);
		else if (call->statement == STATEMENT_FAILED_PROBE)
			take_failed_rows(batch, &call->rows);
		else
			take_wait_rows(batch, &call->rows);
	}
	for (uint32_t i = 0; i < batch->count; i++)
		store_answer(batch->store, batch->elements[i], STORE_OK);
}

/* --- probes --- */

void build_probes(struct batch *batch)
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

void take_probes(struct batch *batch)
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
			f[1].id, segment_field(probe->base.arena, &f[2]), segment_field(probe->base.arena, &f[3])};
	}
	for (uint32_t i = 0; i < batch->count; i++)
		store_answer(batch->store, batch->elements[i], STORE_OK);
}
