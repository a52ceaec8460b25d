/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Due timers. The leader reads them in pages, in the order of their due times, and keeps two pages' worth on their way, so that all
 * lanes have something to do while the next page comes. What is on its way is known by (instance, token) and passed over when a page
 * names it again.
 *
 * Where a page begins. Behind the last one while there was more. Else, at every tick, at the beginning: a timer may have been set for
 * a time that has passed. But where many timers have fired since the last vacuum, or a snapshot is held, the beginning of the index
 * is full of dead entries; so a look from there comes only after twenty times as long as the last one took, within half a minute
 * at most, and ticks between two go on from where the last page ended.
 *
 * What is refused waits with growing pauses, a bounded number of fires; what is beyond that is forgotten and found again by a later
 * look from the beginning. A row that no token stands for any more is removed, provided that its instance still is what was
 * looked at; so is one that was refused for long, if its instance has ended.
 */
#include "roles/timers.h"

#include "base/alloc.h"
#include "base/time.h"

#define OUT_MIN	      256
#define OUT_MAX	      4096
#define OUT_PER_LANE  8
#define DEFERRED_MAX  10000
#define RESCAN_MAX_US (30 * US_PER_S)
#define RESCAN_COSTS  20
#define TROUBLE_US    US_PER_S
/* Rejected: whatever it is, it does not pass by itself. */
#define REJECTED_US (300 * US_PER_S)
/* Refused so often it is asked whether there is an instance at all. */
#define TRIES_DROP 8
#define DROP_MAX   256

#define KEY_SIZE (sizeof(struct id) + sizeof(uint32_t))

/* --- fires, also of start timers --- */

static void fire_try(struct fire *fire);

static void fire_ended(struct fire *fire)
{
	struct timers *timers = fire->timers;
	struct roles *roles = timers->roles;

	roles->queries_out--;
	arena_done(&fire->request.resolved);
	fire->answered(fire);
	timers_go(timers);
	roles_check_idle(roles);
}

static void fire_answered(struct task *post)
{
	struct lane_request *request = container_of(post, struct lane_request, post);

	fire_ended(container_of(request, struct fire, request));
}

static void fire_room(struct task *post)
{
	struct lane_waiter *room = container_of(post, struct lane_waiter, post);
	struct fire *fire = container_of(room, struct fire, room);

	if (lease_is_good(fire->timers->lease)) {
		fire_try(fire);
		return;
	}
	fire->request.answer = ANSWER_UNAVAILABLE;
	fire_ended(fire);
}

static void fire_try(struct fire *fire)
{
	struct lane_set *lanes = fire->timers->roles->lanes;
	struct lane_request *request = &fire->request;
	uint32_t lane = lane_set_lane_of_instance(lanes, request->target.instance);

	if (request->kind == REQUEST_SCHEDULE)
		lane = lane_set_lane_of_instance(lanes, request->schedule.id);
	if (!lane_set_submit(lanes, lane, request))
		lane_set_wait_room(lanes, lane, &fire->room);
}

void fire_init(struct fire *fire, struct timers *timers, void (*answered)(struct fire *fire))
{
	fire->timers = timers;
	fire->answered = answered;
	fire->request.answered = fire_answered;
	fire->request.reply_to = timers->roles->loop;
	fire->room.reply_to = timers->roles->loop;
	fire->room.room = fire_room;
}

void fire_submit(struct fire *fire)
{
	fire->state = FIRE_OUT;
	fire->timers->roles->queries_out++;
	arena_init(&fire->request.resolved);
	fire_try(fire);
}

int64_t fire_backoff_us(struct fire *fire)
{
	const struct roles_settings *settings = &fire->timers->roles->settings;

	return loop_backoff_us(fire->timers->roles->loop, settings->backoff_min_ms * US_PER_MS,
			       settings->backoff_max_ms * US_PER_MS, fire->tries++);
}

/* --- fires of waiting tokens --- */

static struct str fire_key(struct id instance, int64_t token, char buf[KEY_SIZE])
{
	uint32_t number = (uint32_t)token;

	memcpy(buf, &instance, sizeof(instance));
	memcpy(buf + sizeof(instance), &number, sizeof(number));
	return str_make(buf, KEY_SIZE);
}

static void fire_free(struct fire *fire)
{
	struct timers *timers = fire->timers;
	char key[KEY_SIZE];

	timers->drops -= fire->state == FIRE_DROP;
	timers->deferred -= fire->state == FIRE_DEFERRED;
	loop_timer_stop(&fire->pause);
	map_remove(&timers->known, fire_key(fire->request.target.instance, fire->request.target.token, key));
	list_remove(&fire->link);
	free(fire);
}

/* Its row is gone, or is not ours to care for now. A page that was asked for before may still name it. */
static void fire_done(struct fire *fire)
{
	struct timers *timers = fire->timers;

	if (!timers->page.busy) {
		fire_free(fire);
		return;
	}
	timers->drops -= fire->state == FIRE_DROP;
	fire->state = FIRE_DONE;
}

static void fire_pause_over(struct loop_timer *timer)
{
	struct fire *fire = container_of(timer, struct fire, pause);
	struct timers *timers = fire->timers;

	if (!lease_is_good(timers->lease)) {
		timers_go(timers);
		return;
	}
	if (timers->out >= timers->out_max) {
		loop_timer_start(timer, timers->roles->settings.backoff_min_ms * US_PER_MS);
		return;
	}
	timers->deferred--;
	timers->out++;
	fire_submit(fire);
}

static void fire_defer(struct fire *fire, int64_t delay_us)
{
	struct timers *timers = fire->timers;

	if (timers->deferred >= DEFERRED_MAX) {
		/* The next look from the beginning finds it again. */
		timers->rescan_us = loop_now_us(timers->roles->loop) + RESCAN_MAX_US;
		fire_done(fire);
		return;
	}
	fire->state = FIRE_DEFERRED;
	timers->deferred++;
	loop_timer_start(&fire->pause, delay_us);
}

static void fire_drop(struct fire *fire)
{
	fire->state = FIRE_DROP;
	fire->timers->drops++;
}

static void fire_refused(struct fire *fire)
{
	int64_t delay_us = fire_backoff_us(fire);

	fire->request.version = -1;
	if (fire->request.answer == ANSWER_REFUSED && fire->tries % TRIES_DROP == 0)
		fire_drop(fire);
	else
		fire_defer(fire, delay_us);
}

static void fire_committed(struct fire *fire)
{
	struct timers *timers = fire->timers;

	histogram_add(&timers->lateness, loop_wall_us(timers->roles->loop) - fire->request.due_us);
	count_add(timers->committed, 1);
	fire_done(fire);
}

static void timer_answered(struct fire *fire)
{
	struct timers *timers = fire->timers;

	timers->out--;
	switch (fire->request.answer) {
	case ANSWER_COMMITTED:
		fire_committed(fire);
		break;
	case ANSWER_AGAIN:
		count_add(timers->stale, 1);
		fire_drop(fire);
		break;
	case ANSWER_REJECTED:
		count_add(timers->rejected, 1);
		fire_defer(fire, REJECTED_US);
		break;
	case ANSWER_REFUSED:
		count_add(timers->refused, 1);
		fire_refused(fire);
		break;
	default:
		count_add(timers->unavailable, 1);
		fire_refused(fire);
		break;
	}
}

static void fire_new(struct timers *timers, const struct field *row)
{
	struct str tenant = row[0].str;
	struct fire *fire;
	char key[KEY_SIZE];

	if (map_get(&timers->known, fire_key(row[1].id, row[2].i, key)))
		return;
	fire = mem_zalloc(sizeof(*fire) + tenant.len);
	fire_init(fire, timers, timer_answered);
	memcpy(fire->tenant, tenant.ptr, tenant.len);
	fire->request.kind = REQUEST_TIMER;
	fire->request.tenant = str_make(fire->tenant, tenant.len);
	fire->request.target.instance = row[1].id;
	fire->request.target.token = (uint32_t)row[2].i;
	fire->request.due_us = row[3].i;
	loop_timer_init(&fire->pause, timers->roles->loop, fire_pause_over);
	list_push(&timers->fires, &fire->link);
	map_put(&timers->known, str_make(key, KEY_SIZE), fire);
	timers->out++;
	fire_submit(fire);
}

/* --- rows that no token stands for --- */

static void drop_send(struct timers *timers)
{
	struct role_query *query = &timers->drop;
	struct fire *fires[DROP_MAX];
	struct str *tenants;
	int64_t *tokens, *dues, *versions;
	struct id *instances;
	uint32_t count = 0;

	if (!timers->drops || query->busy)
		return;
	list_for_each(&timers->fires, pos, tmp) {
		struct fire *fire = list_entry(pos, struct fire, link);

		if (fire->state == FIRE_DROP && count < DROP_MAX)
			fires[count++] = fire;
	}
	role_query_begin(query, STATEMENT_TIMER_DROP);
	tenants = arena_alloc(&query->arena, count * sizeof(*tenants));
	instances = arena_alloc(&query->arena, count * sizeof(*instances));
	tokens = arena_alloc(&query->arena, count * sizeof(*tokens));
	dues = arena_alloc(&query->arena, count * sizeof(*dues));
	versions = arena_alloc(&query->arena, count * sizeof(*versions));
	for (uint32_t i = 0; i < count; i++) {
		const struct lane_request *request = &fires[i]->request;

		fires[i]->dropping = true;
		tenants[i] = request->tenant;
		instances[i] = request->target.instance;
		tokens[i] = request->target.token;
		dues[i] = request->due_us;
		versions[i] = request->version;
	}
	query->params[0] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = tenants};
	query->params[1] = (struct column){.type = COLUMN_ID, .count = count, .ids = instances};
	query->params[2] = (struct column){.type = COLUMN_INT, .count = count, .ints = tokens};
	query->params[3] = (struct column){.type = COLUMN_TIME, .count = count, .ints = dues};
	query->params[4] = (struct column){.type = COLUMN_INT, .count = count, .ints = versions};
	query->query.segment.tenants = store_tenants(&query->arena, tenants, count);
	role_query_send(query, false, true, true);
}

/*
 * Removed or not, the row is looked at anew: what was not removed has become something else meanwhile. A fire that was refused for
 * long goes on as before.
 */
static void drop_answered(struct role_query *query)
{
	struct timers *timers = container_of(query, struct timers, drop);

	list_for_each(&timers->fires, pos, tmp) {
		struct fire *fire = list_entry(pos, struct fire, link);

		if (!fire->dropping)
			continue;
		fire->dropping = false;
		timers->drops--;
		fire->state = FIRE_DONE;
		if (fire->request.version < 0 || query->query.base.outcome != STORE_OK)
			fire_defer(fire, fire_backoff_us(fire));
		else
			fire_done(fire);
	}
	timers_go(timers);
}

/* --- pages --- */

static void page_send(struct timers *timers)
{
	struct role_query *query = &timers->page;
	int64_t now_us = loop_now_us(timers->roles->loop);

	if (query->busy || timers->next.busy || timers->out > timers->out_max / 2 || (!timers->more && now_us < timers->next_look_us))
		return;
	timers->from_start = now_us >= timers->rescan_us && (!timers->more || now_us >= timers->scanned_us + RESCAN_MAX_US);
	if (timers->from_start) {
		timers->scanned_us = now_us;
		timers->after_due_us = timers->after_token = 0;
		timers->after_instance = ID_NONE;
	}
	timers->asked_us = now_us;
	role_query_begin(query, STATEMENT_TIMER_DUE);
	role_query_int(query, 0, timers->after_due_us);
	query->params[0].type = COLUMN_TIME;
	role_query_id(query, 1, timers->after_instance);
	role_query_int(query, 2, timers->after_token);
	role_query_int(query, 3, timers->out_max / 2);
	role_query_send(query, true, false, false);
}

static void look_again_at(struct timers *timers, int64_t delay_us)
{
	timers->more = false;
	timers->next_look_us = loop_now_us(timers->roles->loop) + delay_us;
	loop_timer_start(&timers->tick, delay_us);
}

static int64_t tick_us(const struct timers *timers)
{
	return timers->lease->interval_ms * US_PER_MS;
}

/* When the beginning is looked at again: not so often that this is what the database does. */
static void page_cost(struct timers *timers)
{
	int64_t took_us = loop_now_us(timers->roles->loop) - timers->asked_us, pause_us = took_us * RESCAN_COSTS;

	if (!timers->from_start)
		return;
	if (pause_us < tick_us(timers))
		pause_us = 0;
	if (pause_us > RESCAN_MAX_US)
		pause_us = RESCAN_MAX_US;
	if (timers->rescan_us < timers->asked_us + pause_us)
		timers->rescan_us = timers->asked_us + pause_us;
}

static void page_take(struct timers *timers, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++)
		fire_new(timers, rows_at(rows, i, 0));
	if (rows->row_count) {
		const struct field *last = rows_at(rows, rows->row_count - 1, 0);

		timers->after_instance = last[1].id;
		timers->after_token = last[2].i;
		timers->after_due_us = last[3].i;
	}
}

/* What was done while the page was on its way is not named by a later one. */
static void free_done(struct timers *timers)
{
	list_for_each(&timers->fires, pos, tmp) {
		struct fire *fire = list_entry(pos, struct fire, link);

		if (fire->state == FIRE_DONE)
			fire_free(fire);
	}
}

static void page_answered(struct role_query *query)
{
	struct timers *timers = container_of(query, struct timers, page);
	const struct rows *rows = &query->call.rows;
	bool good = lease_is_good(timers->lease);

	if (good && query->query.base.outcome == STORE_OK) {
		page_cost(timers);
		page_take(timers, rows);
		timers->more = rows->row_count >= timers->out_max / 2;
	}
	free_done(timers);
	if (good && query->query.base.outcome != STORE_OK) {
		look_again_at(timers, TROUBLE_US);
	} else if (good && !timers->more) {
		role_query_begin(&timers->next, STATEMENT_TIMER_NEXT);
		role_query_send(&timers->next, true, false, false);
	}
	timers_go(timers);
}

/* Sleeps until the next timer is due, but not for longer than a tick: others may be set at any time. */
static void next_answered(struct role_query *query)
{
	struct timers *timers = container_of(query, struct timers, next);
	const struct rows *rows = &query->call.rows;
	int64_t delay_us = tick_us(timers);

	if (query->query.base.outcome == STORE_OK && rows->row_count && !rows_at(rows, 0, 0)->is_null &&
	    rows_at(rows, 0, 0)->i < delay_us)
		delay_us = rows_at(rows, 0, 0)->i > US_PER_MS ? rows_at(rows, 0, 0)->i : US_PER_MS;
	look_again_at(timers, delay_us);
	timers_go(timers);
}

/* --- a round lasts as long as this replica leads --- */

/*
 * The tick goes on until the last answer is here, for the lease may be good again before that (a replica that was paused renews it
 * while what it had asked for is still on its way), and then the round just goes on. What is let go of here is found again from the
 * beginning.
 */
static void timers_drain(struct timers *timers)
{
	bool schedules = schedules_drain(&timers->schedules);

	timers->rescan_us = 0;
	list_for_each(&timers->fires, pos, tmp) {
		struct fire *fire = list_entry(pos, struct fire, link);

		if (fire->state != FIRE_OUT && !fire->dropping)
			fire_free(fire);
	}
	if (timers->out || !schedules || timers->page.busy || timers->next.busy || timers->drop.busy)
		return;
	loop_timer_stop(&timers->tick);
	timers->leading = false;
	lease_round_done(timers->lease);
}

void timers_go(struct timers *timers)
{
	if (!timers->leading)
		return;
	if (!lease_is_good(timers->lease)) {
		timers_drain(timers);
		return;
	}
	drop_send(timers);
	page_send(timers);
	schedules_go(&timers->schedules);
}

static void timers_tick(struct loop_timer *timer)
{
	struct timers *timers = container_of(timer, struct timers, tick);

	/* Also while all is busy: somebody has to notice that the lease is gone. */
	loop_timer_start(timer, tick_us(timers));
	timers_go(timers);
}

static void timers_run(struct role_work *work)
{
	struct timers *timers = container_of(work, struct timers, work);

	timers->leading = true;
	timers->more = false;
	timers->next_look_us = timers->rescan_us = timers->scanned_us = 0;
	loop_timer_start(&timers->tick, tick_us(timers));
	schedules_begin(&timers->schedules);
	timers_go(timers);
}

void timers_init(struct timers *timers, struct roles *roles, struct lease *lease)
{
	uint32_t out = roles->lanes ? roles->lanes->settings.lanes * OUT_PER_LANE : 0;

	timers->work.run = timers_run;
	timers->roles = roles;
	timers->lease = lease;
	timers->out_max = out < OUT_MIN ? OUT_MIN : out > OUT_MAX ? OUT_MAX : out;
	map_init(&timers->known);
	list_init(&timers->fires);
	role_query_init(&timers->page, roles, page_answered);
	role_query_init(&timers->next, roles, next_answered);
	role_query_init(&timers->drop, roles, drop_answered);
	loop_timer_init(&timers->tick, roles->loop, timers_tick);
	schedules_init(&timers->schedules, timers);
}

void timers_done(struct timers *timers)
{
	assert(list_is_empty(&timers->fires));
	schedules_done(&timers->schedules);
	role_query_done(&timers->page);
	role_query_done(&timers->next);
	role_query_done(&timers->drop);
	map_done(&timers->known);
}
