/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and texts for a terminal. What they show may come from anybody who can send a message, so no control byte passes. */
#include "cli/table.h"

#include "base/alloc.h"

void table_plain(struct buf *out, struct str text)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];

		/* Also the control codes that UTF-8 has in two bytes. */
		if (c == 0xc2 && i + 1 < text.len && (unsigned char)text.ptr[i + 1] < 0xa0) {
			buf_add_byte(out, '?');
			i++;
			continue;
		}
		buf_add_byte(out, c < 0x20 || c == 0x7f ? (c == '\n' || c == '\t' ? ' ' : '?') : (char)c);
	}
}

/* Characters, not bytes; wide ones are not known. */
static uint32_t width_of(struct str text)
{
	uint32_t width = 0;

	for (size_t i = 0; i < text.len; i++)
		width += ((unsigned char)text.ptr[i] & 0xc0) != 0x80;
	return width;
}

void table_cell(struct table *table, struct str text)
{
	uint32_t column = table->count % table->columns, width;
	struct buf plain = BUF_INIT;

	if (text.ptr)
		table_plain(&plain, text);
	else
		buf_add_byte(&plain, '-');
	if (table->count == table->room) {
		table->room = table->room ? 2 * table->room : 64;
		table->cells = mem_array(table->cells, table->room, sizeof(*table->cells));
	}
	table->cells[table->count] = arena_str(&table->arena, buf_str(&plain));
	width = width_of(table->cells[table->count++]);
	if (width > table->widths[column])
		table->widths[column] = width;
	buf_done(&plain);
}

void table_init(struct table *table, const char *const *heads)
{
	*table = (struct table){.columns = 0};
	arena_init(&table->arena);
	while (heads[table->columns])
		table->columns++;
	assert(table->columns && table->columns <= TABLE_COLUMNS_MAX);
	for (uint32_t i = 0; i < table->columns; i++)
		table_cell(table, str_of(heads[i]));
}

void table_done(struct table *table)
{
	arena_done(&table->arena);
	free(table->cells);
}

void table_print(const struct table *table, FILE *out)
{
	for (uint32_t i = 0; i < table->count; i++) {
		uint32_t column = i % table->columns;
		bool is_last = column + 1 == table->columns;

		fprintf(out, "%.*s", STR_ARG(table->cells[i]));
		if (is_last)
			fputc('\n', out);
		else
			fprintf(out, "%*s", (int)(table->widths[column] - width_of(table->cells[i]) + 2), "");
	}
}
