/* SPDX-License-Identifier: Apache-2.0 */
/* Asking replicas over HTTP, one after the other: there are few, and each answers at once or not at all. */
#include "cli/client.h"

#include <curl/curl.h>

#define ANSWER_MAX (64u << 20)
#define CONNECT_MS 5000L
#define ANSWER_MS  30000L

static const char *variable_of(const struct cli *cli, const char *name)
{
	size_t len = strlen(name);

	for (char *const *at = cli->environ_; at && *at; at++)
		if (strncmp(*at, name, len) == 0 && (*at)[len] == '=' && (*at)[len + 1])
			return *at + len + 1;
	return NULL;
}

/* --- who is asked --- */

static bool url_add(struct client *client, struct cli *cli, const char *text, size_t len)
{
	while (len && text[len - 1] == '/')
		len--;
	if (!len)
		return true;
	if (client->url_count == CLIENT_URLS_MAX) {
		fprintf(cli->err, "sutra %s: at most %d replicas are asked\n", cli->command->name, CLIENT_URLS_MAX);
		return false;
	}
	client->urls[client->url_count++] = arena_printf(&client->arena, "%.*s", (int)len, text);
	return true;
}

static bool urls_split(struct client *client, struct cli *cli, const char *list)
{
	while (*list) {
		size_t len = strcspn(list, ", ");

		if (!url_add(client, cli, list, len))
			return false;
		list += len;
		list += strspn(list, ", ");
	}
	return true;
}

/* Where admin.listen can be reached from this machine. */
static void url_of_listen(struct client *client, const char *listen)
{
	const char *port = strrchr(listen, ':');
	size_t len = port ? (size_t)(port - listen) : 0;
	bool is_any = len == 0 || strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0;

	if (port)
		client->urls[client->url_count++] = arena_printf(&client->arena, "http://%.*s%s", is_any ? 9 : (int)len,
								 is_any ? "127.0.0.1" : listen, port);
}

bool client_init(struct client *client, struct cli *cli, const char *config_path, const char *const *urls)
{
	const char *listed = variable_of(cli, "SUTRA_ADMIN_URL");

	*client = (struct client){.key = variable_of(cli, "SUTRA_ADMIN_KEY"), .header = "X-Api-Key"};
	arena_init(&client->arena);
	for (; *urls; urls++)
		if (!url_add(client, cli, *urls, strlen(*urls)))
			return false;
	if (!client->url_count && listed && !urls_split(client, cli, listed))
		return false;
	if (client->url_count && client->key && !config_path)
		return true;
	client->config = cli_config_load(cli, config_path);
	if (!client->config)
		return false;
	client->header = config_text(client->config, "admin.auth.header");
	if (!client->key)
		client->key = config_text(client->config, "admin.auth.key-ref");
	if (!client->url_count)
		url_of_listen(client, config_text(client->config, "admin.listen"));
	return true;
}

void client_done(struct client *client)
{
	if (client->curl)
		curl_easy_cleanup(client->curl);
	config_free(&client->config);
	arena_done(&client->arena);
}

/* --- asking --- */

static size_t body_take(char *bytes, size_t size, size_t count, void *user)
{
	struct buf *body = user;

	if (body->len + size * count > ANSWER_MAX)
		return 0;
	buf_add(body, bytes, size * count);
	return size * count;
}

static void add_escaped_but(struct buf *url, const char *id, const char *plain)
{
	for (const unsigned char *at = (const unsigned char *)id; *at; at++) {
		bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') ||
				strchr(plain, *at);

		if (is_plain)
			buf_add_byte(url, (char)*at);
		else
			buf_printf(url, "%%%02X", *at);
	}
}

/* Slashes stay: they part what the route takes apart, and may stand in an event id. */
static void add_escaped(struct buf *url, const char *id)
{
	add_escaped_but(url, id, "-._~/");
}

void client_escape(struct buf *out, const char *text)
{
	add_escaped_but(out, text, "-._~");
}

static void options_set(struct client *client, const char *url, struct curl_slist *headers, struct buf *body)
{
	CURL *curl = client->curl;

	curl_easy_reset(curl);
	curl_easy_setopt(curl, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
	/* "a/../b" may be an event id. */
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ANSWER_MS);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
}

/* `sent` NULL: a GET. */
static enum result client_send(struct client *client, const char *url, const char *path, const char *id, const struct str *sent,
			       struct buf *body, long *status, struct error *err)
{
	struct curl_slist *headers = NULL;
	struct buf target = BUF_INIT;
	CURLcode code;

	if (!client->curl)
		client->curl = curl_easy_init();
	if (!client->curl)
		return error_set(err, RESULT_AGAIN, CODE_NONE, "libcurl cannot be used");
	if (!strstr(url, "://"))
		buf_add_text(&target, "http://");
	buf_add_text(&target, url);
	buf_add_text(&target, path);
	add_escaped(&target, id);
	if (client->key)
		headers = curl_slist_append(NULL, arena_printf(&client->arena, "%s: %s", client->header, client->key));
	if (sent && sent->len)
		headers = curl_slist_append(headers, "Content-Type: application/json");
	/* A body of some size would be asked leave for, and wait a second for the answer. */
	if (sent)
		headers = curl_slist_append(headers, "Expect:");
	options_set(client, target.data, headers, body);
	if (sent) {
		curl_easy_setopt(client->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)sent->len);
		curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, sent->len ? sent->ptr : "");
	}
	code = curl_easy_perform(client->curl);
	curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, status);
	curl_slist_free_all(headers);
	buf_done(&target);
	return code == CURLE_OK ? RESULT_OK : error_set(err, RESULT_AGAIN, CODE_NONE, "%s", curl_easy_strerror(code));
}

enum result client_get(struct client *client, const char *url, const char *path, const char *id, struct buf *body, long *status,
		       struct error *err)
{
	return client_send(client, url, path, id, NULL, body, status, err);
}

enum result client_post(struct client *client, const char *url, const char *path, const char *id, struct str sent,
			struct buf *body, long *status, struct error *err)
{
	return client_send(client, url, path, id, &sent, body, status, err);
}
