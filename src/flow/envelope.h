/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Envelope: a message as the database keeps it. Its body is a column of its own; everything else that a turn looks at is
 * packed into one value, so that the message that comes out is decoded, correlated and answered as the one that went in.
 *
 * Life cycle: pure. Threads: any.
 */
#ifndef SUTRA_FLOW_ENVELOPE_H
#define SUTRA_FLOW_ENVELOPE_H

#include "base/id.h"
#include "transports/transport.h"

enum envelope_aim { ENVELOPE_AIM_NONE, ENVELOPE_AIM_WAIT, ENVELOPE_AIM_START };

/*
 * What goes with a message that the engine itself put into the database, and is not part of it. All of it may be missing.
 *
 *	the replay of a dead letter: `event_id` instead of what any rule makes of the message, and `dead_letter`, which the
 *	commit of its effect removes;
 *	one target of several: the wait of an instance, or the start event that is to have it.
 */
struct envelope_note {
	struct str event_id;   /* absent = by the rules */
	struct id dead_letter; /* none = all zero */
	enum envelope_aim aim;
	struct id instance, wait_key, alias_key; /* WAIT */
	uint32_t token;				 /* WAIT */
	struct str node, deployment;		 /* WAIT, START */
	struct str process;			 /* START */
};

/* All of the message but body, lease, token and what only the transport knows, and the note (NULL = none). In the arena. */
struct str envelope_pack(struct arena *arena, const struct message *message, const struct envelope_note *note);
/*
 * A message of its own, with copies of the bytes; the note points into its arena. RESULT_REJECT: they are not what envelope_pack
 * wrote, or a later version did.
 */
enum result envelope_unpack(struct str envelope, struct str body, struct message **out, struct envelope_note *note,
			    struct error *err) MUST_CHECK;

#endif
