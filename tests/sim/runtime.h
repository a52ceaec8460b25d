/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated runtime: processes with their loops and main functions, one clock, one source of chance, one thread.
 *
 * The scheduler takes one thing at a time: the next task of some loop, the due timers of some loop, or a main function whose
 * wait is over; which, is drawn from the seed. The order within a loop is kept, that between loops is not. Time stands
 * still while anything can run, then jumps to the next timer.
 *
 * Main functions run on stacks of their own, so that any number of them may wait (loop_wait, loop_call, loop_stop) while
 * the rest of the world goes on. A killed process simply never runs again: its memory is left behind, as kill -9 leaves
 * behind what it had not sent.
 *
 * Life cycle: sim_new, process_new, sim_step …, sim_free. Nothing that a killed process has made is freed.
 * Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_RUNTIME_H
#define SUTRA_TESTS_SIM_RUNTIME_H

#include <stdio.h>

#include "base/buf.h"
#include "base/thread.h"

struct sim;
struct process;

/* --- the world --- */

/* `out`: where the event log is printed; NULL: nowhere, it only enters the digest. */
struct sim *sim_new(uint64_t seed, FILE *out);
void sim_free(struct sim **sim);

int64_t sim_now_us(const struct sim *sim);
uint64_t sim_random(struct sim *sim);
/* Uniform in [0, bound); bound ≥ 1. */
uint64_t sim_below(struct sim *sim, uint64_t bound);
/* Uniform in [least, most]. */
int64_t sim_between(struct sim *sim, int64_t least, int64_t most);
/* True in `per_million` of a million cases. */
bool sim_chance(struct sim *sim, uint32_t per_million);
/* Between least and most, mostly near least, with a long tail: latencies. */
int64_t sim_latency(struct sim *sim, int64_t least_us, int64_t most_us);

/* The loop of what happens outside of every process: brokers, the database, faults. Never paused or killed. */
struct loop *sim_world(struct sim *sim);

/* Runs the next thing; false when a failure was noted. */
bool sim_step(struct sim *sim);
/* Steps until `until(arg)` (true), or `deadline_us` is reached or something failed (false). */
bool sim_run(struct sim *sim, bool (*until)(void *arg), void *arg, int64_t deadline_us);
/* How many things have run. */
uint64_t sim_steps(const struct sim *sim);

/* A line of the event log. */
void sim_note(struct sim *sim, const char *fmt, ...) PRINTF_LIKE(2, 3);
uint64_t sim_digest(const struct sim *sim);
/* Notes that a promise was broken; the first one is kept. */
void sim_fail(struct sim *sim, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* NULL while all is well. */
const char *sim_failure(const struct sim *sim);

/* --- processes --- */

/* `main_fn(arg)` begins with the next steps. */
struct process *process_new(struct sim *sim, const char *name, void (*main_fn)(void *arg),
			    void *arg);
struct runtime *process_runtime(struct process *process);
const char *process_name(const struct process *process);
/* From now on nothing of it runs. */
void process_kill(struct process *process);
bool process_is_dead(const struct process *process);
/* Whether its main function has returned. */
bool process_has_ended(const struct process *process);
/* Stops it (as SIGSTOP does) until then. */
void process_pause(struct process *process, int64_t until_us);
bool process_is_paused(const struct process *process);
void process_shift_wall(struct process *process, int64_t by_us);
struct process *process_of_loop(struct loop *loop);
/* Whether this loop is the one whose task is running: for the rules about threads. */
bool sim_is_on(struct loop *loop);

#endif
