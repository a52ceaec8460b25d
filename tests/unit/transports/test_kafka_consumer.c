/* SPDX-License-Identifier: Apache-2.0 */
/* The Kafka consumer over a client whose events are written here: windows, rebalances in every state, epochs, ends. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "tests/support/testing.h"
#include "tests/unit/transports/rig.h"
#include "transports/kafka/kafka.h"

struct bench {
	struct rig_loop loop;
	struct rig_sink sink;
	struct fake_cluster cluster;
	struct transport_connection connection;
	struct consumer *consumer;
};

static void no_log(void *arg UNUSED, struct str line UNUSED)
{
}

/* Check forks, so each test has its own. */
static struct bench *bench_new(uint32_t max_in_flight)
{
	struct bench *b = mem_zalloc(sizeof(*b));
	struct consumer_settings settings = {.loop = &b->loop.base,
					     .tenant = "acme",
					     .channel = "orders",
					     .bind = "orders",
					     .group = "g",
					     .max_in_flight = max_in_flight};

	log_redirect(no_log, NULL);
	rig_loop_init(&b->loop);
	rig_sink_init(&b->sink);
	fake_init(&b->cluster);
	b->connection = (struct transport_connection){.transport = &transport_kafka,
						      .name = "kafka",
						      .kafka = &fake_client,
						      .kafka_cluster = &b->cluster};
	b->consumer = transport_kafka.consumer_new(&b->connection, &settings, &b->sink.base);
	b->sink.consumer = b->consumer;
	return b;
}

static struct bench *bench_started(uint32_t max_in_flight, unsigned partitions)
{
	struct bench *b = bench_new(max_in_flight);

	b->consumer->ops->start(b->consumer);
	rig_loop_run(&b->loop);
	ck_assert_str_eq(fake_calls(&b->cluster), "open g; subscribe orders; ");
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, partitions);
	rig_loop_run(&b->loop);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	fake_calls(&b->cluster);
	return b;
}

static void run(struct bench *b)
{
	rig_loop_run(&b->loop);
}

static void advance_ms(struct bench *b, int64_t ms)
{
	rig_loop_advance(&b->loop, ms * US_PER_MS);
}

static void records(struct bench *b, int32_t partition, int64_t from, int64_t to)
{
	for (int64_t i = from; i < to; i++)
		fake_record(&b->cluster, partition, i);
	run(b);
}

static void bench_end(struct bench *b)
{
	if (!b->sink.stopped) {
		b->sink.busy = false;
		b->consumer->ops->stop(b->consumer);
		advance_ms(b, 20000);
	}
	ck_assert(b->sink.stopped);
	ck_assert_int_eq(b->sink.state, CONSUMER_STOPPED);
	b->consumer->ops->free(b->consumer);
	fake_done(&b->cluster);
	rig_loop_done(&b->loop);
	free(b);
}

/* --- records and commits --- */

START_TEST(test_commits_the_watermark)
{
	struct bench *b = bench_started(100, 1);

	records(b, 0, 5, 10);
	ck_assert_uint_eq(b->sink.count, 5);
	rig_done(&b->sink, 6);
	rig_done(&b->sink, 5);
	rig_done(&b->sink, 9);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	advance_ms(b, 1000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@7; ");
	/* Nothing moved: nothing is sent. */
	advance_ms(b, 5000);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	rig_done(&b->sink, 8);
	rig_done(&b->sink, 7);
	/* Idle: soon. */
	advance_ms(b, 100);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@10; ");
	bench_end(b);
}
END_TEST

START_TEST(test_commits_after_many)
{
	struct bench *b = bench_started(3000, 1);

	records(b, 0, 0, 2000);
	for (uint64_t i = 0; i < 1000; i++)
		rig_done(&b->sink, i);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@1000; ");
	rig_done_all(&b->sink);
	bench_end(b);
}
END_TEST

START_TEST(test_given_back_stays_below)
{
	struct bench *b = bench_started(100, 1);

	records(b, 0, 0, 3);
	rig_settle(&b->sink, rig_sink_find(&b->sink, 0), SETTLE_BACK);
	rig_done(&b->sink, 1);
	rig_done(&b->sink, 2);
	advance_ms(b, 2000);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	bench_end(b);
}
END_TEST

START_TEST(test_failed_commit_is_sent_again)
{
	struct bench *b = bench_started(100, 1);

	b->cluster.commit_answers = false;
	records(b, 0, 0, 3);
	rig_done_all(&b->sink);
	advance_ms(b, 1000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@3; ");
	fake_committed(&b->cluster, 0, 3, true);
	advance_ms(b, 1000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@3; ");
	fake_committed(&b->cluster, 0, 3, false);
	advance_ms(b, 5000);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	bench_end(b);
}
END_TEST

START_TEST(test_message)
{
	struct bench *b = bench_started(100, 8);
	const struct str names[] = {STR("a"), STR("bin"), STR("none"), STR("Content-Type"), STR("reply-topic"),
				    STR("correlation-id")};
	const struct str values[] = {STR("x"), STR("\xff"), STR_NONE, STR("application/json"), STR("answers"),
				     STR("c-1")};
	struct kafka_record record = {STR("orders"), 3,	    17, 1764534000000, STR("key"), STR("body"),
				      names,	     values, 6};
	struct message *m;

	fake_record_full(&b->cluster, &record);
	record.key = STR("");
	record.value = STR_NONE;
	record.offset = 18;
	record.header_count = 4;
	fake_record_full(&b->cluster, &record);
	record.key = STR_NONE;
	record.offset = 19;
	record.timestamp_ms = -1;
	fake_record_full(&b->cluster, &record);
	run(b);
	m = rig_sink_find(&b->sink, 17);
	ck_assert_str_slice(m->identity, STR("kafka:orders/3/17/1764534000000"));
	ck_assert_str_slice(m->source, STR("kafka:orders/3/17"));
	ck_assert_str_slice(m->order_key, STR("\0\0\0\3key"));
	ck_assert_str_slice(m->key, STR("key"));
	ck_assert_str_slice(m->body, STR("body"));
	ck_assert_str_slice(m->content_type, STR("application/json"));
	ck_assert_str_slice(m->reply_destination, STR("answers"));
	ck_assert_str_slice(value_as_str(&m->reply_correlation), STR("c-1"));
	ck_assert_int_eq(m->time_us, INT64_C(1764534000000000));
	ck_assert_uint_eq(m->headers.count, 6);
	ck_assert_int_eq(m->headers.items[0].value.type, MSGPACK_OBJECT_STR);
	ck_assert_int_eq(m->headers.items[1].value.type, MSGPACK_OBJECT_BIN);
	ck_assert_int_eq(m->headers.items[2].value.type, MSGPACK_OBJECT_NIL);
	ck_assert(!m->type.ptr && !m->message_id.ptr && !m->redelivered);
	m = rig_sink_find(&b->sink, 18);
	ck_assert(m->key.ptr && m->key.len == 0 && m->order_key.len == 4 && !m->body.ptr);
	ck_assert(!m->reply_destination.ptr && value_is_nil(&m->reply_correlation));
	m = rig_sink_find(&b->sink, 19);
	ck_assert(!m->key.ptr && !m->order_key.ptr && m->time_us == 0);
	bench_end(b);
}
END_TEST

/* --- back-pressure --- */

START_TEST(test_full_window_stops_polling)
{
	struct bench *b = bench_started(4, 1);

	records(b, 0, 0, 10);
	ck_assert_uint_eq(b->sink.count, 4);
	rig_done(&b->sink, 2);
	ck_assert_uint_eq(b->sink.count, 3); /* not from inside the settle */
	run(b);
	ck_assert_uint_eq(b->sink.count, 4);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	for (int i = 0; i < 10; i++) {
		rig_done_all(&b->sink);
		run(b);
	}
	ck_assert_uint_eq(b->sink.delivered, 10);
	bench_end(b);
}
END_TEST

START_TEST(test_long_full_window_pauses_and_polls)
{
	struct bench *b = bench_started(4, 3);

	records(b, 0, 0, 4);
	records(b, 1, 0, 2);
	ck_assert_uint_eq(b->sink.count, 4);
	advance_ms(b, 999);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	advance_ms(b, 2);
	ck_assert_str_eq(fake_calls(&b->cluster), "pause 0 1; ");
	/* What was fetched before waits, unseen by the sink. */
	ck_assert_uint_eq(b->sink.count, 4);
	/* The group is heard; what is new is paused at once. */
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 4);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "assign 2; pause 2; ");
	rig_done(&b->sink, 0);
	rig_done(&b->sink, 1);
	run(b);
	/* The stash came first, and the window is full again. */
	ck_assert_uint_eq(b->sink.delivered, 6);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "resume 0 1 2; ");
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	bench_end(b);
}
END_TEST

START_TEST(test_one_at_a_time)
{
	struct bench *b = bench_started(1, 1);

	records(b, 0, 0, 5);
	for (uint64_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(b->sink.count, 1);
		advance_ms(b, i == 2 ? 3000 : 10);
		ck_assert_uint_eq(b->sink.count, 1);
		rig_done(&b->sink, i);
		run(b);
	}
	ck_assert_uint_eq(b->sink.delivered, 5);
	bench_end(b);
}
END_TEST

START_TEST(test_span_pauses_one_partition)
{
	struct bench *b = bench_started(60000, 3);

	records(b, 1, 0, 1);
	records(b, 0, 0, 50001);
	ck_assert_str_eq(fake_calls(&b->cluster), "pause 0; ");
	for (uint64_t i = 1; i <= 50000; i++)
		rig_settle(&b->sink, b->sink.messages[2], SETTLE_DONE);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	/* 1 of partition 0 is still there. */
	ck_assert_uint_eq(b->sink.messages[1]->token, 0);
	rig_settle(&b->sink, b->sink.messages[1], SETTLE_DONE);
	ck_assert(strstr(fake_calls(&b->cluster), "resume 0; "));
	bench_end(b);
}
END_TEST

/* --- rebalances --- */

START_TEST(test_revoke_waits_for_work)
{
	struct bench *b = bench_started(100, 3);

	records(b, 0, 0, 3);
	records(b, 1, 10, 12);
	b->sink.busy = true;
	b->cluster.commit_answers = false;
	rig_done(&b->sink, 0);
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 1);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	/* Records that come for it now are the next owner's. */
	records(b, 0, 3, 5);
	ck_assert_uint_eq(b->sink.delivered, 5);
	rig_done(&b->sink, 1);
	rig_done(&b->sink, 2);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@3; ");
	fake_committed(&b->cluster, 0, 3, false);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "unassign 0; ");
	/* The other one goes on. */
	rig_done(&b->sink, 10);
	rig_done(&b->sink, 11);
	advance_ms(b, 1000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 1@12; ");
	bench_end(b);
}
END_TEST

START_TEST(test_revoke_gives_idle_back)
{
	struct bench *b = bench_started(100, 1);

	records(b, 0, 0, 3);
	rig_done(&b->sink, 0);
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 1);
	run(b);
	ck_assert_uint_eq(b->sink.count, 0);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@1; unassign 0; ");
	bench_end(b);
}
END_TEST

START_TEST(test_revoke_of_the_idle_commits_nothing)
{
	struct bench *b = bench_started(100, 1);

	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 1);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "unassign 0; ");
	/* One that is not known is given up too: the library waits for the answer. */
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 2);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "unassign 1; ");
	bench_end(b);
}
END_TEST

START_TEST(test_revoke_does_not_wait_for_ever)
{
	struct bench *b = bench_started(100, 1);

	records(b, 0, 0, 3);
	b->sink.busy = true;
	rig_done(&b->sink, 0);
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 1);
	advance_ms(b, 9999);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	advance_ms(b, 2);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@1; unassign 0; ");
	/* It comes back: another lease. The late one changes nothing. */
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 1);
	records(b, 0, 1, 2);
	fake_calls(&b->cluster);
	ck_assert_uint_eq(b->sink.count, 3);
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	advance_ms(b, 2000);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	rig_done(&b->sink, 1);
	advance_ms(b, 1000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@2; ");
	bench_end(b);
}
END_TEST

START_TEST(test_revoke_with_an_unanswered_commit)
{
	struct bench *b = bench_started(100, 1);

	b->cluster.commit_answers = false;
	records(b, 0, 0, 1);
	rig_done(&b->sink, 0);
	advance_ms(b, 1000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@1; ");
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 1);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	advance_ms(b, 10001);
	ck_assert_str_eq(fake_calls(&b->cluster), "unassign 0; ");
	/* The answer of the old lease is not the new one's. */
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 1);
	records(b, 0, 0, 1);
	fake_calls(&b->cluster);
	rig_done(&b->sink, 0);
	advance_ms(b, 1000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@1; ");
	bench_end(b);
}
END_TEST

START_TEST(test_revoke_when_paused_resumes_first)
{
	struct bench *b = bench_started(2, 3);

	records(b, 0, 0, 1);
	records(b, 1, 0, 5);
	advance_ms(b, 1001);
	ck_assert_str_eq(fake_calls(&b->cluster), "pause 0 1; ");
	b->sink.busy = true;
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 2);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	/* Only what the sink has counts; the stash of the partition is gone. */
	rig_settle(&b->sink, b->sink.messages[1], SETTLE_BACK);
	run(b);
	ck_assert_uint_eq(b->sink.delivered, 2);
	ck_assert_str_eq(fake_calls(&b->cluster), "resume 1; unassign 1; resume 0; ");
	bench_end(b);
}
END_TEST

START_TEST(test_lost_commits_nothing)
{
	struct bench *b = bench_started(100, 1);

	records(b, 0, 0, 3);
	rig_done(&b->sink, 0);
	b->sink.busy = true;
	fake_partitions(&b->cluster, KAFKA_EVENT_LOST, 1);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "unassign 0; ");
	rig_done(&b->sink, 1);
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 1);
	run(b);
	rig_done(&b->sink, 2);
	advance_ms(b, 5000);
	ck_assert_str_eq(fake_calls(&b->cluster), "assign 0; ");
	bench_end(b);
}
END_TEST

START_TEST(test_lost_during_a_revoke)
{
	struct bench *b = bench_started(100, 3);

	b->sink.busy = true;
	records(b, 0, 0, 1);
	records(b, 1, 5, 6);
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 1);
	fake_partitions(&b->cluster, KAFKA_EVENT_LOST, 3);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "unassign 0; unassign 1; ");
	rig_done_all(&b->sink);
	advance_ms(b, 30000);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	bench_end(b);
}
END_TEST

START_TEST(test_partition_that_goes_back)
{
	struct bench *b = bench_started(100, 1);

	b->sink.busy = true;
	records(b, 0, 100, 103);
	rig_done(&b->sink, 100);
	/* Within what is in work: delivered, but the first one counts. */
	records(b, 0, 102, 103);
	ck_assert_uint_eq(b->sink.count, 3);
	rig_settle(&b->sink, b->sink.messages[2], SETTLE_DONE);
	advance_ms(b, 2000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@101; ");
	/* Below it: another lease. */
	records(b, 0, 0, 2);
	ck_assert_uint_eq(b->sink.count, 4);
	rig_done(&b->sink, 101);
	rig_done(&b->sink, 102);
	advance_ms(b, 2000);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	rig_done(&b->sink, 0);
	advance_ms(b, 2000);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@1; ");
	bench_end(b);
}
END_TEST

/* --- states --- */

START_TEST(test_missing_topic)
{
	struct bench *b = bench_new(10);

	b->consumer->ops->start(b->consumer);
	run(b);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONNECTING);
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 0);
	fake_event(&b->cluster, KAFKA_EVENT_MISSING, "unknown topic");
	run(b);
	ck_assert_int_eq(b->sink.state, CONSUMER_MISSING);
	ck_assert(strstr(b->sink.detail, "orders"));
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 0);
	fake_event(&b->cluster, KAFKA_EVENT_UP, NULL);
	fake_event(&b->cluster, KAFKA_EVENT_ERROR, "something");
	advance_ms(b, 600000);
	ck_assert_int_eq(b->sink.state, CONSUMER_MISSING);
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 3);
	run(b);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	ck_assert_uint_eq(b->loop.base.heap_len, 0);
	bench_end(b);
}
END_TEST

START_TEST(test_broker_down_and_up)
{
	struct bench *b = bench_started(10, 1);

	fake_event(&b->cluster, KAFKA_EVENT_ERROR, "1/1 brokers are down");
	run(b);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONNECTING);
	ck_assert_str_eq(b->sink.detail, "1/1 brokers are down");
	fake_event(&b->cluster, KAFKA_EVENT_UP, NULL);
	run(b);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	fake_event(&b->cluster, KAFKA_EVENT_ERROR, "down");
	records(b, 0, 0, 1);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	bench_end(b);
}
END_TEST

START_TEST(test_fatal_opens_anew)
{
	struct bench *b = bench_started(10, 1);

	records(b, 0, 0, 3);
	rig_done(&b->sink, 0);
	b->sink.busy = true;
	fake_event(&b->cluster, KAFKA_EVENT_FATAL, "fenced");
	run(b);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONNECTING);
	ck_assert_str_eq(fake_calls(&b->cluster), "close; ");
	b->cluster.open_fails = true;
	advance_ms(b, 600);
	ck_assert_str_eq(fake_calls(&b->cluster), "");
	b->cluster.open_fails = false;
	advance_ms(b, 40000);
	ck_assert_str_eq(fake_calls(&b->cluster), "open g; subscribe orders; ");
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 1);
	run(b);
	rig_done_all(&b->sink); /* of the old handle */
	advance_ms(b, 2000);
	ck_assert_str_eq(fake_calls(&b->cluster), "assign 0; ");
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	bench_end(b);
}
END_TEST

/* --- stop --- */

START_TEST(test_stop_waits_and_commits)
{
	struct bench *b = bench_started(10, 3);

	records(b, 0, 0, 3);
	records(b, 1, 0, 1);
	b->sink.busy = true;
	b->cluster.commit_answers = false;
	rig_done(&b->sink, 1);
	b->consumer->ops->stop(b->consumer);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "pause 0 1; ");
	records(b, 0, 3, 5); /* no longer wanted */
	/* The group is heard while it waits. */
	fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 4);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "assign 2; pause 2; ");
	ck_assert_uint_eq(b->sink.count, 3);
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_BACK);
	run(b);
	ck_assert(!b->sink.stopped);
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_BACK);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@2; ");
	fake_committed(&b->cluster, 0, 2, false);
	run(b);
	ck_assert_str_eq(fake_calls(&b->cluster), "close; ");
	ck_assert(b->sink.stopped);
	bench_end(b);
}
END_TEST

START_TEST(test_stop_bounds_the_last_commit)
{
	struct bench *b = bench_started(10, 1);

	b->cluster.commit_answers = false;
	records(b, 0, 0, 1);
	rig_done(&b->sink, 0);
	b->consumer->ops->stop(b->consumer);
	advance_ms(b, 4999);
	ck_assert(!b->sink.stopped);
	advance_ms(b, 2);
	ck_assert(b->sink.stopped);
	bench_end(b);
}
END_TEST

START_TEST(test_stop_during_a_revoke)
{
	struct bench *b = bench_started(10, 1);

	b->sink.busy = true;
	records(b, 0, 0, 2);
	fake_partitions(&b->cluster, KAFKA_EVENT_REVOKE, 1);
	run(b);
	b->consumer->ops->stop(b->consumer);
	run(b);
	rig_done(&b->sink, 0);
	rig_done(&b->sink, 1);
	run(b);
	ck_assert(b->sink.stopped);
	ck_assert_str_eq(fake_calls(&b->cluster), "commit 0@2; unassign 0; close; ");
	bench_end(b);
}
END_TEST

START_TEST(test_stop_when_full_and_paused)
{
	struct bench *b = bench_started(2, 1);

	records(b, 0, 0, 6);
	advance_ms(b, 2000);
	b->consumer->ops->stop(b->consumer);
	run(b);
	ck_assert(b->sink.stopped);
	ck_assert_str_eq(fake_calls(&b->cluster), "pause 0; close; ");
	bench_end(b);
}
END_TEST

START_TEST(test_stop_without_a_handle)
{
	struct bench *b = bench_new(10);

	b->cluster.open_fails = true;
	b->consumer->ops->start(b->consumer);
	run(b);
	ck_assert_str_eq(b->sink.detail, "it will not open");
	b->consumer->ops->stop(b->consumer);
	run(b);
	ck_assert(b->sink.stopped);
	bench_end(b);
	b = bench_new(10);
	b->consumer->ops->stop(b->consumer); /* not even started */
	run(b);
	ck_assert(b->sink.stopped);
	bench_end(b);
}
END_TEST

/* --- at least once, whatever happens --- */

#define LOGS 3
#define LOG_END 3000

struct world {
	struct bench *b;
	bool done[LOGS][LOG_END];
	int64_t position[LOGS]; /* -1 = not assigned */
	int64_t committed[LOGS];
};

static void world_done(void *user, const struct message *message)
{
	struct world *world = user;
	int partition = message->source.ptr[strlen("kafka:orders/")] - '0';

	int64_t offset;

	ck_assert(str_to_int64(str_make(message->source.ptr + strlen("kafka:orders/0/"),
					message->source.len - strlen("kafka:orders/0/")),
			       &offset));
	world->done[partition][offset] = true;
}

static void world_commit(void *user, const struct kafka_partition *partition)
{
	struct world *world = user;

	ck_assert_int_ge(world->position[partition->partition], 0);
	for (int64_t i = world->committed[partition->partition]; i < partition->offset; i++)
		ck_assert_msg(world->done[partition->partition][i], "%d@%d is committed over", partition->partition,
			      (int)i);
	world->committed[partition->partition] = partition->offset;
}

static void world_group(struct world *world, unsigned *seed)
{
	struct bench *b = world->b;
	int partition = rand_r(seed) % LOGS;
	bool lost = rand_r(seed) % 3 == 0;

	if (!b->cluster.handle)
		return;
	if (world->position[partition] < 0) {
		world->position[partition] = world->committed[partition];
		fake_partitions(&b->cluster, KAFKA_EVENT_ASSIGN, 1u << partition);
		return;
	}
	fake_partitions(&b->cluster, lost ? KAFKA_EVENT_LOST : KAFKA_EVENT_REVOKE, 1u << partition);
	rig_loop_run(&b->loop);
	if (rand_r(seed) % 2)
		rig_done_all(&b->sink);
	/* The library asks for nothing else until it is answered. */
	rig_loop_advance(&b->loop, 40 * US_PER_S);
	ck_assert(strstr(fake_calls(&b->cluster), "unassign"));
	world->position[partition] = -1;
}

/* Control records and what compaction took: nothing to do there. */
static bool is_hole(int partition, int64_t offset)
{
	return (offset * 7919 + partition * 104729) % 8 == 0;
}

static void world_act(struct world *world, unsigned *seed)
{
	struct bench *b = world->b;
	int partition = rand_r(seed) % LOGS;
	int draw = rand_r(seed) % 100;

	if (draw < 45) {
		int64_t *position = &world->position[partition];

		if (*position > 3 && rand_r(seed) % 50 == 0)
			*position -= rand_r(seed) % 3; /* the client repeats itself */
		for (int i = rand_r(seed) % 20; i > 0 && *position >= 0; i--) {
			while (*position < LOG_END && is_hole(partition, *position))
				(*position)++;
			if (*position < LOG_END)
				fake_record(&b->cluster, partition, (*position)++);
		}
	} else if (draw < 90) {
		for (int i = rand_r(seed) % 20; i > 0 && b->sink.count; i--)
			rig_settle(&b->sink, b->sink.messages[(size_t)rand_r(seed) % b->sink.count], SETTLE_DONE);
	} else if (draw < 95) {
		b->sink.busy = rand_r(seed) % 2;
	} else {
		world_group(world, seed);
	}
	rig_loop_advance(&b->loop, rand_r(seed) % 3000 * US_PER_MS);
}

START_TEST(test_world)
{
	struct world *world = mem_zalloc(sizeof(*world));
	unsigned seed = (unsigned)_i + 1;

	world->b = bench_started(1 + (uint32_t)_i * 7 % 40, 1);
	for (int i = 1; i < LOGS; i++)
		world->position[i] = -1;
	for (int i = 0; i < LOGS; i++)
		for (int64_t k = 0; k < LOG_END; k++)
			world->done[i][k] = is_hole(i, k);
	world->b->sink.on_done = world_done;
	world->b->sink.user = world;
	world->b->cluster.on_commit = world_commit;
	world->b->cluster.user = world;
	for (int i = 0; i < 1500; i++)
		world_act(world, &seed);
	world->b->sink.busy = false;
	bench_end(world->b);
	free(world);
}
END_TEST

static Suite *consumer_suite(void)
{
	Suite *suite = suite_create("kafka consumer");
	TCase *tcase = tcase_create("consumer");

	TEST_ADD_ALL(tcase, test_commits_the_watermark, test_commits_after_many, test_given_back_stays_below,
		     test_failed_commit_is_sent_again, test_message, test_full_window_stops_polling,
		     test_long_full_window_pauses_and_polls, test_one_at_a_time, test_span_pauses_one_partition,
		     test_revoke_waits_for_work, test_revoke_gives_idle_back, test_revoke_of_the_idle_commits_nothing,
		     test_revoke_does_not_wait_for_ever, test_revoke_with_an_unanswered_commit,
		     test_revoke_when_paused_resumes_first, test_lost_commits_nothing, test_lost_during_a_revoke,
		     test_partition_that_goes_back, test_missing_topic, test_broker_down_and_up, test_fatal_opens_anew,
		     test_stop_waits_and_commits, test_stop_bounds_the_last_commit, test_stop_during_a_revoke,
		     test_stop_when_full_and_paused, test_stop_without_a_handle);
	tcase_add_loop_test(tcase, test_world, 0, 15);
	tcase_set_timeout(tcase, 120);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(consumer_suite)
