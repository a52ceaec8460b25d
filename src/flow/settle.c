/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage settle: what the answer of a lane means for the delivery.
 *
 *	committed, duplicate, rejected, dropped   done: the broker forgets it
 *	handoff                                   to the owner lane, at most once per resolve
 *	again                                     resolved anew, keeping its place
 *	refused, unmatched, unavailable           held (hold.h): it stays the broker's, unacknowledged, and is tried again
 *	kept elsewhere                            the kept message is no longer ours to run
 */
#include "flow/delivery.h"
#include "flow/hold.h"
#include "flow/keep.h"

#define stat_add(field, n) __atomic_add_fetch(&(field), (n), __ATOMIC_RELAXED)

static bool answer_is_done(enum lane_answer answer)
{
	return answer == ANSWER_COMMITTED || answer == ANSWER_DUPLICATE || answer == ANSWER_REJECTED ||
	       answer == ANSWER_DROPPED || answer == ANSWER_GONE;
}

static void settle_count(struct intake_stats *stats, enum lane_answer answer)
{
	switch (answer) {
	case ANSWER_COMMITTED:
		stat_add(stats->committed, 1);
		break;
	case ANSWER_DUPLICATE:
		stat_add(stats->duplicate, 1);
		break;
	case ANSWER_REJECTED:
		stat_add(stats->rejected, 1);
		break;
	case ANSWER_DROPPED:
		stat_add(stats->dropped, 1);
		break;
	case ANSWER_GONE:
		stat_add(stats->gone, 1);
		break;
	case ANSWER_REFUSED:
		stat_add(stats->refused, 1);
		break;
	case ANSWER_UNMATCHED:
		stat_add(stats->unmatched, 1);
		break;
	case ANSWER_UNAVAILABLE:
		stat_add(stats->unavailable, 1);
		break;
	case ANSWER_RESOLVED:
	case ANSWER_HANDOFF:
	case ANSWER_AGAIN:
	case ANSWER_KEPT_LOST:
		break;
	}
}

/* What is not done and not held: the truth is one more turn away. The first time that a wait was gone it is, too; from then on that
 * is paced like a refusal. */
static bool settle_goes_on(struct delivery *dlv)
{
	enum lane_answer answer = dlv->request.answer;

	return answer == ANSWER_HANDOFF || (answer == ANSWER_AGAIN && dlv->attempts++ == 0);
}

static void settle_delivery(struct delivery *dlv)
{
	enum lane_answer answer = dlv->request.answer;

	if (answer_is_done(answer))
		delivery_settle(dlv, SETTLE_DONE);
	else if (dlv->revoked)
		delivery_settle(dlv, SETTLE_BACK);
	else if (dlv->request.resolve_only && (answer == ANSWER_HANDOFF || answer == ANSWER_RESOLVED))
		delivery_placed(dlv);
	else if (settle_goes_on(dlv))
		delivery_dispatch(dlv);
	else
		hold_begin(dlv);
}

/* Of a place: the same, but that a row of the database stands for the message. */
static void settle_place(struct delivery *dlv)
{
	enum lane_answer answer = dlv->request.answer;

	if (answer_is_done(answer))
		keep_advance(dlv);
	else if (dlv->revoked)
		keep_drop(dlv);
	else if (answer == ANSWER_KEPT_LOST)
		keep_lost(dlv);
	else if (settle_goes_on(dlv))
		delivery_dispatch(dlv);
	else
		keep_hold(dlv);
}

void settle_answered(struct delivery *dlv)
{
	assert(dlv->state == DELIVERY_ON_LANE);
	settle_count(&dlv->intake->stats, dlv->request.answer);
	/* A duplicate's may be there by a first run of its commit, of which only the second was answered. */
	if (dlv->request.answer == ANSWER_COMMITTED || dlv->request.answer == ANSWER_DUPLICATE)
		keep_fanned(dlv->intake, dlv->request.fanned, dlv->request.fanned_count);
	if (dlv->is_place)
		settle_place(dlv);
	else
		settle_delivery(dlv);
}
