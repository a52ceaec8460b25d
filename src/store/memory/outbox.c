/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outbox statements on the in-memory tables. An order group is (instance, channel); only its head, the first unpoisoned
 * row, may be claimed (G6). Which heads are due is kept by tables.c.
 */
#include "base/time.h"
#include "store/memory/statements.h"

static void stamp_set(struct tx *tx, struct row *row, struct str owner)
{
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_claimed_at, field_time(tx->now_us));
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_claim_owner, field_str(owner));
}

static void stamp_clear(struct tx *tx, struct row *row)
{
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_claimed_at, field_null());
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_claim_owner, field_null());
}

static bool row_is_of(const struct row *row, struct str owner)
{
	return owner.ptr && str_equal(field_text(row->fields[OUTBOX_claim_owner]), owner);
}

/* The key columns of entry `i`, from parameter `first` on. */
static void key_take(const struct column *first, uint32_t i, struct field key[static 4])
{
	for (uint32_t at = 0; at < 4; at++)
		key[at] = param_field(&first[at], i);
}

/* The first row of the group of `row`, which is there, from the version on. */
static struct row *group_from(struct tx *tx, const struct row *row, int64_t version)
{
	struct field key[] = {row->fields[OUTBOX_instance], row->fields[OUTBOX_channel],
			      field_int(version)};

	return table_from(tx, TABLE_OUTBOX, key, 3);
}

/* Whether every unpoisoned row of the group before `row`, from `at` on, is claimed by the owner. */
static bool earlier_are_of(struct row *at, const struct row *row, struct str owner)
{
	for (; at && at != row; at = table_next(at))
		if (!at->fields[OUTBOX_poisoned].b && !row_is_of(at, owner))
			return false;
	return true;
}

static const uint8_t given[] = {OUTBOX_tenant,       OUTBOX_instance,    OUTBOX_channel,    OUTBOX_version, OUTBOX_ordinal,
				OUTBOX_id,           OUTBOX_deployment,  OUTBOX_connection, OUTBOX_destination,
				OUTBOX_correlation,  OUTBOX_record_key,  OUTBOX_headers,    OUTBOX_content_type,
				OUTBOX_body,         OUTBOX_required};

/* The new row of entry `i`, unclaimed. */
static struct row *row_given(struct tx *tx, const struct column *p, uint32_t i)
{
	struct row *row = row_new(tx, TABLE_OUTBOX);

	for (uint32_t at = 0; at < ARRAY_LEN(given); at++)
		row_take(tx, TABLE_OUTBOX, row, given[at], &p[at + 1], i);
	row->fields[OUTBOX_attempt_count] = field_int(0);
	row->fields[OUTBOX_created] = row->fields[OUTBOX_next_attempt] = field_time(tx->now_us);
	row->fields[OUTBOX_poisoned] = field_bool(false);
	return row;
}

bool run_outbox_insert_pooled(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row;

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		row = row_given(tx, p, i);
		row_take(tx, TABLE_OUTBOX, row, OUTBOX_pool, &p[16], i);
		row_take(tx, TABLE_OUTBOX, row, OUTBOX_call_key, &p[17], i);
		row_take(tx, TABLE_OUTBOX, row, OUTBOX_diagnostic, &p[18], i);
		if (!tx_insert(tx, TABLE_OUTBOX, row))
			return statement_error(tx, "23505", "duplicate key value violates unique constraint");
	}
	return true;
}

/* `once`: a row that is there already is left out; else it is an error. */
static bool insert(struct tx *tx, struct segment_call *call, bool once)
{
	const struct column *p = call->params;
	struct str owner = p[17].strs[0];

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row, *first;
		struct field *out;
		bool claimed;

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		row = row_given(tx, p, i);
		if (!tx_insert(tx, TABLE_OUTBOX, row)) {
			if (once)
				continue;
			return statement_error(tx, "23505",
					       "duplicate key value violates unique constraint");
		}
		first = group_from(tx, row, p[16].ints[i]);
		claimed = owner.ptr && earlier_are_of(first, row, owner);
		if (claimed)
			stamp_set(tx, row, owner);
		out = emit(tx, call);
		for (uint32_t at = 0; at < 4; at++)
			out[at] = field_out(tx, TABLE_OUTBOX, row, at);
		out[4] = field_bool(claimed);
		out[5] = first->fields[OUTBOX_version];
	}
	return true;
}

bool run_outbox_insert(struct tx *tx, struct segment_call *call)
{
	return insert(tx, call, false);
}

bool run_outbox_insert_once(struct tx *tx, struct segment_call *call)
{
	return insert(tx, call, true);
}

bool run_outbox_withdraw(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key[4];
		struct row *row;

		key_take(&p[2], i, key);
		row = table_find(tx, TABLE_OUTBOX, key, 4);
		if (row && str_equal(field_text(row->fields[OUTBOX_tenant]), p[1].strs[i]))
			tx_delete(tx, TABLE_OUTBOX, row);
	}
	return true;
}

/* The oldest due head of the tenant, or NULL. */
static struct row *due_first(struct tx *tx, struct outbox_due *due)
{
	struct tree_node *node = tree_first(&due->rows);
	struct row *row = node ? container_of(node, struct row, index_node) : NULL;

	return row && row->fields[OUTBOX_next_attempt].i <= tx->now_us ? row : NULL;
}

/* One row a tenant and round, beginning behind the tenant that was served last. */
bool run_outbox_scan(struct tx *tx, struct segment_call *call)
{
	struct str owner = call->params[0].strs[0];
	int64_t limit = call->params[1].ints[0], taken = 0;
	struct outbox_due *due = tx->db->due;
	uint32_t idle = 0, tenants = 0;

	for (struct outbox_due *at = tx->db->due; at; at = at->next)
		tenants++;
	while (due && tx->db->due_last.ptr && str_compare(due->tenant, tx->db->due_last) <= 0)
		due = due->next;
	while (taken < limit && idle < tenants) {
		struct row *row;
		struct field *out;

		if (!due)
			due = tx->db->due;
		row = due_first(tx, due);
		idle = row ? 0 : idle + 1;
		if (row) {
			stamp_set(tx, row, owner);
			out = emit(tx, call);
			out[0] = field_out(tx, TABLE_OUTBOX, row, OUTBOX_tenant);
			for (uint32_t at = 0; at < 4; at++)
				out[at + 1] = field_out(tx, TABLE_OUTBOX, row, at);
			tx->db->due_last = due->tenant;
			taken++;
		}
		due = due->next;
	}
	return true;
}

struct counts {
	int64_t waiting, claimed, poisoned, oldest;
};

static void counts_add(struct counts *counts, const struct row *row)
{
	int64_t created = row->fields[OUTBOX_created].i;

	if (row->fields[OUTBOX_poisoned].b) {
		counts->poisoned++;
		return;
	}
	if (row->fields[OUTBOX_claim_owner].is_null)
		counts->waiting++;
	else
		counts->claimed++;
	if (counts->oldest == COLUMN_TIME_NULL || created < counts->oldest)
		counts->oldest = created;
}

bool run_outbox_sweep(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	int64_t limit = p[4].ints[0], seen = 0, cleared = 0;
	int64_t stale_us = tx->now_us - p[5].ints[0] * US_PER_MS;
	struct counts counts = {.oldest = COLUMN_TIME_NULL};
	struct field after[4], *out;
	struct row *last = NULL;

	key_take(p, 0, after);
	for (struct row *row = table_after(tx, TABLE_OUTBOX, after, 4); row && seen < limit;
	     row = table_next(row)) {
		seen++;
		last = row;
		counts_add(&counts, row);
		if (row->fields[OUTBOX_claim_owner].is_null ||
		    row->fields[OUTBOX_claimed_at].i >= stale_us)
			continue;
		stamp_clear(tx, row);
		cleared++;
	}
	out = emit(tx, call);
	out[0] = field_int(seen);
	out[1] = field_int(cleared);
	out[2] = field_int(counts.waiting);
	out[3] = field_int(counts.claimed);
	out[4] = field_int(counts.poisoned);
	out[5] = field_time(counts.oldest);
	for (uint32_t at = 0; at < 4; at++)
		out[at + 6] = last ? field_out(tx, TABLE_OUTBOX, last, at) : field_null();
	return true;
}

static void emit_loaded(struct tx *tx, struct segment_call *call, struct row *row)
{
	static const uint8_t columns[] = {
		OUTBOX_tenant,       OUTBOX_instance,    OUTBOX_channel,    OUTBOX_version,
		OUTBOX_ordinal,      OUTBOX_id,          OUTBOX_deployment, OUTBOX_connection,
		OUTBOX_destination,  OUTBOX_correlation, OUTBOX_record_key, OUTBOX_headers,
		OUTBOX_content_type, OUTBOX_body,        OUTBOX_required,   OUTBOX_attempt_count,
		OUTBOX_created,      OUTBOX_call_key};
	struct field *out = emit(tx, call);

	for (uint32_t at = 0; at < ARRAY_LEN(columns); at++)
		out[at] = field_out(tx, TABLE_OUTBOX, row, columns[at]);
}

/* Row of entry `i`, whose tenant and key are the first parameters, if it is stamped by the owner; else NULL. */
static struct row *own_row(struct tx *tx, const struct column *p, uint32_t i, struct str owner)
{
	struct field key[4];
	struct row *row;

	key_take(&p[1], i, key);
	row = table_find(tx, TABLE_OUTBOX, key, 4);
	if (!row || !row_is_of(row, owner) ||
	    !str_equal(row->fields[OUTBOX_tenant].str, p[0].strs[i]) || !tx_sees(tx, p[0].strs[i]))
		return NULL;
	return row;
}

bool run_outbox_load(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = own_row(tx, p, i, p[5].strs[0]);

		if (row)
			emit_loaded(tx, call, row);
	}
	return true;
}

bool run_outbox_delete(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = own_row(tx, p, i, p[5].strs[0]);

		if (row)
			tx_delete(tx, TABLE_OUTBOX, row);
	}
	return true;
}

bool run_outbox_claim_next(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = outbox_head(tx, param_field(&p[1], i), param_field(&p[2], i));

		if (!row || !row->fields[OUTBOX_claim_owner].is_null || !row->fields[OUTBOX_pool].is_null ||
		    row->fields[OUTBOX_next_attempt].i > tx->now_us ||
		    !str_equal(row->fields[OUTBOX_tenant].str, p[0].strs[i]) ||
		    !tx_sees(tx, p[0].strs[i]))
			continue;
		stamp_set(tx, row, p[3].strs[0]);
		emit_loaded(tx, call, row);
	}
	return true;
}

/* Here heads are known at any time. */
bool run_outbox_free_next(struct tx *tx UNUSED, struct segment_call *call UNUSED)
{
	return true;
}

bool run_outbox_fail(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = own_row(tx, p, i, p[10].strs[0]);

		if (!row)
			continue;
		tx_set(tx, TABLE_OUTBOX, row, OUTBOX_attempt_count, param_field(&p[5], i));
		tx_set(tx, TABLE_OUTBOX, row, OUTBOX_next_attempt,
		       field_time(tx->now_us + p[6].ints[i] * US_PER_MS));
		tx_set(tx, TABLE_OUTBOX, row, OUTBOX_diagnostic, param_field(&p[7], i));
		tx_set(tx, TABLE_OUTBOX, row, OUTBOX_poisoned, param_field(&p[8], i));
		if (!p[9].bools[i])
			stamp_clear(tx, row);
	}
	return true;
}

bool run_outbox_renew(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = own_row(tx, p, i, p[5].strs[0]);
		struct field *out;

		if (!row)
			continue;
		tx_set(tx, TABLE_OUTBOX, row, OUTBOX_claimed_at, field_time(tx->now_us));
		out = emit(tx, call);
		for (uint32_t at = 0; at < 4; at++)
			out[at] = field_out(tx, TABLE_OUTBOX, row, at);
	}
	return true;
}

bool run_outbox_release(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = own_row(tx, p, i, p[5].strs[0]);

		if (row)
			stamp_clear(tx, row);
	}
	return true;
}

bool run_outbox_rearm(struct tx *tx, struct segment_call *call)
{
	struct id id = call->params[0].ids[0];
	struct row *row = table_first(tx, TABLE_OUTBOX);
	bool too_far = false;
	struct field *out;

	for (int64_t seen = 1; row && !(id_equal(row->fields[OUTBOX_id].id, id) && tx_sees(tx, row->fields[OUTBOX_tenant].str)); seen++) {
		row = table_next(row);
		too_far = seen >= call->params[1].ints[0];
	}
	if (!row || (too_far && !row->fields[OUTBOX_claim_owner].is_null))
		return true;
	out = emit(tx, call);
	out[0] = row->fields[OUTBOX_instance];
	out[1] = field_out(tx, TABLE_OUTBOX, row, OUTBOX_channel);
	out[2] = row->fields[OUTBOX_attempt_count];
	out[3] = row->fields[OUTBOX_poisoned];
	out[4] = field_out(tx, TABLE_OUTBOX, row, OUTBOX_claim_owner);
	if (!row->fields[OUTBOX_claim_owner].is_null)
		return true;
	if (row->fields[OUTBOX_poisoned].b)
		tx_set(tx, TABLE_OUTBOX, row, OUTBOX_attempt_count, field_int(0));
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_poisoned, field_bool(false));
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_next_attempt, field_time(tx->now_us));
	return true;
}

bool run_outbox_pins(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	int64_t limit = p[4].ints[0], seen = 0;
	struct row *last = NULL;
	struct field after[4], *out;

	key_take(p, 0, after);
	for (struct row *row = table_after(tx, TABLE_OUTBOX, after, 4); row && seen < limit; row = table_next(row), seen++) {
		last = row;
		if (!row->fields[OUTBOX_poisoned].b && !row->fields[OUTBOX_deployment].is_null)
			emit_once(tx, call, 0, 0, TABLE_OUTBOX, row, OUTBOX_deployment);
	}
	out = emit_nulls(tx, call);
	for (uint32_t at = 0; last && seen == limit && at < 4; at++)
		out[at + 1] = field_out(tx, TABLE_OUTBOX, last, at);
	return true;
}

bool run_outbox_list(struct tx *tx, struct segment_call *call)
{
	static const uint8_t columns[] = {
		OUTBOX_id,           OUTBOX_tenant,     OUTBOX_instance,      OUTBOX_channel,
		OUTBOX_version,      OUTBOX_ordinal,    OUTBOX_attempt_count, OUTBOX_created,
		OUTBOX_next_attempt, OUTBOX_claimed_at, OUTBOX_claim_owner,   OUTBOX_poisoned,
		OUTBOX_diagnostic};
	const struct column *p = call->params;
	struct field after[4], *out;

	key_take(p, 0, after);
	for (struct row *row = table_after(tx, TABLE_OUTBOX, after, 4);
	     row && call->rows.row_count < (uint64_t)p[4].ints[0]; row = table_next(row)) {
		if (!tx_sees(tx, row->fields[OUTBOX_tenant].str))
			continue;
		out = emit(tx, call);
		for (uint32_t at = 0; at < ARRAY_LEN(columns); at++)
			out[at] = field_out(tx, TABLE_OUTBOX, row, columns[at]);
	}
	return true;
}
