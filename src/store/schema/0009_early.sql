-- SPDX-License-Identifier: Apache-2.0
--
-- The early rows of a message, by a hash. As a tree this index looked no better than the primary key, which has the id second, on a table
-- that was just vacuumed empty, its normal state; and a plan made then read the whole primary key for each message when the table had
-- filled. A hash has no tree to descend, so it is the cheaper way at any size.
drop index sutra.early_message;
create index early_message on sutra.early using hash (message_id);
