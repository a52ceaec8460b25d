/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run has left behind, as one digest that two runs must share: for each of the first orders, by the keys of its two
 * events, the instance that both had their effect on, with everything in it but what differs by chance: its id and when it
 * began. An order whose events are not there, or met different instances, has no row and is missing in the count.
 */
#include "base/buf.h"
#include "base/time.h"
#include "store/store.h"
#include "tests/bench/bench.h"

/* A one-dimensional uuid[] in binary. */
static void array_begin(struct buf *array, uint32_t count)
{
	buf_add_be32(array, 1);
	buf_add_be32(array, 0);
	buf_add_be32(array, 2950); /* uuid */
	buf_add_be32(array, count);
	buf_add_be32(array, 1);
}

static void array_add(struct buf *array, struct id id)
{
	buf_add_be32(array, sizeof(id.bytes));
	buf_add(array, id.bytes, sizeof(id.bytes));
}

static PGresult *query(PGconn *pg, uint32_t orders)
{
	struct buf arrays[2] = {BUF_INIT, BUF_INIT};
	char order[ORDER_TEXT_SIZE], payment[PAYMENT_TEXT_SIZE];
	PGresult *result;

	array_begin(&arrays[0], orders);
	array_begin(&arrays[1], orders);
	for (uint32_t i = 0; i < orders; i++) {
		array_add(&arrays[0], store_inbox_key(STR(BENCH_TENANT), STR("orders"),
						      str_of(order_text(i, order))));
		array_add(&arrays[1], store_inbox_key(STR(BENCH_TENANT), STR("payments"),
						      str_of(payment_text(i, payment))));
	}
	result = PQexecParams(
		pg,
		"select n, i.started_at, i.snapshot, "
		"concat_ws('|', i.tenant, i.deployment_id, i.process, i.status, i.version, "
		"i.ended_at is not null, i.code, "
		"i.claim_owner is null, a.tenant, b.tenant) "
		"from unnest($1::uuid[], $2::uuid[]) with ordinality as k(first, second, n) join "
		"sutra.inbox a on a.key = k.first "
		"join sutra.inbox b on b.key = k.second and b.instance_id = a.instance_id "
		"join sutra.instance i on i.id = a.instance_id order by n",
		2, NULL, (const char *const[]){arrays[0].data, arrays[1].data},
		(const int[]){(int)arrays[0].len, (int)arrays[1].len}, (const int[]){1, 1}, 1);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		bench_die("%s", PQerrorMessage(pg));
	buf_done(&arrays[0]);
	buf_done(&arrays[1]);
	return result;
}

/* The time of the start stands in the snapshot too. */
static void add_snapshot(struct buf *all, const char *snapshot, int len, const char *started_at)
{
	uint64_t started_us = 0;
	size_t before = all->len;
	char needle[8], *at;

	for (int i = 0; i < 8; i++)
		started_us = started_us << 8 | (uint8_t)started_at[i];
	started_us += (uint64_t)PG_EPOCH_US;
	for (int i = 0; i < 8; i++)
		needle[i] = (char)(started_us >> (56 - 8 * i));
	buf_add(all, snapshot, (size_t)len);
	at = memmem(all->data + before, (size_t)len, needle, sizeof(needle));
	if (!at)
		bench_die("a snapshot does not hold the time of its start");
	memset(at, 0, sizeof(needle));
}

#define BLOCK 1000

/* A digest for every thousand orders, over those and the digest before: two runs are compared as far as both have come. */
int bench_verify(uint64_t orders)
{
	PGconn *pg = bench_connect(false);
	PGresult *result = query(pg, (uint32_t)orders);
	struct buf block = BUF_INIT;
	char hex[65];

	printf("{\"rows\": %d, \"block\": %d, \"digests\": [", PQntuples(result), BLOCK);
	for (int i = 0; i < PQntuples(result); i++) {
		buf_add(&block, PQgetvalue(result, i, 0), 8);
		buf_add(&block, PQgetvalue(result, i, 3), (size_t)PQgetlength(result, i, 3));
		add_snapshot(&block, PQgetvalue(result, i, 2), PQgetlength(result, i, 2),
			     PQgetvalue(result, i, 1));
		if ((i + 1) % BLOCK)
			continue;
		sha256_hex(buf_str(&block), hex);
		printf("%s\"%s\"", i >= BLOCK ? ", " : "", hex);
		buf_reset(&block);
		buf_add(&block, hex, sizeof(hex));
	}
	printf("]}\n");
	buf_done(&block);
	PQclear(result);
	PQfinish(pg);
	return 0;
}
