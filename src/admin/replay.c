/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dead letter goes through intake again: a message is made of it that the database keeps, and that whichever replica consumes the
 * channel takes up at its next look, within seconds. The dead letter goes with the effect of that, or stays.
 *
 *	dead letter ── none: 404; no channel for it: 409
 *	   └─► its instance ── still FAILED: 409, for a restore runs the step again
 *	          └─► the statement, a gate ── one is under way: 409
 *	                 └─► 202
 */
#include "admin/internal.h"
#include "flow/replay.h"

/* Columns of DEAD_LETTER_GET. */
enum {
	LETTER_tenant = 1,
	LETTER_channel = 2,
	LETTER_message_type = 5,
	LETTER_instance = 8,
	LETTER_content_type = 9,
	LETTER_record_key = 11,
	LETTER_headers = 12,
	LETTER_replays = 14,
};

struct replaying {
	struct id id;
	struct rows letter;
	struct replay replay;
};

static struct str text_of(const struct field *field)
{
	return field->is_null ? STR_NONE : field->str;
}

static void replay_answered(struct admin_request *request)
{
	const struct replaying *state = request->state;
	struct buf *out = &request->body;

	if (request->calls[0].rows.row_count == 0) {
		admin_problem(request, MHD_HTTP_CONFLICT, CODE_ADMIN_REPLAY_UNDER_WAY, NULL, STR_NONE,
			      "a replay of this dead letter is under way");
		return;
	}
	json_open(out, '{');
	json_id(out, "id", state->id);
	json_text_field(out, "tenant", rows_at(&state->letter, 0, LETTER_tenant));
	json_text_field(out, "channel", rows_at(&state->letter, 0, LETTER_channel));
	json_int(out, "replay", state->replay.number);
	json_text(out, "eventId", state->replay.event_id);
	json_close(out, '}');
	admin_answer(request, MHD_HTTP_ACCEPTED, "application/json");
}

static void replay_send(struct admin_request *request)
{
	struct replaying *state = request->state;
	const struct field *letter = rows_at(&state->letter, 0, 0);
	int64_t replays = letter[LETTER_replays].i;
	struct error err = ERROR_INIT;

	state->replay = (struct replay){
		.dead_letter = state->id,
		.number = replays + 1,
		.record_key = text_of(&letter[LETTER_record_key]),
		.headers = text_of(&letter[LETTER_headers]),
		.content_type = text_of(&letter[LETTER_content_type]),
		.message_type = text_of(&letter[LETTER_message_type]),
	};
	if (replay_make(&request->arena, &state->replay, &err) != RESULT_OK) {
		admin_problem(request, MHD_HTTP_UNPROCESSABLE_CONTENT, err.code, NULL, STR_NONE, "its headers: %s", err.text);
		return;
	}
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_DEAD_LETTER_REPLAY);
	admin_param_id(request, 0, 0, state->id);
	admin_param_int(request, 0, 1, replays);
	admin_param_id(request, 0, 2, replay_kept_id(state->id, replays));
	admin_param_id(request, 0, 3, state->replay.kept);
	admin_param_text(request, 0, 4, state->replay.event_id);
	admin_param_bytes(request, 0, 5, state->replay.envelope);
	admin_ask_write(request, replay_answered);
}

static void instance_answered(struct admin_request *request)
{
	const struct rows *rows = &request->calls[0].rows;
	char id[ID_TEXT_SIZE];

	if (rows->row_count && rows_at(rows, 0, 4)->i == INSTANCE_FAILED) {
		id_format(rows_at(rows, 0, 0)->id, id);
		admin_problem(request, MHD_HTTP_CONFLICT, CODE_ADMIN_REPLAY_INSTANCE_EXISTS, "instance", str_of(id),
			      "instance %s FAILED with this message and still stands: restore it instead, or cancel it first", id);
		return;
	}
	replay_send(request);
}

static void letter_answered(struct admin_request *request)
{
	struct replaying *state = request->state;
	const struct field *letter;

	state->letter = request->calls[0].rows;
	if (state->letter.row_count == 0) {
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "there is no such dead letter");
		return;
	}
	letter = rows_at(&state->letter, 0, 0);
	if (!view_route(request->admin->view, letter[LETTER_tenant].str, letter[LETTER_channel].str)) {
		admin_problem(request, MHD_HTTP_CONFLICT, CODE_ADMIN_REPLAY_NO_CHANNEL, "channel", letter[LETTER_channel].str,
			      "no deployment that is loaded here consumes channel %.*s of tenant %.*s",
			      STR_ARG(letter[LETTER_channel].str), STR_ARG(letter[LETTER_tenant].str));
		return;
	}
	if (letter[LETTER_instance].is_null) {
		replay_send(request);
		return;
	}
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_INSTANCE_GET);
	admin_param_id(request, 0, 0, letter[LETTER_instance].id);
	admin_ask(request, false, instance_answered);
}

static void ask_letter(struct admin_request *request)
{
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_DEAD_LETTER_GET);
	admin_param_id(request, 0, 0, ((const struct replaying *)request->state)->id);
	admin_ask(request, false, letter_answered);
}

void admin_dead_letter_replay(struct admin_request *request)
{
	struct replaying *state = request->state = arena_zalloc(&request->arena, sizeof(*state));

	if (!admin_read_id(request, "id", request->id, &state->id))
		return;
	if (!request->admin->view) {
		admin_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, CODE_DISPATCH_UNAVAILABLE, NULL, STR_NONE,
			      "this replica has not loaded its deployments yet");
		return;
	}
	admin_ask_tenants(request, ask_letter);
}
