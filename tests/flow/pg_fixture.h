/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A PostgreSQL with the schema in it, for Check programs of the flow ring. The program starts itself again below the starter of
 * tests/services, which ends the server whatever becomes of the program.
 *
 *	int main(int argc, char **argv) { return pg_fixture_main(argc, argv, thing_suite); }
 *
 * Life cycle: pg_admin from pg_admin_open, closed by PQfinish. Threads: the test's.
 */
#ifndef SUTRA_TESTS_FLOW_PG_FIXTURE_H
#define SUTRA_TESTS_FLOW_PG_FIXTURE_H

#include <libpq-fe.h>

#include "store/executor.h"
#include "tests/support/testing.h"

/* Starts a server if there is none yet, migrates it, runs the suite. Exit status of the program; 77 without PostgreSQL. */
int pg_fixture_main(int argc, char **argv, Suite *(*suite)(void));

/* The engine's settings for this server: application "sutra/test-boot". Borrowed. */
struct pg_settings pg_fixture_settings(void);
/* The same with the connection through another port. `url` is malloc'ed and the caller's. */
char *pg_fixture_url(int port);
int pg_fixture_port(void);

/* As superuser; fails the test if it cannot connect. */
PGconn *pg_admin_open(void);
/* Runs it and fails the test if that fails. */
void pg_exec(PGconn *pg, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The first field as number, -1 for NULL or no row. */
long long pg_number(PGconn *pg, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Waits until the first field is `want`; fails the test after twenty seconds. */
void pg_wait_number(PGconn *pg, long long want, const char *sql);
/* Empties every table. */
void pg_fixture_reset(void);

#endif
