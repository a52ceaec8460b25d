/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: each diagram in cases/ has a trace beside it, which says what is fed to an instance and what must be seen.
 * A new case is a .bpmn and a .trace in cases/. README.md describes the traces.
 *
 * Each case is run several times: once without a crash, once with a crash behind each single step, once with a crash behind
 * every step. A crash throws the instance away and reads it back from its snapshot. All runs must go through the whole
 * trace. Every step is computed twice, as after a crash before its commit, and must come out the same.
 */
#include <dirent.h>
#include <stdlib.h>

#include "tests/bpmn/trace.h"
#include "tests/support/testing.h"

static unsigned cases_run, points_run;

static void run_case(const char *name)
{
	unsigned steps = trace_run(name, CRASH_NEVER);

	for (unsigned point = 0; point < steps; point++)
		trace_run(name, point);
	trace_run(name, CRASH_ALWAYS);
	cases_run++;
	points_run += steps + 1;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

START_TEST(all_cases)
{
	char *path = test_source_path("tests/bpmn/cases");
	DIR *dir = opendir(path);
	char *names[1000];
	size_t count = 0;

	ck_assert(dir != NULL);
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
		const char *end = strstr(entry->d_name, ".trace");

		if (!end)
			continue;
		ck_assert_uint_lt(count, ARRAY_LEN(names));
		names[count++] = strndup(entry->d_name, (size_t)(end - entry->d_name));
	}
	closedir(dir);
	qsort(names, count, sizeof(names[0]), compare_names);
	for (size_t i = 0; i < count; i++) {
		run_case(names[i]);
		free(names[i]);
	}
	free(path);
	printf("bpmn: %u cases x crash points: %u runs with a crash\n", cases_run, points_run);
	fflush(stdout);
	ck_assert_uint_ge(cases_run, 1);
}
END_TEST

static Suite *bpmn_suite(void)
{
	Suite *suite = suite_create("bpmn");
	TCase *tcase = tcase_create("traces");

	tcase_set_timeout(tcase, 300);
	TEST_ADD_ALL(tcase, all_cases);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(bpmn_suite)
