/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the engine: one step while it runs, and what node behaviours may do with it. Private to src/engine.
 *
 * Life cycle: a struct step lives on the stack of engine_start, _resume or _restore; all its memory is the arena's.
 * Threads: one at a time.
 *
 * A token in a step (the one setter is in step.c):
 *
 *	        step_fork                                     step_take
 *	 (none) ─────────► READY ◄───────────────────────────────────────────────┐
 *	                     │ enter()                                           │
 *	                     ├──── step_park ────► WAITING ── resume() ──────────┤
 *	                     ├──── step_hold ────► HOLDING ── ended(), an event ─┤
 *	                     ├──── join_wait ────► JOINING ── the last arrives ──┘
 *	                     └──── step_consume ─► (gone)
 *
 * From each it is gone, too, when what it stands in is torn down.
 */
#ifndef SUTRA_ENGINE_BEHAVIOUR_H
#define SUTRA_ENGINE_BEHAVIOUR_H

#include "engine/step.h"

/* A token that may run, and the node it stands on. */
struct step_position {
	uint32_t token;
	const struct node *node; /* NULL: the token waits or is gone */
	const struct flow *flow; /* it came by; NULL = by none */
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

	const struct process *event_process; /* whose source that is */
	uint32_t answered; /* the token that a message resumes; 0 = none */
	msgpack_object validation; /* what did not hold of the event, as a map; nil = nothing */
	msgpack_object fault;      /* the BPMN error that was caught last, as a map; nil = none */
	const struct process *fault_process; /* whose event caught it */
	struct instance_wait_key *event_keys; /* what the wait that it resumes was registered under */
	uint32_t event_key_count;
	int64_t event_due_us, event_period_us, event_remaining; /* its timer */
	bool fired; /* it resumes because that timer has come; else by a message */

	struct step_position at; /* the token that runs now */
	struct step_position *ready;
	uint32_t ready_head, ready_count, ready_cap;
	uint32_t passed; /* nodes entered */
	uint32_t left;   /* scope in which a token ended last: it may be over */
	bool has_left;

	uint32_t token_cap, alias_cap, send_cap, added_cap;
	/* The scopes are the input's until the first change; then they are the step's, and so are the variables of those
	 * with a capacity in scope_caps. */
	bool scopes_owned;
	uint32_t scope_cap, scope_caps_cap;
	uint32_t *scope_caps;
	const struct node **reach_queue; /* scratch of join.c, for that many nodes */
	bool *reach_seen[2];
	uint32_t reach_cap;

	uint64_t variables_bytes;
	bool variables_measured;
	uint64_t made_bytes; /* all that was assigned and sent in this step */

	/* What expressions see, kept from one evaluation to the next. */
	struct expression_name *names;
	size_t name_count;
	size_t name_cap;
	uint32_t names_scope;
	uint32_t names_token; /* whose locals are among them; 0 = nobody's */
	bool names_valid;
	uint8_t seed_version[8], seed_token[4]; /* big-endian, so that a seed is the same on every machine */
	char instance_text[ID_TEXT_SIZE];
};

/* How a kind of node behaves. Errors fail the step, but for BPMN errors that something catches. */
struct node_behaviour {
	/* The token at step->at arrives: it must take a flow, be parked, hold, join or be consumed. */
	enum result (*enter)(struct step *step, const struct node *node, struct error *err);
	/* The event for a parked token is here (step->event, variables taken already). NULL: this kind never waits. */
	enum result (*resume)(struct step *step, const struct node *node, struct error *err);
	/* The scope that the token at step->at opened is over, and still there. NULL: this kind opens none. */
	enum result (*ended)(struct step *step, const struct node *node, uint32_t scope,
			     struct error *err);
	/* The timer of a parked token is due. NULL: as resume(). */
	enum result (*fire)(struct step *step, const struct node *node, struct error *err);
	/* The message for a parked token says that it is an error. NULL: it is thrown. */
	enum result (*failed)(struct step *step, const struct node *node, struct str code,
			      struct str message, struct error *err);
};
extern const struct node_behaviour node_behaviours[NODE_KIND_COUNT];

/* step.c */
/* engine_resume, and engine_fire with `fired`. */
enum result step_resume_token(const struct step_env *env, const struct instance *inst,
			      uint32_t token, const struct event *event, bool fired,
			      struct step_result *out, struct error *err) MUST_CHECK;
/* Registers an alias unless the instance has it. */
void step_alias_add(struct step *step, struct str name, struct str value, bool unique);

/* moves.c: moves of the token at step->at. */
void step_take(struct step *step, const struct flow *flow);
/* As a token would by a flow, but without one: links, boundary events. */
void step_jump(struct step *step, const struct node *node);
/* A new token on `node` in `scope`; the caller sees to it. Valid as what step_token returns. */
struct token *step_token_add(struct step *step, uint32_t scope, const struct node *node);
/* The same, ready behind the others; returns its id. */
uint32_t step_spawn(struct step *step, uint32_t scope, const struct node *node,
		    const struct flow *flow);
void step_consume(struct step *step);
/* Takes an armed event out; what it stood beside is none the wiser. */
void step_disarm(struct step *step);
void step_hold(struct step *step);
/*
 * Goes on by every outgoing flow whose condition holds, as a task or event does; with none to go by the token ends. Events
 * armed beside the activity are given up; a run of a loop ends.
 */
enum result step_leave(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Whether a flow may be taken; one without a condition may. */
enum result step_flow_holds(struct step *step, const struct flow *flow, bool *out,
			    struct error *err) MUST_CHECK;
/* Of the instance being made; NULL if there is none. Valid until a token is added or removed. */
struct token *step_token(struct step *step, uint32_t id);
/* Room for one more of `size` bytes behind `count` in an arena array; an array that is borrowed has *cap 0. */
void *step_grow(struct arena *arena, void *items, uint32_t count, uint32_t *cap, size_t size);
/* Makes the token the one that runs, standing on `node`. */
void step_stand(struct step *step, uint32_t token, const struct node *node);
/* Whether the token at step->at is a run of the loop of the very node. */
bool step_in_run(struct step *step, const struct node *node);
/* The process whose nodes stand in a scope, and the node of a token; NULL if the deployment lacks it. */
const struct process *step_process(struct step *step, uint32_t scope);
const struct node *step_node(struct step *step, const struct token *token);

/* wait.c */
/* The token at step->at waits at `node`, under the keys of its aliases. Nothing is armed beside it yet. */
enum result step_wait_begin(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Parks the token at step->at, and arms the events beside it. */
enum result step_park(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Arms an event in `scope`, beside the token `host` or, with 0, beside the scope. */
enum result step_arm(struct step *step, uint32_t scope, uint32_t host, const struct node *event,
		     struct error *err) MUST_CHECK;
/* Arms the message and timer boundary events of the activity for the token at step->at. */
enum result step_arm_boundaries(struct step *step, const struct node *node,
				struct error *err) MUST_CHECK;
/*
 * The token at step->at, an armed event that came, is armed again: for messages under the same keys; a timer for its next time,
 * and if it has none, the token is gone.
 */
void step_rearm(struct step *step);

/* timer.c */
/* When a timer of `rule` that the token at step->at arms now is due. RESULT_REJECT with EXPRESSION_*. */
enum result step_due(struct step *step, const struct node *node, const struct timer_rule *rule,
		     int64_t *due_us, struct error *err) MUST_CHECK;
/* Gives the waiting token at step->at a timer that fires once, beside what else it waits for. */
void step_set_due(struct step *step, int64_t due_us);
/* The token at step->at waits at the timer event `node`. */
enum result timer_begin(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* The token at step->at, whose timer fired, is armed for its next time; false: it has none. */
bool timer_rearm(struct step *step);

/* open.c: scopes open and go. */
/* The token at step->at holds and opens a scope; its variables are the process's or sub-process's own, unset. */
enum result step_open(struct step *step, const struct node *node, const struct process *called,
		      uint32_t *scope, struct error *err) MUST_CHECK;
/* The same for a loop's own scope and for a run in it. */
enum result step_open_loop(struct step *step, const struct node *node, uint32_t *scope,
			   struct error *err) MUST_CHECK;
enum result step_open_run(struct step *step, const struct node *node, uint32_t loop,
			  uint32_t iteration, uint32_t *scope, struct error *err) MUST_CHECK;
/* Arms the event sub-processes of what begins in `scope`. */
enum result step_arm_inside(struct step *step, uint32_t scope, const struct inside *inside,
			    struct error *err) MUST_CHECK;
/* Tears down what the token holds: its scopes and all in them, the events armed beside it. */
void step_clear(struct step *step, uint32_t token);
/* Tears down all that stands in a scope; the scope stays. */
void step_clear_scope(struct step *step, uint32_t scope);
/* Takes out one scope that holds no tokens any more. */
void step_close(struct step *step, uint32_t scope);
/* Whether a token of its own stands in the scope. */
bool step_scope_is_live(const struct instance *inst, uint32_t scope);
/* Begins an event sub-process in `scope`: step->at is a token on its start event. */
enum result step_begin_event_subprocess(struct step *step, uint32_t scope, const struct node *sub,
					struct error *err) MUST_CHECK;

/* throw.c */
/*
 * Throws a BPMN error at the node where step->at stands. RESULT_OK: something caught it, and step->at is where it goes on.
 * Else RESULT_REJECT, and `err` is left alone.
 */
enum result step_throw(struct step *step, struct str code, struct str message,
		       struct error *err) MUST_CHECK;
/* The same, and an error of the step when nothing catches it. `message`: for people, may be absent. */
enum result step_raise(struct step *step, struct str code, struct str message,
		       struct error *err) MUST_CHECK;

/* join.c */
/* The token at step->at stays at the gateway until tokens have come by the other flows. */
void join_wait(struct step *step);
/* Takes the oldest token of each flow that has one at the gateway, but that of step->at, out. */
void join_collect(struct step *step, const struct node *node);
/* Whether all flows have brought a token to where step->at stands; its own counts. */
bool join_is_full(struct step *step, const struct node *node);
/* Nothing is ready: whether an inclusive gateway can go on now; step->at is a token that leaves it. */
bool join_inclusive(struct step *step);

/* loop.c */
enum result loop_enter(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* A run is over; step->at is the token that holds the loop. */
enum result loop_ended(struct step *step, const struct node *node, uint32_t scope,
		       struct error *err) MUST_CHECK;

/* emit.c: the q:send and the q:reply of a node, if it has them. */
enum result step_emit(struct step *step, const struct node *node, struct error *err) MUST_CHECK;

/* task.c */
/* The token at step->at begins at a node: its inputs, if it has any. */
enum result task_begin(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* It is through: outputs, what is to be sent (with `emit`), and away. */
enum result task_end(struct step *step, const struct node *node, bool emit,
		     struct error *err) MUST_CHECK;
/* The inputs as a map. */
msgpack_object task_inputs(struct step *step);
/* NULL if the token has none of that name. */
const msgpack_object *token_local(const struct token *token, struct str name);
/* Of the token at step->at. */
enum result step_local_set(struct step *step, struct str name, const msgpack_object *value,
			   struct error *err) MUST_CHECK;
void step_local_remove(struct step *step, struct str name);
void step_locals_drop(struct step *step, struct token *token);
/* Which row the request of a token's channel call is; false if there is none. */
bool token_request(const struct token *token, struct step_withdrawn *out); /* without its channel */

/* scope.c */
enum result step_eval(struct step *step, const struct node *node, const struct expression *expr,
		      msgpack_object *out, struct error *err) MUST_CHECK;
/* The same in another scope than that of the token at step->at. */
enum result step_eval_in(struct step *step, uint32_t scope, const struct node *node,
			 const struct expression *expr, msgpack_object *out,
			 struct error *err) MUST_CHECK;
enum result step_script(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Assigns a declared variable where `scope` sees it. */
enum result step_assign(struct step *step, uint32_t scope, struct str name,
			const msgpack_object *value, struct error *err) MUST_CHECK;
/* Sets a variable of exactly this scope, declared or not. */
enum result step_set(struct step *step, uint32_t scope, struct str name,
		     const msgpack_object *value, struct error *err) MUST_CHECK;
/* The value of a variable of exactly this scope; NULL if it has none. */
const msgpack_object *step_get(struct step *step, uint32_t scope, struct str name);
/* Whether the variable that `scope` sees may have the value. */
enum result step_check_value(struct step *step, uint32_t scope, struct str name,
			     const msgpack_object *value, struct error *err) MUST_CHECK;
/* Holds the size of all variables against the limit; `name`: what was set last. */
enum result step_check_bytes(struct step *step, struct str name, struct error *err) MUST_CHECK;
/* Unsets the transient ones, at the end of a step. */
void step_drop_transients(struct step *step);
/* Takes every variable that has a source. */
enum result step_receive(struct step *step, const struct node *node, struct error *err) MUST_CHECK;
/* Counts what a step makes; refuses one that makes too much. */
enum result step_made(struct step *step, size_t bytes, struct error *err) MUST_CHECK;
/* Makes the list of scopes the step's own. */
void step_own_scopes(struct step *step);
/* Bytes of the variables of a scope that goes. */
void step_forget(struct step *step, const struct scope *scope);

/* correlate.c */
/*
 * A scalar as text: strings as they are, integers in decimal, booleans as words; STR_NONE for nil. Anything else is
 * RESULT_REJECT with EXPRESSION_FAILED; `what` names it.
 */
enum result scalar_text(struct arena *arena, const msgpack_object *value, const char *what,
			struct str name, struct str *out, struct error *err) MUST_CHECK;
/* What q:validate finds in the event: {code = …} of the first rule that does not hold, or nil. RESULT_REJECT with EXPRESSION_*. */
enum result event_validation(const struct step_env *env, struct str tenant, const struct node *node,
			     const struct event *event, msgpack_object *out,
			     struct error *err) MUST_CHECK;
/* The error that a message is, by its headers; absent = it is none. */
struct str event_error_code(struct arena *arena, const struct event *event);
struct str event_error_message(struct arena *arena, const struct event *event);

/* instance.c */
/* The process of a scope, the node of a token; NULL if the deployment lacks it. */
const struct process *instance_process(const struct deployment *deployment,
				       const struct instance *inst, uint32_t scope);
const struct node *instance_node(const struct deployment *deployment, const struct instance *inst,
				 const struct token *token);
bool instance_has_alias(const struct instance *inst, struct str name, struct str value);
/* NULL if there is none. */
const struct token *instance_token(const struct instance *inst, uint32_t id);
struct scope *instance_scope(const struct instance *inst, uint32_t id);

#endif
