/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client for AMQP whose events the test writes and whose calls it reads; beside the loop and the sink of rig.h.
 *
 * Life cycle: rabbit_fake_init/rabbit_fake_done; a handle ends with its close. Threads: one.
 */
#ifndef SUTRA_TESTS_UNIT_TRANSPORTS_RABBIT_RIG_H
#define SUTRA_TESTS_UNIT_TRANSPORTS_RABBIT_RIG_H

#include "base/buf.h"
#include "transports/amqp/client.h"

struct rabbit_fake {
	struct rabbit_handle *handle; /* the one that is open, or NULL */
	struct buf calls;	      /* "open; open 1; consume 1 q; " */
	bool refuses;		      /* open fails */
	bool answers;		      /* channel, qos, consume, cancel, confirm and close answer themselves */
	const char *product;	      /* NULL = "Fake 1" */
	uint32_t opened;
};

extern const struct rabbit_client rabbit_fake_client;

void rabbit_fake_init(struct rabbit_fake *fake);
void rabbit_fake_done(struct rabbit_fake *fake);
/* Shows an event; `text` is copied into it, the rest is borrowed until it is polled. */
void rabbit_fake_event(struct rabbit_fake *fake, const struct rabbit_event *event, const char *text);
/* The calls since the last time; valid until the next. */
const char *rabbit_fake_calls(struct rabbit_fake *fake);

#endif
