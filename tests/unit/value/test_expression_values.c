/* SPDX-License-Identifier: Apache-2.0 */
/* What expressions see and give back: names, views, exactness, tables, scripts, isolation. */
#include "tests/unit/value/expression_support.h"

START_TEST(names_of_the_scope)
{
	static const struct bench_row rows[] = {
		{"payload.amount > 100 and payload.kind == 'card'", "true"},
		{"total + 2", "42"},
		{"unset", "null"},
		{"header['X-REQ']", "\"last\""},
		{"header['x-req']", "\"last\""},
		{"header.missing", "null"},
		{"header.missing.deeper", "null"},
		{"header.void", "null"},
		{"#header.raw", "3"},
		{"keys(header)", "[\"raw\",\"void\",\"x-req\"]"},
		{"{event.id, event.type, event.channel, event.time}",
		 "[\"e1\",\"order\",\"in\",\"1970-01-01T00:00:01Z\"]"},
		{"event.key", "null"},
		{"event", "{\"id\":\"e1\",\"type\":\"order\",\"channel\":\"in\",\"time\":\"1970-01-"
			  "01T00:00:01Z\","
			  "\"key\":null}"},
		{"instance.id .. instance.started", "\"i11970-01-01T00:00:02Z\""},
		{"process.id .. tenant", "\"procacme\""},
		{"null", "null"},
		{"payload.items -- the last line is a comment", "[3,null,\"x\",{\"q\":2}]"},
	};

	bench_rows(rows, ARRAY_LEN(rows));
}
END_TEST

START_TEST(later_names_hide_earlier_ones_and_the_library)
{
	struct bench b;
	msgpack_object one = value_int(1), two = value_int(2);
	struct expression_name names[] = {{STR("a"), &one}, {STR("a"), &two}, {STR("len"), &one}};

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	b.scope.names = names;
	b.scope.name_count = ARRAY_LEN(names);
	b.scope.headers = NULL;
	b.scope.tenant = STR_NONE;
	GIVES(&b, "a", "2");
	GIVES(&b, "len", "1");
	GIVES(&b, "header.x", "null");
	GIVES(&b, "header", "{}");
	bench_close(&b);
}
END_TEST

START_TEST(missing_fields_are_nil)
{
	static const struct bench_row rows[] = {
		{"payload.no.such.path", "null"},
		{"payload.no['such'][1].path == nil", "true"},
		{"payload.amount.x", "null"},
		{"payload.ok.x.y", "null"},
		{"payload.kind.x", "null"},
		{"payload.items[4].q", "2"},
		{"payload.items[5]", "null"},
		{"payload.items[0]", "null"},
		{"payload.items[1.0]", "3"},
		{"payload.items[1.5]", "null"},
		{"payload.items.x", "null"},
		{"payload[1]", "null"},
		{"payload.note == nil", "true"},
		{"payload.note or 'default'", "\"default\""},
		{"payload.items[2] == null", "true"},
		{"payload.items[2].x", "null"},
		{"null.x", "null"},
	};

	bench_rows(rows, ARRAY_LEN(rows));
}
END_TEST

START_TEST(values_are_exact)
{
	static const struct bench_row rows[] = {
		{"payload", BENCH_PAYLOAD},
		{"payload.big", "9223372036854775807"},
		{"payload.low", "-9223372036854775808"},
		{"payload.big - 1", "9223372036854775806"},
		{"9007199254740993", "9007199254740993"},
		{"9007199254740992 + 1", "9007199254740993"},
		{"9007199254740993 == 9007199254740992.0", "false"},
		{"payload.big // 2 * 2 + 1", "9223372036854775807"},
		{"json.decode('9007199254740993')", "9007199254740993"},
		{"tostring(9007199254740993)", "\"9007199254740993\""},
		{"payload.big + 1", "-9223372036854775808"},
		{"payload.low // -1", "-9223372036854775808"},
		{"payload.pi", "3.141592653589793"},
		{"payload.one", "1.0"},
		{"{payload.one, payload.big, payload.items}",
		 "[1.0,9223372036854775807,[3,null,\"x\",{\"q\":2}]]"},
		{"{x = payload.m}", "{\"x\":{\"b\":1,\"a\":2,\"c\":3}}"},
		{"0.1", "0.1"},
		{"7 // 2", "3"},
		{"7 / 2", "3.5"},
		{"6 / 2", "3.0"},
		{"'a\\0b'", "\"a\\u0000b\""},
		{"payload.void", "{}"},
		{"payload.none", "[]"},
	};

	bench_rows(rows, ARRAY_LEN(rows));
}
END_TEST

START_TEST(byte_strings_stay_byte_strings)
{
	struct bench b;
	msgpack_object out;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "blob", &out), RESULT_OK);
	ck_assert(value_equal(&out, &b.blob));
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "blob == 'plain' and {x = blob}", &out),
			 RESULT_OK);
	ck_assert(value_equal(value_get(&out, STR("x")), &b.blob));
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "'plain'", &out), RESULT_OK);
	ck_assert_int_eq(out.type, MSGPACK_OBJECT_STR);
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "blob .. '!'", &out), RESULT_OK);
	ck_assert_int_eq(out.type, MSGPACK_OBJECT_STR);
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "header.raw", &out), RESULT_OK);
	ck_assert(value_equal(&out, &b.header_items[2].value));
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "'\\xff'", &out), RESULT_OK);
	ck_assert_int_eq(out.type, MSGPACK_OBJECT_BIN);
	bench_close(&b);
}
END_TEST

START_TEST(results_outlive_the_state)
{
	struct bench b;
	msgpack_object out;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE,
				    "{text = payload.kind .. '!', all = payload}", &out),
			 RESULT_OK);
	expression_state_free(&b.state);
	ck_assert_str_slice(value_as_str(value_get(&out, STR("text"))), STR("card!"));
	ck_assert(value_equal(value_get(&out, STR("all")), &b.payload));
	/* Copied, not shared. */
	ck_assert_ptr_ne(value_get(&out, STR("all"))->via.map.ptr, b.payload.via.map.ptr);
	bench_close(&b);
}
END_TEST

START_TEST(views_behave_like_tables)
{
	static const struct bench_row rows[] = {
		{"type(payload)", "\"table\""},
		{"type(payload.items)", "\"table\""},
		{"type(header)", "\"table\""},
		{"type(event)", "\"table\""},
		{"type(payload.m.b) .. type(payload.kind) .. type(payload.x) .. type(payload.ok)",
		 "\"numberstringnilboolean\""},
		{"type(null)", "\"null\""},
		{"tostring(null)", "\"null\""},
		{"#payload.items", "4"},
		{"#payload.m", "0"},
		{"payload.m == payload.m", "true"},
		{"payload.m == payload.void", "false"},
		{"table.concat({table.unpack(payload.items, 3, 3)})", "\"x\""},
		{"select('#', table.unpack(payload.items))", "4"},
		{"table.move(payload.items, 1, 4, 1, {})", "[3,null,\"x\",{\"q\":2}]"},
	};

	bench_rows(rows, ARRAY_LEN(rows));
}
END_TEST

START_TEST(walks_have_one_order)
{
	struct bench b;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	RUNS(&b, "total = '' for k, v in pairs(payload) do total = total .. k .. ' ' end",
	     "{\"total\":\"amount big items kind lines low m none note ok one pi void z \"}");
	RUNS(&b, "total = '' for k, v in pairs(payload.items) do total = total .. k .. type(v) end",
	     "{\"total\":\"1number2null3string4table\"}");
	RUNS(&b,
	     "total = '' for i, v in ipairs(payload.items) do total = total .. i .. type(v) end",
	     "{\"total\":\"1number2null3string4table\"}");
	RUNS(&b,
	     "local t = {b = 1, a = 1, [3] = 1, [-1] = 1, [1] = 1, [2] = 1, [2.5] = 1, [10] = 1, "
	     "aa = 1, [''] = 1,"
	     "[true] = 1, [false] = 1} total = '' for k in pairs(t) do total = total .. "
	     "tostring(k) .. ' ' end",
	     "{\"total\":\"1 2 3 -1 2.5 10  a aa b false true \"}");
	RUNS(&b,
	     "local t = {a = 1, b = 2, c = 3} total = '' for k in pairs(t) do t.b = nil t.d = 1 "
	     "total = total .. k "
	     "end",
	     "{\"total\":\"ac\"}");
	RUNS(&b,
	     "total = 0 for _ in pairs(payload.missing) do total = 1 end for _ in "
	     "ipairs(payload.missing) do total = "
	     "2 end for _ in pairs(null) do total = 3 end for _ in ipairs(null) do total = 4 end",
	     "{\"total\":0}");
	RUN_FAILS(&b, "for k in pairs({[{}] = 1}) do end", "no order");
	RUN_FAILS(&b, "for k in pairs({[payload] = 1}) do end", "no order");
	RUN_FAILS(&b, "for k in pairs({[print or len] = 1}) do end", "no order");
	RUN_FAILS(&b, "for k in pairs(5) do end", "table expected");
	RUN_FAILS(&b, "for k in pairs(string) do end", "table expected");
	bench_close(&b);
}
END_TEST

START_TEST(tables_become_values)
{
	static const struct bench_row rows[] = {
		{"{z = 1, a = 2, m = {y = 1, b = 2}}", "{\"a\":2,\"m\":{\"b\":2,\"y\":1},\"z\":1}"},
		{"{1, 2, 3}", "[1,2,3]"},
		{"{}", "{}"},
		{"list()", "[]"},
		{"list(1, nil, 2)", "[1,null,2]"},
		{"{{}, list()}", "[{},[]]"},
		{"{1, null, 3}", "[1,null,3]"},
		{"{a = null}", "{\"a\":null}"},
		{"{a = nil}", "{}"},
		{"{[1.0] = 'x'}", "[\"x\"]"},
		{"nil", "null"},
		{"(function() end)()", "null"},
		{"(function() local t = {} for i = 1, 3 do t[i] = i end t[3] = nil return t end)()",
		 "[1,2]"},
	};
	struct bench b;

	bench_rows(rows, ARRAY_LEN(rows));
	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	FAILS(&b, "{1, a = 2}", "both string and integer keys");
	FAILS(&b, "{x = {{y = {1, a = 2}}}}", "both string and integer keys");
	FAILS(&b, "{a = 1, null}", "both string and integer keys");
	FAILS(&b, "{1, nil, 3}", "holes");
	FAILS(&b, "{[2] = 1}", "holes");
	FAILS(&b, "{[0] = 1}", "holes");
	FAILS(&b, "{[1.5] = 1}", "neither string nor integer");
	FAILS(&b, "{[true] = 1}", "neither string nor integer");
	FAILS(&b, "{[{}] = 1}", "neither string nor integer");
	FAILS(&b, "{['\\xff'] = 1}", "not UTF-8");
	FAILS(&b, "len", "a function");
	FAILS(&b, "{a = {string}}", "part of the library");
	FAILS(&b, "(function() local t = list() t.x = 1 return t end)()",
	      "a list with string keys");
	FAILS(&b, "(function() local t = {} t.t = t return t end)()", "in itself");
	FAILS(&b, "(function() local t = {} for i = 1, 128 do t = {t} end return t end)()",
	      "deeper than 128");
	ck_assert(strncmp(b.err.text, "order.bpmn:12: the result", 25) == 0);
	RUNS(&b, "local t = 1 for i = 1, 128 do t = {t} end total = #t", "{\"total\":1}");
	RUN_FAILS(&b, "total = len", "total cannot hold a function");
	bench_close(&b);
}
END_TEST

START_TEST(the_depth_bound_counts_views)
{
	struct buf text = BUF_INIT;
	struct bench b;
	msgpack_object deep, out;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	for (int i = 0; i < 128; i++)
		buf_add_byte(&text, '[');
	for (int i = 0; i < 128; i++)
		buf_add_byte(&text, ']');
	ck_assert_int_eq(value_json_read(&b.arena, buf_str(&text), true, &VALUE_LIMITS_DEFAULT,
					 &deep, &b.err),
			 RESULT_OK);
	b.names[3].value = &deep;
	ck_assert_int_eq(bench_eval(&b, EXPRESSION_VALUE, "unset", &out), RESULT_OK);
	ck_assert(value_equal(&deep, &out));
	FAILS(&b, "{unset}", "deeper than 128");
	buf_done(&text);
	bench_close(&b);
}
END_TEST

START_TEST(scripts_assign_declared_variables)
{
	struct bench b;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	RUNS(&b, "total = payload.amount * 2", "{\"total\":300}");
	RUNS(&b, "other = 1 total = total + 1 other = other + 1", "{\"other\":2,\"total\":41}");
	RUNS(&b, "total = nil third = total", "{\"total\":null,\"third\":null}");
	RUNS(&b, "total = {} total.a = 1 local t = total t.b = payload.m",
	     "{\"total\":{\"a\":1,\"b\":{\"b\":1,\"a\":2,\"c\":3}}}");
	RUNS(&b, "local x = 1", "{}");
	RUNS(&b, "", "{}");
	RUNS(&b, "return 5", "{}");
	RUNS(&b, "for i = 1, 10 do if i == 3 then goto skip end total = i ::skip:: end",
	     "{\"total\":10}");
	RUN_FAILS(&b, "nothing = 1", "'nothing' is not a variable");
	RUN_FAILS(&b, "payload = 1", "'payload' is not a variable");
	RUN_FAILS(&b, "len = 1", "'len' is not a variable");
	RUN_FAILS(&b, "function helper() end", "'helper' is not a variable");
	RUN_FAILS(&b, "_ENV[1] = 1", "not a variable");
	RUN_FAILS(&b, "total = 1\ntotal = total + payload.m",
		  "order.bpmn:13: attempt to perform arithmetic on a table");
	FAILS(&b, "(function() total = 1 end)()", "assigns nothing");
	RUNS(&b, "pcall(function() total = 1 error('x') end)", "{\"total\":1}");
	bench_close(&b);
}
END_TEST

START_TEST(nothing_can_be_changed)
{
	static const struct bench_row rows[] = {
		{"payload.x = 1", "read-only"},
		{"payload.items[1] = 1", "read-only"},
		{"payload.m.a = nil", "read-only"},
		{"header.x = 1", "read-only"},
		{"event.id = 1", "read-only"},
		{"null.x = 1", "read-only"},
		{"string.rep = nil", "library is read-only"},
		{"math.pi = 3", "library is read-only"},
		{"json.encode = 1", "library is read-only"},
		{"table.insert(payload.items, 1)", "read-only"},
		{"table.remove(payload.items)", "read-only"},
		{"table.sort(payload.items)", "read-only"},
		{"table.move({1}, 1, 1, 1, payload.items)", "read-only"},
		{"table.insert(table, 1)", "table expected"},
		{"('x').y = 1", "index a string"},
		{"payload.missing.x = 1", "index a nil value"},
	};
	struct bench b;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		RUN_FAILS(&b, rows[i].source, rows[i].want);
	GIVES(&b, "payload", BENCH_PAYLOAD);
	bench_close(&b);
}
END_TEST

START_TEST(nothing_outlives_an_evaluation)
{
	struct expression exprs[] = {
		{EXPRESSION_SCRIPT,
		 STR("total = 99 other = 'kept?' pcall(function() leak = 1 end)"), 0, "f", 1},
		{EXPRESSION_VALUE, STR("list(total, other, leak)"), 1, "f", 1},
		{EXPRESSION_SCRIPT, STR("total = total + 1 _ENV = {total = 5}"), 2, "f", 1},
		{EXPRESSION_VALUE, STR("{blob2 = 'plain', b = blob}"), 3, "f", 1},
		{EXPRESSION_VALUE, STR("'plain'"), 4, "f", 1},
	};
	struct expression *items[] = {&exprs[0], &exprs[1], &exprs[2], &exprs[3], &exprs[4]};
	struct expression_set set = {items, ARRAY_LEN(items)};
	struct expression_assignment *made;
	struct bench b;
	msgpack_object out;
	size_t count;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	ck_assert_int_eq(expression_state_load(b.state, &set, &b.err), RESULT_OK);
	ck_assert_int_eq(expression_state_load(b.state, &set, &b.err), RESULT_OK);
	for (int round = 0; round < 3; round++) {
		for (int script = 0; script <= 2; script += 2) {
			ck_assert_int_eq(expression_run(b.state, &set, &exprs[script], &b.scope,
							&b.arena, &made, &count, &b.err),
					 RESULT_OK);
			ck_assert_uint_eq(count, script == 0 ? 2 : 1);
			ck_assert_int_eq(made[0].value.via.i64, script == 0 ? 99 : 41);
		}
		ck_assert_int_eq(
			expression_eval(b.state, &set, &exprs[1], &b.scope, &b.arena, &out, &b.err),
			RESULT_OK);
		ck_assert_int_eq(out.via.array.ptr[0].via.i64, 40);
		ck_assert(value_is_nil(&out.via.array.ptr[1]) &&
			  value_is_nil(&out.via.array.ptr[2]));
		ck_assert_int_eq(
			expression_eval(b.state, &set, &exprs[3], &b.scope, &b.arena, &out, &b.err),
			RESULT_OK);
		ck_assert_int_eq(
			expression_eval(b.state, &set, &exprs[4], &b.scope, &b.arena, &out, &b.err),
			RESULT_OK);
		ck_assert_int_eq(out.type, MSGPACK_OBJECT_STR);
	}
	expression_state_unload(b.state, &set);
	expression_state_unload(b.state, &set);
	bench_close(&b);
}
END_TEST

START_TEST(errors_name_file_and_line)
{
	struct bench b;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	FAILS(&b, "\n\npayload.kind + 1", "order.bpmn:14: attempt to add a 'string'");
	FAILS(&b, "payload.items.x()", "order.bpmn:12: attempt to call a nil value (field 'x')");
	FAILS(&b, "error('plain')", "order.bpmn:12: plain");
	FAILS(&b, "error('bare', 0)", "order.bpmn:12: bare");
	FAILS(&b, "error({code = 'X', n = 1})", "order.bpmn:12: {\"code\":\"X\",\"n\":1}");
	FAILS(&b, "error(payload.m)", "{\"b\":1,\"a\":2,\"c\":3}");
	FAILS(&b, "error()", "error without a message");
	FAILS(&b, "error(nil)", "error without a message");
	FAILS(&b, "error(42)", "order.bpmn:12: 42");
	FAILS(&b, "error(len)", "error with a function");
	FAILS(&b, "error({[{}] = 1})", "error with a table with a key");
	FAILS(&b, "payload.m < payload.m", "compare two table values");
	FAILS(&b, "payload.missing > 100", "compare number with nil");
	FAILS(&b, "('x'):rep()", "bad argument");
	FAILS(&b, "1 // 0", "divide by zero");
	GIVES(&b, "list(pcall(error, 'x'))", "[false,\"x\"]");
	GIVES(&b, "list(pcall(error, {a = 1}))", "[false,{\"a\":1}]");
	GIVES(&b, "list(pcall(function(...) return ... end, 1, nil, 3))", "[true,1,null,3]");
	GIVES(&b, "select(2, pcall(function() local x = payload.m + 1 end)) ~= nil", "true");
	bench_close(&b);
}
END_TEST

START_TEST(a_set_that_does_not_compile_is_fatal)
{
	struct expression good = {EXPRESSION_VALUE, STR("1"), 0, "f", 1};
	struct expression bad = {EXPRESSION_VALUE, STR("1 +"), 1,
				 "a/very/long/path/that/is/longer/than/what/lua/keeps/of/"
				 "a/file/name.bpmn",
				 40};
	struct expression *items[] = {&good, &bad};
	struct expression_set set = {items, 2};
	struct bench b;

	bench_open(&b, EXPRESSION_LIMITS_DEFAULT);
	ck_assert_int_eq(expression_state_load(b.state, &set, &b.err), RESULT_FATAL);
	ck_assert_ptr_nonnull(strstr(b.err.text, "name.bpmn:40: unexpected symbol"));
	bad.source = STR("\x1bLua");
	bad.kind = EXPRESSION_SCRIPT;
	ck_assert_int_eq(expression_state_load(b.state, &set, &b.err), RESULT_FATAL);
	GIVES(&b, "1", "1");
	bench_close(&b);
}
END_TEST

START_TEST(truth)
{
	msgpack_object values[] = {value_nil(), value_bool(false), value_bool(true), value_int(0),
				   value_text(STR(""))};

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		ck_assert_int_eq(expression_truth(&values[i]), i >= 2);
}
END_TEST

static Suite *values_suite(void)
{
	Suite *suite = suite_create("expression values");
	TCase *tcase = tcase_create("values");

	TEST_ADD_ALL(tcase, names_of_the_scope, later_names_hide_earlier_ones_and_the_library,
		     missing_fields_are_nil, values_are_exact, byte_strings_stay_byte_strings,
		     results_outlive_the_state, views_behave_like_tables, walks_have_one_order,
		     tables_become_values, the_depth_bound_counts_views,
		     scripts_assign_declared_variables, nothing_can_be_changed,
		     nothing_outlives_an_evaluation, errors_name_file_and_line,
		     a_set_that_does_not_compile_is_fatal, truth);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(values_suite)
