/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: what the diagram says of one, and when it is due.
 *
 * Life cycle: a rule is part of a deployment; one that is made of an evaluated text is the caller's. Wall times in
 * microseconds; none is later than ISO_LAST_US. Threads: pure functions.
 */
#ifndef SUTRA_MODEL_TIMER_H
#define SUTRA_MODEL_TIMER_H

#include "base/error.h"
#include "base/iso8601.h"
#include "value/expression.h"

enum timer_kind { TIMER_DURATION, TIMER_DATE, TIMER_CYCLE };
/* "timeDuration" …: the element that says it. */
const char *timer_kind_name(enum timer_kind kind);

struct timer_rule {
	enum timer_kind kind;
	const struct expression *expression; /* over the instance, when armed: gives the text; NULL = a literal */
	int64_t duration_us;    /* DURATION: how long after it is armed */
	int64_t date_us;        /* DATE */
	struct iso_cycle cycle; /* CYCLE */
	struct str text;        /* as written, or as evaluated */
	int line;
};

/* Makes a literal rule of a text. RESULT_REJECT with EXPRESSION_FAILED: it is not of this kind. `text` is borrowed. */
enum result timer_parse(enum timer_kind kind, struct str text, struct timer_rule *out,
			struct error *err) MUST_CHECK;

/*
 * When a literal rule that is armed at `now_us` is due first, and how often it is due after that (-1 = without end; 0 unless it is a
 * cycle). A date that has passed is due at once. A cycle with a start keeps to its times, of which it takes the first that has
 * not passed: those before count as had. False: a cycle all of whose times have passed; `*due_us` is then the last of them, with
 * nothing remaining.
 */
bool timer_first(const struct timer_rule *rule, int64_t now_us, int64_t *due_us,
		 int64_t *remaining);
/*
 * The time after `due_us`, at which a cycle fires at `now_us`, with `remaining` to come. All times that have passed meanwhile
 * coalesce into this one fire, and count as had; the phase stays. False: that was the last, or the rule is no cycle.
 */
bool timer_next(const struct timer_rule *rule, int64_t due_us, int64_t now_us, int64_t remaining,
		int64_t *next_us, int64_t *next_remaining);
/* The same of a cycle of which nothing but its period (> 0) is at hand. */
bool timer_next_in(int64_t period_us, int64_t due_us, int64_t now_us, int64_t remaining,
		   int64_t *next_us, int64_t *next_remaining);

#endif
