/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message made of what a dead letter has of the one that it was. What is not in it is lost: the time, and the reply address where
 * that was no header.
 */
#include "flow/replay.h"

#include "flow/envelope.h"

struct id replay_kept_id(struct id dead_letter, int64_t number)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%lld", (long long)number);
	return id_digest_of(STR("replay"), id_str(&dead_letter), str_of(digits));
}

enum result replay_make(struct arena *arena, struct replay *replay, struct error *err)
{
	struct envelope_note note = {.dead_letter = replay->dead_letter};
	struct message message = {
		.key = replay->record_key,
		.content_type = replay->content_type,
		.type = replay->message_type,
		.reply_correlation = value_nil(),
	};
	char id[ID_TEXT_SIZE];

	if (replay->headers.ptr && headers_unpack(arena, replay->headers, &message.headers, err) != RESULT_OK)
		return RESULT_REJECT;
	replay->event_id = str_of(arena_printf(arena, "replay:%s:%lld", id_format(replay->dead_letter, id),
					       (long long)replay->number));
	replay->kept = replay_kept_id(replay->dead_letter, replay->number);
	message.identity = message.source = note.event_id = replay->event_id;
	replay->envelope = envelope_pack(arena, &message, &note);
	return RESULT_OK;
}
