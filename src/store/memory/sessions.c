/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions, what ends with them, and caps, on the in-memory tables. Segments run one at a time: what locks has nothing to do. */
#include "store/memory/statements.h"

#include "store/store.h"

bool run_session_mutex(struct tx *tx UNUSED, struct segment_call *call UNUSED)
{
	return true;
}

struct row *session_find(struct tx *tx, struct str tenant, struct id instance, struct str call_key)
{
	struct field key[] = {field_id(instance), field_str(call_key)};
	struct row *row = table_find(tx, TABLE_SESSION, key, 2);

	if (!row || !str_equal(row->fields[SESSION_tenant].str, tenant) || !tx_sees(tx, tenant))
		return NULL;
	return row;
}

static bool session_is_open(const struct row *row)
{
	return row && row->fields[SESSION_ended].is_null;
}

bool call_is_over(struct tx *tx, struct str tenant, struct id instance, struct str call_key)
{
	struct row *call = session_find(tx, tenant, instance, call_key);

	return !session_is_open(session_find(tx, tenant, instance, STR(""))) || (call && !session_is_open(call));
}

void sessions_delete(struct tx *tx, struct id instance)
{
	static const enum table_id tables[] = {TABLE_SESSION, TABLE_SLOT};
	struct field key = field_id(instance);

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		struct row *row = table_from(tx, tables[i], &key, 1);

		while (row && table_matches(tx, tables[i], row, &key, 1)) {
			struct row *next = table_next(row);

			tx_delete(tx, tables[i], row);
			row = next;
		}
	}
}

/* Each session once an element: an instance may carry several of the aliases. */
static bool is_emitted(const struct rows *rows, int64_t ord, struct id instance)
{
	for (uint32_t i = 0; i < rows->row_count; i++)
		if (rows_at(rows, i, 0)->i == ord && id_equal(rows_at(rows, i, 1)->id, instance))
			return true;
	return false;
}

bool run_session_find(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key = field_id(p[2].ids[i]), *out;
		struct row *row = table_from(tx, TABLE_ALIAS, &key, 1);

		for (; row && table_matches(tx, TABLE_ALIAS, row, &key, 1); row = table_next(row)) {
			struct id instance = row->fields[ALIAS_instance].id;

			if (!str_equal(row->fields[ALIAS_tenant].str, p[1].strs[i]) ||
			    !session_is_open(session_find(tx, p[1].strs[i], instance, STR(""))) ||
			    is_emitted(&call->rows, p[0].ints[i], instance))
				continue;
			out = emit(tx, call);
			out[0] = field_int(p[0].ints[i]);
			out[1] = field_id(instance);
		}
	}
	return true;
}

bool run_session_insert(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field token = p[7].ints[i] ? field_int(p[7].ints[i]) : field_null();
		struct row *row;

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		row = session_find(tx, p[1].strs[i], p[2].ids[i], p[3].strs[i]);
		if (row) {
			if (session_is_open(row) && !token.is_null)
				tx_set(tx, TABLE_SESSION, row, SESSION_token, token);
			continue;
		}
		row = row_new(tx, TABLE_SESSION);
		row_take(tx, TABLE_SESSION, row, SESSION_tenant, &p[1], i);
		row_take(tx, TABLE_SESSION, row, SESSION_instance, &p[2], i);
		row_take(tx, TABLE_SESSION, row, SESSION_call_key, &p[3], i);
		row_take(tx, TABLE_SESSION, row, SESSION_channel, &p[4], i);
		row_take(tx, TABLE_SESSION, row, SESSION_inbound, &p[5], i);
		row_take(tx, TABLE_SESSION, row, SESSION_counts, &p[6], i);
		row->fields[SESSION_token] = token;
		if (!tx_insert(tx, TABLE_SESSION, row))
			return statement_error(tx, "23505", "duplicate key value violates unique constraint");
	}
	return true;
}

/* --- ends --- */

static void count_end(struct tx *tx, struct row *own)
{
	if (own->fields[SESSION_counts].b)
		tx_set(tx, TABLE_SESSION, own, SESSION_counts, field_bool(false));
}

static void call_end(struct tx *tx, struct row *own, struct row *call)
{
	tx_set(tx, TABLE_SESSION, call, SESSION_ended, field_time(tx->now_us));
	if (call->fields[SESSION_inbound].b)
		count_end(tx, own);
}

/* Whether the end, which names no key, is that of this call. */
static bool is_meant(const struct row *row, enum store_end what, int64_t token)
{
	if (what == STORE_END_INBOUND)
		return row->fields[SESSION_inbound].b;
	return !row->fields[SESSION_inbound].b && !row->fields[SESSION_token].is_null && row->fields[SESSION_token].i == token;
}

static void calls_end(struct tx *tx, struct row *own, enum store_end what, int64_t token)
{
	struct field key = own->fields[SESSION_instance];

	for (struct row *row = table_next(own); row && table_matches(tx, TABLE_SESSION, row, &key, 1); row = table_next(row))
		if (session_is_open(row) && is_meant(row, what, token))
			call_end(tx, own, row);
}

bool run_session_end(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	/* Those of whole sessions last: as in one statement, they hide none of the others. */
	for (int all = 0; all < 2; all++)
		for (uint32_t i = 0; i < p[0].count; i++) {
			struct row *own = session_find(tx, p[1].strs[i], p[2].ids[i], STR("")), *row;
			enum store_end what = (enum store_end)p[3].ints[i];

			if (!session_is_open(own) || (what == STORE_END_ALL) != all || what == STORE_END_NOTHING)
				continue;
			if (what == STORE_END_ALL) {
				tx_set(tx, TABLE_SESSION, own, SESSION_ended, field_time(tx->now_us));
				count_end(tx, own);
			} else if (what == STORE_END_CALL_KEY) {
				row = p[4].strs[i].len ? session_find(tx, p[1].strs[i], p[2].ids[i], p[4].strs[i]) : NULL;
				if (session_is_open(row))
					call_end(tx, own, row);
			} else {
				calls_end(tx, own, what, p[5].ints[i]);
			}
		}
	return true;
}

bool run_outbox_unpool(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key = field_id(p[2].ids[i]);
		struct row *row = table_from(tx, TABLE_OUTBOX, &key, 1);

		for (; row && table_matches(tx, TABLE_OUTBOX, row, &key, 1); row = table_next(row)) {
			struct str call_key = field_text(row->fields[OUTBOX_call_key]);

			if (row->fields[OUTBOX_pool].is_null || !str_equal(row->fields[OUTBOX_tenant].str, p[1].strs[i]) ||
			    (!call_is_over(tx, p[1].strs[i], p[2].ids[i], call_key) &&
			     !slot_is_held(tx, p[2].ids[i], row->fields[OUTBOX_pool].str, call_key)))
				continue;
			outbox_unpool(tx, row);
			emit(tx, call)[0] = field_int(p[0].ints[i]);
		}
	}
	return true;
}

bool run_slot_delete(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field key = field_id(p[2].ids[i]), *out;
		struct row *row = table_from(tx, TABLE_SLOT, &key, 1), *next;

		for (; row && table_matches(tx, TABLE_SLOT, row, &key, 1); row = next) {
			next = table_next(row);
			if (!str_equal(row->fields[SLOT_tenant].str, p[1].strs[i]) ||
			    !call_is_over(tx, p[1].strs[i], p[2].ids[i], row->fields[SLOT_call_key].str))
				continue;
			out = emit(tx, call);
			out[0] = field_int(p[0].ints[i]);
			out[1] = field_out(tx, TABLE_SLOT, row, SLOT_pool);
			tx_delete(tx, TABLE_SLOT, row);
		}
	}
	return true;
}

/* --- caps --- */

/* How many count, of the channel or with none of the whole tenant; at most `most` are looked at. */
static int64_t counting(struct tx *tx, struct str tenant, struct str channel, int64_t most)
{
	struct tree *tree = &tx->db->tables[TABLE_SESSION].index;
	struct field key[] = {field_str(tenant), field_str(channel)};
	uint32_t columns = channel.ptr ? 2 : 1;
	struct tree_node *node = tree_from(tree, key, columns);
	int64_t count = 0;

	for (; node && count < most && tree_matches(tree, node, key, columns); node = tree_next(node))
		count++;
	return count;
}

/* Rows of the batch stand in the table already: each element sees itself and, of those that count, the earlier ones. */
static bool cap_check(struct tx *tx, struct segment_call *call, bool of_channel)
{
	const struct column *p = call->params, *limits = &p[of_channel ? 3 : 2], *counts = limits + 1;
	uint32_t count = p[0].count, failed_count = 0;
	uint32_t *failed = arena_alloc(tx->segment->arena, (count + 1) * sizeof(*failed));

	for (uint32_t i = 0; i < count; i++) {
		struct str channel = of_channel ? p[2].strs[i] : STR_NONE;
		int64_t later = 0;

		for (uint32_t k = i; k < count; k++)
			later += counts->bools[k] && str_equal(p[1].strs[k], p[1].strs[i]) &&
				 (!of_channel || str_equal(p[2].strs[k], channel));
		if (counting(tx, p[1].strs[i], channel, INT64_MAX) - later >= limits->ints[i])
			failed[failed_count++] = (uint32_t)p[0].ints[i];
	}
	return gate_fail(tx, call, failed, failed_count);
}

bool run_cap_channel(struct tx *tx, struct segment_call *call)
{
	return cap_check(tx, call, true);
}

bool run_cap_tenant(struct tx *tx, struct segment_call *call)
{
	return cap_check(tx, call, false);
}

bool run_cap_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct field *out = emit(tx, call);

		out[0] = field_int(p[0].ints[i]);
		out[1] = field_int(counting(tx, p[1].strs[i], p[2].strs[i], p[3].ints[i]));
	}
	return true;
}
