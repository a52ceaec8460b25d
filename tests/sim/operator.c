/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each hand takes one instance at a time, mostly for less than any claim timeout. A claim that the database loses in a restart,
 * or that others take over, is simply gone; the hand releases what is still its own.
 */
#include "tests/sim/operator.h"

#include "base/time.h"
#include "store/memory/tables.h"

/* Only what is free. */
#define TIMEOUT_MS 100000000

static bool hand_run(struct operator_hand *hand, enum statement_id statement, uint32_t *row_count)
{
	struct arena arena;
	int64_t ord = 0, timeout_ms = TIMEOUT_MS;
	struct str tenant = STR("default"), owner = str_of(hand->owner);
	struct column params[] = {
		{.type = COLUMN_INT, .count = 1, .ints = &ord},
		{.type = COLUMN_TEXT, .count = 1, .strs = &tenant},
		{.type = COLUMN_ID, .count = 1, .ids = &hand->instance},
		{.type = COLUMN_TEXT, .count = 1, .strs = &owner},
		{.type = COLUMN_INT, .scalar = true, .count = 1, .ints = &timeout_ms},
	};
	struct segment_call call = {.statement = statement, .params = params};
	struct segment segment = {
		.calls = &call,
		.call_count = 1,
		.tenants = STR(",default,"),
		.writes = true,
		.arena = &arena,
	};
	bool committed;

	arena_init(&arena);
	committed = sim_database_run(hand->op->database, &segment);
	*row_count = call.rows.row_count;
	arena_done(&arena);
	return committed;
}

/* Any instance that has not ended. */
static bool hand_choose(struct operator_hand *hand)
{
	struct segment segment = {0};
	struct tx tx = {sim_database_tables(hand->op->database), &segment, 0};
	uint64_t count = 0;

	for (struct row *row = table_first(&tx, TABLE_INSTANCE); row; row = table_next(row))
		if (row->fields[INSTANCE_ended].is_null && sim_below(hand->op->sim, ++count) == 0)
			hand->instance = row->fields[INSTANCE_id].id;
	return count > 0;
}

static void hand_release(struct operator_hand *hand)
{
	uint32_t rows;

	if (hand->holds && hand_run(hand, STATEMENT_RELEASE, &rows))
		hand->holds = false;
}

static void hand_moves(struct loop_timer *timer)
{
	struct operator_hand *hand = container_of(timer, struct operator_hand, timer);
	struct sim *sim = hand->op->sim;
	char id[ID_TEXT_SIZE];
	uint32_t rows = 0;

	if (hand->holds) {
		hand_release(hand);
	} else if (!hand->op->stopped && hand_choose(hand) &&
		   hand_run(hand, STATEMENT_CLAIM, &rows) && rows) {
		hand->holds = true;
		hand->op->claims++;
		sim_note(sim, "%s claims %s", hand->owner, id_format(hand->instance, id));
	}
	if (hand->holds && !hand->op->stopped)
		loop_timer_start(timer, sim_latency(sim, 50 * US_PER_MS, 10 * US_PER_S));
	else if (hand->holds)
		loop_timer_start(timer, 100 * US_PER_MS); /* the server is down */
	else if (!hand->op->stopped)
		loop_timer_start(timer, sim_latency(sim, 1 * US_PER_MS, 4 * US_PER_S));
}

void operator_begin(struct sim_operator *op, struct sim *sim, struct sim_database *database,
		    uint32_t hands)
{
	*op = (struct sim_operator){.sim = sim, .database = database, .hand_count = hands};
	for (uint32_t i = 0; i < hands; i++) {
		struct operator_hand *hand = &op->hands[i];

		hand->op = op;
		snprintf(hand->owner, sizeof(hand->owner), "operator-%u", i + 1);
		loop_timer_init(&hand->timer, sim_world(sim), hand_moves);
		loop_timer_start(&hand->timer, sim_between(sim, 0, 2 * US_PER_S));
	}
}

void operator_stop(struct sim_operator *op)
{
	op->stopped = true;
	for (uint32_t i = 0; i < op->hand_count; i++)
		if (op->hands[i].holds)
			loop_timer_start(&op->hands[i].timer, 0);
}

void operator_done(struct sim_operator *op)
{
	for (uint32_t i = 0; i < op->hand_count; i++)
		loop_timer_stop(&op->hands[i].timer);
}
