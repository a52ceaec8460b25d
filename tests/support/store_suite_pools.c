/* SPDX-License-Identifier: Apache-2.0 */
/* What every executor owes: sessions and slots of capacity pools, caps and permits. */
#include <stdio.h>

#include "tests/support/store_suite_private.h"

/* --- given --- */

static void given_pool(const char *name, int64_t slots, int64_t reserve_inbound, int64_t reserve_outbound)
{
	rig_query(&suite_rig, ",a,", true, STATEMENT_POOL_PUT, name, slots, reserve_inbound, reserve_outbound, NULL);
}

/* A spawn with a session that the channel "calls" admits, whose inbound call has the key "in" and takes a slot of the pool, if any. */
static void make_session(struct store_commit *commit, const char *tenant, uint32_t n, const char *pool)
{
	rig_spawn(&suite_rig, commit, tenant, test_id(n));
	commit_session(&suite_rig, commit, "", "calls", false, true, 0);
	commit_session(&suite_rig, commit, "in", NULL, true, false, 0);
	if (pool)
		commit_slot(&suite_rig, commit, pool, "in");
}

static enum store_outcome spawn_session(const char *tenant, uint32_t n, const char *pool)
{
	struct store_commit commit;

	make_session(&commit, tenant, n, pool);
	return rig_run(&suite_rig, &commit.base);
}

/* The next step of the instance, claimed, to be filled and run. */
static void make_step(struct store_commit *commit, const char *tenant, uint32_t n, int64_t version)
{
	ck_assert_int_eq(suite_claim(tenant, n, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, commit, tenant, test_id(n), "lane-1", version);
}

/* A step that sends one message of a call that needs a slot. */
static void step_sends(const char *tenant, uint32_t n, int64_t version, const char *pool, const char *call_key)
{
	struct store_commit commit;

	make_step(&commit, tenant, n, version);
	commit_session(&suite_rig, &commit, call_key, NULL, false, false, 7);
	commit_send_pooled(&suite_rig, &commit, "out", pool, call_key);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(!commit.outbox[0].claimed);
}

/* Ends without a claim, as a message does. */
static void message_ends(struct store_commit *commit, const char *tenant, uint32_t n, enum store_end what, const char *call_key,
			 uint32_t token)
{
	rig_letter(&suite_rig, commit, tenant);
	commit_session_end(&suite_rig, commit, what, test_id(n), call_key, token);
	ck_assert_int_eq(rig_run(&suite_rig, &commit->base), STORE_OK);
}

/* --- seen --- */

static int64_t held(const char *pool, const char *direction)
{
	const struct rows *rows = rig_query(&suite_rig, ",a,", false, STATEMENT_SLOT_LIST, pool, direction, ID_NONE, "", LIMIT);
	int64_t count = 0;

	for (uint32_t i = 0; i < rows->row_count; i++)
		count += str_equal(rows_at(rows, i, 0)->str, str_of(direction));
	return count;
}

static void check_held(const char *pool, int64_t inbound, int64_t outbound)
{
	ck_assert_int_eq(held(pool, "INBOUND"), inbound);
	ck_assert_int_eq(held(pool, "OUTBOUND"), outbound);
}

/* What POOL_CHECK finds, in order of instances; pages are small, so that there are some. */
static const struct rows *findings(void)
{
	struct rows *all = arena_zalloc(&suite_rig.arena, sizeof(*all));
	struct id after = ID_NONE;
	bool ended = false;

	all->column_count = 4;
	all->fields = arena_alloc(&suite_rig.arena, 64 * 4 * sizeof(*all->fields));
	while (!ended) {
		const struct rows *rows = rig_query(&suite_rig, NULL, false, STATEMENT_POOL_CHECK, after, INT64_C(3));
		const struct field *last = rows_at(rows, rows->row_count - 1, 0);

		ck_assert(last[0].is_null);
		ck_assert_uint_le(all->row_count + rows->row_count, 64);
		memcpy(&all->fields[(size_t)4 * all->row_count], rows->fields, (size_t)4 * (rows->row_count - 1) * sizeof(*last));
		all->row_count += rows->row_count - 1;
		ended = last[2].is_null;
		after = last[2].id;
	}
	return all;
}

static void check_nothing_wrong(void)
{
	const struct rows *rows = findings();

	if (rows->row_count)
		ck_abort_msg("%u findings, the first of a %.*s", rows->row_count, STR_ARG(rows_at(rows, 0, 0)->str));
}

/* Instances of the rows that the pump lets go, in order. */
static void check_pumped(const char *pool, int64_t limit, uint32_t count, const uint32_t *instances, bool more)
{
	bool is_more;
	const struct rows *rows = rig_pump(&suite_rig, pool, "boot-1/scan", limit, &is_more);

	ck_assert_uint_eq(rows->row_count, count);
	for (uint32_t i = 0; i < count; i++) {
		bool found = false;

		for (uint32_t k = 0; k < count; k++)
			found |= id_equal(rows_at(rows, k, 1)->id, test_id(instances[i]));
		ck_assert_msg(found, "%u was not let go", instances[i]);
	}
	ck_assert_int_eq(is_more, more);
}

static uint32_t scanned(void)
{
	return rig_query(&suite_rig, NULL, true, STATEMENT_OUTBOX_SCAN, "boot-2/scan", LIMIT)->row_count;
}

static bool waits(const char *pool)
{
	return rig_query(&suite_rig, NULL, false, STATEMENT_POOL_WAITING, pool)->row_count == 1;
}

/* --- spawns --- */

START_TEST(spawn_takes_its_slot_or_nothing)
{
	struct store_commit commit;

	given_pool("lines", 2, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	ck_assert_int_eq(spawn_session("b", 2, "lines"), STORE_OK);
	make_session(&commit, "a", 3, "lines");
	commit_inbox(&suite_rig, &commit, "e3");
	commit_send(&suite_rig, &commit, "out", "never");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_POOL_FULL);
	ck_assert_int_eq(commit.full.limit, 2);
	ck_assert_int_eq(commit.full.inbound, 2);
	ck_assert_int_eq(commit.full.outbound, 0);
	ck_assert_str_slice(commit.full.pool, STR("lines"));
	ck_assert(!suite_instance_exists(",a,", 3));
	check_held("lines", 2, 0);
	message_ends(&commit, "b", 2, STORE_END_ALL, NULL, 0);
	ck_assert_uint_eq(commit.freed_count, 1);
	ck_assert_str_slice(commit.freed[0], STR("lines"));
	/* What was turned away left no inbox row. */
	make_session(&commit, "a", 3, "lines");
	commit_inbox(&suite_rig, &commit, "e3");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(!commit.unchecked);
	check_held("lines", 2, 0);
	check_nothing_wrong();
}
END_TEST

START_TEST(reserve_is_kept_for_the_other_direction)
{
	given_pool("lines", 4, 1, 2);
	for (uint32_t n = 1; n <= 2; n++)
		ck_assert_int_eq(spawn_session("a", n, "lines"), STORE_OK);
	/* Two are reserved for outbound calls. */
	ck_assert_int_eq(spawn_session("a", 3, "lines"), STORE_POOL_FULL);
	for (uint32_t n = 1; n <= 2; n++)
		step_sends("a", n, 1, "lines", "out-1");
	check_pumped("lines", LIMIT, 2, (const uint32_t[]){1, 2}, false);
	check_held("lines", 2, 2);
	ck_assert_int_eq(spawn_session("a", 3, "lines"), STORE_POOL_FULL);
	check_nothing_wrong();
}
END_TEST

START_TEST(outbound_leaves_what_is_reserved_for_inbound)
{
	given_pool("lines", 3, 2, 0);
	for (uint32_t n = 1; n <= 3; n++) {
		ck_assert_int_eq(spawn_session("a", n, NULL), STORE_OK);
		step_sends("a", n, 1, "lines", "out-1");
	}
	check_pumped("lines", LIMIT, 1, (const uint32_t[]){1}, false);
	check_pumped("lines", LIMIT, 0, NULL, false);
	for (uint32_t n = 4; n <= 5; n++)
		ck_assert_int_eq(spawn_session("a", n, "lines"), STORE_OK);
	ck_assert_int_eq(spawn_session("a", 6, "lines"), STORE_POOL_FULL);
	check_held("lines", 2, 1);
}
END_TEST

START_TEST(batch_takes_what_there_is)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	uint32_t ok = 0;

	given_pool("lines", 50, 0, 10);
	given_pool("other", 1000, 0, 0);
	for (uint32_t i = 0; i < MANY; i++) {
		make_session(&commits[i], i % 3 ? "a" : "b", 1000 + i, i % 4 ? "lines" : "other");
		all[i] = &commits[i].base;
	}
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < MANY; i++) {
		ck_assert_int_eq(suite_instance_exists(",a,b,", 1000 + i), commits[i].base.outcome == STORE_OK);
		if (i % 4 == 0)
			ck_assert_int_eq(commits[i].base.outcome, STORE_OK);
		else if (commits[i].base.outcome == STORE_OK)
			ok++;
		else
			ck_assert_int_eq(commits[i].base.outcome, STORE_POOL_FULL);
	}
	ck_assert_uint_eq(ok, 40);
	check_held("lines", 40, 0);
	check_held("other", MANY / 4, 0);
	check_nothing_wrong();
}
END_TEST

/* The second is in the way of the cap only as long as the first may commit, which it does not. */
START_TEST(neighbour_that_fails_leaves_its_room)
{
	struct store_commit commits[2];
	struct store_request *all[] = {&commits[0].base, &commits[1].base};

	given_pool("lines", 1, 0, 1);
	make_session(&commits[0], "a", 1, "lines");
	make_session(&commits[1], "a", 2, NULL);
	commits[0].cap.channel_limit = commits[1].cap.channel_limit = 1;
	rig_burst(&suite_rig, all, 2);
	rig_wait(&suite_rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_POOL_FULL);
	ck_assert_int_eq(commits[1].base.outcome, STORE_OK);
}
END_TEST

START_TEST(event_that_had_its_effect_is_a_duplicate_not_full)
{
	struct store_commit commit;

	given_pool("lines", 1, 0, 0);
	for (uint32_t n = 1; n <= 2; n++) {
		make_session(&commit, "a", n, "lines");
		commit_inbox(&suite_rig, &commit, "e1");
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), n == 1 ? STORE_OK : STORE_DUPLICATE);
	}
}
END_TEST

START_TEST(spawn_again_finds_itself_not_a_full_pool)
{
	given_pool("lines", 1, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	check_held("lines", 1, 0);
}
END_TEST

START_TEST(spawn_that_ends_at_once_needs_room_and_holds_nothing)
{
	static const enum store_end ends[] = {STORE_END_ALL, STORE_END_INBOUND, STORE_END_CALL_KEY};
	struct store_commit commit;

	given_pool("lines", 1, 0, 0);
	for (uint32_t i = 0; i < ARRAY_LEN(ends); i++) {
		make_session(&commit, "a", 10 + i, "lines");
		commit.cap.channel_limit = 1;
		commit_session_end(&suite_rig, &commit, ends[i], ID_NONE, "in", 0);
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
		check_held("lines", 0, 0);
	}
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	make_session(&commit, "a", 20, "lines");
	commit_session_end(&suite_rig, &commit, STORE_END_ALL, ID_NONE, NULL, 0);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_POOL_FULL);
	ck_assert(!suite_instance_exists(",a,", 20));
	check_nothing_wrong();
}
END_TEST

START_TEST(pool_that_is_not_there_is_not_asked)
{
	struct store_commit commit;

	make_session(&commit, "a", 1, "nowhere");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(commit.unchecked);
	check_held("nowhere", 0, 0);
	ck_assert(suite_instance_exists(",a,", 1));
}
END_TEST

START_TEST(pool_that_was_made_smaller_drains_first)
{
	struct store_commit commit;
	const struct rows *rows;

	given_pool("lines", 3, 0, 0);
	for (uint32_t n = 1; n <= 3; n++)
		ck_assert_int_eq(spawn_session("a", n, "lines"), STORE_OK);
	rows = rig_query(&suite_rig, ",a,", true, STATEMENT_POOL_PUT, "lines", INT64_C(2), INT64_C(0), INT64_C(0), ",a,");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 3);
	ck_assert(rows_at(rows, 0, 3)->is_null);
	/* More is held than there is, which is said and no mistake. */
	rows = findings();
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 1)->str, STR("lines"));
	message_ends(&commit, "a", 1, STORE_END_ALL, NULL, 0);
	ck_assert_int_eq(spawn_session("a", 4, "lines"), STORE_POOL_FULL);
	message_ends(&commit, "a", 2, STORE_END_ALL, NULL, 0);
	ck_assert_int_eq(spawn_session("a", 4, "lines"), STORE_OK);
}
END_TEST

/* --- ends --- */

START_TEST(each_end_gives_back_what_is_its_own)
{
	struct store_commit commit;

	given_pool("lines", 9, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	make_step(&commit, "a", 1, 1);
	for (uint32_t token = 1; token <= 3; token++) {
		const char *key = arena_printf(&suite_rig.arena, "out-%u", token);

		commit_session(&suite_rig, &commit, key, NULL, false, false, token);
		commit_send_pooled(&suite_rig, &commit, key, "lines", key);
	}
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_pumped("lines", LIMIT, 3, (const uint32_t[]){1, 1, 1}, false);
	check_held("lines", 1, 3);
	message_ends(&commit, "a", 1, STORE_END_CALL_KEY, "unknown", 0);
	ck_assert_uint_eq(commit.freed_count, 0);
	message_ends(&commit, "a", 1, STORE_END_CALL_KEY, "out-1", 0);
	check_held("lines", 1, 2);
	message_ends(&commit, "a", 1, STORE_END_CALL_KEY, "out-1", 0);
	ck_assert_uint_eq(commit.freed_count, 0);
	/* A step ends two calls at once. */
	make_step(&commit, "a", 1, 2);
	commit_session_end(&suite_rig, &commit, STORE_END_TOKEN, ID_NONE, NULL, 2);
	commit_session_end(&suite_rig, &commit, STORE_END_INBOUND, ID_NONE, NULL, 0);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(commit.freed_count, 1);
	check_held("lines", 0, 1);
	/* Of another tenant, or of an instance that is none: nothing. */
	message_ends(&commit, "b", 1, STORE_END_ALL, NULL, 0);
	message_ends(&commit, "a", 99, STORE_END_ALL, NULL, 0);
	check_held("lines", 0, 1);
	message_ends(&commit, "a", 1, STORE_END_ALL, NULL, 0);
	check_held("lines", 0, 0);
	check_nothing_wrong();
}
END_TEST

START_TEST(inbound_call_outlives_an_outbound_one_of_its_key)
{
	struct store_commit commit;

	given_pool("lines", 2, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	make_step(&commit, "a", 1, 1);
	commit_session(&suite_rig, &commit, "in", NULL, false, false, 5);
	commit_send_pooled(&suite_rig, &commit, "out", "lines", "in");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	/* The same key is the same slot: nothing is waited for. */
	ck_assert(commit.unpooled);
	ck_assert(!waits("lines"));
	ck_assert_uint_eq(scanned(), 1);
	make_step(&commit, "a", 1, 2);
	commit_session_end(&suite_rig, &commit, STORE_END_TOKEN, ID_NONE, NULL, 5);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_held("lines", 1, 0);
	make_step(&commit, "a", 1, 3);
	commit_session_end(&suite_rig, &commit, STORE_END_INBOUND, ID_NONE, NULL, 0);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_held("lines", 0, 0);
}
END_TEST

START_TEST(released_slot_is_not_taken_back)
{
	struct store_commit commit;

	given_pool("lines", 1, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, NULL), STORE_OK);
	ck_assert_int_eq(spawn_session("a", 2, "lines"), STORE_OK);
	step_sends("a", 1, 1, "lines", "out-1");
	check_pumped("lines", LIMIT, 0, NULL, false);
	ck_assert_uint_eq(scanned(), 0);
	/* Its call has ended while it waited: it goes without. */
	message_ends(&commit, "a", 1, STORE_END_CALL_KEY, "out-1", 0);
	ck_assert(commit.unpooled);
	ck_assert(!waits("lines"));
	ck_assert_uint_eq(scanned(), 1);
	message_ends(&commit, "a", 1, STORE_END_ALL, NULL, 0);
	/* Sent afterwards: likewise. */
	make_step(&commit, "a", 1, 2);
	commit_session(&suite_rig, &commit, "out-2", NULL, false, false, 0);
	commit_send_pooled(&suite_rig, &commit, "other", "lines", "out-2");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(commit.unpooled);
	ck_assert_uint_eq(scanned(), 1);
	check_held("lines", 1, 0);
	check_nothing_wrong();
}
END_TEST

START_TEST(step_that_fails_or_ends_gives_back_all)
{
	static const enum instance_status statuses[] = {INSTANCE_FAILED, INSTANCE_COMPLETED};
	struct store_commit commit;

	given_pool("lines", 1, 0, 0);
	for (uint32_t i = 0; i < ARRAY_LEN(statuses); i++) {
		ck_assert_int_eq(spawn_session("a", 1 + i, "lines"), STORE_OK);
		step_sends("a", 1 + i, 1, "lines", "out-1");
		make_step(&commit, "a", 1 + i, 2);
		commit.status = statuses[i];
		commit_session_end(&suite_rig, &commit, STORE_END_ALL, ID_NONE, NULL, 0);
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
		check_held("lines", 0, 0);
		ck_assert_uint_eq(scanned(), 1);
		check_nothing_wrong();
	}
}
END_TEST

START_TEST(ends_of_one_session_do_not_share_a_batch)
{
	struct store_commit commits[2];
	struct store_request *all[] = {&commits[0].base, &commits[1].base};

	given_pool("lines", 3, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	rig_letter(&suite_rig, &commits[0], "a");
	commit_session_end(&suite_rig, &commits[0], STORE_END_CALL_KEY, test_id(1), "in", 0);
	rig_letter(&suite_rig, &commits[1], "a");
	commit_session_end(&suite_rig, &commits[1], STORE_END_ALL, test_id(1), NULL, 0);
	rig_burst(&suite_rig, all, 2);
	rig_wait(&suite_rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[1].base.outcome, STORE_OK);
	ck_assert_uint_eq(commits[0].freed_count + commits[1].freed_count, 1);
	check_nothing_wrong();
}
END_TEST

/* --- the pump --- */

START_TEST(waiting_rows_are_let_go_oldest_first)
{
	struct store_commit commit;
	static const uint32_t order[] = {3, 1, 2};

	given_pool("lines", 1, 0, 0);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(spawn_session(i ? "b" : "a", order[i], NULL), STORE_OK);
		step_sends(i ? "b" : "a", order[i], 1, "lines", "out-1");
	}
	ck_assert(waits("lines"));
	ck_assert_uint_eq(scanned(), 0);
	ck_assert_uint_eq(rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_CLAIM_NEXT, "a", test_id(3), "out", "boot-2")->row_count, 0);
	for (uint32_t i = 0; i < 3; i++) {
		check_pumped("lines", LIMIT, 1, &order[i], false);
		check_pumped("lines", LIMIT, 0, NULL, false);
		message_ends(&commit, i ? "b" : "a", order[i], STORE_END_ALL, NULL, 0);
	}
	ck_assert(!waits("lines"));
	check_nothing_wrong();
}
END_TEST

START_TEST(granted_row_is_like_any_other)
{
	const struct rows *rows;

	given_pool("lines", 1, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, NULL), STORE_OK);
	step_sends("a", 1, 1, "lines", "out-1");
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LIST, ID_NONE, "", INT64_C(0), INT64_C(0), LIMIT);
	ck_assert(str_starts_with(rows_at(rows, 0, 12)->str, STR("{\"code\":\"SUTRA.OUTBOUND.POOL.WAITING\"")));
	ck_assert_int_eq(rows_at(rows, 0, 6)->i, 0);
	check_pumped("lines", LIMIT, 1, (const uint32_t[]){1}, false);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LIST, ID_NONE, "", INT64_C(0), INT64_C(0), LIMIT);
	ck_assert(rows_at(rows, 0, 12)->is_null);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LOAD, "a", test_id(1), "out", INT64_C(2), INT64_C(0), "boot-1/scan");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 17)->str, STR("out-1"));
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out", INT64_C(2), INT64_C(0), "boot-1/scan");
	ck_assert_uint_eq(scanned(), 1);
	check_held("lines", 0, 1);
}
END_TEST

/* What the pump may let go is the head of its order group, and no more than was asked for. */
START_TEST(waiting_row_stays_behind_its_group)
{
	struct store_commit commit;

	given_pool("lines", 9, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, NULL), STORE_OK);
	make_step(&commit, "a", 1, 1);
	for (uint32_t i = 0; i < 3; i++) {
		const char *key = arena_printf(&suite_rig.arena, "out-%u", i);

		commit_session(&suite_rig, &commit, key, NULL, false, false, 0);
		commit_send_pooled(&suite_rig, &commit, "out", "lines", key);
	}
	/* Without a pool, behind one that waits. */
	commit_send(&suite_rig, &commit, "out", "body");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert(!commit.outbox[3].claimed);
	ck_assert_uint_eq(scanned(), 0);
	check_pumped("lines", LIMIT, 1, (const uint32_t[]){1}, false);
	check_pumped("lines", LIMIT, 0, NULL, false);
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_DELETE, "a", test_id(1), "out", INT64_C(2), INT64_C(0), "boot-1/scan");
	rig_query(&suite_rig, ",a,", true, STATEMENT_OUTBOX_FREE_NEXT, "a", test_id(1), "out");
	check_pumped("lines", LIMIT, 1, (const uint32_t[]){1}, false);
	ck_assert_uint_eq(scanned(), 0);
	check_held("lines", 0, 2);
}
END_TEST

START_TEST(pump_takes_no_more_than_it_was_asked_for)
{
	given_pool("lines", 9, 0, 0);
	for (uint32_t n = 1; n <= 3; n++) {
		ck_assert_int_eq(spawn_session("a", n, NULL), STORE_OK);
		step_sends("a", n, 1, "lines", "out-1");
	}
	check_pumped("lines", 2, 2, (const uint32_t[]){1, 2}, true);
	check_pumped("lines", 2, 1, (const uint32_t[]){3}, false);
	check_pumped("nowhere", 2, 0, NULL, false);
}
END_TEST

/* Two messages of one call need one slot; the second goes when the first does. */
START_TEST(rows_of_one_call_share_its_slot)
{
	struct store_commit commit;

	given_pool("lines", 1, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, NULL), STORE_OK);
	make_step(&commit, "a", 1, 1);
	commit_session(&suite_rig, &commit, "out-1", NULL, false, false, 0);
	commit_send_pooled(&suite_rig, &commit, "first", "lines", "out-1");
	commit_send_pooled(&suite_rig, &commit, "second", "lines", "out-1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	check_pumped("lines", LIMIT, 1, (const uint32_t[]){1}, false);
	ck_assert_uint_eq(scanned(), 1);
	check_held("lines", 0, 1);
	step_sends("a", 1, 2, "lines", "out-1");
	ck_assert(!waits("lines"));
	check_nothing_wrong();
}
END_TEST

/* --- caps --- */

static enum store_outcome spawn_capped(const char *tenant, uint32_t n, int64_t channel_limit, int64_t tenant_limit)
{
	struct store_commit commit;

	make_session(&commit, tenant, n, NULL);
	commit.cap = (struct store_cap){channel_limit, tenant_limit};
	rig_run(&suite_rig, &commit.base);
	if (commit.base.outcome != STORE_OK) {
		ck_assert_int_eq(commit.full.limit, commit.base.outcome == STORE_CHANNEL_FULL ? channel_limit : tenant_limit);
		ck_assert_int_eq(commit.full.inbound, commit.full.limit);
		ck_assert(!suite_instance_exists(",a,b,", n));
	}
	return commit.base.outcome;
}

START_TEST(caps_bound_what_counts)
{
	struct store_commit commit;

	for (uint32_t n = 1; n <= 2; n++)
		ck_assert_int_eq(spawn_capped("a", n, 2, 0), STORE_OK);
	ck_assert_int_eq(spawn_capped("a", 3, 2, 0), STORE_CHANNEL_FULL);
	ck_assert_int_eq(spawn_capped("a", 3, 2, 2), STORE_CHANNEL_FULL);
	ck_assert_int_eq(spawn_capped("a", 3, 3, 2), STORE_TENANT_FULL);
	ck_assert_int_eq(spawn_capped("b", 4, 2, 2), STORE_OK);
	/* The end of the inbound call ends the count, and so does that of the session. */
	message_ends(&commit, "a", 1, STORE_END_INBOUND, NULL, 0);
	ck_assert_int_eq(spawn_capped("a", 5, 2, 2), STORE_OK);
	ck_assert_int_eq(spawn_capped("a", 6, 2, 2), STORE_CHANNEL_FULL);
	message_ends(&commit, "a", 2, STORE_END_ALL, NULL, 0);
	ck_assert_int_eq(spawn_capped("a", 6, 2, 2), STORE_OK);
	ck_assert_int_eq(spawn_capped("a", 7, 0, 0), STORE_OK);
}
END_TEST

START_TEST(batch_passes_caps_as_far_as_they_go)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	uint32_t passed[2] = {0, 0};

	for (uint32_t i = 0; i < MANY; i++) {
		make_session(&commits[i], i % 2 ? "a" : "b", 1000 + i, NULL);
		commits[i].cap = i % 2 ? (struct store_cap){10, 0} : (struct store_cap){0, 20};
		all[i] = &commits[i].base;
	}
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < MANY; i++) {
		if (commits[i].base.outcome == STORE_OK)
			passed[i % 2]++;
		else
			ck_assert_int_eq(commits[i].base.outcome, i % 2 ? STORE_CHANNEL_FULL : STORE_TENANT_FULL);
	}
	ck_assert_uint_eq(passed[0], 20);
	ck_assert_uint_eq(passed[1], 10);
}
END_TEST

/* --- looked up, listed, swept --- */

START_TEST(session_is_found_by_alias_while_it_is_open)
{
	struct id keys[] = {store_alias_key(STR("a"), STR("order"), STR("x")), store_alias_key(STR("a"), STR("order"), STR("y"))};
	struct store_resolve *resolve;
	struct store_commit commit;

	make_session(&commit, "a", 1, NULL);
	commit_alias(&suite_rig, &commit, "x", false);
	commit_alias(&suite_rig, &commit, "y", false);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	for (uint32_t round = 0; round < 2; round++) {
		resolve = arena_zalloc(&suite_rig.arena, sizeof(*resolve));
		resolve->base = commit.base;
		resolve->base.kind = STORE_RESOLVE;
		resolve->tenant = STR("a");
		resolve->session_keys = keys;
		resolve->session_key_count = ARRAY_LEN(keys);
		ck_assert_int_eq(rig_run(&suite_rig, &resolve->base), STORE_OK);
		ck_assert_uint_eq(resolve->session_count, 1 - round);
		ck_assert(round || id_equal(resolve->sessions[0], test_id(1)));
		message_ends(&commit, "a", 1, STORE_END_ALL, NULL, 0);
	}
}
END_TEST

START_TEST(pools_are_listed_with_what_is_held_and_waits)
{
	const struct rows *rows;

	given_pool("lines", 3, 1, 0);
	given_pool("empty", 1, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	for (uint32_t n = 1; n <= 4; n++) {
		ck_assert(n == 1 || spawn_session("b", n, NULL) == STORE_OK);
		step_sends(n == 1 ? "a" : "b", n, 1, "lines", "out-1");
	}
	check_pumped("lines", LIMIT, 2, (const uint32_t[]){1, 2}, false);
	rows = rig_query(&suite_rig, NULL, false, STATEMENT_POOL_LIST, LIMIT);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("empty"));
	ck_assert(rows_at(rows, 0, 8)->is_null);
	ck_assert_int_eq(rows_at(rows, 1, 1)->i, 3);
	ck_assert_int_eq(rows_at(rows, 1, 2)->i, 1);
	ck_assert_int_eq(rows_at(rows, 1, 5)->i, 1);
	ck_assert_int_eq(rows_at(rows, 1, 6)->i, 2);
	ck_assert_int_eq(rows_at(rows, 1, 7)->i, 2);
	ck_assert(!rows_at(rows, 1, 8)->is_null);
	/* Who holds them, in two pages. */
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_SLOT_LIST, "lines", "", ID_NONE, "", INT64_C(2));
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("INBOUND"));
	ck_assert(id_equal(rows_at(rows, 1, 1)->id, test_id(1)));
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_SLOT_LIST, "lines", "OUTBOUND", test_id(1), "out-1", INT64_C(2));
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 1)->id, test_id(2)));
	ck_assert_str_slice(rows_at(rows, 0, 3)->str, STR("b"));
}
END_TEST

/* An instance that has ended without a word of its session, as no commit of the engine does. */
START_TEST(stray_slots_and_rows_come_back_on_the_sweep)
{
	struct store_commit commit;
	const struct rows *rows;

	given_pool("lines", 2, 0, 0);
	for (uint32_t n = 1; n <= 2; n++) {
		ck_assert_int_eq(spawn_session("a", n, "lines"), STORE_OK);
		step_sends("a", n, 1, "lines", "out-1");
	}
	make_step(&commit, "a", 2, 2);
	commit.status = INSTANCE_COMPLETED;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rows = findings();
	ck_assert_uint_eq(rows->row_count, 2);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert(id_equal(rows_at(rows, i, 2)->id, test_id(2)));
	ck_assert(str_equal(rows_at(rows, 0, 0)->str, STR("slot")) != str_equal(rows_at(rows, 1, 0)->str, STR("slot")));
	ck_assert(str_equal(rows_at(rows, 0, 0)->str, STR("session")) != str_equal(rows_at(rows, 1, 0)->str, STR("session")));
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_SLOT_SWEEP, ID_NONE, "", "", LIMIT);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 1);
	ck_assert(id_equal(rows_at(rows, 0, 2)->id, test_id(2)));
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_SLOT_SWEEP, test_id(2), "lines", "in", LIMIT);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	ck_assert(rows_at(rows, 0, 2)->is_null);
	check_held("lines", 1, 0);
	/* Removed with all that is left of it; then its row waits for nothing. */
	rig_query(&suite_rig, ",a,", true, STATEMENT_INSTANCE_DELETE, "a", test_id(2));
	rows = findings();
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("row"));
	rows = rig_query(&suite_rig, NULL, true, STATEMENT_POOL_SWEEP, ID_NONE, "", LIMIT);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 1);
	ck_assert_uint_eq(scanned(), 1);
	check_nothing_wrong();
}
END_TEST

START_TEST(instance_goes_with_its_session)
{
	struct store_commit commit;

	given_pool("lines", 1, 0, 0);
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	make_step(&commit, "a", 1, 1);
	commit.status = INSTANCE_COMPLETED;
	commit_session_end(&suite_rig, &commit, STORE_END_ALL, ID_NONE, NULL, 0);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_query(&suite_rig, ",a,", true, STATEMENT_INSTANCE_DELETE, "a", test_id(1));
	/* Its id could come again: nothing of it is left. */
	ck_assert_int_eq(spawn_session("a", 1, "lines"), STORE_OK);
	check_held("lines", 1, 0);
	check_nothing_wrong();
}
END_TEST

static int64_t granted(const char *tenant, int64_t limit, int64_t want)
{
	const char *tenants = arena_printf(&suite_rig.arena, ",%s,", tenant);

	return rows_at(rig_query(&suite_rig, tenants, true, STATEMENT_RATE_TAKE, tenant, limit, want), 0, 0)->i;
}

/* A minute may begin in between: then there is as much again, once. */
START_TEST(permits_of_a_minute_are_so_many)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < 10; i++)
		sum += granted("a", 100, 30);
	ck_assert_msg(sum == 100 || sum == 200, "%d permits", (int)sum);
	ck_assert_int_eq(granted("b", 100, 30), 30);
	ck_assert_int_eq(granted("c", 10, 30), 10);
}
END_TEST

START_TEST(texts_and_takes_that_cannot_be)
{
	struct store_commit commit;
	char *text = arena_zalloc(&suite_rig.arena, STORE_TEXT_MAX + 2);

	memset(text, 'k', STORE_TEXT_MAX + 1);
	make_session(&commit, "a", 1, NULL);
	commit_session(&suite_rig, &commit, text, NULL, false, false, 0);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	rig_letter(&suite_rig, &commit, "a");
	commit_slot(&suite_rig, &commit, "lines", "in");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit.cap.channel_limit = 1;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	ck_assert_uint_eq(store_call_key(&suite_rig.arena, str_of(text)).len, strlen("sha256:") + 64);
	ck_assert_str_slice(store_call_key(&suite_rig.arena, STR("key")), STR("key"));
}
END_TEST

/* --- two stores --- */

/* Both take from one pool and one cap all at once: together no more than there is. */
START_TEST(pool_of_two_stores_is_never_over_subscribed)
{
	static struct store_commit ours[MANY], theirs[MANY];
	struct store_request *our_requests[MANY], *their_requests[MANY];
	struct store_rig other;
	uint32_t ok = 0;

	store_rig_init(&other, suite_executor_new(), NULL);
	given_pool("lines", 60, 0, 0);
	for (uint32_t i = 0; i < MANY; i++) {
		make_session(&ours[i], "a", 1000 + i, "lines");
		rig_spawn(&other, &theirs[i], "a", test_id(2000 + i));
		commit_session(&other, &theirs[i], "", "calls", false, true, 0);
		commit_session(&other, &theirs[i], "in", NULL, true, false, 0);
		commit_slot(&other, &theirs[i], "lines", "in");
		our_requests[i] = &ours[i].base;
		their_requests[i] = &theirs[i].base;
	}
	rig_burst(&suite_rig, our_requests, MANY);
	rig_burst(&other, their_requests, MANY);
	rig_wait(&suite_rig);
	rig_wait(&other);
	for (uint32_t i = 0; i < MANY; i++) {
		ok += ours[i].base.outcome == STORE_OK;
		ok += theirs[i].base.outcome == STORE_OK;
		ck_assert(ours[i].base.outcome == STORE_OK || ours[i].base.outcome == STORE_POOL_FULL);
	}
	ck_assert_uint_eq(ok, 60);
	check_held("lines", 60, 0);
	check_nothing_wrong();
	store_rig_done(&other);
}
END_TEST

void store_suite_pools_add(TCase *pools)
{
	TEST_ADD_ALL(pools, spawn_takes_its_slot_or_nothing, reserve_is_kept_for_the_other_direction,
		     outbound_leaves_what_is_reserved_for_inbound, batch_takes_what_there_is,
		     neighbour_that_fails_leaves_its_room, event_that_had_its_effect_is_a_duplicate_not_full, spawn_again_finds_itself_not_a_full_pool,
		     spawn_that_ends_at_once_needs_room_and_holds_nothing, pool_that_is_not_there_is_not_asked,
		     pool_that_was_made_smaller_drains_first, each_end_gives_back_what_is_its_own,
		     inbound_call_outlives_an_outbound_one_of_its_key, released_slot_is_not_taken_back,
		     step_that_fails_or_ends_gives_back_all, ends_of_one_session_do_not_share_a_batch,
		     waiting_rows_are_let_go_oldest_first, granted_row_is_like_any_other, waiting_row_stays_behind_its_group,
		     pump_takes_no_more_than_it_was_asked_for, rows_of_one_call_share_its_slot, caps_bound_what_counts,
		     batch_passes_caps_as_far_as_they_go, session_is_found_by_alias_while_it_is_open,
		     pools_are_listed_with_what_is_held_and_waits, stray_slots_and_rows_come_back_on_the_sweep,
		     instance_goes_with_its_session, permits_of_a_minute_are_so_many, texts_and_takes_that_cannot_be,
		     pool_of_two_stores_is_never_over_subscribed);
}
