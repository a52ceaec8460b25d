/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of every statement, between the files that hold them. Life cycle: constants. Threads: none.
 */
#ifndef SUTRA_STORE_PG_SQL_H
#define SUTRA_STORE_PG_SQL_H

#include "store/pg/private.h"

#define STATEMENT(name, params, results, gate) extern const char sql_##name[];
#include "store/statements.def"
#undef STATEMENT

#endif
