/* SPDX-License-Identifier: Apache-2.0 */
/* What a message is asked before an instance is at hand. */
#include "engine/step.h"

#include "tests/support/engine_fixture.h"
#include "tests/support/testing.h"

static struct engine_fixture fx;
static const struct node *wait;

static void setup(void)
{
	struct model *model = model_new("acme");
	struct source *source;

	model_channel(model, "in", CHANNEL_INBOUND);
	model_process(model, "p");
	model_variable(model, "known", VARIABLE_ANY, NULL);
	model_node(model, "Wait", NODE_CATCH);
	source = model_source(model, "in");
	source->name = STR("msg");
	source->dedup_key = model_expression(model, EXPRESSION_VALUE, "msg.dedup");
	model_validate(model, "msg.amount == nil or msg.amount > 0", "BAD_AMOUNT");
	model_validate(model, "known == nil and header.skip == nil", "SKIPPED");
	model_alias(model, "order", "msg.order", NULL, false);
	model_alias(model, "second", "msg.second", NULL, false);
	model_alias(model, "order", "msg.order", NULL, false);
	model_alias(model, "own", NULL, "'x'", false);
	model_node(model, "Bare", NODE_START);
	engine_fixture_init(&fx, &model);
	wait = engine_fixture_node(&fx, "Wait");
}

static void teardown(void)
{
	engine_fixture_done(&fx);
}

static enum result correlate(const char *json, struct instance_wait_key **keys, uint32_t *count)
{
	struct event event = engine_fixture_event(&fx, "in", json);

	return engine_correlate(&fx.env, STR("acme"), wait, &event, keys, count, &fx.err);
}

static enum result validate(const char *json, const struct header_list *headers)
{
	struct event event = engine_fixture_event(&fx, "in", json);

	event.headers = headers;
	return engine_validate(&fx.env, STR("acme"), wait, &event, &fx.err);
}

static enum result dedup(const char *json, struct str *out)
{
	struct event event = engine_fixture_event(&fx, "in", json);

	return engine_dedup_key(&fx.env, STR("acme"), wait, &event, out, &fx.err);
}

START_TEST(aliases_become_keys)
{
	struct instance_wait_key *keys;
	uint32_t count;

	ck_assert_int_eq(correlate("{\"order\": -5, \"second\": \"s\"}", &keys, &count), RESULT_OK);
	ck_assert_uint_eq(count, 2);
	ck_assert_str_slice(keys[0].name, STR("order"));
	ck_assert_str_slice(keys[0].value, STR("-5"));
	ck_assert_str_slice(keys[1].name, STR("second"));
	ck_assert_str_slice(keys[1].value, STR("s"));
}
END_TEST

START_TEST(a_missing_value_gives_no_key)
{
	struct instance_wait_key *keys;
	uint32_t count;

	ck_assert_int_eq(correlate("{\"second\": \"\"}", &keys, &count), RESULT_OK);
	ck_assert_uint_eq(count, 1);
	ck_assert_ptr_nonnull(keys[0].value.ptr);
	ck_assert_uint_eq(keys[0].value.len, 0);
	ck_assert_int_eq(correlate("null", &keys, &count), RESULT_OK);
	ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(numbers_with_a_fraction_and_containers_are_rejected)
{
	struct instance_wait_key *keys;
	uint32_t count;

	ck_assert_int_eq(correlate("{\"order\": 1.0}", &keys, &count), RESULT_REJECT);
	ck_assert_int_eq(fx.err.code, CODE_EXPRESSION_FAILED);
	ck_assert_int_eq(correlate("{\"order\": [1]}", &keys, &count), RESULT_REJECT);
	ck_assert_int_eq(correlate("{\"order\": false}", &keys, &count), RESULT_OK);
	ck_assert_str_slice(keys[0].value, STR("false"));
}
END_TEST

START_TEST(validation_names_its_code)
{
	struct header_list skip = {(struct header[]){{STR("Skip"), value_bool(true)}}, 1};

	ck_assert_int_eq(validate("{\"amount\": 1}", NULL), RESULT_OK);
	ck_assert_int_eq(validate("{\"amount\": 0}", NULL), RESULT_REJECT);
	ck_assert_int_eq(fx.err.code, CODE_INBOUND_VALIDATION_REJECT);
	ck_assert_ptr_nonnull(strstr(fx.err.text, "BAD_AMOUNT"));
	ck_assert_int_eq(validate("{}", &skip), RESULT_REJECT);
	ck_assert_ptr_nonnull(strstr(fx.err.text, "SKIPPED"));
	ck_assert_int_eq(validate("{\"amount\": \"text\"}", NULL), RESULT_REJECT);
	ck_assert_int_eq(fx.err.code, CODE_EXPRESSION_FAILED);
}
END_TEST

START_TEST(the_dedup_key_is_a_scalar)
{
	struct str key;

	ck_assert_int_eq(dedup("{\"dedup\": 12}", &key), RESULT_OK);
	ck_assert_str_slice(key, STR("12"));
	ck_assert_int_eq(dedup("{}", &key), RESULT_OK);
	ck_assert_ptr_null(key.ptr);
	ck_assert_int_eq(dedup("{\"dedup\": {}}", &key), RESULT_REJECT);
	ck_assert_int_eq(fx.err.code, CODE_EXPRESSION_FAILED);
}
END_TEST

START_TEST(a_node_without_a_source_asks_nothing)
{
	struct event event = engine_fixture_event(&fx, "in", "{}");
	struct instance_wait_key *keys;
	uint32_t count;
	struct str key;

	wait = engine_fixture_node(&fx, "Bare");
	ck_assert_int_eq(validate("{}", NULL), RESULT_OK);
	ck_assert_int_eq(engine_dedup_key(&fx.env, STR("acme"), wait, &event, &key, &fx.err),
			 RESULT_OK);
	ck_assert_ptr_null(key.ptr);
	ck_assert_int_eq(correlate("{}", &keys, &count), RESULT_OK);
	ck_assert_uint_eq(count, 0);
}
END_TEST

static Suite *correlate_suite(void)
{
	Suite *suite = suite_create("engine/correlate");
	TCase *tcase = tcase_create("correlate");

	tcase_add_checked_fixture(tcase, setup, teardown);
	TEST_ADD_ALL(tcase, aliases_become_keys, a_missing_value_gives_no_key,
		     numbers_with_a_fraction_and_containers_are_rejected, validation_names_its_code,
		     the_dedup_key_is_a_scalar, a_node_without_a_source_asks_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(correlate_suite)
