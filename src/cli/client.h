/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking replicas: what the commands that talk to the admin listener have in common. Which are asked: --url, else SUTRA_ADMIN_URL
 * (several with commas between them), else admin.listen of the configuration. The key: SUTRA_ADMIN_KEY, else that of the
 * configuration.
 *
 * Life cycle: client_init, client_done. Threads: main; it blocks.
 */
#ifndef SUTRA_CLI_CLIENT_H
#define SUTRA_CLI_CLIENT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "cli/cli.h"

#define CLIENT_URLS_MAX 64

struct client {
	struct arena arena;
	struct config *config; /* NULL: it was not needed */
	const char *urls[CLIENT_URLS_MAX];
	size_t url_count;
	const char *key;    /* NULL: none is sent */
	const char *header; /* that it is sent in */
	void *curl;
};

/* `urls` is NULL-terminated. False: said on cli->err. */
bool client_init(struct client *client, struct cli *cli, const char *config_path, const char *const *urls) MUST_CHECK;
void client_done(struct client *client);
/*
 * GET of a path, to which `id` is appended escaped but for its slashes. RESULT_OK: there is an answer, whatever its status.
 * RESULT_AGAIN: there is none; `err` says why.
 */
enum result client_get(struct client *client, const char *url, const char *path, const char *id, struct buf *body, long *status,
		       struct error *err) MUST_CHECK;
/* POST of the same; `sent` is the body, JSON, or absent. */
enum result client_post(struct client *client, const char *url, const char *path, const char *id, struct str sent,
			struct buf *body, long *status, struct error *err) MUST_CHECK;
/* Appends a part of a path or a value of a query string, so escaped that it is that and nothing else. */
void client_escape(struct buf *out, const char *text);

#endif
