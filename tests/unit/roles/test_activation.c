/* SPDX-License-Identifier: Apache-2.0 */
/* Activation: what a start makes of a folder of packages and of the table that earlier starts left behind. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "roles/activation.h"
#include "tests/support/store_suite.h"

#define CHANNELS \
	"channels = ( { name = \"%s\"; transport = \"kafka\"; bind = \"%s\"; }," \
	"             { name = \"%s-pay\"; transport = \"kafka\"; bind = \"%s-pay\"; } );"
#define DIAGRAM \
	"<definitions xmlns=\"http://www.omg.org/spec/BPMN/20100524/MODEL\" " \
	"xmlns:q=\"urn:sutra:q:1.0\">" \
	"<process id=\"P\"><startEvent id=\"S\"><extensionElements><q:source channel=\"%s\"/>" \
	"<q:alias name=\"a\" expression=\"payload.a\"/></extensionElements></startEvent>" \
	"<sequenceFlow id=\"f\" sourceRef=\"S\" targetRef=\"W\"/><receiveTask " \
	"id=\"W\"><extensionElements>" \
	"<q:source channel=\"%s-pay\"/><q:alias name=\"a\" " \
	"expression=\"payload.a\"/></extensionElements>" \
	"</receiveTask><sequenceFlow id=\"g\" sourceRef=\"W\" targetRef=\"E\"/><endEvent " \
	"id=\"E\"/></process></definitions>"

struct world {
	struct memory_database *db;
	struct store_rig rig;
	char *dir;
	struct activation *activation;
	struct buf log;
};

static struct world world;

static void take_line(void *arg, struct str line)
{
	struct buf *log = arg;

	buf_add_str(log, line);
	buf_add_byte(log, '\n');
}

static void setup(void)
{
	world = (struct world){.db = memory_database_new()};
	store_rig_init(&world.rig, memory_executor_new(world.db, 2), NULL);
	world.dir = test_dir_new();
	log_redirect(take_line, &world.log);
}

static void teardown(void)
{
	activation_free(&world.activation);
	store_rig_done(&world.rig);
	memory_database_free(&world.db);
	test_dir_free(&world.dir);
	log_redirect(NULL, NULL);
	buf_done(&world.log);
}

static void put_file(const char *folder, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	free(test_file_write(world.dir, path, str_of(text)));
}

/* A package of this module and version that consumes the channel. */
static void put_package(const char *folder, const char *module, const char *version,
			const char *channel)
{
	struct buf text = BUF_INIT;

	buf_printf(&text, "tenant = \"acme\"; module = \"%s\"; version = \"%s\";", module, version);
	put_file(folder, "package.conf", text.data);
	buf_reset(&text);
	buf_printf(&text, CHANNELS, channel, channel, channel, channel);
	put_file(folder, "channels.conf", text.data);
	buf_reset(&text);
	buf_printf(&text, DIAGRAM, channel, channel);
	put_file(folder, "bpmn/p.bpmn", text.data);
	buf_done(&text);
}

static void remove_package(const char *folder)
{
	char *path = test_dir_new(), from[512], to[512];

	snprintf(from, sizeof(from), "%s/%s", world.dir, folder);
	snprintf(to, sizeof(to), "%s/gone", path);
	ck_assert_int_eq(rename(from, to), 0);
	test_dir_free(&path);
}

static void load(void)
{
	struct error err = ERROR_INIT;

	activation_free(&world.activation);
	buf_reset(&world.log);
	ck_assert_msg(activation_load(world.rig.store, world.dir, &world.activation, &err) ==
			      RESULT_OK,
		      "%s", err.text);
}

/* "orders/1.0=Active …": every entry, in order. */
static const char *entries(void)
{
	struct buf text = BUF_INIT;
	struct str kept;

	for (uint32_t i = 0; i < world.activation->count; i++) {
		const struct activation_entry *e = &world.activation->entries[i];

		buf_printf(&text, "%s%.*s/%.*s=%s", i ? " " : "", STR_ARG(e->module),
			   STR_ARG(e->version), deployment_phase_name(e->phase));
	}
	kept = arena_str(&world.rig.arena, text.data ? buf_str(&text) : STR(""));
	buf_done(&text);
	return kept.ptr;
}

/* The same of the table, by version. */
static const char *phase_stored(const char *module, const char *version)
{
	const struct rows *rows = rig_query(&world.rig, "", false, STATEMENT_DEPLOYMENT_LIST);

	for (uint32_t i = 0; i < rows->row_count; i++)
		if (str_equal(rows_at(rows, i, 2)->str, str_of(module)) &&
		    str_equal(rows_at(rows, i, 3)->str, str_of(version)))
			return arena_str(&world.rig.arena, rows_at(rows, i, 4)->str).ptr;
	return "absent";
}

/* An unfinished instance, pinned to the first entry. */
static struct id pin_first(uint32_t n)
{
	struct store_commit commit;
	struct id id = test_id(n);

	rig_spawn(&world.rig, &commit, "acme", id);
	commit.deployment = str_of(world.activation->entries[0].id);
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	return id;
}

static bool logged(const char *text)
{
	return world.log.len && strstr(world.log.data, text) != NULL;
}

START_TEST(no_folder)
{
	struct error err = ERROR_INIT;

	ck_assert_int_eq(
		activation_load(world.rig.store, "/nonexistent/sutra", &world.activation, &err),
		RESULT_OK);
	ck_assert_uint_eq(world.activation->count, 0);
	ck_assert_uint_eq(world.activation->view->member_count, 0);
	ck_assert_uint_eq(world.activation->view->number, 1);
	ck_assert(logged("/nonexistent/sutra"));
}
END_TEST

START_TEST(empty_folder)
{
	load();
	ck_assert_uint_eq(world.activation->count, 0);
	ck_assert(logged("holds no package"));
}
END_TEST

START_TEST(packages)
{
	put_package("b", "orders", "1.0", "orders");
	put_package("a", "bills", "2.0", "bills");
	put_file("notes", "README", "nothing");
	put_file(".half", "package.conf", "broken");
	load();
	ck_assert_str_eq(entries(), "bills/2.0=Active orders/1.0=Active");
	ck_assert_str_eq(phase_stored("orders", "1.0"), "Active");
	ck_assert_uint_eq(world.activation->view->member_count, 2);
	ck_assert_ptr_nonnull(view_route(world.activation->view, STR("acme"), STR("orders")));
	ck_assert(str_starts_with(str_of(world.activation->entries[0].id), STR("dep-")));
	ck_assert(logged(world.activation->entries[0].id));
	/* Again: nothing changes. */
	load();
	ck_assert_str_eq(entries(), "bills/2.0=Active orders/1.0=Active");
}
END_TEST

START_TEST(archive)
{
	struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct package *package = NULL;
	struct buf bytes = BUF_INIT;
	char path[512];

	put_package("src", "orders", "1.0", "orders");
	snprintf(path, sizeof(path), "%s/src", world.dir);
	ck_assert_int_eq(package_read(path, &limits, &package, &findings), RESULT_OK);
	package_write_archive(package, &bytes);
	remove_package("src");
	free(test_file_write(world.dir, "acme--orders--1.0.sutra", buf_str(&bytes)));
	free(test_file_write(world.dir, "other.txt", STR("x")));
	load();
	ck_assert_str_eq(entries(), "orders/1.0=Active");
	ck_assert_str_eq(world.activation->entries[0].id, package->deployment_id);
	package_free(&package);
	findings_done(&findings);
	buf_done(&bytes);
}
END_TEST

START_TEST(broken_ones_are_listed)
{
	put_package("a", "orders", "1.0", "orders");
	put_package("b", "bills", "1.0", "bills");
	put_file("b", "bpmn/p.bpmn", "<definitions>");
	load();
	ck_assert_str_eq(entries(), "orders/1.0=Active /=Failed");
	ck_assert(str_find(world.activation->entries[1].reasons, '\n') > 0);
	ck_assert(logged("SUTRA.DEPLOY.FAILED"));
	ck_assert(logged("SUTRA.CONFIG.BPMN.INVALID"));
}
END_TEST

START_TEST(two_of_one_module)
{
	put_package("a", "orders", "1.0", "orders");
	load();
	put_package("b", "orders", "1.1", "orders");
	put_package("c", "bills", "1.0", "bills");
	load();
	/* Both are named, and what was Active before stays. */
	ck_assert_str_eq(entries(), "bills/1.0=Active orders/1.0=Active orders/1.1=Failed");
	ck_assert(logged("SUTRA.DEPLOY.CONFLICT"));
	ck_assert(str_starts_with(world.activation->entries[2].reasons,
				  STR("SUTRA.DEPLOY.CONFLICT")));
	ck_assert_str_eq(phase_stored("orders", "1.0"), "Active");
	ck_assert_str_eq(phase_stored("orders", "1.1"), "Failed");
}
END_TEST

START_TEST(two_of_one_module_from_the_start)
{
	put_package("a", "orders", "1.0", "orders");
	put_package("b", "orders", "1.1", "orders");
	load();
	ck_assert_str_eq(entries(), "orders/1.0=Failed orders/1.1=Failed");
	ck_assert_uint_eq(world.activation->view->member_count, 0);
	remove_package("a");
	load();
	ck_assert_str_eq(entries(), "orders/1.1=Active");
	ck_assert_str_eq(phase_stored("orders", "1.1"), "Active");
}
END_TEST

START_TEST(view_conflict_fails_the_later)
{
	put_package("x", "aaa", "1.0", "orders");
	put_package("a", "bbb", "1.0", "orders");
	put_package("b", "ccc", "1.0", "other");
	load();
	ck_assert_str_eq(entries(), "aaa/1.0=Active ccc/1.0=Active bbb/1.0=Failed");
	ck_assert(logged("SUTRA.INBOUND.AMBIGUOUS_HANDLER"));
	/* Its reasons are said once, also when it is tried again. */
	ck_assert_int_lt(world.activation->entries[2].reasons.len, 1000);
}
END_TEST

/* What a sweep writes of the deployments in this phase. */
static void world_pin(const char *phase, bool pinned)
{
	const struct rows *rows = rig_query(&world.rig, "", false, STATEMENT_DEPLOYMENT_LIST);

	for (uint32_t i = 0; i < rows->row_count; i++) {
		char id[128];

		snprintf(id, sizeof(id), "%.*s", STR_ARG(rows_at(rows, i, 0)->str));
		if (str_equal(rows_at(rows, i, 4)->str, str_of(phase)))
			rig_query(&world.rig, "", true, STATEMENT_DEPLOYMENT_PINS, id, (int)pinned);
	}
}

START_TEST(superseded_drains_while_pinned)
{
	struct store_commit commit;
	struct store_claim claim;
	struct id id;

	put_package("a", "orders", "1.0", "orders");
	load();
	id = pin_first(1);
	put_package("a", "orders", "1.1", "orders");
	load();
	ck_assert_str_eq(entries(), "orders/1.1=Active orders/1.0=Draining");
	ck_assert(!world.activation->entries[1].path.ptr);
	ck_assert_str_eq(phase_stored("orders", "1.0"), "Draining");
	ck_assert_uint_eq(world.activation->view->member_count, 2);
	/* A sweep has taken it for unneeded, too early; a later one has seen it. */
	world_pin("Draining", false);
	ck_assert_str_eq(phase_stored("orders", "1.0"), "Retired");
	load();
	ck_assert_str_eq(entries(), "orders/1.1=Active");
	world_pin("Retired", true);
	load();
	ck_assert_str_eq(entries(), "orders/1.1=Active orders/1.0=Draining");
	/* The instance ends; the next start retires it. */
	rig_claim(&world.rig, &claim, "acme", id, "me");
	ck_assert_int_eq(rig_run(&world.rig, &claim.base), STORE_OK);
	rig_resume(&world.rig, &commit, "acme", id, "me", claim.version);
	commit.status = INSTANCE_COMPLETED;
	ck_assert_int_eq(rig_run(&world.rig, &commit.base), STORE_OK);
	load();
	ck_assert_str_eq(entries(), "orders/1.1=Active");
	ck_assert_str_eq(phase_stored("orders", "1.0"), "Retired");
}
END_TEST

START_TEST(removed_drains_or_retires)
{
	put_package("a", "orders", "1.0", "orders");
	load();
	pin_first(1);
	put_package("b", "bills", "1.0", "bills");
	load();
	remove_package("a");
	remove_package("b");
	load();
	ck_assert_str_eq(entries(), "orders/1.0=Draining");
	ck_assert_str_eq(phase_stored("bills", "1.0"), "Retired");
	/* Rollback: the same bytes again. */
	put_package("b", "bills", "1.0", "bills");
	put_package("a", "orders", "1.0", "orders");
	load();
	ck_assert_str_eq(entries(), "bills/1.0=Active orders/1.0=Active");
	ck_assert_str_eq(phase_stored("bills", "1.0"), "Active");
}
END_TEST

START_TEST(a_broken_successor_takes_nothing_away)
{
	put_package("a", "orders", "1.0", "orders");
	load();
	put_package("a", "orders", "1.1", "orders");
	put_file("a", "channels.conf", "channels = (");
	load();
	ck_assert_str_eq(entries(), "orders/1.0=Active /=Failed");
	ck_assert_str_eq(phase_stored("orders", "1.0"), "Active");
}
END_TEST

START_TEST(a_folder_that_is_away_takes_nothing_away)
{
	struct error err = ERROR_INIT;

	put_package("a", "orders", "1.0", "orders");
	load();
	activation_free(&world.activation);
	ck_assert_int_eq(
		activation_load(world.rig.store, "/nonexistent/sutra", &world.activation, &err),
		RESULT_OK);
	ck_assert_str_eq(entries(), "orders/1.0=Active");
}
END_TEST

START_TEST(database_away)
{
	struct error err = ERROR_INIT;

	put_package("a", "orders", "1.0", "orders");
	store_stop(world.rig.store);
	ck_assert_int_eq(activation_load(world.rig.store, world.dir, &world.activation, &err),
			 RESULT_AGAIN);
	ck_assert_ptr_null(world.activation);
	ck_assert_int_eq(err.code, CODE_DISPATCH_UNAVAILABLE);
}
END_TEST

static Suite *activation_suite(void)
{
	Suite *suite = suite_create("activation");
	TCase *tcase = tcase_create("activation");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, no_folder, empty_folder, packages, archive, broken_ones_are_listed,
		     two_of_one_module, two_of_one_module_from_the_start,
		     view_conflict_fails_the_later, superseded_drains_while_pinned,
		     removed_drains_or_retires, a_broken_successor_takes_nothing_away,
		     a_folder_that_is_away_takes_nothing_away, database_away);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(activation_suite)
