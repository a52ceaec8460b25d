/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of an XML file that a process is made of: a light tree of the elements in the BPMN and q: namespaces, with the
 * lines they stand on. Everything else in the file (diagram interchange, other modellers' extensions) is parsed and left
 * out. Private to model.
 *
 * Life cycle: in the arena given. Threads: one at a time.
 */
#ifndef SUTRA_MODEL_ELEMENT_H
#define SUTRA_MODEL_ELEMENT_H

#include "model/package.h"

#define ELEMENT_BPMN_NAMESPACE "http://www.omg.org/spec/BPMN/20100524/MODEL"
#define ELEMENT_Q_NAMESPACE    "urn:sutra:q:1.0"

struct attribute {
	struct str name;
	struct str value;
	int line;
	bool q;    /* in the q: namespace; else in none */
	bool used; /* somebody has read it */
};

struct element {
	struct str name; /* local name */
	bool q;          /* in the q: namespace; else in BPMN's */
	bool used;       /* somebody has read it */
	bool refused;    /* reported as a whole: what is inside does not matter */
	int line;        /* where the start tag begins */
	int text_line;   /* where the text begins */
	struct str text; /* character data directly inside; never absent */
	struct attribute *attributes;
	uint32_t attribute_count;
	struct element *parent;
	struct element *first, *last; /* children */
	struct element *next;         /* sibling */
};

/*
 * RESULT_REJECT with a finding when the bytes are no XML, declare a document type, or go over a bound. UTF-8 and UTF-16 with
 * or without a byte order mark, and what the declaration names.
 */
enum result element_parse(struct arena *arena, const char *file, struct str bytes,
			  struct element **out, struct findings *findings) MUST_CHECK;

/* Whether it is the BPMN element `name`. */
bool element_is(const struct element *el, const char *name);
/* The first BPMN child with this name, or NULL. */
struct element *element_child(const struct element *el, const char *name);
/* The value of an attribute in no namespace, marked as read, or STR_NONE. */
struct str element_attribute(struct element *el, const char *name);
/* The attribute itself, marked as read, or NULL. */
const struct attribute *element_attribute_find(struct element *el, const char *name);
/* One in the q: namespace, on an element of the notation. */
const struct attribute *element_q_attribute_find(struct element *el, const char *name);
/* The element behind `el` in document order inside `root`, NULL at the end. */
struct element *element_walk(const struct element *root, struct element *el);
/* The same, but passing over what is inside `el`. */
struct element *element_walk_over(const struct element *root, struct element *el);
/* Without blanks at both ends. */
struct str element_trim(struct str s);

#endif
