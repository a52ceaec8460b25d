/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a package from a folder, and telling a folder from an archive.
 *
 * Everything is opened relative to its folder and without following links, so that nothing outside can be read however the
 * tree changes meanwhile. What editors and version control leave behind (names that begin with a dot or end with a
 * tilde) is passed over with a warning; anything else that is no part of a package is refused, because a misplaced file
 * would otherwise be missing without a word.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/package_private.h"

struct folder {
	const char *where;
	const struct package_limits *limits;
	struct package *package;
	struct findings *findings;
	uint32_t seen;
};

static void refuse(struct folder *folder, const char *path, const char *why)
{
	struct buf shown = BUF_INIT;

	buf_add_json(&shown, str_of(path));
	finding_add(folder->findings, folder->where, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
		    "entry %s: %s", shown.data, why);
	buf_done(&shown);
}

/* The whole of a file up to `max` bytes and one more, so that the caller sees that it is larger. */
static bool read_all(int fd, uint64_t max, struct buf *out)
{
	while (out->len <= max) {
		uint64_t want = max + 1 - out->len;
		ssize_t got;

		if (want > 65536)
			want = 65536;
		got = read(fd, buf_reserve(out, (size_t)want), (size_t)want);
		if (got == 0)
			return true;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return false;
		out->len += (size_t)got;
	}
	return true;
}

static void read_file(struct folder *folder, int at, const char *name, const char *path)
{
	struct buf bytes = BUF_INIT;
	struct stat st;
	int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0) {
		refuse(folder, path, errno == ELOOP ? "is a symbolic link" : strerror(errno));
		return;
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		refuse(folder, path, "is no regular file");
	else if (!read_all(fd, folder->limits->max_entry_bytes, &bytes))
		refuse(folder, path, strerror(errno));
	else if (!package_add(folder->package, str_of(path), buf_str(&bytes), folder->limits,
			      folder->where, folder->findings))
		folder->seen = folder->limits->max_entries + 1; /* said; read no more */
	buf_done(&bytes);
	close(fd);
}

static void read_folder(struct folder *folder, int fd, const char *prefix, uint32_t depth);

static void read_entry(struct folder *folder, int at, const char *name, const char *prefix,
		       uint32_t depth)
{
	char path[PACKAGE_PATH_MAX + 256 + 2];
	size_t len = strlen(name);
	struct stat st;
	int fd;

	if (snprintf(path, sizeof(path), "%s%s", prefix, name) > PACKAGE_PATH_MAX) {
		refuse(folder, path, "has too long a path");
		return;
	}
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		refuse(folder, path, strerror(errno));
	} else if (S_ISLNK(st.st_mode)) {
		refuse(folder, path, "is a symbolic link");
	} else if (name[0] == '.' || name[len - 1] == '~') {
		finding_add(folder->findings, folder->where, 0, STR_NONE,
			    CODE_CONFIG_PACKAGE_IGNORED, "%s is left out of the package", path);
	} else if (S_ISDIR(st.st_mode)) {
		if (depth == 0 && strcmp(name, "bpmn") != 0) {
			refuse(folder, path, "the only folder in a package is bpmn");
			return;
		}
		if (depth + 1 > folder->limits->max_depth) {
			refuse(folder, path, "lies too deep");
			return;
		}
		fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0) {
			refuse(folder, path, strerror(errno));
			return;
		}
		len = strlen(path);
		path[len] = '/';
		path[len + 1] = '\0';
		read_folder(folder, fd, path, depth + 1);
		close(fd);
	} else if (!S_ISREG(st.st_mode)) {
		refuse(folder, path, "is no regular file");
	} else if (package_path_check(str_of(path), folder->limits, folder->where,
				      folder->findings)) {
		read_file(folder, at, name, path);
	}
}

/* `fd` stays the caller's. The order does not matter: entries are sorted in the end. */
static void read_folder(struct folder *folder, int fd, const char *prefix, uint32_t depth)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!dir) {
		refuse(folder, prefix, strerror(errno));
		if (copy >= 0)
			close(copy);
		return;
	}
	rewinddir(dir);
	while ((entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (folder->seen > folder->limits->max_entries)
			break;
		if (++folder->seen > folder->limits->max_entries) {
			refuse(folder, prefix[0] ? prefix : ".", "holds too many files");
			break;
		}
		read_entry(folder, fd, entry->d_name, prefix, depth);
	}
	closedir(dir);
}

void package_read_folder(int fd, const char *where, const struct package_limits *limits,
			 struct package *package, struct findings *findings)
{
	struct folder folder = {
		.where = where,
		.limits = limits,
		.package = package,
		.findings = findings,
	};

	read_folder(&folder, fd, "", 0);
}

static enum result read_archive_file(int fd, const char *path, const struct package_limits *limits,
				     struct package **out, struct findings *findings)
{
	/* Room for the zip's own records besides the entries. */
	uint64_t max = limits->max_total_bytes + (uint64_t)limits->max_entries * 1024 + 65536;
	struct buf bytes = BUF_INIT;
	enum result result = RESULT_REJECT;

	if (!read_all(fd, max, &bytes))
		finding_add(findings, path, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID, "%s",
			    strerror(errno));
	else if (bytes.len > max)
		finding_add(findings, path, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
			    "the archive is larger than %llu bytes", (unsigned long long)max);
	else
		result = package_read_archive(buf_str(&bytes), limits, out, findings);
	buf_done(&bytes);
	return result;
}

enum result package_read(const char *path, const struct package_limits *limits,
			 struct package **out, struct findings *findings)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	enum result result = RESULT_REJECT;
	struct package *package;
	struct stat st;
	unsigned errors = findings->errors;

	if (fd < 0 || fstat(fd, &st) != 0) {
		finding_add(findings, path, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID, "%s",
			    strerror(errno));
	} else if (S_ISREG(st.st_mode)) {
		result = read_archive_file(fd, path, limits, out, findings);
	} else if (!S_ISDIR(st.st_mode)) {
		finding_add(findings, path, 0, STR_NONE, CODE_CONFIG_PACKAGE_INVALID,
			    "is neither a folder nor an archive");
	} else {
		package = package_new();
		package_read_folder(fd, NULL, limits, package, findings);
		package_finish(package, NULL, findings);
		if (findings->errors == errors) {
			*out = package;
			result = RESULT_OK;
		} else {
			package_free(&package);
		}
	}
	if (fd >= 0)
		close(fd);
	return result;
}
