/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two replicas on one database, a broker between them that moves partitions from one to the other, stops and deaths of replicas,
 * foreign claims, databases that go away and commits in doubt, with bounds so small that much of what is held is kept. At the
 * end every message has had its effect once and in the order of its key (G5, G8, G9), every delivery was settled once (G2), and
 * nothing is kept any more.
 *
 * What is done is drawn from a seed; when it happens is up to the threads. KEEP_RANDOM_ROUNDS runs that many seeds instead of
 * a few, from KEEP_RANDOM_SEED on.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/time.h"
#include "engine/instance.h"
#include "tests/support/flow_fixture.h"
#include "tests/support/random_value.h"
#include "tests/support/switch_executor.h"
#include "tests/support/testing.h"

enum {
	PARTITIONS = 3,
	KEYS = 8,
	ITEMS = 24,
	PER_KEY = ITEMS + 1, /* and what opens its instance */
	WINDOW = 10,
	TURNS = 500, /* of chaos, 3 ms each */
	TURN_MS = 3,
	DRAIN_MS = 40000,
	REPLICAS = 2,
};

struct record {
	int key, item; /* 0 = open */
	bool done;
	uint32_t settled_epoch; /* the last in which it was settled */
};

struct partition {
	struct record records[KEYS * PER_KEY];
	uint32_t count, next;
	uint32_t owner, epoch;
	char leases[2]; /* their addresses are the leases: of even epochs and of odd ones */
};

struct replica {
	struct flow_fixture *f;
	struct executor *executor;
	char keeper[32];
	uint32_t sent, looked_at; /* of its settled deliveries */
	bool is_leased, is_away;
};

struct world {
	struct random_source random;
	struct memory_database *database;
	bool by_instance;
	struct partition partitions[PARTITIONS];
	struct replica replicas[REPLICAS];
	struct flow_fixture *observer; /* of the database */
	struct id claimed[KEYS];
	uint32_t claimed_count;
	uint32_t boots;
};

static bool chance(struct world *w, uint32_t of_thousand)
{
	return random_below(&w->random, 1000) < of_thousand;
}

/* --- replicas --- */

static struct flow_fixture_settings settings_of(const struct world *w, const char *keeper)
{
	return (struct flow_fixture_settings){
		.package = "tests/unit/flow/sequence",
		.lanes = 4,
		.unmatched_hold_ms = 120000,
		.claim_timeout_ms = 1500,
		.keeper = keeper,
		.executor = switch_executor_new(w->database, 2),
		.intake = {.max_in_flight = 6, .max_kept = 60, .hold_ms = 60, .span = 20},
	};
}

static void keeper_lease(struct world *w, const struct replica *r, int64_t ttl_ms)
{
	struct arena arena;
	char role[64];

	snprintf(role, sizeof(role), "keeper:%s", r->keeper);
	arena_init(&arena);
	struct column params[] = {
		column_scalar_text(&arena, str_of(role)),
		column_scalar_text(&arena, str_of(r->keeper)),
		column_scalar_int(&arena, ttl_ms),
	};
	flow_fixture_query(w->observer, &arena, STATEMENT_LEASE_ACQUIRE, params, false);
	arena_done(&arena);
}

static void replica_start(struct world *w, struct replica *r)
{
	struct flow_fixture_settings settings;

	snprintf(r->keeper, sizeof(r->keeper), "boot-%u", w->boots++);
	settings = settings_of(w, r->keeper);
	r->executor = settings.executor;
	r->f = flow_fixture_new(&settings);
	r->sent = r->looked_at = 0;
	r->is_away = false;
	r->is_leased = chance(w, 700);
}

/* --- the broker --- */

/* Takes what was settled since the last time. */
static void broker_look(struct world *w, struct replica *r)
{
	struct flow_fixture *f = r->f;

	pthread_mutex_lock(&f->lock);
	for (; r->looked_at < f->settled_count; r->looked_at++) {
		const struct flow_settled *settled = &f->settled[r->looked_at];
		uint32_t p, offset, epoch;
		struct record *record;

		ck_assert_int_eq(sscanf(settled->source, "%u/%u/%u", &p, &offset, &epoch), 3);
		record = &w->partitions[p].records[offset];
		if (epoch != w->partitions[p].epoch)
			continue; /* too late: its lease is gone */
		ck_assert_msg(settled->how == SETTLE_DONE, "%s was given back, and nobody wanted it", settled->source);
		ck_assert_msg(record->settled_epoch != epoch, "%s was settled twice", settled->source);
		record->settled_epoch = epoch;
		record->done = true;
	}
	pthread_mutex_unlock(&f->lock);
}

static void *lease_of(struct partition *p)
{
	return &p->leases[p->epoch & 1];
}

static void broker_send(struct world *w, uint32_t index)
{
	struct partition *p = &w->partitions[index];
	struct replica *r = &w->replicas[p->owner];
	const struct record *record = &p->records[p->next];
	struct message *message;
	char body[96], id[48], key[32], source[48];

	snprintf(body, sizeof(body), "{\"name\":\"s%d\",\"n\":%d,\"last\":%s}", record->key, record->item,
		 record->item == ITEMS ? "true" : "false");
	snprintf(id, sizeof(id), "s%d-%d", record->key, record->item);
	snprintf(key, sizeof(key), "%u:s%d", index, record->key);
	snprintf(source, sizeof(source), "%u/%u/%u", index, p->next, p->epoch);
	message = flow_fixture_message(r->f, w->by_instance ? NULL : key, id, str_of(body));
	message->orders_by_instance = w->by_instance;
	message->type = str_of(arena_strdup(&message->arena, record->item ? "item" : "open"));
	message->source = str_of(arena_strdup(&message->arena, source));
	message->lease = lease_of(p);
	message->token = p->next++;
	r->sent++;
	flow_fixture_send_message(r->f, "events", message);
}

static void broker_deliver(struct world *w, uint32_t of_thousand)
{
	for (uint32_t i = 0; i < PARTITIONS; i++) {
		struct partition *p = &w->partitions[i];
		struct replica *r = &w->replicas[p->owner];

		while (r->f && p->next < p->count && r->sent - r->looked_at < WINDOW && chance(w, of_thousand))
			broker_send(w, i);
	}
}

/* The partition goes to another, who gets everything from the first that is not done on. */
static void partition_move(struct world *w, struct partition *p, uint32_t to)
{
	struct replica *from = &w->replicas[p->owner];

	if (from->f) {
		broker_look(w, from);
		flow_fixture_revoke_lease(from->f, "events", lease_of(p));
	}
	p->epoch++;
	p->owner = to;
	for (p->next = 0; p->next < p->count && p->records[p->next].done; p->next++)
		;
	for (uint32_t i = p->next; i < p->count; i++)
		p->records[i].done = false;
}

static bool all_done(const struct world *w)
{
	for (uint32_t i = 0; i < PARTITIONS; i++)
		for (uint32_t k = 0; k < w->partitions[i].count; k++)
			if (!w->partitions[i].records[k].done)
				return false;
	return true;
}

/* Records of all keys, those of one in order, the keys mixed. */
static void broker_fill(struct world *w)
{
	int next[KEYS] = {0};

	for (uint32_t left = KEYS * PER_KEY; left;) {
		int key = (int)random_below(&w->random, KEYS);
		struct partition *p = &w->partitions[key % PARTITIONS];

		if (next[key] == PER_KEY)
			continue;
		p->records[p->count++] = (struct record){.key = key, .item = next[key]++};
		left--;
	}
	for (uint32_t i = 0; i < PARTITIONS; i++) {
		w->partitions[i].epoch = 1;
		w->partitions[i].owner = i % REPLICAS;
	}
}

/* --- what happens to replicas --- */

static void replica_stop(struct world *w, uint32_t index)
{
	struct replica *r = &w->replicas[index];

	broker_look(w, r);
	for (uint32_t i = 0; i < PARTITIONS; i++)
		if (w->partitions[i].owner == index)
			partition_move(w, &w->partitions[i], index ^ 1);
	flow_fixture_free(&r->f);
}

static void replica_away(struct replica *r, bool away)
{
	if (r->is_away != away)
		switch_executor_set(r->executor, !away);
	r->is_away = away;
}

/* --- claims of others --- */

static struct rows instances(struct world *w, struct arena *arena)
{
	struct column params[] = {
		column_scalar_int(arena, -1), {.type = COLUMN_BOOL, .scalar = true, .count = 1, .bools = &(bool){true}},
		column_scalar_text(arena, STR_NONE), column_scalar_id(arena, ID_NONE), column_scalar_int(arena, 101),
		column_scalar_int(arena, 100),
	};

	return flow_fixture_query(w->observer, arena, STATEMENT_INSTANCE_LIST, params, false);
}

static void claim_any(struct world *w)
{
	struct arena arena;
	struct rows rows;
	struct id id = ID_NONE;

	arena_init(&arena);
	rows = instances(w, &arena);
	if (rows.row_count)
		id = rows_at(&rows, (uint32_t)random_below(&w->random, rows.row_count), 0)->id;
	arena_done(&arena);
	if (!id_is_none(id) && w->claimed_count < KEYS &&
	    flow_fixture_other_claims(w->observer, id, false) == STORE_OK)
		w->claimed[w->claimed_count++] = id;
}

static void release_any(struct world *w)
{
	uint32_t at;

	if (!w->claimed_count)
		return;
	at = (uint32_t)random_below(&w->random, w->claimed_count);
	flow_fixture_other_claims(w->observer, w->claimed[at], true);
	w->claimed[at] = w->claimed[--w->claimed_count];
}

/* --- the run --- */

static void chaos_of_replica(struct world *w, uint32_t index)
{
	struct replica *r = &w->replicas[index];

	if (!r->f) {
		if (chance(w, 60))
			replica_start(w, r);
		return;
	}
	if (chance(w, 8))
		replica_away(r, true);
	else if (chance(w, 60))
		replica_away(r, false);
	if (chance(w, 10) && !r->is_away)
		switch_executor_doubt(r->executor, 1 + (uint32_t)random_below(&w->random, 3));
	if (chance(w, 4))
		switch_executor_doubt_statement(r->executor, STATEMENT_KEPT_RECOVER);
	/* With its database away it is a death: nothing is given up. */
	if (chance(w, 4))
		replica_stop(w, index);
}

static bool never(void *arg UNUSED)
{
	return false;
}

static void chaos(struct world *w)
{
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		for (uint32_t i = 0; i < REPLICAS; i++) {
			struct replica *r = &w->replicas[i];

			if (r->f)
				broker_look(w, r);
			if (r->f && r->is_leased && turn % 30 == 0)
				keeper_lease(w, r, 400);
		}
		broker_deliver(w, 200);
		for (uint32_t i = 0; i < REPLICAS; i++)
			chaos_of_replica(w, i);
		if (chance(w, 12))
			partition_move(w, &w->partitions[random_below(&w->random, PARTITIONS)],
				       (uint32_t)random_below(&w->random, REPLICAS));
		if (chance(w, 200))
			claim_any(w);
		if (chance(w, 100))
			release_any(w);
		ck_assert(!test_wait(never, NULL, TURN_MS));
	}
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static bool drained(void *arg)
{
	struct world *w = arg;
	uint64_t kept = 0;

	for (uint32_t i = 0; i < REPLICAS; i++) {
		struct replica *r = &w->replicas[i];

		if (!r->f)
			continue;
		broker_look(w, r);
		kept += __atomic_load_n(&flow_fixture_stats(r->f, "events")->kept, __ATOMIC_ACQUIRE);
	}
	broker_deliver(w, 1000);
	return all_done(w) && !kept && flow_fixture_count_kept(w->observer) == 0;
}

/* Only one goes on, which has not seen any of it: it looks for what the others kept within two seconds. */
static void replace_all(struct world *w)
{
	for (uint32_t i = 0; i < REPLICAS; i++) {
		struct replica *r = &w->replicas[i];

		if (r->f && chance(w, 500))
			replica_away(r, false);
		if (r->f)
			replica_stop(w, i);
	}
	replica_start(w, &w->replicas[0]);
	for (uint32_t i = 0; i < PARTITIONS; i++)
		partition_move(w, &w->partitions[i], 0);
}

/* They go on as they are, which takes longer: every few seconds they look. */
static void calm_all(struct world *w)
{
	for (uint32_t i = 0; i < REPLICAS; i++) {
		if (!w->replicas[i].f)
			replica_start(w, &w->replicas[i]);
		replica_away(&w->replicas[i], false);
	}
}

/* All goes well again. */
static void drain(struct world *w)
{
	while (w->claimed_count)
		release_any(w);
	if (number_of("KEEP_RANDOM_ROUNDS", 1) == 1 || chance(w, 500))
		replace_all(w);
	else
		calm_all(w);
	ck_assert_msg(test_wait(drained, w, DRAIN_MS), "all done: %d, kept by the database: %u", all_done(w),
		      flow_fixture_count_kept(w->observer));
	for (uint32_t i = 0; i < REPLICAS; i++) {
		struct replica *r = &w->replicas[i];

		if (!r->f)
			continue;
		ck_assert_uint_eq(flow_fixture_stats(r->f, "events")->unsettled, 0);
		ck_assert_uint_eq(flow_fixture_stats(r->f, "events")->held, 0);
		flow_fixture_free(&r->f);
	}
}

static struct str seen_of(const struct instance *inst, struct str name)
{
	for (uint32_t i = 0; i < inst->scopes[0].variable_count; i++)
		if (str_equal(inst->scopes[0].variables[i].name, name))
			return value_as_str(&inst->scopes[0].variables[i].value);
	return STR_NONE;
}

static void assert_effects(struct world *w)
{
	char want[256] = "";
	size_t len = 0;
	struct arena arena;
	struct rows rows;

	for (int i = 1; i <= ITEMS; i++)
		len += (size_t)snprintf(want + len, sizeof(want) - len, "%d ", i);
	arena_init(&arena);
	rows = instances(w, &arena);
	ck_assert_uint_eq(rows.row_count, KEYS);
	for (uint32_t i = 0; i < rows.row_count; i++) {
		struct column params[] = {column_scalar_id(&arena, rows_at(&rows, i, 0)->id)};
		struct rows row = flow_fixture_query(w->observer, &arena, STATEMENT_INSTANCE_GET, params, false);
		struct instance *inst;
		struct error err = ERROR_INIT;

		ck_assert_int_eq(rows_at(&row, 0, 4)->i, INSTANCE_COMPLETED);
		ck_assert_int_eq(rows_at(&row, 0, 5)->i, PER_KEY);
		ck_assert_int_eq(snapshot_unpack(&arena, rows_at(&row, 0, 12)->str, rows_at(&row, 0, 0)->id, STR("default"),
						 PER_KEY, &inst, &err),
				 RESULT_OK);
		ck_assert_str_slice(seen_of(inst, STR("seen")), str_of(want));
	}
	arena_done(&arena);
}

static void run(uint64_t seed, bool by_instance)
{
	struct world *w = mem_zalloc(sizeof(*w));
	struct flow_fixture_settings settings;

	printf("seed %llu, order by %s\n", (unsigned long long)seed, by_instance ? "instance" : "key");
	fflush(stdout);
	w->random.state = seed;
	w->by_instance = by_instance;
	w->database = memory_database_new();
	settings = settings_of(w, "observer");
	w->observer = flow_fixture_new(&settings);
	flow_fixture_stop(w->observer);
	broker_fill(w);
	for (uint32_t i = 0; i < REPLICAS; i++)
		replica_start(w, &w->replicas[i]);
	chaos(w);
	drain(w);
	assert_effects(w);
	flow_fixture_free(&w->observer);
	memory_database_free(&w->database);
	free(w);
}

static void run_rounds(bool by_instance)
{
	uint64_t seed = number_of("KEEP_RANDOM_SEED", 1), rounds = number_of("KEEP_RANDOM_ROUNDS", 1);

	for (uint64_t i = 0; i < rounds; i++)
		run(seed + i, by_instance);
}

START_TEST(effects_once_and_in_order_of_keys)
{
	run_rounds(false);
}
END_TEST

START_TEST(effects_once_and_in_order_of_instances)
{
	run_rounds(true);
}
END_TEST

static Suite *keep_random_suite(void)
{
	Suite *suite = suite_create("flow keep at random");
	TCase *tcase = tcase_create("two replicas");

	tcase_set_timeout(tcase, (double)(60 * number_of("KEEP_RANDOM_ROUNDS", 1)));
	TEST_ADD_ALL(tcase, effects_once_and_in_order_of_keys, effects_once_and_in_order_of_instances);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(keep_random_suite)
