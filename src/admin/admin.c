/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin listener's life, and what every request passes before its route: the key, the method, the names of its
 * parameters.
 *
 * Closed unless opened: without a configured key /admin answers 503, with a wrong one 401, and both before anything is
 * said about whether the path exists.
 */
#include "admin/admin.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admin/internal.h"
#include "base/alloc.h"
#include "base/log.h"

static const struct log_about about_admin = {.stage = "admin"};

/* --- before the route --- */

/* By digests, so that the time taken tells nothing of the key, nor of its length. */
static bool key_is_right(const char *key, const char *given)
{
	unsigned char want[SHA256_DIGEST_LENGTH], have[SHA256_DIGEST_LENGTH];

	SHA256((const unsigned char *)key, strlen(key), want);
	SHA256((const unsigned char *)given, strlen(given), have);
	return CRYPTO_memcmp(want, have, sizeof(want)) == 0;
}

/* What the request names as the key; NULL: nothing. */
static const char *key_given(const struct admin_request *request)
{
	return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, request->admin->header);
}

bool admin_request_takes_input(const struct admin_request *request)
{
	const struct admin *admin = request->admin;
	const char *given = key_given(request);

	if (strcmp(request->method, MHD_HTTP_METHOD_POST) != 0)
		return false;
	return admin->no_auth || (admin->key && given && key_is_right(admin->key, given));
}

static bool request_is_let_in(struct admin_request *request)
{
	struct admin *admin = request->admin;
	const char *given;

	if (admin->no_auth)
		return true;
	if (!admin->key) {
		admin_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, CODE_ADMIN_AUTH_UNCONFIGURED,
			      NULL, STR_NONE, "no admin key is configured");
		return false;
	}
	given = key_given(request);
	if (given && key_is_right(admin->key, given))
		return true;
	request->authenticate = "ApiKey";
	admin_problem(request, MHD_HTTP_UNAUTHORIZED, CODE_ADMIN_AUTH_MISSING, "header",
		      str_of(admin->header), "the admin key is %s", given ? "wrong" : "missing");
	return false;
}

struct parameter_check {
	const struct admin_route *route;
	const char *unknown;
};

static enum MHD_Result check_parameter(void *user, enum MHD_ValueKind kind UNUSED, const char *name,
				       const char *value UNUSED)
{
	struct parameter_check *check = user;
	char word[40];

	snprintf(word, sizeof(word), " %s ", name);
	if (strlen(name) > 30 || strchr(name, ' ') || !strstr(check->route->parameters, word))
		check->unknown = name;
	return check->unknown ? MHD_NO : MHD_YES;
}

void admin_request_run(struct task *post)
{
	struct admin_request *request = container_of(post, struct admin_request, post);
	const struct admin_route *route = admin_route_find(request);
	struct parameter_check check = {.route = route};
	bool is_admin = str_starts_with(str_of(request->path), STR("/admin/")) ||
			strcmp(request->path, "/admin") == 0;

	if ((is_admin || (route && !route->open)) && !request_is_let_in(request))
		return;
	if (!route && request->allow) {
		admin_problem(request, MHD_HTTP_METHOD_NOT_ALLOWED, CODE_ADMIN_METHOD_NOT_ALLOWED,
			      "method", str_of(request->method), "this path takes %s", request->allow);
		return;
	}
	if (!route) {
		admin_not_found(request);
		return;
	}
	request->allow = NULL;
	if (request->input_is_too_large) {
		admin_problem(request, MHD_HTTP_CONTENT_TOO_LARGE, CODE_INBOUND_PAYLOAD_TOO_LARGE, NULL, STR_NONE,
			      "the body is larger than codec.max-payload-bytes");
		return;
	}
	MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, check_parameter,
				  &check);
	if (check.unknown) {
		admin_problem(request, MHD_HTTP_BAD_REQUEST, CODE_ADMIN_BAD_REQUEST, "parameter",
			      str_of(check.unknown), "this path has no such parameter");
		return;
	}
	route->run(request);
}

/* --- life --- */

/* "host:port", "[v6]:port", ":port". */
static bool split_address(const char *listen, char host[256], char port[16])
{
	const char *colon = strrchr(listen, ':'), *end = colon;

	if (!colon || strlen(colon + 1) >= 16)
		return false;
	if (listen[0] == '[' && end > listen && end[-1] == ']') {
		listen++;
		end--;
	}
	if (end - listen >= 256)
		return false;
	snprintf(host, 256, "%.*s", (int)(end - listen), listen);
	snprintf(port, 16, "%s", colon + 1);
	return true;
}

static int listen_on(const struct addrinfo *at)
{
	int on = 1, fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	on = errno;
	close(fd);
	errno = on;
	return -1;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	char text[16] = "";
	int64_t port = 0;

	if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 ||
	    getnameinfo((struct sockaddr *)&address, size, NULL, 0, text, sizeof(text),
			NI_NUMERICSERV) != 0 ||
	    !str_to_int64(str_of(text), &port))
		return 0;
	return (uint16_t)port;
}

static enum result open_listener(const char *listen, int *out, struct error *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *list = NULL;
	char host[256], port[16];
	int result, fd = -1;

	if (!split_address(listen, host, port))
		return error_set(err, RESULT_FATAL, CODE_STARTUP_SETTINGS,
				 "admin.listen = %s is no address", listen);
	result = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
	if (result != 0)
		return error_set(err, RESULT_FATAL, CODE_STARTUP_SETTINGS, "admin.listen = %s: %s",
				 listen, gai_strerror(result));
	for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
		fd = listen_on(at);
	freeaddrinfo(list);
	if (fd < 0)
		return error_set(err, RESULT_FATAL, CODE_STARTUP_SETTINGS, "admin.listen = %s: %s",
				 listen, strerror(errno));
	*out = fd;
	return RESULT_OK;
}

static void admin_free(struct admin *admin)
{
	loop_stop(&admin->loop);
	view_unref(&admin->view);
	if (admin->key)
		OPENSSL_cleanse(admin->key, strlen(admin->key));
	free(admin->key);
	free(admin->header);
	free(admin);
}

/* No thread of the library's may be the one that a signal to the process interrupts: signals are main's. */
static struct MHD_Daemon *start_without_signals(struct admin *admin, int listener)
{
	struct MHD_Daemon *daemon;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	daemon = admin_http_start(admin, listener);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return daemon;
}

enum result admin_start(struct runtime *runtime, const struct admin_settings *settings,
			const struct admin_sources *sources, struct admin **out, uint16_t *port,
			struct error *err)
{
	struct admin *admin;
	enum result result;
	int listener;

	result = open_listener(settings->listen, &listener, err);
	if (result != RESULT_OK)
		return result;
	*port = port_of(listener);
	admin = mem_zalloc(sizeof(*admin));
	admin->sources = *sources;
	admin->key = settings->key && settings->key[0] ? mem_strdup(settings->key) : NULL;
	admin->header = mem_strdup(settings->header);
	admin->no_auth = settings->no_auth;
	admin->loop = loop_start(runtime, "admin");
	admin->daemon = start_without_signals(admin, listener);
	if (!admin->daemon) {
		close(listener);
		admin_free(admin);
		return error_set(err, RESULT_FATAL, CODE_STARTUP_SETTINGS,
				 "admin.listen = %s: cannot be served", settings->listen);
	}
	log_info(&about_admin, "listening on %.*s:%u",
		 (int)(strrchr(settings->listen, ':') - settings->listen), settings->listen, *port);
	if (admin->no_auth)
		log_warning(&about_admin,
			    "admin.dev-no-auth: the admin routes are open to everybody");
	*out = admin;
	return RESULT_OK;
}

struct loaded {
	struct admin *admin;
	struct view *view;
	const struct activation *activation;
};

static void loaded_on_loop(void *arg)
{
	struct loaded *loaded = arg;

	view_unref(&loaded->admin->view);
	loaded->admin->view = view_ref(loaded->view);
	loaded->admin->activation = loaded->activation;
}

void admin_loaded(struct admin *admin, struct view *view, const struct activation *activation)
{
	struct loaded loaded = {admin, view, activation};

	loop_call(admin->loop, loaded_on_loop, &loaded);
}

static bool nothing_waits(void *arg)
{
	return __atomic_load_n(&((struct admin *)arg)->waiting, __ATOMIC_ACQUIRE) == 0;
}

#define SAY_SO_MS 10000

void admin_stop(struct admin **address)
{
	struct admin *admin = *address;
	MHD_socket listener;

	*address = NULL;
	if (!admin)
		return;
	__atomic_store_n(&admin->stopping, true, __ATOMIC_RELEASE);
	listener = MHD_quiesce_daemon(admin->daemon);
	/* The store answers whatever it was sent, so this has an end. */
	while (!loop_wait(admin->loop->runtime, nothing_waits, admin, SAY_SO_MS))
		log_warning(&about_admin, "a request still waits for the database");
	MHD_stop_daemon(admin->daemon);
	if (listener != MHD_INVALID_SOCKET)
		close(listener);
	admin_free(admin);
}
