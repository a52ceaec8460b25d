/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of hold-relay over a broker: orders go in, what the process sends comes out, and both are counted by order. The
 * engine, or the reference in its place, is another process.
 *
 * Closed loop: `window` orders are outstanding; an order's payment is sent when its first message has come out, the next order
 * when its second has. Open loop: order n is due at its time whatever happened to those before it, its payment a fixed
 * time later, and latencies count from when a message was due, not from when it could be sent: what a stall keeps from being sent
 * is counted as late (no coordinated omission).
 *
 * Life cycle: load_init, load_begin, then turns of load_due and load_arrived until load_is_done; load_print, load_done. One thread.
 */
#ifndef SUTRA_TESTS_BENCH_LOAD_H
#define SUTRA_TESTS_BENCH_LOAD_H

#include "tests/bench/bench.h"

enum load_step { LOAD_SPAWN, LOAD_RELAY, LOAD_STEPS };

struct load_order {
	int64_t due_us[LOAD_STEPS]; /* 0 = not sent yet */
	uint8_t arrived[LOAD_STEPS];
};

struct broker_load {
	/* The broker's: sends one message with the event id `message_id`; all is copied. */
	void (*send)(struct broker_load *load, enum load_step step, const char *key, const char *message_id,
		     const char *body);
	uint64_t window; /* closed loop: orders outstanding */
	double rate;	 /* open loop: steps a second; 0 = closed loop */
	int64_t end_us;

	struct load_order *orders;
	uint64_t count, capacity;
	uint64_t payments; /* open loop: orders whose payment was sent or whose time is not there yet come behind it */
	uint64_t arrived[LOAD_STEPS];
	uint64_t doubled, unknown, total;
	int64_t began_us, last_us, cpu_us, silence_us;
	struct samples latency[LOAD_STEPS];
};

/* Topics and queues: the channels of hold-relay, with the environment's SUTRA_BENCH_MARK behind them. */
enum { LOAD_NAME_SIZE = 96 };
void load_name(const char *channel, char name[static LOAD_NAME_SIZE]);
extern const char *const load_channels_in[LOAD_STEPS], *const load_channels_out[LOAD_STEPS];

void load_begin(struct broker_load *load, int64_t seconds);
/* A message that the process sent. */
void load_arrived(struct broker_load *load, enum load_step step, struct str body);
/* Open loop: sends what is due. Returns in how many milliseconds to call it again, at most 10. */
int load_due(struct broker_load *load);
/* Everything has come out, or too long nothing has: load_print tells. */
bool load_is_done(const struct broker_load *load);
void load_print(struct broker_load *load);
void load_done(struct broker_load *load);

/* The programs; each returns its exit code. `rate` 0: as fast as it goes. */
int load_kafka(int64_t seconds, double rate);
int load_rabbitmq(int64_t seconds, double rate);
int relay_kafka(void);
int relay_rabbitmq(void);

#endif
