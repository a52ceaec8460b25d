-- SPDX-License-Identifier: Apache-2.0
--
-- Timers. A row of sutra.timer is a token that waits for its time: it comes and goes with the commits of its instance, and whoever
-- leads reads it by its due time. A row of sutra.timer_schedule is a start timer: it is moved on by the commit of each spawn.

create table sutra.timer (
	instance_id   uuid             not null,
	token         bigint           not null,
	tenant        text collate "C" not null,
	node          text collate "C" not null,
	deployment_id text collate "C" not null,
	due_at        timestamptz      not null,
	primary key (instance_id, token)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05);
-- In order of (due, instance, token). The latter two as one expression, so that who looks for the timers of an instance is not offered this
-- index: on an empty table it looks as good as the right one.
create index timer_due on sutra.timer (due_at, (uuid_send(instance_id) || int8send(token)));

-- One row a start timer of a (tenant, module), whichever of its deployments is Active. Every fire updates it, so half of the page is
-- free and nothing but the key is indexed.
create table sutra.timer_schedule (
	id            uuid             not null primary key,
	tenant        text collate "C" not null,
	deployment_id text collate "C" not null, -- whose start event fires
	process       text collate "C" not null,
	node          text collate "C" not null,
	spec          text             not null, -- the timer as the model has it: another one begins anew
	next_at       timestamptz,               -- null: never again
	remaining     bigint           not null, -- fires after the next; -1: without end
	created_at    timestamptz      not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
	autovacuum_vacuum_cost_delay = 0);

alter table sutra.timer enable row level security;
alter table sutra.timer force row level security;
create policy tenant on sutra.timer
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
create policy scan_select on sutra.timer for select to sutra_scan using (true);

alter table sutra.timer_schedule enable row level security;
alter table sutra.timer_schedule force row level security;
create policy tenant on sutra.timer_schedule
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
