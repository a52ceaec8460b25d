/* SPDX-License-Identifier: Apache-2.0 */
/* Early messages on the in-memory tables. Their rows stand in order of the wait's key, and a second time by message. */
#include "store/memory/statements.h"

static struct row *message_of(struct tx *tx, struct str tenant, struct id id)
{
	struct field key = field_id(id);
	struct row *row = table_find(tx, TABLE_KEPT, &key, 1);

	if (!row || !tx_sees(tx, tenant) || !str_equal(row->fields[KEPT_tenant].str, tenant))
		return NULL;
	return row;
}

static bool same_text(struct field a, struct field b)
{
	return a.is_null == b.is_null && (a.is_null || str_equal(a.str, b.str));
}

/* Unless the answer has it already. */
static void emit_message(struct tx *tx, struct segment_call *call, int64_t ord, const struct row *message)
{
	const struct field *f = message->fields;
	struct field *out;

	for (uint32_t i = 0; i < call->rows.row_count; i++) {
		const struct field *row = rows_at(&call->rows, i, 0);

		if (row[0].i == ord && id_equal(row[1].id, f[KEPT_order_key].id) && same_text(row[2], f[KEPT_channel]) &&
		    same_text(row[3], f[KEPT_keeper]))
			return;
	}
	out = emit(tx, call);
	out[0] = field_int(ord);
	out[1] = field_out(tx, TABLE_KEPT, message, KEPT_order_key);
	out[2] = field_out(tx, TABLE_KEPT, message, KEPT_channel);
	out[3] = field_out(tx, TABLE_KEPT, message, KEPT_keeper);
}

bool run_early_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key = field_id(p[2].ids[i]);
		struct row *row = table_from(tx, TABLE_EARLY, &key, 1);

		for (; row && table_matches(tx, TABLE_EARLY, row, &key, 1); row = table_next(row)) {
			struct row *message = message_of(tx, p[1].strs[i], row->fields[EARLY_message].id);

			if (message)
				emit_message(tx, call, p[0].ints[i], message);
		}
	}
	return true;
}

static struct row *first_of_message(struct tx *tx, struct id message)
{
	struct field key = field_id(message);
	struct tree *by_message = &tx->db->tables[TABLE_EARLY].index;
	struct tree_node *node = tree_from(by_message, &key, 1);

	return node && tree_matches(by_message, node, &key, 1) ? container_of(node, struct row, index_node) : NULL;
}

bool run_early_delete(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct row *row;

	for (uint32_t i = 0; i < p[0].count; i++)
		while (tx_sees(tx, p[1].strs[i]) && (row = first_of_message(tx, p[2].ids[i])) &&
		       str_equal(row->fields[EARLY_tenant].str, p[1].strs[i]))
			tx_delete(tx, TABLE_EARLY, row);
	return true;
}

bool run_early_mark(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = message_of(tx, p[1].strs[i], p[2].ids[i]);

		if (!row || row->fields[KEPT_keeper].is_null || !str_equal(row->fields[KEPT_keeper].str, p[3].strs[i]))
			continue;
		if (!str_equal(row->fields[KEPT_kind].str, STR("target")))
			tx_set(tx, TABLE_KEPT, row, KEPT_kind, field_str(STR("early")));
		tx_set(tx, TABLE_KEPT, row, KEPT_unmatched, param_field(&p[4], i));
	}
	return true;
}

bool run_early_insert(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row;

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		if (!message_of(tx, p[1].strs[i], p[3].ids[i]))
			continue;
		row = row_new(tx, TABLE_EARLY);
		row_take(tx, TABLE_EARLY, row, EARLY_tenant, &p[1], i);
		row_take(tx, TABLE_EARLY, row, EARLY_key, &p[2], i);
		row_take(tx, TABLE_EARLY, row, EARLY_message, &p[3], i);
		if (!tx_insert(tx, TABLE_EARLY, row))
			continue; /* it is there already */
	}
	return true;
}
