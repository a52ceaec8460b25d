/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pure engine: an instance, an event, the time and an arena in; the next instance and a list of effects out.
 * It opens nothing, reads no clock, draws no random number, keeps nothing.
 *
 * Life cycle: everything in a result lives in the step's arena (or in the input, which must outlive it).
 * Threads: any; the expression state belongs to the caller.
 */
#ifndef SUTRA_ENGINE_STEP_H
#define SUTRA_ENGINE_STEP_H

#include "engine/instance.h"
#include "model/deployment.h"

/* A message that arrived for a start event or a wait. */
struct event {
	msgpack_object payload;
	const struct header_list *headers;
	struct str id;   /* event id; may be absent */
	struct str type; /* message type; may be absent */
	struct str channel;
	struct str key;  /* record key; may be absent */
	int64_t time_us; /* 0 = unknown */
	struct reply_address reply;
	struct str traceparent, tracestate;
	/* The dead letter that a failure with it leaves; none = all zero. No business of the engine's: it is kept with a first step that
	 * failed, for whoever commits the restore. */
	struct id dead_letter;
};

struct step_env {
	struct arena *arena;
	struct expression_state *expressions; /* with the deployment's set loaded */
	const struct deployment *deployment;
	int64_t now_us;               /* the time of the step */
	uint32_t max_nodes;           /* nodes one step may pass: 10 000 */
	uint64_t max_variables_bytes; /* instance.max-variables-bytes */
};

/* One outgoing message; the body is not coded yet. */
struct step_send {
	const struct node *node;
	const struct channel *channel; /* outbound channel that codes it; never NULL */
	bool is_reply;                 /* it came from a q:reply */
	/* Replies only. With an address (`destination.destination` present) the message goes there and `channel`, maybe the
	 * inbound one, only codes it; without, it goes out by `channel` as any send. */
	struct reply_address destination;
	msgpack_object body;
	struct header_list headers;
	struct str key; /* record key: the channel's key expression, else the instance id's text */
	struct str content_type; /* absent = the codec's */
	bool required;
	uint32_t ordinal; /* 0, 1, … within the step */
};

struct step_wait {
	uint32_t token;
	const struct node *node; /* a wait with a source, always */
	struct instance_wait_key *keys;
	uint32_t key_count;
};

/* A timer of a waiting token: at most one each. */
struct step_timer {
	uint32_t token;
	const struct node *node; /* where the token waits; of those removed NULL if the deployment has no such node */
	int64_t due_us;
};

/* An outbox row of an earlier step, by its place there. */
struct step_withdrawn {
	struct str channel;
	int64_t version;
	uint32_t ordinal;
};

struct step_result {
	struct instance *inst; /* the next instance: SUSPENDED, COMPLETED, TERMINATED or FAILED */
	struct step_send *sends;
	uint32_t send_count;
	struct step_wait *waits_added;
	uint32_t waits_added_count;
	/* Keys as they were registered. A wait whose node the deployment does not have as a wait is left out: nobody can say
	 * under what it was registered. */
	struct step_wait *waits_removed;
	uint32_t waits_removed_count;
	/* A token whose timer is set anew is in both. All of them are removed, whatever the deployment has. */
	struct step_timer *timers_added;
	uint32_t timers_added_count;
	struct step_timer *timers_removed;
	uint32_t timers_removed_count;
	/* Requests of channel calls that ended without an answer: if they were not sent yet, they need not be. */
	struct step_withdrawn *withdrawn;
	uint32_t withdrawn_count;
	/* Net effects: the aliases of an instance that ended are removed, and one that it got in this very step is in neither
	 * list. Those of a FAILED instance stay, and a failed first step registers the ones of its start. */
	struct instance_alias *aliases_added;
	uint32_t aliases_added_count;
	struct instance_alias *aliases_removed;
	uint32_t aliases_removed_count;
	/* Set when the step failed: `inst` is then the instance before the step, re-stamped FAILED (version + 1), all its waits
	 * are in waits_removed, all its timers in timers_removed, and there are no sends. */
	bool failed;
	struct error failure;
	const struct node *failure_node;
};

/*
 * Starts an instance at `start` (a message or timer start event of env->deployment; the event of a timer has nothing but
 * `time_us`, when it was due). `id` and `tenant` are the new instance's.
 * RESULT_OK always carries a result (maybe failed). RESULT_REJECT: the message cannot start it (an alias or source
 * expression failed): no instance. @thread any
 */
enum result engine_start(const struct step_env *env, struct id id, struct str tenant,
			 const struct node *start, const struct event *event,
			 struct step_result *out, struct error *err) MUST_CHECK;
/*
 * Resumes the waiting token `token` with `event`. RESULT_AGAIN: that token does not wait (any more): resolve again.
 * RESULT_OK always carries a result (maybe failed).
 */
enum result engine_resume(const struct step_env *env, const struct instance *inst, uint32_t token,
			  const struct event *event, struct step_result *out,
			  struct error *err) MUST_CHECK;
/*
 * Resumes the waiting token `token`, whose timer, due at `due_us`, has come. RESULT_AGAIN: it has no such timer (any more).
 * Expressions see event.time = `due_us`, and no message; variables with a source keep their values.
 * RESULT_OK always carries a result (maybe failed).
 */
enum result engine_fire(const struct step_env *env, const struct instance *inst, uint32_t token,
			int64_t due_us, struct step_result *out, struct error *err) MUST_CHECK;
/*
 * The result of failing: what a caller commits when something after the step (coding a body, a late gate) cannot succeed.
 * `before` is the instance before the step; for a first step (`before` NULL) one is made standing on `start` with its event.
 */
void engine_fail(const struct step_env *env, const struct instance *before, struct id id,
		 struct str tenant, const struct node *start, const struct event *event,
		 const struct error *why, const struct node *at, struct step_result *out);

/*
 * The exact inverse of failing: the same tokens SUSPENDED, all their waits in waits_added and their timers in timers_added. A first step that failed is run
 * again instead, from the message kept with it (then the result may be failed again, and its aliases are registered
 * already). RESULT_AGAIN: not FAILED. RESULT_REJECT: the deployment lacks a node, or it is no wait there. RESULT_FATAL with
 * RUNTIME_SNAPSHOT_INVALID: the message kept is damaged.
 */
enum result engine_restore(const struct step_env *env, const struct instance *inst,
			   struct step_result *out, struct error *err) MUST_CHECK;

/* The dead letter of the first step that failed, as its event had it; none = all zero: another step failed, or it was not known. */
struct id engine_failed_letter(const struct instance *inst);

/*
 * Operators' commands (command.c). Cancel ends an instance that is SUSPENDED or FAILED as TERMINATED: its waits, timers and
 * aliases are removed. RESULT_AGAIN: it has ended already.
 */
enum result engine_cancel(const struct step_env *env, const struct instance *inst,
			  struct step_result *out, struct error *err) MUST_CHECK;
/*
 * Completes a user task by hand: resumes the token that waits at the user task `node` (of several the oldest) with `event`, whose
 * payload takes the place of a message's. RESULT_AGAIN: the instance is not SUSPENDED. RESULT_REJECT with ADMIN_NOT_FOUND: no
 * token waits at a user task of that id. RESULT_OK always carries a result (maybe failed).
 */
enum result engine_complete(const struct step_env *env, const struct instance *inst, struct str node,
			    const struct event *event, struct step_result *out,
			    struct error *err) MUST_CHECK;

/*
 * The correlation values of a message for a wait (or the aliases of a start): evaluates the alias expressions of `node` over
 * the event alone. A nil or missing value gives no key. RESULT_REJECT with EXPRESSION_*: the message is rejected.
 */
enum result engine_correlate(const struct step_env *env, struct str tenant, const struct node *node,
			     const struct event *event, struct instance_wait_key **keys,
			     uint32_t *count, struct error *err) MUST_CHECK;
/*
 * The q:validate rules of a source: RESULT_REJECT with INBOUND_VALIDATION_REJECT and the rule's code in the text. What does not hold
 * is no rejection where the process takes it up itself (q:onValidation), nor in an answer that is an error.
 */
enum result engine_validate(const struct step_env *env, struct str tenant, const struct node *node,
			    const struct event *event, struct error *err) MUST_CHECK;
/* The source's dedupKey over the event; STR_NONE if it has none or it gives nil. RESULT_REJECT with EXPRESSION_*. */
enum result engine_dedup_key(const struct step_env *env, struct str tenant, const struct node *node,
			     const struct event *event, struct str *out,
			     struct error *err) MUST_CHECK;

#endif
