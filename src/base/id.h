/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen-byte ids: random ones in time order for instances, and digests that stand for longer keys.
 *
 * Life cycle: plain data. Threads: pure, except id_new, which reads the loop it is given.
 */
#ifndef SUTRA_BASE_ID_H
#define SUTRA_BASE_ID_H

#include "base/attr.h"
#include "base/str.h"

struct loop;

struct id {
	uint8_t bytes[16];
};

#define ID_TEXT_SIZE 37
#define ID_NONE ((struct id){{0}})

/* UUID version 7 from the loop's clock and random source: ascending by creation, to the millisecond. */
struct id id_new(struct loop *loop);
/*
 * The head of SHA-256 over the parts, each with its length before it, so that ("ab","c") and ("a","bc") differ;
 * marked as UUID version 8. The digest of a (tenant, channel, event id).
 */
struct id id_digest(const struct str *parts, size_t count);
#define id_digest_of(...) \
	id_digest((const struct str[]){__VA_ARGS__}, \
		  sizeof((const struct str[]){__VA_ARGS__}) / sizeof(struct str))
/* Canonical lower-case text with its NUL; returns `text`. */
char *id_format(struct id id, char text[static ID_TEXT_SIZE]);
bool id_parse(struct str text, struct id *out) MUST_CHECK;
bool id_is_none(struct id id);
bool id_equal(struct id a, struct id b);
/* Byte order, as PostgreSQL orders uuid. */
int id_compare(struct id a, struct id b);
/* Over the bytes, for slices as map keys. Borrows `id`. */
static inline struct str id_str(const struct id *id)
{
	return str_make(id->bytes, sizeof(id->bytes));
}
/* SHA-256 of `bytes` as 64 hex digits and a NUL. */
void sha256_hex(struct str bytes, char hex[static 65]);
void sha256(struct str bytes, uint8_t out[static 32]);

#endif
