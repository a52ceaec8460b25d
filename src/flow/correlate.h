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
	const struct subscription *start; /* the start event that takes it, NULL = none */
	bool draining_start; /* only a Draining deployment has a start for it */
};

/*
 * `event_id` stands for what any rule makes of the message; absent = by the rules. RESULT_REJECT: an expression failed over the
 * message, or validation did, or nobody takes the type.
 */
enum result correlate_message(const struct step_env *env, struct str tenant, const struct route *route,
			      const struct event *event, struct str event_id, struct correlation **out,
			      struct error *err) MUST_CHECK;

/* The wait to resume among what the resolve found: the oldest that the message's type and its node's rule allow; NULL = none. */
const struct store_wait *correlate_choose(const struct correlation *correlation, const struct store_resolve *resolve);

#endif
