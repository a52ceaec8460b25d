/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load of the history bench. Each line of standard input, "FIRST COUNT FROM TO", takes COUNT instances of one loop
 * (tests/bench/history-loop) from their FROM-th step to their TO-th, and is answered by a line of JSON; one replica does all. A step is one message that resumes the instance at its receive, is counted, and sends what it counted: the one effect
 * of the step, by which the sink knows instance and number. The next message of an instance is given when the one before
 * was settled, so COUNT resumes are under way all the time.
 *
 * An instance's messages carry the numbers of its steps, so a run can go on where another one has stopped.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/bench/replica.h"

struct history {
	struct bench_replica replica;
	struct bench_sink sink;
	uint64_t first, count, from, to;
	struct history_instance {
		struct history *history;
		uint64_t number, step; /* the step under way; 0 = its start */
		int64_t sent_us;
	} *instances;
	uint8_t *effects; /* of each instance each step, how often */
	uint64_t settled, arrived, doubled, unknown, given_back;
	int64_t began_us, last_us;
	struct samples latency;
	bool done; /* atomic */
};

static uint64_t history_steps(const struct history *history)
{
	return history->count * (history->to - history->from);
}

static void history_check_done(struct history *history)
{
	if (history->settled == history_steps(history) &&
	    history->arrived == history_steps(history))
		__atomic_store_n(&history->done, true, __ATOMIC_RELEASE);
}

static void history_settled(void *user, enum settle how);

static void history_send(struct history_instance *inst)
{
	struct message *message = message_new();
	struct arena *arena = &message->arena;
	unsigned long long number = inst->number, step = inst->step;
	const char *channel = step ? "ticks" : "begins";

	message->key = str_of(arena_printf(arena, "loop-%09llu", number));
	message->order_key = message->key;
	message->content_type = STR("application/json");
	message->message_id = str_of(arena_printf(arena, "loop-%09llu-%09llu", number, step));
	message->source = str_of(channel);
	message->body = str_of(arena_printf(arena, "{\"id\":\"loop-%09llu\",\"step\":%llu}", number, step));
	message->bytes = message->body.len + message->key.len;
	inst->sent_us = loop_now_us(inst->history->replica.loop);
	replica_inject(&inst->history->replica, channel, message, history_settled, inst);
}

static void history_settled(void *user, enum settle how)
{
	struct history_instance *inst = user;
	struct history *history = inst->history;
	int64_t now_us = loop_now_us(history->replica.loop);

	if (how != SETTLE_DONE) {
		history->given_back++;
		return;
	}
	if (inst->step) {
		history->settled++;
		history->last_us = now_us;
		samples_add(&history->latency, now_us - inst->sent_us);
	}
	if (inst->step < history->to) {
		inst->step++;
		history_send(inst);
	}
	history_check_done(history);
}

static void history_take(struct bench_sink *sink, struct str body)
{
	struct history *history = sink->user;
	int64_t number = bench_body_number(body, "\"id\":\"loop-");
	int64_t step = bench_body_number(body, "\"count\":");
	uint64_t at;

	if (number < (int64_t)history->first ||
	    number >= (int64_t)(history->first + history->count) || step <= (int64_t)history->from ||
	    step > (int64_t)history->to) {
		history->unknown++;
		return;
	}
	at = ((uint64_t)number - history->first) * (history->to - history->from) +
	     ((uint64_t)step - history->from - 1);
	if (history->effects[at]++)
		history->doubled++;
	else
		history->arrived++;
}

static void history_sink_settled(struct bench_sink *sink)
{
	history_check_done(sink->user);
}

static void history_begin(void *arg)
{
	struct history *history = arg;

	history->began_us = loop_now_us(history->replica.loop);
	for (uint64_t i = 0; i < history->count; i++) {
		struct history_instance *inst = &history->instances[i];

		*inst = (struct history_instance){history, history->first + i, history->from, 0};
		if (inst->step)
			inst->step++;
		history_send(inst);
	}
}

static bool history_is_done(void *arg)
{
	return __atomic_load_n(&((struct history *)arg)->done, __ATOMIC_ACQUIRE);
}

/* Waits as long as steps are made: a machine may be slow, but one that makes none for so long does not go on. */
static void history_wait(struct history *history)
{
	uint64_t before = 0;

	while (!loop_wait(runtime_threads(), history_is_done, history, DRAIN_TIMEOUT_MS)) {
		uint64_t now = __atomic_load_n(&history->settled, __ATOMIC_RELAXED);

		if (now == before) {
			fprintf(stderr, "driver: after %d s without a step some are not through\n",
				DRAIN_TIMEOUT_MS / 1000);
			return;
		}
		before = now;
	}
}

static void history_print(struct history *history, int64_t cpu_us)
{
	printf("{\"steps\": %llu, \"seconds\": %.6f, \"cpu_us\": %lld, \"lost\": %llu, "
	       "\"doubled\": %llu, \"unknown\": %llu, \"given_back\": %llu, \"p50_us\": %u, "
	       "\"p99_us\": %u}\n",
	       (unsigned long long)history->settled,
	       (double)(history->last_us - history->began_us) / (double)US_PER_S,
	       (long long)cpu_us, (unsigned long long)(history_steps(history) - history->arrived),
	       (unsigned long long)history->doubled, (unsigned long long)history->unknown,
	       (unsigned long long)history->given_back, samples_quantile(&history->latency, 500),
	       samples_quantile(&history->latency, 990));
	fflush(stdout);
}

static void history_run(struct history *history)
{
	int64_t cpu_us = bench_cpu_us();

	if (!history->count || history->to <= history->from)
		bench_die("COUNT must be at least 1, TO more than FROM");
	history->instances = mem_array(NULL, history->count, sizeof(*history->instances));
	history->effects = mem_zalloc(history_steps(history));
	history->done = false;
	history->settled = history->arrived = history->latency.count = 0;
	loop_call(history->replica.loop, history_begin, history);
	history_wait(history);
	history_print(history, bench_cpu_us() - cpu_us);
	free(history->instances);
	free(history->effects);
}

int bench_history(void)
{
	struct history history = {0};
	char line[128];

	replica_open(&history.replica);
	history.sink.take = history_take;
	history.sink.settled = history_sink_settled;
	history.sink.user = &history;
	sink_open(&history.sink, &history.replica, "counts-sink");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &history.first,
			   &history.count, &history.from, &history.to) != 4)
			bench_die("not FIRST COUNT FROM TO: %s", line);
		history_run(&history);
	}
	replica_stop(&history.replica);
	sink_close(&history.sink);
	replica_free(&history.replica);
	free(history.latency.us);
	return 0;
}
