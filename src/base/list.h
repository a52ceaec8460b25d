/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked lists with a head node.
 *
 * Life cycle: list_init the head; a node that is in no list is all zero or list_init'ed on itself. Nothing is owned.
 * Threads: one at a time.
 */
#ifndef SUTRA_BASE_LIST_H
#define SUTRA_BASE_LIST_H

#include "base/attr.h"

struct list {
	struct list *prev;
	struct list *next;
};

static inline void list_init(struct list *head)
{
	head->prev = head->next = head;
}

static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}

/* Whether the node stands in a list. */
static inline bool list_is_linked(const struct list *node)
{
	return node->next && node->next != node;
}

static inline void list_insert_before(struct list *at, struct list *node)
{
	node->prev = at->prev;
	node->next = at;
	at->prev->next = node;
	at->prev = node;
}

/* At the end. */
static inline void list_push(struct list *head, struct list *node)
{
	list_insert_before(head, node);
}

/* At the front. */
static inline void list_push_front(struct list *head, struct list *node)
{
	list_insert_before(head->next, node);
}

/* Takes the node out; harmless on one that is in no list. */
static inline void list_remove(struct list *node)
{
	if (node->next) {
		node->prev->next = node->next;
		node->next->prev = node->prev;
	}
	node->prev = node->next = NULL;
}

/* Moves all of `from` behind the end of `to`, in order. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_is_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(node, type, member) container_of(node, type, member)
#define list_first(head, type, member) \
	(list_is_empty(head) ? NULL : list_entry((head)->next, type, member))
/* The current node may be removed inside the loop. */
#define list_for_each(head, pos, tmp) \
	for (struct list *pos = (head)->next, *tmp = pos->next; pos != (head); \
	     pos = tmp, tmp = pos->next)

#endif
