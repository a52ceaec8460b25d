/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/transports/rig.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "tests/support/testing.h"

/* --- the loop --- */

static struct rig_loop *rig_of(struct loop *loop)
{
	return container_of(loop, struct rig_loop, base);
}

static void rig_post(struct loop *base, struct task *task)
{
	struct rig_loop *loop = rig_of(base);

	task->next = NULL;
	*loop->last = task;
	loop->last = &task->next;
}

static void rig_arm(struct loop *base UNUSED, int64_t due_us UNUSED)
{
}

static int64_t rig_now_us(struct loop *base)
{
	return rig_of(base)->now_us;
}

static int64_t rig_wall_us(struct loop *base)
{
	return INT64_C(1764534000000000) + rig_of(base)->now_us;
}

static uint64_t rig_random(struct loop *base)
{
	struct rig_loop *loop = rig_of(base);

	loop->seed = loop->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return loop->seed ^ (loop->seed >> 29);
}

static const struct loop_ops rig_ops = {rig_post, rig_arm, rig_now_us, rig_wall_us, rig_random};

void rig_loop_init(struct rig_loop *loop)
{
	*loop = (struct rig_loop){.now_us = 1000000, .seed = 1};
	loop_base_init(&loop->base, NULL, &rig_ops, "rig");
	loop->last = &loop->first;
}

void rig_loop_done(struct rig_loop *loop)
{
	loop_base_done(&loop->base);
}

void rig_loop_run(struct rig_loop *loop)
{
	while (loop->first) {
		struct task *task = loop->first;

		loop->first = task->next;
		if (!loop->first)
			loop->last = &loop->first;
		task->run(task);
	}
}

void rig_loop_advance(struct rig_loop *loop, int64_t us)
{
	int64_t end_us = loop->now_us + us;

	rig_loop_run(loop);
	while (loop_timers_next_us(&loop->base) <= end_us) {
		if (loop->now_us < loop_timers_next_us(&loop->base))
			loop->now_us = loop_timers_next_us(&loop->base);
		loop_timers_run(&loop->base, loop->now_us);
		rig_loop_run(loop);
	}
	loop->now_us = end_us;
}

/* --- the sink --- */

static struct rig_sink *sink_of(struct consumer_sink *base)
{
	return container_of(base, struct rig_sink, base);
}

static void sink_deliver(struct consumer_sink *base, struct message *message)
{
	struct rig_sink *sink = sink_of(base);

	ck_assert(!sink->stopped);
	ck_assert(sink->count < RIG_MESSAGES);
	sink->messages[sink->count++] = message;
	sink->delivered++;
}

static void sink_revoke(struct consumer_sink *base, void *lease)
{
	struct rig_sink *sink = sink_of(base);

	for (size_t i = sink->count; i-- > 0 && !sink->busy;)
		if (!lease || sink->messages[i]->lease == lease)
			rig_settle(sink, sink->messages[i], SETTLE_BACK);
}

static void sink_state(struct consumer_sink *base, enum consumer_state state, const char *detail)
{
	struct rig_sink *sink = sink_of(base);

	sink->state = state;
	snprintf(sink->detail, sizeof(sink->detail), "%s", detail ? detail : "");
}

static void sink_stopped(struct consumer_sink *base)
{
	struct rig_sink *sink = sink_of(base);

	ck_assert(!sink->stopped);
	ck_assert_uint_eq(sink->count, 0);
	sink->stopped = true;
}

void rig_sink_init(struct rig_sink *sink)
{
	memset(sink, 0, sizeof(*sink));
	sink->base = (struct consumer_sink){sink_deliver, sink_revoke, sink_state, sink_stopped};
}

struct message *rig_sink_find(struct rig_sink *sink, uint64_t token)
{
	for (size_t i = 0; i < sink->count; i++)
		if (sink->messages[i]->token == token)
			return sink->messages[i];
	return NULL;
}

void rig_settle(struct rig_sink *sink, struct message *message, enum settle how)
{
	size_t at = 0;

	while (at < sink->count && sink->messages[at] != message)
		at++;
	ck_assert(at < sink->count);
	memmove(&sink->messages[at], &sink->messages[at + 1],
		(sink->count - at - 1) * sizeof(sink->messages[0]));
	sink->count--;
	if (how == SETTLE_DONE && sink->on_done)
		sink->on_done(sink->user, message);
	sink->consumer->ops->settle(sink->consumer, message, how);
}

void rig_done(struct rig_sink *sink, uint64_t token)
{
	struct message *message = rig_sink_find(sink, token);

	ck_assert_msg(message, "no message %" PRIu64, token);
	rig_settle(sink, message, SETTLE_DONE);
}

void rig_done_all(struct rig_sink *sink)
{
	while (sink->count)
		rig_settle(sink, sink->messages[0], SETTLE_DONE);
}

/* --- the client --- */

struct kafka_handle {
	struct fake_handle fake;
	struct fake_cluster *cluster;
};

struct fake_event {
	struct fake_event *next;
	struct kafka_event event;
	struct kafka_partition partitions[32];
	struct str header_names[8], header_values[8];
	struct buf bytes;
};

void fake_init(struct fake_cluster *cluster)
{
	*cluster = (struct fake_cluster){.commit_answers = true};
}

static void fake_event_free(struct fake_event *event)
{
	if (event)
		buf_done(&event->bytes);
	free(event);
}

void fake_done(struct fake_cluster *cluster)
{
	ck_assert(!cluster->handle);
	buf_done(&cluster->calls);
	buf_done(&cluster->produced_text);
}

const char *fake_calls(struct fake_cluster *cluster)
{
	/* Twice as long as it looks: the text stays valid behind the reset. */
	buf_add_byte(&cluster->calls, 0);
	cluster->calls.len = 0;
	return cluster->calls.data;
}

static struct fake_event *push(struct fake_cluster *cluster, enum kafka_event_kind kind, const char *text)
{
	struct fake_event *event = mem_zalloc(sizeof(*event));
	struct fake_handle *handle = cluster->handle;

	ck_assert(handle);
	event->event.kind = kind;
	snprintf(event->event.text, sizeof(event->event.text), "%s", text ? text : "");
	*handle->last = event;
	handle->last = &event->next;
	return event;
}

/* Outside of the calls of the table, as the contract says. */
static void announce(struct fake_cluster *cluster)
{
	struct fake_handle *handle = cluster->handle;

	if (!handle->empty)
		return;
	handle->empty = false;
	handle->ready(handle->user);
}

void fake_event(struct fake_cluster *cluster, enum kafka_event_kind kind, const char *text)
{
	push(cluster, kind, text);
	announce(cluster);
}

void fake_record_full(struct fake_cluster *cluster, const struct kafka_record *record)
{
	struct fake_event *event = push(cluster, KAFKA_EVENT_RECORD, NULL);

	event->event.record = *record;
	announce(cluster);
}

void fake_record(struct fake_cluster *cluster, int32_t partition, int64_t offset)
{
	struct kafka_record record = {.topic = STR("orders"),
				      .partition = partition,
				      .offset = offset,
				      .timestamp_ms = 7,
				      .key = STR("k"),
				      .value = STR("v")};

	fake_record_full(cluster, &record);
}

void fake_partitions(struct fake_cluster *cluster, enum kafka_event_kind kind, unsigned partitions)
{
	struct fake_event *event = push(cluster, kind, NULL);
	size_t count = 0;

	for (int i = 0; i < 32; i++)
		if (partitions & (1u << i))
			event->partitions[count++] = (struct kafka_partition){"orders", i, -1};
	event->event.partitions = event->partitions;
	event->event.partition_count = count;
	announce(cluster);
}

void fake_committed(struct fake_cluster *cluster, int32_t partition, int64_t offset, bool failed)
{
	struct fake_event *event = push(cluster, KAFKA_EVENT_COMMITTED, failed ? "no" : "");

	event->partitions[0] = (struct kafka_partition){"orders", partition, offset};
	event->event.partitions = event->partitions;
	event->event.partition_count = 1;
	event->event.failed = failed;
	announce(cluster);
}

void fake_delivered(struct fake_cluster *cluster, size_t n, const struct kafka_event *how)
{
	struct fake_event *event = push(cluster, KAFKA_EVENT_DELIVERED, NULL);

	ck_assert(n < cluster->produced);
	event->event = *how;
	event->event.kind = KAFKA_EVENT_DELIVERED;
	event->event.opaque = cluster->opaque[n];
	announce(cluster);
}

static void woken(struct task *task)
{
	struct fake_handle *handle = container_of(task, struct fake_handle, wake);

	handle->ready(handle->user);
}

/* From inside a call of the table: ready comes later. */
static void announce_later(struct fake_handle *handle)
{
	if (!handle->empty)
		return;
	handle->empty = false;
	handle->wake.run = woken;
	loop_post(handle->loop, &handle->wake);
}

static enum result fake_open(void *user, struct loop *loop, const char *group, const char *const *names UNUSED,
			     const char *const *values UNUSED, size_t count UNUSED, void (*ready)(void *user), void *arg,
			     struct kafka_handle **out, struct error *err)
{
	struct fake_cluster *cluster = user;
	struct kafka_handle *handle;

	if (cluster->open_fails)
		return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID, "it will not open");
	ck_assert(!cluster->handle);
	handle = mem_zalloc(sizeof(*handle));
	handle->cluster = cluster;
	handle->fake.last = &handle->fake.first;
	handle->fake.ready = ready;
	handle->fake.user = arg;
	handle->fake.loop = loop;
	handle->fake.empty = true;
	cluster->handle = &handle->fake;
	cluster->opened++;
	buf_printf(&cluster->calls, "open %s; ", group ? group : "-");
	*out = handle;
	return RESULT_OK;
}

static enum result fake_subscribe(struct kafka_handle *handle, const char *topic, struct error *err UNUSED)
{
	buf_printf(&handle->cluster->calls, "subscribe %s; ", topic);
	return RESULT_OK;
}

static void fake_poll(struct kafka_handle *handle, struct kafka_event *event)
{
	struct fake_handle *fake = &handle->fake;

	fake_event_free(fake->shown);
	fake->shown = fake->first;
	if (!fake->shown) {
		*event = (struct kafka_event){.kind = KAFKA_EVENT_NONE};
		fake->empty = true;
		return;
	}
	fake->first = fake->shown->next;
	if (!fake->first)
		fake->last = &fake->first;
	*event = fake->shown->event;
}

static void note(struct kafka_handle *handle, const char *what, const struct kafka_partition *partitions, size_t count,
		 bool offsets)
{
	struct buf *calls = &handle->cluster->calls;

	buf_add_text(calls, what);
	for (size_t i = 0; i < count; i++) {
		buf_printf(calls, " %" PRId32, partitions[i].partition);
		if (offsets)
			buf_printf(calls, "@%" PRId64, partitions[i].offset);
	}
	buf_add_text(calls, "; ");
}

static void fake_assign(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	note(handle, "assign", partitions, count, false);
}

static void fake_unassign(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	note(handle, "unassign", partitions, count, false);
}

static void fake_pause(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	note(handle, "pause", partitions, count, false);
}

static void fake_resume(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	note(handle, "resume", partitions, count, false);
}

static void fake_commit(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	struct fake_cluster *cluster = handle->cluster;

	note(handle, "commit", partitions, count, true);
	for (size_t i = 0; i < count; i++) {
		if (cluster->on_commit)
			cluster->on_commit(cluster->user, &partitions[i]);
		if (!cluster->commit_answers)
			continue;
		struct fake_event *event = push(cluster, KAFKA_EVENT_COMMITTED, NULL);

		event->partitions[0] = partitions[i];
		event->event.partitions = event->partitions;
		event->event.partition_count = 1;
		announce_later(cluster->handle);
	}
}

static enum result fake_produce(struct kafka_handle *handle, const struct kafka_record *record, void *opaque, char *text,
				size_t text_size)
{
	struct fake_cluster *cluster = handle->cluster;

	if (cluster->queue_full)
		return RESULT_AGAIN;
	if (cluster->reject) {
		snprintf(text, text_size, "never");
		return RESULT_REJECT;
	}
	ck_assert(cluster->produced < ARRAY_LEN(cluster->opaque));
	cluster->opaque[cluster->produced++] = opaque;
	buf_printf(&cluster->produced_text, "%.*s key=%s%.*s value=%s%.*s", STR_ARG(record->topic),
		   record->key.ptr ? "" : "null", STR_ARG(record->key), record->value.ptr ? "" : "null",
		   STR_ARG(record->value));
	for (size_t i = 0; i < record->header_count; i++)
		buf_printf(&cluster->produced_text, " %.*s=%s%.*s", STR_ARG(record->header_names[i]),
			   record->header_values[i].ptr ? "" : "null", STR_ARG(record->header_values[i]));
	buf_add_byte(&cluster->produced_text, '\n');
	return RESULT_OK;
}

static void fake_purge(struct kafka_handle *handle)
{
	buf_add_text(&handle->cluster->calls, "purge; ");
}

static void fake_close(struct kafka_handle **out, int64_t timeout_ms UNUSED)
{
	struct kafka_handle *handle = *out;

	*out = NULL;
	buf_add_text(&handle->cluster->calls, "close; ");
	handle->cluster->handle = NULL;
	fake_event_free(handle->fake.shown);
	while (handle->fake.first) {
		struct fake_event *event = handle->fake.first;

		handle->fake.first = event->next;
		fake_event_free(event);
	}
	free(handle);
}

static const char *fake_version(void)
{
	return "fake";
}

const struct kafka_client fake_client = {
	.open = fake_open,
	.subscribe = fake_subscribe,
	.poll = fake_poll,
	.assign = fake_assign,
	.unassign = fake_unassign,
	.pause = fake_pause,
	.resume = fake_resume,
	.commit = fake_commit,
	.produce = fake_produce,
	.purge = fake_purge,
	.close = fake_close,
	.version = fake_version,
};
