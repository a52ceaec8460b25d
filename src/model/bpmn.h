/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the two halves of the BPMN reader: bpmn_read.c (the notation) and bpmn_q.c (the q: namespace). Private to model.
 *
 * Life cycle: one reader per file, on the stack of bpmn_read. Threads: one.
 */
#ifndef SUTRA_MODEL_BPMN_H
#define SUTRA_MODEL_BPMN_H

#include "model/build.h"
#include "model/element.h"

struct bpmn_reader {
	struct build *build;
	const char *file;
	struct process *process; /* the one being read */
	struct map ids;   /* of processes, nodes and flows of the file, to their struct element */
	struct map errors; /* ids of the file's error definitions, to their struct element */
	unsigned refused; /* elements of this process that are not supported */
	struct str at;    /* id of the element that findings name */
};

/* A finding at a line of the reader's file, about the element `reader->at`. */
void bpmn_finding(struct bpmn_reader *reader, int line, enum code code, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
#define bpmn_invalid(reader, line, ...) \
	bpmn_finding(reader, line, CODE_CONFIG_BPMN_INVALID, __VA_ARGS__)
#define bpmn_unsupported(reader, line, ...) \
	bpmn_finding(reader, line, CODE_CONFIG_BPMN_UNSUPPORTED_ELEMENT, __VA_ARGS__)
#define bpmn_warning(reader, line, ...) \
	bpmn_finding(reader, line, CODE_CONFIG_BPMN_SUSPICIOUS, __VA_ARGS__)

/* bpmn_q.c: attributes of q: elements. Whether it is the q: element `name`. */
bool bpmn_is_q(const struct element *el, const char *name);
/* The value of an attribute, or STR_NONE after a finding. */
struct str bpmn_required(struct bpmn_reader *reader, struct element *el, const char *name);
bool bpmn_flag(struct bpmn_reader *reader, struct element *el, const char *name);
/* NULL without the attribute; the second reports that. */
const struct expression *bpmn_attribute(struct bpmn_reader *reader, struct element *el,
					const char *name);
const struct expression *bpmn_required_expression(struct bpmn_reader *reader, struct element *el,
						  const char *name);
/* Reports a name that expressions could not use; `what` it is to name. */
void bpmn_check_name(struct bpmn_reader *reader, int line, const char *what, struct str name);

/* The q: rules of a flow node, or of the process; reports what does not belong there. */
void bpmn_read_node_rules(struct bpmn_reader *reader, struct node *node, struct element *el);
/* What a node of its kind must have; `message`: it has a messageEventDefinition. */
void bpmn_check_node_rules(struct bpmn_reader *reader, const struct node *node, bool message);
/* q:variables of the process or, with `node`, of a sub-process. */
void bpmn_read_variables(struct bpmn_reader *reader, struct element *extensions,
			 const struct node *node);
/* Adds a variable that is local to each run of the node's loop, or (`node` NULL) one that the engine sets. */
void bpmn_add_loop_variable(struct bpmn_reader *reader, int line, const struct node *node,
			    struct str name, bool readonly);
void bpmn_read_process_rules(struct bpmn_reader *reader, struct element *el);
/* bpmn_task.c: q:param and q:output. */
void bpmn_read_param(struct bpmn_reader *reader, struct node *node, struct element *el);
void bpmn_read_output(struct bpmn_reader *reader, struct node *node, struct element *el);
/* bpmn_service.c: channel calls. What the task's q: elements say, then what is made of all of them. */
void bpmn_read_timeout(struct bpmn_reader *reader, struct node *node, struct element *el);
void bpmn_read_retry(struct bpmn_reader *reader, struct node *node, struct element *el);
void bpmn_read_request(struct bpmn_reader *reader, struct node *node, struct element *el);
void bpmn_read_call(struct bpmn_reader *reader, struct node *node, struct element *el);
/* The node's, made when it has none yet. */
struct call_rule *bpmn_call_rule(struct bpmn_reader *reader, struct node *node);
/* The variable responseBody as an expression; NULL if the process declares none. */
const struct expression *bpmn_response_body(struct bpmn_reader *reader, int line);
/* bpmn_event.c: which event a node is by its definition, and what the definition says; `el` may hold several. */
void bpmn_read_event(struct bpmn_reader *reader, struct node *node, struct element *el, bool *message);
/*
 * bpmn_timer.c: the rule that a text in `line` says, which is an expression if it begins with "="; never NULL. A wrong one is
 * reported.
 */
struct timer_rule *bpmn_timer(struct bpmn_reader *reader, enum timer_kind kind, struct str text,
			      int line);
/* The timer of the node, out of its timerEventDefinition. */
void bpmn_read_timer(struct bpmn_reader *reader, struct node *node, struct element *definition);
/* The activity of a boundary event, when all nodes are known. */
void bpmn_attach_boundary(struct bpmn_reader *reader, struct node *node, struct element *el,
			  const struct map *nodes);
/* Pairs the links of the process. */
void bpmn_pair_links(struct bpmn_reader *reader);
bool bpmn_is_event_definition(const struct element *el);
/* bpmn_loop.c: loop characteristics of an activity. */
bool bpmn_is_loop(const struct element *el);
void bpmn_read_loop(struct bpmn_reader *reader, struct node *node, struct element *el);
bool bpmn_is_true(struct str value);
/* What a qualified name says behind its prefix: all of a file, and of a package, share one space of names. */
struct str bpmn_local_name(struct str name);
/* Reports an element that is not supported, and marks it. `where` may be NULL. */
void bpmn_refuse(struct bpmn_reader *reader, struct element *el, const struct element *where);
/* An expression in an attribute or, for scripts and conditions, in the text of an element. */
const struct expression *bpmn_expression(struct bpmn_reader *reader, enum expression_kind kind,
					 struct str source, int line);
/* Reports every q: element and attribute inside `el` that nobody has read. */
void bpmn_sweep(struct bpmn_reader *reader, struct element *el);

#endif
