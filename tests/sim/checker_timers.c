/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers. A reminder tells when it was due, by which its timer is known: that must have been set, be due by the latest time that the
 * database has shown, and fire once. That the other kind, on which an order waits, fires once is known by the versions of its instance.
 * One that stays long after it was due, of an instance that is free, has been forgotten by all.
 */
#include "tests/sim/checker_private.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"

/* Leases, restarts and the backoff of what was refused, and the clock of the database may jump by some seconds. */
#define PATIENCE_US (60 * US_PER_S)
/* A time without commits is nobody's fault. */
#define GAP_US (3 * US_PER_S)

void checker_timers_set(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	checker->timers = mem_array(checker->timers, checker->timer_count + p[0].count, sizeof(*checker->timers));
	for (uint32_t i = 0; i < p[0].count; i++)
		checker->timers[checker->timer_count++] = (struct seen_timer){p[2].ids[i], p[6].ints[i], 0};
}

/* A reminder begins with when it was due. */
static struct seen_timer *timer_of(struct checker *checker, struct id instance, struct str body)
{
	for (uint32_t i = 0; i < checker->timer_count; i++) {
		struct seen_timer *timer = &checker->timers[i];
		char time[TIME_TEXT_SIZE], begin[TIME_TEXT_SIZE + 16];

		if (!id_equal(timer->instance, instance))
			continue;
		snprintf(begin, sizeof(begin), "{\"due\":\"%s\"", time_format(timer->due_us, time));
		if (str_starts_with(body, str_of(begin)))
			return timer;
	}
	return NULL;
}

void checker_timer_fired(struct checker *checker, struct id instance, struct str body)
{
	struct seen_timer *timer = timer_of(checker, instance, body);
	int64_t now_us = sim_database_latest_us(checker->database);
	char id[ID_TEXT_SIZE];

	checker->reminders++;
	id_format(instance, id);
	if (!timer) {
		sim_fail(checker->sim, "a timer of instance %s fires that was not set: %.*s", id, STR_ARG(body));
		return;
	}
	if (timer->due_us > now_us)
		sim_fail(checker->sim, "a timer of instance %s fires %lld ms before its time", id,
			 (long long)((timer->due_us - now_us) / US_PER_MS));
	if (timer->fires++)
		sim_fail(checker->sim, "G5: a timer of instance %s fires twice", id);
}

/* The first that is due for long, of an instance that nobody has claimed. */
static bool one_is_late(struct checker *checker)
{
	int64_t least_us = sim_database_latest_us(checker->database) - PATIENCE_US;
	struct segment segment = {.scan = true};
	struct tx tx = {sim_database_tables(checker->database), &segment, 0};

	for (struct row *row = table_first(&tx, TABLE_TIMER); row; row = table_next(row)) {
		const struct row *instance = table_find(&tx, TABLE_INSTANCE, &row->fields[TIMER_instance], 1);

		if (row->fields[TIMER_due].i < least_us && instance && instance->fields[INSTANCE_claim_owner].is_null)
			return true;
	}
	return false;
}

void checker_timers_late(struct checker *checker)
{
	int64_t now_us = sim_now_us(checker->sim);

	if (!one_is_late(checker)) {
		checker->late_since_us = 0;
		return;
	}
	if (!checker->late_since_us || now_us - checker->late_seen_us > GAP_US)
		checker->late_since_us = now_us;
	checker->late_seen_us = now_us;
	if (now_us - checker->late_since_us > PATIENCE_US)
		sim_fail(checker->sim, "G11: a timer that is long due stays, and its instance is free");
}
