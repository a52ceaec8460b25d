/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of package_build share: the deployment that grows, its expressions and the findings. Private to model.
 *
 * Life cycle: one on the stack of package_build. Everything lasting is in the deployment's arena.
 * Threads: one.
 */
#ifndef SUTRA_MODEL_BUILD_H
#define SUTRA_MODEL_BUILD_H

#include "model/package.h"

/* Bounds of a model; more is refused at load. */
#define BUILD_PROCESSES_MAX        1000
#define BUILD_NODES_MAX            10000 /* per process */
#define BUILD_FLOWS_MAX            20000 /* per process */
#define BUILD_RULES_MAX            256   /* aliases, headers, validations of one node */
#define BUILD_VARIABLES_MAX        1000  /* per process */
#define BUILD_CHANNELS_MAX         1000
#define BUILD_SOURCES_MAX          2000 /* starts and waits of a package: each is held against each */
#define BUILD_PATTERNS_MAX         200 /* of them with a pattern, which takes longer */
#define BUILD_TYPE_MAX             128 /* bytes of a message type or pattern */
#define BUILD_EXPRESSION_BYTES_MAX ((size_t)64 * 1024)
#define BUILD_EXPRESSIONS_MAX      50000
#define BUILD_NAME_MAX             128 /* bytes of an id, a name, a channel */

struct build {
	struct deployment *deployment;
	struct arena *arena; /* the deployment's */
	struct findings *findings;
	bool expressions_full; /* said once */
	bool channels_unread; /* channels.conf could not be read, so it cannot be told what it lacks */
};

/*
 * Room for one more element in an array of the arena that holds `count`; returns the array, moved or not. The capacity
 * follows from the count, so callers keep none. Elements are not cleared.
 */
void *build_grow(struct arena *arena, void *items, uint32_t count, size_t size);

/* A terminated copy in the arena; STR_NONE stays that. */
struct str build_str(struct build *build, struct str s);

/* Adds to the deployment's set. Over-long sources are a finding (and still become an expression). Never NULL. */
const struct expression *build_expression(struct build *build, enum expression_kind kind,
					  struct str source, const char *file, int line,
					  struct str element);

/* `[A-Za-z_][A-Za-z0-9_]*` of at most BUILD_NAME_MAX bytes. */
bool build_is_identifier(struct str name);
/* A letter or digit, then those and `._-`, at most BUILD_NAME_MAX bytes: channels. */
bool build_is_channel_name(struct str name);
/* Words of Lua and names that every expression sees: not to be hidden by variables or sources. */
bool build_is_reserved(struct str name);

/* channel_read.c: channels.conf into build->deployment->channels. */
void channel_read(struct build *build, const char *file, struct str text);
/* bpmn_read.c: one diagram into build->deployment->processes. */
void bpmn_read(struct build *build, const char *file, struct str bytes);
/* bpmn_check.c: what one process needs to be run. */
void bpmn_check(struct build *build, struct process *process);
/* bpmn_link.c: what needs all processes of the package: calls, starts, aliases. */
void bpmn_link(struct build *build);
/* bpmn_scope.c: every expression of the process against the names it may use. */
void bpmn_check_expressions(struct build *build, const struct process *process);
/* The outputs of a call activity, over the process that it calls. */
void bpmn_check_outputs(struct build *build, const struct node *call);
/* The key expression of a channel that the process sends to: false after a finding. */
bool bpmn_check_key(struct build *build, const struct process *process,
		    const struct channel *channel) MUST_CHECK;
/* channel_check.c: rules between channels, and between processes and channels. */
void channel_check(struct build *build);

#endif
