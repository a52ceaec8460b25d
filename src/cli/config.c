/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra config`: the effective configuration, or the reference page that docs/configuration.md holds. */
#include "cli/commands.h"

int command_config(struct cli *cli)
{
	const char *path = NULL;
	bool json = false, reference = false;
	const struct cli_option options[] = {
		{"config", 'c', "FILE", "Read FILE instead of the usual places", .text = &path},
		{"json", 0, NULL, "Print JSON", .flag = &json},
		{"reference", 0, NULL, "Print the reference of all keys as Markdown",
		 .flag = &reference},
		{0},
	};
	struct config *config;
	int exit_code;

	if (!cli_parse(cli, options, 0, 0, &exit_code))
		return exit_code;
	if (reference) {
		config_reference(cli->out);
		return CLI_OK;
	}
	config = cli_config_load(cli, path);
	if (!config)
		return CLI_FAILED;
	config_print(config, json, cli->out);
	config_free(&config);
	return CLI_OK;
}
