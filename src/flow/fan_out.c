/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/fan_out.h"

#include "flow/commit.h"
#include "flow/correlate.h"
#include "flow/lane_set.h"

bool fan_out_is_possible(const struct route *route)
{
	if (route->channel->broadcast)
		return true;
	for (uint32_t i = 0; i < route->wait_count; i++)
		if (route->waits[i].node->source->match == MATCH_ALL)
			return true;
	return false;
}

/* The order in which the message itself stands; absent = in none. */
static struct str order_of(const struct turn *turn)
{
	const struct lane_request *request = turn->request;

	if (!id_is_none(request->kept_key))
		return id_str(&request->kept_key);
	if (request->message->order_key.ptr)
		return request->message->order_key;
	return turn->correlation->key_count ? id_str(&turn->correlation->order_key) : STR_NONE;
}

struct id fan_out_order_key(struct turn *turn, const struct envelope_note *note)
{
	const struct lane_request *request = turn->request;
	struct str order;

	if (note->aim == ENVELOPE_AIM_WAIT)
		return id_digest_of(STR("target"), request->tenant, request->channel, id_str(&note->instance));
	/* New instances of one process begin in the order of their messages. */
	order = order_of(turn);
	if (!order.ptr)
		return id_new(turn->lane->executor->loop);
	return id_digest_of(STR("target"), request->tenant, request->channel, order, note->process);
}

/*
 * Its second run, after a commit in doubt, must meet the first: rows that have had their effect by then would come again. Without an
 * event id it is given one.
 */
static void give_event(struct turn *turn)
{
	struct lane_request *request = turn->request;
	struct id id;

	if (request->inbox_key_count || !id_is_none(request->kept_row))
		return;
	id = id_new(turn->lane->executor->loop);
	id = store_inbox_key(request->tenant, request->channel, id_str(&id));
	request->inbox_keys = arena_memdup(&request->resolved, &id, sizeof(id));
	request->inbox_key_count = 1;
}

enum result fan_out_build(struct turn *turn, const struct envelope_note *notes, uint32_t count, struct error *err)
{
	struct lane_request *request = turn->request;
	const struct message *message = request->message;
	struct kept_row *rows;

	if (count > FAN_OUT_MAX || count * (message->bytes + 256) > FAN_OUT_BYTES_MAX)
		return error_set(err, RESULT_REJECT, CODE_INBOUND_FAN_OUT_LIMIT,
				 "a message of %zu bytes has %u targets", message->bytes, count);
	rows = arena_zalloc(&turn->arena, count * sizeof(*rows));
	request->fanned = arena_alloc(&request->resolved, count * sizeof(struct id));
	request->fanned_count = count;
	for (uint32_t i = 0; i < count; i++) {
		rows[i] = (struct kept_row){
			.id = id_new(turn->lane->executor->loop),
			.kind = KEPT_TARGET,
			.order_key = fan_out_order_key(turn, &notes[i]),
			.channel = request->channel,
			.source = message->source,
			.envelope = envelope_pack(&turn->arena, message, &notes[i]),
			.body = message->body,
		};
		request->fanned[i] = rows[i].order_key;
	}
	give_event(turn);
	commit_build_fan_out(turn, rows, count);
	return RESULT_OK;
}

const struct subscription *fan_out_start(const struct route *route, const struct envelope_note *note)
{
	const struct subscription *found = NULL;

	for (uint32_t i = 0; i < route->start_count; i++) {
		const struct subscription *start = &route->starts[i];

		if (!str_equal(start->node->process->id, note->process) || !str_equal(start->node->id, note->node))
			continue;
		if (str_equal(start->deployment->id, note->deployment))
			return start;
		found = found ? found : start;
	}
	return found;
}
