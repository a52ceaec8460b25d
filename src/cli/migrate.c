/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra migrate`: brings the schema of the database up to date. */
#include "cli/commands.h"
#include "store/executor.h"

static void say_line(const char *line, void *arg)
{
	struct cli *cli = arg;

	fprintf(cli->out, "%s\n", line);
	fflush(cli->out);
}

static int migrate_run(struct cli *cli, const struct config *config, bool dry_run)
{
	const char *url = config_text(config, "datasource.url"), *owner_url = config_text(config, "datasource.migrate-url");
	struct pg_migration migration = {.dry_run = dry_run, .say = say_line, .arg = cli};
	struct error err = ERROR_INIT;
	struct buf role = BUF_INIT;
	int exit_code = CLI_OK;

	if (!url) {
		fprintf(cli->err, "sutra migrate: datasource.url is not set\n");
		return CLI_FAILED;
	}
	if (!pg_url_user(url, &role)) {
		fprintf(cli->err, "sutra migrate: datasource.url names no user\n");
		buf_done(&role);
		return CLI_FAILED;
	}
	migration.engine_role = role.data;
	migration.url = owner_url ? owner_url : url;
	/* The password belongs to datasource.url; the owner's stands in migrate-url. */
	migration.password = owner_url ? NULL : config_text(config, "datasource.password");
	if (pg_migrate(&migration, &err) != RESULT_OK) {
		fprintf(cli->err, "sutra migrate: %s: %s\n", code_text(err.code), err.text);
		exit_code = CLI_FAILED;
	}
	buf_done(&role);
	return exit_code;
}

int migrate_apply(struct cli *cli, const struct config *config)
{
	return migrate_run(cli, config, false);
}

int command_migrate(struct cli *cli)
{
	const char *file = NULL;
	bool dry_run = false;
	const struct cli_option options[] = {
		{"config", 'c', "FILE", "Read FILE instead of the usual places", .text = &file},
		{"dry-run", 0, NULL, "Only say what would be applied", .flag = &dry_run},
		{0},
	};
	struct config *config;
	int exit_code;

	if (!cli_parse(cli, options, 0, 0, &exit_code))
		return exit_code;
	config = cli_config_load(cli, file);
	if (!config)
		return CLI_FAILED;
	exit_code = migrate_run(cli, config, dry_run);
	config_free(&config);
	return exit_code;
}
