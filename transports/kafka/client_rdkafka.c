/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Kafka client seam over librdkafka (2.0.2 and later; nothing newer is called).
 *
 * One descriptor a handle: the library writes to an eventfd when its queue goes from empty to non-empty, libuv watches it, and
 * whoever is told polls until there is nothing left. A consumer has one queue for everything: records, rebalances, answers to
 * commits, statistics, errors and, with log.queue, log lines. So all of our callbacks run inside poll, on the handle's loop,
 * and no code of ours ever runs on a thread of the library.
 *
 * poll() turns what the library hands out by callback and by return value into one stream of events, in the order in which
 * they came: a callback appends to `pending`, and a record that came out of the same call is held until those are gone.
 *
 * A rebalance is not answered from its callback. The library waits, with the membership kept alive, until assign() or
 * unassign() is called: the time between is where a consumer finishes what it has in work and commits (G2).
 *
 * rd_kafka_consumer_poll and not the batch calls: before 2.1.0 those may skip records when a pause, resume or rebalance
 * falls between.
 */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"
#include "transports/kafka/client.h"
#include "transports/kafka/settings.h"

/* Closing looks at its queue this often. */
#define CLOSE_SLICE_MS 20

/* The descriptor with its watcher; outlives the handle until libuv has let go of it. */
struct wake {
	uv_poll_t poll;
	int fd;
	struct kafka_handle *handle; /* NULL: closed */
};

/* An event made by a callback. */
struct pending {
	struct list link;
	struct kafka_event event;
	rd_kafka_topic_partition_list_t *list; /* owned; what event.partitions is made of */
	struct kafka_partition *partitions;
};

struct kafka_handle {
	rd_kafka_t *rk;
	rd_kafka_queue_t *queue;
	struct wake *wake;
	void (*ready)(void *user);
	void *user;
	bool is_consumer;
	bool closing;

	struct list pending;
	rd_kafka_message_t *held; /* came behind what is pending */
	/* What the last event borrowed from. */
	struct pending *shown;
	rd_kafka_message_t *shown_message;
	struct str *header_names, *header_values;
	size_t header_cap;

	/* A rebalance that is not answered yet. */
	rd_kafka_topic_partition_list_t *asked;
	bool asked_is_assign;
};

static const struct log_about about_kafka = {.stage = "delivery"};

/* --- what an error of the library means: the one table --- */

static bool is_unknown_topic(rd_kafka_resp_err_t code)
{
	switch (code) {
	case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
	case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION: /* a name that no topic can have */
	case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
	case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
		return true;
	default:
		return false;
	}
}

/* The record will not be taken however often it is sent. */
static bool is_never(rd_kafka_resp_err_t code)
{
	switch (code) {
	case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
	case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
	case RD_KAFKA_RESP_ERR_INVALID_RECORD:
	case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
	case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
	case RD_KAFKA_RESP_ERR__INVALID_ARG:
		return true;
	default:
		return false;
	}
}

/* --- waking --- */

static void wake_write(struct wake *wake)
{
	uint64_t one = 1;

	/* The counter being full is the only failure, and then it is readable anyway. */
	if (write(wake->fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

static void wake_fired(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
	struct wake *wake = poll->data;
	uint64_t count;

	/* Emptied before the queue is: what comes in between wakes us once more for nothing. */
	if (read(wake->fd, &count, sizeof(count)) < 0)
		assert(errno == EAGAIN);
	if (wake->handle)
		wake->handle->ready(wake->handle->user);
}

static struct wake *wake_new(struct kafka_handle *handle, struct loop *loop)
{
	struct wake *wake = mem_zalloc(sizeof(*wake));
	uv_loop_t *uv = loop_uv(loop);

	assert(uv);
	wake->handle = handle;
	wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	/* They fail only for want of descriptors, and then no broker can be reached either. */
	if (wake->fd < 0 || uv_poll_init(uv, &wake->poll, wake->fd) != 0)
		abort();
	wake->poll.data = wake;
	uv_poll_start(&wake->poll, UV_READABLE, wake_fired);
	return wake;
}

static void wake_closed(uv_handle_t *poll)
{
	struct wake *wake = poll->data;

	close(wake->fd);
	free(wake);
}

static void wake_free(struct wake *wake)
{
	wake->handle = NULL;
	uv_close((uv_handle_t *)&wake->poll, wake_closed);
}

/* --- events --- */

static struct pending *pending_add(struct kafka_handle *handle, enum kafka_event_kind kind, const char *text)
{
	struct pending *pending = mem_zalloc(sizeof(*pending));

	pending->event.kind = kind;
	pending->event.lag = -1;
	if (text)
		snprintf(pending->event.text, sizeof(pending->event.text), "%s", text);
	list_push(&handle->pending, &pending->link);
	return pending;
}

static void pending_free(struct pending *pending)
{
	if (!pending)
		return;
	if (pending->list)
		rd_kafka_topic_partition_list_destroy(pending->list);
	free(pending->partitions);
	free(pending);
}

static void pending_set_partitions(struct pending *pending, const rd_kafka_topic_partition_list_t *list)
{
	if (!list || !list->cnt)
		return;
	pending->list = rd_kafka_topic_partition_list_copy(list);
	pending->partitions = mem_array(NULL, (size_t)list->cnt, sizeof(*pending->partitions));
	for (int i = 0; i < list->cnt; i++) {
		const rd_kafka_topic_partition_t *element = &pending->list->elems[i];

		pending->partitions[i] =
			(struct kafka_partition){element->topic, element->partition, element->offset};
	}
	pending->event.partitions = pending->partitions;
	pending->event.partition_count = (size_t)list->cnt;
}

static rd_kafka_topic_partition_list_t *list_of(const struct kafka_partition *partitions, size_t count,
						bool with_offsets)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);

	for (size_t i = 0; i < count; i++) {
		rd_kafka_topic_partition_t *element =
			rd_kafka_topic_partition_list_add(list, partitions[i].topic, partitions[i].partition);

		element->offset = with_offsets ? partitions[i].offset : RD_KAFKA_OFFSET_INVALID;
	}
	return list;
}

/* --- callbacks, all from inside poll or close --- */

static void log_error_and_end(const char *what, rd_kafka_error_t *error)
{
	if (!error)
		return;
	log_warning(&about_kafka, "kafka: %s: %s", what, rd_kafka_error_string(error));
	rd_kafka_error_destroy(error);
}

static void asked_set(struct kafka_handle *handle, const rd_kafka_topic_partition_list_t *list, bool is_assign)
{
	if (handle->asked)
		rd_kafka_topic_partition_list_destroy(handle->asked);
	handle->asked = list ? rd_kafka_topic_partition_list_copy(list) : NULL;
	handle->asked_is_assign = is_assign;
}

/* Nobody above is interested any more. */
static void rebalance_answer(rd_kafka_t *rk, bool is_assign, const rd_kafka_topic_partition_list_t *list)
{
	if (is_assign)
		log_error_and_end("assign", rd_kafka_incremental_assign(rk, list));
	else
		log_error_and_end("unassign", rd_kafka_incremental_unassign(rk, list));
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *opaque)
{
	struct kafka_handle *handle = opaque;
	bool is_assign = code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
	enum kafka_event_kind kind = is_assign ? KAFKA_EVENT_ASSIGN : KAFKA_EVENT_REVOKE;

	if (!is_assign && code != RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) {
		/* The join failed; the library asks for the assignment to be cleared and begins again. */
		log_warning(&about_kafka, "kafka: %s: rebalance failed: %s", rd_kafka_name(rk),
			    rd_kafka_err2str(code));
		rd_kafka_assign(rk, NULL);
		return;
	}
	if (handle->closing) {
		rebalance_answer(rk, is_assign, list);
		return;
	}
	if (!is_assign && rd_kafka_assignment_lost(rk))
		kind = KAFKA_EVENT_LOST;
	asked_set(handle, list, is_assign);
	pending_set_partitions(pending_add(handle, kind, NULL), list);
}

static void on_commit(rd_kafka_t *rk UNUSED, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list,
		      void *opaque)
{
	struct pending *pending;

	for (int i = 0; list && i < list->cnt && !code; i++)
		code = list->elems[i].err;
	pending = pending_add(opaque, KAFKA_EVENT_COMMITTED, code ? rd_kafka_err2str(code) : NULL);
	pending->event.failed = code != RD_KAFKA_RESP_ERR_NO_ERROR;
	pending_set_partitions(pending, list);
}

static void on_delivery(rd_kafka_t *rk UNUSED, const rd_kafka_message_t *message, void *opaque)
{
	struct pending *pending = pending_add(opaque, KAFKA_EVENT_DELIVERED,
					      message->err ? rd_kafka_err2str(message->err) : NULL);

	pending->event.opaque = message->_private;
	pending->event.failed = message->err != RD_KAFKA_RESP_ERR_NO_ERROR;
	pending->event.unknown_topic = is_unknown_topic(message->err);
	pending->event.too_large = is_never(message->err);
}

static void add_error(struct kafka_handle *handle, rd_kafka_resp_err_t code, const char *reason)
{
	char text[200];
	struct pending *pending;

	if (code == RD_KAFKA_RESP_ERR__FATAL) {
		code = rd_kafka_fatal_error(handle->rk, text, sizeof(text));
		pending = pending_add(handle, KAFKA_EVENT_FATAL, text);
	} else if (is_unknown_topic(code)) {
		pending = pending_add(handle, KAFKA_EVENT_MISSING, reason);
		pending->event.unknown_topic = true;
	} else {
		pending = pending_add(handle, KAFKA_EVENT_ERROR, reason);
	}
	pending->event.failed = true;
}

static void on_error(rd_kafka_t *rk UNUSED, int code, const char *reason, void *opaque)
{
	/* One broker of several, or one address of one: the library goes on with the others and logs it itself. */
	if (code == RD_KAFKA_RESP_ERR__TRANSPORT || code == RD_KAFKA_RESP_ERR__RESOLVE)
		return;
	add_error(opaque, code, reason);
}

static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
	/* Properties of one kind of handle are given to the other too; that they have no effect there is known. */
	if (strcmp(facility, "CONFWARN") == 0)
		return;
	/*
	 * Brokers that are older than any we support, and the mock cluster, do not know the flag of a request by which a client
	 * says that no topic is to be created. Nothing is created by us, so this is for who looks for it.
	 */
	if (strcmp(facility, "AUTOCREATE") == 0)
		level = 7;
	if (level <= 4) /* of syslog: LOG_WARNING */
		log_warning(&about_kafka, "kafka: %s: %s: %s", rd_kafka_name(rk), facility, text);
	else if (level <= 6)
		log_info(&about_kafka, "kafka: %s: %s: %s", rd_kafka_name(rk), facility, text);
	else
		log_debug(&about_kafka, "kafka: %s: %s: %s", rd_kafka_name(rk), facility, text);
}

/* --- statistics: is a broker up, and how far are we behind --- */

static bool stats_is_up(const msgpack_object *root)
{
	const msgpack_object *brokers = value_get(root, STR("brokers"));

	if (!brokers || brokers->type != MSGPACK_OBJECT_MAP)
		return false;
	for (uint32_t i = 0; i < brokers->via.map.size; i++)
		if (str_equal(value_as_str(value_get(&brokers->via.map.ptr[i].val, STR("state"))), STR("UP")))
			return true;
	return false;
}

static int64_t partition_lag(const msgpack_object *partition)
{
	const msgpack_object *lag = value_get(partition, STR("consumer_lag"));
	int64_t value;

	return lag && value_as_int(lag, &value) && value >= 0 ? value : -1;
}

static int64_t stats_lag(const msgpack_object *root)
{
	const msgpack_object *topics = value_get(root, STR("topics"));
	int64_t lag = -1;

	for (uint32_t i = 0; topics && topics->type == MSGPACK_OBJECT_MAP && i < topics->via.map.size; i++) {
		const msgpack_object *partitions = value_get(&topics->via.map.ptr[i].val, STR("partitions"));

		for (uint32_t k = 0;
		     partitions && partitions->type == MSGPACK_OBJECT_MAP && k < partitions->via.map.size; k++) {
			int64_t one = partition_lag(&partitions->via.map.ptr[k].val);

			if (one >= 0)
				lag = lag < 0 ? one : lag + one;
		}
	}
	return lag;
}

static int on_stats(rd_kafka_t *rk UNUSED, char *json, size_t len, void *opaque)
{
	struct kafka_handle *handle = opaque;
	struct value_limits limits = VALUE_LIMITS_OWN;
	struct arena arena;
	msgpack_object root;

	arena_init(&arena);
	if (value_json_read(&arena, str_make(json, len), false, &limits, &root, NULL) == RESULT_OK) {
		if (stats_is_up(&root))
			pending_add(handle, KAFKA_EVENT_UP, NULL);
		if (handle->is_consumer)
			pending_add(handle, KAFKA_EVENT_STATS, NULL)->event.lag = stats_lag(&root);
	}
	arena_done(&arena);
	return 0; /* the library frees the text */
}

/* --- opening and closing --- */

static enum result rk_new(const char *group, const char *const *names, const char *const *values, size_t count,
			  struct kafka_handle *handle, rd_kafka_t **out, struct error *err)
{
	rd_kafka_conf_t *conf;
	enum result result = kafka_settings_conf(group, names, values, count, &conf, err);
	char text[300];

	if (result != RESULT_OK)
		return result;
	rd_kafka_conf_set_opaque(conf, handle);
	rd_kafka_conf_set_log_cb(conf, on_log);
	rd_kafka_conf_set_error_cb(conf, on_error);
	rd_kafka_conf_set_stats_cb(conf, on_stats);
	if (group) {
		rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
		rd_kafka_conf_set_offset_commit_cb(conf, on_commit);
	} else {
		rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
	}
	*out = rd_kafka_new(group ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER, conf, text, sizeof(text));
	if (*out)
		return RESULT_OK;
	rd_kafka_conf_destroy(conf);
	return error_set(err, RESULT_REJECT, CODE_CONFIG_PROPERTY_INVALID, "Kafka properties: %s", text);
}

static enum result rdkafka_open(void *cluster UNUSED, struct loop *loop, const char *group, const char *const *names,
				const char *const *values, size_t count, void (*ready)(void *user), void *user,
				struct kafka_handle **out, struct error *err)
{
	static const uint64_t one = 1;
	struct kafka_handle *handle = mem_zalloc(sizeof(*handle));
	enum result result;

	list_init(&handle->pending);
	handle->ready = ready;
	handle->user = user;
	handle->is_consumer = group != NULL;
	result = rk_new(group, names, values, count, handle, &handle->rk, err);
	if (result != RESULT_OK) {
		free(handle);
		return result;
	}
	rd_kafka_set_log_queue(handle->rk, NULL); /* to the main queue */
	if (handle->is_consumer) {
		rd_kafka_poll_set_consumer(handle->rk);
		handle->queue = rd_kafka_queue_get_consumer(handle->rk);
	} else {
		handle->queue = rd_kafka_queue_get_main(handle->rk);
	}
	handle->wake = wake_new(handle, loop);
	rd_kafka_queue_io_event_enable(handle->queue, handle->wake->fd, &one, sizeof(one));
	wake_write(handle->wake); /* for what came before */
	*out = handle;
	return RESULT_OK;
}

static enum result rdkafka_check(void *cluster UNUSED, const char *const *names, const char *const *values, size_t count,
				 struct error *err)
{
	struct kafka_handle nobody = {0};
	rd_kafka_t *rk;
	enum result result = rk_new(NULL, names, values, count, &nobody, &rk, err);

	if (result != RESULT_OK)
		return result;
	rd_kafka_destroy(rk);
	result = rk_new("sutra.check", names, values, count, &nobody, &rk, err);
	if (result == RESULT_OK)
		rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	return result;
}

static void shown_end(struct kafka_handle *handle)
{
	pending_free(handle->shown);
	handle->shown = NULL;
	if (handle->shown_message)
		rd_kafka_message_destroy(handle->shown_message);
	handle->shown_message = NULL;
}

/* True when the group is left within the time. The queue is one of its own: the consumer's is forwarded to it. */
static bool consumer_leave(struct kafka_handle *handle, int64_t timeout_ms)
{
	rd_kafka_queue_t *queue = rd_kafka_queue_new(handle->rk);
	rd_kafka_error_t *error;
	bool closed;

	if (handle->asked)
		rebalance_answer(handle->rk, handle->asked_is_assign, handle->asked);
	error = rd_kafka_consumer_close_queue(handle->rk, queue);
	if (error) {
		log_error_and_end("close", error);
		rd_kafka_queue_destroy(queue);
		return false;
	}
	while (!(closed = rd_kafka_consumer_closed(handle->rk)) && timeout_ms > 0) {
		rd_kafka_message_t *message = rd_kafka_consume_queue(queue, CLOSE_SLICE_MS);

		/* What comes out without waiting costs no time, but there is no more of it than was prefetched. */
		if (message)
			rd_kafka_message_destroy(message);
		else
			timeout_ms -= CLOSE_SLICE_MS;
	}
	rd_kafka_queue_destroy(queue);
	return closed;
}

static void rdkafka_close(struct kafka_handle **out, int64_t timeout_ms)
{
	struct kafka_handle *handle = *out;
	bool left = true;

	if (!handle)
		return;
	*out = NULL;
	handle->closing = true;
	shown_end(handle);
	if (handle->held)
		rd_kafka_message_destroy(handle->held);
	rd_kafka_queue_io_event_enable(handle->queue, -1, NULL, 0);
	if (handle->is_consumer)
		left = consumer_leave(handle, timeout_ms);
	else
		rd_kafka_purge(handle->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
	if (!left)
		log_warning(&about_kafka, "kafka: %s: the group was not left in time; the broker will notice by itself",
			    rd_kafka_name(handle->rk));
	rd_kafka_queue_destroy(handle->queue);
	rd_kafka_destroy_flags(handle->rk, handle->is_consumer ? RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE : 0);
	asked_set(handle, NULL, false);
	list_for_each(&handle->pending, pos, tmp) {
		list_remove(pos);
		pending_free(list_entry(pos, struct pending, link));
	}
	wake_free(handle->wake);
	free(handle->header_names);
	free(handle->header_values);
	free(handle);
}

/* --- polling --- */

static void fill_headers(struct kafka_handle *handle, const rd_kafka_message_t *message, struct kafka_record *record)
{
	rd_kafka_headers_t *headers;
	size_t count;

	if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return;
	count = rd_kafka_header_cnt(headers);
	if (count > handle->header_cap) {
		handle->header_cap = count;
		handle->header_names = mem_array(handle->header_names, count, sizeof(*handle->header_names));
		handle->header_values = mem_array(handle->header_values, count, sizeof(*handle->header_values));
	}
	for (size_t i = 0; i < count; i++) {
		const char *name;
		const void *value;
		size_t size;

		if (rd_kafka_header_get_all(headers, i, &name, &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR)
			break;
		handle->header_names[i] = str_of(name);
		handle->header_values[i] = value ? str_make(value, size) : STR_NONE;
		record->header_count = i + 1;
	}
	record->header_names = handle->header_names;
	record->header_values = handle->header_values;
}

static void show_record(struct kafka_handle *handle, rd_kafka_message_t *message, struct kafka_event *event)
{
	rd_kafka_timestamp_type_t type;
	int64_t timestamp_ms = rd_kafka_message_timestamp(message, &type);

	handle->shown_message = message;
	event->kind = KAFKA_EVENT_RECORD;
	event->record = (struct kafka_record){
		.topic = str_of(rd_kafka_topic_name(message->rkt)),
		.partition = message->partition,
		.offset = message->offset,
		.timestamp_ms = type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? -1 : timestamp_ms,
		.key = message->key ? str_make(message->key, message->key_len) : STR_NONE,
		.value = message->payload ? str_make(message->payload, message->len) : STR_NONE,
	};
	fill_headers(handle, message, &event->record);
}

static bool show_pending(struct kafka_handle *handle, struct kafka_event *event)
{
	struct pending *pending = list_first(&handle->pending, struct pending, link);

	if (!pending)
		return false;
	list_remove(&pending->link);
	handle->shown = pending;
	*event = pending->event;
	return true;
}

/* The next record of the consumer's queue; errors that come in its place become events. */
static rd_kafka_message_t *next_message(struct kafka_handle *handle)
{
	rd_kafka_message_t *message;

	while ((message = rd_kafka_consumer_poll(handle->rk, 0)) && message->err) {
		if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
			add_error(handle, message->err, rd_kafka_message_errstr(message));
		rd_kafka_message_destroy(message);
	}
	return message;
}

static void rdkafka_poll(struct kafka_handle *handle, struct kafka_event *event)
{
	*event = (struct kafka_event){.kind = KAFKA_EVENT_NONE, .lag = -1};
	shown_end(handle);
	if (show_pending(handle, event))
		return;
	if (!handle->held && handle->is_consumer)
		handle->held = next_message(handle);
	else if (!handle->is_consumer)
		rd_kafka_poll(handle->rk, 0);
	if (show_pending(handle, event))
		return;
	if (handle->held)
		show_record(handle, handle->held, event);
	handle->held = NULL;
}

/* --- the consumer's calls --- */

static enum result rdkafka_subscribe(struct kafka_handle *handle, const char *topic, struct error *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_resp_err_t code;

	rd_kafka_topic_partition_list_add(list, topic, RD_KAFKA_PARTITION_UA);
	code = rd_kafka_subscribe(handle->rk, list);
	rd_kafka_topic_partition_list_destroy(list);
	if (code)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "subscribe to '%s': %s", topic, rd_kafka_err2str(code));
	return RESULT_OK;
}

static void rdkafka_assign(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	rd_kafka_topic_partition_list_t *list = list_of(partitions, count, false);

	rebalance_answer(handle->rk, true, list);
	rd_kafka_topic_partition_list_destroy(list);
	asked_set(handle, NULL, false);
}

static void rdkafka_unassign(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	rd_kafka_topic_partition_list_t *list = list_of(partitions, count, false);

	rebalance_answer(handle->rk, false, list);
	rd_kafka_topic_partition_list_destroy(list);
	asked_set(handle, NULL, false);
}

static void rdkafka_pause(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	rd_kafka_topic_partition_list_t *list = list_of(partitions, count, false);

	rd_kafka_pause_partitions(handle->rk, list);
	rd_kafka_topic_partition_list_destroy(list);
}

static void rdkafka_resume(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	rd_kafka_topic_partition_list_t *list = list_of(partitions, count, false);

	rd_kafka_resume_partitions(handle->rk, list);
	rd_kafka_topic_partition_list_destroy(list);
}

static void rdkafka_commit(struct kafka_handle *handle, const struct kafka_partition *partitions, size_t count)
{
	rd_kafka_topic_partition_list_t *list = list_of(partitions, count, true);
	rd_kafka_resp_err_t code = rd_kafka_commit(handle->rk, list, 1);

	if (code) {
		on_commit(handle->rk, code, list, handle);
		wake_write(handle->wake);
	}
	rd_kafka_topic_partition_list_destroy(list);
}

/* --- the producer's calls --- */

static rd_kafka_headers_t *headers_of(const struct kafka_record *record)
{
	rd_kafka_headers_t *headers;

	if (!record->header_count)
		return NULL;
	headers = rd_kafka_headers_new(record->header_count);
	for (size_t i = 0; i < record->header_count; i++) {
		struct str name = record->header_names[i], value = record->header_values[i];

		rd_kafka_header_add(headers, name.ptr, (ssize_t)name.len, value.ptr,
				    value.ptr ? (ssize_t)value.len : 0);
	}
	return headers;
}

static enum result rdkafka_produce(struct kafka_handle *handle, const struct kafka_record *record, void *opaque,
				   char *text, size_t text_size)
{
	rd_kafka_headers_t *headers = headers_of(record);
	char topic[512];
	rd_kafka_resp_err_t code;
	struct pending *pending;

	if (record->topic.len >= sizeof(topic)) {
		code = RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION;
	} else {
		snprintf(topic, sizeof(topic), "%.*s", STR_ARG(record->topic));
		code = rd_kafka_producev(handle->rk, RD_KAFKA_V_TOPIC(topic),
					 RD_KAFKA_V_PARTITION(RD_KAFKA_PARTITION_UA),
					 RD_KAFKA_V_KEY(record->key.ptr, record->key.len),
					 RD_KAFKA_V_VALUE((void *)record->value.ptr, record->value.len),
					 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(opaque),
					 RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
	}
	if (!code)
		return RESULT_OK;
	if (headers)
		rd_kafka_headers_destroy(headers); /* taken only on success */
	if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL)
		return RESULT_AGAIN;
	snprintf(text, text_size, "%s", rd_kafka_err2str(code));
	if (is_never(code))
		return RESULT_REJECT;
	/* An unknown topic, or a handle that has failed: the answer comes as it does for a record that was under way. */
	pending = pending_add(handle, KAFKA_EVENT_DELIVERED, text);
	pending->event.failed = true;
	pending->event.unknown_topic = is_unknown_topic(code);
	pending->event.opaque = opaque;
	wake_write(handle->wake);
	return RESULT_OK;
}

static void rdkafka_purge(struct kafka_handle *handle)
{
	rd_kafka_purge(handle->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
}

const struct kafka_client kafka_client_rdkafka = {
	.open = rdkafka_open,
	.subscribe = rdkafka_subscribe,
	.poll = rdkafka_poll,
	.assign = rdkafka_assign,
	.unassign = rdkafka_unassign,
	.pause = rdkafka_pause,
	.resume = rdkafka_resume,
	.commit = rdkafka_commit,
	.produce = rdkafka_produce,
	.purge = rdkafka_purge,
	.close = rdkafka_close,
	.version = rd_kafka_version_str,
	.check = rdkafka_check,
};

#ifdef __SANITIZE_THREAD__
/*
 * The library's own code is not instrumented, so the sanitizer sees its calls of free and of locks but not the reference counts
 * that order them. Only those calls are left out, and its locks, which in such a build are ours (tests/support/c11threads.c) and
 * nobody else's; what this file and everything above does is still looked at.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "called_from_lib:librdkafka.so\n"
	       "race:^mtx_lock$\n"
	       "race:^mtx_unlock$\n";
}
#endif
