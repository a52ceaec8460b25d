/* SPDX-License-Identifier: Apache-2.0 */
/* Lists, sweeps and the check of capacity pools on the in-memory tables. */
#include "store/memory/statements.h"

#include "engine/instance.h"

bool run_pool_list(struct tx *tx, struct segment_call *call)
{
	for (struct row *pool = table_first(tx, TABLE_POOL); pool; pool = table_next(pool)) {
		struct str name = pool->fields[POOL_name].str;
		struct row *head = pool_head(tx, name);
		struct pool_held held = pool_held(tx, name);
		struct field *out = emit(tx, call);
		int64_t waiting = 0;

		for (uint32_t i = 0; i <= POOL_tenants; i++)
			out[i] = field_out(tx, TABLE_POOL, pool, i);
		out[5] = field_int(held.inbound);
		out[6] = field_int(held.outbound);
		out[8] = head ? head->fields[OUTBOX_created] : field_null();
		for (; head && waiting < call->params[0].ints[0]; head = pool_head_next(head, name))
			waiting++;
		out[7] = field_int(waiting);
		out[9] = pool->fields[POOL_updated];
	}
	return true;
}

bool run_slot_list(struct tx *tx, struct segment_call *call)
{
	static const uint8_t columns[] = {SLOT_direction, SLOT_instance, SLOT_call_key, SLOT_tenant, SLOT_created};
	const struct column *p = call->params;
	struct tree *tree = &tx->db->tables[TABLE_SLOT].index;
	struct field after[] = {param_field(&p[0], 0), field_str(p[1].strs[0].ptr ? p[1].strs[0] : STR("")), param_field(&p[2], 0),
				field_str(p[3].strs[0].ptr ? p[3].strs[0] : STR(""))};
	struct tree_node *node = tree_after(tree, after, 4);

	for (; node && tree_matches(tree, node, after, 1) && call->rows.row_count < (uint64_t)p[4].ints[0]; node = tree_next(node)) {
		struct field *out = emit(tx, call);

		for (uint32_t i = 0; i < ARRAY_LEN(columns); i++)
			out[i] = field_out(tx, TABLE_SLOT, container_of(node, struct row, index_node), columns[i]);
	}
	return true;
}

static bool instance_is_unfinished(struct tx *tx, struct id instance)
{
	struct field key = field_id(instance);
	struct row *row = table_find(tx, TABLE_INSTANCE, &key, 1);
	enum instance_status status = row ? (enum instance_status)row->fields[INSTANCE_status].i : INSTANCE_COMPLETED;

	return !instance_status_is_terminal(status) && status != INSTANCE_FAILED;
}

static bool slot_is_stray(struct tx *tx, const struct row *row)
{
	struct id instance = row->fields[SLOT_instance].id;

	return !instance_is_unfinished(tx, instance) ||
	       call_is_over(tx, row->fields[SLOT_tenant].str, instance, row->fields[SLOT_call_key].str);
}

static bool wait_is_idle(struct tx *tx, const struct row *row)
{
	struct id instance = row->fields[OUTBOX_instance].id;
	struct str call_key = field_text(row->fields[OUTBOX_call_key]);

	return call_is_over(tx, row->fields[OUTBOX_tenant].str, instance, call_key) ||
	       slot_is_held(tx, instance, row->fields[OUTBOX_pool].str, call_key);
}

bool run_slot_sweep(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct field after[] = {param_field(&p[0], 0), field_str(p[1].strs[0].ptr ? p[1].strs[0] : STR("")),
				field_str(p[2].strs[0].ptr ? p[2].strs[0] : STR(""))};
	int64_t seen = 0, removed = 0;
	struct field last[3] = {field_null(), field_null(), field_null()}, *out;

	for (struct row *row = table_after(tx, TABLE_SLOT, after, 3), *next; row && seen < p[3].ints[0]; row = next) {
		next = table_next(row);
		seen++;
		for (uint32_t i = 0; i < 3; i++)
			last[i] = field_out(tx, TABLE_SLOT, row, i);
		if (!slot_is_stray(tx, row))
			continue;
		tx_delete(tx, TABLE_SLOT, row);
		removed++;
	}
	out = emit(tx, call);
	out[0] = field_int(seen);
	out[1] = field_int(removed);
	memcpy(&out[2], last, sizeof(last));
	return true;
}

/* All at once, for there is no order by call keys here; who asks for what is behind that is told that there is nothing. */
bool run_pool_sweep(struct tx *tx, struct segment_call *call)
{
	int64_t unpooled = 0;
	struct field *out;

	if (id_is_none(call->params[0].ids[0]))
		for (struct row *row = table_first(tx, TABLE_OUTBOX); row; row = table_next(row)) {
			if (row->fields[OUTBOX_pool].is_null || !wait_is_idle(tx, row))
				continue;
			outbox_unpool(tx, row);
			unpooled++;
		}
	out = emit_nulls(tx, call);
	out[0] = field_int(unpooled);
	out[1] = field_int(unpooled);
	return true;
}

static void finding(struct tx *tx, struct segment_call *call, const char *what, struct field pool, struct field instance,
		    struct field call_key)
{
	struct field *out = emit(tx, call);

	out[0] = field_str(str_of(what));
	out[1] = pool;
	out[2] = instance;
	out[3] = call_key;
}

static void check_pools(struct tx *tx, struct segment_call *call)
{
	struct tree *tree = &tx->db->tables[TABLE_SLOT].index;
	const struct row *before = NULL;

	for (struct tree_node *node = tree_first(tree); node; node = tree_next(node)) {
		const struct row *row = container_of(node, struct row, index_node);
		struct field name = row->fields[SLOT_pool];
		struct row *pool = table_find(tx, TABLE_POOL, &name, 1);
		struct pool_held held;

		if (before && str_equal(before->fields[SLOT_pool].str, name.str))
			continue;
		before = row;
		held = pool_held(tx, name.str);
		if (pool && held.inbound + held.outbound > pool->fields[POOL_slots].i)
			finding(tx, call, "pool", field_out(tx, TABLE_SLOT, row, SLOT_pool), field_null(), field_null());
	}
}

/* All at once, whatever page is asked for. */
bool run_pool_check(struct tx *tx, struct segment_call *call)
{
	for (struct row *row = table_first(tx, TABLE_SLOT); row; row = table_next(row))
		if (slot_is_stray(tx, row))
			finding(tx, call, "slot", field_out(tx, TABLE_SLOT, row, SLOT_pool), row->fields[SLOT_instance],
				field_out(tx, TABLE_SLOT, row, SLOT_call_key));
	for (struct row *row = table_first(tx, TABLE_SESSION); row; row = table_next(row))
		if (!row->fields[SESSION_call_key].str.len && row->fields[SESSION_ended].is_null &&
		    !instance_is_unfinished(tx, row->fields[SESSION_instance].id))
			finding(tx, call, "session", field_null(), row->fields[SESSION_instance],
				field_out(tx, TABLE_SESSION, row, SESSION_call_key));
	for (struct row *row = table_first(tx, TABLE_OUTBOX); row; row = table_next(row))
		if (!row->fields[OUTBOX_pool].is_null && wait_is_idle(tx, row))
			finding(tx, call, "row", field_out(tx, TABLE_OUTBOX, row, OUTBOX_pool), row->fields[OUTBOX_instance],
				field_out(tx, TABLE_OUTBOX, row, OUTBOX_call_key));
	check_pools(tx, call);
	emit_nulls(tx, call);
	return true;
}
