/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws an instance: scope 0 is the process, tokens stand in scopes, and a token that holds has opened the scopes inside it.
 * A token beside another one (a boundary event, an arm of a gateway, an event sub-process) is drawn below its host.
 *
 *	order
 *	├─ Ship "Ship the goods" (sub-process)
 *	│  └─ Packed (receive task): waits for a message on warehouse, order = A-17
 *	│     or Late (boundary event): timer, due in 2 h (2026-11-30 14:00:00)
 *	└─ Approve (user task): …
 */
#include "cli/instance_tree.h"

#include "base/time.h"
#include "cli/remote.h"
#include "cli/table.h"

#define INDENT_MAX 200
/* Models nest less deep; what says otherwise is no instance. */
#define DEPTH_MAX 200

struct tree {
	const msgpack_object *json;
	const msgpack_object_array *tokens, *scopes;
	int64_t now_us;
	struct buf *out;
	char indent[INDENT_MAX]; /* what stands before the lines of this depth */
	uint32_t depth;
};

static void add(struct tree *tree, struct str text)
{
	table_plain(tree->out, text);
}

static void add_value(struct buf *out, const msgpack_object *value)
{
	struct buf text = BUF_INIT;

	value_print(value, 200, &text);
	table_plain(out, buf_str(&text));
	buf_done(&text);
}

/* --- parts of a line --- */

static void add_duration(struct buf *out, int64_t us)
{
	int64_t s = us / US_PER_S;

	if (s >= 86400)
		buf_printf(out, "%lld d %lld h", (long long)(s / 86400), (long long)(s % 86400 / 3600));
	else if (s >= 3600)
		buf_printf(out, "%lld h %lld min", (long long)(s / 3600), (long long)(s % 3600 / 60));
	else if (s >= 60)
		buf_printf(out, "%lld min %lld s", (long long)(s / 60), (long long)(s % 60));
	else
		buf_printf(out, "%lld s", (long long)s);
}

static void add_time(struct buf *out, struct str time)
{
	buf_printf(out, "%.10s %.8s", time.len >= 19 ? time.ptr : "?", time.len >= 19 ? time.ptr + 11 : "");
}

static void add_due(struct tree *tree, struct str due)
{
	int64_t us;

	if (!due.ptr || !time_parse(due, &us))
		return;
	if (us > tree->now_us) {
		buf_add_text(tree->out, "due in ");
		add_duration(tree->out, us - tree->now_us);
	} else {
		buf_add_text(tree->out, "due for ");
		add_duration(tree->out, tree->now_us - us);
	}
	buf_add_text(tree->out, " (");
	add_time(tree->out, due);
	buf_add_byte(tree->out, ')');
}

static void add_node(struct tree *tree, const msgpack_object *at)
{
	struct str name = remote_text(at, "name"), kind = remote_text(at, "kind");

	add(tree, remote_text(at, "node"));
	if (name.len && !str_equal(name, remote_text(at, "node"))) {
		buf_add_text(tree->out, " \"");
		add(tree, name);
		buf_add_byte(tree->out, '"');
	}
	if (kind.ptr)
		buf_printf(tree->out, " (%.*s)", STR_ARG(kind));
}

static void add_wait(struct tree *tree, const msgpack_object *token)
{
	const msgpack_object_array *keys = remote_list(token, "waits");
	struct str channel = remote_text(token, "channel"), type = remote_text(token, "messageType");
	struct str due = remote_text(token, "dueAt");
	struct buf *out = tree->out;

	if (channel.ptr || keys->size) {
		buf_add_text(out, ": waits for a message");
		if (channel.ptr) {
			buf_add_text(out, " on ");
			add(tree, channel);
		}
		if (type.len) {
			buf_add_text(out, " of type ");
			add(tree, type);
		}
	}
	for (uint32_t i = 0; i < keys->size; i++) {
		buf_add_text(out, i ? " or " : ", ");
		add(tree, remote_text(&keys->ptr[i], "name"));
		buf_add_text(out, " = ");
		add(tree, remote_text(&keys->ptr[i], "value"));
	}
	if (due.ptr) {
		buf_add_text(out, channel.ptr || keys->size ? "; timer, " : ": timer, ");
		add_due(tree, due);
	}
	if (str_equal(remote_text(token, "kind"), STR("user task")))
		buf_add_text(out, "; `sutra instances complete` ends it");
}

static void add_state(struct tree *tree, const msgpack_object *token)
{
	struct str state = remote_text(token, "state");

	if (str_equal(state, STR("WAITING"))) {
		add_wait(tree, token);
	} else if (str_equal(state, STR("JOINING"))) {
		buf_add_text(tree->out, ": here by flow ");
		add(tree, remote_text(token, "flow"));
		buf_add_text(tree->out, ", until tokens have come by the others");
	} else if (str_equal(state, STR("READY"))) {
		buf_add_text(tree->out, ": its first step is to be run");
	}
}

static void add_variables(struct tree *tree, const msgpack_object *holder, const char *before)
{
	const msgpack_object *map = value_get(holder, STR("variables"));

	if (!map || map->type != MSGPACK_OBJECT_MAP || !map->via.map.size)
		return;
	buf_add_text(tree->out, before);
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		if (i)
			buf_add_text(tree->out, ", ");
		add(tree, value_as_str(&map->via.map.ptr[i].key));
		buf_add_text(tree->out, " = ");
		add_value(tree->out, &map->via.map.ptr[i].val);
	}
	buf_add_byte(tree->out, '\n');
}

/* --- the tree --- */

static void draw_scope(struct tree *tree, int64_t scope);

/* How deep what is drawn next stands; the length of the indent before is given back with tree_out. */
static size_t tree_in(struct tree *tree, bool more)
{
	size_t len = strlen(tree->indent);
	const char *step = more ? "│  " : "   ";

	if (len + strlen(step) < sizeof(tree->indent))
		memcpy(tree->indent + len, step, strlen(step) + 1);
	return len;
}

static void tree_out(struct tree *tree, size_t len)
{
	tree->indent[len] = '\0';
}

/* Whether the token stands in the scope for itself, not beside another one there. */
static bool stands_in(const msgpack_object *token, int64_t scope)
{
	int64_t host = remote_int(token, "host");

	return remote_int(token, "scope") == scope && (!host || host == remote_int(token, "id"));
}

static bool is_opened_by(const msgpack_object *scope, int64_t token)
{
	return remote_int(scope, "owner") == token;
}

static void draw_token(struct tree *tree, const msgpack_object *token, bool more)
{
	int64_t id = remote_int(token, "id");
	size_t len;

	buf_printf(tree->out, "%s%s", tree->indent, more ? "├─ " : "└─ ");
	add_node(tree, token);
	add_state(tree, token);
	buf_add_byte(tree->out, '\n');
	len = tree_in(tree, more);
	for (uint32_t i = 0; i < tree->tokens->size; i++) {
		const msgpack_object *beside = &tree->tokens->ptr[i];

		if (remote_int(beside, "host") != id || remote_int(beside, "id") == id)
			continue;
		buf_printf(tree->out, "%sor ", tree->indent);
		add_node(tree, beside);
		add_state(tree, beside);
		buf_add_byte(tree->out, '\n');
	}
	for (uint32_t i = 0; i < tree->scopes->size; i++)
		if (is_opened_by(&tree->scopes->ptr[i], id) &&
		    remote_int(&tree->scopes->ptr[i], "parent") == remote_int(token, "scope"))
			draw_scope(tree, remote_int(&tree->scopes->ptr[i], "id"));
	tree_out(tree, len);
}

static const msgpack_object *scope_of(const struct tree *tree, int64_t id)
{
	for (uint32_t i = 0; i < tree->scopes->size; i++)
		if (remote_int(&tree->scopes->ptr[i], "id") == id)
			return &tree->scopes->ptr[i];
	return NULL;
}

/* What is inside: a line on itself where there is something to say, then the runs of a loop, then the tokens. */
static void draw_scope(struct tree *tree, int64_t id)
{
	const msgpack_object *scope = scope_of(tree, id);
	uint32_t last = UINT32_MAX;

	if (++tree->depth > DEPTH_MAX)
		return;
	if (scope && remote_int(scope, "iteration"))
		buf_printf(tree->out, "%srun %lld\n", tree->indent, (long long)remote_int(scope, "iteration"));
	if (scope && remote_text(scope, "process").len) {
		buf_printf(tree->out, "%sprocess ", tree->indent);
		add(tree, remote_text(scope, "process"));
		buf_add_byte(tree->out, '\n');
	}
	if (scope) {
		struct buf before = BUF_INIT;

		buf_printf(&before, "%svariables: ", tree->indent);
		buf_add_byte(&before, '\0');
		add_variables(tree, scope, before.data);
		buf_done(&before);
	}
	for (uint32_t i = 0; scope && i < tree->scopes->size; i++)
		if (remote_int(&tree->scopes->ptr[i], "parent") == id && remote_int(&tree->scopes->ptr[i], "iteration"))
			draw_scope(tree, remote_int(&tree->scopes->ptr[i], "id"));
	for (uint32_t i = 0; i < tree->tokens->size; i++)
		if (stands_in(&tree->tokens->ptr[i], id))
			last = i;
	for (uint32_t i = 0; i < tree->tokens->size; i++)
		if (stands_in(&tree->tokens->ptr[i], id))
			draw_token(tree, &tree->tokens->ptr[i], i != last);
	tree->depth--;
}

/* --- what it is --- */

static void add_head(struct tree *tree)
{
	const msgpack_object *json = tree->json;
	struct buf *out = tree->out;

	buf_add_text(out, "instance ");
	add(tree, remote_text(json, "id"));
	buf_add_text(out, ": ");
	add(tree, remote_text(json, "status"));
	buf_add_text(out, "\n  process ");
	add(tree, remote_text(json, "process"));
	buf_add_text(out, ", deployment ");
	add(tree, remote_text(json, "deployment"));
	buf_add_text(out, ", tenant ");
	add(tree, remote_text(json, "tenant"));
	buf_printf(out, ", version %lld\n  started ", (long long)remote_int(json, "version"));
	add_time(out, remote_text(json, "startedAt"));
	if (remote_text(json, "endedAt").ptr) {
		buf_add_text(out, ", ended ");
		add_time(out, remote_text(json, "endedAt"));
	}
	buf_add_byte(out, '\n');
}

static void add_failure(struct tree *tree)
{
	struct str code = remote_text(tree->json, "code"), node = remote_text(tree->json, "failureNode");

	if (!code.ptr)
		return;
	buf_add_text(tree->out, "  FAILED");
	if (node.len) {
		buf_add_text(tree->out, " at ");
		add(tree, node);
	}
	buf_add_text(tree->out, ": ");
	add(tree, code);
	buf_add_text(tree->out, ": ");
	add(tree, remote_text(tree->json, "detail"));
	buf_add_byte(tree->out, '\n');
}

static void add_claim(struct tree *tree)
{
	const msgpack_object *claim = value_get(tree->json, STR("claim"));

	if (!claim || claim->type != MSGPACK_OBJECT_MAP)
		return;
	buf_add_text(tree->out, "  claimed by ");
	add(tree, remote_text(claim, "owner"));
	buf_add_text(tree->out, " since ");
	add_time(tree->out, remote_text(claim, "since"));
	buf_add_byte(tree->out, '\n');
}

static void add_aliases(struct tree *tree)
{
	const msgpack_object_array *aliases = remote_list(tree->json, "aliases");

	for (uint32_t i = 0; i < aliases->size; i++) {
		buf_add_text(tree->out, i ? ", " : "  aliases: ");
		add(tree, remote_text(&aliases->ptr[i], "name"));
		buf_add_text(tree->out, " = ");
		add(tree, remote_text(&aliases->ptr[i], "value"));
		if (remote_bool(&aliases->ptr[i], "unique"))
			buf_add_text(tree->out, " (unique)");
	}
	if (aliases->size)
		buf_add_byte(tree->out, '\n');
}

void instance_tree_print(const msgpack_object *json, int64_t now_us, struct buf *out)
{
	struct tree tree = {
		.json = json,
		.tokens = remote_list(json, "tokens"),
		.scopes = remote_list(json, "scopes"),
		.now_us = now_us,
		.out = out,
	};

	add_head(&tree);
	add_failure(&tree);
	add_claim(&tree);
	add_aliases(&tree);
	add_variables(&tree, json, "  variables: ");
	if (remote_text(json, "snapshotError").ptr) {
		buf_add_text(out, "  its snapshot cannot be read: ");
		add(&tree, remote_text(json, "snapshotError"));
		buf_add_byte(out, '\n');
	}
	if (tree.tokens->size) {
		buf_add_byte(out, '\n');
		add(&tree, remote_text(json, "process"));
		buf_add_byte(out, '\n');
		draw_scope(&tree, 0);
		if (!remote_bool(json, "modelLoaded"))
			buf_add_text(out, "(its deployment is not loaded by the replica that was asked: names are missing, variables masked)\n");
	}
}
