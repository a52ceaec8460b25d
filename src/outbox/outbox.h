/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outbox: from committed rows to confirmed messages. One loop of its own; it owns every row that this replica has
 * claimed, keeps the order of each group (instance, channel), sends one unconfirmed row a group, deletes what was confirmed
 * in batches, retries with backoff, poisons at the ceiling, renews its stamps, and scans for rows of others.
 *
 * Life cycle: outbox_new, outbox_start; outbox_stop (finishes or gives back every row), outbox_free.
 * Threads: outbox_announce, outbox_submit and outbox_view from any loop; the rest from main.
 */
#ifndef SUTRA_OUTBOX_OUTBOX_H
#define SUTRA_OUTBOX_OUTBOX_H

#include "base/arena.h"
#include "base/thread.h"
#include "model/deployment.h"
#include "store/store.h"
#include "transports/transport.h"

struct outbox;
struct outbox_entry;

/*
 * Rows of one commit, with the arena they live in. Made by a step, announced before its commit is sent, given away by
 * outbox_submit when it has committed, or taken back by outbox_parcel_free when it has not. The rows and the arena are not
 * to be touched by the step once they are announced; the store alone sets `claimed`.
 */
struct outbox_parcel {
	struct arena arena;
	struct outbox_row *rows;
	uint32_t count;
	int64_t stamped_us; /* monotonic: before the commit that stamps the rows was asked for */
	/* The outbox's. */
	struct task announce, post;
	struct outbox *outbox; /* NULL until it is announced */
	struct outbox_entry *entries;
	bool committed;
	uint32_t refs;
};
struct outbox_parcel *outbox_parcel_new(void);
/* Of one that was announced: nothing of it has committed. Accepts NULL. @thread any */
void outbox_parcel_free(struct outbox_parcel **parcel);

struct outbox_settings {
	const char *owner; /* the stamp of rows that steps commit claimed: the replica's boot id */
	int64_t claim_timeout_ms, tick_ms, base_delay_ms, max_delay_ms;
	int64_t max_attempts; /* 0 = for ever */
	uint32_t window_max_rows; /* rows kept in memory; past it steps' rows are given back and scanned later */
	const char *const *pools; /* names of the capacity pools that rows may wait for; they outlive the outbox */
	uint32_t pool_count;
};

/* Where a publication of this connection goes; NULL if there is none. Called on the outbox's loop. */
typedef struct publisher *outbox_route_fn(void *user, struct str connection);

struct outbox *outbox_new(struct runtime *runtime, struct store *store, const struct outbox_settings *settings,
			  outbox_route_fn *route, void *user);
void outbox_start(struct outbox *outbox);
/*
 * The rows are about to be committed: they take their place in their groups now. Must come before the commit is sent: a
 * later step of the same instance may commit, and be answered, before this one's answer is here. @thread any
 */
void outbox_announce(struct outbox *outbox, struct outbox_parcel *parcel);
/* It has committed. Takes the parcel; only rows with `claimed` are kept, the rest is the scan's. @thread any */
void outbox_submit(struct outbox *outbox, struct outbox_parcel *parcel);
/*
 * The row of this id was withdrawn by a commit: it is not there any more. If it is not on its way to the broker already it is not sent;
 * if it is, it is not tried again. A row that this replica does not have is none of its business. @thread any
 */
void outbox_withdraw(struct outbox *outbox, struct id row);
/* The view whose deployments say how a row's channel is sent. Takes a reference. @thread any */
void outbox_view(struct outbox *outbox, struct view *view);
/* A slot of the capacity pool may have gone back: what waits for one is looked at now. A name that is none does nothing. @thread any */
void outbox_pool_freed(struct outbox *outbox, struct str pool);
/* Publishes nothing new, waits for confirms at most `timeout_ms`, gives every other stamp back. */
void outbox_stop(struct outbox *outbox, int64_t timeout_ms);
void outbox_free(struct outbox **outbox);

struct outbox_stats {
	uint64_t published, confirmed, failed, unroutable, poisoned, scanned, submitted;
	uint64_t rows_in_memory;
	int64_t waiting, claimed, poisoned_rows, oldest_us; /* of the database, in the last sweep; oldest 0 = none */
	uint64_t publish_us_total; /* publish to confirm, summed */
};
/* @thread any */
void outbox_stats_read(struct outbox *outbox, struct outbox_stats *out);

#endif
