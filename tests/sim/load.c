/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything is planned at once from the seed, so that the load does not depend on what the replicas do.
 */
#include "tests/sim/load.h"

#include "base/time.h"

#define PARTITIONS     4
#define OUT_PARTITIONS 2

static void load_produce(struct loop_timer *timer)
{
	struct load_record *record = container_of(timer, struct load_record, timer);
	struct load *load = record->load;
	struct load_event *event = record->event;
	struct str names[] = {STR("event-id")};
	struct str values[] = {str_of(event->id)};
	struct kafka_record out = {
		.topic = str_of(event->topic),
		.timestamp_ms = -1,
		.key = record->key[0] ? str_of(record->key) : STR_NONE,
		.value = str_of(event->body),
		.header_names = names,
		.header_values = values,
		.header_count = 1,
	};
	int64_t offset;
	int32_t partition;

	/* A topic that is not there yet, or a broker that is away: its producer tries again. */
	if (!sim_cluster_is_up(load->cluster) ||
	    !sim_cluster_partitions(load->cluster, event->topic)) {
		loop_timer_start(timer, 300 * US_PER_MS);
		return;
	}
	load->produced++;
	offset = sim_cluster_append(load->cluster, event->topic, -1, &out, &partition);
	if (event->offset >= 0)
		return;
	event->partition = partition;
	event->offset = offset;
}

static void load_plan(struct load *load, struct load_event *event, const char *key, int64_t at_us)
{
	struct load_record *record;

	if (load->record_count == LOAD_RECORDS_MAX)
		return;
	record = &load->records[load->record_count++];
	record->load = load;
	record->event = event;
	snprintf(record->key, sizeof(record->key), "%s", key);
	loop_timer_init(&record->timer, sim_world(load->sim), load_produce);
	loop_timer_start(&record->timer, at_us > 0 ? at_us : 0);
}

/* Some events come twice, most of these under the same key. */
static void load_repeat(struct load *load, struct load_event *event, int64_t at_us, int64_t span_us)
{
	char other[24];

	if (event->kind == LOAD_POISON || !sim_chance(load->sim, 250000))
		return;
	event->scattered = sim_chance(load->sim, 300000);
	snprintf(other, sizeof(other), "%s-twin", event->id);
	load_plan(load, event, event->scattered ? other : event->key,
		  at_us + sim_between(load->sim, 0, span_us / 4));
}

static struct load_event *load_add(struct load *load, enum load_kind kind, const char *topic,
				   int order, const char *key, int64_t at_us, int64_t span_us)
{
	struct load_event *event = &load->events[load->event_count];

	assert(load->event_count < LOAD_EVENTS_MAX);
	*event = (struct load_event){.kind = kind, .topic = topic, .order = order, .offset = -1};
	snprintf(event->id, sizeof(event->id), "e-%d", ++load->event_count);
	snprintf(event->key, sizeof(event->key), "%s", key);
	load_plan(load, event, key, at_us);
	load_repeat(load, event, at_us, span_us);
	return event;
}

static void load_payments(struct load *load, int order, int64_t order_at_us, int64_t span_us)
{
	struct load_order *o = &load->orders[order];
	/* All under the order's key, each under its own, or without one. */
	uint64_t keys = o->parts > 4 ? 1 + sim_below(load->sim, 2) : sim_below(load->sim, 3);

	for (int i = 0; i < o->payments; i++) {
		int64_t at_us = order_at_us + sim_between(load->sim, -span_us / 8,
							  o->parts > 4 ? span_us : span_us / 3);
		char key[24] = "";
		struct load_event *event;

		if (keys == 0)
			snprintf(key, sizeof(key), "%s", o->id);
		else if (keys == 1)
			snprintf(key, sizeof(key), "%s-%d", o->id, i);
		event = load_add(load, LOAD_PAYMENT, "payments", order, key, at_us, span_us);
		event->amount = 1 << i;
		snprintf(event->body, sizeof(event->body), "{\"orderId\":\"%s\",\"amount\":%d}",
			 o->id, event->amount);
	}
}

static void load_orders(struct load *load, int64_t span_us, bool hot)
{
	load->order_count = hot ? (int)sim_between(load->sim, 1, 3)
				: (int)sim_between(load->sim, 3, LOAD_ORDERS_MAX);
	for (int i = 0; i < load->order_count; i++) {
		struct load_order *order = &load->orders[i];
		int64_t at_us = sim_between(load->sim, 0, span_us * 2 / 3);
		struct load_event *event;

		snprintf(order->id, sizeof(order->id), "o-%d", i + 1);
		order->parts = hot ? (int)sim_between(load->sim, 5, LOAD_PARTS_MAX)
				   : (int)sim_between(load->sim, 1, 4);
		order->payments = order->parts + (sim_chance(load->sim, 150000) ? 1 : 0);
		event = load_add(load, LOAD_ORDER, "orders", i, order->id, at_us, span_us);
		snprintf(event->body, sizeof(event->body), "{\"orderId\":\"%s\",\"parts\":%d}",
			 order->id, order->parts);
		load_payments(load, i, at_us, span_us);
	}
}

static void load_hopeless(struct load *load, int64_t span_us)
{
	struct sim *sim = load->sim;
	struct load_event *event;

	for (uint64_t i = sim_below(sim, 3); i > 0; i--) {
		char key[24];

		snprintf(key, sizeof(key), "nobody-%d", (int)i);
		event = load_add(load, LOAD_UNMATCHED, "payments", -1, key,
				 sim_between(sim, 0, span_us), span_us);
		snprintf(event->body, sizeof(event->body),
			 "{\"orderId\":\"nobody-%d\",\"amount\":1}", load->event_count);
	}
	for (uint64_t i = sim_below(sim, 3); i > 0; i--) {
		event = load_add(load, LOAD_INVALID, "orders", -1, "o-1",
				 sim_between(sim, 0, span_us), span_us);
		snprintf(event->body, sizeof(event->body), "{\"parts\":%d}", load->event_count);
	}
	for (uint64_t i = sim_below(sim, 4); i > 0; i--) {
		event = load_add(load, LOAD_POISON, sim_below(sim, 2) ? "orders" : "payments", -1,
				 "o-1", sim_between(sim, 0, span_us), span_us);
		snprintf(event->body, sizeof(event->body), "{\"poison\": %d", load->event_count);
	}
}

/* Now and then a topic is made only when replicas already want it. */
static void make_payments(struct loop_timer *timer)
{
	sim_cluster_topic_make(container_of(timer, struct load, make_payments)->cluster, "payments",
			       PARTITIONS);
}

static void make_receipts(struct loop_timer *timer)
{
	sim_cluster_topic_make(container_of(timer, struct load, make_receipts)->cluster, "receipts",
			       OUT_PARTITIONS);
}

void load_init(struct load *load, struct sim *sim, struct sim_cluster *cluster, int64_t span_us,
	       bool hot)
{
	*load = (struct load){.sim = sim, .cluster = cluster};
	sim_cluster_topic_make(cluster, "orders", PARTITIONS);
	sim_cluster_topic_make(cluster, "stock", OUT_PARTITIONS);
	sim_cluster_topic_make(cluster, "replies", OUT_PARTITIONS);
	loop_timer_init(&load->make_payments, sim_world(sim), make_payments);
	loop_timer_init(&load->make_receipts, sim_world(sim), make_receipts);
	loop_timer_start(&load->make_payments,
			 sim_chance(sim, 900000) ? 0 : sim_between(sim, 1000000, 6000000));
	loop_timer_start(&load->make_receipts,
			 sim_chance(sim, 900000) ? 0 : sim_between(sim, 1000000, 20000000));
	load_orders(load, span_us, hot);
	load_hopeless(load, span_us);
}

void load_done(struct load *load)
{
	for (int i = 0; i < load->record_count; i++)
		loop_timer_stop(&load->records[i].timer);
	loop_timer_stop(&load->make_payments);
	loop_timer_stop(&load->make_receipts);
}

bool load_is_produced(const struct load *load)
{
	return load->produced == load->record_count;
}
