/* SPDX-License-Identifier: Apache-2.0 */
/* What a commit writes of messages that had no effect: dead letters, kept messages, and what those look for. */
#include "store/segment.h"

/* One of the id that the commit would remove: it stays, with what it says now. */
static bool dead_letter_is_replay(const struct store_commit *commit, const struct dead_letter_row *dead)
{
	return !id_is_none(commit->dead_letter_removed) && id_equal(dead->id, commit->dead_letter_removed);
}

void build_dead_letters(struct batch *batch, enum statement_id statement, bool replays)
{
	uint32_t count = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->dead_letter_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	count = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->dead_letter_count; k++)
			if (dead_letter_is_replay(commit, &commit->dead_letters[k]) == replays)
				refs[count++] = (struct key_ref){commit->dead_letters[k].id, ID_NONE, i, k};
	}
	if (!count)
		return;
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, statement, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct dead_letter_row *dead = &commit->dead_letters[refs[i].row];

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, dead->id);
		set_str(&c[3], i, text_clean(&batch->arena, dead->channel));
		set_str(&c[4], i, text_clean(&batch->arena, dead->event_id));
		set_str(&c[5], i, text_clean(&batch->arena, dead->source));
		set_str(&c[6], i, text_clean(&batch->arena, dead->message_type));
		set_str(&c[7], i, str_of(code_text(dead->code)));
		set_str(&c[8], i, text_clean(&batch->arena, dead->detail));
		set_id(&c[9], i, dead->instance);
		set_str(&c[10], i, dead->record_key);
		set_str(&c[11], i, dead->headers);
		set_str(&c[12], i, text_clean(&batch->arena, dead->content_type));
		set_str(&c[13], i, dead->payload);
	}
}

/* Of replays that have had their effect. */
void build_dead_letter_deletes(struct batch *batch)
{
	struct key_ref *refs = arena_alloc(&batch->arena, (batch->count + 1) * sizeof(*refs));
	uint32_t count = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);
		bool stays = false;

		for (uint32_t k = 0; k < commit->dead_letter_count; k++)
			stays |= dead_letter_is_replay(commit, &commit->dead_letters[k]);
		if (!stays && !id_is_none(commit->dead_letter_removed))
			refs[count++] = (struct key_ref){commit->dead_letter_removed, ID_NONE, i, 0};
	}
	if (!count)
		return;
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_DEAD_LETTER_DELETE, count);
	for (uint32_t i = 0; i < count; i++) {
		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit_of(batch->elements[refs[i].ord])->tenant);
		set_id(&c[2], i, refs[i].key);
	}
}

/* By order key and then as they stand in their element: `seq` grows in this order. */
void build_kept(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->kept_added_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->kept_added_count; k++)
			refs[at++] = (struct key_ref){commit->kept_added[k].order_key, ID_NONE, i, k};
	}
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_KEPT_INSERT, count);
	for (uint32_t i = 0; i < count; i++) {
		struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct kept_row *row = &commit->kept_added[refs[i].row];

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, row->id);
		set_id(&c[3], i, row->order_key);
		set_str(&c[4], i, row->channel);
		set_str(&c[5], i, str_of(kept_kind_name(row->kind)));
		set_str(&c[6], i, commit->keeper.len ? commit->keeper : STR_NONE);
		set_str(&c[7], i, text_clean(&batch->arena, row->source));
		set_str(&c[8], i, row->envelope.ptr ? row->envelope : STR(""));
		set_str(&c[9], i, row->body);
		set_int(&c[10], i, row->unmatched_us ? row->unmatched_us : COLUMN_TIME_NULL);
	}
}

/* Marks what was kept before; then the early rows of all, by key. */
void build_early(struct batch *batch)
{
	uint32_t marks = 0, keys = 0, at = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->early_count; k++) {
			marks += commit->early[k].is_kept;
			keys += commit->early[k].key_count;
		}
	}
	refs = arena_alloc(&batch->arena, (marks + keys + 1) * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->early_count; k++)
			if (commit->early[k].is_kept)
				refs[at++] = (struct key_ref){commit->early[k].message, ID_NONE, i, k};
	}
	if (marks) {
		qsort(refs, marks, sizeof(*refs), key_ref_compare);
		c = segment_call(batch, STATEMENT_EARLY_MARK, marks);
		for (uint32_t i = 0; i < marks; i++) {
			struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);

			set_int(&c[0], i, refs[i].ord);
			set_str(&c[1], i, commit->tenant);
			set_id(&c[2], i, refs[i].key);
			set_str(&c[3], i, commit->keeper);
			set_int(&c[4], i, commit->early[refs[i].row].unmatched_us);
		}
	}
	at = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->early_count; k++)
			for (uint32_t n = 0; n < commit->early[k].key_count; n++)
				refs[at++] = (struct key_ref){commit->early[k].keys[n], commit->early[k].message, i, k};
	}
	if (!keys)
		return;
	qsort(refs, keys, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_EARLY_INSERT, keys);
	for (uint32_t i = 0; i < keys; i++) {
		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit_of(batch->elements[refs[i].ord])->tenant);
		set_id(&c[2], i, refs[i].key);
		set_id(&c[3], i, refs[i].slot);
	}
}
