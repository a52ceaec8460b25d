/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a libconfig text before the library sees it; private to document.c.
 *
 * Life cycle: an all-zero struct with its inputs set, document_scan_text or document_scan_file, document_scan_done.
 * Threads: one at a time.
 */
#ifndef SUTRA_CONFIG_DOCUMENT_SCAN_H
#define SUTRA_CONFIG_DOCUMENT_SCAN_H

#include "base/buf.h"
#include "config/document.h"

/* Where a line of the scanned text came from. */
struct document_origin {
	const char *file; /* one of document_scan.files */
	unsigned line;
	bool refused; /* has a finding already; later ones about it would be consequences */
};

struct document_scan {
	const struct document_options *options; /* set by the caller */
	struct buf text;                 /* for the library: comments gone, includes in place */
	struct document_origin *origins; /* one for each line of `text` */
	size_t origin_count;
	size_t origin_cap;
	char **files; /* owned names */
	size_t file_count;
	unsigned include_depth;
	unsigned nesting;
	bool broken; /* the text must not be parsed */
};

void document_scan_file(struct document_scan *scan, const char *path);
/* `name` is copied. */
void document_scan_text(struct document_scan *scan, const char *name, struct str text);
void document_scan_done(struct document_scan *scan);

#endif
