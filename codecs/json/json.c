/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The json codec. Reader and writer are in src/value (json_read.c, json_write.c), where expressions can reach them.
 */
#include "codecs/registry.h"

static enum result codec_json_decode(struct arena *arena, struct str bytes,
				     const struct value_limits *limits, msgpack_object *out,
				     struct error *err)
{
	enum result res = codec_check_size(bytes, limits, err);

	if (res)
		return res;
	if (!bytes.ptr) {
		*out = value_nil();
		return RESULT_OK;
	}
	return value_json_read(arena, bytes, false, limits, out, err);
}

const struct codec codec_json = {
	.name = "json",
	.content_type = "application/json",
	.decode = codec_json_decode,
	.encode = value_json_write,
};
