/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random instances from a seed, such as a store may hold: consistent in themselves, of no real process.
 * Life cycle: in the arena given. Threads: one at a time per generator.
 */
#ifndef SUTRA_TESTS_SUPPORT_RANDOM_INSTANCE_H
#define SUTRA_TESTS_SUPPORT_RANDOM_INSTANCE_H

#include "engine/instance.h"
#include "tests/support/random_value.h"

struct instance *random_instance(struct random_source *random, struct arena *arena);
/* Everything that a snapshot and its columns hold is the same. */
bool instance_equal(const struct instance *a, const struct instance *b);

#endif
