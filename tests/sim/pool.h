/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of many seeds in forked children, a few at a time: what killed replicas leave behind ends with the child, a crash is a
 * result, and every core has something to do.
 *
 * Life cycle: pool_run is self-contained. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_POOL_H
#define SUTRA_TESTS_SIM_POOL_H

#include "tests/sim/world.h"

struct pool_report {
	uint64_t seed;
	struct world_result result; /* a crash is a failure like any other */
};

struct pool_options {
	struct world_options world; /* of every run but the seed */
	uint64_t from, count;
	uint32_t workers;
	/* Called for each seed, in no order. False: enough. */
	bool (*report)(void *user, const struct pool_report *report);
	void *user;
};

void pool_run(const struct pool_options *options);

#endif
