/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trouble between the store and PostgreSQL: connections cut anywhere, sessions ended or stopped in the middle of a commit, rows
 * held by strangers. Whatever happens, each commit is answered, and has its effect once (G1, G2).
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fault.h"
#include "tests/flow/cut_proxy.h"
#include "tests/flow/pg_fixture.h"
#include "tests/support/store_suite.h"

#define CUTS	 40
#define MANY	 256
#define WAITING	 "select count(*) from pg_stat_activity where usename = 'sutra' and wait_event_type = 'Lock'"
#define VICTIM	 "select min(pid) from pg_stat_activity where usename = 'sutra' and wait_event_type = 'Lock'"

static struct store_rig rig;
static PGconn *admin;
static struct cut_proxy *proxy;

static void open_rig(bool through_proxy, bool prepare, int64_t lock_timeout_ms)
{
	struct pg_settings settings = pg_fixture_settings();
	struct store_settings store = store_rig_settings();
	char *url = NULL;

	settings.step_connections = 1;
	settings.prepare = prepare;
	store.lock_timeout_ms = lock_timeout_ms;
	if (through_proxy) {
		proxy = cut_proxy_new(pg_fixture_port());
		url = pg_fixture_url(cut_proxy_port(proxy));
		settings.url = url;
	}
	store_rig_init(&rig, pg_executor_new(&settings), &store);
	free(url);
}

static void setup(void)
{
	pg_fixture_reset();
	admin = pg_admin_open();
}

static void teardown(void)
{
	store_rig_done(&rig);
	cut_proxy_free(&proxy);
	PQfinish(admin);
}

/* A spawn with one of everything. */
static void make_spawn(struct store_commit *commit, uint32_t n)
{
	char *name = arena_printf(&rig.arena, "e%u", n);

	rig_spawn(&rig, commit, "a", test_id(n));
	commit_inbox(&rig, commit, name);
	commit_wait(&rig, commit, 1, name, false);
	commit_alias(&rig, commit, name, true);
	commit_send(&rig, commit, "out", "body");
}

static void check_once(uint32_t count)
{
	static const char *const tables[] = {"instance", "inbox", "wait", "alias", "outbox_entry"};

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		long long rows = pg_number(admin, "select count(*) from sutra.%s", tables[i]);

		ck_assert_msg(rows == count, "%lld rows in %s, %u commits", rows, tables[i], count);
	}
}

static bool is_up(void *arg)
{
	return store_is_up(((struct store_rig *)arg)->store, NULL);
}

/* As the flow does: what was not available is tried again. An answer that nothing was written must be true, else that fails. */
static enum store_outcome run(struct store_request *request)
{
	while (rig_run(&rig, request) == STORE_UNAVAILABLE)
		ck_assert_msg(test_wait(is_up, &rig, 20000), "the store does not come up again");
	return request->outcome;
}

static bool is_cut(void *arg)
{
	return cut_proxy_cuts(proxy) > *(int *)arg;
}

/* Commits while the connection is cut at positions spread over what the first commit took. */
static void cut_everywhere(enum cut_direction direction, bool prepare)
{
	struct store_commit commit;
	int64_t before, length;
	uint32_t n = 0;

	open_rig(true, prepare, 100);
	before = cut_proxy_bytes(proxy, direction);
	make_spawn(&commit, n++);
	ck_assert_int_eq(run(&commit.base), STORE_OK);
	length = cut_proxy_bytes(proxy, direction) - before;
	ck_assert_int_gt(length, CUTS);
	for (int i = 0; i < CUTS; i++) {
		int cuts = cut_proxy_cuts(proxy);

		cut_proxy_arm(proxy, direction, length * i / CUTS);
		make_spawn(&commit, n++);
		/* Less is sent once statements are prepared: then there may be nothing to cut. */
		ck_assert_msg(run(&commit.base) == STORE_OK, "cut after %d of %d bytes: %d, %s", (int)(length * i / CUTS),
			      (int)length, commit.base.outcome, commit.base.error.text);
		if (!test_wait(is_cut, &cuts, 0))
			cut_proxy_arm(proxy, direction, -1);
	}
	check_once(n);
	/* An answer that is cut leaves doubt wherever the id of the transaction was through; a request mostly does not. */
	if (direction == CUT_ANSWERS)
		ck_assert_uint_ge(rig_stats(&rig).doubts, CUTS / 4);
}

START_TEST(requests_cut_anywhere)
{
	cut_everywhere(CUT_REQUESTS, _i);
}
END_TEST

START_TEST(answers_cut_anywhere)
{
	cut_everywhere(CUT_ANSWERS, _i);
}
END_TEST

START_TEST(resume_with_its_answer_cut)
{
	struct store_claim claim;
	struct store_commit commit;

	open_rig(true, true, 100);
	make_spawn(&commit, 1);
	ck_assert_int_eq(run(&commit.base), STORE_OK);
	for (int64_t version = 1; version <= 8; version++) {
		/* A claim may be lost with its answer; the next try by the same owner is free to have it. */
		for (int tries = 0; tries < 2; tries++) {
			rig_claim(&rig, &claim, "a", test_id(1), "o");
			ck_assert_int_eq(run(&claim.base), STORE_OK);
		}
		ck_assert_int_eq(claim.version, version);
		cut_proxy_arm(proxy, CUT_ANSWERS, 40 * version);
		rig_resume(&rig, &commit, "a", test_id(1), "o", version);
		commit_send(&rig, &commit, "out", "body");
		ck_assert_int_eq(run(&commit.base), STORE_OK);
		cut_proxy_arm(proxy, CUT_ANSWERS, -1);
	}
	ck_assert_int_eq(pg_number(admin, "select version from sutra.instance"), 9);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.outbox_entry"), 9);
}
END_TEST

/* A stranger that has inserted the event, uncommitted: a commit of the same event waits for it. */
static PGconn *hold_event(const char *event)
{
	struct id key = store_inbox_key(STR("a"), STR("orders"), str_of(event));
	char text[ID_TEXT_SIZE];
	PGconn *holder = pg_admin_open();

	pg_exec(holder, "begin");
	pg_exec(holder, "insert into sutra.inbox (key, created_at, tenant) values ('%s', now(), 'a')", id_format(key, text));
	return holder;
}

START_TEST(session_ended_inside_a_commit)
{
	struct store_commit commit;
	PGconn *holder;

	open_rig(false, _i, 30000);
	holder = hold_event("e1");
	make_spawn(&commit, 1);
	rig_send(&rig, &commit.base);
	pg_wait_number(admin, 1, WAITING);
	pg_exec(admin, "select pg_terminate_backend((" VICTIM "))");
	pg_exec(holder, "rollback");
	rig_wait(&rig);
	ck_assert_int_eq(commit.base.outcome, STORE_OK);
	check_once(1);
	ck_assert_uint_ge(rig_stats(&rig).doubts, 1);
	PQfinish(holder);
}
END_TEST

/* The cut is noticed while the session still waits inside the transaction: it must be ended before the commit runs again. */
START_TEST(session_left_waiting_inside_a_commit)
{
	struct store_commit commit;
	PGconn *holder;

	open_rig(true, _i, 30000);
	holder = hold_event("e1");
	make_spawn(&commit, 1);
	rig_send(&rig, &commit.base);
	pg_wait_number(admin, 1, WAITING);
	cut_proxy_cut(proxy);
	pg_wait_number(admin, 1, "select count(*) from pg_stat_activity where usename = 'sutra' and wait_event_type = 'Lock' "
				 "and query like '%insert into sutra.inbox%'");
	pg_exec(holder, "rollback");
	rig_wait(&rig);
	ck_assert_int_eq(commit.base.outcome, STORE_OK);
	check_once(1);
	PQfinish(holder);
}
END_TEST

static bool is_answered(void *arg)
{
	struct store_rig *of = arg;
	bool answered;

	pthread_mutex_lock(&of->answered.mutex);
	answered = of->answered.count >= of->sent;
	pthread_mutex_unlock(&of->answered.mutex);
	return answered;
}

/* A session that is stopped does not end when it is told to: nothing may be answered before it has gone. */
START_TEST(session_stopped_inside_a_commit)
{
	struct store_commit commit;
	PGconn *holder;
	pid_t victim;

	open_rig(true, _i, 30000);
	holder = hold_event("e1");
	make_spawn(&commit, 1);
	rig_send(&rig, &commit.base);
	pg_wait_number(admin, 1, WAITING);
	victim = (pid_t)pg_number(admin, VICTIM);
	ck_assert_int_gt(victim, 1);
	if (kill(victim, SIGSTOP) != 0) {
		/* The server belongs to somebody else. */
		pg_exec(holder, "rollback");
		rig_wait(&rig);
		PQfinish(holder);
		return;
	}
	cut_proxy_cut(proxy);
	pg_exec(holder, "rollback");
	ck_assert_msg(!test_wait(is_answered, &rig, 500), "answered while the session could still commit");
	kill(victim, SIGCONT);
	rig_wait(&rig);
	ck_assert_int_eq(commit.base.outcome, STORE_OK);
	check_once(1);
	PQfinish(holder);
}
END_TEST

START_TEST(one_locked_row_stops_nobody_else)
{
	static struct store_commit commits[MANY];
	static struct store_claim claims[MANY];
	struct store_request *all[MANY];
	PGconn *holder = pg_admin_open();
	char text[ID_TEXT_SIZE];

	open_rig(false, true, 100);
	for (uint32_t i = 0; i < MANY; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(i));
		all[i] = &commits[i].base;
	}
	rig_burst(&rig, all, MANY);
	rig_wait(&rig);
	for (uint32_t i = 0; i < MANY; i++) {
		rig_claim(&rig, &claims[i], "a", test_id(i), "o");
		all[i] = &claims[i].base;
	}
	rig_burst(&rig, all, MANY);
	rig_wait(&rig);
	pg_exec(holder, "begin");
	pg_exec(holder, "select from sutra.instance where id = '%s' for update", id_format(test_id(77), text));
	for (uint32_t i = 0; i < MANY; i++) {
		rig_resume(&rig, &commits[i], "a", test_id(i), "o", 1);
		all[i] = &commits[i].base;
	}
	rig_burst(&rig, all, MANY);
	ck_assert(test_latch_wait(&rig.answered, rig.sent - 1, 5000));
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.instance where version = 2"), MANY - 1);
	pg_exec(holder, "rollback");
	rig_wait(&rig);
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert_int_eq(commits[i].base.outcome, STORE_OK);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.instance where version = 2"), MANY);
	PQfinish(holder);
}
END_TEST

/* As one_locked_row_stops_nobody_else, of kept messages; and what is gone when the lock is, is lost. */
START_TEST(one_locked_message_stops_nobody_else)
{
	static struct store_commit commits[MANY];
	struct store_request *all[MANY];
	struct store_commit keep;
	PGconn *holder = pg_admin_open();
	char text[ID_TEXT_SIZE];

	open_rig(false, true, 100);
	rig_letter(&rig, &keep, "a");
	for (uint32_t i = 0; i < MANY; i++)
		commit_keep(&rig, &keep, test_id(1000 + i), test_id(500), "body");
	ck_assert_int_eq(rig_run(&rig, &keep.base), STORE_OK);
	pg_exec(holder, "begin");
	pg_exec(holder, _i ? "delete from sutra.inbox_message where id = '%s'" : "select from sutra.inbox_message where id = '%s' for update",
		id_format(test_id(1077), text));
	for (uint32_t i = 0; i < MANY; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(i));
		commit_keep_end(&commits[i], test_id(1000 + i), "boot-1");
		all[i] = &commits[i].base;
	}
	rig_burst(&rig, all, MANY);
	ck_assert(test_latch_wait(&rig.answered, rig.sent - 1, 5000));
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.instance"), MANY - 1);
	pg_exec(holder, _i ? "commit" : "rollback");
	rig_wait(&rig);
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert_int_eq(commits[i].base.outcome, _i && i == 77 ? STORE_KEPT_LOST : STORE_OK);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.inbox_message"), 0);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.instance"), MANY - _i);
	PQfinish(holder);
}
END_TEST

/* A message is kept and then has its effect, each with its answer cut here and there: kept once, one effect, none left. */
START_TEST(kept_message_with_answers_cut)
{
	struct store_commit commit;

	open_rig(true, true, 100);
	for (uint32_t n = 1; n <= 12; n++) {
		for (int step = 0; step < 2; step++) {
			cut_proxy_arm(proxy, CUT_ANSWERS, 25 * n);
			if (step == 0) {
				rig_letter(&rig, &commit, "a");
				commit_keep(&rig, &commit, test_id(1000 + n), test_id(500), "body");
			} else if (n % 2) {
				make_spawn(&commit, n);
				commit_keep_end(&commit, test_id(1000 + n), "boot-1");
			} else {
				rig_letter(&rig, &commit, "a");
				commit_dead_letter(&rig, &commit, test_id(n), STR("why"));
				commit_keep_end(&commit, test_id(1000 + n), "boot-1");
			}
			ck_assert_int_eq(run(&commit.base), STORE_OK);
			cut_proxy_arm(proxy, CUT_ANSWERS, -1);
			ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.inbox_message"), 1 - step);
		}
	}
	check_once(6);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.dead_letter"), 6);
	ck_assert_uint_ge(rig_stats(&rig).doubts, 1);
}
END_TEST

/* --- caps and pools --- */

static void make_take(struct store_commit *commit, uint32_t n, const char *pool)
{
	make_spawn(commit, n);
	commit_session(&rig, commit, "", "calls", false, true, 0);
	commit_session(&rig, commit, "in", NULL, true, false, 0);
	commit_slot(&rig, commit, pool, "in");
	commit->cap.channel_limit = 1000;
}

static void put_pools(void)
{
	rig_query(&rig, ",a,", true, STATEMENT_POOL_PUT, "lines", INT64_C(1000), INT64_C(0), INT64_C(0), NULL);
	rig_query(&rig, ",a,", true, STATEMENT_POOL_PUT, "other", INT64_C(1000), INT64_C(0), INT64_C(0), NULL);
}

/* Taken once, however often it was run. */
START_TEST(take_with_its_answer_cut)
{
	struct store_commit commit;

	open_rig(true, _i, 100);
	put_pools();
	for (uint32_t n = 1; n <= 16; n++) {
		cut_proxy_arm(proxy, CUT_ANSWERS, 30 * n);
		make_take(&commit, n, "lines");
		ck_assert_int_eq(run(&commit.base), STORE_OK);
		ck_assert(!commit.unchecked);
		cut_proxy_arm(proxy, CUT_ANSWERS, -1);
		ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.capacity_slot"), n);
	}
	check_once(16);
	ck_assert_uint_ge(rig_stats(&rig).doubts, 1);
}
END_TEST

/* What the takes need is not there: admitted without, and said so. Others do not notice. */
START_TEST(pools_that_cannot_be_asked)
{
	static const struct {
		const char *break_it, *mend_it;
	} ways[] = {
		{"alter table sutra.capacity_slot rename to gone", "alter table sutra.gone rename to capacity_slot"},
		{"revoke all on sutra.capacity_slot, sutra.capacity_pool from sutra",
		 "grant select, insert, update, delete on sutra.capacity_slot, sutra.capacity_pool to sutra"},
		{"alter table sutra.capacity_slot add constraint none check (false) not valid",
		 "alter table sutra.capacity_slot drop constraint none"},
	};
	struct store_commit commits[8];
	struct store_request *all[8];

	open_rig(false, true, 100);
	put_pools();
	pg_exec(admin, "%s", ways[_i].break_it);
	for (uint32_t n = 0; n < 8; n++) {
		if (n % 2)
			make_take(&commits[n], n, "lines");
		else
			make_spawn(&commits[n], n);
		all[n] = &commits[n].base;
	}
	rig_burst(&rig, all, 8);
	rig_wait(&rig);
	pg_exec(admin, "%s", ways[_i].mend_it);
	for (uint32_t n = 0; n < 8; n++) {
		ck_assert_msg(commits[n].base.outcome == STORE_OK, "%s", commits[n].base.error.text);
		ck_assert_int_eq(commits[n].unchecked, n % 2);
	}
	check_once(8);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.capacity_slot"), 0);
	make_take(&commits[0], 9, "lines");
	ck_assert_int_eq(run(&commits[0].base), STORE_OK);
	ck_assert(!commits[0].unchecked);
}
END_TEST

/* A pool, or a cap, that somebody holds stops neither other pools nor commits that take nothing, and in the end not even its own. */
START_TEST(locked_pool_stops_nobody_else)
{
	struct store_commit commits[3], plain;
	struct store_request *all[] = {&commits[0].base, &commits[1].base, &commits[2].base, &plain.base};
	PGconn *holder = pg_admin_open();

	open_rig(false, true, 100);
	put_pools();
	pg_exec(holder, "begin; select from sutra.capacity_pool where name = 'lines' for update");
	for (uint32_t n = 0; n < 3; n++)
		make_take(&commits[n], n, n == 1 ? "lines" : "other");
	make_spawn(&plain, 3);
	rig_burst(&rig, all, 4);
	ck_assert(test_latch_wait(&rig.answered, rig.sent - 1, 5000));
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.instance"), 3);
	/* Others, while one waits. */
	make_take(&commits[0], 4, "other");
	rig_send(&rig, &commits[0].base);
	ck_assert(test_latch_wait(&rig.answered, rig.sent - 1, 5000));
	if (_i)
		pg_exec(holder, "rollback");
	rig_wait(&rig);
	ck_assert_int_eq(commits[1].base.outcome, STORE_OK);
	ck_assert_int_eq(commits[1].unchecked, !_i);
	check_once(5);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.capacity_slot"), 3 + _i);
	PQfinish(holder);
}
END_TEST

/* Behind the Sync and before its answer, by the fault point that stands there. */
START_TEST(commit_cut_by_its_fault_point)
{
	struct store_commit commit;

	open_rig(false, _i, 100);
	for (uint32_t n = 0; n < 5; n++) {
		ck_assert(fault_configure("commit_sent=fail@1"));
		make_spawn(&commit, n);
		ck_assert_int_eq(run(&commit.base), STORE_OK);
		ck_assert_uint_eq(rig_stats(&rig).doubts, n + 1);
	}
	check_once(5);
}
END_TEST

START_TEST(database_away_and_back)
{
	struct store_commit commit;

	open_rig(true, true, 100);
	for (uint32_t n = 0; n < 5; n++) {
		cut_proxy_cut(proxy);
		make_spawn(&commit, n);
		ck_assert_int_eq(run(&commit.base), STORE_OK);
	}
	check_once(5);
}
END_TEST

static Suite *trouble_suite(void)
{
	Suite *suite = suite_create("trouble with PostgreSQL");
	TCase *tcase = tcase_create("trouble");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	/* With statements prepared and not. */
	tcase_add_loop_test(tcase, requests_cut_anywhere, 0, 2);
	tcase_add_loop_test(tcase, answers_cut_anywhere, 0, 2);
	tcase_add_loop_test(tcase, session_ended_inside_a_commit, 0, 2);
	tcase_add_loop_test(tcase, session_left_waiting_inside_a_commit, 0, 2);
	tcase_add_loop_test(tcase, session_stopped_inside_a_commit, 0, 2);
	tcase_add_loop_test(tcase, commit_cut_by_its_fault_point, 0, 2);
	tcase_add_loop_test(tcase, one_locked_message_stops_nobody_else, 0, 2);
	tcase_add_loop_test(tcase, take_with_its_answer_cut, 0, 2);
	tcase_add_loop_test(tcase, pools_that_cannot_be_asked, 0, 3);
	tcase_add_loop_test(tcase, locked_pool_stops_nobody_else, 0, 2);
	TEST_ADD_ALL(tcase, resume_with_its_answer_cut, one_locked_row_stops_nobody_else, kept_message_with_answers_cut,
		     database_away_and_back);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(int argc, char **argv)
{
	return pg_fixture_main(argc, argv, trouble_suite);
}
