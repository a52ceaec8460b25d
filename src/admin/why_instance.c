/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why an instance does not move: its row says who has claimed it, its snapshot what it waits for, the outbox what it has not got
 * rid of yet; and every intake of its tenant is asked for the messages that it holds for it.
 *
 * A kept message stands for it if its order key is made of one of the instance's aliases, as it is where messages order by
 * instance (AMQP), or if an intake here holds the kept ones back because of this instance.
 */
#include "admin/why.h"

#include "base/time.h"

#define OUTBOX_ROWS 100

struct why_instance {
	struct id id;
	struct rows row, outbox, kept;
	struct str tenant;
	struct instance *inst; /* NULL: the snapshot cannot be read */
	const struct process *process;
	bool is_loaded;
	struct error snapshot_error;
	struct id *keys; /* of its aliases and waits */
	uint32_t key_count;

	/* Each channel of the tenant in turn. */
	uint32_t channel_count;
	struct str *channels;
	struct why_ask *asks;
	uint32_t next;
};

/* --- its row --- */

static bool is_mine(const struct admin *admin, struct str owner)
{
	const struct lane_set *lanes = admin->sources.lanes;

	for (uint32_t i = 0; i < lanes->settings.lanes; i++)
		if (str_equal(str_of(lanes->lanes[i].owner), owner))
			return true;
	return false;
}

static void write_claim(struct admin_request *request, const struct why_instance *why, struct buf *causes)
{
	const struct field *owner = rows_at(&why->row, 0, 10), *since = rows_at(&why->row, 0, 11);
	int64_t timeout_s = request->admin->sources.claim_timeout_ms / MS_PER_S, held_s, left_s;
	struct why_cause cause = {WHY_DATABASE, "claimed", CODE_NONE, NULL};
	struct buf *out = &request->body;

	json_name(out, "claim");
	if (owner->is_null) {
		buf_add_text(out, "null");
		return;
	}
	held_s = why_seconds_since(request, since->i);
	left_s = held_s < timeout_s ? timeout_s - held_s : 0;
	json_open(out, '{');
	json_text_field(out, "owner", owner);
	json_time_field(out, "since", since);
	json_int(out, "heldSeconds", held_s);
	json_int(out, "freeInSeconds", left_s);
	json_bool(out, "ofThisReplica", is_mine(request->admin, owner->str));
	json_close(out, '}');
	cause.remedy = "Nothing while its owner lives: a turn takes a moment. If it lasts, see whether that process (host, pid, lane) "
		       "is alive or stuck; the timeout frees the claim in any case.";
	if (left_s)
		why_cause(causes, &cause, "it is claimed by %.*s, for %lld s; instance.claim-timeout frees it in %lld s",
			  STR_ARG(owner->str), (long long)held_s, (long long)left_s);
	else
		why_cause(causes, &cause, "it is claimed by %.*s, for %lld s, which is past instance.claim-timeout: whoever comes next "
			  "takes it over", STR_ARG(owner->str), (long long)held_s);
}

static void status_cause(struct admin_request *request, const struct why_instance *why, struct buf *causes)
{
	enum instance_status status = (enum instance_status)rows_at(&why->row, 0, 4)->i;
	struct why_cause cause = {WHY_DATABASE, "ended", CODE_NONE, "Nothing."};
	const struct field *code = rows_at(&why->row, 0, 8), *detail = rows_at(&why->row, 0, 9);

	if (instance_status_is_terminal(status)) {
		why_cause(causes, &cause, "it has ended: %s", instance_status_name(status));
		return;
	}
	if (status == INSTANCE_FAILED) {
		cause.cause = "failed";
		cause.code = code->is_null ? CODE_NONE : code_find(code->str);
		cause.remedy = arena_printf(&request->arena, "%s Then `sutra instances restore`, or `sutra instances cancel`.",
					    cause.code == CODE_NONE ? "It stays until somebody deals with it."
								    : code_info(cause.code)->action);
		why_cause(causes, &cause, "it FAILED%s%.*s: %.*s", why->inst && why->inst->failure_node.len ? " at " : "",
			  STR_ARG(why->inst ? why->inst->failure_node : STR("")),
			  STR_ARG(detail->is_null ? STR("") : detail->str));
	}
	if (!why->is_loaded) {
		cause = (struct why_cause){WHY_REPLICA, "pin", CODE_RUNTIME_PIN_UNKNOWN,
					   code_info(CODE_RUNTIME_PIN_UNKNOWN)->action};
		why_cause(causes, &cause, "its deployment %.*s is not loaded by this replica, which so cannot resume it",
			  STR_ARG(rows_at(&why->row, 0, 2)->str));
	}
	if (!why->inst) {
		cause = (struct why_cause){WHY_DATABASE, "snapshot", why->snapshot_error.code,
					   code_info(why->snapshot_error.code)->action};
		why_cause(causes, &cause, "its snapshot cannot be read: %s", why->snapshot_error.text);
	}
}

/* --- what it waits for --- */

static void write_wait(struct buf *out, const struct token *token, const struct node *node)
{
	char due[TIME_TEXT_SIZE];

	json_open(out, '{');
	json_text(out, "node", token->node);
	json_text(out, "channel", node && node->source ? node->source->channel : STR_NONE);
	json_text(out, "messageType", node && node->source ? node->source->type_value : STR_NONE);
	json_text(out, "dueAt", token->due_us ? str_of(time_format(token->due_us, due)) : STR_NONE);
	json_name(out, "keys");
	json_open(out, '[');
	for (uint32_t i = 0; i < token->key_count; i++) {
		json_open(out, '{');
		json_text(out, "name", token->keys[i].name);
		json_text(out, "value", token->keys[i].value);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_close(out, '}');
}

static void wait_cause(struct admin_request *request, struct buf *causes, const struct token *token, const struct node *node,
		       bool has_come)
{
	struct why_cause cause = {WHY_DATABASE, "waits", CODE_NONE,
				  "Send that message. If it was sent: `sutra why message` says where it is, and dead letters have "
				  "those that came too late or were wrong."};
	struct str channel = node && node->source ? node->source->channel : STR_NONE;
	const char *keys = "";

	if (has_come)
		cause.remedy = "Nothing more: there are messages for it, which the other causes are about.";
	for (uint32_t i = 0; i < token->key_count; i++)
		keys = arena_printf(&request->arena, "%s%s%.*s = %.*s", keys, i ? " or " : "", STR_ARG(token->keys[i].name),
				    STR_ARG(token->keys[i].value));
	why_cause(causes, &cause, "it waits at %.*s for a message%s%.*s with %s", STR_ARG(token->node),
		  channel.ptr ? " on channel " : "", STR_ARG(channel), *keys ? keys : "no key that could find it");
}

static void timer_cause(struct buf *causes, const struct token *token)
{
	static const struct why_cause cause = {WHY_DATABASE, "timer", CODE_NONE,
					       "Nothing before that time. If it has passed, the timer leader is late or there is none: "
					       "`/admin/leases` says which replica leads."};
	char due[TIME_TEXT_SIZE];

	why_cause(causes, &cause, "it waits at %.*s for a timer that is due at %s", STR_ARG(token->node),
		  time_format(token->due_us, due));
}

static void write_waits(struct admin_request *request, const struct why_instance *why, struct buf *causes)
{
	enum instance_status status = (enum instance_status)rows_at(&why->row, 0, 4)->i;
	struct buf *out = &request->body;
	bool has_come = false;

	for (uint32_t c = 0; c < why->channel_count; c++)
		has_come |= why->asks[c].inspection.matches > 0;
	json_name(out, "waits");
	json_open(out, '[');
	for (uint32_t i = 0; why->inst && status == INSTANCE_SUSPENDED && i < why->inst->token_count; i++) {
		const struct token *token = &why->inst->tokens[i];
		const struct node *node = why->process ? process_node(why->process, token->node) : NULL;

		if (token->state != TOKEN_WAITING)
			continue;
		write_wait(out, token, node);
		if (token->due_us)
			timer_cause(causes, token);
		if (token->key_count || !token->due_us)
			wait_cause(request, causes, token, node, has_come);
	}
	json_close(out, ']');
}

/* --- what it has not got rid of --- */

static void outbox_cause(struct admin_request *request, struct buf *causes, const struct rows *rows, uint32_t row, uint32_t count)
{
	const struct field *owner = rows_at(rows, row, 10), *diagnostic = rows_at(rows, row, 12);
	struct why_cause cause = {WHY_DATABASE, "unsent", CODE_NONE,
				  "Mend what the diagnostic says of the broker; it is sent again by itself. Messages of one instance and "
				  "channel go in order."};
	int64_t attempts = rows_at(rows, row, 6)->i;
	const char *state = owner->is_null ? "not claimed" : arena_printf(&request->arena, "claimed by replica %.*s",
									  STR_ARG(owner->str));

	if (attempts == 0)
		cause.remedy = "Nothing: it is sent in a moment. If it lasts, see whether the broker is reached.";
	if (rows_at(rows, row, 11)->b) {
		cause.cause = "poisoned";
		cause.remedy = "Mend what the diagnostic says, then `sutra outbox retry`. The row stays until then; those behind it go on.";
		state = "poisoned";
	}
	why_cause(causes, &cause, "%u message%s to channel %.*s not sent yet: the first is %s, failed attempts: %lld%s%.*s",
		  count, count == 1 ? "" : "s", STR_ARG(rows_at(rows, row, 3)->str), state,
		  (long long)attempts, diagnostic->is_null ? "" : ": ",
		  STR_ARG(diagnostic->is_null ? STR("") : diagnostic->str));
}

static void write_outbox(struct admin_request *request, const struct why_instance *why, struct buf *causes)
{
	const struct rows *rows = &why->outbox;
	struct buf *out = &request->body;
	uint32_t first = 0;

	json_name(out, "outbox");
	json_open(out, '[');
	for (uint32_t i = 0; i < rows->row_count && id_equal(rows_at(rows, i, 2)->id, why->id); i++) {
		if (!str_equal(rows_at(rows, i, 3)->str, rows_at(rows, first, 3)->str)) {
			outbox_cause(request, causes, rows, first, i - first);
			first = i;
		}
		json_open(out, '{');
		json_id_field(out, "id", rows_at(rows, i, 0));
		json_text_field(out, "channel", rows_at(rows, i, 3));
		json_int(out, "version", rows_at(rows, i, 4)->i);
		json_int(out, "ordinal", rows_at(rows, i, 5)->i);
		json_int(out, "ahead", i - first);
		json_int(out, "attempts", rows_at(rows, i, 6)->i);
		json_time_field(out, "createdAt", rows_at(rows, i, 7));
		json_time_field(out, "nextAttemptAt", rows_at(rows, i, 8));
		json_text_field(out, "claimOwner", rows_at(rows, i, 10));
		json_bool(out, "poisoned", rows_at(rows, i, 11)->b);
		json_text_field(out, "diagnostic", rows_at(rows, i, 12));
		json_close(out, '}');
		if (i + 1 == rows->row_count || !id_equal(rows_at(rows, i + 1, 2)->id, why->id))
			outbox_cause(request, causes, rows, first, i + 1 - first);
	}
	json_close(out, ']');
}

/* --- what is held for it --- */

static void write_deliveries(struct admin_request *request, const struct why_instance *why, struct buf *causes)
{
	struct buf *out = &request->body;
	int64_t matches = 0;

	json_name(out, "deliveries");
	json_open(out, '[');
	for (uint32_t c = 0; c < why->channel_count; c++) {
		const struct inspection *found = &why->asks[c].inspection;

		matches += found->matches;
		for (uint32_t i = 0; i < found->count; i++) {
			why_delivery(request, &found->found[i], why->channels[c]);
			why_delivery_cause(request, causes, &found->found[i], why->channels[c]);
		}
	}
	json_close(out, ']');
	json_int(out, "deliveryCount", matches);
}

/* Whether an intake here holds the kept messages of this key for the instance. */
static bool is_held_here(const struct why_instance *why, struct id order_key)
{
	for (uint32_t c = 0; c < why->channel_count; c++)
		for (uint32_t i = 0; i < why->asks[c].inspection.count; i++)
			if (why->asks[c].inspection.found[i].kept &&
			    id_equal(why->asks[c].inspection.found[i].order_key, order_key))
				return true;
	return false;
}

/* What the turn makes of an alias where messages order by instance. */
static bool is_kept_for(const struct why_instance *why, const struct rows *rows, uint32_t row)
{
	struct id order_key = rows_at(rows, row, 4)->id;

	for (uint32_t i = 0; i < why->key_count; i++)
		if (id_equal(order_key, id_digest_of(STR("order"), why->tenant, rows_at(rows, row, 2)->str,
						     id_str(&why->keys[i]))))
			return true;
	return is_held_here(why, order_key);
}

static void write_kept(struct admin_request *request, const struct why_instance *why, struct buf *causes)
{
	struct why_cause cause = {WHY_DATABASE, "kept", CODE_NONE,
				  "Nothing: they run from there, in order, once the instance can take them. /admin/kept lists them."};
	struct buf *out = &request->body;
	uint32_t count = 0;

	json_name(out, "kept");
	json_open(out, '[');
	for (uint32_t i = 0; i < why->kept.row_count; i++) {
		if (!is_kept_for(why, &why->kept, i))
			continue;
		json_open(out, '{');
		admin_kept_columns(out, &why->kept, i);
		json_close(out, '}');
		count++;
	}
	json_close(out, ']');
	if (count)
		why_cause(causes, &cause, "the database keeps %u message%s for it", count, count == 1 ? "" : "s");
}

/* --- the answer --- */

static void instance_answer(struct admin_request *request)
{
	const struct why_instance *why = request->state;
	struct buf *out = &request->body, causes = BUF_INIT;

	why_open(request, "instance", request->id);
	json_text_field(out, "tenant", rows_at(&why->row, 0, 1));
	json_text(out, "state", str_of(instance_status_name((enum instance_status)rows_at(&why->row, 0, 4)->i)));
	json_text_field(out, "deployment", rows_at(&why->row, 0, 2));
	json_bool(out, "loaded", why->is_loaded);
	json_text_field(out, "process", rows_at(&why->row, 0, 3));
	json_int(out, "version", rows_at(&why->row, 0, 5)->i);
	json_time_field(out, "startedAt", rows_at(&why->row, 0, 6));
	json_time_field(out, "endedAt", rows_at(&why->row, 0, 7));
	json_text_field(out, "code", rows_at(&why->row, 0, 8));
	json_text_field(out, "detail", rows_at(&why->row, 0, 9));
	status_cause(request, why, &causes);
	write_claim(request, why, &causes);
	write_deliveries(request, why, &causes);
	write_kept(request, why, &causes);
	write_waits(request, why, &causes);
	write_outbox(request, why, &causes);
	why_close(request, &causes);
}

/* --- asking --- */

static void ask_next_intake(struct admin_request *request)
{
	struct why_instance *why = request->state;
	uint32_t at = why->next++;
	struct admin_channel channel;

	if (at == why->channel_count) {
		instance_answer(request);
		return;
	}
	why->asks[at].inspection.instance = why->id;
	why->asks[at].inspection.keys = why->keys;
	why->asks[at].inspection.key_count = why->key_count;
	why_inspect(request, why_channel_find(request, why->tenant, why->channels[at], &channel), &why->asks[at],
		    ask_next_intake);
}

static void kept_answered(struct admin_request *request)
{
	const struct admin_sources *sources = &request->admin->sources;
	uint32_t count = sources->channel_count(sources->user);
	struct why_instance *why = request->state;

	admin_rows_trim(&request->calls[0].rows, 1);
	why->kept = request->calls[0].rows;
	why->channels = arena_alloc(&request->arena, sizeof(*why->channels) * (count + 1));
	why->asks = arena_zalloc(&request->arena, sizeof(*why->asks) * (count + 1));
	for (uint32_t i = 0; i < count; i++) {
		struct admin_channel channel;

		sources->channel_read(sources->user, i, &channel);
		if (str_equal(channel.tenant, why->tenant))
			why->channels[why->channel_count++] = channel.channel;
	}
	ask_next_intake(request);
}

static void collect_keys(struct admin_request *request, struct why_instance *why)
{
	const struct instance *inst = why->inst;
	uint32_t most = inst->alias_count;

	for (uint32_t i = 0; i < inst->token_count; i++)
		most += inst->tokens[i].key_count;
	why->keys = arena_alloc(&request->arena, sizeof(*why->keys) * (most + 1));
	for (uint32_t i = 0; i < inst->alias_count; i++)
		why->keys[why->key_count++] = store_alias_key(why->tenant, inst->aliases[i].name, inst->aliases[i].value);
	for (uint32_t i = 0; i < inst->token_count; i++)
		for (uint32_t k = 0; k < inst->tokens[i].key_count; k++)
			why->keys[why->key_count++] = store_alias_key(why->tenant, inst->tokens[i].keys[k].name,
								      inst->tokens[i].keys[k].value);
}

static void read_snapshot(struct admin_request *request, struct why_instance *why)
{
	const struct view_member *member = request->admin->view
						   ? view_deployment(request->admin->view, rows_at(&why->row, 0, 2)->str)
						   : NULL;
	const struct field *snapshot = rows_at(&why->row, 0, 12);

	why->is_loaded = member != NULL;
	why->snapshot_error = ERROR_INIT;
	if (snapshot_unpack(&request->arena, snapshot->is_null ? STR("") : snapshot->str, why->id, why->tenant,
			    rows_at(&why->row, 0, 5)->i, &why->inst, &why->snapshot_error) != RESULT_OK) {
		why->inst = NULL;
		return;
	}
	why->process = member ? deployment_process(member->deployment, why->inst->process) : NULL;
	collect_keys(request, why);
}

static void instance_answered(struct admin_request *request)
{
	struct why_instance *why = request->state;

	why->row = request->calls[0].rows;
	why->outbox = request->calls[1].rows;
	if (why->row.row_count == 0) {
		admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "id", request->id,
			      "there is no such instance");
		return;
	}
	why->tenant = rows_at(&why->row, 0, 1)->str;
	read_snapshot(request, why);
	admin_ask_begin(request, 1);
	admin_ask_call(request, 0, STATEMENT_KEPT_LIST);
	admin_param_text(request, 0, 0, why->tenant);
	admin_param_text(request, 0, 1, STR_NONE);
	admin_param_id(request, 0, 2, ID_NONE);
	admin_param_int(request, 0, 3, LOOK_MAX);
	admin_param_int(request, 0, 4, WHY_ROWS);
	admin_ask(request, false, kept_answered);
}

static void ask_instance(struct admin_request *request)
{
	const struct why_instance *why = request->state;

	admin_ask_begin(request, 2);
	admin_ask_call(request, 0, STATEMENT_INSTANCE_GET);
	admin_param_id(request, 0, 0, why->id);
	admin_ask_call(request, 1, STATEMENT_OUTBOX_LIST);
	admin_param_id(request, 1, 0, why->id);
	admin_param_text(request, 1, 1, STR(""));
	admin_param_int(request, 1, 2, 0);
	admin_param_int(request, 1, 3, 0);
	admin_param_int(request, 1, 4, OUTBOX_ROWS);
	admin_ask(request, false, instance_answered);
}

void admin_why_instance(struct admin_request *request)
{
	struct why_instance *why = request->state = arena_zalloc(&request->arena, sizeof(*why));

	if (admin_read_id(request, "id", request->id, &why->id))
		admin_ask_tenants(request, ask_instance);
}
