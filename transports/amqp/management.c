/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GET of /api/queues/<virtual host>/<queue>, read with jansson. A setting may stand in the arguments of the queue or in the
 * policy that applies to it; where both do, the smaller counts, as it does for the broker, but of two delivery limits one that is
 * none (below zero) gives way to the other.
 */
#include "transports/amqp/management.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "transports/amqp/rabbitmq.h"
#include "transports/transport.h"

/* An answer about one queue is a few KiB, with the figures of its consumers some hundred. */
#define ANSWER_MAX (8u << 20)

/* --- reading the answer --- */

static int64_t limit_in(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	return json_is_integer(value) ? (int64_t)json_integer_value(value) : AMQP_LIMIT_UNSET;
}

struct sources {
	const json_t *arguments, *policy;
};

static int64_t limit_of(const struct sources *sources, const char *argument, const char *policy)
{
	int64_t own = limit_in(sources->arguments, argument), given = limit_in(sources->policy, policy);

	if (own == AMQP_LIMIT_UNSET || given == AMQP_LIMIT_UNSET)
		return own == AMQP_LIMIT_UNSET ? given : own;
	return own < given ? own : given;
}

static int64_t delivery_limit_of(const struct sources *sources)
{
	int64_t own = limit_in(sources->arguments, "x-delivery-limit");
	int64_t given = limit_in(sources->policy, "delivery-limit");

	if (own != AMQP_LIMIT_UNSET && given != AMQP_LIMIT_UNSET && (own < 0 || given < 0))
		return own > given ? own : given;
	return limit_of(sources, "x-delivery-limit", "delivery-limit");
}

static const char *text_in(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

static void facts_read(const json_t *root, struct amqp_queue_facts *facts)
{
	const struct sources sources = {json_object_get(root, "arguments"),
					json_object_get(root, "effective_policy_definition")};
	const char *type = text_in(root, "type"), *overflow = text_in(sources.arguments, "x-overflow");

	if (!*type)
		type = text_in(sources.arguments, "x-queue-type");
	if (!*overflow)
		overflow = text_in(sources.policy, "overflow");
	snprintf(facts->type, sizeof(facts->type), "%s", *type ? type : "classic");
	facts->durable = json_is_true(json_object_get(root, "durable"));
	facts->auto_delete = json_is_true(json_object_get(root, "auto_delete"));
	facts->exclusive = json_is_true(json_object_get(root, "exclusive"));
	/* An empty name is the default exchange, which is one too. */
	facts->policies_known = sources.policy != NULL;
	facts->has_dead_letter_exchange = json_is_string(json_object_get(sources.arguments, "x-dead-letter-exchange")) ||
					  json_is_string(json_object_get(sources.policy, "dead-letter-exchange"));
	facts->is_single_active_consumer =
		json_is_true(json_object_get(sources.arguments, "x-single-active-consumer"));
	facts->is_mirrored = json_is_string(json_object_get(sources.policy, "ha-mode"));
	/* From 4.0 on the broker also says itself what came of it. */
	facts->delivery_limit = limit_in(root, "delivery_limit");
	if (facts->delivery_limit == AMQP_LIMIT_UNSET)
		facts->delivery_limit = delivery_limit_of(&sources);
	facts->delivery_limit_is_policy = limit_in(sources.arguments, "x-delivery-limit") == AMQP_LIMIT_UNSET &&
					  limit_in(sources.policy, "delivery-limit") != AMQP_LIMIT_UNSET;
	facts->consumer_timeout_ms = limit_of(&sources, "x-consumer-timeout", "consumer-timeout");
	facts->message_ttl_ms = limit_of(&sources, "x-message-ttl", "message-ttl");
	facts->max_length = limit_of(&sources, "x-max-length", "max-length");
	facts->max_length_bytes = limit_of(&sources, "x-max-length-bytes", "max-length-bytes");
	facts->overflow_drops_oldest = !*overflow || strcmp(overflow, "drop-head") == 0;
}

enum result amqp_management_parse(struct str body, struct amqp_queue_facts *out, struct error *err)
{
	json_t *root = json_loadb(body.ptr ? body.ptr : "", body.len, 0, NULL);

	if (!json_is_object(root) || !json_is_string(json_object_get(root, "name"))) {
		json_decref(root);
		return error_set(err, RESULT_AGAIN, CODE_STARTUP_BROKER,
				 "the answer of the management API is not about a queue");
	}
	memset(out, 0, sizeof(*out));
	facts_read(root, out);
	json_decref(root);
	return RESULT_OK;
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

/* Appends a segment of a path, escaped; "/" too. */
static void segment_add(struct buf *url, CURL *curl, const char *text)
{
	char *escaped = curl_easy_escape(curl, text, 0);

	buf_add_byte(url, '/');
	buf_add_text(url, escaped ? escaped : "");
	curl_free(escaped);
}

static void url_build(struct buf *url, CURL *curl, const char *base, const char *vhost, const char *queue)
{
	size_t len = strlen(base);

	while (len && base[len - 1] == '/')
		len--;
	buf_add(url, base, len);
	if (len < 4 || memcmp(base + len - 4, "/api", 4) != 0)
		buf_add_text(url, "/api");
	buf_add_text(url, "/queues");
	segment_add(url, curl, vhost);
	segment_add(url, curl, queue);
}

static void options_set(CURL *curl, const struct transport_connection *connection,
			const struct amqp_connection_info *info, const char *url, int64_t timeout_ms, struct buf *body)
{
	curl_easy_setopt(curl, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	/* A user in the URL itself comes first: curl takes it from there. */
	if (!strchr(connection->management_url, '@')) {
		curl_easy_setopt(curl, CURLOPT_USERNAME, info->user);
		curl_easy_setopt(curl, CURLOPT_PASSWORD, info->password);
	}
	if (connection->ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, connection->ca_file);
	if (connection->cert_file) {
		curl_easy_setopt(curl, CURLOPT_SSLCERT, connection->cert_file);
		curl_easy_setopt(curl, CURLOPT_SSLKEY, connection->key_file);
	}
}

static enum result answer_judge(CURL *curl, CURLcode code, struct str body, struct amqp_queue_facts *out,
				struct error *err)
{
	long status = 0;

	if (code != CURLE_OK)
		return error_set(err, RESULT_AGAIN, CODE_STARTUP_BROKER, "the management API does not answer: %s",
				 curl_easy_strerror(code));
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	if (status == 404)
		return error_set(err, RESULT_REJECT, CODE_INBOUND_SOURCE_MISSING,
				 "the management API knows no such queue");
	if (status == 401 || status == 403)
		return error_set(err, RESULT_AGAIN, CODE_STARTUP_BROKER,
				 "the management API refuses the user: it needs the tag 'monitoring' or 'management'");
	if (status != 200)
		return error_set(err, RESULT_AGAIN, CODE_STARTUP_BROKER, "the management API answers %ld", status);
	return amqp_management_parse(body, out, err);
}

enum result amqp_management_queue(const struct transport_connection *connection, const char *queue, int64_t timeout_ms,
				  struct amqp_queue_facts *out, struct error *err)
{
	char *text = mem_strdup(connection->url);
	struct amqp_connection_info info;
	struct buf url = BUF_INIT, body = BUF_INIT;
	enum result result;
	CURLcode code;
	CURL *curl = curl_easy_init();

	if (!curl)
		mem_exhausted(sizeof(void *));
	if (amqp_parse_url(text, &info) != AMQP_STATUS_OK) {
		result = error_set(err, RESULT_AGAIN, CODE_CONFIG_PROPERTY_INVALID, "url is not an AMQP URL");
	} else {
		if (connection->password)
			info.password = (char *)(uintptr_t)connection->password;
		url_build(&url, curl, connection->management_url, *info.vhost ? info.vhost : "/", queue);
		options_set(curl, connection, &info, url.data, timeout_ms, &body);
		code = curl_easy_perform(curl);
		result = answer_judge(curl, code, buf_str(&body), out, err);
	}
	curl_easy_cleanup(curl);
	buf_done(&url);
	buf_done(&body);
	free(text);
	return result;
}
