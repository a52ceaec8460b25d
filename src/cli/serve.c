/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sutra serve: one replica.
 */
#include "cli/commands.h"
#include "cli/run.h"

int command_serve(struct cli *cli)
{
	const char *file = NULL, *port_file = NULL;
	const struct cli_option options[] = {
		{"config", 'c', "FILE", "Read FILE instead of the usual places", .text = &file},
		{"port-file", 0, "FILE", "Write the port of the admin listener to FILE", .text = &port_file},
		{0},
	};
	struct config *config;
	int exit_code;

	if (!cli_parse(cli, options, 0, 0, &exit_code))
		return exit_code;
	run_block_signals();
	config = cli_config_load(cli, file);
	if (!config)
		return CLI_FAILED;
	exit_code = CLI_OK;
	if (config_bool(config, "datasource.migrate") && config_text(config, "datasource.url"))
		exit_code = migrate_apply(cli, config);
	if (exit_code == CLI_OK)
		exit_code = run_replica(cli, config, port_file);
	config_free(&config);
	return exit_code;
}
