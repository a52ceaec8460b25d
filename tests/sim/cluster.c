/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker. Logs of records, groups with their owners and committed offsets, and the requests that are under way.
 *
 * A group's partitions have owners. A rebalance evens them out: what is free goes to whoever has least, what is too much
 * is taken, and free when its owner has answered (cooperative). A commit counts if its sender is still of the group, as
 * in Kafka: the broker does not ask who owns the partition. Requests of one handle arrive in the order of sending, so the
 * commit before an unassign counts.
 */
#include "tests/sim/broker.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/time.h"

#define BEAT_US            (500 * US_PER_MS)
#define MESSAGE_TIMEOUT_US (8 * US_PER_S)
/* 2026-01-01. */
#define WALL_BASE_MS INT64_C(1767225600000)

/* --- records --- */

struct str kafka_record_header(const struct kafka_record *record, const char *name)
{
	struct str found = STR_NONE;

	for (size_t i = 0; i < record->header_count; i++)
		if (str_equal(record->header_names[i], str_of(name)))
			found = record->header_values[i];
	return found;
}

void record_copy(struct arena *arena, struct kafka_record *to, const struct kafka_record *from)
{
	struct str *names = arena_alloc(arena, (from->header_count + 1) * sizeof(*names));
	struct str *values = arena_alloc(arena, (from->header_count + 1) * sizeof(*values));

	*to = *from;
	to->topic = arena_str(arena, from->topic);
	to->key = arena_str(arena, from->key);
	to->value = arena_str(arena, from->value);
	for (size_t i = 0; i < from->header_count; i++) {
		names[i] = arena_str(arena, from->header_names[i]);
		values[i] = arena_str(arena, from->header_values[i]);
	}
	to->header_names = names;
	to->header_values = values;
}

struct topic *topic_find(const struct sim_cluster *cluster, const char *name)
{
	for (struct topic *topic = cluster->topics; topic; topic = topic->next)
		if (strcmp(topic->name, name) == 0)
			return topic;
	return NULL;
}

static int32_t record_partition(struct sim_cluster *cluster, const struct topic *topic,
				struct str key)
{
	if (!key.ptr)
		return (int32_t)sim_below(cluster->sim, (uint64_t)topic->partition_count);
	return (int32_t)(hash_bytes(key.ptr, key.len) % (uint64_t)topic->partition_count);
}

int64_t topic_append(struct sim_cluster *cluster, struct topic *topic, int32_t partition,
		     const struct kafka_record *record)
{
	int64_t offset = topic->ends[partition]++;
	struct kafka_record *log = mem_array(topic->logs[partition], (size_t)topic->ends[partition],
					     sizeof(*log));

	topic->logs[partition] = log;
	log[offset] = *record;
	log[offset].topic = str_of(topic->name);
	log[offset].partition = partition;
	log[offset].offset = offset;
	if (log[offset].timestamp_ms < 0)
		log[offset].timestamp_ms = WALL_BASE_MS + sim_now_us(cluster->sim) / US_PER_MS;
	cluster->stats.appended++;
	sim_note(cluster->sim, "cluster %s/%d/%lld", topic->name, partition, (long long)offset);
	if (cluster->settings.appended)
		cluster->settings.appended(cluster->settings.user, topic->name, partition, offset);
	list_for_each (&cluster->handles, at, next) {
		struct kafka_handle *handle = list_entry(at, struct kafka_handle, link);

		if (handle->group && strcmp(handle->topic, topic->name) == 0)
			handle_fetch(handle, partition);
	}
	return offset;
}

int64_t sim_cluster_append(struct sim_cluster *cluster, const char *name, int32_t partition,
			   const struct kafka_record *record, int32_t *out)
{
	struct topic *topic = topic_find(cluster, name);
	struct kafka_record copy;

	assert(topic);
	if (partition < 0)
		partition = record_partition(cluster, topic, record->key);
	record_copy(&cluster->arena, &copy, record);
	*out = partition;
	return topic_append(cluster, topic, partition, &copy);
}

/* --- groups --- */

struct group *group_get(struct sim_cluster *cluster, const char *name)
{
	struct group **at = &cluster->groups;

	for (; *at; at = &(*at)->next)
		if (strcmp((*at)->name, name) == 0)
			return *at;
	*at = mem_zalloc(sizeof(**at));
	(*at)->cluster = cluster;
	snprintf((*at)->name, sizeof((*at)->name), "%s", name);
	return *at;
}

static uint32_t owned_by(const struct group *group, const struct kafka_handle *handle)
{
	uint32_t count = 0;

	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++)
		if (group->owners[i] == handle && !group->taken[i])
			count++;
	return count;
}

/* The member with the fewest partitions (`most` false) or the most; the first that joined on a tie. */
static struct kafka_handle *group_extreme(const struct group *group, bool most, uint32_t *count)
{
	struct kafka_handle *found = NULL;

	list_for_each (&group->cluster->handles, at, next) {
		struct kafka_handle *handle = list_entry(at, struct kafka_handle, link);
		uint32_t owned;

		if (handle->group != group || !handle->in_group)
			continue;
		owned = owned_by(group, handle);
		if (!found || (most ? owned > *count : owned < *count)) {
			found = handle;
			*count = owned;
		}
	}
	return found;
}

/* They will go to those who have least. */
static uint32_t group_taken(const struct group *group)
{
	uint32_t count = 0;

	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++)
		count += group->taken[i];
	return count;
}

static void group_rebalance(struct loop_timer *timer)
{
	struct group *group = container_of(timer, struct group, rebalance);
	struct sim_cluster *cluster = group->cluster;
	const struct topic *topic = topic_find(cluster, group->topic);
	struct kafka_handle *most, *least;
	uint32_t most_count = 0, least_count = 0;

	if (!cluster->up) {
		group_rebalance_soon(group);
		return;
	}
	if (!topic || !group_extreme(group, false, &least_count))
		return;
	cluster->stats.rebalances++;
	for (int32_t i = 0; i < topic->partition_count; i++)
		if (!group->owners[i])
			group->owners[i] = group_extreme(group, false, &least_count);
	for (uint32_t taken = group_taken(group);;) {
		int32_t i = 0;

		most = group_extreme(group, true, &most_count);
		least = group_extreme(group, false, &least_count);
		if (most_count <= least_count + taken + 1)
			break;
		while (group->owners[i] != most || group->taken[i])
			i++;
		if (most->held[i].told) {
			group->taken[i] = true;
			taken++;
		} else {
			group->owners[i] = least;
		}
	}
	list_for_each (&cluster->handles, at, next) {
		struct kafka_handle *handle = list_entry(at, struct kafka_handle, link);

		if (handle->group == group)
			handle_advance(handle);
	}
}

void group_rebalance_soon(struct group *group)
{
	struct sim *sim = group->cluster->sim;

	if (loop_timer_is_started(&group->rebalance))
		return;
	loop_timer_init(&group->rebalance, sim_world(sim), group_rebalance);
	loop_timer_start(&group->rebalance, sim_between(sim, 20 * US_PER_MS, 400 * US_PER_MS));
}

void group_leave(struct kafka_handle *handle)
{
	struct group *group = handle->group;

	if (!handle->in_group)
		return;
	handle->in_group = false;
	handle->epoch++;
	for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++)
		if (group->owners[i] == handle) {
			group->owners[i] = NULL;
			group->taken[i] = false;
		}
	group_rebalance_soon(group);
}

void sim_cluster_rebalance(struct sim_cluster *cluster)
{
	sim_note(cluster->sim, "cluster moves partitions");
	for (struct group *group = cluster->groups; group; group = group->next) {
		for (int32_t i = 0; i < CLUSTER_PARTITIONS_MAX; i++)
			if (group->owners[i] && group->owners[i]->held[i].told &&
			    sim_below(cluster->sim, 2))
				group->taken[i] = true;
		group_rebalance_soon(group);
	}
}

static void cluster_evict(struct kafka_handle *handle)
{
	sim_note(handle->cluster->sim, "cluster evicts %s from %s", process_name(handle->process),
		 handle->group->name);
	handle->cluster->stats.evictions++;
	group_leave(handle);
	handle_evicted(handle);
}

void sim_cluster_evict(struct sim_cluster *cluster, const struct process *process)
{
	list_for_each (&cluster->handles, at, next) {
		struct kafka_handle *handle = list_entry(at, struct kafka_handle, link);

		if (handle->process == process && handle->in_group && sim_below(cluster->sim, 2))
			cluster_evict(handle);
	}
}

/* Whether it sends heartbeats. */
static bool handle_is_alive(const struct kafka_handle *handle)
{
	return !handle->closed && !process_is_dead(handle->process) &&
	       !process_is_paused(handle->process);
}

/* Heartbeats: who was not heard of for too long is thrown out. */
static void cluster_beat(struct loop_timer *timer)
{
	struct sim_cluster *cluster = container_of(timer, struct sim_cluster, beat);
	int64_t now_us = sim_now_us(cluster->sim);

	loop_timer_start(&cluster->beat, BEAT_US);
	list_for_each (&cluster->handles, at, next) {
		struct kafka_handle *handle = list_entry(at, struct kafka_handle, link);

		if (!handle->in_group)
			continue;
		if (!cluster->up || handle_is_alive(handle))
			handle->seen_us = now_us;
		else if (now_us - handle->seen_us > cluster->settings.session_timeout_us)
			cluster_evict(handle);
	}
}

/* --- requests --- */

void op_free(struct op *op)
{
	loop_timer_stop(&op->timer);
	list_remove(&op->link);
	free(op);
}

static void commit_take(struct group *group, const struct kafka_partition *partition)
{
	struct sim_cluster *cluster = group->cluster;
	int32_t p = partition->partition;
	int64_t from = group->committed[p], to = partition->offset;

	if (cluster->settings.offset_past_hole && group->delivered[p] > to)
		to = group->delivered[p];
	if (to < from)
		sim_note(cluster->sim, "cluster: %s/%d goes back from %lld", group->topic, p,
			 (long long)from);
	group->committed[p] = to;
	sim_note(cluster->sim, "cluster %s/%d committed %lld", group->topic, p, (long long)to);
	if (cluster->settings.committed)
		cluster->settings.committed(cluster->settings.user, group->topic, p, from, to);
}

static void commit_arrived(struct op *op)
{
	struct kafka_handle *handle = op->handle;
	struct sim_cluster *cluster = op->cluster;
	struct kafka_event event = {.kind = KAFKA_EVENT_COMMITTED,
				    .partitions = op->partitions,
				    .partition_count = op->partition_count};

	cluster->stats.commits++;
	if (!cluster->up || !handle->in_group || handle->epoch != op->epoch ||
	    (!cluster->calm &&
	     sim_chance(cluster->sim, cluster->settings.commit_fails_per_million))) {
		cluster->stats.commit_failures++;
		event.failed = true;
		snprintf(event.text, sizeof(event.text),
			 "the simulated broker does not take the commit");
	} else {
		for (size_t i = 0; i < op->partition_count; i++)
			commit_take(handle->group, &op->partitions[i]);
	}
	handle_event(handle, &event);
}

static void unassign_arrived(struct op *op)
{
	struct kafka_handle *handle = op->handle;
	struct group *group = handle->group;

	if (!handle->in_group || handle->epoch != op->epoch)
		return;
	for (size_t i = 0; i < op->partition_count; i++) {
		int32_t p = op->partitions[i].partition;

		if (group->owners[p] == handle) {
			group->owners[p] = NULL;
			group->taken[p] = false;
		}
	}
	group_rebalance_soon(group);
}

static void report(struct op *op, bool failed, bool unknown_topic)
{
	struct kafka_handle *handle = op->handle;
	struct kafka_event event = {.kind = KAFKA_EVENT_DELIVERED,
				    .failed = failed,
				    .unknown_topic = unknown_topic,
				    .opaque = op->opaque};

	if (op->reported)
		return;
	op->reported = true;
	if (failed)
		snprintf(event.text, sizeof(event.text), "the simulated broker did not take it");
	handle->outstanding--;
	handle_event(handle, &event);
}

static void op_again(struct op *op, enum op_kind kind, int64_t delay_us)
{
	op->kind = kind;
	loop_timer_start(&op->timer, delay_us);
}

/* Keeps the request, for its report or another try; false: it is over. */
static bool produce_arrived(struct op *op)
{
	struct sim_cluster *cluster = op->cluster;
	const struct sim_cluster_settings *settings = &cluster->settings;
	struct topic *topic;
	char name[64];

	if (!cluster->up) {
		op->failed = sim_now_us(cluster->sim) - op->sent_us > MESSAGE_TIMEOUT_US;
		op_again(op, op->failed ? OP_REPORT : OP_PRODUCE,
			 sim_between(cluster->sim, 50000, 300000));
		return true;
	}
	snprintf(name, sizeof(name), "%.*s", STR_ARG(op->record.topic));
	topic = topic_find(cluster, name);
	if (!topic ||
	    (!cluster->calm && sim_chance(cluster->sim, settings->produce_fails_per_million))) {
		op->failed = true;
		op->unknown_topic = !topic;
	} else if (!settings->confirm_early || sim_chance(cluster->sim, 700000)) {
		topic_append(cluster, topic, record_partition(cluster, topic, op->record.key),
			     &op->record);
		op->failed = !cluster->calm &&
			     sim_chance(cluster->sim, settings->produce_unknown_per_million);
	}
	if (op->failed)
		cluster->stats.produce_failures++;
	op_again(op, OP_REPORT,
		 sim_latency(cluster->sim, 100, settings->latency_max_us * (op->failed ? 10 : 1)));
	return true;
}

static void op_arrived(struct loop_timer *timer)
{
	struct op *op = container_of(timer, struct op, timer);

	switch (op->kind) {
	case OP_COMMIT:
		commit_arrived(op);
		break;
	case OP_UNASSIGN:
		unassign_arrived(op);
		break;
	case OP_LEAVE:
		if (op->handle->epoch == op->epoch)
			group_leave(op->handle);
		break;
	case OP_PRODUCE:
		if (produce_arrived(op))
			return;
		break;
	case OP_REPORT:
		report(op, op->failed, op->unknown_topic);
		break;
	}
	op_free(op);
}

struct op *op_send(struct kafka_handle *handle, enum op_kind kind)
{
	struct sim_cluster *cluster = handle->cluster;
	int64_t now_us = sim_now_us(cluster->sim);
	int64_t due_us = now_us + sim_latency(cluster->sim, 100, cluster->settings.latency_max_us);
	struct op *op = mem_zalloc(sizeof(*op));

	if (due_us <= handle->op_due_us)
		due_us = handle->op_due_us + 1;
	handle->op_due_us = due_us;
	op->cluster = cluster;
	op->handle = handle;
	op->kind = kind;
	op->epoch = handle->epoch;
	op->sent_us = now_us;
	list_push(&cluster->ops, &op->link);
	loop_timer_init(&op->timer, sim_world(cluster->sim), op_arrived);
	loop_timer_start(&op->timer, due_us - now_us);
	return op;
}

/* --- the whole cluster --- */

static void cluster_tell(struct sim_cluster *cluster, enum kafka_event_kind kind)
{
	list_for_each (&cluster->handles, at, next) {
		struct kafka_event event = {.kind = kind};

		snprintf(event.text, sizeof(event.text), "the simulated broker is %s",
			 kind == KAFKA_EVENT_UP ? "up" : "down");
		handle_event(list_entry(at, struct kafka_handle, link), &event);
	}
}

static void cluster_started(struct loop_timer *timer)
{
	struct sim_cluster *cluster = container_of(timer, struct sim_cluster, start);

	cluster->up = true;
	sim_note(cluster->sim, "cluster is up");
	cluster_tell(cluster, KAFKA_EVENT_UP);
	list_for_each (&cluster->handles, at, next) {
		struct kafka_handle *handle = list_entry(at, struct kafka_handle, link);

		for (int32_t i = 0; handle->group && i < CLUSTER_PARTITIONS_MAX; i++)
			handle_fetch(handle, i);
	}
}

void sim_cluster_down(struct sim_cluster *cluster, int64_t down_us)
{
	sim_note(cluster->sim, "cluster goes down");
	cluster->up = false;
	cluster_tell(cluster, KAFKA_EVENT_ERROR);
	loop_timer_start(&cluster->start, down_us);
}

bool sim_cluster_is_up(const struct sim_cluster *cluster)
{
	return cluster->up;
}

void sim_cluster_calm(struct sim_cluster *cluster)
{
	cluster->calm = true;
}

void sim_cluster_break(struct sim_cluster *cluster, const struct process *process)
{
	struct kafka_event event = {.kind = KAFKA_EVENT_FATAL,
				    .failed = true,
				    .text = "the simulated client has failed"};

	list_for_each (&cluster->handles, at, next) {
		struct kafka_handle *handle = list_entry(at, struct kafka_handle, link);

		if (handle->process != process || handle->closed || handle->broken ||
		    sim_below(cluster->sim, 3))
			continue;
		sim_note(cluster->sim, "cluster breaks a handle of %s", process_name(process));
		handle->broken = true;
		handle_event(handle, &event);
	}
}

/* What it has sent is on its way, or not. */
void sim_cluster_forget(struct sim_cluster *cluster, const struct process *process)
{
	list_for_each (&cluster->ops, at, next) {
		struct op *op = list_entry(at, struct op, link);

		if (op->handle->process != process)
			continue;
		op->reported = true;
		if (sim_below(cluster->sim, 2))
			op_free(op);
	}
}

void sim_cluster_topic_make(struct sim_cluster *cluster, const char *name, int32_t partitions)
{
	struct topic *topic = mem_zalloc(sizeof(*topic));

	assert(partitions <= CLUSTER_PARTITIONS_MAX && !topic_find(cluster, name));
	snprintf(topic->name, sizeof(topic->name), "%s", name);
	topic->partition_count = partitions;
	topic->next = cluster->topics;
	cluster->topics = topic;
	sim_note(cluster->sim, "cluster makes topic %s", name);
	for (struct group *group = cluster->groups; group; group = group->next)
		if (strcmp(group->topic, name) == 0)
			group_rebalance_soon(group);
}

int32_t sim_cluster_partitions(const struct sim_cluster *cluster, const char *name)
{
	const struct topic *topic = topic_find(cluster, name);

	return topic ? topic->partition_count : 0;
}

int64_t sim_cluster_end(const struct sim_cluster *cluster, const char *name, int32_t partition)
{
	return topic_find(cluster, name)->ends[partition];
}

const struct kafka_record *sim_cluster_record(const struct sim_cluster *cluster, const char *name,
					      int32_t partition, int64_t offset)
{
	return &topic_find(cluster, name)->logs[partition][offset];
}

int64_t sim_cluster_committed(const struct sim_cluster *cluster, const char *topic,
			      int32_t partition)
{
	for (const struct group *group = cluster->groups; group; group = group->next)
		if (strcmp(group->topic, topic) == 0)
			return group->committed[partition];
	return 0;
}

const struct sim_cluster_stats *sim_cluster_stats(const struct sim_cluster *cluster)
{
	return &cluster->stats;
}

struct sim_cluster_client *sim_cluster_client_new(struct sim_cluster *cluster,
						  struct process *process)
{
	struct sim_cluster_client *client = mem_zalloc(sizeof(*client));

	*client = (struct sim_cluster_client){cluster->clients, cluster, process};
	cluster->clients = client;
	return client;
}

struct sim_cluster *sim_cluster_new(struct sim *sim, const struct sim_cluster_settings *settings)
{
	struct sim_cluster *cluster = mem_zalloc(sizeof(*cluster));

	cluster->sim = sim;
	cluster->settings = *settings;
	cluster->up = true;
	arena_init(&cluster->arena);
	list_init(&cluster->handles);
	list_init(&cluster->ops);
	loop_timer_init(&cluster->start, sim_world(sim), cluster_started);
	loop_timer_init(&cluster->beat, sim_world(sim), cluster_beat);
	loop_timer_start(&cluster->beat, BEAT_US);
	return cluster;
}

static void topic_free(struct topic *topic)
{
	for (int32_t i = 0; i < topic->partition_count; i++)
		free(topic->logs[i]);
	free(topic);
}

void sim_cluster_free(struct sim_cluster **cluster)
{
	struct sim_cluster *c = *cluster;
	struct topic *topic;
	struct group *group;
	struct sim_cluster_client *client;

	if (!c)
		return;
	loop_timer_stop(&c->start);
	loop_timer_stop(&c->beat);
	while (!list_is_empty(&c->ops))
		op_free(list_first(&c->ops, struct op, link));
	while (!list_is_empty(&c->handles))
		handle_free(list_first(&c->handles, struct kafka_handle, link));
	while ((topic = c->topics)) {
		c->topics = topic->next;
		topic_free(topic);
	}
	while ((group = c->groups)) {
		c->groups = group->next;
		loop_timer_stop(&group->rebalance);
		free(group);
	}
	while ((client = c->clients)) {
		c->clients = client->next;
		free(client);
	}
	arena_done(&c->arena);
	free(c);
	*cluster = NULL;
}
