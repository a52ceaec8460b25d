/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra outbox`: what is not sent yet, and having it tried again. */
#include "cli/commands.h"
#include "cli/listing.h"

static void list_row(struct remote *remote, const msgpack_object *one, struct table *table)
{
	const msgpack_object *diagnostic = value_get(one, STR("diagnostic"));
	struct buf text = BUF_INIT;

	if (diagnostic && !value_is_nil(diagnostic))
		value_print(diagnostic, 120, &text);
	table_cell(table, remote_text(one, "id"));
	table_cell(table, remote_text(one, "state"));
	table_cell(table, remote_text(one, "tenant"));
	table_cell(table, remote_text(one, "channel"));
	table_cell(table, remote_text(one, "instance"));
	table_cell(table, str_of(arena_printf(&remote->arena, "%lld", (long long)remote_int(one, "attempts"))));
	table_cell(table, remote_time(remote, remote_text(one, "createdAt")));
	table_cell(table, remote_time(remote, remote_text(one, "nextAttemptAt")));
	table_cell(table, text.len ? buf_str(&text) : STR_NONE);
	buf_done(&text);
}

static int list_run(struct remote *remote, const char *limit, const char *cursor)
{
	static const char *const heads[] = {"ID",       "STATE",   "TENANT", "CHANNEL",    "INSTANCE",
					    "ATTEMPTS", "CREATED", "NEXT",   "DIAGNOSTIC", NULL};
	static const struct listing listing = {"outbox", heads, list_row};
	struct buf path = BUF_INIT;
	int exit_code;

	buf_add_text(&path, "/admin/outbox");
	exit_code = listing_run(remote, &listing, &path, limit, cursor);
	buf_done(&path);
	return exit_code;
}

static int retry_run(struct remote *remote, const char *id)
{
	if (!remote_post(remote, remote_path(remote, "/admin/outbox/", id, "/retry"), STR_NONE))
		return CLI_FAILED;
	if (!remote_print_json(remote))
		fprintf(remote->cli->out, "%s: was %.*s after %lld attempts, is tried again in a moment\n", id,
			STR_ARG(remote_text(&remote->answer, "was")), (long long)remote_int(&remote->answer, "attempts"));
	return CLI_OK;
}

int command_outbox(struct cli *cli)
{
	struct remote remote = REMOTE_INIT(cli);
	const char *limit = NULL, *cursor = NULL;
	const struct cli_option options[] = {
		REMOTE_OPTIONS(remote),
		{"limit", 'n', "N", "list: at most so many, 100 unless given", .text = &limit},
		{"cursor", 0, "CURSOR", "list: go on behind the page that gave it", .text = &cursor},
		{0},
	};
	bool lists, retries;
	int exit_code;

	if (!cli_parse(cli, options, 1, 2, &exit_code))
		return exit_code;
	lists = strcmp(cli->argv[0], "list") == 0 && cli->argc == 1;
	retries = strcmp(cli->argv[0], "retry") == 0 && cli->argc == 2 && !limit && !cursor;
	if (!lists && !retries) {
		fprintf(cli->err, "sutra outbox: it is `list`, with or without its options, or `retry ID`\nTry `sutra outbox --help`.\n");
		return CLI_USAGE;
	}
	if (!remote_start(&remote))
		return remote_end(&remote, CLI_USAGE);
	return remote_end(&remote, lists ? list_run(&remote, limit, cursor) : retry_run(&remote, cli->argv[1]));
}
