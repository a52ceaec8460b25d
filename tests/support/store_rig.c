/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness of store suites: requests are built in an arena, sent, and waited for. Sending in one turn of the store's loop
 * makes the batches of a test the same on every run.
 */
#include <stdarg.h>

#include "store/internal.h"
#include "tests/support/store_suite.h"

#define DEADLINE_MS 20000

struct store_settings store_rig_settings(void)
{
	return (struct store_settings){
		.batch_max = 256,
		.batch_max_bytes = 4 << 20,
		.lock_timeout_ms = 100,
		.claim_timeout_ms = 60000,
		.outbox_owner = "boot-1",
	};
}

static bool is_up(void *arg)
{
	struct store_rig *rig = arg;

	return store_is_up(rig->store, NULL);
}

void store_rig_init(struct store_rig *rig, struct executor *executor,
		    const struct store_settings *settings)
{
	struct store_settings usual = store_rig_settings();

	*rig = (struct store_rig){.answered = TEST_LATCH_INIT};
	arena_init(&rig->arena);
	rig->reply_to = loop_start(runtime_threads(), "reply");
	rig->store = store_new(runtime_threads(), executor, settings ? settings : &usual);
	store_start(rig->store);
	ck_assert_msg(test_wait(is_up, rig, DEADLINE_MS), "the store does not come up");
}

void store_rig_done(struct store_rig *rig)
{
	store_free(&rig->store);
	loop_stop(&rig->reply_to);
	arena_done(&rig->arena);
}

static void answered(struct task *task)
{
	struct store_request *request = container_of(task, struct store_request, done);
	struct store_rig *rig = container_of(request->arena, struct store_rig, arena);

	test_latch_raise(&rig->answered);
}

static void prepare(struct store_rig *rig, struct store_request *request, enum store_kind kind)
{
	*request = (struct store_request){.kind = kind,
					  .reply_to = rig->reply_to,
					  .done = {.run = answered},
					  .arena = &rig->arena};
}

static void dispatch(struct store_rig *rig, struct store_request *request)
{
	switch (request->kind) {
	case STORE_CLAIM:
		store_claim(rig->store, container_of(request, struct store_claim, base));
		return;
	case STORE_RELEASE:
		store_release(rig->store, container_of(request, struct store_release, base));
		return;
	case STORE_RESOLVE:
		store_resolve(rig->store, container_of(request, struct store_resolve, base));
		return;
	case STORE_COMMIT:
	case STORE_TAKE:
		store_commit(rig->store, container_of(request, struct store_commit, base));
		return;
	case STORE_PROBE:
		store_probe(rig->store, container_of(request, struct store_probe, base));
		return;
	case STORE_QUERY:
		store_query(rig->store, container_of(request, struct store_query, base));
		return;
	case STORE_KIND_COUNT:
		break;
	}
	ck_abort_msg("no such kind");
}

void rig_send(struct store_rig *rig, struct store_request *request)
{
	rig->sent++;
	dispatch(rig, request);
}

struct burst {
	struct store_rig *rig;
	struct store_request **requests;
	uint32_t count;
};

static void burst_on_loop(void *arg)
{
	struct burst *burst = arg;

	for (uint32_t i = 0; i < burst->count; i++)
		rig_send(burst->rig, burst->requests[i]);
}

void rig_burst(struct store_rig *rig, struct store_request **requests, uint32_t count)
{
	struct burst burst = {rig, requests, count};

	loop_call(rig->store->loop, burst_on_loop, &burst);
}

void rig_wait(struct store_rig *rig)
{
	ck_assert_msg(test_latch_wait(&rig->answered, rig->sent, DEADLINE_MS), "%d of %d answered",
		      (int)rig->answered.count, (int)rig->sent);
}

enum store_outcome rig_run(struct store_rig *rig, struct store_request *request)
{
	rig_send(rig, request);
	rig_wait(rig);
	return request->outcome;
}

void rig_claim(struct store_rig *rig, struct store_claim *claim, const char *tenant,
	       struct id instance, const char *owner)
{
	*claim = (struct store_claim){
		.tenant = str_of(tenant), .instance = instance, .owner = str_of(owner)};
	prepare(rig, &claim->base, STORE_CLAIM);
}

void rig_release(struct store_rig *rig, struct store_release *release, const char *tenant,
		 struct id instance, const char *owner)
{
	*release = (struct store_release){
		.tenant = str_of(tenant), .instance = instance, .owner = str_of(owner)};
	prepare(rig, &release->base, STORE_RELEASE);
}

static void commit_prepare(struct store_rig *rig, struct store_commit *commit,
			   enum commit_kind kind, const char *tenant, struct id instance)
{
	*commit = (struct store_commit){
		.commit = kind,
		.tenant = str_of(tenant),
		.instance = instance,
		.version = 1,
		.status = INSTANCE_SUSPENDED,
		.deployment = STR("d1"),
		.process = STR("p1"),
		.started_us = 1000000,
		.snapshot = STR("snapshot-1"),
	};
	prepare(rig, &commit->base, STORE_COMMIT);
}

void rig_spawn(struct store_rig *rig, struct store_commit *commit, const char *tenant,
	       struct id instance)
{
	commit_prepare(rig, commit, COMMIT_SPAWN, tenant, instance);
}

void rig_resume(struct store_rig *rig, struct store_commit *commit, const char *tenant,
		struct id instance, const char *owner, int64_t version)
{
	commit_prepare(rig, commit, COMMIT_RESUME, tenant, instance);
	commit->owner = str_of(owner);
	commit->version = version;
	commit->snapshot = STR("snapshot-next");
}

void rig_letter(struct store_rig *rig, struct store_commit *commit, const char *tenant)
{
	commit_prepare(rig, commit, COMMIT_NO_INSTANCE, tenant, ID_NONE);
}

/* A copy of `rows` with one more at its end. */
static void *grown(struct store_rig *rig, const void *rows, uint32_t count, const void *row,
		   size_t size)
{
	char *copy = arena_alloc(&rig->arena, (count + 1) * size);

	if (count)
		memcpy(copy, rows, count * size);
	memcpy(copy + count * size, row, size);
	return copy;
}

void commit_inbox(struct store_rig *rig, struct store_commit *commit, const char *event_id)
{
	struct id key = store_inbox_key(commit->tenant, STR("orders"), str_of(event_id));

	commit->inbox_keys = grown(rig, commit->inbox_keys, commit->inbox_key_count++, &key,
				   sizeof(key));
}

static struct store_wait_row wait_row(struct store_commit *commit, uint32_t token,
				      const char *value, bool unique)
{
	return (struct store_wait_row){
		.key = store_wait_key(commit->tenant, STR("paid"), STR("order"), str_of(value)),
		.token = token,
		.unique = unique,
		.node = STR("wait-1"),
		.channel = STR("paid"),
	};
}

void commit_wait(struct store_rig *rig, struct store_commit *commit, uint32_t token,
		 const char *value, bool unique)
{
	struct store_wait_row row = wait_row(commit, token, value, unique);

	commit->waits_added = grown(rig, commit->waits_added, commit->waits_added_count++, &row,
				    sizeof(row));
}

void commit_wait_end(struct store_rig *rig, struct store_commit *commit, uint32_t token,
		     const char *value, bool unique)
{
	struct store_wait_row row = wait_row(commit, token, value, unique);

	commit->waits_removed = grown(rig, commit->waits_removed, commit->waits_removed_count++,
				      &row, sizeof(row));
}

static struct store_alias_row alias_row(struct store_commit *commit, const char *value, bool unique)
{
	return (struct store_alias_row){
		.key = store_alias_key(commit->tenant, STR("order"), str_of(value)),
		.unique = unique,
		.name = STR("order"),
		.value = str_of(value),
	};
}

void commit_alias(struct store_rig *rig, struct store_commit *commit, const char *value,
		  bool unique)
{
	struct store_alias_row row = alias_row(commit, value, unique);

	commit->aliases_added = grown(rig, commit->aliases_added, commit->aliases_added_count++,
				      &row, sizeof(row));
}

void commit_alias_end(struct store_rig *rig, struct store_commit *commit, const char *value,
		      bool unique)
{
	struct store_alias_row row = alias_row(commit, value, unique);

	commit->aliases_removed = grown(rig, commit->aliases_removed,
					commit->aliases_removed_count++, &row, sizeof(row));
}

void commit_send(struct store_rig *rig, struct store_commit *commit, const char *channel,
		 const char *body)
{
	int64_t version = commit->commit == COMMIT_RESUME ? commit->version + 1 : commit->version;
	struct outbox_row row = {
		.tenant = commit->tenant,
		.instance = commit->commit == COMMIT_NO_INSTANCE ? test_id(999999)
								 : commit->instance,
		.channel = str_of(channel),
		.version = version,
		.ordinal = commit->outbox_count,
		.deployment = commit->deployment,
		.record_key = STR("key-1"),
		.headers = STR("\x80"),
		.content_type = STR("text/plain"),
		.body = str_of(body),
		.required = true,
	};

	row.id = outbox_row_id(row.instance, row.version, row.ordinal);
	commit->outbox = grown(rig, commit->outbox, commit->outbox_count++, &row, sizeof(row));
}

void commit_dead_letter(struct store_rig *rig, struct store_commit *commit, struct id id,
			struct str detail)
{
	struct dead_letter_row row = {
		.id = id,
		.channel = STR("orders"),
		.event_id = STR("event-1"),
		.source = STR("kafka:orders/3/17"),
		.code = CODE_PARSE_JSON,
		.detail = detail,
		.record_key = STR("k"),
		.headers = STR("\x80"),
		.content_type = STR("application/json"),
		.payload = STR("{\xff"),
	};

	commit->dead_letters = grown(rig, commit->dead_letters, commit->dead_letter_count++, &row,
				     sizeof(row));
}

void commit_keep(struct store_rig *rig, struct store_commit *commit, struct id id,
		 struct id order_key, const char *body)
{
	struct kept_row row = {
		.id = id,
		.order_key = order_key,
		.channel = STR("orders"),
		.source = STR("amqp:orders/7"),
		.envelope = STR("\x81\x00"),
		.body = str_of(body),
	};

	if (!commit->keeper.ptr)
		commit->keeper = STR("boot-1");
	commit->kept_added = grown(rig, commit->kept_added, commit->kept_added_count++, &row,
				   sizeof(row));
}

void commit_keep_end(struct store_commit *commit, struct id id, const char *keeper)
{
	commit->keeper = str_of(keeper);
	commit->kept_removed = id;
}

void commit_timer(struct store_rig *rig, struct store_commit *commit, uint32_t token, int64_t due_us)
{
	struct store_timer_row row = {.token = token, .due_us = due_us, .node = STR("timer-1")};

	commit->timers_added = grown(rig, commit->timers_added, commit->timers_added_count++, &row, sizeof(row));
}

void commit_timer_end(struct store_rig *rig, struct store_commit *commit, uint32_t token)
{
	struct store_timer_row row = {.token = token};

	commit->timers_removed = grown(rig, commit->timers_removed, commit->timers_removed_count++, &row, sizeof(row));
}

void commit_session(struct store_rig *rig, struct store_commit *commit, const char *call_key, const char *channel, bool inbound,
		    bool counts, uint32_t token)
{
	struct store_session_row row = {.call_key = str_of(call_key),
					.channel = str_of(channel),
					.inbound = inbound,
					.counts = counts,
					.token = token};

	commit->sessions = grown(rig, commit->sessions, commit->session_count++, &row, sizeof(row));
}

void commit_session_end(struct store_rig *rig, struct store_commit *commit, enum store_end what, struct id instance,
			const char *call_key, uint32_t token)
{
	struct store_session_end row = {.what = what,
					.instance = commit->commit == COMMIT_NO_INSTANCE ? instance : commit->instance,
					.call_key = str_of(call_key),
					.token = token};

	commit->session_ends = grown(rig, commit->session_ends, commit->session_end_count++, &row, sizeof(row));
}

void commit_slot(struct store_rig *rig, struct store_commit *commit, const char *pool, const char *call_key)
{
	struct store_slot_row row = {.pool = str_of(pool), .call_key = str_of(call_key)};

	commit->slots = grown(rig, commit->slots, commit->slot_count++, &row, sizeof(row));
}

void commit_send_pooled(struct store_rig *rig, struct store_commit *commit, const char *channel, const char *pool,
			const char *call_key)
{
	commit_send(rig, commit, channel, "body");
	commit->outbox[commit->outbox_count - 1].pool = str_of(pool);
	commit->outbox[commit->outbox_count - 1].call_key = str_of(call_key);
}

static void column_take(struct store_rig *rig, struct column *column, char letter, va_list *args)
{
	bool scalar = letter >= 'A' && letter <= 'Z';
	enum column_type type = (enum column_type)(scalar ? letter - 'A' + 'a' : letter);

	*column = (struct column){.type = type, .scalar = scalar, .count = 1};
	switch (type) {
	case COLUMN_INT:
	case COLUMN_TIME: {
		int64_t value = va_arg(*args, int64_t);

		column->ints = arena_memdup(&rig->arena, &value, sizeof(value));
		break;
	}
	case COLUMN_ID: {
		struct id value = va_arg(*args, struct id);

		column->ids = arena_memdup(&rig->arena, &value, sizeof(value));
		break;
	}
	case COLUMN_TEXT:
	case COLUMN_BYTES: {
		struct str value = str_of(va_arg(*args, const char *));

		column->strs = arena_memdup(&rig->arena, &value, sizeof(value));
		break;
	}
	case COLUMN_BOOL: {
		bool value = va_arg(*args, int) != 0;

		column->bools = arena_memdup(&rig->arena, &value, sizeof(value));
		break;
	}
	}
}

void rig_query_init(struct store_rig *rig, struct store_query *query, struct segment_call *calls, uint32_t count, const char *tenants,
		    bool writes)
{
	*query = (struct store_query){.segment = {
					      .calls = calls,
					      .call_count = count,
					      .tenants = str_of(tenants),
					      .scan = tenants == NULL,
					      .durable = writes,
					      .writes = writes,
				      }};
	prepare(rig, &query->base, STORE_QUERY);
}

const struct rows *rig_pump(struct store_rig *rig, const char *pool, const char *owner, int64_t limit, bool *more)
{
	struct segment_call *calls = arena_zalloc(&rig->arena, 3 * sizeof(*calls));
	struct store_query *query = arena_zalloc(&rig->arena, sizeof(*query));
	struct column *columns = arena_zalloc(&rig->arena, 3 * sizeof(*columns));

	columns[0] = column_scalar_text(&rig->arena, str_of(pool));
	columns[1] = column_scalar_text(&rig->arena, str_of(owner));
	columns[2] = column_scalar_int(&rig->arena, limit);
	calls[0] = (struct segment_call){.statement = STATEMENT_POOL_LOCK_ONE, .params = columns};
	calls[1] = (struct segment_call){.statement = STATEMENT_POOL_SCAN, .params = columns};
	calls[2] = (struct segment_call){.statement = STATEMENT_POOL_MORE, .params = columns};
	rig_query_init(rig, query, calls, 3, NULL, true);
	ck_assert_msg(rig_run(rig, &query->base) == STORE_OK, "the pump: %s", query->base.error.text);
	if (more)
		*more = rows_at(&calls[2].rows, 0, 0)->b;
	return &calls[1].rows;
}

static struct store_query *query_make(struct store_rig *rig, const char *tenants, bool writes, enum statement_id statement,
				      va_list *args)
{
	const char *params = statement_info(statement)->params;
	struct column *columns = arena_zalloc(&rig->arena, (strlen(params) + 1) * sizeof(*columns));
	struct segment_call *call = arena_zalloc(&rig->arena, sizeof(*call));
	struct store_query *query = arena_zalloc(&rig->arena, sizeof(*query));

	for (size_t i = 0; params[i]; i++)
		column_take(rig, &columns[i], params[i], args);
	*call = (struct segment_call){.statement = statement, .params = columns};
	rig_query_init(rig, query, call, 1, tenants, writes);
	return query;
}

const struct rows *rig_query(struct store_rig *rig, const char *tenants, bool writes,
			     enum statement_id statement, ...)
{
	struct store_query *query;
	va_list args;

	va_start(args, statement);
	query = query_make(rig, tenants, writes, statement, &args);
	va_end(args);
	ck_assert_msg(rig_run(rig, &query->base) == STORE_OK, "%s: %s",
		      statement_info(statement)->name, query->base.error.text);
	return &query->segment.calls[0].rows;
}

const struct rows *rig_try_query(struct store_rig *rig, const char *tenants, bool writes, enum statement_id statement, ...)
{
	struct store_query *query;
	va_list args;

	va_start(args, statement);
	query = query_make(rig, tenants, writes, statement, &args);
	va_end(args);
	return rig_run(rig, &query->base) == STORE_OK ? &query->segment.calls[0].rows : NULL;
}

struct id test_id(uint32_t n)
{
	struct id id = {{0x01, 0x90, 0, 0, 0, 0, 0x70, 0, 0x80}};

	for (int i = 0; i < 4; i++)
		id.bytes[12 + i] = (uint8_t)(n >> (24 - 8 * i));
	return id;
}

struct store_stats rig_stats(struct store_rig *rig)
{
	struct store_stats stats;

	store_stats_read(rig->store, &stats);
	return stats;
}
