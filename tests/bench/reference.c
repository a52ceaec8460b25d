/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: the rows of hold-relay as a careful program without an engine would write them, one transaction a step. Each
 * of N connections takes one order after the other: it writes the spawn, then the relay. All connections are served
 * from one thread by poll(2), so that a core stays with the server.
 *
 * What is in its favour: everything is prepared and binary, and what a step sends leaves in one packet (a pipeline; its
 * Sync commits, there is no BEGIN or COMMIT to parse); the spawn is one round trip, with no look-up before it, and the relay
 * two, because the snapshot must be read before it can be changed; wait and claim are found by one statement; the
 * outbox row of a step, sent meanwhile, is deleted within the next step's transaction instead of one of its own; the
 * tenant is set once a session; nothing is decoded, evaluated or published.
 *
 * The rows are those that the engine wrote for one order (driver capture), with the numbers of each order put in.
 */
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/time.h"
#include "store/store.h"
#include "tests/bench/bench.h"

#define CONNECTIONS_MAX 64
#define PATCHES_MAX     16
#define BYTES_MAX       4096

/* --- rows to imitate --- */

enum patch_kind {
	PATCH_ORDER,           /* "order-000000000" */
	PATCH_STARTED,         /* 8 bytes, big-endian */
	PATCH_QUANTITY_TEXT,   /* one digit */
	PATCH_TOTAL_TEXT,      /* two digits */
	PATCH_QUANTITY_NUMBER, /* a byte */
	PATCH_TOTAL_NUMBER,
};

struct bytes {
	char *data;
	int len; /* -1 = NULL */
	struct patch {
		enum patch_kind kind;
		int at;
	} patches[PATCHES_MAX];
	int patch_count;
};

enum outbox_field {
	OUT_CHANNEL,
	OUT_DEPLOYMENT,
	OUT_CONNECTION,
	OUT_DESTINATION,
	OUT_CORRELATION,
	OUT_KEY,
	OUT_HEADERS,
	OUT_TYPE,
	OUT_BODY,
	OUT_FIELDS
};

struct step_rows {
	struct bytes snapshot;
	struct bytes outbox[OUT_FIELDS];
};

struct reference {
	struct step_rows spawn, relay;
	char *deployment, *process, *node, *wait_channel;
	uint64_t random;

	int64_t end_us;
	uint64_t next, steps, statements, transactions, deleted;
	struct samples latency;
	unsigned running;
};

static void be64(char out[static 8], int64_t value)
{
	for (int i = 0; i < 8; i++)
		out[i] = (char)((uint64_t)value >> (56 - 8 * i));
}

static int64_t from_be64(const char *in)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | (uint8_t)in[i];
	return (int64_t)value;
}

/* Marks every occurrence of `what`; the patch begins behind its first `skip` bytes. */
static void find_patches(struct bytes *bytes, const char *what, size_t len, int skip,
			 enum patch_kind kind)
{
	const char *at = bytes->data, *end = bytes->data + bytes->len;

	while ((at = memmem(at, (size_t)(end - at), what, len))) {
		if (bytes->patch_count == PATCHES_MAX)
			bench_die("a captured value has too many variable places");
		bytes->patches[bytes->patch_count++] = (struct patch){
			kind, (int)(at - bytes->data) + skip};
		at += len;
	}
}

static void find_named(struct bytes *bytes, const char *name, unsigned value, enum patch_kind text,
		       enum patch_kind number)
{
	char what[64];
	int len = snprintf(what, sizeof(what), "\"%s\":%u", name, value);
	int name_len = (int)strlen(name);

	find_patches(bytes, what, (size_t)len, name_len + 3, text);
	what[0] = (char)(0xa0 + name_len); /* MessagePack: a short text, then a small integer */
	memcpy(what + 1, name, (size_t)name_len);
	what[1 + name_len] = (char)value;
	find_patches(bytes, what, (size_t)name_len + 2, name_len + 1, number);
}

static struct bytes bytes_capture(PGresult *result, int column, int64_t started_us)
{
	struct bytes bytes = {.len = -1};
	char order[ORDER_TEXT_SIZE], started[8];

	if (PQgetisnull(result, 0, column))
		return bytes;
	bytes.len = PQgetlength(result, 0, column);
	if (bytes.len > BYTES_MAX)
		bench_die("a captured value is too large");
	bytes.data = mem_zalloc((size_t)bytes.len + 1);
	memcpy(bytes.data, PQgetvalue(result, 0, column), (size_t)bytes.len);
	order_text(0, order);
	find_patches(&bytes, order, strlen(order), 0, PATCH_ORDER);
	be64(started, started_us);
	find_patches(&bytes, started, sizeof(started), 0, PATCH_STARTED);
	find_named(&bytes, "quantity", order_quantity(0), PATCH_QUANTITY_TEXT,
		   PATCH_QUANTITY_NUMBER);
	find_named(&bytes, "total", order_total(0), PATCH_TOTAL_TEXT, PATCH_TOTAL_NUMBER);
	find_named(&bytes, "paid", order_total(0), PATCH_TOTAL_TEXT, PATCH_TOTAL_NUMBER);
	return bytes;
}

/* The value of this order, in `out` of BYTES_MAX bytes; NULL for NULL. */
static const char *bytes_make(const struct bytes *bytes, char *out, uint64_t order,
			      int64_t started_us)
{
	char text[24];

	if (bytes->len < 0)
		return NULL;
	memcpy(out, bytes->data, (size_t)bytes->len + 1);
	for (int i = 0; i < bytes->patch_count; i++) {
		char *at = out + bytes->patches[i].at;

		switch (bytes->patches[i].kind) {
		case PATCH_ORDER:
			memcpy(at, order_text(order, text), ORDER_TEXT_SIZE - 1);
			break;
		case PATCH_STARTED:
			be64(at, started_us);
			break;
		case PATCH_QUANTITY_TEXT:
			*at = (char)('0' + order_quantity(order));
			break;
		case PATCH_TOTAL_TEXT:
			snprintf(text, sizeof(text), "%02u", order_total(order));
			memcpy(at, text, 2);
			break;
		case PATCH_QUANTITY_NUMBER:
			*at = (char)order_quantity(order);
			break;
		case PATCH_TOTAL_NUMBER:
			*at = (char)order_total(order);
			break;
		}
	}
	return out;
}

static PGresult *query_binary(PGconn *pg, const char *sql)
{
	PGresult *result = PQexecParams(pg, sql, 0, NULL, NULL, NULL, NULL, 1);

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
		bench_die("%s\n%s", PQerrorMessage(pg), sql);
	return result;
}

static void capture_step(struct reference *ref, PGconn *pg, const char *step,
			 struct step_rows *rows)
{
	char sql[512];
	PGresult *result;
	int64_t started_us;

	snprintf(sql, sizeof(sql),
		 "select started_at, snapshot, deployment_id, process from bench.%s_instance",
		 step);
	result = query_binary(pg, sql);
	started_us = from_be64(PQgetvalue(result, 0, 0)) + PG_EPOCH_US;
	rows->snapshot = bytes_capture(result, 1, started_us);
	if (!ref->deployment) {
		ref->deployment = mem_strdup(PQgetvalue(result, 0, 2));
		ref->process = mem_strdup(PQgetvalue(result, 0, 3));
	}
	PQclear(result);
	snprintf(sql, sizeof(sql),
		 "select channel, deployment_id, connection, destination, correlation, record_key, "
		 "headers, content_type, body "
		 "from bench.%s_outbox_entry",
		 step);
	result = query_binary(pg, sql);
	for (int i = 0; i < OUT_FIELDS; i++)
		rows->outbox[i] = bytes_capture(result, i, started_us);
	PQclear(result);
}

static void capture(struct reference *ref, PGconn *pg)
{
	PGresult *result;

	capture_step(ref, pg, "spawn", &ref->spawn);
	capture_step(ref, pg, "relay", &ref->relay);
	result = query_binary(pg, "select node, channel from bench.spawn_wait");
	ref->node = mem_strdup(PQgetvalue(result, 0, 0));
	ref->wait_channel = mem_strdup(PQgetvalue(result, 0, 1));
	PQclear(result);
}

/* --- statements --- */

enum statement {
	OUTBOX_DELETE,
	INBOX_INSERT,
	ALIAS_INSERT,
	WAIT_INSERT,
	INSTANCE_INSERT,
	OUTBOX_INSERT,
	CLAIM,
	WAIT_DELETE,
	ALIAS_DELETE,
	INSTANCE_UPDATE,
	STATEMENTS
};

static const struct {
	const char *name, *sql;
} statements[STATEMENTS] = {
	[OUTBOX_DELETE] = {"outbox_delete",
			   "delete from sutra.outbox_entry where instance_id = $1::uuid and "
			   "channel = $2::text "
			   "and version = $3::int8 and ordinal = 0 and tenant = $4::text"},
	[INBOX_INSERT] =
		{"inbox_insert",
		 "insert into sutra.inbox (key, instance_id, created_at, tenant) "
		 "values ($1::uuid, $2::uuid, now(), $3::text) on conflict (key) do nothing"},
	[ALIAS_INSERT] =
		{"alias_insert",
		 "insert into sutra.alias (key, slot, tenant, instance_id, name, value) values "
		 "($1::uuid, "
		 "'00000000-0000-0000-0000-000000000000', $2::text, $3::uuid, $4::text, $5::text) "
		 "on conflict (key, slot) do nothing"},
	[WAIT_INSERT] = {"wait_insert", "insert into sutra.wait (key, slot, tenant, instance_id, "
					"token, node, channel, deployment_id, created_at) "
					"values ($1::uuid, $2::uuid, $3::text, $4::uuid, 1, "
					"$5::text, $6::text, $7::text, now())"},
	[INSTANCE_INSERT] = {"instance_insert",
			     "insert into sutra.instance (id, tenant, deployment_id, process, "
			     "status, version, started_at, snapshot) "
			     "values ($1::uuid, $2::text, $3::text, $4::text, 'SUSPENDED', 1, "
			     "$5::timestamptz, $6::bytea)"},
	[OUTBOX_INSERT] = {"outbox_insert", "insert into sutra.outbox_entry (instance_id, channel, "
					    "version, ordinal, tenant, id, deployment_id, "
					    "connection, destination, correlation, record_key, "
					    "headers, content_type, required, created_at, "
					    "next_attempt_at, claimed_at, claim_owner, body) "
					    "values ($1::uuid, $2::text, $3::int8, 0, $4::text, "
					    "$5::uuid, $6::text, $7::text, $8::text, $9::bytea, "
					    "$10::bytea, $11::bytea, $12::text, false, now(), "
					    "now(), now(), $13::text, $14::bytea)"},
	[CLAIM] = {"claim", "update sutra.instance i set claim_at = now(), claim_owner = $3::text "
			    "from sutra.wait w "
			    "where w.key = $1::uuid and w.tenant = $2::text and i.id = "
			    "w.instance_id and i.tenant = $2::text "
			    "and i.claim_owner is null returning i.version, i.snapshot"},
	[WAIT_DELETE] = {"wait_delete", "delete from sutra.wait where key = $1::uuid and slot = "
					"$2::uuid and tenant = $3::text"},
	[ALIAS_DELETE] = {"alias_delete", "delete from sutra.alias where key = $1::uuid and slot = "
					  "'00000000-0000-0000-0000-000000000000' "
					  "and tenant = $2::text"},
	[INSTANCE_UPDATE] = {"instance_update",
			     "update sutra.instance set status = 'COMPLETED', version = version + "
			     "1, ended_at = now(), claim_at = null, "
			     "claim_owner = null, snapshot = $5::bytea where id = $1::uuid and "
			     "tenant = $2::text "
			     "and version = $3::int8 and claim_owner = $4::text"},
};

/* --- connections --- */

enum conn_state { CONN_SPAWN, CONN_CLAIM, CONN_RELAY, CONN_LAST, CONN_ENDED };

struct conn {
	struct reference *ref;
	PGconn *pg;
	enum conn_state state;
	char owner[64];
	unsigned waiting; /* results that are still to come, the Sync's among them */
	bool unflushed;
	uint64_t order;
	struct id instance, wait_key, wait_slot, alias_key;
	int64_t began_us, started_us;
	int64_t sent_version; /* of the outbox row to be deleted; 0 = none */
	struct id sent_instance;
	const struct bytes *sent_channel;

	/* The parameters of one statement. */
	const char *values[16];
	int lengths[16], formats[16], count;
	char numbers[4][8];
	unsigned number_count;
	char scratch[OUT_FIELDS][BYTES_MAX + 1];
};

static void add(struct conn *conn, const void *value, int len, int format)
{
	conn->values[conn->count] = value;
	conn->lengths[conn->count] = len;
	conn->formats[conn->count++] = format;
}

static void add_text(struct conn *conn, const char *text)
{
	add(conn, text, 0, 0);
}

static void add_id(struct conn *conn, const struct id *id)
{
	add(conn, id->bytes, sizeof(id->bytes), 1);
}

static void add_number(struct conn *conn, int64_t number)
{
	char *to = conn->numbers[conn->number_count++];

	be64(to, number);
	add(conn, to, 8, 1);
}

static void run(struct conn *conn, enum statement statement)
{
	if (!PQsendQueryPrepared(conn->pg, statements[statement].name, conn->count, conn->values,
				 conn->lengths, conn->formats, 1))
		bench_die("%s", PQerrorMessage(conn->pg));
	conn->count = 0;
	conn->number_count = 0;
	conn->waiting++;
	conn->ref->statements++;
}

static void flush(struct conn *conn)
{
	int left = PQflush(conn->pg);

	if (left < 0)
		bench_die("%s", PQerrorMessage(conn->pg));
	conn->unflushed = left > 0;
}

static void commit(struct conn *conn)
{
	if (!PQpipelineSync(conn->pg))
		bench_die("%s", PQerrorMessage(conn->pg));
	conn->waiting++;
	conn->ref->transactions++;
	flush(conn);
}

static void run_outbox_delete(struct conn *conn)
{
	if (!conn->sent_version)
		return;
	add_id(conn, &conn->sent_instance);
	add(conn, conn->sent_channel->data, conn->sent_channel->len, 1);
	add_number(conn, conn->sent_version);
	add_text(conn, BENCH_TENANT);
	run(conn, OUTBOX_DELETE);
	conn->sent_version = 0;
	conn->ref->deleted++;
}

static void run_inbox_insert(struct conn *conn, const char *channel, const char *event)
{
	struct id key = store_inbox_key(STR(BENCH_TENANT), str_of(channel), str_of(event));

	add_id(conn, &key);
	add_id(conn, &conn->instance);
	add_text(conn, BENCH_TENANT);
	run(conn, INBOX_INSERT);
}

static void run_outbox_insert(struct conn *conn, const struct step_rows *rows, int64_t version)
{
	struct id id = outbox_row_id(conn->instance, version, 0);

	add_id(conn, &conn->instance);
	add(conn, rows->outbox[OUT_CHANNEL].data, rows->outbox[OUT_CHANNEL].len, 1);
	add_number(conn, version);
	add_text(conn, BENCH_TENANT);
	add_id(conn, &id);
	for (int i = OUT_DEPLOYMENT; i <= OUT_TYPE; i++)
		add(conn,
		    bytes_make(&rows->outbox[i], conn->scratch[i], conn->order, conn->started_us),
		    rows->outbox[i].len, 1);
	add_text(conn, conn->owner);
	add(conn,
	    bytes_make(&rows->outbox[OUT_BODY], conn->scratch[OUT_BODY], conn->order,
		       conn->started_us),
	    rows->outbox[OUT_BODY].len, 1);
	run(conn, OUTBOX_INSERT);
	conn->sent_version = version;
	conn->sent_instance = conn->instance;
	conn->sent_channel = &rows->outbox[OUT_CHANNEL];
}

/* --- steps --- */

static uint64_t draw(struct reference *ref)
{
	ref->random ^= ref->random << 13;
	ref->random ^= ref->random >> 7;
	ref->random ^= ref->random << 17;
	return ref->random;
}

/* In the order of time, as the engine's are. */
static struct id instance_id(struct reference *ref)
{
	int64_t ms = time_wall_us() / US_PER_MS;
	struct id id;
	char bytes[8];

	be64(bytes, (ms << 16) | 0x7000 | (int64_t)(draw(ref) & 0xfff));
	memcpy(id.bytes, bytes, 8);
	be64(bytes, (int64_t)draw(ref));
	memcpy(id.bytes + 8, bytes, 8);
	id.bytes[8] = (uint8_t)((id.bytes[8] & 0x3f) | 0x80);
	return id;
}

static void spawn(struct conn *conn)
{
	struct reference *ref = conn->ref;
	char order[ORDER_TEXT_SIZE];
	struct str text;

	conn->state = CONN_SPAWN;
	conn->order = ref->next++;
	conn->began_us = time_monotonic_us();
	conn->started_us = time_wall_us();
	conn->instance = instance_id(ref);
	order_text(conn->order, order);
	text = str_of(order);
	conn->wait_key = store_wait_key(STR(BENCH_TENANT), str_of(ref->wait_channel),
					STR(ORDER_ALIAS), text);
	conn->alias_key = store_alias_key(STR(BENCH_TENANT), STR(ORDER_ALIAS), text);
	conn->wait_slot = id_digest_of(STR("slot"), id_str(&conn->instance));
	run_outbox_delete(conn);
	run_inbox_insert(conn, "orders", order);
	add_id(conn, &conn->alias_key);
	add_text(conn, BENCH_TENANT);
	add_id(conn, &conn->instance);
	add_text(conn, ORDER_ALIAS);
	add_text(conn, order);
	run(conn, ALIAS_INSERT);
	add_id(conn, &conn->wait_key);
	add_id(conn, &conn->wait_slot);
	add_text(conn, BENCH_TENANT);
	add_id(conn, &conn->instance);
	add_text(conn, ref->node);
	add_text(conn, ref->wait_channel);
	add_text(conn, ref->deployment);
	run(conn, WAIT_INSERT);
	add_id(conn, &conn->instance);
	add_text(conn, BENCH_TENANT);
	add_text(conn, ref->deployment);
	add_text(conn, ref->process);
	add_number(conn, conn->started_us - PG_EPOCH_US);
	add(conn, bytes_make(&ref->spawn.snapshot, conn->scratch[0], conn->order, conn->started_us),
	    ref->spawn.snapshot.len, 1);
	run(conn, INSTANCE_INSERT);
	run_outbox_insert(conn, &ref->spawn, 1);
	commit(conn);
}

static void claim(struct conn *conn)
{
	conn->state = CONN_CLAIM;
	conn->began_us = time_monotonic_us();
	run_outbox_delete(conn);
	add_id(conn, &conn->wait_key);
	add_text(conn, BENCH_TENANT);
	add_text(conn, conn->owner);
	run(conn, CLAIM);
	if (!PQsendFlushRequest(conn->pg))
		bench_die("%s", PQerrorMessage(conn->pg));
	flush(conn);
}

/* The snapshot was read; in the same transaction, which the Sync commits: */
static void relay(struct conn *conn)
{
	struct reference *ref = conn->ref;
	char payment[PAYMENT_TEXT_SIZE];

	conn->state = CONN_RELAY;
	run_inbox_insert(conn, "payments", payment_text(conn->order, payment));
	add_id(conn, &conn->wait_key);
	add_id(conn, &conn->wait_slot);
	add_text(conn, BENCH_TENANT);
	run(conn, WAIT_DELETE);
	add_id(conn, &conn->alias_key);
	add_text(conn, BENCH_TENANT);
	run(conn, ALIAS_DELETE);
	add_id(conn, &conn->instance);
	add_text(conn, BENCH_TENANT);
	add_number(conn, 1);
	add_text(conn, conn->owner);
	add(conn, bytes_make(&ref->relay.snapshot, conn->scratch[0], conn->order, conn->started_us),
	    ref->relay.snapshot.len, 1);
	run(conn, INSTANCE_UPDATE);
	run_outbox_insert(conn, &ref->relay, 2);
	commit(conn);
}

static void last_delete(struct conn *conn)
{
	conn->state = CONN_LAST;
	run_outbox_delete(conn);
	commit(conn);
}

/* Everything that was asked has been answered. */
static void next(struct conn *conn)
{
	struct reference *ref = conn->ref;
	int64_t now_us = time_monotonic_us();

	if (conn->state == CONN_CLAIM) {
		relay(conn);
		return;
	}
	if (conn->state == CONN_LAST) {
		conn->state = CONN_ENDED;
		ref->running--;
		return;
	}
	ref->steps++;
	samples_add(&ref->latency, now_us - conn->began_us);
	if (conn->state == CONN_SPAWN)
		claim(conn);
	else if (now_us < ref->end_us)
		spawn(conn);
	else
		last_delete(conn);
}

static void receive(struct conn *conn)
{
	if (!PQconsumeInput(conn->pg))
		bench_die("%s", PQerrorMessage(conn->pg));
	while (conn->waiting && !PQisBusy(conn->pg)) {
		PGresult *result = PQgetResult(conn->pg);
		ExecStatusType status = PQresultStatus(result);

		if (!result)
			continue;
		if (status == PGRES_TUPLES_OK    ? PQntuples(result) != 1
		    : status == PGRES_COMMAND_OK ? strcmp(PQcmdTuples(result), "1") != 0
						 : status != PGRES_PIPELINE_SYNC)
			bench_die("a statement did not touch its one row: %s",
				  PQresultErrorMessage(result));
		PQclear(result);
		if (--conn->waiting == 0)
			next(conn);
	}
}

static void conn_open(struct conn *conn, struct reference *ref, unsigned index)
{
	conn->ref = ref;
	conn->pg = bench_connect(false);
	snprintf(conn->owner, sizeof(conn->owner), "reference-host-12345-0a1b2c3d-s%u", index);
	for (int i = 0; i < STATEMENTS; i++) {
		PGresult *result = PQprepare(conn->pg, statements[i].name, statements[i].sql, 0,
					     NULL);

		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			bench_die("%s", PQerrorMessage(conn->pg));
		PQclear(result);
	}
	if (PQsetnonblocking(conn->pg, 1) != 0 || !PQenterPipelineMode(conn->pg))
		bench_die("%s", PQerrorMessage(conn->pg));
}

static void serve(struct reference *ref, struct conn *conns, unsigned count)
{
	struct pollfd fds[CONNECTIONS_MAX];

	while (ref->running) {
		for (unsigned i = 0; i < count; i++)
			fds[i] = (struct pollfd){
				conns[i].state == CONN_ENDED ? -1 : PQsocket(conns[i].pg),
				(short)(POLLIN | (conns[i].unflushed ? POLLOUT : 0)), 0};
		if (poll(fds, count, 30000) <= 0)
			bench_die("the server does not answer");
		for (unsigned i = 0; i < count; i++) {
			if (fds[i].revents & POLLOUT)
				flush(&conns[i]);
			if (fds[i].revents & ~POLLOUT)
				receive(&conns[i]);
		}
	}
}

int bench_reference(int64_t seconds, unsigned connections)
{
	struct reference ref = {.random = time_random() | 1, .running = connections};
	struct conn *conns;
	int64_t began_us, cpu_us;
	PGconn *pg;

	if (connections > CONNECTIONS_MAX)
		bench_die("at most %d connections", CONNECTIONS_MAX);
	pg = bench_connect(false);
	capture(&ref, pg);
	PQfinish(pg);
	conns = mem_zalloc(connections * sizeof(*conns));
	for (unsigned i = 0; i < connections; i++)
		conn_open(&conns[i], &ref, i);
	cpu_us = bench_cpu_us();
	began_us = time_monotonic_us();
	ref.end_us = began_us + seconds * US_PER_S;
	for (unsigned i = 0; i < connections; i++)
		spawn(&conns[i]);
	serve(&ref, conns, connections);
	printf("{\"orders\": %llu, \"steps\": %llu, \"seconds\": %.6f, \"cpu_us\": %lld, "
	       "\"transactions\": %llu, "
	       "\"statements\": %llu, \"outbox_deleted\": %llu, \"p50_us\": %u, \"p99_us\": %u}\n",
	       (unsigned long long)ref.next, (unsigned long long)ref.steps,
	       (double)(time_monotonic_us() - began_us) / (double)US_PER_S,
	       (long long)(bench_cpu_us() - cpu_us), (unsigned long long)ref.transactions,
	       (unsigned long long)ref.statements, (unsigned long long)ref.deleted,
	       samples_quantile(&ref.latency, 500), samples_quantile(&ref.latency, 990));
	for (unsigned i = 0; i < connections; i++)
		PQfinish(conns[i].pg);
	free(conns);
	return 0;
}
