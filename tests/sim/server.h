/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of the simulated database share: database.c is the server, executor.c the client side of its
 * connections.
 *
 * Life cycle: a request lives from the moment it is sent until the server has done with it and its sender has the answer, or
 * is gone. Threads: one.
 */
#ifndef SUTRA_TESTS_SIM_SERVER_H
#define SUTRA_TESTS_SIM_SERVER_H

#include "base/list.h"
#include "tests/sim/database.h"

struct sim_conn;

/* A session of the server's. */
struct backend {
	struct list link;
	struct sim_database *database;
	int64_t pid, start_us;
	char application[64];
	struct process *process;
	struct request *request; /* under way, or NULL */
	struct sim_conn *conn;   /* NULL: the client is gone; the session ends with its request */
};

enum request_state { REQUEST_SENT, REQUEST_ARRIVED, REQUEST_ANSWERED };

struct request {
	struct list link;
	struct sim_database *database;
	enum request_state state;
	struct arena arena;
	struct segment segment; /* the server's copy */
	struct backend *backend;
	struct loop_timer timer;
	char tag[96]; /* for the event log */
};

/* A committed segment, for making the tables anew. */
struct committed {
	struct arena *arena;
	struct segment segment;
	int64_t at_us;   /* on the world's clock */
	int64_t wall_us; /* what the server's clock said */
};

enum xact { XACT_UNKNOWN, XACT_RUNNING, XACT_COMMITTED, XACT_ABORTED };

struct sim_database {
	struct sim *sim;
	struct sim_database_settings settings;
	struct sim_database_stats stats;
	struct memory_database *tables;
	bool up, calm;
	struct loop_timer start;
	int64_t wall_offset_us, next_pid;
	int64_t latest_us; /* that its clock has shown */
	uint64_t next_xid;
	uint8_t *xacts; /* enum xact by id */
	size_t xact_cap;
	struct committed *log;
	size_t log_len, log_cap, log_durable; /* what is flushed */
	struct list backends, requests, executors;
};

/* executor.c, for the server. */

/* The server has the answer in request->segment. */
void sim_conn_answer(struct sim_conn *conn, struct request *request);
/* The connection is gone. */
void sim_conn_lose(struct sim_conn *conn);
/* Connects again after a while. */
void sim_conn_retry(struct sim_conn *conn);

/* database.c, for the connections. */

/* A new session; NULL when the server is down. */
struct backend *backend_new(struct sim_database *database, struct process *process,
			    const char *application, struct sim_conn *conn);
struct request *request_send(struct backend *backend, const struct segment *segment);
/* The client does not want the answer any more. With `drop` what has not arrived never will. Returns whether the server may run
 * it, or has. */
bool request_abandon(struct request *request, bool drop);
void request_free(struct request *request);
void backend_free(struct backend *backend);

#endif
