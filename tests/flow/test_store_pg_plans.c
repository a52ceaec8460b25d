/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of every statement, as the server makes them for the engine's role: no statement may read a table whole that grows with
 * the load, whatever the statistics say; neither when it was just vacuumed empty, the normal state of an outbox, nor when it
 * is full. And updates of instances must stay on their page.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/pg/private.h"
#include "tests/flow/pg_fixture.h"
#include "tests/support/store_suite.h"

#define FILLED 40000

/* Tables that grow with the load. */
static const char *const large[] = {"instance", "wait", "alias", "inbox", "outbox_entry", "dead_letter", "inbox_message",
				    "early", "timer", "channel_session", "capacity_slot"};

static bool is_large(const char *plan_line)
{
	const char *on = strstr(plan_line, " on ");

	if (!on)
		return false;
	on += strlen(" on ");
	if (strncmp(on, "sutra.", 6) == 0)
		on += 6;
	for (size_t i = 0; i < ARRAY_LEN(large); i++)
		if (strncmp(on, large[i], strlen(large[i])) == 0 && strchr(" \n", on[strlen(large[i])]))
			return true;
	return false;
}

/* Its walk from place to place begins at the first. */
static bool begins_at_first(enum statement_id id)
{
	return id == STATEMENT_KEPT_COUNTS || id == STATEMENT_OUTBOX_SCAN;
}

static bool runs_as_scan(enum statement_id id)
{
	switch (id) {
	case STATEMENT_OUTBOX_SCAN:
	case STATEMENT_OUTBOX_SWEEP:
	case STATEMENT_KEPT_COUNTS:
	case STATEMENT_CLAIM_SWEEP:
	case STATEMENT_INSTANCE_EXPIRED:
	case STATEMENT_INBOX_PURGE:
	case STATEMENT_DEAD_LETTER_PURGE:
	case STATEMENT_OUTBOX_PINS:
	case STATEMENT_TIMER_DUE:
	case STATEMENT_TIMER_NEXT:
	case STATEMENT_TIMER_COUNTS:
	case STATEMENT_POOL_WAITING:
	case STATEMENT_POOL_LOCK_ONE:
	case STATEMENT_POOL_SCAN:
	case STATEMENT_POOL_MORE:
	case STATEMENT_POOL_LIST:
	case STATEMENT_SLOT_SWEEP:
	case STATEMENT_POOL_SWEEP:
	case STATEMENT_POOL_CHECK:
		return true;
	default:
		return false;
	}
}

static void prepare(PGconn *pg, enum statement_id id)
{
	const struct statement_info *info = statement_info(id);
	Oid types[ENCODE_PARAMS_MAX];
	PGresult *result = PQprepare(pg, info->name, sql_of(id), encode_types(info->params, types), types);

	ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s: %s", info->name, PQerrorMessage(pg));
	PQclear(result);
}

static PGresult *explain(PGconn *pg, enum statement_id id)
{
	const struct statement_info *info = statement_info(id);
	struct buf sql = BUF_INIT;
	PGresult *result;

	buf_printf(&sql, "explain (costs off) execute \"%s\"", info->name);
	for (size_t i = 0; info->params[i]; i++)
		buf_printf(&sql, "%snull", i ? ", " : " (");
	if (info->params[0])
		buf_add_text(&sql, ")");
	result = PQexec(pg, sql.data);
	ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s", sql.data, PQerrorMessage(pg));
	buf_done(&sql);
	return result;
}

static char *plan_text(const PGresult *plan)
{
	struct buf text = BUF_INIT;
	size_t len;

	for (int i = 0; i < PQntuples(plan); i++)
		buf_printf(&text, "%s\n", PQgetvalue(plan, i, 0));
	return buf_take(&text, &len);
}

static int depth_of(const char *line)
{
	return (int)strspn(line, " ");
}

/* Whether the node at `at` is narrowed by an index condition. */
static bool has_condition(const PGresult *plan, int at)
{
	int depth = depth_of(PQgetvalue(plan, at, 0));

	for (int i = at + 1; i < PQntuples(plan); i++) {
		const char *line = PQgetvalue(plan, i, 0);

		if (depth_of(line) <= depth || strstr(line, "->"))
			return false;
		if (strstr(line, "Index Cond:") || strstr(line, "TID Cond:"))
			return true;
	}
	return false;
}

/* The one way to kept messages that the statement is meant to go. */
static const char *kept_index(enum statement_id id)
{
	switch (id) {
	case STATEMENT_KEPT_PROBE:
	case STATEMENT_KEPT_LOAD:
	case STATEMENT_KEPT_TAKE:
		return "inbox_message_order";
	case STATEMENT_KEPT_RECOVER:
	case STATEMENT_KEPT_RELEASE:
	case STATEMENT_KEPT_OWN:
	case STATEMENT_KEPT_COUNTS:
		return "inbox_message_keeper";
	default:
		return "inbox_message_pkey";
	}
}

static void check_plan(enum statement_id id, const char *when, const PGresult *plan)
{
	const char *name = statement_info(id)->name;
	char *text = plan_text(plan);

	if (getenv("PLANS_SHOW"))
		printf("--- %s, %s\n%s", name, when, text);
	for (int i = 0; i < PQntuples(plan); i++) {
		const char *line = PQgetvalue(plan, i, 0);

		if (strstr(line, "Index") && strstr(line, "Scan") && strstr(line, "inbox_message"))
			ck_assert_msg(strstr(line, kept_index(id)), "%s, %s: not by %s:\n%s", name, when,
				      kept_index(id), text);
		if (!is_large(line))
			continue;
		ck_assert_msg(!strstr(line, "Seq Scan"), "%s, %s: reads a table whole:\n%s", name, when, text);
		ck_assert_msg(id == STATEMENT_OUTBOX_SCAN || !strstr(line, "outbox_entry_due"), "%s, %s: reads what is due:\n%s",
			      name, when, text);
		if (strstr(line, "Index") && !strstr(line, "Bitmap Heap") && !begins_at_first(id))
			ck_assert_msg(has_condition(plan, i), "%s, %s: reads an index whole:\n%s", name, when,
				      text);
	}
	ck_assert_msg(!strstr(text, "Hash Join") && !strstr(text, "Merge Join"), "%s, %s: joins by reading:\n%s", name, when,
		      text);
	free(text);
}

/* As the role sets it: a session of the engine makes no settings of its own here. */
static void check_plans(const char *when)
{
	PGconn *pg = PQconnectdb(pg_fixture_settings().url);

	ck_assert_msg(PQstatus(pg) == CONNECTION_OK, "%s", PQerrorMessage(pg));
	for (enum statement_id id = 0; id < STATEMENT_COUNT; id++) {
		PGresult *plan;

		pg_exec(pg, "begin; set local role %s; set local sutra.tenant = ',a,'",
			runs_as_scan(id) ? "sutra_scan" : "sutra");
		prepare(pg, id);
		plan = explain(pg, id);
		check_plan(id, when, plan);
		PQclear(plan);
		pg_exec(pg, "commit");
	}
	PQfinish(pg);
}

static void fill(PGconn *pg)
{
	pg_exec(pg,
		"insert into sutra.instance (id, tenant, deployment_id, process, status, version, started_at, snapshot) "
		"select gen_random_uuid(), 't' || n %% 7, 'd' || n %% 3, 'p', case when n %% 2 = 0 then 'SUSPENDED' else 'COMPLETED' "
		"end, 1, now(), repeat('x', 500)::bytea from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.wait select gen_random_uuid(), gen_random_uuid(), 't' || n %% 7, gen_random_uuid(), 1, 'n', 'c', "
		"'d', now() from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.alias select gen_random_uuid(), gen_random_uuid(), 't' || n %% 7, gen_random_uuid(), 'a', 'v' "
		"from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.inbox (key, instance_id, created_at, tenant) select gen_random_uuid(), gen_random_uuid(), "
		"now() - n * interval '1 s', 't' || n %% 7 from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.outbox_entry (instance_id, channel, version, ordinal, tenant, id, required, created_at, "
		"next_attempt_at, claim_owner, claimed_at, body) select gen_random_uuid(), 'c', 1, 0, 't' || n %% 7, "
		"gen_random_uuid(), true, now(), now(), case when n %% 2 = 0 then 'boot' end, case when n %% 2 = 0 then now() end, "
		"repeat('x', 200)::bytea from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.dead_letter (id, tenant, channel, code, created_at) select gen_random_uuid(), 't' || n %% 7, 'c', "
		"'SUTRA.X', now() from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.inbox_message (id, order_key, tenant, channel, kind, keeper, created_at, envelope, body) "
		"select gen_random_uuid(), gen_random_uuid(), 't' || n %% 7, 'c', 'overflow', 'boot-' || n %% 3, now(), '', "
		"repeat('x', 200)::bytea from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.early (key, message_id, tenant) select gen_random_uuid(), gen_random_uuid(), 't' || n %% 7 "
		"from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.timer (instance_id, token, tenant, node, deployment_id, due_at) select gen_random_uuid(), 1, "
		"'t' || n %% 7, 'n', 'd', now() + (n - 100) * interval '1 s' from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.channel_session (instance_id, call_key, tenant, channel, inbound, counts) select gen_random_uuid(), '', "
		"'t' || n %% 7, 'c', false, n %% 2 = 0 from generate_series(1, %d) n",
		FILLED);
	pg_exec(pg,
		"insert into sutra.capacity_slot (instance_id, pool, call_key, direction, tenant, created_at) select gen_random_uuid(), "
		"'p' || n %% 7, 'in', 'INBOUND', 't' || n %% 7, now() from generate_series(1, %d) n",
		FILLED);
}

START_TEST(plans_of_fresh_tables)
{
	pg_fixture_reset();
	check_plans("fresh");
}
END_TEST

START_TEST(plans_of_empty_and_vacuumed_tables)
{
	PGconn *pg = pg_admin_open();

	pg_fixture_reset();
	for (size_t i = 0; i < ARRAY_LEN(large); i++)
		pg_exec(pg, "vacuum analyze sutra.%s", large[i]);
	check_plans("empty and vacuumed");
	/* Emptied after having been full, which leaves large indexes. */
	fill(pg);
	for (size_t i = 0; i < ARRAY_LEN(large); i++) {
		pg_exec(pg, "delete from sutra.%s", large[i]);
		pg_exec(pg, "vacuum analyze sutra.%s", large[i]);
	}
	check_plans("emptied and vacuumed");
	PQfinish(pg);
}
END_TEST

START_TEST(plans_of_full_tables)
{
	PGconn *pg = pg_admin_open();

	pg_fixture_reset();
	fill(pg);
	check_plans("filled, without statistics");
	for (size_t i = 0; i < ARRAY_LEN(large); i++)
		pg_exec(pg, "vacuum analyze sutra.%s", large[i]);
	check_plans("filled");
	PQfinish(pg);
}
END_TEST

/* --- updates of instances stay on their page --- */

#define INSTANCES 512
#define ROUNDS	  6

static void run_all(struct store_rig *rig, struct store_request **requests)
{
	rig_burst(rig, requests, INSTANCES);
	rig_wait(rig);
	for (int i = 0; i < INSTANCES; i++)
		ck_assert_int_eq(requests[i]->outcome, STORE_OK);
}

START_TEST(claims_and_steps_are_heap_only)
{
	struct pg_settings settings = pg_fixture_settings();
	struct store_commit *commits = calloc(INSTANCES, sizeof(*commits));
	struct store_claim *claims = calloc(INSTANCES, sizeof(*claims));
	struct store_request *requests[INSTANCES];
	char snapshot[1000];
	struct store_rig rig;
	PGconn *pg = pg_admin_open();
	long long updates, hot;

	pg_fixture_reset();
	pg_exec(pg, "select pg_stat_reset()");
	memset(snapshot, 's', sizeof(snapshot));
	store_rig_init(&rig, pg_executor_new(&settings), NULL);
	for (uint32_t i = 0; i < INSTANCES; i++) {
		rig_spawn(&rig, &commits[i], "a", test_id(i));
		commits[i].snapshot = str_make(snapshot, sizeof(snapshot));
		requests[i] = &commits[i].base;
	}
	run_all(&rig, requests);
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < INSTANCES; i++) {
			rig_claim(&rig, &claims[i], "a", test_id(i), "o");
			requests[i] = &claims[i].base;
		}
		run_all(&rig, requests);
		for (uint32_t i = 0; i < INSTANCES; i++) {
			rig_resume(&rig, &commits[i], "a", test_id(i), "o", round + 1);
			commits[i].snapshot = str_make(snapshot, sizeof(snapshot));
			requests[i] = &commits[i].base;
		}
		run_all(&rig, requests);
	}
	store_rig_done(&rig);
	pg_wait_number(pg, 2 * ROUNDS * INSTANCES,
		       "select n_tup_upd from pg_stat_user_tables where schemaname = 'sutra' and relname = 'instance'");
	updates = pg_number(pg, "select n_tup_upd from pg_stat_user_tables where relname = 'instance' and schemaname = 'sutra'");
	hot = pg_number(pg, "select n_tup_hot_upd from pg_stat_user_tables where relname = 'instance' and schemaname = 'sutra'");
	ck_assert_msg(hot * 100 >= updates * 95, "%lld of %lld updates of instances were HOT", hot, updates);
	PQfinish(pg);
	free(commits);
	free(claims);
}
END_TEST

static Suite *plans_suite(void)
{
	Suite *suite = suite_create("plans on PostgreSQL");
	TCase *tcase = tcase_create("plans");

	tcase_set_timeout(tcase, 120);
	TEST_ADD_ALL(tcase, plans_of_fresh_tables, plans_of_empty_and_vacuumed_tables, plans_of_full_tables,
		     claims_and_steps_are_heap_only);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(int argc, char **argv)
{
	return pg_fixture_main(argc, argv, plans_suite);
}
