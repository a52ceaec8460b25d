/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main thread of a replica: it builds the service, then waits for signals and does nothing else.
 *
 * Signals are blocked in every thread and taken here by sigtimedwait. After the first SIGTERM or SIGINT they get back their
 * default meaning, so that a second one ends the process at once: everything that has not been settled is redelivered.
 */
#include "cli/run.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/time.h"
#include "service.h"

static const struct log_about about_run = {.stage = "service"};

const char *run_environment(const struct cli *cli, const char *name)
{
	size_t len = strlen(name);

	for (char *const *entry = cli->environ_; *entry; entry++)
		if (strncmp(*entry, name, len) == 0 && (*entry)[len] == '=')
			return *entry + len + 1;
	return NULL;
}

static sigset_t run_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	return signals;
}

void run_block_signals(void)
{
	sigset_t signals = run_signals();

	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Waits for a signal, at most `timeout_ms` (-1: for ever). Returns it, or 0. */
static int run_wait_signal(int64_t timeout_ms)
{
	sigset_t signals = run_signals();
	struct timespec timeout = {timeout_ms / MS_PER_S, timeout_ms % MS_PER_S * 1000000};
	int signal_number;

	do {
		signal_number = timeout_ms < 0 ? sigwaitinfo(&signals, NULL) : sigtimedwait(&signals, NULL, &timeout);
	} while (signal_number < 0 && errno == EINTR);
	return signal_number < 0 ? 0 : signal_number;
}

/* From here on a second signal ends the process. */
static void run_unblock_signals(void)
{
	sigset_t signals = run_signals();

	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

bool run_write_file(struct cli *cli, const char *path, const char *text)
{
	struct buf temporary = BUF_INIT;
	FILE *file;
	bool ok;

	buf_printf(&temporary, "%s.tmp", path);
	file = fopen(temporary.data, "w");
	ok = file && fputs(text, file) >= 0;
	if (file && fclose(file) != 0)
		ok = false;
	ok = ok && rename(temporary.data, path) == 0;
	if (!ok)
		fprintf(cli->err, "sutra: cannot write %s: %s\n", path, strerror(errno));
	buf_done(&temporary);
	return ok;
}

static bool run_write_port(struct cli *cli, const char *path, uint16_t port)
{
	char text[16];

	if (!path)
		return true;
	snprintf(text, sizeof(text), "%u\n", port);
	return run_write_file(cli, path, text);
}

static void run_configure_log(const struct config *config)
{
	const char *level = config_text(config, "log.level");
	const char *format = config_text(config, "log.format");
	enum log_level parsed = LOG_LEVEL_INFO;

	if (strcmp(level, "debug") == 0)
		parsed = LOG_LEVEL_DEBUG;
	else if (strcmp(level, "warning") == 0)
		parsed = LOG_LEVEL_WARNING;
	else if (strcmp(level, "error") == 0)
		parsed = LOG_LEVEL_ERROR;
	log_configure(parsed, strcmp(format, "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT);
}

#define RETRY_FIRST_MS 250
#define RETRY_MOST_MS 5000

/* False: told to stop, or it cannot start (`*exit_code`). */
static bool run_start(struct service *service, int *exit_code)
{
	int64_t pause_ms = RETRY_FIRST_MS;

	for (;;) {
		struct error err = ERROR_INIT;
		enum result result = service_start(service, &err);
		struct log_about about = {.stage = "service", .code = err.code};

		if (result == RESULT_OK)
			return true;
		if (result != RESULT_AGAIN) {
			log_error(&about, "cannot start: %s", err.text);
			*exit_code = CLI_FAILED;
			return false;
		}
		log_warning(&about, "not ready, trying again: %s", err.text);
		if (run_wait_signal(pause_ms)) {
			*exit_code = CLI_OK;
			return false;
		}
		pause_ms = pause_ms * 2 < RETRY_MOST_MS ? pause_ms * 2 : RETRY_MOST_MS;
	}
}

static int run_service(struct cli *cli, struct service *service, const char *port_file)
{
	struct error err = ERROR_INIT;
	int exit_code = CLI_OK;

	if (service_start_listener(service, &err) != RESULT_OK) {
		struct log_about about = {.stage = "admin", .code = err.code};

		log_error(&about, "cannot start: %s", err.text);
		return CLI_FAILED;
	}
	if (!run_write_port(cli, port_file, service->admin_port))
		return CLI_FAILED;
	if (run_start(service, &exit_code)) {
		int signal_number = run_wait_signal(-1);

		log_info(&about_run, "stopping on %s", signal_number == SIGINT ? "SIGINT" : "SIGTERM");
	}
	run_unblock_signals();
	service_stop(service);
	log_info(&about_run, "stopped");
	return exit_code;
}

int run_replica(struct cli *cli, const struct config *config, const char *port_file)
{
	struct service_seams seams = {.runtime = runtime_threads()};
	struct service *service = NULL;
	struct error err = ERROR_INIT;
	int exit_code;

	run_configure_log(config);
	if (!fault_configure(run_environment(cli, "SUTRA_FAULT"))) {
		fputs("sutra: SUTRA_FAULT is malformed\n", cli->err);
		return CLI_USAGE;
	}
	if (service_new(config, &seams, &service, &err) != RESULT_OK) {
		fprintf(cli->err, "sutra: %s: %s\n", code_text(err.code), err.text);
		return CLI_FAILED;
	}
	exit_code = run_service(cli, service, port_file);
	/* What is still out points into the service: the process ends with it, and the brokers redeliver. */
	if (service->stop_is_unclean)
		_exit(exit_code);
	service_free(&service);
	return exit_code;
}
