/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"

#include "base/loop.h"
#include "base/time.h"
#include "tests/support/testing.h"

struct fixed_loop {
	struct loop base;
	int64_t wall_us;
	uint64_t random;
};

static int64_t fixed_wall(struct loop *loop)
{
	return container_of(loop, struct fixed_loop, base)->wall_us;
}

static uint64_t fixed_random(struct loop *loop)
{
	return container_of(loop, struct fixed_loop, base)->random;
}

static const struct loop_ops fixed_ops = {.wall_us = fixed_wall, .random = fixed_random};

START_TEST(new_is_a_uuid_of_version_7)
{
	struct fixed_loop loop = {.wall_us = INT64_C(0x0123456789ab) * US_PER_MS + 999, .random = UINT64_MAX};
	char text[ID_TEXT_SIZE];
	struct id first, second;

	loop_base_init(&loop.base, NULL, &fixed_ops, "fixed");
	first = id_new(&loop.base);
	ck_assert_str_eq(id_format(first, text), "01234567-89ab-7fff-bfff-ffffffffffff");
	loop.random = 0;
	ck_assert_str_eq(id_format(id_new(&loop.base), text), "01234567-89ab-7000-8000-000000000000");
	loop.wall_us += US_PER_MS;
	second = id_new(&loop.base);
	ck_assert_int_gt(id_compare(second, first), 0);
}
END_TEST

START_TEST(text_and_back)
{
	static const char *const bad[] = {"",
					  "01234567-89ab-7fff-bfff-fffffffffff",
					  "01234567-89ab-7fff-bfff-fffffffffffff",
					  "0123456789ab-7fff-bfff-ffffffffffff-",
					  "01234567-89ab-7fff-bfff-fffffffffffg",
					  "{1234567-89ab-7fff-bfff-ffffffffffff"};
	char text[ID_TEXT_SIZE];
	struct id id = ID_NONE;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert(!id_parse(str_of(bad[i]), &id));
	ck_assert(id_is_none(id));
	ck_assert(id_parse(STR("01234567-89AB-7fff-BFFF-0123456789ab"), &id));
	ck_assert_str_eq(id_format(id, text), "01234567-89ab-7fff-bfff-0123456789ab");
	ck_assert(!id_is_none(id));
	ck_assert_uint_eq(id_str(&id).len, 16);
}
END_TEST

START_TEST(digest_tells_parts_apart)
{
	struct id a = id_digest_of(STR("ab"), STR("c")), b = id_digest_of(STR("a"), STR("bc"));
	struct id one = id_digest_of(STR("abc"));
	char text[ID_TEXT_SIZE];
	static char large[5000];

	ck_assert(!id_equal(a, b));
	ck_assert(!id_equal(a, one));
	ck_assert(id_equal(a, id_digest_of(STR("ab"), STR("c"))));
	ck_assert(!id_equal(id_digest_of(STR("")), id_digest_of(STR(""), STR(""))));
	/* Stored in databases: it may never change. */
	ck_assert_str_eq(id_format(a, text), "601d5476-e2cc-8e2c-87a2-bba7a3226597");
	memset(large, 'x', sizeof(large));
	ck_assert_str_eq(id_format(id_digest_of(STR("acme"), str_make(large, sizeof(large))), text), "e8a02a3f-00b4-8ad1-ae19-5972fd6e6135");
}
END_TEST

START_TEST(sha256_of_known_texts)
{
	char hex[65];

	sha256_hex(STR(""), hex);
	ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_hex(STR_NONE, hex);
	ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_hex(STR("abc"), hex);
	ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
END_TEST

static Suite *id_suite(void)
{
	Suite *suite = suite_create("base/id");
	TCase *tcase = tcase_create("id");

	TEST_ADD_ALL(tcase, new_is_a_uuid_of_version_7, text_and_back, digest_tells_parts_apart,
		     sha256_of_known_texts);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(id_suite)
