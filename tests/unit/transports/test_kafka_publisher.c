/* SPDX-License-Identifier: Apache-2.0 */
/* The Kafka publisher over a client whose reports are written here: every answer, a full queue, failures, ends. */
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "tests/support/testing.h"
#include "tests/unit/transports/rig.h"
#include "transports/kafka/kafka.h"

struct bench {
	struct rig_loop loop;
	struct fake_cluster cluster;
	struct transport_connection connection;
	struct publisher *publisher;
	struct publication pubs[8];
	int answers[8];
	struct task stop;
	bool stopped;
};

static void no_log(void *arg UNUSED, struct str line UNUSED)
{
}

static struct bench *bench_new(void)
{
	struct bench *b = mem_zalloc(sizeof(*b));

	log_redirect(no_log, NULL);
	rig_loop_init(&b->loop);
	fake_init(&b->cluster);
	b->connection = (struct transport_connection){.transport = &transport_kafka,
						      .name = "kafka",
						      .publish_loop = &b->loop.base,
						      .kafka = &fake_client,
						      .kafka_cluster = &b->cluster};
	b->publisher = transport_kafka.publisher_new(&b->connection);
	return b;
}

static struct bench *bench_started(void)
{
	struct bench *b = bench_new();

	b->publisher->ops->start(b->publisher);
	rig_loop_run(&b->loop);
	ck_assert_str_eq(fake_calls(&b->cluster), "open -; ");
	return b;
}

static void answered(struct task *task)
{
	struct publication *pub = container_of(task, struct publication, done);
	struct bench *b = container_of(pub->reply_to, struct bench, loop.base);

	b->answers[pub - b->pubs]++;
}

static struct publication *publish(struct bench *b, size_t n)
{
	struct publication *pub = &b->pubs[n];

	if (!pub->destination.ptr)
		*pub = (struct publication){.destination = STR("t"),
					    .key = STR("k"),
					    .body = STR("v"),
					    .message_id = STR("id"),
					    .correlation = value_nil()};
	pub->reply_to = &b->loop.base;
	pub->done.run = answered;
	b->publisher->ops->publish(b->publisher, pub);
	rig_loop_run(&b->loop);
	return pub;
}

static void answer_is(struct bench *b, size_t n, enum publish_outcome outcome)
{
	rig_loop_run(&b->loop);
	ck_assert_int_eq(b->answers[n], 1);
	ck_assert_int_eq(b->pubs[n].outcome, outcome);
}

static void stopped(struct task *task)
{
	container_of(task, struct bench, stop)->stopped = true;
}

static void stop(struct bench *b, int64_t timeout_ms)
{
	b->stop.run = stopped;
	b->publisher->ops->stop(b->publisher, timeout_ms, &b->loop.base, &b->stop);
	rig_loop_run(&b->loop);
}

static void bench_end(struct bench *b)
{
	if (!b->stopped) {
		stop(b, 1000);
		rig_loop_advance(&b->loop, 2 * US_PER_S);
	}
	ck_assert(b->stopped);
	b->publisher->ops->free(b->publisher);
	fake_done(&b->cluster);
	rig_loop_done(&b->loop);
	free(b);
}

START_TEST(test_record)
{
	struct bench *b = bench_started();
	struct header headers[] = {{STR("a"), value_text(STR("x"))},
				   {STR("n"), value_int(-5)},
				   {STR("yes"), value_bool(true)},
				   {STR("nil"), value_nil()},
				   {STR("e"), value_text(STR(""))}};

	b->pubs[0] = (struct publication){.destination = STR("orders"),
					  .key = STR("k"),
					  .body = STR("v"),
					  .content_type = STR("application/json"),
					  .type = STR("created"),
					  .message_id = STR("id-1"),
					  .correlation = value_text(STR("c-1")),
					  .headers = {headers, 5}};
	publish(b, 0);
	ck_assert_str_eq(b->cluster.produced_text.data,
			 "orders key=k value=v a=x n=-5 yes=true nil=null e= content-type=application/json "
			 "message-type=created correlation-id=c-1 kafka_correlationId=c-1 sutra-outbox-key=id-1\n");
	buf_reset(&b->cluster.produced_text);
	headers[0] = (struct header){STR("Content-Type"), value_text(STR("text/plain"))};
	b->pubs[1] = (struct publication){.destination = STR("orders"),
					  .content_type = STR("application/json"),
					  .correlation = value_nil(),
					  .headers = {headers, 1}};
	publish(b, 1);
	ck_assert_str_eq(b->cluster.produced_text.data, "orders key=null value=null Content-Type=text/plain\n");
	bench_end(b);
}
END_TEST

START_TEST(test_answers)
{
	struct bench *b = bench_started();

	for (size_t i = 0; i < 4; i++)
		publish(b, i);
	ck_assert(!b->publisher->up);
	fake_delivered(&b->cluster, 2, &(struct kafka_event){.failed = true, .unknown_topic = true, .text = "no topic"});
	fake_delivered(&b->cluster, 1, &(struct kafka_event){.failed = true, .too_large = true});
	fake_delivered(&b->cluster, 0, &(struct kafka_event){.failed = true, .text = "timed out"});
	fake_delivered(&b->cluster, 3, &(struct kafka_event){.failed = false});
	answer_is(b, 2, PUBLISH_UNROUTABLE);
	ck_assert_str_eq(b->pubs[2].text, "no topic");
	answer_is(b, 1, PUBLISH_REJECTED);
	answer_is(b, 0, PUBLISH_RETRY);
	ck_assert_str_eq(b->pubs[0].text, "timed out");
	answer_is(b, 3, PUBLISH_CONFIRMED);
	ck_assert(b->publisher->up);
	fake_event(&b->cluster, KAFKA_EVENT_ERROR, "all down");
	ck_assert(!b->publisher->up);
	fake_event(&b->cluster, KAFKA_EVENT_UP, NULL);
	ck_assert(b->publisher->up);
	b->cluster.reject = true;
	publish(b, 4);
	answer_is(b, 4, PUBLISH_REJECTED);
	ck_assert_str_eq(b->pubs[4].text, "never");
	bench_end(b);
}
END_TEST

START_TEST(test_full_queue)
{
	struct bench *b = bench_started();

	b->cluster.queue_full = true;
	for (size_t i = 0; i < 3; i++)
		publish(b, i);
	rig_loop_advance(&b->loop, US_PER_S);
	ck_assert_uint_eq(b->cluster.produced, 0);
	b->cluster.queue_full = false;
	rig_loop_advance(&b->loop, US_PER_S);
	ck_assert_uint_eq(b->cluster.produced, 3);
	/* In the order in which they came. */
	for (size_t i = 0; i < 3; i++)
		ck_assert_ptr_eq(b->cluster.opaque[i], &b->pubs[i]);
	bench_end(b);
}
END_TEST

START_TEST(test_fatal)
{
	struct bench *b = bench_started();

	publish(b, 0);
	b->cluster.queue_full = true;
	publish(b, 1);
	fake_event(&b->cluster, KAFKA_EVENT_FATAL, "out of sequence");
	answer_is(b, 0, PUBLISH_RETRY);
	answer_is(b, 1, PUBLISH_RETRY);
	ck_assert_str_eq(b->pubs[0].text, "out of sequence");
	publish(b, 2);
	answer_is(b, 2, PUBLISH_RETRY);
	b->cluster.queue_full = false;
	rig_loop_advance(&b->loop, US_PER_S);
	ck_assert_str_eq(fake_calls(&b->cluster), "close; open -; ");
	publish(b, 3);
	fake_delivered(&b->cluster, 1, &(struct kafka_event){.failed = false});
	answer_is(b, 3, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

START_TEST(test_purge)
{
	struct bench *b = bench_started();

	publish(b, 0);
	b->cluster.queue_full = true;
	publish(b, 1);
	b->publisher->ops->purge(b->publisher);
	b->publisher->ops->purge(b->publisher);
	answer_is(b, 1, PUBLISH_RETRY);
	ck_assert_str_eq(fake_calls(&b->cluster), "purge; ");
	ck_assert_int_eq(b->answers[0], 0);
	fake_delivered(&b->cluster, 0, &(struct kafka_event){.failed = true, .text = "purged"});
	answer_is(b, 0, PUBLISH_RETRY);
	bench_end(b);
}
END_TEST

START_TEST(test_stop)
{
	struct bench *b = bench_started();

	publish(b, 0);
	publish(b, 1);
	stop(b, 1000);
	publish(b, 2);
	answer_is(b, 2, PUBLISH_RETRY);
	fake_delivered(&b->cluster, 0, &(struct kafka_event){.failed = false});
	answer_is(b, 0, PUBLISH_CONFIRMED);
	ck_assert(!b->stopped);
	rig_loop_advance(&b->loop, 1001 * US_PER_MS);
	ck_assert(b->stopped);
	answer_is(b, 1, PUBLISH_RETRY);
	ck_assert_str_eq(fake_calls(&b->cluster), "close; ");
	bench_end(b);
	b = bench_started();
	publish(b, 0);
	stop(b, 1000);
	fake_delivered(&b->cluster, 0, &(struct kafka_event){.failed = false});
	answer_is(b, 0, PUBLISH_CONFIRMED);
	ck_assert(b->stopped); /* at once */
	bench_end(b);
	b = bench_new();
	stop(b, 1000);
	ck_assert(b->stopped);
	publish(b, 0);
	answer_is(b, 0, PUBLISH_RETRY);
	bench_end(b);
}
END_TEST

static Suite *publisher_suite(void)
{
	Suite *suite = suite_create("kafka publisher");
	TCase *tcase = tcase_create("publisher");

	TEST_ADD_ALL(tcase, test_record, test_answers, test_full_queue, test_fatal, test_purge, test_stop);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(publisher_suite)
