/* SPDX-License-Identifier: Apache-2.0 */
/* What the answers to "why is it not moving" have in common, above all the causes of a delivery that stands. */
#include "admin/why.h"

#include "base/time.h"

/* --- causes --- */

void why_cause(struct buf *causes, const struct why_cause *cause, const char *fmt, ...)
{
	struct buf what = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&what, fmt, ap);
	va_end(ap);
	/* The list's bracket comes later; the comma is ours. */
	if (causes->len)
		buf_add_byte(causes, ',');
	buf_add_byte(causes, '{');
	json_text(causes, "cause", str_of(cause->cause));
	json_text(causes, "scope", cause->scope == WHY_DATABASE ? STR("database") : STR("replica"));
	json_text(causes, "code", cause->code == CODE_NONE ? STR_NONE : str_of(code_text(cause->code)));
	json_text(causes, "what", buf_str(&what));
	json_text(causes, "remedy", str_of(cause->remedy));
	json_close(causes, '}');
	buf_done(&what);
}

/* --- the frame of an answer --- */

void why_open(struct admin_request *request, const char *kind, struct str id)
{
	struct buf *out = &request->body;
	char now[TIME_TEXT_SIZE];

	json_open(out, '{');
	json_text(out, "kind", str_of(kind));
	json_text(out, "id", id);
	json_text(out, "replica", str_of(request->admin->sources.boot_id));
	json_text(out, "at", str_of(time_format(loop_wall_us(request->admin->loop), now)));
}

void why_close(struct admin_request *request, struct buf *causes)
{
	struct buf *out = &request->body;

	json_name(out, "causes");
	json_open(out, '[');
	buf_add_str(out, buf_str(causes));
	json_close(out, ']');
	json_close(out, '}');
	buf_done(causes);
	admin_answer_json(request);
}

int64_t why_seconds_since(struct admin_request *request, int64_t from_us)
{
	int64_t us = loop_wall_us(request->admin->loop) - from_us;

	return us > 0 ? us / US_PER_S : 0;
}

/* --- intakes --- */

int64_t why_channel_find(struct admin_request *request, struct str tenant, struct str channel,
			 struct admin_channel *out)
{
	const struct admin_sources *sources = &request->admin->sources;
	uint32_t count = sources->channel_count(sources->user);

	for (uint32_t i = 0; i < count; i++) {
		sources->channel_read(sources->user, i, out);
		if (str_equal(out->tenant, tenant) && str_equal(out->channel, channel))
			return i;
	}
	return -1;
}

static void inspected(struct task *done)
{
	struct why_ask *ask = container_of(done, struct why_ask, inspection.done);

	ask->then(ask->request);
}

void why_inspect(struct admin_request *request, int64_t channel, struct why_ask *ask,
		 void (*then)(struct admin_request *request))
{
	const struct admin_sources *sources = &request->admin->sources;

	ask->request = request;
	ask->then = then;
	ask->inspection.arena = &request->arena;
	ask->inspection.reply_to = request->admin->loop;
	ask->inspection.done.run = inspected;
	if (channel < 0 || !sources->channel_inspect ||
	    !sources->channel_inspect(sources->user, (uint32_t)channel, &ask->inspection))
		then(request);
}

/* --- deliveries --- */

static void write_time(struct buf *out, const char *name, int64_t wall_us)
{
	char text[TIME_TEXT_SIZE];

	json_text(out, name, wall_us ? str_of(time_format(wall_us, text)) : STR_NONE);
}

static void write_looked_for(struct buf *out, const struct inspected *delivery)
{
	json_name(out, "lookedFor");
	json_open(out, '[');
	for (uint32_t i = 0; i < delivery->looked_for_count; i++) {
		json_open(out, '{');
		json_text(out, "name", delivery->looked_for[i].name);
		json_text(out, "value", delivery->looked_for[i].value);
		json_close(out, '}');
	}
	json_close(out, ']');
}

void why_delivery(struct admin_request *request, const struct inspected *delivery, struct str channel)
{
	struct buf *out = &request->body;

	json_open(out, '{');
	json_text(out, "state", str_of(inspected_state_name(delivery->state)));
	json_text(out, "channel", channel);
	json_text(out, "source", delivery->source);
	json_text(out, "eventId", delivery->event_id);
	json_int(out, "kept", (int64_t)delivery->kept);
	json_int(out, "ahead", delivery->ahead);
	json_text(out, "aheadSource", delivery->ahead_source);
	json_int(out, "behind", delivery->behind);
	write_time(out, "receivedAt", delivery->received_us);
	json_int(out, "attempts", delivery->attempts);
	write_time(out, "heldSince", delivery->held_since_us);
	write_time(out, "nextTryAt", delivery->next_try_us);
	json_text(out, "answer", str_of(delivery->answer));
	json_text(out, "code", delivery->code == CODE_NONE ? STR_NONE : str_of(code_text(delivery->code)));
	json_text(out, "text", delivery->text);
	if (id_is_none(delivery->instance))
		json_null(out, "instance");
	else
		json_id(out, "instance", delivery->instance);
	write_looked_for(out, delivery);
	write_time(out, "unmatchedUntil", delivery->unmatched_until_us);
	json_close(out, '}');
}

/* What people call it: its source; a row that stands for kept messages has none while it waits. */
static struct str delivery_name(struct admin_request *request, const struct inspected *delivery)
{
	if (delivery->source.ptr)
		return delivery->source;
	return str_of(arena_printf(&request->arena, "the first of %llu kept messages of one key",
				   (unsigned long long)delivery->kept));
}

/* "order = A-1 or item = 7" */
static struct str aliases_text(struct admin_request *request, const struct inspected *delivery)
{
	const char *text = "";

	for (uint32_t i = 0; i < delivery->looked_for_count; i++)
		text = arena_printf(&request->arena, "%s%s%.*s = %.*s", text, i ? " or " : "",
				    STR_ARG(delivery->looked_for[i].name), STR_ARG(delivery->looked_for[i].value));
	return *text ? str_of(text) : STR("its value");
}

/* "tried 7 times, for 12 s" */
static struct str tries_text(struct admin_request *request, const struct inspected *delivery)
{
	int64_t seconds = why_seconds_since(request, delivery->held_since_us ? delivery->held_since_us
									     : delivery->received_us);

	return str_of(arena_printf(&request->arena, "%u %s, for %lld s", delivery->attempts,
				   delivery->attempts == 1 ? "try" : "tries", (long long)seconds));
}

static void held_cause(struct admin_request *request, struct buf *causes, const struct inspected *delivery,
		       struct str channel)
{
	struct why_cause cause = {WHY_REPLICA, "held", delivery->code, code_info(delivery->code)->action};
	struct str name = delivery_name(request, delivery), tries = tries_text(request, delivery);
	char text[TIME_TEXT_SIZE], id[ID_TEXT_SIZE];

	switch (delivery->code) {
	case CODE_RUNTIME_CLAIM_HELD:
		cause.cause = "refused";
		cause.remedy = "Nothing: it is tried again the moment the instance is free. If it lasts, `sutra why instance` "
			       "names who holds the claim.";
		why_cause(causes, &cause, "%.*s is held: the instance%s%s is claimed by somebody else (%.*s)", STR_ARG(name),
			  id_is_none(delivery->instance) ? "" : " ",
			  id_is_none(delivery->instance) ? "" : id_format(delivery->instance, id), STR_ARG(tries));
		return;
	case CODE_RUNTIME_PIN_UNKNOWN:
		cause.cause = "pin";
		why_cause(causes, &cause, "%.*s is held: the instance%s%s is pinned to a deployment that this replica has not "
			  "loaded (%.*s)", STR_ARG(name), id_is_none(delivery->instance) ? "" : " ",
			  id_is_none(delivery->instance) ? "" : id_format(delivery->instance, id), STR_ARG(tries));
		return;
	case CODE_RUNTIME_CORRELATION_NOT_FOUND:
		cause.cause = "unmatched";
		cause.remedy = "Check the value, and where its instance stands: /admin/instances?alias=NAME:VALUE. It is taken as "
			       "soon as an instance comes to wait for it.";
		why_cause(causes, &cause, "%.*s is held: no instance waits on channel '%.*s' for %.*s; decided at %s (%.*s)",
			  STR_ARG(name), STR_ARG(channel), STR_ARG(aliases_text(request, delivery)),
			  delivery->unmatched_until_us ? time_format(delivery->unmatched_until_us, text) : "the next try",
			  STR_ARG(tries));
		return;
	case CODE_RUNTIME_KEPT_AHEAD:
		cause.cause = "kept-ahead";
		cause.remedy = "Nothing: they run first. If it lasts, /admin/kept names them and their keeper, and `sutra why "
			       "message` of the first says what holds it.";
		why_cause(causes, &cause, "%.*s is held: messages of its key that the database keeps come before it (%.*s)",
			  STR_ARG(name), STR_ARG(tries));
		return;
	default:
		why_cause(causes, &cause, "%.*s is held: %.*s (%.*s)", STR_ARG(name), STR_ARG(delivery->text),
			  STR_ARG(tries));
	}
}

void why_delivery_cause(struct admin_request *request, struct buf *causes, const struct inspected *delivery,
			struct str channel)
{
	struct str name = delivery_name(request, delivery);
	struct why_cause cause = {WHY_REPLICA, inspected_state_name(delivery->state), CODE_NONE,
				  "Nothing: it takes a moment. If it lasts, look at /sutra/health/ready and /admin/lanes."};

	switch (delivery->state) {
	case INSPECTED_HELD:
		held_cause(request, causes, delivery, channel);
		break;
	case INSPECTED_BEHIND:
		cause.remedy = "Nothing: order is kept. `sutra why message` of the one before it says what holds that.";
		why_cause(causes, &cause, "%.*s waits behind %u of its key or instance, the first of them %.*s", STR_ARG(name),
			  delivery->ahead,
			  STR_ARG(delivery->ahead_source.ptr ? delivery->ahead_source : STR("kept by the database")));
		break;
	case INSPECTED_RESOLVING:
		why_cause(causes, &cause, "whom %.*s is for is being looked up", STR_ARG(name));
		break;
	case INSPECTED_ON_LANE:
		why_cause(causes, &cause, "%.*s is in work on a lane", STR_ARG(name));
		break;
	case INSPECTED_KEEPING:
		why_cause(causes, &cause, "%.*s was held too long and is being written to the database", STR_ARG(name));
		break;
	}
}
