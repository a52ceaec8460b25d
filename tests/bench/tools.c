/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench's programs share: samples, complaints, the environment, the database. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/bench/bench.h"

void samples_add(struct samples *samples, int64_t us)
{
	if (samples->count == samples->capacity) {
		samples->capacity = samples->capacity ? samples->capacity * 2 : 1 << 16;
		samples->us = mem_array(samples->us, samples->capacity, sizeof(*samples->us));
	}
	samples->us[samples->count++] = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

uint32_t samples_quantile(struct samples *samples, unsigned part)
{
	if (!samples->count)
		return 0;
	qsort(samples->us, samples->count, sizeof(*samples->us), compare_u32);
	return samples->us[(samples->count - 1) * part / 1000];
}

int64_t bench_cpu_us(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage) != 0)
		bench_die("getrusage");
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * US_PER_S + usage.ru_utime.tv_usec +
	       usage.ru_stime.tv_usec;
}

void bench_die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(2);
}

const char *bench_env(const char *name)
{
	const char *value = getenv(name);

	if (!value || !*value)
		bench_die("%s is not set", name);
	return value;
}

PGresult *bench_exec(PGconn *pg, const char *sql)
{
	PGresult *result = PQexec(pg, sql);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		bench_die("%s\n%s", PQerrorMessage(pg), sql);
	return result;
}

PGconn *bench_connect(bool admin)
{
	PGconn *pg = PQconnectdb(admin ? "" : bench_env("SUTRA_DATASOURCE_URL"));

	if (PQstatus(pg) != CONNECTION_OK)
		bench_die("%s", PQerrorMessage(pg));
	if (!admin)
		PQclear(bench_exec(pg, "set sutra.tenant = '," BENCH_TENANT ",'"));
	return pg;
}

int64_t bench_body_number(struct str body, const char *name)
{
	const char *at = memmem(body.ptr, body.len, name, strlen(name));
	const char *end = body.ptr + body.len;
	int64_t value = 0;

	if (!at)
		return -1;
	at += strlen(name);
	if (at == end || *at < '0' || *at > '9')
		return -1;
	for (; at < end && *at >= '0' && *at <= '9'; at++)
		value = value * 10 + (*at - '0');
	return value;
}

int64_t bench_number(const char *text)
{
	int64_t value;

	if (!str_to_int64(str_of(text), &value) || value < 1)
		bench_die("not a number: %s", text);
	return value;
}
