/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From frames to events: a method is an event, or the beginning of a message of which header and body frames follow on the
 * same channel, with frames of other channels between them.
 *
 * Everything is copied out of a frame when it is taken, so the library's buffers may be released after every one.
 * Life cycle: frames_init, frames_done. An event of a message borrows from `frames` until the next frame is taken.
 * Threads: one at a time.
 */
#ifndef SUTRA_TRANSPORTS_AMQP_FRAMES_H
#define SUTRA_TRANSPORTS_AMQP_FRAMES_H

#include "base/arena.h"
#include "base/buf.h"
#include "transports/amqp/client.h"
#include "transports/amqp/rabbitmq.h"

enum frames_result {
	FRAMES_NOTHING, /* a part of a message, or nothing that matters */
	FRAMES_EVENT,	/* *event is set; channel.close and connection.close (a LOST) are to be answered by the caller */
	FRAMES_BROKEN,	/* the broker broke the protocol: the connection is of no use any more; event->text says how */
};

struct frames_channel;

struct frames {
	struct frames_channel **channels; /* by number; NULL = never used */
	size_t count;
};

void frames_init(struct frames *frames);
void frames_done(struct frames *frames);
enum frames_result frames_take(struct frames *frames, const amqp_frame_t *frame, struct rabbit_event *event);

#endif
