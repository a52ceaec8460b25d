/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Birth and death of messages, and the names of consumer states: what all transports share.
 */
#include "base/alloc.h"
#include "transports/transport.h"

struct message *message_new(void)
{
	struct message *message = mem_zalloc(sizeof(*message));

	arena_init(&message->arena);
	message->reply_correlation = value_nil();
	return message;
}

void message_free(struct message **message)
{
	if (!*message)
		return;
	assert(!list_is_linked(&(*message)->link));
	arena_done(&(*message)->arena);
	free(*message);
	*message = NULL;
}

const char *consumer_state_name(enum consumer_state state)
{
	switch (state) {
	case CONSUMER_CONNECTING:
		return "connecting";
	case CONSUMER_MISSING:
		return "missing";
	case CONSUMER_CONSUMING:
		return "consuming";
	case CONSUMER_STOPPED:
		return "stopped";
	}
	return "unknown";
}
