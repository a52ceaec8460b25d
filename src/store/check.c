/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the database would refuse, found before an element enters a batch that it would spoil for its neighbours: texts that
 * are not UTF-8 or hold a NUL, indexed texts too long for an index page, a unique wait twice in one element. Runs on the
 * requester's thread, where there is more room than on the store's.
 */
#include "base/buf.h"
#include "store/internal.h"

static bool text_is_valid(struct str text)
{
	return !text.len || (!memchr(text.ptr, '\0', text.len) && str_is_utf8(text));
}

static bool text_check(struct str text, size_t max, const char *what, struct error *err)
{
	if (text.len > max) {
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED,
			  "the %s has %zu bytes; at most %zu are allowed", what, text.len, max);
		return false;
	}
	if (!text_is_valid(text)) {
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED,
			  "the %s is not UTF-8 or holds a NUL", what);
		return false;
	}
	return true;
}

/* Tenants stand in a list with commas. */
static bool tenant_check(struct str tenant, struct error *err)
{
	if (!text_check(tenant, STORE_TEXT_MAX, "tenant", err))
		return false;
	if (!tenant.len || str_find(tenant, ',') >= 0) {
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED,
			  "the tenant is empty or holds a comma");
		return false;
	}
	return true;
}

static enum store_outcome outcome_of(bool ok)
{
	return ok ? STORE_OK : STORE_REJECTED;
}

enum store_outcome claim_check(const struct store_claim *claim, struct error *err)
{
	return outcome_of(tenant_check(claim->tenant, err) &&
			  text_check(claim->owner, STORE_TEXT_MAX, "owner", err));
}

enum store_outcome release_check(const struct store_release *release, struct error *err)
{
	return outcome_of(tenant_check(release->tenant, err) &&
			  text_check(release->owner, STORE_TEXT_MAX, "owner", err));
}

enum store_outcome resolve_check(const struct store_resolve *resolve, struct error *err)
{
	return outcome_of(tenant_check(resolve->tenant, err));
}

enum store_outcome probe_check(const struct store_probe *probe, struct error *err)
{
	return outcome_of(tenant_check(probe->tenant, err));
}

static bool correlation_check(const struct store_commit *commit, struct error *err)
{
	for (uint32_t i = 0; i < commit->waits_added_count; i++)
		if (!text_check(commit->waits_added[i].node, STORE_TEXT_MAX, "node", err) ||
		    !text_check(commit->waits_added[i].channel, STORE_TEXT_MAX, "channel", err))
			return false;
	for (uint32_t i = 0; i < commit->aliases_added_count; i++)
		if (!text_check(commit->aliases_added[i].name, STORE_TEXT_MAX, "alias name", err) ||
		    !text_check(commit->aliases_added[i].value, SIZE_MAX, "alias value", err))
			return false;
	return true;
}

static bool outbox_check(const struct store_commit *commit, struct error *err)
{
	for (uint32_t i = 0; i < commit->outbox_count; i++) {
		const struct outbox_row *row = &commit->outbox[i];

		if (row->tenant.ptr && !str_equal(row->tenant, commit->tenant)) {
			error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED,
				  "an outbox row is of another tenant than its commit");
			return false;
		}
		if (!text_check(row->channel, STORE_TEXT_MAX, "channel", err) ||
		    !text_check(row->deployment, STORE_TEXT_MAX, "deployment", err) ||
		    !text_check(row->connection, STORE_TEXT_MAX, "connection", err) ||
		    !text_check(row->destination, SIZE_MAX, "destination", err) ||
		    !text_check(row->content_type, SIZE_MAX, "content type", err))
			return false;
	}
	return true;
}

static bool kept_check(const struct store_commit *commit, struct error *err)
{
	bool ends = !id_is_none(commit->kept_removed);

	for (uint32_t i = 0; i < commit->early_count; i++)
		ends |= commit->early[i].is_kept;
	if (!text_check(commit->keeper, STORE_TEXT_MAX, "keeper", err))
		return false;
	if (ends && !commit->keeper.len) {
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED,
			  "a commit that ends a kept message, or marks it, names no keeper");
		return false;
	}
	for (uint32_t i = 0; i < commit->kept_added_count; i++)
		if (!text_check(commit->kept_added[i].channel, STORE_TEXT_MAX, "channel", err))
			return false;
	return true;
}

/* Past the year 9999 a time cannot be written any more. */
#define DUE_MAX_US INT64_C(253402300799999999)

static bool timers_check(const struct store_commit *commit, struct error *err)
{
	bool instance = commit->commit != COMMIT_NO_INSTANCE;

	if ((!instance && (commit->timers_added_count || commit->timers_removed_count)) ||
	    (commit->commit == COMMIT_RESUME && !id_is_none(commit->schedule.id))) {
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED, "the commit has timers that it cannot have");
		return false;
	}
	for (uint32_t i = 0; i < commit->timers_added_count; i++) {
		const struct store_timer_row *timer = &commit->timers_added[i];

		if (!text_check(timer->node, STORE_TEXT_MAX, "node", err))
			return false;
		if (timer->due_us > 0 && timer->due_us <= DUE_MAX_US)
			continue;
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED, "the timer of token %u is due out of range",
			  timer->token);
		return false;
	}
	return true;
}

/* The tables' call keys are at most STORE_TEXT_MAX bytes; see store_call_key. */
static bool sessions_check(const struct store_commit *commit, struct error *err)
{
	if (commit->commit == COMMIT_NO_INSTANCE && commit->session_count) {
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED, "the commit has a session and no instance");
		return false;
	}
	for (uint32_t i = 0; i < commit->session_count; i++)
		if (!text_check(commit->sessions[i].call_key, STORE_TEXT_MAX, "call key", err) ||
		    !text_check(commit->sessions[i].channel, STORE_TEXT_MAX, "channel", err))
			return false;
	for (uint32_t i = 0; i < commit->session_end_count; i++)
		if (!text_check(commit->session_ends[i].call_key, STORE_TEXT_MAX, "call key", err))
			return false;
	for (uint32_t i = 0; i < commit->outbox_count; i++)
		if (!text_check(commit->outbox[i].call_key, STORE_TEXT_MAX, "call key", err) ||
		    !text_check(commit->outbox[i].pool, STORE_TEXT_MAX, "pool", err))
			return false;
	return true;
}

static bool takes_check(const struct store_commit *commit, struct error *err)
{
	bool capped = commit->cap.channel_limit > 0 || commit->cap.tenant_limit > 0, has_channel = false;

	for (uint32_t i = 0; i < commit->session_count; i++)
		has_channel |= !commit->sessions[i].call_key.len && commit->sessions[i].channel.len;
	if (((capped || commit->slot_count) && commit->commit != COMMIT_SPAWN) || (commit->cap.channel_limit > 0 && !has_channel)) {
		error_set(err, RESULT_REJECT, CODE_RUNTIME_STORE_REJECTED, "the commit takes what it cannot have");
		return false;
	}
	for (uint32_t i = 0; i < commit->slot_count; i++)
		if (!text_check(commit->slots[i].call_key, STORE_TEXT_MAX, "call key", err) ||
		    !text_check(commit->slots[i].pool, STORE_TEXT_MAX, "pool", err))
			return false;
	return true;
}

/* Two tokens of one instance that want the same unique wait: no database is needed to see that one loses. */
static bool unique_wait_is_twice(const struct store_commit *commit)
{
	for (uint32_t i = 0; i < commit->waits_added_count; i++)
		for (uint32_t k = 0; commit->waits_added[i].unique && k < i; k++)
			if (commit->waits_added[k].unique &&
			    id_equal(commit->waits_added[i].key, commit->waits_added[k].key))
				return true;
	return false;
}

enum store_outcome commit_check(const struct store_commit *commit, struct error *err)
{
	if (!tenant_check(commit->tenant, err) ||
	    !text_check(commit->owner, STORE_TEXT_MAX, "owner", err) ||
	    !text_check(commit->deployment, STORE_TEXT_MAX, "deployment", err) ||
	    !text_check(commit->process, STORE_TEXT_MAX, "process", err) ||
	    !text_check(commit->code, STORE_TEXT_MAX, "code", err) ||
	    !correlation_check(commit, err) || !outbox_check(commit, err) ||
	    !kept_check(commit, err) || !timers_check(commit, err) ||
	    !sessions_check(commit, err) || !takes_check(commit, err))
		return STORE_REJECTED;
	return unique_wait_is_twice(commit) ? STORE_WAIT_NOT_UNIQUE : STORE_OK;
}

/* Length of the well-formed character at the front, 0 if there is none. */
static size_t character_length(struct str text)
{
	for (size_t len = 1; len <= 4 && len <= text.len; len++)
		if (str_is_utf8(str_make(text.ptr, len)))
			return text.ptr[0] == '\0' ? 0 : len;
	return 0;
}

struct str text_clean(struct arena *arena, struct str text)
{
	struct buf buf = BUF_INIT;
	struct str clean;

	if (text_is_valid(text))
		return text;
	while (text.len) {
		size_t len = character_length(text);

		buf_add_str(&buf, len ? str_make(text.ptr, len) : STR("\xef\xbf\xbd"));
		if (!len)
			len = 1;
		text = str_make(text.ptr + len, text.len - len);
	}
	clean = arena_str(arena, buf_str(&buf));
	buf_done(&buf);
	return clean;
}

uint64_t commit_size(const struct store_commit *commit)
{
	uint64_t size = 256 + commit->snapshot.len + commit->detail.len;

	size += 64ull *
		(commit->waits_added_count + commit->waits_removed_count + commit->inbox_key_count);
	size += 64ull * (commit->timers_added_count + commit->timers_removed_count);
	for (uint32_t i = 0; i < commit->aliases_added_count; i++)
		size += 64 + commit->aliases_added[i].value.len;
	for (uint32_t i = 0; i < commit->outbox_count; i++) {
		const struct outbox_row *row = &commit->outbox[i];

		size += 256 + row->body.len + row->headers.len + row->record_key.len +
			row->correlation.len;
	}
	for (uint32_t i = 0; i < commit->dead_letter_count; i++) {
		const struct dead_letter_row *dead = &commit->dead_letters[i];

		size += 256 + dead->payload.len + dead->headers.len + dead->record_key.len +
			dead->detail.len;
	}
	for (uint32_t i = 0; i < commit->kept_added_count; i++) {
		const struct kept_row *row = &commit->kept_added[i];

		size += 256 + row->body.len + row->envelope.len + row->source.len;
	}
	size += 128ull * (commit->session_count + commit->session_end_count + commit->slot_count);
	for (uint32_t i = 0; i < commit->early_count; i++)
		size += 64ull * (1 + commit->early[i].key_count);
	return size;
}
