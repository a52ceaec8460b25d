/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One replica at work: instances come, take slots, call, reply, end, fail; messages end calls and sessions of anybody's instances, without a
 * claim; the pump lets rows go, which are sent or given back. All at once, and with backends that die under it: what was not available is
 * not done, and what was is.
 */
#include "tests/flow/pools_random.h"

#define NUMBERS 1000000 /* of an actor */
#define ENDS	8	/* in a round, less than that */

const char *const pools_names[POOLS] = {"pool-0", "pool-1", "pool-2"};

static uint32_t draw(struct pools_actor *actor, uint32_t below)
{
	actor->random ^= actor->random << 13;
	actor->random ^= actor->random >> 7;
	actor->random ^= actor->random << 17;
	return (uint32_t)((actor->random >> 11) % below);
}

/* Instances of even numbers are one tenant's, the others another's. */
static const char *tenant_of(uint32_t number)
{
	return number % 2 ? "a" : "b";
}

static const char *any_pool(struct pools_actor *actor)
{
	return pools_names[draw(actor, POOLS)];
}

/* --- spawns and claims --- */

static struct store_commit *make_spawn(struct pools_actor *actor, uint32_t number)
{
	struct store_rig *rig = &actor->rig;
	struct store_commit *commit = arena_zalloc(&rig->arena, sizeof(*commit));

	rig_spawn(rig, commit, tenant_of(number), test_id(number));
	commit_inbox(rig, commit, arena_printf(&rig->arena, "e%u", number));
	commit_session(rig, commit, "", "calls", false, true, 0);
	commit_session(rig, commit, "in", NULL, true, false, 0);
	if (draw(actor, 3))
		commit_slot(rig, commit, any_pool(actor), "in");
	commit->cap = (struct store_cap){CHANNEL_LIMIT, TENANT_LIMIT};
	if (draw(actor, 20) == 0)
		commit_session_end(rig, commit, STORE_END_ALL, ID_NONE, NULL, 0);
	return commit;
}

/* What goes on at once; NULL where nothing does. */
struct round {
	struct store_commit *commits[INSTANCES];
	uint32_t numbers[INSTANCES]; /* of spawns */
	struct store_claim *claims[INSTANCES];
	struct store_query *pumps[POOLS];
};

/* --- steps --- */

static void step_calls(struct pools_actor *actor, struct pools_instance *instance, struct store_commit *commit)
{
	struct store_rig *rig = &actor->rig;

	for (uint32_t n = 1 + draw(actor, 3); n > 0; n--) {
		/* Now and then a key that was used before, or the inbound call's. */
		uint32_t call = instance->calls && draw(actor, 5) == 0 ? 1 + draw(actor, instance->calls) : ++instance->calls;
		const char *key = draw(actor, 12) ? arena_printf(&rig->arena, "call-%u", call) : "in";

		commit_session(rig, commit, key, NULL, false, false, draw(actor, 2) ? call : 0);
		commit_send_pooled(rig, commit, draw(actor, 2) ? "out-1" : "out-2", any_pool(actor), key);
	}
}

static struct store_commit *make_step(struct pools_actor *actor, struct pools_instance *instance)
{
	struct store_rig *rig = &actor->rig;
	struct store_commit *commit = arena_zalloc(&rig->arena, sizeof(*commit));
	/* Those of the first live long, so that rows wait; those of the others come and go. */
	uint32_t what = actor->index > 1 && draw(actor, 8) == 0 ? 88 + draw(actor, 2) : draw(actor, 90);

	rig_resume(rig, commit, tenant_of(instance->number), test_id(instance->number),
		   arena_printf(&rig->arena, "lane-%u", actor->index), instance->version);
	if (what < 25)
		step_calls(actor, instance, commit);
	if (what >= 15 && what < 60 && instance->calls)
		commit_session_end(rig, commit, STORE_END_TOKEN, ID_NONE, NULL, 1 + draw(actor, instance->calls));
	if (what >= 85 && what < 88)
		commit_session_end(rig, commit, STORE_END_INBOUND, ID_NONE, NULL, 0);
	if (what < 88)
		return commit;
	commit->status = what == 88 ? INSTANCE_FAILED : INSTANCE_COMPLETED;
	commit_session_end(rig, commit, STORE_END_ALL, ID_NONE, NULL, 0);
	return commit;
}

/* A message that ends something of an instance of any actor, which may be gone. */
static struct store_commit *make_end(struct pools_actor *actor)
{
	const struct pools_actor *other = &actor->all[draw(actor, ACTORS)];
	uint32_t number = __atomic_load_n(&other->instances[draw(actor, INSTANCES)].number, __ATOMIC_RELAXED);
	struct store_commit *commit = arena_zalloc(&actor->rig.arena, sizeof(*commit));
	uint32_t call = 1 + draw(actor, 40);

	if (!number)
		return NULL;
	rig_letter(&actor->rig, commit, tenant_of(number));
	if (draw(actor, 30))
		commit_session_end(&actor->rig, commit, STORE_END_CALL_KEY, test_id(number),
				   draw(actor, 15) ? arena_printf(&actor->rig.arena, "call-%u", call) : "in", 0);
	else
		commit_session_end(&actor->rig, commit, STORE_END_ALL, test_id(number), NULL, 0);
	return commit;
}

/* --- rows --- */

static struct store_query *make_pump(struct pools_actor *actor, const char *pool)
{
	struct arena *arena = &actor->rig.arena;
	struct segment_call *calls = arena_zalloc(arena, 2 * sizeof(*calls));
	struct store_query *query = arena_zalloc(arena, sizeof(*query));
	struct column *columns = arena_zalloc(arena, 3 * sizeof(*columns));

	columns[0] = column_scalar_text(arena, str_of(pool));
	columns[1] = column_scalar_text(arena, str_of(arena_printf(arena, "boot-%u", actor->index)));
	columns[2] = column_scalar_int(arena, 1 + draw(actor, 6));
	calls[0] = (struct segment_call){.statement = STATEMENT_POOL_LOCK_ONE, .params = columns};
	calls[1] = (struct segment_call){.statement = STATEMENT_POOL_SCAN, .params = columns};
	rig_query_init(&actor->rig, query, calls, 2, NULL, true);
	return query;
}

/* What was let go is sent, or is given back and found by a scan later. */
static void rows_leave(struct pools_actor *actor, const struct rows *rows)
{
	const char *owner = arena_printf(&actor->rig.arena, "boot-%u", actor->index);

	for (uint32_t i = 0; rows && i < rows->row_count; i++) {
		const struct field *f = rows_at(rows, i, 0);
		const char *tenant = arena_printf(&actor->rig.arena, "%.*s", STR_ARG(f[0].str));
		const char *channel = arena_printf(&actor->rig.arena, "%.*s", STR_ARG(f[2].str));
		const char *tenants = arena_printf(&actor->rig.arena, ",%s,", tenant);

		if (draw(actor, 5) == 0) {
			rig_try_query(&actor->rig, tenants, true, STATEMENT_OUTBOX_RELEASE, tenant, f[1].id, channel, f[3].i, f[4].i, owner);
			continue;
		}
		rig_try_query(&actor->rig, tenants, true, STATEMENT_OUTBOX_DELETE, tenant, f[1].id, channel, f[3].i, f[4].i, owner);
		rig_try_query(&actor->rig, tenants, true, STATEMENT_OUTBOX_FREE_NEXT, tenant, f[1].id, channel);
	}
}

static void outbox_tick(struct pools_actor *actor)
{
	const char *owner = arena_printf(&actor->rig.arena, "boot-%u", actor->index);

	rows_leave(actor, rig_try_query(&actor->rig, NULL, true, STATEMENT_OUTBOX_SCAN, owner, INT64_C(20)));
	/* A pump whose answer was lost has left rows that nobody knows of; the sweep also finds the heads. */
	if (actor->rounds % 16 == 0)
		rig_try_query(&actor->rig, NULL, true, STATEMENT_OUTBOX_SWEEP, ID_NONE, "", INT64_C(0), INT64_C(0), INT64_C(100000),
			      INT64_C(500));
	if (actor->rounds % 8 == 0) {
		rig_try_query(&actor->rig, NULL, true, STATEMENT_SLOT_SWEEP, ID_NONE, "", "", INT64_C(100000));
		rig_try_query(&actor->rig, NULL, true, STATEMENT_POOL_SWEEP, ID_NONE, "", INT64_C(100000));
	}
}

/* --- a round --- */

static void round_begin(struct pools_actor *actor, struct round *round)
{
	struct store_rig *rig = &actor->rig;
	struct store_request *requests[INSTANCES];
	uint32_t count = 0;

	for (uint32_t i = 0; i < INSTANCES; i++) {
		struct pools_instance *instance = &actor->instances[i];

		if (!instance->number) {
			round->numbers[i] = actor->index * NUMBERS + ++actor->next_number;
			round->commits[i] = make_spawn(actor, round->numbers[i]);
			requests[count++] = &round->commits[i]->base;
		} else if (draw(actor, 3)) {
			round->claims[i] = arena_zalloc(&rig->arena, sizeof(struct store_claim));
			rig_claim(rig, round->claims[i], tenant_of(instance->number), test_id(instance->number),
				  arena_printf(&rig->arena, "lane-%u", actor->index));
			requests[count++] = &round->claims[i]->base;
		}
	}
	rig_burst(rig, requests, count);
	rig_wait(rig);
}

static void round_spawned(struct pools_actor *actor, const struct round *round)
{
	for (uint32_t i = 0; i < INSTANCES; i++) {
		const struct store_commit *commit = round->commits[i];

		if (!commit)
			continue;
		actor->spawns += commit->base.outcome == STORE_OK;
		actor->full += commit->base.outcome == STORE_POOL_FULL || commit->base.outcome == STORE_CHANNEL_FULL ||
			       commit->base.outcome == STORE_TENANT_FULL;
		actor->unchecked += commit->unchecked;
		if (commit->base.outcome == STORE_OK)
			__atomic_store_n(&actor->instances[i].number, round->numbers[i], __ATOMIC_RELAXED);
	}
}

static void round_step(struct pools_actor *actor, struct round *round)
{
	struct store_request *requests[INSTANCES + ENDS + POOLS];
	struct store_commit *end;
	uint32_t count = 0;

	for (uint32_t i = 0; i < INSTANCES; i++) {
		round->commits[i] = NULL;
		if (!round->claims[i] || round->claims[i]->base.outcome != STORE_OK)
			continue;
		actor->instances[i].version = round->claims[i]->version;
		round->commits[i] = make_step(actor, &actor->instances[i]);
		requests[count++] = &round->commits[i]->base;
	}
	for (uint32_t i = draw(actor, ENDS); i > 0; i--)
		if ((end = make_end(actor))) {
			requests[count++] = &end->base;
			actor->ends++;
		}
	for (uint32_t i = 0; i < POOLS; i++) {
		round->pumps[i] = draw(actor, 3) ? make_pump(actor, pools_names[i]) : NULL;
		if (round->pumps[i])
			requests[count++] = &round->pumps[i]->base;
	}
	rig_burst(&actor->rig, requests, count);
	rig_wait(&actor->rig);
}

static void instance_forget(struct pools_instance *instance)
{
	__atomic_store_n(&instance->number, 0, __ATOMIC_RELAXED);
	instance->calls = 0;
}

static void round_end(struct pools_actor *actor, const struct round *round)
{
	for (uint32_t i = 0; i < INSTANCES; i++) {
		const struct store_commit *commit = round->commits[i];

		if (!commit || commit->base.outcome != STORE_OK)
			continue;
		actor->steps++;
		if (commit->status != INSTANCE_SUSPENDED)
			instance_forget(&actor->instances[i]);
	}
	for (uint32_t i = 0; i < POOLS; i++) {
		struct store_query *pump = round->pumps[i];

		if (!pump || pump->base.outcome != STORE_OK)
			continue;
		actor->grants += pump->segment.calls[1].rows.row_count;
		rows_leave(actor, &pump->segment.calls[1].rows);
	}
}

static bool is_up(void *arg)
{
	return store_is_up(((struct store_rig *)arg)->store, NULL);
}

void *pools_actor_run(void *arg)
{
	struct pools_actor *actor = arg;

	while (!__atomic_load_n(actor->stop, __ATOMIC_RELAXED)) {
		struct round round = {0};

		if (!test_wait(is_up, &actor->rig, 20000))
			break;
		round_begin(actor, &round);
		round_spawned(actor, &round);
		round_step(actor, &round);
		round_end(actor, &round);
		outbox_tick(actor);
		actor->rounds++;
		arena_reset(&actor->rig.arena);
	}
	return NULL;
}

void pools_actor_end(struct pools_actor *actor)
{
	struct store_commit commit;

	for (uint32_t i = 0; i < INSTANCES; i++) {
		uint32_t number = actor->instances[i].number;

		if (!number)
			continue;
		do {
			rig_letter(&actor->rig, &commit, tenant_of(number));
			commit_session_end(&actor->rig, &commit, STORE_END_ALL, test_id(number), NULL, 0);
			rig_run(&actor->rig, &commit.base);
		} while (commit.base.outcome == STORE_UNAVAILABLE && test_wait(is_up, &actor->rig, 20000));
		ck_assert_int_eq(commit.base.outcome, STORE_OK);
	}
}
