/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random work about sessions and pools on PostgreSQL, by several replicas at once, and bugs to be planted into it.
 *
 * Life cycle: of one test. Threads: an actor is one thread's; `stop` is set by any.
 */
#ifndef SUTRA_TESTS_FLOW_POOLS_RANDOM_H
#define SUTRA_TESTS_FLOW_POOLS_RANDOM_H

#include "tests/flow/pg_fixture.h"
#include "tests/support/store_suite.h"

#define ACTORS	  3
#define INSTANCES 14 /* of an actor, at once */
#define POOLS	  3
#define CHANNEL_LIMIT 11
#define TENANT_LIMIT  12

/* What is wrong with the segments that reach the database. */
enum pools_bug {
	BUG_NONE,
	BUG_NO_POOL_LOCK,      /* who takes does not lock the pool */
	BUG_COUNT_BEFORE_LOCK, /* who takes has counted before the lock was there */
	BUG_NO_CAP_LOCK,
	BUG_NO_SESSION_LOCK, /* who ends does not lock the session */
	BUG_NO_UNPOOL,	     /* rows that wait are not told of the end */
	BUG_SLOTS_BEFORE_END, /* slots are looked for before the end is there */
	BUG_COUNT
};
/* Takes the executor; runs what it is given with the bug in it. */
struct executor *pools_bug_new(struct executor *inner, enum pools_bug bug);

/* The names of the pools; the database has them. */
extern const char *const pools_names[POOLS];

/* One replica and what it works on. */
struct pools_actor {
	uint32_t index;
	uint64_t random; /* never 0 */
	const struct pools_actor *all;
	const bool *stop; /* atomic */
	struct store_rig rig;
	struct pools_instance {
		uint32_t number; /* of its id; 0 = there is none */
		int64_t version;
		uint32_t calls; /* so many were made */
	} instances[INSTANCES];
	uint32_t next_number;
	/* What was done. */
	uint64_t spawns, full, steps, ends, grants, unchecked, rounds;
};
/* Works until `stop`. */
void *pools_actor_run(void *actor);
/* Ends every session that it knows of. */
void pools_actor_end(struct pools_actor *actor);

#endif
