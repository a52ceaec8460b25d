/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of early messages. The first row of such a place stands in the database under the keys of the waits that it looks for. It is
 * not tried again and again: it sleeps until a step on any replica says that it parks on one of them (early.h), until one of our
 * own does (wake.h), or until its hold ends. Then it goes through a lane like any other, which has the last word.
 *
 *	         mark, or keep as early                  nobody there
 *	UNMATCHED ────────────────────► committed ─► look ───────────► ASLEEP ──► hit, woken, hold over ──► LOADING
 *
 * The look after the commit is one statement for all that were committed meanwhile. Every few seconds it is repeated for some of
 * those that sleep, the longest not looked at first: a replica may have died between its commit and its look, or a look failed. So
 * a hundred thousand of them cost one read of some thousand keys every few seconds, and nothing else.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "flow/hold.h"
#include "flow/keep_internal.h"

/* Between two rounds of looking, and how many places each takes. */
#define LOOK_US	 (5 * US_PER_S)
#define LOOK_MAX 2000
/* Keys in one statement. */
#define LOOK_KEYS_MAX 1000

/* --- what it looks for --- */

static size_t looked_for_bytes(const struct lane_request *request)
{
	size_t bytes = request->looked_for_count * sizeof(struct looked_for) + request->message->source.len;

	for (uint32_t i = 0; i < request->looked_for_count; i++)
		bytes += request->looked_for[i].name.len + request->looked_for[i].value.len;
	return bytes;
}

static struct str text_put(char **at, struct str text)
{
	char *to = *at;

	if (text.len)
		memcpy(to, text.ptr, text.len);
	*at += text.len;
	return str_make(to, text.len);
}

struct place_early *place_early_new(const struct lane_request *request)
{
	size_t keys = request->interest_count * sizeof(struct id), ids = request->inbox_key_count * sizeof(struct id);
	struct place_early *early = mem_alloc(sizeof(*early) + keys + ids + looked_for_bytes(request));
	char *at;

	*early = (struct place_early){.key_count = request->interest_count,
				      .looked_for_count = request->looked_for_count,
				      .inbox_key_count = request->inbox_key_count,
				      .view = request->view_number,
				      .polls = request->error.code != CODE_RUNTIME_CORRELATION_NOT_FOUND};
	memcpy(early->keys, request->interest, keys);
	early->inbox_keys = early->keys + early->key_count;
	if (ids)
		memcpy(early->inbox_keys, request->inbox_keys, ids);
	early->looked_for = (struct looked_for *)(early->inbox_keys + early->inbox_key_count);
	at = (char *)(early->looked_for + early->looked_for_count);
	for (uint32_t i = 0; i < early->looked_for_count; i++)
		early->looked_for[i] = (struct looked_for){text_put(&at, request->looked_for[i].name),
							   text_put(&at, request->looked_for[i].value)};
	early->source = text_put(&at, request->message->source);
	return early;
}

void place_early_end(struct place *place)
{
	free(place->early);
	place->early = NULL;
}

/* The keys come in the order of the model, so equal ones are equal throughout; after a new deployment there may be others. */
bool place_is_early(const struct place *place)
{
	const struct lane_request *request = &place->dlv.request;
	const struct place_early *early = place->early;

	return early && early->key_count == request->interest_count &&
	       memcmp(early->keys, request->interest, early->key_count * sizeof(struct id)) == 0 &&
	       early->polls == (request->error.code != CODE_RUNTIME_CORRELATION_NOT_FOUND);
}

/* --- asleep --- */

bool keep_is_asleep(const struct delivery *dlv)
{
	return dlv->is_place && list_is_linked(&container_of(dlv, const struct place, dlv)->early_link);
}

bool keep_falls_asleep(struct delivery *dlv)
{
	struct place *place = place_of(dlv);

	if (dlv->request.answer != ANSWER_UNMATCHED || !place->early)
		return false;
	list_push(&dlv->intake->asleep, &place->early_link);
	dlv->intake->asleep_count++;
	return !place->early->polls && !dlv->chain->live;
}

void keep_awake(struct delivery *dlv)
{
	struct place *place = place_of(dlv);

	if (!list_is_linked(&place->early_link))
		return;
	list_remove(&place->early_link);
	dlv->intake->asleep_count--;
}

size_t keep_places_awake(const struct intake *intake)
{
	return intake->places.count - intake->asleep_count;
}

void place_hit(struct place *place)
{
	struct delivery *dlv = &place->dlv;

	if (!keep_is_asleep(dlv)) {
		place->has_hit = true;
		return;
	}
	hold_end(dlv);
	dlv->attempts = 0;
	delivery_dispatch(dlv);
}

void keep_early_wanted(struct intake *intake, struct id order_key, struct str keeper)
{
	struct place *place = map_get(&intake->places, id_str(&order_key));

	if (intake->stopping || !intake->settings.keeper)
		return;
	if (!str_equal(keeper, str_of(intake->settings.keeper)))
		recover_take(intake, order_key);
	else if (place)
		place_hit(place);
}

/* --- looking --- */

static void look(struct intake *intake);

static void look_later(struct intake *intake)
{
	if (!intake->stopping)
		loop_timer_start(&intake->look, LOOK_US);
}

/* Nobody knows who waits for these: they are looked for again. */
static void look_failed(const struct keep_ask *ask)
{
	const struct column *keys = &ask->params[2];

	for (uint32_t i = 0; i < keys->count; i++) {
		struct place *place = map_get(&ask->intake->places, id_str(&ask->order_keys[i]));

		if (!place || !keep_is_asleep(&place->dlv))
			continue;
		list_remove(&place->early_link);
		list_push(&ask->intake->unlooked, &place->early_link);
	}
}

static void looked(struct task *done)
{
	struct keep_ask *ask = keep_ask_answered(done);
	struct intake *intake = ask->intake;
	const struct rows *rows = &ask->call.rows;
	bool ok = ask->query.base.outcome == STORE_OK;

	intake->is_looking = false;
	if (!ok)
		look_failed(ask);
	for (uint32_t i = 0; ok && !intake->stopping && i < rows->row_count; i++) {
		struct place *place = map_get(&intake->places, id_str(&ask->order_keys[rows_at(rows, i, 0)->i]));

		if (place)
			place_hit(place);
	}
	keep_ask_free(ask);
	if (ok)
		look(intake);
	intake_check_stopped(intake);
}

/* The keys of one statement, of the places first in the list of those not looked for yet. */
static void look_collect(struct keep_ask *ask, struct column *tenants, struct column *ords, struct column *keys)
{
	struct intake *intake = ask->intake;
	uint32_t most = LOOK_KEYS_MAX, count = 0;
	struct place *place = list_first(&intake->unlooked, struct place, early_link);
	struct str *tenant;
	struct id *key;
	int64_t *ord;

	if (place->early->key_count > most)
		most = place->early->key_count;
	ord = arena_alloc(&ask->arena, most * sizeof(*ord));
	tenant = arena_alloc(&ask->arena, most * sizeof(*tenant));
	key = arena_alloc(&ask->arena, most * sizeof(*key));
	ask->order_keys = arena_alloc(&ask->arena, most * sizeof(*ask->order_keys));
	while ((place = list_first(&intake->unlooked, struct place, early_link)) &&
	       count + place->early->key_count <= most) {
		for (uint32_t i = 0; i < place->early->key_count; i++, count++) {
			ord[count] = count;
			tenant[count] = str_of(intake->settings.tenant);
			key[count] = place->early->keys[i];
			ask->order_keys[count] = place->order_key;
		}
		list_remove(&place->early_link);
		list_push(&intake->asleep, &place->early_link);
	}
	*ords = (struct column){.type = COLUMN_INT, .count = count, .ints = ord};
	*tenants = (struct column){.type = COLUMN_TEXT, .count = count, .strs = tenant};
	*keys = (struct column){.type = COLUMN_ID, .count = count, .ids = key};
}

/* Looks for the waits of those that are to be looked for, if no look is out. */
static void look(struct intake *intake)
{
	struct keep_ask *ask;

	if (intake->is_looking || intake->stopping || list_is_empty(&intake->unlooked))
		return;
	ask = keep_ask_new(intake, STATEMENT_WAIT_PROBE, looked);
	look_collect(ask, &ask->params[1], &ask->params[0], &ask->params[2]);
	intake->is_looking = true;
	keep_ask_send(ask, false);
}

/*
 * Of a new view's subscriptions there may be keys that an early message does not stand under: it goes through a lane, which finds them,
 * and is marked anew.
 */
static void look_round(struct loop_timer *timer)
{
	struct intake *intake = container_of(timer, struct intake, look);
	uint64_t view = __atomic_load_n(&intake->lanes->view_number, __ATOMIC_ACQUIRE);
	struct place *place;

	for (uint32_t i = 0; i < LOOK_MAX && (place = list_first(&intake->asleep, struct place, early_link)); i++) {
		if (place->early->view != view) {
			place_hit(place);
			continue;
		}
		list_remove(&place->early_link);
		list_push(&intake->unlooked, &place->early_link);
	}
	look(intake);
	look_later(intake);
}

void place_sleep(struct place *place)
{
	struct lane_request *request = &place->dlv.request;
	enum code code = place->early->polls ? CODE_INBOUND_ALIAS_CONFLICT_REJECT : CODE_RUNTIME_CORRELATION_NOT_FOUND;

	if (place->has_hit) {
		place->has_hit = false;
		keep_load(&place->dlv);
		return;
	}
	request->answer = ANSWER_UNMATCHED;
	request->interest = place->early->keys;
	request->interest_count = place->early->key_count;
	error_set(&request->error, RESULT_AGAIN, code, "no live wait matches yet");
	hold_begin(&place->dlv);
	request->interest_count = 0;
	list_remove(&place->early_link);
	list_push(&place->dlv.intake->unlooked, &place->early_link);
	look(place->dlv.intake);
}

void early_start(struct intake *intake)
{
	loop_timer_init(&intake->look, intake->loop, look_round);
	look_later(intake);
	wake_join(intake->wake, &intake->wake_target);
}

void early_stop(struct intake *intake)
{
	loop_timer_stop(&intake->look);
	wake_leave(intake->wake, &intake->wake_target);
}

/* --- marking --- */

struct mark {
	struct store_commit commit;
	struct arena arena;
	struct kept_early early;
	struct place *place;
	struct place_early *known;
};

static void marked(struct task *done)
{
	struct mark *mark = container_of(done, struct mark, commit.base.done);
	struct place *place = mark->place;
	struct intake *intake = place->dlv.intake;

	intake->asks--;
	place_unload(place);
	if (place->dlv.revoked) {
		keep_drop(&place->dlv);
	} else if (mark->commit.base.outcome != STORE_OK) {
		place_hold(place, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, mark->commit.base.error.text);
	} else {
		stat_add(intake->stats.early, 1);
		place_early_end(place);
		place->early = mark->known;
		mark->known = NULL;
		place_sleep(place);
	}
	free(mark->known);
	arena_done(&mark->arena);
	free(mark);
}

void place_mark(struct place *place)
{
	struct delivery *dlv = &place->dlv;
	struct intake *intake = dlv->intake;
	struct mark *mark = mem_zalloc(sizeof(*mark));
	int64_t now_us = loop_now_us(intake->loop);

	arena_init(&mark->arena);
	mark->place = place;
	mark->known = place_early_new(&dlv->request);
	if (!dlv->unmatched_since_us)
		dlv->unmatched_since_us = now_us;
	mark->early = (struct kept_early){
		.message = dlv->request.kept_row,
		.is_kept = true,
		.unmatched_us = loop_wall_us(intake->loop) - (now_us - dlv->unmatched_since_us),
		.keys = mark->known->keys,
		.key_count = mark->known->key_count,
	};
	mark->commit = (struct store_commit){
		.base = {.reply_to = intake->loop, .done.run = marked, .arena = &mark->arena},
		.commit = COMMIT_NO_INSTANCE,
		.tenant = str_of(intake->settings.tenant),
		.keeper = str_of(intake->settings.keeper),
		.early = &mark->early,
		.early_count = 1,
	};
	dlv->state = DELIVERY_LOADING;
	intake->asks++;
	store_commit(intake->lanes->store, &mark->commit);
}
