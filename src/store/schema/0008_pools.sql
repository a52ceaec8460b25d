-- SPDX-License-Identifier: Apache-2.0
--
-- Capacity pools: slots of which there are only so many, taken by instances for their calls; the sessions to which the calls belong; and
-- permits of tenants. Pools are shared by tenants: who counts must see all, so their tables have no policy.

create table sutra.capacity_pool (
	name             text collate "C" not null primary key,
	slots            bigint           not null,
	reserve_inbound  bigint           not null,
	reserve_outbound bigint           not null,
	tenants          text collate "C", -- ",a,b,"; null: all
	updated_at       timestamptz      not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- One row a slot that is held. Never updated.
create table sutra.capacity_slot (
	instance_id uuid             not null,
	pool        text collate "C" not null,
	call_key    text collate "C" not null,
	direction   text collate "C" not null, -- INBOUND, OUTBOUND: which took it first
	tenant      text collate "C" not null,
	created_at  timestamptz      not null,
	primary key (instance_id, pool, call_key)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05);
-- For counting, and for lists: the latter two columns as one expression, so that who looks for the slots of an instance is not offered this
-- index, which on an empty table looks as good as the right one.
create index capacity_slot_held on sutra.capacity_slot (pool, direction, ((instance_id::text || call_key) collate "C"));

-- The session of an instance: its own row, with an empty call key, and one a call. Who changes anything of a session locks its own row
-- first. What has ended stays until the instance is removed, for nothing takes a released slot back.
create table sutra.channel_session (
	instance_id uuid             not null,
	call_key    text collate "C" not null,
	tenant      text collate "C" not null,
	channel     text collate "C",
	inbound     boolean          not null,
	counts      boolean          not null,
	token       bigint,
	ended_at    timestamptz,
	primary key (instance_id, call_key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05);
-- The calls of an instance that are open, among the many that may have been; what counts against the caps.
create index channel_session_open on sutra.channel_session (instance_id) where ended_at is null and call_key <> '';
create index channel_session_count on sutra.channel_session (tenant, channel) where counts;

-- Permits that a tenant has used of a minute.
create table sutra.tenant_rate (
	tenant    text collate "C" not null primary key,
	minute_at timestamptz      not null,
	used      bigint           not null,
	granted   bigint           not null -- of them, to whoever asked last
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- A row of the outbox with a pool waits for a slot; the one who gets it for the row, or knows that it needs none any more, makes it null.
alter table sutra.outbox_entry add column pool text collate "C", add column call_key text collate "C";
drop index sutra.outbox_entry_due;
create index outbox_entry_due on sutra.outbox_entry (tenant, next_attempt_at)
	where claim_owner is null and not poisoned and not behind and pool is null;
create index outbox_entry_pool on sutra.outbox_entry (pool, created_at, id)
	where pool is not null and claim_owner is null and not poisoned and not behind;
-- Written in a way of its own, so that who looks for what waits for a pool is not offered this one: on an empty table it looks as good.
create index outbox_entry_call on sutra.outbox_entry (instance_id, call_key) where coalesce(pool, '') <> '';

alter table sutra.channel_session enable row level security;
alter table sutra.channel_session force row level security;
create policy tenant on sutra.channel_session
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
create policy scan_select on sutra.channel_session for select to sutra_scan using (true);
create policy scan_update on sutra.channel_session for update to sutra_scan using (true);

alter table sutra.tenant_rate enable row level security;
alter table sutra.tenant_rate force row level security;
create policy tenant on sutra.tenant_rate
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
