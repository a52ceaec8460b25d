/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a commit writes of sessions and slots. First the sessions' own rows are locked, then their rows come and end, then rows of the
 * outbox that waited for an ended call need no slot any more, then slots go back; and last of all, for who holds a pool's row holds up
 * all replicas, caps and pools are locked, and in statements of their own counted and taken from.
 *
 * Statements that end things are given instances, not what ends: what they look for is what has ended by then. A commit without sessions
 * has none of these statements.
 */
#include "store/segment.h"

static const struct store_session_row *own_session(const struct store_commit *commit)
{
	for (uint32_t i = 0; i < commit->session_count; i++)
		if (!commit->sessions[i].call_key.len)
			return &commit->sessions[i];
	return NULL;
}

/* Whether a call of the spawn has ended in the spawn's own commit. */
static bool ends_at_once(const struct store_commit *commit, struct str call_key)
{
	for (uint32_t i = 0; i < commit->session_end_count; i++) {
		const struct store_session_end *end = &commit->session_ends[i];

		if (end->what == STORE_END_ALL || end->what == STORE_END_INBOUND ||
		    (end->what == STORE_END_CALL_KEY && str_equal(end->call_key, call_key)))
			return true;
	}
	return false;
}

/* Whether the instance counts once the spawn has committed. */
static bool counts_on(const struct store_commit *commit)
{
	const struct store_session_row *own = own_session(commit);

	if (!own || !own->counts)
		return false;
	for (uint32_t i = 0; i < commit->session_end_count; i++)
		if (commit->session_ends[i].what == STORE_END_ALL || commit->session_ends[i].what == STORE_END_INBOUND)
			return false;
	for (uint32_t i = 0; i < commit->session_count; i++)
		if (commit->sessions[i].inbound && ends_at_once(commit, commit->sessions[i].call_key))
			return false;
	return true;
}

/* --- instances whose sessions the batch is about --- */

enum session_choice {
	SESSIONS_LOCKED,   /* of which anything changes, but for those that nobody knows yet */
	SESSIONS_UNPOOLED, /* that end, or get rows that wait */
	SESSIONS_ENDED,
};

static bool waits_added(const struct store_commit *commit)
{
	for (uint32_t i = 0; i < commit->outbox_count; i++)
		if (outbox_row_waits(commit, &commit->outbox[i]))
			return true;
	return false;
}

/* Adds the instance of which the element's `at`-th end is, or the element's own behind those; false when there are no more. */
static bool session_of(const struct store_commit *commit, uint32_t at, enum session_choice choice, struct id *instance)
{
	*instance = ID_NONE;
	if (at < commit->session_end_count) {
		if (commit->session_ends[at].what != STORE_END_NOTHING &&
		    !(choice == SESSIONS_LOCKED && commit->commit == COMMIT_SPAWN))
			*instance = commit->session_ends[at].instance;
		return true;
	}
	if (at > commit->session_end_count)
		return false;
	if (choice == SESSIONS_LOCKED ? commit->commit == COMMIT_RESUME && (commit->session_count || waits_added(commit))
				      : choice == SESSIONS_UNPOOLED && waits_added(commit))
		*instance = commit->instance;
	return true;
}

/* Each instance once, by id: in other commits of the batch none of these is named. */
static struct key_ref *session_refs(struct batch *batch, enum session_choice choice, uint32_t *count)
{
	uint32_t total = 0, kept = 0;
	struct key_ref *refs;
	struct id instance;

	for (uint32_t i = 0; i < batch->count; i++)
		total += commit_of(batch->elements[i])->session_end_count + 1;
	refs = arena_alloc(&batch->arena, total * sizeof(*refs));
	*count = 0;
	for (uint32_t i = 0; i < batch->count; i++)
		for (uint32_t at = 0; session_of(commit_of(batch->elements[i]), at, choice, &instance); at++)
			if (!id_is_none(instance))
				refs[(*count)++] = (struct key_ref){instance, ID_NONE, i, 0};
	qsort(refs, *count, sizeof(*refs), key_ref_compare);
	for (uint32_t i = 0; i < *count; i++)
		if (!kept || !id_equal(refs[kept - 1].key, refs[i].key))
			refs[kept++] = refs[i];
	*count = kept;
	return refs;
}

static void build_instances_of(struct batch *batch, enum statement_id statement, enum session_choice choice)
{
	uint32_t count;
	struct key_ref *refs = session_refs(batch, choice, &count);
	struct column *c;

	if (!count)
		return;
	c = segment_call(batch, statement, count);
	for (uint32_t i = 0; i < count; i++) {
		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit_of(batch->elements[refs[i].ord])->tenant);
		set_id(&c[2], i, refs[i].key);
	}
}

/* --- rows of sessions --- */

struct session_ref {
	const struct store_commit *commit;
	const struct store_session_row *row;
	uint32_t ord;
};

static int session_ref_compare(const void *a, const void *b)
{
	const struct session_ref *x = a, *y = b;
	int order = memcmp(&x->commit->instance, &y->commit->instance, sizeof(struct id));

	if (!order)
		order = str_compare(x->row->call_key, y->row->call_key);
	/* Of two of one key the later says which token waits. */
	return order ? order : (x->row > y->row) - (x->row < y->row);
}

static bool session_ref_is_same(const struct session_ref *a, const struct session_ref *b)
{
	return id_equal(a->commit->instance, b->commit->instance) && str_equal(a->row->call_key, b->row->call_key);
}

/* The inbound call stays so under a call of the same key. */
static void session_ref_put(struct column *c, uint32_t at, const struct session_ref *ref, bool inbound, uint32_t token)
{
	set_int(&c[0], at, ref->ord);
	set_str(&c[1], at, ref->commit->tenant);
	set_id(&c[2], at, ref->commit->instance);
	set_str(&c[3], at, ref->row->call_key.ptr ? ref->row->call_key : STR(""));
	set_str(&c[4], at, ref->row->channel.len ? ref->row->channel : STR_NONE);
	set_bool(&c[5], at, inbound);
	set_bool(&c[6], at, ref->row->counts);
	set_int(&c[7], at, token);
}

static void build_session_rows(struct batch *batch)
{
	uint32_t count = 0, distinct = 0, at = 0;
	struct session_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->session_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->session_count; k++)
			refs[at++] = (struct session_ref){commit, &commit->sessions[k], i};
	}
	qsort(refs, count, sizeof(*refs), session_ref_compare);
	for (uint32_t i = 0; i < count; i++)
		distinct += !i || !session_ref_is_same(&refs[i - 1], &refs[i]);
	c = segment_call(batch, STATEMENT_SESSION_INSERT, distinct);
	at = 0;
	for (uint32_t i = 0; i < count; at++) {
		const struct session_ref *first = &refs[i];
		bool inbound = false;
		uint32_t token = 0;

		for (; i < count && session_ref_is_same(first, &refs[i]); i++) {
			inbound |= refs[i].row->inbound;
			token = refs[i].row->token ? refs[i].row->token : token;
		}
		session_ref_put(c, at, first, inbound, token);
	}
}

static void build_session_ends(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct key_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += commit_of(batch->elements[i])->session_end_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->session_end_count; k++)
			refs[at++] = (struct key_ref){commit->session_ends[k].instance, ID_NONE, i, k};
	}
	qsort(refs, count, sizeof(*refs), key_ref_compare);
	c = segment_call(batch, STATEMENT_SESSION_END, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);
		const struct store_session_end *end = &commit->session_ends[refs[i].row];

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, end->instance);
		set_int(&c[3], i, end->what);
		set_str(&c[4], i, end->call_key.ptr ? end->call_key : STR(""));
		set_int(&c[5], i, end->token);
	}
}

/* Most commits have none of all this. */
static bool has_sessions(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[i]);

		if (commit->session_count || commit->session_end_count || waits_added(commit))
			return true;
	}
	return false;
}

void build_sessions(struct batch *batch)
{
	if (!has_sessions(batch))
		return;
	build_instances_of(batch, STATEMENT_SESSION_LOCK, SESSIONS_LOCKED);
	build_session_rows(batch);
	build_session_ends(batch);
}

void build_slot_ends(struct batch *batch)
{
	if (!has_sessions(batch))
		return;
	build_instances_of(batch, STATEMENT_OUTBOX_POOL_LOCK, SESSIONS_ENDED);
	build_instances_of(batch, STATEMENT_OUTBOX_UNPOOL, SESSIONS_UNPOOLED);
	build_instances_of(batch, STATEMENT_SLOT_DELETE, SESSIONS_ENDED);
}

/* --- caps --- */

static bool takes_cap(const struct store_commit *commit, bool channel)
{
	return !commit->skips_caps && (channel ? commit->cap.channel_limit : commit->cap.tenant_limit) > 0;
}

static struct str cap_channel(const struct store_commit *commit)
{
	const struct store_session_row *own = own_session(commit);

	return own ? own->channel : STR_NONE;
}

static int64_t cap_scope(const struct store_commit *commit, bool channel)
{
	struct id key = channel ? id_digest_of(STR("channel cap"), commit->tenant, cap_channel(commit))
				: id_digest_of(STR("tenant cap"), commit->tenant);
	int64_t scope;

	memcpy(&scope, key.bytes, sizeof(scope));
	return scope;
}

static int scope_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void build_cap_locks(struct batch *batch)
{
	int64_t *scopes = arena_alloc(&batch->arena, 2 * (batch->count + 1) * sizeof(*scopes));
	uint32_t count = 0, kept = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		for (int channel = 0; channel < 2; channel++)
			if (takes_cap(commit_of(batch->elements[i]), channel))
				scopes[count++] = cap_scope(commit_of(batch->elements[i]), channel);
	if (!count)
		return;
	qsort(scopes, count, sizeof(*scopes), scope_compare);
	for (uint32_t i = 0; i < count; i++)
		if (!kept || scopes[kept - 1] != scopes[i])
			scopes[kept++] = scopes[i];
	c = segment_call(batch, STATEMENT_CAP_LOCK, kept);
	for (uint32_t i = 0; i < kept; i++)
		set_int(&c[0], i, scopes[i]);
}

static void build_cap(struct batch *batch, bool channel)
{
	uint32_t count = 0, at = 0;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		count += takes_cap(commit_of(batch->elements[i]), channel);
	if (!count)
		return;
	c = segment_call(batch, channel ? STATEMENT_CAP_CHANNEL : STATEMENT_CAP_TENANT, count);
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[i]);
		uint32_t column = 2;

		if (!takes_cap(commit, channel))
			continue;
		set_int(&c[0], at, i);
		set_str(&c[1], at, commit->tenant);
		if (channel)
			set_str(&c[column++], at, cap_channel(commit));
		set_int(&c[column++], at, channel ? commit->cap.channel_limit : commit->cap.tenant_limit);
		set_bool(&c[column], at, counts_on(commit));
		at++;
	}
}

/* --- pools --- */

struct slot_ref {
	const struct store_slot_row *slot;
	uint32_t ord;
};

static int slot_ref_compare(const void *a, const void *b)
{
	const struct slot_ref *x = a, *y = b;
	int order = str_compare(x->slot->pool, y->slot->pool);

	return order ? order : (x->ord > y->ord) - (x->ord < y->ord);
}

static void build_pool_locks(struct batch *batch, const struct slot_ref *refs, uint32_t count)
{
	uint32_t distinct = 0, at = 0;
	struct column *c;

	for (uint32_t i = 0; i < count; i++)
		distinct += !i || !str_equal(refs[i - 1].slot->pool, refs[i].slot->pool);
	c = segment_call(batch, STATEMENT_POOL_LOCK, distinct);
	for (uint32_t i = 0; i < count; i++)
		if (!i || !str_equal(refs[i - 1].slot->pool, refs[i].slot->pool))
			set_str(&c[0], at++, refs[i].slot->pool);
}

static void build_slots(struct batch *batch)
{
	uint32_t count = 0, at = 0;
	struct slot_ref *refs;
	struct column *c;

	for (uint32_t i = 0; i < batch->count; i++)
		if (!commit_of(batch->elements[i])->skips_slots)
			count += commit_of(batch->elements[i])->slot_count;
	if (!count)
		return;
	refs = arena_alloc(&batch->arena, count * sizeof(*refs));
	for (uint32_t i = 0; i < batch->count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->slot_count && !commit->skips_slots; k++)
			refs[at++] = (struct slot_ref){&commit->slots[k], i};
	}
	qsort(refs, count, sizeof(*refs), slot_ref_compare);
	build_pool_locks(batch, refs, count);
	c = segment_call(batch, STATEMENT_SLOT_TAKE, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct store_commit *commit = commit_of(batch->elements[refs[i].ord]);

		set_int(&c[0], i, refs[i].ord);
		set_str(&c[1], i, commit->tenant);
		set_str(&c[2], i, refs[i].slot->pool);
		set_id(&c[3], i, commit->instance);
		set_str(&c[4], i, refs[i].slot->call_key);
		set_bool(&c[5], i, !ends_at_once(commit, refs[i].slot->call_key));
	}
}

void build_takes(struct batch *batch)
{
	if (batch->kind != STORE_TAKE)
		return;
	build_cap_locks(batch);
	build_cap(batch, true);
	build_cap(batch, false);
	build_slots(batch);
}

/* --- what went back --- */

void sessions_forget(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		commit->freed = NULL;
		commit->freed_count = 0;
		commit->unpooled = false;
	}
}

void take_unpooled(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		int64_t ord = rows_at(rows, i, 0)->i;

		assert(ord >= 0 && ord < batch->count);
		commit_of(batch->elements[ord])->unpooled = true;
	}
}

static bool is_freed(const struct store_commit *commit, struct str pool)
{
	for (uint32_t i = 0; i < commit->freed_count; i++)
		if (str_equal(commit->freed[i], pool))
			return true;
	return false;
}

void take_freed(struct batch *batch, const struct rows *rows)
{
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct store_commit *commit;
		struct str *freed;

		assert(f[0].i >= 0 && f[0].i < batch->count);
		commit = commit_of(batch->elements[f[0].i]);
		if (is_freed(commit, f[1].str))
			continue;
		freed = arena_alloc(commit->base.arena, (commit->freed_count + 1) * sizeof(*freed));
		if (commit->freed_count)
			memcpy(freed, commit->freed, commit->freed_count * sizeof(*freed));
		freed[commit->freed_count++] = segment_field(commit->base.arena, &f[1]);
		commit->freed = freed;
	}
}
