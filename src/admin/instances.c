/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of instances. Pages go by the primary key, so that a page costs the same wherever it stands; one for which too many rows would
 * have to be looked at ends early, and the next goes on there. With an alias the
 * database is asked for the instances that carry it, and those are read one by one and filtered here by the same rules.
 */
#include <stdlib.h>

#include "admin/internal.h"

/* Rows of an alias come with their snapshots, so a page of them is small. */
#define ALIAS_PAGE_MAX 100
#define STATUS_ANY     (-1)

struct instances {
	int64_t status;
	bool include_terminal;
	struct str deployment;
	struct id after;
	struct str alias_name, alias_value;
	struct id *found; /* by alias, sorted, behind `after` */
	uint32_t found_count;
};

static void claim_column(struct buf *out, const struct rows *rows, uint32_t row)
{
	if (rows_at(rows, row, 10)->is_null) {
		json_null(out, "claim");
		return;
	}
	json_name(out, "claim");
	json_open(out, '{');
	json_text_field(out, "owner", rows_at(rows, row, 10));
	json_time_field(out, "since", rows_at(rows, row, 11));
	json_close(out, '}');
}

void admin_instance_columns(struct buf *out, const struct rows *rows, uint32_t row)
{
	enum instance_status status = (enum instance_status)rows_at(rows, row, 4)->i;

	json_id_field(out, "id", rows_at(rows, row, 0));
	json_text_field(out, "tenant", rows_at(rows, row, 1));
	json_text_field(out, "deployment", rows_at(rows, row, 2));
	json_text_field(out, "process", rows_at(rows, row, 3));
	json_text(out, "status", str_of(instance_status_name(status)));
	json_int(out, "version", rows_at(rows, row, 5)->i);
	json_time_field(out, "startedAt", rows_at(rows, row, 6));
	json_time_field(out, "endedAt", rows_at(rows, row, 7));
	json_text_field(out, "code", rows_at(rows, row, 8));
	json_text_field(out, "detail", rows_at(rows, row, 9));
	claim_column(out, rows, row);
}

static void write_one(struct buf *out, const struct rows *rows, uint32_t row)
{
	json_open(out, '{');
	admin_instance_columns(out, rows, row);
	json_close(out, '}');
}

static void list_begin(struct buf *out)
{
	json_open(out, '{');
	json_name(out, "instances");
	json_open(out, '[');
}

static void page_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct buf *out = &request->body;
	char cursor[ID_TEXT_SIZE];
	struct id next;

	list_begin(out);
	for (uint32_t i = 0; i < rows->row_count && i < request->limit; i++)
		if (!rows_at(rows, i, 1)->is_null)
			write_one(out, rows, i);
	json_next(out, admin_next_id(request, rows, 1, &next) ? str_of(id_format(next, cursor)) : STR_NONE);
	admin_answer_json(request);
}

static void ask_page(struct admin_request *request)
{
	const struct instances *state = request->state;

	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_INSTANCE_LIST);
	admin_param_int(request, 0, 0, state->status);
	admin_param_bool(request, 0, 1, state->include_terminal);
	admin_param_text(request, 0, 2, state->deployment);
	admin_param_id(request, 0, 3, state->after);
	admin_param_int(request, 0, 4, LOOK_MAX);
	/* One more than asked for tells whether there is a next page. */
	admin_param_int(request, 0, 5, (int64_t)request->limit + 1);
	admin_ask(request, false, page_answered);
}

/* --- by alias --- */

static int compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct id));
}

static bool is_wanted(const struct instances *state, const struct rows *rows)
{
	enum instance_status status = (enum instance_status)rows_at(rows, 0, 4)->i;

	if (state->status != STATUS_ANY
		    ? state->status != (int64_t)status
		    : !state->include_terminal && instance_status_is_terminal(status))
		return false;
	return !state->deployment.ptr || str_equal(state->deployment, rows_at(rows, 0, 2)->str);
}

static void aliased_answered(struct admin_request *request)
{
	const struct instances *state = request->state;
	struct buf *out = &request->body;
	char cursor[ID_TEXT_SIZE];
	uint32_t asked = request->query.segment.call_count;

	list_begin(out);
	for (uint32_t i = 0; i < asked; i++) {
		const struct rows *rows = &request->calls[i].rows;

		if (rows->row_count && is_wanted(state, rows))
			write_one(out, rows, 0);
	}
	json_next(out, asked < state->found_count
			       ? str_of(id_format(state->found[asked - 1], cursor))
			       : STR_NONE);
	admin_answer_json(request);
}

static void alias_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct instances *state = request->state;
	uint32_t asked;

	state->found = arena_alloc(&request->arena, sizeof(*state->found) * (rows->row_count + 1));
	for (uint32_t i = 0; i < rows->row_count; i++)
		if (compare_ids(&rows_at(rows, i, 0)->id, &state->after) > 0)
			state->found[state->found_count++] = rows_at(rows, i, 0)->id;
	if (state->found_count == 0) {
		list_begin(&request->body);
		json_next(&request->body, STR_NONE);
		admin_answer_json(request);
		return;
	}
	qsort(state->found, state->found_count, sizeof(*state->found), compare_ids);
	asked = request->limit < ALIAS_PAGE_MAX ? request->limit : ALIAS_PAGE_MAX;
	if (asked > state->found_count)
		asked = state->found_count;
	admin_ask_begin(request, asked);
	for (uint32_t i = 0; i < asked; i++) {
		admin_ask_call(request, i, STATEMENT_INSTANCE_GET);
		admin_param_id(request, i, 0, state->found[i]);
	}
	admin_ask(request, false, aliased_answered);
}

/* The alias may be any tenant's: one key for each. */
static void ask_alias(struct admin_request *request)
{
	const struct instances *state = request->state;
	uint32_t most = 0, count = 0;
	struct str *tenants;
	struct id *keys;

	for (size_t i = 0; i < request->tenants.len; i++)
		most += request->tenants.ptr[i] == ',';
	tenants = arena_alloc(&request->arena, sizeof(*tenants) * most);
	keys = arena_alloc(&request->arena, sizeof(*keys) * most);
	for (const char *at = request->tenants.ptr + 1; *at; count++) {
		size_t len = strcspn(at, ",");

		tenants[count] = str_make(at, len);
		keys[count] = store_alias_key(tenants[count], state->alias_name,
					      state->alias_value);
		at += len + 1;
	}
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_ALIAS_PROBE);
	((struct column *)request->calls[0].params)[0] = (struct column){
		.type = COLUMN_TEXT, .count = count, .strs = tenants};
	((struct column *)request->calls[0].params)[1] = (struct column){
		.type = COLUMN_ID, .count = count, .ids = keys};
	admin_ask(request, false, alias_answered);
}

/* --- parameters --- */

static bool bad(struct admin_request *request, const char *parameter, const char *rule)
{
	admin_problem(request, MHD_HTTP_BAD_REQUEST, CODE_ADMIN_BAD_REQUEST, "parameter",
		      str_of(parameter), "%s %s", parameter, rule);
	return false;
}

static bool read_status(struct admin_request *request, struct instances *state)
{
	struct str text = admin_parameter(request, "status");

	state->status = STATUS_ANY;
	if (!text.ptr)
		return true;
	for (int status = INSTANCE_SUSPENDED; status <= INSTANCE_FAILED; status++)
		if (str_equal(text, str_of(instance_status_name((enum instance_status)status))))
			state->status = status;
	return state->status != STATUS_ANY ||
	       bad(request, "status", "must be SUSPENDED, COMPLETED, TERMINATED or FAILED");
}

static bool read_filters(struct admin_request *request, struct instances *state)
{
	struct str terminal = admin_parameter(request, "includeTerminal");
	struct str alias = admin_parameter(request, "alias"),
		   cursor = admin_parameter(request, "cursor");
	ptrdiff_t colon;

	if (!read_status(request, state))
		return false;
	state->include_terminal = str_equal(terminal, STR("true"));
	if (terminal.ptr && !state->include_terminal && !str_equal(terminal, STR("false")))
		return bad(request, "includeTerminal", "must be true or false");
	state->deployment = admin_parameter(request, "deployment");
	if (cursor.ptr && !admin_read_id(request, "cursor", cursor, &state->after))
		return false;
	if (!alias.ptr)
		return true;
	colon = str_find(alias, ':');
	if (colon <= 0 || !str_is_utf8(alias))
		return bad(request, "alias", "must be name:value");
	state->alias_name = str_make(alias.ptr, (size_t)colon);
	state->alias_value = str_make(alias.ptr + colon + 1, alias.len - (size_t)colon - 1);
	return true;
}

void admin_instances(struct admin_request *request)
{
	struct instances *state = arena_zalloc(&request->arena, sizeof(*state));

	request->state = state;
	if (!admin_read_limit(request) || !read_filters(request, state))
		return;
	if (state->deployment.ptr &&
	    (!str_is_utf8(state->deployment) || state->deployment.len > STORE_TEXT_MAX)) {
		bad(request, "deployment", "must be a deployment id");
		return;
	}
	admin_ask_tenants(request, state->alias_name.ptr ? ask_alias : ask_page);
}
