/* SPDX-License-Identifier: Apache-2.0 */
/* The closed library: what is in it, what is not, and that our patterns agree with stock Lua's. */
#include <lauxlib.h>
#include <lualib.h>

#include "tests/unit/value/expression_support.h"

START_TEST(nothing_else_exists)
{
	static const char *const absent[] = {
		"load",
		"loadstring",
		"loadfile",
		"dofile",
		"require",
		"package",
		"io",
		"os",
		"debug",
		"coroutine",
		"print",
		"next",
		"rawget",
		"rawset",
		"rawequal",
		"rawlen",
		"setmetatable",
		"getmetatable",
		"xpcall",
		"assert",
		"warn",
		"collectgarbage",
		"_G",
		"_VERSION",
		"string.dump",
		"math.random",
		"math.randomseed",
		"utf8.x",
	};
	struct bench b;
	char source[64];

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
		snprintf(source, sizeof(source), "%s == nil", absent[i]);
		GIVES(&b, source, "true");
	}
	FAILS(&b, "('').dump(len)", "call a nil value");
	bench_close(&b);
}
END_TEST

START_TEST(no_addresses_are_shown)
{
	static const char *const sources[] = {
		"tostring({})",
		"tostring(payload)",
		"tostring(len)",
		"tostring(string)",
		"tostring(header)",
		"string.format('%s', {})",
		"string.format('%s', payload)",
		"string.format('%s', len)",
		"string.format('%p', 'x')",
		"string.format('%-10.5p', 'x')",
		"string.format('%s', string)",
		"'x' .. {}",
		"'x' .. payload",
		"join({{}})",
		"join({len})",
	};
	struct bench b;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
		FAILS(&b, sources[i], "");
		ck_assert_msg(!strstr(b.err.text, "0x"), "%s: %s", sources[i], b.err.text);
	}
	bench_close(&b);
}
END_TEST

START_TEST(our_functions)
{
	static const struct bench_row rows[] = {
		{"{len('abc'), len(payload.items), len(payload.m), len(nil), len({1, 2, a = 3})}",
		 "[3,4,3,0,3]"},
		{"map(payload.items, function(v, k) return k end)", "[1,2,3,4]"},
		{"map(payload.items, function(v) return nil end)", "[null,null,null,null]"},
		{"map(payload.m, function(v, k) return k .. v end)", "[\"a2\",\"b1\",\"c3\"]"},
		{"map(payload.missing, len)", "[]"},
		{"map({3, 4}, function(v) return v * 2 end)", "[6,8]"},
		{"filter(payload.items, function(v) return type(v) ~= 'table' end)",
		 "[3,null,\"x\"]"},
		{"filter(payload.m, function(v) return v >= 2 end)", "{\"a\":2,\"c\":3}"},
		{"filter({1, 2}, function() return false end)", "[]"},
		{"filter(payload.m, function() return false end)", "{}"},
		{"find(payload.lines, function(l) return l.q == 3 end).p", "4"},
		{"list(find(payload.m, function(v) return v > 1 end))", "[2,\"a\"]"},
		{"find(payload.lines, function(l) return false end)", "null"},
		{"any(payload.items, function(v) return v == 'x' end)", "true"},
		{"any(payload.none)", "false"},
		{"any({false, null})", "false"},
		{"all(payload.none)", "true"},
		{"all({1, null})", "false"},
		{"all(payload.m, function(v) return v > 0 end)", "true"},
		{"sum({1, 2, 3})", "6"},
		{"sum(payload.lines, function(l) return l.q * l.p end)", "14.5"},
		{"sum({})", "0"},
		{"sum({0.5, 1})", "1.5"},
		{"keys(payload.m)", "[\"a\",\"b\",\"c\"]"},
		{"keys({})", "[]"},
		{"merge(payload.m, {b = 9, z = null}, nil)",
		 "{\"a\":2,\"b\":9,\"c\":3,\"z\":null}"},
		{"merge({x = 1}, payload.void)", "{\"x\":1}"},
		{"merge({note = payload.note}, {note2 = 1})", "{\"note2\":1}"},
		{"join({'a', 1, true, null, 2.5}, ', ')", "\"a, 1, true, 2.5\""},
		{"join({})", "\"\""},
		{"json.encode({b = {1, null}, a = payload.m})",
		 "\"{\\\"a\\\":{\\\"b\\\":1,\\\"a\\\":2,\\\"c\\\":3},\\\"b\\\":[1,null]}\""},
		{"json.encode(payload.one)", "\"1.0\""},
		{"json.encode(nil)", "\"null\""},
		{"json.decode('{\"z\":9223372036854775807,\"a\":[null,0.1]}')",
		 "{\"z\":9223372036854775807,\"a\":[null,0.1]}"},
		{"json.decode('{\"z\":{\"y\":[1,2]}}').z.y[2]", "2"},
		{"json.decode('null') == null", "true"},
		{"json.decode(json.encode(payload))", BENCH_PAYLOAD},
		{"pcall(json.decode, '{')", "false"},
		{"pcall(json.decode, '99999999999999999999')", "false"},
		{"pcall(json.encode, 0/0)", "false"},
		{"base64('hello')", "\"aGVsbG8=\""},
		{"sha256('abc')",
		 "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\""},
		{"now()", "\"2023-11-14T22:13:20.123000Z\""},
		{"now('PT1H')", "\"2023-11-14T23:13:20.123000Z\""},
		{"now(-123)", "\"2023-11-14T22:13:20Z\""},
		{"now(duration('P1D'))", "\"2023-11-15T22:13:20.123000Z\""},
		{"duration('PT1M30S')", "90000"},
		{"uuid('a') == uuid('a') and uuid('a') ~= uuid('b') and #uuid('a')", "36"},
	};
	struct bench b;

	bench_rows(rows, ARRAY_LEN(rows));
	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	FAILS(&b, "sum({math.maxinteger, 1})", "64 bits");
	FAILS(&b, "sum({1, 'x'})", "sum met a string at 2");
	FAILS(&b, "merge({1}, {})", "map expected");
	FAILS(&b, "json.encode(len)", "json.encode met a function");
	FAILS(&b, "json.encode({1, a = 2})", "both string and integer");
	FAILS(&b, "now(math.maxinteger)", "out of range");
	FAILS(&b, "now('tomorrow')", "duration");
	FAILS(&b, "uuid()", "string expected");
	FAILS(&b, "map(5, len)", "table expected");
	FAILS(&b, "map({}, 5)", "function expected");
	FAILS(&b, "len(5)", "table expected");
	bench_close(&b);
}
END_TEST

START_TEST(the_uuid_depends_on_the_seed)
{
	struct bench b;
	msgpack_object one, two;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "uuid('a')", &one), RESULT_OK);
	b.scope.uuid_seed[0] = STR("another");
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "uuid('a')", &two), RESULT_OK);
	ck_assert(!value_equal(&one, &two));
	bench_close(&b);
}
END_TEST

START_TEST(tables_and_strings)
{
	static const struct bench_row rows[] = {
		{"('ab'):rep(3, '-')", "\"ab-ab-ab\""},
		{"('x'):rep(0) .. ('x'):rep(-1) .. ('x'):rep(1, 'y')", "\"x\""},
		{"(''):rep(1 << 62)", "\"\""},
		{"string.format('%5.2f|%d|%s|%q|%x', 1.005, 3, 'a', 'b\\n', 255)",
		 "\" 1.00|3|a|\\\"b\\\\\\n\\\"|ff\""},
		{"('abc'):upper():sub(2):reverse():byte()", "67"},
		{"'10' + 5", "15"},
		{"tonumber('0x10') + tonumber('z', 36)", "51"},
		{"utf8.len('äö') .. utf8.char(228)", "\"2ä\""},
		{"math.max(1, 5, 3) // 1 | 0", "5"},
		{"select('#', 1, nil, nil)", "3"},
		{"list(select(-2, 1, 2, 3))", "[2,3]"},
		{"table.concat({1, 'a', 2.5}, '-', 2, 3)", "\"a-2.5\""},
		{"table.concat({})", "\"\""},
		{"table.pack(1, nil, 3).n", "3"},
		{"list(table.unpack({1, 2, 3}, 2))", "[2,3]"},
	};
	struct bench b;

	bench_rows(rows, ARRAY_LEN(rows));
	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	RUNS(&b,
	     "local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) other = table.remove(t, 2) "
	     "third = "
	     "table.remove(t) total = t",
	     "{\"other\":1,\"third\":3,\"total\":[0,2]}");
	RUNS(&b, "total = table.move({1, 2, 3, 4}, 1, 3, 2) other = table.move({1, 2, 3}, 2, 3, 1)",
	     "{\"total\":[1,1,2,3],\"other\":[2,3,3]}");
	RUNS(&b, "local t = {5, 2, 9, 1} table.sort(t) total = t", "{\"total\":[1,2,5,9]}");
	RUNS(&b,
	     "local t = {} for i = 1, 100 do t[i] = {k = i % 3, i = i} end table.sort(t, "
	     "function(a, b) return a.k < "
	     "b.k end) local last = t[1] total = true for i = 2, 100 do if t[i].k == t[i-1].k and "
	     "t[i].i < t[i-1].i "
	     "then total = false end end",
	     "{\"total\":true}");
	RUNS(&b, "local t = {3, 1, 2} table.sort(t, function() return true end) total = #t",
	     "{\"total\":3}");
	RUN_FAILS(&b, "table.sort({1, 'a'})", "compare");
	RUN_FAILS(&b, "table.sort({2, 1}, function() error('no') end)", "no");
	RUN_FAILS(&b, "table.insert({}, 5, 1)", "out of bounds");
	RUN_FAILS(&b, "table.unpack({}, 1, 1e7)", "too many results");
	RUN_FAILS(&b, "table.concat({{}})", "neither text nor number");
	bench_close(&b);
}
END_TEST

/* Shows what a pattern function gives, in both Luas. */
static const char show[] =
	"local function text(...) local t = {} for i = 1, select('#', ...) do local v = (select(i, "
	"...)) t[i] = "
	"type(v) == 'string' and '<' .. v .. '>' or tostring(v) end return table.concat(t, ',') "
	"end\n"
	"local function try(f) local r = table.pack(pcall(f)) if not r[1] then return 'error' end "
	"return text(table.unpack(r, 2, r.n)) end\n"
	"local out = {} local s, p, r = subject, pattern, replacement\n"
	"out[1] = try(function() return string.find(s, p) end)\n"
	"out[2] = try(function() return string.match(s, p, 2) end)\n"
	"out[3] = try(function() return string.gsub(s, p, r) end)\n"
	"out[4] = try(function() local t = {} for a, b in string.gmatch(s, p) do t[#t + 1] = "
	"text(a, b) end return "
	"table.concat(t, ';') end)\n"
	"out[5] = try(function() return string.gsub(s, p, function(a) return a end, 2) end)\n"
	"out[6] = try(function() return string.find(s, p, -2, true) end)\n"
	"total = table.concat(out, '|')";

/* A little random number generator: the same patterns on every run. */
static uint32_t draw(uint64_t *seed, uint32_t bound)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33) % bound;
}

static void draw_text(uint64_t *seed, const char *const *parts, size_t count, int most, char *out,
		      size_t size)
{
	size_t len = 0;

	out[0] = '\0';
	for (int i = (int)draw(seed, (uint32_t)most + 1); i > 0 && len + 8 < size; i--)
		len += (size_t)snprintf(out + len, size - len, "%s",
					parts[draw(seed, (uint32_t)count)]);
}

/* Under the thread sanitizer each round is slower than the one before, and there is but one thread here. */
#ifdef __SANITIZE_THREAD__
#define PATTERN_ROUNDS 500
#else
#define PATTERN_ROUNDS 20000
#endif

START_TEST(patterns_agree_with_stock_lua)
{
	static const char *const subject_parts[] = {"a", "b", "ab", "(", ")", " ",
						    "1", "%", "-",  "]", "^", "A"};
	static const char *const parts[] = {
		"a",    "b",     ".",     "%a",  "%d",   "%s",   "%w",     "%A",     "[ab]",
		"[^a]", "[a-b]", "[%d-]", "[]]", "[^]]", "*",    "+",      "-",      "?",
		"(",    ")",     "()",    "%1",  "%2",   "%b()", "%f[%a]", "%f[^a]", "^",
		"$",    "%",     "[",     "%%",  "1",    "[a-",  "%b(",    "%f",
	};
	static const char *const replacement_parts[] = {"x", "%0", "%1", "%2", "%%", "%", "y"};
	struct expression expr = {EXPRESSION_SCRIPT, str_make(show, sizeof(show) - 1), 0, "f", 1};
	struct expression *items[] = {&expr};
	struct expression_set set = {items, 1};
	struct expression_assignment *made;
	msgpack_object values[3];
	struct expression_name names[] = {{STR("subject"), &values[0]},
					  {STR("pattern"), &values[1]},
					  {STR("replacement"), &values[2]}};
	char texts[3][80];
	struct arena arena;
	struct bench b;
	uint64_t seed = 7;
	size_t count;
	lua_State *L = luaL_newstate();

	luaL_openlibs(L);
	ck_assert_int_eq(luaL_loadbuffer(L, show, sizeof(show) - 1, "=f"), LUA_OK);
	arena_init(&arena);
	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	b.scope.names = names;
	b.scope.name_count = ARRAY_LEN(names);
	ck_assert_int_eq(expression_state_load(b.state, &set, &b.err), RESULT_OK);
	for (int round = 0; round < PATTERN_ROUNDS; round++) {
		draw_text(&seed, subject_parts, ARRAY_LEN(subject_parts), 9, texts[0],
			  sizeof(texts[0]));
		draw_text(&seed, parts, ARRAY_LEN(parts), 6, texts[1], sizeof(texts[1]));
		draw_text(&seed, replacement_parts, ARRAY_LEN(replacement_parts), 3, texts[2],
			  sizeof(texts[2]));
		for (size_t i = 0; i < ARRAY_LEN(names); i++) {
			values[i] = value_text(str_of(texts[i]));
			lua_pushstring(L, texts[i]);
			lua_setglobal(L, (const char *[]){"subject", "pattern", "replacement"}[i]);
		}
		lua_pushvalue(L, 1);
		lua_call(L, 0, 0);
		lua_getglobal(L, "total");
		ck_assert_msg(expression_run(b.state, &set, &expr, &b.scope, &arena, &made, &count,
					     &b.err) == RESULT_OK,
			      "'%s' '%s': %s", texts[0], texts[1], b.err.text);
		ck_assert_msg(str_equal(value_as_str(&made[0].value), str_of(lua_tostring(L, -1))),
			      "subject '%s' pattern '%s' replacement '%s'\n  have %.*s\n  want %s",
			      texts[0], texts[1], texts[2], STR_ARG(value_as_str(&made[0].value)),
			      lua_tostring(L, -1));
		lua_settop(L, 1);
		arena_reset(&arena);
	}
	lua_close(L);
	arena_done(&arena);
	bench_close(&b);
}
END_TEST

static Suite *library_suite(void)
{
	Suite *suite = suite_create("expression library");
	TCase *tcase = tcase_create("library");

	tcase_set_timeout(tcase, 120);
	TEST_ADD_ALL(tcase, nothing_else_exists, no_addresses_are_shown, our_functions,
		     the_uuid_depends_on_the_seed, tables_and_strings,
		     patterns_agree_with_stock_lua);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(library_suite)
