/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which queues are safe for the engine to consume, by the version of RabbitMQ.
 *
 * The engine gives messages back at a stop, and the broker does when a connection breaks. A quorum queue counts that, by each
 * version in another way, and past its limit takes the message for poisonous: without a dead-letter exchange it is gone. The
 * limit is 20 by itself from 4.0 on. From 4.3 on a return at a stop is not counted, the loss of a connection still is.
 */
#include <inttypes.h>
#include <stdio.h>

#include "transports/amqp/probe.h"

#define DEFAULT_LIMIT 20
#define QUORUM_PREFETCH_MAX 2000

struct amqp_broker amqp_broker_of(struct str product, struct str version)
{
	struct amqp_broker broker = {.is_rabbitmq = str_equal(product, STR("RabbitMQ"))};
	char text[32];
	int major = 0, minor = 0;

	snprintf(text, sizeof(text), "%.*s", STR_ARG(version));
	if (broker.is_rabbitmq && sscanf(text, "%d.%d", &major, &minor) == 2 && major > 0 && minor < 100)
		broker.version = 100 * major + minor;
	return broker;
}

int64_t amqp_delivery_limit(const struct amqp_broker *broker, const struct amqp_queue_facts *facts)
{
	if (strcmp(facts->type, "quorum") != 0)
		return -1;
	if (facts->delivery_limit != AMQP_LIMIT_UNSET)
		return facts->delivery_limit;
	return broker->version >= 400 ? DEFAULT_LIMIT : -1;
}

static void judge_limit(const struct amqp_broker *broker, const char *object, const struct amqp_queue_facts *facts,
			struct report *report)
{
	int64_t limit = amqp_delivery_limit(broker, facts);

	if (limit >= 0 && !facts->has_dead_letter_exchange) {
		report_add(report, facts->policies_known ? SEVERITY_ERROR : SEVERITY_WARNING, CODE_INBOUND_AMQP_QUEUE_UNSAFE,
			   "queue-unsafe", object,
			   "a message returned more than %" PRId64 " times is thrown away%s: the queue has no dead-letter "
			   "exchange, and %s%s",
			   limit, facts->delivery_limit == AMQP_LIMIT_UNSET ? " (the broker's default)" : "",
			   broker->version >= 403 ? "every connection that breaks counts"
						  : "every stop of a replica and every connection that breaks counts",
			   facts->policies_known ? "" : "; which policies apply is not told yet, ask again in ten seconds");
		report_remedy(report, "set a policy with dead-letter-exchange for the queue, or declare it anew with the "
				      "argument x-dead-letter-exchange%s",
			      broker->version >= 400 || !broker->version ? ", or with x-delivery-limit = -1" :
									   " or without x-delivery-limit");
	}
	if (limit < 0 && facts->delivery_limit_is_policy && broker->version >= 400 && broker->version < 402) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "delivery-limit-policy", object,
			   "a policy lifts the delivery limit, which this version of RabbitMQ does not do reliably");
		report_remedy(report, "declare the queue with the argument x-delivery-limit = -1");
	}
	if (strcmp(facts->type, "quorum") == 0 && limit < 0 && broker->version >= 400 && broker->version < 403)
		report_add(report, SEVERITY_INFO, CODE_NONE, "returns-to-tail", object,
			   "without a delivery limit this version puts a returned message at the end of the queue: order by "
			   "key does not hold over a stop");
}

static void judge_life(const struct amqp_broker *broker, const char *object, const struct amqp_queue_facts *facts,
		       struct report *report)
{
	if (!facts->durable) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "queue-transient", object,
			   "the queue is not durable: a restart of the broker loses its messages%s",
			   broker->version >= 403 ? "; this version refuses to declare such queues" : "");
		report_remedy(report, "declare it durable, best as a quorum queue");
	}
	if (facts->auto_delete) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "queue-auto-delete", object,
			   "the queue is deleted, with its messages, when its last consumer goes");
		report_remedy(report, "declare it without auto-delete");
	}
	if (facts->exclusive) {
		report_add(report, SEVERITY_ERROR, CODE_INBOUND_SOURCE_SUSPICIOUS, "queue-exclusive", object,
			   "the queue belongs to another connection, exclusively");
		report_remedy(report, "declare it without exclusive");
	}
	if (facts->is_mirrored) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "queue-mirrored", object,
			   "classic mirrored queues are deprecated, and gone in RabbitMQ 4.0");
		report_remedy(report, "move to a quorum queue");
	}
	if (!facts->has_dead_letter_exchange &&
	    (facts->message_ttl_ms != AMQP_LIMIT_UNSET ||
	     ((facts->max_length != AMQP_LIMIT_UNSET || facts->max_length_bytes != AMQP_LIMIT_UNSET) &&
	      facts->overflow_drops_oldest))) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_SOURCE_SUSPICIOUS, "queue-drops", object,
			   "a time to live or a maximal length drops messages that the engine has not taken");
		report_remedy(report, "use overflow = reject-publish, take the limit off, or give the queue a dead-letter exchange");
	}
}

static void judge_consuming(const char *object, const struct probe_channel *channel,
			    const struct amqp_queue_facts *facts, int64_t consumer_timeout_ms, struct report *report)
{
	if (facts->is_single_active_consumer)
		report_add(report, SEVERITY_INFO, CODE_NONE, "single-active-consumer", object,
			   "x-single-active-consumer: one replica consumes, the others stand by");
	if (strcmp(facts->type, "quorum") == 0 && channel->max_in_flight > QUORUM_PREFETCH_MAX)
		report_add(report, SEVERITY_INFO, CODE_NONE, "prefetch-capped", object,
			   "max-in-flight is %u, of which a quorum queue gives %d", channel->max_in_flight,
			   QUORUM_PREFETCH_MAX);
	if (facts->consumer_timeout_ms != AMQP_LIMIT_UNSET && facts->consumer_timeout_ms < consumer_timeout_ms) {
		report_add(report, SEVERITY_WARNING, CODE_CONFIG_CONNECTION_SUSPICIOUS, "consumer-timeout", object,
			   "the queue's consumer timeout is %" PRId64 " ms, the connection's consumer-timeout says %" PRId64
			   " ms: channels would be closed under held messages",
			   facts->consumer_timeout_ms, consumer_timeout_ms);
		report_remedy(report, "set consumer-timeout of the connection to the queue's, or raise the queue's");
	}
}

static void judge_unknown(const struct amqp_broker *broker, const char *object, struct report *report)
{
	if (broker->version >= 400) {
		report_add(report, SEVERITY_WARNING, CODE_INBOUND_AMQP_QUEUE_UNSAFE, "queue-unknown", object,
			   "type and limits are not known; if it is a quorum queue, a message returned more than %d times is "
			   "thrown away unless the queue has a dead-letter exchange",
			   DEFAULT_LIMIT);
		report_remedy(report, "give the queue a dead-letter exchange, and set management-url of the connection so that "
				      "it can be checked");
		return;
	}
	report_add(report, SEVERITY_INFO, CODE_NONE, "queue-unknown", object,
		   "type and limits are not known: management-url of the connection is not set or does not answer");
}

void amqp_judge_queue(const struct amqp_broker *broker, const struct probe_channel *channel,
		      const struct amqp_queue_facts *facts, int64_t consumer_timeout_ms, struct report *report)
{
	char object[300];

	snprintf(object, sizeof(object), "queue %s", channel->bind);
	if (channel->longest_hold_ms > consumer_timeout_ms / 3) {
		report_add(report, SEVERITY_INFO, CODE_NONE, "hold-shortened", object,
			   "refusal.hold is %" PRId64 " s, and a message is held for a third of consumer-timeout (%" PRId64
			   " s) at most",
			   channel->longest_hold_ms / 1000, consumer_timeout_ms / 1000);
	}
	if (!broker->is_rabbitmq)
		return;
	if (!facts) {
		judge_unknown(broker, object, report);
		return;
	}
	if (strcmp(facts->type, "stream") == 0) {
		report_add(report, SEVERITY_ERROR, CODE_INBOUND_SOURCE_SUSPICIOUS, "queue-stream", object,
			   "a stream keeps what was acknowledged, so each start would read it again from the offset asked for");
		report_remedy(report, "use a quorum queue");
		return;
	}
	report_add(report, SEVERITY_INFO, CODE_NONE, "queue", object, "%s queue%s", facts->type,
		   facts->has_dead_letter_exchange ? " with a dead-letter exchange" : "");
	judge_limit(broker, object, facts, report);
	judge_life(broker, object, facts, report);
	judge_consuming(object, channel, facts, consumer_timeout_ms, report);
}
