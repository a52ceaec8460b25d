/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One query after the other, for what is done once on the main thread: the check before the start, and migrations.
 */
#include "store/pg/private.h"

static void ignore_notice(void *arg UNUSED, const PGresult *result UNUSED)
{
}

PGconn *blocking_connect(const char *url, const char *password, const char *application, struct error *err)
{
	struct conn_params params;
	PGconn *pg;
	char text[256];

	conn_params_fill(&params, url, password, application);
	pg = PQconnectdbParams(params.keywords, params.values, 1);
	if (PQstatus(pg) == CONNECTION_OK) {
		PQsetNoticeReceiver(pg, ignore_notice, NULL);
		return pg;
	}
	conn_message(PQerrorMessage(pg), text, sizeof(text));
	PQfinish(pg);
	error_set(err, RESULT_AGAIN, CODE_STARTUP_DATABASE, "%s", text);
	return NULL;
}

bool blocking_query(PGconn *pg, const char *sql, struct buf *out, struct error *err)
{
	PGresult *result = PQexec(pg, sql);
	ExecStatusType status = PQresultStatus(result);
	bool ok = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
	char text[256];

	if (out)
		buf_reset(out);
	if (ok && out) {
		buf_reserve(out, 1);
		if (PQntuples(result) > 0 && !PQgetisnull(result, 0, 0))
			buf_add(out, PQgetvalue(result, 0, 0), (size_t)PQgetlength(result, 0, 0));
		out->data[out->len] = '\0';
	}
	if (!ok) {
		const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

		conn_message(message ? message : PQerrorMessage(pg), text, sizeof(text));
		error_set(err, PQstatus(pg) == CONNECTION_BAD ? RESULT_AGAIN : RESULT_FATAL, CODE_STARTUP_DATABASE, "%s", text);
	}
	PQclear(result);
	return ok;
}
