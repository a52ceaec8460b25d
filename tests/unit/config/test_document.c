/* SPDX-License-Identifier: Apache-2.0 */
/* The strict libconfig reader: what it refuses and where it says the fault is. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "config/document.h"

struct collector {
	struct document_sink sink;
	struct buf text;
};

static void collector_add(struct document_sink *sink, const char *file, unsigned line,
			  enum code code, const char *text)
{
	struct collector *collector = container_of(sink, struct collector, sink);

	ck_assert_int_eq(code, CODE_CONFIG_CHANNEL_INVALID);
	buf_printf(&collector->text, "%s:%u: %s\n", file, line, text);
}

#define COLLECTOR ((struct collector){.sink = {.add = collector_add}})

static struct document_options options_for(struct collector *collector, bool include_allowed)
{
	return (struct document_options){&collector->sink, CODE_CONFIG_CHANNEL_INVALID,
					 include_allowed};
}

/* Reads everything that the vocabulary of these tests has. */
static void read_all(const struct config_setting_t *root)
{
	static const char *const keys[] = {"name", "count", "on",    "wait", "kind",
					   "sub",  "items", "words", NULL};
	static const char *const kinds[] = {"red", "green", NULL};
	const struct config_setting_t *list;
	const char *text;
	int64_t number;
	int kind;
	bool flag;

	document_check_keys(root, keys);
	document_text(root, "name", true, &text);
	document_int(root, "count", false, 1, 5000000000, &number);
	document_bool(root, "on", false, &flag);
	document_duration_ms(root, "wait", false, 1, 60000, &number);
	document_choice(root, "kind", false, kinds, &kind);
	document_group(root, "sub", false, &list);
	if (document_groups(root, "items", false, &list)) {
		for (size_t i = 0; i < document_count(list); i++)
			document_text(document_at(list, i), "id", true, &text);
	}
	document_texts(root, "words", false, &list);
}

static const struct {
	const char *text;
	const char *findings;
} cases[] = {
	{"name = \"a\";", ""},
	{"", "f:0: \"name\" is missing\n"},
	{"name = 5;", "f:1: \"name\" must be a text, not an integer\n"},
	{"name = \"a\";\n\ncount = \"x\";", "f:3: \"count\" must be an integer, not a text\n"},
	{"name = \"a\";\ncount = 0;\non = 1;\nwait = \"soon\";\nkind = \"blue\";",
	 "f:2: \"count\" must be from 1 to 5000000000, not 0\n"
	 "f:3: \"on\" must be true or false, not an integer\n"
	 "f:4: \"wait\" must be a duration such as \"PT30S\", not \"soon\"\n"
	 "f:5: \"kind\" must be one of \"red\", \"green\", not \"blue\"\n"},
	{"name = \"a\"; wait = \"PT2M\"; kind = \"green\"; on = true;",
	 "f:1: \"wait\" must be from 1 to 60000 milliseconds, not \"PT2M\"\n"},
	{"nam = \"a\"; // x\nzebra = 1;\nname = \"b\";",
	 "f:1: unknown key \"nam\"; did you mean \"name\"?\nf:2: unknown key \"zebra\"\n"},
	/* Integers. */
	{"name = \"a\"; count = 2147483647;", ""},
	{"name = \"a\";\ncount = 2147483648;",
	 "f:2: the integer 2147483648 does not fit 32 bits; write 2147483648L\n"},
	{"name = \"a\";\ncount = 4294967297;",
	 "f:2: the integer 4294967297 does not fit 32 bits; write 4294967297L\n"},
	{"name = \"a\"; count = 4294967297L;", ""},
	{"name = \"a\"; count = 4294967297LL;", ""},
	{"name = \"a\";\ncount = 9223372036854775808L;",
	 "f:2: the integer 9223372036854775808L does not fit 64 bits\n"},
	{"name = \"a\";\ncount = 18446744073709551617;",
	 "f:2: the integer 18446744073709551617 does not fit 64 bits\n"},
	{"name = \"a\";\ncount = 0xFFFFFFFF;",
	 "f:2: the integer 0xFFFFFFFF does not fit 32 bits; write 0xFFFFFFFFL\n"},
	{"name = \"a\"; count = 0x10;", ""},
	{"name = \"a\";\ncount = -2147483649;",
	 "f:2: the integer -2147483649 does not fit 32 bits; write -2147483649L\n"},
	{"name = \"a\"; count = -2147483648;",
	 "f:1: \"count\" must be from 1 to 5000000000, not -2147483648\n"},
	{"name = \"a 99999999999 @include\"; # 99999999999 @include\n/* 99999999999\n@include */ "
	 "count = 1;",
	 ""},
	{"a-99999999999 = 1; name = \"a\";", "f:1: unknown key \"a-99999999999\"\n"},
	{"name = \"a\"; count = 1.5;",
	 "f:1: \"count\" must be an integer, not a floating-point number\n"},
	{"name = \"a\"; count = 1.5e10;",
	 "f:1: \"count\" must be an integer, not a floating-point number\n"},
	/* Texts. */
	{"name = \"a\\\"b // no comment\"; on = true;", ""},
	{"name = \"a\\\\\"; on = true;", ""},
	{"name = \"a\\x00b\";", "f:1: a text must not contain \\x00\n"},
	{"name = \"a\\xffb\";", "f:1: \"name\" is not UTF-8\n"},
	{"on = true;\nname = \"\xff\";", "f:2: the text is not UTF-8\n"},
	{"name = \"a\";\n\"open", "f:2: the text that begins here has no closing quote\n"},
	{"name = \"a\";\n/* open\n\n", "f:2: the comment that begins here has no end\n"},
	{"name = \"a\"; # the end", ""},
	/* Includes are refused. */
	{"name = \"a\";\n@include \"x\"", "f:2: @include is not allowed here\n"},
	{"name = \"a\";\n  \t @include\t \"x\"\n", "f:2: @include is not allowed here\n"},
	{"name = \"a\"; /* x */ @include \"x\"", "f:1: @include is not allowed here\n"},
	{"name = \"a\";\n/*\n*/@include\"x\"", "f:3: @include is not allowed here\n"},
	/* Structure. */
	{"name = \"a\"\nname = \"b\";", "f:2: duplicate setting name\n"},
	{"name = ;", "f:1: syntax error\n"},
	{"name = \"a\";\nsub = ( );", "f:2: \"sub\" must be a group { … }, not a list ( … )\n"},
	{"name = \"a\";\nitems = (\n { id = \"1\"; },\n { ix = \"2\"; },\n 7 );",
	 "f:5: expected a group { … }, not an integer\n"},
	{"name = \"a\";\nitems = (\n { id = \"1\"; },\n { ix = \"2\"; } );",
	 "f:4: \"id\" is missing\n"},
	{"name = \"a\";\nwords = [ \"a\",\n \"b\" ];", ""},
	{"name = \"a\";\nwords = ( \"a\",\n 2 );", "f:3: expected a text, not an integer\n"},
	{"sub = ((((((((((((((((((((((((((((((((((((((((((((((((((((((((",
	 "f:1: groups and lists are nested more than 32 deep\n"},
};

START_TEST(document_findings)
{
	struct collector collector = COLLECTOR;
	struct document_options options = options_for(&collector, false);
	struct document *doc = NULL;
	unsigned lines = 0;

	if (document_parse("f", str_of(cases[_i].text), &options, &doc) == RESULT_OK)
		read_all(document_root(doc));
	ck_assert_str_eq(collector.text.data ? collector.text.data : "", cases[_i].findings);
	for (const char *c = cases[_i].findings; *c; c++)
		lines += *c == '\n';
	ck_assert_uint_eq(collector.sink.errors, lines);
	document_close(&doc);
	buf_done(&collector.text);
}
END_TEST

START_TEST(document_nul_byte)
{
	struct collector collector = COLLECTOR;
	struct document_options options = options_for(&collector, false);
	struct document *doc = NULL;

	ck_assert_int_eq(document_parse("f", str_make("a = 1;\n\0b", 9), &options, &doc),
			 RESULT_REJECT);
	ck_assert_ptr_null(doc);
	ck_assert_str_eq(collector.text.data, "f:2: there is a NUL byte\n");
	buf_done(&collector.text);
}
END_TEST

static char folder[] = "/tmp/sutra-document-XXXXXX";

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

static void folder_make(void)
{
	memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void folder_remove(void)
{
	static const char *const names[] = {"main.conf", "part.conf", "loop.conf"};
	char path[128];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

/* Findings name the included file and its line, and the lines behind the directive stay right. */
START_TEST(document_include)
{
	struct collector collector = COLLECTOR;
	struct document_options options = options_for(&collector, true);
	struct document *doc = NULL;
	struct buf expected = BUF_INIT;
	const char *name = NULL, *file = NULL;
	char path[128];

	write_file("main.conf", "on = true;\n@include \"part.conf\" kind = 1;\nwait = 3;");
	write_file("part.conf", "name = \"inner\";\n\ncount = \"x\";");
	snprintf(path, sizeof(path), "%s/main.conf", folder);
	ck_assert_int_eq(document_open(path, &options, &doc), RESULT_OK);
	ck_assert(document_text(document_root(doc), "name", true, &name));
	ck_assert_str_eq(name, "inner");
	ck_assert_uint_eq(document_line(document_find(document_root(doc), "count"), &file), 3);
	ck_assert_ptr_nonnull(strstr(file, "/part.conf"));
	read_all(document_root(doc));
	buf_printf(&expected,
		   "%s/part.conf:3: \"count\" must be an integer, not a text\n"
		   "%s/main.conf:3: \"wait\" must be a duration such as \"PT30S\", not an integer\n"
		   "%s/main.conf:2: \"kind\" must be a text, not an integer\n",
		   folder, folder, folder);
	ck_assert_str_eq(collector.text.data, expected.data);
	document_close(&doc);
	buf_done(&expected);
	buf_done(&collector.text);
}
END_TEST

START_TEST(document_include_loop)
{
	struct collector collector = COLLECTOR;
	struct document_options options = options_for(&collector, true);
	struct document *doc = NULL;
	char path[128];

	write_file("loop.conf", "@include \"loop.conf\"\n");
	snprintf(path, sizeof(path), "%s/loop.conf", folder);
	ck_assert_int_eq(document_open(path, &options, &doc), RESULT_REJECT);
	ck_assert_ptr_nonnull(strstr(collector.text.data, "files include each other"));
	buf_done(&collector.text);
}
END_TEST

START_TEST(document_missing_file)
{
	struct collector collector = COLLECTOR;
	struct document_options options = options_for(&collector, true);
	struct document *doc = NULL;

	ck_assert_int_eq(document_open("/nonexistent/x.conf", &options, &doc), RESULT_REJECT);
	ck_assert_str_eq(collector.text.data,
			 "/nonexistent/x.conf:0: cannot be read: No such file or directory\n");
	buf_done(&collector.text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("document");
	TCase *tcase = tcase_create("document");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tcase, folder_make, folder_remove);
	tcase_add_loop_test(tcase, document_findings, 0, ARRAY_LEN(cases));
	tcase_add_test(tcase, document_nul_byte);
	tcase_add_test(tcase, document_include);
	tcase_add_test(tcase, document_include_loop);
	tcase_add_test(tcase, document_missing_file);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
