/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two files of the checker share. Life cycle and threads: as checker.h.
 */
#ifndef SUTRA_TESTS_SIM_CHECKER_PRIVATE_H
#define SUTRA_TESTS_SIM_CHECKER_PRIVATE_H

#include "base/map.h"
#include "store/store.h"
#include "tests/sim/checker.h"

struct seen_instance {
	int64_t version;
};

/* A message that a commit has asked to be sent. */
struct seen_send {
	struct id instance;
	char channel[32];
	int64_t version, ordinal;
	uint32_t copies; /* on its topic */
};

struct checker {
	struct sim *sim;
	struct load *load;
	struct sim_cluster *cluster;
	struct sim_database *database;
	struct map inbox_keys; /* inbox key → load_event */
	struct map instances;  /* id → seen_instance */
	struct map sends;      /* outbox key → seen_send */
	uint64_t commits;
};

/* NULL: a record of nobody's. */
struct load_event *checker_event_of(struct checker *checker, const char *topic, int32_t partition,
				    int64_t offset);

#endif
