/* SPDX-License-Identifier: Apache-2.0 */
/* One statement at a time to the store and back, with the memory of its parameters and rows. */
#include "base/alloc.h"
#include "roles/internal.h"

static void query_answered(struct task *task)
{
	struct role_query *query = container_of(task, struct role_query, query.base.done);
	struct roles *roles = query->roles;

	query->busy = false;
	roles->queries_out--;
	query->answered(query);
	roles_check_idle(roles);
}

void role_query_init(struct role_query *query, struct roles *roles,
		     void (*answered)(struct role_query *query))
{
	*query = (struct role_query){.roles = roles, .answered = answered};
	arena_init(&query->arena);
}

void role_query_done(struct role_query *query)
{
	assert(!query->busy);
	arena_done(&query->arena);
}

void role_query_begin(struct role_query *query, enum statement_id statement)
{
	assert(!query->busy);
	arena_reset(&query->arena);
	query->call = (struct segment_call){.statement = statement, .params = query->params};
	query->query = (struct store_query){
		.base = {.reply_to = query->roles->loop,
			 .done.run = query_answered,
			 .arena = &query->arena},
		.segment = {.calls = &query->call, .call_count = 1},
	};
}

void role_query_int(struct role_query *query, uint32_t param, int64_t value)
{
	query->params[param] = column_scalar_int(&query->arena, value);
}

void role_query_id(struct role_query *query, uint32_t param, struct id value)
{
	query->params[param] = column_scalar_id(&query->arena, value);
}

void role_query_text(struct role_query *query, uint32_t param, const char *value)
{
	query->params[param] = column_scalar_text(&query->arena, str_of(value));
}

void role_query_send(struct role_query *query, bool scan, bool durable, bool writes)
{
	query->query.segment.scan = scan;
	query->query.segment.durable = durable;
	query->query.segment.writes = writes;
	query->busy = true;
	query->roles->queries_out++;
	store_query(query->roles->store, &query->query);
}
