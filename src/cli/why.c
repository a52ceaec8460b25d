/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sutra why`: asks every replica why something does not move, and makes one answer of theirs. What the database says is the same
 * from each, so the answer of the one that knows most is taken for that; what they hold in memory is put side by side.
 */
#include "base/alloc.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "value/value.h"

/* One replica's. */
struct answer {
	const char *url;
	struct buf body;
	msgpack_object json; /* nil: none */
	long status;
	struct error err;
};

struct why {
	const char *kind, *id;
	struct client client;
	struct arena arena;
	struct answer answers[CLIENT_URLS_MAX];
	const struct answer *best; /* NULL: nobody knows it */
};

/* --- reading --- */

static struct str text_in(const msgpack_object *map, const char *name)
{
	const msgpack_object *value = value_get(map, str_of(name));

	return value ? value_as_str(value) : STR_NONE;
}

static const msgpack_object_array *list_in(const msgpack_object *map, const char *name)
{
	static const msgpack_object_array none = {0, NULL};
	const msgpack_object *value = value_get(map, str_of(name));

	return value && value->type == MSGPACK_OBJECT_ARRAY ? &value->via.array : &none;
}

static bool is_answer(const struct answer *answer)
{
	return answer->status == 200 && answer->json.type == MSGPACK_OBJECT_MAP;
}

static bool is_unknown(const struct answer *answer)
{
	return str_equal(text_in(&answer->json, "state"), STR("unknown"));
}

/* How much the database, and this replica's memory, know of it. */
static int answer_rank(const struct answer *answer)
{
	static const char *const states[] = {"unknown", "dead-letter", "behind", "resolving", "keeping",
					     "held",	"on-lane",     "kept",	 "effect"};
	struct str state = text_in(&answer->json, "state");

	if (!is_answer(answer))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(states); i++)
		if (str_equal(state, str_of(states[i])))
			return (int)i;
	return ARRAY_LEN(states);
}

static void why_ask(struct why *why, struct answer *answer)
{
	const struct value_limits limits = VALUE_LIMITS_DEFAULT;
	char path[64];

	snprintf(path, sizeof(path), "/admin/why/%s/", why->kind);
	answer->json = value_nil();
	if (client_get(&why->client, answer->url, path, why->id, &answer->body, &answer->status, &answer->err) != RESULT_OK) {
		answer->status = 0;
		return;
	}
	if (value_json_read(&why->arena, buf_str(&answer->body), true, &limits, &answer->json, &answer->err) == RESULT_OK &&
	    answer->status == 200)
		return;
	if (answer->json.type == MSGPACK_OBJECT_MAP)
		error_set(&answer->err, RESULT_AGAIN, code_find(text_in(&answer->json, "code")), "%.*s",
			  STR_ARG(text_in(&answer->json, "detail")));
	else
		error_set(&answer->err, RESULT_AGAIN, CODE_NONE, "status %ld, and no answer that can be read", answer->status);
}

static void why_choose(struct why *why)
{
	for (size_t i = 0; i < why->client.url_count; i++) {
		const struct answer *answer = &why->answers[i];

		if (is_answer(answer) && (!why->best || answer_rank(answer) > answer_rank(why->best)))
			why->best = answer;
	}
}

/* --- the causes of all --- */

struct cause {
	const msgpack_object *json;
	const struct answer *from;
};

/* Whether it says no more than that this replica has nothing, while another one has. */
static bool cause_is_idle(const struct why *why, const struct answer *answer, const msgpack_object *cause)
{
	bool is_database = str_equal(text_in(cause, "scope"), STR("database"));

	if (answer != why->best && is_database)
		return true;
	return !is_database && answer != why->best && is_unknown(answer) && !is_unknown(why->best);
}

static struct cause *causes_collect(struct why *why, size_t *count)
{
	struct cause *causes = NULL;

	*count = 0;
	for (size_t i = 0; why->best && i < why->client.url_count; i++) {
		const struct answer *answer = &why->answers[i];
		const msgpack_object_array *list = list_in(&answer->json, "causes");

		for (uint32_t k = 0; is_answer(answer) && k < list->size; k++) {
			if (cause_is_idle(why, answer, &list->ptr[k]))
				continue;
			causes = mem_array(causes, *count + 1, sizeof(*causes));
			causes[(*count)++] = (struct cause){&list->ptr[k], answer};
		}
	}
	return causes;
}

/* --- for people --- */

static void print_replica(const struct why *why, const struct answer *answer, struct buf *out)
{
	if (why->client.url_count > 1)
		buf_printf(out, " (%s)", answer->url);
}

static void print_causes(struct why *why, struct buf *out)
{
	size_t count;
	struct cause *causes = causes_collect(why, &count);

	for (size_t i = 0; i < count; i++) {
		const msgpack_object *cause = causes[i].json;
		struct str code = text_in(cause, "code");

		buf_printf(out, "  %.*s", STR_ARG(text_in(cause, "what")));
		if (code.ptr)
			buf_printf(out, " [%.*s]", STR_ARG(code));
		if (str_equal(text_in(cause, "scope"), STR("replica")))
			print_replica(why, causes[i].from, out);
		buf_printf(out, "\n    do: %.*s\n", STR_ARG(text_in(cause, "remedy")));
	}
	free(causes);
}

static void print_member(struct buf *out, const msgpack_object *json, const char *name, const char *label)
{
	struct str text = text_in(json, name);

	if (text.ptr)
		buf_printf(out, "%s%s %.*s", out->len && out->data[out->len - 1] == '\n' ? "  " : ", ", label, STR_ARG(text));
}

static void print_text(struct why *why, struct buf *out)
{
	const msgpack_object *json = &why->best->json;

	buf_printf(out, "%s %s: %.*s\n", why->kind, why->id, STR_ARG(text_in(json, "state")));
	print_member(out, json, "process", "process");
	print_member(out, json, "deployment", "deployment");
	print_member(out, json, "tenant", "tenant");
	print_member(out, json, "startedAt", "started");
	if (out->data[out->len - 1] != '\n')
		buf_add_byte(out, '\n');
	print_causes(why, out);
}

/* --- for programs: the best answer, with the replicas, and the deliveries and causes of all --- */

static void json_add(struct buf *out, const msgpack_object *value)
{
	struct error err = ERROR_INIT;

	if (value_json_write(value, out, &err) != RESULT_OK)
		buf_add_text(out, "null"); /* it came as JSON */
}

static void json_name_add(struct buf *out, const char *name)
{
	char last = out->data[out->len - 1];

	if (last != '{' && last != '[')
		buf_add_byte(out, ',');
	if (name)
		buf_printf(out, "\"%s\":", name);
}

/* The members of an object of the answer, and which replica said so. */
static void json_add_said(struct buf *out, const msgpack_object *object, const struct answer *from)
{
	json_name_add(out, NULL);
	buf_add_text(out, "{\"replica\":");
	buf_add_json(out, text_in(&from->json, "replica"));
	for (uint32_t i = 0; object->type == MSGPACK_OBJECT_MAP && i < object->via.map.size; i++) {
		buf_add_byte(out, ',');
		json_add(out, &object->via.map.ptr[i].key);
		buf_add_byte(out, ':');
		json_add(out, &object->via.map.ptr[i].val);
	}
	buf_add_byte(out, '}');
}

static bool is_of_each(struct str name)
{
	return str_equal(name, STR("replica")) || str_equal(name, STR("deliveries")) || str_equal(name, STR("causes")) ||
	       str_equal(name, STR("deliveryCount"));
}

static void json_add_replicas(struct why *why, struct buf *out)
{
	json_name_add(out, "replicas");
	buf_add_byte(out, '[');
	for (size_t i = 0; i < why->client.url_count; i++) {
		const struct answer *answer = &why->answers[i];

		json_name_add(out, NULL);
		buf_add_text(out, "{\"url\":");
		buf_add_json(out, str_of(answer->url));
		buf_add_text(out, ",\"replica\":");
		if (is_answer(answer))
			buf_add_json(out, text_in(&answer->json, "replica"));
		else
			buf_add_text(out, "null");
		buf_add_text(out, ",\"error\":");
		if (is_answer(answer))
			buf_add_text(out, "null");
		else
			buf_add_json(out, str_of(answer->err.text));
		buf_add_byte(out, '}');
	}
	buf_add_byte(out, ']');
}

static void print_json(struct why *why, struct buf *out)
{
	const msgpack_object *json = why->best ? &why->best->json : NULL;
	struct cause *causes;
	size_t count;

	buf_add_byte(out, '{');
	for (uint32_t i = 0; json && i < json->via.map.size; i++) {
		if (is_of_each(value_as_str(&json->via.map.ptr[i].key)))
			continue;
		json_name_add(out, NULL);
		json_add(out, &json->via.map.ptr[i].key);
		buf_add_byte(out, ':');
		json_add(out, &json->via.map.ptr[i].val);
	}
	json_add_replicas(why, out);
	json_name_add(out, "deliveries");
	buf_add_byte(out, '[');
	for (size_t i = 0; i < why->client.url_count; i++) {
		const msgpack_object_array *list = list_in(&why->answers[i].json, "deliveries");

		for (uint32_t k = 0; is_answer(&why->answers[i]) && k < list->size; k++)
			json_add_said(out, &list->ptr[k], &why->answers[i]);
	}
	buf_add_byte(out, ']');
	json_name_add(out, "causes");
	buf_add_byte(out, '[');
	causes = causes_collect(why, &count);
	for (size_t i = 0; i < count; i++)
		json_add_said(out, causes[i].json, causes[i].from);
	free(causes);
	buf_add_text(out, "]}\n");
}

/* --- the command --- */

static int why_run(struct why *why, struct cli *cli, bool json)
{
	int exit_code = CLI_OK;
	struct buf out = BUF_INIT;

	for (size_t i = 0; i < why->client.url_count; i++) {
		struct answer *answer = &why->answers[i];

		answer->url = why->client.urls[i];
		why_ask(why, answer);
		if (is_answer(answer))
			continue;
		fprintf(cli->err, "sutra why: %s: %s%s%s\n", answer->url, code_text(answer->err.code),
			answer->err.code == CODE_NONE ? "" : ": ", answer->err.text);
		exit_code = CLI_FAILED;
	}
	why_choose(why);
	if (json)
		print_json(why, &out);
	else if (why->best)
		print_text(why, &out);
	if (out.len)
		fwrite(out.data, 1, out.len, cli->out);
	buf_done(&out);
	return why->best && !is_unknown(why->best) ? exit_code : CLI_FAILED;
}

static bool is_kind(const char *kind)
{
	return strcmp(kind, "message") == 0 || strcmp(kind, "instance") == 0 || strcmp(kind, "channel") == 0;
}

int command_why(struct cli *cli)
{
	const char *path = NULL, *urls[CLIENT_URLS_MAX + 1] = {NULL};
	bool json = false;
	const struct cli_option options[] = {
		{"url", 'u', "URL", "Ask this replica; may be repeated", .texts = urls, .text_max = ARRAY_LEN(urls)},
		{"config", 'c', "FILE", "Read FILE instead of the usual places", .text = &path},
		{"json", 0, NULL, "Print JSON", .flag = &json},
		{0},
	};
	struct why *why;
	int exit_code;

	if (!cli_parse(cli, options, 2, 2, &exit_code))
		return exit_code;
	if (!is_kind(cli->argv[0])) {
		fprintf(cli->err, "sutra why: \"%s\" is none of message, instance, channel\n", cli->argv[0]);
		return CLI_USAGE;
	}
	why = mem_zalloc(sizeof(*why));
	why->kind = cli->argv[0];
	why->id = cli->argv[1];
	arena_init(&why->arena);
	exit_code = CLI_USAGE;
	if (client_init(&why->client, cli, path, urls))
		exit_code = why_run(why, cli, json);
	for (size_t i = 0; i < why->client.url_count; i++)
		buf_done(&why->answers[i].body);
	client_done(&why->client);
	arena_done(&why->arena);
	free(why);
	return exit_code;
}
