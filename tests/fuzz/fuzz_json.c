/* SPDX-License-Identifier: Apache-2.0 */
/* What the json codec takes it also writes, and reads back as the same value. */
#include "codecs/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	const struct value_limits limits = {
		.max_bytes = 1 << 20, .max_depth = 40, .max_values = 5000};
	const struct codec *codec = codec_find(STR("json"));
	struct buf out = BUF_INIT, again = BUF_INIT, print = BUF_INIT;
	msgpack_object value, back, copy;
	struct error err = ERROR_INIT;
	struct arena arena;
	enum result res;

	arena_init(&arena);
	res = codec->decode(&arena, str_make(bytes, len), &limits, &value, &err);
	if (res) {
		assert(res == RESULT_REJECT && err.code != CODE_NONE && err.text[0]);
	} else {
		res = value_json_read(&arena, str_make(bytes, len), true, &limits, &copy, &err);
		assert(!res && value_equal(&value, &copy));
		res = codec->encode(&value, &out, &err);
		assert(!res);
		res = codec->decode(&arena, buf_str(&out), &VALUE_LIMITS_DEFAULT, &back, &err);
		assert(!res && value_equal(&value, &back));
		res = codec->encode(&back, &again, &err);
		assert(!res && str_equal(buf_str(&out), buf_str(&again)));
		value_print(&value, len / 2, &print);
		assert(str_is_utf8(buf_str(&print)) && print.len <= len / 2 + 3);
	}
	buf_done(&out);
	buf_done(&again);
	buf_done(&print);
	arena_done(&arena);
	return 0;
}
