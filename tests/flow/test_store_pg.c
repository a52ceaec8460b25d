/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store on PostgreSQL: the suite that every executor passes. Built twice: the second program prepares no statements, as
 * behind a pooler in transaction mode.
 */
#include "tests/flow/pg_fixture.h"
#include "tests/support/store_suite.h"

static void reset(void *arg UNUSED)
{
	pg_fixture_reset();
}

static struct executor *executor_new(void *arg UNUSED, uint32_t step_connections)
{
	struct pg_settings settings = pg_fixture_settings();

	settings.step_connections = step_connections;
#ifdef UNPREPARED
	settings.prepare = false;
#endif
	return pg_executor_new(&settings);
}

static void done(void *arg UNUSED)
{
}

static Suite *pg_suite(void)
{
	static const struct store_backend backend = {reset, executor_new, done, NULL};
	Suite *suite = suite_create("store on PostgreSQL");

	store_suite_add(suite, &backend);
	return suite;
}

int main(int argc, char **argv)
{
	return pg_fixture_main(argc, argv, pg_suite);
}
