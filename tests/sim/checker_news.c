/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News are for all who listen, which are rounds, and for one who begins with them. Their inbox row and a row for each target come in one
 * commit, and each row goes with the step of its target, or is passed over because that has ended.
 *
 * Who is to be a target is known only of those who waited, at the version that they are at, before the news were there.
 */
#include "tests/sim/checker_private.h"

#include <stdio.h>

#include "base/alloc.h"
#include "tests/sim/segment_copy.h"

static bool is_round(const struct checker *checker, struct id instance)
{
	for (int i = 0; i < checker->load->order_count; i++)
		if (id_equal(checker->load->orders[i].instance, instance))
			return false;
	for (int i = 0; i < checker->load->frail_count; i++)
		if (id_equal(checker->load->frails[i].instance, instance))
			return false;
	for (int i = 0; i < checker->load->box_count; i++)
		if (id_equal(checker->load->boxes[i].instance, instance))
			return false;
	return true;
}

/* Rows for an instance are in an order of its own. */
static struct id instance_of(const struct checker *checker, struct id order_key)
{
	struct map_entry *entry;

	for (entry = map_first(&checker->instances); entry; entry = map_next(&checker->instances, entry)) {
		struct str name = {entry->key, entry->key_len};
		struct id key = id_digest_of(STR("target"), STR("default"), STR("news"), name);

		if (id_equal(key, order_key)) {
			memcpy(&key, entry->key, sizeof(key));
			return key;
		}
	}
	return (struct id){0};
}

void checker_targets_kept(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		struct load_event *event = checker_event_of_body(checker, p[4].strs[i], p[9].strs[i]);

		if (!event || event->kind != LOAD_NEWS || !str_equal(p[5].strs[i], STR("target")))
			continue;
		checker->targets = mem_array(checker->targets, checker->target_count + 1, sizeof(*checker->targets));
		checker->targets[checker->target_count++] = (struct seen_target){
			.row = p[2].ids[i], .event = event, .instance = instance_of(checker, p[3].ids[i])};
	}
}

static bool waits(struct checker *checker, struct id instance)
{
	struct segment segment = {.scan = true};
	struct tx tx = {sim_database_tables(checker->database), &segment, 0};

	for (struct row *row = table_first(&tx, TABLE_WAIT); row; row = table_next(row))
		if (id_equal(row->fields[WAIT_instance].id, instance))
			return true;
	return false;
}

static bool steps(const struct segment *segment, struct id instance)
{
	const struct segment_call *fence = segment_find(segment, STATEMENT_FENCE_UPDATE);

	for (uint32_t i = 0; fence && i < fence->params[0].count; i++)
		if (id_equal(fence->params[2].ids[i], instance))
			return true;
	return false;
}

void checker_targets_removed(struct checker *checker, const struct segment *segment, const struct segment_call *call)
{
	for (uint32_t i = 0; i < call->params[0].count; i++)
		for (uint32_t k = 0; k < checker->target_count; k++) {
			struct seen_target *target = &checker->targets[k];

			if (!id_equal(target->row, call->params[2].ids[i]))
				continue;
			if (target->done)
				sim_fail(checker->sim, "G5: a target of event %s is removed twice", target->event->id);
			target->done = true;
			if (id_is_none(target->instance) || steps(segment, target->instance))
				continue;
			checker->targets_passed++;
			if (waits(checker, target->instance))
				sim_fail(checker->sim, "G1: event %s is lost for a target that waits", target->event->id);
		}
}

/* By `{"n":17}`. */
static struct load_event *event_said(struct checker *checker, struct str body)
{
	char text[32];
	int n = 0;

	snprintf(text, sizeof(text), "%.*s", STR_ARG(body));
	if (sscanf(text, "{\"n\":%d}", &n) != 1 || n < 1 || n > checker->load->event_count ||
	    checker->load->events[n - 1].kind != LOAD_NEWS) {
		sim_fail(checker->sim, "news that nobody sent: %s", text);
		return NULL;
	}
	return &checker->load->events[n - 1];
}

void checker_news_heard(struct checker *checker, struct id instance, struct str body)
{
	struct seen_instance *seen = map_get(&checker->instances, id_str(&instance));
	const struct load_event *event = event_said(checker, body);
	struct seen_target *target = NULL;

	for (uint32_t i = 0; event && i < checker->target_count; i++)
		if (checker->targets[i].event == event && id_equal(checker->targets[i].instance, instance))
			target = &checker->targets[i];
	if (!event || !target || !seen) {
		sim_fail(checker->sim, "news are heard by somebody who is none of their targets: %.*s", STR_ARG(body));
		return;
	}
	checker->heard++;
	if (target->heard++)
		sim_fail(checker->sim, "G5: one target has event %s twice", event->id);
	if (event->offset < seen->heard)
		sim_fail(checker->sim, "G8: a target has event %s behind a later one", event->id);
	seen->heard = event->offset + 1;
}

void checker_news_read(struct checker *checker, struct str body)
{
	struct load_event *event = event_said(checker, body);

	if (!event)
		return;
	checker->read++;
	if (event->read)
		sim_fail(checker->sim, "G5: two begin with event %s", event->id);
	if (event->offset < checker->read_to)
		sim_fail(checker->sim, "G8: one begins with event %s behind a later one", event->id);
	event->read = true;
	checker->read_to = event->offset + 1;
}

static bool is_target(const struct checker *checker, const struct load_event *event, struct id instance)
{
	for (uint32_t i = 0; i < checker->target_count; i++)
		if (checker->targets[i].event == event && id_equal(checker->targets[i].instance, instance))
			return true;
	return false;
}

static void news_are_for_all(struct checker *checker, const struct load_event *event)
{
	struct segment segment = {.scan = true};
	struct tx tx = {sim_database_tables(checker->database), &segment, 0};

	for (struct row *row = table_first(&tx, TABLE_WAIT); row; row = table_next(row)) {
		struct id instance = row->fields[WAIT_instance].id;
		const struct seen_instance *seen = map_get(&checker->instances, id_str(&instance));

		if (seen && seen->since_us < event->since_us && is_round(checker, instance) &&
		    !is_target(checker, event, instance))
			sim_fail(checker->sim, "G1: event %s is not for one that waits for it", event->id);
	}
}

void checker_news_commit(struct checker *checker)
{
	for (int i = 0; i < checker->load->event_count; i++) {
		const struct load_event *event = &checker->load->events[i];

		if (event->kind == LOAD_NEWS && event->effect == checker->commits)
			news_are_for_all(checker, event);
	}
}

void checker_news_end(struct checker *checker)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < checker->target_count; i++)
		if (!checker->targets[i].done)
			sim_fail(checker->sim, "a target of event %s stays", checker->targets[i].event->id);
	for (int i = 0; i < checker->load->event_count; i++) {
		const struct load_event *event = &checker->load->events[i];

		count += event->kind == LOAD_NEWS;
		if (event->kind == LOAD_NEWS && (!event->effect || event->dead))
			sim_fail(checker->sim, "news %s have %s", event->id, event->dead ? "a dead letter" : "no effect");
	}
	if (count != checker->read)
		sim_fail(checker->sim, "%llu have begun with %u news", (unsigned long long)checker->read, count);
}

uint64_t checker_targets(const struct checker *checker)
{
	return checker->target_count;
}

uint64_t checker_targets_passed(const struct checker *checker)
{
	return checker->targets_passed;
}
