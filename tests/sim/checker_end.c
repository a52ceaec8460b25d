/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be true when everything has settled and stopped.
 */
#include "tests/sim/checker_private.h"

#include "base/alloc.h"

static const char *const inputs[] = {"orders", "payments", "news", "items", "frails", "blows"};
static const char *const queues[] = {"deals", "instalments"};

/* --- the tables --- */

static struct tx tables(const struct checker *checker, struct segment *segment)
{
	return (struct tx){sim_database_tables(checker->database), segment, 0};
}

static uint32_t table_count(const struct checker *checker, enum table_id table)
{
	struct segment segment = {0};
	struct tx tx = tables(checker, &segment);
	uint32_t count = 0;

	for (struct row *row = table_first(&tx, table); row; row = table_next(row))
		count++;
	return count;
}

bool checker_is_settled(const struct checker *checker)
{
	struct segment segment = {0};
	struct tx tx = tables(checker, &segment);

	if (!load_is_produced(checker->load))
		return false;
	for (size_t t = 0; t < ARRAY_LEN(inputs); t++)
		for (int32_t p = 0; p < sim_cluster_partitions(checker->load->cluster, inputs[t]);
		     p++)
			if (sim_cluster_committed(checker->load->cluster, inputs[t], p) !=
			    sim_cluster_end(checker->load->cluster, inputs[t], p))
				return false;
	for (size_t i = 0; i < ARRAY_LEN(queues); i++)
		if (!sim_rabbit_is_drained(checker->load->rabbit, queues[i]))
			return false;
	return !table_first(&tx, TABLE_OUTBOX) && !table_first(&tx, TABLE_KEPT) && !table_first(&tx, TABLE_TIMER) &&
	       checker_ticks_are_over(checker);
}

static void fail_undrained(struct checker *checker, const char *queue)
{
	const struct sim_rabbit *rabbit = checker->load->rabbit;

	for (size_t i = 0; i < sim_rabbit_count(rabbit, queue); i++) {
		const struct rabbit_message *message = sim_rabbit_message(rabbit, queue, i);
		const struct load_event *event;

		if (message->done)
			continue;
		event = checker_event_find(checker, message->properties.message_id);
		sim_fail(checker->sim, "G11: message %llu of %s stays; event %s there has %s",
			 (unsigned long long)message->number, queue, event ? event->id : "?",
			 event && event_is_done(event) ? "had its effect" : "had no effect");
	}
}

void checker_fail_unsettled(struct checker *checker)
{
	for (size_t t = 0; t < ARRAY_LEN(inputs); t++)
		for (int32_t p = 0; p < sim_cluster_partitions(checker->load->cluster, inputs[t]);
		     p++) {
			int64_t committed = sim_cluster_committed(checker->load->cluster, inputs[t],
								  p);
			int64_t end = sim_cluster_end(checker->load->cluster, inputs[t], p);
			const struct load_event *event;

			if (committed == end)
				continue;
			event = checker_event_of(checker, inputs[t], p, committed);
			sim_fail(checker->sim,
				 "G11: %s/%d stays at offset %lld of %lld; event %s there has %s",
				 inputs[t], p, (long long)committed, (long long)end,
				 event ? event->id : "?",
				 event && event_is_done(event) ? "had its effect"
							       : "had no effect");
		}
	for (size_t i = 0; i < ARRAY_LEN(queues); i++)
		fail_undrained(checker, queues[i]);
	sim_fail(checker->sim,
		 "G11: not settled: %u outbox rows, %u kept messages and %u timers stay, %u ticks, %d of %d records "
		 "produced",
		 table_count(checker, TABLE_OUTBOX), table_count(checker, TABLE_KEPT), table_count(checker, TABLE_TIMER),
		 checker->tick_count, checker->load->produced, checker->load->record_count);
}

/* --- what came out --- */

/* The number behind `"name":`; -1 if there is none. */
static int64_t json_int(struct str body, const char *name)
{
	char text[256], label[32];
	const char *at;
	long long value;

	snprintf(text, sizeof(text), "%.*s", STR_ARG(body));
	snprintf(label, sizeof(label), "\"%s\":", name);
	at = strstr(text, label);
	return at && sscanf(at + strlen(label), "%lld", &value) == 1 ? value : -1;
}

static bool is_of_order(struct str body, const char *order)
{
	char text[256], label[48];

	snprintf(text, sizeof(text), "%.*s", STR_ARG(body));
	snprintf(label, sizeof(label), "\"orderId\":\"%s\"", order);
	return strstr(text, label) != NULL;
}

struct out {
	struct str body, key;
};

/* What is on a topic or in a queue, in its order. Allocated. */
static struct out *outs_of(const struct checker *checker, const char *where, size_t *count)
{
	const struct sim_cluster *cluster = checker->load->cluster;
	const struct sim_rabbit *rabbit = checker->load->rabbit;
	struct out *outs = NULL;

	*count = 0;
	for (int32_t p = 0; p < sim_cluster_partitions(cluster, where); p++)
		for (int64_t o = 0; o < sim_cluster_end(cluster, where, p); o++) {
			const struct kafka_record *record = sim_cluster_record(cluster, where, p,
									       o);

			outs = mem_array(outs, *count + 1, sizeof(*outs));
			outs[(*count)++] = (struct out){
				record->value, kafka_record_header(record, "sutra-outbox-key")};
		}
	for (size_t i = 0; i < sim_rabbit_count(rabbit, where); i++) {
		const struct rabbit_message *message = sim_rabbit_message(rabbit, where, i);

		if (message->done)
			continue; /* nobody consumes here: it is one that was lost */
		outs = mem_array(outs, *count + 1, sizeof(*outs));
		outs[(*count)++] = (struct out){message->body, message->properties.message_id};
	}
	return outs;
}

/* Messages of one order on a topic or in a queue by their first copies: `count` of them, n from `first` on. Returns what the last
 * paid. */
static int64_t check_messages(struct checker *checker, const char *where,
			      const struct load_order *order, int count, int64_t first)
{
	char keys[LOAD_PARTS_MAX + 2][ID_TEXT_SIZE];
	int found = 0;
	int64_t paid = 0;
	size_t out_count;
	struct out *outs = outs_of(checker, where, &out_count);

	for (size_t o = 0; o < out_count; o++) {
		bool known = false;

		if (!is_of_order(outs[o].body, order->id))
			continue;
		for (int i = 0; i < found; i++)
			known = known || str_equal(str_of(keys[i]), outs[o].key);
		if (known || found == LOAD_PARTS_MAX + 2)
			continue;
		snprintf(keys[found], ID_TEXT_SIZE, "%.*s", STR_ARG(outs[o].key));
		if (json_int(outs[o].body, "n") != first + found)
			sim_fail(checker->sim, "order %s: message %d on %s is %.*s", order->id,
				 found + 1, where, STR_ARG(outs[o].body));
		paid = json_int(outs[o].body, "paid");
		found++;
	}
	free(outs);
	if (found != count)
		sim_fail(checker->sim, "order %s: %d messages on %s instead of %d", order->id,
			 found, where, count);
	return paid;
}

static void check_paid(struct checker *checker, const struct load_order *order, const char *where,
		       int count, int64_t first, int64_t sum)
{
	int64_t paid = check_messages(checker, where, order, count, first);

	if (paid != sum)
		sim_fail(checker->sim, "order %s: the last message on %s says %lld, %lld was paid",
			 order->id, where, (long long)paid, (long long)sum);
}

static void check_order(struct checker *checker, int index)
{
	const struct load *load = checker->load;
	const struct load_order *order = &load->orders[index];
	int effects = 0;
	int64_t sum = 0;

	for (int i = 0; i < load->event_count; i++) {
		const struct load_event *event = &load->events[i];

		if (event->order != index || event->kind != LOAD_PAYMENT)
			continue;
		if (event->effect) {
			effects++;
			sum += event->amount;
		}
		if (!event->effect && !event->dead)
			sim_fail(checker->sim, "G9: payment %s of order %s is lost", event->id,
				 order->id);
	}
	if (effects != order->parts)
		sim_fail(checker->sim, "order %s: %d payments had an effect instead of %d",
			 order->id, effects, order->parts);
	check_messages(checker, "stock", order, 1, order->parts);
	check_messages(checker, "notes", order, order->is_deal, order->parts);
	check_paid(checker, order, order->is_deal ? "slips" : "receipts", order->parts, 1, sum);
	check_paid(checker, order, order->is_deal ? "answers" : "replies", 1, order->parts, sum);
	if (order->is_deal)
		check_paid(checker, order, "copies", 1, order->parts, sum);
}

/* --- what is in the database --- */

static void check_instances(struct checker *checker)
{
	struct segment segment = {0};
	struct tx tx = tables(checker, &segment);
	uint32_t count = 0;
	int64_t versions = 0, steps = 0;

	for (struct row *row = table_first(&tx, TABLE_INSTANCE); row; row = table_next(row)) {
		count++;
		versions += row->fields[INSTANCE_version].i;
		if (row->fields[INSTANCE_status].i != INSTANCE_COMPLETED)
			sim_fail(checker->sim, "an instance ends with status %lld",
				 (long long)row->fields[INSTANCE_status].i);
		if (!row->fields[INSTANCE_claim_owner].is_null)
			sim_fail(checker->sim, "an instance is still claimed by %.*s",
				 STR_ARG(row->fields[INSTANCE_claim_owner].str));
	}
	for (int i = 0; i < checker->load->order_count; i++)
		steps += 2 + checker->load->orders[i].parts; /* its start, its parts, its pause */
	steps += (int64_t)checker->reminders + 2 * checker->tick_count + (int64_t)(checker->heard + checker->read) + checker_box_steps(checker) +
		 2 * checker->load->frail_count + (int64_t)(checker->failures + checker->restores);
	if (count != (uint32_t)checker->load->order_count + checker->tick_count + checker->read + (uint32_t)checker->load->box_count +
			     (uint32_t)checker->load->frail_count)
		sim_fail(checker->sim, "G5: %u instances of %d orders, %u ticks, %llu news, %d boxes and %d frails", count,
			 checker->load->order_count, checker->tick_count, (unsigned long long)checker->read, checker->load->box_count, checker->load->frail_count);
	if (versions != steps)
		sim_fail(checker->sim, "G3: %lld versions of %lld steps", (long long)versions,
			 (long long)steps);
}

static void check_rows(struct checker *checker)
{
	uint32_t effects = 0, dead = 0;

	for (int i = 0; i < checker->load->event_count; i++) {
		effects += checker->load->events[i].effect != 0;
		dead += checker->load->events[i].dead != 0;
	}
	if (table_count(checker, TABLE_INBOX) != effects)
		sim_fail(checker->sim, "G5: %u inbox rows of %u events with an effect",
			 table_count(checker, TABLE_INBOX), effects);
	if (table_count(checker, TABLE_DEAD_LETTER) != dead)
		sim_fail(checker->sim, "G9: %u dead letters of %u events that have one",
			 table_count(checker, TABLE_DEAD_LETTER), dead);
	if (table_count(checker, TABLE_OUTBOX))
		sim_fail(checker->sim, "%u outbox rows are left",
			 table_count(checker, TABLE_OUTBOX));
	if (table_count(checker, TABLE_WAIT) || table_count(checker, TABLE_ALIAS))
		sim_fail(checker->sim, "%u waits and %u aliases of ended instances are left",
			 table_count(checker, TABLE_WAIT), table_count(checker, TABLE_ALIAS));
}

static void check_leases(struct checker *checker)
{
	struct segment segment = {0};
	struct tx tx = tables(checker, &segment);

	for (struct row *row = table_first(&tx, TABLE_LEASE); row; row = table_next(row))
		if (!row->fields[LEASE_holder].is_null)
			sim_note(checker->sim, "lease %.*s is still held",
				 STR_ARG(row->fields[LEASE_role].str));
}

/* --- what came in --- */

static void check_events(struct checker *checker)
{
	for (int i = 0; i < checker->load->event_count; i++) {
		const struct load_event *event = &checker->load->events[i];

		switch (event->kind) {
		case LOAD_ORDER:
			if (!event->effect)
				sim_fail(checker->sim, "order %s is lost",
					 checker->load->orders[event->order].id);
			break;
		case LOAD_PAYMENT:
		case LOAD_NEWS:
		case LOAD_ITEM:
		case LOAD_FRAIL:
		case LOAD_HARD:
		case LOAD_SOFT:
			break;
		case LOAD_UNMATCHED:
		case LOAD_INVALID:
		case LOAD_POISON:
			if (event->effect || !event->dead)
				sim_fail(checker->sim, "G9: hopeless event %s has %s", event->id,
					 event->effect ? "had an effect" : "no dead letter");
			break;
		}
	}
}

static uint64_t event_done(const struct load_event *event)
{
	return event->effect ? event->effect : event->dead;
}

/* What cannot be read or is not valid asks for no instance, and so does not wait for what is kept. */
static bool passes_kept(const struct load_event *kept, const struct load_event *event)
{
	return kept->kept && (event->kind == LOAD_POISON || event->kind == LOAD_INVALID);
}

/* Events of one key and partition, by their first records. One commit may hold several. */
static void check_key_order(struct checker *checker)
{
	const struct load *load = checker->load;

	for (int i = 0; i < load->event_count; i++)
		for (int k = 0; k < load->event_count; k++) {
			const struct load_event *a = &load->events[i], *b = &load->events[k];

			if (!a->key[0] || strcmp(a->key, b->key) != 0 || a->is_amqp ||
			    strcmp(a->topic, b->topic) != 0 || a->partition != b->partition ||
			    a->scattered || b->scattered || a->offset >= b->offset)
				continue;
			if (event_done(a) > event_done(b) && !passes_kept(a, b))
				sim_fail(checker->sim,
					 "G8: event %s of key %s took effect before %s, which came "
					 "first",
					 b->id, b->key, a->id);
		}
}

void checker_end(struct checker *checker)
{
	for (int i = 0; i < checker->load->order_count; i++)
		check_order(checker, i);
	check_events(checker);
	check_key_order(checker);
	check_instances(checker);
	checker_ticks_end(checker);
	checker_news_end(checker);
	checker_boxes_end(checker);
	checker_failures_end(checker);
	check_rows(checker);
	check_leases(checker);
}
