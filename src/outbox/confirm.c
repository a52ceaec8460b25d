/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage confirm: rows that the broker confirmed are deleted, many at a time, by primary key. The delete commits
 * asynchronously: losing it in a crash means one more message under the same key, which G6 permits.
 *
 * A confirmed row leaves its group at once, so the next of the group need not wait for the delete. In the same segment as
 * the deletes the heads of groups that are now empty in memory are claimed: rows that another replica, or a step that met
 * a foreign row, left unclaimed behind ours. If there is no room for them they are left to the scans, which are told of them.
 */
#include "base/fault.h"
#include "base/time.h"
#include "outbox/internal.h"

#define DELETE_MOST 512

static void outbox_deleted(struct task *task)
{
	struct outbox_query *query = container_of(task, struct outbox_query, query.base.done);
	struct outbox *outbox = query->outbox;
	bool ok = query->query.base.outcome == STORE_OK;

	fault(FAULT_outbox_delete_after);
	if (ok) {
		if (query->calls[1].statement == STATEMENT_OUTBOX_CLAIM_NEXT && query->query.segment.call_count > 1)
			outbox_rows_take(outbox, &query->calls[1].rows, query->asked_us);
		list_for_each(&query->entries, pos, tmp)
			outbox_entry_free(list_entry(pos, struct outbox_entry, batch_link));
	} else {
		/* The database is away: the rows are confirmed all the same. The tick tries again. */
		list_splice(&outbox->deleting, &query->entries);
	}
	outbox_query_end(query);
	if (ok)
		outbox_delete_more(outbox);
}

/* The groups of these entries that have nothing left in memory: (tenant, instance, channel), OWNER. */
static struct column *outbox_next_columns(struct outbox_query *query, struct outbox_entry *const *entries, uint32_t count)
{
	struct arena *arena = &query->arena;
	struct column *columns = arena_zalloc(arena, 4 * sizeof(*columns));
	struct str *tenants = arena_alloc(arena, count * sizeof(*tenants));
	struct id *instances = arena_alloc(arena, count * sizeof(*instances));
	struct str *channels = arena_alloc(arena, count * sizeof(*channels));
	struct str *owner = arena_alloc(arena, sizeof(*owner));
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct outbox_row *row = &entries[i]->row;

		if (!entries[i]->last_of_group)
			continue;
		if (n && id_equal(instances[n - 1], row->instance) && str_equal(channels[n - 1], row->channel))
			continue;
		tenants[n] = row->tenant;
		instances[n] = row->instance;
		channels[n++] = row->channel;
	}
	*owner = str_of(query->outbox->scan_owner);
	columns[0] = (struct column){.type = COLUMN_TEXT, .count = n, .strs = tenants};
	columns[1] = (struct column){.type = COLUMN_ID, .count = n, .ids = instances};
	columns[2] = (struct column){.type = COLUMN_TEXT, .count = n, .strs = channels};
	columns[3] = (struct column){.type = COLUMN_TEXT, .scalar = true, .count = 1, .strs = owner};
	return n ? columns : NULL;
}

void outbox_delete_more(struct outbox *outbox)
{
	struct outbox_query *query = &outbox->delete_query;
	struct outbox_entry **entries;
	struct column *next;
	uint32_t count, calls = 1;

	if (query->busy || list_is_empty(&outbox->deleting))
		return;
	outbox_query_begin(query);
	entries = outbox_sorted(query, &outbox->deleting, DELETE_MOST, &count);
	outbox_query_call(query, 0, STATEMENT_OUTBOX_DELETE, outbox_key_columns(query, entries, count, 0));
	next = outbox_next_columns(query, entries, count);
	if (next && (outbox->stopping || outbox->entry_count >= outbox->settings.window_max_rows))
		outbox_query_call(query, calls++, STATEMENT_OUTBOX_FREE_NEXT, next);
	else if (next)
		outbox_query_call(query, calls++, STATEMENT_OUTBOX_CLAIM_NEXT, next);
	outbox_query_send(query, calls, false, true, false, outbox_deleted);
}

void outbox_confirmed(struct outbox_entry *entry)
{
	struct outbox *outbox = entry->outbox;
	struct outbox_group *group = entry->group;

	fault(FAULT_confirm_before_delete);
	entry->state = ENTRY_DELETING;
	list_remove(&entry->group_link);
	entry->group = NULL;
	entry->last_of_group = list_is_empty(&group->entries);
	list_remove(&entry->batch_link);
	list_push(&outbox->deleting, &entry->batch_link);
	outbox_group_next(group, outbox);
	outbox_delete_more(outbox);
}
