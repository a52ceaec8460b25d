/* SPDX-License-Identifier: Apache-2.0 */
/* The drawing of an instance, and lists for a terminal. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/instance_tree.h"
#include "cli/table.h"
#include "tests/support/testing.h"

#define NOW_US INT64_C(1796083200000000) /* 2026-12-01T00:00:00Z */

static const char whole[] =
	"{\"id\":\"i-1\",\"tenant\":\"acme\",\"deployment\":\"dep-1\",\"process\":\"order\",\"status\":\"FAILED\",\"version\":3,"
	"\"startedAt\":\"2026-11-30T12:00:00.5Z\",\"endedAt\":null,\"code\":\"SUTRA.EXPRESSION.FAILED\",\"detail\":\"no\\u001b[31m field\","
	"\"failureNode\":\"Work\",\"claim\":{\"owner\":\"host-1-a-s0\",\"since\":\"2026-11-30T12:00:01Z\"},"
	"\"aliases\":[{\"name\":\"order\",\"value\":\"A-1\",\"unique\":true},{\"name\":\"x\",\"value\":\"y\",\"unique\":false}],"
	"\"variables\":{\"total\":42,\"card\":\"***\"},\"modelLoaded\":true,"
	"\"tokens\":["
	"{\"id\":1,\"scope\":0,\"host\":0,\"node\":\"Ship\",\"name\":\"Ship it\",\"kind\":\"sub-process\",\"state\":\"HOLDING\",\"waits\":[]},"
	"{\"id\":2,\"scope\":1,\"host\":0,\"node\":\"Packed\",\"kind\":\"receive task\",\"state\":\"WAITING\",\"channel\":\"warehouse\","
	"\"messageType\":\"packed\",\"waits\":[{\"name\":\"order\",\"value\":\"A-1\"},{\"name\":\"box\",\"value\":\"7\"}]},"
	"{\"id\":3,\"scope\":1,\"host\":2,\"node\":\"Late\",\"kind\":\"boundary event\",\"state\":\"WAITING\",\"waits\":[],"
	"\"dueAt\":\"2026-12-01T01:30:00Z\"},"
	"{\"id\":4,\"scope\":0,\"host\":0,\"node\":\"Join\",\"kind\":\"parallel gateway\",\"state\":\"JOINING\",\"flow\":\"f7\",\"waits\":[]},"
	"{\"id\":5,\"scope\":0,\"host\":5,\"node\":\"Stop\",\"kind\":\"start event\",\"state\":\"WAITING\",\"channel\":\"stops\",\"waits\":[]},"
	"{\"id\":6,\"scope\":3,\"host\":0,\"node\":\"Each\",\"kind\":\"user task\",\"state\":\"WAITING\",\"channel\":\"c\",\"waits\":[]},"
	"{\"id\":7,\"scope\":0,\"host\":0,\"node\":\"Loop\",\"kind\":\"user task\",\"state\":\"HOLDING\",\"waits\":[]}],"
	"\"scopes\":[{\"id\":1,\"parent\":0,\"owner\":1,\"iteration\":0,\"node\":\"Ship\",\"variables\":{\"weight\":2.5}},"
	"{\"id\":2,\"parent\":0,\"owner\":7,\"iteration\":0,\"node\":\"Loop\",\"variables\":{}},"
	"{\"id\":3,\"parent\":2,\"owner\":7,\"iteration\":4,\"node\":\"Loop\",\"variables\":{\"item\":\"d\"}}]}";

static const char drawn[] =
	"instance i-1: FAILED\n"
	"  process order, deployment dep-1, tenant acme, version 3\n"
	"  started 2026-11-30 12:00:00\n"
	"  FAILED at Work: SUTRA.EXPRESSION.FAILED: no?[31m field\n"
	"  claimed by host-1-a-s0 since 2026-11-30 12:00:01\n"
	"  aliases: order = A-1 (unique), x = y\n"
	"  variables: total = 42, card = \"***\"\n"
	"\n"
	"order\n"
	"├─ Ship \"Ship it\" (sub-process)\n"
	"│  variables: weight = 2.5\n"
	"│  └─ Packed (receive task): waits for a message on warehouse of type packed, order = A-1 or box = 7\n"
	"│     or Late (boundary event): timer, due in 1 h 30 min (2026-12-01 01:30:00)\n"
	"├─ Join (parallel gateway): here by flow f7, until tokens have come by the others\n"
	"├─ Stop (start event): waits for a message on stops\n"
	"└─ Loop (user task)\n"
	"   run 4\n"
	"   variables: item = \"d\"\n"
	"   └─ Each (user task): waits for a message on c; `sutra instances complete` ends it\n";

static void draw(const char *json, struct buf *out)
{
	const struct value_limits limits = VALUE_LIMITS_DEFAULT;
	struct error err = ERROR_INIT;
	struct arena arena;
	msgpack_object value;

	arena_init(&arena);
	ck_assert_msg(value_json_read(&arena, str_of(json), true, &limits, &value, &err) == RESULT_OK, "%s", err.text);
	instance_tree_print(&value, NOW_US, out);
	arena_done(&arena);
}

static void check_drawn(const char *json, const char *want)
{
	struct buf out = BUF_INIT;

	draw(json, &out);
	buf_add_byte(&out, '\0');
	ck_assert_str_eq(out.data, want);
	buf_done(&out);
}

START_TEST(an_instance_is_drawn)
{
	check_drawn(whole, drawn);
}
END_TEST

/* What is not there, or of no type that is known, is left out: an older replica, a newer one. */
START_TEST(whatever_is_missing)
{
	struct buf out = BUF_INIT;

	check_drawn("{}", "instance : \n  process , deployment , tenant , version 0\n  started ? \n");
	check_drawn("{\"id\":1,\"tokens\":[7],\"scopes\":{},\"startedAt\":\"soon\",\"modelLoaded\":true}",
		    "instance : \n  process , deployment , tenant , version 0\n  started ? \n\n\n└─ \n");
	/* Scopes that hold each other end. */
	draw("{\"tokens\":[{\"id\":1,\"scope\":0,\"node\":\"A\"}],\"scopes\":[{\"id\":0,\"parent\":0,\"owner\":1}]}", &out);
	ck_assert_uint_gt(out.len, 100);
	buf_done(&out);
}
END_TEST

START_TEST(a_list_has_columns)
{
	static const char *const heads[] = {"ID", "TEXT", "N", NULL};
	struct table table;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	table_init(&table, heads);
	table_cell(&table, STR("grün"));
	table_cell(&table, STR("a\nb\x1b[2J\xc2\x9bm\x7f"));
	table_cell(&table, STR("1"));
	for (int i = 0; i < 3; i++)
		table_cell(&table, i ? STR_NONE : STR("long-name"));
	table_print(&table, out);
	fclose(out);
	ck_assert_str_eq(text, "ID         TEXT        N\n"
			       "grün       a b?[2J?m?  1\n"
			       "long-name  -           -\n");
	table_done(&table);
	free(text);
}
END_TEST

static Suite *tree_suite(void)
{
	Suite *suite = suite_create("cli tree");
	TCase *tcase = tcase_create("tree");

	TEST_ADD_ALL(tcase, an_instance_is_drawn, whatever_is_missing, a_list_has_columns);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(tree_suite)
