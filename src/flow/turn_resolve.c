/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turn's first stage: for whom is the message? What the resolve found makes it a spawn, a relay to the lane of its instance, rows
 * for several targets, a duplicate, or unmatched. Nothing is written here but by way of TURN_COMMIT.
 */
#include "flow/turn_private.h"

#include "flow/commit.h"
#include "flow/correlate.h"
#include "flow/fan_out.h"

static void turn_spawn(struct turn *turn, const struct node *start, struct str deployment)
{
	turn->start = start;
	turn->member = view_deployment(turn->lane->view, deployment);
	turn->id = id_new(turn->lane->executor->loop);
	turn->request->decoded->event.dead_letter = commit_dead_letter_id(turn);
	turn_enter(turn, TURN_STEP);
}

/* A FAILED instance waits for nothing until it is restored, but it is known by its aliases: the hold of the message has ended before. */
bool turn_is_for_failed(struct turn *turn)
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
	else if (!resolve->kept_ahead && turn->relayed_start)
		turn_spawn(turn, turn->relayed_start->node, turn->relayed_start->deployment->id);
	else if (!resolve->kept_ahead)
		turn_go_to(turn, &turn->relayed_note);
	else if (turn->request->resolve_only && !turn->relayed_start)
		turn_answer_joined(turn, &turn->relayed_note, 1);
	else
		turn_fan_out(turn, &turn->relayed_note, 1);
}

/* Whether a row for the one target in relayed_note goes first. */
static void turn_look_before(struct turn *turn)
{
	turn->ask.resolve = (struct store_resolve){
		.base = {.reply_to = turn->lane->executor->loop, .done.run = turn_looked_before, .arena = &turn->arena},
		.tenant = turn->request->tenant,
		.order_key = fan_out_order_key(turn, &turn->relayed_note),
		.kept_before = INT64_MAX,
	};
	store_resolve(turn->lane->set->store, &turn->ask.resolve);
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
	turn->relayed_start = NULL;
	turn_look_before(turn);
}

/*
 * Of all processes one begins, and nobody waits. Where the channel broadcasts, a message before it, for which somebody did, may have left
 * a row for the same process.
 */
static void turn_start(struct turn *turn, const struct correlate_targets *targets)
{
	if (!turn->route->channel->broadcast || id_is_none(turn->request->kept_key)) {
		turn_spawn(turn, targets->start->node, targets->start->deployment->id);
		return;
	}
	turn->relayed_note = targets->notes[0];
	turn->relayed_start = targets->start;
	turn_look_before(turn);
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
		turn_start(turn, targets);
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

void turn_resolve(struct turn *turn)
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
