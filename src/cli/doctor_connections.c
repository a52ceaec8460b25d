/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The brokers: every configured connection is asked by its transport, with the channels that use it. Two modules may share a
 * channel; each source and destination is asked for once.
 */
#include <stdio.h>

#include "cli/doctor.h"

#define TIMEOUT_MS 5000

static bool channel_uses(const struct channel *channel, const struct config_connection *connection)
{
	return str_equal(channel->connection, str_of(connection->name)) &&
	       str_equal(channel->transport, str_of(connection->transport));
}

static bool channel_is_local(const struct doctor *doctor, const struct channel *channel)
{
	const struct transport *transport = doctor->transport(channel->transport);

	return transport && !transport->needs_connection;
}

static bool probe_same(const struct probe_channel *a, const struct probe_channel *b)
{
	return a->is_inbound == b->is_inbound && strcmp(a->bind, b->bind) == 0 &&
	       (!a->is_inbound || strcmp(a->group, b->group) == 0);
}

static struct probe_channel channel_question(struct doctor *doctor, const struct deployment *deployment,
					     const struct channel *channel)
{
	struct arena *arena = &doctor->arena;

	return (struct probe_channel){
		.tenant = arena_str(arena, deployment->tenant).ptr,
		.channel = arena_str(arena, channel->name).ptr,
		.bind = arena_str(arena, channel->bind).ptr,
		.group = arena_str(arena, channel->group.ptr ? channel->group : STR("")).ptr,
		.is_inbound = channel->direction == CHANNEL_INBOUND,
		.max_in_flight = channel->max_in_flight,
		.payload_cap_bytes = channel->payload_cap_bytes
					     ? channel->payload_cap_bytes
					     : (uint64_t)config_int(doctor->config, "codec.max-payload-bytes"),
		.longest_hold_ms = config_ms(doctor->config, "refusal.hold"),
	};
}

static void question_add(struct probe_question *question, struct probe_channel *channels,
			 const struct probe_channel *channel)
{
	for (size_t i = 0; i < question->channel_count; i++)
		if (probe_same(&channels[i], channel))
			return;
	channels[question->channel_count++] = *channel;
}

static void connection_probe(struct doctor *doctor, const struct config_connection *c, const struct transport *transport)
{
	const struct transport_connection connection = {
		.transport = transport,
		.name = c->name,
		.property_names = c->property_names,
		.property_values = c->property_values,
		.property_count = c->property_count,
		.url = c->url,
		.password = c->password,
		.management_url = c->management_url,
		.ca_file = c->ca_file,
		.cert_file = c->cert_file,
		.key_file = c->key_file,
		.heartbeat_s = c->heartbeat_s,
		.consumer_timeout_ms = c->consumer_timeout_ms,
	};
	struct probe_question question = {.timeout_ms = TIMEOUT_MS};
	struct probe_channel *channels;
	size_t count = 0;

	for (uint32_t i = 0; i < doctor->deployment_count; i++)
		count += doctor->deployments[i]->channel_count;
	channels = arena_zalloc(&doctor->arena, (count + 1) * sizeof(*channels));
	question.channels = channels;
	for (uint32_t i = 0; i < doctor->deployment_count; i++) {
		const struct deployment *deployment = doctor->deployments[i];

		for (uint32_t j = 0; j < deployment->channel_count; j++) {
			struct probe_channel channel;

			if (!channel_uses(deployment->channels[j], c))
				continue;
			channel = channel_question(doctor, deployment, deployment->channels[j]);
			question_add(&question, channels, &channel);
		}
	}
	if (question.channel_count == 0)
		report_add(&doctor->report, SEVERITY_INFO, CODE_NONE, "connection-unused", NULL, "no channel uses it");
	if (transport->probe)
		transport->probe(&connection, &question, &doctor->report);
}

/* Channels that lead nowhere. */
static void channels_examine(struct doctor *doctor, const struct deployment *deployment)
{
	for (uint32_t i = 0; i < deployment->channel_count; i++) {
		const struct channel *channel = deployment->channels[i];
		const struct config_connection *c = config_connection_find(doctor->config, channel->connection);
		char object[300];

		if (channel_is_local(doctor, channel) || (c && channel_uses(channel, c)))
			continue;
		snprintf(object, sizeof(object), "channel %.*s/%.*s", STR_ARG(deployment->tenant), STR_ARG(channel->name));
		report_add(&doctor->report, SEVERITY_ERROR, CODE_CONFIG_CONNECTION_MISSING, "connection-missing", object,
			   "no connection '%.*s' of transport '%.*s' is configured", STR_ARG(channel->connection),
			   STR_ARG(channel->transport));
		report_remedy(&doctor->report,
			      "add { name = \"%.*s\"; transport = \"%.*s\"; … } to connections, or correct channels.conf",
			      STR_ARG(channel->connection), STR_ARG(channel->transport));
	}
}

void doctor_connections(struct doctor *doctor)
{
	report_area(&doctor->report, "connections");
	for (uint32_t i = 0; i < doctor->deployment_count; i++)
		channels_examine(doctor, doctor->deployments[i]);
	for (size_t i = 0; i < config_connection_count(doctor->config); i++) {
		const struct config_connection *c = config_connection_at(doctor->config, i);
		const struct transport *transport = doctor->transport(str_of(c->transport));
		char area[128];

		snprintf(area, sizeof(area), "connection %s", c->name);
		report_area(&doctor->report, area);
		if (transport) {
			connection_probe(doctor, c, transport);
			continue;
		}
		report_add(&doctor->report, SEVERITY_ERROR, CODE_CONFIG_CHANNEL_UNSUPPORTED, "transport-missing", NULL,
			   "this build has no transport '%s'", c->transport);
		report_remedy(&doctor->report, "use a build with it, or take the connection out");
	}
}
