/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands have in common that ask one replica for something: any will do, so the next is asked if one cannot.
 *
 *	struct remote remote = REMOTE_INIT(cli);
 *	const struct cli_option options[] = {REMOTE_OPTIONS(remote), …, {0}};
 *	… cli_parse …
 *	if (!remote_start(&remote)) return remote_end(&remote, CLI_USAGE);
 *	return remote_end(&remote, remote_get(&remote, "/admin/…", "id") ? … : CLI_FAILED);
 *
 * Life cycle: REMOTE_INIT, remote_start, remote_end, also when the start failed. Threads: main; it blocks.
 */
#ifndef SUTRA_CLI_REMOTE_H
#define SUTRA_CLI_REMOTE_H

#include "cli/client.h"
#include "value/value.h"

struct remote {
	struct cli *cli;
	const char *config_path;
	const char *urls[CLIENT_URLS_MAX + 1];
	bool json;
	bool started;
	struct client client;
	struct arena arena;
	/* The answer of the last call. */
	struct buf body;
	msgpack_object answer;
};

#define REMOTE_INIT(command_line) {.cli = (command_line), .urls = {NULL}}
#define REMOTE_OPTIONS(remote) \
	{"url", 'u', "URL", "Ask this replica; may be repeated, the next is asked if one cannot", .texts = (remote).urls, \
	 .text_max = CLIENT_URLS_MAX + 1}, \
	{"config", 'c', "FILE", "Read FILE instead of the usual places", .text = &(remote).config_path}, \
	{"json", 0, NULL, "Print the JSON of the answer", .flag = &(remote).json}

/* False: said on cli->err. */
bool remote_start(struct remote *remote) MUST_CHECK;
/* Returns `exit_code`. */
int remote_end(struct remote *remote, int exit_code);

/* GET, or POST of a body (absent = none), of a path that is escaped as it has to be. False: said on cli->err. */
bool remote_get(struct remote *remote, const char *path) MUST_CHECK;
bool remote_post(struct remote *remote, const char *path, struct str body) MUST_CHECK;
/* prefix + escaped id + suffix, in the arena. */
const char *remote_path(struct remote *remote, const char *prefix, const char *id, const char *suffix);
/* With --json prints the answer and returns true. */
bool remote_print_json(struct remote *remote);

/* Appends `name`=`value` to a query string; nothing if `value` is NULL. */
void remote_query(struct buf *path, const char *name, const char *value);

/* Members of the answer; absent, 0 and empty where there is none of that type. */
struct str remote_text(const msgpack_object *map, const char *name);
int64_t remote_int(const msgpack_object *map, const char *name);
bool remote_bool(const msgpack_object *map, const char *name);
const msgpack_object_array *remote_list(const msgpack_object *map, const char *name);
/* "2026-11-30 12:00:00" of a time as the answers write it. */
struct str remote_time(struct remote *remote, struct str time);

#endif
