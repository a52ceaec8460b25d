-- SPDX-License-Identifier: Apache-2.0
--
-- Early messages: kept messages that nobody waits for yet, by the keys of the waits that they look for. A step that parks looks
-- here, after its commit, for what has come before it. The rows of a message come and go in the commits that keep and end it.

create table sutra.early (
	key        uuid             not null, -- as sutra.wait has it
	message_id uuid             not null,
	tenant     text collate "C" not null,
	primary key (key, message_id)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05);
create index early_message on sutra.early (message_id);

alter table sutra.early enable row level security;
alter table sutra.early force row level security;
create policy tenant on sutra.early
	using (strpos((select current_setting('sutra.tenant', true)), ',' || tenant || ',') > 0);
