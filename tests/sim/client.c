/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handles of the simulated cluster: what a client library keeps in the process.
 *
 * Events queue up in order; records come when no event is there, from any partition that is assigned, fetched and not
 * paused. One question about partitions is open at a time: it is asked by an event and answered by assign() or unassign(),
 * and only then comes the next. Calls are checked against the rules of the seam: on the handle's own loop, no answer without
 * a question, no pause of what is paused.
 */
#include "base/alloc.h"
#include "base/time.h"
#include "tests/sim/broker.h"

#define OUTSTANDING_MAX 40

/* --- waking the client --- */

static void handle_ready(struct task *task)
{
	struct kafka_handle *handle = container_of(task, struct kafka_handle, ready_task);

	handle->ready_posted = false;
	if (!handle->closed)
		handle->ready(handle->user);
}

void handle_wake(struct kafka_handle *handle)
{
	if (!handle->idle || handle->closed || handle->ready_posted)
		return;
	handle->idle = false;
	handle->ready_posted = true;
	handle->ready_task.run = handle_ready;
	loop_post(handle->loop, &handle->ready_task);
}

void handle_event(struct kafka_handle *handle, const struct kafka_event *event)
{
	struct queued *queued;

	if (handle->closed || process_is_dead(handle->process))
		return;
	if (handle->broken && event->kind != KAFKA_EVENT_FATAL)
		return;
	queued = mem_zalloc(sizeof(*queued));
	queued->event = *event;
	for (size_t i = 0; i < event->partition_count; i++)
		queued->partitions[i] = event->partitions[i];
	queued->event.partitions = queued->partitions;
	list_push(&handle->events, &queued->link);
	handle_wake(handle);
}

/* --- rebalances --- */

static size_t collect(const struct kafka_handle *handle, struct kafka_partition *out,
		      enum asked asked)
{
	const struct group *group = handle->group;
	size_t count = 0;

	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++) {
		const struct held *held = &handle->held[i];
		bool mine = group->owners[i] == handle;
		bool wanted = asked == ASKED_LOST     ? held->told
			      : asked == ASKED_REVOKE ? held->told && mine && group->taken[i]
						      : mine && !held->told && !group->taken[i];

		if (wanted)
			out[count++] = (struct kafka_partition){handle->topic, i, -1};
	}
	return count;
}

static void ask(struct kafka_handle *handle, enum asked asked,
		const struct kafka_partition *partitions, size_t count)
{
	static const enum kafka_event_kind kinds[] = {
		[ASKED_ASSIGN] = KAFKA_EVENT_ASSIGN,
		[ASKED_REVOKE] = KAFKA_EVENT_REVOKE,
		[ASKED_LOST] = KAFKA_EVENT_LOST,
	};
	struct kafka_event event = {
		.kind = kinds[asked], .partitions = partitions, .partition_count = count};

	sim_note(handle->cluster->sim, "cluster %s %s %zu of %s",
		 asked == ASKED_ASSIGN   ? "gives"
		 : asked == ASKED_REVOKE ? "takes back from"
					 : "took from",
		 process_name(handle->process), count, handle->topic);
	handle->asked = asked;
	handle->asked_polled = false;
	if (asked == ASKED_ASSIGN)
		for (size_t i = 0; i < count; i++)
			handle->held[partitions[i].partition].told = true;
	handle_event(handle, &event);
}

static void handle_rejoin(struct loop_timer *timer)
{
	struct kafka_handle *handle = container_of(timer, struct kafka_handle, rejoin);

	if (process_is_dead(handle->process))
		return;
	if (process_is_paused(handle->process) || !handle->cluster->up) {
		loop_timer_start(&handle->rejoin, 200 * US_PER_MS);
		return;
	}
	handle->in_group = true;
	handle->joined = false;
	handle->lost = false;
	handle->seen_us = sim_now_us(handle->cluster->sim);
	group_rebalance_soon(handle->group);
}

static void rejoin_soon(struct kafka_handle *handle)
{
	struct sim *sim = handle->cluster->sim;

	if (!loop_timer_is_started(&handle->rejoin))
		loop_timer_start(&handle->rejoin, sim_between(sim, 5 * US_PER_MS, 500 * US_PER_MS));
}

void handle_advance(struct kafka_handle *handle)
{
	struct kafka_partition partitions[CLUSTER_PARTITIONS_MAX];
	size_t count;

	if (handle->closed || handle->broken || handle->asked != ASKED_NOTHING ||
	    process_is_dead(handle->process))
		return;
	if (handle->lost) {
		count = collect(handle, partitions, ASKED_LOST);
		if (count)
			ask(handle, ASKED_LOST, partitions, count);
		else
			rejoin_soon(handle);
		return;
	}
	if (!handle->in_group)
		return;
	count = collect(handle, partitions, ASKED_REVOKE);
	if (count) {
		ask(handle, ASKED_REVOKE, partitions, count);
		return;
	}
	count = collect(handle, partitions, ASKED_ASSIGN);
	if (count || !handle->joined)
		ask(handle, ASKED_ASSIGN, partitions, count);
	handle->joined = true;
}

/* The client finds out. What it was going to be told and has not seen is void. */
static void handle_notice(struct loop_timer *timer)
{
	struct kafka_handle *handle = container_of(timer, struct kafka_handle, notice);

	if (process_is_paused(handle->process)) {
		loop_timer_start(&handle->notice, 100 * US_PER_MS);
		return;
	}
	handle->lost = true;
	if (handle->asked != ASKED_NOTHING && !handle->asked_polled) {
		list_for_each (&handle->events, at, next) {
			struct queued *queued = list_entry(at, struct queued, link);
			enum kafka_event_kind kind = queued->event.kind;

			if (kind != KAFKA_EVENT_ASSIGN && kind != KAFKA_EVENT_REVOKE &&
			    kind != KAFKA_EVENT_LOST)
				continue;
			for (size_t i = 0;
			     kind == KAFKA_EVENT_ASSIGN && i < queued->event.partition_count; i++)
				handle->held[queued->partitions[i].partition].told = false;
			list_remove(at);
			free(queued);
		}
		handle->asked = ASKED_NOTHING;
	}
	handle_advance(handle);
}

void handle_evicted(struct kafka_handle *handle)
{
	struct sim *sim = handle->cluster->sim;

	if (!loop_timer_is_started(&handle->notice))
		loop_timer_start(&handle->notice,
				 sim_latency(sim, 1 * US_PER_MS, 3000 * US_PER_MS));
}

/* --- records --- */

static void fetched(struct loop_timer *timer)
{
	struct held *held = container_of(timer, struct held, fetch);
	struct kafka_handle *handle = held->handle;
	const struct topic *topic = topic_find(handle->cluster, handle->topic);
	int32_t partition = (int32_t)(held - handle->held);

	if (!held->assigned || !handle->cluster->up)
		return;
	held->fetched = topic->ends[partition];
	if (held->fetched > held->position && !held->paused)
		handle_wake(handle);
}

void handle_fetch(struct kafka_handle *handle, int32_t partition)
{
	struct sim_cluster *cluster = handle->cluster;
	const struct topic *topic = topic_find(cluster, handle->topic);
	struct held *held = &handle->held[partition];

	if (!topic || handle->closed || process_is_dead(handle->process) || !held->assigned ||
	    !cluster->up || held->fetched >= topic->ends[partition] ||
	    loop_timer_is_started(&held->fetch))
		return;
	loop_timer_start(&held->fetch,
			 sim_latency(cluster->sim, 100, cluster->settings.latency_max_us));
}

static bool held_has_record(const struct held *held)
{
	return held->assigned && !held->paused && held->position < held->fetched;
}

static bool poll_record(struct kafka_handle *handle, struct kafka_event *event)
{
	const struct topic *topic = topic_find(handle->cluster, handle->topic);
	struct group *group = handle->group;
	int32_t ready[CLUSTER_PARTITIONS_MAX], p;
	uint32_t count = 0;

	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++)
		if (held_has_record(&handle->held[i]))
			ready[count++] = i;
	if (!count)
		return false;
	p = ready[sim_below(handle->cluster->sim, count)];
	event->kind = KAFKA_EVENT_RECORD;
	event->record = topic->logs[p][handle->held[p].position++];
	if (event->record.offset < group->delivered[p])
		handle->cluster->stats.redelivered++;
	else
		group->delivered[p] = event->record.offset + 1;
	sim_note(handle->cluster->sim, "%s reads %s/%d/%lld", process_name(handle->process),
		 handle->topic, p, (long long)event->record.offset);
	if (handle->cluster->settings.ack_before_commit &&
	    group->committed[p] <= event->record.offset) {
		int64_t from = group->committed[p];

		group->committed[p] = event->record.offset + 1;
		handle->cluster->settings.committed(handle->cluster->settings.user, handle->topic,
						    p, from, group->committed[p]);
	}
	handle_fetch(handle, p);
	return true;
}

/* --- the seam --- */

static void check_loop(const struct kafka_handle *handle)
{
	if (!sim_is_on(handle->loop))
		sim_fail(handle->cluster->sim, "a Kafka handle is used off its loop");
}

static enum result client_open(void *cluster, struct loop *loop, const char *group,
			       const char *const *names UNUSED, const char *const *values UNUSED,
			       size_t count UNUSED, void (*ready)(void *user), void *user,
			       struct kafka_handle **out, struct error *err UNUSED)
{
	struct sim_cluster_client *client = cluster;
	struct kafka_handle *handle = mem_zalloc(sizeof(*handle));
	struct loop *world = sim_world(client->cluster->sim);

	handle->cluster = client->cluster;
	handle->process = client->process;
	handle->loop = loop;
	handle->ready = ready;
	handle->user = user;
	handle->idle = true;
	list_init(&handle->events);
	loop_timer_init(&handle->rejoin, world, handle_rejoin);
	loop_timer_init(&handle->notice, world, handle_notice);
	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++) {
		handle->held[i].handle = handle;
		loop_timer_init(&handle->held[i].fetch, world, fetched);
	}
	if (group)
		handle->group = group_get(client->cluster, group);
	list_push(&client->cluster->handles, &handle->link);
	*out = handle;
	return RESULT_OK;
}

static enum result client_subscribe(struct kafka_handle *handle, const char *topic,
				    struct error *err UNUSED)
{
	struct kafka_event missing = {
		.kind = KAFKA_EVENT_MISSING, .failed = true, .unknown_topic = true};

	assert(handle->group && !handle->subscribed);
	handle->subscribed = true;
	snprintf(handle->topic, sizeof(handle->topic), "%s", topic);
	snprintf(handle->group->topic, sizeof(handle->group->topic), "%s", topic);
	rejoin_soon(handle);
	if (!topic_find(handle->cluster, topic))
		handle_event(handle, &missing);
	return RESULT_OK;
}

static void client_poll(struct kafka_handle *handle, struct kafka_event *event)
{
	struct queued *queued = list_first(&handle->events, struct queued, link);

	check_loop(handle);
	*event = (struct kafka_event){.kind = KAFKA_EVENT_NONE, .lag = -1};
	free(handle->shown);
	handle->shown = NULL;
	if (queued) {
		list_remove(&queued->link);
		handle->shown = queued;
		*event = queued->event;
		if (event->kind == KAFKA_EVENT_ASSIGN || event->kind == KAFKA_EVENT_REVOKE ||
		    event->kind == KAFKA_EVENT_LOST)
			handle->asked_polled = true;
		return;
	}
	if (handle->group && !handle->broken && poll_record(handle, event))
		return;
	handle->idle = true;
}

static void client_assign(struct kafka_handle *handle, const struct kafka_partition *partitions,
			  size_t count)
{
	struct sim *sim = handle->cluster->sim;

	check_loop(handle);
	if (handle->asked != ASKED_ASSIGN)
		sim_fail(sim, "assign() without a question");
	for (size_t i = 0; i < count; i++) {
		struct held *held = &handle->held[partitions[i].partition];

		held->assigned = true;
		held->paused = false;
		held->position = held->fetched = handle->group->committed[partitions[i].partition];
		handle_fetch(handle, partitions[i].partition);
	}
	handle->asked = ASKED_NOTHING;
	handle_advance(handle);
}

static void client_unassign(struct kafka_handle *handle, const struct kafka_partition *partitions,
			    size_t count)
{
	enum asked asked = handle->asked;

	check_loop(handle);
	if (asked != ASKED_REVOKE && asked != ASKED_LOST)
		sim_fail(handle->cluster->sim, "unassign() without a question");
	for (size_t i = 0; i < count; i++) {
		struct held *held = &handle->held[partitions[i].partition];

		held->assigned = held->told = false;
		loop_timer_stop(&held->fetch);
	}
	if (asked == ASKED_REVOKE && count) {
		struct op *op = op_send(handle, OP_UNASSIGN);

		op->partition_count = count;
		memcpy(op->partitions, partitions, count * sizeof(*partitions));
	}
	handle->asked = ASKED_NOTHING;
	handle_advance(handle);
}

static void set_paused(struct kafka_handle *handle, const struct kafka_partition *partitions,
		       size_t count, bool paused)
{
	check_loop(handle);
	for (size_t i = 0; i < count; i++) {
		struct held *held = &handle->held[partitions[i].partition];

		if (!held->assigned || held->paused == paused)
			sim_fail(handle->cluster->sim, "partition %d of %s is %s and shall be so",
				 partitions[i].partition, handle->topic,
				 !held->assigned ? "not assigned"
				 : paused        ? "paused"
						 : "not paused");
		held->paused = paused;
		if (held_has_record(held))
			handle_wake(handle);
	}
}

static void client_pause(struct kafka_handle *handle, const struct kafka_partition *partitions,
			 size_t count)
{
	set_paused(handle, partitions, count, true);
}

static void client_resume(struct kafka_handle *handle, const struct kafka_partition *partitions,
			  size_t count)
{
	set_paused(handle, partitions, count, false);
}

static void client_commit(struct kafka_handle *handle, const struct kafka_partition *partitions,
			  size_t count)
{
	struct op *op = op_send(handle, OP_COMMIT);

	check_loop(handle);
	assert(count <= CLUSTER_PARTITIONS_MAX);
	op->partition_count = count;
	for (size_t i = 0; i < count; i++) {
		op->partitions[i] = partitions[i];
		op->partitions[i].topic = handle->topic;
	}
}

static enum result client_produce(struct kafka_handle *handle, const struct kafka_record *record,
				  void *opaque, char *text, size_t text_size)
{
	struct op *op;

	check_loop(handle);
	if (handle->broken || handle->outstanding >= OUTSTANDING_MAX) {
		snprintf(text, text_size, "the simulated queue is full");
		return RESULT_AGAIN;
	}
	op = op_send(handle, OP_PRODUCE);
	handle->cluster->stats.produced++;
	handle->outstanding++;
	record_copy(&handle->cluster->arena, &op->record, record);
	op->record.timestamp_ms = -1;
	op->opaque = opaque;
	if (handle->cluster->settings.confirm_early) {
		struct kafka_event event = {.kind = KAFKA_EVENT_DELIVERED, .opaque = opaque};

		op->reported = true;
		handle->outstanding--;
		handle_event(handle, &event);
	}
	return RESULT_OK;
}

static void client_purge(struct kafka_handle *handle)
{
	struct sim *sim = handle->cluster->sim;

	check_loop(handle);
	list_for_each (&handle->cluster->ops, at, next) {
		struct op *op = list_entry(at, struct op, link);
		struct kafka_event event = {.kind = KAFKA_EVENT_DELIVERED,
					    .failed = true,
					    .opaque = op->opaque,
					    .text = "purged"};

		if (op->handle != handle || op->reported ||
		    (op->kind != OP_PRODUCE && op->kind != OP_REPORT))
			continue;
		op->reported = true;
		handle->outstanding--;
		handle_event(handle, &event);
		if (sim_below(sim, 2))
			op_free(op);
	}
}

static void client_close(struct kafka_handle **handle, int64_t timeout_ms UNUSED)
{
	struct kafka_handle *h = *handle;
	struct queued *queued;

	check_loop(h);
	h->closed = true;
	loop_timer_stop(&h->rejoin);
	loop_timer_stop(&h->notice);
	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++)
		loop_timer_stop(&h->held[i].fetch);
	list_for_each (&h->cluster->ops, at, next) {
		struct op *op = list_entry(at, struct op, link);

		if (op->handle == h)
			op->reported = true;
	}
	while ((queued = list_first(&h->events, struct queued, link))) {
		list_remove(&queued->link);
		free(queued);
	}
	/* Behind the commits that are under way. */
	if (h->in_group)
		op_send(h, OP_LEAVE);
	*handle = NULL;
}

static const char *client_version(void)
{
	return "simulated";
}

const struct kafka_client sim_kafka_client = {
	.open = client_open,
	.subscribe = client_subscribe,
	.poll = client_poll,
	.assign = client_assign,
	.unassign = client_unassign,
	.pause = client_pause,
	.resume = client_resume,
	.commit = client_commit,
	.produce = client_produce,
	.purge = client_purge,
	.close = client_close,
	.version = client_version,
};

void handle_free(struct kafka_handle *handle)
{
	struct queued *queued;

	loop_timer_stop(&handle->rejoin);
	loop_timer_stop(&handle->notice);
	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++)
		loop_timer_stop(&handle->held[i].fetch);
	while ((queued = list_first(&handle->events, struct queued, link))) {
		list_remove(&queued->link);
		free(queued);
	}
	free(handle->shown);
	list_remove(&handle->link);
	free(handle);
}
