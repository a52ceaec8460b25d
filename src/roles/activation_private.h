/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the activation: what is known of each deployment while it is decided what becomes of it.
 * Private to roles.
 *
 * Life cycle: one `struct loader` on the stack of activation_load; candidates live in its arena and hold a reference of
 * their deployment until loader_done. Threads: main.
 */
#ifndef SUTRA_ROLES_ACTIVATION_PRIVATE_H
#define SUTRA_ROLES_ACTIVATION_PRIVATE_H

#include "roles/activation.h"

/* A package of the folder, or a deployment of the database that this replica has to load. */
struct candidate {
	struct str path;                        /* absent: the database */
	struct str id, tenant, module, version; /* absent as far as unknown */
	struct deployment *deployment;          /* NULL: could not be built */
	enum deployment_phase phase;            /* PENDING until decided */
	struct buf reasons;
};

/* A row of the table `deployment` as it was found. */
struct stored {
	struct str id, tenant, module, version;
	enum deployment_phase phase;
	int64_t created_us;
	bool in_question; /* whether anything pins it has to be found out */
	bool pinned;
	/* What becomes of it. */
	enum deployment_phase next;
};

struct loader {
	struct arena arena;
	struct store *store;
	struct loop *loop; /* takes the store's answers */
	struct candidate **candidates;
	uint32_t count;
	struct stored *stored;
	uint32_t stored_count;
	bool folder_read;  /* false: nothing is known of the folder */
	bool unidentified; /* a package of the folder is so broken that nobody knows whose it is */
};

/* Everything cleared, phase PENDING. */
struct candidate *loader_add(struct loader *loader);
/* Builds what was read; takes the package. False: the reasons are in the candidate. */
bool candidate_build(struct candidate *candidate, struct package **package,
		     struct findings *findings);
/* Takes over the findings as the candidate's reasons; ends them. */
void candidate_fail(struct candidate *candidate, struct findings *findings);

/* activation_folder.c: a candidate for each package of the folder, by name. */
void activation_read_folder(struct loader *loader, const char *dir);

/*
 * activation_store.c: one segment, blocking; rows are in the loader's arena. RESULT_AGAIN: the database is away;
 * RESULT_FATAL: it refuses.
 */
enum result activation_ask(struct loader *loader, struct segment_call *calls, uint32_t count,
			   bool scan, bool writes, struct error *err) MUST_CHECK;
/* Reads table and pins into loader->stored. */
enum result activation_read_table(struct loader *loader, struct error *err) MUST_CHECK;
/* A candidate out of a row's archive, built or Failed with its reasons. */
enum result activation_load_stored(struct loader *loader, const struct stored *stored,
				   struct candidate **out, struct error *err) MUST_CHECK;
/* Writes what is new or has changed, in one transaction. */
enum result activation_write_table(struct loader *loader, struct error *err) MUST_CHECK;

#endif
