/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times and their texts. Clocks are read here and in the production loop only, so that everything else can run on a
 * simulated one. Wall times are int64_t microseconds since 1970 UTC. Threads: pure or thread-safe.
 */
#ifndef SUTRA_BASE_TIME_H
#define SUTRA_BASE_TIME_H

#include "base/attr.h"
#include "base/str.h"

#define MS_PER_S INT64_C(1000)
#define US_PER_MS INT64_C(1000)
#define US_PER_S INT64_C(1000000)

/* CLOCK_BOOTTIME (CLOCK_MONOTONIC where absent), microseconds. */
int64_t time_monotonic_us(void);
int64_t time_wall_us(void);
/* 8 random bytes of the kernel. */
uint64_t time_random(void);

#define TIME_TEXT_SIZE 32
/* "2026-11-30T12:00:00.123456Z"; a fraction of zero is left out. Returns `text`. */
char *time_format(int64_t wall_us, char text[static TIME_TEXT_SIZE]);
/* RFC 3339 with any offset, years 1 to 9999 of UTC; false if not so. */
bool time_parse(struct str text, int64_t *wall_us) MUST_CHECK;

#endif
