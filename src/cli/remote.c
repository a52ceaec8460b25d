/* SPDX-License-Identifier: Apache-2.0 */
/* One replica's answer, from the first that can give it. */
#include "cli/remote.h"

#include "cli/table.h"

bool remote_start(struct remote *remote)
{
	remote->started = true;
	arena_init(&remote->arena);
	remote->body = (struct buf)BUF_INIT;
	remote->answer = value_nil();
	return client_init(&remote->client, remote->cli, remote->config_path, remote->urls);
}

int remote_end(struct remote *remote, int exit_code)
{
	if (!remote->started)
		return exit_code;
	buf_done(&remote->body);
	client_done(&remote->client);
	arena_done(&remote->arena);
	return exit_code;
}

/* --- answers --- */

struct str remote_text(const msgpack_object *map, const char *name)
{
	const msgpack_object *value = value_get(map, str_of(name));

	return value ? value_as_str(value) : STR_NONE;
}

int64_t remote_int(const msgpack_object *map, const char *name)
{
	const msgpack_object *value = value_get(map, str_of(name));
	int64_t number = 0;

	return value && value_as_int(value, &number) ? number : 0;
}

bool remote_bool(const msgpack_object *map, const char *name)
{
	const msgpack_object *value = value_get(map, str_of(name));

	return value && value->type == MSGPACK_OBJECT_BOOLEAN && value->via.boolean;
}

const msgpack_object_array *remote_list(const msgpack_object *map, const char *name)
{
	static const msgpack_object_array none = {0, NULL};
	const msgpack_object *value = value_get(map, str_of(name));

	return value && value->type == MSGPACK_OBJECT_ARRAY ? &value->via.array : &none;
}

struct str remote_time(struct remote *remote, struct str time)
{
	char *copy;

	if (time.len < 19)
		return time;
	copy = arena_printf(&remote->arena, "%.19s", time.ptr);
	copy[10] = ' ';
	return str_of(copy);
}

/* --- asking --- */

const char *remote_path(struct remote *remote, const char *prefix, const char *id, const char *suffix)
{
	struct buf path = BUF_INIT;
	const char *copy;

	buf_add_text(&path, prefix);
	client_escape(&path, id);
	buf_add_text(&path, suffix);
	copy = arena_str(&remote->arena, buf_str(&path)).ptr;
	buf_done(&path);
	return copy;
}

void remote_query(struct buf *path, const char *name, const char *value)
{
	if (!value)
		return;
	buf_add_byte(path, memchr(path->data, '?', path->len) ? '&' : '?');
	buf_add_text(path, name);
	buf_add_byte(path, '=');
	client_escape(path, value);
}

/* Whether another replica may do better: this one is not up, or has not loaded what is needed. */
static bool may_ask_next(long status, enum code code)
{
	return status == 0 || status == 503 || code == CODE_RUNTIME_PIN_UNKNOWN || code == CODE_ADMIN_REPLAY_NO_CHANNEL;
}

static void say_refused(struct remote *remote, const char *url, long status, enum code code, const struct error *err)
{
	const char *action = code == CODE_NONE ? "" : code_info(code)->action;
	struct str detail = remote_text(&remote->answer, "detail");
	struct buf out = BUF_INIT;

	buf_printf(&out, "sutra %s: ", remote->cli->command->name);
	if (remote->client.url_count > 1 || status == 0)
		buf_printf(&out, "%s: ", url);
	if (status == 0)
		buf_add_text(&out, err->text);
	else if (!detail.ptr)
		buf_printf(&out, "status %ld, and no answer that can be read", status);
	if (detail.ptr) {
		buf_printf(&out, "%s%s", code == CODE_NONE ? "" : code_text(code), code == CODE_NONE ? "" : ": ");
		table_plain(&out, detail);
	}
	if (*action && strcmp(action, "Nothing.") != 0)
		buf_printf(&out, "\n    do: %s", action);
	fprintf(remote->cli->err, "%.*s\n", (int)out.len, out.data);
	buf_done(&out);
}

static bool ask_one(struct remote *remote, const char *url, const char *path, const struct str *sent, bool *again)
{
	/* A payload may be as large as a replica lets it be, and it comes twice. */
	const struct value_limits limits = {SIZE_MAX, 160, UINT32_MAX};
	struct error err = ERROR_INIT, unread = ERROR_INIT;
	enum code code = CODE_NONE;
	enum result result;
	long status = 0;

	buf_reset(&remote->body);
	remote->answer = value_nil();
	result = sent ? client_post(&remote->client, url, path, "", *sent, &remote->body, &status, &err)
		      : client_get(&remote->client, url, path, "", &remote->body, &status, &err);
	if (result != RESULT_OK)
		status = 0;
	else if (value_json_read(&remote->arena, buf_str(&remote->body), true, &limits, &remote->answer, &unread) != RESULT_OK)
		remote->answer = value_nil();
	if (status >= 200 && status < 300 && remote->answer.type == MSGPACK_OBJECT_MAP)
		return true;
	code = code_find(remote_text(&remote->answer, "code"));
	say_refused(remote, url, status, code, &err);
	*again = may_ask_next(status, code);
	return false;
}

static bool ask(struct remote *remote, const char *path, const struct str *sent)
{
	bool again = true;

	for (size_t i = 0; i < remote->client.url_count && again; i++)
		if (ask_one(remote, remote->client.urls[i], path, sent, &again))
			return true;
	return false;
}

bool remote_get(struct remote *remote, const char *path)
{
	return ask(remote, path, NULL);
}

bool remote_post(struct remote *remote, const char *path, struct str body)
{
	return ask(remote, path, &body);
}

bool remote_print_json(struct remote *remote)
{
	if (remote->json)
		fprintf(remote->cli->out, "%.*s\n", (int)remote->body.len, remote->body.data);
	return remote->json;
}
