/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events as values: the message of a first step that failed, as its snapshot keeps it.
 *
 * It is a map with the names below. Strings that are not UTF-8 (record keys, header names) are byte strings in it, as in all
 * values. The reply address and the trace context are not in it: the instance itself has them.
 */
#include "engine/failed.h"

static msgpack_object str_value(struct str s)
{
	if (!s.ptr)
		return value_nil();
	return str_is_utf8(s) ? value_text(s) : value_bytes(s);
}

static msgpack_object headers_value(struct arena *arena, const struct header_list *headers)
{
	size_t count = headers ? headers->count : 0;
	msgpack_object list = value_array(arena, (uint32_t)count);

	for (size_t i = 0; i < count; i++) {
		msgpack_object pair = value_array(arena, 2);

		pair.via.array.ptr[0] = str_value(headers->items[i].name);
		pair.via.array.ptr[1] = headers->items[i].value;
		list.via.array.ptr[i] = pair;
	}
	return list;
}

msgpack_object event_to_value(struct arena *arena, const struct event *event)
{
	const msgpack_object_kv members[] = {
		{value_text(STR("payload")), event->payload},
		{value_text(STR("headers")), headers_value(arena, event->headers)},
		{value_text(STR("id")), str_value(event->id)},
		{value_text(STR("type")), str_value(event->type)},
		{value_text(STR("channel")), str_value(event->channel)},
		{value_text(STR("key")), str_value(event->key)},
		{value_text(STR("time")), value_int(event->time_us)},
	};
	bool has_letter = !id_is_none(event->dead_letter);
	msgpack_object map = value_map(arena, ARRAY_LEN(members) + has_letter);

	memcpy(map.via.map.ptr, members, sizeof(members));
	if (has_letter)
		map.via.map.ptr[ARRAY_LEN(members)] =
			(msgpack_object_kv){value_text(STR("dead-letter")), value_bytes(arena_str(arena, id_str(&event->dead_letter)))};
	return map;
}

struct id engine_failed_letter(const struct instance *inst)
{
	const msgpack_object *member = value_get(&inst->failure_event, STR("dead-letter"));
	struct str bytes = member ? value_as_str(member) : STR_NONE;
	struct id id = ID_NONE;

	if (bytes.len == sizeof(id.bytes))
		memcpy(id.bytes, bytes.ptr, sizeof(id.bytes));
	return id;
}

/* False if the member is neither absent nor a string. */
static bool get_str(const msgpack_object *map, struct str name, struct str *out)
{
	const msgpack_object *member = value_get(map, name);

	if (!member || value_is_nil(member))
		return true;
	if (member->type != MSGPACK_OBJECT_STR && member->type != MSGPACK_OBJECT_BIN)
		return false;
	*out = value_as_str(member);
	if (!out->len)
		*out = STR("");
	return true;
}

static bool get_headers(struct arena *arena, const msgpack_object *list, struct header_list *out)
{
	if (!list || list->type != MSGPACK_OBJECT_ARRAY)
		return false;
	out->count = list->via.array.size;
	out->items = out->count ? arena_alloc(arena, out->count * sizeof(*out->items)) : NULL;
	for (size_t i = 0; i < out->count; i++) {
		const msgpack_object *pair = &list->via.array.ptr[i];

		if (pair->type != MSGPACK_OBJECT_ARRAY || pair->via.array.size != 2 ||
		    !value_as_str(&pair->via.array.ptr[0]).ptr)
			return false;
		out->items[i] = (struct header){value_as_str(&pair->via.array.ptr[0]),
						pair->via.array.ptr[1]};
	}
	return true;
}

enum result event_from_value(struct arena *arena, const msgpack_object *value, struct event *out,
			     struct error *err)
{
	const msgpack_object *payload = value_get(value, STR("payload"));
	const msgpack_object *time = value_get(value, STR("time"));
	struct header_list *headers = arena_zalloc(arena, sizeof(*headers));
	struct event event = {.headers = headers};

	if (!payload || !time || !value_as_int(time, &event.time_us) ||
	    !get_headers(arena, value_get(value, STR("headers")), headers) ||
	    !get_str(value, STR("id"), &event.id) || !get_str(value, STR("type"), &event.type) ||
	    !get_str(value, STR("channel"), &event.channel) ||
	    !get_str(value, STR("key"), &event.key))
		return error_set(err, RESULT_FATAL, CODE_RUNTIME_SNAPSHOT_INVALID,
				 "the message kept with the failed first step is damaged");
	event.payload = *payload;
	*out = event;
	return RESULT_OK;
}
