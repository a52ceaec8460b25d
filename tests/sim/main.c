/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim ring: many seeds, one of them twice, and the planted bugs, each of which must be found.
 *
 *	tests/sim/test_sim [--seeds N] [--from SEED]      all of it
 *	tests/sim/test_sim --seed SEED [--debug]          one, with its event log
 *	tests/sim/test_sim --bug=NAME [--seeds N] …       the seeds with a planted bug: it is to fail
 *
 * SEEDS of the environment stands for --seeds. Exit code 0: all is well.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "tests/sim/pool.h"

#define SEEDS_DEFAULT 2000
/* From so many seeds on every kind of thing must have happened. */
#define SEEDS_FOR_ALL_KINDS 2000
/* So many seeds at most find each planted bug. */
#define BUG_SEEDS 100

#if defined(__SANITIZE_ADDRESS__)
/* What a killed replica has made is left behind on purpose. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

struct run {
	const char *program;
	struct world_options world;
	uint64_t from, seeds;
	bool one; /* --seed */
	uint32_t workers;
	/* Out. */
	uint64_t checks, failures, reported;
	uint64_t simulated_s, steps;
	bool hunting; /* for a planted bug: the first failure is what is wanted */
	uint64_t most_refused;
	struct world_counts counts;
	struct world_result last;
};

/* What happened, all of it. */
static void say_counts(const struct world_counts *counts)
{
#define X(name) printf(" %s %" PRIu64, #name, counts->name);
	WORLD_COUNTS(X)
#undef X
	printf("\n");
}

static void say_failure(const struct run *run, const struct pool_report *report)
{
	if (run->hunting) {
		printf("  found by seed %" PRIu64 ": %s\n", report->seed, report->result.failure);
		return;
	}
	printf("seed %" PRIu64 " FAILED: %s\n ", report->seed, report->result.failure);
	say_counts(&report->result.counts);
	printf("  replay it: %s --seed %" PRIu64, run->program, report->seed);
	if (run->world.bug)
		printf(" --bug=%s", world_bug_name(run->world.bug));
	printf("\n");
	fflush(stdout);
}

static bool run_report(void *user, const struct pool_report *report)
{
	struct run *run = user;
	bool failed = report->result.failure[0];

	run->checks++;
	run->reported++;
	run->failures += failed;
	run->steps += report->result.steps;
	run->simulated_s += (uint64_t)report->result.simulated_us / 1000000;
	if (report->result.most_refused > run->most_refused)
		run->most_refused = report->result.most_refused;
	run->last = report->result;
#define X(name) run->counts.name += report->result.counts.name;
	WORLD_COUNTS(X)
#undef X
	if (failed)
		say_failure(run, report);
	if (run->reported % 100 == 0) {
		printf("%" PRIu64 " seeds\n", run->reported);
		fflush(stdout);
	}
	return !(failed && run->hunting);
}

static void run_seeds(struct run *run, uint64_t from, uint64_t count)
{
	struct pool_options pool = {
		.world = run->world,
		.from = from,
		.count = count,
		.workers = run->workers,
		.report = run_report,
		.user = run,
	};

	pool_run(&pool);
}

/* The same seed gives the same run, whatever ran before it in the process. */
static void run_twice(struct run *run, const char *versions)
{
	struct run twice = *run;
	uint64_t digests[2];
	FILE *file;

	twice.failures = 0;
	run_seeds(&twice, run->from, 1);
	digests[0] = twice.last.digest;
	/* Alone above, behind others here. */
	twice.workers = 1;
	run_seeds(&twice, run->from > 3 ? run->from - 3 : 0, run->from > 3 ? 4 : run->from + 1);
	digests[1] = twice.last.digest;
	printf("seed %" PRIu64 ": event log %016" PRIx64 ", and again %016" PRIx64 "%s\n",
	       run->from, digests[0], digests[1], digests[0] == digests[1] ? "" : ": THEY DIFFER");
	run->checks++;
	run->failures += digests[0] != digests[1];
	file = versions ? fopen(versions, "a") : NULL;
	if (!file)
		return;
	fprintf(file,
		"%" PRIu64 " seeds, event log of seed %" PRIu64 " %016" PRIx64
		" and again %016" PRIx64 "\n",
		run->seeds, run->from, digests[0], digests[1]);
	fclose(file);
}

/* Each planted bug must be found. */
static void run_bugs(struct run *run)
{
	for (enum world_bug bug = BUG_NONE + 1; bug < BUG_COUNT; bug++) {
		struct run with = *run;

		with.world.bug = bug;
		with.hunting = true;
		with.failures = with.reported = 0;
		printf("planted bug %s:\n", world_bug_name(bug));
		run_seeds(&with, run->from, BUG_SEEDS);
		run->checks++;
		if (with.failures)
			continue;
		run->failures++;
		printf("planted bug %s was NOT FOUND in %d seeds\n", world_bug_name(bug),
		       BUG_SEEDS);
	}
}

/* Every kind of fault has struck. */
static void run_counted(struct run *run)
{
	bool all = true;

#define X(name) \
	if (!run->counts.name) { \
		printf("no %s in %" PRIu64 " seeds\n", #name, run->seeds); \
		all = false; \
	}
	WORLD_COUNTS(X)
#undef X
	run->checks++;
	run->failures += !all;
}

static int run_one(struct run *run)
{
	struct world_result result;

	run->world.seed = run->from;
	run->world.out = stdout;
	world_run(&run->world, &result);
	printf("seed %" PRIu64 ": %d replicas, %d orders, %d records;", run->from, result.replicas,
	       result.orders, result.records);
	say_counts(&result.counts);
	printf("event log %016" PRIx64 ", %" PRIu64 " steps, %" PRId64 " simulated seconds\n",
	       result.digest, result.steps, result.simulated_us / 1000000);
	if (result.failure[0])
		printf("FAILED: %s\n", result.failure);
	return result.failure[0] ? 1 : 0;
}

static int run_all(struct run *run, const char *versions)
{
	run_seeds(run, run->from, run->seeds);
	printf("%" PRIu64 " simulated seconds in %" PRIu64 " steps:", run->simulated_s, run->steps);
	say_counts(&run->counts);
	printf("at most %" PRIu64
	       " claims of one instance refused to one replica within a second\n",
	       run->most_refused);
	if (run->seeds >= SEEDS_FOR_ALL_KINDS)
		run_counted(run);
	if (!run->world.bug) {
		run_twice(run, versions);
		run_bugs(run);
	}
	printf("%d%%: Checks: %" PRIu64 ", Failures: %" PRIu64 ", Errors: 0\n",
	       (int)((run->checks - run->failures) * 100 / run->checks), run->checks,
	       run->failures);
	return run->failures ? 1 : 0;
}

/* --- the command line --- */

static const char *environment_find(char **environment, const char *name)
{
	size_t len = strlen(name);

	for (; *environment; environment++)
		if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
			return *environment + len + 1;
	return NULL;
}

/* The value of `--name=value` or `--name value`; NULL if it is another option. */
static const char *option(int argc, char **argv, int *at, const char *name)
{
	size_t len = strlen(name);
	const char *arg = argv[*at];

	if (strncmp(arg, name, len) != 0)
		return NULL;
	if (arg[len] == '=')
		return arg + len + 1;
	return arg[len] == '\0' && *at + 1 < argc ? argv[++*at] : NULL;
}

static bool parse_bug(struct run *run, const char *name)
{
	for (enum world_bug bug = BUG_NONE; bug < BUG_COUNT; bug++)
		if (strcmp(world_bug_name(bug), name) == 0) {
			run->world.bug = bug;
			return true;
		}
	fprintf(stderr, "there is no bug '%s'\n", name);
	return false;
}

static bool parse_number(const char *text, uint64_t *out)
{
	char *end;

	*out = strtoull(text, &end, 10);
	if (*text && !*end)
		return true;
	fprintf(stderr, "'%s' is not a number\n", text);
	return false;
}

static bool parse(struct run *run, int argc, char **argv, char **environment)
{
	const char *text = environment_find(environment, "SEEDS");

	if (text && *text && !parse_number(text, &run->seeds))
		return false;
	for (int i = 1; i < argc; i++) {
		bool right;

		if ((text = option(argc, argv, &i, "--seeds"))) {
			right = parse_number(text, &run->seeds);
		} else if ((text = option(argc, argv, &i, "--seed"))) {
			right = parse_number(text, &run->from);
			run->one = true;
		} else if ((text = option(argc, argv, &i, "--from"))) {
			right = parse_number(text, &run->from);
		} else if ((text = option(argc, argv, &i, "--bug"))) {
			right = parse_bug(run, text);
		} else if (strcmp(argv[i], "--debug") == 0) {
			right = run->world.debug = true;
		} else {
			fprintf(stderr,
				"usage: %s [--seeds N] [--from SEED] [--seed SEED [--debug]] "
				"[--bug=NAME]\n",
				argv[0]);
			right = false;
		}
		if (!right)
			return false;
	}
	return run->seeds > 0;
}

int main(int argc, char **argv, char **environment)
{
	struct run run = {.program = argv[0], .from = 1, .seeds = SEEDS_DEFAULT};
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (!parse(&run, argc, argv, environment))
		return 2;
	run.workers = cores > 1 ? (uint32_t)cores : 1;
	run.world.view = world_view_load();
	return run.one ? run_one(&run)
		       : run_all(&run, environment_find(environment, "SUTRA_TEST_VERSIONS"));
}
