/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instance sweeper: claims of replicas that have died are cleared once they are older than instance.claim-timeout. A
 * claimer takes such a claim over anyhow; the sweep is for instances that nobody asks for, and for people who look.
 *
 * It walks the primary key in pages, for there is no index on claims: it would cost every step more than the sweep costs
 * once a minute. Each round begins with the leases of keepers that are long gone: every start of a replica leaves one.
 * Whose claim it is does not matter; a slow owner that is still alive is stopped by the fence (G3).
 */
#include "base/log.h"
#include "base/time.h"
#include "roles/internal.h"

#define PAGE 1000
/* Long after what such a replica kept was taken over. */
#define KEEPER_LEASES_MS INT64_C(86400000)

static void sweeper_page(struct sweeper *sweeper)
{
	struct role_query *query = &sweeper->query;

	if (!lease_is_good(sweeper->lease)) {
		lease_round_done(sweeper->lease);
		return;
	}
	role_query_begin(query, STATEMENT_CLAIM_SWEEP);
	role_query_id(query, 0, sweeper->after);
	role_query_int(query, 1, PAGE);
	role_query_int(query, 2, query->roles->settings.claim_timeout_ms);
	role_query_send(query, true, false, true);
}

static void sweeper_answered(struct role_query *query)
{
	struct sweeper *sweeper = container_of(query, struct sweeper, query);
	const struct rows *rows = &query->call.rows;
	struct log_about about = {.stage = "roles"};

	if (query->query.base.outcome != STORE_OK) {
		log_warning(&about, "the sweep for silent claims stops until its next turn: %s",
			    query->query.base.error.text);
		lease_round_done(sweeper->lease);
		return;
	}
	sweeper->cleared += (uint64_t)rows_at(rows, 0, 1)->i;
	count_add(query->roles->claims_swept, rows_at(rows, 0, 1)->i);
	if (rows_at(rows, 0, 0)->i == PAGE && !rows_at(rows, 0, 2)->is_null) {
		sweeper->after = rows_at(rows, 0, 2)->id;
		if (!query->roles->stopping) {
			loop_timer_start(&sweeper->pause, PAGE_PAUSE_US);
			return;
		}
	}
	if (sweeper->cleared)
		log_warning(&about, "cleared %llu silent claims: a replica has died or is stuck",
			    (unsigned long long)sweeper->cleared);
	lease_round_done(sweeper->lease);
}

/* Whether it went well or not: the next round tries again. */
static void sweeper_tidied(struct role_query *query)
{
	sweeper_page(container_of(query, struct sweeper, tidy));
}

static void sweeper_run(struct role_work *work)
{
	struct sweeper *sweeper = container_of(work, struct sweeper, work);

	sweeper->after = ID_NONE;
	sweeper->cleared = 0;
	role_query_begin(&sweeper->tidy, STATEMENT_LEASE_PURGE);
	role_query_text(&sweeper->tidy, 0, "keeper:");
	role_query_int(&sweeper->tidy, 1, KEEPER_LEASES_MS);
	role_query_send(&sweeper->tidy, false, false, true);
}

static void sweeper_next(struct loop_timer *timer)
{
	sweeper_page(container_of(timer, struct sweeper, pause));
}

void sweeper_init(struct sweeper *sweeper, struct roles *roles, struct lease *lease)
{
	*sweeper = (struct sweeper){.work.run = sweeper_run, .lease = lease};
	role_query_init(&sweeper->tidy, roles, sweeper_tidied);
	role_query_init(&sweeper->query, roles, sweeper_answered);
	loop_timer_init(&sweeper->pause, roles->loop, sweeper_next);
}

void sweeper_done(struct sweeper *sweeper)
{
	role_query_done(&sweeper->tidy);
	role_query_done(&sweeper->query);
}
