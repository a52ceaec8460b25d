/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One replica, put together. The parts know each other by their headers alone; here they are built in order, started from
 * the inside out (store, outbox, lanes, transports, intakes) and stopped from the outside in, so that nothing ever hands
 * work to a part that is gone.
 *
 * The order of a stop, and why:
 *   1 intakes   take nothing new, finish what lanes have, give back the rest: the brokers redeliver it;
 *   2 outbox    the last commits' rows are published and confirmed, or their stamps given back;
 *   3 publishers, then roles (their leases are given up), then the admin listener;
 *   4 store, executors, connection loops.
 */
#include "service.h"

#include <unistd.h>

#include "admin/admin.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "flow/inspect.h"
#include "roles/roles.h"

#define HOST_MAX 96
/* Offsets that a partition may run ahead of a held record; below the 50 000 past which the transport stops fetching. */
#define HOLD_SPAN 45000

static const struct log_about about_service = {.stage = "service"};

/* --- names --- */

static void service_name(struct service *service)
{
	char host[256] = "";
	struct id boot;
	uint64_t mark;

	boot = id_new(service->loop);
	id_format(boot, service->boot_id);
	mark = loop_random(service->loop) & 0xffffffff;
	if (service->seams.host)
		snprintf(host, sizeof(host), "%s", service->seams.host);
	else if (gethostname(host, sizeof(host) - 1) != 0)
		snprintf(host, sizeof(host), "unknown");
	snprintf(service->owner_prefix, sizeof(service->owner_prefix), "%.*s-%ld-%08llx", HOST_MAX, host,
		 service->seams.host ? 1L : (long)getpid(), (unsigned long long)mark);
	snprintf(service->application, sizeof(service->application), "sutra/%s", service->boot_id);
}

/* --- store --- */

static struct pg_settings service_pg_settings(const struct service *service)
{
	const struct config *config = service->config;

	return (struct pg_settings){
		.url = config_text(config, "datasource.url"),
		.password = config_text(config, "datasource.password"),
		.step_connections = (uint32_t)config_int(config, "datasource.pool-size"),
		.prepare = config_bool(config, "datasource.prepare"),
		.application = service->application,
		.check_rls = config_bool(config, "persistence.rls-bypass-check.enabled"),
	};
}

static struct executor *service_executor(struct service *service)
{
	struct pg_settings settings;

	if (service->seams.executor_new)
		return service->seams.executor_new(service->seams.user);
	if (!config_text(service->config, "datasource.url")) {
		const struct log_about about = {.stage = "service", .code = CODE_STARTUP_MEMORY_STORE};

		log_warning(&about, "no datasource.url: everything is kept in memory and is lost when this process ends");
		service->memory_store = true;
		service->memory = memory_database_new();
		return memory_executor_new(service->memory,
					   (uint32_t)config_int(service->config, "datasource.pool-size"));
	}
	settings = service_pg_settings(service);
	return pg_executor_new(&settings);
}

static void service_build_store(struct service *service)
{
	const struct config *config = service->config;
	struct store_settings settings = {
		.batch_max = (uint32_t)config_int(config, "datasource.batch-max"),
		.batch_max_bytes = (uint64_t)config_int(config, "datasource.batch-max-bytes"),
		.lock_timeout_ms = config_ms(config, "datasource.lock-timeout"),
		.claim_timeout_ms = config_ms(config, "instance.claim-timeout"),
		.outbox_owner = service->boot_id,
	};

	service->store = store_new(service->seams.runtime, service_executor(service), &settings);
}

/* --- outbox --- */

static struct service_connection *service_connection_find(struct service *service, struct str name)
{
	for (uint32_t i = 0; i < service->connection_count; i++)
		if (str_equal(str_of(service->connections[i].base.name), name))
			return &service->connections[i];
	return NULL;
}

static struct publisher *service_route(void *user, struct str connection)
{
	struct service_connection *found = service_connection_find(user, connection);

	return found ? found->publisher : NULL;
}

static void service_build_outbox(struct service *service)
{
	const struct config *config = service->config;
	struct outbox_settings settings = {
		.owner = service->boot_id,
		.claim_timeout_ms = config_ms(config, "outbox.claim-timeout"),
		.tick_ms = config_ms(config, "outbox.tick-interval"),
		.base_delay_ms = config_ms(config, "outbox.retry.base-delay"),
		.max_delay_ms = config_ms(config, "outbox.retry.max-delay"),
		.max_attempts = config_is_set(config, "outbox.retry.max-attempts")
					? config_int(config, "outbox.retry.max-attempts")
					: 0,
		.window_max_rows = (uint32_t)config_int(config, "outbox.window-max-rows"),
	};

	service->outbox =
		outbox_new(service->seams.runtime, service->store, &settings, service_route, service);
}

/* --- lanes --- */

static uint32_t service_executors(const struct service *service, uint32_t lanes)
{
	long cores = service->seams.host ? 1 : sysconf(_SC_NPROCESSORS_ONLN);

	if (cores < 1)
		cores = 1;
	return (uint32_t)cores < lanes ? (uint32_t)cores : lanes;
}

static void service_build_lanes(struct service *service)
{
	const struct config *config = service->config;
	uint32_t lanes = (uint32_t)config_int(config, "engine.shards");
	struct lane_set_settings settings = {
		.lanes = lanes,
		.executors = service_executors(service, lanes),
		.queue_capacity = config_is_set(config, "engine.shard-queue-capacity")
					  ? (uint32_t)config_int(config, "engine.shard-queue-capacity")
					  : 0,
		.stall_timeout_ms = config_ms(config, "engine.lane-stall-timeout"),
		.owner_prefix = service->owner_prefix,
		.keeper = service->boot_id,
		.expression_limits = EXPRESSION_LIMITS_DEFAULT,
		.decode = {.limits = {.max_bytes = (size_t)config_int(config, "codec.max-payload-bytes"),
				      .max_depth = (uint32_t)config_int(config, "codec.max-depth"),
				      .max_values = (uint32_t)config_int(config, "codec.max-values")},
			   .max_headers = (uint32_t)config_int(config, "codec.max-headers")},
		.max_step_nodes = 10000,
		.failure_attempts = (uint32_t)config_int(config, "failure.retry.max-attempts"),
		.max_variables_bytes = (uint64_t)config_int(config, "instance.max-variables-bytes"),
	};

	settings.expression_limits.max_instructions =
		(uint64_t)config_int(config, "expression.max-instructions");
	settings.expression_limits.max_memory = (size_t)config_int(config, "expression.max-memory");
	settings.expression_limits.max_allocated = (size_t)config_int(config, "expression.max-allocated");
	if (service->seams.host) /* the simulator: the CPU clock would make runs differ */
		settings.expression_limits.max_cpu_us = 0;
	service->wake = wake_new();
	service->lanes =
		lane_set_new(service->seams.runtime, &settings, service->store, service->outbox, service->wake);
}

static void service_build_roles(struct service *service)
{
	const struct config *config = service->config;
	struct roles_settings settings = {
		.holder = service->boot_id,
		.lease_ttl_ms = config_ms(config, "lease.ttl"),
		.lease_poll_ms = config_ms(config, "lease.poll"),
		.keeper_ttl_ms = config_ms(config, "inbox.recovery-threshold"),
		.claim_timeout_ms = config_ms(config, "instance.claim-timeout"),
		.sweep_interval_ms = config_ms(config, "instance.sweep-interval"),
		.instance_retention_ms = config_ms(config, "instance.retention"),
		.retention_interval_ms = config_ms(config, "instance.retention-sweep-interval"),
		.inbox_retention_ms = config_ms(config, "inbox.retention"),
		.timer_tick_ms = config_ms(config, "timer.tick-interval"),
		.backoff_min_ms = config_ms(config, "refusal.backoff.min"),
		.backoff_max_ms = config_ms(config, "refusal.backoff.max"),
	};

	if (config_is_set(config, "dead-letter.retention"))
		settings.dead_letter_retention_ms = config_ms(config, "dead-letter.retention");

	service->roles = roles_new(service->seams.runtime, service->store, service->lanes, &settings);
}

/* --- connections: the configured ones, and local, which is always there --- */

static void service_add_connection(struct service *service, const char *name, struct str transport_name,
				   const struct config_connection *configured)
{
	const struct transport *transport = transport_find(transport_name);
	struct service_connection *connection;

	if (!transport) {
		struct log_about about = {.stage = "service", .code = CODE_CONFIG_CHANNEL_UNSUPPORTED};

		log_warning(&about, "connection '%s' is ignored: this build has no transport '%.*s'", name,
			    STR_ARG(transport_name));
		return;
	}
	connection = &service->connections[service->connection_count++];
	connection->base.transport = transport;
	connection->base.name = name;
	if (configured) {
		connection->base.property_names = configured->property_names;
		connection->base.property_values = configured->property_values;
		connection->base.property_count = configured->property_count;
		connection->base.url = configured->url;
		connection->base.password = configured->password;
		connection->base.management_url = configured->management_url;
		connection->base.ca_file = configured->ca_file;
		connection->base.cert_file = configured->cert_file;
		connection->base.key_file = configured->key_file;
		connection->base.heartbeat_s = configured->heartbeat_s;
		connection->base.consumer_timeout_ms = configured->consumer_timeout_ms;
	}
	connection->base.kafka = service->seams.kafka;
	connection->base.kafka_cluster = service->seams.kafka_cluster;
	connection->base.rabbit = service->seams.rabbit;
	connection->base.rabbit_broker = service->seams.rabbit_broker;
	snprintf(connection->consume_name, sizeof(connection->consume_name), "in-%s", name);
	snprintf(connection->publish_name, sizeof(connection->publish_name), "out-%s", name);
}

static void service_build_connections(struct service *service)
{
	size_t configured = config_connection_count(service->config);

	service->connections = mem_zalloc((configured + 1) * sizeof(*service->connections));
	service_add_connection(service, "local", STR("local"), NULL);
	for (size_t i = 0; i < configured; i++) {
		const struct config_connection *c = config_connection_at(service->config, i);

		service_add_connection(service, c->name, str_of(c->transport), c);
	}
}

static enum result service_open_connections(struct service *service, struct error *err)
{
	for (uint32_t i = 0; i < service->connection_count; i++) {
		struct service_connection *connection = &service->connections[i];
		enum result result;

		connection->base.consume_loop = loop_start(service->seams.runtime, connection->consume_name);
		connection->base.publish_loop = loop_start(service->seams.runtime, connection->publish_name);
		result = connection->base.transport->open(&connection->base, err);
		if (result != RESULT_OK) {
			error_prefix(err, "connection '%s'", connection->base.name);
			return RESULT_FATAL;
		}
		connection->opened = true;
		connection->publisher = connection->base.transport->publisher_new(&connection->base);
	}
	return RESULT_OK;
}

static void publisher_start_call(void *arg)
{
	struct publisher *publisher = arg;

	publisher->ops->start(publisher);
}

/* --- channels: a consumer and an intake for every route of the view --- */

static void service_intake_stopped(struct intake *intake)
{
	struct service *service = intake->user;

	__atomic_sub_fetch(&service->channels_running, 1, __ATOMIC_ACQ_REL);
}

struct intake_start_call {
	struct intake *intake;
	struct consumer *consumer;
};

static void service_start_intake(void *arg)
{
	struct intake_start_call *call = arg;

	intake_start(call->intake, call->consumer);
}

static void service_add_channel(struct service *service, const struct route *route)
{
	const struct channel *channel = route->channel;
	struct service_connection *connection = service_connection_find(service, channel->connection);
	struct service_channel *entry = &service->channels[service->channel_count++];
	int64_t hold_ms = channel->unmatched_hold_ms >= 0 ? channel->unmatched_hold_ms
							   : config_ms(service->config, "unmatched.hold");
	struct intake_settings settings = {
		.tenant = arena_str(&service->arena, route->tenant).ptr,
		.channel = arena_str(&service->arena, channel->name).ptr,
		.unmatched_hold_ms = hold_ms,
		.backoff_min_ms = config_ms(service->config, "refusal.backoff.min"),
		.backoff_max_ms = config_ms(service->config, "refusal.backoff.max"),
		.max_in_flight = channel->max_in_flight,
		.hold_ms = config_ms(service->config, "refusal.hold"),
		.max_kept = (uint64_t)config_int(service->config, "hold.max-persisted"),
		.keeper = service->boot_id,
		.requeues = channel->requeues,
	};
	struct log_about about = {.stage = "service", .tenant = route->tenant, .channel = channel->name,
				  .code = CODE_CONFIG_CHANNEL_INVALID};

	entry->tenant = str_of(settings.tenant);
	entry->channel = channel;
	if (!connection || !str_equal(str_of(connection->base.transport->name), channel->transport)) {
		log_error(&about, "the channel is not consumed: no connection '%.*s' of transport '%.*s' is configured",
			  STR_ARG(channel->connection), STR_ARG(channel->transport));
		return;
	}
	entry->connection = &connection->base;
	if (str_equal(channel->transport, STR("kafka")))
		settings.span = HOLD_SPAN;
	else if (str_equal(channel->transport, STR("amqp")))
		settings.delivery_ms = connection->base.consumer_timeout_ms;
	entry->intake = intake_new(service->lanes, service->wake, &settings);
	entry->intake->user = service;
	entry->intake->stopped = service_intake_stopped;
}

static void service_start_channel(struct service *service, struct service_channel *entry)
{
	struct consumer_settings settings = {
		.loop = entry->connection->consume_loop,
		.tenant = entry->tenant.ptr,
		.channel = entry->intake->settings.channel,
		.bind = arena_str(&service->arena, entry->channel->bind).ptr,
		.group = arena_str(&service->arena, entry->channel->group).ptr,
		.max_in_flight = entry->channel->max_in_flight,
		.payload_cap_bytes = entry->channel->payload_cap_bytes,
	};
	struct intake_start_call call = {entry->intake, NULL};

	call.consumer = entry->connection->transport->consumer_new(entry->connection, &settings,
								   intake_sink(entry->intake));
	__atomic_add_fetch(&service->channels_running, 1, __ATOMIC_ACQ_REL);
	loop_call(settings.loop, service_start_intake, &call);
}

static void service_start_channels(struct service *service)
{
	service->channels = mem_zalloc((service->view->route_count + 1) * sizeof(*service->channels));
	for (uint32_t i = 0; i < service->view->route_count; i++)
		service_add_channel(service, service->view->routes[i]);
	for (uint32_t i = 0; i < service->channel_count; i++)
		if (service->channels[i].intake)
			service_start_channel(service, &service->channels[i]);
}

/* --- what the admin listener reads --- */

static uint32_t service_channel_count(void *user)
{
	struct service *service = user;

	return __atomic_load_n(&service->ready, __ATOMIC_ACQUIRE) ? service->channel_count : 0;
}

#define load(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* Says it where a hold has come to its bounds: the channel consumes, and yet nothing new may come of it. */
static void service_channel_bounds(struct intake *intake, struct admin_channel *out)
{
	const struct intake_settings *settings = &intake->settings;
	struct buf text = BUF_INIT;

	buf_add_text(&text, out->detail);
	if (settings->max_kept && out->kept >= settings->max_kept)
		buf_printf(&text, "%shold.max-persisted is reached: the database keeps %llu messages of this replica",
			   text.len ? "; " : "", (unsigned long long)out->kept);
	if (settings->max_in_flight && out->unsettled >= settings->max_in_flight && (out->held || out->kept))
		buf_printf(&text, "%sthe window of max-in-flight = %u is full: %llu deliveries are held, the oldest for %.0f s, "
			   "and others wait behind them or behind kept messages",
			   text.len ? "; " : "", settings->max_in_flight, (unsigned long long)out->held,
			   out->oldest_held_seconds);
	out->at_bounds = text.len > strlen(out->detail);
	snprintf(out->detail, sizeof(out->detail), "%s", text.data ? text.data : "");
	buf_done(&text);
}

static void service_channel_read(void *user, uint32_t index, struct admin_channel *out)
{
	struct service *service = user;
	const struct service_channel *entry = &service->channels[index];
	struct intake_stats *stats;
	int64_t oldest_us;
	int state;

	*out = (struct admin_channel){.tenant = entry->tenant,
				      .channel = entry->channel->name,
				      .transport = entry->channel->transport,
				      .bind = entry->channel->bind,
				      .state = consumer_state_name(CONSUMER_STOPPED),
				      .lag = -1};
	if (!entry->intake) {
		snprintf(out->detail, sizeof(out->detail), "connection '%.*s' is not configured",
			 STR_ARG(entry->channel->connection));
		return;
	}
	stats = &entry->intake->stats;
	state = load(stats->state);
	out->state = consumer_state_name((enum consumer_state)state);
	out->consuming = state == CONSUMER_CONSUMING;
	intake_detail(entry->intake, out->detail, sizeof(out->detail));
	out->received = load(stats->received);
	out->committed = load(stats->committed);
	out->duplicate = load(stats->duplicate);
	out->refused = load(stats->refused);
	out->rejected = load(stats->rejected);
	out->unmatched = load(stats->unmatched);
	out->unavailable = load(stats->unavailable);
	out->dropped = load(stats->dropped);
	out->requeued = load(stats->requeued);
	out->persisted = load(stats->persisted);
	out->early = load(stats->early);
	out->gone = load(stats->gone);
	out->held = load(stats->held);
	out->unsettled = load(stats->unsettled);
	out->kept = load(stats->kept);
	oldest_us = load(stats->oldest_held_us);
	if (oldest_us)
		out->oldest_held_seconds = (double)(loop_now_us(service->loop) - oldest_us) / (double)US_PER_S;
	out->lag = load(entry->intake->consumer->lag);
	service_channel_bounds(entry->intake, out);
}

static bool service_channel_inspect(void *user, uint32_t index, struct inspection *inspection)
{
	struct service *service = user;

	if (index >= service_channel_count(user) || !service->channels[index].intake)
		return false;
	intake_inspect(service->channels[index].intake, inspection);
	return true;
}

static enum result service_start_admin(struct service *service, struct error *err)
{
	const struct config *config = service->config;
	struct admin_settings settings = {
		.listen = config_text(config, "admin.listen"),
		.key = config_text(config, "admin.auth.key-ref"),
		.header = config_text(config, "admin.auth.header"),
		.no_auth = config_bool(config, "admin.dev-no-auth"),
	};
	struct admin_sources sources = {
		.store = service->store,
		.lanes = service->lanes,
		.outbox = service->outbox,
		.roles = service->roles,
		.boot_id = service->boot_id,
		.version = PACKAGE_VERSION,
		.started_us = service->started_us,
		.memory_store = service->memory_store,
		.claim_timeout_ms = config_ms(config, "instance.claim-timeout"),
		.channel_count = service_channel_count,
		.channel_read = service_channel_read,
		.channel_inspect = service_channel_inspect,
		.user = service,
	};

	if (service->seams.view) /* the simulator needs no listener */
		return RESULT_OK;
	return admin_start(service->seams.runtime, &settings, &sources, &service->admin, &service->admin_port, err);
}

/* --- life --- */

/* What the configuration names and this version does not do must not be taken for done. */
static enum result service_check_tenants(const struct config *config, struct error *err)
{
	for (size_t i = 0; i < config_tenant_count(config); i++) {
		const struct config_tenant *tenant = config_tenant_at(config, i);

		if (tenant->max_concurrent_instances >= 0 || tenant->max_inbound_rate_per_minute >= 0)
			return error_set(err, RESULT_FATAL, CODE_STARTUP_SETTINGS,
					 "tenant '%s' has limits, which this version does not enforce", tenant->name);
	}
	return RESULT_OK;
}

enum result service_check_settings(const struct config *config, struct error *err)
{
	if (config_ms(config, "instance.claim-timeout") <= config_ms(config, "instance.sweep-interval"))
		return error_set(err, RESULT_FATAL, CODE_STARTUP_SETTINGS,
				 "instance.claim-timeout must exceed instance.sweep-interval");
	if (config_ms(config, "lease.ttl") <= config_ms(config, "lease.poll"))
		return error_set(err, RESULT_FATAL, CODE_STARTUP_SETTINGS, "lease.ttl must exceed lease.poll");
	return service_check_tenants(config, err);
}

enum result service_new(const struct config *config, const struct service_seams *seams, struct service **out,
			struct error *err)
{
	enum result result = service_check_settings(config, err);
	struct service *service;

	if (result != RESULT_OK)
		return result;
	service = mem_zalloc(sizeof(*service));
	service->config = config;
	service->seams = *seams;
	arena_init(&service->arena);
	service->loop = loop_start(seams->runtime, "service");
	service->started_us = loop_wall_us(service->loop);
	service_name(service);
	service_build_store(service);
	service_build_outbox(service);
	service_build_lanes(service);
	service_build_roles(service);
	service_build_connections(service);
	*out = service;
	return RESULT_OK;
}

enum result service_start_listener(struct service *service, struct error *err)
{
	return service_start_admin(service, err);
}

enum result service_check_database(struct service *service, struct error *err)
{
	struct pg_settings settings;

	if (service->memory_store || service->seams.executor_new)
		return RESULT_OK;
	settings = service_pg_settings(service);
	return pg_check(&settings, err);
}

static bool service_store_is_up(void *arg)
{
	struct service *service = arg;

	return store_is_up(service->store, NULL);
}

#define STORE_UP_TIMEOUT_MS 10000

static enum result service_load(struct service *service, struct error *err)
{
	enum result result;

	if (!service->store_started)
		store_start(service->store);
	service->store_started = true;
	if (!loop_wait(service->seams.runtime, service_store_is_up, service, STORE_UP_TIMEOUT_MS))
		return error_set(err, RESULT_AGAIN, CODE_DISPATCH_UNAVAILABLE, "the store does not come up");
	if (service->seams.view) {
		service->view = view_ref(service->seams.view);
		return RESULT_OK;
	}
	result = activation_load(service->store, config_text(service->config, "deployment.dir"),
				 &service->activation, err);
	if (result == RESULT_OK)
		service->view = view_ref(service->activation->view);
	return result;
}

enum result service_start(struct service *service, struct error *err)
{
	enum result result = service_check_database(service, err);

	if (result == RESULT_OK)
		result = service_load(service, err);
	if (result == RESULT_OK)
		result = service_open_connections(service, err);
	if (result != RESULT_OK)
		return result;
	result = lane_set_flip(service->lanes, service->view, err);
	if (result != RESULT_OK)
		return result;
	/* Publishers before the outbox, which may find rows to send at once: none is to fail because of our own order. */
	for (uint32_t i = 0; i < service->connection_count; i++)
		loop_call(service->connections[i].base.publish_loop, publisher_start_call,
			  service->connections[i].publisher);
	outbox_view(service->outbox, service->view);
	outbox_start(service->outbox);
	service->outbox_started = true;
	service_start_channels(service);
	roles_view(service->roles, service->view);
	roles_start(service->roles);
	service->roles_started = true;
	__atomic_store_n(&service->ready, true, __ATOMIC_RELEASE);
	if (service->admin)
		admin_loaded(service->admin, service->view, service->activation);
	log_info(&about_service, "ready: %u deployments, %u channels, %u lanes, boot id %s",
		 service->view->member_count, service->channel_count, service->lanes->settings.lanes,
		 service->boot_id);
	return RESULT_OK;
}

static void intake_stop_call(void *arg)
{
	intake_stop(arg);
}

static bool service_channels_stopped(void *arg)
{
	struct service *service = arg;

	return __atomic_load_n(&service->channels_running, __ATOMIC_ACQUIRE) == 0;
}

static int64_t time_left_ms(struct service *service, int64_t end_us)
{
	int64_t left_us = end_us - loop_now_us(service->loop);

	return left_us > 0 ? left_us / US_PER_MS : 0;
}

struct publisher_stop {
	struct task done;
	uint32_t *running; /* atomic */
};

static void publisher_stopped(struct task *done)
{
	__atomic_sub_fetch(container_of(done, struct publisher_stop, done)->running, 1, __ATOMIC_ACQ_REL);
}

static bool publishers_stopped(void *arg)
{
	return __atomic_load_n((uint32_t *)arg, __ATOMIC_ACQUIRE) == 0;
}

#define PUBLISHER_GRACE_MS 2000

static void service_stop_publishers(struct service *service)
{
	uint32_t running = 0;
	struct publisher_stop *stops = mem_array(NULL, service->connection_count, sizeof(*stops));

	for (uint32_t i = 0; i < service->connection_count; i++) {
		struct publisher *publisher = service->connections[i].publisher;

		if (!publisher)
			continue;
		__atomic_add_fetch(&running, 1, __ATOMIC_ACQ_REL);
		stops[i] = (struct publisher_stop){{NULL, publisher_stopped}, &running};
		publisher->ops->stop(publisher, PUBLISHER_GRACE_MS, service->loop, &stops[i].done);
	}
	/* The answers write into this frame: there is no leaving before they have come. */
	while (!loop_wait(service->seams.runtime, publishers_stopped, &running, 60000))
		log_warning(&about_service, "a publisher does not stop");
	free(stops);
}

#define ROLES_GRACE_MS 1000

static bool service_roles_are_idle(void *arg)
{
	return roles_are_idle(((struct service *)arg)->roles);
}

void service_stop(struct service *service)
{
	bool roles_idle = true;
	int64_t timeout_ms = config_ms(service->config, "shutdown.timeout");
	int64_t end_us = loop_now_us(service->loop) + timeout_ms * US_PER_MS;

	__atomic_store_n(&service->ready, false, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < service->channel_count; i++)
		if (service->channels[i].intake)
			loop_call(service->channels[i].intake->loop, intake_stop_call, service->channels[i].intake);
	if (!loop_wait(service->seams.runtime, service_channels_stopped, service, timeout_ms)) {
		log_warning(&about_service, "%u channels did not settle within shutdown.timeout; the brokers redeliver",
			    __atomic_load_n(&service->channels_running, __ATOMIC_ACQUIRE));
		service->stop_is_unclean = true;
	}
	if (service->outbox_started)
		outbox_stop(service->outbox, time_left_ms(service, end_us));
	service_stop_publishers(service);
	if (service->roles_started && !roles_stop(service->roles))
		roles_idle = false;
	admin_stop(&service->admin);
	if (service->store_started)
		store_stop(service->store);
	/* What lanes had for the roles is answered now, unless a lane is stuck. */
	if (!roles_idle && !loop_wait(service->seams.runtime, service_roles_are_idle, service, ROLES_GRACE_MS))
		service->stop_is_unclean = true;
}

void service_free(struct service **service)
{
	struct service *s = *service;

	if (!s)
		return;
	lane_set_stop(s->lanes);
	for (uint32_t i = 0; i < s->connection_count; i++) {
		loop_stop(&s->connections[i].base.consume_loop);
		loop_stop(&s->connections[i].base.publish_loop);
	}
	for (uint32_t i = 0; i < s->channel_count; i++)
		intake_free(&s->channels[i].intake);
	for (uint32_t i = 0; i < s->connection_count; i++) {
		if (s->connections[i].publisher)
			s->connections[i].publisher->ops->free(s->connections[i].publisher);
		if (s->connections[i].opened)
			s->connections[i].base.transport->close(&s->connections[i].base);
	}
	roles_free(&s->roles);
	lane_set_free(&s->lanes);
	outbox_free(&s->outbox);
	store_free(&s->store);
	wake_free(&s->wake);
	memory_database_free(&s->memory);
	view_unref(&s->view);
	activation_free(&s->activation);
	loop_stop(&s->loop);
	free(s->channels);
	free(s->connections);
	arena_done(&s->arena);
	free(s);
	*service = NULL;
}
