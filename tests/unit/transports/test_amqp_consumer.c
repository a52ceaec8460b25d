/* SPDX-License-Identifier: Apache-2.0 */
/* The AMQP consumer and its link, played through everything that a broker does. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/testing.h"
#include "tests/unit/transports/rabbit_rig.h"
#include "tests/unit/transports/rig.h"
#include "transports/amqp/amqp.h"

struct bench {
	struct rig_loop loop;
	struct rabbit_fake fake;
	struct rig_sink sink, other_sink;
	struct transport_connection connection;
	struct consumer *consumer, *other;
};

static struct consumer *consumer_new(struct bench *b, struct rig_sink *sink, const char *queue)
{
	const struct consumer_settings settings = {
		.loop = &b->loop.base, .tenant = "default", .channel = "c", .bind = queue, .max_in_flight = 10};

	rig_sink_init(sink);
	sink->consumer = amqp_consumer_new(&b->connection, &settings, &sink->base);
	return sink->consumer;
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
	b->consumer = consumer_new(b, &b->sink, "q");
	return b;
}

static void start(struct bench *b)
{
	b->consumer->ops->start(b->consumer);
	rig_loop_run(&b->loop);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), "connect; open 1; qos 1 10; consume 1 q; ");
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
}

static void event(struct bench *b, enum rabbit_event_kind kind, uint16_t code, const char *text)
{
	uint16_t channel = kind == RABBIT_EVENT_LOST ? 0 : 1;

	rabbit_fake_event(&b->fake, &(struct rabbit_event){.kind = kind, .channel = channel, .code = code}, text);
	rig_loop_run(&b->loop);
}

static void deliver(struct bench *b, uint64_t first, uint64_t last)
{
	for (uint64_t tag = first; tag <= last; tag++)
		rabbit_fake_event(&b->fake,
				  &(struct rabbit_event){.kind = RABBIT_EVENT_DELIVERED, .channel = 1, .tag = tag,
							 .body = STR("b")},
				  NULL);
	rig_loop_run(&b->loop);
}

static void calls_are(struct bench *b, const char *calls)
{
	rig_loop_run(&b->loop);
	ck_assert_str_eq(rabbit_fake_calls(&b->fake), calls);
}

static void stop(struct bench *b)
{
	b->consumer->ops->stop(b->consumer);
	rig_loop_run(&b->loop);
}

static void bench_end(struct bench *b)
{
	ck_assert(b->sink.stopped);
	b->consumer->ops->free(b->consumer);
	if (b->other)
		b->other->ops->free(b->other);
	transport_amqp.close(&b->connection);
	rabbit_fake_done(&b->fake);
	rig_loop_done(&b->loop);
	free(b);
}

START_TEST(test_acks_are_gathered)
{
	struct bench *b = bench_new();

	start(b);
	deliver(b, 1, 6);
	rig_done(&b->sink, 2);
	rig_done(&b->sink, 1);
	rig_done(&b->sink, 3);
	calls_are(b, "ack 1 <=3; ");
	/* Behind one that is not done it waits a moment for the run. */
	rig_done(&b->sink, 5);
	calls_are(b, "");
	rig_done(&b->sink, 4);
	calls_are(b, "ack 1 <=5; ");
	rig_done(&b->sink, 6);
	calls_are(b, "ack 1 6; ");
	deliver(b, 7, 14);
	rig_done(&b->sink, 8);
	rig_loop_advance(&b->loop, 9 * US_PER_MS);
	calls_are(b, "");
	rig_loop_advance(&b->loop, 1 * US_PER_MS);
	calls_are(b, "ack 1 8; ");
	/* At most a quarter of the window waits. */
	rig_done(&b->sink, 9);
	rig_done(&b->sink, 10);
	calls_are(b, "");
	rig_done(&b->sink, 12);
	calls_are(b, "ack 1 9; ack 1 10; ack 1 12; ");
	rig_done(&b->sink, 13);
	rig_done(&b->sink, 7);
	calls_are(b, "ack 1 7; ");
	ck_assert_uint_eq(b->consumer->settled_done, 12);
	/* A stop waits for nothing. */
	stop(b);
	calls_are(b, "cancel 1; ack 1 13; close 1; disconnect; ");
	bench_end(b);
}
END_TEST

/* --- what the broker says of returns --- */

static const struct message *deliver_counted(struct bench *b, uint64_t tag, const char *name, int64_t count)
{
	struct header header = {str_of(name), value_int(count)};
	struct rabbit_event delivery = {.kind = RABBIT_EVENT_DELIVERED, .channel = 1, .tag = tag, .redelivered = true,
					.body = STR("b")};

	if (name)
		delivery.properties.headers = (struct header_list){&header, 1};
	rabbit_fake_event(&b->fake, &delivery, NULL);
	rig_loop_run(&b->loop);
	return rig_sink_find(&b->sink, tag);
}

START_TEST(test_returns_by_version)
{
	static const struct {
		const char *product, *header;
		int64_t count;
		uint32_t returns;
		bool are_counted, is_unsafe;
	} cases[] = {
		{"RabbitMQ 3.10.8", NULL, 0, 5, false, false},
		{"RabbitMQ 3.10.8", "x-delivery-count", 3, 3, true, false},
		{"RabbitMQ 4.0.5", "x-delivery-count", 2, 2, true, true},
		{"RabbitMQ 4.2.1", "x-delivery-count", 7, 7, true, true},
		{"RabbitMQ 4.3.6", "x-acquired-count", 9, 9, false, false},
		{"RabbitMQ 4.3.6", "x-delivery-count", 1, 1, false, false},
		{"Another 1.0", "x-delivery-count", 1, 1, true, true},
		{"Another 1.0", NULL, 0, 5, false, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct bench *b = bench_new();
		const struct message *message;

		b->fake.product = cases[i].product;
		start(b);
		message = deliver_counted(b, 1, cases[i].header, cases[i].count);
		ck_assert_msg(message->returns == cases[i].returns, "%zu: %u returns", i, message->returns);
		ck_assert_msg(message->returns_are_counted == cases[i].are_counted, "case %zu", i);
		ck_assert_msg(!!strstr(b->sink.detail, "QUEUE_UNSAFE") == cases[i].is_unsafe, "%zu: %s", i, b->sink.detail);
		/* What one delivery shows holds for those that come after it. */
		deliver(b, 2, 2);
		message = rig_sink_find(&b->sink, 2);
		ck_assert_uint_eq(message->returns, 0);
		ck_assert_msg(message->returns_are_counted == cases[i].are_counted, "case %zu", i);
		stop(b);
		bench_end(b);
	}
}
END_TEST

START_TEST(test_gives_back_while_it_runs)
{
	struct bench *b = bench_new();

	start(b);
	deliver(b, 1, 4);
	rig_settle(&b->sink, rig_sink_find(&b->sink, 3), SETTLE_BACK);
	calls_are(b, "nack 1 3; ");
	rig_done(&b->sink, 1);
	rig_done(&b->sink, 2);
	rig_done(&b->sink, 4);
	calls_are(b, "ack 1 <=4; ");
	stop(b);
	bench_end(b);
}
END_TEST

/* One command for all, or the end of the channel alone, as the broker's version wants it. */
static void stop_gives_back(const char *product, const char *last_calls)
{
	struct bench *b = bench_new();

	b->fake.product = product;
	start(b);
	deliver(b, 1, 5);
	rig_done(&b->sink, 1);
	b->sink.busy = true; /* all are in work */
	b->fake.answers = false;
	stop(b);
	calls_are(b, "cancel 1; ack 1 1; ");
	/* Deliveries that were under way are not shown to the sink any more. */
	deliver(b, 6, 7);
	ck_assert_uint_eq(b->sink.count, 4);
	event(b, RABBIT_EVENT_STOPPED, 0, NULL);
	rig_settle(&b->sink, rig_sink_find(&b->sink, 4), SETTLE_BACK);
	rig_settle(&b->sink, rig_sink_find(&b->sink, 2), SETTLE_BACK);
	rig_done(&b->sink, 3);
	calls_are(b, "ack 1 3; ");
	ck_assert(!b->sink.stopped);
	rig_done(&b->sink, 5);
	calls_are(b, last_calls);
	ck_assert(!b->sink.stopped);
	event(b, RABBIT_EVENT_CLOSED, 0, NULL);
	calls_are(b, "disconnect; ");
	bench_end(b);
}

START_TEST(test_stop_gives_back_in_order)
{
	stop_gives_back("RabbitMQ 3.10.8", "ack 1 5; close 1; ");
	stop_gives_back("RabbitMQ 3.13.7", "ack 1 5; close 1; ");
	stop_gives_back("RabbitMQ 4.0.5", "ack 1 5; nack 1 all; close 1; ");
	stop_gives_back("RabbitMQ 4.3.6", "ack 1 5; nack 1 all; close 1; ");
	stop_gives_back("Another 1.0", "ack 1 5; close 1; ");
}
END_TEST

START_TEST(test_stop_waits_for_the_answer_but_not_for_ever)
{
	struct bench *b = bench_new();

	start(b);
	deliver(b, 1, 2);
	b->fake.answers = false;
	stop(b);
	ck_assert_uint_eq(b->sink.count, 0);
	calls_are(b, "cancel 1; ");
	rig_loop_advance(&b->loop, 4 * US_PER_S);
	ck_assert(!b->sink.stopped);
	rig_loop_advance(&b->loop, 2 * US_PER_S);
	calls_are(b, "disconnect; ");
	bench_end(b);
}
END_TEST

START_TEST(test_missing_queue)
{
	struct bench *b = bench_new();

	b->fake.answers = false;
	b->consumer->ops->start(b->consumer);
	rig_loop_run(&b->loop);
	event(b, RABBIT_EVENT_OPENED, 0, NULL);
	event(b, RABBIT_EVENT_QOS, 0, NULL);
	event(b, RABBIT_EVENT_FAILED, 404, "NOT_FOUND - no queue 'q'");
	ck_assert_int_eq(b->sink.state, CONSUMER_MISSING);
	calls_are(b, "connect; open 1; qos 1 10; consume 1 q; ");
	b->fake.answers = true;
	rig_loop_advance(&b->loop, 600 * US_PER_MS);
	calls_are(b, "open 1; qos 1 10; consume 1 q; ");
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	stop(b);
	bench_end(b);
}
END_TEST

START_TEST(test_missing_again_and_again)
{
	struct bench *b = bench_new();
	unsigned attempts = 0;

	b->fake.answers = false;
	b->consumer->ops->start(b->consumer);
	rig_loop_run(&b->loop);
	for (int second = 0; second < 300; second++) {
		const char *calls = rabbit_fake_calls(&b->fake);

		if (strstr(calls, "open 1")) {
			attempts++;
			event(b, RABBIT_EVENT_OPENED, 0, NULL);
			event(b, RABBIT_EVENT_QOS, 0, NULL);
			event(b, RABBIT_EVENT_FAILED, 404, "NOT_FOUND");
		}
		rig_loop_advance(&b->loop, US_PER_S);
		ck_assert_int_eq(b->sink.state, CONSUMER_MISSING);
	}
	/* With backoff, and for ever. */
	ck_assert_msg(attempts > 18 && attempts < 60, "%u attempts", attempts);
	stop(b);
	bench_end(b);
}
END_TEST

START_TEST(test_cancelled_by_the_broker)
{
	struct bench *b = bench_new();

	start(b);
	deliver(b, 1, 3);
	event(b, RABBIT_EVENT_CANCELLED, 0, NULL);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONNECTING);
	/* What was delivered stays, and its tags stay good. */
	ck_assert_uint_eq(b->sink.count, 3);
	rig_done(&b->sink, 1);
	calls_are(b, "ack 1 1; ");
	rig_loop_advance(&b->loop, US_PER_S);
	calls_are(b, "consume 1 q; ");
	ck_assert_int_eq(b->sink.state, CONSUMER_CONSUMING);
	deliver(b, 4, 4);
	rig_done_all(&b->sink);
	calls_are(b, "ack 1 <=4; ");
	stop(b);
	bench_end(b);
}
END_TEST

START_TEST(test_old_tags_are_never_answered)
{
	struct bench *b = bench_new();
	struct message *old;

	start(b);
	deliver(b, 1, 3);
	b->sink.busy = true;
	event(b, RABBIT_EVENT_FAILED, 406, "PRECONDITION_FAILED - timeout");
	ck_assert_int_eq(b->sink.state, CONSUMER_CONNECTING);
	old = b->sink.messages[0];
	rig_loop_advance(&b->loop, US_PER_S);
	/* The connection stood through it. */
	calls_are(b, "open 1; qos 1 10; consume 1 q; ");
	deliver(b, 1, 2);
	ck_assert_uint_eq(b->sink.count, 5);
	ck_assert(old->token == 1 && b->sink.messages[3]->token == 1 && old->lease != b->sink.messages[3]->lease);
	rig_settle(&b->sink, old, SETTLE_DONE);
	calls_are(b, "");
	rig_settle(&b->sink, b->sink.messages[2], SETTLE_DONE);
	calls_are(b, "ack 1 1; ");
	b->sink.busy = false;
	stop(b);
	calls_are(b, "cancel 1; close 1; disconnect; ");
	bench_end(b);
}
END_TEST

START_TEST(test_connection_lost)
{
	struct bench *b = bench_new();

	start(b);
	deliver(b, 1, 3);
	b->fake.refuses = true;
	event(b, RABBIT_EVENT_LOST, 0, "gone");
	ck_assert_uint_eq(b->sink.count, 0); /* revoked: given back, and nothing said to the broker */
	ck_assert_int_eq(b->sink.state, CONSUMER_CONNECTING);
	ck_assert_str_eq(b->sink.detail, "gone");
	rig_loop_advance(&b->loop, 5 * US_PER_S);
	ck_assert_str_eq(b->sink.detail, "nobody is there");
	calls_are(b, "drop; ");
	b->fake.refuses = false;
	rig_loop_advance(&b->loop, 15 * US_PER_S);
	calls_are(b, "connect; open 1; qos 1 10; consume 1 q; ");
	stop(b);
	bench_end(b);
}
END_TEST

START_TEST(test_stop_without_a_connection)
{
	struct bench *b = bench_new();

	b->fake.refuses = true;
	b->consumer->ops->start(b->consumer);
	rig_loop_run(&b->loop);
	ck_assert_int_eq(b->sink.state, CONSUMER_CONNECTING);
	stop(b);
	rig_loop_advance(&b->loop, 60 * US_PER_S);
	ck_assert_uint_eq(b->fake.opened, 0);
	bench_end(b);
}
END_TEST

START_TEST(test_lost_while_stopping)
{
	struct bench *b = bench_new();

	start(b);
	deliver(b, 1, 2);
	b->sink.busy = true;
	b->fake.answers = false;
	stop(b);
	event(b, RABBIT_EVENT_LOST, 0, "gone");
	ck_assert(!b->sink.stopped);
	rig_done_all(&b->sink);
	rig_loop_run(&b->loop);
	calls_are(b, "cancel 1; drop; ");
	bench_end(b);
}
END_TEST

START_TEST(test_stop_at_every_step)
{
	/* After how many answers of the broker the stop comes. */
	static const enum rabbit_event_kind answers[] = {RABBIT_EVENT_OPENED, RABBIT_EVENT_QOS, RABBIT_EVENT_CONSUMING};
	struct bench *b = bench_new();

	b->fake.answers = false;
	b->consumer->ops->start(b->consumer);
	rig_loop_run(&b->loop);
	for (int i = 0; i < _i; i++)
		event(b, answers[i], 0, NULL);
	stop(b);
	for (int i = _i; i < 3 && !b->sink.stopped; i++)
		if (strstr(rabbit_fake_calls(&b->fake), "close 1"))
			event(b, RABBIT_EVENT_CLOSED, 0, NULL);
		else
			event(b, answers[i], 0, NULL);
	if (!b->sink.stopped && !strstr(rabbit_fake_calls(&b->fake), "close 1"))
		event(b, RABBIT_EVENT_STOPPED, 0, NULL);
	if (!b->sink.stopped)
		event(b, RABBIT_EVENT_CLOSED, 0, NULL);
	bench_end(b);
}
END_TEST

START_TEST(test_two_channels_of_one_connection)
{
	struct bench *b = bench_new();

	start(b);
	b->other = consumer_new(b, &b->other_sink, "p");
	b->other->ops->start(b->other);
	calls_are(b, "open 2; qos 2 10; consume 2 p; ");
	rabbit_fake_event(&b->fake,
			  &(struct rabbit_event){.kind = RABBIT_EVENT_DELIVERED, .channel = 2, .tag = 1, .body = STR("b")},
			  NULL);
	ck_assert_uint_eq(b->sink.count, 0);
	ck_assert_uint_eq(b->other_sink.count, 1);
	/* One channel fails: the other does not hear of it. */
	event(b, RABBIT_EVENT_FAILED, 404, "x");
	ck_assert_int_eq(b->other_sink.state, CONSUMER_CONSUMING);
	stop(b);
	ck_assert(b->sink.stopped);
	calls_are(b, "");
	b->other->ops->stop(b->other);
	calls_are(b, "cancel 2; close 2; disconnect; ");
	ck_assert(b->other_sink.stopped);
	bench_end(b);
}
END_TEST

static Suite *consumer_suite(void)
{
	Suite *suite = suite_create("amqp consumer");
	TCase *tcase = tcase_create("all");

	TEST_ADD_ALL(tcase, test_acks_are_gathered, test_returns_by_version, test_gives_back_while_it_runs,
		     test_stop_gives_back_in_order,
		     test_stop_waits_for_the_answer_but_not_for_ever, test_missing_queue, test_missing_again_and_again,
		     test_cancelled_by_the_broker, test_old_tags_are_never_answered, test_connection_lost,
		     test_stop_without_a_connection, test_lost_while_stopping, test_two_channels_of_one_connection);
	tcase_add_loop_test(tcase, test_stop_at_every_step, 0, 4);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(consumer_suite)
