/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spine. Read it top to bottom: it is the path of one request, in the order of turn_state; the drawing is in turn.h.
 *
 * What must hold here: the claim is taken before anything is rehydrated, the commit comes before the answer and before the
 * lane's next request (G1, G3), every request is answered exactly once (G2), and every way out of a claim that is not its
 * commit releases it. An error inside a turn is the turn's: it is answered, the lane goes on.
 *
 * The order of a relay, and what a crash after each number leaves behind:
 *   1 resolve   nothing: it only reads;
 *   2 claim     a claim by a dead owner: free after instance.claim-timeout, at once for the same owner;
 *   3 step      as 2: a step is pure;
 *   4 commit    everything or nothing; the message is still the broker's and comes again, and meets its inbox row (G5);
 *   5 publish   outbox rows stamped by a dead owner: any replica sends them after outbox.claim-timeout (G6);
 *   6 answer    as 4.
 * Not one SQL, parse or broker call stands in these files.
 */
#include "flow/turn_private.h"

#include "flow/commit.h"
#include "flow/correlate.h"

static const char *const turn_state_names[TURN_STATE_COUNT] = {
	[TURN_IDLE] = "idle",	[TURN_DECODE] = "decode", [TURN_RESOLVE] = "correlate", [TURN_CLAIM] = "claim",
	[TURN_STEP] = "step",	[TURN_COMMIT] = "commit", [TURN_RELEASE] = "release",	[TURN_ANSWERED] = "settle",
};

const char *turn_state_name(enum turn_state state)
{
	return turn_state_names[state];
}

static void turn_decode(struct turn *turn);
static void turn_claim(struct turn *turn);
static void turn_step(struct turn *turn);
static void turn_release(struct turn *turn);
static void turn_answered(struct turn *turn);

/* The one place that moves a turn from state to state, and the function that makes each state. */
void turn_enter(struct turn *turn, enum turn_state state)
{
	static void (*const states[TURN_STATE_COUNT])(struct turn *) = {
		[TURN_DECODE] = turn_decode, [TURN_RESOLVE] = turn_resolve, [TURN_CLAIM] = turn_claim,
		[TURN_STEP] = turn_step,     [TURN_COMMIT] = turn_commit,   [TURN_RELEASE] = turn_release,
		[TURN_ANSWERED] = turn_answered,
	};

	turn->state = state;
	states[state](turn);
}

void turn_count(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

struct log_about turn_about(const struct turn *turn, enum code code, char text[static ID_TEXT_SIZE])
{
	const struct lane_request *request = turn->request;

	return (struct log_about){
		.stage = turn_state_name(turn->state),
		.delivery = request->message ? request->message->source : STR_NONE,
		.tenant = request->tenant,
		.channel = request->channel,
		.instance = id_is_none(turn->id) ? STR_NONE : str_of(id_format(turn->id, text)),
		.lane = (int)turn->lane->index + 1,
		.code = code,
	};
}

static struct step_env turn_env(struct turn *turn, const struct deployment *deployment)
{
	const struct lane_set_settings *settings = &turn->lane->set->settings;

	return (struct step_env){
		.arena = &turn->arena,
		.expressions = turn->lane->executor->expressions,
		.deployment = deployment,
		.now_us = turn->now_us,
		.max_nodes = settings->max_step_nodes,
		.max_variables_bytes = settings->max_variables_bytes,
	};
}

static const char *request_name(const struct lane_request *request)
{
	static const char *const names[] = {
		[REQUEST_MESSAGE] = "message", [REQUEST_TIMER] = "timer",   [REQUEST_SCHEDULE] = "start timer",
		[REQUEST_RESTORE] = "restore", [REQUEST_CANCEL] = "cancel", [REQUEST_COMPLETE] = "completion",
	};

	return names[request->kind];
}

struct str turn_owner(const struct turn *turn)
{
	return str_of(request_is_admin(turn->request->kind) ? turn->lane->admin_owner : turn->lane->owner);
}

/* --- endings --- */

void turn_answer(struct turn *turn, enum lane_answer answer)
{
	turn->request->answer = answer;
	turn_enter(turn, TURN_ANSWERED);
}

void turn_answer_error(struct turn *turn, enum lane_answer answer, enum code code, const char *text)
{
	error_set(&turn->request->error, RESULT_AGAIN, code, "%s", text);
	turn_answer(turn, answer);
}

void turn_end(struct turn *turn, enum lane_answer answer)
{
	turn->request->answer = answer;
	if (id_is_none(turn->request->kept_row)) {
		turn_enter(turn, TURN_ANSWERED);
		return;
	}
	turn->ending = true;
	commit_build_end(turn);
	turn_enter(turn, TURN_COMMIT);
}

void turn_reject(struct turn *turn, const struct error *why)
{
	char id[ID_TEXT_SIZE];
	struct log_about about = turn_about(turn, why->code, id);

	log_warning(&about, "%s rejected: %s", request_name(turn->request), why->text);
	turn->request->error = *why;
	if (turn->request->kind != REQUEST_MESSAGE && turn->request->kind != REQUEST_SCHEDULE) {
		turn_answer(turn, ANSWER_REJECTED);
		return;
	}
	turn->rejecting = true;
	if (turn->request->kind == REQUEST_MESSAGE)
		commit_build_dead_letter(turn, why);
	else
		commit_build_end(turn);
	turn_enter(turn, TURN_COMMIT);
}

void turn_reject_claimed(struct turn *turn, const struct error *why)
{
	if (!turn->claimed) {
		turn_reject(turn, why);
		return;
	}
	turn->after = TURN_AFTER_REJECT;
	turn->error = *why;
	turn_enter(turn, TURN_RELEASE);
}

void turn_give_up_claim(struct turn *turn, enum lane_answer answer, enum code code, const char *text)
{
	turn->after = TURN_AFTER_ANSWER;
	turn->request->answer = answer;
	error_set(&turn->request->error, RESULT_AGAIN, code, "%s", text);
	turn_enter(turn, TURN_RELEASE);
}

void turn_interest(struct turn *turn, const struct id *keys, uint32_t count)
{
	struct lane_request *request = turn->request;

	request->interest = arena_memdup(&request->resolved, keys, count * sizeof(*keys));
	request->interest_count = count;
}

void turn_answer_unmatched(struct turn *turn, enum code code, const char *text)
{
	const struct correlation *c = turn->correlation;
	struct lane_request *request = turn->request;

	turn_interest(turn, c->wait_keys, c->key_count);
	request->looked_for = arena_alloc(&request->resolved, c->key_count * sizeof(*request->looked_for));
	for (uint32_t i = 0; i < c->key_count; i++)
		request->looked_for[i] = (struct looked_for){arena_str(&request->resolved, c->keys[i].name),
							     arena_str(&request->resolved, c->keys[i].value)};
	request->looked_for_count = c->key_count;
	request->view_number = turn->lane->view->number;
	turn_answer_error(turn, ANSWER_UNMATCHED, code, text);
}

/* --- 0 decode, correlate --- */

/* Timers and commands say themselves whom they are for. */
static void turn_begin_command(struct turn *turn)
{
	const struct lane_request *request = turn->request;
	const struct process *process;

	turn->command_event = (struct event){.payload = request->payload, .time_us = request->due_us};
	turn->event = &turn->command_event;
	if (request->kind != REQUEST_SCHEDULE) {
		turn_enter(turn, TURN_CLAIM);
		return;
	}
	turn->member = view_deployment(turn->lane->view, request->target.deployment);
	process = turn->member && turn->member->phase == DEPLOYMENT_ACTIVE
			  ? deployment_process(turn->member->deployment, request->process)
			  : NULL;
	turn->start = process ? process_node(process, request->target.node) : NULL;
	if (!turn->start) {
		turn_answer_error(turn, ANSWER_AGAIN, CODE_RUNTIME_PIN_UNKNOWN,
				  "the deployment of the start timer is not Active here");
		return;
	}
	turn->id = id_new(turn->lane->executor->loop);
	turn_enter(turn, TURN_STEP);
}

static void turn_decode(struct turn *turn)
{
	struct lane_request *request = turn->request;
	struct error err = ERROR_INIT;
	struct step_env env;

	if (request->kind != REQUEST_MESSAGE) {
		turn_begin_command(turn);
		return;
	}

	turn->route = view_route(turn->lane->view, request->tenant, request->channel);
	if (!turn->route) {
		turn_answer_error(turn, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE,
				  "no deployment of this replica declares the channel");
		return;
	}
	if (request->is_resolved) {
		turn->event = &request->decoded->event;
		turn_enter(turn, TURN_CLAIM);
		return;
	}
	if (!request->decoded && decode_message(request->message, turn->route, &turn->lane->set->settings.decode,
						&request->decoded, &err) != RESULT_OK) {
		turn_reject(turn, &err);
		return;
	}
	if (request->event_id.ptr)
		request->decoded->event.id = request->event_id;
	turn->event = &request->decoded->event;
	if (request->aim.aim != ENVELOPE_AIM_NONE) {
		turn_enter(turn, TURN_RESOLVE);
		return;
	}
	env = turn_env(turn, turn->route->deployment);
	if (correlate_message(&env, request->tenant, turn->route, turn->event, request->event_id, &turn->correlation,
			      &err) != RESULT_OK) {
		turn_reject(turn, &err);
		return;
	}
	request->inbox_key_count = turn->correlation->inbox_key_count;
	request->inbox_keys = arena_memdup(&request->resolved, turn->correlation->inbox_keys,
					   request->inbox_key_count * sizeof(struct id));
	turn_enter(turn, TURN_RESOLVE);
}

/* --- 1 resolve: turn_resolve.c; 2 claim --- */

/*
 * The wait that the resolve found must still be there. A token keeps its number from wait to wait: between the resolve and the
 * claim the instance may have moved on to another node, or to other values, and the message is not for that.
 */
static bool turn_wait_is_there(const struct turn *turn)
{
	const struct relay_target *target = &turn->request->target;

	if (turn->request->kind != REQUEST_MESSAGE)
		return true; /* the engine looks */
	for (uint32_t i = 0; i < turn->inst->token_count; i++) {
		const struct token *token = &turn->inst->tokens[i];

		if (token->id != target->token || token->state != TOKEN_WAITING || !str_equal(token->node, target->node))
			continue;
		for (uint32_t k = 0; k < token->key_count; k++)
			if (id_equal(store_wait_key(turn->request->tenant, turn->request->channel, token->keys[k].name,
						    token->keys[k].value),
				     target->wait_key))
				return true;
	}
	return false;
}

/* Claimed: the pin must be loaded here, the snapshot readable, the instance parked. */
static void turn_load(struct turn *turn)
{
	const struct store_claim claim = turn->ask.claim; /* the union is used again below */
	struct error err = ERROR_INIT;

	turn->member = view_deployment(turn->lane->view, claim.deployment);
	if (!turn->member) {
		turn_interest(turn, &turn->id, 1);
		turn_give_up_claim(turn, ANSWER_REFUSED, CODE_RUNTIME_PIN_UNKNOWN,
				   "the instance is pinned to a deployment that is not loaded here");
		return;
	}
	if (claim.status != INSTANCE_SUSPENDED && !request_is_admin(turn->request->kind)) {
		turn_give_up_claim(turn, ANSWER_AGAIN, CODE_RUNTIME_CORRELATION_NOT_FOUND,
				   "the instance does not wait any more");
		return;
	}
	if (snapshot_unpack(&turn->arena, claim.snapshot, claim.instance, turn->request->tenant, claim.version,
			    &turn->inst, &err) != RESULT_OK) {
		turn_reject_claimed(turn, &err);
		return;
	}
	if (!turn_wait_is_there(turn)) {
		turn_give_up_claim(turn, ANSWER_AGAIN, CODE_RUNTIME_CORRELATION_NOT_FOUND,
				   "the instance does not wait for this any more");
		return;
	}
	turn_enter(turn, TURN_STEP);
}

static void turn_claimed(struct task *done)
{
	struct turn *turn = container_of(done, struct turn, ask.claim.base.done);

	switch (turn->ask.claim.base.outcome) {
	case STORE_OK:
		turn->claimed = true;
		turn->request->version = turn->ask.claim.version;
		turn_load(turn);
		break;
	case STORE_REFUSED:
		turn_count(&turn->lane->stats.bounces[turn->request->kind == REQUEST_MESSAGE ? BOUNCE_RELAY
						      : turn->request->kind == REQUEST_TIMER ? BOUNCE_TIMER
											     : BOUNCE_ADMIN]);
		turn_interest(turn, &turn->id, 1);
		turn_answer_error(turn, ANSWER_REFUSED, CODE_RUNTIME_CLAIM_HELD, "the claim is held");
		break;
	default:
		turn_answer_error(turn, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE,
				  turn->ask.claim.base.error.text);
		break;
	}
}

static void turn_claim(struct turn *turn)
{
	turn->id = turn->request->target.instance;
	turn->ask.claim = (struct store_claim){
		.base = {.reply_to = turn->lane->executor->loop, .done.run = turn_claimed, .arena = &turn->arena},
		.tenant = turn->request->tenant,
		.instance = turn->id,
		.owner = turn_owner(turn),
	};
	store_claim(turn->lane->set->store, &turn->ask.claim);
}

/* --- 3 step --- */

/* The step cannot stand. True: nothing is committed for now, and that is answered. */
static bool turn_tries_again(struct turn *turn, const struct error *why)
{
	enum retry_verdict verdict = retry_failed(turn);
	char id[ID_TEXT_SIZE];
	struct log_about about = turn_about(turn, why->code, id);

	if (verdict == RETRY_FAIL)
		return false;
	outbox_parcel_free(&turn->parcel);
	if (verdict == RETRY_NEVER) {
		turn_reject_claimed(turn, why);
		return true;
	}
	log_warning(&about, "step failed, time %u; it is tried again, nothing was written: %s", turn->request->failures, why->text);
	if (turn->claimed)
		turn_give_up_claim(turn, ANSWER_REFUSED, why->code, why->text);
	else
		turn_answer_error(turn, ANSWER_REFUSED, why->code, why->text);
	return true;
}

void turn_fail(struct turn *turn, const struct error *why, const struct node *at)
{
	struct step_env env = turn_env(turn, turn->member->deployment);
	const struct node *nowhere;
	struct error err = ERROR_INIT;

	if (turn_tries_again(turn, why))
		return;
	outbox_parcel_free(&turn->parcel);
	engine_fail(&env, turn->inst, turn->id, turn->request->tenant, turn->start, turn->event, why, at, &turn->step);
	/* Without sends there is nothing left to code, so this cannot be refused. */
	if (commit_build_step(turn, &nowhere, &err) != RESULT_OK)
		assert(!"a failed step has nothing to code");
	turn_enter(turn, TURN_COMMIT);
}

static enum result turn_run_engine(struct turn *turn, struct error *err)
{
	struct step_env env = turn_env(turn, turn->member->deployment);
	const struct lane_request *request = turn->request;

	switch (request->kind) {
	case REQUEST_MESSAGE:
		if (!turn->start)
			return engine_resume(&env, turn->inst, request->target.token, turn->event, &turn->step, err);
		/* fall through */
	case REQUEST_SCHEDULE:
		return engine_start(&env, turn->id, request->tenant, turn->start, turn->event, &turn->step, err);
	case REQUEST_TIMER:
		return engine_fire(&env, turn->inst, request->target.token, request->due_us, &turn->step, err);
	case REQUEST_RESTORE:
		return engine_restore(&env, turn->inst, &turn->step, err);
	case REQUEST_CANCEL:
		return engine_cancel(&env, turn->inst, &turn->step, err);
	case REQUEST_COMPLETE:
		return engine_complete(&env, turn->inst, request->target.node, turn->event, &turn->step, err);
	}
	return error_set(err, RESULT_FATAL, CODE_RUNTIME_UNEXPECTED, "no such request");
}

static void turn_step(struct turn *turn)
{
	struct lane_set *set = turn->lane->set;
	int64_t began_us = loop_now_us(turn->lane->executor->loop);
	const struct node *at = NULL;
	struct error err = ERROR_INIT;
	enum result result = turn_run_engine(turn, &err);

	histogram_add(&set->step_time, loop_now_us(turn->lane->executor->loop) - began_us);
	if (result == RESULT_AGAIN) {
		turn_give_up_claim(turn, ANSWER_AGAIN, CODE_RUNTIME_CORRELATION_NOT_FOUND,
				   err.text[0] ? err.text : "the wait is gone");
		return;
	}
	if (result != RESULT_OK) {
		turn_reject_claimed(turn, &err);
		return;
	}
	if (turn->step.failed && turn_tries_again(turn, &turn->step.failure))
		return;
	if (commit_build_step(turn, &at, &err) != RESULT_OK) {
		turn_fail(turn, &err, at);
		return;
	}
	turn_enter(turn, TURN_COMMIT);
}

/* --- 4 commit, 5 publish: turn_commit.c; the way back --- */

static void turn_released(struct task *done)
{
	struct turn *turn = container_of(done, struct turn, ask.release.base.done);

	turn->inst = NULL;
	turn->claimed = false;
	if (turn->after == TURN_AFTER_REJECT)
		turn_reject(turn, &turn->error);
	else if (turn->request->answer == ANSWER_DUPLICATE)
		turn_end(turn, ANSWER_DUPLICATE);
	else
		turn_enter(turn, TURN_ANSWERED);
}

static void turn_release(struct turn *turn)
{
	turn->ask.release = (struct store_release){
		.base = {.reply_to = turn->lane->executor->loop, .done.run = turn_released, .arena = &turn->arena},
		.tenant = turn->request->tenant,
		.instance = turn->id,
		.owner = turn_owner(turn),
	};
	store_release(turn->lane->set->store, &turn->ask.release);
}

/* --- 6 answer --- */

static void turn_answered(struct turn *turn)
{
	outbox_parcel_free(&turn->parcel);
	if (turn->request->answer != ANSWER_HANDOFF && turn->request->kind == REQUEST_MESSAGE)
		turn->request->is_resolved = false;
	lane_turn_done(turn->lane);
}

void turn_init(struct turn *turn, struct lane *lane)
{
	*turn = (struct turn){.lane = lane};
	arena_init(&turn->arena);
}

void turn_done(struct turn *turn)
{
	outbox_parcel_free(&turn->parcel);
	arena_done(&turn->arena);
}

void turn_begin(struct turn *turn, struct lane_request *request)
{
	struct arena arena;

	assert(turn->state == TURN_IDLE || turn->state == TURN_ANSWERED);
	arena_reset(&turn->arena);
	arena = turn->arena;
	*turn = (struct turn){.lane = turn->lane, .arena = arena, .request = request};
	turn->now_us = loop_wall_us(turn->lane->executor->loop);
	request->error = ERROR_INIT;
	request->interest_count = 0;
	request->looked_for_count = 0;
	request->joined_count = request->fanned_count = 0;
	if (!request->is_resolved && request->kind == REQUEST_MESSAGE) {
		arena_reset(&request->resolved);
		request->inbox_key_count = 0;
	}
	turn_enter(turn, TURN_DECODE);
}
