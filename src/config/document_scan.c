/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scan before libconfig. It walks the text by the library's own token rules and
 *
 *   - refuses integer literals outside their range: 32 bits plain, 64 bits with L (1.5 wraps both silently);
 *   - refuses bytes that are not UTF-8, NUL bytes and \x00 escapes (the library would cut the text there);
 *   - refuses nesting that would use up the stack of the library's parser and destructor;
 *   - puts included files in place itself, found relative to the including file, or refuses every @include;
 *   - leaves comments out, so that nothing depends on how the library ends one.
 *
 * Each line of the result remembers where it came from; findings and settings are placed by that.
 */
#include "config/document_scan.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/alloc.h"

/* One file being read. */
struct cursor {
	const char *file;
	struct str text;
	size_t pos;
	unsigned line;
	bool line_blank; /* nothing but blanks on this line so far */
};

static void scan_finding(struct document_scan *scan, const char *file, unsigned line,
			 const char *fmt, ...) PRINTF_LIKE(4, 5);

static void scan_finding(struct document_scan *scan, const char *file, unsigned line,
			 const char *fmt, ...)
{
	struct document_sink *sink = scan->options->sink;
	struct buf text = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	sink->errors++;
	sink->add(sink, file, line, scan->options->code, text.data);
	buf_done(&text);
}

static void origin_push(struct document_scan *scan, const struct cursor *cur)
{
	if (scan->origin_count == scan->origin_cap) {
		scan->origin_cap = scan->origin_cap ? scan->origin_cap * 2 : 64;
		scan->origins = mem_array(scan->origins, scan->origin_cap, sizeof(*scan->origins));
	}
	scan->origins[scan->origin_count++] = (struct document_origin){cur->file, cur->line, false};
}

static int peek(const struct cursor *cur, size_t ahead)
{
	return cur->pos + ahead < cur->text.len ? (unsigned char)cur->text.ptr[cur->pos + ahead]
						: -1;
}

/* Copies one byte; a newline opens the next line of both texts. */
static void copy_byte(struct document_scan *scan, struct cursor *cur)
{
	char byte = cur->text.ptr[cur->pos++];

	buf_add_byte(&scan->text, byte);
	if (byte == '\n') {
		cur->line++;
		cur->line_blank = true;
		origin_push(scan, cur);
	} else if (byte != ' ' && byte != '\t') {
		cur->line_blank = false;
	}
}

static bool is_digit(int c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(int c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_name_start(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '*';
}

static bool is_name(int c)
{
	return is_name_start(c) || is_digit(c) || c == '-' || c == '_';
}

static void scan_line_comment(struct cursor *cur)
{
	while (cur->pos < cur->text.len && cur->text.ptr[cur->pos] != '\n')
		cur->pos++;
}

static void scan_block_comment(struct document_scan *scan, struct cursor *cur)
{
	unsigned opened = cur->line;

	cur->pos += 2;
	buf_add_byte(&scan->text, ' ');
	while (cur->pos < cur->text.len) {
		if (peek(cur, 0) == '*' && peek(cur, 1) == '/') {
			cur->pos += 2;
			return;
		}
		if (peek(cur, 0) == '\n')
			copy_byte(scan, cur);
		else
			cur->pos++;
	}
	scan_finding(scan, cur->file, opened, "the comment that begins here has no end");
	scan->broken = true;
}

static void scan_string(struct document_scan *scan, struct cursor *cur)
{
	unsigned opened = cur->line;

	copy_byte(scan, cur);
	while (cur->pos < cur->text.len) {
		int c = peek(cur, 0), next = peek(cur, 1);

		if (c == '\\' && (next == 'x' || next == 'X') && peek(cur, 2) == '0' &&
		    peek(cur, 3) == '0') {
			scan_finding(scan, cur->file, cur->line, "a text must not contain \\x00");
			scan->broken = true;
		}
		if (c == '\\' && (next == '\\' || next == '"'))
			copy_byte(scan, cur);
		copy_byte(scan, cur);
		if (c == '"')
			return;
	}
	scan_finding(scan, cur->file, opened, "the text that begins here has no closing quote");
	scan->broken = true;
}

/* Whether digits of this base make a number up to `max`. */
static bool digits_fit(struct str digits, unsigned base, uint64_t max)
{
	uint64_t value = 0;

	for (size_t i = 0; i < digits.len; i++) {
		char c = digits.ptr[i];
		unsigned digit = is_digit(c) ? (unsigned)(c - '0')
					     : (unsigned)((c | 0x20) - 'a') + 10;

		if (value > (max - digit) / base)
			return false;
		value = value * base + digit;
	}
	return true;
}

/* What stands at a number: where its parts end, as offsets from the cursor. */
struct number {
	size_t digits; /* where the digits begin */
	size_t end;    /* where the whole ends */
	struct str value;
	unsigned base;
	bool negative;
	bool is_float;
	bool is_long;
};

static struct number number_read(const struct cursor *cur)
{
	struct number n = {.base = 10};

	if (peek(cur, 0) == '-' || peek(cur, 0) == '+') {
		n.negative = peek(cur, 0) == '-';
		n.digits = 1;
	} else if (peek(cur, 0) == '0' && (peek(cur, 1) | 0x20) == 'x' && is_hex(peek(cur, 2))) {
		n.base = 16;
		n.digits = 2;
	}
	n.end = n.digits;
	while (n.base == 16 ? is_hex(peek(cur, n.end)) : is_digit(peek(cur, n.end)))
		n.end++;
	n.value = str_make(cur->text.ptr + cur->pos + n.digits, n.end - n.digits);
	if (n.base == 10 && peek(cur, n.end) == '.') {
		n.is_float = true;
		do
			n.end++;
		while (is_digit(peek(cur, n.end)));
	}
	if (n.base == 10 && (peek(cur, n.end) == 'e' || peek(cur, n.end) == 'E')) {
		size_t exponent = n.end + 1;

		if (peek(cur, exponent) == '-' || peek(cur, exponent) == '+')
			exponent++;
		if (is_digit(peek(cur, exponent))) {
			n.is_float = true;
			while (is_digit(peek(cur, exponent)))
				exponent++;
			n.end = exponent;
		}
	}
	for (int i = 0; i < 2 && !n.is_float && peek(cur, n.end) == 'L'; i++, n.end++)
		n.is_long = true;
	return n;
}

/* A literal out of range is reported and replaced by 0, so that the rest of the file is still read. */
static void scan_number(struct document_scan *scan, struct cursor *cur)
{
	struct number n = number_read(cur);
	uint64_t max = n.is_long ? INT64_MAX : INT32_MAX;
	struct str literal = str_make(cur->text.ptr + cur->pos, n.end);

	if (n.negative)
		max++;
	/* A sign or a point alone goes through too: let the library say what it thinks of it. */
	if (n.is_float || n.value.len == 0 || digits_fit(n.value, n.base, max)) {
		for (size_t i = 0; i < n.end; i++)
			copy_byte(scan, cur);
		return;
	}
	if (!n.is_long && digits_fit(n.value, n.base, (uint64_t)INT64_MAX + n.negative))
		scan_finding(scan, cur->file, cur->line,
			     "the integer %.*s does not fit 32 bits; write %.*sL", STR_ARG(literal),
			     STR_ARG(literal));
	else
		scan_finding(scan, cur->file, cur->line, "the integer %.*s does not fit 64 bits",
			     STR_ARG(literal));
	scan->origins[scan->origin_count - 1].refused = true;
	buf_add_text(&scan->text, n.is_long ? "0L" : "0");
	cur->pos += n.end;
	cur->line_blank = false;
}

/* The file name of an `@include "…"` at the cursor; false if it is not one. Moves the cursor behind it. */
static bool include_read(struct cursor *cur, struct str *name)
{
	static const char word[] = "@include";
	size_t at = cur->pos + sizeof(word) - 1;
	size_t start;

	if (!cur->line_blank || cur->text.len < at ||
	    memcmp(cur->text.ptr + cur->pos, word, sizeof(word) - 1))
		return false;
	while (at < cur->text.len && (cur->text.ptr[at] == ' ' || cur->text.ptr[at] == '\t'))
		at++;
	if (at >= cur->text.len || cur->text.ptr[at] != '"')
		return false;
	start = ++at;
	while (at < cur->text.len && cur->text.ptr[at] != '"' && cur->text.ptr[at] != '\n')
		at++;
	if (at >= cur->text.len || cur->text.ptr[at] != '"' || at == start)
		return false;
	*name = str_make(cur->text.ptr + start, at - start);
	cur->pos = at + 1;
	return true;
}

static void scan_include(struct document_scan *scan, struct cursor *cur)
{
	struct buf path = BUF_INIT;
	const char *slash = strrchr(cur->file, '/');
	struct str name;

	if (!scan->options->include_allowed) {
		scan_finding(scan, cur->file, cur->line, "@include is not allowed here");
		scan->broken = true;
		scan_line_comment(cur);
		return;
	}
	if (!include_read(cur, &name)) {
		scan_finding(scan, cur->file, cur->line,
			     "expected @include \"FILE\" at the beginning of a line");
		scan->broken = true;
		scan_line_comment(cur);
		return;
	}
	if (scan->include_depth == DOCUMENT_INCLUDE_MAX) {
		scan_finding(scan, cur->file, cur->line,
			     "files include each other more than %d deep", DOCUMENT_INCLUDE_MAX);
		scan->broken = true;
		return;
	}
	if (name.ptr[0] != '/' && slash)
		buf_add(&path, cur->file, (size_t)(slash - cur->file) + 1);
	buf_add_str(&path, name);
	scan->include_depth++;
	buf_add_byte(&scan->text, '\n');
	document_scan_file(scan, path.data);
	scan->include_depth--;
	/* What stands behind the directive goes on with the line it stood on. */
	origin_push(scan, cur);
	buf_done(&path);
}

static void scan_nesting(struct document_scan *scan, const struct cursor *cur, int c)
{
	if (c == '(' || c == '{' || c == '[') {
		if (++scan->nesting == DOCUMENT_DEPTH_MAX + 1) {
			scan_finding(scan, cur->file, cur->line,
				     "groups and lists are nested more than %d deep",
				     DOCUMENT_DEPTH_MAX);
			scan->broken = true;
		}
	} else if ((c == ')' || c == '}' || c == ']') && scan->nesting > 0) {
		scan->nesting--;
	}
}

static void scan_token(struct document_scan *scan, struct cursor *cur)
{
	int c = peek(cur, 0), next = peek(cur, 1);

	if (c == '#' || (c == '/' && next == '/')) {
		scan_line_comment(cur);
	} else if (c == '/' && next == '*') {
		scan_block_comment(scan, cur);
	} else if (c == '"') {
		scan_string(scan, cur);
	} else if (c == '@') {
		scan_include(scan, cur);
	} else if (is_digit(c) || c == '-' || c == '+' || c == '.') {
		scan_number(scan, cur);
	} else if (is_name_start(c)) {
		while (is_name(peek(cur, 0)))
			copy_byte(scan, cur);
	} else {
		scan_nesting(scan, cur, c);
		copy_byte(scan, cur);
	}
}

static unsigned line_of(struct str text, size_t pos)
{
	unsigned line = 1;

	for (size_t i = 0; i < pos; i++)
		line += text.ptr[i] == '\n';
	return line;
}

/* The line up to which the text is UTF-8, for the finding. */
static unsigned line_of_bad_utf8(struct str text)
{
	unsigned line = 1;
	size_t start = 0;

	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] != '\n')
			continue;
		if (!str_is_utf8(str_make(text.ptr + start, i - start)))
			return line;
		start = i + 1;
		line++;
	}
	return line;
}

void document_scan_text(struct document_scan *scan, const char *name, struct str text)
{
	struct cursor cur = {.text = text, .line = 1, .line_blank = true};
	const char *nul = text.len ? memchr(text.ptr, '\0', text.len) : NULL;

	scan->files = mem_array(scan->files, scan->file_count + 1, sizeof(*scan->files));
	cur.file = scan->files[scan->file_count++] = mem_strdup(name);
	origin_push(scan, &cur);
	if (text.len > DOCUMENT_BYTES_MAX || scan->text.len > DOCUMENT_BYTES_MAX)
		scan_finding(scan, cur.file, 0, "the file is larger than %zu bytes",
			     DOCUMENT_BYTES_MAX);
	else if (nul)
		scan_finding(scan, cur.file, line_of(text, (size_t)(nul - text.ptr)),
			     "there is a NUL byte");
	else if (!str_is_utf8(text))
		scan_finding(scan, cur.file, line_of_bad_utf8(text), "the text is not UTF-8");
	else
		goto scan;
	scan->broken = true;
	return;
scan:
	while (cur.pos < cur.text.len)
		scan_token(scan, &cur);
	buf_add_byte(&scan->text, '\n');
}

void document_scan_file(struct document_scan *scan, const char *path)
{
	FILE *file = fopen(path, "re");
	char *bytes;
	size_t len;

	if (!file) {
		scan_finding(scan, path, 0, "cannot be read: %s", strerror(errno));
		scan->broken = true;
		return;
	}
	/* One byte more than allowed tells a file that is too large. */
	bytes = mem_alloc(DOCUMENT_BYTES_MAX + 1);
	errno = 0;
	len = fread(bytes, 1, DOCUMENT_BYTES_MAX + 1, file);
	if (ferror(file)) {
		scan_finding(scan, path, 0, "cannot be read: %s", strerror(errno));
		scan->broken = true;
	} else {
		document_scan_text(scan, path, str_make(bytes, len));
	}
	free(bytes);
	fclose(file);
}

void document_scan_done(struct document_scan *scan)
{
	for (size_t i = 0; i < scan->file_count; i++)
		free(scan->files[i]);
	free(scan->files);
	free(scan->origins);
	buf_done(&scan->text);
	*scan = (struct document_scan){0};
}
