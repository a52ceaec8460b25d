/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The roles of a replica, put together: a lease for each, the work under it, and the stall check of the lanes, which needs
 * no lease.
 *
 * At a stop the leases are given up, each after what it still has out at the store was answered, so that another replica
 * takes over at its next poll instead of waiting for the ttl.
 */
#include "roles/roles.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "roles/timers.h"

#define STALL_CHECK_US  US_PER_S
#define STOP_TIMEOUT_MS 5000
/* Timers are to go on within fifteen seconds of their leader's death. */
#define TIMER_LEASE_TTL_MS 10000

static const struct log_about about_roles = {.stage = "roles"};

static void roles_check_lanes(struct loop_timer *timer)
{
	struct roles *roles = container_of(timer, struct roles, stall);
	struct log_about about = {.stage = "roles", .code = CODE_RUNTIME_UNEXPECTED};
	uint32_t dead = lane_set_check(roles->lanes, loop_now_us(roles->loop));

	if (dead > roles->dead_lanes)
		log_error(&about,
			  "%u of %u lanes are dead: this replica is unhealthy and has to be "
			  "restarted",
			  dead, roles->lanes->settings.lanes);
	roles->dead_lanes = dead;
	loop_timer_start(&roles->stall, STALL_CHECK_US);
}

struct roles *roles_new(struct runtime *runtime, struct store *store, struct lane_set *lanes,
			const struct roles_settings *settings)
{
	struct roles *roles = mem_zalloc(sizeof(*roles));

	roles->settings = *settings;
	roles->settings.holder = mem_strdup(settings->holder);
	roles->store = store;
	roles->lanes = lanes;
	roles->loop = loop_start(runtime, "roles");
	snprintf(roles->keeper_role, sizeof(roles->keeper_role), "keeper:%s", settings->holder);
	lease_init(&roles->sweep_lease, roles, "instance-sweeper", settings->lease_ttl_ms,
		   settings->sweep_interval_ms, &roles->sweeper.work);
	lease_init(&roles->retention_lease, roles, "retention-sweeper", settings->lease_ttl_ms,
		   settings->retention_interval_ms, &roles->retention.work);
	roles->timers = mem_zalloc(sizeof(*roles->timers));
	lease_init(&roles->timer_lease, roles, "timer-leader",
		   settings->lease_ttl_ms < TIMER_LEASE_TTL_MS ? settings->lease_ttl_ms : TIMER_LEASE_TTL_MS, settings->timer_tick_ms,
		   &roles->timers->work);
	lease_init(&roles->keeper_lease, roles, roles->keeper_role, settings->keeper_ttl_ms, 0, NULL);
	sweeper_init(&roles->sweeper, roles, &roles->sweep_lease);
	retention_init(&roles->retention, roles, &roles->retention_lease);
	timers_init(roles->timers, roles, &roles->timer_lease);
	loop_timer_init(&roles->stall, roles->loop, roles_check_lanes);
	return roles;
}

static void start_on_loop(void *arg)
{
	struct roles *roles = arg;

	roles->started = true;
	lease_start(&roles->sweep_lease);
	lease_start(&roles->retention_lease);
	if (roles->settings.keeper_ttl_ms)
		lease_start(&roles->keeper_lease);
	if (roles->settings.timer_tick_ms && roles->lanes)
		lease_start(&roles->timer_lease);
	if (roles->lanes)
		roles_check_lanes(&roles->stall);
}

void roles_start(struct roles *roles)
{
	loop_call(roles->loop, start_on_loop, roles);
}

struct roles_flip {
	struct roles *roles;
	struct view *view;
};

static void flip_on_loop(void *arg)
{
	struct roles_flip *flip = arg;

	schedules_flip(&flip->roles->timers->schedules, flip->view);
}

void roles_view(struct roles *roles, struct view *view)
{
	struct roles_flip flip = {roles, view};

	loop_call(roles->loop, flip_on_loop, &flip);
}

void roles_check_idle(struct roles *roles)
{
	if (roles->stopping && roles->queries_out == 0)
		__atomic_store_n(&roles->idle, true, __ATOMIC_RELEASE);
}

/* A round that rests between two pages ends here; one with a page under way ends with its answer. */
static void stop_pause(struct loop_timer *pause, struct lease *lease)
{
	if (!loop_timer_is_started(pause))
		return;
	loop_timer_stop(pause);
	lease_round_done(lease);
}

static void stop_on_loop(void *arg)
{
	struct roles *roles = arg;

	if (roles->stopping)
		return;
	roles->stopping = true;
	loop_timer_stop(&roles->stall);
	stop_pause(&roles->sweeper.pause, &roles->sweep_lease);
	stop_pause(&roles->retention.pause, &roles->retention_lease);
	lease_stop(&roles->sweep_lease);
	lease_stop(&roles->retention_lease);
	timers_go(roles->timers);
	lease_stop(&roles->timer_lease);
	lease_stop(&roles->keeper_lease);
	roles_check_idle(roles);
}

bool roles_are_idle(const struct roles *roles)
{
	return __atomic_load_n(&roles->idle, __ATOMIC_ACQUIRE);
}

static bool idle(void *arg)
{
	return roles_are_idle(arg);
}

bool roles_stop(struct roles *roles)
{
	loop_call(roles->loop, stop_on_loop, roles);
	if (loop_wait(roles->loop->runtime, idle, roles, STOP_TIMEOUT_MS))
		return true;
	log_warning(&about_roles, "the leases could not be given up; they end by themselves");
	return false;
}

void roles_free(struct roles **address)
{
	struct roles *roles = *address;

	*address = NULL;
	if (!roles)
		return;
	assert(!roles->started || roles->stopping);
	/* What a stop did not wait for any longer was answered by the store's own; the loop must live to take it. */
	while (roles->started &&
	       !loop_wait(roles->loop->runtime, idle, roles, STOP_TIMEOUT_MS))
		log_warning(&about_roles, "the database takes long to answer");
	loop_stop(&roles->loop);
	lease_done(&roles->sweep_lease);
	lease_done(&roles->retention_lease);
	lease_done(&roles->keeper_lease);
	lease_done(&roles->timer_lease);
	timers_done(roles->timers);
	free(roles->timers);
	sweeper_done(&roles->sweeper);
	retention_done(&roles->retention);
	free((char *)roles->settings.holder);
	free(roles);
}

static void stats_lease(struct roles_stats *out, struct lease *lease)
{
	uint32_t i = out->lease_count++;

	out->leases[i].role = lease->role;
	out->leases[i].held = __atomic_load_n(&lease->held, __ATOMIC_ACQUIRE);
	out->leases[i].term = __atomic_load_n(&lease->term, __ATOMIC_RELAXED);
}

void roles_stats_read(struct roles *roles, struct roles_stats *out)
{
	*out = (struct roles_stats){
		.claims_swept = __atomic_load_n(&roles->claims_swept, __ATOMIC_RELAXED),
		.instances_purged = __atomic_load_n(&roles->instances_purged, __ATOMIC_RELAXED),
		.inbox_purged = __atomic_load_n(&roles->inbox_purged, __ATOMIC_RELAXED),
		.dead_letters_purged = __atomic_load_n(&roles->dead_letters_purged, __ATOMIC_RELAXED),
	};
	out->timers.committed = __atomic_load_n(&roles->timers->committed, __ATOMIC_RELAXED);
	out->timers.refused = __atomic_load_n(&roles->timers->refused, __ATOMIC_RELAXED);
	out->timers.stale = __atomic_load_n(&roles->timers->stale, __ATOMIC_RELAXED);
	out->timers.rejected = __atomic_load_n(&roles->timers->rejected, __ATOMIC_RELAXED);
	out->timers.unavailable = __atomic_load_n(&roles->timers->unavailable, __ATOMIC_RELAXED);
	out->timers.lateness = &roles->timers->lateness;
	stats_lease(out, &roles->sweep_lease);
	stats_lease(out, &roles->retention_lease);
	if (roles->settings.keeper_ttl_ms)
		stats_lease(out, &roles->keeper_lease);
	if (roles->settings.timer_tick_ms)
		stats_lease(out, &roles->timer_lease);
}
