/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures: with the commit of a step that fails the waits and timers of its instance go, and with the one that restores it they come
 * back; a message for it in between waits.
 */
#include "tests/sim/checker_private.h"

void checker_frail(struct checker *checker, const struct load_event *event, struct id instance)
{
	checker->load->frails[event->frail].instance = instance;
}

static uint32_t rows_of(struct checker *checker, enum table_id table, int column, struct id instance)
{
	struct segment segment = {.scan = true};
	struct tx tx = {sim_database_tables(checker->database), &segment, 0};
	uint32_t count = 0;

	for (struct row *row = table_first(&tx, table); row; row = table_next(row))
		count += id_equal(row->fields[column].id, instance);
	return count;
}

/* The tables are as after the commit. */
void checker_failure(struct checker *checker, struct id instance, int64_t status)
{
	struct seen_instance *seen = map_get(&checker->instances, id_str(&instance));
	uint32_t waits = rows_of(checker, TABLE_WAIT, WAIT_instance, instance);
	uint32_t timers = rows_of(checker, TABLE_TIMER, TIMER_instance, instance);
	char id[ID_TEXT_SIZE];

	id_format(instance, id);
	if (status == INSTANCE_FAILED) {
		checker->failures++;
		if (waits || timers)
			sim_fail(checker->sim, "instance %s is FAILED and has %u waits and %u timers", id, waits, timers);
		if (seen->failed)
			sim_fail(checker->sim, "instance %s is FAILED and fails", id);
	} else if (seen->failed) {
		checker->restores++;
		if (waits != 1 || timers != 1)
			sim_fail(checker->sim, "instance %s is restored and has %u waits and %u timers", id, waits, timers);
	}
	seen->failed = status == INSTANCE_FAILED;
}

void checker_failures_end(struct checker *checker)
{
	const struct load *load = checker->load;

	for (int i = 0; i < load->event_count; i++) {
		const struct load_event *event = &load->events[i];

		if ((event->kind == LOAD_FRAIL || event->kind == LOAD_SOFT) && !event->effect)
			sim_fail(checker->sim, "event %s of a frail is lost", event->id);
		if (event->kind == LOAD_HARD && !event->dead)
			sim_fail(checker->sim, "G9: hard blow %s has no dead letter", event->id);
	}
	if (checker->failures != checker->restores)
		sim_fail(checker->sim, "%llu have failed and %llu were restored", (unsigned long long)checker->failures,
			 (unsigned long long)checker->restores);
}

uint64_t checker_failures(const struct checker *checker)
{
	return checker->failures;
}

uint64_t checker_restores(const struct checker *checker)
{
	return checker->restores;
}
