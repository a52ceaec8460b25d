/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of sessions and of what a commit takes and gives back. See statements.c for the shapes and the reasons for them.
 *
 * A session's own row, with the empty call key, is a mutex: a commit locks it in a statement of its own, and what later statements read
 * of the session, of its waiting rows and of its slots, stands until the commit. The pump (statements_pools.c) skips sessions that are
 * locked. So a row is granted a slot before its call ends, and then the end finds the slot; or it is not. In the same way caps and
 * pools: who locked and counted in one statement would count what there was before the wait, and take more than there is.
 */
#include "store/pg/sql.h"

/* channel_session_pkey, one probe an instance. Locks the sessions' own rows, waiting. */
const char sql_SESSION_LOCK[] =
	"select from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, instance_id), "
	"lateral (select from sutra.channel_session s where s.instance_id = u.instance_id and s.call_key = '' and s.tenant = u.tenant "
	"for no key update) l";

/* channel_session_pkey. Inserts; a call that is open gets another token. */
const char sql_SESSION_INSERT[] =
	"insert into sutra.channel_session as s (tenant, instance_id, call_key, channel, inbound, counts, token) "
	"select u.tenant, u.instance_id, u.call_key, u.channel, u.inbound, u.counts, nullif(u.token, 0) "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::bool[], $7::bool[], $8::int8[]) "
	"as u(ord, tenant, instance_id, call_key, channel, inbound, counts, token) "
	"on conflict (instance_id, call_key) do update set token = excluded.token "
	"where s.ended_at is null and excluded.token is not null and s.tenant = excluded.tenant";

/*
 * channel_session_pkey for the session's own row and a call by its key, channel_session_open for the others; by ctid after that. Under
 * the lock of SESSION_LOCK nothing here changes meanwhile. Touches what is open. The count ends with the session and with the inbound call.
 */
#define SESSION_OPEN "c.instance_id = o.instance_id and c.tenant = o.tenant and c.ended_at is null "
const char sql_SESSION_END[] =
	"with o as materialized (select u.*, s.tid from unnest($1::int8[], $2::text[], $3::uuid[], $4::int8[], $5::text[], $6::int8[]) "
	"as u(ord, tenant, instance_id, what, call_key, token), "
	"lateral (select c.ctid as tid from sutra.channel_session c where c.instance_id = u.instance_id and c.call_key = '' "
	"and c.tenant = u.tenant and c.ended_at is null offset 0) s), "
	"k as materialized (select o.tid as own, s.tid, s.inbound from o, lateral (select c.ctid as tid, c.inbound "
	"from sutra.channel_session c where " SESSION_OPEN "and c.call_key = o.call_key and o.what = 1 and o.call_key <> '' offset 0) s "
	"union all select o.tid, s.tid, s.inbound from o, lateral (select c.ctid as tid, c.inbound from sutra.channel_session c "
	"where " SESSION_OPEN "and c.call_key <> '' and o.what in (2, 3) "
	"and case o.what when 2 then c.token = o.token and not c.inbound else c.inbound end offset 0) s), "
	"t as materialized (select r.tid, bool_or(r.ends) as ends from (select o.tid, true as ends from o where o.what = 4 union all "
	"select k.own, false from k where k.inbound union all select k.tid, true from k) r group by r.tid) "
	"update sutra.channel_session s set ended_at = case when t.ends then now() end, counts = false from t where s.ctid = t.tid";

/* outbox_entry_pkey. Inserts. */
const char sql_OUTBOX_INSERT_POOLED[] =
	"insert into sutra.outbox_entry (tenant, instance_id, channel, version, ordinal, id, deployment_id, connection, destination, "
	"correlation, record_key, headers, content_type, body, required, pool, call_key, last_diagnostic_json, behind, created_at, "
	"next_attempt_at) select u.*, (select true from sutra.outbox_entry e where e.instance_id = u.instance_id "
	"and e.channel = u.channel and (e.version, e.ordinal) < (u.version, u.ordinal) and not e.poisoned limit 1) is not null, now(), now() "
	"from (select tenant, instance_id, channel, version, ordinal, id, deployment_id, connection, destination, correlation, record_key, "
	"headers, content_type, body, required, pool, call_key, diagnostic "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::int8[], $6::int8[], $7::uuid[], $8::text[], $9::text[], "
	"$10::text[], $11::bytea[], $12::bytea[], $13::bytea[], $14::text[], $15::bytea[], $16::bool[], $17::text[], $18::text[], "
	"$19::text[]) as u(ord, tenant, instance_id, channel, version, ordinal, id, deployment_id, connection, destination, correlation, "
	"record_key, headers, content_type, body, required, pool, call_key, diagnostic)) u";

/* outbox_entry_call, one probe an instance. Locks its rows that wait for a slot, waiting. */
const char sql_OUTBOX_POOL_LOCK[] =
	"select from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, instance_id), "
	"lateral (select from sutra.outbox_entry e where e.instance_id = u.instance_id and e.tenant = u.tenant and coalesce(e.pool, '') <> '' "
	"for no key update) l";

/*
 * Whether the session of `row` has ended or is not there, or its call has ended. Scalar questions, for an `exists` among others may be
 * answered by reading the whole index once.
 */
#define CALL_IS_OVER(row) \
	"((select s.ended_at is null from sutra.channel_session s where s.instance_id = " row ".instance_id and s.call_key = '' " \
	"and s.tenant = " row ".tenant) is not true or (select s.ended_at is not null from sutra.channel_session s " \
	"where s.instance_id = " row ".instance_id and s.call_key = " row ".call_key and s.tenant = " row ".tenant) is true)"

/*
 * outbox_entry_call, one probe an instance; for each row that waits channel_session_pkey and capacity_slot_pkey; the pool is compared so
 * that capacity_slot_held does not offer itself. Touches waiting rows that
 * need no slot: they become rows like any other.
 */
const char sql_OUTBOX_UNPOOL[] =
	"update sutra.outbox_entry o set pool = null, last_diagnostic_json = null "
	"from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, instance_id), "
	"lateral (select e.ctid as tid, e.instance_id, e.tenant, e.call_key, e.pool from sutra.outbox_entry e "
	"where e.instance_id = u.instance_id and e.tenant = u.tenant and coalesce(e.pool, '') <> '' offset 0) l "
	"where o.ctid = l.tid and (" CALL_IS_OVER("l") " or (select c.direction from sutra.capacity_slot c "
	"where c.instance_id = l.instance_id and c.pool || '' = l.pool and c.call_key = l.call_key) is not null) returning u.ord";

/* capacity_slot_pkey, one probe an instance; channel_session_pkey for each of its slots. Deletes those of what has ended. */
const char sql_SLOT_DELETE[] =
	"delete from sutra.capacity_slot o "
	"using unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, instance_id), "
	"lateral (select c.ctid as tid, c.instance_id, c.tenant, c.call_key from sutra.capacity_slot c "
	"where c.instance_id = u.instance_id and c.tenant = u.tenant offset 0) l "
	"where o.ctid = l.tid and " CALL_IS_OVER("l") " returning u.ord, o.pool";

/* --- caps and pools --- */

/* No table. */
const char sql_CAP_LOCK[] = "select pg_advisory_xact_lock(u.scope) from unnest($1::int8[]) as u(scope)";

/*
 * Of each scope what counts, own rows of the batch among it, but no more of it than decides; then the elements in their order, each with
 * what the earlier ones of its scope add. channel_session_count. Reads.
 */
#define CAP_GATE(reason) \
	"select sutra.gate(array(select distinct u.ord::int from u where u.ord not in (select w.ord from w) order by 1), '" reason "') " \
	"where (select count(*) from w) <> cardinality($1)"
const char sql_CAP_CHANNEL[] =
	"with u as materialized (select r.*, coalesce(sum(r.counts::int) over (partition by r.tenant, r.channel order by r.place "
	"rows between unbounded preceding and 1 preceding), 0) as before, "
	"sum(r.counts::int) over (partition by r.tenant, r.channel) as own, max(r.most) over (partition by r.tenant, r.channel) as largest "
	"from unnest($1::int8[], $2::text[], $3::text[], $4::int8[], $5::bool[]) with ordinality "
	"as r(ord, tenant, channel, most, counts, place)), "
	"g as materialized (select d.tenant, d.channel, (select count(*) from (select from sutra.channel_session s "
	"where s.tenant = d.tenant and s.channel = d.channel and s.counts limit d.largest + d.own) c) - d.own as held "
	"from (select distinct tenant, channel, largest, own from u) d), "
	"w as materialized (select u.ord from u, g where g.tenant = u.tenant and g.channel = u.channel and g.held + u.before < u.most) "
	CAP_GATE("channel_cap");
const char sql_CAP_TENANT[] =
	"with u as materialized (select r.*, coalesce(sum(r.counts::int) over (partition by r.tenant order by r.place "
	"rows between unbounded preceding and 1 preceding), 0) as before, "
	"sum(r.counts::int) over (partition by r.tenant) as own, max(r.most) over (partition by r.tenant) as largest "
	"from unnest($1::int8[], $2::text[], $3::int8[], $4::bool[]) with ordinality as r(ord, tenant, most, counts, place)), "
	"g as materialized (select d.tenant, (select count(*) from (select from sutra.channel_session s "
	"where s.tenant = d.tenant and s.counts limit d.largest + d.own) c) - d.own as held "
	"from (select distinct tenant, largest, own from u) d), "
	"w as materialized (select u.ord from u, g where g.tenant = u.tenant and g.held + u.before < u.most) "
	CAP_GATE("tenant_cap");

/* channel_session_count, one probe an element, and no more than decides. Reads. */
const char sql_CAP_PROBE[] =
	"select u.ord, (select count(*) from (select from sutra.channel_session s where s.tenant = u.tenant and s.counts "
	"and s.channel = u.channel limit u.most) c) from unnest($1::int8[], $2::text[], $3::text[], $4::int8[]) "
	"as u(ord, tenant, channel, most) where u.channel is not null union all "
	"select u.ord, (select count(*) from (select from sutra.channel_session s where s.tenant = u.tenant and s.counts limit u.most) c) "
	"from unnest($1::int8[], $2::text[], $3::text[], $4::int8[]) as u(ord, tenant, channel, most) where u.channel is null";

/* capacity_pool_pkey, one probe a pool. Locks those rows, waiting, in the order of their names. */
const char sql_POOL_LOCK[] =
	"select from unnest($1::text[]) as u(pool), "
	"lateral (select from sutra.capacity_pool p where p.name = u.pool for no key update) l";

/* What is held of a pool, by direction: capacity_slot_held. */
#define HELD(pool) \
	"lateral (select count(*) as held, count(*) filter (where c.direction = 'INBOUND') as inbound, " \
	"count(*) filter (where c.direction = 'OUTBOUND') as outbound from sutra.capacity_slot c where c.pool = " pool ") h "

/*
 * capacity_pool_pkey, capacity_slot_held: a pool each; then the elements in their order, each with what the earlier ones of its pool take.
 * Inserts.
 */
const char sql_SLOT_TAKE[] =
	"with u as materialized (select r.*, coalesce(sum(r.keeps::int) over (partition by r.pool order by r.place "
	"rows between unbounded preceding and 1 preceding), 0) as before "
	"from unnest($1::int8[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::bool[]) with ordinality "
	"as r(ord, tenant, pool, instance_id, call_key, keeps, place)), "
	"f as materialized (select p.name, p.slots - h.held - greatest(0, p.reserve_outbound - h.outbound) as free "
	"from (select distinct pool from u) d, lateral (select * from sutra.capacity_pool c where c.name = d.pool offset 0) p, "
	HELD("d.pool") "), "
	"w as materialized (select u.* from u, f where f.name = u.pool and u.before < f.free), "
	"i as (insert into sutra.capacity_slot (instance_id, pool, call_key, direction, tenant, created_at) "
	"select w.instance_id, w.pool, w.call_key, 'INBOUND', w.tenant, now() from w where w.keeps "
	"on conflict (instance_id, pool, call_key) do nothing) "
	CAP_GATE("pool");

/* capacity_pool_pkey, capacity_slot_held: a pool each. Reads. */
const char sql_POOL_PROBE[] =
	"with f as materialized (select p.name, p.slots, p.reserve_inbound, p.reserve_outbound, h.inbound, h.outbound "
	"from (select distinct pool from unnest($2::text[]) as u(pool)) d, "
	"lateral (select * from sutra.capacity_pool c where c.name = d.pool offset 0) p, " HELD("d.pool") ") "
	"select u.ord, f.slots, f.reserve_inbound, f.reserve_outbound, f.inbound, f.outbound "
	"from unnest($1::int8[], $2::text[]) as u(ord, pool), f where f.name = u.pool order by u.ord";

/* --- resolve --- */

/* alias_pkey by its first column, one probe a key; channel_session_pkey for each that is found. Reads. */
const char sql_SESSION_FIND[] =
	"select distinct u.ord, s.instance_id from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, key), "
	"lateral (select c.instance_id, c.tenant from sutra.alias c where c.key = u.key and c.tenant = u.tenant offset 0) a, "
	"lateral (select c.instance_id from sutra.channel_session c where c.instance_id = a.instance_id and c.call_key = '' "
	"and c.tenant = a.tenant and c.ended_at is null offset 0) s order by u.ord, s.instance_id";
