/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The classes of connections behind the executor's seam: STEP as many as datasource.pool-size says, BACKGROUND and QUARANTINE
 * one each, so that neither slow background work nor an element that waits for a lock holds up a step. All connections open at
 * once and stay open.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "store/pg/private.h"

#define BACKGROUND_CONNECTIONS 1
#define QUARANTINE_CONNECTIONS 1

static struct pg_executor *pg_of(struct executor *executor)
{
	return container_of(executor, struct pg_executor, base);
}

/* --- parameters of libpq --- */

static bool option_is_set(const PQconninfoOption *options, const char *keyword)
{
	for (; options && options->keyword; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return options->val != NULL;
	return false;
}

static void params_add(struct conn_params *params, const char *keyword, const char *value)
{
	assert(params->count + 1 < CONN_PARAMS_MAX);
	params->keywords[params->count] = keyword;
	params->values[params->count++] = value;
	params->keywords[params->count] = params->values[params->count] = NULL;
}

void conn_params_fill(struct conn_params *params, const char *url, const char *password, const char *application)
{
	/* A peer that is gone without a word is noticed within some twenty seconds, idle or not. */
	static const struct {
		const char *keyword;
		const char *value;
	} defaults[] = {
		{"keepalives_idle", "5"},      {"keepalives_interval", "5"}, {"keepalives_count", "2"},
		{"tcp_user_timeout", "15000"}, {"connect_timeout", "10"},
	};
	PQconninfoOption *options = PQconninfoParse(url, NULL);

	params->count = 0;
	/* What stands later wins. */
	params_add(params, "dbname", url);
	for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
		if (!option_is_set(options, defaults[i].keyword))
			params_add(params, defaults[i].keyword, defaults[i].value);
	if (password)
		params_add(params, "password", password);
	params_add(params, "client_encoding", "UTF8");
	params_add(params, "application_name", application);
	PQconninfoFree(options);
}

void conn_message(const char *message, char *text, size_t size)
{
	size_t at = 0;

	for (; *message && at + 1 < size; message++)
		if (*message == '\n' || *message == '\t')
			text[at++] = ' ';
		else
			text[at++] = *message;
	while (at && text[at - 1] == ' ')
		at--;
	text[at] = '\0';
}

/* --- the seam --- */

void pg_executor_ready(struct pg_executor *executor, enum conn_class class)
{
	if (class == CONN_STEP)
		executor->step_up++;
	executor->trouble[0] = '\0';
	if (executor->base.on_ready)
		executor->base.on_ready(executor->base.user);
}

void pg_executor_lost(struct pg_executor *executor, enum conn_class class)
{
	if (class != CONN_STEP)
		return;
	assert(executor->step_up);
	if (--executor->step_up == 0 && executor->base.on_down)
		executor->base.on_down(executor->base.user);
}

static void pg_start(struct executor *base, struct loop *loop)
{
	struct pg_executor *executor = pg_of(base);

	executor->loop = loop;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class++)
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			conn_start(&executor->conns[class][i]);
}

static uint32_t pg_conn_count(struct executor *base, enum conn_class class)
{
	return pg_of(base)->counts[class];
}

static bool pg_conn_ready(struct executor *base, enum conn_class class, uint32_t index)
{
	const struct conn *conn = &pg_of(base)->conns[class][index];

	return conn->state == CONN_FREE && !conn->lost_posted;
}

static void pg_run(struct executor *base, enum conn_class class, uint32_t index, struct segment *segment)
{
	conn_run(&pg_of(base)->conns[class][index], segment);
}

static void pg_stop(struct executor *base)
{
	struct pg_executor *executor = pg_of(base);

	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class++)
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			conn_stop(&executor->conns[class][i]);
	executor->step_up = 0;
}

static void pg_free(struct executor *base)
{
	struct pg_executor *executor = pg_of(base);

	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class++) {
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			conn_done(&executor->conns[class][i]);
		free(executor->conns[class]);
	}
	free(executor->url);
	if (executor->password)
		explicit_bzero(executor->password, strlen(executor->password));
	free(executor->password);
	free(executor->application);
	free(executor);
}

static const char *pg_trouble(struct executor *base)
{
	struct pg_executor *executor = pg_of(base);

	if (executor->step_up)
		return NULL;
	return executor->trouble[0] ? executor->trouble : "connecting";
}

static const struct executor_ops pg_ops = {
	.start = pg_start,
	.conn_count = pg_conn_count,
	.conn_ready = pg_conn_ready,
	.run = pg_run,
	.stop = pg_stop,
	.free = pg_free,
	.trouble = pg_trouble,
};

struct executor *pg_executor_new(const struct pg_settings *settings)
{
	struct pg_executor *executor = mem_zalloc(sizeof(*executor));

	executor->base.ops = &pg_ops;
	executor->url = mem_strdup(settings->url);
	executor->password = settings->password ? mem_strdup(settings->password) : NULL;
	executor->application = mem_strdup(settings->application);
	/* As the server cuts it. */
	if (strlen(executor->application) > 63)
		executor->application[63] = '\0';
	executor->prepare = settings->prepare;
	executor->counts[CONN_STEP] = settings->step_connections ? settings->step_connections : 1;
	executor->counts[CONN_BACKGROUND] = BACKGROUND_CONNECTIONS;
	executor->counts[CONN_QUARANTINE] = QUARANTINE_CONNECTIONS;
	for (uint32_t class = 0; class < CONN_CLASS_COUNT; class++) {
		executor->conns[class] = mem_zalloc(executor->counts[class] * sizeof(struct conn));
		for (uint32_t i = 0; i < executor->counts[class]; i++)
			conn_init(&executor->conns[class][i], executor, (enum conn_class)class);
	}
	return &executor->base;
}
