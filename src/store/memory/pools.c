/* SPDX-License-Identifier: Apache-2.0 */
/* Capacity pools and permits on the in-memory tables: who takes slots, by the one rule. */
#include "store/memory/statements.h"

#include "base/time.h"

struct pool_held pool_held(struct tx *tx, struct str pool)
{
	struct tree *tree = &tx->db->tables[TABLE_SLOT].index;
	struct field key = field_str(pool);
	struct tree_node *node = tree_from(tree, &key, 1);
	struct pool_held held = {0};

	for (; node && tree_matches(tree, node, &key, 1); node = tree_next(node)) {
		const struct row *row = container_of(node, struct row, index_node);

		if (str_equal(row->fields[SLOT_direction].str, STR("INBOUND")))
			held.inbound++;
		else
			held.outbound++;
	}
	return held;
}

static struct row *pool_find(struct tx *tx, struct str name)
{
	struct field key = field_str(name);

	return table_find(tx, TABLE_POOL, &key, 1);
}

/* How many slots a direction may still take; without the pool none. */
static int64_t pool_free(struct tx *tx, struct str name, bool inbound)
{
	struct row *pool = pool_find(tx, name);
	struct pool_held held = pool_held(tx, name);
	int64_t other;

	if (!pool)
		return 0;
	other = inbound ? pool->fields[POOL_reserve_outbound].i - held.outbound : pool->fields[POOL_reserve_inbound].i - held.inbound;
	return pool->fields[POOL_slots].i - held.inbound - held.outbound - (other > 0 ? other : 0);
}

bool slot_is_held(struct tx *tx, struct id instance, struct str pool, struct str call_key)
{
	struct field key[] = {field_id(instance), field_str(pool), field_str(call_key)};

	return table_find(tx, TABLE_SLOT, key, 3) != NULL;
}

void outbox_unpool(struct tx *tx, struct row *row)
{
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_pool, field_null());
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_diagnostic, field_null());
}

/* One that the call holds already is the same. */
static void slot_insert(struct tx *tx, struct id instance, struct str pool, struct str call_key, struct str direction, struct str tenant)
{
	struct row *row;

	if (slot_is_held(tx, instance, pool, call_key))
		return;
	row = row_new(tx, TABLE_SLOT);
	row_init_field(row, SLOT_instance, field_id(instance), COLUMN_ID);
	row_init_field(row, SLOT_pool, field_str(pool), COLUMN_TEXT);
	row_init_field(row, SLOT_call_key, field_str(call_key), COLUMN_TEXT);
	row_init_field(row, SLOT_direction, field_str(direction), COLUMN_TEXT);
	row_init_field(row, SLOT_tenant, field_str(tenant), COLUMN_TEXT);
	row_init_field(row, SLOT_created, field_time(tx->now_us), COLUMN_TIME);
	if (!tx_insert(tx, TABLE_SLOT, row))
		assert(!"the slot was free");
}

bool run_slot_take(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	uint32_t count = p[0].count, failed_count = 0;
	uint32_t *failed = arena_alloc(tx->segment->arena, (count + 1) * sizeof(*failed));

	for (uint32_t i = 0; i < count; i++) {
		if (pool_free(tx, p[2].strs[i], true) <= 0)
			failed[failed_count++] = (uint32_t)p[0].ints[i];
		else if (p[5].bools[i])
			slot_insert(tx, p[3].ids[i], p[2].strs[i], p[4].strs[i], STR("INBOUND"), p[1].strs[i]);
	}
	return gate_fail(tx, call, failed, failed_count);
}

bool run_pool_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *pool = pool_find(tx, p[1].strs[i]);
		struct pool_held held = pool_held(tx, p[1].strs[i]);
		struct field *out;

		if (!pool)
			continue;
		out = emit(tx, call);
		out[0] = field_int(p[0].ints[i]);
		out[1] = pool->fields[POOL_slots];
		out[2] = pool->fields[POOL_reserve_inbound];
		out[3] = pool->fields[POOL_reserve_outbound];
		out[4] = field_int(held.inbound);
		out[5] = field_int(held.outbound);
	}
	return true;
}

bool run_pool_put(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	struct row *row = pool_find(tx, p[0].strs[0]);
	struct field *out;

	if (!row) {
		row = row_new(tx, TABLE_POOL);
		for (uint32_t i = 0; i <= POOL_tenants; i++)
			row_take(tx, TABLE_POOL, row, i, &p[i], 0);
		row->fields[POOL_updated] = field_time(tx->now_us);
		return tx_insert(tx, TABLE_POOL, row);
	}
	out = emit(tx, call);
	for (uint32_t i = POOL_slots; i <= POOL_tenants; i++) {
		out[i - 1] = field_out(tx, TABLE_POOL, row, i);
		tx_set(tx, TABLE_POOL, row, i, param_field(&p[i], 0));
	}
	tx_set(tx, TABLE_POOL, row, POOL_updated, field_time(tx->now_us));
	return true;
}

/* --- the pump --- */

static struct row *head_of(struct tree_node *node, struct str pool)
{
	struct row *row = node ? container_of(node, struct row, index_node) : NULL;

	return row && str_equal(row->fields[OUTBOX_pool].str, pool) ? row : NULL;
}

struct row *pool_head(struct tx *tx, struct str pool)
{
	struct field key = field_str(pool);

	return head_of(tree_from(&tx->db->waiting, &key, 1), pool);
}

struct row *pool_head_next(struct row *row, struct str pool)
{
	return head_of(tree_next(&row->index_node), pool);
}

bool run_pool_waiting(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++)
		if (pool_head(tx, p[0].strs[i]))
			emit(tx, call)[0] = field_str(p[0].strs[i]);
	return true;
}

bool run_pool_lock_one(struct tx *tx, struct segment_call *call)
{
	struct row *pool = pool_find(tx, call->params[0].strs[0]);

	if (pool)
		emit(tx, call)[0] = pool->fields[POOL_slots];
	return true;
}

/* Rows of the call that wait for the same slot. */
static void call_unpool(struct tx *tx, struct id instance, struct str pool, struct str call_key)
{
	struct field key = field_id(instance);
	struct row *row = table_from(tx, TABLE_OUTBOX, &key, 1);

	for (; row && table_matches(tx, TABLE_OUTBOX, row, &key, 1); row = table_next(row))
		if (str_equal(field_text(row->fields[OUTBOX_pool]), pool) && str_equal(field_text(row->fields[OUTBOX_call_key]), call_key))
			outbox_unpool(tx, row);
}

static void grant(struct tx *tx, struct segment_call *call, struct row *row, struct str pool, struct str owner)
{
	struct str tenant = row->fields[OUTBOX_tenant].str, call_key = field_text(row->fields[OUTBOX_call_key]);
	struct id instance = row->fields[OUTBOX_instance].id;
	struct field *out = emit(tx, call);

	out[0] = field_out(tx, TABLE_OUTBOX, row, OUTBOX_tenant);
	for (uint32_t at = 0; at < 4; at++)
		out[at + 1] = field_out(tx, TABLE_OUTBOX, row, at);
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_claimed_at, field_time(tx->now_us));
	tx_set(tx, TABLE_OUTBOX, row, OUTBOX_claim_owner, field_str(owner));
	outbox_unpool(tx, row);
	if (call_is_over(tx, tenant, instance, call_key))
		return;
	slot_insert(tx, instance, pool, call_key, STR("OUTBOUND"), tenant);
	call_unpool(tx, instance, pool, call_key);
}

bool run_pool_scan(struct tx *tx, struct segment_call *call)
{
	struct str pool = call->params[0].strs[0], owner = call->params[1].strs[0];
	int64_t most = pool_free(tx, pool, false), limit = call->params[2].ints[0];
	struct row *row;

	for (int64_t taken = 0; taken < most && taken < limit && (row = pool_head(tx, pool)); taken++)
		grant(tx, call, row, pool, owner);
	return true;
}

bool run_pool_more(struct tx *tx, struct segment_call *call)
{
	struct str pool = call->params[0].strs[0];

	emit(tx, call)[0] = field_bool(pool_free(tx, pool, false) > 0 && pool_head(tx, pool));
	return true;
}

/* --- permits --- */

bool run_rate_take(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	int64_t minute_us = tx->now_us - tx->now_us % (60 * US_PER_S), limit = p[1].ints[0], want = p[2].ints[0], left;
	struct field key = param_field(&p[0], 0);
	struct row *row;

	if (!insert_allowed(tx, p[0].strs[0]))
		return false;
	row = table_find(tx, TABLE_RATE, &key, 1);
	if (!row) {
		row = row_new(tx, TABLE_RATE);
		row_take(tx, TABLE_RATE, row, RATE_tenant, &p[0], 0);
		row->fields[RATE_minute] = field_time(minute_us);
		row->fields[RATE_used] = field_int(0);
		if (!tx_insert(tx, TABLE_RATE, row))
			return false;
	} else if (row->fields[RATE_minute].i < minute_us) {
		tx_set(tx, TABLE_RATE, row, RATE_minute, field_time(minute_us));
		tx_set(tx, TABLE_RATE, row, RATE_used, field_int(0));
	}
	left = limit - row->fields[RATE_used].i;
	if (left < 0)
		left = 0;
	if (want > left)
		want = left;
	tx_set(tx, TABLE_RATE, row, RATE_used, field_int(row->fields[RATE_used].i + want));
	emit(tx, call)[0] = field_int(want);
	return true;
}
