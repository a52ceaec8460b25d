-- SPDX-License-Identifier: Apache-2.0
--
-- The tables of the path: instances and how messages find them, the inbox, the outbox, dead letters; and what replicas
-- share: leases, deployments. Run by `sutra migrate` in one transaction as the schema's owner; the role sutra_scan is
-- there already, and grants are given afterwards.
--
-- Every table of a tenant has its policy forced. The setting sutra.tenant holds the tenants of the transaction, ",a,b,":
-- with the list in a sub-select it is read once a statement, and one batch serves many tenants. Keys are the instance's id
-- or a 16-byte digest that includes the tenant, so that the tables could be distributed by them.

create schema if not exists sutra;

create table sutra.schema_history (
	version    int         not null primary key,
	name       text        not null,
	checksum   text        not null,
	applied_at timestamptz not null default now()
);

-- A claim and a step each write a new version of the row. Both stay on its page and away from the index (HOT) while half
-- of the page is free and no column of an index changes: so there is the primary key and nothing else, not even a
-- partial index. The claim stands directly before the snapshot, which is last: the log of a claim then holds little more
-- than these two columns.
create table sutra.instance (
	id            uuid             not null primary key,
	tenant        text collate "C" not null,
	deployment_id text collate "C" not null,
	process       text collate "C" not null,
	status        text collate "C" not null, -- SUSPENDED, COMPLETED, TERMINATED, FAILED
	version       bigint           not null,
	started_at    timestamptz      not null,
	ended_at      timestamptz,
	code          text collate "C",
	detail        text,
	claim_at      timestamptz,
	claim_owner   text collate "C",
	snapshot      bytea            not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);

-- What suspended instances wait for. `slot` tells apart the waits of one key; it is all zero where the key is unique.
create table sutra.wait (
	key           uuid             not null,
	slot          uuid             not null,
	tenant        text collate "C" not null,
	instance_id   uuid             not null,
	token         bigint           not null,
	node          text collate "C" not null,
	channel       text collate "C" not null,
	deployment_id text collate "C" not null,
	created_at    timestamptz      not null,
	primary key (key, slot)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create table sutra.alias (
	key         uuid             not null,
	slot        uuid             not null,
	tenant      text collate "C" not null,
	instance_id uuid             not null,
	name        text collate "C" not null,
	value       text collate "C" not null,
	primary key (key, slot)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Which events have had their effect. Narrow, for it may hold billions of rows.
create table sutra.inbox (
	key         uuid             not null primary key,
	instance_id uuid,
	created_at  timestamptz      not null,
	tenant      text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_vacuum_insert_scale_factor = 0.1);
-- For the purge. All rows of a batch share one time and so one entry, which keeps the index small and its cost at a percent of
-- a step. (An index of page ranges would be smaller still, but only until the pages of purged rows are used again: from then on
-- every range holds old and new rows, and a purge would read the whole table.)
create index inbox_age on sutra.inbox (created_at);

-- What steps send. Normally a row is inserted claimed, published and deleted by its key; only rows that nobody is
-- sending stand in the second index, which the scan reads.
create table sutra.outbox_entry (
	instance_id          uuid             not null,
	channel              text collate "C" not null,
	version              bigint           not null,
	ordinal              bigint           not null,
	tenant               text collate "C" not null,
	id                   uuid             not null,
	deployment_id        text collate "C",
	connection           text collate "C",
	destination          text collate "C",
	correlation          bytea,
	record_key           bytea,
	headers              bytea,
	content_type         text collate "C",
	required             boolean          not null,
	created_at           timestamptz      not null,
	attempt_count        bigint           not null default 0,
	next_attempt_at      timestamptz      not null,
	poisoned             boolean          not null default false,
	last_diagnostic_json text,
	claimed_at           timestamptz,
	claim_owner          text collate "C",
	body                 bytea,
	primary key (instance_id, channel, version, ordinal)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
	autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
create index outbox_entry_due on sutra.outbox_entry (tenant, next_attempt_at)
	where claim_owner is null and not poisoned;

create table sutra.dead_letter (
	id           uuid             not null primary key,
	tenant       text collate "C" not null,
	channel      text collate "C" not null,
	event_id     text,
	source       text,
	message_type text,
	code         text collate "C" not null,
	detail       text,
	instance_id  uuid,
	content_type text,
	created_at   timestamptz      not null,
	record_key   bytea,
	headers      bytea,
	payload      bytea
);

create table sutra.lease (
	role       text collate "C" not null primary key,
	holder     text collate "C",
	term       bigint           not null,
	expires_at timestamptz      not null
) with (fillfactor = 50);

create table sutra.deployment (
	id         text collate "C" not null primary key,
	tenant     text collate "C" not null,
	module     text             not null,
	version    text             not null,
	phase      text             not null,
	created_at timestamptz      not null default now(),
	archive    bytea
);

-- A gate: raises the ordinals of the elements that did not pass, for the store to take them out of their batch.
create function sutra.gate(failed int[], reason text) returns void language plpgsql as $$
begin
	raise exception using errcode = 'SU001', message = reason, detail = array_to_string(failed, ',');
end
$$;

-- How the status of an instance is written in messages between the store and its statements.
create function sutra.status_text(status bigint) returns text language sql immutable parallel safe
	as $$ select (array['RUNNING', 'SUSPENDED', 'COMPLETED', 'TERMINATED', 'FAILED'])[status + 1] $$;
create function sutra.status_number(status text) returns bigint language sql immutable parallel safe
	as $$ select case status when 'RUNNING' then 0 when 'SUSPENDED' then 1 when 'COMPLETED' then 2
		when 'TERMINATED' then 3 when 'FAILED' then 4 end::bigint $$;

-- Row-level security. sutra_scan sees all tenants, and of each table the columns that it is granted.
alter table sutra.instance enable row level security;
alter table sutra.instance force row level security;
create policy tenant on sutra.instance
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
create policy scan_select on sutra.instance for select to sutra_scan using (true);
create policy scan_update on sutra.instance for update to sutra_scan using (true);

alter table sutra.wait enable row level security;
alter table sutra.wait force row level security;
create policy tenant on sutra.wait
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);

alter table sutra.alias enable row level security;
alter table sutra.alias force row level security;
create policy tenant on sutra.alias
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);

alter table sutra.inbox enable row level security;
alter table sutra.inbox force row level security;
create policy tenant on sutra.inbox
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
create policy scan_select on sutra.inbox for select to sutra_scan using (true);
create policy scan_delete on sutra.inbox for delete to sutra_scan using (true);

alter table sutra.outbox_entry enable row level security;
alter table sutra.outbox_entry force row level security;
create policy tenant on sutra.outbox_entry
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
create policy scan_select on sutra.outbox_entry for select to sutra_scan using (true);
create policy scan_update on sutra.outbox_entry for update to sutra_scan using (true);

alter table sutra.dead_letter enable row level security;
alter table sutra.dead_letter force row level security;
create policy tenant on sutra.dead_letter
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
