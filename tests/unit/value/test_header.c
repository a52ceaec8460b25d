/* SPDX-License-Identifier: Apache-2.0 */
#include "value/header.h"

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

static struct header_list sample(void)
{
	struct header_list headers = {arena_alloc(&arena, 7 * sizeof(struct header)), 7};

	headers.items[0] = (struct header){STR("Type"), value_text(STR("first"))};
	headers.items[1] = (struct header){STR("count"), value_int(-5)};
	headers.items[2] = (struct header){STR("flag"), value_bool(true)};
	headers.items[3] = (struct header){STR("type"), value_text(STR("last"))};
	headers.items[4] = (struct header){STR("raw"), value_bytes(STR("\xff\0"))};
	headers.items[5] = (struct header){STR("none"), value_nil()};
	headers.items[6] = (struct header){STR("list"), value_array(&arena, 0)};
	return headers;
}

START_TEST(find_takes_the_last_without_case)
{
	struct header_list headers = sample();
	struct header_list none = {NULL, 0};

	ck_assert_ptr_eq(header_find(&headers, STR("TYPE")), &headers.items[3]);
	ck_assert_ptr_null(header_find(&headers, STR("typ")));
	ck_assert_ptr_null(header_find(&none, STR("type")));
}
END_TEST

START_TEST(text_of_each_type)
{
	struct header_list headers = sample();

	ck_assert_str_slice(header_text(&arena, &headers, STR("type")), STR("last"));
	ck_assert_str_slice(header_text(&arena, &headers, STR("count")), STR("-5"));
	ck_assert_str_slice(header_text(&arena, &headers, STR("flag")), STR("true"));
	ck_assert_str_slice(header_text(&arena, &headers, STR("raw")), STR("\xff\0"));
	ck_assert_ptr_null(header_text(&arena, &headers, STR("none")).ptr);
	ck_assert_ptr_null(header_text(&arena, &headers, STR("list")).ptr);
	ck_assert_ptr_null(header_text(&arena, &headers, STR("absent")).ptr);
}
END_TEST

static void check_equal(const struct header_list *a, const struct header_list *b)
{
	ck_assert_uint_eq(a->count, b->count);
	for (size_t i = 0; i < a->count; i++) {
		ck_assert_str_slice(a->items[i].name, b->items[i].name);
		ck_assert(value_equal(&a->items[i].value, &b->items[i].value));
	}
}

START_TEST(packed_lists_come_back)
{
	static const size_t counts[] = {0, 1, 15, 16, 17, 300, 70000};

	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		struct random_source random = {i + 1};
		struct header_list headers = {
			arena_alloc(&arena, (counts[i] + 1) * sizeof(struct header)), counts[i]};
		struct header_list back, copy;
		struct buf packed = BUF_INIT;

		for (size_t k = 0; k < counts[i]; k++) {
			headers.items[k].name = k % 5 ? str_of(arena_printf(&arena, "h%zu", k / 2))
						      : STR("\xff no text");
			headers.items[k].value = random_value(&random, &arena, 1, true);
		}
		headers_pack(&headers, &packed);
		ck_assert_msg(headers_unpack(&arena, buf_str(&packed), &back, &err) == RESULT_OK,
			      "%s", err.text);
		buf_done(&packed); /* the list must not point there */
		check_equal(&headers, &back);
		copy = headers_copy(&arena, &back);
		check_equal(&headers, &copy);
	}
}
END_TEST

START_TEST(what_is_no_list_is_rejected)
{
	static const struct str cases[] = {
		STR_NONE,
		STR(""),
		STR("\xc0"),
		STR("\x80"),
		STR("\x91\x01"),
		STR("\x91\x90"),
		STR("\x91\x91\xa1x"),
		STR("\x91\x92\x01\x01"),
		STR("\x91\x93\xa1x\x01\x01"),
		STR("\x91\x92\xa1x"),
		STR("\xdd\xff\xff\xff\xff"),
		STR("\x90\x90"),
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct header_list out = {NULL, 42};

		err = ERROR_INIT;
		ck_assert_msg(headers_unpack(&arena, cases[i], &out, &err) == RESULT_REJECT, "%zu",
			      i);
		ck_assert_int_eq(err.code, CODE_PARSE_MSGPACK);
		ck_assert_uint_eq(out.count, 42);
	}
}
END_TEST

static Suite *header_suite(void)
{
	Suite *suite = suite_create("header");
	TCase *tcase = tcase_create("header");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, find_takes_the_last_without_case, text_of_each_type,
		     packed_lists_come_back, what_is_no_list_is_rejected);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(header_suite)
