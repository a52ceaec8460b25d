/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replica under load, and the sinks of what it sends. A sink settles a whole turn of its loop at once, as a broker
 * confirms what it has got, and keeps everything as long as it is told to withhold.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "model/package.h"
#include "tests/bench/replica.h"

/* --- sinks --- */

static void sink_settle_all(struct task *task)
{
	struct bench_sink *sink = container_of(task, struct bench_sink, task);

	sink->posted = false;
	if (sink->withhold && __atomic_load_n(sink->withhold, __ATOMIC_ACQUIRE))
		return;
	for (size_t i = 0; i < sink->count; i++)
		sink->consumer->ops->settle(sink->consumer, sink->pending[i], SETTLE_DONE);
	sink->count = 0;
	sink->settled(sink);
}

static void sink_deliver(struct consumer_sink *base, struct message *message)
{
	struct bench_sink *sink = container_of(base, struct bench_sink, sink);

	if (sink->count == sink->capacity) {
		sink->capacity = sink->capacity ? sink->capacity * 2 : 1024;
		sink->pending = mem_array(sink->pending, sink->capacity, sizeof(*sink->pending));
	}
	sink->pending[sink->count++] = message;
	sink->take(sink, message->body);
	if (!sink->posted) {
		sink->posted = true;
		loop_post(sink->loop, &sink->task);
	}
}

static void sink_revoke(struct consumer_sink *base, void *lease UNUSED)
{
	struct bench_sink *sink = container_of(base, struct bench_sink, sink);

	for (size_t i = 0; i < sink->count; i++)
		sink->consumer->ops->settle(sink->consumer, sink->pending[i], SETTLE_BACK);
	sink->count = 0;
}

static void sink_state(struct consumer_sink *base UNUSED, enum consumer_state state UNUSED,
		       const char *detail UNUSED)
{
}

static void sink_stopped(struct consumer_sink *base)
{
	__atomic_store_n(&container_of(base, struct bench_sink, sink)->stopped, true,
			 __ATOMIC_RELEASE);
}

static void sink_start(void *arg)
{
	struct bench_sink *sink = arg;

	sink->consumer->ops->start(sink->consumer);
}

static void sink_stop(void *arg)
{
	struct bench_sink *sink = arg;

	sink->consumer->ops->stop(sink->consumer);
}

void sink_open(struct bench_sink *sink, struct bench_replica *replica, const char *channel)
{
	struct consumer_settings settings = {
		.loop = replica->loop,
		.tenant = BENCH_TENANT,
		.channel = channel,
		.bind = channel,
		.group = "bench",
		.max_in_flight = 1 << 20,
	};

	sink->sink = (struct consumer_sink){sink_deliver, sink_revoke, sink_state, sink_stopped};
	sink->loop = replica->loop;
	sink->channel = channel;
	sink->task.run = sink_settle_all;
	sink->consumer =
		replica->local->transport->consumer_new(replica->local, &settings, &sink->sink);
	loop_call(sink->loop, sink_start, sink);
}

static bool sink_is_stopped(void *arg)
{
	return __atomic_load_n(&((struct bench_sink *)arg)->stopped, __ATOMIC_ACQUIRE);
}

void sink_close(struct bench_sink *sink)
{
	loop_call(sink->loop, sink_stop, sink);
	if (!loop_wait(runtime_threads(), sink_is_stopped, sink, DRAIN_TIMEOUT_MS))
		bench_die("the sink %s does not stop", sink->channel);
	sink->consumer->ops->free(sink->consumer);
	free(sink->pending);
}

/* --- the replica --- */

static void replica_load_package(struct bench_replica *replica)
{
	struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	const char *path = bench_env("SUTRA_BENCH_PACKAGE");
	struct deployment *deployment = NULL;
	struct package *package = NULL;
	struct findings findings = {0};
	struct buf text = BUF_INIT;
	struct view_member member;

	if (package_read(path, &limits, &package, &findings) != RESULT_OK ||
	    package_build(package, &deployment, &findings) != RESULT_OK)
		bench_die("%s", findings.text.data);
	member = (struct view_member){deployment, DEPLOYMENT_ACTIVE};
	if (view_build(1, &member, 1, &replica->view, &text) != RESULT_OK)
		bench_die("%s", text.data);
	deployment_unref(&deployment);
	package_free(&package);
	findings_done(&findings);
	buf_done(&text);
}

void replica_open(struct bench_replica *replica)
{
	struct config_findings findings = {.text = BUF_INIT};
	struct service_seams seams = {.runtime = runtime_threads()};
	struct error err = ERROR_INIT;

	if (config_load_text("bench", STR(""), environ, &replica->config, &findings) != RESULT_OK)
		bench_die("%s", findings.text.data);
	buf_done(&findings.text);
	replica_load_package(replica);
	seams.view = replica->view;
	if (service_new(replica->config, &seams, &replica->service, &err) != RESULT_OK ||
	    service_start(replica->service, &err) != RESULT_OK)
		bench_die("%s", err.text);
	replica->local = &replica->service->connections[0].base;
	replica->loop = replica->local->consume_loop;
}

void replica_stop(struct bench_replica *replica)
{
	service_stop(replica->service);
}

void replica_free(struct bench_replica *replica)
{
	service_free(&replica->service);
	view_unref(&replica->view);
	config_free(&replica->config);
}

void replica_inject(struct bench_replica *replica, const char *channel, struct message *message,
		    void (*settled)(void *user, enum settle how), void *user)
{
	if (!local_inject(replica->local, STR(BENCH_TENANT), str_of(channel), message, settled, user))
		bench_die("nobody consumes %s", channel);
}
