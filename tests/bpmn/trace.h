/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one case of tests/bpmn/cases: see tests/bpmn/README.md. A mismatch fails the Check test, naming file and line.
 * Life cycle: none is left behind. Threads: one.
 */
#ifndef SUTRA_TESTS_BPMN_TRACE_H
#define SUTRA_TESTS_BPMN_TRACE_H

#include <limits.h>

#define CRASH_NEVER  UINT_MAX
#define CRASH_ALWAYS (UINT_MAX - 1)

/* Returns how many steps the case has; `crash` is the number of the step behind which the instance is read back. */
unsigned trace_run(const char *name, unsigned crash);

#endif
