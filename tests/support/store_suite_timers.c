/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fifth part of the suite: timers, which come and go with the commits of their instance, and start timers, whose next time is a
 * gate of the spawn that it brings about.
 */
#include "base/time.h"
#include "tests/support/store_suite_private.h"

#define SCHEDULE(n) test_id(800 + (n))
/* Long past, and far ahead. */
#define PAST   INT64_C(1600000000000000)
#define FUTURE INT64_C(4000000000000000)

/* Columns of TIMER_OF and TIMER_LIST; of SCHEDULE_LIST. */
enum { OF_tenant, OF_instance, OF_token, OF_node, OF_deployment, OF_due };
enum { LIST_id, LIST_tenant, LIST_deployment, LIST_process, LIST_node, LIST_spec, LIST_next, LIST_remaining, LIST_created };

static const struct rows *timers_of(const char *tenants, uint32_t n)
{
	return rig_query(&suite_rig, tenants, false, STATEMENT_TIMER_OF, test_id(n));
}

/* The instance has these timers, by token; 0 ends. */
static void check_timers(uint32_t n, uint32_t first, uint32_t second)
{
	const struct rows *rows = timers_of(",a,", n);

	ck_assert_uint_eq(rows->row_count, (first != 0) + (second != 0));
	if (first)
		ck_assert_int_eq(rows_at(rows, 0, OF_token)->i, first);
	if (second)
		ck_assert_int_eq(rows_at(rows, 1, OF_token)->i, second);
}

static void given_timer(const char *tenant, uint32_t n, uint32_t token, int64_t due_us)
{
	struct store_commit commit;

	rig_spawn(&suite_rig, &commit, tenant, test_id(n));
	commit_timer(&suite_rig, &commit, token, due_us);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

static const struct rows *due(int64_t after_us, uint32_t after, int64_t token, int64_t limit)
{
	return rig_query(&suite_rig, NULL, false, STATEMENT_TIMER_DUE, after_us, after ? test_id(after) : ID_NONE, token, limit);
}

START_TEST(timer_comes_and_goes_with_its_step)
{
	struct store_commit commit;
	const struct rows *rows;

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_timer(&suite_rig, &commit, 2, FUTURE);
	commit_timer(&suite_rig, &commit, 7, PAST);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rows = timers_of(",a,", 1);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert_str_slice(rows_at(rows, 0, OF_tenant)->str, STR("a"));
	ck_assert(id_equal(rows_at(rows, 0, OF_instance)->id, test_id(1)));
	ck_assert_str_slice(rows_at(rows, 0, OF_node)->str, STR("timer-1"));
	ck_assert_str_slice(rows_at(rows, 0, OF_deployment)->str, STR("d1"));
	ck_assert_int_eq(rows_at(rows, 0, OF_due)->i, FUTURE);
	ck_assert_uint_eq(timers_of(",b,", 1)->row_count, 0);
	/* One is set anew, one goes, one comes: what is removed goes first. */
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_timer_end(&suite_rig, &commit, 2);
	commit_timer_end(&suite_rig, &commit, 7);
	commit_timer(&suite_rig, &commit, 2, PAST + 5);
	commit_timer(&suite_rig, &commit, 9, FUTURE);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_timers(1, 2, 9);
	ck_assert_int_eq(rows_at(timers_of(",a,", 1), 0, OF_due)->i, PAST + 5);
}
END_TEST

START_TEST(fenced_step_leaves_timers_alone)
{
	struct store_commit commit;

	given_timer("a", 1, 2, PAST);
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-2", 1);
	commit_timer_end(&suite_rig, &commit, 2);
	commit_timer(&suite_rig, &commit, 3, FUTURE);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
	check_timers(1, 2, 0);
	/* A spawn that had been committed before is that, not an error. */
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_timer(&suite_rig, &commit, 2, PAST);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_timers(1, 2, 0);
}
END_TEST

START_TEST(timers_of_a_batch_are_told_apart)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];

	for (uint32_t i = 0; i < MANY; i++) {
		rig_spawn(&suite_rig, &commits[i], i % 2 ? "a" : "b", test_id(9000 - i));
		for (uint32_t k = 0; k < i % 3; k++)
			commit_timer(&suite_rig, &commits[i], k + 1, PAST + i);
		all[i] = &commits[i].base;
	}
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < MANY; i++) {
		ck_assert_int_eq(commits[i].base.outcome, STORE_OK);
		ck_assert_uint_eq(timers_of(i % 2 ? ",a," : ",b,", 9000 - i)->row_count, i % 3);
	}
	ck_assert_uint_eq(due(0, 0, 0, LIMIT)->row_count, MANY - 1);
}
END_TEST

START_TEST(timers_that_cannot_be)
{
	struct store_commit commit;

	for (int i = 0; i < 5; i++) {
		rig_spawn(&suite_rig, &commit, "a", test_id(1));
		if (i == 2 || i == 3)
			rig_letter(&suite_rig, &commit, "a");
		else if (i == 4)
			rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
		if (i == 3)
			commit_timer_end(&suite_rig, &commit, 1);
		else
			commit_timer(&suite_rig, &commit, 1, i == 0 ? 0 : i == 1 ? INT64_MAX : FUTURE);
		if (i == 4)
			commit.schedule = (struct store_schedule){SCHEDULE(1), PAST, FUTURE, -1};
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
		ck_assert_int_eq(commit.base.error.code, CODE_RUNTIME_STORE_REJECTED);
	}
}
END_TEST

START_TEST(due_timers_are_found_in_order)
{
	const struct rows *rows;
	int64_t soon_us = time_wall_us() + 20 * US_PER_S, wait_us;

	ck_assert(rows_at(rig_query(&suite_rig, NULL, false, STATEMENT_TIMER_NEXT), 0, 0)->is_null);
	given_timer("a", 1, 1, PAST + 20);
	given_timer("b", 2, 1, PAST + 10);
	given_timer("a", 4, 3, PAST + 20);
	given_timer("a", 3, 1, soon_us);
	given_timer("a", 5, 1, FUTURE);
	rows = due(0, 0, 0, LIMIT);
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("b"));
	ck_assert(id_equal(rows_at(rows, 0, 1)->id, test_id(2)));
	ck_assert(id_equal(rows_at(rows, 1, 1)->id, test_id(1)));
	ck_assert(id_equal(rows_at(rows, 2, 1)->id, test_id(4)));
	ck_assert_int_eq(rows_at(rows, 2, 2)->i, 3);
	ck_assert_int_eq(rows_at(rows, 2, 3)->i, PAST + 20);
	ck_assert_uint_eq(due(0, 0, 0, 2)->row_count, 2);
	rows = due(PAST + 20, 1, 1, LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 1)->id, test_id(4)));
	ck_assert_uint_eq(due(PAST + 20, 4, 2, LIMIT)->row_count, 1);
	ck_assert_uint_eq(due(PAST + 20, 4, 3, LIMIT)->row_count, 0);
	wait_us = rows_at(rig_query(&suite_rig, NULL, false, STATEMENT_TIMER_NEXT), 0, 0)->i;
	ck_assert_int_gt(wait_us, 0);
	ck_assert_int_le(wait_us, 20 * US_PER_S);
}
END_TEST

START_TEST(overdue_timers_are_counted)
{
	const struct rows *rows = rig_query(&suite_rig, NULL, false, STATEMENT_TIMER_COUNTS, INT64_C(1000), LIMIT);

	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	ck_assert(rows_at(rows, 0, 1)->is_null);
	for (uint32_t n = 1; n <= 3; n++)
		given_timer(n == 1 ? "b" : "a", n, 1, PAST + n);
	given_timer("a", 4, 1, FUTURE);
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_TIMER_COUNTS, INT64_C(1000), LIMIT);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 3);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, PAST + 1);
	ck_assert_int_eq(rows_at(rig_query(&suite_rig, NULL, false, STATEMENT_TIMER_COUNTS, INT64_C(1000), INT64_C(2)), 0, 0)->i, 2);
}
END_TEST

static void drop(uint32_t n, int64_t due_us, int64_t version)
{
	rig_query(&suite_rig, ",a,", true, STATEMENT_TIMER_DROP, "a", test_id(n), INT64_C(1), due_us, version);
}

START_TEST(stale_timer_is_dropped)
{
	struct store_commit commit;

	given_timer("a", 1, 1, PAST);
	given_timer("b", 2, 1, PAST);
	/* Looked at in another version, or about another time: it may be a new one. */
	drop(1, PAST, 2);
	drop(1, PAST + 1, 1);
	drop(1, PAST, -1);
	check_timers(1, 1, 0);
	drop(1, PAST, 1);
	check_timers(1, 0, 0);
	drop(2, PAST, 1);
	ck_assert_uint_eq(timers_of(",b,", 2)->row_count, 1);
	/* Of an instance that has ended it is stale whatever anybody has seen. */
	rig_spawn(&suite_rig, &commit, "a", test_id(3));
	commit_timer(&suite_rig, &commit, 1, PAST);
	commit.status = INSTANCE_COMPLETED;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_timers(3, 1, 0);
	drop(3, PAST, -1);
	check_timers(3, 0, 0);
	/* Of one that is gone too. */
	rig_spawn(&suite_rig, &commit, "a", test_id(4));
	commit_timer(&suite_rig, &commit, 1, PAST);
	commit.status = INSTANCE_COMPLETED;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_query(&suite_rig, ",a,", true, STATEMENT_INSTANCE_DELETE, "a", test_id(4));
	drop(4, PAST, -1);
	check_timers(4, 0, 0);
}
END_TEST

START_TEST(timers_are_listed_by_due_time)
{
	const struct rows *rows;

	given_timer("a", 1, 1, FUTURE);
	given_timer("a", 2, 1, PAST);
	given_timer("b", 3, 1, PAST);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_TIMER_LIST, INT64_C(0), ID_NONE, INT64_C(0), LIMIT);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert(id_equal(rows_at(rows, 0, OF_instance)->id, test_id(2)));
	ck_assert_str_slice(rows_at(rows, 0, OF_node)->str, STR("timer-1"));
	rows = rig_query(&suite_rig, ",a,b,", false, STATEMENT_TIMER_LIST, PAST, test_id(2), INT64_C(1), LIMIT);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert(id_equal(rows_at(rows, 0, OF_instance)->id, test_id(3)));
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",a,b,", false, STATEMENT_TIMER_LIST, INT64_C(0), ID_NONE, INT64_C(0), INT64_C(1))->row_count, 1);
}
END_TEST

/* --- start timers --- */

static void put(uint32_t n, const char *deployment, const char *spec, int64_t next_us, int64_t remaining)
{
	rig_query(&suite_rig, ",a,", true, STATEMENT_SCHEDULE_PUT, SCHEDULE(n), "a", deployment, "p1", "start-1", spec, next_us,
		  remaining);
}

static const struct field *schedule(uint32_t n)
{
	const struct rows *rows = rig_query(&suite_rig, ",a,", false, STATEMENT_SCHEDULE_LIST, ID_NONE, LIMIT);

	for (uint32_t i = 0; i < rows->row_count; i++)
		if (id_equal(rows_at(rows, i, LIST_id)->id, SCHEDULE(n)))
			return rows_at(rows, i, 0);
	ck_abort_msg("no such start timer");
	return NULL;
}

static void check_schedule(uint32_t n, const char *deployment, int64_t next_us, int64_t remaining)
{
	const struct field *f = schedule(n);
	const struct rows *rows = rig_query(&suite_rig, ",a,", false, STATEMENT_SCHEDULE_PROBE, INT64_C(5), "a", SCHEDULE(n));

	ck_assert_str_slice(f[LIST_deployment].str, str_of(deployment));
	ck_assert_int_eq(f[LIST_next].is_null ? 0 : f[LIST_next].i, next_us);
	ck_assert_int_eq(f[LIST_remaining].i, remaining);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 5);
	ck_assert_str_slice(rows_at(rows, 0, 1)->str, str_of(deployment));
	ck_assert_int_eq(rows_at(rows, 0, 2)->is_null ? 0 : rows_at(rows, 0, 2)->i, next_us);
	ck_assert_int_eq(rows_at(rows, 0, 3)->i, remaining);
}

static void prepare_fire(struct store_commit *commit, uint32_t n, uint32_t instance, int64_t expected_us, int64_t next_us)
{
	rig_spawn(&suite_rig, commit, "a", test_id(instance));
	if (!instance)
		rig_letter(&suite_rig, commit, "a");
	commit->schedule = (struct store_schedule){SCHEDULE(n), expected_us, next_us, next_us ? 7 : 0};
}

static enum store_outcome fire(uint32_t n, uint32_t instance, int64_t expected_us, int64_t next_us)
{
	struct store_commit commit;

	prepare_fire(&commit, n, instance, expected_us, next_us);
	return rig_run(&suite_rig, &commit.base);
}

START_TEST(schedule_goes_on_under_the_next_deployment)
{
	put(1, "d1", "R/PT1M", PAST, -1);
	check_schedule(1, "d1", PAST, -1);
	ck_assert_str_slice(schedule(1)[LIST_process].str, STR("p1"));
	ck_assert_str_slice(schedule(1)[LIST_node].str, STR("start-1"));
	ck_assert_str_slice(schedule(1)[LIST_spec].str, STR("R/PT1M"));
	put(1, "d1", "R/PT1M", FUTURE, -1);
	check_schedule(1, "d1", PAST, -1);
	put(1, "d2", "R/PT1M", FUTURE, -1);
	check_schedule(1, "d2", PAST, -1);
	put(1, "d2", "R3/PT1M", FUTURE, 2);
	check_schedule(1, "d2", FUTURE, 2);
	put(1, "d2", "R3/PT2M", COLUMN_TIME_NULL, 0);
	check_schedule(1, "d2", 0, 0);
	ck_assert_uint_eq(rig_query(&suite_rig, ",b,", false, STATEMENT_SCHEDULE_LIST, ID_NONE, LIMIT)->row_count, 0);
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",a,b,", false, STATEMENT_SCHEDULE_PROBE, INT64_C(5), "b", SCHEDULE(1))->row_count, 0);
}
END_TEST

START_TEST(schedule_fires_once)
{
	put(1, "d1", "R/PT1M", PAST, -1);
	ck_assert_int_eq(fire(1, 1, PAST + 1, FUTURE), STORE_SCHEDULE_MOVED);
	ck_assert_int_eq(fire(1, 1, PAST, PAST + 60), STORE_OK);
	check_schedule(1, "d1", PAST + 60, 7);
	ck_assert_int_eq(fire(1, 2, PAST, PAST + 60), STORE_SCHEDULE_MOVED);
	ck_assert(suite_instance_exists(",a,", 1));
	ck_assert(!suite_instance_exists(",a,", 2));
	/* Rejected: nothing but the next time, which here is none. */
	ck_assert_int_eq(fire(1, 0, PAST + 60, 0), STORE_OK);
	check_schedule(1, "d1", 0, 0);
	ck_assert_int_eq(fire(1, 3, PAST + 60, 0), STORE_SCHEDULE_MOVED);
	ck_assert_int_eq(fire(2, 3, PAST, FUTURE), STORE_SCHEDULE_MOVED);
	ck_assert(!suite_instance_exists(",a,", 3));
}
END_TEST

START_TEST(batch_with_one_moved_schedule)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	struct store_stats before, after;

	for (uint32_t i = 0; i < MANY; i++) {
		put(i, "d1", "R/PT1M", PAST, -1);
		prepare_fire(&commits[i], i, 9000 - i, i == 77 ? PAST + 1 : PAST, FUTURE);
		all[i] = &commits[i].base;
	}
	before = rig_stats(&suite_rig);
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert_int_eq(commits[i].base.outcome, i == 77 ? STORE_SCHEDULE_MOVED : STORE_OK);
	after = rig_stats(&suite_rig);
	ck_assert_uint_eq(after.gate_failures - before.gate_failures, 1);
	ck_assert_uint_eq(after.quarantined, 0);
	check_schedule(77, "d1", PAST, -1);
	check_schedule(78, "d1", FUTURE, 7);
}
END_TEST

START_TEST(equal_schedules_do_not_share_a_batch)
{
	struct store_commit commits[2];
	struct store_request *all[] = {&commits[0].base, &commits[1].base};
	bool first;

	put(1, "d1", "R/PT1M", PAST, -1);
	prepare_fire(&commits[0], 1, 1, PAST, FUTURE);
	prepare_fire(&commits[1], 1, 2, PAST, FUTURE);
	rig_burst(&suite_rig, all, 2);
	rig_wait(&suite_rig);
	first = commits[0].base.outcome == STORE_OK;
	ck_assert_int_eq(commits[first ? 0 : 1].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[first ? 1 : 0].base.outcome, STORE_SCHEDULE_MOVED);
}
END_TEST

START_TEST(schedule_of_two_stores_has_one_winner)
{
	static struct store_commit ours[MANY], theirs[MANY];
	struct store_rig other;

	for (uint32_t i = 0; i < MANY; i++)
		put(i, "d1", "R/PT1M", PAST, -1);
	store_rig_init(&other, suite_executor_new(), NULL);
	for (uint32_t i = 0; i < MANY; i++) {
		prepare_fire(&ours[i], i, 2000 + i, PAST, FUTURE);
		rig_spawn(&other, &theirs[i], "a", test_id(5000 + i));
		theirs[i].schedule = (struct store_schedule){SCHEDULE(i), PAST, FUTURE, 7};
	}
	for (uint32_t i = 0; i < MANY; i++) {
		rig_send(&suite_rig, &ours[i].base);
		rig_send(&other, &theirs[i].base);
	}
	rig_wait(&suite_rig);
	rig_wait(&other);
	for (uint32_t i = 0; i < MANY; i++) {
		enum store_outcome a = ours[i].base.outcome, b = theirs[i].base.outcome;

		ck_assert_msg((a == STORE_OK && b == STORE_SCHEDULE_MOVED) || (a == STORE_SCHEDULE_MOVED && b == STORE_OK),
			      "start timer %u: %d and %d", i, a, b);
	}
	store_rig_done(&other);
}
END_TEST

void store_suite_timers_add(TCase *timers)
{
	TEST_ADD_ALL(timers, timer_comes_and_goes_with_its_step, fenced_step_leaves_timers_alone, timers_of_a_batch_are_told_apart,
		     timers_that_cannot_be, due_timers_are_found_in_order, overdue_timers_are_counted, stale_timer_is_dropped,
		     timers_are_listed_by_due_time, schedule_goes_on_under_the_next_deployment, schedule_fires_once,
		     batch_with_one_moved_schedule, equal_schedules_do_not_share_a_batch, schedule_of_two_stores_has_one_winner);
}
