/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters: the list, and one with its payload exactly as it came: in base64 always, and as text if it is text.
 */
#include "admin/internal.h"
#include "value/header.h"

static void write_columns(struct buf *out, const struct rows *rows, uint32_t row)
{
	json_id_field(out, "id", rows_at(rows, row, 0));
	json_text_field(out, "tenant", rows_at(rows, row, 1));
	json_text_field(out, "channel", rows_at(rows, row, 2));
	json_text_field(out, "eventId", rows_at(rows, row, 3));
	json_text_field(out, "source", rows_at(rows, row, 4));
	json_text_field(out, "messageType", rows_at(rows, row, 5));
	json_text_field(out, "code", rows_at(rows, row, 6));
	json_text_field(out, "detail", rows_at(rows, row, 7));
	json_id_field(out, "instance", rows_at(rows, row, 8));
	json_text_field(out, "contentType", rows_at(rows, row, 9));
	json_time_field(out, "createdAt", rows_at(rows, row, 10));
}

static void list_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;
	char cursor[ID_TEXT_SIZE];
	bool more = rows->row_count > request->limit;

	json_open(out, '{');
	json_name(out, "deadLetters");
	json_open(out, '[');
	for (uint32_t i = 0; i < rows->row_count && i < request->limit; i++) {
		json_open(out, '{');
		write_columns(out, rows, i);
		json_close(out, '}');
	}
	json_next(out, more ? str_of(id_format(rows_at(rows, request->limit - 1, 0)->id, cursor))
			    : STR_NONE);
	admin_answer_json(request);
}

static void ask_list(struct admin_request *request)
{
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_DEAD_LETTER_LIST);
	admin_param_id(request, 0, 0, *(const struct id *)request->state);
	admin_param_int(request, 0, 1, (int64_t)request->limit + 1);
	admin_ask(request, false, list_answered);
}

void admin_dead_letters(struct admin_request *request)
{
	struct id *after = request->state = arena_zalloc(&request->arena, sizeof(*after));
	struct str cursor = admin_parameter(request, "cursor");

	if (!admin_read_limit(request) ||
	    (cursor.ptr && !admin_read_id(request, "cursor", cursor, after)))
		return;
	admin_ask_tenants(request, ask_list);
}

/* --- one --- */

/* Bytes as they are: "<name>Base64", and "<name>" if they are UTF-8. */
static void write_bytes(struct buf *out, const char *name, const char *base64_name,
			const struct field *field)
{
	if (field->is_null) {
		json_null(out, name);
		json_null(out, base64_name);
		return;
	}
	json_text(out, name, str_is_utf8(field->str) ? field->str : STR_NONE);
	json_name(out, base64_name);
	buf_add_byte(out, '"');
	base64_encode(field->str, out);
	buf_add_byte(out, '"');
}

static void write_headers(struct admin_request *request, const struct field *field)
{
	struct buf *out = &request->body;
	struct header_list headers = {0};
	struct error err = ERROR_INIT;

	if (!field->is_null &&
	    headers_unpack(&request->arena, field->str, &headers, &err) != RESULT_OK)
		json_text(out, "headersError", str_of(err.text));
	json_name(out, "headers");
	json_open(out, '[');
	for (size_t i = 0; i < headers.count; i++) {
		json_open(out, '{');
		json_text(out, "name", headers.items[i].name);
		json_value(out, "value", &headers.items[i].value);
		json_close(out, '}');
	}
	json_close(out, ']');
}

static void one_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;

	if (rows->row_count == 0) {
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "there is no such dead letter");
		return;
	}
	json_open(out, '{');
	write_columns(out, rows, 0);
	write_bytes(out, "recordKey", "recordKeyBase64", rows_at(rows, 0, 11));
	write_headers(request, rows_at(rows, 0, 12));
	write_bytes(out, "payload", "payloadBase64", rows_at(rows, 0, 13));
	json_int(out, "replays", rows_at(rows, 0, 14)->i);
	json_close(out, '}');
	admin_answer_json(request);
}

static void ask_one(struct admin_request *request)
{
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_DEAD_LETTER_GET);
	admin_param_id(request, 0, 0, *(const struct id *)request->state);
	admin_ask(request, false, one_answered);
}

void admin_dead_letter(struct admin_request *request)
{
	struct id *id = request->state = arena_alloc(&request->arena, sizeof(*id));

	if (admin_read_id(request, "id", request->id, id))
		admin_ask_tenants(request, ask_one);
}
