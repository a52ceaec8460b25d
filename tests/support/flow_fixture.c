/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/flow_fixture.h"

#include <stdio.h>

#include "base/alloc.h"
#include "model/package.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000

/* --- consumers and publisher in the test's hands --- */

static void fixture_consumer_start(struct consumer *consumer)
{
	consumer->sink->state(consumer->sink, CONSUMER_CONSUMING, "");
}

static void fixture_consumer_settle(struct consumer *consumer, struct message *message, enum settle how)
{
	struct flow_fixture_channel *channel = container_of(consumer, struct flow_fixture_channel, consumer);
	struct flow_fixture *fixture = channel->fixture;
	struct flow_settled *settled;

	pthread_mutex_lock(&fixture->lock);
	ck_assert_uint_lt(fixture->settled_count, FLOW_FIXTURE_MOST);
	settled = &fixture->settled[fixture->settled_count++];
	snprintf(settled->source, sizeof(settled->source), "%.*s", STR_ARG(message->source));
	settled->how = how;
	pthread_mutex_unlock(&fixture->lock);
	message_free(&message);
	channel->out--;
	if (channel->stopping && !channel->out)
		loop_post(fixture->loop, &channel->end);
}

static void fixture_consumer_end(struct task *task)
{
	struct flow_fixture_channel *channel = container_of(task, struct flow_fixture_channel, end);

	channel->consumer.sink->stopped(channel->consumer.sink);
}

static void fixture_consumer_stop(struct consumer *consumer)
{
	struct flow_fixture_channel *channel = container_of(consumer, struct flow_fixture_channel, consumer);

	consumer->sink->revoke(consumer->sink, NULL);
	channel->stopping = true;
	if (!channel->out)
		loop_post(channel->fixture->loop, &channel->end);
}

static void fixture_intake_stopped(struct intake *intake)
{
	struct flow_fixture_channel *channel = intake->user;

	/* Nothing is left, and no sum has drifted. */
	ck_assert_uint_eq(intake->stats.unsettled, 0);
	ck_assert_uint_eq(intake->stats.held, 0);
	ck_assert_uint_eq(intake->stats.kept, 0);
	ck_assert_uint_eq(intake->parked_count, 0);
	ck_assert_uint_eq(intake->parked_bytes, 0);
	ck_assert_uint_eq(intake->chains.count, 0);
	ck_assert_uint_eq(intake->places.count, 0);
	ck_assert_uint_eq(intake->interests.count, 0);
	__atomic_store_n(&channel->stopped, true, __ATOMIC_RELEASE);
}

static void fixture_consumer_free(struct consumer *consumer UNUSED)
{
}

static const struct consumer_ops fixture_consumer_ops = {
	fixture_consumer_start, fixture_consumer_settle, fixture_consumer_stop, fixture_consumer_free};

static void fixture_copy(char *to, size_t size, struct str from)
{
	snprintf(to, size, "%.*s", STR_ARG(from));
}

static void fixture_publish(struct publisher *publisher, struct publication *pub)
{
	struct flow_fixture *fixture = container_of(publisher, struct flow_fixture, publisher);
	const struct header *trace = header_find(&pub->headers, STR("traceparent"));
	struct flow_published *published;

	pthread_mutex_lock(&fixture->lock);
	ck_assert_uint_lt(fixture->published_count, FLOW_FIXTURE_MOST);
	pub->outcome = PUBLISH_CONFIRMED;
	if (fixture->publish_failures) {
		fixture->publish_failures--;
		pub->outcome = PUBLISH_RETRY;
		snprintf(pub->text, sizeof(pub->text), "told to fail");
	} else {
		published = &fixture->published[fixture->published_count++];
		fixture_copy(published->destination, sizeof(published->destination), pub->destination);
		fixture_copy(published->key, sizeof(published->key), pub->key);
		fixture_copy(published->message_id, sizeof(published->message_id), pub->message_id);
		fixture_copy(published->body, sizeof(published->body), pub->body);
		if (trace)
			fixture_copy(published->traceparent, sizeof(published->traceparent),
				     value_as_str(&trace->value));
	}
	pthread_mutex_unlock(&fixture->lock);
	loop_post(pub->reply_to, &pub->done);
}

static void fixture_purge(struct publisher *publisher UNUSED)
{
}

static const struct publisher_ops fixture_publisher_ops = {.publish = fixture_publish, .purge = fixture_purge};

static struct publisher *fixture_route(void *user, struct str connection UNUSED)
{
	struct flow_fixture *fixture = user;

	return &fixture->publisher;
}

/* --- building --- */

static void fixture_load(struct flow_fixture *fixture, const char *package_path)
{
	struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	char *path = test_source_path(package_path);
	struct package *package = NULL;
	struct findings findings = {0};
	struct buf text = BUF_INIT;
	struct view_member member;

	ck_assert_msg(package_read(path, &limits, &package, &findings) == RESULT_OK &&
			      package_build(package, &fixture->deployment, &findings) == RESULT_OK,
		      "%s", findings.text.data);
	member = (struct view_member){fixture->deployment, DEPLOYMENT_ACTIVE};
	ck_assert_int_eq(view_build(1, &member, 1, &fixture->view, &text), RESULT_OK);
	package_free(&package);
	findings_done(&findings);
	buf_done(&text);
	free(path);
}

struct fixture_start {
	struct intake *intake;
	struct consumer *consumer;
};

static void fixture_intake_start(void *arg)
{
	struct fixture_start *start = arg;

	intake_start(start->intake, start->consumer);
}

static void fixture_add_channel(struct flow_fixture *fixture, const struct route *route,
				const struct flow_fixture_settings *given)
{
	struct flow_fixture_channel *channel = &fixture->channels[fixture->channel_count++];
	char tenant[64], name[64];
	struct intake_settings settings = given->intake;
	struct fixture_start start;

	fixture_copy(tenant, sizeof(tenant), route->tenant);
	fixture_copy(name, sizeof(name), route->channel->name);
	settings.tenant = tenant;
	settings.channel = name;
	settings.unmatched_hold_ms = given->unmatched_hold_ms ? given->unmatched_hold_ms : 30000;
	settings.backoff_min_ms = 10;
	settings.backoff_max_ms = 200;
	settings.keeper = given->keeper ? given->keeper : "fixture";
	channel->fixture = fixture;
	channel->end.run = fixture_consumer_end;
	channel->intake = intake_new(fixture->lanes, fixture->wake, &settings);
	channel->intake->user = channel;
	channel->intake->stopped = fixture_intake_stopped;
	channel->consumer = (struct consumer){
		.ops = &fixture_consumer_ops, .sink = intake_sink(channel->intake), .loop = fixture->loop, .lag = -1};
	start = (struct fixture_start){channel->intake, &channel->consumer};
	loop_call(fixture->loop, fixture_intake_start, &start);
}

static bool fixture_store_up(void *arg)
{
	return store_is_up(arg, NULL);
}

struct flow_fixture *flow_fixture_new(const struct flow_fixture_settings *settings)
{
	struct flow_fixture *fixture = mem_zalloc(sizeof(*fixture));
	struct executor *executor = settings->executor;
	struct store_settings store = {256, 4u << 20, 100,
				       settings->claim_timeout_ms ? settings->claim_timeout_ms : 60000, "fixture"};
	struct outbox_settings outbox = {"fixture", 60000, 50, 10, 100, settings->max_attempts, 10000, NULL, 0};
	struct lane_set_settings lanes = {
		.lanes = settings->lanes ? settings->lanes : 4,
		.executors = 2,
		.queue_capacity = settings->queue_capacity,
		.stall_timeout_ms = 60000,
		.owner_prefix = "host-1-00000000",
		.keeper = settings->keeper ? settings->keeper : "fixture",
		.expression_limits = EXPRESSION_LIMITS_DEFAULT,
		.decode = {VALUE_LIMITS_DEFAULT, 256},
		.max_step_nodes = 10000,
		.max_variables_bytes = 1 << 20,
		.failure_attempts = settings->failure_attempts,
	};
	struct error err = ERROR_INIT;
	char owner[128];

	if (settings->keeper) {
		snprintf(owner, sizeof(owner), "host-1-%s", settings->keeper);
		lanes.owner_prefix = owner;
	}
	pthread_mutex_init(&fixture->lock, NULL);
	fixture->runtime = runtime_threads();
	if (!executor) {
		fixture->database = memory_database_new();
		executor = memory_executor_new(fixture->database, 2);
	}
	fixture->store = store_new(fixture->runtime, executor, &store);
	store_start(fixture->store);
	ck_assert(test_wait(fixture_store_up, fixture->store, DEADLINE_MS));
	fixture->loop = loop_start(fixture->runtime, "broker");
	fixture->publisher = (struct publisher){&fixture_publisher_ops, fixture->loop, true};
	fixture->outbox = outbox_new(fixture->runtime, fixture->store, &outbox, fixture_route, fixture);
	fixture->wake = wake_new();
	fixture->lanes = lane_set_new(fixture->runtime, &lanes, fixture->store, fixture->outbox, fixture->wake);
	fixture->package = settings->package ? settings->package : "examples/quickstart/package";
	fixture_load(fixture, fixture->package);
	outbox_view(fixture->outbox, fixture->view);
	outbox_start(fixture->outbox);
	ck_assert_msg(lane_set_flip(fixture->lanes, fixture->view, &err) == RESULT_OK, "%s", err.text);
	ck_assert(lane_set_flipped(fixture->lanes, fixture->view));
	for (uint32_t i = 0; i < fixture->view->route_count; i++)
		fixture_add_channel(fixture, fixture->view->routes[i], settings);
	return fixture;
}

static bool fixture_flipped(void *arg)
{
	struct flow_fixture *fixture = arg;

	return lane_set_flipped(fixture->lanes, fixture->view);
}

static void fixture_nothing(void *arg UNUSED)
{
}

void flow_fixture_reload(struct flow_fixture *fixture)
{
	struct deployment *old_deployment = fixture->deployment;
	struct view *old_view = fixture->view;
	struct error err = ERROR_INIT;

	fixture_load(fixture, fixture->package);
	outbox_view(fixture->outbox, fixture->view);
	ck_assert_msg(lane_set_flip(fixture->lanes, fixture->view, &err) == RESULT_OK, "%s", err.text);
	ck_assert(test_wait(fixture_flipped, fixture, DEADLINE_MS));
	view_unref(&old_view);
	deployment_unref(&old_deployment);
	loop_call(fixture->loop, fixture_nothing, NULL);
}

static struct flow_fixture_channel *fixture_channel(struct flow_fixture *fixture, const char *name)
{
	for (uint32_t i = 0; i < fixture->channel_count; i++)
		if (strcmp(fixture->channels[i].intake->settings.channel, name) == 0)
			return &fixture->channels[i];
	ck_abort_msg("no channel %s", name);
	return NULL;
}

static void fixture_stop_call(void *arg)
{
	intake_stop(arg);
}

static bool fixture_all_stopped(void *arg)
{
	struct flow_fixture *fixture = arg;

	for (uint32_t i = 0; i < fixture->channel_count; i++)
		if (!__atomic_load_n(&fixture->channels[i].stopped, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

void flow_fixture_stop(struct flow_fixture *f)
{
	for (uint32_t i = 0; i < f->channel_count; i++)
		loop_call(f->loop, fixture_stop_call, f->channels[i].intake);
	ck_assert(test_wait(fixture_all_stopped, f, DEADLINE_MS));
}

void flow_fixture_free(struct flow_fixture **fixture)
{
	struct flow_fixture *f = *fixture;

	flow_fixture_stop(f);
	outbox_stop(f->outbox, 2000);
	store_stop(f->store);
	lane_set_stop(f->lanes);
	loop_stop(&f->loop);
	for (uint32_t i = 0; i < f->channel_count; i++)
		intake_free(&f->channels[i].intake);
	lane_set_free(&f->lanes);
	outbox_free(&f->outbox);
	store_free(&f->store);
	wake_free(&f->wake);
	view_unref(&f->view);
	deployment_unref(&f->deployment);
	memory_database_free(&f->database);
	pthread_mutex_destroy(&f->lock);
	free(f);
	*fixture = NULL;
}

/* --- sending --- */

struct message *flow_fixture_message(struct flow_fixture *fixture, const char *order_key, const char *id, struct str body)
{
	struct message *message = message_new();

	message->source = str_of(arena_printf(&message->arena, "fixture:%u", fixture->next_offset++));
	message->identity = message->source;
	if (id)
		message->message_id = str_of(arena_strdup(&message->arena, id));
	if (order_key) {
		message->order_key = str_of(arena_strdup(&message->arena, order_key));
		message->key = message->order_key;
	}
	message->body = body.ptr ? arena_str(&message->arena, body) : STR_NONE;
	message->reply_correlation = value_nil();
	message->bytes = body.len;
	return message;
}

struct fixture_deliver {
	struct flow_fixture_channel *channel;
	struct consumer_sink *sink;
	struct message *message;
};

static void fixture_deliver_call(void *arg)
{
	struct fixture_deliver *deliver = arg;

	deliver->channel->out++;
	deliver->sink->deliver(deliver->sink, deliver->message);
}

void flow_fixture_send_message(struct flow_fixture *fixture, const char *channel, struct message *message)
{
	struct flow_fixture_channel *to = fixture_channel(fixture, channel);
	struct fixture_deliver deliver = {to, to->consumer.sink, message};

	loop_call(fixture->loop, fixture_deliver_call, &deliver);
}

void flow_fixture_send(struct flow_fixture *fixture, const char *channel, const char *order_key, const char *id,
		       const char *body)
{
	flow_fixture_send_message(fixture, channel, flow_fixture_message(fixture, order_key, id, str_of(body)));
}

struct fixture_revoke {
	struct consumer_sink *sink;
	void *lease;
};

static void fixture_revoke_call(void *arg)
{
	struct fixture_revoke *revoke = arg;

	revoke->sink->revoke(revoke->sink, revoke->lease);
}

void flow_fixture_revoke_lease(struct flow_fixture *fixture, const char *channel, void *lease)
{
	struct fixture_revoke revoke = {fixture_channel(fixture, channel)->consumer.sink, lease};

	loop_call(fixture->loop, fixture_revoke_call, &revoke);
}

void flow_fixture_revoke(struct flow_fixture *fixture, const char *channel)
{
	flow_fixture_revoke_lease(fixture, channel, NULL);
}

/* --- looking --- */

struct fixture_count {
	struct flow_fixture *fixture;
	const uint32_t *counter;
	uint32_t want;
};

static bool fixture_count_reached(void *arg)
{
	struct fixture_count *count = arg;
	bool reached;

	pthread_mutex_lock(&count->fixture->lock);
	reached = *count->counter >= count->want;
	pthread_mutex_unlock(&count->fixture->lock);
	return reached;
}

bool flow_fixture_wait_settled(struct flow_fixture *fixture, uint32_t count)
{
	struct fixture_count want = {fixture, &fixture->settled_count, count};

	return test_wait(fixture_count_reached, &want, DEADLINE_MS);
}

bool flow_fixture_wait_published(struct flow_fixture *fixture, uint32_t count)
{
	struct fixture_count want = {fixture, &fixture->published_count, count};

	return test_wait(fixture_count_reached, &want, DEADLINE_MS);
}

struct fixture_held {
	const struct intake_stats *stats;
	uint64_t want;
};

static bool fixture_held_reached(void *arg)
{
	struct fixture_held *held = arg;

	return __atomic_load_n(&held->stats->held, __ATOMIC_ACQUIRE) == held->want;
}

bool flow_fixture_wait_held(struct flow_fixture *fixture, const char *channel, uint64_t count)
{
	struct fixture_held held = {flow_fixture_stats(fixture, channel), count};

	return test_wait(fixture_held_reached, &held, DEADLINE_MS);
}

const struct intake_stats *flow_fixture_stats(struct flow_fixture *fixture, const char *channel)
{
	return &fixture_channel(fixture, channel)->intake->stats;
}

struct fixture_query {
	struct store_query query;
	struct test_latch done;
};

static void fixture_queried(struct task *task)
{
	struct fixture_query *query = container_of(task, struct fixture_query, query.base.done);

	test_latch_raise(&query->done);
}

struct rows flow_fixture_query(struct flow_fixture *fixture, struct arena *arena, enum statement_id statement,
			       const struct column *params, bool scan)
{
	struct fixture_query query = {.done = TEST_LATCH_INIT};
	struct segment_call call = {.statement = statement, .params = params};

	query.query.base = (struct store_request){
		.reply_to = fixture->loop, .done.run = fixture_queried, .arena = arena};
	query.query.segment.calls = &call;
	query.query.segment.call_count = 1;
	query.query.segment.tenants = str_of(
		arena_printf(arena, ",%.*s,", STR_ARG(fixture->deployment->tenant)));
	query.query.segment.scan = scan;
	store_query(fixture->store, &query.query);
	ck_assert(test_latch_wait(&query.done, 1, DEADLINE_MS));
	ck_assert_int_eq(query.query.base.outcome, STORE_OK);
	return call.rows;
}

uint32_t flow_fixture_count_instances(struct flow_fixture *fixture, enum instance_status status)
{
	int64_t wanted = status, look = FLOW_FIXTURE_MOST + 1, limit = FLOW_FIXTURE_MOST;
	bool terminal = true;
	struct str any = STR_NONE;
	struct id after = ID_NONE;
	struct column params[] = {
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &wanted},
		{.type = COLUMN_BOOL, .scalar = true, .count = 1, .bools = &terminal},
		{.type = COLUMN_TEXT, .scalar = true, .count = 1, .strs = &any},
		{.type = COLUMN_ID, .scalar = true, .count = 1, .ids = &after},
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &look},
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &limit},
	};
	struct arena arena;
	uint32_t count;

	arena_init(&arena);
	count = flow_fixture_query(fixture, &arena, STATEMENT_INSTANCE_LIST, params, false).row_count;
	arena_done(&arena);
	return count;
}

uint32_t flow_fixture_count_dead_letters(struct flow_fixture *fixture, const char *code)
{
	int64_t limit = FLOW_FIXTURE_MOST;
	struct id after = ID_NONE;
	struct column params[] = {
		{.type = COLUMN_ID, .scalar = true, .count = 1, .ids = &after},
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &limit},
	};
	struct arena arena;
	struct rows rows;
	uint32_t count = 0;

	arena_init(&arena);
	rows = flow_fixture_query(fixture, &arena, STATEMENT_DEAD_LETTER_LIST, params, false);
	for (uint32_t i = 0; i < rows.row_count; i++)
		count += str_equal(rows_at(&rows, i, 6)->str, str_of(code));
	arena_done(&arena);
	return count;
}

/* No stamp is as old as that, so that the sweep clears none. */
#define YEAR_MS INT64_C(31536000000)

uint32_t flow_fixture_count_outbox(struct flow_fixture *fixture)
{
	struct arena arena;
	struct column params[6];
	struct rows rows;
	uint32_t count;

	arena_init(&arena);
	params[0] = column_scalar_id(&arena, ID_NONE);
	params[1] = column_scalar_text(&arena, STR(""));
	params[2] = params[3] = column_scalar_int(&arena, 0);
	params[4] = column_scalar_int(&arena, FLOW_FIXTURE_MOST);
	params[5] = column_scalar_int(&arena, YEAR_MS);
	rows = flow_fixture_query(fixture, &arena, STATEMENT_OUTBOX_SWEEP, params, true);
	count = (uint32_t)rows_at(&rows, 0, 0)->i;
	arena_done(&arena);
	return count;
}

/* --- claims of others --- */

struct id flow_fixture_only_instance(struct flow_fixture *f, int64_t *version)
{
	int64_t any_status = -1, look = 11, limit = 10;
	bool terminal = true;
	struct str any = STR_NONE;
	struct id after = ID_NONE, id;
	struct column params[] = {
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &any_status},
		{.type = COLUMN_BOOL, .scalar = true, .count = 1, .bools = &terminal},
		{.type = COLUMN_TEXT, .scalar = true, .count = 1, .strs = &any},
		{.type = COLUMN_ID, .scalar = true, .count = 1, .ids = &after},
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &look},
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &limit},
	};
	struct arena arena;
	struct rows rows;

	arena_init(&arena);
	rows = flow_fixture_query(f, &arena, STATEMENT_INSTANCE_LIST, params, false);
	ck_assert_uint_eq(rows.row_count, 1);
	id = rows_at(&rows, 0, 0)->id;
	*version = rows_at(&rows, 0, 5)->i;
	arena_done(&arena);
	return id;
}

struct ask {
	union {
		struct store_claim claim;
		struct store_release release;
	};
	struct test_latch done;
};

static void asked(struct task *task)
{
	struct store_request *request = container_of(task, struct store_request, done);

	test_latch_raise(&container_of(request, struct ask, claim.base)->done);
}

enum store_outcome flow_fixture_other_claims(struct flow_fixture *f, struct id instance, bool release)
{
	struct ask ask = {.done = TEST_LATCH_INIT};
	struct store_request base = {.reply_to = f->loop, .done.run = asked};
	struct arena arena;

	arena_init(&arena);
	base.arena = &arena;
	if (release) {
		ask.release = (struct store_release){base, f->deployment->tenant, instance, STR("other-9-00000000-s0")};
		store_release(f->store, &ask.release);
	} else {
		ask.claim = (struct store_claim){
			.base = base, .tenant = f->deployment->tenant, .instance = instance, .owner = STR("other-9-00000000-s0")};
		store_claim(f->store, &ask.claim);
	}
	ck_assert(test_latch_wait(&ask.done, 1, DEADLINE_MS));
	arena_done(&arena);
	return ask.claim.base.outcome;
}

/* --- commits of others --- */

struct commit_ask {
	struct store_commit commit;
	struct test_latch done;
};

static void commit_asked(struct task *task)
{
	test_latch_raise(&container_of(task, struct commit_ask, commit.base.done)->done);
}

enum store_outcome flow_fixture_commit(struct flow_fixture *fixture, const struct store_commit *commit)
{
	struct commit_ask ask = {.commit = *commit, .done = TEST_LATCH_INIT};
	struct arena arena;

	arena_init(&arena);
	ask.commit.base =
		(struct store_request){.reply_to = fixture->loop, .done.run = commit_asked, .arena = &arena};
	ask.commit.tenant = fixture->deployment->tenant;
	store_commit(fixture->store, &ask.commit);
	ck_assert(test_latch_wait(&ask.done, 1, DEADLINE_MS));
	arena_done(&arena);
	return ask.commit.base.outcome;
}

/* --- kept messages --- */

struct rows flow_fixture_kept(struct flow_fixture *fixture, struct arena *arena)
{
	struct column params[] = {
		column_scalar_text(arena, STR_NONE),
		column_scalar_text(arena, STR_NONE),
		column_scalar_id(arena, ID_NONE),
		column_scalar_int(arena, 10001),
		column_scalar_int(arena, 10000),
	};

	return flow_fixture_query(fixture, arena, STATEMENT_KEPT_LIST, params, false);
}

uint32_t flow_fixture_count_kept(struct flow_fixture *fixture)
{
	struct arena arena;
	uint32_t count;

	arena_init(&arena);
	count = flow_fixture_kept(fixture, &arena).row_count;
	arena_done(&arena);
	return count;
}
