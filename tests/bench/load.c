/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker-independent half of the load over a broker: when which order is sent, and what became of it. Nothing here waits; the
 * broker's half calls load_due and load_arrived from its one loop.
 */
#include "tests/bench/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"

/* The customer of the open loop pays so much later. */
#define PAY_AFTER_US (100 * US_PER_MS)
/* Nothing has come out for so long: what is missing is lost. SUTRA_BENCH_SILENCE has other seconds. */
#define SILENCE_S 30

const char *const load_channels_in[LOAD_STEPS] = {"orders", "payments"};
const char *const load_channels_out[LOAD_STEPS] = {"stock", "replies"};

void load_name(const char *channel, char name[static LOAD_NAME_SIZE])
{
	snprintf(name, LOAD_NAME_SIZE, "%s-%s", channel, bench_env("SUTRA_BENCH_MARK"));
}

static void send_step(struct broker_load *load, uint64_t n, enum load_step step, int64_t due_us)
{
	char order[ORDER_TEXT_SIZE], payment[PAYMENT_TEXT_SIZE], body[128];

	order_text(n, order);
	load->orders[n].due_us[step] = due_us;
	if (step == LOAD_SPAWN)
		snprintf(body, sizeof(body),
			 "{\"orderId\":\"%s\",\"item\":\"green tea, first flush\",\"quantity\":%u,\"price\":%u}", order,
			 order_quantity(n), ORDER_PRICE);
	else
		snprintf(body, sizeof(body), "{\"orderId\":\"%s\",\"amount\":%u}", order, order_total(n));
	load->send(load, step, order, step == LOAD_SPAWN ? order : payment_text(n, payment), body);
}

static void next_order(struct broker_load *load, int64_t due_us)
{
	if (load->count == load->capacity) {
		load->capacity = load->capacity ? load->capacity * 2 : 1 << 16;
		load->orders = mem_array(load->orders, load->capacity, sizeof(*load->orders));
	}
	load->orders[load->count] = (struct load_order){0};
	send_step(load, load->count++, LOAD_SPAWN, due_us);
}

void load_begin(struct broker_load *load, int64_t seconds)
{
	const char *silence = getenv("SUTRA_BENCH_SILENCE");

	load->silence_us = (silence ? bench_number(silence) : SILENCE_S) * US_PER_S;
	load->cpu_us = bench_cpu_us();
	load->began_us = load->last_us = time_monotonic_us();
	load->end_us = load->began_us + seconds * US_PER_S;
	if (load->rate > 0)
		return;
	for (uint64_t i = 0; i < load->window; i++)
		next_order(load, load->began_us);
}

int load_due(struct broker_load *load)
{
	int64_t now_us = time_monotonic_us();

	if (load->rate <= 0)
		return 10;
	for (;;) {
		int64_t due_us = load->began_us + (int64_t)((double)load->count * LOAD_STEPS / load->rate * US_PER_S);

		if (due_us > now_us || due_us >= load->end_us)
			break;
		next_order(load, due_us);
	}
	/* In order of their orders, so one that is not parked yet holds up those behind it: late, and counted from their time. */
	while (load->payments < load->count) {
		struct load_order *order = &load->orders[load->payments];
		int64_t due_us = order->due_us[LOAD_SPAWN] + PAY_AFTER_US;

		if (due_us > now_us || !order->arrived[LOAD_SPAWN])
			break;
		send_step(load, load->payments++, LOAD_RELAY, due_us);
	}
	return 1;
}

void load_arrived(struct broker_load *load, enum load_step step, struct str body)
{
	int64_t n = bench_body_number(body, "\"orderId\":\"order-");
	struct load_order *order;

	if (n < 0 || (uint64_t)n >= load->count || !load->orders[n].due_us[step]) {
		load->unknown++;
		return;
	}
	order = &load->orders[n];
	if (order->arrived[step]++) {
		load->doubled++;
		return;
	}
	load->arrived[step]++;
	load->last_us = time_monotonic_us();
	samples_add(&load->latency[step], load->last_us - order->due_us[step]);
	if (step == LOAD_RELAY)
		load->total += (uint64_t)bench_body_number(body, "\"total\":");
	if (load->rate > 0)
		return;
	if (step == LOAD_SPAWN)
		send_step(load, (uint64_t)n, LOAD_RELAY, load->last_us);
	else if (load->last_us < load->end_us)
		next_order(load, load->last_us);
}

bool load_is_done(const struct broker_load *load)
{
	int64_t now_us = time_monotonic_us();

	if (now_us < load->end_us)
		return false;
	return load->arrived[LOAD_RELAY] == load->count || now_us > load->last_us + load->silence_us;
}

void load_print(struct broker_load *load)
{
	uint64_t lost = 0, total = 0, steps = load->arrived[LOAD_SPAWN] + load->arrived[LOAD_RELAY];

	for (uint64_t n = 0; n < load->count; n++) {
		lost += !load->orders[n].arrived[LOAD_SPAWN] + !load->orders[n].arrived[LOAD_RELAY];
		total += order_total(n);
	}
	printf("{\"orders\": %llu, \"steps\": %llu, \"seconds\": %.6f, \"cpu_us\": %lld, \"lost\": %llu, \"doubled\": %llu, "
	       "\"unknown\": %llu, \"total\": %llu, \"total_expected\": %llu, \"latency_us\": [",
	       (unsigned long long)load->count, (unsigned long long)steps,
	       (double)(load->last_us - load->began_us) / (double)US_PER_S, (long long)(bench_cpu_us() - load->cpu_us),
	       (unsigned long long)lost, (unsigned long long)load->doubled, (unsigned long long)load->unknown,
	       (unsigned long long)load->total, (unsigned long long)total);
	for (enum load_step step = 0; step < LOAD_STEPS; step++)
		printf("%s{\"p50\": %u, \"p99\": %u, \"p999\": %u, \"max\": %u}", step ? ", " : "",
		       samples_quantile(&load->latency[step], 500), samples_quantile(&load->latency[step], 990),
		       samples_quantile(&load->latency[step], 999), samples_quantile(&load->latency[step], 1000));
	printf("]}\n");
}

void load_done(struct broker_load *load)
{
	free(load->orders);
	for (enum load_step step = 0; step < LOAD_STEPS; step++)
		free(load->latency[step].us);
}
