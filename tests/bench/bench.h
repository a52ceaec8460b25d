/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of the benches: one run of the hold-relay scenario, by the engine or by the reference, of a loop, or of timers, against a migrated
 * database. Each mode prints one line of JSON; tests/bench/smoke, history and timers put them together.
 *
 *	driver migrate              the schema, as `sutra migrate` does it
 *	driver capture              runs one order and keeps its rows in the schema `bench`, for the reference to imitate
 *	driver engine SECONDS       a whole replica, fed and drained through the local transport; SUTRA_BENCH_ORDERS: so many
 *	                            orders, whatever the time
 *	driver reference SECONDS N  the same rows by N connections, one transaction a step
 *	driver verify ORDERS        the digest of what the first ORDERS orders have left behind
 *	driver pace SECONDS RATE    hold-relay at so many steps a second, whatever becomes of them, and how late each was
 *	driver timers COUNT RATE    so many timers, due so many a second, or at one moment where RATE is 0, and how late they fire
 *	driver history              takes instances of a loop from one step to another, as standard input says
 *
 * Order number n is the same in every run: its texts all have the same length, so that rows have the same size.
 */
#ifndef SUTRA_TESTS_BENCH_BENCH_H
#define SUTRA_TESTS_BENCH_BENCH_H

#include <libpq-fe.h>
#include <stdio.h>

#include "base/id.h"

#define BENCH_TENANT    "default"
#define ORDER_TEXT_SIZE 16 /* "order-000000017" */
#define ORDER_ALIAS     "order"
#define ORDER_PRICE     10
#define PG_EPOCH_US     INT64_C(946684800000000)

static inline unsigned order_quantity(uint64_t n)
{
	return 1 + n % 9;
}

static inline unsigned order_total(uint64_t n)
{
	return order_quantity(n) * ORDER_PRICE;
}

/* The order's id, which is also the event id of its first message; that of the second has another word in front. */
static inline char *order_text(uint64_t n, char text[static ORDER_TEXT_SIZE])
{
	snprintf(text, ORDER_TEXT_SIZE, "order-%09llu", (unsigned long long)(n % 1000000000));
	return text;
}

#define PAYMENT_TEXT_SIZE 24
static inline char *payment_text(uint64_t n, char text[static PAYMENT_TEXT_SIZE])
{
	snprintf(text, PAYMENT_TEXT_SIZE, "payment-%09llu", (unsigned long long)(n % 1000000000));
	return text;
}

/* Latencies of steps in microseconds. */
struct samples {
	uint32_t *us;
	size_t count, capacity;
};
void samples_add(struct samples *samples, int64_t us);
/* Sorts. `part` of 1 in thousandths: 500 = the median. */
uint32_t samples_quantile(struct samples *samples, unsigned part);

/* Processor time of this process, user and system. */
int64_t bench_cpu_us(void);
/* Prints and ends the process. */
void bench_die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* A required variable of the environment. */
const char *bench_env(const char *name);
/* A whole number of at least 1. */
int64_t bench_number(const char *text);
/* The number behind `name` in a flat JSON object, or -1. */
int64_t bench_body_number(struct str body, const char *name);
/* Connects as the engine does, with the tenant set; as the superuser when `admin`. */
PGconn *bench_connect(bool admin);
/* Runs one or several statements that must succeed; rows of the last, to be cleared. */
PGresult *bench_exec(PGconn *pg, const char *sql);

/* Each returns the exit code. */
int bench_engine(int64_t seconds);
int bench_capture(void);
int bench_reference(int64_t seconds, unsigned connections);
int bench_verify(uint64_t orders);
int bench_history(void);
int bench_pace(int64_t seconds, int64_t rate);
int bench_timers(int64_t count, int64_t rate);

#endif
