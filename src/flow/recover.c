/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept messages of replicas that are gone: looked for every few seconds and taken over, by stamping them as ours; and at a
 * stop our own are given up.
 *
 * The answer to the stamping may be lost although it was done, or is about to be. Then rows are ours that no place stands
 * for, and nobody else will ever look at them. So after every failure what is stamped as ours is listed, for a while, and
 * what has no place gets one.
 */
#include "base/log.h"
#include "base/time.h"
#include "flow/keep_internal.h"

/* Between two looks; the first, and one after a failure, come sooner. */
#define RECOVER_US	 (5 * US_PER_S)
#define RECOVER_FIRST_US US_PER_S
#define RECOVER_RETRY_US US_PER_S
#define RECOVER_LIMIT	 1000
/* How often what is ours is listed after a failure: a minute long, in which a lost statement has ended. */
#define RECOVER_DOUBTS 12

void recover_row(struct intake *intake, struct id order_key, uint64_t rows)
{
	struct place *place = map_get(&intake->places, id_str(&order_key));
	struct str name;

	if (place) {
		place_add(place, rows);
		return;
	}
	place = place_new(intake, order_key);
	name = id_str(&place->order_key);
	chain_join(&place->dlv, &name, 1);
	place_add(place, rows);
}

static void recover_log(const struct intake *intake, uint64_t taken, const char *what)
{
	struct log_about about = {.stage = "keep", .tenant = str_of(intake->settings.tenant),
				  .channel = str_of(intake->settings.channel)};

	if (taken)
		log_info(&about, "%s %llu kept messages", what, (unsigned long long)taken);
}

static void recover_again(struct intake *intake, int64_t delay_us)
{
	if (intake->stopping)
		intake_check_stopped(intake);
	else
		loop_timer_start(&intake->recover, delay_us);
}

/* --- rows of others --- */

static void recover_doubt(struct intake *intake)
{
	intake->recover_doubts = RECOVER_DOUBTS;
	intake->has_kept = true;
	for (struct map_entry *e = map_first(&intake->places); e; e = map_next(&intake->places, e))
		((struct place *)e->value)->is_uncertain = true;
}

static void recovered(struct task *done)
{
	struct keep_ask *ask = keep_ask_answered(done);
	struct intake *intake = ask->intake;
	const struct rows *rows = &ask->call.rows;
	bool ok = ask->query.base.outcome == STORE_OK;
	uint64_t taken = 0;

	if (!ok)
		recover_doubt(intake);
	else if (rows->row_count)
		intake->has_kept = true;
	for (uint32_t i = 0; ok && !intake->stopping && i < rows->row_count; i++) {
		taken += (uint64_t)rows_at(rows, i, 1)->i;
		recover_row(intake, rows_at(rows, i, 0)->id, (uint64_t)rows_at(rows, i, 1)->i);
	}
	recover_log(intake, taken, "no live replica had them: took over");
	keep_ask_free(ask);
	recover_again(intake, !ok ? RECOVER_RETRY_US : taken >= RECOVER_LIMIT ? 0 : RECOVER_US);
}

void keep_fanned(struct intake *intake, const struct id *order_keys, uint32_t count)
{
	if (!count)
		return;
	intake->has_kept = true;
	for (uint32_t i = 0; !intake->stopping && i < count; i++)
		recover_row(intake, order_keys[i], 1);
}

static void taken(struct task *done)
{
	struct keep_ask *ask = keep_ask_answered(done);
	struct intake *intake = ask->intake;
	const struct rows *rows = &ask->call.rows;
	bool ok = ask->query.base.outcome == STORE_OK;

	if (!ok)
		recover_doubt(intake);
	else if (rows->row_count)
		intake->has_kept = true;
	for (uint32_t i = 0; ok && !intake->stopping && i < rows->row_count; i++) {
		struct id order_key = rows_at(rows, i, 0)->id;
		struct place *place;

		recover_row(intake, order_key, (uint64_t)rows_at(rows, i, 1)->i);
		place = map_get(&intake->places, id_str(&order_key));
		if (place)
			place_hit(place);
	}
	keep_ask_free(ask);
	intake_check_stopped(intake);
}

void recover_take(struct intake *intake, struct id order_key)
{
	struct keep_ask *ask = keep_ask_new(intake, STATEMENT_KEPT_TAKE, taken);

	ask->params[0] = (struct column){
		.type = COLUMN_ID, .count = 1, .ids = arena_memdup(&ask->arena, &order_key, sizeof(order_key))};
	ask->params[1] = column_scalar_text(&ask->arena, str_of(intake->settings.tenant));
	ask->params[2] = column_scalar_text(&ask->arena, str_of(intake->settings.channel));
	ask->params[3] = column_scalar_text(&ask->arena, str_of(intake->settings.keeper));
	keep_ask_send(ask, true);
}

static void ask_set_channel(struct keep_ask *ask)
{
	const struct intake_settings *settings = &ask->intake->settings;

	ask->params[0] = column_scalar_text(&ask->arena, str_of(settings->tenant));
	ask->params[1] = column_scalar_text(&ask->arena, str_of(settings->channel));
	ask->params[2] = column_scalar_text(&ask->arena, str_of(settings->keeper));
}

/* However many we keep already: what is ours may wait for what nobody has. */
static void recover_others(struct intake *intake)
{
	struct keep_ask *ask = keep_ask_new(intake, STATEMENT_KEPT_RECOVER, recovered);

	ask_set_channel(ask);
	ask->params[3] = column_scalar_int(&ask->arena, RECOVER_LIMIT);
	keep_ask_send(ask, true);
}

/* --- our own, in doubt --- */

static void list_own(struct intake *intake, int64_t after);

/* Whether nobody stands for our row. */
static bool own_row(struct intake *intake, const struct field *row)
{
	struct place *place = map_get(&intake->places, id_str(&row[0].id));

	if (place) {
		place->is_uncertain = true; /* which finds the row */
		return false;
	}
	recover_row(intake, row[0].id, 1);
	return true;
}

static void own_listed(struct task *done)
{
	struct keep_ask *ask = keep_ask_answered(done);
	struct intake *intake = ask->intake;
	const struct rows *rows = &ask->call.rows;
	bool ok = ask->query.base.outcome == STORE_OK;
	uint32_t count = ok ? rows->row_count : 0;
	int64_t last = count ? rows_at(rows, count - 1, 1)->i : 0;
	uint64_t found = 0;

	for (uint32_t i = 0; !intake->stopping && i < count; i++)
		found += own_row(intake, rows_at(rows, i, 0));
	recover_log(intake, found, "a lost answer had left behind");
	keep_ask_free(ask);
	if (intake->stopping || !ok) {
		recover_again(intake, RECOVER_RETRY_US);
	} else if (count >= RECOVER_LIMIT) {
		list_own(intake, last);
	} else {
		intake->recover_doubts--;
		recover_others(intake);
	}
}

static void list_own(struct intake *intake, int64_t after)
{
	struct keep_ask *ask = keep_ask_new(intake, STATEMENT_KEPT_OWN, own_listed);

	ask_set_channel(ask);
	ask->params[3] = column_scalar_int(&ask->arena, after);
	ask->params[4] = column_scalar_int(&ask->arena, RECOVER_LIMIT);
	keep_ask_send(ask, false);
}

static void recover(struct loop_timer *timer)
{
	struct intake *intake = container_of(timer, struct intake, recover);

	if (intake->recover_doubts)
		list_own(intake, 0);
	else
		recover_others(intake);
}

void keep_start(struct intake *intake)
{
	if (!intake->settings.keeper)
		return;
	loop_timer_init(&intake->recover, intake->loop, recover);
	loop_timer_start(&intake->recover,
			 RECOVER_FIRST_US + (int64_t)loop_random_below(intake->loop, RECOVER_FIRST_US));
	early_start(intake);
}

/* --- stop --- */

void keep_stop(struct intake *intake)
{
	if (intake->settings.keeper) {
		loop_timer_stop(&intake->recover);
		early_stop(intake);
	}
	for (struct map_entry *e = map_first(&intake->places), *next; e; e = next) {
		struct place *place = e->value;

		next = map_next(&intake->places, e);
		place->dlv.revoked = true;
		if (place->dlv.state == DELIVERY_HELD || place->dlv.state == DELIVERY_CHAINED)
			keep_drop(&place->dlv);
	}
}

static void released(struct task *done)
{
	struct keep_ask *ask = keep_ask_answered(done);
	struct intake *intake = ask->intake;

	/* A page at a time, until less than one was left. */
	if (ask->query.base.outcome == STORE_OK && rows_at(&ask->call.rows, 0, 0)->i >= RECOVER_LIMIT)
		intake->has_kept = true;
	keep_ask_free(ask);
	intake_check_stopped(intake);
}

bool keep_is_stopped(struct intake *intake)
{
	struct keep_ask *ask;

	if (intake->asks || intake->places.count)
		return false;
	if (!intake->has_kept)
		return true;
	intake->has_kept = false;
	ask = keep_ask_new(intake, STATEMENT_KEPT_RELEASE, released);
	ask_set_channel(ask);
	ask->params[3] = column_scalar_int(&ask->arena, RECOVER_LIMIT);
	keep_ask_send(ask, true);
	return false;
}
