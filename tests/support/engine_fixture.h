/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deployment, an expression state and an arena, to run steps by hand. Everything in a result lives until the fixture ends.
 *
 * Life cycle: engine_fixture_init takes the model; engine_fixture_done. Threads: one at a time.
 * A call whose result is not the expected one fails the Check test.
 */
#ifndef SUTRA_TESTS_SUPPORT_ENGINE_FIXTURE_H
#define SUTRA_TESTS_SUPPORT_ENGINE_FIXTURE_H

#include "engine/step.h"
#include "tests/support/model_builder.h"

#define ENGINE_FIXTURE_NOW INT64_C(1800000000000000)

struct engine_fixture {
	struct arena arena;
	struct deployment *deployment;
	struct expression_state *expressions;
	struct step_env env;
	struct id id;     /* of the instances it starts */
	struct error err; /* of the last call */
};

void engine_fixture_init(struct engine_fixture *fixture, struct model **model);
/* Takes the caller's reference. */
void engine_fixture_init_deployment(struct engine_fixture *fixture, struct deployment *deployment);
void engine_fixture_done(struct engine_fixture *fixture);
/* Of the first process. */
const struct node *engine_fixture_node(struct engine_fixture *fixture, const char *id);
/* An event on `channel` with a payload read from JSON; without headers. */
struct event engine_fixture_event(struct engine_fixture *fixture, const char *channel,
				  const char *json);
msgpack_object engine_fixture_value(struct engine_fixture *fixture, const char *json);
/* Steps that must give a result. The token resumed is the first that waits at `node`. */
struct step_result engine_fixture_start(struct engine_fixture *fixture, const char *start,
					const char *json);
struct step_result engine_fixture_resume(struct engine_fixture *fixture,
					 const struct instance *inst, const char *node,
					 const char *json);
/* The instance through its snapshot and back. */
struct instance *engine_fixture_reload(struct engine_fixture *fixture, const struct instance *inst);
/* Compact JSON of a value; a root variable's value, "unset" without one. In the arena. */
const char *engine_fixture_json(struct engine_fixture *fixture, const msgpack_object *value);
const char *engine_fixture_variable(struct engine_fixture *fixture, const struct instance *inst,
				    const char *name);

#endif
