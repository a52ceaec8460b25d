/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>

#include "tests/support/testing.h"

START_TEST(alloc_is_aligned_for_any_type)
{
	struct arena arena;

	arena_init(&arena);
	for (size_t size = 0; size < 20000; size = size * 2 + 1) {
		char *ptr = arena_alloc(&arena, size);

		ck_assert_uint_eq((uintptr_t)ptr % alignof(max_align_t), 0);
		memset(ptr, 0xa5, size);
		msgpack_zone_malloc_no_align(&arena.zone, 3);
	}
	arena_done(&arena);
}
END_TEST

START_TEST(blocks_do_not_overlap)
{
	struct arena arena;
	unsigned char *blocks[500];

	arena_init(&arena);
	for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
		blocks[i] = arena_alloc(&arena, i % 97 + 1);
		memset(blocks[i], (int)(i & 0xff), i % 97 + 1);
	}
	for (size_t i = 0; i < ARRAY_LEN(blocks); i++)
		for (size_t at = 0; at <= i % 97; at++)
			ck_assert_uint_eq(blocks[i][at], i & 0xff);
	arena_done(&arena);
}
END_TEST

START_TEST(zalloc_clears_used_memory)
{
	struct arena arena;
	unsigned char *ptr;

	arena_init(&arena);
	memset(arena_alloc(&arena, 1000), 0xff, 1000);
	arena_reset(&arena);
	ptr = arena_zalloc(&arena, 1000);
	for (size_t i = 0; i < 1000; i++)
		ck_assert_uint_eq(ptr[i], 0);
	arena_done(&arena);
}
END_TEST

START_TEST(reset_keeps_the_first_chunk)
{
	struct arena arena;
	void *first;

	arena_init(&arena);
	first = arena_alloc(&arena, 64);
	memset(arena_alloc(&arena, 100000), 1, 100000);
	arena_reset(&arena);
	ck_assert_ptr_eq(arena_alloc(&arena, 64), first);
	arena_done(&arena);
}
END_TEST

START_TEST(done_accepts_zero_and_leaves_zero)
{
	struct arena arena = {0};

	arena_done(&arena);
	arena_init(&arena);
	arena_done(&arena);
	ck_assert_ptr_null(arena.zone.chunk_list.head);
	arena_done(&arena);
}
END_TEST

START_TEST(try_alloc_refuses_the_impossible)
{
	struct arena arena;

	arena_init(&arena);
	ck_assert_ptr_null(arena_try_alloc(&arena, SIZE_MAX));
	ck_assert_ptr_null(arena_try_alloc(&arena, SIZE_MAX / 2));
	ck_assert_ptr_nonnull(arena_try_alloc(&arena, 10));
	arena_done(&arena);
}
END_TEST

START_TEST(copies_are_terminated)
{
	struct arena arena;
	struct str copy;
	char long_text[9000];

	arena_init(&arena);
	ck_assert_str_eq(arena_strdup(&arena, "lane"), "lane");
	copy = arena_str(&arena, STR("claim"));
	ck_assert_str_eq(copy.ptr, "claim");
	ck_assert_uint_eq(copy.len, 5);
	copy = arena_str(&arena, STR(""));
	ck_assert_ptr_nonnull(copy.ptr);
	ck_assert_ptr_null(arena_str(&arena, STR_NONE).ptr);
	ck_assert_mem_eq(arena_memdup(&arena, "a\0b", 3), "a\0b", 3);
	ck_assert_ptr_nonnull(arena_memdup(&arena, NULL, 0));

	ck_assert_str_eq(arena_printf(&arena, "%s-%d", "lane", 7), "lane-7");
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	ck_assert_str_eq(arena_printf(&arena, "%s", long_text), long_text);
	arena_done(&arena);
}
END_TEST

static Suite *arena_suite(void)
{
	Suite *suite = suite_create("base/arena");
	TCase *tcase = tcase_create("arena");

	TEST_ADD_ALL(tcase, alloc_is_aligned_for_any_type, blocks_do_not_overlap, zalloc_clears_used_memory,
		     reset_keeps_the_first_chunk, done_accepts_zero_and_leaves_zero,
		     try_alloc_refuses_the_impossible, copies_are_terminated);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(arena_suite)
