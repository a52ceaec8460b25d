/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes: the graph that the engine runs, read from BPMN 2.0 XML with the q: namespace urn:sutra:q:1.0.
 *
 * Life cycle: part of a deployment, immutable once built; all pointers and slices live as long as the deployment.
 * Threads: read-only, any.
 */
#ifndef SUTRA_MODEL_PROCESS_H
#define SUTRA_MODEL_PROCESS_H

#include "base/map.h"
#include "base/str.h"
#include "model/timer.h"
#include "value/expression.h"

struct node;
struct process;

enum node_kind {
	NODE_START,             /* start event: with a source a message's, without one of a sub-process or a called process */
	NODE_START_TIMER,       /* timer start event of a process: begins it again and again, or once */
	NODE_END,               /* none or message end event */
	NODE_END_TERMINATE,     /* terminate end event */
	NODE_END_ERROR,         /* error end event */
	NODE_CATCH,             /* intermediate message catch event: parks */
	NODE_TIMER,             /* intermediate timer catch event: parks */
	NODE_LINK_CATCH,        /* where a link arrives */
	NODE_RECEIVE,           /* receive task: parks */
	NODE_USER,              /* user task: parks */
	NODE_THROW,             /* intermediate none or message throw event */
	NODE_LINK_THROW,        /* where a link leaves */
	NODE_SEND,              /* send task */
	NODE_SERVICE,           /* service or business rule task, a channel call: sends, then parks */
	NODE_SCRIPT,            /* script task */
	NODE_PASS,              /* task, manual task */
	NODE_EXCLUSIVE,         /* exclusive gateway */
	NODE_PARALLEL,          /* parallel gateway */
	NODE_INCLUSIVE,         /* inclusive gateway */
	NODE_EVENT_GATEWAY,     /* event-based gateway: parks at each of its arms */
	NODE_SUBPROCESS,        /* embedded sub-process */
	NODE_EVENT_SUBPROCESS,  /* event sub-process; no flows lead in or out */
	NODE_CALL,              /* call activity */
	NODE_BOUNDARY,          /* message boundary event: parks beside its activity */
	NODE_BOUNDARY_TIMER,    /* timer boundary event: parks beside its activity */
	NODE_BOUNDARY_ERROR,    /* error boundary event */
	NODE_EVENT_START,       /* message start event of an event sub-process: parks beside its scope */
	NODE_EVENT_START_TIMER, /* timer start event of an event sub-process: parks beside its scope */
	NODE_EVENT_START_ERROR, /* error start event of an event sub-process */
	NODE_KIND_COUNT
};

enum wait_match { MATCH_OLDEST, MATCH_ALL, MATCH_UNIQUE };

/* q:validate */
struct validate_rule {
	const struct expression *expression;
	struct str code;
};

/* q:source on a start event or a wait. */
struct source {
	struct str channel;
	struct str name;         /* "payload" by default */
	struct str type_value;   /* messageTypeValue; absent = any */
	struct str type_pattern; /* messageTypePattern, a glob with * and ?; absent = none */
	const struct expression *dedup_key; /* NULL = none */
	enum wait_match match;
	struct validate_rule *validates;
	uint32_t validate_count;
	int line;
};

/* q:alias */
struct alias_rule {
	struct str name;
	const struct expression *expression; /* over the message; NULL only with `value` */
	const struct expression *value;      /* over the instance, at park; NULL = none */
	bool unique;
	bool correlate; /* onConflict="correlate" */
	int line;
};

/* q:header */
struct header_rule {
	struct str name;
	const struct expression *value;
};

/* q:send */
struct send_rule {
	struct str channel;            /* outbound */
	const struct expression *body; /* NULL only in a channel call: a map of its inputs */
	struct str content_type;       /* absent = the codec's */
	bool required;
};

/* q:retry of a channel call */
struct retry_rule {
	uint32_t max_attempts; /* the first one counts */
	int64_t initial_delay_us, max_delay_us;
	int64_t coefficient_milli; /* thousandths, from 1000 up: each delay is so many times the one before */
	struct str *final_codes; /* nonRetryableCodes */
	uint32_t final_code_count;
};

/* What a channel call has beside the request (`send`) and the wait for its answer (`source`, `aliases`). */
struct call_rule {
	const struct expression *timeout; /* gives the duration; NULL = timeout_us */
	int64_t timeout_us;
	bool has_timeout;
	const struct retry_rule *retry; /* NULL = one attempt */
};

/* q:reply */
struct reply_rule {
	const struct expression *body; /* never NULL */
	struct str
		channel; /* outbound channel that codes and, without a reply address, carries it; absent = see the
			     * inbound channel's reply-channel */
};

/* q:param */
struct param_rule {
	struct str name;                    /* of a task: what its expressions see; of a call: a variable of the called process */
	const struct expression *expression; /* over the instance; of a call over the caller */
	int line;
};

/* q:output */
struct output_rule {
	struct str variable;                /* of the process; of a call of the caller */
	const struct expression *expression; /* over the task; of a call over the called process, when it has ended */
	int line;
};

/* Standard loop or multi-instance of an activity. */
struct loop_rule {
	bool multi;    /* multi-instance; else a standard loop */
	bool parallel; /* multi-instance: all at once */
	/* multi-instance: one of the two */
	const struct expression *collection;  /* a list */
	const struct expression *cardinality; /* a number of runs */
	struct str element;                   /* variable that has the item in each run; absent = none */
	const struct expression *output;      /* of each run, in its scope; NULL = none */
	struct str output_variable;           /* takes the list of outputs */
	const struct expression *condition;   /* loop: go on; multi-instance: enough. NULL = none */
	bool test_before;                     /* standard loop */
	int64_t maximum;                      /* standard loop; 0 = no bound but the step's */
	int line;
};

/* What stands in a process or a sub-process. */
struct inside {
	const struct node *start;       /* without a source: where the inside begins; NULL = it cannot begin by itself */
	struct node **event_subs;       /* its event sub-processes, in document order */
	uint32_t event_sub_count;
};

struct flow {
	struct str id;
	const struct node *from;
	const struct node *to;
	const struct expression *condition; /* NULL = none */
	uint32_t index;                     /* in its process */
	int line;
};

struct node {
	struct str id;
	struct str name; /* for people; may be absent */
	enum node_kind kind;
	uint32_t index; /* in its process */
	int line;
	const struct process *process;
	struct flow **incoming;
	struct flow **outgoing; /* in document order */
	uint32_t incoming_count, outgoing_count;
	const struct flow *default_flow; /* gateways and tasks; NULL = none */
	struct source *source;           /* starts and waits; NULL = none */
	struct timer_rule *timer;        /* of timer events; of a wait for a message: how long at most. NULL = none */
	struct alias_rule *aliases;
	uint32_t alias_count;
	struct send_rule *send;   /* NULL = none */
	struct call_rule *call;   /* NODE_SERVICE; with `send`, the request */
	struct reply_rule *reply; /* tasks and end events; never beside `send`; NULL = none */
	struct header_rule *headers;
	uint32_t header_count;
	const struct expression *script; /* NODE_SCRIPT */

	struct node *container;     /* the sub-process it stands in; NULL = the process itself */
	struct inside inside;       /* sub-processes; the start of an event sub-process is its triggering event */
	struct node *host;          /* boundary events: their activity */
	struct node **boundaries;   /* activities: their boundary events, in document order */
	uint32_t boundary_count;
	bool interrupting;          /* boundary events and starts of event sub-processes */
	struct str error_code;      /* error events; absent on one that catches = any error */
	const struct node *link;    /* NODE_LINK_THROW: where the token goes on; NODE_LINK_CATCH: NULL */
	struct str called_id;       /* NODE_CALL */
	const struct process *called;
	struct param_rule *params; /* tasks and calls */
	uint32_t param_count;
	struct output_rule *outputs;
	uint32_t output_count;
	struct loop_rule *loop;     /* activities; NULL = runs once */
};

enum variable_type {
	VARIABLE_ANY,
	VARIABLE_STRING,
	VARIABLE_INTEGER,
	VARIABLE_NUMBER,
	VARIABLE_BOOLEAN,
	VARIABLE_MAP,
	VARIABLE_LIST,
};

/* q:variable */
struct variable {
	struct str name;
	enum variable_type type;
	const struct expression *source; /* taken whenever a start or wait receives; NULL = none */
	bool sensitive;                  /* masked in every listing and log */
	bool transient;                  /* unset at the end of every step, so never stored */
	bool readonly;                   /* set by the engine only: items and counters of loops */
	const struct node *scope;        /* the sub-process or loop that it is local to; NULL = the process */
	bool of_run;                     /* local to each run of the loop, not to the sub-process itself */
	int line;
};

struct process {
	struct str id;
	struct str name;
	struct node **nodes; /* in document order */
	uint32_t node_count;
	struct node **
		nodes_by_id; /* the same, sorted by id, for process_node; NULL = look through nodes */
	struct flow **flows;
	uint32_t flow_count;
	struct variable *variables;
	uint32_t variable_count;
	struct str *variable_names; /* of those `variables` that scripts may assign */
	uint32_t assignable_count;
	struct inside inside;
	bool torn;   /* while it is built: parts of it were refused */
	bool called; /* by a call activity of the package */
	bool route_validation; /* what a q:validate finds is told to the process (q:onValidation); else the message is rejected */
	bool idempotent; /* a failed step may be tried again */
	const char *file;           /* path inside the package */
	int line;
};

/* NULL if the process has no such node. */
const struct node *process_node(const struct process *process, struct str id);
const char *node_kind_name(enum node_kind kind);
/* Kinds that a timer resumes, and nothing else; with a rule, always. */
static inline bool node_is_timer(const struct node *node)
{
	return node->kind == NODE_TIMER || node->kind == NODE_BOUNDARY_TIMER || node->kind == NODE_EVENT_START_TIMER;
}
/* Where an instance may begin by itself. */
static inline bool node_is_process_start(const struct node *node)
{
	return (node->kind == NODE_START || node->kind == NODE_START_TIMER) && !node->container;
}
/* Kinds that a message resumes; with a source, always. */
static inline bool node_is_wait(const struct node *node)
{
	return node->kind == NODE_CATCH || node->kind == NODE_RECEIVE || node->kind == NODE_USER ||
	       node->kind == NODE_SERVICE || node->kind == NODE_BOUNDARY || node->kind == NODE_EVENT_START;
}
/* Tasks with q:param, which is seen by their own expressions; a call's are variables of what it calls. */
static inline bool node_has_inputs(const struct node *node)
{
	return node->param_count > 0 && node->kind != NODE_CALL;
}
/* Tasks, sub-processes and call activities: what may loop and have boundary events. */
bool node_is_activity(const struct node *node);
static inline bool node_is_end(const struct node *node)
{
	return node->kind == NODE_END || node->kind == NODE_END_TERMINATE || node->kind == NODE_END_ERROR;
}
static inline bool node_is_boundary(const struct node *node)
{
	return node->kind == NODE_BOUNDARY || node->kind == NODE_BOUNDARY_TIMER ||
	       node->kind == NODE_BOUNDARY_ERROR;
}
/* A gateway that waits for tokens on several flows. */
static inline bool node_is_join(const struct node *node)
{
	return (node->kind == NODE_PARALLEL || node->kind == NODE_INCLUSIVE) && node->incoming_count > 1;
}
/* Whether a message of this type (absent = none) on the source's channel is for it. */
bool source_takes_type(const struct source *source, struct str message_type);
/* Whether there is a message type that both take. */
bool source_types_overlap(const struct source *a, const struct source *b);
/* Whether a value has the declared type; nil has every type. */
bool variable_accepts(const struct variable *variable, const msgpack_object *value);

#endif
