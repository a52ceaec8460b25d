/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First instances and FAILED ones (failed.c), and the events that these keep (event.c). Private to src/engine.
 * Life cycle: everything is made in the step's arena. Threads: pure functions.
 */
#ifndef SUTRA_ENGINE_FAILED_H
#define SUTRA_ENGINE_FAILED_H

#include "engine/behaviour.h"

/* An instance of version 1 whose one token is ready on `start`, with its aliases. RESULT_REJECT as engine_correlate. */
enum result first_instance(const struct step_env *env, struct id id, struct str tenant,
			   const struct node *start, const struct event *event,
			   struct instance **out, struct error *err) MUST_CHECK;
/* The result of a step on `before` that failed at `at` (may be NULL). */
void instance_fail(const struct step_env *env, const struct instance *before,
		   const struct error *why, const struct node *at, struct step_result *out);
/* Where the token waits, for a message or a timer; NULL if it does not, or if the deployment has no such wait. */
const struct node *wait_node(const struct deployment *deployment, const struct instance *inst,
			     const struct token *token);
/* The waits for messages of all waiting tokens whose nodes are such in the deployment. */
struct step_wait *instance_waits(struct arena *arena, const struct instance *inst,
				 const struct deployment *deployment, uint32_t *count);
/* The timers of all waiting tokens. */
struct step_timer *instance_timers(struct arena *arena, const struct instance *inst,
				   const struct deployment *deployment, uint32_t *count);
/*
 * What the step did to the waits and timers: those of `before` (may be NULL) that are gone, and those that are new in
 * `after`.
 */
void instance_waits_changed(const struct step_env *env, const struct instance *before,
			    const struct instance *after, struct step_result *out);
/* Which requests of channel calls are given up: of all that have ended but that of the token `answered` (0 = none). */
void instance_calls_changed(const struct step_env *env, const struct instance *before,
			    const struct instance *after, uint32_t answered, struct step_result *out);

/* An event as a value that a snapshot can hold, and back. */
msgpack_object event_to_value(struct arena *arena, const struct event *event);
enum result event_from_value(struct arena *arena, const msgpack_object *value, struct event *out,
			     struct error *err) MUST_CHECK;

#endif
