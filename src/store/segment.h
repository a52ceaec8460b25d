/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that make segments of the path share: segment.c has what every segment has, segment_read.c claims, resolves and
 * probes, segment_commit.c the committed step, segment_outbox.c, segment_kept.c and segment_session.c the tables of that name. Everything here
 * runs on the store's loop.
 */
#ifndef SUTRA_STORE_SEGMENT_H
#define SUTRA_STORE_SEGMENT_H

#include "store/internal.h"

static inline struct store_claim *claim_of(struct store_request *request)
{
	return container_of(request, struct store_claim, base);
}

static inline struct store_release *release_of(struct store_request *request)
{
	return container_of(request, struct store_release, base);
}

static inline struct store_resolve *resolve_of(struct store_request *request)
{
	return container_of(request, struct store_resolve, base);
}

static inline struct store_probe *probe_of(struct store_request *request)
{
	return container_of(request, struct store_probe, base);
}

static inline struct store_commit *commit_of(struct store_request *request)
{
	return container_of(request, struct store_commit, base);
}

/* A row of a table with keys of its own, on its way into the order of those keys. */
struct key_ref {
	struct id key;
	struct id slot;
	uint32_t ord;
	uint32_t row;
};
/* By key, slot, element, row. For qsort. */
int key_ref_compare(const void *a, const void *b);

/* Into the arena; a NULL field is STR_NONE. */
struct str segment_field(struct arena *arena, const struct field *field);

/* --- segment_read.c --- */
void build_claims(struct batch *batch);
void take_claims(struct batch *batch);
void build_resolves(struct batch *batch);
void take_resolves(struct batch *batch);
void build_probes(struct batch *batch);
void take_probes(struct batch *batch);

/* --- segment_commit.c --- */
void build_commits(struct batch *batch);
void take_commits(struct batch *batch);

/* --- segment_outbox.c --- */
/* Rows that need not be sent any more, and who is next in their groups. */
void build_withdrawals(struct batch *batch);
/* Rows to insert: those behind a gate of their own instance, or those that may be there already. */
void build_outbox(struct batch *batch, enum statement_id statement, bool gated);
/* Whether the row is committed waiting for a slot: what is of no instance needs none. */
bool outbox_row_waits(const struct store_commit *commit, const struct outbox_row *row);
void build_outbox_pooled(struct batch *batch);
/* What OUTBOX_INSERT found of the groups. */
void take_floors(struct batch *batch, const struct rows *rows);

/* --- segment_session.c --- */
void build_sessions(struct batch *batch);
void build_slot_ends(struct batch *batch);
void build_takes(struct batch *batch);
/* Nothing has gone back. */
void sessions_forget(struct batch *batch);
void take_unpooled(struct batch *batch, const struct rows *rows);
void take_freed(struct batch *batch, const struct rows *rows);

/* --- segment_kept.c --- */
/* Those of replays, or all others. */
void build_dead_letters(struct batch *batch, enum statement_id statement, bool replays);
void build_dead_letter_deletes(struct batch *batch);
void build_kept(struct batch *batch);
void build_early(struct batch *batch);

#endif
