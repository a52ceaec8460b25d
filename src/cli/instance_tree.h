/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instance for people: what it is, and where its tokens stand, as a tree of scopes.
 * Life cycle: none. Threads: any.
 */
#ifndef SUTRA_CLI_INSTANCE_TREE_H
#define SUTRA_CLI_INSTANCE_TREE_H

#include "base/buf.h"
#include "value/value.h"

/* `json` is the answer of /admin/instances/{id}; `now_us` the time that timers are compared with. */
void instance_tree_print(const msgpack_object *json, int64_t now_us, struct buf *out);

#endif
