/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outbox over the memory store, with a publisher that the test answers for: order within groups under failures, retries,
 * lost stamps and give-backs; what is poisoned, scanned, renewed, purged; what a stop leaves behind.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/time.h"
#include "outbox/internal.h"
#include "tests/support/store_suite.h"
#include "tests/support/switch_executor.h"

#define DEADLINE_MS 10000
#define MOST 8192

/* --- a publisher in the test's hands --- */

struct rig {
	struct store_rig store;
	struct memory_database *database;
	struct executor *executor;
	struct outbox *outbox;
	struct loop *loop;
	struct publisher publisher;
	bool seen_stopping; /* what the outbox's loop found last */
	pthread_mutex_t lock;
	/* Under the lock. */
	struct publication *held[MOST]; /* published and not answered */
	uint32_t held_count;
	char published[MOST][16]; /* bodies, in order */
	uint32_t published_count;
	uint32_t purges;
	uint32_t failures; /* so many are answered at once with `failure` */
	enum publish_outcome failure;
	bool confirm; /* the rest is confirmed at once; else held */
	bool deaf;    /* a purge is ignored */
	bool no_route;
};

static void answer(struct publication *pub, enum publish_outcome outcome)
{
	pub->outcome = outcome;
	if (outcome != PUBLISH_CONFIRMED)
		snprintf(pub->text, sizeof(pub->text), "told to fail");
	loop_post(pub->reply_to, &pub->done);
}

static void rig_publish(struct publisher *publisher, struct publication *pub)
{
	struct rig *rig = container_of(publisher, struct rig, publisher);

	pthread_mutex_lock(&rig->lock);
	ck_assert_uint_lt(rig->published_count, MOST);
	snprintf(rig->published[rig->published_count++], 16, "%.*s", STR_ARG(pub->body));
	if (rig->failures) {
		rig->failures--;
		answer(pub, rig->failure);
	} else if (rig->confirm) {
		answer(pub, PUBLISH_CONFIRMED);
	} else {
		rig->held[rig->held_count++] = pub;
	}
	pthread_mutex_unlock(&rig->lock);
}

static void answer_held(struct rig *rig, enum publish_outcome outcome)
{
	pthread_mutex_lock(&rig->lock);
	for (uint32_t i = 0; i < rig->held_count; i++)
		answer(rig->held[i], outcome);
	rig->held_count = 0;
	pthread_mutex_unlock(&rig->lock);
}

static void rig_purge(struct publisher *publisher)
{
	struct rig *rig = container_of(publisher, struct rig, publisher);

	pthread_mutex_lock(&rig->lock);
	rig->purges++;
	pthread_mutex_unlock(&rig->lock);
	if (!rig->deaf)
		answer_held(rig, PUBLISH_RETRY);
}

static const struct publisher_ops publisher_ops = {.publish = rig_publish, .purge = rig_purge};

static struct publisher *rig_route(void *user, struct str connection UNUSED)
{
	struct rig *rig = user;

	return rig->no_route ? NULL : &rig->publisher;
}

static struct outbox_settings usual(void)
{
	return (struct outbox_settings){
		.owner = "boot-1",
		.claim_timeout_ms = 60000,
		.tick_ms = 20,
		.base_delay_ms = 5,
		.max_delay_ms = 20,
		.window_max_rows = 10000,
	};
}

static struct rig *rig_new(const struct outbox_settings *settings)
{
	struct rig *rig = mem_zalloc(sizeof(*rig));

	pthread_mutex_init(&rig->lock, NULL);
	rig->database = memory_database_new();
	rig->executor = switch_executor_new(rig->database, 2);
	store_rig_init(&rig->store, rig->executor, NULL);
	rig->loop = loop_start(runtime_threads(), "publisher");
	rig->publisher = (struct publisher){&publisher_ops, rig->loop, true};
	rig->failure = PUBLISH_RETRY;
	rig->outbox = outbox_new(runtime_threads(), rig->store.store, settings, rig_route, rig);
	return rig;
}

static struct rig *rig_start(const struct outbox_settings *settings)
{
	struct rig *rig = rig_new(settings);

	outbox_start(rig->outbox);
	return rig;
}

static void rig_free(struct rig *rig)
{
	if (rig->outbox) {
		outbox_stop(rig->outbox, 5000);
		outbox_free(&rig->outbox);
	}
	loop_stop(&rig->loop);
	store_rig_done(&rig->store);
	memory_database_free(&rig->database);
	pthread_mutex_destroy(&rig->lock);
	free(rig);
}

/* --- rows --- */

/* One parcel of `count` rows, ordinals from 0, bodies "<instance>.<version>.<ordinal>". */
static struct outbox_parcel *parcel_new(uint32_t instance, int64_t version, uint32_t count)
{
	struct outbox_parcel *parcel = outbox_parcel_new();

	parcel->rows = arena_zalloc(&parcel->arena, count * sizeof(*parcel->rows));
	parcel->count = count;
	for (uint32_t i = 0; i < count; i++)
		parcel->rows[i] = (struct outbox_row){
			.tenant = STR("t"),
			.instance = test_id(instance),
			.channel = STR("out"),
			.version = version,
			.ordinal = i,
			.id = outbox_row_id(test_id(instance), version, i),
			.deployment = STR("d"),
			.connection = STR("broker"),
			.destination = STR("topic"),
			.headers = STR("\x80"),
			.content_type = STR("text/plain"),
			.body = str_of(arena_printf(&parcel->arena, "%u.%d.%u", instance, (int)version, i)),
			.required = true,
		};
	return parcel;
}

static void announce(struct rig *rig, struct outbox_parcel *parcel)
{
	parcel->stamped_us = loop_now_us(rig->loop);
	outbox_announce(rig->outbox, parcel);
}

static void commit(struct rig *rig, struct outbox_parcel *parcel)
{
	struct store_commit commit;

	rig_letter(&rig->store, &commit, "t");
	commit.outbox = parcel->rows;
	commit.outbox_count = parcel->count;
	ck_assert_int_eq(rig_run(&rig->store, &commit.base), STORE_OK);
}

static void step(struct rig *rig, uint32_t instance, int64_t version, uint32_t count)
{
	struct outbox_parcel *parcel = parcel_new(instance, version, count);

	announce(rig, parcel);
	commit(rig, parcel);
	outbox_submit(rig->outbox, parcel);
}

/* A row that another replica committed; `owner` NULL: unclaimed. */
static void foreign_row(struct rig *rig, uint32_t instance, int64_t version, const char *owner)
{
	char body[32];
	struct id id = outbox_row_id(test_id(instance), version, 0);

	snprintf(body, sizeof(body), "%u.%d.0", instance, (int)version);
	rig_query(&rig->store, ",t,", true, STATEMENT_OUTBOX_INSERT, (int64_t)0, "t", test_id(instance), "out", version,
		  (int64_t)0, id, "d", "broker", "topic", (const char *)NULL, (const char *)NULL, "\x80", "text/plain",
		  body, 1, (int64_t)0, owner);
}

static void release_row(struct rig *rig, uint32_t instance, int64_t version, const char *owner)
{
	rig_query(&rig->store, ",t,", true, STATEMENT_OUTBOX_RELEASE, "t", test_id(instance), "out", version, (int64_t)0,
		  owner);
}

struct looked {
	uint32_t rows, claimed, poisoned;
	int64_t attempts, claimed_at;
	char owner[64], diagnostic[256];
};

/* The rows of the database; the texts are of the last. */
static struct looked look(struct rig *rig)
{
	const struct rows *rows = rig_query(&rig->store, ",t,", false, STATEMENT_OUTBOX_LIST, test_id(0), "", (int64_t)0,
					    (int64_t)0, (int64_t)MOST);
	struct looked looked = {.rows = rows->row_count};

	for (uint32_t i = 0; i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);

		looked.attempts = f[6].i;
		looked.claimed += !f[10].is_null;
		looked.poisoned += f[11].b;
		looked.claimed_at = f[9].is_null ? 0 : f[9].i;
		snprintf(looked.owner, sizeof(looked.owner), "%.*s", f[10].is_null ? 0 : (int)f[10].str.len, f[10].str.ptr);
		snprintf(looked.diagnostic, sizeof(looked.diagnostic), "%.*s", f[12].is_null ? 0 : (int)f[12].str.len,
			 f[12].str.ptr);
	}
	return looked;
}

/* --- waiting --- */

struct want {
	struct rig *rig;
	uint32_t count;
};

static bool published_reached(void *arg)
{
	struct want *want = arg;
	bool reached;

	pthread_mutex_lock(&want->rig->lock);
	reached = want->rig->published_count >= want->count;
	pthread_mutex_unlock(&want->rig->lock);
	return reached;
}

static void wait_published(struct rig *rig, uint32_t count)
{
	struct want want = {rig, count};

	ck_assert_msg(test_wait(published_reached, &want, DEADLINE_MS), "%u of %u published", rig->published_count, count);
}

static bool rows_reached(void *arg)
{
	struct want *want = arg;

	return look(want->rig).rows == want->count;
}

static void wait_rows(struct rig *rig, uint32_t count)
{
	struct want want = {rig, count};

	ck_assert_msg(test_wait(rows_reached, &want, DEADLINE_MS), "%u rows, want %u", look(rig).rows, count);
}

static bool held_reached(void *arg)
{
	struct want *want = arg;
	bool reached;

	pthread_mutex_lock(&want->rig->lock);
	reached = want->rig->held_count >= want->count;
	pthread_mutex_unlock(&want->rig->lock);
	return reached;
}

static void wait_held(struct rig *rig, uint32_t count)
{
	struct want want = {rig, count};

	ck_assert_msg(test_wait(held_reached, &want, DEADLINE_MS), "%u of %u held", rig->held_count, count);
}

static void ignore_call(void *arg UNUSED)
{
}

/* Everything posted to the outbox so far has run. */
static void settle(struct rig *rig)
{
	loop_call(rig->outbox->loop, ignore_call, NULL);
}

static void check_published(struct rig *rig, uint32_t index, const char *body)
{
	pthread_mutex_lock(&rig->lock);
	ck_assert_uint_lt(index, rig->published_count);
	ck_assert_str_eq(rig->published[index], body);
	pthread_mutex_unlock(&rig->lock);
}

static struct outbox_stats stats(struct rig *rig)
{
	struct outbox_stats out;

	outbox_stats_read(rig->outbox, &out);
	return out;
}

/* --- order --- */

START_TEST(group_goes_one_by_one_and_others_do_not_wait)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	step(rig, 1, 1, 3);
	step(rig, 2, 1, 1);
	wait_held(rig, 2);
	check_published(rig, 0, "1.1.0");
	check_published(rig, 1, "2.1.0");
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_held(rig, 1);
	check_published(rig, 2, "1.1.1");
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_held(rig, 1);
	check_published(rig, 3, "1.1.2");
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 4);
	rig_free(rig);
}
END_TEST

/* The answer of the second step comes first: on another executor, or because the first is in doubt. */
START_TEST(order_of_commits_not_of_answers)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);
	struct outbox_parcel *first = parcel_new(1, 1, 1), *second = parcel_new(1, 2, 1);

	rig->confirm = true;
	announce(rig, first);
	commit(rig, first);
	announce(rig, second);
	commit(rig, second);
	ck_assert(second->rows[0].claimed);
	outbox_submit(rig->outbox, second);
	step(rig, 2, 1, 1);
	wait_published(rig, 1);
	check_published(rig, 0, "2.1.0");
	outbox_submit(rig->outbox, first);
	wait_published(rig, 3);
	check_published(rig, 1, "1.1.0");
	check_published(rig, 2, "1.2.0");
	wait_rows(rig, 0);
	rig_free(rig);
}
END_TEST

START_TEST(parcel_not_committed_is_taken_back)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);
	struct outbox_parcel *undone = parcel_new(1, 1, 2);

	rig->confirm = true;
	announce(rig, undone);
	outbox_parcel_free(&undone);
	ck_assert_ptr_null(undone);
	step(rig, 1, 1, 1);
	wait_published(rig, 1);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 1);
	rig_free(rig);
}
END_TEST

START_TEST(failing_head_holds_back_its_group_alone)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	rig->confirm = true;
	rig->failures = 3;
	step(rig, 1, 1, 2);
	step(rig, 2, 1, 1);
	wait_rows(rig, 0);
	/* Three failures are the heads' alone: 1.1.1 is never tried before 1.1.0 is confirmed. */
	ck_assert_uint_eq(rig->published_count, 6);
	check_published(rig, 0, "1.1.0");
	for (uint32_t i = 0, heads = 0; i < 6; i++) {
		if (strcmp(rig->published[i], "1.1.0") == 0)
			heads = i;
		if (strcmp(rig->published[i], "1.1.1") == 0)
			ck_assert_uint_gt(i, heads);
	}
	ck_assert_uint_eq(stats(rig).failed, 3);
	rig_free(rig);
}
END_TEST

START_TEST(attempts_are_written)
{
	struct outbox_settings settings = usual();
	struct rig *rig;

	settings.base_delay_ms = settings.max_delay_ms = 60000;
	rig = rig_start(&settings);
	rig->failures = 1;
	step(rig, 1, 1, 1);
	wait_published(rig, 1);
	while (look(rig).attempts == 0)
		settle(rig);
	ck_assert_str_eq(look(rig).owner, "boot-1");
	ck_assert_ptr_nonnull(strstr(look(rig).diagnostic, "SUTRA.OUTBOUND.PUBLISH_FAILED"));
	ck_assert_ptr_nonnull(strstr(look(rig).diagnostic, "told to fail"));
	rig_free(rig);
}
END_TEST

static uint32_t dead_letters(struct rig *rig)
{
	return rig_query(&rig->store, ",t,", false, STATEMENT_DEAD_LETTER_LIST, ID_NONE, (int64_t)MOST)->row_count;
}

static bool one_is_poisoned(void *arg)
{
	return look(arg).poisoned == 1;
}

START_TEST(poisoned_head_is_kept_and_out_of_the_way)
{
	struct outbox_settings settings = usual();
	struct rig *rig;

	settings.max_attempts = 2;
	rig = rig_start(&settings);
	rig->confirm = true;
	rig->failures = 2;
	step(rig, 1, 1, 2);
	wait_published(rig, 3);
	check_published(rig, 1, "1.1.0");
	check_published(rig, 2, "1.1.1");
	wait_rows(rig, 1);
	ck_assert(test_wait(one_is_poisoned, rig, DEADLINE_MS));
	ck_assert_uint_eq(look(rig).claimed, 0);
	ck_assert_uint_eq(dead_letters(rig), 1);
	/* A later row of the group goes on. */
	step(rig, 1, 2, 1);
	wait_published(rig, 4);
	wait_rows(rig, 1);
	rig_free(rig);
}
END_TEST

/* The second failure comes while the first is being written: it must be written too, or the row comes back unpoisoned. */
START_TEST(poison_during_the_writing_of_an_attempt)
{
	struct outbox_settings settings = usual();
	struct rig *rig;

	settings.max_attempts = 2;
	rig = rig_start(&settings);
	rig->failures = 2;
	switch_executor_hold_background(rig->executor, true);
	step(rig, 1, 1, 1);
	while (!stats(rig).poisoned)
		settle(rig);
	switch_executor_hold_background(rig->executor, false);
	ck_assert(test_wait(one_is_poisoned, rig, DEADLINE_MS));
	ck_assert_int_eq(look(rig).attempts, 2);
	ck_assert_uint_eq(look(rig).claimed, 0);
	ck_assert_uint_eq(rig->published_count, 2);
	rig_free(rig);
}
END_TEST

/* Each of a long group fails for good the moment it becomes the head. */
START_TEST(long_group_is_poisoned_without_a_deep_stack)
{
	struct outbox_settings settings = usual();
	struct rig *rig;
	enum { ROWS = 3000 };

	settings.max_attempts = 1;
	rig = rig_start(&settings);
	rig->no_route = true;
	step(rig, 1, 1, ROWS);
	while (look(rig).poisoned < ROWS)
		settle(rig);
	ck_assert_uint_eq(dead_letters(rig), ROWS);
	ck_assert_uint_eq(rig->published_count, 0);
	rig_free(rig);
}
END_TEST

/* No view and no connection of its own: nobody knows where it goes. It fails like one that the broker does not know. */
START_TEST(row_of_a_missing_deployment_is_tried_again)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);
	struct outbox_parcel *parcel = parcel_new(1, 1, 1);

	parcel->rows[0].connection = parcel->rows[0].destination = STR_NONE;
	announce(rig, parcel);
	commit(rig, parcel);
	outbox_submit(rig->outbox, parcel);
	while (look(rig).attempts < 2)
		settle(rig);
	ck_assert_ptr_nonnull(strstr(look(rig).diagnostic, "SUTRA.OUTBOUND.UNROUTABLE"));
	ck_assert_uint_ge(stats(rig).unroutable, 2);
	ck_assert_uint_eq(rig->published_count, 0);
	rig_free(rig);
}
END_TEST

START_TEST(unroutable_is_counted_and_tried_again)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	rig->confirm = true;
	rig->failures = 1;
	rig->failure = PUBLISH_UNROUTABLE;
	step(rig, 1, 1, 1);
	wait_rows(rig, 0);
	ck_assert_uint_eq(stats(rig).unroutable, 1);
	ck_assert_uint_eq(rig->published_count, 2);
	rig_free(rig);
}
END_TEST

/* --- rows of others --- */

START_TEST(row_behind_a_foreign_one_waits_for_it)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	rig->confirm = true;
	foreign_row(rig, 1, 1, "boot-2");
	step(rig, 1, 2, 1);
	step(rig, 2, 1, 1);
	wait_published(rig, 1);
	check_published(rig, 0, "2.1.0");
	wait_rows(rig, 2);
	release_row(rig, 1, 1, "boot-2");
	wait_rows(rig, 0);
	check_published(rig, 1, "1.1.0");
	check_published(rig, 2, "1.2.0");
	rig_free(rig);
}
END_TEST

START_TEST(stale_stamps_of_the_dead_are_swept_and_sent)
{
	struct outbox_settings settings = usual();
	struct rig *rig;

	settings.claim_timeout_ms = 200;
	rig = rig_new(&settings);
	rig->confirm = true;
	foreign_row(rig, 1, 1, "dead");
	foreign_row(rig, 1, 2, "dead");
	foreign_row(rig, 2, 1, "dead");
	outbox_start(rig->outbox);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 3);
	ck_assert_uint_ge(stats(rig).scanned, 3);
	for (uint32_t i = 0; i < 3; i++)
		if (strcmp(rig->published[i], "1.2.0") == 0)
			ck_assert(i && (strcmp(rig->published[i - 1], "1.1.0") == 0 ||
					strcmp(rig->published[0], "1.1.0") == 0));
	rig_free(rig);
}
END_TEST

/* The tick is an hour away: only the delete of the head can bring the next one here. */
START_TEST(next_of_the_group_is_claimed_with_the_delete)
{
	struct outbox_settings settings = usual();
	struct rig *rig;

	settings.tick_ms = 3600000;
	rig = rig_start(&settings);
	step(rig, 1, 1, 1);
	wait_held(rig, 1);
	foreign_row(rig, 1, 2, NULL);
	foreign_row(rig, 1, 3, NULL);
	rig->confirm = true;
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_rows(rig, 0);
	check_published(rig, 1, "1.2.0");
	check_published(rig, 2, "1.3.0");
	rig_free(rig);
}
END_TEST

/* --- stamps --- */

START_TEST(stamps_are_renewed_while_the_broker_takes_its_time)
{
	struct outbox_settings settings = usual();
	struct rig *rig;
	int64_t first;

	settings.claim_timeout_ms = 400;
	rig = rig_start(&settings);
	step(rig, 1, 1, 1);
	wait_held(rig, 1);
	first = look(rig).claimed_at;
	while (look(rig).claimed_at < first + 3 * settings.claim_timeout_ms * US_PER_MS)
		ck_assert_str_eq(look(rig).owner, "boot-1");
	ck_assert_uint_eq(rig->purges, 0);
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 1);
	rig_free(rig);
}
END_TEST

static bool foreign_has_head(void *arg)
{
	struct rig *rig = arg;

	return rig_query(&rig->store, NULL, true, STATEMENT_OUTBOX_SCAN, "boot-2", (int64_t)10)->row_count == 1;
}

/* Another replica has taken the head: what stands behind it must not be sent before it is, however good its own stamp. */
START_TEST(rows_behind_a_lost_head_are_given_back)
{
	struct outbox_settings settings = usual();
	struct rig *rig;
	int64_t stamped;

	settings.claim_timeout_ms = 1000;
	settings.tick_ms = 3600000;
	rig = rig_start(&settings);
	step(rig, 1, 1, 1);
	step(rig, 1, 2, 1);
	wait_held(rig, 1);
	stamped = look(rig).claimed_at;
	release_row(rig, 1, 1, "boot-1");
	ck_assert(test_wait(foreign_has_head, rig, DEADLINE_MS));
	ck_assert_str_eq(look(rig).owner, "boot-1");
	/* A renewal finds out (the second row's stamp is made fresh by it); then the broker's answer ends the attempt. */
	while (look(rig).claimed_at == stamped)
		settle(rig);
	rig->confirm = true;
	answer_held(rig, PUBLISH_RETRY);
	while (stats(rig).rows_in_memory)
		settle(rig);
	ck_assert_uint_eq(look(rig).claimed, 1);
	ck_assert_uint_eq(rig->published_count, 1);
	rig_free(rig);
}
END_TEST

/* Renewals do not come through: past half of the timeout everything on its way is purged, and sent again later in order. */
START_TEST(purge_past_half_of_the_timeout)
{
	struct outbox_settings settings = usual();
	struct rig *rig;
	uint32_t before;

	settings.claim_timeout_ms = 400;
	rig = rig_start(&settings);
	step(rig, 1, 1, 2);
	step(rig, 2, 1, 1);
	wait_held(rig, 2);
	switch_executor_hold_background(rig->executor, true);
	while (!rig->purges || rig->held_count)
		settle(rig);
	before = rig->published_count;
	ck_assert_uint_eq(rig->purges, 1);
	ck_assert_uint_eq(before, 2);
	rig->confirm = true;
	switch_executor_hold_background(rig->executor, false);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 5);
	for (uint32_t i = 2, head = 0; i < 5; i++) {
		head |= strcmp(rig->published[i], "1.1.0") == 0;
		ck_assert(strcmp(rig->published[i], "1.1.1") != 0 || head);
	}
	rig_free(rig);
}
END_TEST

/* --- the window --- */

START_TEST(rows_past_the_window_are_given_back_and_scanned)
{
	struct outbox_settings settings = usual();
	struct rig *rig;

	settings.window_max_rows = 2;
	rig = rig_start(&settings);
	for (uint32_t i = 1; i <= 4; i++)
		step(rig, i, 1, 2);
	step(rig, 4, 2, 1);
	wait_held(rig, 1);
	while (look(rig).claimed > 2 || stats(rig).rows_in_memory > 2)
		settle(rig);
	rig->confirm = true;
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 9);
	for (uint32_t i = 0, versions = 0; i < 9; i++)
		if (strncmp(rig->published[i], "4.", 2) == 0) {
			static const char *const order[] = {"4.1.0", "4.1.1", "4.2.0"};

			ck_assert_str_eq(rig->published[i], order[versions++]);
		}
	rig_free(rig);
}
END_TEST

/* A step committed behind a row that is being given back: it was committed as ours, and must not overtake. */
START_TEST(row_behind_one_given_back_does_not_overtake)
{
	struct outbox_settings settings = usual();
	struct outbox_parcel *second;
	struct rig *rig;

	settings.window_max_rows = 1;
	settings.tick_ms = 3600000;
	rig = rig_start(&settings);
	step(rig, 1, 1, 1);
	wait_held(rig, 1);
	second = parcel_new(2, 2, 1);
	switch_executor_hold_background(rig->executor, true);
	step(rig, 2, 1, 1); /* past the window: its release waits */
	announce(rig, second);
	commit(rig, second);
	ck_assert(second->rows[0].claimed);
	rig->confirm = true;
	answer_held(rig, PUBLISH_CONFIRMED); /* there is room now */
	outbox_submit(rig->outbox, second);
	switch_executor_hold_background(rig->executor, false);
	while (stats(rig).rows_in_memory)
		settle(rig);
	ck_assert_uint_eq(rig->published_count, 1);
	ck_assert_uint_eq(look(rig).rows, 2);
	ck_assert_uint_eq(look(rig).claimed, 0);
	rig_free(rig);
}
END_TEST

/* --- a database that is away, stops --- */

START_TEST(confirmed_rows_are_deleted_when_the_database_is_back)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	step(rig, 1, 1, 1);
	wait_held(rig, 1);
	switch_executor_set(rig->executor, false);
	answer_held(rig, PUBLISH_CONFIRMED);
	while (!stats(rig).confirmed)
		settle(rig);
	switch_executor_set(rig->executor, true);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 1);
	rig_free(rig);
}
END_TEST

START_TEST(stop_gives_back_what_is_not_confirmed)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	step(rig, 1, 1, 3);
	step(rig, 2, 1, 1);
	wait_held(rig, 2);
	outbox_stop(rig->outbox, 50);
	ck_assert_uint_eq(rig->purges, 1);
	ck_assert_uint_eq(look(rig).rows, 4);
	ck_assert_uint_eq(look(rig).claimed, 0);
	ck_assert_uint_eq(stats(rig).rows_in_memory, 0);
	rig_free(rig);
}
END_TEST

/* A publisher that does not answer in time still has its publications: they are not freed under it. */
START_TEST(stop_leaves_a_deaf_publisher_its_publications)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	rig->deaf = true;
	step(rig, 1, 1, 2);
	wait_held(rig, 1);
	outbox_stop(rig->outbox, 20);
	ck_assert_uint_eq(look(rig).claimed, 1);
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_rows(rig, 1);
	rig_free(rig);
}
END_TEST

static void *stop_thread(void *arg)
{
	struct rig *rig = arg;

	outbox_stop(rig->outbox, DEADLINE_MS);
	return NULL;
}

static bool query_waits(void *arg)
{
	struct rig *rig = arg;

	return switch_executor_waiting(rig->executor) > 0;
}

static void stopping_call(void *arg)
{
	struct rig *rig = arg;

	rig->seen_stopping = rig->outbox->stopping;
}

static bool outbox_is_stopping(void *arg)
{
	struct rig *rig = arg;

	loop_call(rig->outbox->loop, stopping_call, rig);
	return rig->seen_stopping;
}

/* Rows of a scan that was under way when the stop came are given back at once. */
START_TEST(stop_during_a_scan_leaves_no_stamp)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_new(&settings);
	int64_t began_us = loop_now_us(rig->loop);
	pthread_t thread;

	foreign_row(rig, 1, 1, NULL);
	switch_executor_hold_background(rig->executor, true);
	outbox_start(rig->outbox);
	ck_assert(test_wait(query_waits, rig, DEADLINE_MS));
	pthread_create(&thread, NULL, stop_thread, rig);
	ck_assert(test_wait(outbox_is_stopping, rig, DEADLINE_MS));
	switch_executor_hold_background(rig->executor, false);
	pthread_join(thread, NULL);
	ck_assert_int_lt(loop_now_us(rig->loop) - began_us, DEADLINE_MS * US_PER_MS / 2);
	ck_assert_uint_eq(look(rig).rows, 1);
	ck_assert_uint_eq(look(rig).claimed, 0);
	ck_assert_uint_eq(rig->published_count, 0);
	rig_free(rig);
}
END_TEST

/* As the commit does that withdraws it. */
static void withdraw(struct rig *rig, uint32_t instance, int64_t version, int64_t ordinal)
{
	rig_query(&rig->store, ",t,", true, STATEMENT_OUTBOX_WITHDRAW, (int64_t)0, "t", test_id(instance), "out", version, ordinal);
	outbox_withdraw(rig->outbox, outbox_row_id(test_id(instance), version, ordinal));
	settle(rig);
}

START_TEST(withdrawn_row_is_not_sent)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	step(rig, 1, 1, 3);
	wait_held(rig, 1);
	/* One that waits behind the head; and one that nobody knows. */
	withdraw(rig, 1, 1, 1);
	withdraw(rig, 7, 1, 0);
	ck_assert_uint_eq(stats(rig).rows_in_memory, 2);
	rig->confirm = true;
	answer_held(rig, PUBLISH_CONFIRMED);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 2);
	check_published(rig, 1, "1.1.2");
	rig_free(rig);
}
END_TEST

START_TEST(withdrawn_head_in_backoff_lets_its_group_go_on)
{
	struct outbox_settings settings = usual();
	struct rig *rig;

	settings.base_delay_ms = settings.max_delay_ms = 60000;
	rig = rig_start(&settings);
	rig->confirm = true;
	rig->failures = 1;
	step(rig, 1, 1, 2);
	wait_published(rig, 1);
	withdraw(rig, 1, 1, 0);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 2);
	check_published(rig, 1, "1.1.1");
	rig_free(rig);
}
END_TEST

/* The broker has it: whatever that answers, it is not tried again. */
START_TEST(withdrawn_row_on_its_way_is_not_tried_again)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);

	step(rig, 1, 1, 1);
	step(rig, 2, 1, 1);
	wait_held(rig, 2);
	withdraw(rig, 1, 1, 0);
	withdraw(rig, 2, 1, 0);
	ck_assert_uint_eq(stats(rig).rows_in_memory, 2);
	answer_held(rig, PUBLISH_REJECTED);
	settle(rig);
	ck_assert_uint_eq(stats(rig).rows_in_memory, 0);
	ck_assert_uint_eq(rig->published_count, 2);
	ck_assert_uint_eq(look(rig).rows, 0);
	rig_free(rig);
}
END_TEST

/* The answer of the step that made it comes last. */
START_TEST(withdrawn_row_of_a_commit_without_an_answer)
{
	struct outbox_settings settings = usual();
	struct rig *rig = rig_start(&settings);
	struct outbox_parcel *late = parcel_new(1, 1, 2);

	rig->confirm = true;
	announce(rig, late);
	commit(rig, late);
	withdraw(rig, 1, 1, 0);
	outbox_submit(rig->outbox, late);
	wait_rows(rig, 0);
	ck_assert_uint_eq(rig->published_count, 1);
	check_published(rig, 0, "1.1.1");
	rig_free(rig);
}
END_TEST

/* --- pools --- */

static const char *const pools[] = {"lines", "others"};

static struct outbox_settings with_pools(void)
{
	struct outbox_settings settings = usual();

	settings.pools = pools;
	settings.pool_count = ARRAY_LEN(pools);
	return settings;
}

static void given_slots(struct rig *rig, int64_t slots)
{
	rig_query(&rig->store, ",t,", true, STATEMENT_POOL_PUT, "lines", slots, (int64_t)0, (int64_t)0, NULL);
}

/* A first step with a session, which sends one message that needs a slot; of this replica, or of another. It has committed. */
static struct outbox_parcel *step_pooled(struct rig *rig, uint32_t instance, bool ours)
{
	struct outbox_parcel *parcel = parcel_new(instance, 1, 1);
	struct store_commit commit;

	parcel->rows[0].pool = STR("lines");
	parcel->rows[0].call_key = STR("call");
	if (ours)
		announce(rig, parcel);
	rig_spawn(&rig->store, &commit, "t", test_id(instance));
	commit_session(&rig->store, &commit, "", NULL, false, false, 0);
	commit_session(&rig->store, &commit, "call", NULL, false, false, 0);
	commit.outbox = parcel->rows;
	commit.outbox_count = parcel->count;
	ck_assert_int_eq(rig_run(&rig->store, &commit.base), STORE_OK);
	ck_assert(!parcel->rows[0].claimed);
	return parcel;
}

static void end_session(struct rig *rig, uint32_t instance)
{
	struct store_commit commit;

	rig_letter(&rig->store, &commit, "t");
	commit_session_end(&rig->store, &commit, STORE_END_ALL, test_id(instance), "", 0);
	ck_assert_int_eq(rig_run(&rig->store, &commit.base), STORE_OK);
}

START_TEST(pooled_row_waits_for_its_slot)
{
	struct outbox_settings settings = with_pools();
	struct rig *rig;

	settings.tick_ms = 60000;
	rig = rig_start(&settings);
	rig->confirm = true;
	given_slots(rig, 1);
	outbox_submit(rig->outbox, step_pooled(rig, 1, true));
	wait_published(rig, 1);
	check_published(rig, 0, "1.1.0");
	wait_rows(rig, 0);
	outbox_submit(rig->outbox, step_pooled(rig, 2, true));
	/* One that needs none does not wait for it. */
	step(rig, 3, 1, 1);
	wait_published(rig, 2);
	check_published(rig, 1, "3.1.0");
	wait_rows(rig, 1);
	ck_assert_int_eq(look(rig).attempts, 0);
	ck_assert_ptr_nonnull(strstr(look(rig).diagnostic, "SUTRA.OUTBOUND.POOL.WAITING"));
	end_session(rig, 1);
	outbox_pool_freed(rig->outbox, STR("nobody's"));
	outbox_pool_freed(rig->outbox, STR("lines"));
	wait_published(rig, 3);
	check_published(rig, 2, "2.1.0");
	wait_rows(rig, 0);
	rig_free(rig);
}
END_TEST

/* What others have committed, and freed, is found by the tick; a failing row keeps its slot. */
START_TEST(pooled_rows_of_others_are_found)
{
	struct outbox_settings settings = with_pools();
	struct outbox_parcel *parcels[3];
	struct rig *rig = rig_start(&settings);

	rig->confirm = true;
	rig->failures = 2;
	given_slots(rig, 1);
	for (uint32_t i = 0; i < ARRAY_LEN(parcels); i++)
		parcels[i] = step_pooled(rig, i + 1, false);
	wait_published(rig, 3);
	for (uint32_t i = 0; i < 3; i++)
		check_published(rig, i, "1.1.0");
	wait_rows(rig, 2);
	for (uint32_t i = 1; i < ARRAY_LEN(parcels); i++) {
		end_session(rig, i);
		wait_rows(rig, 2 - i);
	}
	ck_assert_uint_eq(rig->published_count, 5);
	check_published(rig, 3, "2.1.0");
	check_published(rig, 4, "3.1.0");
	for (uint32_t i = 0; i < ARRAY_LEN(parcels); i++)
		outbox_parcel_free(&parcels[i]);
	rig_free(rig);
}
END_TEST

static Suite *outbox_suite(void)
{
	Suite *suite = suite_create("outbox");
	TCase *tcase = tcase_create("outbox");

	tcase_set_timeout(tcase, 30);
	TEST_ADD_ALL(tcase, group_goes_one_by_one_and_others_do_not_wait, order_of_commits_not_of_answers,
		     parcel_not_committed_is_taken_back, failing_head_holds_back_its_group_alone, attempts_are_written,
		     poisoned_head_is_kept_and_out_of_the_way, poison_during_the_writing_of_an_attempt, long_group_is_poisoned_without_a_deep_stack,
		     row_of_a_missing_deployment_is_tried_again, unroutable_is_counted_and_tried_again,
		     row_behind_a_foreign_one_waits_for_it, stale_stamps_of_the_dead_are_swept_and_sent,
		     next_of_the_group_is_claimed_with_the_delete,
		     stamps_are_renewed_while_the_broker_takes_its_time, rows_behind_a_lost_head_are_given_back,
		     purge_past_half_of_the_timeout, rows_past_the_window_are_given_back_and_scanned,
		     row_behind_one_given_back_does_not_overtake, confirmed_rows_are_deleted_when_the_database_is_back,
		     stop_gives_back_what_is_not_confirmed, stop_leaves_a_deaf_publisher_its_publications,
		     stop_during_a_scan_leaves_no_stamp, withdrawn_row_is_not_sent,
		     withdrawn_head_in_backoff_lets_its_group_go_on, withdrawn_row_on_its_way_is_not_tried_again,
		     withdrawn_row_of_a_commit_without_an_answer, pooled_row_waits_for_its_slot, pooled_rows_of_others_are_found);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(outbox_suite)
