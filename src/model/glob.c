/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of message types. Matching goes back only to the last `*`, so it cannot explode; overlap is a walk over pairs of
 * positions, each visited once. Matching steps by characters, so that `?` is one letter in any script;
 * overlap by bytes, which at worst finds two patterns too alike.
 */
#include "model/glob.h"

/* Bytes of the character at `at`; 1 for what is no UTF-8. */
static size_t step(struct str s, size_t at)
{
	size_t end = at + 1;

	while (end < s.len && ((unsigned char)s.ptr[end] & 0xc0) == 0x80)
		end++;
	return end - at;
}

static bool same(struct str a, size_t i, size_t a_len, struct str b, size_t j, size_t b_len)
{
	return a_len == b_len && memcmp(a.ptr + i, b.ptr + j, a_len) == 0;
}

bool glob_match(struct str pattern, struct str text)
{
	size_t p = 0, t = 0;
	ptrdiff_t star = -1; /* behind the last `*` */
	size_t mark = 0;     /* where the text stood then */

	while (t < text.len) {
		size_t t_len = step(text, t);

		if (p < pattern.len && pattern.ptr[p] == '*') {
			star = (ptrdiff_t)++p;
			mark = t;
			continue;
		}
		if (p < pattern.len) {
			size_t p_len = step(pattern, p);

			if (pattern.ptr[p] == '?' || same(pattern, p, p_len, text, t, t_len)) {
				p += pattern.ptr[p] == '?' ? 1 : p_len;
				t += t_len;
				continue;
			}
		}
		if (star < 0)
			return false;
		p = (size_t)star;
		mark += step(text, mark);
		t = mark;
	}
	while (p < pattern.len && pattern.ptr[p] == '*')
		p++;
	return p == pattern.len;
}

bool glob_overlap(struct str a, struct str b)
{
	/* fits[j]: a from i on and b from j on share a text; filled from the ends. */
	bool fits[GLOB_MAX + 1], next[GLOB_MAX + 1];

	assert(a.len <= GLOB_MAX && b.len <= GLOB_MAX);
	for (size_t i = a.len + 1; i-- > 0;) {
		for (size_t j = b.len + 1; j-- > 0;) {
			bool a_end = i == a.len, b_end = j == b.len;
			bool a_star = !a_end && a.ptr[i] == '*', b_star = !b_end && b.ptr[j] == '*';

			if (a_end && b_end)
				fits[j] = true;
			else if (a_star || b_star)
				/* The star ends here, or takes what the other has. */
				fits[j] = (a_star && (next[j] || (!b_end && fits[j + 1]))) ||
					  (b_star && (fits[j + 1] || (!a_end && next[j])));
			else if (a_end || b_end)
				fits[j] = false;
			else
				fits[j] = next[j + 1] && (a.ptr[i] == '?' || b.ptr[j] == '?' ||
							  a.ptr[i] == b.ptr[j]);
		}
		memcpy(next, fits, sizeof(next));
	}
	return fits[0];
}
