/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of timers: the first 16 bytes are two times, the rest a text. Whatever is taken as a duration, date or cycle is due
 * within the calendar, goes forward from one fire to the next, keeps its phase, and ends when it is used up. What is refused
 * has a reason.
 */
#include "base/buf.h"
#include "base/time.h"
#include "model/timer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_next(const struct timer_rule *rule, int64_t due_us, int64_t now_us, int64_t remaining)
{
	int64_t next = -77, left = -77;

	for (int i = 0; i < 5 && timer_next(rule, due_us, now_us, remaining, &next, &left); i++) {
		assert(rule->kind == TIMER_CYCLE && remaining != 0);
		assert(next > due_us && next <= ISO_LAST_US);
		assert(next == ISO_LAST_US || (next > now_us && (next - due_us) % rule->cycle.period_us == 0));
		assert(remaining < 0 ? left == -1 : left >= 0 && left < remaining);
		due_us = now_us = next;
		remaining = left;
	}
}

static void check_rule(const struct timer_rule *rule, int64_t now_us, int64_t fired_us)
{
	int64_t due = -77, remaining = -77;
	bool comes = timer_first(rule, now_us, &due, &remaining);

	assert(due > 0 && due <= ISO_LAST_US && remaining >= -1);
	assert(comes || (rule->kind == TIMER_CYCLE && rule->cycle.has_start && remaining == 0));
	assert(remaining == 0 || rule->kind == TIMER_CYCLE);
	assert(!comes || rule->kind == TIMER_DATE || due >= now_us || due == ISO_LAST_US);
	check_next(rule, due, fired_us, remaining);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	int64_t times[2] = {0, 0};
	size_t head = len < sizeof(times) ? len : sizeof(times);
	struct str text;

	memcpy(times, bytes, head);
	text = str_make(bytes + head, len - head);
	for (int kind = TIMER_DURATION; kind <= TIMER_CYCLE; kind++) {
		struct error err = ERROR_INIT;
		struct timer_rule rule;

		if (timer_parse((enum timer_kind)kind, text, &rule, &err) == RESULT_OK)
			check_rule(&rule, times[0], times[1]);
		else
			assert(err.text[0] && err.code == CODE_EXPRESSION_FAILED);
	}
	return 0;
}
