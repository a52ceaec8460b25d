/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random values from a seed, for property tests: what holds for every value is tried on many.
 *
 * Life cycle: values sit in the arena given. Threads: one at a time per generator.
 */
#ifndef SUTRA_TESTS_SUPPORT_RANDOM_VALUE_H
#define SUTRA_TESTS_SUPPORT_RANDOM_VALUE_H

#include "value/value.h"

/* All of a generator's state; seed it by assignment. The same seed gives the same values on every machine. */
struct random_source {
	uint64_t state;
};

uint64_t random_next(struct random_source *random);
/* Uniform enough in [0, bound). */
uint64_t random_below(struct random_source *random, uint64_t bound);
/* All bit patterns but NaN and infinities, with the awkward ones frequent. */
double random_double(struct random_source *random);
int64_t random_int(struct random_source *random);

/* A value at most `depth` deep. BIN, NaN and infinities occur only if `any_type`: JSON cannot give them back. */
msgpack_object random_value(struct random_source *random, struct arena *arena, unsigned depth,
			    bool any_type);

#endif
