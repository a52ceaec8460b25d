/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers beside what else a token waits for, and where deployments and instances do not fit. What each form of a diagram does,
 * stands in tests/bpmn/cases.
 */
#include "engine/failed.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/random_instance.h"
#include "tests/support/testing.h"

#define DUE (ENGINE_FIXTURE_NOW + 5000000)

static struct engine_fixture fx;
static struct model *model;

/* Start, a receive task "Wait" that sets `note`, End. */
static void setup(void)
{
	memset(&fx, 0, sizeof(fx));
	model = model_new("acme");
	model_channel(model, "in", CHANNEL_INBOUND);
	model_channel(model, "out", CHANNEL_OUTBOUND);
	model_process(model, "order");
	model_variable(model, "note", VARIABLE_ANY, "payload.note");
	model_node(model, "Start", NODE_START);
	model_source(model, "in");
	model_alias(model, "order", "payload.id", NULL, false);
	model_node(model, "Wait", NODE_RECEIVE);
	model_source(model, "in");
	model_alias(model, "order", "payload.id", NULL, false);
	model_node(model, "Tell", NODE_SEND);
	model_send(model, "out", "{payload == nil, event.time or 'never', note or 'none'}");
	model_node(model, "End", NODE_END);
	model_flow(model, "Start", "Wait", NULL);
	model_flow(model, "Wait", "Tell", NULL);
	model_flow(model, "Tell", "End", NULL);
	engine_fixture_init(&fx, &model);
}

static void teardown(void)
{
	engine_fixture_done(&fx);
}

/* Parked at the receive task, with a limit. */
static struct instance *parked(int64_t due_us)
{
	struct step_result result = engine_fixture_start(&fx, "Start", "{\"id\": 1, \"note\": \"old\"}");
	struct step step = {.env = &fx.env, .inst = result.inst, .at = {1, NULL, NULL}};

	ck_assert_int_eq(result.inst->status, INSTANCE_SUSPENDED);
	ck_assert_uint_eq(result.timers_added_count, 0);
	step_set_due(&step, due_us);
	return engine_fixture_reload(&fx, result.inst);
}

static enum result fire(const struct instance *inst, int64_t due_us, struct step_result *out)
{
	return engine_fire(&fx.env, inst, 1, due_us, out, &fx.err);
}

START_TEST(a_limit_of_a_wait_fires_without_a_message)
{
	struct instance *inst = parked(DUE);
	struct step_result result;

	ck_assert_int_eq(fire(inst, DUE, &result), RESULT_OK);
	ck_assert_int_eq(result.inst->status, INSTANCE_COMPLETED);
	ck_assert_uint_eq(result.send_count, 1);
	/* No message is seen, and the variable with a source keeps its value. */
	ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[0].body),
			 "[true,\"2027-01-15T08:00:05Z\",\"old\"]");
	ck_assert_uint_eq(result.timers_removed_count, 1);
	ck_assert_int_eq(result.timers_removed[0].due_us, DUE);
	ck_assert_str_slice(result.timers_removed[0].node->id, STR("Wait"));
	ck_assert_uint_eq(result.waits_removed_count, 1);
	ck_assert_uint_eq(result.timers_added_count, 0);
}
END_TEST

START_TEST(a_message_takes_the_limit_away)
{
	struct instance *inst = parked(DUE);
	struct step_result result = engine_fixture_resume(&fx, inst, "Wait", "{\"note\": \"new\"}");

	ck_assert_int_eq(result.inst->status, INSTANCE_COMPLETED);
	ck_assert_uint_eq(result.timers_removed_count, 1);
	ck_assert_uint_eq(result.waits_removed_count, 1);
	ck_assert_str_eq(engine_fixture_variable(&fx, result.inst, "note"), "\"new\"");
}
END_TEST

START_TEST(what_is_not_due_does_not_fire)
{
	struct instance *inst = parked(DUE), *none = parked(DUE);
	struct step_result result;

	ck_assert_int_eq(fire(inst, DUE + 1, &result), RESULT_AGAIN);
	ck_assert_int_eq(engine_fire(&fx.env, inst, 2, DUE, &result, &fx.err), RESULT_AGAIN);
	none->tokens[0].due_us = 0;
	ck_assert_int_eq(fire(none, 0, &result), RESULT_AGAIN);
	ck_assert_int_eq(fire(none, DUE, &result), RESULT_AGAIN);
	none = parked(DUE);
	none->status = INSTANCE_FAILED;
	ck_assert_int_eq(fire(none, DUE, &result), RESULT_AGAIN);
}
END_TEST

START_TEST(times_stay_in_the_calendar)
{
	ck_assert_int_eq(parked(INT64_MAX)->tokens[0].due_us, ISO_LAST_US);
	ck_assert_int_eq(parked(-5)->tokens[0].due_us, 1);
}
END_TEST

/* Nobody knows the node any more; its row in the store is removed all the same. */
START_TEST(a_timer_at_a_node_that_is_gone)
{
	struct instance *inst = parked(DUE);
	struct step_result result;

	inst->tokens[0].node = STR("Gone");
	ck_assert_int_eq(fire(inst, DUE, &result), RESULT_OK);
	ck_assert(result.failed);
	ck_assert_int_eq(result.failure.code, CODE_RUNTIME_STEP_FAILED);
	ck_assert_uint_eq(result.timers_removed_count, 1);
	ck_assert_ptr_null(result.timers_removed[0].node);
	ck_assert_uint_eq(result.waits_removed_count, 0);
	ck_assert_int_eq(engine_restore(&fx.env, result.inst, &result, &fx.err), RESULT_REJECT);
	ck_assert_int_eq(engine_cancel(&fx.env, inst, &result, &fx.err), RESULT_OK);
	ck_assert_uint_eq(result.timers_removed_count, 1);
}
END_TEST

START_TEST(failing_and_restoring_keeps_the_time)
{
	struct instance *inst = parked(DUE);
	struct error why = ERROR_INIT;
	struct step_result failed, restored;

	error_set(&why, RESULT_REJECT, CODE_OUTBOUND_ENCODE_FAILED, "not written");
	engine_fail(&fx.env, inst, fx.id, STR("acme"), NULL, NULL, &why, NULL, &failed);
	ck_assert_uint_eq(failed.timers_removed_count, 1);
	ck_assert_uint_eq(failed.timers_added_count, 0);
	fx.env.now_us += 3600000000;
	ck_assert_int_eq(engine_restore(&fx.env, failed.inst, &restored, &fx.err), RESULT_OK);
	ck_assert_uint_eq(restored.timers_added_count, 1);
	ck_assert_int_eq(restored.timers_added[0].due_us, DUE);
	ck_assert_uint_eq(restored.waits_added_count, 1);
	ck_assert_int_eq(fire(restored.inst, DUE, &failed), RESULT_OK);
	ck_assert_int_eq(failed.inst->status, INSTANCE_COMPLETED);
	/* Those of a FAILED one are gone already. */
	engine_fail(&fx.env, inst, fx.id, STR("acme"), NULL, NULL, &why, NULL, &failed);
	ck_assert_int_eq(engine_cancel(&fx.env, failed.inst, &restored, &fx.err), RESULT_OK);
	ck_assert_uint_eq(restored.timers_removed_count, 0);
}
END_TEST

static Suite *timers_suite(void)
{
	Suite *suite = suite_create("engine/timers");
	TCase *tcase = tcase_create("timers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	TEST_ADD_ALL(tcase, a_limit_of_a_wait_fires_without_a_message, a_message_takes_the_limit_away,
		     what_is_not_due_does_not_fire, times_stay_in_the_calendar,
		     a_timer_at_a_node_that_is_gone, failing_and_restoring_keeps_the_time);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(timers_suite)
