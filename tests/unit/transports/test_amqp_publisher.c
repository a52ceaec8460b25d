/* SPDX-License-Identifier: Apache-2.0 */
/* The AMQP publisher: every publication is answered once, whatever the broker does. */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/testing.h"
#include "tests/unit/transports/rabbit_rig.h"
#include "tests/unit/transports/rig.h"
#include "transports/amqp/amqp.h"

#define PUBS 2000

struct bench {
	struct rig_loop loop;
	struct rabbit_fake fake;
	struct transport_connection connection;
	struct publisher *publisher;
	struct publication pubs[PUBS];
	int answers[PUBS];
	char ids[PUBS][8];
	struct task stop;
	bool stopped;
};

static void answered(struct task *task)
{
	struct publication *pub = container_of(task, struct publication, done);
	struct bench *b = (struct bench *)(uintptr_t)pub->tenant.ptr;

	b->answers[pub - b->pubs]++;
}

static struct bench *bench_new(void)
{
	struct bench *b = mem_zalloc(sizeof(*b));
	struct error err = ERROR_INIT;

	rig_loop_init(&b->loop);
	rabbit_fake_init(&b->fake);
	b->connection = (struct transport_connection){.transport = &transport_amqp,
						      .name = "r",
						      .url = "amqp://x/",
						      .consume_loop = &b->loop.base,
						      .publish_loop = &b->loop.base,
						      .rabbit = &rabbit_fake_client,
						      .rabbit_broker = &b->fake};
	ck_assert_int_eq(transport_amqp.open(&b->connection, &err), RESULT_OK);
	b->publisher = amqp_publisher_new(&b->connection);
	return b;
}

static struct bench *bench_started(void)
{
	struct bench *b = bench_new();

	b->publisher->ops->start(b->publisher);
	rig_loop_run(&b->loop);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "connect; open 1; confirm 1; ");
	ck_assert(b->publisher->up);
	return b;
}

static void publish_to(struct bench *b, size_t n, const char *destination, size_t size)
{
	struct publication *pub = &b->pubs[n];

	snprintf(b->ids[n], sizeof(b->ids[n]), "m%zu", n);
	/* The tenant carries the bench: the transport does not look at it. */
	*pub = (struct publication){.destination = str_of(destination),
				    .tenant = {(const char *)b, 0},
				    .message_id = str_of(b->ids[n]),
				    .correlation = value_nil(),
				    .reply_to = &b->loop.base};
	pub->body = str_make(size ? (const char *)b : "", size);
	pub->done.run = answered;
	b->publisher->ops->publish(b->publisher, pub);
	rig_loop_run(&b->loop);
}

static void publish(struct bench *b, size_t first, size_t last)
{
	for (size_t n = first; n <= last; n++)
		publish_to(b, n, "q", 1);
}

static void event(struct bench *b, enum rabbit_event_kind kind, uint64_t tag, bool multiple)
{
	const struct rabbit_event e = {.kind = kind,
				       .channel = kind == RABBIT_EVENT_ACK || kind == RABBIT_EVENT_NACK,
				       .tag = tag,
				       .multiple = multiple};

	rabbit_fake_event(&b->fake, &e, "why");
	rig_loop_run(&b->loop);
}

static void failed(struct bench *b, uint16_t code, const char *text)
{
	rabbit_fake_event(&b->fake, &(struct rabbit_event){.kind = RABBIT_EVENT_FAILED, .channel = 1, .code = code}, text);
	rig_loop_run(&b->loop);
}

static void answer_is(struct bench *b, size_t n, enum publish_outcome outcome)
{
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
	transport_amqp.close(&b->connection);
	rabbit_fake_done(&b->fake);
	rig_loop_done(&b->loop);
	free(b);
}

START_TEST(test_confirms)
{
	struct bench *b = bench_started();

	publish(b, 0, 4);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "publish 1 '' 'q' m0 1; publish 1 '' 'q' m1 1; publish 1 '' 'q' m2 1; "
						       "publish 1 '' 'q' m3 1; publish 1 '' 'q' m4 1; ");
	event(b, RABBIT_EVENT_ACK, 2, false);
	answer_is(b, 1, PUBLISH_CONFIRMED);
	ck_assert_int_eq(b->answers[0], 0);
	event(b, RABBIT_EVENT_NACK, 3, false);
	answer_is(b, 2, PUBLISH_RETRY);
	event(b, RABBIT_EVENT_ACK, 4, true);
	answer_is(b, 0, PUBLISH_CONFIRMED);
	answer_is(b, 3, PUBLISH_CONFIRMED);
	answer_is(b, 2, PUBLISH_RETRY);
	event(b, RABBIT_EVENT_ACK, 99, true);
	answer_is(b, 4, PUBLISH_CONFIRMED);
	publish_to(b, 5, "x/k/l", 0);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "publish 1 'x' 'k/l' m5 0; ");
	event(b, RABBIT_EVENT_ACK, 6, false);
	answer_is(b, 5, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

START_TEST(test_returned)
{
	struct bench *b = bench_started();
	struct rabbit_event e = {.kind = RABBIT_EVENT_RETURNED, .channel = 1, .code = 312};

	publish(b, 0, 2);
	e.properties.message_id = STR("m1");
	rabbit_fake_event(&b->fake, &e, "NO_ROUTE");
	rig_loop_run(&b->loop);
	answer_is(b, 1, PUBLISH_UNROUTABLE);
	ck_assert_str_eq(b->pubs[1].text, "no queue takes it: 312 NO_ROUTE");
	event(b, RABBIT_EVENT_ACK, 3, true);
	answer_is(b, 0, PUBLISH_CONFIRMED);
	answer_is(b, 1, PUBLISH_UNROUTABLE);
	answer_is(b, 2, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

START_TEST(test_window)
{
	struct bench *b = bench_started();

	publish(b, 0, 599);
	event(b, RABBIT_EVENT_ACK, 512, false);
	ck_assert_int_eq(b->answers[511], 1);
	/* The lowest holds the window. */
	rabbit_fake_calls(&b->fake);
	event(b, RABBIT_EVENT_ACK, 10, true);
	ck_assert_ptr_nonnull(strstr(rabbit_fake_calls(&b->fake), "m512"));
	event(b, RABBIT_EVENT_ACK, 0, true); /* all */
	event(b, RABBIT_EVENT_ACK, 600, true);
	for (size_t i = 0; i < 600; i++)
		answer_is(b, i, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

START_TEST(test_blocked)
{
	struct bench *b = bench_started();

	publish(b, 0, 0);
	event(b, RABBIT_EVENT_BLOCKED, 0, false);
	rabbit_fake_calls(&b->fake);
	publish(b, 1, 3);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "");
	/* However long. */
	rig_loop_advance(&b->loop, 300 * US_PER_S);
	ck_assert_int_eq(b->answers[0] + b->answers[1], 0);
	event(b, RABBIT_EVENT_UNBLOCKED, 0, false);
	event(b, RABBIT_EVENT_ACK, 4, true);
	for (size_t i = 0; i < 4; i++)
		answer_is(b, i, PUBLISH_CONFIRMED);
	/* A stop does not wait for the end of an alarm. */
	event(b, RABBIT_EVENT_BLOCKED, 0, false);
	publish(b, 4, 4);
	stop(b, 1000);
	ck_assert(!b->stopped);
	rig_loop_advance(&b->loop, 2 * US_PER_S);
	answer_is(b, 4, PUBLISH_RETRY);
	bench_end(b);
}
END_TEST

START_TEST(test_lost)
{
	struct bench *b = bench_started();

	publish(b, 0, 1);
	b->fake.refuses = true;
	event(b, RABBIT_EVENT_LOST, 0, false);
	answer_is(b, 0, PUBLISH_RETRY);
	answer_is(b, 1, PUBLISH_RETRY);
	ck_assert(!b->publisher->up);
	/* What comes meanwhile waits, and is not counted as an attempt. */
	publish(b, 2, 2);
	rig_loop_advance(&b->loop, 20 * US_PER_S);
	ck_assert_int_eq(b->answers[2], 0);
	b->fake.refuses = false;
	rig_loop_advance(&b->loop, 20 * US_PER_S);
	/* Numbers begin anew. */
	event(b, RABBIT_EVENT_ACK, 1, false);
	answer_is(b, 2, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

START_TEST(test_stop_without_a_connection)
{
	struct bench *b = bench_new();

	b->fake.refuses = true;
	b->publisher->ops->start(b->publisher);
	publish(b, 0, 0);
	stop(b, 60000);
	ck_assert(b->stopped);
	rig_loop_run(&b->loop);
	answer_is(b, 0, PUBLISH_RETRY);
	bench_end(b);
}
END_TEST

START_TEST(test_missing_exchange)
{
	struct bench *b = bench_started();

	publish_to(b, 0, "gone/k", 1);
	publish(b, 1, 1);
	failed(b, 404, "NOT_FOUND - no exchange 'gone' in vhost '/'");
	answer_is(b, 0, PUBLISH_UNROUTABLE);
	answer_is(b, 1, PUBLISH_RETRY);
	rig_loop_advance(&b->loop, US_PER_S);
	rabbit_fake_calls(&b->fake);
	/* It is not tried again at once, and the others do not suffer. */
	publish_to(b, 2, "gone/k", 1);
	publish(b, 3, 3);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "publish 1 '' 'q' m3 1; ");
	answer_is(b, 2, PUBLISH_UNROUTABLE);
	event(b, RABBIT_EVENT_ACK, 1, false);
	answer_is(b, 3, PUBLISH_CONFIRMED);
	rig_loop_advance(&b->loop, 10 * US_PER_S);
	publish_to(b, 4, "gone/k", 1);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "publish 1 'gone' 'k' m4 1; ");
	event(b, RABBIT_EVENT_ACK, 2, false);
	answer_is(b, 4, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

START_TEST(test_too_large)
{
	struct bench *b = bench_started();
	char *body = mem_zalloc((16 << 20) + 1);

	publish_to(b, 0, "q", 1000);
	publish_to(b, 1, "q", 999);
	failed(b, 406, "PRECONDITION_FAILED - message size 1000 is larger than configured max size 999");
	answer_is(b, 0, PUBLISH_REJECTED);
	answer_is(b, 1, PUBLISH_RETRY);
	b->pubs[2].body = str_make(body, (16 << 20) + 1);
	b->pubs[2].tenant = (struct str){(const char *)b, 0};
	b->pubs[2].destination = STR("q");
	b->pubs[2].correlation = value_nil();
	b->pubs[2].reply_to = &b->loop.base;
	b->pubs[2].done.run = answered;
	b->publisher->ops->publish(b->publisher, &b->pubs[2]);
	rig_loop_advance(&b->loop, US_PER_S);
	answer_is(b, 2, PUBLISH_REJECTED);
	free(body);
	bench_end(b);
}
END_TEST

START_TEST(test_purge_and_stop)
{
	struct bench *b = bench_started();

	publish(b, 0, 1);
	b->publisher->ops->purge(b->publisher);
	rig_loop_run(&b->loop);
	answer_is(b, 0, PUBLISH_RETRY);
	event(b, RABBIT_EVENT_ACK, 2, true);
	answer_is(b, 1, PUBLISH_RETRY);
	publish(b, 2, 2);
	stop(b, 1000);
	ck_assert(!b->stopped);
	publish(b, 3, 3);
	answer_is(b, 3, PUBLISH_RETRY);
	event(b, RABBIT_EVENT_ACK, 3, false);
	answer_is(b, 2, PUBLISH_CONFIRMED);
	ck_assert(b->stopped);
	bench_end(b);
}
END_TEST

START_TEST(test_a_confirm_that_never_comes)
{
	struct bench *b = bench_started();

	publish(b, 0, 0);
	rabbit_fake_calls(&b->fake);
	rig_loop_advance(&b->loop, 20 * US_PER_S);
	ck_assert_int_eq(b->answers[0], 0);
	rig_loop_advance(&b->loop, 40 * US_PER_S);
	answer_is(b, 0, PUBLISH_RETRY);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "close 1; open 1; confirm 1; ");
	publish(b, 1, 1);
	event(b, RABBIT_EVENT_ACK, 1, false);
	answer_is(b, 1, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

START_TEST(test_a_channel_that_hangs)
{
	struct bench *b = bench_started();

	publish(b, 0, 0);
	rabbit_fake_calls(&b->fake);
	b->fake.answers = false;
	rig_loop_advance(&b->loop, 31 * US_PER_S);
	answer_is(b, 0, PUBLISH_RETRY);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "close 1; ");
	b->fake.answers = true;
	rig_loop_advance(&b->loop, 6 * US_PER_S);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "drop; connect; open 1; confirm 1; ");
	publish(b, 1, 1);
	event(b, RABBIT_EVENT_ACK, 1, false);
	answer_is(b, 1, PUBLISH_CONFIRMED);
	bench_end(b);
}
END_TEST

static Suite *publisher_suite(void)
{
	Suite *suite = suite_create("amqp publisher");
	TCase *tcase = tcase_create("all");

	TEST_ADD_ALL(tcase, test_confirms, test_returned, test_window, test_blocked, test_lost,
		     test_stop_without_a_connection, test_missing_exchange, test_too_large, test_purge_and_stop,
		     test_a_confirm_that_never_comes, test_a_channel_that_hangs);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(publisher_suite)
