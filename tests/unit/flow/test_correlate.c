/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several waits a message goes to: the same one on every replica, in whatever order the database names them. */
#include "flow/correlate.h"
#include "tests/support/testing.h"

enum { WAITS = 4 };

static const struct id key = {{1}};

/* Ascending in the order in which they are to be chosen. */
static struct store_wait wait_at(int64_t created_us, uint8_t instance, uint32_t token)
{
	return (struct store_wait){.instance = {{instance}}, .token = token, .node = STR("W"), .deployment = STR("d"),
				   .created_us = created_us};
}

START_TEST(the_oldest_then_by_instance_then_by_token)
{
	struct deployment deployment = {.id = STR("d")};
	struct node node = {.id = STR("W")};
	struct subscription subscription = {.node = &node, .deployment = &deployment};
	struct correlation_key keys[] = {{.key = key, .wait = &subscription}};
	struct correlation correlation = {.keys = keys, .key_count = 1};
	const struct store_wait ordered[WAITS] = {wait_at(1, 9, 7), wait_at(2, 3, 2), wait_at(2, 3, 5), wait_at(2, 4, 1)};

	for (unsigned first = 0; first < WAITS; first++)
		for (unsigned turn = 0; turn < WAITS; turn++) {
			struct store_wait waits[WAITS];
			struct store_resolve resolve = {.wait_keys = &key, .wait_key_count = 1, .waits = waits,
							.wait_count = WAITS - first};
			const struct store_wait *best;

			for (unsigned i = 0; i < resolve.wait_count; i++)
				waits[(i + turn) % resolve.wait_count] = ordered[first + i];
			best = correlate_oldest(&correlation, &resolve, NULL);
			ck_assert_int_eq(best->created_us, ordered[first].created_us);
			ck_assert_uint_eq(best->token, ordered[first].token);
		}
}
END_TEST

START_TEST(a_wait_of_another_node_or_deployment_is_not_asked_for)
{
	struct deployment deployment = {.id = STR("other")};
	struct node node = {.id = STR("W")};
	struct subscription subscription = {.node = &node, .deployment = &deployment};
	struct correlation_key keys[] = {{.key = key, .wait = &subscription}};
	struct correlation correlation = {.keys = keys, .key_count = 1};
	struct store_wait wait = wait_at(1, 1, 1);
	struct store_resolve resolve = {.wait_keys = &key, .wait_key_count = 1, .waits = &wait, .wait_count = 1};

	ck_assert_ptr_null(correlate_oldest(&correlation, &resolve, NULL));
	deployment.id = STR("d");
	ck_assert_ptr_eq(correlate_oldest(&correlation, &resolve, NULL), &wait);
	node.id = STR("V");
	ck_assert_ptr_null(correlate_oldest(&correlation, &resolve, NULL));
}
END_TEST

static Suite *correlate_suite(void)
{
	Suite *suite = suite_create("flow correlate");
	TCase *tcase = tcase_create("choosing a wait");

	TEST_ADD_ALL(tcase, the_oldest_then_by_instance_then_by_token,
		     a_wait_of_another_node_or_deployment_is_not_asked_for);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(correlate_suite)
