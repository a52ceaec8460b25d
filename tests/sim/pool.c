/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children get CHUNK seeds each, say by a pipe which one they begin, and send the result of each. One that ends without
 * having said so has crashed on the last seed it began; the seeds behind it go to another child.
 */
#include "tests/sim/pool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK       10
#define WORKERS_MAX 16
/* Seconds of processor time for one child; nothing takes a tenth of that. */
#define CPU_SECONDS 300

struct worker {
	pid_t pid; /* 0: none */
	int fd;
	uint64_t seed, end; /* in work, and behind the last */
};

static void child_run(const struct pool_options *options, int fd, uint64_t seed, uint64_t end)
{
	struct rlimit limit = {CPU_SECONDS, CPU_SECONDS + 5};

	setrlimit(RLIMIT_CPU, &limit);
	for (; seed < end; seed++) {
		struct world_options world = options->world;
		struct pool_report report = {.seed = seed};

		world.seed = seed;
		world_run(&world, &report.result);
		fflush(NULL);
		/* Less than a pipe takes at once, so it is whole or not there. */
		if (write(fd, &report, sizeof(report)) != (ssize_t)sizeof(report))
			_exit(3);
	}
	_exit(0);
}

static void worker_start(const struct pool_options *options, struct worker *worker)
{
	int fds[2];

	if (pipe(fds) != 0)
		abort();
	fflush(NULL);
	worker->pid = fork();
	if (worker->pid < 0)
		abort();
	if (worker->pid == 0) {
		close(fds[0]);
		child_run(options, fds[1], worker->seed, worker->end);
	}
	close(fds[1]);
	worker->fd = fds[0];
}

static void worker_give(const struct pool_options *options, struct worker *worker, uint64_t *next)
{
	uint64_t end = options->from + options->count;

	if (*next >= end)
		return;
	worker->seed = *next;
	worker->end = end - *next > CHUNK ? *next + CHUNK : end;
	*next = worker->end;
	worker_start(options, worker);
}

/* The child has ended. Returns false when its crash was reported and that was enough. */
static bool worker_end(const struct pool_options *options, struct worker *worker)
{
	struct pool_report report = {.seed = worker->seed};
	int status = 0;

	close(worker->fd);
	while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
		;
	worker->pid = 0;
	if (worker->seed == worker->end)
		return true;
	if (WIFSIGNALED(status))
		snprintf(report.result.failure, sizeof(report.result.failure),
			 "the child died of signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(report.result.failure, sizeof(report.result.failure),
			 "the child ended with exit code %d", WEXITSTATUS(status));
	worker->seed++;
	if (!options->report(options->user, &report))
		return false;
	if (worker->seed < worker->end)
		worker_start(options, worker);
	return true;
}

static bool worker_read(const struct pool_options *options, struct worker *worker)
{
	struct pool_report report;
	size_t have = 0;

	while (have < sizeof(report)) {
		ssize_t got = read(worker->fd, (char *)&report + have, sizeof(report) - have);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return worker_end(options, worker);
		have += (size_t)got;
	}
	worker->seed = report.seed + 1;
	return options->report(options->user, &report);
}

static void workers_kill(struct worker *workers, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!workers[i].pid)
			continue;
		kill(workers[i].pid, SIGKILL);
		close(workers[i].fd);
		while (waitpid(workers[i].pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

void pool_run(const struct pool_options *options)
{
	struct worker workers[WORKERS_MAX] = {{0}};
	uint32_t count = options->workers < WORKERS_MAX ? options->workers : WORKERS_MAX;
	uint64_t next = options->from;
	bool more = true;

	while (more) {
		struct pollfd fds[WORKERS_MAX];
		struct worker *polled[WORKERS_MAX];
		nfds_t polled_count = 0;

		for (uint32_t i = 0; i < count; i++) {
			if (!workers[i].pid)
				worker_give(options, &workers[i], &next);
			if (!workers[i].pid)
				continue;
			polled[polled_count] = &workers[i];
			fds[polled_count++] = (struct pollfd){.fd = workers[i].fd,
							      .events = POLLIN};
		}
		if (!polled_count)
			break;
		if (poll(fds, polled_count, -1) < 0 && errno != EINTR)
			abort();
		for (nfds_t i = 0; i < polled_count && more; i++)
			if (fds[i].revents)
				more = worker_read(options, polled[i]);
	}
	workers_kill(workers, count);
}
