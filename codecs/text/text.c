/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text codec: a body is one string of UTF-8.
 *
 * Numbers and truth values are written as JSON writes them, nil as the empty text; what has structure or may be no text
 * (lists, maps, byte strings) is refused rather than turned into something that its reader would have to guess.
 */
#include "codecs/registry.h"

static enum result codec_text_decode(struct arena *arena UNUSED, struct str bytes,
				     const struct value_limits *limits, msgpack_object *out,
				     struct error *err)
{
	enum result res = codec_check_size(bytes, limits, err);

	if (res)
		return res;
	if (!str_is_utf8(bytes))
		return error_set(err, RESULT_REJECT, CODE_PARSE_TEXT, "the text is not UTF-8");
	*out = bytes.ptr ? value_text(bytes) : value_nil();
	return RESULT_OK;
}

static enum result codec_text_encode(const msgpack_object *value, struct buf *out,
				     struct error *err)
{
	switch (value->type) {
	case MSGPACK_OBJECT_NIL:
		return RESULT_OK;
	case MSGPACK_OBJECT_STR:
		if (!str_is_utf8(value_as_str(value)))
			return error_set(err, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED,
					 "the text codec cannot write a string that is not UTF-8");
		buf_add_str(out, value_as_str(value));
		return RESULT_OK;
	case MSGPACK_OBJECT_ARRAY:
	case MSGPACK_OBJECT_MAP:
	case MSGPACK_OBJECT_BIN:
		return error_set(err, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED,
				 "the text codec cannot write a %s",
				 value->type == MSGPACK_OBJECT_MAP     ? "map"
				 : value->type == MSGPACK_OBJECT_ARRAY ? "list"
								       : "byte string");
	default:
		return value_json_write(value, out, err);
	}
}

const struct codec codec_text = {
	.name = "text",
	.content_type = "text/plain; charset=utf-8",
	.decode = codec_text_decode,
	.encode = codec_text_encode,
};
