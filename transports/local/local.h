/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local transport: from an outbound channel to an inbound one of the same replica, in memory. A publication becomes a
 * message of the consumer of (tenant, channel) and is confirmed when that message is settled DONE; given BACK it is to be sent
 * again. Nobody consumes the channel: UNROUTABLE. The message's event id is the publication's key, which G5 builds on.
 *
 * The bench injects load here too: local_inject makes a message without a publication.
 * Life cycle: with its connection. Threads: as transport.h says.
 */
#ifndef SUTRA_TRANSPORTS_LOCAL_H
#define SUTRA_TRANSPORTS_LOCAL_H

#include "transports/transport.h"

extern const struct transport transport_local;

/*
 * Hands a message to the consumer of (tenant, channel) of this connection; takes it. `settled` (may be NULL) is called on the
 * consumer's loop when it is settled. False: nobody consumes it; the message stays the caller's. @thread any
 */
bool local_inject(struct transport_connection *connection, struct str tenant, struct str channel,
		  struct message *message, void (*settled)(void *user, enum settle how), void *user) MUST_CHECK;

#endif
