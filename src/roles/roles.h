/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roles: work that one replica at a time does for all, under a lease row in the engine's own database: the sweep of stale
 * claims (`instance-sweeper`), the removal of what is past its retention (`retention-sweeper`), and timers (`timer-leader`). Two things every replica does
 * for itself: the stall check of the lanes, and the lease `keeper:<boot id>`, which says that it lives to the others; once that runs
 * out they take over the messages that the database keeps for it.
 *
 * Life cycle: roles_new, roles_start, roles_stop (gives the leases up), roles_free. Threads: main; all work on one loop.
 */
#ifndef SUTRA_ROLES_ROLES_H
#define SUTRA_ROLES_ROLES_H

#include "base/histogram.h"
#include "base/thread.h"
#include "flow/lane_set.h"
#include "store/store.h"

struct roles;

struct roles_settings {
	const char *holder; /* boot id */
	int64_t lease_ttl_ms, lease_poll_ms;
	int64_t keeper_ttl_ms; /* of the lease `keeper:<holder>`; 0 = it keeps no messages */
	int64_t claim_timeout_ms, sweep_interval_ms;
	int64_t instance_retention_ms, retention_interval_ms, inbox_retention_ms;
	int64_t dead_letter_retention_ms; /* 0 = for ever */
	int64_t timer_tick_ms;	          /* 0 = this replica never leads timers */
	int64_t backoff_min_ms, backoff_max_ms; /* of refused timers */
};

struct roles *roles_new(struct runtime *runtime, struct store *store, struct lane_set *lanes,
			const struct roles_settings *settings);
/* Whose start timers it arms when it leads timers; takes a reference. Before roles_start and whenever lanes are flipped. @thread main */
void roles_view(struct roles *roles, struct view *view);
void roles_start(struct roles *roles);
/* False: something is still out at the lanes or the store. */
bool roles_stop(struct roles *roles);
/* @thread any. After roles_stop: whether all answers have come. */
bool roles_are_idle(const struct roles *roles);
void roles_free(struct roles **roles);

struct roles_stats {
	struct {
		const char *role;
		bool held;
		int64_t term;
	} leases[5];
	uint32_t lease_count;
	uint64_t claims_swept, instances_purged, inbox_purged, dead_letters_purged;
	/* How timers ended, start timers among them. */
	struct {
		uint64_t committed, refused, stale, rejected, unavailable;
		const struct histogram *lateness; /* due to committed; lives as long as the roles */
	} timers;
};
/* @thread any */
void roles_stats_read(struct roles *roles, struct roles_stats *out);

#endif
