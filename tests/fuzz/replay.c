/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main of a fuzz target where no fuzzer is linked: gives it every file of the folders and every file named on the command
 * line; without arguments the seeds tests/fuzz/corpus/<name> of tests/fuzz/fuzz_<name>. What a fuzzer once found is
 * kept there, so `make check` tries it for ever.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/attr.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static unsigned replayed;

static void replay_file(const char *path, size_t size)
{
	FILE *file = fopen(path, "rb");
	/* Exactly as large as the input, so that a sanitizer sees a read behind its end. */
	uint8_t *bytes = malloc(size + !size);

	if (!file || !bytes || fread(bytes, 1, size, file) != size) {
		fprintf(stderr, "%s: cannot be read\n", path);
		exit(1);
	}
	fclose(file);
	LLVMFuzzerTestOneInput(bytes, size);
	free(bytes);
	replayed++;
}

static void replay(const char *path)
{
	struct stat st;
	struct dirent *entry;
	DIR *dir;

	if (stat(path, &st) != 0) {
		perror(path);
		exit(1);
	}
	if (!S_ISDIR(st.st_mode)) {
		replay_file(path, (size_t)st.st_size);
		return;
	}
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		char below[4096];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		replay(below);
	}
	if (dir)
		closedir(dir);
}

int main(int argc, char **argv)
{
	const char *top = getenv("top_srcdir"), *name = strrchr(argv[0], '/');
	char folder[4096];

	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	if (argc == 1) {
		name = name ? name + 1 : argv[0];
		if (strncmp(name, "fuzz_", 5) == 0)
			name += 5;
		snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", top ? top : ".", name);
		replay(folder);
	}
	printf("%u inputs replayed\n", replayed);
	return replayed == 0;
}
