/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator tells an instance: to end, to go on after a failure, that a user task is done. The row is looked up first, for
 * an answer that says what is wrong; then the command goes to the lane of the instance like any other work, takes the claim, and
 * commits or does nothing:
 *
 *	look up ── absent: 404, in no state for it: 409
 *	   └─► lane ── committed ────► 200, or 409 if a restored instance failed again at once
 *	         ├──── refused ──────► look up again: who has the claim, or what it has become: 409
 *	         ├──── rejected ─────► 409, 422
 *	         └──── no room there, engine or database away: 503
 *
 * Nothing waits for a claim: who is refused tries again, and an operator can decide to.
 */
#include "admin/internal.h"

struct command {
	enum request_kind kind;
	struct id id;
	struct str node; /* of a completion */
	msgpack_object payload;
	struct rows row; /* as it was looked up last */
	struct admin_request *request;
	struct lane_request lane;
};

struct command_codes {
	enum code claim_held, wrong_state;
};

static struct command_codes codes_of(const struct command *command)
{
	switch (command->kind) {
	case REQUEST_CANCEL:
		return (struct command_codes){CODE_ADMIN_CANCEL_CLAIM_HELD, CODE_ADMIN_CANCEL_NOT_LIVE};
	case REQUEST_RESTORE:
		return (struct command_codes){CODE_ADMIN_RESTORE_CLAIM_HELD, CODE_ADMIN_RESTORE_NOT_FAILED};
	default:
		return (struct command_codes){CODE_ADMIN_COMPLETE_CLAIM_HELD, CODE_ADMIN_COMPLETE_NOT_WAITING};
	}
}

/* --- what can be said beforehand --- */

static bool wrong_state(struct command *command, const char *what)
{
	admin_problem(command->request, MHD_HTTP_CONFLICT, codes_of(command).wrong_state, "status",
		      str_of(instance_status_name((enum instance_status)rows_at(&command->row, 0, 4)->i)), "%s", what);
	return false;
}

/* Whether a token waits at the node, and the node is a user task as far as its model is at hand. */
static bool check_wait(struct command *command)
{
	struct admin_request *request = command->request;
	const struct view_member *member = view_deployment(request->admin->view, rows_at(&command->row, 0, 2)->str);
	struct error err = ERROR_INIT;
	struct instance *inst;

	if (snapshot_unpack(&request->arena, rows_at(&command->row, 0, 12)->str, command->id,
			    rows_at(&command->row, 0, 1)->str, rows_at(&command->row, 0, 5)->i, &inst, &err) != RESULT_OK)
		return true; /* the turn says so */
	for (uint32_t i = 0; i < inst->token_count; i++) {
		const struct token *token = &inst->tokens[i];
		const struct process *process =
			member ? deployment_process(member->deployment, instance_scope_process(inst, token->scope)) : NULL;
		const struct node *node = process ? process_node(process, token->node) : NULL;

		if (token->state == TOKEN_WAITING && str_equal(token->node, command->node) &&
		    (!node || node->kind == NODE_USER))
			return true;
	}
	return wrong_state(command, arena_printf(&request->arena, "no token waits at a user task %.*s",
						 STR_ARG(command->node)));
}

static bool check_state(struct command *command)
{
	enum instance_status status = (enum instance_status)rows_at(&command->row, 0, 4)->i;
	const char *name = instance_status_name(status);
	struct arena *arena = &command->request->arena;

	switch (command->kind) {
	case REQUEST_CANCEL:
		return !instance_status_is_terminal(status) ||
		       wrong_state(command, arena_printf(arena, "it is %s, so there is nothing to cancel", name));
	case REQUEST_RESTORE:
		return status == INSTANCE_FAILED ||
		       wrong_state(command, arena_printf(arena, "it is %s; only what is FAILED can be restored", name));
	default:
		if (status != INSTANCE_SUSPENDED)
			return wrong_state(command, arena_printf(arena, "it is %s and waits for nothing", name));
		return check_wait(command);
	}
}

/* --- answers --- */

static void command_done(struct command *command)
{
	const struct lane_request *lane = &command->lane;
	bool failed = lane->status == INSTANCE_FAILED;
	struct admin_request *request = command->request;
	struct buf *out = &request->body;

	if (failed && command->kind == REQUEST_RESTORE) {
		admin_problem(request, MHD_HTTP_CONFLICT, CODE_ADMIN_RESTORE_FAILED_AGAIN, "code",
			      str_of(code_text(lane->error.code)), "it was restored and FAILED again: %s", lane->error.text);
		return;
	}
	json_open(out, '{');
	json_id(out, "id", command->id);
	json_text_field(out, "tenant", rows_at(&command->row, 0, 1));
	json_text_field(out, "deployment", rows_at(&command->row, 0, 2));
	json_text_field(out, "process", rows_at(&command->row, 0, 3));
	json_text(out, "status", str_of(instance_status_name(lane->status)));
	json_text(out, "code", failed ? str_of(code_text(lane->error.code)) : STR_NONE);
	json_text(out, "detail", failed ? str_of(lane->error.text) : STR_NONE);
	json_close(out, '}');
	admin_answer_json(request);
}

static void command_unavailable(struct command *command, enum code code, const char *text)
{
	admin_problem(command->request, MHD_HTTP_SERVICE_UNAVAILABLE, code, NULL, STR_NONE, "%s", text);
}

/* It was refused, or had changed: now that is known, the row tells why. */
static void command_looked_again(struct admin_request *request)
{
	struct command *command = request->state;
	const struct field *owner;

	command->row = request->calls[0].rows;
	if (command->row.row_count == 0) {
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "the instance is gone");
		return;
	}
	if (!check_state(command))
		return;
	owner = rows_at(&command->row, 0, 10);
	if (owner->is_null)
		admin_problem(request, MHD_HTTP_CONFLICT, codes_of(command).claim_held, NULL, STR_NONE,
			      "it was at work elsewhere a moment ago; nothing was changed");
	else
		admin_problem(request, MHD_HTTP_CONFLICT, codes_of(command).claim_held, "owner", owner->str,
			      "it is claimed by %.*s; nothing was changed", STR_ARG(owner->str));
}

static void command_look(struct command *command, void (*then)(struct admin_request *request))
{
	struct admin_request *request = command->request;

	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_INSTANCE_GET);
	admin_param_id(request, 0, 0, command->id);
	admin_ask(request, false, then);
}

/* A clash with other instances may pass; anything else is of this one. */
static void command_rejected(struct command *command)
{
	const struct error *err = &command->lane.error;
	unsigned status = MHD_HTTP_UNPROCESSABLE_CONTENT;

	if (err->code == CODE_ADMIN_NOT_FOUND) {
		wrong_state(command, err->text);
		return;
	}
	if (err->code == CODE_RUNTIME_WAIT_NOT_UNIQUE || err->code == CODE_INBOUND_ALIAS_CONFLICT_REJECT)
		status = MHD_HTTP_CONFLICT;
	admin_problem(command->request, status, err->code, NULL, STR_NONE, "%s; nothing was changed", err->text);
}

static void command_answered(struct task *post)
{
	struct lane_request *lane = container_of(post, struct lane_request, post);
	struct command *command = container_of(lane, struct command, lane);

	arena_done(&lane->resolved);
	switch (lane->answer) {
	case ANSWER_COMMITTED:
		command_done(command);
		return;
	case ANSWER_REJECTED:
		command_rejected(command);
		return;
	case ANSWER_REFUSED:
		if (lane->error.code == CODE_RUNTIME_PIN_UNKNOWN) {
			admin_problem(command->request, MHD_HTTP_CONFLICT, CODE_RUNTIME_PIN_UNKNOWN, "deployment",
				      rows_at(&command->row, 0, 2)->str, "%s", lane->error.text);
			return;
		}
		/* fall through */
	case ANSWER_AGAIN:
		command_look(command, command_looked_again);
		return;
	default:
		command_unavailable(command, CODE_DISPATCH_UNAVAILABLE, lane->error.text);
	}
}

/* --- to the lane --- */

static void command_submit(struct command *command)
{
	struct admin_request *request = command->request;
	struct lane_set *lanes = request->admin->sources.lanes;
	struct lane_request *lane = &command->lane;

	*lane = (struct lane_request){
		.kind = command->kind,
		.answered = command_answered,
		.reply_to = request->admin->loop,
		.tenant = rows_at(&command->row, 0, 1)->str,
		.target = {.instance = command->id, .node = command->node},
		.payload = command->payload,
	};
	arena_init(&lane->resolved);
	if (lane_set_submit(lanes, lane_set_lane_of_instance(lanes, command->id), lane))
		return;
	arena_done(&lane->resolved);
	command_unavailable(command, CODE_ADMIN_BUSY, "the lane of the instance has no room; nothing was changed");
}

static void command_looked_up(struct admin_request *request)
{
	struct command *command = request->state;

	command->row = request->calls[0].rows;
	if (command->row.row_count == 0)
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "there is no such instance");
	else if (check_state(command))
		command_submit(command);
}

static void ask_row(struct admin_request *request)
{
	command_look(request->state, command_looked_up);
}

/* NULL: the problem is answered. */
static struct command *command_new(struct admin_request *request, enum request_kind kind)
{
	struct command *command = arena_zalloc(&request->arena, sizeof(*command));

	command->kind = kind;
	command->request = request;
	command->payload = value_nil();
	request->state = command;
	if (!admin_read_id(request, "id", request->id, &command->id))
		return NULL;
	if (request->admin->view)
		return command;
	command_unavailable(command, CODE_DISPATCH_UNAVAILABLE, "this replica has not loaded its deployments yet");
	return NULL;
}

void admin_instance_cancel(struct admin_request *request)
{
	if (command_new(request, REQUEST_CANCEL))
		admin_ask_tenants(request, ask_row);
}

void admin_instance_restore(struct admin_request *request)
{
	if (command_new(request, REQUEST_RESTORE))
		admin_ask_tenants(request, ask_row);
}

/* No body is no payload: nil. */
void admin_instance_complete(struct admin_request *request)
{
	const struct value_limits *limits = &request->admin->sources.lanes->settings.decode.limits;
	struct command *command = command_new(request, REQUEST_COMPLETE);
	struct error err = ERROR_INIT;

	if (!command)
		return;
	command->node = request->id_below;
	if (request->input.len && value_json_read(&request->arena, buf_str(&request->input), false, limits,
						  &command->payload, &err) != RESULT_OK) {
		admin_problem(request, MHD_HTTP_BAD_REQUEST, err.code, NULL, STR_NONE, "the body: %s", err.text);
		return;
	}
	admin_ask_tenants(request, ask_row);
}
