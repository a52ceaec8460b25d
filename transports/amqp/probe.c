/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a broker for AMQP: a connection of its own, and for each queue and exchange a passive declaration on a channel of its
 * own, since the broker closes the channel that asked for what is not there. Nothing is consumed, declared or changed.
 */
#include "transports/amqp/probe.h"

#include <stdio.h>

#include "base/time.h"
#include "transports/amqp/amqp.h"
#include "transports/amqp/connect.h"

/* What the client asks for; a broker may give less. */
#define FRAME_MAX 131072

struct prober {
	const struct transport_connection *connection;
	const struct probe_question *question;
	struct report *report;
	amqp_connection_state_t conn;
	struct amqp_broker broker;
	uint16_t channel;
	bool is_lost; /* the connection broke: nothing more can be asked */
};

/* The broker's reply code: 0 = it is there, 404 missing, 403 not allowed, 405 exclusive; -1 = nobody knows. */
static int answer_code(struct prober *p, char *text, size_t size)
{
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(p->conn);
	const amqp_channel_close_t *close = reply.reply.decoded;

	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		return 0;
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
		snprintf(text, size, "%.*s", STR_ARG(rabbit_str(close->reply_text)));
		return close->reply_code;
	}
	p->is_lost = true;
	snprintf(text, size, "%s", reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION ?
					   amqp_error_string2(reply.library_error) : "the broker closed the connection");
	return -1;
}

static bool channel_next(struct prober *p)
{
	char text[300];

	p->channel++;
	amqp_channel_open(p->conn, p->channel);
	if (!p->is_lost && answer_code(p, text, sizeof(text)) == 0)
		return true;
	p->is_lost = true;
	return false;
}

static void channel_end(struct prober *p, int code)
{
	/* A channel that the broker closed is answered; an open one is closed. */
	if (code > 0) {
		amqp_channel_close_ok_t ok = {0};

		amqp_send_method(p->conn, p->channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
	} else if (code == 0) {
		amqp_channel_close(p->conn, p->channel, AMQP_REPLY_SUCCESS);
	}
	amqp_maybe_release_buffers(p->conn);
}

static int ask_queue(struct prober *p, struct str queue, uint32_t *messages, uint32_t *consumers, char *text, size_t size)
{
	const amqp_queue_declare_ok_t *ok;
	int code;

	if (!channel_next(p))
		return -1;
	ok = amqp_queue_declare(p->conn, p->channel, rabbit_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
	code = answer_code(p, text, size);
	if (ok) {
		*messages = ok->message_count;
		*consumers = ok->consumer_count;
	}
	channel_end(p, code);
	return code;
}

static int ask_exchange(struct prober *p, struct str exchange, char *text, size_t size)
{
	int code;

	if (!channel_next(p))
		return -1;
	amqp_exchange_declare(p->conn, p->channel, rabbit_bytes(exchange), amqp_empty_bytes, 1, 0, 0, 0,
			      amqp_empty_table);
	code = answer_code(p, text, size);
	channel_end(p, code);
	return code;
}

/* What it means that something is not simply there. True if it is missing or out of reach. */
static bool report_code(struct prober *p, int code, const struct probe_channel *channel, const char *object,
			const char *text)
{
	struct report *report = p->report;

	if (code == 404) {
		report_add(report, SEVERITY_ERROR, channel->is_inbound ? CODE_INBOUND_SOURCE_MISSING : CODE_OUTBOUND_UNROUTABLE,
			   strncmp(object, "queue", 5) == 0 ? "queue-missing" : "exchange-missing", object,
			   "it does not exist; channel %s/%s needs it", channel->tenant, channel->channel);
		report_remedy(report, "create it in this virtual host; the engine creates nothing");
	} else if (code == 405) {
		report_add(report, SEVERITY_ERROR, CODE_INBOUND_SOURCE_SUSPICIOUS, "queue-exclusive", object,
			   "it belongs to another connection, exclusively");
		report_remedy(report, "declare it without exclusive");
	} else if (code == 403) {
		report_add(report, SEVERITY_WARNING, CODE_CONFIG_CONNECTION_SUSPICIOUS, "not-permitted", object,
			   "the user may not ask for it: %s", text);
		report_remedy(report, "give the user read access to queues and write access to exchanges; a broker that wants the "
				      "permission configure for this question tells it by management-url");
	} else if (code != 0) {
		report_add(report, SEVERITY_ERROR, CODE_STARTUP_BROKER, "broker-lost", object, "cannot be asked for: %s",
			   text);
		report_remedy(report, "look at the broker's log");
	}
	return code != 0;
}

/* True if the management API told something. */
static bool ask_management(struct prober *p, const char *queue, struct amqp_queue_facts *facts, enum result *result)
{
	struct error err = ERROR_INIT;

	*result = RESULT_AGAIN;
	if (!p->connection->management_url || !p->broker.is_rabbitmq)
		return false;
	*result = amqp_management_queue(p->connection, queue, p->question->timeout_ms, facts, &err);
	if (*result == RESULT_AGAIN && !report_find(p->report, "management", 0)) {
		report_add(p->report, SEVERITY_WARNING, CODE_CONFIG_CONNECTION_SUSPICIOUS, "management", NULL, "%s",
			   err.text);
		report_remedy(p->report, "check management-url, and that its user has the tag 'monitoring'");
	}
	return *result == RESULT_OK;
}

static void probe_inbound(struct prober *p, const struct probe_channel *channel)
{
	struct amqp_queue_facts facts;
	uint32_t messages = 0, consumers = 0;
	char object[300], text[300] = "the connection broke";
	enum result asked;
	bool known = ask_management(p, channel->bind, &facts, &asked);
	int code = ask_queue(p, str_of(channel->bind), &messages, &consumers, text, sizeof(text));

	snprintf(object, sizeof(object), "queue %s", channel->bind);
	/* Who may not ask the one way may have been told the other. */
	if (code == 403 && asked != RESULT_AGAIN)
		code = asked == RESULT_OK ? 0 : 404;
	if (report_code(p, code, channel, object, text))
		return;
	report_add(p->report, SEVERITY_INFO, CODE_NONE, "queue-load", object, "%u messages ready, %u consumers", messages,
		   consumers);
	amqp_judge_queue(&p->broker, channel, known ? &facts : NULL, p->connection->consumer_timeout_ms, p->report);
}

static void probe_outbound(struct prober *p, const struct probe_channel *channel)
{
	uint32_t messages, consumers;
	struct str exchange, routing_key;
	char object[300], text[300] = "the connection broke";

	amqp_destination_split(str_of(channel->bind), &exchange, &routing_key);
	if (exchange.len) {
		snprintf(object, sizeof(object), "exchange %.*s", STR_ARG(exchange));
		report_code(p, ask_exchange(p, exchange, text, sizeof(text)), channel, object, text);
	} else {
		snprintf(object, sizeof(object), "queue %.*s", STR_ARG(routing_key));
		report_code(p, ask_queue(p, routing_key, &messages, &consumers, text, sizeof(text)), channel, object, text);
	}
}

static void probe_broker(struct prober *p)
{
	struct str product = rabbit_server_property(p->conn, "product");
	struct str version = rabbit_server_property(p->conn, "version");
	int frame_max = amqp_get_frame_max(p->conn), heartbeat = amqp_get_heartbeat(p->conn);
	struct report *report = p->report;

	p->broker = amqp_broker_of(product, version);
	report_add(report, SEVERITY_INFO, CODE_NONE, "broker", NULL, "%.*s %.*s, frames of %d bytes, heartbeat %d s",
		   STR_ARG(product), STR_ARG(version), frame_max, heartbeat);
	if (!p->broker.is_rabbitmq)
		report_add(report, SEVERITY_INFO, CODE_NONE, "broker-unknown", NULL,
			   "not RabbitMQ: its limits and the types of its queues are not checked");
	else if (p->broker.version && p->broker.version < 308) {
		report_add(report, SEVERITY_WARNING, CODE_CONFIG_CONNECTION_SUSPICIOUS, "broker-old", NULL,
			   "RabbitMQ before 3.8 is not supported");
		report_remedy(report, "use RabbitMQ 3.10 or later");
	}
	if (frame_max > 0 && frame_max < FRAME_MAX) {
		report_add(report, SEVERITY_WARNING, CODE_CONFIG_CONNECTION_SUSPICIOUS, "frame-max", NULL,
			   "the broker allows frames of %d bytes: messages with more than that of headers cannot be sent",
			   frame_max);
		report_remedy(report, "set frame_max of the broker to %d, its default%s", FRAME_MAX,
			      p->broker.version >= 401 ? "; this version wants 8192 at least" : "");
	}
}

void amqp_probe(const struct transport_connection *connection, const struct probe_question *question,
		struct report *report)
{
	struct prober p = {.connection = connection, .question = question, .report = report};
	struct timeval timeout = {question->timeout_ms / MS_PER_S, question->timeout_ms % MS_PER_S * US_PER_MS};
	const struct rabbit_settings settings = {
		.name = "sutra doctor",
		.url = connection->url,
		.password = connection->password,
		.ca_file = connection->ca_file,
		.cert_file = connection->cert_file,
		.key_file = connection->key_file,
		.heartbeat_s = connection->heartbeat_s,
	};
	struct error err = ERROR_INIT;
	enum result result = rabbit_client_rabbitmq.check(NULL, &settings, &err);

	if (result == RESULT_OK)
		result = rabbit_connect(&settings, &p.conn, &err);
	if (result != RESULT_OK) {
		bool is_wrong = result == RESULT_REJECT;

		report_add(report, SEVERITY_ERROR, is_wrong ? err.code : CODE_STARTUP_BROKER,
			   is_wrong ? "connection-invalid" : "broker-unreachable", NULL, "%s", err.text);
		report_remedy(report, is_wrong ? "correct the connection" :
						 "start the broker; check host, port, user, password and virtual host of url");
		return;
	}
	amqp_set_rpc_timeout(p.conn, &timeout);
	probe_broker(&p);
	for (size_t i = 0; i < question->channel_count; i++) {
		if (question->channels[i].is_inbound)
			probe_inbound(&p, &question->channels[i]);
		else
			probe_outbound(&p, &question->channels[i]);
	}
	if (!p.is_lost)
		amqp_connection_close(p.conn, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(p.conn);
}
