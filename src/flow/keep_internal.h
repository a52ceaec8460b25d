/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keep.c and recover.c share: places, and questions to the store.
 *
 * Life cycle: a place ends with its last row, or with the intake; an ask with its answer. Threads: the intake's loop.
 */
#ifndef SUTRA_FLOW_KEEP_INTERNAL_H
#define SUTRA_FLOW_KEEP_INTERNAL_H

#include "flow/keep.h"

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)

/* Stands in a chain for the rows of one order key. */
struct place {
	struct delivery dlv;
	struct id order_key;
	uint64_t rows;
	uint32_t coming;  /* commits that add to them are under way */
	bool is_new;	  /* nothing of it has been tried yet, and what it is for was refused a moment ago */
	bool has_come;	  /* rows have been added since its last load was asked for */
	bool is_uncertain; /* there may be more rows than `rows`: only an empty load is its end */
	bool is_dated;	  /* since when nobody waits for its first row is known, and not to be read again */
};

/* A question to the store, with its memory. */
struct keep_ask {
	struct store_query query;
	struct arena arena;
	struct segment_call call;
	struct column params[4];
	struct intake *intake;
	struct place *place;
};

struct keep_ask *keep_ask_new(struct intake *intake, enum statement_id statement, void (*done)(struct task *));
void keep_ask_send(struct keep_ask *ask, bool writes);
/* The ask of an answer; it is not out any more. */
struct keep_ask *keep_ask_answered(struct task *done);
void keep_ask_free(struct keep_ask *ask);

/* In no chain yet. */
struct place *place_new(struct intake *intake, struct id order_key);
/* Rows have been added. It goes on if it had come to its end. */
void place_add(struct place *place, uint64_t rows);

#endif
