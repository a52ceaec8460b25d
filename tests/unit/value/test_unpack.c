/* SPDX-License-Identifier: Apache-2.0 */
#include "value/value.h"

#include "tests/support/random_value.h"
#include "tests/support/testing.h"

#define BYTES(lit) STR(lit)

static struct arena arena;
static struct error err;

static void setup(void)
{
	arena_init(&arena);
	err = ERROR_INIT;
}

static void teardown(void)
{
	arena_done(&arena);
}

START_TEST(every_form_is_read)
{
	static const struct {
		struct str bytes;
		const char *json;
	} cases[] = {
		{BYTES("\x00"), "0"},
		{BYTES("\x7f"), "127"},
		{BYTES("\xff"), "-1"},
		{BYTES("\xe0"), "-32"},
		{BYTES("\xc0"), "null"},
		{BYTES("\xc2"), "false"},
		{BYTES("\xc3"), "true"},
		{BYTES("\xcc\xff"), "255"},
		{BYTES("\xcd\xff\xff"), "65535"},
		{BYTES("\xce\xff\xff\xff\xff"), "4294967295"},
		{BYTES("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"), "9223372036854775807"},
		{BYTES("\xd0\x80"), "-128"},
		{BYTES("\xd0\x05"), "5"},
		{BYTES("\xd1\x80\x00"), "-32768"},
		{BYTES("\xd2\x80\x00\x00\x00"), "-2147483648"},
		{BYTES("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), "-9223372036854775808"},
		{BYTES("\xca\x3f\x80\x00\x00"), "1.0"},
		{BYTES("\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"), "0.1"},
		{BYTES("\xa1x"), "\"x\""},
		{BYTES("\xd9\x01x"), "\"x\""},
		{BYTES("\xda\x00\x01x"), "\"x\""},
		{BYTES("\xdb\x00\x00\x00\x01x"), "\"x\""},
		{BYTES("\xc4\x01x"), "\"eA==\""},
		{BYTES("\xc5\x00\x01x"), "\"eA==\""},
		{BYTES("\xc6\x00\x00\x00\x01x"), "\"eA==\""},
		{BYTES("\x90"), "[]"},
		{BYTES("\x92\x01\x90"), "[1,[]]"},
		{BYTES("\xdc\x00\x01\x80"), "[{}]"},
		{BYTES("\xdd\x00\x00\x00\x00"), "[]"},
		{BYTES("\x82\xa1z\x01\xa1y\x92\x02\x03"), "{\"z\":1,\"y\":[2,3]}"},
		{BYTES("\xde\x00\x01\xa0\xc0"), "{\"\":null}"},
		{BYTES("\xdf\x00\x00\x00\x01\xa0\xc0"), "{\"\":null}"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		msgpack_object value;
		struct buf out = BUF_INIT;

		ck_assert_msg(value_unpack(&arena, cases[i].bytes, i % 2, &VALUE_LIMITS_DEFAULT,
					   &value, &err) == RESULT_OK,
			      "%s: %s", cases[i].json, err.text);
		ck_assert_int_eq(value_json_write(&value, &out, &err), RESULT_OK);
		ck_assert_str_slice(buf_str(&out), str_of(cases[i].json));
		buf_done(&out);
	}
}
END_TEST

static void check_rejected(struct str bytes, const struct value_limits *limits, enum code code)
{
	msgpack_object value = value_int(42);

	err = ERROR_INIT;
	ck_assert_int_eq(value_unpack(&arena, bytes, false, limits, &value, &err), RESULT_REJECT);
	ck_assert_msg(err.code == code, "%s: %s", code_text(err.code), err.text);
	ck_assert_msg(value.type == MSGPACK_OBJECT_POSITIVE_INTEGER && value.via.u64 == 42,
		      "the result was touched");
}

START_TEST(what_values_cannot_be_is_rejected)
{
	static const struct {
		struct str bytes;
		enum code code;
	} cases[] = {
		{BYTES(""), CODE_PARSE_MSGPACK},
		{STR_NONE, CODE_PARSE_MSGPACK},
		{BYTES("\xc1"), CODE_PARSE_MSGPACK},
		{BYTES("\x01\x01"), CODE_PARSE_MSGPACK},
		{BYTES("\xcf\x80\x00\x00\x00\x00\x00\x00\x00"), CODE_PARSE_LIMIT},
		{BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), CODE_PARSE_LIMIT},
		{BYTES("\xa2\xff\xfe"), CODE_PARSE_MSGPACK},     /* no UTF-8 */
		{BYTES("\xa3\xed\xa0\x80"), CODE_PARSE_MSGPACK}, /* a surrogate */
		{BYTES("\xa2\xc0\x80"), CODE_PARSE_MSGPACK},     /* overlong */
		{BYTES("\x81\x01\x01"), CODE_PARSE_MSGPACK},     /* keys of other types */
		{BYTES("\x81\xc0\x01"), CODE_PARSE_MSGPACK},
		{BYTES("\x81\xc4\x01k\x01"), CODE_PARSE_MSGPACK},
		{BYTES("\x81\x90\x01"), CODE_PARSE_MSGPACK},
		{BYTES("\x81\x91\xa1k\x01"), CODE_PARSE_MSGPACK},
		{BYTES("\x82\xa1k\x01\xa1k\x01"), CODE_PARSE_DUPLICATE_KEY},
		{BYTES("\x91\x82\xa1k\x01\xa1k\x01"), CODE_PARSE_DUPLICATE_KEY},
		{BYTES("\xd4\x01x"), CODE_PARSE_MSGPACK}, /* EXT */
		{BYTES("\xd8\x01xxxxxxxxxxxxxxxx"), CODE_PARSE_MSGPACK},
		{BYTES("\xc7\x01\x01x"), CODE_PARSE_MSGPACK},
		{BYTES("\xc9\x00\x00\x00\x01\x01x"), CODE_PARSE_MSGPACK},
		{BYTES("\xdd\xff\xff\xff\xff"), CODE_PARSE_MSGPACK}, /* claims 2^32 - 1 elements */
		{BYTES("\xdf\xff\xff\xff\xff"), CODE_PARSE_MSGPACK},
		{BYTES("\xdb\xff\xff\xff\xff"), CODE_PARSE_MSGPACK},
		{BYTES("\xc6\xff\xff\xff\xff"), CODE_PARSE_MSGPACK},
		{BYTES("\x92\x92\x01\x01"), CODE_PARSE_MSGPACK}, /* both together claim too much */
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check_rejected(cases[i].bytes, &VALUE_LIMITS_DEFAULT, cases[i].code);
}
END_TEST

START_TEST(every_truncation_is_rejected)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct random_source random = {seed};
		msgpack_object value = random_value(&random, &arena, 4, true);
		struct buf packed = BUF_INIT;

		value_pack(&value, &packed);
		for (size_t len = 0; len < packed.len && len < 2000; len++) {
			/* In memory of its own, so that a sanitizer sees a read behind the end. */
			char *cut = malloc(len + !len);

			memcpy(cut, packed.data, len);
			check_rejected(str_make(cut, len), &VALUE_LIMITS_OWN, CODE_PARSE_MSGPACK);
			free(cut);
		}
		buf_done(&packed);
	}
}
END_TEST

START_TEST(limits_hold_to_the_element)
{
	struct value_limits limits = {.max_bytes = 100, .max_depth = 3, .max_values = 4};
	msgpack_object value;
	char big[101] = {0};

	ck_assert_int_eq(value_unpack(&arena, BYTES("\x91\x91\x90"), false, &limits, &value, &err),
			 RESULT_OK);
	check_rejected(BYTES("\x91\x91\x91\x90"), &limits, CODE_PARSE_LIMIT);
	ck_assert_int_eq(
		value_unpack(&arena, BYTES("\x94\x01\x02\x03\x04"), false, &limits, &value, &err),
		RESULT_OK);
	check_rejected(BYTES("\x95\x01\x02\x03\x04\x05"), &limits, CODE_PARSE_LIMIT);
	ck_assert_int_eq(
		value_unpack(&arena, BYTES("\x82\xa1x\x02\xa1y\x04"), false, &limits, &value, &err),
		RESULT_OK);
	check_rejected(BYTES("\x82\xa1x\x02\xa1y\x91\x01"), &limits, CODE_PARSE_LIMIT);
	check_rejected(str_make(big, sizeof(big)), &limits, CODE_PARSE_LIMIT);
}
END_TEST

START_TEST(deep_nesting_is_rejected_at_the_limit)
{
	size_t len = 10 << 20;
	char *bytes = malloc(len);

	memset(bytes, 0x91, len);
	check_rejected(str_make(bytes, 10000), &VALUE_LIMITS_DEFAULT, CODE_PARSE_LIMIT);
	check_rejected(str_make(bytes, len), &VALUE_LIMITS_DEFAULT, CODE_PARSE_LIMIT);
	/* With no limit it is read, without a deeper stack of ours. */
	bytes[len - 1] = 0;

	struct value_limits none = {SIZE_MAX, UINT32_MAX, UINT32_MAX};
	msgpack_object value;

	ck_assert_int_eq(value_unpack(&arena, str_make(bytes, len), false, &none, &value, &err),
			 RESULT_OK);
	free(bytes);
}
END_TEST

/* Levels that each claim every byte left would, if believed, take gigabytes. */
START_TEST(claims_are_not_believed_twice)
{
	size_t len = 1 << 20;
	char *bytes = calloc(1, len);

	for (size_t i = 0; i < 100; i++)
		memcpy(bytes + i * 5, "\xdd\x00\x0f\x00\x00", 5);
	check_rejected(str_make(bytes, len), &VALUE_LIMITS_OWN, CODE_PARSE_MSGPACK);
	free(bytes);
}
END_TEST

/* A map of `count` keys; the last like the first if `duplicate`. */
static struct str big_map(struct buf *out, uint32_t count, bool duplicate)
{
	buf_add_byte(out, (char)0xdf);
	buf_add_be32(out, count);
	for (uint32_t i = 0; i < count; i++) {
		buf_add_byte(out, (char)0xa8);
		buf_printf(out, "%08u", duplicate && i == count - 1 ? 0 : i);
		buf_add_byte(out, (char)0xc0);
	}
	return buf_str(out);
}

START_TEST(large_maps_are_checked_for_duplicates)
{
	static const uint32_t counts[] = {2, 3, 15, 16, 17, 18, 100, 300000};

	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		struct buf out = BUF_INIT;
		msgpack_object value;

		ck_assert_int_eq(value_unpack(&arena, big_map(&out, counts[i], false), false,
					      &VALUE_LIMITS_DEFAULT, &value, &err),
				 RESULT_OK);
		ck_assert_uint_eq(value.via.map.size, counts[i]);
		buf_reset(&out);
		check_rejected(big_map(&out, counts[i], true), &VALUE_LIMITS_DEFAULT,
			       CODE_PARSE_DUPLICATE_KEY);
		ck_assert_ptr_nonnull(strstr(err.text, "00000000"));
		buf_done(&out);
	}
}
END_TEST

START_TEST(random_bytes_never_do_harm)
{
	struct random_source random = {4711};
	char bytes[64];

	for (int round = 0; round < 300000; round++) {
		size_t len = random_below(&random, sizeof(bytes));
		struct arena own;
		msgpack_object value;

		/* Mostly bytes that begin containers, or all would end at once. */
		for (size_t i = 0; i < len; i++)
			bytes[i] = (char)(random_below(&random, 3)
						  ? 0x80 | random_below(&random, 0x60)
						  : random_next(&random));
		arena_init(&own);
		if (value_unpack(&own, str_make(bytes, len), false, &VALUE_LIMITS_DEFAULT, &value,
				 NULL) == RESULT_OK) {
			struct buf packed = BUF_INIT;
			msgpack_object again;

			value_pack(&value, &packed);
			ck_assert_int_eq(value_unpack(&own, buf_str(&packed), false,
						      &VALUE_LIMITS_DEFAULT, &again, NULL),
					 RESULT_OK);
			ck_assert(value_equal(&value, &again));
			buf_done(&packed);
		}
		arena_done(&own);
	}
}
END_TEST

START_TEST(strings_are_copied_only_if_asked_for)
{
	char bytes[] = "\x91\xa3"
		       "abc";
	msgpack_object borrowed, owned;

	ck_assert_int_eq(value_unpack(&arena, str_make(bytes, 5), false, &VALUE_LIMITS_DEFAULT,
				      &borrowed, &err),
			 RESULT_OK);
	ck_assert_int_eq(
		value_unpack(&arena, str_make(bytes, 5), true, &VALUE_LIMITS_DEFAULT, &owned, &err),
		RESULT_OK);
	bytes[2] = 'X';
	ck_assert_str_slice(value_as_str(borrowed.via.array.ptr), STR("Xbc"));
	ck_assert_str_slice(value_as_str(owned.via.array.ptr), STR("abc"));
}
END_TEST

static Suite *unpack_suite(void)
{
	Suite *suite = suite_create("unpack");
	TCase *tcase = tcase_create("unpack");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	TEST_ADD_ALL(tcase, every_form_is_read, what_values_cannot_be_is_rejected,
		     every_truncation_is_rejected, limits_hold_to_the_element,
		     deep_nesting_is_rejected_at_the_limit, claims_are_not_believed_twice,
		     large_maps_are_checked_for_duplicates, random_bytes_never_do_harm,
		     strings_are_copied_only_if_asked_for);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(unpack_suite)
