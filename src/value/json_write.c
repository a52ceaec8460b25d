/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes values as JSON: for the codec and expressions strictly, for logs and admin pages leniently and cut.
 *
 * What was read comes back the same: keys in their order, integers in full, doubles in the shortest decimal form that
 * reads back the same bits and always with a point or an exponent, so that 1.0 does not turn into 1. The exceptions are
 * what JSON has no form for: BIN becomes a base64 string, NaN and infinities are refused.
 *
 * Shortest, not "%.17g": people read these numbers, and other programs compare them as text.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "value/walk.h"

/* Decimal exponents for which the plain notation is used; "%g" draws similar lines. */
#define PLAIN_EXPONENT_MIN (-5)
#define PLAIN_EXPONENT_MAX 16

struct writer {
	struct buf *out;
	size_t stop; /* strict: SIZE_MAX; lenient: the length at which the rest is not looked at any more */
	bool lenient;
	struct error *err;
};

/* A decimal number, digits * 10^exponent. */
struct decimal {
	uint64_t digits;
	int exponent;
};

/* Without a decimal point nothing depends on the locale. */
static double decimal_value(struct decimal d)
{
	char text[48];

	snprintf(text, sizeof(text), "%" PRIu64 "e%d", d.digits, d.exponent);
	return strtod(text, NULL);
}

/* The decimal with `precision` digits that is nearest to v > 0. */
static struct decimal decimal_nearest(double v, int precision)
{
	char text[48];
	struct decimal d = {0, 0};
	const char *p = text;

	/* One digit, the locale's point, the other digits, 'e', the exponent. */
	snprintf(text, sizeof(text), "%.*e", precision - 1, v);
	for (; *p != 'e'; p++)
		if (*p >= '0' && *p <= '9')
			d.digits = d.digits * 10 + (uint64_t)(*p - '0');
	d.exponent = (int)strtol(p + 1, NULL, 10) - (precision - 1);
	return d;
}

static struct decimal decimal_shortest(double v)
{
	int unused;
	/* Up to 15 digits survive any double that is normal; with zeros cut off, 15 give the shortest below it. */
	int precision = v < DBL_MIN ? 1 : DBL_DIG;
	/* Below a power of two doubles lie closer: the shortest form may be the nearest one's neighbour above. */
	bool uneven = frexp(v, &unused) == 0.5;

	for (;; precision++) {
		struct decimal d = decimal_nearest(v, precision);

		if (precision == DBL_DECIMAL_DIG || decimal_value(d) == v)
			return d;
		d.digits++;
		if (uneven && decimal_value(d) == v)
			return d;
	}
}

char *value_double_format(double v, char text[static VALUE_DOUBLE_SIZE])
{
	struct decimal d;
	char digits[24];
	int len, scientific;
	const char *sign = signbit(v) ? "-" : "";

	v = fabs(v);
	if (v < 1e15 && v == floor(v)) {
		snprintf(text, VALUE_DOUBLE_SIZE, "%s%" PRIu64 ".0", sign, (uint64_t)v);
		return text;
	}
	d = decimal_shortest(v);
	while (d.digits % 10 == 0) {
		d.digits /= 10;
		d.exponent++;
	}
	len = snprintf(digits, sizeof(digits), "%" PRIu64, d.digits);
	scientific = d.exponent + len - 1;
	if (scientific < PLAIN_EXPONENT_MIN || scientific > PLAIN_EXPONENT_MAX)
		snprintf(text, VALUE_DOUBLE_SIZE, "%s%c%s%se%+03d", sign, digits[0],
			 len > 1 ? "." : "", digits + 1, scientific);
	else if (d.exponent >= 0)
		snprintf(text, VALUE_DOUBLE_SIZE, "%s%s%.*s.0", sign, digits, d.exponent,
			 "0000000000000000");
	else if (scientific >= 0)
		snprintf(text, VALUE_DOUBLE_SIZE, "%s%.*s.%s", sign, scientific + 1, digits,
			 digits + scientific + 1);
	else
		snprintf(text, VALUE_DOUBLE_SIZE, "%s0.%.*s%s", sign, -scientific - 1, "0000",
			 digits);
	return text;
}

static enum result refuse(const struct writer *w, const char *what)
{
	return error_set(w->err, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED,
			 "JSON has no form for %s", what);
}

static enum result write_double(struct writer *w, double v)
{
	char text[VALUE_DOUBLE_SIZE];

	if (isfinite(v)) {
		buf_add_text(w->out, value_double_format(v, text));
		return RESULT_OK;
	}
	if (!w->lenient)
		return refuse(w, isnan(v) ? "NaN" : "an infinite number");
	buf_add_text(w->out, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
	return RESULT_OK;
}

/* What is cut off later need not be written: at least `stop - len` bytes come of as many input bytes. */
static struct str within_stop(const struct writer *w, struct str s)
{
	if (w->lenient && s.len > w->stop - w->out->len)
		s.len = w->stop - w->out->len;
	return s;
}

static enum result write_text(struct writer *w, struct str s)
{
	if (!w->lenient && !str_is_utf8(s))
		return refuse(w, "a string that is not UTF-8");
	buf_add_json(w->out, within_stop(w, s));
	return RESULT_OK;
}

static enum result write_scalar(struct writer *w, const msgpack_object *value)
{
	char text[24];

	switch (value->type) {
	case MSGPACK_OBJECT_NIL:
		buf_add_text(w->out, "null");
		return RESULT_OK;
	case MSGPACK_OBJECT_BOOLEAN:
		buf_add_text(w->out, value->via.boolean ? "true" : "false");
		return RESULT_OK;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		snprintf(text, sizeof(text), "%" PRIu64, value->via.u64);
		buf_add_text(w->out, text);
		return RESULT_OK;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		snprintf(text, sizeof(text), "%" PRId64, value->via.i64);
		buf_add_text(w->out, text);
		return RESULT_OK;
	case MSGPACK_OBJECT_FLOAT64:
		return write_double(w, value->via.f64);
	case MSGPACK_OBJECT_STR:
		return write_text(w, value_as_str(value));
	case MSGPACK_OBJECT_BIN:
		buf_add_byte(w->out, '"');
		base64_encode(within_stop(w, value_as_str(value)), w->out);
		buf_add_byte(w->out, '"');
		return RESULT_OK;
	default:
		assert(!"a type that values do not have");
		return RESULT_FATAL;
	}
}

/* One object: a scalar whole, of a container the opening bracket (and the other one if it is empty). */
static enum result write_head(struct writer *w, struct value_walk *stack,
			      const msgpack_object *value)
{
	bool is_map = value->type == MSGPACK_OBJECT_MAP;
	struct value_frame children;

	if (!is_map && value->type != MSGPACK_OBJECT_ARRAY)
		return write_scalar(w, value);
	children = value_children(value);
	if (children.first) {
		buf_add_byte(w->out, is_map ? '{' : '[');
		value_walk_push(stack, children);
	} else {
		buf_add_text(w->out, is_map ? "{}" : "[]");
	}
	return RESULT_OK;
}

static enum result write_tree(struct writer *w, struct value_walk *stack,
			      const msgpack_object *root)
{
	enum result res = write_head(w, stack, root);

	while (!res && stack->depth > 0 && w->out->len < w->stop) {
		struct value_frame *top = value_walk_top(stack);
		size_t index = (size_t)(top->next - top->first);

		if (top->next == top->end) {
			buf_add_byte(w->out, top->is_map ? '}' : ']');
			stack->depth--;
			continue;
		}
		if (index > 0)
			buf_add_byte(w->out, top->is_map && index % 2 == 1 ? ':' : ',');
		res = write_head(w, stack, top->next++);
	}
	return res;
}

static enum result write_value(struct writer *w, const msgpack_object *value)
{
	struct value_walk stack;
	enum result res;

	value_walk_init(&stack, NULL);
	res = write_tree(w, &stack, value);
	value_walk_done(&stack);
	return res;
}

enum result value_json_write(const msgpack_object *value, struct buf *out, struct error *err)
{
	struct writer w = {.out = out, .stop = SIZE_MAX, .lenient = false, .err = err};

	return write_value(&w, value);
}

void value_print(const msgpack_object *value, size_t max, struct buf *out)
{
	size_t limit = max < SIZE_MAX - 1 - out->len ? out->len + max : SIZE_MAX - 1;
	struct writer w = {.out = out, .stop = limit + 1, .lenient = true, .err = NULL};
	enum result res = write_value(&w, value);

	assert(!res); /* a lenient writer refuses nothing */
	if (out->len <= limit)
		return;
	/* Cut between characters. */
	while (limit > 0 && ((unsigned char)out->data[limit] & 0xc0) == 0x80)
		limit--;
	out->len = limit;
	buf_add_text(out, "…");
}
