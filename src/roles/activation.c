/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a replica serves is decided once, at its start, in this order:
 *
 *   1 the folder: every package is read and built; two of one (tenant, module) put each other out;
 *   2 the table `deployment` and what unfinished work still pins;
 *   3 the folder's packages become Active one by one, in order of (tenant, module), each checked against those before it;
 *   4 where the folder's package for a (tenant, module) is broken, what was Active before stays Active: a bad package must not
 *     take a good one out of service. The same while a package is too broken to say whose it is, or the folder is away;
 *   5 what is pinned and is none of these drains;
 *   6 the table is brought to that state in one transaction: what is neither Active nor pinned is Retired.
 *
 * A crash anywhere leaves the table as it was or as decided, and the next start decides again. Nothing here is final but
 * the view, so a package that is broken is listed with its reasons and all others go on.
 */
#include "roles/activation.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "roles/activation_private.h"

#define VIEW_NUMBER 1

/* --- candidates --- */

struct candidate *loader_add(struct loader *loader)
{
	struct candidate *candidate = arena_zalloc(&loader->arena, sizeof(*candidate));

	loader->candidates = mem_array(loader->candidates, loader->count + 1,
				       sizeof(struct candidate *));
	loader->candidates[loader->count++] = candidate;
	return candidate;
}

void candidate_fail(struct candidate *candidate, struct findings *findings)
{
	candidate->phase = DEPLOYMENT_FAILED;
	buf_add_str(&candidate->reasons, buf_str(&findings->text));
}

static void log_findings(const struct candidate *candidate, struct str text, bool failed)
{
	struct log_about about = {
		.stage = "activation",
		.tenant = candidate->tenant,
		.code = failed ? CODE_DEPLOY_FAILED : CODE_NONE,
	};
	struct str where = candidate->path.ptr ? candidate->path : candidate->id;

	while (text.len) {
		ptrdiff_t end = str_find(text, '\n');
		size_t len = end < 0 ? text.len : (size_t)end;

		if (failed)
			log_error(&about, "package %.*s: %.*s", STR_ARG(where), (int)len, text.ptr);
		else
			log_warning(&about, "package %.*s: %.*s", STR_ARG(where), (int)len,
				    text.ptr);
		text.ptr += len + (end >= 0);
		text.len -= len + (end >= 0);
	}
}

bool candidate_build(struct candidate *candidate, struct package **package,
		     struct findings *findings)
{
	struct deployment *deployment = NULL;
	enum result result = package_build(*package, &deployment, findings);

	package_free(package);
	if (result != RESULT_OK) {
		candidate_fail(candidate, findings);
		return false;
	}
	candidate->deployment = deployment;
	candidate->id = deployment->id;
	candidate->tenant = deployment->tenant;
	candidate->module = deployment->module;
	candidate->version = deployment->version;
	log_findings(candidate, buf_str(&findings->text), false);
	return true;
}

static void loader_done(struct loader *loader)
{
	for (uint32_t i = 0; i < loader->count; i++) {
		deployment_unref(&loader->candidates[i]->deployment);
		buf_done(&loader->candidates[i]->reasons);
	}
	free(loader->candidates);
	loop_stop(&loader->loop);
	arena_done(&loader->arena);
}

/* --- deciding --- */

static bool same_module(const struct candidate *candidate, struct str tenant, struct str module)
{
	return candidate->tenant.ptr && str_equal(candidate->tenant, tenant) &&
	       str_equal(candidate->module, module);
}

static void find_conflicts(struct loader *loader)
{
	for (uint32_t i = 0; i < loader->count; i++) {
		struct candidate *a = loader->candidates[i];

		for (uint32_t j = 0; a->deployment && j < loader->count; j++) {
			const struct candidate *b = loader->candidates[j];
			struct findings findings = {0};

			if (i == j || !same_module(b, a->tenant, a->module))
				continue;
			finding_add(&findings, NULL, 0, STR_NONE, CODE_DEPLOY_CONFLICT,
				    "tenant %.*s and module %.*s are in %.*s too; neither is taken",
				    STR_ARG(a->tenant), STR_ARG(a->module), STR_ARG(b->path));
			candidate_fail(a, &findings);
			findings_done(&findings);
		}
	}
}

static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *x = *(const struct candidate *const *)a,
			       *y = *(const struct candidate *const *)b;
	int order = str_compare(x->tenant, y->tenant);

	if (!order)
		order = str_compare(x->module, y->module);
	return order ? order : str_compare(x->path, y->path);
}

/* The view of everything that is decided, and this one in this phase; NULL with the reasons added to it, once. */
static struct view *try_view(struct loader *loader, struct candidate *one,
			     enum deployment_phase phase)
{
	struct view_member *members = mem_alloc(sizeof(*members) * (loader->count + 1));
	struct buf reasons = BUF_INIT;
	struct view *view = NULL;
	uint32_t count = 0;

	for (uint32_t i = 0; i < loader->count; i++) {
		struct candidate *c = loader->candidates[i];

		if (c != one && (c->phase == DEPLOYMENT_ACTIVE || c->phase == DEPLOYMENT_DRAINING))
			members[count++] = (struct view_member){c->deployment, c->phase};
	}
	if (one)
		members[count++] = (struct view_member){one->deployment, phase};
	if (view_build(VIEW_NUMBER, members, count, &view, &reasons) != RESULT_OK) {
		view = NULL;
		if (one && one->phase != DEPLOYMENT_FAILED)
			buf_add_str(&one->reasons, buf_str(&reasons));
	}
	buf_done(&reasons);
	free(members);
	return view;
}

/* Gives the candidate this phase if the view rules allow it, else Failed. */
static bool admit(struct loader *loader, struct candidate *candidate, enum deployment_phase phase)
{
	struct view *view = try_view(loader, candidate, phase);

	candidate->phase = view ? phase : DEPLOYMENT_FAILED;
	if (!view)
		return false;
	view_unref(&view);
	return true;
}

static struct candidate *candidate_with_id(struct loader *loader, struct str id)
{
	for (uint32_t i = 0; i < loader->count; i++)
		if (loader->candidates[i]->id.ptr && str_equal(loader->candidates[i]->id, id))
			return loader->candidates[i];
	return NULL;
}

/* Admits what the table has, from the folder if it stands there too. */
static enum result admit_stored(struct loader *loader, const struct stored *stored,
				enum deployment_phase phase, struct error *err)
{
	struct candidate *candidate = candidate_with_id(loader, stored->id);
	enum result result;

	if (!candidate) {
		result = activation_load_stored(loader, stored, &candidate, err);
		if (result != RESULT_OK)
			return result;
	}
	if (candidate->deployment && candidate->phase != DEPLOYMENT_ACTIVE &&
	    candidate->phase != DEPLOYMENT_DRAINING)
		admit(loader, candidate, phase);
	return RESULT_OK;
}

static bool is_served(const struct loader *loader, struct str tenant, struct str module)
{
	for (uint32_t i = 0; i < loader->count; i++)
		if (loader->candidates[i]->phase == DEPLOYMENT_ACTIVE &&
		    same_module(loader->candidates[i], tenant, module))
			return true;
	return false;
}

/* Whether the folder fails to say that this module is gone. */
static bool may_be_meant(const struct loader *loader, const struct stored *stored)
{
	if (!loader->folder_read || loader->unidentified)
		return true;
	for (uint32_t i = 0; i < loader->count; i++)
		if (same_module(loader->candidates[i], stored->tenant, stored->module))
			return true;
	return false;
}

static enum result decide(struct loader *loader, struct error *err)
{
	uint32_t from_folder = loader->count;
	enum result result = RESULT_OK;

	for (uint32_t i = 0; i < from_folder; i++)
		if (loader->candidates[i]->phase == DEPLOYMENT_PENDING)
			admit(loader, loader->candidates[i], DEPLOYMENT_ACTIVE);
	for (uint32_t i = 0; i < loader->stored_count && result == RESULT_OK; i++) {
		const struct stored *s = &loader->stored[i];

		if (s->phase == DEPLOYMENT_ACTIVE && !is_served(loader, s->tenant, s->module) &&
		    may_be_meant(loader, s))
			result = admit_stored(loader, s, DEPLOYMENT_ACTIVE, err);
	}
	for (uint32_t i = 0; i < loader->stored_count && result == RESULT_OK; i++)
		if (loader->stored[i].pinned)
			result = admit_stored(loader, &loader->stored[i], DEPLOYMENT_DRAINING, err);
	return result;
}

/* What becomes of each row of the table. */
static void settle_stored(struct loader *loader)
{
	for (uint32_t i = 0; i < loader->stored_count; i++) {
		struct stored *s = &loader->stored[i];
		const struct candidate *candidate = candidate_with_id(loader, s->id);

		if (candidate && candidate->deployment)
			s->next = candidate->phase;
		else if (candidate)
			continue; /* it cannot be built here: another version of the engine may have better luck */
		else if (s->phase == DEPLOYMENT_ACTIVE || s->phase == DEPLOYMENT_DRAINING ||
			 s->phase == DEPLOYMENT_PENDING)
			s->next = DEPLOYMENT_RETIRED;
	}
}

/* --- the result --- */

static struct str keep(struct arena *arena, struct str s)
{
	return s.ptr ? arena_str(arena, s) : STR_NONE;
}

static void entry_fill(struct activation *activation, const struct candidate *candidate)
{
	struct activation_entry *entry = &activation->entries[activation->count++];
	struct log_about about = {.stage = "activation", .tenant = candidate->tenant};

	*entry = (struct activation_entry){
		.tenant = keep(&activation->arena, candidate->tenant),
		.module = keep(&activation->arena, candidate->module),
		.version = keep(&activation->arena, candidate->version),
		.phase = candidate->phase,
		.path = keep(&activation->arena, candidate->path),
		.reasons = candidate->reasons.len
				   ? keep(&activation->arena, buf_str(&candidate->reasons))
				   : STR_NONE,
	};
	snprintf(entry->id, sizeof(entry->id), "%.*s", STR_ARG(candidate->id));
	if (candidate->phase == DEPLOYMENT_FAILED) {
		log_findings(candidate, buf_str(&candidate->reasons), true);
		return;
	}
	if (candidate->reasons.len)
		log_findings(candidate, buf_str(&candidate->reasons), true);
	log_info(&about, "deployment %.*s, module %.*s, version %.*s: %s, from %.*s",
		 STR_ARG(candidate->id), STR_ARG(candidate->module), STR_ARG(candidate->version),
		 deployment_phase_name(candidate->phase),
		 STR_ARG(candidate->path.ptr ? candidate->path : STR("the database")));
}

static struct activation *activation_of(struct loader *loader)
{
	static const enum deployment_phase order[] = {DEPLOYMENT_ACTIVE, DEPLOYMENT_DRAINING,
						      DEPLOYMENT_FAILED};
	struct activation *activation = mem_zalloc(sizeof(*activation));

	arena_init(&activation->arena);
	activation->entries = arena_zalloc(&activation->arena,
					   sizeof(*activation->entries) * (loader->count + 1));
	for (size_t phase = 0; phase < ARRAY_LEN(order); phase++)
		for (uint32_t i = 0; i < loader->count; i++)
			if (loader->candidates[i]->phase == order[phase])
				entry_fill(activation, loader->candidates[i]);
	activation->view = try_view(loader, NULL, DEPLOYMENT_ACTIVE);
	assert(activation->view); /* each member was admitted into this very set */
	return activation;
}

enum result activation_load(struct store *store, const char *dir, struct activation **out,
			    struct error *err)
{
	struct loader loader = {.store = store};
	enum result result;

	arena_init(&loader.arena);
	loader.loop = loop_start(runtime_threads(), "activation");
	activation_read_folder(&loader, dir);
	find_conflicts(&loader);
	if (loader.count)
		qsort(loader.candidates, loader.count, sizeof(struct candidate *),
		      compare_candidates);
	result = activation_read_table(&loader, err);
	if (result == RESULT_OK)
		result = decide(&loader, err);
	if (result == RESULT_OK) {
		settle_stored(&loader);
		result = activation_write_table(&loader, err);
	}
	if (result == RESULT_OK)
		*out = activation_of(&loader);
	loader_done(&loader);
	return result;
}

void activation_free(struct activation **activation)
{
	struct activation *gone = *activation;

	*activation = NULL;
	if (!gone)
		return;
	view_unref(&gone->view);
	arena_done(&gone->arena);
	free(gone);
}
