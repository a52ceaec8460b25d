/* SPDX-License-Identifier: Apache-2.0 */
/* Every example of docs/bpmn.md, a block of XML, is loaded as it stands: with nothing to say about it. */
#include <stdlib.h>

#include "tests/support/testing.h"
#include "tests/unit/model/fixture.h"

static const char channels[] =
	"channels = ( { name = \"orders\"; transport = \"kafka\"; bind = \"orders\"; },\n"
	" { name = \"payments\"; transport = \"kafka\"; bind = \"payments\"; },\n"
	" { name = \"answers\"; transport = \"kafka\"; bind = \"answers\"; },\n"
	" { name = \"requests\"; direction = \"outbound\"; transport = \"kafka\"; bind = "
	"\"requests\"; },\n"
	" { name = \"replies\"; direction = \"outbound\"; transport = \"kafka\"; bind = "
	"\"replies\"; } );";

static void load(struct str block)
{
	struct findings findings = {0};
	struct deployment *deployment = NULL;
	struct buf diagram = BUF_INIT;
	struct package *package;

	buf_add_text(&diagram, FIXTURE_HEAD);
	buf_add_str(&diagram, block);
	buf_add_text(&diagram, FIXTURE_TAIL);
	package = fixture_package(STR("tenant = \"default\"; module = \"m\"; version = \"1\";"),
				  str_of(channels), buf_str(&diagram));
	ck_assert_msg(package_build(package, &deployment, &findings) == RESULT_OK &&
			      findings.warnings == 0,
		      "%s\n%.*s", findings.text.data, STR_ARG(block));
	deployment_unref(&deployment);
	findings_done(&findings);
	package_free(&package);
	buf_done(&diagram);
}

START_TEST(examples_load)
{
	char *path = test_source_path("docs/bpmn.md");
	size_t len;
	char *text = test_file_read(path, &len);
	unsigned count = 0;

	for (const char *at = text; (at = strstr(at, "\n```xml\n")) != NULL;) {
		const char *begin = at + 8, *end = strstr(begin, "\n```");

		ck_assert_ptr_nonnull(end);
		load(str_make(begin, (size_t)(end - begin) + 1));
		at = end;
		count++;
	}
	ck_assert_uint_ge(count, 3);
	free(text);
	free(path);
}
END_TEST

static Suite *docs_suite(void)
{
	Suite *suite = suite_create("docs of models");
	TCase *tcase = tcase_create("docs");

	TEST_ADD_ALL(tcase, examples_load);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(docs_suite)
