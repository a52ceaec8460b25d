/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of timers, as ISO 8601 has them: durations, dates, repetitions. Microseconds throughout. Pure functions: each is
 * false, with `*out` untouched, if the whole text is not one of these; iso_fault says what is wrong with it.
 */
#ifndef SUTRA_BASE_ISO8601_H
#define SUTRA_BASE_ISO8601_H

#include "base/attr.h"
#include "base/str.h"

/* 9999-12-31T23:59:59.999999Z: the last time that has a text; nothing is due later. */
#define ISO_LAST_US INT64_C(253402300799999999)

/*
 * "P7D", "PT1H30M", "PT0.5S", "P1W": weeks, days, hours, minutes, seconds, in that order and each at most once; the last may
 * have a fraction, of which more than nine digits and what is below a microsecond are cut. Zero is a duration. Months and
 * years are none: they have no length.
 */
bool iso_duration_parse(struct str text, int64_t *us) MUST_CHECK;
/* The same in units of which a second has `per_second`, 1 to 1 000 000 000. */
bool iso_duration_parse_in(struct str text, int64_t per_second, int64_t *out) MUST_CHECK;

/* A day and a time with an offset: "2026-11-30T12:00:00Z", as time_parse. */
bool iso_date_parse(struct str text, int64_t *wall_us) MUST_CHECK;

struct iso_cycle {
	int64_t repeats; /* how often in all, at least 1; -1 = without end */
	bool has_start;
	int64_t start_us; /* the first time; 0 without a start */
	int64_t period_us; /* > 0 */
};

/* "R/PT1M", "R3/PT10S", "R3/2026-12-01T00:00:00Z/PT1H". */
bool iso_cycle_parse(struct str text, struct iso_cycle *out) MUST_CHECK;

/* Why a text is no duration, date or cycle, in words that follow "…: "; for one that is, they say nothing useful. */
const char *iso_duration_fault(struct str text);
const char *iso_date_fault(struct str text);
const char *iso_cycle_fault(struct str text);

#endif
