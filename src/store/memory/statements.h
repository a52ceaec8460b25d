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

#endif
