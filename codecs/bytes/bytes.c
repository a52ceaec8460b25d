/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes codec: a body is one byte string, whatever it holds. Strings are written too, nil as no bytes. */
#include "codecs/registry.h"

static enum result codec_bytes_decode(struct arena *arena UNUSED, struct str bytes,
				      const struct value_limits *limits, msgpack_object *out,
				      struct error *err)
{
	enum result res = codec_check_size(bytes, limits, err);

	if (res)
		return res;
	*out = bytes.ptr ? value_bytes(bytes) : value_nil();
	return RESULT_OK;
}

static enum result codec_bytes_encode(const msgpack_object *value, struct buf *out,
				      struct error *err)
{
	if (value->type != MSGPACK_OBJECT_BIN && value->type != MSGPACK_OBJECT_STR &&
	    !value_is_nil(value))
		return error_set(err, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED,
				 "the bytes codec writes strings and byte strings only");
	buf_add_str(out, value_as_str(value));
	return RESULT_OK;
}

const struct codec codec_bytes = {
	.name = "bytes",
	.content_type = "application/octet-stream",
	.decode = codec_bytes_decode,
	.encode = codec_bytes_encode,
};
