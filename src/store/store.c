/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's front and its engine room: requests come in from any thread, wait in queues on the store's loop, and leave in
 * batches over the executor's connections.
 *
 * Group commit has no timer: whenever a step connection is free, it takes everything that waits of one kind. At low load
 * that is one element, at once; under load batches grow by themselves while the connections are busy. Kinds take turns,
 * commits first; releases ride with claims. Batches that go on (the rest of a gated one, halves, doubt) come before new
 * ones. Dispatching is a task of its own behind all intake tasks that were posted before it, so that requests that arrive
 * together leave together.
 *
 * While no step connection is there, what was not sent is answered UNAVAILABLE at once: holding and retrying is the
 * requester's business. A commit in doubt alone stays (G1, G4): see doubt.c.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/time.h"
#include "store/internal.h"

#define TICK_US US_PER_S
/* How long a query waits for a background connection while the database is up. */
#define QUERY_PATIENCE_US (5 * US_PER_S)

void store_count(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

/* --- answers --- */

void store_answer(struct store *store UNUSED, struct store_request *request,
		  enum store_outcome outcome)
{
	request->outcome = outcome;
	loop_post(request->reply_to, &request->done);
}

void store_unavailable(struct store *store, struct store_request *request, const char *why)
{
	error_set(&request->error, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE,
		  "the database is not available: %s", why);
	store_answer(store, request, STORE_UNAVAILABLE);
}

void store_rejected(struct store *store, struct store_request *request, const char *why)
{
	error_set(&request->error, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED,
		  "the database refuses the element: %s", why);
	store_answer(store, request, STORE_REJECTED);
}

void store_answer_all(struct batch *batch, enum store_outcome outcome, const char *why)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		if (outcome == STORE_UNAVAILABLE)
			store_unavailable(batch->store, batch->elements[i], why);
		else if (outcome == STORE_REJECTED)
			store_rejected(batch->store, batch->elements[i], why);
		else
			store_answer(batch->store, batch->elements[i], outcome);
	}
	batch_end(batch);
}

/* --- state --- */

static bool class_is_up(struct store *store, enum conn_class class)
{
	for (uint32_t i = 0; i < store->conn_counts[class]; i++)
		if (store->busy[class][i] ||
		    store->executor->ops->conn_ready(store->executor, class, i))
			return true;
	return false;
}

static void state_publish(struct store *store)
{
	const char *trouble = store->executor->ops->trouble(store->executor);

	pthread_mutex_lock(&store->state_lock);
	store->up = store->step_up;
	snprintf(store->why, sizeof(store->why), "%s", trouble ? trouble : "connecting");
	pthread_mutex_unlock(&store->state_lock);
}

static void tick_start(struct store *store)
{
	if (!store->stopping && !loop_timer_is_started(&store->tick))
		loop_timer_start(&store->tick, TICK_US);
}

static void queue_flush(struct store *store, struct queue *queue, const char *why)
{
	struct store_request *request;

	while ((request = queue_pop(queue)))
		store_unavailable(store, request, why);
}

/* Everything that waits and was not sent; commits that may have committed stay unless the store ends. */
static void flush(struct store *store, const char *why)
{
	for (uint32_t kind = 0; kind < STORE_KIND_COUNT; kind++)
		queue_flush(store, &store->queues[kind], why);
	list_for_each (&store->batches, at, next) {
		struct batch *batch = list_entry(at, struct batch, all);

		if (batch->running || (!store->stopping && (batch->in_doubt || batch->doubtful)))
			continue;
		store_answer_all(batch, batch->committed ? STORE_OK : STORE_UNAVAILABLE, why);
	}
}

static void go_down(struct store *store)
{
	store->step_up = false;
	state_publish(store);
	flush(store, store->why);
	tick_start(store);
}

static void on_ready(void *user)
{
	struct store *store = user;

	if (store->stopping)
		return;
	if (!store->step_up && class_is_up(store, CONN_STEP)) {
		store->step_up = true;
		state_publish(store);
	}
	store_dispatch_soon(store);
}

static void on_down(void *user)
{
	struct store *store = user;

	floors_forget(&store->floors);
	if (!store->stopping && store->step_up)
		go_down(store);
}

/* While the database is away, why is kept fresh; queries do not wait for ever. */
static void tick(struct loop_timer *timer)
{
	struct store *store = container_of(timer, struct store, tick);
	struct queue *queries = &store->queues[STORE_QUERY];
	int64_t before_us = loop_now_us(store->loop) - QUERY_PATIENCE_US;
	struct store_request *request;

	if (!store->step_up)
		state_publish(store);
	while (!class_is_up(store, CONN_BACKGROUND) && (request = queue_peek(queries)) &&
	       request->sent_us <= before_us) {
		queue_pop(queries);
		store_unavailable(store, request, "no background connection");
	}
	if (!store->step_up || queries->count)
		tick_start(store);
}

/* --- running --- */

static void count_batch(struct store *store, struct batch *batch)
{
	const struct segment *segment = batch->segment;
	uint32_t bucket = 0;

	store_count(&store->stats.segments, 1);
	store_count(&store->stats.statements, segment->call_count);
	if (segment->writes)
		store_count(&store->stats.transactions, 1);
	if (batch->counted)
		return;
	batch->counted = true;
	store_count(&store->stats.batches[kind_commits(batch->kind) ? STORE_COMMIT : batch->kind], 1);
	if (!kind_commits(batch->kind))
		return;
	while (bucket < 9 && batch->count > 1u << bucket)
		bucket++;
	store_count(&store->stats.batch_histogram[bucket], 1);
}

static void segment_done(struct segment *segment)
{
	struct batch *batch = segment->user;
	struct store *store = batch->store;

	batch->running = false;
	store->busy[batch->class][batch->conn] = false;
	batch->finish(batch);
	if (!store->stopping)
		store_dispatch_soon(store);
}

/* Whether a fault point wants the batch not to be sent. */
static bool fault_before(const struct batch *batch)
{
	if (batch->build != segment_build)
		return false;
	if (kind_commits(batch->kind))
		return fault(FAULT_commit_before);
	return batch->kind == STORE_CLAIM && fault(FAULT_claim_before);
}

static void batch_run(struct batch *batch, uint32_t conn)
{
	struct store *store = batch->store;

	if (fault_before(batch) && !batch->doubtful) {
		store_answer_all(batch, STORE_UNAVAILABLE, "fault point");
		return;
	}
	batch->build(batch);
	batch->segment->done = segment_done;
	batch->segment->user = batch;
	batch->conn = conn;
	batch->running = true;
	store->busy[batch->class][conn] = true;
	count_batch(store, batch);
	store->executor->ops->run(store->executor, batch->class, conn, batch->segment);
}

/* --- queries --- */

static struct store_query *query_of(struct batch *batch)
{
	return container_of(batch->elements[0], struct store_query, base);
}

static void query_build(struct batch *batch)
{
	struct segment *segment = &query_of(batch)->segment;

	segment->arena = batch->elements[0]->arena;
	/* Background work may wait a little longer for a lock than a batch of other people's steps. */
	if (segment->lock_timeout_ms <= 0)
		segment->lock_timeout_ms = batch->store->settings.lock_timeout_ms * 10;
	segment->xid = 0;
	batch->segment = segment;
}

static void query_finish(struct batch *batch)
{
	struct segment *segment = batch->segment;
	enum error_class class;
	char text[256];

	switch (segment->outcome) {
	case SEGMENT_COMMITTED:
		store_answer_all(batch, STORE_OK, NULL);
		return;
	case SEGMENT_GATED:
		store_answer_all(batch, STORE_REJECTED, "a gate failed");
		return;
	case SEGMENT_ERROR:
		class = error_class(segment->sqlstate);
		if (class == ERROR_CLASS_LOCK && batch->tries++ == 0 && !batch->store->stopping) {
			batch_ready(batch);
			return;
		}
		snprintf(text, sizeof(text), "%s", segment->text);
		store_answer_all(batch,
				 class == ERROR_CLASS_ELEMENT ? STORE_REJECTED : STORE_UNAVAILABLE,
				 text);
		return;
	case SEGMENT_NOT_RUN:
	case SEGMENT_IN_DOUBT:
		break;
	}
	store_answer_all(batch, STORE_UNAVAILABLE, "the connection was lost");
}

static struct batch *query_form(struct store *store)
{
	struct store_request *request = queue_pop(&store->queues[STORE_QUERY]);
	struct batch *batch;

	if (!request)
		return NULL;
	batch = batch_new(store, STORE_QUERY);
	batch_add(batch, request);
	batch->build = query_build;
	batch->finish = query_finish;
	return batch;
}

/* --- dispatch --- */

/* The next batch of the path from the queues, kind by kind in turn; NULL if nothing waits. */
static struct batch *path_form(struct store *store)
{
	static const enum store_kind turns[] = {STORE_COMMIT, STORE_TAKE, STORE_CLAIM, STORE_RESOLVE, STORE_PROBE};

	for (uint32_t i = 0; i < ARRAY_LEN(turns); i++) {
		uint32_t turn = (store->turn + i) % ARRAY_LEN(turns);
		struct batch *batch = batch_form(store, turns[turn]);

		if (batch) {
			store->turn = (turn + 1) % ARRAY_LEN(turns);
			return batch;
		}
	}
	return NULL;
}

static struct batch *next_batch(struct store *store, enum conn_class class)
{
	struct batch *batch = list_first(&store->ready[class], struct batch, link);

	if (batch) {
		list_remove(&batch->link);
		return batch;
	}
	if (class == CONN_BACKGROUND)
		return query_form(store);
	return class == CONN_STEP ? path_form(store) : NULL;
}

static void dispatch(struct task *task)
{
	struct store *store = container_of(task, struct store, dispatch);

	store->dispatch_posted = false;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT && !store->stopping; class ++) {
		for (uint32_t i = 0; i < store->conn_counts[class]; i++) {
			struct batch *batch;

			while (!store->busy[class][i] &&
			       store->executor->ops->conn_ready(store->executor,
								(enum conn_class) class, i) &&
			       (batch = next_batch(store, (enum conn_class) class)))
				batch_run(batch, i);
		}
	}
	if (store->queues[STORE_QUERY].count)
		tick_start(store);
}

void store_dispatch_soon(struct store *store)
{
	if (store->dispatch_posted || store->stopping)
		return;
	store->dispatch_posted = true;
	loop_post(store->loop, &store->dispatch);
}

/* --- intake --- */

static void intake(struct task *task)
{
	struct store_request *request = container_of(task, struct store_request, intake);
	struct store *store = request->store;

	store_count(&store->stats.elements[kind_commits(request->kind) ? STORE_COMMIT : request->kind], 1);
	if (store->stopping || !store->step_up) {
		store_unavailable(store, request,
				  store->stopping ? "the store has stopped" : store->why);
		return;
	}
	request->sent_us = loop_now_us(store->loop);
	queue_push(&store->queues[request->kind], request);
	store_dispatch_soon(store);
}

/* @thread any */
static void request_send(struct store *store, struct store_request *request, enum store_kind kind,
			 uint64_t size, enum store_outcome checked)
{
	request->kind = kind;
	request->store = store;
	request->size = size;
	if (checked != STORE_OK) {
		store_answer(store, request, checked);
		return;
	}
	request->error = ERROR_INIT;
	request->intake.run = intake;
	loop_post(store->loop, &request->intake);
}

void store_claim(struct store *store, struct store_claim *claim)
{
	request_send(store, &claim->base, STORE_CLAIM, 64, claim_check(claim, &claim->base.error));
}

void store_release(struct store *store, struct store_release *release)
{
	request_send(store, &release->base, STORE_RELEASE, 64,
		     release_check(release, &release->base.error));
}

void store_resolve(struct store *store, struct store_resolve *resolve)
{
	uint64_t size = 32ull * (resolve->inbox_key_count + resolve->wait_key_count + resolve->alias_key_count +
				 resolve->session_key_count + !id_is_none(resolve->order_key));

	request_send(store, &resolve->base, STORE_RESOLVE, size,
		     resolve_check(resolve, &resolve->base.error));
}

void store_probe(struct store *store, struct store_probe *probe)
{
	request_send(store, &probe->base, STORE_PROBE, 32ull * probe->key_count, probe_check(probe, &probe->base.error));
}

void store_commit(struct store *store, struct store_commit *commit)
{
	bool takes = commit->slot_count || commit->cap.channel_limit > 0 || commit->cap.tenant_limit > 0;

	commit->unchecked = commit->skips_caps = commit->skips_slots = false;
	commit->full_tries = 0;
	request_send(store, &commit->base, takes ? STORE_TAKE : STORE_COMMIT, commit_size(commit),
		     commit_check(commit, &commit->base.error));
}

void store_query(struct store *store, struct store_query *query)
{
	request_send(store, &query->base, STORE_QUERY, 0, STORE_OK);
}

/* --- life --- */

struct store *store_new(struct runtime *runtime, struct executor *executor,
			const struct store_settings *settings)
{
	struct store *store = mem_zalloc(sizeof(*store));

	assert(settings->batch_max > 0);
	store->runtime = runtime;
	store->executor = executor;
	store->settings = *settings;
	store->outbox_owner = settings->outbox_owner ? mem_strdup(settings->outbox_owner) : NULL;
	store->settings.outbox_owner = store->outbox_owner;
	list_init(&store->batches);
	list_init(&store->spare);
	for (uint32_t i = 0; i < STORE_KIND_COUNT; i++)
		queue_init(&store->queues[i]);
	for (uint32_t i = 0; i < CONN_CLASS_COUNT; i++) {
		list_init(&store->ready[i]);
		store->conn_counts[i] = executor->ops->conn_count(executor, (enum conn_class)i);
		store->busy[i] = mem_zalloc(store->conn_counts[i] + 1);
	}
	pthread_mutex_init(&store->state_lock, NULL);
	snprintf(store->why, sizeof(store->why), "not started");
	store->dispatch.run = dispatch;
	store->loop = loop_start(runtime, "store");
	loop_timer_init(&store->tick, store->loop, tick);
	return store;
}

static void start_on_loop(void *arg)
{
	struct store *store = arg;

	store->executor->on_ready = on_ready;
	store->executor->on_down = on_down;
	store->executor->user = store;
	tick_start(store);
	store->executor->ops->start(store->executor, store->loop);
}

void store_start(struct store *store)
{
	loop_call(store->loop, start_on_loop, store);
}

static void stop_on_loop(void *arg)
{
	struct store *store = arg;

	if (store->stopping)
		return;
	store->stopping = true;
	store->step_up = false;
	loop_timer_stop(&store->tick);
	store->executor->ops->stop(store->executor);
	flush(store, "the store has stopped");
	state_publish(store);
	assert(list_is_empty(&store->batches));
}

void store_stop(struct store *store)
{
	loop_call(store->loop, stop_on_loop, store);
}

void store_free(struct store **address)
{
	struct store *store = *address;

	if (!store)
		return;
	store_stop(store);
	loop_stop(&store->loop);
	while (!list_is_empty(&store->spare)) {
		struct batch *batch = list_first(&store->spare, struct batch, all);

		list_remove(&batch->all);
		arena_done(&batch->arena);
		free(batch->elements);
		free(batch);
	}
	store->executor->ops->free(store->executor);
	floors_forget(&store->floors);
	for (uint32_t i = 0; i < STORE_KIND_COUNT; i++)
		queue_done(&store->queues[i]);
	for (uint32_t i = 0; i < CONN_CLASS_COUNT; i++)
		free(store->busy[i]);
	key_set_done(&store->keys);
	pthread_mutex_destroy(&store->state_lock);
	free(store->outbox_owner);
	free(store);
	*address = NULL;
}

bool store_is_up(struct store *store, struct buf *why)
{
	bool up;

	pthread_mutex_lock(&store->state_lock);
	up = store->up;
	if (!up && why)
		buf_add_text(why, store->why);
	pthread_mutex_unlock(&store->state_lock);
	return up;
}

static uint64_t counter(const _Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

void store_stats_read(struct store *store, struct store_stats *out)
{
	*out = (struct store_stats){
		.segments = counter(&store->stats.segments),
		.statements = counter(&store->stats.statements),
		.transactions = counter(&store->stats.transactions),
		.gate_failures = counter(&store->stats.gate_failures),
		.doubts = counter(&store->stats.doubts),
		.quarantined = counter(&store->stats.quarantined),
	};
	for (uint32_t i = 0; i < STORE_KIND_COUNT; i++) {
		out->elements[i] = counter(&store->stats.elements[i]);
		out->batches[i] = counter(&store->stats.batches[i]);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(out->batch_histogram); i++)
		out->batch_histogram[i] = counter(&store->stats.batch_histogram[i]);
}
