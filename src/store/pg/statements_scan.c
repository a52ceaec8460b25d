/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of every statement beside the path: outbox, leases, sweeps, deployments and lists. See statements.c for the
 * shapes and the reasons for them.
 *
 * Scans run as sutra_scan, which sees the rows of all tenants but only the columns that tell where they are and when they are
 * due; pages of a sweep go along the primary key. Where a key is given, "unclaimed" is written with coalesce, so that the partial
 * index of unclaimed rows does not offer itself: it would be read for the tenant, not for the key.
 */
#include "store/pg/sql.h"

/* The columns that OUTBOX_LOAD answers. */
#define LOADED \
	"o.tenant, o.instance_id, o.channel, o.version, o.ordinal, o.id, o.deployment_id, o.connection, o.destination, " \
	"o.correlation, o.record_key, o.headers, o.content_type, o.body, o.required, o.attempt_count, o.created_at, o.call_key"
#define OUTBOX_KEYS \
	"unnest($1::text[], $2::uuid[], $3::text[], $4::int8[], $5::int8[]) as u(tenant, instance_id, channel, version, ordinal)"
/* Finds the row of `u`, if it is stamped by the owner, $6. */
#define OUTBOX_OWN(lock) \
	"lateral (select e.ctid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel " \
	"and e.version = u.version and e.ordinal = u.ordinal and e.tenant = u.tenant and e.claim_owner = $6::text " lock ") d "
/* Whether `row` is the first of its group. No `not exists`, which may become a join that reads the whole index for each row. */
#define OUTBOX_FIRST(row) \
	"(select f.ordinal from sutra.outbox_entry f where f.instance_id = " row ".instance_id and f.channel = " row ".channel " \
	"and (f.version, f.ordinal) < (" row ".version, " row ".ordinal) and not f.poisoned limit 1) is null"

/* --- outbox --- */

/*
 * outbox_entry_due: the tenants that have something unclaimed, by a jump each; then of each tenant its oldest due heads, with one
 * probe of outbox_entry_pkey a row for "head". What stands behind another of its group is not in the index, where that was known; for
 * while a broker is away most rows do. Few tenants may fill the page; many get the share of each and a little more. Stamps them,
 * skipping what is locked.
 */
const char sql_OUTBOX_SCAN[] =
	"with recursive t as ("
	"(select tenant from sutra.outbox_entry where claim_owner is null and not poisoned and not behind and pool is null "
	"order by tenant limit 1) "
	"union all select (select o.tenant from sutra.outbox_entry o where o.claim_owner is null and not o.poisoned and not o.behind "
	"and o.pool is null and o.tenant > t.tenant order by o.tenant limit 1) from t where t.tenant is not null), "
	"share as materialized (select least($2::int8, 4 * $2::int8 / greatest(count(*), 1) + 1) as rows from t), "
	"heads as materialized (select h.*, row_number() over (partition by h.tenant order by h.next_attempt_at) as round "
	"from t, lateral (select o.tenant, o.instance_id, o.channel, o.version, o.ordinal, o.next_attempt_at "
	"from sutra.outbox_entry o where o.tenant = t.tenant and o.claim_owner is null and not o.poisoned and not o.behind and o.pool is null "
	"and o.next_attempt_at <= now() and " OUTBOX_FIRST("o") " "
	"order by o.next_attempt_at limit (select rows from share)) h where t.tenant is not null), "
	"page as materialized (select * from heads order by round, next_attempt_at, instance_id, channel limit $2::int8), "
	"l as materialized (select d.tid from (select * from page order by instance_id, channel offset 0) u, "
	"lateral (select e.ctid as tid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = u.version and e.ordinal = u.ordinal and coalesce(e.claim_owner, '') = '' and not e.poisoned "
	"and coalesce(e.pool, '') = '' and e.next_attempt_at <= now() for no key update skip locked) d) "
	"update sutra.outbox_entry o set claimed_at = now(), claim_owner = $1::text from l "
	"where o.ctid = l.tid and o.claim_owner is null "
	"returning o.tenant, o.instance_id, o.channel, o.version, o.ordinal";

/*
 * A page of outbox_entry_pkey. Clears stamps that are older than the timeout, skipping what is locked; counts, since it reads; and sets
 * right which unclaimed rows stand behind others of their group: those of which the page lets it seem otherwise, by a probe each.
 */
const char sql_OUTBOX_SWEEP[] =
	"with p as materialized (select instance_id, channel, version, ordinal, poisoned, claim_owner, created_at, "
	"claim_owner is not null and claimed_at < now() - $6::int8 * interval '1 ms' as stale, "
	"claim_owner is null and not poisoned and behind <> (count(*) filter (where not poisoned) over g > 0) as odd "
	"from (select instance_id, channel, version, ordinal, poisoned, behind, claim_owner, claimed_at, created_at "
	"from sutra.outbox_entry where (instance_id, channel, version, ordinal) > ($1::uuid, coalesce($2::text, ''), $3::int8, $4::int8) "
	"order by instance_id, channel, version, ordinal limit $5::int8) e "
	"window g as (partition by instance_id, channel order by version, ordinal rows between unbounded preceding and 1 preceding)), "
	"l as materialized (select d.tid from (select * from p where stale offset 0) u, "
	"lateral (select e.ctid as tid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = u.version and e.ordinal = u.ordinal and e.claimed_at < now() - $6::int8 * interval '1 ms' "
	"for no key update skip locked) d), "
	"w as (update sutra.outbox_entry o set claimed_at = null, claim_owner = null from l where o.ctid = l.tid returning 1), "
	"b as materialized (select d.tid, d.first from (select * from p where odd offset 0) u, "
	"lateral (select e.ctid as tid, e.behind, " OUTBOX_FIRST("e") " as first from sutra.outbox_entry e "
	"where e.instance_id = u.instance_id and e.channel = u.channel and e.version = u.version and e.ordinal = u.ordinal "
	"and coalesce(e.claim_owner, '') = '' and not e.poisoned for no key update skip locked) d where d.behind = d.first), "
	"m as (update sutra.outbox_entry o set behind = not b.first from b where o.ctid = b.tid and o.claim_owner is null) "
	"select c.seen, (select count(*) from w), c.waiting, c.claimed, c.poisoned, c.oldest, z.instance_id, z.channel, z.version, "
	"z.ordinal from (select count(*) as seen, count(*) filter (where not poisoned and claim_owner is null) as waiting, "
	"count(*) filter (where not poisoned and claim_owner is not null) as claimed, count(*) filter (where poisoned) as poisoned, "
	"min(created_at) filter (where not poisoned) as oldest from p) c "
	"left join (select * from p order by instance_id desc, channel desc, version desc, ordinal desc limit 1) z on true";

/* outbox_entry_pkey, one probe a row. Reads. */
const char sql_OUTBOX_LOAD[] =
	"select " LOADED " from " OUTBOX_KEYS ", "
	"lateral (select e.* from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = u.version and e.ordinal = u.ordinal and e.tenant = u.tenant and e.claim_owner = $6::text offset 0) o";

/* outbox_entry_pkey, one probe a row. Deletes rows stamped by the owner. */
const char sql_OUTBOX_DELETE[] =
	"delete from sutra.outbox_entry o using " OUTBOX_KEYS ", " OUTBOX_OWN("offset 0")
	"where o.ctid = d.ctid and o.claim_owner = $6::text";

/*
 * outbox_entry_pkey: the head of each group by its first two columns, then its lock. The head is found before the lock is
 * taken, for skipping a locked one would give the second row of the group. Stamps due, unclaimed heads.
 */
const char sql_OUTBOX_CLAIM_NEXT[] =
	"update sutra.outbox_entry o set claimed_at = now(), claim_owner = $4::text, behind = false "
	"from unnest($1::text[], $2::uuid[], $3::text[]) as u(tenant, instance_id, channel), "
	"lateral (select e.version, e.ordinal from sutra.outbox_entry e where e.instance_id = u.instance_id "
	"and e.channel = u.channel and not e.poisoned order by e.instance_id, e.channel, e.version, e.ordinal limit 1) h, "
	"lateral (select e.ctid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = h.version and e.ordinal = h.ordinal and e.tenant = u.tenant and coalesce(e.claim_owner, '') = '' "
	"and coalesce(e.pool, '') = '' and not e.poisoned and e.next_attempt_at <= now() for no key update skip locked) l "
	"where o.ctid = l.ctid and o.claim_owner is null returning " LOADED;

/* outbox_entry_pkey: the head of each group by its first two columns, then its lock. Touches heads that nobody has. */
const char sql_OUTBOX_FREE_NEXT[] =
	"update sutra.outbox_entry o set behind = false from unnest($1::text[], $2::uuid[], $3::text[]) as u(tenant, instance_id, channel), "
	"lateral (select e.version, e.ordinal from sutra.outbox_entry e where e.instance_id = u.instance_id "
	"and e.channel = u.channel and not e.poisoned order by e.instance_id, e.channel, e.version, e.ordinal limit 1) h, "
	"lateral (select e.ctid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = h.version and e.ordinal = h.ordinal and e.tenant = u.tenant and e.behind for no key update skip locked) l "
	"where o.ctid = l.ctid";

/* outbox_entry_pkey, one probe a row. Touches rows stamped by the owner, the last parameter. */
const char sql_OUTBOX_FAIL[] =
	"update sutra.outbox_entry o set attempt_count = u.attempt_count, "
	"next_attempt_at = now() + u.delay_ms * interval '1 ms', last_diagnostic_json = u.diagnostic, poisoned = u.poisoned, "
	"claimed_at = case when u.keep_claim then o.claimed_at end, claim_owner = case when u.keep_claim then o.claim_owner end "
	"from unnest($1::text[], $2::uuid[], $3::text[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::text[], $9::bool[], "
	"$10::bool[]) as u(tenant, instance_id, channel, version, ordinal, attempt_count, delay_ms, diagnostic, poisoned, keep_claim), "
	"lateral (select e.ctid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = u.version and e.ordinal = u.ordinal and e.tenant = u.tenant and e.claim_owner = $11::text "
	"for no key update) d "
	"where o.ctid = d.ctid and o.claim_owner = $11::text";

/* outbox_entry_pkey, one probe a row. Touches rows stamped by the owner. HOT. */
const char sql_OUTBOX_RENEW[] =
	"update sutra.outbox_entry o set claimed_at = now() from " OUTBOX_KEYS ", " OUTBOX_OWN("for no key update skip locked")
	"where o.ctid = d.ctid and o.claim_owner = $6::text returning o.instance_id, o.channel, o.version, o.ordinal";

/* outbox_entry_pkey, one probe a row. Touches rows stamped by the owner. */
const char sql_OUTBOX_RELEASE[] =
	"update sutra.outbox_entry o set claimed_at = null, claim_owner = null from " OUTBOX_KEYS ", "
	OUTBOX_OWN("for no key update") "where o.ctid = d.ctid and o.claim_owner = $6::text";

/* --- leases --- */

/* lease_pkey. Touches the row of the role. */
const char sql_LEASE_ACQUIRE[] =
	"with w as (insert into sutra.lease as l (role, holder, term, expires_at) "
	"values ($1::text, $2::text, 1, now() + $3::int8 * interval '1 ms') "
	"on conflict (role) do update set holder = excluded.holder, expires_at = excluded.expires_at, "
	"term = case when l.holder = excluded.holder then l.term else l.term + 1 end "
	"where l.holder is null or l.holder = excluded.holder or l.expires_at < now() returning term, holder) "
	"select w.term is not null, coalesce(w.term, l.term, 0), coalesce(w.holder, l.holder) "
	"from (select) one left join w on true left join sutra.lease l on l.role = $1::text";

/* lease_pkey. Touches the row of the role. */
const char sql_LEASE_RELEASE[] = "update sutra.lease set holder = null where role = $1::text and holder = $2::text";

/* lease_pkey, whole: a few rows. Reads. */
const char sql_LEASE_LIST[] = "select role, holder, term, expires_at from sutra.lease where holder is not null order by role";

/* --- sweeps --- */

/* A page of instance_pkey. Clears claims that are older than the timeout, skipping what is locked. HOT. */
const char sql_CLAIM_SWEEP[] =
	"with p as materialized (select id, claim_owner is not null and claim_at < now() - $3::int8 * interval '1 ms' as stale "
	"from sutra.instance where id > $1::uuid order by id limit $2::int8), "
	"l as materialized (select d.tid from (select id from p where stale offset 0) u, "
	"lateral (select c.ctid as tid from sutra.instance c where c.id = u.id and c.claim_at < now() - $3::int8 * interval '1 ms' "
	"for no key update skip locked) d), "
	"w as (update sutra.instance i set claim_at = null, claim_owner = null from l where i.ctid = l.tid returning 1) "
	"select (select count(*) from p), (select count(*) from w), (select id from p order by id desc limit 1)";

/* A page of instance_pkey. Reads. */
const char sql_INSTANCE_EXPIRED[] =
	"with p as materialized (select tenant, id, ended_at, deployment_id, status in ('COMPLETED', 'TERMINATED') as over "
	"from sutra.instance where id > $1::uuid order by id limit $2::int8) "
	"select r.tenant, r.id, r.ended_at, r.deployment_id from (select 0 as part, tenant, id, ended_at, null as deployment_id from p "
	"where over and ended_at < now() - $3::int8 * interval '1 ms' "
	"union all (select distinct 1, null::text, null::uuid, null::timestamptz, deployment_id from p where not over) union all "
	"select 2, null, case when (select count(*) from p) >= $2::int8 then (select id from p order by id desc limit 1) end, null, null) r "
	"order by r.part, r.id, r.deployment_id";

/* instance_pkey, one probe a row; of each channel_session_pkey and capacity_slot_pkey. Deletes finished instances and what is left of them. */
const char sql_INSTANCE_DELETE[] =
	"with w as (delete from sutra.instance i using unnest($1::text[], $2::uuid[]) as u(tenant, id), "
	"lateral (select c.ctid from sutra.instance c where c.id = u.id and c.tenant = u.tenant offset 0) d "
	"where i.ctid = d.ctid and i.status in ('COMPLETED', 'TERMINATED') returning i.tenant, i.id), "
	"s as (delete from sutra.channel_session o using w, lateral (select c.ctid as tid from sutra.channel_session c "
	"where c.instance_id = w.id and c.tenant = w.tenant offset 0) d where o.ctid = d.tid) "
	"delete from sutra.capacity_slot o using w, lateral (select c.ctid as tid from sutra.capacity_slot c "
	"where c.instance_id = w.id and c.tenant = w.tenant offset 0) d where o.ctid = d.tid";

/* inbox_age, from its oldest entry on. Deletes at most so many old rows. */
const char sql_INBOX_PURGE[] =
	"with w as (delete from sutra.inbox i where i.ctid = any (array(select c.ctid from sutra.inbox c "
	"where c.created_at < now() - $2::int8 * interval '1 ms' order by c.created_at limit $1::int8)) "
	"returning 1) select count(*) from w";

/* dead_letter_age, from its oldest entry on. Deletes at most so many old rows. */
const char sql_DEAD_LETTER_PURGE[] =
	"with w as (delete from sutra.dead_letter d where d.ctid = any (array(select c.ctid from sutra.dead_letter c "
	"where c.created_at < now() - $2::int8 * interval '1 ms' order by c.created_at limit $1::int8)) "
	"returning 1) select count(*) from w";

/* --- deployments --- */

/* deployment_pkey. Touches that row. */
const char sql_DEPLOYMENT_PUT[] =
	"insert into sutra.deployment as d (id, tenant, module, version, phase, archive, pinned) "
	"values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bytea, $5::text not in ('Failed', 'Retired')) "
	"on conflict (id) do update set phase = excluded.phase, "
	"pinned = case when excluded.phase = 'Failed' then d.pinned else excluded.pinned end";

/* deployment_pkey, whole: some rows. Reads. */
const char sql_DEPLOYMENT_LIST[] = "select id, tenant, module, version, phase, created_at, pinned from sutra.deployment order by id";

/* deployment_pkey. Reads. */
const char sql_DEPLOYMENT_ARCHIVE[] = "select archive from sutra.deployment where id = $1::text";

/* deployment_pkey, one probe a deployment. Touches those about which something else is known now. */
const char sql_DEPLOYMENT_PINS[] =
	"with w as (update sutra.deployment d set pinned = u.pinned, phase = case when not u.pinned and d.phase = 'Draining' "
	"then 'Retired' when u.pinned and d.phase = 'Retired' then 'Draining' else d.phase end "
	"from unnest($1::text[], $2::bool[]) as u(id, pinned), "
	"lateral (select c.ctid, c.phase from sutra.deployment c where c.id = u.id for no key update) l "
	"where d.ctid = l.ctid and (d.pinned <> u.pinned or d.phase = case when u.pinned then 'Retired' else 'Draining' end) "
	"returning d.id, d.phase, l.phase as before) select w.id, w.phase from w where w.phase <> w.before order by w.id";

/* A page of outbox_entry_pkey. Reads. */
const char sql_OUTBOX_PINS[] =
	"with p as materialized (select instance_id, channel, version, ordinal, deployment_id, poisoned from sutra.outbox_entry "
	"where (instance_id, channel, version, ordinal) > ($1::uuid, coalesce($2::text, ''), $3::int8, $4::int8) "
	"order by instance_id, channel, version, ordinal limit $5::int8) "
	"select r.deployment_id, r.instance_id, r.channel, r.version, r.ordinal from ("
	"(select distinct 0 as part, p.deployment_id, null::uuid as instance_id, null::text as channel, null::int8 as version, "
	"null::int8 as ordinal from p where not p.poisoned and p.deployment_id is not null) union all "
	"select 1, null, z.instance_id, z.channel, z.version, z.ordinal from (select) one left join (select * from p "
	"where (select count(*) from p) >= $5::int8 "
	"order by instance_id desc, channel desc, version desc, ordinal desc limit 1) z on true) r order by r.part, r.deployment_id";

/* --- lists --- */

#define LISTED \
	"i.id, i.tenant, i.deployment_id, i.process, sutra.status_number(i.status), i.version, i.started_at, i.ended_at, i.code, " \
	"i.detail, i.claim_owner, i.claim_at"

/*
 * instance_pkey from the last id on, until the page is full or so many rows were looked at; where that was, by a second walk over the
 * same rows. Reads.
 */
const char sql_INSTANCE_LIST[] =
	"with f as materialized (select " LISTED " from (select * from sutra.instance c where c.id > $4::uuid "
	"order by c.id limit $5::int8) i where case when $1::int8 >= 0 then i.status = sutra.status_text($1::int8) "
	"else $2::bool or i.status not in ('COMPLETED', 'TERMINATED') end "
	"and ($3::text is null or i.deployment_id = $3::text) order by i.id limit $6::int8) "
	"select * from f union all (select c.id, null, null, null, null, null, null, null, null, null, null, null from sutra.instance c "
	"where c.id > $4::uuid and (select count(*) from f) < $6::int8 order by c.id offset $5::int8 - 1 limit 1)";

/* alias_pkey by its first column, one probe a key. Reads. */
const char sql_ALIAS_PROBE[] =
	"select a.instance_id from unnest($1::text[], $2::uuid[]) as u(tenant, key), "
	"lateral (select c.instance_id from sutra.alias c where c.key = u.key and c.tenant = u.tenant offset 0) a";

/* instance_pkey. Reads. */
const char sql_INSTANCE_GET[] = "select " LISTED ", i.snapshot from sutra.instance i where i.id = $1::uuid";

/*
 * outbox_entry_pkey from the last key on. The comparison of rows is not trusted with what the policy hides, so it is no condition
 * of the index; that of the first column is. Reads.
 */
const char sql_OUTBOX_LIST[] =
	"select id, tenant, instance_id, channel, version, ordinal, attempt_count, created_at, next_attempt_at, claimed_at, "
	"claim_owner, poisoned, last_diagnostic_json from sutra.outbox_entry "
	"where instance_id >= $1::uuid and (instance_id, channel, version, ordinal) > ($1::uuid, coalesce($2::text, ''), $3::int8, $4::int8) "
	"order by instance_id, channel, version, ordinal limit $5::int8";

/*
 * outbox_entry_idle; a row that somebody has claimed is not in it, for it would cost every send, and is looked for at the beginning of
 * outbox_entry_pkey. Touches the row unless it is claimed. It comes back as the head of its group, which the scan then finds.
 */
const char sql_OUTBOX_REARM[] =
	"with t as materialized (select e.ctid as tid, e.instance_id, e.channel, e.attempt_count, e.poisoned, e.claim_owner "
	"from sutra.outbox_entry e where e.id = $1::uuid and length(coalesce(e.claim_owner, '')) = 0 for no key update), "
	"w as (update sutra.outbox_entry e set poisoned = false, behind = false, next_attempt_at = now(), "
	"attempt_count = case when e.poisoned then 0 else e.attempt_count end "
	"from t where e.ctid = t.tid and t.claim_owner is null) "
	"select t.instance_id, t.channel, t.attempt_count, t.poisoned, t.claim_owner from t union all "
	"select c.instance_id, c.channel, c.attempt_count, c.poisoned, c.claim_owner from (select * from sutra.outbox_entry e "
	"where e.instance_id > '00000000-0000-0000-0000-000000000000' and (select count(*) from t) = 0 "
	"order by e.instance_id, e.channel, e.version, e.ordinal limit $2::int8) c "
	"where c.id = $1::uuid and c.claim_owner is not null";

#define LETTER \
	"id, tenant, channel, event_id, source, message_type, code, detail, instance_id, content_type, created_at"

/* dead_letter_pkey from the last id on. Reads. */
const char sql_DEAD_LETTER_LIST[] =
	"select " LETTER " from sutra.dead_letter where id > $1::uuid order by id limit $2::int8";

/* dead_letter_pkey. Reads. */
const char sql_DEAD_LETTER_GET[] =
	"select " LETTER ", record_key, headers, payload, replays from sutra.dead_letter where id = $1::uuid";

/*
 * dead_letter_pkey, inbox_message_pkey. Touches the dead letter, so that of two at once one finds the other's count, and inserts.
 */
const char sql_DEAD_LETTER_REPLAY[] =
	"with d as (update sutra.dead_letter d set replays = $2::int8 + 1 where d.id = $1::uuid and d.replays = $2::int8 "
	"and not exists (select from sutra.inbox_message m where m.id = $3::uuid and m.tenant = d.tenant) "
	"returning d.tenant, d.channel, d.payload) "
	"insert into sutra.inbox_message (tenant, id, order_key, channel, kind, source, envelope, body, created_at) "
	"select d.tenant, $4::uuid, $4::uuid, d.channel, 'replay', $5::text, $6::bytea, d.payload, now() from d returning id";
