/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load over RabbitMQ, and the reference: what a careful program does with rabbitmq-c alone, a message in, a message out,
 * persistent, under publisher confirms. One durable queue a channel. Each end has a connection that consumes and one that
 * publishes. The reference publishes in the order of its delivery tags, so that confirm n answers delivery n, and both sides are
 * answered many at a time.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "tests/bench/load.h"
#include "transports/amqp/rabbitmq.h"

#define PREFETCH 4096
#define ACK_EACH 256

struct rabbit_end {
	struct broker_load load;
	amqp_connection_state_t consuming, publishing;
	uint64_t delivered, confirmed, acked; /* the reference's tags */
};

static amqp_connection_state_t rabbit_connect(void)
{
	char url[256];
	struct amqp_connection_info info;
	amqp_connection_state_t conn = amqp_new_connection();
	amqp_socket_t *tcp = amqp_tcp_socket_new(conn);
	amqp_rpc_reply_t reply;

	snprintf(url, sizeof(url), "%s", bench_env("AMQP_URL"));
	if (amqp_parse_url(url, &info) != AMQP_STATUS_OK || amqp_socket_open(tcp, info.host, info.port) != AMQP_STATUS_OK)
		bench_die("no broker at %s", bench_env("AMQP_URL"));
	reply = amqp_login(conn, *info.vhost ? info.vhost : "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, info.user, info.password);
	if (reply.reply_type != AMQP_RESPONSE_NORMAL || !amqp_channel_open(conn, 1))
		bench_die("the broker refuses the login");
	return conn;
}

static void rabbit_consume(amqp_connection_state_t conn, const char *const *channels, bool no_ack)
{
	amqp_basic_qos(conn, 1, 0, PREFETCH, 1);
	for (enum load_step step = 0; step < LOAD_STEPS; step++) {
		char queue[LOAD_NAME_SIZE];

		load_name(channels[step], queue);
		if (!amqp_basic_consume(conn, 1, amqp_cstring_bytes(queue), amqp_cstring_bytes(channels[step]), 0, no_ack, 0,
					amqp_empty_table))
			bench_die("cannot consume %s", queue);
	}
}

static void rabbit_publish(amqp_connection_state_t conn, const char *queue, const char *message_id, const char *outbox_key,
			   const char *body)
{
	amqp_table_entry_t header = {.key = amqp_cstring_bytes("sutra-outbox-key")};
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG,
		.delivery_mode = 2,
		.content_type = amqp_cstring_bytes("application/json"),
		.message_id = amqp_cstring_bytes(message_id),
	};

	if (outbox_key) {
		header.value.kind = AMQP_FIELD_KIND_UTF8;
		header.value.value.bytes = amqp_cstring_bytes(outbox_key);
		properties._flags |= AMQP_BASIC_HEADERS_FLAG;
		properties.headers = (amqp_table_t){1, &header};
	}
	if (amqp_basic_publish(conn, 1, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0, &properties,
			       amqp_cstring_bytes(body)) != AMQP_STATUS_OK)
		bench_die("publishing to %s", queue);
}

/* Waits until one of the connections can be read, or the time is over; frames may lie in the library's buffers already. */
static void wait_readable(struct rabbit_end *end, int timeout_ms)
{
	struct pollfd fds[2] = {{amqp_get_sockfd(end->consuming), POLLIN, 0}, {amqp_get_sockfd(end->publishing), POLLIN, 0}};

	if (!amqp_frames_enqueued(end->consuming) && !amqp_data_in_buffer(end->consuming))
		poll(fds, 2, timeout_ms);
}

/* The next delivery that is there; false: none. */
static bool next_delivery(struct rabbit_end *end, amqp_envelope_t *envelope)
{
	struct timeval now = {0, 0};
	amqp_rpc_reply_t reply;

	amqp_maybe_release_buffers(end->consuming);
	reply = amqp_consume_message(end->consuming, envelope, &now, 0);
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		return true;
	if (reply.reply_type != AMQP_RESPONSE_LIBRARY_EXCEPTION || reply.library_error != AMQP_STATUS_TIMEOUT)
		bench_die("the consuming connection was lost");
	return false;
}

static struct str body_of(const amqp_envelope_t *envelope)
{
	return rabbit_str(envelope->message.body);
}

static enum load_step step_of(const amqp_envelope_t *envelope, const char *const *channels)
{
	return str_equal(rabbit_str(envelope->consumer_tag), str_of(channels[LOAD_SPAWN])) ? LOAD_SPAWN : LOAD_RELAY;
}

static void end_close(struct rabbit_end *end)
{
	amqp_connection_close(end->publishing, AMQP_REPLY_SUCCESS);
	amqp_connection_close(end->consuming, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(end->publishing);
	amqp_destroy_connection(end->consuming);
}

/* --- the load --- */

static void rabbit_send(struct broker_load *load, enum load_step step, const char *key, const char *message_id,
			const char *body)
{
	struct rabbit_end *end = container_of(load, struct rabbit_end, load);
	char queue[LOAD_NAME_SIZE];

	(void)key;
	load_name(load_channels_in[step], queue);
	rabbit_publish(end->publishing, queue, message_id, NULL, body);
}

int load_rabbitmq(int64_t seconds, double rate)
{
	struct rabbit_end end = {.load = {.send = rabbit_send, .rate = rate}};
	amqp_envelope_t envelope;

	end.load.window = (uint64_t)bench_number(bench_env("SUTRA_BENCH_WINDOW"));
	end.consuming = rabbit_connect();
	end.publishing = rabbit_connect();
	rabbit_consume(end.consuming, load_channels_out, true);
	load_begin(&end.load, seconds);
	while (!load_is_done(&end.load)) {
		wait_readable(&end, load_due(&end.load));
		while (next_delivery(&end, &envelope)) {
			load_arrived(&end.load, step_of(&envelope, load_channels_out), body_of(&envelope));
			amqp_destroy_envelope(&envelope);
		}
	}
	load_print(&end.load);
	load_done(&end.load);
	end_close(&end);
	return 0;
}

/* --- the reference --- */

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

static void relay_one(struct rabbit_end *end, const amqp_envelope_t *envelope)
{
	enum load_step step = step_of(envelope, load_channels_in);
	uint64_t n = (uint64_t)bench_body_number(body_of(envelope), "\"orderId\":\"order-");
	char queue[LOAD_NAME_SIZE], id[40], out[128];

	load_name(load_channels_out[step], queue);
	snprintf(id, sizeof(id), "00000000-0000-7000-8000-%012llu", (unsigned long long)(n * 2 + (step == LOAD_RELAY)));
	if (step == LOAD_SPAWN)
		snprintf(out, sizeof(out), "{\"item\":\"green tea, first flush\",\"orderId\":\"order-%09llu\",\"quantity\":%u}",
			 (unsigned long long)n, order_quantity(n));
	else
		snprintf(out, sizeof(out),
			 "{\"orderId\":\"order-%09llu\",\"paid\":%u,\"status\":\"CONFIRMED\",\"total\":%u}",
			 (unsigned long long)n, order_total(n), order_total(n));
	end->delivered = envelope->delivery_tag;
	rabbit_publish(end->publishing, queue, id, id, out);
}

/* Confirms come many at a time but not always in order; only a run without a gap is counted. */
static void take_confirms(struct rabbit_end *end)
{
	static uint8_t early[PREFETCH * 2]; /* by tag */
	struct timeval now = {0, 0};
	amqp_frame_t frame;

	while (amqp_simple_wait_frame_noblock(end->publishing, &frame, &now) == AMQP_STATUS_OK) {
		amqp_basic_ack_t *ack = frame.payload.method.decoded;

		if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
			bench_die("the broker does not take a message");
		if (ack->multiple)
			for (uint64_t tag = end->confirmed + 1; tag <= ack->delivery_tag; tag++)
				early[tag % (PREFETCH * 2)] = 1;
		early[ack->delivery_tag % (PREFETCH * 2)] = 1;
		for (; early[(end->confirmed + 1) % (PREFETCH * 2)]; end->confirmed++)
			early[(end->confirmed + 1) % (PREFETCH * 2)] = 0;
		amqp_maybe_release_buffers(end->publishing);
	}
}

int relay_rabbitmq(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct rabbit_end end = {0};
	amqp_envelope_t envelope;

	sigaction(SIGTERM, &action, NULL);
	end.consuming = rabbit_connect();
	end.publishing = rabbit_connect();
	if (!amqp_confirm_select(end.publishing, 1))
		bench_die("no publisher confirms");
	rabbit_consume(end.consuming, load_channels_in, false);
	while (!ended) {
		wait_readable(&end, 5);
		for (int i = 0; i < ACK_EACH && next_delivery(&end, &envelope); i++) {
			relay_one(&end, &envelope);
			amqp_destroy_envelope(&envelope);
		}
		take_confirms(&end);
		if (end.confirmed > end.acked) {
			amqp_basic_ack(end.consuming, 1, end.confirmed, 1);
			end.acked = end.confirmed;
		}
	}
	end_close(&end);
	return 0;
}
