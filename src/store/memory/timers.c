/* SPDX-License-Identifier: Apache-2.0 */
/* Timers on the in-memory tables. Those of tokens stand in order of their instance, and a second time by when they are due. */
#include "base/time.h"
#include "engine/instance.h"
#include "store/memory/statements.h"

/* As they are given and listed. */
static const uint8_t timer_columns[] = {TIMER_tenant, TIMER_instance,   TIMER_token,
					TIMER_node,   TIMER_deployment, TIMER_due};

static struct row *timer_find(struct tx *tx, struct str tenant, struct id instance, int64_t token)
{
	struct field key[] = {field_id(instance), field_int(token)};
	struct row *row = table_find(tx, TABLE_TIMER, key, 2);

	if (!row || !tx_sees(tx, tenant) || !str_equal(row->fields[TIMER_tenant].str, tenant))
		return NULL;
	return row;
}

static struct row *schedule_find(struct tx *tx, struct str tenant, struct id id)
{
	struct field key = field_id(id);
	struct row *row = table_find(tx, TABLE_SCHEDULE, &key, 1);

	if (!row || !tx_sees(tx, tenant) || !str_equal(row->fields[SCHEDULE_tenant].str, tenant))
		return NULL;
	return row;
}

/* --- in the committed step --- */

bool run_schedule_advance(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;
	uint32_t *failed = arena_alloc(tx->segment->arena, (p[0].count + 1) * sizeof(*failed)), count = 0;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = schedule_find(tx, p[1].strs[i], p[2].ids[i]);

		if (!row || row->fields[SCHEDULE_next].is_null || row->fields[SCHEDULE_next].i != p[3].ints[i])
			failed[count++] = (uint32_t)p[0].ints[i];
	}
	if (count)
		return gate_fail(tx, call, failed, count);
	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = schedule_find(tx, p[1].strs[i], p[2].ids[i]);

		tx_set(tx, TABLE_SCHEDULE, row, SCHEDULE_next, param_field(&p[4], i));
		tx_set(tx, TABLE_SCHEDULE, row, SCHEDULE_remaining, param_field(&p[5], i));
	}
	return true;
}

bool run_timer_delete(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = timer_find(tx, p[1].strs[i], p[2].ids[i], p[3].ints[i]);

		if (row)
			tx_delete(tx, TABLE_TIMER, row);
	}
	return true;
}

bool run_timer_insert(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row;

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		row = row_new(tx, TABLE_TIMER);
		for (uint32_t at = 0; at < ARRAY_LEN(timer_columns); at++)
			row_take(tx, TABLE_TIMER, row, timer_columns[at], &p[at + 1], i);
		if (!tx_insert(tx, TABLE_TIMER, row))
			return statement_error(tx, "23505", "duplicate key value violates unique constraint");
	}
	return true;
}

bool run_schedule_probe(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = schedule_find(tx, p[1].strs[i], p[2].ids[i]);
		struct field *out;

		if (!row)
			continue;
		out = emit(tx, call);
		out[0] = field_int(p[0].ints[i]);
		out[1] = field_out(tx, TABLE_SCHEDULE, row, SCHEDULE_deployment);
		out[2] = row->fields[SCHEDULE_next];
		out[3] = row->fields[SCHEDULE_remaining];
	}
	return true;
}

/* --- of whoever leads --- */

/* In order of due time from the first behind the key on; `count` of its columns are given. */
static struct row *due_after(struct tx *tx, const struct field *key, uint32_t count)
{
	struct tree_node *node = tree_after(&tx->db->tables[TABLE_TIMER].index, key, count);

	return node ? container_of(node, struct row, index_node) : NULL;
}

static struct row *due_next(struct row *row)
{
	struct tree_node *node = tree_next(&row->index_node);

	return node ? container_of(node, struct row, index_node) : NULL;
}

static struct row *due_first(struct tx *tx)
{
	struct tree_node *node = tree_first(&tx->db->tables[TABLE_TIMER].index);

	return node ? container_of(node, struct row, index_node) : NULL;
}

static struct row *due_behind(struct tx *tx, const struct column *p)
{
	struct field key[] = {param_field(&p[0], 0), param_field(&p[1], 0), param_field(&p[2], 0)};

	return due_after(tx, key, 3);
}

bool run_timer_due(struct tx *tx, struct segment_call *call)
{
	uint64_t limit = (uint64_t)call->params[3].ints[0];

	for (struct row *row = due_behind(tx, call->params);
	     row && row->fields[TIMER_due].i <= tx->now_us && call->rows.row_count < limit; row = due_next(row)) {
		struct field *out;

		if (!tx_sees(tx, row->fields[TIMER_tenant].str))
			continue;
		out = emit(tx, call);
		out[0] = field_out(tx, TABLE_TIMER, row, TIMER_tenant);
		out[1] = row->fields[TIMER_instance];
		out[2] = row->fields[TIMER_token];
		out[3] = row->fields[TIMER_due];
	}
	return true;
}

bool run_timer_next(struct tx *tx, struct segment_call *call)
{
	struct field now = field_time(tx->now_us);
	struct row *row = due_after(tx, &now, 1);

	while (row && !tx_sees(tx, row->fields[TIMER_tenant].str))
		row = due_next(row);
	emit(tx, call)[0] = row ? field_int(row->fields[TIMER_due].i - tx->now_us) : field_null();
	return true;
}

bool run_timer_counts(struct tx *tx, struct segment_call *call)
{
	int64_t before_us = tx->now_us - call->params[0].ints[0] * US_PER_MS, limit = call->params[1].ints[0], count = 0;
	struct field oldest = field_null(), *out;

	for (struct row *row = due_first(tx); row && row->fields[TIMER_due].i < before_us && count < limit; row = due_next(row)) {
		if (!tx_sees(tx, row->fields[TIMER_tenant].str))
			continue;
		if (!count++)
			oldest = row->fields[TIMER_due];
	}
	out = emit(tx, call);
	out[0] = field_int(count);
	out[1] = oldest;
	return true;
}

bool run_timer_drop(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = timer_find(tx, p[0].strs[i], p[1].ids[i], p[2].ints[i]), *inst;
		struct field id = field_id(p[1].ids[i]);

		if (!row || row->fields[TIMER_due].i != p[3].ints[i])
			continue;
		inst = table_find(tx, TABLE_INSTANCE, &id, 1);
		if (!inst || inst->fields[INSTANCE_version].i == p[4].ints[i] ||
		    instance_status_is_terminal((enum instance_status)inst->fields[INSTANCE_status].i))
			tx_delete(tx, TABLE_TIMER, row);
	}
	return true;
}

/* --- lists --- */

static void emit_timer(struct tx *tx, struct segment_call *call, const struct row *row)
{
	struct field *out = emit(tx, call);

	for (uint32_t at = 0; at < ARRAY_LEN(timer_columns); at++)
		out[at] = field_out(tx, TABLE_TIMER, row, timer_columns[at]);
}

bool run_timer_of(struct tx *tx, struct segment_call *call)
{
	struct field key = param_field(&call->params[0], 0);

	for (struct row *row = table_from(tx, TABLE_TIMER, &key, 1); row && table_matches(tx, TABLE_TIMER, row, &key, 1);
	     row = table_next(row))
		if (tx_sees(tx, row->fields[TIMER_tenant].str))
			emit_timer(tx, call, row);
	return true;
}

bool run_timer_list(struct tx *tx, struct segment_call *call)
{
	uint64_t limit = (uint64_t)call->params[3].ints[0];

	for (struct row *row = due_behind(tx, call->params); row && call->rows.row_count < limit; row = due_next(row))
		if (tx_sees(tx, row->fields[TIMER_tenant].str))
			emit_timer(tx, call, row);
	return true;
}

static void schedule_set(struct tx *tx, struct row *row, const struct column *p, uint32_t i)
{
	bool same = str_equal(row->fields[SCHEDULE_spec].str, p[5].strs[i]);

	tx_set(tx, TABLE_SCHEDULE, row, SCHEDULE_deployment, param_field(&p[2], i));
	if (same)
		return;
	tx_set(tx, TABLE_SCHEDULE, row, SCHEDULE_spec, param_field(&p[5], i));
	tx_set(tx, TABLE_SCHEDULE, row, SCHEDULE_next, param_field(&p[6], i));
	tx_set(tx, TABLE_SCHEDULE, row, SCHEDULE_remaining, param_field(&p[7], i));
}

bool run_schedule_put(struct tx *tx, struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct row *row = schedule_find(tx, p[1].strs[i], p[0].ids[i]);

		if (!insert_allowed(tx, p[1].strs[i]))
			return false;
		if (row) {
			schedule_set(tx, row, p, i);
			continue;
		}
		row = row_new(tx, TABLE_SCHEDULE);
		for (uint32_t at = SCHEDULE_id; at <= SCHEDULE_remaining; at++)
			row_take(tx, TABLE_SCHEDULE, row, at, &p[at], i);
		row->fields[SCHEDULE_created] = field_time(tx->now_us);
		if (!tx_insert(tx, TABLE_SCHEDULE, row))
			continue; /* another tenant's, with which no id is shared */
	}
	return true;
}

bool run_schedule_list(struct tx *tx, struct segment_call *call)
{
	struct field after = param_field(&call->params[0], 0);
	uint64_t limit = (uint64_t)call->params[1].ints[0];

	for (struct row *row = table_after(tx, TABLE_SCHEDULE, &after, 1); row && call->rows.row_count < limit; row = table_next(row)) {
		struct field *out;

		if (!tx_sees(tx, row->fields[SCHEDULE_tenant].str))
			continue;
		out = emit(tx, call);
		for (uint32_t at = 0; at < SCHEDULE_COLUMNS; at++)
			out[at] = field_out(tx, TABLE_SCHEDULE, row, at);
	}
	return true;
}
