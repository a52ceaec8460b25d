/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C11 threads over pthread, for builds with the thread sanitizer only. librdkafka starts and locks by thrd_create,
 * mtx_lock and so on; the sanitizer of gcc 12 intercepts the pthread calls alone, takes such a thread for one that
 * does not exist and crashes. These definitions in the program come before the C library's, so that every call ends
 * in one that is intercepted.
 *
 * The C library's types are kept: its mtx_t and cnd_t are made to hold the pthread ones.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

#include "base/attr.h"

_Static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t), "mtx_t holds a pthread mutex");
_Static_assert(sizeof(cnd_t) >= sizeof(pthread_cond_t), "cnd_t holds a pthread condition");
_Static_assert(sizeof(once_flag) >= sizeof(pthread_once_t), "once_flag holds a pthread one");
_Static_assert(sizeof(thrd_t) == sizeof(pthread_t), "thrd_t is a pthread_t");

struct start {
	thrd_start_t fn;
	void *arg;
};

static pthread_mutex_t *mutex_of(mtx_t *mtx)
{
	return (pthread_mutex_t *)(void *)mtx;
}

static pthread_cond_t *cond_of(cnd_t *cnd)
{
	return (pthread_cond_t *)(void *)cnd;
}

static int result_of(int error)
{
	switch (error) {
	case 0:
		return thrd_success;
	case EBUSY:
		return thrd_busy;
	case ETIMEDOUT:
		return thrd_timedout;
	case ENOMEM:
		return thrd_nomem;
	default:
		return thrd_error;
	}
}

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	return (void *)(intptr_t)start.fn(start.arg);
}

int thrd_create(thrd_t *thread, thrd_start_t fn, void *arg)
{
	struct start *start = malloc(sizeof(*start));
	int error;

	if (!start)
		return thrd_nomem;
	*start = (struct start){fn, arg};
	error = pthread_create(thread, NULL, thread_main, start);
	if (error)
		free(start);
	return error == EAGAIN ? thrd_nomem : result_of(error);
}

int thrd_join(thrd_t thread, int *result)
{
	void *value;
	int error = pthread_join(thread, &value);

	if (!error && result)
		*result = (int)(intptr_t)value;
	return result_of(error);
}

int thrd_detach(thrd_t thread)
{
	return result_of(pthread_detach(thread));
}

thrd_t thrd_current(void)
{
	return pthread_self();
}

int thrd_equal(thrd_t a, thrd_t b)
{
	return pthread_equal(a, b);
}

void thrd_yield(void)
{
	sched_yield();
}

_Noreturn void thrd_exit(int result)
{
	pthread_exit((void *)(intptr_t)result);
}

int thrd_sleep(const struct timespec *duration, struct timespec *rest)
{
	if (nanosleep(duration, rest) == 0)
		return 0;
	return errno == EINTR ? -1 : -2;
}

int mtx_init(mtx_t *mtx, int type)
{
	pthread_mutexattr_t attr;
	int error;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type & mtx_recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL);
	error = pthread_mutex_init(mutex_of(mtx), &attr);
	pthread_mutexattr_destroy(&attr);
	return result_of(error);
}

void mtx_destroy(mtx_t *mtx)
{
	pthread_mutex_destroy(mutex_of(mtx));
}

int mtx_lock(mtx_t *mtx)
{
	return result_of(pthread_mutex_lock(mutex_of(mtx)));
}

int mtx_trylock(mtx_t *mtx)
{
	return result_of(pthread_mutex_trylock(mutex_of(mtx)));
}

int mtx_timedlock(mtx_t *restrict mtx, const struct timespec *restrict end)
{
	return result_of(pthread_mutex_timedlock(mutex_of(mtx), end));
}

int mtx_unlock(mtx_t *mtx)
{
	return result_of(pthread_mutex_unlock(mutex_of(mtx)));
}

int cnd_init(cnd_t *cnd)
{
	return result_of(pthread_cond_init(cond_of(cnd), NULL));
}

void cnd_destroy(cnd_t *cnd)
{
	pthread_cond_destroy(cond_of(cnd));
}

int cnd_signal(cnd_t *cnd)
{
	return result_of(pthread_cond_signal(cond_of(cnd)));
}

int cnd_broadcast(cnd_t *cnd)
{
	return result_of(pthread_cond_broadcast(cond_of(cnd)));
}

int cnd_wait(cnd_t *cnd, mtx_t *mtx)
{
	return result_of(pthread_cond_wait(cond_of(cnd), mutex_of(mtx)));
}

int cnd_timedwait(cnd_t *restrict cnd, mtx_t *restrict mtx, const struct timespec *restrict end)
{
	return result_of(pthread_cond_timedwait(cond_of(cnd), mutex_of(mtx), end));
}

int tss_create(tss_t *key, tss_dtor_t destroy)
{
	return result_of(pthread_key_create(key, destroy));
}

void tss_delete(tss_t key)
{
	pthread_key_delete(key);
}

void *tss_get(tss_t key)
{
	return pthread_getspecific(key);
}

int tss_set(tss_t key, void *value)
{
	return result_of(pthread_setspecific(key, value));
}

void call_once(once_flag *flag, void (*fn)(void))
{
	pthread_once((pthread_once_t *)(void *)flag, fn);
}
