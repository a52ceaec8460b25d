/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits in doubt: the connection was lost after the Sync was sent, so the segment may have committed, or may yet.
 *
 *  1 Terminate the backend that ran it and ask until it is gone. From here on nothing changes any more. A crash before: the
 *    backend commits or dies by itself; the redelivery meets its rows in the gates.
 *  2 Ask for the status of its transaction until it is not in progress. "aborted": nothing was written, the elements run
 *    again.
 *  3 "committed" is no proof: a server that crashed, or that another took over from, gives the ids of transactions that left
 *    nothing in the log a second time, and then it may be another's. (An id whose commit is in the log is not given again,
 *    so "aborted" is one.) As if the transaction's id never came, or the server did not know it: unknown. The elements
 *    run again unchanged, and what fails a gate now is judged, since it may have failed it to its own first run:
 *
 *    - A spawn has committed iff its instance is there: ids are never used twice. (Its inbox row and its aliases come
 *      before the instance in a segment, so its own "duplicate" or "alias taken" must not be believed.)
 *    - A resume with the version as claimed and the owner still there has not committed: the fence failed to a lock, or
 *      another gate said the truth.
 *    - A resume whose version has moved on: by this commit, or by another owner after the claim had timed out. If one of its
 *      inbox keys leads to this instance, the event has had its effect there, once, whoever brought it about: committed.
 *      Without inbox keys (timers, operators) it is ours if the version is exactly one further and the stored snapshot and
 *      status are the ones we wrote, or if rows of it stand in the outbox with our stamp: nobody else writes such. Otherwise
 *      FENCED: the work is looked up anew.
 *    - A commit without an instance writes only what may be written twice; its own "duplicate" is as good as "committed".
 *    - A kept message that is to be removed and still there, the keeper's: not committed, and the gate failed to a lock. Gone: a
 *      commit without an instance, which ends the message or moves it to the dead letters, is taken for committed. Somebody else
 *      may have been first, in whose keeping it was by then; but then the message has had its effect or its end there, with all
 *      that belongs to it, and nothing is left to do. Of a spawn or a resume that would say that the effect is this instance's,
 *      so there the instance decides as above, and the message counts as lost if it is not.
 *    - A start timer that stands as expected: not committed, and the gate failed to a lock. Else a spawn has committed iff its instance
 *      is there, as above. Without an instance (the start was rejected) it is taken for committed if the row stands as the element
 *      leaves it: whoever brought it there, nothing else is left to do.
 *
 *  4 The answer to the insert of outbox rows was lost, and with it which rows are committed claimed by us. Renewing the
 *    stamps tells, and makes them fresh, as the publisher's own deadline requires. It is asked until it is answered: were rows
 *    taken for not ours that are, the next step of the instance would still find them ours, and its rows would go first (G6).
 */
#include <stdio.h>

#include "base/time.h"
#include "store/internal.h"

#define POLL_US  (50 * US_PER_MS)
#define PAUSE_US (500 * US_PER_MS)

static struct store_commit *commit_of(struct store_request *request)
{
	return container_of(request, struct store_commit, base);
}

static void phase(struct batch *batch, void (*build)(struct batch *),
		  void (*finish)(struct batch *))
{
	batch->build = build;
	batch->finish = finish;
	batch->class = CONN_QUARANTINE;
}

static void status_build(struct batch *batch);
static void status_finish(struct batch *batch);

/* --- 1 the backend --- */

static void terminate_build(struct batch *batch)
{
	struct column *c;

	segment_begin(batch, 1);
	c = segment_call(batch, STATEMENT_BACKEND_TERMINATE, 0);
	set_int(&c[0], 0, batch->backend_pid);
	set_int(&c[1], 0, batch->backend_start_us);
	set_str(&c[2], 0, str_of(batch->application));
}

static void backend_is_gone(struct batch *batch)
{
	if (!batch->xid) {
		doubt_unknown(batch);
		return;
	}
	phase(batch, status_build, status_finish);
	batch_ready(batch);
}

static void terminate_finish(struct batch *batch)
{
	const struct rows *rows = &batch->own.calls[0].rows;

	if (batch->segment->outcome != SEGMENT_COMMITTED) {
		batch_ready_later(batch, PAUSE_US);
		return;
	}
	if (rows->row_count && rows_at(rows, 0, 0)->b)
		backend_is_gone(batch);
	else
		batch_ready_later(batch, POLL_US);
}

/* --- 2 the transaction --- */

static void status_build(struct batch *batch)
{
	segment_begin(batch, 1);
	set_int(segment_call(batch, STATEMENT_XACT_STATUS, 0), 0, (int64_t)batch->xid);
}

static void aborted(struct batch *batch)
{
	batch->in_doubt = false;
	batch->class = batch->quarantined ? CONN_QUARANTINE : CONN_STEP;
	batch_path(batch);
	batch_ready(batch);
}

static void status_finish(struct batch *batch)
{
	const struct segment *segment = batch->segment;
	const struct rows *rows = &batch->own.calls[0].rows;
	const struct field *status;

	/* A server that took over without this transaction says that its id lies in the future. */
	if (segment->outcome == SEGMENT_ERROR &&
	    error_class(segment->sqlstate) == ERROR_CLASS_ELEMENT) {
		doubt_unknown(batch);
		return;
	}
	if (segment->outcome != SEGMENT_COMMITTED || !rows->row_count) {
		batch_ready_later(batch, PAUSE_US);
		return;
	}
	status = rows_at(rows, 0, 0);
	if (status->is_null || str_equal(status->str, STR("committed")))
		doubt_unknown(batch);
	else if (str_equal(status->str, STR("aborted")))
		aborted(batch);
	else
		batch_ready_later(batch, POLL_US);
}

/* --- 3 judgement --- */

static void judge_build(struct batch *batch)
{
	struct store_commit *commit = commit_of(batch->elements[0]);
	struct column *c;

	segment_begin(batch, 4);
	set_id(segment_call(batch, STATEMENT_INSTANCE_GET, 0), 0, commit->instance);
	if (!id_is_none(commit->kept_removed)) {
		c = segment_call(batch, STATEMENT_KEPT_OWNER, 1);
		set_int(&c[0], 0, 0);
		set_str(&c[1], 0, commit->tenant);
		set_id(&c[2], 0, commit->kept_removed);
	}
	if (!id_is_none(commit->schedule.id)) {
		c = segment_call(batch, STATEMENT_SCHEDULE_PROBE, 1);
		set_int(&c[0], 0, 0);
		set_str(&c[1], 0, commit->tenant);
		set_id(&c[2], 0, commit->schedule.id);
	}
	if (!commit->inbox_key_count)
		return;
	c = segment_call(batch, STATEMENT_INBOX_PROBE, commit->inbox_key_count);
	for (uint32_t i = 0; i < commit->inbox_key_count; i++) {
		set_int(&c[0], i, i);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, commit->inbox_keys[i]);
	}
}

/* What was found; NULL if it was not asked. */
static const struct rows *judge_rows(const struct batch *batch, enum statement_id statement)
{
	for (uint32_t i = 0; i < batch->own.call_count; i++)
		if (batch->own.calls[i].statement == statement)
			return &batch->own.calls[i].rows;
	return NULL;
}

/* The kept message that the element removes. */
static bool kept_is_gone(const struct batch *batch)
{
	const struct rows *rows = judge_rows(batch, STATEMENT_KEPT_OWNER);

	return rows && !rows->row_count;
}

static bool kept_is_ours(const struct batch *batch, const struct store_commit *commit)
{
	const struct rows *rows = judge_rows(batch, STATEMENT_KEPT_OWNER);

	return rows && rows->row_count && !rows_at(rows, 0, 1)->is_null &&
	       str_equal(rows_at(rows, 0, 1)->str, commit->keeper);
}

/* The start timer's row, or NULL: not asked, or not there. */
static const struct field *schedule_row(const struct batch *batch)
{
	const struct rows *rows = judge_rows(batch, STATEMENT_SCHEDULE_PROBE);

	return rows && rows->row_count ? rows_at(rows, 0, 0) : NULL;
}

static bool schedule_is_due(const struct batch *batch, const struct store_commit *commit)
{
	const struct field *f = schedule_row(batch);

	return f && !f[2].is_null && f[2].i == commit->schedule.expected_us;
}

/* Whether it stands as the element was to leave it. */
static bool schedule_is_advanced(const struct batch *batch, const struct store_commit *commit)
{
	const struct field *f = schedule_row(batch);

	return f && !schedule_is_due(batch, commit) && f[3].i == commit->schedule.remaining &&
	       (f[2].is_null ? 0 : f[2].i) == commit->schedule.next_us;
}

static bool inbox_leads_to(const struct batch *batch, struct id instance)
{
	const struct rows *rows = judge_rows(batch, STATEMENT_INBOX_PROBE);

	for (uint32_t i = 0; rows && i < rows->row_count; i++) {
		const struct field *owner = rows_at(rows, i, 1);

		if (!owner->is_null && id_equal(owner->id, instance))
			return true;
	}
	return false;
}

/* Columns of INSTANCE_GET. */
enum { GET_STATUS = 4, GET_VERSION = 5, GET_OWNER = 10, GET_SNAPSHOT = 12 };

/* True when the element is known to have committed; else *verdict is its answer, or STORE_OK for "run again alone". */
static bool resume_judge(const struct batch *batch, const struct store_commit *commit,
			 enum store_outcome *verdict)
{
	const struct rows *rows = &batch->own.calls[0].rows;
	const struct field *f;

	if (!rows->row_count) {
		*verdict = STORE_FENCED;
		return false;
	}
	f = rows_at(rows, 0, 0);
	if (f[GET_VERSION].i <= commit->version) {
		if (batch->verdict_gate != GATE_FENCE)
			return false;
		*verdict = !f[GET_OWNER].is_null && str_equal(f[GET_OWNER].str, commit->owner) &&
					   f[GET_VERSION].i == commit->version
				   ? STORE_OK
				   : STORE_FENCED;
		return false;
	}
	if (commit->inbox_key_count && inbox_leads_to(batch, commit->instance))
		return true;
	*verdict = STORE_FENCED;
	return !commit->inbox_key_count && f[GET_VERSION].i == commit->version + 1 &&
	       f[GET_STATUS].i == commit->status && !f[GET_SNAPSHOT].is_null &&
	       str_equal(f[GET_SNAPSHOT].str, commit->snapshot);
}

static void stamps_build(struct batch *batch);
static void stamps_finish(struct batch *batch);

/* Fenced off, as it seems; but the instance may have moved on from what this very commit has made of it. */
static bool stamps_may_tell(const struct batch *batch, const struct store_commit *commit, enum store_outcome verdict)
{
	return verdict == STORE_FENCED && commit->outbox_count && batch->store->outbox_owner;
}

static void judge_take(struct batch *batch)
{
	struct store_commit *commit = commit_of(batch->elements[0]);
	enum store_outcome verdict = batch->verdict;
	bool committed;

	if (commit->commit == COMMIT_RESUME)
		committed = resume_judge(batch, commit, &verdict);
	else if (commit->commit == COMMIT_SPAWN)
		committed = batch->own.calls[0].rows.row_count > 0;
	else
		committed = kept_is_gone(batch) || schedule_is_advanced(batch, commit);
	if (!committed && verdict == STORE_KEPT_LOST && kept_is_ours(batch, commit))
		verdict = STORE_OK;
	/* What is full now is asked for again, as by one that is new. */
	if (!committed && gate_is_take(batch->verdict_gate))
		verdict = STORE_OK;
	if (!committed && verdict == STORE_SCHEDULE_MOVED && schedule_is_due(batch, commit))
		verdict = STORE_OK;
	if (committed || (verdict == STORE_OK && batch->verdict_gate == GATE_EXISTS)) {
		doubt_committed(batch);
		return;
	}
	if (stamps_may_tell(batch, commit, verdict)) {
		batch->verdict = verdict;
		phase(batch, stamps_build, stamps_finish);
		batch_ready(batch);
		return;
	}
	/* It has not, and its backend is gone: from here on it is an element like any other. */
	batch->in_doubt = batch->doubtful = false;
	if (verdict == STORE_OK)
		gates_quarantine(batch);
	else
		store_answer_all(batch, verdict, batch->verdict_text);
}

static void judge_finish(struct batch *batch)
{
	if (batch->segment->outcome == SEGMENT_COMMITTED)
		judge_take(batch);
	else
		batch_ready_later(batch, PAUSE_US);
}

void doubt_judge(struct batch *batch, enum store_outcome verdict, enum gate gate, const char *text)
{
	assert(batch->count == 1);
	batch->in_doubt = true;
	batch->verdict = verdict;
	batch->verdict_gate = gate;
	snprintf(batch->verdict_text, sizeof(batch->verdict_text), "%s", text);
	phase(batch, judge_build, judge_finish);
	batch_ready(batch);
}

/* --- 4 the outbox rows of what has committed --- */

static void stamps_build(struct batch *batch)
{
	struct column *c;

	segment_begin(batch, 1);
	batch->own.writes = true;
	segment_outbox_sort(batch);
	c = segment_call(batch, STATEMENT_OUTBOX_RENEW, batch->outbox_count);
	for (uint32_t i = 0; i < batch->outbox_count; i++) {
		const struct outbox_row *row = batch->outbox[i].row;

		set_str(&c[0], i, row->tenant);
		set_id(&c[1], i, row->instance);
		set_str(&c[2], i, row->channel);
		set_int(&c[3], i, row->version);
		set_int(&c[4], i, row->ordinal);
	}
	set_str(&c[5], 0, str_of(batch->store->outbox_owner));
}

static bool stamps_found(struct batch *batch)
{
	const struct store_commit *commit = commit_of(batch->elements[0]);
	bool found = false;

	segment_outbox_claimed(batch, &batch->own.calls[0].rows);
	for (uint32_t i = 0; i < commit->outbox_count; i++)
		found |= commit->outbox[i].claimed;
	return found;
}

static void stamps_finish(struct batch *batch)
{
	if (batch->segment->outcome != SEGMENT_COMMITTED && !batch->store->stopping)
		batch_ready_later(batch, PAUSE_US);
	else if (batch->segment->outcome == SEGMENT_COMMITTED && stamps_found(batch))
		store_answer_all(batch, STORE_OK, NULL);
	else
		store_answer_all(batch, batch->verdict, batch->verdict_text);
}

static void renew_finish(struct batch *batch)
{
	if (batch->segment->outcome == SEGMENT_COMMITTED)
		segment_outbox_claimed(batch, &batch->own.calls[0].rows);
	else if (!batch->store->stopping) {
		batch_ready_later(batch, PAUSE_US);
		return;
	}
	store_answer_all(batch, STORE_OK, NULL);
}

void doubt_committed(struct batch *batch)
{
	uint32_t rows = 0;

	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = commit_of(batch->elements[i]);

		for (uint32_t k = 0; k < commit->outbox_count; k++)
			commit->outbox[k].claimed = false;
		rows += commit->outbox_count;
	}
	batch->in_doubt = batch->committed = true;
	batch->tries = 0;
	if (!rows || !batch->store->outbox_owner || batch->store->stopping) {
		store_answer_all(batch, STORE_OK, NULL);
		return;
	}
	phase(batch, stamps_build, renew_finish);
	batch_ready(batch);
}

/* --- */

void doubt_unknown(struct batch *batch)
{
	batch->in_doubt = false;
	batch->doubtful = true;
	batch->class = batch->quarantined ? CONN_QUARANTINE : CONN_STEP;
	batch_path(batch);
	batch_ready(batch);
}

void doubt_begin(struct batch *batch)
{
	struct segment *segment = batch->segment;

	store_count(&batch->store->stats.doubts, 1);
	batch->in_doubt = true;
	batch->xid = segment->xid;
	batch->backend_pid = segment->backend_pid;
	batch->backend_start_us = segment->backend_start_us;
	snprintf(batch->application, sizeof(batch->application), "%s", segment->application);
	if (!batch->backend_pid) {
		backend_is_gone(batch);
		return;
	}
	phase(batch, terminate_build, terminate_finish);
	batch_ready(batch);
}
