/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler. Everything that could differ between two runs of a seed is kept out: candidates are collected in the order
 * in which processes and loops were made, chance comes from one generator, and no decision looks at an address, a hash
 * order or a real clock.
 */
#include "tests/sim/runtime.h"

#include <ucontext.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/time.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_SIZE ((size_t)1 << 20)
/* So many things at one instant mean that somebody spins. */
#define SPIN_STEPS 200000
/* 2026-01-01. */
#define WALL_BASE_US      (INT64_C(1767225600) * US_PER_S)
#define MONOTONIC_BASE_US (1000 * US_PER_S)
#define LOOPS_MAX         64

struct sim_loop {
	struct loop base;
	struct process *process;
	struct task *head, **tail;
	int64_t armed_us;
	bool ended;
	char label[64];
};

/* A stack that can be left and entered again. */
struct fiber {
	ucontext_t context;
	char *stack;
	size_t stack_size;
	void *sanitizer; /* the fake stack, or the sanitizer's fiber */
};

struct process {
	struct runtime base;
	struct sim *sim;
	struct process *next;
	char name[16];
	struct sim_loop *loops[LOOPS_MAX];
	uint32_t loop_count;
	bool dead, ended, started;
	int64_t paused_until_us, wall_offset_us;
	struct fiber fiber;
	void (*main_fn)(void *arg);
	void *arg;
	/* What main waits for. */
	bool (*until)(void *arg);
	void *until_arg;
	int64_t deadline_us;
};

struct sim {
	uint64_t random;
	int64_t now_us;
	uint64_t steps, steps_now, digest;
	FILE *out;
	struct process *first, **last, *world;
	struct process *running; /* whose main function runs */
	struct sim_loop *current;
	struct fiber fiber; /* the scheduler's */
	struct buf line, failure;
};

/* --- chance --- */

/* splitmix64: every seed, also 0 and 1, gives a good sequence. */
uint64_t sim_random(struct sim *sim)
{
	uint64_t z = sim->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t sim_below(struct sim *sim, uint64_t bound)
{
	assert(bound > 0);
	return sim_random(sim) % bound;
}

int64_t sim_between(struct sim *sim, int64_t least, int64_t most)
{
	assert(least <= most);
	return least + (int64_t)sim_below(sim, (uint64_t)(most - least) + 1);
}

bool sim_chance(struct sim *sim, uint32_t per_million)
{
	return sim_below(sim, 1000000) < per_million;
}

int64_t sim_latency(struct sim *sim, int64_t least_us, int64_t most_us)
{
	int64_t span = most_us - least_us;

	/* One in 32 may take up to the most, the others up to an eighth of the way. */
	if (!sim_chance(sim, 31250))
		span /= 8;
	return least_us + (int64_t)sim_below(sim, (uint64_t)span + 1);
}

/* --- the event log --- */

void sim_note(struct sim *sim, const char *fmt, ...)
{
	va_list ap;

	buf_reset(&sim->line);
	buf_printf(&sim->line, "%lld.%06lld ",
		   (long long)((sim->now_us - MONOTONIC_BASE_US) / US_PER_S),
		   (long long)((sim->now_us - MONOTONIC_BASE_US) % US_PER_S));
	va_start(ap, fmt);
	buf_vprintf(&sim->line, fmt, ap);
	va_end(ap);
	sim->digest = (sim->digest ^ hash_bytes(sim->line.data, sim->line.len)) *
		      UINT64_C(0x100000001b3);
	if (sim->out)
		fprintf(sim->out, "%s\n", sim->line.data);
}

uint64_t sim_digest(const struct sim *sim)
{
	return sim->digest;
}

void sim_fail(struct sim *sim, const char *fmt, ...)
{
	va_list ap;

	if (sim->failure.len)
		return;
	va_start(ap, fmt);
	buf_vprintf(&sim->failure, fmt, ap);
	va_end(ap);
	sim_note(sim, "FAILED %s", sim->failure.data);
}

const char *sim_failure(const struct sim *sim)
{
	return sim->failure.len ? sim->failure.data : NULL;
}

int64_t sim_now_us(const struct sim *sim)
{
	return sim->now_us;
}

uint64_t sim_steps(const struct sim *sim)
{
	return sim->steps;
}

/* --- fibers --- */

/* Leaves `from`, of which `last` says that it is never entered again, for `to`. */
static void fiber_switch(struct fiber *from, struct fiber *to, bool last)
{
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_start_switch_fiber(last ? NULL : &from->sanitizer, to->stack, to->stack_size);
#elif defined(__SANITIZE_THREAD__)
	__tsan_switch_to_fiber(to->sanitizer, 0);
#endif
	if (last)
		setcontext(&to->context);
	else
		swapcontext(&from->context, &to->context);
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
#endif
}

static void fiber_main(unsigned int high, unsigned int low)
{
	struct process *process = (struct process *)(uintptr_t)((uint64_t)high << 32 | low);
	struct sim *sim = process->sim;

#if defined(__SANITIZE_ADDRESS__)
	const void *stack;

	__sanitizer_finish_switch_fiber(NULL, &stack, &sim->fiber.stack_size);
	sim->fiber.stack = (char *)(uintptr_t)stack;
#endif
	process->main_fn(process->arg);
	process->ended = true;
	fiber_switch(&process->fiber, &sim->fiber, true);
}

static void fiber_init(struct process *process)
{
	struct fiber *fiber = &process->fiber;
	uint64_t address = (uint64_t)(uintptr_t)process;

	fiber->stack_size = STACK_SIZE;
	fiber->stack = mem_alloc(STACK_SIZE);
#if defined(__SANITIZE_THREAD__)
	fiber->sanitizer = __tsan_create_fiber(0);
#endif
	getcontext(&fiber->context);
	fiber->context.uc_stack.ss_sp = fiber->stack;
	fiber->context.uc_stack.ss_size = STACK_SIZE;
	makecontext(&fiber->context, (void (*)(void))(uintptr_t)fiber_main, 2,
		    (unsigned int)(address >> 32), (unsigned int)address);
}

static void main_resume(struct sim *sim, struct process *process)
{
	sim->running = process;
	process->until = NULL;
#if defined(__SANITIZE_THREAD__)
	sim->fiber.sanitizer = __tsan_get_current_fiber();
#endif
	if (!process->started)
		fiber_init(process);
	process->started = true;
	fiber_switch(&sim->fiber, &process->fiber, false);
	sim->running = NULL;
}

/* On a main function's stack: gives the others their turn until the condition holds. */
static bool main_wait(struct process *process, bool (*until)(void *arg), void *arg,
		      int64_t deadline_us)
{
	struct sim *sim = process->sim;

	assert(sim->running == process);
	process->until = until;
	process->until_arg = arg;
	process->deadline_us = deadline_us;
	fiber_switch(&process->fiber, &sim->fiber, false);
	return until(arg);
}

/* --- loops --- */

static struct sim_loop *sim_loop_of(struct loop *loop)
{
	return container_of(loop, struct sim_loop, base);
}

static void loop_op_post(struct loop *base, struct task *task)
{
	struct sim_loop *loop = sim_loop_of(base);

	assert(!loop->ended);
	task->next = NULL;
	*loop->tail = task;
	loop->tail = &task->next;
}

static void loop_op_arm(struct loop *base, int64_t due_us)
{
	sim_loop_of(base)->armed_us = due_us;
}

static int64_t loop_op_now(struct loop *base)
{
	return sim_loop_of(base)->process->sim->now_us;
}

static int64_t loop_op_wall(struct loop *base)
{
	struct process *process = sim_loop_of(base)->process;

	return WALL_BASE_US + process->sim->now_us + process->wall_offset_us;
}

static uint64_t loop_op_random(struct loop *base)
{
	return sim_random(sim_loop_of(base)->process->sim);
}

static const struct loop_ops sim_loop_ops = {
	.post = loop_op_post,
	.arm = loop_op_arm,
	.now_us = loop_op_now,
	.wall_us = loop_op_wall,
	.random = loop_op_random,
};

static struct process *process_of(struct runtime *runtime)
{
	return container_of(runtime, struct process, base);
}

static struct loop *runtime_loop_start(struct runtime *runtime, const char *name)
{
	struct process *process = process_of(runtime);
	struct sim_loop *loop = mem_zalloc(sizeof(*loop));

	assert(process->loop_count < LOOPS_MAX);
	loop_base_init(&loop->base, runtime, &sim_loop_ops, name);
	loop->process = process;
	loop->tail = &loop->head;
	loop->armed_us = INT64_MAX;
	snprintf(loop->label, sizeof(loop->label), "%s/%s", process->name, name);
	process->loops[process->loop_count++] = loop;
	return &loop->base;
}

struct call {
	struct task task;
	void (*fn)(void *arg);
	void *arg;
	bool returned;
};

static void call_run(struct task *task)
{
	struct call *call = container_of(task, struct call, task);

	if (call->fn)
		call->fn(call->arg);
	call->returned = true;
}

static bool call_returned(void *arg)
{
	return ((struct call *)arg)->returned;
}

static void runtime_loop_call(struct runtime *runtime, struct loop *loop, void (*fn)(void *arg),
			      void *arg)
{
	struct call call = {.task.run = call_run, .fn = fn, .arg = arg};

	loop_post(loop, &call.task);
	main_wait(process_of(runtime), call_returned, &call, INT64_MAX);
}

static void runtime_loop_stop(struct runtime *runtime, struct loop **loop)
{
	struct process *process = process_of(runtime);
	struct sim_loop *ending = sim_loop_of(*loop);

	runtime_loop_call(runtime, *loop, NULL, NULL);
	for (uint32_t i = 0; i < process->loop_count; i++)
		if (process->loops[i] == ending) {
			memmove(&process->loops[i], &process->loops[i + 1],
				(process->loop_count - i - 1) * sizeof(*process->loops));
			process->loop_count--;
			break;
		}
	loop_base_done(&ending->base);
	free(ending);
	*loop = NULL;
}

static bool runtime_loop_wait(struct runtime *runtime, bool (*until)(void *arg), void *arg,
			      int64_t timeout_ms)
{
	struct process *process = process_of(runtime);

	return main_wait(process, until, arg, process->sim->now_us + timeout_ms * US_PER_MS);
}

static const struct runtime_ops sim_runtime_ops = {
	.loop_start = runtime_loop_start,
	.loop_stop = runtime_loop_stop,
	.loop_call = runtime_loop_call,
	.loop_wait = runtime_loop_wait,
};

struct process *process_of_loop(struct loop *loop)
{
	return sim_loop_of(loop)->process;
}

bool sim_is_on(struct loop *loop)
{
	struct sim *sim = sim_loop_of(loop)->process->sim;

	return sim->current == sim_loop_of(loop);
}

/* --- processes --- */

struct process *process_new(struct sim *sim, const char *name, void (*main_fn)(void *arg),
			    void *arg)
{
	struct process *process = mem_zalloc(sizeof(*process));

	process->base.ops = &sim_runtime_ops;
	process->sim = sim;
	process->main_fn = main_fn;
	process->arg = arg;
	process->deadline_us = INT64_MAX;
	snprintf(process->name, sizeof(process->name), "%s", name);
	*sim->last = process;
	sim->last = &process->next;
	return process;
}

struct runtime *process_runtime(struct process *process)
{
	return &process->base;
}

const char *process_name(const struct process *process)
{
	return process->name;
}

void process_kill(struct process *process)
{
	process->dead = true;
}

bool process_is_dead(const struct process *process)
{
	return process->dead;
}

bool process_has_ended(const struct process *process)
{
	return process->ended;
}

void process_pause(struct process *process, int64_t until_us)
{
	process->paused_until_us = until_us;
}

bool process_is_paused(const struct process *process)
{
	return process->paused_until_us > process->sim->now_us;
}

void process_shift_wall(struct process *process, int64_t by_us)
{
	process->wall_offset_us += by_us;
}

/* --- the scheduler --- */

struct candidate {
	struct process *main;
	struct sim_loop *loop;
};

static bool main_is_ready(const struct process *process)
{
	if (!process->main_fn || process->ended)
		return false;
	return !process->started || process->deadline_us <= process->sim->now_us ||
	       process->until(process->until_arg);
}

static bool loop_is_ready(const struct sim_loop *loop)
{
	return loop->head || loop->armed_us <= loop->process->sim->now_us;
}

static uint32_t candidates_collect(struct sim *sim, struct candidate *out, uint32_t room)
{
	uint32_t count = 0;

	for (struct process *process = sim->first; process; process = process->next) {
		if (process->dead || process_is_paused(process))
			continue;
		if (main_is_ready(process) && count < room)
			out[count++] = (struct candidate){.main = process};
		for (uint32_t i = 0; i < process->loop_count && count < room; i++)
			if (loop_is_ready(process->loops[i]))
				out[count++] = (struct candidate){.loop = process->loops[i]};
	}
	return count;
}

static int64_t earliest(int64_t a_us, int64_t b_us)
{
	return a_us < b_us ? a_us : b_us;
}

static int64_t process_next_us(const struct process *process)
{
	int64_t next_us = INT64_MAX;

	if (process->dead)
		return INT64_MAX;
	if (process_is_paused(process))
		return process->paused_until_us;
	if (process->main_fn && !process->ended)
		next_us = process->deadline_us;
	for (uint32_t i = 0; i < process->loop_count; i++)
		next_us = earliest(next_us, process->loops[i]->armed_us);
	return next_us;
}

static void time_advance(struct sim *sim)
{
	int64_t next_us = INT64_MAX;

	for (struct process *process = sim->first; process; process = process->next)
		next_us = earliest(next_us, process_next_us(process));
	assert(next_us != INT64_MAX && next_us > sim->now_us);
	sim->now_us = next_us;
	sim->steps_now = 0;
}

static void loop_run(struct sim *sim, struct sim_loop *loop)
{
	struct task *task = loop->head;
	bool timers = loop->armed_us <= sim->now_us;

	sim->current = loop;
	/* With both there, either may come first. */
	if (task && timers)
		timers = sim_below(sim, 2);
	if (loop->process != sim->world)
		sim_note(sim, "%s %s", loop->label, task && !timers ? "task" : "timer");
	if (task && !timers) {
		loop->head = task->next;
		if (!loop->head)
			loop->tail = &loop->head;
		task->run(task);
	} else {
		loop_timers_run(&loop->base, sim->now_us);
	}
	sim->current = NULL;
}

bool sim_step(struct sim *sim)
{
	struct candidate candidates[256];
	uint32_t count;

	for (;;) {
		count = candidates_collect(sim, candidates, ARRAY_LEN(candidates));
		if (count)
			break;
		time_advance(sim);
	}
	sim->steps++;
	if (++sim->steps_now > SPIN_STEPS)
		sim_fail(sim, "somebody spins: %d things ran without the clock moving", SPIN_STEPS);
	else {
		struct candidate chosen = candidates[sim_below(sim, count)];

		if (chosen.main) {
			sim_note(sim, "%s main", chosen.main->name);
			main_resume(sim, chosen.main);
		} else {
			loop_run(sim, chosen.loop);
		}
	}
	return !sim->failure.len;
}

bool sim_run(struct sim *sim, bool (*until)(void *arg), void *arg, int64_t deadline_us)
{
	while (!until(arg)) {
		if (sim->now_us >= deadline_us || !sim_step(sim))
			return false;
	}
	return true;
}

/* --- life --- */

struct loop *sim_world(struct sim *sim)
{
	return &sim->world->loops[0]->base;
}

struct sim *sim_new(uint64_t seed, FILE *out)
{
	struct sim *sim = mem_zalloc(sizeof(*sim));

	sim->random = seed;
	sim->out = out;
	sim->now_us = MONOTONIC_BASE_US;
	sim->digest = UINT64_C(0xcbf29ce484222325);
	sim->last = &sim->first;
	sim->world = process_new(sim, "world", NULL, NULL);
	runtime_loop_start(&sim->world->base, "world");
	return sim;
}

static void process_free(struct process *process)
{
	if (process->dead)
		return; /* what it has made is left behind, and may point here */
#if defined(__SANITIZE_THREAD__)
	if (process->fiber.sanitizer)
		__tsan_destroy_fiber(process->fiber.sanitizer);
#endif
	for (uint32_t i = 0; i < process->loop_count; i++) {
		loop_base_done(&process->loops[i]->base);
		free(process->loops[i]);
	}
	free(process->fiber.stack);
	free(process);
}

void sim_free(struct sim **sim)
{
	struct sim *s = *sim;
	struct process *next;

	if (!s)
		return;
	for (struct process *process = s->first; process; process = next) {
		next = process->next;
		process_free(process);
	}
	buf_done(&s->line);
	buf_done(&s->failure);
	free(s);
	*sim = NULL;
}
