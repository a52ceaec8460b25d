/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main of a fuzz target where no fuzzer is linked: gives it every file of the folders and every file named on the command
 * line; without arguments the seeds tests/fuzz/corpus/<name> of tests/fuzz/fuzz_<name>. What a fuzzer once found is
 * kept there, so `make check` tries it for ever. The seeds are also tried cut short and with single bytes changed, the
 * same ones in every run; files that are named are tried as they are.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/attr.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Cuts and changes tried of each seed. */
#define VARIANTS 200

static unsigned replayed;

/* Gives the target a copy exactly as large as the input, so that a sanitizer sees a read behind its end. */
static void try_input(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size + !size);

	if (!copy)
		abort();
	if (size)
		memcpy(copy, bytes, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void try_variants(uint8_t *bytes, size_t size)
{
	uint32_t chance = 1;

	for (size_t i = 0; i < VARIANTS && size > 0; i++) {
		chance = chance * 1664525 + 1013904223;

		size_t at = (chance >> 8) % size;
		uint8_t kept = bytes[at];

		try_input(bytes, size * i / VARIANTS);
		chance = chance * 1664525 + 1013904223;
		bytes[at] = (uint8_t)(chance >> 16);
		try_input(bytes, size);
		bytes[at] = kept;
	}
}

static void replay_file(const char *path, size_t size, int variants)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes = malloc(size + !size);

	if (!file || !bytes || fread(bytes, 1, size, file) != size) {
		fprintf(stderr, "%s: cannot be read\n", path);
		exit(1);
	}
	fclose(file);
	try_input(bytes, size);
	if (variants)
		try_variants(bytes, size);
	free(bytes);
	replayed++;
}

static void replay(const char *path, int variants)
{
	struct stat st;
	struct dirent *entry;
	DIR *dir;

	if (stat(path, &st) != 0) {
		perror(path);
		exit(1);
	}
	if (!S_ISDIR(st.st_mode)) {
		replay_file(path, (size_t)st.st_size, variants);
		return;
	}
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		char below[4096];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		replay(below, variants);
	}
	if (dir)
		closedir(dir);
}

/*
 * The thread sanitizer's shadow of what Lua allocates and frees grows without end (to 20 GB over the variants), and one thread
 * has no races: there the seeds alone are run.
 */
#ifdef __SANITIZE_THREAD__
#define TRY_VARIANTS 0
#else
#define TRY_VARIANTS 1
#endif

int main(int argc, char **argv)
{
	const char *top = getenv("top_srcdir"), *name = strrchr(argv[0], '/');
	char folder[4096];

	for (int i = 1; i < argc; i++)
		replay(argv[i], 0);
	if (argc == 1) {
		name = name ? name + 1 : argv[0];
		if (strncmp(name, "fuzz_", 5) == 0)
			name += 5;
		snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", top ? top : ".", name);
		replay(folder, TRY_VARIANTS);
	}
	printf("%u inputs replayed\n", replayed);
	return replayed == 0;
}
