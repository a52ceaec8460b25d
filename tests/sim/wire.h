/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the simulated RabbitMQ share: rabbit.c is the broker with its connections, rabbit_channel.c what
 * frames do, rabbit_queue.c its queues, rabbit_client.c the handles that processes hold.
 *
 * A handle is both ends of a connection: what the process has of it, and what the broker has. Frames of one direction arrive
 * in the order of sending.
 *
 * Life cycle: everything belongs to the broker and ends with it, handles of killed processes too. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_WIRE_H
#define SUTRA_TESTS_SIM_WIRE_H

#include "base/arena.h"
#include "tests/sim/rabbit.h"

#define RABBIT_RETURNS_MAX 20

struct rabbit_queue {
	struct rabbit_queue *next;
	struct sim_rabbit *rabbit;
	char name[32];
	enum rabbit_queue_kind kind;
	bool missing; /* deleted */
	struct rabbit_message **log;
	size_t count, open;          /* all that ever were, and those that are not done */
	struct list returned, ready; /* of messages, the first to go first */
	struct list consumers;       /* of channels; whose turn it is comes first */
	struct loop_timer declare;
};

struct rabbit_binding {
	struct rabbit_binding *next;
	char exchange[32], key[32];
	bool any_key;
	struct rabbit_queue *queue;
};

/* A delivery that is out. */
struct rabbit_out {
	struct list link;
	uint64_t tag;
	struct rabbit_message *message;
	bool orphan; /* its queue was deleted meanwhile */
};

enum confirm_state { CONFIRM_STORING, CONFIRM_ACK, CONFIRM_NACK, CONFIRM_NEVER };

/* A publication that is not confirmed. */
struct rabbit_unconfirmed {
	struct list link;
	struct rabbit_channel *channel;
	uint64_t number;
	enum confirm_state state;
	struct rabbit_message *messages[2];
	uint32_t message_count;
	struct loop_timer stored;
};

/* The broker's end of a channel. */
struct rabbit_channel {
	struct list link;
	struct rabbit_handle *handle;
	uint16_t number;
	uint64_t lease;
	bool closing; /* the broker has closed it and waits for the answer */
	bool confirms;
	uint16_t prefetch;          /* 0: no bound */
	struct rabbit_queue *queue; /* consumed; NULL: none */
	struct list consumer_link;
	uint64_t tag;    /* of the last delivery */
	struct list out; /* of rabbit_out, by tag */
	uint32_t out_count;
	uint64_t published;
	struct list unconfirmed; /* by number */
	struct loop_timer confirm;
};

enum frame_kind {
	FRAME_OPEN,
	FRAME_CLOSE,
	FRAME_CLOSE_OK,
	FRAME_QOS,
	FRAME_CONSUME,
	FRAME_CANCEL,
	FRAME_ACK,
	FRAME_NACK,
	FRAME_CONFIRM,
	FRAME_PUBLISH,
	FRAME_END,   /* of the connection */
	FRAME_EVENT, /* to the client */
};

struct frame {
	struct list link;
	struct rabbit_handle *handle;
	enum frame_kind kind;
	uint16_t channel;
	uint64_t tag; /* or the prefetch */
	bool multiple;
	char name[32]; /* of a queue, or an exchange */
	struct str key;
	struct rabbit_properties properties; /* in the broker's arena */
	struct str body;
	struct loop_timer timer;
	struct rabbit_event event;
	const struct rabbit_message *message; /* DELIVERED */
	uint64_t lease;
};

struct rabbit_handle {
	struct list link;
	struct sim_rabbit *rabbit;
	struct process *process;
	bool cut; /* nothing gets through any more */
	int64_t due_us
		[2]; /* what was sent last arrives then: later things not before. To the broker, to the client */

	/* The process's end. */
	struct loop *loop;
	void (*ready)(void *user);
	void *user;
	bool closed, idle, ready_posted;
	struct task ready_task;
	struct list events; /* of frames */
	struct frame *shown;
	struct loop_timer notice; /* of a loss */
	uint64_t sent[16];        /* publications by channel: for the bug of early confirms */

	/* The broker's. */
	bool up;
	bool publishes;    /* an alarm stops it */
	bool blocked_told; /* and it was told so */
	struct list channels;
	struct list stalled; /* frames that an alarm holds up */
	struct loop_timer broker_notice;
	int64_t seen_us, heartbeat_us;
};

struct sim_rabbit_client {
	struct sim_rabbit_client *next;
	struct sim_rabbit *rabbit;
	struct process *process;
};

struct sim_rabbit {
	struct sim *sim;
	struct sim_rabbit_settings settings;
	struct sim_rabbit_stats stats;
	struct arena arena;
	bool up, calm, alarm;
	uint64_t leases;
	struct rabbit_queue *queues;
	struct rabbit_binding *bindings;
	struct sim_rabbit_client *clients;
	struct list handles, frames;
	struct loop_timer start, beat, alarm_over;
};

/* rabbit.c */

void handle_init_broker_end(struct rabbit_handle *handle);
/* The broker has it no longer. */
void handle_end(struct rabbit_handle *handle);
/* It has sent a publication. */
void handle_publishes(struct rabbit_handle *handle);

/* To the broker (also by the client), or a copy of the event to the client. */
struct frame *frame_send(struct rabbit_handle *handle, enum frame_kind kind, uint16_t channel);
struct frame *event_send(struct rabbit_handle *handle, const struct rabbit_event *event);
void frame_free(struct frame *frame);
/* Drops what is under way to the broker but for a first part of it, and to the client. */
void handle_drop_frames(struct rabbit_handle *handle, bool keeps_some);
void handle_cut(struct rabbit_handle *handle);
void rabbit_properties_copy(struct arena *arena, struct rabbit_properties *to,
			    const struct rabbit_properties *from);

/* rabbit_channel.c */

void frame_take(const struct frame *frame);
/* `restarts`: what is not stored stays so. */
void channel_free(struct rabbit_channel *channel, bool restarts);

/* rabbit_queue.c */

struct rabbit_queue *queue_find(const struct sim_rabbit *rabbit, const char *name);
struct rabbit_message *queue_add(struct rabbit_queue *queue,
				 const struct rabbit_properties *properties, struct str body);
/* Nothing more comes of it. */
void message_done(struct rabbit_message *message);
/* Delivers what there is to consumers that have room. */
void queue_pump(struct rabbit_queue *queue);
void queue_subscribe(struct rabbit_queue *queue, struct rabbit_channel *channel);
void queue_unsubscribe(struct rabbit_channel *channel);
/* Tells all consumers that they are none any more. */
void queue_cancel_all(struct rabbit_queue *queue);
/* The delivery is over. */
void out_ack(struct rabbit_channel *channel, struct rabbit_out *out);
void out_return(struct rabbit_channel *channel, struct rabbit_out *out, bool by_nack);
/* Gives back everything that is out. */
void channel_return_all(struct rabbit_channel *channel);
void queue_lose_unstored(struct rabbit_queue *queue);
void queue_free(struct rabbit_queue *queue);

/* rabbit_client.c */

void handle_arrived(struct rabbit_handle *handle, struct frame *frame);
void handle_lost(struct loop_timer *notice);
void rabbit_handle_free(struct rabbit_handle *handle);

#endif
