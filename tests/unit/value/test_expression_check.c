/* SPDX-License-Identifier: Apache-2.0 */
/* The check at load: syntax with line and column, names, assignments; and that it knows the library as it is. */
#include "tests/unit/value/expression_support.h"
#include "value/lua_internal.h"

static const struct str names[] = {{"payload", 7}, {"order", 5}};
static const struct str assignable[] = {{"total", 5}, {"other", 5}};

static size_t check(enum expression_kind kind, struct str source,
		    struct expression_finding *findings, size_t max)
{
	struct expression expr = {kind, source, 0, "f", 1};

	return expression_check(&expr, names, ARRAY_LEN(names), assignable, ARRAY_LEN(assignable),
				findings, max);
}

static void clean(enum expression_kind kind, const char *source)
{
	struct expression_finding finding;
	size_t count = check(kind, str_of(source), &finding, 1);

	ck_assert_msg(count == 0, "%s\n  %d:%d %s", source, finding.line, finding.column,
		      finding.text);
}

static void finds(enum expression_kind kind, const char *source, int line, int column,
		  const char *part)
{
	struct expression_finding finding = {0, 0, "nothing"};
	size_t count = check(kind, str_of(source), &finding, 1);

	ck_assert_msg(count >= 1 && finding.line == line && finding.column == column &&
			      strstr(finding.text, part),
		      "%s\n  have %zu: %d:%d %s\n  want %d:%d %s", source, count, finding.line,
		      finding.column, finding.text, line, column, part);
}

#define VALUE  EXPRESSION_VALUE
#define SCRIPT EXPRESSION_SCRIPT

START_TEST(good_source_is_clean)
{
	clean(VALUE, "payload.amount > 100 and header['x'] ~= null");
	clean(VALUE,
	      "{sessionId = order.id, [event.id] = 1; tenant, process.id, instance.started}");
	clean(VALUE, "map(payload.items, function(v, i) local w = v; return {v = w, i = i} end)");
	clean(VALUE, "(function(...) local t = {...} return #t end)(1, 2)");
	clean(VALUE, "len'x' .. string.rep('a', 3):upper() .. [[long]] .. [==[\n]]]==] -- comment");
	clean(VALUE, "not payload.a == -1 ~ 2 << 3 // 4 & ~5;");
	clean(VALUE, "payload.f{x = 1}.g'x'[1](2):h{}");
	clean(VALUE, "0x1p+4 + 1e-3 + .5 + 3 ..'x'");
	clean(VALUE, "total");
	clean(VALUE, "--[[ a\n comment ]] payload");
	clean(SCRIPT, "");
	clean(SCRIPT, "-- nothing");
	clean(SCRIPT, "total = 1; other, total = total, other");
	clean(SCRIPT, "local a <const>, b = 1, 2 total = a + b");
	clean(SCRIPT,
	      "for i = 1, 3 do total = i end for k, v in pairs(payload) do total = k .. v end");
	clean(SCRIPT, "local function f(n) if n == 0 then return 1 elseif n == 1 then return 2 "
		      "else return f(n - 1) end end "
		      "total = f(3)");
	clean(SCRIPT, "repeat local done = true until done");
	clean(SCRIPT,
	      "while true do if payload.x then break end goto out end ::out:: do return end");
	clean(SCRIPT, "local t = {} function t.a.b:c(x) return self, x end function t.d() end "
		      "t.x.y = 1 t[1] = 2");
	clean(SCRIPT, "total = {} total.x = 1 total['y'].z = 2 function other.f() end");
	clean(SCRIPT, "find(payload.t, function() end).x = 1");
	clean(SCRIPT, "local string = {} total = string.anything");
	clean(SCRIPT, "(payload.f or len)(1)");
	clean(SCRIPT, "local x <const> = 1 ; ; total = x return total;");
	clean(SCRIPT, "local s = 'a\\\n b\\z   \n c\\'' total = s");
}
END_TEST

START_TEST(syntax_errors_have_line_and_column)
{
	finds(VALUE, "foo(", 1, 5, "near <eof>");
	finds(VALUE, "1 +\n  * 2", 2, 3, "unexpected symbol near '*'");
	finds(VALUE, "payload.a = 1", 1, 11, "near '='");
	finds(VALUE, "{a = 1, b = 2", 1, 14, "'}' expected");
	finds(VALUE, "'abc", 1, 5, "unfinished string");
	finds(VALUE, "1\n + 'abc\n", 2, 4, "unfinished string");
	finds(VALUE, "return 1", 1, 1, "near 'return'");
	finds(VALUE, "a b", 1, 3, "near 'b'");
	finds(VALUE, "x x", 1, 3, "near 'x'");
	finds(VALUE, "(x)) + (x)", 1, 4, "near ')'");
	finds(VALUE, "\"äö\" @", 1, 6, "near '@'");
	finds(VALUE, "1e", 1, 1, "malformed number");
	finds(VALUE, "[[abc", 1, 6, "unfinished long string");
	finds(SCRIPT, "total = 1\nif total then\ntotal = 2\n", 4, 1, "'end' expected");
	finds(SCRIPT, "break", 1, 6, "break outside loop");
	finds(SCRIPT, "goto x", 1, 7, "label 'x'");
	finds(SCRIPT, "local a <const> = 1 a = 2", 1, 26, "const variable 'a'");
	finds(SCRIPT, "total == 1", 1, 7, "syntax error near '=='");
	finds(SCRIPT, "\x1bLua", 1, 1, "binary");
	finds(VALUE, "\xff", 1, 1, "UTF-8");
	finds(VALUE, "", 1, 1, "missing");
	finds(VALUE, " -- only this", 1, 1, "missing");
	finds(VALUE, "1, 2", 1, 1, "one value");
}
END_TEST

START_TEST(unknown_names_are_found)
{
	finds(VALUE, "payload.a + paylod.b", 1, 13, "'paylod'");
	finds(VALUE, "payload\n  .a ==\n  amount", 3, 3, "'amount'");
	finds(VALUE, "os.time()", 1, 1, "'os'");
	finds(VALUE, "math.random()", 1, 6, "'math.random'");
	finds(VALUE, "string.dump(len)", 1, 8, "'string.dump'");
	finds(VALUE, "{a = b}", 1, 6, "'b'");
	finds(VALUE, "{[a] = 1}", 1, 3, "'a'");
	finds(VALUE, "payload[key]", 1, 9, "'key'");
	finds(VALUE, "map(payload, function(v) return w end)", 1, 33, "'w'");
	finds(VALUE, "_ENV.x", 1, 1, "'_ENV'");
	finds(SCRIPT, "local _ENV = {} x = 1", 1, 7, "reserved");
	finds(SCRIPT, "local x = x", 1, 11, "'x'");
	finds(SCRIPT, "do local x = 1 end total = x", 1, 28, "'x'");
	finds(SCRIPT, "for i = 1, i do end", 1, 12, "'i'");
	finds(SCRIPT, "for k in pairs(k) do end", 1, 16, "'k'");
	finds(SCRIPT, "for i = 1, 2 do end total = i", 1, 29, "'i'");
	finds(SCRIPT, "repeat local x = 1 until x total = x", 1, 36, "'x'");
	finds(SCRIPT, "local f = function() return f end", 1, 29, "'f'");
	finds(SCRIPT, "local function f(a) end total = a", 1, 33, "'a'");
	finds(SCRIPT, "if x then elseif y then end", 1, 4, "'x'");
	finds(SCRIPT, "y()", 1, 1, "'y'");
	finds(SCRIPT, "while z do end", 1, 7, "'z'");
}
END_TEST

START_TEST(bad_assignments_are_found)
{
	finds(SCRIPT, "totl = 1", 1, 1, "'totl' is not a variable");
	finds(SCRIPT, "total, x = 1, 2", 1, 8, "'x'");
	finds(SCRIPT, "function helper() end", 1, 10, "'helper'");
	finds(SCRIPT, "payload.x = 1", 1, 1, "'payload' is read-only");
	finds(SCRIPT, "order.lines[1].q = 1", 1, 1, "'order' is read-only");
	finds(SCRIPT, "string.rep = 1", 1, 1, "'string' is read-only");
	finds(SCRIPT, "len = 1", 1, 1, "'len'");
	finds(SCRIPT, "function string.x() end", 1, 10, "read-only");
	finds(VALUE, "(function() total = 1 end)()", 1, 13, "cannot assign to 'total'");
	finds(VALUE, "(function() total.x = 1 end)()", 1, 13, "read-only");
}
END_TEST

START_TEST(all_findings_are_counted)
{
	struct expression_finding findings[2];

	ck_assert_uint_eq(check(VALUE, STR("a + b + c"), findings, 2), 3);
	ck_assert_int_eq(findings[1].column, 5);
	ck_assert_uint_eq(check(VALUE, STR("a + b + c"), NULL, 0), 3);
}
END_TEST

/* Each name of the library on top of the stack passes the check, as `prefix` and name. */
static size_t check_library(lua_State *L, const char *prefix)
{
	size_t count = 0;

	lua_pushnil(L);
	while (lua_next(L, -2)) {
		char name[80];

		snprintf(name, sizeof(name), "%s%s", prefix, lua_tostring(L, -2));
		clean(VALUE, name);
		count++;
		if (lua_type(L, -1) == LUA_TUSERDATA) {
			snprintf(name, sizeof(name), "%s.", lua_tostring(L, -2));
			ck_assert(lua_getmetatable(L, -1));
			lua_getfield(L, -1, "__index");
			count += check_library(L, name);
			lua_pop(L, 2);
		}
		lua_pop(L, 1);
	}
	return count;
}

/* The check's list of names against the tables that evaluations really get. */
START_TEST(the_library_is_known)
{
	struct expression_limits limits = EXPRESSION_LIMITS_DEFAULT;
	struct expression_state *state = expression_state_new(&limits);
	lua_State *L = state->main;

	lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
	ck_assert(lua_getmetatable(L, -1));
	lua_getfield(L, -1, "__index");
	ck_assert_ptr_nonnull(lua_getupvalue(L, -1, 1));
	/* 29 names, 2 of json, 25 of math, 16 of string, 7 of table, 6 of utf8. */
	ck_assert_uint_eq(check_library(L, ""), 29 + 2 + 25 + 16 + 7 + 6);
	expression_state_free(&state);
}
END_TEST

static Suite *check_suite(void)
{
	Suite *suite = suite_create("expression check");
	TCase *tcase = tcase_create("check");

	TEST_ADD_ALL(tcase, good_source_is_clean, syntax_errors_have_line_and_column,
		     unknown_names_are_found, bad_assignments_are_found, all_findings_are_counted,
		     the_library_is_known);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(check_suite)
