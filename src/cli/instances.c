/* SPDX-License-Identifier: Apache-2.0 */
/* `sutra instances`: what runs, where it stands, and the commands that an operator has for it. */
#include "base/time.h"
#include "cli/commands.h"
#include "cli/instance_tree.h"
#include "cli/listing.h"

/* As much as codec.max-payload-bytes may be. */
#define PAYLOAD_MAX (256u << 20)

struct instances {
	struct remote remote;
	/* list */
	const char *status, *deployment, *alias, *limit, *cursor;
	bool all;
	/* complete */
	const char *payload, *payload_file;
};

/* --- list --- */

static void list_row(struct remote *remote, const msgpack_object *one, struct table *table)
{
	const msgpack_object *claim = value_get(one, STR("claim"));

	table_cell(table, remote_text(one, "id"));
	table_cell(table, remote_text(one, "status"));
	table_cell(table, remote_text(one, "process"));
	table_cell(table, remote_text(one, "tenant"));
	table_cell(table, remote_time(remote, remote_text(one, "startedAt")));
	table_cell(table, remote_text(one, "code"));
	table_cell(table, claim ? remote_text(claim, "owner") : STR_NONE);
}

static int list_run(struct instances *in)
{
	static const char *const heads[] = {"ID", "STATUS", "PROCESS", "TENANT", "STARTED", "CODE", "CLAIM", NULL};
	static const struct listing listing = {"instances", heads, list_row};
	struct buf path = BUF_INIT;
	struct str alias = in->alias ? str_of(in->alias) : STR_NONE;
	char *copy = in->alias ? arena_strdup(&in->remote.arena, in->alias) : NULL;
	int exit_code;

	if (alias.ptr && str_find(alias, '=') <= 0) {
		fprintf(in->remote.cli->err, "sutra instances: --alias is NAME=VALUE\n");
		return CLI_USAGE;
	}
	if (copy)
		copy[str_find(alias, '=')] = ':';
	buf_add_text(&path, "/admin/instances");
	remote_query(&path, "status", in->status);
	remote_query(&path, "deployment", in->deployment);
	remote_query(&path, "alias", copy);
	remote_query(&path, "includeTerminal", in->all ? "true" : NULL);
	exit_code = listing_run(&in->remote, &listing, &path, in->limit, in->cursor);
	buf_done(&path);
	return exit_code;
}

/* --- one --- */

static int show_run(struct instances *in, const char *id)
{
	struct remote *remote = &in->remote;
	struct buf out = BUF_INIT;

	if (!remote_get(remote, remote_path(remote, "/admin/instances/", id, "")))
		return CLI_FAILED;
	if (remote_print_json(remote))
		return CLI_OK;
	instance_tree_print(&remote->answer, time_wall_us(), &out);
	fwrite(out.data, 1, out.len, remote->cli->out);
	buf_done(&out);
	return CLI_OK;
}

/* Says what became of it. Whoever completed a task and finds the instance FAILED has not got what he wanted. */
static int command_done(struct remote *remote, const char *id)
{
	struct str status = remote_text(&remote->answer, "status");
	bool failed = str_equal(status, STR("FAILED"));
	struct buf out = BUF_INIT;

	if (!remote_print_json(remote)) {
		buf_printf(&out, "%s: ", id);
		table_plain(&out, status);
		if (failed) {
			buf_printf(&out, ": %.*s: ", STR_ARG(remote_text(&remote->answer, "code")));
			table_plain(&out, remote_text(&remote->answer, "detail"));
		}
		fprintf(remote->cli->out, "%.*s\n", (int)out.len, out.data);
	}
	buf_done(&out);
	return failed ? CLI_FAILED : CLI_OK;
}

static int command_run(struct instances *in, const char *id, const char *action, struct str body)
{
	struct remote *remote = &in->remote;

	if (!remote_post(remote, remote_path(remote, "/admin/instances/", id, action), body))
		return CLI_FAILED;
	return command_done(remote, id);
}

/* --- complete --- */

static bool payload_read(struct instances *in, struct buf *out)
{
	struct cli *cli = in->remote.cli;
	bool is_stdin, ok;
	FILE *file;
	size_t got;

	if (in->payload && in->payload_file) {
		fprintf(cli->err, "sutra instances: --payload and --payload-file exclude each other\n");
		return false;
	}
	if (in->payload)
		buf_add_text(out, in->payload);
	if (!in->payload_file)
		return true;
	is_stdin = strcmp(in->payload_file, "-") == 0;
	file = is_stdin ? stdin : fopen(in->payload_file, "re");
	if (!file) {
		fprintf(cli->err, "sutra instances: %s: %m\n", in->payload_file);
		return false;
	}
	while (out->len <= PAYLOAD_MAX && (got = fread(buf_reserve(out, 65536), 1, 65536, file)) > 0)
		out->len += got;
	ok = !ferror(file) && out->len <= PAYLOAD_MAX;
	if (!ok)
		fprintf(cli->err, "sutra instances: %s cannot be read, or is too large\n", in->payload_file);
	if (!is_stdin)
		fclose(file);
	return ok;
}

static int complete_run(struct instances *in, const char *id, const char *node)
{
	struct buf body = BUF_INIT;
	int exit_code = CLI_USAGE;

	if (payload_read(in, &body))
		exit_code = command_run(in, id, remote_path(&in->remote, "/waits/", node, "/complete"), buf_str(&body));
	buf_done(&body);
	return exit_code;
}

/* --- the command --- */

enum verb { VERB_LIST, VERB_SHOW, VERB_CANCEL, VERB_RESTORE, VERB_COMPLETE, VERB_NONE };

static enum verb verb_of(const char *word)
{
	static const char *const names[] = {"list", "show", "cancel", "restore", "complete"};
	enum verb verb = VERB_LIST;

	while (verb < VERB_NONE && strcmp(names[verb], word) != 0)
		verb++;
	return verb;
}

/* What is said wrongly; NULL: nothing. */
static const char *check(const struct instances *in, enum verb verb, int count)
{
	static const int operands[] = {
		[VERB_LIST] = 1, [VERB_SHOW] = 2, [VERB_CANCEL] = 2, [VERB_RESTORE] = 2, [VERB_COMPLETE] = 3};
	bool lists = in->status || in->deployment || in->alias || in->limit || in->cursor || in->all;

	if (verb == VERB_NONE)
		return "is none of list, show, cancel, restore, complete";
	if (count != operands[verb])
		return verb == VERB_LIST ? "takes no argument" : verb == VERB_COMPLETE ? "takes an id and a node" : "takes an id";
	if (lists && verb != VERB_LIST)
		return "takes none of the options of list";
	if ((in->payload || in->payload_file) && verb != VERB_COMPLETE)
		return "takes no payload";
	return NULL;
}

static int run(struct instances *in, enum verb verb, char **argv)
{
	if (!remote_start(&in->remote))
		return CLI_USAGE;
	switch (verb) {
	case VERB_LIST:
		return list_run(in);
	case VERB_SHOW:
		return show_run(in, argv[1]);
	case VERB_CANCEL:
		return command_run(in, argv[1], "/cancel", STR_NONE);
	case VERB_RESTORE:
		return command_run(in, argv[1], "/restore", STR_NONE);
	default:
		return complete_run(in, argv[1], argv[2]);
	}
}

int command_instances(struct cli *cli)
{
	struct instances in = {.remote = REMOTE_INIT(cli)};
	const struct cli_option options[] = {
		REMOTE_OPTIONS(in.remote),
		{"status", 0, "STATUS", "list: those that are SUSPENDED, FAILED, COMPLETED or TERMINATED", .text = &in.status},
		{"deployment", 0, "ID", "list: those of this deployment", .text = &in.deployment},
		{"alias", 0, "NAME=VALUE", "list: those that carry this alias", .text = &in.alias},
		{"all", 'a', NULL, "list: also those that have ended", .flag = &in.all},
		{"limit", 'n', "N", "list: at most so many, 100 unless given", .text = &in.limit},
		{"cursor", 0, "CURSOR", "list: go on behind the page that gave it", .text = &in.cursor},
		{"payload", 0, "JSON", "complete: what the task has come to; nothing is nil", .text = &in.payload},
		{"payload-file", 0, "FILE", "complete: the same from a file, - is standard input", .text = &in.payload_file},
		{0},
	};
	const char *wrong;
	enum verb verb;
	int exit_code;

	if (!cli_parse(cli, options, 1, 3, &exit_code))
		return exit_code;
	verb = verb_of(cli->argv[0]);
	wrong = check(&in, verb, cli->argc);
	if (wrong) {
		fprintf(cli->err, "sutra instances: %s %s\nTry `sutra instances --help`.\n", cli->argv[0], wrong);
		return CLI_USAGE;
	}
	return remote_end(&in.remote, run(&in, verb, cli->argv));
}
