/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small things that reading and checking of a package share: arrays in an arena, the set of expressions, and which names
 * a user may choose.
 */
#include "model/build.h"

void *build_grow(struct arena *arena, void *items, uint32_t count, size_t size)
{
	/* The capacity is 4, 8, 16, …: full exactly when the count is such a number. */
	if (count != 0 && (count < 4 || (count & (count - 1)) != 0))
		return items;
	size_t cap = count == 0 ? 4 : (size_t)count * 2;
	void *grown = arena_alloc(arena, cap * size);

	if (count)
		memcpy(grown, items, count * size);
	return grown;
}

struct str build_str(struct build *build, struct str s)
{
	return s.ptr ? arena_str(build->arena, s) : STR_NONE;
}

const struct expression *build_expression(struct build *build, enum expression_kind kind,
					  struct str source, const char *file, int line,
					  struct str element)
{
	struct expression_set *set = &build->deployment->expressions;
	struct expression *expr = arena_zalloc(build->arena, sizeof(*expr));

	if (source.len > BUILD_EXPRESSION_BYTES_MAX) {
		finding_add(build->findings, file, line, element, CODE_CONFIG_EXPRESSION_INVALID,
			    "an expression of %zu bytes is over the limit of %zu", source.len,
			    BUILD_EXPRESSION_BYTES_MAX);
		source.len = 0;
	}
	*expr = (struct expression){
		.kind = kind,
		.source = arena_str(build->arena, source),
		.index = set->count,
		.file = file,
		.line = line,
	};
	if (set->count == BUILD_EXPRESSIONS_MAX) {
		if (!build->expressions_full)
			finding_add(build->findings, file, line, element,
				    CODE_CONFIG_EXPRESSION_INVALID,
				    "a package holds at most %d expressions",
				    BUILD_EXPRESSIONS_MAX);
		build->expressions_full = true;
		return expr;
	}
	set->items = build_grow(build->arena, set->items, set->count, sizeof(set->items[0]));
	set->items[set->count++] = expr;
	return expr;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool build_is_identifier(struct str name)
{
	if (name.len == 0 || name.len > BUILD_NAME_MAX || is_digit(name.ptr[0]))
		return false;
	for (size_t i = 0; i < name.len; i++)
		if (!is_letter(name.ptr[i]) && !is_digit(name.ptr[i]) && name.ptr[i] != '_')
			return false;
	return true;
}

bool build_is_channel_name(struct str name)
{
	if (name.len == 0 || name.len > BUILD_NAME_MAX)
		return false;
	for (size_t i = 0; i < name.len; i++) {
		char c = name.ptr[i];

		if (is_letter(c) || is_digit(c))
			continue;
		if (i == 0 || (c != '.' && c != '_' && c != '-'))
			return false;
	}
	return true;
}

bool build_is_reserved(struct str name)
{
	static const char *const words[] = {
		/* Lua's words */
		"and",
		"break",
		"do",
		"else",
		"elseif",
		"end",
		"false",
		"for",
		"function",
		"goto",
		"if",
		"in",
		"local",
		"nil",
		"not",
		"or",
		"repeat",
		"return",
		"then",
		"true",
		"until",
		"while",
		"_G",
		"_ENV",
		/* what every expression sees */
		"header",
		"event",
		"instance",
		"process",
		"tenant",
		"null",
		"fault",
		"validation",
		/* the library */
		"math",
		"string",
		"utf8",
		"table",
		"ipairs",
		"pairs",
		"select",
		"type",
		"tostring",
		"tonumber",
		"error",
		"pcall",
		"len",
		"map",
		"filter",
		"find",
		"any",
		"all",
		"sum",
		"keys",
		"merge",
		"join",
		"json",
		"base64",
		"sha256",
		"now",
		"uuid",
		"duration",
		"list",
	};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_equal(name, str_of(words[i])))
			return true;
	return false;
}
