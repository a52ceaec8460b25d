/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <stdio.h>

#include "tests/support/testing.h"

#define MANY 5000

static struct str key_of(char text[static 16], int i)
{
	return str_make(text, (size_t)snprintf(text, 16, "key-%d", i));
}

START_TEST(zero_is_empty)
{
	struct map map = {0};

	ck_assert_ptr_null(map_get(&map, STR("x")));
	ck_assert_ptr_null(map_remove(&map, STR("x")));
	ck_assert_ptr_null(map_first(&map));
	map_done(&map);
}
END_TEST

START_TEST(put_get_replace_remove)
{
	struct map map;
	int a, b;

	map_init(&map);
	ck_assert_ptr_null(map_put(&map, STR("x"), &a));
	ck_assert_ptr_eq(map_put(&map, STR("x"), &b), &a);
	ck_assert_ptr_eq(map_get(&map, STR("x")), &b);
	ck_assert_uint_eq(map.count, 1);
	ck_assert_ptr_null(map_put(&map, STR(""), &a));
	ck_assert_ptr_null(map_put(&map, STR("x\0y"), &a));
	ck_assert_ptr_eq(map_get(&map, STR_NONE), &a);
	ck_assert_ptr_eq(map_remove(&map, STR("x")), &b);
	ck_assert_ptr_null(map_get(&map, STR("x")));
	ck_assert_ptr_eq(map_get(&map, STR("x\0y")), &a);
	map_done(&map);
}
END_TEST

START_TEST(order_is_of_insertion)
{
	static int values[MANY];
	struct map map = {0};
	char text[16];
	int expect = 1;

	for (int i = 0; i < MANY; i++)
		ck_assert_ptr_null(map_put(&map, key_of(text, i), &values[i]));
	for (int i = 0; i < MANY; i += 2)
		ck_assert_ptr_eq(map_remove(&map, key_of(text, i)), &values[i]);
	ck_assert_uint_eq(map.count, MANY / 2);
	for (struct map_entry *entry = map_first(&map); entry; entry = map_next(&map, entry)) {
		ck_assert_ptr_eq(entry->value, &values[expect]);
		ck_assert_str_slice(str_make(entry->key, entry->key_len), key_of(text, expect));
		ck_assert_ptr_eq(map_get(&map, key_of(text, expect)), &values[expect]);
		expect += 2;
	}
	ck_assert_int_eq(expect, MANY + 1);
	/* Emptied and used again. */
	for (int i = 1; i < MANY; i += 2)
		map_remove(&map, key_of(text, i));
	ck_assert_ptr_null(map_first(&map));
	map_put(&map, STR("again"), &values[0]);
	ck_assert_ptr_eq(map_first(&map)->value, &values[0]);
	ck_assert_ptr_null(map_next(&map, map_first(&map)));
	map_done(&map);
}
END_TEST

/* Lanes are found by it: a changed hash would send the work of an instance to another lane after an update. */
START_TEST(hash_never_changes)
{
	ck_assert_uint_eq(hash_bytes("", 0), UINT64_C(0xefd01f60ba992926));
	ck_assert_uint_eq(hash_bytes("order-4711", 10), UINT64_C(0x140f65d68b879ec1));
}
END_TEST

static Suite *map_suite(void)
{
	Suite *suite = suite_create("base/map");
	TCase *tcase = tcase_create("map");

	TEST_ADD_ALL(tcase, zero_is_empty, put_get_replace_remove, order_is_of_insertion, hash_never_changes);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(map_suite)
