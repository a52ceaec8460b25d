/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing byte buffers on the heap.
 *
 * Life cycle: BUF_INIT or buf_init, buf_done; an all-zero buf is empty and valid. The bytes always have a NUL
 * behind them that `len` does not count. Growth that the system refuses ends the process.
 * Threads: one at a time.
 */
#ifndef SUTRA_BASE_BUF_H
#define SUTRA_BASE_BUF_H

#include <stdarg.h>

#include "base/attr.h"
#include "base/str.h"

struct buf {
	char *data;
	size_t len;
	size_t cap;
};

#define BUF_INIT ((struct buf){NULL, 0, 0})

void buf_init(struct buf *buf);
void buf_done(struct buf *buf);
/* Empties, keeps the memory. */
void buf_reset(struct buf *buf);
/* Room for `extra` more bytes; returns where they go (len is unchanged). */
char *buf_reserve(struct buf *buf, size_t extra);
void buf_add(struct buf *buf, const void *bytes, size_t len);
void buf_add_str(struct buf *buf, struct str s);
void buf_add_text(struct buf *buf, const char *text);
void buf_add_byte(struct buf *buf, char byte);
void buf_printf(struct buf *buf, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *buf, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
/* `s` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void buf_add_json(struct buf *buf, struct str s);
/* Big-endian. */
void buf_add_be16(struct buf *buf, uint16_t v);
void buf_add_be32(struct buf *buf, uint32_t v);
void buf_add_be64(struct buf *buf, uint64_t v);
/* Borrowed view of the content; valid until the next change. */
struct str buf_str(const struct buf *buf);
/* Gives the malloc'ed bytes away (free() them) and leaves the buf empty. Never NULL. */
char *buf_take(struct buf *buf, size_t *len);

#endif
