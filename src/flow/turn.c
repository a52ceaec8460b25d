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
 * Not one SQL, parse or broker call stands in this file.
 */
#include "flow/turn.h"

#include "base/log.h"
#include "flow/commit.h"
#include "flow/correlate.h"
#include "flow/early.h"
#include "flow/fan_out.h"
#include "flow/lane_set.h"

static const char *const turn_state_names[TURN_STATE_COUNT] = {
	[TURN_IDLE] = "idle",	[TURN_DECODE] = "decode", [TURN_RESOLVE] = "correlate", [TURN_CLAIM] = "claim",
	[TURN_STEP] = "step",	[TURN_COMMIT] = "commit", [TURN_RELEASE] = "release",	[TURN_ANSWERED] = "settle",
};

const char *turn_state_name(enum turn_state state)
{
	return turn_state_names[state];
}

static void turn_decode(struct turn *turn);
static void turn_resolve(struct turn *turn);
static void turn_claim(struct turn *turn);
static void turn_step(struct turn *turn);
static void turn_commit(struct turn *turn);
static void turn_release(struct turn *turn);
static void turn_answered(struct turn *turn);

/* The one place that moves a turn from state to state, and the function that makes each state. */
static void turn_enter(struct turn *turn, enum turn_state state)
{
	static void (*const states[TURN_STATE_COUNT])(struct turn *) = {
		[TURN_DECODE] = turn_decode, [TURN_RESOLVE] = turn_resolve, [TURN_CLAIM] = turn_claim,
		[TURN_STEP] = turn_step,     [TURN_COMMIT] = turn_commit,   [TURN_RELEASE] = turn_release,
		[TURN_ANSWERED] = turn_answered,
	};

	turn->state = state;
	states[state](turn);
}

/* Read by the admin listener. */
static void turn_count(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static struct log_about turn_about(const struct turn *turn, enum code code, char text[static ID_TEXT_SIZE])
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

static void turn_answer(struct turn *turn, enum lane_answer answer)
{
	turn->request->answer = answer;
	turn_enter(turn, TURN_ANSWERED);
}

static void turn_answer_error(struct turn *turn, enum lane_answer answer, enum code code, const char *text)
{
	error_set(&turn->request->error, RESULT_AGAIN, code, "%s", text);
	turn_answer(turn, answer);
}

/*
 * Ends a message that has no effect. Of one that the database keeps the row goes first: what is answered as done must never be
 * found again.
 */
static void turn_end(struct turn *turn, enum lane_answer answer)
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

/*
 * It can never succeed. A message's dead letter is committed, then it is done (G9); a start timer goes on to its next time; what
 * else there is has nothing to write, and its sender is told.
 */
static void turn_reject(struct turn *turn, const struct error *why)
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

/* As turn_reject, but a claim that is held is given back first. */
static void turn_reject_claimed(struct turn *turn, const struct error *why)
{
	if (!turn->claimed) {
		turn_reject(turn, why);
		return;
	}
	turn->after = TURN_AFTER_REJECT;
	turn->error = *why;
	turn_enter(turn, TURN_RELEASE);
}

/* Every way out of a held claim but its commit. */
static void turn_give_up_claim(struct turn *turn, enum lane_answer answer, enum code code, const char *text)
{
	turn->after = TURN_AFTER_ANSWER;
	turn->request->answer = answer;
	error_set(&turn->request->error, RESULT_AGAIN, code, "%s", text);
	turn_enter(turn, TURN_RELEASE);
}

/* What a later wake-up may come for: kept with the request, since the turn's arena ends. */
static void turn_interest(struct turn *turn, const struct id *keys, uint32_t count)
{
	struct lane_request *request = turn->request;

	request->interest = arena_memdup(&request->resolved, keys, count * sizeof(*keys));
	request->interest_count = count;
}

/* Nobody waits yet for what the message looks for. */
static void turn_answer_unmatched(struct turn *turn, enum code code, const char *text)
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

/* --- 1 resolve --- */

static void turn_spawn(struct turn *turn, const struct node *start, struct str deployment)
{
	turn->start = start;
	turn->member = view_deployment(turn->lane->view, deployment);
	turn->id = id_new(turn->lane->executor->loop);
	turn->request->decoded->event.dead_letter = commit_dead_letter_id(turn);
	turn_enter(turn, TURN_STEP);
}

/* A FAILED instance waits for nothing until it is restored, but it is known by its aliases: the hold of the message has ended before. */
static bool turn_is_for_failed(struct turn *turn)
{
	struct error err = ERROR_INIT;
	char id[ID_TEXT_SIZE];

	if (id_is_none(turn->failed_instance))
		return false;
	error_set(&err, RESULT_REJECT, CODE_DISPATCH_INSTANCE_FAILED, "instance %s is FAILED and was not restored within the hold",
		  id_format(turn->failed_instance, id));
	turn_reject(turn, &err);
	return true;
}

static void turn_unmatched(struct turn *turn)
{
	const struct correlation *c = turn->correlation;
	struct error err = ERROR_INIT;

	if (!turn->request->unmatched_is_final && c->key_count) {
		turn_answer_unmatched(turn, CODE_RUNTIME_CORRELATION_NOT_FOUND, "no live wait matches yet");
		return;
	}
	if (turn_is_for_failed(turn))
		return;
	if (turn->route->channel->unmatched_then == CHANNEL_UNMATCHED_DROP) {
		turn_end(turn, ANSWER_DROPPED);
		return;
	}
	error_set(&err, RESULT_REJECT, CODE_RUNTIME_CORRELATION_NOT_FOUND,
		  c->key_count ? "no live wait matched within the hold"
			       : "the message has no value that a wait could be found by");
	turn_reject(turn, &err);
}

static void turn_go_to(struct turn *turn, const struct envelope_note *wait)
{
	struct lane_request *request = turn->request;
	uint32_t owner_lane = lane_set_lane_of_instance(turn->lane->set, wait->instance);

	request->target = (struct relay_target){
		.instance = wait->instance,
		.token = wait->token,
		.node = arena_str(&request->resolved, wait->node),
		.deployment = arena_str(&request->resolved, wait->deployment),
		.wait_key = wait->wait_key,
	};
	request->is_resolved = true;
	request->target_lane = owner_lane;
	if (owner_lane != turn->lane->index || request->resolve_only) {
		turn_answer(turn, ANSWER_HANDOFF);
		return;
	}
	turn_enter(turn, TURN_CLAIM);
}

/* --- several targets --- */

/* The commit gives each target a row; the intake runs them. */
static void turn_fan_out(struct turn *turn, const struct envelope_note *notes, uint32_t count)
{
	struct error err = ERROR_INIT;

	if (fan_out_build(turn, notes, count, &err) != RESULT_OK) {
		turn_reject(turn, &err);
		return;
	}
	turn->fanning = true;
	turn_enter(turn, TURN_COMMIT);
}

/* For whom it is, so that it stands in order with what else is for them; what is done with it is looked up anew when its turn has come. */
static void turn_answer_joined(struct turn *turn, const struct envelope_note *waits, uint32_t count)
{
	struct lane_request *request = turn->request;

	request->order_key = turn->correlation->order_key;
	request->target.instance = waits[0].instance;
	request->target_lane = turn->lane->index;
	request->joined = arena_alloc(&request->resolved, count * sizeof(struct id));
	for (request->joined_count = 0; request->joined_count < count; request->joined_count++)
		request->joined[request->joined_count] = waits[request->joined_count].instance;
	turn_answer(turn, ANSWER_HANDOFF);
}

static void turn_looked_before(struct task *done)
{
	struct turn *turn = container_of(done, struct turn, ask.resolve.base.done);
	const struct store_resolve *resolve = &turn->ask.resolve;

	if (resolve->base.outcome != STORE_OK)
		turn_answer_error(turn, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, resolve->base.error.text);
	else if (!resolve->kept_ahead)
		turn_go_to(turn, &turn->relayed_note);
	else if (turn->request->resolve_only)
		turn_answer_joined(turn, &turn->relayed_note, 1);
	else
		turn_fan_out(turn, &turn->relayed_note, 1);
}

/*
 * To one wait. Where messages may have several targets, one before it may have left a row for this instance, which goes first: then
 * this one is put behind it.
 */
static void turn_relay(struct turn *turn, const struct store_wait *wait)
{
	struct lane_request *request = turn->request;

	request->order_key = turn->correlation->order_key;
	turn->relayed_note = correlate_note(request->tenant, turn->correlation, &turn->ask.resolve, wait);
	if (!fan_out_is_possible(turn->route)) {
		turn_go_to(turn, &turn->relayed_note);
		return;
	}
	turn->ask.resolve = (struct store_resolve){
		.base = {.reply_to = turn->lane->executor->loop, .done.run = turn_looked_before, .arena = &turn->arena},
		.tenant = request->tenant,
		.order_key = fan_out_order_key(turn, &turn->relayed_note),
		.kept_before = INT64_MAX,
	};
	store_resolve(turn->lane->set->store, &turn->ask.resolve);
}

/* Its sender puts it in order first: what it does depends on what those before it do. */
static void turn_answer_resolved(struct turn *turn)
{
	turn->request->order_key = turn->correlation->order_key;
	turn_answer(turn, ANSWER_RESOLVED);
}

/*
 * Messages of its order key that came before it stand in the database: whoever keeps them runs them first (G8). Which instance
 * waits for it now only tells whom it stands in order with.
 */
static void turn_behind_kept(struct turn *turn, const struct correlate_targets *targets)
{
	if (turn->request->resolve_only && targets && targets->wait_count) {
		turn_answer_joined(turn, targets->notes, targets->wait_count);
		return;
	}
	if (turn->request->resolve_only) {
		turn_answer_resolved(turn);
		return;
	}
	turn_interest(turn, &turn->request->kept_key, 1);
	turn_answer_error(turn, ANSWER_REFUSED, CODE_RUNTIME_KEPT_AHEAD,
			  "messages that the database keeps come before it");
}

/* On to whoever is to have it. */
static void turn_go(struct turn *turn, const struct correlate_targets *targets)
{
	struct lane_request *request = turn->request;

	if (targets->verdict == CORRELATE_WAIT)
		turn_relay(turn, targets->wait);
	else if (request->resolve_only && targets->wait_count)
		turn_answer_joined(turn, targets->notes, targets->wait_count);
	else if (request->resolve_only && turn->correlation->key_count)
		turn_answer_resolved(turn);
	else if (targets->verdict == CORRELATE_SEVERAL)
		turn_fan_out(turn, targets->notes, targets->count);
	else if (targets->verdict == CORRELATE_START)
		turn_spawn(turn, targets->start->node, targets->start->deployment->id);
	else
		turn_unmatched(turn);
}

static void turn_resolved(struct task *done)
{
	struct turn *turn = container_of(done, struct turn, ask.resolve.base.done);
	const struct store_resolve *resolve = &turn->ask.resolve;
	struct correlate_targets targets;

	if (resolve->base.outcome != STORE_OK) {
		turn_answer_error(turn, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, resolve->base.error.text);
		return;
	}
	if (resolve->duplicate) {
		turn_end(turn, ANSWER_DUPLICATE);
		return;
	}
	if (resolve->failed_count)
		turn->failed_instance = resolve->failed[0];
	targets = correlate_targets(&turn->arena, turn->request->tenant, turn->correlation, resolve,
				    turn->route->channel->broadcast);
	if (resolve->kept_ahead)
		turn_behind_kept(turn, &targets);
	else
		turn_go(turn, &targets);
}

/*
 * What it would be kept in order of. A channel without waits refuses nothing, so nothing of it is ever kept. Where the
 * order is by instance, the business key stands for it.
 */
static void turn_order(struct turn *turn)
{
	struct lane_request *request = turn->request;
	const struct message *message = request->message;
	struct str key = message->order_key;

	if (!id_is_none(request->kept_row))
		return;
	if (message->orders_by_instance && turn->correlation->key_count)
		key = id_str(&turn->correlation->order_key);
	request->kept_key = turn->route->wait_count && key.ptr
				    ? id_digest_of(STR("order"), request->tenant, request->channel, key)
				    : ID_NONE;
}

/* The last look: whom it is for may be FAILED. */
static void turn_ask_for_failed(struct turn *turn)
{
	const struct correlation *c = turn->correlation;
	struct id *keys = arena_alloc(&turn->arena, (c->key_count + 1) * sizeof(*keys));

	for (uint32_t i = 0; i < c->key_count; i++)
		keys[i] = store_alias_key(turn->request->tenant, c->keys[i].name, c->keys[i].value);
	turn->ask.resolve.alias_keys = keys;
	turn->ask.resolve.alias_key_count = c->key_count;
}

/* --- one target of several --- */

/* It does not wait for it any more. If it is FAILED that is for the time being. */
static void turn_aim_gone(struct turn *turn)
{
	const struct envelope_note *aim = &turn->request->aim;
	const struct store_resolve *resolve = &turn->ask.resolve;
	char id[ID_TEXT_SIZE];
	struct log_about about;

	for (uint32_t i = 0; i < resolve->failed_count; i++)
		if (id_equal(resolve->failed[i], aim->instance))
			turn->failed_instance = aim->instance;
	if (id_is_none(turn->failed_instance)) {
		turn->id = aim->instance;
		about = turn_about(turn, CODE_NONE, id);
		log_info(&about, "one target of several does not wait for the message any more: no effect there");
		turn_end(turn, ANSWER_GONE);
		return;
	}
	if (turn->request->unmatched_is_final) {
		turn_is_for_failed(turn);
		return;
	}
	turn_interest(turn, &aim->wait_key, 1);
	turn->request->view_number = turn->lane->view->number;
	turn_answer_error(turn, ANSWER_UNMATCHED, CODE_RUNTIME_CORRELATION_NOT_FOUND, "the instance is FAILED");
}

/* The deployment that it was for, or the one that has come in its place. */
static void turn_aim_start(struct turn *turn)
{
	const struct envelope_note *aim = &turn->request->aim;
	const struct subscription *start = fan_out_start(turn->route, aim);
	struct error err = ERROR_INIT;

	if (start) {
		turn_spawn(turn, start->node, start->deployment->id);
		return;
	}
	error_set(&err, RESULT_REJECT, CODE_INBOUND_NO_ACTIVE_DEPLOYMENT, "no Active deployment starts process %.*s on this channel",
		  STR_ARG(aim->process));
	turn_reject(turn, &err);
}

static void turn_aimed(struct task *done)
{
	struct turn *turn = container_of(done, struct turn, ask.resolve.base.done);
	const struct store_resolve *resolve = &turn->ask.resolve;
	const struct envelope_note *aim = &turn->request->aim;

	if (resolve->base.outcome != STORE_OK) {
		turn_answer_error(turn, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, resolve->base.error.text);
		return;
	}
	if (resolve->kept_ahead) {
		turn_behind_kept(turn, NULL);
		return;
	}
	if (aim->aim == ENVELOPE_AIM_START) {
		turn_aim_start(turn);
		return;
	}
	for (uint32_t i = 0; i < resolve->wait_count; i++) {
		const struct store_wait *wait = &resolve->waits[i];

		if (!id_equal(wait->instance, aim->instance) || wait->token != aim->token || !str_equal(wait->node, aim->node))
			continue;
		turn_go_to(turn, aim);
		return;
	}
	turn_aim_gone(turn);
}

static void turn_resolve_aim(struct turn *turn)
{
	const struct lane_request *request = turn->request;

	turn->ask.resolve = (struct store_resolve){
		.base = {.reply_to = turn->lane->executor->loop, .done.run = turn_aimed, .arena = &turn->arena},
		.tenant = request->tenant,
		.wait_keys = &request->aim.wait_key,
		.wait_key_count = request->aim.aim == ENVELOPE_AIM_WAIT,
		.alias_keys = &request->aim.alias_key,
		.alias_key_count = request->aim.aim == ENVELOPE_AIM_WAIT,
		.order_key = request->kept_key,
		.kept_before = request->kept_seq,
	};
	store_resolve(turn->lane->set->store, &turn->ask.resolve);
}

static void turn_resolve(struct turn *turn)
{
	const struct correlation *c = turn->correlation;

	struct correlate_targets targets;

	if (turn->request->aim.aim != ENVELOPE_AIM_NONE) {
		turn_resolve_aim(turn);
		return;
	}
	turn_order(turn);
	/* A plain spawn asks nothing: the gates of its commit answer. */
	if (!c->has_waits && id_is_none(turn->request->kept_key)) {
		targets = correlate_targets(&turn->arena, turn->request->tenant, c, NULL, turn->route->channel->broadcast);
		turn_go(turn, &targets);
		return;
	}
	turn->ask.resolve = (struct store_resolve){
		.base = {.reply_to = turn->lane->executor->loop, .done.run = turn_resolved, .arena = &turn->arena},
		.tenant = turn->request->tenant,
		.inbox_keys = c->inbox_keys,
		.inbox_key_count = c->inbox_key_count,
		.wait_keys = c->wait_keys,
		.wait_key_count = c->key_count,
		.order_key = turn->request->kept_key,
		.kept_before = id_is_none(turn->request->kept_row) ? INT64_MAX : turn->request->kept_seq,
	};
	if (turn->request->unmatched_is_final)
		turn_ask_for_failed(turn);
	store_resolve(turn->lane->set->store, &turn->ask.resolve);
}

/* --- 2 claim --- */

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

/* The step cannot stand: commit the instance as FAILED, its waits resolved, and the message's dead letter. */
static void turn_fail(struct turn *turn, const struct error *why, const struct node *at)
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

/* --- 4 commit, 5 publish --- */

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
	case STORE_REFUSED:
	case STORE_UNAVAILABLE:
		turn_commit_undone(turn, ANSWER_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, commit->base.error.text);
		break;
	}
}

static void turn_commit(struct turn *turn)
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

/* --- the way back --- */

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
