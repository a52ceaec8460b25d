/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early messages: what comes before the wait that it is for is kept by the database, costs nothing while nobody comes, and is
 * delivered the moment somebody parks, on whatever replica, in whatever order the two commit.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/switch_executor.h"
#include "tests/support/testing.h"

#define DEADLINE_MS 10000
/* Well before the keeper's own look, which is 5 s after its start. */
#define AT_ONCE_MS 3000

enum { PAIRS = 150 };

struct shared {
	struct memory_database *database;
	struct executor *executor;
	struct flow_fixture_settings settings;
};

static struct flow_fixture_settings settings_new(void)
{
	return (struct flow_fixture_settings){
		.package = "tests/unit/flow/sequence", .intake.max_in_flight = 512, .intake.max_kept = 5000};
}

static struct flow_fixture *start(void)
{
	struct flow_fixture_settings settings = settings_new();

	return flow_fixture_new(&settings);
}

static struct flow_fixture *start_replica(struct shared *shared, const char *keeper)
{
	shared->executor = shared->settings.executor = switch_executor_new(shared->database, 2);
	shared->settings.keeper = keeper;
	return flow_fixture_new(&shared->settings);
}

/* It counts as alive. */
static void lease(struct flow_fixture *f, const char *keeper)
{
	struct arena arena;
	char role[64];

	snprintf(role, sizeof(role), "keeper:%s", keeper);
	arena_init(&arena);
	struct column params[] = {
		column_scalar_text(&arena, str_of(role)),
		column_scalar_text(&arena, str_of(keeper)),
		column_scalar_int(&arena, 60000),
	};
	flow_fixture_query(f, &arena, STATEMENT_LEASE_ACQUIRE, params, false);
	arena_done(&arena);
}

static void send_typed(struct flow_fixture *f, const char *key, const char *type, const char *id, const char *body)
{
	struct message *message = flow_fixture_message(f, key, id, str_of(body));

	message->type = str_of(arena_strdup(&message->arena, type));
	flow_fixture_send_message(f, "events", message);
}

static void send_open(struct flow_fixture *f, const char *name)
{
	char body[96], id[48];

	snprintf(body, sizeof(body), "{\"name\":\"%s\"}", name);
	snprintf(id, sizeof(id), "open-%s", name);
	send_typed(f, NULL, "open", id, body);
}

static void send_item(struct flow_fixture *f, const char *key, const char *name, int item, bool last)
{
	char body[96], id[48];

	snprintf(body, sizeof(body), "{\"name\":\"%s\",\"n\":%d,\"last\":%s}", name, item, last ? "true" : "false");
	snprintf(id, sizeof(id), "item-%s-%d", name, item);
	send_typed(f, key, "item", id, body);
}

struct kind_count {
	struct flow_fixture *f;
	const char *kind;
	uint32_t want;
};

static bool kind_reached(void *arg)
{
	struct kind_count *count = arg;
	struct arena arena;
	struct rows rows;
	uint32_t found = 0;

	arena_init(&arena);
	rows = flow_fixture_kept(count->f, &arena);
	for (uint32_t i = 0; i < rows.row_count; i++)
		found += str_equal(rows_at(&rows, i, 3)->str, str_of(count->kind));
	arena_done(&arena);
	return found == count->want;
}

static bool wait_kind(struct flow_fixture *f, const char *kind, uint32_t want, int timeout_ms)
{
	struct kind_count count = {f, kind, want};

	return test_wait(kind_reached, &count, timeout_ms);
}

struct asleep {
	struct intake *intake;
	size_t count;
};

static void asleep_read(void *arg)
{
	struct asleep *asleep = arg;

	asleep->count = asleep->intake->asleep_count;
}

/* The count is the intake's loop's. */
static bool is_asleep(void *arg)
{
	struct kind_count *count = arg;

	for (uint32_t i = 0; i < count->f->channel_count; i++) {
		struct asleep asleep = {count->f->channels[i].intake, 0};

		loop_call(asleep.intake->loop, asleep_read, &asleep);
		if (asleep.count == count->want)
			return true;
	}
	return false;
}

static bool wait_asleep(struct flow_fixture *f, uint32_t want)
{
	struct kind_count count = {f, NULL, want};

	return test_wait(is_asleep, &count, DEADLINE_MS);
}

static bool nothing_kept(void *arg)
{
	return flow_fixture_count_kept(arg) == 0;
}

static bool never(void *arg UNUSED)
{
	return false;
}

static void pass_ms(int ms)
{
	ck_assert(!test_wait(never, NULL, ms));
}

START_TEST(kept_at_its_third_try_and_delivered_when_somebody_parks)
{
	struct flow_fixture *f = start();

	send_item(f, "k", "s", 1, true);
	ck_assert(flow_fixture_wait_settled(f, 1));
	ck_assert_int_eq(f->settled[0].how, SETTLE_DONE);
	ck_assert(wait_kind(f, "early", 1, DEADLINE_MS));
	ck_assert(wait_asleep(f, 1));
	ck_assert_uint_eq(__atomic_load_n(&flow_fixture_stats(f, "events")->early, __ATOMIC_ACQUIRE), 1);
	send_open(f, "s");
	ck_assert(test_wait(nothing_kept, f, AT_ONCE_MS));
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert(strstr(f->published[0].body, "1 "));
	flow_fixture_free(&f);
}
END_TEST

/* Of one order key they wait for each other; what is behind the first is kept with it, or comes to stand behind it later. */
START_TEST(order_of_the_key_is_kept)
{
	struct flow_fixture *f = start();

	for (int i = 1; i <= 3; i++)
		send_item(f, "k", "s", i, false);
	ck_assert(flow_fixture_wait_settled(f, 3));
	for (int i = 4; i <= 9; i++)
		send_item(f, "k", "s", i, i == 9);
	send_open(f, "s");
	ck_assert(flow_fixture_wait_published(f, 1));
	ck_assert_msg(strstr(f->published[0].body, "1 2 3 4 5 6 7 8 9"), "%s", f->published[0].body);
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	flow_fixture_free(&f);
}
END_TEST

/* Several of several order keys want one wait: whenever it comes again, one of them has it. */
START_TEST(one_wait_again_and_again_empties_its_key)
{
	struct flow_fixture *f = start();
	char key[16];

	for (int i = 1; i <= 20; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		send_item(f, key, "s", i, false);
	}
	ck_assert(flow_fixture_wait_settled(f, 20));
	ck_assert(wait_asleep(f, 20));
	send_open(f, "s");
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	send_item(f, "last", "s", 21, true);
	ck_assert(flow_fixture_wait_published(f, 1));
	for (int i = 1; i <= 21; i++) {
		snprintf(key, sizeof(key), " %d ", i);
		if (i > 1)
			ck_assert_msg(strstr(f->published[0].body, key) || strstr(f->published[0].body, key + 1), "%s in %s", key,
				      f->published[0].body);
	}
	flow_fixture_free(&f);
}
END_TEST

START_TEST(asleep_it_costs_nothing)
{
	struct flow_fixture *f = start();
	struct store_stats before, after;
	uint64_t idle;
	char name[16];

	store_stats_read(f->store, &before);
	pass_ms(1000);
	store_stats_read(f->store, &after);
	idle = after.elements[STORE_QUERY] - before.elements[STORE_QUERY];

	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		send_item(f, name, name, 1, true);
	}
	ck_assert(flow_fixture_wait_settled(f, 200));
	ck_assert(wait_asleep(f, 200));
	pass_ms(300);
	store_stats_read(f->store, &before);
	pass_ms(1000);
	store_stats_read(f->store, &after);
	/* No more than without them, but for a round of looks. */
	ck_assert_uint_eq(after.elements[STORE_RESOLVE], before.elements[STORE_RESOLVE]);
	ck_assert_uint_eq(after.elements[STORE_COMMIT], before.elements[STORE_COMMIT]);
	ck_assert_uint_le(after.elements[STORE_QUERY] - before.elements[STORE_QUERY], idle + 5);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		send_open(f, name);
	}
	ck_assert(flow_fixture_wait_published(f, 200));
	flow_fixture_free(&f);
}
END_TEST

START_TEST(nobody_comes)
{
	struct flow_fixture_settings settings = settings_new();
	struct flow_fixture *f;

	settings.unmatched_hold_ms = 700;
	f = flow_fixture_new(&settings);
	send_item(f, "k", "s", 1, true);
	ck_assert(wait_kind(f, "early", 1, DEADLINE_MS));
	ck_assert(test_wait(nothing_kept, f, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_dead_letters(f, code_text(CODE_RUNTIME_CORRELATION_NOT_FOUND)), 1);
	flow_fixture_free(&f);
}
END_TEST

START_TEST(other_replica_parks_and_has_it)
{
	struct shared shared = {memory_database_new(), NULL, settings_new()};
	struct flow_fixture *one = start_replica(&shared, "one"), *two = start_replica(&shared, "two");

	lease(one, "one");
	lease(two, "two");
	send_item(one, "k", "s", 1, true);
	ck_assert(wait_asleep(one, 1));
	send_open(two, "s");
	ck_assert(test_wait(nothing_kept, two, AT_ONCE_MS));
	ck_assert(flow_fixture_wait_published(two, 1));
	/* What comes later at the first one is not held up by what it had. */
	send_open(one, "t");
	send_item(one, "k", "t", 1, true);
	ck_assert(flow_fixture_wait_published(one, 1));
	flow_fixture_free(&one);
	flow_fixture_free(&two);
	memory_database_free(&shared.database);
}
END_TEST

/* A replica that dies leaves them to the others, who keep them as early. */
START_TEST(taken_over_they_sleep_again)
{
	struct shared shared = {memory_database_new(), NULL, settings_new()};
	struct flow_fixture *one = start_replica(&shared, "one"), *two;
	char name[16];

	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		send_item(one, name, name, 1, true);
	}
	ck_assert(wait_asleep(one, 10));
	flow_fixture_free(&one);
	two = start_replica(&shared, "two");
	lease(two, "two");
	ck_assert(wait_asleep(two, 10));
	one = start_replica(&shared, "three");
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		send_open(i % 2 ? one : two, name);
	}
	ck_assert(test_wait(nothing_kept, two, DEADLINE_MS));
	ck_assert_uint_eq(flow_fixture_count_instances(two, INSTANCE_COMPLETED), 10);
	flow_fixture_free(&one);
	flow_fixture_free(&two);
	memory_database_free(&shared.database);
}
END_TEST

/* The look of the step fails, for the database is away just then: the keeper's own look finds it. */
START_TEST(backstop_finds_what_a_step_did_not_look_for)
{
	struct shared shared = {memory_database_new(), NULL, settings_new()};
	struct flow_fixture *one = start_replica(&shared, "one");
	struct memory_database *database = shared.database;
	struct segment segment = {0};
	struct segment_call call = {.statement = STATEMENT_WAIT_INSERT};
	struct arena arena;
	int64_t zero = 0, token = 1;
	struct str tenant = STR("default"), text = STR("Item"), channel = STR("events"), deployment;
	struct id key, slot = {{9}}, instance = {{7}};

	send_item(one, "k", "s", 1, true);
	ck_assert(wait_asleep(one, 1));
	deployment = one->deployment->id;
	tenant = one->deployment->tenant;
	key = store_wait_key(tenant, channel, STR("sequence"), STR("s"));
	/* A wait that nobody looked behind, as a replica leaves it that dies after its commit. Its instance is not there. */
	arena_init(&arena);
	struct column params[] = {
		{.type = COLUMN_INT, .count = 1, .ints = &zero},       {.type = COLUMN_TEXT, .count = 1, .strs = &tenant},
		{.type = COLUMN_ID, .count = 1, .ids = &key},	       {.type = COLUMN_ID, .count = 1, .ids = &slot},
		{.type = COLUMN_ID, .count = 1, .ids = &instance},     {.type = COLUMN_INT, .count = 1, .ints = &token},
		{.type = COLUMN_TEXT, .count = 1, .strs = &text},      {.type = COLUMN_TEXT, .count = 1, .strs = &channel},
		{.type = COLUMN_TEXT, .count = 1, .strs = &deployment},
	};
	call.params = params;
	segment = (struct segment){.calls = &call, .call_count = 1, .writes = true, .arena = &arena,
				   .tenants = str_of(arena_printf(&arena, ",%.*s,", STR_ARG(tenant)))};
	memory_segment_run(database, &segment, 1);
	ck_assert_int_eq(segment.outcome, SEGMENT_COMMITTED);
	arena_done(&arena);
	/* It is tried: the claim of what is not there is refused. */
	ck_assert(wait_asleep(one, 0));
	flow_fixture_free(&one);
	memory_database_free(&shared.database);
}
END_TEST

struct pairs {
	struct flow_fixture *one, *two;
	uint32_t published;
};

static bool all_published(void *arg)
{
	struct pairs *pairs = arg;
	uint32_t sum = 0;

	pthread_mutex_lock(&pairs->one->lock);
	sum += pairs->one->published_count;
	pthread_mutex_unlock(&pairs->one->lock);
	pthread_mutex_lock(&pairs->two->lock);
	sum += pairs->two->published_count;
	pthread_mutex_unlock(&pairs->two->lock);
	return sum == PAIRS;
}

/* Two replicas, message and park at about the same time: none waits for the keeper's own look. */
START_TEST(races_of_message_and_park)
{
	struct shared shared = {memory_database_new(), NULL, settings_new()};
	struct pairs pairs = {start_replica(&shared, "one"), start_replica(&shared, "two"), 0};
	char name[16];

	lease(pairs.one, "one");
	lease(pairs.two, "two");
	for (int i = 0; i < PAIRS; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		send_item(pairs.one, name, name, 1, true);
		if (i >= 20) {
			snprintf(name, sizeof(name), "s%d", i - 20);
			send_open(i % 3 ? pairs.two : pairs.one, name);
		}
	}
	for (int i = PAIRS - 20; i < PAIRS; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		send_open(pairs.two, name);
	}
	ck_assert(test_wait(all_published, &pairs, AT_ONCE_MS));
	ck_assert(test_wait(nothing_kept, pairs.one, DEADLINE_MS));
	flow_fixture_free(&pairs.one);
	flow_fixture_free(&pairs.two);
	memory_database_free(&shared.database);
}
END_TEST

static Suite *early_suite(void)
{
	Suite *suite = suite_create("flow early");
	TCase *tcase = tcase_create("early messages");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, kept_at_its_third_try_and_delivered_when_somebody_parks, order_of_the_key_is_kept,
		     one_wait_again_and_again_empties_its_key, asleep_it_costs_nothing, nobody_comes,
		     other_replica_parks_and_has_it, taken_over_they_sleep_again,
		     backstop_finds_what_a_step_did_not_look_for, races_of_message_and_park);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(early_suite)
