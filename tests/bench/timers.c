/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of the timers bench: COUNT instances (tests/bench/timers-due) are begun, each of which waits for its time, sends one
 * message, and ends. With a rate the times are so far apart; without, all are due at one moment, and what is measured is how
 * fast a replica lets them fire. The first is due so late that all instances wait by then.
 *
 * Effects are counted by instance: one that fired twice, or not at all, is told. Lateness is from when a timer was due to when its
 * effect has arrived at the sink, which is after the commit of its step and after the outbox.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/bench/replica.h"

#define WINDOW	    1024 /* instances that are being begun */
#define BEGIN_RATE  1000 /* a second, at the very least */
#define QUIET_US    (2 * US_PER_S)

struct timers_load {
	struct bench_replica replica;
	struct bench_sink sink;
	uint64_t count, rate;
	uint64_t begun, settled, given_back;
	uint64_t arrived, doubled, unknown;
	uint8_t *effects; /* of each instance, how often */
	int64_t first_due_us; /* wall clock */
	int64_t last_us;
	int64_t began_last_us; /* when the last instance had begun */
	int64_t cpu_us;
	struct loop_timer due;
	struct samples lateness;
	bool done; /* atomic */
};

static int64_t timers_due_us(const struct timers_load *load, uint64_t number)
{
	return load->first_due_us + (load->rate ? (int64_t)(number * US_PER_S / load->rate) : 0);
}

static void timers_settled(void *user, enum settle how);

static void timers_send(struct timers_load *load)
{
	struct message *message = message_new();
	struct arena *arena = &message->arena;
	unsigned long long number = load->begun++;
	char due[TIME_TEXT_SIZE];

	time_format(timers_due_us(load, number), due);
	message->key = str_of(arena_printf(arena, "due-%09llu", number));
	message->order_key = message->key;
	message->content_type = STR("application/json");
	message->message_id = message->key;
	message->source = STR("begins");
	message->body = str_of(arena_printf(arena, "{\"id\":\"due-%09llu\",\"due\":\"%s\"}", number, due));
	message->bytes = message->body.len + message->key.len;
	replica_inject(&load->replica, "begins", message, timers_settled, load);
}

static void timers_settled(void *user, enum settle how)
{
	struct timers_load *load = user;

	load->settled++;
	load->given_back += how != SETTLE_DONE;
	load->began_last_us = loop_wall_us(load->replica.loop);
	if (load->begun < load->count)
		timers_send(load);
}

static void timers_take(struct bench_sink *sink, struct str body)
{
	struct timers_load *load = sink->user;
	int64_t number = bench_body_number(body, "\"id\":\"due-");

	if (number < 0 || (uint64_t)number >= load->count) {
		load->unknown++;
		return;
	}
	if (load->effects[number]++) {
		load->doubled++;
		return;
	}
	load->last_us = loop_wall_us(load->replica.loop);
	samples_add(&load->lateness, load->last_us - timers_due_us(load, (uint64_t)number));
	load->arrived++;
	if (load->arrived == load->count)
		__atomic_store_n(&load->done, true, __ATOMIC_RELEASE);
}

static void timers_sink_settled(struct bench_sink *sink UNUSED)
{
}

/* The first is due: from here on the processor's time counts. */
static void timers_first_due(struct loop_timer *timer)
{
	struct timers_load *load = container_of(timer, struct timers_load, due);

	load->cpu_us = bench_cpu_us();
}

static void timers_begin(void *arg)
{
	struct timers_load *load = arg;
	int64_t lead_us = (int64_t)(load->count * US_PER_S / BEGIN_RATE) + QUIET_US;

	load->first_due_us = loop_wall_us(load->replica.loop) + lead_us;
	loop_timer_init(&load->due, load->replica.loop, timers_first_due);
	loop_timer_start(&load->due, lead_us);
	while (load->begun < load->count && load->begun < WINDOW)
		timers_send(load);
}

static bool timers_are_done(void *arg)
{
	return __atomic_load_n(&((struct timers_load *)arg)->done, __ATOMIC_ACQUIRE);
}

/* Waits as long as timers fire: a machine may be slow, but one on which none does for so long does not go on. */
static void timers_wait(struct timers_load *load)
{
	int64_t lead_ms = (int64_t)(load->count * MS_PER_S / BEGIN_RATE);
	uint64_t before = 0;

	if (loop_wait(runtime_threads(), timers_are_done, load, lead_ms + DRAIN_TIMEOUT_MS))
		return;
	do {
		before = __atomic_load_n(&load->arrived, __ATOMIC_RELAXED);
		if (loop_wait(runtime_threads(), timers_are_done, load, DRAIN_TIMEOUT_MS))
			return;
	} while (__atomic_load_n(&load->arrived, __ATOMIC_RELAXED) != before);
	fprintf(stderr, "driver: for %d s no timer has fired\n", DRAIN_TIMEOUT_MS / 1000);
}

static void timers_print(struct timers_load *load, int64_t cpu_us)
{
	printf("{\"timers\": %llu, \"seconds\": %.6f, \"cpu_us\": %lld, \"late_begins\": %s, \"lost\": %llu, "
	       "\"doubled\": %llu, \"unknown\": %llu, \"given_back\": %llu, \"p50_us\": %u, \"p99_us\": %u, \"p999_us\": %u}\n",
	       (unsigned long long)load->count, (double)(load->last_us - load->first_due_us) / (double)US_PER_S,
	       (long long)cpu_us, load->settled < load->count || load->began_last_us >= load->first_due_us ? "true" : "false",
	       (unsigned long long)(load->count - load->arrived), (unsigned long long)load->doubled,
	       (unsigned long long)load->unknown, (unsigned long long)load->given_back, samples_quantile(&load->lateness, 500),
	       samples_quantile(&load->lateness, 990), samples_quantile(&load->lateness, 999));
}

int bench_timers(int64_t count, int64_t rate)
{
	struct timers_load load = {.count = (uint64_t)count, .rate = (uint64_t)rate};
	int64_t cpu_us;

	load.effects = mem_zalloc(load.count);
	replica_open(&load.replica);
	load.sink.take = timers_take;
	load.sink.settled = timers_sink_settled;
	load.sink.user = &load;
	sink_open(&load.sink, &load.replica, "fired-sink");
	loop_call(load.replica.loop, timers_begin, &load);
	timers_wait(&load);
	cpu_us = bench_cpu_us() - load.cpu_us;
	/* It lets go of all it has before it stops: what was to fire twice has done so. */
	replica_stop(&load.replica);
	sink_close(&load.sink);
	timers_print(&load, cpu_us);
	replica_free(&load.replica);
	free(load.lateness.us);
	free(load.effects);
	return 0;
}
