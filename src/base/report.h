/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an examination found: entries in the order in which they were made, each with its area, its object, how bad it is, and
 * what mends it. Made by `sutra doctor`, filled by whoever knows a part of the deployment.
 *
 * Life cycle: report_init, report_done; all texts are copied and live as long as the report. Threads: one at a time.
 */
#ifndef SUTRA_BASE_REPORT_H
#define SUTRA_BASE_REPORT_H

#include "base/arena.h"
#include "base/error.h"

struct report_entry {
	const char *area;   /* "database" */
	const char *object; /* "topic orders"; NULL: the area as a whole */
	enum severity severity; /* INFO: a fact worth knowing, and no finding */
	enum code code;	   /* CODE_NONE for a fact */
	const char *check; /* a short name that stays the same: "topic-missing" */
	const char *what;
	const char *remedy; /* NULL: nothing to do */
};

struct report {
	struct arena arena;
	struct report_entry *entries;
	size_t count, cap;
	unsigned errors, warnings;
	const char *area;
};

void report_init(struct report *report);
void report_done(struct report *report);
/* Entries made from now on are of this area. */
void report_area(struct report *report, const char *area);
void report_add(struct report *report, enum severity severity, enum code code, const char *check, const char *object,
		const char *fmt, ...) PRINTF_LIKE(6, 7);
/* What mends the entry made last. */
void report_remedy(struct report *report, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The first entry of this check, from `from` on; NULL if there is none. */
const struct report_entry *report_find(const struct report *report, const char *check, size_t from);

#endif
