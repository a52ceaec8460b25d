/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every executor owes, seen through the store. Times are not waited for: a timeout of less than nothing makes every
 * stamp stale.
 */
#include "tests/support/store_suite.h"

#include <stdio.h>

#define STALE_MS INT64_C(-5000)
#define LIMIT    INT64_C(1000)

static const struct store_backend *backend;
static struct store_rig rig;

static void setup(void)
{
	backend->reset(backend->arg);
	store_rig_init(&rig, backend->executor_new(backend->arg, 2), NULL);
}

static void teardown(void)
{
	store_rig_done(&rig);
	if (backend->done)
		backend->done(backend->arg);
}

static struct store_settings *settings_now(int64_t claim_timeout_ms, const char *outbox_owner)
{
	static struct store_settings settings;

	settings = store_rig_settings();
	settings.claim_timeout_ms = claim_timeout_ms;
	settings.outbox_owner = outbox_owner;
	return &settings;
}

/* Goes on with another store on the same tables. */
static void reopen(const struct store_settings *settings)
{
	store_rig_done(&rig);
	store_rig_init(&rig, backend->executor_new(backend->arg, 2), settings);
}

static enum store_outcome spawn(const char *tenant, uint32_t n)
{
	struct store_commit commit;

	rig_spawn(&rig, &commit, tenant, test_id(n));
	return rig_run(&rig, &commit.base);
}

static enum store_outcome claim(const char *tenant, uint32_t n, const char *owner)
{
	struct store_claim request;

	rig_claim(&rig, &request, tenant, test_id(n), owner);
	return rig_run(&rig, &request.base);
}

static void given_claimed(const char *tenant, uint32_t n, const char *owner)
{
	ck_assert_int_eq(spawn(tenant, n), STORE_OK);
	ck_assert_int_eq(claim(tenant, n, owner), STORE_OK);
}

static struct field instance_field(const char *tenants, uint32_t n, uint32_t column)
{
	const struct rows *rows = rig_query(&rig, tenants, false, STATEMENT_INSTANCE_GET,
					    test_id(n));

	ck_assert_uint_eq(rows->row_count, 1);
	return *rows_at(rows, 0, column);
}

static bool instance_exists(const char *tenants, uint32_t n)
{
	return rig_query(&rig, tenants, false, STATEMENT_INSTANCE_GET, test_id(n))->row_count == 1;
}

/* --- claims --- */

START_TEST(claim_returns_what_was_spawned)
{
	struct store_claim request;

	ck_assert_int_eq(spawn("a", 1), STORE_OK);
	rig_claim(&rig, &request, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &request.base), STORE_OK);
	ck_assert_int_eq(request.version, 1);
	ck_assert_int_eq(request.status, INSTANCE_SUSPENDED);
	ck_assert_str_slice(request.deployment, STR("d1"));
	ck_assert_str_slice(request.process, STR("p1"));
	ck_assert_str_slice(request.snapshot, STR("snapshot-1"));
}
END_TEST

START_TEST(claim_of_another_owner_is_refused)
{
	given_claimed("a", 1, "lane-1");
	ck_assert_int_eq(claim("a", 1, "lane-2"), STORE_REFUSED);
	ck_assert_int_eq(claim("a", 1, "lane-1"), STORE_OK);
	ck_assert_int_eq(claim("a", 2, "lane-1"), STORE_REFUSED);
}
END_TEST

START_TEST(claim_that_is_silent_too_long_is_taken_over)
{
	given_claimed("a", 1, "lane-1");
	reopen(settings_now(STALE_MS, "boot-1"));
	ck_assert_int_eq(claim("a", 1, "lane-2"), STORE_OK);
}
END_TEST

START_TEST(release_frees_only_its_own_claim)
{
	struct store_release release;

	given_claimed("a", 1, "lane-1");
	rig_release(&rig, &release, "a", test_id(1), "lane-2");
	ck_assert_int_eq(rig_run(&rig, &release.base), STORE_OK);
	ck_assert_int_eq(claim("a", 1, "lane-2"), STORE_REFUSED);
	rig_release(&rig, &release, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &release.base), STORE_OK);
	ck_assert_int_eq(claim("a", 1, "lane-2"), STORE_OK);
}
END_TEST

START_TEST(claim_of_an_ended_instance_is_refused)
{
	struct store_commit commit;

	rig_spawn(&rig, &commit, "a", test_id(1));
	commit.status = INSTANCE_COMPLETED;
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	ck_assert_int_eq(claim("a", 1, "lane-1"), STORE_REFUSED);
	rig_spawn(&rig, &commit, "a", test_id(2));
	commit.status = INSTANCE_FAILED;
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	ck_assert_int_eq(claim("a", 2, "lane-1"), STORE_OK);
}
END_TEST

START_TEST(claim_of_another_tenant_is_refused)
{
	ck_assert_int_eq(spawn("a", 1), STORE_OK);
	ck_assert_int_eq(claim("b", 1, "lane-1"), STORE_REFUSED);
	ck_assert_int_eq(claim("a", 1, "lane-1"), STORE_OK);
}
END_TEST

START_TEST(claims_and_releases_ride_together)
{
	struct store_claim claims[3];
	struct store_release release;
	struct store_request *all[] = {&claims[0].base, &release.base, &claims[1].base,
				       &claims[2].base};

	given_claimed("a", 1, "lane-1");
	ck_assert_int_eq(spawn("a", 2), STORE_OK);
	rig_claim(&rig, &claims[0], "a", test_id(2), "lane-1");
	rig_release(&rig, &release, "a", test_id(1), "lane-1");
	rig_claim(&rig, &claims[1], "a", test_id(1), "lane-2");
	rig_claim(&rig, &claims[2], "a", test_id(2),
		  "lane-2"); /* the same instance: the next batch */
	rig_burst(&rig, all, 4);
	rig_wait(&rig);
	ck_assert_int_eq(claims[0].base.outcome, STORE_OK);
	ck_assert_int_eq(release.base.outcome, STORE_OK);
	ck_assert_int_eq(claims[1].base.outcome, STORE_OK);
	ck_assert_int_eq(claims[2].base.outcome, STORE_REFUSED);
}
END_TEST

/* --- commits --- */

START_TEST(resume_writes_and_releases)
{
	struct store_commit commit;
	struct store_claim request;

	given_claimed("a", 1, "lane-1");
	rig_resume(&rig, &commit, "a", test_id(1), "lane-1", 1);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_claim(&rig, &request, "a", test_id(1), "lane-2");
	ck_assert_int_eq(rig_run(&rig, &request.base), STORE_OK);
	ck_assert_int_eq(request.version, 2);
	ck_assert_str_slice(request.snapshot, STR("snapshot-next"));
}
END_TEST

START_TEST(fence_holds_against_owner_and_version)
{
	struct store_commit commit;

	given_claimed("a", 1, "lane-1");
	rig_resume(&rig, &commit, "a", test_id(1), "lane-2", 1);
	commit_send(&rig, &commit, "out", "never");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_FENCED);
	rig_resume(&rig, &commit, "a", test_id(1), "lane-1", 2);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_FENCED);
	rig_resume(&rig, &commit, "b", test_id(1), "lane-1", 1);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_FENCED);
	rig_resume(&rig, &commit, "a", test_id(7), "lane-1", 1);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_FENCED);
	ck_assert_uint_eq(rig_query(&rig, ",a,", false, STATEMENT_OUTBOX_LIST, ID_NONE, "",
				    INT64_C(0), INT64_C(0), LIMIT)
				  ->row_count,
			  0);
	rig_resume(&rig, &commit, "a", test_id(1), "lane-1", 1);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_FENCED);
}
END_TEST

START_TEST(event_has_its_effect_once)
{
	struct store_commit commit;

	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_inbox(&rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_spawn(&rig, &commit, "a", test_id(2));
	commit_inbox(&rig, &commit, "e2");
	commit_inbox(&rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_DUPLICATE);
	ck_assert(!instance_exists(",a,", 2));
	/* What lost left nothing: its other key is free. */
	rig_spawn(&rig, &commit, "a", test_id(3));
	commit_inbox(&rig, &commit, "e2");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	/* Another tenant's event is another event. */
	rig_spawn(&rig, &commit, "b", test_id(4));
	commit_inbox(&rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
}
END_TEST

START_TEST(spawn_twice_is_committed_once)
{
	ck_assert_int_eq(spawn("a", 1), STORE_OK);
	ck_assert_int_eq(spawn("a", 1), STORE_OK);
	ck_assert_int_eq(instance_field(",a,", 1, 5).i, 1);
}
END_TEST

START_TEST(unique_alias_is_held_by_one)
{
	struct store_commit commit;

	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_alias(&rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_spawn(&rig, &commit, "a", test_id(2));
	commit_alias(&rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_ALIAS_CONFLICT);
	ck_assert_int_eq(claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_alias_end(&rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_spawn(&rig, &commit, "a", test_id(3));
	commit_alias(&rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
}
END_TEST

START_TEST(plain_alias_is_held_by_many)
{
	struct store_commit commit;
	const struct rows *rows;

	for (uint32_t n = 1; n <= 3; n++) {
		rig_spawn(&rig, &commit, "a", test_id(n));
		commit_alias(&rig, &commit, "o-1", false);
		commit_alias(&rig, &commit, "o-1", false);
		ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	}
	rows = rig_query(&rig, ",a,", false, STATEMENT_ALIAS_PROBE, "a",
			 store_alias_key(STR("a"), STR("order"), STR("o-1")));
	ck_assert_uint_eq(rows->row_count, 3);
	rows = rig_query(&rig, ",b,", false, STATEMENT_ALIAS_PROBE, "a",
			 store_alias_key(STR("a"), STR("order"), STR("o-1")));
	ck_assert_uint_eq(rows->row_count, 0);
}
END_TEST

START_TEST(unique_wait_is_held_by_one)
{
	struct store_commit commit;

	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_wait(&rig, &commit, 1, "o-1", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_spawn(&rig, &commit, "a", test_id(2));
	commit_wait(&rig, &commit, 1, "o-1", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_WAIT_NOT_UNIQUE);
	rig_spawn(&rig, &commit, "a", test_id(3));
	commit_wait(&rig, &commit, 1, "o-2", true);
	commit_wait(&rig, &commit, 2, "o-2", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_WAIT_NOT_UNIQUE);
	/* Ended and begun again in one step. */
	ck_assert_int_eq(claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_wait_end(&rig, &commit, 1, "o-1", true);
	commit_wait(&rig, &commit, 2, "o-1", true);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
}
END_TEST

START_TEST(resolve_finds_waits_oldest_first)
{
	struct store_commit commit;
	struct store_resolve resolve = {.tenant = STR("a")};
	struct id keys[] = {store_wait_key(STR("a"), STR("paid"), STR("order"), STR("o-2")),
			    store_wait_key(STR("a"), STR("paid"), STR("order"), STR("o-9")),
			    store_wait_key(STR("a"), STR("paid"), STR("order"), STR("o-1"))};

	for (uint32_t n = 3; n >= 1; n--) {
		rig_spawn(&rig, &commit, "a", test_id(n));
		commit_wait(&rig, &commit, n, "o-1", false);
		if (n == 2)
			commit_wait(&rig, &commit, 9, "o-2", false);
		ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	}
	rig_claim(&rig, &(struct store_claim){0}, "a", test_id(1), "x");
	resolve.wait_keys = keys;
	resolve.wait_key_count = 3;
	resolve.base = commit.base;
	resolve.base.kind = STORE_RESOLVE;
	ck_assert_int_eq(rig_run(&rig, &resolve.base), STORE_OK);
	ck_assert_uint_eq(resolve.wait_count, 4);
	ck_assert(!resolve.duplicate);
	ck_assert_uint_eq(resolve.waits[0].key, 0);
	ck_assert_uint_eq(resolve.waits[0].token, 9);
	ck_assert_str_slice(resolve.waits[0].node, STR("wait-1"));
	ck_assert_str_slice(resolve.waits[0].deployment, STR("d1"));
	for (uint32_t i = 1; i < 4; i++) {
		ck_assert_uint_eq(resolve.waits[i].key, 2);
		ck_assert(id_equal(resolve.waits[i].instance, test_id(4 - i)));
		ck_assert(i == 1 || resolve.waits[i].created_us >= resolve.waits[i - 1].created_us);
	}
}
END_TEST

static void prepare_resolve(struct store_resolve *resolve, const char *tenant, const char *event_id,
			    const char *value)
{
	struct store_commit like;
	struct id *keys = arena_alloc(&rig.arena, 2 * sizeof(*keys));

	rig_letter(&rig, &like, tenant);
	*resolve = (struct store_resolve){.base = like.base, .tenant = str_of(tenant)};
	resolve->base.kind = STORE_RESOLVE;
	keys[0] = store_inbox_key(str_of(tenant), STR("orders"), str_of(event_id));
	keys[1] = store_wait_key(str_of(tenant), STR("paid"), STR("order"), str_of(value));
	resolve->inbox_keys = &keys[0];
	resolve->inbox_key_count = 1;
	resolve->wait_keys = &keys[1];
	resolve->wait_key_count = 1;
}

START_TEST(resolves_of_one_batch_keep_apart)
{
	struct store_resolve resolves[3];
	struct store_request *all[3];
	struct store_commit commit;

	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_inbox(&rig, &commit, "e1");
	commit_wait(&rig, &commit, 1, "o-1", false);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_letter(&rig, &commit, "b");
	commit_inbox(&rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	prepare_resolve(&resolves[0], "a", "e1", "o-2");
	prepare_resolve(&resolves[1], "b", "e1", "o-1");
	prepare_resolve(&resolves[2], "a", "e2", "o-1");
	for (uint32_t i = 0; i < 3; i++)
		all[i] = &resolves[i].base;
	rig_burst(&rig, all, 3);
	rig_wait(&rig);
	ck_assert(resolves[0].duplicate && id_equal(resolves[0].duplicate_instance, test_id(1)));
	ck_assert_uint_eq(resolves[0].wait_count, 0);
	ck_assert(resolves[1].duplicate && id_is_none(resolves[1].duplicate_instance));
	ck_assert_uint_eq(resolves[1].wait_count, 0);
	ck_assert(!resolves[2].duplicate);
	ck_assert_uint_eq(resolves[2].wait_count, 1);
	ck_assert(id_equal(resolves[2].waits[0].instance, test_id(1)));
	ck_assert_uint_eq(rig_stats(&rig).batches[STORE_RESOLVE], 1);
}
END_TEST

START_TEST(step_that_ends_takes_its_rows_along)
{
	struct store_commit commit;
	struct store_resolve resolve;

	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_wait(&rig, &commit, 1, "o-1", false);
	commit_alias(&rig, &commit, "o-1", false);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	ck_assert_int_eq(claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&rig, &commit, "a", test_id(1), "lane-1", 1);
	commit.status = INSTANCE_COMPLETED;
	commit_wait_end(&rig, &commit, 1, "o-1", false);
	commit_alias_end(&rig, &commit, "o-1", false);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	prepare_resolve(&resolve, "a", "e1", "o-1");
	ck_assert_int_eq(rig_run(&rig, &resolve.base), STORE_OK);
	ck_assert_uint_eq(resolve.wait_count, 0);
	ck_assert(!instance_field(",a,", 1, 7).is_null);
	ck_assert(instance_field(",a,", 1, 10).is_null);
}
END_TEST

/* --- batches --- */

#define MANY 256

static void many_spawns(struct store_commit *commits, struct store_request **all, bool events)
{
	for (uint32_t i = 0; i < MANY; i++) {
		char event_id[16];

		rig_spawn(&rig, &commits[i], i % 3 ? "a" : "b", test_id(1000 + i));
		snprintf(event_id, sizeof(event_id), "e%u", i);
		if (events)
			commit_inbox(&rig, &commits[i], arena_strdup(&rig.arena, event_id));
		commit_send(&rig, &commits[i], "out", "body");
		all[i] = &commits[i].base;
	}
}

START_TEST(batch_with_one_bad_element)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	struct store_commit before;
	struct store_stats stats;

	rig_spawn(&rig, &before, "a", test_id(1));
	commit_inbox(&rig, &before, "e77");
	ck_assert_int_eq(rig_run(&rig, &before.base), STORE_OK);
	many_spawns(commits, all, true);
	rig_burst(&rig, all, MANY);
	rig_wait(&rig);
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert_int_eq(commits[i].base.outcome, i == 77 ? STORE_DUPLICATE : STORE_OK);
	stats = rig_stats(&rig);
	ck_assert_uint_eq(stats.gate_failures, 1);
	ck_assert_uint_eq(stats.segments, 3);
	ck_assert_uint_eq(stats.batch_histogram[8], 1);
	ck_assert(!instance_exists(",a,b,", 1077));
	ck_assert(instance_exists(",a,b,", 1078));
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert_int_eq(commits[i].outbox[0].claimed, i != 77);
}
END_TEST

START_TEST(batch_of_mixed_commits)
{
	struct store_commit commits[4];
	struct store_request *all[4];

	given_claimed("a", 1, "lane-1");
	given_claimed("a", 2, "lane-2");
	rig_spawn(&rig, &commits[0], "b", test_id(3));
	rig_resume(&rig, &commits[1], "a", test_id(1), "lane-1", 1);
	rig_letter(&rig, &commits[2], "c");
	commit_dead_letter(&rig, &commits[2], test_id(50), STR("why"));
	rig_resume(&rig, &commits[3], "a", test_id(2), "lane-1", 1); /* not the owner */
	for (uint32_t i = 0; i < 4; i++)
		all[i] = &commits[i].base;
	rig_burst(&rig, all, 4);
	rig_wait(&rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[1].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[2].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[3].base.outcome, STORE_FENCED);
	ck_assert(instance_exists(",b,", 3));
	ck_assert_int_eq(instance_field(",a,", 1, 5).i, 2);
}
END_TEST

START_TEST(equal_gate_keys_do_not_share_a_batch)
{
	struct store_commit commits[5];
	struct store_request *all[5];

	for (uint32_t i = 0; i < 5; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(i + 1));
		all[i] = &commits[i].base;
	}
	commit_inbox(&rig, &commits[0], "e1");
	commit_inbox(&rig, &commits[1], "e1");
	commit_alias(&rig, &commits[2], "o-1", true);
	commit_inbox(&rig, &commits[3], "e1");
	commit_alias(&rig, &commits[3], "o-1", true);
	commit_alias(&rig, &commits[4], "o-1", true);
	rig_burst(&rig, all, 5);
	rig_wait(&rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[1].base.outcome, STORE_DUPLICATE);
	ck_assert_int_eq(commits[2].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[3].base.outcome, STORE_DUPLICATE);
	ck_assert_int_eq(commits[4].base.outcome, STORE_ALIAS_CONFLICT);
}
END_TEST

START_TEST(batches_keep_to_their_bounds)
{
	struct store_settings settings = store_rig_settings();
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	char *large = arena_zalloc(&rig.arena, 30001);

	settings.batch_max = 100;
	settings.batch_max_bytes = 20000;
	reopen(&settings);
	large = arena_zalloc(&rig.arena, 30001);
	memset(large, 'x', 30000);
	for (uint32_t i = 0; i < 100; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(i + 1));
		all[i] = &commits[i].base;
	}
	commits[50].snapshot = str_of(large);
	rig_burst(&rig, all, 100);
	rig_wait(&rig);
	for (uint32_t i = 0; i < 100; i++)
		ck_assert_int_eq(commits[i].base.outcome, STORE_OK);
	/* 75 small ones fill 20 000 bytes; the large one goes alone. */
	ck_assert_uint_eq(rig_stats(&rig).batches[STORE_COMMIT], 3);
	ck_assert_uint_eq(rig_stats(&rig).batch_histogram[0], 1);
	ck_assert_uint_eq(instance_field(",a,", 51, 12).str.len, 30000);
}
END_TEST

START_TEST(tenants_share_a_full_queue)
{
	struct store_settings settings = store_rig_settings();
	static struct store_commit commits[60];
	struct store_request *all[60];
	uint32_t later = 0;

	settings.batch_max = 20;
	reopen(&settings);
	for (uint32_t i = 0; i < 60; i++) {
		rig_spawn(&rig, &commits[i], i < 50 ? "greedy" : "modest", test_id(i + 1));
		all[i] = &commits[i].base;
	}
	rig_burst(&rig, all, 60);
	rig_wait(&rig);
	/* The first batch held ten of each: the modest tenant's waits are not older than the greedy one's first. */
	for (uint32_t i = 0; i < 50; i++)
		if (instance_field(",greedy,modest,", i + 1, 6).is_null)
			later++;
	ck_assert_uint_eq(later, 0);
	ck_assert_uint_eq(rig_stats(&rig).batches[STORE_COMMIT], 3);
}
END_TEST

START_TEST(texts_that_the_database_refuses)
{
	struct store_commit commit;
	struct store_claim request;
	char long_name[600];

	memset(long_name, 'n', sizeof(long_name));
	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_alias(&rig, &commit, "\xc3(", false);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_REJECTED);
	ck_assert_int_eq(commit.base.error.code, CODE_RUNTIME_STORE_REJECTED);
	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_send(&rig, &commit, "out", "x");
	commit.outbox[0].channel = str_make("o\0ut", 4);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_REJECTED);
	rig_spawn(&rig, &commit, "a", test_id(1));
	commit.deployment = str_make(long_name, sizeof(long_name));
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_REJECTED);
	rig_claim(&rig, &request, "a,b", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &request.base), STORE_REJECTED);
	ck_assert(!instance_exists(",a,", 1));
}
END_TEST

/* --- dead letters --- */

START_TEST(dead_letter_is_kept_once_and_whole)
{
	struct store_commit commit;
	const struct rows *rows;
	const struct field *f;

	for (int i = 0; i < 2; i++) {
		rig_letter(&rig, &commit, "a");
		commit_dead_letter(&rig, &commit, test_id(5), str_make("bad \xff\0 text", 11));
		commit_send(&rig, &commit, "dead", "letter");
		ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	}
	rows = rig_query(&rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	rows = rig_query(&rig, ",a,", false, STATEMENT_DEAD_LETTER_GET, test_id(5));
	ck_assert_uint_eq(rows->row_count, 1);
	f = rows_at(rows, 0, 0);
	ck_assert(id_equal(f[0].id, test_id(5)));
	ck_assert_str_slice(f[1].str, STR("a"));
	ck_assert_str_slice(f[2].str, STR("orders"));
	ck_assert_str_slice(f[3].str, STR("event-1"));
	ck_assert_str_slice(f[4].str, STR("kafka:orders/3/17"));
	ck_assert(f[5].is_null);
	ck_assert_str_slice(f[6].str, STR("SUTRA.PARSE.JSON.PARSE_ERROR"));
	ck_assert_str_slice(f[7].str, STR("bad \xef\xbf\xbd\xef\xbf\xbd text"));
	ck_assert(f[8].is_null);
	ck_assert_str_slice(f[9].str, STR("application/json"));
	ck_assert(!f[10].is_null);
	ck_assert_str_slice(f[11].str, STR("k"));
	ck_assert_str_slice(f[12].str, STR("\x80"));
	ck_assert_str_slice(f[13].str, STR("{\xff"));
	ck_assert_uint_eq(rig_query(&rig, ",b,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, LIMIT)
				  ->row_count,
			  0);
	ck_assert_uint_eq(
		rig_query(&rig, ",b,", false, STATEMENT_DEAD_LETTER_GET, test_id(5))->row_count, 0);
	ck_assert_uint_eq(
		rig_query(&rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, test_id(5), LIMIT)
			->row_count,
		0);
}
END_TEST

/* --- outbox --- */

/* A spawn with `count` rows on channel "out". */
static void given_rows(const char *tenant, uint32_t n, uint32_t count)
{
	struct store_commit commit;

	rig_spawn(&rig, &commit, tenant, test_id(n));
	for (uint32_t i = 0; i < count; i++)
		commit_send(&rig, &commit, "out", "body");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
}

static const struct rows *scan(const char *owner, int64_t limit)
{
	return rig_query(&rig, NULL, true, STATEMENT_OUTBOX_SCAN, owner, limit);
}

static const struct rows *load(const char *tenant, uint32_t n, int64_t ordinal, const char *owner)
{
	char list[32];

	snprintf(list, sizeof(list), ",%s,", tenant);
	return rig_query(&rig, list, false, STATEMENT_OUTBOX_LOAD, tenant, test_id(n), "out",
			 INT64_C(1), ordinal, owner);
}

static void row_fail(uint32_t n, int64_t ordinal, int64_t delay_ms, bool poisoned, bool keep_claim,
		     const char *owner)
{
	rig_query(&rig, ",a,", true, STATEMENT_OUTBOX_FAIL, "a", test_id(n), "out", INT64_C(1),
		  ordinal, INT64_C(3), delay_ms, "{\"code\":\"X\"}", (int)poisoned, (int)keep_claim,
		  owner);
}

static const struct rows *next_row(uint32_t n, const char *owner)
{
	return rig_query(&rig, ",a,", true, STATEMENT_OUTBOX_CLAIM_NEXT, "a", test_id(n), "out",
			 owner);
}

static void row_delete(uint32_t n, int64_t ordinal, const char *owner)
{
	rig_query(&rig, ",a,", true, STATEMENT_OUTBOX_DELETE, "a", test_id(n), "out", INT64_C(1),
		  ordinal, owner);
}

START_TEST(outbox_rows_come_claimed_and_whole)
{
	struct store_commit commit;
	const struct rows *rows;
	const struct field *f;

	rig_spawn(&rig, &commit, "a", test_id(1));
	commit_send(&rig, &commit, "out", "hello");
	commit_send(&rig, &commit, "other", NULL);
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
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
	rows = rig_query(&rig, ",a,", false, STATEMENT_OUTBOX_LOAD, "a", test_id(1), "other",
			 INT64_C(1), INT64_C(1), "boot-1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(rows_at(rows, 0, 13)->is_null);
}
END_TEST

START_TEST(outbox_row_behind_another_owner_is_not_claimed)
{
	struct store_commit commit;

	given_rows("a", 1, 1);
	reopen(settings_now(60000, "boot-2"));
	ck_assert_int_eq(claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_send(&rig, &commit, "out", "second");
	commit_send(&rig, &commit, "other", "free");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	ck_assert(!commit.outbox[0].claimed);
	ck_assert(commit.outbox[1].claimed);
	/* Behind its head it is not found by a scan either; then it is. */
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	row_delete(1, 0, "boot-2");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	row_delete(1, 0, "boot-1");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 1);
}
END_TEST

START_TEST(outbox_without_an_owner_is_scanned)
{
	struct store_commit commit;
	const struct rows *rows;

	reopen(settings_now(60000, NULL));
	rig_spawn(&rig, &commit, "a", test_id(1));
	for (int i = 0; i < 3; i++)
		commit_send(&rig, &commit, "out", "body");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
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

	reopen(settings_now(60000, NULL));
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
	rows = rig_query(&rig, ",a,", false, STATEMENT_OUTBOX_LIST, ID_NONE, "", INT64_C(0),
			 INT64_C(0), LIMIT);
	ck_assert_uint_eq(rows->row_count, 3);
	ck_assert_int_eq(rows_at(rows, 0, 6)->i, 3);
	ck_assert(rows_at(rows, 0, 8)->i > rows_at(rows, 0, 7)->i + INT64_C(3000000000));
	ck_assert(rows_at(rows, 0, 10)->is_null);
	ck_assert(!rows_at(rows, 0, 12)->is_null);
}
END_TEST

START_TEST(outbox_poisoned_head_holds_back_nobody)
{
	const struct rows *rows;

	given_rows("a", 1, 3);
	row_fail(1, 0, 0, true, false, "boot-1");
	row_fail(1, 1, 0, false, false, "boot-1");
	row_fail(1, 2, 0, false, false, "boot-1");
	rows = rig_query(&rig, NULL, false, STATEMENT_OUTBOX_COUNTS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 0);
	ck_assert_int_eq(rows_at(rows, 0, 2)->i, 1);
	ck_assert(!rows_at(rows, 0, 3)->is_null);
	rows = scan("boot-2", LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_int_eq(rows_at(rows, 0, 4)->i, 1);
	rows = rig_query(&rig, NULL, false, STATEMENT_OUTBOX_COUNTS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 1);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 1);
}
END_TEST

START_TEST(outbox_stamps_are_renewed_released_and_swept)
{
	const struct rows *rows;

	given_rows("a", 1, 2);
	rows = rig_query(&rig, ",a,", true, STATEMENT_OUTBOX_RENEW, "a", test_id(1), "out",
			 INT64_C(1), INT64_C(0), "boot-1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(id_equal(rows_at(rows, 0, 0)->id, test_id(1)));
	rows = rig_query(&rig, ",a,", true, STATEMENT_OUTBOX_RENEW, "a", test_id(1), "out",
			 INT64_C(1), INT64_C(0), "boot-2");
	ck_assert_uint_eq(rows->row_count, 0);
	rig_query(&rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out", INT64_C(1),
		  INT64_C(0), "boot-2");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 0);
	rig_query(&rig, ",a,", true, STATEMENT_OUTBOX_RELEASE, "a", test_id(1), "out", INT64_C(1),
		  INT64_C(0), "boot-1");
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, 1);
	/* Fresh stamps stay; stale ones go, page by page. */
	rows = rig_query(&rig, NULL, true, STATEMENT_OUTBOX_SWEEP, ID_NONE, "", INT64_C(0),
			 INT64_C(0), LIMIT, INT64_C(60000));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 0);
	rows = rig_query(&rig, NULL, true, STATEMENT_OUTBOX_SWEEP, ID_NONE, "", INT64_C(0),
			 INT64_C(0), INT64_C(1), STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 1);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 1);
	ck_assert(id_equal(rows_at(rows, 0, 2)->id, test_id(1)));
	ck_assert_str_slice(rows_at(rows, 0, 3)->str, STR("out"));
	ck_assert_int_eq(rows_at(rows, 0, 5)->i, 0);
	rows = rig_query(&rig, NULL, true, STATEMENT_OUTBOX_SWEEP, test_id(1), "out", INT64_C(1),
			 INT64_C(1), LIMIT, STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	ck_assert(rows_at(rows, 0, 2)->is_null);
	ck_assert_uint_eq(scan("boot-3", LIMIT)->row_count, 1);
}
END_TEST

START_TEST(outbox_scan_does_not_read_what_waits_behind)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];

	reopen(settings_now(60000, NULL));
	many_spawns(commits, all, false);
	rig_burst(&rig, all, MANY);
	rig_wait(&rig);
	ck_assert_uint_eq(scan("boot-1", 100)->row_count, 100);
	ck_assert_uint_eq(scan("boot-2", LIMIT)->row_count, MANY - 100);
}
END_TEST

/* --- leases, sweeps, deployments --- */

static const struct field *acquire(const char *holder, int64_t ttl_ms)
{
	return rows_at(
		rig_query(&rig, NULL, true, STATEMENT_LEASE_ACQUIRE, "sweeper", holder, ttl_ms), 0,
		0);
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
	rows = rig_query(&rig, NULL, false, STATEMENT_LEASE_LIST);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("sweeper"));
	ck_assert_str_slice(rows_at(rows, 0, 1)->str, STR("boot-2"));
	rig_query(&rig, NULL, true, STATEMENT_LEASE_RELEASE, "sweeper", "boot-1");
	ck_assert(!acquire("boot-1", 60000)[0].b);
	rig_query(&rig, NULL, true, STATEMENT_LEASE_RELEASE, "sweeper", "boot-2");
	ck_assert_uint_eq(rig_query(&rig, NULL, false, STATEMENT_LEASE_LIST)->row_count, 0);
	f = acquire("boot-1", 60000);
	ck_assert(f[0].b);
	ck_assert_int_eq(f[1].i, 3);
}
END_TEST

START_TEST(sweep_frees_stale_claims_by_pages)
{
	const struct rows *rows;

	for (uint32_t n = 1; n <= 3; n++)
		given_claimed(n == 2 ? "b" : "a", n, "lane-1");
	rows = rig_query(&rig, NULL, true, STATEMENT_CLAIM_SWEEP, ID_NONE, LIMIT, INT64_C(60000));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 3);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 0);
	rows = rig_query(&rig, NULL, true, STATEMENT_CLAIM_SWEEP, ID_NONE, INT64_C(2), STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	ck_assert_int_eq(rows_at(rows, 0, 1)->i, 2);
	ck_assert(id_equal(rows_at(rows, 0, 2)->id, test_id(2)));
	ck_assert_int_eq(claim("a", 1, "lane-2"), STORE_OK);
	ck_assert_int_eq(claim("b", 2, "lane-2"), STORE_OK);
	ck_assert_int_eq(claim("a", 3, "lane-2"), STORE_REFUSED);
	rows = rig_query(&rig, NULL, true, STATEMENT_CLAIM_SWEEP, test_id(3), LIMIT, STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	ck_assert(rows_at(rows, 0, 2)->is_null);
}
END_TEST

START_TEST(ended_instances_expire)
{
	struct store_commit commit;
	const struct rows *rows;

	ck_assert_int_eq(spawn("a", 1), STORE_OK);
	rig_spawn(&rig, &commit, "b", test_id(2));
	commit.status = INSTANCE_TERMINATED;
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rows = rig_query(&rig, NULL, false, STATEMENT_INSTANCE_EXPIRED, ID_NONE, LIMIT,
			 INT64_C(60000));
	ck_assert_uint_eq(rows->row_count, 1);
	rows = rig_query(&rig, NULL, false, STATEMENT_INSTANCE_EXPIRED, ID_NONE, INT64_C(2),
			 STALE_MS);
	ck_assert_uint_eq(rows->row_count, 2);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("b"));
	ck_assert(id_equal(rows_at(rows, 0, 1)->id, test_id(2)));
	ck_assert(!rows_at(rows, 0, 2)->is_null);
	ck_assert(rows_at(rows, 1, 0)->is_null);
	ck_assert(id_equal(rows_at(rows, 1, 1)->id, test_id(2)));
	rows = rig_query(&rig, NULL, false, STATEMENT_INSTANCE_EXPIRED, test_id(2), INT64_C(2),
			 STALE_MS);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert(rows_at(rows, 0, 0)->is_null && rows_at(rows, 0, 1)->is_null);
	/* Only what has ended, and only the right tenant's. */
	rig_query(&rig, ",a,", true, STATEMENT_INSTANCE_DELETE, "a", test_id(1));
	rig_query(&rig, ",a,", true, STATEMENT_INSTANCE_DELETE, "a", test_id(2));
	ck_assert(instance_exists(",a,", 1));
	ck_assert(instance_exists(",b,", 2));
	rig_query(&rig, ",b,", true, STATEMENT_INSTANCE_DELETE, "b", test_id(2));
	ck_assert(!instance_exists(",b,", 2));
}
END_TEST

START_TEST(inbox_is_purged_by_age)
{
	struct store_commit commit;
	const char *events[] = {"e1", "e2", "e3"};
	const struct rows *rows;

	for (uint32_t i = 0; i < 3; i++) {
		rig_spawn(&rig, &commit, "a", test_id(i + 1));
		commit_inbox(&rig, &commit, events[i]);
		ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	}
	rows = rig_query(&rig, NULL, true, STATEMENT_INBOX_PURGE, LIMIT, INT64_C(60000));
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 0);
	rows = rig_query(&rig, NULL, true, STATEMENT_INBOX_PURGE, INT64_C(2), STALE_MS);
	ck_assert_int_eq(rows_at(rows, 0, 0)->i, 2);
	rig_spawn(&rig, &commit, "a", test_id(9));
	commit_inbox(&rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_spawn(&rig, &commit, "a", test_id(10));
	commit_inbox(&rig, &commit, "e3");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_DUPLICATE);
}
END_TEST

START_TEST(deployments_are_put_listed_and_pinned)
{
	const struct rows *rows;

	rig_query(&rig, NULL, true, STATEMENT_DEPLOYMENT_PUT, "d1", "a", "orders", "1.0", "Loading",
		  "archive-bytes");
	rig_query(&rig, NULL, true, STATEMENT_DEPLOYMENT_PUT, "d2", "a", "orders", "2.0", "Active",
		  "other-bytes");
	rig_query(&rig, NULL, true, STATEMENT_DEPLOYMENT_PUT, "d1", "a", "orders", "1.0",
		  "Draining", NULL);
	rows = rig_query(&rig, NULL, false, STATEMENT_DEPLOYMENT_LIST);
	ck_assert_uint_eq(rows->row_count, 2);
	for (uint32_t i = 0; i < 2; i++)
		if (str_equal(rows_at(rows, i, 0)->str, STR("d1")))
			ck_assert_str_slice(rows_at(rows, i, 4)->str, STR("Draining"));
	rows = rig_query(&rig, NULL, false, STATEMENT_DEPLOYMENT_ARCHIVE, "d1");
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("archive-bytes"));
	ck_assert_uint_eq(
		rig_query(&rig, NULL, false, STATEMENT_DEPLOYMENT_ARCHIVE, "d9")->row_count, 0);
	ck_assert_uint_eq(rig_query(&rig, NULL, false, STATEMENT_DEPLOYMENT_PINNED)->row_count, 0);
	ck_assert_int_eq(spawn("a", 1), STORE_OK);
	ck_assert_int_eq(spawn("a", 2), STORE_OK);
	rows = rig_query(&rig, NULL, false, STATEMENT_DEPLOYMENT_PINNED);
	ck_assert_uint_eq(rows->row_count, 1);
	ck_assert_str_slice(rows_at(rows, 0, 0)->str, STR("d1"));
}
END_TEST

START_TEST(instances_are_listed_by_pages_and_filters)
{
	struct store_commit commit;
	const struct rows *rows;

	for (uint32_t n = 1; n <= 3; n++)
		ck_assert_int_eq(spawn("a", n), STORE_OK);
	rig_spawn(&rig, &commit, "a", test_id(4));
	commit.status = INSTANCE_COMPLETED;
	commit.deployment = STR("d2");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	rig_spawn(&rig, &commit, "a", test_id(5));
	commit.status = INSTANCE_FAILED;
	commit.code = STR("SUTRA.X");
	commit.detail = STR("why");
	ck_assert_int_eq(rig_run(&rig, &commit.base), STORE_OK);
	ck_assert_int_eq(spawn("b", 6), STORE_OK);

#define LIST(tenants, status, terminal, deployment, after, limit) \
	rig_query(&rig, tenants, false, STATEMENT_INSTANCE_LIST, (int64_t)(status), \
		  (int)(terminal), deployment, after, (int64_t)(limit))
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
#undef LIST
}
END_TEST

START_TEST(ping_and_unknown_transactions)
{
	ck_assert_int_eq(rows_at(rig_query(&rig, ",a,", false, STATEMENT_PING), 0, 0)->i, 1);
}
END_TEST

/* --- two stores --- */

START_TEST(claims_of_two_stores_never_both_succeed)
{
	struct store_rig other;
	static struct store_claim ours[MANY], theirs[MANY];
	struct store_request *all[MANY], *their_all[MANY];
	static struct store_commit commits[MANY];

	store_rig_init(&other, backend->executor_new(backend->arg, 2), NULL);
	many_spawns(commits, all, false);
	rig_burst(&rig, all, MANY);
	rig_wait(&rig);
	for (uint32_t i = 0; i < MANY; i++) {
		const char *tenant = i % 3 ? "a" : "b";

		rig_claim(&rig, &ours[i], tenant, test_id(1000 + i), "lane-1");
		rig_claim(&other, &theirs[i], tenant, test_id(1000 + i), "lane-2");
		all[i] = &ours[i].base;
		their_all[i] = &theirs[i].base;
	}
	for (uint32_t i = 0; i < MANY; i += 32) {
		rig_burst(&rig, all + i, 32);
		rig_burst(&other, their_all + i, 32);
	}
	rig_wait(&rig);
	rig_wait(&other);
	for (uint32_t i = 0; i < MANY; i++) {
		bool our = ours[i].base.outcome == STORE_OK,
		     their = theirs[i].base.outcome == STORE_OK;

		ck_assert(!(our && their));
	}
	store_rig_done(&other);
}
END_TEST

START_TEST(duplicates_of_two_stores_have_one_winner)
{
	struct store_rig other;
	static struct store_commit ours[MANY], theirs[MANY];

	store_rig_init(&other, backend->executor_new(backend->arg, 2), NULL);
	for (uint32_t i = 0; i < MANY; i++) {
		char event_id[16];

		snprintf(event_id, sizeof(event_id), "e%u", i);
		rig_spawn(&rig, &ours[i], "a", test_id(1000 + i));
		commit_inbox(&rig, &ours[i], arena_strdup(&rig.arena, event_id));
		rig_spawn(&other, &theirs[i], "a", test_id(5000 + i));
		commit_inbox(&other, &theirs[i], arena_strdup(&other.arena, event_id));
	}
	for (uint32_t i = 0; i < MANY; i++) {
		rig_send(&rig, &ours[i].base);
		rig_send(&other, &theirs[i].base);
	}
	rig_wait(&rig);
	rig_wait(&other);
	for (uint32_t i = 0; i < MANY; i++) {
		enum store_outcome a = ours[i].base.outcome, b = theirs[i].base.outcome;

		ck_assert_msg((a == STORE_OK && b == STORE_DUPLICATE) ||
				      (a == STORE_DUPLICATE && b == STORE_OK),
			      "event %u: %d and %d", i, a, b);
	}
	store_rig_done(&other);
}
END_TEST

START_TEST(stopped_store_answers)
{
	struct store_claim request;

	store_stop(rig.store);
	rig_claim(&rig, &request, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&rig, &request.base), STORE_UNAVAILABLE);
	ck_assert_int_eq(request.base.error.code, CODE_DISPATCH_UNAVAILABLE);
	ck_assert(!store_is_up(rig.store, NULL));
}
END_TEST

void store_suite_add(Suite *suite, const struct store_backend *with)
{
	TCase *claims = tcase_create("claims"), *commits = tcase_create("commits"),
	      *batches = tcase_create("batches"), *outbox = tcase_create("outbox"),
	      *background = tcase_create("background");
	TCase *all[] = {claims, commits, batches, outbox, background};

	backend = with;
	TEST_ADD_ALL(claims, claim_returns_what_was_spawned, claim_of_another_owner_is_refused,
		     claim_that_is_silent_too_long_is_taken_over, release_frees_only_its_own_claim,
		     claim_of_an_ended_instance_is_refused, claim_of_another_tenant_is_refused,
		     claims_and_releases_ride_together, claims_of_two_stores_never_both_succeed);
	TEST_ADD_ALL(commits, resume_writes_and_releases, fence_holds_against_owner_and_version,
		     event_has_its_effect_once, spawn_twice_is_committed_once,
		     unique_alias_is_held_by_one, plain_alias_is_held_by_many,
		     unique_wait_is_held_by_one, resolve_finds_waits_oldest_first,
		     resolves_of_one_batch_keep_apart, step_that_ends_takes_its_rows_along,
		     dead_letter_is_kept_once_and_whole, duplicates_of_two_stores_have_one_winner);
	TEST_ADD_ALL(batches, batch_with_one_bad_element, batch_of_mixed_commits,
		     equal_gate_keys_do_not_share_a_batch, batches_keep_to_their_bounds,
		     tenants_share_a_full_queue, texts_that_the_database_refuses,
		     stopped_store_answers);
	TEST_ADD_ALL(outbox, outbox_rows_come_claimed_and_whole,
		     outbox_row_behind_another_owner_is_not_claimed,
		     outbox_without_an_owner_is_scanned, outbox_scan_goes_round_the_tenants,
		     outbox_failure_waits_holds_back_and_poisons,
		     outbox_poisoned_head_holds_back_nobody,
		     outbox_stamps_are_renewed_released_and_swept,
		     outbox_scan_does_not_read_what_waits_behind);
	TEST_ADD_ALL(background, lease_has_one_holder_and_a_growing_term,
		     sweep_frees_stale_claims_by_pages, ended_instances_expire,
		     inbox_is_purged_by_age, deployments_are_put_listed_and_pinned,
		     instances_are_listed_by_pages_and_filters, ping_and_unknown_transactions);
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		tcase_add_checked_fixture(all[i], setup, teardown);
		tcase_set_timeout(all[i], 60);
		suite_add_tcase(suite, all[i]);
	}
}
