/* SPDX-License-Identifier: Apache-2.0 */
/* The example package through the engine: what a reader of it is promised, from its files to the messages it sends. */
#include <stdlib.h>

#include "model/package.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/testing.h"

static struct engine_fixture fx;

static void setup(void)
{
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct expression_limits bounds = EXPRESSION_LIMITS_DEFAULT;
	char *path = test_source_path("examples/quickstart/package");
	struct findings findings = {0};
	struct package *package = NULL;

	memset(&fx, 0, sizeof(fx));
	bounds.max_cpu_us = 0;
	arena_init(&fx.arena);
	ck_assert_int_eq(package_read(path, &limits, &package, &findings), RESULT_OK);
	ck_assert_int_eq(package_build(package, &fx.deployment, &findings), RESULT_OK);
	package_free(&package);
	findings_done(&findings);
	free(path);
	fx.expressions = expression_state_new(&bounds);
	ck_assert_int_eq(
		expression_state_load(fx.expressions, &fx.deployment->expressions, &fx.err),
		RESULT_OK);
	fx.env = (struct step_env){
		.arena = &fx.arena,
		.expressions = fx.expressions,
		.deployment = fx.deployment,
		.now_us = ENGINE_FIXTURE_NOW,
		.max_nodes = 10000,
		.max_variables_bytes = 1 << 20,
	};
	fx.id.bytes[0] = 0x17;
}

static void teardown(void)
{
	engine_fixture_done(&fx);
}

static struct step_result place_order(void)
{
	struct step_result result = engine_fixture_start(
		&fx, "OrderPlaced",
		"{\"orderId\":\"A-17\",\"item\":\"tea\",\"quantity\":3,\"price\":4}");

	ck_assert_msg(!result.failed, "%s", result.failure.text);
	return result;
}

static void expect_reply(const char *payment, const char *reply)
{
	struct step_result placed = place_order();
	struct step_result paid =
		engine_fixture_resume(&fx, placed.inst, "PaymentArrived", payment);

	ck_assert_msg(!paid.failed, "%s", paid.failure.text);
	ck_assert_int_eq(paid.inst->status, INSTANCE_COMPLETED);
	ck_assert_uint_eq(paid.send_count, 1);
	ck_assert_str_slice(paid.sends[0].channel->bind, STR("order-replies"));
	ck_assert_str_slice(paid.sends[0].key, STR("A-17"));
	ck_assert_str_eq(engine_fixture_json(&fx, &paid.sends[0].body), reply);
}

START_TEST(an_order_waits_for_its_payment)
{
	struct step_result result = place_order();

	ck_assert_int_eq(result.inst->status, INSTANCE_SUSPENDED);
	ck_assert_uint_eq(result.send_count, 1);
	ck_assert_str_slice(result.sends[0].channel->bind, STR("stock-requests"));
	ck_assert_str_slice(result.sends[0].key, STR("A-17"));
	ck_assert_str_eq(engine_fixture_json(&fx, &result.sends[0].body),
			 "{\"item\":\"tea\",\"orderId\":\"A-17\",\"quantity\":3}");
	ck_assert_uint_eq(result.aliases_added_count, 1);
	ck_assert_str_slice(result.aliases_added[0].value, STR("A-17"));
	ck_assert(result.aliases_added[0].unique);
	ck_assert_uint_eq(result.waits_added_count, 1);
	ck_assert_str_eq(engine_fixture_variable(&fx, result.inst, "total"), "12");
}
END_TEST

START_TEST(paid_in_full_is_confirmed)
{
	expect_reply("{\"orderId\":\"A-17\",\"amount\":12}",
		     "{\"orderId\":\"A-17\",\"paid\":12,\"status\":\"CONFIRMED\",\"total\":12}");
}
END_TEST

START_TEST(paid_too_little_is_rejected)
{
	expect_reply("{\"orderId\":\"A-17\",\"amount\":11.5}",
		     "{\"orderId\":\"A-17\",\"paid\":11.5,\"status\":\"REJECTED\",\"total\":12}");
}
END_TEST

static Suite *order_saga_suite(void)
{
	Suite *suite = suite_create("quickstart");
	TCase *tcase = tcase_create("quickstart");

	tcase_add_checked_fixture(tcase, setup, teardown);
	TEST_ADD_ALL(tcase, an_order_waits_for_its_payment, paid_in_full_is_confirmed,
		     paid_too_little_is_rejected);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(order_saga_suite)
