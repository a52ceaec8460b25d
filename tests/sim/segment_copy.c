/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deep copies by the types of the columns.
 */
#include "tests/sim/segment_copy.h"

static struct str copy_str(struct arena *arena, struct str s)
{
	return s.ptr ? arena_str(arena, s) : STR_NONE;
}

static void column_copy(struct column *to, const struct column *from, struct arena *arena)
{
	struct str *strs;

	*to = *from;
	switch (from->type) {
	case COLUMN_INT:
	case COLUMN_TIME:
		to->ints = arena_memdup(arena, from->ints, from->count * sizeof(*from->ints));
		return;
	case COLUMN_ID:
		to->ids = arena_memdup(arena, from->ids, from->count * sizeof(*from->ids));
		return;
	case COLUMN_BOOL:
		to->bools = arena_memdup(arena, from->bools, from->count * sizeof(*from->bools));
		return;
	case COLUMN_TEXT:
	case COLUMN_BYTES:
		strs = arena_alloc(arena, (from->count + 1) * sizeof(*strs));
		for (uint32_t i = 0; i < from->count; i++)
			strs[i] = copy_str(arena, from->strs[i]);
		to->strs = strs;
		return;
	}
}

void segment_copy(struct segment *to, const struct segment *from, struct arena *arena)
{
	*to = *from;
	to->arena = arena;
	to->done = NULL;
	to->user = NULL;
	to->tenants = copy_str(arena, from->tenants);
	to->calls = arena_zalloc(arena, (from->call_count + 1) * sizeof(*to->calls));
	for (uint32_t i = 0; i < from->call_count; i++) {
		const struct segment_call *call = &from->calls[i];
		size_t count = strlen(statement_info(call->statement)->params);
		struct column *params = arena_alloc(arena, (count + 1) * sizeof(*params));

		for (size_t k = 0; k < count; k++)
			column_copy(&params[k], &call->params[k], arena);
		to->calls[i] = (struct segment_call){.statement = call->statement,
						     .params = params};
	}
}

static void rows_copy(struct segment_call *to, const struct segment_call *from, struct arena *arena)
{
	const char *types = statement_info(from->statement)->results;
	size_t count = (size_t)from->rows.row_count * from->rows.column_count;

	to->rows = from->rows;
	to->rows.fields = arena_alloc(arena, (count + 1) * sizeof(struct field));
	for (size_t i = 0; i < count; i++) {
		char type = types[i % from->rows.column_count];

		to->rows.fields[i] = from->rows.fields[i];
		if (!from->rows.fields[i].is_null && (type == COLUMN_TEXT || type == COLUMN_BYTES))
			to->rows.fields[i].str = copy_str(arena, from->rows.fields[i].str);
	}
}

void segment_answer(struct segment *to, const struct segment *from)
{
	to->outcome = from->outcome;
	to->gate = from->gate;
	to->failed_count = from->failed_count;
	to->failed = arena_memdup(to->arena, from->failed,
				  from->failed_count * sizeof(*from->failed));
	to->xid = from->xid;
	snprintf(to->sqlstate, sizeof(to->sqlstate), "%s", from->sqlstate);
	snprintf(to->text, sizeof(to->text), "%s", from->text);
	if (from->outcome != SEGMENT_COMMITTED)
		return;
	for (uint32_t i = 0; i < from->call_count; i++)
		rows_copy(&to->calls[i], &from->calls[i], to->arena);
}

struct segment_call *segment_find(const struct segment *segment, enum statement_id statement)
{
	for (uint32_t i = 0; i < segment->call_count; i++)
		if (segment->calls[i].statement == statement)
			return &segment->calls[i];
	return NULL;
}
