/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of the Check programs. They use the real clock: tests are not part of what the simulator runs.
 */
#include "tests/support/testing.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/time.h"

int test_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	/* Check's four seconds are short for a sanitizer build on a busy machine. */
	setenv("CK_DEFAULT_TIMEOUT", "60", 0);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static char *path_join(const char *dir, const char *name)
{
	size_t size = strlen(dir) + strlen(name) + 2;
	char *path = mem_alloc(size);

	snprintf(path, size, "%s/%s", dir, name);
	return path;
}

char *test_dir_new(void)
{
	const char *top = getenv("TMPDIR");
	char *path = path_join(top && *top ? top : "/tmp", "sutra-test-XXXXXX");

	ck_assert_msg(mkdtemp(path) != NULL, "cannot make %s: %s", path, strerror(errno));
	return path;
}

static int remove_one(const char *path, const struct stat *st UNUSED, int type UNUSED,
		      struct FTW *walk UNUSED)
{
	return remove(path);
}

void test_dir_free(char **dir)
{
	if (!*dir)
		return;
	nftw(*dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(*dir);
	*dir = NULL;
}

char *test_file_write(const char *dir, const char *name, struct str text)
{
	char *path = path_join(dir, name);
	FILE *file;

	for (char *slash = path + strlen(dir) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		ck_assert_msg(mkdir(path, 0777) == 0 || errno == EEXIST, "cannot make %s: %s", path,
			      strerror(errno));
		*slash = '/';
	}
	file = fopen(path, "wb");
	ck_assert_msg(file != NULL, "cannot write %s: %s", path, strerror(errno));
	ck_assert_uint_eq(fwrite(text.ptr, 1, text.len, file), text.len);
	ck_assert_int_eq(fclose(file), 0);
	return path;
}

char *test_file_read(const char *path, size_t *len)
{
	FILE *file = fopen(path, "rb");
	size_t cap = 4096, used = 0, got;
	char *text = mem_alloc(cap + 1);

	ck_assert_msg(file != NULL, "cannot read %s: %s", path, strerror(errno));
	while ((got = fread(text + used, 1, cap - used, file)) > 0) {
		used += got;
		if (used == cap)
			text = mem_realloc(text, (cap *= 2) + 1);
	}
	ck_assert_int_eq(ferror(file), 0);
	fclose(file);
	text[used] = '\0';
	if (len)
		*len = used;
	return text;
}

char *test_source_path(const char *relative)
{
	const char *top = getenv("top_srcdir");

	return path_join(top && *top ? top : TEST_TOP_SRCDIR, relative);
}

bool test_wait(bool (*done)(void *arg), void *arg, int64_t timeout_ms)
{
	int64_t end_us = time_monotonic_us() + timeout_ms * US_PER_MS;

	while (!done(arg)) {
		if (time_monotonic_us() >= end_us)
			return false;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return true;
}

void test_latch_raise(struct test_latch *latch)
{
	pthread_mutex_lock(&latch->mutex);
	latch->count++;
	pthread_cond_broadcast(&latch->cond);
	pthread_mutex_unlock(&latch->mutex);
}

bool test_latch_wait(struct test_latch *latch, int64_t count, int64_t timeout_ms)
{
	int64_t end_us = time_wall_us() + timeout_ms * US_PER_MS;
	struct timespec end = {end_us / US_PER_S, end_us % US_PER_S * 1000};
	bool reached;

	pthread_mutex_lock(&latch->mutex);
	while (latch->count < count)
		if (pthread_cond_timedwait(&latch->cond, &latch->mutex, &end) == ETIMEDOUT)
			break;
	reached = latch->count >= count;
	pthread_mutex_unlock(&latch->mutex);
	return reached;
}
