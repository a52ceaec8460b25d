/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The activation's side of the table `deployment`: what stands there, what is still pinned, what is written back.
 *
 * Main waits for each answer; they come to a small loop that lives as long as the activation. The store answers every
 * request that it was sent, so the wait has an end without a deadline of its own.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "roles/activation_private.h"

static const struct log_about about = {.stage = "activation"};

struct ask {
	struct store_query query;
	atomic_bool answered;
};

static void ask_answered(struct task *task)
{
	struct ask *ask = container_of(task, struct ask, query.base.done);

	atomic_store_explicit(&ask->answered, true, memory_order_release);
}

static bool ask_is_answered(void *arg)
{
	return atomic_load_explicit(&((struct ask *)arg)->answered, memory_order_acquire);
}

#define SAY_SO_MS 10000

enum result activation_ask(struct loader *loader, struct segment_call *calls, uint32_t count,
			   bool scan, bool writes, struct error *err)
{
	struct ask ask = {
		.query.base = {.reply_to = loader->loop,
			       .done.run = ask_answered,
			       .arena = &loader->arena},
		.query.segment = {.calls = calls,
				  .call_count = count,
				  .scan = scan,
				  .durable = writes,
				  .writes = writes},
	};

	store_query(loader->store, &ask.query);
	/* The store writes into this frame: there is no leaving before it has answered. */
	while (!loop_wait(loader->loop->runtime, ask_is_answered, &ask, SAY_SO_MS))
		log_warning(&about, "the database takes long to answer");
	if (ask.query.base.outcome == STORE_OK)
		return RESULT_OK;
	*err = ask.query.base.error;
	err->stage = about.stage;
	return err->what = ask.query.base.outcome == STORE_UNAVAILABLE ? RESULT_AGAIN
								       : RESULT_FATAL;
}

static enum deployment_phase phase_of(struct str name)
{
	for (int phase = DEPLOYMENT_PENDING; phase <= DEPLOYMENT_RETIRED; phase++)
		if (str_equal(name, str_of(deployment_phase_name((enum deployment_phase)phase))))
			return (enum deployment_phase)phase;
	return DEPLOYMENT_FAILED;
}

static int compare_stored(const void *a, const void *b)
{
	const struct stored *x = a, *y = b;
	int order = str_compare(x->tenant, y->tenant);

	if (!order)
		order = str_compare(x->module, y->module);
	if (!order)
		order = (x->created_us < y->created_us) - (x->created_us > y->created_us);
	return order ? order : str_compare(x->id, y->id);
}

static struct column text_param(struct str *value)
{
	return (struct column){.type = COLUMN_TEXT, .scalar = true, .count = 1, .strs = value};
}

/* --- pins --- */

/*
 * What serves or drains may be needed by unfinished work, until somebody has looked at all of it and found nothing. That is asked only
 * about what the folder has no longer, a page at a time, the oldest instances first, and until each was found; and of so many rows at
 * most, for a start must not take the longer the more there is: then it drains, and the retention sweep finds out (pins.c).
 */
#define PIN_PAGE  10000
#define PIN_PAGES 100
/* No instance ended so long ago. */
#define PIN_OLDER_MS INT64_C(100000000000000)

static bool is_in_folder(const struct loader *loader, struct str id)
{
	for (uint32_t i = 0; i < loader->count; i++)
		if (loader->candidates[i]->deployment && str_equal(loader->candidates[i]->id, id))
			return true;
	return false;
}

static bool is_in_question(const struct loader *loader, const struct stored *stored, bool pinned)
{
	switch (stored->phase) {
	case DEPLOYMENT_RETIRED:
		return false;
	case DEPLOYMENT_FAILED:
		return pinned && !is_in_folder(loader, stored->id);
	default:
		return !is_in_folder(loader, stored->id);
	}
}

/* Takes note of what a page has found; whether everything in question was. */
static bool pins_note(struct loader *loader, const struct rows *rows, uint32_t column)
{
	bool all = true;

	for (uint32_t i = 0; i < rows->row_count; i++)
		for (uint32_t j = 0; j < loader->stored_count; j++)
			if (!rows_at(rows, i, column)->is_null &&
			    str_equal(rows_at(rows, i, column)->str, loader->stored[j].id))
				loader->stored[j].pinned = true;
	for (uint32_t j = 0; j < loader->stored_count; j++)
		all &= loader->stored[j].pinned || !loader->stored[j].in_question;
	return all;
}

static struct column int_param(int64_t *value)
{
	return (struct column){.type = COLUMN_INT, .scalar = true, .count = 1, .ints = value};
}

static struct column id_param(struct id *value)
{
	return (struct column){.type = COLUMN_ID, .scalar = true, .count = 1, .ids = value};
}

/* Sets *done when all is found or nothing is left to look at. */
static enum result pins_of_instances(struct loader *loader, bool *done, struct error *err)
{
	int64_t limit = PIN_PAGE, older = PIN_OLDER_MS;
	enum result result = RESULT_OK;
	struct id after = ID_NONE;
	bool last = false;

	for (int page = 0; page < PIN_PAGES && !last && result == RESULT_OK; page++) {
		struct column params[] = {id_param(&after), int_param(&limit), int_param(&older)};
		struct segment_call call = {.statement = STATEMENT_INSTANCE_EXPIRED, .params = params};
		const struct field *end;

		result = activation_ask(loader, &call, 1, true, false, err);
		if (result != RESULT_OK)
			return result;
		end = rows_at(&call.rows, call.rows.row_count - 1, 1);
		last = pins_note(loader, &call.rows, 3) || end->is_null;
		after = end->is_null ? ID_NONE : end->id;
	}
	*done = last;
	return result;
}

static enum result pins_of_outbox(struct loader *loader, bool *done, struct error *err)
{
	struct str channel = STR("");
	int64_t version = 0, ordinal = 0, limit = PIN_PAGE;
	enum result result = RESULT_OK;
	struct id after = ID_NONE;
	bool last = false;

	for (int page = 0; page < PIN_PAGES && !last && result == RESULT_OK; page++) {
		struct column params[] = {id_param(&after), text_param(&channel), int_param(&version), int_param(&ordinal),
					  int_param(&limit)};
		struct segment_call call = {.statement = STATEMENT_OUTBOX_PINS, .params = params};
		const struct field *end;

		result = activation_ask(loader, &call, 1, true, false, err);
		if (result != RESULT_OK)
			return result;
		end = rows_at(&call.rows, call.rows.row_count - 1, 0);
		last = pins_note(loader, &call.rows, 0) || end[1].is_null;
		if (!last) {
			after = end[1].id;
			channel = end[2].str;
			version = end[3].i;
			ordinal = end[4].i;
		}
	}
	*done = last;
	return result;
}

static enum result read_pins(struct loader *loader, struct error *err)
{
	bool instances = false, outbox = false;
	enum result result = RESULT_OK;

	if (pins_note(loader, &(struct rows){0}, 0))
		return RESULT_OK; /* nothing is in question */
	result = pins_of_instances(loader, &instances, err);
	if (result == RESULT_OK)
		result = pins_of_outbox(loader, &outbox, err);
	for (uint32_t i = 0; i < loader->stored_count; i++)
		if (loader->stored[i].in_question && !(instances && outbox))
			loader->stored[i].pinned = true;
	return result;
}

enum result activation_read_table(struct loader *loader, struct error *err)
{
	struct segment_call list = {.statement = STATEMENT_DEPLOYMENT_LIST};
	enum result result = activation_ask(loader, &list, 1, false, false, err);

	if (result != RESULT_OK)
		return result;
	loader->stored_count = list.rows.row_count;
	loader->stored = arena_zalloc(&loader->arena,
				      sizeof(*loader->stored) * (list.rows.row_count + 1));
	for (uint32_t i = 0; i < list.rows.row_count; i++) {
		struct stored *stored = &loader->stored[i];

		stored->id = rows_at(&list.rows, i, 0)->str;
		stored->tenant = rows_at(&list.rows, i, 1)->str;
		stored->module = rows_at(&list.rows, i, 2)->str;
		stored->version = rows_at(&list.rows, i, 3)->str;
		stored->phase = stored->next = phase_of(rows_at(&list.rows, i, 4)->str);
		stored->created_us = rows_at(&list.rows, i, 5)->i;
		stored->in_question = is_in_question(loader, stored, rows_at(&list.rows, i, 6)->b);
	}
	/* By tenant and module, the newest first. */
	if (loader->stored_count)
		qsort(loader->stored, loader->stored_count, sizeof(*loader->stored),
		      compare_stored);
	return read_pins(loader, err);
}

enum result activation_load_stored(struct loader *loader, const struct stored *stored,
				   struct candidate **out, struct error *err)
{
	struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct str id = stored->id;
	struct column param = text_param(&id);
	struct segment_call call = {.statement = STATEMENT_DEPLOYMENT_ARCHIVE, .params = &param};
	enum result result = activation_ask(loader, &call, 1, false, false, err);
	struct package *package = NULL;
	struct findings findings = {0};
	struct candidate *candidate;

	if (result != RESULT_OK)
		return result;
	candidate = *out = loader_add(loader);
	candidate->id = stored->id;
	candidate->tenant = stored->tenant;
	candidate->module = stored->module;
	candidate->version = stored->version;
	if (call.rows.row_count == 0 || rows_at(&call.rows, 0, 0)->is_null) {
		finding_add(&findings, NULL, 0, STR_NONE, CODE_DEPLOY_FAILED,
			    "the archive is no longer in the database");
		candidate_fail(candidate, &findings);
	} else if (package_read_archive(rows_at(&call.rows, 0, 0)->str, &limits, &package,
					&findings) != RESULT_OK) {
		candidate_fail(candidate, &findings);
	} else {
		candidate_build(candidate, &package, &findings);
	}
	findings_done(&findings);
	return RESULT_OK;
}

struct put {
	struct str values[6];
	struct column params[6];
};

static void put_fill(struct put *put, struct segment_call *call, enum deployment_phase phase,
		     const struct str values[4], struct str archive)
{
	memcpy(put->values, values, sizeof(put->values[0]) * 4);
	put->values[4] = str_of(deployment_phase_name(phase));
	put->values[5] = archive;
	for (int i = 0; i < 6; i++)
		put->params[i] = text_param(&put->values[i]);
	put->params[5].type = COLUMN_BYTES;
	*call = (struct segment_call){.statement = STATEMENT_DEPLOYMENT_PUT, .params = put->params};
}

static bool is_stored(const struct loader *loader, struct str id)
{
	for (uint32_t i = 0; i < loader->stored_count; i++)
		if (str_equal(loader->stored[i].id, id))
			return true;
	return false;
}

enum result activation_write_table(struct loader *loader, struct error *err)
{
	uint32_t most = loader->stored_count + loader->count, count = 0;
	struct segment_call *calls = arena_zalloc(&loader->arena, sizeof(*calls) * (most + 1));
	struct put *puts = arena_zalloc(&loader->arena, sizeof(*puts) * (most + 1));

	for (uint32_t i = 0; i < loader->stored_count; i++) {
		const struct stored *s = &loader->stored[i];

		/* The row is there, so its archive stays as it is. */
		if (s->next != s->phase) {
			put_fill(&puts[count], &calls[count], s->next,
				 (struct str[]){s->id, s->tenant, s->module, s->version}, STR(""));
			count++;
		}
	}
	for (uint32_t i = 0; i < loader->count; i++) {
		const struct candidate *c = loader->candidates[i];

		if (c->deployment && c->phase != DEPLOYMENT_PENDING && !is_stored(loader, c->id)) {
			put_fill(&puts[count], &calls[count], c->phase,
				 (struct str[]){c->id, c->tenant, c->module, c->version},
				 c->deployment->archive);
			count++;
		}
	}
	return count ? activation_ask(loader, calls, count, false, true, err) : RESULT_OK;
}
