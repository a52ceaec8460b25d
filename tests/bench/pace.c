/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold-relay through `local` at a given pace: the open loop of load.h around a whole replica in this process. Latency is from when
 * a message was due to when what the process sends for it has arrived, which is after the commit of its step.
 */
#include <stdlib.h>

#include "base/time.h"
#include "tests/bench/load.h"
#include "tests/bench/replica.h"

#define EACH_US (1 * US_PER_MS)

struct pace {
	struct broker_load load;
	struct bench_replica replica;
	struct bench_sink sinks[LOAD_STEPS];
	struct loop_timer timer;
	int64_t seconds;
	uint64_t given_back;
	bool done; /* atomic */
};

static void pace_settled(void *user, enum settle how)
{
	struct pace *pace = user;

	pace->given_back += how != SETTLE_DONE;
}

static void pace_send(struct broker_load *load, enum load_step step, const char *key, const char *message_id,
		      const char *body)
{
	struct pace *pace = container_of(load, struct pace, load);
	struct message *message = message_new();

	message->key = arena_str(&message->arena, str_of(key));
	message->order_key = message->key;
	message->content_type = STR("application/json");
	message->message_id = arena_str(&message->arena, str_of(message_id));
	message->source = str_of(load_channels_in[step]);
	message->body = arena_str(&message->arena, str_of(body));
	message->bytes = message->body.len + message->key.len;
	replica_inject(&pace->replica, load_channels_in[step], message, pace_settled, pace);
}

static void sink_take(struct bench_sink *sink, struct str body)
{
	struct pace *pace = sink->user;

	load_arrived(&pace->load, (enum load_step)(sink - pace->sinks), body);
}

static void sink_settled(struct bench_sink *sink UNUSED)
{
}

static void pace_due(struct loop_timer *timer)
{
	struct pace *pace = container_of(timer, struct pace, timer);

	load_due(&pace->load);
	if (load_is_done(&pace->load))
		__atomic_store_n(&pace->done, true, __ATOMIC_RELEASE);
	else
		loop_timer_start(timer, EACH_US);
}

static void pace_begin(void *arg)
{
	struct pace *pace = arg;

	loop_timer_init(&pace->timer, pace->replica.loop, pace_due);
	load_begin(&pace->load, pace->seconds);
	pace_due(&pace->timer);
}

static bool pace_is_done(void *arg)
{
	return __atomic_load_n(&((struct pace *)arg)->done, __ATOMIC_ACQUIRE);
}

int bench_pace(int64_t seconds, int64_t rate)
{
	static const char *const channels[LOAD_STEPS] = {"stock-sink", "replies-sink"};
	struct pace pace = {.load = {.send = pace_send, .rate = (double)rate}, .seconds = seconds};

	replica_open(&pace.replica);
	for (enum load_step step = 0; step < LOAD_STEPS; step++) {
		struct bench_sink *sink = &pace.sinks[step];

		sink->take = sink_take;
		sink->settled = sink_settled;
		sink->user = &pace;
		sink_open(sink, &pace.replica, channels[step]);
	}
	loop_call(pace.replica.loop, pace_begin, &pace);
	if (!loop_wait(runtime_threads(), pace_is_done, &pace, seconds * MS_PER_S + 2 * DRAIN_TIMEOUT_MS))
		bench_die("the load does not end");
	if (pace.given_back)
		bench_die("%llu messages were given back", (unsigned long long)pace.given_back);
	load_print(&pace.load);
	replica_stop(&pace.replica);
	for (enum load_step step = 0; step < LOAD_STEPS; step++)
		sink_close(&pace.sinks[step]);
	replica_free(&pace.replica);
	load_done(&pace.load);
	return 0;
}
