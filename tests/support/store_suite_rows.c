/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second half of the suite: statements beside the path, that is the outbox, leases, sweeps, deployments and lists.
 */
#include <stdio.h>

#include "tests/support/store_suite_private.h"

/* --- outbox --- */

/* A spawn with `count` rows on channel "out". */
static void given_rows(const char *tenant, uint32_t n, uint32_t count)
{
	struct store_commit commit;

	rig_spawn(&suite_rig, &commit, tenant, test_id(n));
	for (uint32_t i = 0; i < count; i++)
		commit_send(&suite_rig, &commit, "out", "body");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

static const struct rows *scan(const char *owner, int64_t limit)
{
	return rig_query(&suite_rig, NULL, true, STATEMENT_OUTBOX_SCAN, owner, limit);
}

static const struct rows *load(const char *tenant, uint32_t n, int64_t ordinal, const char *owner)
{
	char list[32];

	snprintf(list, sizeof(list), ",%s,", tenant);
	return rig_query(&suite_rig, list, false, STATEMENT_OUTBOX_LOAD, tenant, test_id(n), "out",
			 INT64_C(1), ordinal, owner);
}

static void row_fail(uint32_t n, int64_t ordinal, int64_t delay_ms, bool poisoned, bool keep_claim,
		     const char *owner)
{
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_FAIL, "a", test_id(n), "out",
		  INT64_C(1), ordinal, INT64_C(3), delay_ms, "{\"code\":\"X\"}", (int)poisoned,
		  (int)keep_claim, owner);
}

static const struct rows *next_row(uint32_t n, const char *owner)
{
	return rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_CLAIM_NEXT, "a", test_id(n),
			 "out", owner);
}

/* As a publisher does that has no room for what stands behind a row of its own. */
static void free_next(void)
{
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_FREE_NEXT, "a", test_id(1), "out");
}

static void row_delete(uint32_t n, int64_t ordinal, const char *owner)
{
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_DELETE, "a", test_id(n), "out",
		  INT64_C(1), ordinal, owner);
}

START_TEST(outbox_rows_come_claimed_and_whole)
{
	struct store_commit commit;
	const struct rows *rows;
	const struct field *f;

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_send(&suite_rig, &commit, "out", "hello");
	commit_send(&suite_rig, &commit, "other", NULL);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(commit.outbox[0].claimed && commit.outbox[1].claimed);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	rows = load("a", 1, 0, "boot-1");
	ck_assert_uint_eq(rows->row_count, 1);
	f = rows_at(rows, 0, 0);
	ck_assert_str_slice(f[0].str, STR("a"));
	ck_assert(id_equal(f[1].id, test_id(1)));
	ck_assert_str_slice(f[2].str, STR("out"));
	ck_assert_int_eq(f[3].i, 1);
	ck_assert_int_eq(f[4].i, 0);
	ck_assert(id_equal(f[5].id, commit.outbox[0].id));
	ck_assert_str_slice(f[6].str, STR("d1"));
	ck_assert(f[7].is_null && f[8].is_null && f[9].is_null);
	ck_assert_str_slice(f[10].str, STR("key-1"));
	ck_assert_str_slice(f[11].str, STR("\x80"));
	ck_assert_str_slice(f[12].str, STR("text/plain"));
	ck_assert_str_slice(f[13].str, STR("hello"));
	ck_assert(f[14].b);
	ck_assert_int_eq(f[15].i, 0);
	ck_assert(!f[16].is_null);
	ck_assert_uint_eq(load("a", 1, 0, "boot-2")->row_count, 0);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LOAD, "a", test_id(1), "other",
			 INT64_C(1), INT64_C(1), "boot-1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(rows_at(rows, 0, 13)->is_null);
}
END_TEST

START_TEST(outbox_row_behind_another_owner_is_not_claimed)
{
	struct store_commit commit;

	given_rows("a", 1, 1);
	suite_reopen(suite_settings_now(60000, "boot-2"));
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_send(&suite_rig, &commit, "out", "second");
	commit_send(&suite_rig, &commit, "other", "free");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(!commit.outbox[0].claimed);
	ck_assert(commit.outbox[1].claimed);
	/* Behind its head it is not found by a scan either; then it is. */
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	row_delete(1, 0, "boot-2");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	row_delete(1, 0, "boot-1");
	free_next();
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 1);
}
END_TEST

/* Step `version` of instance 1 sends a row on "out"; whether it is committed claimed. */
static bool sends_claimed(int64_t version)
{
	struct store_commit commit;

	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", version - 1);
	commit_send(&suite_rig, &commit, "out", "more");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	return commit.outbox[0].claimed;
}

static void row_is(enum statement_id statement, int64_t version)
{
	rig_query(&suite_rig, ",a,", true, statement, "a", test_id(1), "out", version, INT64_C(0),
		  "boot-1");
}

/* What a step has found before its rows is remembered; what was in flight then still counts when it comes back. */
START_TEST(outbox_rows_in_flight_are_not_forgotten)
{
	given_rows("a", 1, 1);
	ck_assert(sends_claimed(2));
	ck_assert(sends_claimed(3));
	row_is(STATEMENT_OUTBOX_DELETE, 1);
	ck_assert(sends_claimed(4));
	ck_assert(sends_claimed(5));
	row_is(STATEMENT_OUTBOX_RELEASE, 2);
	ck_assert(!sends_claimed(6));
	ck_assert(!sends_claimed(7));
	free_next();
	ck_assert_uint_eq(scan("boot-1", LIMIT)->row_count, 1);
	for (int64_t version = 2; version <= 5; version++)
		row_is(STATEMENT_OUTBOX_DELETE, version);
	/* 6 stands there, and nobody's. */
	ck_assert(!sends_claimed(8));
	free_next();
	ck_assert_uint_eq(scan("boot-1", LIMIT)->row_count, 1);
	row_is(STATEMENT_OUTBOX_DELETE, 6);
	free_next();
	ck_assert_uint_eq(scan("boot-1", LIMIT)->row_count, 1);
	row_is(STATEMENT_OUTBOX_DELETE, 7);
	free_next();
	ck_assert_uint_eq(scan("boot-1", LIMIT)->row_count, 1);
	row_is(STATEMENT_OUTBOX_DELETE, 8);
	ck_assert(sends_claimed(9));
	ck_assert(sends_claimed(10));
}
END_TEST

/* Step `version` of instance 1 withdraws the row of the first step with this ordinal. */
static void withdraws(int64_t version, int64_t ordinal)
{
	const struct store_withdrawn withdrawn = {STR("out"), 1, ordinal};
	struct store_commit commit;

	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", version - 1);
	commit.withdrawn = &withdrawn;
	commit.withdrawn_count = 1;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

/* Whoever has them; what stands behind is found. */
START_TEST(outbox_rows_are_withdrawn)
{
	const struct rows *rows;

	given_rows("a", 1, 3);
	given_rows("a", 2, 1);
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out", INT64_C(1), INT64_C(1), "boot-1");
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out", INT64_C(1), INT64_C(2), "boot-1");
	withdraws(2, 0);
	ck_assert_uint_eq(load("a", 1, 0, "boot-1")->row_count, 0);
	rows = scan("boot-2", LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 1);
	row_fail(1, 1, 60000, true, false, "boot-2");
	withdraws(3, 1);
	/* Of another instance, or gone already: nothing. */
	withdraws(4, 1);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LIST, test_id(0), "", INT64_C(0), INT64_C(0), LIMIT);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert_uint_eq(load("a", 2, 0, "boot-1")->row_count, 1);
}
END_TEST

/* The fence has failed: nothing is withdrawn. */
START_TEST(outbox_rows_stay_with_a_failed_fence)
{
	const struct store_withdrawn withdrawn = {STR("out"), 1, 0};
	struct store_commit commit;

	given_rows("a", 1, 1);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "nobody", 1);
	commit.withdrawn = &withdrawn;
	commit.withdrawn_count = 1;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
	ck_assert_uint_eq(load("a", 1, 0, "boot-1")->row_count, 1);
}
END_TEST

/* A poisoned row stops nobody, until it is armed again. */
START_TEST(outbox_rows_that_are_poisoned_are_not_forgotten)
{
	struct id id;

	given_rows("a", 1, 1);
	id = rows_at(load("a", 1, 0, "boot-1"), 0, 5)->id;
	row_fail(1, 0, 0, true, false, "boot-1");
	ck_assert(sends_claimed(2));
	ck_assert(sends_claimed(3));
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_REARM, id, LIMIT);
	ck_assert(!sends_claimed(4));
}
END_TEST

static int64_t first_answered(int64_t version, int64_t floor)
{
	const struct rows *rows = rig_query(
		&suite_rig, ",a,", true, STATEMENT_OUTBOX_INSERT, INT64_C(0), "a", test_id(1),
		"out", version, INT64_C(0), outbox_row_id(test_id(1), version, 0), "d1",
		(const char *)NULL, (const char *)NULL, (const char *)NULL, (const char *)NULL,
		"\x80", "text/plain", "body", 1, floor, "boot-1");

	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 2)->i, version);
	return rows_at(rows, 0, 5)->i;
}

START_TEST(outbox_insert_tells_where_its_group_begins)
{
	given_rows("b", 2, 1);
	ck_assert_int_eq(first_answered(3, 0), 3);
	ck_assert_int_eq(first_answered(4, 3), 3);
	ck_assert_int_eq(first_answered(5, 0), 3);
	ck_assert_int_eq(first_answered(7, 4), 4);
	ck_assert_int_eq(first_answered(9, 9), 9);
	row_is(STATEMENT_OUTBOX_DELETE, 3);
	ck_assert_int_eq(first_answered(10, 3), 4);
}
END_TEST

START_TEST(outbox_without_an_owner_is_scanned)
{
	struct store_commit commit;
	const struct rows *rows;

	suite_reopen(suite_settings_now(60000, NULL));
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	for (int i = 0; i < 3; i++)
		commit_send(&suite_rig, &commit, "out", "body");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(!commit.outbox[0].claimed);
	/* Only the head; and nobody gets it twice. */
	rows = scan("boot-1", LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("a"));
	ck_assert(id_equal(rows_at(rows, 0, 1)->id, test_id(1)));
	ck_assert_str_slice(rows_at(rows, 0, 2)->str, STR("out"));
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 0);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	/* The next only when it is gone. */
	ck_assert_uint_eq(next_row(1, "boot-1")->row_count, 0);
	row_delete(1, 0, "boot-1");
	rows = next_row(1, "boot-1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 1);
	ck_assert_uint_eq(next_row(1, "boot-1")->row_count, 0);
	row_delete(1, 1, "boot-1");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 1);
	ck_assert_uint_eq(load("a", 1, 2, "boot-2")->row_count, 1);
}
END_TEST

START_TEST(outbox_scan_goes_round_the_tenants)
{
	const struct rows *rows;
	uint32_t modest = 0;

	suite_reopen(suite_settings_now(60000, NULL));
	for (uint32_t n = 1; n <= 10; n++)
		given_rows("greedy", n, 1);
	given_rows("modest", 11, 1);
	given_rows("modest", 12, 1);
	rows = scan("boot-1", 4);
	ck_assert_uint_eq(rows->row_count, 4);
	for (uint32_t i = 0; i < 4; i++)
		modest += str_equal(rows_at(rows, i, 0)->str, STR("modest"));
	ck_assert_uint_eq(modest, 2);
	ck_assert_uint_eq(scan("boot-1", LIMIT)->row_count, 8);
}
END_TEST

START_TEST(outbox_failure_waits_holds_back_and_poisons)
{
	const struct rows *rows;

	given_rows("a", 1, 3);
	/* With the claim kept it is ours still; a stranger's failure is none. */
	row_fail(1, 0, 3600000, false, true, "boot-2");
	ck_assert_int_eq(rows_at(load("a", 1, 0, "boot-1"), 0, 15)->i, 0);
	row_fail(1, 0, 3600000, false, true, "boot-1");
	ck_assert_int_eq(rows_at(load("a", 1, 0, "boot-1"), 0, 15)->i, 3);
	/* Given back it waits for its time, and holds back those behind it. */
	row_fail(1, 0, 3600000, false, false, "boot-1");
	row_fail(1, 1, 0, false, false, "boot-1");
	row_fail(1, 2, 0, false, false, "boot-1");
	ck_assert_uint_eq(scan("boot-1", LIMIT)->row_count, 0);
	ck_assert_uint_eq(next_row(1, "boot-1")->row_count, 0);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LIST, ID_NONE, "", INT64_C(0),
			 INT64_C(0), LIMIT);
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert_int_eq(rows_at(rows, 0, 6)->i, 3);
	ck_assert(rows_at(rows, 0, 8)->i > rows_at(rows, 0, 7)->i + INT64_C(3000000000));
	ck_assert(rows_at(rows, 0, 10)->is_null);
	ck_assert(!rows_at(rows, 0, 12)->is_null);
}
END_TEST

/* What a sweep counts on its way. */
static void check_counts(int64_t waiting, int64_t claimed, int64_t poisoned)
{
	const struct rows *rows = rig_query(&suite_rig, NULL, true, STATEMENT_OUTBOX_SWEEP, ID_NONE, "", INT64_C(0), INT64_C(0),
					    LIMIT, INT64_C(60000));

	ck_assert_int_eq(rows_at(rows, 0, 2)->i, waiting);
	ck_assert_int_eq(rows_at(rows, 0, 3)->i, claimed);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, poisoned);
	ck_assert(rows_at(rows, 0, 5)->is_null == (waiting + claimed == 0));
}

START_TEST(outbox_poisoned_head_holds_back_nobody)
{
	const struct rows *rows;

	given_rows("a", 1, 3);
	row_fail(1, 0, 0, true, false, "boot-1");
	row_fail(1, 1, 0, false, false, "boot-1");
	row_fail(1, 2, 0, false, false, "boot-1");
	check_counts(2, 0, 1);
	rows = scan("boot-2", LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 1);
	check_counts(1, 1, 1);
}
END_TEST

static const struct rows *rearm(const char *tenants, uint32_t n, int64_t ordinal)
{
	return rig_query(&suite_rig, tenants, true, STATEMENT_OUTBOX_REARM, outbox_row_id(test_id(n), 1, ordinal), LIMIT);
}

START_TEST(outbox_row_is_armed_again)
{
	const struct rows *rows;

	given_rows("a", 1, 3);
	/* Claimed, it is left alone, and its owner told. */
	rows = rearm(",a,", 1, 0);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 4)->str, STR("boot-1"));
	ck_assert_str_slice(rows_at(rows, 0, 1)->str, STR("out"));
	row_fail(1, 0, 0, true, false, "boot-1");
	row_fail(1, 1, 3600000, false, false, "boot-1");
	row_fail(1, 2, 0, false, false, "boot-1");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	/* Another tenant's, and none. */
	ck_assert_uint_eq(rearm(",b,", 1, 1)->row_count, 0);
	ck_assert_uint_eq(rearm(",a,", 7, 0)->row_count, 0);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	/* Waiting: due now, its attempts as they were. */
	rows = rearm(",a,", 1, 1);
	ck_assert(!rows_at(rows, 0, 3)->b);
	ck_assert(rows_at(rows, 0, 4)->is_null);
	rows = scan("boot-2", LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 1);
	ck_assert_int_eq(rows_at(load("a", 1, 1, "boot-2"), 0, 15)->i, 3);
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out", INT64_C(1), INT64_C(1), "boot-2");
	/* Poisoned: the head of its group again, and nothing was tried yet. */
	rows = rearm(",a,", 1, 0);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, test_id(1)));
	ck_assert_int_eq(rows_at(rows, 0, 2)->i, 3);
	ck_assert(rows_at(rows, 0, 3)->b);
	rows = scan("boot-2", LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 0);
	ck_assert_int_eq(rows_at(load("a", 1, 0, "boot-2"), 0, 15)->i, 0);
	check_counts(2, 1, 0);
}
END_TEST

/* Whoever was to free it is gone. */
START_TEST(outbox_row_behind_another_is_found_by_the_sweep)
{
	struct store_commit commit;
	const struct rows *rows;

	given_rows("a", 1, 1);
	suite_reopen(suite_settings_now(60000, "boot-2"));
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	for (int i = 0; i < 3; i++)
		commit_send(&suite_rig, &commit, "out", "behind");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_counts(3, 1, 0);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	row_delete(1, 0, "boot-1");
	check_counts(3, 0, 0);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 1);
	check_counts(2, 1, 0);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	/* A page that begins in the middle of the group. */
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_DELETE, "a", test_id(1), "out", INT64_C(2), INT64_C(0), "boot-2");
	rig_query(&suite_rig, NULL, true, STATEMENT_OUTBOX_SWEEP, test_id(1), "out", INT64_C(2), INT64_C(1), LIMIT, INT64_C(60000));
	check_counts(2, 0, 0);
	rows = scan("boot-2", LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 1);
	check_counts(1, 1, 0);
}
END_TEST

START_TEST(outbox_stamps_are_renewed_released_and_swept)
{
	const struct rows *rows;

	given_rows("a", 1, 2);
	rows = rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RENEW, "a", test_id(1), "out",
			 INT64_C(1), INT64_C(0), "boot-1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, test_id(1)));
	rows = rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RENEW, "a", test_id(1), "out",
			 INT64_C(1), INT64_C(0), "boot-2");
	ck_assert_uint_eq(rows->row_count, 0);
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out",
		  INT64_C(1), INT64_C(0), "boot-2");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out",
		  INT64_C(1), INT64_C(0), "boot-1");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 1);
	/* Fresh stamps stay; stale ones go, page by page. */
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_OUTBOX_SWEEP, ID_NONE, "", INT64_C(0),
			 INT64_C(0), LIMIT, INT64_C(60000));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 0);
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_OUTBOX_SWEEP, ID_NONE, "", INT64_C(0),
			 INT64_C(0), INT64_C(1), STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 1);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 1);
	ck_assert(id_equal(rows_at(rows, 0, 6)->id, test_id(1)));
	ck_assert_str_slice(rows_at(rows, 0, 7)->str, STR("out"));
	ck_assert_int_eq(rows_at(rows, 0, 9)->i, 0);
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_OUTBOX_SWEEP, test_id(1), "out",
			 INT64_C(1), INT64_C(1), LIMIT, STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	ck_assert(rows_at(rows, 0, 6)->is_null);
	ck_assert_uint_eq(scan("boot-3", LIMIT)->row_count, 1);
}
END_TEST

START_TEST(outbox_scan_does_not_read_what_waits_behind)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];

	suite_reopen(suite_settings_now(60000, NULL));
	suite_many_spawns(commits, all, false);
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	ck_assert_uint_eq(scan("boot-1", 100)->row_count, 100);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, MANY - 100);
}
END_TEST

/* --- leases, sweeps, deployments --- */

static const struct field *acquire(const char *holder, int64_t ttl_ms)
{
	return rows_at(rig_query(&suite_rig, "", true, STATEMENT_LEASE_ACQUIRE, "sweeper", holder,
				 ttl_ms),
		       0, 0);
}

START_TEST(lease_has_one_holder_and_a_growing_term)
{
	const struct field *f = acquire("boot-1", 60000);
	const struct rows *rows;

	ck_assert(f[0].b);
	ck_assert_int_eq(f[1].i, 1);
	f = acquire("boot-2", 60000);
	ck_assert(!f[0].b);
	ck_assert_str_slice(f[2].str, STR("boot-1"));
	f = acquire("boot-1", STALE_MS);
	ck_assert(f[0].b);
	ck_assert_int_eq(f[1].i, 1);
	f = acquire("boot-2", 60000);
	ck_assert(f[0].b);
	ck_assert_int_eq(f[1].i, 2);
	rows = rig_query(&suite_rig, "", false, STATEMENT_LEASE_LIST);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("sweeper"));
	ck_assert_str_slice(rows_at(rows, 0, 1)->str, STR("boot-2"));
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_RELEASE, "sweeper", "boot-1");
	ck_assert(!acquire("boot-1", 60000)[0].b);
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_RELEASE, "sweeper", "boot-2");
	ck_assert_uint_eq(rig_query(&suite_rig, "", false, STATEMENT_LEASE_LIST)->row_count, 0);
	f = acquire("boot-1", 60000);
	ck_assert(f[0].b);
	ck_assert_int_eq(f[1].i, 3);
}
END_TEST

START_TEST(sweep_frees_stale_claims_by_pages)
{
	const struct rows *rows;

	for (uint32_t n = 1; n <= 3; n++)
		suite_given_claimed(n == 2 ? "b" : "a", n, "lane-1");
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_CLAIM_SWEEP, ID_NONE, LIMIT,
			 INT64_C(60000));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 3);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 0);
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_CLAIM_SWEEP, ID_NONE, INT64_C(2),
			 STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 2);
	ck_assert(id_equal(rows_at(rows, 0, 2)->id, test_id(2)));
	ck_assert_int_eq(suite_claim("a", 1, "lane-2"), STORE_OK);
	ck_assert_int_eq(suite_claim("b", 2, "lane-2"), STORE_OK);
	ck_assert_int_eq(suite_claim("a", 3, "lane-2"), STORE_REFUSED);
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_CLAIM_SWEEP, test_id(3), LIMIT,
			 STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	ck_assert(rows_at(rows, 0, 2)->is_null);
}
END_TEST

START_TEST(ended_instances_expire)
{
	struct store_commit commit;
	const struct rows *rows;

	ck_assert_int_eq(suite_spawn("a", 1), STORE_OK);
	rig_spawn(&suite_rig, &commit, "b", test_id(2));
	commit.status = INSTANCE_TERMINATED;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_INSTANCE_EXPIRED, ID_NONE, LIMIT,
			 INT64_C(60000));
	/* Nothing due, a deployment in use, the end. */
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert(rows_at(rows, 0, 0)->is_null);
	ck_assert_str_slice(rows_at(rows, 0, 3)->str, STR("d1"));
	ck_assert(rows_at(rows, 1, 1)->is_null && rows_at(rows, 1, 3)->is_null);
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_INSTANCE_EXPIRED, ID_NONE, INT64_C(2),
			 STALE_MS);
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("b"));
	ck_assert(id_equal(rows_at(rows, 0, 1)->id, test_id(2)));
	ck_assert(!rows_at(rows, 0, 2)->is_null);
	ck_assert_str_slice(rows_at(rows, 1, 3)->str, STR("d1"));
	ck_assert(rows_at(rows, 2, 0)->is_null);
	ck_assert(id_equal(rows_at(rows, 2, 1)->id, test_id(2)));
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_INSTANCE_EXPIRED, test_id(2),
			 INT64_C(2), STALE_MS);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(rows_at(rows, 0, 0)->is_null && rows_at(rows, 0, 1)->is_null);
	/* Only what has ended, and only the right tenant's. */
	rig_query(&suite_rig, ",a,", true, STATEMENT_INSTANCE_DELETE, "a", test_id(1));
	rig_query(&suite_rig, ",a,", true, STATEMENT_INSTANCE_DELETE, "a", test_id(2));
	ck_assert(suite_instance_exists(",a,", 1));
	ck_assert(suite_instance_exists(",b,", 2));
	rig_query(&suite_rig, ",b,", true, STATEMENT_INSTANCE_DELETE, "b", test_id(2));
	ck_assert(!suite_instance_exists(",b,", 2));
}
END_TEST

START_TEST(inbox_is_purged_by_age)
{
	struct store_commit commit;
	const char *events[] = {"e1", "e2", "e3"};
	const struct rows *rows;

	for (uint32_t i = 0; i < 3; i++) {
		rig_spawn(&suite_rig, &commit, "a", test_id(i + 1));
		commit_inbox(&suite_rig, &commit, events[i]);
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	}
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_INBOX_PURGE, LIMIT, INT64_C(60000));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_INBOX_PURGE, INT64_C(2), STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	rig_spawn(&suite_rig, &commit, "a", test_id(9));
	commit_inbox(&suite_rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_spawn(&suite_rig, &commit, "a", test_id(10));
	commit_inbox(&suite_rig, &commit, "e3");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_DUPLICATE);
}
END_TEST

START_TEST(dead_letters_are_purged_by_age)
{
	struct store_commit commit;
	const struct rows *rows;

	for (uint32_t i = 1; i <= 3; i++) {
		rig_letter(&suite_rig, &commit, i == 1 ? "b" : "a");
		commit_dead_letter(&suite_rig, &commit, test_id(i), STR("why"));
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	}
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_DEAD_LETTER_PURGE, LIMIT, INT64_C(60000));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_DEAD_LETTER_PURGE, INT64_C(2), STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_DEAD_LETTER_PURGE, LIMIT, STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 1);
}
END_TEST

START_TEST(deployments_are_put_and_listed)
{
	const struct rows *rows;

	rig_query(&suite_rig, "", true, STATEMENT_DEPLOYMENT_PUT, "d1", "a", "orders", "1.0",
		  "Loading", "archive-bytes");
	rig_query(&suite_rig, "", true, STATEMENT_DEPLOYMENT_PUT, "d2", "a", "orders", "2.0",
		  "Active", "other-bytes");
	rig_query(&suite_rig, "", true, STATEMENT_DEPLOYMENT_PUT, "d1", "a", "orders", "1.0",
		  "Draining", NULL);
	rows = rig_query(&suite_rig, "", false, STATEMENT_DEPLOYMENT_LIST);
	ck_assert_uint_eq(rows->row_count, 2);
	for (uint32_t i = 0; i < 2; i++)
		if (str_equal(rows_at(rows, i, 0)->str, STR("d1")))
			ck_assert_str_slice(rows_at(rows, i, 4)->str, STR("Draining"));
	rows = rig_query(&suite_rig, "", false, STATEMENT_DEPLOYMENT_ARCHIVE, "d1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("archive-bytes"));
	ck_assert_uint_eq(
		rig_query(&suite_rig, "", false, STATEMENT_DEPLOYMENT_ARCHIVE, "d9")->row_count,
		0);
}
END_TEST

static void check_deployment(const char *id, const char *phase, bool pinned)
{
	const struct rows *rows = rig_query(&suite_rig, "", false, STATEMENT_DEPLOYMENT_LIST);

	for (uint32_t i = 0; i < rows->row_count; i++)
		if (str_equal(rows_at(rows, i, 0)->str, str_of(id))) {
			ck_assert_str_slice(rows_at(rows, i, 4)->str, str_of(phase));
			ck_assert_int_eq(rows_at(rows, i, 6)->b, pinned);
			return;
		}
	ck_abort_msg("%s is not there", id);
}

static void put(const char *id, const char *phase)
{
	rig_query(&suite_rig, "", true, STATEMENT_DEPLOYMENT_PUT, id, "a", "orders", "1.0", phase, NULL);
}

static uint32_t pin(const char *id, bool pinned)
{
	return rig_query(&suite_rig, "", true, STATEMENT_DEPLOYMENT_PINS, id, (int)pinned)->row_count;
}

START_TEST(deployments_go_with_their_last_pin)
{
	put("d1", "Active");
	check_deployment("d1", "Active", true);
	ck_assert_uint_eq(pin("d1", true), 0);
	put("d1", "Draining");
	ck_assert_uint_eq(pin("d1", true), 0);
	check_deployment("d1", "Draining", true);
	ck_assert_uint_eq(pin("d1", false), 1);
	check_deployment("d1", "Retired", false);
	ck_assert_uint_eq(pin("d1", false), 0);
	ck_assert_uint_eq(pin("d1", true), 1);
	check_deployment("d1", "Draining", true);
	/* What failed keeps what is known of it; what never served pins nothing. */
	put("d1", "Failed");
	check_deployment("d1", "Failed", true);
	ck_assert_uint_eq(pin("d1", false), 0);
	check_deployment("d1", "Failed", false);
	put("d2", "Failed");
	check_deployment("d2", "Failed", false);
	put("d2", "Active");
	check_deployment("d2", "Active", true);
	put("d2", "Retired");
	check_deployment("d2", "Retired", false);
	ck_assert_uint_eq(pin("d9", true), 0);
}
END_TEST

START_TEST(outbox_rows_pin_deployments)
{
	const struct rows *rows = rig_query(&suite_rig, NULL, false, STATEMENT_OUTBOX_PINS, ID_NONE, "", INT64_C(0), INT64_C(0), LIMIT);

	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(rows_at(rows, 0, 0)->is_null && rows_at(rows, 0, 1)->is_null);
	given_rows("a", 1, 2);
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_OUTBOX_PINS, ID_NONE, "", INT64_C(0), INT64_C(0), INT64_C(1));
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("d1"));
	ck_assert(rows_at(rows, 0, 1)->is_null);
	ck_assert(id_equal(rows_at(rows, 1, 1)->id, test_id(1)));
	ck_assert_str_slice(rows_at(rows, 1, 2)->str, STR("out"));
	ck_assert_int_eq(rows_at(rows, 1, 3)->i, 1);
	ck_assert_int_eq(rows_at(rows, 1, 4)->i, 0);
	row_fail(1, 0, 0, true, false, "boot-1");
	row_fail(1, 1, 0, true, false, "boot-1");
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_OUTBOX_PINS, ID_NONE, "", INT64_C(0), INT64_C(0), LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(rows_at(rows, 0, 1)->is_null);
}
END_TEST

START_TEST(instances_are_listed_by_pages_and_filters)
{
	struct store_commit commit;
	const struct rows *rows;

	for (uint32_t n = 1; n <= 3; n++)
		ck_assert_int_eq(suite_spawn("a", n), STORE_OK);
	rig_spawn(&suite_rig, &commit, "a", test_id(4));
	commit.status = INSTANCE_COMPLETED;
	commit.deployment = STR("d2");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_spawn(&suite_rig, &commit, "a", test_id(5));
	commit.status = INSTANCE_FAILED;
	commit.code = STR("SUTRA.X");
	commit.detail = STR("why");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_int_eq(suite_spawn("b", 6), STORE_OK);

#define LIST(tenants, status, terminal, deployment, after, limit) \
	LOOK(tenants, status, terminal, deployment, after, LIMIT, limit)
#define LOOK(tenants, status, terminal, deployment, after, look, limit) \
	rig_query(&suite_rig, tenants, false, STATEMENT_INSTANCE_LIST, (int64_t)(status), \
		  (int)(terminal), deployment, after, look, (int64_t)(limit))
	ck_assert_uint_eq(LIST(",a,", -1, 0, NULL, ID_NONE, 100)->row_count, 4);
	ck_assert_uint_eq(LIST(",a,", -1, 1, NULL, ID_NONE, 100)->row_count, 5);
	ck_assert_uint_eq(LIST(",a,b,", -1, 1, NULL, ID_NONE, 100)->row_count, 6);
	ck_assert_uint_eq(LIST(",c,", -1, 1, NULL, ID_NONE, 100)->row_count, 0);
	ck_assert_uint_eq(LIST(",a,", -1, 1, "d2", ID_NONE, 100)->row_count, 1);
	ck_assert_uint_eq(LIST(",a,", INSTANCE_COMPLETED, 0, NULL, ID_NONE, 100)->row_count, 1);
	rows = LIST(",a,", -1, 0, NULL, test_id(1), 2);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, test_id(2)));
	rows = LIST(",a,", INSTANCE_FAILED, 0, NULL, ID_NONE, 100);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 1)->str, STR("a"));
	ck_assert_str_slice(rows_at(rows, 0, 2)->str, STR("d1"));
	ck_assert_str_slice(rows_at(rows, 0, 3)->str, STR("p1"));
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, INSTANCE_FAILED);
	ck_assert_int_eq(rows_at(rows, 0, 6)->i, 1000000);
	ck_assert(rows_at(rows, 0, 7)->is_null);
	ck_assert_str_slice(rows_at(rows, 0, 8)->str, STR("SUTRA.X"));
	ck_assert_str_slice(rows_at(rows, 0, 9)->str, STR("why"));
	/* After so many were looked at in vain, where that was. */
	rows = LOOK(",a,", INSTANCE_FAILED, 0, NULL, ID_NONE, INT64_C(4), 100);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, test_id(4)));
	ck_assert(rows_at(rows, 0, 1)->is_null);
	ck_assert_uint_eq(LOOK(",a,", INSTANCE_FAILED, 0, NULL, test_id(4), INT64_C(4), 100)->row_count, 1);
	/* A full page needs no such row. */
	ck_assert_uint_eq(LOOK(",a,", -1, 0, NULL, ID_NONE, INT64_C(2), 2)->row_count, 2);
#undef LOOK
#undef LIST
}
END_TEST

START_TEST(ping_and_unknown_transactions)
{
	ck_assert_int_eq(rows_at(rig_query(&suite_rig, ",a,", false, STATEMENT_PING), 0, 0)->i, 1);
}
END_TEST

void store_suite_rows_add(TCase *outbox, TCase *background)
{
	TEST_ADD_ALL(outbox, outbox_rows_come_claimed_and_whole, outbox_rows_are_withdrawn, outbox_rows_stay_with_a_failed_fence,
		     outbox_row_behind_another_owner_is_not_claimed,
		     outbox_rows_in_flight_are_not_forgotten,
		     outbox_rows_that_are_poisoned_are_not_forgotten,
		     outbox_insert_tells_where_its_group_begins,
		     outbox_without_an_owner_is_scanned, outbox_scan_goes_round_the_tenants,
		     outbox_failure_waits_holds_back_and_poisons,
		     outbox_poisoned_head_holds_back_nobody, outbox_row_is_armed_again,
		     outbox_row_behind_another_is_found_by_the_sweep,
		     outbox_stamps_are_renewed_released_and_swept,
		     outbox_scan_does_not_read_what_waits_behind);
	TEST_ADD_ALL(background, lease_has_one_holder_and_a_growing_term,
		     sweep_frees_stale_claims_by_pages, ended_instances_expire,
		     inbox_is_purged_by_age, dead_letters_are_purged_by_age, deployments_are_put_and_listed,
		     deployments_go_with_their_last_pin, outbox_rows_pin_deployments,
		     instances_are_listed_by_pages_and_filters, ping_and_unknown_transactions);
}
