/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine under load: a whole replica in this process (replica.h). The load is a closed loop: so many orders are outstanding; when an order's first message is settled its payment is sent, and
 * when that is settled the next order. What the process sends is consumed by the two sinks here, which settle at once
 * and count how often each order came: less than once is lost, more is doubled.
 *
 * Everything of the load runs on the consuming loop of the local connection, so it needs no locks; main only waits.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/bench/replica.h"

enum step { STEP_SPAWN, STEP_RELAY, STEP_COUNT };

struct order_state {
	uint8_t settled[STEP_COUNT]; /* how often its messages were settled */
	uint8_t sent[STEP_COUNT];    /* how often what it sent arrived at the sink */
};

struct load {
	struct bench_replica replica;
	struct loop *loop; /* the replica's */
	struct bench_sink sinks[STEP_COUNT];
	bool withhold; /* atomic: the sinks keep what they get */
	uint64_t window;
	uint64_t most; /* orders, whatever the time; 0 = as many as go */

	struct order_state *orders;
	uint64_t count, capacity; /* orders begun */
	uint64_t completed;       /* settled steps */
	uint64_t arrived;         /* messages at the sinks, of known orders, the first of each */
	uint64_t doubled, unknown, given_back, total;
	int64_t began_us, end_us, last_us;
	struct samples latency;
	bool done; /* atomic */
};

/* What stands behind an injected message. */
struct sent_step {
	struct load *load;
	uint64_t order;
	enum step step;
	int64_t sent_us;
};

static void load_send(struct load *load, uint64_t order, enum step step);

/* --- orders in --- */

static void load_check_done(struct load *load)
{
	uint64_t all = load->count * STEP_COUNT;

	if ((load->most ? load->count == load->most : loop_now_us(load->loop) >= load->end_us) &&
	    load->completed == all &&
	    load->arrived == all)
		__atomic_store_n(&load->done, true, __ATOMIC_RELEASE);
}

static void load_next_order(struct load *load)
{
	if (load->count == load->capacity) {
		load->capacity = load->capacity ? load->capacity * 2 : 1 << 16;
		load->orders = mem_array(load->orders, load->capacity, sizeof(*load->orders));
	}
	load->orders[load->count] = (struct order_state){0};
	load_send(load, load->count++, STEP_SPAWN);
}

static void load_settled(void *user, enum settle how)
{
	struct sent_step *sent = user;
	struct load *load = sent->load;
	int64_t now_us = loop_now_us(load->loop);

	if (how != SETTLE_DONE) {
		load->given_back++;
		return;
	}
	load->orders[sent->order].settled[sent->step]++;
	load->completed++;
	load->last_us = now_us;
	samples_add(&load->latency, now_us - sent->sent_us);
	if (sent->step == STEP_SPAWN && !__atomic_load_n(&load->withhold, __ATOMIC_ACQUIRE))
		load_send(load, sent->order, STEP_RELAY);
	else if (sent->step == STEP_RELAY && (load->most ? load->count < load->most : now_us < load->end_us))
		load_next_order(load);
	load_check_done(load);
}

static void load_send(struct load *load, uint64_t order, enum step step)
{
	struct message *message = message_new();
	struct arena *arena = &message->arena;
	struct sent_step *sent = arena_alloc(arena, sizeof(*sent));
	const char *channel = step == STEP_SPAWN ? "orders" : "payments";
	char text[ORDER_TEXT_SIZE], payment[PAYMENT_TEXT_SIZE];

	order_text(order, text);
	message->key = arena_str(arena, str_of(text));
	message->order_key = message->key;
	message->content_type = STR("application/json");
	message->message_id = arena_str(
		arena, str_of(step == STEP_SPAWN ? text : payment_text(order, payment)));
	message->source = str_of(channel);
	if (step == STEP_SPAWN)
		message->body = str_of(arena_printf(arena,
						    "{\"orderId\":\"%s\",\"item\":\"green tea, "
						    "first flush\",\"quantity\":%u,\"price\":%u}",
						    text, order_quantity(order), ORDER_PRICE));
	else
		message->body = str_of(arena_printf(arena, "{\"orderId\":\"%s\",\"amount\":%u}",
						    text, order_total(order)));
	message->bytes = message->body.len + message->key.len;
	*sent = (struct sent_step){load, order, step, loop_now_us(load->loop)};
	replica_inject(&load->replica, channel, message, load_settled, sent);
}

/* --- what comes out --- */

static void sink_take(struct bench_sink *sink, struct str body)
{
	struct load *load = sink->user;
	enum step step = (enum step)(sink - load->sinks);
	int64_t order = bench_body_number(body, "\"orderId\":\"order-");

	if (order < 0 || (uint64_t)order >= load->count) {
		load->unknown++;
		return;
	}
	if (load->orders[order].sent[step]++) {
		load->doubled++;
		return;
	}
	load->arrived++;
	if (step == STEP_RELAY)
		load->total += (uint64_t)bench_body_number(body, "\"total\":");
}

static void sink_settled(struct bench_sink *sink)
{
	load_check_done(sink->user);
}

/* --- the replica --- */

static void load_open(struct load *load)
{
	static const char *const channels[STEP_COUNT] = {"stock-sink", "replies-sink"};

	replica_open(&load->replica);
	load->loop = load->replica.loop;
	for (enum step step = 0; step < STEP_COUNT; step++) {
		struct bench_sink *sink = &load->sinks[step];

		sink->take = sink_take;
		sink->settled = sink_settled;
		sink->withhold = &load->withhold;
		sink->user = load;
		sink_open(sink, &load->replica, channels[step]);
	}
}

static void load_close(struct load *load)
{
	replica_stop(&load->replica);
	for (enum step step = 0; step < STEP_COUNT; step++)
		sink_close(&load->sinks[step]);
	replica_free(&load->replica);
	free(load->orders);
	free(load->latency.us);
}

static bool load_is_done(void *arg)
{
	return __atomic_load_n(&((struct load *)arg)->done, __ATOMIC_ACQUIRE);
}

/* --- a run --- */

static void load_begin(void *arg)
{
	struct load *load = arg;

	for (uint64_t i = 0; i < load->window; i++)
		load_next_order(load);
}

static uint64_t load_lost(const struct load *load)
{
	uint64_t lost = 0;

	for (uint64_t i = 0; i < load->count; i++)
		for (enum step step = 0; step < STEP_COUNT; step++)
			lost += !load->orders[i].settled[step] || !load->orders[i].sent[step];
	return lost;
}

static uint64_t load_total_expected(const struct load *load)
{
	uint64_t total = 0;

	for (uint64_t i = 0; i < load->count; i++)
		total += order_total(i);
	return total;
}

static void print_store(const struct store_stats *stats)
{
	printf(", \"transactions\": %llu, \"statements\": %llu, \"segments\": %llu, "
	       "\"gate_failures\": %llu",
	       (unsigned long long)stats->transactions, (unsigned long long)stats->statements,
	       (unsigned long long)stats->segments, (unsigned long long)stats->gate_failures);
	printf(", \"batches\": {");
	for (int kind = 0; kind < STORE_TAKE; kind++) {
		static const char *const names[] = {"claim", "release", "resolve", "commit",
						    "query", "probe"};

		printf("%s\"%s\": [%llu, %llu]", kind ? ", " : "", names[kind],
		       (unsigned long long)stats->batches[kind],
		       (unsigned long long)stats->elements[kind]);
	}
	printf("}, \"histogram\": [");
	for (size_t i = 0; i < ARRAY_LEN(stats->batch_histogram); i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)stats->batch_histogram[i]);
	printf("]");
}

int bench_engine(int64_t seconds)
{
	const char *most = getenv("SUTRA_BENCH_ORDERS");
	struct load load = {.most = most ? (uint64_t)bench_number(most) : 0};
	struct store_stats stats;
	int64_t cpu_us;

	load.window = (uint64_t)bench_number(bench_env("SUTRA_BENCH_WINDOW"));
	load_open(&load);
	cpu_us = bench_cpu_us();
	load.began_us = loop_now_us(load.loop);
	load.end_us = load.began_us + seconds * US_PER_S;
	loop_call(load.loop, load_begin, &load);
	if (!loop_wait(runtime_threads(), load_is_done, &load,
		       seconds * MS_PER_S + DRAIN_TIMEOUT_MS))
		fprintf(stderr, "driver: after %d s some orders are not through\n",
			DRAIN_TIMEOUT_MS / 1000);
	cpu_us = bench_cpu_us() - cpu_us;
	store_stats_read(load.replica.service->store, &stats);
	printf("{\"orders\": %llu, \"steps\": %llu, \"seconds\": %.6f, \"cpu_us\": %lld, \"lost\": "
	       "%llu, \"doubled\": %llu, "
	       "\"unknown\": %llu, \"given_back\": %llu, \"total\": %llu, \"total_expected\": %llu",
	       (unsigned long long)load.count, (unsigned long long)load.completed,
	       (double)(load.last_us - load.began_us) / (double)US_PER_S, (long long)cpu_us,
	       (unsigned long long)load_lost(&load), (unsigned long long)load.doubled,
	       (unsigned long long)load.unknown, (unsigned long long)load.given_back,
	       (unsigned long long)load.total, (unsigned long long)load_total_expected(&load));
	printf(", \"p50_us\": %u, \"p99_us\": %u", samples_quantile(&load.latency, 500),
	       samples_quantile(&load.latency, 990));
	print_store(&stats);
	printf("}\n");
	load_close(&load);
	return 0;
}

/* --- capture: one order, held still after each step --- */

static bool capture_arrived(void *arg)
{
	struct load *load = arg;

	return __atomic_load_n(&load->completed, __ATOMIC_ACQUIRE) ==
		       __atomic_load_n(&load->arrived, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&load->completed, __ATOMIC_ACQUIRE) == load->window;
}

static void capture_first(void *arg)
{
	load_next_order(arg);
}

static void capture_second(void *arg)
{
	load_send(arg, 0, STEP_RELAY);
}

/* The outbox row is there as long as its message is not settled. */
static void capture_rows(PGconn *pg, const char *step)
{
	static const char *const tables[] = {"instance", "wait", "alias", "outbox_entry"};
	char sql[256];

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		snprintf(sql, sizeof(sql), "create table bench.%s_%s as select * from sutra.%s%s",
			 step, tables[i], tables[i],
			 strcmp(tables[i], "outbox_entry") == 0 ? " order by version desc limit 1"
								: "");
		PQclear(bench_exec(pg, sql));
	}
}

int bench_capture(void)
{
	struct load load = {.withhold = true, .window = 1};
	PGconn *pg = bench_connect(true);

	PQclear(bench_exec(pg, "create schema bench"));
	load_open(&load);
	loop_call(load.loop, capture_first, &load);
	if (!loop_wait(runtime_threads(), capture_arrived, &load, DRAIN_TIMEOUT_MS))
		bench_die("the order does not park");
	capture_rows(pg, "spawn");
	load.window = 2;
	loop_call(load.loop, capture_second, &load);
	if (!loop_wait(runtime_threads(), capture_arrived, &load, DRAIN_TIMEOUT_MS))
		bench_die("the payment does not come through");
	capture_rows(pg, "relay");
	__atomic_store_n(&load.withhold, false, __ATOMIC_RELEASE);
	for (enum step step = 0; step < STEP_COUNT; step++)
		loop_post(load.loop, &load.sinks[step].task);
	PQclear(bench_exec(pg, "grant usage on schema bench to sutra; grant select on all tables "
			       "in schema bench to sutra"));
	load_close(&load);
	PQfinish(pg);
	return 0;
}
