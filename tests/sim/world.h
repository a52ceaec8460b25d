/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run: a seed decides on everything, replicas of the real service work through a load while things break, then all
 * calms down, settles and stops, and the checker has its say.
 *
 * Life cycle: world_run is self-contained but for what killed replicas leave behind, so a process should not run very many.
 * Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_WORLD_H
#define SUTRA_TESTS_SIM_WORLD_H

#include <stdio.h>

#include "model/deployment.h"

/* Bugs that can be planted, to see that the checker finds them. */
#define WORLD_BUGS(X) \
	X(NO_FENCE, "no-fence") \
	X(ACK_BEFORE_COMMIT, "ack-before-commit") \
	X(OFFSET_PAST_HOLE, "offset-past-hole") \
	X(CONFIRM_EARLY, "outbox-delete-before-confirm") \
	X(RELEASE_EARLY, "release-outside-transaction") \
	X(AMQP_ACK_BEFORE_COMMIT, "amqp-ack-before-commit") \
	X(AMQP_ACK_PAST_HOLE, "amqp-ack-past-hole") \
	X(AMQP_CONFIRM_EARLY, "amqp-outbox-delete-before-confirm") \
	X(EARLY_NO_LOOK, "early-nobody-looks") \
	X(EARLY_LOOK_INSIDE, "early-look-inside-the-commit") \
	X(EARLY_NO_LAST_LOOK, "early-no-last-look") \
	X(TIMER_EAGER, "timer-before-its-time") \
	X(TIMER_LOST, "timer-not-set") \
	X(TIMER_STAYS, "timer-not-removed") \
	X(SCHEDULE_STAYS, "start-timer-not-moved-on") \
	X(TARGET_LOST, "target-lost") \
	X(TARGET_STAYS, "target-not-removed") \
	X(ALIAS_LOST, "unique-alias-not-held")

enum world_bug {
	BUG_NONE,
#define X(name, text) BUG_##name,
	WORLD_BUGS(X)
#undef X
		BUG_COUNT
};
const char *world_bug_name(enum world_bug bug);

struct world_options {
	uint64_t seed;
	struct view *view;
	FILE *out;  /* the event log; NULL: nowhere */
	bool debug; /* with the debug lines of the service's own log: another digest */
	enum world_bug bug;
};

/* What happened; a ring in which one of these never does proves less than it says. */
#define WORLD_COUNTS(X) \
	X(kills) \
	X(pauses) \
	X(stops) \
	X(commits) \
	X(cuts) \
	X(doubts) \
	X(terminated) \
	X(locks) \
	X(fenced) \
	X(restarts) \
	X(lost_commits) \
	X(rebalances) \
	X(evictions) \
	X(redelivered) \
	X(commit_failures) \
	X(produce_failures) \
	X(claims_by_hand) \
	X(kept) \
	X(early_met) \
	X(timers) \
	X(reminders) \
	X(ticks) \
	X(ticks_coalesced) \
	X(targets) \
	X(targets_passed) \
	X(alias_conflicts) \
	X(failures) \
	X(restores) \
	X(deliveries) \
	X(deliveries_again) \
	X(acks) \
	X(given_back) \
	X(confirms) \
	X(confirms_nacked) \
	X(confirms_never) \
	X(returns) \
	X(rabbit_cuts) \
	X(rabbit_restarts) \
	X(channels_closed) \
	X(consumers_cancelled) \
	X(queues_deleted) \
	X(alarms) \
	X(unconfirmed_lost)

struct world_counts {
#define X(name) uint64_t name;
	WORLD_COUNTS(X)
#undef X
};

struct world_result {
	uint64_t digest;
	uint64_t steps;
	int64_t simulated_us;
	char failure[600]; /* empty: none */
	uint64_t most_refused; /* claims of one instance that one replica was refused within a second */
	struct world_counts counts;
	int replicas, orders, records;
};

void world_run(const struct world_options *options, struct world_result *result);

/* tests/sim/data/orders; exits with a message if it is not as it should be. */
struct view *world_view_load(void);

#endif
