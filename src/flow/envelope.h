/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Envelope: a message as the database keeps it. Its body is a column of its own; everything else that a turn looks at is
 * packed into one value, so that the message that comes out is decoded, correlated and answered as the one that went in.
 *
 * Life cycle: pure. Threads: any.
 */
#ifndef SUTRA_FLOW_ENVELOPE_H
#define SUTRA_FLOW_ENVELOPE_H

#include "transports/transport.h"

/* All but body, lease, token and what only the transport knows. In the arena. */
struct str envelope_pack(struct arena *arena, const struct message *message);
/* A message of its own, with copies of the bytes. RESULT_REJECT: they are not what envelope_pack wrote. */
enum result envelope_unpack(struct str envelope, struct str body, struct message **out, struct error *err) MUST_CHECK;

#endif
