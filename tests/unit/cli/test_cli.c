/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch, help, exit codes, the option parser. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "tests/support/testing.h"

/* One call of the program, with what it wrote. */
struct call {
	int exit_code;
	char *out;
	char *err;
};

static struct call call(const char *const *words, const char *const *environ_)
{
	struct call result = {0};
	char *argv[8] = {NULL};
	size_t out_len, err_len;
	FILE *out = open_memstream(&result.out, &out_len);
	FILE *err = open_memstream(&result.err, &err_len);
	int argc = 0;

	for (; words[argc]; argc++)
		argv[argc] = strdup(words[argc]);
	result.exit_code = cli_main(argc, argv, (char *const *)environ_, out, err);
	fclose(out);
	fclose(err);
	/* getopt may have put them into another order, but they are all there. */
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return result;
}

static void call_done(struct call *result)
{
	free(result->out);
	free(result->err);
}

static const struct {
	const char *words[7];
	int exit_code;
	const char *out; /* must occur; "" = must be empty */
	const char *err;
} cases[] = {
	{{"sutra"}, CLI_USAGE, "", "Usage: sutra COMMAND"},
	{{"sutra", "help"}, CLI_OK, "version ", ""},
	{{"sutra", "--help"}, CLI_OK, "Usage: sutra COMMAND", ""},
	{{"sutra", "help", "dead-letters"}, CLI_OK, "Usage: sutra dead-letters [OPTION]... list | show ID | replay ID", ""},
	{{"sutra", "instances", "dance"}, CLI_USAGE, "", "sutra instances: dance is none of list, show"},
	{{"sutra", "help", "config"}, CLI_OK, "--reference", ""},
	{{"sutra", "config", "--help"}, CLI_OK, "-c, --config FILE", ""},
	{{"sutra", "help", "dance"}, CLI_USAGE, "", "unknown command \"dance\""},
	{{"sutra", "dance"}, CLI_USAGE, "", "unknown command \"dance\""},
	{{"sutra", "version"}, CLI_OK, "libpq ", ""},
	{{"sutra", "--version"}, CLI_OK, "libpq ", ""},
	{{"sutra", "version", "--json"}, CLI_OK, "{\"version\":\"", ""},
	{{"sutra", "version", "x"}, CLI_USAGE, "", "sutra version: \"x\" is one argument too many"},
	{{"sutra", "config", "-q"}, CLI_USAGE, "", "sutra config: unknown option -q"},
	{{"sutra", "config", "--quiet"}, CLI_USAGE, "", "sutra config: wrong option --quiet"},
	{{"sutra", "config", "--config"}, CLI_USAGE, "", "sutra config: --config needs a value"},
	{{"sutra", "config", "-c", "a", "-c", "b"}, CLI_USAGE, "", "--config is given too often"},
	{{"sutra", "config", "-c", "/nonexistent"},
	 CLI_FAILED,
	 "",
	 "/nonexistent: SUTRA.CONFIG.PROPERTY.INVALID"},
	{{"sutra", "config", "-c", "/dev/null"}, CLI_OK, "engine.shards = 1  # default", ""},
	{{"sutra", "config", "--reference"}, CLI_OK, "# Configuration", ""},
};

static void occurs(const char *have, const char *want)
{
	if (*want)
		ck_assert_msg(strstr(have, want) != NULL, "have '%s', want '%s'", have, want);
	else
		ck_assert_str_eq(have, "");
}

START_TEST(cli_calls)
{
	static const char *const environ_[] = {NULL};
	struct call result = call(cases[_i].words, environ_);

	ck_assert_int_eq(result.exit_code, cases[_i].exit_code);
	occurs(result.out, cases[_i].out);
	occurs(result.err, cases[_i].err);
	call_done(&result);
}
END_TEST

/* Warnings are said, and do not fail the command. */
START_TEST(cli_warning)
{
	static const char *const words[] = {"sutra", "config", "-c", "/dev/null", NULL};
	static const char *const environ_[] = {"SUTRA_WEATHER=fine", NULL};
	struct call result = call(words, environ_);

	ck_assert_int_eq(result.exit_code, CLI_OK);
	occurs(result.err, "SUTRA_WEATHER: SUTRA.CONFIG.PROPERTY.UNKNOWN_ENV");
	call_done(&result);
}
END_TEST

START_TEST(cli_output_lost)
{
	static char name[] = "sutra", command[] = "version";
	char *argv[] = {name, command, NULL};
	char *environ_[] = {NULL};
	FILE *out = fopen("/dev/full", "w");
	FILE *err = fopen("/dev/null", "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_int_eq(cli_main(2, argv, environ_, out, err), CLI_FAILED);
	fclose(out);
	fclose(err);
}
END_TEST

static int parse(char **argv, int argc, int operands_max, const char **file, bool *flag,
		 const char **texts, struct cli *cli)
{
	static const struct cli_command command = {"thing", "A...", "Do a thing", NULL};
	const struct cli_option options[] = {
		{"file", 'f', "FILE", "File", .text = file},
		{"flag", 'x', NULL, "Flag", .flag = flag},
		{"set", 0, "TEXT", "Set", .texts = texts, .text_max = 3},
		{0},
	};
	FILE *null = fopen("/dev/null", "w");
	int exit_code = -1;
	bool parsed;

	*cli = (struct cli){
		.command = &command, .argc = argc, .argv = argv, .out = null, .err = null};
	parsed = cli_parse(cli, options, 1, operands_max, &exit_code);
	fclose(null);
	return parsed ? -1 : exit_code;
}

START_TEST(cli_parse_options)
{
	static char words[][16] = {"thing", "one",     "--set", "a",   "-xf",
				   "name",  "--set=b", "--",    "-two"};
	const char *file = NULL, *texts[3] = {NULL};
	char *argv[ARRAY_LEN(words) + 1] = {NULL};
	bool flag = false;
	struct cli cli;

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		argv[i] = words[i];
	ck_assert_int_eq(parse(argv, ARRAY_LEN(words), 2, &file, &flag, texts, &cli), -1);
	ck_assert_str_eq(file, "name");
	ck_assert(flag);
	ck_assert_str_eq(texts[0], "a");
	ck_assert_str_eq(texts[1], "b");
	ck_assert_ptr_null(texts[2]);
	ck_assert_int_eq(cli.argc, 2);
	ck_assert_str_eq(cli.argv[0], "one");
	ck_assert_str_eq(cli.argv[1], "-two");
	/* One more than the array holds. */
	file = NULL;
	ck_assert_int_eq(parse(argv, 4, 2, &file, &flag, texts, &cli), CLI_USAGE);
	/* No operand. */
	ck_assert_int_eq(parse(argv, 1, 2, &file, &flag, texts, &cli), CLI_USAGE);
}
END_TEST

static Suite *cli_suite(void)
{
	Suite *suite = suite_create("cli");
	TCase *tcase = tcase_create("cli");

	tcase_add_loop_test(tcase, cli_calls, 0, ARRAY_LEN(cases));
	TEST_ADD_ALL(tcase, cli_warning, cli_output_lost, cli_parse_options);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(cli_suite)
