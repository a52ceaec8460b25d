/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The envelope is a map by short names; what is absent is left out. A reader skips names it does not know and gets along
 * without those it misses, so replicas of two versions can read each other's rows. Where that would be wrong, because the row
 * means more than the message in it, "format" says which version is needed; without it the first will do.
 */
#include "flow/envelope.h"

#define FIELD_MAX 21
/* What a note needs. */
#define FORMAT_NOTE 2

struct field_list {
	msgpack_object_kv items[FIELD_MAX];
	uint32_t count;
};

static void field_add(struct field_list *fields, struct str name, msgpack_object value)
{
	fields->items[fields->count++] = (msgpack_object_kv){value_text(name), value};
}

/* Bytes, not text: what a broker let through need not be UTF-8. */
static void field_add_bytes(struct field_list *fields, struct str name, struct str bytes)
{
	if (bytes.ptr)
		field_add(fields, name, value_bytes(bytes));
}

static void field_add_id(struct field_list *fields, struct str name, const struct id *id)
{
	if (!id_is_none(*id))
		field_add_bytes(fields, name, id_str(id));
}

static void add_note(struct field_list *fields, const struct envelope_note *note)
{
	if (!note->event_id.ptr && id_is_none(note->dead_letter) && note->aim == ENVELOPE_AIM_NONE)
		return;
	field_add(fields, STR("format"), value_int(FORMAT_NOTE));
	field_add_bytes(fields, STR("event-id"), note->event_id);
	field_add_id(fields, STR("dead-letter"), &note->dead_letter);
	if (note->aim == ENVELOPE_AIM_NONE)
		return;
	field_add(fields, STR("aim"), value_int(note->aim));
	field_add_id(fields, STR("instance"), &note->instance);
	field_add_id(fields, STR("wait"), &note->wait_key);
	field_add_id(fields, STR("alias"), &note->alias_key);
	if (note->aim == ENVELOPE_AIM_WAIT)
		field_add(fields, STR("token"), value_int(note->token));
	field_add_bytes(fields, STR("node"), note->node);
	field_add_bytes(fields, STR("deployment"), note->deployment);
	field_add_bytes(fields, STR("process"), note->process);
}

struct str envelope_pack(struct arena *arena, const struct message *message, const struct envelope_note *note)
{
	struct field_list fields = {.count = 0};
	struct buf headers = BUF_INIT, packed = BUF_INIT;
	msgpack_object map = {.type = MSGPACK_OBJECT_MAP, .via.map = {0, fields.items}};
	struct str envelope;

	headers_pack(&message->headers, &headers);
	field_add_bytes(&fields, STR("identity"), message->identity);
	field_add_bytes(&fields, STR("source"), message->source);
	field_add_bytes(&fields, STR("key"), message->key);
	field_add_bytes(&fields, STR("headers"), buf_str(&headers));
	field_add_bytes(&fields, STR("content-type"), message->content_type);
	field_add_bytes(&fields, STR("type"), message->type);
	field_add_bytes(&fields, STR("message-id"), message->message_id);
	field_add_bytes(&fields, STR("reply-to"), message->reply_destination);
	if (!value_is_nil(&message->reply_correlation))
		field_add(&fields, STR("correlation"), message->reply_correlation);
	if (message->time_us)
		field_add(&fields, STR("time"), value_int(message->time_us));
	if (note)
		add_note(&fields, note);
	map.via.map.size = fields.count;
	value_pack(&map, &packed);
	envelope = arena_str(arena, buf_str(&packed));
	buf_done(&headers);
	buf_done(&packed);
	return envelope;
}

static struct str field_bytes(const msgpack_object *map, struct str name)
{
	const msgpack_object *value = value_get(map, name);

	return value ? value_as_str(value) : STR_NONE;
}

static enum result message_fill(struct message *message, const msgpack_object *map, struct error *err)
{
	const msgpack_object *value;
	struct str headers = field_bytes(map, STR("headers"));

	message->identity = field_bytes(map, STR("identity"));
	message->source = field_bytes(map, STR("source"));
	message->key = field_bytes(map, STR("key"));
	message->content_type = field_bytes(map, STR("content-type"));
	message->type = field_bytes(map, STR("type"));
	message->message_id = field_bytes(map, STR("message-id"));
	message->reply_destination = field_bytes(map, STR("reply-to"));
	value = value_get(map, STR("correlation"));
	message->reply_correlation = value ? *value : value_nil();
	value = value_get(map, STR("time"));
	if (value && !value_as_int(value, &message->time_us))
		return error_set(err, RESULT_REJECT, CODE_PARSE_MSGPACK, "the time of a kept message is no integer");
	message->redelivered = true;
	message->bytes = message->body.len + headers.len + message->key.len;
	return headers.ptr ? headers_unpack(&message->arena, headers, &message->headers, err) : RESULT_OK;
}

/* Absent is none; anything that is there must be one. */
static bool field_id_of(const msgpack_object *map, struct str name, struct id *out)
{
	struct str bytes = field_bytes(map, name);

	if (bytes.ptr && bytes.len != sizeof(out->bytes))
		return false;
	if (bytes.ptr)
		memcpy(out->bytes, bytes.ptr, sizeof(out->bytes));
	return true;
}

static bool field_int_of(const msgpack_object *map, struct str name, int64_t most, int64_t *out)
{
	const msgpack_object *value = value_get(map, name);

	return !value || (value_as_int(value, out) && *out >= 0 && *out <= most);
}

static bool aim_is_whole(const struct envelope_note *note)
{
	if (note->aim == ENVELOPE_AIM_NONE)
		return true;
	if (!note->node.len || !note->deployment.len)
		return false;
	return note->aim == ENVELOPE_AIM_WAIT ? !id_is_none(note->instance) && !id_is_none(note->wait_key)
					      : note->process.len > 0;
}

static enum result note_fill(struct envelope_note *note, const msgpack_object *map, struct error *err)
{
	int64_t format = 1, aim = ENVELOPE_AIM_NONE, token = 0;

	*note = (struct envelope_note){.event_id = field_bytes(map, STR("event-id"))};
	if (!field_int_of(map, STR("format"), INT64_MAX, &format) || format > FORMAT_NOTE)
		return error_set(err, RESULT_REJECT, CODE_PARSE_MSGPACK,
				 "a later version of the engine wrote the envelope of a kept message");
	if (!field_int_of(map, STR("aim"), ENVELOPE_AIM_START, &aim) ||
	    !field_int_of(map, STR("token"), UINT32_MAX, &token) ||
	    !field_id_of(map, STR("dead-letter"), &note->dead_letter) ||
	    !field_id_of(map, STR("instance"), &note->instance) || !field_id_of(map, STR("wait"), &note->wait_key) ||
	    !field_id_of(map, STR("alias"), &note->alias_key))
		return error_set(err, RESULT_REJECT, CODE_PARSE_MSGPACK, "the note of a kept message is not one");
	note->aim = (enum envelope_aim)aim;
	note->token = (uint32_t)token;
	note->node = field_bytes(map, STR("node"));
	note->deployment = field_bytes(map, STR("deployment"));
	note->process = field_bytes(map, STR("process"));
	if (!aim_is_whole(note))
		return error_set(err, RESULT_REJECT, CODE_PARSE_MSGPACK, "the target of a kept message is not complete");
	return RESULT_OK;
}

enum result envelope_unpack(struct str envelope, struct str body, struct message **out, struct envelope_note *note,
			    struct error *err)
{
	struct message *message = message_new();
	msgpack_object map;
	enum result result;

	message->body = body.ptr ? arena_str(&message->arena, body) : STR_NONE;
	result = value_unpack(&message->arena, envelope, true, &VALUE_LIMITS_OWN, &map, err);
	if (result == RESULT_OK && map.type != MSGPACK_OBJECT_MAP)
		result = error_set(err, RESULT_REJECT, CODE_PARSE_MSGPACK, "the envelope of a kept message is no map");
	if (result == RESULT_OK)
		result = message_fill(message, &map, err);
	if (result == RESULT_OK)
		result = note_fill(note, &map, err);
	if (result != RESULT_OK) {
		message_free(&message);
		return result;
	}
	*out = message;
	return RESULT_OK;
}
