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
#include "value/expression.h"

struct node;
struct process;

enum node_kind {
	NODE_START,     /* none or message start event */
	NODE_END,       /* none or message end event */
	NODE_CATCH,     /* intermediate message catch event: parks */
	NODE_RECEIVE,   /* receive task: parks */
	NODE_THROW,     /* intermediate none or message throw event */
	NODE_SEND,      /* send task */
	NODE_SCRIPT,    /* script task */
	NODE_PASS,      /* task, manual task */
	NODE_EXCLUSIVE, /* exclusive gateway */
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
	const struct expression *body; /* never NULL: defaults to the variable responseBody */
	struct str content_type;       /* absent = the codec's */
	bool required;
};

/* q:reply */
struct reply_rule {
	const struct expression *body; /* never NULL */
	struct str
		channel; /* outbound channel that codes and, without a reply address, carries it; absent = see the
			     * inbound channel's reply-channel */
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
	struct alias_rule *aliases;
	uint32_t alias_count;
	struct send_rule *send;   /* NULL = none */
	struct reply_rule *reply; /* tasks and end events; never beside `send`; NULL = none */
	struct header_rule *headers;
	uint32_t header_count;
	const struct expression *script; /* NODE_SCRIPT */
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
	struct str *variable_names; /* the names of `variables`, for expression scopes */
	const char *file;           /* path inside the package */
	int line;
};

/* NULL if the process has no such node. */
const struct node *process_node(const struct process *process, struct str id);
const char *node_kind_name(enum node_kind kind);
static inline bool node_is_wait(const struct node *node)
{
	return node->kind == NODE_CATCH || node->kind == NODE_RECEIVE;
}
/* Whether a message of this type (absent = none) on the source's channel is for it. */
bool source_takes_type(const struct source *source, struct str message_type);
/* Whether there is a message type that both take. */
bool source_types_overlap(const struct source *a, const struct source *b);
/* Whether a value has the declared type; nil has every type. */
bool variable_accepts(const struct variable *variable, const msgpack_object *value);

#endif
