/* SPDX-License-Identifier: Apache-2.0 */
#include "value/value.h"

#include <float.h>
#include <math.h>

#include "tests/support/random_value.h"
#include "tests/support/testing.h"

static struct arena arena;

static void setup(void)
{
	arena_init(&arena);
}

static void teardown(void)
{
	arena_done(&arena);
}

START_TEST(makers_give_the_documented_types)
{
	int64_t number;
	msgpack_object v = value_int(-1);

	ck_assert_int_eq(v.type, MSGPACK_OBJECT_NEGATIVE_INTEGER);
	ck_assert(value_as_int(&v, &number) && number == -1);
	v = value_int(0);
	ck_assert_int_eq(v.type, MSGPACK_OBJECT_POSITIVE_INTEGER);
	v = value_int(INT64_MIN);
	ck_assert(value_as_int(&v, &number) && number == INT64_MIN);
	v = value_int(INT64_MAX);
	ck_assert(value_as_int(&v, &number) && number == INT64_MAX);
	v = value_double(1);
	ck_assert(!value_as_int(&v, &number));
	v = value_text(STR_NONE);
	ck_assert_str_slice(value_as_str(&v), STR(""));
	ck_assert_ptr_nonnull(value_as_str(&v).ptr);
	v = value_bytes(STR("\0x"));
	ck_assert_uint_eq(value_as_str(&v).len, 2);
	v = value_nil();
	ck_assert(value_is_nil(&v));
	ck_assert_ptr_null(value_as_str(&v).ptr);
	v = value_map(&arena, 0);
	ck_assert_ptr_null(value_get(&v, STR("a")));
	ck_assert_ptr_null(value_get(NULL, STR("a")));
}
END_TEST

START_TEST(get_finds_members)
{
	msgpack_object map = value_map(&arena, 2);
	const msgpack_object *found;

	map.via.map.ptr[0] = (msgpack_object_kv){value_text(STR("a")), value_int(1)};
	map.via.map.ptr[1] = (msgpack_object_kv){value_text(STR("")), value_int(2)};
	found = value_get(&map, STR(""));
	ck_assert_ptr_nonnull(found);
	ck_assert_uint_eq(found->via.u64, 2);
	ck_assert_ptr_null(value_get(&map, STR("b")));
}
END_TEST

START_TEST(equality_is_by_type_and_bits)
{
	const msgpack_object all[] = {
		value_nil(),          value_bool(false),
		value_bool(true),     value_int(1),
		value_double(1.0),    value_int(0),
		value_int(-1),        value_double(0.0),
		value_double(-0.0),   value_double((double)NAN),
		value_text(STR("")),  value_bytes(STR("")),
		value_text(STR("a")), value_array(&arena, 0),
		value_map(&arena, 0),
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		for (size_t j = 0; j < ARRAY_LEN(all); j++)
			ck_assert_msg(value_equal(&all[i], &all[j]) == (i == j), "%zu and %zu", i,
				      j);
}
END_TEST

START_TEST(equality_looks_at_order_of_keys)
{
	msgpack_object a = value_map(&arena, 2);
	msgpack_object b = value_map(&arena, 2);

	a.via.map.ptr[0] = b.via.map.ptr[1] = (msgpack_object_kv){value_text(STR("x")),
								  value_nil()};
	a.via.map.ptr[1] = b.via.map.ptr[0] = (msgpack_object_kv){value_text(STR("y")),
								  value_nil()};
	ck_assert(value_equal(&a, &a));
	ck_assert(!value_equal(&a, &b));
}
END_TEST

/* Whatever the value: a copy equals it and shares nothing, its packed form has the size told and gives it back. */
START_TEST(any_value_survives_copy_and_packing)
{
	struct value_limits limits = VALUE_LIMITS_OWN;

	for (uint64_t seed = 1; seed <= 2000; seed++) {
		struct random_source random = {seed};
		struct arena source, target;
		struct buf packed = BUF_INIT, again = BUF_INIT;
		struct error err = ERROR_INIT;
		msgpack_object value, copy, back;

		arena_init(&source);
		arena_init(&target);
		value = random_value(&random, &source, 5, true);
		copy = value_copy(&target, &value);
		ck_assert_msg(value_equal(&value, &copy), "seed %llu", (unsigned long long)seed);
		value_pack(&value, &packed);
		ck_assert_msg(packed.len == value_size(&value), "seed %llu: %zu, told %zu",
			      (unsigned long long)seed, packed.len, value_size(&value));
		arena_done(&source); /* the copy must stand alone */
		value_pack(&copy, &again);
		ck_assert(str_equal(buf_str(&packed), buf_str(&again)));
		ck_assert_msg(value_unpack(&target, buf_str(&packed), seed % 2, &limits, &back,
					   &err) == RESULT_OK,
			      "seed %llu: %s", (unsigned long long)seed, err.text);
		ck_assert_msg(value_equal(&copy, &back), "seed %llu", (unsigned long long)seed);
		buf_done(&packed);
		buf_done(&again);
		arena_done(&target);
	}
}
END_TEST

/* An array around an array around …, far deeper than the readers take. */
static msgpack_object nested(unsigned depth)
{
	msgpack_object value = value_int(7);

	for (unsigned i = 0; i < depth; i++) {
		msgpack_object outer = value_array(&arena, 1);

		outer.via.array.ptr[0] = value;
		value = outer;
	}
	return value;
}

START_TEST(deep_values_need_no_stack)
{
	msgpack_object value = nested(1000000);
	msgpack_object copy = value_copy(&arena, &value);
	struct buf out = BUF_INIT;
	struct error err = ERROR_INIT;

	ck_assert(value_equal(&value, &copy));
	ck_assert_uint_eq(value_size(&value), 1000001);
	value_pack(&value, &out);
	ck_assert_uint_eq(out.len, 1000001);
	buf_reset(&out);
	ck_assert_int_eq(value_json_write(&value, &out, &err), RESULT_OK);
	ck_assert_uint_eq(out.len, 2000001);
	buf_reset(&out);
	value_print(&value, 10, &out);
	ck_assert_str_slice(buf_str(&out), STR("[[[[[[[[[[…"));
	buf_done(&out);
}
END_TEST

static void check_print(const msgpack_object *value, size_t max, struct str want)
{
	struct buf out = BUF_INIT;

	buf_add_text(&out, ">");
	value_print(value, max, &out);
	ck_assert_str_slice(str_make(out.data + 1, out.len - 1), want);
	buf_done(&out);
}

START_TEST(print_is_short_and_never_fails)
{
	msgpack_object map = value_map(&arena, 3), v;
	char *big;

	map.via.map.ptr[0] = (msgpack_object_kv){value_text(STR("a")), value_double((double)NAN)};
	map.via.map.ptr[1] = (msgpack_object_kv){value_text(STR("b")), value_bytes(STR("\xff"))};
	map.via.map.ptr[2] = (msgpack_object_kv){value_text(STR("c")),
						 value_double(-(double)INFINITY)};
	check_print(&map, SIZE_MAX, STR("{\"a\":NaN,\"b\":\"/w==\",\"c\":-Infinity}"));
	check_print(&map, 36, STR("{\"a\":NaN,\"b\":\"/w==\",\"c\":-Infinity}"));
	check_print(&map, 8, STR("{\"a\":NaN…"));
	check_print(&map, 0, STR("…"));
	v = value_text(STR("äöü"));
	check_print(&v, 8, STR("\"äöü\""));
	check_print(&v, 7, STR("\"äöü…"));
	check_print(&v, 6, STR("\"äö…"));
	check_print(&v, 5, STR("\"äö…"));
	v = value_text(STR("😀😀"));
	for (size_t max = 1; max < 5; max++)
		check_print(&v, max, STR("\"…"));
	check_print(&v, 5, STR("\"😀…"));

	big = malloc(50000000);
	memset(big, 'x', 50000000);
	v = value_text(str_make(big, 50000000));
	check_print(&v, 5, STR("\"xxxx…"));
	v = value_bytes(str_make(big, 50000000));
	check_print(&v, 5, STR("\"eHh4…"));
	free(big);
}
END_TEST

START_TEST(base64_both_ways)
{
	static const struct {
		struct str bytes, text;
	} good[] = {
		{STR(""), STR("")},
		{STR("f"), STR("Zg==")},
		{STR("fo"), STR("Zm8=")},
		{STR("foo"), STR("Zm9v")},
		{STR("foob"), STR("Zm9vYg==")},
		{STR("\xff\xfe\xfd"), STR("//79")},
		{STR("\0\0"), STR("AAA=")},
		{STR("\xfb\xef\xbe"), STR("++++")},
	};
	static const char *const bad[] = {"Z",      "Zg",       "Zg=",  "Zh==", "Zm9=",
					  "====",   "Zg==Zg==", "Z===", "Zm 9", "Zm-_",
					  "Zm9v\n", "=Zg=",     "Zg=a"};
	struct str got;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct buf out = BUF_INIT;

		base64_encode(good[i].bytes, &out);
		ck_assert_str_slice(buf_str(&out), good[i].text);
		buf_done(&out);
		ck_assert(base64_decode(&arena, good[i].text, &got));
		ck_assert(str_equal(got, good[i].bytes));
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!base64_decode(&arena, str_of(bad[i]), &got), "%s", bad[i]);
}
END_TEST

START_TEST(doubles_print_shortest)
{
	static const struct {
		double v;
		const char *text;
	} cases[] = {
		{0.0, "0.0"},
		{-0.0, "-0.0"},
		{1.0, "1.0"},
		{-1.5, "-1.5"},
		{0.1, "0.1"},
		{0.3, "0.3"},
		{0.1 + 0.2, "0.30000000000000004"},
		{100, "100.0"},
		{1e14, "100000000000000.0"},
		{1e15, "1000000000000000.0"},
		{1e16, "10000000000000000.0"},
		{1e17, "1e+17"},
		{1.5e300, "1.5e+300"},
		{0.00001, "0.00001"},
		{0.000001, "1e-06"},
		{1.25e-7, "1.25e-07"},
		{5e-324, "5e-324"},
		{DBL_MAX, "1.7976931348623157e+308"},
		{DBL_MIN, "2.2250738585072014e-308"},
		{9007199254740993.0, "9007199254740992.0"},
		{0x1p-44, "5.684341886080802e-14"},
		{123456.789, "123456.789"},
		{9.5367431640625e-07, "9.5367431640625e-07"},
	};
	char text[VALUE_DOUBLE_SIZE];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ck_assert_str_eq(value_double_format(cases[i].v, text), cases[i].text);
		/* What the table says is the same number. */
		double back = strtod(text, NULL);

		ck_assert_msg(memcmp(&back, &cases[i].v, sizeof(back)) == 0, "%s", text);
	}
}
END_TEST

START_TEST(no_double_has_a_shorter_form)
{
	struct random_source random = {20261130};

	for (int i = 0; i < 200000; i++) {
		double v = random_double(&random), back;
		char text[VALUE_DOUBLE_SIZE], other[64];
		int digits = 0;
		bool leading = true;

		value_double_format(v, text);
		back = strtod(text, NULL);
		ck_assert_msg(memcmp(&back, &v, sizeof(v)) == 0, "%.17g gave %s", v, text);
		if (i % 8 || fabs(v) < 1e17)
			continue;
		/* In exponential form every digit counts: one fewer must not do. */
		for (const char *p = text; *p && *p != 'e'; p++) {
			leading = leading && (*p == '0' || *p == '.' || *p == '-');
			digits += *p >= '0' && *p <= '9' && !leading;
		}
		if (digits > 1) {
			snprintf(other, sizeof(other), "%.*e", digits - 2, v);
			ck_assert_msg(strtod(other, NULL) != v, "%s is longer than %s", text,
				      other);
		}
	}
}
END_TEST

static Suite *value_suite(void)
{
	Suite *suite = suite_create("value");
	TCase *tcase = tcase_create("value");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	TEST_ADD_ALL(tcase, makers_give_the_documented_types, get_finds_members,
		     equality_is_by_type_and_bits, equality_looks_at_order_of_keys,
		     any_value_survives_copy_and_packing, deep_values_need_no_stack,
		     print_is_short_and_never_fails, base64_both_ways, doubles_print_shortest,
		     no_double_has_a_shorter_form);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(value_suite)
