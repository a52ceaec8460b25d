/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers. A reminder tells when it was due, by which its timer is known: that must have been set, be due by the latest time that the
 * database has shown, and fire once. That the other kind, on which an order waits, fires once is known by the versions of its instance.
 * One that stays long after it was due, of an instance that is free, has been forgotten by all.
 *
 * The start timer has eight times, three seconds apart. Each commit of one begins where the one before has left it: so none begins two
 * instances, and none is left out but by a commit that passes over it. Who decides on one knows of the commit before, so whatever was
 * late by then must be passed over with it.
 */
#include "tests/sim/checker_private.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"

/* Leases, restarts and the backoff of what was refused, and the clock of the database may jump by some seconds. */
#define PATIENCE_US (60 * US_PER_S)
/* A time without commits is nobody's fault. */
#define GAP_US (3 * US_PER_S)
/* Of the start timer in round.bpmn. */
#define TICK_US	  (3 * US_PER_S)
#define TICKS_MAX 8

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

/* --- the start timer --- */

static void tick_order(struct checker *checker, int64_t due_us, int64_t next_us, int64_t left)
{
	struct sim *sim = checker->sim;
	bool ends = next_us == COLUMN_TIME_NULL;
	int64_t steps = (next_us - due_us) / TICK_US;

	if (checker->tick_count && due_us != checker->next_tick_us)
		sim_fail(sim, "G5: the start timer fires for another time than its next");
	if (!ends && (steps < 1 || due_us + steps * TICK_US != next_us))
		sim_fail(sim, "the start timer goes on %lld ms after its time", (long long)((next_us - due_us) / US_PER_MS));
	if (!ends && left != (checker->tick_count ? checker->ticks_left : TICKS_MAX - 1) - steps)
		sim_fail(sim, "the start timer has %lld times left after %lld of %lld", (long long)left, (long long)steps,
			 (long long)checker->ticks_left);
	if (!checker->clocks_differ && due_us > loop_wall_us(sim_world(sim)))
		sim_fail(sim, "the start timer fires before its time");
	if (!checker->clocks_differ && !ends && checker->tick_count && next_us <= checker->tick_seen_us)
		sim_fail(sim, "the start timer goes on with a time that had passed before");
	checker->ticks_coalesced += !ends && steps > 1;
}

void checker_ticks_advance(struct checker *checker, const struct segment_call *call)
{
	const struct column *p = call->params;

	for (uint32_t i = 0; i < p[0].count; i++) {
		tick_order(checker, p[3].ints[i], p[4].ints[i], p[5].ints[i]);
		if (checker->tick_count == TICKS_MAX) {
			sim_fail(checker->sim, "G5: the start timer fires more often than it has times");
			return;
		}
		checker->ticks[checker->tick_count++].due_us = p[3].ints[i];
		checker->next_tick_us = p[4].ints[i];
		checker->ticks_left = p[5].ints[i];
		checker->tick_seen_us = loop_wall_us(sim_world(checker->sim));
		sim_note(checker->sim, "tick %u", checker->tick_count);
	}
}

void checker_tick_sent(struct checker *checker, struct str body)
{
	for (uint32_t i = 0; i < checker->tick_count; i++) {
		char time[TIME_TEXT_SIZE], text[TIME_TEXT_SIZE + 16];

		snprintf(text, sizeof(text), "{\"due\":\"%s\"}", time_format(checker->ticks[i].due_us, time));
		if (!str_equal(body, str_of(text)))
			continue;
		if (checker->ticks[i].sends++)
			sim_fail(checker->sim, "G5: the start timer fires twice for one time");
		return;
	}
	sim_fail(checker->sim, "the start timer fires without being moved on: %.*s", STR_ARG(body));
}

bool checker_ticks_are_over(const struct checker *checker)
{
	struct segment segment = {.scan = true};
	struct tx tx = {sim_database_tables(checker->database), &segment, 0};
	const struct row *row = table_first(&tx, TABLE_SCHEDULE);

	return row && row->fields[SCHEDULE_next].is_null;
}

void checker_ticks_end(struct checker *checker)
{
	for (uint32_t i = 0; i < checker->tick_count; i++)
		if (!checker->ticks[i].sends)
			sim_fail(checker->sim, "tick %u has begun no instance", i + 1);
	if (!checker_ticks_are_over(checker))
		sim_fail(checker->sim, "the start timer has times left");
}

uint64_t checker_ticks(const struct checker *checker)
{
	return checker->tick_count;
}

uint64_t checker_ticks_coalesced(const struct checker *checker)
{
	return checker->ticks_coalesced;
}

void checker_clock_jumps(struct checker *checker)
{
	checker->clocks_differ = true;
}
