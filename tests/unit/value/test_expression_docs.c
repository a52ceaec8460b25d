/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docs/expressions.md as a test: each example gives what it says, and everything that the library holds has one.
 *
 * An example is a line of a block of Lua with an arrow: source --> JSON, or --> error: a part of the message. The payload is
 * the document's block of JSON.
 */
#include <stdlib.h>

#include "tests/unit/value/expression_support.h"
#include "value/lua_internal.h"

struct document {
	char *text;
	size_t len;
	struct bench bench;
	struct header headers[1];
	unsigned examples, failed;
};

static struct str block_find(const struct document *document, const char *fence)
{
	const char *begin = strstr(document->text, fence), *end;

	ck_assert_ptr_nonnull(begin);
	begin = strchr(begin, '\n') + 1;
	end = strstr(begin, "\n```");
	ck_assert_ptr_nonnull(end);
	return str_make(begin, (size_t)(end - begin));
}

static void document_open(struct document *document)
{
	struct bench *b = &document->bench;
	char *path = test_source_path("docs/expressions.md");

	document->text = test_file_read(path, &document->len);
	free(path);
	bench_open(b, EXPRESSION_LIMITS_DEFAULT);
	ck_assert_int_eq(value_json_read(&b->arena, block_find(document, "```json"), true,
					 &VALUE_LIMITS_DEFAULT, &b->payload, &b->err),
			 RESULT_OK);
	document->headers[0] = (struct header){STR("x-req"), value_text(STR("r-1"))};
	b->headers = (struct header_list){document->headers, 1};
	b->scope.event.id = STR("e-1");
	b->scope.event.channel = STR("orders");
	b->scope.event.key = STR("o-7");
	b->scope.event.time_us = INT64_C(1772366400) * US_PER_S;
	b->scope.instance.id = STR("i-1");
	b->scope.instance.started_us = INT64_C(1772366340) * US_PER_S;
	b->scope.now_us = INT64_C(1772366405) * US_PER_S;
	b->scope.process_id = STR("Order");
	b->assignable[1] = STR("state");
}

static void document_close(struct document *document)
{
	bench_close(&document->bench);
	free(document->text);
}

/* Whether the evaluation ended as the example says; tells if not. */
static bool example_holds(struct bench *b, const char *source, struct str want)
{
	struct str part = want;
	struct buf have = BUF_INIT;
	msgpack_object out;
	bool failed = bench_eval(b, EXPRESSION_VALUE, source, &out) != RESULT_OK, holds;
	bool fails = str_starts_with(want, STR("error: "));

	if (failed)
		buf_add_text(&have, b->err.text);
	else
		ck_assert_int_eq(value_json_write(&out, &have, &b->err), RESULT_OK);
	if (fails) {
		part.ptr += 7;
		part.len -= 7;
	}
	holds = failed == fails &&
		(fails ? memmem(have.data, have.len, part.ptr, part.len) != NULL
		       : str_equal(buf_str(&have), want));
	if (!holds)
		fprintf(stderr, "docs/expressions.md: %s\n  gives %.*s\n  and not %.*s\n", source,
			STR_ARG(buf_str(&have)), STR_ARG(want));
	buf_done(&have);
	return holds;
}

static void example_run(struct document *document, const char *line, size_t len)
{
	static const char arrow[] = "--> ";
	const char *at = memmem(line, len, arrow, sizeof(arrow) - 1);
	char source[256];
	size_t source_len;

	if (!at)
		return;
	source_len = (size_t)(at - line);
	ck_assert_uint_lt(source_len, sizeof(source));
	memcpy(source, line, source_len);
	source[source_len] = '\0';
	at += sizeof(arrow) - 1;
	document->examples++;
	document->failed += !example_holds(&document->bench, source,
					   str_make(at, len - (size_t)(at - line)));
}

/* Calls for each line of the blocks of Lua. */
static void each_line(struct document *document,
		      void (*take)(struct document *document, const char *line, size_t len))
{
	bool inside = false;

	for (const char *line = document->text; line && *line;) {
		const char *end = strchr(line, '\n');
		size_t len = end ? (size_t)(end - line) : strlen(line);

		if (len >= 3 && memcmp(line, "```", 3) == 0)
			inside = len == 6 && memcmp(line, "```lua", 6) == 0;
		else if (inside)
			take(document, line, len);
		line = end ? end + 1 : NULL;
	}
}

START_TEST(examples_give_what_they_say)
{
	struct document document = {0};

	document_open(&document);
	each_line(&document, example_run);
	ck_assert_uint_eq(document.failed, 0);
	ck_assert_uint_gt(document.examples, 100);
	document_close(&document);
}
END_TEST

START_TEST(the_script_runs)
{
	struct document document = {0};
	struct str script;
	char *source;

	document_open(&document);
	script = block_find(&document, "```lua\nlocal counted");
	source = strndup(script.ptr, script.len);
	RUNS(&document.bench, source, "{\"total\":3,\"state\":\"large\"}");
	free(source);
	document_close(&document);
}
END_TEST

static bool is_word(char c)
{
	return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether a line of Lua has the name: `name`, `part.name` or `:name`. */
static void line_has(struct document *document, const char *line, size_t len)
{
	struct str name = document->headers[0].name; /* what is looked for */

	for (size_t i = 0; i + name.len <= len; i++)
		if (memcmp(line + i, name.ptr, name.len) == 0 && (i == 0 || !is_word(line[i - 1])) &&
		    (i + name.len == len || !is_word(line[i + name.len])))
			document->examples++;
}

static void has_example(struct document *document, struct str name)
{
	document->examples = 0;
	document->headers[0].name = name;
	each_line(document, line_has);
	ck_assert_msg(document->examples > 0, "docs/expressions.md has no example with %.*s",
		      STR_ARG(name));
}

/* Each name of the library on top of the stack. */
static unsigned check_library(lua_State *L, struct document *document)
{
	unsigned count = 0;

	lua_pushnil(L);
	while (lua_next(L, -2)) {
		has_example(document, str_of(lua_tostring(L, -2)));
		count++;
		if (lua_type(L, -1) == LUA_TUSERDATA) {
			ck_assert(lua_getmetatable(L, -1));
			lua_getfield(L, -1, "__index");
			count += check_library(L, document);
			lua_pop(L, 2);
		}
		lua_pop(L, 1);
	}
	return count;
}

START_TEST(all_of_the_library_has_examples)
{
	struct document document = {0};
	lua_State *L;

	document_open(&document);
	L = document.bench.state->main;
	lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
	ck_assert(lua_getmetatable(L, -1));
	lua_getfield(L, -1, "__index");
	ck_assert_ptr_nonnull(lua_getupvalue(L, -1, 1));
	ck_assert_uint_gt(check_library(L, &document), 80);
	lua_settop(L, 0);
	document_close(&document);
}
END_TEST

static Suite *docs_suite(void)
{
	Suite *suite = suite_create("expression docs");
	TCase *tcase = tcase_create("docs");

	TEST_ADD_ALL(tcase, examples_give_what_they_say, the_script_runs,
		     all_of_the_library_has_examples);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(docs_suite)
