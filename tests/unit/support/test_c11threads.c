/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in builds with the thread sanitizer: librdkafka's threads must end in our C11 threads, or it crashes.
 */
#include <dlfcn.h>
#include <threads.h>

#ifdef HAVE_KAFKA
#include <librdkafka/rdkafka.h>
#endif

#include "tests/support/testing.h"

struct counter {
	mtx_t mutex;
	cnd_t cond;
	int value;
};

static int count_up(void *arg)
{
	struct counter *counter = arg;

	for (int i = 0; i < 1000; i++) {
		mtx_lock(&counter->mutex);
		counter->value++;
		cnd_signal(&counter->cond);
		mtx_unlock(&counter->mutex);
	}
	return 7;
}

START_TEST(threads_lock_and_wait)
{
	struct counter counter = {.value = 0};
	thrd_t threads[2];
	int result = 0;

	ck_assert_int_eq(mtx_init(&counter.mutex, mtx_plain), thrd_success);
	ck_assert_int_eq(cnd_init(&counter.cond), thrd_success);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(thrd_create(&threads[i], count_up, &counter), thrd_success);
	mtx_lock(&counter.mutex);
	while (counter.value < 2000)
		cnd_wait(&counter.cond, &counter.mutex);
	mtx_unlock(&counter.mutex);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(thrd_join(threads[i], &result), thrd_success);
		ck_assert_int_eq(result, 7);
	}
	cnd_destroy(&counter.cond);
	mtx_destroy(&counter.mutex);
}
END_TEST

/* What a shared library finds under the name is what dlsym finds: it must be the program's, not the C library's. */
START_TEST(libraries_get_ours)
{
	static const char *const names[] = {"thrd_create", "thrd_join", "mtx_lock", "mtx_unlock", "cnd_timedwait"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		Dl_info info;

		ck_assert_int_ne(dladdr(dlsym(RTLD_DEFAULT, names[i]), &info), 0);
		ck_assert_msg(!strstr(info.dli_fname, "libc.so"), "%s is %s's", names[i], info.dli_fname);
	}
}
END_TEST

#ifdef HAVE_KAFKA
START_TEST(kafka_client_starts_and_ends)
{
	char text[256];
	rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), text, sizeof(text));

	ck_assert_msg(client != NULL, "%s", text);
	rd_kafka_poll(client, 10);
	rd_kafka_destroy(client);
}
END_TEST
#endif

static Suite *c11threads_suite(void)
{
	Suite *suite = suite_create("support/c11threads");
	TCase *tcase = tcase_create("c11threads");

	TEST_ADD_ALL(tcase, threads_lock_and_wait, libraries_get_ours);
#ifdef HAVE_KAFKA
	tcase_add_test(tcase, kafka_client_starts_and_ends);
#endif
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(c11threads_suite)
