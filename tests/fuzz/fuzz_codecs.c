/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every codec: what it reads it writes again, and reads back the same. The first byte chooses the codec; json and msgpack have
 * targets of their own as well, which know more of them.
 */
#include "codecs/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	const struct value_limits limits = {
		.max_bytes = 1 << 16, .max_depth = 40, .max_values = 5000};
	const struct codec *codec;
	struct buf out = BUF_INIT;
	struct error err = ERROR_INIT;
	msgpack_object value, back;
	struct arena arena;
	size_t count = 0;
	enum result res;

	while (codec_at(count))
		count++;
	if (len == 0)
		return 0;
	codec = codec_at(bytes[0] % count);
	arena_init(&arena);
	res = codec->decode(&arena, str_make(bytes + 1, len - 1), &limits, &value, &err);
	if (res) {
		assert(res == RESULT_REJECT && err.code != CODE_NONE && err.text[0]);
	} else if (codec->encode(&value, &out, &err) == RESULT_OK) {
		res = codec->decode(&arena, buf_str(&out), &limits, &back, &err);
		assert(!res && value_equal(&value, &back));
	} else {
		assert(err.code == CODE_OUTBOUND_ENCODE_FAILED && err.text[0]);
	}
	buf_done(&out);
	arena_done(&arena);
	return 0;
}
