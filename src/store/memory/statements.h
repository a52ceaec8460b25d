/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of in-memory statements share.
 *
 * Life cycle: none. Threads: under the database's lock.
 */
#ifndef SUTRA_STORE_MEMORY_STATEMENTS_H
#define SUTRA_STORE_MEMORY_STATEMENTS_H

#include "store/memory/tables.h"

/* Fails the segment by the call's gate with these ordinals; true if there are none. */
bool gate_fail(struct tx *tx, struct segment_call *call, const uint32_t *ordinals, uint32_t count);
/* Fails the segment as a server would; always false. */
bool statement_error(struct tx *tx, const char *sqlstate, const char *text);
/* Fails the segment if the tenant is not one of its own. */
bool insert_allowed(struct tx *tx, struct str tenant);
/* One more row of the answer, cleared. */
struct field *emit(struct tx *tx, struct segment_call *call);
/* One more row with this text in its first column, unless one from `first` on has it already; the rest is NULL. */
void emit_once(struct tx *tx, struct segment_call *call, uint32_t first, uint32_t at, enum table_id table, const struct row *row,
	       uint32_t column);
/* All columns NULL. */
struct field *emit_nulls(struct tx *tx, struct segment_call *call);
/* A field for the answer: texts are copied to the segment's arena. */
struct field field_out(struct tx *tx, enum table_id table, const struct row *row, uint32_t column);
/* Entry `i` of a parameter; texts are borrowed. */
struct field param_field(const struct column *param, uint32_t i);
/* Copies entry `i` of a parameter into a new row. */
void row_take(struct tx *tx, enum table_id table, struct row *row, uint32_t column,
	      const struct column *param, uint32_t i);

bool run_outbox_insert(struct tx *tx, struct segment_call *call);
bool run_outbox_insert_pooled(struct tx *tx, struct segment_call *call);
bool run_outbox_insert_once(struct tx *tx, struct segment_call *call);
bool run_outbox_withdraw(struct tx *tx, struct segment_call *call);
bool run_outbox_scan(struct tx *tx, struct segment_call *call);
bool run_outbox_sweep(struct tx *tx, struct segment_call *call);
bool run_outbox_load(struct tx *tx, struct segment_call *call);
bool run_outbox_delete(struct tx *tx, struct segment_call *call);
bool run_outbox_claim_next(struct tx *tx, struct segment_call *call);
bool run_outbox_free_next(struct tx *tx, struct segment_call *call);
bool run_outbox_fail(struct tx *tx, struct segment_call *call);
bool run_outbox_renew(struct tx *tx, struct segment_call *call);
bool run_outbox_release(struct tx *tx, struct segment_call *call);
bool run_outbox_rearm(struct tx *tx, struct segment_call *call);
bool run_outbox_pins(struct tx *tx, struct segment_call *call);
bool run_outbox_list(struct tx *tx, struct segment_call *call);

bool run_kept_probe(struct tx *tx, struct segment_call *call);
bool run_kept_delete(struct tx *tx, struct segment_call *call);
bool run_kept_insert(struct tx *tx, struct segment_call *call);
bool run_kept_owner(struct tx *tx, struct segment_call *call);
bool run_kept_load(struct tx *tx, struct segment_call *call);
bool run_kept_recover(struct tx *tx, struct segment_call *call);
bool run_kept_release(struct tx *tx, struct segment_call *call);
bool run_dead_letter_replay(struct tx *tx, struct segment_call *call);
bool run_kept_own(struct tx *tx, struct segment_call *call);
bool run_kept_list(struct tx *tx, struct segment_call *call);
bool run_kept_counts(struct tx *tx, struct segment_call *call);
bool run_kept_take(struct tx *tx, struct segment_call *call);
bool run_early_probe(struct tx *tx, struct segment_call *call);
bool run_early_delete(struct tx *tx, struct segment_call *call);
bool run_early_mark(struct tx *tx, struct segment_call *call);
bool run_early_insert(struct tx *tx, struct segment_call *call);
bool run_schedule_advance(struct tx *tx, struct segment_call *call);
bool run_timer_delete(struct tx *tx, struct segment_call *call);
bool run_timer_insert(struct tx *tx, struct segment_call *call);
bool run_schedule_probe(struct tx *tx, struct segment_call *call);
bool run_timer_due(struct tx *tx, struct segment_call *call);
bool run_timer_next(struct tx *tx, struct segment_call *call);
bool run_timer_counts(struct tx *tx, struct segment_call *call);
bool run_timer_drop(struct tx *tx, struct segment_call *call);
bool run_timer_of(struct tx *tx, struct segment_call *call);
bool run_timer_list(struct tx *tx, struct segment_call *call);
bool run_schedule_put(struct tx *tx, struct segment_call *call);
bool run_schedule_list(struct tx *tx, struct segment_call *call);
bool run_lease_purge(struct tx *tx, struct segment_call *call);

/* --- sessions.c --- */
struct row *session_find(struct tx *tx, struct str tenant, struct id instance, struct str call_key);
/* Whether the session, or the call in it, has ended or is not there. */
bool call_is_over(struct tx *tx, struct str tenant, struct id instance, struct str call_key);
/* All of an instance that is removed. */
void sessions_delete(struct tx *tx, struct id instance);
bool run_session_find(struct tx *tx, struct segment_call *call);
bool run_session_insert(struct tx *tx, struct segment_call *call);
bool run_session_end(struct tx *tx, struct segment_call *call);
bool run_outbox_unpool(struct tx *tx, struct segment_call *call);
bool run_slot_delete(struct tx *tx, struct segment_call *call);
bool run_cap_channel(struct tx *tx, struct segment_call *call);
bool run_cap_tenant(struct tx *tx, struct segment_call *call);
bool run_cap_probe(struct tx *tx, struct segment_call *call);
bool run_session_mutex(struct tx *tx, struct segment_call *call);

/* --- pools.c --- */
bool slot_is_held(struct tx *tx, struct id instance, struct str pool, struct str call_key);
/* Gives the row a slot no more: it is like any other. */
void outbox_unpool(struct tx *tx, struct row *row);
bool run_slot_take(struct tx *tx, struct segment_call *call);
bool run_pool_probe(struct tx *tx, struct segment_call *call);
bool run_pool_put(struct tx *tx, struct segment_call *call);
bool run_pool_waiting(struct tx *tx, struct segment_call *call);
bool run_pool_lock_one(struct tx *tx, struct segment_call *call);
bool run_pool_scan(struct tx *tx, struct segment_call *call);
bool run_pool_more(struct tx *tx, struct segment_call *call);
bool run_rate_take(struct tx *tx, struct segment_call *call);

/* --- pools_lists.c --- */
bool run_pool_list(struct tx *tx, struct segment_call *call);
bool run_slot_list(struct tx *tx, struct segment_call *call);
bool run_slot_sweep(struct tx *tx, struct segment_call *call);
bool run_pool_sweep(struct tx *tx, struct segment_call *call);
bool run_pool_check(struct tx *tx, struct segment_call *call);

struct pool_held {
	int64_t inbound, outbound;
};
struct pool_held pool_held(struct tx *tx, struct str pool);
/* First and next head of the outbox that waits for the pool, the oldest first; NULL = none. */
struct row *pool_head(struct tx *tx, struct str pool);
struct row *pool_head_next(struct row *row, struct str pool);

#endif
