/* SPDX-License-Identifier: Apache-2.0 */
/* Packed headers: what is taken comes back the same, and can be looked up. */
#include "value/header.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct header_list headers, back;
	struct error err = ERROR_INIT;
	struct buf out = BUF_INIT;
	struct arena arena;
	enum result res;

	arena_init(&arena);
	res = headers_unpack(&arena, str_make(bytes, len), &headers, &err);
	if (res) {
		assert(res == RESULT_REJECT && err.code != CODE_NONE && err.text[0]);
	} else {
		headers_pack(&headers, &out);
		res = headers_unpack(&arena, buf_str(&out), &back, &err);
		assert(!res && back.count == headers.count);
		headers = headers_copy(&arena, &headers);
		/* Looking one up is linear; not all, or a long input would be quadratic. */
		for (size_t i = 0; i < headers.count && i < 20; i++) {
			struct str name = headers.items[i].name;

			assert(str_equal(name, back.items[i].name));
			assert(value_equal(&headers.items[i].value, &back.items[i].value));
			assert(header_find(&headers, name) >= &headers.items[i]);
			header_text(&arena, &headers, name);
		}
	}
	buf_done(&out);
	arena_done(&arena);
	return 0;
}
