-- SPDX-License-Identifier: Apache-2.0
--
-- Kept messages: those whose body the database holds because the broker has them no more. Rows of one order key take effect
-- one after the other, by seq; the step that is the effect deletes the row. A row is the business of the replica that it names as
-- its keeper, for as long as that has its lease; then any other may take it over.

create table sutra.inbox_message (
	id           uuid             not null primary key,
	order_key    uuid             not null,
	seq          bigint           not null generated always as identity,
	tenant       text collate "C" not null,
	channel      text collate "C" not null,
	-- Where recovery looks. One column, so that the index by it is of no use to who gives only a tenant: the planner would
	-- take it for the one by key whenever both are empty.
	place        text collate "C" not null generated always as (tenant || ',' || channel) stored,
	kind         text collate "C" not null, -- overflow
	keeper       text collate "C",
	source       text,
	created_at   timestamptz      not null,
	unmatched_at timestamptz,
	envelope     bytea            not null,
	body         bytea
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05);
create index inbox_message_order on sutra.inbox_message (order_key, seq);
create index inbox_message_keeper on sutra.inbox_message (place, keeper, seq);

alter table sutra.inbox_message enable row level security;
alter table sutra.inbox_message force row level security;
create policy tenant on sutra.inbox_message
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
create policy scan_select on sutra.inbox_message for select to sutra_scan using (true);
