/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker: watches every commit, every offset, record, delivery and acknowledgement as they happen, and looks at everything
 * that is left at the end. It knows the load and the guarantees, and nothing of the engine. What the brokers' models find out
 * by themselves is in cluster.h and rabbit.h.
 *
 * While it runs: G1 no offset is committed past a record without its effect, dead letter or place among the kept messages, and
 * no delivery acknowledged; G3 versions grow by one, each commit on the version before and by the owner of the claim, which
 * goes with that commit and not before (G4); G7 nobody asks for a claim over and over; G8 deliveries for one instance on one
 * channel take effect in the order of their tags; G6 nothing is sent before its commit, first copies come in commit order per instance and
 * channel, no row goes before it was sent. At the end: every order has ended as it must, once (G5), with its messages
 * under one key each; dead letters are exactly those of what cannot succeed, whole and once each (G9); records of one key
 * took effect in their order (G8); nothing is held by anybody. Of timers: none fires before its time or twice, and none that is
 * due stays. Of the start timer: each of its times begins one instance, or is passed over together with others that are late. Of the
 * news: whoever waited before they came and does so still when they are committed is a target; each target has them once, in
 * order, or is gone. Of a box, which the first of its items begins (onConflict="correlate"): there is one, and each item has one effect
 * on it. Of a step that fails: the instance has no waits and timers then; restored, it has them again.
 *
 * Life cycle: checker_new before the database and the cluster, checker_free after them. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_CHECKER_H
#define SUTRA_TESTS_SIM_CHECKER_H

#include "tests/sim/database.h"
#include "tests/sim/load.h"

struct checker;

struct checker *checker_new(struct sim *sim, struct load *load);
void checker_free(struct checker **checker);
/* The load is planned, the cluster is there. */
void checker_begin(struct checker *checker, struct sim_database *database);

/* Hooks of the database. */
void checker_running(struct checker *checker, const struct segment *segment);
void checker_commit(struct checker *checker, const struct process *process,
		    const struct segment *segment);
/* Hooks of the cluster; `user` is the checker. */
void checker_offset(void *user, const char *topic, int32_t partition, int64_t from, int64_t to);
void checker_record(void *user, const char *topic, int32_t partition, int64_t offset);
/* And of RabbitMQ. */
void checker_published(void *user, const struct rabbit_message *message);
void checker_lost(void *user, const struct rabbit_message *message);
void checker_delivered(void *user, const struct rabbit_message *message,
		       const struct process *process, uint64_t lease, uint64_t tag);
void checker_acked(void *user, const struct rabbit_message *message);

/* The most claims of one instance that one replica was refused within a second; of all instances the worst. */
uint64_t checker_most_refused(const struct checker *checker);
/* Messages that the database had to keep. */
uint64_t checker_kept(const struct checker *checker);
/* Of these such as were there together with a free instance that waited for them: raced by its commit. */
uint64_t checker_early_met(const struct checker *checker);
/* Timers that were set; those of them beside a wait that have fired. */
uint64_t checker_timers(const struct checker *checker);
uint64_t checker_reminders(const struct checker *checker);
/* Instances that a start timer has begun; those of them that stand for several times. */
uint64_t checker_ticks(const struct checker *checker);
uint64_t checker_ticks_coalesced(const struct checker *checker);
/* Rows of messages for several; those that found their instance gone. */
uint64_t checker_targets(const struct checker *checker);
uint64_t checker_targets_passed(const struct checker *checker);
/* Steps that failed, and instances that were restored from it. */
uint64_t checker_failures(const struct checker *checker);
uint64_t checker_restores(const struct checker *checker);
/* The clock of a replica is not the others' from now on. */
void checker_clock_jumps(struct checker *checker);

/* Whether there is nothing left to do. */
bool checker_is_settled(const struct checker *checker);
/* Notes what there is left to do. */
void checker_fail_unsettled(struct checker *checker);
/* Everything has stopped. */
void checker_end(struct checker *checker);

#endif
