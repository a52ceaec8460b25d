/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at the deliveries of an intake on its loop. A message that was never on a lane is not decoded, so it is known by what the
 * broker gave with it: where it stood, its message id, and the headers that an event id may be in.
 */
#include "flow/inspect.h"

#include "base/time.h"
#include "flow/keep_internal.h"

/* What people are shown of a text that may be as long as a message. */
#define TEXT_MAX 200

const char *inspected_state_name(enum inspected_state state)
{
	static const char *const names[] = {
		[INSPECTED_BEHIND] = "behind",	 [INSPECTED_RESOLVING] = "resolving", [INSPECTED_ON_LANE] = "on-lane",
		[INSPECTED_HELD] = "held",	 [INSPECTED_KEEPING] = "keeping",
	};

	return names[state];
}

/* --- what is known of a delivery --- */

/* Its request is lent to a lane, which writes to it. */
static bool is_lent(const struct delivery *dlv)
{
	return dlv->state == DELIVERY_ON_LANE;
}

static const struct event *event_of(const struct delivery *dlv)
{
	return !is_lent(dlv) && dlv->message && dlv->request.decoded ? &dlv->request.decoded->event : NULL;
}

static struct str header_of(const struct message *message, struct str name)
{
	const struct header *header = name.len ? header_find(&message->headers, name) : NULL;

	return header ? value_as_str(&header->value) : STR_NONE;
}

/* "<source> <id>", as decode makes of a CloudEvent. */
static bool is_cloudevent(const struct message *message, struct str text)
{
	static const char *const names[][2] = {{"ce_source", "ce_id"},
					       {"cloudEvents_source", "cloudEvents_id"},
					       {"cloudEvents:source", "cloudEvents:id"},
					       {"ce-source", "ce-id"}};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct str source = header_of(message, str_of(names[i][0]));
		struct str id = header_of(message, str_of(names[i][1]));

		if (id.len && text.len == source.len + 1 + id.len && str_starts_with(text, source) &&
		    text.ptr[source.len] == ' ' &&
		    str_equal(str_make(text.ptr + source.len + 1, id.len), id))
			return true;
	}
	return false;
}

static struct str event_id_of(const struct delivery *dlv, struct str id_header)
{
	const struct message *message = dlv->message;
	const struct event *event = event_of(dlv);
	struct str id;

	if (event)
		return event->id;
	id = header_of(message, id_header);
	if (!id.len)
		id = message->message_id;
	return id.len ? id : message->identity;
}

/* --- is it asked for? --- */

/* Event ids may come from an expression: then only their digests are at hand. */
static bool has_inbox_key(const struct delivery *dlv, const struct id *keys, uint32_t count, struct str text)
{
	struct id key = store_inbox_key(dlv->request.tenant, dlv->request.channel, text);

	for (uint32_t i = 0; i < count; i++)
		if (id_equal(keys[i], key))
			return true;
	return false;
}

/* Its place knows an early message without having it. */
static const struct place_early *early_of(const struct delivery *dlv)
{
	return dlv->is_place && !dlv->message ? container_of(dlv, const struct place, dlv)->early : NULL;
}

static bool is_message(const struct delivery *dlv, const struct inspection *ask)
{
	const struct message *message = dlv->message;
	const struct event *event = event_of(dlv);
	const struct lane_request *request = &dlv->request;
	const struct place_early *early = early_of(dlv);
	struct str text = ask->message;

	if (early && text.len)
		return str_equal(text, early->source) ||
		       has_inbox_key(dlv, early->inbox_keys, early->inbox_key_count, text);
	if (!message || !text.len)
		return false;
	return str_equal(text, message->source) || str_equal(text, message->identity) ||
	       str_equal(text, message->message_id) || (event && str_equal(text, event->id)) ||
	       str_equal(text, header_of(message, ask->id_header)) ||
	       str_equal(text, header_of(message, STR("sutra-outbox-key"))) || is_cloudevent(message, text) ||
	       (!is_lent(dlv) && !dlv->is_place &&
		has_inbox_key(dlv, request->inbox_keys, request->inbox_key_count, text));
}

static bool key_is_asked(const struct inspection *ask, struct id key)
{
	for (uint32_t i = 0; i < ask->key_count; i++)
		if (id_equal(ask->keys[i], key))
			return true;
	return false;
}

/* Of a place the request is unloaded with its message; what an early message looks for stays. */
static const struct looked_for *looked_for_of(const struct delivery *dlv, uint32_t *count)
{
	const struct place_early *early = dlv->is_place ? container_of(dlv, const struct place, dlv)->early : NULL;

	*count = early ? early->looked_for_count : dlv->is_place ? 0 : dlv->request.looked_for_count;
	return early ? early->looked_for : dlv->request.looked_for;
}

static bool looks_for(const struct delivery *dlv, const struct inspection *ask)
{
	const struct lane_request *request = &dlv->request;
	const struct looked_for *looked_for;
	uint32_t count;

	if (!dlv->is_place && !request->message)
		return false;
	looked_for = looked_for_of(dlv, &count);
	for (uint32_t i = 0; i < count; i++)
		if (key_is_asked(ask, store_alias_key(request->tenant, looked_for[i].name, looked_for[i].value)))
			return true;
	return !dlv->is_place && !id_is_none(request->order_key) && key_is_asked(ask, request->order_key);
}

static bool is_for_instance(const struct delivery *dlv, const struct inspection *ask)
{
	const struct lane_request *request = &dlv->request;

	if (id_is_none(ask->instance) || is_lent(dlv))
		return false;
	for (uint32_t i = 0; i < dlv->interest_count; i++)
		if (id_equal(dlv->interests[i].key, ask->instance))
			return true;
	return (request->is_resolved && id_equal(request->target.instance, ask->instance)) || looks_for(dlv, ask);
}

static bool is_asked(const struct delivery *dlv, const struct inspection *ask)
{
	bool is_open = !ask->message.len && id_is_none(ask->instance) && id_is_none(ask->order_key);

	if (is_open)
		return dlv->state == DELIVERY_HELD;
	if (dlv->is_place && !id_is_none(ask->order_key) &&
	    id_equal(container_of(dlv, struct place, dlv)->order_key, ask->order_key))
		return true;
	return is_message(dlv, ask) || is_for_instance(dlv, ask);
}

/* --- copies --- */

static struct str copy_text(struct arena *arena, struct str text)
{
	size_t len = text.len < TEXT_MAX ? text.len : TEXT_MAX;

	while (len < text.len && len && ((unsigned char)text.ptr[len] & 0xc0) == 0x80)
		len--;
	return text.ptr ? arena_str(arena, str_make(text.ptr, len)) : STR_NONE;
}

static enum inspected_state state_of(const struct delivery *dlv)
{
	if (dlv->state == DELIVERY_HELD)
		return INSPECTED_HELD;
	if (dlv->state == DELIVERY_KEEPING)
		return INSPECTED_KEEPING;
	if (list_is_linked(&dlv->resolving_link))
		return INSPECTED_RESOLVING;
	return dlv->state == DELIVERY_CHAINED ? INSPECTED_BEHIND : INSPECTED_ON_LANE;
}

static void copy_order(const struct delivery *dlv, struct arena *arena, struct inspected *out)
{
	bool passed = false;

	if (!dlv->chain)
		return;
	list_for_each(&dlv->chain->deliveries, pos, tmp) {
		const struct delivery *other = list_entry(pos, struct delivery, chain_link);

		if (other == dlv) {
			passed = true;
		} else if (passed) {
			out->behind++;
		} else {
			if (!out->ahead++ && other->message)
				out->ahead_source = copy_text(arena, other->message->source);
		}
	}
}

/* The same moment on the wall clock. */
static int64_t wall_of(const struct intake *intake, int64_t at_us)
{
	return at_us ? loop_wall_us(intake->loop) - (loop_now_us(intake->loop) - at_us) : 0;
}

static bool refused_by_instance(const struct delivery *dlv)
{
	enum code code = dlv->request.error.code;

	return dlv->interest_count == 1 && dlv->request.answer == ANSWER_REFUSED &&
	       (code == CODE_RUNTIME_CLAIM_HELD || code == CODE_RUNTIME_PIN_UNKNOWN);
}

static void copy_looked_for(const struct delivery *dlv, struct arena *arena, struct inspected *out)
{
	const struct looked_for *looked_for = looked_for_of(dlv, &out->looked_for_count);

	if (dlv->request.answer != ANSWER_UNMATCHED) {
		out->looked_for_count = 0;
		return;
	}
	out->looked_for = arena_alloc(arena, (out->looked_for_count + 1) * sizeof(*out->looked_for));
	for (uint32_t i = 0; i < out->looked_for_count; i++)
		out->looked_for[i] = (struct inspected_alias){copy_text(arena, looked_for[i].name),
							      copy_text(arena, looked_for[i].value)};
}

/* What the last try came to. */
static void copy_try(const struct delivery *dlv, struct arena *arena, struct inspected *out)
{
	const struct intake *intake = dlv->intake;
	const struct lane_request *request = &dlv->request;

	out->attempts = dlv->attempts;
	out->held_since_us = wall_of(intake, dlv->held_since_us);
	if (dlv->state != DELIVERY_HELD)
		return;
	out->answer = lane_answer_name(request->answer);
	out->code = request->error.code;
	out->text = copy_text(arena, str_of(request->error.text));
	out->next_try_us = wall_of(intake, dlv->retry.due_us);
	if (dlv->unmatched_since_us && request->answer == ANSWER_UNMATCHED)
		out->unmatched_until_us = wall_of(intake, dlv->unmatched_since_us) +
					  intake->settings.unmatched_hold_ms * US_PER_MS;
	if (refused_by_instance(dlv))
		out->instance = dlv->interests[0].key;
	copy_looked_for(dlv, arena, out);
}

static void inspect_delivery(const struct delivery *dlv, struct inspection *ask)
{
	struct inspected *out;

	if (!is_asked(dlv, ask) || ask->matches++ >= INSPECT_MAX)
		return;
	out = &ask->found[ask->count++];
	*out = (struct inspected){.state = state_of(dlv), .code = CODE_NONE,
				  .received_us = wall_of(dlv->intake, dlv->received_us)};
	if (dlv->is_place) {
		out->kept = container_of(dlv, const struct place, dlv)->rows;
		out->order_key = container_of(dlv, const struct place, dlv)->order_key;
	}
	if (dlv->message) {
		out->source = copy_text(ask->arena, dlv->message->source);
		out->event_id = copy_text(ask->arena, event_id_of(dlv, ask->id_header));
	}
	if (early_of(dlv))
		out->source = copy_text(ask->arena, early_of(dlv)->source);
	copy_order(dlv, ask->arena, out);
	copy_try(dlv, ask->arena, out);
}

static void inspect(struct task *post)
{
	struct inspection *ask = container_of(post, struct inspection, post);
	const struct intake *intake = ask->intake;

	ask->found = arena_alloc(ask->arena, INSPECT_MAX * sizeof(*ask->found));
	ask->count = ask->matches = 0;
	for (struct map_entry *e = map_first(&intake->places); e; e = map_next(&intake->places, e))
		inspect_delivery(&((const struct place *)e->value)->dlv, ask);
	list_for_each(&intake->window, pos, tmp)
		inspect_delivery(list_entry(pos, struct delivery, window_link), ask);
	loop_post(ask->reply_to, &ask->done);
}

void intake_inspect(struct intake *intake, struct inspection *ask)
{
	ask->intake = intake;
	ask->post.run = inspect;
	loop_post(intake->loop, &ask->post);
}
