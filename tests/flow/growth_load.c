/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database as it is after a long time: a million parked instances with a wait and an alias each, finished and failed ones between
 * them, a million event ids, a hundred thousand rows of each thing that should be rare. Tenants are very uneven: `big` has nine tenths,
 * fifty others share the rest, and `tiny` has one row in fifty thousand.
 */
#include "tests/flow/growth.h"

#define PARKED "1000000"
/* With the finished ones between them. */
#define INSTANCES "1200000"
#define RARE "100000"

const char *const growth_tables[] = {"instance", "wait", "alias", "inbox", "outbox_entry", "dead_letter", "inbox_message",
				     "early", "timer", "channel_session", "capacity_slot"};
const size_t growth_table_count = ARRAY_LEN(growth_tables);

void growth_functions(PGconn *pg)
{
	/* Ids grow with time, as the engine's do; keys are digests. */
	pg_exec(pg, "create or replace function public.growth_id(m bigint) returns uuid language sql immutable parallel safe as $$ "
		    "select (lpad(to_hex(1700000000000 + m), 12, '0') || '7' || substr(md5(m::text), 1, 19))::uuid $$");
	pg_exec(pg,
		"create or replace function public.growth_key(kind text, m bigint) returns uuid language sql immutable parallel safe as $$ "
		"select md5(kind || m)::uuid $$");
	pg_exec(pg, "create or replace function public.growth_tenant(m bigint) returns text language sql immutable parallel safe as $$ "
		    "select case when m %% 50000 = 7 then 'tiny' when m %% 10 = 3 then 't' || m / 10 %% 50 else 'big' end $$");
}

static const char load_first[] =
	"insert into sutra.instance (id, tenant, deployment_id, process, status, version, started_at, ended_at, claim_owner, claim_at, "
	"snapshot) select public.growth_id(m), public.growth_tenant(m), 'd' || m / 400000, 'p', "
	"case when m % 6 = 0 then 'COMPLETED' when m % 1201 = 0 then 'FAILED' else 'SUSPENDED' end, 1, now(), "
	"case when m % 6 = 0 then now() - (m % 90) * interval '1 day' end, "
	"case when m % 390 in (1, 7, 13, 19, 25) then 'me' when m % 10007 = 0 then 'dead' end, "
	"case when m % 390 in (1, 7, 13, 19, 25) then now() when m % 10007 = 0 then now() - interval '1 hour' end, "
	"decode(repeat(md5(m::text), 8), 'hex') from generate_series(1, " INSTANCES ") m; "
	"insert into sutra.outbox_entry (instance_id, channel, version, ordinal, tenant, id, deployment_id, required, created_at, "
	"next_attempt_at, poisoned, claim_owner, claimed_at, body) select public.growth_id(m), 'c', 1, 0, public.growth_tenant(m), "
	"public.growth_key('o', m), 'd0', true, now(), now() - m * interval '1 ms', m % 20 = 10, case when m % 2 = 1 then 'live' end, "
	"case when m % 2 = 1 then now() end, decode(repeat(md5(m::text), 8), 'hex') from generate_series(1, " RARE ") m; "
	/* Behind the claimed ones. */
	"insert into sutra.outbox_entry (instance_id, channel, version, ordinal, tenant, id, deployment_id, required, behind, created_at, "
	"next_attempt_at, body) select public.growth_id(m), 'c', 1, 1, public.growth_tenant(m), public.growth_key('q', m), 'd0', true, "
	"true, now(), now() - interval '1 hour', decode(repeat(md5(m::text), 8), 'hex') from generate_series(1, " RARE ", 2) m; "
	/* Waiting for slots, a thousand a pool. */
	"insert into sutra.outbox_entry (instance_id, channel, version, ordinal, tenant, id, deployment_id, required, created_at, "
	"next_attempt_at, pool, call_key, body) select public.growth_id(m), 'd', 1, 2, public.growth_tenant(m), public.growth_key('p', m), "
	"'d0', true, now() - m * interval '1 ms', now(), 'p' || m % 100, 'out', decode(repeat(md5(m::text), 8), 'hex') "
	"from generate_series(1, " RARE ") m; "
	"insert into sutra.capacity_pool (name, slots, reserve_inbound, reserve_outbound, updated_at) "
	"select 'p' || n, 2000, 10, 10, now() from generate_series(0, 99) n; "
	"insert into sutra.channel_session (instance_id, call_key, tenant, channel, inbound, counts, token) select public.growth_id(m), k, "
	"public.growth_tenant(m), case when k = '' then 'c' || m % 1000 end, k = 'in', k = '', nullif(1, length(k)) "
	"from generate_series(1, " RARE ") m, unnest(array['', 'in', 'out']) k; "
	"insert into sutra.capacity_slot (instance_id, pool, call_key, direction, tenant, created_at) select public.growth_id(m), "
	"'p' || m % 100, 'in', case when m % 300 < 200 then 'INBOUND' else 'OUTBOUND' end, public.growth_tenant(m), now() "
	"from generate_series(1, " RARE ") m; "
	"insert into sutra.tenant_rate (tenant, minute_at, used, granted) values ('big', date_trunc('minute', now()), 1, 1); "
	"insert into sutra.dead_letter (id, tenant, channel, event_id, code, created_at, payload) select public.growth_id(m), "
	"public.growth_tenant(m), 'c', 'e' || m, 'SUTRA.X', now() - m * interval '1 min', decode(repeat(md5(m::text), 8), 'hex') "
	"from generate_series(1, " RARE ") m; "
	"insert into sutra.inbox_message (id, order_key, tenant, channel, kind, keeper, created_at, envelope, body) "
	"select public.growth_id(m), public.growth_key('k', m), public.growth_tenant(m), 'c', 'overflow', "
	"(array['live', 'dead', null])[m % 3 + 1], now(), '', decode(repeat(md5(m::text), 8), 'hex') "
	"from generate_series(1, " RARE ") m; "
	"insert into sutra.early (key, message_id, tenant) select k, public.growth_id(m), public.growth_tenant(m) "
	"from (select public.growth_key('e', m) as k, m from generate_series(1, " RARE ") m order by 1) r; "
	"insert into sutra.timer (instance_id, token, tenant, node, deployment_id, due_at) select public.growth_id(m), 1, "
	"public.growth_tenant(m), 'n', 'd0', now() + (m - 2000) * interval '1 s' from generate_series(1, " RARE ") m; "
	"insert into sutra.timer_schedule (id, tenant, deployment_id, process, node, spec, next_at, remaining, created_at) "
	"select public.growth_id(m), public.growth_tenant(m), 'd0', 'p', 'n', 'R/PT1M', '2026-01-01 00:00Z', -1, now() from generate_series(1, " RARE ") m; "
	"insert into sutra.lease (role, holder, term, expires_at) values ('keeper:live', 'live', 1, now() + interval '1 day'), "
	"('keeper:dead', 'dead', 1, now() - interval '1 hour'); "
	"insert into sutra.deployment (id, tenant, module, version, phase) select 'd' || n, 'big', 'm', n::text, 'Draining' "
	"from generate_series(0, 3) n; ";

static const char load_second[] =
	"insert into sutra.wait select k, public.growth_key('s', m), public.growth_tenant(m), public.growth_id(m), 1, 'n', 'c', "
	"'d' || m / 400000, now() from (select public.growth_key('w', m) as k, m from generate_series(1, " INSTANCES ") m "
	"where m % 6 <> 0 order by 1) r; "
	"insert into sutra.alias select k, public.growth_id(m), public.growth_tenant(m), public.growth_id(m), 'a', 'v' || m "
	"from (select public.growth_key('a', m) as k, m from generate_series(1, " INSTANCES ") m where m % 6 <> 0 order by 1) r; "
	"insert into sutra.inbox (key, instance_id, created_at, tenant) select k, public.growth_id(m), "
	"now() - (1 + m / 64) * interval '10 s', public.growth_tenant(m) "
	"from (select public.growth_key('i', m) as k, m from generate_series(1, " PARKED ") m order by 1) r; ";

static void finish(PGconn *pg)
{
	PGresult *result;

	while ((result = PQgetResult(pg))) {
		ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQerrorMessage(pg));
		PQclear(result);
	}
	PQfinish(pg);
}

void growth_load(void)
{
	PGconn *first = pg_admin_open(), *second = pg_admin_open();

	ck_assert_int_eq(PQsendQuery(first, load_first), 1);
	ck_assert_int_eq(PQsendQuery(second, load_second), 1);
	finish(first);
	finish(second);
}
