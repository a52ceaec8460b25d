/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Kafka transport against a broker, over real loops: what the scripted client of the unit tests cannot show, that the
 * seam over the library keeps its contract.
 *
 * By itself it starts librdkafka's mock cluster, where a group needs three seconds for its first assignment and a session
 * must be longer than that. With SUTRA_TEST_KAFKA=host:port it uses that broker, and topics PREFIX-TEST that must exist, where
 * PREFIX is SUTRA_TEST_PREFIX: so tests/system/test_kafka_transport.py runs it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"
#include "tests/support/testing.h"
#include "transports/kafka/kafka.h"
#include "transports/kafka/mock.h"

#define WAIT_MS 60000

/* A sink that settles everything DONE in the next round, or keeps it. */
struct sink {
	struct consumer_sink base;
	struct consumer *consumer;
	struct list kept; /* the loop's */
	/* Atomic: */
	bool keep;
	uint64_t delivered, done;
	int state;
	bool stopped;

	bool (*seen)[300]; /* by partition and offset; may be NULL */
	void (*check)(const struct message *message);
};

struct settle_task {
	struct task task;
	struct sink *sink;
	struct message *message;
};

static void settle_run(struct task *task)
{
	struct settle_task *settle = container_of(task, struct settle_task, task);
	struct sink *sink = settle->sink;

	if (sink->seen)
		sink->seen[(unsigned char)settle->message->order_key.ptr[3]][settle->message->token] = true;
	__atomic_add_fetch(&sink->done, 1, __ATOMIC_RELEASE);
	sink->consumer->ops->settle(sink->consumer, settle->message, SETTLE_DONE);
}

static void settle_later(struct sink *sink, struct message *message)
{
	struct settle_task *settle = arena_zalloc(&message->arena, sizeof(*settle));

	*settle = (struct settle_task){{NULL, settle_run}, sink, message};
	loop_post(sink->consumer->loop, &settle->task);
}

static void sink_deliver(struct consumer_sink *base, struct message *message)
{
	struct sink *sink = container_of(base, struct sink, base);

	if (sink->check)
		sink->check(message);
	if (__atomic_load_n(&sink->keep, __ATOMIC_ACQUIRE))
		list_push(&sink->kept, &message->link);
	else
		settle_later(sink, message);
	__atomic_add_fetch(&sink->delivered, 1, __ATOMIC_RELEASE);
}

static void sink_revoke(struct consumer_sink *base, void *lease)
{
	struct sink *sink = container_of(base, struct sink, base);

	list_for_each(&sink->kept, pos, tmp) {
		struct message *message = list_entry(pos, struct message, link);

		if (lease && message->lease != lease)
			continue;
		list_remove(&message->link);
		sink->consumer->ops->settle(sink->consumer, message, SETTLE_BACK);
	}
}

static void sink_state(struct consumer_sink *base, enum consumer_state state, const char *detail UNUSED)
{
	__atomic_store_n(&container_of(base, struct sink, base)->state, (int)state, __ATOMIC_RELEASE);
}

static void sink_stopped(struct consumer_sink *base)
{
	__atomic_store_n(&container_of(base, struct sink, base)->stopped, true, __ATOMIC_RELEASE);
}

struct rig {
	struct kafka_mock *mock; /* NULL: a real broker */
	char topic[100];
	struct transport_connection connection;
	const char *names[8];
	const char *values[8];
	struct publisher *publisher;
	struct test_latch answers;
};

static void rig_init(struct rig *rig, const char *test, int partitions)
{
	struct error err = ERROR_INIT;
	const char *bootstrap = getenv("SUTRA_TEST_KAFKA");

	*rig = (struct rig){.answers = TEST_LATCH_INIT};
	snprintf(rig->topic, sizeof(rig->topic), "%s-%s", getenv("SUTRA_TEST_PREFIX") ?: "orders", test);
	log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
	if (!bootstrap) {
		ck_assert_msg(kafka_mock_start(&rig->mock, &err) == RESULT_OK, "%s", err.text);
		ck_assert(kafka_mock_topic(rig->mock, rig->topic, partitions, &err) == RESULT_OK);
	}
	rig->names[0] = "bootstrap.servers";
	rig->values[0] = bootstrap ? bootstrap : kafka_mock_bootstrap(rig->mock);
	rig->names[1] = "session.timeout.ms";
	rig->values[1] = "6000";
	rig->names[2] = "heartbeat.interval.ms";
	rig->values[2] = "300";
	rig->names[3] = "statistics.interval.ms";
	rig->values[3] = "200";
	rig->connection = (struct transport_connection){.transport = &transport_kafka,
							.name = "kafka",
							.property_names = rig->names,
							.property_values = rig->values,
							.property_count = 4};
	rig->connection.consume_loop = loop_start(runtime_threads(), "in-kafka");
	rig->connection.publish_loop = loop_start(runtime_threads(), "out-kafka");
	ck_assert_msg(transport_kafka.open(&rig->connection, &err) == RESULT_OK, "%s", err.text);
	rig->publisher = transport_kafka.publisher_new(&rig->connection);
}

static void publisher_start(void *arg)
{
	struct publisher *publisher = arg;

	publisher->ops->start(publisher);
}

struct stop {
	struct task task;
	struct test_latch *latch;
};

static void stop_done(struct task *task)
{
	test_latch_raise(container_of(task, struct stop, task)->latch);
}

static void rig_done(struct rig *rig)
{
	struct test_latch latch = TEST_LATCH_INIT;
	struct stop stop = {{NULL, stop_done}, &latch};

	rig->publisher->ops->stop(rig->publisher, 5000, rig->connection.publish_loop, &stop.task);
	ck_assert(test_latch_wait(&latch, 1, WAIT_MS));
	loop_stop(&rig->connection.consume_loop);
	loop_stop(&rig->connection.publish_loop);
	rig->publisher->ops->free(rig->publisher);
	transport_kafka.close(&rig->connection);
	kafka_mock_stop(&rig->mock);
}

static void consumer_start(void *arg)
{
	struct consumer *consumer = arg;

	consumer->ops->start(consumer);
}

static void consumer_stop(void *arg)
{
	struct consumer *consumer = arg;

	consumer->ops->stop(consumer);
}

static void sink_start(struct rig *rig, struct sink *sink, uint32_t max_in_flight)
{
	struct consumer_settings settings = {.loop = rig->connection.consume_loop,
					     .tenant = "t",
					     .channel = "c",
					     .bind = rig->topic,
					     .group = rig->topic,
					     .max_in_flight = max_in_flight};

	sink->base = (struct consumer_sink){sink_deliver, sink_revoke, sink_state, sink_stopped};
	list_init(&sink->kept);
	sink->consumer = transport_kafka.consumer_new(&rig->connection, &settings, &sink->base);
	loop_call(settings.loop, consumer_start, sink->consumer);
}

static void nothing(void *arg UNUSED)
{
}

static bool sink_is_stopped(void *arg)
{
	return __atomic_load_n(&((struct sink *)arg)->stopped, __ATOMIC_ACQUIRE);
}

static void sink_stop(struct rig *rig, struct sink *sink)
{
	loop_call(rig->connection.consume_loop, consumer_stop, sink->consumer);
	ck_assert(test_wait(sink_is_stopped, sink, WAIT_MS));
	/* The loop has run past the last call. */
	loop_call(rig->connection.consume_loop, nothing, NULL);
	sink->consumer->ops->free(sink->consumer);
}

/* --- publishing --- */

struct sent {
	struct publication pub;
	struct rig *rig;
	char key[16], id[24];
	struct header header;
};

static void sent_done(struct task *task)
{
	struct sent *sent = container_of(task, struct sent, pub.done);

	test_latch_raise(&sent->rig->answers);
}

static struct sent *publish(struct rig *rig, size_t count, size_t first, size_t body)
{
	struct sent *sents = mem_zalloc(count * sizeof(*sents));
	char *bytes = mem_zalloc(body + 1);

	memset(bytes, 'x', body);
	for (size_t i = 0; i < count; i++) {
		struct sent *sent = &sents[i];

		sent->rig = rig;
		snprintf(sent->key, sizeof(sent->key), "k%zu", i % 50);
		snprintf(sent->id, sizeof(sent->id), "id-%zu", first + i);
		sent->header = (struct header){STR("n"), value_int((int64_t)(first + i))};
		sent->pub = (struct publication){.destination = str_of(rig->topic),
						 .key = str_of(sent->key),
						 .body = str_make(bytes, body),
						 .content_type = STR("text/plain"),
						 .message_id = str_of(sent->id),
						 .correlation = value_nil(),
						 .headers = {&sent->header, 1},
						 .reply_to = rig->connection.publish_loop,
						 .done.run = sent_done};
		rig->publisher->ops->publish(rig->publisher, &sent->pub);
	}
	ck_assert(test_latch_wait(&rig->answers, (int64_t)(first + count), WAIT_MS));
	free(bytes);
	return sents;
}

static void publish_well(struct rig *rig, size_t count, size_t first, size_t body)
{
	struct sent *sents = publish(rig, count, first, body);

	for (size_t i = 0; i < count; i++)
		ck_assert_msg(sents[i].pub.outcome == PUBLISH_CONFIRMED, "%s", sents[i].pub.text);
	free(sents);
}

static bool done_100(void *arg)
{
	return __atomic_load_n(&((struct sink *)arg)->done, __ATOMIC_ACQUIRE) >= 100;
}

static void check_message(const struct message *message)
{
	const struct header *id = header_find(&message->headers, STR("sutra-outbox-key"));
	const struct header *number = header_find(&message->headers, STR("n"));

	ck_assert(id && number && message->key.ptr);
	ck_assert_str_slice(message->content_type, STR("text/plain"));
	ck_assert_uint_eq(message->body.len, 100);
	ck_assert(str_starts_with(value_as_str(&id->value), STR("id-")));
	ck_assert(str_equal(str_make(value_as_str(&id->value).ptr + 3, value_as_str(&id->value).len - 3),
			    value_as_str(&number->value)));
	ck_assert(message->time_us > 0);
}

START_TEST(test_there_and_committed)
{
	struct rig rig;
	struct sink first = {.check = check_message}, second = {.check = check_message};

	rig_init(&rig, "committed", 3);
	loop_call(rig.connection.publish_loop, publisher_start, rig.publisher);
	publish_well(&rig, 100, 0, 100);
	ck_assert(__atomic_load_n(&rig.publisher->up, __ATOMIC_ACQUIRE));
	sink_start(&rig, &first, 10);
	ck_assert(test_wait(done_100, &first, WAIT_MS));
	ck_assert_int_eq(__atomic_load_n(&first.state, __ATOMIC_ACQUIRE), CONSUMER_CONSUMING);
	sink_stop(&rig, &first);
	ck_assert_uint_eq(first.delivered, 100);
	/* Another one begins where this one ended. */
	publish_well(&rig, 100, 100, 100);
	sink_start(&rig, &second, 10);
	ck_assert(test_wait(done_100, &second, WAIT_MS));
	sink_stop(&rig, &second);
	ck_assert_uint_eq(second.delivered, 100);
	rig_done(&rig);
}
END_TEST

struct pair {
	struct sink one, two;
	bool seen[3][300]; /* what was settled DONE; the loop's, until both have stopped */
};

static bool pair_done(void *arg)
{
	struct pair *pair = arg;

	return __atomic_load_n(&pair->two.done, __ATOMIC_ACQUIRE) >= 200;
}

static bool two_has_some(void *arg)
{
	return __atomic_load_n(&((struct pair *)arg)->two.delivered, __ATOMIC_ACQUIRE) > 0;
}

static bool one_is_full(void *arg)
{
	return __atomic_load_n(&((struct pair *)arg)->one.delivered, __ATOMIC_ACQUIRE) >= 5;
}

/* The first one holds a full window, paused; a second joins: what moves is read again there, nothing is lost. */
START_TEST(test_two_members)
{
	struct rig rig;
	struct pair pair = {0};
	size_t distinct = 0;

	rig_init(&rig, "members", 3);
	loop_call(rig.connection.publish_loop, publisher_start, rig.publisher);
	publish_well(&rig, 200, 0, 100);
	pair.one.keep = true;
	pair.one.seen = pair.two.seen = pair.seen;
	sink_start(&rig, &pair.one, 5);
	ck_assert(test_wait(one_is_full, &pair, WAIT_MS));
	sink_start(&rig, &pair.two, 1000);
	ck_assert(test_wait(two_has_some, &pair, WAIT_MS));
	/* It leaves, everything with it; the rest comes to the second. */
	sink_stop(&rig, &pair.one);
	ck_assert_uint_eq(pair.one.done, 0);
	ck_assert(test_wait(pair_done, &pair, WAIT_MS));
	sink_stop(&rig, &pair.two);
	/* A member that was thrown out for a moment reads some again; none may be left out. */
	for (size_t i = 0; i < 3 * 300; i++)
		distinct += pair.seen[i / 300][i % 300];
	ck_assert_uint_eq(distinct, 200);
	rig_done(&rig);
}
END_TEST

static bool lag_is_known(void *arg)
{
	return __atomic_load_n(&((struct sink *)arg)->consumer->lag, __ATOMIC_ACQUIRE) == 0;
}

START_TEST(test_large_bodies_and_lag)
{
	struct rig rig;
	struct sink sink = {0};

	rig_init(&rig, "large", 3);
	loop_call(rig.connection.publish_loop, publisher_start, rig.publisher);
	publish_well(&rig, 3, 0, 900000);
	sink_start(&rig, &sink, 100);
	ck_assert(test_wait(lag_is_known, &sink, WAIT_MS));
	ck_assert_uint_eq(__atomic_load_n(&sink.done, __ATOMIC_ACQUIRE), 3);
	sink_stop(&rig, &sink);
	rig_done(&rig);
}
END_TEST

static bool is_missing(void *arg)
{
	return __atomic_load_n(&((struct sink *)arg)->state, __ATOMIC_ACQUIRE) == CONSUMER_MISSING;
}

/* The mock cluster makes every topic that is asked for, and takes any size. */
START_TEST(test_missing_and_too_large)
{
	struct rig rig;
	struct sink sink = {0};
	struct sent *sents;

	if (!getenv("SUTRA_TEST_KAFKA"))
		return;
	rig_init(&rig, "nosuch", 0);
	loop_call(rig.connection.publish_loop, publisher_start, rig.publisher);
	sink_start(&rig, &sink, 10);
	ck_assert(test_wait(is_missing, &sink, WAIT_MS));
	sents = publish(&rig, 2, 0, 100);
	ck_assert_int_eq(sents[0].pub.outcome, PUBLISH_UNROUTABLE);
	ck_assert_int_eq(sents[1].pub.outcome, PUBLISH_UNROUTABLE);
	ck_assert(sents[0].pub.text[0]);
	free(sents);
	sink_stop(&rig, &sink);
	rig_done(&rig);
	/* It is the broker that refuses the size, not the client. */
	rig_init(&rig, "large", 3);
	loop_call(rig.connection.publish_loop, publisher_start, rig.publisher);
	sents = publish(&rig, 1, 0, 3000000);
	ck_assert_int_eq(sents[0].pub.outcome, PUBLISH_REJECTED);
	free(sents);
	rig_done(&rig);
}
END_TEST

static void refused(const char *name, const char *value, const char *text)
{
	struct transport_connection connection = {.transport = &transport_kafka,
						  .name = "kafka",
						  .property_names = &name,
						  .property_values = &value,
						  .property_count = 1};
	struct error err = ERROR_INIT;

	ck_assert_msg(transport_kafka.open(&connection, &err) == RESULT_REJECT, "%s=%s", name, value);
	ck_assert_int_eq(err.code, CODE_CONFIG_PROPERTY_INVALID);
	ck_assert_msg(strstr(err.text, text), "%s", err.text);
}

START_TEST(test_properties)
{
	refused("enable.auto.commit", "true", "must be 'false'");
	refused("enable.auto.offset.store", "true", "must be 'false'");
	refused("enable.idempotence", "false", "must be 'true'");
	refused("partition.assignment.strategy", "range", "must be 'cooperative-sticky'");
	refused("group.id", "mine", "engine alone");
	refused("transactional.id", "mine", "engine alone");
	refused("log.queue", "false", "must be 'true'");
	refused("rebalance_cb", "x", "cannot be set");
	refused("no.such.thing", "x", "no.such.thing");
	refused("session.timeout.ms", "soon", "session.timeout.ms");
	/* Only the making of a producer finds this one. */
	refused("max.in.flight.requests.per.connection", "10", "max.in.flight");
}
END_TEST

static Suite *mock_suite(void)
{
	Suite *suite = suite_create("kafka mock");
	TCase *tcase = tcase_create("mock");

	TEST_ADD_ALL(tcase, test_properties, test_there_and_committed, test_two_members, test_large_bodies_and_lag,
		     test_missing_and_too_large);
	tcase_set_timeout(tcase, 200);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(mock_suite)
