/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ISO 8601 texts. Amounts are added up in whole units with every sum checked; the one fraction is taken in billionths, so
 * that it is exact and cannot overflow.
 */
#include "base/iso8601.h"

#include "base/time.h"

#define BILLION INT64_C(1000000000)

struct duration_unit {
	char letter;
	int64_t seconds;
};

static const struct duration_unit date_units[] = {{'W', 604800}, {'D', 86400}};
static const struct duration_unit time_units[] = {{'H', 3600}, {'M', 60}, {'S', 1}};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits and perhaps a fraction; the fraction in billionths, digits below are cut. */
static bool take_amount(struct str *s, int64_t *whole, int64_t *billionths, bool *has_fraction)
{
	int64_t scale = BILLION / 10;
	size_t i = 0;

	*whole = *billionths = 0;
	*has_fraction = false;
	for (; i < s->len && is_digit(s->ptr[i]); i++)
		if (__builtin_mul_overflow(*whole, 10, whole) ||
		    __builtin_add_overflow(*whole, s->ptr[i] - '0', whole))
			return false;
	if (!i)
		return false;
	if (i < s->len && (s->ptr[i] == '.' || s->ptr[i] == ',')) {
		size_t start = ++i;

		for (; i < s->len && is_digit(s->ptr[i]); i++) {
			*billionths += (s->ptr[i] - '0') * scale;
			scale /= 10;
		}
		if (i == start)
			return false;
		*has_fraction = true;
	}
	*s = str_make(s->ptr + i, s->len - i);
	return true;
}

struct duration {
	int64_t per_second, total;
	bool has_fraction; /* nothing may follow it */
};

/* One half of a duration, before or behind the T: amounts with units, each at most once and in order. */
static bool take_units(struct str *s, const struct duration_unit *units, size_t count,
		       struct duration *sum, bool *any)
{
	size_t next = 0;

	*any = false;
	while (s->len && s->ptr[0] != 'T') {
		int64_t whole, billionths, amount;

		if (sum->has_fraction || !take_amount(s, &whole, &billionths, &sum->has_fraction) ||
		    !s->len)
			return false;
		while (next < count && units[next].letter != s->ptr[0])
			next++;
		if (next == count)
			return false;
		if (__builtin_mul_overflow(whole, units[next].seconds * sum->per_second, &amount) ||
		    __builtin_add_overflow(sum->total, amount, &sum->total))
			return false;
		/* At most a week of billionths: far from an overflow. */
		billionths *= units[next].seconds;
		if (__builtin_add_overflow(sum->total, billionths / (BILLION / sum->per_second),
					   &sum->total))
			return false;
		next++;
		*any = true;
		*s = str_make(s->ptr + 1, s->len - 1);
	}
	return true;
}

bool iso_duration_parse_in(struct str text, int64_t per_second, int64_t *out)
{
	struct duration sum = {.per_second = per_second};
	struct str s = text;
	bool any_date, any_time;

	if (!s.len || s.ptr[0] != 'P')
		return false;
	s = str_make(s.ptr + 1, s.len - 1);
	if (!take_units(&s, date_units, ARRAY_LEN(date_units), &sum, &any_date))
		return false;
	if (s.len) {
		s = str_make(s.ptr + 1, s.len - 1);
		if (sum.has_fraction ||
		    !take_units(&s, time_units, ARRAY_LEN(time_units), &sum, &any_time) ||
		    !any_time || s.len)
			return false;
	} else if (!any_date) {
		return false;
	}
	*out = sum.total;
	return true;
}

bool iso_duration_parse(struct str text, int64_t *us)
{
	return iso_duration_parse_in(text, US_PER_S, us);
}

bool iso_date_parse(struct str text, int64_t *wall_us)
{
	return time_parse(text, wall_us);
}

/* What stands before the next slash; the rest behind it, STR_NONE if there is none. */
static struct str take_part(struct str *rest)
{
	ptrdiff_t slash = str_find(*rest, '/');
	struct str part = *rest;

	if (slash < 0) {
		*rest = STR_NONE;
		return part;
	}
	*rest = str_make(part.ptr + slash + 1, part.len - (size_t)slash - 1);
	return str_make(part.ptr, (size_t)slash);
}

static bool parse_repeats(struct str part, int64_t *repeats)
{
	*repeats = -1;
	if (!part.len || part.ptr[0] != 'R')
		return false;
	if (part.len == 1)
		return true;
	return is_digit(part.ptr[1]) &&
	       str_to_int64(str_make(part.ptr + 1, part.len - 1), repeats) && *repeats > 0;
}

bool iso_cycle_parse(struct str text, struct iso_cycle *out)
{
	struct str rest = text;
	struct iso_cycle cycle = {.repeats = -1};
	struct str part;

	if (!parse_repeats(take_part(&rest), &cycle.repeats))
		return false;
	part = take_part(&rest);
	if (rest.ptr) {
		cycle.has_start = true;
		if (!iso_date_parse(part, &cycle.start_us))
			return false;
		part = take_part(&rest);
	}
	if (rest.ptr || !iso_duration_parse(part, &cycle.period_us) || cycle.period_us <= 0)
		return false;
	*out = cycle;
	return true;
}

/* A year or month among the units of a date. */
static bool has_no_length(struct str text)
{
	size_t i = text.len && text.ptr[0] == 'P' ? 1 : text.len;

	for (; i < text.len && text.ptr[i] != 'T'; i++)
		if (text.ptr[i] == 'Y' || text.ptr[i] == 'M')
			return true;
	return false;
}

const char *iso_duration_fault(struct str text)
{
	return has_no_length(text)
		       ? "months and years have no length; weeks, days, hours, minutes and seconds have"
		       : "a duration is like PT30S, PT1H30M or P7D";
}

const char *iso_date_fault(struct str text UNUSED)
{
	return "a date is like 2026-11-30T12:00:00Z, with Z or an offset";
}

const char *iso_cycle_fault(struct str text)
{
	struct str rest = text, part;
	struct iso_cycle cycle = {.repeats = -1};
	int64_t date;

	part = take_part(&rest);
	if (!parse_repeats(part, &cycle.repeats))
		return "a cycle begins with R/ or, with how often, like R3/";
	part = take_part(&rest);
	if (rest.ptr) {
		if (!iso_date_parse(part, &date))
			return "the start of a cycle is like 2026-11-30T12:00:00Z, with Z or an offset";
		part = take_part(&rest);
	}
	if (rest.ptr)
		return "a cycle is like R/PT1M, R3/PT10S or R3/2026-12-01T00:00:00Z/PT1H";
	if (!iso_duration_parse(part, &cycle.period_us))
		return iso_duration_fault(part);
	return "the period of a cycle is longer than nothing";
}
