/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: one row a role in the database says who leads. A replica asks at its start and then at every poll; the same
 * statement takes a free lease, renews one's own, or learns who has it.
 *
 * Nobody tells a leader that it is none any more, so it goes by its own clock: what it may do under a lease ends a tenth of
 * the ttl before the lease does, counted from the moment *before* the renewal was asked for. The database counts from a
 * later moment, so the next leader begins after the last one has stopped, whatever the answer took; the tenth is for clocks
 * that run at different speeds. The clock is the loop's, which goes on while a machine sleeps.
 */
#include "base/log.h"
#include "base/time.h"
#include "roles/internal.h"

static int64_t lease_life_us(const struct lease *lease)
{
	return lease->ttl_ms * US_PER_MS / 10 * 9;
}

/* A holder asks often enough to get two tries; and so soon is a dead one's lease taken. */
static int64_t lease_poll_us(const struct lease *lease)
{
	int64_t poll_ms = lease->roles->settings.lease_poll_ms, third_ms = lease->ttl_ms / 3;

	return (poll_ms < third_ms ? poll_ms : third_ms) * US_PER_MS;
}

bool lease_is_good(const struct lease *lease)
{
	return lease->held && !lease->roles->stopping &&
	       loop_now_us(lease->roles->loop) < lease->good_until_us;
}

static void lease_ask(struct lease *lease)
{
	if (lease->query.busy)
		return;
	lease->asked_us = loop_now_us(lease->roles->loop);
	role_query_begin(&lease->query, STATEMENT_LEASE_ACQUIRE);
	role_query_text(&lease->query, 0, lease->role);
	role_query_text(&lease->query, 1, lease->roles->settings.holder);
	role_query_int(&lease->query, 2, lease->ttl_ms);
	role_query_send(&lease->query, false, true, true);
}

static void lease_gained(struct lease *lease, int64_t term)
{
	struct log_about about = {.stage = "roles"};

	__atomic_store_n(&lease->term, term, __ATOMIC_RELAXED);
	__atomic_store_n(&lease->held, true, __ATOMIC_RELEASE);
	log_info(&about, "leading %s, term %lld", lease->role, (long long)term);
	if (!lease->in_round && lease->work)
		loop_timer_start(&lease->next_round, 0);
}

static void lease_lost(struct lease *lease, const char *why)
{
	struct log_about about = {.stage = "roles", .code = CODE_LEADERSHIP_LOST};

	__atomic_store_n(&lease->held, false, __ATOMIC_RELEASE);
	loop_timer_stop(&lease->expiry);
	loop_timer_stop(&lease->next_round);
	log_warning(&about, "no longer leading %s: %s", lease->role, why);
}

static void lease_acquired(struct lease *lease, int64_t term)
{
	int64_t until_us = lease->asked_us + lease_life_us(lease),
		now_us = loop_now_us(lease->roles->loop);

	/* Confirmed so late that nothing is left of it: the next poll has another try. */
	if (until_us <= now_us)
		return;
	/* Another term: somebody else led in between, without our noticing. */
	if (lease->held && lease->term != term)
		lease_lost(lease, "another replica led in between");
	lease->good_until_us = until_us;
	loop_timer_start(&lease->expiry, until_us - now_us);
	if (!lease->held)
		lease_gained(lease, term);
}

static void lease_answered(struct role_query *query)
{
	struct lease *lease = container_of(query, struct lease, query);
	const struct rows *rows = &query->call.rows;
	struct roles *roles = lease->roles;
	char why[200];

	if (lease->releasing) {
		lease->releasing = false;
		__atomic_store_n(&lease->held, false, __ATOMIC_RELEASE);
		return;
	}
	if (query->query.base.outcome == STORE_OK && rows->row_count == 1) {
		if (rows_at(rows, 0, 0)->b) {
			/* While stopping it is only remembered, to be let go of. */
			if (roles->stopping)
				__atomic_store_n(&lease->held, true, __ATOMIC_RELEASE);
			else
				lease_acquired(lease, rows_at(rows, 0, 1)->i);
		} else if (lease->held) {
			snprintf(why, sizeof(why), "%.*s holds it",
				 STR_ARG(rows_at(rows, 0, 2)->str));
			lease_lost(lease, why);
		}
	}
	if (roles->stopping)
		lease_stop(lease);
	else
		loop_timer_start(&lease->poll, lease_poll_us(lease));
}

static void lease_poll(struct loop_timer *timer)
{
	lease_ask(container_of(timer, struct lease, poll));
}

static void lease_expired(struct loop_timer *timer)
{
	struct lease *lease = container_of(timer, struct lease, expiry);

	if (lease->held)
		lease_lost(lease, "it could not be renewed in time");
}

static void lease_next_round(struct loop_timer *timer)
{
	struct lease *lease = container_of(timer, struct lease, next_round);

	if (!lease_is_good(lease) || lease->in_round)
		return;
	lease->in_round = true;
	lease->work->run(lease->work);
}

void lease_round_done(struct lease *lease)
{
	lease->in_round = false;
	if (lease->roles->stopping)
		lease_stop(lease);
	else if (lease_is_good(lease))
		loop_timer_start(&lease->next_round, lease->interval_ms * US_PER_MS);
}

void lease_init(struct lease *lease, struct roles *roles, const char *role, int64_t ttl_ms,
		int64_t interval_ms, struct role_work *work)
{
	*lease = (struct lease){
		.roles = roles, .role = role, .ttl_ms = ttl_ms, .interval_ms = interval_ms, .work = work};
	loop_timer_init(&lease->poll, roles->loop, lease_poll);
	loop_timer_init(&lease->expiry, roles->loop, lease_expired);
	loop_timer_init(&lease->next_round, roles->loop, lease_next_round);
	role_query_init(&lease->query, roles, lease_answered);
}

void lease_done(struct lease *lease)
{
	role_query_done(&lease->query);
}

void lease_start(struct lease *lease)
{
	lease_ask(lease);
}

void lease_stop(struct lease *lease)
{
	loop_timer_stop(&lease->poll);
	loop_timer_stop(&lease->expiry);
	loop_timer_stop(&lease->next_round);
	/* An ask under way might take it again behind the release, and a page under way is still our leading: first their
	 * answers. */
	if (lease->query.busy || lease->in_round || !lease->held)
		return;
	lease->releasing = true;
	role_query_begin(&lease->query, STATEMENT_LEASE_RELEASE);
	role_query_text(&lease->query, 0, lease->role);
	role_query_text(&lease->query, 1, lease->roles->settings.holder);
	role_query_send(&lease->query, false, true, true);
}
