/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forming batches. A batch takes what waits of one kind, up to datasource.batch-max elements and batch-max-bytes, in turn
 * over the tenants.
 *
 * No two elements of a batch share a gate key: instance, session that ends, start timer, kept message,
 * inbox key, unique alias, unique wait. In one statement the second
 * of two equal keys would be skipped and answered "duplicate" although the first may still be taken out of the batch: a
 * lost message (G5, G9). The later one waits for the next batch, and so does everything behind it that shares a key with
 * it, which keeps the order of arrival for each key.
 *
 * Elements stand in the order of their instance ids: the first leg of the one global lock order.
 */
#include "base/alloc.h"
#include "base/fault.h"
#include "store/internal.h"

/* How much of a queue one batch may look through for elements without a conflict. */
#define SCAN_FACTOR 4
#define SPARE_MAX   16

/* --- gate keys --- */

static uint32_t key_hash(const struct id *key)
{
	uint64_t head, tail;

	memcpy(&head, key->bytes, 8);
	memcpy(&tail, key->bytes + 8, 8);
	return (uint32_t)(((head ^ tail) * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

static struct key_slot *key_slot_of(struct key_set *set, struct id key)
{
	uint32_t at = key_hash(&key) & (set->slot_count - 1);

	while (set->slots[at].generation == set->generation && !id_equal(set->slots[at].key, key))
		at = (at + 1) & (set->slot_count - 1);
	return &set->slots[at];
}

static void key_set_clear(struct key_set *set)
{
	if (!set->slots) {
		set->slot_count = 2048;
		set->slots = mem_zalloc(set->slot_count * sizeof(*set->slots));
	}
	set->count = 0;
	if (++set->generation == 0) {
		memset(set->slots, 0, set->slot_count * sizeof(*set->slots));
		set->generation = 1;
	}
}

static void key_set_grow(struct key_set *set)
{
	struct key_set bigger = {
		.slot_count = set->slot_count * 2, .count = set->count, .generation = 1};

	bigger.slots = mem_zalloc(bigger.slot_count * sizeof(*bigger.slots));
	for (uint32_t i = 0; i < set->slot_count; i++)
		if (set->slots[i].generation == set->generation)
			*key_slot_of(&bigger,
				     set->slots[i].key) = (struct key_slot){set->slots[i].key, 1};
	free(set->slots);
	*set = bigger;
}

static bool key_set_has(struct key_set *set, struct id key)
{
	return key_slot_of(set, key)->generation == set->generation;
}

static void key_set_add(struct key_set *set, struct id key)
{
	struct key_slot *slot;

	if (set->count * 2 >= set->slot_count)
		key_set_grow(set);
	slot = key_slot_of(set, key);
	if (slot->generation == set->generation)
		return;
	*slot = (struct key_slot){key, set->generation};
	set->count++;
}

void key_set_done(struct key_set *set)
{
	free(set->slots);
	*set = (struct key_set){0};
}

/* Calls `visit` for each gate key of the request until it returns true; whether one did. */
static bool request_keys(struct key_set *set, const struct store_request *request,
			 bool (*visit)(struct key_set *set, struct id key))
{
	const struct store_commit *commit;

	if (request->kind == STORE_CLAIM)
		return visit(set, container_of(request, const struct store_claim, base)->instance);
	if (request->kind == STORE_RELEASE)
		return visit(set,
			     container_of(request, const struct store_release, base)->instance);
	if (!kind_commits(request->kind))
		return false;
	commit = container_of(request, const struct store_commit, base);
	if (commit->commit != COMMIT_NO_INSTANCE && visit(set, commit->instance))
		return true;
	if (!id_is_none(commit->schedule.id) && visit(set, commit->schedule.id))
		return true;
	if (!id_is_none(commit->kept_removed) && visit(set, commit->kept_removed))
		return true;
	if (!id_is_none(commit->dead_letter_removed) && visit(set, commit->dead_letter_removed))
		return true;
	for (uint32_t i = 0; i < commit->session_end_count; i++)
		if (commit->commit == COMMIT_NO_INSTANCE && visit(set, commit->session_ends[i].instance))
			return true;
	for (uint32_t i = 0; i < commit->inbox_key_count; i++)
		if (visit(set, commit->inbox_keys[i]))
			return true;
	for (uint32_t i = 0; i < commit->aliases_added_count; i++)
		if (commit->aliases_added[i].unique && visit(set, commit->aliases_added[i].key))
			return true;
	for (uint32_t i = 0; i < commit->waits_added_count; i++)
		if (commit->waits_added[i].unique && visit(set, commit->waits_added[i].key))
			return true;
	return false;
}

static bool visit_add(struct key_set *set, struct id key)
{
	key_set_add(set, key);
	return false;
}

/* Whether the request shares no key with those seen before. Its keys count as seen from now on in any case. */
static bool keys_are_free(struct key_set *set, const struct store_request *request)
{
	bool taken = request_keys(set, request, key_set_has);

	request_keys(set, request, visit_add);
	return !taken;
}

/* --- life --- */

struct batch *batch_new(struct store *store, enum store_kind kind)
{
	struct batch *batch = list_first(&store->spare, struct batch, all);

	if (batch) {
		list_remove(&batch->all);
		store->spare_count--;
	} else {
		batch = mem_zalloc(sizeof(*batch));
		batch->store = store;
		arena_init(&batch->arena);
	}
	list_push(&store->batches, &batch->all);
	batch->kind = kind;
	batch->segment = &batch->own;
	batch->class = kind == STORE_QUERY ? CONN_BACKGROUND : CONN_STEP;
	return batch;
}

void batch_add(struct batch *batch, struct store_request *request)
{
	if (batch->count == batch->cap) {
		batch->cap = batch->cap ? batch->cap * 2 : 16;
		batch->elements = mem_array(batch->elements, batch->cap,
					    sizeof(struct store_request *));
	}
	batch->elements[batch->count++] = request;
}

void batch_end(struct batch *batch)
{
	struct store *store = batch->store;
	struct batch fresh = {.store = store,
			      .elements = batch->elements,
			      .cap = batch->cap,
			      .arena = batch->arena};

	assert(!batch->running);
	if (batch->pause.loop)
		loop_timer_stop(&batch->pause);
	list_remove(&batch->link);
	list_remove(&batch->all);
	if (store->spare_count >= SPARE_MAX || store->stopping) {
		arena_done(&batch->arena);
		free(batch->elements);
		free(batch);
		return;
	}
	*batch = fresh;
	arena_reset(&batch->arena);
	list_push_front(&store->spare, &batch->all);
	store->spare_count++;
}

struct batch *batch_split(struct batch *batch)
{
	struct batch *other = batch_new(batch->store, batch->kind);

	other->class = batch->class;
	other->build = batch->build;
	other->finish = batch->finish;
	other->tries = batch->tries;
	other->lock_tries = batch->lock_tries;
	other->quarantined = batch->quarantined;
	other->doubtful = batch->doubtful;
	other->counted = batch->counted;
	return other;
}

void batch_ready(struct batch *batch)
{
	struct store *store = batch->store;
	enum conn_class class = batch->class;

	/* An executor without a connection of the class serves it by its step connections. */
	if (!store->conn_counts[class])
		class = batch->class = CONN_STEP;
	list_push(&store->ready[class], &batch->link);
	store_dispatch_soon(store);
}

static void pause_over(struct loop_timer *timer)
{
	batch_ready(container_of(timer, struct batch, pause));
}

void batch_ready_later(struct batch *batch, int64_t delay_us)
{
	if (delay_us <= 0) {
		batch_ready(batch);
		return;
	}
	loop_timer_init(&batch->pause, batch->store->loop, pause_over);
	loop_timer_start(&batch->pause, delay_us);
}

/* --- forming --- */

static const struct id *element_instance(const struct store_request *request)
{
	if (request->kind == STORE_CLAIM)
		return &container_of(request, const struct store_claim, base)->instance;
	if (request->kind == STORE_RELEASE)
		return &container_of(request, const struct store_release, base)->instance;
	return &container_of(request, const struct store_commit, base)->instance;
}

/* Claims before releases; then by instance. */
static int element_compare(const void *a, const void *b)
{
	const struct store_request *x = *(struct store_request *const *)a,
				   *y = *(struct store_request *const *)b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return memcmp(element_instance(x), element_instance(y), sizeof(struct id));
}

/* Moves what may go together from the queue into the batch. */
static void form_from(struct batch *batch, struct queue *queue)
{
	struct store *store = batch->store;
	uint32_t max = store->settings.batch_max, taken = 0, looked_at = 0;
	uint64_t bytes = 0;
	struct list skipped;

	list_init(&skipped);
	key_set_clear(&store->keys);
	while (taken < max && looked_at++ < max * SCAN_FACTOR) {
		struct store_request *request = queue_peek(queue);

		if (!request || (taken && bytes + request->size > store->settings.batch_max_bytes))
			break;
		queue_pop(queue);
		if (!keys_are_free(&store->keys, request)) {
			list_push(&skipped, &request->link);
			continue;
		}
		batch_add(batch, request);
		bytes += request->size;
		taken++;
	}
	while (!list_is_empty(&skipped)) {
		struct store_request *last = list_entry(skipped.prev, struct store_request, link);

		list_remove(&last->link);
		queue_push_front(queue, last);
	}
}

struct batch *batch_form(struct store *store, enum store_kind kind)
{
	bool releases = kind == STORE_CLAIM && store->queues[STORE_RELEASE].count > 0;
	struct batch *batch;

	if ((!store->queues[kind].count && !releases) || (kind == STORE_TAKE && takes_are_under_way(store)))
		return NULL;
	batch = batch_new(store, kind);
	form_from(batch, &store->queues[kind]);
	if (releases)
		form_from(batch, &store->queues[STORE_RELEASE]);
	if (kind != STORE_RESOLVE && kind != STORE_PROBE && batch->count > 1)
		qsort(batch->elements, batch->count, sizeof(struct store_request *),
		      element_compare);
	batch_path(batch);
	return batch;
}

static void path_finished(struct batch *batch)
{
	switch (batch->segment->outcome) {
	case SEGMENT_COMMITTED:
		if (kind_commits(batch->kind) && fault(FAULT_commit_after)) {
			doubt_unknown(batch);
			return;
		}
		if (batch->kind == STORE_CLAIM && fault(FAULT_claim_after)) {
			store_answer_all(batch, STORE_UNAVAILABLE, "fault point claim_after");
			return;
		}
		segment_take(batch);
		batch_end(batch);
		return;
	case SEGMENT_GATED:
		gates_failed(batch);
		return;
	case SEGMENT_ERROR:
		gates_error(batch);
		return;
	case SEGMENT_IN_DOUBT:
		/* Claims, releases: both may be run twice. */
		if (kind_commits(batch->kind)) {
			doubt_begin(batch);
			return;
		}
		break;
	case SEGMENT_NOT_RUN:
		break;
	}
	gates_not_run(batch);
}

void batch_path(struct batch *batch)
{
	batch->build = segment_build;
	batch->finish = path_finished;
}
