/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks, chance and the texts of times. Calendar arithmetic is done here on days since 1970 (proleptic Gregorian,
 * years 1 to 9999), since gmtime and timegm depend on the time zone files and on the width of time_t.
 */
#include "base/time.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define DAY_S INT64_C(86400)
#define FIRST_S INT64_C(-62135596800) /* 0001-01-01T00:00:00Z */
#define LAST_S  INT64_C(253402300799)  /* 9999-12-31T23:59:59Z */

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now) != 0)
		return -1;
	return (int64_t)now.tv_sec * US_PER_S + now.tv_nsec / 1000;
}

int64_t time_monotonic_us(void)
{
	int64_t now = -1;

#ifdef CLOCK_BOOTTIME
	now = clock_us(CLOCK_BOOTTIME);
#endif
	return now >= 0 ? now : clock_us(CLOCK_MONOTONIC);
}

int64_t time_wall_us(void)
{
	return clock_us(CLOCK_REALTIME);
}

uint64_t time_random(void)
{
	uint64_t value;

	/* Up to 256 bytes come whole or not at all, and are interrupted only before the pool is ready. */
	while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value))
		if (errno != EINTR)
			abort();
	return value;
}

/* Years begin in March here, so that the leap day is the last of its year; an era has 400 of them. */
static int64_t days_of_date(int64_t year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

static void date_of_days(int64_t days, int64_t *year, int *month, int *day)
{
	int64_t shifted = days + 719468;
	int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
	int64_t day_of_era = shifted - era * 146097;
	int64_t year_of_era =
		(day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64_t shifted_month = (5 * day_of_year + 2) / 153;

	*day = (int)(day_of_year - (153 * shifted_month + 2) / 5 + 1);
	*month = (int)(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
	*year = year_of_era + era * 400 + (*month <= 2);
}

char *time_format(int64_t wall_us, char text[static TIME_TEXT_SIZE])
{
	int64_t seconds = wall_us / US_PER_S, fraction = wall_us % US_PER_S, days, rest, year;
	int month, day, len;

	if (fraction < 0) {
		fraction += US_PER_S;
		seconds--;
	}
	days = seconds / DAY_S;
	rest = seconds % DAY_S;
	if (rest < 0) {
		rest += DAY_S;
		days--;
	}
	date_of_days(days, &year, &month, &day);
	len = snprintf(text, TIME_TEXT_SIZE, "%04lld-%02d-%02dT%02d:%02d:%02d", (long long)year, month, day,
		       (int)(rest / 3600), (int)(rest / 60 % 60), (int)(rest % 60));
	if (fraction)
		snprintf(text + len, TIME_TEXT_SIZE - (size_t)len, ".%06dZ", (int)fraction);
	else
		snprintf(text + len, TIME_TEXT_SIZE - (size_t)len, "Z");
	return text;
}

/* Takes `width` digits and, if `after` is not NUL, that byte behind them. */
static bool take_number(struct str *s, size_t width, char after, int *out)
{
	size_t need = width + (after ? 1 : 0);
	int value = 0;

	if (s->len < need || (after && s->ptr[width] != after))
		return false;
	for (size_t i = 0; i < width; i++) {
		if (s->ptr[i] < '0' || s->ptr[i] > '9')
			return false;
		value = value * 10 + (s->ptr[i] - '0');
	}
	*s = str_make(s->ptr + need, s->len - need);
	*out = value;
	return true;
}

/* ".5", ".123456789": microseconds, digits below are cut. */
static bool take_fraction(struct str *s, int64_t *us)
{
	int64_t scale = US_PER_S / 10;
	size_t i = 1;

	*us = 0;
	if (!s->len || s->ptr[0] != '.')
		return true;
	for (; i < s->len && s->ptr[i] >= '0' && s->ptr[i] <= '9'; i++) {
		*us += (s->ptr[i] - '0') * scale;
		scale /= 10;
	}
	if (i == 1)
		return false;
	*s = str_make(s->ptr + i, s->len - i);
	return true;
}

static bool take_offset(struct str *s, int64_t *offset_s)
{
	int hour, minute, sign;

	if (s->len == 1 && (s->ptr[0] == 'Z' || s->ptr[0] == 'z')) {
		*s = str_make(s->ptr + 1, 0);
		*offset_s = 0;
		return true;
	}
	if (!s->len || (s->ptr[0] != '+' && s->ptr[0] != '-'))
		return false;
	sign = s->ptr[0] == '-' ? -1 : 1;
	*s = str_make(s->ptr + 1, s->len - 1);
	if (!take_number(s, 2, ':', &hour) || !take_number(s, 2, '\0', &minute) || hour > 23 || minute > 59)
		return false;
	*offset_s = sign * (hour * 3600 + minute * 60);
	return true;
}

static int days_in_month(int year, int month)
{
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	if (month == 2)
		return leap ? 29 : 28;
	return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

bool time_parse(struct str text, int64_t *wall_us)
{
	int year, month, day, hour, minute, second;
	int64_t fraction_us, offset_s, wall_s;
	struct str s = text;

	if (!take_number(&s, 4, '-', &year) || !take_number(&s, 2, '-', &month) ||
	    !take_number(&s, 2, '\0', &day))
		return false;
	if (!s.len || (s.ptr[0] != 'T' && s.ptr[0] != 't' && s.ptr[0] != ' '))
		return false;
	s = str_make(s.ptr + 1, s.len - 1);
	if (!take_number(&s, 2, ':', &hour) || !take_number(&s, 2, ':', &minute) ||
	    !take_number(&s, 2, '\0', &second) || !take_fraction(&s, &fraction_us) ||
	    !take_offset(&s, &offset_s) || s.len)
		return false;
	if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) || hour > 23 ||
	    minute > 59 || second > 60)
		return false;
	wall_s = days_of_date(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second - offset_s;
	/* An offset or a leap second may lead out of the years that a text can say. */
	if (wall_s < FIRST_S || wall_s > LAST_S)
		return false;
	*wall_us = wall_s * US_PER_S + fraction_us;
	return true;
}
