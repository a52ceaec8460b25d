/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a replica until a signal says stop: what `serve` and `dev` share.
 *
 * Life cycle: the call returns when the replica has stopped. Threads: main.
 */
#ifndef SUTRA_CLI_RUN_H
#define SUTRA_CLI_RUN_H

#include "cli/cli.h"

/* The value of an environment variable, or NULL. */
const char *run_environment(const struct cli *cli, const char *name);

/* Blocks the signals that end a replica. Before any thread is started. */
void run_block_signals(void);

/*
 * Starts a replica with this configuration, tries again while its database is away, and runs it until SIGTERM or SIGINT; a
 * second signal ends the process at once. `port_file` (may be NULL) receives the admin port. Returns the exit code.
 */
int run_replica(struct cli *cli, const struct config *config, const char *port_file);

/* Writes a small file as a whole (by a rename). False, said on cli->err, if it cannot. */
bool run_write_file(struct cli *cli, const char *path, const char *text) MUST_CHECK;

#endif
