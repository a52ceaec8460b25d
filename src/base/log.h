/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structured log: one line an event, on standard error, as JSON or as text (`log.format`).
 *
 * Log once, where the decision is taken; base, value, engine, codecs and store return errors instead. Every line
 * about a message carries delivery, instance, lane, stage and code.
 * Life cycle: log_configure once at start (before it: text, level info). Threads: any; a line is written by one write.
 */
#ifndef SUTRA_BASE_LOG_H
#define SUTRA_BASE_LOG_H

#include "base/attr.h"
#include "base/error.h"
#include "base/str.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* What a line is about; absent fields are left out. All borrowed for the call. */
struct log_about {
	const char *stage;
	struct str delivery; /* its identity, "kafka:orders/3/17" */
	struct str tenant;
	struct str channel;
	struct str instance;
	int lane; /* lane + 1; 0 = none */
	enum code code;
};

void log_configure(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);
/* `about` may be NULL. */
void log_write(enum log_level level, const struct log_about *about, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

#define log_debug(about, ...) \
	do { \
		if (log_enabled(LOG_LEVEL_DEBUG)) \
			log_write(LOG_LEVEL_DEBUG, about, __VA_ARGS__); \
	} while (0)
#define log_info(about, ...) log_write(LOG_LEVEL_INFO, about, __VA_ARGS__)
#define log_warning(about, ...) log_write(LOG_LEVEL_WARNING, about, __VA_ARGS__)
#define log_error(about, ...) log_write(LOG_LEVEL_ERROR, about, __VA_ARGS__)

/*
 * Redirects lines (without the newline) to `sink`, for tests and the simulator; NULL restores standard error.
 * @thread before any other thread runs.
 */
void log_redirect(void (*sink)(void *arg, struct str line), void *arg);

#endif
