/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the two ways to read a package, package_folder.c and package_archive.c. Private to model.
 *
 * Life cycle: package_new, package_add for each entry, package_finish, and the package is what package.h says.
 * Threads: one at a time. `where` is what findings name: the folder or the archive.
 */
#ifndef SUTRA_MODEL_PACKAGE_PRIVATE_H
#define SUTRA_MODEL_PACKAGE_PRIVATE_H

#include "model/package.h"

#define PACKAGE_PATH_MAX 200
#define PACKAGE_MANIFEST "MANIFEST"

struct package *package_new(void);
/* Whether an entry may have this path; false after a finding. */
bool package_path_check(struct str path, const struct package_limits *limits, const char *where,
			struct findings *findings) MUST_CHECK;
/* Copies; false after a finding when a limit is passed. */
bool package_add(struct package *package, struct str path, struct str bytes,
		 const struct package_limits *limits, const char *where,
		 struct findings *findings) MUST_CHECK;
/* Sorts, checks what must be there, makes manifest and id. */
void package_finish(struct package *package, const char *where, struct findings *findings);
const struct package_entry *package_entry_find(const struct package *package, struct str path);
void package_manifest_line(const struct package_entry *entry, struct buf *out);

/* package_folder.c: reads below an open folder, which stays the caller's. */
void package_read_folder(int folder, const char *where, const struct package_limits *limits,
			 struct package *package, struct findings *findings);

#endif
