/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be true when everything has settled and stopped.
 */
#include "tests/sim/checker_private.h"

static const char *const inputs[] = {"orders", "payments"};

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
		for (int32_t p = 0; p < sim_cluster_partitions(checker->cluster, inputs[t]); p++)
			if (sim_cluster_committed(checker->cluster, inputs[t], p) !=
			    sim_cluster_end(checker->cluster, inputs[t], p))
				return false;
	return !table_first(&tx, TABLE_OUTBOX);
}

void checker_fail_unsettled(struct checker *checker)
{
	for (size_t t = 0; t < ARRAY_LEN(inputs); t++)
		for (int32_t p = 0; p < sim_cluster_partitions(checker->cluster, inputs[t]); p++) {
			int64_t committed = sim_cluster_committed(checker->cluster, inputs[t], p);
			int64_t end = sim_cluster_end(checker->cluster, inputs[t], p);
			const struct load_event *event;

			if (committed == end)
				continue;
			event = checker_event_of(checker, inputs[t], p, committed);
			sim_fail(checker->sim,
				 "G11: %s/%d stays at offset %lld of %lld; event %s there has %s",
				 inputs[t], p, (long long)committed, (long long)end,
				 event ? event->id : "?",
				 event && (event->effect || event->dead) ? "had its effect"
									 : "had no effect");
		}
	sim_fail(checker->sim, "G11: not settled: %u outbox rows stay, %d of %d records produced",
		 table_count(checker, TABLE_OUTBOX), checker->load->produced,
		 checker->load->record_count);
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

/* Messages of one order on a topic by their first copies: `count` of them, n from `first` on. Returns what the last paid. */
static int64_t check_messages(struct checker *checker, const char *topic,
			      const struct load_order *order, int count, int64_t first)
{
	char keys[LOAD_PARTS_MAX + 2][ID_TEXT_SIZE];
	int found = 0;
	int64_t paid = 0;

	for (int32_t p = 0; p < sim_cluster_partitions(checker->cluster, topic); p++)
		for (int64_t o = 0; o < sim_cluster_end(checker->cluster, topic, p); o++) {
			const struct kafka_record *record = sim_cluster_record(checker->cluster,
									       topic, p, o);
			struct str key = kafka_record_header(record, "sutra-outbox-key");
			bool known = false;

			if (!is_of_order(record->value, order->id))
				continue;
			for (int i = 0; i < found; i++)
				known = known || str_equal(str_of(keys[i]), key);
			if (known || found == LOAD_PARTS_MAX + 2)
				continue;
			snprintf(keys[found], ID_TEXT_SIZE, "%.*s", STR_ARG(key));
			if (json_int(record->value, "n") != first + found)
				sim_fail(checker->sim, "order %s: message %d on %s is %.*s",
					 order->id, found + 1, topic, STR_ARG(record->value));
			paid = json_int(record->value, "paid");
			found++;
		}
	if (found != count)
		sim_fail(checker->sim, "order %s: %d messages on %s instead of %d", order->id,
			 found, topic, count);
	return paid;
}

static void check_order(struct checker *checker, int index)
{
	const struct load *load = checker->load;
	const struct load_order *order = &load->orders[index];
	int effects = 0;
	int64_t sum = 0, paid;

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
	paid = check_messages(checker, "receipts", order, order->parts, 1);
	if (paid != sum)
		sim_fail(checker->sim, "order %s: the last receipt says %lld, %lld was paid",
			 order->id, (long long)paid, (long long)sum);
	paid = check_messages(checker, "replies", order, 1, order->parts);
	if (paid != sum)
		sim_fail(checker->sim, "order %s: the reply says %lld, %lld was paid", order->id,
			 (long long)paid, (long long)sum);
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
		steps += 1 + checker->load->orders[i].parts;
	if (count != (uint32_t)checker->load->order_count)
		sim_fail(checker->sim, "G5: %u instances of %d orders", count,
			 checker->load->order_count);
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

/* Events of one key and partition, by their first records. One commit may hold several. */
static void check_key_order(struct checker *checker)
{
	const struct load *load = checker->load;

	for (int i = 0; i < load->event_count; i++)
		for (int k = 0; k < load->event_count; k++) {
			const struct load_event *a = &load->events[i], *b = &load->events[k];

			if (!a->key[0] || strcmp(a->key, b->key) != 0 ||
			    strcmp(a->topic, b->topic) != 0 || a->partition != b->partition ||
			    a->scattered || b->scattered || a->offset >= b->offset)
				continue;
			if (event_done(a) > event_done(b))
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
	check_rows(checker);
	check_leases(checker);
}
