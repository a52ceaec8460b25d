/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that the database keeps: because a hold came to its bounds, because nobody waits for them yet, for one of several targets,
 * or to replay a dead letter. Their ids are made in order of time, so the list goes from
 * the oldest to the newest of each replica.
 */
#include "admin/why.h"

void admin_kept_columns(struct buf *out, const struct rows *rows, uint32_t row)
{
	json_id_field(out, "id", rows_at(rows, row, 0));
	json_text_field(out, "tenant", rows_at(rows, row, 1));
	json_text_field(out, "channel", rows_at(rows, row, 2));
	json_text_field(out, "kind", rows_at(rows, row, 3));
	json_id_field(out, "orderKey", rows_at(rows, row, 4));
	json_int(out, "seq", rows_at(rows, row, 5)->i);
	json_text_field(out, "keeper", rows_at(rows, row, 6));
	json_text_field(out, "source", rows_at(rows, row, 7));
	json_time_field(out, "createdAt", rows_at(rows, row, 8));
	json_time_field(out, "unmatchedSince", rows_at(rows, row, 9));
	if (rows_at(rows, row, 10)->is_null)
		json_null(out, "bytes");
	else
		json_int(out, "bytes", rows_at(rows, row, 10)->i);
}

static void kept_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;
	char cursor[ID_TEXT_SIZE];
	struct id next;

	json_open(out, '{');
	json_name(out, "kept");
	json_open(out, '[');
	for (uint32_t i = 0; i < rows->row_count && i < request->limit; i++) {
		if (rows_at(rows, i, 1)->is_null)
			break;
		json_open(out, '{');
		admin_kept_columns(out, rows, i);
		json_close(out, '}');
	}
	json_next(out, admin_next_id(request, rows, 1, &next) ? str_of(id_format(next, cursor)) : STR_NONE);
	admin_answer_json(request);
}

struct kept {
	struct str tenant, channel; /* absent = any */
	struct id after;
};

static void ask_kept(struct admin_request *request)
{
	const struct kept *state = request->state;

	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_KEPT_LIST);
	admin_param_text(request, 0, 0, state->tenant);
	admin_param_text(request, 0, 1, state->channel);
	admin_param_id(request, 0, 2, state->after);
	admin_param_int(request, 0, 3, LOOK_MAX);
	admin_param_int(request, 0, 4, (int64_t)request->limit + 1);
	admin_ask(request, false, kept_answered);
}

static bool read_name(struct admin_request *request, const char *parameter, struct str *out)
{
	*out = admin_parameter(request, parameter);
	if (!out->ptr || admin_is_name(*out))
		return true;
	admin_problem(request, MHD_HTTP_BAD_REQUEST, CODE_ADMIN_BAD_REQUEST, "parameter", str_of(parameter),
		      "%s must be a name", parameter);
	return false;
}

void admin_kept(struct admin_request *request)
{
	struct kept *state = arena_zalloc(&request->arena, sizeof(*state));
	struct str cursor = admin_parameter(request, "cursor");

	request->state = state;
	if (!admin_read_limit(request) || !read_name(request, "tenant", &state->tenant) ||
	    !read_name(request, "channel", &state->channel) ||
	    (cursor.ptr && !admin_read_id(request, "cursor", cursor, &state->after)))
		return;
	admin_ask_tenants(request, ask_kept);
}
