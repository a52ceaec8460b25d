/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordered sets of rows: treaps, whose priorities come from a counter's hash so that a run can be repeated exactly. What a
 * tree is ordered by is a list of columns of its rows.
 *
 * Life cycle: tree_init; nothing is owned. Threads: under the database's lock.
 */
#ifndef SUTRA_STORE_MEMORY_TREE_H
#define SUTRA_STORE_MEMORY_TREE_H

#include "store/statement.h"

#define TREE_COLUMNS_MAX 5

struct tree_node {
	struct tree_node *parent, *left, *right;
	uint64_t priority;
};

struct tree {
	struct tree_node *root;
	size_t count;
	uint64_t sequence;
	/* How to get from a node to the fields of its row. */
	const struct field *(*fields)(const struct tree_node *node);
	uint8_t columns[TREE_COLUMNS_MAX]; /* unique all together */
	enum column_type types[TREE_COLUMNS_MAX];
	uint32_t column_count;
};

/* `node` must not stand in a tree; an equal key must not either. */
void tree_insert(struct tree *tree, struct tree_node *node);
void tree_remove(struct tree *tree, struct tree_node *node);
/* The node whose first `count` columns equal `key`, lowest of them; or NULL. */
struct tree_node *tree_find(const struct tree *tree, const struct field *key, uint32_t count);
/* The first node that is not below / that is above the key; or NULL. */
struct tree_node *tree_from(const struct tree *tree, const struct field *key, uint32_t count);
struct tree_node *tree_after(const struct tree *tree, const struct field *key, uint32_t count);
struct tree_node *tree_first(const struct tree *tree);
struct tree_node *tree_next(const struct tree_node *node);
/* Whether the node's first `count` columns equal `key`. */
bool tree_matches(const struct tree *tree, const struct tree_node *node, const struct field *key,
		  uint32_t count);

#endif
