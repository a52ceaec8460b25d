/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every statement of statements.def on the in-memory tables: claims, the committed step, sweeps, leases, deployments, lists
 * and doubt. The outbox and kept messages have files of their own. What each does is said in statements.def; the SQL of store/pg is its twin,
 * and one test suite holds both to the same behaviour.
 */
#include "store/memory/statements.h"

#include <stdio.h>

#include "base/time.h"
#include "engine/instance.h"

/* --- what all need --- */

bool gate_fail(struct tx *tx, struct segment_call *call, const uint32_t *ordinals, uint32_t count)
{
	struct segment *segment = tx->segment;

	if (!count)
		return true;
	segment->outcome = SEGMENT_GATED;
	segment->gate = statement_info(call->statement)->gate;
	segment->failed = arena_memdup(segment->arena, ordinals, count * sizeof(*ordinals));
	segment->failed_count = count;
	return false;
}

bool statement_error(struct tx *tx, const char *sqlstate, const char *text)
{
	struct segment *segment = tx->segment;

	segment->outcome = SEGMENT_ERROR;
	snprintf(segment->sqlstate, sizeof(segment->sqlstate), "%s", sqlstate);
	snprintf(segment->text, sizeof(segment->text), "%s", text);
	return false;
}

bool insert_allowed(struct tx *tx, struct str tenant)
{
	return tx_sees(tx, tenant) ||
	       statement_error(tx, "42501", "new row violates row-level security policy");
}

struct field *emit(struct tx *tx, struct segment_call *call)
{
	struct rows *rows = &call->rows;
	uint32_t count = rows->row_count;

	rows->column_count = (uint32_t)strlen(statement_info(call->statement)->results);
	/* Full at powers of two from 8 on. */
	if (count == 0 || (count >= 8 && (count & (count - 1)) == 0)) {
		uint32_t cap = count ? count * 2 : 8;
		struct field *fields = arena_zalloc(
			tx->segment->arena, (size_t)cap * rows->column_count * sizeof(*fields));

		if (count)
			memcpy(fields, rows->fields,
			       (size_t)count * rows->column_count * sizeof(*fields));
		rows->fields = fields;
	}
	return &rows->fields[(size_t)rows->row_count++ * rows->column_count];
}

struct field field_out(struct tx *tx, enum table_id table, const struct row *row, uint32_t column)
{
	struct field field = row->fields[column];
	char type = tx->db->tables[table].types[column];

	if ((type == COLUMN_TEXT || type == COLUMN_BYTES) && !field.is_null)
		field.str = arena_str(tx->segment->arena, field.str);
	return field;
}

/* All columns of the row, from the first on. */
struct field *emit_nulls(struct tx *tx, struct segment_call *call)
{
	struct field *out = emit(tx, call);

	for (uint32_t i = 0; i < call->rows.column_count; i++)
		out[i] = field_null();
	return out;
}

void emit_once(struct tx *tx, struct segment_call *call, uint32_t first, uint32_t at, enum table_id table, const struct row *row,
	       uint32_t column)
{
	for (uint32_t i = first; i < call->rows.row_count; i++)
		if (str_equal(rows_at(&call->rows, i, at)->str, row->fields[column].str))
			return;
	emit_nulls(tx, call)[at] = field_out(tx, table, row, column);
}

static void emit_row(struct tx *tx, struct segment_call *call, enum table_id table,
		     const struct row *row)
{
	struct field *out = emit(tx, call);

	for (uint32_t i = 0; i < call->rows.column_count; i++)
		out[i] = field_out(tx, table, row, i);
}

struct field param_field(const struct column *param, uint32_t i)
{
	switch (param->type) {
	case COLUMN_INT:
		return field_int(param->ints[i]);
	case COLUMN_TIME:
		return field_time(param->ints[i]);
	case COLUMN_ID:
		return field_id(param->ids[i]);
	case COLUMN_BOOL:
		return field_bool(param->bools[i]);
	case COLUMN_TEXT:
	case COLUMN_BYTES:
		break;
	}
	return field_str(param->strs[i]);
}

void row_take(struct tx *tx, enum table_id table, struct row *row, uint32_t column,
	      const struct column *param, uint32_t i)
{
	row_init_field(row, column, param_field(param, i), tx->db->tables[table].types[column]);
}

/* The all-zero id stands for NULL here. */
static struct field id_or_null(struct id id)
{
	return id_is_none(id) ? field_null() : field_id(id);
}

static struct row *instance_find(struct tx *tx, struct str tenant, struct id id)
{
	struct field key = field_id(id);
	struct row *row = table_find(tx, TABLE_INSTANCE, &key, 1);

	if (!row || !str_equal(row->fields[INSTANCE_tenant].str, tenant) || !tx_sees(tx, tenant))
		return NULL;
	return row;
}

static bool instance_is_over(const struct row *row)
{
	return instance_status_is_terminal((enum instance_status)row->fields[INSTANCE_status].i);
}

static void claim_clear(struct tx *tx, struct row *row)
{
	tx_set(tx, TABLE_INSTANCE, row, INSTANCE_claim_owner, field_null());
	tx_set(tx, TABLE_INSTANCE, row, INSTANCE_claim_at, field_null());
}

/* --- claims --- */

static bool run_claim(struct tx *tx, struct segment_call *call)
{
	const struct column *ord = &call->params[0], *tenant = ord + 1, *id = ord + 2,
			    *owner = ord + 3;
	int64_t stale_us = tx->now_us - call->params[4].ints[0] * US_PER_MS;

	for (uint32_t i = 0; i < ord->count; i++) {
		struct row *row = instance_find(tx, tenant->strs[i], id->ids[i]);
		const struct field *f;
		struct field *out;

		if (!row || instance_is_over(row))
			continue;
		f = row->fields;
		if (!f[INSTANCE_claim_owner].is_null &&
		    !str_equal(f[INSTANCE_claim_owner].str, owner->strs[i]) &&
		    f[INSTANCE_claim_at].i >= stale_us)
			continue;
		tx_set(tx, TABLE_INSTANCE, row, INSTANCE_claim_owner, field_str(owner->strs[i]));
		tx_set(tx, TABLE_INSTANCE, row, INSTANCE_claim_at, field_time(tx->now_us));
		out = emit(tx, call);
		out[0] = field_int(ord->ints[i]);
		out[1] = f[INSTANCE_version];
		out[2] = f[INSTANCE_status];
		out[3] = field_out(tx, TABLE_INSTANCE, row, INSTANCE_deployment);
		out[4] = field_out(tx, TABLE_INSTANCE, row, INSTANCE_process);
		out[5] = field_out(tx, TABLE_INSTANCE, row, INSTANCE_snapshot);
	}
	return true;
}

static bool run_release(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = instance_find(tx, p[1].strs[i], p[2].ids[i]);

		if (row && str_equal(field_text(row->fields[INSTANCE_claim_owner]), p[3].strs[i]))
			claim_clear(tx, row);
	}
	return true;
}

/* --- resolve --- */

static bool run_inbox_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key = field_id(p[2].ids[i]), *out;
		struct row *row = table_find(tx, TABLE_INBOX, &key, 1);

		if (!row || !str_equal(row->fields[INBOX_tenant].str, p[1].strs[i]) ||
		    !tx_sees(tx, p[1].strs[i]))
			continue;
		out = emit(tx, call);
		out[0] = field_int(p[0].ints[i]);
		out[1] = row->fields[INBOX_instance];
		out[2] = row->fields[INBOX_created];
	}
	return true;
}

/* Oldest first; ties by instance and token. */
static int wait_row_compare(const void *a, const void *b)
{
	const struct field *x = (*(struct row *const *)a)->fields,
			   *y = (*(struct row *const *)b)->fields;
	int order;

	if (x[WAIT_created].i != y[WAIT_created].i)
		return x[WAIT_created].i < y[WAIT_created].i ? -1 : 1;
	order = id_compare(x[WAIT_instance].id, y[WAIT_instance].id);
	return order ? order
		     : (x[WAIT_token].i > y[WAIT_token].i) - (x[WAIT_token].i < y[WAIT_token].i);
}

static void wait_probe_key(struct tx *tx, struct segment_call *call, uint32_t i)
{
	const struct column *p = call->params;
	struct field key = field_id(p[2].ids[i]);
	struct row *first = table_from(tx, TABLE_WAIT, &key, 1), **found;
	uint32_t count = 0, n = 0;

	for (struct row *row = first; row && table_matches(tx, TABLE_WAIT, row, &key, 1);
	     row = table_next(row))
		count++;
	found = arena_alloc(tx->segment->arena, (count + 1) * sizeof(struct row *));
	for (struct row *row = first; n < count; row = table_next(row))
		found[n++] = row;
	qsort(found, count, sizeof(struct row *), wait_row_compare);
	for (n = 0; n < count; n++) {
		struct field *out;

		if (!str_equal(found[n]->fields[WAIT_tenant].str, p[1].strs[i]) ||
		    !tx_sees(tx, p[1].strs[i]))
			continue;
		out = emit(tx, call);
		out[0] = field_int(p[0].ints[i]);
		out[1] = key;
		out[2] = found[n]->fields[WAIT_instance];
		out[3] = found[n]->fields[WAIT_token];
		out[4] = field_out(tx, TABLE_WAIT, found[n], WAIT_node);
		out[5] = field_out(tx, TABLE_WAIT, found[n], WAIT_deployment);
		out[6] = found[n]->fields[WAIT_created];
	}
}

static bool run_wait_probe(struct tx *tx, struct segment_call *call)
{
	for (uint32_t i = 0; i < call->params[0].count; i++)
		wait_probe_key(tx, call, i);
	return true;
}

static bool run_failed_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key = field_id(p[2].ids[i]), *out;
		struct row *row = table_from(tx, TABLE_ALIAS, &key, 1), *inst;

		for (; row && table_matches(tx, TABLE_ALIAS, row, &key, 1); row = table_next(row)) {
			if (!str_equal(row->fields[ALIAS_tenant].str, p[1].strs[i]))
				continue;
			inst = instance_find(tx, p[1].strs[i], row->fields[ALIAS_instance].id);
			if (!inst || inst->fields[INSTANCE_status].i != INSTANCE_FAILED)
				continue;
			out = emit(tx, call);
			out[0] = field_int(p[0].ints[i]);
			out[1] = inst->fields[INSTANCE_id];
		}
	}
	return true;
}

/* --- the committed step --- */

static void fence_update_row(struct tx *tx, const struct column *p, uint32_t i, struct row *row)
{
	tx_set(tx, TABLE_INSTANCE, row, INSTANCE_version, field_int(p[4].ints[i] + 1));
	tx_set(tx, TABLE_INSTANCE, row, INSTANCE_status, field_int(p[5].ints[i]));
	if (p[6].bools[i])
		tx_set(tx, TABLE_INSTANCE, row, INSTANCE_ended, field_time(tx->now_us));
	tx_set(tx, TABLE_INSTANCE, row, INSTANCE_code, field_str(p[7].strs[i]));
	tx_set(tx, TABLE_INSTANCE, row, INSTANCE_detail, field_str(p[8].strs[i]));
	tx_set(tx, TABLE_INSTANCE, row, INSTANCE_snapshot, field_str(p[9].strs[i]));
	claim_clear(tx, row);
}

static bool run_fence_update(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	uint32_t count = p[0].count, failed_count = 0;
	uint32_t *failed = arena_alloc(tx->segment->arena, (count + 1) * sizeof(*failed));
	struct row **rows = arena_alloc(tx->segment->arena, (count + 1) * sizeof(struct row *));

	for (uint32_t i = 0; i < count; i++) {
		struct row *row = rows[i] = instance_find(tx, p[1].strs[i], p[2].ids[i]);

		if (!row ||
		    !str_equal(field_text(row->fields[INSTANCE_claim_owner]), p[3].strs[i]) ||
		    row->fields[INSTANCE_version].i != p[4].ints[i])
			failed[failed_count++] = (uint32_t)p[0].ints[i];
	}
	if (failed_count)
		return gate_fail(tx, call, failed, failed_count);
	for (uint32_t i = 0; i < count; i++)
		fence_update_row(tx, p, i, rows[i]);
	return true;
}

static bool run_fence_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = instance_find(tx, p[1].strs[i], p[2].ids[i]);
		struct field *out;

		if (!row)
			continue;
		out = emit(tx, call);
		out[0] = field_int(p[0].ints[i]);
		out[1] = field_out(tx, TABLE_INSTANCE, row, INSTANCE_claim_owner);
		out[2] = row->fields[INSTANCE_version];
	}
	return true;
}

/*
 * The shape of all inserts: one row an entry, columns filled by `fill`. What meets a taken key fails the statement's gate,
 * or is an error where the key can only be taken by a mistake (`plain`), or is left out.
 */
enum on_conflict { CONFLICT_GATE, CONFLICT_ERROR, CONFLICT_NOTHING };

static bool insert_all(struct tx *tx, struct segment_call *call, enum table_id table,
		       enum on_conflict on_conflict,
		       void (*fill)(struct tx *tx, const struct column *p, uint32_t i,
				    struct row *row))
{
	const struct column *p = call->params;
	uint32_t count = p[0].count, failed_count = 0;
	uint32_t *failed = arena_alloc(tx->segment->arena, (count + 1) * sizeof(*failed));

	for (uint32_t i = 0; i < count; i++) {
		struct row *row;

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		row = row_new(tx, table);
		fill(tx, p, i, row);
		if (tx_insert(tx, table, row) || on_conflict == CONFLICT_NOTHING)
			continue;
		if (on_conflict == CONFLICT_ERROR)
			return statement_error(tx, "23505",
					       "duplicate key value violates unique constraint");
		if (!failed_count || failed[failed_count - 1] != (uint32_t)p[0].ints[i])
			failed[failed_count++] = (uint32_t)p[0].ints[i];
	}
	return gate_fail(tx, call, failed, failed_count);
}

static void fill_inbox(struct tx *tx, const struct column *p, uint32_t i, struct row *row)
{
	row->fields[INBOX_key] = field_id(p[2].ids[i]);
	row_take(tx, TABLE_INBOX, row, INBOX_tenant, &p[1], i);
	row->fields[INBOX_instance] = id_or_null(p[3].ids[i]);
	row->fields[INBOX_created] = field_time(tx->now_us);
}

static bool run_inbox_insert(struct tx *tx, struct segment_call *call)
{
	return insert_all(tx, call, TABLE_INBOX, CONFLICT_GATE, fill_inbox);
}

static void fill_alias(struct tx *tx, const struct column *p, uint32_t i, struct row *row)
{
	row_take(tx, TABLE_ALIAS, row, ALIAS_tenant, &p[1], i);
	row_take(tx, TABLE_ALIAS, row, ALIAS_key, &p[2], i);
	row_take(tx, TABLE_ALIAS, row, ALIAS_slot, &p[3], i);
	row_take(tx, TABLE_ALIAS, row, ALIAS_instance, &p[4], i);
	row_take(tx, TABLE_ALIAS, row, ALIAS_name, &p[5], i);
	row_take(tx, TABLE_ALIAS, row, ALIAS_value, &p[6], i);
}

static bool run_alias_insert(struct tx *tx, struct segment_call *call)
{
	return insert_all(tx, call, TABLE_ALIAS, CONFLICT_ERROR, fill_alias);
}

static bool run_alias_insert_unique(struct tx *tx, struct segment_call *call)
{
	return insert_all(tx, call, TABLE_ALIAS, CONFLICT_GATE, fill_alias);
}

static void fill_wait(struct tx *tx, const struct column *p, uint32_t i, struct row *row)
{
	row_take(tx, TABLE_WAIT, row, WAIT_tenant, &p[1], i);
	row_take(tx, TABLE_WAIT, row, WAIT_key, &p[2], i);
	row_take(tx, TABLE_WAIT, row, WAIT_slot, &p[3], i);
	row_take(tx, TABLE_WAIT, row, WAIT_instance, &p[4], i);
	row_take(tx, TABLE_WAIT, row, WAIT_token, &p[5], i);
	row_take(tx, TABLE_WAIT, row, WAIT_node, &p[6], i);
	row_take(tx, TABLE_WAIT, row, WAIT_channel, &p[7], i);
	row_take(tx, TABLE_WAIT, row, WAIT_deployment, &p[8], i);
	row->fields[WAIT_created] = field_time(tx->now_us);
}

static bool run_wait_insert(struct tx *tx, struct segment_call *call)
{
	return insert_all(tx, call, TABLE_WAIT, CONFLICT_ERROR, fill_wait);
}

static bool run_wait_insert_unique(struct tx *tx, struct segment_call *call)
{
	return insert_all(tx, call, TABLE_WAIT, CONFLICT_GATE, fill_wait);
}

/* Deletes by (key, slot); both tables have the tenant third. */
static bool delete_slots(struct tx *tx, struct segment_call *call, enum table_id table)
{
	const struct column *p = call->params;

	_Static_assert((int)ALIAS_tenant == (int)WAIT_tenant, "the tenant's column is the same");
	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key[] = {field_id(p[2].ids[i]), field_id(p[3].ids[i])};
		struct row *row = table_find(tx, table, key, 2);

		if (row && str_equal(row->fields[ALIAS_tenant].str, p[1].strs[i]) &&
		    tx_sees(tx, p[1].strs[i]))
			tx_delete(tx, table, row);
	}
	return true;
}

static bool run_wait_delete(struct tx *tx, struct segment_call *call)
{
	return delete_slots(tx, call, TABLE_WAIT);
}

static bool run_alias_delete(struct tx *tx, struct segment_call *call)
{
	return delete_slots(tx, call, TABLE_ALIAS);
}

static void fill_instance(struct tx *tx, const struct column *p, uint32_t i, struct row *row)
{
	static const uint8_t columns[] = {INSTANCE_tenant,  INSTANCE_id,      INSTANCE_deployment,
					  INSTANCE_process, INSTANCE_status,  INSTANCE_version,
					  INSTANCE_started, INSTANCE_ended,   INSTANCE_code,
					  INSTANCE_detail,  INSTANCE_snapshot};

	for (uint32_t at = 0; at < ARRAY_LEN(columns); at++)
		if (columns[at] != INSTANCE_ended)
			row_take(tx, TABLE_INSTANCE, row, columns[at], &p[at + 1], i);
	if (p[8].bools[i])
		row->fields[INSTANCE_ended] = field_time(tx->now_us);
}

static bool run_instance_insert(struct tx *tx, struct segment_call *call)
{
	return insert_all(tx, call, TABLE_INSTANCE, CONFLICT_GATE, fill_instance);
}

static void fill_dead_letter(struct tx *tx, const struct column *p, uint32_t i, struct row *row)
{
	static const uint8_t columns[] = {
		DEAD_tenant,       DEAD_id,           DEAD_channel, DEAD_event_id, DEAD_source,
		DEAD_message_type, DEAD_code,         DEAD_detail,  DEAD_instance, DEAD_record_key,
		DEAD_headers,      DEAD_content_type, DEAD_payload};

	for (uint32_t at = 0; at < ARRAY_LEN(columns); at++)
		row_take(tx, TABLE_DEAD_LETTER, row, columns[at], &p[at + 1], i);
	row->fields[DEAD_instance] = id_or_null(row->fields[DEAD_instance].id);
	row->fields[DEAD_created] = field_time(tx->now_us);
	row->fields[DEAD_replays] = field_int(0);
}

static bool run_dead_letter_insert(struct tx *tx, struct segment_call *call)
{
	return insert_all(tx, call, TABLE_DEAD_LETTER, CONFLICT_NOTHING, fill_dead_letter);
}

static bool run_dead_letter_replace(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field id = field_id(p[2].ids[i]);
		struct row *row = table_find(tx, TABLE_DEAD_LETTER, &id, 1);

		if (!row || !tx_sees(tx, p[1].strs[i]) || !str_equal(row->fields[DEAD_tenant].str, p[1].strs[i]))
			continue;
		tx_set(tx, TABLE_DEAD_LETTER, row, DEAD_code, param_field(&p[7], i));
		tx_set(tx, TABLE_DEAD_LETTER, row, DEAD_detail, param_field(&p[8], i));
		tx_set(tx, TABLE_DEAD_LETTER, row, DEAD_instance, id_or_null(p[9].ids[i]));
	}
	return run_dead_letter_insert(tx, call);
}

static bool run_dead_letter_delete(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field id = field_id(p[2].ids[i]);
		struct row *row = table_find(tx, TABLE_DEAD_LETTER, &id, 1);

		if (row && tx_sees(tx, p[1].strs[i]) && str_equal(row->fields[DEAD_tenant].str, p[1].strs[i]))
			tx_delete(tx, TABLE_DEAD_LETTER, row);
	}
	return true;
}

/* --- leases --- */

static bool run_lease_acquire(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct field role = param_field(&p[0], 0), holder = param_field(&p[1], 0),
		     *out = emit(tx, call);
	struct field expires = field_time(tx->now_us + p[2].ints[0] * US_PER_MS);
	struct row *row = table_find(tx, TABLE_LEASE, &role, 1);
	bool held = true;

	if (!row) {
		row = row_new(tx, TABLE_LEASE);
		row_take(tx, TABLE_LEASE, row, LEASE_role, &p[0], 0);
		row_take(tx, TABLE_LEASE, row, LEASE_holder, &p[1], 0);
		row->fields[LEASE_term] = field_int(1);
		row->fields[LEASE_expires] = expires;
		held = tx_insert(tx, TABLE_LEASE, row);
	} else if (str_equal(field_text(row->fields[LEASE_holder]), holder.str)) {
		tx_set(tx, TABLE_LEASE, row, LEASE_expires, expires);
	} else if (row->fields[LEASE_holder].is_null || row->fields[LEASE_expires].i < tx->now_us) {
		tx_set(tx, TABLE_LEASE, row, LEASE_holder, holder);
		tx_set(tx, TABLE_LEASE, row, LEASE_term, field_int(row->fields[LEASE_term].i + 1));
		tx_set(tx, TABLE_LEASE, row, LEASE_expires, expires);
	} else {
		held = false;
	}
	out[0] = field_bool(held);
	out[1] = row->fields[LEASE_term];
	out[2] = field_out(tx, TABLE_LEASE, row, LEASE_holder);
	return true;
}

static bool run_lease_release(struct tx *tx, struct segment_call *call)
{
	struct field role = param_field(&call->params[0], 0);
	struct row *row = table_find(tx, TABLE_LEASE, &role, 1);

	if (row && str_equal(field_text(row->fields[LEASE_holder]), call->params[1].strs[0]))
		tx_set(tx, TABLE_LEASE, row, LEASE_holder, field_null());
	return true;
}

static bool run_lease_list(struct tx *tx, struct segment_call *call)
{
	for (struct row *row = table_first(tx, TABLE_LEASE); row; row = table_next(row))
		if (!row->fields[LEASE_holder].is_null)
			emit_row(tx, call, TABLE_LEASE, row);
	return true;
}

/* --- sweeps --- */

static bool run_claim_sweep(struct tx *tx, struct segment_call *call)
{
	struct field after = param_field(&call->params[0], 0), last = field_null(), *out;
	int64_t limit = call->params[1].ints[0], seen = 0, cleared = 0;
	int64_t stale_us = tx->now_us - call->params[2].ints[0] * US_PER_MS;

	for (struct row *row = table_after(tx, TABLE_INSTANCE, &after, 1); row && seen < limit;
	     row = table_next(row)) {
		seen++;
		last = row->fields[INSTANCE_id];
		if (row->fields[INSTANCE_claim_owner].is_null ||
		    row->fields[INSTANCE_claim_at].i >= stale_us)
			continue;
		claim_clear(tx, row);
		cleared++;
	}
	out = emit(tx, call);
	out[0] = field_int(seen);
	out[1] = field_int(cleared);
	out[2] = last;
	return true;
}

static bool run_instance_expired(struct tx *tx, struct segment_call *call)
{
	struct field after = param_field(&call->params[0], 0), last = field_null(), *out;
	int64_t limit = call->params[1].ints[0], seen = 0;
	int64_t before_us = tx->now_us - call->params[2].ints[0] * US_PER_MS;
	uint32_t expired;

	for (struct row *row = table_after(tx, TABLE_INSTANCE, &after, 1); row && seen < limit;
	     row = table_next(row)) {
		seen++;
		last = row->fields[INSTANCE_id];
		if (!instance_is_over(row) || row->fields[INSTANCE_ended].is_null ||
		    row->fields[INSTANCE_ended].i >= before_us)
			continue;
		out = emit_nulls(tx, call);
		out[0] = field_out(tx, TABLE_INSTANCE, row, INSTANCE_tenant);
		out[1] = row->fields[INSTANCE_id];
		out[2] = row->fields[INSTANCE_ended];
	}
	expired = call->rows.row_count;
	seen = 0;
	for (struct row *row = table_after(tx, TABLE_INSTANCE, &after, 1); row && seen < limit; row = table_next(row), seen++)
		if (!instance_is_over(row))
			emit_once(tx, call, expired, 3, TABLE_INSTANCE, row, INSTANCE_deployment);
	emit_nulls(tx, call)[1] = seen < limit ? field_null() : last;
	return true;
}

static bool run_instance_delete(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = instance_find(tx, p[0].strs[i], p[1].ids[i]);

		if (!row || !instance_is_over(row))
			continue;
		sessions_delete(tx, p[1].ids[i]);
		tx_delete(tx, TABLE_INSTANCE, row);
	}
	return true;
}

static bool run_inbox_purge(struct tx *tx, struct segment_call *call)
{
	int64_t limit = call->params[0].ints[0], removed = 0;
	int64_t before_us = tx->now_us - call->params[1].ints[0] * US_PER_MS;
	struct tree *by_age = &tx->db->tables[TABLE_INBOX].index;
	struct tree_node *node;

	while (removed < limit && (node = tree_first(by_age))) {
		struct row *row = container_of(node, struct row, index_node);

		if (row->fields[INBOX_created].i >= before_us)
			break;
		tx_delete(tx, TABLE_INBOX, row);
		removed++;
	}
	emit(tx, call)[0] = field_int(removed);
	return true;
}

/* There are few, and no index by age. */
static bool run_dead_letter_purge(struct tx *tx, struct segment_call *call)
{
	int64_t limit = call->params[0].ints[0], removed = 0;
	int64_t before_us = tx->now_us - call->params[1].ints[0] * US_PER_MS;

	for (struct row *row = table_first(tx, TABLE_DEAD_LETTER), *next; row && removed < limit; row = next) {
		next = table_next(row);
		if (row->fields[DEAD_created].i >= before_us)
			continue;
		tx_delete(tx, TABLE_DEAD_LETTER, row);
		removed++;
	}
	emit(tx, call)[0] = field_int(removed);
	return true;
}

/* --- deployments --- */

static bool run_deployment_put(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct field id = param_field(&p[0], 0);
	struct row *row = table_find(tx, TABLE_DEPLOYMENT, &id, 1);

	if (row) {
		tx_set(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_phase, param_field(&p[4], 0));
		if (!str_equal(p[4].strs[0], STR("Failed")))
			tx_set(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_pinned, field_bool(!str_equal(p[4].strs[0], STR("Retired"))));
		return true;
	}
	row = row_new(tx, TABLE_DEPLOYMENT);
	for (uint32_t i = 0; i < 5; i++)
		row_take(tx, TABLE_DEPLOYMENT, row, i, &p[i], 0);
	row_take(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_archive, &p[5], 0);
	row->fields[DEPLOYMENT_created] = field_time(tx->now_us);
	row->fields[DEPLOYMENT_pinned] = field_bool(!str_equal(p[4].strs[0], STR("Failed")) &&
							    !str_equal(p[4].strs[0], STR("Retired")));
	return tx_insert(tx, TABLE_DEPLOYMENT, row);
}

static bool run_deployment_list(struct tx *tx, struct segment_call *call)
{
	for (struct row *row = table_first(tx, TABLE_DEPLOYMENT); row; row = table_next(row))
		emit_row(tx, call, TABLE_DEPLOYMENT, row);
	return true;
}

static bool run_deployment_archive(struct tx *tx, struct segment_call *call)
{
	struct field id = param_field(&call->params[0], 0);
	struct row *row = table_find(tx, TABLE_DEPLOYMENT, &id, 1);

	if (row)
		emit(tx, call)[0] = field_out(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_archive);
	return true;
}

/* The phase of a deployment about which this is known now. */
static struct str phase_by_pin(struct str phase, bool pinned)
{
	if (!pinned && str_equal(phase, STR("Draining")))
		return STR("Retired");
	return pinned && str_equal(phase, STR("Retired")) ? STR("Draining") : phase;
}

static bool run_deployment_pins(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field id = param_field(&p[0], i), *out;
		struct row *row = table_find(tx, TABLE_DEPLOYMENT, &id, 1);
		struct str phase;

		if (!row)
			continue;
		tx_set(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_pinned, field_bool(p[1].bools[i]));
		phase = phase_by_pin(row->fields[DEPLOYMENT_phase].str, p[1].bools[i]);
		if (str_equal(phase, row->fields[DEPLOYMENT_phase].str))
			continue;
		tx_set(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_phase, field_str(phase));
		out = emit(tx, call);
		out[0] = field_out(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_id);
		out[1] = field_out(tx, TABLE_DEPLOYMENT, row, DEPLOYMENT_phase);
	}
	return true;
}

/* --- admin lists --- */

static bool instance_is_listed(const struct column *p, struct row *row)
{
	int64_t status = p[0].ints[0];
	struct str deployment = p[2].strs[0];

	if (status >= 0 ? row->fields[INSTANCE_status].i != status
			: !p[1].bools[0] && instance_is_over(row))
		return false;
	return !deployment.ptr || str_equal(row->fields[INSTANCE_deployment].str, deployment);
}

static bool run_instance_list(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct field after = param_field(&p[3], 0), last = field_null();
	int64_t look = p[4].ints[0], seen = 0;
	uint64_t limit = (uint64_t)p[5].ints[0];

	for (struct row *row = table_after(tx, TABLE_INSTANCE, &after, 1); row && seen < look && call->rows.row_count < limit;
	     row = table_next(row)) {
		if (!tx_sees(tx, row->fields[INSTANCE_tenant].str))
			continue;
		seen++;
		last = row->fields[INSTANCE_id];
		if (instance_is_listed(p, row))
			emit_row(tx, call, TABLE_INSTANCE, row);
	}
	if (seen == look && call->rows.row_count < limit)
		emit_nulls(tx, call)[0] = last;
	return true;
}

static bool run_alias_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key = field_id(p[1].ids[i]);
		struct row *row = table_from(tx, TABLE_ALIAS, &key, 1);

		for (; row && table_matches(tx, TABLE_ALIAS, row, &key, 1); row = table_next(row))
			if (str_equal(row->fields[ALIAS_tenant].str, p[0].strs[i]) &&
			    tx_sees(tx, p[0].strs[i]))
				emit(tx, call)[0] = row->fields[ALIAS_instance];
	}
	return true;
}

static bool get_row(struct tx *tx, struct segment_call *call, enum table_id table)
{
	struct field id = param_field(&call->params[0], 0);
	struct row *row = table_find(tx, table, &id, 1);

	_Static_assert((int)INSTANCE_tenant == (int)DEAD_tenant, "the tenant's column is the same");
	if (row && tx_sees(tx, row->fields[INSTANCE_tenant].str))
		emit_row(tx, call, table, row);
	return true;
}

static bool run_instance_get(struct tx *tx, struct segment_call *call)
{
	return get_row(tx, call, TABLE_INSTANCE);
}

static bool run_dead_letter_get(struct tx *tx, struct segment_call *call)
{
	return get_row(tx, call, TABLE_DEAD_LETTER);
}

static bool run_dead_letter_list(struct tx *tx, struct segment_call *call)
{
	struct field after = param_field(&call->params[0], 0);

	for (struct row *row = table_after(tx, TABLE_DEAD_LETTER, &after, 1);
	     row && call->rows.row_count < (uint64_t)call->params[1].ints[0]; row = table_next(row))
		if (tx_sees(tx, row->fields[DEAD_tenant].str))
			emit_row(tx, call, TABLE_DEAD_LETTER, row);
	return true;
}

/* --- doubt --- */

static bool run_backend_terminate(struct tx *tx, struct segment_call *call)
{
	emit(tx, call)[0] = field_bool(true);
	return true;
}

static bool run_xact_status(struct tx *tx, struct segment_call *call)
{
	struct memory_database *db = tx->db;
	uint64_t xid = (uint64_t)call->params[0].ints[0];
	struct field *out = emit(tx, call);

	*out = field_null();
	if (xid && xid <= db->xid && db->xid - xid < MEMORY_XACTS) {
		uint64_t bit = xid % MEMORY_XACTS;

		*out = field_str(db->committed[bit / 8] & (1u << (bit % 8)) ? STR("committed")
									    : STR("aborted"));
	}
	return true;
}

static bool run_ping(struct tx *tx, struct segment_call *call)
{
	emit(tx, call)[0] = field_int(1);
	return true;
}

static bool (*const runs[STATEMENT_COUNT])(struct tx *tx, struct segment_call *call) = {
	[STATEMENT_CLAIM] = run_claim,
	[STATEMENT_RELEASE] = run_release,
	[STATEMENT_INBOX_PROBE] = run_inbox_probe,
	[STATEMENT_WAIT_PROBE] = run_wait_probe,
	[STATEMENT_KEPT_PROBE] = run_kept_probe,
	[STATEMENT_FENCE_UPDATE] = run_fence_update,
	[STATEMENT_KEPT_DELETE] = run_kept_delete,
	[STATEMENT_INBOX_INSERT] = run_inbox_insert,
	[STATEMENT_WAIT_DELETE] = run_wait_delete,
	[STATEMENT_ALIAS_DELETE] = run_alias_delete,
	[STATEMENT_ALIAS_INSERT] = run_alias_insert,
	[STATEMENT_ALIAS_INSERT_UNIQUE] = run_alias_insert_unique,
	[STATEMENT_WAIT_INSERT] = run_wait_insert,
	[STATEMENT_WAIT_INSERT_UNIQUE] = run_wait_insert_unique,
	[STATEMENT_INSTANCE_INSERT] = run_instance_insert,
	[STATEMENT_OUTBOX_WITHDRAW] = run_outbox_withdraw,
	[STATEMENT_OUTBOX_INSERT] = run_outbox_insert,
	[STATEMENT_OUTBOX_INSERT_ONCE] = run_outbox_insert_once,
	[STATEMENT_DEAD_LETTER_INSERT] = run_dead_letter_insert,
	[STATEMENT_DEAD_LETTER_REPLACE] = run_dead_letter_replace,
	[STATEMENT_DEAD_LETTER_DELETE] = run_dead_letter_delete,
	[STATEMENT_KEPT_INSERT] = run_kept_insert,
	[STATEMENT_FENCE_PROBE] = run_fence_probe,
	[STATEMENT_KEPT_OWNER] = run_kept_owner,
	[STATEMENT_OUTBOX_SCAN] = run_outbox_scan,
	[STATEMENT_OUTBOX_SWEEP] = run_outbox_sweep,
	[STATEMENT_OUTBOX_LOAD] = run_outbox_load,
	[STATEMENT_OUTBOX_DELETE] = run_outbox_delete,
	[STATEMENT_OUTBOX_CLAIM_NEXT] = run_outbox_claim_next,
	[STATEMENT_OUTBOX_FREE_NEXT] = run_outbox_free_next,
	[STATEMENT_OUTBOX_FAIL] = run_outbox_fail,
	[STATEMENT_OUTBOX_RENEW] = run_outbox_renew,
	[STATEMENT_OUTBOX_RELEASE] = run_outbox_release,
	[STATEMENT_OUTBOX_REARM] = run_outbox_rearm,
	[STATEMENT_KEPT_LOAD] = run_kept_load,
	[STATEMENT_KEPT_RECOVER] = run_kept_recover,
	[STATEMENT_KEPT_RELEASE] = run_kept_release,
	[STATEMENT_KEPT_OWN] = run_kept_own,
	[STATEMENT_KEPT_LIST] = run_kept_list,
	[STATEMENT_KEPT_COUNTS] = run_kept_counts,
	[STATEMENT_KEPT_TAKE] = run_kept_take,
	[STATEMENT_FAILED_PROBE] = run_failed_probe,
	[STATEMENT_SESSION_FIND] = run_session_find,
	[STATEMENT_SESSION_LOCK] = run_session_mutex,
	[STATEMENT_SESSION_INSERT] = run_session_insert,
	[STATEMENT_SESSION_END] = run_session_end,
	[STATEMENT_OUTBOX_INSERT_POOLED] = run_outbox_insert_pooled,
	[STATEMENT_OUTBOX_POOL_LOCK] = run_session_mutex,
	[STATEMENT_OUTBOX_UNPOOL] = run_outbox_unpool,
	[STATEMENT_SLOT_DELETE] = run_slot_delete,
	[STATEMENT_CAP_LOCK] = run_session_mutex,
	[STATEMENT_CAP_CHANNEL] = run_cap_channel,
	[STATEMENT_CAP_TENANT] = run_cap_tenant,
	[STATEMENT_CAP_PROBE] = run_cap_probe,
	[STATEMENT_POOL_LOCK] = run_session_mutex,
	[STATEMENT_SLOT_TAKE] = run_slot_take,
	[STATEMENT_POOL_PROBE] = run_pool_probe,
	[STATEMENT_POOL_PUT] = run_pool_put,
	[STATEMENT_POOL_WAITING] = run_pool_waiting,
	[STATEMENT_POOL_LOCK_ONE] = run_pool_lock_one,
	[STATEMENT_POOL_SCAN] = run_pool_scan,
	[STATEMENT_POOL_MORE] = run_pool_more,
	[STATEMENT_POOL_LIST] = run_pool_list,
	[STATEMENT_SLOT_LIST] = run_slot_list,
	[STATEMENT_SLOT_SWEEP] = run_slot_sweep,
	[STATEMENT_POOL_SWEEP] = run_pool_sweep,
	[STATEMENT_POOL_CHECK] = run_pool_check,
	[STATEMENT_RATE_TAKE] = run_rate_take,
	[STATEMENT_EARLY_PROBE] = run_early_probe,
	[STATEMENT_EARLY_DELETE] = run_early_delete,
	[STATEMENT_EARLY_MARK] = run_early_mark,
	[STATEMENT_EARLY_INSERT] = run_early_insert,
	[STATEMENT_SCHEDULE_ADVANCE] = run_schedule_advance,
	[STATEMENT_TIMER_DELETE] = run_timer_delete,
	[STATEMENT_TIMER_INSERT] = run_timer_insert,
	[STATEMENT_SCHEDULE_PROBE] = run_schedule_probe,
	[STATEMENT_TIMER_DUE] = run_timer_due,
	[STATEMENT_TIMER_NEXT] = run_timer_next,
	[STATEMENT_TIMER_COUNTS] = run_timer_counts,
	[STATEMENT_TIMER_DROP] = run_timer_drop,
	[STATEMENT_TIMER_OF] = run_timer_of,
	[STATEMENT_TIMER_LIST] = run_timer_list,
	[STATEMENT_SCHEDULE_PUT] = run_schedule_put,
	[STATEMENT_SCHEDULE_LIST] = run_schedule_list,
	[STATEMENT_LEASE_ACQUIRE] = run_lease_acquire,
	[STATEMENT_LEASE_RELEASE] = run_lease_release,
	[STATEMENT_LEASE_PURGE] = run_lease_purge,
	[STATEMENT_LEASE_LIST] = run_lease_list,
	[STATEMENT_CLAIM_SWEEP] = run_claim_sweep,
	[STATEMENT_INSTANCE_EXPIRED] = run_instance_expired,
	[STATEMENT_INSTANCE_DELETE] = run_instance_delete,
	[STATEMENT_INBOX_PURGE] = run_inbox_purge,
	[STATEMENT_DEAD_LETTER_PURGE] = run_dead_letter_purge,
	[STATEMENT_DEPLOYMENT_PUT] = run_deployment_put,
	[STATEMENT_DEPLOYMENT_LIST] = run_deployment_list,
	[STATEMENT_DEPLOYMENT_ARCHIVE] = run_deployment_archive,
	[STATEMENT_DEPLOYMENT_PINS] = run_deployment_pins,
	[STATEMENT_OUTBOX_PINS] = run_outbox_pins,
	[STATEMENT_INSTANCE_LIST] = run_instance_list,
	[STATEMENT_ALIAS_PROBE] = run_alias_probe,
	[STATEMENT_INSTANCE_GET] = run_instance_get,
	[STATEMENT_OUTBOX_LIST] = run_outbox_list,
	[STATEMENT_DEAD_LETTER_LIST] = run_dead_letter_list,
	[STATEMENT_DEAD_LETTER_GET] = run_dead_letter_get,
	[STATEMENT_DEAD_LETTER_REPLAY] = run_dead_letter_replay,
	[STATEMENT_BACKEND_TERMINATE] = run_backend_terminate,
	[STATEMENT_XACT_STATUS] = run_xact_status,
	[STATEMENT_PING] = run_ping,
};

bool memory_statement_run(struct tx *tx, struct segment_call *call)
{
	call->rows = (struct rows){
		.column_count = (uint32_t)strlen(statement_info(call->statement)->results),
	};
	return runs[call->statement](tx, call);
}
