/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load over Kafka, and the reference: what a careful program does with librdkafka alone, a record in, a record out. One
 * topic a channel; records of one order have one key. The reference's producer is idempotent, as the engine's, and an offset is
 * stored only when what was made of its record is confirmed.
 */
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/load.h"

#define POLL_MOST 4096

struct kafka_end {
	struct broker_load load;
	rd_kafka_t *producer, *consumer;
};

static void conf_set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char text[256];

	if (rd_kafka_conf_set(conf, name, value, text, sizeof(text)) != RD_KAFKA_CONF_OK)
		bench_die("%s", text);
}

static rd_kafka_t *client_new(rd_kafka_type_t type, const char *group, const char *const settings[][2],
			      void (*delivered)(rd_kafka_t *, const rd_kafka_message_t *, void *), void *opaque)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_t *rk;
	char text[256];

	conf_set(conf, "bootstrap.servers", bench_env("KAFKA_BOOTSTRAP"));
	if (type == RD_KAFKA_PRODUCER)
		conf_set(conf, "linger.ms", "1");
	else
		conf_set(conf, "group.id", group);
	for (; (*settings)[0]; settings++)
		conf_set(conf, (*settings)[0], (*settings)[1]);
	if (delivered)
		rd_kafka_conf_set_dr_msg_cb(conf, delivered);
	rd_kafka_conf_set_opaque(conf, opaque);
	rk = rd_kafka_new(type, conf, text, sizeof(text));
	if (!rk)
		bench_die("%s", text);
	return rk;
}

static void produce(rd_kafka_t *producer, const char *topic, struct str key, struct str body, rd_kafka_headers_t *headers,
		    void *opaque)
{
	rd_kafka_resp_err_t code;

	while ((code = rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
					 RD_KAFKA_V_KEY((void *)(uintptr_t)key.ptr, key.len),
					 RD_KAFKA_V_VALUE((void *)(uintptr_t)body.ptr, body.len),
					 RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END)) ==
	       RD_KAFKA_RESP_ERR__QUEUE_FULL)
		rd_kafka_poll(producer, 10);
	if (code)
		bench_die("producing: %s", rd_kafka_err2str(code));
}

static rd_kafka_headers_t *headers_new(const char *message_id)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(2);

	rd_kafka_header_add(headers, "sutra-outbox-key", -1, message_id, -1);
	rd_kafka_header_add(headers, "content-type", -1, "application/json", -1);
	return headers;
}

/* The consumer's queue is polled one message at a time: its batch calls may skip after a rebalance. */
static rd_kafka_message_t *poll_one(rd_kafka_t *consumer, int timeout_ms)
{
	rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, timeout_ms);

	if (message && message->err) {
		if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
			fprintf(stderr, "brokers: %s\n", rd_kafka_message_errstr(message));
		rd_kafka_message_destroy(message);
		return NULL;
	}
	return message;
}

/* --- the load --- */

static void on_load_delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	(void)rk;
	(void)opaque;
	if (message->err)
		bench_die("an order was not taken: %s", rd_kafka_err2str(message->err));
}

static void kafka_send(struct broker_load *load, enum load_step step, const char *key, const char *message_id,
		       const char *body)
{
	struct kafka_end *end = container_of(load, struct kafka_end, load);
	char topic[LOAD_NAME_SIZE];

	load_name(load_channels_in[step], topic);
	produce(end->producer, topic, str_of(key), str_of(body), headers_new(message_id), NULL);
	rd_kafka_poll(end->producer, 0);
}

/* Reads both topics from where they end now, without a group. */
static void assign_ends(rd_kafka_t *consumer)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);
	int partitions = (int)bench_number(bench_env("SUTRA_BENCH_PARTITIONS"));

	for (enum load_step step = 0; step < LOAD_STEPS; step++) {
		char topic[LOAD_NAME_SIZE];

		load_name(load_channels_out[step], topic);
		for (int i = 0; i < partitions; i++) {
			int64_t low = 0, high = 0;

			/* A topic that was made a moment ago may not be known yet. */
			for (int tries = 0; rd_kafka_query_watermark_offsets(consumer, topic, i, &low, &high, 1000); tries++)
				if (tries == 10)
					bench_die("no offsets of %s", topic);
			rd_kafka_topic_partition_list_add(list, topic, i)->offset = high;
		}
	}
	if (rd_kafka_assign(consumer, list))
		bench_die("assign");
	rd_kafka_topic_partition_list_destroy(list);
}

static enum load_step step_of(const rd_kafka_message_t *message)
{
	return strncmp(rd_kafka_topic_name(message->rkt), load_channels_out[LOAD_SPAWN], 5) == 0 ? LOAD_SPAWN : LOAD_RELAY;
}

int load_kafka(int64_t seconds, double rate)
{
	static const char *const producer[][2] = {{"acks", "all"}, {NULL, NULL}};
	static const char *const consumer[][2] = {
		{"enable.auto.commit", "false"}, {"fetch.wait.max.ms", "100"}, {NULL, NULL}};
	struct kafka_end end = {.load = {.send = kafka_send, .rate = rate}};
	char group[LOAD_NAME_SIZE];

	load_name("bench-load", group);

	end.load.window = (uint64_t)bench_number(bench_env("SUTRA_BENCH_WINDOW"));
	end.producer = client_new(RD_KAFKA_PRODUCER, NULL, producer, on_load_delivered, NULL);
	end.consumer = client_new(RD_KAFKA_CONSUMER, group, consumer, NULL, NULL);
	assign_ends(end.consumer);
	load_begin(&end.load, seconds);
	while (!load_is_done(&end.load)) {
		rd_kafka_message_t *message = poll_one(end.consumer, load_due(&end.load));

		for (int i = 0; message && i < POLL_MOST; i++) {
			load_arrived(&end.load, step_of(message), str_make(message->payload, message->len));
			rd_kafka_message_destroy(message);
			message = i + 1 < POLL_MOST ? poll_one(end.consumer, 0) : NULL;
		}
		rd_kafka_poll(end.producer, 0);
	}
	load_print(&end.load);
	load_done(&end.load);
	rd_kafka_flush(end.producer, 5000);
	rd_kafka_consumer_close(end.consumer);
	rd_kafka_destroy(end.consumer);
	rd_kafka_destroy(end.producer);
	return 0;
}

/* --- the reference --- */

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

/* Records of one partition go to one partition (same key, same count), whose confirms come in order: the offset may be stored. */
static void on_relay_delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	struct kafka_end *end = opaque;
	rd_kafka_message_t *from = message->_private;
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

	(void)rk;
	if (message->err)
		bench_die("not taken: %s", rd_kafka_err2str(message->err));
	rd_kafka_topic_partition_list_add(list, rd_kafka_topic_name(from->rkt), from->partition)->offset = from->offset + 1;
	rd_kafka_offsets_store(end->consumer, list);
	rd_kafka_topic_partition_list_destroy(list);
	rd_kafka_message_destroy(from);
}

/* A record of the same size as the engine's, which has the order and its total in it. */
static void relay_one(struct kafka_end *end, rd_kafka_message_t *message)
{
	bool is_order = strncmp(rd_kafka_topic_name(message->rkt), load_channels_in[LOAD_SPAWN], 6) == 0;
	struct str body = str_make(message->payload, message->len);
	uint64_t n = (uint64_t)bench_body_number(body, "\"orderId\":\"order-");
	char topic[LOAD_NAME_SIZE], id[40], out[128];

	load_name(load_channels_out[is_order ? LOAD_SPAWN : LOAD_RELAY], topic);
	snprintf(id, sizeof(id), "00000000-0000-7000-8000-%012llu", (unsigned long long)(n * 2 + !is_order));
	if (is_order)
		snprintf(out, sizeof(out), "{\"item\":\"green tea, first flush\",\"orderId\":\"order-%09llu\",\"quantity\":%u}",
			 (unsigned long long)n, order_quantity(n));
	else
		snprintf(out, sizeof(out),
			 "{\"orderId\":\"order-%09llu\",\"paid\":%u,\"status\":\"CONFIRMED\",\"total\":%u}",
			 (unsigned long long)n, order_total(n), order_total(n));
	produce(end->producer, topic, str_make(message->key, message->key_len), str_of(out), headers_new(id), message);
}

int relay_kafka(void)
{
	static const char *const producer[][2] = {{"enable.idempotence", "true"}, {"partitioner", "murmur2_random"}, {NULL, NULL}};
	static const char *const consumer[][2] = {{"auto.offset.reset", "earliest"},
						  {"enable.auto.offset.store", "false"},
						  {"auto.commit.interval.ms", "500"},
						  {"partition.assignment.strategy", "cooperative-sticky"},
						  {NULL, NULL}};
	rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(2);
	struct kafka_end end = {0};
	struct sigaction action = {.sa_handler = on_signal};
	char group[LOAD_NAME_SIZE];

	load_name("bench-relay", group);
	sigaction(SIGTERM, &action, NULL);
	end.producer = client_new(RD_KAFKA_PRODUCER, NULL, producer, on_relay_delivered, &end);
	end.consumer = client_new(RD_KAFKA_CONSUMER, group, consumer, NULL, NULL);
	for (enum load_step step = 0; step < LOAD_STEPS; step++) {
		char topic[LOAD_NAME_SIZE];

		load_name(load_channels_in[step], topic);
		rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
	}
	rd_kafka_subscribe(end.consumer, topics);
	rd_kafka_topic_partition_list_destroy(topics);
	while (!ended) {
		rd_kafka_message_t *message = poll_one(end.consumer, 5);

		for (int i = 0; message && i < POLL_MOST; i++) {
			relay_one(&end, message);
			message = poll_one(end.consumer, 0);
		}
		if (message)
			relay_one(&end, message);
		rd_kafka_poll(end.producer, 0);
	}
	rd_kafka_flush(end.producer, 5000);
	rd_kafka_consumer_close(end.consumer);
	rd_kafka_destroy(end.consumer);
	rd_kafka_destroy(end.producer);
	return 0;
}
