/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a batch whose segment did not commit.
 *
 * A gate that fails names its elements: they are taken out, and the rest runs again at once. "Duplicate" and the like are
 * final, for the inserts wait for uncommitted rivals: who loses has lost to a committed row. A lost fence can mean two
 * things, since it skips locked rows: the row has changed, or somebody holds its lock for a moment. So can a kept message that
 * was not found, and a start timer. A look without a lock tells them apart; what is only locked goes on alone in quarantine, so that one stuck row
 * stops nobody else.
 *
 * An error names nobody: the batch is halved until the element that causes it stands alone. A lock timeout then leads to
 * quarantine, an impossible value to REJECTED. The table of classes below is the only place that reads SQLSTATEs.
 */
#include <stdio.h>

#include "base/time.h"
#include "store/internal.h"

#define TRIES_MAX      3
#define LOCK_TRIES_MAX 6
#define LOCK_PAUSE_US  (50 * US_PER_MS)
#define DOUBT_PAUSE_US (500 * US_PER_MS)

enum error_class error_class(const char *sqlstate)
{
	/* The first prefix that fits. */
	static const struct {
		const char *prefix;
		enum error_class class;
	} classes[] = {
		{"55P03", ERROR_CLASS_LOCK}, /* lock not available */
		{"40P01", ERROR_CLASS_LOCK}, /* deadlock */
		{"40001", ERROR_CLASS_LOCK}, /* serialization failure */
		{"57014", ERROR_CLASS_LOCK}, /* cancelled by a statement timeout */
		{"57", ERROR_CLASS_AWAY},    /* shutdown, crash, starting up */
		{"08", ERROR_CLASS_AWAY},    /* connection exceptions */
		{"53", ERROR_CLASS_AWAY},    /* out of disk, memory, connections */
		{"25", ERROR_CLASS_AWAY},    /* a read-only standby */
		{"28", ERROR_CLASS_AWAY},    /* authorization */
		{"42",
		 ERROR_CLASS_AWAY}, /* the schema or its grants are not what this version needs */
		{"3D", ERROR_CLASS_AWAY}, /* no such database */
		{"3F", ERROR_CLASS_AWAY}, /* no such schema */
		{"0A",
		 ERROR_CLASS_AWAY}, /* "cached plan must not change result type": a migration went on */
		{"26", ERROR_CLASS_AWAY},    /* a prepared statement is gone */
		{"22", ERROR_CLASS_ELEMENT}, /* a value out of range */
		{"23", ERROR_CLASS_ELEMENT}, /* a constraint */
		{"54", ERROR_CLASS_ELEMENT}, /* too large for an index or a row */
		{"21", ERROR_CLASS_ELEMENT},
	};

	for (size_t i = 0; i < ARRAY_LEN(classes); i++)
		if (strncmp(sqlstate, classes[i].prefix, strlen(classes[i].prefix)) == 0)
			return classes[i].class;
	return ERROR_CLASS_SERVER;
}

static enum store_outcome gate_outcome(enum gate gate)
{
	switch (gate) {
	case GATE_DUPLICATE:
		return STORE_DUPLICATE;
	case GATE_EXISTS: /* a spawn lost to its own row: it had been committed */
		return STORE_OK;
	case GATE_ALIAS:
		return STORE_ALIAS_CONFLICT;
	case GATE_WAIT:
		return STORE_WAIT_NOT_UNIQUE;
	case GATE_KEPT:
		return STORE_KEPT_LOST;
	case GATE_SCHEDULE:
		return STORE_SCHEDULE_MOVED;
	case GATE_CHANNEL_CAP:
		return STORE_CHANNEL_FULL;
	case GATE_TENANT_CAP:
		return STORE_TENANT_FULL;
	case GATE_POOL:
		return STORE_POOL_FULL;
	case GATE_FENCE:
	case GATE_NONE:
		break;
	}
	return STORE_FENCED;
}

/* --- fences, kept messages and start timers --- */

/* The row that the gate was about. */
static struct id probe_key(const struct batch *batch, const struct store_commit *commit)
{
	if (batch->verdict_gate == GATE_FENCE)
		return commit->instance;
	return batch->verdict_gate == GATE_KEPT ? commit->kept_removed : commit->schedule.id;
}

static void probe_build(struct batch *batch)
{
	struct column *c;

	segment_begin(batch, 1);
	c = segment_call(batch,
			 batch->verdict_gate == GATE_FENCE  ? STATEMENT_FENCE_PROBE
			 : batch->verdict_gate == GATE_KEPT ? STATEMENT_KEPT_OWNER
							    : STATEMENT_SCHEDULE_PROBE,
			 batch->count);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct store_commit *commit = container_of(batch->elements[i], struct store_commit,
							   base);

		set_int(&c[0], i, i);
		set_str(&c[1], i, commit->tenant);
		set_id(&c[2], i, probe_key(batch, commit));
	}
}

/* Whether what was found is what the gate wanted. */
static bool probe_stands(const struct batch *batch, const struct store_commit *commit,
			 const struct field *f)
{
	if (batch->verdict_gate == GATE_SCHEDULE)
		return !f[2].is_null && f[2].i == commit->schedule.expected_us;
	if (f[1].is_null)
		return false;
	if (batch->verdict_gate == GATE_KEPT)
		return str_equal(f[1].str, commit->keeper);
	return str_equal(f[1].str, commit->owner) && f[2].i == commit->version;
}

/* Locked ones go on, each alone; the others have lost. */
static void probe_take(struct batch *batch)
{
	const struct rows *rows = &batch->own.calls[0].rows;
	enum store_outcome lost = gate_outcome(batch->verdict_gate);

	for (uint32_t i = 0; i < batch->count; i++)
		batch->elements[i]->outcome = lost;
	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		struct store_commit *commit;

		assert(f[0].i >= 0 && f[0].i < batch->count);
		commit = container_of(batch->elements[f[0].i], struct store_commit, base);
		if (probe_stands(batch, commit, f))
			commit->base.outcome = STORE_OK;
	}
	for (uint32_t i = 0; i < batch->count; i++) {
		struct batch *alone;

		if (batch->elements[i]->outcome == lost) {
			store_answer(batch->store, batch->elements[i], lost);
			continue;
		}
		alone = batch_split(batch);
		batch_add(alone, batch->elements[i]);
		gates_quarantine(alone);
	}
	batch_end(batch);
}

static void probe_finish(struct batch *batch)
{
	if (batch->segment->outcome == SEGMENT_COMMITTED)
		probe_take(batch);
	else
		gates_not_run(batch);
}

/* --- gates --- */

/* A batch of the failed elements; `batch` keeps the others. NULL if none is named. */
static struct batch *failed_split(struct batch *batch)
{
	struct segment *segment = batch->segment;
	bool *failed = arena_zalloc(&batch->arena, batch->count + 1);
	struct batch *other;
	uint32_t kept = 0, count = 0;

	for (uint32_t i = 0; i < segment->failed_count; i++)
		if (segment->failed[i] < batch->count && !failed[segment->failed[i]]) {
			failed[segment->failed[i]] = true;
			count++;
		}
	if (!count)
		return NULL;
	other = batch_split(batch);
	for (uint32_t i = 0; i < batch->count; i++) {
		if (failed[i])
			batch_add(other, batch->elements[i]);
		else
			batch->elements[kept++] = batch->elements[i];
	}
	batch->count = kept;
	return other;
}

/* Hands each element of a doubtful batch to a judgement of its own. */
static void judge_all(struct batch *batch, enum store_outcome verdict, enum gate gate,
		      const char *text)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		struct batch *alone = batch_split(batch);

		batch_add(alone, batch->elements[i]);
		doubt_judge(alone, verdict, gate, text);
	}
	batch_end(batch);
}

void gates_failed(struct batch *batch)
{
	struct store *store = batch->store;
	enum gate gate = batch->segment->gate;
	struct batch *failed = failed_split(batch);

	store_count(&store->stats.gate_failures, 1);
	if (!failed) {
		gates_error(batch);
		return;
	}
	if (batch->count)
		batch_ready(batch);
	else
		batch_end(batch);
	if (failed->doubtful) {
		judge_all(failed, gate_outcome(gate), gate, "");
	} else if (gate == GATE_FENCE || gate == GATE_KEPT || gate == GATE_SCHEDULE) {
		failed->verdict_gate = gate;
		failed->build = probe_build;
		failed->finish = probe_finish;
		batch_ready(failed);
	} else if (gate_is_take(gate)) {
		takes_full(failed, gate);
	} else {
		store_answer_all(failed, gate_outcome(gate), NULL);
	}
}

/* --- locks and errors --- */

void gates_quarantine(struct batch *batch)
{
	struct store *store = batch->store;

	assert(batch->count == 1);
	if (!batch->quarantined)
		store_count(&store->stats.quarantined, 1);
	batch_path(batch);
	batch->quarantined = true;
	batch->class = CONN_QUARANTINE;
	if (batch->lock_tries++ < LOCK_TRIES_MAX || batch->doubtful) {
		uint32_t tries = batch->lock_tries < LOCK_TRIES_MAX ? batch->lock_tries
								    : LOCK_TRIES_MAX;

		batch_ready_later(batch, tries == 1 ? 0 : LOCK_PAUSE_US << (tries - 2));
		return;
	}
	if (batch->elements[0]->kind == STORE_CLAIM)
		store_answer_all(batch, STORE_REFUSED, NULL);
	else
		store_answer_all(batch, STORE_UNAVAILABLE, "the row is locked by another session");
}

static void halve(struct batch *batch)
{
	struct batch *other = batch_split(batch);
	uint32_t half = batch->count / 2;

	for (uint32_t i = half; i < batch->count; i++)
		batch_add(other, batch->elements[i]);
	batch->count = half;
	batch_ready(batch);
	batch_ready(other);
}

void gates_error(struct batch *batch)
{
	struct segment *segment = batch->segment;
	enum error_class class = error_class(segment->sqlstate);
	char text[256];

	if (takes_error(batch))
		return;
	if (class == ERROR_CLASS_AWAY) {
		gates_not_run(batch);
		return;
	}
	if (batch->count > 1) {
		halve(batch);
		return;
	}
	if (class == ERROR_CLASS_LOCK) {
		gates_quarantine(batch);
		return;
	}
	if (batch->store->stopping) {
		gates_not_run(batch);
		return;
	}
	snprintf(text, sizeof(text), "%s", segment->text);
	if (batch->doubtful)
		doubt_judge(batch,
			    class == ERROR_CLASS_ELEMENT ? STORE_REJECTED : STORE_UNAVAILABLE,
			    GATE_NONE, text);
	else
		store_answer_all(batch,
				 class == ERROR_CLASS_ELEMENT ? STORE_REJECTED : STORE_UNAVAILABLE,
				 text);
}

void gates_not_run(struct batch *batch)
{
	struct store *store = batch->store;
	const char *why = batch->segment->outcome == SEGMENT_ERROR ? batch->segment->text
								   : "the connection was lost";
	char text[256];

	snprintf(text, sizeof(text), "%s", why);
	/* What may have committed is not answered before that is known. */
	if (batch->doubtful && !store->stopping)
		batch_ready_later(batch, DOUBT_PAUSE_US);
	else if (store->stopping || !store->step_up || ++batch->tries >= TRIES_MAX)
		store_answer_all(batch, STORE_UNAVAILABLE, text);
	else
		batch_ready(batch);
}
