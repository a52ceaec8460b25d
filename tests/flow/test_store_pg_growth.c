/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing scans, however much there is. The plan of every statement, as the server makes it for the engine's role, and how much it
 * touches, on a database that has grown:
 *
 *   prepared when the tables were empty, analyzed so, and kept through all of the growth, as by a connection that stays open
 *   prepared after it, with the statistics of the empty tables, as when analyze has not come by
 *   prepared after it, with statistics
 *
 * A plan must go by the indexes that the table in growth_expect.c names and read none of them whole; run with 1 and with 256
 * elements, no node of it may touch more rows than a constant times that, nor the statement more blocks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/pg/private.h"
#include "tests/flow/growth.h"
#include "value/value.h"

#define BATCH 256

/* --- prepared statements --- */

/* A session of the engine's role, with every statement prepared. */
static PGconn *session_open(void)
{
	PGconn *pg = PQconnectdb(pg_fixture_settings().url);

	ck_assert_msg(PQstatus(pg) == CONNECTION_OK, "%s", PQerrorMessage(pg));
	for (enum statement_id id = 0; id < STATEMENT_COUNT; id++) {
		const struct statement_info *info = statement_info(id);
		Oid types[ENCODE_PARAMS_MAX];
		PGresult *result = PQprepare(pg, info->name, sql_of(id), encode_types(info->params, types), types);

		ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s: %s", info->name, PQerrorMessage(pg));
		PQclear(result);
	}
	return pg;
}

static void begin(PGconn *pg, const struct growth_expectation *expect)
{
	pg_exec(pg, "begin");
	pg_exec(pg, "select set_config('sutra.tenant', ',big,tiny,' || (select string_agg('t' || n, ',') from generate_series(0, 49) n) "
		    "|| ',', true)");
	if (expect->scan)
		pg_exec(pg, "set local role sutra_scan");
}

static const char *type_of(char letter)
{
	switch (letter | 0x20) {
	case COLUMN_INT:
		return "int8";
	case COLUMN_ID:
		return "uuid";
	case COLUMN_TEXT:
		return "text";
	case COLUMN_BYTES:
		return "bytea";
	case COLUMN_BOOL:
		return "bool";
	default:
		return "timestamptz";
	}
}

/* Appends "(arguments)" of a call with so many elements, which the administrator works out. */
static void add_arguments(PGconn *admin, enum statement_id id, const struct growth_expectation *expect, int batch, struct buf *out)
{
	const struct statement_info *info = statement_info(id);
	size_t count = strlen(info->params);
	struct buf sql = BUF_INIT;
	PGresult *result;

	if (!count)
		return;
	for (size_t i = 0; i < count; i++) {
		bool scalar = info->params[i] < 'a';

		ck_assert_msg(expect->args[i], "%s: its line in growth_expect.c has %zu arguments, not %zu", info->name, i, count);
		buf_printf(&sql, "%s(array_agg((%s)::%s order by n))%s::text", i ? ", " : "select ", expect->args[i],
			   type_of(info->params[i]), scalar ? "[1]" : "");
	}
	ck_assert_msg(!expect->args[count], "%s: its line in growth_expect.c has more than %zu arguments", info->name, count);
	buf_printf(&sql, " from (select n, 390 * n + 6 * (n %% 5) + 1 as m, %d as batch from generate_series(1, %d) n) s", batch, batch);
	result = PQexec(admin, sql.data);
	ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s", info->name, PQerrorMessage(admin));
	for (size_t i = 0; i < count; i++) {
		bool is_null = PQgetisnull(result, 0, (int)i);
		const char *value = PQgetvalue(result, 0, (int)i);
		char *literal = PQescapeLiteral(admin, value, strlen(value));

		buf_printf(out, "%s%s", i ? ", " : " (", is_null ? "null" : literal);
		PQfreemem(literal);
	}
	buf_add_text(out, ")");
	PQclear(result);
	buf_done(&sql);
}

/* --- plans --- */

/* One look at a plan. */
struct look {
	enum statement_id id;
	const char *when;
	const struct growth_expectation *expect;
	const char *text; /* all of it */
	int batch; /* 0: not run */
	double rows_most;
	unsigned failures;
	bool used[GROWTH_INDEXES];
};

/* All are said, and then the test fails. */
static void fail_look(struct look *look, const char *what, struct str which)
{
	fprintf(stderr, "%s, %s, batch %d: %s%.*s\n", statement_info(look->id)->name, look->when, look->batch, what, STR_ARG(which));
	if (!look->failures++ && getenv("PLANS_SHOW"))
		fprintf(stderr, "%s\n", look->text);
}

static struct str text_at(const msgpack_object *node, const char *name)
{
	const msgpack_object *value = value_get(node, str_of(name));

	return value && value->type == MSGPACK_OBJECT_STR ? str_make(value->via.str.ptr, value->via.str.size) : STR_NONE;
}

static double number_at(const msgpack_object *node, const char *name)
{
	const msgpack_object *value = value_get(node, str_of(name));

	if (!value)
		return 0;
	return value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? (double)value->via.u64 : value->via.f64;
}

static bool grows(struct str table)
{
	for (size_t i = 0; table.ptr && i < growth_table_count; i++)
		if (str_equal(table, str_of(growth_tables[i])))
			return true;
	return false;
}

/* Whether the index is one of a table that grows: they are named after it. */
static bool is_index_of_growing(struct str index)
{
	for (size_t i = 0; i < growth_table_count; i++) {
		size_t len = strlen(growth_tables[i]);

		if (index.len > len && memcmp(index.ptr, growth_tables[i], len) == 0 && index.ptr[len] == '_')
			return true;
	}
	return false;
}

static void look_at_index(struct look *look, struct str index)
{
	for (size_t i = 0; i < GROWTH_INDEXES; i++)
		if (look->expect->index[i] && str_equal(index, str_of(look->expect->index[i]))) {
			look->used[i] = true;
			return;
		}
	fail_look(look, "goes by an index that it does not name: ", index);
}

static void look_at_node(struct look *look, const msgpack_object *node)
{
	struct str type = text_at(node, "Node Type"), index = text_at(node, "Index Name");
	bool growing = grows(text_at(node, "Relation Name"));
	const msgpack_object *arbiters = value_get(node, STR("Conflict Arbiter Indexes"));

	if (str_equal(type, STR("Seq Scan")) && growing)
		fail_look(look, "reads a table whole: ", text_at(node, "Relation Name"));
	if (str_equal(type, STR("Hash Join")) || str_equal(type, STR("Merge Join")))
		fail_look(look, "joins by reading: ", type);
	if (index.ptr && is_index_of_growing(index)) {
		look_at_index(look, index);
		if (!value_get(node, STR("Index Cond")) &&
		    !(look->expect->from_start && str_equal(index, str_of(look->expect->from_start))))
			fail_look(look, "reads an index without a condition: ", index);
	}
	for (uint32_t i = 0; arbiters && i < arbiters->via.array.size; i++) {
		const msgpack_object *name = &arbiters->via.array.ptr[i];
		struct str arbiter = str_make(name->via.str.ptr, name->via.str.size);

		if (is_index_of_growing(arbiter))
			look_at_index(look, arbiter);
	}
	if (look->batch) {
		double each = number_at(node, "Actual Rows") + number_at(node, "Rows Removed by Filter") +
			      number_at(node, "Rows Removed by Index Recheck") + number_at(node, "Rows Removed by Join Filter");

		if (each * number_at(node, "Actual Loops") > look->rows_most)
			fail_look(look, "touches too many rows in a ", type);
	}
}

static void look_at_tree(struct look *look, const msgpack_object *node)
{
	const msgpack_object *plans = value_get(node, STR("Plans"));

	look_at_node(look, node);
	for (uint32_t i = 0; plans && i < plans->via.array.size; i++)
		look_at_tree(look, &plans->via.array.ptr[i]);
}

/* Explains one statement in this session, and takes back what it did. `batch` 0: the plan alone. */
static unsigned explain(PGconn *pg, PGconn *admin, enum statement_id id, const char *when, int batch)
{
	const struct value_limits limits = VALUE_LIMITS_DEFAULT;
	const struct growth_expectation *expect = growth_expectation_of(id);
	struct look look = {.id = id, .when = when, .expect = expect, .batch = batch};
	double blocks, blocks_most = (expect->blocks_fixed ? expect->blocks_fixed : GROWTH_BLOCKS_FIXED) +
					(double)GROWTH_BLOCKS_EACH * batch;
	struct error err = ERROR_INIT;
	struct buf sql = BUF_INIT;
	struct arena arena;
	msgpack_object top;
	const msgpack_object *plan;
	PGresult *result;

	buf_printf(&sql, "explain (format json, costs off%s) execute \"%s\"", batch ? ", analyze, buffers, timing off" : "",
		   statement_info(id)->name);
	add_arguments(admin, id, expect, batch ? batch : 1, &sql);
	begin(pg, expect);
	result = PQexec(pg, sql.data);
	ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s, %s: %s", statement_info(id)->name, when, PQerrorMessage(pg));
	pg_exec(pg, "rollback");
	look.text = PQgetvalue(result, 0, 0);
	look.rows_most = (expect->rows_fixed ? expect->rows_fixed : GROWTH_ROWS_FIXED) +
			 (double)(expect->rows_each ? expect->rows_each : GROWTH_ROWS_EACH) * batch;
	arena_init(&arena);
	ck_assert_msg(value_json_read(&arena, str_of(look.text), false, &limits, &top, &err) == RESULT_OK, "%s: %s", look.text,
		      err.text);
	plan = value_get(&top.via.array.ptr[0], STR("Plan"));
	look_at_tree(&look, plan);
	for (size_t i = 0; i < GROWTH_INDEXES; i++)
		if (expect->index[i] && !look.used[i])
			fail_look(&look, "does not go by ", str_of(expect->index[i]));
	blocks = number_at(plan, "Shared Hit Blocks") + number_at(plan, "Shared Read Blocks");
	if (batch && blocks > blocks_most)
		fail_look(&look, "touches too many blocks", STR(""));
	arena_done(&arena);
	PQclear(result);
	buf_done(&sql);
	return look.failures;
}

static unsigned explain_all(PGconn *pg, PGconn *admin, const char *when, bool run)
{
	unsigned failures = 0;

	for (enum statement_id id = 0; id < STATEMENT_COUNT; id++) {
		if (!growth_expectation_of(id))
			continue;
		failures += explain(pg, admin, id, when, 0);
		if (run) {
			failures += explain(pg, admin, id, when, 1);
			failures += explain(pg, admin, id, when, BATCH);
		}
	}
	return failures;
}

/* --- tests --- */

START_TEST(every_statement_has_its_line)
{
	for (enum statement_id id = 0; id < STATEMENT_COUNT; id++) {
		const struct statement_info *info = statement_info(id);

		ck_assert_msg(growth_expectation_of(id) != NULL,
			      "%s has no line in tests/flow/growth_expect.c. Add\n"
			      "\t[STATEMENT_%s] = {.index = {\"<index>\"}, .args = {…}},\n"
			      "with %zu arguments for \"%s\" (`.scan = true` if it runs as sutra_scan; `.none = \"<why>\"` instead of the "
			      "index if it reads nothing that grows), and rows for a new table in growth_load.c",
			      info->name, info->name, strlen(info->params), info->params);
	}
}
END_TEST

START_TEST(nothing_scans_however_much_there_is)
{
	PGconn *admin = pg_admin_open(), *early, *late;
	unsigned failures;

	pg_fixture_reset();
	/* Statistics are made when the test says so. */
	pg_exec(admin, "alter system set autovacuum = off");
	pg_exec(admin, "alter system set max_wal_size = '8GB'");
	pg_exec(admin, "select pg_reload_conf()");
	growth_functions(admin);
	for (size_t i = 0; i < growth_table_count; i++)
		pg_exec(admin, "vacuum analyze sutra.%s", growth_tables[i]);
	early = session_open();
	failures = explain_all(early, admin, "empty", false);
	growth_load();
	failures += explain_all(early, admin, "full, prepared when empty", true);
	late = session_open();
	failures += explain_all(late, admin, "full, without statistics", true);
	PQfinish(late);
	for (size_t i = 0; i < growth_table_count; i++)
		pg_exec(admin, "vacuum analyze sutra.%s", growth_tables[i]);
	late = session_open();
	failures += explain_all(late, admin, "full", true);
	/* The plans of the first session are made anew now, for statistics of a table invalidate them. */
	failures += explain_all(early, admin, "full, prepared when empty, made anew", false);
	PQfinish(late);
	PQfinish(early);
	PQfinish(admin);
	ck_assert_msg(failures == 0, "%u plans are not as tests/flow/growth_expect.c says; with PLANS_SHOW=1 they are shown", failures);
}
END_TEST

static Suite *growth_suite(void)
{
	Suite *suite = suite_create("growth on PostgreSQL");
	TCase *tcase = tcase_create("growth");

	tcase_set_timeout(tcase, 600);
	TEST_ADD_ALL(tcase, every_statement_has_its_line, nothing_scans_however_much_there_is);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(int argc, char **argv)
{
	return pg_fixture_main(argc, argv, growth_suite);
}
