/* SPDX-License-Identifier: Apache-2.0 */
/* Which failed steps are tried again, and how often they have been. */
#include "flow/retry.h"

#include "flow/lane_set.h"

/* So many timers that fail at once are remembered. */
#define REMEMBERED_MAX 10000

static bool is_idempotent(const struct turn *turn)
{
	const struct process *process = turn->inst ? deployment_process(turn->member->deployment, turn->inst->process)
						   : turn->start->process;

	return process && process->idempotent;
}

static bool is_of_timer(const struct lane_request *request)
{
	return request->kind == REQUEST_TIMER || request->kind == REQUEST_SCHEDULE;
}

static struct id timer_key(const struct turn *turn)
{
	const struct lane_request *request = turn->request;
	const struct str due = {(const char *)&request->due_us, sizeof(request->due_us)};
	const struct str token = {(const char *)&request->target.token, sizeof(request->target.token)};

	if (request->kind == REQUEST_SCHEDULE)
		return id_digest_of(STR("schedule"), id_str(&request->schedule.id), due);
	return id_digest_of(STR("timer"), id_str(&turn->id), token, due);
}

static uint32_t timer_count(struct turn *turn)
{
	struct map *failures = &turn->lane->retry.failures;
	struct id key = timer_key(turn);
	uintptr_t count = (uintptr_t)map_get(failures, id_str(&key)) + 1;

	if (failures->count >= REMEMBERED_MAX)
		map_done(failures);
	map_put(failures, id_str(&key), (void *)count);
	return (uint32_t)count;
}

enum retry_verdict retry_failed(struct turn *turn)
{
	struct lane_request *request = turn->request;

	if (request->kind == REQUEST_RESTORE || request->kind == REQUEST_CANCEL || !is_idempotent(turn))
		return RETRY_FAIL;
	if (request->kind == REQUEST_COMPLETE)
		return RETRY_NEVER;
	request->failures = is_of_timer(request) ? timer_count(turn) : request->failures + 1;
	return request->failures <= turn->lane->set->settings.failure_attempts ? RETRY_LATER : RETRY_FAIL;
}

void retry_committed(struct turn *turn)
{
	struct map *failures = &turn->lane->retry.failures;
	struct id key;

	if (!failures->count || !is_of_timer(turn->request))
		return;
	key = timer_key(turn);
	map_remove(failures, id_str(&key));
}

void retry_done(struct retry *retry)
{
	map_done(&retry->failures);
}
