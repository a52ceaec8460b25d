/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads XML by libxml2's SAX interface into the tree of element.h.
 *
 * SAX and not the library's own tree, for three reasons. A document type declaration is refused at its first word, before any
 * entity in it is read, so an entity bomb has no time to go off, and nothing is ever fetched. Diagram interchange, often
 * half of a file, takes no memory. And the library's tree knows the line where a start tag ends; people look for the line
 * where it begins, or for that of an attribute, and only here can it be told.
 *
 * The library keeps no state of ours: the handler is put into one parser context and goes with it.
 */
#include <libxml/parser.h>
#include <libxml/parserInternals.h>

#include "base/alloc.h"
#include "model/element.h"

#define ELEMENT_DEPTH_MAX      64
#define ELEMENT_COUNT_MAX      200000
#define ELEMENT_ATTRIBUTES_MAX 256

struct parse {
	struct arena *arena;
	const char *file;
	struct findings *findings;
	xmlParserCtxtPtr ctxt;
	struct element *root;
	struct element *open;                /* innermost element that is kept */
	struct buf texts[ELEMENT_DEPTH_MAX]; /* of the open ones, outermost first */
	int depth;                           /* how many are open */
	int skipped;                         /* how many are open below that are not kept */
	uint32_t count;
	int last_line; /* where the last event ended */
	bool failed;
};

static void parse_fail(struct parse *parse, int line, const char *text)
{
	if (!parse->failed)
		finding_add(parse->findings, parse->file, line, STR_NONE, CODE_CONFIG_BPMN_INVALID,
			    "%s", text);
	parse->failed = true;
	xmlStopParser(parse->ctxt);
}

static int parse_line(const struct parse *parse)
{
	return parse->ctxt->input ? parse->ctxt->input->line : parse->last_line;
}

/*
 * The line where the start tag begins that has just been read. Nothing in a tag but its first character is a `<`, so it is
 * found backwards if the parser still has it; if not, the tag began where the event before ended.
 */
static int tag_line(const struct parse *parse)
{
	const xmlParserInput *input = parse->ctxt->input;
	int line = input->line;

	for (const xmlChar *p = input->cur; p > input->base; p--) {
		if (p[-1] == '<')
			return line;
		line -= p[-1] == '\n';
	}
	return parse->last_line;
}

/*
 * The line of an attribute. Values that needed no rewriting still lie in the parser's input, between its start and where it
 * stands now; then the line is counted back from here. Others get the line of the element.
 */
static int attribute_line(const struct parse *parse, const xmlChar *value, int element_line)
{
	const xmlParserInput *input = parse->ctxt->input;
	int line = input->line;

	if (value < input->base || value >= input->cur)
		return element_line;
	for (const xmlChar *p = value; p < input->cur; p++)
		line -= *p == '\n';
	return line < element_line ? element_line : line;
}

static void parse_attributes(struct parse *parse, struct element *el, int count,
			     const xmlChar **attributes)
{
	if (count > ELEMENT_ATTRIBUTES_MAX) {
		parse_fail(parse, el->line, "an element has too many attributes");
		return;
	}
	el->attributes = arena_zalloc(parse->arena,
				      sizeof(el->attributes[0]) * (size_t)(count + 1));
	for (int i = 0; i < count; i++, attributes += 5) {
		struct attribute *attr = &el->attributes[el->attribute_count];
		const char *uri = (const char *)attributes[2];

		/* Foreign attributes are none of our business. */
		attr->q = uri && strcmp(uri, ELEMENT_Q_NAMESPACE) == 0;
		if (uri && !attr->q)
			continue;
		attr->name = arena_str(parse->arena, str_of((const char *)attributes[0]));
		attr->value = arena_str(
			parse->arena,
			str_make(attributes[3], (size_t)(attributes[4] - attributes[3])));
		attr->line = attribute_line(parse, attributes[3], el->line);
		el->attribute_count++;
	}
}

static void on_start(void *arg, const xmlChar *name, const xmlChar *prefix UNUSED,
		     const xmlChar *uri, int namespace_count UNUSED,
		     const xmlChar **namespaces UNUSED, int attribute_count, int defaulted UNUSED,
		     const xmlChar **attributes)
{
	struct parse *parse = arg;
	bool q = uri && strcmp((const char *)uri, ELEMENT_Q_NAMESPACE) == 0;
	bool bpmn = uri && strcmp((const char *)uri, ELEMENT_BPMN_NAMESPACE) == 0;
	int line = tag_line(parse);

	parse->last_line = parse_line(parse);
	if (parse->failed)
		return;
	if (!parse->root && !bpmn) {
		parse_fail(parse, line,
			   "this is no BPMN 2.0 file: its root element is not in the "
			   "namespace " ELEMENT_BPMN_NAMESPACE);
		return;
	}
	if (parse->skipped || (!q && !bpmn)) {
		parse->skipped++;
		return;
	}
	if (parse->depth == ELEMENT_DEPTH_MAX || ++parse->count > ELEMENT_COUNT_MAX) {
		parse_fail(parse, line, "elements are nested too deeply or there are too many");
		return;
	}
	struct element *el = arena_zalloc(parse->arena, sizeof(*el));

	el->name = arena_str(parse->arena, str_of((const char *)name));
	el->q = q;
	el->line = line;
	el->text = STR("");
	el->text_line = parse->last_line;
	el->parent = parse->open;
	if (!parse->open)
		parse->root = el;
	else if (parse->open->last)
		parse->open->last->next = el;
	else
		parse->open->first = el;
	if (parse->open)
		parse->open->last = el;
	parse->open = el;
	buf_reset(&parse->texts[parse->depth++]);
	parse_attributes(parse, el, attribute_count, attributes);
}

static void on_end(void *arg, const xmlChar *name UNUSED, const xmlChar *prefix UNUSED,
		   const xmlChar *uri UNUSED)
{
	struct parse *parse = arg;

	parse->last_line = parse_line(parse);
	if (parse->failed)
		return;
	if (parse->skipped) {
		parse->skipped--;
		return;
	}
	struct buf *text = &parse->texts[--parse->depth];

	if (text->len)
		parse->open->text = arena_str(parse->arena, buf_str(text));
	parse->open = parse->open->parent;
}

static void on_text(void *arg, const xmlChar *bytes, int len)
{
	struct parse *parse = arg;

	if (!parse->failed && !parse->skipped && parse->open) {
		struct buf *text = &parse->texts[parse->depth - 1];

		if (text->len == 0)
			parse->open->text_line = parse->last_line;
		buf_add(text, bytes, (size_t)len);
	}
	parse->last_line = parse_line(parse);
}

static void on_comment(void *arg, const xmlChar *value UNUSED)
{
	struct parse *parse = arg;

	parse->last_line = parse_line(parse);
}

static void on_instruction(void *arg, const xmlChar *target UNUSED, const xmlChar *data UNUSED)
{
	on_comment(arg, NULL);
}

static void on_doctype(void *arg, const xmlChar *name UNUSED, const xmlChar *external UNUSED,
		       const xmlChar *system UNUSED)
{
	struct parse *parse = arg;

	parse_fail(parse, parse_line(parse),
		   "a document type declaration (DOCTYPE) is not allowed: it may define entities");
}

static void on_error(void *arg, xmlErrorPtr error)
{
	struct parse *parse = arg;
	char text[200] = "";
	size_t len;

	if (error->level < XML_ERR_ERROR || parse->failed)
		return;
	for (len = 0; error->message && error->message[len] && len < sizeof(text) - 1; len++) {
		unsigned char c = (unsigned char)error->message[len];

		text[len] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
	}
	while (len && text[len - 1] == ' ')
		len--;
	text[len] = '\0';
	/* The cut may have gone through a character. */
	while (len && !str_is_utf8(str_make(text, len)))
		text[--len] = '\0';
	finding_add(parse->findings, parse->file, error->line, STR_NONE, CODE_CONFIG_BPMN_INVALID,
		    "the XML is not well-formed: %s", text);
	parse->failed = true;
}

static const xmlSAXHandler handler = {
	.internalSubset = on_doctype,
	.startElementNs = on_start,
	.endElementNs = on_end,
	.characters = on_text,
	.ignorableWhitespace = on_text,
	.cdataBlock = on_text,
	.comment = on_comment,
	.processingInstruction = on_instruction,
	.serror = on_error,
	.initialized = XML_SAX2_MAGIC,
};

enum result element_parse(struct arena *arena, const char *file, struct str bytes,
			  struct element **out, struct findings *findings)
{
	struct parse *parse;
	bool ok;

	if (bytes.len == 0 || bytes.len > INT32_MAX) {
		finding_add(findings, file, 1, STR_NONE, CODE_CONFIG_BPMN_INVALID, "the file is %s",
			    bytes.len ? "too large" : "empty");
		return RESULT_REJECT;
	}
	parse = arena_zalloc(arena, sizeof(*parse));
	parse->arena = arena;
	parse->file = file;
	parse->findings = findings;
	parse->last_line = 1;
	parse->ctxt = xmlCreateMemoryParserCtxt(bytes.ptr, (int)bytes.len);
	if (!parse->ctxt)
		mem_exhausted(bytes.len);
	xmlCtxtUseOptions(parse->ctxt, XML_PARSE_NONET);
	*parse->ctxt->sax = handler;
	parse->ctxt->userData = parse;
	if (xmlParseDocument(parse->ctxt) != 0 && !parse->failed)
		parse_fail(parse, parse->last_line, "the XML is not well-formed");
	xmlFreeParserCtxt(parse->ctxt);
	for (int i = 0; i < ELEMENT_DEPTH_MAX; i++)
		buf_done(&parse->texts[i]);
	ok = !parse->failed && parse->root;
	if (ok)
		*out = parse->root;
	else if (!parse->failed)
		finding_add(findings, file, 1, STR_NONE, CODE_CONFIG_BPMN_INVALID,
			    "the file has no root element");
	return ok ? RESULT_OK : RESULT_REJECT;
}

bool element_is(const struct element *el, const char *name)
{
	return !el->q && str_equal(el->name, str_of(name));
}

struct element *element_child(const struct element *el, const char *name)
{
	for (struct element *child = el->first; child; child = child->next)
		if (element_is(child, name))
			return child;
	return NULL;
}

static const struct attribute *attribute_find(struct element *el, bool q, const char *name)
{
	for (uint32_t i = 0; i < el->attribute_count; i++) {
		struct attribute *attr = &el->attributes[i];

		if (attr->q != q || !str_equal(attr->name, str_of(name)))
			continue;
		attr->used = true;
		return attr;
	}
	return NULL;
}

const struct attribute *element_attribute_find(struct element *el, const char *name)
{
	return attribute_find(el, false, name);
}

const struct attribute *element_q_attribute_find(struct element *el, const char *name)
{
	return attribute_find(el, true, name);
}

struct str element_attribute(struct element *el, const char *name)
{
	const struct attribute *attr = element_attribute_find(el, name);

	return attr ? attr->value : STR_NONE;
}

struct element *element_walk_over(const struct element *root, struct element *el)
{
	while (el != root && !el->next)
		el = el->parent;
	return el == root ? NULL : el->next;
}

struct element *element_walk(const struct element *root, struct element *el)
{
	return el->first ? el->first : element_walk_over(root, el);
}

struct str element_trim(struct str s)
{
	while (s.len && memchr(" \t\r\n", s.ptr[0], 4)) {
		s.ptr++;
		s.len--;
	}
	while (s.len && memchr(" \t\r\n", s.ptr[s.len - 1], 4))
		s.len--;
	return s;
}
