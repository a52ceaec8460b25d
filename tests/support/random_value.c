/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/random_value.h"

#include <float.h>
#include <math.h>

#include "base/buf.h"

/* SplitMix64. */
uint64_t random_next(struct random_source *random)
{
	uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t random_below(struct random_source *random, uint64_t bound)
{
	return random_next(random) % bound;
}

double random_double(struct random_source *random)
{
	static const double awkward[] = {0.0,     -0.0,    1.0,       0.1,      1e15,
					 1e16,    1e17,    1e21,      1e22,     1e23,
					 DBL_MAX, DBL_MIN, 5e-324,    -1.5,     1.0 / 3,
					 0x1p-44, 0x1p53,  0x1p-1022, 0x1p1023, 123456789.125};
	double v;

	switch (random_below(random, 4)) {
	case 0:
		return awkward[random_below(random, ARRAY_LEN(awkward))];
	case 1:
		return (double)(int64_t)random_below(random, 100000) / 100;
	case 2:
		return ldexp(1.0, (int)random_below(random, 2098) - 1074);
	default:
		do {
			uint64_t bits = random_next(random);

			memcpy(&v, &bits, sizeof(v));
		} while (!isfinite(v));
		return v;
	}
}

int64_t random_int(struct random_source *random)
{
	static const int64_t edges[] = {0,         -1,         127,        128,       -32,
					-33,       INT8_MIN,   INT16_MIN,  INT32_MIN, INT64_MIN,
					UINT8_MAX, UINT16_MAX, UINT32_MAX, INT32_MAX, INT64_MAX};

	if (random_below(random, 2))
		return edges[random_below(random, ARRAY_LEN(edges))];
	return (int64_t)(random_next(random) >> random_below(random, 64));
}

static struct str random_text(struct random_source *random, struct arena *arena)
{
	static const char *const pieces[] = {"a",    "key",          "ü",  "€", "😀",
					     "\"",   "\\",           "\n", "/", "\x01",
					     "\x7f", "\xed\x9f\xbf", " ",  "0"};
	static const size_t lengths[] = {0, 1, 3, 31, 32, 255, 256, 70000};
	size_t want =
		lengths[random_below(random, random_below(random, 50) ? 4 : ARRAY_LEN(lengths))];
	struct buf buf = BUF_INIT;
	struct str out;

	while (buf.len < want) {
		if (random_below(random, 20) == 0)
			buf_add_byte(&buf, '\0');
		else
			buf_add_text(&buf, pieces[random_below(random, ARRAY_LEN(pieces))]);
	}
	out = arena_str(arena, str_make(buf.data ? buf.data : "", buf.len));
	buf_done(&buf);
	return out;
}

static msgpack_object random_scalar(struct random_source *random, struct arena *arena,
				    bool any_type)
{
	static const double unusual[] = {(double)NAN, -(double)NAN, (double)INFINITY,
					 -(double)INFINITY};

	switch (random_below(random, any_type ? 7 : 5)) {
	case 0:
		return value_nil();
	case 1:
		return value_bool(random_below(random, 2));
	case 2:
		return value_int(random_int(random));
	case 3:
		return value_double(random_double(random));
	case 4:
		return value_text(random_text(random, arena));
	case 5:
		return value_bytes(random_text(random, arena));
	default:
		return value_double(unusual[random_below(random, ARRAY_LEN(unusual))]);
	}
}

msgpack_object random_value(struct random_source *random, struct arena *arena, unsigned depth,
			    bool any_type)
{
	uint64_t kind = depth > 0 ? random_below(random, 3) : 0;
	uint32_t count = (uint32_t)random_below(random, random_below(random, 10) ? 5 : 40);
	msgpack_object value;

	if (kind == 0)
		return random_scalar(random, arena, any_type);
	if (kind == 1) {
		value = value_array(arena, count);
		for (uint32_t i = 0; i < count; i++)
			value.via.array.ptr[i] = random_value(random, arena, depth - 1, any_type);
		return value;
	}
	value = value_map(arena, count);
	for (uint32_t i = 0; i < count; i++) {
		struct str text = random_text(random, arena);
		/* The number behind it makes it the only one of its name. */
		const char *key = arena_printf(arena, "%.*s#%u",
					       (int)(text.len < 40 ? text.len : 0), text.ptr, i);

		value.via.map.ptr[i].key = value_text(str_of(key));
		value.via.map.ptr[i].val = random_value(random, arena, depth - 1, any_type);
	}
	return value;
}
