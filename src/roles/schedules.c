/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start timers. Each has a row that says when it is due, whatever deployment of its (tenant, module) is Active: so a new version with
 * the same timer goes on where the last one was, and one with another begins anew. Whoever leads puts the rows of all Active
 * deployments of its view, learns when they are due, and from then on goes by that: it is the only one to move them on, and if it is
 * not, the gate of a fire's commit says so, and the rows are read again. They are read now and then anyway.
 *
 * A row that belongs to another deployment than this view's Active one is left alone: its start event drains here, or is not known
 * here yet.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/time.h"
#include "roles/timers.h"

#define PROBE_US   (30 * US_PER_S)
#define TROUBLE_US US_PER_S

static struct loop *loop_of(const struct schedules *schedules)
{
	return schedules->timers->roles->loop;
}

static bool is_asking(const struct schedules *schedules)
{
	return schedules->put.busy || schedules->probe.busy;
}

/* --- the view --- */

static int schedule_compare(const void *a, const void *b)
{
	return id_compare(((const struct schedule *)a)->id, ((const struct schedule *)b)->id);
}

static bool is_start_timer(const struct node *node)
{
	return node->kind == NODE_START_TIMER && node->timer && !node->timer->expression;
}

static void schedules_add(struct schedules *schedules, const struct deployment *deployment, const struct process *process)
{
	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct node *node = process->nodes[i];

		if (!is_start_timer(node))
			continue;
		schedules->all = mem_array(schedules->all, schedules->count + 1, sizeof(*schedules->all));
		schedules->all[schedules->count++] = (struct schedule){
			.id = id_digest_of(STR("start-timer"), deployment->tenant, deployment->module, process->id, node->id),
			.deployment = deployment,
			.process = process,
			.node = node,
		};
	}
}

static void schedules_clear(struct schedules *schedules)
{
	for (uint32_t i = 0; i < schedules->count; i++)
		free(schedules->all[i].fire);
	free(schedules->all);
	schedules->all = NULL;
	schedules->count = 0;
	view_unref(&schedules->view);
}

/* Nothing is out that knows the old one. */
static void schedules_adopt(struct schedules *schedules)
{
	schedules_clear(schedules);
	schedules->view = schedules->next_view;
	schedules->next_view = NULL;
	for (uint32_t i = 0; i < schedules->view->member_count; i++) {
		const struct view_member *member = &schedules->view->members[i];

		for (uint32_t k = 0; member->phase == DEPLOYMENT_ACTIVE && k < member->deployment->process_count; k++)
			schedules_add(schedules, member->deployment, member->deployment->processes[k]);
	}
	if (schedules->count)
		qsort(schedules->all, schedules->count, sizeof(*schedules->all), schedule_compare);
	schedules->put_wanted = true;
}

void schedules_flip(struct schedules *schedules, struct view *view)
{
	view_unref(&schedules->next_view);
	schedules->next_view = view_ref(view);
	timers_go(schedules->timers);
}

/* --- the rows --- */

static struct column text_column(struct arena *arena, uint32_t count)
{
	return (struct column){.type = COLUMN_TEXT, .count = count, .strs = arena_alloc(arena, count * sizeof(struct str))};
}

static struct column int_column(struct arena *arena, enum column_type type, uint32_t count)
{
	return (struct column){.type = type, .count = count, .ints = arena_alloc(arena, count * sizeof(int64_t))};
}

static void set_text(struct column *column, uint32_t i, struct str text)
{
	((struct str *)(uintptr_t)column->strs)[i] = text;
}

static void set_number(struct column *column, uint32_t i, int64_t number)
{
	((int64_t *)(uintptr_t)column->ints)[i] = number;
}

static struct column id_column(struct arena *arena, const struct schedules *schedules)
{
	struct id *ids = arena_alloc(arena, schedules->count * sizeof(*ids));

	for (uint32_t i = 0; i < schedules->count; i++)
		ids[i] = schedules->all[i].id;
	return (struct column){.type = COLUMN_ID, .count = schedules->count, .ids = ids};
}

static struct column tenant_column(struct arena *arena, const struct schedules *schedules)
{
	struct column column = text_column(arena, schedules->count);

	for (uint32_t i = 0; i < schedules->count; i++)
		set_text(&column, i, schedules->all[i].deployment->tenant);
	return column;
}

static void put_send(struct schedules *schedules)
{
	int64_t wall_us = loop_wall_us(loop_of(schedules));
	struct role_query *query = &schedules->put;
	uint32_t count = schedules->count;
	struct arena *arena = &query->arena;
	struct column *p = query->params;

	schedules->put_wanted = false;
	role_query_begin(query, STATEMENT_SCHEDULE_PUT);
	p[0] = id_column(arena, schedules);
	p[1] = tenant_column(arena, schedules);
	for (uint32_t i = 2; i < 6; i++)
		p[i] = text_column(arena, count);
	p[6] = int_column(arena, COLUMN_TIME, count);
	p[7] = int_column(arena, COLUMN_INT, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct schedule *schedule = &schedules->all[i];
		const struct timer_rule *rule = schedule->node->timer;
		int64_t due_us = 0, remaining = 0;
		bool ever = timer_first(rule, wall_us, &due_us, &remaining);

		set_text(&p[2], i, schedule->deployment->id);
		set_text(&p[3], i, schedule->process->id);
		set_text(&p[4], i, schedule->node->id);
		set_text(&p[5], i,
			 str_of(arena_printf(arena, "%s %.*s", timer_kind_name(rule->kind), STR_ARG(rule->text))));
		set_number(&p[6], i, ever ? due_us : COLUMN_TIME_NULL);
		set_number(&p[7], i, ever ? remaining : 0);
	}
	query->query.segment.tenants = store_tenants(arena, p[1].strs, count);
	role_query_send(query, false, true, true);
}

static void probe_send(struct schedules *schedules)
{
	struct role_query *query = &schedules->probe;
	struct column *p = query->params;

	schedules->probe_wanted = false;
	schedules->probe_us = loop_now_us(loop_of(schedules)) + PROBE_US;
	role_query_begin(query, STATEMENT_SCHEDULE_PROBE);
	p[0] = int_column(&query->arena, COLUMN_INT, schedules->count);
	for (uint32_t i = 0; i < schedules->count; i++)
		set_number(&p[0], i, i);
	p[1] = tenant_column(&query->arena, schedules);
	p[2] = id_column(&query->arena, schedules);
	query->query.segment.tenants = store_tenants(&query->arena, p[1].strs, schedules->count);
	role_query_send(query, false, false, false);
}

static void put_answered(struct role_query *query)
{
	struct schedules *schedules = container_of(query, struct schedules, put);

	if (query->query.base.outcome == STORE_OK) {
		schedules->probe_wanted = true;
	} else {
		schedules->put_wanted = true;
		schedules->trouble_us = loop_now_us(loop_of(schedules)) + TROUBLE_US;
	}
	timers_go(schedules->timers);
}

static bool is_out(const struct schedule *schedule)
{
	return schedule->fire && schedule->fire->state == FIRE_OUT;
}

static void probe_answered(struct role_query *query)
{
	struct schedules *schedules = container_of(query, struct schedules, probe);
	const struct rows *rows = &query->call.rows;

	if (query->query.base.outcome != STORE_OK) {
		schedules->probe_wanted = true;
		schedules->trouble_us = loop_now_us(loop_of(schedules)) + TROUBLE_US;
		timers_go(schedules->timers);
		return;
	}
	for (uint32_t i = 0; i < schedules->count; i++)
		schedules->all[i].known &= is_out(&schedules->all[i]);
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct schedule *schedule = &schedules->all[f[0].i];

		if (is_out(schedule))
			continue;
		schedule->known = str_equal(f[1].str, schedule->deployment->id);
		schedule->next_us = f[2].is_null ? 0 : f[2].i;
		schedule->remaining = f[3].i;
	}
	schedules->wake_us = 0;
	timers_go(schedules->timers);
}

/* --- fires --- */

static struct schedule *schedule_of(struct schedules *schedules, const struct fire *fire)
{
	struct schedule key = {.id = fire->request.schedule.id};

	return bsearch(&key, schedules->all, schedules->count, sizeof(key), schedule_compare);
}

static void schedule_answered(struct fire *fire)
{
	struct timers *timers = fire->timers;
	struct schedules *schedules = &timers->schedules;
	struct schedule *schedule = schedule_of(schedules, fire);
	const struct store_schedule *next = &fire->request.schedule;
	int64_t now_us = loop_now_us(timers->roles->loop);

	fire->state = FIRE_DONE;
	schedules->out--;
	schedules->wake_us = 0;
	switch (fire->request.answer) {
	case ANSWER_COMMITTED:
		histogram_add(&timers->lateness, loop_wall_us(timers->roles->loop) - fire->request.due_us);
		count_add(timers->committed, 1);
		break;
	case ANSWER_REJECTED:
		count_add(timers->rejected, 1);
		break;
	case ANSWER_AGAIN:
		/* Somebody else has moved it on, or the lanes have another view by now. */
		count_add(timers->stale, 1);
		schedules->probe_wanted = true;
		schedule->known = false;
		schedule->not_before_us = now_us + TROUBLE_US;
		return;
	case ANSWER_REFUSED:
		count_add(timers->refused, 1);
		schedule->not_before_us = now_us + fire_backoff_us(fire);
		return;
	default:
		count_add(timers->unavailable, 1);
		schedule->not_before_us = now_us + fire_backoff_us(fire);
		return;
	}
	fire->tries = 0;
	schedule->next_us = next->next_us;
	schedule->remaining = next->remaining;
}

static void schedule_fire(struct schedules *schedules, struct schedule *schedule, int64_t wall_us)
{
	struct store_schedule next = {.id = schedule->id, .expected_us = schedule->next_us};
	struct fire *fire = schedule->fire;

	if (!timer_next(schedule->node->timer, schedule->next_us, wall_us, schedule->remaining, &next.next_us, &next.remaining))
		next.next_us = next.remaining = 0;
	if (!fire) {
		fire = schedule->fire = mem_zalloc(sizeof(*fire));
		fire_init(fire, schedules->timers, schedule_answered);
		fire->request.kind = REQUEST_SCHEDULE;
		fire->request.tenant = schedule->deployment->tenant;
		fire->request.process = schedule->process->id;
		fire->request.target.deployment = schedule->deployment->id;
		fire->request.target.node = schedule->node->id;
	}
	fire->request.due_us = schedule->next_us;
	fire->request.schedule = next;
	schedules->out++;
	fire_submit(fire);
}

/* Lets fire what is due, and sleeps until the next is. */
static void schedules_fire(struct schedules *schedules)
{
	int64_t wall_us = loop_wall_us(loop_of(schedules)), now_us = loop_now_us(loop_of(schedules));
	int64_t delay_us = schedules->probe_us - now_us;

	for (uint32_t i = 0; i < schedules->count; i++) {
		struct schedule *schedule = &schedules->all[i];
		int64_t wait_us = schedule->next_us - wall_us;

		if (!schedule->known || !schedule->next_us || is_out(schedule))
			continue;
		if (wait_us < schedule->not_before_us - now_us)
			wait_us = schedule->not_before_us - now_us;
		if (wait_us <= 0)
			schedule_fire(schedules, schedule, wall_us);
		else if (wait_us < delay_us)
			delay_us = wait_us;
	}
	schedules->wake_us = now_us + (delay_us > 0 ? delay_us : 0);
	loop_timer_start(&schedules->tick, delay_us > 0 ? delay_us : 0);
}

/* --- */

static void schedules_tick(struct loop_timer *timer)
{
	timers_go(container_of(timer, struct schedules, tick)->timers);
}

void schedules_begin(struct schedules *schedules)
{
	schedules->put_wanted = true;
	schedules->trouble_us = schedules->wake_us = 0;
}

/*
 * Called after each answer to any timer, so it looks at all of them only when there is something to see: nothing to be asked first, and
 * the time has come. Whatever changes the times asks, or is a fire's answer.
 */
void schedules_go(struct schedules *schedules)
{
	int64_t now_us = loop_now_us(loop_of(schedules));

	if (schedules->next_view && !schedules->out && !is_asking(schedules))
		schedules_adopt(schedules);
	if (!schedules->count || schedules->next_view || is_asking(schedules))
		return;
	if (now_us < schedules->trouble_us) {
		if (!loop_timer_is_started(&schedules->tick))
			loop_timer_start(&schedules->tick, schedules->trouble_us - now_us);
		return;
	}
	if (schedules->put_wanted)
		put_send(schedules);
	else if (schedules->probe_wanted || now_us >= schedules->probe_us)
		probe_send(schedules);
	else if (now_us >= schedules->wake_us)
		schedules_fire(schedules);
}

bool schedules_drain(struct schedules *schedules)
{
	loop_timer_stop(&schedules->tick);
	return !schedules->out && !is_asking(schedules);
}

void schedules_init(struct schedules *schedules, struct timers *timers)
{
	schedules->timers = timers;
	role_query_init(&schedules->put, timers->roles, put_answered);
	role_query_init(&schedules->probe, timers->roles, probe_answered);
	loop_timer_init(&schedules->tick, timers->roles->loop, schedules_tick);
}

void schedules_done(struct schedules *schedules)
{
	assert(!schedules->out);
	schedules_clear(schedules);
	view_unref(&schedules->next_view);
	role_query_done(&schedules->put);
	role_query_done(&schedules->probe);
}
