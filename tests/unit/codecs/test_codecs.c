/* SPDX-License-Identifier: Apache-2.0 */
#include "codecs/codec.h"

#include <float.h>
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

START_TEST(the_registry_has_every_codec)
{
	static const char *const names[] = {"json", "msgpack", "text", "bytes"};
	size_t count = 0;

	while (codec_at(count))
		count++;
	ck_assert_uint_eq(count, ARRAY_LEN(names));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const struct codec *codec = codec_find(str_of(names[i]));

		ck_assert_ptr_nonnull(codec);
		ck_assert_str_eq(codec->name, names[i]);
		ck_assert_ptr_nonnull(strchr(codec->content_type, '/'));
	}
	ck_assert_ptr_null(codec_find(STR("JSON")));
	ck_assert_ptr_null(codec_find(STR("")));
	ck_assert_ptr_null(codec_find(STR_NONE));
}
END_TEST

START_TEST(null_and_empty_bodies)
{
	static const struct {
		const char *name;
		enum code empty; /* CODE_NONE: an empty string of this type */
		msgpack_object_type type;
	} cases[] = {
		{"json", CODE_PARSE_JSON, MSGPACK_OBJECT_NIL},
		{"msgpack", CODE_PARSE_MSGPACK, MSGPACK_OBJECT_NIL},
		{"text", CODE_NONE, MSGPACK_OBJECT_STR},
		{"bytes", CODE_NONE, MSGPACK_OBJECT_BIN},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct codec *codec = codec_find(str_of(cases[i].name));
		msgpack_object value = value_int(1);

		ck_assert_int_eq(
			codec->decode(&arena, STR_NONE, &VALUE_LIMITS_DEFAULT, &value, &err),
			RESULT_OK);
		ck_assert(value_is_nil(&value));
		if (cases[i].empty) {
			ck_assert_int_eq(
				codec->decode(&arena, STR(""), &VALUE_LIMITS_DEFAULT, &value, &err),
				RESULT_REJECT);
			ck_assert_int_eq(err.code, cases[i].empty);
		} else {
			ck_assert_int_eq(
				codec->decode(&arena, STR(""), &VALUE_LIMITS_DEFAULT, &value, &err),
				RESULT_OK);
			ck_assert_int_eq(value.type, cases[i].type);
			ck_assert_uint_eq(value_as_str(&value).len, 0);
			ck_assert_ptr_nonnull(value_as_str(&value).ptr);
		}
	}
}
END_TEST

START_TEST(payloads_over_the_cap_are_not_looked_at)
{
	size_t len = 100 << 20;
	char *bytes = calloc(1, len);
	struct value_limits small = {.max_bytes = 3, .max_depth = 1, .max_values = 1};

	for (size_t i = 0; codec_at(i); i++) {
		msgpack_object value;

		err = ERROR_INIT;
		ck_assert_int_eq(codec_at(i)->decode(&arena, str_make(bytes, len),
						     &VALUE_LIMITS_DEFAULT, &value, &err),
				 RESULT_REJECT);
		ck_assert_int_eq(err.code, CODE_INBOUND_PAYLOAD_TOO_LARGE);
		ck_assert_int_eq(codec_at(i)->decode(&arena, STR("1234"), &small, &value, &err),
				 RESULT_REJECT);
		ck_assert_int_eq(err.code, CODE_INBOUND_PAYLOAD_TOO_LARGE);
	}
	free(bytes);
}
END_TEST

START_TEST(codes_of_bad_bodies)
{
	static const struct {
		const char *name;
		struct str body;
		enum code code;
	} cases[] = {
		{"json", STR("{"), CODE_PARSE_JSON},
		{"json", STR("\"\xff\""), CODE_PARSE_JSON},
		{"json", STR("123456789012345678901234567890"), CODE_PARSE_LIMIT},
		{"json", STR("{\"a\":1,\"a\":2}"), CODE_PARSE_DUPLICATE_KEY},
		{"msgpack", STR("\xc1"), CODE_PARSE_MSGPACK},
		{"msgpack", STR("\xa1\xff"), CODE_PARSE_MSGPACK},
		{"msgpack", STR("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), CODE_PARSE_LIMIT},
		{"msgpack", STR("\x82\xa1x\x01\xa1x\x01"), CODE_PARSE_DUPLICATE_KEY},
		{"text", STR("\xff"), CODE_PARSE_TEXT},
		{"text", STR("\xed\xa0\x80"), CODE_PARSE_TEXT},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		msgpack_object value;

		err = ERROR_INIT;
		ck_assert_int_eq(codec_find(str_of(cases[i].name))
					 ->decode(&arena, cases[i].body, &VALUE_LIMITS_DEFAULT,
						  &value, &err),
				 RESULT_REJECT);
		ck_assert_msg(err.code == cases[i].code, "%zu: %s %s", i, code_text(err.code),
			      err.text);
	}
}
END_TEST

/* Whether the codec gives back exactly the value. */
static void check_exact(const struct codec *codec, const msgpack_object *value)
{
	struct buf body = BUF_INIT;
	msgpack_object back;

	ck_assert_msg(codec->encode(value, &body, &err) == RESULT_OK, "%s: %s", codec->name,
		      err.text);
	ck_assert_msg(codec->decode(&arena, buf_str(&body), &VALUE_LIMITS_DEFAULT, &back, &err) ==
			      RESULT_OK,
		      "%s: %s", codec->name, err.text);
	ck_assert_msg(value_equal(value, &back), "%s: %.*s", codec->name, STR_ARG(buf_str(&body)));
	buf_done(&body);
}

START_TEST(structured_codecs_are_exact)
{
	static const char *const names[] = {"json", "msgpack"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const struct codec *codec = codec_find(str_of(names[i]));
		const msgpack_object edges[] = {
			value_int(INT64_MIN),
			value_int(INT64_MAX),
			value_int(0),
			value_int(-1),
			value_int(INT64_C(1) << 53 | 1),
			value_double(0.0),
			value_double(-0.0),
			value_double(1.0),
			value_double(DBL_MAX),
			value_double(DBL_MIN),
			value_double(5e-324),
			value_double(0.1),
			value_text(STR("a\0b")),
			value_nil(),
			value_bool(true),
			value_array(&arena, 0),
			value_map(&arena, 0),
		};

		for (size_t k = 0; k < ARRAY_LEN(edges); k++)
			check_exact(codec, &edges[k]);
		for (uint64_t seed = 1; seed <= 300; seed++) {
			struct random_source random = {seed};
			msgpack_object value = random_value(&random, &arena, 4, i == 1);

			check_exact(codec, &value);
		}
	}
}
END_TEST

START_TEST(flat_codecs_are_exact)
{
	static const struct str texts[] = {STR("x"), STR("a\0b"), STR("ä€😀"), STR("")};

	for (size_t i = 0; i < 3; i++) {
		msgpack_object text = value_text(texts[i]), bytes = value_bytes(texts[i]);

		check_exact(codec_find(STR("text")), &text);
		check_exact(codec_find(STR("bytes")), &bytes);
	}
	msgpack_object raw = value_bytes(STR("\xff\xfe\0"));

	check_exact(codec_find(STR("bytes")), &raw);
}
END_TEST

START_TEST(flat_codecs_write_scalars_only)
{
	static const struct {
		const char *name;
		const char *json; /* the value */
		const char *want; /* NULL: refused */
	} cases[] = {
		{"text", "\"x\"", "x"},   {"text", "17", "17"},    {"text", "1.0", "1.0"},
		{"text", "true", "true"}, {"text", "null", ""},    {"text", "[]", NULL},
		{"text", "{}", NULL},     {"bytes", "\"x\"", "x"}, {"bytes", "null", ""},
		{"bytes", "1", NULL},     {"bytes", "[]", NULL},   {"bytes", "{}", NULL},
		{"bytes", "false", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf body = BUF_INIT;
		msgpack_object value;
		enum result res;

		ck_assert_int_eq(value_json_read(&arena, str_of(cases[i].json), false,
						 &VALUE_LIMITS_DEFAULT, &value, &err),
				 RESULT_OK);
		res = codec_find(str_of(cases[i].name))->encode(&value, &body, &err);
		ck_assert_int_eq(res, cases[i].want ? RESULT_OK : RESULT_REJECT);
		if (cases[i].want)
			ck_assert_str_slice(buf_str(&body), str_of(cases[i].want));
		else
			ck_assert_int_eq(err.code, CODE_OUTBOUND_ENCODE_FAILED);
		buf_done(&body);
	}

	const msgpack_object refused[] = {value_bytes(STR("x")), value_double((double)NAN),
					  value_text(STR("\xff"))};

	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		struct buf body = BUF_INIT;

		ck_assert_int_eq(codec_find(STR("text"))->encode(&refused[i], &body, &err),
				 RESULT_REJECT);
		buf_done(&body);
	}
}
END_TEST

static Suite *codecs_suite(void)
{
	Suite *suite = suite_create("codecs");
	TCase *tcase = tcase_create("codecs");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, the_registry_has_every_codec, null_and_empty_bodies,
		     payloads_over_the_cap_are_not_looked_at, codes_of_bad_bodies,
		     structured_codecs_are_exact, flat_codecs_are_exact,
		     flat_codecs_write_scalars_only);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(codecs_suite)
