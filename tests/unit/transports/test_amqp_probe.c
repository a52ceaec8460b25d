/* SPDX-License-Identifier: Apache-2.0 */
/* Which queues are safe by the version of RabbitMQ; what the management API says of a queue. */
#include "tests/support/testing.h"
#include "transports/amqp/probe.h"

static const struct probe_channel payments = {.tenant = "default", .channel = "payments", .bind = "payments",
					      .is_inbound = true, .max_in_flight = 256};

static struct amqp_queue_facts facts_of(const char *json)
{
	struct amqp_queue_facts facts;
	struct error err = ERROR_INIT;

	ck_assert_msg(amqp_management_parse(str_of(json), &facts, &err) == RESULT_OK, "%s", err.text);
	return facts;
}

#define QUEUE(arguments, policy) \
	"{\"name\":\"payments\",\"durable\":true,\"auto_delete\":false,\"exclusive\":false,\"type\":\"quorum\"," \
	"\"arguments\":{" arguments "},\"effective_policy_definition\":{" policy "}}"
#define DLX_ARGUMENT "\"x-dead-letter-exchange\":\"dead\""
#define DLX_POLICY   "\"dead-letter-exchange\":\"\""

/* A quorum queue of each era: is it safe, and what is said besides? */
static const struct {
	const char *version;
	const char *queue; /* NULL: no management API */
	int64_t limit;	   /* that applies; -1 = none */
	const char *check; /* must be found; NULL: neither error nor warning */
	enum severity severity;
	const char *remedy;
} eras[] = {
	{"3.10.8", QUEUE("", ""), -1, NULL, SEVERITY_INFO, NULL},
	{"3.10.8", QUEUE("\"x-delivery-limit\":5", ""), 5, "queue-unsafe", SEVERITY_ERROR, "without x-delivery-limit"},
	{"3.13.7", QUEUE("", "\"delivery-limit\":5"), 5, "queue-unsafe", SEVERITY_ERROR, "x-dead-letter-exchange"},
	{"3.13.7", QUEUE("\"x-delivery-limit\":5," DLX_ARGUMENT, ""), 5, NULL, SEVERITY_INFO, NULL},
	{"3.13.7", QUEUE("\"x-delivery-limit\":5", DLX_POLICY), 5, NULL, SEVERITY_INFO, NULL},
	{"4.0.5", QUEUE("", ""), 20, "queue-unsafe", SEVERITY_ERROR, "x-delivery-limit = -1"},
	{"4.0.5", QUEUE(DLX_ARGUMENT, ""), 20, NULL, SEVERITY_INFO, NULL},
	{"4.0.5", QUEUE("\"x-delivery-limit\":-1", ""), -1, NULL, SEVERITY_INFO, NULL},
	{"4.0.5", QUEUE("", "\"delivery-limit\":-1"), -1, "delivery-limit-policy", SEVERITY_WARNING, "argument"},
	{"4.2.1", QUEUE("", "\"delivery-limit\":-1"), -1, NULL, SEVERITY_INFO, NULL},
	/* An argument that lifts the limit gives way to a policy that sets one, and the smaller of two counts. */
	{"4.1.0", QUEUE("\"x-delivery-limit\":-1", "\"delivery-limit\":9"), 9, "queue-unsafe", SEVERITY_ERROR, ""},
	{"4.1.0", QUEUE("\"x-delivery-limit\":7", "\"delivery-limit\":9"), 7, "queue-unsafe", SEVERITY_ERROR, ""},
	{"4.3.6", QUEUE("", ""), 20, "queue-unsafe", SEVERITY_ERROR, "dead-letter-exchange"},
	{"4.3.6", QUEUE("\"x-delivery-limit\":-1", ""), -1, NULL, SEVERITY_INFO, NULL},
	/* What the broker says itself counts most. */
	{"4.3.6",
	 "{\"name\":\"q\",\"durable\":true,\"type\":\"quorum\",\"delivery_limit\":30,\"effective_policy_definition\":{}}", 30,
	 "queue-unsafe", SEVERITY_ERROR, ""},
	/* Before the figures of the queue have come there is no word of policies. */
	{"4.0.5", "{\"name\":\"q\",\"durable\":true,\"type\":\"quorum\"}", 20, "queue-unsafe", SEVERITY_WARNING, ""},
	{"3.10.8", NULL, -1, NULL, SEVERITY_INFO, NULL},
	{"4.0.5", NULL, 20, "queue-unknown", SEVERITY_WARNING, "management-url"},
	{"4.3.6", NULL, 20, "queue-unknown", SEVERITY_WARNING, "management-url"},
};

START_TEST(delivery_limits_by_version)
{
	struct amqp_broker broker = amqp_broker_of(STR("RabbitMQ"), str_of(eras[_i].version));
	struct amqp_queue_facts facts;
	struct report report;

	report_init(&report);
	if (eras[_i].queue) {
		facts = facts_of(eras[_i].queue);
		if (eras[_i].limit >= 0)
			ck_assert_int_eq(amqp_delivery_limit(&broker, &facts), eras[_i].limit);
		else
			ck_assert_int_lt(amqp_delivery_limit(&broker, &facts), 0);
	}
	amqp_judge_queue(&broker, &payments, eras[_i].queue ? &facts : NULL, 1800000, &report);
	ck_assert_uint_eq(report.errors, eras[_i].severity == SEVERITY_ERROR);
	ck_assert_uint_eq(report.warnings, eras[_i].severity == SEVERITY_WARNING);
	if (eras[_i].check) {
		const struct report_entry *entry = report_find(&report, eras[_i].check, 0);

		ck_assert_ptr_nonnull(entry);
		ck_assert_int_eq(entry->severity, eras[_i].severity);
		ck_assert_str_eq(entry->object, "queue payments");
		ck_assert_msg(strstr(entry->remedy, eras[_i].remedy) != NULL, "%s", entry->remedy);
	}
	if (eras[_i].severity == SEVERITY_ERROR)
		ck_assert_int_eq(report_find(&report, "queue-unsafe", 0)->code, CODE_INBOUND_AMQP_QUEUE_UNSAFE);
	report_done(&report);
}
END_TEST

static const struct {
	const char *version;
	const char *queue;
	const char *check;
	enum severity severity;
} queues[] = {
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"type\":\"classic\"}", "queue", SEVERITY_INFO},
	{"3.12.0", "{\"name\":\"q\",\"durable\":false,\"type\":\"classic\"}", "queue-transient", SEVERITY_WARNING},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"auto_delete\":true}", "queue-auto-delete", SEVERITY_WARNING},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"exclusive\":true}", "queue-exclusive", SEVERITY_ERROR},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"type\":\"stream\"}", "queue-stream", SEVERITY_ERROR},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"effective_policy_definition\":{\"ha-mode\":\"all\"}}", "queue-mirrored",
	 SEVERITY_WARNING},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"arguments\":{\"x-max-length\":10}}", "queue-drops", SEVERITY_WARNING},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"arguments\":{\"x-max-length\":10,\"x-overflow\":\"reject-publish\"}}",
	 "queue", SEVERITY_INFO},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"arguments\":{\"x-single-active-consumer\":true}}",
	 "single-active-consumer", SEVERITY_INFO},
	{"3.12.0", "{\"name\":\"q\",\"durable\":true,\"arguments\":{\"x-consumer-timeout\":60000}}", "consumer-timeout",
	 SEVERITY_WARNING},
	/* An answer before the type was in it. */
	{"4.0.5", "{\"name\":\"q\",\"durable\":true,\"arguments\":{\"x-queue-type\":\"quorum\",\"x-delivery-limit\":-1}}", "returns-to-tail",
	 SEVERITY_INFO},
};

START_TEST(queues_by_kind)
{
	struct amqp_broker broker = amqp_broker_of(STR("RabbitMQ"), str_of(queues[_i].version));
	struct amqp_queue_facts facts = facts_of(queues[_i].queue);
	struct report report;

	report_init(&report);
	amqp_judge_queue(&broker, &payments, &facts, 1800000, &report);
	ck_assert_ptr_nonnull(report_find(&report, queues[_i].check, 0));
	ck_assert_int_eq(report_find(&report, queues[_i].check, 0)->severity, queues[_i].severity);
	ck_assert_uint_eq(report.errors, queues[_i].severity == SEVERITY_ERROR);
	ck_assert_uint_eq(report.warnings, queues[_i].severity == SEVERITY_WARNING);
	report_done(&report);
}
END_TEST

START_TEST(holds_against_the_consumer_timeout)
{
	struct amqp_broker broker = amqp_broker_of(STR("RabbitMQ"), STR("3.10.8"));
	struct probe_channel channel = payments;
	struct report report;

	report_init(&report);
	channel.longest_hold_ms = 600000;
	amqp_judge_queue(&broker, &channel, NULL, 1800000, &report);
	ck_assert_ptr_null(report_find(&report, "hold-shortened", 0));
	channel.longest_hold_ms++;
	amqp_judge_queue(&broker, &channel, NULL, 1800000, &report);
	ck_assert_ptr_nonnull(report_find(&report, "hold-shortened", 0));
	ck_assert_uint_eq(report.warnings, 0);
	report_done(&report);
}
END_TEST

START_TEST(products_and_versions)
{
	ck_assert_int_eq(amqp_broker_of(STR("RabbitMQ"), STR("4.3.0-rc.1")).version, 403);
	ck_assert_int_eq(amqp_broker_of(STR("RabbitMQ"), STR("?")).version, 0);
	ck_assert(!amqp_broker_of(STR("Qpid"), STR("9.1.0")).is_rabbitmq);
	ck_assert_int_eq(amqp_broker_of(STR("Qpid"), STR("9.1.0")).version, 0);
}
END_TEST

START_TEST(answers_that_are_none)
{
	static const char *const bodies[] = {"", "{", "[]", "{\"error\":\"Object Not Found\"}", "<html></html>"};
	struct amqp_queue_facts facts;

	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		struct error err = ERROR_INIT;

		ck_assert_int_eq(amqp_management_parse(str_of(bodies[i]), &facts, &err), RESULT_AGAIN);
	}
}
END_TEST

static Suite *probe_suite(void)
{
	Suite *suite = suite_create("amqp probe");
	TCase *tcase = tcase_create("rules");

	tcase_add_loop_test(tcase, delivery_limits_by_version, 0, (int)ARRAY_LEN(eras));
	tcase_add_loop_test(tcase, queues_by_kind, 0, (int)ARRAY_LEN(queues));
	TEST_ADD_ALL(tcase, holds_against_the_consumer_timeout, products_and_versions, answers_that_are_none);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(probe_suite)
