/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AMQP transport as the registry knows it: checks the settings of a connection and gives it its two links.
 *
 * Two connections to the broker, because one that publishes may be stopped by the broker for minutes (a memory or disk
 * alarm), and acknowledgements on it would stop too.
 */
#include "transports/amqp/amqp.h"

#include "base/alloc.h"
#include "base/time.h"
#include "transports/amqp/probe.h"

#define HEARTBEAT_DEFAULT_S 10

int64_t amqp_backoff_us(struct loop *loop, int64_t *delay_ms, int64_t max_ms)
{
	int64_t delay_us = *delay_ms * US_PER_MS;

	*delay_ms = *delay_ms * 2 > max_ms ? max_ms : *delay_ms * 2;
	/* Between half and all of it, so that replicas that failed together do not come back together. */
	return delay_us / 2 + (int64_t)loop_random_below(loop, (uint64_t)delay_us / 2 + 1);
}

static enum result amqp_open(struct transport_connection *connection, struct error *err)
{
	const struct rabbit_client *client = connection->rabbit ? connection->rabbit : &rabbit_client_rabbitmq;
	struct amqp_connection *state;
	enum result result = RESULT_OK;

	if (connection->heartbeat_s <= 0)
		connection->heartbeat_s = HEARTBEAT_DEFAULT_S;
	if (client->check) {
		const struct rabbit_settings settings = {
			.name = connection->name,
			.url = connection->url,
			.password = connection->password,
			.ca_file = connection->ca_file,
			.cert_file = connection->cert_file,
			.key_file = connection->key_file,
			.heartbeat_s = connection->heartbeat_s,
		};

		result = client->check(connection->rabbit_broker, &settings, err);
	}
	if (result != RESULT_OK)
		return result;
	state = mem_zalloc(sizeof(*state));
	link_init(&state->consuming, connection, connection->consume_loop, "consumer");
	link_init(&state->publishing, connection, connection->publish_loop, "publisher");
	connection->state = state;
	return RESULT_OK;
}

static void amqp_close(struct transport_connection *connection)
{
	struct amqp_connection *state = connection->state;

	if (!state)
		return;
	link_done(&state->consuming);
	link_done(&state->publishing);
	free(state);
	connection->state = NULL;
}

const struct transport transport_amqp = {
	.name = "amqp",
	.needs_connection = true,
	.open = amqp_open,
	.close = amqp_close,
	.consumer_new = amqp_consumer_new,
	.publisher_new = amqp_publisher_new,
	.probe = amqp_probe,
};
