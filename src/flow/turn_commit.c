/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turn's commit, and what each outcome of it means: done and published, undone and given back, or another commit, of the failure
 * or the dead letter that the step turned out to be.
 */
#include "flow/turn_private.h"

#include "flow/commit.h"
#include "flow/correlate.h"
#include "flow/early.h"

static void turn_count_commit(struct turn *turn)
{
	struct lane_stats *stats = &turn->lane->stats;

	if (turn->inst)
		turn_count(&stats->resumes);
	if (turn->step.inst->status == INSTANCE_SUSPENDED)
		turn_count(&stats->parks);
	if (turn->step.failed)
		turn_count(&stats->failures);
}

static void turn_wake(struct turn *turn)
{
	struct wake *wake = turn->lane->set->wake;

	wake_fire(wake, turn->id);
	for (uint32_t i = 0; i < turn->ask.commit.waits_added_count; i++)
		wake_fire(wake, turn->ask.commit.waits_added[i].key);
	early_probe(turn->lane, &turn->ask.commit);
}

/* The database has them no more; those that this replica is about to send must not go out. */
static void turn_withdraw(struct turn *turn)
{
	const struct store_commit *commit = &turn->ask.commit;

	for (uint32_t i = 0; i < commit->withdrawn_count; i++)
		outbox_withdraw(turn->lane->set->outbox,
				outbox_row_id(turn->id, commit->withdrawn[i].version, commit->withdrawn[i].ordinal));
}

static void turn_committed_ok(struct turn *turn)
{
	char id[ID_TEXT_SIZE];
	struct log_about about;

	if (turn->parcel)
		outbox_submit(turn->lane->set->outbox, turn->parcel);
	turn->parcel = NULL;
	if (turn->ending) {
		turn_enter(turn, TURN_ANSWERED);
		return;
	}
	if (turn->rejecting) {
		turn_answer(turn, ANSWER_REJECTED);
		return;
	}
	if (turn->fanning) {
		turn_answer(turn, ANSWER_COMMITTED);
		return;
	}
	turn_count_commit(turn);
	retry_committed(turn);
	turn_withdraw(turn);
	turn_wake(turn);
	if (turn->step.failed) {
		about = turn_about(turn, turn->step.failure.code, id);
		log_error(&about, "instance FAILED at %.*s: %s",
			  STR_ARG(turn->step.failure_node ? turn->step.failure_node->id : STR("?")),
			  turn->step.failure.text);
		turn->request->error = turn->step.failure;
	}
	turn->request->status = turn->step.inst->status;
	turn_answer(turn, ANSWER_COMMITTED);
}

/*
 * A late gate: an alias or wait that must be unique is taken. A spawn is rejected, or becomes a relay if there is a value that
 * a wait could be found by; a later step fails. A restore does nothing: the reason for which the instance FAILED is not lost over it.
 */
static void turn_conflict(struct turn *turn, enum code code, const char *text)
{
	struct error err = ERROR_INIT;

	error_set(&err, RESULT_REJECT, code, "%s", text);
	if (turn->request->kind == REQUEST_RESTORE) {
		turn_reject_claimed(turn, &err);
		return;
	}
	if (turn->inst) {
		turn_fail(turn, &err, NULL);
		return;
	}
	for (uint32_t i = 0; i < turn->start->alias_count; i++) {
		if (turn->request->kind != REQUEST_MESSAGE || !turn->start->aliases[i].correlate || !turn->correlation || !turn->correlation->key_count)
			continue;
		if (turn->request->unmatched_is_final) {
			if (turn_is_for_failed(turn))
				return;
			continue;
		}
		turn_answer_unmatched(turn, code, "the live instance does not wait for this message yet");
		return;
	}
	turn_reject(turn, &err);
}

/* The database can never take this element. A dead letter that it cannot take is held: nothing may be dropped (G9). */
static void turn_commit_rejected(struct turn *turn)
{
	const struct error err = turn->ask.commit.base.error;
	char id[ID_TEXT_SIZE];
	struct log_about about = turn_about(turn, err.code, id);

	if (turn->fanning) {
		turn->fanning = false;
		turn_reject(turn, &err);
		return;
	}
	if (!turn->rejecting && !turn->step.failed && turn->inst) {
		turn_fail(turn, &err, NULL);
		return;
	}
	if (!turn->rejecting && !turn->ending && !turn->inst) {
		turn_reject(turn, &err);
		return;
	}
	log_error(&about, "the database takes neither the step nor its dead letter: %s", err.text);
	if (turn->claimed)
		turn_give_up_claim(turn, ANSWER_UNAVAILABLE, err.code, err.text);
	else
		turn_answer_error(turn, ANSWER_UNAVAILABLE, err.code, err.text);
}

/* Nothing was written. What was claimed is given back. */
static void turn_commit_undone(struct turn *turn, enum lane_answer answer, enum code code, const char *text)
{
	if (turn->claimed)
		turn_give_up_claim(turn, answer, code, text);
	else if (answer == ANSWER_DUPLICATE)
		turn_end(turn, answer);
	else
		turn_answer_error(turn, answer, code, text);
}

static void turn_committed(struct task *done)
{
	struct turn *turn = container_of(done, struct turn, ask.commit.base.done);
	struct store_commit *commit = &turn->ask.commit;
	struct lane_set *set = turn->lane->set;

	histogram_add(&set->commit_time, loop_now_us(turn->lane->executor->loop) - turn->stage_began_us);
	switch (commit->base.outcome) {
	case STORE_OK:
		turn_committed_ok(turn);
		break;
	case STORE_KEPT_LOST:
		turn_commit_undone(turn, ANSWER_KEPT_LOST, CODE_RUNTIME_KEPT_LOST,
				   "the kept message is another replica's by now");
		break;
	case STORE_DUPLICATE:
		turn_commit_undone(turn, ANSWER_DUPLICATE, CODE_NONE, "");
		break;
	case STORE_SCHEDULE_MOVED:
		turn_answer_error(turn, ANSWER_AGAIN, CODE_NONE, "somebody else has moved the start timer on");
		break;
	case STORE_FENCED:
		/* A timer is not stale for that. */
		turn_answer_error(turn, turn->request->kind == REQUEST_TIMER ? ANSWER_REFUSED : ANSWER_AGAIN, CODE_RUNTIME_CLAIM_HELD,
				  "the claim was lost before the commit; nothing was written");
		break;
	case STORE_ALIAS_CONFLICT:
		turn_conflict(turn, CODE_INBOUND_ALIAS_CONFLICT_REJECT, "a unique alias is held by a live instance");
		break;
	case STORE_WAIT_NOT_UNIQUE:
		turn_conflict(turn, CODE_RUNTIME_WAIT_NOT_UNIQUE, "another wait has the same value");
		break;
	case STORE_REJECTED:
		turn_commit_rejected(turn);
		break;
	case STORE_CHANNEL_FULL:
	case STORE_TENANT_FULL:
	case STORE_POOL_FULL:
	case STORE_REFUSED:
	case STORE_UNAVAILABLE:
		turn_commit_undone(turn, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, commit->base.error.text);
		break;
	}
}

void turn_commit(struct turn *turn)
{
	turn->ask.commit.base = (struct store_request){
		.reply_to = turn->lane->executor->loop, .done.run = turn_committed, .arena = &turn->arena};
	turn->stage_began_us = loop_now_us(turn->lane->executor->loop);
	if (turn->parcel) {
		turn->parcel->stamped_us = turn->stage_began_us;
		outbox_announce(turn->lane->set->outbox, turn->parcel);
	}
	store_commit(turn->lane->set->store, &turn->ask.commit);
}
