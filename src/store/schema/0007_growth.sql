-- SPDX-License-Identifier: Apache-2.0
--
-- What was found out by reading whole tables.

-- Which unclaimed rows stand behind another of their group, as far as is known: nobody can send them, so the scan is spared them. While
-- a broker is away they are most of the table. Whoever claims a row next in its group does not look at it, and the sweep sets it right.
alter table sutra.outbox_entry add column behind boolean not null default false;
drop index sutra.outbox_entry_due;
create index outbox_entry_due on sutra.outbox_entry (tenant, next_attempt_at)
	where claim_owner is null and not poisoned and not behind;

-- An outbox row by the id that lists show, to be sent again: those that nobody is sending, among them the poisoned ones. Rows that are
-- committed claimed never enter it. "Nobody" is written in a way of its own, so that who looks for unclaimed rows is not offered this
-- index: on an empty table it looks as good as the right one.
create index outbox_entry_idle on sutra.outbox_entry (id) where length(coalesce(claim_owner, '')) = 0;

-- Whether unfinished work still needs a deployment. A sweep that has looked at all of it says so; until then it counts as pinned.

alter table sutra.deployment add column pinned boolean not null default true;
