/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channel calls: service and business rule tasks with implementation="channel:<outbound channel>". The request goes out by that
 * channel; q:source and q:alias say how its answer is known, as of any wait; q:timeout and q:retry what happens without one.
 *
 * What is sent: the body of a q:send if the task has one, else a map of its inputs, else the variable responseBody if the
 * process declares it, else nothing (nil). The channel of a call stands in one place, its implementation.
 */
#include "model/bpmn.h"

#include "base/time.h"

#define ATTEMPTS_MAX 1000
#define COEFFICIENT_MAX 1000
#define DURATION_MAX_MS (INT64_C(36500) * 86400000) /* a hundred years */

static const struct str channel_scheme = {"channel:", 8};
static const struct str data_scheme = {"data:", 5};

/* An ISO-8601 duration of more than nothing, in microseconds; 0 after a finding. */
static int64_t read_duration(struct bpmn_reader *reader, const struct element *el, const char *name,
			     struct str text)
{
	int64_t ms;

	if (str_to_duration_ms(text, &ms) && ms > 0 && ms <= DURATION_MAX_MS)
		return ms * US_PER_MS;
	bpmn_invalid(reader, el->line,
		     "%s of q:%.*s is \"%.*s\" and no duration like PT30S (days, hours, minutes, seconds)",
		     name, STR_ARG(el->name), STR_ARG(text));
	return 0;
}

void bpmn_read_timeout(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct str text = bpmn_required(reader, el, "duration");
	struct call_rule *call = bpmn_call_rule(reader, node);

	if (call->has_timeout)
		bpmn_invalid(reader, el->line, "there is more than one q:timeout");
	call->has_timeout = true;
	if (!text.ptr)
		return;
	if (text.ptr[0] == '=')
		call->timeout = bpmn_expression(reader, EXPRESSION_VALUE,
						str_make(text.ptr + 1, text.len - 1), el->line);
	else
		call->timeout_us = read_duration(reader, el, "duration", text);
}

static int64_t read_delay(struct bpmn_reader *reader, struct element *el, const char *name,
			  int64_t otherwise)
{
	struct str text = element_attribute(el, name);

	return text.ptr ? read_duration(reader, el, name, text) : otherwise;
}

/* A decimal number with at most three places, in thousandths; false if it is none. */
static bool read_thousandths(struct str text, int64_t *out)
{
	ptrdiff_t point = str_find(text, '.');
	struct str whole = point < 0 ? text : str_make(text.ptr, (size_t)point);
	struct str places = point < 0 ? STR("") : str_make(text.ptr + point + 1, text.len - (size_t)point - 1);
	int64_t v, part = 0;

	if (!whole.len || whole.ptr[0] == '-' || !str_to_int64(whole, &v) || v > COEFFICIENT_MAX ||
	    places.len > 3 || (point >= 0 && !places.len))
		return false;
	for (size_t i = 0; i < 3; i++) {
		char digit = i < places.len ? places.ptr[i] : '0';

		if (digit < '0' || digit > '9')
			return false;
		part = 10 * part + (digit - '0');
	}
	*out = 1000 * v + part;
	return *out >= 1000;
}

static int64_t read_coefficient(struct bpmn_reader *reader, struct element *el)
{
	struct str text = element_attribute(el, "backoffCoefficient");
	int64_t value = 2000;

	if (text.ptr && !read_thousandths(text, &value))
		bpmn_invalid(reader, el->line,
			     "backoffCoefficient of q:retry is \"%.*s\" and no number from 1 to %d, with at "
			     "most three places",
			     STR_ARG(text), COEFFICIENT_MAX);
	return value;
}

static bool is_separator(char c)
{
	return memchr(", \t\r\n", c, 5) != NULL;
}

static void read_codes(struct bpmn_reader *reader, struct retry_rule *retry, struct str text)
{
	struct build *build = reader->build;
	size_t at = 0;

	while (at < text.len) {
		size_t from;

		while (at < text.len && is_separator(text.ptr[at]))
			at++;
		for (from = at; at < text.len && !is_separator(text.ptr[at]);)
			at++;
		if (at == from)
			break;
		retry->final_codes = build_grow(build->arena, retry->final_codes,
						retry->final_code_count,
						sizeof(retry->final_codes[0]));
		retry->final_codes[retry->final_code_count++] =
			build_str(build, str_make(text.ptr + from, at - from));
	}
}

void bpmn_read_retry(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct call_rule *call = bpmn_call_rule(reader, node);
	struct retry_rule *retry = arena_zalloc(reader->build->arena, sizeof(*retry));
	struct str attempts = bpmn_required(reader, el, "maxAttempts");
	int64_t most = 1;

	if (call->retry)
		bpmn_invalid(reader, el->line, "there is more than one q:retry");
	if (attempts.ptr && (!str_to_int64(attempts, &most) || most < 1 || most > ATTEMPTS_MAX)) {
		bpmn_invalid(reader, el->line,
			     "maxAttempts of q:retry is \"%.*s\" and no number from 1 to %d",
			     STR_ARG(attempts), ATTEMPTS_MAX);
		most = 1;
	}
	retry->max_attempts = (uint32_t)most;
	retry->initial_delay_us = read_delay(reader, el, "initialDelay", US_PER_S);
	retry->max_delay_us = read_delay(reader, el, "maxDelay", 5 * 60 * US_PER_S);
	retry->coefficient_milli = read_coefficient(reader, el);
	read_codes(reader, retry, element_attribute(el, "nonRetryableCodes"));
	call->retry = retry;
}

/* The q:send of a call: all but the channel, which the implementation names. */
void bpmn_read_request(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct build *build = reader->build;
	struct send_rule *send = arena_zalloc(build->arena, sizeof(*send));

	if (node->send)
		bpmn_invalid(reader, el->line, "there is more than one q:send");
	if (element_attribute(el, "channel").ptr)
		bpmn_invalid(reader, el->line,
			     "the q:send of a service task names no channel: its implementation does");
	send->body = bpmn_attribute(reader, el, "body");
	send->content_type = build_str(build, element_attribute(el, "contentType"));
	send->required = bpmn_flag(reader, el, "required");
	node->send = send;
}

struct call_rule *bpmn_call_rule(struct bpmn_reader *reader, struct node *node)
{
	if (!node->call)
		node->call = arena_zalloc(reader->build->arena, sizeof(*node->call));
	return node->call;
}

/* The channel that the request goes out by; absent after a finding. */
static struct str read_implementation(struct bpmn_reader *reader, const struct node *node,
				      struct element *el)
{
	struct str text = element_attribute(el, "implementation");

	if (str_starts_with(text, channel_scheme) && text.len > channel_scheme.len)
		return build_str(reader->build, str_make(text.ptr + channel_scheme.len,
							 text.len - channel_scheme.len));
	/* What else it says or lacks does not matter then. */
	el->refused = true;
	reader->refused++;
	if (str_starts_with(text, data_scheme))
		bpmn_unsupported(reader, node->line,
				 "implementation=\"%.*s\": data stores are not supported yet",
				 STR_ARG(text));
	else if (text.ptr)
		bpmn_unsupported(reader, node->line,
				 "implementation=\"%.*s\" is not supported; a %.*s calls over a channel: "
				 "\"channel:<name of an outbound channel>\"",
				 STR_ARG(text), STR_ARG(el->name));
	else
		bpmn_unsupported(reader, node->line,
				 "a %.*s without implementation is not supported; it calls over a channel: "
				 "\"channel:<name of an outbound channel>\"",
				 STR_ARG(el->name));
	return STR_NONE;
}

void bpmn_read_call(struct bpmn_reader *reader, struct node *node, struct element *el)
{
	struct call_rule *call = bpmn_call_rule(reader, node);

	if (!node->send)
		node->send = arena_zalloc(reader->build->arena, sizeof(*node->send));
	node->send->channel = read_implementation(reader, node, el);
	if (!node->send->channel.ptr)
		return;
	if (!node->send->body && !node->param_count)
		node->send->body = bpmn_response_body(reader, node->line);
	if (!node->send->body && !node->param_count)
		node->send->body = bpmn_expression(reader, EXPRESSION_VALUE, STR("nil"), node->line);
	if (!call->has_timeout)
		bpmn_invalid(reader, node->line,
			     "a channel call needs a q:timeout: an answer may never come");
}
