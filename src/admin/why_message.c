/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a message has had no effect yet. Three places are looked at, in the order in which a message goes through them, so that one
 * which moves on meanwhile is not missed: the memory of this replica, the kept messages, then dead letters and event ids. Of a kept
 * one its keeper is asked once more what it knows of the first of its key.
 *
 * Of kept messages and, beyond their ids, of dead letters the database knows the source, which is what logs name. So both are
 * found by that, among the first WHY_ROWS of them.
 */
#include "admin/why.h"

#include "base/time.h"

enum { CALL_KEPT, CALL_DEAD_LIST, CALL_DEAD, CALL_INBOX, CALL_COUNT };

struct why_message {
	struct str tenant, channel, text;
	struct str event_id; /* as this replica knows it; else the text */
	struct admin_channel entry;
	int64_t index;
	struct why_ask memory, place;
	int64_t kept; /* row; -1: none */
	uint32_t kept_ahead;
	bool kept_more; /* not all kept messages were looked through */
	struct id order_key;
	const struct rows *dead; /* NULL: none */
	uint32_t dead_row;
	bool had_effect;
	int64_t effect_us;
	struct id instance;
};

/* --- the answer --- */

static void write_dead(struct buf *out, const struct why_message *why)
{
	json_name(out, "deadLetter");
	if (!why->dead) {
		buf_add_text(out, "null");
		return;
	}
	json_open(out, '{');
	json_id_field(out, "id", rows_at(why->dead, why->dead_row, 0));
	json_text_field(out, "eventId", rows_at(why->dead, why->dead_row, 3));
	json_text_field(out, "source", rows_at(why->dead, why->dead_row, 4));
	json_text_field(out, "code", rows_at(why->dead, why->dead_row, 6));
	json_text_field(out, "detail", rows_at(why->dead, why->dead_row, 7));
	json_id_field(out, "instance", rows_at(why->dead, why->dead_row, 8));
	json_time_field(out, "createdAt", rows_at(why->dead, why->dead_row, 10));
	json_close(out, '}');
}

static void write_effect(struct buf *out, const struct why_message *why)
{
	char at[TIME_TEXT_SIZE];

	json_name(out, "effect");
	if (!why->had_effect) {
		buf_add_text(out, "null");
		return;
	}
	json_open(out, '{');
	if (id_is_none(why->instance))
		json_null(out, "instance");
	else
		json_id(out, "instance", why->instance);
	json_text(out, "at", str_of(time_format(why->effect_us, at)));
	json_close(out, '}');
}

static void write_kept(struct admin_request *request, const struct why_message *why, const struct rows *rows)
{
	struct buf *out = &request->body;

	json_name(out, "kept");
	if (why->kept < 0) {
		buf_add_text(out, "null");
		return;
	}
	json_open(out, '{');
	admin_kept_columns(out, rows, (uint32_t)why->kept);
	json_int(out, "ahead", why->kept_ahead);
	json_close(out, '}');
}

static const char *state_of(const struct why_message *why)
{
	const struct inspection *memory = &why->memory.inspection;

	if (why->had_effect)
		return "effect";
	if (why->kept >= 0)
		return "kept";
	if (memory->count)
		return inspected_state_name(memory->found[0].state);
	return why->dead ? "dead-letter" : "unknown";
}

static void effect_cause(struct buf *causes, const struct why_message *why)
{
	struct why_cause cause = {WHY_DATABASE, "effect", CODE_NONE, "Nothing: a repetition of it is a duplicate."};
	char id[ID_TEXT_SIZE], at[TIME_TEXT_SIZE];

	if (!id_is_none(why->instance))
		cause.remedy = "Nothing. `sutra why instance` says what became of its instance.";
	why_cause(causes, &cause, "it had its effect at %s%s%s", time_format(why->effect_us, at), id_is_none(why->instance) ? "" : ", in instance ",
		  id_is_none(why->instance) ? "" : id_format(why->instance, id));
}

static void dead_cause(struct admin_request *request, struct buf *causes, const struct why_message *why)
{
	struct str code = rows_at(why->dead, why->dead_row, 6)->str, detail = rows_at(why->dead, why->dead_row, 7)->str;
	struct why_cause cause = {WHY_DATABASE, "dead-letter", code_find(code), NULL};
	char id[ID_TEXT_SIZE];

	id_format(rows_at(why->dead, why->dead_row, 0)->id, id);
	cause.remedy = arena_printf(&request->arena, "%s `sutra dead-letters show %s` has all of it, `sutra dead-letters replay %s` sends it "
				    "through intake again.", cause.code == CODE_NONE ? "" : code_info(cause.code)->action, id, id);
	why_cause(causes, &cause, "it was dead-lettered: %.*s", STR_ARG(detail));
}

static const char *kept_why(struct str kind)
{
	if (str_equal(kind, STR("early")))
		return "it has come early, nobody waits for it yet";
	if (str_equal(kind, STR("target")))
		return "it is for one of several targets, which have theirs one by one";
	return str_equal(kind, STR("replay")) ? "it is the replay of a dead letter" : "it was held too long";
}

static void kept_cause(struct admin_request *request, struct buf *causes, const struct why_message *why,
		       const struct rows *rows)
{
	const struct field *keeper = rows_at(rows, (uint32_t)why->kept, 6);
	struct str kind = rows_at(rows, (uint32_t)why->kept, 3)->str;
	int64_t seconds = why_seconds_since(request, rows_at(rows, (uint32_t)why->kept, 8)->i);
	struct why_cause cause = {WHY_DATABASE, "kept", CODE_NONE,
				  "Nothing: it runs from there, in order. If it lasts, `sutra why message` of the first of its key "
				  "says what holds that; ask the replica that is its keeper, too."};

	if (keeper->is_null)
		cause.remedy = "Nothing: a replica that consumes the channel takes it over within seconds. Start one if none does.";
	if (str_equal(kind, STR("early")))
		cause.remedy = "Check the value, and where its instance stands: /admin/instances?alias=NAME:VALUE. It is taken as soon as "
			       "an instance comes to wait for it; its keeper says what it looks for, and until when.";
	why_cause(causes, &cause, "%s: the database keeps it, for %lld s, %s%.*s; %u of its key before it", kept_why(kind),
		  (long long)seconds, keeper->is_null ? "for no replica" : "for replica ",
		  STR_ARG(keeper->is_null ? STR("") : keeper->str), why->kept_ahead);
}

static void unknown_cause(struct buf *causes, const struct why_message *why)
{
	struct why_cause cause = {WHY_REPLICA, "unknown", CODE_NONE,
				  "Ask the other replicas, too (--url). Check the id: an event id, or the source that logs name. A "
				  "message that the broker still has waits there: see the lag in /admin/channels."};

	if (why->index < 0) {
		cause.cause = "not-consumed";
		cause.remedy = "Check tenant and channel; a channel is consumed where a deployment that declares it is loaded.";
		why_cause(causes, &cause, "this replica does not consume the channel");
	} else if (!why->entry.consuming) {
		cause.cause = "not-consuming";
		cause.remedy = "Mend that; consumption begins by itself. `sutra why channel` says more.";
		why_cause(causes, &cause, "this replica knows nothing of it, and its channel does not consume: %s%s%s",
			  why->entry.state, why->entry.detail[0] ? ": " : "", why->entry.detail);
	} else {
		why_cause(causes, &cause, "this replica holds nothing of this id, and the database has neither an effect of it, "
			  "nor a dead letter%s", !why->kept_more
						 ? ", nor keeps it" : "; of the kept messages only the first were looked through");
	}
}

static void write_deliveries(struct admin_request *request, struct buf *causes, const struct why_message *why)
{
	const struct inspection *found[] = {&why->memory.inspection, &why->place.inspection};
	struct buf *out = &request->body;

	json_name(out, "deliveries");
	json_open(out, '[');
	for (size_t list = 0; list < ARRAY_LEN(found); list++)
		for (uint32_t i = 0; i < found[list]->count; i++) {
			/* The second list is of the place alone, which the first may have shown. */
			if (list && why->memory.inspection.count)
				continue;
			why_delivery(request, &found[list]->found[i], why->channel);
			if (!why->had_effect)
				why_delivery_cause(request, causes, &found[list]->found[i], why->channel);
		}
	json_close(out, ']');
}

static void message_answer(struct admin_request *request)
{
	const struct why_message *why = request->state;
	const struct rows *kept = &request->calls[CALL_KEPT].rows;
	struct buf *out = &request->body, causes = BUF_INIT;
	const char *state = state_of(why);

	why_open(request, "message", request->id);
	json_text(out, "state", str_of(state));
	write_effect(out, why);
	write_dead(out, why);
	write_kept(request, why, kept);
	if (why->had_effect)
		effect_cause(&causes, why);
	else if (why->kept >= 0)
		kept_cause(request, &causes, why, kept);
	write_deliveries(request, &causes, why);
	if (why->dead && !why->had_effect)
		dead_cause(request, &causes, why);
	if (strcmp(state, "unknown") == 0)
		unknown_cause(&causes, why);
	why_close(request, &causes);
}

/* --- the database --- */

static bool is_source(const struct why_message *why, const struct field *source)
{
	struct str text = why->text;

	if (source->is_null || !source->str.len || !str_starts_with(text, source->str))
		return false;
	/* An identity of Kafka is its source and a time. */
	return text.len == source->str.len || text.ptr[source->str.len] == '/';
}

static void find_kept(struct why_message *why, const struct rows *rows)
{
	for (uint32_t i = 0; why->kept < 0 && i < rows->row_count; i++)
		if (is_source(why, rows_at(rows, i, 7)))
			why->kept = i;
	if (why->kept < 0)
		return;
	why->order_key = rows_at(rows, (uint32_t)why->kept, 4)->id;
	for (uint32_t i = 0; i < rows->row_count; i++)
		why->kept_ahead += id_equal(rows_at(rows, i, 4)->id, why->order_key) &&
				   rows_at(rows, i, 5)->i < rows_at(rows, (uint32_t)why->kept, 5)->i;
}

static void find_dead(struct why_message *why, const struct rows *list, const struct rows *one)
{
	if (one->row_count) {
		why->dead = one;
		return;
	}
	for (uint32_t i = 0; !why->dead && i < list->row_count; i++) {
		const struct field *event_id = rows_at(list, i, 3);

		if (!str_equal(rows_at(list, i, 2)->str, why->channel) ||
		    (!is_source(why, rows_at(list, i, 4)) && (event_id->is_null || !str_equal(event_id->str, why->text))))
			continue;
		why->dead = list;
		why->dead_row = i;
	}
}

static void message_answered(struct admin_request *request)
{
	struct why_message *why = request->state;
	const struct rows *inbox = &request->calls[CALL_INBOX].rows;

	why->kept_more = admin_rows_trim(&request->calls[CALL_KEPT].rows, 1);
	why->kept_more |= request->calls[CALL_KEPT].rows.row_count >= WHY_ROWS;
	find_kept(why, &request->calls[CALL_KEPT].rows);
	find_dead(why, &request->calls[CALL_DEAD_LIST].rows, &request->calls[CALL_DEAD].rows);
	if (inbox->row_count) {
		why->had_effect = true;
		why->effect_us = rows_at(inbox, 0, 2)->i;
		why->instance = rows_at(inbox, 0, 1)->is_null ? ID_NONE : rows_at(inbox, 0, 1)->id;
	}
	if (why->kept < 0) {
		message_answer(request);
		return;
	}
	why->place.inspection.order_key = why->order_key;
	why_inspect(request, why->index, &why->place, message_answer);
}

/* Ids of two sorts may name it: the one asked for, and what this replica takes for its event id. */
static void ask_inbox(struct admin_request *request, const struct why_message *why)
{
	struct column *params = (struct column *)request->calls[CALL_INBOX].params;
	uint32_t count = str_equal(why->event_id, why->text) ? 1 : 2;
	int64_t *ords = arena_zalloc(&request->arena, 2 * sizeof(*ords));
	struct str *tenants = arena_alloc(&request->arena, 2 * sizeof(*tenants));
	struct id *keys = arena_alloc(&request->arena, 2 * sizeof(*keys));

	for (uint32_t i = 0; i < count; i++) {
		ords[i] = i;
		tenants[i] = why->tenant;
		keys[i] = store_inbox_key(why->tenant, why->channel, i ? why->event_id : why->text);
	}
	params[0] = (struct column){.type = COLUMN_INT, .count = count, .ints = ords};
	params[1] = (struct column){.type = COLUMN_TEXT, .count = count, .strs = tenants};
	params[2] = (struct column){.type = COLUMN_ID, .count = count, .ids = keys};
}

static void ask_database(struct admin_request *request)
{
	const struct why_message *why = request->state;

	request->tenants = store_tenants(&request->arena, &why->tenant, 1);
	admin_ask_begin(request, CALL_COUNT);
	admin_ask_call(request, CALL_KEPT, STATEMENT_KEPT_LIST);
	admin_param_text(request, CALL_KEPT, 0, why->tenant);
	admin_param_text(request, CALL_KEPT, 1, why->channel);
	admin_param_id(request, CALL_KEPT, 2, ID_NONE);
	admin_param_int(request, CALL_KEPT, 3, LOOK_MAX);
	admin_param_int(request, CALL_KEPT, 4, WHY_ROWS);
	admin_ask_call(request, CALL_DEAD_LIST, STATEMENT_DEAD_LETTER_LIST);
	admin_param_id(request, CALL_DEAD_LIST, 0, ID_NONE);
	admin_param_int(request, CALL_DEAD_LIST, 1, WHY_ROWS);
	admin_ask_call(request, CALL_DEAD, STATEMENT_DEAD_LETTER_GET);
	admin_param_id(request, CALL_DEAD, 0, id_digest_of(STR("dead-letter"), why->tenant, why->channel, why->event_id));
	admin_ask_call(request, CALL_INBOX, STATEMENT_INBOX_PROBE);
	ask_inbox(request, why);
	admin_ask(request, false, message_answered);
}

static void message_inspected(struct admin_request *request)
{
	struct why_message *why = request->state;
	const struct inspection *memory = &why->memory.inspection;

	if (memory->count && memory->found[0].event_id.len)
		why->event_id = memory->found[0].event_id;
	ask_database(request);
}

/* --- what is asked --- */

/* TENANT/CHANNEL/EVENT ID, of which the last may have slashes. */
static bool read_message(struct admin_request *request, struct why_message *why)
{
	struct str id = request->id;
	ptrdiff_t first = str_find(id, '/'), second = -1;

	if (first > 0)
		second = str_find(str_make(id.ptr + first + 1, id.len - (size_t)first - 1), '/');
	if (second > 0) {
		why->tenant = str_make(id.ptr, (size_t)first);
		why->channel = str_make(id.ptr + first + 1, (size_t)second);
		why->text = str_make(id.ptr + first + second + 2, id.len - (size_t)(first + second) - 2);
		why->event_id = why->text;
	}
	if (why->text.len && admin_is_name(why->tenant) && str_find(why->tenant, ',') < 0 && admin_is_name(why->channel) &&
	    str_is_utf8(why->text))
		return true;
	admin_problem(request, MHD_HTTP_BAD_REQUEST, CODE_ADMIN_BAD_REQUEST, "id", id,
		      "a message is TENANT/CHANNEL/EVENT-ID; for the last also the source that logs name");
	return false;
}

void admin_why_message(struct admin_request *request)
{
	struct why_message *why = request->state = arena_zalloc(&request->arena, sizeof(*why));
	const struct route *route;

	why->kept = -1;
	if (!read_message(request, why))
		return;
	why->index = why_channel_find(request, why->tenant, why->channel, &why->entry);
	route = request->admin->view ? view_route(request->admin->view, why->tenant, why->channel) : NULL;
	why->memory.inspection.message = why->text;
	if (route)
		why->memory.inspection.id_header = arena_str(&request->arena, route->channel->idempotency_key_header);
	why_inspect(request, why->index, &why->memory, message_inspected);
}
