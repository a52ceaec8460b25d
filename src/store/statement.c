/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of statements, made from statements.def. What a statement does is written twice and nowhere else: as SQL in
 * store/pg and over tables in store/memory.
 */
#include "store/statement.h"

#include "base/attr.h"

static const struct statement_info statements[] = {
#define STATEMENT(name, params, results, gate) [STATEMENT_##name] = {#name, params, results, gate},
#include "store/statements.def"
#undef STATEMENT
};

_Static_assert(ARRAY_LEN(statements) == STATEMENT_COUNT, "one line a statement");

const struct statement_info *statement_info(enum statement_id id)
{
	assert((unsigned int)id < STATEMENT_COUNT);
	return &statements[id];
}
