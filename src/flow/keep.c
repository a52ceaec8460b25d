/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping messages in the database, and running them from there. */
#include "flow/keep.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "flow/envelope.h"
#include "flow/hold.h"
#include "flow/keep_internal.h"

/* What one commit takes of a chain. */
#define KEEP_BYTES_MAX (UINT64_C(4) << 20)
#define KEEP_COUNT_MAX 256
/* After a failure. */
#define KEEP_PAUSE_US US_PER_S

struct place *place_of(struct delivery *dlv)
{
	assert(dlv->is_place);
	return container_of(dlv, struct place, dlv);
}

/* --- asking --- */

struct keep_ask *keep_ask_new(struct intake *intake, enum statement_id statement, void (*done)(struct task *))
{
	struct keep_ask *ask = mem_zalloc(sizeof(*ask));

	ask->intake = intake;
	arena_init(&ask->arena);
	ask->call = (struct segment_call){.statement = statement, .params = ask->params};
	ask->query = (struct store_query){
		.base = {.reply_to = intake->loop, .done.run = done, .arena = &ask->arena},
		.segment = {.calls = &ask->call, .call_count = 1},
	};
	return ask;
}

void keep_ask_send(struct keep_ask *ask, bool writes)
{
	struct str tenant = str_of(ask->intake->settings.tenant);

	ask->query.segment.tenants = store_tenants(&ask->arena, &tenant, 1);
	ask->query.segment.writes = writes;
	ask->query.segment.durable = writes;
	ask->intake->asks++;
	store_query(ask->intake->lanes->store, &ask->query);
}

struct keep_ask *keep_ask_answered(struct task *done)
{
	struct keep_ask *ask = container_of(done, struct keep_ask, query.base.done);

	ask->intake->asks--;
	return ask;
}

void keep_ask_free(struct keep_ask *ask)
{
	arena_done(&ask->arena);
	free(ask);
}

/* --- places --- */

struct place *place_new(struct intake *intake, struct id order_key)
{
	struct place *place = mem_zalloc(sizeof(*place));

	delivery_init(&place->dlv, intake, NULL);
	place->dlv.is_place = true;
	place->order_key = order_key;
	map_put(&intake->places, id_str(&place->order_key), place);
	intake->has_kept = true;
	return place;
}

static void place_rows(struct place *place, uint64_t rows)
{
	stat_add(place->dlv.intake->stats.kept, rows - place->rows);
	place->rows = rows;
}

void place_unload(struct place *place)
{
	struct lane_request *request = &place->dlv.request;

	message_free(&place->dlv.message);
	request->message = NULL;
	request->decoded = NULL;
	request->is_resolved = false;
	request->interest_count = request->looked_for_count = 0;
	request->event_id = STR_NONE;
	request->replay_of = ID_NONE;
	request->aim = (struct envelope_note){0};
	request->joined_count = request->fanned_count = 0;
	/* There may be very many places, so not even an empty arena's chunk is left to them. */
	arena_done(&request->resolved);
	arena_init(&request->resolved);
}

/* Out of its chain and gone; returns the next of the chain. */
static struct delivery *place_free(struct place *place)
{
	struct intake *intake = place->dlv.intake;
	struct delivery *next;

	place_unload(place);
	place_early_end(place);
	place_rows(place, 0);
	map_remove(&intake->places, id_str(&place->order_key));
	next = chain_leave(&place->dlv);
	arena_done(&place->dlv.request.resolved);
	free(place->dlv.interests);
	free(place);
	return next;
}

/* Nothing is left of its rows. What waited for them elsewhere goes on: it asked for their order key. */
static void place_end(struct place *place)
{
	struct intake *intake = place->dlv.intake;
	struct id order_key = place->order_key;

	place_rows(place, 0);
	if (place->coming) {
		place->dlv.state = DELIVERY_CHAINED;
		return;
	}
	delivery_next(place_free(place));
	wake_fire(intake->wake, order_key);
	intake_check_stopped(intake);
}

void place_hold(struct place *place, enum lane_answer answer, enum code code, const char *text)
{
	place->dlv.request.answer = answer;
	place->dlv.request.interest_count = 0;
	error_set(&place->dlv.request.error, RESULT_AGAIN, code, "%s", text);
	keep_hold(&place->dlv);
}

void place_add(struct place *place, uint64_t rows)
{
	bool was_empty = place->rows == 0, was_new = place->is_new;

	place_rows(place, place->rows + rows);
	place->has_come = true;
	place->is_new = false;
	if (keep_is_asleep(&place->dlv)) {
		/* What it sleeps over may have been taken over meanwhile, and these stand first. */
		hold_end(&place->dlv);
		keep_load(&place->dlv);
		return;
	}
	if (!was_empty || place->dlv.state != DELIVERY_CHAINED || !chain_is_head(&place->dlv) || place->dlv.revoked)
		return;
	if (was_new && place->early)
		place_sleep(place);
	else if (was_new)
		place_hold(place, ANSWER_REFUSED, CODE_RUNTIME_CLAIM_HELD, "it was held until it was kept");
	else
		delivery_next(&place->dlv);
}

void keep_drop(struct delivery *dlv)
{
	struct intake *intake = dlv->intake;

	if (dlv->state == DELIVERY_HELD)
		hold_end(dlv);
	dlv->state = DELIVERY_CHAINED;
	if (place_of(dlv)->coming)
		return; /* their answer comes back to this */
	place_free(place_of(dlv));
	intake_check_stopped(intake);
}

/* A commit that was to add to it is answered. */
static void place_came(struct place *place, uint64_t rows)
{
	place->coming--;
	if (place->dlv.revoked && place->dlv.state == DELIVERY_CHAINED)
		keep_drop(&place->dlv);
	else if (rows)
		place_add(place, rows);
	else if (!place->rows && place->dlv.state == DELIVERY_CHAINED)
		place_end(place);
}

/* --- running a kept message --- */

/* While nobody came for the one before it, nobody came for this one either, from the time that it was there. */
static void place_fill_behind(struct place *place, int64_t created_us)
{
	struct delivery *dlv = &place->dlv;
	int64_t now_us = loop_now_us(dlv->intake->loop);
	int64_t since_us = now_us - (loop_wall_us(dlv->intake->loop) - created_us);

	if (since_us < place->unmatched_us)
		since_us = place->unmatched_us;
	dlv->unmatched_since_us = since_us < now_us ? since_us : now_us;
	dlv->request.unmatched_is_final =
		now_us - dlv->unmatched_since_us >= dlv->intake->settings.unmatched_hold_ms * US_PER_MS;
}

static enum result place_fill(struct place *place, const struct field *row, struct error *err)
{
	struct delivery *dlv = &place->dlv;
	int64_t now_us = loop_now_us(dlv->intake->loop);
	struct envelope_note note;
	int64_t unmatched_us;
	enum result result =
		envelope_unpack(row[5].str, row[6].is_null ? STR_NONE : row[6].str, &dlv->message, &note, err);

	if (result != RESULT_OK)
		return result;
	dlv->request.message = dlv->message;
	dlv->request.kept_row = row[1].id;
	dlv->request.kept_seq = row[2].i;
	dlv->request.kept_key = place->order_key;
	dlv->request.event_id = note.event_id;
	dlv->request.replay_of = note.dead_letter;
	dlv->request.aim = note;
	if (!row[4].is_null && !place->is_dated) {
		unmatched_us = loop_wall_us(dlv->intake->loop) - row[4].i;
		dlv->unmatched_since_us = unmatched_us > 0 ? now_us - unmatched_us : now_us;
		dlv->request.unmatched_is_final =
			unmatched_us >= dlv->intake->settings.unmatched_hold_ms * US_PER_MS;
	}
	else if (row[4].is_null && place->unmatched_us)
		place_fill_behind(place, row[3].i);
	place->is_dated = true;
	return RESULT_OK;
}

static void place_take(struct place *place, const struct rows *rows)
{
	const struct field *row = rows_at(rows, 0, 0);
	struct error err = ERROR_INIT;

	if (row[7].b) {
		place_hold(place, ANSWER_REFUSED, CODE_RUNTIME_KEPT_AHEAD, "another replica keeps messages that come before");
		return;
	}
	if (place_fill(place, row, &err) != RESULT_OK) {
		struct log_about about = {.stage = "keep", .tenant = place->dlv.request.tenant,
					  .channel = place->dlv.request.channel, .code = err.code};

		log_error(&about, "a kept message cannot be read: %s", err.text);
		place_hold(place, ANSWER_UNAVAILABLE, err.code, err.text);
		return;
	}
	delivery_dispatch(&place->dlv);
}

static void place_loaded(struct task *done)
{
	struct keep_ask *ask = keep_ask_answered(done);
	struct place *place = ask->place;

	if (place->dlv.revoked)
		keep_drop(&place->dlv);
	else if (ask->query.base.outcome != STORE_OK)
		place_hold(place, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, ask->query.base.error.text);
	else if (ask->call.rows.row_count)
		place_take(place, &ask->call.rows);
	else if (place->has_come)
		keep_load(&place->dlv); /* they were not there yet when it looked */
	else
		place_end(place);
	keep_ask_free(ask);
}

void keep_load(struct delivery *dlv)
{
	struct place *place = place_of(dlv);
	struct keep_ask *ask = keep_ask_new(dlv->intake, STATEMENT_KEPT_LOAD, place_loaded);

	dlv->state = DELIVERY_LOADING;
	place->has_come = false;
	ask->place = place;
	ask->params[0] = (struct column){.type = COLUMN_TEXT, .count = 1, .strs = &dlv->request.tenant};
	ask->params[1] = (struct column){.type = COLUMN_ID, .count = 1, .ids = &place->order_key};
	ask->params[2] = column_scalar_text(&ask->arena, str_of(dlv->intake->settings.keeper));
	keep_ask_send(ask, false);
}

void keep_hold(struct delivery *dlv)
{
	struct place *place = place_of(dlv);

	/* What the row says of its unmatched hold is of before the database, or the engine, was away: it begins anew. */
	if (dlv->request.answer == ANSWER_UNAVAILABLE)
		place->is_dated = true;
	if (dlv->request.answer == ANSWER_UNMATCHED && !place_is_early(place)) {
		place_mark(place);
		return;
	}
	if (dlv->request.answer == ANSWER_UNMATCHED)
		place->early->view = dlv->request.view_number;
	if (dlv->request.answer == ANSWER_UNMATCHED && place->has_hit) {
		place->has_hit = false;
		delivery_dispatch(dlv);
		return;
	}
	hold_begin(dlv);
	place_unload(place);
}

/* The next message is another one: nothing of the last may be left. */
static void place_fresh(struct place *place)
{
	struct delivery *dlv = &place->dlv;

	place_unload(place);
	place_early_end(place);
	place->has_hit = false;
	place->is_dated = false;
	dlv->attempts = 0;
	dlv->request.failures = 0;
	dlv->held_since_us = 0;
	dlv->unmatched_since_us = 0;
	dlv->request.unmatched_is_final = false;
}

/* Whether nobody came for it, to the end of its hold. */
static bool is_given_up(const struct delivery *dlv)
{
	const struct lane_request *request = &dlv->request;

	return request->unmatched_is_final &&
	       (request->answer == ANSWER_DROPPED || (request->answer == ANSWER_REJECTED &&
						      request->error.code == CODE_RUNTIME_CORRELATION_NOT_FOUND));
}

void keep_advance(struct delivery *dlv)
{
	struct place *place = place_of(dlv);

	place->unmatched_us = is_given_up(dlv) ? dlv->unmatched_since_us : 0;
	place_fresh(place);
	place_rows(place, place->rows ? place->rows - 1 : 0);
	if (dlv->revoked)
		keep_drop(dlv);
	else if (place->rows || place->is_uncertain)
		keep_load(dlv);
	else
		place_end(place);
}

void keep_lost(struct delivery *dlv)
{
	struct log_about about = {.stage = "keep", .tenant = dlv->request.tenant, .channel = dlv->request.channel,
				  .delivery = dlv->message->source, .code = CODE_RUNTIME_KEPT_LOST};

	log_info(&about, "%s", dlv->request.error.text);
	place_fresh(place_of(dlv));
	keep_load(dlv);
}

/* --- keeping --- */

struct keep {
	struct store_commit commit;
	struct arena arena;
	struct intake *intake;
	struct place *into;
	struct delivery **deliveries;
	uint32_t count;
	struct kept_early early; /* the first of them, if nobody waits for it yet */
	struct place_early *place_early;
};

/* Whether the head of a chain may be kept: it was refused, or nobody waits for it yet, which a database that is away is not. */
static bool head_may_be_kept(const struct delivery *dlv)
{
	enum lane_answer answer = dlv->request.answer;

	return dlv->state == DELIVERY_HELD &&
	       (answer == ANSWER_REFUSED || answer == ANSWER_UNMATCHED || answer == ANSWER_AGAIN);
}

static bool may_be_kept(const struct delivery *dlv)
{
	return dlv->is_live && !dlv->revoked && (dlv->state == DELIVERY_HELD || dlv->state == DELIVERY_CHAINED);
}

struct delivery *keep_first(const struct chain *chain)
{
	list_for_each(&chain->deliveries, pos, tmp) {
		struct delivery *dlv = list_entry(pos, struct delivery, chain_link);

		if (dlv->is_place)
			continue;
		if (!may_be_kept(dlv) || (chain_is_head(dlv) && !head_may_be_kept(dlv)))
			return NULL;
		return dlv;
	}
	return NULL;
}

/*
 * The place whose rows the delivery's row will be behind; it stands before the delivery from now on. A new one has no rows
 * until the commit: it is there already so that rows of the key that come from elsewhere meanwhile find it.
 */
static struct place *keep_into(struct delivery *dlv)
{
	struct id order_key = dlv->request.kept_key;
	struct place *place;

	if (!chain_is_head(dlv))
		return place_of(list_entry(dlv->chain_link.prev, struct delivery, chain_link));
	if (id_is_none(order_key))
		order_key = id_new(dlv->intake->loop);
	place = map_get(&dlv->intake->places, id_str(&order_key));
	if (place) { /* of rows that were taken over from another replica */
		chain_put_behind(&place->dlv, dlv);
		return place;
	}
	place = place_new(dlv->intake, order_key);
	place->is_new = true;
	chain_put_before(dlv, &place->dlv);
	return place;
}

static void keep_collect(struct keep *keep, struct delivery *first)
{
	struct chain *chain = first->chain;
	uint64_t bytes = 0;

	keep->deliveries = arena_alloc(&keep->arena, KEEP_COUNT_MAX * sizeof(struct delivery *));
	for (struct list *pos = &first->chain_link; pos != &chain->deliveries; pos = pos->next) {
		struct delivery *dlv = list_entry(pos, struct delivery, chain_link);

		if (dlv->is_place || !may_be_kept(dlv) || keep->count == KEEP_COUNT_MAX ||
		    (keep->count && bytes + dlv->message->bytes > KEEP_BYTES_MAX))
			break;
		bytes += dlv->message->bytes;
		keep->deliveries[keep->count++] = dlv;
	}
}

/* The first message of a new place that nobody waits for is early from the start. */
static void keep_build_early(struct keep *keep, struct kept_row *row)
{
	const struct delivery *first = keep->deliveries[0];

	if (!keep->into->is_new || first->request.answer != ANSWER_UNMATCHED || !first->request.interest_count)
		return;
	row->kind = KEPT_EARLY;
	keep->place_early = place_early_new(&first->request);
	keep->early = (struct kept_early){
		.message = row->id, .keys = keep->place_early->keys, .key_count = keep->place_early->key_count};
	keep->commit.early = &keep->early;
	keep->commit.early_count = 1;
}

/* Its row is the first, unless others of the key were taken over meanwhile. */
static void keep_give_early(struct keep *keep)
{
	const struct delivery *first = keep->deliveries[0];
	struct place *place = keep->into;

	if (!keep->place_early || !place->is_new)
		return;
	place->early = keep->place_early;
	keep->place_early = NULL;
	place->is_dated = true;
	place->dlv.unmatched_since_us = first->unmatched_since_us;
	place->dlv.held_since_us = first->held_since_us;
}

static void keep_build(struct keep *keep)
{
	struct intake *intake = keep->intake;
	struct kept_row *rows = arena_zalloc(&keep->arena, keep->count * sizeof(*rows));
	int64_t now_us = loop_now_us(intake->loop), wall_us = loop_wall_us(intake->loop);

	for (uint32_t i = 0; i < keep->count; i++) {
		struct delivery *dlv = keep->deliveries[i];

		rows[i] = (struct kept_row){
			.id = id_new(intake->loop),
			.order_key = keep->into->order_key,
			.channel = dlv->request.channel,
			.source = dlv->message->source,
			.envelope = envelope_pack(&keep->arena, dlv->message, NULL),
			.body = dlv->message->body,
			.unmatched_us = dlv->unmatched_since_us ? wall_us - (now_us - dlv->unmatched_since_us) : 0,
		};
	}
	keep->commit.commit = COMMIT_NO_INSTANCE;
	keep->commit.tenant = str_of(intake->settings.tenant);
	keep->commit.keeper = str_of(intake->settings.keeper);
	keep->commit.kept_added = rows;
	keep->commit.kept_added_count = keep->count;
	keep_build_early(keep, &rows[0]);
}

static void keep_log(const struct keep *keep, const struct delivery *first)
{
	const struct intake *intake = keep->intake;
	struct log_about about = {.stage = "keep", .delivery = first->message->source,
				  .tenant = str_of(intake->settings.tenant), .channel = str_of(intake->settings.channel),
				  .code = first->request.error.code};

	if (keep->early.key_count)
		log_debug(&about, "the database keeps %u deliveries that have come early: %s", keep->count,
			  first->request.error.text);
	else
		log_info(&about, "the database keeps %u deliveries that were held too long: %s", keep->count,
			 first->request.error.text);
}

/* The rows are committed: only now is the broker told (G1). */
static void keep_committed(struct keep *keep)
{
	keep_log(keep, keep->deliveries[0]);
	stat_add(keep->intake->stats.persisted, keep->count);
	stat_add(keep->intake->stats.early, keep->early.key_count > 0);
	keep_give_early(keep);
	place_came(keep->into, keep->count);
	for (uint32_t i = 0; i < keep->count; i++)
		delivery_settle(keep->deliveries[i], SETTLE_DONE);
}

static void keep_failed(struct keep *keep)
{
	struct intake *intake = keep->intake;
	struct log_about about = {.stage = "keep", .tenant = str_of(intake->settings.tenant),
				  .channel = str_of(intake->settings.channel), .code = keep->commit.base.error.code};

	log_warning(&about, "%u held deliveries could not be kept and stay held: %s", keep->count,
		    keep->commit.base.error.text);
	intake->keep_again_us = loop_now_us(intake->loop) + KEEP_PAUSE_US;
	for (uint32_t i = 0; i < keep->count; i++)
		chain_live(keep->deliveries[i], true);
	/* Back to the broker last first, as in a revoke. */
	for (uint32_t i = keep->count; i > 0; i--)
		if (keep->deliveries[i - 1]->revoked) {
			delivery_settle(keep->deliveries[i - 1], SETTLE_BACK);
			keep->deliveries[i - 1] = NULL;
		}
	place_came(keep->into, 0);
	for (uint32_t i = 0; i < keep->count; i++) {
		struct delivery *dlv = keep->deliveries[i];

		if (!dlv)
			continue;
		dlv->state = DELIVERY_CHAINED;
		if (chain_is_head(dlv))
			hold_begin(dlv);
	}
}

static void keep_done(struct task *done)
{
	struct keep *keep = container_of(done, struct keep, commit.base.done);
	struct intake *intake = keep->intake;

	intake->asks--;
	if (keep->commit.base.outcome == STORE_OK)
		keep_committed(keep);
	else
		keep_failed(keep);
	free(keep->place_early);
	arena_done(&keep->arena);
	free(keep);
	intake_check_stopped(intake);
}

bool keep_begin(struct intake *intake, struct chain *chain)
{
	struct delivery *first = keep_first(chain);
	struct keep *keep;

	if (!first || !intake->settings.keeper || intake->stopping ||
	    intake->stats.kept >= intake->settings.max_kept || loop_now_us(intake->loop) < intake->keep_again_us)
		return false;
	keep = mem_zalloc(sizeof(*keep));
	arena_init(&keep->arena);
	keep->intake = intake;
	keep->into = keep_into(first);
	keep->into->coming++;
	keep_collect(keep, first);
	keep_build(keep);
	for (uint32_t i = 0; i < keep->count; i++) {
		if (keep->deliveries[i]->state == DELIVERY_HELD)
			hold_end(keep->deliveries[i]);
		keep->deliveries[i]->state = DELIVERY_KEEPING;
		chain_live(keep->deliveries[i], false);
	}
	keep->commit.base = (struct store_request){
		.reply_to = intake->loop, .done.run = keep_done, .arena = &keep->arena};
	intake->has_kept = true;
	intake->asks++;
	store_commit(intake->lanes->store, &keep->commit);
	return true;
}
