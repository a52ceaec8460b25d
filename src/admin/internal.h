/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the admin listener. The HTTP library has a thread for each connection that reads requests and writes answers;
 * between the two a request is lent to the admin loop, on which everything else here runs:
 *
 *	connection's thread      admin loop                            store
 *	READ ───── post ───────► route, check key and parameters
 *	  wait                     │ ├── answer at once ──┐
 *	                           │ └── ask ─────────────┼──────────► query
 *	                           │   ◄──────────────────┼───────────┘
 *	WRITE ◄─── signal ─────────┴── answer ◄───────────┘
 */
#ifndef SUTRA_ADMIN_INTERNAL_H
#define SUTRA_ADMIN_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>

#include "admin/admin.h"
#include "base/loop.h"

struct admin {
	struct admin_sources sources;
	struct loop *loop;
	struct MHD_Daemon *daemon;
	char *key; /* NULL: unconfigured */
	char *header;
	bool no_auth;
	struct view *view; /* the loop's, as is the next; NULL before admin_loaded */
	const struct activation *activation;
	uint32_t waiting; /* atomic: requests that the loop has */
	bool stopping;    /* atomic */
};

struct admin_request;

enum admin_method {
	ADMIN_GET,  /* and HEAD */
	ADMIN_POST, /* with a body, or without */
};

struct admin_route {
	enum admin_method method;
	/* "{}" stands for one part of the path, an asterisk at the end for all that follows, slashes too. */
	const char *path;
	bool open; /* without the key */
	void (*run)(struct admin_request *request);
	const char *parameters; /* names that the query string may hold, each between blanks */
};
/*
 * routes.c: NULL if there is none of this path and method; request->id and id_below get what stands in the place of wildcards, and
 * request->allow the methods that the path takes, NULL if there is no such path.
 */
const struct admin_route *admin_route_find(struct admin_request *request);

#define REQUEST_PARAMS 6
#define PAGE_DEFAULT   100
#define PAGE_MAX       1000
/* Most rows that are looked at for one page of a list with filters. */
#define LOOK_MAX       10000

struct admin_request {
	struct admin *admin;
	struct MHD_Connection *connection;
	struct task post;
	struct arena arena;
	const char *method;
	const char *path;
	struct str id, id_below; /* out of the path: the first wildcard, and the second */
	/* The body that came. It is taken from whoever has the key, of a POST, up to codec.max-payload-bytes. */
	bool takes_input, input_is_too_large;
	struct buf input;

	/* The answer. */
	pthread_mutex_t lock; /* leaf; guards `status` */
	pthread_cond_t answered;
	unsigned status; /* 0: none yet */
	const char *content_type;
	const char *allow, *authenticate; /* header lines, or NULL */
	struct buf body;

	/* What a route asks the store, one query at a time. */
	struct store_query query;
	struct segment_call *calls;
	void (*then)(struct admin_request *request); /* on STORE_OK; anything else is answered */
	struct str tenants;                          /* ",a,b," of all that the engine knows */

	/* What lists are asked for. */
	uint32_t limit;
	void *state; /* the route's, in the arena */
};

/* http.c */
/* Serves an open socket, which it closes in the end; NULL: it cannot. */
struct MHD_Daemon *admin_http_start(struct admin *admin, int listener);
/* The answer is complete; the request is its connection's again. */
void admin_answer(struct admin_request *request, unsigned status, const char *content_type);
void admin_answer_json(struct admin_request *request);
/* A problem document (RFC 9457). `attribute` may be NULL. */
void admin_problem(struct admin_request *request, unsigned status, enum code code,
		   const char *attribute, struct str value, const char *fmt, ...) PRINTF_LIKE(6, 7);
void admin_not_found(struct admin_request *request);
/* A parameter of the query string, or STR_NONE. */
struct str admin_parameter(struct admin_request *request, const char *name);

/* admin.c: runs a request that a connection has lent. */
void admin_request_run(struct task *post);
/* Whether a body is to be taken. @thread any */
bool admin_request_takes_input(const struct admin_request *request);

/* ask.c */
/* Prepares a segment of `count` calls; parameters are set by admin_param_*, which copy their value. */
void admin_ask_begin(struct admin_request *request, uint32_t count);
void admin_ask_call(struct admin_request *request, uint32_t call, enum statement_id statement);
void admin_param_int(struct admin_request *request, uint32_t call, uint32_t param, int64_t value);
void admin_param_bool(struct admin_request *request, uint32_t call, uint32_t param, bool value);
void admin_param_id(struct admin_request *request, uint32_t call, uint32_t param, struct id value);
void admin_param_text(struct admin_request *request, uint32_t call, uint32_t param,
		      struct str value);
void admin_param_bytes(struct admin_request *request, uint32_t call, uint32_t param, struct str value);
/* Sends it; `then` runs with the rows. */
void admin_ask(struct admin_request *request, bool scan,
	       void (*then)(struct admin_request *request));
/* The same of what writes: answered when it is safe on disk. */
void admin_ask_write(struct admin_request *request, void (*then)(struct admin_request *request));
/* Fills request->tenants from the table of deployments, then runs `then`. */
void admin_ask_tenants(struct admin_request *request, void (*then)(struct admin_request *request));
/* Reads `limit`; and an id out of `text`. False: the problem is answered. */
bool admin_read_limit(struct admin_request *request) MUST_CHECK;
bool admin_read_id(struct admin_request *request, const char *parameter, struct str text,
		   struct id *out) MUST_CHECK;
/* Whether it may be compared with a text of the database. */
bool admin_is_name(struct str text);
/*
 * Where the page behind these rows of a list begins, if there is one. `filled`: a column that is NULL only in the last row of a page
 * that ended early.
 */
bool admin_next_id(const struct admin_request *request, const struct rows *rows, uint32_t filled, struct id *next) MUST_CHECK;
/* Takes that last row away; whether there was one. */
bool admin_rows_trim(struct rows *rows, uint32_t filled);

/* json.c: compact JSON into the request's body; commas come by themselves. */
void json_open(struct buf *out, char bracket);
void json_close(struct buf *out, char bracket);
/* `name` NULL inside an array. */
void json_name(struct buf *out, const char *name);
void json_name_str(struct buf *out, struct str name);
void json_text(struct buf *out, const char *name, struct str value); /* absent = null */
void json_int(struct buf *out, const char *name, int64_t value);
void json_bool(struct buf *out, const char *name, bool value);
void json_null(struct buf *out, const char *name);
void json_id(struct buf *out, const char *name, struct id value);
/* A value as far as JSON can say it, else its print as a text. */
void json_value(struct buf *out, const char *name, const msgpack_object *value);
/* Fields of a row: NULL is null. */
void json_text_field(struct buf *out, const char *name, const struct field *field);
void json_time_field(struct buf *out, const char *name, const struct field *field);
void json_id_field(struct buf *out, const char *name, const struct field *field);
/* Ends a list: `"next":…}`. */
void json_next(struct buf *out, struct str cursor);

/* The routes. */
void admin_health_ready(struct admin_request *request);
void admin_health_live(struct admin_request *request);
void admin_metrics(struct admin_request *request);
void admin_deployments(struct admin_request *request);
void admin_deployments_open(struct admin_request *request);
void admin_deployment(struct admin_request *request);
void admin_deployment_open(struct admin_request *request);
void admin_instances(struct admin_request *request);
void admin_instance(struct admin_request *request);
void admin_instance_cancel(struct admin_request *request);
void admin_instance_restore(struct admin_request *request);
void admin_instance_complete(struct admin_request *request);
/* Members of an instance that are columns of its row. */
void admin_instance_columns(struct buf *out, const struct rows *rows, uint32_t row);
void admin_outbox(struct admin_request *request);
void admin_outbox_retry(struct admin_request *request);
void admin_dead_letters(struct admin_request *request);
void admin_dead_letter(struct admin_request *request);
void admin_dead_letter_replay(struct admin_request *request);
void admin_kept(struct admin_request *request);
void admin_why_message(struct admin_request *request);
void admin_why_instance(struct admin_request *request);
void admin_why_channel(struct admin_request *request);
void admin_lanes(struct admin_request *request);
void admin_leases(struct admin_request *request);
void admin_channels(struct admin_request *request);

#endif
