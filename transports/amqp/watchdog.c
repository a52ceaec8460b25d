/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks every quarter of the limit. Begin and end are two stores, so that a watched call costs nothing; the price is that a call
 * may take a quarter longer than the limit.
 */
#include "transports/amqp/watchdog.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"

static void look(struct watchdog *watchdog)
{
	int64_t since_us = __atomic_load_n(&watchdog->since_us, __ATOMIC_ACQUIRE);

	if (!since_us || loop_now_us(watchdog->loop) - since_us < watchdog->limit_us)
		return;
	__atomic_store_n(&watchdog->fired, true, __ATOMIC_RELEASE);
	shutdown(watchdog->fd, SHUT_RDWR);
}

static void watch(void *arg)
{
	struct watchdog *watchdog = arg;

	uv_mutex_lock(&watchdog->mutex);
	while (!watchdog->ended) {
		uv_cond_timedwait(&watchdog->cond, &watchdog->mutex, (uint64_t)watchdog->limit_us * 1000 / 4);
		if (!watchdog->ended)
			look(watchdog);
	}
	uv_mutex_unlock(&watchdog->mutex);
}

bool watchdog_start(struct watchdog *watchdog, struct loop *loop, int fd, int64_t limit_us)
{
	*watchdog = (struct watchdog){.loop = loop, .fd = dup(fd), .limit_us = limit_us};
	if (watchdog->fd < 0)
		return false;
	uv_mutex_init(&watchdog->mutex);
	uv_cond_init(&watchdog->cond);
	watchdog->is_started = uv_thread_create(&watchdog->thread, watch, watchdog) == 0;
	if (watchdog->is_started)
		return true;
	uv_cond_destroy(&watchdog->cond);
	uv_mutex_destroy(&watchdog->mutex);
	close(watchdog->fd);
	return false;
}

void watchdog_stop(struct watchdog *watchdog)
{
	if (!watchdog->is_started)
		return;
	uv_mutex_lock(&watchdog->mutex);
	watchdog->ended = true;
	uv_cond_signal(&watchdog->cond);
	uv_mutex_unlock(&watchdog->mutex);
	uv_thread_join(&watchdog->thread);
	uv_cond_destroy(&watchdog->cond);
	uv_mutex_destroy(&watchdog->mutex);
	close(watchdog->fd);
	watchdog->is_started = false;
}
