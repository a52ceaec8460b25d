/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list for people: columns as wide as their widest cell, two blanks between.
 *
 * Life cycle: table_init … table_print, table_done; cells are copied. Threads: one.
 */
#ifndef SUTRA_CLI_TABLE_H
#define SUTRA_CLI_TABLE_H

#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"

#define TABLE_COLUMNS_MAX 10

struct table {
	struct arena arena;
	uint32_t columns;
	uint32_t widths[TABLE_COLUMNS_MAX];
	struct str *cells; /* row by row; the first row is the head */
	uint32_t count, room;
};

/* `heads` is NULL-terminated. */
void table_init(struct table *table, const char *const *heads);
void table_done(struct table *table);
/* The next cell; an absent one is shown as "-". What a terminal would take for more than text is shown as "?". */
void table_cell(struct table *table, struct str text);
void table_print(const struct table *table, FILE *out);

/* Appends a text from outside, so that it is on one line and does nothing to a terminal. */
void table_plain(struct buf *out, struct str text);

#endif
