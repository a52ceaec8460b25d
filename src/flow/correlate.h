/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Correlate: who is this message for? Before the resolve, the questions: event ids under every live deployment's rule, and the
 * keys of the waits that could match. After it, the answer.
 *
 * Life cycle: a correlation lives in the turn's arena. Threads: the arrival lane's executor.
 */
#ifndef SUTRA_FLOW_CORRELATE_H
#define SUTRA_FLOW_CORRELATE_H

#include "engine/step.h"
#include "flow/envelope.h"
#include "model/deployment.h"
#include "store/store.h"

/* A key looked up, and the waits of the model that ask for it. */
struct correlation_key {
	struct id key;
	struct str name, value; /* the alias that it looks up */
	const struct subscription *wait;
};

struct correlation {
	struct str forced_id; /* absent = by the rules */
	struct str *event_ids; /* distinct; empty when the message has no identity */
	struct id *inbox_keys; /* of the event ids */
	uint32_t inbox_key_count;
	struct correlation_key *keys;
	struct id *wait_keys; /* the keys alone, for the resolve */
	uint32_t key_count;
	struct id order_key; /* of the first key: the alias that it looks up, whatever the channel; none without keys */
	bool has_waits; /* somebody waits on this channel for this type, with or without a key */
	const struct subscription **starts; /* all start events that take it; several only where the channel broadcasts */
	uint32_t start_count;
	const struct subscription *start; /* the first: the start event that takes it, NULL = none */
	bool draining_start; /* only a Draining deployment has a start for it */
};

/*
 * `event_id` stands for what any rule makes of the message; absent = by the rules. RESULT_REJECT: an expression failed over the
 * message, or validation did, or nobody takes the type.
 */
enum result correlate_message(const struct step_env *env, struct str tenant, const struct route *route,
			      const struct event *event, struct str event_id, struct correlation **out,
			      struct error *err) MUST_CHECK;

/*
 * Who is to have it, of those that the resolve found (NULL = nothing was asked), and of the starts. One wait and one start are told as
 * such; several, or a wait that says `match="all"`, as notes for rows of their own.
 */
enum correlate_verdict { CORRELATE_NOBODY, CORRELATE_WAIT, CORRELATE_START, CORRELATE_SEVERAL };
struct correlate_targets {
	enum correlate_verdict verdict;
	const struct store_wait *wait;
	const struct subscription *start;
	struct envelope_note *notes; /* waits first */
	struct arena *arena;
	uint32_t count, wait_count;
};
struct correlate_targets correlate_targets(struct arena *arena, struct str tenant, const struct correlation *correlation,
					   const struct store_resolve *resolve, bool broadcast);
/* The note for a wait that was found. */
struct envelope_note correlate_note(struct str tenant, const struct correlation *correlation,
				    const struct store_resolve *resolve, const struct store_wait *wait);

/* Among what the resolve found, the oldest wait that the message's type allows, of the process of a subscription (NULL = of any). */
const struct store_wait *correlate_oldest(const struct correlation *correlation, const struct store_resolve *resolve,
					  const struct subscription *of);

#endif
