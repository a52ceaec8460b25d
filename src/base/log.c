/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log. A line is built whole and leaves by one write, so that lines of several threads and processes never mix.
 * What a message brought (ids, keys, texts of libraries) may hold anything: it leaves escaped, in both forms, so that
 * it can neither forge a line nor steer a terminal.
 *
 * Standard error that is full or gone must not stop the service: what cannot be written is dropped.
 */
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/time.h"

static _Atomic int log_level = LOG_LEVEL_INFO;
static _Atomic int log_format = LOG_FORMAT_TEXT;
static void (*log_sink)(void *arg, struct str line);
static void *log_sink_arg;

void log_configure(enum log_level level, enum log_format format)
{
	atomic_store(&log_level, (int)level);
	atomic_store(&log_format, (int)format);
}

bool log_enabled(enum log_level level)
{
	return (int)level >= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void log_redirect(void (*sink)(void *arg, struct str line), void *arg)
{
	log_sink = sink;
	log_sink_arg = arg;
}

static const char *level_text(enum log_level level)
{
	switch (level) {
	case LOG_LEVEL_DEBUG:
		return "debug";
	case LOG_LEVEL_INFO:
		return "info";
	case LOG_LEVEL_WARNING:
		return "warning";
	case LOG_LEVEL_ERROR:
		return "error";
	}
	return "error";
}

/* Text for people: as it is, but for control bytes and what is not UTF-8. */
static void add_readable(struct buf *line, struct str s)
{
	while (s.len) {
		size_t step = str_utf8_next(s);
		unsigned char byte = (unsigned char)s.ptr[0];

		if (byte == '\n') {
			buf_add_text(line, "\\n");
		} else if (!step || byte < 0x20 || byte == 0x7f) {
			buf_printf(line, "\\x%02x", byte);
			step = 1;
		} else if (step == 2 && byte == 0xc2 && (unsigned char)s.ptr[1] < 0xa0) {
			buf_printf(line, "\\u%04x", (unsigned char)s.ptr[1]);
		} else {
			buf_add(line, s.ptr, step);
		}
		s = str_make(s.ptr + step, s.len - step);
	}
}

static bool is_plain_word(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f || s.ptr[i] == '"' || s.ptr[i] == '=' ||
		    s.ptr[i] == '\\')
			return false;
	return s.len > 0;
}

static void add_field(struct buf *line, enum log_format format, const char *key, struct str value)
{
	if (!value.len)
		return;
	if (format == LOG_FORMAT_JSON) {
		buf_printf(line, ",\"%s\":", key);
		buf_add_json(line, value);
		return;
	}
	buf_printf(line, " %s=", key);
	if (is_plain_word(value))
		buf_add_str(line, value);
	else
		buf_add_json(line, value);
}

static void add_about(struct buf *line, enum log_format format, const struct log_about *about)
{
	add_field(line, format, "stage", str_of(about->stage));
	add_field(line, format, "delivery", about->delivery);
	add_field(line, format, "tenant", about->tenant);
	add_field(line, format, "channel", about->channel);
	add_field(line, format, "instance", about->instance);
	if (about->lane > 0)
		buf_printf(line, format == LOG_FORMAT_JSON ? ",\"lane\":%d" : " lane=%d", about->lane - 1);
	add_field(line, format, "code", str_of(code_text(about->code)));
}

static void build_line(struct buf *line, enum log_level level, const struct log_about *about, struct str message)
{
	enum log_format format = (enum log_format)atomic_load_explicit(&log_format, memory_order_relaxed);
	char ts[TIME_TEXT_SIZE];

	time_format(time_wall_us(), ts);
	if (format == LOG_FORMAT_JSON) {
		buf_printf(line, "{\"ts\":\"%s\",\"level\":\"%s\",\"msg\":", ts, level_text(level));
		buf_add_json(line, message);
	} else {
		buf_printf(line, "%s %-7s ", ts, level_text(level));
		add_readable(line, message);
	}
	if (about)
		add_about(line, format, about);
	if (format == LOG_FORMAT_JSON)
		buf_add_byte(line, '}');
}

static void write_line(struct str line)
{
	while (line.len) {
		ssize_t written = write(STDERR_FILENO, line.ptr, line.len);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return;
		/* Only a full pipe or disk takes less than all. */
		line = str_make(line.ptr + written, line.len - (size_t)written);
	}
}

void log_write(enum log_level level, const struct log_about *about, const char *fmt, ...)
{
	struct buf message = BUF_INIT, line = BUF_INIT;
	int saved_errno = errno;
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	buf_vprintf(&message, fmt, ap);
	va_end(ap);
	build_line(&line, level, about, buf_str(&message));
	if (log_sink) {
		log_sink(log_sink_arg, buf_str(&line));
	} else {
		buf_add_byte(&line, '\n');
		write_line(buf_str(&line));
	}
	buf_done(&message);
	buf_done(&line);
	errno = saved_errno;
}
