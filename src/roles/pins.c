/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which deployments unfinished work still needs. To ask the database would be to read all of its instances, and a count kept by the steps
 * would be a row that all of them wait for. But the retention sweeper passes by every instance anyway:
 *
 *	round begins: what deployments there are → instances, as they are passed → the outbox, a page at a time → written
 *
 * Instances come first, for a step that ends one may leave messages behind. A deployment that was draining when the round began, and that
 * nothing was seen to need, is Retired; the next start of a replica leaves it out. A Retired one of which something was seen is
 * draining again: a replica that did not know better has begun it since.
 */
#include "base/log.h"
#include "base/time.h"
#include "roles/internal.h"

#define OUTBOX_PAGE 1000

static const struct log_about about_pins = {.stage = "roles"};

static bool failed(struct pins *pins, const struct role_query *query)
{
	if (query->query.base.outcome == STORE_OK)
		return false;
	log_warning(&about_pins, "which deployments are needed remains unknown until the next sweep: %s", query->query.base.error.text);
	pins->then(pins, false);
	return true;
}

/* --- the beginning --- */

/* Of these no work is begun any more, where it is known. */
static bool is_leaving(struct str phase)
{
	return str_equal(phase, str_of(deployment_phase_name(DEPLOYMENT_DRAINING))) ||
	       str_equal(phase, str_of(deployment_phase_name(DEPLOYMENT_FAILED)));
}

static void pins_listed(struct role_query *query)
{
	struct pins *pins = container_of(query, struct pins, list);
	const struct rows *rows = &query->call.rows;

	if (failed(pins, query))
		return;
	pins->pins = arena_zalloc(&pins->arena, (rows->row_count + 1) * sizeof(*pins->pins));
	for (pins->count = 0; pins->count < rows->row_count; pins->count++)
		pins->pins[pins->count] = (struct pin){
			.id = arena_str(&pins->arena, rows_at(rows, pins->count, 0)->str),
			.leaving = is_leaving(rows_at(rows, pins->count, 4)->str),
		};
	pins->then(pins, true);
}

void pins_begin(struct pins *pins, void (*then)(struct pins *pins, bool ok))
{
	arena_reset(&pins->arena);
	pins->count = 0;
	pins->then = then;
	role_query_begin(&pins->list, STATEMENT_DEPLOYMENT_LIST);
	role_query_send(&pins->list, false, false, false);
}

void pins_see(struct pins *pins, struct str deployment)
{
	for (uint32_t i = 0; i < pins->count; i++)
		if (str_equal(pins->pins[i].id, deployment))
			pins->pins[i].seen = true;
}

/* --- the end --- */

static void pins_written(struct role_query *query)
{
	struct pins *pins = container_of(query, struct pins, write);
	const struct rows *rows = &query->call.rows;

	if (failed(pins, query))
		return;
	for (uint32_t i = 0; i < rows->row_count; i++)
		log_info(&about_pins, "deployment %.*s is %.*s: that is what unfinished work needs of it",
			 STR_ARG(rows_at(rows, i, 0)->str), STR_ARG(rows_at(rows, i, 1)->str));
	pins->then(pins, true);
}

/* Of what was not seen only what was leaving is certain: of others work may have begun meanwhile, behind our back. */
static void pins_write(struct pins *pins)
{
	struct role_query *query = &pins->write;
	struct str *ids;
	bool *seen;
	uint32_t count = 0;

	role_query_begin(query, STATEMENT_DEPLOYMENT_PINS);
	ids = arena_alloc(&query->arena, (pins->count + 1) * sizeof(*ids));
	seen = arena_alloc(&query->arena, (pins->count + 1) * sizeof(*seen));
	for (uint32_t i = 0; i < pins->count; i++) {
		if (!pins->pins[i].seen && !pins->pins[i].leaving)
			continue;
		ids[count] = pins->pins[i].id;
		seen[count++] = pins->pins[i].seen;
	}
	if (!count) {
		pins->then(pins, true);
		return;
	}
	query->params[0] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = ids};
	query->params[1] = (struct column){.type = COLUMN_BOOL, .count = count, .bools = seen};
	role_query_send(query, false, false, true);
}

/* Behind this row; its fields are copied. */
static void pins_outbox(struct pins *pins, struct id instance, struct str channel, int64_t version, int64_t ordinal)
{
	struct role_query *query = &pins->outbox;
	struct str kept = arena_str(&pins->arena, channel);

	role_query_begin(query, STATEMENT_OUTBOX_PINS);
	role_query_id(query, 0, instance);
	query->params[1] = column_scalar_text(&query->arena, kept);
	role_query_int(query, 2, version);
	role_query_int(query, 3, ordinal);
	role_query_int(query, 4, OUTBOX_PAGE);
	role_query_send(query, true, false, false);
}

static void pins_outbox_answered(struct role_query *query)
{
	struct pins *pins = container_of(query, struct pins, outbox);
	const struct rows *rows = &query->call.rows;
	uint32_t last;

	if (failed(pins, query))
		return;
	assert(rows->row_count > 0);
	last = rows->row_count - 1;
	for (uint32_t i = 0; i < last; i++)
		pins_see(pins, rows_at(rows, i, 0)->str);
	if (rows_at(rows, last, 1)->is_null)
		pins_write(pins);
	else if (pins->roles->stopping)
		pins->then(pins, false);
	else
		loop_timer_start(&pins->pause, PAGE_PAUSE_US);
}

static void pins_outbox_next(struct loop_timer *timer)
{
	struct pins *pins = container_of(timer, struct pins, pause);
	const struct rows *rows = &pins->outbox.call.rows;
	const struct field *end = rows_at(rows, rows->row_count - 1, 0);

	if (pins->roles->stopping)
		pins->then(pins, false);
	else
		pins_outbox(pins, end[1].id, end[2].str, end[3].i, end[4].i);
}

void pins_end(struct pins *pins, void (*then)(struct pins *pins, bool ok))
{
	pins->then = then;
	pins_outbox(pins, ID_NONE, STR(""), 0, 0);
}

void pins_init(struct pins *pins, struct roles *roles)
{
	*pins = (struct pins){.roles = roles};
	arena_init(&pins->arena);
	role_query_init(&pins->list, roles, pins_listed);
	role_query_init(&pins->outbox, roles, pins_outbox_answered);
	role_query_init(&pins->write, roles, pins_written);
	loop_timer_init(&pins->pause, roles->loop, pins_outbox_next);
}

void pins_done(struct pins *pins)
{
	role_query_done(&pins->list);
	role_query_done(&pins->outbox);
	role_query_done(&pins->write);
	arena_done(&pins->arena);
}
