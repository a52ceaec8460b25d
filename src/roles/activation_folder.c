/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of packages: every sub-folder with a package.conf and every file *.sutra is one, in byte order of their names, so
 * that every replica sees the same list. What begins with a dot is nobody's (half-written files, mounted volumes' own).
 * Links are followed at this level only: that is how a mounted volume shows its files.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "roles/activation_private.h"

static const struct log_about about = {.stage = "activation"};

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool ends_with(const char *name, const char *end)
{
	size_t len = strlen(name), end_len = strlen(end);

	return len > end_len && strcmp(name + len - end_len, end) == 0;
}

static bool is_package(const char *path)
{
	struct stat st;
	bool is = false;
	struct buf text = BUF_INIT;

	if (stat(path, &st) != 0) {
		log_warning(&about, "%s: %s", path, strerror(errno));
		return false;
	}
	if (S_ISDIR(st.st_mode)) {
		buf_printf(&text, "%s/package.conf", path);
		is = stat(text.data, &st) == 0;
		buf_done(&text);
		return is;
	}
	return S_ISREG(st.st_mode) && ends_with(path, ".sutra");
}

static void read_package(struct loader *loader, struct str path)
{
	struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct candidate *candidate = loader_add(loader);
	struct package *package = NULL;
	struct findings findings = {0};

	candidate->path = path;
	if (package_read(path.ptr, &limits, &package, &findings) != RESULT_OK)
		candidate_fail(candidate, &findings);
	else
		candidate_build(candidate, &package, &findings);
	findings_done(&findings);
	if (!candidate->tenant.ptr)
		loader->unidentified = true;
}

/* The names in the folder, sorted, in the arena. */
static char **read_names(struct arena *arena, DIR *folder, size_t *count)
{
	char **names = NULL;
	struct dirent *entry;

	*count = 0;
	while ((entry = readdir(folder)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		names = mem_array(names, *count + 1, sizeof(*names));
		names[(*count)++] = arena_strdup(arena, entry->d_name);
	}
	if (*count)
		qsort(names, *count, sizeof(*names), compare_names);
	return names;
}

bool activation_list_folder(const char *dir, struct arena *arena, struct str **paths, uint32_t *count)
{
	DIR *folder = opendir(dir);
	char **names;
	size_t name_count;

	if (!folder)
		return false;
	names = read_names(arena, folder, &name_count);
	closedir(folder);
	*paths = arena_alloc(arena, (name_count + 1) * sizeof(**paths));
	*count = 0;
	for (size_t i = 0; i < name_count; i++) {
		struct str path = str_of(arena_printf(arena, "%s/%s", dir, names[i]));

		if (is_package(path.ptr))
			(*paths)[(*count)++] = path;
	}
	free(names);
	return true;
}

void activation_read_folder(struct loader *loader, const char *dir)
{
	struct str *paths;
	uint32_t count;

	if (!activation_list_folder(dir, &loader->arena, &paths, &count)) {
		log_warning(&about, "deployment.dir %s: %s; nothing is deployed from it", dir,
			    strerror(errno));
		return;
	}
	loader->folder_read = true;
	for (uint32_t i = 0; i < count; i++)
		read_package(loader, paths[i]);
	if (loader->count == 0)
		log_warning(&about, "deployment.dir %s holds no package", dir);
}
