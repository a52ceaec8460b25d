-- SPDX-License-Identifier: Apache-2.0
-- The rows of hold-relay by set-based SQL, for pgbench: what the same tables take when nothing has to be decided row by row.
-- One run of this file spawns :batch orders in one transaction and completes them in another; the rows are made inside the
-- server from those that one order of the engine has left in the schema `bench`. Keys are made in a step of their own: an index
-- may not be searched for what a function makes on the spot before row-level security has looked at the row.
select nextval('bench.batches') * :batch::bigint as first \gset
begin;
insert into sutra.inbox (key, instance_id, created_at, tenant)
	select md5('orders' || n)::uuid, lpad(to_hex(n), 32, '0')::uuid, now(), 'default'
	from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n;
insert into sutra.alias (key, slot, tenant, instance_id, name, value)
	select md5('alias' || n)::uuid, '00000000-0000-0000-0000-000000000000', tenant, lpad(to_hex(n), 32, '0')::uuid, name,
		'order-' || lpad(n::text, 9, '0')
	from bench.spawn_alias, generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n;
insert into sutra.wait (key, slot, tenant, instance_id, token, node, channel, deployment_id, created_at)
	select md5('wait' || n)::uuid, slot, tenant, lpad(to_hex(n), 32, '0')::uuid, token, node, channel, deployment_id, now()
	from bench.spawn_wait, generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n;
insert into sutra.instance (id, tenant, deployment_id, process, status, version, started_at, snapshot)
	select lpad(to_hex(n), 32, '0')::uuid, tenant, deployment_id, process, status, version, now(), snapshot
	from bench.spawn_instance, generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n;
insert into sutra.outbox_entry (instance_id, channel, version, ordinal, tenant, id, deployment_id, connection, destination,
		correlation, record_key, headers, content_type, required, created_at, next_attempt_at, claimed_at, claim_owner, body)
	select lpad(to_hex(n), 32, '0')::uuid, channel, version, ordinal, tenant, md5('out' || n)::uuid, deployment_id, connection,
		destination, correlation, record_key, headers, content_type, required, now(), now(), now(), claim_owner, body
	from bench.spawn_outbox_entry, generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n;
commit;
begin;
with k as materialized (select lpad(to_hex(n), 32, '0')::uuid as key, channel, version, ordinal
	from bench.spawn_outbox_entry, generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n)
delete from sutra.outbox_entry o using k
	where o.instance_id = k.key and o.channel = k.channel and o.version = k.version and o.ordinal = k.ordinal;
commit;
begin;
with k as materialized (select lpad(to_hex(n), 32, '0')::uuid as key from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n)
update sutra.instance i set claim_at = now(), claim_owner = b.claim_owner
	from k, bench.spawn_outbox_entry b where i.id = k.key;
commit;
begin;
insert into sutra.inbox (key, instance_id, created_at, tenant)
	select md5('payments' || n)::uuid, lpad(to_hex(n), 32, '0')::uuid, now(), 'default'
	from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n;
with k as materialized (select md5('wait' || n)::uuid as key from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n)
delete from sutra.wait t using k where t.key = k.key;
with k as materialized (select md5('alias' || n)::uuid as key from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n)
delete from sutra.alias t using k where t.key = k.key;
with k as materialized (select lpad(to_hex(n), 32, '0')::uuid as key from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n)
update sutra.instance i set status = b.status, version = b.version, ended_at = now(), claim_at = null, claim_owner = null,
		snapshot = b.snapshot
	from k, bench.relay_instance b where i.id = k.key;
insert into sutra.outbox_entry (instance_id, channel, version, ordinal, tenant, id, deployment_id, connection, destination,
		correlation, record_key, headers, content_type, required, created_at, next_attempt_at, claimed_at, claim_owner, body)
	select lpad(to_hex(n), 32, '0')::uuid, channel, version, ordinal, tenant, md5('end' || n)::uuid, deployment_id, connection,
		destination, correlation, record_key, headers, content_type, required, now(), now(), now(), claim_owner, body
	from bench.relay_outbox_entry, generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n;
commit;
set synchronous_commit = off;
begin;
with k as materialized (select lpad(to_hex(n), 32, '0')::uuid as key, channel, version, ordinal
	from bench.relay_outbox_entry, generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) n)
delete from sutra.outbox_entry o using k
	where o.instance_id = k.key and o.channel = k.channel and o.version = k.version and o.ordinal = k.ordinal;
commit;
set synchronous_commit = on;
