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

/* What the database knows of an early message, in one piece. */
struct place_early {
	uint64_t view; /* by which the keys were made */
	bool polls; /* tried again with backoff all the same: a live instance has its alias, and may end instead of waiting */
	uint32_t key_count;
	uint32_t looked_for_count, inbox_key_count;
	/* For people: */
	struct looked_for *looked_for;
	struct str source;
	struct id *inbox_keys; /* of its event id, by the rules */
	struct id keys[];
};

/* Stands in a chain for the rows of one order key. */
struct place {
	struct delivery dlv;
	struct id order_key;
	uint64_t rows;
	uint32_t coming;  /* commits that add to them are under way */
	bool is_new;	  /* nothing of it has been tried yet, and what it is for was refused a moment ago */
	bool has_come;	  /* rows have been added since its last load was asked for */
	bool is_uncertain; /* there may be more rows than `rows`: only an empty load is its end */
	struct place_early *early; /* its first row is known to stand as early under these keys; NULL = not so */
	bool has_hit;		   /* somebody may have come to wait for it since it was last tried */
	struct list early_link;	   /* in intake.asleep or .unlooked while it is held as early */
	int64_t unmatched_us; /* since then nobody came for the row before, up to its end; 0 = not so */
	bool is_dated;	  /* since when nobody waits for its first row is known, and not to be read again */
};

/* A question to the store, with its memory. */
struct keep_ask {
	struct store_query query;
	struct arena arena;
	struct segment_call call;
	struct column params[5];
	struct intake *intake;
	struct place *place;
	struct id *order_keys; /* of several places, one a key asked for */
};

struct keep_ask *keep_ask_new(struct intake *intake, enum statement_id statement, void (*done)(struct task *));
void keep_ask_send(struct keep_ask *ask, bool writes);
/* The ask of an answer; it is not out any more. */
struct keep_ask *keep_ask_answered(struct task *done);
void keep_ask_free(struct keep_ask *ask);

/* recover.c */
/* Rows of the key are ours from now on. */
void recover_row(struct intake *intake, struct id order_key, uint64_t rows);
/* The rows of the key become ours, whoever keeps them, and are wanted. */
void recover_take(struct intake *intake, struct id order_key);

/* keep_early.c */
/* As it was answered unmatched. */
struct place_early *place_early_new(const struct lane_request *request);
/* Its first row stands in the database under the keys that it has just looked for. */
bool place_is_early(const struct place *place);
/* Makes it so; then the place sleeps. */
void place_mark(struct place *place);
/* Nobody waits for its first row, whose `early` has just been committed: looks once, then waits for who comes. */
void place_sleep(struct place *place);
/* Somebody may wait for it. */
void place_hit(struct place *place);
void place_early_end(struct place *place);
/* The clockwork behind it all. */
void early_start(struct intake *intake);
void early_stop(struct intake *intake);

/* keep.c */
/* Its message goes, and all that was made of it; the row stays where it is. */
void place_unload(struct place *place);
void place_hold(struct place *place, enum lane_answer answer, enum code code, const char *text);
struct place *place_of(struct delivery *dlv);

/* In no chain yet. */
struct place *place_new(struct intake *intake, struct id order_key);
/* Rows have been added. It goes on if it had come to its end. */
void place_add(struct place *place, uint64_t rows);

#endif
