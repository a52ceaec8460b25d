/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 both ways. Strict: one text for one sequence of bytes, so that what was read is written back the same. */
#include "value/value.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct str bytes, struct buf *out)
{
	size_t size = (bytes.len + 2) / 3 * 4;
	const unsigned char *in = (const unsigned char *)bytes.ptr;
	char *to = buf_reserve(out, size + 1);
	size_t left = bytes.len;

	for (; left >= 3; left -= 3, in += 3) {
		*to++ = alphabet[in[0] >> 2];
		*to++ = alphabet[(in[0] & 3) << 4 | in[1] >> 4];
		*to++ = alphabet[(in[1] & 15) << 2 | in[2] >> 6];
		*to++ = alphabet[in[2] & 63];
	}
	if (left > 0) {
		unsigned second = left == 2 ? in[1] : 0;

		*to++ = alphabet[in[0] >> 2];
		*to++ = alphabet[(in[0] & 3) << 4 | second >> 4];
		*to++ = left == 2 ? alphabet[(second & 15) << 2] : '=';
		*to++ = '=';
	}
	out->len += size;
	*to = '\0';
}

static int digit_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct arena *arena, struct str text, struct str *out)
{
	size_t pad = 0;

	if (text.len % 4 != 0)
		return false;
	while (pad < 2 && pad < text.len && text.ptr[text.len - 1 - pad] == '=')
		pad++;

	size_t size = text.len / 4 * 3 - pad;
	char *bytes = arena_try_alloc(arena, size + 1);
	size_t made = 0;
	uint32_t bits = 0;

	if (!bytes)
		return false;
	for (size_t i = 0; i < text.len - pad; i++) {
		int digit = digit_value(text.ptr[i]);

		if (digit < 0)
			return false;
		bits = bits << 6 | (uint32_t)digit;
		if (i % 4 != 0)
			bytes[made++] = (char)(bits >> (6 - 2 * (i % 4)) & 0xff);
	}
	/* The bits that padding leaves over must be zero. */
	if ((pad == 1 && (bits & 3)) || (pad == 2 && (bits & 15)))
		return false;
	assert(made == size);
	bytes[size] = '\0';
	*out = str_make(bytes, size);
	return true;
}
