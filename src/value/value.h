/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values: trees of msgpack_object in an arena. The one data model of payloads, variables and expressions.
 *
 * A value is exact: 64-bit integers, doubles, string bytes and the order of map keys survive every codec, the
 * snapshot and an expression. Positive integers are MSGPACK_OBJECT_POSITIVE_INTEGER, negative ones
 * MSGPACK_OBJECT_NEGATIVE_INTEGER (integers outside int64 do not occur: the codecs reject them); floats are
 * MSGPACK_OBJECT_FLOAT64; strings (STR) are UTF-8; byte strings are BIN; maps have string keys, each once. EXT does not
 * occur.
 *
 * Life cycle: a value lives as long as the arena that its parts sit in; value_copy moves it to another. A value is
 * never changed after it was made. Threads: pure functions.
 */
#ifndef SUTRA_VALUE_VALUE_H
#define SUTRA_VALUE_VALUE_H

#include <msgpack.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

/* What a reader of outside bytes accepts. */
struct value_limits {
	size_t max_bytes;    /* codec.max-payload-bytes */
	uint32_t max_depth;  /* codec.max-depth: containers inside containers; a scalar has depth 0 */
	uint32_t max_values; /* codec.max-values: every element and key counts, the outermost value does not */
};
#define VALUE_LIMITS_DEFAULT ((struct value_limits){10485760, 128, 1000000})
/* For bytes that we wrote ourselves (snapshots): as deep as the codecs allow plus our own nesting. */
#define VALUE_LIMITS_OWN ((struct value_limits){SIZE_MAX, 160, UINT32_MAX})

msgpack_object value_nil(void);
msgpack_object value_bool(bool v);
msgpack_object value_int(int64_t v);
msgpack_object value_double(double v);
/* Borrow `s`. */
msgpack_object value_text(struct str s);
msgpack_object value_bytes(struct str s);
/* Uninitialised elements in the arena, to be filled by the caller. */
msgpack_object value_array(struct arena *arena, uint32_t count);
msgpack_object value_map(struct arena *arena, uint32_t count);

bool value_is_nil(const msgpack_object *value);
/* True and `*out` set for an integer. */
bool value_as_int(const msgpack_object *value, int64_t *out) MUST_CHECK;
/* The bytes of STR or BIN; STR_NONE for anything else. Borrowed. */
struct str value_as_str(const msgpack_object *value);
/* The member of a map, or NULL (also if `map` is no map or NULL). Borrowed. */
const msgpack_object *value_get(const msgpack_object *map, struct str key);

/* Same type, same bits, same order of keys. 1 and 1.0 differ. */
bool value_equal(const msgpack_object *a, const msgpack_object *b);
/* Deep copy; strings too. */
msgpack_object value_copy(struct arena *arena, const msgpack_object *value);
/* Bytes that the value takes when packed. */
size_t value_size(const msgpack_object *value);

/* Appends the MessagePack form. */
void value_pack(const msgpack_object *value, struct buf *out);
/*
 * Reads one MessagePack value that fills `bytes` exactly. Not recursive; every count is checked against the bytes left
 * before anything is allocated. Strings are copied into the arena when `copy`, else they point into `bytes`.
 * RESULT_REJECT with PARSE_MSGPACK, PARSE_LIMIT or PARSE_DUPLICATE_KEY; `*out` untouched.
 */
enum result value_unpack(struct arena *arena, struct str bytes, bool copy, const struct value_limits *limits,
			 msgpack_object *out, struct error *err) MUST_CHECK;

/*
 * A short form for logs and admin pages: compact JSON; of a longer text about `max` bytes and then "…". BIN as base64,
 * NaN and infinities by name.
 */
void value_print(const msgpack_object *value, size_t max, struct buf *out);

/*
 * JSON, here and not in codecs/json because expressions need it too; the codec is a thin cover.
 *
 * value_json_read reads one RFC 8259 text that fills `bytes` exactly. Numbers with neither fraction nor exponent are
 * integers and must fit int64, all others doubles and must be finite. Strings without escapes point into `bytes` unless
 * `copy`. RESULT_REJECT with PARSE_JSON, PARSE_LIMIT or PARSE_DUPLICATE_KEY; `*out` untouched.
 *
 * value_json_write appends compact JSON: keys in order, doubles in the shortest form that reads back the same and always
 * with a point or an exponent, BIN as base64. RESULT_REJECT with OUTBOUND_ENCODE_FAILED for NaN, infinities and
 * strings that are not UTF-8; `out` may then hold a part.
 */
enum result value_json_read(struct arena *arena, struct str bytes, bool copy, const struct value_limits *limits,
			    msgpack_object *out, struct error *err) MUST_CHECK;
enum result value_json_write(const msgpack_object *value, struct buf *out, struct error *err) MUST_CHECK;

/* Base64 (RFC 4648, section 4) with padding. */
void base64_encode(struct str bytes, struct buf *out);
/* False if `text` is not exactly that. The bytes are put into the arena. */
bool base64_decode(struct arena *arena, struct str text, struct str *out) MUST_CHECK;
/*
 * The shortest decimal form of a finite double, whatever the locale; "1.0", "-0.0", "1e+300", "5e-324". Returns `text`.
 */
#define VALUE_DOUBLE_SIZE 48
char *value_double_format(double v, char text[static VALUE_DOUBLE_SIZE]);

#endif
