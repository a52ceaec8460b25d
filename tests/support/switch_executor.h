/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory executor whose connections a test holds in its hands: they can all be lost and come back, background work can be
 * made to wait, and commits can be left in doubt.
 *
 * Life cycle: switch_executor_new; freed by its store. Threads: the switches from the test's, never from a loop.
 */
#ifndef SUTRA_TESTS_SUPPORT_SWITCH_EXECUTOR_H
#define SUTRA_TESTS_SUPPORT_SWITCH_EXECUTOR_H

#include "store/executor.h"

struct executor *switch_executor_new(struct memory_database *database, uint32_t step_connections);

/* Off: every connection is lost, what was under way was not run. On: they all come back. */
void switch_executor_set(struct executor *executor, bool on);
/* Segments of the background connection wait, and run when they are let go. */
void switch_executor_hold_background(struct executor *executor, bool hold);
/* The next `count` segments with writes on step connections commit, but nobody is told whether. */
void switch_executor_doubt(struct executor *executor, uint32_t count);
/* The same for the durable segments with writes of the step connections: commits. */
void switch_executor_hold_commits(struct executor *executor, bool hold);
/* The next background segment that begins with this statement commits, but nobody is told whether. */
void switch_executor_doubt_statement(struct executor *executor, enum statement_id statement);
/* Segments that wait now. @thread any */
uint32_t switch_executor_waiting(struct executor *executor);

#endif
