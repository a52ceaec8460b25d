/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own settings: what contradicts itself, what is open, what was left as it comes. */
#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "service.h"

static void engine_settings(struct doctor *doctor)
{
	struct error err = ERROR_INIT;

	if (service_check_settings(doctor->config, &err) != RESULT_OK) {
		report_add(&doctor->report, SEVERITY_ERROR, err.code, "settings", NULL, "%s", err.text);
		report_remedy(&doctor->report, "correct these keys; docs/configuration.md describes them");
	}
	if (config_int(doctor->config, "engine.shards") == 1)
		report_add(&doctor->report, SEVERITY_INFO, CODE_NONE, "shards", "engine.shards",
			   "1: one message at a time in this replica; 4 lanes for each core keep batches full under load");
}

/* Host and port of host:port, the host without brackets; false if it is not of that form. */
static bool address_split(const char *address, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (!colon || len >= size)
		return false;
	*port = colon + 1;
	if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
		address++;
		len -= 2;
	}
	memcpy(host, address, len);
	host[len] = '\0';
	return true;
}

static bool is_loopback(const char *host)
{
	return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

/* 0, or errno of trying to listen there. */
static int address_try(const char *host, const char *port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *found;
	int fd, result, on = 1;

	if (getaddrinfo(*host ? host : NULL, port, &hints, &found) != 0)
		return EADDRNOTAVAIL;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		result = errno;
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		result = bind(fd, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
		close(fd);
	}
	freeaddrinfo(found);
	return result;
}

static void engine_listener(struct doctor *doctor)
{
	const char *address = config_text(doctor->config, "admin.listen"), *port;
	bool is_open = config_bool(doctor->config, "admin.dev-no-auth");
	struct report *report = &doctor->report;
	char host[256];
	int trouble;

	if (!address_split(address, host, sizeof(host), &port))
		return;
	if (is_open) {
		report_add(report, is_loopback(host) ? SEVERITY_WARNING : SEVERITY_ERROR, CODE_STARTUP_SETTINGS_SUSPICIOUS,
			   "admin-open", "admin.dev-no-auth", "the admin routes are open to everybody who reaches %s", address);
		report_remedy(report, "take it out, and set admin.auth.key-ref");
	} else if (!config_text(doctor->config, "admin.auth.key-ref")) {
		report_add(report, SEVERITY_WARNING, CODE_ADMIN_AUTH_UNCONFIGURED, "admin-closed", "admin.auth.key-ref",
			   "not set: every admin route answers 503");
		report_remedy(report, "set it to a reference, such as secret:admin-key");
	}
	trouble = address_try(host, port);
	if (trouble == EADDRINUSE) {
		report_add(report, SEVERITY_INFO, CODE_NONE, "listen-busy", "admin.listen",
			   "something listens on %s already; a replica of this configuration, perhaps", address);
	} else if (trouble) {
		report_add(report, SEVERITY_ERROR, CODE_STARTUP_SETTINGS, "listen", "admin.listen", "%s: %s", address,
			   strerror(trouble));
		report_remedy(report, "name an address of this machine and a port that this user may listen on");
	}
	report_add(report, SEVERITY_INFO, CODE_NONE, "listener", "admin.listen", "%s: %s", address,
		   is_loopback(host) ? "probes and metrics are reached from this machine only"
				     : "HTTP without TLS; keep it on a private network");
}

static void engine_secrets(struct doctor *doctor)
{
	const char *dir = config_text(doctor->config, "secrets.dir");
	struct report *report = &doctor->report;
	struct stat st;

	if (stat(dir, &st) != 0) {
		/* References were resolved when the configuration was read: there is none into this folder. */
		if (config_is_chosen(doctor->config, "secrets.dir")) {
			report_add(report, SEVERITY_WARNING, CODE_STARTUP_SETTINGS_SUSPICIOUS, "secrets", "secrets.dir", "%s: %s",
				   dir, strerror(errno));
			report_remedy(report, "make the folder, or take the key out");
		}
	} else if (!S_ISDIR(st.st_mode) || access(dir, R_OK | X_OK) != 0) {
		report_add(report, SEVERITY_WARNING, CODE_STARTUP_SETTINGS_SUSPICIOUS, "secrets", "secrets.dir",
			   "%s is no folder that this user can read", dir);
		report_remedy(report, "let the user of the engine read it");
	} else if (st.st_mode & S_IWOTH) {
		report_add(report, SEVERITY_WARNING, CODE_STARTUP_SETTINGS_SUSPICIOUS, "secrets", "secrets.dir",
			   "%s can be written by everybody on this machine", dir);
		report_remedy(report, "chmod 0750, owned by the user of the engine");
	}
}

void doctor_engine(struct doctor *doctor)
{
	report_area(&doctor->report, "engine");
	engine_settings(doctor);
	engine_listener(doctor);
	engine_secrets(doctor);
}
