/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of capacity pools beside the path: their settings, the pump that gives slots to rows of the outbox, lists, sweeps and checks.
 * See statements_sessions.c for the protocol and statements.c for the shapes.
 *
 * The pump is three statements of one segment: it locks the pool's row, then looks and takes, then tells whether it should come again. It waits
 * for nothing but that row. A session that somebody has locked is about to change and is passed over with its rows, and so is a row; but
 * each keeps the slot that it would have had, else a younger row would overtake it.
 */
#include "store/pg/sql.h"

#define HELD(pool) \
	"lateral (select count(*) as held, count(*) filter (where c.direction = 'INBOUND') as inbound, " \
	"count(*) filter (where c.direction = 'OUTBOUND') as outbound from sutra.capacity_slot c where c.pool = " pool ") h "
/* How many slots of pool `$1` an outbound call may still take. */
#define FREE_OUTBOUND \
	"(select p.slots - h.held - greatest(0, p.reserve_inbound - h.inbound) from sutra.capacity_pool p, " HELD("p.name") "where p.name = $1::text)"
#define WAITS(row) row ".claim_owner is null and not " row ".poisoned and not " row ".behind "
/* Whether `row` is the first of its group; see statements_scan.c. */
#define OUTBOX_FIRST(row) \
	"(select f.ordinal from sutra.outbox_entry f where f.instance_id = " row ".instance_id and f.channel = " row ".channel " \
	"and (f.version, f.ordinal) < (" row ".version, " row ".ordinal) and not f.poisoned limit 1) is null"

/* capacity_pool_pkey. Touches that row. */
const char sql_POOL_PUT[] =
	"with b as materialized (select slots, reserve_inbound, reserve_outbound, tenants from sutra.capacity_pool where name = $1::text), "
	"w as (insert into sutra.capacity_pool as p (name, slots, reserve_inbound, reserve_outbound, tenants, updated_at) "
	"values ($1::text, $2::int8, $3::int8, $4::int8, $5::text, now()) "
	"on conflict (name) do update set slots = excluded.slots, reserve_inbound = excluded.reserve_inbound, "
	"reserve_outbound = excluded.reserve_outbound, tenants = excluded.tenants, updated_at = now() "
	"where (p.slots, p.reserve_inbound, p.reserve_outbound) <> (excluded.slots, excluded.reserve_inbound, excluded.reserve_outbound) "
	"or p.tenants is distinct from excluded.tenants) "
	"select slots, reserve_inbound, reserve_outbound, tenants from b";

/* outbox_entry_pool, one probe a pool. Reads. */
const char sql_POOL_WAITING[] =
	"select u.pool from unnest($1::text[]) as u(pool), "
	"lateral (select from sutra.outbox_entry o where o.pool = u.pool and " WAITS("o") "limit 1) w";

/* capacity_pool_pkey. Locks that row. */
const char sql_POOL_LOCK_ONE[] = "select p.slots from sutra.capacity_pool p where p.name = $1::text for no key update";

/*
 * capacity_slot_held for what is free; of outbox_entry_pool the oldest heads, as many as can have a slot, with a probe of
 * outbox_entry_pkey each for "head"; channel_session_pkey and outbox_entry_pkey for their locks, skipping what is locked; outbox_entry_call
 * for other rows of the same calls, which have their slot now too. A row whose session is gone goes without.
 *
 * That a call has ended needs no look at its own row: who ended it held the session's row until its commit, and had made the call's waiting
 * rows need no slot, which the lock of the row shows. Slots are taken for what was updated in fact.
 */
const char sql_POOL_SCAN[] =
	"with heads as materialized (select o.tenant, o.instance_id, o.channel, o.version, o.ordinal, o.call_key "
	"from sutra.outbox_entry o where o.pool = $1::text and " WAITS("o") "and o.next_attempt_at <= now() and " OUTBOX_FIRST("o") " "
	"order by o.created_at, o.id limit least($3::int8, greatest(0, " FREE_OUTBOUND "))), "
	"l as materialized (select u.tenant, u.instance_id, u.call_key, d.tid, s.lives "
	"from (select * from heads order by instance_id, channel, version, ordinal offset 0) u, "
	"lateral (select s.ended_at is null as lives from sutra.channel_session s where s.instance_id = u.instance_id and s.call_key = '' "
	"for no key update skip locked) s, "
	"lateral (select e.ctid as tid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = u.version and e.ordinal = u.ordinal and e.pool = $1::text and coalesce(e.claim_owner, '') = '' and not e.poisoned "
	"for no key update skip locked) d), "
	"w as (update sutra.outbox_entry o set claimed_at = now(), claim_owner = $2::text, pool = null, last_diagnostic_json = null from l "
	"where o.ctid = l.tid and o.pool is not null "
	"returning o.tenant, o.instance_id, o.channel, o.version, o.ordinal, o.call_key, l.lives), "
	"t as (insert into sutra.capacity_slot (instance_id, pool, call_key, direction, tenant, created_at) "
	"select w.instance_id, $1::text, w.call_key, 'OUTBOUND', w.tenant, now() from w where w.lives "
	"on conflict (instance_id, pool, call_key) do nothing), "
	"m as (update sutra.outbox_entry o set pool = null, last_diagnostic_json = null from (select distinct instance_id, call_key from w) c, "
	"lateral (select e.ctid as tid from sutra.outbox_entry e where e.instance_id = c.instance_id and e.call_key = c.call_key "
	"and coalesce(e.pool, '') <> '' and e.pool = $1::text and e.ctid not in (select l.tid from l) for no key update skip locked) d "
	"where o.ctid = d.tid and o.pool = $1::text) "
	"select w.tenant, w.instance_id, w.channel, w.version, w.ordinal from w";

/* capacity_slot_held, outbox_entry_pool, and outbox_entry_pkey for "head". Reads. */
const char sql_POOL_MORE[] =
	"select " FREE_OUTBOUND " > 0 and (select o.ordinal from sutra.outbox_entry o where o.pool = $1::text and " WAITS("o")
	"and o.next_attempt_at <= now() and " OUTBOX_FIRST("o") " order by o.created_at, o.id limit 1) is not null";

/* --- lists --- */

/* capacity_pool_pkey, whole: some rows; of each capacity_slot_held and the beginning of its part of outbox_entry_pool. Reads. */
const char sql_POOL_LIST[] =
	"select p.name, p.slots, p.reserve_inbound, p.reserve_outbound, p.tenants, h.inbound, h.outbound, w.rows, w.oldest, p.updated_at "
	"from (select * from sutra.capacity_pool order by name offset 0) p, " HELD("p.name") ", "
	"lateral (select count(*) as rows, min(r.created_at) as oldest from (select o.created_at from sutra.outbox_entry o "
	"where o.pool = p.name and " WAITS("o") "order by o.created_at, o.id limit $1::int8) r) w order by p.name";

/* capacity_slot_held from the last key on. Reads. */
const char sql_SLOT_LIST[] =
	"select direction, instance_id, call_key, tenant, created_at from sutra.capacity_slot where pool = $1::text "
	"and (direction, (instance_id::text || call_key) collate \"C\") > (coalesce($2::text, ''), $3::uuid::text || coalesce($4::text, '')) "
	"order by pool, direction, (instance_id::text || call_key) collate \"C\" limit $5::int8";

/* --- sweeps --- */

/*
 * Whether the session of `row` is open, and whether its call has ended: channel_session_pkey. Scalar questions, for an `exists` among others
 * may be answered by reading the whole index once.
 */
#define SESSION_IS_OPEN(row) \
	"((select s.ended_at is null from sutra.channel_session s where s.instance_id = " row ".instance_id and s.call_key = '') is true)"
#define CALL_IS_OVER(row) \
	"((select s.ended_at is not null from sutra.channel_session s where s.instance_id = " row ".instance_id " \
	"and s.call_key = " row ".call_key) is true)"
/* Of an instance that is gone, has ended or FAILED: instance_pkey. */
#define INSTANCE_IS_OVER(row) \
	"((select i.status in ('COMPLETED', 'TERMINATED', 'FAILED') from sutra.instance i where i.id = " row ".instance_id) is not false)"
/* A slot that nothing justifies; a row that waits although it needs no slot. */
#define SLOT_IS_STRAY(row) "(" INSTANCE_IS_OVER(row) " or not " SESSION_IS_OPEN(row) " or " CALL_IS_OVER(row) ")"
#define WAIT_IS_IDLE(row) \
	"(not " SESSION_IS_OPEN(row) " or " CALL_IS_OVER(row) " or (select c.direction from sutra.capacity_slot c " \
	"where c.instance_id = " row ".instance_id and c.pool || '' = " row ".pool and c.call_key = " row ".call_key) is not null)"

/* A page of capacity_slot_pkey, with probes for each; deletes by its key's own row, skipping what is locked. */
const char sql_SLOT_SWEEP[] =
	"with p as materialized (select ctid as tid, instance_id, pool, call_key from sutra.capacity_slot "
	"where (instance_id, pool, call_key) > ($1::uuid, coalesce($2::text, ''), coalesce($3::text, '')) "
	"order by instance_id, pool, call_key limit $4::int8), "
	"w as (delete from sutra.capacity_slot c using p where c.ctid = p.tid and " SLOT_IS_STRAY("p") " returning 1) "
	"select (select count(*) from p), (select count(*) from w), z.instance_id, z.pool, z.call_key from (select) one "
	"left join (select * from p order by instance_id desc, pool desc, call_key desc limit 1) z on true";

/* A page of outbox_entry_call, with probes for each. Touches waiting rows that need no slot, skipping what is locked. */
const char sql_POOL_SWEEP[] =
	"with p as materialized (select instance_id, channel, version, ordinal, pool, call_key from sutra.outbox_entry "
	"where coalesce(pool, '') <> '' and (instance_id, call_key) > ($1::uuid, coalesce($2::text, '')) "
	"order by instance_id, call_key fetch first ($3::int8) rows with ties), "
	"w as (update sutra.outbox_entry o set pool = null, last_diagnostic_json = null from (select * from p where " WAIT_IS_IDLE("p")
	" offset 0) u, lateral (select e.ctid as tid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = u.version and e.ordinal = u.ordinal and coalesce(e.pool, '') = u.pool for no key update skip locked) d "
	"where o.ctid = d.tid and o.pool is not null returning 1) "
	"select (select count(*) from p), (select count(*) from w), z.instance_id, z.call_key from (select) one "
	"left join (select * from p order by instance_id desc, call_key desc limit 1) z on true";

/*
 * Pages of capacity_slot_pkey, channel_session_pkey and outbox_entry_call, all rows of an instance together, with probes for each; what lies
 * behind the shortest of them is left to the next. Of each pool capacity_slot_held. Reads.
 */
#define CHECK_PAGE(columns, table) \
	"(select " columns " from " table " and instance_id > $1::uuid order by instance_id fetch first ($2::int8) rows with ties)"
#define CHECK_LAST(page) \
	"(select instance_id from " page " where (select count(*) from " page ") >= $2::int8 order by instance_id desc limit 1)"
const char sql_POOL_CHECK[] =
	"with slots as materialized " CHECK_PAGE("instance_id, pool, call_key", "sutra.capacity_slot where true") ", "
	"sessions as materialized " CHECK_PAGE("instance_id, call_key, ended_at", "sutra.channel_session where true") ", "
	"waits as materialized " CHECK_PAGE("instance_id, pool, call_key", "sutra.outbox_entry where coalesce(pool, '') <> ''") ", "
	"z as materialized (select l.instance_id from (" CHECK_LAST("slots") " union all " CHECK_LAST("sessions") " union all "
	CHECK_LAST("waits") ") l order by l.instance_id limit 1), "
	"f as materialized (select 'slot' as what, pool, instance_id, call_key from slots where " SLOT_IS_STRAY("slots") " union all "
	"select 'session', null, instance_id, call_key from sessions where ended_at is null and call_key = '' "
	"and " INSTANCE_IS_OVER("sessions") " union all "
	"select 'row', pool, instance_id, call_key from waits where " WAIT_IS_IDLE("waits") ") "
	"select r.what, r.pool, r.instance_id, r.call_key from ("
	"select 0 as part, f.what, f.pool, f.instance_id, f.call_key from f where ((select instance_id from z) < f.instance_id) is not true union all "
	"select 1, 'pool', p.name, null, null from sutra.capacity_pool p, " HELD("p.name")
	"where $1::uuid = '00000000-0000-0000-0000-000000000000' and h.held > p.slots union all "
	"select 2, null, null, z.instance_id, null from (select) one left join z on true) r order by r.part, r.what, r.instance_id, r.call_key";

/* --- permits --- */

/* tenant_rate_pkey. Touches that row. */
const char sql_RATE_TAKE[] =
	"insert into sutra.tenant_rate as r (tenant, minute_at, used, granted) "
	"values ($1::text, date_trunc('minute', now()), least($2::int8, $3::int8), least($2::int8, $3::int8)) "
	"on conflict (tenant) do update set minute_at = excluded.minute_at, "
	"granted = least($3::int8, greatest(0, $2::int8 - case when r.minute_at >= excluded.minute_at then r.used else 0 end)), "
	"used = case when r.minute_at >= excluded.minute_at then r.used else 0 end "
	"+ least($3::int8, greatest(0, $2::int8 - case when r.minute_at >= excluded.minute_at then r.used else 0 end)) "
	"returning granted";
