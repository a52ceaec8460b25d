/* SPDX-License-Identifier: Apache-2.0 */
/* The local transport: confirmed by the settle, given back at the end, and under threads. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "base/time.h"
#include "tests/support/testing.h"
#include "tests/unit/transports/rig.h"
#include "transports/local/local.h"

struct bench {
	struct rig_loop loop;
	struct rig_sink sink;
	struct transport_connection connection;
	struct consumer *consumer;
	struct publisher *publisher;
	struct publication pubs[8];
	int answers[8];
	struct task stop;
	bool stopped;
	int settled[2];
};

static struct bench *bench_new(uint32_t max_in_flight)
{
	struct bench *b = mem_zalloc(sizeof(*b));
	struct consumer_settings settings = {
		.loop = &b->loop.base, .tenant = "acme", .channel = "in", .max_in_flight = max_in_flight};
	struct error err = ERROR_INIT;

	rig_loop_init(&b->loop);
	rig_sink_init(&b->sink);
	b->connection = (struct transport_connection){.transport = &transport_local,
						      .name = "local",
						      .consume_loop = &b->loop.base,
						      .publish_loop = &b->loop.base};
	ck_assert(transport_local.open(&b->connection, &err) == RESULT_OK);
	b->consumer = transport_local.consumer_new(&b->connection, &settings, &b->sink.base);
	b->sink.consumer = b->consumer;
	b->publisher = transport_local.publisher_new(&b->connection);
	b->publisher->ops->start(b->publisher);
	return b;
}

static struct bench *bench_started(uint32_t max_in_flight)
{
	struct bench *b = bench_new(max_in_flight);

	b->consumer->ops->start(b->consumer);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	return b;
}

static void answered(struct task *task)
{
	struct publication *pub = container_of(task, struct publication, done);
	struct bench *b = container_of(pub->reply_to, struct bench, loop.base);

	b->answers[pub - b->pubs]++;
}

static void publish(struct bench *b, size_t n, const char *tenant, const char *channel)
{
	struct publication *pub = &b->pubs[n];

	*pub = (struct publication){.destination = str_of(channel),
				    .tenant = str_of(tenant),
				    .key = STR("k"),
				    .body = STR("v"),
				    .content_type = STR("text/plain"),
				    .message_id = STR("id-1"),
				    .correlation = value_int(7),
				    .reply_to = &b->loop.base,
				    .done.run = answered};
	b->publisher->ops->publish(b->publisher, pub);
	rig_loop_run(&b->loop);
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

static void bench_end(struct bench *b)
{
	b->stop.run = stopped;
	b->publisher->ops->stop(b->publisher, 1000, &b->loop.base, &b->stop);
	b->consumer->ops->stop(b->consumer);
	rig_loop_advance(&b->loop, 2 * US_PER_S);
	ck_assert(b->stopped && b->sink.stopped);
	b->consumer->ops->free(b->consumer);
	b->publisher->ops->free(b->publisher);
	transport_local.close(&b->connection);
	rig_loop_done(&b->loop);
	free(b);
}

START_TEST(test_confirmed_by_the_settle)
{
	struct bench *b = bench_started(10);
	struct message *m;

	publish(b, 0, "acme", "in");
	ck_assert_int_eq(b->answers[0], 0);
	ck_assert_uint_eq(b->sink.count, 1);
	m = b->sink.messages[0];
	ck_assert_str_slice(m->identity, STR("local:id-1"));
	ck_assert_str_slice(m->message_id, STR("id-1"));
	ck_assert_str_slice(m->body, STR("v"));
	ck_assert_str_slice(m->order_key, STR("k"));
	ck_assert_str_slice(m->content_type, STR("text/plain"));
	ck_assert(m->time_us > 0);
	rig_settle(&b->sink, m, SETTLE_DONE);
	answer_is(b, 0, PUBLISH_CONFIRMED);
	publish(b, 1, "acme", "in");
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_BACK);
	answer_is(b, 1, PUBLISH_RETRY);
	bench_end(b);
}
END_TEST

START_TEST(test_nobody_there)
{
	struct bench *b = bench_new(10);

	publish(b, 0, "acme", "in");
	answer_is(b, 0, PUBLISH_UNROUTABLE);
	ck_assert(strstr(b->pubs[0].text, "'in'"));
	b->consumer->ops->start(b->consumer);
	publish(b, 1, "other", "in");
	answer_is(b, 1, PUBLISH_UNROUTABLE);
	publish(b, 2, "acme", "out");
	answer_is(b, 2, PUBLISH_UNROUTABLE);
	bench_end(b);
}
END_TEST

START_TEST(test_window)
{
	struct bench *b = bench_started(2);

	for (size_t i = 0; i < 5; i++)
		publish(b, i, "acme", "in");
	ck_assert_uint_eq(b->sink.count, 2);
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	ck_assert_uint_eq(b->sink.count, 1);
	rig_loop_run(&b->loop);
	ck_assert_uint_eq(b->sink.count, 2);
	/* At the end everything goes back, delivered or not. */
	b->consumer->ops->stop(b->consumer);
	rig_loop_run(&b->loop);
	ck_assert(b->sink.stopped);
	answer_is(b, 0, PUBLISH_CONFIRMED);
	for (size_t i = 1; i < 5; i++)
		answer_is(b, i, PUBLISH_RETRY);
	publish(b, 5, "acme", "in");
	answer_is(b, 5, PUBLISH_UNROUTABLE);
	bench_end(b);
}
END_TEST

START_TEST(test_purge_and_stop)
{
	struct bench *b = bench_started(10);

	b->sink.busy = true;
	publish(b, 0, "acme", "in");
	b->publisher->ops->purge(b->publisher);
	answer_is(b, 0, PUBLISH_RETRY);
	publish(b, 1, "acme", "in");
	b->stop.run = stopped;
	b->publisher->ops->stop(b->publisher, 1000, &b->loop.base, &b->stop);
	rig_loop_run(&b->loop);
	publish(b, 2, "acme", "in");
	answer_is(b, 2, PUBLISH_RETRY);
	ck_assert(!b->stopped);
	rig_loop_advance(&b->loop, 1001 * US_PER_MS);
	ck_assert(b->stopped);
	answer_is(b, 1, PUBLISH_RETRY);
	/* The messages are still in work; their settles answer nobody. */
	rig_done_all(&b->sink);
	answer_is(b, 0, PUBLISH_RETRY);
	bench_end(b);
}
END_TEST

static void inject_settled(void *user, enum settle how)
{
	((struct bench *)user)->settled[how]++;
}

START_TEST(test_inject)
{
	struct bench *b = bench_started(1);
	struct message *m = message_new();

	ck_assert(!local_inject(&b->connection, STR("acme"), STR("no"), m, NULL, NULL));
	ck_assert(local_inject(&b->connection, STR("acme"), STR("in"), m, inject_settled, b));
	ck_assert(local_inject(&b->connection, STR("acme"), STR("in"), message_new(), inject_settled, b));
	rig_loop_run(&b->loop);
	rig_settle(&b->sink, b->sink.messages[0], SETTLE_DONE);
	ck_assert_int_eq(b->settled[SETTLE_DONE], 1);
	b->consumer->ops->stop(b->consumer);
	ck_assert_int_eq(b->settled[SETTLE_BACK], 1);
	bench_end(b);
}
END_TEST

/* --- threads --- */

#define INJECTED 20000
#define INJECTORS 3

struct counter {
	struct consumer_sink base;
	struct consumer *consumer;
	struct transport_connection connection;
	uint64_t settled; /* atomic */
	bool stopped;	  /* atomic */
};

struct later {
	struct task task;
	struct counter *counter;
	struct message *message;
};

static void later_run(struct task *task)
{
	struct later *later = container_of(task, struct later, task);

	later->counter->consumer->ops->settle(later->counter->consumer, later->message, SETTLE_DONE);
}

static void counter_deliver(struct consumer_sink *base, struct message *message)
{
	struct counter *counter = container_of(base, struct counter, base);
	struct later *later = arena_zalloc(&message->arena, sizeof(*later));

	*later = (struct later){{NULL, later_run}, counter, message};
	loop_post(counter->consumer->loop, &later->task);
}

static void counter_revoke(struct consumer_sink *base UNUSED, void *lease UNUSED)
{
}

static void counter_state(struct consumer_sink *base UNUSED, enum consumer_state state UNUSED, const char *detail UNUSED)
{
}

static void counter_stopped(struct consumer_sink *base)
{
	__atomic_store_n(&container_of(base, struct counter, base)->stopped, true, __ATOMIC_RELEASE);
}

static void counter_settled(void *user, enum settle how UNUSED)
{
	__atomic_add_fetch(&((struct counter *)user)->settled, 1, __ATOMIC_RELEASE);
}

static void *inject(void *arg)
{
	struct counter *counter = arg;

	for (int i = 0; i < INJECTED; i++) {
		struct message *message = message_new();

		/* The consumer may have been stopped meanwhile. */
		if (!local_inject(&counter->connection, STR("t"), STR("c"), message, counter_settled, counter)) {
			message_free(&message);
			counter_settled(counter, SETTLE_BACK);
		}
	}
	return NULL;
}

static void counter_start_call(void *arg)
{
	struct counter *counter = arg;

	counter->consumer->ops->start(counter->consumer);
}

static void counter_stop_call(void *arg)
{
	struct counter *counter = arg;

	counter->consumer->ops->stop(counter->consumer);
}

static bool counter_is_half(void *arg)
{
	return __atomic_load_n(&((struct counter *)arg)->settled, __ATOMIC_ACQUIRE) > INJECTED;
}

static bool counter_is_stopped(void *arg)
{
	return __atomic_load_n(&((struct counter *)arg)->stopped, __ATOMIC_ACQUIRE);
}

static bool counter_is_full(void *arg)
{
	return __atomic_load_n(&((struct counter *)arg)->settled, __ATOMIC_ACQUIRE) == INJECTORS * INJECTED;
}

START_TEST(test_threads)
{
	struct counter counter = {.base = {counter_deliver, counter_revoke, counter_state, counter_stopped}};
	struct consumer_settings settings = {.tenant = "t", .channel = "c", .max_in_flight = 100};
	struct error err = ERROR_INIT;
	pthread_t threads[INJECTORS];

	settings.loop = loop_start(runtime_threads(), "in-local");
	ck_assert(transport_local.open(&counter.connection, &err) == RESULT_OK);
	counter.consumer = transport_local.consumer_new(&counter.connection, &settings, &counter.base);
	loop_call(settings.loop, counter_start_call, &counter);
	for (int i = 0; i < INJECTORS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, inject, &counter), 0);
	ck_assert(test_wait(counter_is_half, &counter, 60000));
	loop_call(settings.loop, counter_stop_call, &counter);
	for (int i = 0; i < INJECTORS; i++)
		pthread_join(threads[i], NULL);
	ck_assert(test_wait(counter_is_stopped, &counter, 60000));
	ck_assert(test_wait(counter_is_full, &counter, 60000));
	loop_stop(&settings.loop);
	counter.consumer->ops->free(counter.consumer);
	transport_local.close(&counter.connection);
}
END_TEST

static Suite *local_suite(void)
{
	Suite *suite = suite_create("local");
	TCase *tcase = tcase_create("local");

	TEST_ADD_ALL(tcase, test_confirmed_by_the_settle, test_nobody_there, test_window, test_purge_and_stop,
		     test_inject, test_threads);
	tcase_set_timeout(tcase, 120);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(local_suite)
