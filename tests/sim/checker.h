/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker: watches every commit, every offset and every record as they happen, and looks at everything that is left at
 * the end. It knows the load and the guarantees, and nothing of the engine.
 *
 * While it runs: G1 no offset is committed past a record without its effect or dead letter; G3 versions grow by one, each
 * commit on the version before; G6 nothing is sent before its commit, first copies come in commit order per instance and
 * channel, no row goes before it was sent. At the end: every order has ended as it must, once (G5), with its messages
 * under one key each; dead letters are exactly those of what cannot succeed, whole and once each (G9); records of one key
 * took effect in their order (G8); nothing is held by anybody.
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
void checker_begin(struct checker *checker, struct sim_cluster *cluster,
		   struct sim_database *database);

void checker_commit(struct checker *checker, const struct segment *segment);
/* Hooks of the cluster; `user` is the checker. */
void checker_offset(void *user, const char *topic, int32_t partition, int64_t from, int64_t to);
void checker_record(void *user, const char *topic, int32_t partition, int64_t offset);

/* Whether there is nothing left to do. */
bool checker_is_settled(const struct checker *checker);
/* Notes what there is left to do. */
void checker_fail_unsettled(struct checker *checker);
/* Everything has stopped. */
void checker_end(struct checker *checker);

#endif
