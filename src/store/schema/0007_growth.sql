-- SPDX-License-Identifier: Apache-2.0
--
-- What was found out by reading whole tables.

-- An outbox row by the id that lists show, to be sent again: those that nobody is sending, among them the poisoned ones. Rows that are
-- committed claimed never enter it. "Nobody" is written in a way of its own, so that who looks for unclaimed rows is not offered this
-- index: on an empty table it looks as good as the right one.
create index outbox_entry_idle on sutra.outbox_entry (id) where length(coalesce(claim_owner, '')) = 0;

-- Whether unfinished work still needs a deployment. A sweep that has looked at all of it says so; until then it counts as pinned.

alter table sutra.deployment add column pinned boolean not null default true;
