/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is watched while the world runs is here, what is peculiar to RabbitMQ in checker_rabbit.c; what is looked at when it has
 * ended is in checker_end.c.
 */
#include "tests/sim/checker_private.h"

#include "base/alloc.h"
#include "base/time.h"
#include "tests/sim/segment_copy.h"

/* Steps of a backoff within a second, and some. */
#define REFUSALS_MAX 10

/* --- finding things --- */

struct load_event *checker_event_find(struct checker *checker, struct str id)
{
	for (int i = 0; i < checker->load->event_count; i++)
		if (str_equal(str_of(checker->load->events[i].id), id))
			return &checker->load->events[i];
	return NULL;
}

struct load_event *checker_event_of_body(struct checker *checker, struct str channel,
					 struct str body)
{
	for (int i = 0; i < checker->load->event_count; i++) {
		struct load_event *event = &checker->load->events[i];

		if (str_equal(str_of(event->topic), channel) &&
		    str_equal(str_of(event->body), body))
			return event;
	}
	return NULL;
}

struct load_event *checker_event_of(struct checker *checker, const char *topic, int32_t partition,
				    int64_t offset)
{
	const struct kafka_record *record = sim_cluster_record(checker->load->cluster, topic,
							       partition, offset);

	return checker_event_find(checker, kafka_record_header(record, "event-id"));
}

/* By the source of a dead letter, "kafka:orders/3/17". */
static struct load_event *event_of_source(struct checker *checker, struct str source)
{
	char text[128], topic[64];
	int partition;
	long long offset;

	snprintf(text, sizeof(text), "%.*s", STR_ARG(source));
	if (sscanf(text, "kafka:%63[^/]/%d/%lld", topic, &partition, &offset) != 3 ||
	    partition >= sim_cluster_partitions(checker->load->cluster, topic) ||
	    offset >= sim_cluster_end(checker->load->cluster, topic, partition))
		return NULL;
	return checker_event_of(checker, topic, partition, offset);
}

/* --- commits --- */

static void commit_inbox(struct checker *checker, const struct process *process,
			 const struct segment_call *call)
{
	for (uint32_t i = 0; i < call->params[2].count; i++) {
		struct load_event *event = map_get(&checker->inbox_keys,
						   id_str(&call->params[2].ids[i]));

		if (!event) {
			sim_fail(checker->sim, "an inbox row of no event that was sent");
			continue;
		}
		if (event->effect)
			sim_fail(checker->sim, "G5: event %s has two effects", event->id);
		if (event->dead)
			sim_fail(checker->sim, "G9: event %s has an effect after its dead letter",
				 event->id);
		sim_note(checker->sim, "effect of %s", event->id);
		event->effect = checker->commits;
		if (event->kind == LOAD_ORDER)
			checker->load->orders[event->order].instance = call->params[3].ids[i];
		if (event->kind == LOAD_FRAIL)
			checker_frail(checker, event, call->params[3].ids[i]);
		if (event->kind == LOAD_ITEM)
			checker_item(checker, event, call->params[3].ids[i]);
		if (event->is_amqp)
			checker_delivery_order(checker, event, process);
	}
}

static void dead_letter_check(struct checker *checker, const struct load_event *event,
			      struct str payload)
{
	if (!str_equal(payload, str_of(event->body)))
		sim_fail(checker->sim, "G9: the dead letter of event %s has lost its payload",
			 event->id);
	if (event->kind == LOAD_ORDER)
		sim_fail(checker->sim, "G9: order %s is dead-lettered",
			 checker->load->orders[event->order].id);
	if (event->kind == LOAD_FRAIL || event->kind == LOAD_SOFT)
		sim_fail(checker->sim, "G9: event %s of a frail is dead-lettered", event->id);
	if (event->kind == LOAD_ITEM)
		sim_fail(checker->sim, "G9: item %s is dead-lettered", event->id);
	if (event->effect && event->kind != LOAD_HARD)
		sim_fail(checker->sim, "G9: event %s is dead-lettered after its effect", event->id);
}

static void commit_dead_letters(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct load_event *event = checker_event_find(checker, p[4].strs[i]);

		if (!event)
			event = event_of_source(checker, p[5].strs[i]);
		if (!event) {
			sim_fail(checker->sim, "G9: a dead letter of nothing that was sent: %.*s",
				 STR_ARG(p[5].strs[i]));
			continue;
		}
		sim_note(checker->sim, "dead letter %s %.*s", event->id, STR_ARG(p[7].strs[i]));
		dead_letter_check(checker, event, p[13].strs[i]);
		if (!event->dead)
			event->dead = checker->commits;
	}
}

static void commit_fence(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;
	char id[ID_TEXT_SIZE];

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct seen_instance *seen = map_get(&checker->instances, id_str(&p[2].ids[i]));

		if (!seen) {
			sim_fail(checker->sim, "G3: a commit of an instance that is not there");
			continue;
		}
		if (checker->claim_is_gone)
			sim_fail(checker->sim,
				 "G4: %.*s commits a step of an instance that it has not claimed "
				 "any "
				 "more",
				 STR_ARG(p[3].strs[i]));
		if (seen->version != p[4].ints[i])
			sim_fail(checker->sim,
				 "G3: instance %s is at version %lld, a commit was made on %lld",
				 id_format(p[2].ids[i], id), (long long)seen->version,
				 (long long)p[4].ints[i]);
		seen->version++;
		seen->since_us = sim_now_us(checker->sim);
		checker_failure(checker, p[2].ids[i], p[5].ints[i]);
	}
}

static void commit_spawn(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct seen_instance *seen = mem_zalloc(sizeof(*seen));

		seen->version = p[6].ints[i];
		seen->since_us = sim_now_us(checker->sim);
		if (seen->version != 1)
			sim_fail(checker->sim, "G3: an instance begins with version %lld",
				 (long long)seen->version);
		if (map_get(&checker->instances, id_str(&p[2].ids[i])))
			sim_fail(checker->sim, "G3: an instance begins twice");
		free(map_put(&checker->instances, id_str(&p[2].ids[i]), seen));
	}
}

static void commit_outbox(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct seen_send *send = map_get(&checker->sends, id_str(&p[6].ids[i]));

		if (send)
			continue; /* a commit without an instance may come twice */
		if (str_equal(p[3].strs[i], STR("reminders")))
			checker_timer_fired(checker, p[2].ids[i], p[14].strs[i]);
		if (str_equal(p[3].strs[i], STR("rounds")))
			checker_tick_sent(checker, p[14].strs[i]);
		if (str_equal(p[3].strs[i], STR("packed")))
			checker_packed(checker, p[2].ids[i], p[14].strs[i]);
		if (str_equal(p[3].strs[i], STR("heard")))
			checker_news_heard(checker, p[2].ids[i], p[14].strs[i]);
		if (str_equal(p[3].strs[i], STR("read")))
			checker_news_read(checker, p[14].strs[i]);
		send = mem_zalloc(sizeof(*send));
		send->instance = p[2].ids[i];
		snprintf(send->channel, sizeof(send->channel), "%.*s", STR_ARG(p[3].strs[i]));
		send->version = p[4].ints[i];
		send->ordinal = p[5].ints[i];
		map_put(&checker->sends, id_str(&p[6].ids[i]), send);
	}
}

/* It is the database's business now: that may be acknowledged like an effect. */
static void commit_kept(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct load_event *event = checker_event_of_body(checker, p[4].strs[i],
								 p[9].strs[i]);

		if (event) {
			sim_note(checker->sim, "%s is kept", event->id);
			event->kept = true;
			checker->kept++;
		} else {
			sim_fail(checker->sim, "a kept message of nothing that was sent");
		}
	}
}

/* --- claims --- */

/* Records and messages of payments for the instance that are not done, and one that has just been. */
static uint64_t payments_open(const struct checker *checker, struct id instance)
{
	const struct load *load = checker->load;
	uint64_t count = 3; /* two timers, too */

	for (int i = 0; i < load->event_count; i++) {
		const struct load_event *event = &load->events[i];

		if (event->order >= 0 && event->kind == LOAD_PAYMENT && !event_is_done(event) &&
		    id_equal(load->orders[event->order].instance, instance))
			count += event->copies;
		if (event->frail >= 0 && !event_is_done(event) && id_equal(load->frails[event->frail].instance, instance))
			count += event->copies;
		if (event->box >= 0 && !event_is_done(event) && id_equal(load->boxes[event->box].instance, instance))
			count += event->copies;
	}
	return count;
}

/* For each delivery or timer that may be held the steps of a backoff, anew after each commit that may have woken it. */
static void refused(struct checker *checker, const struct process *process, struct id instance)
{
	const struct seen_instance *seen = map_get(&checker->instances, id_str(&instance));
	struct seen_refusals *refusals;
	char name[ID_TEXT_SIZE + 16], id[ID_TEXT_SIZE];
	int64_t now_us = sim_now_us(checker->sim);

	if (!seen)
		return;
	snprintf(name, sizeof(name), "%s %s", id_format(instance, id), process_name(process));
	refusals = map_get(&checker->refusals, str_of(name));
	if (!refusals) {
		refusals = mem_zalloc(sizeof(*refusals));
		refusals->since_us = INT64_MIN / 2;
		map_put(&checker->refusals, str_of(name), refusals);
	}
	if (now_us - refusals->since_us >= US_PER_S)
		*refusals = (struct seen_refusals){.since_us = now_us,
						   .version = seen->version,
						   .held = payments_open(checker, instance)};
	refusals->count++;
	if (refusals->count > checker->most_refused)
		checker->most_refused = refusals->count;
	if (refusals->count >
	    refusals->held * (REFUSALS_MAX + (uint64_t)(seen->version - refusals->version)))
		sim_fail(checker->sim, "G7: %s was refused instance %s %llu times within a second",
			 process_name(process), id, (unsigned long long)refusals->count);
}

static void commit_claim(struct checker *checker, const struct process *process,
			 const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		bool granted = false;

		for (uint32_t row = 0; row < call->rows.row_count && !granted; row++)
			granted = rows_at(&call->rows, row, 0)->i == p[0].ints[i];
		if (!granted)
			refused(checker, process, p[2].ids[i]);
	}
}

void checker_running(struct checker *checker, const struct segment *segment)
{
	const struct segment_call *fence = segment_find(segment, STATEMENT_FENCE_UPDATE);
	struct segment none = {0};
	struct tx tx = {sim_database_tables(checker->database), &none, 0};

	checker->claim_is_gone = false;
	for (uint32_t i = 0; fence && i < fence->params[0].count; i++) {
		struct field key = field_id(fence->params[2].ids[i]);
		const struct row *row = table_find(&tx, TABLE_INSTANCE, &key, 1);

		if (row && !str_equal(field_text(row->fields[INSTANCE_claim_owner]),
				      fence->params[3].strs[i]))
			checker->claim_is_gone = true;
	}
}

/* --- the outbox --- */

static bool outbox_has(struct checker *checker, struct id instance, struct str channel,
		       int64_t version, int64_t ordinal)
{
	struct segment segment = {0};
	struct tx tx = {sim_database_tables(checker->database), &segment, 0};
	struct field key[] = {field_id(instance), field_str(channel), field_int(version),
			      field_int(ordinal)};

	return table_find(&tx, TABLE_OUTBOX, key, 4) != NULL;
}

static void commit_outbox_delete(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct id key = outbox_row_id(p[1].ids[i], p[3].ints[i], p[4].ints[i]);
		const struct seen_send *send = map_get(&checker->sends, id_str(&key));

		/* It names rows that may be another's by now, which stay. */
		if (send && !send->copies &&
		    !outbox_has(checker, p[1].ids[i], p[2].strs[i], p[3].ints[i], p[4].ints[i]))
			sim_fail(checker->sim,
				 "G6: a row for channel %s is gone and was never sent",
				 send->channel);
	}
}

void checker_commit(struct checker *checker, const struct process *process,
		    const struct segment *segment)
{
	checker->commits++;
	checker_early(checker);
	checker_timers_late(checker);
	for (uint32_t i = 0; i < segment->call_count; i++) {
		const struct segment_call *call = &segment->calls[i];

		switch (call->statement) {
		case STATEMENT_CLAIM:
			commit_claim(checker, process, call);
			break;
		case STATEMENT_KEPT_INSERT:
			commit_kept(checker, call);
			checker_targets_kept(checker, call);
			break;
		case STATEMENT_INBOX_INSERT:
			commit_inbox(checker, process, call);
			break;
		case STATEMENT_DEAD_LETTER_INSERT:
			commit_dead_letters(checker, call);
			break;
		case STATEMENT_FENCE_UPDATE:
			commit_fence(checker, call);
			break;
		case STATEMENT_INSTANCE_INSERT:
			commit_spawn(checker, call);
			break;
		case STATEMENT_TIMER_INSERT:
			checker_timers_set(checker, call);
			break;
		case STATEMENT_KEPT_DELETE:
			checker_targets_removed(checker, segment, call);
			break;
		case STATEMENT_SCHEDULE_ADVANCE:
			checker_ticks_advance(checker, call);
			break;
		case STATEMENT_OUTBOX_INSERT:
		case STATEMENT_OUTBOX_INSERT_ONCE:
			commit_outbox(checker, call);
			break;
		case STATEMENT_OUTBOX_DELETE:
			commit_outbox_delete(checker, call);
			break;
		default:
			break;
		}
	}
	checker_news_commit(checker);
}

/* --- offsets and records --- */

void checker_offset(void *user, const char *topic, int32_t partition, int64_t from, int64_t to)
{
	struct checker *checker = user;

	for (int64_t offset = from; offset < to; offset++) {
		const struct load_event *event = checker_event_of(checker, topic, partition,
								  offset);

		if (event && !event_is_done(event) && !event->kept)
			sim_fail(checker->sim,
				 "G1: offset %lld of %s/%d is committed, but event %s at %lld has "
				 "had no effect",
				 (long long)to, topic, partition, event->id, (long long)offset);
	}
}

static bool topic_is_input(const char *topic)
{
	return strcmp(topic, "orders") == 0 || strcmp(topic, "payments") == 0 || strcmp(topic, "news") == 0 ||
	       strcmp(topic, "items") == 0 || strcmp(topic, "frails") == 0 || strcmp(topic, "blows") == 0;
}

/* First copies of one instance and channel come in the order of their commits. */
static void send_in_order(struct checker *checker, const struct seen_send *send)
{
	struct map_entry *entry;
	char id[ID_TEXT_SIZE];

	for (entry = map_first(&checker->sends); entry; entry = map_next(&checker->sends, entry)) {
		const struct seen_send *other = entry->value;

		if (other == send || !id_equal(other->instance, send->instance) ||
		    strcmp(other->channel, send->channel) != 0 || other->copies)
			continue;
		if (other->version < send->version ||
		    (other->version == send->version && other->ordinal < send->ordinal))
			sim_fail(checker->sim,
				 "G6: of instance %s on channel %s version %lld was sent before "
				 "version %lld",
				 id_format(send->instance, id), send->channel,
				 (long long)send->version, (long long)other->version);
	}
}

void checker_sent(struct checker *checker, const char *where, struct str text)
{
	struct seen_send *send;
	struct id key;

	if (!id_parse(text, &key)) {
		sim_fail(checker->sim, "G6: a message on %s has no idempotency key", where);
		return;
	}
	send = map_get(&checker->sends, id_str(&key));
	if (!send) {
		sim_fail(checker->sim, "G6: a message on %s was sent before its commit", where);
		return;
	}
	if (strcmp(send->channel, where) != 0)
		sim_fail(checker->sim, "G6: a message for %s went to %s", send->channel, where);
	if (!send->copies)
		send_in_order(checker, send);
	send->copies++;
}

void checker_record(void *user, const char *topic, int32_t partition, int64_t offset)
{
	struct checker *checker = user;
	const struct kafka_record *record;

	if (topic_is_input(topic))
		return;
	record = sim_cluster_record(checker->load->cluster, topic, partition, offset);
	checker_sent(checker, topic, kafka_record_header(record, "sutra-outbox-key"));
}

uint64_t checker_kept(const struct checker *checker)
{
	return checker->kept;
}

uint64_t checker_reminders(const struct checker *checker)
{
	return checker->reminders;
}

uint64_t checker_timers(const struct checker *checker)
{
	return checker->timer_count;
}

uint64_t checker_early_met(const struct checker *checker)
{
	return checker->early_met;
}

uint64_t checker_most_refused(const struct checker *checker)
{
	return checker->most_refused;
}

/* --- life --- */

struct checker *checker_new(struct sim *sim, struct load *load)
{
	struct checker *checker = mem_zalloc(sizeof(*checker));

	checker->sim = sim;
	checker->load = load;
	map_init(&checker->inbox_keys);
	map_init(&checker->instances);
	map_init(&checker->sends);
	map_init(&checker->refusals);
	return checker;
}

void checker_begin(struct checker *checker, struct sim_database *database)
{
	checker->database = database;
	for (int i = 0; i < checker->load->event_count; i++) {
		struct load_event *event = &checker->load->events[i];
		struct id key = store_inbox_key(STR("default"), str_of(event->topic),
						str_of(event->id));

		map_put(&checker->inbox_keys, id_str(&key), event);
	}
}

static void values_free(struct map *map)
{
	for (struct map_entry *entry = map_first(map); entry; entry = map_next(map, entry))
		free(entry->value);
	map_done(map);
}

void checker_free(struct checker **checker)
{
	struct checker *c = *checker;

	if (!c)
		return;
	map_done(&c->inbox_keys);
	values_free(&c->instances);
	values_free(&c->sends);
	values_free(&c->refusals);
	free(c->timers);
	free(c->targets);
	free(c);
	*checker = NULL;
}
