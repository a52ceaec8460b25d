-- SPDX-License-Identifier: Apache-2.0
--
-- Dead letters: how often each was replayed, and what the removal of old ones looks for.

alter table sutra.dead_letter add column replays bigint not null default 0;
create index dead_letter_age on sutra.dead_letter (created_at);

create policy scan_select on sutra.dead_letter for select to sutra_scan using (true);
create policy scan_delete on sutra.dead_letter for delete to sutra_scan using (true);
