/* SPDX-License-Identifier: Apache-2.0 */
/* Roles: who leads, when a leader stops, and what the two sweeps remove. */
#include <stdio.h>

#include "base/log.h"
#include "roles/roles.h"
#include "tests/support/store_suite.h"

#define DEADLINE_MS 20000

struct world {
	struct memory_database *db;
	struct store_rig rig, other_rig;
	struct roles *roles, *other;
	pthread_mutex_t lock;
	struct buf log;
};

static struct world world;

static void take_line(void *arg, struct str line)
{
	struct world *w = arg;

	pthread_mutex_lock(&w->lock);
	buf_add_str(&w->log, line);
	buf_add_byte(&w->log, '\n');
	pthread_mutex_unlock(&w->lock);
}

static void setup(void)
{
	world = (struct world){.db = memory_database_new(), .lock = PTHREAD_MUTEX_INITIALIZER};
	log_redirect(take_line, &world);
	store_rig_init(&world.rig, memory_executor_new(world.db, 2), NULL);
	store_rig_init(&world.other_rig, memory_executor_new(world.db, 2), NULL);
}

static void teardown(void)
{
	if (world.roles)
		roles_stop(world.roles);
	if (world.other)
		roles_stop(world.other);
	roles_free(&world.roles);
	roles_free(&world.other);
	store_rig_done(&world.rig);
	store_rig_done(&world.other_rig);
	memory_database_free(&world.db);
	log_redirect(NULL, NULL);
	buf_done(&world.log);
}

static struct roles_settings settings_of(const char *holder)
{
	return (struct roles_settings){
		.holder = holder,
		.lease_ttl_ms = 1000,
		.lease_poll_ms = 20,
		.claim_timeout_ms = 1,
		.sweep_interval_ms = 10,
		.instance_retention_ms = 0,
		.retention_interval_ms = 10,
		.inbox_retention_ms = 0,
	};
}

/* --- conditions --- */

static struct roles_stats stats_of(struct roles *roles)
{
	struct roles_stats stats;

	roles_stats_read(roles, &stats);
	return stats;
}

static bool leads_both(void *arg)
{
	struct roles_stats stats = stats_of(arg);

	return stats.leases[0].held && stats.leases[1].held;
}

static bool leads_none(void *arg)
{
	struct roles_stats stats = stats_of(arg);

	return !stats.leases[0].held && !stats.leases[1].held;
}

static bool logged(const char *text)
{
	bool found;

	pthread_mutex_lock(&world.lock);
	found = world.log.len && strstr(world.log.data, text);
	pthread_mutex_unlock(&world.lock);
	return found;
}

static void wait_for(bool (*condition)(void *arg), void *arg)
{
	ck_assert_msg(test_wait(condition, arg, DEADLINE_MS), "it does not come to that");
}

static bool is_logged(void *arg)
{
	return logged(*(const char **)arg);
}

static void wait_logged(const char *text)
{
	wait_for(is_logged, &text);
}

static uint32_t rows_of(enum statement_id statement)
{
	return rig_query(&world.rig, NULL, false, statement)->row_count;
}

static uint32_t count_instances(bool claimed_only)
{
	const struct rows *rows = rig_query(&world.rig, ",acme,", false, STATEMENT_INSTANCE_LIST,
					    (int64_t)-1, 1, NULL, ID_NONE, (int64_t)10001, (int64_t)10000);
	uint32_t count = 0;

	for (uint32_t i = 0; i < rows->row_count; i++)
		count += !claimed_only || !rows_at(rows, i, 10)->is_null;
	return count;
}

/* --- data --- */

static void spawn(uint32_t n, enum instance_status status)
{
	struct store_commit commit;
	char event[20];

	rig_spawn(&world.rig, &commit, "acme", test_id(n));
	snprintf(event, sizeof(event), "event-%u", n);
	commit_inbox(&world.rig, &commit, event);
	commit.status = status;
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
}

static void claim(uint32_t n)
{
	struct store_claim request;

	rig_claim(&world.rig, &request, "acme", test_id(n), "somebody-s0");
	ck_assert_int_eq(rig_run(&world.rig, &request.base), STORE_OK);
}

/* --- tests --- */

START_TEST(leads_at_once)
{
	struct roles_settings settings = settings_of("boot-a");
	struct roles_stats stats;

	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	ck_assert(leads_none(world.roles));
	roles_start(world.roles);
	wait_for(leads_both, world.roles);
	stats = stats_of(world.roles);
	ck_assert_uint_eq(stats.lease_count, 2);
	ck_assert_str_eq(stats.leases[0].role, "instance-sweeper");
	ck_assert_str_eq(stats.leases[1].role, "retention-sweeper");
	ck_assert_int_eq(stats.leases[0].term, 1);
	ck_assert_uint_eq(rows_of(STATEMENT_LEASE_LIST), 2);
	/* A stop gives them up. */
	roles_stop(world.roles);
	ck_assert_uint_eq(rows_of(STATEMENT_LEASE_LIST), 0);
	ck_assert(leads_none(world.roles));
	ck_assert(!logged("SUTRA.LEADERSHIP.LOST"));
}
END_TEST

START_TEST(never_started)
{
	struct roles_settings settings = settings_of("boot-a");

	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_free(&world.roles);
	ck_assert_ptr_null(world.roles);
}
END_TEST

START_TEST(one_leads_and_the_next_takes_over)
{
	struct roles_settings a = settings_of("boot-a"), b = settings_of("boot-b");

	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &a);
	world.other = roles_new(runtime_threads(), world.other_rig.store, NULL, &b);
	roles_start(world.roles);
	wait_for(leads_both, world.roles);
	roles_start(world.other);
	/* Longer than the ttl: it is renewed, and the other one asks in vain. */
	ck_assert(!test_wait(leads_both, world.other, 1300));
	ck_assert(leads_none(world.other));
	ck_assert(leads_both(world.roles));
	roles_stop(world.roles);
	wait_for(leads_both, world.other);
	ck_assert_int_eq(stats_of(world.other).leases[0].term, 2);
}
END_TEST

START_TEST(a_leader_without_database_stops_in_time)
{
	struct roles_settings a = settings_of("boot-a"), b = settings_of("boot-b");

	/* The tenth of the ttl that a leader keeps clear has to be long for a busy machine too. */
	a.lease_ttl_ms = b.lease_ttl_ms = 3000;
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &a);
	world.other = roles_new(runtime_threads(), world.other_rig.store, NULL, &b);
	roles_start(world.roles);
	wait_for(leads_both, world.roles);
	roles_start(world.other);
	store_stop(world.rig.store);
	/* At no moment do both lead. */
	while (!leads_both(world.other))
		ck_assert(!(stats_of(world.other).leases[0].held &&
			    stats_of(world.roles).leases[0].held));
	ck_assert(leads_none(world.roles));
	ck_assert(logged("SUTRA.LEADERSHIP.LOST"));
	ck_assert(logged("could not be renewed in time"));
}
END_TEST

static bool nothing_is_claimed(void *arg UNUSED)
{
	return count_instances(true) == 0;
}

START_TEST(silent_claims_are_cleared)
{
	struct roles_settings settings = settings_of("boot-a");

	/* More than one page. */
	for (uint32_t n = 1; n <= 1100; n++)
		spawn(n, INSTANCE_SUSPENDED);
	claim(1);
	claim(1050);
	ck_assert_uint_eq(count_instances(true), 2);
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_start(world.roles);
	wait_for(nothing_is_claimed, NULL);
	wait_logged("cleared 2 silent claims");
	roles_stop(world.roles);
	ck_assert_uint_eq(stats_of(world.roles).claims_swept, 2);
	ck_assert_uint_eq(count_instances(false), 1100);
}
END_TEST

START_TEST(fresh_claims_stay)
{
	struct roles_settings settings = settings_of("boot-a");

	settings.claim_timeout_ms = 60000;
	spawn(1, INSTANCE_COMPLETED);
	spawn(2, INSTANCE_SUSPENDED);
	claim(2);
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_start(world.roles);
	wait_logged("removed 1 instances and");
	/* Rounds of the sweep have passed by then or pass now. */
	ck_assert(!test_wait(nothing_is_claimed, NULL, 100));
}
END_TEST

static bool three_are_left(void *arg UNUSED)
{
	return count_instances(false) == 3;
}

static bool inbox_is_purged(void *arg)
{
	return stats_of(arg).inbox_purged >= 1203;
}

START_TEST(only_finished_instances_expire)
{
	struct roles_settings settings = settings_of("boot-a");

	for (uint32_t n = 1; n <= 1200; n++)
		spawn(n, n % 2 ? INSTANCE_COMPLETED : INSTANCE_TERMINATED);
	spawn(1300, INSTANCE_SUSPENDED);
	spawn(1301, INSTANCE_FAILED);
	spawn(1302, INSTANCE_SUSPENDED);
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_start(world.roles);
	wait_for(three_are_left, NULL);
	wait_for(inbox_is_purged, world.roles);
	roles_stop(world.roles);
	ck_assert_uint_eq(stats_of(world.roles).instances_purged, 1200);
	ck_assert_uint_eq(stats_of(world.roles).inbox_purged, 1203);
	ck_assert_uint_eq(count_instances(false), 3);
}
END_TEST

static bool letters_are_purged(void *arg)
{
	return stats_of(arg).dead_letters_purged >= 2;
}

/* Unless a retention is set they stay for ever. */
START_TEST(dead_letters_expire_where_they_may)
{
	struct roles_settings settings = settings_of("boot-a");
	struct store_commit commit;

	for (uint32_t n = 1; n <= 2; n++) {
		rig_letter(&world.rig, &commit, "a");
		commit_dead_letter(&world.rig, &commit, test_id(n), STR("old"));
		ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	}
	spawn(1, INSTANCE_COMPLETED);
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_start(world.roles);
	wait_logged("removed 1 instances and");
	roles_stop(world.roles);
	ck_assert_uint_eq(stats_of(world.roles).dead_letters_purged, 0);
	roles_free(&world.roles);
	settings.dead_letter_retention_ms = 1;
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_start(world.roles);
	wait_for(letters_are_purged, world.roles);
	roles_stop(world.roles);
	ck_assert_uint_eq(
		rig_query(&world.rig, ",a,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, INT64_C(10))->row_count, 0);
}
END_TEST

static void put_deployment(const char *id, const char *phase)
{
	rig_query(&world.rig, "", true, STATEMENT_DEPLOYMENT_PUT, id, "acme", "m", id, phase, NULL);
}

/* What the table says of it: its phase, and a star if it counts as pinned. */
static const char *deployment(const char *id)
{
	const struct rows *rows = rig_query(&world.rig, "", false, STATEMENT_DEPLOYMENT_LIST);

	for (uint32_t i = 0; i < rows->row_count; i++)
		if (str_equal(rows_at(rows, i, 0)->str, str_of(id)))
			return arena_printf(&world.rig.arena, "%.*s%s", STR_ARG(rows_at(rows, i, 4)->str),
					    rows_at(rows, i, 6)->b ? "*" : "");
	return "absent";
}

START_TEST(deployments_retire_when_nothing_needs_them)
{
	struct roles_settings settings = settings_of("boot-a");
	struct store_commit commit;

	settings.instance_retention_ms = 3600000;
	put_deployment("by-instance", "Draining");
	put_deployment("by-message", "Draining");
	put_deployment("by-failed", "Draining");
	put_deployment("unneeded", "Draining");
	put_deployment("serving", "Active");
	put_deployment("again", "Retired");
	put_deployment("broken", "Active");
	put_deployment("broken", "Failed");
	/* More than a page of each table, so that what counts stands behind others. */
	for (uint32_t n = 1; n <= 1100; n++) {
		rig_spawn(&world.rig, &commit, "acme", test_id(n));
		commit.status = INSTANCE_COMPLETED;
		commit.deployment = STR("unneeded");
		commit_send(&world.rig, &commit, "out", "x");
		commit.outbox[0].deployment = n == 1100 ? STR("by-message") : STR_NONE;
		ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	}
	rig_spawn(&world.rig, &commit, "acme", test_id(1200));
	commit.deployment = STR("by-instance");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	rig_spawn(&world.rig, &commit, "acme", test_id(1201));
	commit.deployment = STR("again");
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	rig_spawn(&world.rig, &commit, "acme", test_id(1202));
	commit.deployment = STR("by-failed");
	commit.status = INSTANCE_FAILED;
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_start(world.roles);
	wait_logged("deployment unneeded is Retired");
	wait_logged("deployment again is Draining");
	roles_stop(world.roles);
	ck_assert_str_eq(deployment("by-instance"), "Draining*");
	ck_assert_str_eq(deployment("by-message"), "Draining*");
	ck_assert_str_eq(deployment("by-failed"), "Draining*");
	ck_assert_str_eq(deployment("unneeded"), "Retired");
	ck_assert_str_eq(deployment("serving"), "Active*");
	ck_assert_str_eq(deployment("again"), "Draining*");
	ck_assert_str_eq(deployment("broken"), "Failed");
}
END_TEST

START_TEST(what_is_young_stays)
{
	struct roles_settings settings = settings_of("boot-a");

	settings.instance_retention_ms = settings.inbox_retention_ms = 3600000;
	settings.claim_timeout_ms = 1;
	spawn(1, INSTANCE_COMPLETED);
	spawn(2, INSTANCE_SUSPENDED);
	claim(2);
	world.roles = roles_new(runtime_threads(), world.rig.store, NULL, &settings);
	roles_start(world.roles);
	wait_logged("cleared 1 silent claims");
	roles_stop(world.roles);
	ck_assert_uint_eq(stats_of(world.roles).instances_purged, 0);
	ck_assert_uint_eq(stats_of(world.roles).inbox_purged, 0);
	ck_assert_uint_eq(count_instances(false), 2);
}
END_TEST

static Suite *roles_suite(void)
{
	Suite *suite = suite_create("roles");
	TCase *tcase = tcase_create("roles");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, leads_at_once, never_started, one_leads_and_the_next_takes_over,
		     a_leader_without_database_stops_in_time, silent_claims_are_cleared,
		     fresh_claims_stay, only_finished_instances_expire, dead_letters_expire_where_they_may,
		     deployments_retire_when_nothing_needs_them, what_is_young_stays);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(roles_suite)
