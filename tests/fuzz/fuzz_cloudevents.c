/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Envelopes: what is read as an event has its attributes, and is read back as the same event after writing.
 *
 * An input is one byte for mode (two bits) and style (the next), a line with the content type ('-' for none), lines
 * "name:value" of headers, an empty line, and the body ('-' alone for none).
 */
#include "codecs/cloudevents/cloudevents.h"

#define HEADERS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static struct str next_line(struct str *rest)
{
	ptrdiff_t end = str_find(*rest, '\n');
	struct str line = str_make(rest->ptr, end < 0 ? rest->len : (size_t)end);

	rest->ptr += line.len + (end >= 0);
	rest->len -= line.len + (end >= 0);
	return line;
}

/* Text where it is text, as the transports do. */
static msgpack_object header_value(struct str s)
{
	return str_is_utf8(s) ? value_text(s) : value_bytes(s);
}

static void read_lines(struct str *rest, struct header_list *headers)
{
	for (;;) {
		struct str line = next_line(rest);
		ptrdiff_t colon = str_find(line, ':');

		if (line.len == 0)
			break;
		/* "cloudEvents:id:7" has its colon inside the name. */
		if (str_starts_with(line, STR("cloudEvents:"))) {
			ptrdiff_t more = str_find(str_make(line.ptr + 12, line.len - 12), ':');

			colon = more < 0 ? -1 : more + 12;
		}
		if (colon < 0 || headers->count == HEADERS_MAX)
			continue;
		headers->items[headers->count++] = (struct header){
			str_make(line.ptr, (size_t)colon),
			header_value(str_make(line.ptr + colon + 1, line.len - (size_t)colon - 1))};
	}
}

static void write_back(struct arena *arena, enum cloudevents_style style,
		       const struct cloudevent *event)
{
	msgpack_object data = event->has_value ? event->value : value_bytes(event->data);
	const struct codec *codec = codec_find(event->has_value ? STR("json") : STR("bytes"));

	for (int mode = CLOUDEVENTS_BINARY; mode <= CLOUDEVENTS_STRUCTURED; mode++) {
		struct buf body = BUF_INIT;
		struct header_list headers;
		struct cloudevent back;
		struct error err = ERROR_INIT;
		struct str type;
		enum result res = cloudevents_write(arena, mode, style, event, &data, codec, &body,
						    &type, &headers, &err);

		assert(!res);
		res = cloudevents_read(arena, CLOUDEVENTS_AUTO, style, &headers, type,
				       buf_str(&body), &VALUE_LIMITS_DEFAULT, &back, &err);
		assert(!res && back.present);
		assert(str_equal(event->id, back.id) && str_equal(event->source, back.source) &&
		       str_equal(event->type, back.type) && str_equal(event->time, back.time) &&
		       str_equal(event->subject, back.subject));
		if (back.has_value)
			assert(event->has_value && value_equal(&back.value, &event->value));
		else if (!event->has_value)
			assert(str_equal(back.data, event->data));
		buf_done(&body);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	const struct value_limits limits = {
		.max_bytes = 1 << 20, .max_depth = 40, .max_values = 5000};
	struct header items[HEADERS_MAX];
	struct header_list headers = {items, 0};
	struct str rest = str_make(bytes, len), type;
	struct cloudevent event;
	struct error err = ERROR_INIT;
	struct arena arena;
	enum cloudevents_style style;
	enum result res;

	if (len == 0)
		return 0;
	rest.ptr++;
	rest.len--;
	style = bytes[0] & 4 ? CLOUDEVENTS_STYLE_AMQP : CLOUDEVENTS_STYLE_KAFKA;
	type = next_line(&rest);
	if (str_equal(type, STR("-")))
		type = STR_NONE;
	read_lines(&rest, &headers);
	if (str_equal(rest, STR("-")))
		rest = STR_NONE;

	arena_init(&arena);
	res = cloudevents_read(&arena, bytes[0] & 3, style, &headers, type, rest, &limits, &event,
			       &err);
	if (res) {
		assert(res == RESULT_REJECT && err.code != CODE_NONE && err.text[0]);
	} else if (event.present) {
		assert(event.id.len > 0 && event.source.len > 0 && event.type.len > 0);
		write_back(&arena, style, &event);
	} else {
		assert(str_equal(event.data, rest));
	}
	arena_done(&arena);
	return 0;
}
