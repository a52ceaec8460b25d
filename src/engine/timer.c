/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: when one is due, and what comes of it.
 *
 * A timer is a time on a waiting token, and nothing else: a token may wait for a message, for a timer, or for whichever comes
 * first. What a diagram says is evaluated once, when the token is armed; a cycle that goes on takes its period and its count
 * with it, so that it neither drifts nor changes its mind.
 */
#include <inttypes.h>

#include "engine/behaviour.h"

/* What the rule says now: itself, or what its expression gives. */
static enum result timer_literal(struct step *step, const struct node *node,
				 const struct timer_rule *rule, struct timer_rule *out,
				 struct error *err)
{
	msgpack_object value;
	enum result result;

	*out = *rule;
	if (!rule->expression)
		return RESULT_OK;
	result = step_eval(step, node, rule->expression, &value, err);
	if (result != RESULT_OK)
		return result;
	if (value.type != MSGPACK_OBJECT_STR && value.type != MSGPACK_OBJECT_BIN)
		return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
				 "the expression of the %s gives no text", timer_kind_name(rule->kind));
	return timer_parse(rule->kind, value_as_str(&value), out, err);
}

enum result step_due(struct step *step, const struct node *node, const struct timer_rule *rule,
		     int64_t *due_us, struct error *err)
{
	struct timer_rule literal;
	int64_t remaining;
	enum result result = timer_literal(step, node, rule, &literal, err);

	/* A cycle whose times have all passed is due at once, like a date that has. */
	if (result == RESULT_OK)
		timer_first(&literal, step->env->now_us, due_us, &remaining);
	return result;
}

void step_set_due(struct step *step, int64_t due_us)
{
	struct token *token = step_token(step, step->at.token);

	assert(token->state == TOKEN_WAITING);
	token->due_us = due_us < 1 ? 1 : due_us > ISO_LAST_US ? ISO_LAST_US : due_us;
	token->period_us = token->remaining = 0;
}

/* What does not end what it stands beside may come again. */
static bool may_come_again(const struct node *node)
{
	return (node->kind == NODE_BOUNDARY_TIMER || node->kind == NODE_EVENT_START_TIMER) &&
	       !node->interrupting;
}

enum result timer_begin(struct step *step, const struct node *node, struct error *err)
{
	struct timer_rule literal;
	struct token *token;
	int64_t due_us, remaining;
	enum result result = timer_literal(step, node, node->timer, &literal, err);

	if (result != RESULT_OK)
		return result;
	timer_first(&literal, step->env->now_us, &due_us, &remaining);
	token = step_token(step, step->at.token);
	token->state = TOKEN_WAITING;
	token->fresh = true;
	step_set_due(step, due_us);
	if (literal.kind == TIMER_CYCLE && remaining != 0 && may_come_again(node)) {
		token->period_us = literal.cycle.period_us;
		token->remaining = remaining;
	}
	return RESULT_OK;
}

bool timer_rearm(struct step *step)
{
	struct token *token = step_token(step, step->at.token);
	int64_t due_us, remaining;

	if (!step->event_period_us ||
	    !timer_next_in(step->event_period_us, step->event_due_us, step->env->now_us,
			   step->event_remaining, &due_us, &remaining))
		return false;
	token->state = TOKEN_WAITING;
	token->fresh = true;
	step_set_due(step, due_us);
	if (remaining != 0) {
		token->period_us = step->event_period_us;
		token->remaining = remaining;
	}
	return true;
}

enum result engine_fire(const struct step_env *env, const struct instance *inst, uint32_t token,
			int64_t due_us, struct step_result *out, struct error *err)
{
	const struct token *waiting = instance_token(inst, token);
	const struct event event = {.time_us = due_us};

	if (inst->status != INSTANCE_SUSPENDED || !waiting || waiting->state != TOKEN_WAITING ||
	    !waiting->due_us || waiting->due_us != due_us)
		return error_set(err, RESULT_AGAIN, CODE_NONE,
				 "token %u has no timer due at %" PRId64, token, due_us);
	return step_resume_token(env, inst, token, &event, true, out, err);
}
