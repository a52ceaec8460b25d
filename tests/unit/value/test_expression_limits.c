/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds: hostile expressions end with EXPRESSION.LIMIT, soon, on every run alike; memory may end anywhere. */
#include <time.h>

#include "base/time.h"
#include "tests/unit/value/expression_support.h"

/* The simulator's posture: no clock, so that only counting can end these. */
static const struct expression_limits counted = {1000000, 16u << 20, 64u << 20, 0, NULL};

static const char *const instructions[] = {
	"while true do end",
	"while true do pcall(function() while true do end end) end",
	"repeat local ok = pcall(pcall, error) until false",
	"local function f() return f() end f()",
	"for i = 1, math.huge do end",
	"('a'):rep(40):find(('a*'):rep(20) .. 'b')",
	"('a'):rep(30):match(('a?'):rep(30) .. ('a'):rep(30) .. 'b')",
	"('a'):rep(200000):find('.-b')",
	"('a'):rep(100000):gsub('a-b', '')",
	"('('):rep(100000):find('%b()')",
	"for _ in ('a'):rep(60):gmatch(('a*'):rep(10) .. 'b') do end",
	"('a'):rep(100000):find('[' .. ('b-z'):rep(300) .. ']')",
	"('x'):rep(1000):gsub('x', function() while true do end end)",
	"while true do pcall(string.gsub, ('a'):rep(40), ('a*'):rep(20) .. 'b', '') end",
	"local t = {} for i = 1, 1000 do t[i] = i end table.sort(t, function() while true do end "
	"end)",
	"local t = {} t[1] = 1 table.concat(t, '', 1, 2^53 // 1 | 0)",
	"table.move({}, 1, math.maxinteger - 1, 2, {})",
	"table.insert(setmetatable and {} or {}, 1) while true do table.unpack({}, 1, 10000) end",
	"while true do ('x'):find('y') end",
	"while true do sum(payload.lines, function(l) return l.q end) end",
	"map(payload.lines, function() while true do end end)",
	"while true do for k in pairs(payload) do end end",
	"while true do uuid('x') end",
	"while true do sha256('x') end",
	"local t = {1} for i = 1, 100 do t = {t, t} end total = t",
	"local s = {} for i = 1, 30 do s = {s, s, s} end json.encode(s)",
	"while true do select(-1, table.unpack({}, 1, 1000)) end",
};

START_TEST(steps_are_bounded)
{
	struct bench b;

	bench_open(&b, counted);
	for (size_t i = 0; i < ARRAY_LEN(instructions); i++)
		BREACHES(&b, instructions[i], "instructions");
	RUNS(&b, "total = 1", "{\"total\":1}");
	bench_close(&b);
}
END_TEST

/* Walking over a long text character by character is work in its length, not in the square of it. */
START_TEST(ordinary_work_fits)
{
	struct bench b;

	bench_open(&b, counted);
	RUNS(&b,
	     "local s, n = ('ab '):rep(10000), 0 for i = 1, #s do if s:sub(i, i) == 'a' then n = n "
	     "+ 1 end end total = n",
	     "{\"total\":10000}");
	RUNS(&b,
	     "local s, n = ('ab '):rep(10000), 0 for i = 1, #s do n = n + s:byte(i) end total = n",
	     "{\"total\":2270000}");
	RUNS(&b,
	     "local s, n, at = ('ab '):rep(10000), 0, 1 while true do local f = s:find('b', at, "
	     "true) if not f then break "
	     "end n = n + 1 at = f + 1 end total = n",
	     "{\"total\":10000}");
	RUNS(&b,
	     "local n = 0 for w in ('ab '):rep(10000):gmatch('%a+') do n = n + #w end total = n",
	     "{\"total\":20000}");
	RUNS(&b,
	     "local s, n = ('ä'):rep(5000), 0 for p, c in utf8.codes(s) do n = n + "
	     "utf8.codepoint(s, p) end total = n",
	     "{\"total\":1140000}");
	RUNS(&b,
	     "local t = {} for i = 1, 10000 do t[i] = (i * 7919) % 10007 end table.sort(t) total = "
	     "t[1] + t[10000]",
	     "{\"total\":10007}");
	bench_close(&b);
}
END_TEST

START_TEST(live_memory_is_bounded)
{
	static const char *const sources[] = {
		"('x'):rep(2^62 // 1 | 0)",
		"('x'):rep(17000000)",
		"('x'):rep(10, ('y'):rep(4000000))",
		"local s = 'x' while true do s = s .. s end",
		"pcall(function() local s = 'x' while true do s = s .. s end end) total = 1",
		"while true do pcall(string.rep, 'x', 1 << 40) end",
		"local function f() return 1 + f() end f()",
		"local t = {} for i = 1, 1e7 do t[i] = i end",
		"string.pack('c100000000', 'x')",
		"while true do pcall(string.pack, 'c999999999999999999999', 'x') end",
		"('x'):rep(9000000):gsub('x', 'yy')",
		"local t = {} for i = 1, 20 do t[i] = ('x'):rep(1000000) end table.concat(t)",
		"('\\0'):rep(5000000):format()  string.format('%q', ('\\0'):rep(8000000))",
		"local t = {} for i = 1, 30 do t[i] = ('x'):rep(1000000) end join(t)",
	};
	struct bench b;

	bench_open(&b, counted);
	for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
		msgpack_object out;

		if (bench_eval(&b, EXPRESSION_SCRIPT, sources[i], &out) != RESULT_REJECT ||
		    b.err.code != CODE_EXPRESSION_LIMIT)
			ck_abort_msg("%s: %s", sources[i], b.err.text);
	}
	BREACHES(&b, "local function f() return 1 + f() end f()", "memory at once");
	BREACHES(&b, "('x'):rep(1 << 62)", "memory at once");
	/* Garbage of the evaluation itself does not count as live. */
	RUNS(&b, "for i = 1, 50 do local s = ('x'):rep(1000000 + i) total = #s end",
	     "{\"total\":1000050}");
	bench_close(&b);
}
END_TEST

START_TEST(memory_in_total_is_bounded)
{
	struct bench b;

	bench_open(&b, counted);
	BREACHES(&b, "for i = 1, 100 do local s = ('x'):rep(1000000 + i) end", "in total");
	BREACHES(&b, "for i = 1, 100 do pcall(string.rep, 'x', 1000000 + i) end", "in total");
	BREACHES(
		&b,
		"local s = ('x'):rep(4000000) local t = {} for i = 1, 50 do t[i] = s end total = t",
		"in total");
	BREACHES(&b, "local s = json.encode(('x'):rep(500000)) while true do json.decode(s) end",
		 "");
	BREACHES(&b, "json.decode('[' .. ('[],'):rep(900000) .. '1]')", "in total");
	bench_close(&b);
}
END_TEST

START_TEST(recursion_in_c_is_an_error)
{
	struct bench b;
	msgpack_object out;

	bench_open(&b, counted);
	RUN_FAILS(&b, "local function f(x) return x:gsub('.', f) end f('x')", "C stack overflow");
	RUN_FAILS(&b, "local function f() return map({1}, f) end f()", "C stack overflow");
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_SCRIPT,
				    "local function f() return pcall(f) end f()", &out),
			 RESULT_OK);
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_SCRIPT,
				    "local function f() pcall(f) pcall(f) end f()", &out),
			 RESULT_REJECT);
	ck_assert_int_eq(b.err.code, CODE_EXPRESSION_LIMIT);
	RUN_FAILS(&b, "('x'):rep(300):find(('x?'):rep(300))", "pattern too complex");
	bench_close(&b);
}
END_TEST

/* Comparisons that lie, change their mind, fail, or change what is sorted: some order, always the same, and nothing lost. */
START_TEST(sorting_bears_any_comparison)
{
	static const char *const comparisons[] = {
		"function() return true end",
		"function() return false end",
		"function(a, b) n = n + 1 return n % 3 == 0 end",
		"function(a, b) return a ~= b end",
		"function(a, b) return (a - b) % 3 == 1 end",
		"function(a, b) return 0 / 0 < a end",
		"function(a, b) t[1 + a % 50] = t[1 + b % 50] t[60] = nil return a < b end",
		"function(a, b) if #t > 3 then table.sort({b, a}) end return a > b end",
		"function(a, b) return null end",
	};
	struct bench b;

	bench_open(&b, counted);
	for (size_t i = 0; i < ARRAY_LEN(comparisons); i++) {
		char source[512];

		snprintf(source, sizeof(source),
			 "local n, t = 0, {} for i = 1, 50 do t[i] = i * 7919 %% 50 end\n"
			 "table.sort(t, %s)\n"
			 "local seen = {} for _, v in ipairs(t) do seen[v] = true end\n"
			 "total = {#t == 50, len(keys(seen)) == 50} other = t",
			 comparisons[i]);
		for (int round = 0; round < 2; round++) {
			msgpack_object out, again;

			ck_assert_msg(bench_eval(&b, EXPRESSION_SCRIPT, source, &out) == RESULT_OK,
				      "%s: %s", comparisons[i], b.err.text);
			ck_assert(value_get(&out, STR("total"))->via.array.ptr[0].via.boolean);
			/* One that writes into the table it sorts may well lose some. */
			ck_assert_msg(strstr(comparisons[i], "t[1") ||
					      value_get(&out, STR("total"))->via.array.ptr[1].via.boolean,
				      "%s", comparisons[i]);
			ck_assert_int_eq(bench_eval(&b, EXPRESSION_SCRIPT, source, &again), RESULT_OK);
			ck_assert(value_equal(&out, &again));
		}
	}
	RUN_FAILS(&b, "local t = {3, 2, 1} table.sort(t, function() error('no order') end)",
		  "no order");
	BREACHES(&b,
		 "local t = {} for i = 1, 99 do t[i] = i end pcall(table.sort, t, function(a, b) "
		 "pcall(function() while true do end end) return a < b end) total = 1",
		 "instructions");
	bench_close(&b);
}
END_TEST

/* Source that nests for ever is found at load, and ends neither the check nor the process. */
START_TEST(deep_source_is_found)
{
	static const char *const open[] = {"(",  "{",     "not ", "- ",
					   "f(", "x and (", "'a' .. ", "function() return "};
	static const struct str names[] = {{"f", 1}, {"x", 1}};

	for (size_t i = 0; i < ARRAY_LEN(open); i++) {
		struct expression_limits limits = counted;
		struct expression expr = {.kind = EXPRESSION_VALUE, .file = "f", .line = 1};
		struct expression *items[] = {&expr};
		struct expression_set set = {items, 1};
		struct expression_finding finding;
		struct expression_state *state = expression_state_new(&limits);
		struct buf source = BUF_INIT;
		struct error err = ERROR_INIT;

		for (int n = 0; n < 2000; n++)
			buf_add_text(&source, open[i]);
		buf_add_text(&source, "1");
		expr.source = buf_str(&source);
		ck_assert_msg(expression_check(&expr, names, 2, NULL, 0, &finding, 1) > 0, "%s",
			      open[i]);
		ck_assert_int_eq(expression_state_load(state, &set, &err), RESULT_FATAL);
		expression_state_free(&state);
		buf_done(&source);
	}
}
END_TEST

static int64_t ticks;

static int64_t cpu_ticks(void)
{
	return ticks += 1000;
}

START_TEST(cpu_time_is_bounded)
{
	struct expression_limits limits = {INT64_MAX, 16u << 20, 64u << 20, 50000, cpu_ticks};
	struct bench b;

	bench_open(&b, limits);
	BREACHES(&b, "while true do end", "50 ms of CPU time");
	BREACHES(&b, "while true do pcall(function() while true do end end) end", "CPU time");
	BREACHES(&b, "('a'):rep(40):find(('a*'):rep(20) .. 'b')", "CPU time");
	ticks = 0;
	RUNS(&b, "total = 1", "{\"total\":1}");
	ck_assert_int_eq(ticks, 0);
	bench_close(&b);
}
END_TEST

START_TEST(the_real_clock_works_too)
{
	struct expression_limits limits = {INT64_MAX, 16u << 20, SIZE_MAX / 2, 50000, NULL};
	struct bench b;
	int64_t before = time_monotonic_us();

	bench_open(&b, limits);
	BREACHES(&b, "while true do end", "CPU time");
	BREACHES(&b,
		 "local a = ('x'):rep(4000000) local b = a .. 'y' a = a .. 'y' while true do local "
		 "x = a == b end",
		 "CPU time");
	bench_close(&b);
	ck_assert_int_lt(time_monotonic_us() - before, 30 * US_PER_S);
}
END_TEST

/* Uses all of the library, so that a refusal can meet every allocation. */
static const char everything[] =
	"local t = {} for i = 1, 20 do t[#t + 1] = ('k' .. i):rep(3, '-') end\n"
	"table.sort(t, function(a, b) return a > b end) local s = table.concat(t, ',')\n"
	"local n = s:gsub('k(%d)', function(d) return '<' .. d .. '>' end):gsub('%d', {['1'] = "
	"'one'})\n"
	"for w in n:gmatch('%a+') do s = s .. w end\n"
	"local ok, e = pcall(function() error({t = t}) end)\n"
	"total = {merge(payload.m, {x = 1}), keys(payload), map(payload.items, function(v) return "
	"type(v) end),\n"
	"  filter(payload.m, function(v) return v > 1 end), json.decode(json.encode(payload)), "
	"sha256(s), base64(s),\n"
	"  string.format('%q %s %d %5.2f', s, s, 1, 2), s:upper():lower():reverse(), "
	"utf8.char(228, 8364), blob,\n"
	"  uuid('u'), now('PT1S'), list(pcall(error)), header, event, join(t, ';'), e.t, "
	"string.pack('z', s):len()}\n"
	"other = '' for k, v in pairs(merge(payload, {a = t})) do other = other .. k end third = "
	"sum(payload.m)";

START_TEST(any_refusal_is_a_breach_and_no_more)
{
	struct buf first = BUF_INIT, again = BUF_INIT;
	struct expression_limits limits = counted;
	msgpack_object out;
	struct bench b;
	size_t passed[3] = {0, 0, 0};

	bench_open(&b, limits);
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_SCRIPT, everything, &out), RESULT_OK);
	value_pack(&out, &first);
	bench_close(&b);
	for (int which = 0; which < 3; which++) {
		for (size_t bound = 0; bound < 60000; bound += which == 0 ? 37 : 211) {
			enum result res;

			limits = counted;
			if (which == 0)
				limits.max_instructions = bound / 8;
			else if (which == 1)
				limits.max_memory = bound;
			else
				limits.max_allocated = bound;
			bench_open(&b, limits);
			res = bench_eval(&b, EXPRESSION_SCRIPT, everything, &out);
			if (res == RESULT_OK) {
				passed[which]++;
				buf_reset(&again);
				value_pack(&out, &again);
				ck_assert(str_equal(buf_str(&first), buf_str(&again)));
			} else {
				ck_assert_msg(b.err.code == CODE_EXPRESSION_LIMIT, "%zu: %s", bound,
					      b.err.text);
			}
			bench_close(&b);
		}
	}
	/* The sweep went from nothing to enough, or it has not shown anything. */
	ck_assert_uint_gt(passed[0], 0);
	ck_assert_uint_gt(passed[1], 0);
	buf_done(&first);
	buf_done(&again);
}
END_TEST

/* The verdict at a bound of memory, with and without garbage and strings of others about. */
START_TEST(history_does_not_change_the_verdict)
{
	static const char litter[] = "local t = {} for i = 1, 3000 do t[i] = 'item number ' .. i "
				     "end local function f(n) if n > 0 then "
				     "return 1 + f(n - 1) end return 0 end f(3000)";
	static const char probe[] =
		"local t = {} for i = 1, 2000 do t[i] = 'item number ' .. i end total = #t";
	int verdicts[2] = {0, 0};

	for (size_t bound = 40000; bound < 400000; bound += 3001) {
		enum result clean, littered, again;
		struct expression_limits limits = counted;
		msgpack_object out;
		struct bench b;

		for (int which = 0; which < 2; which++) {
			limits = counted;
			*(which ? &limits.max_memory : &limits.max_allocated) = bound;
			bench_open(&b, limits);
			clean = bench_eval(&b, EXPRESSION_SCRIPT, probe, &out);
			again = bench_eval(&b, EXPRESSION_SCRIPT, probe, &out);
			(void)!bench_eval(&b, EXPRESSION_SCRIPT, litter, &out);
			littered = bench_eval(&b, EXPRESSION_SCRIPT, probe, &out);
			ck_assert_msg(clean == littered && clean == again, "bound %zu: %d %d %d",
				      bound, clean, again, littered);
			verdicts[clean == RESULT_OK]++;
			bench_close(&b);
		}
	}
	ck_assert_int_gt(verdicts[0], 0);
	ck_assert_int_gt(verdicts[1], 0);
}
END_TEST

START_TEST(every_state_gives_the_same)
{
	static const char source[] =
		"local t = {} for i = 1, 500 do t['key' .. (i * 7919 % 1000)] = i end\n"
		"local s = '' for k, v in pairs(t) do s = s .. k .. v end\n"
		"total = {s, t, keys(t), json.encode(t), map(t, function(v, k) return k end), "
		"uuid('a'), merge(t, payload)}";
	struct buf first = BUF_INIT, again = BUF_INIT;
	struct bench b;

	for (int run = 0; run < 20; run++) {
		msgpack_object out;

		bench_open(&b, counted);
		for (int round = 0; round < 2; round++) {
			ck_assert_int_eq(bench_eval(&b, EXPRESSION_SCRIPT, source, &out),
					 RESULT_OK);
			buf_reset(&again);
			value_pack(&out, &again);
			if (!first.len)
				value_pack(&out, &first);
			ck_assert(str_equal(buf_str(&first), buf_str(&again)));
		}
		bench_close(&b);
	}
	buf_done(&first);
	buf_done(&again);
}
END_TEST

START_TEST(many_evaluations_leave_nothing)
{
	struct expression exprs[] = {
		{EXPRESSION_VALUE, STR("{a = payload.kind .. 'x', b = {payload.items}}"), 0, "f",
		 1},
		{EXPRESSION_VALUE, STR("error(payload.kind)"), 1, "f", 1},
	};
	struct expression *items[] = {&exprs[0], &exprs[1]};
	struct expression_set set = {items, 2};
	struct expression_limits limits = counted;
	struct arena arena;
	struct bench b;
	msgpack_object out;

	/* If each left 100 bytes, these would not fit. */
	limits.max_memory = 1 << 20;
	bench_open(&b, limits);
	arena_init(&arena);
	ck_assert_int_eq(expression_state_load(b.state, &set, &b.err), RESULT_OK);
	for (int i = 0; i < 20000; i++) {
		ck_assert_int_eq(expression_eval(b.state, &set, &exprs[i % 2], &b.scope, &arena,
						 &out, &b.err),
				 i % 2 ? RESULT_REJECT : RESULT_OK);
		ck_assert_int_eq(b.err.code, i % 2 ? CODE_EXPRESSION_FAILED : b.err.code);
		arena_reset(&arena);
	}
	arena_done(&arena);
	bench_close(&b);
}
END_TEST

static Suite *limits_suite(void)
{
	Suite *suite = suite_create("expression limits");
	TCase *tcase = tcase_create("limits");

	tcase_set_timeout(tcase, 120);
	TEST_ADD_ALL(tcase, steps_are_bounded, ordinary_work_fits, live_memory_is_bounded,
		     memory_in_total_is_bounded, recursion_in_c_is_an_error, sorting_bears_any_comparison,
		     deep_source_is_found, cpu_time_is_bounded,
		     the_real_clock_works_too, any_refusal_is_a_breach_and_no_more,
		     history_does_not_change_the_verdict, every_state_gives_the_same,
		     many_evaluations_leave_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(limits_suite)
