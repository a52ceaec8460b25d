/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite on the memory executor. */
#include "tests/support/store_suite.h"

static struct memory_database *database;

static void reset(void *arg UNUSED)
{
	memory_database_free(&database);
	database = memory_database_new();
}

static struct executor *executor_new(void *arg UNUSED, uint32_t step_connections)
{
	return memory_executor_new(database, step_connections);
}

static void done(void *arg UNUSED)
{
	memory_database_free(&database);
}

static const struct store_backend memory = {reset, executor_new, done, NULL};

static Suite *memory_suite(void)
{
	Suite *suite = suite_create("store on memory");

	store_suite_add(suite, &memory);
	return suite;
}

TEST_MAIN(memory_suite)
