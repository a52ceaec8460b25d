/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands, in the order of the usage text: X(name, operands, one line of help), or N(identifier, name, operands, help)
 * where the name is no identifier. A command `name` is the function command_name in src/cli/name.c; adding one is a line here
 * and that file.
 */
#ifndef SUTRA_CLI_COMMANDS_H
#define SUTRA_CLI_COMMANDS_H

#include "cli/cli.h"

#define CLI_COMMANDS(X, N) \
	X(serve, "", "Run a replica until it is told to stop") \
	X(dev, "[PACKAGE]...", "Run packages on embedded defaults: a Kafka broker and a store in memory") \
	X(lint, "DIR|FILE", "Check a package folder or archive and report every problem with its line") \
	X(package, "DIR", "Check a package folder and write its archive") \
	X(migrate, "", "Bring the schema of the database up to date") \
	X(doctor, "", "Check everything that a deployment needs, and say how to mend what is wrong") \
	X(instances, "list | show ID | cancel ID | restore ID | complete ID NODE", \
	  "List instances, show where one stands, cancel or restore it, complete its user tasks") \
	X(outbox, "list | retry ID", "List what is to be sent, and have it tried again") \
	N(dead_letters, "dead-letters", "list | show ID | replay ID", \
	  "List what could not be processed, show it, and send it through intake again") \
	X(why, "message|instance|channel ID", "Ask replicas why something does not move, and what to do about it") \
	X(config, "", "Print the effective configuration and where each value is from") \
	X(version, "", "Print the versions of sutra and of the libraries it runs with")

#define X(name, operands, help) int command_##name(struct cli *cli);
#define N(identifier, name, operands, help) int command_##identifier(struct cli *cli);
CLI_COMMANDS(X, N)
#undef X
#undef N

/* migrate.c: brings the schema of datasource.url up to date; says what it does on cli->out, errors on cli->err. An exit code. */
int migrate_apply(struct cli *cli, const struct config *config);

#endif
