/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode: from the bytes of a delivery to an event: payload, message type, event id parts, reply address, trace context.
 *
 * Life cycle: a decoded lives in the message's arena and travels with it through handoff and hold.
 * Threads: pure; on the arrival lane's executor.
 */
#ifndef SUTRA_FLOW_DECODE_H
#define SUTRA_FLOW_DECODE_H

#include "engine/step.h"
#include "transports/transport.h"

struct decode_settings {
	struct value_limits limits;
	uint32_t max_headers;
};

struct decoded {
	struct event event; /* `id` is the default event id: without any source's dedupKey */
};

/*
 * RESULT_REJECT with the code of what is wrong. The default event id is the first that exists of: the header named by the
 * channel's idempotency-key-header, CloudEvents source and id, AMQP message-id, header sutra-outbox-key, the delivery's own
 * identity (STR_NONE if it has none).
 */
enum result decode_message(struct message *message, const struct route *route, const struct decode_settings *settings,
			   struct decoded **out, struct error *err) MUST_CHECK;

#endif
