/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in the way other modellers write them (data/exports): extensions of their own, diagram interchange, pools and lanes, data
 * and annotations, and names in any script. Each must load as it is, and in every encoding, line ending and prefix that
 * an XML file may have, to the same process at the same lines.
 */
#include <stdlib.h>

#include "tests/support/testing.h"
#include "tests/unit/model/fixture.h"

static const char conf[] = "tenant = \"default\"; module = \"m\"; version = \"1\";";
static const char channels[] =
	"channels = ( { name = \"in\"; transport = \"kafka\"; bind = \"in\"; }, { name = \"in2\"; "
	"transport = \"kafka\"; bind = \"in2\"; }, { name = \"out\"; direction = \"outbound\"; "
	"transport = \"kafka\"; bind = \"out\"; } );";

static const struct export
{
	const char *name;
	uint32_t nodes, flows; /* of the first process */
	const char *node, *node_name;
	int line;
	unsigned warnings;
	const char *prefix; /* of BPMN's elements; "" = none */
} exports[] = {
	{"camunda-modeler", 5, 5, "Activity_Confirm", "Best\xc3\xa4tigung schicken", 78, 0, "bpmn:"},
	{"bpmn-io", 5, 4, "ExclusiveGateway_15hu1pt", "desired dish?", 15, 1, ""},
	{"signavio", 10, 7, "sid-start", "Auftrag f\xc3\xbcr M\xc3\xbcller\neingegangen", 26, 0, ""},
	{"flowable", 6, 5, "approveTask", "Approve or reject", 26, 1, ""},
	{"activiti", 8, 8, "join", "Join", 34, 1, ""},
	{"jbpm", 5, 3, "_approve", "Approve", 42, 0, "bpmn2:"},
	{"bizagi", 5, 5, "Id_start", "\xc2\xbfPedido \"nuevo\"?", 23, 0, "semantic:"},
};

/* Loads; the caller's. The findings are warnings, as many as there must be. */
static struct deployment *load(const struct export *export, struct str diagram, const char *how)
{
	struct package *package = fixture_package(str_of(conf), str_of(channels), diagram);
	struct deployment *deployment = NULL;
	struct findings findings = {0};

	ck_assert_msg(package_build(package, &deployment, &findings) == RESULT_OK, "%s, %s:\n%s",
		      export->name, how, findings.text.data);
	ck_assert_msg(findings.warnings == export->warnings, "%s, %s:\n%s", export->name, how,
		      findings.text.data ? findings.text.data : "");
	findings_done(&findings);
	package_free(&package);
	return deployment;
}

static void check(const struct export *export, struct str diagram, const char *how)
{
	struct deployment *deployment = load(export, diagram, how);
	const struct process *process = deployment->processes[0];
	const struct node *node = process_node(process, str_of(export->node));

	ck_assert_msg(process->node_count == export->nodes && process->flow_count == export->flows,
		      "%s, %s: %u nodes, %u flows", export->name, how, process->node_count,
		      process->flow_count);
	ck_assert_msg(node != NULL, "%s, %s", export->name, how);
	ck_assert_msg(str_equal(node->name, str_of(export->node_name)), "%s, %s: %.*s",
		      export->name, how, STR_ARG(node->name));
	ck_assert_msg(node->line == export->line, "%s, %s: line %d", export->name, how, node->line);
	deployment_unref(&deployment);
}

static struct str read_export(const struct export *export)
{
	char relative[96], *path, *text;
	size_t len;

	snprintf(relative, sizeof(relative), "tests/unit/model/data/exports/%s.bpmn", export->name);
	path = test_source_path(relative);
	text = test_file_read(path, &len);
	free(path);
	return str_make(text, len);
}

START_TEST(as_they_are)
{
	for (size_t i = 0; i < ARRAY_LEN(exports); i++) {
		struct str text = read_export(&exports[i]);

		check(&exports[i], text, "as it is");
		free((char *)text.ptr);
	}
}
END_TEST

/* The declaration must name what the bytes are. */
static void add_without_declaration(struct buf *out, struct str text)
{
	ptrdiff_t end = str_find(text, '>');

	ck_assert_int_gt(end, 0);
	ck_assert(str_starts_with(text, STR("<?xml ")));
	buf_add(out, text.ptr + end + 1, text.len - (size_t)end - 1);
}

static uint32_t next_character(const char **at)
{
	const unsigned char *p = (const unsigned char *)*at;
	int more = p[0] < 0x80 ? 0 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3;
	uint32_t c = more == 0 ? p[0] : p[0] & (0x3fu >> more);

	for (int i = 1; i <= more; i++)
		c = c << 6 | (p[i] & 0x3f);
	*at += more + 1;
	return c;
}

static void add_unit(struct buf *out, bool big_endian, uint32_t unit)
{
	buf_add_byte(out, (char)(big_endian ? unit >> 8 : unit));
	buf_add_byte(out, (char)(big_endian ? unit : unit >> 8));
}

static void add_utf16(struct buf *out, bool big_endian, struct str text)
{
	for (const char *p = text.ptr; p < text.ptr + text.len;) {
		uint32_t c = next_character(&p);

		if (c >= 0x10000) {
			add_unit(out, big_endian, 0xd800 + ((c - 0x10000) >> 10));
			c = 0xdc00 + ((c - 0x10000) & 0x3ff);
		}
		add_unit(out, big_endian, c);
	}
}

static void check_utf16(const struct export *export, struct str text, bool big_endian, bool mark)
{
	struct buf plain = BUF_INIT, bytes = BUF_INIT;

	buf_add_text(&plain, "<?xml version=\"1.0\" encoding=\"UTF-16\"?>");
	add_without_declaration(&plain, text);
	if (mark)
		add_unit(&bytes, big_endian, 0xfeff);
	add_utf16(&bytes, big_endian, buf_str(&plain));
	check(export, buf_str(&bytes), big_endian ? "UTF-16 BE" : "UTF-16 LE");
	buf_done(&plain);
	buf_done(&bytes);
}

START_TEST(encodings)
{
	for (size_t i = 0; i < ARRAY_LEN(exports); i++) {
		const struct export *export = &exports[i];
		struct str text = read_export(export);
		struct buf bytes = BUF_INIT;

		buf_add_text(&bytes, "\xef\xbb\xbf");
		buf_add_str(&bytes, text);
		check(export, buf_str(&bytes), "with a byte order mark");
		buf_reset(&bytes);
		add_without_declaration(&bytes, text);
		check(export, buf_str(&bytes), "without a declaration");
		buf_done(&bytes);
		check_utf16(export, text, true, true);
		check_utf16(export, text, false, true);
		check_utf16(export, text, true, false);
		check_utf16(export, text, false, false);
		free((char *)text.ptr);
	}
}
END_TEST

static void add_replaced(struct buf *out, struct str text, struct str from, struct str to)
{
	const char *at;

	while ((at = memmem(text.ptr, text.len, from.ptr, from.len)) != NULL) {
		size_t before = (size_t)(at - text.ptr);

		buf_add(out, text.ptr, before);
		buf_add_str(out, to);
		text.ptr += before + from.len;
		text.len -= before + from.len;
	}
	buf_add_str(out, text);
}

START_TEST(line_ends)
{
	for (size_t i = 0; i < ARRAY_LEN(exports); i++) {
		struct str text = read_export(&exports[i]);
		struct buf bytes = BUF_INIT;

		add_replaced(&bytes, text, STR("\n"), STR("\r\n"));
		check(&exports[i], buf_str(&bytes), "CRLF");
		buf_done(&bytes);
		free((char *)text.ptr);
	}
}
END_TEST

/* The file with BPMN's elements under another prefix; "" takes it away. */
static void check_prefix(const struct export *export, struct str text, const char *prefix)
{
	struct str before = str_of(export->prefix);
	struct buf from = BUF_INIT, to = BUF_INIT, one = BUF_INIT, two = BUF_INIT, all = BUF_INIT;

	before.len--; /* the colon */
	buf_printf(&from, "<%s", export->prefix);
	buf_printf(&to, "<%s%s", prefix, *prefix ? ":" : "");
	add_replaced(&one, text, buf_str(&from), buf_str(&to));
	buf_reset(&from);
	buf_reset(&to);
	buf_printf(&from, "</%s", export->prefix);
	buf_printf(&to, "</%s%s", prefix, *prefix ? ":" : "");
	add_replaced(&two, buf_str(&one), buf_str(&from), buf_str(&to));
	buf_reset(&from);
	buf_reset(&to);
	buf_printf(&from, "xmlns:%.*s=", STR_ARG(before));
	buf_printf(&to, "xmlns%s%s=", *prefix ? ":" : "", prefix);
	add_replaced(&all, buf_str(&two), buf_str(&from), buf_str(&to));
	check(export, buf_str(&all), *prefix ? prefix : "no prefix");
	buf_done(&from);
	buf_done(&to);
	buf_done(&one);
	buf_done(&two);
	buf_done(&all);
}

START_TEST(prefixes)
{
	unsigned count = 0;

	for (size_t i = 0; i < ARRAY_LEN(exports); i++) {
		const struct export *export = &exports[i];
		struct str text = read_export(export);

		if (*export->prefix) {
			check_prefix(export, text, "bpmn");
			check_prefix(export, text, "bpmn2");
			check_prefix(export, text, "semantic");
			check_prefix(export, text, "mod\xc3\xa8le");
			/* jBPM's default is a namespace of its own. */
			if (strcmp(export->name, "jbpm") != 0)
				check_prefix(export, text, "");
			count++;
		}
		free((char *)text.ptr);
	}
	ck_assert_uint_eq(count, 3);
}
END_TEST

/* What is escaped in one way or the other is the same text. */
START_TEST(texts)
{
	struct str text = read_export(&exports[1]);
	struct deployment *deployment = load(&exports[1], text, "as it is");
	const struct node *node =
		process_node(deployment->processes[0], STR("ExclusiveGateway_15hu1pt"));

	ck_assert_str_slice(node->outgoing[0]->condition->source,
			    STR("payload.dish == \"soup\" and payload.degrees < 100"));
	ck_assert_int_eq(node->outgoing[0]->condition->line, 22);
	ck_assert_int_eq(node->outgoing[1]->condition->line, 26);
	ck_assert(str_starts_with(node->outgoing[1]->condition->source,
				  STR("payload.dish ~= \"soup\"\n")));
	deployment_unref(&deployment);
	free((char *)text.ptr);
}
END_TEST

static void refused(struct str diagram, const char *report)
{
	struct package *package = fixture_package(str_of(conf), str_of(channels), diagram);
	struct deployment *deployment = NULL;
	struct findings findings = {0};

	ck_assert_int_eq(package_build(package, &deployment, &findings), RESULT_REJECT);
	ck_assert_msg(strncmp(findings.text.data, report, strlen(report)) == 0,
		      "have %s\nwant %s", findings.text.data, report);
	ck_assert_uint_eq(findings.errors, 1);
	findings_done(&findings);
	package_free(&package);
}

#define ROOT   "<definitions xmlns=\"http://www.omg.org/spec/BPMN/20100524/MODEL\">\n"

/* In UTF-16 too, where whoever looks for bytes would not see the declaration. */
START_TEST(hostile)
{
	static const char laughs[] =
		"<?xml version=\"1.0\"?>\n<!-- a comment first -->\n<!DOCTYPE lolz [\n"
		"<!ENTITY lol \"lol\"><!ENTITY % p SYSTEM \"http://127.0.0.1:1/x\"> %p;\n"
		"<!ENTITY lol2 \"&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;\">\n"
		"]>\n" ROOT "<process id=\"&lol2;\"/></definitions>";
	static const char declared[] = "bpmn/p.bpmn:3: SUTRA.CONFIG.BPMN.INVALID: a document type "
				       "declaration (DOCTYPE) is not allowed";
	struct buf bytes = BUF_INIT;

	refused(str_of(laughs), declared);
	for (int big_endian = 0; big_endian <= 1; big_endian++) {
		buf_reset(&bytes);
		add_unit(&bytes, big_endian, 0xfeff);
		add_utf16(&bytes, big_endian, str_of(laughs));
		refused(buf_str(&bytes), declared);
	}
	refused(STR(ROOT "<process id=\"P\" name=\"&xxe;\"/>\n</definitions>"),
		"bpmn/p.bpmn:2: SUTRA.CONFIG.BPMN.INVALID: the XML is not well-formed: Entity 'xxe'");
	refused(STR("\xff\xfe<\0d\0"), "bpmn/p.bpmn:1: SUTRA.CONFIG.BPMN.INVALID: ");
	refused(STR("<?xml version=\"1.0\" encoding=\"no-such\"?>\n" ROOT "</definitions>"),
		"bpmn/p.bpmn:1: SUTRA.CONFIG.BPMN.INVALID: ");
	refused(STR(ROOT "<process id=\"P\" name=\"\xff\"/></definitions>"),
		"bpmn/p.bpmn:2: SUTRA.CONFIG.BPMN.INVALID: ");
	refused(STR(ROOT "<process id=\"P\" id=\"Q\"/></definitions>"),
		"bpmn/p.bpmn:2: SUTRA.CONFIG.BPMN.INVALID: ");
	refused(STR(ROOT "<process id=\"P\">\0</process></definitions>"),
		"bpmn/p.bpmn:2: SUTRA.CONFIG.BPMN.INVALID: ");
	buf_done(&bytes);
}
END_TEST

/* Deep in our own elements and in those that are passed over, which the parser must bound as well. */
START_TEST(depth)
{
	static const char *const names[] = {"subProcess", "x:y xmlns:x=\"urn:x\""};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct buf diagram = BUF_INIT;

		buf_add_text(&diagram, ROOT "<process id=\"P\">\n");
		for (int n = 0; n < 100000; n++)
			buf_printf(&diagram, "<%s>\n", names[i]);
		refused(buf_str(&diagram), i == 0 ? "bpmn/p.bpmn:65: " : "bpmn/p.bpmn:258: ");
		buf_done(&diagram);
	}
}
END_TEST

static Suite *exports_suite(void)
{
	Suite *suite = suite_create("exports of other modellers");
	TCase *tcase = tcase_create("exports");

	TEST_ADD_ALL(tcase, as_they_are, encodings, line_ends, prefixes, texts, hostile, depth);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(exports_suite)
