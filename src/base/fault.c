/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points: the table of what is armed, and what happens when an armed point is passed. The table is written once,
 * before other threads run; afterwards only the counters change, atomically.
 */
#include "base/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"
#include "base/time.h"

enum fault_action { FAULT_NOTHING, FAULT_KILL, FAULT_DELAY, FAULT_FAIL };

struct fault_arm {
	enum fault_action action;
	int64_t delay_ms;
	int64_t only; /* the n-th pass, from 1; 0 = every pass */
	_Atomic int64_t passes;
};

bool fault_armed;
static struct fault_arm arms[FAULT_COUNT];

static const char *const names[FAULT_COUNT] = {
#define X(name) #name,
	FAULT_POINTS(X)
#undef X
};

/* The part of *rest up to `end`, or all of it; *rest goes on behind it and is absent when nothing is left. */
static struct str part_take(struct str *rest, char end)
{
	ptrdiff_t at = str_find(*rest, end);
	struct str part = *rest;

	if (at < 0) {
		*rest = STR_NONE;
		return part;
	}
	part.len = (size_t)at;
	*rest = str_make(rest->ptr + at + 1, rest->len - (size_t)at - 1);
	return part;
}

static bool arm_parse(struct str entry)
{
	struct str name = part_take(&entry, '='), action = part_take(&entry, '@');
	struct str argument = action, word = part_take(&argument, ':');
	struct fault_arm *arm = NULL;
	int64_t delay_ms = 0, only = 0;
	enum fault_action what;

	for (size_t i = 0; i < FAULT_COUNT; i++)
		if (str_equal(name, str_of(names[i])))
			arm = &arms[i];
	if (str_equal(word, STR("kill")))
		what = FAULT_KILL;
	else if (str_equal(word, STR("delay")))
		what = FAULT_DELAY;
	else if (str_equal(word, STR("fail")))
		what = FAULT_FAIL;
	else
		return false;
	if (!arm || (what == FAULT_DELAY) != (argument.ptr != NULL))
		return false;
	if (what == FAULT_DELAY && (!str_to_int64(argument, &delay_ms) || delay_ms < 0))
		return false;
	if (entry.ptr && (!str_to_int64(entry, &only) || only < 1))
		return false;
	arm->action = what;
	arm->delay_ms = delay_ms;
	arm->only = only;
	atomic_store(&arm->passes, 0);
	return true;
}

bool fault_configure(const char *spec)
{
	struct str rest = str_of(spec);

	fault_armed = false;
	for (size_t i = 0; i < FAULT_COUNT; i++)
		arms[i].action = FAULT_NOTHING;
	if (!rest.len)
		return true;
	while (rest.ptr)
		if (!arm_parse(part_take(&rest, ',')))
			return false;
	fault_armed = true;
	return true;
}

static void delay(int64_t delay_ms)
{
	struct timespec left = {delay_ms / MS_PER_S, (long)(delay_ms % MS_PER_S) * 1000000L};

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

bool fault_hit(enum fault_point point)
{
	static const char *const verbs[] = {"", "kill", "delay", "fail"};
	struct fault_arm *arm = &arms[point];
	char line[96];
	int64_t pass;
	int len;

	if (arm->action == FAULT_NOTHING)
		return false;
	pass = atomic_fetch_add(&arm->passes, 1) + 1;
	if (arm->only && pass != arm->only)
		return false;
	len = snprintf(line, sizeof(line), "fault: %s %s\n", names[point], verbs[arm->action]);
	/* A closed standard error takes the line, not the fault. */
	(void)!write(STDERR_FILENO, line, (size_t)len);
	if (arm->action == FAULT_KILL)
		raise(SIGKILL);
	if (arm->action == FAULT_DELAY)
		delay(arm->delay_ms);
	return arm->action == FAULT_FAIL;
}
