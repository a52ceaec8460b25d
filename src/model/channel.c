/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing channels: two modules of a tenant may share a name only if they mean the same thing by it.
 */
#include "model/channel.h"

static bool same_text(struct str a, struct str b)
{
	return !a.ptr == !b.ptr && str_equal(a, b);
}

static bool same_expression(const struct expression *a, const struct expression *b)
{
	return !a == !b && (!a || str_equal(a->source, b->source));
}

bool channel_same_settings(const struct channel *a, const struct channel *b)
{
	return same_text(a->name, b->name) && a->direction == b->direction &&
	       same_text(a->transport, b->transport) && same_text(a->connection, b->connection) &&
	       same_text(a->bind, b->bind) && same_text(a->group, b->group) &&
	       same_expression(a->key, b->key) && same_text(a->codec, b->codec) &&
	       a->cloudevents == b->cloudevents && a->max_in_flight == b->max_in_flight &&
	       same_text(a->idempotency_key_header, b->idempotency_key_header) &&
	       a->payload_cap_bytes == b->payload_cap_bytes &&
	       a->unmatched_hold_ms == b->unmatched_hold_ms &&
	       a->unmatched_then == b->unmatched_then &&
	       a->requeues == b->requeues && a->broadcast == b->broadcast &&
	       same_text(a->dead_letter, b->dead_letter) &&
	       same_text(a->reply_channel, b->reply_channel);
}

bool channel_same_origin(const struct channel *a, const struct channel *b)
{
	return a->direction == CHANNEL_INBOUND && b->direction == CHANNEL_INBOUND &&
	       !str_equal(a->transport, STR("local")) && str_equal(a->transport, b->transport) &&
	       str_equal(a->connection, b->connection) && str_equal(a->bind, b->bind) &&
	       str_equal(a->group, b->group);
}
