-- SPDX-License-Identifier: Apache-2.0
--
-- Whether unfinished work still needs a deployment. A sweep that has looked at all of it says so; until then it counts as pinned.

alter table sutra.deployment add column pinned boolean not null default true;
