/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing byte buffers. What must hold: when `data` is set, data[len] is NUL and cap counts the byte for it.
 */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

#define BUF_CAP_MIN 64

void buf_init(struct buf *buf)
{
	*buf = BUF_INIT;
}

void buf_done(struct buf *buf)
{
	free(buf->data);
	*buf = BUF_INIT;
}

void buf_reset(struct buf *buf)
{
	buf->len = 0;
	if (buf->data)
		buf->data[0] = '\0';
}

char *buf_reserve(struct buf *buf, size_t extra)
{
	size_t need, cap;

	if (__builtin_add_overflow(buf->len, extra, &need) || need >= PTRDIFF_MAX)
		mem_exhausted(extra);
	need++;
	if (need > buf->cap) {
		cap = buf->cap + buf->cap / 2;
		if (cap < need)
			cap = need;
		if (cap < BUF_CAP_MIN)
			cap = BUF_CAP_MIN;
		buf->data = mem_realloc(buf->data, cap);
		buf->cap = cap;
		buf->data[buf->len] = '\0';
	}
	return buf->data + buf->len;
}

void buf_add(struct buf *buf, const void *bytes, size_t len)
{
	char *at = buf_reserve(buf, len);

	if (len)
		memcpy(at, bytes, len);
	buf->len += len;
	buf->data[buf->len] = '\0';
}

void buf_add_str(struct buf *buf, struct str s)
{
	buf_add(buf, s.ptr, s.len);
}

void buf_add_text(struct buf *buf, const char *text)
{
	buf_add(buf, text, strlen(text));
}

void buf_add_byte(struct buf *buf, char byte)
{
	buf_add(buf, &byte, 1);
}

void buf_vprintf(struct buf *buf, const char *fmt, va_list ap)
{
	va_list again;
	size_t room;
	int len;

	va_copy(again, ap);
	buf_reserve(buf, 0);
	room = buf->cap - buf->len;
	len = vsnprintf(buf->data + buf->len, room, fmt, ap);
	assert(len >= 0);
	if ((size_t)len >= room) {
		buf_reserve(buf, (size_t)len);
		vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, again);
	}
	va_end(again);
	buf->len += (size_t)len;
}

void buf_printf(struct buf *buf, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(buf, fmt, ap);
	va_end(ap);
}

/* The escape of an ASCII byte in a JSON string, or NULL if it stands for itself; `room` holds six characters. */
static const char *json_escape(unsigned char byte, char room[static 7])
{
	switch (byte) {
	case '"':
		return "\\\"";
	case '\\':
		return "\\\\";
	case '\b':
		return "\\b";
	case '\f':
		return "\\f";
	case '\n':
		return "\\n";
	case '\r':
		return "\\r";
	case '\t':
		return "\\t";
	default:
		if (byte >= 0x20 && byte != 0x7f)
			return NULL;
		snprintf(room, 7, "\\u%04x", byte);
		return room;
	}
}

void buf_add_json(struct buf *buf, struct str s)
{
	char room[7];

	buf_reserve(buf, s.len + 2);
	buf_add_byte(buf, '"');
	while (s.len) {
		size_t step = str_utf8_next(s);
		const char *escape = step == 1 ? json_escape((unsigned char)s.ptr[0], room) : NULL;

		if (!step) {
			/* Not UTF-8: one replacement for one byte. */
			buf_add_text(buf, "\xef\xbf\xbd");
			step = 1;
		} else if (escape) {
			buf_add_text(buf, escape);
		} else if (step == 2 && (unsigned char)s.ptr[0] == 0xc2 && (unsigned char)s.ptr[1] < 0xa0) {
			/* The second block of control characters, which terminals obey too. */
			buf_printf(buf, "\\u%04x", (unsigned char)s.ptr[1]);
		} else {
			buf_add(buf, s.ptr, step);
		}
		s = str_make(s.ptr + step, s.len - step);
	}
	buf_add_byte(buf, '"');
}

static void add_big_endian(struct buf *buf, uint64_t v, size_t width)
{
	char bytes[8];

	for (size_t i = 0; i < width; i++)
		bytes[i] = (char)(v >> (8 * (width - 1 - i)));
	buf_add(buf, bytes, width);
}

void buf_add_be16(struct buf *buf, uint16_t v)
{
	add_big_endian(buf, v, 2);
}

void buf_add_be32(struct buf *buf, uint32_t v)
{
	add_big_endian(buf, v, 4);
}

void buf_add_be64(struct buf *buf, uint64_t v)
{
	add_big_endian(buf, v, 8);
}

struct str buf_str(const struct buf *buf)
{
	return buf->data ? str_make(buf->data, buf->len) : STR("");
}

char *buf_take(struct buf *buf, size_t *len)
{
	char *data;

	buf_reserve(buf, 0);
	data = buf->data;
	if (len)
		*len = buf->len;
	*buf = BUF_INIT;
	return data;
}
