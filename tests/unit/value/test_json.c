/* SPDX-License-Identifier: Apache-2.0 */
#include "value/value.h"

#include <locale.h>
#include <math.h>

#include "tests/support/random_value.h"
#include "tests/support/testing.h"

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

/* Reads and writes again. */
static void check_form(struct str text, const char *want)
{
	struct buf out = BUF_INIT;
	msgpack_object value;

	for (int copy = 0; copy < 2; copy++) {
		buf_reset(&out);
		ck_assert_msg(value_json_read(&arena, text, copy, &VALUE_LIMITS_DEFAULT, &value,
					      &err) == RESULT_OK,
			      "%.*s: %s", STR_ARG(text), err.text);
		ck_assert_int_eq(value_json_write(&value, &out, &err), RESULT_OK);
		ck_assert_str_slice(buf_str(&out), str_of(want));
	}
	buf_done(&out);
}

START_TEST(forms_come_back)
{
	static const char *const same[] = {
		"null",
		"true",
		"false",
		"0",
		"-1",
		"9223372036854775807",
		"-9223372036854775808",
		"9007199254740993",
		"1.0",
		"-0.0",
		"0.1",
		"1e+17",
		"5e-324",
		"1.7976931348623157e+308",
		"\"\"",
		"\"ä€😀\"",
		"\"\\\"\\\\\"",
		"[]",
		"{}",
		"[[],{},[[]]]",
		"{\"z\":1,\"a\":2,\"m\":{\"y\":[],\"x\":null}}",
		"{\"\":0}",
		"[1,1.0,\"1\"]",
	};
	static const struct {
		struct str text;
		const char *want;
	} other[] = {
		{STR(" \t\r\n[ 1 , 2 ] \n"), "[1,2]"},
		{STR("{ \"a\" : { } , \"b\" : [ ] }"), "{\"a\":{},\"b\":[]}"},
		{STR("-0"), "0"},
		{STR("1e0"), "1.0"},
		{STR("1E+2"), "100.0"},
		{STR("10.50"), "10.5"},
		{STR("1e-400"), "0.0"},
		{STR("-1e-400"), "-0.0"},
		{STR("0e999999999999999999999999"), "0.0"},
		{STR("1e-999999999999999999999999"), "0.0"},
		{STR("0.00000000000000000000000000001e30"), "10.0"},
		{STR("123456789012345678901234567890.0"), "1.2345678901234568e+29"},
		{STR("2.4703282292062327e-324"), "0.0"},
		{STR("2.4703282292062328e-324"), "5e-324"},
		{STR("\"\\u0061\\/\\b\\f\\n\\r\\t\""), "\"a/\\b\\f\\n\\r\\t\""},
		{STR("\"\\u00e4\\u20AC\\ud83d\\ude00\""), "\"ä€😀\""},
		{STR("\"\\u0000\""), "\"\\u0000\""},
		{STR("\"\\ud7ff\\ue000\\udbff\\udfff\""),
		 "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\""},
	};

	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		check_form(str_of(same[i]), same[i]);
	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		check_form(other[i].text, other[i].want);
}
END_TEST

static void check_rejected(struct str text, const struct value_limits *limits, enum code code)
{
	/* In memory of its own, so that a sanitizer sees a read behind the end. */
	char *own = malloc(text.len + !text.len);
	msgpack_object value = value_int(42);

	memcpy(own, text.ptr ? text.ptr : "", text.len);
	for (int copy = 0; copy < 2; copy++) {
		err = ERROR_INIT;
		ck_assert_msg(value_json_read(&arena, str_make(own, text.len), copy, limits, &value,
					      &err) == RESULT_REJECT,
			      "accepted: %.*s", text.len > 60 ? 60 : (int)text.len, text.ptr);
		ck_assert_msg(err.code == code, "%.*s: %s: %s", text.len > 60 ? 60 : (int)text.len,
			      text.ptr, code_text(err.code), err.text);
		ck_assert_msg(value.type == MSGPACK_OBJECT_POSITIVE_INTEGER && value.via.u64 == 42,
			      "the result was touched");
	}
	free(own);
}

START_TEST(what_is_not_json_is_rejected)
{
	static const struct str cases[] = {
		STR(""),
		STR(" "),
		STR("\xef\xbb\xbf{}"),
		STR("nul"),
		STR("nulll"),
		STR("True"),
		STR("NaN"),
		STR("Infinity"),
		STR("-"),
		STR("+1"),
		STR("01"),
		STR("-01"),
		STR("1."),
		STR(".5"),
		STR("1.e1"),
		STR("1e"),
		STR("1e+"),
		STR("0x1"),
		STR("1 2"),
		STR("1,"),
		STR("1_0"),
		STR("--1"),
		STR("["),
		STR("]"),
		STR("[1"),
		STR("[1,"),
		STR("[1,]"),
		STR("[,1]"),
		STR("[1 2]"),
		STR("[1}"),
		STR("{"),
		STR("}"),
		STR("{\"a\""),
		STR("{\"a\":"),
		STR("{\"a\":1"),
		STR("{\"a\":1,"),
		STR("{\"a\":1,}"),
		STR("{a:1}"),
		STR("{1:1}"),
		STR("{\"a\" 1}"),
		STR("{\"a\",1}"),
		STR("{\"a\":1]"),
		STR("{\"a\":}"),
		STR("{:1}"),
		STR("{,}"),
		STR("'a'"),
		STR("\""),
		STR("\"a"),
		STR("\"\\"),
		STR("\"\\\""),
		STR("\"\\x\""),
		STR("\"\\u12\""),
		STR("\"\\u123g\""),
		STR("\"\\u\""),
		STR("\"\\ud800\""),
		STR("\"\\udc00\""),
		STR("\"\\ud800\\u0041\""),
		STR("\"\\ud800\\ud800\""),
		STR("\"\\ud800x\""),
		STR("\"\\ud800\\"),
		STR("\"\\ud8"),
		STR("\"\n\""),
		STR("\"\t\""),
		STR("\"\0\""),
		STR("[1]\0"),
		STR("\0"),
		STR("// x\n1"),
		STR("/**/1"),
		STR("\"\xff\""),
		STR("\"\xc0\x80\""),
		STR("\"\xed\xa0\x80\""),
		STR("\"\xf4\x90\x80\x80\""),
		STR("[\"\xe2\x82\"]"),
		STR("\xa0"
		    "1"),
		STR("\f1"),
		STR("\xff\xfe{\0}\0"),
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check_rejected(cases[i], &VALUE_LIMITS_DEFAULT, CODE_PARSE_JSON);
	check_rejected(STR_NONE, &VALUE_LIMITS_DEFAULT, CODE_PARSE_JSON);
}
END_TEST

START_TEST(numbers_are_never_bent)
{
	static const char *const cases[] = {
		"9223372036854775808",
		"-9223372036854775809",
		"18446744073709551616",
		"123456789012345678901234567890",
		"-123456789012345678901234567890",
		"1e400",
		"-1e400",
		"1.7976931348623159e308",
		"1e999999999999999999999999999",
		"[1,1e309]",
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check_rejected(str_of(cases[i]), &VALUE_LIMITS_DEFAULT, CODE_PARSE_LIMIT);
}
END_TEST

START_TEST(duplicate_keys_are_rejected)
{
	static const char *const cases[] = {
		"{\"a\":1,\"a\":1}",
		"{\"a\":1,\"b\":{},\"\\u0061\":2}",
		"[[{\"\":1,\"\":2}]]",
		"{\"x\":{\"a\":1,\"b\":2,\"a\":3}}",
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check_rejected(str_of(cases[i]), &VALUE_LIMITS_DEFAULT, CODE_PARSE_DUPLICATE_KEY);
	check_form(STR("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}"),
		   "{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}");
}
END_TEST

START_TEST(long_duplicate_keys_are_shown_cut)
{
	struct buf text = BUF_INIT;

	buf_add_byte(&text, '{');
	for (int twice = 0; twice < 2; twice++) {
		buf_add_text(&text, twice ? ",\"a" : "\"a");
		for (int i = 0; i < 100; i++)
			buf_add_text(&text, "ä");
		buf_add_text(&text, "\":1");
	}
	buf_add_byte(&text, '}');
	check_rejected(buf_str(&text), &VALUE_LIMITS_DEFAULT, CODE_PARSE_DUPLICATE_KEY);
	ck_assert(str_is_utf8(str_of(err.text)));
	buf_done(&text);
}
END_TEST

START_TEST(limits_hold_to_the_element)
{
	struct value_limits limits = {.max_bytes = 12, .max_depth = 3, .max_values = 4};
	msgpack_object value;

	ck_assert_int_eq(value_json_read(&arena, STR("[[[]]]"), false, &limits, &value, &err), 0);
	check_rejected(STR("[[[[]]]]"), &limits, CODE_PARSE_LIMIT);
	check_rejected(STR("[[[{"), &limits, CODE_PARSE_LIMIT);
	ck_assert_int_eq(value_json_read(&arena, STR("[1,2,3,4]"), false, &limits, &value, &err),
			 0);
	check_rejected(STR("[1,2,3,4,5]"), &limits, CODE_PARSE_LIMIT);
	ck_assert_int_eq(value_json_read(&arena, STR("[1,[2],[]]"), false, &limits, &value, &err),
			 0);
	check_rejected(STR("[1,[2],[],1]"), &limits, CODE_PARSE_LIMIT);
	limits.max_bytes = 100;
	ck_assert_int_eq(
		value_json_read(&arena, STR("{\"a\":1,\"b\":2}"), false, &limits, &value, &err), 0);
	check_rejected(STR("{\"a\":1,\"b\":2,\"c\":3}"), &limits, CODE_PARSE_LIMIT);
	limits.max_bytes = 3;
	check_rejected(STR("1234"), &limits, CODE_PARSE_LIMIT);
}
END_TEST

/* Reads `len` bytes of a repeated piece behind a head. */
static void check_hostile(const char *head, const char *piece, size_t len, enum code code)
{
	struct buf text = BUF_INIT;

	buf_add_text(&text, head);
	while (text.len < len)
		buf_add_text(&text, piece);
	check_rejected(str_make(text.data, len), &VALUE_LIMITS_DEFAULT, code);
	buf_done(&text);
}

START_TEST(hostile_texts_end_at_the_limit)
{
	size_t len = VALUE_LIMITS_DEFAULT.max_bytes;

	check_hostile("", "[", 10000, CODE_PARSE_LIMIT);
	check_hostile("", "[", len, CODE_PARSE_LIMIT);
	check_hostile("", "{\"a\":", len, CODE_PARSE_LIMIT);
	check_hostile("[", "1,", len, CODE_PARSE_LIMIT);
	check_hostile("[", "[],", len, CODE_PARSE_LIMIT);
	check_hostile("", "7", len, CODE_PARSE_LIMIT);
	check_hostile("\"", "\\u0041", len, CODE_PARSE_JSON);
	check_hostile("", " ", len, CODE_PARSE_JSON);
}
END_TEST

START_TEST(deep_nesting_needs_no_stack)
{
	struct value_limits none = {SIZE_MAX, UINT32_MAX, UINT32_MAX};
	struct buf text = BUF_INIT, out = BUF_INIT;
	msgpack_object value;

	for (int i = 0; i < 1000000; i++)
		buf_add_text(&text, i % 2 ? "[" : "{\"a\":");
	buf_add_text(&text, "0");
	for (int i = 1000000; i > 0; i--)
		buf_add_text(&text, (i - 1) % 2 ? "]" : "}");
	ck_assert_msg(value_json_read(&arena, buf_str(&text), false, &none, &value, &err) == 0,
		      "%s", err.text);
	ck_assert_int_eq(value_json_write(&value, &out, &err), RESULT_OK);
	ck_assert(str_equal(buf_str(&text), buf_str(&out)));
	buf_done(&text);
	buf_done(&out);
}
END_TEST

/* Digits beyond what a double can show decide only ties; 1 + 2^-53 is one. */
START_TEST(long_decimals_are_rounded_right)
{
	struct buf text = BUF_INIT;

	buf_add_text(&text, "1.00000000000000011102230246251565404236316680908203125");
	check_form(buf_str(&text), "1.0");
	for (int i = 0; i < 5000; i++)
		buf_add_byte(&text, '0');
	check_form(buf_str(&text), "1.0");
	buf_add_byte(&text, '1');
	check_form(buf_str(&text), "1.0000000000000002");
	buf_reset(&text);
	for (int i = 0; i < 5000; i++)
		buf_add_byte(&text, '9');
	buf_add_text(&text, "e-5000");
	check_form(buf_str(&text), "1.0");
	buf_done(&text);
}
END_TEST

START_TEST(any_value_comes_back)
{
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		struct random_source random = {seed};
		struct arena own;
		struct buf text = BUF_INIT, again = BUF_INIT;
		msgpack_object value, back;

		arena_init(&own);
		value = random_value(&random, &own, 5, false);
		ck_assert_int_eq(value_json_write(&value, &text, &err), RESULT_OK);
		ck_assert_msg(value_json_read(&own, buf_str(&text), seed % 2, &VALUE_LIMITS_DEFAULT,
					      &back, &err) == RESULT_OK,
			      "seed %llu: %s", (unsigned long long)seed, err.text);
		ck_assert_msg(value_equal(&value, &back), "seed %llu", (unsigned long long)seed);
		ck_assert_int_eq(value_json_write(&back, &again, &err), RESULT_OK);
		ck_assert(str_equal(buf_str(&text), buf_str(&again)));
		buf_done(&text);
		buf_done(&again);
		arena_done(&own);
	}
}
END_TEST

START_TEST(random_bytes_never_do_harm)
{
	static const char *const tokens[] = {
		"{",    "}",       "[",       "]",  ",", ":",    "\"a\"",   "1",   "-0.5e1",
		"null", "\"\\u00", "\\ud800", "\"", " ", "true", "{\"b\":", "\xff"};
	struct random_source random = {815};

	for (int round = 0; round < 200000; round++) {
		struct buf text = BUF_INIT;
		struct arena own;
		msgpack_object value;

		for (uint64_t i = random_below(&random, 12); i > 0; i--)
			buf_add_text(&text, tokens[random_below(&random, ARRAY_LEN(tokens))]);
		arena_init(&own);
		if (value_json_read(&own, buf_str(&text), round % 2, &VALUE_LIMITS_DEFAULT, &value,
				    NULL) == RESULT_OK) {
			struct buf out = BUF_INIT;
			msgpack_object again;

			ck_assert_int_eq(value_json_write(&value, &out, NULL), RESULT_OK);
			ck_assert_int_eq(value_json_read(&own, buf_str(&out), false,
							 &VALUE_LIMITS_DEFAULT, &again, NULL),
					 RESULT_OK);
			ck_assert(value_equal(&value, &again));
			buf_done(&out);
		}
		arena_done(&own);
		buf_done(&text);
	}
}
END_TEST

START_TEST(what_json_cannot_say_is_refused)
{
	const msgpack_object cases[] = {
		value_double((double)NAN),
		value_double((double)INFINITY),
		value_double(-(double)INFINITY),
		value_text(STR("\xff")),
	};
	struct buf out = BUF_INIT;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		msgpack_object list = value_array(&arena, 1), map = value_map(&arena, 1);

		list.via.array.ptr[0] = cases[i];
		err = ERROR_INIT;
		ck_assert_int_eq(value_json_write(&list, &out, &err), RESULT_REJECT);
		ck_assert_int_eq(err.code, CODE_OUTBOUND_ENCODE_FAILED);
		if (cases[i].type != MSGPACK_OBJECT_STR)
			continue;
		map.via.map.ptr[0] = (msgpack_object_kv){cases[i], value_nil()};
		ck_assert_int_eq(value_json_write(&map, &out, &err), RESULT_REJECT);
	}
	buf_done(&out);
}
END_TEST

START_TEST(bin_is_written_as_base64)
{
	msgpack_object value = value_bytes(STR("\0\xff"));
	struct buf out = BUF_INIT;

	ck_assert_int_eq(value_json_write(&value, &out, &err), RESULT_OK);
	ck_assert_str_slice(buf_str(&out), STR("\"AP8=\""));
	buf_done(&out);
}
END_TEST

/* Any locale of the machine that writes numbers otherwise will do; where none is installed this shows nothing. */
START_TEST(the_locale_does_not_matter)
{
	static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
					    "ps_AF.UTF-8"};
	char text[VALUE_DOUBLE_SIZE];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (!setlocale(LC_ALL, names[i]))
			continue;
		ck_assert_str_eq(value_double_format(1234.5, text), "1234.5");
		ck_assert_str_eq(value_double_format(0.1, text), "0.1");
		ck_assert_str_eq(value_double_format(1.25e-7, text), "1.25e-07");
		check_form(STR("[1234.5,0.1,1.25e-7]"), "[1234.5,0.1,1.25e-07]");
	}
	setlocale(LC_ALL, "C");
}
END_TEST

static Suite *json_suite(void)
{
	Suite *suite = suite_create("json");
	TCase *tcase = tcase_create("json");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	TEST_ADD_ALL(tcase, forms_come_back, what_is_not_json_is_rejected, numbers_are_never_bent,
		     duplicate_keys_are_rejected, long_duplicate_keys_are_shown_cut,
		     limits_hold_to_the_element, hostile_texts_end_at_the_limit,
		     deep_nesting_needs_no_stack, long_decimals_are_rounded_right,
		     any_value_comes_back, random_bytes_never_do_harm,
		     what_json_cannot_say_is_refused, bin_is_written_as_base64,
		     the_locale_does_not_matter);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(json_suite)
