/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP: from the library's calls to a request on the admin loop, and from its answer back to the library.
 *
 * The library has a thread for each connection, which waits there for the answer: only so can one request wait for a slow
 * database while probes and scrapes go on. (Its way of suspending a connection instead loses the answer to a client that
 * has closed its sending side.) The handler is called when the headers are there, for each piece of a body, and at the end.
 * A body is kept of whoever has the key, and otherwise thrown away. Sizes, idle times and the number of connections are bounded.
 */
#include <stdlib.h>

#include "admin/internal.h"
#include "base/alloc.h"
#include "base/log.h"

/* --- answers, on the admin loop --- */

void admin_answer(struct admin_request *request, unsigned status, const char *content_type)
{
	pthread_mutex_lock(&request->lock);
	assert(request->status == 0);
	request->status = status;
	request->content_type = content_type;
	pthread_cond_signal(&request->answered);
	/* With this the request is no longer ours. */
	pthread_mutex_unlock(&request->lock);
}

void admin_answer_json(struct admin_request *request)
{
	admin_answer(request, MHD_HTTP_OK, "application/json");
}

void admin_problem(struct admin_request *request, unsigned status, enum code code,
		   const char *attribute, struct str value, const char *fmt, ...)
{
	struct buf *out = &request->body;
	struct buf detail = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&detail, fmt, ap);
	va_end(ap);
	buf_reset(out);
	json_open(out, '{');
	json_name(out, "type");
	buf_printf(out, "\"urn:bpm:diag:%s\"", code_text(code));
	json_text(out, "title", str_of(code_info(code)->meaning));
	json_int(out, "status", (int64_t)status);
	json_text(out, "detail", buf_str(&detail));
	json_text(out, "code", str_of(code_text(code)));
	json_name(out, "attributes");
	buf_add_byte(out, '{');
	if (attribute)
		json_text(out, attribute, value);
	json_close(out, '}');
	json_close(out, '}');
	buf_done(&detail);
	admin_answer(request, status, "application/problem+json");
}

void admin_not_found(struct admin_request *request)
{
	admin_problem(request, MHD_HTTP_NOT_FOUND, CODE_ADMIN_NOT_FOUND, "path",
		      str_of(request->path), "there is nothing at this path");
}

struct str admin_parameter(struct admin_request *request, const char *name)
{
	const char *value = NULL;
	size_t len = 0;

	if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, name,
					  strlen(name), &value, &len) != MHD_YES)
		return STR_NONE;
	return value ? str_make(value, len) : STR("");
}

/* --- the library's calls, on the connection's thread --- */

static enum MHD_Result http_write(struct admin_request *request)
{
	struct MHD_Response *response;
	enum MHD_Result result;
	size_t len = request->body.len;

	response = MHD_create_response_from_buffer(
		len, len ? buf_take(&request->body, NULL) : mem_alloc(1), MHD_RESPMEM_MUST_FREE);
	if (!response)
		return MHD_NO;
	if (request->content_type)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
					request->content_type);
	if (request->allow)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, request->allow);
	if (request->authenticate)
		MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
					request->authenticate);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	result = MHD_queue_response(request->connection, request->status, response);
	MHD_destroy_response(response);
	return result;
}

static struct admin_request *request_new(struct admin *admin, struct MHD_Connection *connection,
					 const char *method, const char *path)
{
	struct admin_request *request = mem_zalloc(sizeof(*request));

	request->admin = admin;
	request->connection = connection;
	pthread_mutex_init(&request->lock, NULL);
	pthread_cond_init(&request->answered, NULL);
	arena_init(&request->arena);
	request->method = arena_strdup(&request->arena, method);
	request->path = arena_strdup(&request->arena, path);
	request->takes_input = admin_request_takes_input(request);
	return request;
}

/* One piece of the body. Of one that is too large nothing is kept, but it is read to its end: else its sender hears no answer. */
static void http_input(struct admin_request *request, const char *bytes, size_t size)
{
	size_t most = request->admin->sources.lanes->settings.decode.limits.max_bytes;

	if (!request->takes_input || request->input_is_too_large)
		return;
	if (size > most || request->input.len > most - size) {
		request->input_is_too_large = true;
		buf_done(&request->input);
		request->input = (struct buf)BUF_INIT;
		return;
	}
	buf_add(&request->input, bytes, size);
}

/* Lends the request to the admin loop until it is answered. */
static void http_wait(struct admin_request *request)
{
	struct admin *admin = request->admin;

	__atomic_add_fetch(&admin->waiting, 1, __ATOMIC_ACQ_REL);
	request->post.run = admin_request_run;
	loop_post(admin->loop, &request->post);
	pthread_mutex_lock(&request->lock);
	while (!request->status)
		pthread_cond_wait(&request->answered, &request->lock);
	pthread_mutex_unlock(&request->lock);
	__atomic_sub_fetch(&admin->waiting, 1, __ATOMIC_ACQ_REL);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version UNUSED,
				  const char *upload, size_t *upload_size, void **state)
{
	struct admin *admin = user;
	struct admin_request *request = *state;

	if (!request) {
		*state = request_new(admin, connection, method, url);
		return MHD_YES;
	}
	if (*upload_size) {
		http_input(request, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	if (__atomic_load_n(&admin->stopping, __ATOMIC_ACQUIRE))
		return MHD_NO;
	http_wait(request);
	return http_write(request);
}

static void on_completed(void *user UNUSED, struct MHD_Connection *connection UNUSED, void **state,
			 enum MHD_RequestTerminationCode code UNUSED)
{
	struct admin_request *request = *state;

	*state = NULL;
	if (!request)
		return;
	pthread_cond_destroy(&request->answered);
	pthread_mutex_destroy(&request->lock);
	buf_done(&request->body);
	buf_done(&request->input);
	arena_done(&request->arena);
	free(request);
}

PRINTF_LIKE(2, 0) static void on_library_log(void *user UNUSED, const char *fmt, va_list ap)
{
	struct log_about about = {.stage = "admin"};
	struct buf line = BUF_INIT;

	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	buf_vprintf(&line, fmt, ap);
	while (line.len && line.data[line.len - 1] == '\n')
		line.len--;
	log_write(LOG_LEVEL_DEBUG, &about, "%.*s", (int)line.len, line.data);
	buf_done(&line);
}

#define CONNECTIONS_MAX   128
#define CONNECTION_BYTES  (32 * 1024) /* request line and headers */
#define CONNECTION_IDLE_S 15

struct MHD_Daemon *admin_http_start(struct admin *admin, int listener)
{
	return MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_USE_THREAD_PER_CONNECTION |
			MHD_USE_ERROR_LOG,
		0, NULL, NULL, on_request, admin, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
		MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_IDLE_S,
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}
