/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of timers: those of waiting tokens, and start timers. See statements.c for the shapes and the reasons for them.
 *
 * Two indexes of sutra.timer: timer_pkey by (instance, token), timer_due by (due, PLACE), which is the same order as (due, instance, token),
 * but nothing that a condition on these fits. The table is read from its beginning in the order of due times, where what has fired
 * leaves dead entries until the next vacuum; so whoever leads goes on from the last one it has seen.
 */
#include "store/pg/sql.h"

#define PLACE(instance, token) "uuid_send(" instance ") || int8send(" token ")"
#define BEHIND "(due_at, " PLACE("instance_id", "token") ") > ($1::timestamptz, " PLACE("$2::uuid", "$3::int8") ") "
#define IN_ORDER "order by due_at, " PLACE("instance_id", "token") " limit $4::int8"

/* --- in the committed step --- */

/*
 * timer_schedule_pkey, one probe an element; by ctid after that. Touches start timers that are due as expected, and none at all unless
 * every element's is: a failed gate leaves nothing to clean up. HOT.
 */
const char sql_SCHEDULE_ADVANCE[] =
	"with l as materialized (select u.*, c.tid from unnest($1::int8[], $2::text[], $3::uuid[], $4::timestamptz[], "
	"$5::timestamptz[], $6::int8[]) as u(ord, tenant, id, expected_at, next_at, remaining), "
	"lateral (select s.ctid as tid from sutra.timer_schedule s where s.id = u.id and s.tenant = u.tenant "
	"and s.next_at = u.expected_at for no key update skip locked) c), "
	"w as (update sutra.timer_schedule s set next_at = l.next_at, remaining = l.remaining "
	"from l where s.ctid = l.tid and s.next_at = l.expected_at "
	"and (select count(*) from l) = cardinality($1) returning l.ord) "
	"select sutra.gate(array(select u.ord::int from unnest($1) as u(ord) where u.ord not in "
	"(select l.ord from l, sutra.timer_schedule s where s.ctid = l.tid) order by 1), 'schedule') "
	"where (select count(*) from w) <> cardinality($1)";

/* timer_pkey, one probe a row. Deletes those rows. */
const char sql_TIMER_DELETE[] =
	"delete from sutra.timer t using unnest($1::int8[], $2::text[], $3::uuid[], $4::int8[]) as u(ord, tenant, instance_id, token), "
	"lateral (select c.ctid from sutra.timer c where c.instance_id = u.instance_id and c.token = u.token and c.tenant = u.tenant "
	"offset 0) d where t.ctid = d.ctid";

/* timer_pkey, timer_due. Inserts; the tokens are the instance's own. */
const char sql_TIMER_INSERT[] =
	"insert into sutra.timer (tenant, instance_id, token, node, deployment_id, due_at) "
	"select u.tenant, u.instance_id, u.token, u.node, u.deployment_id, u.due_at "
	"from unnest($1::int8[], $2::text[], $3::uuid[], $4::int8[], $5::text[], $6::text[], $7::timestamptz[]) "
	"as u(ord, tenant, instance_id, token, node, deployment_id, due_at)";

/* timer_schedule_pkey, one probe an element. Reads. */
const char sql_SCHEDULE_PROBE[] =
	"select u.ord, s.deployment_id, s.next_at, s.remaining from unnest($1::int8[], $2::text[], $3::uuid[]) as u(ord, tenant, id), "
	"lateral (select c.deployment_id, c.next_at, c.remaining from sutra.timer_schedule c where c.id = u.id "
	"and c.tenant = u.tenant offset 0) s";

/* --- of whoever leads --- */

/* timer_due from the last one on. Reads. */
const char sql_TIMER_DUE[] =
	"select tenant, instance_id, token, due_at from sutra.timer "
	"where " BEHIND "and due_at <= now() " IN_ORDER;

/* timer_due, the first that is not due. Reads. */
const char sql_TIMER_NEXT[] =
	"select (select ceil(extract(epoch from t.due_at - now()) * 1000000)::int8 from sutra.timer t where t.due_at > now() "
	"order by t.due_at limit 1)";

/* timer_due, from the oldest on. Reads. */
const char sql_TIMER_COUNTS[] =
	"select count(*), min(c.due_at) from (select t.due_at from sutra.timer t where t.due_at < now() - $1::int8 * interval '1 ms' "
	"order by t.due_at limit $2::int8) c";

/*
 * timer_pkey and instance_pkey, one probe each a row; "is not distinct" is no condition of an index. Deletes timers of instances that have none: the row of the instance is held, so
 * that it gets no new one meanwhile; one that is gone comes never again.
 */
const char sql_TIMER_DROP[] =
	"with t as materialized (select u.*, c.tid from unnest($1::text[], $2::uuid[], $3::int8[], $4::timestamptz[], $5::int8[]) "
	"as u(tenant, instance_id, token, due_at, version), "
	"lateral (select c.ctid as tid from sutra.timer c where c.instance_id = u.instance_id and c.token = u.token "
	"and c.tenant = u.tenant and c.due_at is not distinct from u.due_at offset 0) c), "
	"held as materialized (select t.tid from t, lateral (select from sutra.instance i where i.id = t.instance_id "
	"and i.tenant = t.tenant and (i.version = t.version or i.status in ('COMPLETED', 'TERMINATED')) "
	"for no key update skip locked) i), "
	"gone as materialized (select t.tid from t where (select i.id from sutra.instance i where i.id = t.instance_id limit 1) is null) "
	"delete from sutra.timer d using (select tid from held union all select tid from gone) l where d.ctid = l.tid";

/* --- lists --- */

#define LISTED "tenant, instance_id, token, node, deployment_id, due_at"

/* timer_pkey by its first column. Reads. */
const char sql_TIMER_OF[] =
	"select " LISTED " from sutra.timer where instance_id = $1::uuid order by instance_id, token";

/*
 * timer_due from the last one on. The comparison of rows is not trusted with what the policy hides, so it is no condition of the
 * index; that of the first column is. Reads.
 */
const char sql_TIMER_LIST[] =
	"select " LISTED " from sutra.timer "
	"where due_at >= $1::timestamptz and " BEHIND IN_ORDER;

/* timer_schedule_pkey. Inserts, or touches what is of another deployment or has another timer. */
const char sql_SCHEDULE_PUT[] =
	"insert into sutra.timer_schedule as s (id, tenant, deployment_id, process, node, spec, next_at, remaining, created_at) "
	"select u.id, u.tenant, u.deployment_id, u.process, u.node, u.spec, u.next_at, u.remaining, now() "
	"from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::int8[]) "
	"as u(id, tenant, deployment_id, process, node, spec, next_at, remaining) "
	"on conflict (id) do update set deployment_id = excluded.deployment_id, spec = excluded.spec, "
	"next_at = case when s.spec = excluded.spec then s.next_at else excluded.next_at end, "
	"remaining = case when s.spec = excluded.spec then s.remaining else excluded.remaining end "
	"where s.tenant = excluded.tenant and (s.deployment_id, s.spec) <> (excluded.deployment_id, excluded.spec)";

/* timer_schedule_pkey from the last id on. Reads. */
const char sql_SCHEDULE_LIST[] =
	"select id, tenant, deployment_id, process, node, spec, next_at, remaining, created_at from sutra.timer_schedule "
	"where id > $1::uuid order by id limit $2::int8";
