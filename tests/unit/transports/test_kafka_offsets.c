/* SPDX-License-Identifier: Apache-2.0 */
/* The offset tracker: by example, and against a model that knows every offset. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/testing.h"
#include "transports/kafka/offsets.h"

START_TEST(test_empty)
{
	struct offsets offsets;

	offsets_init(&offsets);
	ck_assert_int_eq(offsets_watermark(&offsets), -1);
	ck_assert_int_eq(offsets_span(&offsets), 0);
	offsets_done(&offsets);
}
END_TEST

START_TEST(test_watermark_waits_for_the_lowest)
{
	struct offsets offsets;

	offsets_init(&offsets);
	for (int64_t i = 10; i < 15; i++)
		ck_assert_int_eq(offsets_add(&offsets, i), OFFSETS_NEW);
	offsets_finish(&offsets, 12);
	offsets_finish(&offsets, 14);
	ck_assert_int_eq(offsets_watermark(&offsets), 10);
	ck_assert_int_eq(offsets_span(&offsets), 5);
	offsets_finish(&offsets, 10);
	ck_assert_int_eq(offsets_watermark(&offsets), 11);
	offsets_finish(&offsets, 11);
	ck_assert_int_eq(offsets_watermark(&offsets), 13);
	offsets_finish(&offsets, 13);
	ck_assert_int_eq(offsets_watermark(&offsets), 15);
	ck_assert_int_eq(offsets_span(&offsets), 0);
	offsets_done(&offsets);
}
END_TEST

START_TEST(test_holes_are_nobodys)
{
	struct offsets offsets;

	offsets_init(&offsets);
	ck_assert_int_eq(offsets_add(&offsets, 5), OFFSETS_NEW);
	ck_assert_int_eq(offsets_add(&offsets, 100), OFFSETS_NEW);
	ck_assert_int_eq(offsets_add(&offsets, 1000000), OFFSETS_NEW);
	offsets_finish(&offsets, 100);
	ck_assert_int_eq(offsets_watermark(&offsets), 5);
	offsets_finish(&offsets, 5);
	ck_assert_int_eq(offsets_watermark(&offsets), 1000000);
	offsets_finish(&offsets, 1000000);
	ck_assert_int_eq(offsets_watermark(&offsets), 1000001);
	offsets_done(&offsets);
}
END_TEST

START_TEST(test_going_back)
{
	struct offsets offsets;

	offsets_init(&offsets);
	for (int64_t i = 7; i < 12; i += 2)
		ck_assert_int_eq(offsets_add(&offsets, i), OFFSETS_NEW);
	ck_assert_int_eq(offsets_add(&offsets, 9), OFFSETS_AGAIN);
	ck_assert_int_eq(offsets_add(&offsets, 3), OFFSETS_BELOW);
	offsets_finish(&offsets, 9);
	ck_assert_int_eq(offsets_add(&offsets, 9), OFFSETS_AGAIN);
	/* One that seemed a hole is in the way from now on. */
	ck_assert_int_eq(offsets_add(&offsets, 8), OFFSETS_NEW);
	offsets_finish(&offsets, 7);
	ck_assert_int_eq(offsets_watermark(&offsets), 8);
	offsets_finish(&offsets, 8);
	ck_assert_int_eq(offsets_watermark(&offsets), 11);
	ck_assert_int_eq(offsets_add(&offsets, 9), OFFSETS_BELOW);
	offsets_finish(&offsets, 11);
	ck_assert_int_eq(offsets_watermark(&offsets), 12);
	ck_assert_int_eq(offsets_add(&offsets, 11), OFFSETS_BELOW);
	offsets_done(&offsets);
}
END_TEST

/* --- the model: one byte an offset --- */

#define MODEL 4000
enum { UNSEEN, UNFINISHED, FINISHED };

static int64_t model_watermark(const char *model)
{
	int64_t last = -1;

	for (int64_t i = 0; i < MODEL; i++) {
		if (model[i] == UNFINISHED)
			return i;
		if (model[i] == FINISHED)
			last = i + 1;
	}
	return last;
}

static void model_run(unsigned seed, unsigned hole_chance, unsigned finish_chance)
{
	char model[MODEL] = {0};
	struct offsets offsets;
	int64_t next = (int64_t)(seed % 50);
	unsigned state = seed;
	int64_t unfinished = 0;

	offsets_init(&offsets);
	while (next < MODEL - 20 || unfinished) {
		unsigned draw = (unsigned)rand_r(&state) % 100;

		if (next < MODEL - 20 && draw >= finish_chance) {
			if ((unsigned)rand_r(&state) % 100 < hole_chance)
				next += rand_r(&state) % 12;
			ck_assert_int_eq(offsets_add(&offsets, next), OFFSETS_NEW);
			model[next++] = UNFINISHED;
			unfinished++;
		} else if (unfinished) {
			int64_t pick = rand_r(&state) % unfinished, at = 0;

			for (;; at++)
				if (model[at] == UNFINISHED && pick-- == 0)
					break;
			offsets_finish(&offsets, at);
			model[at] = FINISHED;
			unfinished--;
		}
		ck_assert_int_eq(offsets_watermark(&offsets), model_watermark(model));
		if (offsets.any)
			ck_assert_int_eq(offsets_span(&offsets), next - model_watermark(model));
	}
	ck_assert_uint_eq(offsets.count, 0);
	offsets_done(&offsets);
}

START_TEST(test_model)
{
	model_run((unsigned)_i + 1, (unsigned)_i % 4 * 10, 20 + (unsigned)_i % 5 * 12);
}
END_TEST

static Suite *offsets_suite(void)
{
	Suite *suite = suite_create("kafka offsets");
	TCase *tcase = tcase_create("offsets");

	TEST_ADD_ALL(tcase, test_empty, test_watermark_waits_for_the_lowest, test_holes_are_nobodys,
		     test_going_back);
	tcase_add_loop_test(tcase, test_model, 0, 20);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(offsets_suite)
