/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activation at boot: which deployments this replica serves. Reads the folder `deployment.dir` (packages as folders and
 * archives), stores each in the table `deployment`, and adds as Draining whatever unfinished instances or unpoisoned outbox rows
 * still pin.
 *
 * Life cycle: activation_load once at start, blocking, on main; the list is plain data until activation_free.
 * Threads: main.
 */
#ifndef SUTRA_ROLES_ACTIVATION_H
#define SUTRA_ROLES_ACTIVATION_H

#include "model/package.h"
#include "store/store.h"

/* One deployment known to this replica, in the order active, draining, failed. */
struct activation_entry {
	char id[DEPLOYMENT_ID_SIZE]; /* empty for a package that could not even be read */
	struct str tenant, module, version; /* may be absent for a failed one */
	enum deployment_phase phase;
	struct str path;    /* where it came from; absent = the database */
	struct str reasons; /* FAILED: every finding, one a line */
};

struct activation {
	struct arena arena;
	struct activation_entry *entries;
	uint32_t count;
	struct view *view; /* number 1 */
};

/*
 * RESULT_AGAIN: the database is away. Broken packages are logged with all findings and listed as Failed, they are no error of
 * the call; two packages of one (tenant, module) in the folder: both are named (DEPLOY_CONFLICT) and neither is taken.
 * A folder that does not exist or is empty is a warning.
 */
enum result activation_load(struct store *store, const char *dir, struct activation **out,
			    struct error *err) MUST_CHECK;
void activation_free(struct activation **activation);

/*
 * The paths of the packages in a folder, in the order in which they are loaded; they live in the arena. False with errno if the
 * folder cannot be read.
 */
bool activation_list_folder(const char *dir, struct arena *arena, struct str **paths, uint32_t *count) MUST_CHECK;

#endif
