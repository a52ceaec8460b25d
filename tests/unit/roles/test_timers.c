/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timer leader over real lanes: what is due fires once, whatever is refused, full, stale, or handed from one leader to the next;
 * start timers fire as often as they say.
 */
#include <stdio.h>

#include "base/time.h"
#include "roles/roles.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 20000
#define TIMERS	    "tests/unit/roles/timers"
#define PAST	    INT64_C(1600000000000000)
#define MANY	    300
/* Of the start timer of the package: those of a cycle that is late fall into one. */
#define TICKS 1

static struct flow_fixture *f;
static struct roles *roles;

static void lead(const char *holder)
{
	const struct roles_settings settings = {
		.holder = holder,
		.lease_ttl_ms = 2000,
		.lease_poll_ms = 20,
		.claim_timeout_ms = 60000,
		.sweep_interval_ms = 60000,
		.instance_retention_ms = 3600000,
		.retention_interval_ms = 3600000,
		.inbox_retention_ms = 3600000,
		.timer_tick_ms = 10,
		.backoff_min_ms = 1,
		.backoff_max_ms = 8,
	};

	roles = roles_new(f->runtime, f->store, f->lanes, &settings);
	roles_view(roles, f->view);
	roles_start(roles);
}

static void end_lead(void)
{
	ck_assert(roles_stop(roles));
	ck_assert(roles_are_idle(roles));
	roles_free(&roles);
}

static void begin(uint32_t lanes, uint32_t capacity)
{
	const struct flow_fixture_settings settings = {.package = TIMERS, .lanes = lanes, .queue_capacity = capacity};

	f = flow_fixture_new(&settings);
}

static void end(void)
{
	if (roles)
		end_lead();
	flow_fixture_free(&f);
}

static void ask_for(const char *channel, const char *name, const char *after)
{
	char body[100];

	snprintf(body, sizeof(body), "{\"name\":\"%s\",\"after\":\"%s\"}", name, after);
	flow_fixture_send(f, channel, name, name, body);
}

static void given_waits(uint32_t count, const char *after)
{
	char name[16];

	for (uint32_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		ask_for("waits", name, after);
	}
	ck_assert(flow_fixture_wait_settled(f, count));
}

/* So many publications of this body. */
static uint32_t published(const char *body)
{
	char quoted[64];
	uint32_t count = 0;

	snprintf(quoted, sizeof(quoted), "\"%s\"", body);
	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < f->published_count; i++)
		count += strcmp(f->published[i].body, quoted) == 0;
	pthread_mutex_unlock(&f->lock);
	return count;
}

static void check_waited_once(uint32_t count)
{
	char body[32];

	for (uint32_t i = 0; i < count; i++) {
		snprintf(body, sizeof(body), "waited n%u", i);
		ck_assert_msg(published(body) == 1, "%s: %u times", body, published(body));
	}
}

static struct rows timers(struct arena *arena)
{
	struct column params[4];

	params[0] = column_scalar_int(arena, 0);
	params[0].type = COLUMN_TIME;
	params[1] = column_scalar_id(arena, ID_NONE);
	params[2] = column_scalar_int(arena, 0);
	params[3] = column_scalar_int(arena, FLOW_FIXTURE_MOST);
	return flow_fixture_query(f, arena, STATEMENT_TIMER_LIST, params, false);
}

static uint32_t count_timers(void)
{
	struct arena arena;
	uint32_t count;

	arena_init(&arena);
	count = timers(&arena).row_count;
	arena_done(&arena);
	return count;
}

static bool no_timers(void *arg UNUSED)
{
	return count_timers() == 0;
}

static struct roles_stats stats(void)
{
	struct roles_stats stats;

	roles_stats_read(roles, &stats);
	return stats;
}

static bool was_refused_often(void *arg UNUSED)
{
	return stats().timers.refused >= 20;
}

static bool has_ticked(void *arg)
{
	return published("tick") >= *(uint32_t *)arg;
}

static void wait_for(bool (*condition)(void *arg), void *arg)
{
	ck_assert_msg(test_wait(condition, arg, DEADLINE_MS), "it does not come to that");
}

START_TEST(due_timers_fire_once)
{
	/* Many lanes; one, whose mailbox is soon full; one that takes everything. */
	static const uint32_t lanes[] = {16, 1, 1}, capacity[] = {0, 3, 0};
	uint32_t ticks = TICKS;

	begin(lanes[_i], capacity[_i]);
	given_waits(MANY, "PT0.1S");
	lead("boot-1");
	ck_assert(flow_fixture_wait_published(f, MANY + TICKS));
	wait_for(no_timers, NULL);
	wait_for(has_ticked, &ticks);
	check_waited_once(MANY);
	ck_assert_uint_eq(stats().timers.committed, MANY + TICKS);
	ck_assert_uint_eq(stats().timers.lateness->count, MANY + TICKS);
	ck_assert_uint_eq(f->published_count, MANY + TICKS);
	ck_assert_uint_eq(flow_fixture_count_instances(f, INSTANCE_COMPLETED), MANY + TICKS);
	end();
}
END_TEST

START_TEST(timer_is_set_while_somebody_leads)
{
	begin(4, 0);
	lead("boot-1");
	/* At once, soon, and at a time that has passed. */
	ask_for("waits", "n0", "PT0S");
	ask_for("waits", "n1", "PT0.02S");
	ask_for("waits", "n2", "PT0.2S");
	ask_for("asks", "n3", "");
	ask_for("asks", "n4", "");
	ck_assert(flow_fixture_wait_settled(f, 5));
	ask_for("answers", "n4", "");
	ck_assert(flow_fixture_wait_settled(f, 6));
	ck_assert(flow_fixture_wait_published(f, TICKS + 4));
	wait_for(no_timers, NULL);
	check_waited_once(3);
	ck_assert_uint_eq(published("late n3"), 1);
	ck_assert_uint_eq(published("late n4"), 0);
	end();
}
END_TEST

START_TEST(refused_timer_is_tried_again)
{
	struct id instance;
	int64_t version;

	begin(4, 0);
	given_waits(1, "PT0S");
	instance = flow_fixture_only_instance(f, &version);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, false), STORE_OK);
	lead("boot-1");
	wait_for(was_refused_often, NULL);
	ck_assert_uint_eq(count_timers(), 1);
	ck_assert_int_eq(flow_fixture_other_claims(f, instance, true), STORE_OK);
	wait_for(no_timers, NULL);
	ck_assert(flow_fixture_wait_published(f, TICKS + 1));
	check_waited_once(1);
	end();
}
END_TEST

/* Rows that no token stands for: of instances that are FAILED, or over. */
START_TEST(stale_rows_are_removed)
{
	struct store_timer_row row = {.token = 1, .due_us = PAST, .node = STR("While")};
	struct store_commit commit = {
		.commit = COMMIT_SPAWN,
		.version = 1,
		.process = STR("Wait"),
		.started_us = PAST,
		.snapshot = STR("\x80"),
		.timers_added = &row,
		.timers_added_count = 1,
	};

	begin(4, 0);
	commit.deployment = f->deployment->id;
	for (int i = 0; i < 10; i++) {
		commit.instance = id_digest_of(str_make((const char *)&i, sizeof(i)));
		commit.status = i % 2 ? INSTANCE_FAILED : INSTANCE_COMPLETED;
		ck_assert_int_eq(flow_fixture_commit(f, &commit), STORE_OK);
	}
	ck_assert_uint_eq(count_timers(), 10);
	lead("boot-1");
	wait_for(no_timers, NULL);
	ck_assert_uint_eq(stats().timers.stale, 5);
	ck_assert(flow_fixture_wait_published(f, TICKS));
	end();
}
END_TEST

/* A snapshot that nobody can read: it is tried once, and stays for people to look at. */
START_TEST(rejected_timer_stays)
{
	struct store_timer_row row = {.token = 1, .due_us = PAST, .node = STR("While")};
	struct store_commit commit = {
		.commit = COMMIT_SPAWN,
		.version = 1,
		.status = INSTANCE_SUSPENDED,
		.process = STR("Wait"),
		.instance = id_digest_of(STR("x")),
		.started_us = PAST,
		.snapshot = STR("\x80"),
		.timers_added = &row,
		.timers_added_count = 1,
	};

	begin(4, 0);
	commit.deployment = f->deployment->id;
	ck_assert_int_eq(flow_fixture_commit(f, &commit), STORE_OK);
	given_waits(3, "PT0.05S");
	lead("boot-1");
	ck_assert(flow_fixture_wait_published(f, TICKS + 3));
	ck_assert_uint_eq(stats().timers.rejected, 1);
	ck_assert_uint_eq(count_timers(), 1);
	end();
}
END_TEST

START_TEST(leaders_follow_each_other)
{
	char holder[16];

	begin(8, 0);
	given_waits(MANY, "PT0.05S");
	for (int i = 0; published("tick") < TICKS || count_timers(); i++) {
		ck_assert_int_lt(i, 1000);
		snprintf(holder, sizeof(holder), "boot-%d", i);
		lead(holder);
		end_lead();
		if (i >= 10) {
			lead("boot-x");
			wait_for(no_timers, NULL);
			ck_assert(flow_fixture_wait_published(f, MANY + TICKS));
			end_lead();
		}
	}
	check_waited_once(MANY);
	ck_assert_uint_eq(published("tick"), TICKS);
	end();
}
END_TEST

/* What was fired stays fired under another view; another deployment than the row's is left alone. */
START_TEST(start_timers_go_on_over_views)
{
	struct flow_fixture_settings settings = {.package = TIMERS, .lanes = 4};
	uint32_t ticks = TICKS;

	f = flow_fixture_new(&settings);
	lead("boot-1");
	wait_for(has_ticked, &ticks);
	end_lead();
	flow_fixture_reload(f);
	lead("boot-2");
	given_waits(1, "PT0.3S");
	ck_assert(flow_fixture_wait_published(f, TICKS + 1));
	ck_assert_uint_eq(published("tick"), TICKS);
	roles_view(roles, f->view);
	ask_for("waits", "n1", "PT0.3S");
	ck_assert(flow_fixture_wait_published(f, TICKS + 2));
	ck_assert_uint_eq(published("tick"), TICKS);
	end();
}
END_TEST

static Suite *timers_suite(void)
{
	Suite *suite = suite_create("timer leader");
	TCase *fires = tcase_create("fires"), *starts = tcase_create("starts");

	tcase_add_loop_test(fires, due_timers_fire_once, 0, 3);
	TEST_ADD_ALL(fires, timer_is_set_while_somebody_leads, refused_timer_is_tried_again, stale_rows_are_removed,
		     rejected_timer_stays, leaders_follow_each_other);
	TEST_ADD_ALL(starts, start_timers_go_on_over_views);
	tcase_set_timeout(fires, 60);
	tcase_set_timeout(starts, 60);
	suite_add_tcase(suite, fires);
	suite_add_tcase(suite, starts);
	return suite;
}

TEST_MAIN(timers_suite)
