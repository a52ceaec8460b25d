/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named fault points, for tests only. A point stands between two numbered steps of an order that matters; SUTRA_FAULT
 * "name=kill[@n],name=delay:MS[@n],name=fail[@n]" arms points in any build (`@n`: only the n-th time it is passed). An armed
 * point says so on standard error when it is hit. With nothing armed a point costs one load and one branch.
 *
 * Life cycle: fault_configure once at start. Threads: any.
 */
#ifndef SUTRA_BASE_FAULT_H
#define SUTRA_BASE_FAULT_H

#include "base/attr.h"

/* The points, in the order of the path. Every one must be hit by the faults ring. */
#define FAULT_POINTS(X) \
	X(claim_before) \
	X(claim_after) \
	X(commit_before) \
	X(commit_sent) \
	X(commit_after) \
	X(settle_before) \
	X(offset_commit_before) \
	X(offset_commit_after) \
	X(publish_before) \
	X(publish_after) \
	X(confirm_before_delete) \
	X(outbox_delete_after)

enum fault_point {
#define X(name) FAULT_##name,
	FAULT_POINTS(X)
#undef X
	FAULT_COUNT
};

extern bool fault_armed;
/* Never armed while `spec` is NULL or empty. False if the text is malformed. */
bool fault_configure(const char *spec);
/* Kills or delays as armed; true if the caller is to behave as if the step behind the point had failed. */
bool fault_hit(enum fault_point point);

static inline bool fault(enum fault_point point)
{
	return __builtin_expect(fault_armed, 0) && fault_hit(point);
}

#endif
