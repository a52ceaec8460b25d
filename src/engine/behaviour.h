/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the engine: one step while it runs, and what node behaviours may do with it. Private to src/engine.
 *
 * Life cycle: a struct step lives on the stack of engine_start, _resume or _restore; all its memory is the arena's.
 * Threads: one at a time.
 *
 * A token in a step (the one setter is in step.c):
 *
 *	        step_fork                   step_take
 *	 (none) ─────────► READY ◄─────────────────────────┐
 *	                     │ enter()                     │ resume()
 *	                     ├──── step_park ────► WAITING ┘
 *	                     └──── step_consume ─► (gone)
 */
#ifndef SUTRA_ENGINE_BEHAVIOUR_H
#define SUTRA_ENGINE_BEHAVIOUR_H

#include "engine/step.h"

/* A token that may run, and the node it stands on. */
struct step_position {
	uint32_t token;
	const struct node *node; /* NULL: the token waits or is gone */
};

struct step {
	const struct step_env *env;
	const struct process *process;
	const struct event *event;
	struct str
		event_name; /* what the payload is called; absent = the start or wait has no source */
	int64_t version;    /* of the input; 0 for a first step */
	struct instance *inst; /* the next instance, being made */
	struct step_result *out;

	struct step_position at; /* the token that runs now */
	struct step_position *ready;
	uint32_t ready_head, ready_count, ready_cap;
	uint32_t passed; /* nodes entered */

	uint32_t token_cap, alias_cap, send_cap, wait_cap, added_cap;
	/* Capacity of each scope's variables where the step owns a copy of them; 0 = still the input's. NULL = the scopes
	 * themselves are still the input's. */
	uint32_t *scope_caps;
	uint64_t variables_bytes;
	bool variables_measured;
	uint64_t made_bytes; /* all that was assigned and sent in this step */

	/* What expressions see, kept from one evaluation to the next. */
	struct expression_name *names;
	size_t name_count;
	uint32_t names_scope;
	bool names_valid;
	uint8_t seed_version[8], seed_token[4]; /* big-endian, so that a seed is the same on every machine */
	char instance_text[ID_TEXT_SIZE];
};

/* How a kind of node behaves. Errors fail the step. */
struct node_behaviour {
	/* The token at step->at arrives: it must take a flow, be parked or be consumed. */
	enum result (*enter)(struct step *step, const struct node *node, struct error *err);
	/* The event for a parked token is here (step->event, variables taken already). NULL: this kind never waits. */
	enum result (*resume)(struct step *step, const struct node *node, struct error *err);
};
extern const struct node_behaviour node_behaviours[NODE_KIND_COUNT];

/* step.c: moves of the token at step->at. */
void step_take(struct step *step, const struct flow *flow);
void step_fork(struct step *step, const struct flow *flow);
void step_consume(struct step *step);
/* Goes on by every outgoing flow whose condition holds, as a task or event does; with none to go by the token ends. */
enum result step_leave(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Whether a flow may be taken; one without a condition may. */
enum result step_flow_holds(struct step *step, const struct flow *flow, bool *out,
			    struct error *err) MUST_CHECK;
/* Of the instance being made; NULL if there is none. Valid until the next step_fork or step_consume. */
struct token *step_token(struct step *step, uint32_t id);
/* Room for one more of `size` bytes behind `count` in an arena array; an array that is borrowed has *cap 0. */
void *step_grow(struct arena *arena, void *items, uint32_t count, uint32_t *cap, size_t size);
/* Registers an alias unless the instance has it. */
void step_alias_add(struct step *step, struct str name, struct str value, bool unique);

/* wait.c: parks the token at step->at. */
enum result step_park(struct step *step, const struct node *node, struct error *err) MUST_CHECK;

/* emit.c: the q:send and the q:reply of a node, if it has them. */
enum result step_emit(struct step *step, const struct node *node, struct error *err) MUST_CHECK;

/* scope.c */
enum result step_eval(struct step *step, const struct node *node, const struct expression *expr,
		      msgpack_object *out, struct error *err) MUST_CHECK;
enum result step_script(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Takes every variable that has a source. */
enum result step_receive(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Counts what a step makes; refuses one that makes too much. */
enum result step_made(struct step *step, size_t bytes, struct error *err) MUST_CHECK;

/* correlate.c */
/*
 * A scalar as text: strings as they are, integers in decimal, booleans as words; STR_NONE for nil. Anything else is
 * RESULT_REJECT with EXPRESSION_FAILED; `what` names it.
 */
enum result scalar_text(struct arena *arena, const msgpack_object *value, const char *what,
			struct str name, struct str *out, struct error *err) MUST_CHECK;

/* instance.c */
bool instance_has_alias(const struct instance *inst, struct str name, struct str value);
/* NULL if there is none. */
const struct token *instance_token(const struct instance *inst, uint32_t id);
struct scope *instance_scope(const struct instance *inst, uint32_t id);

#endif
