/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody who claims instances in the database by hand, looks at them for a while and lets go: for the replicas a foreign owner
 * that lives, which they must leave alone until its claim is too old.
 *
 * Life cycle: operator_begin, operator_stop (gives everything back), operator_done. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_OPERATOR_H
#define SUTRA_TESTS_SIM_OPERATOR_H

#include "tests/sim/database.h"

#define OPERATOR_HANDS 3

struct operator_hand {
	struct sim_operator *op;
	char owner[16];
	struct id instance;
	bool holds;
	struct loop_timer timer;
};

struct sim_operator {
	struct sim *sim;
	struct sim_database *database;
	struct operator_hand hands[OPERATOR_HANDS];
	uint32_t hand_count;
	bool stopped;
	uint64_t claims;
};

void operator_begin(struct sim_operator *op, struct sim *sim, struct sim_database *database,
		    uint32_t hands);
void operator_stop(struct sim_operator *op);
void operator_done(struct sim_operator *op);

#endif
