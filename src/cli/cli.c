/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the subcommand and hands it its arguments. What all commands have in common stands here: help, usage errors,
 * option parsing, loading the configuration.
 */
#include "cli/cli.h"

#include <getopt.h>
#include <string.h>

#include "cli/commands.h"

static const struct cli_command commands[] = {
#define X(name, operands, help) {#name, operands, help, command_##name},
#define N(identifier, name, operands, help) {name, operands, help, command_##identifier},
	CLI_COMMANDS(X, N)
#undef X
#undef N
};

/* getopt_long's own characters stay below these. */
#define OPTION_HELP  1000
#define OPTION_FIRST 1001
#define OPTIONS_MAX  32

static void usage_print(FILE *out)
{
	fputs("Usage: sutra COMMAND [OPTION]... [ARGUMENT]...\n\nCommands:\n", out);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(out, "  %-16s %s\n", commands[i].name, commands[i].help);
	fprintf(out, "  %-16s %s\n", "help", "Print this, or the help of a command");
	fputs("\n`sutra COMMAND --help` describes a command; sutra(1) and docs/ say more.\n"
	      "Exit status: 0 done, 1 failed or something found, 2 called wrongly.\n",
	      out);
}

static const struct cli_command *command_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static void command_help(const struct cli *cli, const struct cli_option *options)
{
	const struct cli_command *command = cli->command;

	fprintf(cli->out, "Usage: sutra %s [OPTION]...%s%s\n\n%s.\n\nOptions:\n", command->name,
		*command->operands ? " " : "", command->operands, command->help);
	for (; options->name; options++) {
		char names[64];

		snprintf(names, sizeof(names), "%s%c%s--%s%s%s", options->letter ? "-" : "   ",
			 options->letter ? options->letter : ' ', options->letter ? ", " : "",
			 options->name, options->value ? " " : "",
			 options->value ? options->value : "");
		fprintf(cli->out, "  %-28s %s\n", names, options->help);
	}
	fprintf(cli->out, "      %-24s %s\n", "--help", "Print this");
}

static bool usage_error(const struct cli *cli, int *exit_code)
{
	fprintf(cli->err, "Try `sutra %s --help`.\n", cli->command->name);
	*exit_code = CLI_USAGE;
	return false;
}

/* Translates our rows for getopt_long. */
static void getopt_rows(const struct cli_option *options, struct option *rows, char *letters)
{
	*letters++ = ':';
	for (size_t i = 0; options[i].name; i++) {
		assert(i + 2 < OPTIONS_MAX);
		*rows++ = (struct option){options[i].name,
					  options[i].value ? required_argument : no_argument, NULL,
					  OPTION_FIRST + (int)i};
		if (options[i].letter)
			*letters++ = options[i].letter;
		if (options[i].letter && options[i].value)
			*letters++ = ':';
	}
	*rows++ = (struct option){"help", no_argument, NULL, OPTION_HELP};
	*rows = (struct option){0};
	*letters = '\0';
}

static const struct cli_option *option_found(const struct cli_option *options, int found)
{
	if (found >= OPTION_FIRST)
		return &options[found - OPTION_FIRST];
	for (; options->name; options++) {
		if (options->letter == found)
			return options;
	}
	return NULL;
}

/* False with a message if it was given too often. */
static bool option_apply(const struct cli *cli, const struct cli_option *option, const char *value)
{
	size_t count = 0;

	if (option->flag) {
		*option->flag = true;
		return true;
	}
	if (option->text && !*option->text) {
		*option->text = value;
		return true;
	}
	if (option->texts) {
		while (count < option->text_max && option->texts[count])
			count++;
		if (count + 1 < option->text_max) {
			option->texts[count] = value;
			option->texts[count + 1] = NULL;
			return true;
		}
	}
	fprintf(cli->err, "sutra %s: --%s is given too often\n", cli->command->name, option->name);
	return false;
}

bool cli_parse(struct cli *cli, const struct cli_option *options, int operands_min,
	       int operands_max, int *exit_code)
{
	struct option rows[OPTIONS_MAX];
	char letters[2 * OPTIONS_MAX + 2];
	int found;

	getopt_rows(options, rows, letters);
	/* 0 also resets what glibc remembers from an earlier call. */
	optind = 0;
	while ((found = getopt_long(cli->argc, cli->argv, letters, rows, NULL)) != -1) {
		const struct cli_option *option = option_found(options, found);

		if (found == OPTION_HELP) {
			command_help(cli, options);
			*exit_code = CLI_OK;
			return false;
		}
		if (found == ':') {
			fprintf(cli->err, "sutra %s: %s needs a value\n", cli->command->name,
				cli->argv[optind - 1]);
			return usage_error(cli, exit_code);
		}
		if (!option) {
			if (optopt > 0 && optopt < OPTION_HELP)
				fprintf(cli->err, "sutra %s: unknown option -%c\n",
					cli->command->name, optopt);
			else
				fprintf(cli->err, "sutra %s: wrong option %s\n", cli->command->name,
					cli->argv[optind - 1]);
			return usage_error(cli, exit_code);
		}
		if (!option_apply(cli, option, optarg))
			return usage_error(cli, exit_code);
	}
	cli->argc -= optind;
	cli->argv += optind;
	if (cli->argc < operands_min || cli->argc > operands_max) {
		if (cli->argc < operands_min)
			fprintf(cli->err, "sutra %s: an argument is missing: %s\n",
				cli->command->name, cli->command->operands);
		else
			fprintf(cli->err, "sutra %s: \"%s\" is one argument too many\n",
				cli->command->name, cli->argv[operands_max]);
		return usage_error(cli, exit_code);
	}
	return true;
}

struct config *cli_config_load(struct cli *cli, const char *path)
{
	struct config_findings findings = {.text = BUF_INIT};
	struct config *config = NULL;
	enum result result = config_load(path, cli->environ_, &config, &findings);

	if (findings.text.len)
		fwrite(findings.text.data, 1, findings.text.len, cli->err);
	buf_done(&findings.text);
	return result == RESULT_OK ? config : NULL;
}

/* `sutra help`, `sutra help COMMAND`. */
static int help_run(struct cli *cli)
{
	char help[] = "--help";
	char *argv[3] = {NULL, help, NULL};

	if (cli->argc < 2) {
		usage_print(cli->out);
		return CLI_OK;
	}
	cli->command = command_find(cli->argv[1]);
	if (!cli->command) {
		fprintf(cli->err, "sutra: unknown command \"%s\"\n", cli->argv[1]);
		return CLI_USAGE;
	}
	argv[0] = cli->argv[1];
	cli->argc = 2;
	cli->argv = argv;
	return cli->command->run(cli);
}

int cli_main(int argc, char **argv, char *const *environ_, FILE *out, FILE *err)
{
	struct cli cli = {
		.argc = argc - 1, .argv = argv + 1, .environ_ = environ_, .out = out, .err = err};
	int exit_code;

	if (argc < 2) {
		usage_print(err);
		return CLI_USAGE;
	}
	if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
	    strcmp(argv[1], "-h") == 0) {
		exit_code = help_run(&cli);
	} else {
		cli.command = command_find(strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
		if (!cli.command) {
			fprintf(err, "sutra: unknown command \"%s\"\nTry `sutra help`.\n", argv[1]);
			return CLI_USAGE;
		}
		exit_code = cli.command->run(&cli);
	}
	/* What could not be written was not said: a full disk or a closed pipe is a failure. */
	if ((fflush(out) != 0 || ferror(out)) && exit_code == CLI_OK) {
		fputs("sutra: cannot write the output\n", err);
		return CLI_FAILED;
	}
	return exit_code;
}
