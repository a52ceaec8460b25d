/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outbox in the order of its primary key, so that the rows of one order group stand together and the first of them is
 * the one that all others wait for. A cursor is that key as text: <instance>.<version>.<ordinal>.<channel>.
 */
#include "admin/internal.h"

struct outbox_cursor {
	struct id instance;
	int64_t version, ordinal;
	struct str channel;
};

/* The part before the next dot; false if there is none. */
static bool next_part(struct str *rest, struct str *part)
{
	ptrdiff_t dot = str_find(*rest, '.');

	if (dot < 0)
		return false;
	*part = str_make(rest->ptr, (size_t)dot);
	*rest = str_make(rest->ptr + dot + 1, rest->len - (size_t)dot - 1);
	return true;
}

static bool cursor_read(struct str text, struct outbox_cursor *cursor)
{
	struct str instance, version, ordinal;

	if (!next_part(&text, &instance) || !next_part(&text, &version) ||
	    !next_part(&text, &ordinal))
		return false;
	cursor->channel = text;
	return id_parse(instance, &cursor->instance) && str_to_int64(version, &cursor->version) &&
	       str_to_int64(ordinal, &cursor->ordinal) && text.len <= STORE_TEXT_MAX &&
	       str_is_utf8(text);
}

static struct str cursor_write(struct admin_request *request, const struct rows *rows, uint32_t row)
{
	char instance[ID_TEXT_SIZE];

	id_format(rows_at(rows, row, 2)->id, instance);
	return str_of(arena_printf(
		&request->arena, "%s.%lld.%lld.%.*s", instance, (long long)rows_at(rows, row, 4)->i,
		(long long)rows_at(rows, row, 5)->i, STR_ARG(rows_at(rows, row, 3)->str)));
}

/* It is JSON that the outbox wrote; anything else is shown as a text. */
static void diagnostic_column(struct admin_request *request, const struct field *field)
{
	const struct value_limits limits = VALUE_LIMITS_DEFAULT;
	struct error err = ERROR_INIT;
	msgpack_object value;

	if (!field->is_null &&
	    value_json_read(&request->arena, field->str, false, &limits, &value, &err) == RESULT_OK)
		json_value(&request->body, "diagnostic", &value);
	else
		json_text_field(&request->body, "diagnostic", field);
}

static const char *state_of(const struct rows *rows, uint32_t row)
{
	if (rows_at(rows, row, 11)->b)
		return "poisoned";
	return rows_at(rows, row, 10)->is_null ? "waiting" : "claimed";
}

static void write_row(struct admin_request *request, const struct rows *rows, uint32_t row)
{
	struct buf *out = &request->body;

	json_open(out, '{');
	json_id_field(out, "id", rows_at(rows, row, 0));
	json_text_field(out, "tenant", rows_at(rows, row, 1));
	json_id_field(out, "instance", rows_at(rows, row, 2));
	json_text_field(out, "channel", rows_at(rows, row, 3));
	json_int(out, "version", rows_at(rows, row, 4)->i);
	json_int(out, "ordinal", rows_at(rows, row, 5)->i);
	json_text(out, "state", str_of(state_of(rows, row)));
	json_int(out, "attempts", rows_at(rows, row, 6)->i);
	json_time_field(out, "createdAt", rows_at(rows, row, 7));
	json_time_field(out, "nextAttemptAt", rows_at(rows, row, 8));
	json_time_field(out, "claimedAt", rows_at(rows, row, 9));
	json_text_field(out, "claimOwner", rows_at(rows, row, 10));
	diagnostic_column(request, rows_at(rows, row, 12));
	json_close(out, '}');
}

static void outbox_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;
	bool more = rows->row_count > request->limit;

	json_open(out, '{');
	json_name(out, "outbox");
	json_open(out, '[');
	for (uint32_t i = 0; i < rows->row_count && i < request->limit; i++)
		write_row(request, rows, i);
	json_next(out, more ? cursor_write(request, rows, request->limit - 1) : STR_NONE);
	admin_answer_json(request);
}

static void ask_outbox(struct admin_request *request)
{
	const struct outbox_cursor *after = request->state;

	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_OUTBOX_LIST);
	admin_param_id(request, 0, 0, after->instance);
	admin_param_text(request, 0, 1, after->channel);
	admin_param_int(request, 0, 2, after->version);
	admin_param_int(request, 0, 3, after->ordinal);
	admin_param_int(request, 0, 4, (int64_t)request->limit + 1);
	admin_ask(request, false, outbox_answered);
}

void admin_outbox(struct admin_request *request)
{
	struct outbox_cursor *after = arena_zalloc(&request->arena, sizeof(*after));
	struct str cursor = admin_parameter(request, "cursor");

	after->channel = STR("");
	request->state = after;
	if (!admin_read_limit(request))
		return;
	if (cursor.ptr && !cursor_read(cursor, after)) {
		admin_problem(request, MHD_HTTP_BAD_REQUEST, CODE_ADMIN_BAD_REQUEST, "parameter",
			      STR("cursor"), "cursor must be one that a page of this list gave");
		return;
	}
	admin_ask_tenants(request, ask_outbox);
}

/* --- one is to be sent again --- */

static void retry_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;

	if (rows->row_count == 0) {
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "no outbox row of this id waits: it may have been sent meanwhile, or is being sent just now");
		return;
	}
	if (!rows_at(rows, 0, 4)->is_null) {
		admin_problem(request, MHD_HTTP_CONFLICT, CODE_ADMIN_OUTBOX_CLAIMED, "owner", rows_at(rows, 0, 4)->str,
			      "replica %.*s is sending it just now", STR_ARG(rows_at(rows, 0, 4)->str));
		return;
	}
	json_open(out, '{');
	json_text(out, "id", request->id);
	json_id_field(out, "instance", rows_at(rows, 0, 0));
	json_text_field(out, "channel", rows_at(rows, 0, 1));
	json_text(out, "was", rows_at(rows, 0, 3)->b ? STR("poisoned") : STR("waiting"));
	json_int(out, "attempts", rows_at(rows, 0, 2)->i);
	json_close(out, '}');
	admin_answer_json(request);
}

static void ask_retry(struct admin_request *request)
{
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_OUTBOX_REARM);
	admin_param_id(request, 0, 0, *(const struct id *)request->state);
	admin_param_int(request, 0, 1, LOOK_MAX);
	admin_ask_write(request, retry_answered);
}

void admin_outbox_retry(struct admin_request *request)
{
	struct id *id = request->state = arena_alloc(&request->arena, sizeof(*id));

	if (admin_read_id(request, "id", request->id, id))
		admin_ask_tenants(request, ask_retry);
}
