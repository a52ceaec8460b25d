/* SPDX-License-Identifier: Apache-2.0 */
/* What the msgpack codec takes has the size told, and comes back the same from its packed form and from a copy. */
#include "codecs/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	const struct value_limits limits = {
		.max_bytes = 1 << 20, .max_depth = 40, .max_values = 5000};
	const struct codec *codec = codec_find(STR("msgpack"));
	struct buf out = BUF_INIT, print = BUF_INIT;
	msgpack_object value, back;
	struct error err = ERROR_INIT;
	struct arena arena, other;
	enum result res;

	arena_init(&arena);
	arena_init(&other);
	res = codec->decode(&arena, str_make(bytes, len), &limits, &value, &err);
	if (res) {
		assert(res == RESULT_REJECT && err.code != CODE_NONE && err.text[0]);
	} else {
		msgpack_object copy = value_copy(&other, &value);

		assert(value_equal(&value, &copy));
		value_print(&value, len, &print);
		assert(str_is_utf8(buf_str(&print)));
		arena_done(&arena);
		arena_init(&arena);
		res = codec->encode(&copy, &out, &err);
		assert(!res && out.len == value_size(&copy) && out.len <= len * 3 + 16);
		res = value_unpack(&arena, buf_str(&out), true, &limits, &back, &err);
		assert(!res && value_equal(&copy, &back));
	}
	buf_done(&out);
	buf_done(&print);
	arena_done(&arena);
	arena_done(&other);
	return 0;
}
