/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The retention sweeper: removes what is past its retention, a page at a time.
 *
 *	find a page of expired instances (scan role: keys only) → remove them (as their tenants) → pause → next page
 *	at the end of the table: say which deployments unfinished work needs (pins.c), since all of it was seen
 *	purge event ids by age, a page at a time, until none is left; then dead letters, if they have one
 *
 * Only completed and terminated instances go; FAILED ones are kept until somebody has looked at them. A crash between any
 * two pages loses nothing but time.
 */
#include "base/log.h"
#include "base/time.h"
#include "roles/internal.h"

#define PAGE       1000
#define PURGE_PAGE 5000

static bool retention_may_go_on(struct retention *retention)
{
	if (lease_is_good(retention->lease))
		return true;
	lease_round_done(retention->lease);
	return false;
}

static bool retention_failed(struct retention *retention, const struct role_query *query)
{
	struct log_about about = {.stage = "roles"};

	if (query->query.base.outcome == STORE_OK)
		return false;
	log_warning(&about, "the retention sweep stops until its next turn: %s",
		    query->query.base.error.text);
	lease_round_done(retention->lease);
	return true;
}

static void retention_end(struct retention *retention)
{
	struct log_about about = {.stage = "roles"};

	if (retention->instances || retention->inbox || retention->letters)
		log_info(&about, "removed %llu instances and %llu event ids and %llu dead letters past their retention",
			 (unsigned long long)retention->instances, (unsigned long long)retention->inbox,
			 (unsigned long long)retention->letters);
	lease_round_done(retention->lease);
}

static void retention_find(struct retention *retention)
{
	struct role_query *query = &retention->find;

	if (!retention_may_go_on(retention))
		return;
	role_query_begin(query, STATEMENT_INSTANCE_EXPIRED);
	role_query_id(query, 0, retention->after);
	role_query_int(query, 1, PAGE);
	role_query_int(query, 2, query->roles->settings.instance_retention_ms);
	role_query_send(query, true, false, false);
}

static void retention_purge(struct retention *retention)
{
	struct role_query *query = &retention->purge;
	const struct roles_settings *settings = &query->roles->settings;

	if (!retention_may_go_on(retention))
		return;
	role_query_begin(query, retention->at_letters ? STATEMENT_DEAD_LETTER_PURGE : STATEMENT_INBOX_PURGE);
	role_query_int(query, 0, PURGE_PAGE);
	role_query_int(query, 1, retention->at_letters ? settings->dead_letter_retention_ms : settings->inbox_retention_ms);
	role_query_send(query, true, false, true);
}

static void retention_pinned(struct pins *pins, bool ok)
{
	struct retention *retention = container_of(pins, struct retention, pins);

	retention->purging = ok;
	if (ok)
		retention_purge(retention);
	else
		lease_round_done(retention->lease);
}

static void retention_next(struct loop_timer *timer)
{
	struct retention *retention = container_of(timer, struct retention, pause);

	if (retention->purging)
		retention_purge(retention);
	else if (retention->last_page)
		pins_end(&retention->pins, retention_pinned);
	else
		retention_find(retention);
}

static void retention_pause(struct retention *retention)
{
	if (retention_may_go_on(retention))
		loop_timer_start(&retention->pause, PAGE_PAUSE_US);
}

/* The rows of the page, out of the answer that found them. */
static void retention_remove(struct retention *retention, const struct rows *rows, uint32_t count)
{
	struct role_query *query = &retention->remove;
	struct str *tenants;
	struct id *ids;

	role_query_begin(query, STATEMENT_INSTANCE_DELETE);
	tenants = arena_alloc(&query->arena, sizeof(*tenants) * count);
	ids = arena_alloc(&query->arena, sizeof(*ids) * count);
	for (uint32_t i = 0; i < count; i++) {
		tenants[i] = arena_str(&query->arena, rows_at(rows, i, 0)->str);
		ids[i] = rows_at(rows, i, 1)->id;
	}
	query->params[0] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = tenants};
	query->params[1] = (struct column){.type = COLUMN_ID, .count = count, .ids = ids};
	query->query.segment.tenants = store_tenants(&query->arena, tenants, count);
	role_query_send(query, false, false, true);
}

static void retention_found(struct role_query *query)
{
	struct retention *retention = container_of(query, struct retention, find);
	const struct rows *rows = &query->call.rows;
	uint32_t count;

	if (retention_failed(retention, query))
		return;
	assert(rows->row_count > 0);
	count = rows->row_count - 1;
	retention->last_page = rows_at(rows, count, 1)->is_null;
	if (!retention->last_page)
		retention->after = rows_at(rows, count, 1)->id;
	for (; count && rows_at(rows, count - 1, 0)->is_null; count--)
		pins_see(&retention->pins, rows_at(rows, count - 1, 3)->str);
	if (!retention_may_go_on(retention))
		return;
	if (count)
		retention_remove(retention, rows, count);
	else
		retention_pause(retention);
}

static void retention_removed(struct role_query *query)
{
	struct retention *retention = container_of(query, struct retention, remove);

	if (retention_failed(retention, query))
		return;
	retention->instances += query->params[0].count;
	count_add(query->roles->instances_purged, query->params[0].count);
	retention_pause(retention);
}

static void retention_purged(struct role_query *query)
{
	struct retention *retention = container_of(query, struct retention, purge);
	int64_t removed;

	if (retention_failed(retention, query))
		return;
	removed = rows_at(&query->call.rows, 0, 0)->i;
	if (retention->at_letters) {
		retention->letters += (uint64_t)removed;
		count_add(query->roles->dead_letters_purged, removed);
	} else {
		retention->inbox += (uint64_t)removed;
		count_add(query->roles->inbox_purged, removed);
	}
	if (removed < PURGE_PAGE && (retention->at_letters || !query->roles->settings.dead_letter_retention_ms)) {
		retention_end(retention);
		return;
	}
	retention->at_letters |= removed < PURGE_PAGE;
	retention_pause(retention);
}

static void retention_begin(struct pins *pins, bool ok)
{
	struct retention *retention = container_of(pins, struct retention, pins);

	if (ok)
		retention_find(retention);
	else
		lease_round_done(retention->lease);
}

static void retention_run(struct role_work *work)
{
	struct retention *retention = container_of(work, struct retention, work);

	retention->after = ID_NONE;
	retention->last_page = retention->purging = retention->at_letters = false;
	retention->instances = retention->inbox = retention->letters = 0;
	pins_begin(&retention->pins, retention_begin);
}

void retention_init(struct retention *retention, struct roles *roles, struct lease *lease)
{
	*retention = (struct retention){.work.run = retention_run, .lease = lease};
	role_query_init(&retention->find, roles, retention_found);
	role_query_init(&retention->remove, roles, retention_removed);
	role_query_init(&retention->purge, roles, retention_purged);
	pins_init(&retention->pins, roles);
	loop_timer_init(&retention->pause, roles->loop, retention_next);
}

void retention_done(struct retention *retention)
{
	pins_done(&retention->pins);
	role_query_done(&retention->find);
	role_query_done(&retention->remove);
	role_query_done(&retention->purge);
}
