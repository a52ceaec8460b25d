/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of packages and of what is said about them: data/<table>.cases, whose first one describes the format.
 *
 * `findings` is the whole of what must be reported; `lines` lists how lines of the report begin, where the rest of a line is
 * another part's wording.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "model/package_private.h"
#include "tests/support/testing.h"

#define HEAD \
	"<definitions xmlns=\"http://www.omg.org/spec/BPMN/20100524/MODEL\" " \
	"xmlns:q=\"urn:sutra:q:1.0\">\n"
#define TAIL "</definitions>\n"

static const char default_package[] = "tenant = \"default\"; module = \"m\"; version = \"1\";\n";
static const char default_channels[] =
	"channels = ( { name = \"in\"; transport = \"kafka\"; bind = \"in\"; reply-channel = "
	"\"out\"; },\n"
	" { name = \"in2\"; transport = \"kafka\"; bind = \"in2\"; },\n"
	" { name = \"out\"; direction = \"outbound\"; transport = \"kafka\"; bind = \"out\"; } "
	");\n";
static const char default_process[] =
	"<process id=\"P\"><startEvent id=\"S\"><extensionElements><q:source channel=\"in\"/>"
	"</extensionElements></startEvent><sequenceFlow id=\"f\" sourceRef=\"S\" targetRef=\"E\"/>"
	"<endEvent id=\"E\"/></process>\n";

struct example {
	struct str name;
	struct str package, channels, diagram, process;
	struct str findings, lines;
};

static struct str next_line(struct str *rest)
{
	ptrdiff_t end = str_find(*rest, '\n');
	size_t len = end < 0 ? rest->len : (size_t)end + 1;
	struct str line = {rest->ptr, len};

	rest->ptr += len;
	rest->len -= len;
	return line;
}

static struct str *section(struct example *example, struct str line)
{
	struct {
		struct str name;
		struct str *where;
	} sections[] = {
		{STR("--- process\n"), &example->process},
		{STR("--- bpmn/p.bpmn\n"), &example->diagram},
		{STR("--- package.conf\n"), &example->package},
		{STR("--- channels.conf\n"), &example->channels},
		{STR("--- findings\n"), &example->findings},
		{STR("--- lines\n"), &example->lines},
	};

	for (size_t i = 0; i < ARRAY_LEN(sections); i++)
		if (str_equal(line, sections[i].name))
			return sections[i].where;
	ck_abort_msg("no such section: %.*s", STR_ARG(line));
	return NULL;
}

/* The next case of the table; false at its end. Slices point into the table. */
static bool next_example(struct str *rest, struct example *out)
{
	struct str *open = NULL;

	*out = (struct example){0};
	while (rest->len) {
		struct str before = *rest, line = next_line(rest);

		if (str_starts_with(line, STR("=== "))) {
			if (out->name.ptr) {
				*rest = before;
				break;
			}
			out->name = str_make(line.ptr + 4, line.len - 5);
		} else if (str_starts_with(line, STR("--- "))) {
			open = section(out, line);
			*open = str_make(rest->ptr, 0);
		} else if (open) {
			open->len += line.len;
		}
	}
	/* The empty line between cases belongs to none. */
	if (open && open->len > 1 && open->ptr[open->len - 1] == '\n' &&
	    open->ptr[open->len - 2] == '\n')
		open->len--;
	else if (open && open->len == 1)
		open->len = 0;
	return out->name.ptr != NULL;
}

static struct package *example_package(const struct example *example)
{
	const struct package_limits limits = PACKAGE_LIMITS_DEFAULT;
	struct findings findings = {0};
	struct package *package = package_new();
	struct buf diagram = BUF_INIT;

	if (example->diagram.ptr) {
		buf_add_str(&diagram, example->diagram);
	} else {
		buf_add_text(&diagram, HEAD);
		buf_add_str(&diagram,
			    example->process.ptr ? example->process : str_of(default_process));
		buf_add_text(&diagram, TAIL);
	}
	ck_assert(package_add(package, STR("package.conf"),
			      example->package.ptr ? example->package : str_of(default_package),
			      &limits, NULL, &findings));
	ck_assert(package_add(package, STR("channels.conf"),
			      example->channels.ptr ? example->channels : str_of(default_channels),
			      &limits, NULL, &findings));
	ck_assert(package_add(package, STR("bpmn/p.bpmn"), buf_str(&diagram), &limits, NULL,
			      &findings));
	package_finish(package, NULL, &findings);
	ck_assert_uint_eq(findings.errors, 0);
	buf_done(&diagram);
	return package;
}

/* Each wanted beginning is that of some line, and no line begins otherwise. */
static bool lines_match(struct str want, struct str have)
{
	for (struct str rest = want; rest.len;) {
		struct str start = next_line(&rest);
		bool found = false;

		start.len -= start.len && start.ptr[start.len - 1] == '\n';
		for (struct str lines = have; lines.len;)
			found |= str_starts_with(next_line(&lines), start);
		if (!found)
			return false;
	}
	for (struct str lines = have; lines.len;) {
		struct str line = next_line(&lines);
		bool found = false;

		for (struct str rest = want; rest.len;) {
			struct str start = next_line(&rest);

			start.len -= start.len && start.ptr[start.len - 1] == '\n';
			found |= str_starts_with(line, start);
		}
		if (!found)
			return false;
	}
	return have.len > 0;
}

static void run_example(const struct example *example)
{
	struct package *package = example_package(example);
	struct deployment *deployment = NULL;
	struct findings findings = {0};
	enum result result = package_build(package, &deployment, &findings);
	struct str want = example->lines.ptr ? example->lines : example->findings;
	struct str have = buf_str(&findings.text);

	ck_assert(want.ptr != NULL);
	ck_assert_msg(example->lines.ptr ? lines_match(want, have) : str_equal(want, have),
		      "case '%.*s':\nwanted:\n%.*s\nhave:\n%.*s", STR_ARG(example->name),
		      STR_ARG(want), STR_ARG(have));
	ck_assert_int_eq(result, findings.errors ? RESULT_REJECT : RESULT_OK);
	ck_assert_int_eq(deployment != NULL, findings.errors == 0);
	deployment_unref(&deployment);
	findings_done(&findings);
	package_free(&package);
}

static void run_table(const char *name, unsigned at_least)
{
	char *path = test_source_path(name);
	size_t len;
	char *text = test_file_read(path, &len);
	struct str rest = {text, len};
	struct example example;
	unsigned count = 0;

	while (next_example(&rest, &example)) {
		run_example(&example);
		count++;
	}
	ck_assert_uint_ge(count, at_least);
	free(text);
	free(path);
}

START_TEST(diagrams)
{
	run_table("tests/unit/model/data/bpmn.cases", 20);
}
END_TEST

START_TEST(expressions)
{
	run_table("tests/unit/model/data/expressions.cases", 3);
}
END_TEST

START_TEST(channels_and_package)
{
	run_table("tests/unit/model/data/channels.cases", 8);
}
END_TEST

static Suite *findings_suite(void)
{
	Suite *suite = suite_create("findings");
	TCase *tcase = tcase_create("tables");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, diagrams, expressions, channels_and_package);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(findings_suite)
