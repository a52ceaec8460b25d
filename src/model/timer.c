/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When timers are due. A cycle is a row of times at one distance; going on by it is a division and not a walk, so that a
 * service that was down for a year takes no longer than one that was down for a second. Every sum ends at ISO_LAST_US.
 */
#include "model/timer.h"

#include "base/time.h"

const char *timer_kind_name(enum timer_kind kind)
{
	static const char *const names[] = {
		[TIMER_DURATION] = "timeDuration",
		[TIMER_DATE] = "timeDate",
		[TIMER_CYCLE] = "timeCycle",
	};

	return names[kind];
}

enum result timer_parse(enum timer_kind kind, struct str text, struct timer_rule *out,
			struct error *err)
{
	struct timer_rule rule = {.kind = kind, .text = text};
	const char *fault = NULL;

	switch (kind) {
	case TIMER_DURATION:
		if (!iso_duration_parse(text, &rule.duration_us))
			fault = iso_duration_fault(text);
		break;
	case TIMER_DATE:
		if (!iso_date_parse(text, &rule.date_us))
			fault = iso_date_fault(text);
		break;
	case TIMER_CYCLE:
		if (!iso_cycle_parse(text, &rule.cycle))
			fault = iso_cycle_fault(text);
		break;
	}
	if (fault)
		return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED, "%s \"%.*s\": %s",
				 timer_kind_name(kind), text.len > 100 ? 100 : (int)text.len,
				 text.ptr ? text.ptr : "", fault);
	*out = rule;
	return RESULT_OK;
}

/* Times before 1970 have passed like all others; 0 would say that there is none. */
static int64_t clamp(int64_t us)
{
	if (us > ISO_LAST_US)
		return ISO_LAST_US;
	return us < 1 ? 1 : us;
}

/* `count` periods after `from`, of which both are at least 0. */
static int64_t time_after(int64_t from_us, int64_t count, int64_t period_us)
{
	int64_t span, sum;

	if (__builtin_mul_overflow(count, period_us, &span) ||
	    __builtin_add_overflow(from_us, span, &sum))
		return ISO_LAST_US;
	return clamp(sum);
}

static bool cycle_first(const struct iso_cycle *cycle, int64_t now_us, int64_t *due_us,
			int64_t *remaining)
{
	int64_t start_us = cycle->has_start ? clamp(cycle->start_us) : 0;
	int64_t passed = 0;

	*remaining = cycle->repeats < 0 ? -1 : cycle->repeats - 1;
	if (!cycle->has_start) {
		*due_us = time_after(now_us, 1, cycle->period_us);
		return true;
	}
	if (now_us > start_us)
		passed = (now_us - start_us - 1) / cycle->period_us + 1;
	if (cycle->repeats >= 0 && passed >= cycle->repeats) {
		*due_us = time_after(start_us, cycle->repeats - 1, cycle->period_us);
		*remaining = 0;
		return false;
	}
	*due_us = time_after(start_us, passed, cycle->period_us);
	if (*remaining >= 0)
		*remaining -= passed;
	return true;
}

bool timer_first(const struct timer_rule *rule, int64_t now_us, int64_t *due_us, int64_t *remaining)
{
	int64_t now = clamp(now_us);

	*remaining = 0;
	switch (rule->kind) {
	case TIMER_DURATION:
		*due_us = time_after(now, 1, rule->duration_us);
		return true;
	case TIMER_DATE:
		*due_us = clamp(rule->date_us);
		return true;
	case TIMER_CYCLE:
		return cycle_first(&rule->cycle, now, due_us, remaining);
	}
	return false;
}

bool timer_next_in(int64_t period_us, int64_t due_us, int64_t now_us, int64_t remaining,
		   int64_t *next_us, int64_t *next_remaining)
{
	int64_t due = clamp(due_us), now = clamp(now_us), steps = 1;

	if (now >= due)
		steps = (now - due) / period_us + 1;
	if ((remaining >= 0 && remaining < steps) || due == ISO_LAST_US)
		return false;
	*next_us = time_after(due, steps, period_us);
	*next_remaining = remaining < 0 ? -1 : remaining - steps;
	return true;
}

bool timer_next(const struct timer_rule *rule, int64_t due_us, int64_t now_us, int64_t remaining,
		int64_t *next_us, int64_t *next_remaining)
{
	return rule->kind == TIMER_CYCLE && timer_next_in(rule->cycle.period_us, due_us, now_us,
							  remaining, next_us, next_remaining);
}
