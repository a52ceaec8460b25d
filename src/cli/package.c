/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sutra package DIR --out DIR`: checks a package folder and writes its archive. The file appears whole or not at all: it is
 * written beside its place and renamed, because a replica may be watching the folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/findings.h"
#include "model/package.h"

static bool write_all(int fd, struct str bytes)
{
	while (bytes.len) {
		ssize_t done = write(fd, bytes.ptr, bytes.len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return false;
		bytes.ptr += done;
		bytes.len -= (size_t)done;
	}
	return fsync(fd) == 0;
}

/* False with errno. */
static bool file_write(const char *path, struct str bytes)
{
	struct buf temporary = BUF_INIT;
	int fd, error;
	bool ok = false;

	/* The dot keeps a watched folder from taking it for a package. */
	const char *slash = strrchr(path, '/');

	buf_printf(&temporary, "%.*s.%s.%ld", (int)(slash - path + 1), path, slash + 1,
		   (long)getpid());
	fd = open(temporary.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd >= 0) {
		ok = write_all(fd, bytes);
		error = errno;
		if (close(fd) != 0 && ok) {
			error = errno;
			ok = false;
		}
		if (ok && rename(temporary.data, path) != 0) {
			error = errno;
			ok = false;
		}
		if (!ok) {
			unlink(temporary.data);
			errno = error;
		}
	}
	buf_done(&temporary);
	return ok;
}

static int archive_write(struct cli *cli, const struct deployment *deployment, const char *folder)
{
	struct buf path = BUF_INIT;
	int exit_code = CLI_OK;

	buf_printf(&path, "%s/%.*s--%.*s--%.*s.sutra", folder, STR_ARG(deployment->tenant),
		   STR_ARG(deployment->module), STR_ARG(deployment->version));
	if (mkdir(folder, 0755) != 0 && errno != EEXIST) {
		fprintf(cli->err, "sutra package: %s: %s\n", folder, strerror(errno));
		exit_code = CLI_FAILED;
	} else if (!file_write(path.data, deployment->archive)) {
		fprintf(cli->err, "sutra package: %s: %s\n", path.data, strerror(errno));
		exit_code = CLI_FAILED;
	} else {
		fprintf(cli->out, "packaged %s (deploymentId %.*s)\n", path.data,
			STR_ARG(deployment->id));
	}
	buf_done(&path);
	return exit_code;
}

int command_package(struct cli *cli)
{
	const char *folder = NULL;
	const struct cli_option options[] = {
		{"out", 'o', "DIR", "Write the archive into DIR, made if it is missing (.)",
		 .text = &folder},
		{0},
	};
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct deployment *deployment = NULL;
	struct package *package = NULL;
	int exit_code;

	if (!cli_parse(cli, options, 1, 1, &exit_code))
		return exit_code;
	if (package_read(cli->argv[0], &limits, &package, &findings) == RESULT_OK &&
	    package_build(package, &deployment, &findings) == RESULT_OK)
		exit_code = archive_write(cli, deployment, folder ? folder : ".");
	else
		exit_code = CLI_FAILED;
	findings_print(&findings, cli->argv[0], cli->err);
	deployment_unref(&deployment);
	package_free(&package);
	findings_done(&findings);
	return exit_code;
}
