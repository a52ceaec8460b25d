/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of every statement on the path: claims, resolve, the committed step. The rest is in statements_scan.c. This is
 * SQL's only home: statements.def says what each means, the comment here which index it relies on and which rows it
 * may touch.
 *
 * The shapes are chosen so that no statistics can change the plan. Keys are reached from the parameters: `unnest(…) u, lateral
 * (select ctid … where key = u.key …)`, where the locking clause or `offset 0` keeps the sub-select inside; then the row by its
 * ctid and by nothing else: a join on the key as well gives the planner a way to read the whole index, in the order of that
 * key, which it takes when the table was just vacuumed empty.
 * Arrays come sorted, and unnest keeps their order, which is the order of locking. Locks of instances and claims skip
 * what is locked: one stuck row must not stop its neighbours.
 *
 * Conditions that decide are repeated on the row that is written: when a rival has changed it meanwhile, they are evaluated anew.
 * Every statement on a table of tenants joins the element's own tenant, for the policy lets through all tenants of the
 * batch. All results are read in binary, hence the casts.
 *
 * A gate is a count; which elements failed is worked out only when it does, with `not in`, which is a hash look-up also
 * where hash joins are off.
 */
#include "store/pg/sql.h"

/* Raises SU001 unless every entry of `keys` has its row in `w`. `columns` of the arrays after ord in `params`. */
#define GATE(reason, params, key) \
	"select sutra.gate(array(select distinct u.ord::int from unnest(" params ") as u(ord, " key ") " \
	"where (" key ") not in (select " key " from w) order by 1), '" reason "') " \
	"where (select count(*) from w) <> cardinality($1)"

/* --- claims --- */

/* instance_pkey, one probe an element; by ctid after that. Touches the claim of free, unfinished instances only. HOT. */
const char sql_CLAIM[] =
	"update sutra.instance i set claim_owner = u.owner, claim_at = now() "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[]) as u(ord, tenant, id, owner), "
	"lateral (select c.ctid from sutra.instance c where c.id = u.id and c.tenant = u.tenant "
	"and c.status not in ('COMPLETED', 'TERMINATED') "
	"and (c.claim_owner is null or c.claim_owner = u.owner or c.claim_at < now() - $5::int8 * interval '1 ms') "
	"for no key update skip locked) l "
	"where i.ctid = l.ctid "
	"returning u.ord, i.version, sutra.status_number(i.status), i.deployment_id, i.process, i.snapshot";

/* instance_pkey. Touches the claims of the given owners only. HOT. */
const char sql_RELEASE[] =
	"update sutra.instance i set claim_owner = null, claim_at = null "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[]) as u(ord, tenant, id, owner), "
	"lateral (select c.ctid from sutra.instance c where c.id = u.id and c.tenant = u.tenant and c.claim_owner = u.owner "
	"for no key update skip locked) l "
	"where i.ctid = l.ctid and i.claim_owner = u.owner";

/* --- resolve --- */

/* inbox_pkey, one probe a key. Reads. */
const char sql_INBOX_PROBE[] =
	"select u.ord, i.instance_id, i.created_at from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, key), "
	"lateral (select c.instance_id, c.created_at from sutra.inbox c where c.key = u.key and c.tenant = u.tenant offset 0) i";

/* wait_pkey by its first column, one probe a key. Reads. */
const char sql_WAIT_PROBE[] =
	"select u.ord, u.key, w.instance_id, w.token, w.node, w.deployment_id, w.created_at "
	"from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, key), "
	"lateral (select c.* from sutra.wait c where c.key = u.key and c.tenant = u.tenant offset 0) w "
	"order by u.ord, w.created_at, w.instance_id, w.token";

/* alias_pkey by its first column, one probe a key; instance_pkey for each that is found. Reads. */
const char sql_FAILED_PROBE[] =
	"select u.ord, i.id from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, key), "
	"lateral (select c.instance_id, c.tenant from sutra.alias c where c.key = u.key and c.tenant = u.tenant offset 0) a, "
	"lateral (select c.id, c.status from sutra.instance c where c.id = a.instance_id and c.tenant = a.tenant offset 0) i "
	"where i.status = 'FAILED' order by u.ord, i.id";

/* --- the committed step --- */

/*
 * instance_pkey, one probe an element; by ctid after that. Touches the instances that are claimed by the given owner at the
 * given version, and none at all unless every element's is: a failed fence leaves no dead rows. HOT.
 */
const char sql_FENCE_UPDATE[] =
	"with l as materialized (select u.*, c.tid from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::int8[], "
	"$6::int8[], $7::bool[], $8::text[], $9::text[], $10::bytea[]) "
	"as u(ord, tenant, id, owner, version, status, ended, code, detail, snapshot), "
	"lateral (select i.ctid as tid from sutra.instance i where i.id = u.id and i.tenant = u.tenant "
	"and i.claim_owner = u.owner and i.version = u.version for no key update skip locked) c), "
	"w as (update sutra.instance i set version = l.version + 1, status = sutra.status_text(l.status), "
	"ended_at = case when l.ended then now() else i.ended_at end, code = l.code, detail = l.detail, "
	"claim_at = null, claim_owner = null, snapshot = l.snapshot "
	"from l where i.ctid = l.tid and i.version = l.version and i.claim_owner = l.owner "
	"and (select count(*) from l) = cardinality($1) returning l.ord) "
	"select sutra.gate(array(select u.ord::int from unnest($1) as u(ord) where u.ord not in "
	"(select l.ord from l, sutra.instance i where i.ctid = l.tid) order by 1), 'fence') "
	"where (select count(*) from w) <> cardinality($1)";

/* inbox_pkey. Inserts; waits for rivals of the same key. */
const char sql_INBOX_INSERT[] =
	"with w as (insert into sutra.inbox (key, instance_id, created_at, tenant) "
	"select u.key, nullif(u.instance_id, '00000000-0000-0000-0000-000000000000'), now(), u.tenant "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::uuid[]) as u(ord, tenant, key, instance_id) "
	"on conflict (key) do nothing returning key) "
	GATE("duplicate", "$1, $3", "key");

/* wait_pkey, one probe a row. Deletes those rows. */
const char sql_WAIT_DELETE[] =
	"delete from sutra.wait w "
	"using unnest($1::int8[], $2::text[], $3::uuid[], $4::uuid[]) as u(ord, tenant, key, slot), "
	"lateral (select c.ctid from sutra.wait c where c.key = u.key and c.slot = u.slot and c.tenant = u.tenant offset 0) d "
	"where w.ctid = d.ctid";

/* alias_pkey, one probe a row. Deletes those rows. */
const char sql_ALIAS_DELETE[] =
	"delete from sutra.alias a "
	"using unnest($1::int8[], $2::text[], $3::uuid[], $4::uuid[]) as u(ord, tenant, key, slot), "
	"lateral (select c.ctid from sutra.alias c where c.key = u.key and c.slot = u.slot and c.tenant = u.tenant offset 0) d "
	"where a.ctid = d.ctid";

#define ALIAS_ROWS \
	"insert into sutra.alias (tenant, key, slot, instance_id, name, value) " \
	"select u.tenant, u.key, u.slot, u.instance_id, u.name, u.value " \
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::text[]) " \
	"as u(ord, tenant, key, slot, instance_id, name, value)"

/* alias_pkey. Inserts; the slot is the instance's own, so nobody competes for it. */
const char sql_ALIAS_INSERT[] = ALIAS_ROWS;

/* alias_pkey. Inserts; waits for rivals of the same key. */
const char sql_ALIAS_INSERT_UNIQUE[] =
	"with w as (" ALIAS_ROWS " on conflict (key, slot) do nothing returning key, slot) " GATE("alias", "$1, $3, $4", "key, slot");

#define WAIT_ROWS \
	"insert into sutra.wait (tenant, key, slot, instance_id, token, node, channel, deployment_id, created_at) " \
	"select u.tenant, u.key, u.slot, u.instance_id, u.token, u.node, u.channel, u.deployment_id, now() " \
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::int8[], $7::text[], $8::text[], $9::text[]) " \
	"as u(ord, tenant, key, slot, instance_id, token, node, channel, deployment_id)"

/* wait_pkey. Inserts; the slot is the token's own. */
const char sql_WAIT_INSERT[] = WAIT_ROWS;

/* wait_pkey. Inserts; waits for rivals of the same key. */
const char sql_WAIT_INSERT_UNIQUE[] =
	"with w as (" WAIT_ROWS " on conflict (key, slot) do nothing returning key, slot) " GATE("wait", "$1, $3, $4", "key, slot");

/* instance_pkey. Inserts; waits for a rival with the same id, which can only be an earlier try of the same commit. */
const char sql_INSTANCE_INSERT[] =
	"with w as (insert into sutra.instance "
	"(tenant, id, deployment_id, process, status, version, started_at, ended_at, code, detail, snapshot) "
	"select u.tenant, u.id, u.deployment_id, u.process, sutra.status_text(u.status), u.version, u.started_at, "
	"case when u.ended then now() end, u.code, u.detail, u.snapshot "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::int8[], $7::int8[], $8::timestamptz[], "
	"$9::bool[], $10::text[], $11::text[], $12::bytea[]) "
	"as u(ord, tenant, id, deployment_id, process, status, version, started_at, ended, code, detail, snapshot) "
	"on conflict (id) do nothing returning id) "
	GATE("exists", "$1, $3", "id");

/* outbox_entry_pkey, one probe a row. Deletes those rows, whoever has them claimed. */
const char sql_OUTBOX_WITHDRAW[] =
	"delete from sutra.outbox_entry o "
	"using unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::int8[], $6::int8[]) "
	"as u(ord, tenant, instance_id, channel, version, ordinal), "
	"lateral (select e.ctid from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel "
	"and e.version = u.version and e.ordinal = u.ordinal and e.tenant = u.tenant for update) d "
	"where o.ctid = d.ctid";

/*
 * outbox_entry_pkey: two probes a row for what stands before it in its group, from the floor on, and one insert; a third probe for one
 * that is not claimed. A row of the same call stands before another only if it is claimed itself, or has before it what keeps the other
 * unclaimed too.
 */
#define OUTBOX_COLUMNS \
	"tenant, instance_id, channel, version, ordinal, id, deployment_id, connection, destination, correlation, record_key, " \
	"headers, content_type, body, required"
#define OUTBOX_EARLIER_ROWS \
	"from sutra.outbox_entry e where e.instance_id = u.instance_id and e.channel = u.channel and e.version >= u.floor " \
	"and (e.version, e.ordinal) < (u.version, u.ordinal) "
#define OUTBOX_ROWS \
	"with c as materialized (select u.*, l.claimed, case when l.claimed then false else (select true " OUTBOX_EARLIER_ROWS \
	"and not e.poisoned limit 1) is not null end as behind, coalesce((select e.version " OUTBOX_EARLIER_ROWS \
	"order by e.version, e.ordinal limit 1), u.version) as first " \
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::int8[], $6::int8[], $7::uuid[], $8::text[], $9::text[], " \
	"$10::text[], $11::bytea[], $12::bytea[], $13::bytea[], $14::text[], $15::bytea[], $16::bool[], $17::int8[]) " \
	"as u(ord, " OUTBOX_COLUMNS ", floor), " \
	"lateral (select $18::text is not null and not exists (select " OUTBOX_EARLIER_ROWS \
	"and not e.poisoned and e.claim_owner is distinct from $18::text) as claimed offset 0) l), " \
	"w as (insert into sutra.outbox_entry (" OUTBOX_COLUMNS ", behind, created_at, next_attempt_at, claimed_at, claim_owner) " \
	"select " OUTBOX_COLUMNS ", behind, now(), now(), case when claimed then now() end, case when claimed then $18::text end from c "

/* What is left out by a conflict is not answered. */
const char sql_OUTBOX_INSERT[] =
	OUTBOX_ROWS ") select instance_id, channel, version, ordinal, claimed, first from c";
const char sql_OUTBOX_INSERT_ONCE[] =
	OUTBOX_ROWS "on conflict (instance_id, channel, version, ordinal) do nothing "
	"returning instance_id, channel, version, ordinal, claim_owner is not null as claimed) "
	"select instance_id, channel, version, ordinal, claimed, version from w";

#define DEAD_LETTER_ROWS \
	"insert into sutra.dead_letter (tenant, id, channel, event_id, source, message_type, code, detail, instance_id, record_key, " \
	"headers, content_type, payload, created_at) " \
	"select u.tenant, u.id, u.channel, u.event_id, u.source, u.message_type, u.code, u.detail, " \
	"nullif(u.instance_id, '00000000-0000-0000-0000-000000000000'), u.record_key, u.headers, u.content_type, u.payload, now() " \
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], " \
	"$10::uuid[], $11::bytea[], $12::bytea[], $13::text[], $14::bytea[]) " \
	"as u(ord, tenant, id, channel, event_id, source, message_type, code, detail, instance_id, record_key, headers, content_type, " \
	"payload) "

/* dead_letter_pkey. Inserts; one that is there stays as it is. */
const char sql_DEAD_LETTER_INSERT[] = DEAD_LETTER_ROWS "on conflict (id) do nothing";

/* dead_letter_pkey. Inserts, or changes the one that is there; of another tenant's, with which no id is shared, nothing. */
const char sql_DEAD_LETTER_REPLACE[] = DEAD_LETTER_ROWS
	"on conflict (id) do update set code = excluded.code, detail = excluded.detail, instance_id = excluded.instance_id "
	"where dead_letter.tenant = excluded.tenant";

/* dead_letter_pkey, one probe an element. Deletes those rows. */
const char sql_DEAD_LETTER_DELETE[] =
	"delete from sutra.dead_letter d using unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, id), "
	"lateral (select c.ctid from sutra.dead_letter c where c.id = u.id and c.tenant = u.tenant offset 0) l "
	"where d.ctid = l.ctid";

/* instance_pkey, one probe an element. Reads. */
const char sql_FENCE_PROBE[] =
	"select u.ord, i.claim_owner, i.version from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, id), "
	"lateral (select c.claim_owner, c.version from sutra.instance c where c.id = u.id and c.tenant = u.tenant offset 0) i";

/* --- doubt --- */

/* No table. Ends that very session, for the number of a process is used again. */
const char sql_BACKEND_TERMINATE[] =
	"select count(pg_terminate_backend(a.pid)) = 0 from pg_stat_get_activity($1::int8::int) a "
	"where a.backend_start = $2::timestamptz and a.application_name = $3::text";

/* No table. An id that the server has not given out, as after a failover, is unknown, not an error. */
const char sql_XACT_STATUS[] =
	"select case when x.id < pg_snapshot_xmax(pg_current_snapshot()) then pg_xact_status(x.id) "
	"when exists (select from pg_locks k where k.locktype = 'transactionid' and k.transactionid = x.id::xid) "
	"then 'in progress' end from (select $1::int8::text::xid8 as id) x";

const char sql_PING[] = "select 1::int8";

/* --- what begins a segment --- */

/* Needs PostgreSQL 13: pg_current_xact_id. Read so early that doubt can be resolved whenever the connection breaks. */
void sql_begin(unsigned begin, struct buf *out)
{
	bool backend = begin & SQL_BEGIN_BACKEND;

	buf_add_text(out, begin & SQL_BEGIN_XID ? "select pg_current_xact_id()::text::int8" : "select null::int8");
	buf_add_text(out, backend ? ", pg_backend_pid()::int8, b.backend_start" : ", null::int8, null::timestamptz");
	buf_add_text(out, ", set_config('sutra.tenant', $1::text, true), set_config('lock_timeout', $2::text, true)");
	if (begin & SQL_BEGIN_ASYNC)
		buf_add_text(out, ", set_config('synchronous_commit', 'off', true)");
	if (begin & SQL_BEGIN_SCAN)
		buf_add_text(out, ", set_config('role', 'sutra_scan', true)");
	if (backend)
		buf_add_text(out, " from pg_stat_get_activity(pg_backend_pid()) b");
}

/*
 * A generic plan is made once; the others would turn to plans that read whole tables when these are small, and a bitmap to one that reads
 * everything behind a key where the first few rows are asked for. Disabled ways are
 * still taken where there is no other, at a price so high that code would be compiled for it: hence no jit.
 */
const struct sql_setting sql_settings[] = {
	{"plan_cache_mode", "force_generic_plan"},
	{"enable_seqscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_bitmapscan", "off"},
	{"jit", "off"},
	{"lock_timeout", "1s"},
	{NULL, NULL},
};

const char sql_session[] =
	"select (select backend_start from pg_stat_get_activity(pg_backend_pid())), "
	"set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false), "
	"set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false), "
	"set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false)";

const char *sql_of(enum statement_id id)
{
	static const char *const all[STATEMENT_COUNT] = {
#define STATEMENT(name, params, results, gate) [STATEMENT_##name] = sql_##name,
#include "store/statements.def"
#undef STATEMENT
	};

	return all[id];
}
