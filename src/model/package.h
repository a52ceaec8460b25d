/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packages: a folder with package.conf, channels.conf and bpmn/ *.bpmn, or the deterministic archive made of it.
 *
 * Life cycle: the calls are self-contained; results are owned by the caller. Threads: any; they read files and block,
 * so never on a loop that serves messages.
 */
#ifndef SUTRA_MODEL_PACKAGE_H
#define SUTRA_MODEL_PACKAGE_H

#include "base/buf.h"
#include "base/error.h"
#include "model/deployment.h"

struct package_limits {
	uint32_t max_entries;     /* 1000 */
	uint64_t max_entry_bytes; /* 4 MiB */
	uint64_t max_total_bytes; /* 32 MiB */
	uint32_t max_depth;       /* folders below the root: 8 */
};
#define PACKAGE_LIMITS_DEFAULT ((struct package_limits){1000, 4u << 20, 32u << 20, 8})

struct package_entry {
	struct str path; /* relative, '/'-separated, byte order */
	struct str bytes;
};

/* The content of a package, wherever it came from. */
struct package {
	struct arena arena;
	struct package_entry *entries; /* sorted by path; without the manifest */
	uint32_t entry_count;
	struct str manifest;
	char deployment_id[DEPLOYMENT_ID_SIZE];
};

/* What a check has to say: "path:line: [element] CODE: text", one a line. */
struct findings {
	struct buf text;
	unsigned errors;
	unsigned warnings;
};
void finding_add(struct findings *findings, const char *file, int line, struct str element,
		 enum code code, const char *fmt, ...) PRINTF_LIKE(6, 7);
void findings_done(struct findings *findings);

/*
 * Reads a folder or, if `path` is a file, an archive. Symbolic links, entries outside, over the limits, missing, altered or
 * not in the manifest are refused. RESULT_REJECT with everything wrong in `findings`.
 */
enum result package_read(const char *path, const struct package_limits *limits,
			 struct package **out, struct findings *findings) MUST_CHECK;
enum result package_read_archive(struct str bytes, const struct package_limits *limits,
				 struct package **out, struct findings *findings) MUST_CHECK;
void package_free(struct package **package);
/* The archive: zip, stored entries in byte order, no times. Same content, same bytes. */
void package_write_archive(const struct package *package, struct buf *out);

/*
 * Builds the deployment: parses and checks everything (this is also all of `sutra lint`). On RESULT_REJECT `findings` has
 * every problem; warnings may be there on success.
 */
enum result package_build(const struct package *package, struct deployment **out,
			  struct findings *findings) MUST_CHECK;

#endif
