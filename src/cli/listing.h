/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of the admin listener as tables: one page, and how to ask for the next.
 * Life cycle: within a started remote. Threads: main; it blocks.
 */
#ifndef SUTRA_CLI_LISTING_H
#define SUTRA_CLI_LISTING_H

#include "cli/remote.h"
#include "cli/table.h"

struct listing {
	const char *member;       /* of the answer: the list */
	const char *const *heads; /* NULL-terminated */
	/* Adds the cells of one, as many as there are heads. */
	void (*row)(struct remote *remote, const msgpack_object *one, struct table *table);
};

/* `path` is the route, perhaps with a query; what is NULL is left out of it. Returns the exit code. */
int listing_run(struct remote *remote, const struct listing *listing, struct buf *path, const char *limit, const char *cursor);

#endif
