/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra lint`: everything that activation would refuse, and what looks wrong, with file and line. */
#include <string.h>

#include "cli/commands.h"
#include "cli/findings.h"
#include "model/package.h"

int command_lint(struct cli *cli)
{
	const struct cli_option options[] = {{0}};
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct deployment *deployment = NULL;
	struct package *package = NULL;
	int exit_code;

	if (!cli_parse(cli, options, 1, 1, &exit_code))
		return exit_code;
	if (package_read(cli->argv[0], &limits, &package, &findings) == RESULT_OK &&
	    package_build(package, &deployment, &findings) == RESULT_OK)
		fprintf(cli->err,
			"%s: %.*s %.*s of tenant %.*s: %u channels, %u processes, no errors\n",
			cli->argv[0], STR_ARG(deployment->module), STR_ARG(deployment->version),
			STR_ARG(deployment->tenant), deployment->channel_count,
			deployment->process_count);
	findings_print(&findings, cli->argv[0], cli->out);
	exit_code = findings.errors ? CLI_FAILED : CLI_OK;
	deployment_unref(&deployment);
	package_free(&package);
	findings_done(&findings);
	return exit_code;
}
