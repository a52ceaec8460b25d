/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON into an arena.
 *
 * On the path this stands in decode, behind the json codec and structured CloudEvents, and under json.decode of
 * expressions. jansson, which reads the small documents of the admin surface, cannot do it: its depth limit is a
 * constant of its build, it has no limit on the number of values, and it builds a whole tree of its own on the heap before
 * anything may look at it, so that a payload of small values costs fifty times its size before it can be refused. Here:
 *
 *   - no recursion: a stack of open containers, and one stack of finished values that each closing bracket moves into
 *     the arena as the run of elements of its container;
 *   - depth and number of values are checked as they grow, so a hostile body is refused at the limit and not at its end;
 *   - the text is RFC 8259 and nothing more: no comments, no byte order mark, no lone surrogates, no key twice;
 *   - a number is read without rounding that JSON does not ask for: integers exactly or not at all, doubles to the nearest.
 *     "-0" is the integer 0, there is no other; "-0.0" is the double.
 *
 * The whole text is checked to be UTF-8 first, so that strings without escapes can be handed out as they stand.
 */
#include <math.h>
#include <stdio.h>

#include "value/walk.h"

#include "base/alloc.h"

#define INLINE_ITEMS 64
#define INLINE_OPEN  32
/* A double is decided by at most 767 significant digits and whether anything but zeros follows them. */
#define DIGITS_MAX 800

/* A container whose closing bracket has not come yet. */
struct open {
	size_t base; /* where its elements begin among the items */
	bool is_map;
};

struct reader {
	const struct value_limits *limits;
	struct arena *arena;
	bool copy;
	const char *start;
	const char *at;
	const char *end;
	msgpack_object *items; /* finished values whose container is open */
	size_t item_count, item_cap;
	struct open *open;
	size_t open_count, open_cap;
	uint32_t values;
	struct error *err;
	msgpack_object inline_items[INLINE_ITEMS];
	struct open inline_open[INLINE_OPEN];
};

static enum result malformed(const struct reader *r, const char *what)
{
	return error_set(r->err, RESULT_REJECT, CODE_PARSE_JSON, "byte %zu: %s",
			 (size_t)(r->at - r->start), what);
}

static enum result no_memory(const struct reader *r)
{
	return error_set(r->err, RESULT_REJECT, CODE_PARSE_LIMIT,
			 "byte %zu: no memory for the value", (size_t)(r->at - r->start));
}

static void skip_space(struct reader *r)
{
	while (r->at < r->end &&
	       (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
		r->at++;
}

static bool is_digit(const struct reader *r, const char *at)
{
	return at < r->end && *at >= '0' && *at <= '9';
}

/* ---- Numbers ---- */

/* The parts of a number's text, all inside the input. */
struct number {
	bool negative;
	bool is_double;
	const char *integer, *integer_end;
	const char *fraction, *fraction_end;
	int64_t exponent; /* cut off far outside of what a double can have */
};

static enum result scan_number(struct reader *r, struct number *n)
{
	const char *p = r->at;

	*n = (struct number){.negative = *p == '-'};
	if (n->negative)
		p++;
	n->integer = p;
	if (!is_digit(r, p))
		return malformed(r, "a number has no digits");
	if (*p == '0' && is_digit(r, p + 1))
		return malformed(r, "a number begins with a zero too many");
	while (is_digit(r, p))
		p++;
	n->integer_end = n->fraction = n->fraction_end = p;
	if (p < r->end && *p == '.') {
		n->is_double = true;
		n->fraction = ++p;
		if (!is_digit(r, p))
			return malformed(r, "a number has no digits behind its point");
		while (is_digit(r, p))
			p++;
		n->fraction_end = p;
	}
	if (p < r->end && (*p == 'e' || *p == 'E')) {
		bool negative = false;

		n->is_double = true;
		p++;
		if (p < r->end && (*p == '+' || *p == '-'))
			negative = *p++ == '-';
		if (!is_digit(r, p))
			return malformed(r, "a number has no digits in its exponent");
		for (; is_digit(r, p); p++)
			if (n->exponent < INT64_C(100000000000000))
				n->exponent = n->exponent * 10 + (*p - '0');
		if (negative)
			n->exponent = -n->exponent;
	}
	r->at = p;
	return RESULT_OK;
}

static enum result number_to_int(const struct reader *r, const struct number *n,
				 msgpack_object *out)
{
	uint64_t most = n->negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
	uint64_t v = 0;

	for (const char *p = n->integer; p < n->integer_end; p++) {
		unsigned digit = (unsigned)(*p - '0');

		if (v > (most - digit) / 10)
			return error_set(r->err, RESULT_REJECT, CODE_PARSE_LIMIT,
					 "byte %zu: the integer does not fit 64 bits",
					 (size_t)(n->integer - r->start));
		v = v * 10 + digit;
	}
	*out = value_int(n->negative ? (int64_t)(0 - v) : (int64_t)v);
	return RESULT_OK;
}

/*
 * strtod gets the digits without their point and the exponent that makes up for it, for the point that it would take
 * depends on the locale.
 */
static enum result number_to_double(const struct reader *r, const struct number *n,
				    msgpack_object *out)
{
	char text[DIGITS_MAX + 40];
	size_t len = 0;
	int64_t exponent = n->exponent - (n->fraction_end - n->fraction);
	bool rest = false;

	for (const char *p = n->integer; p < n->fraction_end; p++) {
		if (*p == '.' || (len == 0 && *p == '0'))
			continue;
		if (len < DIGITS_MAX) {
			text[len++] = *p;
		} else {
			exponent++;
			rest |= *p != '0';
		}
	}
	if (rest) {
		text[len++] = '1';
		exponent--;
	}
	if (len == 0)
		text[len++] = '0';
	snprintf(text + len, sizeof(text) - len, "e%lld", (long long)exponent);

	double v = strtod(text, NULL);

	if (isinf(v))
		return error_set(r->err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "byte %zu: the number does not fit a double",
				 (size_t)(n->integer - r->start));
	*out = value_double(n->negative ? -v : v);
	return RESULT_OK;
}

static enum result read_number(struct reader *r, msgpack_object *out)
{
	struct number n;
	enum result res = scan_number(r, &n);

	if (res)
		return res;
	return n.is_double ? number_to_double(r, &n, out) : number_to_int(r, &n, out);
}

/* ---- Strings ---- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four hex digits behind "\u", which the reader stands on; -1 if there are none. */
static int32_t read_hex4(struct reader *r)
{
	int32_t v = 0;

	if (r->end - r->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = hex_value(r->at[i]);

		if (digit < 0)
			return -1;
		v = v << 4 | digit;
	}
	r->at += 4;
	return v;
}

static char *utf8_put(char *to, uint32_t c)
{
	if (c < 0x80) {
		*to++ = (char)c;
	} else if (c < 0x800) {
		*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*to++ = (char)(0xe0 | c >> 12);
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	} else {
		*to++ = (char)(0xf0 | c >> 18);
		*to++ = (char)(0x80 | (c >> 12 & 0x3f));
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	}
	return to;
}

/* The reader stands behind "\u". */
static enum result read_unicode_escape(struct reader *r, char **to)
{
	int32_t c = read_hex4(r);

	if (c < 0)
		return malformed(r, "\\u needs four hex digits");
	if (c >= 0xdc00 && c <= 0xdfff)
		return malformed(r, "a lone low surrogate");
	if (c >= 0xd800 && c <= 0xdbff) {
		if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
			return malformed(r, "a lone high surrogate");
		r->at += 2;
		int32_t low = read_hex4(r);

		if (low < 0xdc00 || low > 0xdfff)
			return malformed(r, "a lone high surrogate");
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	*to = utf8_put(*to, (uint32_t)c);
	return RESULT_OK;
}

/* The reader stands behind the backslash. */
static enum result read_escape(struct reader *r, char **to)
{
	static const char from[] = "\"\\/bfnrt";
	static const char into[] = "\"\\/\b\f\n\r\t";
	char c = r->at < r->end ? *r->at : '\0';
	const char *found;

	if (c == 'u') {
		r->at++;
		return read_unicode_escape(r, to);
	}
	found = c ? strchr(from, c) : NULL;
	if (!found)
		return malformed(r, "an unknown escape");
	r->at++;
	*(*to)++ = into[found - from];
	return RESULT_OK;
}

/* Moves the reader to the closing quote. `*escaped` says whether there is anything to undo. */
static enum result scan_string(struct reader *r, bool *escaped)
{
	*escaped = false;
	for (; r->at < r->end; r->at++) {
		unsigned char c = (unsigned char)*r->at;

		if (c == '"')
			return RESULT_OK;
		if (c < 0x20)
			return malformed(r, "a control character in a string");
		if (c == '\\') {
			*escaped = true;
			if (++r->at == r->end)
				break;
		}
	}
	return malformed(r, "the text ends inside a string");
}

/* The reader stands on the opening quote and is left behind the closing one. */
static enum result read_string(struct reader *r, msgpack_object *out)
{
	const char *begin = ++r->at;
	bool escaped;
	enum result res = scan_string(r, &escaped);
	size_t len = (size_t)(r->at - begin);

	if (res)
		return res;
	if (len > UINT32_MAX)
		return error_set(r->err, RESULT_REJECT, CODE_PARSE_LIMIT, "a string of %zu bytes",
				 len);
	if (!escaped && !r->copy) {
		r->at++;
		*out = value_text(str_make(begin, len));
		return RESULT_OK;
	}

	/* No escape is shorter than what it stands for. */
	const char *end = r->at;
	char *own = arena_try_alloc(r->arena, len + 1);
	char *to = own;

	if (!own)
		return no_memory(r);
	for (r->at = begin; r->at < end;) {
		const char *escape = memchr(r->at, '\\', (size_t)(end - r->at));
		size_t plain = (size_t)((escape ? escape : end) - r->at);

		memcpy(to, r->at, plain);
		to += plain;
		r->at += plain;
		if (!escape)
			break;
		r->at++;
		res = read_escape(r, &to);
		if (res)
			return res;
	}
	*to = '\0';
	r->at = end + 1;
	*out = value_text(str_make(own, (size_t)(to - own)));
	return RESULT_OK;
}

/* ---- Values ---- */

static enum result read_word(struct reader *r, struct str word, msgpack_object value,
			     msgpack_object *out)
{
	if ((size_t)(r->end - r->at) < word.len || memcmp(r->at, word.ptr, word.len) != 0)
		return malformed(r, "no value begins like this");
	r->at += word.len;
	*out = value;
	return RESULT_OK;
}

static enum result read_scalar(struct reader *r, msgpack_object *out)
{
	switch (*r->at) {
	case '"':
		return read_string(r, out);
	case 't':
		return read_word(r, STR("true"), value_bool(true), out);
	case 'f':
		return read_word(r, STR("false"), value_bool(false), out);
	case 'n':
		return read_word(r, STR("null"), value_nil(), out);
	case '-':
	case '0' ... '9':
		return read_number(r, out);
	default:
		return malformed(r, "no value begins like this");
	}
}

/* An array that begins inline, twice as long; NULL if the system refuses, and then the old one still stands. */
static void *grown(void *items, const void *inline_items, size_t *cap, size_t size)
{
	bool first = items == inline_items;
	void *bigger = realloc(first ? NULL : items, *cap * 2 * size);

	if (!bigger)
		return NULL;
	if (first)
		memcpy(bigger, inline_items, *cap * size);
	*cap *= 2;
	return bigger;
}

static enum result push_item(struct reader *r, const msgpack_object *item)
{
	if (r->open_count > 0 && r->values++ >= r->limits->max_values)
		return error_set(r->err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "byte %zu: there are over %u values", (size_t)(r->at - r->start),
				 r->limits->max_values);
	if (r->item_count == r->item_cap) {
		void *items = grown(r->items, r->inline_items, &r->item_cap, sizeof(*r->items));

		if (!items)
			return no_memory(r);
		r->items = items;
	}
	r->items[r->item_count++] = *item;
	return RESULT_OK;
}

/* The reader stands on the bracket. */
static enum result open_container(struct reader *r)
{
	if (r->open_count >= r->limits->max_depth)
		return error_set(r->err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "byte %zu: containers are nested over %u deep",
				 (size_t)(r->at - r->start), r->limits->max_depth);
	if (r->open_count == r->open_cap) {
		void *open = grown(r->open, r->inline_open, &r->open_cap, sizeof(*r->open));

		if (!open)
			return no_memory(r);
		r->open = open;
	}
	r->open[r->open_count++] = (struct open){r->item_count, *r->at == '{'};
	r->at++;
	return RESULT_OK;
}

/* The reader stands behind the closing bracket. The elements become one item. */
static enum result close_container(struct reader *r)
{
	struct open done = r->open[--r->open_count];
	size_t count = r->item_count - done.base;
	msgpack_object container;
	void *run = NULL;

	if (count > 0) {
		run = arena_try_alloc(r->arena, count * sizeof(*r->items));
		if (!run)
			return no_memory(r);
		memcpy(run, &r->items[done.base], count * sizeof(*r->items));
	}
	if (done.is_map) {
		struct str duplicate;

		if (!value_keys_unique(run, (uint32_t)(count / 2), &duplicate))
			return value_duplicate_error(duplicate, r->err);
		container = (msgpack_object){.type = MSGPACK_OBJECT_MAP,
					     .via.map = {(uint32_t)(count / 2), run}};
	} else {
		container = (msgpack_object){.type = MSGPACK_OBJECT_ARRAY,
					     .via.array = {(uint32_t)count, run}};
	}
	r->item_count = done.base;
	return push_item(r, &container);
}

static enum result read_key(struct reader *r)
{
	msgpack_object key;
	enum result res;

	skip_space(r);
	if (r->at == r->end || *r->at != '"')
		return malformed(r, "a key should stand here");
	res = read_string(r, &key);
	if (!res)
		res = push_item(r, &key);
	if (res)
		return res;
	skip_space(r);
	if (r->at == r->end || *r->at != ':')
		return malformed(r, "a colon should stand behind the key");
	r->at++;
	return RESULT_OK;
}

/* What may follow a bracket: the other bracket (then `*empty`), or the first element, whose key is read here. */
static enum result begin_container(struct reader *r, bool *empty)
{
	enum result res = open_container(r);
	bool is_map;

	if (res)
		return res;
	is_map = r->open[r->open_count - 1].is_map;
	skip_space(r);
	*empty = r->at < r->end && *r->at == (is_map ? '}' : ']');
	if (*empty) {
		r->at++;
		return close_container(r);
	}
	return is_map ? read_key(r) : RESULT_OK;
}

/* Behind a finished value: closes what ends here, up to the comma before the next value or the end of the outermost. */
static enum result finish_value(struct reader *r)
{
	while (r->open_count > 0) {
		bool is_map = r->open[r->open_count - 1].is_map;
		enum result res;

		skip_space(r);
		if (r->at == r->end)
			return malformed(r, "the text ends inside a container");
		if (*r->at == ',') {
			r->at++;
			return is_map ? read_key(r) : RESULT_OK;
		}
		if (*r->at != (is_map ? '}' : ']'))
			return malformed(r, "a comma or the closing bracket should stand here");
		r->at++;
		res = close_container(r);
		if (res)
			return res;
	}
	return RESULT_OK;
}

static enum result read_text(struct reader *r)
{
	do {
		bool finished = true;
		enum result res;

		skip_space(r);
		if (r->at == r->end)
			return malformed(r, "the text ends where a value should stand");
		if (*r->at == '[' || *r->at == '{') {
			res = begin_container(r, &finished);
		} else {
			msgpack_object item;

			res = read_scalar(r, &item);
			if (!res)
				res = push_item(r, &item);
		}
		if (!res && finished)
			res = finish_value(r);
		if (res)
			return res;
	} while (r->open_count > 0);

	skip_space(r);
	if (r->at != r->end)
		return malformed(r, "there is more behind the value");
	return RESULT_OK;
}

enum result value_json_read(struct arena *arena, struct str bytes, bool copy,
			    const struct value_limits *limits, msgpack_object *out,
			    struct error *err)
{
	struct reader r;
	enum result res;

	if (bytes.len > limits->max_bytes)
		return error_set(err, RESULT_REJECT, CODE_PARSE_LIMIT,
				 "%zu bytes are over the limit of %zu", bytes.len,
				 limits->max_bytes);
	if (str_starts_with(bytes, STR("\xef\xbb\xbf")))
		return error_set(err, RESULT_REJECT, CODE_PARSE_JSON,
				 "the text begins with a byte order mark");
	if (!str_is_utf8(bytes))
		return error_set(err, RESULT_REJECT, CODE_PARSE_JSON, "the text is not UTF-8");

	/* Field by field: the inline arrays need not be cleared for every message. */
	r.limits = limits;
	r.arena = arena;
	r.copy = copy;
	r.start = r.at = bytes.ptr ? bytes.ptr : "";
	r.end = r.start + bytes.len;
	r.items = r.inline_items;
	r.item_count = 0;
	r.item_cap = INLINE_ITEMS;
	r.open = r.inline_open;
	r.open_count = 0;
	r.open_cap = INLINE_OPEN;
	r.values = 0;
	r.err = err;
	res = read_text(&r);
	if (!res)
		*out = r.items[0];
	if (r.items != r.inline_items)
		free(r.items);
	if (r.open != r.inline_open)
		free(r.open);
	return res;
}
