/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An executor that does as it is told: it runs segments on in-memory tables, except those that a script gives another fate.
 *
 * Life cycle: fake_executor_new, then the store's; freed with it. The tables outlive it.
 * Threads: script and log before sending and after all answers.
 */
#ifndef SUTRA_TESTS_UNIT_STORE_FAKE_EXECUTOR_H
#define SUTRA_TESTS_UNIT_STORE_FAKE_EXECUTOR_H

#include "store/executor.h"

enum fake_fate {
	FAKE_ERROR,         /* refused with `sqlstate` */
	FAKE_LOCKED,        /* the gate of `when` fails for rows of `instance` (none: for all), as for a foreign lock */
	FAKE_NOT_RUN,       /* the connection is lost before the Sync */
	FAKE_DOUBT_WRITTEN, /* lost after it; it committed */
	FAKE_DOUBT_LOST,    /* lost after it; it did not */
	FAKE_HOLD,          /* not answered before fake_release */
	FAKE_NULL,          /* runs; the first field of its first row is NULL */
	FAKE_FALSE,         /* runs; the first field of its first row is false */
	FAKE_TEXT,          /* runs; the first field of its first row is `sqlstate` as a text */
};

struct fake_step {
	enum statement_id when; /* meant for segments with this statement */
	enum fake_fate fate;
	uint32_t times; /* 0 = once */
	const char *sqlstate;
	struct id
		instance; /* or kept message; only segments with a row of it (third column of the statement `when`); none = any */
	uint64_t xid;        /* of doubt; 0 = never arrived */
	int64_t backend_pid; /* 0 = never known */
};

struct fake_entry {
	enum conn_class class;
	enum statement_id first; /* statement of the segment */
	uint32_t count;          /* entries of its first column */
	int64_t lock_timeout_ms;
	bool durable;
};

#define FAKE_LOG_MAX 4096

struct executor *fake_executor_new(struct memory_database *database);
/* Behind what is scripted already. The first step that fits a segment is used. */
void fake_script(struct executor *executor, struct fake_step step);
/* What was run, in order. */
const struct fake_entry *fake_log(struct executor *executor, uint32_t *count);
/* Entries of the log with this first statement and class. */
uint32_t fake_count(struct executor *executor, enum conn_class class, enum statement_id first);
/* Answers what is held, on the store's loop. @thread any */
void fake_release(struct executor *executor);
/* All connections are lost or come back, on the store's loop; segments under way are answered NOT_RUN. @thread any */
void fake_cut(struct executor *executor);
void fake_restore(struct executor *executor);

#endif
