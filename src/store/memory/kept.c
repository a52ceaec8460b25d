/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept messages on the in-memory tables, and the purge of leases. Rows are ordered a second time by (order_key, seq), for what
 * stands first of a key; recovery looks through the whole table, which is empty or small.
 */
#include "base/buf.h"
#include "base/time.h"
#include "store/memory/statements.h"

static struct row *kept_find(struct tx *tx, struct str tenant, struct id id)
{
	struct field key = field_id(id);
	struct row *row = table_find(tx, TABLE_KEPT, &key, 1);

	if (!row || !str_equal(row->fields[KEPT_tenant].str, tenant) || !tx_sees(tx, tenant))
		return NULL;
	return row;
}

static bool kept_is_of(const struct row *row, struct str keeper)
{
	return !row->fields[KEPT_keeper].is_null && str_equal(row->fields[KEPT_keeper].str, keeper);
}

static struct row *row_of_index(struct tree_node *node)
{
	return node ? container_of(node, struct row, index_node) : NULL;
}

/* The first row of the key that the tenant has, and those behind it; NULL if there is none. */
static struct row *kept_visible(struct row *row, struct str tenant, struct id order_key)
{
	while (row && id_equal(row->fields[KEPT_order_key].id, order_key) &&
	       !str_equal(row->fields[KEPT_tenant].str, tenant))
		row = row_of_index(tree_next(&row->index_node));
	return row && id_equal(row->fields[KEPT_order_key].id, order_key) ? row : NULL;
}

static struct row *kept_first(struct tx *tx, struct str tenant, struct id order_key)
{
	struct field key = field_id(order_key);
	struct tree *by_order = &tx->db->tables[TABLE_KEPT].index;

	if (!tx_sees(tx, tenant))
		return NULL;
	return kept_visible(row_of_index(tree_from(by_order, &key, 1)), tenant, order_key);
}

static struct row *kept_next(struct row *row)
{
	return kept_visible(row_of_index(tree_next(&row->index_node)), row->fields[KEPT_tenant].str,
			    row->fields[KEPT_order_key].id);
}

bool run_kept_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = kept_first(tx, p[1].strs[i], p[2].ids[i]);

		if (row && row->fields[KEPT_seq].i < p[3].ints[i])
			emit(tx, call)[0] = field_int(p[0].ints[i]);
	}
	return true;
}

bool run_kept_delete(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	uint32_t count = p[0].count, failed_count = 0;
	uint32_t *failed = arena_alloc(tx->segment->arena, (count + 1) * sizeof(*failed));

	for (uint32_t i = 0; i < count; i++) {
		struct row *row = kept_find(tx, p[1].strs[i], p[2].ids[i]);

		if (row && kept_is_of(row, p[3].strs[i]))
			tx_delete(tx, TABLE_KEPT, row);
		else
			failed[failed_count++] = (uint32_t)p[0].ints[i];
	}
	return gate_fail(tx, call, failed, failed_count);
}

bool run_kept_insert(struct tx *tx, struct segment_call *call)
{
	static const uint8_t columns[] = {KEPT_tenant, KEPT_id,       KEPT_order_key,
					  KEPT_channel, KEPT_kind,    KEPT_keeper,  KEPT_source,
					  KEPT_envelope, KEPT_body,   KEPT_unmatched};
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row;

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		row = row_new(tx, TABLE_KEPT);
		for (uint32_t at = 0; at < ARRAY_LEN(columns); at++)
			row_take(tx, TABLE_KEPT, row, columns[at], &p[at + 1], i);
		row->fields[KEPT_seq] = field_int(++tx->db->kept_seq);
		row->fields[KEPT_created] = field_time(tx->now_us);
		if (!tx_insert(tx, TABLE_KEPT, row))
			continue; /* kept before */
	}
	return true;
}

/* The body is the dead letter's payload. */
bool run_dead_letter_replay(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct field id = param_field(&p[0], 0), kept_id = param_field(&p[3], 0);
	struct row *letter = table_find(tx, TABLE_DEAD_LETTER, &id, 1), *row;
	struct field *fields;

	if (!letter || !tx_sees(tx, letter->fields[DEAD_tenant].str) || letter->fields[DEAD_replays].i != p[1].ints[0] ||
	    kept_find(tx, letter->fields[DEAD_tenant].str, p[2].ids[0]))
		return true;
	fields = letter->fields;
	row = row_new(tx, TABLE_KEPT);
	row->fields[KEPT_id] = row->fields[KEPT_order_key] = kept_id;
	row_init_field(row, KEPT_tenant, fields[DEAD_tenant], COLUMN_TEXT);
	row_init_field(row, KEPT_channel, fields[DEAD_channel], COLUMN_TEXT);
	row_init_field(row, KEPT_kind, field_str(STR("replay")), COLUMN_TEXT);
	row_take(tx, TABLE_KEPT, row, KEPT_source, &p[4], 0);
	row_take(tx, TABLE_KEPT, row, KEPT_envelope, &p[5], 0);
	row_init_field(row, KEPT_body, fields[DEAD_payload], COLUMN_BYTES);
	row->fields[KEPT_seq] = field_int(++tx->db->kept_seq);
	row->fields[KEPT_created] = field_time(tx->now_us);
	if (!tx_insert(tx, TABLE_KEPT, row))
		return statement_error(tx, "23505", "duplicate key value violates unique constraint");
	tx_set(tx, TABLE_DEAD_LETTER, letter, DEAD_replays, field_int(p[1].ints[0] + 1));
	emit(tx, call)[0] = kept_id;
	return true;
}

bool run_kept_owner(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = kept_find(tx, p[1].strs[i], p[2].ids[i]);
		struct field *out;

		if (!row)
			continue;
		out = emit(tx, call);
		out[0] = field_int(p[0].ints[i]);
		out[1] = field_out(tx, TABLE_KEPT, row, KEPT_keeper);
	}
	return true;
}

bool run_kept_load(struct tx *tx, struct segment_call *call)
{
	static const uint8_t columns[] = {KEPT_order_key, KEPT_id,       KEPT_seq, KEPT_created,
					  KEPT_unmatched, KEPT_envelope, KEPT_body};
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *first = kept_first(tx, p[0].strs[i], p[1].ids[i]), *row = first;
		struct field *out;

		while (row && !kept_is_of(row, p[2].strs[0]))
			row = kept_next(row);
		if (!row)
			continue;
		out = emit(tx, call);
		for (uint32_t at = 0; at < ARRAY_LEN(columns); at++)
			out[at] = field_out(tx, TABLE_KEPT, row, columns[at]);
		out[7] = field_bool(row != first);
	}
	return true;
}

static bool keeper_lives(struct tx *tx, struct field keeper)
{
	struct buf role = BUF_INIT;
	struct field key;
	struct row *lease;

	buf_add_text(&role, "keeper:");
	buf_add_str(&role, keeper.str);
	key = field_str(buf_str(&role));
	lease = table_find(tx, TABLE_LEASE, &key, 1);
	buf_done(&role);
	return lease && !lease->fields[LEASE_holder].is_null &&
	       lease->fields[LEASE_expires].i > tx->now_us;
}

static bool kept_is_at(struct tx *tx, const struct row *row, struct str tenant, struct str channel)
{
	return tx_sees(tx, tenant) && str_equal(row->fields[KEPT_tenant].str, tenant) &&
	       str_equal(row->fields[KEPT_channel].str, channel);
}

static int seq_compare(const void *a, const void *b)
{
	int64_t x = (*(struct row *const *)a)->fields[KEPT_seq].i,
		y = (*(struct row *const *)b)->fields[KEPT_seq].i;

	return (x > y) - (x < y);
}

/* What nobody alive keeps at this place, the oldest first. */
static struct row **kept_lost(struct tx *tx, const struct column *p, uint32_t *count)
{
	size_t most = tx->db->tables[TABLE_KEPT].rows.count + 1;
	struct row **lost = arena_alloc(tx->segment->arena, most * sizeof(struct row *));

	*count = 0;
	for (struct row *row = table_first(tx, TABLE_KEPT); row; row = table_next(row)) {
		struct field keeper = row->fields[KEPT_keeper];

		if (!kept_is_at(tx, row, p[0].strs[0], p[1].strs[0]) || kept_is_of(row, p[2].strs[0]))
			continue;
		if (keeper.is_null || !keeper_lives(tx, keeper))
			lost[(*count)++] = row;
	}
	qsort(lost, *count, sizeof(struct row *), seq_compare);
	return lost;
}

static void count_key(struct tx *tx, struct segment_call *call, struct id order_key)
{
	struct field *out;

	for (uint32_t i = 0; i < call->rows.row_count; i++) {
		out = &call->rows.fields[(size_t)i * call->rows.column_count];
		if (id_equal(out[0].id, order_key)) {
			out[1].i++;
			return;
		}
	}
	out = emit(tx, call);
	out[0] = field_id(order_key);
	out[1] = field_int(1);
}

bool run_kept_recover(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	uint32_t count;
	struct row **lost = kept_lost(tx, p, &count);

	for (uint32_t i = 0; i < count && i < (uint64_t)p[3].ints[0]; i++) {
		tx_set(tx, TABLE_KEPT, lost[i], KEPT_keeper, param_field(&p[2], 0));
		count_key(tx, call, lost[i]->fields[KEPT_order_key].id);
	}
	return true;
}

bool run_kept_take(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = kept_first(tx, p[1].strs[0], p[0].ids[i]);

		for (; row; row = kept_next(row)) {
			if (kept_is_of(row, p[3].strs[0]) || !str_equal(row->fields[KEPT_channel].str, p[2].strs[0]))
				continue;
			tx_set(tx, TABLE_KEPT, row, KEPT_keeper, param_field(&p[3], 0));
			count_key(tx, call, row->fields[KEPT_order_key].id);
		}
	}
	return true;
}

/* The keeper's first row at the place behind `seq`, or NULL. */
static struct row *own_after(struct tx *tx, const struct column *p, int64_t seq)
{
	struct row *first = NULL;

	for (struct row *row = table_first(tx, TABLE_KEPT); row; row = table_next(row))
		if (row->fields[KEPT_seq].i > seq && kept_is_at(tx, row, p[0].strs[0], p[1].strs[0]) &&
		    kept_is_of(row, p[2].strs[0]) && (!first || row->fields[KEPT_seq].i < first->fields[KEPT_seq].i))
			first = row;
	return first;
}

bool run_kept_release(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	int64_t released = 0;
	struct row *row;

	while (released < p[3].ints[0] && (row = own_after(tx, p, INT64_MIN))) {
		tx_set(tx, TABLE_KEPT, row, KEPT_keeper, field_null());
		released++;
	}
	emit(tx, call)[0] = field_int(released);
	return true;
}

bool run_kept_own(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct row *row = own_after(tx, p, p[3].ints[0]);

	for (; row && call->rows.row_count < (uint64_t)p[4].ints[0]; row = own_after(tx, p, row->fields[KEPT_seq].i)) {
		struct field *out = emit(tx, call);

		out[0] = row->fields[KEPT_order_key];
		out[1] = row->fields[KEPT_seq];
	}
	return true;
}

static bool kept_is_listed(const struct column *p, const struct row *row)
{
	struct str tenant = p[0].strs[0], channel = p[1].strs[0];

	return (!tenant.ptr || str_equal(row->fields[KEPT_tenant].str, tenant)) &&
	       (!channel.ptr || str_equal(row->fields[KEPT_channel].str, channel));
}

bool run_kept_list(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct field after = param_field(&p[2], 0), last = field_null();
	int64_t look = p[3].ints[0], seen = 0;
	uint64_t limit = (uint64_t)p[4].ints[0];

	for (struct row *row = table_after(tx, TABLE_KEPT, &after, 1); row && seen < look && call->rows.row_count < limit;
	     row = table_next(row)) {
		struct field body = row->fields[KEPT_body], *out;

		if (!tx_sees(tx, row->fields[KEPT_tenant].str))
			continue;
		seen++;
		last = row->fields[KEPT_id];
		if (!kept_is_listed(p, row))
			continue;
		out = emit(tx, call);
		for (uint32_t at = KEPT_id; at <= KEPT_unmatched; at++)
			out[at] = field_out(tx, TABLE_KEPT, row, at);
		out[KEPT_unmatched + 1] = body.is_null ? field_null() : field_int((int64_t)body.str.len);
	}
	if (seen == look && call->rows.row_count < limit)
		emit_nulls(tx, call)[KEPT_id] = last;
	return true;
}

static int place_compare(const struct field *a, const struct row *b)
{
	int order = str_compare(a[0].str, b->fields[KEPT_tenant].str);

	return order ? order : str_compare(a[1].str, b->fields[KEPT_channel].str);
}

/* The line of the row's place, made if there is none yet; lines stand in order. */
static struct field *place_line(struct tx *tx, struct segment_call *call, const struct row *row)
{
	uint32_t width = 4, at = 0;
	struct field *out;

	while (at < call->rows.row_count && place_compare(&call->rows.fields[at * width], row) < 0)
		at++;
	if (at < call->rows.row_count && place_compare(&call->rows.fields[at * width], row) == 0)
		return &call->rows.fields[at * width];
	emit(tx, call);
	out = &call->rows.fields[at * width];
	memmove(out + width, out, (size_t)(call->rows.row_count - 1 - at) * width * sizeof(*out));
	out[0] = field_out(tx, TABLE_KEPT, row, KEPT_tenant);
	out[1] = field_out(tx, TABLE_KEPT, row, KEPT_channel);
	out[2] = field_int(0);
	out[3] = row->fields[KEPT_created];
	return out;
}

bool run_kept_counts(struct tx *tx, struct segment_call *call)
{
	for (struct row *row = table_first(tx, TABLE_KEPT); row; row = table_next(row)) {
		struct field *out = place_line(tx, call, row);

		if (out[2].i >= call->params[0].ints[0])
			continue;
		out[2].i++;
		if (row->fields[KEPT_created].i < out[3].i)
			out[3] = row->fields[KEPT_created];
	}
	return true;
}

bool run_lease_purge(struct tx *tx, struct segment_call *call)
{
	struct str prefix = call->params[0].strs[0];
	int64_t before_us = tx->now_us - call->params[1].ints[0] * US_PER_MS;
	struct row *row = table_first(tx, TABLE_LEASE), *next;

	for (; row; row = next) {
		next = table_next(row);
		if (str_starts_with(row->fields[LEASE_role].str, prefix) &&
		    row->fields[LEASE_expires].i < before_us)
			tx_delete(tx, TABLE_LEASE, row);
	}
	return true;
}
