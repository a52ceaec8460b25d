/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store does when a segment does not just commit: gates, locks, bad elements, lost connections, doubt.
 */
#include <stdio.h>

#include "base/fault.h"
#include "base/thread.h"
#include "store/internal.h"
#include "tests/support/store_suite.h"
#include "tests/unit/store/fake_executor.h"

#define MANY 64

static struct memory_database *database;
static struct executor *fake;
static struct store_rig rig;
static struct store_commit commits[MANY];
static struct store_request *all[MANY];

static void setup(void)
{
	database = memory_database_new();
	fake = fake_executor_new(database);
	store_rig_init(&rig, fake, NULL);
}

static void teardown(void)
{
	store_rig_done(&rig);
	memory_database_free(&database);
}

static void given_claimed(uint32_t n)
{
	struct store_commit commit;
	struct store_claim claim;

	rig_spawn(&rig, &commit, "a", test_id(n));
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_claim(&rig, &claim, "a", test_id(n), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &claim.base), STORE_OK);
}

static struct field instance_field(uint32_t n, uint32_t column)
{
	const struct rows *rows = rig_query(&rig, ",a,", false, STATEMENT_INSTANCE_GET, test_id(n));

	return rows->row_count ? *rows_at(rows, 0, column) : (struct field){.is_null = true};
}

static int64_t version_of(uint32_t n)
{
	struct field field = instance_field(n, 5);

	return field.is_null ? 0 : field.i;
}

static void given_spawns(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(100 + i));
		all[i] = &commits[i].base;
	}
}

static void burst(uint32_t count)
{
	rig_burst(&rig, all, count);
	rig_wait(&rig);
}

static uint32_t count_outcomes(uint32_t count, enum store_outcome outcome)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		n += commits[i].base.outcome == outcome;
	return n;
}

static bool is_in_doubt(void *arg UNUSED)
{
	return rig_stats(&rig).doubts > 0;
}

static void nothing(void *arg UNUSED)
{
}

/* What the store's loop has been given has run: intake, dispatch, the segments on their connections. */
static void settle(void)
{
	for (int i = 0; i < 4; i++)
		loop_call(rig.store->loop, nothing, NULL);
}

/* Waits until a commit is in doubt and its backend being terminated. */
static void until_in_doubt(void)
{
	ck_assert(test_wait(is_in_doubt, NULL, 10000));
	settle();
}

/* --- gates and locks --- */

START_TEST(locked_fence_waits_in_quarantine)
{
	uint32_t count;
	const struct fake_entry *log;
	bool seen = false;

	for (uint32_t i = 0; i < 4; i++) {
		given_claimed(i + 1);
		rig_resume(&rig, &commits[i], "a", test_id(i + 1), "lane-1", 1);
		all[i] = &commits[i].base;
	}
	fake_script(fake, (struct fake_step){.when = STATEMENT_FENCE_UPDATE,
					     .fate = FAKE_LOCKED,
					     .times = 3,
					     .instance = test_id(2)});
	burst(4);
	ck_assert_uint_eq(count_outcomes(4, STORE_OK), 4);
	ck_assert_uint_eq(rig_stats(&rig).quarantined, 1);
	log = fake_log(fake, &count);
	for (uint32_t i = 0; i < count; i++)
		if (log[i].class == CONN_QUARANTINE && log[i].first == STATEMENT_FENCE_UPDATE) {
			ck_assert_uint_eq(log[i].count, 1);
			ck_assert_int_eq(log[i].lock_timeout_ms, 2000);
			seen = true;
		}
	ck_assert(seen);
	/* The other three went again at once, as one batch. */
	ck_assert_uint_eq(fake_count(fake, CONN_STEP, STATEMENT_FENCE_UPDATE), 2);
	ck_assert_int_eq(version_of(2), 2);
}
END_TEST

START_TEST(fence_locked_for_ever_is_unavailable)
{
	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	fake_script(fake, (struct fake_step){.when = STATEMENT_FENCE_UPDATE,
					     .fate = FAKE_LOCKED,
					     .times = 100});
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_UNAVAILABLE);
	ck_assert_int_eq(version_of(1), 1);
}
END_TEST

/* Kept messages 700 and on, of keeper "boot-1". */
static void given_kept(uint32_t count)
{
	struct store_commit commit;

	rig_letter(&rig, &commit, "a");
	for (uint32_t i = 0; i < count; i++)
		commit_keep(&rig, &commit, test_id(700 + i), test_id(500), "body");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
}

static uint32_t kept_count(void)
{
	return rig_query(&rig, ",a,", false, STATEMENT_KEPT_LIST, NULL, NULL, ID_NONE, INT64_C(1001), INT64_C(1000))
		->row_count;
}

START_TEST(locked_message_waits_in_quarantine)
{
	given_kept(5);
	for (uint32_t i = 0; i < 4; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(i + 1));
		commit_keep_end(&commits[i], test_id(700 + i), "boot-1");
		all[i] = &commits[i].base;
	}
	fake_script(fake, (struct fake_step){.when = STATEMENT_KEPT_DELETE,
					     .fate = FAKE_LOCKED,
					     .times = 3,
					     .instance = test_id(702)});
	burst(4);
	ck_assert_uint_eq(count_outcomes(4, STORE_OK), 4);
	ck_assert_uint_eq(rig_stats(&rig).quarantined, 1);
	/* The other three went again at once, as one batch. */
	ck_assert_uint_eq(fake_count(fake, CONN_STEP, STATEMENT_KEPT_DELETE), 2);
	ck_assert_uint_ge(fake_count(fake, CONN_QUARANTINE, STATEMENT_KEPT_DELETE), 1);
	ck_assert_int_eq(version_of(3), 1);
	ck_assert_uint_eq(kept_count(), 1);
}
END_TEST

START_TEST(message_locked_for_ever_is_unavailable)
{
	given_kept(1);
	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	fake_script(fake, (struct fake_step){.when = STATEMENT_KEPT_DELETE,
					     .fate = FAKE_LOCKED,
					     .times = 100});
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_UNAVAILABLE);
	ck_assert_int_eq(version_of(1), 0);
}
END_TEST

START_TEST(lock_timeout_halves_down_to_the_stuck_one)
{
	given_spawns(16);
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_ERROR,
					     .times = 7,
					     .sqlstate = "55P03",
					     .instance = test_id(105)});
	burst(16);
	ck_assert_uint_eq(count_outcomes(16, STORE_OK), 16);
	ck_assert_uint_eq(rig_stats(&rig).quarantined, 1);
	ck_assert_uint_ge(fake_count(fake, CONN_QUARANTINE, STATEMENT_INSTANCE_INSERT), 1);
}
END_TEST

START_TEST(claim_that_meets_a_lock_is_refused)
{
	struct store_claim claim;

	given_claimed(1);
	fake_script(fake, (struct fake_step){.when = STATEMENT_CLAIM,
					     .fate = FAKE_ERROR,
					     .times = 100,
					     .sqlstate = "55P03"});
	rig_claim(&rig, &claim, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &claim.base), STORE_REFUSED);
}
END_TEST

START_TEST(bad_element_is_found_by_halves)
{
	given_spawns(MANY);
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_ERROR,
					     .times = 1000,
					     .sqlstate = "54000",
					     .instance = test_id(140)});
	burst(MANY);
	ck_assert_uint_eq(count_outcomes(MANY, STORE_OK), MANY - 1);
	ck_assert_int_eq(commits[40].base.outcome, STORE_REJECTED);
	ck_assert_int_eq(commits[40].base.error.code, CODE_RUNTIME_STORE_REJECTED);
	ck_assert_uint_le(fake_count(fake, CONN_STEP, STATEMENT_INSTANCE_INSERT), 13);
}
END_TEST

START_TEST(error_of_the_server_does_not_reject)
{
	given_spawns(4);
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_ERROR,
					     .times = 1000,
					     .sqlstate = "XX000",
					     .instance = test_id(102)});
	burst(4);
	ck_assert_uint_eq(count_outcomes(4, STORE_OK), 3);
	ck_assert_int_eq(commits[2].base.outcome, STORE_UNAVAILABLE);
}
END_TEST

START_TEST(shutdown_is_tried_again_then_unavailable)
{
	given_spawns(4);
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_ERROR,
					     .times = 2,
					     .sqlstate = "57P01"});
	burst(4);
	ck_assert_uint_eq(count_outcomes(4, STORE_OK), 4);
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_ERROR,
					     .times = 3,
					     .sqlstate = "53100"});
	rig_spawn(&rig, &commits[0], "a", test_id(50));
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_UNAVAILABLE);
}
END_TEST

START_TEST(lost_connection_runs_again)
{
	struct store_claim claim;

	given_spawns(4);
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_NOT_RUN,
					     .times = 2});
	burst(4);
	ck_assert_uint_eq(count_outcomes(4, STORE_OK), 4);
	fake_script(fake, (struct fake_step){
				  .when = STATEMENT_CLAIM, .fate = FAKE_DOUBT_WRITTEN, .times = 1});
	rig_claim(&rig, &claim, "a", test_id(100), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &claim.base), STORE_OK);
	ck_assert_str_slice(claim.snapshot, STR("snapshot-1"));
}
END_TEST

/* --- doubt --- */

START_TEST(doubt_that_committed_is_answered_as_committed)
{
	for (uint32_t i = 0; i < 3; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(100 + i));
		commit_inbox(&rig, &commits[i], i == 0 ? "e0" : i == 1 ? "e1" : "e2");
		commit_send(&rig, &commits[i], "out", "body");
		all[i] = &commits[i].base;
	}
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_DOUBT_WRITTEN,
					     .xid = 77,
					     .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_BACKEND_TERMINATE,
					     .fate = FAKE_FALSE,
					     .times = 2});
	fake_script(fake, (struct fake_step){.when = STATEMENT_XACT_STATUS,
					     .fate = FAKE_TEXT,
					     .times = 2,
					     .sqlstate = "in progress"});
	fake_script(fake, (struct fake_step){.when = STATEMENT_XACT_STATUS,
					     .fate = FAKE_TEXT,
					     .times = 1,
					     .sqlstate = "committed"});
	burst(3);
	ck_assert_uint_eq(count_outcomes(3, STORE_OK), 3);
	/* The status is no proof, what stands there is. And which rows are ours was asked. */
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(version_of(100 + i), 1);
	ck_assert_uint_eq(fake_count(fake, CONN_QUARANTINE, STATEMENT_BACKEND_TERMINATE), 3);
	ck_assert_uint_eq(fake_count(fake, CONN_QUARANTINE, STATEMENT_XACT_STATUS), 3);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert(commits[i].outbox[0].claimed);
	ck_assert_uint_eq(rig_stats(&rig).doubts, 1);
}
END_TEST

START_TEST(doubt_that_aborted_runs_again)
{
	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_inbox(&rig, &commits[0], "e1");
	commit_send(&rig, &commits[0], "out", "body");
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_DOUBT_LOST,
					     .xid = 77,
					     .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_XACT_STATUS,
					     .fate = FAKE_TEXT,
					     .times = 1,
					     .sqlstate = "aborted"});
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	ck_assert_int_eq(version_of(1), 1);
	ck_assert(commits[0].outbox[0].claimed);
}
END_TEST

/* Every shape of commit, written or not, with the outcome of its transaction unknown for every reason. */
static void run_unknown(struct store_commit *commit, enum statement_id when, bool written,
			int reason)
{
	fake_script(fake, (struct fake_step){.when = when,
					     .fate = written ? FAKE_DOUBT_WRITTEN : FAKE_DOUBT_LOST,
					     .xid = reason == 0 ? 0 : 77,
					     .backend_pid = reason == 1 ? 0 : 9});
	if (reason == 1)
		fake_script(fake, (struct fake_step){.when = STATEMENT_XACT_STATUS,
						     .fate = FAKE_NULL,
						     .times = 1});
	if (reason == 2)
		fake_script(fake, (struct fake_step){.when = STATEMENT_XACT_STATUS,
						     .fate = FAKE_ERROR,
						     .times = 1,
						     .sqlstate = "22023"});
	/* After a crash the id may be that of another transaction, which committed. */
	if (reason == 3)
		fake_script(fake, (struct fake_step){.when = STATEMENT_XACT_STATUS,
						     .fate = FAKE_TEXT,
						     .times = 1,
						     .sqlstate = "committed"});
	ck_assert_msg(rig_run(&rig, &commit->base) == STORE_OK, "outcome %d", commit->base.outcome);
}

START_TEST(unknown_spawn)
{
	bool written = _i & 1;

	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_inbox(&rig, &commits[0], "e1");
	commit_alias(&rig, &commits[0], "o-1", true);
	commit_wait(&rig, &commits[0], 1, "o-1", true);
	commit_send(&rig, &commits[0], "out", "body");
	run_unknown(&commits[0], STATEMENT_INSTANCE_INSERT, written, _i / 2);
	ck_assert_int_eq(version_of(1), 1);
	ck_assert(commits[0].outbox[0].claimed);
}
END_TEST

START_TEST(unknown_spawn_with_plain_rows_only)
{
	bool written = _i & 1;

	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_alias(&rig, &commits[0], "o-1", false);
	commit_wait(&rig, &commits[0], 1, "o-1", false);
	run_unknown(&commits[0], STATEMENT_INSTANCE_INSERT, written, _i / 2);
	ck_assert_int_eq(version_of(1), 1);
}
END_TEST

START_TEST(unknown_resume_with_an_event)
{
	bool written = _i & 1;

	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	commit_inbox(&rig, &commits[0], "e1");
	commit_send(&rig, &commits[0], "out", "body");
	run_unknown(&commits[0], STATEMENT_FENCE_UPDATE, written, _i / 2);
	ck_assert_int_eq(version_of(1), 2);
	ck_assert(commits[0].outbox[0].claimed);
}
END_TEST

START_TEST(unknown_resume_without_an_event)
{
	bool written = _i & 1;

	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	run_unknown(&commits[0], STATEMENT_FENCE_UPDATE, written, _i / 2);
	ck_assert_int_eq(version_of(1), 2);
}
END_TEST

START_TEST(unknown_letter)
{
	bool written = _i & 1;

	rig_letter(&rig, &commits[0], "a");
	commit_dead_letter(&rig, &commits[0], test_id(5), STR("why"));
	commit_send(&rig, &commits[0], "dead", "body");
	run_unknown(&commits[0], STATEMENT_OUTBOX_INSERT_ONCE, written, _i / 2);
	ck_assert_uint_eq(
		rig_query(&rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, INT64_C(10))
			->row_count,
		1);
}
END_TEST

START_TEST(unknown_keep)
{
	rig_letter(&rig, &commits[0], "a");
	commit_keep(&rig, &commits[0], test_id(700), test_id(500), "body");
	run_unknown(&commits[0], STATEMENT_KEPT_INSERT, _i & 1, _i / 2);
	ck_assert_uint_eq(kept_count(), 1);
}
END_TEST

START_TEST(unknown_spawn_of_a_kept_message)
{
	given_kept(1);
	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_inbox(&rig, &commits[0], "e1");
	commit_send(&rig, &commits[0], "out", "body");
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	run_unknown(&commits[0], STATEMENT_KEPT_DELETE, _i & 1, _i / 2);
	ck_assert_int_eq(version_of(1), 1);
	ck_assert_uint_eq(kept_count(), 0);
	ck_assert(commits[0].outbox[0].claimed);
}
END_TEST

START_TEST(unknown_resume_of_a_kept_message)
{
	given_kept(1);
	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	commit_inbox(&rig, &commits[0], "e1");
	commit_send(&rig, &commits[0], "out", "body");
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	run_unknown(&commits[0], STATEMENT_KEPT_DELETE, _i & 1, _i / 2);
	ck_assert_int_eq(version_of(1), 2);
	ck_assert_uint_eq(kept_count(), 0);
	ck_assert(commits[0].outbox[0].claimed);
}
END_TEST

START_TEST(unknown_end_of_a_kept_message)
{
	given_kept(1);
	rig_letter(&rig, &commits[0], "a");
	commit_dead_letter(&rig, &commits[0], test_id(5), STR("why"));
	commit_send(&rig, &commits[0], "dead", "body");
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	run_unknown(&commits[0], STATEMENT_KEPT_DELETE, _i & 1, _i / 2);
	ck_assert_uint_eq(kept_count(), 0);
	ck_assert_uint_eq(
		rig_query(&rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, INT64_C(10))
			->row_count,
		1);
	ck_assert(commits[0].outbox[0].claimed);
}
END_TEST

/* Our commit was lost; before it runs again another replica takes the message over, and in some cases ends it. */
static void run_rivalled(struct store_commit *commit, bool ended)
{
	struct store_commit rival;
	struct store_rig other;

	fake_script(fake, (struct fake_step){.when = STATEMENT_KEPT_DELETE,
					     .fate = FAKE_DOUBT_LOST,
					     .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_BACKEND_TERMINATE,
					     .fate = FAKE_HOLD,
					     .times = 1});
	rig_send(&rig, &commit->base);
	until_in_doubt();
	store_rig_init(&other, memory_executor_new(database, 1), NULL);
	rig_query(&other, ",a,", true, STATEMENT_KEPT_RECOVER, "a", "orders", "boot-2", INT64_C(10));
	rig_letter(&other, &rival, "a");
	commit_keep_end(&rival, test_id(700), "boot-2");
	if (ended)
		ck_assert_int_eq(rig_run(&other, &rival.base), STORE_OK);
	store_rig_done(&other);
	fake_release(fake);
	rig_wait(&rig);
}

START_TEST(unknown_spawn_that_lost_its_message)
{
	given_kept(1);
	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	run_rivalled(&commits[0], _i);
	ck_assert_int_eq(commits[0].base.outcome, STORE_KEPT_LOST);
	ck_assert_int_eq(version_of(1), 0);
}
END_TEST

START_TEST(unknown_resume_that_lost_its_message)
{
	given_kept(1);
	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	run_rivalled(&commits[0], _i);
	ck_assert_int_eq(commits[0].base.outcome, STORE_KEPT_LOST);
	ck_assert_int_eq(version_of(1), 1);
}
END_TEST

/* Whoever ended it: it has ended. In another's keeping it has not. */
START_TEST(unknown_end_that_lost_its_message)
{
	given_kept(1);
	rig_letter(&rig, &commits[0], "a");
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	run_rivalled(&commits[0], _i);
	ck_assert_int_eq(commits[0].base.outcome, _i ? STORE_OK : STORE_KEPT_LOST);
	ck_assert_uint_eq(kept_count(), !_i);
}
END_TEST

START_TEST(unknown_and_message_locked)
{
	given_kept(1);
	rig_letter(&rig, &commits[0], "a");
	if (_i)
		rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_keep_end(&commits[0], test_id(700), "boot-1");
	fake_script(fake,
		    (struct fake_step){.when = STATEMENT_KEPT_DELETE, .fate = FAKE_DOUBT_LOST});
	fake_script(fake, (struct fake_step){
				  .when = STATEMENT_KEPT_DELETE, .fate = FAKE_LOCKED, .times = 2});
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	ck_assert_uint_eq(kept_count(), 0);
	ck_assert_int_eq(version_of(1), _i);
}
END_TEST

#define DUE_US	INT64_C(1600000000000000)
#define NEXT_US INT64_C(4000000000000000)

static void given_schedule(void)
{
	rig_query(&rig, ",a,", true, STATEMENT_SCHEDULE_PUT, test_id(800), "a", "d1", "p1", "s", "R/PT1M", DUE_US, INT64_C(-1));
}

static int64_t schedule_next(void)
{
	return rows_at(rig_query(&rig, ",a,", false, STATEMENT_SCHEDULE_PROBE, INT64_C(0), "a", test_id(800)), 0, 2)->i;
}

static void prepare_start(bool spawns)
{
	given_schedule();
	rig_letter(&rig, &commits[0], "a");
	if (spawns) {
		rig_spawn(&rig, &commits[0], "a", test_id(1));
		commit_send(&rig, &commits[0], "out", "body");
		commit_timer(&rig, &commits[0], 1, NEXT_US);
	}
	commits[0].schedule = (struct store_schedule){test_id(800), DUE_US, NEXT_US, -1};
}

static uint32_t timer_count(void)
{
	return rig_query(&rig, ",a,", false, STATEMENT_TIMER_OF, test_id(1))->row_count;
}

START_TEST(unknown_start_by_a_timer)
{
	prepare_start(true);
	run_unknown(&commits[0], STATEMENT_SCHEDULE_ADVANCE, _i & 1, _i / 2);
	ck_assert_int_eq(version_of(1), 1);
	ck_assert_int_eq(schedule_next(), NEXT_US);
	ck_assert_uint_eq(timer_count(), 1);
	ck_assert(commits[0].outbox[0].claimed);
}
END_TEST

START_TEST(unknown_end_of_a_start_by_a_timer)
{
	prepare_start(false);
	run_unknown(&commits[0], STATEMENT_SCHEDULE_ADVANCE, _i & 1, _i / 2);
	ck_assert_int_eq(schedule_next(), NEXT_US);
}
END_TEST

START_TEST(unknown_fire_of_a_timer)
{
	struct store_claim claim;

	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_timer(&rig, &commits[0], 1, DUE_US);
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	rig_claim(&rig, &claim, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &claim.base), STORE_OK);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	commit_timer_end(&rig, &commits[0], 1);
	commit_timer(&rig, &commits[0], 1, NEXT_US);
	run_unknown(&commits[0], STATEMENT_TIMER_DELETE, _i & 1, _i / 2);
	ck_assert_int_eq(version_of(1), 2);
	ck_assert_uint_eq(timer_count(), 1);
}
END_TEST

/* Our commit was lost; before it runs again another replica lets the timer fire, to the same next time or to another. */
START_TEST(unknown_start_that_lost_its_timer)
{
	bool spawns = _i & 1, same = _i & 2;
	struct store_commit rival;
	struct store_rig other;

	prepare_start(spawns);
	fake_script(fake, (struct fake_step){.when = STATEMENT_SCHEDULE_ADVANCE, .fate = FAKE_DOUBT_LOST, .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_BACKEND_TERMINATE, .fate = FAKE_HOLD, .times = 1});
	rig_send(&rig, &commits[0].base);
	until_in_doubt();
	store_rig_init(&other, memory_executor_new(database, 1), NULL);
	rig_spawn(&other, &rival, "a", test_id(2));
	rival.schedule = (struct store_schedule){test_id(800), DUE_US, same ? NEXT_US : NEXT_US + 5, -1};
	ck_assert_int_eq(rig_run(&other, &rival.base), STORE_OK);
	store_rig_done(&other);
	fake_release(fake);
	rig_wait(&rig);
	ck_assert_int_eq(commits[0].base.outcome, !spawns && same ? STORE_OK : STORE_SCHEDULE_MOVED);
	ck_assert_int_eq(version_of(1), 0);
	ck_assert_int_eq(version_of(2), 1);
}
END_TEST

START_TEST(unknown_and_schedule_locked)
{
	prepare_start(_i);
	fake_script(fake, (struct fake_step){.when = STATEMENT_SCHEDULE_ADVANCE, .fate = FAKE_DOUBT_LOST});
	fake_script(fake, (struct fake_step){.when = STATEMENT_SCHEDULE_ADVANCE, .fate = FAKE_LOCKED, .times = 2});
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	ck_assert_int_eq(schedule_next(), NEXT_US);
	ck_assert_int_eq(version_of(1), _i);
}
END_TEST

START_TEST(locked_schedule_goes_alone)
{
	prepare_start(true);
	fake_script(fake, (struct fake_step){.when = STATEMENT_SCHEDULE_ADVANCE, .fate = FAKE_LOCKED, .times = 2});
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	ck_assert_uint_ge(fake_count(fake, CONN_QUARANTINE, STATEMENT_SCHEDULE_ADVANCE), 1);
	ck_assert_int_eq(schedule_next(), NEXT_US);
	ck_assert_int_eq(version_of(1), 1);
}
END_TEST

START_TEST(unknown_batch_of_many)
{
	given_spawns(MANY);
	for (uint32_t i = 0; i < MANY; i++)
		commit_send(&rig, &commits[i], "out", "body");
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_DOUBT_WRITTEN});
	burst(MANY);
	ck_assert_uint_eq(count_outcomes(MANY, STORE_OK), MANY);
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert(commits[i].outbox[0].claimed);
}
END_TEST

START_TEST(unknown_resume_that_lost_to_another)
{
	struct store_commit rival;
	struct store_rig other;

	/* Our commit was lost, the claim taken over, and another step was made. */
	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	fake_script(fake, (struct fake_step){.when = STATEMENT_FENCE_UPDATE,
					     .fate = FAKE_DOUBT_LOST,
					     .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_BACKEND_TERMINATE,
					     .fate = FAKE_HOLD,
					     .times = 1});
	rig_send(&rig, &commits[0].base);
	store_rig_init(&other, memory_executor_new(database, 1), NULL);
	rig_resume(&other, &rival, "a", test_id(1), "lane-1", 1);
	rival.snapshot = STR("a rival's");
	ck_assert_int_eq(rig_run(&other, &rival.base), STORE_OK);
	store_rig_done(&other);
	until_in_doubt();
	fake_release(fake);
	rig_wait(&rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_FENCED);
	ck_assert_int_eq(version_of(1), 2);
}
END_TEST

/*
 * A step without inbox keys, as of a timer, that sends something; before its doubt is resolved another replica makes the next step, or
 * this step in its place. Were the first taken for undone, its row would stand in the outbox with our stamp and nobody to send it, and
 * later rows of the instance would go first.
 */
START_TEST(unknown_resume_that_others_went_on_from)
{
	struct store_settings settings = store_rig_settings();
	bool written = _i;
	struct store_commit rival;
	struct store_claim claim;
	struct store_rig other;

	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	commit_send(&rig, &commits[0], "out", "body");
	fake_script(fake, (struct fake_step){.when = STATEMENT_FENCE_UPDATE,
					     .fate = written ? FAKE_DOUBT_WRITTEN : FAKE_DOUBT_LOST,
					     .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_BACKEND_TERMINATE, .fate = FAKE_HOLD, .times = 1});
	rig_send(&rig, &commits[0].base);
	until_in_doubt();
	settings.outbox_owner = "boot-2";
	store_rig_init(&other, memory_executor_new(database, 1), &settings);
	rig_claim(&other, &claim, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&other, &claim.base), STORE_OK);
	rig_resume(&other, &rival, "a", test_id(1), "lane-1", written ? 2 : 1);
	rival.snapshot = STR("a rival's");
	commit_send(&other, &rival, "out", "a rival's");
	ck_assert_int_eq(rig_run(&other, &rival.base), STORE_OK);
	store_rig_done(&other);
	fake_release(fake);
	rig_wait(&rig);
	ck_assert_int_eq(commits[0].base.outcome, written ? STORE_OK : STORE_FENCED);
	ck_assert_int_eq(commits[0].outbox[0].claimed, written);
	ck_assert_int_eq(version_of(1), written ? 3 : 2);
}
END_TEST

START_TEST(unknown_duplicate_is_a_duplicate)
{
	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_inbox(&rig, &commits[0], "e1");
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	rig_spawn(&rig, &commits[1], "a", test_id(2));
	commit_inbox(&rig, &commits[1], "e1");
	fake_script(fake,
		    (struct fake_step){.when = STATEMENT_INSTANCE_INSERT, .fate = FAKE_DOUBT_LOST});
	ck_assert_int_eq(rig_run(&rig, &commits[1].base), STORE_DUPLICATE);
	ck_assert_int_eq(version_of(2), 0);
}
END_TEST

START_TEST(unknown_and_locked_is_run_until_it_is_known)
{
	given_claimed(1);
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	fake_script(fake,
		    (struct fake_step){.when = STATEMENT_FENCE_UPDATE, .fate = FAKE_DOUBT_LOST});
	fake_script(fake, (struct fake_step){
				  .when = STATEMENT_FENCE_UPDATE, .fate = FAKE_LOCKED, .times = 2});
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	ck_assert_int_eq(version_of(1), 2);
}
END_TEST

/* --- down --- */

START_TEST(what_waits_is_unavailable_when_the_database_goes)
{
	struct store_claim claim;
	struct store_resolve resolve;
	struct buf why = BUF_INIT;

	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_HOLD,
					     .times = 2});
	given_spawns(3);
	for (uint32_t i = 0; i < 3; i++) {
		rig_burst(&rig, all + i, 1);
		settle();
	}
	rig_claim(&rig, &claim, "a", test_id(1), "lane-1");
	rig_send(&rig, &claim.base);
	resolve = (struct store_resolve){.base = claim.base, .tenant = STR("a")};
	resolve.base.kind = STORE_RESOLVE;
	rig_send(&rig, &resolve.base);
	settle();
	fake_cut(fake);
	rig_wait(&rig);
	ck_assert_uint_eq(count_outcomes(3, STORE_UNAVAILABLE), 3);
	ck_assert_int_eq(claim.base.outcome, STORE_UNAVAILABLE);
	ck_assert_int_eq(resolve.base.outcome, STORE_UNAVAILABLE);
	ck_assert(!store_is_up(rig.store, &why));
	ck_assert_str_slice(buf_str(&why), STR("cut by the test"));
	buf_done(&why);
	ck_assert_int_eq(rig_run(&rig, &claim.base), STORE_UNAVAILABLE);
	fake_restore(fake);
	ck_assert(store_is_up(rig.store, NULL));
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
}
END_TEST

START_TEST(doubt_outlives_a_database_that_is_away)
{
	rig_spawn(&rig, &commits[0], "a", test_id(1));
	commit_inbox(&rig, &commits[0], "e1");
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_DOUBT_WRITTEN,
					     .xid = 5,
					     .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_BACKEND_TERMINATE,
					     .fate = FAKE_HOLD,
					     .times = 1});
	fake_script(fake, (struct fake_step){
				  .when = STATEMENT_XACT_STATUS, .fate = FAKE_NULL, .times = 1});
	rig_send(&rig, &commits[0].base);
	until_in_doubt();
	fake_cut(fake);
	fake_restore(fake);
	rig_wait(&rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_OK);
}
END_TEST

START_TEST(stop_answers_what_is_in_doubt)
{
	rig_spawn(&rig, &commits[0], "a", test_id(1));
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_DOUBT_WRITTEN,
					     .xid = 5,
					     .backend_pid = 9});
	fake_script(fake, (struct fake_step){.when = STATEMENT_BACKEND_TERMINATE,
					     .fate = FAKE_HOLD,
					     .times = 1});
	rig_send(&rig, &commits[0].base);
	until_in_doubt();
	store_stop(rig.store);
	rig_wait(&rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_UNAVAILABLE);
}
END_TEST

/* --- batches and their order --- */

START_TEST(batches_grow_while_connections_are_busy)
{
	/* Both connections are busy with one element each; what comes meanwhile goes as one batch. */
	fake_script(fake, (struct fake_step){.when = STATEMENT_INSTANCE_INSERT,
					     .fate = FAKE_HOLD,
					     .times = 2});
	given_spawns(MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		rig_burst(&rig, all + i, 1);
		settle();
	}
	fake_release(fake);
	rig_wait(&rig);
	ck_assert_uint_eq(count_outcomes(MANY, STORE_OK), MANY);
	ck_assert_uint_eq(rig_stats(&rig).batches[STORE_COMMIT], 3);
}
END_TEST

START_TEST(claims_are_asynchronous_commits_durable)
{
	uint32_t count;
	const struct fake_entry *log;

	given_claimed(1);
	log = fake_log(fake, &count);
	for (uint32_t i = 0; i < count; i++)
		ck_assert_int_eq(log[i].durable, log[i].first != STATEMENT_CLAIM);
	ck_assert_uint_eq(count, 2);
}
END_TEST

/* --- fault points --- */

START_TEST(fault_specs)
{
	ck_assert(fault_configure(NULL));
	ck_assert(!fault_armed);
	ck_assert(fault_configure("claim_before=kill@2,commit_after=delay:5,commit_sent=fail"));
	ck_assert(fault_armed);
	ck_assert(!fault_configure("claim_befor=kill"));
	ck_assert(!fault_configure("claim_before"));
	ck_assert(!fault_configure("claim_before=delay"));
	ck_assert(!fault_configure("claim_before=delay:x"));
	ck_assert(!fault_configure("claim_before=fail:1"));
	ck_assert(!fault_configure("claim_before=fail@0"));
	ck_assert(!fault_configure("claim_before=fail,"));
	ck_assert(!fault_armed);
	ck_assert(fault_configure("claim_before=fail@2"));
	ck_assert(!fault(FAULT_claim_before));
	ck_assert(fault(FAULT_claim_before));
	ck_assert(!fault(FAULT_claim_before));
	ck_assert(!fault(FAULT_commit_after));
	ck_assert(fault_configure(""));
	ck_assert(!fault(FAULT_claim_before));
}
END_TEST

START_TEST(fault_points_of_the_store)
{
	struct store_claim claim;

	given_claimed(1);
	ck_assert(fault_configure(
		"claim_before=fail@1,claim_after=fail@1,commit_before=fail@1,commit_after=fail@1"));
	for (int i = 0; i < 3; i++) {
		rig_claim(&rig, &claim, "a", test_id(1), "lane-1");
		ck_assert_int_eq(rig_run(&rig, &claim.base), i < 2 ? STORE_UNAVAILABLE : STORE_OK);
	}
	rig_resume(&rig, &commits[0], "a", test_id(1), "lane-1", 1);
	commit_inbox(&rig, &commits[0], "e1");
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_UNAVAILABLE);
	ck_assert_int_eq(version_of(1), 1);
	/* Committed, but the answer got lost: found out. */
	ck_assert_int_eq(rig_run(&rig, &commits[0].base), STORE_OK);
	ck_assert_int_eq(version_of(1), 2);
	ck_assert(fault_configure(NULL));
}
END_TEST

static Suite *trouble_suite(void)
{
	Suite *suite = suite_create("store in trouble");
	TCase *gates = tcase_create("gates"), *doubt = tcase_create("doubt"),
	      *down = tcase_create("down"), *batches = tcase_create("batches"),
	      *faults = tcase_create("faults");
	TCase *cases[] = {gates, doubt, down, batches, faults};

	TEST_ADD_ALL(gates, locked_fence_waits_in_quarantine, fence_locked_for_ever_is_unavailable,
		     locked_message_waits_in_quarantine, locked_schedule_goes_alone,
		     message_locked_for_ever_is_unavailable,
		     lock_timeout_halves_down_to_the_stuck_one, claim_that_meets_a_lock_is_refused,
		     bad_element_is_found_by_halves, error_of_the_server_does_not_reject,
		     shutdown_is_tried_again_then_unavailable, lost_connection_runs_again);
	TEST_ADD_ALL(doubt, doubt_that_committed_is_answered_as_committed,
		     doubt_that_aborted_runs_again, unknown_batch_of_many,
		     unknown_resume_that_lost_to_another, unknown_duplicate_is_a_duplicate,
		     unknown_and_locked_is_run_until_it_is_known);
	tcase_add_loop_test(doubt, unknown_spawn, 0, 8);
	tcase_add_loop_test(doubt, unknown_spawn_with_plain_rows_only, 0, 8);
	tcase_add_loop_test(doubt, unknown_resume_with_an_event, 0, 8);
	tcase_add_loop_test(doubt, unknown_resume_without_an_event, 0, 8);
	tcase_add_loop_test(doubt, unknown_resume_that_others_went_on_from, 0, 2);
	tcase_add_loop_test(doubt, unknown_letter, 0, 8);
	tcase_add_loop_test(doubt, unknown_keep, 0, 8);
	tcase_add_loop_test(doubt, unknown_spawn_of_a_kept_message, 0, 8);
	tcase_add_loop_test(doubt, unknown_resume_of_a_kept_message, 0, 8);
	tcase_add_loop_test(doubt, unknown_end_of_a_kept_message, 0, 8);
	tcase_add_loop_test(doubt, unknown_start_by_a_timer, 0, 8);
	tcase_add_loop_test(doubt, unknown_end_of_a_start_by_a_timer, 0, 8);
	tcase_add_loop_test(doubt, unknown_fire_of_a_timer, 0, 8);
	tcase_add_loop_test(doubt, unknown_start_that_lost_its_timer, 0, 4);
	tcase_add_loop_test(doubt, unknown_and_schedule_locked, 0, 2);
	tcase_add_loop_test(doubt, unknown_spawn_that_lost_its_message, 0, 2);
	tcase_add_loop_test(doubt, unknown_resume_that_lost_its_message, 0, 2);
	tcase_add_loop_test(doubt, unknown_end_that_lost_its_message, 0, 2);
	tcase_add_loop_test(doubt, unknown_and_message_locked, 0, 2);
	TEST_ADD_ALL(down, what_waits_is_unavailable_when_the_database_goes,
		     doubt_outlives_a_database_that_is_away, stop_answers_what_is_in_doubt);
	TEST_ADD_ALL(batches, batches_grow_while_connections_are_busy,
		     claims_are_asynchronous_commits_durable);
	TEST_ADD_ALL(faults, fault_specs, fault_points_of_the_store);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		tcase_add_checked_fixture(cases[i], setup, teardown);
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	return suite;
}

TEST_MAIN(trouble_suite)
