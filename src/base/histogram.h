/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms of durations with fixed bounds, for metrics: each bucket counts what took at most 2^i × 64 µs.
 *
 * Life cycle: all zero is empty. Threads: any may add and read; the figures of one read need not be of one moment.
 */
#ifndef SUTRA_BASE_HISTOGRAM_H
#define SUTRA_BASE_HISTOGRAM_H

#include <stdatomic.h>

#include "base/attr.h"

#define HISTOGRAM_BUCKETS 20 /* 64 µs … 33 s; the last takes the rest */

struct histogram {
	atomic_uint_fast64_t buckets[HISTOGRAM_BUCKETS];
	atomic_uint_fast64_t count;
	atomic_uint_fast64_t sum_us;
};

/* The upper bound of a bucket in microseconds; the last has none. */
static inline int64_t histogram_bound_us(unsigned bucket)
{
	return INT64_C(64) << bucket;
}

static inline void histogram_add(struct histogram *h, int64_t us)
{
	unsigned bucket = 0;

	if (us < 0)
		us = 0;
	while (bucket < HISTOGRAM_BUCKETS - 1 && us > histogram_bound_us(bucket))
		bucket++;
	atomic_fetch_add_explicit(&h->buckets[bucket], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_us, (uint64_t)us, memory_order_relaxed);
}

#endif
