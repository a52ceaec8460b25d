/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a diagram: the graph, encodings, line numbers, message types, types of variables. */
#include <stdlib.h>

#include "model/glob.h"
#include "tests/support/testing.h"
#include "tests/unit/model/fixture.h"

static const char channels[] =
	"channels = ( { name = \"in\"; transport = \"kafka\"; bind = \"in\"; }, { name = \"out\"; "
	"direction = \"outbound\"; transport = \"kafka\"; bind = \"out\"; } );";

static const char process_text[] =
	"<process id=\"P\" name=\"Some process\">\n"
	"<extensionElements><q:variables><q:variable name=\"v\" type=\"integer\" "
	"source=\"payload.v\" "
	"sensitive=\"true\"/></q:variables></extensionElements>\n"
	"<startEvent id=\"S\" name=\"Start\"><extensionElements>\n"
	"<q:source channel=\"in\" messageTypeValue=\"go\" dedupKey=\"payload.id\"/>\n"
	"<q:alias name=\"a\" expression=\"payload.id\" unique=\"true\"/>\n"
	"</extensionElements></startEvent>\n"
	"<sequenceFlow id=\"f\" sourceRef=\"S\" targetRef=\"X\"/>\n"
	"<scriptTask id=\"X\"><script>v = 1</script></scriptTask>\n"
	"<sequenceFlow id=\"g\" sourceRef=\"X\" targetRef=\"G\"/>\n"
	"<exclusiveGateway id=\"G\" default=\"h\"/>\n"
	"<sequenceFlow id=\"h\" sourceRef=\"G\" targetRef=\"E\"/>\n"
	"<sequenceFlow id=\"i\" sourceRef=\"G\" targetRef=\"N\"><conditionExpression>v &gt; 1"
	"</conditionExpression></sequenceFlow>\n"
	"<sendTask id=\"N\"><extensionElements><q:send channel=\"out\" body=\"v\" "
	"contentType=\"text/plain\" required=\"true\"/><q:header name=\"x\" value=\"'y'\"/>"
	"</extensionElements></sendTask>\n"
	"<sequenceFlow id=\"j\" sourceRef=\"N\" targetRef=\"E\"/>\n"
	"<endEvent id=\"E\"/></process>\n";

START_TEST(graph)
{
	struct deployment *deployment = fixture_deployment("m", "1", channels, process_text);
	const struct process *process = deployment_process(deployment, STR("P"));
	const struct node *start, *gateway, *send;

	ck_assert_ptr_nonnull(process);
	ck_assert_ptr_null(deployment_process(deployment, STR("Q")));
	ck_assert_str_slice(process->name, STR("Some process"));
	ck_assert_uint_eq(process->node_count, 5);
	ck_assert_uint_eq(process->flow_count, 5);
	ck_assert_uint_eq(process->variable_count, 1);
	ck_assert_str_slice(process->variable_names[0], STR("v"));
	ck_assert_int_eq(process->variables[0].type, VARIABLE_INTEGER);
	ck_assert(process->variables[0].sensitive);
	for (uint32_t i = 0; i < process->node_count; i++) {
		ck_assert_uint_eq(process->nodes[i]->index, i);
		ck_assert_ptr_eq(process_node(process, process->nodes[i]->id), process->nodes[i]);
	}
	ck_assert_ptr_null(process_node(process, STR("F")));
	ck_assert_ptr_null(process_node(process, STR("")));
	start = process_node(process, STR("S"));
	ck_assert_int_eq(start->kind, NODE_START);
	ck_assert_int_eq(start->line, 4);
	ck_assert_int_eq(start->source->line, 5);
	ck_assert_str_slice(start->source->name, STR("payload"));
	ck_assert_str_slice(start->source->dedup_key->source, STR("payload.id"));
	ck_assert_uint_eq(start->alias_count, 1);
	ck_assert(start->aliases[0].unique);
	ck_assert_str_slice(process_node(process, STR("X"))->script->source, STR("v = 1"));
	gateway = process_node(process, STR("G"));
	ck_assert_uint_eq(gateway->outgoing_count, 2);
	ck_assert_ptr_eq(gateway->default_flow, gateway->outgoing[0]);
	ck_assert_str_slice(gateway->outgoing[1]->condition->source, STR("v > 1"));
	ck_assert_int_eq(gateway->outgoing[1]->condition->line, 13);
	send = process_node(process, STR("N"));
	ck_assert_str_slice(send->send->channel, STR("out"));
	ck_assert_str_slice(send->send->content_type, STR("text/plain"));
	ck_assert(send->send->required);
	ck_assert_uint_eq(send->header_count, 1);
	ck_assert_uint_eq(process_node(process, STR("E"))->incoming_count, 2);
	ck_assert_str_slice(deployment_channel(deployment, STR("in"))->group,
			    STR("sutra.default.in"));
	for (uint32_t i = 0; i < deployment->expressions.count; i++)
		ck_assert_uint_eq(deployment->expressions.items[i]->index, i);
	deployment_unref(&deployment);
	ck_assert_ptr_null(deployment);
}
END_TEST

/* The same diagram in other bytes gives the same process at the same lines. */
static void check_encoding(struct str diagram)
{
	struct package *package = fixture_package(
		STR("tenant = \"default\"; module = \"m\"; version = \"1\";"), str_of(channels),
		diagram);
	struct deployment *deployment = NULL;
	struct findings findings = {0};
	const struct node *node;

	ck_assert_msg(package_build(package, &deployment, &findings) == RESULT_OK, "%s",
		      findings.text.data);
	node = process_node(deployment->processes[0], STR("S"));
	ck_assert_str_slice(node->name, STR("Anf\xc3\xa4nge"));
	ck_assert_int_eq(node->line, 3);
	findings_done(&findings);
	deployment_unref(&deployment);
	package_free(&package);
}

static const char encoded[] = FIXTURE_HEAD
	"<process id=\"P\">\n"
	"<startEvent id=\"S\" name=\"Anf\xc3\xa4nge\"><extensionElements><q:source channel=\"in\"/>"
	"</extensionElements></startEvent>\n"
	"<sequenceFlow id=\"f\" sourceRef=\"S\" targetRef=\"E\"/><endEvent id=\"E\"/></process>"
	"<!-- --></definitions>";

static void add_utf16(struct buf *out, bool big_endian)
{
	struct str text = str_of(encoded);

	buf_add(out, big_endian ? "\xfe\xff" : "\xff\xfe", 2);
	for (size_t i = 0; i < text.len; i++) {
		unsigned c = (unsigned char)text.ptr[i];

		if (c >= 0xc0)
			c = (c & 0x1f) << 6 | ((unsigned char)text.ptr[++i] & 0x3f);
		buf_add_byte(out, (char)(big_endian ? c >> 8 : c));
		buf_add_byte(out, (char)(big_endian ? c : c >> 8));
	}
}

START_TEST(encodings)
{
	struct buf bytes = BUF_INIT;

	check_encoding(str_of(encoded));
	buf_add_text(&bytes, "\xef\xbb\xbf");
	buf_add_text(&bytes, encoded);
	check_encoding(buf_str(&bytes));
	buf_reset(&bytes);
	for (const char *p = encoded; *p; p++) {
		if (*p == '\n')
			buf_add_byte(&bytes, '\r');
		buf_add_byte(&bytes, *p);
	}
	check_encoding(buf_str(&bytes));
	buf_reset(&bytes);
	add_utf16(&bytes, true);
	check_encoding(buf_str(&bytes));
	buf_reset(&bytes);
	add_utf16(&bytes, false);
	check_encoding(buf_str(&bytes));
	buf_done(&bytes);
}
END_TEST

/* A finding in a file of many lines names the right one, past the library's own 65 535 too. */
START_TEST(far_lines)
{
	struct buf diagram = BUF_INIT;
	struct findings findings = {0};
	struct deployment *deployment = NULL;
	struct package *package;

	buf_add_text(&diagram, FIXTURE_HEAD "<process id=\"P\">\n");
	for (int i = 0; i < 70000; i++)
		buf_add_text(&diagram, i % 7 ? "\n" : "<!-- line -->\n");
	buf_add_text(&diagram,
		     "<startEvent id=\"S\"><extensionElements><q:source\n\n channel=\"in\"\n"
		     "dedupKey=\"nope\"/></extensionElements></startEvent>\n"
		     "<sequenceFlow id=\"f\" sourceRef=\"S\" targetRef=\"E\"/>"
		     "<endEvent id=\"E\"/></process>" FIXTURE_TAIL);
	package = fixture_package(STR("tenant = \"default\"; module = \"m\"; version = \"1\";"),
				  str_of(channels), buf_str(&diagram));
	ck_assert_int_eq(package_build(package, &deployment, &findings), RESULT_REJECT);
	ck_assert_msg(str_starts_with(buf_str(&findings.text), STR("bpmn/p.bpmn:70006: [S] ")),
		      "%s", findings.text.data);
	findings_done(&findings);
	package_free(&package);
	buf_done(&diagram);
}
END_TEST

/* Over the bounds of a model: refused, with not more than a bounded report. */
START_TEST(too_large)
{
	struct buf diagram = BUF_INIT;
	struct findings findings = {0};
	struct deployment *deployment = NULL;
	struct package *package;

	buf_add_text(&diagram, FIXTURE_HEAD "<process id=\"P\">\n");
	for (int i = 0; i < 15000; i++)
		buf_printf(&diagram, "<task id=\"T%d\"/>\n", i);
	buf_add_text(&diagram, "</process>" FIXTURE_TAIL);
	package = fixture_package(STR("tenant = \"default\"; module = \"m\"; version = \"1\";"),
				  str_of(channels), buf_str(&diagram));
	ck_assert_int_eq(package_build(package, &deployment, &findings), RESULT_REJECT);
	ck_assert_ptr_nonnull(strstr(findings.text.data, "a process holds at most 10000 nodes"));
	ck_assert_uint_gt(findings.errors, 10000);
	ck_assert_uint_lt(findings.text.len, 300000);
	findings_done(&findings);
	package_free(&package);
	buf_done(&diagram);
}
END_TEST

START_TEST(globs)
{
	static const struct {
		const char *pattern, *text;
		bool match;
	} rows[] = {
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "abc", true},
		{"a*", "abc", true},
		{"a*", "bac", false},
		{"*c", "abc", true},
		{"*c", "abd", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"a?c",
		 "a\xc3\xa4"
		 "c",
		 true},
		{"*b*", "abc", true},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "aXcYb", false},
		{"**", "x", true},
		{"order.*", "order.placed", true},
		{"order.*", "orders", false},
		{"?", "", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		ck_assert_msg(glob_match(str_of(rows[i].pattern), str_of(rows[i].text)) ==
				      rows[i].match,
			      "%s against %s", rows[i].pattern, rows[i].text);
}
END_TEST

START_TEST(glob_overlaps)
{
	static const struct {
		const char *a, *b;
		bool overlap;
	} rows[] = {
		{"*", "*", true},
		{"a*", "b*", false},
		{"a*", "*b", true},
		{"a?", "a", false},
		{"a?", "?b", true},
		{"order.*", "*.placed", true},
		{"order.*", "pay.*", false},
		{"a*c", "ab*", true},
		{"a*c", "ab", false},
		{"", "*", true},
		{"", "?", false},
		{"x*y*z", "*yx*", true},
		{"ab", "ab", true},
		{"*a*", "bbb", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str a = str_of(rows[i].a), b = str_of(rows[i].b);

		ck_assert_msg(glob_overlap(a, b) == rows[i].overlap, "%s and %s", rows[i].a,
			      rows[i].b);
		ck_assert_msg(glob_overlap(b, a) == rows[i].overlap, "%s and %s", rows[i].b,
			      rows[i].a);
	}
}
END_TEST

START_TEST(message_types)
{
	struct source any = {0};
	struct source value = {.type_value = STR("order")};
	struct source pattern = {.type_pattern = STR("or*")};

	ck_assert(source_takes_type(&any, STR_NONE));
	ck_assert(source_takes_type(&any, STR("x")));
	ck_assert(!source_takes_type(&value, STR_NONE));
	ck_assert(source_takes_type(&value, STR("order")));
	ck_assert(!source_takes_type(&value, STR("orders")));
	ck_assert(source_takes_type(&pattern, STR("orders")));
	ck_assert(!source_takes_type(&pattern, STR_NONE));
	ck_assert(source_types_overlap(&any, &value));
	ck_assert(source_types_overlap(&value, &pattern));
	ck_assert(source_types_overlap(&pattern, &pattern));
	pattern.type_pattern = STR("pay*");
	ck_assert(!source_types_overlap(&value, &pattern));
}
END_TEST

START_TEST(variable_types)
{
	const msgpack_object nil = value_nil(), number = value_int(-3), real = value_double(1.5),
			     text = value_text(STR("x")), truth = value_bool(false);
	struct variable variable = {0};

	for (int type = VARIABLE_ANY; type <= VARIABLE_LIST; type++) {
		variable.type = (enum variable_type)type;
		ck_assert(variable_accepts(&variable, &nil));
		ck_assert(variable_accepts(&variable, NULL));
		ck_assert_int_eq(variable_accepts(&variable, &number),
				 type == VARIABLE_ANY || type == VARIABLE_INTEGER ||
					 type == VARIABLE_NUMBER);
		ck_assert_int_eq(variable_accepts(&variable, &real),
				 type == VARIABLE_ANY || type == VARIABLE_NUMBER);
		ck_assert_int_eq(variable_accepts(&variable, &text),
				 type == VARIABLE_ANY || type == VARIABLE_STRING);
		ck_assert_int_eq(variable_accepts(&variable, &truth),
				 type == VARIABLE_ANY || type == VARIABLE_BOOLEAN);
	}
}
END_TEST

static Suite *process_suite(void)
{
	Suite *suite = suite_create("process");
	TCase *tcase = tcase_create("process");

	tcase_set_timeout(tcase, 60);
	TEST_ADD_ALL(tcase, graph, encodings, far_lines, too_large, globs, glob_overlaps,
		     message_types, variable_types);
	suite_add_tcase(suite, tcase);
	return suite;
}

TEST_MAIN(process_suite)
