/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated database: a server with backends, transactions and a log of what was committed, over the in-memory tables;
 * and executors that talk to it over connections that are slow, break, and leave commits in doubt.
 *
 * A segment runs in one piece, at a moment of the server's choosing between its sending and its answer. What may happen on
 * the way:
 *
 *	sent ──► arrived ──► committed or refused ──► answered
 *	  │         │                │
 *	  │ lost: not run, or in doubt and never arrives, or in doubt and arrives later
 *	            │ lost: in doubt; the backend goes on until it is terminated
 *	                             │ lost: in doubt; it has committed
 *
 * A restart loses every connection, aborts what runs, and takes back the last commits that nobody waited for (claims,
 * releases, deletes of outbox rows): the tables are made anew from the log without them. A failover also forgets the
 * outcomes of transactions.
 *
 * Life cycle: sim_database_new, executors from sim_executor_new, sim_database_free when nothing runs any more.
 * Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_DATABASE_H
#define SUTRA_TESTS_SIM_DATABASE_H

#include "store/executor.h"
#include "store/memory/tables.h"
#include "tests/sim/runtime.h"

struct sim_database;

struct sim_database_settings {
	int64_t latency_max_us;
	uint32_t cut_per_million; /* segments whose connection is lost under way */
	uint32_t
		lock_per_million; /* segments that meet locks: passed over, gated, or refused with 55P03 or 40P01 */
	/* Planted bugs. */
	bool no_fence;	    /* fences look at neither owner nor version */
	bool release_early; /* a claim is released in a transaction of its own, before that of its step */
	bool probe_blind;   /* who parks does not see what has come early */
	bool probe_inside;  /* he sees only what was there when he committed, as if he had looked inside his transaction */
	bool look_blind;    /* nor does who keeps it see who parks, though he looks */
	bool last_blind;    /* nor at the end of its hold */
	bool timer_eager;   /* timers count as due some seconds before they are */
	bool timer_lost;    /* a step's timer is not there */
	bool timer_stays;   /* and does not go */
	bool schedule_stays; /* a start timer is not moved on */
	bool target_lost; /* of several kept messages in one commit the last is not there */
	bool target_stays; /* the row of a target does not go with its effect */
	bool alias_lost; /* a unique alias is not there */
	/* Called right before a segment that writes, at the same instant. */
	void (*running)(void *user, const struct segment *segment);
	/* Called after each segment that wrote has committed, with its calls as they were sent. */
	void (*committed)(void *user, const struct process *process, const struct segment *segment);
	void *user;
};

struct sim_database *sim_database_new(struct sim *sim,
				      const struct sim_database_settings *settings);
void sim_database_free(struct sim_database **database);

/* One for a replica that runs as this process. */
struct executor *sim_executor_new(struct sim_database *database, struct process *process);

/* No more losses and refusals by themselves from now on. */
void sim_database_calm(struct sim_database *database);
/* The server goes down now and comes back after a while. */
void sim_database_restart(struct sim_database *database, int64_t down_us, bool failover);
/* Loses every connection of this process, or one of them. */
void sim_database_cut(struct sim_database *database, const struct process *process, bool all);
/* The process is gone: its backends notice when they next want to answer. */
void sim_database_forget(struct sim_database *database, const struct process *process);
void sim_database_shift_wall(struct sim_database *database, int64_t by_us);
/* The latest time that its clock has shown to anybody. */
int64_t sim_database_latest_us(const struct sim_database *database);
bool sim_database_is_up(const struct sim_database *database);

/* Runs a segment of nobody's replica at once. False: the server is down, or it did not commit. */
bool sim_database_run(struct sim_database *database, struct segment *segment);

/* The tables as they are now; until the next restart. */
struct memory_database *sim_database_tables(struct sim_database *database);

struct sim_database_stats {
	uint64_t segments, commits, doubts, cuts, locks, restarts, lost_commits, terminated, fenced, alias_conflicts;
};
const struct sim_database_stats *sim_database_stats(const struct sim_database *database);

#endif
