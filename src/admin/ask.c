/* SPDX-License-Identifier: Apache-2.0 */
/* What a request asks the store, and what it was asked itself. */
#include <stdlib.h>

#include "admin/internal.h"

static void ask_answered(struct task *task)
{
	struct admin_request *request = container_of(task, struct admin_request, query.base.done);

	if (request->query.base.outcome == STORE_OK) {
		request->then(request);
		return;
	}
	admin_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, NULL,
		      STR_NONE, "%s", request->query.base.error.text);
}

void admin_ask_begin(struct admin_request *request, uint32_t count)
{
	request->calls = arena_zalloc(&request->arena, sizeof(*request->calls) * count);
	request->query = (struct store_query){
		.base = {.reply_to = request->admin->loop,
			 .done.run = ask_answered,
			 .arena = &request->arena},
		.segment = {.calls = request->calls,
			    .call_count = count,
			    .tenants = request->tenants},
	};
}

void admin_ask_call(struct admin_request *request, uint32_t call, enum statement_id statement)
{
	request->calls[call] = (struct segment_call){
		.statement = statement,
		.params = arena_zalloc(&request->arena, sizeof(struct column) * REQUEST_PARAMS),
	};
}

static void param_set(struct admin_request *request, uint32_t call, uint32_t param,
		      enum column_type type, const void *value, size_t size)
{
	/* The parameters are ours until the query is sent. */
	struct column *column = (struct column *)&request->calls[call].params[param];

	assert(param < REQUEST_PARAMS);
	*column = (struct column){.type = type, .scalar = true, .count = 1};
	column->ints = arena_memdup(&request->arena, value, size);
}

void admin_param_int(struct admin_request *request, uint32_t call, uint32_t param, int64_t value)
{
	param_set(request, call, param, COLUMN_INT, &value, sizeof(value));
}

void admin_param_bool(struct admin_request *request, uint32_t call, uint32_t param, bool value)
{
	param_set(request, call, param, COLUMN_BOOL, &value, sizeof(value));
}

void admin_param_id(struct admin_request *request, uint32_t call, uint32_t param, struct id value)
{
	param_set(request, call, param, COLUMN_ID, &value, sizeof(value));
}

void admin_param_text(struct admin_request *request, uint32_t call, uint32_t param,
		      struct str value)
{
	param_set(request, call, param, COLUMN_TEXT, &value, sizeof(value));
}

void admin_param_bytes(struct admin_request *request, uint32_t call, uint32_t param, struct str value)
{
	param_set(request, call, param, COLUMN_BYTES, &value, sizeof(value));
}

void admin_ask_write(struct admin_request *request, void (*then)(struct admin_request *request))
{
	request->query.segment.writes = request->query.segment.durable = true;
	admin_ask(request, false, then);
}

void admin_ask(struct admin_request *request, bool scan,
	       void (*then)(struct admin_request *request))
{
	request->query.segment.scan = scan;
	request->then = then;
	store_query(request->admin->sources.store, &request->query);
}

/* --- tenants --- */

struct tenants_state {
	void (*then)(struct admin_request *request);
	void *state; /* what the route keeps there */
};

static int compare_strs(const void *a, const void *b)
{
	return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static void tenants_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	struct tenants_state *state = request->state;
	struct str *names = arena_alloc(&request->arena, sizeof(*names) * (rows->row_count + 1));

	for (uint32_t i = 0; i < rows->row_count; i++)
		names[i] = rows_at(rows, i, 1)->str;
	if (rows->row_count)
		qsort(names, rows->row_count, sizeof(*names), compare_strs);
	/* Sorted, so each is there once. */
	request->tenants = store_tenants(&request->arena, names, rows->row_count);
	request->state = state->state;
	state->then(request);
}

void admin_ask_tenants(struct admin_request *request, void (*then)(struct admin_request *request))
{
	struct tenants_state *state = arena_alloc(&request->arena, sizeof(*state));

	*state = (struct tenants_state){then, request->state};
	request->state = state;
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_DEPLOYMENT_LIST);
	admin_ask(request, false, tenants_answered);
}

/* --- parameters --- */

static void bad_parameter(struct admin_request *request, const char *name, const char *rule)
{
	admin_problem(request, MHD_HTTP_BAD_REQUEST, CODE_ADMIN_BAD_REQUEST, "parameter",
		      str_of(name), "%s %s", name, rule);
}

bool admin_read_limit(struct admin_request *request)
{
	struct str text = admin_parameter(request, "limit");
	int64_t limit = PAGE_DEFAULT;

	if (text.ptr && (!str_to_int64(text, &limit) || limit < 1 || limit > PAGE_MAX)) {
		bad_parameter(request, "limit", "must be a number from 1 to 1000");
		return false;
	}
	request->limit = (uint32_t)limit;
	return true;
}

bool admin_read_id(struct admin_request *request, const char *parameter, struct str text,
		   struct id *out)
{
	if (id_parse(text, out))
		return true;
	bad_parameter(request, parameter, "must be a UUID");
	return false;
}

bool admin_next_id(const struct admin_request *request, const struct rows *rows, uint32_t filled, struct id *next)
{
	uint32_t count = rows->row_count;

	if (count > request->limit)
		*next = rows_at(rows, request->limit - 1, 0)->id;
	else if (count && rows_at(rows, count - 1, filled)->is_null)
		*next = rows_at(rows, count - 1, 0)->id;
	else
		return false;
	return true;
}

bool admin_rows_trim(struct rows *rows, uint32_t filled)
{
	bool early = rows->row_count && rows_at(rows, rows->row_count - 1, filled)->is_null;

	rows->row_count -= early;
	return early;
}

bool admin_is_name(struct str text)
{
	return text.len && text.len <= STORE_TEXT_MAX && str_is_utf8(text) && str_find(text, '\0') < 0;
}
