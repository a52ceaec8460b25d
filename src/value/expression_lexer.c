/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lexer for source that Lua's own compiler judges: it need not tell good numerals from bad ones, only find where each
 * token begins and ends.
 */
#include "value/expression_lexer.h"

#include <ctype.h>

static bool is_name_byte(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* At '[': how many '=' stand before the second '[', or -1 if this is no long bracket. */
static ptrdiff_t long_bracket(struct str source, size_t at)
{
	size_t end = at + 1;

	while (end < source.len && source.ptr[end] == '=')
		end++;
	return end < source.len && source.ptr[end] == '[' ? (ptrdiff_t)(end - at - 1) : -1;
}

/* Behind the end of the long bracket at `at`, or beyond the source if there is none. */
static size_t long_bracket_end(struct str source, size_t at, ptrdiff_t level)
{
	for (at += (size_t)level + 2; at < source.len; at++) {
		size_t end = at + 1;

		if (source.ptr[at] != ']')
			continue;
		while (end < source.len && source.ptr[end] == '=')
			end++;
		if ((ptrdiff_t)(end - at - 1) == level && end < source.len &&
		    source.ptr[end] == ']')
			return end + 1;
		at = end - 1;
	}
	return source.len + 1;
}

/* Behind white space and comments; beyond the source if a comment does not end. */
static size_t skip_space(struct str source, size_t at)
{
	ptrdiff_t level;

	for (;;) {
		while (at < source.len && isspace((unsigned char)source.ptr[at]))
			at++;
		if (at + 1 >= source.len || source.ptr[at] != '-' || source.ptr[at + 1] != '-')
			return at;
		at += 2;
		level = at < source.len && source.ptr[at] == '[' ? long_bracket(source, at) : -1;
		if (level >= 0) {
			at = long_bracket_end(source, at, level);
			continue;
		}
		while (at < source.len && source.ptr[at] != '\n' && source.ptr[at] != '\r')
			at++;
	}
}

static size_t string_end(struct str source, size_t at)
{
	char quote = source.ptr[at++];

	while (at < source.len && source.ptr[at] != quote) {
		if (source.ptr[at] == '\n' || source.ptr[at] == '\r')
			return source.len + 1;
		if (source.ptr[at] != '\\') {
			at++;
			continue;
		}
		at++;
		if (at < source.len && source.ptr[at] == 'z') {
			at++;
			while (at < source.len && isspace((unsigned char)source.ptr[at]))
				at++;
		} else if (at + 1 < source.len && source.ptr[at] == '\r' &&
			   source.ptr[at + 1] == '\n') {
			at += 2;
		} else {
			at++;
		}
	}
	return at + 1;
}

/* Like Lua: everything that could belong to a numeral does. */
static size_t number_end(struct str source, size_t at)
{
	bool hex = at + 1 < source.len && source.ptr[at] == '0' && (source.ptr[at + 1] | 32) == 'x';

	for (; at < source.len; at++) {
		char c = source.ptr[at];

		if (((c | 32) == (hex ? 'p' : 'e')) && at + 1 < source.len &&
		    (source.ptr[at + 1] == '+' || source.ptr[at + 1] == '-'))
			at++;
		else if (!is_name_byte(c) && c != '.')
			break;
	}
	return at;
}

static size_t operator_end(struct str source, size_t at)
{
	static const char *const operators[] = {
		"...", "..", "==", "~=", "<=", ">=", "//", "::", "<<", ">>"};
	struct str rest = str_make(source.ptr + at, source.len - at);

	for (size_t i = 0; i < ARRAY_LEN(operators); i++)
		if (str_starts_with(rest, str_of(operators[i])))
			return at + strlen(operators[i]);
	if (*rest.ptr && strchr("+-*/%^#&~|<>=(){}[];:,.", *rest.ptr))
		return at + 1;
	return source.len + 1;
}

struct expression_token expression_token_next(struct str source, size_t at)
{
	struct expression_token token = {TOKEN_END, STR_NONE};
	size_t end;

	at = skip_space(source, at);
	if (at >= source.len) {
		token.kind = at > source.len ? TOKEN_BROKEN : TOKEN_END;
		token.text = str_make(source.ptr + source.len, 0);
		return token;
	}
	if (isalpha((unsigned char)source.ptr[at]) || source.ptr[at] == '_') {
		token.kind = TOKEN_NAME;
		for (end = at; end < source.len && is_name_byte(source.ptr[end]);)
			end++;
	} else if (isdigit((unsigned char)source.ptr[at]) ||
		   (source.ptr[at] == '.' && at + 1 < source.len &&
		    isdigit((unsigned char)source.ptr[at + 1]))) {
		token.kind = TOKEN_NUMBER;
		end = number_end(source, at);
	} else if (source.ptr[at] == '"' || source.ptr[at] == '\'') {
		token.kind = TOKEN_STRING;
		end = string_end(source, at);
	} else if (source.ptr[at] == '[' && long_bracket(source, at) >= 0) {
		token.kind = TOKEN_STRING;
		end = long_bracket_end(source, at, long_bracket(source, at));
	} else {
		token.kind = TOKEN_OPERATOR;
		end = operator_end(source, at);
	}
	if (end > source.len) {
		token.kind = TOKEN_BROKEN;
		end = at;
	}
	token.text = str_make(source.ptr + at, end - at);
	return token;
}

void expression_position(struct str source, size_t at, int *line, int *column)
{
	*line = *column = 1;
	for (size_t i = 0; i < at && i < source.len; i++) {
		char c = source.ptr[i];

		if (c == '\n' || c == '\r') {
			if (i + 1 < at &&
			    (source.ptr[i + 1] == '\n' || source.ptr[i + 1] == '\r') &&
			    source.ptr[i + 1] != c)
				i++;
			++*line;
			*column = 1;
		} else if (((unsigned char)c & 0xc0) != 0x80) {
			++*column;
		}
	}
}

bool expression_is_keyword(struct str name)
{
	static const char *const keywords[] = {
		"and",      "break",  "do",   "else", "elseif", "end",   "false", "for",
		"function", "goto",   "if",   "in",   "local",  "nil",   "not",   "or",
		"repeat",   "return", "then", "true", "until",  "while",
	};

	for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
		if (str_equal(name, str_of(keywords[i])))
			return true;
	return false;
}
