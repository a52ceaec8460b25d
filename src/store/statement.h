/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named statements: the whole vocabulary between the store and a segment executor. Each works on sets: its parameters are
 * typed array columns (one entry an element or row) and a few scalars; it answers with typed rows.
 *
 * statements.def lists every statement with its signature and what it means; store/pg/statements.c has the SQL of each
 * and the index it relies on; store/memory/statements.c does the same on in-memory tables.
 * Life cycle: constants; columns and rows are plain data in the segment's arena. Threads: none.
 */
#ifndef SUTRA_STORE_STATEMENT_H
#define SUTRA_STORE_STATEMENT_H

#include "base/arena.h"
#include "base/id.h"
#include "base/str.h"

/* The letters of a signature: lower case an array column, upper case a scalar (parameters only). */
enum column_type {
	COLUMN_INT = 'i', /* int8 */
	COLUMN_ID = 'u',  /* uuid */
	COLUMN_TEXT =
		't', /* text; an absent str is NULL. Valid UTF-8 without NUL: the store checks before batching */
	COLUMN_BYTES = 'b', /* bytea; an absent str is NULL */
	COLUMN_BOOL = 'o',
	COLUMN_TIME = 'z', /* timestamptz, microseconds since 1970; COLUMN_TIME_NULL is NULL */
};
#define COLUMN_TIME_NULL INT64_MIN

struct column {
	enum column_type type;
	bool scalar;
	uint32_t count; /* 1 for a scalar */
	union {
		const int64_t *ints;    /* INT and TIME */
		const struct id *ids;   /* the all-zero id is a value like any other, not NULL */
		const struct str *strs; /* TEXT and BYTES */
		const bool *bools;
	};
};

/* Scalar parameters; the value is copied into the arena (of a text the slice, not its bytes). */
static inline struct column column_scalar_int(struct arena *arena, int64_t value)
{
	return (struct column){.type = COLUMN_INT,
			       .scalar = true,
			       .count = 1,
			       .ints = arena_memdup(arena, &value, sizeof(value))};
}

static inline struct column column_scalar_id(struct arena *arena, struct id value)
{
	return (struct column){.type = COLUMN_ID,
			       .scalar = true,
			       .count = 1,
			       .ids = arena_memdup(arena, &value, sizeof(value))};
}

static inline struct column column_scalar_text(struct arena *arena, struct str value)
{
	return (struct column){.type = COLUMN_TEXT,
			       .scalar = true,
			       .count = 1,
			       .strs = arena_memdup(arena, &value, sizeof(value))};
}

/* One field of an answer. */
struct field {
	bool is_null;
	union {
		int64_t i; /* INT and TIME */
		struct id id;
		struct str str; /* TEXT and BYTES; in the segment's arena */
		bool b;
	};
};

struct rows {
	uint32_t row_count;
	uint32_t column_count;
	struct field *fields; /* row by row */
};
static inline const struct field *rows_at(const struct rows *rows, uint32_t row, uint32_t column)
{
	return &rows->fields[(size_t)row * rows->column_count + column];
}

/* Why a gate failed: STATEMENT SU001's reason. */
enum gate {
	GATE_NONE,
	GATE_FENCE,     /* owner or version changed, or the row is locked by somebody */
	GATE_DUPLICATE, /* an inbox key was there */
	GATE_EXISTS, /* the instance's own row was there: this very commit had succeeded before */
	GATE_ALIAS,  /* a unique alias is taken */
	GATE_WAIT,   /* a unique wait is taken */
	GATE_KEPT,   /* a kept message is gone, or another keeper's */
	GATE_SCHEDULE, /* a start timer is not due as expected any more, or its row is locked by somebody */
	GATE_CHANNEL_CAP, /* as many instances of a channel count as may */
	GATE_TENANT_CAP,  /* likewise of a tenant */
	GATE_POOL,        /* a capacity pool has no free slot, or is not there */
};

enum statement_id {
#define STATEMENT(name, params, results, gate) STATEMENT_##name,
#include "store/statements.def"
#undef STATEMENT
	STATEMENT_COUNT
};

struct statement_info {
	const char *name;
	const char *params;  /* one letter a parameter */
	const char *results; /* one letter a column */
	enum gate gate;      /* GATE_NONE: none */
};
/* @thread any */
const struct statement_info *statement_info(enum statement_id id);

#endif
