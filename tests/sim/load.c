/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything is planned at once from the seed, so that the load does not depend on what the replicas do.
 */
#include "tests/sim/load.h"

#include "base/time.h"

#define PARTITIONS     4
#define OUT_PARTITIONS 2

/* False: its producer tries again. */
static bool load_put(struct load *load, const struct load_event *event)
{
	struct rabbit_properties properties = {.message_id = str_of(event->id)};

	return sim_rabbit_put(load->rabbit, event->topic, &properties, str_of(event->body));
}

/* The same; for a topic that is not there yet too. */
static bool load_append(struct load *load, struct load_event *event, const char *key)
{
	struct str names[] = {STR("event-id")};
	struct str values[] = {str_of(event->id)};
	struct kafka_record out = {
		.topic = str_of(event->topic),
		.timestamp_ms = -1,
		.key = key[0] ? str_of(key) : STR_NONE,
		.value = str_of(event->body),
		.header_names = names,
		.header_values = values,
		.header_count = 1,
	};
	int64_t offset;
	int32_t partition;

	if (!sim_cluster_is_up(load->cluster) ||
	    !sim_cluster_partitions(load->cluster, event->topic))
		return false;
	offset = sim_cluster_append(load->cluster, event->topic, -1, &out, &partition);
	if (event->offset >= 0)
		return true;
	event->partition = partition;
	event->offset = offset;
	event->since_us = sim_now_us(load->sim);
	return true;
}

static void load_produce(struct loop_timer *timer)
{
	struct load_record *record = container_of(timer, struct load_record, timer);
	struct load *load = record->load;
	struct load_event *event = record->event;

	if (event->is_amqp ? load_put(load, event) : load_append(load, event, record->key))
		load->produced++;
	else
		loop_timer_start(timer, 300 * US_PER_MS);
}

static void load_plan(struct load *load, struct load_event *event, const char *key, int64_t at_us)
{
	struct load_record *record;

	if (load->record_count == LOAD_RECORDS_MAX)
		return;
	record = &load->records[load->record_count++];
	record->load = load;
	record->event = event;
	event->copies++;
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
	*event = (struct load_event){.kind = kind, .topic = topic, .order = order, .box = -1, .frail = -1, .offset = -1};
	event->is_amqp = strcmp(topic, "deals") == 0 || strcmp(topic, "instalments") == 0;
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

		if (o->is_raced && sim_chance(load->sim, 800000))
			at_us = order_at_us + sim_between(load->sim, -500 * US_PER_MS, 50 * US_PER_MS);
		if (keys == 0)
			snprintf(key, sizeof(key), "%s", o->id);
		else if (keys == 1)
			snprintf(key, sizeof(key), "%s-%d", o->id, i);
		event = load_add(load, LOAD_PAYMENT, o->is_deal ? "instalments" : "payments", order,
				 key, at_us, span_us);
		event->amount = 1 << i;
		snprintf(event->body, sizeof(event->body), "{\"orderId\":\"%s\",\"amount\":%d}",
			 o->id, event->amount);
	}
}

static void load_orders(struct load *load, int64_t span_us, bool hot)
{
	/* All deals, none, or some. */
	uint32_t deals_per_million = (uint32_t)sim_below(load->sim, 4) * 400000;

	load->order_count = hot ? (int)sim_between(load->sim, 1, 3)
				: (int)sim_between(load->sim, 3, LOAD_ORDERS_MAX);
	for (int i = 0; i < load->order_count; i++) {
		struct load_order *order = &load->orders[i];
		int64_t at_us = sim_between(load->sim, 0, span_us * 2 / 3);
		struct load_event *event;

		snprintf(order->id, sizeof(order->id), "o-%d", i + 1);
		order->is_raced = sim_chance(load->sim, 500000);
		order->parts = hot ? (int)sim_between(load->sim, 5, LOAD_PARTS_MAX)
				   : (int)sim_between(load->sim, 1, order->is_raced ? 1 : 4);
		order->payments = order->parts + (sim_chance(load->sim, 150000) ? 1 : 0);
		order->is_deal = sim_chance(load->sim, deals_per_million);
		event = load_add(load, LOAD_ORDER, order->is_deal ? "deals" : "orders", i,
				 order->id, at_us, span_us);
		snprintf(event->body, sizeof(event->body), "{\"orderId\":\"%s\",\"parts\":%d}",
			 order->id, order->parts);
		load_payments(load, i, at_us, span_us);
	}
}

static void load_hopeless(struct load *load, int64_t span_us)
{
	static const char *const topics[] = {"orders", "payments", "deals", "instalments"};
	struct sim *sim = load->sim;
	struct load_event *event;

	for (uint64_t i = sim_below(sim, 3); i > 0; i--) {
		char key[24];

		snprintf(key, sizeof(key), "nobody-%d", (int)i);
		event = load_add(load, LOAD_UNMATCHED,
				 sim_below(sim, 2) ? "payments" : "instalments", -1, key,
				 sim_between(sim, 0, span_us), span_us);
		snprintf(event->body, sizeof(event->body),
			 "{\"orderId\":\"nobody-%d\",\"amount\":1}", load->event_count);
	}
	for (uint64_t i = sim_below(sim, 3); i > 0; i--) {
		event = load_add(load, LOAD_INVALID, sim_below(sim, 2) ? "orders" : "deals", -1,
				 "o-1", sim_between(sim, 0, span_us), span_us);
		snprintf(event->body, sizeof(event->body), "{\"parts\":%d}", load->event_count);
	}
	for (uint64_t i = sim_below(sim, 4); i > 0; i--) {
		event = load_add(load, LOAD_POISON, topics[sim_below(sim, ARRAY_LEN(topics))], -1,
				 "o-1", sim_between(sim, 0, span_us), span_us);
		snprintf(event->body, sizeof(event->body), "{\"poison\": %d", load->event_count);
	}
}

/* Often all at about the same time, so that several want to begin it. */
static void load_boxes(struct load *load, int64_t span_us)
{
	struct sim *sim = load->sim;

	load->box_count = (int)sim_between(sim, 0, LOAD_BOXES_MAX);
	for (int i = 0; i < load->box_count; i++) {
		struct load_box *box = &load->boxes[i];
		int64_t box_us = sim_between(sim, 0, span_us), wide_us = sim_chance(sim, 600000) ? 100 * US_PER_MS : 5 * US_PER_S;
		uint64_t keys = sim_below(sim, 3);

		snprintf(box->id, sizeof(box->id), "b-%d", i + 1);
		box->parts = (int)sim_between(sim, 1, 5);
		for (int k = 0; k < box->parts; k++) {
			char key[24] = "";
			struct load_event *event;

			if (keys == 0)
				snprintf(key, sizeof(key), "%s", box->id);
			else if (keys == 1)
				snprintf(key, sizeof(key), "%s-%d", box->id, k);
			event = load_add(load, LOAD_ITEM, "items", -1, key, box_us + sim_between(sim, 0, wide_us), span_us);
			event->box = i;
			snprintf(event->body, sizeof(event->body), "{\"box\":\"%s\",\"parts\":%d,\"k\":%d}", box->id, box->parts, k);
		}
	}
}

static void load_frail_event(struct load *load, enum load_kind kind, int frail, int64_t at_us)
{
	struct load_event *event = &load->events[load->event_count];
	char id[sizeof(load->frails[0].id)];

	memcpy(id, load->frails[frail].id, sizeof(id));
	assert(load->event_count < LOAD_EVENTS_MAX);
	*event = (struct load_event){.kind = kind, .order = -1, .box = -1, .frail = frail, .offset = -1};
	event->topic = kind == LOAD_FRAIL ? "frails" : "blows";
	snprintf(event->id, sizeof(event->id), "e-%d", ++load->event_count);
	snprintf(event->key, sizeof(event->key), "%s", id);
	snprintf(event->body, sizeof(event->body), "{\"frail\":\"%s\",\"hard\":%s,\"n\":%d}", id,
		 kind == LOAD_HARD ? "true" : "false", load->event_count);
	load_plan(load, event, event->key, at_us);
}

/* Blows have one key and so an order; they may come before what they are for. */
static void load_frails(struct load *load, int64_t span_us)
{
	struct sim *sim = load->sim;

	load->frail_count = (int)sim_between(sim, 0, LOAD_FRAILS_MAX);
	for (int i = 0; i < load->frail_count; i++) {
		int64_t at_us = sim_between(sim, 0, span_us / 2);

		snprintf(load->frails[i].id, sizeof(load->frails[i].id), "f-%d", i + 1);
		load_frail_event(load, LOAD_FRAIL, i, at_us + sim_between(sim, 0, 2 * US_PER_S));
		for (uint64_t k = sim_below(sim, 4); k > 0; k--) {
			load_frail_event(load, LOAD_HARD, i, at_us);
			at_us += sim_between(sim, 0, 4 * US_PER_S);
		}
		load_frail_event(load, LOAD_SOFT, i, at_us);
	}
}

/* All under one key, so that they have an order; some come twice. */
static void load_news(struct load *load, int64_t span_us)
{
	struct sim *sim = load->sim;

	for (uint64_t i = sim_below(sim, 7); i > 0; i--) {
		struct load_event *event = &load->events[load->event_count];
		int64_t at_us = sim_between(sim, 0, span_us);

		assert(load->event_count < LOAD_EVENTS_MAX);
		*event = (struct load_event){.kind = LOAD_NEWS, .topic = "news", .order = -1, .box = -1, .frail = -1, .offset = -1};
		snprintf(event->id, sizeof(event->id), "e-%d", ++load->event_count);
		snprintf(event->key, sizeof(event->key), "daily");
		snprintf(event->body, sizeof(event->body), "{\"paper\":\"daily\",\"n\":%d}", load->event_count);
		load_plan(load, event, event->key, at_us);
		if (sim_chance(sim, 300000))
			load_plan(load, event, event->key, at_us + sim_between(sim, 0, span_us / 4));
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

static void make_instalments(struct loop_timer *timer)
{
	struct load *load = container_of(timer, struct load, make_instalments);

	sim_rabbit_queue_make(load->rabbit, "instalments", load->queue_kind);
}

static void make_slips(struct loop_timer *timer)
{
	struct sim_rabbit *rabbit = container_of(timer, struct load, make_slips)->rabbit;

	sim_rabbit_queue_make(rabbit, "slips", RABBIT_QUEUE_CLASSIC);
	sim_rabbit_bind(rabbit, "papers", "slip", "slips");
}

static void load_make(struct load *load)
{
	struct sim_cluster *cluster = load->cluster;
	struct sim_rabbit *rabbit = load->rabbit;

	sim_cluster_topic_make(cluster, "orders", PARTITIONS);
	sim_cluster_topic_make(cluster, "stock", OUT_PARTITIONS);
	sim_cluster_topic_make(cluster, "replies", OUT_PARTITIONS);
	sim_cluster_topic_make(cluster, "reminders", OUT_PARTITIONS);
	sim_cluster_topic_make(cluster, "rounds", OUT_PARTITIONS);
	sim_cluster_topic_make(cluster, "news", PARTITIONS);
	sim_cluster_topic_make(cluster, "items", PARTITIONS);
	sim_cluster_topic_make(cluster, "frails", PARTITIONS);
	sim_cluster_topic_make(cluster, "blows", PARTITIONS);
	sim_cluster_topic_make(cluster, "packed", OUT_PARTITIONS);
	sim_cluster_topic_make(cluster, "heard", OUT_PARTITIONS);
	sim_cluster_topic_make(cluster, "read", OUT_PARTITIONS);
	sim_rabbit_queue_make(rabbit, "deals", load->queue_kind);
	sim_rabbit_queue_make(rabbit, "notes", RABBIT_QUEUE_QUORUM);
	sim_rabbit_queue_make(rabbit, "answers", RABBIT_QUEUE_CLASSIC);
	sim_rabbit_queue_make(rabbit, "copies", RABBIT_QUEUE_QUORUM);
	sim_rabbit_bind(rabbit, "news", NULL, "answers");
	sim_rabbit_bind(rabbit, "news", NULL, "copies");
}

/* At once, or when others may have asked for it. */
static void make_later(struct load *load, struct loop_timer *timer,
		       void (*make)(struct loop_timer *timer), int64_t most_us)
{
	loop_timer_init(timer, sim_world(load->sim), make);
	loop_timer_start(timer, sim_chance(load->sim, 900000)
					? 0
					: sim_between(load->sim, 1000000, most_us));
}

void load_init(struct load *load, struct sim *sim, struct sim_cluster *cluster,
	       struct sim_rabbit *rabbit, int64_t span_us, bool hot)
{
	*load = (struct load){.sim = sim, .cluster = cluster, .rabbit = rabbit};
	load->queue_kind = (enum rabbit_queue_kind)sim_below(sim, RABBIT_QUEUE_KIND_COUNT);
	load_make(load);
	make_later(load, &load->make_payments, make_payments, 6000000);
	make_later(load, &load->make_receipts, make_receipts, 20000000);
	make_later(load, &load->make_instalments, make_instalments, 6000000);
	make_later(load, &load->make_slips, make_slips, 20000000);
	load_orders(load, span_us, hot);
	load_hopeless(load, span_us);
	load_news(load, span_us);
	load_boxes(load, span_us);
	load_frails(load, span_us);
}

void load_done(struct load *load)
{
	for (int i = 0; i < load->record_count; i++)
		loop_timer_stop(&load->records[i].timer);
	for (int i = 0; i < load->event_count; i++)
		free(load->events[i].receipts);
	loop_timer_stop(&load->make_payments);
	loop_timer_stop(&load->make_receipts);
	loop_timer_stop(&load->make_instalments);
	loop_timer_stop(&load->make_slips);
}

bool load_is_produced(const struct load *load)
{
	return load->produced == load->record_count;
}
