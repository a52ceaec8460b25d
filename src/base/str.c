/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices: comparison, UTF-8, and the two texts that every part reads, integers and (iso8601.c) durations. Nothing here depends on
 * the locale.
 */
#include "base/str.h"

#include "base/iso8601.h"

static unsigned char fold(char c)
{
	unsigned char byte = (unsigned char)c;

	return byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;
}

bool str_equal_nocase(struct str a, struct str b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++)
		if (fold(a.ptr[i]) != fold(b.ptr[i]))
			return false;
	return true;
}

int str_compare(struct str a, struct str b)
{
	size_t common = a.len < b.len ? a.len : b.len;
	int order = common ? memcmp(a.ptr, b.ptr, common) : 0;

	if (order)
		return order < 0 ? -1 : 1;
	return (a.len > b.len) - (a.len < b.len);
}

bool str_starts_with(struct str s, struct str prefix)
{
	return s.len >= prefix.len && str_equal(str_make(s.ptr, prefix.len), prefix);
}

ptrdiff_t str_find(struct str s, char byte)
{
	const char *at = s.len ? memchr(s.ptr, byte, s.len) : NULL;

	return at ? at - s.ptr : -1;
}

size_t str_utf8_next(struct str s)
{
	const unsigned char *p = (const unsigned char *)s.ptr;
	unsigned char low = 0x80, high = 0xbf;
	size_t need;

	if (!s.len)
		return 0;
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		need = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		need = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		need = 4;
	else
		return 0;
	if (s.len < need)
		return 0;
	/* The second byte decides over overlong forms, surrogates and what lies past U+10FFFF. */
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < need; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return need;
}

/* How many bytes at the beginning, in words of eight, are ASCII: nearly all texts are, all through. */
static size_t ascii_words(struct str s)
{
	size_t at = 0;
	uint64_t word;

	for (; s.len - at >= sizeof(word); at += sizeof(word)) {
		memcpy(&word, s.ptr + at, sizeof(word));
		if (word & UINT64_C(0x8080808080808080))
			break;
	}
	return at;
}

bool str_is_utf8(struct str s)
{
	while (s.len) {
		size_t step = ascii_words(s);

		if (!step)
			step = (unsigned char)s.ptr[0] < 0x80 ? 1 : str_utf8_next(s);
		if (!step)
			return false;
		s = str_make(s.ptr + step, s.len - step);
	}
	return true;
}

bool str_to_int64(struct str s, int64_t *out)
{
	bool negative = s.len && s.ptr[0] == '-';
	size_t i = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+') ? 1 : 0;
	int64_t value = 0;

	if (i == s.len)
		return false;
	/* Counted on the negative side, which is the longer one. */
	for (; i < s.len; i++) {
		if (s.ptr[i] < '0' || s.ptr[i] > '9' || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_sub_overflow(value, s.ptr[i] - '0', &value))
			return false;
	}
	if (!negative && __builtin_sub_overflow(0, value, &value))
		return false;
	*out = value;
	return true;
}

bool str_to_duration_ms(struct str s, int64_t *out)
{
	return iso_duration_parse_in(s, 1000, out);
}
