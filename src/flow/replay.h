/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay: the envelope of a dead letter that is to go through intake again, as a message that the database keeps. It goes by an
 * event id of its own, and the commit of its effect removes the dead letter; see envelope.h.
 *
 * Life cycle: plain data in the arena that is given. Threads: any.
 */
#ifndef SUTRA_FLOW_REPLAY_H
#define SUTRA_FLOW_REPLAY_H

#include "base/arena.h"
#include "base/error.h"
#include "base/id.h"
#include "base/str.h"

struct replay {
	struct id dead_letter;
	int64_t number; /* of its replays, from 1 */
	/* As the dead letter has them; absent = it has none. */
	struct str record_key;
	struct str headers; /* packed */
	struct str content_type;
	struct str message_type;
	/* Out. */
	struct str event_id; /* "replay:<id>:<number>" */
	struct str envelope;
	struct id kept; /* the id of its row, and its order key: it keeps its place behind nobody */
};

/* RESULT_REJECT: the headers cannot be read. */
enum result replay_make(struct arena *arena, struct replay *replay, struct error *err) MUST_CHECK;
/* The id of a replay's row. */
struct id replay_kept_id(struct id dead_letter, int64_t number);

#endif
