/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions, caps and pools on PostgreSQL, by several replicas at once and with backends that are killed under them. What must hold holds at
 * every moment, so it is asked all the time, from outside, in SQL of the test's own:
 *
 *   no pool and no cap is over-subscribed (G10)
 *   each take obeys the reserve rule, as a trigger sees it under the lock of the pool
 *   no slot is held by what has ended, and none by an instance that is over
 *   nothing waits that needs no slot, and what lives and has no slot waits
 *   the pump lets nothing younger go while an older row could have the slot
 *
 * Then bugs are planted into the segments, each of which must be found.
 */
#include <stdlib.h>

#include "base/time.h"
#include "tests/flow/pools_random.h"

#define RUN_MS	  8000
#define BUG_MS	  20000
#define KILL_MS	  120
#define MARGIN_MS 1000 /* no transaction takes as long: what was created so long ago is there to be seen */

/* --- what must hold --- */

struct rule {
	const char *what;
	const char *sql; /* counts violations */
};

static const struct rule rules[] = {
	{"a pool is over-subscribed",
	 "select count(*) from (select p.slots, count(*) as held from sutra.capacity_pool p, sutra.capacity_slot c where c.pool = p.name "
	 "group by p.name having count(*) > p.slots) x"},
	{"more count than the cap of a channel allows",
	 "select count(*) from (select from sutra.channel_session where counts group by tenant, channel having count(*) > 11) x"},
	{"more count than the cap of a tenant allows",
	 "select count(*) from (select from sutra.channel_session where counts group by tenant having count(*) > 12) x"},
	{"a slot is held by what is over",
	 "select count(*) from sutra.capacity_slot c left join sutra.instance i on i.id = c.instance_id "
	 "left join sutra.channel_session o on o.instance_id = c.instance_id and o.call_key = '' "
	 "left join sutra.channel_session k on k.instance_id = c.instance_id and k.call_key = c.call_key "
	 "where i.status is distinct from 'SUSPENDED' or o.instance_id is null or o.ended_at is not null or k.instance_id is null "
	 "or k.ended_at is not null"},
	{"a row waits that needs no slot",
	 "select count(*) from sutra.outbox_entry e join sutra.channel_session o on o.instance_id = e.instance_id and o.call_key = '' "
	 "join sutra.channel_session k on k.instance_id = e.instance_id and k.call_key = e.call_key where e.pool is not null "
	 "and (o.ended_at is not null or k.ended_at is not null or exists (select from sutra.capacity_slot c "
	 "where c.instance_id = e.instance_id and c.call_key = e.call_key and c.pool = e.pool))"},
	{"a row goes without a slot although its call lives",
	 "select count(*) from sutra.outbox_entry e join sutra.channel_session o on o.instance_id = e.instance_id and o.call_key = '' "
	 "join sutra.channel_session k on k.instance_id = e.instance_id and k.call_key = e.call_key where e.pool is null "
	 "and o.ended_at is null and k.ended_at is null and not exists (select from sutra.capacity_slot c "
	 "where c.instance_id = e.instance_id and c.call_key = e.call_key)"},
	{"a session counts that has ended",
	 "select count(*) from sutra.channel_session where counts and (ended_at is not null or call_key <> '')"},
	{"a take was against a rule", "select count(*) from public.violation"},
};

/* Takes and grants, seen from inside their transactions: the pool is locked, so what is counted stands. */
static const char watch[] =
	"create table if not exists public.violation (what text); truncate public.violation; "
	"create or replace function public.free_slots(name text, inbound boolean) returns bigint language sql volatile as $$ "
	"select p.slots - count(c.pool) - greatest(0, case when inbound then p.reserve_outbound "
	"- count(c.pool) filter (where c.direction = 'OUTBOUND') else p.reserve_inbound - count(c.pool) filter "
	"(where c.direction = 'INBOUND') end) from sutra.capacity_pool p left join sutra.capacity_slot c on c.pool = p.name "
	"where p.name = $1 group by p.name, p.slots, p.reserve_inbound, p.reserve_outbound $$; "
	"create or replace function public.watch_take() returns trigger language plpgsql security definer as $$ begin "
	"if public.free_slots(new.pool, new.direction = 'INBOUND') < 0 then "
	"insert into public.violation values ('a slot was taken against the reserve of ' || new.pool); end if; "
	"perform pg_sleep(0.003) where current_setting('sutra_test.slow', true) = 'on'; return null; end $$; "
	"create or replace function public.watch_grant() returns trigger language plpgsql security definer as $$ begin "
	"if (select count(*) from sutra.outbox_entry o join sutra.channel_session s on s.instance_id = o.instance_id and s.call_key = '' "
	"where o.pool = old.pool and o.claim_owner is null and not o.poisoned and not o.behind and s.ended_at is null "
	"and (o.created_at, o.id) < (old.created_at, old.id) and o.created_at < now() - $m$ interval $m$ "
	"and not exists (select from sutra.outbox_entry f where f.instance_id = o.instance_id and f.channel = o.channel "
	"and (f.version, f.ordinal) < (o.version, o.ordinal) and not f.poisoned)) > greatest(0, public.free_slots(old.pool, false)) then "
	"insert into public.violation values ('a younger row was let go before an older one of ' || old.pool); end if; return null; end $$; "
	"drop trigger if exists watch_take on sutra.capacity_slot; "
	"create trigger watch_take after insert on sutra.capacity_slot for each row execute function public.watch_take(); "
	"drop trigger if exists watch_grant on sutra.outbox_entry; "
	"create trigger watch_grant after update on sutra.outbox_entry for each row "
	"when (old.pool is not null and new.pool is null and new.claim_owner is not null) execute function public.watch_grant(); ";

/* The function, with the margin in it. */
static void watch_begin(PGconn *admin)
{
	char *sql = strdup(watch), *at = strstr(sql, "$m$ interval $m$");
	struct buf whole = BUF_INIT;
	PGresult *result;

	*at = '\0';
	buf_printf(&whole, "%sinterval '%d ms'%s", sql, MARGIN_MS, at + strlen("$m$ interval $m$"));
	result = PQexec(admin, whole.data);
	ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(admin));
	PQclear(result);
	buf_done(&whole);
	free(sql);
}

/* The first rule that does not hold, or NULL. Each is one statement and so sees one moment. */
static const char *rule_broken(PGconn *admin)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if (pg_number(admin, "%s", rules[i].sql) != 0)
			return rules[i].what;
	return NULL;
}

/* --- a run --- */

struct run {
	struct pools_actor actors[ACTORS];
	pthread_t threads[ACTORS];
	bool stop; /* atomic */
};

static void run_begin(struct run *run, enum pools_bug bug, uint64_t seed)
{
	struct pg_settings settings = pg_fixture_settings();

	for (uint32_t i = 0; i < ACTORS; i++) {
		struct pools_actor *actor = &run->actors[i];

		*actor = (struct pools_actor){.index = i + 1, .random = seed * ACTORS + i + 1, .all = run->actors, .stop = &run->stop};
		settings.step_connections = 2;
		store_rig_init(&actor->rig, pools_bug_new(pg_executor_new(&settings), bug), NULL);
	}
	for (uint32_t i = 0; i < POOLS; i++)
		rig_query(&run->actors[0].rig, ",a,", true, STATEMENT_POOL_PUT, pools_names[i], (int64_t)(3 + 2 * i), (int64_t)i, INT64_C(1), NULL);
	for (uint32_t i = 0; i < ACTORS; i++)
		ck_assert_int_eq(pthread_create(&run->threads[i], NULL, pools_actor_run, &run->actors[i]), 0);
}

static void run_stop(struct run *run)
{
	__atomic_store_n(&run->stop, true, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < ACTORS; i++)
		pthread_join(run->threads[i], NULL);
}

static void run_end(struct run *run)
{
	for (uint32_t i = 0; i < ACTORS; i++)
		store_rig_done(&run->actors[i].rig);
}

/* Watches for at most so long, with a backend killed now and then; returns what is broken. */
static const char *run_watch(PGconn *admin, int64_t for_ms, bool kills)
{
	int64_t end_us = time_monotonic_us() + for_ms * US_PER_MS, kill_us = 0;
	const char *broken = NULL;

	while (!broken && time_monotonic_us() < end_us) {
		broken = rule_broken(admin);
		if (kills && time_monotonic_us() > kill_us) {
			pg_exec(admin, "select pg_terminate_backend((select pid from pg_stat_activity where usename = 'sutra' "
				       "order by random() limit 1))");
			kill_us = time_monotonic_us() + KILL_MS * US_PER_MS;
		}
	}
	return broken;
}

static PGconn *admin;

static void setup(void)
{
	pg_fixture_reset();
	admin = pg_admin_open();
	watch_begin(admin);
}

static void teardown(void)
{
	PQfinish(admin);
}

static void run_report(const struct run *run)
{
	for (uint32_t i = 0; i < ACTORS; i++) {
		const struct pools_actor *a = &run->actors[i];

		fprintf(stderr, "actor %u: %d rounds, %d spawns, %d full, %d unchecked, %d steps, %d ends, %d grants\n", i, (int)a->rounds,
			(int)a->spawns, (int)a->full, (int)a->unchecked, (int)a->steps, (int)a->ends, (int)a->grants);
	}
}

/* --- tests --- */

START_TEST(random_work_keeps_to_the_rules)
{
	static struct run run;
	const char *broken;

	run_begin(&run, BUG_NONE, 4711 + (uint64_t)_i);
	broken = run_watch(admin, RUN_MS, _i);
	run_stop(&run);
	run_report(&run);
	ck_assert_msg(!broken, "%s", broken);
	if (_i)
		ck_assert_uint_gt(rig_stats(&run.actors[0].rig).doubts + rig_stats(&run.actors[1].rig).doubts +
					  rig_stats(&run.actors[2].rig).doubts, 0);
	for (uint32_t i = 0; i < ACTORS; i++) {
		ck_assert_uint_gt(run.actors[i].spawns, 0);
		ck_assert_uint_gt(run.actors[i].full, 0);
		ck_assert_uint_gt(run.actors[i].grants, 0);
		ck_assert_uint_eq(run.actors[i].unchecked, 0);
		pools_actor_end(&run.actors[i]);
	}
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.capacity_slot"), 0);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.outbox_entry where pool is not null"), 0);
	ck_assert_int_eq(pg_number(admin, "select count(*) from sutra.channel_session where counts"), 0);
	run_end(&run);
}
END_TEST

/* A pump that lets the youngest go, which no planted bug can: the check of the order must see it. */
START_TEST(younger_row_let_go_is_found)
{
	static struct run run;
	bool found = false;
	const char *broken = NULL;

	run_begin(&run, BUG_NONE, 42);
	for (int64_t end_us = time_monotonic_us() + BUG_MS * US_PER_MS; !found && time_monotonic_us() < end_us;) {
		broken = run_watch(admin, 200, false);
		pg_exec(admin, "begin; create temp table young on commit drop as select o.ctid as tid, o.instance_id from sutra.outbox_entry o "
			       "where pool is not null and claim_owner is null order by created_at desc, id desc limit 1; "
			       "select from sutra.channel_session s, young y where s.instance_id = y.instance_id and s.call_key = '' for update of s; "
			       "update sutra.outbox_entry o set pool = null, claim_owner = 'young' from young y where o.ctid = y.tid; "
			       "delete from sutra.outbox_entry where claim_owner = 'young'; commit");
		found = pg_number(admin, "select count(*) from public.violation where what like 'a younger row%%'") > 0;
		ck_assert_msg(!broken || found, "%s", broken);
	}
	run_stop(&run);
	run_end(&run);
	ck_assert(found);
}
END_TEST

/* Transactions that are a little slower give the bugs more room. */
START_TEST(planted_bug_is_found)
{
	static struct run run;
	const char *broken;

	pg_exec(admin, "alter role sutra set sutra_test.slow = 'on'");
	run_begin(&run, (enum pools_bug)_i, 42);
	broken = run_watch(admin, BUG_MS, false);
	run_stop(&run);
	run_end(&run);
	pg_exec(admin, "alter role sutra reset sutra_test.slow");
	ck_assert_msg(broken, "bug %d was not found", _i);
	fprintf(stderr, "bug %d: %s\n", _i, broken);
}
END_TEST

static Suite *pools_suite(void)
{
	Suite *suite = suite_create("pools on PostgreSQL");
	TCase *tcase = tcase_create("pools");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	/* Without and with backends that are killed. */
	tcase_add_loop_test(tcase, random_work_keeps_to_the_rules, 0, 2);
	tcase_add_loop_test(tcase, planted_bug_is_found, BUG_NONE + 1, BUG_COUNT);
	TEST_ADD_ALL(tcase, younger_row_let_go_is_found);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(int argc, char **argv)
{
	return pg_fixture_main(argc, argv, pools_suite);
}
