/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounds of an evaluation: instructions, live memory, memory in total, thread CPU time.
 *
 * Instructions are counted by Lua's count hook, and by every library function that loops, from one budget, so that no
 * single call is a way round it. Memory is counted by the allocator: a request over the live bound is refused, Lua then
 * collects its garbage and asks once more, and only the second refusal is a breach. That second try must leave a margin,
 * or an evaluation at the edge would collect for every allocation.
 *
 * A breach is sticky: `pcall` asks for it and raises again (lua_library.c).
 *
 * The verdict must not depend on what earlier evaluations left behind. Garbage of theirs counts as in use, and strings
 * of theirs need not be allocated again; so an evaluation that came near a bound of memory while such garbage was about
 * is repeated from a collected state: evaluations have no effects, and only the clean run counts.
 */
#include "value/lua_internal.h"

#include <time.h>

#include "base/alloc.h"

/* Instructions between two calls of the hook. */
#define HOOK_COUNT 1000
/* Steps of library functions between two looks at the clock. */
#define CLOCK_STEPS 20000
/* At most this much garbage stays about after an evaluation (expression.c), so that much is in doubt. */
#define DOUBT ((size_t)2 << 20)

static bool memory_grant(struct expression_state *state, size_t grow)
{
	size_t max = state->limits.max_memory;
	size_t used = state->in_use > state->baseline ? state->in_use - state->baseline : 0;

	if (state->refused)
		max -= max / 32;
	if (grow > state->limits.max_allocated - state->allocated) {
		/* No collection helps against this one. */
		state->breach = BREACH_ALLOCATED;
		return false;
	}
	if (used + grow > max || used + grow < used) {
		state->refused = true;
		return false;
	}
	state->refused = false;
	state->allocated += grow;
	return true;
}

void *lua_limits_alloc(void *arg, void *ptr, size_t old_size, size_t new_size)
{
	struct expression_state *state = arg;
	void *new;

	if (!ptr)
		old_size = 0; /* Lua passes the type of the object there. */
	if (new_size == 0) {
		free(ptr);
		state->in_use -= old_size;
		return NULL;
	}
	if (new_size > old_size && state->armed && !memory_grant(state, new_size - old_size))
		return NULL;
	new = realloc(ptr, new_size);
	if (!new) {
		if (new_size <= old_size)
			return ptr; /* Lua relies on shrinking never to fail. */
		if (!state->armed)
			mem_exhausted(new_size);
		return NULL;
	}
	state->in_use += new_size - old_size;
	if (state->in_use > state->peak)
		state->peak = state->in_use;
	return new;
}

static int64_t cpu_now_us(const struct expression_state *state)
{
	struct timespec now;

	if (state->limits.cpu_us)
		return state->limits.cpu_us();
	/* This thread's work, not the time of day: the same for everybody who asks, and never kept. */
	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
		return 0;
	return (int64_t)now.tv_sec * US_PER_S + now.tv_nsec / 1000;
}

/* The clock is first read after some work was done: most evaluations are too short to be worth the system call. */
static bool cpu_check(struct expression_state *state)
{
	state->unclocked = 0;
	if (state->limits.max_cpu_us == 0)
		return true;
	if (!state->cpu_started) {
		state->cpu_started = true;
		state->cpu_start = cpu_now_us(state);
		return true;
	}
	if (cpu_now_us(state) - state->cpu_start <= state->limits.max_cpu_us)
		return true;
	state->breach = BREACH_CPU;
	return false;
}

bool lua_limits_spend(struct expression_state *state, uint64_t steps)
{
	if (state->breach)
		return false;
	if (steps > (uint64_t)state->budget) {
		state->budget = 0;
		state->breach = BREACH_INSTRUCTIONS;
		return false;
	}
	state->budget -= (int64_t)steps;
	state->unclocked += steps;
	return state->unclocked < CLOCK_STEPS || cpu_check(state);
}

bool lua_limits_spend_bytes(struct expression_state *state, size_t bytes)
{
	if (state->breach)
		return false;
	if (bytes > state->limits.max_allocated - state->allocated) {
		state->breach = BREACH_ALLOCATED;
		return false;
	}
	state->allocated += bytes;
	return true;
}

void lua_limits_breach(lua_State *L, enum expression_breach breach)
{
	struct expression_state *state = lua_state_of(L);

	if (!state->breach)
		state->breach = breach;
	lua_pushnil(L);
	lua_error(L);
	abort(); /* lua_error does not return, but is not declared so. */
}

void lua_limits_charge(lua_State *L, uint64_t steps)
{
	if (!lua_limits_spend(lua_state_of(L), steps))
		lua_limits_breach(L, BREACH_INSTRUCTIONS);
}

void lua_limits_charge_bytes(lua_State *L, size_t bytes)
{
	if (!lua_limits_spend_bytes(lua_state_of(L), bytes))
		lua_limits_breach(L, BREACH_ALLOCATED);
}

/*
 * The buffers of the stock library ask the allocator directly, without the collection and second try, and turn a
 * refusal into an ordinary error. So there is to be room before they begin.
 */
void lua_limits_make_room(lua_State *L, size_t bytes)
{
	struct expression_state *state = lua_state_of(L);
	size_t max = state->limits.max_memory;

	if (bytes > max)
		lua_limits_breach(L, BREACH_MEMORY);
	if (state->in_use + bytes <= state->baseline + max)
		return;
	lua_gc(L, LUA_GCCOLLECT);
	if (state->in_use + bytes > state->baseline + max - max / 32)
		lua_limits_breach(L, BREACH_MEMORY);
}

static void hook(lua_State *L, lua_Debug *where)
{
	struct expression_state *state = lua_state_of(L);

	(void)where;
	if (!lua_limits_spend(state, (uint64_t)lua_gethookcount(L)) || !cpu_check(state))
		lua_limits_breach(L, BREACH_INSTRUCTIONS);
}

void lua_limits_begin(struct expression_state *state)
{
	uint64_t max = state->limits.max_instructions;

	state->budget = max > INT64_MAX ? INT64_MAX : (int64_t)max;
	state->allocated = 0;
	state->peak = state->in_use;
	state->refused = false;
	state->unclocked = 0;
	state->cpu_started = false;
	state->breach = BREACH_NONE;
	state->error_line = 0;
	lua_sethook(state->lua, hook, LUA_MASKCOUNT,
		    max == 0           ? 1
		    : max < HOOK_COUNT ? (int)max
				       : HOOK_COUNT);
	state->armed = true;
}

void lua_limits_end(struct expression_state *state)
{
	state->armed = false;
	state->dirty = true;
}

bool lua_limits_doubtful(const struct expression_state *state, bool was_dirty)
{
	size_t live = state->peak > state->baseline ? state->peak - state->baseline : 0;

	if (!was_dirty)
		return false;
	return state->breach == BREACH_MEMORY || state->breach == BREACH_ALLOCATED ||
	       live + DOUBT > state->limits.max_memory ||
	       state->allocated + DOUBT > state->limits.max_allocated;
}

void lua_limits_note(lua_State *L, int status)
{
	struct expression_state *state = lua_state_of(L);
	size_t len;
	const char *text;

	if (status == LUA_OK || state->breach)
		return;
	if (status == LUA_ERRMEM) {
		state->breach = BREACH_MEMORY;
	} else if (status == LUA_ERRERR) {
		state->breach = BREACH_RECURSION;
	} else if (lua_type(L, -1) == LUA_TSTRING) {
		/* What a buffer of the stock library says when it is refused. */
		text = lua_tolstring(L, -1, &len);
		if (str_equal(str_make(text, len), STR("not enough memory")))
			state->breach = BREACH_MEMORY;
	}
}

void lua_limits_describe(const struct expression_state *state, struct buf *out)
{
	const struct expression_limits *limits = &state->limits;

	switch (state->breach) {
	case BREACH_INSTRUCTIONS:
		buf_printf(out, "more than %llu instructions (expression.max-instructions)",
			   (unsigned long long)limits->max_instructions);
		break;
	case BREACH_MEMORY:
		buf_printf(out, "more than %zu bytes of memory at once (expression.max-memory)",
			   limits->max_memory);
		break;
	case BREACH_ALLOCATED:
		buf_printf(out, "more than %zu bytes allocated in total (expression.max-allocated)",
			   limits->max_allocated);
		break;
	case BREACH_CPU:
		buf_printf(out, "more than %lld ms of CPU time",
			   (long long)(limits->max_cpu_us / US_PER_MS));
		break;
	case BREACH_RECURSION:
		buf_add_text(out, "recursion too deep");
		break;
	case BREACH_NONE:
		break;
	}
}

void lua_scratch_add(lua_State *L, const void *bytes, size_t len)
{
	struct expression_state *state = lua_state_of(L);

	if (len > state->limits.max_memory || state->scratch.len > state->limits.max_memory - len)
		lua_limits_breach(L, BREACH_MEMORY);
	/* The string made of it is counted by the allocator; here it is work. */
	lua_limits_charge(L, len / 256);
	buf_add(&state->scratch, bytes, len);
}

void lua_scratch_push(lua_State *L, size_t mark)
{
	struct buf *scratch = &lua_state_of(L)->scratch;

	lua_pushlstring(L, scratch->data ? scratch->data + mark : "", scratch->len - mark);
	scratch->len = mark;
}
