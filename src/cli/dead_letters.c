/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra dead-letters`: what could not be processed, and sending it through intake again. */
#include "cli/commands.h"
#include "cli/listing.h"

static void list_row(struct remote *remote, const msgpack_object *one, struct table *table)
{
	table_cell(table, remote_text(one, "id"));
	table_cell(table, remote_time(remote, remote_text(one, "createdAt")));
	table_cell(table, remote_text(one, "tenant"));
	table_cell(table, remote_text(one, "channel"));
	table_cell(table, remote_text(one, "source"));
	table_cell(table, remote_text(one, "code"));
	table_cell(table, remote_text(one, "instance"));
	table_cell(table, remote_text(one, "detail"));
}

static int list_run(struct remote *remote, const char *limit, const char *cursor)
{
	static const char *const heads[] = {"ID", "CREATED", "TENANT", "CHANNEL", "SOURCE", "CODE", "INSTANCE", "DETAIL", NULL};
	static const struct listing listing = {"deadLetters", heads, list_row};
	struct buf path = BUF_INIT;
	int exit_code;

	buf_add_text(&path, "/admin/dead-letters");
	exit_code = listing_run(remote, &listing, &path, limit, cursor);
	buf_done(&path);
	return exit_code;
}

static void line(struct buf *out, const char *label, struct str text)
{
	if (!text.ptr)
		return;
	buf_printf(out, "  %-13s ", label);
	table_plain(out, text);
	buf_add_byte(out, '\n');
}

static void headers_print(struct buf *out, const msgpack_object_array *headers)
{
	for (uint32_t i = 0; i < headers->size; i++) {
		const msgpack_object *value = value_get(&headers->ptr[i], STR("value"));
		struct buf text = BUF_INIT;

		table_plain(&text, remote_text(&headers->ptr[i], "name"));
		buf_add_text(&text, ": ");
		if (value && value_as_str(value).ptr)
			buf_add_str(&text, value_as_str(value));
		else if (value)
			value_print(value, 1000, &text);
		line(out, i ? "" : "headers", buf_str(&text));
		buf_done(&text);
	}
}

static int show_run(struct remote *remote, const char *id)
{
	const msgpack_object *json = &remote->answer;
	struct buf out = BUF_INIT;
	struct str text;

	if (!remote_get(remote, remote_path(remote, "/admin/dead-letters/", id, "")))
		return CLI_FAILED;
	if (remote_print_json(remote))
		return CLI_OK;
	buf_printf(&out, "dead letter %s\n", id);
	line(&out, "why", remote_text(json, "code"));
	line(&out, "", remote_text(json, "detail"));
	line(&out, "tenant", remote_text(json, "tenant"));
	line(&out, "channel", remote_text(json, "channel"));
	line(&out, "source", remote_text(json, "source"));
	line(&out, "event id", remote_text(json, "eventId"));
	line(&out, "message type", remote_text(json, "messageType"));
	line(&out, "instance", remote_text(json, "instance"));
	line(&out, "created", remote_time(remote, remote_text(json, "createdAt")));
	line(&out, "replays", str_of(arena_printf(&remote->arena, "%lld", (long long)remote_int(json, "replays"))));
	line(&out, "record key", remote_text(json, "recordKey"));
	line(&out, "content type", remote_text(json, "contentType"));
	headers_print(&out, remote_list(json, "headers"));
	text = remote_text(json, "payload");
	line(&out, text.ptr ? "payload" : "payload (b64)", text.ptr ? text : remote_text(json, "payloadBase64"));
	fwrite(out.data, 1, out.len, remote->cli->out);
	buf_done(&out);
	return CLI_OK;
}

static int replay_run(struct remote *remote, const char *id)
{
	if (!remote_post(remote, remote_path(remote, "/admin/dead-letters/", id, "/replay"), STR_NONE))
		return CLI_FAILED;
	if (!remote_print_json(remote))
		fprintf(remote->cli->out, "%s: goes through channel %.*s again within seconds, as event %.*s; it is gone when that has had its "
			"effect\n", id, STR_ARG(remote_text(&remote->answer, "channel")),
			STR_ARG(remote_text(&remote->answer, "eventId")));
	return CLI_OK;
}

int command_dead_letters(struct cli *cli)
{
	struct remote remote = REMOTE_INIT(cli);
	const char *limit = NULL, *cursor = NULL;
	const struct cli_option options[] = {
		REMOTE_OPTIONS(remote),
		{"limit", 'n', "N", "list: at most so many, 100 unless given", .text = &limit},
		{"cursor", 0, "CURSOR", "list: go on behind the page that gave it", .text = &cursor},
		{0},
	};
	bool lists, shows, replays;
	int exit_code;

	if (!cli_parse(cli, options, 1, 2, &exit_code))
		return exit_code;
	lists = strcmp(cli->argv[0], "list") == 0 && cli->argc == 1;
	shows = strcmp(cli->argv[0], "show") == 0 && cli->argc == 2 && !limit && !cursor;
	replays = strcmp(cli->argv[0], "replay") == 0 && cli->argc == 2 && !limit && !cursor;
	if (!lists && !shows && !replays) {
		fprintf(cli->err, "sutra dead-letters: it is `list`, with or without its options, `show ID` or `replay ID`\n"
			"Try `sutra dead-letters --help`.\n");
		return CLI_USAGE;
	}
	if (!remote_start(&remote))
		return remote_end(&remote, CLI_USAGE);
	if (lists)
		return remote_end(&remote, list_run(&remote, limit, cursor));
	return remote_end(&remote, (shows ? show_run : replay_run)(&remote, cli->argv[1]));
}
