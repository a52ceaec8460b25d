/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage commit, the building of it: one element holds everything that a step writes, so that it commits together or not at
 * all (G4): the snapshot with its fence and the release of the claim, waits, aliases, inbox rows, outbox rows, dead letters.
 *
 * Outbox rows are coded here, into a parcel that outlives the turn: once the commit has succeeded the outbox publishes them
 * from memory, without reading them back (G6). Their ids derive from (instance, version, ordinal), so the same step run
 * again makes the same rows.
 *
 * Texts that come from outside (event ids, types, error details) are made safe for a text column here: no NUL, valid
 * UTF-8, at most 512 bytes. Keys never depend on that: they are digests of the original bytes.
 */
#include "flow/commit.h"

#include "base/time.h"
#include "codecs/cloudevents/cloudevents.h"
#include "flow/lane_set.h"

/* Bytes for a text column. Longer ones are named by their digest. */
static struct str text_safe(struct arena *arena, struct str text)
{
	char hex[65];
	char *copy;

	if (!text.ptr)
		return text;
	if (text.len > STORE_TEXT_MAX) {
		sha256_hex(text, hex);
		return str_of(arena_printf(arena, "sha256:%s", hex));
	}
	if (str_is_utf8(text) && (!text.len || !memchr(text.ptr, 0, text.len)))
		return text;
	copy = arena_alloc(arena, text.len + 1);
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];

		copy[i] = c < 0x80 && c ? (char)c : '?';
	}
	copy[text.len] = 0;
	return str_make(copy, text.len);
}

static struct str packed_headers(struct arena *arena, const struct header_list *headers)
{
	struct buf buf = BUF_INIT;
	struct str packed;

	headers_pack(headers, &buf);
	packed = arena_str(arena, buf_str(&buf));
	buf_done(&buf);
	return packed;
}

static struct str packed_value(struct arena *arena, const msgpack_object *value)
{
	struct buf buf = BUF_INIT;
	struct str packed;

	if (value_is_nil(value))
		return STR_NONE;
	value_pack(value, &buf);
	packed = arena_str(arena, buf_str(&buf));
	buf_done(&buf);
	return packed;
}

/* --- outbox rows --- */

static struct header_list headers_join(struct arena *arena, const struct header_list *first,
				       const struct header_list *second)
{
	struct header_list all = {arena_alloc(arena, (first->count + second->count + 1) * sizeof(struct header)), 0};

	for (size_t i = 0; i < first->count; i++)
		all.items[all.count++] = first->items[i];
	for (size_t i = 0; i < second->count; i++)
		all.items[all.count++] = second->items[i];
	return all;
}

/* The message's own headers and the trace context, which travels from the inbound to everything that follows from it. */
static struct header_list headers_of_send(struct arena *arena, const struct step_send *send,
					  const struct instance *inst)
{
	struct header trace[2];
	struct header_list extra = {trace, 0};

	if (inst->traceparent.len && !header_find(&send->headers, STR("traceparent")))
		trace[extra.count++] = (struct header){STR("traceparent"), value_text(inst->traceparent)};
	if (extra.count && inst->tracestate.len)
		trace[extra.count++] = (struct header){STR("tracestate"), value_text(inst->tracestate)};
	return headers_join(arena, &send->headers, &extra);
}

static bool channel_writes_cloudevents(const struct channel *channel)
{
	return channel->direction == CHANNEL_OUTBOUND && (channel->cloudevents == CHANNEL_CE_BINARY ||
							  channel->cloudevents == CHANNEL_CE_STRUCTURED);
}

/* The envelope of an outgoing event: its id is the row's, so a repeated send is the same event (G6). */
static enum result encode_cloudevent(struct turn *turn, const struct step_send *send, struct outbox_row *row,
				     const struct codec *codec, struct buf *body, struct header_list *headers,
				     struct error *err)
{
	struct arena *arena = &turn->parcel->arena;
	bool kafka = !str_equal(send->channel->transport, STR("amqp"));
	char id[ID_TEXT_SIZE], time[TIME_TEXT_SIZE];
	struct cloudevent ce = {.present = true};
	struct header_list own;
	enum result result;

	ce.id = str_of(arena_strdup(arena, id_format(row->id, id)));
	ce.source = str_of(arena_printf(arena, "urn:sutra:%.*s:%.*s", STR_ARG(turn->step.inst->tenant),
					STR_ARG(turn->step.inst->process)));
	ce.type = header_text(arena, headers, STR("message-type"));
	if (!ce.type.len)
		ce.type = send->node->id;
	ce.time = str_of(arena_strdup(arena, time_format(turn->now_us, time)));
	ce.data_content_type = send->content_type.len ? send->content_type : str_of(codec->content_type);
	result = cloudevents_write(arena,
				   send->channel->cloudevents == CHANNEL_CE_BINARY ? CLOUDEVENTS_BINARY
										   : CLOUDEVENTS_STRUCTURED,
				   kafka ? CLOUDEVENTS_STYLE_KAFKA : CLOUDEVENTS_STYLE_AMQP, &ce, &send->body, codec,
				   body, &row->content_type, &own, err);
	if (result == RESULT_OK)
		*headers = headers_join(arena, &own, headers);
	return result;
}

static enum result encode_body(struct turn *turn, const struct step_send *send, struct outbox_row *row,
			       struct header_list *headers, struct error *err)
{
	struct arena *arena = &turn->parcel->arena;
	const struct codec *codec = codec_find(send->channel->codec);
	struct buf body = BUF_INIT;
	enum result result;

	if (channel_writes_cloudevents(send->channel)) {
		result = encode_cloudevent(turn, send, row, codec, &body, headers, err);
	} else {
		row->content_type = send->content_type.len ? arena_str(arena, send->content_type)
							   : str_of(codec->content_type);
		result = codec->encode(&send->body, &body, err);
	}
	if (result == RESULT_OK)
		row->body = arena_str(arena, buf_str(&body));
	buf_done(&body);
	return result;
}

static enum result encode_send(struct turn *turn, const struct step_send *send, struct outbox_row *row,
			       struct error *err)
{
	const struct instance *inst = turn->step.inst;
	struct arena *arena = &turn->parcel->arena;
	struct header_list headers = headers_of_send(arena, send, inst);
	enum result result;

	*row = (struct outbox_row){
		.tenant = arena_str(arena, inst->tenant),
		.instance = inst->id,
		.channel = arena_str(arena, send->channel->name),
		.version = inst->version,
		.ordinal = send->ordinal,
		.id = outbox_row_id(inst->id, inst->version, send->ordinal),
		.deployment = arena_str(arena, inst->deployment),
		.record_key = arena_str(arena, send->key),
		.required = send->required,
		.created_us = turn->now_us,
	};
	if (send->is_reply && send->destination.destination.len) {
		row->channel = str_of(
			arena_printf(arena, "reply:%.*s", STR_ARG(send->destination.channel)));
		row->connection = arena_str(arena, send->destination.connection);
		row->destination = arena_str(arena, send->destination.destination);
		row->correlation = packed_value(arena, &send->destination.correlation);
	}
	result = encode_body(turn, send, row, &headers, err);
	if (result == RESULT_OK)
		row->headers = packed_headers(arena, &headers);
	return result;
}

static enum result encode_sends(struct turn *turn, uint32_t spare, const struct node **at, struct error *err)
{
	const struct step_result *step = &turn->step;
	struct outbox_parcel *parcel;

	if (!step->send_count && !spare)
		return RESULT_OK;
	if (!turn->parcel)
		turn->parcel = outbox_parcel_new();
	parcel = turn->parcel;
	parcel->rows = arena_zalloc(&parcel->arena, (step->send_count + spare) * sizeof(*parcel->rows));
	parcel->count = 0;
	for (uint32_t i = 0; i < step->send_count; i++) {
		enum result result = encode_send(turn, &step->sends[i], &parcel->rows[i], err);

		if (result != RESULT_OK) {
			*at = step->sends[i].node;
			parcel->count = 0;
			return result;
		}
		parcel->count++;
	}
	return RESULT_OK;
}

/* --- dead letters --- */

struct id commit_dead_letter_id(struct turn *turn)
{
	const struct lane_request *request = turn->request;
	struct str event_id = request->decoded ? request->decoded->event.id : STR_NONE;

	if (!id_is_none(request->replay_of))
		return request->replay_of;
	/* Each target may have one of its own. */
	if (request->aim.aim != ENVELOPE_AIM_NONE)
		return id_digest_of(STR("dead-letter"), id_str(&request->kept_row));
	if (!event_id.len)
		event_id = request->message->message_id.len ? request->message->message_id
							     : request->message->identity;
	/* AMQP without a message id: every delivery is its own, and a spawn has its instance for that. */
	if (!event_id.len && !turn->inst && !id_is_none(turn->id))
		return id_digest_of(STR("dead-letter"), id_str(&turn->id));
	if (!event_id.len)
		return id_new(turn->lane->executor->loop);
	return id_digest_of(STR("dead-letter"), request->tenant, request->channel, event_id);
}

static struct dead_letter_row *dead_letter_row_new(struct turn *turn, enum code code, const char *detail)
{
	const struct lane_request *request = turn->request;
	const struct message *message = request->message;
	const struct event *event = request->decoded ? &request->decoded->event : NULL;
	struct dead_letter_row *row = arena_zalloc(&turn->arena, sizeof(*row));

	*row = (struct dead_letter_row){
		.id = commit_dead_letter_id(turn),
		.channel = request->channel,
		.event_id = text_safe(&turn->arena, event ? event->id : message->message_id),
		.source = text_safe(&turn->arena, message->source),
		.message_type = text_safe(&turn->arena, event ? event->type : message->type),
		.code = code,
		.detail = text_safe(&turn->arena, str_of(arena_strdup(&turn->arena, detail))),
		.record_key = message->key,
		.headers = packed_headers(&turn->arena, &message->headers),
		.content_type = text_safe(&turn->arena, message->content_type),
		.payload = message->body,
	};
	return row;
}

/* The copy of a dead letter that goes to the channel named by `dead-letter`. */
static void add_dead_letter_send(struct turn *turn, const struct dead_letter_row *dead, struct outbox_row *row)
{
	const struct message *message = turn->request->message;
	const struct channel *channel = turn->route->channel;
	struct arena *arena = &turn->parcel->arena;
	struct header extra[] = {
		{STR("sutra-dead-letter-code"), value_text(str_of(code_text(dead->code)))},
		{STR("sutra-dead-letter-detail"), value_text(dead->detail)},
		{STR("sutra-dead-letter-channel"), value_text(dead->channel)},
		{STR("sutra-dead-letter-source"), value_text(dead->source)},
	};
	struct header_list own = {extra, ARRAY_LEN(extra)};
	struct header_list all = headers_join(arena, &message->headers, &own);

	*row = (struct outbox_row){
		.tenant = arena_str(arena, turn->request->tenant),
		.instance = dead->id,
		.channel = arena_str(arena, channel->dead_letter),
		.id = outbox_row_id(dead->id, 0, 0),
		.deployment = arena_str(arena, turn->route->deployment->id),
		.record_key = arena_str(arena, message->key),
		.headers = packed_headers(arena, &all),
		.content_type = arena_str(arena, dead->content_type),
		.body = message->body.ptr ? arena_str(arena, message->body) : STR_NONE,
		.created_us = turn->now_us,
	};
}

static bool dead_letter_has_send(const struct turn *turn)
{
	return turn->route && turn->route->channel->dead_letter.len;
}

/* Puts the dead letter, and its copy if the channel wants one, into the element. The parcel has room for one row more. */
static void commit_add_dead_letter(struct turn *turn, struct dead_letter_row *dead)
{
	struct store_commit *commit = &turn->ask.commit;

	commit->dead_letters = dead;
	commit->dead_letter_count = 1;
	commit->dead_letter_removed = turn->request->replay_of;
	if (dead_letter_has_send(turn))
		add_dead_letter_send(turn, dead, &turn->parcel->rows[turn->parcel->count++]);
}

/* --- the element --- */

static struct store_wait_row *wait_rows(struct turn *turn, const struct step_wait *waits, uint32_t count,
					uint32_t *row_count)
{
	const struct instance *inst = turn->step.inst;
	struct store_wait_row *rows;
	uint32_t total = 0;

	for (uint32_t i = 0; i < count; i++)
		total += waits[i].key_count;
	rows = arena_alloc(&turn->arena, (total + 1) * sizeof(*rows));
	*row_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct source *source = waits[i].node->source;

		for (uint32_t k = 0; k < waits[i].key_count; k++)
			rows[(*row_count)++] = (struct store_wait_row){
				.key = store_wait_key(inst->tenant, source->channel, waits[i].keys[k].name,
						      waits[i].keys[k].value),
				.token = waits[i].token,
				.unique = source->match == MATCH_UNIQUE,
				.node = waits[i].node->id,
				.channel = source->channel,
			};
	}
	return rows;
}

static struct store_alias_row *alias_rows(struct turn *turn, const struct instance_alias *aliases, uint32_t count)
{
	struct store_alias_row *rows = arena_alloc(&turn->arena, (count + 1) * sizeof(*rows));

	for (uint32_t i = 0; i < count; i++)
		rows[i] = (struct store_alias_row){
			.key = store_alias_key(turn->step.inst->tenant, aliases[i].name, aliases[i].value),
			.unique = aliases[i].unique,
			.name = aliases[i].name,
			.value = text_safe(&turn->arena, aliases[i].value),
		};
	return rows;
}

static struct store_timer_row *timer_rows(struct turn *turn, const struct step_timer *timers, uint32_t count)
{
	struct store_timer_row *rows = arena_alloc(&turn->arena, (count + 1) * sizeof(*rows));

	for (uint32_t i = 0; i < count; i++)
		rows[i] = (struct store_timer_row){timers[i].token, timers[i].due_us,
						  timers[i].node ? timers[i].node->id : STR_NONE};
	return rows;
}

static void commit_add_timers(struct turn *turn)
{
	const struct step_result *step = &turn->step;
	struct store_commit *commit = &turn->ask.commit;

	commit->timers_added = timer_rows(turn, step->timers_added, step->timers_added_count);
	commit->timers_added_count = step->timers_added_count;
	commit->timers_removed = timer_rows(turn, step->timers_removed, step->timers_removed_count);
	commit->timers_removed_count = step->timers_removed_count;
}

static void commit_add_withdrawn(struct turn *turn)
{
	const struct step_result *step = &turn->step;
	struct store_withdrawn *rows = arena_alloc(&turn->arena, (step->withdrawn_count + 1) * sizeof(*rows));

	for (uint32_t i = 0; i < step->withdrawn_count; i++)
		rows[i] = (struct store_withdrawn){step->withdrawn[i].channel, step->withdrawn[i].version, step->withdrawn[i].ordinal};
	turn->ask.commit.withdrawn = rows;
	turn->ask.commit.withdrawn_count = step->withdrawn_count;
}

static void commit_add_correlation(struct turn *turn)
{
	const struct step_result *step = &turn->step;
	struct store_commit *commit = &turn->ask.commit;

	commit->waits_added =
		wait_rows(turn, step->waits_added, step->waits_added_count, &commit->waits_added_count);
	commit->waits_removed =
		wait_rows(turn, step->waits_removed, step->waits_removed_count, &commit->waits_removed_count);
	commit->aliases_added = alias_rows(turn, step->aliases_added, step->aliases_added_count);
	commit->aliases_added_count = step->aliases_added_count;
	commit->aliases_removed = alias_rows(turn, step->aliases_removed, step->aliases_removed_count);
	commit->aliases_removed_count = step->aliases_removed_count;
}

static void commit_add_inbox(struct turn *turn)
{
	turn->ask.commit.inbox_keys = turn->request->inbox_keys;
	turn->ask.commit.inbox_key_count = turn->request->inbox_key_count;
}

static void commit_begin(struct turn *turn, enum commit_kind kind)
{
	turn->ask.commit = (struct store_commit){
		.commit = kind,
		.tenant = turn->request->tenant,
		.keeper = str_of(turn->lane->set->settings.keeper),
		.kept_removed = turn->request->kept_row,
		.schedule = turn->request->schedule,
	};
}

static void commit_add_instance(struct turn *turn)
{
	struct store_commit *commit = &turn->ask.commit;
	const struct instance *inst = turn->step.inst;
	struct buf snapshot = BUF_INIT;

	commit->instance = inst->id;
	commit->owner = turn_owner(turn);
	commit->version = turn->inst ? turn->inst->version : inst->version;
	commit->status = inst->status;
	commit->deployment = inst->deployment;
	commit->process = inst->process;
	commit->started_us = inst->started_us;
	if (inst->status == INSTANCE_FAILED) {
		commit->code = text_safe(&turn->arena, inst->failure_code);
		commit->detail = text_safe(&turn->arena, inst->failure_detail);
	}
	snapshot_pack(inst, &snapshot);
	commit->snapshot = arena_str(&turn->arena, buf_str(&snapshot));
	buf_done(&snapshot);
}

static void commit_add_outbox(struct turn *turn)
{
	if (!turn->parcel)
		return;
	turn->ask.commit.outbox = turn->parcel->rows;
	turn->ask.commit.outbox_count = turn->parcel->count;
}

enum result commit_build_step(struct turn *turn, const struct node **at, struct error *err)
{
	bool copy = turn->step.failed && turn->request->kind == REQUEST_MESSAGE && dead_letter_has_send(turn);
	struct dead_letter_row *dead;
	enum result result;

	result = encode_sends(turn, copy, at, err);
	if (result != RESULT_OK)
		return result;
	commit_begin(turn, turn->inst ? COMMIT_RESUME : COMMIT_SPAWN);
	turn->ask.commit.dead_letter_removed = turn->request->replay_of;
	/* The message of the first step has its effect now, and so its dead letter has none to come. */
	if (turn->request->kind == REQUEST_RESTORE && !turn->step.failed)
		turn->ask.commit.dead_letter_removed = engine_failed_letter(turn->inst);
	commit_add_instance(turn);
	commit_add_inbox(turn);
	commit_add_correlation(turn);
	commit_add_timers(turn);
	commit_add_withdrawn(turn);
	if (turn->step.failed && turn->request->kind == REQUEST_MESSAGE) {
		dead = dead_letter_row_new(turn, CODE_INBOUND_NON_IDEMPOTENT_FAILURE,
					   arena_printf(&turn->arena, "%s: %s", code_text(turn->step.failure.code),
							turn->step.failure.text));
		dead->instance = turn->step.inst->id;
		commit_add_dead_letter(turn, dead);
	}
	commit_add_outbox(turn);
	return RESULT_OK;
}

void commit_build_dead_letter(struct turn *turn, const struct error *why)
{
	struct dead_letter_row *dead = dead_letter_row_new(turn, why->code, why->text);

	dead->instance = turn->failed_instance;

	outbox_parcel_free(&turn->parcel);
	if (dead_letter_has_send(turn)) {
		turn->parcel = outbox_parcel_new();
		turn->parcel->rows = arena_zalloc(&turn->parcel->arena, sizeof(*turn->parcel->rows));
	}
	commit_begin(turn, COMMIT_NO_INSTANCE);
	commit_add_dead_letter(turn, dead);
	commit_add_outbox(turn);
}

void commit_build_end(struct turn *turn)
{
	outbox_parcel_free(&turn->parcel);
	commit_begin(turn, COMMIT_NO_INSTANCE);
}

void commit_build_fan_out(struct turn *turn, const struct kept_row *rows, uint32_t count)
{
	outbox_parcel_free(&turn->parcel);
	commit_begin(turn, COMMIT_NO_INSTANCE);
	commit_add_inbox(turn);
	turn->ask.commit.dead_letter_removed = turn->request->replay_of;
	turn->ask.commit.kept_added = rows;
	turn->ask.commit.kept_added_count = count;
}
