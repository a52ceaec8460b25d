/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "store/executor.h"
#include "tests/bench/bench.h"

static void say(const char *line, void *arg UNUSED)
{
	fprintf(stderr, "%s\n", line);
}

static int bench_migrate(void)
{
	const struct pg_migration migration = {
		.url = bench_env("SUTRA_DATASOURCE_MIGRATE_URL"),
		.engine_role = "sutra",
		.say = say,
	};
	struct error err = ERROR_INIT;

	if (pg_migrate(&migration, &err) != RESULT_OK)
		bench_die("%s", err.text);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	log_configure(LOG_LEVEL_WARNING, LOG_FORMAT_TEXT);
	if (strcmp(mode, "migrate") == 0 && argc == 2)
		return bench_migrate();
	if (strcmp(mode, "capture") == 0 && argc == 2)
		return bench_capture();
	if (strcmp(mode, "engine") == 0 && argc == 3)
		return bench_engine(bench_number(argv[2]));
	if (strcmp(mode, "reference") == 0 && argc == 4)
		return bench_reference(bench_number(argv[2]), (unsigned)bench_number(argv[3]));
	if (strcmp(mode, "verify") == 0 && argc == 3)
		return bench_verify((uint64_t)bench_number(argv[2]));
	if (strcmp(mode, "pace") == 0 && argc == 4)
		return bench_pace(bench_number(argv[2]), bench_number(argv[3]));
	if (strcmp(mode, "timers") == 0 && argc == 4)
		return bench_timers(bench_number(argv[2]), strcmp(argv[3], "0") == 0 ? 0 : bench_number(argv[3]));
	if (strcmp(mode, "history") == 0 && argc == 2)
		return bench_history();
	fputs("usage: driver migrate | capture | engine SECONDS | reference SECONDS CONNECTIONS | "
	      "verify ORDERS | pace SECONDS RATE | timers COUNT RATE | history\n",
	      stderr);
	return 2;
}
