/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the outbox: entries, groups, and what the files of this folder call of each other. Everything runs on the
 * outbox's loop.
 *
 *	            head of its group               confirmed
 *	QUEUED ──────────────────────► SENT ───────────────────► DELETING ──► gone
 *	   ▲                            │
 *	   │ backoff over               │ failed: attempt + 1
 *	   └─────── BACKOFF ◄───────────┘ (past the ceiling: poisoned, gone from memory, the row stays)
 *	from any state: the stamp is lost or given back ──► gone from memory, the row is another scan's
 */
#ifndef SUTRA_OUTBOX_INTERNAL_H
#define SUTRA_OUTBOX_INTERNAL_H

#include "base/histogram.h"
#include "base/list.h"
#include "base/map.h"
#include "outbox/outbox.h"

enum entry_state {
	ENTRY_QUEUED,
	ENTRY_SENT,
	ENTRY_BACKOFF,
	ENTRY_DELETING, /* confirmed; its delete is waiting or under way */
};

/* Rows in one group, in commit order: only the head is ever sent. */
struct outbox_group {
	struct list entries;
	struct str key; /* owned */
	/* Rows of it were given back: until then a step may still commit rows as claimed that come after them. */
	int64_t released_until_us;
};

struct outbox_entry {
	struct outbox *outbox;
	enum entry_state state;
	struct outbox_row row; /* slices into the parcel */
	struct outbox_parcel *parcel;
	struct outbox_group *group;
	struct list group_link; /* in the group */
	struct list all_link;	/* in outbox.entries */
	struct list batch_link; /* in outbox.deleting or outbox.failing */
	struct publication publication;
	struct loop_timer retry;
	int64_t stamped_us; /* monotonic: before the stamp, or its last renewal, was asked for */
	int64_t sent_us;
	bool lost; /* its stamp is gone: forget it as soon as the publisher answers */
	bool last_of_group; /* when it was confirmed nothing of its group was left in memory */
	bool poisoned;
	bool failing; /* stands in outbox.failing, or in the query that writes it */
	struct error failure;
	int64_t delay_ms;
};

/* A store query of the outbox with the memory it needs; at most one of a kind is under way. */
struct outbox_query {
	struct store_query query;
	struct arena arena;
	struct outbox *outbox;
	bool busy;
	struct segment_call calls[3];
	struct list entries; /* what it is about */
	struct id *renew_ids; /* of a renewal: entries may end while it is under way */
	uint32_t renew_count;
	int64_t asked_us;
};

struct outbox {
	struct loop *loop;
	struct store *store;
	struct outbox_settings settings;
	outbox_route_fn *route;
	void *user;
	struct view *view;
	struct map groups;
	struct map by_id; /* row id → entry */
	struct list entries; /* everything in memory */
	uint64_t entry_count;
	struct list deleting, failing, giving_back;
	struct outbox_query delete_query, fail_query, scan_query, load_query, renew_query, release_query, sweep_query,
		count_query;
	struct loop_timer tick, renew;
	/* where the sweep for stale stamps stands */
	struct outbox_row sweep_at;
	char sweep_channel[600];
	int64_t swept_us, counted_us;
	bool scan_again;
	bool stopping, draining;
	bool idle; /* atomic: nothing is in memory and no query is under way */
	struct outbox_stats stats; /* written on the loop, read with atomic loads */
};

/* outbox.c */
void outbox_row_take(struct outbox *outbox, struct outbox_parcel *parcel, const struct outbox_row *row,
		     int64_t stamped_us);
void outbox_parcel_ref(struct outbox_parcel *parcel);
/* Out of memory and out of its group; the next of the group goes on. */
void outbox_entry_free(struct outbox_entry *entry);
void outbox_check_idle(struct outbox *outbox);
void outbox_group_drop_if_empty(struct outbox *outbox, struct outbox_group *group);
void outbox_forget_released(struct outbox *outbox);
/* Whether this replica may still publish under the entry's stamp. */
bool outbox_stamp_is_good(const struct outbox_entry *entry);
/* Prepares a query: empties it and marks it busy. */
void outbox_query_begin(struct outbox_query *query);
void outbox_query_send(struct outbox_query *query, uint32_t call_count, bool durable, bool writes, bool scan,
		       void (*done)(struct task *task));
/* Ends it: the arena is emptied. */
void outbox_query_end(struct outbox_query *query);
/* Sets up call `index` on this statement. */
void outbox_query_call(struct outbox_query *query, uint32_t index, enum statement_id statement,
		       const struct column *params);
/* The five key columns (tenant, instance, channel, version, ordinal) of a list of entries linked by batch_link, sorted by key,
 * then OWNER; returns the columns (6, room for `extra` more before OWNER), sets query tenants. */
struct column *outbox_key_columns(struct outbox_query *query, struct outbox_entry *const *entries, uint32_t count,
				  uint32_t extra);
int outbox_key_compare(const void *left, const void *right);
struct outbox_entry **outbox_sorted(struct outbox_query *query, struct list *batch, uint32_t most, uint32_t *count);
void outbox_query_tenants(struct outbox_query *query, const struct str *tenants, uint32_t count);

/* publish.c */
void outbox_publish(struct outbox_entry *entry);
void outbox_group_next(struct outbox_group *group, struct outbox *outbox);

/* confirm.c */
void outbox_confirmed(struct outbox_entry *entry);
void outbox_delete_more(struct outbox *outbox);

/* backoff.c */
void outbox_failed(struct outbox_entry *entry, enum code code, const char *text);
void outbox_fail_more(struct outbox *outbox);

/* scan.c */
void outbox_tick(struct loop_timer *timer);
void outbox_renew(struct loop_timer *timer);
/* Rows of a scan or a claim-next, as the statement returned them. */
void outbox_rows_take(struct outbox *outbox, const struct rows *rows, int64_t stamped_us);
/* Gives the stamps of every entry that is not sent back. */
void outbox_release_all(struct outbox *outbox);
void outbox_release(struct outbox *outbox, struct list *entries);

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)
#define stat_set(field, v) __atomic_store_n(&(field), (v), __ATOMIC_RELAXED)

#endif
