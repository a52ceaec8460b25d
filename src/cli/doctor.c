/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra doctor`: looks at everything that a deployment needs, before it is needed, and says how to mend what it finds. */
#include "cli/doctor.h"

#include "base/time.h"
#include "cli/commands.h"

void doctor_init(struct doctor *doctor, const struct config *config)
{
	*doctor = (struct doctor){.config = config, .transport = transport_find, .database = pg_examine};
	report_init(&doctor->report);
	arena_init(&doctor->arena);
}

void doctor_done(struct doctor *doctor)
{
	for (uint32_t i = 0; i < doctor->deployment_count; i++)
		deployment_unref(&doctor->deployments[i]);
	report_done(&doctor->report);
	arena_done(&doctor->arena);
}

static void doctor_database(struct doctor *doctor)
{
	const struct config *config = doctor->config;
	const struct pg_examination settings = {
		.url = config_text(config, "datasource.url"),
		.password = config_text(config, "datasource.password"),
		.prepare = config_bool(config, "datasource.prepare"),
		.check_rls = config_bool(config, "persistence.rls-bypass-check.enabled"),
		.step_connections = (uint32_t)config_int(config, "datasource.pool-size"),
		.inbox_retention_ms = config_ms(config, "inbox.retention"),
		.wall_us = time_wall_us,
	};

	report_area(&doctor->report, "database");
	if (settings.url) {
		doctor->database(&settings, &doctor->report);
		return;
	}
	report_add(&doctor->report, SEVERITY_WARNING, CODE_STARTUP_MEMORY_STORE, "memory-store", NULL,
		   "datasource.url is not set: everything is kept in memory and lost at exit");
	report_remedy(&doctor->report, "set datasource.url, and run `sutra migrate`");
}

void doctor_run(struct doctor *doctor)
{
	doctor_engine(doctor);
	doctor_packages(doctor);
	doctor_database(doctor);
	doctor_connections(doctor);
}

int command_doctor(struct cli *cli)
{
	const char *path = NULL;
	bool json = false;
	const struct cli_option options[] = {
		{"config", 'c', "FILE", "Read FILE instead of the usual places", .text = &path},
		{"json", 0, NULL, "Print JSON", .flag = &json},
		{0},
	};
	struct doctor doctor;
	struct config *config;
	int exit_code;

	if (!cli_parse(cli, options, 0, 0, &exit_code))
		return exit_code;
	/* A configuration that cannot be read leaves nothing to look at. */
	config = cli_config_load(cli, path);
	if (!config)
		return CLI_USAGE;
	doctor_init(&doctor, config);
	doctor_run(&doctor);
	doctor_print(&doctor.report, json, cli->out);
	exit_code = doctor.report.errors ? CLI_FAILED : CLI_OK;
	doctor_done(&doctor);
	config_free(&config);
	return exit_code;
}
