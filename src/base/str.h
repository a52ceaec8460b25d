/* SPDX-License-Identifier: Apache-2.0 */
/*
 * String slices: a pointer and a length, never owning, not terminated, any bytes.
 *
 * Life cycle: none; a slice is valid as long as what it points into. An absent string is {NULL, 0}, an
 * empty one has a non-NULL pointer. Threads: pure functions.
 */
#ifndef SUTRA_BASE_STR_H
#define SUTRA_BASE_STR_H

#include <string.h>

#include "base/attr.h"

struct str {
	const char *ptr;
	size_t len;
};

#define STR_NONE ((struct str){NULL, 0})
/* A slice over a string literal. */
#define STR(lit) ((struct str){"" lit, sizeof(lit) - 1})
/* Arguments for a "%.*s" conversion; an absent string prints as nothing. */
#define STR_ARG(s) (int)(s).len, ((s).ptr ? (s).ptr : "")

/* Over a terminated string; NULL gives STR_NONE. Borrows `text`. */
static inline struct str str_of(const char *text)
{
	return text ? (struct str){text, strlen(text)} : STR_NONE;
}

static inline struct str str_make(const void *ptr, size_t len)
{
	return (struct str){ptr, len};
}

static inline bool str_equal(struct str a, struct str b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* ASCII case folded; for header names. */
bool str_equal_nocase(struct str a, struct str b);

/* Byte order, shorter first on a tie: <0, 0, >0. A total order. */
int str_compare(struct str a, struct str b);

bool str_starts_with(struct str s, struct str prefix);

/* Position of the first `byte`, or -1. */
ptrdiff_t str_find(struct str s, char byte);

/* True if `s` is well-formed UTF-8 (no surrogates, no overlong forms) of any length, NUL allowed. */
bool str_is_utf8(struct str s);
/* Length of the well-formed UTF-8 character that `s` begins with: 1 to 4, or 0 if there is none. */
size_t str_utf8_next(struct str s);

/* Decimal, optional sign, whole string, no spaces. False (and `*out` untouched) if not so or out of range. */
bool str_to_int64(struct str s, int64_t *out) MUST_CHECK;

/* Durations ("PT0.5S", "P7D") as iso_duration_parse takes them, in milliseconds; what is below is cut. */
bool str_to_duration_ms(struct str s, int64_t *out) MUST_CHECK;

#endif
