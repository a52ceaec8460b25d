/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances: the whole state of one run of a process, and its snapshot.
 *
 * Life cycle: an instance lives in the arena it was made or loaded into and ends with it. engine_step never changes one:
 * it makes the next one. Threads: one at a time.
 */
#ifndef SUTRA_ENGINE_INSTANCE_H
#define SUTRA_ENGINE_INSTANCE_H

#include "base/id.h"
#include "value/value.h"

enum instance_status {
	INSTANCE_RUNNING = 0, /* never stored: a step ends parked or finished */
	INSTANCE_SUSPENDED = 1,
	INSTANCE_COMPLETED = 2,
	INSTANCE_TERMINATED = 3,
	INSTANCE_FAILED = 4,
};
const char *instance_status_name(enum instance_status status); /* "SUSPENDED" … */
static inline bool instance_status_is_terminal(enum instance_status status)
{
	return status == INSTANCE_COMPLETED || status == INSTANCE_TERMINATED;
}

/* A (name, value) that messages find the instance by. */
struct instance_alias {
	struct str name;
	struct str value; /* text of a scalar: strings as they are, integers in decimal */
	bool unique;
};

/* One value a wait can be found by. */
struct instance_wait_key {
	struct str name;
	struct str value;
};

enum token_state {
	TOKEN_READY,   /* about to enter its node; never stored except in a FAILED first step */
	TOKEN_WAITING, /* parked at its node for a message, a timer, or both */
	TOKEN_JOINING, /* at a gateway that waits for tokens on other flows too */
	TOKEN_HOLDING, /* at a node whose inside runs, or whose events are armed in its stead */
};
const char *token_state_name(enum token_state state); /* "WAITING" … */

struct scope_variable {
	struct str name;
	msgpack_object value;
};

struct token {
	uint32_t id;    /* unique in the instance, never reused, never 0 */
	uint32_t scope; /* scope id */
	/*
	 * 0: a token of its own. Else an event that is armed beside something, and gone with it: its host is the token at the
	 * activity or event-based gateway it is armed for, or itself if that is the whole scope (event sub-processes).
	 */
	uint32_t host;
	struct str node; /* node id */
	struct str flow; /* of a joining token: id of the flow it came by */
	enum token_state state;
	struct instance_wait_key *keys; /* of a waiting token: what its wait is registered under */
	uint32_t key_count;
	int64_t due_us; /* of a waiting token: when its timer is due, wall clock; 0 = it has none */
	int64_t period_us; /* of a timer that is armed again when it fires: the distance of its times; 0 = it fires once */
	int64_t remaining; /* how often it is due after that; -1 = without end */
	/* What is known at this token only while it is at its task: inputs, and what the engine remembers of a channel call. */
	struct scope_variable *locals;
	uint32_t local_count;
	bool fresh; /* it parked in this step; not stored */
};

/*
 * The process itself is scope 0. A token that holds opens more: a sub-process or called process has one; a loop has one for
 * itself, with its state as variables, and in that one for each run.
 */
struct scope {
	uint32_t id;
	uint32_t parent;    /* == id for the root */
	uint32_t owner;     /* the holding token that opened it; 0 for the root */
	uint32_t iteration; /* of a run of a loop, from 1; else 0 */
	struct str node;    /* node id that opened it; absent for the root */
	struct str process; /* of a call: the process that runs in it; absent = the parent's, of the root the instance's */
	struct scope_variable *variables;
	uint32_t variable_count;
};

/* Where q:reply answers to; taken from the message that started the instance. */
struct reply_address {
	struct str channel; /* the inbound channel it came by; absent = no message started it */
	struct str connection;
	struct str transport;
	struct str destination;     /* absent = the message had no reply address */
	msgpack_object correlation; /* correlation id, exactly as it came; nil = none */
};

struct instance {
	struct id id;
	struct str tenant;
	struct str deployment;
	struct str process;
	enum instance_status status;
	int64_t version; /* 0 before the first commit; a step's result is its input's + 1 */
	int64_t started_us;
	uint32_t next_token;
	uint32_t next_scope;
	struct token *tokens;
	uint32_t token_count;
	struct scope *scopes;
	uint32_t scope_count;
	struct instance_alias *aliases;
	uint32_t alias_count;
	struct reply_address reply;
	struct str traceparent, tracestate;
	/* FAILED only: why, and the tokens as they stood before the step stay in `tokens`. */
	struct str failure_code;
	struct str failure_detail;
	struct str failure_node;
	/* A first step that failed: what it was to receive, so that restore can run it again. nil otherwise. */
	msgpack_object failure_event;
};

/* The id of the process whose nodes and variables stand in a scope. */
struct str instance_scope_process(const struct instance *inst, uint32_t scope);

/* Appends the MessagePack form, with a format number in front. Everything but id, tenant and version, which are columns. */
void snapshot_pack(const struct instance *inst, struct buf *out);
/* `bytes` may be borrowed by the result: they must live as long as the arena. RESULT_FATAL, RUNTIME_SNAPSHOT_INVALID. */
enum result snapshot_unpack(struct arena *arena, struct str bytes, struct id id, struct str tenant,
			    int64_t version, struct instance **out, struct error *err) MUST_CHECK;

#endif
