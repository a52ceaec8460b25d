/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping messages in the database, and running them from there. */
#include "flow/keep.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "flow/envelope.h"
#include "flow/hold.h"

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)

/* What one commit takes of a chain. */
#define KEEP_BYTES_MAX (UINT64_C(4) << 20)
#define KEEP_COUNT_MAX 256
/* After a failure, and between two looks for the rows of others; the first look comes sooner. */
#define KEEP_PAUSE_US	 US_PER_S
#define RECOVER_US	 (5 * US_PER_S)
#define RECOVER_FIRST_US US_PER_S
#define RECOVER_LIMIT	 1000

/* Stands in a chain for the rows of one order key. */
struct place {
	struct delivery dlv;
	struct id order_key;
	uint64_t rows;
	uint32_t coming; /* commits that add to them are under way */
};

static struct place *place_of(struct delivery *dlv)
{
	assert(dlv->is_place);
	return container_of(dlv, struct place, dlv);
}

/* A question to the store, with its memory. */
struct keep_ask {
	struct store_query query;
	struct arena arena;
	struct segment_call call;
	struct column params[4];
	struct intake *intake;
	struct place *place;
};

static struct keep_ask *ask_new(struct intake *intake, enum statement_id statement, void (*done)(struct task *))
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

static void ask_send(struct keep_ask *ask, bool writes)
{
	struct str tenant = str_of(ask->intake->settings.tenant);

	ask->query.segment.tenants = store_tenants(&ask->arena, &tenant, 1);
	ask->query.segment.writes = writes;
	ask->query.segment.durable = writes;
	ask->intake->asks++;
	store_query(ask->intake->lanes->store, &ask->query);
}

static struct keep_ask *ask_answered(struct task *done)
{
	struct keep_ask *ask = container_of(done, struct keep_ask, query.base.done);

	ask->intake->asks--;
	return ask;
}

static void ask_free(struct keep_ask *ask)
{
	arena_done(&ask->arena);
	free(ask);
}

/* --- places --- */

static struct place *place_new(struct intake *intake, struct id order_key)
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

/* Its message goes; the row stays where it is. */
static void place_unload(struct place *place)
{
	message_free(&place->dlv.message);
	place->dlv.request.message = NULL;
	place->dlv.request.decoded = NULL;
	place->dlv.request.is_resolved = false;
}

/* Out of its chain and gone; returns the next of the chain. */
static struct delivery *place_free(struct place *place)
{
	struct intake *intake = place->dlv.intake;
	struct delivery *next;

	place_unload(place);
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

/* Rows have been added. It goes on if it had come to its end. */
static void place_add(struct place *place, uint64_t rows)
{
	bool was_empty = place->rows == 0;

	place_rows(place, place->rows + rows);
	if (was_empty && place->dlv.state == DELIVERY_CHAINED && chain_is_head(&place->dlv))
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

static enum result place_fill(struct place *place, const struct field *row, struct error *err)
{
	struct delivery *dlv = &place->dlv;
	int64_t now_us = loop_now_us(dlv->intake->loop);
	int64_t unmatched_us;
	enum result result = envelope_unpack(row[5].str, row[6].is_null ? STR_NONE : row[6].str, &dlv->message, err);

	if (result != RESULT_OK)
		return result;
	dlv->request.message = dlv->message;
	dlv->request.kept_row = row[1].id;
	dlv->request.kept_seq = row[2].i;
	dlv->request.kept_key = place->order_key;
	if (!row[4].is_null && !dlv->unmatched_since_us) {
		unmatched_us = loop_wall_us(dlv->intake->loop) - row[4].i;
		dlv->unmatched_since_us = unmatched_us > 0 ? now_us - unmatched_us : now_us;
		dlv->request.unmatched_is_final =
			unmatched_us >= dlv->intake->settings.unmatched_hold_ms * US_PER_MS;
	}
	return RESULT_OK;
}

static void place_hold(struct place *place, enum lane_answer answer, enum code code, const char *text)
{
	place->dlv.request.answer = answer;
	place->dlv.request.interest_count = 0;
	error_set(&place->dlv.request.error, RESULT_AGAIN, code, "%s", text);
	keep_hold(&place->dlv);
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
	struct keep_ask *ask = ask_answered(done);
	struct place *place = ask->place;

	if (place->dlv.revoked)
		keep_drop(&place->dlv);
	else if (ask->query.base.outcome != STORE_OK)
		place_hold(place, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, ask->query.base.error.text);
	else if (!ask->call.rows.row_count)
		place_end(place);
	else
		place_take(place, &ask->call.rows);
	ask_free(ask);
}

void keep_load(struct delivery *dlv)
{
	struct place *place = place_of(dlv);
	struct keep_ask *ask = ask_new(dlv->intake, STATEMENT_KEPT_LOAD, place_loaded);

	dlv->state = DELIVERY_LOADING;
	ask->place = place;
	ask->params[0] = (struct column){.type = COLUMN_TEXT, .count = 1, .strs = &dlv->request.tenant};
	ask->params[1] = (struct column){.type = COLUMN_ID, .count = 1, .ids = &place->order_key};
	ask->params[2] = column_scalar_text(&ask->arena, str_of(dlv->intake->settings.keeper));
	ask_send(ask, false);
}

void keep_hold(struct delivery *dlv)
{
	place_unload(place_of(dlv));
	hold_begin(dlv);
}

/* The next message is another one: nothing of the last may be left. */
static void place_fresh(struct place *place)
{
	struct delivery *dlv = &place->dlv;

	place_unload(place);
	dlv->attempts = 0;
	dlv->held_since_us = 0;
	dlv->unmatched_since_us = 0;
	dlv->request.unmatched_is_final = false;
}

void keep_advance(struct delivery *dlv)
{
	struct place *place = place_of(dlv);

	place_fresh(place);
	place_rows(place, place->rows ? place->rows - 1 : 0);
	if (dlv->revoked)
		keep_drop(dlv);
	else if (place->rows)
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
	struct place *into; /* NULL: a new one, before the first */
	struct id order_key;
	struct delivery **deliveries;
	uint32_t count;
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

/* The place that the delivery's row goes behind; NULL: none yet. */
static struct place *keep_place_before(struct delivery *dlv)
{
	struct list *pos = dlv->chain_link.prev;

	if (chain_is_head(dlv))
		return NULL;
	return place_of(list_entry(pos, struct delivery, chain_link));
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

static void keep_build(struct keep *keep)
{
	struct intake *intake = keep->intake;
	struct kept_row *rows = arena_zalloc(&keep->arena, keep->count * sizeof(*rows));
	int64_t now_us = loop_now_us(intake->loop), wall_us = loop_wall_us(intake->loop);

	for (uint32_t i = 0; i < keep->count; i++) {
		struct delivery *dlv = keep->deliveries[i];

		rows[i] = (struct kept_row){
			.id = id_new(intake->loop),
			.order_key = keep->order_key,
			.channel = dlv->request.channel,
			.source = dlv->message->source,
			.envelope = envelope_pack(&keep->arena, dlv->message),
			.body = dlv->message->body,
			.unmatched_us = dlv->unmatched_since_us ? wall_us - (now_us - dlv->unmatched_since_us) : 0,
		};
	}
	keep->commit.commit = COMMIT_NO_INSTANCE;
	keep->commit.tenant = str_of(intake->settings.tenant);
	keep->commit.keeper = str_of(intake->settings.keeper);
	keep->commit.kept_added = rows;
	keep->commit.kept_added_count = keep->count;
}

static void keep_log(const struct keep *keep, const struct delivery *first)
{
	const struct intake *intake = keep->intake;
	struct log_about about = {.stage = "keep", .delivery = first->message->source,
				  .tenant = str_of(intake->settings.tenant), .channel = str_of(intake->settings.channel),
				  .code = first->request.error.code};

	log_info(&about, "the database keeps %u deliveries that were held too long: %s", keep->count,
		 first->request.error.text);
}

/* The rows are committed: only now is the broker told (G1). */
static void keep_committed(struct keep *keep)
{
	struct intake *intake = keep->intake;
	struct delivery *first = keep->deliveries[0];
	struct place *fresh = NULL;

	keep_log(keep, first);
	stat_add(intake->stats.persisted, keep->count);
	if (keep->into) {
		place_came(keep->into, keep->count);
	} else if (!intake->stopping) {
		fresh = place_new(intake, keep->order_key);
		fresh->dlv.unmatched_since_us = first->unmatched_since_us;
		chain_put_before(first, &fresh->dlv);
		place_rows(fresh, keep->count);
	}
	for (uint32_t i = 0; i < keep->count; i++)
		delivery_settle(keep->deliveries[i], SETTLE_DONE);
	if (fresh && chain_is_head(&fresh->dlv))
		place_hold(fresh, ANSWER_REFUSED, CODE_RUNTIME_CLAIM_HELD, "it was held until it was kept");
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
	if (keep->into)
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
	keep->into = keep_place_before(first);
	if (keep->into)
		keep->order_key = keep->into->order_key;
	else if (id_is_none(first->request.kept_key))
		keep->order_key = id_new(intake->loop);
	else
		keep->order_key = first->request.kept_key;
	/* Rows of the key may be here already, taken over from another replica. */
	if (!keep->into)
		keep->into = map_get(&intake->places, id_str(&keep->order_key));
	if (keep->into)
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

/* --- rows of replicas that are gone --- */

static void recover_row(struct intake *intake, const struct field *row)
{
	struct place *place = map_get(&intake->places, id_str(&row[0].id));
	struct str name;

	if (place) {
		place_add(place, (uint64_t)row[1].i);
		return;
	}
	place = place_new(intake, row[0].id);
	name = id_str(&place->order_key);
	place_rows(place, (uint64_t)row[1].i);
	chain_join(&place->dlv, &name, 1);
	if (chain_is_head(&place->dlv))
		delivery_next(&place->dlv);
}

static void recovered(struct task *done)
{
	struct keep_ask *ask = ask_answered(done);
	struct intake *intake = ask->intake;
	const struct rows *rows = &ask->call.rows;
	struct log_about about = {.stage = "keep", .tenant = str_of(intake->settings.tenant),
				  .channel = str_of(intake->settings.channel)};
	bool ok = ask->query.base.outcome == STORE_OK;
	uint64_t taken = 0;

	for (uint32_t i = 0; ok && !intake->stopping && i < rows->row_count; i++) {
		taken += (uint64_t)rows_at(rows, i, 1)->i;
		recover_row(intake, rows_at(rows, i, 0));
	}
	if (ok && rows->row_count)
		intake->has_kept = true;
	if (taken)
		log_info(&about, "took over %llu kept messages that no live replica had", (unsigned long long)taken);
	ask_free(ask);
	if (intake->stopping)
		intake_check_stopped(intake);
	else
		loop_timer_start(&intake->recover, taken >= RECOVER_LIMIT ? 0 : RECOVER_US);
}

static void ask_set_channel(struct keep_ask *ask)
{
	const struct intake_settings *settings = &ask->intake->settings;

	ask->params[0] = column_scalar_text(&ask->arena, str_of(settings->tenant));
	ask->params[1] = column_scalar_text(&ask->arena, str_of(settings->channel));
	ask->params[2] = column_scalar_text(&ask->arena, str_of(settings->keeper));
}

static void recover(struct loop_timer *timer)
{
	struct intake *intake = container_of(timer, struct intake, recover);
	struct keep_ask *ask;

	if (intake->stats.kept >= intake->settings.max_kept) {
		loop_timer_start(&intake->recover, RECOVER_US);
		return;
	}
	ask = ask_new(intake, STATEMENT_KEPT_RECOVER, recovered);
	ask_set_channel(ask);
	ask->params[3] = column_scalar_int(&ask->arena, RECOVER_LIMIT);
	ask_send(ask, true);
}

void keep_start(struct intake *intake)
{
	if (!intake->settings.keeper)
		return;
	loop_timer_init(&intake->recover, intake->loop, recover);
	loop_timer_start(&intake->recover,
			 RECOVER_FIRST_US + (int64_t)loop_random_below(intake->loop, RECOVER_FIRST_US));
}

/* --- stop --- */

void keep_stop(struct intake *intake)
{
	if (intake->settings.keeper)
		loop_timer_stop(&intake->recover);
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
	struct keep_ask *ask = ask_answered(done);
	struct intake *intake = ask->intake;

	ask_free(ask);
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
	ask = ask_new(intake, STATEMENT_KEPT_RELEASE, released);
	ask_set_channel(ask);
	ask_send(ask, true);
	return false;
}
