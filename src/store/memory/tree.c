/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Treaps: binary search trees whose nodes are also a heap by a random-looking priority, which keeps them shallow without
 * bookkeeping. Nodes know their parent, so that paging walks on from any row without a stack.
 */
#include "store/memory/tree.h"

static int field_compare(enum column_type type, const struct field *a, const struct field *b)
{
	if (a->is_null || b->is_null)
		return (int)b->is_null - (int)a->is_null;
	switch (type) {
	case COLUMN_INT:
	case COLUMN_TIME:
		return (a->i > b->i) - (a->i < b->i);
	case COLUMN_ID:
		return id_compare(a->id, b->id);
	case COLUMN_TEXT:
	case COLUMN_BYTES:
		return str_compare(a->str, b->str);
	case COLUMN_BOOL:
		return (int)a->b - (int)b->b;
	}
	return 0;
}

static int node_compare(const struct tree *tree, const struct tree_node *node,
			const struct field *key, uint32_t count)
{
	const struct field *fields = tree->fields(node);

	for (uint32_t i = 0; i < count; i++) {
		int order = field_compare(tree->types[i], &fields[tree->columns[i]], &key[i]);

		if (order)
			return order;
	}
	return 0;
}

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Puts `to` where `node` hangs. */
static void replace(struct tree *tree, struct tree_node *node, struct tree_node *to)
{
	struct tree_node *parent = node->parent;

	if (!parent)
		tree->root = to;
	else if (parent->left == node)
		parent->left = to;
	else
		parent->right = to;
	if (to)
		to->parent = parent;
}

/* Moves `node` above its parent. */
static void rotate_up(struct tree *tree, struct tree_node *node)
{
	struct tree_node *parent = node->parent, *inner;

	replace(tree, parent, node);
	if (parent->left == node) {
		inner = node->right;
		node->right = parent;
		parent->left = inner;
	} else {
		inner = node->left;
		node->left = parent;
		parent->right = inner;
	}
	if (inner)
		inner->parent = parent;
	parent->parent = node;
}

void tree_insert(struct tree *tree, struct tree_node *node)
{
	struct tree_node **at = &tree->root, *parent = NULL;
	struct field key[TREE_COLUMNS_MAX];
	const struct field *fields = tree->fields(node);

	for (uint32_t i = 0; i < tree->column_count; i++)
		key[i] = fields[tree->columns[i]];
	while (*at) {
		int order = node_compare(tree, *at, key, tree->column_count);

		assert(order != 0);
		parent = *at;
		at = order > 0 ? &parent->left : &parent->right;
	}
	*node = (struct tree_node){.parent = parent, .priority = mix(tree->sequence++)};
	*at = node;
	tree->count++;
	while (node->parent && node->parent->priority < node->priority)
		rotate_up(tree, node);
}

void tree_remove(struct tree *tree, struct tree_node *node)
{
	while (node->left && node->right)
		rotate_up(tree,
			  node->left->priority > node->right->priority ? node->left : node->right);
	replace(tree, node, node->left ? node->left : node->right);
	*node = (struct tree_node){0};
	tree->count--;
}

/* The first node with order ≥ `least`, where order is that of node_compare. */
static struct tree_node *bound(const struct tree *tree, const struct field *key, uint32_t count,
			       int least)
{
	struct tree_node *node = tree->root, *best = NULL;

	while (node) {
		if (node_compare(tree, node, key, count) >= least) {
			best = node;
			node = node->left;
		} else {
			node = node->right;
		}
	}
	return best;
}

struct tree_node *tree_from(const struct tree *tree, const struct field *key, uint32_t count)
{
	return bound(tree, key, count, 0);
}

struct tree_node *tree_after(const struct tree *tree, const struct field *key, uint32_t count)
{
	return bound(tree, key, count, 1);
}

bool tree_matches(const struct tree *tree, const struct tree_node *node, const struct field *key,
		  uint32_t count)
{
	return node_compare(tree, node, key, count) == 0;
}

struct tree_node *tree_find(const struct tree *tree, const struct field *key, uint32_t count)
{
	struct tree_node *node = tree_from(tree, key, count);

	return node && tree_matches(tree, node, key, count) ? node : NULL;
}

struct tree_node *tree_first(const struct tree *tree)
{
	struct tree_node *node = tree->root;

	while (node && node->left)
		node = node->left;
	return node;
}

struct tree_node *tree_next(const struct tree_node *node)
{
	if (node->right) {
		struct tree_node *next = node->right;

		while (next->left)
			next = next->left;
		return next;
	}
	while (node->parent && node->parent->right == node)
		node = node->parent;
	return node->parent;
}
