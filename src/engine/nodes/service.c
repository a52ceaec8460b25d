/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channel calls: send a request, park for its answer, with a time after which none is waited for any more.
 *
 *	         enter                    the answer
 *	 (READY) ──────► waits, with keys ──────────► goes on
 *	                  │  ▲
 *	    an answer     │  │ its timer: the request is sent anew
 *	    with an error │  │
 *	    or the timer  ▼  │
 *	                 waits, without keys ─ attempts spent, or a code not to be tried again ─► BPMN error
 *
 * Between two attempts the token waits for its timer alone: nothing finds it, so a late answer to the attempt before comes
 * too late. The next attempt is another step, so uuid() gives other values, and neither does it find the new wait.
 *
 * The token remembers which attempt it is at and which outbox row has the request, so that a call that ends without an
 * answer takes back a request that was not sent yet.
 */
#include <inttypes.h>

#include "engine/nodes/nodes.h"

#define TIMEOUT_MAX_US (INT64_C(36500) * 86400 * 1000000) /* a hundred years */

static const struct str attempt_name = {"#attempt", 8};
static const struct str request_name = {"#request", 8};
static const struct str timeout_code = {"CALL.TIMEOUT", 12};

static enum result timeout_of(struct step *step, const struct node *node, int64_t *us,
			      struct error *err)
{
	const struct call_rule *call = node->call;
	msgpack_object value;
	int64_t ms = 0;
	enum result result;

	*us = call->timeout_us;
	if (!call->timeout)
		return RESULT_OK;
	result = step_eval(step, node, call->timeout, &value, err);
	if (result != RESULT_OK)
		return result;
	/* A duration as text, or milliseconds, which is what duration() gives. */
	if (!(value.type == MSGPACK_OBJECT_STR ? str_to_duration_ms(value_as_str(&value), &ms)
					       : value_as_int(&value, &ms)) ||
	    ms <= 0 || ms > TIMEOUT_MAX_US / 1000)
		return error_set(err, RESULT_REJECT, CODE_EXPRESSION_FAILED,
				 "the q:timeout is neither a duration like \"PT30S\" nor a number of "
				 "milliseconds above 0");
	*us = ms * 1000;
	return RESULT_OK;
}

static int64_t attempt_of(struct step *step)
{
	const msgpack_object *value = token_local(step_token(step, step->at.token), attempt_name);
	int64_t attempt = 1;

	return value && value_as_int(value, &attempt) && attempt >= 1 ? attempt : 1;
}

/* Which outbox row the request is, by its place in the step: (version, ordinal). */
static enum result remember_request(struct step *step, struct error *err)
{
	msgpack_object place = value_array(step->env->arena, 2);

	place.via.array.ptr[0] = value_int(step->inst->version);
	place.via.array.ptr[1] = value_int(step->out->sends[step->out->send_count - 1].ordinal);
	return step_local_set(step, request_name, &place, err);
}

bool token_request(const struct token *token, struct step_withdrawn *out)
{
	const msgpack_object *place = token_local(token, request_name);
	int64_t ordinal;

	if (!place || place->type != MSGPACK_OBJECT_ARRAY || place->via.array.size != 2 ||
	    !value_as_int(&place->via.array.ptr[0], &out->version) ||
	    !value_as_int(&place->via.array.ptr[1], &ordinal) || ordinal < 0 || ordinal > UINT32_MAX)
		return false;
	out->ordinal = (uint32_t)ordinal;
	return true;
}

/* Everything is evaluated before the request counts as sent: the timeout, the request, the keys. */
static enum result attempt_begin(struct step *step, const struct node *node, struct error *err)
{
	uint32_t sends = step->out->send_count;
	int64_t timeout_us;
	enum result result = timeout_of(step, node, &timeout_us, err);

	if (result == RESULT_OK)
		result = step_emit(step, node, err);
	if (result == RESULT_OK)
		result = remember_request(step, err);
	if (result == RESULT_OK)
		result = step_wait_begin(step, node, err);
	if (result == RESULT_OK)
		step_set_due(step, step->env->now_us + timeout_us);
	else
		step->out->send_count = sends;
	return result;
}

enum result node_service_enter(struct step *step, const struct node *node, struct error *err)
{
	uint32_t sends = step->out->send_count;
	enum result result = attempt_begin(step, node, err);

	if (result == RESULT_OK)
		result = step_arm_boundaries(step, node, err);
	if (result == RESULT_OK)
		step->at.node = NULL;
	else
		step->out->send_count = sends;
	return result;
}

enum result node_service_resume(struct step *step, const struct node *node, struct error *err)
{
	return task_end(step, node, false, err);
}

static bool is_final(const struct retry_rule *retry, struct str code)
{
	for (uint32_t i = 0; i < retry->final_code_count; i++)
		if (str_equal(retry->final_codes[i], code))
			return true;
	return false;
}

/* The pause behind the attempt that failed. */
static int64_t delay_behind(const struct retry_rule *retry, int64_t attempt)
{
	int64_t delay = retry->initial_delay_us;

	for (int64_t i = 1; i < attempt && delay < retry->max_delay_us; i++)
		if (__builtin_mul_overflow(delay, retry->coefficient_milli, &delay))
			delay = retry->max_delay_us;
		else
			delay /= 1000;
	return delay < retry->max_delay_us ? delay : retry->max_delay_us;
}

/* The token waits on, for its timer alone. */
static enum result wait_to_retry(struct step *step, const struct retry_rule *retry, int64_t attempt,
				 struct error *err)
{
	const msgpack_object next = value_int(attempt + 1);
	enum result result = step_local_set(step, attempt_name, &next, err);
	struct token *token;

	if (result != RESULT_OK)
		return result;
	step_local_remove(step, request_name);
	token = step_token(step, step->at.token);
	token->state = TOKEN_WAITING;
	token->fresh = true;
	step_set_due(step, step->env->now_us + delay_behind(retry, attempt));
	step->at.node = NULL;
	return RESULT_OK;
}

enum result node_service_failed(struct step *step, const struct node *node, struct str code,
				struct str message, struct error *err)
{
	const struct retry_rule *retry = node->call->retry;
	int64_t attempt = attempt_of(step);

	if (retry && attempt < retry->max_attempts && !is_final(retry, code))
		return wait_to_retry(step, retry, attempt, err);
	return step_raise(step, code, message, err);
}

enum result node_service_fire(struct step *step, const struct node *node, struct error *err)
{
	int64_t attempt = attempt_of(step);
	enum result result;
	struct str message;

	if (!step->event_key_count) {
		result = attempt_begin(step, node, err);
		if (result == RESULT_OK)
			step->at.node = NULL;
		return result;
	}
	message = str_of(arena_printf(step->env->arena, "no answer came in time, in attempt %" PRId64,
				      attempt));
	return node_service_failed(step, node, timeout_code, message, err);
}
