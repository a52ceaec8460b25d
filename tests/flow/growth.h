/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is expected of each statement when its tables are full: which indexes it goes by, and how many rows it may touch. The table is
 * in growth_expect.c; test_store_pg_growth.c holds every statement of statements.def to it, and one without an entry fails.
 *
 * Arguments are SQL over a sample of rows: `n` counts from one to `batch`; `m` is the number of the row in every table, chosen so that
 * instance m is unfinished and outbox row m is claimed; m + 60 is another unfinished instance, m - 1 a finished one, m + 1 an outbox row
 * that nobody has claimed. growth_load.c says what the rows of number m look like.
 *
 * Life cycle: constants. Threads: the test's.
 */
#ifndef SUTRA_TESTS_FLOW_GROWTH_H
#define SUTRA_TESTS_FLOW_GROWTH_H

#include "store/statement.h"
#include "tests/flow/pg_fixture.h"

#define GROWTH_INDEXES 6
#define GROWTH_ARGS    24
/* For any statement, unless its entry says otherwise. */
#define GROWTH_ROWS_EACH  6
#define GROWTH_ROWS_FIXED 64
#define GROWTH_BLOCKS_EACH  48
#define GROWTH_BLOCKS_FIXED 256

struct growth_expectation {
	/* Indexes of growing tables, as the plan names them: all of these, and no others. */
	const char *index[GROWTH_INDEXES];
	/* Why it needs none: it inserts only, or its table stays small. Never set together with `index`. */
	const char *none;
	/* It is asked as sutra_scan. */
	bool scan;
	/* Reads an index from its beginning on, up to a limit: this index, without a condition. */
	const char *from_start;
	/* Arguments in the order of the signature: of an array's letter each element, of a scalar's the first is taken. */
	const char *args[GROWTH_ARGS];
	/* Rows that a node of the plan may touch: for each element of the batch, and beside them. 0: the default. */
	uint32_t rows_each, rows_fixed;
	/* Blocks beside GROWTH_BLOCKS_EACH for each element. 0: the default. */
	uint32_t blocks_fixed;
};
/* NULL: there is no entry. */
const struct growth_expectation *growth_expectation_of(enum statement_id id);

/* Tables that grow with the load, and how many there are. */
extern const char *const growth_tables[];
extern const size_t growth_table_count;

/* Makes the functions that the arguments use. */
void growth_functions(PGconn *pg);
/* Fills every table, over two connections at once. */
void growth_load(void);

#endif
