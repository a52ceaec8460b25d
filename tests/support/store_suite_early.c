/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fourth part of the suite: early messages, which come and go with the message that they are of, and are found by who parks.
 */
#include "tests/support/store_suite_private.h"

#define KEY(n)	test_id(500 + (n))
#define KEPT(n) test_id(700 + (n))

/* Columns of KEPT_LIST. */
enum { LIST_kind = 3, LIST_unmatched = 9 };

static struct id wait_key(const char *tenant, const char *value)
{
	return store_wait_key(str_of(tenant), STR("paid"), STR("order"), str_of(value));
}

/* Kept as early under some keys, in one commit. */
static void given_early(const char *keeper, uint32_t n, uint32_t key, const char *value, const char *other)
{
	struct id keys[] = {wait_key("a", value), other ? wait_key("a", other) : ID_NONE};
	struct kept_early early = {.message = KEPT(n), .keys = keys, .key_count = other ? 2 : 1};
	struct store_commit commit;

	rig_letter(&suite_rig, &commit, "a");
	commit.keeper = str_of(keeper);
	commit_keep(&suite_rig, &commit, KEPT(n), KEY(key), "x");
	((struct kept_row *)(uintptr_t)commit.kept_added)[0].kind = KEPT_EARLY;
	commit.early = &early;
	commit.early_count = 1;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

static void mark(const char *keeper, uint32_t n, const char *value, int64_t unmatched_us)
{
	struct id key = wait_key("a", value);
	struct kept_early early = {
		.message = KEPT(n), .is_kept = true, .unmatched_us = unmatched_us, .keys = &key, .key_count = 1};
	struct store_commit commit;

	rig_letter(&suite_rig, &commit, "a");
	commit.keeper = str_of(keeper);
	commit.early = &early;
	commit.early_count = 1;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

static void given_kept(const char *keeper, uint32_t n, uint32_t key)
{
	struct store_commit commit;

	rig_letter(&suite_rig, &commit, "a");
	commit.keeper = str_of(keeper);
	commit_keep(&suite_rig, &commit, KEPT(n), KEY(key), "x");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

static void prepare_probe(struct store_probe *probe, const char *tenant, const char *value)
{
	struct id *key = arena_alloc(&suite_rig.arena, sizeof(*key));
	struct store_commit like;

	rig_letter(&suite_rig, &like, tenant);
	*key = wait_key(tenant, value);
	*probe = (struct store_probe){.base = like.base, .tenant = str_of(tenant), .keys = key, .key_count = 1,
				      .found_count = 77};
	probe->base.kind = STORE_PROBE;
}

static struct store_probe probe(const char *tenant, const char *value)
{
	struct store_probe probe;

	prepare_probe(&probe, tenant, value);
	ck_assert_int_eq(rig_run(&suite_rig, &probe.base), STORE_OK);
	return probe;
}

static const struct field *listed(uint32_t n)
{
	const struct rows *rows =
		rig_query(&suite_rig, ",a,", false, STATEMENT_KEPT_LIST, NULL, NULL, ID_NONE, LIMIT, LIMIT);

	for (uint32_t i = 0; i < rows->row_count; i++)
		if (id_equal(rows_at(rows, i, 0)->id, KEPT(n)))
			return rows_at(rows, i, 0);
	ck_abort_msg("not kept");
	return NULL;
}

START_TEST(early_message_is_found_by_each_of_its_keys)
{
	struct store_probe found;

	given_early("boot-1", 1, 1, "o-1", "o-2");
	given_early("boot-2", 2, 2, "o-2", NULL);
	ck_assert_str_slice(listed(1)[LIST_kind].str, STR("early"));
	found = probe("a", "o-1");
	ck_assert_uint_eq(found.found_count, 1);
	ck_assert(id_equal(found.found[0].order_key, KEY(1)));
	ck_assert_str_slice(found.found[0].channel, STR("orders"));
	ck_assert_str_slice(found.found[0].keeper, STR("boot-1"));
	ck_assert_uint_eq(probe("a", "o-2").found_count, 2);
	ck_assert_uint_eq(probe("a", "o-3").found_count, 0);
	/* A key tells the tenant; the segment has to as well. */
	ck_assert_uint_eq(probe("b", "o-1").found_count, 0);
	found = (struct store_probe){.base = found.base, .tenant = STR("b"), .keys = found.keys, .key_count = 1};
	ck_assert_int_eq(rig_run(&suite_rig, &found.base), STORE_OK);
	ck_assert_uint_eq(found.found_count, 0);
}
END_TEST

START_TEST(early_rows_go_with_their_message)
{
	struct store_commit commit;

	given_early("boot-1", 1, 1, "o-1", "o-2");
	given_early("boot-1", 2, 1, "o-1", NULL);
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_keep_end(&commit, KEPT(1), "boot-2");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_KEPT_LOST);
	ck_assert_uint_eq(probe("a", "o-2").found_count, 1);
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(probe("a", "o-2").found_count, 0);
	ck_assert_uint_eq(probe("a", "o-1").found_count, 1);
	rig_letter(&suite_rig, &commit, "a");
	commit_keep_end(&commit, KEPT(2), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(probe("a", "o-1").found_count, 0);
}
END_TEST

START_TEST(kept_message_becomes_early)
{
	given_kept("boot-1", 1, 1);
	ck_assert_str_slice(listed(1)[LIST_kind].str, STR("overflow"));
	ck_assert_uint_eq(probe("a", "o-1").found_count, 0);
	mark("boot-1", 1, "o-1", INT64_C(1700000000000000));
	mark("boot-1", 1, "o-1", INT64_C(1700000000000000));
	ck_assert_str_slice(listed(1)[LIST_kind].str, STR("early"));
	ck_assert_int_eq(listed(1)[LIST_unmatched].i, INT64_C(1700000000000000));
	ck_assert_uint_eq(probe("a", "o-1").found_count, 1);
	/* One that is gone leaves nothing behind. */
	mark("boot-1", 9, "o-9", INT64_C(1700000000000000));
	ck_assert_uint_eq(probe("a", "o-9").found_count, 0);
	given_kept("boot-1", 9, 9);
	ck_assert_uint_eq(probe("a", "o-9").found_count, 0);
	/* Another keeper's is not marked. */
	mark("boot-2", 9, "o-9", INT64_C(1700000000000000));
	ck_assert_str_slice(listed(9)[LIST_kind].str, STR("overflow"));
}
END_TEST

START_TEST(probes_of_one_batch_are_told_apart)
{
	struct store_probe probes[3];
	struct store_request *all[] = {&probes[0].base, &probes[1].base, &probes[2].base};

	given_early("boot-1", 1, 1, "o-1", NULL);
	given_early("boot-1", 2, 2, "o-3", "o-1");
	suite_reopen(NULL);
	prepare_probe(&probes[0], "a", "o-1");
	prepare_probe(&probes[1], "b", "o-1");
	prepare_probe(&probes[2], "a", "o-3");
	rig_burst(&suite_rig, all, 3);
	rig_wait(&suite_rig);
	ck_assert_uint_eq(rig_stats(&suite_rig).batches[STORE_PROBE], 1);
	ck_assert_uint_eq(probes[0].found_count, 2);
	ck_assert_uint_eq(probes[1].found_count, 0);
	ck_assert_uint_eq(probes[2].found_count, 1);
	ck_assert(id_equal(probes[2].found[0].order_key, KEY(2)));
}
END_TEST

static const struct rows *take(uint32_t key, const char *channel, const char *keeper)
{
	return rig_query(&suite_rig, ",a,", true, STATEMENT_KEPT_TAKE, KEY(key), "a", channel, keeper);
}

START_TEST(rows_of_an_order_key_change_hands)
{
	const struct rows *rows;
	struct store_commit commit;

	given_early("boot-1", 1, 1, "o-1", NULL);
	given_kept("boot-1", 2, 1);
	given_kept("boot-2", 3, 1);
	given_kept("boot-1", 4, 4);
	ck_assert_uint_eq(take(1, "another", "boot-2")->row_count, 0);
	rows = take(1, "orders", "boot-2");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, KEY(1)));
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 2);
	ck_assert_str_slice(listed(4)[6].str, STR("boot-1"));
	ck_assert_uint_eq(take(1, "orders", "boot-2")->row_count, 0);
	rig_letter(&suite_rig, &commit, "a");
	commit_keep_end(&commit, KEPT(1), "boot-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_KEPT_LOST);
	rig_letter(&suite_rig, &commit, "a");
	commit_keep_end(&commit, KEPT(1), "boot-2");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}
END_TEST

/* --- FAILED instances --- */

static uint32_t failed_of(const char *tenant, const char *value, struct id *instance)
{
	struct id key = store_alias_key(str_of(tenant), STR("order"), str_of(value));
	struct store_resolve resolve;
	struct store_commit like;

	rig_letter(&suite_rig, &like, tenant);
	resolve = (struct store_resolve){
		.base = like.base, .tenant = str_of(tenant), .alias_keys = &key, .alias_key_count = 1};
	resolve.base.kind = STORE_RESOLVE;
	ck_assert_int_eq(rig_run(&suite_rig, &resolve.base), STORE_OK);
	if (resolve.failed_count)
		*instance = resolve.failed[0];
	return resolve.failed_count;
}

START_TEST(failed_instance_is_found_by_its_alias)
{
	struct store_commit commit;
	struct id instance = ID_NONE;

	for (uint32_t n = 1; n <= 3; n++) {
		rig_spawn(&suite_rig, &commit, "a", test_id(n));
		commit_alias(&suite_rig, &commit, n == 3 ? "o-3" : "o-1", false);
		commit.status = n == 2 ? INSTANCE_FAILED : INSTANCE_SUSPENDED;
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	}
	ck_assert_uint_eq(failed_of("a", "o-1", &instance), 1);
	ck_assert(id_equal(instance, test_id(2)));
	ck_assert_uint_eq(failed_of("a", "o-3", &instance), 0);
	ck_assert_uint_eq(failed_of("b", "o-1", &instance), 0);
}
END_TEST

void store_suite_early_add(TCase *early)
{
	TEST_ADD_ALL(early, early_message_is_found_by_each_of_its_keys, early_rows_go_with_their_message,
		     kept_message_becomes_early, probes_of_one_batch_are_told_apart, rows_of_an_order_key_change_hands,
		     failed_instance_is_found_by_its_alias);
}
