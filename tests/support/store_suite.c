/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every executor owes, seen through the store: claims, commits, batches; store_suite_rows.c and
 * store_suite_kept.c have the rest.
 * Times are not waited for: a timeout of less than nothing makes every stamp stale.
 */
#include "tests/support/store_suite_private.h"

#include <stdio.h>

static const struct store_backend *backend;
struct store_rig suite_rig;

static void setup(void)
{
	backend->reset(backend->arg);
	store_rig_init(&suite_rig, backend->executor_new(backend->arg, 2), NULL);
}

struct executor *suite_executor_new(void)
{
	return backend->executor_new(backend->arg, 2);
}

static void teardown(void)
{
	store_rig_done(&suite_rig);
	if (backend->done)
		backend->done(backend->arg);
}

struct store_settings *suite_settings_now(int64_t claim_timeout_ms, const char *outbox_owner)
{
	static struct store_settings settings;

	settings = store_rig_settings();
	settings.claim_timeout_ms = claim_timeout_ms;
	settings.outbox_owner = outbox_owner;
	return &settings;
}

/* Goes on with another store on the same tables. */
void suite_reopen(const struct store_settings *settings)
{
	store_rig_done(&suite_rig);
	store_rig_init(&suite_rig, backend->executor_new(backend->arg, 2), settings);
}

enum store_outcome suite_spawn(const char *tenant, uint32_t n)
{
	struct store_commit commit;

	rig_spawn(&suite_rig, &commit, tenant, test_id(n));
	return rig_run(&suite_rig, &commit.base);
}

enum store_outcome suite_claim(const char *tenant, uint32_t n, const char *owner)
{
	struct store_claim request;

	rig_claim(&suite_rig, &request, tenant, test_id(n), owner);
	return rig_run(&suite_rig, &request.base);
}

void suite_given_claimed(const char *tenant, uint32_t n, const char *owner)
{
	ck_assert_int_eq(suite_spawn(tenant, n), STORE_OK);
	ck_assert_int_eq(suite_claim(tenant, n, owner), STORE_OK);
}

struct field suite_instance_field(const char *tenants, uint32_t n, uint32_t column)
{
	const struct rows *rows = rig_query(&suite_rig, tenants, false, STATEMENT_INSTANCE_GET,
					    test_id(n));

	ck_assert_uint_eq(rows->row_count, 1);
	return *rows_at(rows, 0, column);
}

bool suite_instance_exists(const char *tenants, uint32_t n)
{
	return rig_query(&suite_rig, tenants, false, STATEMENT_INSTANCE_GET, test_id(n))
		       ->row_count == 1;
}

void suite_many_spawns(struct store_commit *commits, struct store_request **all, bool events)
{
	for (uint32_t i = 0; i < MANY; i++) {
		char event_id[16];

		rig_spawn(&suite_rig, &commits[i], i % 3 ? "a" : "b", test_id(1000 + i));
		snprintf(event_id, sizeof(event_id), "e%u", i);
		if (events)
			commit_inbox(&suite_rig, &commits[i],
				     arena_strdup(&suite_rig.arena, event_id));
		commit_send(&suite_rig, &commits[i], "out", "body");
		all[i] = &commits[i].base;
	}
}

/* --- claims --- */

START_TEST(claim_returns_what_was_spawned)
{
	struct store_claim request;

	ck_assert_int_eq(suite_spawn("a", 1), STORE_OK);
	rig_claim(&suite_rig, &request, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&suite_rig, &request.base), STORE_OK);
	ck_assert_int_eq(request.version, 1);
	ck_assert_int_eq(request.status, INSTANCE_SUSPENDED);
	ck_assert_str_slice(request.deployment, STR("d1"));
	ck_assert_str_slice(request.process, STR("p1"));
	ck_assert_str_slice(request.snapshot, STR("snapshot-1"));
}
END_TEST

START_TEST(claim_of_another_owner_is_refused)
{
	suite_given_claimed("a", 1, "lane-1");
	ck_assert_int_eq(suite_claim("a", 1, "lane-2"), STORE_REFUSED);
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	ck_assert_int_eq(suite_claim("a", 2, "lane-1"), STORE_REFUSED);
}
END_TEST

START_TEST(claim_that_is_silent_too_long_is_taken_over)
{
	suite_given_claimed("a", 1, "lane-1");
	suite_reopen(suite_settings_now(STALE_MS, "boot-1"));
	ck_assert_int_eq(suite_claim("a", 1, "lane-2"), STORE_OK);
}
END_TEST

START_TEST(release_frees_only_its_own_claim)
{
	struct store_release release;

	suite_given_claimed("a", 1, "lane-1");
	rig_release(&suite_rig, &release, "a", test_id(1), "lane-2");
	ck_assert_int_eq(rig_run(&suite_rig, &release.base), STORE_OK);
	ck_assert_int_eq(suite_claim("a", 1, "lane-2"), STORE_REFUSED);
	rig_release(&suite_rig, &release, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&suite_rig, &release.base), STORE_OK);
	ck_assert_int_eq(suite_claim("a", 1, "lane-2"), STORE_OK);
}
END_TEST

START_TEST(claim_of_an_ended_instance_is_refused)
{
	struct store_commit commit;

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit.status = INSTANCE_COMPLETED;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_REFUSED);
	rig_spawn(&suite_rig, &commit, "a", test_id(2));
	commit.status = INSTANCE_FAILED;
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_int_eq(suite_claim("a", 2, "lane-1"), STORE_OK);
}
END_TEST

START_TEST(claim_of_another_tenant_is_refused)
{
	ck_assert_int_eq(suite_spawn("a", 1), STORE_OK);
	ck_assert_int_eq(suite_claim("b", 1, "lane-1"), STORE_REFUSED);
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
}
END_TEST

START_TEST(claims_and_releases_ride_together)
{
	struct store_claim claims[3];
	struct store_release release;
	struct store_request *all[] = {&claims[0].base, &release.base, &claims[1].base,
				       &claims[2].base};

	suite_given_claimed("a", 1, "lane-1");
	ck_assert_int_eq(suite_spawn("a", 2), STORE_OK);
	rig_claim(&suite_rig, &claims[0], "a", test_id(2), "lane-1");
	rig_release(&suite_rig, &release, "a", test_id(1), "lane-1");
	rig_claim(&suite_rig, &claims[1], "a", test_id(1), "lane-2");
	rig_claim(&suite_rig, &claims[2], "a", test_id(2),
		  "lane-2"); /* the same instance: the next batch */
	rig_burst(&suite_rig, all, 4);
	rig_wait(&suite_rig);
	ck_assert_int_eq(release.base.outcome, STORE_OK);
	ck_assert_int_eq(claims[1].base.outcome, STORE_OK);
	/* The next batch may run on a connection of its own, and win. */
	ck_assert_int_eq(claims[0].base.outcome == STORE_OK, claims[2].base.outcome == STORE_REFUSED);
	ck_assert_int_eq(claims[0].base.outcome == STORE_REFUSED, claims[2].base.outcome == STORE_OK);
}
END_TEST

/* --- commits --- */

START_TEST(resume_writes_and_releases)
{
	struct store_commit commit;
	struct store_claim request;

	suite_given_claimed("a", 1, "lane-1");
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_claim(&suite_rig, &request, "a", test_id(1), "lane-2");
	ck_assert_int_eq(rig_run(&suite_rig, &request.base), STORE_OK);
	ck_assert_int_eq(request.version, 2);
	ck_assert_str_slice(request.snapshot, STR("snapshot-next"));
}
END_TEST

START_TEST(fence_holds_against_owner_and_version)
{
	struct store_commit commit;

	suite_given_claimed("a", 1, "lane-1");
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-2", 1);
	commit_send(&suite_rig, &commit, "out", "never");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 2);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
	rig_resume(&suite_rig, &commit, "b", test_id(1), "lane-1", 1);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
	rig_resume(&suite_rig, &commit, "a", test_id(7), "lane-1", 1);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
	ck_assert_uint_eq(rig_query(&suite_rig, ",a,", false, STATEMENT_OUTBOX_LIST, ID_NONE, "",
				    INT64_C(0), INT64_C(0), LIMIT)
				  ->row_count,
			  0);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_FENCED);
}
END_TEST

START_TEST(event_has_its_effect_once)
{
	struct store_commit commit;

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_inbox(&suite_rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_spawn(&suite_rig, &commit, "a", test_id(2));
	commit_inbox(&suite_rig, &commit, "e2");
	commit_inbox(&suite_rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_DUPLICATE);
	ck_assert(!suite_instance_exists(",a,", 2));
	/* What lost left nothing: its other key is free. */
	rig_spawn(&suite_rig, &commit, "a", test_id(3));
	commit_inbox(&suite_rig, &commit, "e2");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	/* Another tenant's event is another event. */
	rig_spawn(&suite_rig, &commit, "b", test_id(4));
	commit_inbox(&suite_rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}
END_TEST

START_TEST(spawn_twice_is_committed_once)
{
	ck_assert_int_eq(suite_spawn("a", 1), STORE_OK);
	ck_assert_int_eq(suite_spawn("a", 1), STORE_OK);
	ck_assert_int_eq(suite_instance_field(",a,", 1, 5).i, 1);
}
END_TEST

START_TEST(unique_alias_is_held_by_one)
{
	struct store_commit commit;

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_alias(&suite_rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_spawn(&suite_rig, &commit, "a", test_id(2));
	commit_alias(&suite_rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_ALIAS_CONFLICT);
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_alias_end(&suite_rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_spawn(&suite_rig, &commit, "a", test_id(3));
	commit_alias(&suite_rig, &commit, "o-1", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}
END_TEST

START_TEST(plain_alias_is_held_by_many)
{
	struct store_commit commit;
	const struct rows *rows;

	for (uint32_t n = 1; n <= 3; n++) {
		rig_spawn(&suite_rig, &commit, "a", test_id(n));
		commit_alias(&suite_rig, &commit, "o-1", false);
		commit_alias(&suite_rig, &commit, "o-1", false);
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	}
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_ALIAS_PROBE, "a",
			 store_alias_key(STR("a"), STR("order"), STR("o-1")));
	ck_assert_uint_eq(rows->row_count, 3);
	rows = rig_query(&suite_rig, ",b,", false, STATEMENT_ALIAS_PROBE, "a",
			 store_alias_key(STR("a"), STR("order"), STR("o-1")));
	ck_assert_uint_eq(rows->row_count, 0);
}
END_TEST

START_TEST(unique_wait_is_held_by_one)
{
	struct store_commit commit;

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_wait(&suite_rig, &commit, 1, "o-1", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_spawn(&suite_rig, &commit, "a", test_id(2));
	commit_wait(&suite_rig, &commit, 1, "o-1", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_WAIT_NOT_UNIQUE);
	rig_spawn(&suite_rig, &commit, "a", test_id(3));
	commit_wait(&suite_rig, &commit, 1, "o-2", true);
	commit_wait(&suite_rig, &commit, 2, "o-2", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_WAIT_NOT_UNIQUE);
	/* Ended and begun again in one step. */
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	commit_wait_end(&suite_rig, &commit, 1, "o-1", true);
	commit_wait(&suite_rig, &commit, 2, "o-1", true);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
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
		rig_spawn(&suite_rig, &commit, "a", test_id(n));
		commit_wait(&suite_rig, &commit, n, "o-1", false);
		if (n == 2)
			commit_wait(&suite_rig, &commit, 9, "o-2", false);
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	}
	rig_claim(&suite_rig, &(struct store_claim){0}, "a", test_id(1), "x");
	resolve.wait_keys = keys;
	resolve.wait_key_count = 3;
	resolve.base = commit.base;
	resolve.base.kind = STORE_RESOLVE;
	ck_assert_int_eq(rig_run(&suite_rig, &resolve.base), STORE_OK);
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
	struct id *keys = arena_alloc(&suite_rig.arena, 2 * sizeof(*keys));

	rig_letter(&suite_rig, &like, tenant);
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

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_inbox(&suite_rig, &commit, "e1");
	commit_wait(&suite_rig, &commit, 1, "o-1", false);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	rig_letter(&suite_rig, &commit, "b");
	commit_inbox(&suite_rig, &commit, "e1");
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	prepare_resolve(&resolves[0], "a", "e1", "o-2");
	prepare_resolve(&resolves[1], "b", "e1", "o-1");
	prepare_resolve(&resolves[2], "a", "e2", "o-1");
	for (uint32_t i = 0; i < 3; i++)
		all[i] = &resolves[i].base;
	rig_burst(&suite_rig, all, 3);
	rig_wait(&suite_rig);
	ck_assert(resolves[0].duplicate && id_equal(resolves[0].duplicate_instance, test_id(1)));
	ck_assert_uint_eq(resolves[0].wait_count, 0);
	ck_assert(resolves[1].duplicate && id_is_none(resolves[1].duplicate_instance));
	ck_assert_uint_eq(resolves[1].wait_count, 0);
	ck_assert(!resolves[2].duplicate);
	ck_assert_uint_eq(resolves[2].wait_count, 1);
	ck_assert(id_equal(resolves[2].waits[0].instance, test_id(1)));
	ck_assert_uint_eq(rig_stats(&suite_rig).batches[STORE_RESOLVE], 1);
}
END_TEST

START_TEST(step_that_ends_takes_its_rows_along)
{
	struct store_commit commit;
	struct store_resolve resolve;

	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_wait(&suite_rig, &commit, 1, "o-1", false);
	commit_alias(&suite_rig, &commit, "o-1", false);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_int_eq(suite_claim("a", 1, "lane-1"), STORE_OK);
	rig_resume(&suite_rig, &commit, "a", test_id(1), "lane-1", 1);
	commit.status = INSTANCE_COMPLETED;
	commit_wait_end(&suite_rig, &commit, 1, "o-1", false);
	commit_alias_end(&suite_rig, &commit, "o-1", false);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	prepare_resolve(&resolve, "a", "e1", "o-1");
	ck_assert_int_eq(rig_run(&suite_rig, &resolve.base), STORE_OK);
	ck_assert_uint_eq(resolve.wait_count, 0);
	ck_assert(!suite_instance_field(",a,", 1, 7).is_null);
	ck_assert(suite_instance_field(",a,", 1, 10).is_null);
}
END_TEST

/* --- batches --- */

START_TEST(batch_with_one_bad_element)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	struct store_commit before;
	struct store_stats stats;

	rig_spawn(&suite_rig, &before, "a", test_id(1));
	commit_inbox(&suite_rig, &before, "e77");
	ck_assert_int_eq(rig_run(&suite_rig, &before.base), STORE_OK);
	suite_many_spawns(commits, all, true);
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert_int_eq(commits[i].base.outcome, i == 77 ? STORE_DUPLICATE : STORE_OK);
	stats = rig_stats(&suite_rig);
	ck_assert_uint_eq(stats.gate_failures, 1);
	ck_assert_uint_eq(stats.segments, 3);
	ck_assert_uint_eq(stats.batch_histogram[8], 1);
	ck_assert(!suite_instance_exists(",a,b,", 1077));
	ck_assert(suite_instance_exists(",a,b,", 1078));
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert_int_eq(commits[i].outbox[0].claimed, i != 77);
}
END_TEST

START_TEST(batch_of_mixed_commits)
{
	struct store_commit commits[4];
	struct store_request *all[4];

	suite_given_claimed("a", 1, "lane-1");
	suite_given_claimed("a", 2, "lane-2");
	rig_spawn(&suite_rig, &commits[0], "b", test_id(3));
	rig_resume(&suite_rig, &commits[1], "a", test_id(1), "lane-1", 1);
	rig_letter(&suite_rig, &commits[2], "c");
	commit_dead_letter(&suite_rig, &commits[2], test_id(50), STR("why"));
	rig_resume(&suite_rig, &commits[3], "a", test_id(2), "lane-1", 1); /* not the owner */
	for (uint32_t i = 0; i < 4; i++)
		all[i] = &commits[i].base;
	rig_burst(&suite_rig, all, 4);
	rig_wait(&suite_rig);
	ck_assert_int_eq(commits[0].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[1].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[2].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[3].base.outcome, STORE_FENCED);
	ck_assert(suite_instance_exists(",b,", 3));
	ck_assert_int_eq(suite_instance_field(",a,", 1, 5).i, 2);
}
END_TEST

START_TEST(equal_gate_keys_do_not_share_a_batch)
{
	struct store_commit commits[5];
	struct store_request *all[5];

	for (uint32_t i = 0; i < 5; i++) {
		rig_spawn(&suite_rig, &commits[i], "a", test_id(i + 1));
		all[i] = &commits[i].base;
	}
	commit_inbox(&suite_rig, &commits[0], "e1");
	commit_inbox(&suite_rig, &commits[1], "e1");
	commit_alias(&suite_rig, &commits[2], "o-1", true);
	commit_inbox(&suite_rig, &commits[3], "e1");
	commit_alias(&suite_rig, &commits[3], "o-1", true);
	commit_alias(&suite_rig, &commits[4], "o-1", true);
	rig_burst(&suite_rig, all, 5);
	rig_wait(&suite_rig);
	/* The second batch may run on a connection of its own, and win. */
	if (commits[0].base.outcome == STORE_OK) {
		ck_assert_int_eq(commits[1].base.outcome, STORE_DUPLICATE);
	} else {
		ck_assert_int_eq(commits[0].base.outcome, STORE_DUPLICATE);
		ck_assert_int_eq(commits[1].base.outcome, STORE_OK);
	}
	if (commits[2].base.outcome == STORE_OK) {
		ck_assert_int_eq(commits[4].base.outcome, STORE_ALIAS_CONFLICT);
	} else {
		ck_assert_int_eq(commits[2].base.outcome, STORE_ALIAS_CONFLICT);
		ck_assert_int_eq(commits[4].base.outcome, STORE_OK);
	}
	ck_assert_int_eq(commits[3].base.outcome, STORE_DUPLICATE);
}
END_TEST

START_TEST(batches_keep_to_their_bounds)
{
	struct store_settings settings = store_rig_settings();
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	char *large = arena_zalloc(&suite_rig.arena, 30001);

	settings.batch_max = 100;
	settings.batch_max_bytes = 20000;
	suite_reopen(&settings);
	large = arena_zalloc(&suite_rig.arena, 30001);
	memset(large, 'x', 30000);
	for (uint32_t i = 0; i < 100; i++) {
		rig_spawn(&suite_rig, &commits[i], "a", test_id(i + 1));
		all[i] = &commits[i].base;
	}
	commits[50].snapshot = str_of(large);
	rig_burst(&suite_rig, all, 100);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < 100; i++)
		ck_assert_int_eq(commits[i].base.outcome, STORE_OK);
	/* 75 small ones fill 20 000 bytes; the large one goes alone. */
	ck_assert_uint_eq(rig_stats(&suite_rig).batches[STORE_COMMIT], 3);
	ck_assert_uint_eq(rig_stats(&suite_rig).batch_histogram[0], 1);
	ck_assert_uint_eq(suite_instance_field(",a,", 51, 12).str.len, 30000);
}
END_TEST

START_TEST(tenants_share_a_full_queue)
{
	struct store_settings settings = store_rig_settings();
	static struct store_commit commits[60];
	struct store_request *all[60];
	uint32_t later = 0;

	settings.batch_max = 20;
	suite_reopen(&settings);
	for (uint32_t i = 0; i < 60; i++) {
		rig_spawn(&suite_rig, &commits[i], i < 50 ? "greedy" : "modest", test_id(i + 1));
		all[i] = &commits[i].base;
	}
	rig_burst(&suite_rig, all, 60);
	rig_wait(&suite_rig);
	/* The first batch held ten of each: the modest tenant's waits are not older than the greedy one's first. */
	for (uint32_t i = 0; i < 50; i++)
		if (suite_instance_field(",greedy,modest,", i + 1, 6).is_null)
			later++;
	ck_assert_uint_eq(later, 0);
	ck_assert_uint_eq(rig_stats(&suite_rig).batches[STORE_COMMIT], 3);
}
END_TEST

START_TEST(texts_that_the_database_refuses)
{
	struct store_commit commit;
	struct store_claim request;
	char long_name[600];

	memset(long_name, 'n', sizeof(long_name));
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_alias(&suite_rig, &commit, "\xc3(", false);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	ck_assert_int_eq(commit.base.error.code, CODE_RUNTIME_STORE_REJECTED);
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit_send(&suite_rig, &commit, "out", "x");
	commit.outbox[0].channel = str_make("o\0ut", 4);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	rig_spawn(&suite_rig, &commit, "a", test_id(1));
	commit.deployment = str_make(long_name, sizeof(long_name));
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_REJECTED);
	rig_claim(&suite_rig, &request, "a,b", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&suite_rig, &request.base), STORE_REJECTED);
	ck_assert(!suite_instance_exists(",a,", 1));
}
END_TEST

/* --- dead letters --- */

static const struct rows *dead_letter(uint32_t n)
{
	return rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_GET, test_id(n));
}

static void given_dead_letter(uint32_t n)
{
	struct store_commit commit;

	rig_letter(&suite_rig, &commit, "a");
	commit_dead_letter(&suite_rig, &commit, test_id(n), STR("the first time"));
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}

START_TEST(effect_of_a_replay_removes_the_dead_letter)
{
	struct store_commit commit;

	given_dead_letter(5);
	given_dead_letter(6);
	rig_spawn(&suite_rig, &commit, "b", test_id(1));
	commit.dead_letter_removed = test_id(5);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(dead_letter(5)->row_count, 1); /* not another tenant's */
	rig_spawn(&suite_rig, &commit, "a", test_id(2));
	commit.dead_letter_removed = test_id(5);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	ck_assert_uint_eq(dead_letter(5)->row_count, 0);
	ck_assert_uint_eq(dead_letter(6)->row_count, 1);
	/* It was removed meanwhile: the effect stands. */
	rig_spawn(&suite_rig, &commit, "a", test_id(3));
	commit.dead_letter_removed = test_id(5);
	ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
}
END_TEST

START_TEST(replay_that_is_rejected_again_leaves_one_dead_letter)
{
	struct store_commit commit;
	const struct field *f;

	given_dead_letter(5);
	for (int i = 0; i < 2; i++) {
		rig_letter(&suite_rig, &commit, "a");
		commit_dead_letter(&suite_rig, &commit, test_id(5 + i), STR("the second time"));
		commit.dead_letter_removed = test_id(5 + i);
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
		ck_assert_uint_eq(dead_letter(5 + i)->row_count, 1);
		f = rows_at(dead_letter(5 + i), 0, 0);
		ck_assert_str_slice(f[7].str, STR("the second time"));
	}
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, LIMIT)->row_count, 2);
}
END_TEST

START_TEST(dead_letter_is_kept_once_and_whole)
{
	struct store_commit commit;
	const struct rows *rows;
	const struct field *f;

	for (int i = 0; i < 2; i++) {
		rig_letter(&suite_rig, &commit, "a");
		commit_dead_letter(&suite_rig, &commit, test_id(5),
				   str_make("bad \xff\0 text", 11));
		commit_send(&suite_rig, &commit, "dead", "letter");
		ck_assert_int_eq(rig_run(&suite_rig, &commit.base), STORE_OK);
	}
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, LIMIT);
	ck_assert_uint_eq(rows->row_count, 1);
	rows = rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_GET, test_id(5));
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
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",b,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, LIMIT)
			->row_count,
		0);
	ck_assert_uint_eq(rig_query(&suite_rig, ",b,", false, STATEMENT_DEAD_LETTER_GET, test_id(5))
				  ->row_count,
			  0);
	ck_assert_uint_eq(
		rig_query(&suite_rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, test_id(5), LIMIT)
			->row_count,
		0);
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
	suite_many_spawns(commits, all, false);
	rig_burst(&suite_rig, all, MANY);
	rig_wait(&suite_rig);
	for (uint32_t i = 0; i < MANY; i++) {
		const char *tenant = i % 3 ? "a" : "b";

		rig_claim(&suite_rig, &ours[i], tenant, test_id(1000 + i), "lane-1");
		rig_claim(&other, &theirs[i], tenant, test_id(1000 + i), "lane-2");
		all[i] = &ours[i].base;
		their_all[i] = &theirs[i].base;
	}
	for (uint32_t i = 0; i < MANY; i += 32) {
		rig_burst(&suite_rig, all + i, 32);
		rig_burst(&other, their_all + i, 32);
	}
	rig_wait(&suite_rig);
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
		rig_spawn(&suite_rig, &ours[i], "a", test_id(1000 + i));
		commit_inbox(&suite_rig, &ours[i], arena_strdup(&suite_rig.arena, event_id));
		rig_spawn(&other, &theirs[i], "a", test_id(5000 + i));
		commit_inbox(&other, &theirs[i], arena_strdup(&other.arena, event_id));
	}
	for (uint32_t i = 0; i < MANY; i++) {
		rig_send(&suite_rig, &ours[i].base);
		rig_send(&other, &theirs[i].base);
	}
	rig_wait(&suite_rig);
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

	store_stop(suite_rig.store);
	rig_claim(&suite_rig, &request, "a", test_id(1), "lane-1");
	ck_assert_int_eq(rig_run(&suite_rig, &request.base), STORE_UNAVAILABLE);
	ck_assert_int_eq(request.base.error.code, CODE_DISPATCH_UNAVAILABLE);
	ck_assert(!store_is_up(suite_rig.store, NULL));
}
END_TEST

void store_suite_add(Suite *suite, const struct store_backend *with)
{
	TCase *claims = tcase_create("claims"), *commits = tcase_create("commits"),
	      *batches = tcase_create("batches"), *outbox = tcase_create("outbox"),
	      *background = tcase_create("background"), *kept = tcase_create("kept"),
	      *early = tcase_create("early"), *timers = tcase_create("timers"), *pools = tcase_create("pools");
	TCase *all[] = {claims, commits, batches, outbox, background, kept, early, timers, pools};

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
		     dead_letter_is_kept_once_and_whole, duplicates_of_two_stores_have_one_winner,
		     effect_of_a_replay_removes_the_dead_letter,
		     replay_that_is_rejected_again_leaves_one_dead_letter);
	TEST_ADD_ALL(batches, batch_with_one_bad_element, batch_of_mixed_commits,
		     equal_gate_keys_do_not_share_a_batch, batches_keep_to_their_bounds,
		     tenants_share_a_full_queue, texts_that_the_database_refuses,
		     stopped_store_answers);
	store_suite_rows_add(outbox, background);
	store_suite_kept_add(kept);
	store_suite_early_add(early);
	store_suite_timers_add(timers);
	store_suite_pools_add(pools);
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		tcase_add_checked_fixture(all[i], setup, teardown);
		tcase_set_timeout(all[i], 60);
		suite_add_tcase(suite, all[i]);
	}
}
