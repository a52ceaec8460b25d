/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of kept messages: inbox_message, and the leases that tell whose keeper lives. See statements.c for the shapes and the
 * reasons for them.
 *
 * Three indexes, and no statement gives a condition that fits two of them: inbox_message_pkey by id, inbox_message_order by
 * (order_key, seq), inbox_message_keeper by (place, keeper, seq). The table is empty most of the time, and an empty index looks as
 * good as any other. So nothing is asked of seq but which is first, and where the keeper is not what is looked for it is compared
 * through coalesce, which no index knows. A keeper's name is not empty.
 */
#include "store/pg/sql.h"

/* The first seq of the key, where `u` is. */
#define FIRST \
	"lateral (select e.seq from sutra.inbox_message e where e.order_key = u.order_key and e.tenant = u.tenant " \
	"order by e.seq limit 1) f "

/* inbox_message_order, one probe an element. Reads. */
const char sql_KEPT_PROBE[] =
	"select u.ord from unnest($1::int8[], $2::text[], $3::uuid[], $4::int8[]) as u(ord, tenant, order_key, before), "
	FIRST "where f.seq < u.before";

/*
 * inbox_message_pkey, one probe an element; by ctid after that. Deletes the keeper's rows, and none at all unless every element's
 * is there: a failed gate leaves nothing to clean up. A row that moved meanwhile is locked and not deleted, hence no pass.
 */
const char sql_KEPT_DELETE[] =
	"with l as materialized (select u.ord, c.tid from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[]) "
	"as u(ord, tenant, id, keeper), "
	"lateral (select m.ctid as tid from sutra.inbox_message m where m.id = u.id and m.tenant = u.tenant "
	"and coalesce(m.keeper, '') = u.keeper "
	"for update skip locked) c), "
	"w as (delete from sutra.inbox_message m using l where m.ctid = l.tid and (select count(*) from l) = cardinality($1) "
	"returning l.ord) "
	"select sutra.gate(array(select u.ord::int from unnest($1) as u(ord) where u.ord not in "
	"(select l.ord from l, sutra.inbox_message m where m.ctid = l.tid) order by 1), 'kept') "
	"where (select count(*) from w) <> cardinality($1)";

/* inbox_message_pkey. Inserts; one that is there stays as it is. */
const char sql_KEPT_INSERT[] =
	"insert into sutra.inbox_message (tenant, id, order_key, channel, kind, keeper, source, envelope, body, unmatched_at, "
	"created_at) "
	"select u.tenant, u.id, u.order_key, u.channel, u.kind, u.keeper, u.source, u.envelope, u.body, u.unmatched_at, now() "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], "
	"$10::bytea[], $11::timestamptz[]) "
	"as u(ord, tenant, id, order_key, channel, kind, keeper, source, envelope, body, unmatched_at) "
	"on conflict (id) do nothing";

/* inbox_message_pkey, one probe an element. Reads. */
const char sql_KEPT_OWNER[] =
	"select u.ord, m.keeper from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, id), "
	"lateral (select c.keeper from sutra.inbox_message c where c.id = u.id and c.tenant = u.tenant offset 0) m";

/* inbox_message_order, from the first of each key on until one of the keeper's; whether there is one before it. Reads. */
const char sql_KEPT_LOAD[] =
	"select u.order_key, m.id, m.seq, m.created_at, m.unmatched_at, m.envelope, m.body, f.seq < m.seq "
	"from unnest($1::text[], $2::uuid[]) as u(tenant, order_key), "
	"lateral (select c.* from sutra.inbox_message c where c.order_key = u.order_key and c.tenant = u.tenant "
	"and coalesce(c.keeper, '') = $3::text order by c.seq limit 1) m, " FIRST;

/* inbox_message_order, the rows of each key; by ctid after that. Touches what is not the keeper's already. */
const char sql_KEPT_TAKE[] =
	"with w as (update sutra.inbox_message m set keeper = $4::text from unnest($1::uuid[]) as u(order_key), "
	"lateral (select c.ctid as tid from sutra.inbox_message c where c.order_key = u.order_key and c.tenant = $2::text "
	"and c.channel = $3::text and coalesce(c.keeper, '') <> $4::text for no key update skip locked) l "
	"where m.ctid = l.tid returning m.order_key) "
	"select w.order_key, count(*) from w group by w.order_key order by w.order_key";

/* --- early ones --- */

/* early_pkey by its first column, one probe a key; inbox_message_pkey for each that is found. Reads. */
const char sql_EARLY_PROBE[] =
	"select distinct u.ord, m.order_key, m.channel, m.keeper "
	"from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, key), "
	"lateral (select c.message_id, c.tenant from sutra.early c where c.key = u.key and c.tenant = u.tenant limit 256) e, "
	"lateral (select c.order_key, c.channel, c.keeper from sutra.inbox_message c where c.id = e.message_id "
	"and c.tenant = e.tenant offset 0) m";

/* early_message, one probe an element; by ctid after that. Deletes those rows. */
const char sql_EARLY_DELETE[] =
	"delete from sutra.early e using unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, message_id), "
	"lateral (select c.ctid from sutra.early c where c.message_id = u.message_id and c.tenant = u.tenant offset 0) d "
	"where e.ctid = d.ctid";

/* inbox_message_pkey, one probe an element; by ctid after that. Touches the keeper's rows only. */
const char sql_EARLY_MARK[] =
	"update sutra.inbox_message m set kind = case when m.kind = 'target' then m.kind else 'early' end, unmatched_at = l.unmatched_at "
	"from (select c.tid, u.unmatched_at from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::timestamptz[]) "
	"as u(ord, tenant, id, keeper, unmatched_at), "
	"lateral (select i.ctid as tid from sutra.inbox_message i where i.id = u.id and i.tenant = u.tenant "
	"and coalesce(i.keeper, '') = u.keeper for no key update skip locked) c) l where m.ctid = l.tid";

/*
 * early_pkey. Inserts for messages that are there, which are held until the commit: whoever ends one of them deletes its rows in a
 * later statement.
 */
const char sql_EARLY_INSERT[] =
	"insert into sutra.early (key, message_id, tenant) select u.key, u.message_id, u.tenant "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::uuid[]) as u(ord, tenant, key, message_id), "
	"lateral (select from sutra.inbox_message m where m.id = u.message_id and m.tenant = u.tenant for key share) l "
	"on conflict (key, message_id) do nothing";

#define PLACE "m.place = $1::text || ',' || $2::text and m.tenant = $1::text and m.channel = $2::text "
#define OLDEST(keeper) \
	"select m.ctid as tid, m.seq from sutra.inbox_message m where " PLACE "and " keeper " " \
	"order by m.keeper, m.seq limit $4::int8 for no key update skip locked"

/*
 * inbox_message_keeper: the keepers that have something at this place, by a jump each; those without a live lease; then of each, and of
 * nobody, the oldest rows. So what other live replicas keep is never read. Stamps the oldest of these, skipping what is locked.
 */
const char sql_KEPT_RECOVER[] =
	"with recursive k as ("
	"(select m.keeper from sutra.inbox_message m where " PLACE "and m.keeper > '' order by m.keeper limit 1) "
	"union all select (select m.keeper from sutra.inbox_message m where " PLACE
	"and m.keeper > k.keeper order by m.keeper limit 1) from k where k.keeper is not null), "
	"dead as materialized (select k.keeper from k where k.keeper <> $3::text and not exists (select from sutra.lease l "
	"where l.role = 'keeper:' || k.keeper and l.holder is not null and l.expires_at > now())), "
	"p as materialized (select c.tid, c.seq from dead, lateral (" OLDEST("m.keeper = dead.keeper") ") c "
	"union all select c.tid, c.seq from (" OLDEST("m.keeper is null") ") c), "
	"w as (update sutra.inbox_message m set keeper = $3::text "
	"from (select tid from p order by seq limit $4::int8) l where m.ctid = l.tid returning m.order_key, m.seq) "
	"select w.order_key, count(*) from w group by w.order_key order by min(w.seq)";

/* inbox_message_keeper. Touches the oldest of the keeper's rows of that place. */
const char sql_KEPT_RELEASE[] =
	"with l as materialized (select m.ctid as tid from sutra.inbox_message m where " PLACE "and m.keeper = $3::text "
	"order by m.keeper, m.seq limit $4::int8 for no key update), "
	"w as (update sutra.inbox_message m set keeper = null from l where m.ctid = l.tid and m.keeper = $3::text returning 1) "
	"select count(*) from w";

/* inbox_message_keeper, from the last seq on. Reads. */
const char sql_KEPT_OWN[] =
	"select m.order_key, m.seq from sutra.inbox_message m where " PLACE "and m.keeper = $3::text and m.seq > $4::int8 "
	"order by m.keeper, m.seq limit $5::int8";

/*
 * inbox_message_pkey from the last id on, until the page is full or so many rows were looked at; where that was, by a second walk over
 * the same rows. Reads.
 */
const char sql_KEPT_LIST[] =
	"with f as materialized (select m.id, m.tenant, m.channel, m.kind, m.order_key, m.seq, m.keeper, m.source, m.created_at, "
	"m.unmatched_at, octet_length(m.body)::int8 from (select * from sutra.inbox_message c where c.id > $3::uuid "
	"order by c.id limit $4::int8) m where ($1::text is null or m.tenant = $1::text) "
	"and ($2::text is null or m.channel = $2::text) order by m.id limit $5::int8) "
	"select * from f union all (select c.id, null, null, null, null, null, null, null, null, null, null from sutra.inbox_message c "
	"where c.id > $3::uuid and (select count(*) from f) < $5::int8 order by c.id offset $4::int8 - 1 limit 1)";

/* inbox_message_keeper: the places that have something, by a jump each; then of each so many rows. Reads. */
const char sql_KEPT_COUNTS[] =
	"with recursive k as ("
	"(select m.place from sutra.inbox_message m order by m.place limit 1) "
	"union all select (select m.place from sutra.inbox_message m where m.place > k.place order by m.place limit 1) from k "
	"where k.place is not null) "
	"select c.tenant, c.channel, c.rows, c.oldest from k, lateral (select min(m.tenant) as tenant, min(m.channel) as channel, "
	"count(*) as rows, min(m.created_at) as oldest from (select e.tenant, e.channel, e.created_at from sutra.inbox_message e "
	"where e.place = k.place order by e.place, e.keeper, e.seq limit $1::int8) m) c "
	"where k.place is not null order by c.tenant, c.channel";

/* lease_pkey from the prefix on: a few rows. Deletes. */
const char sql_LEASE_PURGE[] =
	"delete from sutra.lease where role >= $1::text and starts_with(role, $1::text) "
	"and expires_at < now() - $2::int8 * interval '1 ms'";
