/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deployments: the table, and what this replica knows on top of it: whether it has them loaded, where they came from, and
 * why one failed. Paths and reasons are for /admin alone. What could not even be read has no id and stands at the end.
 */
#include <stdlib.h>

#include "admin/internal.h"

struct deployments {
	bool is_admin;
	struct str after;
};

static const struct activation_entry *entry_of(struct admin *admin, struct str id)
{
	const struct activation *activation = admin->activation;

	for (uint32_t i = 0; activation && i < activation->count; i++)
		if (str_equal(str_of(activation->entries[i].id), id))
			return &activation->entries[i];
	return NULL;
}

static void write_local(struct buf *out, const struct activation_entry *entry)
{
	json_text(out, "path", entry ? entry->path : STR_NONE);
	json_text(out, "reasons", entry ? entry->reasons : STR_NONE);
}

/* Members only. */
static void write_row(struct admin_request *request, const struct rows *rows, uint32_t row)
{
	const struct deployments *state = request->state;
	struct str id = rows_at(rows, row, 0)->str;
	struct view *view = request->admin->view;
	struct buf *out = &request->body;

	json_text(out, "id", id);
	json_text_field(out, "tenant", rows_at(rows, row, 1));
	json_text_field(out, "module", rows_at(rows, row, 2));
	json_text_field(out, "version", rows_at(rows, row, 3));
	json_text_field(out, "phase", rows_at(rows, row, 4));
	json_time_field(out, "createdAt", rows_at(rows, row, 5));
	json_bool(out, "loaded", view && view_deployment(view, id));
	if (state->is_admin)
		write_local(out, entry_of(request->admin, id));
}

static void write_unread(struct admin_request *request)
{
	const struct deployments *state = request->state;
	const struct activation *activation = request->admin->activation;
	struct buf *out = &request->body;

	for (uint32_t i = 0; activation && i < activation->count; i++) {
		const struct activation_entry *entry = &activation->entries[i];

		if (entry->id[0])
			continue;
		json_open(out, '{');
		json_null(out, "id");
		json_text(out, "tenant", entry->tenant);
		json_text(out, "module", entry->module);
		json_text(out, "version", entry->version);
		json_text(out, "phase", str_of(deployment_phase_name(entry->phase)));
		json_null(out, "createdAt");
		json_bool(out, "loaded", false);
		if (state->is_admin)
			write_local(out, entry);
		json_close(out, '}');
	}
}

struct listed {
	struct str id;
	uint32_t row;
};

static int compare_listed(const void *a, const void *b)
{
	return str_compare(((const struct listed *)a)->id, ((const struct listed *)b)->id);
}

static void list_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	const struct deployments *state = request->state;
	struct listed *order = arena_alloc(&request->arena, sizeof(*order) * (rows->row_count + 1));
	struct buf *out = &request->body;
	struct str next = STR_NONE;
	uint32_t count = 0, written = 0;

	for (uint32_t i = 0; i < rows->row_count; i++)
		if (!state->after.ptr || str_compare(rows_at(rows, i, 0)->str, state->after) > 0)
			order[count++] = (struct listed){rows_at(rows, i, 0)->str, i};
	if (count)
		qsort(order, count, sizeof(*order), compare_listed);
	json_open(out, '{');
	json_name(out, "deployments");
	json_open(out, '[');
	for (; written < count && written < request->limit; written++) {
		json_open(out, '{');
		write_row(request, rows, order[written].row);
		json_close(out, '}');
	}
	if (written < count)
		next = order[written - 1].id;
	else
		write_unread(request);
	json_next(out, next);
	admin_answer_json(request);
}

static void list(struct admin_request *request, bool is_admin)
{
	struct deployments *state = arena_zalloc(&request->arena, sizeof(*state));

	state->is_admin = is_admin;
	state->after = admin_parameter(request, "cursor");
	request->state = state;
	if (!admin_read_limit(request))
		return;
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_DEPLOYMENT_LIST);
	admin_ask(request, false, list_answered);
}

void admin_deployments(struct admin_request *request)
{
	list(request, true);
}

void admin_deployments_open(struct admin_request *request)
{
	list(request, false);
}

/* --- one --- */

static void one_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;

	for (uint32_t i = 0; i < rows->row_count; i++) {
		if (!str_equal(rows_at(rows, i, 0)->str, request->id))
			continue;
		json_open(out, '{');
		write_row(request, rows, i);
		json_bool(out, "pinned", rows_at(rows, i, 6)->b);
		json_close(out, '}');
		admin_answer_json(request);
		return;
	}
	admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
		      "there is no such deployment");
}

static void one(struct admin_request *request, bool is_admin)
{
	struct deployments *state = arena_zalloc(&request->arena, sizeof(*state));

	state->is_admin = is_admin;
	request->state = state;
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_DEPLOYMENT_LIST);
	admin_ask(request, false, one_answered);
}

void admin_deployment(struct admin_request *request)
{
	one(request, true);
}

void admin_deployment_open(struct admin_request *request)
{
	one(request, false);
}
