/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the outbox: entries, groups, and what the files of this folder call of each other. Everything runs on the
 * outbox's loop.
 *
 *	announced                          head of its group         confirmed
 *	COMMITTING ─────────────► QUEUED ──────────────────► SENT ─────────────► DELETING ──► gone
 *	   │ not committed,          ▲                        │
 *	   │ not claimed             │ backoff over           │ failed: attempt + 1
 *	   ▼                         └──────── BACKOFF ◄──────┘ (past the ceiling: poisoned, gone from memory, the row stays)
 *	  gone
 *	from QUEUED and BACKOFF, and from SENT when it was not confirmed: GIVING_BACK ──► gone, the row is another scan's
 *
 * A row that is withdrawn goes from QUEUED and BACKOFF at once, from COMMITTING and SENT with the answer that it waits for.
 *
 * When one row of a group is given back, or has lost its stamp, every later one is given back too, also those that are still
 * committing: whoever takes the first must be able to send it before the others.
 */
#ifndef SUTRA_OUTBOX_INTERNAL_H
#define SUTRA_OUTBOX_INTERNAL_H

#include "base/list.h"
#include "base/map.h"
#include "outbox/outbox.h"

enum entry_state {
	ENTRY_COMMITTING, /* its commit is under way */
	ENTRY_QUEUED,
	ENTRY_SENT,
	ENTRY_BACKOFF,
	ENTRY_DELETING, /* confirmed; its delete is waiting or under way */
	ENTRY_GIVING_BACK, /* out of its group; its release is waiting or under way */
};

/* Rows in one group, in commit order: only the head is ever sent. */
struct outbox_group {
	struct list entries;
	struct str key; /* owned */
	/* Entries with give_back. Until they are gone a step may still commit later rows as claimed by us: those go the same way. */
	uint32_t giving_back;
};

struct outbox_entry {
	struct outbox *outbox;
	enum entry_state state;
	struct outbox_row row; /* slices into the parcel */
	const char *owner;     /* whose stamp it has: the steps' or the scan's */
	struct outbox_parcel *parcel; /* holds the entry too */
	struct outbox_group *group; /* NULL: confirmed or poisoned */
	struct list group_link; /* in the group */
	struct list all_link;	/* in outbox.entries */
	struct list batch_link; /* in outbox.deleting, failing or giving_back, or in the query that writes it */
	struct publication publication;
	struct publisher *publisher; /* SENT: who has the publication */
	struct loop_timer retry;
	int64_t stamped_us; /* monotonic: before the stamp, or its last renewal, was asked for */
	int64_t sent_us;
	bool withdrawn; /* its row is gone: freed as soon as nobody else has it */
	bool lost; /* its stamp is gone: given back as soon as the publisher answers */
	bool give_back; /* counted in group.giving_back */
	bool last_of_group; /* when it was confirmed nothing of its group was left in memory */
	bool poisoned;
	bool unwritten; /* the database does not know of the last attempt, and the query under way does not say it */
	enum code failure_code;
	char failure_text[160];
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

/* A capacity pool that rows may wait for. */
struct outbox_pool {
	const char *name;
	bool due;   /* to be asked as soon as the pump comes to it */
	bool freed; /* atomic: somebody has seen a slot of it go back */
};

struct outbox {
	struct loop *loop;
	struct store *store;
	struct outbox_settings settings;
	/*
	 * The stamp of rows that scans claim. Another than the steps', so that a step never commits a row as claimed behind one
	 * that was scanned: a scan whose answer was lost has stamped rows that nobody here knows of.
	 */
	char scan_owner[128];
	outbox_route_fn *route;
	void *user;
	struct view *view;
	struct map groups;
	struct map by_id; /* row id → entry */
	struct list entries; /* everything in memory */
	uint64_t entry_count;
	struct list deleting, failing, giving_back;
	struct outbox_query delete_query, fail_query, scan_query, load_query, renew_query, release_query, sweep_query;
	struct outbox_query pool_query, pool_load_query, pool_wait_query; /* pool.c */
	struct outbox_pool *pools;
	uint32_t pool_count, pool_at; /* the one that is being asked, or was the last */
	struct task pool_post;
	bool pool_posted; /* atomic */
	struct loop_timer tick, renew, sweep;
	/* Where the sweep for stale stamps stands, and what it has counted. */
	struct outbox_row sweep_at;
	char sweep_channel[600];
	struct outbox_counts {
		int64_t waiting, claimed, poisoned, oldest_us; /* oldest 0 = none */
	} sweep_counts;
	bool sweeping;
	int64_t swept_us; /* the end of the last round; 0 = none yet */
	bool scan_again;
	bool stopping;
	bool idle; /* atomic: nothing is in memory and no query is under way */
	struct outbox_stats stats; /* written on the loop, read with atomic loads */
};

/* outbox.c */
/* A row that was claimed by a scan; takes the parcel. */
void outbox_row_take(struct outbox *outbox, struct outbox_parcel *parcel, const struct outbox_row *row,
		     int64_t stamped_us);
/* Out of memory and out of its group; the next of the group goes on. */
void outbox_entry_free(struct outbox_entry *entry);
/* From QUEUED or BACKOFF. The next of the group does not go on: they all are to be given back. */
void outbox_entry_give_back(struct outbox_entry *entry);
/* Every entry of the group but one that is SENT. */
void outbox_group_give_back(struct outbox *outbox, struct outbox_group *group);
void outbox_check_idle(struct outbox *outbox);
void outbox_group_drop_if_empty(struct outbox *outbox, struct outbox_group *group);
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
/* The five key columns (tenant, instance, channel, version, ordinal) of entries of one owner, sorted by key, then OWNER; returns
 * the columns (6, room for `extra` more before OWNER), sets query tenants. Texts are copied: entries may end meanwhile. */
struct column *outbox_key_columns(struct outbox_query *query, struct outbox_entry *const *entries, uint32_t count,
				  uint32_t extra);
int outbox_key_compare(const void *left, const void *right);
/* Moves the first of `batch`, and at most `most` in all of its owner, into the query; returns them sorted by key. */
struct outbox_entry **outbox_sorted(struct outbox_query *query, struct list *batch, uint32_t most, uint32_t *count);

/* publish.c */
/* Sends the head of the group if it can be sent. The last thing done with a group: it may be gone afterwards. */
void outbox_group_next(struct outbox_group *group, struct outbox *outbox);
/* Takes what is on its way back from the publishers; their answers follow. */
void outbox_purge(struct outbox *outbox, bool only_stale);

/* confirm.c */
void outbox_confirmed(struct outbox_entry *entry);
void outbox_delete_more(struct outbox *outbox);

/* backoff.c */
/* Puts the entry into BACKOFF, or out of its group. The caller lets the group go on. */
void outbox_failed(struct outbox_entry *entry, enum code code, const char *text);
void outbox_fail_more(struct outbox *outbox);

/* pool.c */
/* Asks the pools that rows wait for. */
void outbox_pools_look(struct outbox *outbox);
/* A row has been committed that waits for its pool; one without a pool does nothing. */
void outbox_pool_committed(struct outbox *outbox, const struct outbox_row *row);

/* scan.c */
/* Reads the rows of these keys (tenant, instance, channel, version, ordinal), which were stamped as a scan's at `stamped_us`. */
void outbox_load(struct outbox_query *query, const struct rows *keys, int64_t stamped_us, void (*done)(struct task *task));
void outbox_tick(struct loop_timer *timer);
void outbox_renew(struct loop_timer *timer);
void outbox_sweep(struct loop_timer *timer);
/* Rows of a scan or a claim-next, as the statement returned them. */
void outbox_rows_take(struct outbox *outbox, const struct rows *rows, int64_t stamped_us);
void outbox_release_more(struct outbox *outbox);

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)
#define stat_set(field, v) __atomic_store_n(&(field), (v), __ATOMIC_RELAXED)

#endif
