/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The third part of the suite: kept messages, that is their order, who may have them, and that each has its effect once.
 */
#include <stdio.h>

#include "tests/support/store_suite_private.h"

#define KEY(n)	   test_id(500 + (n))
#define KEPT(n)	   test_id(700 + (n))
#define EVERYBODY  INT64_MAX
#define HOUR_MS	   INT64_C(3600000)

/* Columns of KEPT_LOAD. */
enum { LOAD_order_key, LOAD_id, LOAD_seq, LOAD_created, LOAD_unmatched, LOAD_envelope, LOAD_body, LOAD_ahead };

static void prepare_keep(struct store_commit *commit, const char *tenant, const char *keeper)
{
	rig_letter(&suite_rig, commit, tenant);
	commit->keeper = str_of(keeper);
}

/* One kept message, in a commit of its own. */
static void given_kept(const char *keeper, uint32_t n, uint32_t key)
{
	struct store_commit commit;

	prepare_keep(&commit, "a", keeper);
	commit_keep(&suite_rig, &commit, KEPT(n), KEY(key), arena_printf(&suite_rig.arena, "body-%u", n));
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

static const struct rows *load(const char *tenant, uint32_t key, const char *keeper)
{
	return rig_query(&suite_rig, arena_printf(&suite_rig.arena, ",%s,", tenant), false, STATEMENT_KEPT_LOAD, tenant,
			 KEY(key), keeper);
}

/* The keeper's first message of the key is this one. */
static void check_head(uint32_t key, const char *keeper, uint32_t n, bool ahead)
{
	const struct rows *rows = load("a", key, keeper);

	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, LOAD_order_key)->id, KEY(key)));
	ck_assert(id_equal(rows_at(rows, 0, LOAD_id)->id, KEPT(n)));
	ck_assert_int_eq(rows_at(rows, 0, LOAD_ahead)->b, ahead);
}

static int64_t seq_of(uint32_t key, const char *keeper)
{
	return rows_at(load("a", key, keeper), 0, LOAD_seq)->i;
}

static const struct rows *list(const char *tenants)
{
	return rig_query(&suite_rig, tenants, false, STATEMENT_KEPT_LIST, NULL, NULL, ID_NONE, LIMIT + 1, LIMIT);
}

static const struct rows *recover(const char *keeper, int64_t limit)
{
	return rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RECOVER, "a", "orders", keeper, limit);
}

static void lease(const char *keeper, int64_t ttl_ms)
{
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_ACQUIRE, arena_printf(&suite_rig.arena, "keeper:%s", keeper), keeper,
		  ttl_ms);
}

static void prepare_resolve(struct store_resolve *resolve, const char *tenant, uint32_t key, int64_t before)
{
	struct store_commit like;

	rig_letter(&suite_rig, &like, tenant);
	*resolve = (struct store_resolve){
		.base = like.base, .tenant = str_of(tenant), .order_key = KEY(key), .kept_before = before};
	resolve->base.kind = STORE_RESOLVE;
}

static bool is_ahead(const char *tenant, uint32_t key, int64_t before)
{
	struct store_resolve resolve;

	prepare_resolve(&resolve, tenant, key, before);
	resolve.kept_ahead = true; /* must be overwritten */
	ck_assert_int_eq(rig_run(&suite_rig, &resolve.base), STORE_OK);
	return resolve.kept_ahead;
}

static enum store_outcome end_kept(uint32_t n, const char *keeper)
{
	struct store_commit commit;

	rig_letter(&suite_rig, &commit, "a");
	commit_keep_end(&commit, KEPT(n), keeper);
	return rig_run(&suite_rig, &commit.base);
}

/* --- keeping and finding --- */

START_TEST(kept_message_is_whole)
{
	struct store_commit commit;
	const struct rows *rows;
	const struct field *f;

	prepare_keep(&commit, "a", "boot-1");
	commit_keep(&suite_rig, &commit, KEPT(1), KEY(1), "body-1");
	commit_keep(&suite_rig, &commit, KEPT(2), KEY(2), NULL);
	((struct kept_row *)(uintptr_t)commit.kept_added)[0].unmatched_us = INT64_C(1700000000000000);
	((struct kept_row *)(uintptr_t)commit.kept_added)[0].source = str_make("bad \xff", 5);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	f = rows_at(load("a", 1, "boot-1"), 0, 0);
	ck_assert(!f[LOAD_created].is_null);
	ck_assert_int_eq(f[LOAD_unmatched].i, INT64_C(1700000000000000));
	ck_assert_str_slice(f[LOAD_envelope].str, str_make("\x81\0", 2));
	ck_assert_str_slice(f[LOAD_body].str, STR("body-1"));
	ck_assert(!f[LOAD_ahead].b);
	f = rows_at(load("a", 2, "boot-1"), 0, 0);
	ck_assert(f[LOAD_unmatched].is_null && f[LOAD_body].is_null);
	rows = list(",a,");
	ck_assert_uint_eq(rows->row_count, 2);
	f = rows_at(rows, 0, 0);
	ck_assert(id_equal(f[0].id, KEPT(1)));
	ck_assert_str_slice(f[1].str, STR("a"));
	ck_assert_str_slice(f[2].str, STR("orders"));
	ck_assert_str_slice(f[3].str, STR("overflow"));
	ck_assert(id_equal(f[4].id, KEY(1)));
	ck_assert_str_slice(f[6].str, STR("boot-1"));
	ck_assert_str_slice(f[7].str, STR("bad \xef\xbf\xbd"));
	ck_assert_int_eq(f[9].i, INT64_C(1700000000000000));
	ck_assert_int_eq(f[10].i, 6);
	f = rows_at(rows, 1, 0);
	ck_assert(f[5].i > rows_at(rows, 0, 5)->i);
	ck_assert(f[9].is_null && f[10].is_null);
}
END_TEST

START_TEST(kept_messages_are_seen_by_those_that_come_later)
{
	int64_t first, second;

	ck_assert(!is_ahead("a", 1, EVERYBODY));
	given_kept("boot-1", 1, 1);
	ck_assert(is_ahead("a", 1, EVERYBODY));
	ck_assert(!is_ahead("a", 2, EVERYBODY));
	first = seq_of(1, "boot-1");
	ck_assert(!is_ahead("a", 1, first));
	given_kept("boot-2", 2, 1);
	second = seq_of(1, "boot-2");
	ck_assert(is_ahead("a", 1, second));
	ck_assert_int_eq(end_kept(1, "boot-1"), STORE_OK);
	ck_assert(!is_ahead("a", 1, second));
	ck_assert(is_ahead("a", 1, EVERYBODY));
	ck_assert_int_eq(end_kept(2, "boot-2"), STORE_OK);
	ck_assert(!is_ahead("a", 1, EVERYBODY));
}
END_TEST

/* One that asks for everything, one for nothing, one for a key without anything: each gets its own. */
START_TEST(resolves_of_one_batch_are_told_apart)
{
	struct store_resolve resolves[4];
	struct store_request *all[4];
	struct store_commit commit;
	struct id inbox = store_inbox_key(STR("a"), STR("orders"), STR("e1"));
	struct id wait = store_wait_key(STR("a"), STR("paid"), STR("order"), STR("o-1"));

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_inbox(&suite_rig, &commit, "e1");
	commit_wait(&suite_rig, &commit, 1, "o-1", false);
	commit_keep(&suite_rig, &commit, KEPT(1), KEY(1), "x");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	prepare_resolve(&resolves[0], "a", 1, EVERYBODY);
	prepare_resolve(&resolves[1], "a", 2, EVERYBODY);
	prepare_resolve(&resolves[2], "b", 1, EVERYBODY);
	prepare_resolve(&resolves[3], "a", 1, EVERYBODY);
	resolves[1].wait_keys = resolves[3].wait_keys = &wait;
	resolves[1].wait_key_count = resolves[3].wait_key_count = 1;
	resolves[3].inbox_keys = &inbox;
	resolves[3].inbox_key_count = 1;
	for (uint32_t i = 0; i < 4; i++)
		all[i] = &resolves[i].base;
	rig_burst(&suite_rig, all, 4);
	rig_wait(&suite_rig);
	ck_assert_uint_eq(rig_stats(&suite_rig).batches[STORE_RESOLVE], 1);
	ck_assert(resolves[0].kept_ahead && !resolves[0].duplicate && !resolves[0].wait_count);
	ck_assert(!resolves[1].kept_ahead && resolves[1].wait_count == 1);
	ck_assert(!resolves[2].kept_ahead && !resolves[2].wait_count);
	ck_assert(resolves[3].kept_ahead && resolves[3].duplicate && resolves[3].wait_count == 1);
}
END_TEST

START_TEST(seq_follows_the_order_of_keeping)
{
	struct store_commit commit;
	int64_t last = -1;

	/* Several in a commit, whatever their ids; and another key between. */
	prepare_keep(&commit, "a", "boot-1");
	commit_keep(&suite_rig, &commit, KEPT(9), KEY(1), "1");
	commit_keep(&suite_rig, &commit, KEPT(5), KEY(0), "other");
	commit_keep(&suite_rig, &commit, KEPT(7), KEY(1), "2");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	given_kept("boot-1", 8, 1);
	given_kept("boot-1", 6, 1);
	for (uint32_t i = 0; i < 4; i++) {
		static const uint32_t want[] = {9, 7, 8, 6};

		check_head(1, "boot-1", want[i], false);
		ck_assert_int_gt(seq_of(1, "boot-1"), last);
		last = seq_of(1, "boot-1");
		ck_assert_int_eq(end_kept(want[i], "boot-1"), STORE_OK);
	}
	ck_assert_uint_eq(load("a", 1, "boot-1")->row_count, 0);
	check_head(0, "boot-1", 5, false);
}
END_TEST

START_TEST(head_is_the_keepers_first_and_says_who_is_ahead)
{
	given_kept("boot-1", 1, 1);
	given_kept("boot-2", 2, 1);
	given_kept("boot-1", 3, 1);
	check_head(1, "boot-1", 1, false);
	check_head(1, "boot-2", 2, true);
	ck_assert_int_eq(end_kept(1, "boot-1"), STORE_OK);
	check_head(1, "boot-1", 3, true);
	check_head(1, "boot-2", 2, false);
	ck_assert_uint_eq(load("a", 1, "boot-3")->row_count, 0);
	/* Nobody's also counts. */
	rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RELEASE, "a", "orders", "boot-2", LIMIT);
	check_head(1, "boot-1", 3, true);
}
END_TEST

START_TEST(keeping_twice_keeps_once)
{
	given_kept("boot-1", 1, 1);
	given_kept("boot-1", 1, 1);
	ck_assert_uint_eq(list(",a,")->row_count, 1);
}
END_TEST

START_TEST(kept_messages_of_another_tenant_are_not_seen)
{
	struct store_commit commit;

	given_kept("boot-1", 1, 1);
	ck_assert(!is_ahead("b", 1, EVERYBODY));
	ck_assert_uint_eq(load("b", 1, "boot-1")->row_count, 0);
	ck_assert_uint_eq(list(",b,")->row_count, 0);
	ck_assert_uint_eq(rig_query(&suite_rig, ",a,b,", false, STATEMENT_KEPT_LIST, "b", NULL, ID_NONE, LIMIT + 1, LIMIT)->row_count, 0);
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",b,", true, STATEMENT_KEPT_RECOVER, "b", "orders", "boot-2", LIMIT)->row_count, 0);
	rig_query(&suite_rig, ",b,", true, STATEMENT_KEPT_RELEASE, "b", "orders", "boot-1", LIMIT);
	rig_letter(&suite_rig, &commit, "b");
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_KEPT_LOST);
	check_head(1, "boot-1", 1, false);
	/* Keys of two tenants do not meet, even if they are the same. */
	prepare_keep(&commit, "b", "boot-1");
	commit_keep(&suite_rig, &commit, KEPT(2), KEY(1), "x");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(!rows_at(load("b", 1, "boot-1"), 0, LOAD_ahead)->b);
}
END_TEST

/* --- effects --- */

START_TEST(effect_removes_its_message_in_the_same_commit)
{
	struct store_commit commit;

	given_kept("boot-1", 1, 1);
	suite_given_claimed("a", 1, "lane-1");
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_inbox(&suite_rig, &commit, "e1");
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(list(",a,")->row_count, 0);
	ck_assert_int_eq(suite_instance_field(",a,", 1, 5).i, 2);
	/* What fails another gate leaves it: there is no effect without the removal, nor the other way round. */
	given_kept("boot-1", 2, 1);
	rig_spawn(&suite_rig, &commit, "a", test_id(2));
	commit_inbox(&suite_rig, &commit, "e1");
	commit_keep_end(&commit, KEPT(2), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_DUPLICATE);
	check_head(1, "boot-1", 2, false);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 2);
	commit_keep_end(&commit, KEPT(2), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
	check_head(1, "boot-1", 2, false);
}
END_TEST

START_TEST(message_is_consumed_once)
{
	struct store_commit commit;

	given_kept("boot-1", 1, 1);
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	/* By a spawn, by a resume, by its end: nothing is written. */
	rig_spawn(&suite_rig, &commit, "a", test_id(2));
	commit_inbox(&suite_rig, &commit, "e2");
	commit_send(&suite_rig, &commit, "out", "body");
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_KEPT_LOST);
	ck_assert(!suite_instance_exists(",a,", 2));
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_inbox(&suite_rig, &commit, "e2");
	commit_send(&suite_rig, &commit, "out", "body");
	commit_keep(&suite_rig, &commit, KEPT(5), KEY(5), "x");
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_KEPT_LOST);
	ck_assert_int_eq(suite_instance_field(",a,", 1, 5).i, 1);
	ck_assert_str_slice(suite_instance_field(",a,", 1, 10).str, STR("lane-1"));
	ck_assert_uint_eq(rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LIST, ID_NONE, "", INT64_C(0), INT64_C(0), LIMIT)
				  ->row_count,
			  0);
	ck_assert_uint_eq(list(",a,")->row_count, 0);
	rig_letter(&suite_rig, &commit, "a");
	commit_dead_letter(&suite_rig, &commit, test_id(50), STR("why"));
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_KEPT_LOST);
	ck_assert_uint_eq(rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, LIMIT)->row_count, 0);
	/* Its event is still free. */
	rig_spawn(&suite_rig, &commit, "a", test_id(3));
	commit_inbox(&suite_rig, &commit, "e2");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}
END_TEST

START_TEST(message_of_another_keeper_is_not_consumed)
{
	given_kept("boot-2", 1, 1);
	ck_assert_int_eq(end_kept(1, "boot-1"), STORE_KEPT_LOST);
	rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RELEASE, "a", "orders", "boot-2", LIMIT);
	ck_assert_int_eq(end_kept(1, "boot-1"), STORE_KEPT_LOST);
	ck_assert_int_eq(end_kept(1, "boot-2"), STORE_KEPT_LOST);
	ck_assert_uint_eq(recover("boot-1", LIMIT)->row_count, 1);
	ck_assert_int_eq(end_kept(1, "boot-1"), STORE_OK);
}
END_TEST

START_TEST(message_moves_to_the_dead_letters)
{
	struct store_commit commit;

	given_kept("boot-1", 1, 1);
	rig_letter(&suite_rig, &commit, "a");
	commit_dead_letter(&suite_rig, &commit, test_id(50), STR("why"));
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(list(",a,")->row_count, 0);
	ck_assert_uint_eq(rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, LIMIT)->row_count, 1);
}
END_TEST

START_TEST(batch_with_one_lost_message)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	struct store_commit commit;
	struct store_stats before, after;

	prepare_keep(&commit, "a", "boot-1");
	for (uint32_t i = 0; i < MANY; i++)
		commit_keep(&suite_rig, &commit, KEPT(i), KEY(i % 5), "x");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_int_eq(end_kept(77, "boot-1"), STORE_OK);
	/* Against the order of ids: it is the store that sorts. */
	for (uint32_t i = 0; i < MANY; i++) {
		rig_spawn(&suite_rig, &commits[i], "a", test_id(9000 - i));
		commit_send(&suite_rig, &commits[i], "out", "body");
		commit_keep_end(&commits[i], KEPT(i), "boot-1");
		all[i] = &commits[i].base;
	}
	before = rig_stats(&suite_rig);
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < MANY; i++) {
		ck_assert_int_eq(commits[i].base.outcome, i == 77 ? STORE_KEPT_LOST : STORE_OK);
		ck_assert_int_eq(commits[i].outbox[0].claimed, i != 77);
	}
	after = rig_stats(&suite_rig);
	ck_assert_uint_eq(after.gate_failures - before.gate_failures, 1);
	ck_assert_uint_eq(after.quarantined, 0);
	ck_assert(!suite_instance_exists(",a,", 9000 - 77));
	ck_assert_uint_eq(list(",a,")->row_count, 0);
}
END_TEST

START_TEST(equal_kept_messages_do_not_share_a_batch)
{
	struct store_commit commits[2];
	struct store_request *all[] = {&commits[0].base, &commits[1].base};
	bool first;

	given_kept("boot-1", 1, 1);
	for (uint32_t i = 0; i < 2; i++) {
		rig_spawn(&suite_rig, &commits[i], "a", test_id(i + 1));
		commit_keep_end(&commits[i], KEPT(1), "boot-1");
	}
	rig_burst(&suite_rig, all, 2);
	rig_wait(&suite_rig);
	/* The second batch may run on a connection of its own, and win. */
	first = commits[0].base.outcome == STORE_OK;
	ck_assert_int_eq(commits[first ? 0 : 1].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[first ? 1 : 0].base.outcome, STORE_KEPT_LOST);
	ck_assert(suite_instance_exists(",a,", first ? 1 : 2));
	ck_assert(!suite_instance_exists(",a,", first ? 2 : 1));
}
END_TEST

START_TEST(message_of_two_stores_has_one_winner)
{
	static struct store_commit ours[MANY], theirs[MANY];
	struct store_commit commit;
	struct store_rig other;

	prepare_keep(&commit, "a", "boot-1");
	for (uint32_t i = 0; i < MANY; i++)
		commit_keep(&suite_rig, &commit, KEPT(i), KEY(1), "x");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	store_rig_init(&other, suite_executor_new(), NULL);
	for (uint32_t i = 0; i < MANY; i++) {
		rig_spawn(&suite_rig, &ours[i], "a", test_id(2000 + i));
		commit_keep_end(&ours[i], KEPT(i), "boot-1");
		rig_spawn(&other, &theirs[i], "a", test_id(5000 + i));
		commit_keep_end(&theirs[i], KEPT(i), "boot-1");
	}
	for (uint32_t i = 0; i < MANY; i++) {
		rig_send(&suite_rig, &ours[i].base);
		rig_send(&other, &theirs[i].base);
	}
	rig_wait(&suite_rig);
	rig_wait(&other);
	for (uint32_t i = 0; i < MANY; i++) {
		enum store_outcome a = ours[i].base.outcome, b = theirs[i].base.outcome;

		ck_assert_msg((a == STORE_OK && b == STORE_KEPT_LOST) || (a == STORE_KEPT_LOST && b == STORE_OK),
			      "message %u: %d and %d", i, a, b);
	}
	store_rig_done(&other);
}
END_TEST

START_TEST(kept_messages_count_in_the_size_of_a_batch)
{
	struct store_settings settings = store_rig_settings();
	struct store_commit commits[3];
	struct store_request *all[3];
	char *large;

	settings.batch_max_bytes = 20000;
	suite_reopen(&settings);
	large = arena_zalloc(&suite_rig.arena, 15001);
	memset(large, 'x', 15000);
	for (uint32_t i = 0; i < 3; i++) {
		prepare_keep(&commits[i], "a", "boot-1");
		commit_keep(&suite_rig, &commits[i], KEPT(i), KEY(i), large);
		all[i] = &commits[i].base;
	}
	rig_burst(&suite_rig, all, 3);
	rig_wait(&suite_rig);
	ck_assert_uint_eq(rig_stats(&suite_rig).batches[STORE_COMMIT], 3);
	ck_assert_uint_eq(rows_at(load("a", 2, "boot-1"), 0, LOAD_body)->str.len, 15000);
}
END_TEST

START_TEST(message_that_is_kept_by_nobody_is_found)
{
	struct store_commit commit;

	prepare_keep(&commit, "a", NULL);
	commit_keep(&suite_rig, &commit, KEPT(1), KEY(1), "x");
	((struct kept_row *)(uintptr_t)commit.kept_added)[0].kind = KEPT_REPLAY;
	commit.keeper = STR_NONE;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_str_slice(rows_at(list(",a,"), 0, 3)->str, STR("replay"));
	ck_assert(rows_at(list(",a,"), 0, 6)->is_null);
	ck_assert_uint_eq(recover("boot-1", LIMIT)->row_count, 1);
	check_head(1, "boot-1", 1, false);
}
END_TEST

START_TEST(kept_messages_that_the_database_refuses)
{
	struct store_commit commit;
	char long_name[600];

	memset(long_name, 'n', sizeof(long_name));
	prepare_keep(&commit, "a", NULL);
	commit_keep(&suite_rig, &commit, KEPT(1), KEY(1), "x");
	commit.keeper = str_make(long_name, sizeof(long_name));
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	commit.keeper = STR("\xff");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	commit.keeper = STR("boot-1");
	((struct kept_row *)(uintptr_t)commit.kept_added)[0].channel = str_make(long_name, sizeof(long_name));
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	rig_letter(&suite_rig, &commit, "a");
	commit.kept_removed = KEPT(1);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	ck_assert_uint_eq(list(",a,")->row_count, 0);
}
END_TEST

/* --- keepers --- */

START_TEST(only_what_nobody_alive_keeps_is_recovered)
{
	const struct rows *rows;

	given_kept("alive", 1, 1);
	given_kept("expired", 2, 1);
	given_kept("alive", 3, 2);
	given_kept("unknown", 4, 3);
	given_kept("expired", 5, 1);
	given_kept("released", 6, 4);
	given_kept("us", 7, 5);
	lease("alive", HOUR_MS);
	lease("expired", STALE_MS);
	lease("released", HOUR_MS);
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_RELEASE, "keeper:released", "released");
	rows = recover("us", LIMIT);
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEY(1)));
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 2);
	ck_assert(id_equal(rows_at(rows, 1, 0)->id, KEY(3)));
	ck_assert_int_eq(rows_at(rows, 1, 1)->i, 1);
	ck_assert(id_equal(rows_at(rows, 2, 0)->id, KEY(4)));
	check_head(1, "us", 2, true);
	check_head(3, "us", 4, false);
	check_head(1, "alive", 1, false);
	check_head(2, "alive", 3, false);
	/* They are ours now, with or without a lease of ours. */
	ck_assert_uint_eq(recover("us", LIMIT)->row_count, 0);
	ck_assert_int_eq(end_kept(2, "expired"), STORE_KEPT_LOST);
	ck_assert_int_eq(end_kept(2, "us"), STORE_OK);
}
END_TEST

START_TEST(released_messages_are_recovered_oldest_first_up_to_a_limit)
{
	const struct rows *rows;

	for (uint32_t n = 0; n < 6; n++)
		given_kept(n % 2 ? "gone" : "us", 20 - n, n % 2 ? 1 : 2);
	lease("us", HOUR_MS);
	lease("gone", HOUR_MS);
	ck_assert_uint_eq(recover("next", LIMIT)->row_count, 0);
	rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RELEASE, "a", "other channel", "us", LIMIT);
	ck_assert_uint_eq(recover("next", LIMIT)->row_count, 0);
	rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RELEASE, "a", "orders", "us", LIMIT);
	lease("gone", STALE_MS);
	/* The released and the dead one's, one after the other. */
	rows = recover("next", 3);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEY(2)));
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 2);
	ck_assert(id_equal(rows_at(rows, 1, 0)->id, KEY(1)));
	ck_assert_int_eq(rows_at(rows, 1, 1)->i, 1);
	check_head(2, "next", 20, false);
	check_head(1, "next", 19, false);
	check_head(1, "gone", 17, true);
	rows = recover("next", 0);
	ck_assert_uint_eq(rows->row_count, 0);
	rows = recover("next", LIMIT);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i + rows_at(rows, 1, 1)->i, 3);
	ck_assert_uint_eq(load("a", 1, "gone")->row_count, 0);
	/* Of another channel nothing. */
	rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RELEASE, "a", "orders", "next", LIMIT);
	ck_assert_uint_eq(rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RECOVER, "a", "other", "us", LIMIT)->row_count, 0);
}
END_TEST

START_TEST(kept_messages_are_listed_and_counted)
{
	struct store_commit commit;
	const struct rows *rows;

	ck_assert_uint_eq(rig_query(&suite_rig, NULL, false, STATEMENT_KEPT_COUNTS, LIMIT)->row_count, 0);
	for (uint32_t n = 1; n <= 3; n++)
		given_kept("boot-1", n, n);
	prepare_keep(&commit, "b", "boot-1");
	commit_keep(&suite_rig, &commit, KEPT(4), KEY(4), "x");
	((struct kept_row *)(uintptr_t)commit.kept_added)[0].channel = STR("bills");
	commit_keep(&suite_rig, &commit, KEPT(5), KEY(4), "x");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
#define LIST(tenants, tenant, channel, after, limit) LOOK(tenants, tenant, channel, after, LIMIT, limit)
#define LOOK(tenants, tenant, channel, after, look, limit) \
	rig_query(&suite_rig, tenants, false, STATEMENT_KEPT_LIST, tenant, channel, after, look, (int64_t)(limit))
	ck_assert_uint_eq(LIST(",a,b,", NULL, NULL, ID_NONE, 100)->row_count, 5);
	ck_assert_uint_eq(LIST(",a,b,", "b", NULL, ID_NONE, 100)->row_count, 2);
	ck_assert_uint_eq(LIST(",a,b,", NULL, "orders", ID_NONE, 100)->row_count, 4);
	ck_assert_uint_eq(LIST(",a,b,", "b", "orders", ID_NONE, 100)->row_count, 1);
	ck_assert_uint_eq(LIST(",a,", NULL, NULL, ID_NONE, 100)->row_count, 3);
	rows = LIST(",a,b,", NULL, NULL, KEPT(1), 2);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEPT(2)));
	ck_assert(id_equal(rows_at(rows, 1, 0)->id, KEPT(3)));
	/* After so many were looked at in vain, where that was. */
	rows = LOOK(",a,b,", "b", NULL, ID_NONE, INT64_C(2), 100);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEPT(2)));
	ck_assert(rows_at(rows, 0, 1)->is_null);
	rows = LOOK(",a,b,", "b", NULL, KEPT(2), INT64_C(2), 100);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEPT(4)));
	ck_assert(id_equal(rows_at(rows, 1, 0)->id, KEPT(4)) && rows_at(rows, 1, 1)->is_null);
#undef LOOK
#undef LIST
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_KEPT_COUNTS, LIMIT);
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("a"));
	ck_assert_str_slice(rows_at(rows, 0, 1)->str, STR("orders"));
	ck_assert_int_eq(rows_at(rows, 0, 2)->i, 3);
	ck_assert(!rows_at(rows, 0, 3)->is_null);
	ck_assert_str_slice(rows_at(rows, 1, 0)->str, STR("b"));
	ck_assert_str_slice(rows_at(rows, 1, 1)->str, STR("bills"));
	ck_assert_int_eq(rows_at(rows, 1, 2)->i, 1);
	ck_assert_str_slice(rows_at(rows, 2, 1)->str, STR("orders"));
	ck_assert_int_eq(rows_at(rows, 2, 2)->i, 1);
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_KEPT_COUNTS, INT64_C(2));
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert_int_eq(rows_at(rows, 0, 2)->i, 2);
}
END_TEST

START_TEST(own_messages_are_listed_by_seq_and_released_by_pages)
{
	const struct rows *rows;
	int64_t seq;

	for (uint32_t n = 1; n <= 5; n++)
		given_kept(n == 3 ? "other" : "us", n, n);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_KEPT_OWN, "a", "orders", "us", INT64_C(0), INT64_C(3));
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEY(1)));
	ck_assert(id_equal(rows_at(rows, 2, 0)->id, KEY(4)));
	seq = rows_at(rows, 2, 1)->i;
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_KEPT_OWN, "a", "orders", "us", seq, INT64_C(3));
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEY(5)));
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",a,", false, STATEMENT_KEPT_OWN, "a", "bills", "us", INT64_C(0), LIMIT)->row_count, 0);
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",b,", false, STATEMENT_KEPT_OWN, "a", "orders", "us", INT64_C(0), LIMIT)->row_count, 0);
	rows = rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RELEASE, "a", "orders", "us", INT64_C(3));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 3);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_KEPT_OWN, "a", "orders", "us", INT64_C(0), LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEY(5)));
	rows = rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_RELEASE, "a", "orders", "us", INT64_C(3));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 1);
}
END_TEST

START_TEST(leases_are_purged_by_prefix_and_age)
{
	const struct rows *rows;

	lease("old", STALE_MS);
	lease("fresh", HOUR_MS);
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_ACQUIRE, "keeperx", "boot-1", STALE_MS);
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_ACQUIRE, "sweeper", "boot-1", STALE_MS);
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_PURGE, "keeper:", INT64_C(60000));
	ck_assert_uint_eq(rig_query(&suite_rig, "", false, STATEMENT_LEASE_LIST)->row_count, 4);
	/* A prefix is no pattern. */
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_PURGE, "keeper_", INT64_C(0));
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_PURGE, "%", INT64_C(0));
	ck_assert_uint_eq(rig_query(&suite_rig, "", false, STATEMENT_LEASE_LIST)->row_count, 4);
	rig_query(&suite_rig, "", true, STATEMENT_LEASE_PURGE, "keeper:", INT64_C(0));
	rows = rig_query(&suite_rig, "", false, STATEMENT_LEASE_LIST);
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("keeper:fresh"));
}
END_TEST

/* --- replays --- */

static uint32_t replay(const char *tenants, int64_t replays, uint32_t last, uint32_t as)
{
	return rig_query(&suite_rig, tenants, true, STATEMENT_DEAD_LETTER_REPLAY, test_id(5), replays,
			 last ? KEPT(last) : ID_NONE, KEPT(as), "replay:5", "envelope")->row_count;
}

START_TEST(dead_letter_is_replayed_once_at_a_time)
{
	struct store_commit commit;
	const struct rows *rows;
	const struct field *f;

	ck_assert_uint_eq(replay(",a,", 0, 0, 1), 0); /* there is none */
	rig_letter(&suite_rig, &commit, "a");
	commit_dead_letter(&suite_rig, &commit, test_id(5), STR("why"));
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(replay(",b,", 0, 0, 1), 0);
	ck_assert_uint_eq(replay(",a,", 1, 0, 1), 0);
	ck_assert_uint_eq(list(",a,")->row_count, 0);
	ck_assert_uint_eq(replay(",a,", 0, 0, 1), 1);
	rows = list(",a,");
	ck_assert_uint_eq(rows->row_count, 1);
	f = rows_at(rows, 0, 0);
	ck_assert(id_equal(f[0].id, KEPT(1)) && id_equal(f[4].id, KEPT(1)));
	ck_assert_str_slice(f[2].str, STR("orders"));
	ck_assert_str_slice(f[3].str, STR("replay"));
	ck_assert(f[6].is_null);
	ck_assert_str_slice(f[7].str, STR("replay:5"));
	/* By whoever counted before, and by whoever counts now: it is under way. */
	ck_assert_uint_eq(replay(",a,", 0, 0, 2), 0);
	ck_assert_uint_eq(replay(",a,", 1, 1, 2), 0);
	/* Any replica finds it, and its body is the payload. */
	ck_assert_uint_eq(recover("boot-1", LIMIT)->row_count, 1);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_KEPT_LOAD, "a", KEPT(1), "boot-1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, LOAD_body)->str, STR("{\xff"));
	ck_assert_str_slice(rows_at(rows, 0, LOAD_envelope)->str, STR("envelope"));
	/* Rejected again: the dead letter stays, and may be replayed again. */
	rig_letter(&suite_rig, &commit, "a");
	commit_dead_letter(&suite_rig, &commit, test_id(5), STR("again"));
	commit.dead_letter_removed = test_id(5);
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_GET, test_id(5));
	ck_assert_int_eq(rows_at(rows, 0, 14)->i, 1);
	ck_assert_uint_eq(replay(",a,", 1, 1, 2), 1);
	ck_assert_uint_eq(list(",a,")->row_count, 1);
}
END_TEST

void store_suite_kept_add(TCase *kept)
{
	TEST_ADD_ALL(kept, kept_message_is_whole, kept_messages_are_seen_by_those_that_come_later,
		     resolves_of_one_batch_are_told_apart, seq_follows_the_order_of_keeping,
		     head_is_the_keepers_first_and_says_who_is_ahead, keeping_twice_keeps_once,
		     kept_messages_of_another_tenant_are_not_seen, effect_removes_its_message_in_the_same_commit,
		     message_is_consumed_once, message_of_another_keeper_is_not_consumed, message_moves_to_the_dead_letters,
		     batch_with_one_lost_message, equal_kept_messages_do_not_share_a_batch,
		     message_of_two_stores_has_one_winner, kept_messages_count_in_the_size_of_a_batch,
		     kept_messages_that_the_database_refuses, message_that_is_kept_by_nobody_is_found,
		     only_what_nobody_alive_keeps_is_recovered,
		     released_messages_are_recovered_oldest_first_up_to_a_limit, kept_messages_are_listed_and_counted,
		     own_messages_are_listed_by_seq_and_released_by_pages,
		     leases_are_purged_by_prefix_and_age, dead_letter_is_replayed_once_at_a_time);
}
