/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: one table of subcommands (commands.h), one option parser, one set of exit codes.
 *
 * A command looks like this:
 *
 *	int command_thing(struct cli *cli)
 *	{
 *		const char *file = NULL;
 *		bool json = false;
 *		const struct cli_option options[] = {
 *			{"file", 'f', "FILE", "Read FILE", .text = &file},
 *			{"json", 0, NULL, "Print JSON", .flag = &json},
 *			{0},
 *		};
 *		int exit_code;
 *
 *		if (!cli_parse(cli, options, 0, 1, &exit_code))
 *			return exit_code;
 *		…
 *	}
 *
 * Life cycle: a struct cli lives on the stack of cli_main. Threads: main only (getopt keeps static state).
 */
#ifndef SUTRA_CLI_CLI_H
#define SUTRA_CLI_CLI_H

#include <stdio.h>

#include "base/attr.h"
#include "config/config.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1, /* it was tried and failed, or found something */
	CLI_USAGE = 2,  /* called wrongly; nothing was tried */
};

struct cli {
	const struct cli_command *command;
	int argc; /* of the command: argv[0] is its name; after cli_parse: the operands alone */
	char **argv;
	char *const *environ_;
	FILE *out;
	FILE *err;
};

struct cli_command {
	const char *name;
	const char *operands; /* for the usage text, "" for none */
	const char *help;
	int (*run)(struct cli *cli);
};

/* Exactly one of `flag` and `text` is set. `text` may be given once. */
struct cli_option {
	const char *name;  /* long, without dashes */
	char letter;       /* 0: none */
	const char *value; /* what the value is called, NULL for a flag */
	const char *help;
	bool *flag;
	const char **text; /* borrowed from argv */
	/* An option that may be repeated: appended here, NULL-terminated, up to text_max - 1; more is a usage error. */
	const char **texts;
	size_t text_max;
};

/*
 * Parses the command's options (an array that ends with an all-zero row) and leaves `operands_min` to `operands_max`
 * operands in cli->argc and cli->argv. False: print nothing more and return `*exit_code`: --help was asked for (CLI_OK) or
 * the call was wrong (CLI_USAGE, said on cli->err). Options may stand behind operands; "--" ends them.
 */
bool cli_parse(struct cli *cli, const struct cli_option *options, int operands_min,
	       int operands_max, int *exit_code) MUST_CHECK;

/*
 * Loads the configuration for a command; `path` may be NULL (the usual places). Findings, and warnings too, go to
 * cli->err. NULL: there were errors, return CLI_FAILED. The caller ends it with config_free.
 */
struct config *cli_config_load(struct cli *cli, const char *path) MUST_CHECK;

/* All of the command line; returns the exit code of the process. `out` and `err` are stdout and stderr but in tests. */
int cli_main(int argc, char **argv, char *const *environ_, FILE *out, FILE *err);

#endif
