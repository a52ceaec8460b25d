/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every Check program needs: a main, a temporary folder, a wait with a deadline, the place of test data.
 *
 *	static Suite *thing_suite(void) { … }
 *	TEST_MAIN(thing_suite)
 *
 * Life cycle: test_dir_new/test_dir_free; the rest has none. Threads: any, each object one at a time.
 */
#ifndef SUTRA_TESTS_SUPPORT_TESTING_H
#define SUTRA_TESTS_SUPPORT_TESTING_H

#include <check.h>
#include <pthread.h>

#include "base/attr.h"
#include "base/str.h"

/* Runs the suite; the exit status says whether all passed. Check forks for each test unless CK_FORK=no. */
int test_run(Suite *suite);

#define TEST_MAIN(suite_fn) \
	int main(void) \
	{ \
		return test_run(suite_fn()); \
	}

/* Adds the tests to the case, in this order. */
#define TEST_ADD_ALL(tcase, ...) \
	do { \
		const TTest *const tests_[] = {__VA_ARGS__}; \
		for (size_t i_ = 0; i_ < ARRAY_LEN(tests_); i_++) \
			tcase_add_test(tcase, tests_[i_]); \
	} while (0)

/* Slices, compared with both shown on failure. */
#define ck_assert_str_slice(have, want) \
	do { \
		struct str have_ = (have), want_ = (want); \
		ck_assert_msg(str_equal(have_, want_), "have '%.*s', want '%.*s'", STR_ARG(have_), \
			      STR_ARG(want_)); \
	} while (0)

/* A new empty folder below $TMPDIR or /tmp; the path is malloc'ed and owned by the caller. */
char *test_dir_new(void);
/* Removes it with everything in it, frees the path, sets *dir to NULL. Accepts NULL there. */
void test_dir_free(char **dir);
/* Writes `text` to dir/name (folders between are made); returns the malloc'ed path. */
char *test_file_write(const char *dir, const char *name, struct str text);
/* The whole of a file, terminated, malloc'ed; fails the test if it cannot be read. */
char *test_file_read(const char *path, size_t *len);

/* Path of a file of the source tree, "tests/data/x"; malloc'ed. */
char *test_source_path(const char *relative);

/*
 * Waits until `done(arg)` is true and returns true, or false when `timeout_ms` have passed. Asks again every
 * millisecond: for what another thread or process brings about without telling us.
 */
bool test_wait(bool (*done)(void *arg), void *arg, int64_t timeout_ms) MUST_CHECK;

/* A latch: a counter that threads raise and a test waits for. All zero is not valid: use TEST_LATCH_INIT. */
struct test_latch {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int64_t count;
};

#define TEST_LATCH_INIT {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}

/* @thread any */
void test_latch_raise(struct test_latch *latch);
/* Whether the count has come to `count` within `timeout_ms`. @thread any */
bool test_latch_wait(struct test_latch *latch, int64_t count, int64_t timeout_ms) MUST_CHECK;

#endif
