/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run, from its seed:
 *
 *	1 settings, rates of small faults, which kinds of large ones there are, and the load are drawn;
 *	2 the storm: replicas start, the load comes, faults strike;
 *	3 the calm: nothing breaks any more, what was killed comes back, everything must settle;
 *	4 the replicas stop in good order, and the checker looks at what is left.
 *
 * Each run has only some kinds of faults: a mix of all at once hides what two of them do together.
 */
#include "tests/sim/world.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "flow/lane_set.h"
#include "service.h"
#include "tests/sim/checker.h"
#include "tests/sim/operator.h"
#include "tests/sim/segment_copy.h"

#define REPLICAS_MAX    2
#define FAULTS_MAX      10
#define ENVIRONMENT_MAX 24
#define STORM_US        (40 * US_PER_S)
#define LOAD_US         (25 * US_PER_S)
/* Timers may have been set by a clock that was minutes off, one after the other. */
#define SETTLE_US       (1500 * US_PER_S)
#define STOP_US         (90 * US_PER_S)
#define FOREVER_MS      INT64_C(1000000000)
/* Fewer, with the faults, than what a queue with a limit lets a message come back. */
#define RABBIT_CUTS_MAX 6

struct world;

/* A place for a replica: killed ones are followed by new ones. */
struct slot {
	struct world *world;
	struct process *process; /* NULL: down */
	struct config *config;
	char name[16];
	int generation;
	bool started, stop, ended, restarting;
	struct loop_timer start;
	struct service *service; /* while it serves */
};

enum fault_kind {
	FAULT_KILL,
	FAULT_STOP, /* in good order, and started again */
	FAULT_PAUSE,
	FAULT_CUT_SOME,
	FAULT_CUT_ALL,
	FAULT_DATABASE_RESTART,
	FAULT_DATABASE_FAILOVER,
	FAULT_DATABASE_CLOCK,
	FAULT_CLUSTER_DOWN,
	FAULT_REBALANCE,
	FAULT_EVICT,
	FAULT_BREAK_HANDLE,
	FAULT_CLOCK,
	FAULT_RABBIT_DOWN,
	FAULT_RABBIT_CUT_SOME,
	FAULT_RABBIT_CUT_ALL,
	FAULT_RABBIT_CHANNELS,
	FAULT_RABBIT_MOVE,
	FAULT_RABBIT_DELETE,
	FAULT_RABBIT_ALARM,
	FAULT_KIND_COUNT
};

struct fault_plan {
	struct world *world;
	enum fault_kind kind;
	/* Strikes so many steps after its time, or with `trap` behind the next commit with this statement, at its sender. */
	uint64_t delay_steps;
	bool trap;
	enum statement_id statement;
	struct loop_timer timer;
};

struct world {
	const struct world_options *options;
	struct sim *sim;
	struct sim_database *database;
	struct sim_cluster *cluster;
	struct sim_rabbit *rabbit;
	struct sim_operator op;
	struct checker *checker;
	struct load load;
	struct slot slots[REPLICAS_MAX];
	int slot_count;
	char environment_text[ENVIRONMENT_MAX][96];
	char *environment[ENVIRONMENT_MAX + 1];
	int environment_count;
	struct fault_plan plans[FAULTS_MAX];
	int plan_count;
	struct fault_plan *due; /* waits for its step */
	uint64_t due_step;
	struct slot *due_slot;   /* NULL: any */
	struct fault_plan *trap; /* waits for its commit */
	bool calm;
	bool hot; /* the load wants few instances */
	bool slow_owners; /* replicas are stopped just when they have a claim, until others may take it over */
	uint64_t kills, pauses, stops;
	struct loop_timer restorer;
};

static const char *const bug_names[] = {[BUG_NONE] = "none",
#define X(name, text) [BUG_##name] = text,
					WORLD_BUGS(X)
#undef X
};

const char *world_bug_name(enum world_bug bug)
{
	return bug_names[bug];
}

/* --- settings --- */

static const char config_file[] =
	"connections = ( { name = \"kafka\"; transport = \"kafka\";\n"
	"  properties = [ \"bootstrap.servers=simulated\", \"session.timeout.ms=6000\" ]; },\n"
	"  { name = \"amqp\"; transport = \"amqp\"; url = \"amqp://simulated\"; heartbeat = "
	"\"PT3S\"; } );\n"
	"log = { level = \"info\"; format = \"text\"; };\n";

static void setting(struct world *world, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void setting(struct world *world, const char *name, const char *fmt, ...)
{
	char value[48];
	char *text = world->environment_text[world->environment_count];
	va_list ap;

	assert(world->environment_count < ENVIRONMENT_MAX);
	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	snprintf(text, sizeof(world->environment_text[0]), "SUTRA_%s=%s", name, value);
	world->environment[world->environment_count++] = text;
	sim_note(world->sim, "setting %s", text);
}

static uint64_t one_of(struct world *world, const int *values, size_t count)
{
	return (uint64_t)values[sim_below(world->sim, count)];
}
#define ONE_OF(world, ...) \
	(unsigned)one_of(world, (const int[]){__VA_ARGS__}, ARRAY_LEN(((const int[]){__VA_ARGS__})))

static void world_settings(struct world *world)
{
	setting(world, "ENGINE_SHARDS", "%u", ONE_OF(world, 1, 2, 4));
	if (sim_below(world->sim, 3) == 0)
		setting(world, "ENGINE_SHARD_QUEUE_CAPACITY", "%u", ONE_OF(world, 1, 2, 8));
	setting(world, "DATASOURCE_BATCH_MAX", "%u", ONE_OF(world, 1, 4, 256));
	setting(world, "INSTANCE_CLAIM_TIMEOUT", "PT%uS", ONE_OF(world, 3, 6));
	setting(world, "INSTANCE_SWEEP_INTERVAL", "PT%uS", ONE_OF(world, 1, 2));
	setting(world, "LEASE_TTL", "PT%uS", ONE_OF(world, 4, 8));
	setting(world, "LEASE_POLL", "PT%uS", ONE_OF(world, 1, 3));
	setting(world, "OUTBOX_CLAIM_TIMEOUT", "PT%uS", ONE_OF(world, 3, 6));
	setting(world, "OUTBOX_TICK_INTERVAL", "PT%uS", ONE_OF(world, 1, 2));
	setting(world, "OUTBOX_RETRY_BASE_DELAY", "PT0.%uS", ONE_OF(world, 1, 5));
	setting(world, "OUTBOX_RETRY_MAX_DELAY", "PT%uS", ONE_OF(world, 2, 4));
	setting(world, "OUTBOX_WINDOW_MAX_ROWS", "%u", ONE_OF(world, 2, 8, 10000));
	setting(world, "REFUSAL_BACKOFF_MAX", "PT%uS", ONE_OF(world, 1, 4));
	setting(world, "REFUSAL_HOLD", "PT%u.%uS", ONE_OF(world, 0, 1, 30), ONE_OF(world, 1, 5));
	setting(world, "HOLD_MAX_PERSISTED", "%u", ONE_OF(world, 0, 2, 100000));
	setting(world, "INBOX_RECOVERY_THRESHOLD", "PT%uS", ONE_OF(world, 2, 5));
	setting(world, "SHUTDOWN_TIMEOUT", "PT%uS", ONE_OF(world, 5, 20));
}

static void slot_load_config(struct slot *slot)
{
	struct config_findings findings = {0};

	if (config_load_text("simulator", str_of(config_file), slot->world->environment,
			     &slot->config, &findings) != RESULT_OK)
		sim_fail(slot->world->sim, "configuration: %s", findings.text.data);
	buf_done(&findings.text);
}

/* --- replicas --- */

static void slot_boot(struct slot *slot);

static bool never(void *arg UNUSED)
{
	return false;
}

static bool slot_must_stop(void *arg)
{
	return ((struct slot *)arg)->stop;
}

static struct executor *slot_executor(void *user)
{
	struct slot *slot = user;

	return sim_executor_new(slot->world->database, slot->process);
}

/* False: told to stop before it was up, or it could not start. */
static bool slot_start(struct slot *slot, struct service *service)
{
	struct runtime *runtime = process_runtime(slot->process);

	while (!slot->stop) {
		struct error err = ERROR_INIT;
		enum result result = service_start(service, &err);

		if (result == RESULT_OK)
			return true;
		if (result != RESULT_AGAIN) {
			sim_fail(slot->world->sim, "%s cannot start: %s", slot->name, err.text);
			return false;
		}
		loop_wait(runtime, never, NULL, 250);
	}
	return false;
}

static void slot_main(void *arg)
{
	struct slot *slot = arg;
	struct world *world = slot->world;
	struct service_seams seams = {
		.runtime = process_runtime(slot->process),
		.executor_new = slot_executor,
		.kafka = &sim_kafka_client,
		.kafka_cluster = sim_cluster_client_new(world->cluster, slot->process),
		.rabbit = &sim_rabbit_seam,
		.rabbit_broker = sim_rabbit_client_new(world->rabbit, slot->process),
		.view = world->options->view,
		.host = slot->name,
		.user = slot,
	};
	struct service *service = NULL;
	struct error err = ERROR_INIT;

	if (service_new(slot->config, &seams, &service, &err) != RESULT_OK) {
		sim_fail(world->sim, "%s: %s", slot->name, err.text);
		return;
	}
	if (slot_start(slot, service)) {
		slot->started = true;
		slot->service = service;
		while (!loop_wait(seams.runtime, slot_must_stop, slot, FOREVER_MS))
			;
	}
	slot->started = false;
	slot->service = NULL;
	service_stop(service);
	if (service->stop_is_unclean) {
		/* As the command does: the process ends with what is still out. */
		sim_note(world->sim, "%s stops uncleanly", slot->name);
		if (world->calm)
			sim_fail(world->sim, "%s does not stop in good order", slot->name);
		process_kill(slot->process);
	} else {
		service_free(&service);
	}
	slot->ended = true;
}

static void slot_begin(struct loop_timer *timer)
{
	struct slot *slot = container_of(timer, struct slot, start);

	slot->restarting = false;
	slot_boot(slot);
}

static void slot_boot(struct slot *slot)
{
	struct world *world = slot->world;

	snprintf(slot->name, sizeof(slot->name), "r%d.%d", (int)(slot - world->slots) + 1,
		 ++slot->generation);
	slot->started = slot->stop = slot->ended = false;
	slot->process = process_new(world->sim, slot->name, slot_main, slot);
	sim_note(world->sim, "%s boots", slot->name);
}

/* Everything that others know of it is told that it is gone. */
static void slot_bury(struct slot *slot)
{
	sim_database_forget(slot->world->database, slot->process);
	sim_cluster_forget(slot->world->cluster, slot->process);
	sim_rabbit_forget(slot->world->rabbit, slot->process);
	slot->process = NULL;
	slot->service = NULL;
	slot->started = false;
}

static void slot_restart_in(struct slot *slot, int64_t delay_us)
{
	slot->restarting = true;
	loop_timer_start(&slot->start, delay_us);
}

static void slot_kill(struct slot *slot)
{
	sim_note(slot->world->sim, "%s is killed", slot->name);
	process_kill(slot->process);
	slot_bury(slot);
	slot->world->kills++;
	slot_restart_in(slot, sim_between(slot->world->sim, 10 * US_PER_MS, 9 * US_PER_S));
}

/* After every step: what has ended is followed up. */
static void slot_look(struct slot *slot)
{
	if (!slot->process || !slot->ended)
		return;
	slot_bury(slot);
	if (!slot->world->calm)
		slot_restart_in(slot, sim_between(slot->world->sim, 10 * US_PER_MS, 5 * US_PER_S));
}

/* --- an operator who restores what is FAILED --- */

static void restore_answered(struct task *post)
{
	struct lane_request *request = container_of(post, struct lane_request, post);

	arena_done(&request->resolved);
	free(request);
}

static void slot_restore(struct slot *slot, struct id instance)
{
	struct lane_set *lanes = slot->service->lanes;
	struct lane_request *request = mem_zalloc(sizeof(*request));

	*request = (struct lane_request){
		.kind = REQUEST_RESTORE,
		.tenant = STR("default"),
		.reply_to = sim_world(slot->world->sim),
		.answered = restore_answered,
		.target.instance = instance,
	};
	arena_init(&request->resolved);
	if (!lane_set_submit(lanes, lane_set_lane_of_instance(lanes, instance), request))
		restore_answered(&request->post);
}

static void restorer_looks(struct loop_timer *timer)
{
	struct world *world = container_of(timer, struct world, restorer);
	struct slot *slot = &world->slots[sim_below(world->sim, (uint64_t)world->slot_count)];
	struct segment segment = {.scan = true};
	struct tx tx = {sim_database_tables(world->database), &segment, 0};

	for (struct row *row = table_first(&tx, TABLE_INSTANCE); row && slot->service && !slot->stop; row = table_next(row))
		if (row->fields[INSTANCE_status].i == INSTANCE_FAILED)
			slot_restore(slot, row->fields[INSTANCE_id].id);
	loop_timer_start(timer, sim_latency(world->sim, 100 * US_PER_MS, 4 * US_PER_S));
}

/* --- faults --- */

static struct slot *some_slot(struct world *world)
{
	struct slot *slot = &world->slots[sim_below(world->sim, (uint64_t)world->slot_count)];

	return slot->process && !slot->ended ? slot : NULL;
}

static void fault_pause(struct world *world, struct slot *slot)
{
	/* Half of the time long enough for its claims to age and too short for its partitions to go. */
	int64_t for_us = sim_below(world->sim, 2)
				 ? sim_between(world->sim, 3 * US_PER_S, 7 * US_PER_S)
				 : sim_between(world->sim, 100 * US_PER_MS, 14 * US_PER_S);

	sim_note(world->sim, "%s is paused for %lld us", slot->name, (long long)for_us);
	world->pauses++;
	process_pause(slot->process, sim_now_us(world->sim) + for_us);
}

static void fault_on_slot(struct world *world, enum fault_kind kind, struct slot *slot)
{
	switch (kind) {
	case FAULT_KILL:
		slot_kill(slot);
		break;
	case FAULT_STOP:
		sim_note(world->sim, "%s is told to stop", slot->name);
		world->stops++;
		slot->stop = true;
		break;
	case FAULT_PAUSE:
		fault_pause(world, slot);
		break;
	case FAULT_CUT_SOME:
	case FAULT_CUT_ALL:
		sim_database_cut(world->database, slot->process, kind == FAULT_CUT_ALL);
		break;
	case FAULT_EVICT:
		sim_cluster_evict(world->cluster, slot->process);
		break;
	case FAULT_BREAK_HANDLE:
		sim_cluster_break(world->cluster, slot->process);
		break;
	case FAULT_RABBIT_CUT_SOME:
	case FAULT_RABBIT_CUT_ALL:
		sim_rabbit_cut(world->rabbit, slot->process, kind == FAULT_RABBIT_CUT_ALL);
		break;
	case FAULT_RABBIT_CHANNELS:
		sim_rabbit_close_channels(world->rabbit, slot->process);
		break;
	case FAULT_CLOCK:
		sim_note(world->sim, "the clock of %s jumps", slot->name);
		checker_clock_jumps(world->checker);
		process_shift_wall(slot->process,
				   sim_between(world->sim, -60 * US_PER_S, 60 * US_PER_S));
		break;
	default:
		break;
	}
}

static void fault_strike(struct world *world, enum fault_kind kind)
{
	struct sim *sim = world->sim;
	struct slot *slot = world->due_slot ? world->due_slot : some_slot(world);

	world->due_slot = NULL;
	if (slot && (!slot->process || slot->ended))
		return;

	switch (kind) {
	case FAULT_DATABASE_RESTART:
	case FAULT_DATABASE_FAILOVER:
		if (sim_database_is_up(world->database))
			sim_database_restart(world->database,
					     sim_between(sim, 100 * US_PER_MS, 6 * US_PER_S),
					     kind == FAULT_DATABASE_FAILOVER);
		break;
	case FAULT_DATABASE_CLOCK:
		sim_note(sim, "the clock of the database jumps");
		sim_database_shift_wall(world->database,
					sim_between(sim, -4 * US_PER_S, 9 * US_PER_S));
		break;
	case FAULT_CLUSTER_DOWN:
		if (sim_cluster_is_up(world->cluster))
			sim_cluster_down(world->cluster,
					 sim_between(sim, 100 * US_PER_MS, 12 * US_PER_S));
		break;
	case FAULT_REBALANCE:
		sim_cluster_rebalance(world->cluster);
		break;
	case FAULT_RABBIT_DOWN:
		if (sim_rabbit_is_up(world->rabbit))
			sim_rabbit_down(world->rabbit,
					sim_between(sim, 100 * US_PER_MS, 9 * US_PER_S));
		break;
	case FAULT_RABBIT_MOVE:
		sim_rabbit_move_queue(world->rabbit);
		break;
	case FAULT_RABBIT_DELETE:
		sim_rabbit_delete_queue(world->rabbit,
					sim_between(sim, 10 * US_PER_MS, 9 * US_PER_S));
		break;
	case FAULT_RABBIT_ALARM:
		sim_rabbit_alarm(world->rabbit, sim_between(sim, 100 * US_PER_MS, 15 * US_PER_S));
		break;
	default:
		if (slot)
			fault_on_slot(world, kind, slot);
		break;
	}
}

static void fault_is_due(struct loop_timer *timer)
{
	struct fault_plan *plan = container_of(timer, struct fault_plan, timer);
	struct world *world = plan->world;

	if (plan->trap) {
		world->trap = plan;
		return;
	}
	if (world->due)
		fault_strike(world, world->due->kind);
	world->due = plan;
	world->due_step = sim_steps(world->sim) + plan->delay_steps;
}

/* The hooks of the database. */
static void world_running(void *user, const struct segment *segment)
{
	checker_running(((struct world *)user)->checker, segment);
}

static void world_commit(void *user, const struct process *process, const struct segment *segment)
{
	struct world *world = user;
	struct fault_plan *trap = world->trap;

	checker_commit(world->checker, process, segment);
	if (!trap || world->due || !segment_find(segment, trap->statement))
		return;
	world->trap = NULL;
	world->due = trap;
	world->due_step = sim_steps(world->sim) + trap->delay_steps;
	for (int i = 0; i < world->slot_count; i++)
		if (world->slots[i].process == process)
			world->due_slot = &world->slots[i];
	sim_note(world->sim, "a trap closes on %s", process_name(process));
}

static void faults_plan(struct world *world)
{
	struct sim *sim = world->sim;
	static const enum statement_id statements[] = {
		STATEMENT_CLAIM,
		STATEMENT_CLAIM,
		STATEMENT_FENCE_UPDATE,
		STATEMENT_INSTANCE_INSERT,
		STATEMENT_OUTBOX_INSERT,
		STATEMENT_OUTBOX_SCAN,
		STATEMENT_OUTBOX_CLAIM_NEXT,
		STATEMENT_OUTBOX_FAIL,
	};
	enum fault_kind kinds[4];
	size_t kind_count = 1 + sim_below(sim, ARRAY_LEN(kinds));

	for (size_t i = 0; i < kind_count; i++)
		kinds[i] = sim_below(sim, 4) ? (enum fault_kind)sim_below(sim, FAULT_KIND_COUNT)
					     : FAULT_KILL;
	world->plan_count = (int)sim_below(sim, FAULTS_MAX + 1);
	if (world->slow_owners) {
		kinds[0] = FAULT_PAUSE;
		kind_count = 1;
		world->plan_count = FAULTS_MAX;
	}
	for (int i = 0; i < world->plan_count; i++) {
		struct fault_plan *plan = &world->plans[i];

		*plan = (struct fault_plan){.world = world,
					    .kind = kinds[sim_below(sim, kind_count)]};
		/* Between two steps of one instant, not only at the beginning of one. */
		plan->delay_steps = sim_below(sim, sim_below(sim, 2) ? 4 : 40);
		plan->trap = sim_below(sim, 2);
		plan->statement = statements[sim_below(sim, ARRAY_LEN(statements))];
		if (world->slow_owners) {
			plan->trap = true;
			plan->statement = STATEMENT_CLAIM;
		}
		loop_timer_init(&plan->timer, sim_world(sim), fault_is_due);
		loop_timer_start(&plan->timer, sim_between(sim, 0, STORM_US));
	}
}

/* --- the run --- */

/* After every step; for sim_run. */
static void world_look(struct world *world)
{
	struct fault_plan *due = world->due;

	if (due && sim_steps(world->sim) >= world->due_step) {
		world->due = NULL;
		fault_strike(world, due->kind);
	}
	for (int i = 0; i < world->slot_count; i++)
		slot_look(&world->slots[i]);
}

static bool world_storm_is_over(void *arg)
{
	struct world *world = arg;

	world_look(world);
	return false;
}

static bool world_has_settled(void *arg)
{
	struct world *world = arg;

	world_look(world);
	for (int i = 0; i < world->slot_count; i++)
		if (!world->slots[i].started || world->slots[i].stop)
			return false;
	return checker_is_settled(world->checker);
}

static bool world_has_stopped(void *arg)
{
	struct world *world = arg;

	world_look(world);
	for (int i = 0; i < world->slot_count; i++)
		if (world->slots[i].process)
			return false;
	return true;
}

static void world_calm(struct world *world)
{
	sim_note(world->sim, "calm");
	world->calm = true;
	world->due = world->trap = NULL;
	sim_database_calm(world->database);
	sim_cluster_calm(world->cluster);
	sim_rabbit_calm(world->rabbit);
	operator_stop(&world->op);
	for (int i = 0; i < world->slot_count; i++) {
		struct slot *slot = &world->slots[i];

		/* One that was told to stop would not come back by itself any more. */
		if (slot->process && slot->stop)
			slot_kill(slot);
		else if (!slot->process && !slot->restarting)
			slot_restart_in(slot, 0);
	}
}

static void world_play(struct world *world)
{
	struct sim *sim = world->sim;
	int64_t begin_us = sim_now_us(sim);

	sim_run(sim, world_storm_is_over, world, begin_us + STORM_US);
	if (sim_failure(sim))
		return;
	world_calm(world);
	if (!sim_run(sim, world_has_settled, world, sim_now_us(sim) + SETTLE_US)) {
		if (!sim_failure(sim))
			checker_fail_unsettled(world->checker);
		return;
	}
	sim_note(sim, "settled");
	/* A while longer: what is late may not do harm. */
	sim_run(sim, world_storm_is_over, world,
		sim_now_us(sim) + (int64_t)sim_below(sim, 10) * US_PER_S);
	sim_note(sim, "stop");
	loop_timer_stop(&world->restorer);
	for (int i = 0; i < world->slot_count; i++)
		world->slots[i].stop = true;
	if (!sim_run(sim, world_has_stopped, world, sim_now_us(sim) + STOP_US))
		sim_fail(sim, "the replicas do not stop");
	if (!sim_failure(sim))
		checker_end(world->checker);
}

static uint32_t rate(struct world *world, int most_per_million)
{
	/* Half of the runs do without. */
	return sim_below(world->sim, 2)
		       ? (uint32_t)sim_below(world->sim, (uint64_t)most_per_million)
		       : 0;
}

static void build_database(struct world *world)
{
	struct sim *sim = world->sim;
	enum world_bug bug = world->options->bug;
	struct sim_database_settings settings = {
		.latency_max_us = sim_between(sim, 1 * US_PER_MS, 60 * US_PER_MS),
		.cut_per_million = rate(world, 30000),
		.lock_per_million = rate(world, 50000),
		.no_fence = bug == BUG_NO_FENCE,
		.release_early = bug == BUG_RELEASE_EARLY,
		.probe_blind = bug == BUG_EARLY_NO_LOOK || bug == BUG_EARLY_NO_LAST_LOOK,
		.probe_inside = bug == BUG_EARLY_LOOK_INSIDE,
		.look_blind = bug == BUG_EARLY_NO_LOOK || bug == BUG_EARLY_LOOK_INSIDE || bug == BUG_EARLY_NO_LAST_LOOK,
		.last_blind = bug == BUG_EARLY_NO_LAST_LOOK,
		.timer_eager = bug == BUG_TIMER_EAGER,
		.timer_lost = bug == BUG_TIMER_LOST,
		.timer_stays = bug == BUG_TIMER_STAYS,
		.schedule_stays = bug == BUG_SCHEDULE_STAYS,
		.target_lost = bug == BUG_TARGET_LOST,
		.target_stays = bug == BUG_TARGET_STAYS,
		.alias_lost = bug == BUG_ALIAS_LOST,
		.running = world_running,
		.committed = world_commit,
		.user = world,
	};

	world->database = sim_database_new(sim, &settings);
}

static void build_cluster(struct world *world)
{
	struct sim *sim = world->sim;
	enum world_bug bug = world->options->bug;
	struct sim_cluster_settings settings = {
		.latency_max_us = sim_between(sim, 1 * US_PER_MS, 80 * US_PER_MS),
		.session_timeout_us = world->slow_owners || sim_below(sim, 2) ? 10 * US_PER_S
									      : 6 * US_PER_S,
		.commit_fails_per_million = rate(world, 200000),
		.produce_fails_per_million = rate(world, 200000),
		.produce_unknown_per_million = rate(world, 200000),
		.ack_before_commit = bug == BUG_ACK_BEFORE_COMMIT,
		.offset_past_hole = bug == BUG_OFFSET_PAST_HOLE,
		.confirm_early = bug == BUG_CONFIRM_EARLY,
		.committed = checker_offset,
		.appended = checker_record,
		.user = world->checker,
	};

	world->cluster = sim_cluster_new(sim, &settings);
}

static void build_rabbit(struct world *world)
{
	struct sim *sim = world->sim;
	enum world_bug bug = world->options->bug;
	struct sim_rabbit_settings settings = {
		.latency_max_us = sim_between(sim, 1 * US_PER_MS, 80 * US_PER_MS),
		.nack_per_million = rate(world, 200000),
		.hang_per_million = rate(world, 10000),
		.cut_per_million = rate(world, 4000),
		.cuts_max = RABBIT_CUTS_MAX,
		.product = sim_chance(sim, 500000) ? "RabbitMQ 3.10.8" : "RabbitMQ 4.3.6",
		.ack_before_commit = bug == BUG_AMQP_ACK_BEFORE_COMMIT,
		.ack_past_hole = bug == BUG_AMQP_ACK_PAST_HOLE,
		.confirm_early = bug == BUG_AMQP_CONFIRM_EARLY,
		.published = checker_published,
		.lost = checker_lost,
		.delivered = checker_delivered,
		.acked = checker_acked,
		.user = world->checker,
	};

	world->rabbit = sim_rabbit_new(sim, &settings);
}

static void world_build(struct world *world)
{
	struct sim *sim = world->sim;

	world->hot = sim_below(sim, 3) == 0;
	world->slow_owners = world->hot && sim_below(sim, 2);
	world->checker = checker_new(sim, &world->load);
	build_database(world);
	build_cluster(world);
	build_rabbit(world);
	world_settings(world);
	load_init(&world->load, sim, world->cluster, world->rabbit, LOAD_US, world->hot);
	checker_begin(world->checker, world->database);
	operator_begin(&world->op, sim, world->database,
		       sim_below(sim, 2) ? (uint32_t)sim_below(sim, OPERATOR_HANDS + 1) : 0);
	world->slot_count = world->slow_owners || sim_below(sim, 4) ? 2 : 1;
	for (int i = 0; i < world->slot_count; i++) {
		struct slot *slot = &world->slots[i];

		slot->world = world;
		slot_load_config(slot);
		loop_timer_init(&slot->start, sim_world(sim), slot_begin);
		slot_restart_in(slot, (int64_t)sim_below(sim, 3 * US_PER_S));
	}
	loop_timer_init(&world->restorer, sim_world(sim), restorer_looks);
	loop_timer_start(&world->restorer, US_PER_S);
	faults_plan(world);
}

/* Lines of the service's own log, without their time, which is the real one. */
static void world_log(void *arg, struct str line)
{
	struct sim *sim = arg;
	ptrdiff_t space = str_find(line, ' ');

	sim_note(sim, "| %.*s", (int)(line.len - (size_t)(space + 1)), line.ptr + space + 1);
}

static void world_count(struct world *world, struct world_result *result)
{
	const struct sim_database_stats *d = sim_database_stats(world->database);
	const struct sim_cluster_stats *c = sim_cluster_stats(world->cluster);
	const struct sim_rabbit_stats *r = sim_rabbit_stats(world->rabbit);

	result->replicas = world->slot_count;
	result->orders = world->load.order_count;
	result->records = world->load.record_count;
	result->counts = (struct world_counts){
		.kills = world->kills,
		.pauses = world->pauses,
		.stops = world->stops,
		.commits = d->commits,
		.cuts = d->cuts,
		.doubts = d->doubts,
		.terminated = d->terminated,
		.locks = d->locks,
		.fenced = d->fenced,
		.restarts = d->restarts,
		.lost_commits = d->lost_commits,
		.rebalances = c->rebalances,
		.evictions = c->evictions,
		.redelivered = c->redelivered,
		.commit_failures = c->commit_failures,
		.produce_failures = c->produce_failures,
		.claims_by_hand = world->op.claims,
		.kept = checker_kept(world->checker),
		.early_met = checker_early_met(world->checker),
		.timers = checker_timers(world->checker),
		.reminders = checker_reminders(world->checker),
		.ticks = checker_ticks(world->checker),
		.ticks_coalesced = checker_ticks_coalesced(world->checker),
		.targets = checker_targets(world->checker),
		.targets_passed = checker_targets_passed(world->checker),
		.alias_conflicts = d->alias_conflicts,
		.failures = checker_failures(world->checker),
		.restores = checker_restores(world->checker),
		.deliveries = r->delivered,
		.deliveries_again = r->redelivered,
		.acks = r->acked,
		.given_back = r->given_back,
		.confirms = r->confirmed,
		.confirms_nacked = r->nacked,
		.confirms_never = r->hung,
		.returns = r->returned,
		.rabbit_cuts = r->cuts,
		.rabbit_restarts = r->restarts,
		.channels_closed = r->channels_closed,
		.consumers_cancelled = r->cancels,
		.queues_deleted = r->deletions,
		.alarms = r->alarms,
		.unconfirmed_lost = r->lost,
	};
	result->most_refused = checker_most_refused(world->checker);
}

static void world_free(struct world *world)
{
	load_done(&world->load);
	operator_done(&world->op);
	loop_timer_stop(&world->restorer);
	for (int i = 0; i < world->plan_count; i++)
		loop_timer_stop(&world->plans[i].timer);
	for (int i = 0; i < world->slot_count; i++) {
		loop_timer_stop(&world->slots[i].start);
		/* After a failure replicas still hold on to it. */
		if (!sim_failure(world->sim))
			config_free(&world->slots[i].config);
	}
	/* After a failure replicas are in the middle of something: all is left behind. */
	if (sim_failure(world->sim))
		return;
	sim_cluster_free(&world->cluster);
	sim_rabbit_free(&world->rabbit);
	sim_database_free(&world->database);
	checker_free(&world->checker);
	sim_free(&world->sim);
	free(world);
}

void world_run(const struct world_options *options, struct world_result *result)
{
	struct world *world = mem_zalloc(sizeof(*world));
	int64_t begin_us;

	*result = (struct world_result){0};
	world->options = options;
	world->sim = sim_new(options->seed, options->out);
	begin_us = sim_now_us(world->sim);
	log_configure(options->debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
	log_redirect(world_log, world->sim);
	world_build(world);
	world_play(world);
	log_redirect(NULL, NULL);
	result->digest = sim_digest(world->sim);
	result->steps = sim_steps(world->sim);
	result->simulated_us = sim_now_us(world->sim) - begin_us;
	world_count(world, result);
	if (sim_failure(world->sim))
		snprintf(result->failure, sizeof(result->failure), "%s", sim_failure(world->sim));
	world_free(world);
}
