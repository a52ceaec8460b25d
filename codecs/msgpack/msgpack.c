/* SPDX-License-Identifier: Apache-2.0 */
/* The msgpack codec: the values' own form. */
#include "codecs/registry.h"

static enum result codec_msgpack_decode(struct arena *arena, struct str bytes,
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
	return value_unpack(arena, bytes, false, limits, out, err);
}

static enum result codec_msgpack_encode(const msgpack_object *value, struct buf *out,
					struct error *err UNUSED)
{
	value_pack(value, out);
	return RESULT_OK;
}

const struct codec codec_msgpack = {
	.name = "msgpack",
	.content_type = "application/msgpack",
	.decode = codec_msgpack_decode,
	.encode = codec_msgpack_encode,
};
